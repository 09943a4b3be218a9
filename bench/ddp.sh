#!/usr/bin/env bash
# Data parallelism on one machine, ours beside PyTorch's over Gloo: one rank, dp=2 (DDP), zero=3
# (FSDP), each rank with one thread. The runs take turns, so that whatever else the machine does
# falls on all of them, and a cell is the median of the turns.
#
#     PYTHON=python3 bench/ddp.sh [BUILD_DIR]
#
# PYTHON names a Python that has PyTorch; without one our figures stand alone. From the environment:
# RANKS (2), STEPS (8 timed steps a turn), REPEATS (3 turns), MODEL (small: 6 layers, 384 wide,
# vocabulary 4096; or 124m), BATCH (8), SEQ_LEN (256). SKIP_PEER=1 leaves PyTorch out.
set -u
build=${1:-build}
python=${PYTHON:-python3}
ranks=${RANKS:-2}
steps=${STEPS:-8}
repeats=${REPEATS:-3}
model=${MODEL:-small}
batch=${BATCH:-8}
seq_len=${SEQ_LEN:-256}
warmup=2

[ -x "$build/trireme" ] || {
    echo "$build/trireme is missing; type make first" >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
peer=no
[ "${SKIP_PEER:-}" ] || { "$python" -c 'import torch' 2>/dev/null && peer=yes; }

case $model in
small) shape=(model.kind=gpt2 model.num_layers=6 model.dim=384 model.num_heads=6 model.vocab=4096) ;;
124m) shape=(model.preset=gpt2-124m) ;;
*)
    echo "MODEL is $model; there are small and 124m" >&2
    exit 2
    ;;
esac

median() { sort -n | awk '{ a[NR] = $1 } END { print NR ? a[int((NR + 1) / 2)] : 0 }'; }

ours() { # settings ...: milliseconds of the median step
    local words=() word
    for word in "${shape[@]}" model.dropout=0 data.source=synthetic "data.seq_len=$seq_len" \
        "train.batch=$batch" "train.steps=$((steps + warmup))" run.device=cpu run.threads=1 run.save=false \
        "run.dir=$work/run" "$@"; do
        words+=(--set "$word")
    done
    rm -rf "$work/run"
    "$build/trireme" train "${words[@]}" >"$work/out" 2>&1 || {
        tail -3 "$work/out" >&2
        return 1
    }
    sed -n 's/.*"step_ms": *\([0-9.]*\).*/\1/p' "$work/run/metrics.jsonl" |
        tail -n "+$((warmup + 1))" | median
}
theirs() { # mode
    "$python" "$here/peers/torch_ddp.py" --mode "$1" --ranks "$2" --model "$model" \
        --batch "$batch" --seq-len "$seq_len" --steps "$steps" --warmup "$warmup" 2>>"$work/errors" |
        sed -n 's/.*"ms": *\([0-9.]*\).*/\1/p'
}

add() { # name, command ...
    local name=$1 ms
    shift
    [ -t 2 ] && printf '\rturn %d of %d: %-24s\033[K' "$turn" "$repeats" "$name" >&2
    ms=$("$@")
    [ -n "$ms" ] && echo "$ms" >>"$work/$name"
}
for ((turn = 1; turn <= repeats; turn++)); do
    add ours_1 ours layout.dp=1
    add ours_dp ours "layout.dp=$ranks"
    [ $peer = yes ] && add peer_dp theirs ddp "$ranks"
    add ours_zero3 ours "layout.dp=$ranks" layout.zero=3
    [ $peer = yes ] && add peer_zero3 theirs fsdp "$ranks"
    add ours_apart ours "layout.dp=$ranks" run.overlap=false
    [ $peer = yes ] && add peer_1 theirs ddp 1
done
[ -t 2 ] && printf '\r\033[K' >&2

of() { [ -s "$work/$1" ] && median <"$work/$1" || echo 0; }
echo "$model, batch $batch x $seq_len, one thread a rank, $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg);" \
    "median of $repeats turns of $steps steps"
awk -v tokens="$((batch * seq_len))" -v n="$ranks" -v one="$(of ours_1)" -v dp="$(of ours_dp)" \
    -v z="$(of ours_zero3)" -v apart="$(of ours_apart)" -v p1="$(of peer_1)" -v pdp="$(of peer_dp)" \
    -v pz="$(of peer_zero3)" '
function rate(ms) { return ms > 0 ? sprintf("%.1f", 1e3 * tokens / ms) : "-" }
function ratio(a, b) { return a > 0 && b > 0 ? sprintf("%.2f", a / b) : "-" }
function row(name, ms, one_ms, peer, peer_one) {
    printf "%-28s %12s %10s %14s %10s %8s\n", name, rate(ms), ratio(one_ms, ms), rate(peer),
        ratio(peer_one, peer), ratio(peer, ms)
}
BEGIN {
    printf "%-28s %12s %10s %14s %10s %8s\n", "", "ours tok/s", "x 1 rank", "PyTorch tok/s", "x 1 rank",
        "ratio"
    row("1 rank", one, one, p1, p1)
    row("dp=" n " (DDP)", dp, one, pdp, p1)
    row("dp=" n ", run.overlap=false", apart, one, 0, 0)
    row("dp=" n " zero=3 (FSDP)", z, one, pz, p1)
}'
[ $peer = yes ] || echo "(no PyTorch: set PYTHON)"
