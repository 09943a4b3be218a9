"""The same training in PyTorch: the weights, rows and learning rates of a run of Trireme.

bench/long_run.sh makes what this reads: a run directory with metrics.jsonl (learning rates) and
samples/rank-0.jsonl (which windows each step has), the first weights as a Hugging Face directory,
and a directory of tokens. Writes a line of JSON with the loss of every step.
"""
import argparse
import json
import pathlib
import time

import numpy
import torch
import transformers


def philox(seed, block, step, stream):
    """docs/data.md and src/base/rng.h: the generator that shuffles the data."""
    m = 0xFFFFFFFF
    c = [block & m, block >> 32, step, stream]
    k = [seed & m, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & m, (p0 >> 32) ^ c[3] ^ k[1], p0 & m]
        k = [(k[0] + 0x9E3779B9) & m, (k[1] + 0xBB67AE85) & m]
    return c


def stream(text):
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def read_tokens(directory):
    parts = []
    for path in sorted(pathlib.Path(directory).glob("train-*.tok")):
        raw = path.read_bytes()
        begin, width = int.from_bytes(raw[12:16], "little"), int.from_bytes(raw[16:20], "little")
        parts.append(numpy.frombuffer(raw, {2: "<u2", 4: "<u4"}[width], offset=begin))
    return numpy.concatenate(parts).astype(numpy.int64)


class Rows:
    """Windows of the tokens, as docs/data.md says."""

    def __init__(self, tokens, length, seed):
        self.tokens, self.length, self.seed = tokens, length, seed
        self.num = 1 if len(tokens) < 2 * length else len(tokens) // length - 1
        self.num_phases = len(tokens) - self.num * length

    def row(self, sample, window):
        word = philox(self.seed, sample // self.num, 0, stream("data:phase"))
        begin = (word[0] << 32 | word[1]) % self.num_phases + window * self.length
        return self.tokens[begin:begin + self.length + 1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--run", required=True)
    p.add_argument("--weights", required=True)
    p.add_argument("--tokens", required=True)
    p.add_argument("--length", type=int, required=True)
    p.add_argument("--seed", type=int, required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--no-compile", action="store_true")
    args = p.parse_args()
    run = pathlib.Path(args.run)
    rates = [json.loads(line)["lr"] for line in open(run / "metrics.jsonl")
             if "loss" in line]
    order = [json.loads(line) for line in open(run / "samples" / "rank-0.jsonl")]
    rows = Rows(read_tokens(args.tokens), args.length, args.seed)
    batches = numpy.stack([
        numpy.stack([rows.row(s, w) for s, w in zip(o["samples"], o["windows"])])
        for o in order[:len(rates)]])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = torch.from_numpy(batches).to(device)
    torch.set_float32_matmul_precision("high")
    model = transformers.GPT2LMHeadModel.from_pretrained(
        args.weights, attn_implementation="sdpa", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        use_cache=False, dtype=torch.float32).to(device)
    model.train()
    groups = [
        {"params": [q for q in model.parameters() if q.dim() > 1], "weight_decay": 0.1},
        {"params": [q for q in model.parameters() if q.dim() == 1], "weight_decay": 0.0},
    ]
    rule = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), eps=1e-8, fused=device == "cuda")

    def loss_of(batch):
        logits = model(batch[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(),
                                                 batch[:, 1:].flatten())

    step_loss = loss_of if args.no_compile else torch.compile(loss_of)
    losses, begin = [], time.perf_counter()
    for step, rate in enumerate(rates):
        for group in rule.param_groups:
            group["lr"] = rate
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = step_loss(data[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        rule.step()
        rule.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    losses = torch.stack(losses).tolist()
    json.dump({"peer": f"PyTorch {torch.__version__}", "losses": losses,
               "seconds": time.perf_counter() - begin}, open(args.out, "w"))


if __name__ == "__main__":
    main()
