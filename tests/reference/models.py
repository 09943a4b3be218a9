"""The reference models: plain torch, no modules, parameters in a dict of canonical names.

`init(config)` gives float32 numpy arrays, bit for bit what Trireme starts from; `loss(params,
batch, step, config)` gives the mean loss in whatever dtype the parameters have (float64 for the
fixtures). Shapes have the output dims first: a linear layer is y[o] = sum_i W[o, i] x[i].
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

import philox


# --- GPT-2 ---------------------------------------------------------------------------------------


def gpt2_shapes(c):
    D, H, V = c["dim"], c["num_heads"], c["vocab"]
    K, ffn = D // H, c["ffn_dim"]
    shapes = {"wte.weight": (V, D), "wpe.weight": (c["positions"], D)}
    for l in range(c["num_layers"]):
        shapes |= {
            f"h.{l}.ln_1.weight": (D,),
            f"h.{l}.ln_1.bias": (D,),
            f"h.{l}.attn.c_attn.weight": (3, H, K, D),
            f"h.{l}.attn.c_attn.bias": (3, H, K),
            f"h.{l}.attn.c_proj.weight": (D, H, K),
            f"h.{l}.attn.c_proj.bias": (D,),
            f"h.{l}.ln_2.weight": (D,),
            f"h.{l}.ln_2.bias": (D,),
            f"h.{l}.mlp.c_fc.weight": (ffn, D),
            f"h.{l}.mlp.c_fc.bias": (ffn,),
            f"h.{l}.mlp.c_proj.weight": (D, ffn),
            f"h.{l}.mlp.c_proj.bias": (D,),
        }
    return shapes | {"ln_f.weight": (D,), "ln_f.bias": (D,)}


def is_norm(name):
    return "ln_" in name


def gpt2_init(c):
    params = {}
    for name, shape in gpt2_shapes(c).items():
        if name.endswith(".bias"):
            params[name] = np.zeros(shape, np.float32)
        elif is_norm(name):
            params[name] = np.ones(shape, np.float32)
        else:
            std = 0.02
            if name == "wpe.weight":
                std = 0.01
            elif name.endswith("c_proj.weight"):
                std = 0.02 / math.sqrt(2 * c["num_layers"])
            normal = philox.random_normal(
                c["seed"], 0, math.prod(shape), 0, philox.stream("init", name)
            )
            params[name] = (normal * np.float32(std)).reshape(shape)
    return params


def dropout(x, name, step, c):
    """x [B, ...] is the whole global tensor, so row b is global row b and the index is C order."""
    if c["dropout"] == 0:
        return x
    p = float(np.float32(c["dropout"]))
    index = np.arange(x.numel(), dtype=np.uint64)
    words = philox.random_word(c["seed"], index, step, philox.stream("drop", name))
    keep = torch.from_numpy(words >= philox.dropout_threshold(p)).reshape(x.shape)
    return torch.where(keep, x / (1 - p), torch.zeros_like(x))


def gpt2_logits(params, tokens, step, c):
    B, T = tokens.shape
    D, H = c["dim"], c["num_heads"]
    K = D // H

    def norm(x, name):
        return F.layer_norm(x, (D,), params[name + ".weight"], params[name + ".bias"], 1e-5)

    def linear(x, name, rows):
        weight, bias = params[name + ".weight"], params[name + ".bias"]
        return F.linear(x, weight.reshape(rows, -1), bias.reshape(rows))

    x = params["wte.weight"][tokens] + params["wpe.weight"][:T]
    x = dropout(x, "embd", step, c)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    for l in range(c["num_layers"]):
        qkv = linear(norm(x, f"h.{l}.ln_1"), f"h.{l}.attn.c_attn", 3 * D).reshape(B, T, 3, H, K)
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))  # [B, H, T, K]
        scores = (q @ k.transpose(2, 3)) / math.sqrt(K)
        probs = scores.masked_fill(future, -math.inf).softmax(-1)
        probs = dropout(probs, f"h.{l}.attn.probs", step, c)
        o = (probs @ v).transpose(1, 2).reshape(B, T, D)  # heads outside, K inside
        y = linear(o, f"h.{l}.attn.c_proj", D)
        x = x + dropout(y, f"h.{l}.attn.resid", step, c)
        y = linear(norm(x, f"h.{l}.ln_2"), f"h.{l}.mlp.c_fc", c["ffn_dim"])
        y = linear(F.gelu(y, approximate="tanh"), f"h.{l}.mlp.c_proj", D)
        x = x + dropout(y, f"h.{l}.mlp.resid", step, c)
    return F.linear(norm(x, "ln_f"), params["wte.weight"])


def gpt2_loss(params, batch, step, c):
    """Sum over the targets that are not -1, divided by their number."""
    logits = gpt2_logits(params, batch["tokens"].long(), step, c)
    logits, targets = logits.reshape(-1, c["vocab"]), batch["targets"].long().reshape(-1)
    total = F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")
    if c.get("z_loss", 0) > 0:
        total = total + c["z_loss"] * (logits.logsumexp(-1)[targets >= 0] ** 2).sum()
    return total / max(int((targets >= 0).sum()), 1)


# --- pairs of linear layers ----------------------------------------------------------------------


def mlp_shapes(c):
    D, ffn = c["dim"], c["ffn_dim"]
    shapes = {}
    for i in range(c["num_layers"]):
        shapes[f"pair.{i}.fc1.weight"] = (ffn, D)
        if c["bias"]:
            shapes[f"pair.{i}.fc1.bias"] = (ffn,)
        shapes[f"pair.{i}.fc2.weight"] = (D, ffn)
        if c["bias"]:
            shapes[f"pair.{i}.fc2.bias"] = (D,)
    return shapes


def mlp_init(c):
    """Uniform in +-1/sqrt(fan_in), biases too, as torch.nn.Linear does."""
    params = {}
    for name, shape in mlp_shapes(c).items():
        bound = 1.0 / math.sqrt(c["dim"] if ".fc1." in name else c["ffn_dim"])
        index = np.arange(math.prod(shape), dtype=np.uint64)
        words = philox.random_word(c["seed"], index, 0, philox.stream("init", name))
        unit = (words.astype(np.float64) + 0.5) * 2.0**-32 * 2 - 1
        params[name] = (unit * bound).astype(np.float32).reshape(shape)
    return params


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": F.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
}


def mlp_out(params, x, c):
    act = ACTIVATIONS[c["act"]]
    for i in range(c["num_layers"]):
        fc1, fc2 = f"pair.{i}.fc1", f"pair.{i}.fc2"
        h = act(F.linear(x, params[fc1 + ".weight"], params.get(fc1 + ".bias")))
        x = F.linear(h, params[fc2 + ".weight"], params.get(fc2 + ".bias"))
    return x


def mlp_loss(params, batch, step, c):
    dtype = params["pair.0.fc1.weight"].dtype
    out, target = mlp_out(params, batch["x"].to(dtype), c), batch["target"].to(dtype)
    if c["loss"] == "sse":
        return 0.5 * ((out - target) ** 2).sum()
    if c["loss"] == "mse":
        return ((out - target) ** 2).mean()
    return out.mean()


def mlp_formula(params, x, target):
    """Gradients of the sse loss of pairs without bias and activation, by hand, in numpy.

    H = X W1^T, OUT = H W2^T per pair; dOUT = OUT - target at the end, and going backwards
    dW2 = dOUT^T H, dH = dOUT W2, dW1 = dH^T X, dX = dH W1.
    """
    num_pairs = len(params) // 2
    kept = []
    for i in range(num_pairs):
        h = x @ params[f"pair.{i}.fc1.weight"].T
        kept.append((x, h))
        x = h @ params[f"pair.{i}.fc2.weight"].T
    d = x - target
    grads = {}
    for i in reversed(range(num_pairs)):
        x, h = kept[i]
        grads[f"pair.{i}.fc2.weight"] = d.T @ h
        d = d @ params[f"pair.{i}.fc2.weight"]
        grads[f"pair.{i}.fc1.weight"] = d.T @ x
        d = d @ params[f"pair.{i}.fc1.weight"]
    return grads


SHAPES = {"gpt2": gpt2_shapes, "mlp": mlp_shapes}
INIT = {"gpt2": gpt2_init, "mlp": mlp_init}
LOSS = {"gpt2": gpt2_loss, "mlp": mlp_loss}


def init(c):
    return INIT[c["kind"]](c)


def loss(params, batch, step, c):
    return LOSS[c["kind"]](params, batch, step, c)
