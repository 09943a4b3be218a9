#!/usr/bin/env bash
# Tokenizers, ours beside Hugging Face's in one run: encoding on one core, training on all. Ids and
# merges are compared too. The peer is used when some python has it (set PYTHON):
#
#   python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers
#   PYTHON=/tmp/venv/bin/python bench/tokenizer.sh BUILD
#
# Texts and GPT-2's vocabulary come from ../shared/fixtures (or $FIXTURES).
set -u
build=${1:-build}
fixtures=${FIXTURES:-../shared/fixtures}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trireme=$build/trireme
small=$fixtures/text/tinyshakespeare.txt
large=$fixtures/text/sotu.txt
[ -f "$large" ] || {
    echo "no texts in $fixtures: set FIXTURES"
    exit 0
}
peer=no
"$python" -c 'import tokenizers' 2>/dev/null && peer=yes
[ $peer = yes ] || echo "(no Hugging Face tokenizers found: set PYTHON; our figures alone)"
export TOKENIZERS_PARALLELISM=false

speed() { # tokenizer, text, threads: the best of five, in MB/s
    for _ in 1 2 3 4 5; do
        "$trireme" data tokenizer encode --tokenizer "$1" --count --set run.threads="$3" "$2"
    done | sed -n 's/.*, \([0-9.]*\) MB\/s/\1/p' | sort -g | tail -n 1
}

encode() { # name, tokenizer (ours), tokenizer.json (theirs), text
    local ours theirs two
    ours=$(speed "$2" "$4" 1)
    two=$(speed "$2" "$4" 2)
    if [ $peer = yes ]; then
        theirs=$("$python" bench/peers/hf_tokenizers.py encode "$3" "$4" 2 "$work/theirs")
        "$trireme" data tokenizer encode --tokenizer "$2" "$4" >"$work/ours"
        awk -v n="$1" -v o="$ours" -v t="$theirs" -v w="$two" \
            -v s="$(cmp -s "$work/ours" "$work/theirs" && echo same || echo DIFFERENT)" 'BEGIN {
            printf "encode %-18s ours %6.1f MB/s (two threads %6.1f)   peer %5.2f MB/s   ratio %.1f   %s ids\n",
                n, o, w, t, o / t, s }'
    else
        printf 'encode %-18s ours %6.1f MB/s (two threads %6.1f)\n' "$1" "$ours" "$two"
    fi
}

train() { # name, text, vocabulary
    local ours theirs
    ours=$("$trireme" data tokenizer train "$2" --vocab "$3" --out "$work/ours.json" |
        sed -n 's/.*trained in \([0-9.]*\) s/\1/p')
    if [ $peer = yes ]; then
        theirs=$(TOKENIZERS_PARALLELISM=true "$python" bench/peers/hf_tokenizers.py train "$2" "$3" "$work/theirs.json")
        same=$(
            "$python" - "$work" <<'PY'
import json, sys
a, b = (json.load(open(f"{sys.argv[1]}/{n}.json"))["model"] for n in ("ours", "theirs"))
pairs = lambda m: [tuple(x.split(" ")) if isinstance(x, str) else tuple(x) for x in m["merges"]]
print("same" if pairs(a) == pairs(b) and a["vocab"] == b["vocab"] else "DIFFERENT", len(a["merges"]))
PY
        )
        awk -v n="$1" -v o="$ours" -v t="$theirs" -v s="$same" 'BEGIN {
            split(s, part, " ")
            printf "train  %-18s ours %6.2f s   peer %6.2f s   ratio %.1f   %s %d merges\n",
                n, o, t, t / o, part[1], part[2] }'
    else
        printf 'train  %-18s ours %6.2f s\n' "$1" "$ours"
    fi
}

[ $peer = yes ] && "$python" bench/peers/hf_tokenizers.py gpt2 "$fixtures/gpt2" "$work/gpt2.json"
encode "gpt2, 10.7 MB" "$fixtures/gpt2" "$work/gpt2.json" "$large"
for name in llama3 qwen llama2 wordpiece; do
    file=tests/fixtures/tokenizer_$name.json
    encode "$name, 1.1 MB" "$file" "$file" "$small"
done
train "4,096 of 1.1 MB" "$small" 4353
train "32,000 of 10.7 MB" "$large" 32257
