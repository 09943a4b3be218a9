#!/usr/bin/env bash
# trireme profile: the parts of a step add up, and what a run without a trace is told.
set -u
build=$1
trireme=$build/trireme
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN TORCHELASTIC_RUN_ID
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
work=$(mktemp -d /tmp/trireme-profile-XXXXXX)
first='' second=''
cleanup() {
    local p
    for p in $first $second; do kill -9 "$p" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    echo "FAILED: $1"
    tail -n 30 "$work/out"
    exit 1
}
train() { # name, then settings
    local name=$1 set=() s
    shift
    for s in "$@"; do set+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml --set model.dim=32 --set model.num_layers=2 --set data.seq_len=32 \
        --set train.steps=4 --set run.save=false --set run.dir="$work/$name" "${set[@]}" >"$work/out" 2>&1
}

# Compute, message, wait and idle are all of the step, of each rank; so are the operators of compute.
train traced layout.dp=2 layout.zero=2 run.trace=true run.overlap_min_kb=0 || fail "a traced run"
"$trireme" profile "$work/traced" --draw "$work/step.svg" >"$work/out" || fail "profile"
awk '/^(0|1|mean) / {
        n++
        sum = $3 + $5 + $7 + $9
        if (sum < $2 - 0.003 || sum > $2 + 0.003) exit 1
        split($4 "," $6 "," $8 "," $10, share, ",")
        all = share[1] + share[2] + share[3] + share[4]
        if (all < 99.7 || all > 100.3) exit 1
        if ($1 == "mean") compute = $3
    }
    /^operator/ { ops = 1; next }
    /^limits/ { ops = 0; known = 1 }
    ops && (NF > 3 || $1 == "others") { total += $1 == "others" ? $2 : $3 }
    END { exit !(n == 3 && known && total > compute - 0.02 && total < compute + 0.02) }' "$work/out" ||
    fail "the parts do not add up to the step"
grep -qE '^matmul +[0-9]+ ' "$work/out" || fail "no products"
grep -qE '^shard +shard_sum ' "$work/out" || fail "no sums of gradients"
head -n 1 "$work/out" | grep -q "step.svg" || fail "the picture is not named"
grep -q '^<svg ' "$work/step.svg" && tail -n 1 "$work/step.svg" | grep -q '^</svg>' || fail "not an SVG"
grep -q 'rank 1  compute' "$work/step.svg" || fail "rank 1 is not drawn"

# A run without a trace is told which setting makes one.
train plain || fail "a run"
"$trireme" profile "$work/plain" >"$work/out" 2>&1
[ $? -eq 2 ] && grep -q -- '--set run.trace=true' "$work/out" || fail "a run without a trace"
"$trireme" profile "$work/traced" --draw "$work" >"$work/out" 2>&1
[ $? -eq 2 ] || fail "a picture in place of a directory"

# Ranks that others started, and rank 0 is killed: nobody joins what rank 1 leaves, so whoever looks does.
port=$((20000 + RANDOM % 12000))
while (echo >/dev/tcp/127.0.0.1/$port) 2>/dev/null; do port=$((port + 1)); done
rank() { # number, then settings of env
    local n=$1
    shift
    exec env RANK="$n" WORLD_SIZE=2 LOCAL_RANK="$n" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" \
        "$trireme" train recipes/tiny.yaml --set layout.dp=2 --set train.steps=9 --set run.save=false \
        --set run.trace=true --set run.dir="$work/left" --set run.deadline_s=20 >"$work/out-$n" 2>&1
}
rank 0 HOLD_STEP=3 HOLD_UNTIL="$work/go" LD_PRELOAD="$(realpath "$build")/tests/helpers/libhold-shim.so" &
first=$!
rank 1 &
second=$!
for ((i = 0; i < 3000; i++)); do
    grep -qs '^{"step":3,' "$work/left/metrics.jsonl" && break
    sleep 0.02
done
kill -9 $first
{ wait $first; } 2>/dev/null
wait $second
first='' second=''
[ -f "$work/left/trace-1.part" ] || fail "no part: $(ls "$work/left")"
"$trireme" profile "$work/left" >"$work/out" 2>&1 || fail "a part that nobody joined"
grep -q 'steps 2 to 3, 2 ranks' "$work/out" && grep -q '^no peak known' "$work/out" &&
    grep -q '^1 of the ranks left no whole step' "$work/out" || fail "what it says of them"
[ -f "$work/left/trace.json" ] && [ ! -f "$work/left/trace-1.part" ] || fail "the parts are not joined"
exit 0
