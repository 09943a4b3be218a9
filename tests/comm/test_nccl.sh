#!/usr/bin/env bash
# run.transport=nccl where there is no GPU: refused before anything starts to train, with what to do.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-nccl-XXXXXX")
trap 'rm -rf "$work"' EXIT

"$trireme" train recipes/tiny.yaml --set layout.dp=2 --set run.transport=nccl \
    --set run.dir="$work/run" >"$work/out" 2>&1
code=$?
if [ $code -ne 2 ] || ! grep -q "run.transport is nccl, which joins GPUs, but run.device is cpu" "$work/out"; then
    echo "exit code $code, not 2, or another message:"
    cat "$work/out"
    exit 1
fi
if "$trireme" doctor 2>/dev/null | grep -q "CUDA  *not built in"; then
    exit 0
fi
# Built with CUDA: doctor looks for the library, also where it is told to.
"$trireme" doctor --set run.nccl_library=libm.so.6 >"$work/doctor" 2>/dev/null
grep -q "note .*NCCL .*not found" "$work/doctor" || {
    echo "doctor does not say that libm.so.6 is no NCCL:"
    cat "$work/doctor"
    exit 1
}
