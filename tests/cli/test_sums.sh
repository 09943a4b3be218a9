#!/usr/bin/env bash
# The sums of textbooks as a person types them: a whole run, and what follows from the sizes of a
# model and a device. Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$build/trireme
tmp=$(mktemp -d /tmp/trireme-sums-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 "$tmp/out" "$tmp/err" 2>/dev/null
}

# run CODE ARGS...
run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    [ $code -eq "$want" ] || fail "trireme $* ended with $code, not $want"
}

# has PATTERN: a line of the last output matches, blanks squeezed.
has() {
    tr -s ' ' <"$tmp/out" | grep -qE -- "$1" || fail "no line of the output is \"$1\""
}

# refused TEXT ARGS...: wrong usage, one line on stderr that holds TEXT, nothing on stdout.
refused() {
    local text=$1
    shift
    run 2 "$@"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "trireme $* says more than one line"
    grep -qF -- "$text" "$tmp/err" || fail "trireme $* does not say \"$text\""
    [ -s "$tmp/out" ] && fail "trireme $* was refused, but printed something"
}

# number KEYS: the number at a path of the last output, a JSON document.
number() {
    sed -n "s/.*\"$1\":\\([-0-9.e+]*\\).*/\\1/p" "$tmp/out"
}

# run_number KEY: of the run itself, before the curves.
run_number() {
    sed 's/"intervals".*//' "$tmp/out" | sed -n "s/.*\"$1\":\\([-0-9.e+]*\\).*/\\1/p"
}

near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && d <= 1e-3 * b) }' ||
        fail "$1 is not $2"
}

# ---- a whole run ----

run 0 plan --params 175e9 --tokens 300e9 --rate 160e12 --days 30
has '^ FLOP 3.15e\+23$'
has '^ PF-days 3,646 '
has '^ devices 759.5 '
run 0 plan --params 405B --tokens 15.6T
has '^ FLOP 3.791e\+25$'
has '^ PF-days 438,750 '
has 'for devices and days: --device'
run 0 plan --params 70e9 --tokens 15e12 --device v5p --mfu 0.5 --batch-tokens 16e6
has '^ FLOP 6.3e\+24$'
has '^ devices 18,823 '
has '^ days 16.88$'
has '^ seconds 1,458,374$'
has 'from 850 tokens a device on'
has 'prints no watts; --watts gives them'
run 0 plan --params 175e9 --tokens 300e9 --device a100 --mfu 50% --gpus 1024 --price 2 --pue 1.1
has 'a device reaches 156.0 TFLOP/s: NVIDIA A100 SXM 80 GB, 50 % of 312 TFLOP/s'
has '^ device hours 560,897$'
has '^ kWh 246,795 400 W a device, PUE 1.1$'
has '^ money 1,121,795 at 2 a device hour$'
# A model has two counts, of which the second knows of attention; a layout changes neither.
run 0 plan --set model.preset=gpt3-175b --set data.seq_len=2048 --tokens 300e9 --json
near "$(number parameters)" 174604259328
near "$(sed 's/.*"by_rule":{"flops":\([0-9.e+]*\).*/\1/' "$tmp/out")" 3.143e23
own=$(sed 's/.*"by_program":{"flops":\([0-9.e+]*\).*/\1/' "$tmp/out")
near "$own" 3.194e23
run 0 plan --set model.preset=gpt3-175b --set data.seq_len=2048 --tokens 300e9 --json \
    --set layout.tp=8 --set layout.pp=2 --set layout.microbatches=4 --set layout.recompute=full
near "$(sed 's/.*"by_program":{"flops":\([0-9.e+]*\).*/\1/' "$tmp/out")" "$own"
run 0 plan recipes/tiny.yaml --tokens 1e9 --rate 1e12 --set layout.dp=4
has '^ devices 4 4 ranks of the layout$'
run 0 plan --set model.preset=mixtral-8x7b --tokens 1e9
has '12.9 G of them for a token'
# Without a number --params is a list, and a word after it is a file.
run 0 plan --params recipes/tiny.yaml
has 'wte'

refused '--days says nothing without --tokens' plan --days 30
refused 'the setting is --set run.device=cuda' plan --device cuda
refused 'goes with --tokens' plan --params 175e9
refused 'such as 300e9, 175B or 15.6T' plan --tokens many --params 1e9
refused 'such as 300e9, 175B or 15.6T' plan --tokens -1 --params 1e9
refused 'give one of them' plan --tokens 1e9 --params 1e9 --rate 1e12 --days 2 --gpus 3
refused 'such as 0.5 or 50%' plan --tokens 1e9 --params 1e9 --device a100 --mfu 1.5
refused 'add --device a100' plan --tokens 1e9 --params 1e9 --mfu 0.5
refused 'leave --mfu out' plan --tokens 1e9 --params 1e9 --device a100 --rate 1e12 --mfu 0.5
refused 'or --rate 160e12' plan --tokens 1e9 --params 1e9 --gpus 4
refused 'did you mean a100' plan --tokens 1e9 --params 1e9 --device a1000
refused 'no fp8 rate of NVIDIA A100' plan --tokens 1e9 --device a100 --set precision.linear=fp8 \
    --set precision.kind=bf16
refused 'add --watts' plan --tokens 1e9 --params 1e9 --device v5p --pue 1.2
refused '--batch-tokens is divided by' plan --tokens 1e9 --params 1e9 --rate 1e12 --batch-tokens 1e6
refused 'leave one of them out' plan --tokens 1e9 --ledger
refused 'a model has its own number' plan recipes/tiny.yaml --tokens 1e9 --params 1e9
refused 'give a number for a run without a model' plan --tokens 1e9 --params

# ---- a whole run on a cluster that stops now and then ----

month=(plan --goodput --gpus 16384 --days 30)
run 0 "${month[@]}" --device h100 --price 2 --jitter 1%
has '^run 30 days of steps \(--days, without failures\)$'
has '^step 5 s \(assumed; --step\), 518,400 steps$'
has '^ the slowest of 16,384 takes 3.971 % longer in the mean$'
has '^failures a device every 50,677 h \(Llama 3 405B \(2024\): 419 in 54 days on 16,384 H100\)$'
has '^save 10 s \(assumed; '
has '^restart 10 min \(assumed; '
has '^a failure every 3.093 h$'
has "^save after 7.798 min of steps, every 90 steps: the best; Young's formula 7.865 min, Daly's 7.754 min$"
has '^ restarts 43.25 5.25 % 266.6 failures$'
has '^ the whole run 824.5 100.00 %$'
has '^ effective time 90.79 '
has '^ goodput 87.33 '
has '^ days 34.35 30 without failures, saves and jitter$'
has '^ device hours 13,508,417$'
has '^ kWh 9,455,892 700 W a device all the time, PUE 1$'
has '^ money 27,016,834 at 2 a device hour$'
has '^a failure costs 13.48 min: 3,681 device hours, 7,363 in money$'
has '^ 100,000 30.41 min 3.045 min 64.70 % 61.98 % 7.93$'
# What was published: more than 90 % of the time of Llama 3 was effective.
run 0 plan --goodput --gpus 16384 --tokens 15.6T --params 405B --batch-tokens 16M --save @2TB/s --json \
    --device h100 --mfu 0.4
near "$(run_number effective_share)" 0.9279
near "$(run_number save_seconds)" 2.43
near "$(run_number steps)" 975000
near "$(run_number young_seconds)" 232.6
# As many steps, however they are said.
for way in '--tokens 1e12 --batch-tokens 1e6 --step 2s' '--steps 1e6 --step 2000ms' \
    '--days 23.148148148 --step 2s' '--tokens 1e12 --params 1e9 --rate 1.875e13 --batch-tokens 1M'; do
    # shellcheck disable=SC2086
    run 0 plan --goodput --gpus 160 --json $way
    near "$(run_number ideal_seconds)" 2e6
    near "$(run_number seconds)" 2009457
done
# The rate of failures grows with the devices, however it is said.
for rate in 50h 240/1d/500 10/1000h/20 3000min; do
    run 0 plan --goodput --gpus 10 --days 1 --json --mtbf $rate
    hours=50
    [ $rate = 10/1000h/20 ] && hours=2000
    near "$(run_number device_mtbf_seconds)" $((hours * 3600))
    near "$(run_number mtbf_seconds)" $((hours * 360))
done
# Of RSC-1 its authors expect a failure every 1.8 h on 16,384 devices.
run 0 "${month[@]}" --mtbf RSC1
has '^a failure every 108.2 min$'
has 'a device every 29,538 h .*RSC-1'
# A recipe brings its ranks, its batch and its parameters.
run 0 plan recipes/tiny.yaml --goodput --tokens 1e9 --step 1s --set layout.dp=4 --save @1MB/s --json
near "$(run_number devices)" 4
near "$(run_number steps)" "$(awk 'BEGIN { print 1e9 / (8 * 64) }')"
# Saves beside steps, spares, slow devices and simulated runs, drawn.
run 0 plan --goodput --gpus 1000 --steps 2000 --step 30s --mtbf 500h --save 4min --blocking 25% \
    --restart 5min --jitter 2%:exponential --slow 0.1%:20% --spares 2x4:1h --interval 10min \
    --simulate 20 --draw "$tmp/run.svg"
has '^devices 1,000; 2 spare nodes of 4, a repair takes 60 min$'
has '^save 4 min \(--save\), steps stand still for 60 s of it$'
has '^ waiting for a repair [0-9.]+ '
has '^20 simulated runs, device by device: .* \([-+][0-3]\.[0-9]+ %\), '
has '\(--interval; best: '
has '^written: '
grep -q '^<svg ' "$tmp/run.svg" && tail -n 1 "$tmp/run.svg" | grep -q '^</svg>' || fail 'not an SVG'
[ "$(grep -cE '>(best: [0-9.]+ min|given: 10 min|here)</text>' "$tmp/run.svg")" -eq 3 ] ||
    fail 'not every mark has a name'
grep -qiE 'nan|inf"' "$tmp/run.svg" && fail 'a curve has no number'
# The largest cluster that layouts are planned for.
run 0 plan --goodput --gpus 1048576 --days 30 --jitter 1%:lognormal --save 2s --restart 30s --json
grep -qE 'nan|inf' "$tmp/out" && fail 'a million devices have no number'
near "$(run_number slowest_step_factor)" 1.0499

refused 'expected a number from 1' plan --goodput --gpus 0 --days 30
refused 'the time above 0 from a failure' "${month[@]}" --mtbf 0h
refused 'the time above 0 from a failure' "${month[@]}" --mtbf -3h
refused 'rsc2 or bloom' "${month[@]}" --mtbf seldom
refused 'add on how many devices' "${month[@]}" --mtbf 3/4d
refused 'a time above 0 with its unit' "${month[@]}" --step -1s
refused 'a time above 0 with its unit' "${month[@]}" --restart 10
refused 'a share from 0 to 1' "${month[@]}" --blocking 2
refused 'may be normal, lognormal or exponential' "${month[@]}" --jitter 1%:wide
refused 'jitter of a step is 0.6' "${month[@]}" --jitter 60%
refused 'such as 0.1%:20%' "${month[@]}" --slow 1%
refused 'such as 16:2d' "${month[@]}" --spares 16
refused 'would hardly ever end' "${month[@]}" --mtbf 100h
refused 'save less often' "${month[@]}" --save 1h --blocking 0 --interval 10min
refused 'or --params 405B' "${month[@]}" --save @1GB/s
refused 'add --gpus 16384' plan --goodput --days 30
refused 'add --days 30' plan --goodput --gpus 8
refused 'give one of them' "${month[@]}" --tokens 1e12
refused 'add --step 5.2s' plan --goodput --gpus 8 --steps 100
refused 'add --batch-tokens 16M --step 5.2s' plan --goodput --gpus 8 --tokens 1e12
refused 'leave --rate out' plan --goodput --gpus 8 --tokens 1e12 --batch-tokens 1M --step 1s --rate 1e12
refused 'give a whole number of devices' plan --goodput --gpus 1.5 --days 1
refused 'leave the simulation out' plan --goodput --gpus 1e8 --days 0.01 --mtbf 1e9h --simulate 1
refused '--ledger changes nothing beside --goodput' "${month[@]}" --ledger
refused '--step says nothing without --goodput' plan --step 5s
refused 'did you mean h100' "${month[@]}" --device h1000
echo mine >"$tmp/mine.svg"
refused 'no picture that trireme plan --goodput drew' "${month[@]}" --draw "$tmp/mine.svg"

# ---- activations by the published formulas, and by the plan ----

gpt3=(--set model.preset=gpt3-175b --set data.seq_len=2048 --set train.batch=1
    --set precision.kind=bf16)
run 0 plan "${gpt3[@]}" --activations
has '^ none no \(34 sbh \+ 5 abs\^2\) 2.869 GB 275.4 GB$'
has '^ full no 2 sbh 50.33 MB 4.832 GB$'
has '^ kept for the backward .* \(96 layers\)$'
run 0 plan "${gpt3[@]}" --activations 3.2e6
has '^ none no \(34 sbh \+ 5 abs\^2\) 4.483 TB 430.3 TB$'
run 0 plan "${gpt3[@]}" --activations --set layout.tp=8 --set layout.sp=true
has '^ none no \(10 \+ 24/8\) sbh \+ 5 abs\^2/8 578.8 MB '
has '^ selective yes 34 sbh/8 107 MB '
# The plan has no scores and no masks: what it keeps is the formula without these, and statistics.
run 0 plan "${gpt3[@]}" --activations --json
own=$(sed 's/.*"planned":{.*"layer_bytes":\([0-9.e+]*\).*/\1/' "$tmp/out")
near "$own" $((32 * 2048 * 12288 + (96 + 4) * 4 * 2048))
run 0 plan recipes/tiny.yaml --activations
has 'for 16 bits: --set precision.kind=bf16'
run 0 plan --set model.preset=llama3-8b --activations
has '4 h wide, which this model.s is not'
refused 'is about transformer layers' plan --set model.kind=mlp --activations
refused '--ledger changes nothing beside --activations' plan --activations --ledger
refused 'such as 300e9' plan --activations 3q

# ---- memory of generation ----

# L 32, d 4096, 16 bits: 0.524 MB a token.
run 0 plan --generation --set model.preset=gpt3-6.7b --set precision.kind=bf16 --device h100 --rows 1,64
has 'a token of the cache: 524.3 kB \(key and value, 32 layers, 32 key heads of 128, 2 bytes\)'
has '^ 64 68.72 GB 274.9 GB$'
has 'weights alone need 1 device$'
has 'room for 62 rows of 2048 tokens$'
has '8192 tokens: the model has 2048 positions'
has 'bound by arithmetic from 295 rows on$'
run 0 plan --generation --set model.preset=llama3-70b --set layout.tp=8 --json --weight-bytes 1 --device v5p \
    --rows 1 --length 2k
grep -q '"weights_bytes":70553706496' "$tmp/out" || fail "weights of one byte are not 70.55 GB"
near "$(number cache_token_bytes)" $((2 * 80 * 8 * 128 * 2))
near "$(number compute_bound_rows)" 83
# The cache that trireme generate plans is the formula, for numbers of its precision.
run 0 plan --generation --set model.preset=gpt3-6.7b --set precision.kind=bf16 --rows 4 --length 2048 --json
near "$(sed 's/.*"planned":{.*"cache_bytes":\([0-9.]*\).*/\1/' "$tmp/out")" \
    "$(sed 's/.*"caches":\[{[^}]*"cache_bytes":\([0-9.]*\).*/\1/' "$tmp/out")"
# A window forgets.
run 0 plan --generation --set model.preset=mistral-7b --set model.window=4096 --length 4096,32768 --rows 1
has '^ 1 536.9 MB 536.9 MB$'
refused '--rows says nothing without --generation' plan --rows 4
refused 'whole numbers from 1' plan --generation --rows 1.5
refused 'whole numbers from 1' plan --generation --length 1e12
run 0 plan --generation --set model.preset=gpt3-175b --rows 65536 --length 16777216
refused 'cannot continue a text' plan --generation --set model.preset=bert-base
refused 'from 0.125 to 8' plan --generation --weight-bytes 9
refused '--params changes nothing beside --generation' plan --generation --params

# ---- from where on devices are bound by arithmetic ----

run 0 place --limits --width 30000
has '^ h100 nvlink4 295 \(591\) 2199 13.6$'
has '^ v5p ici-v5p 166 2550 / 1275 / 850 11.8 / 23.5 / 35.3$'
has '^ v6e ici-v6e 560 5100 / 2550 '
run 0 place --limits --device v5p --link 180GB/s --json
has '"rows":166.0.*"fsdp_tokens":\[2550.0\],"tensor_devices":\[\]'
run 0 place --limits --dtype f32
grep -q v5p "$tmp/out" && fail 'a device without f32 has limits in f32'
refused 'give another --dtype' place --limits --device v5p --dtype f32
refused '--width says nothing without --limits' place --width 30000
refused '--mesh changes nothing beside --limits' place --limits --mesh x:4
refused 'takes no placement' place --limits 'A[I]'
refused 'did you mean v5p' place --limits --device v5pp
run 0 place --limits --width 1e30
refused '--width is "wide"' place --limits --width wide

# ---- collectives ----

run 0 sim --collective all_reduce --ranks 64 --bytes 10kB,1GB --alpha 5us --bandwidth 50GB/s
has '^ rabenseifner 39.4350 ms 12 '
has '^ ring 40.0050 ms 126 '
has '^ rabenseifner 0.0604 ms '
has '^ ring 0.6304 ms '
has '^the fastest: doubling, from 372.09 kB on rabenseifner$'
tr -s ' ' <"$tmp/out" | sed -n '/^S = 1 GB/,/^$/p' | sed '1,2d;/^$/d' | cut -d' ' -f3 | sort -gc ||
    fail 'the algorithms are not sorted by their time'
run 0 sim --collective all_reduce --ranks 32 --bytes 1GB --algorithms torus2d:8x4,mesh2d:8x4
has '^ torus2d:8x4 .* 1.9375 GB 187.5 MB$'
has '^ mesh2d:8x4 .* 3.25 GB 1.5 GB$'
run 0 sim --collective all_reduce --ranks 8 --bytes 350GB --algorithms ring --json
near "$(number sent_bytes)" 612.5e9
run 0 sim --collective all_reduce --ranks 7 --link ib400 --alpha 1us
has '^not for so many ranks: torus2d, torus3d, mesh2d$'
run 0 sim --collective all_gather --draw "$tmp/lines.svg"
grep -q '^<svg ' "$tmp/lines.svg" && tail -n 1 "$tmp/lines.svg" | grep -q '^</svg>' || fail 'not an SVG'
lines=$(grep -c 'stroke-dasharray' "$tmp/lines.svg")
[ "$lines" -ge 5 ] && [ "$(grep -c 'x="680.0"' "$tmp/lines.svg")" -eq "$lines" ] ||
    fail 'not every line has a name'
run 0 sim --collective barrier --ranks 16
has '^ ring 0.0750 ms 15$'
refused 'did you mean all_reduce' sim --collective all_reduc
refused 'expected bytes, such as 1GB' sim --collective all_reduce --bytes much
refused 'expected a rate above 0' sim --collective all_reduce --bandwidth 50
refused 'a time of 0 or more' sim --collective all_reduce --alpha soon
refused 'did you mean ring' sim --collective all_reduce --algorithms rign
refused 'product is the 64 ranks' sim --collective all_reduce --ranks 64 --algorithms torus2d:8x4
refused 'has no reduce' sim --collective reduce --algorithms doubling
refused 'leave one out' sim --collective all_reduce --link ib400 --bandwidth 50GB/s
refused '--pp changes nothing beside --collective' sim --collective all_reduce --pp 4
refused 'reads no settings' sim --collective all_reduce recipes/tiny.yaml
refused 'a barrier has no bytes' sim --collective barrier --bytes 1GB
refused '--alpha says nothing without --collective' sim --alpha 5us

echo "$checks commands, $failures failures"
[ $failures -eq 0 ]
