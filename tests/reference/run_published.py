"""Published training runs, each predicted by one command of trireme.

    python tests/reference/run_published.py TRIREME published_runs.csv [--commands] [--every N]

runs `trireme sim --like ...` (`trireme sim` for our own) for every dense row without context parallelism and prints, for each
group, how many ran, the error of the step time, and the longest command. --commands prints the
commands that failed, and why; --every N takes every N-th row. Needs nothing but Python. The errors
are those of the fit: fit_published.py has the cross-validated ones.
"""

import argparse
import collections
import csv
import json
import subprocess
import time

LIKE = [("vtrain_single", "vtrain-node"), ("vtrain_multi", "megatron-deepspeed"),
        ("sc21_t2_zero3", "deepspeed"), ("sc21", "megatron-2021"),
        ("korthikanti", "megatron-2022"), ("bloom", "bloom"), ("mosaic_a100-40", "fsdp-pure"),
        ("mosaic", "fsdp"), ("mcore", "megatron-core"), ("nemo", "megatron-core"),
        ("bridge", "megatron-core"), ("torchtitan", "fsdp"), ("fms", "fsdp"), ("llama1", "fsdp"),
        ("maxtext", "fsdp"), ("own", "fsdp")]
CLUSTERS = {"a100": "dgx-a100", "h100": "dgx-h100", "h200": "hgx-h200", "gb200": "gb200-nvl72",
            "b200": "dgx-b200", "b300": "hgx-b300", "v5p": "v5p-torus"}
PRECISIONS = {"fp16": "fp16", "bf16": "bf16"}


def number(row, column, default=None):
    return float(row[column]) if row[column] not in ("", "?") else default


def command_of(program, row):
    like = next(value for name, value in LIKE if row["group"].startswith(name))
    if row["group"] == "mosaic_a100-80" and "PURE" in row["notes"]:
        like = "fsdp-pure"
    device = row["device"]
    base = CLUSTERS.get(device.split("-")[0], "dgx-h100")
    cluster = base
    gbit = number(row, "inter_gbit_per_gpu")
    if gbit and base.startswith(("dgx", "hgx")):
        cluster += f",cards_per_node=8,card_bandwidth={gbit / 8:g}G"
    if device.startswith("h100-96"):
        device = "h100"
    tp, pp, vpp = (int(number(row, c, 1)) for c in ("tp", "pp", "vpp"))
    dp = int(number(row, "dp", number(row, "gpus", 1) // (tp * pp)))
    micro = int(number(row, "microbatches", 0)) or max(
        1, int(number(row, "gbs", 1) / dp / number(row, "mbs", 1)))
    rows = int(number(row, "mbs", 0) or number(row, "gbs") / dp / micro) * dp * micro
    settings = {
        "model.kind": "llama" if row["kind"] == "llama" else "gpt2",
        "model.num_layers": row["layers"], "model.dim": row["hidden"],
        "model.num_heads": row["heads"], "model.ffn_dim": row["ffn"],
        "model.vocab": row["vocab"], "data.seq_len": row["seq"], "model.positions": row["seq"],
        "precision.kind": PRECISIONS.get(row["precision"], "bf16"),
        "layout.tp": tp, "layout.pp": pp, "layout.dp": dp,
        "layout.sp": "true" if row["sp"] == "1" and tp > 1 else "false",
        "layout.microbatches": micro, "train.batch": rows,
        "layout.zero": row["zero"] or 0 if dp > 1 else 0,
        "layout.recompute": {"full": "full", "selective": "selective"}.get(row["recompute"], "none"),
    }
    if row["kind"] == "llama" or row["kv_heads"] not in ("", row["heads"]):
        settings["model.num_kv_heads"] = row["kv_heads"] or row["heads"]
    if row["precision"].startswith(("fp8", "mxfp8", "nvfp4")):
        settings["precision.linear"] = "fp8"
    if pp > 1 and vpp > 1:
        settings |= {"layout.schedule": "interleaved", "layout.chunks": vpp}
    words = [program, "sim", "--json", "--device", device, "--cluster", cluster]
    words += [] if row["framework"] == "Trireme" else ["--like", like]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    return words


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("runs")
    arguments.add_argument("--commands", action="store_true")
    arguments.add_argument("--every", type=int, default=1)
    options = arguments.parse_args()
    with open(options.runs, newline="") as file:
        rows = [r for r in csv.DictReader(file)
                if not r["experts"] and r["cp"] in ("", "1") and r["step_s"]]
    groups = collections.defaultdict(lambda: {"errors": [], "failed": 0, "longest": 0.0})
    for row in rows[::options.every]:
        group = groups[row["group"]]
        words = command_of(options.program, row)
        start = time.monotonic()
        run = subprocess.run(words, capture_output=True, text=True)
        group["longest"] = max(group["longest"], time.monotonic() - start)
        if run.returncode:
            group["failed"] += 1
            if options.commands:
                print(row["id"], " ".join(words), run.stderr.strip(), sep="\n  ")
            continue
        seconds = json.loads(run.stdout)["step_ms"] / 1e3
        group["errors"].append(abs(seconds / float(row["step_s"]) - 1))
    total = failed = 0
    print(f"{'group':22} {'rows':>5} {'failed':>6} {'mean':>7} {'median':>7} {'worst':>7} "
          f"{'longest':>8}")
    for name, g in groups.items():
        errors = sorted(g["errors"])
        total += len(errors) + g["failed"]
        failed += g["failed"]
        print(f"{name:22} {len(errors) + g['failed']:5} {g['failed']:6}", end=" ")
        if errors:
            print(f"{100 * sum(errors) / len(errors):6.1f}% {100 * errors[len(errors) // 2]:6.1f}% "
                  f"{100 * errors[-1]:6.1f}% {g['longest']:6.2f} s", end="")
        print()
    print(f"{total} rows, of which {100 * (1 - failed / total):.1f} % ran")


if __name__ == "__main__":
    main()
