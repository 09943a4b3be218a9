"""8-bit floats as PyTorch has them: what every code is worth, and the codes of numbers that are hard to
round. Numbers beyond the largest are clamped first, as whoever quantises does.

    python3 tests/reference/make_float8_fixture.py      # writes tests/fixtures/float8.safetensors
"""
import torch
from safetensors.torch import save_file

tensors = {}
generator = torch.Generator().manual_seed(1)
for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
    most = torch.finfo(dtype).max
    codes = torch.arange(256, dtype=torch.uint8)
    values = codes.view(dtype).float()
    ladder = values[torch.isfinite(values)].unique()
    ties = (ladder[1:] + ladder[:-1]) / 2
    infinity = torch.tensor(float("inf"))
    near = torch.cat([torch.nextafter(ties, infinity), torch.nextafter(ties, -infinity)])
    spread = torch.randn(200, generator=generator) * 2 ** (
        torch.rand(200, generator=generator) * 40 - 26
    )
    numbers = torch.cat([ladder, ties, near, spread, torch.tensor([0.0, -0.0, 1e-30, -1e-30])])
    tensors[f"{name}.values"] = values
    tensors[f"{name}.numbers"] = numbers
    tensors[f"{name}.codes"] = numbers.clamp(-most, most).to(dtype).view(torch.uint8)
save_file(tensors, "tests/fixtures/float8.safetensors")
