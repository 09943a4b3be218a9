#!/usr/bin/env bash
# Speed on the CPU, ours beside the peer in one run. PyTorch is the peer when some python has it
# (set PYTHON); without it our figures are printed alone.
#
#   bench/run.sh BUILD [small|124m-64|124m-256]     one model only
#
# The two take turns, ROUNDS times (3), so that what else the machine does hits both. A figure is
# the best of the rounds' medians; "fastest" is the ratio of the fastest steps of all rounds, which
# others disturb least.
set -u
build=$1
only=${2:-}
python=${PYTHON:-python3}
threads=${THREADS:-$(nproc)}
rounds=${ROUNDS:-3}
peer=no
"$python" -c 'import torch' 2>/dev/null && peer=yes

field() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" <<<"$2" | tail -n 1; }

compare() { # key, name, steps, settings of ours, arguments of the peer
    [ -z "$only" ] || [ "$only" = "$1" ] || return 0
    local ours theirs=""
    {
        for ((round = 0; round < rounds; round++)); do
            # shellcheck disable=SC2086
            ours=$("$build/trireme" bench --json --steps "$3" --set run.threads="$threads" $4)
            # shellcheck disable=SC2086
            [ $peer = yes ] && theirs=$("$python" bench/peers/torch_cpu.py --threads "$threads" --steps "$3" $5)
            echo "$(field ms "$ours") $(field min_ms "$ours") $(field tokens_per_s "$ours")" \
                "$(field gflops "$ours") $(field mfu "$ours")" \
                "$(field ms "$theirs") $(field ms_min "$theirs") $(field tokens_per_s "$theirs")"
        done
    } | awk -v name="$2" '
        NR == 1 || $1 < ms { ms = $1; tokens = $3; gflops = $4; share = $5 }
        NR == 1 || $2 < fast { fast = $2 }
        NF > 5 && (!peer || $6 < peer_ms) { peer = 1; peer_ms = $6; peer_tokens = $8 }
        NF > 5 && (!peer_fast || $7 < peer_fast) { peer_fast = $7 }
        END {
            printf "%-16s ours %8.1f tok/s %6.1f GFLOP/s (%2.0f%% of a large product)", name, tokens,
                gflops, 100 * share
            if (peer)
                printf "   PyTorch %8.1f tok/s   ratio %.2f (fastest %.2f)\n", peer_tokens,
                    peer_ms / ms, peer_fast / fast
            else
                printf "   (no PyTorch found: set PYTHON)\n"
        }'
}

small="--set model.num_layers=6 --set model.dim=384 --set model.num_heads=6 --set model.vocab=4096"
gpt2="--set model.preset=gpt2-124m --set train.batch=4"
compare small "small 8x256" 10 "$small --set train.batch=8 --set data.seq_len=256" "--model small --batch 8 --seq-len 256"
compare 124m-64 "gpt2-124m 4x64" 10 "$gpt2 --set data.seq_len=64" "--model 124m --batch 4 --seq-len 64"
compare 124m-256 "gpt2-124m 4x256" 4 "$gpt2 --set data.seq_len=256" "--model 124m --batch 4 --seq-len 256"
[ -z "$only" ] || exit 0
echo
"$build/bench/ops" "$threads"
