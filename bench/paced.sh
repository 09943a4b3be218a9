#!/usr/bin/env bash
# Does `trireme sim` foresee what is hidden, and what a slow rank costs? Actions take a given time
# (run.pace), so that a machine with few cores shows the effect of the program alone; one rank is
# braked in every second case. It prints simulated and measured steps, and of each axis the share of
# the transfer of its messages (the wait for the last rank left out) that runs beside computation, by
# the simulation and by the trace.
#
#     bench/paced.sh [BUILD]
#
# From the environment: PACE (F=60,B=120,I=60,W=60,U=20), STEPS (8), BRAKE (1.15), PROFILE (a file of
# `trireme bench device`; else one of 20 s is made).
set -eu
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
pace=${PACE:-F=60,B=120,I=60,W=60,U=20} steps=${STEPS:-8} brake=${BRAKE:-1.15}
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-paced-XXXXXX")
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
profile=${PROFILE:-}
if [ -z "$profile" ]; then
    profile=$work/device.json
    "$trireme" bench device --seconds 20 --out "$profile" --set run.device=cpu >/dev/null
fi

model="run.device=cpu run.threads=1 model.kind=gpt2 model.num_layers=8 model.dim=384 model.num_heads=6 \
    model.vocab=2048 data.seq_len=32 train.batch=8 train.eval_every=0 run.save=false run.overlap_min_kb=0"

options() { # settings
    local s
    for s in $1; do printf -- '--set %s ' "$s"; done
}

# Seconds of messages and of the hidden among them, by axis, and the step in ms.
foreseen() {
    jq -r '"step \(.step_ms) 0", (.stages[].axes[] | "\(.axis) \(.exposed_ms + .hidden_ms) \(.hidden_ms)")' "$1"
}
traced() {
    jq -r '.messages[] | "\(.axis) \(.seconds - .late_seconds) \(.seconds - .late_seconds - .exposed_seconds)"' "$1"
}
shares() { # seconds (or ms) of a rank's step
    awk -v step="$1" '{ all[$1] += $2; hidden[$1] += $3 }
        END { for (a in all) if (all[a] > 0.01 * step) printf "%s %.6f\n", a, hidden[a] / all[a] }' | sort
}

bench() { # name, settings
    local axis simulated measured paced dir=$work/run
    for paced in "$pace" "$pace,1:$brake"; do
        # shellcheck disable=SC2046
        "$trireme" sim $(options "$model $2 run.pace=$paced") --profile "$profile" --json >"$work/sim.json"
        rm -rf "$dir"
        # shellcheck disable=SC2046
        "$trireme" train --quiet $(options "$model $2 run.pace=$paced") --set train.steps="$steps" \
            --set run.trace=true --set run.dir="$dir" >"$work/log" 2>&1 || {
            tail -n 3 "$work/log"
            exit 1
        }
        "$trireme" profile "$dir" --json >"$work/profile.json"
        simulated=$(foreseen "$work/sim.json" | awk '$1 == "step" { print $2 }')
        measured=$(jq -r 'select(.step > 1) | .step_ms' "$dir/metrics.jsonl" | sort -g |
            awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }')
        awk -v n="$1" -v b="${paced#"$pace"}" -v s="$simulated" -v m="$measured" \
            'BEGIN { printf "%-18s %-8s %12.1f %12.1f %7.1f%%\n", n, b, s, m, 100 * (s / m - 1) }'
        foreseen "$work/sim.json" | grep -v '^step' | shares "$simulated" >"$work/a"
        traced "$work/profile.json" | shares "$(jq '.ranks[0].step_seconds' "$work/profile.json")" >"$work/b"
        while read -r axis simulated measured; do
            awk -v a="$axis" -v s="$simulated" -v m="$measured" \
                'BEGIN { printf "    over %-6s hidden %12.0f%% %12.0f%% %6.0f points\n", a, 100 * s, 100 * m, 100 * (s - m) }'
        done < <(join "$work/a" "$work/b")
    done
}

printf '%-18s %-8s %12s %12s %8s\n' layout brake "simulated ms" "measured ms" apart
bench "dp 2" "layout.dp=2 layout.bucket_mb=4"
bench "dp 2 zero 3" "layout.dp=2 layout.zero=3"
bench "dp 2 zero 2, 2 mb" "layout.dp=2 layout.zero=2 layout.microbatches=2"
bench "tp 2" "layout.tp=2"
bench "pp 2" "layout.pp=2 layout.microbatches=4"
bench "pp 2 dp 2 zb-h1" "layout.pp=2 layout.dp=2 layout.microbatches=4 layout.schedule=zb-h1"
