#!/usr/bin/env bash
# Pipelines as they run beside their simulation: every schedule trains a tiny model whose actions
# keep a pace (they sleep until so many milliseconds have passed), so that the order alone decides
# how long a step takes.
#
#     bench/pipelines.sh [BUILD_DIR]
#
# From the environment: PP, MICRO (micro-batches), PACE (ms of F, I and W), STEPS, SCHEDULES.
set -u
build=${1:-build}
pp=${PP:-4} micro=${MICRO:-8} pace=${PACE:-20} steps=${STEPS:-5}
schedules=${SCHEDULES:-"gpipe 1f1b 1f1b-v interleaved zb-h1 zb-h2 zb-v v-half v-min chimera dualpipe dualpipev gems pipedream pipedream-2bw"}
[ -x "$build/trireme" ] || {
    echo "$build/trireme is missing; type make first" >&2
    exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "$pp stages, $micro micro-batches; F = I = W = $pace ms; median of $steps steps"
printf '%-14s %14s %14s %9s\n' schedule "simulated ms" "measured ms" apart
for schedule in $schedules; do
    cost=F=$pace,I=$pace,W=$pace
    simulated=$("$build/trireme" sim --schedule "$schedule" --pp "$pp" --microbatches "$micro" \
        --cost "$cost" 2>"$work/why" | awk '/^time/ { print $2 }')
    if [ -z "$simulated" ]; then
        printf '%-14s %s\n' "$schedule" "$(sed 's/^trireme: //' "$work/why" | head -1)"
        continue
    fi
    model=(--set model.num_layers=$((3 * pp)) --set model.dim=16 --set model.num_heads=4)
    case "$schedule" in # no shared table, and no norm of all gradients
    pipedream*) model+=(--set model.kind=llama --set model.num_kv_heads=4 --set model.ffn_dim=64
        --set model.dropout=0 --set train.clip=0) ;;
    esac
    if ! "$build/trireme" train recipes/tiny.yaml "${model[@]}" --set data.seq_len=8 \
        --set train.batch="$micro" --set train.steps="$steps" --set train.eval_every=0 \
        --set layout.pp="$pp" --set layout.microbatches="$micro" \
        --set layout.schedule="$schedule" --set run.pace="$cost" --set run.save=false \
        --set run.device=cpu --set run.threads=1 --set run.dir="$work/run" >"$work/log" 2>&1; then
        printf '%-14s %s\n' "$schedule" "$(grep -m1 trireme: "$work/log")"
        continue
    fi
    measured=$(sed -n 's/.*"step_ms": *\([0-9.]*\).*/\1/p' "$work/run/metrics.jsonl" | sort -g |
        awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }')
    awk -v n="$schedule" -v s="$simulated" -v m="$measured" \
        'BEGIN { printf "%-14s %14.1f %14.1f %8.1f%%\n", n, s, m, 100 * (m / s - 1) }'
done
