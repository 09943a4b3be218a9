#!/usr/bin/env bash
# The program as a person meets it: help, mistakes, a run, what is left behind. Argument: the build
# directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$build/trireme
tmp=$(mktemp -d /tmp/trireme-cli-XXXXXX)
mounted=
failures=0 checks=0

clean_up() {
    [ -n "$mounted" ] && umount "$mounted"
    rm -rf "$tmp"
}
trap clean_up EXIT

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 "$tmp/out" "$tmp/err" 2>/dev/null
}

# Memory, and anything that is timed by it, means nothing under a sanitizer.
sanitized() {
    grep -q -e __asan_init -e __tsan_init "$trireme"
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

# refused CODE TEXT ARGS...: it must end with CODE and one line on stderr that holds TEXT.
refused() {
    local code=$1 text=$2
    shift 2
    run "$code" "$@"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "trireme $* says more than one line"
    grep -q '^trireme: ' "$tmp/err" || fail "trireme $* does not say who speaks"
    grep -qF -- "$text" "$tmp/err" || fail "trireme $* does not say \"$text\""
}

# nothing_left DIR: a failed run leaves no weights and no temporary files.
nothing_left() {
    [ -z "$(find "$1" -name '*.tmp*' -o -name '.*' -type f -o -name 'weights.safetensors')" ] ||
        fail "a failed run left something in $1: $(ls -A "$1")"
}

losses() {
    sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*/\1 \2/' "$1/metrics.jsonl"
}

test_help() {
    local verb
    run 0 --help
    for verb in train generate plan explain check bench doctor settings; do
        grep -q "^  $verb " "$tmp/out" || fail "--help does not list $verb"
    done
    for verb in train generate plan explain check bench doctor settings; do
        run 0 $verb --help
        grep -q "^trireme $verb: " "$tmp/out" || fail "$verb --help has no title"
        grep -q -- "--set section.key=value" "$tmp/out" || fail "$verb --help has no --set"
        [ -s "$tmp/err" ] && fail "$verb --help writes to stderr"
        run 0 help $verb
        run 0 --help $verb
    done
    run 0 train --help
    grep -q ') [,;:]' "$tmp/out" && fail "train --help has a blank before a comma"
    for verb in train generate eval plan place explain check sim bench ckpt data runs plot doctor settings completion man; do
        run 0 $verb --help
        awk 'length($0) > 80 && !/^Usage/ { exit 1 }' "$tmp/out" || fail "$verb --help has long lines"
    done
    run 0 --version
    run 2
    run 0 doctor
    run 0 settings
    run 0 settings optim.lr
    run 0 explain --ops
    "$trireme" settings >/dev/full 2>/dev/null && fail "a full disk behind stdout is not noticed"
}

test_mistakes() {
    refused 2 'unknown verb "trian"; did you mean train?' trian
    refused 2 'unknown verb' help trian
    refused 2 'trireme train recipes/tiny.yaml' recipes/tiny.yaml
    refused 2 'did you mean --set?' train --sett model.dim=8
    refused 2 'did you mean --params?' plan --param
    refused 2 '--set model.dim=64' train --model.dim=64
    refused 2 'did you mean model.dim' train --set model.dimm=8
    refused 2 'did you mean optim.lr' train --set optim.learning_rate=1
    refused 2 'gives no value' train --set model.dim
    refused 2 'put --set before it' train model.dim=8
    refused 2 'must be from 1 to' train --set model.dim=0
    refused 2 'out of range' train --set optim.lr=1e30
    refused 2 'model.num_layers' train --set model.num_layers=four
    refused 2 'sgd, adam, adamw, muon, lion' train --set optim.kind=adagrad
    refused 2 'the nearest that does is 4' train --set model.num_heads=5
    refused 2 'has positions for 8' train --set model.positions=8
    refused 2 'set layout.zero=3, or leave' train --set layout.keep_gathered=true
    refused 2 'layout.zero is 2' train --set layout.keep_gathered=true --set layout.dp=2 --set layout.zero=2
    refused 2 'one update a step, such as 1f1b' train --set layout.pp=2 --set layout.schedule=pipedream \
        --set layout.microbatches=4 --set train.clip=0 --set layout.dp=2 --set layout.zero=3 \
        --set layout.keep_gathered=true
    run 0 train --set layout.microbatches=9 --set train.steps=1 --set run.dir="$tmp/rows"
    grep -q 'train.batch has 8 rows for .* = 9 parts: 1 of them' "$tmp/out" || fail "empty micro-batches are not told"
    for kind in gpt2 bert "llama --set model.tied_head=true"; do
        # shellcheck disable=SC2086 # words
        refused 2 'would drift apart' train recipes/tiny.yaml --set run.dir="$tmp/tied" --set layout.pp=2 \
            --set layout.schedule=pipedream --set layout.microbatches=4 --set train.clip=0 \
            --set model.dropout=0 --set model.kind=$kind
    done
    [ -e "$tmp/tied" ] && fail "a pipeline was refused, but $tmp/tied was made"
    refused 2 'layout.schedule: there is no schedule "1f1c"' train --set layout.schedule=1f1c
    refused 2 'no memory plan can hold' plan --set model.dim=1000000 --set model.num_heads=1000 \
        --set train.batch=1000000 --set data.seq_len=1000000
    run 0 plan --set model.kind=mlp --set model.dim=999999 # has no heads
    refused 2 'unknown flag "--list"; it is one of trireme sim' plan --list
    refused 2 'run.dir is empty' train recipes/tiny.yaml --set run.dir=
    refused 2 'this run needs' train --set model.dim=100000 --set run.dir="$tmp/refused/far/away"
    [ -e "$tmp/refused" ] && fail "a run was refused, but $tmp/refused was made"
    refused 2 'model.dim 999999 over model.num_heads 4' plan --set model.dim=999999
    refused 2 'too many processes for the' train recipes/tiny.yaml --set layout.dp=$((8 * $(nproc --all) + 129)) \
        --set run.dir="$tmp/crowd"
    [ -e "$tmp/crowd" ] && fail "a crowd was refused, but $tmp/crowd was made"
    refused 2 'has no experts to divide' plan --set layout.ep=2
    refused 2 'data.source is empty' train --set data.source= --set run.dir="$tmp/none"
    refused 2 'it is one of trireme plan' explain --ledger
    run 2 doctor --foo
    grep -q 'did you mean' "$tmp/err" && fail "--foo is like no flag: $(cat "$tmp/err")"
    # The build folder says why: cuda-left-out when make was told CUDA=no, cuda-no without an nvcc.
    "$trireme" doctor >"$tmp/doctor"
    [ -e "$build/cuda-left-out" ] && ! grep -q 'CUDA .*not built in.* with CUDA=no; .*make CUDA=yes' "$tmp/doctor" &&
        fail "doctor does not say that CUDA was left out: $(grep CUDA "$tmp/doctor")"
    [ -e "$build/cuda-no" ] && ! grep -q 'CUDA .*not built in.* for want of nvcc; install' "$tmp/doctor" &&
        fail "doctor does not say that there was no nvcc: $(grep CUDA "$tmp/doctor")"
    grep -q 'not built in' "$tmp/doctor" &&
        refused 2 'built without CUDA' train recipes/tiny.yaml --set run.device=cuda --set layout.dp=2
    refused 2 'known presets: gpt2-124m' plan --set model.preset=gpt5
    refused 2 'no parameter matches "wtf*"' train --set "optim.groups=wtf* lr_scale=0"
    refused 2 'it must be from 1 to' bench --steps 0
    refused 2 '--paced belongs to' bench comm --paced
    refused 2 'ended before step 1 of 3' bench recipes/tiny.yaml --paced --steps 3 </dev/null
    refused 2 "train, eval, predict, prefill, decode or repeat" explain --mode wrong
    refused 2 "goes with layout.ep and layout.ep_room" explain --mode repeat
    refused 2 'takes no file' doctor recipes/tiny.yaml
    refused 2 'takes one settings file' train recipes/tiny.yaml recipes/demo.yaml
    refused 2 'there is no settings file' train "$tmp/none.yaml"
    printf 'model:\n  dmi: 8\n' >"$tmp/wrong.yaml"
    refused 2 'wrong.yaml:2' train "$tmp/wrong.yaml"
    grep -q 'did you mean model.dim' "$tmp/err" || fail "no suggestion for a key of a file"
}

test_files_that_do_not_do() {
    local dir=$tmp/never
    : >"$tmp/empty.txt"
    echo 'too short' >"$tmp/short.txt"
    echo x >"$tmp/file"
    refused 2 'the file is empty' train --set data.source="$tmp/empty.txt" --set run.dir="$dir"
    refused 2 'need at least 130' train --set data.source="$tmp/short.txt" --set run.dir="$dir"
    refused 2 'cannot be found' train --set data.source="$tmp/none.txt" --set run.dir="$dir"
    refused 2 'none.safetensors: cannot be found; give a safetensors file' train --set run.dir="$dir" \
        --set model.from="$tmp/none.safetensors"
    refused 2 'file' train --set model.from="$tmp/short.txt" --set run.dir="$dir"
    [ -e "$dir" ] && fail "input was refused, but $dir was made"
    refused 2 'is a file and not a directory; set run.dir to' train --set train.steps=1 --set run.dir="$tmp/file/sub"
    refused 2 'train first' generate --set run.dir="$dir"
    refused 2 'weights.safetensors: cannot be found; train first' generate --set run.dir="$tmp"
}

test_loss_that_is_not_finite() {
    local dir=$tmp/nan
    refused 1 'not finite at step' train recipes/tiny.yaml --set optim.kind=sgd \
        --set optim.lr=1000 --set train.clip=0 --set train.max_skipped=0 --set run.dir="$dir"
    grep -q 'the weights are as before this step' "$tmp/err" || fail "it does not say what is kept"
    nothing_left "$dir"
    tail -n 1 "$dir/metrics.jsonl" | grep -q '"grad_norm":null' || fail "no line for the bad step"
}

# flock holds the directory as another run would.
test_two_runs_in_a_directory() {
    local dir=$tmp/shared ranks
    run 0 train recipes/tiny.yaml --set run.dir="$dir" --set train.steps=1
    mkdir -p "$dir/log"
    echo kept >>"$dir/metrics.jsonl"
    echo kept >"$dir/log/rank-0.log"
    for ranks in 1 2; do
        flock "$dir" "$trireme" train recipes/tiny.yaml --set run.dir="$dir" --set train.steps=1 \
            --set layout.dp=$ranks >"$tmp/out" 2>"$tmp/err" && fail "two runs write into $dir"
        grep -q 'another run is at work there' "$tmp/err" || fail "it does not say why"
        grep -q kept "$dir/metrics.jsonl" || fail "the metrics of the other run are gone"
        grep -q kept "$dir/log/rank-0.log" || fail "the log of the other run is gone"
    done
    run 0 train recipes/tiny.yaml --set run.dir="$dir" --set train.steps=1
}

test_full_disk() {
    local dir=$tmp/disk
    mkdir "$dir"
    if [ "$(id -u)" -ne 0 ] || ! mount -t tmpfs -o size=64k tmpfs "$dir" 2>/dev/null; then
        echo "skipped: a full disk (no small file system can be mounted here)"
        return
    fi
    mounted=$dir
    refused 1 'No space left on device' train recipes/tiny.yaml --set run.dir="$dir"
    grep -q 'weights.safetensors' "$tmp/err" || fail "it does not name the file"
    nothing_left "$dir"
    [ "$(wc -l <"$dir/metrics.jsonl")" -eq 20 ] || fail "the record of the run is not whole"
    refused 2 'mount point' train recipes/tiny.yaml --set run.dir="$dir" --set train.steps=2
    rm -r "${dir:?}"/*
    run 1 train recipes/tiny.yaml --set run.dir="$dir" --set train.steps=2 --set ckpt.every=1
    grep -q 'step 1 was not written' "$tmp/out" "$tmp/err" || fail "no warning for a checkpoint"
    rm -r "$dir/ckpt"
    head -c 100000 /dev/zero >"$dir/filler" 2>/dev/null
    run 1 train recipes/tiny.yaml --set run.dir="$dir/second"
    nothing_left "$dir"
    umount "$dir" && mounted=
}

test_run() {
    local dir=$tmp/tiny key lines
    run 0 train recipes/tiny.yaml --set run.dir="$dir" --set run.trace=true
    lines=$(wc -l <"$dir/metrics.jsonl")
    [ "$lines" -eq 20 ] || fail "$lines lines of metrics, not 20"
    for key in step loss grad_norm lr tokens step_ms tokens_per_s mem_peak_bytes slowest_rank \
        slowest_ms; do
        [ "$(grep -c "\"$key\":[0-9]" "$dir/metrics.jsonl")" -eq 20 ] ||
            fail "not every line of metrics.jsonl has a number for $key"
    done
    awk -F'"time":' -v now="$(date +%s)" '{ time = $2 + 0 } time < now - 600 || time > now + 1 || time < last { exit 1 }
        { last = time }' "$dir/metrics.jsonl" || fail "a line of metrics.jsonl has not the time of its step"
    tail -n 1 "$dir/metrics.jsonl" | grep -q '"tokens":10240,' || fail "tokens are not 20 x 512"
    tail -n 1 "$dir/metrics.jsonl" | grep -q '"eval_loss":[0-9]' || fail "no loss on held-out data"
    run 0 settings "$dir"
    cmp -s "$tmp/out" "$dir/config.yaml" || fail "config.yaml does not load back to itself"
    run 0 train "$dir" --set run.dir="$tmp/again"
    [ "$(losses "$dir")" = "$(losses "$tmp/again")" ] || fail "two runs have different losses"
    [ "$(losses "$dir" | wc -w)" -eq 40 ] || fail "the losses could not be read"
    cmp -s "$dir/weights.safetensors" "$tmp/again/weights.safetensors" ||
        fail "two runs have different weights"
    run 0 train "$dir" --set run.dir="$tmp/other" --set run.seed=2 --set run.save=false
    [ "$(losses "$dir")" != "$(losses "$tmp/other")" ] || fail "the seed changes nothing"
    [ -e "$tmp/other/weights.safetensors" ] && fail "run.save=false saved"
    if ! command -v python3 >/dev/null; then
        echo "skipped: whether trace.json is valid JSON (there is no python3)"
    elif ! python3 -c '
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
assert len(spans) >= 20 * 200, len(spans)
assert all(e["dur"] >= 0 for e in spans)
[json.loads(line) for line in open(sys.argv[2])]' "$dir/trace.json" "$dir/metrics.jsonl"; then
        fail "trace.json or metrics.jsonl is not right"
    fi
}

test_generate() {
    local dir=$tmp/tiny
    run 0 generate "$dir" --set generate.tokens=60
    cp "$tmp/out" "$tmp/first"
    [ "$(wc -c <"$tmp/first")" -ge 61 ] || fail "generate wrote too little"
    run 0 generate "$dir" --set generate.tokens=60
    cmp -s "$tmp/out" "$tmp/first" || fail "the same seed gives another text"
    run 0 generate "$dir" --set generate.tokens=60 --set generate.seed=2
    cmp -s "$tmp/out" "$tmp/first" && fail "another seed gives the same text"
    run 0 generate "$dir" --set generate.tokens=5 --set generate.prompt=abc
    head -c 3 "$tmp/out" | grep -q abc || fail "the text does not begin with the prompt"
    refused 2 'another shape' generate "$dir" --set model.ffn_dim=128
    head -c 5000 "$dir/weights.safetensors" >"$tmp/cut.safetensors"
    refused 2 'cut.safetensors' generate recipes/tiny.yaml --set model.from="$tmp/cut.safetensors"
}

# "475.4 MiB" as a number of KiB.
kib() {
    awk -v number="$1" -v unit="$2" 'BEGIN {
        factor["KiB"] = 1; factor["MiB"] = 1024; factor["GiB"] = 1048576
        printf "%d", number * factor[unit] }'
}

test_memory_is_as_planned() {
    local words used expected off
    run 0 train --set model.num_layers=4 --set model.dim=768 --set model.num_heads=12 \
        --set data.seq_len=64 --set train.batch=2 --set train.steps=2 --set train.eval_batches=1 \
        --set run.save=false --set run.dir="$tmp/large"
    if sanitized; then
        echo "skipped: memory against plan (a sanitizer takes its own)"
        return
    fi
    read -r -a words <<<"$(grep '^memory: ' "$tmp/out")"
    used=$(kib "${words[1]}" "${words[2]}") expected=$(kib "${words[4]}" "${words[5]}")
    off=$((used > expected ? used - expected : expected - used))
    [ "$used" -gt 400000 ] && [ $off -le 16384 ] ||
        fail "memory: $used KiB used, $expected KiB expected"
}

# Programs, data and threads count too: large ones must not be more than was expected, by the run
# and by its plan.
test_memory_used_is_at_most_what_is_expected() {
    local case words used expected planned
    sanitized && return
    local cases=(
        "recipes/instruct.yaml --set train.epochs=0"
        "recipes/tiny.yaml --set run.threads=1"
        "recipes/tiny.yaml --set run.threads=256"
        "recipes/tiny.yaml --set run.threads=1024"
        "recipes/tiny.yaml --set model.num_layers=24 --set optim.kind=muon"
    )
    for case in "${cases[@]}"; do
        read -r -a words <<<"$case --set train.steps=2 --set train.eval_batches=1"
        run 0 plan "${words[@]}"
        # shellcheck disable=SC2046 # two words
        planned=$(kib $(sed -n 's/^ *expected .* \([0-9.]* [KMG]iB\).*/\1/p' "$tmp/out"))
        run 0 train "${words[@]}" --set run.save=false --set run.dir="$tmp/used"
        rm -rf "$tmp/used"
        read -r -a words <<<"$(grep '^memory: ' "$tmp/out")"
        used=$(kib "${words[1]}" "${words[2]}") expected=$(kib "${words[4]}" "${words[5]}")
        [ "$used" -gt 5000 ] && [ "$used" -le "$expected" ] && [ "$used" -le "$planned" ] ||
            fail "$case: $used KiB used, $expected KiB expected, $planned KiB by the plan"
    done
}

# The plan of a run that computes again what it does not keep is what it takes, too.
test_memory_of_recomputation() {
    local mode words used expected off most=0
    sanitized && return
    for mode in none full; do
        run 0 train --set model.num_layers=6 --set model.dim=128 --set data.seq_len=512 \
            --set train.batch=8 --set train.steps=1 --set train.eval_batches=1 \
            --set run.save=false --set run.dir="$tmp/again" --set layout.recompute=$mode
        read -r -a words <<<"$(grep '^memory: ' "$tmp/out")"
        used=$(kib "${words[1]}" "${words[2]}") expected=$(kib "${words[4]}" "${words[5]}")
        off=$((used > expected ? used - expected : expected - used))
        [ $off -le 16384 ] || fail "recompute=$mode: $used KiB used, $expected KiB expected"
        [ $mode = none ] && most=$used
    done
    [ $((2 * used)) -lt "$most" ] || fail "recompute=full: $used KiB used, $most KiB without"
}

test_recompute() {
    refused 2 'every:N (such' plan recipes/tiny.yaml --set layout.recompute=all
    refused 2 'the smallest that' plan recipes/tiny.yaml --set layout.recompute=budget:1MiB
    run 0 plan recipes/tiny.yaml --set layout.recompute=full
    grep -q '^recomputed: .* % more than' "$tmp/out" || fail "plan hides what is recomputed"
    run 0 explain recipes/tiny.yaml --summary --set layout.recompute=full
    grep -q '^recomputed: .* % more than' "$tmp/out" || fail "explain hides what is recomputed"
    run 0 plan recipes/tiny.yaml --ledger --set precision.kind=bf16
    grep -q '34 s\*b\*h + 5 a\*b\*s^2 = ' "$tmp/out" || fail "the ledger lacks the textbook"
}

test_plan_and_check() {
    local stale=(--set model.kind=llama --set model.dropout=0 --set train.clip=0 --set layout.pp=2
        --set layout.schedule=pipedream --set layout.microbatches=4)
    for verb in plan explain; do
        run 0 $verb recipes/tiny.yaml "${stale[@]}"
        grep -q '^pipedream is asynchronous: 4 updates a step' "$tmp/out" || fail "$verb does not tell of staleness"
        run 0 $verb recipes/tiny.yaml "${stale[@]}" --set layout.schedule=1f1b
        grep -q asynchronous "$tmp/out" && fail "$verb takes 1f1b for asynchronous"
    done
    local fault num=0
    run 0 plan recipes/tiny.yaml
    grep -q 'expected .* bytes' "$tmp/out" || fail "plan has no total"
    local dp
    for dp in 65536 1048576; do
        run 0 plan recipes/tiny.yaml --set layout.dp=$dp --set layout.zero=3
        grep -q 'plan .* total' "$tmp/out" || fail "plan has no total with $dp ranks"
        run 0 explain recipes/tiny.yaml --summary --rank $((dp - 1)) --set layout.dp=$dp --set layout.zero=3
    done
    run 0 plan --set model.preset=gpt3-175b --set data.seq_len=2048
    grep -q '174604259328' "$tmp/out" || fail "GPT-3 has another number of parameters"
    run 0 explain recipes/tiny.yaml --summary --set layout.pp=2 --set layout.schedule=zb-v --set layout.microbatches=2
    grep -q 'with the embedding, layers 0 and 3 and what comes after them' "$tmp/out" || fail "explain takes the layers of a V for one run"
    run 0 explain recipes/tiny.yaml --summary
    run 0 explain recipes/tiny.yaml --graph
    run 0 check recipes/tiny.yaml
    run 0 check --break list
    for fault in $(awk '/^  / { print $1 }' "$tmp/out"); do
        num=$((num + 1))
        local more=(--set layout.bucket_mb=0.05)
        [ "$fault" = late-gather ] && more=(--set layout.zero=3 --set layout.keep_gathered=true)
        [ "$fault" = lost-terms ] && more=(--set model.loss_tile=8)
        case $fault in
        swapped-turns | shared-work) more=(--set layout.pp=2 --set layout.zero=3 --set layout.schedule=dualpipe --set layout.pairs=true --set layout.microbatches=4) ;;
        wrong-distance | wrong-source) more=(--set layout.cp=3) ;;
        small-room | loose-plan) more=(--set layout.cp=2 --set layout.cp_kind=gather --set data.mask_documents=true) ;;
        esac
        refused 2 'rejected: ' check recipes/tiny.yaml --set layout.microbatches=3 --set layout.dp=2 "${more[@]}" --break "$fault"
    done
    [ $num -ge 10 ] || fail "only $num faults are listed"
    refused 2 'there is no fault' check --break nothing
}

test_paced_bench() {
    run 0 bench recipes/tiny.yaml --paced --json --steps 2 < <(printf '\n\n')
    [ "$(grep -c '"step_ms"' "$tmp/out")" -eq 2 ] || fail "bench --paced does not print two steps"
    [ "$(wc -l <"$tmp/out")" -eq 3 ] || fail "bench --paced does not end with the whole"
}

test_example() {
    checks=$((checks + 1))
    "$build/examples/embed" >"$tmp/out" 2>"$tmp/err" || fail "examples/embed failed"
    grep -q '^loss [0-9.]* -> [0-9.]*$' "$tmp/out" || fail "examples/embed shows no loss"
    "$build/examples/embed" no.such=1 >"$tmp/out" 2>"$tmp/err" && fail "embed took a wrong setting"
}

test_help
test_mistakes
test_files_that_do_not_do
test_loss_that_is_not_finite
test_two_runs_in_a_directory
test_full_disk
test_run
test_generate
test_memory_is_as_planned
test_memory_used_is_at_most_what_is_expected
test_memory_of_recomputation
test_recompute
test_plan_and_check
test_paced_bench
test_example
echo "$checks commands, $failures failures"
[ $failures -eq 0 ]
