#!/usr/bin/env bash
# trireme bench device writes a profile that trireme sim --profile reads; what is no profile, and
# layouts that were not measured, are refused in words. How long anything takes is not looked at.
set -u
build=$1
trireme=$build/trireme
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN TORCHELASTIC_RUN_ID
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
work=$(mktemp -d /tmp/trireme-bench-device-XXXXXX)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAILED: $1"
    tail -n 30 "$work/out"
    exit 1
}
refused() { # what is said, then a command
    local words=$1
    shift
    "$@" >"$work/out" 2>&1 && fail "$* was not refused"
    grep -q -- "$words" "$work/out" || fail "$*: \"$words\" is not said"
}

"$trireme" bench device --seconds 3 --out "$work/device.json" --set run.device=cpu >"$work/out" 2>&1 ||
    fail "bench device"
grep -q "written: $work/device.json" "$work/out" || fail "it does not say where the profile is"
"$trireme" sim recipes/tiny.yaml --profile "$work/device.json" >"$work/out" 2>&1 || fail "sim --profile"
grep -q ', measured$' "$work/out" || fail "the title does not say that it is measured"
grep -q '^measured on .* steps were off by' "$work/out" || fail "no residual"
"$trireme" sim recipes/tiny.yaml --profile "$work/device.json" --json >"$work/out" 2>&1 || fail "sim --json"
grep -q '"rates": *"measured"' "$work/out" || fail "rates in JSON"
grep -q '"mean_error_share": *[0-9]' "$work/out" || fail "residual in JSON"
if [ "$(nproc)" -eq 2 ]; then
    for layout in layout.dp=2 "layout.pp=2 --set layout.microbatches=2"; do
        # shellcheck disable=SC2086
        "$trireme" sim recipes/tiny.yaml --profile "$work/device.json" --set $layout >"$work/out" 2>&1 ||
            fail "two ranks: $layout"
        grep -q '^2 ranks with 1 thread each' "$work/out" || fail "title of two ranks"
    done
fi

refused "run.threads to one of these" "$trireme" sim recipes/tiny.yaml --profile "$work/device.json" \
    --set run.threads=999
refused "give one" "$trireme" sim recipes/tiny.yaml --profile "$work/device.json" --device h100
refused "give one" "$trireme" sim recipes/tiny.yaml --profile "$work/device.json" --efficiency 0.5
echo '{"a": 1}' >"$work/other.json"
refused "bench device --out FILE makes one" "$trireme" sim recipes/tiny.yaml --profile "$work/other.json"
refused "is left alone" "$trireme" bench device --seconds 3 --out "$work/other.json" --set run.device=cpu
[ "$(cat "$work/other.json")" = '{"a": 1}' ] || fail "a file of another kind was written over"
refused "belongs to trireme bench device" "$trireme" bench --seconds 3
refused "belongs to trireme bench comm" "$trireme" bench device --sizes 1k
refused "must be from 2 to 64" "$trireme" bench device --ranks 1
"$trireme" bench device --seconds 2 --ranks 3 --out "$work/three.json" --set run.device=cpu >"$work/out" 2>&1 ||
    fail "bench device --ranks 3"
grep -q '"ranks": *3' "$work/three.json" || fail "no messages of three ranks"
"$trireme" sim recipes/tiny.yaml --profile "$work/three.json" --set layout.dp=3 >"$work/out" 2>&1 ||
    fail "three ranks, be there cores for them or not"
refused "says how long to measure" "$trireme" bench device --steps 3
echo "a profile was measured, read and refused where it must be"
