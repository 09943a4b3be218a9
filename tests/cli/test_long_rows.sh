#!/usr/bin/env bash
# A row that is too long for one card, and the plan that says so: Llama-3 8B at 131,072 tokens needs
# eight cards of 80 GB and context parallelism. Argument: the build folder.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-long-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
plan() { # name, then settings
    local name=$1 set=()
    shift
    for s in model.preset=llama3-8b model.positions=131072 data.seq_len=131072 data.source=synthetic \
        train.batch=1 precision.kind=bf16 layout.recompute=full run.memory_limit=80GB "$@"; do
        set+=(--set "$s")
    done
    "$trireme" plan "${set[@]}" >"$work/$name" 2>&1
}

for kind in ring gather ulysses; do
    plan "$kind" layout.cp=8 layout.zero=3 layout.cp_kind=$kind || {
        tail -n 2 "$work/$kind"
        fail "eight ranks with $kind attention do not fit"
    }
done
# The same eight cards without it: states are divided, rows are not.
plan rows layout.dp=8 layout.zero=3
code=$?
[ $code -eq 2 ] || fail "data parallelism alone: exit code $code"
grep -q 'run.memory_limit is 74.5 GiB; divide .*layout.cp' "$work/rows" ||
    fail "the refusal does not name layout.cp: $(tail -n 1 "$work/rows")"
plan alone
code=$?
[ $code -eq 2 ] || fail "one card: exit code $code"
echo "long rows: 5 plans, $failures failures"
exit $((failures > 0))
