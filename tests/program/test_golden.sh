#!/usr/bin/env bash
# What `trireme explain` prints, compared with tests/golden/*.txt to the byte. The first line of each
# is the command that made it. With TRIREME_UPDATE_GOLDEN=1 they are written anew. Argument: the build
# directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d /tmp/trireme-golden-XXXXXX)
failures=0 checks=0
trap 'rm -rf "$tmp"' EXIT

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

for golden in tests/golden/explain_*.txt; do
    [ -f "$golden" ] || continue
    checks=$((checks + 1))
    read -r line <"$golden"
    read -ra words <<<"$line"
    if [ "${words[*]:0:3}" != '$ trireme explain' ]; then
        fail "$golden: its first line is not \"\$ trireme explain ...\", the command that made it"
        continue
    fi
    echo "$line" >"$tmp/is"
    if ! CUDA_VISIBLE_DEVICES='' "$trireme" "${words[@]:2}" >>"$tmp/is" 2>"$tmp/err"; then
        fail "$golden: $(head -c 2000 "$tmp/err")"
        continue
    fi
    [ "${TRIREME_UPDATE_GOLDEN:-}" != 1 ] || cp "$tmp/is" "$golden"
    diff -U 1 --label "$golden" --label now "$golden" "$tmp/is" >"$tmp/diff" && continue
    fail "$golden differs; tests/golden/README.md says how to accept it"
    head -n 30 "$tmp/diff"
done

[ $checks -gt 0 ] || fail 'there is nothing to compare'
echo "$checks listings, $failures failures"
[ $failures -eq 0 ]
