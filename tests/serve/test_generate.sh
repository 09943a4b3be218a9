#!/usr/bin/env bash
# trireme generate and trireme eval as a person meets them. Argument: the build directory. Run from
# the root of the repository.
set -u
build=${1:-build}
trireme=$build/trireme
tmp=$(mktemp -d /tmp/trireme-generate-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 "$tmp/out" "$tmp/err" 2>/dev/null
}

# run CODE ARGS...: runs trireme and compares the exit code; output goes to $tmp/out and $tmp/err.
run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
    [ $code -eq "$want" ] || fail "trireme $* ended with $code, not $want"
}

# refused TEXT ARGS...: wrong usage, and one line on stderr that holds TEXT.
refused() {
    local text=$1
    shift
    run 2 "$@"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "trireme $* says more than one line"
    grep -qF -- "$text" "$tmp/err" || fail "trireme $* does not say \"$text\""
}

# has TEXT: the output holds it.
has() {
    grep -qF -- "$1" "$tmp/out" || fail "the output has no \"$1\""
}

mine=$tmp/mine
run 0 train --set data.source=ARCHITECTURE.md --set train.steps=30 --set optim.lr=3e-3 \
    --set data.seq_len=48 --set run.dir="$mine"

test_one_prompt() {
    run 0 generate "$mine" --prompt 'The ' --tokens 20 --temperature 0
    [ "$(wc -c <"$tmp/out")" -ge 25 ] || fail "too little"
    head -c 4 "$tmp/out" | grep -q 'The ' || fail "the prompt is not there"
    cp "$tmp/out" "$tmp/cached"
    run 0 generate "$mine" --prompt 'The ' --tokens 20 --temperature 0 --set generate.cache=false
    cmp -s "$tmp/out" "$tmp/cached" || fail "without the cache the text is another"
    checks=$((checks + 1))
    printf 'The ' | "$trireme" generate "$mine" --prompt - --tokens 20 --temperature 0 \
        >"$tmp/out" 2>"$tmp/err"
    cmp -s "$tmp/out" "$tmp/cached" || fail "a prompt from standard input gives another text"
    run 0 generate "$mine" --prompt-ids '84,104 101 32' --tokens 20 --temperature 0 --ids
    [ "$(wc -w <"$tmp/out")" -eq 20 ] || fail "not 20 token numbers"
    run 0 generate "$mine" --prompt abc --tokens 0
    [ "$(cat "$tmp/out")" = abc ] || fail "no tokens were asked for"
    run 0 generate "$mine" --prompt x --tokens 100 --stats
    grep -q 'tokens/s' "$tmp/err" || fail "no speed"
    grep -q 'outgrew the 48 positions' "$tmp/err" || fail "no word of the text that was cut"
}

test_many_prompts() {
    local batch
    printf 'The \r\n\nA much longer prompt than the others have, which is cut into blocks\nx' \
        >"$tmp/prompts.txt"
    run 0 generate "$mine" --prompts "$tmp/prompts.txt" --tokens 12 --samples 2 --json
    [ "$(wc -l <"$tmp/out")" -eq 6 ] || fail "not a line for each of 3 x 2 texts"
    [ "$(grep -c '"end":"length"' "$tmp/out")" -eq 6 ] || fail "not every line says how it ended"
    head -n 1 "$tmp/out" | grep -q '^{"prompt":"The ","sample":0,"text":".*"tokens":12,' ||
        fail "the first line is not that of the first prompt"
    cp "$tmp/out" "$tmp/all"
    for batch in 1 2 5; do
        run 0 generate "$mine" --prompts "$tmp/prompts.txt" --tokens 12 --samples 2 --json \
            --batch $batch
        cmp -s "$tmp/out" "$tmp/all" || fail "with generate.batch=$batch the texts are others"
    done
    printf '{"prompt": "The "}\n"x\\ny"\n' >"$tmp/prompts.jsonl"
    run 0 generate "$mine" --prompts "$tmp/prompts.jsonl" --tokens 3 --json
    has '"prompt":"x\ny"'
    run 0 generate "$mine" --prompts "$tmp/prompts.txt" --tokens 3
    [ "$(grep -c '^--- prompt [123] ---$' "$tmp/out")" -eq 3 ] || fail "no titles"
    printf '{"prompt": "a"}\n{"text": "b"}\n' >"$tmp/wrong.jsonl"
    refused 'wrong.jsonl:2: needs {"prompt"' generate "$mine" --prompts "$tmp/wrong.jsonl"
    printf '{"prompt": "a"\n' >"$tmp/wrong.jsonl"
    refused 'wrong.jsonl:1: not JSON' generate "$mine" --prompts "$tmp/wrong.jsonl"
    : >"$tmp/empty.txt"
    refused 'has no prompts' generate "$mine" --prompts "$tmp/empty.txt"
    refused 'none.txt' generate "$mine" --prompts "$tmp/none.txt"
}

test_stops() {
    run 0 generate "$mine" --prompt 'The ' --tokens 300 --set generate.context=48 --stop e --json
    has '"end":"stop"'
    grep -q '"text":"[^"]*e[^"]*","tokens' "$tmp/out" && fail "the stop string is in the text"
    run 0 generate "$mine" --prompt 'The ' --tokens 300 --stop 'zq;' --stop '\n' --stop ' ' --json
    has '"end":"stop"'
    run 0 generate "$mine" --prompt 'The ' --tokens 300 --set 'generate.stop=zq;e' --json
    has '"end":"stop"'
    refused '--stop is empty' generate "$mine" --stop ''
}

test_wrong_values() {
    refused 'generate.top_p is 2' generate "$mine" --top-p 2
    refused 'generate.temperature' generate "$mine" --temperature -1
    refused 'generate.repetition' generate "$mine" --repetition-penalty 0
    refused 'there is no token 256' generate "$mine" --prompt-ids 256
    refused 'is not a token number' generate "$mine" --prompt-ids '1 two'
    refused 'has no numbers' generate "$mine" --prompt-ids ' '
    refused 'exclude each other' generate "$mine" --prompt a --prompt-ids 1
    refused 'has no text to generate' generate --set model.kind=mlp \
        --set model.from="$mine/weights.safetensors" --prompt-ids 1
    refused 'has no tokenizer' generate tests/fixtures/hf_llama --prompt hi
    refused 'without config.yaml' generate "$tmp"
}

test_hugging_face() {
    local dir=$tmp/hf
    run 0 generate tests/fixtures/hf_mistral --prompt-ids '1 2 3' --tokens 200 --temperature 0 \
        --set generate.eos=false
    [ "$(wc -w <"$tmp/out")" -eq 200 ] || fail "a window does not go on past max_position_embeddings"
    grep -qv "^weights " "$tmp/err" && fail "a text with a window was cut"
    # A directory of our own making, with a tokenizer.
    run 0 data tokenizer train ARCHITECTURE.md --vocab 300 --out "$tmp/tokenizer.json"
    run 0 train --set model.vocab=300 --set train.steps=1 --set run.dir="$tmp/run"
    run 0 ckpt export "$tmp/run" --hf "$dir"
    refused 'no data of its own' eval "$dir"
    cp "$tmp/tokenizer.json" "$dir"
    run 0 generate "$dir" --prompt 'Hello world' --tokens 5 --json --ids
    has '"prompt":"Hello world"'
    run 0 eval "$dir" --data README.md --json
    has '"bits_per_byte":'
    cp "$tmp/tokenizer.json" "$tmp/run"
    run 0 generate "$tmp/run" --prompt 'Hello world' --tokens 5 --json
    cp "$tmp/out" "$tmp/of_run"
    run 0 generate "$dir" --prompt 'Hello world' --tokens 5 --json
    cmp -s "$tmp/out" "$tmp/of_run" || fail "the exported model says something else"
}

test_eval() {
    run 0 eval "$mine"
    has 'bits per byte'
    has 'ARCHITECTURE.md, held-out part'
    head -c 501 README.md >"$tmp/text.txt"
    run 0 eval "$mine" --data "$tmp/text.txt"
    has 'tokens predicted     500'
    has 'bytes predicted      500'
    run 0 eval "$mine" --data "$tmp/text.txt" --json
    # For bytes, bits per byte is the loss over ln 2, and the perplexity is exp(loss).
    sed 's/[{}]//g; s/,/\n/g; s/"//g' "$tmp/out" | awk -F: '
        { value[$1] = $2 }
        END {
            bits = value["loss"] / log(2) - value["bits_per_byte"]
            ratio = exp(value["loss"]) / value["perplexity"] - 1
            exit !(bits * bits < 1e-12 && ratio * ratio < 1e-12 && value["loss"] > 1)
        }' || fail "bits per byte, perplexity and loss do not fit"
    run 0 eval "$mine" --data "$tmp/text.txt" --stride 7 --json
    has '"tokens":500'
    refused '--stride goes with --data' eval "$mine" --stride 3
    refused 'the stride is 49' eval "$mine" --data "$tmp/text.txt" --stride 49
    refused 'none.txt' eval "$mine" --data "$tmp/none.txt"
    refused 'nothing to predict' eval "$mine" --data "$tmp/empty.txt"
    refused 'train first' eval --set run.dir="$tmp/nowhere"
    run 0 eval "$mine" --set data.source=synthetic --json
    grep -q bits_per_byte "$tmp/out" && fail "made-up tokens have no bytes"
}

test_programs() {
    run 0 check "$mine"
    has decoding
    run 0 explain "$mine" --mode decode
    has 'attention cached'
    run 0 explain "$mine" --mode prefill --graph
    run 0 plan "$mine"
    grep -q cache "$tmp/out" && fail "training plans a cache"
    run 0 bench generate --set model.num_layers=2 --set model.vocab=256 --steps 2 --json
    has '"decode_tokens_per_s":'
    refused 'cannot continue a text' explain --mode decode --set model.kind=mlp
}

# A model that has learned nothing writes any byte; none of them may command a terminal.
test_terminal() {
    command -v script >/dev/null || {
        echo "skipped: what a terminal gets (there is no script command)"
        return 0
    }
    local line="$trireme generate $mine --tokens 600 --temperature 100"
    $line >"$tmp/raw" 2>/dev/null
    script -qec "$line" /dev/null >"$tmp/shown" 2>/dev/null </dev/null
    LC_ALL=C grep -q $'[\x01-\x08\x0e-\x1f]' "$tmp/raw" || fail "the text has no control characters to try this with"
    LC_ALL=C grep -q $'[\x01-\x08\x0e-\x1f]' "$tmp/shown" && fail "a terminal gets control characters"
    [ -s "$tmp/shown" ] || fail "a terminal gets nothing"
}

# A layout that was asked for and is not used is told; that of the run which made the weights is not.
test_layouts() {
    run 0 generate "$mine" --prompt 'The ' --tokens 2 --set layout.tp=2
    grep -qF 'generate works on one rank, so --set layout.tp=2 changes nothing' "$tmp/err" || fail "an unused layout is not told"
    run 0 eval "$mine" --set data.source=synthetic --set layout.dp=1
    [ -s "$tmp/err" ] && fail "one rank is told"
    sed -i 's/^  dp: 1$/  dp: 2/' "$mine/config.yaml"
    run 0 generate "$mine" --prompt 'The ' --tokens 2
    grep -qv "^weights " "$tmp/err" && fail "the layout of the run is told"
    sed -i 's/^  dp: 2$/  dp: 1/' "$mine/config.yaml"
}

test_one_prompt
test_terminal
test_many_prompts
test_stops
test_wrong_values
test_hugging_face
test_eval
test_programs
test_layouts
echo "$checks commands, $failures failures"
[ $failures -eq 0 ]
