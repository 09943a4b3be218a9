"""The data-parallel peer: the model of torch_cpu.py on several processes over Gloo.

    torch_ddp.py --mode ddp  --ranks 2 --model small --batch 8 --seq-len 256
    torch_ddp.py --mode fsdp ...

--batch is the global batch; each rank has --threads threads. DDP is as it comes but for
gradient_as_bucket_view and static_graph, which help it here; FSDP is fully_shard on every block
and on the model, or the older FullyShardedDataParallel where there is no fully_shard. Fused AdamW
and clipping as in torch_cpu.py, and the same environment but for OMP_PROC_BIND, with which all
ranks would sit on one core. Prints one JSON line: the median step of the slowest rank.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

from torch_cpu import ENVIRONMENT, MODELS, build


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--mode", choices=("ddp", "fsdp"), default="ddp")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--model", choices=MODELS, default="small")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--seq-len", type=int, default=256)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--steps", type=int, default=10)
    return p.parse_args()


def launch(args):
    """Starts this script once for each rank and waits; the exit status is the worst."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
               WORLD_SIZE=str(args.ranks), OMP_NUM_THREADS=str(args.threads))
    for key, value in ENVIRONMENT.items():
        if key != "OMP_PROC_BIND":
            env.setdefault(key, value)
    ranks = [subprocess.Popen([sys.executable] + sys.argv, env=dict(env, RANK=str(r)))
             for r in range(args.ranks)]
    return max(abs(r.wait()) for r in ranks)


def wrap(torch, model, mode):
    if mode == "ddp":
        from torch.nn.parallel import DistributedDataParallel
        return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel(model, use_orig_params=True)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def main():
    args = arguments()
    if "RANK" not in os.environ:
        sys.exit(launch(args))
    import torch
    import torch.distributed as dist

    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = wrap(torch, build(torch, args.model), args.mode)
    params = list(model.parameters())
    groups = [
        {"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0},
    ]
    rule = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    rows = (args.batch + size - 1) // size
    torch.manual_seed(2 + rank)

    def step():
        tokens = torch.randint(MODELS[args.model][4], (rows, args.seq_len + 1))
        dist.barrier()
        start = time.perf_counter()
        loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        rule.step()
        rule.zero_grad(set_to_none=True)
        loss.item()
        return 1e3 * (time.perf_counter() - start)

    times = []
    for i in range(args.warmup + args.steps):
        slowest = torch.tensor([step()])
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if i >= args.warmup:
            times.append(slowest.item())
    ms = statistics.median(times)
    if rank == 0:
        print(json.dumps({
            "peer": "torch_" + args.mode, "model": args.model, "batch": args.batch,
            "seq_len": args.seq_len, "ranks": size, "threads": args.threads,
            "tokens_per_s": round(1e3 * rows * size * args.seq_len / ms, 1), "ms": round(ms, 2),
            "ms_min": round(min(times), 2), "version": torch.__version__,
        }))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
