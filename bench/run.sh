#!/usr/bin/env bash
# Speed on the CPU, ours beside the peer in one run. PyTorch is the peer when some python has it
# (set PYTHON); without it our figures are printed alone.
#
#   bench/run.sh BUILD [small|124m-64|124m-256|mixture]     one model only
#
# Both programs run all the time and take turns step by step: one stands still while the other
# makes a step, so that whatever else the machine does hits both. ROUNDS (3) such pairs are
# started one after the other. Tokens/s are of the median step; the ratio is the median over all
# pairs of steps, with its quartiles; "fastest" compares the fastest steps, which others disturb
# least.
set -u
build=$1
only=${2:-}
python=${PYTHON:-python3}
threads=${THREADS:-$(nproc)}
rounds=${ROUNDS:-3}
peer=no
"$python" -c 'import torch' 2>/dev/null && peer=yes
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

field() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" <<<"$2" | tail -n 1; }

# One step of the program that listens on descriptor $1 and answers on $2: its milliseconds.
step() {
    local line
    echo >&"$1"
    read -r line <&"$2" && field step_ms "$line"
}

# One pair of programs; prints "ours theirs" for each pair of steps, and our rate and its share of a
# large product. The first steps do not count: the other program is still starting.
pair() { # steps, settings of ours, arguments of the peer
    local ours theirs=0 last
    mkfifo "$tmp/to_ours" "$tmp/of_ours" "$tmp/to_peer" "$tmp/of_peer"
    # shellcheck disable=SC2086
    "$build/trireme" bench --json --paced --steps $(($1 + 1)) --set run.device=cpu --set run.threads="$threads" $2 \
        <"$tmp/to_ours" >"$tmp/of_ours" &
    exec 3>"$tmp/to_ours" 4<"$tmp/of_ours"
    if [ $peer = yes ]; then
        # shellcheck disable=SC2086
        "$python" bench/peers/torch_cpu.py --paced --threads "$threads" --steps $(($1 + 1)) $3 \
            <"$tmp/to_peer" >"$tmp/of_peer" 3>&- 4<&- &
        exec 5>"$tmp/to_peer" 6<"$tmp/of_peer"
    fi
    for ((i = 0; i <= $1; i++)); do
        ours=$(step 3 4)
        [ $peer = yes ] && theirs=$(step 5 6)
        [ $i -gt 0 ] && echo "pair $ours $theirs"
    done
    read -r last <&4
    echo "rate $(field ms "$last") $(field gflops "$last") $(field mfu "$last")"
    exec 3>&- 4<&-
    [ $peer = yes ] && exec 5>&- 6<&-
    wait
    rm -f "$tmp"/*
}

compare() { # key, name, steps, tokens of a step, settings of ours, arguments of the peer
    [ -z "$only" ] || [ "$only" = "$1" ] || return 0
    for ((round = 0; round < rounds; round++)); do
        pair "$3" "$5" "$6"
    done | awk -v name="$2" -v tokens="$4" '
        function sort(x, n,  i, j, t) {
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && x[j - 1] > x[j]; j--) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t }
        }
        function part(x, n, share) { return x[1 + int(share * (n - 1) + 0.5)] }
        $1 == "pair" && $2 > 0 { ours[++n] = $2; theirs[n] = $3; ratio[n] = $3 / $2 }
        $1 == "rate" { flops = $2 * $3; large = $4 > 0 ? $3 / $4 : large }
        END {
            if (!n) { printf "%-16s no steps were made\n", name; exit 1 }
            sort(ours, n); sort(theirs, n); sort(ratio, n)
            ms = part(ours, n, 0.5)
            share = large > 0 ? 100 * flops / ms / large : 0
            printf "%-16s ours %8.1f tok/s %6.1f GFLOP/s (%2.0f%% of a large product)", name,
                1e3 * tokens / ms, flops / ms, share
            if (theirs[1] > 0)
                printf "   PyTorch %8.1f tok/s   ratio %.2f (%.2f to %.2f; fastest %.2f) of %d\n",
                    1e3 * tokens / part(theirs, n, 0.5), part(ratio, n, 0.5), part(ratio, n, 0.25),
                    part(ratio, n, 0.75), theirs[1] / ours[1], n
            else
                printf "   (no PyTorch found: set PYTHON)\n"
        }'
}

small="--set model.num_layers=6 --set model.dim=384 --set model.num_heads=6 --set model.vocab=4096"
gpt2="--set model.preset=gpt2-124m --set train.batch=4"
compare small "small 8x256" 10 2048 "$small --set train.batch=8 --set data.seq_len=256" "--model small --batch 8 --seq-len 256"
compare 124m-64 "gpt2-124m 4x64" 10 256 "$gpt2 --set data.seq_len=64" "--model 124m --batch 4 --seq-len 64"
compare 124m-256 "gpt2-124m 4x256" 4 1024 "$gpt2 --set data.seq_len=256" "--model 124m --batch 4 --seq-len 256"
mixture="--set model.kind=llama --set model.num_layers=4 --set model.dim=256 --set model.num_heads=4 --set model.vocab=4096 --set model.num_experts=8 --set model.experts_per_token=2 --set model.expert_dim=512"
compare mixture "mixture 8x256" 10 2048 "$mixture --set train.batch=8 --set data.seq_len=256" "--model mixture --batch 8 --seq-len 256"
[ -z "$only" ] || exit 0
echo
"$build/bench/ops" "$threads"
