#!/usr/bin/env bash
# Calls that hardly ever fail do: the n-th allocation, the n-th call of I/O, of commands of all kinds.
# Each time the command either ends with exit code 1 and a message, or does exactly what it does
# otherwise: the same output, the same files. Checkpoints that are whole stay, under their names.
#
# A sample in `make test`, 50 times as many with TRIREME_TEST_FULL=1, and every call of each command
# with TRIREME_TEST_FULL=whole, which takes hours: what went well is kept in TRIREME_TEST_STATE, if
# that names a folder, and not done again.
# Arguments: the build directory, then the scenarios to walk (all, when none is named).
#   FAULT_SEED=7 FAULT_SAMPLES=50 bash tests/base/test_failing_calls.sh build plan have-resume
set -u
build=$1
shift
only=" $* "
trireme=$(realpath "$build")/trireme
shim=$(realpath "$build")/tests/helpers/libfault-shim.so
[ -f "$shim" ] || {
    echo "skipped: $shim was not built"
    exit 77
}
if ! LD_PRELOAD=$shim "$trireme" --version >/dev/null 2>&1; then
    echo "skipped: a sanitizer has allocations of its own"
    exit 77
fi
full=${TRIREME_TEST_FULL:-}
whole=
[ "$full" != whole ] || whole=yes
state=${TRIREME_TEST_STATE:+$TRIREME_TEST_STATE/failing-calls.done}
declare -A done_before=()
[ -z "$whole" ] || [ -z "$state" ] || [ ! -f "$state" ] ||
    while IFS= read -r line; do done_before[$line]=1; done <"$state"
[ ${#done_before[@]} -eq 0 ] || echo "${#done_before[@]} calls were done before"
told=$SECONDS
seed=${FAULT_SEED:-1}
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-faults-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
declare -A walked=([alloc]=0 [io]=0) survived=([alloc]=0 [io]=0)

root=$PWD
cat >"$work/small.yaml" <<'YAML'
model: {kind: llama, num_layers: 2, dim: 16, num_heads: 2, vocab: 256}
data: {seq_len: 8}
train: {batch: 4, steps: 4, eval_batches: 1}
run: {threads: 1, dir: run, deadline_s: 5}
ckpt: {every: 2}
YAML
for i in 1 2 3 4 5 6; do echo "{\"text\": \"the $i cats sat on the mats, and the $i hats too\"}"; done >"$work/text.jsonl"
gzip -c "$work/text.jsonl" >"$work/text.jsonl.gz"

# What of an output differs from one run to the next: times, speeds, memory. A checkpoint or a
# picture that could not be written is warned of, and the run goes on.
steady() {
    sed -E '/^warning: /d; /^step [0-9]+  writes: /d; s/, loss\.svg//; /measuring/d; /^memory/d; /^MFU is a share of/d; s/, over (shm|tcp)//
        s/[0-9.]+( [kMGT])? tokens\/s.*//; s/[0-9.]+ ?m?s(, |\b).*//; s/[0-9.]+ [KM]iB(\/s)?//' "$1"
}

# The files that a command leaves, without logs, what is drawn from them and what has times in it.
outputs() { # dir
    (cd "$1" && find . -type f ! -name '*.jsonl' ! -name '*.log' ! -name loss.svg ! -name tuning.json ! -name '*.trireme*' \
        ! -name '*lock*' ! -name '*.report.json' ! -path '*.tmp/*' ! -path '*/status/*' -print0 | sort -z | xargs -0 -r cksum)
}

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    [ -z "${FAULT_SHOW:-}" ] || {
        head -c 600 "$work/err"
        head -c 300 "$work/out"
    }
    [ "$failures" -lt 40 ] || {
        echo "too many failures"
        exit 1
    }
}

# Runs the command of a scenario in a fresh folder, which begins as given-NAME (up to the first "-");
# the environment says what is to fail.
attempt() { # scenario, then the command
    local name=$1
    shift
    rm -rf "$work/dir"
    mkdir "$work/dir"
    [ ! -d "$work/given-${name%%-*}" ] || cp -r "$work/given-${name%%-*}/." "$work/dir"
    (cd "$work/dir" && exec timeout -s KILL "${FAULT_SECONDS:-120}" env LD_PRELOAD="$shim" "$@") >"$work/out" 2>"$work/err" </dev/null
}

# So many different numbers from 1 to n, in order; all of them in the whole walk.
sample() { # n, how many, salt
    if [ -n "$whole" ] && [ -z "${FAULT_SAMPLES:-}" ]; then
        seq 1 "$1"
    else
        awk -v n="$1" -v k="${FAULT_SAMPLES:-$(($2 * ${full:+50 * }1))}" -v s="$seed$3" 'BEGIN {
            srand(s); for (i = 0; i < k; i++) print 1 + int(rand() * n) }' | sort -nu
    fi
}

# Whether every checkpoint that was there before is there still, and whole.
checkpoints_stay() { # scenario
    local step
    for step in "$work/given-${1%%-*}"/run/ckpt/step-*; do
        [ -d "$step" ] || continue
        step=${step##*/}
        [ -d "$work/dir/run/ckpt/$step" ] || {
            echo "$step is gone: $(ls "$work/dir/run/ckpt" 2>&1 | tr '\n' ' ')"
            return
        }
        "$trireme" ckpt verify "$work/dir/run/ckpt/$step" >/dev/null 2>&1 || {
            echo "$step is damaged"
            return
        }
    done
}

# Whether the differences of two lists of files are checkpoints that were warned of, and nothing else.
expected() { # output
    local missing
    missing=$(sed -n 's/^warning: the checkpoint of step \([0-9]*\) was not written.*the run goes on$/\1/p' "$1" | paste -sd '|')
    ! grep '^[<>]' | grep -qvE "^< .*/step-(${missing:-none})/"
}

judge() { # scenario, class, code, what
    local lost
    case $3 in
    0)
        if ! steady "$work/out" | cmp -s - "$work/ref.out"; then
            fail "$4: exit code 0 with another output: $(steady "$work/out" | diff "$work/ref.out" - | head -3 | tr '\n' ' ' | cut -c1-200)"
        elif ! diff "$work/ref.files" <(outputs "$work/dir") | expected "$work/out"; then
            fail "$4: exit code 0 with other files: $(diff "$work/ref.files" <(outputs "$work/dir") | head -3 | tr '\n' ' ')"
        else
            survived[$2]=$((survived[$2] + 1))
        fi
        ;;
    1) grep -q . "$work/err" || fail "$4: exit code 1 without a message" ;;
    2) # wrong input is what a user can mend: a file that may not be read, not a machine without memory
        if [ "$2" = alloc ] || [[ $4 != *EACCES* ]]; then
            fail "$4: exit code 2: $(head -c 250 "$work/err" | tr '\n' ' ')"
        fi
        ;;
    124 | 137) fail "$4: hangs" ;;
    *) fail "$4: exit code $3: $(tail -n 3 "$work/err" | tr '\n' ' ' | cut -c1-250)" ;;
    esac
    lost=$(checkpoints_stay "$1")
    [ -z "$lost" ] || fail "$4: $lost"
}

# Where the walk is; takes its variables.
progress() {
    told=$SECONDS
    echo "$name, process $process: call ${n:-none} of $num of $class; so far ${walked[alloc]} allocations and ${walked[io]} calls of I/O failed, $failures wrong"
}

# All calls, or a sample of them, of one class in one process of a scenario fail, one by one.
walk() { # scenario, class, process, samples, faults, then the command
    local name=$1 class=$2 process=$3 samples=$4 faults=$5 num n with more code list key wrong
    shift 5
    [ "$only" = "  " ] || [[ $only == *" $name "* ]] || return 0
    FAULT_CLASS=$class FAULT_REPORT=$work/report attempt "$name" "$@"
    code=$?
    [ $code = 0 ] || {
        fail "$name without faults: exit code $code: $(cat "$work/err")"
        return
    }
    steady "$work/out" >"$work/ref.out"
    outputs "$work/dir" >"$work/ref.files"
    # "rank": the fork that does most, the first of several ranks
    [ "$process" != rank ] || process=$(awk '$1 ~ /^[1-9]/ && $2 > 1.2 * most { most = $2; of = $1 } END { print of }' "$work/report")
    num=$(sed -n "s/^$process //p" "$work/report")
    [ "${num:-0}" -gt 0 ] || {
        fail "$name: process $process has no calls of $class"
        return
    }
    list=$(sample "$num" "$samples" "$process")
    for with in $faults; do
        more=${with#*:}
        [ "$more" != "$with" ] || more=1
        for n in $list; do
            key="$name $class $process $with $n"
            [ -z "${done_before[$key]:-}" ] || continue
            wrong=$failures
            FAULT_CLASS=$class FAULT_AT=$n FAULT_FOR=$more FAULT_WITH=${with%:*} FAULT_PROCESS=$process \
                FAULT_REPORT=$work/report attempt "$name" "$@"
            code=$?
            walked[$class]=$((walked[$class] + 1))
            judge "$name" "$class" $code "$name: call $n of $num of $class, process $process, $with, $(sed -n 's/^failed //p' "$work/report")"
            [ -z "$whole" ] || [ -z "$state" ] || [ $failures -gt $wrong ] || echo "$key" >>"$state"
            [ $((SECONDS - told)) -lt 30 ] || progress
        done
        # in a sample, another few calls for each fault
        [ -n "$whole" ] || list=$(sample "$num" "$samples" "$process$with")
    done
    [ -z "$full${FAULT_SAMPLES:-}" ] || progress
}

run=("$trireme" train "$work/small.yaml")
two=(--set layout.dp=2 --set run.collective=ring)
on=(--set train.steps=6 --set run.resume=auto)

# A run with checkpoints at steps 2 and 4, for those that read one; a tokenizer.
mkdir "$work/given-have" "$work/given-words"
(cd "$work/given-have" && "${run[@]}") >"$work/out" 2>&1 || {
    cat "$work/out"
    echo "FAILED: the run to go on from"
    exit 1
}
(cd "$work/given-words" && "$trireme" data tokenizer train "$work/text.jsonl" --vocab 300 --out tok.json) >"$work/out" 2>&1 ||
    {
        cat "$work/out"
        echo "FAILED: the tokenizer"
        exit 1
    }
printf 'the cats sat on the hats\n' >"$work/words.txt"
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' >"$work/order.csv"

plan=("$root/recipes/tiny.yaml" --set layout.pp=2 --set layout.microbatches=2)
reads="EIO EACCES EMFILE short"
disk="ENOSPC:1000000 EIO short slow"
[ -n "$full" ] || { reads="EIO EACCES" disk="ENOSPC:1000000 short"; }

walk plan alloc 0 3 ENOMEM "$trireme" plan "${plan[@]}" --set layout.schedule=csv:"$work/order.csv"
walk plan-ledger alloc 0 2 ENOMEM "$trireme" plan "${plan[@]}" --ledger --set layout.recompute=full
walk plan-zero alloc 0 2 ENOMEM "$trireme" plan "${plan[@]}" --set layout.dp=2 --set layout.zero=3 --set precision.kind=bf16 --set precision.linear=fp8
walk explain alloc 0 3 ENOMEM "$trireme" explain "${plan[@]}" --set layout.tp=2
walk check alloc 0 2 ENOMEM "$trireme" check "$work/small.yaml" --set layout.dp=2
walk sim alloc 0 3 ENOMEM "$trireme" sim --schedule zb-h1 --pp 4 --microbatches 6
walk sim-model alloc 0 2 ENOMEM "$trireme" sim "${plan[@]}" --device h100
walk settings alloc 0 1 ENOMEM "$trireme" settings "$work/small.yaml"
walk place alloc 0 1 ENOMEM "$trireme" place --mesh x:2,y:3 --dtype f32 'A[I:5@x, J:7@y]'
walk prepare alloc 0 3 ENOMEM "$trireme" data prepare "$work/text.jsonl.gz" --tokenizer bpe:300 --out tokens
walk words-train alloc 0 2 ENOMEM "$trireme" data tokenizer train "$work/text.jsonl" --vocab 300 --out new.json
walk words-encode alloc 0 2 ENOMEM "$trireme" data tokenizer encode "$work/words.txt" --tokenizer tok.json
walk train alloc 0 1 ENOMEM "${run[@]}"
walk train alloc rank 3 ENOMEM "${run[@]}"
walk train-samples alloc rank 1 ENOMEM "${run[@]}" --set run.sample_every=2 --set run.sample_tokens=3
walk train-two alloc 0 1 ENOMEM "${run[@]}" "${two[@]}"
walk train-two alloc rank 1 ENOMEM "${run[@]}" "${two[@]}"
walk have-resume alloc rank 3 ENOMEM "${run[@]}" "${on[@]}"
walk have-generate alloc 0 2 ENOMEM "$trireme" generate run --prompt abc --set generate.tokens=4
walk have-eval alloc 0 2 ENOMEM "$trireme" eval run --data "$work/words.txt"
walk have-inspect alloc 0 2 ENOMEM "$trireme" ckpt inspect run/ckpt/step-4
walk have-verify alloc 0 1 ENOMEM "$trireme" ckpt verify run/ckpt/step-4
walk have-diff alloc 0 1 ENOMEM "$trireme" ckpt diff run/ckpt/step-4 run/ckpt/step-4
walk have-runs alloc 0 2 ENOMEM "$trireme" runs . --json
walk have-runs-diff alloc 0 1 ENOMEM "$trireme" runs diff ./run ./run
walk have-attach alloc 0 1 ENOMEM "$trireme" runs attach ./run
walk have-plot alloc 0 1 ENOMEM "$trireme" plot ./run --draw loss.svg
walk have-hf alloc 0 2 ENOMEM "$trireme" ckpt export run --hf hf

walk plan io 0 1 "$reads" "$trireme" plan "${plan[@]}" --set layout.schedule=csv:"$work/order.csv"
walk prepare io 0 2 "$disk" "$trireme" data prepare "$work/text.jsonl.gz" --tokenizer bpe:300 --out tokens
walk words-encode io 0 1 "$reads" "$trireme" data tokenizer encode "$work/words.txt" --tokenizer tok.json
walk train io 0 1 "$disk" "${run[@]}"
walk train io rank 2 "$disk" "${run[@]}"
walk train-two io 0 1 "$disk" "${run[@]}" "${two[@]}"
walk train-two io rank 1 "$disk" "${run[@]}" "${two[@]}"
walk have-resume io rank 2 "$reads $disk" "${run[@]}" "${on[@]}"
walk have-resume-two io rank 1 "$reads" "${run[@]}" "${two[@]}" "${on[@]}"
walk have-generate io 0 1 "$reads" "$trireme" generate run --prompt abc --set generate.tokens=4
walk have-inspect io 0 1 "$reads" "$trireme" ckpt inspect run/ckpt/step-4
walk have-verify io 0 1 "$reads" "$trireme" ckpt verify run/ckpt/step-4
walk have-hf io 0 1 "$disk" "$trireme" ckpt export run --hf hf

[ $((walked[alloc] + walked[io] + ${#done_before[@]})) -gt 0 ] || fail "there is no scenario of those names:$only"
echo "${walked[alloc]} allocations failed, ${survived[alloc]} without effect; ${walked[io]} calls of I/O, ${survived[io]} without effect; $failures wrong"
[ $failures = 0 ]
