#!/usr/bin/env bash
# Trains the demo recipe on text that every Debian machine has, and lets the model write.
set -eu
trireme=$1
echo
echo "A small GPT learns to write, byte by byte, from the licence texts on this machine."
echo
"$trireme" train recipes/demo.yaml
echo
echo "What it writes now, after the words of the prompt:"
echo
"$trireme" generate runs/demo --set generate.tokens=400
echo
echo "Next: $trireme explain recipes/tiny.yaml shows the program behind a step,"
echo "      $trireme train recipes/demo.yaml --set data.source=YOUR.txt trains on your own text,"
echo "      $trireme --help lists the rest."
