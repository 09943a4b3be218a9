#!/usr/bin/env bash
# Losses and statistics of a step: the same numbers in every layout, whatever the batch is cut into;
# evaluation knows nothing of them. Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d /tmp/trireme-stats-XXXXXX)
failures=0
trap 'rm -rf "$tmp"' EXIT

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

small=(run.device=cpu run.threads=1 run.save=false model.num_layers=2 model.dim=32 model.num_heads=4
    model.vocab=96 data.source=synthetic data.seq_len=16 train.batch=6 train.steps=3
    train.eval_batches=1 optim.lr=1e-2 train.log_every=1)
asked=(train.z_loss=0.02 'train.stats=max_logit,mean_lse')

run() { # name, settings ...
    local name=$1 words=() s
    shift
    for s in "${small[@]}" "$@"; do words+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml "${words[@]}" --set "run.dir=$tmp/$name" >"$tmp/$name.out" 2>&1 ||
        fail "$name: $(tail -n 3 "$tmp/$name.out")"
}

field() { # name, field: its numbers, one a step
    sed -n "s/.*\"$2\":\(-\?[0-9.e+-]*\).*/\1/p" "$tmp/$1/metrics.jsonl"
}

# Whether a field of two runs agrees to so many parts in a million.
close() { # run, run, field, parts
    paste <(field "$1" "$3") <(field "$2" "$3") | awk -v most="$4" '
        NF != 2 { bad = 1 }
        { d = $1 - $2; d = d < 0 ? -d : d; s = $1 < 0 ? -$1 : $1; if (d > most * 1e-6 * (s + 1e-3)) bad = 1 }
        END { exit bad || NR != 3 }' || fail "$2: $3 is $(field "$2" "$3" | tr '\n' ' '), not $(field "$1" "$3" | tr '\n' ' ')"
}

compare() { # name, of which run, settings ...
    local name=$1 like=$2 f
    shift 2
    run "$name" "${asked[@]}" "$@"
    for f in loss cross_entropy z_loss max_logit mean_lse grad_norm; do close "$like" "$name" "$f" 30; done
}

run one "${asked[@]}"
compare dp2 one layout.dp=2 layout.microbatches=2 # rows of padding: 6 over 4 parts
compare tp2-sp one layout.tp=2 layout.sp=true
compare pp2 one layout.pp=2 layout.microbatches=3
compare zero3-tp2 one layout.dp=2 layout.tp=2 layout.zero=3
run bert "${asked[@]}" model.kind=bert model.task=mlm data.task=mlm
compare bert-dp2 bert model.kind=bert model.task=mlm data.task=mlm layout.dp=2

# The whole loss is the sum of its parts, and the line of a step names them.
paste <(field one loss) <(field one cross_entropy) <(field one z_loss) | awk '
    { d = $1 - $2 - 0.02 * $3; if (d * d > 1e-10) bad = 1 } END { exit bad || NR != 3 }' ||
    fail "the loss is not cross_entropy + 0.02 z_loss: $(head -n 1 "$tmp/one/metrics.jsonl")"
grep -q '^step 1/3  loss [0-9.]*  cross_entropy [0-9.]*  z_loss [0-9.]*  max_logit [0-9.-]*  mean_lse [0-9.]*  grad' \
    "$tmp/one.out" || fail "the line of a step names no statistics: $(grep '^step 1/3' "$tmp/one.out")"

# Held-out rows: plain cross-entropy, whatever is trained with. Without a z-loss statistics change
# nothing at all.
run plain
run watched train.stats=mean_lse
run frozen optim.lr=0
run frozen-z optim.lr=0 "${asked[@]}"
[ "$(field frozen eval_loss)" = "$(field frozen-z eval_loss)" ] || fail 'evaluation counts the z-loss'
[ "$(field plain loss)" = "$(field watched loss)" ] || fail 'a statistic changes the loss'
[ "$(field plain loss)" != "$(field one cross_entropy)" ] || fail 'the z-loss changes nothing'

# What a rank has nothing of must not win: a stage without the head begins the largest with -inf.
"$trireme" explain recipes/tiny.yaml --set layout.pp=2 --set layout.microbatches=2 \
    --set train.stats=max_logit >"$tmp/out" 2>&1
grep -q '  fill -inf  *max_logit ' "$tmp/out" && grep -q '  all_reduce max  *max_logit ' "$tmp/out" ||
    fail "a stage without logits: $(grep -E ' fill|all_reduce' "$tmp/out")"

# What is refused.
"$trireme" train recipes/tiny.yaml --set train.stats=logits --dry-run >"$tmp/out" 2>&1
[ $? = 2 ] && grep -q 'train.stats: "logits" is no statistic' "$tmp/out" || fail "no refusal: $(cat "$tmp/out")"

echo "$failures failures"
[ $failures -eq 0 ]
