#!/usr/bin/env bash
# Collectives beside Open MPI and PyTorch's Gloo: all run alternately on this machine, and the table
# shows the ratio of their times to ours (above 1: ours is faster).
#
#     bench/comm_vs_peers.sh [BUILD_DIR]
#
# From the environment: OPS, SIZES (bytes), RANKS, ALGORITHM (of ours), REPEATS, PEERS ("mpi gloo"),
# PYTHON (one that has torch, for Gloo). Each repeat runs one after the other for every size; a cell
# is the median of the repeats.
set -u
build=${1:-build}
ops=${OPS:-"all_reduce all_gather reduce_scatter all_to_all"}
sizes=${SIZES:-"1024 32768 1048576 16777216 134217728"}
ranks=${RANKS:-"2 4"}
algorithm=${ALGORITHM:-auto}
repeats=${REPEATS:-3}
peers=${PEERS:-"mpi gloo"}
python=${PYTHON:-python3}

here=$(cd "$(dirname "$0")" && pwd)
have=
for peer in $peers; do
    if [ "$peer" = mpi ] && { ! command -v mpicc || ! command -v mpirun; } >/dev/null; then
        echo "Open MPI is not here; to compare with it: apt-get install openmpi-bin libopenmpi-dev"
    elif [ "$peer" = gloo ] && ! "$python" -c 'import torch.distributed' 2>/dev/null; then
        echo "$python has no torch; to compare with Gloo, name one that has: PYTHON=venv/bin/python"
    else
        have="$have $peer"
    fi
done
[ -n "$have" ] || exit 0
[ -x "$build/trireme" ] || {
    echo "$build/trireme is missing; type make first" >&2
    exit 2
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case "$have" in
*mpi*) mpicc -O2 -Wall -o "$work/mpi_collectives" "$here/peers/mpi_collectives.c" || exit 1 ;;
esac

mpi() { # ranks op
    # shellcheck disable=SC2086
    mpirun --allow-run-as-root --oversubscribe -n "$1" "$work/mpi_collectives" "$2" $sizes \
        2>>"$work/errors" | sed 's/^/mpi /'
    return "${PIPESTATUS[0]}"
}
gloo() { # ranks op
    # shellcheck disable=SC2086
    "$python" "$here/peers/gloo_collectives.py" "$1" "$2" $sizes 2>>"$work/errors" | sed 's/^/gloo /'
    return "${PIPESTATUS[0]}"
}
ours() { # ranks op
    "$build/trireme" bench comm --json --transport shm --ranks "$1" --ops "$2" \
        --algorithms "$algorithm" --sizes "${sizes// /,}" 2>>"$work/errors" | sed 's/^/ours /'
    return "${PIPESTATUS[0]}"
}

status=0
for n in $ranks; do
    for op in $ops; do
        for ((i = 0; i < repeats; i++)); do
            for who in $have ours; do
                [ -t 2 ] && printf '\r%s ranks, %-15s %d of %d \033[K' \
                    "$n" "$op" $((i + 1)) "$repeats" >&2
                "$who" "$n" "$op" >>"$work/rows" || {
                    status=1
                    tail -3 "$work/errors" >&2
                }
            done
        done
    done
done
[ -t 2 ] && printf '\r\033[K' >&2

for peer in $have; do
    [ "$peer" = mpi ] && echo "mpi: Open MPI $(mpirun --version | sed -n '1s/.* //p')"
    [ "$peer" = gloo ] && echo "gloo: of PyTorch $("$python" -c 'import torch; print(torch.__version__)')"
done
echo "ours: trireme ($algorithm); shared memory, $(nproc) cores; median of $repeats; time in us"
echo
# The rows are JSON lines of known keys, so awk is enough to read them.
awk -v have="$have" '
function value(key,   at, rest) {
    at = index($0, "\"" key "\": ")
    if (!at) return ""
    rest = substr($0, at + length(key) + 4)
    sub(/[,}].*/, "", rest)
    gsub(/"/, "", rest)
    return rest
}
function median(who, cell,   n, i, j, t, a) {
    n = num[who, cell]
    if (n == 0) return 0
    for (i = 1; i <= n; i++) a[i] = time[who, cell, i]
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && a[j] < a[j-1]; j--) { t = a[j]; a[j] = a[j-1]; a[j-1] = t }
    return a[int((n + 1) / 2)]
}
{
    cell = value("ranks") " " value("op") " " value("bytes")
    if (!(cell in seen)) { seen[cell] = 1; order[++cells] = cell }
    time[$1, cell, ++num[$1, cell]] = value("time_us") + 0
    wrong[$1] += value("wrong")
}
END {
    num_peers = split(have, peer, " ")
    printf "%5s %-15s %12s %12s %9s", "ranks", "operation", "bytes", "ours", "GB/s"
    for (k = 1; k <= num_peers; k++) printf " %12s %8s", peer[k], "ratio"
    printf "\n"
    for (i = 1; i <= cells; i++) {
        split(order[i], part, " ")
        o = median("ours", order[i])
        printf "%5d %-15s %12d %12.2f %9.3f", part[1], part[2], part[3], o, o ? part[3] / o * 1e-3 : 0
        for (k = 1; k <= num_peers; k++) {
            p = median(peer[k], order[i])
            printf " %12.2f %8s", p, p && o ? sprintf("%.2f", p / o) : "-"
        }
        printf "\n"
    }
    for (who in wrong) if (wrong[who] > 0) printf "wrong elements of %s: %d\n", who, wrong[who]
}' "$work/rows"
exit $status
