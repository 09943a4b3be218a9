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

# What is published of DualPipe is about pairs that run as one, and so is the simulation beside it.
for cost in F=1 FB=3 FB=2.5 FB=2 F=2,I=2,W=1 F=2,I=2,W=1,FB=3.5 F=2,I=2,W=0.5; do
    for sizes in "4 8" "8 24" "6 20"; do
        # shellcheck disable=SC2086 # two words
        set -- $sizes
        run 0 --compare --pp "$1" --microbatches "$2" --cost $cost
        [ "$(awk '/^dualpipev? / && $3 == $4' "$tmp/out" | wc -l)" -eq 2 ] ||
            fail "--compare --cost $cost: DualPipe is not as published"
    done
done
run 0 --compare --cost F=1,I=2,W=1
[ "$(awk '/^dualpipev? / && $4 == "-"' "$tmp/out" | wc -l)" -eq 2 ] || fail "a formula where none is known"

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
refused "no device" --device nothing --set layout.pp=2
refused "config.yaml" --trace /no/such/run
run 0 recipes/tiny.yaml --device h100 --set layout.pp=2 --set layout.microbatches=4 --draw "$tmp/model.svg"
grep -q "tokens/s" "$tmp/out" || fail "--device does not tell the tokens a second"
[ -s "$tmp/model.svg" ] || fail "--device draws nothing"
grep -q 'U  update' "$tmp/model.svg" || fail "the update is drawn, but the legend does not say what it is"
# Pictures of a step: a timeline alone, or all of them; numbers are those of --json.
number() { grep -o "\"$1\":[0-9.e+-]*" "$tmp/out" | head -n 1 | cut -d : -f 2; }
run 0 recipes/tiny.yaml --device h100 --draw "$tmp/alone.svg"
grep -q 'class="row"' "$tmp/alone.svg" || fail "a layout without a pipeline has no timeline"
run 0 recipes/tiny.yaml --device h100 --set layout.pp=2 --set layout.microbatches=4 --json --draw "$tmp/all"
for name in timeline memory roofline utilisation pipeline; do
    head -n 1 "$tmp/all/$name.svg" | grep -qF "drawn by trireme sim" || fail "there is no $name.svg"
done
[ "$(find "$tmp/all" -type f | wc -l)" -eq 5 ] || fail "--draw leaves other files in its folder"
last=$(grep -o ' to [0-9.e-]* ms</title>' "$tmp/all/timeline.svg" | awk '{ if ($2 > e) e = $2 } END { print e }')
awk -v w="$(number step_ms)" -v n="$last" 'BEGIN { exit !(n > 0 && (n - w) ^ 2 < 1e-10 * w * w) }' ||
    fail "the timeline ends at $last ms, the step at $(number step_ms)"
planned=$(sed -n 's/.*; plan: \([0-9]*\) bytes.*/\1/p' "$tmp/all/memory.svg")
grep -q "\"plan_bytes\":$planned," "$tmp/out" || fail "memory.svg has a plan of $planned bytes"
run 0 recipes/tiny.yaml --device h100 --draw "$tmp/all"
says "written: $tmp/all/roofline.svg"
# What is no picture of ours stays, and nothing is written.
echo mine >"$tmp/mine.txt"
refused "is a file" recipes/tiny.yaml --device h100 --draw "$tmp/mine.txt"
cp "$tmp/mine.txt" "$tmp/mine.svg"
refused "no picture that trireme sim drew" recipes/tiny.yaml --device h100 --draw "$tmp/mine.svg"
mkdir "$tmp/dir" && cp "$tmp/mine.txt" "$tmp/dir/utilisation.svg"
refused "no picture that trireme sim drew" recipes/tiny.yaml --device h100 --draw "$tmp/dir"
[ "$(ls "$tmp/dir")" = utilisation.svg ] || fail "some pictures were written beside one that is refused"
[ "$(cat "$tmp/mine.txt" "$tmp/mine.svg" "$tmp/dir/utilisation.svg" | sort -u)" = mine ] || fail "somebody's file is gone"
run 2 recipes/tiny.yaml --device h100 --draw /nowhere/a.svg
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
# Layouts without a pipeline: what waits for messages, what is hidden, and whether it fits.
run 0 --device h100 --set layout.dp=8 --set layout.zero=3 --set model.preset=gpt2-1558m --set precision.kind=bf16 \
    --set train.batch=32 --set data.seq_len=1024
grep -Eq "messages over shard: .* of which [1-9][0-9]* % are hidden" "$tmp/out" || fail "no hidden share is told"
grep -q "it fits" "$tmp/out" || fail "memory is not judged"
overlapped=$(step)
run 0 --device h100 --set layout.dp=8 --set layout.zero=3 --set model.preset=gpt2-1558m --set precision.kind=bf16 \
    --set train.batch=32 --set data.seq_len=1024 --set run.overlap=false
awk -v w="$overlapped" -v n="$(step)" 'BEGIN { exit !(w > 0 && w < n) }' ||
    fail "a step takes $overlapped ms with overlap and $(step) without"
run 0 --device v100 --set model.preset=gpt2-1558m --set precision.kind=fp16 --set train.batch=32 --set data.seq_len=1024
grep -q "DOES NOT FIT" "$tmp/out" || fail "a step that does not fit is not said to be so"
refused "no fp8 rate of NVIDIA A100" "${large[@]}" --set precision.linear=fp8 --device a100
refused "csv:" --schedule csv

# A link may be a figure; a slower one makes messages longer. tf32 has a rate of its own.
message() { sed -n 's/^messages over pp: \([0-9.e-]*\) ms.*/\1/p' "$tmp/out"; }
run 0 "${large[@]}" --efficiency 0.5 --link 450GB/s
fast=$(message)
run 0 "${large[@]}" --efficiency 0.5 --link 25GB/s
awk -v f="$fast" -v s="$(message)" 'BEGIN { exit !(f > 0 && s / f > 17.9 && s / f < 18.1) }' ||
    fail "25 GB/s and 450 GB/s: messages take $(message) and $fast ms"
refused "did you mean ib400" "${large[@]}" --link ib40
refused "50GB/s gives a figure" "${large[@]}" --link 25
run 0 "${large[@]}" --set precision.kind=fp32
wide=$(step)
run 0 "${large[@]}" --set precision.kind=tf32
awk -v w="$wide" -v n="$(step)" 'BEGIN { exit !(n > 0 && 2 * n < w) }' ||
    fail "a step takes $(step) ms in tf32 and $wide in fp32"

# Clusters: their devices have profiles, and what leaves a node is slower than what stays.
far=(--set model.preset=gpt2-1558m --set precision.kind=bf16 --set train.batch=16 --set data.seq_len=1024 --set layout.dp=16 --set layout.zero=3)
run 0 --cluster dgx-h100:2 "${far[@]}"
says "(fitted), dgx-h100: 2 nodes of 8"
apart=$(step)
run 0 --cluster dgx-h100,devices_per_node=16 "${far[@]}"
awk -v a="$apart" -v n="$(step)" 'BEGIN { exit !(n > 0 && n < a) }' || fail "two nodes take $apart ms, one $(step)"
refused "has 1 node of 8 devices" --cluster dgx-h100:1 "${far[@]}"
refused "leave --link out" --cluster dgx-h100:2 --link 50GB/s "${far[@]}"
run 0 --device peak=312T,memory=80G,bandwidth=2039G --set model.preset=gpt2-124m --set precision.kind=bf16
# As another software runs it.
like=(--cluster dgx-a100 --set model.kind=gpt2 --set model.num_layers=24 --set model.dim=2304 --set model.num_heads=24 --set model.vocab=51200
    --set data.seq_len=2048 --set precision.kind=fp16 --set layout.dp=32 --set layout.microbatches=1 --set train.batch=512 --set layout.recompute=full)
run 0 --like megatron-2021 "${like[@]}"
says "its constants come from"
full=$(step)
run 0 --like megatron-2021 "${like[@]}" --set layout.recompute=none
awk -v f="$full" -v n="$(step)" 'BEGIN { exit !(n > 0 && f / n > 1.2 && f / n < 1.4) }' || fail "with recomputation $full ms, without $(step)"
refused "did you mean megatron-core" --like megatron-cor "${like[@]}"
refused "knows decoders" --like fsdp --device h100 --set model.kind=bert

echo "$checks commands, $failures failures"
[ $failures -eq 0 ]
