#!/usr/bin/env bash
# The runner of the tests itself: what fails, is skipped, or is skipped in part, is counted and
# named. And the version stands in one place. Argument: the build directory.
set -u
root=$(pwd)
unset TEST TEST_LIST TRIREME_TEST_SECONDS TRIREME_TEST_FULL TRIREME_TEST_TELL MAKEFLAGS MAKELEVEL
trireme=$(cd "$1" && pwd)/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-runner-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

mkdir -p "$work/build/tests" "$work/tests/area"
test_file() { # path under $work; its lines on stdin
    {
        echo '#!/usr/bin/env bash'
        cat
    } >"$work/$1"
    chmod +x "$work/$1"
}
echo 'echo fine' | test_file build/tests/test_fine
test_file build/tests/test_cmocka <<'END'
echo '[ RUN      ] one'
echo '[       OK ] one'
echo '[ RUN      ] two'
echo 'skipped: there is no moon'
echo '[  SKIPPED ] two'
echo '[ RUN      ] three'
echo '[  SKIPPED ] three'
echo '[  SKIPPED ] 2 test(s), listed below:'
echo '[  SKIPPED ] two'
echo '[  SKIPPED ] three'
END
printf 'echo "skipped: a full disk (nothing can be mounted)"\necho more\n' | test_file tests/test_parts.sh
printf 'echo "skipped: no Slurm here"\nexit 77\n' | test_file tests/area/test_whole.sh
(cd "$work" && "$root/tools/run_tests.sh" build) >"$work/out" 2>&1 || fail "exit code $? though nothing failed"
says() { grep -qxF -- "$1" "$work/out" || fail "no line \"$1\" in: $(cat "$work/out")"; }
says '3 passed, 0 failed, 4 skipped'
says '  test_cmocka, a part: two: there is no moon'
says '  test_cmocka, a part: three'
says '  test_parts, a part: a full disk (nothing can be mounted)'
says '  test_whole: no Slurm here'

# One that takes long is told of; it ends when it was.
test_file tests/area/test_long.sh <<'END'
echo '40 of 100 cells'
for _ in $(seq 1000); do
    grep -q '^\.\.\.' ../out 2>/dev/null && exit 0
    sleep 0.02
done
exit 1
END
mkdir "$work/long"
(cd "$work/long" && mkdir build && mv ../tests . && TEST=test_long TRIREME_TEST_TELL=0.1 "$root/tools/run_tests.sh" build) >"$work/out" 2>&1 ||
    fail "nothing is told of a test that takes long: $(cat "$work/out")"
grep -q '^\.\.\.     test_long .* [0-9]*s: 40 of 100 cells$' "$work/out" || fail "what is told of a test: $(cat "$work/out")"
mv "$work/long/tests" "$work/tests"
rm "$work/tests/area/test_long.sh"

echo 'exit 3' | test_file tests/test_wrong.sh
(cd "$work" && "$root/tools/run_tests.sh" build) >"$work/out" 2>&1 && fail "a failure has exit code 0"
[ "$(tail -n 1 "$work/out")" = '3 passed, 1 failed, 4 skipped' ] || fail "$(tail -n 1 "$work/out")"
grep -q '^failed: test_wrong;' "$work/out" || fail "the failed test is not named"
echo 'echo twice' | test_file tests/test_fine.sh # of one name, in C and as a script: both
(cd "$work" && TEST_LIST="test_fine test_gone" "$root/tools/run_tests.sh" build) >"$work/out" 2>&1 &&
    fail "a listed test that is missing has exit code 0"
says 'FAILED  test_gone: there is no such test'
says '2 passed, 1 failed, 0 skipped'

version=$(sed -n 's/^#define TRIREME_VERSION "\(.*\)"$/\1/p' include/trireme/version.h)
[ -n "$version" ] || fail "include/trireme/version.h has no version"
[ "$("$trireme" --version)" = "trireme $version" ] || fail "--version says $("$trireme" --version)"
also=$(grep -rlF "\"$version\"" include src plugins | grep -v '^include/trireme/version.h$')
[ -z "$also" ] || fail "the version stands in $also, too"
[ "$(make -s --eval='print-version: ; @echo $(VERSION)' print-version)" = "$version" ] ||
    fail "the Makefile, and so trireme.pc, has another version"
grep -q "^## $version\b" CHANGELOG.md || fail "CHANGELOG.md has no section for $version"
[ $failures -eq 0 ]
