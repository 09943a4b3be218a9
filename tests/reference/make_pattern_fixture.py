"""Makes tests/fixtures/pretokenized.json: what pre-tokenizers and normalizers of Hugging Face
tokenizers make of a few texts.

    pip install tokenizers
    python tests/reference/make_pattern_fixture.py
"""
import json
import os
import random

from tokenizers import Tokenizer, models

import compare_tokenizers as known

TEXTS = [
    "It's 12,345.67; they've DON'T\tGo\n\n  x  \r\n Hello_World’s K-ſ",
    "ied 4 ½ months, हिन्दी १२३ किताब, ไทย ภาษา",
    "中文没有空格。１２ カタカナとひらがな한국어 Ёлки №5 مُحَمَّد ١٢",
    "straße STRASSE Straſſe ﬆ K Å ² ³ ⅷ ① a\u200db 👨\u200d👩 é e\u0301",
    # Unicode 15, 15.1, 16 and 17: letters, marks, digits, ideographs
    "a\U00031350b\U0002ebf0 \U00010d50\U00010d72\ua7cb\ua7dc1\u0897x\U00011de0\U00010d40\U0001e5f1 \U00016d68",
]


def pre_tokenizers():
    r = random.Random(0)
    for i, pattern in enumerate(known.SMALL):
        yield known.split(r, pattern, known.BEHAVIOURS[i % 5], i % 7 == 6)
    patterns = [known.GPT2, known.LLAMA3, known.QWEN, known.CL100K, known.O200K, known.KIMI, known.BLOOM, known.DEEPSEEK]
    for pattern in patterns:
        yield known.split(r, pattern, "Isolated", False)
        yield known.split(r, pattern, "Removed", True)
    letters = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    digits, space = {"type": "Digits", "individual_digits": True}, {"type": "Whitespace"}
    meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    yield from [letters, digits, space, meta, {"type": "BertPreTokenizer"}, {"type": "WhitespaceSplit"}]
    for behaviour in known.BEHAVIOURS:
        yield {"type": "Punctuation", "behavior": behaviour}
    for steps in ([letters, digits], [letters, space], [letters, letters], [space, meta], [letters, meta],
                  [{"type": "Punctuation", "behavior": "Contiguous"}, {**letters, "add_prefix_space": False},
                   {"type": "Digits", "individual_digits": False}, known.split(r, "[0-9][0-9][0-9]", "Isolated", False)]):
        yield {"type": "Sequence", "pretokenizers": steps}


def normalizers():
    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "ByteLevel"):
        yield {"type": name}
    yield {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    for pattern in (r"\b", r"x?", r"\p{L}(?=\p{M})", r"(?<=\d)(?=\D)", r"\s+"):
        yield {"type": "Replace", "pattern": {"Regex": pattern}, "content": "§"}


def load(**parts):
    config = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
              "pre_tokenizer": None, "post_processor": None, "decoder": None,
              "model": {"type": "BPE", "vocab": {}, "merges": []}, **parts}
    return Tokenizer.from_str(json.dumps(config))


def main():
    out = {"texts": TEXTS, "pre_tokenizers": [], "normalizers": []}
    for pre in pre_tokenizers():
        try:
            step = load(pre_tokenizer=pre).pre_tokenizer
        except BaseException:
            continue  # Oniguruma itself refuses it
        out["pre_tokenizers"].append({"of": pre, "pieces": [[p for p, _ in step.pre_tokenize_str(t)] for t in TEXTS]})
    for normalizer in normalizers():
        step = load(normalizer=normalizer).normalizer
        out["normalizers"].append({"of": normalizer, "texts": [step.normalize_str(t) for t in TEXTS]})
    path = os.path.join(known.ROOT, "tests", "fixtures", "pretokenized.json")
    with open(path, "w") as file:
        lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in out["pre_tokenizers"])
        more = ",\n".join(json.dumps(c, ensure_ascii=False) for c in out["normalizers"])
        file.write('{"texts": %s,\n"pre_tokenizers": [\n%s\n],\n"normalizers": [\n%s\n]}\n'
                   % (json.dumps(TEXTS, ensure_ascii=False), lines, more))


if __name__ == "__main__":
    main()
