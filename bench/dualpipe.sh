#!/usr/bin/env bash
# DualPipe with its pairs run as one (layout.pairs), paced, beside its simulation, on four ranks: four
# stages of a dense model, and two stages with experts over two ranks each. Prints simulated and
# measured step, and which share of the time of messages was hidden, by the trace.
#
#     bench/dualpipe.sh [BUILD_DIR]
#
# From the environment: PACE (ms of F, I and W), PAIR (ms of FB), MICRO (micro-batches), STEPS.
set -u
build=${1:-build}
pace=${PACE:-40} pair=${PAIR:-100} micro=${MICRO:-8} steps=${STEPS:-5}
[ -x "$build/trireme" ] || {
    echo "$build/trireme is missing; type make first" >&2
    exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cost=F=$pace,I=$pace,W=$pace,FB=$pair

# NAME STAGES RECIPE SETTING...
bench() {
    local name=$1 pp=$2 recipe=$3 simulated measured pairs
    shift 3
    for pairs in false true; do
        local of=$cost
        [ $pairs = true ] || of=F=$pace,I=$pace,W=$pace
        simulated=$("$build/trireme" sim --schedule dualpipe --pp "$pp" --microbatches "$micro" \
            --cost "$of" | awk '/^time/ { print $2 }')
        rm -rf "$work/run"
        "$build/trireme" train "$recipe" "$@" --set layout.pp="$pp" --set layout.schedule=dualpipe \
            --set layout.microbatches="$micro" --set layout.pairs=$pairs --set run.pace="$of" \
            --set train.batch=$((2 * micro)) --set train.steps="$steps" --set train.eval_every=0 \
            --set run.trace=true --set run.save=false --set run.device=cpu --set run.threads=1 \
            --set run.overlap_min_kb=0 --set run.dir="$work/run" >"$work/log" 2>&1 || {
            tail -2 "$work/log"
            exit 1
        }
        measured=$(sed -n 's/.*"step_ms": *\([0-9.]*\).*/\1/p' "$work/run/metrics.jsonl" | sort -g |
            awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }')
        awk -v n="$name" -v p=$pairs -v s="$simulated" -v m="$measured" \
            'BEGIN { printf "%-10s %-6s %13.1f %13.1f %7.1f%%\n", n, p, s, m, 100 * (m / s - 1) }'
        "$build/trireme" profile "$work/run" | awk '$1 ~ /^(pp|ep)$/ { print "    " $1, $2, "hidden", $NF }'
    done
}

echo "$micro micro-batches; F = I = W = $pace ms, FB = $pair ms; median of $steps steps"
printf '%-10s %-6s %13s %13s %8s\n' model pairs "simulated ms" "measured ms" apart
bench dense 4 recipes/tiny.yaml --set model.num_layers=12 --set model.dim=16 --set model.num_heads=4 \
    --set data.seq_len=8
bench mixture 2 recipes/moe-tiny.yaml --set model.dim=32 --set model.expert_dim=32 \
    --set model.shared_dim=32 --set data.seq_len=32 --set layout.dp=2 --set layout.ep=2
