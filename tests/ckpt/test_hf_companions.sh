#!/usr/bin/env bash
# What lies beside the weights of a model of Hugging Face: it opens as save_pretrained writes it, says
# where texts end, and comes out of a run as it went in. And weights that are not finite are told.
set -u
trireme=$1/trireme
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

expect() { # exit code, what the output must contain, command
    local code=$1 text=$2
    shift 2
    "$@" >"$work/out" 2>&1
    local got=$?
    [ $got -eq "$code" ] || fail "exit code $got, not $code: $* ($(tail -1 "$work/out"))"
    grep -qF -- "$text" "$work/out" || fail "no \"$text\" in: $* ($(tail -2 "$work/out"))"
}

model=$work/model
mkdir "$model"
cp tests/fixtures/hf_llama/config.json tests/fixtures/hf_llama/model.safetensors "$model"
chmod u+w "$model"/*
vocab=$(
    i=5
    for c in {a..z} ' ' . ','; do printf ',"%s":%d' "$c" $((i++)); done
)
cat >"$model/tokenizer.json" <<JSON
{"version":"1.0","truncation":null,"padding":null,
 "added_tokens":[{"id":2,"content":"</s>","special":true,"normalized":false,"single_word":false,"lstrip":false,"rstrip":false}],
 "normalizer":{"type":"Lowercase"},"pre_tokenizer":null,"post_processor":null,"decoder":{"type":"Fuse"},
 "model":{"type":"BPE","unk_token":"<unk>","vocab":{"<unk>":0,"<s>":1,"</s>":2,"<pad>":3,"<eot>":4$vocab},"merges":[]}}
JSON
echo '{"model_max_length": 1000000000000000019884624838656, "limit": Infinity, "chat_template": "{{ x }}", "eos_token": "</s>"}' \
    >"$model/tokenizer_config.json"
echo '{"bos_token": "<s>", "eos_token": "</s>"}' >"$model/special_tokens_map.json"
echo '{"eos_token_id": [2, 4], "temperature": 0.5}' >"$model/generation_config.json"
echo '{% for m in messages %}{{ m }}{% endfor %}' >"$model/chat_template.jinja"
for i in $(seq 60); do echo "the quick brown fox jumps over the lazy dog, again and again."; done >"$work/text"

# It opens, and goes through a run and out again.
expect 0 '"end"' "$trireme" generate "$model" --prompt "the fox" --json --set generate.tokens=3
expect 0 "" "$trireme" train --set "model.from=$model" --set "data.source=$work/text" --set train.steps=1 \
    --set train.batch=1 --set data.seq_len=16 --set ckpt.every=1 --set "run.dir=$work/run"
mv "$work/run/ckpt/step-1" "$work/step" # which stands alone
for from in step run; do
    rm -rf "$work/exported"
    expect 0 "wrote" "$trireme" ckpt export "$work/$from" --hf "$work/exported"
    for name in tokenizer.json tokenizer_config.json special_tokens_map.json generation_config.json chat_template.jinja; do
        cmp -s "$model/$name" "$work/exported/$name" || fail "$name of a $from is not what went in"
    done
    grep -q '"eos_token_id": 2' "$work/exported/config.json" || fail "config.json of a $from lost its eos_token_id"
    grep -q '"bos_token_id": 1' "$work/exported/config.json" || fail "config.json of a $from lost its bos_token_id"
done
expect 0 '"end"' "$trireme" generate "$work/exported" --prompt "the fox" --json --set generate.tokens=3
expect 0 '"end"' "$trireme" generate "$work/run" --prompt "the fox" --json --set generate.tokens=3

# A run with other tokens than its model had does not pass that model's files on.
expect 0 "" "$trireme" train --set "model.from=$model" --set "data.source=$work/text" --set train.steps=1 \
    --set train.batch=1 --set data.seq_len=16 --set "run.dir=$work/other" --set data.tokenizer=chars
expect 0 "wrote" "$trireme" ckpt export "$work/other" --hf "$work/exported2"
[ ! -e "$work/exported2/chat_template.jinja" ] || fail "the template of another vocabulary was passed on"

# A tokenizer that is given is the one that is used.
mkdir "$work/bare"
cp "$model/config.json" "$model/model.safetensors" "$work/bare"
expect 2 "has no tokenizer" "$trireme" generate "$work/bare" --prompt "the fox" --set generate.tokens=3
for where in "$work/bare" "$model"; do
    expect 0 '"prompt":"the fox"' "$trireme" generate "$where" --prompt "the fox" --json --set generate.tokens=3 \
        --set "data.tokenizer=$model/tokenizer.json"
    expect 0 '"loss"' "$trireme" eval "$where" --data "$work/text" --json --set "data.tokenizer=$model/tokenizer.json"
    expect 2 "no such tokenizer" "$trireme" generate "$where" --prompt a --set data.tokenizer=nowhere.json
    expect 2 "no such tokenizer" "$trireme" eval "$where" --data "$work/text" --set data.tokenizer=nowhere.json
done

# A broken file that says where texts end is told.
echo '{"eos_token_id": [2,' >"$model/generation_config.json"
expect 2 "generation_config.json" "$trireme" generate "$model" --prompt "the fox" --set generate.tokens=3
for wrong in '[]' '{"eos_token_id": "2"}' '{"eos_token_id": [2, "x"]}'; do
    echo "$wrong" >"$model/generation_config.json"
    expect 2 "generation_config.json: has no eos_token_id that" "$trireme" generate "$model" --prompt "the fox" \
        --set generate.tokens=3
done
rm "$model/generation_config.json"

# Weights that are not numbers: the last four bytes of the file become NaN.
size=$(stat -c %s "$model/model.safetensors")
printf '\x00\x00\xc0\x7f' | dd of="$model/model.safetensors" bs=1 seek=$((size - 4)) conv=notrunc 2>/dev/null
expect 1 "not finite" "$trireme" generate "$model" --prompt "the fox" --set generate.tokens=3
grep -q "the parameter" "$work/out" || fail "the parameter is not named: $(cat "$work/out")"
expect 1 "not finite" "$trireme" eval "$model" --data "$work/text" --json
grep -q "the parameter" "$work/out" || fail "the parameter is not named: $(cat "$work/out")"

[ $failures -eq 0 ] || exit 1
echo "companions of Hugging Face models: all as expected"
