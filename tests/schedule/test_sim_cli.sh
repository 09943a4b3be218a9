#!/usr/bin/env bash
# trireme sim as a person meets it. Argument: the build directory. Run from the root of the
# repository.
set -u
build=${1:-build}
trireme=$build/trireme
tmp=$(mktemp -d /tmp/trireme-sim-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 "$tmp/out" "$tmp/err" 2>/dev/null
}

# run CODE ARGS...: runs trireme sim and compares the exit code.
run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" sim "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
    [ $code -eq "$want" ] || fail "trireme sim $* ended with $code, not $want"
}

# says TEXT: the output of the last run holds it.
says() {
    grep -qF -- "$1" "$tmp/out" || fail "the output does not say \"$1\""
}

# refused TEXT ARGS...: wrong usage, one line on stderr that holds TEXT.
refused() {
    local text=$1
    shift
    run 2 "$@"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "trireme sim $* says more than one line"
    grep -qF -- "$text" "$tmp/err" || fail "trireme sim $* does not say \"$text\""
}

fixtures=tests/fixtures/schedules
run 0 --help
says "--microbatches N"
grep -q "layout" "$tmp/out" || fail "--help does not list the settings that --device reads"
COLUMNS=80 run 0
says "1f1b: 4 ranks, 8 micro-batches"
says "bubble 27.3 %"
says "rank 3   . . . F0B0--F1"
COLUMNS=40 run 0
says "the picture takes 42 columns; --draw FILE.svg draws it"
run 0 --schedule zb-v --pp 4 --microbatches 8 --cost F=1,I=1,W=1,comm=0
says "time 51 "
says "proven: 192 actions and 96 messages"
run 0 --schedule pipedream --pp 4 --microbatches 16
says "gradients are up to 3 updates old"
run 0 --list
for name in gpipe 1f1b interleaved 1f1b-v zb-h1 zb-h2 zb-v v-half v-min chimera dualpipe dualpipev gems \
    pipedream pipedream-2bw; do
    says "  $name "
done

run 0 --compare
for row in "gpipe .* 27.3% .* 8 " "interleaved .* 15.8% .* 5.5 " "zb-v .* 0.0% .* 4 " \
    "gems .* 66.7% .* 1 "; do
    grep -qE "^$row" "$tmp/out" || fail "--compare has no line \"$row\""
done
run 0 --compare --pp 5 --microbatches 7
says "needs an even number of ranks"
run 0 --compare --pp 4 --microbatches 4 --cost B=1
grep -qE '^chimera .* 20.0% +20.0%' "$tmp/out" || fail "Chimera's bubble is not 20 %"

# What is written is read back, and writes the same.
for name in interleaved zb-v chimera dualpipe dualpipev pipedream-2bw; do
    run 0 --schedule $name --pp 4 --microbatches 8 --csv "$tmp/a.csv"
    head -n 8 "$tmp/out" | tail -n +2 >"$tmp/first"
    run 0 --schedule csv:"$tmp/a.csv" --csv "$tmp/b.csv"
    head -n 8 "$tmp/out" | tail -n +2 | cmp -s - "$tmp/first" || fail "$name: other figures"
    cmp -s "$tmp/a.csv" "$tmp/b.csv" || fail "$name is not read back as it was written"
    run 0 --schedule $name --pp 4 --microbatches 8 --comms --csv "$tmp/c.csv"
    grep -q SEND_F "$tmp/c.csv" || fail "$name --comms has no messages"
    run 0 --schedule csv:"$tmp/c.csv" --comms --csv "$tmp/d.csv"
    cmp -s "$tmp/c.csv" "$tmp/d.csv" || fail "$name --comms is not read back as it was written"
done
run 0 --schedule dualpipev --microbatches 10 --csv "$tmp/a.csv"
cmp -s "$tmp/a.csv" $fixtures/dualpipev_4rank_10mb.csv || fail "dualpipev is not as published"

run 0 --schedule v-half --draw "$tmp/a.svg"
grep -q '^<svg ' "$tmp/a.svg" && tail -n 1 "$tmp/a.svg" | grep -q '^</svg>' || fail "not an SVG"
run 2 --schedule v-half --draw /nowhere/a.svg

# The pictures in the documentation are those of this program.
mkdir "$tmp/pictures"
tools/draw_pipelines.sh "$trireme" "$tmp/pictures"
diff -rq "$tmp/pictures" docs/pipelines >"$tmp/out" || fail "docs/pipelines is old; make docs"

# A table with a fault: the file and the actions are named.
sed 's/1RECV_F3,//' "$tmp/c.csv" >"$tmp/broken.csv"
refused "$tmp/broken.csv: 1RECV_F3 is missing on rank 1" --schedule csv:"$tmp/broken.csv"
sed '2s/1F0/1Q0/' $fixtures/1f1b_p4_m8.csv >"$tmp/broken.csv"
refused "$tmp/broken.csv:2: cell 1 is \"1Q0\"" --schedule csv:"$tmp/broken.csv"
refused "all messages of a rank in one lane" --schedule csv:tests/fixtures/schedules/one_lane.csv

refused "use 4 or 8 micro-batches" --schedule interleaved --microbatches 6
refused "no schedule \"zbv\"; did you mean zb-v?" --schedule zbv
refused "no schedule \"quartermaster\"; trireme sim --list" --schedule quartermaster
refused "the cost \"Q=1\"" --cost F=1,Q=1
refused "--pp is 0" --pp 0
refused "--comms goes with --csv" --comms
refused "--compare shows every schedule" --compare --schedule gpipe
refused "add --device" recipes/tiny.yaml
refused "layout.pp is 1" recipes/tiny.yaml --device h100
refused "no device" --device nothing --set layout.pp=2
refused "config.yaml" --trace /no/such/run
run 0 recipes/tiny.yaml --device h100 --set layout.pp=2 --set layout.microbatches=4 --draw "$tmp/model.svg"
grep -q "tokens/s" "$tmp/out" || fail "--device does not tell the tokens a second"
[ -s "$tmp/model.svg" ] || fail "--device draws nothing"
grep -q 'U  update' "$tmp/model.svg" || fail "the update is drawn, but the legend does not say what it is"
run 0 --schedule gpipe --pp 2 --microbatches 3 --cost F=0.001,I=1,W=100,comm=7 --draw "$tmp/uneven.svg"
width=$(sed -n 's/^<svg [^>]*width="\([0-9]*\)".*/\1/p' "$tmp/uneven.svg")
[ "$width" -lt 2000 ] || fail "one short action makes a picture $width pixels wide"
# Products of 8-bit operands have a rate of their own, and a device without one is refused.
large=(--device h100 --set model.preset=gpt2-1558m --set precision.kind=bf16 --set train.batch=32
    --set data.seq_len=1024 --set layout.pp=4 --set layout.microbatches=8)
step() { sed -n 's/^a step of .*: \([0-9.]*\) ms.*/\1/p' "$tmp/out"; }
run 0 "${large[@]}"
wide=$(step)
run 0 "${large[@]}" --set precision.linear=fp8
awk -v w="$wide" -v n="$(step)" 'BEGIN { exit !(n > 0 && n < w) }' ||
    fail "a step takes $(step) ms with fp8 and $wide without"
refused "no fp8 rate of NVIDIA A100" "${large[@]}" --set precision.linear=fp8 --device a100
refused "csv:" --schedule csv

echo "$checks commands, $failures failures"
[ $failures -eq 0 ]
