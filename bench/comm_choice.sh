#!/usr/bin/env bash
# Is the automatic choice of an algorithm near the best, and are predicted times near measured ones?
# Measures every algorithm and `auto` for each operation and size, in turns on the same ranks, beside
# what the prices measured just before predict, and ends with the worst of each and a verdict. The
# time of a call is the lowest eighth of its samples, which is what it takes when nobody disturbs it;
# a line at the end says what the choice would be by medians. `auto` and the algorithm that it chose
# are the same calls, measured twice: the mean of the two is the time of both.
#
#     bench/comm_choice.sh [BUILD_DIR]         # measures, then judges
#     bench/comm_choice.sh --of FILE...        # judges rows of before
#
# From the environment: TRANSPORTS, RANKS, OPS, SIZES, ALGORITHMS; ROWS, a file to add the rows to, so
# that a long measurement can be made in pieces and judged as a whole; CHOICE (1.15: how many times as
# long as the best the choice may take), PREDICTION (1.25: how far off a prediction may be, from 64 KB).
set -u
transports=${TRANSPORTS:-"shm thread tcp"}
ranks=${RANKS:-"2 4"}
ops=${OPS:-"all_reduce all_gather reduce_scatter all_to_all"}
sizes=${SIZES:-1k,8k,64k,256k,1m,4m,16m,128m}
every=ring,tree,doubling,rabenseifner,double_tree,bruck,pairwise,hierarchical,torus2d,mesh2d,sharded_ps,auto

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rows=${ROWS:-"$work/rows"}
status=0
if [ "${1:-}" = --of ]; then
    shift
    cat "$@" >"$work/all" || exit 2
    rows=$work/all
else
    build=${1:-build}
    [ -x "$build/trireme" ] || {
        echo "$build/trireme is missing; type make first" >&2
        exit 2
    }
    for transport in $transports; do
        algorithms=${ALGORITHMS:-$every}
        case $transport in
        shm | thread) algorithms=direct,$algorithms ;;
        esac
        for n in $ranks; do
            "$build/trireme" bench comm --json --turns --predict --transport "$transport" \
                --ranks "$n" --ops "${ops// /,}" --sizes "$sizes" \
                --algorithms "$algorithms" >>"$rows" || status=1
        done
    done
fi
[ -s "$rows" ] || {
    echo "there are no rows to judge" >&2
    exit 2
}

# The rows are JSON lines of known keys, so awk is enough to read them. Of a cell that was measured
# several times the last counts.
awk -v limit="${CHOICE:-1.15}" -v margin="${PREDICTION:-1.25}" '
function value(key,   at, rest) {
    at = index($0, "\"" key "\": ")
    if (!at) return ""
    rest = substr($0, at + length(key) + 4)
    sub(/[,}].*/, "", rest)
    gsub(/"/, "", rest)
    return rest
}
function off(ratio) { return ratio >= 1 ? ratio : (ratio > 0 ? 1 / ratio : 1e9) }
# The time of what was chosen over that of the best, whose name becomes `best`.
function compare(c, t,   n, k, a, list, own) {
    n = split(names[c], list, " ")
    best = ""
    own = (c, chosen[c]) in t ? (t[c, "auto"] + t[c, chosen[c]]) / 2 : t[c, "auto"]
    if ((c, chosen[c]) in t) t[c, "auto"] = t[c, chosen[c]] = own
    for (k = 1; k <= n; k++) {
        a = list[k]
        if (a != "auto" && (best == "" || t[c, a] < t[c, best])) best = a
    }
    return best != "" && t[c, best] > 0 ? own / t[c, best] : 0
}
{
    cell = value("transport") " " value("ranks") " " value("op") " " value("bytes")
    name = value("algorithm")
    if (!(cell in seen)) { seen[cell] = 1; order[++cells] = cell }
    if (!((cell, name) in time)) names[cell] = names[cell] " " name
    time[cell, name] = shown[cell, name] = value("time_us") + 0
    middle[cell, name] = value("median_us") + 0
    guess[cell, name] = value("predicted_us") + 0
    if (name == "auto") chosen[cell] = value("chosen")
}
END {
    printf "%-7s %5s %-14s %10s  %-12s %11s  %-12s %11s %6s  %10s  %9s  %s\n", "over", "ranks",
        "operation", "bytes", "best", "us", "chosen", "us", "ratio", "by medians", "predicted",
        "farthest prediction"
    for (i = 1; i <= cells; i++) {
        c = order[i]
        split(c, part, " ")
        n = split(names[c], list, " ")
        far = 0; farthest = "-"
        for (k = 1; k <= n; k++) {
            a = list[k]
            if (part[4] < 65536 || a == "auto" || time[c, a] <= 0) continue
            r = guess[c, a] / time[c, a]
            num_guesses++
            if (off(r) > margin) num_far++
            if (off(r) > far) { far = off(r); farthest = sprintf("%s %.2f", a, r) }
            if (off(r) > worst_guess) { worst_guess = off(r); guess_at = c " " a; worst_r = r }
        }
        auto = time[c, "auto"]
        by_medians = compare(c, middle)
        if (by_medians > limit) num_slow_medians++
        if (by_medians > worst_medians) { worst_medians = by_medians; medians_at = c }
        ratio = compare(c, shown)
        if (ratio > 0) { num_ratios++; if (ratio > limit) num_slow++ }
        if (ratio > worst_ratio) { worst_ratio = ratio; ratio_at = c }
        printf "%-7s %5s %-14s %10s  %-12s %11.2f  %-12s %11.2f %6.2f  %10.2f  %9.2f  %s\n", part[1],
            part[2], part[3], part[4], best, best != "" ? shown[c, best] : 0, chosen[c],
            shown[c, "auto"], ratio, by_medians, auto ? guess[c, "auto"] / auto : 0, farthest
    }
    printf "\nchoice: within %.2f of the best in %d of %d; the worst %.2f (%s)\n", limit,
        num_ratios - num_slow, num_ratios, worst_ratio, ratio_at
    printf "prediction, from 64 KB: within %.2f in %d of %d; the farthest %.2f of the time (%s)\n", margin,
        num_guesses - num_far, num_guesses, worst_r, guess_at
    printf "by medians the choice is within %.2f of the best in %d of %d; the worst %.2f (%s)\n", limit,
        num_ratios - num_slow_medians, num_ratios, worst_medians, medians_at
    good = num_slow == 0 && num_far == 0
    print good ? "holds" : "does not hold"
    exit !good
}' "$rows" || status=1
exit $status
