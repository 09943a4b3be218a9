#!/usr/bin/env bash
# Speed, ours beside the peer in one run. PyTorch is the peer when some python has it (set PYTHON);
# without it our figures are printed alone.
#
#   bench/run.sh BUILD [small]     small: only the small model, which takes a minute
set -u
build=$1
python=${PYTHON:-python3}
threads=${THREADS:-$(nproc)}
peer=no
"$python" -c 'import torch' 2>/dev/null && peer=yes

field() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" | tail -n 1; }

compare() { # name, settings of ours, arguments of the peer
    local name=$1 ours theirs
    ours=$(eval "$build/trireme bench --json --steps 7 --set run.threads=$threads $2" | field tokens_per_s)
    if [ $peer = yes ]; then
        theirs=$("$python" bench/peers/torch_cpu.py --threads "$threads" $3 | field tokens_per_s)
        awk -v n="$name" -v o="$ours" -v t="$theirs" \
            'BEGIN { printf "%-24s ours %9.1f tok/s   PyTorch %9.1f tok/s   ratio %.2f\n", n, o, t, o / t }'
    else
        printf '%-24s ours %9.1f tok/s   (no PyTorch found: set PYTHON)\n' "$name" "$ours"
    fi
}

small="--set model.num_layers=6 --set model.dim=384 --set model.num_heads=6 --set model.vocab=4096"
compare "small 8x256" "$small --set train.batch=8 --set data.seq_len=256" "--model small --batch 8 --seq-len 256"
[ "${2:-}" = small ] && exit 0
compare "gpt2-124m 4x64" "--set model.preset=gpt2-124m --set train.batch=4 --set data.seq_len=64" "--model 124m --batch 4 --seq-len 64"
compare "gpt2-124m 4x256" "--set model.preset=gpt2-124m --set train.batch=4 --set data.seq_len=256" "--model 124m --batch 4 --seq-len 256"
echo
"$build/bench/ops" "$threads"
