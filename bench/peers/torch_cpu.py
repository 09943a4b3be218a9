"""The CPU peer: one training step of a GPT-2, or of a small mixture of experts, in PyTorch, fp32,
as a good user would write it.

Flash attention (F.scaled_dot_product_attention), fused AdamW with weight decay on matrices,
gradient clipping at 1.0, no dropout. The vocabulary of the 124M model is padded from 50257 to
50304 (a multiple of 64), which PyTorch prefers; tokens stay below 50257. The mixture is a Llama
whose tokens are sorted by expert, with a product for each expert's rows. Prints one JSON line;
cpu_others is the share of the machine that other processes took during the timed steps: above
0.05 or so, measure again, or use --wait.

    torch_cpu.py --model 124m --batch 4 --seq-len 64 --threads 2

Before torch loads, the script starts itself again with the environment that was found fastest
(see ENVIRONMENT); variables that are already set are left alone, and --plain-env skips it.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import time

MODELS = {
    # layers, width, heads, vocabulary (padded), vocabulary of the tokens, positions
    "124m": (12, 768, 12, 50304, 50257, 1024),
    "small": (6, 384, 6, 4096, 4096, 256),
    "mixture": (4, 256, 4, 4096, 4096, 256),
}
MIXTURE = (8, 2, 512)  # experts, choices of a token, width of an expert

ENVIRONMENT = {
    # Huge pages: torch's own large blocks, and the C library's heap.
    "THP_MEM_ALLOC_ENABLE": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    # Everything from the heap, and freed memory stays with the process: otherwise each step maps
    # its gradients and activations anew and pays for the page faults.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "-1",
    "MALLOC_TOP_PAD_": "67108864",
    # A thread stays on its core.
    "OMP_PROC_BIND": "close",
}

QUIET = 0.05  # --wait: others may take this share of the machine during a step that counts


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", choices=MODELS, default="124m")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seq-len", type=int, default=64)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--steps", type=int, default=10, help="timed steps, of which the median counts")
    p.add_argument("--wait", type=float, default=0, metavar="SECONDS",
                   help="on a shared machine: spend up to this long on waiting for quiet steps")
    p.add_argument("--paced", action="store_true",
                   help="begin each timed step after a line on standard input, and print its time")
    p.add_argument("--compile", action="store_true", help="torch.compile the model")
    p.add_argument("--optimizer", choices=("fused", "foreach", "plain"), default="fused")
    p.add_argument("--plain-env", action="store_true", help="leave the environment as it is")
    return p.parse_args()


def enter_environment(args):
    """The C library and OpenMP read these at start, so set them and start again."""
    wanted = dict(ENVIRONMENT, OMP_NUM_THREADS=str(args.threads))
    missing = {k: v for k, v in wanted.items() if k not in os.environ}
    if missing and not args.plain_env:
        os.environ.update(missing)
        os.execv(sys.executable, [sys.executable] + sys.argv)


def cpu_seconds():
    """(this process, all processes), so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/stat") as f:
        ticks = list(map(int, f.readline().split()[1:9]))  # user nice system idle iowait ...
    busy = sum(ticks) - ticks[3] - ticks[4]
    return own.ru_utime + own.ru_stime, busy / os.sysconf("SC_CLK_TCK")


def others_share(work):
    """Runs work() and returns the share of all cores that other processes took meanwhile."""
    began, (own, everyone) = time.perf_counter(), cpu_seconds()
    work()
    own_after, everyone_after = cpu_seconds()
    wall = time.perf_counter() - began
    return max(0.0, (everyone_after - everyone) - (own_after - own)) / (wall * os.cpu_count())


def build(torch, model):
    nn, F = torch.nn, torch.nn.functional
    num_layers, dim, num_heads, vocab, _, positions = MODELS[model]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.c_attn, self.attn_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.c_fc, self.mlp_proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x):
            B, T, _ = x.shape
            qkv = self.c_attn(self.ln_1(x)).view(B, T, 3, num_heads, dim // num_heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.attn_proj(o.transpose(1, 2).reshape(B, T, dim))
            return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(positions, dim)
            self.blocks = nn.ModuleList(Block() for _ in range(num_layers))
            self.ln_f = nn.LayerNorm(dim)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.view(-1, vocab), targets.view(-1))

    return GPT2()


def build_mixture(torch):
    nn, F = torch.nn, torch.nn.functional
    num_layers, dim, num_heads, vocab, _, positions = MODELS["mixture"]
    num_experts, top, width = MIXTURE
    head = dim // num_heads
    angle = torch.outer(torch.arange(positions), 1 / 10000 ** (torch.arange(0, head, 2) / head))
    cos, sin = angle.cos(), angle.sin()

    def rope(x):
        a, b = x.chunk(2, -1)
        c, s = cos[: x.shape[-2]], sin[: x.shape[-2]]
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(dim, num_experts, bias=False)
            self.gate_up = nn.Parameter(torch.empty(num_experts, 2 * width, dim))
            self.down = nn.Parameter(torch.empty(num_experts, dim, width))

        def forward(self, x):
            rows = x.reshape(-1, dim)
            scores = F.softmax(self.router(rows), -1)
            weights, choice = scores.topk(top, -1)
            weights = weights / weights.sum(-1, keepdim=True)
            order = torch.argsort(choice.reshape(-1), stable=True)
            counts = torch.bincount(choice.reshape(-1), minlength=num_experts)
            token = order // top
            parts = []
            for e, own in enumerate(rows[token].split(counts.tolist())):
                gate, up = F.linear(own, self.gate_up[e]).chunk(2, -1)
                parts.append(F.linear(F.silu(gate) * up, self.down[e]))
            out = torch.cat(parts) * weights.reshape(-1)[order].unsqueeze(-1)
            balance = num_experts * (counts / counts.sum() * scores.mean(0)).sum()
            return torch.zeros_like(rows).index_add(0, token, out).view_as(x), balance

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.RMSNorm(dim, 1e-5), nn.RMSNorm(dim, 1e-5)
            self.qkv, self.o = nn.Linear(dim, 3 * dim, False), nn.Linear(dim, dim, False)
            self.experts = Experts()

        def forward(self, x):
            B, T, _ = x.shape
            qkv = self.qkv(self.norm_1(x)).view(B, T, 3, num_heads, head)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            o = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True)
            x = x + self.o(o.transpose(1, 2).reshape(B, T, dim))
            y, balance = self.experts(self.norm_2(x))
            return x + y, balance

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab, False)
            self.blocks = nn.ModuleList(Block() for _ in range(num_layers))
            self.norm = nn.RMSNorm(dim, 1e-5)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, targets):
            x, balance = self.embed(tokens), 0
            for block in self.blocks:
                x, more = block(x)
                balance = balance + more
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, vocab), targets.reshape(-1)) + 0.01 * balance

    return Mixture()


def main():
    args = arguments()
    enter_environment(args)
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = build_mixture(torch) if args.model == "mixture" else build(torch, args.model)
    params = list(model.parameters())
    groups = [
        {"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0},
    ]
    how = {"fused": {"fused": True}, "foreach": {"foreach": True}, "plain": {"foreach": False}}
    rule = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), **how[args.optimizer])
    step_loss = torch.compile(model) if args.compile else model
    num_tokens = MODELS[args.model][4]

    def phases():
        tokens = torch.randint(num_tokens, (args.batch, args.seq_len + 1))
        start = time.perf_counter()
        loss = step_loss(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        rule.step()
        rule.zero_grad(set_to_none=True)
        loss.item()
        end = time.perf_counter()
        return [1e3 * x for x in (end - start, forward - start, backward - forward, end - backward)]

    for _ in range(args.warmup):
        phases()
    steps, shares = [], []
    give_up = time.perf_counter() + args.wait
    while len(steps) < args.steps:
        while time.perf_counter() < give_up and others_share(lambda: time.sleep(0.2)) > QUIET:
            pass
        if args.paced and not sys.stdin.readline():
            sys.exit("standard input ended: with --paced every step waits for a line there")
        shares.append(others_share(lambda: steps.append(phases())))
        if args.paced:
            print(json.dumps({"step": len(steps), "step_ms": round(steps[-1][0], 3)}), flush=True)
        if shares[-1] > QUIET and time.perf_counter() < give_up:
            steps.pop(), shares.pop()  # someone came in: not a measurement
    ms, fwd, bwd, upd = (statistics.median(column) for column in zip(*steps))
    fastest = min(step[0] for step in steps)
    tokens = args.batch * args.seq_len
    print(json.dumps({
        "peer": "torch_cpu", "model": args.model, "batch": args.batch, "seq_len": args.seq_len,
        "threads": args.threads, "tokens_per_s": round(1e3 * tokens / ms, 1), "ms": round(ms, 2),
        "ms_min": round(fastest, 2), "ms_forward": round(fwd, 2), "ms_backward": round(bwd, 2),
        "ms_update": round(upd, 2), "compile": args.compile, "optimizer": args.optimizer,
        "cpu_others": round(statistics.mean(shares), 3), "version": torch.__version__,
    }))


if __name__ == "__main__":
    main()
