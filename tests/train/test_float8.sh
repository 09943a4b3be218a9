#!/usr/bin/env bash
# Linear layers in fp8 in several layouts, against one rank in fp8 and against bf16; what plan,
# explain and the checker make of it; and that a run goes on where it stopped, bit for bit. Argument:
# the build directory.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-float8-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
model=(model.kind=llama model.num_layers=4 model.num_heads=4 model.num_kv_heads=2 model.ffn_dim=128
    model.dropout=0 data.seq_len=32 optim.lr=1e-3 train.steps=12 train.eval_every=0 precision.kind=bf16)

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

run() { # name, then settings
    local name=$1 s set=()
    shift
    for s in "${model[@]}" "$@"; do set+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml --set run.threads=1 --set run.dir="$work/$name" \
        "${set[@]}" >"$work/$name.out" 2>&1 ||
        fail "$name did not run: $(tail -n 5 "$work/$name.out")"
}

losses() { sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' "$work/$1/metrics.jsonl"; }

# Largest relative difference of the losses of two runs.
apart() {
    paste <(losses "$1") <(losses "$2") |
        awk '{ d = ($2 - $1) / $1; d = d < 0 ? -d : d; m = d > m ? d : m }
             END { if (NR != 12) m = 1; printf "%.6f\n", m }'
}

expect_within() { # limit, run, run
    local d
    d=$(apart "$2" "$3")
    echo "$2, $3: losses differ by $d at most"
    awk -v d="$d" -v l="$1" 'BEGIN { exit !(d <= l) }' || fail "$2 and $3 are more than $1 apart"
}

run bf16 run.save=false
run one precision.linear=fp8 train.steps=12
cmp -s <(losses bf16) <(losses one) && fail "fp8 gives the losses of bf16: nothing was quantised"
expect_within 0.002 bf16 one
while read -r name settings; do
    # shellcheck disable=SC2086 # words of settings
    run "$name" precision.linear=fp8 run.save=false $settings
    expect_within 0.001 one "$name"
done <<'END'
tp layout.tp=2
sp layout.tp=2 layout.sp=true
dp layout.dp=2
zero1 layout.dp=2 layout.zero=1
zero2 layout.dp=2 layout.zero=2 layout.microbatches=2
zero3 layout.dp=2 layout.zero=3 optim.kind=adamw
zero3_full layout.dp=2 layout.zero=3 layout.recompute=full
pp layout.pp=2 layout.microbatches=2
zb layout.pp=2 layout.microbatches=4 layout.schedule=zb-h1
grad layout.microbatches=2 precision.grad=compute
all layout.pp=2 layout.tp=2 layout.microbatches=2 layout.sp=true layout.recompute=selective
END

# Experts: their rows lie in rooms where ep moves them, and are of a part of the width with tp.
experts=(model.num_layers=2 model.num_experts=4 model.experts_per_token=2 model.expert_dim=64)
run moe_bf16 "${experts[@]}" run.save=false
run moe "${experts[@]}" precision.linear=fp8 train.steps=12
run moe_again "${experts[@]}" precision.linear=fp8 run.threads=2
cmp -s <(losses moe_bf16) <(losses moe) && fail "experts in fp8 give the losses of bf16"
cmp -s "$work/moe/weights.safetensors" "$work/moe_again/weights.safetensors" ||
    fail "weights of experts differ between two runs"
expect_within 0.002 moe_bf16 moe
while read -r name settings; do
    # shellcheck disable=SC2086 # words of settings
    run "moe_$name" "${experts[@]}" precision.linear=fp8 run.save=false $settings
    expect_within 0.001 moe "moe_$name"
done <<'END'
ep layout.dp=2 layout.ep=2
room layout.dp=2 layout.ep=2 layout.ep_room=1.5
tp layout.tp=2
etp layout.tp=2 layout.sp=true layout.etp=1
zero3 layout.dp=2 layout.zero=3
ep_zero2 layout.dp=4 layout.ep=2 layout.zero=2 layout.microbatches=2
ep_full layout.dp=2 layout.ep=2 layout.recompute=full
END

# Twelve steps at once are six and six, in every bit.
run whole precision.linear=fp8 optim.schedule=constant
run half precision.linear=fp8 optim.schedule=constant train.steps=6 ckpt.every=6
run half precision.linear=fp8 optim.schedule=constant train.steps=12 run.resume=true
cmp -s "$work/whole/weights.safetensors" "$work/half/weights.safetensors" ||
    fail "weights differ after going on"

# What is said of it.
for verb in explain check plan; do
    "$trireme" $verb recipes/tiny.yaml --set precision.kind=bf16 --set precision.linear=fp8 \
        >"$work/$verb.out" 2>&1 || fail "$verb: $(tail -n 3 "$work/$verb.out")"
done
grep -q 'matmul 8-bit+bias+gelu' "$work/explain.out" || fail "explain shows no 8-bit product"
grep -q 'quantise .*\.scale' "$work/explain.out" || fail "explain shows no quantise"
for verb in explain check plan; do
    "$trireme" $verb recipes/moe-tiny.yaml --set precision.kind=bf16 --set precision.linear=fp8 \
        >"$work/$verb.out" 2>&1 || fail "$verb of experts: $(tail -n 3 "$work/$verb.out")"
done
for op in 'grouped8 ' grouped8_grad; do
    grep -q "^ *[0-9]* *$op" "$work/explain.out" || fail "explain shows no $op"
done
"$trireme" train recipes/tiny.yaml --set precision.linear=fp8 --set run.dir="$work/refused" \
    >"$work/refused.out" 2>&1
[ $? = 2 ] || fail "fp8 with fp32 activations does not exit with 2"
grep -q 'precision.kind to bf16' "$work/refused.out" || fail "the refusal does not say what to do"
[ $failures -eq 0 ]
