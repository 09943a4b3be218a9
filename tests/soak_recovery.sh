#!/usr/bin/env bash
# Random kills of runs that save: soak_recovery.sh BUILD [KILLS [RESTARTS [ROUNDS]]]; or SOAK_KILLS,
# SOAK_RESTARTS and SOAK_ROUNDS in the environment.
#
# 1. KILLS times a run that saves every other step is killed by SIGKILL at a random moment, all of it
#    or a rank, and resumed. After each kill the newest checkpoint is complete and verified, unless
#    the run was killed before its first. When a run gets to its end, the bytes of its last
#    checkpoint are those of a run that nobody disturbed; then the next one begins.
# 2. Runs that start their ranks again by themselves: RESTARTS kills of a rank in all, and in the end
#    the same bytes, every step once.
# 3. ROUNDS runs of four ranks that lose one and then another: the losses are those of the
#    undisturbed run to 1e-5.
set -u
build=$1 kills=${2:-${SOAK_KILLS:-200}} restarts=${3:-${SOAK_RESTARTS:-20}} rounds=${4:-${SOAK_ROUNDS:-5}}
trireme=$build/trireme
steps=60
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-recovery-XXXXXX")
launcher=
trap '[ -n "$launcher" ] && kill -KILL $launcher 2>/dev/null; rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN

fail() {
    echo "FAILED: $1"
    [ -f "$work/out" ] && tail -n 30 "$work/out" | sed 's/^/    /'
    ls -la "$work"/run/ckpt 2>/dev/null | sed 's/^/    /'
    exit 1
}
# arguments DIR [SETTING ...] into args: tiny, with dropout, and a state of the optimizer to lose.
arguments() {
    local dir=$1 setting
    shift
    args=(train recipes/tiny.yaml)
    for setting in model.num_layers=2 model.dim=32 data.seq_len=32 train.steps=$steps \
        run.device=cpu run.save=false run.threads=1 ckpt.every=2 run.dir="$dir" "$@"; do
        args+=(--set "$setting")
    done
}
begin() { # in the background, without a shell in between: it is to be killed
    arguments "$work/run" "$@"
    "$trireme" "${args[@]}" >"$work/out" 2>&1 </dev/null &
    launcher=$!
}
pids_of() { # the launcher and its ranks
    echo "$1 $(cat "/proc/$1/task/$1/children" 2>/dev/null)"
}
one_of() {
    local list=("$@")
    echo "${list[RANDOM % ${#list[@]}]}"
}
pause_ms() { sleep "$(printf '0.%03d' "$1")"; }
newest() { # the step of the newest complete checkpoint, or nothing
    ls "$1/ckpt" 2>/dev/null | sed -n 's/^step-\([0-9]*\)$/\1/p' | sort -n | tail -n 1
}
# The tensors of the last checkpoint, by their bytes.
same_end() {
    "$trireme" ckpt verify "$work/run/ckpt/step-$steps" >"$work/verify" 2>&1 ||
        fail "$1: the last checkpoint: $(cat "$work/verify")"
    "$trireme" ckpt diff "$2/ckpt/step-$steps" "$work/run/ckpt/step-$steps" >"$work/diff" 2>&1 ||
        fail "$1: the last checkpoint differs: $(head -n 3 "$work/diff")"
    every_step_once "$1"
}
every_step_once() {
    [ "$(sed -n 's/.*"step":\([0-9]*\).*/\1/p' "$work/run/metrics.jsonl" | tr '\n' ' ')" = \
        "$(seq -s ' ' "$steps") " ] || fail "$1: metrics.jsonl has steps twice or not at all"
}
losses() { sed -n 's/.*"loss":\([^,]*\).*/\1/p' "$1/metrics.jsonl"; }

layouts=("layout.dp=1" "layout.dp=2" "layout.dp=2 layout.zero=2" "layout.tp=2")
reference() { # LAYOUT: the directory of the undisturbed run
    local dir
    dir="$work/$(echo "$1" | tr ' =.' '___')"
    arguments "$dir" $1
    [ -d "$dir" ] || "$trireme" "${args[@]}" >"$work/out" 2>&1 || fail "$1: the undisturbed run"
    echo "$dir"
}

# ---- 1. kills ----
done_kills=0 ends=0 before_first=0 during_write=0
while [ "$done_kills" -lt "$kills" ]; do
    layout=${layouts[ends % ${#layouts[@]}]}
    expected=$(reference "$layout") || exit 1
    rm -rf "$work/run"
    while :; do
        last=$(newest "$work/run")
        begin $layout run.resume=auto
        if [ "$done_kills" -lt "$kills" ]; then
            pause_ms $((RANDOM % 300 + 20))
            victim=$(one_of $(pids_of $launcher))
            ls -d "$work"/run/ckpt/.step-*.tmp >/dev/null 2>&1 && writing=1 || writing=0
            kill -KILL "$victim" 2>/dev/null && done_kills=$((done_kills + 1)) &&
                during_write=$((during_write + writing))
        fi
        wait $launcher 2>/dev/null
        code=$?
        launcher=
        now=$(newest "$work/run")
        [ "${now:-0}" -ge "${last:-0}" ] || fail "step-$last was lost: only step-${now:-none} is left"
        if [ -n "$now" ]; then
            "$trireme" ckpt verify "$work/run/ckpt/step-$now" >"$work/verify" 2>&1 ||
                fail "step-$now is not whole after a kill: $(cat "$work/verify")"
        else
            before_first=$((before_first + 1))
        fi
        [ $code -eq 0 ] && break
    done
    same_end "$layout" "$expected"
    ends=$((ends + 1))
done
[ "$kills" -gt 0 ] && echo "$done_kills kills, $during_write of them while a checkpoint was being written and $before_first before the first was: $ends runs ended with the bytes of the undisturbed one"

# ---- 2. restarts ----
done_kills=0 ends=0 worst_ms=0
now_ms() { echo $(($(date +%s%N) / 1000000)); }
restarts_told() { grep -c "^trireme: restart" "$work/out"; }
trains() { # so many restarts were told, and a step was done after the last of them
    [ "$(restarts_told)" -eq "$1" ] &&
        grep "^step\|^trireme: restart" "$work/out" | tail -n 1 | grep -q "^step"
}
# Until ranks train that were started again $1 times; false when the run has ended before.
until_it_trains() {
    for _ in $(seq 2000); do
        trains "$1" && return 0
        kill -0 $launcher 2>/dev/null || return 1
        sleep 0.005
    done
    fail "no rank trains after $1 restarts"
}
while [ "$done_kills" -lt "$restarts" ]; do
    layout=${layouts[ends % ${#layouts[@]}]}
    expected=$(reference "$layout") || exit 1
    rm -rf "$work/run"
    begin $layout run.restarts=100 train.log_every=1
    for number in 0 1 2 3 4; do
        until_it_trains $number || break
        [ $number -gt 0 ] && [ $(($(now_ms) - killed_ms)) -gt $worst_ms ] &&
            worst_ms=$(($(now_ms) - killed_ms))
        [ $number -eq 4 ] && break
        pause_ms $((RANDOM % 100))
        set -- $(pids_of $launcher)
        shift
        killed_ms=$(now_ms)
        [ $# -gt 0 ] && kill -KILL "$(one_of "$@")" 2>/dev/null || break # it has just ended
        done_kills=$((done_kills + 1))
    done
    wait $launcher
    code=$?
    launcher=
    [ $code -eq 0 ] || fail "$layout: exit code $code after $(restarts_told) restarts"
    same_end "$layout" "$expected"
    ends=$((ends + 1))
done
[ $worst_ms -lt 5000 ] || fail "it took $worst_ms ms from a death until ranks trained again"
[ "$restarts" -gt 0 ] && echo "$done_kills kills of a rank, which were started again: $ends runs ended with the bytes of the undisturbed one; the longest time from a death to the next step was $worst_ms ms"

# ---- 3. fewer ranks ----
for round in $(seq "$rounds"); do
    expected=$(reference "layout.dp=2") || exit 1
    rm -rf "$work/run"
    begin layout.dp=4 layout.zero=$((round % 4)) run.elastic=true
    for left in 4 3; do
        for _ in $(seq 1000); do
            set -- $(pids_of $launcher)
            [ $# -eq $((left + 1)) ] && [ -n "$(newest "$work/run")" ] && break
            kill -0 $launcher 2>/dev/null || fail "it ended with $left ranks to go"
            sleep 0.005
        done
        pause_ms $((RANDOM % 300))
        shift
        kill -KILL "$(one_of "$@")" 2>/dev/null
    done
    wait $launcher
    code=$?
    launcher=
    [ $code -eq 0 ] || fail "elastic: exit code $code"
    every_step_once elastic
    paste <(losses "$expected") <(losses "$work/run") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) exit 1 }' ||
        fail "elastic: the losses are not those of the undisturbed run"
done
[ "$rounds" -gt 0 ] && echo "$rounds runs lost two of four ranks and went on: their losses are those of the undisturbed run"
exit 0
