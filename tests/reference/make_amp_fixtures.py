"""Writes tests/fixtures/amp_*.safetensors: mixed precision as PyTorch does it.

`amp_bf16` and `amp_fp16` are the training of gpt2_small under torch.autocast on the CPU, fp16 with
torch.amp.GradScaler, whose scale starts low enough that nothing overflows and doubles every third
step. `amp_scaler` is GradScaler alone: a made-up row of overflows, and the scale of each step.

Autocast is not bit for bit what Trireme does: it keeps the residual stream in fp32 and rounds
gradients of weights to 16 bits. So tests compare within 16-bit rounding, and the script prints how
far float32 lies from each, which is the size of difference to expect.
"""

import json

import numpy as np
import torch
from safetensors.numpy import save_file

import make_fixtures as plain
import models
import optim

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
SCALE, INTERVAL = 1024.0, 3


def train(c, data, kind):
    params = {n: torch.from_numpy(p).requires_grad_() for n, p in models.init(c).items()}
    rule = optim.torch_optimizer(params, c["optim"])
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=SCALE, growth_interval=INTERVAL, enabled=kind == "fp16"
    )
    out = {"losses": [], "grad_norms": [], "scales": [], "grads": None}
    for step in range(c["steps"]):
        batch = {name: torch.from_numpy(x[step]) for name, x in data.items()}
        rule.zero_grad()
        if kind == "fp32":
            loss = models.loss(params, batch, step, c)
        else:
            with torch.autocast("cpu", dtype=DTYPES[kind]):
                loss = models.loss(params, batch, step, c)
        out["scales"].append(scaler.get_scale())
        scaler.scale(loss).backward()
        scaler.unscale_(rule)
        out["grads"] = out["grads"] or {n: p.grad.clone() for n, p in params.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(params.values()), c["clip"])
        out["losses"].append(float(loss.detach()))
        out["grad_norms"].append(float(norm))
        scaler.step(rule)
        scaler.update()
    out["after"] = {n: p.detach() for n, p in params.items()}
    return out


def store(name, c, tensors):
    tensors = {n: np.ascontiguousarray(x) for n, x in tensors.items()}
    path = plain.FIXTURES / f"{name}.safetensors"
    save_file(tensors, path, {"config": json.dumps(c, separators=(",", ":"))})
    return path.stat().st_size


def training(kind):
    c, ignored = plain.CASES["gpt2_small"]
    data = plain.make_data(c, ignored)
    amp, exact = train(c, data, kind), train(c, data, "fp32")
    tensors = dict(data)
    for key in ("losses", "grad_norms", "scales"):
        tensors[key] = np.array(amp[key], np.float32)
    for n, g in amp["grads"].items():
        tensors[f"grad/{n}"] = g.numpy()
        tensors[f"after/{n}"] = amp["after"][n].numpy()
    c = c | {"precision": kind, "scale": SCALE, "growth_interval": INTERVAL}
    size = store(f"amp_{kind}", c, tensors)
    losses = max(abs(a / b - 1) for a, b in zip(amp["losses"], exact["losses"]))
    norms = max(abs(a / b - 1) for a, b in zip(amp["grad_norms"], exact["grad_norms"]))
    grads = max(
        plain.distance(amp["grads"][n], exact["grads"][n])[0] / (float(g.norm()) + 1e-3 * norm0)
        for norm0 in (exact["grad_norms"][0],)
        for n, g in exact["grads"].items()
    )
    print(f"amp_{kind}: {size} bytes; from float32: loss {losses:.1e}, norm {norms:.1e}, gradient"
          f" {grads:.1e}")


def rule_alone():
    overflows = [0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    p = torch.zeros(1, requires_grad=True)
    rule = torch.optim.SGD([p], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=INTERVAL)
    scales = []
    for overflow in overflows:
        rule.zero_grad()
        scaler.scale((p * (float("inf") if overflow else 1.0)).sum()).backward()
        scales.append(scaler.get_scale())
        scaler.step(rule)
        scaler.update()
    c = {"scale": SCALE, "growth_interval": INTERVAL, "steps": len(overflows)}
    size = store("amp_scaler", c, {
        "overflows": np.array(overflows, np.float32), "scales": np.array(scales, np.float32),
    })
    print(f"amp_scaler: {size} bytes; scales {min(scales):g}..{max(scales):g}")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for kind in DTYPES:
        training(kind)
    rule_alone()


if __name__ == "__main__":
    main()
