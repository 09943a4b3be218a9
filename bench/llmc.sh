#!/usr/bin/env bash
# A training step of GPT-2 124M on the CPU, fp32, ours beside llm.c's train_gpt2 in one run:
#
#   git clone https://github.com/karpathy/llm.c
#   LLMC=llm.c bench/llmc.sh BUILD [64|256]      one sequence length only
#
# llm.c is built as its Makefile does, from a copy in which three numbers are changed that it has no
# options for: the sequence length, the number of steps, and the batches of an evaluation that is not
# timed. Its weights and tokens are made up (bench/peers/llmc_inputs.py; PYTHON names a Python with
# numpy). The two take turns, ROUNDS times (2), on THREADS threads. A figure is the best of the
# rounds' medians, for both; the first step of a round does not count.
set -u
build=${1:-build}
only=${2:-}
llmc=${LLMC:-}
python=${PYTHON:-python3}
threads=${THREADS:-$(nproc)}
rounds=${ROUNDS:-2}
batch=4
here=$(cd "$(dirname "$0")" && pwd)

fail() {
    echo "$*" >&2
    exit 2
}
[ -x "$build/trireme" ] || fail "$build/trireme is missing; type make first"
[ -n "$llmc" ] || fail "say where a checkout of llm.c is: LLMC=path/to/llm.c bench/llmc.sh $build"
[ -f "$llmc/train_gpt2.c" ] || fail "there is no train_gpt2.c in $llmc; LLMC names a checkout of llm.c"
case $only in '' | 64 | 256) ;; *) fail "the length is 64 or 256, not $only" ;; esac
"$python" -c 'import numpy' 2>/dev/null || fail "$python has no numpy; set PYTHON to one that has"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" "$here/peers/llmc_inputs.py" "$work" || exit 1

change() { # file, what stands there, what shall: exactly once
    [ "$(grep -cF "$2" "$1")" = 1 ] ||
        fail "\"$2\" is not in $llmc/train_gpt2.c, or more than once; this script knows llm.c of 2024 and 2025"
    sed -i "s/$2/$3/" "$1"
}

build_peer() { # length, steps
    local dir=$work/$1
    mkdir -p "$dir"
    cp -r "$llmc/Makefile" "$llmc/llmc" "$llmc/train_gpt2.c" "$dir/" || exit 1
    change "$dir/train_gpt2.c" "int B = 4;" "int B = $batch;"
    change "$dir/train_gpt2.c" "int T = 64;" "int T = $1;"
    change "$dir/train_gpt2.c" "step <= 40;" "step < $2;"
    change "$dir/train_gpt2.c" "int val_num_batches = 5;" "int val_num_batches = 1;"
    make -C "$dir" train_gpt2 >"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        fail "llm.c could not be built from $llmc"
    }
    ln -s ../gpt2_124M.bin ../dev "$dir/"
}

median() { sort -g | awk '{ a[NR] = $1 } END { if (NR) print (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'; }

ours() { # length, steps: milliseconds of the median step
    "$build/trireme" bench --json --steps "$2" --set run.device=cpu --set run.threads="$threads" --set train.batch=$batch \
        --set model.preset=gpt2-124m --set data.seq_len="$1" | sed -n 's/.*"ms": *\([0-9.]*\).*/\1/p' | tail -n 1
}

theirs() { # length
    (cd "$work/$1" && OMP_NUM_THREADS=$threads ./train_gpt2) |
        sed -n 's/^step [1-9][0-9]*: .*(took \([0-9.]*\) ms).*/\1/p' | median
}

compare() { # length, timed steps
    [ -z "$only" ] || [ "$only" = "$1" ] || return 0
    build_peer "$1" $(($2 + 1))
    for ((round = 0; round < rounds; round++)); do
        echo "$(ours "$1" "$2") $(theirs "$1")"
    done | awk -v tokens=$((batch * $1)) -v name="gpt2-124m ${batch}x$1" '
        NF == 2 && (!n || $1 < ours) { ours = $1 }
        NF == 2 && (!n || $2 < theirs) { theirs = $2 }
        NF == 2 { n++ }
        END {
            if (!n) { print name ": no figures"; exit 1 }
            printf "%-16s ours %8.1f tok/s (%.0f ms)   llm.c %8.1f tok/s (%.0f ms)   ratio %.2f\n", name,
                1000 * tokens / ours, ours, 1000 * tokens / theirs, theirs, theirs / ours
        }'
}

compare 64 4
compare 256 2
