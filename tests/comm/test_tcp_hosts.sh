#!/usr/bin/env bash
# Training over tcp: the losses of shared memory to the last bit, on one host, on two that are
# network namespaces, and with a network between them that is slow and loses packets.
# Argument: the build directory.
set -u
build=$(cd "$1" && pwd)
trireme=$build/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-tcp-XXXXXX")
tag=tr$$
relay=
clean() {
    [ -n "$relay" ] && kill "$relay" 2>/dev/null && wait "$relay" 2>/dev/null
    for n in a b r; do ip netns del $tag$n 2>/dev/null; done
    rm -rf "$work"
}
trap clean EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
common=(train recipes/tiny.yaml --set run.save=false)

numbers() { sed -n 's/.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*/\1 \2/p' "$work/$1/metrics.jsonl"; }
same() { # name, name, steps
    numbers "$1" >"$work/x"
    numbers "$2" >"$work/y"
    [ "$(wc -l <"$work/x")" -eq "$3" ] || fail "$1 has $(wc -l <"$work/x") steps, not $3"
    cmp -s "$work/x" "$work/y" || fail "losses of $1 and $2 differ"
}

# --- one host, every algorithm that sums
for algorithm in ring tree doubling rabenseifner double_tree bruck sharded_ps hierarchical; do
    for transport in shm tcp; do
        "$trireme" "${common[@]}" --set layout.dp=3 --set train.steps=5 \
            --set run.transport=$transport --set run.collective=$algorithm \
            --set run.dir="$work/$transport-$algorithm" >"$work/out" 2>&1 ||
            fail "$algorithm over $transport: $(tail -n 1 "$work/out")"
    done
    same shm-$algorithm tcp-$algorithm 5
done
"$trireme" "${common[@]}" --set layout.dp=3 --set run.transport=tcp --set run.collective=direct \
    --set run.dir="$work/d" >"$work/out" 2>&1
[ $? -eq 2 ] && grep -q "reads the memory of others" "$work/out" || fail "direct over tcp was not refused"

# --- two hosts
if ! ip netns add ${tag}a 2>/dev/null; then
    echo "skipped: several hosts (network namespaces are not permitted here)"
    [ $failures -eq 0 ]
    exit
fi
ip netns add ${tag}b
ip netns add ${tag}r
wire() { # namespace, address
    ip link add $tag$1 type veth peer name p$tag$1
    ip link set $tag$1 netns $tag$1
    ip link set p$tag$1 netns ${tag}r
    ip -n $tag$1 addr add "$2"/24 dev $tag$1
    ip -n $tag$1 link set $tag$1 up
    ip -n $tag$1 link set lo up
    ip -n ${tag}r link set p$tag$1 up
}
wire a 10.213.7.1 && wire b 10.213.7.2 || fail "veth pairs"

start_relay() { # delay, loss
    ip netns exec ${tag}r "$build/tests/helpers/packet_relay" p${tag}a p${tag}b "$1" "$2" >"$work/relay" 2>&1 &
    relay=$!
    for _ in $(seq 1000); do
        grep -q ready "$work/relay" && return
        sleep 0.05
    done
    fail "the relay did not start: $(cat "$work/relay")"
}
stop_relay() {
    kill $relay 2>/dev/null
    wait $relay 2>/dev/null
    relay=
}

# Four ranks, two on each host; the address of rank 0 is on the first.
two_hosts() { # name, steps, settings
    local name=$1 steps=$2 pids=() rank host
    shift 2
    for rank in 0 1 2 3; do
        host=a
        [ $rank -ge 2 ] && host=b
        RANK=$rank WORLD_SIZE=4 MASTER_ADDR=10.213.7.1 MASTER_PORT=29400 TRIREME_TOKEN=$tag \
            ip netns exec $tag$host "$trireme" "${common[@]}" --set layout.dp=4 \
            --set run.threads=1 --set train.steps="$steps" --set run.dir="$work/$name" "$@" \
            >"$work/$name.$rank" 2>&1 &
        pids+=($!)
    done
    for rank in 0 1 2 3; do
        wait "${pids[$rank]}" || fail "$name, rank $rank: $(tail -n 1 "$work/$name.$rank")"
    done
}

for algorithm in ring hierarchical torus2d; do
    "$trireme" "${common[@]}" --set layout.dp=4 --set train.steps=5 \
        --set run.collective=$algorithm:2x2 --set run.dir="$work/near-$algorithm" >"$work/out" 2>&1 ||
        fail "$(tail -n 1 "$work/out")"
done
start_relay 0 0
for algorithm in ring hierarchical torus2d; do # the shape of the machines is found by itself
    two_hosts far-$algorithm 5 --set run.transport=tcp --set run.collective=$algorithm
    same near-$algorithm far-$algorithm 5
done
two_hosts far-auto 3 # tcp, because there are two hosts
[ "$(numbers far-auto | wc -l)" -eq 3 ] || fail "the transport was not chosen"
stop_relay
start_relay 5 2 # 5 ms each way, one packet in fifty is lost
two_hosts slow 3 --set run.transport=tcp --set run.collective=ring
numbers near-ring | head -n 3 >"$work/x"
numbers slow >"$work/y"
cmp -s "$work/x" "$work/y" || fail "losses over a bad network differ"
stop_relay

# --- the network is cut: everybody ends within the deadline, and somebody is named
start_relay 0 0
two_hosts_cut() {
    local pids=() rank host began
    for rank in 0 1; do
        host=a
        [ $rank -ge 1 ] && host=b
        RANK=$rank WORLD_SIZE=2 MASTER_ADDR=10.213.7.1 MASTER_PORT=29401 TRIREME_TOKEN=$tag \
            ip netns exec $tag$host timeout 240 "$trireme" "${common[@]}" --set layout.dp=2 \
            --set run.threads=1 --set train.steps=100000 --set run.deadline_s=2 \
            --set run.transport=tcp --set run.dir="$work/cut" >"$work/cut.$rank" 2>&1 &
        pids+=($!)
    done
    for _ in $(seq 1000); do
        [ -s "$work/cut/metrics.jsonl" ] && break
        sleep 0.05
    done
    stop_relay
    began=$SECONDS
    wait "${pids[0]}" && fail "rank 0 did not notice that the network was cut"
    wait "${pids[1]}" && fail "rank 1 did not notice that the network was cut"
    [ $((SECONDS - began)) -le 60 ] || fail "noticing took $((SECONDS - began)) s"
    grep -q "rank 1" "$work/cut.0" || fail "rank 0 does not name rank 1: $(cat "$work/cut.0")"
}
two_hosts_cut
[ $failures -eq 0 ]
