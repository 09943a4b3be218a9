#!/usr/bin/env bash
# Data parallelism: any number of ranks trains the tiny recipe (dropout on) to the losses of one.
# Argument: the build directory.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-dp-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

run() { # name, then settings
    local name=$1
    shift
    local set=()
    for s in "$@"; do set+=(--set "$s"); done
    if ! "$trireme" train recipes/tiny.yaml --set run.save=false --set run.dir="$work/$name" \
        "${set[@]}" >"$work/$name.out" 2>&1; then
        echo "FAILED: $name did not run"
        tail -n 5 "$work/$name.out"
        failures=$((failures + 1))
    fi
}

field() { sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$work/$1/metrics.jsonl"; }

# Largest relative difference of a field over all steps, at most the limit.
close() { # name, field, limit
    local worst
    field one "$2" >"$work/a"
    field "$1" "$2" >"$work/b"
    worst=$(paste "$work/a" "$work/b" | awk -v limit="$3" '
        NF != 2 { missing = 1 }
        { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        END {
            verdict = "ok"
            if (worst > limit) verdict = worst
            if (NR < 20 || missing) verdict = "missing steps"
            print verdict
        }')
    if [ "$worst" != ok ]; then
        echo "FAILED: $2 of $1 differs from one rank by $worst, more than $3"
        failures=$((failures + 1))
    fi
}

run one
for dp in 2 3 4; do
    run dp$dp layout.dp=$dp
    close dp$dp loss 1e-5
    close dp$dp grad_norm 1e-4
done
eval_of() { field "$1" eval_loss | tail -n 1; }
if ! awk -v a="$(eval_of one)" -v b="$(eval_of dp3)" 'BEGIN { d = (a - b) / a; exit !(d * d < 1e-10 && a > 0) }'; then
    echo "FAILED: held-out loss $(eval_of one) on one rank, $(eval_of dp3) on three"
    failures=$((failures + 1))
fi
run dp3m2 layout.dp=3 layout.microbatches=2 # 8 rows over 6 places: some are padding
close dp3m2 loss 1e-5
close dp3m2 grad_norm 1e-4
run dp2split layout.dp=2 layout.split_backward=true
close dp2split loss 1e-5

# 16-bit activations with fp32 parameters: near fp32, and near each other in every layout.
run bf16 precision.kind=bf16
close bf16 loss 5e-3
run bf16dp2 precision.kind=bf16 layout.dp=2
close bf16dp2 loss 5e-3
run bf16grad precision.kind=bf16 precision.grad=compute layout.dp=3
close bf16grad loss 5e-3

run again layout.dp=3
field dp3 loss >"$work/a"
field again loss >"$work/b"
if ! cmp -s "$work/a" "$work/b"; then
    echo "FAILED: two runs on three ranks differ"
    failures=$((failures + 1))
fi

# Messages beside the computation change no bit, and have a row of their own in the trace.
for zero in 0 3; do
    run beside$zero layout.dp=2 layout.zero=$zero layout.bucket_mb=0.05 run.overlap_min_kb=0 run.trace=true
    run apart$zero layout.dp=2 layout.zero=$zero layout.bucket_mb=0.05 run.overlap=false run.trace=true
    field beside$zero loss >"$work/a"
    field apart$zero loss >"$work/b"
    if ! cmp -s "$work/a" "$work/b"; then
        echo "FAILED: run.overlap changes the losses of zero $zero"
        failures=$((failures + 1))
    fi
done
if ! grep -q '"over dp"' "$work/beside0/trace.json" || ! grep -q '"over shard"' "$work/beside3/trace.json"; then
    echo "FAILED: the trace has no rows for messages"
    failures=$((failures + 1))
fi
if grep -q '"over ' "$work/apart0/trace.json"; then
    echo "FAILED: with run.overlap=false there is nothing beside the computation"
    failures=$((failures + 1))
fi

# Nine ranks for eight rows: one of them has nothing but padding, and the run says so.
"$trireme" train recipes/tiny.yaml --set layout.dp=9 --set train.steps=3 --set run.dir="$work/nine" >"$work/nine.out" 2>&1
code=$?
if [ $code -ne 0 ] || ! grep -q "8 rows for .* = 9 parts: 1 of them" "$work/nine.out"; then
    echo "FAILED: nine ranks for eight rows: exit $code"
    failures=$((failures + 1))
fi
[ $failures -eq 0 ]
