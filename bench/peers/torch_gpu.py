"""The GPU peer: training steps in PyTorch as a good user would write them.

torch.compile, bf16 autocast with fp32 parameters, fused AdamW with decay on matrices, gradient
clipping at 1.0, scaled_dot_product_attention (its flash kernel, or --attention cudnn), vocabulary
padded to a multiple of 64. Prints one JSON line.

    torch_gpu.py --model gpt2-124m
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {
    # kind, layers, width, heads, key heads, feed-forward, vocabulary, batch, length
    "gpt2-124m": ("gpt2", 12, 768, 12, 12, 3072, 50304, 64, 1024),
    "gpt2-350m": ("gpt2", 24, 1024, 16, 16, 4096, 50304, 32, 1024),
    "gpt2-1558m": ("gpt2", 48, 1600, 25, 25, 6400, 50304, 16, 1024),
    "llama-1.1b": ("llama", 22, 2048, 32, 4, 5632, 32000, 8, 2048),
}


class Block(nn.Module):
    def __init__(self, kind, dim, heads, kv_heads, ffn):
        super().__init__()
        self.llama, self.heads, self.kv_heads, self.head_dim = kind == "llama", heads, kv_heads, dim // heads
        bias = not self.llama
        norm = (lambda: nn.RMSNorm(dim, 1e-5)) if self.llama else (lambda: nn.LayerNorm(dim))
        self.norm_1, self.norm_2 = norm(), norm()
        self.qkv = nn.Linear(dim, (heads + 2 * kv_heads) * self.head_dim, bias=bias)
        self.proj = nn.Linear(dim, dim, bias=bias)
        self.up = nn.Linear(dim, 2 * ffn if self.llama else ffn, bias=bias)
        self.down = nn.Linear(ffn, dim, bias=bias)

    def attend(self, x, turn):
        B, T, D = x.shape
        sizes = [self.heads, self.kv_heads, self.kv_heads]
        q, k, v = (
            part.view(B, T, n, self.head_dim).transpose(1, 2)
            for part, n in zip(self.qkv(x).split([n * self.head_dim for n in sizes], -1), sizes)
        )
        if self.llama:
            q, k = rotate(q, *turn), rotate(k, *turn)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.proj(y.transpose(1, 2).reshape(B, T, D))

    def forward(self, x, turn):
        x = x + self.attend(self.norm_1(x), turn)
        h = self.up(self.norm_2(x))
        if self.llama:
            gate, h = h.chunk(2, -1)
            h = F.silu(gate) * h
        else:
            h = F.gelu(h, approximate="tanh")
        return x + self.down(h)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Model(nn.Module):
    def __init__(self, kind, layers, dim, heads, kv_heads, ffn, vocab, length):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(length, dim) if kind == "gpt2" else None
        self.blocks = nn.ModuleList(Block(kind, dim, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(dim, 1e-5) if kind == "llama" else nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        if kind == "gpt2":
            self.head.weight = self.tokens.weight
        half = dim // heads // 2
        angle = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", choices=MODELS, default="gpt2-124m")
    p.add_argument("--batch", type=int, default=0)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--attention", choices=("flash", "cudnn"), default="flash")
    p.add_argument("--no-compile", action="store_true")
    args = p.parse_args()
    *sizes, batch, length = MODELS[args.model]
    batch = args.batch or batch
    vocab = sizes[6]
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    model = Model(*sizes, length).cuda()
    groups = [
        {"params": [q for q in model.parameters() if q.dim() > 1], "weight_decay": 0.1},
        {"params": [q for q in model.parameters() if q.dim() == 1], "weight_decay": 0.0},
    ]
    rule = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    loss_of = model if args.no_compile else torch.compile(model)
    data = torch.randint(vocab - 64, (batch, length + 1), device="cuda")
    tokens, targets = data[:, :-1].contiguous(), data[:, 1:].contiguous()
    backend = torch.nn.attention.SDPBackend
    kernel = backend.CUDNN_ATTENTION if args.attention == "cudnn" else backend.FLASH_ATTENTION
    times = []
    with torch.nn.attention.sdpa_kernel(kernel):
        for _ in range(args.steps + 5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = loss_of(tokens, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            rule.step()
            rule.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    median = statistics.median(times[5:])
    print(json.dumps({
        "peer": f"PyTorch {torch.__version__}", "model": args.model, "attention": args.attention,
        "batch": batch, "seq_len": length, "ms": round(median * 1e3, 2),
        "tokens_per_s": round(batch * length / median), "loss": round(loss.item(), 4),
        "memory_bytes": torch.cuda.max_memory_allocated(),
    }))


if __name__ == "__main__":
    main()
