"""Reads the event files of a run with TensorBoard's own code, and compares them with metrics.jsonl.

    python tests/reference/read_tensorboard.py RUN_DIR

needs `tensorboard` from PyPI (tried with 2.21.0). Every record of every file must parse; and what
EventAccumulator makes of all of them, which forgets steps that were done again, must be the numbers
of metrics.jsonl: each step once, values as 32-bit floats, the same times.
"""

import glob
import json
import math
import os
import struct
import sys

import tensorboard
from tensorboard.backend.event_processing import event_accumulator, event_file_loader

RENAMED = {"eval_loss": "eval/loss", "eval_accuracy": "eval/accuracy"}
PERF = ("step_ms", "tokens_per_s", "mem_peak_bytes", "slowest_rank", "slowest_ms", "own_ms",
        "waited_ms", "slow_rank", "ckpt_stall_ms")


def tag_of(key):
    return RENAMED.get(key) or ("perf/" if key in PERF else "train/") + key


def as_float(value):
    return math.nan if value is None else struct.unpack("f", struct.pack("f", value))[0]


def main(run):
    files = sorted(glob.glob(os.path.join(run, "tensorboard", "events.out.tfevents.*")))
    assert files, "no event files"
    records = 0
    for file in files:
        for i, event in enumerate(event_file_loader.RawEventFileLoader(file).Load()):
            records += 1
        events = list(event_file_loader.LegacyEventFileLoader(file).Load())
        assert events[0].file_version == "brain.Event:2", events[0]
        assert events[1].session_log.status == 1, events[1]
    wanted = {}
    with open(os.path.join(run, "metrics.jsonl")) as lines:
        for line in map(json.loads, lines):
            for key, value in line.items():
                if key not in ("step", "time", "version"):
                    wanted.setdefault(tag_of(key), []).append((line["step"], as_float(value), line["time"]))
    accumulator = event_accumulator.EventAccumulator(
        os.path.join(run, "tensorboard"), size_guidance={event_accumulator.SCALARS: 0}
    )
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    assert sorted(tags) == sorted(wanted), (sorted(tags), sorted(wanted))
    values = 0
    for tag, points in wanted.items():
        found = accumulator.Scalars(tag)
        assert [p.step for p in found] == [p[0] for p in points], tag
        for have, (step, value, time) in zip(found, points):
            # An f32 that was written with nine digits is the same f32; what was a double may round
            # twice, by way of these digits.
            assert math.isnan(value) and not math.isfinite(have.value) or math.isclose(
                have.value, value, rel_tol=2e-7
            ), (tag, step, have.value, value)
            assert abs(have.wall_time - time) < 0.001, (tag, step)
            values += 1
    print(
        f"tensorboard {tensorboard.__version__}: {len(files)} files, {records} records, {len(tags)} tags, "
        f"{values} values as in metrics.jsonl"
    )


if __name__ == "__main__":
    main(sys.argv[1])
