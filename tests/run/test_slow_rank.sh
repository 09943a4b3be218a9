#!/usr/bin/env bash
# Ranks that are slow: braked by run.pace they are named; stopped and continued by signals, every
# step that stalls names them, and not the rank that waits.
#
# Ranks keep a pace, so that own times are what they are on a quiet machine. What the machine does
# beside may still disturb a try; the next one takes longer.
set -u
build=$1
trireme=$build/trireme
if ldd "$trireme" 2>/dev/null | grep -q libtsan; then
    echo "skipped: own times mean nothing where a sanitizer takes most of them"
    exit 77
fi
work=$(mktemp -d /tmp/trireme-slow-XXXXXX)
pid=''
launcher='' victim=''
cleanup() {
    [ -n "$victim" ] && kill -CONT "$victim" 2>/dev/null
    [ -n "$pid" ] && kill "$launcher" "$pid" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    echo "$1"
    cat "$work/out.txt" "$work/run/events.jsonl" "$work/run/metrics.jsonl" 2>/dev/null | tail -n 80
    exit 1
}

# begin STEPS PACE: two ranks of one thread each.
minutes=5
[ -n "${TRIREME_TEST_FULL:-}" ] && minutes=60
begin() {
    "$trireme" train recipes/tiny.yaml --set layout.dp=2 --set run.threads=1 --set run.save=false \
        --set train.steps="$1" --set run.pace="$2" --set run.dir="$work/run" \
        --set train.eval_every=1000000 --set run.max_minutes="$minutes" >"$work/out.txt" 2>&1
}

# ---- braked by 10 %: named within 20 steps, once, in the events, on the terminal, in the metrics
# named FACTOR: after a run whose actions took FACTOR times 15 ms.
named() {
    local at
    rm -rf "$work/run"
    begin 22 "F=$((5 * $1)),B=$((8 * $1)),U=$((2 * $1)),1:1.1" || fail "the braked run failed"
    at=$(sed -n 's/.*"event":"slow","rank":1,"at_step":\([0-9]*\),.*/\1/p' "$work/run/events.jsonl")
    [ "$(grep -c '"event":"slow"' "$work/run/events.jsonl")" = 1 ] && [ -n "$at" ] &&
        [ "$at" -le 20 ] && grep -q "rank 1 is slow: .* most of that in forward and backward" "$work/out.txt" &&
        grep -q '"step":22,.*"slow_rank":1,' "$work/run/metrics.jsonl" &&
        ! grep -q '"step":5,.*"slow_rank"' "$work/run/metrics.jsonl"
}
named 1 || named 4 || named 16 || fail "a rank that is 10 % slower was not named within 20 steps"

# ---- ranks that are equally fast: none is named
steps=40
[ -n "${TRIREME_TEST_FULL:-}" ] && steps=10000
equal() {
    rm -rf "$work/run"
    begin "$steps" "F=$((6 * $1)),B=$((10 * $1)),U=$((4 * $1))" || fail "the paced run failed"
    ! grep -q '"event":"slow"' "$work/run/events.jsonl"
}
equal 1 || equal 4 || fail "a rank was named among equal ones"

# ---- stopped and continued: every stalled step names rank 1
# stalls SECONDS: stops of so long; steps that come three quarters of it late count.
stalls() {
    local limit wrong num
    limit=$(awk "BEGIN { print 750 * $1 }")
    rm -rf "$work/run"
    begin 1000000 F=2,B=3,U=1,0:3 & # rank 1 waits most of the time
    pid=$!
    for _ in $(seq 600); do
        [ "$(grep -c . "$work/run/metrics.jsonl" 2>/dev/null)" -ge 5 ] 2>/dev/null && break
        sleep 0.1
    done
    launcher=$(pgrep -P "$pid" | head -n 1)
    victim=$(pgrep -P "$launcher" | sed -n 2p) # ranks are forked in order
    [ -n "$victim" ] || fail "there is no rank 1 to stop"
    for _ in 1 2 3 4; do
        kill -STOP "$victim"
        sleep "$1"
        kill -CONT "$victim"
        sleep "0.0$((RANDOM % 90 + 10))"
    done
    sleep 0.1
    kill -TERM "$launcher" # it ends after its step
    wait "$pid"
    pid='' launcher='' victim=''
    # Lines that come late; of them, those that name another rank, or rank 1 for another reason.
    awk -v limit="$limit" -F'[:,]' '{
        for (i = 1; i < NF; i++) {
            if ($i == "\"time\"") time = $(i + 1)
            if ($i == "\"slowest_rank\"") rank = $(i + 1)
            if ($i == "\"slowest_ms\"") own = $(i + 1)
        }
        if (NR > 5 && 1000 * (time - before) > limit)
            print((rank == 1 && own > limit / 2) ? "right" : "wrong: " $0)
        before = time
    }' "$work/run/metrics.jsonl" >"$work/stalled"
    num=$(grep -c . "$work/stalled")
    wrong=$(grep wrong "$work/stalled")
    [ "$num" -ge 3 ] && [ -z "$wrong" ]
}
stalls 0.4 || stalls 1.2 || stalls 3 || fail "a stalled step did not name the rank that was stopped"
echo "slow ranks: passed"
