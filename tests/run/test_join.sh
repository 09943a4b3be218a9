#!/usr/bin/env bash
# A world that others started, without TRIREME_TOKEN: rank 0 leaves a token that only its user can
# read, the others find it, and it is gone when all are there. A stranger on the same machine can
# not join. Argument: the build directory.
set -u
trireme=$(cd "$1" && pwd)/trireme
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN TORCHELASTIC_RUN_ID
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-join-XXXXXX")
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
port=$((21000 + RANDOM % 9000))
join() { # rank, then what comes before the program
    local rank=$1
    shift
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -s KILL 200 "$@" "$trireme" train \
        recipes/tiny.yaml --set layout.dp=2 --set train.steps=2 --set run.threads=1 --set run.save=false \
        --set run.transport=tcp --set run.deadline_s=100 --set run.dir="$work/run" >"$work/out.$rank" 2>&1
}

# What lies there already is neither read nor followed.
mkdir "$work/run"
echo precious >"$work/precious"
ln -s "$work/precious" "$work/run/.token-$port"
echo stale >"$work/run/.token-1"
chmod 600 "$work/run/.token-1"
join 0 env &
first=$!
end=$((SECONDS + 120))
while [ -L "$work/run/.token-$port" ] || [ ! -s "$work/run/.token-$port" ]; do
    [ $SECONDS -lt $end ] || break
    sleep 0.02
done
[ "$(stat -c '%a %F' "$work/run/.token-$port")" = "600 regular file" ] ||
    fail "the token is $(stat -c '%a %F' "$work/run/.token-$port"), not a file that only its user can read"
[ "$(cat "$work/precious")" = precious ] || fail "a file that a link led to was written"
[ ! -e "$work/run/.token-1" ] || fail "the token of a job that was killed is still there"
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$work/run"
    join 1 setpriv --reuid 65534 --regid 65534 --clear-groups && fail "another user joined the job"
    grep -q "the job's token, which rank 0 leaves in .*Permission denied.*TRIREME_TOKEN" "$work/out.1" ||
        fail "another user was told: $(tail -n 1 "$work/out.1")"
    # What was the token of such a job before: anybody could compute it.
    TRIREME_TOKEN=derived-$port join 1 setpriv --reuid 65534 --regid 65534 --clear-groups &&
        fail "another user joined the job with a token of his own"
    grep -q "the token of this rank is not the job's" "$work/out.1" ||
        fail "a wrong token was answered with: $(tail -n 1 "$work/out.1")"
else
    echo "skipped: another user (this is not root, or there is no setpriv)"
fi
join 1 env || fail "rank 1: $(tail -n 2 "$work/out.1")"
wait $first || fail "rank 0: $(tail -n 2 "$work/out.0")"
[ "$(grep -c '"loss"' "$work/run/metrics.jsonl")" -eq 2 ] || fail "the two ranks did not train"
[ -z "$(find "$work/run" -name '.token*')" ] || fail "the token is left behind"

# A verb without a run directory meets all the same, and leaves nothing.
port=$((port + 1))
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -s KILL 200 "$trireme" bench comm \
        --transport tcp --algorithms ring --ops all_reduce --sizes 1k --set run.dir="$work/none" \
        >"$work/bench.$rank" 2>&1 &
    pid[rank]=$!
done
for rank in 0 1; do
    wait "${pid[$rank]}" || fail "bench comm, rank $rank: $(tail -n 2 "$work/bench.$rank")"
done
[ ! -e "$work/none" ] || fail "bench comm made a run directory"
[ ! -e "/tmp/trireme-$(id -u)/.token-$port" ] || fail "bench comm left its token behind"

# Ranks that do not see rank 0's directory are told what to do.
port=$((port + 1))
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$trireme" train recipes/tiny.yaml \
    --set layout.dp=2 --set run.deadline_s=2 --set run.dir="$work/here" >"$work/out" 2>&1 &
first=$!
RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -s KILL 200 "$trireme" train recipes/tiny.yaml \
    --set layout.dp=2 --set run.deadline_s=2 --set run.dir="$work/there" >"$work/out.1" 2>&1
[ $? -eq 2 ] && grep -q "set TRIREME_TOKEN to the same secret" "$work/out.1" ||
    fail "without a common directory: $(tail -n 1 "$work/out.1")"
{
    kill -KILL $first
    wait $first
} 2>/dev/null
[ $failures -eq 0 ]
