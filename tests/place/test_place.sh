#!/usr/bin/env bash
# trireme place as a person meets it: what it prints, and how it answers to mistakes. Argument: the
# build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$build/trireme
tmp=$(mktemp -d /tmp/trireme-place-XXXXXX)
failures=0 checks=0
trap 'rm -rf "$tmp"' EXIT

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 "$tmp/out" "$tmp/err" 2>/dev/null
}

# run CODE ARGS...: runs trireme place and compares the exit code.
run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" place "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
    [ $code -eq "$want" ] || fail "trireme place $* ended with $code, not $want"
}

# says TEXT ARGS...: succeeds, and prints TEXT.
says() {
    local text=$1
    shift
    run 0 "$@"
    grep -qF -- "$text" "$tmp/out" || fail "trireme place $* does not say \"$text\""
    [ -s "$tmp/err" ] && fail "trireme place $* writes to stderr"
}

# refused TEXT ARGS...: ends with 2 and says TEXT on stderr, nothing on stdout.
refused() {
    local text=$1
    shift
    run 2 "$@"
    grep -qF -- "$text" "$tmp/err" || fail "trireme place $* does not say \"$text\""
    grep -q '^trireme: ' "$tmp/err" || fail "trireme place $* does not say who speaks"
    [ -s "$tmp/out" ] && fail "trireme place $* was refused, but printed something"
}

says '32.0 KiB (32768 bytes)' --mesh x:4,y:8,z:2 --dtype bf16 'A[I:256@xy, J:2048]'
says '2.00 MiB (2097152 bytes) on all devices' --mesh x:4,y:8,z:2 'A[I:256@xy, J:2048]'
says '64.0 KiB (65536 bytes)' --mesh x:4,y:8,z:2 --dtype f32 'A[I:256@xy, J:2048]'
# Kept from the first forward to the last backward: m + 1 times.
checks=$((checks + 1))
"$trireme" explain recipes/tiny.yaml --summary --set layout.dp=4 --set layout.zero=3 \
    --set layout.microbatches=2 --set layout.keep_gathered=true >"$tmp/out" 2>"$tmp/err"
grep -q 'over shard: 12 shard_sum messages, 1.68 MiB' "$tmp/out" &&
    grep -q 'over shard: 6 unshard messages, 861.5 KiB' "$tmp/out" ||
    fail 'weights that stay are not gathered once'
says 'each device sends 3·I·K bytes' --mesh x:4 'A[I,J@x] . B[J@x,K] -> C[I,K]'
says 'product         A[I, J@x] . B[J@x, K] -> C[I, K]{P:x}' --mesh x:4 'A[I,J@x] · B[J@x,K]'
says 'each device sends 612.5 GB' --mesh x:8 'G[N:175000000000]{P:x} -> G[N]'
says '40.0 ms' --mesh x:64 --dtype f32 --link 50GB/s --latency 5 'A[N:250000000]{P:x} -> A[N]'
says '40.0 ms' --mesh x:64 --dtype f32 --link 400Gb/s --latency 5us 'A[N:250000000]{U_x} -> A[N]'
says 'at 989.5 TFLOP/s' --mesh x:4 --device H100 'A[I:64,J:64@x] . B[J@x,K:64] -> C[I,K]'
says 'at 1979 TFLOP/s' --mesh x:4 --device h100 --dtype fp8 'A[I:64,J:64] . B[J,K:64]'
says 'no rate for f32' --mesh x:4 --device v5p --dtype f32 'A[I:64,J:64] . B[J,K:64]'
says 'over dp*tp' --mesh dp:2,tp:4 'A[I@dp*tp] -> A[I]'
says 'from 850 rows' --train fsdp --mesh x:4,y:4,z:4 --device v5p
says 'up to 23.5 devices' --train tp --mesh x:4,y:4 --device v5p --sizes F:30000
says 'In[B@x, D@yz] . Win[D@x, F@yz]' --train fsdp+tp --mesh x:4,y:4,z:2 --tp yz
says 'In[B@dp, D@tp] . Win[D@dp, F@tp]' --train fsdp+tp --mesh tp:4,dp:2
says '31.41' --state 7.5e9 --mesh dp:64
says 'does not fit: h100 has 80 GB' --state 7.5e9 --mesh dp:64 --device h100
says '295 (591)' --devices
says 'megatron-core' --devices
says 'fitted' --devices --markdown
says 'at 500 TFLOP/s' --mesh x:4 --device peak=500T,memory=80G,bandwidth=2T 'A[I:64,J:64] . B[J,K:64]'
refused 'goes with --devices' --markdown 'A[I:64]'
refused 'the nearest is memory' --device a100,memroy=40G 'A[I:64]'
says 'the device' --help
grep -q 'Settings' "$tmp/out" && fail 'the help lists settings that place does not read'

# The program that is run has what the calculator says: with tp, four all-reduces in a layer, each of
# the rows that the paper counts (8 x 64 rows of 64, fp32).
says 'over tp: 131.1 kB' --mesh tp:2 --dtype f32 'Y[R:512, D:64]{P:tp} -> Y[R, D]'
checks=$((checks + 1))
"$trireme" explain recipes/tiny.yaml --all --set layout.tp=2 >"$tmp/out" 2>"$tmp/err"
[ "$(grep -cE 'all_reduce .*h\.1\..*over tp.*128\.0 KiB' "$tmp/out")" -eq 4 ] ||
    fail 'a layer under tp does not have four all-reduces of 128 KiB'

# 6 buckets, 2 micro-batches: 12 sums and 24 gathers, 3 m times the 861.5 KiB of the weights.
checks=$((checks + 1))
"$trireme" explain recipes/tiny.yaml --summary --set layout.dp=4 --set layout.zero=3 \
    --set layout.microbatches=2 >"$tmp/out" 2>"$tmp/err"
grep -q 'over shard: 12 shard_sum messages, 1.68 MiB' "$tmp/out" &&
    grep -q 'over shard: 24 unshard messages, 3.37 MiB' "$tmp/out" ||
    fail 'zero 3 does not send 3 m times the weights'
says 'each device sends 3·I·K bytes at 450 GB/s' --device h100 --mesh x:4 \
    'A[I,J@x] . B[J@x,K] -> C[I,K]'
says 'A[I:64, J:8@x] . B[J:8@x, K] -> C[I:64, K]' --mesh x:4 'A[I:64,J:8@x] . B[J@x,K] -> C[I,K]'

# Lines are carried out with numbers.
weights='X=[1,2,0,1] W=[[1,2,5,6],[3,4,7,8],[2,0,3,1],[-1,4,8,2]]'
says '  x1       [27 24]' --mesh x:2 'X[J:4] . W[J, K:4@x] -> Y[K@x]' --values "$weights"
grep -qF '  x0       [6 14]' "$tmp/out" || fail 'the columns of the first device are not 6 and 14'
says '  x1       [-1 4 8 2]' --mesh x:2 'X[J:4@x] . W[J@x, K:4] -> Y[K]' --values "$weights"
says 'got 1, 2, 3' --mesh x:2,y:2 'A[I:3@x, J:5]{P:y} -> A[I, J@yx]' --values ''
says '"devices":[{"device":"x0","shape":[2],"numbers":[6,14]},' --json --mesh x:2 --values "$weights" \
    'X[J:4] . W[J, K:4@x] -> Y[K@x]'
says '[1 2 3]' 'A[I:3]' --values ''
refused 'and it has 4 elements' --mesh x:2 'X[J:4]' --values 'X=[1,2]'
refused 'which is no operand' --mesh x:2 'X[J:4]' --values 'Z=[1,2]'
refused 'and K has none' --mesh x:2 'X[J:4] . W[J, K]' --values ''
refused 'leave one out' --train dp --mesh x:4 --values ''

refused 'nothing to place'
refused 'there is no such axis in the mesh; the axes of the mesh are x' --mesh x:4 'A[I@q]'
[ "$(sed -n 2,3p "$tmp/err")" = $'  A[I@q]\n      ^' ] || fail 'the mark is not under the character'
refused 'give the mesh with --mesh' 'A[I@x]'
refused 'character 2: the size of the axis is missing' --mesh x,y:4 'A[I]'
refused 'did you mean h100' --device h1000 'A[I]'
refused 'did you mean nvlink4' --link nvlnk4 'A[I]'
refused '--link is -1GB/s' --link -1GB/s 'A[I]'
refused '--latency is "soon"' --latency soon 'A[I]'
refused 'is not a type' --dtype f7 'A[I]'
refused 'there are dp, fsdp, tp, megatron and fsdp+tp' --train ddp --mesh x:4
refused 'needs a mesh' --train dp
refused 'needs two axes' --train fsdp+tp --mesh x:4
refused 'leave --tp out' --train dp --mesh x:4,y:2 --tp y
refused 'takes no placement' --train dp --mesh x:4 'A[I]'
refused 'this letter has no size' --train dp --mesh x:4 --sizes B
refused 'does not divide the 16 devices' --state 1e9 --mesh dp:16 --shard-group 5
refused 'expected a number of parameters' --state many

echo "$checks checks, $failures failures"
[ $failures -eq 0 ]
