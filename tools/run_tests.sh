#!/usr/bin/env bash
# Runs every test under BUILD/tests and tests/*.sh, each as a process of its own with a time limit,
# and ends with a line that counts them. A test that exits 77 was skipped and says why.
set -u
build=$1
# Every cell of the matrix of layouts takes an hour or two on two cores.
limit=${TRIREME_TEST_SECONDS:-${TRIREME_TEST_FULL:+14400}}
limit=${limit:-240}
only=${TEST:-}
passed=0 failed=0 skipped=0
names=()
log_dir=$build/test-logs
mkdir -p "$log_dir"

run() {
    local name=$1 start end code
    shift
    case "$name" in *"$only"*) ;; *) return ;; esac
    start=$(date +%s.%N)
    timeout --kill-after=5 "$limit" "$@" >"$log_dir/$name.log" 2>&1
    code=$?
    end=$(date +%s.%N)
    local took
    took=$(awk -v a="$start" -v b="$end" 'BEGIN { printf "%.1fs", b - a }')
    if [ $code -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok      %-28s %s\n' "$name" "$took"
    elif [ $code -eq 77 ]; then
        skipped=$((skipped + 1))
        printf 'skipped %-28s %s\n' "$name" "$(tail -n 1 "$log_dir/$name.log")"
    else
        failed=$((failed + 1))
        names+=("$name")
        printf 'FAILED  %-28s %s (exit %d%s)\n' "$name" "$took" $code \
            "$([ $code -eq 124 ] && echo ", over $limit s")"
        tail -n 40 "$log_dir/$name.log" | sed 's/^/    /'
    fi
}

for test in "$build"/tests/test_*; do
    case "$test" in *.o | *.d) continue ;; esac
    [ -x "$test" ] && run "$(basename "$test")" "$test"
done
for test in tests/test_*.sh; do
    [ -f "$test" ] && run "$(basename "$test" .sh)" bash "$test" "$build"
done

[ $failed -gt 0 ] && echo "failed: ${names[*]}; logs are in $log_dir"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
