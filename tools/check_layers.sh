#!/usr/bin/env bash
# Includes point backwards only: a file under src/Y may include "X/..." when X stands at or before Y
# in the list below, which is the order in which data flows (ARCHITECTURE.md). Headers of
# include/trireme may be included by anyone. Kernels know operators and nothing of what calls them:
# device/ includes base and graph only.
# Argument: the root of the repository (default: the one this script is in).
set -eu
root=${1:-$(dirname "$0")/..}
cd "$root"

order="base graph model optim mesh collective place recompute schedule program compile device comm
       run sim data ckpt train serve config api cli"

grep -rnE --include='*.[ch]' --include='*.cu' --include='*.cuh' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' src |
    awk -v order="$order" '
    BEGIN {
        num = split(order, names, /[ \n]+/)
        for (i = 1; i <= num; i++)
            rank[names[i]] = i
        bad = 0
    }
    function complain(why) {
        printf "%s:%s: %s\n", file, line, why
        bad++
    }
    {
        split($0, part, ":")
        file = part[1]
        line = part[2]
        split(file, path, "/")
        from = path[2]
        match($0, /"[^"]*"/)
        target = substr($0, RSTART + 1, RLENGTH - 2)
        count++
        if (!(from in rank)) {
            complain("the folder src/" from " is not in the order of tools/check_layers.sh")
            next
        }
        if (target ~ /^\.\.?\// || target !~ /\//) {
            complain("includes \"" target "\"; write the path from src/")
            next
        }
        to = target
        sub(/\/.*/, "", to)
        if (to == "trireme")
            next
        if (!(to in rank))
            complain("includes \"" target "\" of the unknown folder " to)
        else if (rank[to] > rank[from])
            complain("includes \"" target "\", but " from " comes before " to)
        else if (from == "device" && to != "device" && to != "base" && to != "graph")
            complain("includes \"" target "\"; device code uses base and graph only")
    }
    END {
        if (count == 0) {
            print "found no includes under src/"
            bad++
        }
        if (bad == 0)
            printf "%d includes, all backwards\n", count
        exit bad > 0
    }'
