#!/usr/bin/env bash
# A long training beside PyTorch's: bench/long_run.sh BUILD TEXT... trains GPT-2 124M on the texts
# with Trireme, then in PyTorch from the same first weights, with the same rows and learning rates
# (bench/peers/torch_long.py), and draws both curves. PYTHON names the interpreter with PyTorch and
# transformers; STEPS, BATCH, LENGTH and OUT may be given, and SET for more settings of ours.
set -eu
build=${1:?the build folder}
shift
python=${PYTHON:-python3}
out=${OUT:-runs/long}
dir=$(dirname "$0")
steps=${STEPS:-2000} batch=${BATCH:-16} length=${LENGTH:-512} seed=1
mkdir -p "$out"
if [ ! -d "$out/tokens" ]; then
    "$build/trireme" data prepare "$@" --tokenizer bpe:8192 --out "$out/tokens"
fi
settings=(--set data.source="$out/tokens" --set data.seq_len="$length" --set data.eval_fraction=0
    --set train.batch="$batch" --set run.seed=$seed --set model.dropout=0
    --set run.device=cuda --set precision.kind=bf16)
if [ -z "${MODEL:-}" ]; then
    settings+=(--set model.preset=gpt2-124m --set model.vocab=50304 --set model.positions=1024)
fi
for s in ${MODEL:-} ${SET:-}; do settings+=(--set "$s"); done
rm -rf "$out/first" "$out/first-hf" "$out/run"
"$build/trireme" train "${settings[@]}" --set train.steps=0 --set run.dir="$out/first" >/dev/null
"$build/trireme" ckpt export "$out/first" --hf "$out/first-hf" >/dev/null
begin=$(date +%s)
"$build/trireme" train "${settings[@]}" --set train.steps="$steps" --set optim.lr=6e-4 \
    --set optim.schedule=cosine --set optim.warmup_steps=100 --set optim.min_lr_ratio=0.1 \
    --set data.record=true --set run.save=false --set run.dir="$out/run" | tail -n 3
echo "Trireme: $(($(date +%s) - begin)) s with the start"
"$python" "$dir/peers/torch_long.py" --run "$out/run" --weights "$out/first-hf" \
    --tokens "$out/tokens" --length "$length" --seed $seed --out "$out/peer.json" ${PEER_FLAGS:-}
"$python" "$dir/peers/draw_losses.py" "$out/run" "$out/peer.json" "$out/losses.svg"
