#!/usr/bin/env bash
# What runs over tcp measure, in the file that keeps it: the sizes that they call, once; what another
# layout adds changes no bit of the first; memory is given back; a file that makes no sense ends all
# ranks, with a reason.
# Argument: the build directory.
set -u
build=$(cd "$1" && pwd)
trireme=$build/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-tuning-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
# A layer has 65272 bytes of parameters; its call, with what pads them, has 66048.
common=(train recipes/tiny.yaml --set run.save=false --set run.transport=tcp --set train.steps=3
    --set run.threads=1 --set model.dim=40 --set model.num_heads=5 --set model.ffn_dim=118)
train() { # name, then settings
    local name=$1 set=()
    shift
    for s in "$@"; do set+=(--set "$s"); done
    timeout 200 "$trireme" "${common[@]}" --set run.dir="$work/$name" "${set[@]}" >"$work/$name.out" 2>&1
}
must() {
    train "$@" || fail "$1 did not run: $(tail -n 3 "$work/$1.out")"
}
numbers() { sed -n 's/.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*/\1 \2/p' "$work/$1/metrics.jsonl"; }
sizes() { # file, operation: those that were tried
    awk -v name="\"$2\": {" 'index($0, name) { here = 1 }
        here && list && /\]/ { exit }
        here && list { gsub(/[ ,]/, ""); print $0 + 0 }
        here && /"bytes"/ { list = 1 }' "$1" | xargs
}

must first layout.dp=2 layout.zero=1
tuning=$work/first/tuning.json
for op in all_gather reduce_scatter; do
    [ "$(sizes "$tuning" $op)" = "1024 65536 131072" ] || fail "$op was tried at $(sizes "$tuning" $op)"
done
[ "$(sizes "$tuning" all_reduce)" = "1024" ] || fail "all_reduce was tried at $(sizes "$tuning" all_reduce)"
cp "$tuning" "$work/once.json"
must again layout.dp=2 layout.zero=1 run.tuning="$tuning"
cmp -s "$tuning" "$work/once.json" || fail "the same run measured again"
# Measuring takes 40 MB, and gives them back. (A sanitizer takes its own.)
used() { sed -n 's/^memory: \([0-9.]*\) MiB used.*/\1/p' "$work/$1.out"; }
grep -q -e __asan_init -e __tsan_init "$trireme" ||
    awk -v a="$(used first)" -v b="$(used again)" 'BEGIN { exit !(b > 0 && a > 0 && a < b + 6) }' ||
    fail "after measuring $(used first) MiB are used, without $(used again)"

must other layout.dp=2 layout.bucket_mb=0.1 run.tuning="$tuning"
[ "$(sizes "$tuning" all_gather)" = "1024 65536 131072" ] || fail "another layout changed all_gather"
[ "$(sizes "$tuning" all_reduce | wc -w)" -gt 1 ] || fail "another layout added nothing"
must back layout.dp=2 layout.zero=1 run.tuning="$tuning"
for name in again back; do
    [ "$(numbers first | wc -l)" -eq 3 ] && [ "$(numbers first)" = "$(numbers $name)" ] ||
        fail "losses of first and $name differ"
done
must three layout.dp=3 layout.zero=3 run.tuning="$tuning"
[ "$(grep -c '"transport"' "$tuning")" -eq 2 ] || fail "not an entry for each number of ranks"

sed 's/131072\.0/131073.0/' "$work/once.json" >"$work/odd.json"
train odd layout.dp=2 layout.zero=1 run.tuning="$work/odd.json"
code=$?
[ $code -eq 2 ] || fail "a size that is none: exit code $code"
grep -q "odd.json.*delete the file" "$work/odd.out" || fail "a size that is none: $(tail -n 3 "$work/odd.out")"

[ $failures -eq 0 ] || exit 1
echo "tuning of runs: fine"
