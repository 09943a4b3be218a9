#!/usr/bin/env bash
# A rank that is killed in the middle of a traced run: what the others recorded is one whole file.
set -u
build=$1
trireme=$build/trireme
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN TORCHELASTIC_RUN_ID
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
work=$(mktemp -d /tmp/trireme-trace-XXXXXX)
launcher=
trap '[ -z "$launcher" ] || kill -9 "$launcher" 2>/dev/null; rm -rf "$work"' EXIT
fail() {
    echo "FAILED: $1"
    tail -n 5 "$work/out"
    exit 1
}

HOLD_STEP=3 HOLD_UNTIL="$work/go" LD_PRELOAD="$(realpath "$build")/tests/helpers/libhold-shim.so" \
    "$trireme" train recipes/tiny.yaml --set layout.dp=3 --set train.batch=6 --set train.steps=9 --set run.save=false \
    --set run.trace=true --set run.dir="$work/run" --set run.deadline_s=60 >"$work/out" 2>&1 &
launcher=$!
for ((i = 0; i < 3000; i++)); do # rank 0 stands at step 3
    grep -qs '^{"step":3,' "$work/run/metrics.jsonl" && break
    kill -0 $launcher 2>/dev/null || fail "the run ended before its third step"
    sleep 0.02
done
read -r -a ranks <"/proc/$launcher/task/$launcher/children"
[ ${#ranks[@]} -eq 3 ] || fail "${#ranks[@]} ranks, not 3"
kill -9 "${ranks[2]}"
touch "$work/go"
wait $launcher
code=$?
launcher=
[ $code -eq 1 ] || fail "a run whose rank was killed ended with exit code $code"
seen=$("$build/tests/test_trace" "$work/run/trace.json" 2>&1) || fail "the file: $seen"
case $seen in
"3 ranks, 1 missing, 3 steps, events "[1-9]*" "[1-9]*" 0 0") ;;
*) fail "the file of two ranks: $seen" ;;
esac
compgen -G "$work/run/trace-*" >/dev/null && fail "parts were left: $(ls "$work/run")"
grep -q '"missing_ranks":\[2\]' "$work/run/trace.json" || fail "the rank that is missing is not named"
exit 0
