#!/usr/bin/env bash
# Checkpoints and context parallelism: going on in the same layout is as if nothing had happened, and
# a checkpoint of one layout is that of any other. Argument: the build directory.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-context-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# A small model with dropout, and rows of a length that nothing divides.
must_train() { # name, then settings; the output is in name.out
    local name=$1
    shift
    local set=()
    for s in "$@"; do set+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml --set run.dir="$work/$name" --set model.num_layers=2 \
        --set model.dim=32 --set model.vocab=259 --set data.seq_len=23 --set train.eval_batches=1 \
        "${set[@]}" >"$work/$name.out" 2>&1 || {
        fail "$name did not run: $(tail -n 3 "$work/$name.out")"
        return 1
    }
}

losses() { sed 's/.*"step": *\([0-9]*\),"loss": *\([^,]*\),"grad_norm": *\([^,]*\),.*/\1 \2 \3/' "$work/$1/metrics.jsonl"; }

# ---- the same layout: 6 steps are 3 and 3, in every bit ----

same_layout() { # name, then settings
    local name=$1
    shift
    must_train "$name.whole" train.steps=6 ckpt.every=3 "$@" || return
    must_train "$name" train.steps=3 ckpt.every=3 "$@" || return
    must_train "$name" train.steps=6 ckpt.every=3 run.resume=true "$@" || return
    grep -q '^resume .*step-3: 3 of 6' "$work/$name.out" || fail "$name does not say what it continues"
    [ "$(losses "$name")" = "$(losses "$name.whole")" ] || fail "$name: losses differ after going on"
    cmp -s "$work/$name/weights.safetensors" "$work/$name.whole/weights.safetensors" ||
        fail "$name: weights differ after going on"
}
same_layout ring layout.cp=2 layout.zero=3
same_layout heads layout.cp=2 layout.cp_kind=ulysses layout.dp=2 layout.zero=2 precision.kind=bf16

# ---- across layouts: the same elements, and the losses of one rank ----

must_train one train.steps=8 ckpt.every=4
must_train divided train.steps=4 ckpt.every=4 layout.cp=2 layout.zero=3
must_train from-divided train.steps=4 ckpt.every=4 ckpt.from="$work/divided"
must_train from-one train.steps=4 ckpt.every=4 ckpt.from="$work/one/ckpt/step-4" layout.cp=2 layout.zero=3
must_train from-both train.steps=4 ckpt.every=4 ckpt.from="$work/from-one" layout.cp=3 layout.cp_kind=gather \
    layout.tp=2 layout.zero=1

identical() { # two runs, or checkpoints
    "$trireme" ckpt diff "$1" "$2" >"$work/diff" || fail "${1##*/} and ${2##*/}: $(tail -n 2 "$work/diff")"
    grep -q '^identical: .* every bit' "$work/diff" || fail "diff of ${1##*/} and ${2##*/} does not say so"
}
identical "$work/divided" "$work/from-divided"
identical "$work/one/ckpt/step-4" "$work/from-one"
identical "$work/from-one" "$work/from-both"

like_one() { # name, then settings with which it goes on
    local name=$1
    shift
    must_train "$name" train.steps=8 ckpt.every=4 run.resume=true "$@" || return
    paste <(losses "$name") <(losses one) | awk '
        { for (i = 2; i <= 3; i++) { d = ($i - $(i + 3)) / $i; if (d * d > 1e-8) bad = 1 } }
        END { exit bad || NR != 8 }' || fail "$name: losses and norms are not those of one rank"
}
must_train back train.steps=4 ckpt.every=4
like_one divided
like_one back layout.cp=2 layout.zero=3 layout.cp_kind=ulysses

[ "$failures" = 0 ] || exit 1
echo "context parallelism: checkpoints of any layout go on in any other"
