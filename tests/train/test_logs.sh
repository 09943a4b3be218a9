#!/usr/bin/env bash
# Files for other tools (run.logs) as a run writes them: the numbers of metrics.jsonl, also after a
# resume; what cannot be written is a warning, and the run is done all the same.
set -u
build=$1
trireme=$build/trireme
tmp=$(mktemp -d "${TMPDIR:-/tmp}/trireme-test-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
fail() {
    echo "$*"
    cat "$tmp/out" 2>/dev/null
    exit 1
}
all=tensorboard,wandb,csv,prometheus
train() { # directory, then settings
    local dir=$1
    shift
    "$trireme" train recipes/tiny.yaml --set train.steps=12 --set train.eval_every=5 --set ckpt.every=4 \
        --set run.save=false --set run.device=cpu --set run.threads=1 --set run.dir="$tmp/$dir" "$@" >"$tmp/out" 2>&1
}
# step, loss, lr, tokens, time of every step.
of_csv() { awk -F, -v RS='\r\n' 'NR > 1 { print $1, $2, $4, $5, $NF }' "$tmp/$1/metrics.csv"; }
of_jsonl() {
    sed 's/.*"step":\([^,]*\),"loss":\([^,]*\),.*"lr":\([^,]*\),"tokens":\([^,]*\),.*"time":\([^,]*\),.*/\1 \2 \3 \4 \5/' \
        "$tmp/$1/metrics.jsonl"
}
same() {
    [ "$(of_csv a)" = "$(of_jsonl a)" ] || fail "metrics.csv is not metrics.jsonl $1: $(of_csv a)"
    [ "$(of_csv a | cut -d' ' -f1 | tr '\n' ' ')" = "$(seq -s ' ' 12) " ] || fail "not every step once $1"
    grep -qx "trireme_step{run=\"a\"} 12" "$tmp/a/metrics.prom" || fail "metrics.prom is not of the last step $1"
    grep -qx "trireme_loss{run=\"a\"} $(of_jsonl a | tail -n 1 | cut -d' ' -f2)" "$tmp/a/metrics.prom" ||
        fail "metrics.prom has not the last loss $1"
}

train a --set run.logs=$all || fail "the run failed"
same "after a run"
[ "$(find "$tmp/a/tensorboard" -name 'events.out.tfevents.*' | wc -l)" = 1 ] || fail "no event file"
cat "$tmp"/a/wandb/offline-run-*/run-*.wandb | grep -aq '"gpt2"' || fail "the run of W&B has no settings"

rm -r "$tmp/a/ckpt/step-8" "$tmp/a/ckpt/step-12"
train a --set run.logs=$all --set run.resume=true || fail "the run did not go on"
same "after a resume"
[ "$(find "$tmp/a/tensorboard" -name 'events.out.tfevents.*' | wc -l)" = 2 ] || fail "no event file for the second start"
[ "$(find "$tmp/a/wandb" -name 'run-*.wandb' | wc -l)" = 1 ] || fail "a second run of W&B"

mkdir "$tmp/b"
: >"$tmp/b/tensorboard"
train b --set run.logs=csv,tensorboard || fail "a file that cannot be written failed the run"
grep -q "warning.*tensorboard/.*lines will be missing" "$tmp/out" || fail "no warning while the run goes on"
grep -q "warning.*tensorboard/ lacks 12 lines" "$tmp/out" || fail "the end does not count what is missing"
[ "$(wc -l <"$tmp/b/metrics.csv")" = 13 ] || fail "the other file suffered"

train c --set run.logs=csv,mlflow
[ $? = 2 ] || fail "a word that is no format is not wrong input"
grep -q 'run.logs: "mlflow".*tensorboard, wandb, csv, prometheus' "$tmp/out" || fail "the list of formats is missing"
[ ! -e "$tmp/c" ] || fail "a refused run left something"
