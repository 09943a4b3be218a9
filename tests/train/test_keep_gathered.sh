#!/usr/bin/env bash
# layout.keep_gathered for people: processes train to the same losses and take the memory of their
# plan, and the verbs show what stays. Argument: the build directory.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-keep-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $1"
    failures=$((failures + 1))
}

# 12.7 M parameters (48.6 MiB), of which each of two ranks has half.
small=(--set model.num_layers=4 --set model.dim=512 --set model.num_heads=8 --set model.vocab=256
    --set data.seq_len=32 --set train.batch=4 --set train.steps=3 --set train.eval_batches=1
    --set run.save=false --set run.threads=1 --set layout.dp=2 --set layout.zero=3
    --set layout.microbatches=2)

kib() {
    awk -v number="$1" -v unit="$2" 'BEGIN {
        factor["KiB"] = 1; factor["MiB"] = 1024; factor["GiB"] = 1048576
        printf "%d", number * factor[unit] }'
}

used=() planned=()
for keep in false true; do
    "$trireme" train "${small[@]}" --set layout.keep_gathered=$keep --set run.dir="$work/$keep" \
        >"$work/$keep.out" 2>&1 || fail "keep_gathered=$keep does not run: $(tail -n 3 "$work/$keep.out")"
    sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' "$work/$keep/metrics.jsonl" >"$work/$keep.loss"
    read -r -a words <<<"$(grep '^memory: ' "$work/$keep.out")"
    used+=("$(kib "${words[1]}" "${words[2]}")")
    planned+=("$(kib "${words[4]}" "${words[5]}")")
done
[ "$(wc -l <"$work/true.loss")" -ge 3 ] && cmp -s "$work/false.loss" "$work/true.loss" ||
    fail "the losses differ: $(paste -s "$work/false.loss") and $(paste -s "$work/true.loss")"
# More by the weights, less the layers that the workspace no longer has to hold; and as much more is
# taken as is planned.
more=$((planned[1] - planned[0])) off=$((used[1] - used[0] - planned[1] + planned[0]))
[ $more -gt 20000 ] && [ $more -lt 52000 ] || fail "$more KiB more are planned for 49783 of weights"
grep -q -e __asan_init -e __tsan_init "$trireme" || [ ${off#-} -le 2048 ] ||
    fail "of $more KiB more that are planned, $((more + off)) are taken"

says() { # pattern, then arguments
    local pattern=$1
    shift
    "$trireme" "$@" >"$work/out" 2>&1 || fail "$*: exit $?"
    grep -q -- "$pattern" "$work/out" || fail "$*: nothing like \"$pattern\""
}
tiny=(recipes/tiny.yaml --set layout.dp=2 --set layout.zero=3 --set layout.keep_gathered=true)
several=("${tiny[@]}" --set layout.microbatches=3)
says 'unshard .*, first micro-batch only' explain "${several[@]}"
says '^  gathered *weights put together *861.5 KiB' explain "${several[@]}" --summary
says '^ *gathered *weights *861.5 KiB' plan "${several[@]}"
says '861.5 KiB of weights, put together for the step' plan "${tiny[@]}"
says 'layout.keep_gathered m + 1' place --state 1e9 --mesh dp:8
says 'ranks' check "${several[@]}" --set layout.pp=2

# The time of a step, by the same formula for both: gathers that are not made take none.
step_ms() { sed -n 's/^a step of .*: \([0-9.]*\) ms.*/\1/p' "$work/out"; }
pipeline=(--set model.preset=gpt2-124m --set layout.pp=2 --set layout.dp=8 --set layout.zero=3
    --set layout.microbatches=8 --set train.batch=64 --set data.seq_len=64 --device h100)
says 'a step of' sim "${pipeline[@]}"
plain=$(step_ms)
says 'a step of' sim "${pipeline[@]}" --set layout.keep_gathered=true
awk -v plain="$plain" -v kept="$(step_ms)" 'BEGIN { exit !(kept > 0 && kept < 0.9 * plain) }' ||
    fail "sim: $(step_ms) ms when weights stay, $plain ms when not"
[ $failures -eq 0 ]
