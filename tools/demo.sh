#!/usr/bin/env bash
# Trains the demo recipe on text that every Debian machine has, and lets the model write.
set -eu
trireme=$1
echo
echo "A small GPT learns to write from the licence texts on this machine. It makes its own tokenizer"
echo "first: what occurs often becomes a token."
echo
"$trireme" train recipes/demo.yaml
echo
echo "How its tokenizer cuts a text into tokens (_ is a space):"
echo
printf 'You may redistribute this program.' |
    "$trireme" data tokenizer inspect --tokenizer runs/demo - | awk '{ printf "  %s", $2 } END { print "" }' | sed 's/Ġ/_/g'
echo
echo "What the model writes now, after the first words of each:"
for prompt in "Everyone is permitted" "You may copy" "You must"; do
    echo
    "$trireme" generate runs/demo --set generate.tokens=60 --set generate.prompt="$prompt"
done
echo
echo "Next: $trireme explain recipes/tiny.yaml shows the program behind a step,"
echo "      $trireme train recipes/demo.yaml --set data.source=YOUR.txt trains on your own text,"
echo "      $trireme --help lists the rest."
