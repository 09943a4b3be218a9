#!/usr/bin/env bash
# Checkpoints end to end: going on is as if nothing had happened, in the same layout and in others;
# damage, a full disk and kills cost no good checkpoint.
# Argument: the build directory.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-resume-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# A small model with dropout and a vocabulary that nothing divides.
train() { # name, then settings; the output is in name.out
    local name=$1
    shift
    local set=()
    for s in "$@"; do set+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml --set run.dir="$work/$name" --set model.num_layers=2 \
        --set model.dim=32 --set model.vocab=259 --set data.seq_len=16 --set train.eval_batches=1 \
        "${set[@]}" >"$work/$name.out" 2>&1
}

must_train() {
    train "$@" || {
        fail "$1 did not run: $(tail -n 3 "$work/$1.out")"
        return 1
    }
}

losses() { sed 's/.*"step": *\([0-9]*\),"loss": *\([^,]*\),"grad_norm": *\([^,]*\),.*/\1 \2 \3/' "$work/$1/metrics.jsonl"; }

# ---- the same layout: 20 steps are 10 and 10, in every bit ----

same_layout() { # name, then settings
    local name=$1
    shift
    must_train $name.whole train.steps=20 ckpt.every=10 "$@" || return
    must_train $name train.steps=10 ckpt.every=5 "$@" || return
    must_train $name train.steps=20 ckpt.every=10 run.resume=true "$@" || return
    grep -q '^resume .*step-10: 10 of 20' "$work/$name.out" || fail "$name does not say what it continues"
    [ "$(losses $name)" = "$(losses $name.whole)" ] || fail "$name: losses differ after going on"
    [ "$(losses $name | wc -l)" = 20 ] || fail "$name: metrics.jsonl has not one line a step"
    cmp -s "$work/$name/weights.safetensors" "$work/$name.whole/weights.safetensors" ||
        fail "$name: weights differ after going on"
    for file in "$work/$name.whole/ckpt/step-20/"*.safetensors; do
        cmp -s "$file" "$work/$name/ckpt/step-20/${file##*/}" || fail "$name: ${file##*/} differs"
    done
    "$trireme" ckpt diff "$work/$name" "$work/$name.whole" >"$work/diff" ||
        fail "$name: $(tail -n 1 "$work/diff")"
}

same_layout fp32
same_layout fp16 precision.kind=fp16 precision.scale=1e9 precision.growth_interval=3 optim.moments=8bit
grep -q '"skipped":[1-9]' "$work/fp16/metrics.jsonl" || fail "the fp16 run was to skip a step"
same_layout zero1 layout.dp=2 layout.zero=1 precision.kind=bf16 optim.moments=8bit
same_layout zero2 layout.dp=3 layout.zero=2 ckpt.async=false optim.kind=lion
same_layout zero3tp layout.dp=2 layout.zero=3 layout.tp=2 precision.kind=bf16 optim.moments=8bit
same_layout codes layout.dp=2 layout.zero=2 layout.tp=2 optim.moments=8bit
same_layout pipe layout.pp=2 layout.dp=2 layout.zero=1 layout.schedule=dualpipe layout.microbatches=4 precision.kind=fp16
same_layout muon layout.dp=2 layout.zero=2 optim.kind=muon ckpt.staging_mib=1

# ---- across layouts: the same elements, and every sample once ----

must_train a train.steps=4 ckpt.every=4 data.record=true layout.dp=2 layout.zero=3 layout.tp=2
must_train b train.steps=4 ckpt.every=4 ckpt.from="$work/a" layout.dp=3
must_train c train.steps=4 ckpt.every=4 ckpt.from="$work/b/ckpt/step-4" layout.dp=2 layout.zero=1 \
    layout.tp=2 precision.kind=bf16
must_train d train.steps=4 ckpt.every=4 ckpt.from="$work/c" layout.dp=4 layout.zero=3 layout.shard_group=2
must_train e train.steps=4 ckpt.every=4 ckpt.from="$work/d" layout.pp=2 layout.microbatches=2
for other in b c d e; do
    "$trireme" ckpt diff "$work/a" "$work/$other" >"$work/diff" ||
        fail "a and $other: $(tail -n 2 "$work/diff")"
    grep -q '^identical: .* every bit' "$work/diff" || fail "diff of a and $other does not say so"
done
must_train a train.steps=7 ckpt.every=4 data.record=true layout.dp=3 run.resume=auto
must_train a train.steps=10 ckpt.every=4 data.record=true layout.pp=2 layout.microbatches=2 run.resume=auto
must_train b train.steps=6 ckpt.every=4 ckpt.from="$work/d"
[ "$(losses b | cut -d' ' -f1 | tr '\n' ' ')" = "5 6 " ] || fail "a run from another's checkpoint has other steps in its metrics"
# Ranks of a tp or pp group train on the same samples: one of them counts.
cat "$work"/a/samples/rank-*.jsonl | sed 's/"rank":[0-9]*,//; s/,"windows.*//' | sort -u |
    sed 's/.*samples":\[//; s/\].*//' | tr ',' '\n' | sort -n >"$work/samples"
seq 0 79 | cmp -s - "$work/samples" || fail "samples were lost or came twice across layouts"
must_train a.one train.steps=10
paste <(losses a | cut -d' ' -f2) <(losses a.one | cut -d' ' -f2) | awk '
    { d = ($1 - $2) / $1; if (d * d > 1e-8) bad = 1 } END { exit bad || NR != 10 }' ||
    fail "losses across layouts are not those of one rank"

# ---- moments in 8 bits: files hold fp32; the same tp has the same blocks, another encodes anew ----

moments() { # name, what it must say or nothing, then settings
    local name=$1 says=$2
    shift 2
    must_train "$name" train.steps=20 ckpt.every=20 "$@" || return
    if [ -n "$says" ]; then
        grep -q "^note    moments were encoded in 8 bits$says" "$work/$name.out" ||
            fail "$name does not say that it encodes anew"
    else
        grep -q '^note .*encoded' "$work/$name.out" && fail "$name encodes anew: $(grep encoded "$work/$name.out")"
        "$trireme" ckpt diff "$work/codes" "$work/$name" >"$work/diff"
        grep -q '^identical: .* every bit\|^all .* tensors are identical' "$work/diff" ||
            fail "codes and $name: $(tail -n 2 "$work/diff")"
    fi
}
moments codes-dp "" ckpt.from="$work/codes" layout.dp=3 layout.zero=1 layout.tp=2 optim.moments=8bit
moments codes-fp32 "" ckpt.from="$work/codes" layout.dp=2
moments codes-tp " anew, since the checkpoint was made with layout.tp=2" ckpt.from="$work/codes" optim.moments=8bit
moments codes-new "; the checkpoint was made with optim.moments=fp32" ckpt.from="$work/a" optim.moments=8bit

# ---- damage ----

must_train hurt train.steps=6 ckpt.every=2 ckpt.keep_last=0
printf 'x' | dd of="$work/hurt/ckpt/step-6/rank-0.safetensors" bs=1 seek=30000 conv=notrunc 2>/dev/null
"$trireme" ckpt verify "$work/hurt" >"$work/verify" 2>&1 && fail "verify did not see the damage"
grep -q 'step-6/rank-0.safetensors: tensor .* is damaged\|step-6/rank-0.safetensors: tensor .*checksum' "$work/verify" ||
    fail "verify does not name the file: $(cat "$work/verify")"
[ "$(grep -c ': whole; step' "$work/verify")" = 2 ] || fail "verify does not see the whole ones"
must_train hurt train.steps=6 ckpt.every=2 ckpt.keep_last=0 run.resume=true
grep -q '^note .*step-6.damaged' "$work/hurt.out" || fail "the damaged one was not set aside by name"
grep -q '^resume .*step-4: 4 of 6' "$work/hurt.out" || fail "the one before the damaged was not used"
[ "$(losses hurt | cut -d' ' -f1 | tr '\n' ' ')" = "1 2 3 4 5 6 " ] || fail "steps stand twice in metrics.jsonl"
[ -d "$work/hurt/ckpt/step-6.damaged" ] && [ -d "$work/hurt/ckpt/step-6" ] || fail "step-6 was not written again"

# Only what was read and is wrong is damaged. What cannot be read stays, and ends the run.
listing() { (cd "$work/$1/ckpt" && ls); }
must_train unread train.steps=4 ckpt.every=2
unread_list=$(listing unread)
stops() { # exit code, what the message must say, what for, then settings
    local code=$1 message=$2 what=$3
    shift 3
    train unread train.steps=6 ckpt.every=2 "$@"
    local got=$?
    [ $got -eq $code ] || fail "$what: exit code $got, not $code: $(tail -n 2 "$work/unread.out")"
    grep -q "$message" "$work/unread.out" || fail "$what: the message is $(tail -n 2 "$work/unread.out")"
    [ "$(listing unread)" = "$unread_list" ] || fail "$what: checkpoints were renamed: $(listing unread)"
    [ "$(losses unread | wc -l)" = 4 ] || fail "$what: the run was begun anew"
}
newest=$work/unread/ckpt/step-4
mv "$newest/manifest.json" "$work/manifest.json"
ln -s manifest.json "$newest/manifest.json" # opening it fails, and not because nothing is there
for settings in "run.resume=auto" "run.resume=true layout.dp=2"; do
    stops 1 'step-4/manifest.json: cannot be opened' "a manifest that cannot be opened" $settings
done
"$trireme" generate "$work/unread/ckpt/step-4" --prompt-ids "1 2" --set generate.tokens=1 >"$work/out" 2>&1 &&
    fail "generate takes a checkpoint that it cannot read"
grep -q 'step-4/manifest.json: cannot be opened' "$work/out" || fail "generate says $(cat "$work/out")"
rm "$newest/manifest.json"
sed 's/"version":1/"version":2/' "$work/manifest.json" >"$newest/manifest.json"
stops 1 'was written by a newer Trireme' "a newer version" run.resume=auto
cp "$work/manifest.json" "$newest/manifest.json"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then # another user, who may write there
    chmod -R a+rwX "$work"
    chmod 600 "$work"/unread/ckpt/*/*
    (
        trireme="setpriv --reuid=65534 --regid=65534 --clear-groups $trireme"
        train() {
            $trireme train recipes/tiny.yaml --set run.dir="$work/unread" --set model.num_layers=2 \
                --set model.dim=32 --set model.vocab=259 --set data.seq_len=16 --set train.steps=6 \
                --set run.resume=auto >"$work/unread.out" 2>&1
        }
        stops 1 'manifest.json: cannot be opened: Permission denied' "a manifest of another user"
        exit $failures
    )
    failures=$?
    chmod -R a+rwX "$work/unread"
fi

# Where none is whole, auto does not begin anew, now or the next time.
for step in 2 4; do
    printf 'x' | dd of="$work/unread/ckpt/step-$step/rank-0.safetensors" bs=1 seek=30000 conv=notrunc 2>/dev/null
done
stops 1 'none of them is whole: .*step-4/rank-0.safetensors: tensor' "all are damaged" run.resume=auto
stops 1 'none of them is whole' "all are damaged, two ranks" run.resume=true layout.dp=2
for step in 2 4; do mv "$work/unread/ckpt/step-$step" "$work/unread/ckpt/step-$step.damaged"; done
unread_list=$(listing unread)
stops 1 'none of them is whole' "all were set aside" run.resume=auto ckpt.from="$work/a"

# What all are damaged leaves is to begin anew, and that keeps them.
must_train unread train.steps=2 ckpt.every=2
[ -d "$work/unread.1/ckpt/step-4.damaged" ] && [ -d "$work/unread/ckpt/step-2" ] || fail "a new run lost checkpoints of the old"

# ---- what cannot be ----

refused() { # what the message must say, name, settings
    local message=$1
    shift
    train "$@" && fail "$* was not refused"
    grep -q "$message" "$work/$1.out" || fail "$*: the message is: $(tail -n 2 "$work/$1.out")"
}
refused 'run.resume is true, but .*none/ckpt holds no checkpoint' none run.resume=true
must_train none run.resume=auto train.steps=2 ckpt.every=2
refused 'was made with train.batch=8, and now it is 4' none run.resume=true train.batch=4
refused 'was made with run.seed=1, and now it is 2' none run.resume=true run.seed=2
refused 'another optim.kind' none run.resume=true optim.kind=sgd
refused 'wte.weight is .* there and .* in this model; .*none/ckpt/step-2/config.yaml' none run.resume=true model.dim=64
refused 'this model has no h.1' none run.resume=true model.num_layers=1
refused 'ckpt.from: .*: does not exist' none2 ckpt.from="$work/nowhere"
touch "$work/none2/ckpt" 2>/dev/null || { mkdir -p "$work/none2" && touch "$work/none2/ckpt"; }
refused 'none2/ckpt' none2 ckpt.every=1

# ---- a full disk: the run goes on, and what was saved stays ----

must_train full train.steps=2 ckpt.every=2
(
    ulimit -f 300
    train full train.steps=4 ckpt.every=2 run.resume=true
)
[ $? -eq 1 ] || fail "a run whose only checkpoint was not written does not exit with 1: $(tail -n 2 "$work/full.out")"
grep -q '^step 4/4' "$work/full.out" || fail "a full disk ended the run: $(tail -n 2 "$work/full.out")"
grep -q 'warning: the checkpoint of step 4 was not written: .*rank-0.safetensors: cannot be written' "$work/full.out" ||
    fail "a full disk is not told: $(tail -n 3 "$work/full.out")"
grep -q 'checkpoint of step 4 was not written.*the run is done' "$work/full.out" ||
    fail "the last checkpoint is said to be tried again: $(tail -n 3 "$work/full.out")"
grep -q 'trireme: .*newest checkpoint on the disk is .*full/ckpt/step-2; .*weights.safetensors.*run.resume=true' \
    "$work/full.out" || fail "what is left is not told: $(tail -n 1 "$work/full.out")"
"$trireme" ckpt verify "$work/full" >/dev/null || fail "a full disk cost a good checkpoint"
[ "$(ls -A "$work/full/ckpt" | tr '\n' ' ')" = ".lock step-2 " ] || fail "a full disk left $(ls -A "$work/full/ckpt")"

# A file in the place of a checkpoint keeps that one from being written.
blocked() { # name, steps that cannot be written, then settings
    local name=$1 steps=$2
    shift 2
    mkdir -p "$work/$name/ckpt"
    for s in $steps; do touch "$work/$name/ckpt/step-$s"; done
    train "$name" train.steps=4 ckpt.every=2 run.resume=auto "$@"
}
for dp in 1 2; do
    blocked early$dp 2 layout.dp=$dp || fail "dp $dp: one of two checkpoints failed the run: $(tail -n 1 "$work/early$dp.out")"
    grep -q '^warning: 1 checkpoint could not be written' "$work/early$dp.out" || fail "dp $dp: no warning at the end"
    "$trireme" ckpt verify "$work/early$dp/ckpt/step-4" >/dev/null || fail "dp $dp: the later one is not there"
    blocked lost$dp "2 4" layout.dp=$dp run.restarts=2
    [ $? -eq 1 ] || fail "dp $dp: no checkpoint was written, and the exit code is not 1"
    grep -q 'lost./ckpt holds no other: this run cannot be continued; the final weights are in' "$work/lost$dp.out" ||
        fail "dp $dp: what is lost is not told: $(tail -n 3 "$work/lost$dp.out")"
    grep -q '^trireme: restart' "$work/lost$dp.out" && fail "dp $dp: a run that was done was started again"
    [ -f "$work/lost$dp/weights.safetensors" ] || fail "dp $dp: the weights are not there"
done

# A trace that finds no room costs nothing that cannot be had again.
(
    ulimit -f 300
    train traced train.steps=40 run.trace=true
) && fail "a trace that was not written is not told"
grep -q 'trace.json: cannot be written' "$work/traced.out" || fail "the trace: $(tail -n 2 "$work/traced.out")"
[ -f "$work/traced/weights.safetensors" ] || fail "a trace without room cost the weights"

# ---- killed at some moment while it writes ----

for delay in 0.15 0.3 0.45; do
    train killed train.steps=100000 ckpt.every=1 run.resume=auto layout.dp=2 run.save=false &
    sleep $delay
    for pid in $(pgrep -P $!); do kill -9 "$(pgrep -P "$pid" | head -n 1)" "$pid" 2>/dev/null; done
    wait $!
    ls "$work/killed/ckpt" 2>/dev/null | grep -q '^step-' || continue
    "$trireme" ckpt verify "$work/killed" >"$work/verify" 2>&1 || fail "a kill left $(cat "$work/verify")"
done 2>/dev/null # the shell tells of each kill

# ---- others read it ----

"$trireme" generate "$work/a/ckpt/step-10" --prompt-ids "1 2 3" --ids --set generate.tokens=4 >/dev/null ||
    fail "generate does not take a checkpoint"
"$trireme" ckpt export "$work/a/ckpt/step-10" --weights "$work/w.safetensors" >/dev/null &&
    cmp -s "$work/w.safetensors" "$work/a/weights.safetensors" || fail "exported weights differ"
"$trireme" ckpt export "$work/a/ckpt/step-10" --hf "$work/hf" >/dev/null || fail "no export for Hugging Face"
must_train more model.from="$work/a/ckpt/step-10" train.steps=1
"$trireme" ckpt inspect "$work/a" | grep -q 'ckpt/step-10 .* by 2 ranks' || fail "inspect does not list checkpoints"

exit $((failures > 0))
