"""Random tokenizers, ours beside Hugging Face tokenizers: ids and decoded text.

    pip install tokenizers
    make build/tests/helpers/encode_texts
    python tests/reference/compare_tokenizers.py [--configs 30] [--texts 5000] [--seed N] [--keep DIR]

Each configuration is made from the seed and its number: normalizers, pre-tokenizers (the patterns of
known models and small ones among them), a model trained on part of the texts, added tokens, a
decoder. The texts are of all scripts. Each configuration must give equal ids, or be refused with its
reason; texts that we refuse one by one (a character without a token) are counted.
With --known the patterns of known models are run, each for itself.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, models, trainers
from tokenizers.pre_tokenizers import Split

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# ---- texts ----

SAMPLES = """The quick brown fox jumps over the lazy dog. It's 12,345.67 and they've said: "DON'T!"
I'm sure we'll go; he'd been to 'S-Hertogenbosch.\tTabs\tand  two spaces   three
def f(x):\n    return x**2 + 1  # comment\n\n\nclass A(object):\n\tpass\r\n
हिन्दी में लिखा हुआ एक वाक्य, और १२३ अंक।
ภาษาไทยไม่มีช่องว่างระหว่างคำ ๑๒๓
中文没有空格。人工智能，機器學習！１２３４
日本語のテキストです。カタカナとひらがな、漢字ー〜
한국어 문장입니다. 안녕하세요?
Привет, как дела? Ёлки-палки №5
العربية لغة جميلة، ١٢٣ والتشكيل: مُحَمَّد
עברית עם נִקּוּד
Ελληνικά κείμενα: ΟΔΥΣΣΕΥΣ, ὀδός
Größe, Straße, İstanbul, ıspanak, naïve café, ſ ß ﬁ ﬆ Ω K Å
😀👍🏽👨‍👩‍👧‍👦🇩🇪❤️ ½ ⅔ ² Ⅷ ① ㊗ ➀ ﷽
ied 4 ½ months of 3½ years 1990s 2nd 10km a1b2
\u200bzero\u200dwidth\u2060joiners\ufeff and\u00a0nbsp\u3000ideographic\u2028line
tiếng Việt có dấu, Tiếng Việt
ქართული ᲥᲐᲠᲗᲣᲚᲘ ՀԱՅԵՐԵՆ հայերեն አማርኛ ᏣᎳᎩ
https://example.com/a?b=c&d=%20e#f user@mail.org C:\\Windows\\x.exe
$100 €5 £3 ¥7 ₿ + - = < > ~ ` ^ _ | { } [ ] ( ) @ # % & *
'S 'T 'RE 'VE 'M 'LL 'D 's 't 're 've 'm 'll 'd 'ſ ’s
    \n\n   \n \r\n\r\n  x  \n
""".split("\n")
SAMPLES = [s for s in SAMPLES if s]

BLOCKS = [(0x20, 0x7F), (0x80, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x530, 0x6FF), (0x700, 0x8FF),
          (0x900, 0xDFF), (0xE00, 0x10FF), (0x1100, 0x139F), (0x1400, 0x18AF), (0x18B0, 0x1CFF),
          (0x1D00, 0x1FFF), (0x2000, 0x2BFF), (0x2C00, 0x2FFF), (0x3000, 0x33FF), (0x3400, 0x4DFF),
          (0x4E00, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7FF), (0xE000, 0xE0FF), (0xF900, 0xFFFF),
          (0x10000, 0x10FFF), (0x11000, 0x11FFF), (0x12000, 0x16FFF), (0x17000, 0x1BFFF),
          (0x1C000, 0x1DFFF), (0x1E000, 0x1F0FF), (0x1F100, 0x1FBFF), (0x20000, 0x323FF),
          (0xE0000, 0xE01FF), (0x10FF00, 0x10FFFF)]
SPACES = " \t\n\r\x0b\x0c\x1c\x85\xa0\u1680\u180e\u2003\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"


def random_text(r):
    kind = r.random()
    if kind < 0.25:
        return " ".join(r.choice(SAMPLES) for _ in range(r.randint(1, 3)))
    if kind < 0.5:  # words of samples, cut and glued at random
        whole = "".join(r.choice(SAMPLES) + r.choice(["", " ", "\n"]) for _ in range(3))
        parts = []
        for _ in range(r.randint(1, 10)):
            at = r.randrange(len(whole) + 1)
            parts.append(whole[at:at + r.randint(1, 8)])
        return r.choice(["", " ", r.choice(SPACES)]).join(parts)
    out = []
    low, high = r.choice(BLOCKS)
    for _ in range(r.randint(1, 24)):
        pick = r.random()
        if pick < 0.15:
            out.append(r.choice(SPACES + "    "))
        elif pick < 0.25:
            out.append(r.choice("0123456789'.,-_!?ABCdef"))
        elif pick < 0.3:
            low, high = r.choice(BLOCKS)
        c = r.randint(low, high)
        if not 0xD800 <= c <= 0xDFFF:
            out.append(chr(c))
    return "".join(out)


# ---- configurations ----

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
DEEPSEEK = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""

SMALL = [r"\w+", r"\W+", r"\b", r"\B", r"\h+", r"\H+", r"\d", r"\D+", r"\s", r"\S+", r"[[:alpha:]]+", r"[[:punct:]]",
         r"[[:^alnum:]]", r"[\w&&[^aeiou]]+", r"(?m).", r"(?m:.{1,4})", r".{1,5}", r"^", r"$", r"^.", r".$", r"\p{Han}",
         r"[\p{Han}\p{Hiragana}\p{Katakana}]+", r"(?i)straße", r"(?i:k)", r"(?i)[à-ý]+", r"(?=[A-Z])", r"(?<=\d)(?=\D)",
         r"(?<![a-z])[A-Z]", r"\p{Lu}?\p{Ll}++", r"\P{L}+", r"\p{^N}+", r"[^\p{L}\p{M}\s]+", r"[\p{Mn}\p{Mc}]", r"\p{Cn}+",
         r"[\p{C}]", r"\p{S}|\p{P}", r"\p{Latin}+|\p{Cyrillic}+", r"\R", r"(\w)\1", r"(?<q>['\"]).*?\k<q>", r"a*", r"x?",
         r"[^\W\d_]+", r"\w{2,3}?", r"[[:upper:]][[:lower:]]*", r"[a-zA-Z]+'?[a-z]*", r"\p{Alphabetic}+", r"\p{Emoji}",
         r"[一-龥]+", r"[぀-ゟ゠-ヿ]+", r"[ -~]+", r"[[:graph:]]+", r"[[:word:]]+", r"(?i)\p{L}+", r"(?i:\w+)", r"(?>\w+)\s",
         r"(?:[^\S\n]+|\n+)", r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*\b)", r"[\p{L}--[a-z]]", r"\p{Arabic}+", r"\p{Letter}", r"\p{Lower}+",
         r"[^\x00-\x7F]+", r"\x{1F600}", r"[\u00e0-\u00ff]", r"\p{Common}+", r"[\p{L}\p{N}_-]+", r"(?x) \w+  # words", r"(?i)[[:alpha:]]",
         r"\t| {2,}", r"[^ ]+ ?", r"(?!x)\w", r"\K", r"\p{Word}"]
ATOMS = [r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\h", r"\H", r"\R", r"\b", r"\B", ".", "^", "$", "a", "e", "s", "k", " ", "'",
         "é", "ß", "中", r"\p{L}", r"\p{Lu}", r"\p{Ll}", r"\p{M}", r"\p{N}", r"\p{P}", r"\p{S}", r"\p{Z}", r"\p{C}", r"\P{L}",
         r"\p{^Alpha}", r"\p{Han}", r"\p{Greek}", r"\p{Cyrillic}", r"\p{Alnum}", r"\p{Word}", r"\p{Punct}", r"\p{Latin}", r"\p{Cn}",
         r"\x{e9}", r"\u0301", r"\x41", r"\n", r"\t", r"\.", r"\-", r"\p{Nd}", r"\p{Mn}", r"\p{Lm}", r"\p{Lo}", r"\p{Print}"]
INSIDE = [a for a in ATOMS if a not in (r"\R", r"\b", r"\B", "^", "$")] + \
    ["a-z", "0-9", "À-ÿ", "α-ω", "一-龥", "[:alpha:]", "[:^digit:]", "[:punct:]", "[:upper:]", "[:lower:]", "[:word:]", "[:print:]", "_"]


def random_pattern(r, depth=0):
    """Anything: what Oniguruma itself refuses is left out by the caller."""
    def one():
        kind = r.random()
        if kind < 0.45 or depth > 2:
            return r.choice(ATOMS)
        if kind < 0.75:
            inside = "".join(r.choice(INSIDE) for _ in range(r.randint(1, 4)))
            if r.random() < 0.2:
                inside += "&&[" + r.choice(["^", ""]) + r.choice(INSIDE) + "]"
            return "[" + r.choice(["", "", "^"]) + inside + "]"
        open_ = r.choice(["(?:", "(", "(?i:", "(?m:", "(?=", "(?!", "(?<=", "(?<!", "(?>"])
        return open_ + random_pattern(r, depth + 1) + ")"
    parts = []
    for _ in range(r.randint(1, 3)):
        parts.append(one() + r.choice(["", "", "", "+", "*", "?", "+?", "++", "{2}", "{1,3}", "{2,}"]))
    text = "".join(parts)
    return text + "|" + random_pattern(r, depth + 1) if r.random() < 0.3 and depth < 2 else text


BEHAVIOURS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def split(r, pattern, behaviour=None, invert=None):
    return {"type": "Split", "pattern": {"Regex": pattern},
            "behavior": behaviour or r.choice(BEHAVIOURS + ["Isolated"] * 3),
            "invert": r.random() < 0.2 if invert is None else invert}


def usable_pattern(r):
    while True:
        pattern = random_pattern(r)
        try:
            Split(Regex(pattern), "isolated").pre_tokenize_str("a")
            return pattern
        except BaseException:
            continue


def byte_level(r):
    return {"type": "ByteLevel", "add_prefix_space": r.random() < 0.5, "trim_offsets": True,
            "use_regex": r.random() < 0.5}


def pre_tokenizer(r, depth=0):
    kind = r.randrange(14)
    if kind < 3:
        return split(r, r.choice(SMALL) if r.random() < 0.4 else usable_pattern(r))
    if kind == 3:
        return split(r, r.choice([GPT2, LLAMA3, QWEN, CL100K, O200K, KIMI, BLOOM, DEEPSEEK]),
                     *r.choice([("Isolated", False), ("Removed", True)]))
    if kind == 4:
        return {"type": "Split", "pattern": {"String": r.choice([" ", "a", "e ", ".", "''", "\n", "中", "1", "[x]"])},
                "behavior": r.choice(BEHAVIOURS), "invert": r.random() < 0.2}
    if kind == 5:
        return byte_level(r)
    if kind == 6:
        scheme = r.choice(["always", "never", "first"])
        return {"type": "Metaspace", "replacement": r.choice(["▁", "▁", "_"]), "prepend_scheme": scheme,
                "split": r.random() < 0.7}
    if kind == 7:
        return {"type": "Digits", "individual_digits": r.random() < 0.5}
    if kind == 8:
        return {"type": "Punctuation", "behavior": r.choice(BEHAVIOURS)}
    if kind == 9:
        return {"type": r.choice(["Whitespace", "WhitespaceSplit"])}
    if kind == 10:
        return {"type": "BertPreTokenizer"}
    if depth < 2:
        return {"type": "Sequence", "pretokenizers": [pre_tokenizer(r, depth + 1) for _ in range(r.randint(1, 3))]}
    return {"type": "Whitespace"}


def normalizer(r, depth=0):
    kind = r.randrange(12)
    simple = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"]
    if kind < 6:
        return {"type": simple[kind]}
    if kind == 6:
        return {"type": "Strip", "strip_left": r.random() < 0.7, "strip_right": r.random() < 0.7}
    if kind == 7:
        return {"type": "BertNormalizer", "clean_text": r.random() < 0.7, "handle_chinese_chars": r.random() < 0.7,
                "strip_accents": r.choice([None, True, False]), "lowercase": r.random() < 0.7}
    if kind == 8:
        return {"type": "Prepend", "prepend": r.choice(["▁", "x", "«a"])}
    if kind == 9:
        pattern = r.choice([{"String": " "}, {"String": "a"}, {"Regex": r.choice(SMALL)}])
        return {"type": "Replace", "pattern": pattern, "content": r.choice(["▁", "", " ", "xy", "é"])}
    if depth < 2:
        return {"type": "Sequence", "normalizers": [normalizer(r, depth + 1) for _ in range(r.randint(0, 3))]}
    return {"type": "ByteLevel"}


def decoder(r, has_bytes):
    if has_bytes and r.random() < 0.8:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return r.choice([None, {"type": "Fuse"}, {"type": "WordPiece", "prefix": "##", "cleanup": r.random() < 0.5},
                     {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
                     {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                       {"type": "ByteFallback"}, {"type": "Fuse"},
                                                       {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}])


ALPHABET = [chr(c) for c in list(range(33, 127)) + list(range(161, 173)) + list(range(174, 324))]


def train(r, config, texts):
    """A model for this normalizer and this pre-tokenizer."""
    tokenizer = Tokenizer.from_str(json.dumps(config))
    wordpiece = r.random() < 0.3
    has_bytes = "ByteLevel" in json.dumps([config["normalizer"], config["pre_tokenizer"]])
    if wordpiece:
        tokenizer.model = models.WordPiece(unk_token="[UNK]")
        trainer = trainers.WordPieceTrainer(vocab_size=3000, special_tokens=["[UNK]"], show_progress=False)
    else:
        fallback = not has_bytes and r.random() < 0.5
        unk = "[UNK]" if not has_bytes or r.random() < 0.3 else None
        tokenizer.model = models.BPE(unk_token=unk, byte_fallback=fallback, fuse_unk=r.random() < 0.5,
                                     ignore_merges=r.random() < 0.3)
        special = ["[UNK]"] + (["<0x%02X>" % b for b in range(r.choice([256, 256, 240]))] if fallback else [])
        alphabet = ALPHABET if has_bytes and r.random() < 0.8 else []
        trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=special, show_progress=False,
                                      initial_alphabet=alphabet, limit_alphabet=1500)
    tokenizer.train_from_iterator(texts, trainer)
    trained = json.loads(tokenizer.to_str())
    model, added = trained["model"], []
    if r.random() < 0.5:
        at = max(model["vocab"].values()) + 1
        for i, content in enumerate(r.sample(["<|end|>", "The", "日本", "[MASK]", " go", "é", "ied"], 3)):
            if content not in model["vocab"]:
                special = content[0] in "<["
                added.append({"id": at + len(added), "content": content, "single_word": r.random() < 0.3,
                              "lstrip": r.random() < 0.3, "rstrip": r.random() < 0.3,
                              "normalized": not special and r.random() < 0.5, "special": special})
    config = {**config, "model": model, "added_tokens": added}
    config["decoder"] = decoder(r, has_bytes)
    return config


def make_config(r, texts):
    config = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
              "normalizer": normalizer(r) if r.random() < 0.6 else None,
              "pre_tokenizer": pre_tokenizer(r) if r.random() < 0.9 else None, "post_processor": None,
              "decoder": None, "model": {"type": "BPE", "vocab": {}, "merges": []}}
    return train(r, config, texts)


def known_configs(r, texts):
    sequence = lambda *steps: {"type": "Sequence", "pretokenizers": list(steps)}
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    with_regex = {**letters, "use_regex": True}
    one = lambda p, behaviour="Isolated", invert=False: sequence(split(r, p, behaviour, invert), letters)
    table = {
        "gpt2": with_regex, "llama3": one(LLAMA3), "cl100k": one(CL100K, "Removed", True), "o200k": one(O200K),
        "qwen": one(QWEN), "kimi-k2": one(KIMI), "bloom": one(BLOOM),
        "deepseek": sequence(split(r, r"\p{N}{1,3}", "Isolated", False), split(r, "[一-龥぀-ゟ゠-ヿ]+", "Isolated", False),
                             split(r, DEEPSEEK, "Isolated", False), letters),
        "falcon": sequence({"type": "Punctuation", "behavior": "Contiguous"}, with_regex,
                           {"type": "Digits", "individual_digits": False},
                           split(r, "[0-9][0-9][0-9]", "Isolated", False)),
    }
    for name, pre in table.items():
        config = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                  "normalizer": {"type": "NFC"} if name == "qwen" else None, "pre_tokenizer": pre,
                  "post_processor": None, "decoder": with_regex,
                  "model": {"type": "BPE", "vocab": {}, "merges": []}}
        tokenizer = Tokenizer.from_str(json.dumps(config))
        trainer = trainers.BpeTrainer(vocab_size=4000, show_progress=False, initial_alphabet=ALPHABET)
        tokenizer.train_from_iterator(texts, trainer)
        config["model"] = json.loads(tokenizer.to_str())["model"]
        yield name, config


# ---- comparison ----


def ours(helper, path, texts):
    data = b"".join(b"%d\n%s" % (len(b), b) for b in (t.encode() for t in texts))
    run = subprocess.run([helper, path], input=data, capture_output=True)
    if run.returncode == 2:
        return None, run.stderr.decode(errors="replace").strip()
    if run.returncode != 0:
        raise SystemExit(f"{helper} {path}: exit code {run.returncode}: {run.stderr[-2000:]!r}")
    lines, at, found = run.stdout.decode(errors="replace").split("\n"), 0, []
    for _ in texts:
        if lines[at].startswith("!"):
            found.append((None, lines[at]))
            at += 1
        else:
            found.append(([int(x) for x in lines[at].split()], bytes.fromhex(lines[at + 1])))
            at += 2
    return found, ""


def compare(helper, path, config, texts, show):
    try:
        theirs = Tokenizer.from_str(json.dumps(config))
    except BaseException as error:
        return "unloadable", str(error)
    found, why = ours(helper, path, texts)
    if found is None:
        return "refused", why
    bad = refused = decoded = failed = 0
    for text, (ids, back) in zip(texts, found):
        try:
            expected = theirs.encode(text, add_special_tokens=False).ids
        except BaseException:
            failed += 1
            continue
        if ids is None:
            refused += 1
        elif ids != expected:
            bad += 1
            if bad <= show:
                print("   ", repr(text), "\n      ours  ", ids[:40], "\n      theirs", expected[:40])
        else:
            plain = theirs.decode(ids, skip_special_tokens=False)
            if back.decode(errors="replace").replace("\ufffd", "") != plain.replace("\ufffd", ""):
                decoded += 1
                if decoded <= show:
                    print("    decoded", repr(text), "\n      ours  ", back.decode(errors="replace"), "\n      theirs", plain)
    note = f"{len(texts) - bad - refused - failed} equal"
    note += f", {refused} refused" if refused else ""
    note += f", {failed} fail there" if failed else ""
    note += f", {bad} DIFFERENT" if bad else ""
    note += f", {decoded} DECODED DIFFERENTLY" if decoded else ""
    return ("different" if bad or decoded else "equal"), note


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--configs", type=int, default=30)
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--keep")
    parser.add_argument("--show", type=int, default=2)
    parser.add_argument("--known", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    helper = os.path.join(options.build, "tests", "helpers", "encode_texts")
    r = random.Random(f"{options.seed}")
    texts = [random_text(r) for _ in range(options.texts)]
    work = options.keep or tempfile.mkdtemp()
    os.makedirs(work, exist_ok=True)
    count = {}
    if options.known:
        configs = known_configs(r, texts[:2000])
    else:
        numbers = range(options.first, options.first + options.configs)
        configs = ((str(i), make_config(random.Random(f"{options.seed}/{i}"), texts[:2000])) for i in numbers)
    for name, config in configs:
        path = os.path.join(work, f"{name}.json")
        with open(path, "w") as file:
            json.dump(config, file, ensure_ascii=False)
        result, note = compare(helper, path, config, texts, options.show)
        count[result] = count.get(result, 0) + 1
        small = {k: config[k] for k in ("normalizer", "pre_tokenizer", "decoder")}
        print(f"{name} {result}: {note}", flush=True)
        if result == "different":
            print("   ", json.dumps(small, ensure_ascii=False), config["model"]["type"])
    print(", ".join(f"{n} {k}" for k, n in sorted(count.items())))
    return 1 if count.get("different") else 0


if __name__ == "__main__":
    sys.exit(main())
