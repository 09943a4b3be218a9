#!/usr/bin/env bash
# Includes point backwards, and the check of it sees one that does not.
set -u
tools/check_layers.sh || exit 1
tmp=$(mktemp -d /tmp/trireme-layers-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/src/base" "$tmp/src/graph" "$tmp/src/device/cuda/kernels" "$tmp/src/run"

# seen FILE TEXT: a tree with this one include must be refused at this file and line.
seen() {
    printf '/* one */\n#include "%s"\n' "$2" >"$tmp/src/$1"
    if out=$(tools/check_layers.sh "$tmp"); then
        echo "src/$1 may include $2: $out"
        exit 1
    fi
    case "$out" in
    "src/$1:2: "*) ;;
    *) echo "src/$1 and its line are not named: $out" && exit 1 ;;
    esac
    rm "$tmp/src/$1"
}

seen base/a.c graph/graph.h
seen graph/a.h program/program.h
seen device/a.c program/program.h
seen device/a.c model/model.h
seen device/cuda/kernels/a.cu program/program.h
seen device/cuda/kernels/a.cuh run/executor.h
seen run/a.c cli/cli.h
seen run/a.c nowhere/a.h
seen run/a.c executor.h
printf '#include "graph/a.h"\n#include "base/a.h"\n#include "trireme/status.h"\n' \
    >"$tmp/src/device/good.c"
tools/check_layers.sh "$tmp" || exit 1
