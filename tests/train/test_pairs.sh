#!/usr/bin/env bash
# layout.pairs: forwards and backwards that DualPipe pairs run as one. The bits are those of the same
# schedule without, the programs are proven, and messages of one half travel in turns of the other.
set -u
build=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
small=(--set data.seq_len=16 --set train.batch=16 --set train.steps=2 --set train.eval_every=0
    --set run.device=cpu --set run.threads=1 --set run.overlap_min_kb=0
    --set layout.schedule=dualpipe --set layout.microbatches=8)

# Losses and weights with and without pairs: NAME RECIPE SETTING...
same() {
    local name=$1 recipe=$2 pairs
    shift 2
    "$build/trireme" check "$recipe" "${small[@]}" "$@" --set layout.pairs=true >"$work/check" 2>&1 ||
        fail "$name: $(grep trireme: "$work/check")"
    grep -q "training .*ranks meet" "$work/check" || fail "$name: messages were not matched"
    for pairs in false true; do
        "$build/trireme" train "$recipe" "${small[@]}" "$@" --set layout.pairs=$pairs \
            --set run.dir="$work/$name.$pairs" >"$work/log" 2>&1 || fail "$name: $(tail -1 "$work/log")"
    done
    cmp -s "$work/$name.false/weights.safetensors" "$work/$name.true/weights.safetensors" ||
        fail "$name: other weights with pairs than without"
}

mixture=(--set model.num_layers=4 --set model.dim=32 --set model.expert_dim=32 --set model.shared_dim=32)
dense=(--set model.num_layers=4 --set model.dim=16 --set model.num_heads=4)
same dense recipes/tiny.yaml "${dense[@]}" --set layout.pp=4
same mixture recipes/moe-tiny.yaml "${mixture[@]}" --set layout.pp=4 --set layout.dp=2 --set layout.ep=2
same zero recipes/moe-tiny.yaml "${mixture[@]}" --set layout.pp=2 --set layout.dp=2 --set layout.ep=2 \
    --set layout.zero=3 --set layout.recompute=full
same folded recipes/moe-tiny.yaml "${mixture[@]}" --set layout.schedule=dualpipev --set layout.pp=2 \
    --set layout.dp=2 --set layout.ep=2

# Order and counts: halves take turns, and most messages have one of the other to hide in.
"$build/trireme" explain recipes/moe-tiny.yaml "${small[@]}" --set layout.pp=2 --set layout.dp=2 \
    --set layout.ep=2 --set layout.pairs=true --set data.seq_len=128 >"$work/explain" 2>&1
read -r turns messages beside < <(sed -n 's/^pair 1: 1F beside 0B, \([0-9]*\) turns, \([0-9]*\) messages, \([0-9]*\) of them.*/\1 \2 \3/p' "$work/explain")
[ "${turns:-0}" -gt 4 ] && [ $((2 * ${beside:-0})) -ge "${messages:-1000}" ] ||
    fail "pair 1 has ${turns:-no} turns, ${messages:-no} messages, ${beside:-none} under way beside the other"
[ "$(grep -c 'as one, in the order of pair' "$work/explain")" -gt 0 ] || fail "the timeline shows no pair"

# A schedule without pairs is refused, and the message says what to set.
if "$build/trireme" check recipes/tiny.yaml --set layout.pp=2 --set layout.microbatches=4 \
    --set layout.pairs=true >"$work/log" 2>&1 || ! grep -q "dualpipev" "$work/log"; then
    fail "layout.pairs with 1f1b: $(tail -1 "$work/log")"
fi
exit $failed
