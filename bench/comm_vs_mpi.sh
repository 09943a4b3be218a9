#!/usr/bin/env bash
# Collectives beside Open MPI: both run alternately on this machine, and the table shows the ratio of
# their times (above 1: ours is faster).
#
#     bench/comm_vs_mpi.sh [BUILD_DIR]
#
# From the environment: OPS, SIZES (bytes), RANKS, ALGORITHM (of ours), REPEATS. Each repeat runs the
# one and then the other for every size; a cell is the median of the repeats.
set -u
build=${1:-build}
ops=${OPS:-"all_reduce all_gather reduce_scatter all_to_all"}
sizes=${SIZES:-"1024 32768 1048576 16777216 134217728"}
ranks=${RANKS:-"2 4"}
algorithm=${ALGORITHM:-auto}
repeats=${REPEATS:-3}

here=$(cd "$(dirname "$0")" && pwd)
if ! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null; then
    echo "Open MPI is not here, so there is nothing to compare with. Type this, then try again:"
    echo "    apt-get install openmpi-bin libopenmpi-dev"
    exit 0
fi
[ -x "$build/trireme" ] || { echo "$build/trireme is missing; type make first" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mpicc -O2 -Wall -o "$work/mpi_collectives" "$here/peers/mpi_collectives.c" || exit 1

peer() { # ranks op
    # shellcheck disable=SC2086
    mpirun --allow-run-as-root --oversubscribe -n "$1" "$work/mpi_collectives" "$2" $sizes \
        2>>"$work/errors" | sed 's/^/peer /'
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
            for who in peer ours; do
                [ -t 2 ] && printf '\r%s ranks, %-15s %d of %d \033[K' \
                    "$n" "$op" $((i + 1)) "$repeats" >&2
                "$who" "$n" "$op" >>"$work/rows" || { status=1; tail -3 "$work/errors" >&2; }
            done
        done
    done
done
[ -t 2 ] && printf '\r\033[K' >&2

echo "$(mpirun --version | head -1 | sed 's/mpirun //') and trireme ($algorithm), shared memory," \
    "$(nproc) cores; median of $repeats"
echo
# The rows are JSON lines of known keys, so awk is enough to read them.
awk '
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
    printf "%5s %-15s %12s %14s %14s %9s %9s %8s\n", "ranks", "operation", "bytes", "Open MPI us",
        "trireme us", "MPI GB/s", "our GB/s", "ratio"
    for (i = 1; i <= cells; i++) {
        split(order[i], part, " ")
        p = median("peer", order[i]); o = median("ours", order[i])
        printf "%5d %-15s %12d %14.2f %14.2f %9.3f %9.3f %8s\n", part[1], part[2], part[3], p, o,
            p ? part[3] / p * 1e-3 : 0, o ? part[3] / o * 1e-3 : 0,
            p && o ? sprintf("%.2f", p / o) : "-"
    }
    if (wrong["ours"] + wrong["peer"] > 0)
        printf "\nwrong elements: %d ours, %d Open MPI\n", wrong["ours"], wrong["peer"]
}' "$work/rows"
exit $status
