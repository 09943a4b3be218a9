#!/usr/bin/env bash
# Runs the harnesses that `make fuzz-build` has built: fuzz_run.sh FOLDER [SECONDS [JOBS [NAME ...]]]
# Each runs for SECONDS (300) of processor time, however busy the machine is, JOBS of them at a time
# (as many as there are processors). The folder, build-fuzz/carry, needs nothing but itself and this script, which is in it, too: it may have been
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

# Ends a fuzzer, in good order, when it has used so many seconds of the processor.
end_in_time() { # pid
    local ticks
    ticks=$((seconds * $(getconf CLK_TCK)))
    while sleep 1; do # fields 14 and 15, counted behind the name, which may have blanks
        awk -v most="$ticks" '{ sub(/.*\) /, ""); exit !($12 + $13 >= most) }' "/proc/$1/stat" \
            2>/dev/null && break
        kill -0 "$1" 2>/dev/null || return
    done
    kill -INT "$1"
}

run() { # name
    local name=$1 log=$folder/logs/$1.log code used pid ender found=()
    mkdir -p "$folder/findings/$name" "$folder/grown/$name"
    FUZZ_HARNESS=$name "$program" -timeout=25 -rss_limit_mb=3000 -max_len=16384 \
        -print_final_stats=1 -artifact_prefix="$folder/findings/$name/" \
        "$folder/grown/$name" "$folder/corpus/$name" >"$log" 2>&1 </dev/null &
    pid=$!
    end_in_time $pid &
    ender=$!
    wait $pid
    code=$?
    [ $code -ne 72 ] || code=0 # it was ended, above
    wait $ender
    times >"$log.times" # to a file: at the end of a pipe would be another shell's
    used=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += 60 * t[1] + t[2] }
                          printf "%d", s }' "$log.times")
    rm -f "$log.times"
    shopt -s nullglob
    found=("$folder/findings/$name"/*)
    if [ $code -eq 0 ] && [ ${#found[@]} -eq 0 ] && [ "$used" -ge "$seconds" ]; then
        printf 'ok      %-16s %10s inputs in %d s of processor time\n' "$name" \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$used"
        return 0
    fi
    printf 'FOUND   %-16s exit code %d after %d s; %s; the log is %s\n' "$name" $code "$used" \
        "${found[*]:-no input}" "$log"
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
echo "${#names[@]} harnesses for $seconds s of processor time each: $failed found something"
[ $failed -eq 0 ]
