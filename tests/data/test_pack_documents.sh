#!/usr/bin/env bash
# Packed documents from the command line: the same losses on any ranks and after a resume, and what
# is refused. Argument: the build directory. Run from the root of the repository.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-pack-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

small=(model.kind=llama model.num_layers=1 model.dim=16 model.num_heads=2 model.dropout=0 model.vocab=0
    train.batch=6 train.steps=8 run.threads=1 data.seq_len=48 data.pack=true)

run() { # name, options of train, then --, then settings
    local name=$1 s set=() options=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    for s in "${small[@]}" "$@"; do set+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml "${options[@]}" --set run.dir="$work/$name" "${set[@]}" \
        >"$work/$name.out" 2>&1 || fail "$name did not run: $(tail -n 5 "$work/$name.out")"
}

refused() { # text, then settings
    local text=$1 s set=()
    shift
    for s in "${small[@]}" "$@"; do set+=(--set "$s"); done
    "$trireme" train recipes/tiny.yaml --set run.dir="$work/refused" "${set[@]}" >"$work/out" 2>"$work/err"
    [ $? -eq 2 ] || fail "$* ended with another code than 2"
    grep -qF -- "$text" "$work/err" || fail "$* does not say \"$text\": $(cat "$work/err")"
}

says() { # name, pattern
    grep -qE -- "$2" "$work/$1.out" || fail "$1 does not say \"$2\": $(cat "$work/$1.out")"
}

field() { sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$work/$1/metrics.jsonl"; }

# The values of a field in all steps are equal, but for the order of sums.
close() { # name, other, field
    local worst
    worst=$(paste <(field "$1" "$3") <(field "$2" "$3") | awk '
        NF != 2 { missing = 1 }
        { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        END { print (NR < 1 || missing) ? "missing values" : (worst > 1e-5) ? worst : "ok" }')
    [ "$worst" = ok ] || fail "$3 of $1 and $2 differ by $worst"
}

# Lines of 1 to 90 words, a document each.
awk 'BEGIN {
    for (i = 0; i < 120; i++) {
        printf "{\"text\": \""
        for (w = 0; w <= i * i * 7 % 90; w++) printf "%sword%d", w ? " " : "", (i + w * w) % 13
        print "\"}"
    }
}' >"$work/docs.jsonl"
"$trireme" data prepare "$work/docs.jsonl" --tokenizer bpe:300 --out "$work/tokens" >"$work/out" 2>&1 ||
    fail "prepare: $(cat "$work/out")"

# ---- ranks, and a resume with other ranks ----

run one -- data.source="$work/tokens"
says one '^data    .*, 120 documents, [0-9]+ rows of 48, 9[0-9.]*% full, [0-9]+ more for evaluation'
run text -- data.source="$work/docs.jsonl" data.tokenizer="$work/tokens"
run dp -- data.source="$work/tokens" layout.dp=3 layout.microbatches=2
run cp -- data.source="$work/tokens" layout.cp=4
run again -- data.source="$work/tokens" layout.dp=2 train.steps=3 ckpt.every=3
run again --resume -- data.source="$work/tokens" layout.dp=3 ckpt.every=3
for other in text dp cp again; do
    close one $other loss
    close one $other grad_norm
done
for other in text dp cp; do close one $other eval_loss; done

# ---- epochs: every row once, whoever has it ----

run epochs -- data.source="$work/tokens" train.steps=0 train.epochs=2 layout.dp=2 data.record=true
rows=$(sed -n 's/.* documents, \([0-9,]*\) rows.*/\1/p' "$work/epochs.out")
cat "$work"/epochs/samples/*.jsonl | sed -n 's/.*"windows":\[\([^]]*\)\].*/\1/p' | tr ',' '\n' |
    awk -v rows="$rows" '$1 >= 0 { n[$1]++ } END {
        for (i = 0; i < rows; i++) if (n[i] != 2) { print "row " i " came " n[i] + 0 " times"; exit }
        print "ok"
    }' >"$work/out"
[ "$(cat "$work/out")" = ok ] || fail "epochs: $(cat "$work/out")"

# ---- made-up documents, blends, and masked tokens ----

run made -- model.vocab=99
says made '^data    synthetic .*, packed with documents of up to 12$'
run made-cp -- model.vocab=99 layout.cp=3
close made made-cp loss
run blend -- "data.source=$work/tokens:3,$work/docs.jsonl:1" data.tokenizer=bpe:300
says blend '^data    75% .* documents, .*; 25% .* documents, '
run mlm -- model.kind=bert data.task=mlm model.vocab=99
run mlm-2 -- model.kind=bert data.task=mlm model.vocab=99 layout.dp=2
close mlm mlm-2 loss

# ---- refused ----

refused "has no separator between documents; prepare it with --separator ID" \
    data.source="$work/docs.jsonl" data.tokenizer=chars
refused "has no separator between documents" data.source="$work/docs.jsonl"
refused "lower data.seq_len" data.source="$work/tokens" data.seq_len=100000
refused "this data has no epochs" train.epochs=2 model.vocab=99

[ $failures -eq 0 ] && echo "packed documents: all as expected"
exit $((failures > 0))
