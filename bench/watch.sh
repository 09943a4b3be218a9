#!/usr/bin/env bash
# What `trireme watch` takes and costs:
#
#   1. /api/runs of many long runs, when each has its summary;
#   2. steps of a run with ten clients that listen and one that asks for documents all the while, beside
#      the same run without, in turns: the ratio of the times of a step;
#   3. memory of the server while a run of a million made-up steps grows as fast as it can be written.
#
#     bench/watch.sh [BUILD] [RUNS] [STEPS] [TURNS]
#
# Times are in seconds; the runs take about 250 bytes a step on the disk of TMPDIR (1.3 GB by default).
# Needs curl.
set -eu
build=${1:-build}
runs=${2:-50}
steps=${3:-100000}
turns=${4:-5}
trireme=$(cd "$build" && pwd)/trireme
recipe=$PWD/recipes/tiny.yaml
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bench-watch-XXXXXX")
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap finish EXIT

# serve DIR ...: url and server
serve() {
    rm -f "$work/url"
    "$trireme" watch "$@" --port 0 >"$work/url" &
    server=$!
    pids+=("$server")
    until [ -s "$work/url" ]; do sleep 0.05; done
    url=$(head -n 1 "$work/url")
}
stop() {
    kill "$1"
    wait "$1" || true
}
# lines FROM TO: of metrics.jsonl
lines() {
    awk -v from="$1" -v to="$2" 'BEGIN {
    for (i = from; i <= to; i++) {
        printf "{\"step\":%d,\"loss\":%.9g,\"grad_norm\":%.9g,\"lr\":0.003,\"tokens\":%d,\"step_ms\":12.3%02d,", i,
            2 + 9 / sqrt(i) + (i * 7919 % 1000) / 5000, 1 + (i * 104729 % 1000) / 1000, i * 512, i % 100
        printf "\"tokens_per_s\":41500.%d,\"mem_peak_bytes\":123456789,\"slowest_rank\":0,\"slowest_ms\":12.3%02d,", i % 10, i % 100
        printf "\"time\":%.3f,\"version\":2}\n", 1790000000 + i / 80
    }
}'
}

"$trireme" train "$recipe" --set train.steps=2 --set run.dir="$work/small" >"$work/out"
mkdir "$work/runs"
lines 1 "$steps" >"$work/metrics.jsonl"
for ((r = 0; r < runs; r++)); do
    mkdir "$work/runs/run-$r"
    sed "s/^  steps: .*/  steps: $steps/" "$work/small/config.yaml" >"$work/runs/run-$r/config.yaml"
    cp "$work/small/events.jsonl" "$work/metrics.jsonl" "$work/runs/run-$r/"
done
sync
echo "1. $runs runs of $steps steps, /api/runs"
serve "$work/runs"
for visit in "first visit" "after it" "after it" "after it"; do
    printf '   %-12s %s\n' "$visit" "$(curl -s -o "$work/list" -w '%{time_total}' "${url}api/runs")"
    sleep 1.5
done
id=$(grep -o '"id":"[0-9a-f]*"' "$work/list" | head -n 1 | cut -d'"' -f4)
for visit in "first curve" "after it"; do
    printf '   %-12s %s\n' "$visit" "$(curl -s -o /dev/null -w '%{time_total}' "${url}api/curve?id=$id&y=loss")"
done
stop "$server"
rm -rf "$work/runs"

# Median milliseconds of a step of a run. With "watched": beside ten listeners and one that asks.
step_ms() {
    local clients=() dir=$work/pace/$1
    rm -rf "$dir"
    if [ "$1" = watched ]; then
        mkdir -p "$work/pace"
        serve "$work/pace"
    fi
    "$trireme" train "$recipe" --set train.steps=2000 --set layout.dp=2 --set run.dir="$dir" \
        --set run.save=false >"$work/out" &
    local run=$!
    if [ "$1" = watched ]; then
        id=
        while [ -z "$id" ] && kill -0 $run 2>/dev/null; do
            id=$(curl -s "${url}api/runs" | grep -o '"id":"[0-9a-f]*"' | head -n 1 | cut -d'"' -f4)
        done
        for ((c = 0; c < 10; c++)); do
            curl -sN "${url}events?id=$id" >/dev/null &
            clients+=($!)
        done
        while kill -0 $run 2>/dev/null; do
            for address in api/runs "api/curve?id=$id&y=loss" "api/ranks?id=$id"; do
                curl -s -o /dev/null "$url$address"
            done
            sleep 0.5
        done
    fi
    wait $run
    if [ "$1" = watched ]; then
        kill "${clients[@]}" 2>/dev/null || true
        stop "$server"
    fi
    grep -o '"step_ms":[0-9.]*' "$dir/metrics.jsonl" | cut -d: -f2 | tail -n +101 | sort -n |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
echo "2. a step of recipes/tiny.yaml on two ranks, ms: alone, and with ten clients"
for ((t = 0; t < turns; t++)); do
    if ((t % 2)); then
        watched=$(step_ms watched) && alone=$(step_ms alone)
    else
        alone=$(step_ms alone) && watched=$(step_ms watched)
    fi
    echo "$alone $watched" | awk '{ printf "   %-10s %-10s %.3f\n", $1, $2, $2 / $1 }' | tee -a "$work/ratios"
done
awk '{ print $3 }' "$work/ratios" | sort -n | awk '{ v[NR] = $1 } END { print "   median", v[int((NR + 1) / 2)] }'

echo "3. a run of a million steps while it grows, MiB of the server's memory"
mkdir -p "$work/long/run"
cp "$work/small/config.yaml" "$work/small/events.jsonl" "$work/long/run/"
: >"$work/long/run/metrics.jsonl"
serve "$work/long"
id=$(curl -s "${url}api/runs" | grep -o '"id":"[0-9a-f]*"' | head -n 1 | cut -d'"' -f4)
curl -sN "${url}events?id=$id" >/dev/null &
client=$!
pids+=($client)
for ((s = 0; s < 1000000; s += 100000)); do
    lines $((s + 1)) $((s + 100000)) >>"$work/long/run/metrics.jsonl"
    took=$(curl -s -o /dev/null -w '%{time_total}' "${url}api/curve?id=$id&y=loss")
    awk -v steps=$((s + 100000)) -v took="$took" \
        '/VmRSS/ { printf "   %8d steps  %6.1f MiB  curve in %s\n", steps, $2 / 1024, took }' "/proc/$server/status"
done
kill $client 2>/dev/null || true
stop "$server"
