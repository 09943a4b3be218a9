#!/usr/bin/env bash
# trireme bench comm: pictures and predictions; and every drawing in docs/collectives.md is what the
# command above it prints. Argument: the build directory.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# --- the picture
"$trireme" bench comm --draw "$work/out.svg" --predict --ops all_reduce,all_to_all --transport thread \
    --algorithms direct,ring,bruck,pairwise --sizes 1k,16k --ranks 3 >"$work/rows" 2>&1 || fail "$(tail -n 1 "$work/rows")"
grep -q 'formula us' "$work/rows" || fail "no predictions in the table"
head -n 1 "$work/out.svg" | grep -q '^<svg ' && tail -n 1 "$work/out.svg" | grep -q '^</svg>' || fail "not a picture"
if command -v xmllint >/dev/null; then
    xmllint --noout "$work/out.svg" 2>"$work/out" || fail "the picture is not XML: $(head -n 1 "$work/out")"
else
    echo "skipped: whether the picture is XML (there is no xmllint)"
fi
# Measured and predicted: three algorithms in each of two panels (pairwise has no all_reduce, and
# all_to_all is done by all four).
[ "$(grep -c 'stroke-width="1.8"/>' "$work/out.svg")" -eq 14 ] || fail "lines and their legend: $(grep -c 'stroke-width="1.8"/>' "$work/out.svg")"
[ "$(grep -c 'stroke-dasharray' "$work/out.svg")" -eq 7 ] || fail "predicted lines: $(grep -c 'stroke-dasharray' "$work/out.svg")"
for word in all_reduce all_to_all direct ring bruck pairwise; do
    grep -q ">$word" "$work/out.svg" || fail "the picture does not name $word"
done
"$trireme" bench comm --predict --json --transport thread --sizes 1k --ops all_reduce --algorithms ring >"$work/row" 2>&1
grep -q '"predicted_us": [0-9.]*[1-9]' "$work/row" || fail "no prediction: $(cat "$work/row")"
# In turns, with prices and trials beside the samples; auto says what it chose.
"$trireme" bench comm --turns --use --predict --json --transport tcp --ranks 3 --sizes 64k --ops all_to_all \
    --algorithms ring,pairwise,auto >"$work/row" 2>&1
[ "$(grep -c '"wrong": 0,.*"predicted_us": [0-9.]*[1-9]' "$work/row")" -eq 3 ] || fail "in turns: $(cat "$work/row")"
grep -q '"algorithm": "auto".*"chosen": "[a-z]' "$work/row" || fail "what auto chose: $(cat "$work/row")"
"$trireme" bench comm --draw "$work/no/such/dir.svg" --transport thread --sizes 1k --algorithms ring >"$work/out" 2>&1
[ $? -eq 2 ] && grep -q "no/such/dir.svg" "$work/out" || fail "a picture that cannot be written: $(tail -n 1 "$work/out")"

# --- refusals
refused() { # what it says, then arguments
    local says=$1
    shift
    "$trireme" bench comm "$@" >"$work/out" 2>&1
    [ $? -eq 2 ] && grep -q "$says" "$work/out" || fail "bench comm $*: $(tail -n 1 "$work/out")"
}
refused "did you mean bruck" --draw brick
refused "the nearest number it works for is 6" --draw torus2d --ranks 7
refused "product is the 4 ranks" --draw torus2d:3x2 --ranks 4
refused "has no all_reduce" --draw pairwise
refused "mpirun -n 2 trireme bench comm" --transport mpi
refused "there are shm and tcp" --transport carrier-pigeon

# --- the page
awk -v work="$work" '
    /^\$ trireme bench comm --draw / { n++; print substr($0, 11) >(work "/command." n); collecting = 1; next }
    /^```/ { collecting = 0 }
    collecting && NF { print >(work "/shown." n) }
    END { print n + 0 >(work "/count") }' docs/collectives.md
count=$(cat "$work/count")
[ "$count" -ge 13 ] || fail "the page has only $count drawings"
for ((i = 1; i <= count; i++)); do
    # shellcheck disable=SC2046
    "$trireme" $(cat "$work/command.$i") 2>&1 | grep -v '^$' >"$work/printed"
    cmp -s "$work/printed" "$work/shown.$i" || fail "docs/collectives.md is old: trireme $(cat "$work/command.$i")"
done
"$trireme" bench comm --draw list >"$work/names" 2>/dev/null
for name in $(sed -n 's/^  \([a-z0-9_]*\) .*/\1/p' "$work/names"); do
    grep -q "^## $name\$" docs/collectives.md || fail "docs/collectives.md does not explain $name"
done
[ "$(wc -l <"$work/names")" -ge 13 ] || fail "--draw list"
[ $failures -eq 0 ]
