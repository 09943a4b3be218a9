#!/usr/bin/env bash
# Does what "fits" run, and would what is refused have run? Twenty layouts around a limit of memory:
# of each the vocabulary is chosen so that the plan of all ranks is a given share of the limit, from
# 0.96 to 1.03. A layout that is taken must train two steps. One that is refused must want more than
# 98 % of the limit: its plan, which is what a run allocates.
#
#     bench/limits.sh [BUILD] [cpu|cuda]
#
# cpu: the limit is that of a control group of its own (root; LIMIT_MIB, 900). cuda: the memory of the
# GPU.
set -eu
build=${1:-build} device=${2:-cpu}
trireme=$(cd "$build" && pwd)/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-limits-XXXXXX")
group=
trap 'rm -rf "$work"; [ -z "$group" ] || rmdir "$group" 2>/dev/null || true' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
command -v jq >/dev/null || {
    echo "limits.sh needs jq: apt-get install jq" >&2
    exit 2
}

if [ "$device" = cpu ]; then
    limit=$((${LIMIT_MIB:-900} * 1048576))
    if [ -d /sys/fs/cgroup/memory ]; then # version 1
        group=/sys/fs/cgroup/memory/trireme-limits-$$ max=memory.limit_in_bytes procs=cgroup.procs
    else
        group=/sys/fs/cgroup/trireme-limits-$$ max=memory.max procs=cgroup.procs
    fi
    { mkdir "$group" && echo $limit >"$group/$max"; } || {
        echo "limits.sh needs to make a control group with a limit of memory: run it as root" >&2
        exit 2
    }
    base="run.device=cpu run.threads=1 model.kind=llama model.dropout=0 model.num_layers=6 model.dim=384 model.num_heads=6 \
        model.num_kv_heads=3 data.seq_len=128 train.batch=8"
    layouts=("layout.dp=1" "layout.dp=2" "layout.dp=2 layout.zero=1" "layout.dp=2 layout.zero=2"
        "layout.dp=2 layout.zero=3" "layout.tp=2" "layout.tp=2 layout.sp=true layout.recompute=full"
        "layout.pp=2 layout.microbatches=4" "layout.cp=2" "layout.dp=2 layout.zero=1 layout.microbatches=2 optim.moments=8bit")
else
    limit=$("$trireme" train tiny --dry-run --set run.device=cuda --set run.dir="$work/none" |
        sed -n 's/^memory .* of \([0-9.]*\) GiB.*/\1/p' | awk '{ printf "%.0f", $1 * 1073741824 }')
    base="run.device=cuda model.dropout=0 precision.kind=bf16 data.seq_len=1024 train.batch=16 model.dim=4096 model.num_heads=32"
    layouts=("model.kind=gpt2 model.num_layers=20" "model.kind=gpt2 model.num_layers=20 layout.recompute=selective"
        "model.kind=gpt2 model.num_layers=24 layout.recompute=full" "model.kind=gpt2 model.num_layers=20 layout.microbatches=4"
        "model.kind=llama model.num_layers=20 model.num_kv_heads=8" "model.kind=llama model.num_layers=20 layout.recompute=full"
        "model.kind=llama model.num_layers=20 precision.linear=fp8" "model.kind=llama model.num_layers=24 layout.microbatches=8"
        "model.kind=llama model.num_layers=20 model.loss_tile=256" "model.kind=llama model.num_layers=20 optim.moments=8bit")
fi

options() { # settings
    local s
    for s in $1; do printf -- '--set %s ' "$s"; done
}

# Bytes of all ranks by the plan.
planned() { # settings
    local ranks all=0 r
    # shellcheck disable=SC2046
    ranks=$("$trireme" plan tiny $(options "$1") --json 2>/dev/null | jq .num_ranks) || true
    for ((r = 0; r < ${ranks:-1}; r++)); do
        # shellcheck disable=SC2046
        all=$((all + $("$trireme" plan tiny $(options "$1") --rank $r --json 2>/dev/null | jq .memory.plan_bytes)))
    done
    echo $all
}

# The vocabulary with which the plan is nearest below so many bytes.
choose() { # settings, bytes
    local low=256 high=1000000 middle
    while [ $((high - low)) -gt 64 ]; do
        middle=$(((low + high) / 2))
        if [ "$(planned "$1 model.vocab=$middle")" -le "$2" ]; then low=$middle; else high=$middle; fi
    done
    echo $low
}

train() { # settings: two steps, in a process group of the caller's
    rm -rf "$work/run"
    # shellcheck disable=SC2046
    "$trireme" train tiny --quiet $(options "$1") --set train.steps=2 --set run.save=false --set train.eval_every=0 \
        --set run.dir="$work/run" >"$work/out" 2>&1
}

shares=(960 985 995 1005 1015 970 990 1000 1010 1030)
bad=0 n=0
printf '%-66s %8s %9s %9s  %s\n' layout vocab "planned" "of limit" result
for layout in "${layouts[@]}"; do
    for _ in 1 2; do
        share=${shares[$((n % 10))]}
        n=$((n + 1))
        settings="$base $layout"
        vocab=$(choose "$settings" $((limit * share / 1000)))
        settings="$settings model.vocab=$vocab"
        bytes=$(planned "$settings")
        code=0
        if [ "$device" = cpu ]; then
            (echo "$BASHPID" >"$group/$procs" && train "$settings") || code=$?
        else
            train "$settings" || code=$?
        fi
        if [ $code -eq 0 ]; then
            result=trained
        elif ! grep -qE 'are available|run.memory_limit|does not fit|memory of' "$work/out"; then
            result="FAILED: $(tail -n 1 "$work/out")"
            bad=$((bad + 1))
        else
            result=refused
            if [ $((bytes * 100)) -lt $((limit * 98)) ]; then
                result="WRONGLY refused"
                bad=$((bad + 1))
            fi
        fi
        printf '%-66s %8d %5d MiB %8.1f%%  %s\n' "$layout" "$vocab" $((bytes / 1048576)) \
            "$(awk -v p="$bytes" -v l="$limit" 'BEGIN { print 100 * p / l }')" "$result"
    done
done
echo "$n layouts, $bad wrong"
[ $bad -eq 0 ]
