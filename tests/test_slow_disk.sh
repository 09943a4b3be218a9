#!/usr/bin/env bash
# A disk whose syncs take long, or fail: a slow one costs no checkpoint, and a failed sync is told.
# Argument: the build directory.
set -u
trireme=$1/trireme
shim=$(realpath "$1")/tests/helpers/libdisk-shim.so
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-disk-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

train() { # name, then VARIABLE=value for the disk, --, and settings; the output is in name.out
    local name=$1 disk=() set=()
    shift
    while [ "$1" != -- ]; do
        disk+=("$1")
        shift
    done
    shift
    for s in "$@"; do set+=(--set "$s"); done
    env LD_PRELOAD="$shim" "${disk[@]}" "$trireme" train recipes/tiny.yaml --set run.dir="$work/$name" \
        --set model.num_layers=1 --set model.dim=32 --set data.seq_len=16 --set train.eval_batches=1 \
        --set ckpt.every=4 --set train.steps=4 "${set[@]}" >"$work/$name.out" 2>&1
}

# ---- a sync that outlasts run.deadline_s ----
train slow DISK_PATH=rank-1.safetensors DISK_PAUSE_MS=2200 -- layout.dp=2 run.deadline_s=1.5 ||
    fail "a slow sync ended the run: $(tail -n 3 "$work/slow.out")"
grep -q 'was not written' "$work/slow.out" && fail "a slow sync cost a checkpoint: $(grep 'was not written' "$work/slow.out")"
"$trireme" ckpt verify "$work/slow" >"$work/out" 2>&1 && [ "$(grep -c ': whole' "$work/out")" = 1 ] ||
    fail "the checkpoint of the slow disk is not whole: $(cat "$work/out")"
# What was never written to is another matter than what is not finished.
train stuck DISK_PATH=rank-1.safetensors DISK_PAUSE_MS=900 -- layout.dp=2 ckpt.patience_s=0.3
grep -q 'rank 1 has written .* and nothing more for 0.3 s: .*ckpt.patience_s' "$work/stuck.out" ||
    fail "what is said of a disk that does not answer: $(tail -n 3 "$work/stuck.out")"

exit $((failures > 0))
