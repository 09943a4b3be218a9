#!/usr/bin/env bash
# trireme plan --search as a person types it: the table, why not otherwise, and a command that does
# what the table says. Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$build/trireme
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN TORCHELASTIC_RUN_ID
tmp=$(mktemp -d /tmp/trireme-search-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 3000 "$tmp/out" "$tmp/err" 2>/dev/null
}

# run CODE ARGS...
run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    [ $code -eq "$want" ] || fail "trireme $* ended with $code, not $want"
}

search() {
    run 0 plan --search "$@"
}

# has PATTERN: a line of the last output matches, blanks squeezed.
has() {
    tr -s ' ' <"$tmp/out" | grep -qE -- "$1" || fail "no line of the output is \"$1\""
}

# refused TEXT ARGS...: wrong usage, one line on stderr that holds TEXT, nothing on stdout.
refused() {
    local text=$1
    shift
    run 2 plan --search "$@"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "plan --search $* says more than one line"
    grep -qF -- "$text" "$tmp/err" || fail "plan --search $* does not say \"$text\""
    [ -s "$tmp/out" ] && fail "plan --search $* was refused, but printed something"
}

# first_number KEY FILE: of the first layout that is listed.
first_number() {
    sed 's/.*"best":\[//' "$2" | grep -o "\"$1\":[-0-9.e+]*" | head -n 1 | cut -d: -f2
}

# number KEY: of the last output.
number() {
    grep -o "\"$1\":[-0-9.e+]*" "$tmp/out" | head -n 1 | cut -d: -f2
}

near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= 1e-6 * b) }' ||
        fail "$3: $1 is not $2"
}

# The printed command trains the first layout: sim says that it takes the seconds and the bytes that
# are listed, and plan has its ranks. The last output is that of --json.
command_is_so() {
    local command bytes seconds stage devices
    cp "$tmp/out" "$tmp/found"
    command=$(sed -n 's/.*"command":"trireme train \([^"]*\)".*/\1/p' "$tmp/found")
    [ -n "$command" ] || fail "there is no command"
    bytes=$(first_number memory_bytes "$tmp/found")
    seconds=$(first_number step_seconds "$tmp/found")
    stage=$(first_number fullest_stage "$tmp/found")
    devices=$(sed -n 's/^{"devices":\([0-9]*\),.*/\1/p' "$tmp/found")
    # shellcheck disable=SC2086
    run 0 sim $command --json "$@"
    near "$(number step_ms)" "$(awk -v s="$seconds" 'BEGIN { printf "%.12g", 1000 * s }')" "step of $command"
    near "$(grep -o "\"stage\":$stage,\"plan_bytes\":[0-9]*" "$tmp/out" | cut -d: -f3)" "$bytes" "bytes of $command"
    # shellcheck disable=SC2086
    run 0 plan $command --json --set run.device=null
    [ "$(number num_ranks)" = "$devices" ] || fail "$command has not $devices ranks"
}

# ---- a tiny recipe ----

tiny=(recipes/tiny.yaml --device h100)
search "${tiny[@]}" --devices 4
has '^gpt2 on 4 x NVIDIA H100 SXM \(fitted\), .*; a step of 512 tokens$'
has '^[0-9,]+ layouts: [0-9,]+ cannot be, [0-9,]+ do not fit, [0-9,]+ were looked at exactly'
has '^ 1 [0-9.]+ ms [0-9.]+ k [0-9.]+ % [0-9.]+ '
has '^ [a-z ]+ [0-9]* *\+[0-9.]+ %: .* more$'
has '^ trireme train recipes/tiny.yaml --set layout\.'
[ -s "$tmp/err" ] && fail "progress is told although nobody watches"
search "${tiny[@]}" --devices 4 --json
command_is_so --device h100
search "${tiny[@]}" --cluster nodes=2,devices_per_node=2,node_bandwidth=300G,cards_per_node=1,card_bandwidth=1G \
    --set train.batch=6 --set precision.kind=bf16 --json
command_is_so --device h100 --cluster nodes=2,devices_per_node=2,node_bandwidth=300G,cards_per_node=1,card_bandwidth=1G

# ---- a model of 8 billion parameters ----

llama=(--set model.preset=llama3-8b --set precision.kind=bf16 --set data.seq_len=2048 --set train.batch=64
    --devices 8 --device h100 --exact 48)
search "${llama[@]}"
has '^llama3-8b on 8 x NVIDIA H100 SXM \(fitted\), .*; a step of 131,072 tokens$'
has '^ no pipeline '
has '^ zero 0 '
has '^ trireme train --set model.preset=llama3-8b --set precision.kind=bf16 .*--set layout'
[ "$(grep -cE '^ *[0-9]+=? +[0-9.]+ m?s ' "$tmp/out")" -ge 4 ] || fail "fewer than four meshes are listed"
search "${llama[@]}" --fix layout.tp=2 --json
command_is_so --device h100
[ "$(grep -o '"layout":{"tp":[0-9]*' "$tmp/found" | sort -u)" = '"layout":{"tp":2' ] || fail "--fix layout.tp=2 is not in every row"

# ---- what is fixed holds ----

search "${tiny[@]}" --devices 8 --fix layout.pp=2 --fix layout.zero=1 --top 3 --exact 32
rows=$(grep -cE '^ *[0-9]+=? +[0-9.]+ m?s ' "$tmp/out")
[ "$rows" -ge 1 ] || fail "no layout with pp 2 and zero 1"
[ "$(grep -E '^ *[0-9]+=? +[0-9.]+ m?s ' "$tmp/out" | grep -c 'pp 2 .*zero 1')" -eq "$rows" ] ||
    fail "--fix layout.pp=2 --fix layout.zero=1 is not in every row"
[ "$rows" -le 3 ] || fail "--top 3 lists $rows"
search "${tiny[@]}" --devices 2 --fix optim.kind=sgd --top 1 --exact 16
has '^ trireme train recipes/tiny.yaml --set optim.kind=sgd'
search "${tiny[@]}" --devices 4 --fix layout.pp=2 --fix layout.schedule=gpipe --top 1 --exact 16
has '^ trireme train .* --set layout.schedule=gpipe'

# ---- what is refused ----

refused 'layout.tp is "x"' "${tiny[@]}" --devices 2 --fix layout.tp=x
refused 'layout.tp is 0' "${tiny[@]}" --devices 2 --fix layout.tp=0
refused 'did you mean layout.tp' "${tiny[@]}" --devices 2 --fix tp=2
refused 'unknown setting "layout.nothing"' "${tiny[@]}" --devices 2 --fix layout.nothing=2
refused 'it knows 1f1b' "${tiny[@]}" --devices 2 --fix layout.schedule=pipedream
refused 'free something, or raise train.batch' "${tiny[@]}" --devices 2 --fix layout.tp=3
for devices in 0 -1 abc 8..4 8.. 4..x '' 99999999; do
    refused "--devices is \"$devices\"; write a number" "${tiny[@]}" --devices "$devices"
done
refused 'add --devices 8' "${tiny[@]}"
refused 'there is no cluster "unknown"' recipes/tiny.yaml --cluster unknown --devices 8
refused 'h100' recipes/tiny.yaml --device h10000 --devices 2
refused 'it is time, memory, energy or money' "${tiny[@]}" --devices 2 --objective bad
refused 'add how many tokens' "${tiny[@]}" --devices 2 --days 30
refused 'take more devices (--devices)' "${tiny[@]}" --devices 2 --budget 1KB
refused 'take more devices (--devices)' --set model.preset=llama3-70b --device h100 --devices 2
refused 'leave one of them out' recipes/tiny.yaml --profile "$tmp/none.json" --cluster dgx-h100 --devices 2
refused 'leave one of them out' recipes/tiny.yaml --profile "$tmp/none.json" --device h100 --devices 2
refused "$tmp/none.json" recipes/tiny.yaml --profile "$tmp/none.json" --devices 2
refused 'top' "${tiny[@]}" --devices 2 --top 0
refused 'exact' "${tiny[@]}" --devices 2 --exact 1

# ---- what a command must not lose ----

search "${tiny[@]}" --devices 2 --top 1 --exact 16 --set layout.dp=2 --fix layout.dp=2
has '^ trireme train recipes/tiny.yaml .*--set layout.dp=2'
search "${tiny[@]}" --devices 2 --top 1 --exact 16 --fix layout.bucket_mb=3
has '^ trireme train recipes/tiny.yaml .*--set layout.bucket_mb=3'
search "${tiny[@]}" --devices 2 --top 1 --exact 16 --fix layout.recompute=budget:64MiB
has '^ trireme train recipes/tiny.yaml .*--set layout.recompute=budget:64MiB'
refused 'layout.recompute=every:3' "${tiny[@]}" --devices 2 --fix layout.recompute=every:3
refused 'layout.etp=2' "${tiny[@]}" --devices 2 --fix layout.etp=2
run 2 plan --search --set model.preset=llama3-70b --device h100 --devices 2 --json
refused 'at least' --set model.preset=llama3-70b --device h100 --devices 2

# ---- a profile of the machine that this is ----

run 0 bench device --seconds 2 --out "$tmp/profile.json" --set run.device=cpu
if [ "$(nproc)" -ge 2 ] && [ "$(nproc)" -le 8 ]; then
    search recipes/tiny.yaml --profile "$tmp/profile.json" --devices 2
    has '^gpt2 on 2 x .* \(measured\); a step of 512 tokens$'
    has '^ 1 [0-9.]+ m?s .* rows?'
    has '^ trireme train recipes/tiny.yaml'
    search recipes/tiny.yaml --profile "$tmp/profile.json" --devices 2 --json
    command_is_so --profile "$tmp/profile.json"
    # shellcheck disable=SC2046
    run 0 plan $(sed -n 's/.*"command":"trireme train \([^"]*\)".*/\1/p' "$tmp/found") \
        --json --set run.device=cpu
    near "$(number plan_bytes)" "$(first_number memory_bytes "$tmp/found")" "bytes of rank 0"
else
    echo "skipped: two ranks by a profile ($(nproc) processors)"
fi

[ $failures -eq 0 ] || exit 1
echo "$checks commands do what they say"
