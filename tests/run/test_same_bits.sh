#!/usr/bin/env bash
# tools/same_bits.sh sees a weight or a loss that differs, a program that fails, and tells a setting
# that the old program lacks from all of these. Argument: the build directory. Run from the root of the
# repository.
set -u
build=${1:-build}
new=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d /tmp/trireme-same-bits-test-XXXXXX)
failures=0 checks=0
trap 'rm -rf "$tmp"' EXIT

# An old program: the new one, and then these commands, in which $dir is the directory of the run.
old() { # name, commands
    cat >"$tmp/$1" <<END
#!/usr/bin/env bash
for word in "\$@"; do
    case \$word in run.dir=*) dir=\${word#run.dir=} ;; esac
done
"$new" "\$@" || exit
$2
END
    chmod +x "$tmp/$1"
}

# compare CODE TEXT NAME: the comparison with the old program ends with CODE and says TEXT.
compare() {
    local code
    checks=$((checks + 1))
    CELLS=${cells:-one-rank,fp32,1} tools/same_bits.sh "$tmp/$3" "$build" >"$tmp/out" 2>&1
    code=$?
    [ $code -eq "$1" ] && grep -q -- "$2" "$tmp/out" && return
    failures=$((failures + 1))
    echo "FAILED: with $3 it ended with $code, not $1, or does not say \"$2\""
    head -c 2000 "$tmp/out"
}

old same :
old other-weights 'printf x | dd of="$dir/weights.safetensors" bs=1 seek=20000 conv=notrunc status=none'
old other-losses 'sed -i "7s/\"loss\":[0-9]*/&1/" "$dir/metrics.jsonl"'
old no-weights 'rm "$dir/weights.safetensors"'
old no-setting 'echo "trireme: unknown setting" >&2; exit 2'
old broken 'echo "trireme: out of luck" >&2; exit 1'
compare 0 '^1 equal, 0 differ, 0 skipped' same
compare 1 '^differs: one-rank,fp32,1: weights: 1 byte' other-weights
compare 1 '^differs: one-rank,fp32,1: losses: was step 7' other-losses
compare 1 '^0 equal, 1 differ' no-weights
compare 1 '^skipped: one-rank,fp32,1: .*unknown setting' no-setting
compare 1 '^differs: one-rank,fp32,1: exit codes 1 and 0: .*out of luck' broken
cells=no-such-cell compare 1 '^0 equal, 0 differ, 0 skipped' same

echo "$checks checks, $failures failures"
[ $failures -eq 0 ]
