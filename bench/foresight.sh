#!/usr/bin/env bash
# Does a measured profile foresee what steps take? It takes a profile, then steps that the profile
# has not seen, and prints what was predicted, what was measured, and the errors.
#
#     bench/foresight.sh [BUILD] [cpu|cuda]
#
# SECONDS_OF_PROFILE (60; cuda: 70), ROUNDS (3; cuda: 1) turns through all steps, of which each has
# STEPS (5) steps at a time; a step's time is the median of all. PROFILE=FILE takes that one instead.
# ONLY is a pattern of names. With cuda it takes about three minutes.
set -eu
build=${1:-build} device=${2:-cpu}
trireme=$(cd "$build" && pwd)/trireme
rounds=${ROUNDS:-$([ "$device" = cpu ] && echo 3 || echo 1)} steps=${STEPS:-5} only=${ONLY:-.}
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-foresight-XXXXXX")
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT

names=() sets=()
add() { # name, settings
    [[ $1 =~ $only ]] || return 0
    names+=("$1")
    sets+=("$2 run.device=$device")
}

layouts() { # name, settings, batch on one rank and on two
    add "$1" "$2 train.batch=$3"
    for zero in 0 1 2 3; do
        add "$1 dp 2 zero $zero" "$2 train.batch=$4 layout.dp=2 layout.zero=$zero"
    done
    add "$1 pp 2" "$2 train.batch=$4 layout.pp=2 layout.microbatches=2"
}

if [ "$device" = cpu ]; then
    layouts "gpt2 small" "model.kind=gpt2 model.num_layers=6 model.dim=384 model.num_heads=6 \
        model.vocab=4096 data.seq_len=128" 7 10
    layouts "llama" "model.kind=llama model.num_layers=4 model.dim=256 model.num_heads=8 \
        model.num_kv_heads=4 model.vocab=4096 data.seq_len=128" 6 10
    layouts "gpt2-124m rows of 64" "model.preset=gpt2-124m data.seq_len=64" 2 6
else
    for precision in bf16 fp8; do
        kind="precision.kind=bf16"
        [ $precision = fp8 ] && kind="$kind precision.linear=fp8"
        for batch in 24 48; do
            add "gpt2-124m $batch x 1024 $precision" "model.preset=gpt2-124m model.vocab=50304 \
                data.seq_len=1024 train.batch=$batch $kind"
        done
        for batch in 5 10; do
            add "llama-1.1b $batch x 2048 $precision" "model.preset=tinyllama-1.1b \
                data.seq_len=2048 train.batch=$batch $kind"
        done
    done
fi

options() { # settings
    local s
    for s in $1; do printf -- '--set %s ' "$s"; done
}

profile=${PROFILE:-}
if [ -z "$profile" ]; then
    profile=$work/device.json
    seconds=${SECONDS_OF_PROFILE:-$([ "$device" = cpu ] && echo 60 || echo 70)}
    "$trireme" bench device --seconds "$seconds" --out "$profile" --set run.device="$device"
    echo
fi

# The first steps are slower: memory is touched, products are tuned, recordings are made.
measure() { # number
    local dir=$work/run
    # shellcheck disable=SC2046
    "$trireme" train $(options "${sets[$1]}") --set run.dir="$dir" --set run.save=false \
        --set train.steps=$((steps + 3)) >"$work/out" 2>&1 || {
        echo "${names[$1]} failed:"
        tail -n 3 "$work/out"
        return 0
    }
    sed -n 's/.*"step":\([0-9]*\),.*"step_ms":\([0-9.]*\).*/\1 \2/p' "$dir/metrics.jsonl" |
        awk '$1 > 3 { print $2 }' >>"$work/times.$1"
    rm -rf "$dir"
}

for ((round = 0; round < rounds; round++)); do
    for i in "${!names[@]}"; do measure "$i"; done
done

for i in "${!names[@]}"; do
    # shellcheck disable=SC2046
    predicted=$("$trireme" sim $(options "${sets[$i]}") --profile "$profile" --json 2>"$work/err" |
        sed -n 's/.*"step_ms": *\([0-9.e+-]*\), *"tokens_per.*/\1/p')
    [ -s "$work/times.$i" ] || continue
    sort -n "$work/times.$i" | awk -v name="${names[$i]}" -v p="${predicted:-nan}" '
        { t[NR] = $1 }
        END { m = NR % 2 ? t[(NR + 1) / 2] : (t[NR / 2] + t[NR / 2 + 1]) / 2
              printf "%s\t%.2f\t%.2f\t%.1f\n", name, p, m, 100 * (p / m - 1) }'
done >"$work/table"
awk -F '\t' '
    BEGIN { printf "%-34s %12s %12s %8s\n", "step", "predicted ms", "measured ms", "error" }
    { printf "%-34s %12s %12s %7s%%\n", $1, $2, $3, $4
      e = $4 < 0 ? -$4 : $4; sum += e; if (e > worst) { worst = e; which = $1 } }
    END { if (!NR) { print "nothing was measured"; exit 1 }
          printf "\nmean error %.1f %%, worst %.1f %% (%s)\n", sum / NR, worst, which }' "$work/table"
