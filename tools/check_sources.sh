#!/usr/bin/env bash
# Holds what CONTRIBUTING.md promises of the sources, and names file, line and what to do:
#
#   includes    includes point backwards, in C and CUDA; device code uses base and graph only
#   sizes       a file of the library is under 500 lines, one of the tests under 1,000, a function under 60;
#               a folder of the library has fewer than 40 files
#   names       a type name of the library means one thing, and no function has it; tests take none of them
#   dead        nothing is there that only its own file, only tests or nobody uses (needs a build)
#   paragraphs  a paragraph of ARCHITECTURE.md has at most 120 words
#
# Usage: tools/check_sources.sh [--root DIR] [--build DIR] [RULE ...]
# Without a RULE all of them, `dead` only with --build. tools/check_sources.txt lists what may stay as it is,
# and why; a line there that nothing needs any more is told, too.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/..
build=
rules=
while [ $# -gt 0 ]; do
    case $1 in
    --root) root=$2 && shift 2 ;;
    --build) build=$2 && shift 2 ;;
    includes | sizes | names | dead | paragraphs) rules="$rules $1" && shift ;;
    *) echo "check_sources.sh: there is no rule $1; they are includes, sizes, names, dead and paragraphs" && exit 2 ;;
    esac
done
[ -z "$build" ] || build=$(cd "$build" && pwd)
cd "$root"
if [ -z "$rules" ]; then
    rules="includes sizes names paragraphs"
    [ -z "$build" ] || rules="$rules dead"
fi
case $rules in
*dead*) [ -f "$build/libtrireme.a" ] || {
    echo "check_sources.sh: dead needs --build with a folder that has a libtrireme.a: run make first"
    exit 2
} ;;
esac

list=tools/check_sources.txt
[ -f $list ] || list=/dev/null
folders=()
for folder in include src tests bench examples plugins; do
    [ ! -d $folder ] || folders+=($folder)
done
mapfile -t files < <(find "${folders[@]}" -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort)
[ ${#files[@]} -gt 0 ] || {
    echo "check_sources.sh: found no sources in $PWD"
    exit 1
}
symbols=/dev/null
case $rules in
*dead*)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    symbols=$work/symbols
    # The archive is made anew each time; objects of files that have moved may lie about.
    mapfile -t objects < <(printf '%s\n' "${files[@]}" | sed -n "s|^\(src/cli/.*\)\.c\$|$build/\1.o|p")
    nm -g -P "$build/libtrireme.a" "${objects[@]}" >"$symbols"
    ;;
esac
doc=ARCHITECTURE.md
[ -f $doc ] || doc=/dev/null
awk -v rules="$rules" -f "$here/check_sources.awk" $list "${files[@]}" $doc "$symbols"
