#!/usr/bin/env bash
# Training on the GPU beside PyTorch, in one run: bench/gpu.sh BUILD [model ...]. PYTHON names the
# interpreter that has PyTorch; without one only ours is measured. SET may have more settings of ours,
# such as SET=precision.linear=fp8.
set -u
build=${1:-build}
shift
models=("$@")
[ ${#models[@]} -eq 0 ] && models=(gpt2-124m)
python=${PYTHON:-python3}
dir=$(dirname "$0")

settings() {
    case $1 in
    gpt2-124m) echo model.preset=gpt2-124m model.vocab=50304 data.seq_len=1024 train.batch=64 ;;
    gpt2-350m) echo model.preset=gpt2-350m model.vocab=50304 data.seq_len=1024 train.batch=32 ;;
    gpt2-1558m) echo model.preset=gpt2-1558m model.vocab=50304 data.seq_len=1024 train.batch=16 ;;
    llama-1.1b) echo model.preset=tinyllama-1.1b data.seq_len=2048 train.batch=8 ;;
    *)
        echo "there are gpt2-124m, gpt2-350m, gpt2-1558m and llama-1.1b" >&2
        exit 2
        ;;
    esac
}

field() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p"; }

for model in "${models[@]}"; do
    set=()
    for s in $(settings "$model") ${SET:-}; do set+=(--set "$s"); done
    ours=$("$build/trireme" bench --json --steps 20 --set run.device=cuda --set precision.kind=bf16 \
        "${set[@]}") || exit 1
    echo "$ours"
    peer=$("$python" "$dir/peers/torch_gpu.py" --model "$model" 2>/dev/null | tail -n 1)
    if [ -z "$peer" ]; then
        echo "$model: no PyTorch with a GPU under $python, so there is no ratio"
        continue
    fi
    echo "$peer"
    awk -v m="$model" -v a="$(echo "$ours" | field tokens_per_s)" \
        -v b="$(echo "$peer" | field tokens_per_s)" \
        'BEGIN { printf "%s: %.0f tokens/s, PyTorch %.0f: %.2f x\n", m, a, b, a / b }'
done
