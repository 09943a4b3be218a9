"""Makes tests/fixtures/tokenizer_*: small tokenizers of every family and what Hugging Face
tokenizers does with them on a hard text.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers
    /tmp/venv/bin/python tests/reference/make_tokenizer_fixtures.py

The tests read the files only; neither they nor the program need Python. GPT-2's vocabulary is not
ours to keep: its expected ids are stored, the vocabulary is read from ../shared when it is there.
"""
import json
import random
import sys
from pathlib import Path

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "fixtures"
GPT2 = ROOT.parent / "shared" / "fixtures" / "gpt2"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# Not one of the three that have a scanner: goes through Oniguruma.
OTHER = r"\p{Lu}?\p{Ll}+|\p{Lu}+|\p{N}{2}|\s*\n|[^\s\p{L}\p{N}]+|\s+(?=\S)|\s+"

HARD = [
    "The quick brown fox jumps over the lazy dog.",
    "I'm you're he's we've they'll she'd don't it's 's 't'S I'M YOU'RE WE'VE THEY'LL SHE'D IT'S",
    "'ſ it'ſ don’t rock’n’roll o'clock 'tis ''s '''re 'x '",
    "  two  spaces   three    four     five",
    "\ttab\t\ttwo tabs \t mixed\t \tends with spaces   ",
    "trailing space ",
    " ",
    "   ",
    "x",
    "line one\nline two\n\nline four\n\n\n\nline eight\r\nwindows\r\n\r\nline\rmac",
    "  \n  indented\n\t\ncode:\n    return x  \n\n",
    "space before newline \nand two  \n \n  \n end",
    "a\u00a0b\u2003c\u3000d\u0085e\u2028f\u2029g\u1680h\u202fi\u205fj\u180ek\u200bl\ufeffm",
    "1 12 123 1234 12345 123456 1234567890123 3.14159 1,000,000 0x1F 1e-10 v2.0.1 ٣٤٥ ५६७ Ⅷ ½ ²³ ①②",
    "x1y2z3 abc123def456 H2O CO₂ m² 10⁻³ 4th 2nd 21st",
    "日本語のテキストと中文字符混合한국어 텍스트。「引用」、？！ｆｕｌｌｗｉｄｔｈ　ＡＢＣ１２３",
    "東京は日本の首都です。人口は約1400万人。𠀀𠮷野家 㐀 豈",
    "Привет, мир! Ελληνικά κείμενο Σίσυφος ΣΊΣΥΦΟΣ שלום עולם مرحبا بالعالم हिन्दी नमस्ते ไทยสวัสดี",
    "emoji 😀😃 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 ❤️ ☃️ 🇩🇪🇫🇷 1️⃣ #️⃣ text",
    "combining e\u0301 a\u0308o\u0308u\u0308 n\u0303 A\u030a \u0301alone Z\u0351\u036b\u0343 q\u0307\u0323 "
    "\u1e9b\u0323 \u212b \u2126 \ufb01 \u0344 \u1100\u1161\u11a8 각",
    "café naïve Ångström Übermaß straße İstanbul ıI ẞß ǅ ﬁ ﬃ Œuvre",
    "café naïve Ångström e\u0301e\u0301".replace("é", "e\u0301"),
    "!!! ??? ... --- *** === ### @@@ $$$ %%% ^^^ &&& ((( ))) [[[ ]]] {{{ }}} <<< >>> ~~~ ```",
    "for (int i = 0; i < n; i++) { a[i] += b[i] * c[i]; } // comment\n\tif (x != NULL && *x) return -1;",
    "https://example.com/path?query=value&x=1#frag user@mail.example C:\\Users\\name\\file.txt",
    "CamelCase snake_case kebab-case SCREAMING_SNAKE mixedUP iPhone McDonald’s",
    "a" * 300,
    "ab" * 120 + "!" * 150 + "7" * 140 + "é" * 90 + "語" * 60 + " " * 77 + "\n" * 41 + "_" * 50,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "\u0000\u0001\u0002\u0007\u0008\u000b\u000c\u001b\u007f\u0080\u009f\u00ad control",
    "private \ue000\uf8ff \U000f0000 unassigned \u0378 \U0001fffe noncharacter \uffff replacement \ufffd",
    "math ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β ≈ ≠ ≤ ≥ ∞ ∑∏∫ 𝔸𝕏 𝒳 ℵ₀",
    "“quotes” ‘single’ «guillemets» „low“ — em – en … ellipsis · dot • bullet ¡¿ §¶†‡ ©®™ €£¥",
    "<|endoftext|>after<|endoftext|> <|endoftext|>  two<|endoftext|><|endoftext|>",
    "<|begin_of_text|>hi<|eot_id|>\n<|start|>user<|end|> not<|a token|> <|endof <|endoftext",
    "a <mask> b  <mask>  c<mask>d\t<mask>\n<mask> x <strip>   y<strip>z <both> w",
    "newword newwords anewword newword, NEWWORD new word (newword) newword",
    "café CAFÉ cafe\u0301 Zürich Zu\u0308rich zürichs",
    "[CLS] hello [SEP] [MASK] [UNK] [PAD] [cls] [ MASK ]",
    "<s>begin</s> <unk> <0x41> <0xFF> ▁under▁score ▁▁ ▁",
    "unaffable unaffordable embeddings tokenization untokenizable",
    "Hello World, HELLO WORLD, hello world; Héllo Wörld",
    "do not do n't . , ! ? ' s 've 're 'm it is n't ok ?",
]

WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have
from or had an they which one you were all their there been if more when will would who so no she
other its may these what them than some him time into only do such my new out also two any our
first could over even most made after many must before through years where much your way well down
should because each just people how too little good very make world still own see men work long
here get both between life being under never day same another know while last might us great old
year off come since against go came right used take three hello token tokens tokenization embed
embedding embeddings affable affordable model models train training language return value index"""


def corpus():
    rng = random.Random(7)
    words = WORDS.split()
    lines = []
    for _ in range(1500):
        n = rng.randint(3, 14)
        chosen = [rng.choice(words) for _ in range(n)]
        if rng.random() < 0.3:
            chosen[0] = chosen[0].capitalize()
        if rng.random() < 0.2:
            chosen.insert(rng.randrange(n), str(rng.randint(0, 5000)))
        if rng.random() < 0.2:
            chosen[-1] += rng.choice(["'s", "'ll", "n't", "ing", "ed", "ers"])
        lines.append(" ".join(chosen) + rng.choice([".", ",", "!", "?", "", ";\n", "\n\n"]) + "\n")
    for line in HARD:
        if "<" not in line and "[" not in line and len(line) < 250:
            lines += [line + "\n"] * 3
    return lines


def byte_level(vocab, normalizer, pattern, name, specials, template, ignore_merges=False):
    tok = Tokenizer(models.BPE())
    if normalizer:
        tok.normalizer = normalizer
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    data = json.loads(tok.to_str())
    data["model"]["ignore_merges"] = ignore_merges
    if ignore_merges:  # a token that no merges lead to: only a whole word can become it
        data["model"]["vocab"]["Ġtokenizable"] = len(data["model"]["vocab"])
        data["model"]["vocab"]["Ġunaffable"] = len(data["model"]["vocab"])
    tok = Tokenizer.from_str(json.dumps(data))
    tok.add_special_tokens(specials)
    tok.add_tokens([
        AddedToken("newword", single_word=True, normalized=False),
        AddedToken("<mask>", lstrip=True, normalized=False, special=True),
        AddedToken("<strip>", rstrip=True, normalized=False),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("Zu\u0308rich", normalized=True),
        AddedToken("<|", normalized=False), AddedToken("<|start|>", normalized=False),
    ])
    if template:
        tok.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{template} $A", pair=f"{template} $A {template} $B",
                special_tokens=[(template, tok.token_to_id(template))])])
    save(tok, name)
    return tok


def save(tok, name):
    data = json.loads(tok.to_str())
    # Merges in both of the ways in which files have them.
    if data["model"]["type"] == "BPE" and name != "qwen":
        merges = [m if isinstance(m, list) else m.split(" ") for m in data["model"]["merges"]]
        data["model"]["merges"] = [" ".join(m) for m in merges]
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    text = text.replace('"merges":', '\n"merges":').replace('"vocab":', '\n"vocab":')
    (OUT / f"tokenizer_{name}.json").write_text(text + "\n", encoding="utf-8")
    again = Tokenizer.from_file(str(OUT / f"tokenizer_{name}.json"))
    assert again.encode(HARD[0]).ids == tok.encode(HARD[0]).ids


def llama2(name, metaspace, across):
    """Byte-fallback BPE over characters; across: merges that cross word borders."""
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    normal = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if across:
        tok.normalizer = normal
    else:
        tok.pre_tokenizer = pre_tokenizers.Metaspace()
    lines = [line.strip("\n") for line in corpus()]
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tok.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=700, special_tokens=specials, limit_alphabet=100, show_progress=False))
    data = json.loads(tok.to_str())
    model = models.BPE(data["model"]["vocab"],
                       [m if isinstance(m, tuple) else tuple(m if isinstance(m, list) else m.split(" "))
                        for m in data["model"]["merges"]],
                       unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tok = Tokenizer(model)
    if metaspace:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        tok.normalizer = normal
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                     decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.add_special_tokens(["<unk>", "<s>", "</s>"])
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tok.token_to_id("<s>"))])
    save(tok, name)
    return tok


def wordpiece(name, lowercase):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=700, special_tokens=specials, limit_alphabet=200, show_progress=False))
    tok.decoder = decoders.WordPiece()
    tok.post_processor = processors.BertProcessing(
        ("[SEP]", tok.token_to_id("[SEP]")), ("[CLS]", tok.token_to_id("[CLS]")))
    save(tok, name)
    return tok


def gpt2():
    if not GPT2.exists():
        sys.exit(f"{GPT2} is not there: the expected ids of GPT-2 cannot be made")
    vocab = json.loads((GPT2 / "encoder.json").read_text(encoding="utf-8"))
    lines = (GPT2 / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
    tok = Tokenizer(models.BPE(vocab, [tuple(line.split()) for line in lines if line]))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(["<|endoftext|>"])
    return tok


def smollm_model(vocab):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tok


def smollm():
    """Digits one by one, then GPT-2's pattern, with a space put in front."""
    tok = smollm_model(420)
    save(tok, "digits")
    return tok


def sparse():
    """A vocabulary with holes: in the middle, and before a special token far behind."""
    tok = smollm_model(380)
    data = json.loads(tok.to_str())
    vocab = data["model"]["vocab"]
    data["model"]["vocab"] = {t: i if i < 300 else i + 40 for t, i in vocab.items() if i > 0}
    data["model"]["vocab"]["<|endoftext|>"] = 1000
    data["added_tokens"][0]["id"] = 1000
    tok = Tokenizer.from_str(json.dumps(data))
    assert tok.token_to_id("<|endoftext|>") == 1000 and tok.id_to_token(320) is None
    assert tok.decode([70, 0, 320, 71, 999]) == tok.decode([70, 71]) != ""
    save(tok, "sparse")
    return tok


def trained():
    """What training in C must arrive at, from the same text, line by line as from a file."""
    text = "".join(corpus()[:700]).encode()
    (OUT / "tokenizer_train.txt").write_bytes(text)
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train([str(OUT / "tokenizer_train.txt")], trainers.BpeTrainer(
        vocab_size=1000, special_tokens=["<|endoftext|>"], show_progress=False, min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    save(tok, "trained")


def main():
    trained()
    OUT.mkdir(parents=True, exist_ok=True)
    begin = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|endoftext|>"]
    toks = {
        "gpt2": gpt2(),
        "llama3": byte_level(800, None, LLAMA3, "llama3", begin, "<|begin_of_text|>", True),
        "qwen": byte_level(700, normalizers.NFC(), QWEN, "qwen", ["<|endoftext|>", "<|im_start|>"],
                           None),
        "pattern": byte_level(400, None, OTHER, "pattern", ["<|endoftext|>"], None),
        "llama2": llama2("llama2", False, False),
        "metaspace": llama2("metaspace", True, False),
        "across": llama2("across", False, True),
        "wordpiece": wordpiece("wordpiece", True),
        "cased": wordpiece("cased", False),
        "digits": smollm(),
        "sparse": sparse(),
    }
    texts = HARD + ["\n".join(HARD)]
    cases = []
    for name, tok in toks.items():
        for i, text in enumerate(texts):
            if i == len(HARD) and name not in ("gpt2", "llama3", "llama2"):
                continue
            ids = tok.encode(text, add_special_tokens=False).ids
            cases.append({"tokenizer": name, "text": i, "special": False, "ids": ids})
            decoded = tok.decode(ids, skip_special_tokens=False)
            if i < len(HARD) and decoded != text:  # otherwise it is the text
                # An added token that is not ASCII is taken for bytes there, and lost.
                lost = "\ufffd" in decoded and "\ufffd" not in text
                cases[-1]["decoded"] = None if lost else decoded
            if i in (0, 6, 33, 38):
                cases.append({"tokenizer": name, "text": i, "special": True,
                              "ids": tok.encode(text, add_special_tokens=True).ids})
    with open(OUT / "tokenizer_expected.txt", "w", encoding="utf-8") as out:
        json.dump({"texts": HARD}, out, ensure_ascii=True)
        out.write("\n")
        for case in cases:
            json.dump(case, out, ensure_ascii=True, separators=(",", ":"))
            out.write("\n")
    total = sum(p.stat().st_size for p in OUT.glob("tokenizer_*"))
    print(f"{len(cases)} cases, {total / 1000:.0f} KB")


if __name__ == "__main__":
    main()
