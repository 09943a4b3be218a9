#!/usr/bin/env bash
# NCCL between ranks. Arguments: the build directory, and NCCL's file (default: where it is found).
# Needs an NVIDIA GPU; one is enough, since ranks that share it use a stand-in for NCCL, which itself
# refuses that: with it everything but NCCL is as with a GPU for each rank. NCCL itself is checked
# with one rank. One line for each check, PASS, FAIL or SKIP; the last line counts.
# From the root of the repository, with these files of a build (make test-programs):
#   BUILD/trireme BUILD/tests/test_cuda_nccl BUILD/tests/helpers/libnccl-standin.so
set -u
build=${1:-build}
real=${2:-}
trireme=$build/trireme
standin=$(realpath "$build/tests/helpers/libnccl-standin.so")
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-nccl-XXXXXX")
trap 'rm -rf "$work"' EXIT
passes=0 failures=0
pass() {
    echo "PASS  $*"
    passes=$((passes + 1))
}
fail() {
    echo "FAIL  $*"
    failures=$((failures + 1))
}
show() { sed 's/^/      | /' "$1" | tail -n "${2:-6}"; }

train() { # seconds, name, then settings
    local limit=$1 name=$2 set=()
    shift 2
    for s in "$@"; do set+=(--set "$s"); done
    timeout -k 5 "$limit" "$trireme" train recipes/tiny.yaml --set run.save=false \
        --set run.device=cuda --set run.dir="$work/$name" "${set[@]}" >"$work/$name.out" 2>&1
}
nccl=(run.transport=nccl run.nccl_library="$standin")

if ! train 60 probe train.steps=1; then
    show "$work/probe.out" 3
    echo "SKIP  no GPU here"
    exit 77
fi
"$trireme" doctor 2>/dev/null | grep -i "nccl" | sed 's/^/      | /'

# ---- the library itself, one rank
[ -n "$real" ] || real=$(ldconfig -p 2>/dev/null | awk '/libnccl\.so\.2/ { print $NF; exit }')
[ -n "$real" ] || real=$(timeout 20 find /usr /opt /root /home -name 'libnccl.so.2' 2>/dev/null | head -n 1)
if [ -n "$real" ]; then
    if TRIREME_NCCL_LIBRARY=$real timeout 120 "$build/tests/test_cuda_nccl" >"$work/real.out" 2>&1; then
        pass "NCCL ($real), one rank: operations at once and recorded"
    else
        fail "NCCL ($real), one rank"
        show "$work/real.out" 12
    fi
    # Two ranks on one GPU are not NCCL's: it must say so, and nobody may hang.
    if train 90 refused train.steps=2 layout.dp=2 run.transport=nccl run.nccl_library="$real" \
        run.deadline_s=20; then
        fail "NCCL took two ranks on one GPU (is there more than one?)"
    elif grep -q "GPU of its own" "$work/refused.out"; then
        pass "NCCL, two ranks on one GPU: refused with a reason"
    else
        fail "NCCL, two ranks on one GPU: the message does not say why"
        show "$work/refused.out"
    fi
else
    echo "SKIP  NCCL itself: no libnccl.so.2 found; give its path as the second argument"
fi

# ---- the stand-in, all operations
for n in 1 2 4 8; do
    if TRIREME_NCCL_RANKS=$n TRIREME_NCCL_LIBRARY=$standin timeout 150 \
        "$build/tests/test_cuda_nccl" >"$work/ops$n.out" 2>&1; then
        pass "stand-in, $n ranks: operations at once and recorded, a rank that stays away"
    else
        fail "stand-in, $n ranks (exit code $?)"
        show "$work/ops$n.out" 12
    fi
done
if TRIREME_NCCL_RANKS=2 TRIREME_NCCL_LIBRARY=$standin NCCL_STANDIN_MEMORY=host timeout 150 \
    "$build/tests/test_cuda_nccl" >"$work/opshost.out" 2>&1; then
    pass "stand-in through the host's memory, 2 ranks"
else
    fail "stand-in through the host's memory, 2 ranks (exit code $?)"
    show "$work/opshost.out" 12
fi

# ---- layouts: the losses of one rank
field() { sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$work/$1/metrics.jsonl" 2>/dev/null; }
worst_of() { # name, other, field: the largest relative difference
    field "$1" "$3" >"$work/a"
    field "$2" "$3" >"$work/b"
    paste "$work/a" "$work/b" | awk '
        NF != 2 { missing = 1 }
        { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        END { if (NR < 20 || missing) print "inf"; else print worst + 0 }'
}
close() { # name, other, limit for losses, and for norms (ten times that)
    local loss norm
    loss=$(worst_of "$1" "$2" loss)
    norm=$(worst_of "$1" "$2" grad_norm)
    if ! grep -q "over nccl" "$work/$2.out"; then
        fail "$2 did not run over nccl"
        show "$work/$2.out"
    elif awk -v a="$loss" -v n="$norm" -v l="$3" -v m="${4:-0}" \
        'BEGIN { exit !(a <= l && n <= (m > 0 ? m : 10 * l)) }'; then
        pass "$2: losses within $loss, norms within $norm of one rank ($(field "$2" step_ms |
            sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }') ms a step)"
    else
        fail "$2: losses differ by $loss, norms by $norm (limit $3)"
    fi
}
layout() { # name, settings
    local name=$1
    shift
    if train 120 "$name" train.steps=20 "${nccl[@]}" "$@"; then
        close one "$name" 1e-5
    else
        fail "$name did not run (exit code $?)"
        show "$work/$name.out"
    fi
}
train 60 one train.steps=20
layout dp2 layout.dp=2
layout dp2-micro layout.dp=2 layout.microbatches=2
layout dp2-zero1 layout.dp=2 layout.zero=1
layout dp2-zero2 layout.dp=2 layout.zero=2 layout.microbatches=2
layout dp2-zero3 layout.dp=2 layout.zero=3
layout dp2-zero3-kept layout.dp=2 layout.zero=3 layout.keep_gathered=true layout.microbatches=2
layout tp2 layout.tp=2
layout tp2-sp layout.tp=2 layout.sp=true
layout dp4-hybrid layout.dp=4 layout.zero=3 layout.shard_group=2
layout tp2-dp2-zero2 layout.tp=2 layout.dp=2 layout.zero=2 layout.sp=true
# A stream for each group of ranks.
layout tp2-dp2-lanes layout.tp=2 layout.dp=2 layout.bucket_mb=0.05 run.lanes=group
layout dp4-hybrid-lanes layout.dp=4 layout.zero=3 layout.shard_group=2 run.lanes=group
layout dp8 layout.dp=8
layout pp2 layout.pp=2 layout.microbatches=4
layout pp4-dp2 layout.pp=4 layout.dp=2 layout.zero=1 layout.microbatches=4
layout tp2-dp4-zero3 layout.tp=2 layout.dp=4 layout.zero=3 layout.sp=true
# Small buckets: many messages beside the backward; then each is waited for.
layout dp2-buckets layout.dp=2 layout.bucket_mb=0.05
layout dp4-every-gradient layout.dp=4 layout.bucket_mb=0
layout tp2-dp2-buckets layout.tp=2 layout.dp=2 layout.bucket_mb=0.05
layout pp2-dp2-buckets layout.pp=2 layout.dp=2 layout.bucket_mb=0.05 layout.microbatches=4
layout dp2-zero3-ahead layout.dp=2 layout.zero=3 layout.prefetch=3
layout dp2-waits layout.dp=2 layout.bucket_mb=0.05 run.overlap=false
layout dp2-zero3-waits layout.dp=2 layout.zero=3 run.overlap=false
train 60 one-uneven train.steps=20 model.vocab=301
if train 120 tp2-uneven train.steps=20 model.vocab=301 layout.tp=2 "${nccl[@]}"; then
    close one-uneven tp2-uneven 1e-5
else
    fail "tp2-uneven did not run"
    show "$work/tp2-uneven.out"
fi
train 60 one-bf16 train.steps=20 precision.kind=bf16
for of in "dp2-bf16 layout.dp=2" "tp2-bf16 layout.tp=2" "dp2-zero3-bf16 layout.dp=2 layout.zero=3"; do
    # shellcheck disable=SC2086
    set -- $of
    name=$1
    shift
    if train 120 "$name" train.steps=20 precision.kind=bf16 "${nccl[@]}" "$@"; then
        close one-bf16 "$name" 2e-2
    else
        fail "$name did not run"
        show "$work/$name.out"
    fi
done

# ---- tokens over ranks: rings, gathers, heads; and only the keys that a window shows
layout cp2 layout.cp=2
layout cp4 layout.cp=4 data.seq_len=64
layout cp3-plain layout.cp=3 layout.cp_deal=plain
layout cp2-gather layout.cp=2 layout.cp_kind=gather
layout cp4-ulysses layout.cp=4 layout.cp_kind=ulysses
layout cp4-heads2 layout.cp=4 layout.cp_heads=2
layout cp2-tp2-sp layout.cp=2 layout.tp=2 layout.sp=true
layout cp2-dp2-zero3 layout.cp=2 layout.dp=2 layout.zero=3
layout cp2-pp2 layout.cp=2 layout.pp=2 layout.microbatches=4
layout cp2-recomputed layout.cp=2 layout.recompute=full
# A rate at which no step jumps: noise in 16 bits would be large in the norm of one that does.
llama=(model.kind=llama model.num_kv_heads=2 model.dropout=0 data.seq_len=61 model.window=17 optim.lr=1e-3)
for precision in fp32 bf16; do
    limits=(1e-5 1e-4)
    [ $precision = bf16 ] && limits=(5e-3 0.2)
    train 60 one-llama-$precision train.steps=20 precision.kind=$precision "${llama[@]}"
    train 60 one-$precision train.steps=20 precision.kind=$precision
    for of in "one-llama cp2-llama layout.cp=2" "one-llama cp4-llama layout.cp=4" \
        "one-llama cp2-seen layout.cp=2 layout.cp_kind=gather" \
        "one-llama cp4-seen layout.cp=4 layout.cp_kind=gather layout.cp_deal=balanced" \
        "one-llama cp4-copies layout.cp=4 layout.cp_kind=ulysses" \
        "one cp2-plain layout.cp=2" "one cp4-plain layout.cp=4"; do
        # shellcheck disable=SC2086
        set -- $of
        base=$1-$precision name=$2-$precision more=("${@:3}")
        [ "$1" = one-llama ] && more+=("${llama[@]}")
        if train 120 "$name" train.steps=20 precision.kind=$precision "${nccl[@]}" "${more[@]}"; then
            close "$base" "$name" "${limits[@]}"
        else
            fail "$name did not run"
            show "$work/$name.out"
        fi
    done
done
# Through the host, which sends what is seen and no more.
if train 120 cp2-host train.steps=20 layout.cp=2 layout.cp_kind=gather run.transport=shm "${llama[@]}"; then
    loss=$(worst_of one-llama-fp32 cp2-host loss)
    if awk -v a="$loss" 'BEGIN { exit !(a <= 1e-5) }'; then
        pass "cp2-host: losses within $loss of one rank"
    else
        fail "cp2-host: losses differ by $loss"
    fi
else
    fail "cp2-host did not run"
    show "$work/cp2-host.out"
fi
# Timed instruction by instruction, which is not recorded.
if train 120 traced train.steps=20 layout.dp=2 layout.zero=3 run.trace=true "${nccl[@]}"; then
    close one traced 1e-5
else
    fail "traced did not run"
    show "$work/traced.out"
fi
# Several ranks on one GPU: auto leaves it to the host.
if train 60 auto train.steps=2 layout.dp=2 && grep -q "over shm" "$work/auto.out"; then
    pass "auto: ranks that share a GPU talk through the host"
else
    fail "auto"
    show "$work/auto.out"
fi

# ---- a rank that is killed, and one that is stopped
hurt() { # name, signal, what the report must say, seconds, then settings
    local name=$1 signal=$2 said=$3 seconds=$4 begin spent code victim launcher
    shift 4
    local set=()
    for s in "$@" "${nccl[@]}"; do set+=(--set "$s"); done
    timeout -k 5 120 "$trireme" train recipes/tiny.yaml --set run.save=false --set run.device=cuda \
        --set run.dir="$work/$name" --set train.steps=1000000 "${set[@]}" >"$work/$name.out" 2>&1 &
    local waiter=$!
    for _ in $(seq 300); do
        [ "$(field "$name" step | wc -l)" -gt 5 ] && break
        sleep 0.1
    done
    launcher=$(pgrep -P "$waiter" | head -n 1)
    victim=$(pgrep -P "$launcher" | sed -n 2p) # ranks are forked in order
    begin=$(date +%s.%N)
    if [ -z "$victim" ]; then
        fail "$name: no process of a rank found"
        kill "$waiter"
        return
    fi
    kill -s "$signal" "$victim"
    wait "$waiter"
    code=$?
    spent=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
    if [ $code -eq 1 ] && grep -q "$said" "$work/$name.out" &&
        awk -v s="$spent" -v l="$seconds" 'BEGIN { exit !(s < l) }'; then
        pass "$name: over after $spent s: $(grep -m 1 "$said" "$work/$name.out")"
    else
        fail "$name: exit code $code after $spent s"
        show "$work/$name.out" 10
    fi
    grep -h "was waiting" "$work/$name.out" | head -n 2 | sed 's/^/      | /'
}
hurt killed-dp4 KILL "rank [0-9] was killed by SIGKILL at step [0-9]*, instruction [0-9]*" 8 \
    layout.dp=4 layout.zero=1
hurt killed-tp2 KILL "rank [0-9] was killed by SIGKILL at step [0-9]*, instruction [0-9]*" 8 layout.tp=2
hurt stopped-dp2 STOP "was not heard from" 20 layout.dp=2 run.deadline_s=5
sleep 1
if pgrep -f "$work" >"$work/left"; then
    fail "$(wc -l <"$work/left") processes are left"
else
    pass "no process is left"
fi
if compgen -G "/dev/shm/nccl-standin-*" >/dev/null; then
    fail "shared memory is left in /dev/shm"
else
    pass "no shared memory is left"
fi
echo "nccl: $passes passed, $failures failed"
exit $((failures > 0))
