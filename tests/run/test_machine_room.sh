#!/usr/bin/env bash
# The ranks of a machine that fit one by one, but not together, are refused before any allocates.
set -u
trireme=$1/trireme
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "FAILED: $*"
    exit 1
}

available=$("$trireme" doctor 2>&1 | sed -n 's/.*of which \([0-9.]*\) GiB are free.*/\1/p' | head -1)
[ -n "$available" ] || {
    echo "skipped: doctor does not tell how many GiB are free"
    exit 77
}
# A rank takes about 0.7 of it: 16 bytes for each number of a table of 1024 columns.
vocab=$(awk -v a="$available" 'BEGIN { printf "%d", 0.7 * a * 65536 }')
set -- --set model.kind=llama --set model.tied_head=true --set model.num_layers=1 --set model.dim=1024 \
    --set model.num_heads=8 --set model.ffn_dim=1024 --set model.vocab="$vocab" --set data.seq_len=1 \
    --set train.batch=1 --set train.steps=1 --set run.threads=1 --set run.dir="$dir/run"
bytes=$("$trireme" plan "$@" | sed -n 's/^ *plan  *total.* \([0-9]*\) bytes$/\1/p')
awk -v b="${bytes:-0}" -v a="$available" \
    'BEGIN { exit !(b > 0.55 * a * 2^30 && b < 0.95 * a * 2^30) }' ||
    fail "the plan for $available GiB has ${bytes:-no} bytes"

# Should it not be refused: no process gets that much.
ulimit -v $((bytes / 1024 / 2))
"$trireme" --version >/dev/null 2>&1 || {
    echo "skipped: a sanitizer wants more address space"
    exit 77
}
timeout 200 "$trireme" train "$@" --set layout.dp=2 --set run.transport=tcp >"$dir/out" 2>&1
code=$?
[ $code = 2 ] || fail "exit code $code: $(tail -5 "$dir/out")"
grep -q 'the 2 ranks on the machine of rank 0 need .* of memory together' "$dir/out" || fail "$(cat "$dir/out")"
echo "2 ranks of $bytes bytes each refused, with $available GiB free"
