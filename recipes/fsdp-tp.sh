#!/usr/bin/env bash
# Four ranks, divided in three ways: recipes/fsdp-tp.yaml with tp 1, 2 and 4, as a table of memory
# and step times. More settings may follow: recipes/fsdp-tp.sh --set train.steps=30
set -u
cd "$(dirname "$0")/.." || exit 1
trireme=${TRIREME:-build/trireme}
[ -x "$trireme" ] || trireme=trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-sweep-XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "one rank:"
"$trireme" plan recipes/fsdp-tp.yaml --set layout.dp=1 "$@" 2>&1 >/dev/null | sed 's/^/  /'
echo
printf '%4s %4s %16s %14s %12s %10s\n' tp dp 'plan of a rank' 'median step' tokens/s 'last loss'
for tp in 1 2 4; do
    dp=$((4 / tp))
    if ! "$trireme" train recipes/fsdp-tp.yaml --set layout.tp=$tp --set layout.dp=$dp \
        --set run.save=false --set run.dir="$work/tp$tp" "$@" >"$work/out" 2>&1; then
        printf '%4d %4d  %s\n' $tp $dp "$(tail -n 1 "$work/out")"
        continue
    fi
    plan=$(sed -n 's/^device .*, \([0-9.]* [KMG]*i*B\) planned.*/\1/p' "$work/out")
    # The first step is left out: it warms up.
    sed -n 's/.*"step_ms": *\([0-9.]*\).*/\1/p' "$work/tp$tp/metrics.jsonl" | tail -n +2 | sort -n |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }' >"$work/median"
    tail -n 1 "$work/tp$tp/metrics.jsonl" |
        sed -n 's/.*"loss": *\([0-9.]*\).*"tokens": *\([0-9]*\).*/\1 \2/p' >"$work/last"
    read -r median <"$work/median"
    read -r loss tokens <"$work/last"
    steps=$(wc -l <"$work/tp$tp/metrics.jsonl")
    awk -v tp=$tp -v dp=$dp -v plan="$plan" -v ms="$median" -v tokens="$tokens" -v steps="$steps" \
        -v loss="$loss" 'BEGIN {
            printf "%4d %4d %16s %11.1f ms %12.0f %10.4f\n", tp, dp, plan, ms,
                   tokens / steps * 1000 / ms, loss }'
done
