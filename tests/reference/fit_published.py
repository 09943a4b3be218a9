"""Constants of devices and of software, fitted on training runs that others published.

    pip install numpy scipy
    python tests/reference/fit_published.py published_runs.csv [--constants] [--rows GROUP] [--cases]

prints, for each group of rows, the error of the predicted step time: in the fit, and cross-validated
(six parts; rows of one model or shape are always in the same part). --constants prints what was
fitted, as the C tables have it (src/sim/profile_table.c, src/sim/like/software_table.c); --cases a few
predictions that tests/sim/test_published.c holds the C functions to.

Residuals are logarithms of predicted over measured, with a soft loss, so that a few runs with a
sick node do not steer; every constant has a prior, so that what the rows do not tell stays where
physics would have it."""
import argparse
import csv
import time
import zlib

import numpy as np
from scipy.optimize import least_squares

import published_model as model

PARTS, PRIOR = 6, 0.1
A100 = dict(peak=312e12, peak8=312e12, product8=1.0, sm=108, bytes_s=2039e9, link_s=300e9,
            product=0.85, k_start=100.0, tile=0.3, whole=0.4, memory=0.8, link=0.78, latency=8e-6,
            flash=0.6, flash_back=0.45, portable=0.55, portable_back=0.3,
            flash_narrow=0.85, flash_start=300.0)
DEVICES = dict(a100=A100, a100_40=dict(A100, bytes_s=1555e9),
               h100=dict(A100, peak=989.5e12, peak8=1979e12, sm=132, bytes_s=3350e9, link_s=450e9,
                         product=0.75, product8=0.65, flash=0.5, flash_back=0.38, portable=0.4,
                         portable_back=0.2))
EAGER = dict(gap=4e-6, host=20e-6, host_spread=0.05, passes=1.2, flash=False, portable=False, attention=1.0, attention_back=1.0, odd=2.0,
             odder=2.0, softmax=9.0, softmax_back=11.0, plain_softmax=2.0, residual=7.0,
             residual_back=11.0, heads=8.0, weight_gradient=2.0, accumulate=10.0, loss=40.0,
             loss_back=10.0, cast=0.0, stops_early=0.0, gradient=2.0, dp_shown=1.0, tp_hides=0.0,
             scatters=0.0, pipe_shown=1.0, wait=0.0, network=0.7, update=40.0, step=3e-3, spread=0.0,
             contention=0.0, shown=0.0, crossing=0.0, fully_sharded=False)
SHARDED = dict(EAGER, flash=True, portable=True, passes=1.0, fully_sharded=True, accumulate=8.0, residual=6.0,
               residual_back=6.0, gradient=4.0, step=5e-3, cast=1.0, loss=30.0)
CORE = dict(EAGER, gap=3e-6, host=10e-6, passes=1.0, flash=True, accumulate=0.0, scatters=1.0,
            weight_gradient=10.0, gradient=4.0, dp_shown=0.1, pipe_shown=0.3, cast=0.7, step=5e-3,
            loss=30.0, tp_hides=0.8)
SOFTWARE = {
    "megatron-2021": dict(EAGER, scatters=1.0, step=5e-3),
    "megatron-2022": dict(EAGER, scatters=1.0, step=5e-3),
    "megatron-deepspeed": dict(EAGER, scatters=1.0),
    "vtrain-node": dict(EAGER, scatters=1.0),
    "bloom": dict(EAGER, scatters=1.0, accumulate=14.0, gradient=4.0, host=30e-6, step=5e-3),
    "fsdp": dict(SHARDED, stops_early=1.0),
    "fsdp-pure": dict(SHARDED, gradient=2.0),
    "megatron-core": dict(CORE),
    "deepspeed": dict(EAGER, fully_sharded=True),
}
MEGATRON = ["megatron-2021", "megatron-2022", "vtrain-node", "megatron-deepspeed", "bloom"]
FSDP, VTRAIN, CARDS = ["fsdp", "fsdp-pure"], ["vtrain-node", "megatron-deepspeed"], list(DEVICES)
AMPERE = ["a100", "a100_40"]
# what is fitted: the constant, whose, the prior and its standard deviation (of the logarithm)
FITTED = [
    ("product", AMPERE, 0.85, 0.1), ("k_start", AMPERE, 100.0, 0.5), ("tile", CARDS, 0.3, 0.5),
    ("whole", CARDS, 0.4, 0.5), ("memory", CARDS, 0.8, 0.1), ("link", CARDS, 0.78, 0.06),
    ("portable", AMPERE, 0.55, 0.3), ("portable_back", AMPERE, 0.3, 0.3),
    ("portable", ["h100"], 0.4, 0.3), ("portable_back", ["h100"], 0.2, 0.3),
    ("flash_narrow", AMPERE, 0.85, 0.1), ("flash_start", CARDS, 300.0, 0.5),
    ("product", ["h100"], 0.75, 0.1), ("k_start", ["h100"], 100.0, 0.5),
    ("product8", ["h100"], 0.65, 0.15),
    ("gap", ["vtrain-node"], 8e-6, 0.5), ("gap", ["megatron-deepspeed"], 8e-6, 0.5),
    ("gap", ["megatron-2021", "megatron-2022", "bloom"], 4e-6, 0.4), ("gap", FSDP, 4e-6, 0.4),
    ("gap", ["megatron-core"], 3e-6, 0.3), ("host", VTRAIN, 30e-6, 0.4),
    ("host_spread", VTRAIN, 0.05, 0.5), ("wait", VTRAIN, 60e-6, 0.5),
    ("passes", ["vtrain-node", "megatron-2021", "bloom"], 1.2, 0.15),
    ("passes", ["megatron-deepspeed"], 1.2, 0.15), ("passes", ["megatron-2022"], 1.2, 0.15),
    ("passes", FSDP, 1.0, 0.15), ("passes", ["megatron-core"], 1.0, 0.2),
    ("plain_softmax", MEGATRON, 2.0, 0.3), ("loss", MEGATRON[:-1], 40.0, 0.4),
    ("loss", ["bloom"], 40.0, 0.4), ("loss", ["megatron-core"], 30.0, 0.6),
    ("residual", ["bloom"], 15.0, 0.4),
    ("odd", ["bloom"], 2.0, 0.4), ("odder", ["bloom"], 2.0, 0.3), ("gradient", ["bloom"], 8.0, 0.3),
    ("step", VTRAIN, 3e-3, 0.7), ("step", FSDP, 5e-3, 0.7), ("spread", FSDP, 5e-3, 0.5),
    ("spread", ["megatron-core"], 5e-3, 0.3), ("dp_shown", ["megatron-core"], 0.1, 0.25),
    ("network", ["megatron-deepspeed"], 0.8, 0.1), ("dp_shown", ["megatron-deepspeed"], 0.6, 0.2),
    ("pipe_shown", ["megatron-deepspeed"], 0.7, 0.3),
    ("crossing", ["megatron-deepspeed"], 1.5, 0.7),
    ("network", ["megatron-2021", "megatron-2022"], 0.7, 0.3), ("network", ["bloom"], 0.7, 0.3),
    ("network", FSDP, 0.7, 0.3), ("network", ["megatron-core"], 0.7, 0.2),
    ("contention", FSDP, 0.03, 0.7), ("shown", FSDP, 0.2, 0.7), ("cast", FSDP, 1.0, 0.3),
    ("cast", ["megatron-core"], 0.7, 0.3), ("tp_hides", ["megatron-core"], 0.8, 0.1),
    ("attention", ["megatron-core"], 1.0, 0.15), ("attention_back", ["megatron-core"], 1.0, 0.15),
    ("network", ["deepspeed"], 0.1, 0.5), ("shown", ["deepspeed"], 0.05, 0.7),
    ("contention", ["deepspeed"], 0.1, 0.7),
]
# group of the report: which rows, device, software, weight, columns that rows of a cluster share
GROUPS = [
    ("vtrain_single", "a100", "vtrain-node", 1.0, ("hidden", "tp", "mbs")),
    ("vtrain_multi", "a100", "megatron-deepspeed", 2.5, ("hidden", "tp", "pp")),
    ("sc21", "a100", "megatron-2021", 1.0, ("id",)),
    ("sc21_zero3", "a100", "deepspeed", 1.0, ("id",)),
    ("korthikanti", "a100", "megatron-2022", 1.0, ("id",)),
    ("bloom_grid", "a100", "bloom", 1.5, ("hidden", "heads", "tp", "pp")),
    ("mosaic_a100-80", "a100", "fsdp", 1.0, ("hidden", "recompute")),
    ("mosaic_a100-80_pure", "a100", "fsdp-pure", 1.0, ("id",)),
    ("mosaic_a100-40", "a100_40", "fsdp-pure", 1.0, ("hidden", "recompute")),
    ("mosaic_h100", "h100", "fsdp", 1.0, ("hidden", "recompute", "precision")),
    ("mcore_h100", "h100", "megatron-core", 1.0, ("id",)),
    ("nemo_2407", "h100", "megatron-core", 1.0, ("id",)),
]


def group_of(row):
    name = row["group"]
    if name == "mosaic_a100-80" and "PURE" in row["notes"]:
        return "mosaic_a100-80_pure"
    if name.startswith("sc21"):
        return "sc21_zero3" if row["zero"] == "3" else "sc21"
    return next((g[0] for g in GROUPS if name.startswith(g[0])), None)


class Group:
    def __init__(self, spec, rows):
        self.name, self.device, self.software, self.weight, columns = spec
        rows = [r for r in rows if group_of(r) == self.name and r["step_s"]]
        self.runs = model.Runs(rows)
        if self.name == "vtrain_single":
            # The file does not say; times are those of runs that compute nothing again: with it,
            # products would reach 240 TFLOP/s in layers that reach 140 elsewhere.
            self.runs.full[:] = 0
        few = len(rows) <= 10
        self.part = np.array([i % PARTS if few else zlib.crc32(
            "/".join(r[c] for c in columns).encode()) % PARTS for i, r in enumerate(rows)])

    def error(self, constants):
        devices, software = constants
        t = model.step(self.runs, devices[self.device], software[self.software])
        return np.log(t / self.runs.t)


def constants_at(z):
    devices = {k: dict(v) for k, v in DEVICES.items()}
    software = {k: dict(v) for k, v in SOFTWARE.items()}
    for (name, whose, prior, sigma), x in zip(FITTED, z):
        for w in whose:
            (devices if w in devices else software)[w][name] = float(prior * np.exp(sigma * x))
    return devices, software


def fit(groups, part=None, start=None):
    """Part: the one left out. Derivatives by differences, of the groups that a constant is in."""
    used = [np.ones(g.runs.n, bool) if part is None else g.part != part for g in groups]
    touched = [[j for j, f in enumerate(FITTED) if g.device in f[1] or g.software in f[1]]
               for g in groups]

    def residual(g, mask, constants):
        return g.weight * 10 / np.sqrt(max(mask.sum(), 1)) * g.error(constants)[mask]

    def residuals(z):
        constants = constants_at(z)
        parts = [residual(g, u, constants) for g, u in zip(groups, used)]
        return np.concatenate(parts + [PRIOR * z])

    def jacobian(z):
        base, step = residuals(z), 1e-4
        J = np.zeros((len(base), len(z)))
        first = np.concatenate([[0], np.cumsum([u.sum() for u in used])])
        for j in range(len(z)):
            moved = z.copy()
            moved[j] += step
            constants = constants_at(moved)
            for i, (g, u) in enumerate(zip(groups, used)):
                if j in touched[i]:
                    span = slice(first[i], first[i + 1])
                    J[span, j] = (residual(g, u, constants) - base[span]) / step
            J[first[-1] + j, j] = PRIOR
        return J

    z = np.zeros(len(FITTED)) if start is None else start
    return least_squares(residuals, z, jac=jacobian, loss="soft_l1", f_scale=0.1, max_nfev=80,
                         xtol=1e-5, ftol=1e-5).x


def cross_validated(groups):
    """The constants that all rows give, and errors of each row with constants that were fitted
    without the rows of its part."""
    z = fit(groups)
    held_out = {g.name: np.zeros(g.runs.n) for g in groups}
    for part in range(PARTS):
        without = constants_at(fit(groups, part, z))
        for g in groups:
            left = g.part == part
            held_out[g.name][left] = np.exp(g.error(without)[left]) - 1
    return constants_at(z), held_out


def report(groups, constants, held_out):
    print(f"{'group':22} {'rows':>4}  {'fit: mean':>9} {'median':>7} {'worst':>7}   "
          f"{'cross-validated: mean':>21} {'median':>7} {'worst':>7}")
    for g in groups:
        line = f"{g.name:22} {g.runs.n:4}  "
        for e in (np.exp(g.error(constants)) - 1, held_out[g.name]):
            e = np.abs(e) * 100
            line += f"{e.mean():9.1f} {np.median(e):7.1f} {e.max():7.1f}   "
        print(line)


def rounded(constants):
    """As the C tables have them."""
    return [{name: {k: v if isinstance(v, bool) else float(f"{v:.4g}") for k, v in values.items()}
             for name, values in kind.items()} for kind in constants]


def print_constants(constants):
    for kind in rounded(constants):
        for name, values in kind.items():
            print(f"{name}:")
            print("   " + ", ".join(f".{k} = {v:.4g}" for k, v in values.items()))


def print_cases(groups, constants):
    """The first and the last row of each group, and the first whose gradients cross the network's
    upper switches, as initialisers of tests/sim/published_cases.h."""
    devices, software = rounded(constants)
    for g in groups:
        t = model.step(g.runs, devices[g.device], software[g.software])
        crossing = np.flatnonzero(model.crossing(g.runs, software[g.software]) < 1)
        for i in sorted({0, g.runs.n - 1, *crossing[:1].tolist()}):
            r, row = g.runs, g.runs.rows[i]
            again = "FULL" if r.full[i] else "SELECTIVE" if r.selective[i] else "NONE"
            sizes = [f".{name} = {getattr(r, column)[i]:g}" for name, column in (
                ("layers", "L"), ("hidden", "h"), ("heads", "a"), ("kv_heads", "kv"),
                ("ffn", "ffn"), ("vocab", "V"), ("seq", "s"), ("tp", "tp"), ("pp", "pp"),
                ("vpp", "vpp"), ("dp", "dp"), ("cp", "cp"), ("micro_batch", "b"),
                ("micro_batches", "m"), ("zero", "zero"))]
            sizes += [f".{name} = {'true' if getattr(r, column)[i] else 'false'}"
                      for name, column in (("sequence_parallel", "sp"), ("bits8", "fp8"),
                                           ("gated", "llama"))]
            print(f'{{"{row["id"]}", "{row["device"]}", "{g.software}", {r.gpus[i]:g}, '
                  f'{r.gpn[i]:g}, {r.nic[i]:g},')
            print(f"    {{{', '.join(sizes)}, .recompute = TRI_RUN_{again}}}, {t[i]:.9g}}},")
    d = devices["a100"]
    shapes = [(4096, 4096, 4096, 1, 2), (2048, 512, 12288, 1, 2), (12288, 4608, 2048, 1, 10),
              (2048, 2048, 128, 96, 2), (100, 37, 64, 1, 2), (512, 512, 65536, 1, 2)]
    for m, n, k, batch, out in shapes:
        t = model.product(d, 3e-6, m, n, k, batch, 0.0, out)
        print(f"{{{m}, {n}, {k}, {batch}, {out}, {float(t):.9g}}},")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("table")
    arguments.add_argument("--constants", action="store_true")
    arguments.add_argument("--cases", action="store_true")
    arguments.add_argument("--rows", help="print every row of these groups")
    options = arguments.parse_args()
    with open(options.table, newline="") as file:
        rows = list(csv.DictReader(file))
    begin = time.time()
    groups = [Group(spec, rows) for spec in GROUPS]
    constants, held_out = cross_validated(groups)
    report(groups, constants, held_out)
    print(f"{len(FITTED)} constants, {sum(g.runs.n for g in groups)} rows, "
          f"{time.time() - begin:.0f} s")
    for g in groups:
        if options.rows and g.name in options.rows.split(","):
            e = np.exp(g.error(constants)) - 1
            for row, a, b in zip(g.runs.rows, e, held_out[g.name]):
                print(f"{row['id']:26} {row['model']:14} gpus {row['gpus']:5} tp {row['tp']} pp "
                      f"{row['pp']} mbs {row['mbs']:3} {row['step_s']:8} {a:+.3f} {b:+.3f}")
    if options.constants:
        print_constants(constants)
    if options.cases:
        print_cases(groups, constants)


if __name__ == "__main__":
    main()
