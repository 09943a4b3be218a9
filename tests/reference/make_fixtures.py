"""Writes tests/fixtures/*.safetensors: short trainings that Trireme must reproduce.

Everything is computed in float64 from float32 initial weights and rounded to float32 when stored.
On the way, the script checks itself: update rules against torch.optim, the formulas of mlp_toy
against autograd; and it prints how far a float32 run of the same training drifts, which is what a
test may expect of a correct fp32 program.
"""

import json
import pathlib

import numpy as np
import torch
from safetensors.numpy import save_file

import models
import optim
import philox

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"

OPTIM = {
    "kind": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
    "weight_decay": 0.1, "momentum": 0.0, "nesterov": False,
}


def gpt2(num_layers, dim, num_heads, ffn_dim, vocab, seq_len, batch, seed, positions=None,
         dropout=0.0, clip=1.0, ignored=0.0, z_loss=0.0, **optim_keys):
    config = {
        "kind": "gpt2", "num_layers": num_layers, "dim": dim, "num_heads": num_heads,
        "ffn_dim": ffn_dim, "vocab": vocab, "positions": positions or seq_len, "seq_len": seq_len,
        "batch": batch, "dropout": dropout, "seed": seed, "steps": 10, "optim": OPTIM | optim_keys,
        "clip": clip, "act": "gelu", "loss": "ce", "bias": True,
    }
    if z_loss > 0:
        config["z_loss"] = z_loss
    return config, ignored


def small(seed, **keys):
    return gpt2(2, 24, 4, 96, 101, 16, 4, seed, **keys)


def mlp(num_layers, dim, ffn_dim, batch, act, loss, bias, seed, clip=0.0, **optim_keys):
    config = {
        "kind": "mlp", "num_layers": num_layers, "dim": dim, "num_heads": 0, "ffn_dim": ffn_dim,
        "vocab": 0, "positions": 0, "seq_len": 0, "batch": batch, "dropout": 0.0, "seed": seed,
        "steps": 10, "optim": OPTIM | optim_keys, "clip": clip, "act": act, "loss": loss,
        "bias": bias,
    }
    return config, 0.0


PLAIN_SGD = {"kind": "sgd", "beta1": 0.0, "beta2": 0.0, "eps": 0.0, "weight_decay": 0.0}

CASES = {
    "gpt2_small": small(1),
    "gpt2_odd": gpt2(3, 33, 3, 71, 97, 13, 5, 5000000007, ignored=0.2),  # a seed above 2^32
    "gpt2_wide": gpt2(1, 48, 2, 192, 257, 33, 3, 3, positions=40),
    "gpt2_dropout": small(4, dropout=0.1),
    "gpt2_adam": small(5, kind="adam", beta2=0.999, weight_decay=0.01),
    "gpt2_sgd": small(6, **PLAIN_SGD | {"lr": 0.05, "momentum": 0.9, "nesterov": True,
                                        "weight_decay": 0.01}),
    "gpt2_muon": small(7, kind="muon", momentum=0.95, nesterov=True),
    "gpt2_z": small(11, ignored=0.2, z_loss=0.0625),
    "mlp_toy": mlp(4, 2, 6, 5, "none", "sse", False, 8, **PLAIN_SGD | {"lr": 0.01}),
    "mlp_bias": mlp(3, 6, 10, 7, "gelu", "mse", True, 9),
    "mlp_relu": mlp(2, 5, 12, 6, "relu", "mean", True, 10, clip=0.1,
                    **PLAIN_SGD | {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.01}),
}
WITH_PARAMS = ("gpt2_small", "mlp_toy", "mlp_bias")


def make_data(c, ignored):
    """Sequences in which half the tokens follow a fixed map, so there is something to learn."""
    seed, steps, B = c["seed"], c["steps"], c["batch"]

    def words(name, shape):
        index = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
        return philox.random_word(seed, index, 0, philox.stream("fixture", name))

    if c["kind"] == "mlp":
        shape = (steps, B, c["dim"])

        def normal(name):
            num, stream = int(np.prod(shape)), philox.stream("fixture", name)
            return philox.random_normal(seed, 0, num, 0, stream).reshape(shape)

        return {"x": normal("x"), "target": normal("target")}

    V, T = c["vocab"], c["seq_len"]
    free = (words("token", (steps, B, T + 1)) % V).astype(np.int32)
    follow = words("follow", (steps, B, T + 1)) % 2 == 0
    row = free.copy()
    for t in range(1, T + 1):
        row[:, :, t] = np.where(follow[:, :, t], (7 * row[:, :, t - 1] + 3) % V, free[:, :, t])
    tokens, targets = row[:, :, :-1].copy(), row[:, :, 1:].copy()
    if ignored:
        targets[words("ignored", targets.shape) < int(ignored * 2**32)] = -1
        targets[3, -1] = -1  # and one row, once, entirely: as a padded batch has it
    return {"tokens": tokens, "targets": targets}


def gradients(params, batch, step, c):
    leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
    loss = models.loss(leaves, batch, step, c)
    grads = torch.autograd.grad(loss, list(leaves.values()))
    return float(loss.detach()), dict(zip(leaves, grads))


def train(c, data, dtype, use_torch_optim=False):
    """Returns losses, norms, the first gradients and the last weights."""
    params = {name: torch.from_numpy(p).to(dtype) for name, p in models.init(c).items()}
    rule = optim.torch_optimizer(params, c["optim"]) if use_torch_optim else None
    states = {name: {} for name in params}
    out = {"losses": [], "grad_norms": [], "grads": None}
    for step in range(c["steps"]):
        batch = {name: torch.from_numpy(x[step]) for name, x in data.items()}
        loss, grads = gradients(params, batch, step, c)
        norm = float(sum((g.double() ** 2).sum() for g in grads.values()).sqrt())
        out["losses"].append(loss)
        out["grad_norms"].append(norm)
        out["grads"] = out["grads"] or grads
        factor = c["clip"] / norm if c["clip"] > 0 and norm > c["clip"] else 1.0
        for name, p in params.items():
            if rule:
                p.grad = grads[name] * factor
            else:
                params[name] = optim.update(
                    name, p, grads[name] * factor, states[name], c["optim"], step + 1
                )
        if rule:
            rule.step()
    out["after"] = params
    return out


def distance(a, b):
    """(||a - b||, ||b||) in double."""
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm()), float(b.norm())


def check_torch_optim(name, c, data, ours):
    if c["optim"]["kind"] == "muon":
        return
    theirs = train(c, data, torch.float64, use_torch_optim=True)
    for n, p in ours["after"].items():
        diff, size = distance(theirs["after"][n], p)
        assert diff <= 1e-11 * size + 1e-12, (name, n, diff, size)


def check_formula(c, data, ours):
    params = {n: p.astype(np.float64) for n, p in models.init(c).items()}
    x, target = (data[k][0].astype(np.float64) for k in ("x", "target"))
    grads = models.mlp_formula(params, x, target)
    for n, g in ours["grads"].items():
        assert np.allclose(grads[n], g.numpy(), rtol=1e-12, atol=1e-14), n
    return grads


def key_bias(name):
    return name.endswith("c_attn.bias")


def drift(c, data, ours):
    """How far float32 strays: the worst loss, norm, gradient (as DESIGN 8 measures it) and weight.

    A key bias has no effect on the loss, so its gradient is rounding noise, which Adam enlarges to
    steps of size lr: weights are compared without it."""
    single = train(c, data, torch.float32)
    losses = max(abs(a / b - 1) for a, b in zip(single["losses"], ours["losses"]))
    norms = max(abs(a / b - 1) for a, b in zip(single["grad_norms"], ours["grad_norms"]))
    grads = after = bias = 0.0
    total = ours["grad_norms"][0]
    start = models.init(c)
    for n in ours["after"]:
        diff, size = distance(single["grads"][n], ours["grads"][n])
        grads = max(grads, diff / (1e-4 * size + 1e-7 * total))
        a, b = single["after"][n], ours["after"][n]
        if key_bias(n):
            bias = max(bias, float((a[1] - b[1]).abs().max()))
            a, b = a[[0, 2]], b[[0, 2]]
        diff, _ = distance(a, b)
        base = torch.from_numpy(start[n])
        moved, _ = distance(b, base[[0, 2]] if key_bias(n) else base)
        after = max(after, diff / moved)
    return losses, norms, grads, after, bias


def store(name, c, data, ours, extra):
    tensors = dict(data)
    for key in ("losses", "grad_norms"):
        tensors[key] = np.array(ours[key], np.float32)
    for n in ours["after"]:
        tensors[f"grad/{n}"] = ours["grads"][n].numpy().astype(np.float32)
        tensors[f"after/{n}"] = ours["after"][n].detach().numpy().astype(np.float32)
    if name in WITH_PARAMS:
        tensors |= {f"param/{n}": p for n, p in models.init(c).items()}
    tensors |= {f"formula/{n}": g.astype(np.float32) for n, g in extra.items()}
    tensors = {n: np.ascontiguousarray(x) for n, x in tensors.items()}
    path = FIXTURES / f"{name}.safetensors"
    save_file(tensors, path, {"config": json.dumps(c, separators=(",", ":"))})
    return path.stat().st_size


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    philox.self_check()
    optim.check_muon()
    FIXTURES.mkdir(exist_ok=True)
    print(f"{'case':13} {'bytes':>7} {'first':>7} {'last':>7} {'norms':>15} |"
          " float32 drift: loss    norm    grad/limit  weights   key bias")
    total = 0
    for name, (c, ignored) in CASES.items():
        data = make_data(c, ignored)
        ours = train(c, data, torch.float64)
        check_torch_optim(name, c, data, ours)
        extra = check_formula(c, data, ours) if name == "mlp_toy" else {}
        size = store(name, c, data, ours, extra)
        total += size
        d = drift(c, data, ours)
        norms = f"{min(ours['grad_norms']):.3f}..{max(ours['grad_norms']):.3f}"
        print(f"{name:13} {size:7} {ours['losses'][0]:7.4f} {ours['losses'][-1]:7.4f} {norms:>15} |"
              f" {d[0]:18.1e} {d[1]:8.1e} {d[2]:9.1e} {d[3]:9.1e} {d[4]:9.1e}")
    print(f"{total} bytes in all")
    assert total < 2.5e6


if __name__ == "__main__":
    main()
