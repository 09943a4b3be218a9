#!/usr/bin/env bash
# Checkpoints of experts: going on is as if nothing had happened, and any layout reads what another
# wrote, however experts were divided.
# Argument: the build directory.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-experts-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# Experts in some layers, biases that are moved, and a shared expert.
train() { # name, then settings; the output is in name.out
    local name=$1
    shift
    local set=()
    for s in "$@"; do set+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml --set run.dir="$work/$name" --set model.kind=llama \
        --set model.num_layers=3 --set model.dim=24 --set model.vocab=131 --set model.ffn_dim=40 \
        --set model.dropout=0 --set model.num_experts=8 --set model.expert_dim=15 \
        --set model.expert_layers=1..2 --set model.router_score=sigmoid --set model.router_bias=0.01 \
        --set model.shared_dim=13 --set data.seq_len=16 --set train.eval_batches=1 \
        "${set[@]}" >"$work/$name.out" 2>&1 || {
        fail "$name did not run: $(tail -n 3 "$work/$name.out")"
        return 1
    }
}

# Step, every loss and the norm.
losses() { sed 's/,"lr":.*//' "$work/$1/metrics.jsonl"; }
loss() { losses "$1" | sed 's/.*"loss":\([^,]*\),"cross.*/\1/'; }

# ---- the same layout: 20 steps are 10 and 10, in every bit ----

same_layout() { # name, then settings
    local name=$1
    shift
    train "$name.whole" train.steps=20 ckpt.every=10 "$@" || return
    train "$name" train.steps=10 ckpt.every=5 "$@" || return
    train "$name" train.steps=20 ckpt.every=10 run.resume=true "$@" || return
    grep -q '^resume .*step-10: 10 of 20' "$work/$name.out" || fail "$name does not say what it continues"
    [ "$(losses "$name")" = "$(losses "$name.whole")" ] || fail "$name: losses differ after going on"
    [ "$(losses "$name" | wc -l)" = 20 ] || fail "$name: metrics.jsonl has not one line a step"
    cmp -s "$work/$name/weights.safetensors" "$work/$name.whole/weights.safetensors" ||
        fail "$name: weights differ after going on"
    for file in "$work/$name.whole/ckpt/step-20/"*.safetensors; do
        cmp -s "$file" "$work/$name/ckpt/step-20/${file##*/}" || fail "$name: ${file##*/} differs"
    done
}

same_layout one
same_layout ep2 layout.dp=2 layout.ep=2
same_layout ep2zero layout.dp=4 layout.ep=2 layout.zero=3 layout.shard_group=2 precision.kind=bf16
same_layout ep4 layout.dp=2 layout.cp=2 layout.ep=4 layout.zero=1
same_layout ep2pipe layout.dp=2 layout.ep=2 layout.pp=2 layout.microbatches=2 layout.zero=2

# ---- across layouts: weights, moments and biases are the same elements ----

train a train.steps=4 ckpt.every=4 layout.dp=2 layout.ep=2
other=a
reads() { # name, then settings: from the checkpoint of the one before
    local name=$1 from=$other
    shift
    train "$name" train.steps=4 ckpt.every=4 ckpt.from="$work/$from" "$@" || return
    "$trireme" ckpt diff "$work/a" "$work/$name" >"$work/diff" || fail "a and $name: $(tail -n 2 "$work/diff")"
    grep -q '^identical: .* every bit' "$work/diff" || fail "diff of a and $name does not say so"
    other=$name
}
reads b
reads c layout.dp=4 layout.ep=4
reads d layout.dp=2 layout.ep=2 layout.zero=3
reads e layout.tp=2 layout.sp=true layout.dp=2 layout.ep=2
reads f layout.tp=2 layout.sp=true layout.etp=1 layout.dp=2 layout.ep=2 layout.zero=1
reads g layout.dp=4 layout.zero=3 layout.shard_group=2
reads h layout.dp=4 layout.ep=2 layout.zero=3 layout.shard_group=4
reads i layout.cp=2 layout.ep=2 layout.pp=2 layout.microbatches=2
reads j layout.tp=2

# ---- a run that is moved from layout to layout has the losses of one rank ----

train a train.steps=8 ckpt.every=4 layout.dp=4 layout.ep=4 layout.zero=3 run.resume=true
train a train.steps=12 ckpt.every=4 layout.tp=2 run.resume=true
train a.one train.steps=12
paste <(losses a | cut -d' ' -f2) <(losses a.one | cut -d' ' -f2) | awk '
    { d = ($1 - $2) / $1; if (d * d > 1e-8) bad = 1 } END { exit bad || NR != 12 }' ||
    fail "losses across layouts are not those of one rank"

[ $failures -eq 0 ] || {
    echo "$failures failed"
    exit 1
}
echo "checkpoints of experts are read by every layout"
