#!/usr/bin/env bash
# The GPU against the CPU: kernels, then 100 steps of two small models in every precision, repeated,
# and on two ranks that share the card. Argument: the build directory. Needs an NVIDIA GPU.
set -u
build=${1:-build}
trireme=$build/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-gpu-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

if ! "$trireme" train recipes/tiny.yaml --set train.steps=1 --set run.device=cuda --set run.save=false \
    --set run.dir="$work/probe" >"$work/probe.out" 2>&1; then
    tail -n 3 "$work/probe.out"
    if grep -q "cannot be used here\|without CUDA" "$work/probe.out"; then
        echo "skipped: no GPU here"
        exit 0
    fi
    exit 1
fi

for test in test_cuda_products test_cuda_kernels test_cuda_attention test_cuda_experts test_cuda_experts_fp8 test_cuda_spaces test_cuda_head; do
    [ -x "$build/tests/$test" ] && [ -z "${SKIP_KERNELS:-}" ] || continue
    "$build/tests/$test" >"$work/$test.out" 2>&1 || {
        grep -v "OK \]\|RUN" "$work/$test.out" | head -n 80
        fail "$test"
    }
done

run() { # name, then settings
    local name=$1 set=()
    shift
    for s in "$@"; do set+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml --set train.steps=100 --set run.save=false --set run.device=cpu \
        --set run.dir="$work/$name" "${set[@]}" >"$work/$name.out" 2>&1 || {
        fail "$name did not run: $(tail -n 3 "$work/$name.out")"
    }
}

field() { sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$work/$1/metrics.jsonl" 2>/dev/null; }

close() { # name, other, field, limit
    local worst
    field "$1" "$3" >"$work/a"
    field "$2" "$3" >"$work/b"
    worst=$(paste "$work/a" "$work/b" | awk -v limit="$4" '
        NF != 2 { missing = 1 }
        { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        END {
            verdict = "ok " worst + 0
            if (worst > limit) verdict = worst
            if (NR < 100 || missing) verdict = "missing steps"
            print verdict
        }')
    case $worst in
    ok*) echo "$2 beside $1: $3 within ${worst#ok } (limit $4)" ;;
    *) fail "$3 of $2 differs from $1 by $worst, more than $4" ;;
    esac
}

same() {
    field "$1" loss >"$work/a"
    field "$2" loss >"$work/b"
    if [ -s "$work/a" ] && cmp -s "$work/a" "$work/b"; then
        echo "$2 equals $1 bit for bit"
    else
        fail "$2 is not $1 again"
    fi
}

# shellcheck disable=SC2034 # both are read by name
gpt2=(model.dropout=0.1 train.batch=8)
# shellcheck disable=SC2034
llama=(model.kind=llama model.dropout=0 model.num_kv_heads=2 model.dim=96 model.num_heads=6
    model.ffn_dim=200 model.vocab=301 data.seq_len=65 optim.lr=1e-3) # higher ones amplify rounding
for kind in gpt2 llama; do
    declare -n of=$kind
    run $kind-cpu "${of[@]}"
    run $kind-fp32 "${of[@]}" run.device=cuda
    close $kind-cpu $kind-fp32 loss 1e-4
    run $kind-again "${of[@]}" run.device=cuda
    same $kind-fp32 $kind-again
    run $kind-tf32 "${of[@]}" run.device=cuda precision.kind=tf32
    close $kind-cpu $kind-tf32 loss 1e-2
    run $kind-bf16-cpu "${of[@]}" precision.kind=bf16
    run $kind-bf16 "${of[@]}" run.device=cuda precision.kind=bf16
    close $kind-bf16-cpu $kind-bf16 loss 2e-2
    close $kind-cpu $kind-bf16 loss 2e-2
    run $kind-bf16-again "${of[@]}" run.device=cuda precision.kind=bf16
    same $kind-bf16 $kind-bf16-again
    run $kind-any "${of[@]}" run.device=cuda precision.kind=bf16 run.deterministic=false
    close $kind-bf16 $kind-any loss 2e-2
    run $kind-dp2 "${of[@]}" run.device=cuda layout.dp=2
    close $kind-fp32 $kind-dp2 loss 1e-4
    run $kind-tile "${of[@]}" run.device=cuda model.loss_tile=20
    close $kind-fp32 $kind-tile loss 1e-4
    run $kind-tile-tp2 "${of[@]}" run.device=cuda model.loss_tile=20 layout.tp=2
    close $kind-fp32 $kind-tile-tp2 loss 1e-4
    run $kind-dp2-bf16 "${of[@]}" run.device=cuda layout.dp=2 layout.microbatches=2 precision.kind=bf16
    close $kind-bf16 $kind-dp2-bf16 loss 2e-2
done
# Layouts, as ranks that share the card.
for layout in "dp2-zero1 layout.dp=2 layout.zero=1" "dp2-zero3 layout.dp=2 layout.zero=3" \
    "tp2 layout.tp=2" "tp2-sp-dp2-zero2 layout.tp=2 layout.sp=true layout.dp=2 layout.zero=2"; do
    # shellcheck disable=SC2086
    set -- $layout
    name=$1
    shift
    run gpt2-$name "${gpt2[@]}" run.device=cuda "$@"
    close gpt2-fp32 gpt2-$name loss 1e-4
done
# One expert is the dense model. They begin with the same weights: a header is given the dense names,
# with blanks for what is shorter, and the router goes by a name that is passed over.
renamed() { # old, new
    printf 's/%s"/%-*s/g;' "${1//./\\.}" $((${#1} + 1)) "$2\""
}
one=("${llama[@]}" optim.lr=1e-4) # lower, since this is held to the last digits
expert=(model.num_experts=1 model.experts_per_token=1 model.expert_dim=200 model.balance_loss=0)
run one-start "${one[@]}" "${expert[@]}" train.steps=1 run.save=true
run dense-start "${one[@]}" train.steps=1 run.save=true
for name in one dense; do
    "$trireme" ckpt export "$work/$name-start" --hf "$work/$name-hf" >"$work/$name-hf.out" 2>&1 ||
        fail "$name is not exported: $(tail -n 3 "$work/$name-hf.out")"
done
moe=block_sparse_moe
LC_ALL=C sed "$(
    renamed $moe.experts.0.w1.weight mlp.gate_proj.weight
    renamed $moe.experts.0.w2.weight mlp.down_proj.weight
    renamed $moe.experts.0.w3.weight mlp.up_proj.weight
    renamed $moe.gate.weight rotary_emb.inv_freq
)" "$work/one-hf/model.safetensors" >"$work/dense-hf/model.safetensors"
run dense-gpu "${one[@]}" model.from="$work/dense-hf" run.device=cuda
run one-gpu "${one[@]}" "${expert[@]}" model.from="$work/one-hf" run.device=cuda
close dense-gpu one-gpu loss 1e-6
# 8-bit operands in the linear layers: as on the CPU, and close to 16-bit ones.
wide=(model.kind=llama model.dropout=0 model.num_kv_heads=2 model.ffn_dim=128 optim.lr=1e-3
    precision.kind=bf16)
run wide-bf16 "${wide[@]}" run.device=cuda
run wide-fp8-cpu "${wide[@]}" precision.linear=fp8
run wide-fp8 "${wide[@]}" run.device=cuda precision.linear=fp8
close wide-fp8-cpu wide-fp8 loss 2e-2
close wide-bf16 wide-fp8 loss 2e-2
run wide-fp8-again "${wide[@]}" run.device=cuda precision.linear=fp8
same wide-fp8 wide-fp8-again
run wide-fp8-dp2 "${wide[@]}" run.device=cuda precision.linear=fp8 layout.dp=2 layout.zero=3
close wide-fp8 wide-fp8-dp2 loss 2e-2
# How large products are done is measured once, and later runs do the same: also two ranks at once.
kept() { # name, then settings
    local name=$1
    shift
    run "$name" model.dropout=0 model.dim=768 model.num_heads=12 data.seq_len=256 train.batch=32 optim.lr=1e-4 \
        precision.kind=bf16 run.device=cuda run.tuning="$work/tuning.json" "$@"
}
for layout in layout.dp=1 layout.dp=2 precision.linear=fp8; do
    kept measured-$layout $layout
    grep -c '"gpu"' "$work/tuning.json" >"$work/measured" || fail "nothing was kept for $layout"
    cp "$work/tuning.json" "$work/before.json"
    kept kept-$layout $layout
    same measured-$layout kept-$layout
    cmp -s "$work/before.json" "$work/tuning.json" || fail "$layout measured again what was kept"
    echo "$layout: $(cat "$work/measured") products are kept"
done
run bert model.kind=bert model.dropout=0.1 optim.lr=1e-3
run bert-gpu model.kind=bert model.dropout=0.1 optim.lr=1e-3 run.device=cuda
close bert bert-gpu loss 1e-4
run muon optim.kind=muon optim.lr=0.01
run muon-gpu optim.kind=muon optim.lr=0.01 run.device=cuda
close muon muon-gpu loss 1e-3
run lion optim.kind=lion optim.lr=3e-4
run lion-gpu optim.kind=lion optim.lr=3e-4 run.device=cuda
close lion lion-gpu loss 1e-3
run adam8 optim.moments=8bit
run adam8-gpu optim.moments=8bit run.device=cuda
# Rounding at random goes by the last bits of gradients, in which CPU and GPU differ.
close adam8 adam8-gpu loss 1e-2
run mlp model.kind=mlp model.dropout=0 model.dim=48
run mlp-gpu model.kind=mlp model.dropout=0 model.dim=48 run.device=cuda
close mlp mlp-gpu loss 1e-4
grep -h "^memory" "$work/gpt2-bf16.out" "$work/llama-dp2.out"
grep -h "^note" "$work"/*.out | sort | uniq -c
[ $failures -eq 0 ] && echo "gpu: all checks passed"
exit $((failures > 0))
