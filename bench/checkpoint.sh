#!/usr/bin/env bash
# What checkpoints cost: the same training with and without one every 49 steps, by turns, and the
# speed of the copy for which it stops.
#
#     bench/checkpoint.sh [BUILD] [ROUNDS] [section.key=value ...]
#
# On a machine that does other things too, the times of two runs differ by more than checkpoints
# cost: look at the share of the stops, and at the seconds of processor time.
# The settings change the model that is trained (about 9 M parameters, 30 M numbers of state).
set -eu
build=${1:-build}
rounds=${2:-3}
shift $(($# < 2 ? $# : 2))
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bench-ckpt-XXXXXX")
trap 'rm -rf "$work"' EXIT
set=(--set model.num_layers=4 --set model.dim=384 --set model.num_heads=6 --set model.vocab=4096
    --set data.seq_len=128 --set train.batch=8 --set train.steps=100 --set train.eval_batches=1
    --set run.save=false --set data.eval_fraction=0)
for s in "$@"; do set+=(--set "$s"); done

run() { # name, then settings: prints the milliseconds of the run's steps and saves
    local name=$1
    shift
    rm -rf "${work:?}/$name"
    TIMEFORMAT='%U %S'
    { time "$build/trireme" train recipes/tiny.yaml --set run.device=cpu "${set[@]}" --set run.dir="$work/$name" "$@" \
        >"$work/$name.out"; } 2>"$work/$name.cpu"
    # The first step warms up, and is left out.
    sed 's/.*"step_ms": *\([0-9.e+-]*\).*/\1 &/; s/ {.*ckpt_stall_ms": *\([0-9.e+-]*\).*/ \1/; s/ {.*/ 0/' \
        "$work/$name/metrics.jsonl" | awk -v out="$work/$name.ms" '
        NR > 1 { steps += $1; stalls += $2; num += $2 > 0; if ($2 > most) most = $2 }
        END { printf "%f %f %d %f\n", steps, stalls, num, most > out }'
}

for round in $(seq "$rounds"); do
    run plain
    run saving --set ckpt.every=49 --set ckpt.keep_last=1
    bytes=$(stat -c %s "$work"/saving/ckpt/step-100/rank-*.safetensors | awk '{ s += $1 } END { print s }')
    paste "$work/plain.ms" "$work/saving.ms" "$work/plain.cpu" "$work/saving.cpu" |
        awk -v round="$round" -v bytes="$bytes" '{
            with = $5 + $6
            printf "round %d: 99 steps %.0f ms without, %.0f ms with a save every 49: %+.2f %%\n", round,
                $1, with, 100 * (with / $1 - 1)
            printf "         stopped %d times for %.1f ms in all: %.2f %% of the steps; %.0f MB at %.1f GB/s\n",
                $7, $6, 100 * $6 / $5, bytes / 1e6, bytes / ($6 / $7) / 1e6
            printf "         processor time %.2f s without, %.2f s with: %+.2f %%\n", $9 + $10, $11 + $12,
                100 * (($11 + $12) / ($9 + $10) - 1)
        }'
done
