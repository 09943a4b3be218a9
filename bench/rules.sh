#!/usr/bin/env bash
# Lion beside SGD with momentum, in pairs: bench/rules.sh BUILD [cpu|cuda] [pairs]. Both read and write
# the weights and one moment and read the gradient. On the CPU the update alone is timed, over 39M
# weights (bench/ops); on a GPU a whole step, of one short row, so that the update is much of it.
set -u
build=${1:-build} device=${2:-cpu} pairs=${3:-5}

cpu() { # operator: milliseconds
    "$build/bench/ops" 1 2 "$1" | awk 'END { for (i = 1; i < NF; i++) if ($(i + 1) == "ms") print $i }'
}

cuda() { # rule: milliseconds of a step
    "$build/trireme" bench --json --steps 50 --set run.device=cuda --set precision.kind=bf16 \
        --set model.preset=gpt2-350m --set data.seq_len=64 --set train.batch=1 \
        --set optim.kind="${1%% *}" | sed -n 's/.*, "min_ms": *\([0-9.]*\).*/\1/p'
}

for ((i = 0; i < pairs; i++)); do
    echo "$("$device" "sgd momentum") $("$device" lion)"
done | awk 'NF == 2 { print "sgd " $1 " ms, lion " $2 " ms"; ratio[++n] = $2 / $1 }
    END {
        if (n == 0) { print "nothing was measured"; exit 1 }
        for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++)
            if (ratio[j] < ratio[i]) { t = ratio[i]; ratio[i] = ratio[j]; ratio[j] = t }
        printf "lion takes %.3f of the time of sgd with momentum (median of %d pairs)\n", ratio[int((n + 1) / 2)], n
    }'
