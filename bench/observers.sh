#!/usr/bin/env bash
# What observers cost a training with all of run.logs: the median time inside them on the thread of the
# loop (limit: 30 us a step), and the processor time of their thread (limit: 2 % of the run).
#
#     make build/bench/observers && bench/observers.sh [BUILD] [STEPS] [section.key=value ...]
#
# The settings change what is trained. Ends with exit code 1 when a limit is not kept.
set -eu
build=${1:-build}
steps=${2:-1000}
shift $(($# < 2 ? $# : 2))
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bench-observers-XXXXXX")
trap 'rm -rf "$work"' EXIT
"$build/bench/observers" recipes/tiny.yaml run.dir="$work/run" run.device=cpu run.threads=1 run.save=false \
    train.steps="$steps" train.eval_every=100 run.logs=tensorboard,wandb,csv,prometheus "$@" | tee "$work/out"
awk '$1 == "all" { us = $3 } $1 == "threads" { share = $NF == "%" ? $(NF - 1) : 100; seen = 1 }
    END {
        printf "limits     %s us of 30 us a step, %s %% of 2 %%: %s\n", us, share,
            seen && 0 < us && us <= 30 && share <= 2 ? "kept" : "NOT KEPT"
        exit !(seen && 0 < us && us <= 30 && share <= 2)
    }' "$work/out"
