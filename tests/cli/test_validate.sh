#!/usr/bin/env bash
# doctor --validate: ranks of this machine, and ranks that somebody else started. What the figures are
# is the machine's business; so is whether one is off (exit code 1).
set -u
build=$1
trireme=$build/trireme
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN
work=$(mktemp -d /tmp/trireme-validate-XXXXXX)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "$1"
    cat "$work"/*.txt
    exit 1
}

"$trireme" doctor --validate --ranks 2 >"$work/table.txt" 2>&1
code=$?
[ $code -le 1 ] || fail "exit code $code"
grep -q '^   0  .* -> 1 ' "$work/table.txt" && grep -q '^   1  .* -> 0 ' "$work/table.txt" || fail "a rank is missing"
if [ $code = 0 ]; then grep -q '^All ranks are alike' "$work/table.txt"; else grep -q '^off     rank [01] on ' "$work/table.txt"; fi ||
    fail "the verdict does not go with exit code $code"

"$trireme" doctor --validate --ranks 2 --json >"$work/json.txt" 2>&1
code=$?
num_off=$(sed -n 's/.*"num_off": *\([0-9]*\).*/\1/p' "$work/json.txt")
[ -n "$num_off" ] && [ "$code" = "$((num_off > 0))" ] || fail "num_off is \"$num_off\", the exit code $code"
[ "$(grep -o '"product_flops": *[1-9]' "$work/json.txt" | wc -l)" = 2 ] || fail "figures are missing"

"$trireme" doctor --validate --ranks 1 >"$work/one.txt" 2>&1 || fail "one rank failed"
grep -q 'One rank has nobody to be compared with' "$work/one.txt" || fail "one rank is compared"
"$trireme" doctor --validate --ranks 0 >"$work/none.txt" 2>&1
[ $? = 2 ] || fail "--ranks 0 was not refused"

# Ranks that somebody else started.
port=$((20000 + RANDOM % 12000))
while (echo >/dev/tcp/127.0.0.1/$port) 2>/dev/null; do port=$((port + 1)); done
rank() {
    env RANK="$1" WORLD_SIZE=2 LOCAL_RANK="$1" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$trireme" doctor --validate --set run.dir="$work/run" --set run.threads=1 >"$work/rank-$1.txt" 2>&1
}
rank 1 &
other=$!
rank 0
[ $? -le 1 ] || fail "rank 0 failed"
wait $other || fail "rank 1 failed"
grep -q '^   1  .* -> 0 ' "$work/rank-0.txt" || fail "rank 0 has not heard of rank 1"
echo "doctor --validate: passed"
