#!/usr/bin/env bash
# The program as somebody meets it who comes from elsewhere: recipes by name, here and installed,
# help that fits a screen, names of other trainers. Argument: the build directory. Run from the root
# of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d /tmp/trireme-newcomer-XXXXXX)
failures=0 checks=0
trap 'rm -rf "$tmp"' EXIT

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 "$tmp/out" "$tmp/err" 2>/dev/null
}

# run CODE TEXT ARGS...: trireme ARGS ends with CODE, and what it prints holds TEXT.
run() {
    local want=$1 text=$2 code
    shift 2
    checks=$((checks + 1))
    "${program:-$trireme}" "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
    [ $code -eq "$want" ] || fail "trireme $* ended with $code, not $want"
    grep -qF -- "$text" "$tmp/out" "$tmp/err" || fail "trireme $* does not say \"$text\""
}

# ---- the page of promises names tests that there are ----

for name in $(grep -o '`test_[a-z0-9_]*`' docs/promises.md | tr -d '`' | sort -u); do
    checks=$((checks + 1))
    compgen -G "tests/*/$name.[cs]*" >/dev/null || fail "docs/promises.md names $name, which there is not"
done

# ---- recipes are found by name, in the repository and where the program is installed ----

run 0 'parameters' plan tiny
run 0 'parameters' plan tiny.yaml
run 2 'did you mean tiny? name a YAML file, a run directory or one of the recipes: bert-course, demo,' plan tinny
run 2 'there is no settings file far/away.yaml' plan far/away.yaml
mkdir -p "$tmp/usr/bin" "$tmp/usr/share/trireme/recipes" "$tmp/home"
cp "$trireme" "$tmp/usr/bin/" && cp recipes/tiny.yaml recipes/demo.yaml "$tmp/usr/share/trireme/recipes/"
cp recipes/tiny.yaml "$tmp/"
program=$tmp/usr/bin/trireme
cd "$tmp/home" || exit 1
run 0 'parameters' plan tiny
run 0 'parameters' plan recipes/tiny.yaml
run 0 'step 1/1' train tiny --set train.steps=1
run 2 "one of the recipes: demo, tiny (in $tmp/usr/share/trireme/recipes)" plan small
mkdir recipes && echo 'model: {dim: 4, num_heads: 2}' >recipes/tiny.yaml
run 0 'dim: 4' settings recipes/tiny.yaml # one of one's own comes first
run 2 'demo, tiny (in' plan small
grep -qF 'tiny (in recipes); demo' "$tmp/err" || fail "the recipes here are not listed"
rm -r recipes "${tmp:?}/usr/share"
run 2 "no recipes were found in ./recipes or $tmp/usr/share/trireme/recipes" plan tiny
mkdir -p "$tmp/checkout/build" "$tmp/checkout/recipes" # and one that was built and not installed
cp "$trireme" "$tmp/checkout/build/" && cp "$tmp/tiny.yaml" "$tmp/checkout/recipes/"
program=$tmp/checkout/build/trireme
run 0 'parameters' plan tiny
program=
cd - >/dev/null || exit 1

# ---- what people type ----

run 0 'dim: 64' settings tiny
run 2 'say first what to do with it: trireme train tiny' tiny
run 2 'a settings file stands by itself: trireme train FILE.yaml' train --config tiny
run 2 'did you mean gpt2-124m? known presets' plan --set model.preset=gpt2
run 2 'write $HOME' train --set data.source='~/mine.txt' --set run.dir="$tmp/x"

# ---- what is there, and cannot be reached, is not called missing ----

ln -s loop "$tmp/loop" # for root, too, this can be neither opened nor said to be absent
for args in "train --set data.source=$tmp/loop --set run.dir=$tmp/x" "plan $tmp/loop" \
    "data prepare $tmp/loop --tokenizer bytes --out $tmp/y" "plan --set model.from=$tmp/loop" \
    "train --set data.source=README.md --set data.tokenizer=$tmp/loop --set run.dir=$tmp/x" \
    "generate --set run.dir=$tmp/loop" \
    "train --set data.task=classify --set data.source=$tmp/loop --set run.dir=$tmp/x"; do
    # shellcheck disable=SC2086 # words
    run 2 'Too many levels of symbolic links' $args
    grep -q 'cannot be found\|there is no' "$tmp/err" && fail "trireme $args calls it missing"
done

# ---- help fits a screen, and says where the rest is ----

for verb in train generate eval plan place explain check sim bench ckpt data doctor settings; do
    COLUMNS=80 run 0 "trireme $verb" $verb --help
    [ "$(wc -l <"$tmp/out")" -le 42 ] || fail "trireme $verb --help has $(wc -l <"$tmp/out") lines"
done
run 0 'ckpt.every' train --help
run 0 'trireme settings ckpt' train --help
run 0 'ckpt.staging_mib' train --help all
run 0 'ckpt.staging_mib' help train all

# ---- names of other trainers ----

run 0 'layout.microbatches' settings --aliases
"$trireme" settings --aliases --markdown | diff -q - docs/coming-from.md >/dev/null ||
    fail "docs/coming-from.md is not what the table says: make docs"
run 2 'this one is layout.microbatches (a count, not a size' train --micro-batch-size 2
run 2 '--set optim.lr=1e-3' train --lr 1e-3

# ---- a wrong algorithm is wrong on one rank and on paper ----

for verb in plan check explain 'train --set run.dir=/nonexistent/x'; do
    # shellcheck disable=SC2086 # words
    run 2 'run.collective: there is no algorithm "rign"' $verb --set run.collective=rign
done
run 2 'run.collective: torus2d:8x4' plan --set run.collective=torus2d:8x4 --set layout.dp=3
run 0 'parameters' plan --set run.collective=torus2d:8x4

# ---- run.device=auto becomes a device, and all ranks the same ----

run 0 'device: "c' settings tiny.yaml
port=$((20000 + RANDOM % 10000))
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 200 "$trireme" train tiny \
        --set layout.dp=2 --set train.steps=1 --set run.dir="$tmp/apart" --set run.save=false \
        --set run.device=$([ $rank = 0 ] && echo cpu || echo null) >"$tmp/out.$rank" 2>&1 &
    pids[rank]=$!
done
wait "${pids[0]}" "${pids[1]}"
checks=$((checks + 1))
grep -q 'run.device is null on rank 1 and cpu on rank 0; set it' "$tmp"/out.? ||
    fail "ranks with different devices: $(cat "$tmp"/out.?)"

echo "$checks checks, $failures failed"
[ $failures -eq 0 ]
