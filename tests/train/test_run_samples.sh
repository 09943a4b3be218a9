#!/usr/bin/env bash
# Text that a model writes while it is trained: the same in every layout and after resuming, and the
# training does not notice. Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d /tmp/trireme-samples-XXXXXX)
failures=0
trap 'rm -rf "$tmp"' EXIT
recipe=$PWD/recipes/tiny.yaml
cd "$tmp" || exit 1

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    tail -n 5 out
}

small=(run.device=cpu run.threads=1 model.num_layers=2 model.dim=32 model.num_heads=4 model.vocab=256
    data.seq_len=16 train.batch=4 train.steps=6 train.eval_batches=1 optim.lr=1e-2)
samples=(run.sample_every=2 run.sample_tokens=20 run.sample_prompt=abc)

run() { # exit code, name, settings ...
    local want=$1 name=$2 words=() s code
    shift 2
    for s in "${small[@]}" "$@"; do words+=(--set "$s"); done
    "$trireme" train "$recipe" "${words[@]}" --set "run.dir=$name" >out 2>&1
    code=$?
    [ $code = "$want" ] || fail "$name ended with $code, not $want"
}
texts() { sed 's/,"time".*//' "$1/samples.jsonl"; }

run 0 plain
run 0 with "${samples[@]}" ckpt.every=3
[ "$(texts with | wc -l)" = 3 ] || fail "not three texts: $(texts with)"
[ "$(texts with | sed 's/.*"tokens":\[\(.*\)\]/\1/' | awk -F, '{ print NF }' | sort -u)" = 20 ] || fail "not 20 tokens each"
texts with | grep -q '^{"step":4,"prompt":"abc","text":"' || fail "no text of step 4"
[ "$(texts with | cut -d '"' -f 8- | sort -u | wc -l)" = 3 ] || fail "the same text thrice"
grep -q '^step 4  writes: abc' out || fail "the text is not shown"
grep -q $'[\001-\010\013-\037]' out && fail "the text can steer a terminal"
cmp -s plain/weights.safetensors with/weights.safetensors || fail "samples change the weights"

# Tensor parallelism, a pipeline and ZeRO 3 write the same: a token is drawn from equal logits.
run 0 sharded "${samples[@]}" layout.dp=2 layout.zero=3 layout.tp=2
run 0 sharded-plain layout.dp=2 layout.zero=3 layout.tp=2
cmp -s sharded/weights.safetensors sharded-plain/weights.safetensors || fail "samples change the weights of shards"
run 0 pipeline "${samples[@]}" layout.pp=2 layout.microbatches=2
for name in sharded pipeline; do
    [ "$(texts $name)" = "$(texts with)" ] || fail "$name writes something else: $(texts $name)"
done

# Resuming writes each text once, and the same. Greedy texts are others.
run 0 halves "${samples[@]}" ckpt.every=3 train.steps=4
rm -rf halves/ckpt/step-4 # so that step 4 comes again
run 0 halves "${samples[@]}" ckpt.every=3 run.resume=true
[ "$(texts halves)" = "$(texts with)" ] || fail "other texts after resuming: $(texts halves)"
run 0 greedy "${samples[@]}" run.sample_temperature=0
[ "$(texts greedy)" != "$(texts with)" ] || fail "run.sample_temperature does nothing"

run 2 mlp model.kind=mlp run.sample_every=2
grep -q 'run.sample_every asks for text, and this model (model.kind mlp' out || fail "an MLP is to write text"
run 2 bert model.kind=bert model.task=mlm data.task=mlm run.sample_every=2
grep -q 'does not predict the next token; set run.sample_every=0' out || fail "BERT is to write text"
mkdir broken && mkdir broken/samples.jsonl
run 2 broken "${samples[@]}"

[ $failures -eq 0 ] || exit 1
echo "test_run_samples: fine"
