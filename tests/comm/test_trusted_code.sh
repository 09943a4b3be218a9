#!/usr/bin/env bash
# Code that is opened at run time: the MPI plug-in comes from the program's folder or ../lib/trireme
# and nowhere else, and what other users own or may write to is refused by name before any of it has
# run. A settings file cannot name code. Argument: the build directory.
set -u
build=$(cd "$1" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-trusted-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
read -ra compiler <<<"${CC:-cc}" # may be two words: ccache gcc
command -v "${compiler[0]}" >/dev/null || {
    echo "no C compiler to make a library with"
    exit 77
}

# A library that leaves a trace when it is opened, and is no MPI plug-in.
cat >"$work/trace.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void ran(void)
{
    FILE *file = fopen(getenv("TRACE"), "w");
    if (file)
        fclose(file);
}
C
"${compiler[@]}" -shared -fPIC "$work/trace.c" -o "$work/trace.so" || exit 1
mkdir -p "$work/a/bin" "$work/a/lib/trireme"
cp "$build/trireme" "$work/a/bin/"
chmod -R go-w "$work/a"
export TRACE=$work/ran
# A rank of mpirun without a meeting point: it must open the plug-in.
start() {
    rm -f "$TRACE"
    OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 timeout -s KILL 120 "$work/a/bin/trireme" train recipes/tiny.yaml \
        --set layout.dp=2 --set run.dir="$work/run" >"$work/out" 2>&1
    code=$?
}
put() { # mode, place
    rm -f "$work"/a/trireme-mpi.so "$work"/a/bin/trireme-mpi.so "$work"/a/lib/trireme/trireme-mpi.so
    install -m "$1" "$work/trace.so" "$2/trireme-mpi.so"
}
refused() { # what it must say
    start
    [ ! -e "$TRACE" ] || fail "$1: the code ran"
    [ $code -eq 2 ] && grep -qF "$1" "$work/out" || fail "exit code $code, and no \"$1\": $(tail -n 1 "$work/out")"
}

put 755 "$work/a/bin"
start
[ -e "$TRACE" ] || fail "a plug-in beside the program is not opened: $(tail -n 1 "$work/out")"
put 755 "$work/a/lib/trireme"
start
[ -e "$TRACE" ] || fail "a plug-in in ../lib/trireme is not opened: $(tail -n 1 "$work/out")"
put 755 "$work/a"
refused "has no MPI plug-in"
put 777 "$work/a/bin"
refused "others may write to $work/a/bin/trireme-mpi.so (mode 777)"
put 775 "$work/a/bin"
refused "others may write to $work/a/bin/trireme-mpi.so (mode 775)"
put 755 "$work/a/bin"
chmod 777 "$work/a/bin"
refused "others may write to $work/a/bin (mode 777)"
chmod 755 "$work/a/bin"
# A link is followed, and what it leads to is judged.
mkdir "$work/elsewhere" && chmod 755 "$work/elsewhere"
install -m 777 "$work/trace.so" "$work/elsewhere/other.so"
ln -sf "$work/elsewhere/other.so" "$work/a/bin/trireme-mpi.so"
refused "others may write to $work/elsewhere/other.so"
rm "$work/a/bin/trireme-mpi.so" && mkfifo "$work/a/bin/trireme-mpi.so"
refused "is not a file"
if [ "$(id -u)" -eq 0 ]; then
    put 755 "$work/a/bin"
    chown nobody "$work/a/bin/trireme-mpi.so"
    refused "belongs to user $(id -u nobody)"
    # The program's owner may: installed by somebody who is not root.
    chown nobody "$work/a/bin/trireme" "$work/a/bin"
    start
    [ -e "$TRACE" ] || fail "the plug-in of the program's owner is not opened: $(tail -n 1 "$work/out")"
fi

# A settings file does not name code, not even its owner's; config.yaml does not keep it.
printf 'run:\n  nccl_library: %s\n' "$work/trace.so" >"$work/s.yaml"
"$build/trireme" plan "$work/s.yaml" >"$work/out" 2>&1
code=$?
[ $code -eq 2 ] && grep -qF "s.yaml:2: run.nccl_library names code that is run" "$work/out" ||
    fail "a settings file named a library: $code, $(tail -n 1 "$work/out")"
"$build/trireme" train recipes/tiny.yaml --set train.steps=1 --set run.save=false --set run.dir="$work/kept" \
    --set run.nccl_library="$work/trace.so" >"$work/out" 2>&1 || fail "$(tail -n 1 "$work/out")"
grep -q nccl_library "$work/kept/config.yaml" && fail "config.yaml keeps run.nccl_library"
[ $failures -eq 0 ]
