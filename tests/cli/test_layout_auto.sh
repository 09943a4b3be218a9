#!/usr/bin/env bash
# layout.auto: the layout is chosen when a run begins, by a profile that is kept, and is then what a
# person could have written. The profiles here are made up, so that it is known what is fastest.
# Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
recipe=$PWD/recipes/tiny.yaml
tmp=$(mktemp -d "${TMPDIR:-/tmp}/trireme-auto-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export XDG_CACHE_HOME=$tmp/cache
unset RANK WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 out err 2>/dev/null
}

# run CODE ARGS...: trireme ARGS ends with CODE.
run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" "$@" >out 2>err </dev/null
    code=$?
    [ $code -eq "$want" ] || fail "$* ended with $code, not $want"
}

# refused TEXT ARGS...: with one line that holds TEXT.
refused() {
    local text=$1
    shift
    run 2 "$@"
    [ "$(wc -l <err)" -eq 1 ] && grep -qF -- "$text" err || fail "$* does not say \"$text\""
}

# has PATTERN FILE
has() {
    checks=$((checks + 1))
    grep -qE -- "$1" "$2" || fail "$2 has no line $1"
}

lacks() {
    checks=$((checks + 1))
    ! grep -qE -- "$1" "$2" || fail "$2 has a line $1"
}

losses() {
    sed -E 's/.*"step":([0-9]+),"loss":([^,]*),.*/\1 \2/' "$1/metrics.jsonl"
}

cores=$(nproc)
model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1)
version=$("$trireme" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+[^ ]*' | head -1)
name=$(printf '%s\n' "${model:-cpu} $cores cores base $version" | sed -E 's/[^A-Za-z0-9.]+/-/g; s/^-//; s/-$//')
mkdir -p cache/trireme

# table RANKS: one kind of work that is nowhere in the model, at the rates of large products and
# copies, which therefore price all else, alike on any number of ranks.
table() {
    printf '{"ranks":%s,"threads":1,"steps":[],"work":[{"op":"swiglu","kind":"made up","samples":[%s]}]}' \
        "$1" '[1e-4,1,0,1e6,250000,0,0,0]'
}

# profile SECONDS: with ranks that do not slow each other down, and messages that take so long.
profile() {
    cat >"cache/trireme/$name.json" <<EOF
{"format":"trireme measured profile","format_version":1,"device":"cpu, made up","kind":"cpu",
 "model":"made up","isa":"base","date":"2026-01-01 00:00","version":"$version","libraries":"",
 "cores":$cores,"clock_mhz":1000,"memory_bytes":8e9,"memory_bytes_per_s":1e10,
 "flops_per_s":{"f32":1e10},"launched_together":[],
 "messages":[{"op":"all_reduce","ranks":2,"bytes":1000000,"seconds":$1}],
 "tables":[$(table 1),$(table 2)]}
EOF
}

base=(--set run.device=cpu --set run.isa=base --set run.threads=1)
small=("${base[@]}" --set train.steps=6 --set train.eval_batches=1 --set model.num_layers=2)

# ---- what is chosen ----

profile 1e-6
run 0 train "$recipe" "${small[@]}" --set layout=auto --set run.dir=two --set layout.dp=2
lacks '^profile ' out
has '^layout  chosen: dp 2' out
has '^layout  2 ranks: 2 data-parallel' out
has '^# layout.auto chose this layout: dp 2' two/config.yaml
has "^# by what was measured here, in $tmp/cache/trireme/$name.json" two/config.yaml
has '^  auto: false$' two/config.yaml
has '^  dp: 2$' two/config.yaml
has '"event":"layout","reason":"dp 2' two/events.jsonl

# The same by hand: from the run's own settings, which load with the comments before them.
run 0 train two --set run.dir=hand
lacks 'chosen' out
lacks '^#' hand/config.yaml
checks=$((checks + 1))
[ "$(losses two)" = "$(losses hand)" ] && [ "$(losses two | wc -l)" -eq 6 ] || fail "other losses than by hand"
run 0 runs diff two hand
lacks ' layout\.' out

# All ways to say it; with dry-run, which shows the same.
printf 'layout: auto\n' >scalar.yaml
printf 'layout: {auto: true}\n' >mapping.yaml
for way in "scalar.yaml" "mapping.yaml" "$recipe --set layout.auto=true" "$recipe --set layout=auto"; do
    # shellcheck disable=SC2086
    run 0 train $way "${small[@]}" --dry-run
    has '^layout  chosen: ' out
done

# Ranks that do not slow each other down win, unless messages are slow.
if [ $((cores % 2)) -eq 0 ]; then
    run 0 train "$recipe" "${small[@]}" --set layout=auto --dry-run
    has '^layout  chosen: .*x faster than one rank; step ' out
    has '^        with 1 rank: \+' out
fi
run 0 train "$recipe" "${small[@]}" --set layout=auto --set layout.tp=2 --set layout.microbatches=2 --dry-run
has '^layout  chosen: tp 2.*, 2 x 4 rows ' out
profile 1
run 0 train "$recipe" "${small[@]}" --set layout=auto --dry-run
has '^layout  chosen: one rank, ' out
[ $((cores % 2)) -ne 0 ] || has '^        with 2 ranks: \+' out
# A number of ranks that the profile does not have is not tried, and that is said.
if [ $((cores % 4)) -eq 0 ]; then
    has '^        with 4 ranks: not tried, since the profile has no measurements of 4 ranks' out
fi

# ---- memory ----

# budget BYTES PATTERN: it fits, and is what the pattern says.
budget() {
    run 0 train "$recipe" "${base[@]}" --set layout=auto --set layout.dp=2 --set train.batch=16 \
        --dry-run --set "run.memory_limit=$1"
    has "^layout  chosen: $2" out
}
profile 1e-6
budget 1GiB 'dp 2.*, 1 x 8 rows \('
budget 8MiB 'dp 2.*, ([2-8] x [124] rows?|.* recomputation)'
budget 5MiB 'dp 2.*, 8 x 1 row.* recomputation '
refused 'no layout of 2 ranks fits' train "$recipe" "${base[@]}" --set layout=auto --set layout.dp=2 \
    --set run.memory_limit=2MiB

# ---- runs that go on ----

going=("${small[@]}" --set layout=auto --set ckpt.every=3 --set run.dir=goes)
run 3 train "$recipe" "${going[@]}" --set layout.dp=2 --set run.stop_at=3
has '^layout  chosen: dp 2' out
profile 1
run 0 train "$recipe" "${going[@]}" --set run.resume=true
has '^layout  kept: that of the run' out
has '^layout  2 ranks: 2 data-parallel' out
has '^  dp: 2$' goes/config.yaml
has '^# layout.auto chose this layout: dp 2' goes/config.yaml
checks=$((checks + 1))
[ "$(grep -c '"event":"layout"' goes/events.jsonl)" -eq 1 ] || fail "a layout was chosen again"
[ "$(losses goes)" = "$(losses two)" ] || fail "other losses after resuming"
# Not a run that begins anew in the directory of another.
run 0 train "$recipe" "${going[@]}" --set run.resume=false --dry-run
has '^layout  chosen: one rank' out

# ---- what is refused ----

for verb in plan explain check bench "sim --device h100"; do
    # shellcheck disable=SC2086
    refused 'layout.auto is true, and the layout is chosen by `trireme train` alone' $verb "$recipe" --set layout=auto
done
run 0 generate two --set layout=auto --set generate.tokens=1
auto=("$recipe" "${small[@]}" --set layout=auto)
refused 'which does not try this order' train "${auto[@]}" --set layout.schedule=dualpipe
refused 'which tries none, selective, full, every:2 and every:4' train "${auto[@]}" --set layout.recompute=every:3
refused 'which divides layers by cost' train "${auto[@]}" --set layout.stages=1,1
refused 'cannot tell how fast 3 ranks are' train "${auto[@]}" --set layout.dp=3
refused 'no layout of 2 ranks has what is given' train "${auto[@]}" --set layout.dp=2 --set train.batch=1
refused 'has nothing to choose' train two --set layout=auto --set run.dir=other
refused 'plans for devices that compute' train "$recipe" --set layout=auto --set run.device=null
refused 'which the runs of --jobs share' sweep "${auto[@]}" --over optim.lr=1e-3,2e-3 --jobs 2
refused 'model.num_heads is 3' train "${auto[@]}" --set model.num_heads=3
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 refused 'ranks that were started by others (OMPI_COMM_WORLD_SIZE=2)' \
    train "${auto[@]}"
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=4000 refused '(WORLD_SIZE=2)' train "${auto[@]}"
checks=$((checks + 1))
[ ! -e runs ] && [ ! -e other ] || fail "what was refused left a directory"

echo "$checks checks, $failures failed"
[ $failures -eq 0 ]
