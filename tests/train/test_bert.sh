#!/usr/bin/env bash
# bert from the command line: layouts change nothing, and the course recipe, shortened.
# Argument: the build directory.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bert-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

run() { # name, recipe, then settings
    local name=$1 recipe=$2
    shift 2
    local set=()
    for s in "$@"; do set+=(--set "$s"); done
    if ! "$trireme" train "recipes/$recipe.yaml" --set run.dir="$work/$name" "${set[@]}" \
        >"$work/$name.out" 2>&1; then
        fail "$name did not run"
        tail -n 5 "$work/$name.out"
    fi
}

field() { sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$work/$1/metrics.jsonl"; }

# Largest relative difference of a field over all steps, at most the limit.
close() { # name, other, field, limit
    local worst
    field "$1" "$3" >"$work/a"
    field "$2" "$3" >"$work/b"
    worst=$(paste "$work/a" "$work/b" | awk -v limit="$4" '
        NF != 2 { missing = 1 }
        { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        END {
            verdict = "ok"
            if (worst > limit) verdict = worst
            if (NR < 1 || missing) verdict = "missing values"
            print verdict
        }')
    [ "$worst" = ok ] || fail "$3 of $1 and $2 differ by $worst, more than $4"
}

# Both tasks, with dropout, on one rank and on several; ten rows do not divide by three or four.
for task in mlm classify; do
    common=(model.kind=bert model.task=$task train.batch=10 model.num_layers=2 run.save=false
        data.seq_len=24)
    run $task-1 tiny "${common[@]}"
    run $task-2 tiny "${common[@]}" layout.dp=2
    run $task-3 tiny "${common[@]}" layout.dp=3
    run $task-2x2 tiny "${common[@]}" layout.dp=2 layout.microbatches=2
    for layout in 2 3 2x2; do
        close $task-1 $task-$layout loss 1e-5
        close $task-1 $task-$layout grad_norm 1e-4
        close $task-1 $task-$layout eval_loss 1e-5
        close $task-1 $task-$layout eval_accuracy 1e-6
    done
done

# The course recipe as it is has 157 steps an epoch on two ranks.
run steps bert-course model.dim=8 model.num_layers=1 data.seq_len=8 train.steps=1 run.save=false
grep -q '^batch .*(3 epochs of 157 steps for 10,000 rows' "$work/steps.out" || fail "not 157 steps an epoch"

# Smaller and shorter, it learns the task: a line for each epoch, the last batch with 16 rows of 64.
small=(model.dim=32 model.vocab=400 model.dropout=0 data.seq_len=32 data.samples=400
    data.eval_fraction=0.25)
run course bert-course "${small[@]}" train.epochs=6 optim.lr=2e-3
grep '^\[epoch' "$work/course.out" >"$work/lines"
[ "$(grep -c "^\[epoch [1-6]/6\] loss [0-9.]*  held-out loss [0-9.]*  accuracy [0-9.]*%$" "$work/lines")" = 6 ] ||
    fail "not a line for each epoch: $(cat "$work/lines")"
[ "$(field course step | wc -l)" = 42 ] || fail "not 7 steps in each of 6 epochs"
accuracy=$(field course eval_accuracy | tail -n 1)
awk -v a="$accuracy" 'BEGIN { exit !(a > 0.9) }' || fail "accuracy $accuracy at the end"

# Out, in again, and on with another head; text it cannot write.
"$trireme" ckpt export "$work/course" --hf "$work/hf" >/dev/null || fail "no export"
grep -q BertForSequenceClassification "$work/hf/config.json" || fail "another architecture"
run again bert-course "${small[@]}" model.from="$work/hf" train.epochs=0 train.steps=1 optim.lr=0 \
    run.save=false
[ "$(field again eval_accuracy)" = "$accuracy" ] || fail "another accuracy after export and import"
run head tiny model.from="$work/hf" model.kind=bert model.task=mlm model.vocab=400 model.dim=32 \
    model.num_layers=2 data.seq_len=32 train.steps=1
grep -q '^anew .*cls.predictions.bias' "$work/head.out" || fail "nothing said of a head begun anew"
"$trireme" generate "$work/course" >"$work/text.out" 2>&1
code=$?
if [ $code -ne 2 ] || ! grep -q "model.task" "$work/text.out"; then
    fail "text from a classifier: exit $code"
fi
[ $failures -eq 0 ]
