#!/usr/bin/env bash
# The examples link with an installed library that has the GPU part, archive and shared. Linking needs
# no GPU; what they do there, tests/gpu.sh tries. Argument: the build directory; where that has no GPU
# part, TRIREME_CUDA_BUILD (default: build-cuda) may have one.
set -u
build=$1
[ -f "$build/cuda-yes" ] || build=${TRIREME_CUDA_BUILD:-build-cuda}
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    echo "skipped: there is no nvcc"
    exit 77
fi
if [ ! -f "$build/cuda-yes" ] || [ ! -f "$build/libtrireme.a" ] || [ ! -x "$build/trireme" ]; then
    echo "skipped: no library with the GPU part is built (make BUILD=build-cuda programs)"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-cuda-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAILED: $1"
    tail -n 15 "$work/out"
    exit 1
}
make --no-print-directory install-files BUILD="$build" CUDA=yes PREFIX="$work/usr" DESTDIR= \
    >"$work/out" 2>&1 || fail "make install-files"
export PKG_CONFIG_PATH=$work/usr/lib/pkgconfig
num=0
for package in trireme trireme-shared; do
    if [ $package = trireme-shared ] && [ ! -e "$work/usr/lib/libtrireme.so" ]; then
        echo "skipped: the shared library (this build has none)"
        continue
    fi
    flags=$(pkg-config --cflags --libs $package 2>"$work/out") || fail "pkg-config does not know $package"
    for example in examples/*.c; do
        # shellcheck disable=SC2086
        ${CC:-cc} "$example" $flags -o "$work/$(basename "$example" .c)-$package" >"$work/out" 2>&1 ||
            fail "$example does not link with: $flags"
        num=$((num + 1))
    done
done
# The GPU part is in it, and a machine without a GPU still runs it.
nm "$work/two_ranks-trireme" | grep -q cudaLaunchKernel || fail "the archive has no GPU part"
(cd "$work" && timeout 200 ./two_ranks-trireme run.device=cpu run.dir=run) >"$work/out" 2>&1 ||
    fail "two_ranks does not run on the processor"
echo "$num examples linked"
