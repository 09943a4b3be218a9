#!/usr/bin/env bash
# What bash and zsh complete commands of trireme to, with the scripts that the program prints.
# Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
root=$PWD
tmp=$(mktemp -d "${TMPDIR:-/tmp}/trireme-words-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

"$trireme" completion bash >bash.sh && "$trireme" completion zsh >zsh.sh || fail "no script is printed"
# shellcheck disable=SC1091
. ./bash.sh
complete -p trireme >complete.txt 2>&1 && grep -q -- '-F _trireme trireme' complete.txt ||
    fail "the script does not register itself"

# Two runs, a file and a directory of Hugging Face's kind.
mkdir -p recipes runs/first 'runs/a b' model
for run in first 'a b'; do
    touch "runs/$run/metrics.jsonl" "runs/$run/events.jsonl"
done
cp "$root/recipes/tiny.yaml" recipes/mine.yaml
touch text.txt

# completes LINE: COMPREPLY for a line with the cursor at its end, divided as bash does.
completes() {
    checks=$((checks + 1))
    COMP_LINE=$1 COMP_POINT=${#1}
    COMP_WORDBREAKS=${breaks-$' \t\n"\'><=;|&(:'}
    local apart=$1 mark
    for mark in = :; do
        [[ $COMP_WORDBREAKS == *$mark* ]] && apart=${apart//$mark/ $mark }
    done
    read -ra COMP_WORDS <<<"$apart"
    [[ $1 == *' ' ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=("nothing was done")
    _trireme
}

# gives LINE WORD ...: WORDs are among what a line is completed to; none: nothing is.
gives() {
    local line=$1 word
    shift
    completes "$line"
    [ $# -gt 0 ] || [ ${#COMPREPLY[@]} -eq 0 ] || fail "\"$line\" gives ${COMPREPLY[*]}"
    for word in "$@"; do
        [[ $'\n'$(printf '%s\n' "${COMPREPLY[@]}")$'\n' == *$'\n'$word$'\n'* ]] ||
            fail "\"$line\" does not give $word but ${COMPREPLY[*]}"
    done
}

# only LINE WORD ...: exactly these, in this order.
only() {
    local line=$1
    shift
    completes "$line"
    [ "${COMPREPLY[*]}" = "$*" ] || fail "\"$line\" gives \"${COMPREPLY[*]}\", not \"$*\""
}

# Every verb and every flag that --help has.
verbs=$("$trireme" --help | awk '/^Usage/ { on = 1; next } /^First/ { exit } on && NF { print $1 }')
[ "$(wc -w <<<"$verbs")" -gt 10 ] || fail "--help lists few verbs: $verbs"
# shellcheck disable=SC2086
gives "$trireme " $verbs help --help --version
for verb in $verbs; do
    flags=$("$trireme" "$verb" --help all | awk '/^Settings/ { exit } $1 ~ /^--/ { print $1 }')
    # shellcheck disable=SC2086
    only "$trireme $verb --" $flags
done
only "$trireme tra" train
only "$trireme nonsense "
only "$trireme help ge" generate

# Settings and their values. Bash replaces what stands behind the last '=' or ':'.
gives "$trireme train --set " model.kind= optim.lr= run.dir= ckpt.every=
only "$trireme train --set optim.sch" optim.schedule=
only "$trireme train --set optim.schedule=" constant linear cosine wsd
only "$trireme train --set optim.schedule=c" constant cosine
only "$trireme train tiny --set optim.lr=1 --set run.resume=" false true auto
only "$trireme train --set run.overlap=t" true
# shellcheck disable=SC2046
only "$trireme train --set layout.schedule=" $("$trireme" sim --list | awk '/^  [a-z0-9]/ && $1 != "csv:FILE" && $1 != "needs" { print $1 }')
only "$trireme train --set layout.schedule=zb-" zb-h1 zb-h2 zb-v
only "$trireme train --set model.preset=gpt2-12" gpt2-124m
only "$trireme train --set optim.lr=" # a number is for people to choose
only "$trireme train --set data.source=te" text.txt
only "$trireme train --set=optim.schedule=w" wsd
only "$trireme generate --set optim.sch" # generate reads no such setting
breaks=$' \t\n' only "$trireme train --set optim.schedule=w" optim.schedule=wsd
breaks=$' \t\n' only "$trireme train --set data.source=te" data.source=text.txt
breaks=$' \t\n:' only "$trireme train --set optim.schedule=w" optim.schedule=wsd

# Operands: recipes, runs, files, words.
only "$trireme train mi" mine
gives "$trireme train " mine text.txt runs
only "$trireme train mine "
only "$trireme train --name x mi" mine
only "$trireme train -- mi" mine
only "$trireme plot runs/f" runs/first
gives "$trireme plot runs/first " runs/first 'runs/a b'
only "$trireme generate runs/f" runs/first
gives "$trireme runs " diff stop rm runs
gives "$trireme runs stop " runs/first
only "$trireme runs diff t" text.txt
only "$trireme ckpt " inspect verify diff export
only "$trireme data tokenizer " train encode decode inspect
only "$trireme data tokenizer encode te" text.txt
only "$trireme completion " bash zsh
gives "$trireme settings opt" optim optim.lr
gives "$trireme man " train plot

# Values of flags.
only "$trireme sim --schedule zb-" zb-h1 zb-h2 zb-v
only "$trireme sim --schedule=zb-v" zb-v
only "$trireme sim --trace runs/f" runs/first
only "$trireme ckpt export runs/first --hf mo" model
only "$trireme eval --data te" text.txt
only "$trireme train --name "
gives "$trireme place --device h1" h100

# The cursor may stand inside the line, and a word may be quoted.
line="$trireme train --set optim.schedule=w"
COMP_LINE="${line}xx --resume" COMP_POINT=${#line} COMP_CWORD=5
COMP_WORDS=("$trireme" train --set optim.schedule "=" wxx --resume)
_trireme
[ "${COMPREPLY[*]}" = wsd ] || fail "within a line: ${COMPREPLY[*]}"
only "$trireme train --set 'optim.schedule=w" wsd

# What is wrong is told.
"$trireme" completion fish >/dev/null 2>err && fail "completion fish is no error"
grep -q 'name one shell, bash or zsh' err || fail "completion fish: $(cat err)"

# typed SHELL FILE: a line typed at a shell's prompt, with tabs in it, does what was meant.
typed() {
    checks=$((checks + 1))
    printf '%s\n' "$2" $'trireme settings --set optim.sch\tcos\t --set layout.schedule=zb-\tv >typed.yaml' exit |
        PATH=$build_dir:$PATH TERM=dumb timeout 20 script -qec "$1" /dev/null >typed.out 2>&1
    grep -q 'schedule: .*cosine' typed.yaml && grep -q 'schedule: .*zb-v' typed.yaml ||
        fail "$1 completes otherwise: $(tail -n 5 typed.out)"
    rm -f typed.yaml
}
build_dir=$(dirname "$trireme")
if ! command -v script >/dev/null; then
    echo "skipped: lines typed at a prompt (there is no \`script\` here)"
else
    typed "bash --norc --noprofile -i" ". ./bash.sh"
    if command -v zsh >/dev/null; then
        typed "zsh -f -i" "autoload -U compinit; compinit -D -u; . ./zsh.sh"
    else
        echo "skipped: completion in zsh (it is not installed)"
    fi
fi

echo "$checks checks, $failures failures"
[ $failures -eq 0 ]
