#!/usr/bin/env bash
# A layout is the same program whatever carries its messages: with the same algorithm, losses and
# gradient norms over shm, tcp and mpi have the same bits. With TRIREME_TEST_FULL every pipeline
# order and more layouts. And mpirun between two hosts that are network namespaces.
# Argument: the build directory.
set -u
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # of the MPI library
build=$(cd "$1" && pwd)
trireme=$build/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-transports-XXXXXX")
tag=tt$$
clean() {
    for n in a b; do ip netns del $tag$n 2>/dev/null; done
    rm -rf "$work"
}
trap clean EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
steps=3
common=(train recipes/tiny.yaml --set run.save=false --set train.steps=$steps --set run.threads=1)
numbers() { sed -n 's/.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl" 2>/dev/null; }
same() { # what, directory, directory
    numbers "$2" >"$work/x"
    numbers "$3" >"$work/y"
    [ "$(wc -l <"$work/x")" -eq $steps ] && cmp -s "$work/x" "$work/y" || fail "$1: losses differ"
}

mpi=()
if [ -f "$build/trireme-mpi.so" ] && command -v mpirun >/dev/null; then
    mpi=(timeout 200 mpirun)
    [ "$(id -u)" -eq 0 ] && mpirun --version 2>/dev/null | grep -q "Open MPI" && mpi+=(--allow-run-as-root --oversubscribe)
    "${mpi[@]}" -n 1 true >/dev/null 2>&1 || mpi=()
fi
[ ${#mpi[@]} -gt 0 ] || echo "skipped: MPI (there is none that works here)"

# Four ranks each, except where it says otherwise.
layouts=(
    "dp=2 tp=2 sp=true zero=1"
    "dp=4 zero=3 shard_group=2"
    "dp=2 pp=2 microbatches=4 zero=2"
    "tp=2 pp=2 microbatches=4 recompute=selective"
    "pp=4 microbatches=8 schedule=zb-h1"
    "pp=2 dp=2 microbatches=4 schedule=interleaved"
)
algorithms=(ring)
if [ -n "${TRIREME_TEST_FULL:-}" ]; then
    layouts+=("dp=2 tp=2 zero=3" "tp=4 sp=true" "dp=2 tp=2 pp=2 microbatches=4 sp=true zero=1")
    while read -r name; do
        model=
        case $name in pipedream*) model=llama ;; esac # pipedream cannot share a token table, nor clip
        layouts+=("pp=2 dp=2 microbatches=4 schedule=$name $model")
    done < <("$trireme" sim --schedule list | awk '/^  [a-z0-9]/ && !/csv:/ { print $1 }')
    algorithms+=(rabenseifner tree)
fi
for layout in "${layouts[@]}"; do
    settings=() ranks=1
    for word in $layout; do
        [ "$word" = llama ] && settings+=(--set model.kind=llama --set model.dropout=0 --set train.clip=0) && continue
        settings+=(--set "layout.$word")
        case $word in dp=* | tp=* | pp=*) ranks=$((ranks * ${word#*=})) ;; esac
    done
    for algorithm in "${algorithms[@]}"; do
        rm -rf "$work"/run.*
        for transport in shm tcp mpi; do
            start=()
            [ $transport = mpi ] && {
                [ ${#mpi[@]} -gt 0 ] || continue
                start=("${mpi[@]}" -n "$ranks")
            }
            "${start[@]}" "$trireme" "${common[@]}" "${settings[@]}" --set run.collective="$algorithm" \
                --set run.transport=$transport --set run.dir="$work/run.$transport" >"$work/out" 2>&1 ||
                fail "$layout over $transport: $(tail -n 2 "$work/out")"
            [ $transport = shm ] || same "$layout, $algorithm, shm and $transport" "$work/run.shm" "$work/run.$transport"
        done
    done
done

# --- the vectors by which collectives are measured, at the first start in a directory, are gone when
# the training begins: it takes as much as at the second start, which reads the measurements.
memory() { # prints the MiB that are held at the end, and those of the peak
    local used peak
    "$trireme" "${common[@]}" --set layout.dp=2 --set run.transport=tcp --set run.dir="$work/twice" >"$work/out" 2>&1 ||
        fail "$(tail -n 1 "$work/out")"
    used=$(sed -n 's/^memory: \([0-9.]*\) MiB used.*/\1/p' "$work/out")
    peak=$(tail -n 1 "$work/twice/metrics.jsonl" | sed 's/.*"mem_peak_bytes":\([0-9]*\).*/\1/')
    echo "$used $((peak >> 20))"
}
if grep -q -e __asan_init -e __tsan_init "$trireme" || ! { echo 5 >/proc/self/clear_refs; } 2>/dev/null; then
    echo "memory after measuring was not looked at: a sanitizer has its own, or the peak cannot be reset"
else
    read -r first first_peak <<<"$(memory)"
    read -r second second_peak <<<"$(memory)"
    awk "BEGIN { exit !($first > 5 && $first < $second + 1.5 && $first_peak < $second_peak + 5) }" ||
        fail "memory: $first MiB, at most $first_peak, when collectives are measured; $second, $second_peak when not"
fi

# --- mpirun between two hosts; it reaches the second through an agent instead of ssh
if [ ${#mpi[@]} -gt 0 ] && ip netns add ${tag}a 2>/dev/null && ip netns add ${tag}b; then
    ip link add ${tag}a netns ${tag}a type veth peer name ${tag}b netns ${tag}b
    for n in a b; do
        ip -n $tag$n addr add 10.213.8.$([ $n = a ] && echo 1 || echo 2)/24 dev $tag$n
        ip -n $tag$n link set $tag$n up
        ip -n $tag$n link set lo up
    done
    # A machine has a name and shared memory of its own; without them Open MPI mixes the two up.
    cat >"$work/agent" <<END
#!/usr/bin/env bash
# mpirun calls: agent HOST COMMAND...
shift
exec ip netns exec ${tag}b unshare --uts --mount bash -c \
    "hostname ${tag}b && mount -t tmpfs none /dev/shm && \$*"
END
    chmod +x "$work/agent"
    "$trireme" "${common[@]}" --set layout.dp=2 --set layout.tp=2 --set run.collective=ring \
        --set run.dir="$work/near" >"$work/out" 2>&1 || fail "$(tail -n 1 "$work/out")"
    far() { # command: two ranks on each host
        ip netns exec ${tag}a "${mpi[@]}" --mca plm_rsh_agent "$work/agent" \
            --mca oob_tcp_if_include 10.213.8.0/24 --mca btl_tcp_if_include 10.213.8.0/24 \
            --host 10.213.8.1:2,10.213.8.2:2 -n 4 "$@" >"$work/out" 2>&1
    }
    for transport in auto mpi tcp; do
        far "$trireme" "${common[@]}" --set layout.dp=2 --set layout.tp=2 --set run.collective=ring \
            --set run.transport=$transport --set run.dir="$work/far-$transport" ||
            fail "mpirun on two hosts, $transport: $(tail -n 4 "$work/out")"
        carried=$transport
        [ $transport = auto ] && carried=mpi # they met through it, on two machines
        grep -q "on each rank, over $carried" "$work/out" || fail "$transport: $(grep ^device "$work/out")"
        same "mpirun on two hosts, $transport" "$work/near" "$work/far-$transport"
    done
    # A rank of the second host is killed: all end before mpirun is told to give up (timeout: 124).
    far bash -c "[ \$OMPI_COMM_WORLD_RANK = 3 ] && (until [ -s $work/killed/metrics.jsonl ]; do sleep 0.1; done; kill -9 \$\$) & exec $trireme train \
        recipes/tiny.yaml --set run.save=false --set train.steps=1000000 --set run.threads=1 \
        --set layout.dp=4 --set run.transport=mpi --set run.dir=$work/killed"
    code=$?
    [ $code -ne 0 ] && [ $code -ne 124 ] || fail "after a kill on the second host: $code"
    grep -q "rank 3 .*ended without a word" "$work/out" || fail "nobody names rank 3: $(tail -n 4 "$work/out")"
else
    echo "skipped: mpirun on two hosts (it needs MPI and network namespaces)"
fi
[ $failures -eq 0 ]
