#!/usr/bin/env bash
# `train` typed again: the run that is in run.dir moves aside as a whole, and nothing that a person
# has put anywhere is replaced.
# Argument: the build directory.
set -u
trireme=$(realpath "$1")/trireme
repo=$PWD
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-aside-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

train() { # settings; the output is in out
    local set=()
    for s in "$@"; do set+=(--set "$s"); done
    "$trireme" train "$repo/recipes/tiny.yaml" --set model.num_layers=1 --set model.dim=32 \
        --set data.seq_len=16 --set train.eval_batches=1 --set train.steps=2 "${set[@]}" >out 2>&1
}

must_train() {
    train "$@" || fail "train $*: $(tail -n 2 out)"
}

refused() { # what the message must say, settings
    local message=$1
    shift
    train "$@"
    [ $? -eq 2 ] || fail "train $*: not refused"
    grep -q "$message" out || fail "train $*: the message is $(tail -n 1 out)"
}

# ---- a run, and another ----
yes "some text to learn from, line after line" | head -n 400 >text.txt
must_train run.dir=runs/demo ckpt.every=1 data.source=text.txt data.tokenizer=bpe:300 model.vocab=300
echo "what I saw" >runs/demo/notes.txt
find runs/demo -type f -exec cksum {} + | sort -k3 >before
must_train run.dir=runs/demo/ data.source=text.txt data.tokenizer=bpe:300 model.vocab=300
grep -q '^note .*the earlier run in runs/demo/ is now runs/demo.1' out || fail "where the run went is not told: $(head -n 2 out)"
(cd runs && mv demo new && mv demo.1 demo)
find runs/demo -type f -exec cksum {} + | sort -k3 | cmp -s - before || fail "the earlier run is not as it was"
(cd runs && mv demo demo.1 && mv new demo)
[ -e runs/demo/ckpt ] || [ -e runs/demo/notes.txt ] && fail "the new run has something of the earlier one"
[ "$(wc -l <runs/demo/metrics.jsonl)" = 2 ] || fail "the new run has no record of its own"
tokens=$(cd runs/demo && ls -d data/*/tokens.json)
[ "runs/demo/$tokens" -ef "runs/demo.1/$tokens" ] || fail "the text was prepared again"

# ---- several ranks, of others: one of them moves ----
port=$((20000 + RANDOM % 20000))
for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$trireme" train \
        "$repo/recipes/tiny.yaml" --set model.dim=32 --set train.steps=2 --set layout.dp=2 \
        --set run.dir=runs/demo >out.$rank 2>&1 &
done
wait
[ -f runs/demo/weights.safetensors ] || fail "two ranks of others: $(tail -n 2 out.0 out.1)"
[ "$(ls runs | tr '\n' ' ')" = "demo demo.1 demo.2 " ] || fail "two ranks moved more than the one run: $(ls runs)"
[ "$(cat out.0 out.1 | grep -c 'is now runs/demo.2')" = 1 ] || fail "which run was moved is not told once"

# ---- auto: a run without checkpoints moves, one with them goes on ----
must_train run.dir=runs/demo run.resume=auto ckpt.every=1
must_train run.dir=runs/demo run.resume=auto ckpt.every=1 train.steps=3
[ "$(ls runs | tr '\n' ' ')" = "demo demo.1 demo.2 demo.3 " ] || fail "run.resume=auto: $(ls runs)"

# ---- what is not a run's ----
mkdir mine
echo "name: of another program" >mine/config.yaml
refused 'mine/config.yaml: is there, and a run would replace it' run.dir=mine
mv mine/config.yaml mine/weights.safetensors
refused 'mine/weights.safetensors: is there' run.dir=mine run.resume=auto
[ "$(cat mine/weights.safetensors)" = "name: of another program" ] || fail "a person's file was replaced"
[ "$(ls)" = "$(printf '%s\n' before mine out out.0 out.1 runs text.txt)" ] || fail "a person's folder was moved: $(ls)"
mv mine/weights.safetensors mine/notes
must_train run.dir=mine
[ -f mine/notes ] || fail "a person's file is gone"

# ---- what is not moved ----
mkdir -p disk/here
ln -s ../disk/here runs/link
must_train run.dir=runs/link
must_train run.dir=runs/link
[ -L runs/link ] && [ -f disk/here/metrics.jsonl ] && [ -f disk/here.1/metrics.jsonl ] ||
    fail "the directory behind a link: $(ls -l runs/link disk)"
refused 'model.from is .*part of the earlier run' run.dir=mine model.from=mine
cp -r mine project
mkdir project/.git
refused 'it holds the repository of a project' run.dir=project
cd mine && refused 'the working directory is in it; .*run.resume=true.*another run.dir.*delete' run.dir=.
cd .. && [ ! -e mine.1 ] && [ ! -e project.1 ] || fail "something was moved after all: $(ls)"

# ---- a run that is at work ----
"$trireme" train "$repo/recipes/tiny.yaml" --set run.dir=live --set train.steps=100000000 >live.out 2>&1 &
live=$!
end=$((SECONDS + 120))
until [ -s live/metrics.jsonl ] || [ $SECONDS -ge $end ]; do sleep 0.01; done
train run.dir=live && fail "a run that is at work was not left alone"
grep -q 'another run is at work there' out || fail "a run that is at work: $(tail -n 1 out)"
[ ! -e live.1 ] || fail "a run that is at work was moved"
kill -KILL $live
wait $live 2>/dev/null
# It could not say that it ended; whoever moves it aside does.
must_train run.dir=live
grep -q '"event":"failed".*ended without a word' live.1/events.jsonl ||
    fail "a killed run has no end: $(cat live.1/events.jsonl)"

exit $((failures > 0))
