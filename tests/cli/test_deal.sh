#!/usr/bin/env bash
# trireme explain --deal: the numbers of rows whose areas and keys are known, the same as JSON and
# as a picture, and what is refused. Argument: the build directory. Run from the root of the
# repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
recipe=$PWD/recipes/tiny.yaml
tmp=$(mktemp -d "${TMPDIR:-/tmp}/trireme-deal-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 out err 2>/dev/null
}

# run CODE ARGS...: trireme explain ARGS ends with CODE.
run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" explain "$recipe" "$@" >out 2>err </dev/null
    code=$?
    [ $code -eq "$want" ] || fail "explain $* ended with $code, not $want"
}

# refused TEXT ARGS...: with one line that holds TEXT.
refused() {
    local text=$1
    shift
    run 2 "$@"
    [ "$(wc -l <err)" -eq 1 ] && grep -qF -- "$text" err || fail "explain $* does not say \"$text\""
}

# row KIND BATCH WORST PAIRS SHARE: a line of the first table.
row() {
    checks=$((checks + 1))
    tr -d '*' <out | awk -v kind="$1" -v want="$2 $3 $4 $5" '
        $1 == kind { found = $2 " " $3 " " $4 " " $5 == want } END { exit !found }' ||
        fail "not the line $*"
}

# One causal document of n tokens on two ranks. The n (n + 1) / 2 pairs are n/2 (n/2 + 1) / 2 and
# the rest: 36 and 100 of 136 for 16. Zigzag has 68 on both. Plain, rank 1 sees the 8 keys of rank 0;
# zigzag, rank 0 sees the 8 of rank 1, and that one the first 4.
one="--set data.seq_len=16 --set train.batch=4 --set layout.cp=2 --deal"
# shellcheck disable=SC2086
run 0 $one
row plain 1.4706 1.4706 32 50.0
row zigzag 1.0000 1.0000 48 75.0
row balanced 1.0000 1.0000 48 75.0
grep -q '^\* in use: zigzag, by layout.cp_deal=auto$' out || fail "what is in use is not said"
# Four rows: 2 x 64 elements of 4 bytes for each of the 48 pairs.
grep -q '^zigzag .* 24.0 KiB ' out || fail "not the bytes of keys and values"
grep -qE '^0 +32 +8 +272 +50.0 % +32$' out || fail "not the line of rank 0"
grep -qE '^1 +32 +4 +272 +50.0 % +16$' out || fail "not the line of rank 1"

# The longer the row, the nearer to 1 : 3.
# shellcheck disable=SC2086
run 0 $one --set data.seq_len=4096 --set layout.cp_deal=plain
row plain 1.4999 1.4999 8192 50.0
grep -q '^\* in use: plain$' out || fail "layout.cp_deal is not heeded"

# Two documents of 8 tokens, each a file, on two ranks: plain, nobody needs the other's keys.
mkdir text && printf abcdefgh >text/1 && printf abcdefghi >text/2
documents="--set data.source=text --set data.mask_documents=true --set data.eval_fraction=0"
# shellcheck disable=SC2086
run 0 $one $documents --set train.batch=1
row plain 1.0000 1.0000 0 0.0
row zigzag 1.0000 1.0000 8 50.0
grep -q '^layout.cp_kind=gather would send' out || fail "nothing is said of gather"
# shellcheck disable=SC2086
run 0 $one $documents --set train.batch=1 --set layout.cp_kind=gather
grep -q '^layout.cp_kind=gather sends the keys that are seen' out || fail "nothing is said of what is sent"

# Groups that divide heads: a ring of two, whose members have the same lines.
# shellcheck disable=SC2086
run 0 $one --set layout.cp=4 --set layout.cp_heads=2
row plain 1.4706 1.4706 32 50.0
grep -q 'a ring of 2 groups of 2 ranks' out || fail "groups are not named"

# JSON has the same numbers.
# shellcheck disable=SC2086
run 0 $one --json
[ "$(wc -l <out)" -eq 1 ] || fail "--json prints more than a document"
for part in '"deal": "zigzag"' '"remote_share": 0.75' '"remote_bytes": 24576' '"area": 272' \
    '"largest_over_mean_area": 1.4705882352941178' '"sends_seen_keys_only": false'; do
    tr -d '\n' <out | sed 's/":\([^ ]\)/": \1/g' | grep -qF "$part" || fail "--json lacks $part"
done

# The picture: an element that is opened is closed, and each rank has a path in each column.
# shellcheck disable=SC2086
run 0 $one $documents --set train.batch=1 --draw deal.svg
grep -q '^written: deal.svg$' out || fail "the picture is not named"
grep -q '^<svg ' deal.svg && tail -n 1 deal.svg | grep -q '^</svg>$' || fail "not an SVG"
[ "$(grep -c '^<path fill="#[0-9a-f]\{6\}" d="M[^"]*Z"/>$' deal.svg)" -eq 6 ] || fail "not six paths"
opened=$(grep -o '<[a-z]' deal.svg | wc -l)
closed=$(grep -o '</\|/>' deal.svg | wc -l)
[ "$opened" -eq "$closed" ] || fail "$opened elements are opened and $closed closed"
grep -qi 'nan\|inf' deal.svg && fail "a number of the picture is none"
grep -q '16 tokens in 2 documents over 2 ranks, causal' deal.svg || fail "the title is another"

# Refused, with what to do.
refused 'add --set layout.cp=2 or more' --deal
refused 'nothing is dealt out' --deal --set layout.cp=2 --set layout.cp_kind=ulysses
refused 'layout.cp_heads below layout.cp' --deal --set layout.cp=2 --set layout.cp_heads=2
refused 'leave --ops out, or --deal' --deal --ops
refused 'leave --graph out, or --deal' --deal --graph
refused 'leave --summary out, or --deal' --deal --summary --set layout.cp=2
refused '--markdown goes with --ops' --deal --markdown
refused '--draw goes with --deal' --draw deal.svg
refused '--draw takes up to 16' --deal --set layout.cp=32 --draw deal.svg
refused 'there is no directory no' --deal --set layout.cp=2 --draw no/deal.svg
refused 'use layout.cp_heads=2' --deal --set layout.cp=4 --set layout.cp_heads=3
refused 'use layout.cp_kind=ring with layout.cp_heads=4' --set layout.cp=8 --set layout.cp_kind=ulysses
refused 'use layout.cp=64 at most' --set layout.cp=100
refused 'an mlp has no tokens to divide; use layout.dp' --set layout.cp=2 --set model.kind=mlp
refused 'did you mean ring' --set layout.cp=2 --set layout.cp_kind=rings

echo "$checks checks, $failures failures"
[ $failures -eq 0 ]
