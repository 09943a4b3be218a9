#!/usr/bin/env bash
# doctor --cluster: ranks of this machine, and of two hosts that are network namespaces, measure their
# links into a file that sim --cluster reads. What the figures are is the machines' business.
set -u
build=$1
trireme=$build/trireme
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN
work=$(mktemp -d /tmp/trireme-cluster-XXXXXX)
tag=tc$$
clean() {
    for n in a b; do ip netns del $tag$n 2>/dev/null; done
    rm -rf "$work"
}
trap clean EXIT
fail() {
    echo "FAILED: $1"
    tail -n 30 "$work"/*.txt "$work"/*.cluster
    exit 1
}
refused() { # what is said, then a command
    local words=$1
    shift
    "$@" >"$work/refused.txt" 2>&1
    [ $? = 2 ] || fail "$*: another exit code than 2"
    grep -q -- "$words" "$work/refused.txt" || fail "$*: \"$words\" is not said"
}
value() { sed -n "s/^$2: //p" "$work/$1.cluster"; } # file, key
positive() {                                        # file, keys
    local file=$1 key
    shift
    for key in "$@"; do
        [[ $(value "$file" "$key") =~ ^[0-9.]*[1-9][0-9.]*(e[-+]?[0-9]+)?[MG]?$ ]] || fail "$file: $key is \"$(value "$file" "$key")\""
    done
}

# --- ranks of this machine
"$trireme" doctor --cluster "$work/here.cluster" --ranks 2 >"$work/out.txt" 2>&1 || fail "2 ranks"
grep -q '^messages by shm' "$work/out.txt" || fail "it does not say by what messages went"
grep -q "^written: $work/here.cluster; now: trireme sim" "$work/out.txt" || fail "it does not say where the file is"
[ "$(value here nodes) $(value here devices_per_node) $(value here measured)" = "1 2 1" ] || fail "nodes and devices"
positive here node_bandwidth node_latency
grep -q '^# trireme doctor --cluster, version [0-9.]*, 20' "$work/here.cluster" || fail "no version and date"
grep -q "^# hosts: $(hostname)\$" "$work/here.cluster" || fail "no host"
grep -q '^# messages: shm$' "$work/here.cluster" || fail "no transport"
grep -q '^# not measured: a network' "$work/here.cluster" || fail "what was not measured is not said"
grep -q '^card' "$work/here.cluster" && fail "one node has network cards"
"$trireme" sim recipes/tiny.yaml --set layout.dp=2 --cluster "$work/here.cluster" --device h100 >"$work/out.txt" 2>&1 ||
    fail "sim does not take the file"
grep -q ', measured: 1 node of 2$' "$work/out.txt" || fail "sim does not say that the cluster was measured"
refused "add --device" "$trireme" sim recipes/tiny.yaml --cluster "$work/here.cluster"
refused "1 node of 2 devices, and 4 are asked for" "$trireme" sim recipes/tiny.yaml --set layout.dp=4 \
    --cluster "$work/here.cluster" --device h100

# --- over itself, and as JSON; a rank alone
cp "$work/here.cluster" "$work/again.cluster"
"$trireme" doctor --cluster "$work/again.cluster" --ranks 1 --json >"$work/json.txt" 2>&1 || fail "again, one rank"
grep -q '"nodes": *1,.*"devices_per_node": *1,.*"node_latency_seconds": *null,.*"node_bytes_per_s": *[1-9]' "$work/json.txt" ||
    fail "JSON"
[ "$(value again devices_per_node)" = 1 ] || fail "an earlier file was not written over"
positive again node_bandwidth
grep -q '^# assumed: node_bandwidth' "$work/again.cluster" || fail "what is assumed is not said"

# --- what is refused
echo 'nodes: 4' >"$work/ours.cluster"
refused "is left alone" "$trireme" doctor --cluster "$work/ours.cluster"
[ "$(cat "$work/ours.cluster")" = 'nodes: 4' ] || fail "a file of another kind was written over"
refused "cannot be written" "$trireme" doctor --cluster "$work/nowhere/x.cluster"
refused "for the name of a ready cluster" "$trireme" doctor --cluster mine
refused "takes no file" "$trireme" doctor --cluster "$work/new.cluster" recipes/tiny.yaml
refused "give one" "$trireme" doctor --cluster "$work/new.cluster" --validate
refused "says nothing without" "$trireme" doctor --ranks 2
refused "run.transport is nccl" "$trireme" doctor --cluster "$work/new.cluster" --ranks 2 --set run.transport=nccl
[ -e "$work/new.cluster" ] && fail "a refused command wrote a file"

# --- two hosts of two ranks
if ! ip netns add ${tag}a 2>/dev/null; then
    echo "skipped: several hosts (network namespaces are not permitted here)"
    exit 0
fi
ip netns add ${tag}b
ip link add $tag netns ${tag}a type veth peer name $tag netns ${tag}b || fail "a veth pair"
for n in a b; do
    address=10.213.9.1
    [ $n = b ] && address=10.213.9.2
    ip -n $tag$n addr add $address/24 dev $tag
    ip -n $tag$n link set $tag up
    ip -n $tag$n link set lo up
done
two_hosts() { # file; the hosts of ranks 0 to 3
    local file=$1 pids=() rank=0 host code=0
    shift
    for host in "$@"; do
        RANK=$rank WORLD_SIZE=$# MASTER_ADDR=10.213.9.1 MASTER_PORT=29402 TRIREME_TOKEN=$tag \
            ip netns exec "$tag$host" "$trireme" doctor --cluster "$file" --set run.dir="$work/run" \
            --set run.threads=1 --set run.transport=tcp >"$work/rank-$rank.txt" 2>&1 &
        pids+=($!)
        rank=$((rank + 1))
    done
    for rank in "${pids[@]}"; do
        wait "$rank" || code=$?
    done
    return $code
}
two_hosts "$work/two.cluster" a a b b || fail "two hosts"
[ "$(value two nodes) $(value two devices_per_node)" = "2 2" ] || fail "two hosts: nodes and devices"
positive two node_bandwidth node_latency cards_per_node card_bandwidth card_latency
[[ $(value two cards_per_node) = [12] ]] || fail "two ranks share $(value two cards_per_node) cards"
grep -q '^# derived: cards_per_node from' "$work/two.cluster" || fail "two hosts: what is derived is not said"
grep -q '^# messages: tcp$' "$work/two.cluster" || fail "two hosts: no transport"
grep -q 'consecutive ranks' "$work/two.cluster" && fail "consecutive ranks are said to be scattered"
"$trireme" sim recipes/tiny.yaml --set layout.dp=4 --cluster "$work/two.cluster" --device h100 >"$work/out.txt" 2>&1 ||
    fail "sim does not take the file of two hosts"
grep -q ', measured: 2 nodes of 2$' "$work/out.txt" || fail "sim has other nodes"
two_hosts "$work/scattered.cluster" a b a b || fail "scattered ranks"
grep -q '^# assumed: consecutive ranks share a node, which these did not' "$work/scattered.cluster" || fail "scattered ranks are not told"
two_hosts "$work/uneven.cluster" a a b && fail "unequal hosts were not refused"
grep -q 'has 2 ranks and that of rank 2 has 1, .*start equally many on each' "$work"/rank-?.txt || fail "unequal hosts"
[ -e "$work/uneven.cluster" ] && fail "unequal hosts have a file"
echo "links were measured, written down and read"
