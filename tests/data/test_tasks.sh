#!/usr/bin/env bash
# Epochs, labelled texts, masked tokens and instructions from the command line. Argument: the build
# directory. Run from the root of the repository.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-tasks-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

small=(model.num_layers=1 model.dim=16 model.num_heads=2 model.dropout=0 train.batch=8 train.steps=0
    train.epochs=2 run.threads=1)

run() { # name, recipe, then settings
    local name=$1 recipe=$2 s set=()
    shift 2
    for s in "${small[@]}" "$@"; do set+=(--set "$s"); done
    if ! "$trireme" train "$recipe" --set run.dir="$work/$name" "${set[@]}" \
        >"$work/$name.out" 2>&1; then
        fail "$name did not run"
        tail -n 5 "$work/$name.out"
    fi
}

refused() { # text, then settings
    local text=$1 s set=()
    shift
    for s in "$@"; do set+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml --set run.dir="$work/refused" "${set[@]}" \
        >"$work/out" 2>"$work/err"
    [ $? -eq 2 ] || fail "$* ended with another code than 2"
    grep -qF -- "$text" "$work/err" || fail "$* does not say \"$text\": $(cat "$work/err")"
}

says() { # name, pattern
    grep -qE -- "$2" "$work/$1.out" || fail "$1 does not say \"$2\": $(cat "$work/$1.out")"
}

field() { sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$work/$1/metrics.jsonl"; }

# Largest relative difference of a field over all steps, at most the limit.
close() { # name, other, field, limit
    local worst
    worst=$(paste <(field "$1" "$3") <(field "$2" "$3") | awk -v limit="$4" '
        NF != 2 { missing = 1 }
        { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        END { print (NR < 1 || missing) ? "missing values" : (worst > limit) ? worst : "ok" }')
    [ "$worst" = ok ] || fail "$3 of $1 and $2 differ by $worst, more than $4"
}

# ---- epochs: 19 rows at 8 a step, on one to three ranks ----

for i in $(seq 1 20); do
    if [ $((i % 2)) = 0 ]; then label=even; else label=odd; fi
    echo "{\"text\": \"the number $i is what it is\", \"label\": \"$label\"}"
done >"$work/numbers.jsonl"
classify=(model.kind=bert model.vocab=0 data.task=classify data.source="$work/numbers.jsonl"
    data.tokenizer=tests/fixtures/tokenizer_wordpiece.json)
for dp in 1 2 3; do
    run numbers-$dp recipes/tiny.yaml "${classify[@]}" layout.dp=$dp data.record=true
done
says numbers-1 '^data    20 labelled texts, 2 labels: even 50%, odd 50%, 19 rows of 64, 1 more'
says numbers-1 '^batch .*(2 epochs of 3 steps for 19 rows)'
says numbers-1 '^step 6/6 '
for k in 1 2; do
    says numbers-1 "^\[epoch $k/2\] loss [0-9.]+  held-out loss [0-9.]+  accuracy [0-9.]+%$"
done
[ "$(grep -c '"epoch_loss"' "$work/numbers-1/metrics.jsonl")" = 2 ] || fail "epochs in the metrics"
for dp in 2 3; do
    close numbers-1 numbers-$dp loss 1e-5
    close numbers-1 numbers-$dp grad_norm 1e-4
    close numbers-1 numbers-$dp epoch_loss 1e-5
    close numbers-1 numbers-$dp tokens 0
done
for dp in 1 2 3; do
    [ "$(cat "$work/numbers-$dp"/samples/rank-*.jsonl | sed 's/.*"samples":\[\([^]]*\)\].*/\1/' |
        tr ',' '\n' | grep . | sort -n | tr '\n' ' ')" = "$(seq 0 37 | tr '\n' ' ')" ] ||
        fail "the samples of $dp ranks are not 0 to 37, each once"
    [ "$(ls "$work/numbers-$dp/samples" | wc -l)" = "$dp" ] || fail "$dp ranks, but other records"
done

# A run directory is a recipe, in which labels have names and numbers.
grep -q 'labels: "even;odd"' "$work/numbers-1/config.yaml" || fail "no names of labels"
run again "$work/numbers-1"
close numbers-1 again loss 0
echo '{"text": "one", "label": "prime"}' >>"$work/numbers.jsonl"
"$trireme" train "$work/numbers-1" --set run.dir="$work/other" >"$work/out" 2>"$work/err"
grep -qF "numbers.jsonl, line 21: the label \"prime\"" "$work/err" || fail "an unknown label passed"

# ---- steps and epochs: the smaller ends it ----

head -c 2000 recipes/demo.yaml >"$work/text.txt"
run both recipes/tiny.yaml data.source="$work/text.txt" train.steps=2
says both 'train.steps ends it earlier'
says both '^step 2/2 '
grep -q epoch_loss "$work/both/metrics.jsonl" && fail "an epoch of two steps"
refused "train.epochs is 2, but this data has no epochs" train.epochs=2

# ---- instructions, packed and not, on several ranks ----

for pack in true false; do
    instruct=(data.task=instruct data.source=examples/instructions.jsonl data.pack=$pack
        data.seq_len=80 train.epochs=1 train.batch=60
        'data.template={instruction} {input}\n{output}')
    run instruct-$pack recipes/tiny.yaml "${instruct[@]}"
    run instruct-$pack-2 recipes/tiny.yaml "${instruct[@]}" layout.dp=2 layout.microbatches=2
    close instruct-$pack instruct-$pack-2 loss 1e-5
    close instruct-$pack instruct-$pack-2 grad_norm 1e-4
done
# Documents do not see each other: the answers' mean loss before training is the same, packed or not.
run flat recipes/tiny.yaml "${instruct[@]}" data.pack=false train.batch=400 data.eval_fraction=0
run packed recipes/tiny.yaml "${instruct[@]}" data.pack=true train.batch=400 data.eval_fraction=0
close flat packed loss 1e-5
"$trireme" generate "$work/instruct-true" --set generate.tokens=3 --set generate.prompt=x \
    >"$work/out" 2>&1 || fail "no text after instructions: $(cat "$work/out")"
refused "data.tokenizer is bpe:300, which is made from plain text" "${instruct[@]}" model.vocab=0 \
    data.tokenizer=bpe:300
refused "data.task is instruct, but data.source is synthetic" data.task=instruct
refused "data.task is instruct, which trains a model.task of lm" data.task=instruct \
    model.task=classify

# ---- masked tokens ----

mlm=(model.kind=bert model.vocab=0 data.task=mlm data.source="$work/text.txt" data.seq_len=32
    data.tokenizer=tests/fixtures/tokenizer_wordpiece.json)
run mlm recipes/tiny.yaml "${mlm[@]}"
run mlm-3 recipes/tiny.yaml "${mlm[@]}" layout.dp=3
close mlm mlm-3 loss 1e-5
close mlm mlm-3 eval_loss 1e-5
"$trireme" data prepare "$work/text.txt" --tokenizer tests/fixtures/tokenizer_wordpiece.json \
    --separator 3 --out "$work/prepared" >"$work/out" 2>&1 || fail "prepare: $(cat "$work/out")"
tokens=(model.kind=bert model.vocab=0 data.task=mlm data.source="$work/prepared" data.seq_len=32)
run tokens recipes/tiny.yaml "${tokens[@]}" data.record=true
run tokens-3 recipes/tiny.yaml "${tokens[@]}" layout.dp=3
says tokens '^data    .* windows of 30.*, 15% to be found$'
close tokens tokens-3 loss 1e-5
close tokens tokens-3 eval_loss 1e-5
refused "set data.pack and data.mask_documents to false" "${tokens[@]}" data.pack=true
refused "this data has no epochs" train.epochs=2 data.source="$work/text.txt:0.5,recipes/demo.yaml:0.5"
refused "which only data.task=lm takes" "${tokens[@]}" data.source="$work/prepared:1,$work/text.txt:1"
refused "has no mask token" model.kind=bert data.task=mlm data.source="$work/text.txt"

[ $failures -eq 0 ] && echo "epochs and tasks: all as expected"
exit $((failures > 0))
