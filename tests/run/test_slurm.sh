#!/usr/bin/env bash
# Under a real srun: a Slurm of two nodes that are both this machine, in a mount namespace of its own.
# Ranks meet, train with the losses of our own launcher to the last bit (shm, tcp, and mpi where Slurm
# has PMIx), a killed rank ends the step and is named, and a signal from scancel saves and stops.
# Skipped where Slurm is not installed (slurmctld slurmd slurm-client munge) or may not be started.
# Argument: the build directory.
set -u
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # of the MPI library
for program in slurmctld slurmd srun munged unshare; do
    command -v $program >/dev/null ||
        {
            echo "there is no $program here (apt-get install slurmctld slurmd slurm-client munge)"
            exit 77
        }
done
[ "$(id -u)" -eq 0 ] || {
    echo "starting a Slurm of our own takes root"
    exit 77
}
if [ -z "${TRIREME_SLURM_INSIDE:-}" ]; then
    unshare --mount true 2>/dev/null || {
        echo "mount namespaces are not permitted here"
        exit 77
    }
    TRIREME_SLURM_INSIDE=1 exec unshare --mount bash "$0" "$@"
fi
build=$(cd "$1" && pwd)
trireme=$build/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-slurm-XXXXXX")
daemons=()
clean() {
    daemons+=($(cat "$work"/*.pid 2>/dev/null))
    kill "${daemons[@]}" 2>/dev/null
    for _ in $(seq 100); do kill -0 "${daemons[@]}" 2>/dev/null && sleep 0.05; done
    rm -rf "$work"
}
trap clean EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# --- a Slurm: its own names, key and ports
me=$(hostname)
{
    cat /etc/hosts
    echo "127.0.0.1 trireme-n1 trireme-n2"
} >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
chmod 755 "$work"
head -c 128 /dev/urandom >"$work/key" && chmod 400 "$work/key"
mkdir -p "$work/munge" "$work/state"
chown -R munge "$work/munge" "$work/key"
setpriv --reuid munge --regid munge --clear-groups munged --foreground --key-file="$work/key" \
    --socket="$work/munge/s" --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" \
    --log-file="$work/munge/log" >/dev/null 2>&1 &
daemons+=($!)
port=$((21000 + $$ % 10000))
cat >"$work/slurm.conf" <<END
ClusterName=trireme
SlurmctldHost=$me(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/s
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool.%n
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
NodeName=trireme-n1 NodeHostname=$me NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=8
NodeName=trireme-n2 NodeHostname=$me NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=8
PartitionName=all Nodes=trireme-n1,trireme-n2 Default=YES MaxTime=60 State=UP OverSubscribe=FORCE
END
export SLURM_CONF=$work/slurm.conf
mkdir "$work/spool.trireme-n1" "$work/spool.trireme-n2"
for _ in $(seq 100); do [ -S "$work/munge/s" ] && break || sleep 0.05; done
slurmctld && slurmd -N trireme-n1 && slurmd -N trireme-n2
for _ in $(seq 200); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
    sleep 0.1
done
if [ "$(sinfo -h -t idle -o %D 2>/dev/null)" != 2 ]; then
    echo "Slurm did not start here: $(cat "$work/ctld.log" 2>/dev/null | grep -i error | tail -n 1)"
    exit 77
fi

# --- losses
export TRIREME_TOKEN=$$
steps=5
common=(train recipes/tiny.yaml --set run.threads=1 --set layout.dp=2 --set layout.tp=2)
short=(--set run.save=false --set train.steps=$steps --set run.collective=ring)
numbers() { sed -n 's/.*"loss": *\([^,}]*\).*"grad_norm": *\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
"$trireme" "${common[@]}" "${short[@]}" --set run.dir="$work/own" >"$work/out" 2>&1 || fail "$(tail -n 1 "$work/out")"
numbers "$work/own" >"$work/x"
[ "$(wc -l <"$work/x")" -eq $steps ] || fail "our own launcher made $(wc -l <"$work/x") steps"
ways=("auto -N2" "tcp -N2" "tcp -N1")
# Slurm's PMIx keeps its files by the number of the step, so two nodes of one machine collide.
[ -f "$build/trireme-mpi.so" ] && srun --mpi=list 2>&1 | grep -q pmix && ways+=("mpi -N1 --mpi=pmix")
for way in "${ways[@]}"; do
    transport=${way%% *}
    # shellcheck disable=SC2086
    timeout 120 srun ${way#* } -n4 "$trireme" "${common[@]}" "${short[@]}" --set run.transport="$transport" \
        --set run.dir="$work/srun" >"$work/out" 2>&1 || fail "$way: $(tail -n 3 "$work/out")"
    numbers "$work/srun" >"$work/y"
    cmp -s "$work/x" "$work/y" || fail "$way: losses differ from those of our own launcher"
    rm -rf "$work/srun"
done

# --- ends
begin() { # a long run in the background, until it has made a step
    timeout 120 srun -N2 -n4 "$trireme" "${common[@]}" --set train.steps=1000000 \
        --set run.dir="$work/$1" >"$work/out" 2>&1 &
    run=$!
    for _ in $(seq 300); do
        [ -s "$work/$1/metrics.jsonl" ] && return
        sleep 0.1
    done
    fail "$1: no step: $(tail -n 3 "$work/out")"
}
begin killed
for pid in $(pgrep -x trireme); do
    tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qx "run.dir=$work/killed" &&
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx SLURM_PROCID=2 && kill -9 "$pid"
done
wait $run && fail "a run whose rank was killed ended well"
grep -q "rank 2 ended without a word" "$work/out" || fail "nobody names rank 2: $(tail -n 5 "$work/out")"
begin stopped
scancel --signal=TERM "$(squeue -h -o %i | head -n 1)"
wait $run
[ $? -eq 3 ] || fail "after scancel --signal=TERM another exit code than 3: $(tail -n 3 "$work/out")"
grep -q "^saved .*run.resume=true" "$work/out" || fail "scancel did not make it save: $(tail -n 3 "$work/out")"
[ $failures -eq 0 ]
