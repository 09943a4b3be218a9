#!/usr/bin/env bash
# Flags that stand for settings, and train --quiet: they do what --help says, and what contradicts
# itself is refused. Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
recipe=$PWD/recipes/tiny.yaml
tmp=$(mktemp -d "${TMPDIR:-/tmp}/trireme-short-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 out err 2>/dev/null
}

# run CODE ARGS...: trireme ARGS ends with CODE.
run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" "$@" >out 2>err </dev/null
    code=$?
    [ $code -eq "$want" ] || fail "trireme $* ended with $code, not $want"
}

# refused TEXT ARGS...: with one line that holds TEXT, and before anything is written.
refused() {
    local text=$1
    shift
    run 2 "$@"
    [ "$(wc -l <err)" -eq 1 ] || fail "trireme $* says more than one line"
    grep -qF -- "$text" err || fail "trireme $* does not say \"$text\""
}

# only PATTERN: one line was printed, which matches, and no error.
only() {
    checks=$((checks + 1))
    [ "$(wc -l <out)" -eq 1 ] && [ ! -s err ] && grep -qE "$1" out || fail "not the line $1 alone"
}

small="--set train.steps=4 --set run.threads=1"

# --name and --quiet: the recipe's run.dir gives way, and the summary is all there is.
# shellcheck disable=SC2086
run 0 train "$recipe" $small --name first --quiet --set ckpt.every=2 --set train.eval_every=2
only '^4 steps in .*; loss [0-9.]+ -> [0-9.]+$'
[ -f runs/first/metrics.jsonl ] || fail "--name first wrote no runs/first"
grep -q '^  dir: "runs/first"$' runs/first/config.yaml || fail "config.yaml has another run.dir"
[ -d runs/tiny ] && fail "--name left the recipe's run.dir in place"

# What moved aside is told, and not on standard output.
# shellcheck disable=SC2086
run 0 train "$recipe" $small --name moved --quiet
# shellcheck disable=SC2086
run 0 train "$recipe" $small --name moved --quiet
[ "$(wc -l <out)" -eq 1 ] && grep -qE '^4 steps in ' out || fail "--quiet says more than the summary"
grep -q '^trireme: note: the earlier run in runs/moved is now runs/moved.1$' err || fail "--quiet hides that a run moved"

# --resume goes on, also with two ranks, whose rank 0 speaks through the launcher.
run 0 train runs/first --resume --quiet --set train.steps=6 --set layout.dp=2
only '^2 steps in '
run 0 train runs/first --resume
grep -q '^nothing to train: step 4 is done' out && fail "--resume took an old checkpoint"
grep -q '^resume  runs/first/ckpt/step-6: 6 of' out || fail "--resume does not say where it goes on"

# Without a checkpoint it is an error, as run.resume=true is, and --quiet does not hide it.
run 2 train "$recipe" --name none --resume --quiet
grep -q 'runs/none' err || fail "--resume without a checkpoint: the error does not name the run"
[ -s out ] && fail "--quiet prints something before an error"

# Warnings and errors stay: the gradients are not finite from the third step on.
run 1 train "$recipe" --name bad --quiet --set train.steps=8 --set train.max_skipped=1 --set train.clip=0 \
    --set optim.kind=sgd --set optim.lr=1000 --set optim.warmup_steps=0 --set run.threads=1
[ "$(cat out)" = "step 3  skipped: the gradient is not finite; the weights stay as they were (samples 16 to 23)" ] ||
    fail "--quiet hides that a step was skipped, or says more"
grep -q 'trireme: the gradient is not finite in 2 steps in a row' err || fail "--quiet hides an error"

# What is not short for anything that was asked for.
mkdir none && cd none || exit 1
refused '--resume is short for run.resume=true, but --set run.resume=false is given, too; leave one of them out' \
    train "$recipe" --resume --set run.resume=false
refused '--name is short for run.dir=runs/a, but --set run.dir=b is given, too' train "$recipe" --set run.dir=b --name a
refused '--name is "a/b", but a name has no / in it' train "$recipe" --name a/b
refused '--name is ".a", but a name' train "$recipe" --name .a
refused '--name is empty' train "$recipe" --name ''
refused '--dry-run does nothing but print' train "$recipe" --quiet --dry-run
refused '--tokens is short for generate.tokens=3, but --set generate.tokens=4 is given, too' \
    generate "$recipe" --tokens 3 --set generate.tokens=4
refused '--tokens: ' generate "$recipe" --tokens many
rm -f out err
[ -z "$(ls -A)" ] || fail "a command that was refused left $(ls -A)"

# The same twice is no contradiction.
run 0 train "$recipe" --name a --set run.dir=runs/a --dry-run
grep -q '^run     runs/a' out || fail "--dry-run does not show the name"

# What --help says.
run 0 train --help
for flag in --name --resume --quiet; do
    grep -q -- "^  $flag " out || fail "train --help has no $flag"
done

echo "$checks checks, $failures failures"
[ $failures -eq 0 ]
