#!/usr/bin/env bash
# trireme sweep: grids, draws and halving; killed and continued, it ends with the table of one that was
# left alone. Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d /tmp/trireme-sweep-XXXXXX)
failures=0 checks=0
finish() {
    for pid in $(processes); do kill -KILL "$pid" 2>/dev/null; done
    rm -rf "$tmp"
}
trap finish EXIT
cp recipes/tiny.yaml "$tmp/recipe.yaml"
cd "$tmp" || exit 1

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    tail -n 20 out
}

# Those that work below this test's directory.
processes() {
    local pid
    for pid in $(pgrep -x trireme); do
        [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" != "$tmp" ] || echo "$pid"
    done
}

small=(--set run.device=cpu --set run.threads=1 --set model.num_layers=1 --set model.dim=16 --set model.num_heads=2
    --set model.vocab=64 --set data.seq_len=8 --set train.batch=2 --set train.steps=12 --set train.eval_every=4
    --set train.eval_batches=1 --set run.save=false)
grid=(--over 'optim.lr=1e-3,1e-2,3e-2,1e-1' --over run.seed=1..3)

# run CODE TEXT ARGS...: trireme sweep ends with CODE, and what it prints holds TEXT.
run() {
    local want=$1 text=$2 code
    shift 2
    checks=$((checks + 1))
    timeout 120 "$trireme" sweep "$@" >out 2>&1 </dev/null
    code=$?
    [ $code -eq "$want" ] || fail "sweep $* ended with $code, not $want"
    grep -qF -- "$text" out || fail "sweep $* does not say \"$text\""
}
await() { # file: until it is there and has something in it
    local _
    for _ in $(seq 1000); do
        [ ! -s "$1" ] || return 0
        sleep 0.01
    done
}
# The table without speeds.
table() { sed -n '/^RUN /,/^written/p' out | grep -v '^written' | awk '{ $(NF - 1) = ""; print }'; }
steps_of() { cut -d '"' -f 3 "runs/$1/metrics.jsonl" | tr -d ':,' | paste -sd ' '; }

# ---- what the flags mean ----

run 2 'say what is to vary: trireme sweep RECIPE --over' recipe.yaml
run 2 'unknown setting "optim.l"' recipe.yaml --over optim.l=1
run 2 '--over: optim.lr' recipe.yaml --over optim.lr=1e-3,fast
run 2 '--over run.seed: 2 is there twice' recipe.yaml --over run.seed=2,3,2
run 2 'say how many: optim.lr=0.001..0.1:5' recipe.yaml --over optim.lr=1e-3..1e-1
run 2 'is even in its logarithm, so it begins above 0; train.z_loss=lin:0..1' recipe.yaml --over train.z_loss=0..1:3
run 2 '--over run.dir: the sweep itself sets it' recipe.yaml --over run.dir=a,b
run 2 'there are hardly more than 3 different runs' recipe.yaml --over run.seed=1..3 --random 4
run 2 'this sweep has 1000000 runs' recipe.yaml --over run.seed=1..1000 --over data.samples=1..1000
run 2 '--seed is that of --random' recipe.yaml --over run.seed=1..3 --seed 4
run 2 '--halve divides train.steps' recipe.yaml --over run.seed=1..3 --halve 2 --set train.epochs=2 --set data.samples=64

# ---- a grid ----

run 0 'written to runs/whole/sweep.svg' recipe.yaml "${grid[@]}" "${small[@]}" --name whole --jobs 2
table >whole.table
[ "$(wc -l <whole.table)" = 13 ] || fail "not a title and 12 runs"
[ "$(awk 'NR > 1 { print $NF }' whole.table | sort -u)" = 'done' ] || fail "not all are done"
awk 'NR > 1 { print $6 }' whole.table | sort -g -c || fail "the best does not come first"
[ "$(awk 'NR > 1 { print $2, $3 }' whole.table | sort -u | wc -l)" = 12 ] || fail "not 12 different runs"
grep -c '<path class="c c[0-9]"' runs/whole/sweep.svg >/dev/null || fail "no curves"
for i in 01 05 12; do grep -q ">$i-lr" runs/whole/sweep.svg || fail "run $i is not in the legend"; done
grep -q '>optim.lr<' runs/whole/sweep-values.svg || fail "no loss against the learning rate"
run 0 'written to' recipe.yaml "${grid[@]}" "${small[@]}" --name whole
grep -q 'begins\|goes on' out && fail "runs that are done were started again"
table | cmp -s - whole.table || fail "the same command again has another table"
[ "$("$trireme" sweep recipe.yaml "${grid[@]}" "${small[@]}" --name whole --json 2>/dev/null | grep -c '^{"run":"runs/whole/.*"state":"done","step":12,"loss":')" = 12 ] ||
    fail "--json has no 12 runs"
# A run is what `trireme train` makes of the same settings.
"$trireme" train recipe.yaml "${small[@]}" --set optim.lr=1e-2 --set run.seed=2 --set run.dir=alone >out 2>&1 || fail "a run alone"
cut -d , -f 1-3 alone/metrics.jsonl | cmp -s - <(cut -d , -f 1-3 runs/whole/05-*/metrics.jsonl) || fail "a run of a sweep is another than alone"

# Another definition is refused, and touches nothing.
run 2 'runs/whole holds another sweep: --over, --random or --seed differ' recipe.yaml --over run.seed=1..3 "${small[@]}" --name whole
run 2 'the settings of --set differ' recipe.yaml "${grid[@]}" "${small[@]}" --set optim.beta1=0.5 --name whole
cp recipe.yaml kept.yaml
echo '# edited' >>recipe.yaml
run 2 'the recipe was changed' recipe.yaml "${grid[@]}" "${small[@]}" --name whole
mv kept.yaml recipe.yaml

# ---- killed twice, children included ----

# Runs of a sweep; what one without a checkpoint had done is moved aside when it begins again.
begun() { find "runs/$1" -mindepth 1 -maxdepth 1 -type d 2>/dev/null | grep -vc '\.[0-9]*$'; }
kill_when() { # so many runs that have begun
    local pid _
    "$trireme" sweep recipe.yaml "${grid[@]}" "${small[@]}" --name killed --jobs 2 --set run.pace=F=50 >out 2>&1 &
    pid=$!
    for _ in $(seq 1000); do
        [ "$(begun killed)" -ge "$1" ] && break
        sleep 0.01
    done
    # shellcheck disable=SC2046
    kill -KILL $pid $(processes) 2>/dev/null
    wait $pid 2>/dev/null
}
kill_when 3
kill_when 6
[ "$(begun killed)" -lt 12 ] || fail "it was over before it could be killed"
run 0 'written to' recipe.yaml "${grid[@]}" "${small[@]}" --name killed --jobs 2
table | cmp -s - whole.table || fail "killed twice, it ends with another table: $(table | diff - whole.table)"
for run in runs/killed/*/; do
    case $run in
    *.1/ | *.2/) continue ;; # what a run without a checkpoint had done when it was killed
    esac
    [ "$(steps_of "${run#runs/}")" = '1 2 3 4 5 6 7 8 9 10 11 12' ] || fail "$run has the steps $(steps_of "${run#runs/}")"
done

# The sweep alone: its runs end by themselves, and the next one waits for them.
"$trireme" sweep recipe.yaml --over run.seed=1..3 "${small[@]}" --name lone --jobs 2 --set run.pace=F=500 >out 2>&1 &
pid=$!
await runs/lone/02-seed2/metrics.jsonl
{ kill -KILL $pid && wait $pid; } 2>/dev/null
run 0 'written to' recipe.yaml --over run.seed=1..3 "${small[@]}" --name lone --jobs 2
[ "$(processes | wc -l)" = 0 ] || fail "processes are left: $(processes)"
[ "$(cat runs/lone/0[12]*/events.jsonl | grep -c '"event":"start"')" = 4 ] || fail "runs were not continued once each"
grep -q '"from_step":[1-9]' runs/lone/01*/events.jsonl || fail "a run was not resumed, but begun again"
grep -q '"event":"stop"' runs/lone/01*/events.jsonl || fail "a run whose sweep was killed did not end in good order"

# ---- asked to stop ----

"$trireme" sweep recipe.yaml --over run.seed=1..3 "${small[@]}" --name asked --jobs 2 --set run.pace=F=500 >out 2>&1 &
pid=$!
await runs/asked/02-seed2/metrics.jsonl
kill -TERM $pid
wait $pid
[ $? = 3 ] || fail "a sweep that was asked to stop ended otherwise"
grep -q 'stopped; to go on: the same command again' out || fail "it does not say how to go on"
[ "$(processes | wc -l)" = 0 ] || fail "runs go on after their sweep: $(processes)"
run 0 'written to' recipe.yaml --over run.seed=1..3 "${small[@]}" --name asked --jobs 2
grep -q '^01-seed1  goes on' out || fail "a run that was stopped is not continued"

# ---- halving, draws, failures ----

run 0 'after step 2: the best 4 of 12 go on' recipe.yaml "${grid[@]}" "${small[@]}" --name halved --halve 3 --jobs 2
grep -q 'after step 4: the best 1 of 4 goes on' out || fail "no second stage"
table >halved.table
[ "$(awk 'NR > 1 { print $4, $NF }' halved.table | sort | uniq -c | sed 's/^ *//' | paste -sd ';')" = '1 12 done;8 2 dropped;3 4 dropped' ] ||
    fail "the stages are $(awk 'NR > 1 { print $4, $NF }' halved.table | sort | uniq -c)"
# by hand: the best four after step 2, and of these the best after step 4
at() { # step: name and held-out loss
    for run in runs/halved/*/; do sed -n "s|.*\"step\":$1,.*\"eval_loss\":\([0-9.]*\).*|$(basename "$run") \1|p" "$run/metrics.jsonl"; done
}
[ "$(at 4 | cut -d ' ' -f 1 | sort)" = "$(at 2 | sort -k 2,2g | head -n 4 | cut -d ' ' -f 1 | sort)" ] || fail "others than the best four went on"
[ "$(awk 'NR == 2 { print $1 }' halved.table)" = "$(at 4 | sort -k 2,2g | head -n 1 | cut -d ' ' -f 1)" ] || fail "another than the best went to the end"
best=$(awk 'NR == 2 { print $1 }' halved.table)
cut -d , -f 1-2 "runs/halved/$best/metrics.jsonl" | cmp -s - <(cut -d , -f 1-2 "runs/whole/$best/metrics.jsonl") || fail "a run in stages is another than one in one go"
run 0 'after step 4' recipe.yaml "${grid[@]}" "${small[@]}" --name halved --halve 3
table | cmp -s - halved.table || fail "halving again has another table"

run 0 'written to' recipe.yaml --over optim.lr=1e-3..1e-1 --over run.seed=1..9 --random 2 --seed 5 "${small[@]}" --name drawn
table >drawn.table
awk 'NR > 1 && ($2 < 1e-3 || $2 > 1e-1 || $3 != int($3) || $3 < 1 || $3 > 9) { bad = 1 } END { exit bad || NR != 3 }' drawn.table ||
    fail "draws are outside of their ranges"
run 0 'written to' recipe.yaml --over optim.lr=1e-3..1e-1 --over run.seed=1..9 --random 2 --seed 5 "${small[@]}" --name again
table | cmp -s - drawn.table || fail "the same seed draws something else"
run 2 'runs/drawn holds another sweep' recipe.yaml --over optim.lr=1e-3..1e-1 --over run.seed=1..9 --random 2 --seed 6 "${small[@]}" --name drawn

run 1 '1 of 3 runs failed' recipe.yaml --over model.num_heads=1,3,2 "${small[@]}" --name broken
grep -q '^02-num_heads3 .* failed  ' out || fail "the table does not name the run that failed"
[ "$(grep -c ' done$' out)" = 2 ] || fail "one failure cost the others"

# One that is killed costs itself.
"$trireme" sweep recipe.yaml --over run.seed=1..3 "${small[@]}" --name hit --jobs 3 --set run.pace=F=50 >out 2>&1 &
pid=$!
await runs/hit/02-seed2/metrics.jsonl
kill -KILL "$(sed -n 's/.*"event":"start".*"pid":\([0-9]*\).*/\1/p' runs/hit/02*/events.jsonl)"
wait $pid
[ $? = 1 ] || fail "a sweep with a run that was killed ended otherwise"
grep -q '^02-seed2 .* failed  its process was killed by SIGKILL' out || fail "the table does not say that it was killed"
[ "$(grep -c ' done$' out)" = 2 ] || fail "a run that was killed cost the others"
run 0 '02-seed2  goes on' recipe.yaml --over run.seed=1..3 "${small[@]}" --name hit

[ $failures -eq 0 ] || exit 1
echo "test_sweep: $checks checks, fine"
