"""Reads the offline run of W&B of a run with wandb's own code, and compares it with metrics.jsonl.

    python tests/reference/read_wandb.py RUN_DIR

needs `wandb` from PyPI, of a version that still has wandb/sdk/internal/datastore.py (tried with
0.28.2; 0.29 and later read such files in Go). Every record must parse with nothing unknown in it,
and the history must be metrics.jsonl, line for line.
"""

import glob
import json
import os
import sys

import wandb
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

RENAMED = {"step": "_step", "time": "_timestamp", "eval_loss": "eval/loss", "eval_accuracy": "eval/accuracy"}
PERF = ("step_ms", "tokens_per_s", "mem_peak_bytes", "slowest_rank", "slowest_ms", "own_ms",
        "waited_ms", "slow_rank", "ckpt_stall_ms")


def key_of(name):
    return RENAMED.get(name) or ("perf/" if name in PERF else "train/") + name


def records_of(path):
    store = DataStore()
    store.open_for_scan(path)
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        assert record.ParseFromString(data) == len(data)
        known = record.SerializeToString(deterministic=True)
        record.DiscardUnknownFields()
        assert record.SerializeToString(deterministic=True) == known, "unknown fields"
        yield record
    assert store._index == os.path.getsize(path), "bytes behind the last record"


def main(run):
    (path,) = glob.glob(os.path.join(run, "wandb", "offline-run-*", "run-*.wandb"))
    records = list(records_of(path))
    kinds = [record.WhichOneof("record_type") for record in records]
    assert [record.num for record in records] == list(range(1, len(records) + 1))
    assert kinds[:2] == ["header", "run"] and kinds[-1] == "exit", (kinds[:2], kinds[-1])
    assert kinds.count("run") == kinds.count("exit") == 1
    head = records[1].run
    assert os.path.basename(path) == f"run-{head.run_id}.wandb"
    config = {item.key: json.loads(item.value_json) for item in head.config.update}
    assert config["run.dir"].rstrip("/").endswith(head.display_name), config["run.dir"]
    history = [record.history for record in records if record.HasField("history")]
    with open(os.path.join(run, "metrics.jsonl")) as lines:
        wanted = [json.loads(line) for line in lines]
    assert len(history) == len(wanted), (len(history), len(wanted))
    values, last = 0, {}
    for have, line in zip(history, wanted):
        items = {item.key: json.loads(item.value_json) for item in have.item}
        last.update(items)
        assert have.step.num == line["step"]
        items.pop("_runtime")
        line.pop("version")
        assert sorted(items) == sorted(map(key_of, line)), (sorted(items), sorted(line))
        for name, value in line.items():
            found = items[key_of(name)]
            assert found == value or value is None and found in ("NaN", "Infinity", "-Infinity"), (name, found, value)
            values += 1
    (summary,) = [record.summary for record in records if record.HasField("summary")][-1:]
    assert {item.key: json.loads(item.value_json) for item in summary.update} == last
    print(
        f"wandb {wandb.__version__}: {len(records)} records in {os.path.getsize(path)} bytes, {len(history)} steps, "
        f"{values} values as in metrics.jsonl, {len(config)} settings, exit code {records[-1].exit.exit_code}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
