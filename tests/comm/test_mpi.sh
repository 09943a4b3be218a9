#!/usr/bin/env bash
# Under mpirun: collectives over MPI are exact, training has the losses of shared memory to the last
# bit, ranks meet without a meeting point, and what cannot be is refused. And under the variables
# that srun sets, without MPI. Argument: the build directory.
set -u
# What an MPI library does not give back at its end is not ours to count.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
build=$(cd "$1" && pwd)
trireme=$build/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-mpi-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
common=(train recipes/tiny.yaml --set run.save=false --set train.steps=5)
numbers() { sed -n 's/.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*/\1 \2/p' "$work/$1/metrics.jsonl"; }
same() {
    numbers "$1" >"$work/x"
    numbers "$2" >"$work/y"
    [ "$(wc -l <"$work/x")" -eq 5 ] && cmp -s "$work/x" "$work/y" || fail "losses of $1 and $2 differ"
}

# --- srun: two tasks on this machine, as Slurm tells it
SLURM_JOB_ID=$((RANDOM + 1)) SLURM_STEP_ID=0
export SLURM_JOB_ID SLURM_STEP_ID SLURM_STEP_NODELIST='localhost' SLURM_STEP_NUM_TASKS=2 TRIREME_TOKEN=$$
for transport in auto tcp; do
    for rank in 0 1; do
        SLURM_PROCID=$rank SLURM_LOCALID=$rank "$trireme" "${common[@]}" --set layout.dp=2 \
            --set run.transport=$transport --set run.collective=ring --set run.threads=1 \
            --set run.dir="$work/srun-$transport" >"$work/srun.$rank" 2>&1 &
        pid[rank]=$!
    done
    for rank in 0 1; do
        wait "${pid[$rank]}" || fail "srun, $transport, rank $rank: $(tail -n 1 "$work/srun.$rank")"
    done
done
same srun-auto srun-tcp
SLURM_PROCID=0 "$trireme" "${common[@]}" --set layout.dp=3 --set run.dir="$work/s" >"$work/out" 2>&1
[ $? -eq 2 ] && grep -q "SLURM_STEP_NUM_TASKS=2" "$work/out" || fail "srun with a wrong layout: $(tail -n 1 "$work/out")"
unset SLURM_JOB_ID SLURM_STEP_ID SLURM_STEP_NODELIST SLURM_STEP_NUM_TASKS TRIREME_TOKEN

# --- without a launcher MPI is refused before anything starts
"$trireme" "${common[@]}" --set layout.dp=2 --set run.transport=mpi --set run.dir="$work/m" >"$work/out" 2>&1
[ $? -eq 2 ] && grep -q "mpirun -n 2 trireme train" "$work/out" || fail "mpi without mpirun was not refused"

if [ ! -f "$build/trireme-mpi.so" ] || ! command -v mpirun >/dev/null; then
    echo "skipped: MPI (there is none here: apt-get install openmpi-bin libopenmpi-dev)"
    [ $failures -eq 0 ]
    exit
fi
run() { # ranks, command
    local n=$1
    shift
    local root=()
    [ "$(id -u)" -eq 0 ] && mpirun --version 2>/dev/null | grep -q "Open MPI" && root=(--allow-run-as-root --oversubscribe)
    timeout 200 mpirun "${root[@]}" -n "$n" "$@"
}
if ! run 1 true >/dev/null 2>&1; then
    echo "skipped: MPI (mpirun does not work here)"
    [ $failures -eq 0 ]
    exit
fi

one_in=30
[ -n "${TRIREME_TEST_FULL:-}" ] && one_in=1
for n in 2 3 5; do
    run $n "$build/tests/helpers/mpi_cases" $one_in >"$work/out" 2>&1 || fail "cases on $n ranks: $(cat "$work/out")"
done

run 3 "$build/tests/helpers/mpi_cases" disagree >"$work/out" 2>&1
code=$?
[ $code -ne 0 ] && [ $code -ne 124 ] && grep -q "called .*broadcast of 512 f32 from 1" "$work/out" ||
    fail "ranks that call different things: $code, $(cat "$work/out")"

for algorithm in ring rabenseifner; do
    "$trireme" "${common[@]}" --set layout.dp=3 --set run.collective=$algorithm \
        --set run.dir="$work/shm-$algorithm" >"$work/out" 2>&1 || fail "$(tail -n 1 "$work/out")"
    run 3 "$trireme" "${common[@]}" --set layout.dp=3 --set run.transport=mpi \
        --set run.collective=$algorithm --set run.dir="$work/mpi-$algorithm" >"$work/out" 2>&1 ||
        fail "$algorithm over mpi: $(tail -n 3 "$work/out")"
    same shm-$algorithm mpi-$algorithm
done
run 3 "$trireme" "${common[@]}" --set layout.dp=3 --set run.transport=mpi --set run.collective=native \
    --set run.dir="$work/native" >"$work/out" 2>&1 || fail "native: $(tail -n 3 "$work/out")"
[ "$(numbers native | wc -l)" -eq 5 ] || fail "native did not train"
for transport in auto tcp; do # they meet through MPI all the same
    run 2 "$trireme" "${common[@]}" --set layout.dp=2 --set run.transport=$transport \
        --set run.collective=ring --set run.dir="$work/met-$transport" >"$work/out" 2>&1 ||
        fail "mpirun, $transport: $(tail -n 3 "$work/out")"
done
same met-auto met-tcp
run 2 "$trireme" "${common[@]}" --set layout.dp=3 --set run.dir="$work/w" >"$work/out" 2>&1 &&
    fail "two ranks for a layout of three were accepted"
grep -q "but the layout has 3" "$work/out" || fail "a wrong number of ranks: $(head -n 3 "$work/out")"
run 2 "$trireme" bench comm --transport mpi --algorithms ring,native --ops all_reduce,all_to_all \
    --sizes 1k,64k --json >"$work/bench" 2>&1 || fail "bench comm: $(tail -n 3 "$work/bench")"
[ "$(grep -c '"transport": "mpi".*"wrong": 0' "$work/bench")" -eq 8 ] || fail "bench comm over mpi: $(cat "$work/bench")"

# --- a rank that dies takes the others along, quickly
run 3 bash -c "[ \$OMPI_COMM_WORLD_RANK = 1 ] && (until [ -s $work/killed/metrics.jsonl ]; do sleep 0.1; done; kill -9 \$\$) & exec $trireme train recipes/tiny.yaml \
    --set run.save=false --set train.steps=1000000 --set layout.dp=3 --set run.transport=mpi \
    --set run.dir=$work/killed" >"$work/out" 2>&1
code=$?
[ $code -ne 0 ] && [ $code -ne 124 ] || fail "after a kill the run ended with $code"
[ $failures -eq 0 ]
