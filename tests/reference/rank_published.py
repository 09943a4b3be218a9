"""How well predicted step times rank layouts that others measured.

    python tests/reference/rank_published.py TRIREME published_runs.csv [--cross] [--least N]

A set is the rows of one model, on equally many devices, with the same batch. Its layouts are ranked
by the step time that `trireme sim --like` predicts, one command a row, and by the measured one:
Spearman's coefficient, the best layout, the predicted first choice, and by how much that takes
longer than the best. `grid` ranks all rows of BLOOM's grid, whose models and devices differ, by
their share of the peak. Sets of fewer than --least rows (4) are left out; those of vtrain_single
are many, and summed up in a line.

--cross adds the same of cross-validated predictions: each row's by constants that were fitted
without rows of its layout (fit_published.py, which needs numpy and scipy)."""
import argparse
import collections
import csv
import json
import subprocess

import run_published

GROUPS = ("vtrain_multi", "bloom_grid", "vtrain_single")


def ranks(values):
    """Equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    result = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for i in order[first:last + 1]:
            result[i] = (first + last) / 2
        first = last + 1
    return result


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    middle = (len(a) - 1) / 2
    product = sum((x - middle) * (y - middle) for x, y in zip(a, b))
    squares = sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)
    return product / squares ** 0.5 if squares > 0 else 0.0


def layout(row):
    return f"tp {row['tp']} pp {row['pp']} dp {row['dp']} mbs {row['mbs']}"


def judge(measured, predicted):
    """Spearman's coefficient, the first choice, and its regret in per cent."""
    choice = predicted.index(min(predicted))
    return (spearman(measured, predicted), choice,
            100 * (measured[choice] / min(measured) - 1))


def predict(program, row):
    """Seconds of a step, and the work that makes its share of the peak: share x seconds."""
    command = run_published.command_of(program, row)
    got = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return got["step_ms"] / 1e3, got["mfu"] * got["step_ms"] / 1e3


def cross_validated(rows):
    import fit_published as fit
    groups = [fit.Group(spec, rows) for spec in fit.GROUPS]
    _, held_out = fit.cross_validated(groups)
    return {row["id"]: float(row["step_s"]) * (1 + error)
            for g in groups for row, error in zip(g.runs.rows, held_out[g.name])}


def sets_of(rows, least):
    sets = collections.defaultdict(list)
    for row in rows:
        if row["group"] == "bloom_grid":
            sets["bloom_grid", "grid", "", ""].append(row)
        shape = row["model"] if row["group"] == "vtrain_multi" else (
            f"{row['layers']} x {row['hidden']}, {row['heads']} heads")
        sets[row["group"], shape, row["gpus"], row["gbs"]].append(row)
    return {key: members for key, members in sets.items() if len(members) >= least}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("runs")
    arguments.add_argument("--cross", action="store_true")
    arguments.add_argument("--least", type=int, default=4)
    options = arguments.parse_args()
    with open(options.runs, newline="") as file:
        rows = list(csv.DictReader(file))
    ranked = [r for r in rows if r["group"] in GROUPS and r["step_s"]]
    predicted = {r["id"]: predict(options.program, r) for r in ranked}
    held_out = cross_validated(rows) if options.cross else {}
    print(f"{'set':52} {'rows':>4} {'Spearman':>8}  {'best measured':24} {'first choice':24} "
          f"{'regret':>6}" + ("  cross-validated: Spearman, regret" if options.cross else ""))
    many = []
    for (group, shape, gpus, gbs), members in sets_of(ranked, options.least).items():
        work = [predicted[r["id"]][1] if shape == "grid" else 1.0 for r in members]
        measured = [float(r["step_s"]) / w for r, w in zip(members, work)]
        rho, choice, regret = judge(measured, [predicted[r["id"]][0] / w
                                               for r, w in zip(members, work)])
        values = [rho, regret]
        if options.cross:
            rho_out, _, regret_out = judge(measured, [held_out[r["id"]] / w
                                                      for r, w in zip(members, work)])
            values += [rho_out, regret_out]
        if group == "vtrain_single":
            many.append(values)
            continue
        best = members[measured.index(min(measured))]
        title = f"{group}: {shape}" + (f", {gpus} devices, batch {gbs}" if gpus else "")
        print(f"{title:52} {len(members):4} {rho:8.2f}  {layout(best):24} "
              f"{layout(members[choice]):24} {regret:5.1f}%"
              + (f"  {values[2]:.2f} {values[3]:.1f}%" if options.cross else ""))
    means = [sum(v[i] for v in many) / max(1, len(many)) for i in range(4 if options.cross else 2)]
    if many:
        print(f"vtrain_single: mean of {len(many)} sets: Spearman {means[0]:.2f}, regret "
              f"{means[1]:.1f}%" + (f"; cross-validated {means[2]:.2f}, {means[3]:.1f}%"
                                    if options.cross else ""))


if __name__ == "__main__":
    main()
