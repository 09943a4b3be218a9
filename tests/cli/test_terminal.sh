#!/usr/bin/env bash
# What files and users write does not reach the terminal as commands, and logs of ranks are written
# to files of ours only. Argument: the build directory.
set -u
trireme=$1/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-terminal-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
esc=$(printf '\033')

# A tensor and metadata with escape sequences (JSON's \u001b) and a right-to-left override.
header='{"__metadata__":{"who\u001b[31m":"\u001b]0;owned\u0007\r\u202egnp"},"w\u001b[2J\u009b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
{
    printf "\\x$(printf %02x ${#header})\0\0\0\0\0\0\0"
    printf '%s\0\0\0\0' "$header"
} >"$work/x.safetensors"
"$trireme" ckpt inspect "$work/x.safetensors" >"$work/out" 2>&1 || fail "inspect: $(cat "$work/out")"
grep -qF 'w\x1b[2J\u009b' "$work/out" || fail "the name of the tensor is not shown spelt out: $(cat -v "$work/out")"
grep -qF 'who\x1b[31m = \x1b]0;owned\x07\x0d\u202egnp' "$work/out" || fail "metadata: $(cat -v "$work/out")"
grep -q "$esc" "$work/out" && fail "an escape sequence of a file reached the terminal"
# In a message.
"$trireme" train recipes/tiny.yaml --set model.from="$work/${esc}[31m.safetensors" >"$work/out" 2>&1
[ $? -eq 2 ] && grep -qF '\x1b[31m.safetensors' "$work/out" || fail "a name in a message: $(cat -v "$work/out")"
grep -q "$esc" "$work/out" && fail "an escape sequence in a message reached the terminal"
# What is text stays as it is.
"$trireme" train recipes/tiny.yaml --set model.from="$work/größe 数.safetensors" 2>&1 | grep -q "größe 数.safetensors" ||
    fail "letters of other scripts are spelt out"

# Logs: a link is not followed, and a file with another name is not emptied.
mkdir -p "$work/run/log"
echo precious >"$work/precious"
echo precious >"$work/linked"
ln -s "$work/precious" "$work/run/log/rank-0.log"
ln "$work/linked" "$work/run/log/rank-1.log"
start() {
    "$trireme" train recipes/tiny.yaml --set layout.dp=2 --set train.steps=1 --set run.save=false \
        --set run.dir="$work/run" --set run.resume="$1" >"$work/out" 2>&1
}
start auto
code=$?
[ "$(cat "$work/precious")" = precious ] || fail "the log went to where a link led"
[ "$(cat "$work/linked")" = precious ] || fail "a file with a second name was emptied"
[ $code -ne 0 ] && grep -q "rank-0.log: cannot be written: it is a symbolic link" "$work/out" ||
    fail "a link in the place of a log: $code, $(tail -n 1 "$work/out")"

# Records of a run that goes on: the same.
go_on() {
    "$trireme" train recipes/tiny.yaml --set train.steps="$1" --set ckpt.every=1 --set run.save=false \
        --set run.dir="$work/on" --set run.resume=auto >"$work/out" 2>&1
}
go_on 1 || fail "a run with a checkpoint: $(tail -n 1 "$work/out")"
rm "$work/on/events.jsonl"
ln -s "$work/precious" "$work/on/events.jsonl"
go_on 2
rm "$work/on/metrics.jsonl"
ln -s "$work/precious" "$work/on/metrics.jsonl"
go_on 3
[ "$(cat "$work/precious")" = precious ] || fail "a record went to where a link led"
[ $failures -eq 0 ]
