#!/usr/bin/env bash
# The first lines of a run, which say what it is, train --dry-run, and what stays on a terminal.
# Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d /tmp/trireme-first-XXXXXX)
failures=0 checks=0
trap 'rm -rf "$tmp"' EXIT

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 3000 "$tmp/out" 2>/dev/null
}

# run CODE ARGS...: trireme ARGS; what it prints goes to $tmp/out.
run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" "$@" >"$tmp/out" 2>&1
    code=$?
    [ $code -eq "$want" ] || fail "trireme $* ended with $code, not $want"
}
# says PATTERN...: of the last run.
says() {
    local pattern
    for pattern in "$@"; do
        checks=$((checks + 1))
        grep -qE -- "$pattern" "$tmp/out" || fail "\"$pattern\" is not said"
    done
}

# ---- what a run says of itself ----

run 0 train tiny --set train.steps=20 --set run.dir="$tmp/a" --set run.device=cpu
says '^model   gpt2, 4 layers, width 64, 220.5 k parameters, fp32$' '^data    synthetic' \
    '^batch   8 rows x 64 tokens x 20 steps = 10,240 tokens$' \
    '^optim   adamw, lr 0.003, constant after 4 steps of warm-up, weight decay 0.1, clip 1$' \
    '^layout  1 rank$' '^memory  [0-9.]+ MiB planned, of [0-9.]+ [MGT]iB$' '^device  cpu, ' "^run     $tmp/a"
grep -n '^step' "$tmp/out" | head -n 1 | grep -q '^[1-9]:' || fail "more than eight lines before the first step"
grep -q '^note' "$tmp/out" && fail "a recipe of ours is noted"
says '^20 steps in .* [kM]? ?tokens/s; loss'
run 0 train tiny --set train.steps=1 --set run.dir="$tmp/b" --set layout.pp=2 --set layout.dp=2 --set layout.zero=3 \
    --set layout.microbatches=4 --set optim.warmup_steps=0
says '^layout  4 ranks: 2 pipeline stages \(1f1b, 4 micro-batches, 20 % bubble\) x 2 data-parallel \(ZeRO 3\)$' \
    'MiB planned a rank, [0-9.]+ MiB in all, of' '^device  cpu, .*, on each rank, over shm' '^1 step in '
run 0 train tiny --set train.steps=1 --set run.dir="$tmp/c" --set layout.sp=true --set run.device=auto
says '^note    layout.sp=true has no effect with layout.tp=1; set layout.tp above 1, or leave it out$'
grep -q '^  device: "auto"' "$tmp/c/config.yaml" && fail "config.yaml does not hold what auto became"
run 0 plan tiny --set layout.sp=true
says '^note    layout.sp=true has no effect'
run 0 check tiny --set layout.sp=true
says '^note    layout.sp=true has no effect'

# ---- --dry-run ----

printf 'The first row of a short text,\twhich is shown. %.0s' {1..40} >"$tmp/short.txt"
before=$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'trireme-dry-*' | wc -l)
run 0 train --dry-run --set data.source="$tmp/short.txt" --set data.tokenizer=bpe:300 --set run.dir="$tmp/none" \
    --set layout.dp=2 --set ckpt.every=10 --set layout.zero=2
says '^tokens  making the tokenizer bpe:300' '^layout  2 ranks: 2 data-parallel \(ZeRO 2\)' '^  plan  *total' \
    '^check   proven: .*messages of all ranks meet' '^disk    .* of weights \+ 4 checkpoints of .* are free there' \
    '^row     the first of 8: 64 tokens, 0 of padding; 64 targets, 0 ignored' 'short text,\\twhich is shown' \
    'nothing was trained or written'
[ -e "$tmp/none" ] && fail "--dry-run wrote $(find "$tmp/none")"
[ "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'trireme-dry-*' | wc -l)" -le "$before" ] || fail "--dry-run left a directory"
run 2 train --dry-run --set data.source="$tmp/nothere" --set run.dir="$tmp/none"
run 2 train --dry-run --set layout.tp=3 --set model.num_heads=2 --set run.dir="$tmp/none"
[ -e "$tmp/none" ] && fail "a refused --dry-run wrote $(find "$tmp/none")"
run 0 train --dry-run --set model.kind=mlp --set run.dir="$tmp/none"
says '^batch   8 rows x 100 steps$' '^disk    .*no checkpoints'
run 0 train tiny --dry-run --set layout.dp=$((8 * $(nproc --all) + 129)) --set run.dir="$tmp/none"
says '^dry run: .*too few cores for so many ranks'
run 0 train tiny --dry-run --set layout.dp=100 --set model.dim=20000 --set model.num_layers=30 --set run.dir="$tmp/none"
says '^dry run: .*too little memory for it'

find "$tmp/a" "$tmp"/a.* -printf '%p %s %T@\n' 2>/dev/null | sort >"$tmp/before"
run 0 train tiny --dry-run --set run.dir="$tmp/a"
find "$tmp/a" "$tmp"/a.* -printf '%p %s %T@\n' 2>/dev/null | sort | cmp -s - "$tmp/before" || fail "--dry-run touched a run"

red=$tmp/$'\x1b[31mred'
run 0 train tiny --set run.dir="$red" --set train.steps=2 --set ckpt.every=2
cp "$tmp/out" "$tmp/outs"
for verb in "ckpt verify" "ckpt inspect" "ckpt diff $tmp/a/ckpt" "eval" "generate --prompt a --tokens 1"; do
    # shellcheck disable=SC2086 # words
    "$trireme" $verb "$red" >>"$tmp/outs" 2>&1
done
"$trireme" data prepare "$tmp/short.txt" --tokenizer bytes --out "$red/tokens" >>"$tmp/outs" 2>&1
grep -n $'\x1b' "$tmp/outs" >"$tmp/out" && fail "the name of a directory commands the terminal"
run 0 train tiny --dry-run --set run.dir="$red"
grep -q $'\x1b' "$tmp/out" && fail "the name of a directory commands the terminal"
says '^run     .*x1b\[31mred'

# ---- which weights ----

run 0 eval "$tmp/a"
says "^weights  +$tmp/a/weights.safetensors, step 20$"
run 0 generate "$tmp/a" --prompt-ids "1 2" --tokens 2
says "^weights $tmp/a/weights.safetensors, step 20$"

# ---- going on with fewer steps than are done ----

run 0 train tiny --set train.steps=4 --set ckpt.every=2 --set run.dir="$tmp/few" --set optim.warmup_steps=0
run 0 train tiny --set train.steps=2 --set run.resume=true --set run.dir="$tmp/few" --set optim.warmup_steps=0
says 'nothing to train: step 4 is done, and the run has 2; set train.steps above 4' '^nothing new in '
grep -q '^written' "$tmp/out" && fail "nothing was written, and it says so"

# ---- pictures and times of pipelines ----

run 0 sim --pp 8 --microbatches 300 --draw "$tmp/wide.svg"
says '^time [0-9.]+ units from'
width=$(sed -n 's/.*<svg [^>]* width="\([0-9]*\)".*/\1/p' "$tmp/wide.svg")
[ "$width" -le 1600 ] && grep -q 'viewBox="0 0 [0-9]\{5\} ' "$tmp/wide.svg" || fail "the picture has $width pixels"

# ---- on a terminal ----

# screen COLUMNS ARGS...: as on a terminal, without its commands.
screen() {
    local columns=$1
    shift
    checks=$((checks + 1))
    script -qec "stty cols $columns; $trireme $*" /dev/null </dev/null >"$tmp/raw" 2>&1 ||
        fail "trireme $* on a terminal"
    tr '\r' '\n' <"$tmp/raw" | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' >"$tmp/out"
}
if command -v script >/dev/null; then
    screen 60 train tiny --set train.steps=60 --set run.dir="$tmp/t" --set layout.sp=true
    awk '/^step 1\/60/ { exit } length($0) > 60 { bad = 1 } END { exit bad }' "$tmp/out" ||
        fail "lines are longer than the terminal is wide"
    says '^        layout.tp above 1, or leave it out|^        .*leave it out'
    # What is there after the last drawing: lines that end in a line feed.
    stay=$(grep -c $'^\\(\x1b\\[K\\)\\?step [0-9]*/60 .*[^\r]\r$\\|\x1b\\[Kstep [0-9]*/60 ' "$tmp/raw")
    [ "$stay" -ge 10 ] && [ "$stay" -le 45 ] || fail "$stay lines of steps stay on the terminal"
    grep -q $'\x1b\\[[0-9]*;*[0-9]*m' "$tmp/raw" && fail "colours in a run"
    screen 60 train --help
    NO_COLOR=1 screen 60 train --help
    grep -q $'\x1b' "$tmp/raw" && fail "NO_COLOR is not heard"
else
    echo "skipped: a terminal (there is no script program)"
fi

echo "$checks checks, $failures failed"
[ $failures -eq 0 ]
