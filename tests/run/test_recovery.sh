#!/usr/bin/env bash
# Runs that lose ranks, are asked to end, or compute nonsense: what goes on ends with the same bits
# as what was never disturbed. A short form of soak_recovery.sh, with moments that a test can choose.
# Argument: the build directory.
set -u
build=$1
trireme=$build/trireme
shim=$(realpath "$build")/tests/helpers/libhold-shim.so
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-recovery-XXXXXX")
launcher=
trap '[ -n "$launcher" ] && kill -KILL $launcher 2>/dev/null; rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN TORCHELASTIC_RUN_ID
failures=0
fail() {
    echo "FAILED: $*"
    [ -f "$work/out" ] && tail -n 8 "$work/out" | sed 's/^/    /'
    failures=$((failures + 1))
}
# arguments DIR [SETTING ...] into args
arguments() {
    local dir=$1 setting
    shift
    args=(train recipes/tiny.yaml)
    for setting in model.num_layers=1 train.steps=$steps run.save=false run.threads=1 \
        run.dir="$work/$dir" "$@"; do
        args+=(--set "$setting")
    done
}
train() {
    arguments "$@"
    "$trireme" "${args[@]}" >"$work/out" 2>&1
}
begin() {
    arguments "$@"
    "$trireme" "${args[@]}" >"$work/out" 2>&1 </dev/null &
    launcher=$!
}
# What the program stands before stays at this step until go_on says otherwise.
held() { # STEP
    rm -f "$work/go"
    hold=(env HOLD_STEP="$1" HOLD_UNTIL="$work/go" LD_PRELOAD="$shim")
}
begin_held() { # STEP DIR SETTING ...
    held "$1"
    arguments "${@:2}"
    "${hold[@]}" "$trireme" "${args[@]}" >"$work/out" 2>&1 </dev/null &
    launcher=$!
    until_step "$2" "$1"
}
go_on() { touch "$work/go"; }
saved() { # DIR STEP: waits until there is this checkpoint, which is written beside the training
    local end=$((SECONDS + 120))
    until [ -d "$work/$1/ckpt/step-$2" ] || [ $SECONDS -ge $end ]; do sleep 0.005; done
}
# Waits until a run has done so many steps.
until_step() {
    local end=$((SECONDS + 120))
    while [ $SECONDS -lt $end ]; do
        [ "$(grep -c . "$work/$1/metrics.jsonl" 2>/dev/null)" -ge "$2" ] 2>/dev/null && return 0
        kill -0 $launcher 2>/dev/null || break
        sleep 0.005
    done
    fail "$1 did not come to step $2"
    return 1
}
ends() { # CODE WHAT
    wait $launcher
    local code=$?
    launcher=
    [ $code -eq "$1" ] || fail "$2: exit code $code instead of $1"
}
rank() { cut -d' ' -f$(($1 + 1)) "/proc/$launcher/task/$launcher/children"; }
field() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$work/$1/metrics.jsonl"; }
every_step_once() {
    [ "$(field "$1" step | tr '\n' ' ')" = "$(seq -s ' ' "$steps") " ] ||
        fail "$1: steps are missing in metrics.jsonl, or there twice"
}
# Losses bit for bit, and the bytes of the last checkpoint.
same() {
    cmp -s <(field "$1" loss) <(field "$2" loss) || fail "$2: other losses than $1"
    for file in "$work/$1/ckpt/step-$steps"/*.safetensors; do
        cmp "$file" "$work/$2/ckpt/step-$steps/${file##*/}" || fail "$2: other bytes than $1"
    done
    every_step_once "$2"
}
events() { grep -c "\"event\":\"$2\"" "$work/$1/events.jsonl" 2>/dev/null; }

# ---- a rank dies, and is started again ----
steps=50
train plain layout.dp=2 ckpt.every=10 || fail "the undisturbed run"
begin_held 15 again layout.dp=2 ckpt.every=10 run.restarts=1 && saved again 10 && kill -KILL "$(rank 1)"
go_on
ends 0 "one restart"
same plain again
grep -q "^resume .*/again/ckpt/step-" "$work/out" || fail "the new ranks began anew"
grep -q "^trireme: rank 1 was killed by SIGKILL at step" "$work/out" || fail "the death is not reported"
grep -q "^trireme: restart 1 of 1 from the checkpoint of step [1-9]0\$" "$work/out" ||
    fail "the restart is not told"
[ "$(events again restart)" = 1 ] || fail "the restart is not recorded"
grep -q '"rank":1,"signal":"SIGKILL","at_step":[0-9]*,"from_step":[0-9]*,"ranks":2' \
    "$work/again/events.jsonl" || fail "the record of the restart: $(cat "$work/again/events.jsonl")"

# ---- one goes silent ----
begin_held 15 silent layout.dp=2 ckpt.every=10 run.restarts=5 run.deadline_s=1.5 && kill -STOP "$(rank 0)"
go_on
ends 0 "a restart after SIGSTOP"
same plain silent
grep -q "^trireme: rank 0 .*its process is stopped (SIGSTOP)" "$work/out" || fail "who is silent is not told"

# ---- a single rank, before its first checkpoint, into a directory that holds another run's ----
steps=40
train one ckpt.every=10 || fail "the undisturbed run of one rank"
train old ckpt.every=10 run.seed=7 || fail "a run of another seed"
steps=40
mv "$work/old/metrics.jsonl" "$work/old/metrics.before" # a new one is the new run's
begin_held 2 old ckpt.every=10 run.restarts=2 && kill -KILL "$(rank 0)"
go_on
[ -f "$work/old.1/metrics.before" ] || fail "the run of another seed was not moved aside"
ends 0 "a restart of a single rank"
same one old

# ---- no restart that is of no use ----
steps=1000000
begin hopeless layout.dp=2 run.restarts=50
first=$(rank 0)
for _ in $( # every new world at once
    seq 50
); do
    for _ in $(seq 4000); do
        kill -0 $launcher 2>/dev/null || break 2
        now=$(rank 0)
        [ -n "$now" ] && [ "$now" != "$first" ] && break
        sleep 0.001
    done
    first=$now
    kill -SEGV "$now" 2>/dev/null
done
ends 1 "ranks that die at once"
grep -q "^trireme: not started again: it failed twice in a row without having done a step" \
    "$work/out" || fail "it is not told why there is no restart"
[ "$(events hopeless gave_up)" = 1 ] || fail "giving up is not recorded"
train wrong layout.dp=2 run.restarts=5 optim.kind=sgd optim.lr=1000 train.clip=0 train.max_skipped=1
[ $? -eq 1 ] || fail "numbers that are not finite: another exit code"
grep -q "^trireme: not started again: the same would happen again" "$work/out" ||
    fail "numbers that are not finite are tried again"
grep -q "^trireme: restart" "$work/out" && fail "numbers that are not finite are tried again"

# ---- fewer ranks ----
steps=40
train four layout.dp=4 layout.zero=2 ckpt.every=10 || fail "the undisturbed run of four"
begin_held 15 fewer layout.dp=4 layout.zero=2 ckpt.every=10 run.elastic=true && saved fewer 10 && kill -KILL "$(rank 2)"
go_on
ends 0 "a run that lost one of four"
grep -q "^trireme: restart from the checkpoint of step [1-9]0, with layout.dp=3 (3 ranks)" "$work/out" ||
    fail "the smaller world is not told"
[ "$(events fewer shrink)" = 1 ] || fail "the smaller world is not recorded"
grep -q "^  dp: 3" "$work/fewer/config.yaml" || fail "config.yaml has another layout"
every_step_once fewer
paste <(field four loss) <(field fewer loss) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) exit 1 }' ||
    fail "with three of four ranks the losses are others"
begin_held 15 replica layout.dp=2 layout.tp=2 ckpt.every=10 run.elastic=true && saved replica 10 && kill -KILL "$(rank 3)"
go_on
ends 0 "a run that lost one rank of a replica"
grep -q "with layout.dp=1 (2 ranks)" "$work/out" || fail "the broken replica is not given up"
every_step_once replica

# ---- asked to end ----
steps=50
stops() { # DIR [CODE]: ended well before its last step, with a checkpoint of the last
    local last
    ends "${2:-3}" "$1"
    last=$(field "$1" step | tail -n 1)
    [ "$last" -lt $steps ] || fail "$1 was not stopped"
    grep -q "^stopped after step $last of $steps" "$work/out" || fail "$1: its end is not told"
    [ -d "$work/$1/ckpt/step-$last" ] || fail "$1: no checkpoint of step $last"
    [ "$(events "$1" stop)" = 1 ] || fail "$1: its end is not recorded"
}
resumes() { # DIR SETTING ...
    train "$@" ckpt.every=1000 run.resume=true || fail "$1 does not go on"
    cmp -s <(field plain loss) <(field "$1" loss) || fail "$1: other losses after it went on"
    every_step_once "$1"
}
begin_held 3 asked layout.dp=2 && kill -USR1 $launcher
while grep -q '^ShdPnd:.*[1-9a-f]' /proc/$launcher/status 2>/dev/null; do
    sleep 0.005 # it has not passed it on
done
go_on
stops asked
resumes asked layout.dp=2
cmp "$work/plain/ckpt/step-$steps/rank-1.safetensors" "$work/asked/ckpt/step-$steps/rank-1.safetensors" ||
    fail "after SIGUSR1 and resume the state is another"
begin_held 3 one_rank layout.dp=2 && kill -TERM "$(rank 1)" # only this one knows
go_on
stops one_rank
held 3
arguments group layout.dp=2
setsid "${hold[@]}" "$trireme" "${args[@]}" >"$work/out" 2>&1 </dev/null &
launcher=$!
until_step group 3 && kill -TERM -- -$launcher # everybody, as Slurm does
go_on
stops group

# Ranks that somebody else started; only the second hears of it.
port=$((20000 + RANDOM % 12000))
held 3
for n in 1 0; do
    arguments joined layout.dp=2
    RANK=$n WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${hold[@]}" "$trireme" "${args[@]}" \
        >"$work/out.$n" 2>&1 &
    joined[n]=$!
done
launcher=${joined[0]}
until_step joined 3 && kill -USR1 "${joined[1]}"
go_on
mv "$work/out.0" "$work/out"
stops joined
wait "${joined[1]}"
[ $? -eq 3 ] || fail "the rank that was asked: another exit code than 3"

# ---- the time is up ----
steps=1000000
train late layout.dp=2 run.max_minutes=0.01
code=$?
[ $code -eq 3 ] || fail "after run.max_minutes: exit code $code"
grep -q "^stopped after step .*(run.max_minutes is over)" "$work/out" || fail "the time limit is not told"
ls "$work/late/ckpt" | grep -q "^step-" || fail "the time limit leaves no checkpoint"

[ $failures -eq 0 ] && echo "restarts, fewer ranks, early ends: fine"
