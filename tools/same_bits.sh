#!/usr/bin/env bash
# Trains with the program of an older revision and with the one here, and compares: weights byte for
# byte, losses and norms digit for digit. Four precisions, 1 to 3 threads, six layouts.
#
#   tools/same_bits.sh REV [BUILD]      # BUILD (default: build) holds the new program, as it is
#   tools/same_bits.sh PROGRAM [BUILD]  # the old program is there already, at a path with a slash
#   tools/same_bits.sh --list           # the cells
#   CELLS=fp16 tools/same_bits.sh REV   # only cells whose name contains this
#
# The old program is built once, without the GPU part, and kept in build-old/REVISION. A cell whose
# settings the old program does not know is skipped by name. Exit code 1: some cell differs or failed,
# or none was compared.
set -u
cd "$(dirname "$0")/.." || exit 2
only=${CELLS:-}

common=(run.device=cpu train.steps=20 train.eval_every=10 train.eval_batches=2 model.num_layers=4
    model.dim=64 model.num_heads=4 model.vocab=272 model.ffn_dim=192 data.seq_len=48 train.batch=8
    optim.lr=3e-3 layout.bucket_mb=0.02 run.overlap_min_kb=0)
gpt2=(model.kind=gpt2 model.dropout=0.1)
llama=(model.kind=llama model.num_kv_heads=2)

precisions=(fp32 bf16 fp16 fp8)
layouts=(one-rank dp2-zero3 tp2-sp pp2-1f1b dp4-hybrid-tp2-kv-copies pp2-zb-v-tp2)
cell() { # layout, precision, threads: fills words
    words=("${common[@]}" "run.threads=$3")
    case $2 in
    fp8) words+=(precision.kind=bf16 precision.linear=fp8) ;;
    fp16) words+=(precision.kind=fp16 precision.scale=256) ;;
    *) words+=("precision.kind=$2") ;;
    esac
    case $1 in
    one-rank) words+=("${gpt2[@]}" layout.microbatches=2) ;;
    dp2-zero3) words+=("${gpt2[@]}" layout.dp=2 layout.zero=3 layout.microbatches=2) ;;
    tp2-sp) words+=("${gpt2[@]}" layout.tp=2 layout.sp=true) ;;
    pp2-1f1b) words+=("${gpt2[@]}" layout.pp=2 layout.schedule=1f1b layout.microbatches=4) ;;
    dp4-hybrid-tp2-kv-copies)
        words+=("${llama[@]}" model.num_kv_heads=1 layout.dp=4 layout.tp=2 layout.zero=3
            layout.shard_group=2)
        ;;
    pp2-zb-v-tp2)
        words+=("${llama[@]}" layout.pp=2 layout.tp=2 layout.schedule=zb-v layout.microbatches=4
            layout.recompute=selective)
        ;;
    esac
}

die() {
    echo "same_bits.sh: $*" >&2
    exit 2
}

[ $# -ge 1 ] && [ $# -le 2 ] || die "usage: tools/same_bits.sh REV|PROGRAM [BUILD], or --list"
if [ "$1" = --list ]; then
    for layout in "${layouts[@]}"; do
        for precision in "${precisions[@]}"; do
            cell "$layout" "$precision" N
            echo "$layout,$precision: ${words[*]}"
        done
    done
    exit 0
fi
new=$(cd "${2:-build}" 2>/dev/null && pwd)/trireme
[ -x "$new" ] || die "there is no program in ${2:-build}; build it first: make"
work=$(mktemp -d /tmp/trireme-same-bits-XXXXXX)
trap 'rm -rf "$work"' EXIT

# ---- the old program ----

build_old() { # revision
    local revision
    revision=$(git rev-parse --verify --quiet "$1^{commit}") || die "there is no revision $1; git log --oneline lists them"
    old=$PWD/build-old/$revision/trireme
    [ ! -x "$old" ] || return 0
    echo "building ${revision:0:12} into build-old/ ..."
    mkdir -p "$work/tree" "${old%/*}"
    git archive "$revision" | tar -x -C "$work/tree" || die "git cannot give the files of $1"
    make -s -C "$work/tree" CUDA=no BUILD=build -j"$(nproc)" build/trireme >"$work/log" 2>&1 || {
        tail -n 20 "$work/log"
        die "$1 does not build"
    }
    cp "$work/tree/build/trireme" "$old.$$" && mv "$old.$$" "$old" || die "cannot write $old"
    rm -rf "$work/tree"
}

# A branch may have a slash in its name, too; what is executable is a program.
case $1 in
*/*) [ -f "$1" ] && [ -x "$1" ] && old=$(realpath "$1") || build_old "$1" ;;
*) build_old "$1" ;;
esac

# ---- runs ----

# Trains into $work/NAME and leaves there what is compared.
train() { # name, program, settings ...
    local dir=$work/$1 program=$2 args=() word
    shift 2
    rm -rf "$dir"
    for word in "$@"; do args+=(--set "$word"); done
    timeout 120 "$program" train "${args[@]}" --set "run.dir=$dir" >"$dir.out" 2>"$dir.err" || return
    # Numbers that do not depend on the clock; all of the steps must have them.
    awk '{
        printf "step %d:", NR
        num = split($0, field, /[{},]/)
        for (i = 1; i <= num; i++)
            if (field[i] ~ /^ *"(loss|grad_norm|eval_loss|loss_scale|skipped)":/)
                printf " %s", field[i]
        print ""
    }' "$dir/metrics.jsonl" >"$dir/losses"
    [ "$(grep -c '"loss".*"grad_norm"' "$dir/losses")" -eq 20 ] && [ -s "$dir/weights.safetensors" ]
}

# What differs, in words; nothing when all is equal.
difference() {
    local line byte
    if ! line=$(diff "$work/old/losses" "$work/new/losses"); then
        echo "losses: was $(sed -n 's/^< //p' <<<"$line" | head -n 1), is $(sed -n 's/^> //p' <<<"$line" | head -n 1)"
    elif ! cmp -s "$work/old/weights.safetensors" "$work/new/weights.safetensors"; then
        byte=$(cmp -l "$work/old/weights.safetensors" "$work/new/weights.safetensors" 2>&1 | wc -l)
        echo "weights: $byte bytes differ"
    fi
}

equal=0
bad=()
skipped=()
start=$SECONDS
echo "old: $old"
echo "new: $new"
printf '%-26s %-7s' layout threads
printf ' %-8s' "${precisions[@]}"
echo
for layout in "${layouts[@]}"; do
    for threads in 1 2 3; do
        row=
        for precision in "${precisions[@]}"; do
            name=$layout,$precision,$threads
            word=-
            case $name in *"$only"*)
                cell "$layout" "$precision" "$threads"
                train old "$old" "${words[@]}"
                was=$?
                train new "$new" "${words[@]}"
                is=$?
                if [ $was -eq 2 ] && [ $is -eq 0 ]; then
                    word=skipped
                    skipped+=("$name: the old program says: $(tail -n 1 "$work/old.err")")
                elif [ $was -ne 0 ] || [ $is -ne 0 ]; then
                    word=FAILED
                    bad+=("$name: exit codes $was and $is: $(tail -qn 1 "$work/old.err" "$work/new.err" | tr '\n' ' ')")
                elif what=$(difference) && [ -n "$what" ]; then
                    word=DIFFERS
                    bad+=("$name: $what")
                else
                    word=equal
                    equal=$((equal + 1))
                fi
                ;;
            esac
            row+=$(printf ' %-8s' "$word")
        done
        case $row in *[a-zA-Z]*) printf '%-26s %-7s%s\n' "$layout" "$threads" "$row" ;; esac
    done
done

[ ${#skipped[@]} -eq 0 ] || printf 'skipped: %s\n' "${skipped[@]}"
[ ${#bad[@]} -eq 0 ] || printf 'differs: %s\n' "${bad[@]}"
echo "$equal equal, ${#bad[@]} differ, ${#skipped[@]} skipped, in $((SECONDS - start)) s"
[ ${#bad[@]} -eq 0 ] && [ $equal -gt 0 ]
