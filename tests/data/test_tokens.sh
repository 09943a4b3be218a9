#!/usr/bin/env bash
# From text to tokens to training and back to text, on the command line. Argument: the build
# directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$build/trireme
tmp=$(mktemp -d /tmp/trireme-tokens-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 "$tmp/out" "$tmp/err" 2>/dev/null
}

run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
    [ $code -eq "$want" ] || fail "trireme $* ended with $code, not $want"
}

refused() {
    local text=$1
    shift
    run 2 "$@"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "trireme $* says more than one line"
    grep -qF -- "$text" "$tmp/err" || fail "trireme $* does not say \"$text\""
}

losses() {
    sed -E 's/.*"loss":([^,]*),.*/\1/' "$1/metrics.jsonl"
}

train() {
    local dir=$1
    shift
    run 0 train recipes/tiny.yaml --set model.vocab=0 --set train.steps=4 --set run.dir="$dir" \
        --set train.eval_batches=1 "$@"
}

docs=$tmp/docs
mkdir "$docs"
cp docs/*.md "$docs/"

test_prepare() {
    run 0 data tokenizer train docs/data.md --vocab 400 --out "$tmp/tok.json"
    run 0 data prepare "$docs" --tokenizer "$tmp/tok.json" --out "$tmp/p" --split 0.2 \
        --shard-tokens 5000
    grep -q 'documents, .* shards' "$tmp/out" || fail "prepare does not say what it made"
    [ -e "$tmp/p/train-00001.tok" ] && [ -e "$tmp/p/eval-00000.tok" ] || fail "shards are missing"
    run 0 data inspect "$tmp/p"
    grep -q 'train-00001.tok.*checksum right' "$tmp/out" || fail "inspect does not check"
    refused 'exists already; --force' data prepare "$docs" --tokenizer bytes --out "$tmp/p"
    run 0 data prepare "$docs" --tokenizer "$tmp/tok.json" --out "$tmp/p" --split 0.2 --force
    printf '{"text":"a"}\n{"text":"b' >"$tmp/half.jsonl"
    refused "half.jsonl, line 2: not valid JSON" data prepare "$tmp/half.jsonl" --tokenizer bytes \
        --out "$tmp/none"
    [ -e "$tmp/none" ] && fail "a failed prepare left a directory"
    [ -z "$(find "$tmp" -name '.trireme*')" ] || fail "a failed prepare left a temporary"
    refused 'say what, with which tokenizer' data prepare "$docs"
    echo 'no gzip' >"$tmp/text.gz"
    refused 'does not begin as gzip data' data prepare "$tmp/text.gz" --tokenizer bytes --out "$tmp/none"
    : >"$tmp/empty"
    refused 'empty: holds no text' data tokenizer train "$tmp/empty" --vocab 300 --out "$tmp/none"
    refused 'say what to do with a tokenizer' data tokenizer
    run 0 data tokenizer inspect "$tmp/tok.json"
    refused '--split is "2"' data prepare "$docs" --tokenizer bytes --out "$tmp/none" --split 2
    refused 'did you mean prepare?' data prepair
    refused 'bpe:4096' data prepare "$docs" --tokenizer bpe:x --out "$tmp/none"
    head -c 1000 "$tmp/p/train-00000.tok" >"$tmp/cut.tok"
    refused 'cut.tok: the header promises' data inspect "$tmp/cut.tok"
    refused 'cut.tok: the header promises' train recipes/tiny.yaml --set data.source="$tmp/cut.tok"
}

# A tokenizer is trained on whatever is tokenised: the same documents give the same one.
test_train_tokenizer() {
    mkdir "$tmp/plain"
    for i in 1 2 3; do
        tr -d '"\\\\\t' <docs/data.md | tail -n "+$((40 * i))" | head -n 40 >"$tmp/plain/$i.txt"
        printf '{"id":%d,"body":"%s"}\n' $i "$(awk '{ printf "%s\\n", $0 }' "$tmp/plain/$i.txt")"
    done >"$tmp/docs.jsonl"
    gzip -c "$tmp/docs.jsonl" >"$tmp/docs.jsonl.gz"
    for options in "" --whole-text; do
        rm -f "$tmp/tok-"*
        run 0 data tokenizer train "$tmp/plain" --vocab 500 --out "$tmp/tok-dir" $options
        run 0 data tokenizer train "$tmp/plain/1.txt" "$tmp/plain/2.txt" "$tmp/plain/3.txt" --vocab 500 \
            --out "$tmp/tok-files" $options
        run 0 data tokenizer train "$tmp/docs.jsonl" --field body --vocab 500 --out "$tmp/tok-jsonl" $options
        run 0 data tokenizer train "$tmp/docs.jsonl.gz" --field body --vocab 500 --out "$tmp/tok-gz" $options
        for other in files jsonl gz; do
            cmp -s "$tmp/tok-dir" "$tmp/tok-$other" || fail "$other $options: another tokenizer than of the directory"
        done
    done
    refused 'docs.jsonl, line 1: has no "text"; its fields are: "id", "body"' data tokenizer train "$tmp/docs.jsonl" --vocab 500 --out "$tmp/none"
    for i in 1 2 3; do printf '{"text":"aa"}\n{"text":"bb"}\n'; done >"$tmp/short.jsonl"
    run 0 data tokenizer train "$tmp/short.jsonl" --vocab 500 --out "$tmp/tok-short" --whole-text
    grep -q ' 259 tokens' "$tmp/out" || fail "a word spans two documents: $(cat "$tmp/out")"
    refused 'is a token shard already' data tokenizer train "$tmp/p/train-00000.tok" --vocab 500 --out "$tmp/none"
    refused 'takes one file' data tokenizer encode "$tmp/plain/1.txt" "$tmp/plain/2.txt" --tokenizer bytes
    run 0 data tokenizer train --vocab 300 --out "$tmp/tok-stdin" <"$tmp/plain/1.txt"
    run 0 data tokenizer train "$tmp/plain/1.txt" --vocab 300 --out "$tmp/tok-one"
    cmp -s "$tmp/tok-stdin" "$tmp/tok-one" || fail "standard input gives another tokenizer than the file"
}

# Prepared before or on the way, in any shards, by one rank or two: the same losses.
test_train() {
    run 0 data prepare "$docs" --tokenizer "$tmp/tok.json" --out "$tmp/whole"
    run 0 data prepare "$docs" --tokenizer "$tmp/tok.json" --out "$tmp/cut" --shard-tokens 777
    train "$tmp/a" --set data.source="$tmp/whole"
    grep -q ' tokens of 400 in 1 shard' "$tmp/out" || fail "the data is not described"
    train "$tmp/b" --set data.source="$tmp/cut"
    train "$tmp/c" --set data.source="$docs" --set data.tokenizer="$tmp/tok.json"
    for other in b c; do
        [ "$(losses "$tmp/a")" = "$(losses "$tmp/$other")" ] || fail "$other has other losses than a"
        cmp -s "$tmp/a/tokenizer.json" "$tmp/$other/tokenizer.json" || fail "$other: no tokenizer"
    done
    train "$tmp/c" --set data.source="$docs" --set data.tokenizer="$tmp/tok.json" --set layout.dp=2
    losses "$tmp/a" >"$tmp/one"
    losses "$tmp/c" | paste "$tmp/one" - |
        awk '{ d = ($1 - $2) / $1; if (d * d > 1e-10) exit 1 }' || fail "two ranks have other losses"
    train "$tmp/d" --set "data.source=$tmp/whole:3,$tmp/p:1" --set data.mask_documents=true
    grep -q '75% ' "$tmp/out" || fail "a blend is not described"
    refused 'another tokenizer than data.tokenizer' train recipes/tiny.yaml --set data.tokenizer=bytes \
        --set data.source="$tmp/whole" --set model.vocab=0 --set run.dir="$tmp/x"
    refused 'model.vocab is 300' train recipes/tiny.yaml --set model.vocab=300 \
        --set data.source="$tmp/whole" --set run.dir="$tmp/x"
}

test_text_again() {
    run 0 generate "$tmp/c" --set generate.tokens=20 --set generate.prompt='The é model'
    grep -q '^The é model' "$tmp/out" || fail "the prompt is not there"
    run 0 ckpt export "$tmp/c" --hf "$tmp/hf"
    cmp -s "$tmp/c/tokenizer.json" "$tmp/hf/tokenizer.json" || fail "the export has no tokenizer"
    # A model of Hugging Face brings its tokenizer along.
    run 0 train --set model.from="$tmp/hf" --set data.source="$docs" --set run.dir="$tmp/e" \
        --set train.steps=1 --set data.seq_len=64 --set train.eval_batches=1
    grep -q ' tokens of 400 ' "$tmp/out" || fail "text for it is not read with its tokenizer"
    cmp -s "$tmp/c/tokenizer.json" "$tmp/e/tokenizer.json" || fail "and not kept"
    # A later run of bytes does not keep the tokenizer of an earlier one.
    train "$tmp/c" --set data.source="$docs"
    [ -e "$tmp/c/tokenizer.json" ] && fail "a stale tokenizer.json stayed"
}

test_prepare
test_train_tokenizer
test_train
test_text_again
echo "$checks commands, $failures failures"
[ $failures -eq 0 ]
