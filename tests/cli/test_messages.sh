#!/usr/bin/env bash
# What is said of files that are missing, damaged or not what they should be: the file, the reason
# and what to do next. Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
root=$PWD
tmp=$(mktemp -d /tmp/trireme-messages-XXXXXX)
failures=0 checks=0
mounted=

clean_up() {
    [ -n "$mounted" ] && umount "$mounted"
    chmod -R u+rwx "$tmp"
    rm -rf "$tmp"
}
trap clean_up EXIT

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 "$tmp/out" "$tmp/err" 2>/dev/null
}

# says CODE TEXT... -- ARGS...: trireme ARGS, in $tmp, ends with CODE and one line on stderr, which
# holds every TEXT.
says() {
    local code=$1 texts=() text got
    shift
    while [ "$1" != -- ]; do
        texts+=("$1")
        shift
    done
    shift
    checks=$((checks + 1))
    (cd "$tmp" && "$trireme" "$@") >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ $got -eq "$code" ] || fail "trireme $* ended with $got, not $code"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "trireme $* does not say one line"
    for text in "${texts[@]}"; do
        grep -qF -- "$text" "$tmp/err" || fail "trireme $* does not say \"$text\""
    done
}

train() {
    "$trireme" train "$root/recipes/tiny.yaml" --set train.steps=4 --set ckpt.every=2 \
        --set run.dir="$1" >"$tmp/out" 2>"$tmp/err" || fail "a plain run"
}

# ---- files that cannot be opened ----

mkfifo "$tmp/pipe"
train "$tmp/run"
says 2 'there is no nothere.txt in /tmp/' 'plain text, or - for' -- eval run --data nothere.txt
says 2 'there is no a in /tmp/' -- eval run --data a/b.txt
says 2 "no b.txt in $tmp/run;" -- eval run --data "$tmp/run/b.txt"
says 2 'is a pipe, not a regular file' 'cat pipe > FILE' -- eval run --data pipe
says 2 'is a directory' 'name a file in it' -- eval run --data run
mkdir "$tmp/loop"
ln -s config.yaml "$tmp/loop/config.yaml"
says 2 'loop/config.yaml: cannot be opened: Too many levels' -- generate loop
says 2 'there is no nothere in /tmp/' 'trireme data prepare' -- data inspect nothere
says 2 'is no token shard' 'trireme data prepare' -- data inspect run/config.yaml
says 2 'holds no shard' 'trireme data prepare' -- data inspect run
says 2 'there is no nothere in /tmp/' 'name a checkpoint, a run directory' -- ckpt inspect nothere
mkdir "$tmp/empty"
says 2 'empty: holds neither weights' 'trireme train' -- ckpt inspect empty
if [ "$(id -u)" -ne 0 ]; then
    echo text >"$tmp/locked.txt"
    chmod 0 "$tmp/locked.txt"
    says 2 'Permission denied' 'namei -l locked.txt' -- eval run --data locked.txt
else
    echo "skipped: a file that may not be read (root may)"
fi

# ---- files that are damaged ----

echo 'x{' >"$tmp/wrong.json"
says 2 'wrong.json: line 1' 'is not JSON' 'trireme data tokenizer train' -- \
    data tokenizer encode --tokenizer wrong.json run/config.yaml
echo '[]' >"$tmp/wrong.json"
says 2 'must hold a JSON object' 'trireme data tokenizer train' -- \
    data tokenizer encode --tokenizer wrong.json run/config.yaml
cp -r "$tmp/run" "$tmp/hurt"
truncate -s 5000 "$tmp/hurt/weights.safetensors"
# Nobody gets a checkpoint who asked for what a run ended with and is not told.
for verb in 'generate hurt' 'eval hurt' 'ckpt export hurt --weights mine.safetensors' \
    "train $root/recipes/tiny.yaml --set model.from=hurt --set run.dir=next"; do
    says 2 'hurt/weights.safetensors: ' 'truncated' 'hurt/ckpt/step-4: name that instead of hurt' -- $verb
done
for verb in 'generate hurt/ckpt/step-4' 'eval hurt/ckpt/step-4'; do
    (cd "$tmp" && "$trireme" $verb) >"$tmp/out" 2>/dev/null || fail "trireme $verb"
done
says 2 'hurt/weights.safetensors: ' 'truncated' 'copy or download it again' -- ckpt inspect hurt
grep -q 'hurt/ckpt/step-2 ' "$tmp/out" || fail "ckpt inspect does not list what else there is"
echo '{' >"$tmp/hurt/ckpt/step-4/manifest.json"
for verb in 'ckpt inspect' 'ckpt verify' generate; do
    says 2 'step-4/manifest.json: ' 'take another checkpoint, hurt/ckpt/step-2 for' -- \
        $verb hurt/ckpt/step-4
done
truncate -s 5000 "$tmp/hurt/ckpt/step-2/rank-0.safetensors"
says 2 'manifest.json: ' 'no other checkpoint beside it' -- ckpt inspect hurt/ckpt/step-4

# ---- settings files that set nothing ----

: >"$tmp/empty.yaml"
printf '# later\nmodel:\n#  dim: 128\n' >"$tmp/comments.yaml"
printf 'model:\n  dim: 64\n' >"$tmp/one.yaml"
says 0 'warning: empty.yaml sets nothing' -- train empty.yaml --set train.steps=1
says 0 'warning: comments.yaml sets nothing' -- plan comments.yaml --set train.batch=2
"$trireme" plan "$tmp/one.yaml" >"$tmp/out" 2>"$tmp/err" || fail "one setting"
[ -s "$tmp/err" ] && fail "a file that sets something is warned of"
# Ranks that others started say it once.
(cd "$tmp" && RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$trireme" plan empty.yaml) \
    >"$tmp/out" 2>"$tmp/err"
[ -s "$tmp/err" ] && fail "every rank warns"

# ---- run directories that cannot be used ----

# unusable TEXT ARGS...: refused as wrong input before any rank is started, so with the same message
# for any number of them.
unusable() {
    local text=$1
    shift
    says 2 "$text" "$@"
    says 2 "$text" "$@" --set layout.dp=2
}
tiny=$root/recipes/tiny.yaml
mkdir -p "$tmp/w/weights.safetensors" "$tmp/c" "$tmp/sealed"
echo >"$tmp/c/ckpt"
echo >"$tmp/file"
unusable 'file: is not a directory' 'set run.dir to' -- train "$tiny" --set run.dir=file
unusable 'above it is a file' 'set run.dir to' -- train "$tiny" --set run.dir=file/x
unusable 'File name too long' 'set run.dir to' -- train "$tiny" \
    --set run.dir="$(printf 'a%.0s' {1..300})"
# What only comes at the end of a run is found before its beginning, too.
unusable 'w/weights.safetensors: is a directory' 'rename it' -- train "$tiny" --set run.dir=w
unusable 'c/ckpt: is a file' 'rename it' -- train "$tiny" --set run.dir=c
if [ "$(id -u)" -ne 0 ]; then
    chmod 555 "$tmp/sealed"
    unusable 'Permission denied' 'set run.dir to' -- train "$tiny" --set run.dir=sealed
    unusable 'Permission denied' 'set run.dir to' -- train "$tiny" --set run.dir=sealed/a/b
elif mount -t tmpfs -o ro none "$tmp/sealed" 2>/dev/null; then
    mounted=$tmp/sealed
    unusable 'Read-only file system' 'set run.dir to' -- train "$tiny" --set run.dir=sealed
    unusable 'Read-only file system' 'set run.dir to' -- train "$tiny" --set run.dir=sealed/a/b
    umount "$mounted"
    mounted=
else
    echo "skipped: a read-only folder (nothing can be mounted here)"
fi

# ---- places that cannot be written, found before the work ----

says 2 'there is no directory no/such' 'mkdir -p no/such' -- ckpt export run --weights no/such/file
says 2 'file is a file, not a directory' -- ckpt export run --hf file/x
says 2 'run: cannot be written: it is a directory' -- ckpt export run --weights run
says 2 'there is no directory no/such' -- data tokenizer train "$root/README.md" --vocab 300 \
    --out no/such/tokenizer.json
[ -s "$tmp/out" ] && fail "a tokenizer is trained before it is known where to"
says 2 'is a file, not a directory' -- data prepare "$root/README.md" --tokenizer bytes --out file/x
says 2 'there is no directory no' -- sim --csv no/order.csv
says 2 'there is no directory no' -- bench comm --draw no/picture.svg
[ -s "$tmp/out" ] && fail "collectives are measured before it is known where to"

# ---- others ----

mkdir "$tmp/hf"
echo '{' >"$tmp/hf/config.json"
says 2 'hf/config.json: line 2: not valid JSON' 'download the model again' -- generate hf
echo '{"model_type":"gpt2","n_embd":64,"n_head":4,"n_layer":2,"vocab_size":256,"n_positions":64}' \
    >"$tmp/hf/config.json"
says 2 'hf: has neither' 'download the *.safetensors' -- generate hf
says 2 'names or one settings file, but not "generate" and' -- bench generate "$tiny"
# Nobody waits for ranks that cannot come: at once, and not after run.deadline_s.
RANK=0 WORLD_SIZE=2 MASTER_ADDR=no.such.host.invalid MASTER_PORT=29999 TRIREME_TOKEN=secret timeout 50 \
    "$trireme" train "$tiny" --set layout.dp=2 --set run.dir="$tmp/alone" >"$tmp/out" 2>"$tmp/err"
code=$?
[ $code -eq 2 ] && grep -q 'MASTER_ADDR .*no.such.host.invalid.* is not known.*machine of rank 0' "$tmp/err" ||
    fail "an address that is not known: $code"

checks=$((checks + 1))
"$trireme" train "$tiny" --set run.collective=rign --set layout.dp=2 --set run.dir="$tmp/alone" >"$tmp/out" 2>"$tmp/err"
code=$?
[ $code -eq 2 ] && grep -q 'run.collective: there is no algorithm "rign"; there are auto, .*ring.*sharded_ps' "$tmp/err" ||
    fail "an algorithm that is not known: $code"

# ---- something else in the place of a settings file ----

says 2 'this is no text' 'model.from=FILE' -- generate run/weights.safetensors
says 2 'run/ckpt is a directory without config.yaml' 'step-4: name that' -- generate run/ckpt

echo "$checks checks, $failures failed"
[ $failures -eq 0 ]
