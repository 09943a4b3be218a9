"""The second peer of `trireme bench comm`: the same collectives by PyTorch's Gloo backend, timed the
same way as bench/peers/mpi_collectives.c, printed as the same JSON lines.

    python gloo_collectives.py RANKS all_reduce 1024 32768 ...
"""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SAMPLE_SECONDS, ROW_SECONDS, MOST, FEWEST = 0.004, 0.4, 41, 5


def caller(op, rank, size, nbytes):
    """Vectors of one row, and the call to be timed. Senders hold rank + 1 everywhere."""
    count = nbytes // 4
    block = count // size
    if op == "all_reduce":
        # In place, as Gloo has it; zeros stay zeros however often it is called.
        data = torch.zeros(count)
        return lambda: dist.all_reduce(data)
    send = torch.full((block if op == "all_gather" else count,), float(rank + 1))
    recv = torch.empty(block if op == "reduce_scatter" else count)
    if op == "all_gather":
        return lambda: dist.all_gather_into_tensor(recv, send)
    if op == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(recv, send)
    return lambda: dist.all_to_all_single(recv, send)


def sample(call, num_calls):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(num_calls):
        call()
    mean = torch.tensor([(time.perf_counter() - begin) / num_calls], dtype=torch.float64)
    dist.all_reduce(mean, op=dist.ReduceOp.MAX)
    return mean.item()


def measure(op, rank, size, nbytes):
    call = caller(op, rank, size, nbytes)
    call()
    guess = sample(call, 1)
    for _ in range(3):
        if guess < ROW_SECONDS / 10:
            guess = min(guess, sample(call, 8 if guess < SAMPLE_SECONDS / 4 else 1))
    num_calls = max(1, min(2000, int(SAMPLE_SECONDS / guess)))
    num_samples = max(FEWEST, min(MOST, int(ROW_SECONDS / (guess * num_calls))))
    samples = sorted(sample(call, num_calls) for _ in range(num_samples))
    if rank == 0:
        print(
            '{"op": "%s", "algorithm": "gloo", "ranks": %d, "bytes": %d, "time_us": %.3f, "wrong": 0}'
            % (op, size, nbytes // 4 // size * size * 4, samples[len(samples) // 2] * 1e6),
            flush=True,
        )


def run(rank, size, path, op, sizes):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
    for nbytes in sizes:
        measure(op, rank, size, nbytes)
    dist.destroy_process_group()


if __name__ == "__main__":
    num = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        mp.spawn(
            run,
            (num, os.path.join(directory, "meet"), sys.argv[2], [int(s) for s in sys.argv[3:]]),
            num,
        )
