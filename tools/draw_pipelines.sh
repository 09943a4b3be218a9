#!/usr/bin/env bash
# Draws the pictures of docs/pipelines.md. Arguments: the program, and the folder (docs/pipelines).
set -eu
trireme=$1
folder=${2:-docs/pipelines}
for name in gpipe 1f1b interleaved 1f1b-v zb-h1 zb-h2 zb-v v-half v-min chimera dualpipe dualpipev \
    gems pipedream pipedream-2bw; do
    "$trireme" sim --schedule $name --pp 4 --microbatches 8 --draw "$folder/$name.svg" >/dev/null
done
"$trireme" sim --schedule 1f1b --pp 4 --microbatches 8 --cost F=1,I=1,W=1,comm=0.5 \
    --draw "$folder/1f1b-messages.svg" >/dev/null
"$trireme" sim --schedule dualpipe --pp 4 --microbatches 8 --cost F=1,I=1,W=1,FB=2.5 \
    --draw "$folder/dualpipe-overlap.svg" >/dev/null
