#!/usr/bin/env bash
# How fast `trireme runs` lists many long runs: at the first visit, which reads every line, and
# after it, when each run has its summary.
#
#     bench/runs.sh [BUILD] [RUNS] [STEPS]
#
# Times are in seconds, three visits after the first; the runs take about 250 bytes a step on the
# disk of TMPDIR (1.3 GB by default).
set -eu
build=${1:-build}
runs=${2:-50}
steps=${3:-100000}
trireme=$(cd "$build" && pwd)/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bench-runs-XXXXXX")
trap 'rm -rf "$work"' EXIT

"$trireme" train recipes/tiny.yaml --set train.steps=2 --set run.dir="$work/small" >"$work/out"
mkdir "$work/runs"
cd "$work"
awk -v steps="$steps" 'BEGIN {
    for (i = 1; i <= steps; i++) {
        printf "{\"step\":%d,\"loss\":%.9g,\"grad_norm\":%.9g,\"lr\":0.003,\"tokens\":%d,\"step_ms\":12.3%02d,", i,
            2 + 9 / sqrt(i) + (i * 7919 % 1000) / 5000, 1 + (i * 104729 % 1000) / 1000, i * 512, i % 100
        printf "\"tokens_per_s\":41500.%d,\"mem_peak_bytes\":123456789,\"slowest_rank\":0,\"slowest_ms\":12.3%02d,", i % 10, i % 100
        printf "\"time\":%.3f,\"version\":2}\n", 1790000000 + i / 80
    }
}' >metrics.jsonl
for ((r = 0; r < runs; r++)); do
    mkdir "runs/run-$r"
    sed "s/^  steps: .*/  steps: $steps/" small/config.yaml >"runs/run-$r/config.yaml"
    cp small/events.jsonl "runs/run-$r/"
    cp metrics.jsonl "runs/run-$r/"
done
sync
echo "$runs runs of $steps steps, $(du -sh runs | cut -f1)"
TIMEFORMAT=%R
for visit in "first visit" "after it" "after it" "after it"; do
    printf '%-12s' "$visit"
    { time "$trireme" runs >out; } 2>&1
done
[ "$(grep -c "$steps/$steps" out)" -eq "$runs" ] || {
    echo "the list is not right:"
    head -3 out
    exit 1
}
