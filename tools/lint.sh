#!/usr/bin/env bash
# clang-tidy over the C sources (.clang-tidy lists the checks) and shellcheck over the scripts
# (.shellcheckrc says what is left out). What needs MPI's headers is left out. Says nothing when all is
# well.
set -u
cd "$(dirname "$0")/.." || exit 2
includes=(-Iinclude -Isrc -Itests/support)
cuda=$(find /usr/local/cuda/include -maxdepth 1 -name cuda_runtime.h -print -quit 2>/dev/null)
[ -n "$cuda" ] && includes+=(-isystem "$(dirname "$cuda")")
skip=()
[ -n "$cuda" ] || skip+=(':!src/device/cuda' ':!tests/device/test_cuda_*')

failed=0
git ls-files '*.c' ':!bench/peers' ':!plugins' "${skip[@]}" | xargs -P "$(nproc)" -n 12 bash -c '
    separator=0
    for ((i = 1; i <= $#; i++)); do [ "${!i}" = -- ] && separator=$i; done
    flags=("${@:1:separator-1}")
    clang-tidy --quiet "${@:separator+1}" -- -std=c17 -D_GNU_SOURCE -DTRI_ISA=base \
        "-DFUZZ_HARNESSES=X(words)" "${flags[@]}" 2>/dev/null' \
    lint "${includes[@]}" -- || failed=1
git ls-files '*.sh' .ci/run | xargs shellcheck -S warning || failed=1
exit $failed
