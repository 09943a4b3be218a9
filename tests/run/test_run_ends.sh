#!/usr/bin/env bash
# How a training run ends, and what it leaves when it does: exit codes, events.jsonl, and output that
# nobody reads. No run ends because of who reads its output.
# Argument: the build directory.
set -u
build=$1
trireme=$build/trireme
shims=$(realpath "$build")/tests/helpers
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-ends-XXXXXX")
run=
trap '[ -n "$run" ] && kill -KILL $run 2>/dev/null; rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN TORCHELASTIC_RUN_ID
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
arguments() { # DIR [SETTING ...] into args
    local dir=$1 setting
    shift
    args=(train recipes/tiny.yaml)
    for setting in model.num_layers=1 train.steps=20 run.save=false run.threads=1 \
        run.dir="$work/$dir" "$@"; do
        args+=(--set "$setting")
    done
}
# Jobs in the background of a script have SIGINT ignored, which a run respects.
begin() {
    arguments "$@"
    env --default-signal=INT "$trireme" "${args[@]}" >"$work/out" 2>&1 </dev/null &
    run=$!
}
# A run that stands at step 3 until a reader has gone: else the pipe may take all that it writes.
hold=(env HOLD_STEP=3 HOLD_UNTIL="$work/go" LD_PRELOAD="$shims/libhold-shim.so")
read_lines() { # NUMBER, and then no more
    head -n "$1" >"$work/out"
    exec <&-
    touch "$work/go"
}
until_step() { # DIR STEP
    local end=$((SECONDS + 120))
    while [ $SECONDS -lt $end ]; do
        [ "$(grep -c . "$work/$1/metrics.jsonl" 2>/dev/null)" -ge "$2" ] 2>/dev/null && return 0
        kill -0 $run 2>/dev/null || break
        sleep 0.005
    done
    fail "$1 did not come to step $2: $(cat "$work/out")"
    return 1
}
ends() { # CODE WHAT
    wait $run
    local code=$?
    run=
    [ $code -eq "$1" ] || fail "$2: exit code $code instead of $1: $(tail -n 5 "$work/out")"
}
rank() { cut -d' ' -f$(($1 + 1)) "/proc/$run/task/$run/children"; }
# Without "slow": on a busy machine one of two equal ranks may really be slower.
events() { sed -n -e '/"event":"slow"/d' -e 's/.*"event":"\([^"]*\)".*/\1/p' "$work/$1/events.jsonl" | tr '\n' ' '; }
records() { # DIR "EVENT EVENT ..." [PATTERN ...]: these events, and lines that match
    [ "$(events "$1")" = "$2 " ] || fail "$1 recorded \"$(events "$1")\" instead of \"$2\""
    local dir=$1 pattern
    shift 2
    for pattern in "$@"; do
        grep -q -- "$pattern" "$work/$dir/events.jsonl" ||
            fail "$dir: no event like $pattern in $(cat "$work/$dir/events.jsonl")"
    done
}
steps() { grep -c . "$work/$1/metrics.jsonl"; }

# ---- a run to its end: what is recorded ----
arguments plain layout.dp=2 ckpt.every=10
"$trireme" "${args[@]}" --set data.record=false >"$work/out" 2>&1 || fail "a plain run"
records plain "start end" \
    "^{\"time\":\"20[0-9-]*T[0-9:]*Z\",\"event\":\"start\",\"host\":\"$(uname -n)\",\"pid\":[0-9]" \
    "\"program\":\"$("$trireme" --version | cut -d' ' -f2)\",\"command\":\"[^\"]* train recipes/tiny.yaml --set " \
    '"layout":{"dp":2,"cp":1,"tp":1,"pp":1},"from_step":0,"ranks":2' \
    '"event":"end","steps":20,"saved":20,"exit_code":0'

# ---- nobody reads ----
for dp in 1 2; do
    arguments head$dp layout.dp=$dp train.log_every=1 run.restarts=3 ckpt.every=10
    rm -f "$work/go"
    "${hold[@]}" "$trireme" "${args[@]}" 2>"$work/err" | read_lines 2
    code=${PIPESTATUS[0]}
    [ "$code" = 0 ] || fail "head took two lines of $dp ranks: exit code $code"
    [ -s "$work/err" ] && fail "a reader that has gone is told: $(cat "$work/err")"
    records head$dp "start note end" 'note".*Broken pipe' '"exit_code":0'
    [ "$(steps head$dp)" = 20 ] && [ -d "$work/head$dp/ckpt/step-20" ] || fail "it is not done"
    grep -q "^step 20/20" "$work/head$dp/log/rank-0.log" || fail "the log of $dp ranks has not all"
done
arguments closed layout.dp=2
"$trireme" "${args[@]}" >&- 2>&- || fail "a closed output: exit code $?"
records closed "start note end" 'note".*Bad file descriptor'
[ "$(steps closed)" = 20 ] || fail "a closed output: not every step has its line"
grep -q '^model ' "$work/closed/metrics.jsonl" && fail "the output went into a file of the run"
arguments full
"$trireme" "${args[@]}" >/dev/full 2>"$work/err" || fail "a full disk behind the output: exit code $?"
records full "start note end" 'note".*No space left'
grep -q "note: the output cannot be written" "$work/err" || fail "a full disk is not told"
for verb in settings "plan recipes/tiny.yaml"; do
    $trireme $verb >/dev/full 2>"$work/err"
    [ $? -eq 1 ] && grep -q "cannot write the output" "$work/err" || fail "$verb into a full disk"
    {
        $trireme $verb --help
        $trireme explain recipes/tiny.yaml --all
    } 2>"$work/err" | head -n 1 >"$work/out"
    [ -s "$work/err" ] && fail "$verb: head is told of: $(cat "$work/err")"
done

# A reader that stops reading keeps nobody from hearing a signal, and from saving.
mkfifo "$work/pipe"
exec 7<>"$work/pipe"
arguments stuck train.steps=1000000 train.log_every=1 layout.dp=2
"$trireme" "${args[@]}" >"$work/pipe" 2>&1 7>&- &
run=$!
until_step stuck 400 && kill -TERM $run # far more than a pipe takes
end=$((SECONDS + 60))
until grep -q '"stop"' "$work/stuck/events.jsonl" && ls "$work/stuck/ckpt" | grep -q "^step-"; do
    [ $SECONDS -lt $end ] || break
    sleep 0.005
done
ls "$work/stuck/ckpt" | grep -q "^step-" || fail "nothing is saved while nobody reads"
exec 7<&- # and now it has gone
ends 3 "SIGTERM while nobody reads"

# ---- Ctrl-C, with a tee that it ends first ----
arguments tee train.steps=1000000 train.log_every=1000000 layout.dp=2 # prints nothing on the way
env --default-signal=INT cat <"$work/pipe" >"$work/out" &
reader=$!
env --default-signal=INT "$trireme" "${args[@]}" >"$work/pipe" 2>&1 &
run=$!
until_step tee 3 && {
    kill -INT $reader
    wait $reader
    kill -INT $run
}
ends 130 "Ctrl-C"
ls "$work/tee/ckpt" | grep -q "^step-" || fail "Ctrl-C saved nothing"
records tee "start stop note end" '"stop","at_step":[0-9]*,"reason":"Ctrl-C"' '"end".*"exit_code":130'

# A loop of a shell ends with it: the process dies of the signal.
begin single train.steps=1000000
until_step single 3 && kill -INT $run
ends 130 "Ctrl-C of one rank"
records single "start stop end" '"exit_code":130'
grep -q "^stopped after step [0-9]* of 1000000 (Ctrl-C)" "$work/out" || fail "Ctrl-C is not told"
grep -q "Ctrl-C: finishing the step, then saving" "$work/out" || fail "Ctrl-C is not heard at once"

# ---- failures ----
begin killed layout.dp=2 train.steps=1000000 ckpt.every=5
until_step killed 12 && kill -KILL "$(rank 1)"
ends 1 "a rank that was killed"
records killed "start failed end" '"failed","rank":1,"signal":"SIGKILL","at_step":[1-9]' \
    '"reason":"rank 1 was killed by SIGKILL at step' '"end".*"exit_code":1'
begin killed layout.dp=2 train.steps=1000000 ckpt.every=5 run.resume=true
until_step killed 20 && kill -KILL $run # the launcher: nobody is left to say so
ends 137 "a launcher that was killed"
arguments killed layout.dp=2 ckpt.every=5 run.resume=true train.steps=30
"$trireme" "${args[@]}" >"$work/out" 2>&1 || fail "going on at once after the launcher was killed: $(cat "$work/out")"
records killed "start failed end start failed start end" 'failed","reason":"the start before this one ended without'
# A rank that outlives its launcher for a moment: it holds the lock, and whoever took it is gone.
mkdir -p "$work/held"
(
    exec 8<"$work/held"
    flock 8
    sleep 0.5 &
)
arguments held
"$trireme" "${args[@]}" >"$work/out" 2>&1 || fail "a lock that is let go a moment later: $(cat "$work/out")"
flock "$work/killed" "$trireme" train recipes/tiny.yaml --set run.dir="$work/killed" >"$work/out" 2>&1
[ $? -eq 1 ] && grep -q "another run is at work there" "$work/out" || fail "two runs in a directory"
begin lone train.steps=1000000
until_step lone 3 && kill -KILL "$(rank 0)"
ends 1 "a single rank that was killed"
records lone "start failed end" '"failed","rank":0,"signal":"SIGKILL"'
grep -q "^trireme: rank 0 was killed by SIGKILL at step" "$work/out" || fail "the death of one rank is not told"
begin early run.restarts=1 train.steps=1000000
end=$((SECONDS + 60))
until [ -e "$work/early/log/rank-0.log" ] && [ -n "$(rank 0)" ] || [ $SECONDS -ge $end ]; do sleep 0.001; done
kill -KILL "$(rank 0)"
until grep -q '"restart"' "$work/early/events.jsonl" 2>/dev/null || [ $SECONDS -ge $end ]; do sleep 0.005; done
until_step early 3 && kill -USR1 $run
ends 3 "a first attempt that failed before its first step"
records early "start failed restart stop end" '"event":"restart","rank":0,"signal":"SIGKILL"'
arguments nan run.restarts=2 optim.kind=sgd optim.lr=1000 train.clip=0 train.max_skipped=1
"$trireme" "${args[@]}" >"$work/out" 2>&1
[ $? -eq 1 ] || fail "numbers that are not finite: another exit code"
records nan "start spike failed gave_up end" '"failed".*not finite' '"gave_up".*the same would happen again'
port=$((20000 + RANDOM % 12000))
for n in 1 0; do # ranks that somebody else started: rank 0 keeps the record
    arguments joined layout.dp=2 train.steps=1000000
    RANK=$n WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$trireme" "${args[@]}" \
        >"$work/out" 2>&1 &
    joined[n]=$!
done
run=${joined[0]}
until_step joined 3 && kill -KILL "${joined[1]}"
ends 1 "a rank of others that was killed"
wait "${joined[1]}"
records joined "start failed end" '"failed","rank":1.*ended without a word' '"exit_code":1'

port=$((port + 1))
arguments others layout.dp=2 train.log_every=1
RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$trireme" "${args[@]}" >"$work/out" 2>&1 &
rm -f "$work/go"
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${hold[@]}" "$trireme" "${args[@]}" 2>&1 | read_lines 1
[ "${PIPESTATUS[0]}" = 0 ] && wait $! || fail "a rank of others that nobody reads: exit code"
records others "start note end" 'note".*Broken pipe'

# ---- other verbs: at once, and nothing half done stays ----
yes "the quick brown fox jumps over the lazy dog" | head -c 100000 >"$work/text.txt"
for signal in INT KILL; do # on a disk so slow that it is not done before
    env --default-signal=INT DISK_PATH= DISK_PAUSE_MS=60000 LD_PRELOAD="$shims/libdisk-shim.so" "$trireme" data prepare "$work/text.txt" --tokenizer bytes --out "$work/tokens" \
        --set run.threads=1 >"$work/out" 2>&1 &
    run=$!
    end=$((SECONDS + 60))
    until [ -n "$(ls -A "$work" | grep '^\.trireme-.*tmp$')" ] || [ $SECONDS -ge $end ]; do sleep 0.005; done
    kill -$signal $run
    ends $([ $signal = INT ] && echo 130 || echo 137) "data prepare and SIG$signal"
    end=$((SECONDS + 60))
    while [ -n "$(ls -A "$work" | grep '^\.trireme-')" ] && [ $SECONDS -lt $end ]; do sleep 0.005; done
    [ -z "$(ls -A "$work" | grep '^\.trireme-')" ] || fail "data prepare left a half result after SIG$signal"
    [ -e "$work/tokens" ] && fail "data prepare was done before SIG$signal came"
done
"$trireme" data prepare "$work/plain/config.yaml" --tokenizer bytes --out "$work/tokens" 2>"$work/err" | :
[ "${PIPESTATUS[0]}" = 0 ] && [ ! -s "$work/err" ] && [ -e "$work/tokens/tokens.json" ] ||
    fail "data prepare without a reader: $(cat "$work/err")"

# ---- refused ----
arguments refused model.from="$work/plain/config.yaml"
"$trireme" "${args[@]}" >"$work/out" 2>&1
[ $? -eq 2 ] || fail "wrong input: another exit code"
[ -e "$work/refused" ] && fail "a command with a mistake left a run"
"$trireme" --help | grep -q "^  130  *Ctrl-C" || fail "trireme --help does not list the exit codes"

[ $failures -eq 0 ] && echo "ends of runs, and what they leave: fine"
