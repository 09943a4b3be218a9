#!/usr/bin/env bash
# Ranks that are killed or stopped in the middle of training, and worlds that others start: a short
# form of soak.sh, and the environment as a user may get it wrong.
set -u
build=$1
trireme=$build/trireme
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN TORCHELASTIC_RUN_ID
SOAK_WITHIN_MS=60000 SOAK_DEADLINE_S=4 bash tests/soak.sh "$build" 3 1 || exit $?

work=$(mktemp -d /tmp/trireme-faults-XXXXXX)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "$1"
    for file in "$work"/*.txt; do
        echo "--- $file"
        cat "$file"
    done
    exit 1
}

# rank N DP [VARIABLE=VALUE ...]: one rank of a world; its output goes to rank-N.txt.
# Below the ports that the system gives to outgoing connections, and nobody listening there.
next_port() {
    port=$((20000 + RANDOM % 12000))
    while (echo >/dev/tcp/127.0.0.1/$port) 2>/dev/null; do port=$((port + 1)); done
}
next_port
rank() {
    local n=$1 dp=$2
    shift 2
    env RANK="$n" WORLD_SIZE="$dp" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" \
        "$trireme" train recipes/tiny.yaml --set layout.dp="$dp" --set run.dir="$work/run" \
        --set run.save=false --set train.steps="${steps:-3}" --set run.deadline_s="${deadline:-5}" \
        >"$work/rank-$n.txt" 2>&1
}

# A world of two.
rank 1 2 LOCAL_RANK=1 &
other=$!
rank 0 2 LOCAL_RANK=0 || fail "rank 0 of a world of two failed"
wait $other || fail "rank 1 of a world of two failed"
grep -q "step 3/3" "$work/rank-0.txt" || fail "rank 0 did not train"

# One of them is killed: the other says so and ends.
next_port
steps=1000000 deadline=60
rank 1 2 &
other=$!
(rank 0 2) &
host=$!
end=$((SECONDS + 120)) # by then heartbeats have told rank 0 where rank 1 is
until [ "$(grep -c . "$work/run/metrics.jsonl" 2>/dev/null)" -gt 100 ] 2>/dev/null || [ $SECONDS -ge $end ]; do sleep 0.02; done
victim=$(cat /proc/$other/task/$other/children 2>/dev/null)
kill -KILL ${victim:-$other}
began=$SECONDS
wait $host
code=$?
took=$((SECONDS - began))
wait $other 2>/dev/null
[ $code -eq 1 ] || fail "rank 0 ended with exit code $code after rank 1 was killed"
[ $took -lt 40 ] || fail "rank 0 took $took s to end after rank 1 was killed"
grep -q "^trireme: rank 1 ended without a word.* at step" "$work/rank-0.txt" ||
    fail "rank 0 does not report rank 1"

# Nobody else comes; somebody comes with another token. On a busy machine those who come may be later
# than a short deadline: then it is a longer one.
steps=3
for deadline in 1 8 40; do
    next_port
    rank 0 3 && fail "a world of three began with one"
    grep -q "only 1 of 3 ranks joined within $deadline s; missing: ranks 1, 2" "$work/rank-0.txt" && break
done || fail "the missing ranks are not named"
for deadline in 1 8 40; do
    next_port
    rank 1 2 TRIREME_TOKEN=wrong &
    other=$!
    rank 0 2 TRIREME_TOKEN=right && fail "a rank with another token joined"
    wait $other && fail "a rank with another token joined"
    grep -q "the token of this rank is not the job's" "$work/rank-1.txt" &&
        grep -q "its token is not the job's" "$work/rank-0.txt" && break
done || fail "rank 1 is not told why, or rank 0 does not log the stranger"
deadline=60

# What is wrong with the environment is said, with exit code 2.
wrong() {
    local expected=$1
    shift
    env "$@" "$trireme" train recipes/tiny.yaml --set layout.dp=2 --set run.dir="$work/run" \
        --set train.steps=1 >"$work/wrong.txt" 2>&1
    local code=$?
    [ $code -eq 2 ] || fail "exit code $code with $*"
    grep -q -- "$expected" "$work/wrong.txt" || fail "'$expected' is not said with $*"
}
wrong "but not WORLD_SIZE" RANK=0
wrong "but not RANK" WORLD_SIZE=2
wrong "WORLD_SIZE=2 has ranks 0 to 1" RANK=2 WORLD_SIZE=2
wrong "RANK=x in the environment is not a whole number" RANK=x WORLD_SIZE=2
wrong "but not MASTER_ADDR" RANK=0 WORLD_SIZE=2
wrong "but not MASTER_PORT" RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1
wrong "MASTER_PORT=99999 in the environment" RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=99999
wrong "WORLD_SIZE=3 in the environment, but the layout has 2 ranks" RANK=0 WORLD_SIZE=3 \
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$port

# More connections than open files are allowed: the limit is raised, or the fix is said.
files() { # SOFT HARD
    (
        ulimit -Sn "$1" && ulimit -Hn "$2" &&
            exec "$trireme" train recipes/tiny.yaml --set layout.dp=8 --set run.transport=tcp --set run.collective=ring \
                --set run.device=cpu --set model.num_layers=1 --set run.dir="$work/files" \
                --set run.save=false --set train.steps=1 >"$work/files.txt" 2>&1
    )
}
files 32 400 || fail "a soft limit on open files is not raised"
files 32 40
[ $? -eq 2 ] && grep -q "8 ranks over tcp need 48 open files, and the limit is 40; raise it" "$work/files.txt" ||
    fail "too low a limit on open files is not told"

# In a shell of one task (srun --pty bash) whoever types starts ranks of his own.
env SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NODELIST=localhost SLURM_JOB_ID=7 \
    SLURM_STEP_ID=0 PMI_RANK=0 PMI_SIZE=1 "$trireme" train recipes/tiny.yaml --set layout.dp=2 \
    --set run.dir="$work/shell" --set run.save=false --set train.steps=2 >"$work/shell.txt" 2>&1 ||
    fail "a shell of srun cannot start two ranks"
# PALS tells a rank its number; without how many there are, each would be a run of its own.
wrong "PALS_RANKID=1 .* nothing says how many; set WORLD_SIZE" PALS_RANKID=1 PALS_LOCAL_RANKID=1 \
    PALS_NODEID=0 PALS_LOCAL_SIZE=2
next_port
pals() {
    env PALS_RANKID="$1" PALS_LOCAL_RANKID="$1" PMI_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$trireme" train recipes/tiny.yaml --set layout.dp=2 --set run.dir="$work/pals" \
        --set run.save=false --set train.steps=2 >"$work/pals-$1.txt" 2>&1
}
pals 1 &
other=$!
pals 0 || fail "rank 0 of PALS failed"
wait $other || fail "rank 1 of PALS failed"
grep -q " 2 ranks" "$work/pals-0.txt" || fail "ranks of PALS did not join"
echo "worlds that others start: fine"
