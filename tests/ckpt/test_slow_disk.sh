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
# On a busy machine a short deadline may be over without any disk: then it is a longer one.
for seconds in 2 8 30; do
    train slow DISK_PATH=rank-1.safetensors DISK_PAUSE_MS=${seconds}500 -- layout.dp=2 run.deadline_s=$seconds && break
done || fail "a slow sync ended the run: $(tail -n 3 "$work/slow.out")"
grep -q 'was not written' "$work/slow.out" && fail "a slow sync cost a checkpoint: $(grep 'was not written' "$work/slow.out")"
"$trireme" ckpt verify "$work/slow" >"$work/out" 2>&1 && [ "$(grep -c ': whole' "$work/out")" = 1 ] ||
    fail "the checkpoint of the slow disk is not whole: $(cat "$work/out")"

# ---- a directory whose sync fails ----
train dir DISK_PATH=none -- ckpt.every=2 train.steps=2 || fail "the run before: $(tail -n 2 "$work/dir.out")"
train dir DISK_PATH=/dir/ckpt DISK_ERRNO=5 -- ckpt.keep_last=1 run.resume=true && fail "a checkpoint whose name is not on the disk is no failure"
grep -q 'step 4 was not written: .*/ckpt: the directory cannot be synced: Input/output error' "$work/dir.out" ||
    fail "what is said of a failed sync: $(tail -n 3 "$work/dir.out")"
[ "$(ls "$work/dir/ckpt")" = step-2 ] || fail "after a failed sync there are $(ls "$work/dir/ckpt")"
train file DISK_PATH=/file DISK_ERRNO=5 -- ckpt.every=0
[ $? -eq 1 ] && grep -q 'file/.*: was written, but may be lost when the power fails' "$work/file.out" ||
    fail "a failed sync of run.dir: $(tail -n 2 "$work/file.out")"
# One that a file system has no way to sync is none.
train odd DISK_PATH=/odd/ckpt DISK_ERRNO=22 -- || fail "a directory that cannot be synced at all: $(tail -n 2 "$work/odd.out")"

# ---- what dead processes left ----
true &
dead=$!
wait $dead
mine=$work/odd/.trireme-$dead-$(uname -n)-0.tmp other=$work/odd/.trireme-$dead-elsewhere-0.tmp
touch "$mine" "$other"
train odd DISK_PATH=none -- run.resume=true train.steps=5 || fail "going on: $(tail -n 2 "$work/odd.out")"
[ ! -e "$mine" ] || fail "what a dead process left is still there"
[ -e "$other" ] || fail "what another machine writes was taken away"

exit $((failures > 0))
