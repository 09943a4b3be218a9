#!/usr/bin/env bash
# trireme plan --advise: the rule that a textbook has for a case is the one that follows, the layout
# at the end is one that `sim` times and finds to fit, and what cannot be is said with what to do.
# Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$build/trireme
tmp=$(mktemp -d /tmp/trireme-advise-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 3000 "$tmp/out" "$tmp/err" 2>/dev/null
}

# advise CODE ARGS...
advise() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" plan --advise "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    [ $code -eq "$want" ] || fail "trireme plan --advise $* ended with $code, not $want"
}

# has PATTERN: a line of the last output matches, blanks squeezed.
has() {
    checks=$((checks + 1))
    tr -s ' ' <"$tmp/out" | grep -qE -- "$1" || fail "no line of the output is \"$1\""
}

# answer NUMBER PATTERN: the line under the question with that number.
answer() {
    checks=$((checks + 1))
    grep -A1 "^$1\. " "$tmp/out" | tail -n 1 | grep -qE -- "$2" ||
        fail "the answer to question $1 is not \"$2\""
}

# sets SETTING ...: the command at the end has them; lacks SETTING: it does not.
command_line() {
    grep '^ *trireme train ' "$tmp/out"
}
sets() {
    local setting
    for setting in "$@"; do
        checks=$((checks + 1))
        command_line | grep -qE -- " --set $setting( |\$)" || fail "the command does not set $setting"
    done
}
lacks() {
    checks=$((checks + 1))
    command_line | grep -qE -- " --set $1" && fail "the command sets $1"
}

# value KEY FILE: a number of a JSON document, the first of that name.
value() {
    grep -oE "\"$1\":[-0-9.e+]+" "$2" | head -n 1 | cut -d: -f2
}

# checked MACHINE...: sim, which reads the command's settings, has the same time and plan, and fits.
checked() {
    local words advised
    checks=$((checks + 1))
    words=$(command_line | sed 's/^ *trireme train//')
    # shellcheck disable=SC2086 # the words of a command
    "$trireme" sim $words "$@" --json >"$tmp/sim" 2>"$tmp/err" || fail "sim refuses$words"
    grep -q '"fits":true' "$tmp/sim" || fail "sim says that$words does not fit"
    advised=$(grep -oE 'simulated to take [0-9.,]+ ms' "$tmp/out" | tr -dc '0-9.')
    awk -v a="$advised" -v b="$(value step_ms "$tmp/sim")" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= 6e-4 * b) }' ||
        fail "advised are $advised ms, and sim has $(value step_ms "$tmp/sim")"
}

# refused TEXT ARGS...: wrong usage, one line on stderr that holds TEXT, nothing on stdout.
refused() {
    local text=$1
    shift
    advise 2 "$@"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "$* says more than one line"
    grep -qF -- "$text" "$tmp/err" || fail "$* does not say \"$text\""
    [ -s "$tmp/out" ] && fail "$* was refused, but printed something"
}

bf16=(--set precision.kind=bf16)

# ---- fits on one device: plain data parallelism ----

advise 0 "${bf16[@]}" --set model.preset=gpt2-124m --set train.batch=64 --device h100 --devices 8
answer 1 '^ +Yes'
answer 2 '^ +No: every device holds all'
answer 4 '^ +No: all of it fits on a device'
has '^ > dp 8, zero 0, mb 1 '
sets layout.dp=8
lacks 'layout\.(zero|tp|pp|cp|recompute|microbatches)='
lacks 'run\.lanes='
checked --device h100

# ---- a 13 B Llama on 8 devices: FSDP ----

llama13b=(--set model.kind=llama --set model.num_layers=40 --set model.dim=5120
    --set model.num_heads=40 --set model.ffn_dim=13824 --set model.vocab=32000
    --set model.positions=4096 --set data.seq_len=4096)
advise 0 "${bf16[@]}" "${llama13b[@]}" --set train.batch=64 --device a100 --devices 8
answer 1 '^ +No: '
answer 2 '^ +Yes: ZeRO 3 \(FSDP\) is the lowest level that fits\.$'
answer 3 '^ +No: '
has '^ dp 8, zero 2, mb 8 .* does not fit$'
has 'offload to the host$'
has 'Trireme does not have it for GPUs yet$'
sets layout.dp=8 layout.zero=3
lacks 'layout\.(tp|pp|cp)='
checked --device a100

# ---- 70 B on 256 devices: tensor parallelism stays in the node ----

advise 0 "${bf16[@]}" --set model.preset=llama3-70b --set data.seq_len=8192 \
    --set train.batch=128 --cluster dgx-h100:32
answer 3 'without it a row does not fit'
answer 4 '^ +Yes: '
answer 5 '^ +(Yes|No): with one a step takes '
has '^ devices of a node 8$'
has '^ links of a device within a node 450 GB/s$'
has '^ links of a device beyond its node 50 GB/s$'
has '^ fastest below: bubble, \(p-1\)/\(m\+p-1\) [0-9.]+ %$'
has '^ limit of FSDP over all devices 19,790$' # 989.5e12 / 50e9
sets 'layout.tp=[248]' layout.sp=true run.lanes=group
checked --cluster dgx-h100:32

# Where a node has two devices, none of four is tried.
advise 0 "${bf16[@]}" "${llama13b[@]}" --set train.batch=64 --cluster dgx-h100:4,devices_per_node=2
has '^ devices of a node 2$'
has '^ >? ?dp 4 tp 2 sp, '
checks=$((checks + 1))
grep -qE ' tp (4|8|16) ' "$tmp/out" && fail "tensor parallelism leaves the node"

# ---- long rows: context parallelism ----

long=(--set model.preset=llama3-8b --set data.seq_len=131072)
advise 0 "${bf16[@]}" "${long[@]}" --set model.positions=131072 --set train.batch=2 \
    --device h100 --devices 8
answer 6 '^ +Yes: '
has '^ tokens of a row 131,072$'
sets 'layout.cp=[248]'
checked --device h100

# ---- experts: expert parallelism ----

advise 0 "${bf16[@]}" --set model.preset=mixtral-8x7b --set model.num_layers=12 \
    --set data.seq_len=4096 --set train.batch=32 --device h100 --devices 8
answer 7 '^ +Yes: with expert parallelism'
has '^ >? ?dp 8 ep 8, '
sets 'layout.ep=[248]' layout.ep_room=2
checked --device h100

# ---- what does not fit ----

advise 2 "${bf16[@]}" --set model.preset=llama3-8b --set data.seq_len=8192 --set train.batch=8 \
    --device h100
has '^nothing that was tried fits: the smallest plan is [0-9.]+ GiB of 67.1 GiB'
has '^4 such devices would be enough$'
grep -qF 'take 4 devices' "$tmp/err" || fail "the error does not say how many devices"
[ -z "$(command_line)" ] || fail "a command is printed that does not fit"
advise 0 "${bf16[@]}" --set model.preset=llama3-8b --set data.seq_len=8192 --set train.batch=8 \
    --device h100 --devices 4
checked --device h100

# ---- a file's own layout is left aside, and run.memory_limit is the room ----

advise 0 recipes/fsdp-tp.yaml --device l40s --devices 4
has '^a plan may take 256.0 MiB .* so says run.memory_limit$'
has '^products of f32, .* precision.kind=bf16 has'
command_line | grep -q 'trireme train recipes/fsdp-tp.yaml --set ' || fail "the file is not named"
checked --device l40s

# ---- what cannot be asked ----

refused '--advise is about a machine; add --device h100 --devices 8' --set model.preset=llama3-8b
refused '--advise chooses layout.tp, and layout.tp=2 is given' --set layout.tp=2 --device h100
refused '--rank changes nothing beside --advise' --rank 1 --device h100
refused 'there is no device "h1000"; did you mean h100?' --device h1000
refused '--devices is 0' --device h100 --devices 0
refused 'has 2 nodes of 8 devices, and 99 are asked for' --cluster dgx-h100:2 --devices 99
refused 'set model.positions' "${long[@]}" --device h100
"$trireme" plan --devices 2 2>"$tmp/err" >"$tmp/out"
grep -qF -- '--devices says nothing without --search' "$tmp/err" || fail "--devices alone is taken"

# ---- JSON ----

advise 0 "${bf16[@]}" --set model.preset=gpt2-124m --set train.batch=64 --device h100 --devices 8 \
    --json
cp "$tmp/out" "$tmp/json"
for key in '"questions":[{"name":"one_device"' '"advised":{"layout":{"dp":8,"tp":1,' '"fits":true' \
    '"command":"trireme train --set precision.kind=bf16' '"settings":["layout.dp=8"]'; do
    checks=$((checks + 1))
    grep -qF -- "$key" "$tmp/json" || fail "the document has no $key"
done

[ $failures -eq 0 ] || {
    echo "$failures of $checks checks failed"
    exit 1
}
echo "$checks checks passed"
