"""DeepSpeed's CPU Adam: milliseconds of an update, best of several, with the 16-bit weights copied.

    python bench/peers/host_adam.py [threads] [millions of parameters] [rounds]

needs `torch` and `deepspeed` from PyPI; the extension is compiled at the first call.
"""

import os
import sys
import time

threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
count = int(float(sys.argv[2]) * 1e6) if len(sys.argv) > 2 else 50_000_000
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 20
os.environ["OMP_NUM_THREADS"] = str(threads)

import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

torch.set_num_threads(threads)
weight = torch.nn.Parameter(torch.randn(count))
weight.grad = torch.randn(count)
half = torch.empty(count, dtype=torch.bfloat16)
rule = DeepSpeedCPUAdam([weight], lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, adamw_mode=True)
update = copied = 1e30
for _ in range(rounds):
    start = time.perf_counter()
    rule.step()
    middle = time.perf_counter()
    half.copy_(weight.data)
    end = time.perf_counter()
    update, copied = min(update, middle - start), min(copied, end - start)
print(f"{count / 1e6:.0f} M parameters, {threads} threads: update {update * 1e3:.1f} ms, with the 16-bit weights {copied * 1e3:.1f} ms")
