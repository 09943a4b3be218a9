#!/usr/bin/env bash
# Spikes of the loss in whole runs: a few windows of noise in a text that is learnt by heart. Skipped,
# rolled back, or the end of the run; the same in another layout, and when the run is interrupted.
set -u
build=$1
trireme=$(realpath "$build/trireme")
work=$(mktemp -d /tmp/trireme-spike-XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() {
    echo "$1"
    tail -n 30 out 2>/dev/null
    exit 1
}

# 400 windows of 16 bytes; in eight places a window of other bytes.
for i in $(seq 400); do
    if [ $((i % 50)) = 30 ]; then printf '%s' "$i#Q~Z^&%K*!X|W{q" | head -c 16; else printf 'abcdefghabcdefgh'; fi
done >text.txt
run() { # DIR SETTING ...
    local dir=$1 words=()
    shift
    for word in "$@"; do words+=(--set "$word"); done
    "$trireme" train --set model.kind=gpt2 --set model.num_layers=1 --set model.dim=32 --set model.num_heads=2 \
        --set data.source=text.txt --set data.seq_len=16 --set data.eval_fraction=0 --set train.batch=2 \
        --set optim.lr=0.01 --set optim.warmup_steps=0 --set optim.schedule=constant --set run.threads=1 \
        --set train.spike_limit=30 --set train.max_skipped=3 --set run.save=false --set run.dir="$dir" \
        "${words[@]}" >out 2>&1
}
losses() { sed 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/' "$1/metrics.jsonl"; }
skipped() { sed -n 's/.*"event":"spike".*"at_step":\([0-9]*\),.*/\1/p' "$1/events.jsonl" | tr '\n' ' '; }
same() { # A B WHAT
    diff <(losses "$1") <(losses "$2") >/dev/null || {
        diff <(losses "$1") <(losses "$2") | head -6
        fail "$3: other losses"
    }
    [ "$(skipped "$1")" = "$(skipped "$2")" ] || fail "$3: spikes at $(skipped "$1") and $(skipped "$2")"
}

# ---- skip: told with the batch, counted, and the same in two ranks and when it is interrupted
run skip train.steps=120 ckpt.every=20 || fail "the run with train.on_spike=skip failed"
[ -n "$(skipped skip)" ] || fail "nothing was skipped"
grep -q "skipped: the loss jumped; the weights stay as they were (samples .* (windows .* of epoch 1))" out ||
    fail "the batch is not named"
num=$(skipped skip | wc -w)
grep -q "\"step\":120,.*\"skipped\":$num," skip/metrics.jsonl || fail "skipped steps are not counted"
run skip2 train.steps=120 layout.dp=2 || fail "two ranks failed"
[ "$(skipped skip)" = "$(skipped skip2)" ] || fail "two ranks skip at $(skipped skip2), one at $(skipped skip)"
run part train.steps=70 ckpt.every=20 || fail "the first part failed"
run part train.steps=120 ckpt.every=20 run.resume=true || fail "resuming failed"
same skip part "interrupted at step 70"

# ---- rollback: the state of the last checkpoint, and the batches since are passed over
run back train.steps=120 ckpt.every=20 train.on_spike=rollback || fail "the run with train.on_spike=rollback failed"
grep -q '"event":"rollback","at_step":[0-9]*,"from_step":[0-9]*,' back/events.jsonl || fail "nothing was rolled back"
grep -q "the state is that of step [0-9]* again, and the batches since then are passed over" out || fail "it is not told"
run back2 train.steps=70 ckpt.every=20 train.on_spike=rollback || fail "the first part failed"
run back2 train.steps=120 ckpt.every=20 train.on_spike=rollback run.resume=true || fail "resuming failed"
same back back2 "rolled back and interrupted"
# A run that ends with a rollback ends in the state of the checkpoint.
sed -n 's/.*"event":"rollback","at_step":\([0-9]*\),"from_step":\([0-9]*\),.*/\1 \2/p' back/events.jsonl >rollbacks
read -r at from < <(awk '$1 > $2 + 1' rollbacks)
[ -n "$at" ] || fail "every rollback was of one step"
run end train.steps="$at" ckpt.every=20 train.on_spike=rollback || fail "the run that ends with a rollback failed"
"$trireme" ckpt diff "end/ckpt/step-$from" "end/ckpt/step-$at" >out 2>&1
grep -q "tensors are identical" out && grep -q "skipped  *A 0, B $((at - from))" out || fail "step $at is not as step $from was"
run none train.steps=40 train.on_spike=rollback && fail "a rollback without checkpoints was not refused"
grep -q "train.on_spike is rollback.*ckpt.every" out || fail "the refusal does not say what to do"

# ---- stop, and warn
run stop train.steps=120 train.on_spike=stop && fail "train.on_spike=stop did not stop"
grep -q "step $(skipped skip | cut -d' ' -f1): the loss jumped to .* with samples .* train.on_spike is stop" out ||
    fail "the end does not name the batch"
run warn train.steps=120 train.on_spike=warn || fail "the run with train.on_spike=warn failed"
grep -q "warning: step .*: the loss jumped to .*; it was trained on" out || fail "it does not warn"
grep -q '"skipped"' warn/metrics.jsonl && fail "something was skipped"
echo "spikes: passed"
