#!/usr/bin/env bash
# Draws the pictures of docs/context.md. Arguments: the program, and the folder (docs/context).
set -eu
trireme=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
folder=${2:-docs/context}
mkdir -p "$folder"
data=$(mktemp -d "${TMPDIR:-/tmp}/trireme-context-XXXXXX")
trap 'rm -rf "$data"' EXIT

# How rows are dealt out: one document; eight, each a file of so many bytes; a window.
deal() {
    local name=$1
    shift
    "$trireme" explain recipes/tiny.yaml --set layout.cp=4 "$@" --deal --draw "$folder/$name.svg" >/dev/null
}
number=0
for bytes in 700 120 60 300 40 500 90 239; do
    number=$((number + 1))
    printf "%${bytes}s" "" >"$data/$number.txt"
done
deal deal-one --set data.seq_len=1024
deal deal-documents --set data.source="$data" --set data.seq_len=2048 --set data.eval_fraction=0 \
    --set data.mask_documents=true --set train.batch=1
deal deal-window --set model.kind=llama --set model.dropout=0 --set model.window=128 --set data.seq_len=1024

head='<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif">
<style>.h{font-size:14px;font-weight:bold;fill:#1c2128}.k{font-size:12px;fill:#2b313b}.t{font-size:12px;text-anchor:middle;fill:#2b313b}.e{font-size:12px;text-anchor:end;fill:#2b313b}.w{font-size:12px;text-anchor:middle;fill:#ffffff}</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8Z" fill="#4a5361"/></marker></defs>
<rect width="100%%" height="100%%" fill="#ffffff"/>
'

# The ring: which piece of the keys each rank has at each step.
awk -v head="$head" 'BEGIN {
    split("#2f6fc0 #b5650b #2f8f57 #8a4fb0", colour, " ")
    left = 100; top = 58; w = 150; h = 40; gap = 76; between = 22; n = 4
    width = left + n * w + (n - 1) * gap + 24; height = top + n * (h + between) + 34
    printf head, width, height, width, height
    for (s = 0; s < n; s++) {
        x = left + s * (w + gap)
        printf "<text x=\"%d\" y=\"%d\" class=\"h\" text-anchor=\"middle\">step %d</text>\n", x + w / 2, top - 16, s
        for (r = 0; r < n; r++) {
            y = top + r * (h + between); piece = (r - s + n) % n
            if (s == 0)
                printf "<text x=\"%d\" y=\"%d\" class=\"e\">rank %d</text>\n", left - 12, y + h / 2 + 4, r
            printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\" fill=\"%s\"/>", x, y, w, h, colour[piece + 1]
            printf "<text x=\"%d\" y=\"%d\" class=\"w\">queries %d, keys %d</text>\n", x + w / 2, y + h / 2 + 4, r, piece
            if (s + 1 < n) {
                to = top + ((r + 1) % n) * (h + between) + h / 2
                printf "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#4a5361\" stroke-width=\"1.2\"%s marker-end=\"url(#a)\"/>\n", x + w + 3, y + h / 2, x + w + gap - 3, to, r == n - 1 ? " stroke-dasharray=\"5 3\"" : ""
            }
        }
    }
    printf "<text x=\"%d\" y=\"%d\" class=\"k\">colour: whose keys and values; arrow: they pass to the next rank while this one attends to them; dashed: from the last rank to the first</text>\n</svg>\n", left, height - 14
}' >"$folder/ring.svg"

# What a rank has of tokens and heads, outside of attention and within.
awk -v head="$head" 'BEGIN {
    split("#2f6fc0 #e08a1e #2f8f57 #8a4fb0", colour, " ")
    split("outside of attention|ring, gather|ulysses|ring, cp_heads=2", title, "|")
    split("its tokens, all heads|queries stay; keys come|all tokens, its heads|a half of each", what, "|")
    left = 64; top = 74; cell = 36; n = 4; side = n * cell; gap = 66
    width = left + 4 * side + 3 * gap + 30; height = top + side + 60
    printf head, width, height, width, height
    for (m = 0; m < 4; m++) {
        x = left + m * (side + gap)
        printf "<text x=\"%d\" y=\"24\" class=\"h\">%s</text><text x=\"%d\" y=\"42\" class=\"k\">%s</text>\n", x, title[m + 1], x, what[m + 1]
        printf "<text x=\"%d\" y=\"%d\" class=\"t\">tokens</text>\n", x + side / 2, top - 10
        printf "<text class=\"t\" transform=\"translate(%d %d) rotate(-90)\">heads</text>\n", x - 10, top + side / 2
        for (t = 0; t < n; t++)
            for (a = 0; a < n; a++) {
                rank = m < 2 ? t : m == 2 ? a : int(t / 2) * 2 + int(a / 2)
                printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"#ffffff\"/>\n", x + t * cell, top + a * cell, cell, cell, colour[rank + 1]
            }
    }
    for (r = 0; r < n; r++)
        printf "<rect x=\"%d\" y=\"%d\" width=\"13\" height=\"13\" fill=\"%s\"/><text x=\"%d\" y=\"%d\" class=\"k\">rank %d</text>\n", left + r * 90, top + side + 26, colour[r + 1], left + r * 90 + 19, top + side + 37, r
    print "</svg>"
}' >"$folder/heads.svg"
