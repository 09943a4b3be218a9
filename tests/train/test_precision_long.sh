#!/usr/bin/env bash
# bf16, fp16 and bf16 with fp8 linear layers track fp32: the model of recipes/demo.yaml for 300 steps in each, on one rank and
# divided by ZeRO-3. The means of the last ten losses agree within 1 %. A few minutes, so it runs
# only where TRIREME_TEST_FULL is set. Argument: the build directory.
set -u
trireme=$1/trireme
text=/usr/share/common-licenses
if [ -z "${TRIREME_TEST_FULL:-}" ]; then
    echo "takes minutes; make test-full runs it"
    exit 77
fi
if [ ! -d $text ]; then
    echo "needs the texts of $text"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-precision-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

# Mean of the last ten losses of a run of 300 steps.
final() { # name, then settings
    local name=$1 s set=()
    shift
    for s in "$@"; do set+=(--set "$s"); done
    if ! "$trireme" train recipes/demo.yaml --set train.steps=300 --set train.eval_every=0 \
        --set run.save=false --set run.dir="$work/$name" --set layout.dp=1 "${set[@]}" \
        >"$work/$name.out" 2>&1; then
        tail -n 5 "$work/$name.out" >&2
        return 1
    fi
    sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' "$work/$name/metrics.jsonl" | tail -n 10 |
        awk '{ sum += $1 } END { if (NR != 10) exit 1; printf "%.5f\n", sum / NR }'
}

wide=$(final fp32) || exit 1
echo "fp32: $wide"
for run in "bf16" "fp16" "bf16 layout.dp=2 layout.zero=3" "fp16 layout.dp=2 layout.zero=3" \
    "bf16 precision.grad=compute" "bf16 precision.linear=fp8" \
    "bf16 precision.linear=fp8 layout.dp=2 layout.zero=3"; do
    # shellcheck disable=SC2086 # words of settings
    set -- $run
    kind=$1
    shift
    narrow=$(final "$kind-$#-${1:-}" precision.kind="$kind" "$@") || {
        echo "FAILED: $run did not run"
        failures=$((failures + 1))
        continue
    }
    apart=$(awk -v a="$wide" -v b="$narrow" 'BEGIN { d = (b - a) / a; print d < 0 ? -d : d }')
    echo "$run: $narrow, $(awk -v d="$apart" 'BEGIN { printf "%.3f", 100 * d }') % from fp32"
    awk -v d="$apart" 'BEGIN { exit !(d <= 0.01) }' || {
        echo "FAILED: $run is more than 1 % from fp32"
        failures=$((failures + 1))
    }
done
[ $failures -eq 0 ]
