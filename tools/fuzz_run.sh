#!/usr/bin/env bash
# Runs the harnesses that `make fuzz-build` has built: fuzz_run.sh FOLDER [SECONDS [JOBS [NAME ...]]]
# Each runs for SECONDS (300), JOBS of them at a time (as many as there are processors). The folder,
# build-fuzz/carry, needs nothing but itself and this script, which is in it, too: it may have been
# carried from another machine. What is found is in FOLDER/findings/NAME; then the exit code is 1.
# Inputs that reached new code stay in FOLDER/grown/NAME, and the next run begins with them.
set -u
folder=$(cd "${1:-build-fuzz/carry}" && pwd) || exit 2
seconds=${2:-300}
jobs=${3:-$(nproc)}
names=("${@:4}")
program=$folder/fuzz_trireme
[ -x "$program" ] || {
    echo "there is no $program; type make fuzz-build first"
    exit 2
}
[ ${#names[@]} -gt 0 ] || mapfile -t names < <(ls "$folder/corpus")
export TRIREME_FUZZ_FIXTURES=$folder/fixtures
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
mkdir -p "$folder/logs" "$folder/findings"

run() { # name
    local log=$folder/logs/$1.log code found=()
    mkdir -p "$folder/findings/$1" "$folder/grown/$1"
    FUZZ_HARNESS=$1 "$program" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=3000 \
        -max_len=16384 -print_final_stats=1 -artifact_prefix="$folder/findings/$1/" \
        "$folder/grown/$1" "$folder/corpus/$1" >"$log" 2>&1 </dev/null
    code=$?
    shopt -s nullglob
    found=("$folder/findings/$1"/*)
    if [ $code -eq 0 ] && [ ${#found[@]} -eq 0 ]; then
        printf 'ok      %-16s %10s inputs\n' "$1" \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
        return 0
    fi
    printf 'FOUND   %-16s exit code %d; %s; the log is %s\n' "$1" $code "${found[*]:-no input}" "$log"
    return 1
}

failed=0 at_work=0
for name in "${names[@]}"; do
    if [ $at_work -ge "$jobs" ]; then
        wait -n || failed=$((failed + 1))
        at_work=$((at_work - 1))
    fi
    run "$name" &
    at_work=$((at_work + 1))
done
while [ $at_work -gt 0 ]; do
    wait -n || failed=$((failed + 1))
    at_work=$((at_work - 1))
done
echo "${#names[@]} harnesses for $seconds s each: $failed found something"
[ $failed -eq 0 ]
