#!/usr/bin/env bash
# 16-bit training of the tiny recipe (dropout on) in several layouts, against fp32 on one rank; and
# what a run with fp16 says and writes. Argument: the build directory.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-precision-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

run() { # name, then settings
    local name=$1 s set=()
    shift
    for s in "$@"; do set+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml --set run.save=false --set run.threads=1 \
        --set run.dir="$work/$name" "${set[@]}" >"$work/$name.out" 2>&1
}

runs() {
    run "$@" || fail "$1 did not run: $(tail -n 5 "$work/$1.out")"
}

field() { sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$work/$1/metrics.jsonl"; }

# Largest relative difference of a field over all steps, at most the limit.
close() { # name, field, limit
    local worst
    worst=$(paste <(field fp32 "$2") <(field "$1" "$2") | awk -v limit="$3" '
        NF != 2 { missing = 1 }
        { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        END { print(NR < 20 || missing ? "missing steps" : worst <= limit ? "ok" : worst) }')
    [ "$worst" = ok ] || fail "$2 of $1 differs from fp32 by $worst, more than $3"
}

runs fp32
for kind in bf16 fp16; do
    [ $kind = bf16 ] && limit=6e-3 || limit=1e-3
    runs $kind precision.kind=$kind
    close $kind loss $limit
    runs $kind-dp2 precision.kind=$kind layout.dp=2
    close $kind-dp2 loss $limit
    runs $kind-tp2 precision.kind=$kind layout.tp=2
    close $kind-tp2 loss $limit
    runs $kind-mb precision.kind=$kind layout.microbatches=3
    close $kind-mb loss $limit
    runs $kind-grad precision.kind=$kind precision.grad=compute layout.dp=2 layout.microbatches=2
    close $kind-grad loss $limit
done
[ "$(field fp16-tp2 skipped | tail -n 1)" = 0 ] || fail "fp16 on two ranks skipped steps"
grep -q '"skipped"' "$work/bf16/metrics.jsonl" && fail "bf16 has a loss scale"

# An overflow is survived on every layout, and counted.
for layout in layout.dp=2 layout.tp=2; do
    runs over precision.kind=fp16 precision.scale=1e9 train.steps=25 $layout
    num=$(field over skipped | tail -n 1)
    [ "$num" -ge 5 ] && [ "$num" -le 25 ] || fail "$layout: $num steps skipped"
    [ "$(field over loss_scale | head -n 1)" = 1e9 ] || fail "$layout: another scale"
    [ "$(grep -c '"grad_norm":null' "$work/over/metrics.jsonl")" = "$num" ] ||
        fail "$layout: the norms of $num skipped steps are not null"
    grep -q "^skipped: $num steps" "$work/over.out" || fail "$layout: the end does not count them"
    grep -q "step 1  skipped: the gradient overflowed; loss scale 1e+09 -> 5e+08" \
        "$work/over.out" || fail "$layout: a skipped step is not told"
    awk -v a="$(field over loss | head -n 1)" -v b="$(field over loss | tail -n 1)" \
        'BEGIN { exit !(b < a - 0.3) }' || fail "$layout: the loss does not fall after an overflow"
done

# A scale that begins far too high is found all the same; what no scale helps ends the run, with
# what to do and where it began.
small=(model.num_layers=1 model.dim=32)
runs high precision.kind=fp16 precision.scale=1e15 train.max_skipped=2 train.steps=45 layout.dp=2 \
    "${small[@]}"
[ "$(field high skipped | tail -n 1)" -ge 20 ] || fail "few steps were skipped from a scale of 1e15"
for layout in layout.dp=2 layout.tp=2; do
    run ends optim.kind=sgd optim.lr=1000 train.clip=0 train.max_skipped=2 $layout "${small[@]}"
    [ $? -eq 1 ] || fail "$layout: three skipped steps of two allowed: another exit code"
    grep -q "not finite in 3 steps in a row, up to step .*Lower optim.lr.* on rank [01]" \
        "$work/ends.out" || fail "$layout: three skipped steps: $(cat "$work/ends.out")"
    [ "$(field ends skipped | tail -n 1)" = 3 ] || fail "$layout: skipped steps are not counted"
done

# Twice the same, also where steps are skipped.
runs a precision.kind=fp16 precision.scale=1e8 layout.dp=2
runs b precision.kind=fp16 precision.scale=1e8 layout.dp=2
cmp -s <(field a loss) <(field b loss) || fail "two runs in fp16 differ"

[ $failures -eq 0 ]
