#!/usr/bin/env bash
# The sources keep the promises of CONTRIBUTING.md, and the tool that holds them sees each one broken.
# Argument: the build folder.
set -u
tools/check_sources.sh --build "$1" || exit 1
tool=$PWD/tools/check_sources.sh
tmp=$(mktemp -d /tmp/trireme-sources-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
with=()

# fresh: a tree in which all is well; files are added to it.
fresh() {
    rm -rf "${tmp:?}"/*
    mkdir -p src/base src/graph src/device/cuda/kernels src/run/queue src/cli tests tools
    printf '#include "graph/a.h"\n#include "base/a.h"\n#include "trireme/status.h"\n' >src/device/good.c
}

# seen RULE PLACE PART: the tool fails, and some line begins with this place and has this part.
seen() {
    if out=$($tool --root "$tmp" "${with[@]}" "$1"); then
        echo "$1 lets pass what it should see at $2: $out"
        exit 1
    fi
    case $'\n'$out in
    *$'\n'"$2: "*"$3"*) ;;
    *) echo "$1 does not say \"$3\" at $2: $out" && exit 1 ;;
    esac
}

# well RULE: nothing to tell.
well() {
    out=$($tool --root "$tmp" "${with[@]}" "$1") || {
        echo "$1 tells what is well: $out"
        exit 1
    }
}

# include FILE TARGET PART
include() {
    fresh
    printf '/* one */\n#include "%s"\n' "$2" >"src/$1"
    seen includes "src/$1:2" "$3"
}
include base/a.c graph/graph.h "base comes before graph"
include graph/a.h program/program.h "graph comes before program"
include device/a.c program/program.h "base and graph only"
include device/a.c model/model.h "base and graph only"
include device/cuda/kernels/a.cu model/model.h "base and graph only"
include device/cuda/kernels/a.cuh run/run.h "device comes before run"
include run/a.c cli/cli.h "run comes before cli"
include run/queue/a.c cli/cli.h "run comes before cli"
include run/a.c nowhere/a.h "unknown folder nowhere"
include run/a.c executor.h "write the path from src/"
include run/a.c ../base/a.h "write the path from src/"
fresh
mkdir src/extra
echo '#include "base/a.h"' >src/extra/a.c
seen includes src/extra/a.c:1 "has no place in the order"
fresh
well includes

# lines NUM FILE: so many lines of code.
lines() {
    seq "$1" | sed 's/.*/int a&;/' >"$2"
}
fresh
lines 500 src/base/a.c
seen sizes src/base/a.c:500 "500 lines"
lines 500 src/base/a.c
echo "sizes src/base/a.c because" >tools/check_sources.txt
well sizes
lines 499 src/base/a.c
seen sizes tools/check_sources.txt:1 "nothing needs this line"
rm tools/check_sources.txt
lines 999 tests/a.c
well sizes
lines 1000 tests/a.c
seen sizes tests/a.c:1000 "1000 lines"

rm tests/a.c
mkdir src/run/more
for i in $(seq 39); do echo "/* a header */" | tee "src/run/$i.h" >"src/run/more/$i.h"; done
well sizes
echo "/* a header */" >src/run/40.h
seen sizes src/run "40 files"

# body NUM FILE HEAD: a function with so many lines in it.
body() {
    printf 'int one(void)\n{\n    return 1;\n}\n\n%s\n{\n' "$3" >"$2"
    seq "$1" | sed 's/.*/    one();/' >>"$2"
    printf '}\n' >>"$2"
}
fresh
body 59 src/base/a.c 'int two(int a, int b)'
well sizes
body 60 src/base/a.c 'int two(int a, int b)'
seen sizes src/base/a.c:6 "two() has 60 lines"
body 60 src/base/a.c $'int two(int a,\n        int b)'
seen sizes src/base/a.c:6 "two() has 60 lines"
fresh
body 60 src/device/cuda/kernels/a.cu '__global__ void __launch_bounds__(256) two(int a)'
seen sizes src/device/cuda/kernels/a.cu:6 "two() has 60 lines"
echo "sizes two" >tools/check_sources.txt
seen sizes tools/check_sources.txt:1 "and why"

# twice ONE OTHER: definitions in two files that must not be there together.
twice() {
    fresh
    printf '%b\n' "$1" >src/base/a.c
    printf '%b\n' "$2" >src/run/queue/b.c
    seen names src/run/queue/b.c:1 "the type walk is another one at src/base/a.c:1"
}
twice 'typedef struct walk {\n    int a;\n} walk;' 'typedef struct walk {\n    int b;\n} walk;'
twice 'struct walk {\n    int a;\n};' 'typedef struct {\n    int b;\n} walk;'
twice 'typedef enum walk { ONE, TWO } walk;' 'union walk {\n    int b;\n};'
twice 'typedef struct walk {\n    int a;\n} walk;' 'typedef struct tri_walk walk;'
twice 'typedef struct walk {\n    int a;\n} walk;' 'typedef int walk;'
twice 'typedef int (*walk)(int a);' 'typedef int walk[2];'

fresh
printf '/* typedef struct walk { */\ntypedef struct walk walk;\ntypedef struct tri_b run;\n' >src/run/a.c
printf 'typedef struct walk walk;\nstruct walk {\n    int a;\n};\ntypedef struct tri_b run;\n' >src/run/b.c
well names
printf 'typedef struct walk {\n    int a;\n} walk;\n' >tests/a.c
well names
printf 'typedef struct tri_a {\n    int a;\n} tri_a;\n' >src/run/c.c
printf 'typedef struct tri_a {\n    int a;\n} tri_a;\n' >tests/b.c
seen names tests/b.c:1 "the type tri_a is the library's (src/run/c.c:1)"

printf 'int tri_a(int a)\n{\n    return a;\n}\n' >src/run/d.c
rm tests/b.c
seen names src/run/d.c:1 "has the name of a type (src/run/c.c:1)"

# A library and a program of a few functions; archive makes them anew.
archive() {
    mkdir -p build/src/cli
    for file in src/run/*.c src/cli/*.c; do
        ${CC:-cc} -c "$file" -o "build/${file%.c}.o" || exit 1
    done
    rm -f build/libtrireme.a
    ar rc build/libtrireme.a build/src/run/*.o
}
fresh
with=(--build "$tmp/build")
mkdir -p build/src/run
printf 'int tri_used(void);\nint tri_own(void);\nint main(void)\n{\n    return tri_used();\n}\n' >src/cli/main.c
printf 'int tri_used(void)\n{\n    return 1;\n}\n\nint tr_open(void)\n{\n    return 1;\n}\n' >src/run/a.c
printf 'static inline int tri_short(void)\n{\n    return 1;\n}\n' >src/run/a.h
archive
seen dead src/run/a.h:1 "uses tri_short: remove it"
printf 'int tri_used(void);\nint tri_gone(int a,\n             int b);\n' >src/run/a.h
seen dead src/run/a.h:2 "declares tri_gone, which is nowhere"
rm src/run/a.h
well dead
printf 'int tri_lone(void)\n{\n    return 1;\n}\n' >src/run/b.c
archive
seen dead src/run/b.c:1 "nothing uses tri_lone: remove it"
printf 'int tri_lone(void);\nint use(void)\n{\n    return tri_lone();\n}\n' >tests/a.c
seen dead src/run/b.c:1 "only tests use tri_lone"
echo "dead tri_lone because" >tools/check_sources.txt
well dead
rm tools/check_sources.txt tests/a.c
printf 'static int use(void)\n{\n    return tri_lone();\n}\n' >src/device/cuda/a.c
well dead # built without the GPU part, which has a use for it
rm src/device/cuda/a.c
printf 'int tri_lone(void)\n{\n    return 1;\n}\n\nint tr_two(void)\n{\n    return tri_lone();\n}\n' >src/run/b.c
archive
seen dead src/run/b.c:1 "only its own file uses tri_lone: make it static"
printf 'int lone(void)\n{\n    return 1;\n}\n' >src/run/b.c
archive
seen dead src/run/b.c:1 "lone is seen by all files"
with=()

# words NUM: so many of them.
words() {
    seq "$1" | sed 's/.*/word/' | paste -sd ' '
}
fresh
{
    echo "# Title"
    echo
    words 120
    echo
    echo "| $(words 130) | in a table |"
    echo
    echo '```'
    words 130
    echo '```'
    echo "- $(words 120)"
    echo "- $(words 120)"
    echo
} >ARCHITECTURE.md
well paragraphs
words 100 >>ARCHITECTURE.md
words 21 >>ARCHITECTURE.md
seen paragraphs ARCHITECTURE.md:13 "121 words"
printf '\n- %s\n  %s\n' "$(words 60)" "$(words 61)" >ARCHITECTURE.md
seen paragraphs ARCHITECTURE.md:2 "121 words"
