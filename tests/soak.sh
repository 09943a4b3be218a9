#!/usr/bin/env bash
# Random kills of a training run: soak.sh BUILD [KILLS [STOPS [RANKS]]]; or SOAK_KILLS and SOAK_STOPS
# in the environment.
#
# Every time: the launcher ends with exit code 1 within 2 s of the kill, its last lines name the
# rank, the signal and the instruction, and no process, shared memory or file is left behind. Every
# seventh run is killed at any moment from its first fork on; the others while they train.
set -u
build=$1 kills=${2:-${SOAK_KILLS:-100}} stops=${3:-${SOAK_STOPS:-5}} ranks=${4:-3}
trireme=$build/trireme
within_ms=${SOAK_WITHIN_MS:-2500} # 2 s and what a busy machine adds
deadline_s=${SOAK_DEADLINE_S:-2}  # of the stopped ones
work=$(mktemp -d /tmp/trireme-soak-XXXXXX)
trap 'rm -rf "$work"' EXIT

if ! "$trireme" settings layout.dp >/dev/null 2>&1; then
    echo "this build has no layout.dp"
    exit 77
fi

now_ms() { echo $(($(date +%s%N) / 1000000)); }
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
fail() {
    echo "run $run: $1"
    [ -f "$work/err" ] && sed 's/^/    /' "$work/err"
    exit 1
}

# Starts a run that would go on for hours, with this deadline; sets launcher and pids.
start() {
    rm -rf "$work/run"
    "$trireme" train recipes/tiny.yaml --set layout.dp="$ranks" --set train.steps=1000000 \
        --set run.dir="$work/run" --set run.device=cpu --set run.save=false --set run.deadline_s="$1" \
        >"$work/out" 2>"$work/err" </dev/null &
    launcher=$!
    pids=()
    local end=$((SECONDS + 60))
    while [ $SECONDS -lt $end ]; do
        # Twice the same: a list that is read while it changes may name one that has gone.
        read -r -a pids <<<"$(children $launcher)"
        [ ${#pids[@]} -eq "$ranks" ] && [ "${pids[*]}" = "$(children $launcher | sed 's/ $//')" ] && return
        kill -0 $launcher 2>/dev/null || fail "it ended before it was killed"
        sleep 0.002
    done
    fail "$ranks ranks did not start"
}

train_for_a_while() {
    local end=$((SECONDS + 120))
    until [ -s "$work/run/metrics.jsonl" ] || [ $SECONDS -ge $end ]; do
        kill -0 $launcher 2>/dev/null || fail "it ended before it was killed"
        sleep 0.01
    done
    [ -s "$work/run/metrics.jsonl" ] || fail "it did not begin to train"
    sleep 0.$((RANDOM % 30 + 10))
}

# Waits for the launcher; sets code and took_ms since the kill.
finish() {
    local limit_ms=$1
    while kill -0 $launcher 2>/dev/null && [ $(($(now_ms) - killed_ms)) -lt $((limit_ms + 5000)) ]; do
        sleep 0.01
    done
    took_ms=$(($(now_ms) - killed_ms))
    kill -KILL $launcher 2>/dev/null
    wait $launcher 2>/dev/null
    code=$?
    [ $code -eq 1 ] || fail "exit code $code"
    [ $took_ms -le "$limit_ms" ] || fail "it took $took_ms ms to end"
    for pid in "${pids[@]}"; do
        [ -d "/proc/$pid" ] && fail "process $pid is left"
    done
    # Directories there are of other tests.
    [ -z "$(find /dev/shm -maxdepth 1 -type f -name '*trireme*')" ] || fail "shared memory is left"
    for pid in $launcher "${pids[@]}"; do
        [ -z "$(find "$work/run" /tmp -maxdepth 1 -name ".trireme-$pid-*" 2>/dev/null)" ] || fail "files are left"
    done
    [ $took_ms -gt "$worst_ms" ] && worst_ms=$took_ms
}

reported() { grep -q -- "$1" "$work/err" || fail "the report lacks '$1'"; }

# Between two steps there is no instruction to name; most of the time there is. Of few kills one
# must name it, and there are more until one does.
enough() {
    [ "$run" -ge "$kills" ] || return
    [ "$kills" -ge 20 ] || [ "$kills" -lt 3 ] || [ $in_program -gt 0 ] || [ "$run" -ge 20 ]
}
worst_ms=0 in_program=0 run=0
until enough; do
    run=$((run + 1))
    start 60
    if [ $((run % 7)) -eq 0 ]; then
        sleep 0.0$((RANDOM % 10))
    else
        train_for_a_while
    fi
    victim=$((RANDOM % ranks))
    killed_ms=$(now_ms)
    kill -KILL "${pids[$victim]}"
    finish $within_ms
    head -n 1 "$work/err" | grep -q "^trireme: rank [0-9]* was killed by SIGKILL" ||
        fail "the report does not begin with the rank and the signal"
    reported "was process ${pids[$victim]}\$"
    reported "logs of all ranks: $work/run/log/"
    if [ $((run % 7)) -ne 0 ]; then
        head -n 1 "$work/err" | grep -q "at step [0-9]*" || fail "the report names no step"
    fi
    head -n 1 "$work/err" | grep -q ", instruction [0-9]*: " && in_program=$((in_program + 1))
done
least=$((kills < 3 ? 0 : kills < 20 ? 1 : kills / 2))
[ $in_program -ge $least ] || fail "only $in_program of $run reports name an instruction"
echo "$run kills: the slowest run ended after $worst_ms ms; $in_program in an instruction"

worst_ms=0
for run in $(seq "$stops"); do
    start "$deadline_s"
    train_for_a_while
    victim=$((RANDOM % ranks))
    killed_ms=$(now_ms)
    kill -STOP "${pids[$victim]}"
    finish $((deadline_s * 1000 + within_ms))
    [ $took_ms -ge $((deadline_s * 1000 - 500)) ] || fail "it ended $took_ms ms after SIGSTOP"
    head -n 1 "$work/err" | grep -q "^trireme: rank [0-9]* .*its process is stopped (SIGSTOP)" ||
        fail "the report does not begin with the rank that is stopped"
    reported "was process ${pids[$victim]}\$"
    reported "was waiting for rank"
done
[ "$stops" -gt 0 ] && echo "$stops stops: the slowest run ended after $worst_ms ms"
exit 0
