"""The update rules, written out, and the same rules from torch.optim to check them.

`t` counts steps from 1. Gradients arrive normalised and clipped. `decay` is 0 for norms and biases.
"""

import math

import torch

import models


def decays(name):
    return not (name.endswith(".bias") or models.is_norm(name))


def is_muon_matrix(name):
    """The matrices inside the blocks; embeddings, norms and biases go to AdamW."""
    return name.startswith("h.") and decays(name)


def as_matrix(name, p):
    """c_attn [3,H,K,D] -> [3HK, D]; attn.c_proj [D,H,K] -> [D, HK]; the others are matrices."""
    shape = (p.shape[0], -1) if name.endswith("c_proj.weight") else (-1, p.shape[-1])
    return p.reshape(shape)


def sgd(p, g, state, o, decay):
    g = g + decay * p
    if o["momentum"] == 0:
        return p - o["lr"] * g
    state["mom"] = o["momentum"] * state["mom"] + g if state else g
    d = g + o["momentum"] * state["mom"] if o["nesterov"] else state["mom"]
    return p - o["lr"] * d


def adam(p, g, state, o, decay, t, decoupled):
    if decoupled:
        p = p - o["lr"] * decay * p
    else:
        g = g + decay * p
    zero = torch.zeros_like(p)
    state["m"] = o["beta1"] * state.get("m", zero) + (1 - o["beta1"]) * g
    state["v"] = o["beta2"] * state.get("v", zero) + (1 - o["beta2"]) * g * g
    m, v = state["m"] / (1 - o["beta1"] ** t), state["v"] / (1 - o["beta2"] ** t)
    return p - o["lr"] * m / (v.sqrt() + o["eps"])


def newton_schulz(g):
    """Five quintic steps that push the singular values of g towards 1, keeping its directions."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        A = x @ x.T
        x = a * x + (b * A + c * A @ A) @ x
    return x.T if tall else x


def muon(name, p, g, state, o, decay):
    state["mom"] = o["momentum"] * state.get("mom", torch.zeros_like(p)) + g
    update = g + o["momentum"] * state["mom"] if o["nesterov"] else state["mom"]
    matrix = as_matrix(name, update)
    alpha = 0.2 * math.sqrt(max(matrix.shape))  # the update has about the size AdamW's has
    update = newton_schulz(matrix).reshape(p.shape)
    return p - o["lr"] * decay * p - o["lr"] * alpha * update


def update(name, p, g, state, o, t):
    decay = o["weight_decay"] if decays(name) else 0.0
    if o["kind"] == "sgd":
        return sgd(p, g, state, o, decay)
    if o["kind"] == "muon" and is_muon_matrix(name):
        return muon(name, p, g, state, o, decay)
    return adam(p, g, state, o, decay, t, decoupled=o["kind"] != "adam")


def torch_optimizer(params, o):
    """The same rule from torch.optim over leaf tensors, or None (Muon; see check_muon)."""
    groups = [
        {"params": [p for n, p in params.items() if decays(n)], "weight_decay": o["weight_decay"]},
        {"params": [p for n, p in params.items() if not decays(n)], "weight_decay": 0.0},
    ]
    groups = [g for g in groups if g["params"]]
    betas = (o["beta1"], o["beta2"])
    if o["kind"] == "sgd":
        return torch.optim.SGD(groups, o["lr"], momentum=o["momentum"], nesterov=o["nesterov"])
    if o["kind"] == "adam":
        return torch.optim.Adam(groups, o["lr"], betas=betas, eps=o["eps"])
    if o["kind"] == "adamw":
        return torch.optim.AdamW(groups, o["lr"], betas=betas, eps=o["eps"])
    return None


def check_muon():
    """Our Muon against torch.optim.Muon, which iterates in bfloat16: equal to a percent or two.

    torch keeps an average where we keep a sum; the two differ by a factor that the division by
    the norm removes."""
    torch.manual_seed(0)
    o = {"kind": "muon", "lr": 1e-2, "momentum": 0.95, "nesterov": True, "weight_decay": 0.1}
    worst = 0.0
    for rows, cols in ((24, 24), (72, 24), (24, 96)):
        name = "h.0.mlp.c_fc.weight"
        start = torch.randn(rows, cols, dtype=torch.float64)
        theirs, ours, state = start.clone().requires_grad_(), start.clone(), {}
        rule = torch.optim.Muon([theirs], lr=o["lr"], weight_decay=o["weight_decay"],
                                momentum=o["momentum"], nesterov=True,
                                adjust_lr_fn="match_rms_adamw")
        for t in range(5):
            g = torch.randn(rows, cols, dtype=torch.float64)
            theirs.grad = g.clone()
            rule.step()
            ours = update(name, ours, g, state, o, t + 1)
        moved = (ours - start).norm()
        worst = max(worst, float((ours - theirs.detach()).norm() / moved))
    assert worst < 0.03, worst
    print(f"muon: torch.optim.Muon (bfloat16 inside) agrees to {worst:.1e} of the distance moved")
