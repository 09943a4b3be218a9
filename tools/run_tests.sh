#!/usr/bin/env bash
# Runs every test under BUILD/tests and every script test_*.sh in tests/ and its folders, each as a
# process of its own with a time limit, and ends with a line that counts them. A test that exits 77
# was skipped, and its last line says why. A test that passes but leaves a part out says so in a line
# "skipped: WHAT (WHY)", or by cmocka's skip(); each such part counts as skipped, beside the test. All
# of them are named at the end.
#
# As many tests run at a time as there are processors, four at most: many of them mostly wait. They
# share nothing but the machine, and none may depend on how fast that is.
#
#   TEST=WORD                 those whose name contains WORD
#   TEST_JOBS=N               so many at a time
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
jobs=${TEST_JOBS:-$(nproc | awk '{ print $1 < 4 ? $1 : 4 }')}
found=
declare -A running=() # tests by the process that runs them
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
tell_progress() { # file
    local start=$SECONDS line
    exec 8<> <(:)
    while ! read -r -t "$tell" -u 8 line && kill -0 $$ 2>/dev/null; do
        line=$(tail -n 1 "$log_dir/$1.log" 2>/dev/null | cut -c1-120)
        printf '...     %-28s %ds: %s\n' "${1%.sh}" $((SECONDS - start)) "$line"
    done
}

# Runs a test in the background. Its file names its log, since a test in C and a script may have one
# name: test_x.log and test_x.sh.log.
start() { # file, command ...
    local file=$1 name=${1%.sh}
    shift
    case "$name" in *"$only"*) ;; *) return ;; esac
    if [ -n "$listed" ]; then
        case " $listed " in *" $name "*) ;; *) return ;; esac
        found+=" $name "
    fi
    [ ${#running[@]} -lt "$jobs" ] || await_one
    run "$file" "$@" &
    running[$!]=$file
}

# Leaves the test's exit code and time in $log_dir/FILE.result.
run() { # file, command ...
    local file=$1 start end code test teller
    shift
    # A shell lets what it runs in the background ignore the keyboard's signals: not so the tests.
    # They mean the CPU where they name no device, on machines with a GPU, too.
    local with=(env "--default-signal=INT,QUIT")
    case $file in test_cuda_*) ;; *) with+=(CUDA_VISIBLE_DEVICES=) ;; esac
    start=$(date +%s.%N)
    tell_progress "$file" &
    teller=$!
    timeout --kill-after=5 "$limit" "${with[@]}" "$@" >"$log_dir/$file.log" 2>&1 &
    test=$!
    trap 'kill $test $teller 2>/dev/null; exit 1' TERM
    wait $test
    code=$?
    kill $teller 2>/dev/null && wait $teller
    end=$(date +%s.%N)
    echo "$code $(awk -v a="$start" -v b="$end" 'BEGIN { printf "%.1fs", b - a }')" >"$log_dir/$file.result"
}
trap 'kill "${!running[@]}" 2>/dev/null; wait; exit 130' INT TERM

# Waits for the next test that ends, and tells how.
await_one() {
    local pid file
    wait -n -p pid "${!running[@]}"
    file=${running[$pid]}
    unset "running[$pid]"
    report "$file"
}

report() { # file
    local name=${1%.sh} log=$log_dir/$1.log code=1 took=0s part
    read -r code took <"$log_dir/$1.result"
    rm -f "$log_dir/$1.result"
    if [ "$code" -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok      %-28s %s\n' "$name" "$took"
        while IFS= read -r part; do
            skipped=$((skipped + 1))
            notes+=("$name, a part: $part")
        done < <(skipped_parts "$log")
    elif [ "$code" -eq 77 ]; then
        skipped=$((skipped + 1))
        part=$(tail -n 1 "$log")
        part=${part#skipped: }
        notes+=("$name: $part")
        printf 'skipped %-28s %s\n' "$name" "$part"
    else
        failed=$((failed + 1))
        names+=("$name")
        printf 'FAILED  %-28s %s (exit %d%s)\n' "$name" "$took" "$code" \
            "$([ "$code" -eq 124 ] && echo ", over $limit s")"
        tail -n 40 "$log" | sed 's/^/    /'
    fi
}

for test in "$build"/tests/test_*; do
    case "$test" in *.o | *.d) continue ;; esac
    [ -x "$test" ] && start "$(basename "$test")" "$test"
done
for test in tests/test_*.sh tests/*/test_*.sh; do
    [ -f "$test" ] && start "$(basename "$test")" bash "$test" "$build"
done
while [ ${#running[@]} -gt 0 ]; do
    await_one
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
