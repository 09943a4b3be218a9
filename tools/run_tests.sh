#!/usr/bin/env bash
# Runs every test under BUILD/tests and every script test_*.sh in tests/ and its folders, each as a
# process of its own with a time limit, and ends with a line that counts them. A test that exits 77
# was skipped, and its last line says why. A test that passes but leaves a part out says so in a line
# "skipped: WHAT (WHY)", or by cmocka's skip(); each such part counts as skipped, beside the test. All
# of them are named at the end.
#
#   TEST=WORD                 those whose name contains WORD
#   TEST_LIST="A B"           those of exactly these names; one that is missing fails
#   TRIREME_TEST_SECONDS=N    the time limit of a test
#   TRIREME_TEST_TELL=N       of a test that takes long, the last line so far, every so many seconds
set -u
build=$1
case ${TRIREME_TEST_FULL:-} in
'') limit=600 ;;
whole) limit=172800 ;; # every failing call takes hours
*) limit=7200 ;;
esac
limit=${TRIREME_TEST_SECONDS:-$limit}
tell=${TRIREME_TEST_TELL:-60}
only=${TEST:-}
listed=${TEST_LIST:-}
found=
passed=0 failed=0 skipped=0
names=()
notes=()
log_dir=$build/test-logs
mkdir -p "$log_dir"

# The parts that a log says were skipped, a line each. cmocka names a test twice, and its reason, if
# any, is a line "skipped: ..." before.
skipped_parts() { # log
    awk '/^skipped: / { why = substr($0, 10); pending = 1; next }
         /^\[  SKIPPED \] / && !/test\(s\)/ {
             if (!seen[$4]++) print $4 (pending ? ": " why : "")
             pending = 0
             next
         }
         /^\[ / { if (pending) print why; pending = 0 }
         pending && !/^\[/ { print why; pending = 0 }
         END { if (pending) print why }' "$1"
}

# Tells of a test that takes long, until it is ended itself or nobody is left to do so.
tell_progress() { # name
    local start=$SECONDS line
    exec 8<> <(:)
    while ! read -r -t "$tell" -u 8 line && kill -0 $$ 2>/dev/null; do
        line=$(tail -n 1 "$log_dir/$1.log" 2>/dev/null | cut -c1-120)
        printf '...     %-28s %ds: %s\n' "$1" $((SECONDS - start)) "$line"
    done
}

run() {
    local name=$1 start end code part teller
    shift
    case "$name" in *"$only"*) ;; *) return ;; esac
    if [ -n "$listed" ]; then
        case " $listed " in *" $name "*) ;; *) return ;; esac
        found+=" $name "
    fi
    # Tests mean the CPU where they name no device, on machines with a GPU, too.
    local gpus=(env CUDA_VISIBLE_DEVICES=)
    case "$name" in test_cuda_*) gpus=(env) ;; esac
    start=$(date +%s.%N)
    tell_progress "$name" &
    teller=$!
    timeout --kill-after=5 "$limit" "${gpus[@]}" "$@" >"$log_dir/$name.log" 2>&1
    code=$?
    kill $teller 2>/dev/null && wait $teller
    end=$(date +%s.%N)
    local took
    took=$(awk -v a="$start" -v b="$end" 'BEGIN { printf "%.1fs", b - a }')
    if [ $code -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok      %-28s %s\n' "$name" "$took"
        while IFS= read -r part; do
            skipped=$((skipped + 1))
            notes+=("$name, a part: $part")
        done < <(skipped_parts "$log_dir/$name.log")
    elif [ $code -eq 77 ]; then
        skipped=$((skipped + 1))
        part=$(tail -n 1 "$log_dir/$name.log")
        part=${part#skipped: }
        notes+=("$name: $part")
        printf 'skipped %-28s %s\n' "$name" "$part"
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
for test in tests/test_*.sh tests/*/test_*.sh; do
    [ -f "$test" ] && run "$(basename "$test" .sh)" bash "$test" "$build"
done
for test in $listed; do
    case $found in *" $test "*) continue ;; esac
    failed=$((failed + 1))
    names+=("$test")
    echo "FAILED  $test: there is no such test"
done

if [ ${#notes[@]} -gt 0 ]; then
    echo "skipped:"
    printf '  %s\n' "${notes[@]}"
fi
[ $failed -gt 0 ] && echo "failed: ${names[*]}; logs are in $log_dir"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
