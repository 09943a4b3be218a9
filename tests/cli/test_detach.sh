#!/usr/bin/env bash
# train --detach and runs attach: when they return, with which exit code, and what goes on meanwhile.
# Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d /tmp/trireme-detach-XXXXXX)
failures=0 pids=()
finish() {
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    rm -rf "$tmp"
}
trap finish EXIT
recipe=$PWD/recipes/tiny.yaml
cd "$tmp" || exit 1

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 1500 out
}

small=(--set run.device=cpu --set run.threads=1 --set model.num_layers=1 --set model.dim=32 --set data.seq_len=16
    --set train.batch=4 --set train.steps=100000 --set train.eval_batches=1 --set run.save=false --set run.pace=F=5)

start() { # name, arguments ...: detached; its process is in $pid
    local name=$1
    shift
    timeout 60 "$trireme" train "$recipe" "${small[@]}" --name "$name" --detach "$@" >out 2>&1 || fail "$name: --detach ended with $?"
    pid=$(sed -n 's/.*as process \([0-9]*\)$/\1/p' out)
    pids+=("${pid:-0}")
    [ -s "runs/$name/metrics.jsonl" ] || [ -f "runs/$name/metrics.jsonl" ] || fail "$name had not begun"
}
state() { "$trireme" runs | awk -v run="runs/$1" '$1 == run { print $2 }'; }

start one
[ "$(ps -o sid= -p "$pid" | tr -d ' ')" = "$pid" ] || fail "it is not in a session of its own"
grep -q "\"event\":\"start\",.*\"pid\":$pid," runs/one/events.jsonl || fail "events.jsonl has another process"
[ "$(state one)" = running ] || fail "the run is $(state one)"
grep -q 'trireme runs attach runs/one ' out || fail "the command does not say how to look"

# Whoever follows it may go.
timeout -s INT 2 "$trireme" runs attach one >out 2>&1
grep -q "^runs/one: process $pid is at work" out || fail "attach does not say what is at work"
grep -q '^step [0-9]*/100000  loss' out || fail "attach shows no steps"
grep -q '^runs/one: goes on' out || fail "attach does not say that the run goes on"
[ "$(state one)" = running ] || fail "Ctrl-C ended the run: $(state one)"

# Whoever stays learns how it ended.
"$trireme" runs attach one >out 2>&1 &
follower=$!
"$trireme" runs stop one >/dev/null 2>&1 || fail "runs stop ended with $?"
wait $follower
[ $? = 3 ] || fail "attach to a run that was stopped ended otherwise"
grep -q '^stopped after step [0-9]* of 100000 (asked by SIGTERM)' out || fail "attach misses the last lines"
grep -q '^runs/one: stopped after step [0-9]*$' out || fail "attach does not say how it ended"
"$trireme" runs attach one >out 2>&1
[ $? = 3 ] || fail "attach to a run that has ended does not have its exit code"

start two
kill -KILL "$pid"
timeout 30 "$trireme" runs attach two >out 2>&1
[ $? = 1 ] || fail "attach to a run that was killed ended otherwise"
grep -q 'runs/two: ended without a word' out || fail "attach does not say that it was killed"

# What goes wrong before the first step ends the command: before the directory is taken, and after.
"$trireme" train "$recipe" --name three --detach --set layout.pp=64 >out 2>&1
[ $? = 2 ] || fail "a wrong layout is no error of --detach"
[ ! -e runs/three ] || fail "a command that was refused leaves a directory"
"$trireme" train "$recipe" "${small[@]}" --name one --detach --resume --set train.batch=6 >out 2>&1
[ $? = 2 ] || fail "a run that cannot be resumed ended with another exit code"
grep -q 'train.batch' out || fail "the error is not shown"
[ "$(wc -l <runs/one/output.log)" -gt 2 ] || fail "output.log was replaced"
"$trireme" train "$recipe" --detach --dry-run >out 2>&1
[ $? = 2 ] || fail "--dry-run is detached"
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$trireme" train "$recipe" --detach --set layout.dp=2 >out 2>&1
[ $? = 2 ] || fail "a rank of others is detached"

# A whole run, of two ranks.
"$trireme" train "$recipe" "${small[@]}" --name four --detach --set train.steps=8 --set layout.dp=2 >out 2>&1 || fail "two ranks ended with $?"
timeout 60 "$trireme" runs attach four >out 2>&1 || fail "attach to a run that is done ended with $?"
grep -q '^written to runs/four' out || fail "attach misses the end"
"$trireme" runs attach nobody >out 2>&1
[ $? = 2 ] || fail "attach to nothing"

[ $failures -eq 0 ] || exit 1
echo "test_detach: fine"
