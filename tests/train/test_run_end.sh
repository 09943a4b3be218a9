#!/usr/bin/env bash
# How runs end: the curve that each leaves, the best checkpoint, and a held-out loss that does not fall
# any more. Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d /tmp/trireme-end-XXXXXX)
failures=0
trap 'rm -rf "$tmp"' EXIT
recipe=$PWD/recipes/tiny.yaml
cd "$tmp" || exit 1

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    tail -n 5 out
}

small=(run.device=cpu run.threads=1 run.save=false model.num_layers=1 model.dim=32 data.seq_len=16
    train.batch=4 train.steps=40 train.eval_every=4 train.eval_batches=1 optim.lr=1e-2 ckpt.every=10
    ckpt.keep_last=1)

run() { # exit code, name, settings ...
    local want=$1 name=$2 words=() s code
    shift 2
    for s in "${small[@]}" "$@"; do words+=(--set "$s"); done
    "$trireme" train "$recipe" "${words[@]}" --set "run.dir=$name" >out 2>&1
    code=$?
    [ $code = "$want" ] || fail "$name ended with $code, not $want"
}

says() { grep -qF -- "$1" out || fail "the output does not say \"$1\""; }
evals() { sed -n 's/.*"step":\([0-9]*\).*"eval_loss":\([0-9.]*\).*/\1 \2/p' "$1/metrics.jsonl"; }

# ---- the curve ----

run 0 plain ckpt.every=0
head -n 1 plain/loss.svg | grep -q 'drawn by trireme plot' || fail "a run leaves no loss.svg"
[ "$(grep -c 'class="t".*held-out loss\|>loss</text>' plain/loss.svg)" -ge 2 ] || fail "loss.svg lacks a curve"
says 'metrics.jsonl, loss.svg'
mkdir mine && echo "a drawing of mine" >mine/loss.svg
run 0 mine ckpt.every=0 train.steps=4
says 'warning: mine/loss.svg: there is a file of that name'
[ "$(cat mine/loss.svg)" = "a drawing of mine" ] || fail "somebody's loss.svg was replaced"

# ---- the best checkpoint ----

# A learning rate that ruins what was learnt: the best is in the middle, and not at a multiple of 10.
worse=(optim.lr=0.3 train.clip=0 optim.warmup_steps=30 ckpt.keep_best=2)
run 0 best "${worse[@]}"
best=$(evals best | sort -k 2,2g -k 1,1n | head -n 2 | awk '{ print "step-" $1 }')
for step in $best step-40; do [ -d "best/ckpt/$step" ] || fail "$step is gone: $(ls best/ckpt)"; done
[ "$(ls best/ckpt)" = "$(printf '%s\n' "$best" step-40 | sort -u)" ] || fail "others stayed: $(ls best/ckpt)"
first=$(echo "$best" | head -n 1)
[ "$first" != step-40 ] || fail "the best is the last, so this shows nothing"
"$trireme" ckpt inspect best/ckpt >out 2>&1
grep -q "$first .*, the best$" out || fail "ckpt inspect does not name $first"
"$trireme" generate best --best --tokens 2 >out 2>&1 || fail "generate --best ended with $?"
says "weights best/ckpt/$first, step ${first#step-}"
"$trireme" eval best --best >out 2>&1 || fail "eval --best ended with $?"
says "best/ckpt/$first"
run 0 from "${worse[@]}" train.steps=1 model.from=best/ckpt/best
"$trireme" generate plain --best --tokens 2 >out 2>&1 && fail "a run without checkpoints has a best one"
says "none of the checkpoints in plain/ckpt has a held-out loss"

# The same with a kill between: what is kept, and which is the best, follows from the checkpoints.
"$trireme" train "$recipe" $(printf -- '--set %s ' "${small[@]}" "${worse[@]}") --set run.dir=killed \
    --set run.pace=F=30 >out 2>&1 &
pid=$!
for _ in $(seq 400); do
    [ ! -d killed/ckpt/step-20 ] || break
    sleep 0.05
done
kill -9 $pid
wait $pid 2>/dev/null
run 0 killed "${worse[@]}" run.resume=auto
[ "$(ls killed/ckpt)" = "$(ls best/ckpt)" ] || fail "after a kill there is $(ls killed/ckpt), not $(ls best/ckpt)"

# ---- enough ----

stop=(train.patience=2 train.min_gain=0.3 ckpt.keep_best=1)
run 0 enough "${stop[@]}"
says 'done after step '
last=$(evals enough | tail -n 1 | cut -d ' ' -f 1)
[ "$last" -lt 40 ] || fail "the run went on to step $last"
# by hand: evaluations since one that was lower by more than 0.3
want=$(evals plain | awk -v patience=2 -v gain=0.3 'NR == 1 || $2 < good - gain { good = $2; idle = 0; next }
    ++idle == patience { print $1; exit }')
[ "$last" = "$want" ] || fail "it ended after step $last, not $want"
grep -q "\"event\":\"enough\",\"at_step\":$last,\"reason\":\"2 evaluations in a row" enough/events.jsonl || fail "no event"
grep -q "\"event\":\"end\",\"steps\":$last,\"saved\":$last,\"exit_code\":0" enough/events.jsonl || fail "no end"
run 0 pipeline "${stop[@]}" layout.pp=2 model.num_layers=2
run 0 enough "${stop[@]}" run.resume=true
says "done after step $last of 40"
[ "$(evals enough | tail -n 1 | cut -d ' ' -f 1)" = "$last" ] || fail "a run that had enough went on"
run 0 enough "${stop[@]}" run.resume=true train.patience=3
[ "$(evals enough | tail -n 1 | cut -d ' ' -f 1)" -gt "$last" ] || fail "more patience does not go on"
# Stopped in between and continued, it ends where it would have ended.
run 0 halves "${stop[@]}" train.steps=$((last - 4))
run 0 halves "${stop[@]}" run.resume=true
[ "$(evals halves)" = "$(evals plain | head -n "$(evals halves | wc -l)")" ] || fail "other held-out losses after resuming"
[ "$(evals halves | tail -n 1 | cut -d ' ' -f 1)" = "$last" ] || fail "after resuming it ended at another step"

# ---- a stop on the way ----

run 3 stopped run.stop_at=13 optim.schedule=cosine
says 'stopped after step 13 of 40 (run.stop_at is reached)'
grep -q '"event":"stop","at_step":13,"reason":"run.stop_at is reached"' stopped/events.jsonl || fail "no event of the stop"
evals stopped | grep -q '^13 ' || fail "it is not evaluated where it stops"
run 3 stopped run.stop_at=13 optim.schedule=cosine run.resume=true
run 0 stopped optim.schedule=cosine run.resume=true run.save=true
run 0 through optim.schedule=cosine run.save=true
cmp -s stopped/weights.safetensors through/weights.safetensors || fail "a run that was stopped on the way is another"

[ $failures -eq 0 ] || exit 1
echo "test_run_end: fine"
