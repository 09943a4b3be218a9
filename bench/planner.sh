#!/usr/bin/env bash
# Does the planner choose well on this machine? It takes a profile, measures twelve layouts of four
# ranks in turns, and prints what was predicted and measured of each; how much longer the layout that
# was predicted to be the fastest takes than the fastest (regret); and the same of the first choice
# of `trireme plan --search`, which knows more layouts.
#
#     bench/planner.sh [BUILD]
#
# SECONDS_OF_PROFILE (90), ROUNDS (3) turns through all layouts, of STEPS (8) steps each. PROFILE=FILE
# takes that one instead. It takes about five minutes; the machine should have nothing else to do.
set -eu
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
rounds=${ROUNDS:-3} steps=${STEPS:-8}
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-planner-XXXXXX")
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT

model="run.device=cpu model.kind=llama model.num_layers=8 model.dim=256 model.num_heads=8 \
    model.num_kv_heads=4 model.vocab=4096 data.seq_len=128 train.batch=16"
layouts=(
    "layout.dp=4"
    "layout.dp=4 layout.zero=1"
    "layout.dp=4 layout.zero=2"
    "layout.dp=4 layout.zero=3"
    "layout.tp=4"
    "layout.tp=2 layout.dp=2"
    "layout.tp=2 layout.sp=true layout.dp=2 layout.zero=1"
    "layout.pp=2 layout.dp=2 layout.microbatches=4"
    "layout.pp=2 layout.tp=2 layout.microbatches=4"
    "layout.pp=4 layout.microbatches=8"
    "layout.dp=4 layout.zero=1 layout.recompute=full"
    "layout.cp=2 layout.dp=2 layout.zero=1"
)

options() { # settings
    local s
    for s in $1; do printf -- '--set %s ' "$s"; done
}

profile=${PROFILE:-}
if [ -z "$profile" ]; then
    profile=$work/device.json
    "$trireme" bench device --ranks 4 --seconds "${SECONDS_OF_PROFILE:-90}" --out "$profile" \
        --set run.device=cpu
    echo
fi

# The planner's own choice is the last of the layouts.
# shellcheck disable=SC2046
own=$("$trireme" plan --search --profile "$profile" --devices 4 $(options "$model") --json |
    sed -n 's/.*"command": *"\([^"]*\)".*/\1/p' | tr ' ' '\n' | grep '^layout\.' | tr '\n' ' ')
layouts+=("$own")

measure() { # number
    local dir=$work/run
    # shellcheck disable=SC2046
    "$trireme" train $(options "$model ${layouts[$1]}") --set run.threads=1 --set run.dir="$dir" \
        --set run.save=false --set train.steps=$((steps + 3)) >"$work/out" 2>&1 || {
        echo "${layouts[$1]} failed:"
        tail -n 3 "$work/out"
        return 0
    }
    sed -n 's/.*"step":\([0-9]*\),.*"step_ms":\([0-9.]*\).*/\1 \2/p' "$dir/metrics.jsonl" |
        awk '$1 > 3 { print $2 }' >>"$work/times.$1"
    rm -rf "$dir"
}

for ((round = 0; round < rounds; round++)); do
    for i in "${!layouts[@]}"; do measure "$i"; done
done

for i in "${!layouts[@]}"; do
    # shellcheck disable=SC2046
    predicted=$("$trireme" sim $(options "$model ${layouts[$i]}") --profile "$profile" --json \
        2>"$work/err" | sed -n 's/.*"step_ms": *\([0-9.e+-]*\), *"tokens_per.*/\1/p')
    [ -s "$work/times.$i" ] || continue
    sort -n "$work/times.$i" | awk -v name="${layouts[$i]//layout./}" -v p="${predicted:-nan}" -v i="$i" '
        { t[NR] = $1 }
        END { m = NR % 2 ? t[(NR + 1) / 2] : (t[NR / 2] + t[NR / 2 + 1]) / 2
              printf "%d\t%s\t%.2f\t%.2f\t%.1f\n", i, name, p, m, 100 * (p / m - 1) }'
done >"$work/table"
awk -F '\t' '
    BEGIN { printf "%-44s %12s %12s %8s\n", "layout", "predicted ms", "measured ms", "error" }
    { printf "%-44s %12s %12s %7s%%\n", $1 == 12 ? "the planner: " $2 : $2, $3, $4, $5
      if ($1 == 12) { own = $4; next }
      m[NR] = $4
      if (!best || $4 < best) best = $4
      if (!least || $3 < least) { least = $3; chosen = $4; name = $2 } }
    END { if (!NR) { print "nothing was measured"; exit 1 }
          for (i in m) place += m[i] < chosen
          printf "\nof the twelve %s is predicted to be the fastest; measured it is number %d, regret %.1f %%\n",
              name, place + 1, 100 * (chosen / best - 1)
          printf "the planner, of all layouts: regret %.1f %% against the best of the twelve\n",
              100 * (own / best - 1) }' "$work/table"
