#!/usr/bin/env bash
# Two builds of trireme beside each other: is the new one as fast as the old one?
#
#   bench/pairs.sh OLD NEW [cpu|cuda]     OLD and NEW are programs; PAIRS (12) pairs of each model
#
# The programs take turns, and the one that begins changes from pair to pair. On the CPU both stay
# alive and a pair is one step of each, so that whatever else the machine does hits both. On a GPU
# they would share the device's memory, so a pair is one whole run of each. Printed are the median
# of the ratios new / old in tokens/s and their quartiles: 1 is as fast, more is faster.
set -u
old=$1 new=$2 device=${3:-cpu}
pairs=${PAIRS:-12}
threads=${THREADS:-$(nproc)}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

field() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" <<<"$2" | tail -n 1; }

step() { # descriptor to write to, descriptor to read from
    local line
    echo >&"$1"
    read -r line <&"$2" && field step_ms "$line"
}

# Prints "old new" in milliseconds a pair. The first step of each does not count.
cpu_pairs() { # settings
    local old_ms new_ms i
    mkfifo "$tmp/to_old" "$tmp/of_old" "$tmp/to_new" "$tmp/of_new"
    # shellcheck disable=SC2086
    "$old" bench --json --paced --steps $((pairs + 1)) --set run.device=cpu --set run.threads="$threads" $1 \
        <"$tmp/to_old" >"$tmp/of_old" &
    exec 3>"$tmp/to_old" 4<"$tmp/of_old"
    # shellcheck disable=SC2086
    "$new" bench --json --paced --steps $((pairs + 1)) --set run.device=cpu --set run.threads="$threads" $1 \
        <"$tmp/to_new" >"$tmp/of_new" 3>&- 4<&- &
    exec 5>"$tmp/to_new" 6<"$tmp/of_new"
    for ((i = 0; i <= pairs; i++)); do
        if ((i % 2)); then
            old_ms=$(step 3 4) new_ms=$(step 5 6)
        else
            new_ms=$(step 5 6) old_ms=$(step 3 4)
        fi
        [ $i -gt 0 ] && echo "$old_ms $new_ms"
    done
    exec 3>&- 4<&- 5>&- 6<&-
    wait
    rm -f "$tmp"/*
}

cuda_run() { # program, settings
    local line
    # shellcheck disable=SC2086
    line=$("$1" bench --json --steps 10 --set run.device=cuda --set precision.kind=bf16 $2 2>/dev/null | tail -n 1)
    field ms "$line"
}

cuda_pairs() { # settings
    local old_ms new_ms i
    for ((i = 0; i < pairs; i++)); do
        if ((i % 2)); then
            old_ms=$(cuda_run "$old" "$1") new_ms=$(cuda_run "$new" "$1")
        else
            new_ms=$(cuda_run "$new" "$1") old_ms=$(cuda_run "$old" "$1")
        fi
        echo "$old_ms $new_ms"
    done
}

compare() { # device, name, settings
    [ "$1" = "$device" ] || return 0
    "${1}_pairs" "$3" | awk -v name="$2" '
        $1 > 0 && $2 > 0 { print $1 / $2 }
        END { if (!NR) print "none" }' | sort -n | awk -v name="$2" '
        $1 != "none" { ratio[++n] = $1 }
        END {
            if (!n) { printf "%-18s no pair was measured\n", name; exit 1 }
            printf "%-18s new / old %.4f (%.4f to %.4f) of %d pairs\n", name,
                n % 2 ? ratio[(n + 1) / 2] : (ratio[n / 2] + ratio[n / 2 + 1]) / 2,
                ratio[1 + int(0.25 * (n - 1) + 0.5)], ratio[1 + int(0.75 * (n - 1) + 0.5)], n
        }'
}

small="--set model.num_layers=6 --set model.dim=384 --set model.num_heads=6 --set model.vocab=4096"
compare cpu "small 8x256" "$small --set train.batch=8 --set data.seq_len=256"
compare cpu "gpt2-124m 4x64" "--set model.preset=gpt2-124m --set train.batch=4 --set data.seq_len=64"
compare cpu "gpt2-124m 4x256" "--set model.preset=gpt2-124m --set train.batch=4 --set data.seq_len=256"
compare cuda "gpt2-124m 64x1024" "--set model.preset=gpt2-124m --set model.vocab=50304 --set train.batch=64 --set data.seq_len=1024"
compare cuda "llama-1.1b 8x2048" "--set model.preset=tinyllama-1.1b --set train.batch=8 --set data.seq_len=2048"
