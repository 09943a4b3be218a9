#!/usr/bin/env bash
# trireme bench scaling: the same step on more and more ranks. Argument: the build directory. Run
# from the root of the repository.
set -u
build=${1:-build}
trireme=$build/trireme
tmp=$(mktemp -d /tmp/trireme-scaling-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
failures=0
small=(--set model.dim=32 --set model.num_layers=2 --set data.seq_len=32 --set train.batch=8)

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 "$tmp/out" "$tmp/err" 2>/dev/null
}

refused() {
    local text=$1
    shift
    "$trireme" bench "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    [ $? -eq 2 ] || fail "trireme bench $* is not refused"
    grep -qF -- "$text" "$tmp/err" || fail "trireme bench $* does not say \"$text\""
}

# The rank alone comes first, whatever is asked for; speed-up, efficiency and the serial part follow
# from the times.
for axis in dp tp pp cp; do
    "$trireme" bench scaling --axis $axis --ranks 2,4 --steps 3 --json "${small[@]}" \
        --set layout.microbatches=4 >"$tmp/out" 2>"$tmp/err" || fail "bench scaling --axis $axis ends with $?"
    tr ',{}' '\n\n\n' <"$tmp/out" | awk -F: -v axis=$axis '
        function near(a, b) { return a - b < 1e-3 && b - a < 1e-3 }
        { gsub(/"/, "", $1); gsub(/"/, "", $2); v[$1] = $2 }
        $1 == "axis" { wrong += $2 != axis }
        $1 == "step_seconds" && !first { first = $2 }
        $1 == "wait_share" {
            lines++
            n = v["ranks"]
            s = first / v["step_seconds"]
            wrong += n != 2 ^ (lines - 1) || !near(v["speed_up"], s) || !near(v["efficiency_share"], s / n)
            if (n > 1)
                wrong += !near(v["serial_share"], (1 / s - 1 / n) / (1 - 1 / n)) || $2 < 0
            wrong += !near(v["tokens_per_second"] * v["step_seconds"] / 256, 1)
        }
        END { exit !(lines == 3 && wrong == 0) }' || fail "numbers of --axis $axis do not belong together"
done
"$trireme" bench scaling --steps 2 --ranks 2 "${small[@]}" >"$tmp/out" 2>"$tmp/err" || fail "bench scaling ends with $?"
grep -q '^ *1 .* 1.00x  *100.0%' "$tmp/out" || fail 'one rank is not what the others are compared with'
grep -q '^ *2 .*%  *[0-9.-]*%  *[0-9.]*%$' "$tmp/out" || fail 'no line for two ranks'

refused 'is dp, tp, pp or cp' scaling --axis ep
refused 'is not a number from 1 to 256' scaling --ranks 2,some
refused 'leave run.device=cuda out' scaling --set run.device=cuda
refused '--axis belongs to trireme bench scaling' comm --axis dp
refused 'layout.tp=16' scaling --axis tp --ranks 16 --set model.num_heads=4 --set model.dim=32

echo "$failures failures"
[ $failures -eq 0 ]
