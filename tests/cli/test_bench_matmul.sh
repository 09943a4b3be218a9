#!/usr/bin/env bash
# trireme bench matmul: products against the roofline. Argument: the build directory. Run from the
# root of the repository.
set -u
build=${1:-build}
trireme=$build/trireme
tmp=$(mktemp -d /tmp/trireme-matmul-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
failures=0

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

"$trireme" bench matmul --shapes 64,8x128x256 --set run.threads=1 --draw "$tmp/roof.svg" >"$tmp/out" 2>"$tmp/err" ||
    fail "bench matmul ends with $?"
grep -q ' 64 x 64 x 64 .*%  arithmetic$' "$tmp/out" || fail 'no line for the square'
grep -q ' 8 x 128 x 256 ' "$tmp/out" || fail 'no line for the other product'
grep -q '^<svg ' "$tmp/roof.svg" && tail -n 1 "$tmp/roof.svg" | grep -q '^</svg>' || fail 'not an SVG'
for name in roofline 'square products' 'other products'; do
    grep -q ">$name<" "$tmp/roof.svg" || fail "the picture has no $name"
done

# The numbers of a line belong together: FLOP/s is 2 m n k over the seconds, the roofline the lesser
# of two, and FLOP/byte that of three matrices of four bytes an element.
"$trireme" bench matmul --shapes 96x32x64,1x64x64 --set run.threads=1 --json >"$tmp/out" 2>"$tmp/err" ||
    fail "bench matmul --json ends with $?"
[ "$(wc -l <"$tmp/out")" -eq 2 ] || fail 'not a line for each product'
tr ',{}' '\n\n\n' <"$tmp/out" | awk -F: '
    function near(a, b) { return a > 0.999 * b && a < 1.001 * b }
    { gsub(/"/, "", $1); v[$1] = $2 }
    $1 == "peak_bytes_per_second" {
        lines++
        work = 2 * v["m"] * v["n"] * v["k"]
        bytes = 4 * (v["m"] * v["k"] + v["k"] * v["n"] + v["m"] * v["n"])
        roof = work / bytes * v["peak_bytes_per_second"]
        if (roof > v["peak_flops_per_second"])
            roof = v["peak_flops_per_second"]
        wrong += !near(v["flops_per_second"] * v["seconds"], work) ||
                 !near(v["flops_per_byte"], work / bytes) ||
                 !near(v["roofline_flops_per_second"], roof)
    }
    END { exit !(lines == 2 && wrong == 0) }' || fail 'numbers of a line do not belong together'

refused 'write 1024, or 8x4096x4096' matmul --shapes 8x8
refused 'write 1024, or 8x4096x4096' matmul --shapes 0
refused 'write 1024, or 8x4096x4096' matmul --shapes 8x8x8x8
refused '--shapes belongs to trireme bench matmul' comm --shapes 8
refused '--ops belongs to trireme bench comm' matmul --ops all_reduce
refused '--steps belongs to' matmul --steps 3
refused 'draws a picture, FILE.svg' matmul --draw ring
refused 'there are train, generate, scaling, matmul' matmull

echo "$failures failures"
[ $failures -eq 0 ]
