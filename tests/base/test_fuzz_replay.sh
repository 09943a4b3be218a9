#!/usr/bin/env bash
# Every parser and both wire protocols: the stored inputs of tests/fuzz/corpus and 1,000 seeded
# mutations of them for each harness. TRIREME_FUZZ_RUNS and TRIREME_FUZZ_SEED ask for others.
# Argument: the build directory.
set -u
build=$1
mkdir -p "$build/fuzz-findings"
"$build/tests/fuzz_replay" --runs "${TRIREME_FUZZ_RUNS:-1000}" --seed "${TRIREME_FUZZ_SEED:-1}" \
    --findings "$build/fuzz-findings"
