"""Makes src/data/unicode/unicode_table.c and src/data/unicode/pattern_table.c: what Hugging Face tokenizers takes
characters for, asked of the library itself, code point by code point.

    pip install tokenizers unicodedata2
    python tests/reference/make_unicode_tables.py

Its parts have tables of different ages: Oniguruma (patterns) and the regex crate have Unicode 16,
Rust's char has 17, normal forms 9, and BERT's categories an older one still. The tests and the
program need none of this; the files are committed. pattern_table.c holds the difference to Unicode
14, the tables of the oldest Oniguruma that is supported (6.9.8), which is asked through ctypes.
"""
import collections
import ctypes
import os

import unicodedata2
from tokenizers import Regex, normalizers as N, pre_tokenizers as P

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
CPS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
ALL = "".join(map(chr, CPS))


def matched(inside):
    """The code points that [inside] matches in Oniguruma as it is in the wheel."""
    return frozenset(map(ord, N.Replace(Regex("[^" + inside + "]+"), "").normalize_str(ALL)))


def runs_of(points):
    runs = []
    for c in sorted(points):
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return runs


# ---- classes of characters ----


def classes():
    between = lambda s: "".join(s + chr(c) for c in CPS) + s
    cut_from_a = lambda p: {ord(s) for s, _ in p.pre_tokenize_str(between("a")) if len(s) == 1 and s != "a"}
    number = cut_from_a(P.Digits(individual_digits=True))
    punctuation = cut_from_a(P.Punctuation())
    left = "".join(s for s, _ in P.WhitespaceSplit().pre_tokenize_str(between("a")))
    space = set(CPS) - set(map(ord, left))
    word = {ord(ch) for s, _ in P.Whitespace().pre_tokenize_str(between("!")) if "!" not in s for ch in s}
    mark = set(CPS) - set(map(ord, N.StripAccents().normalize_str(ALL)))
    bert = lambda **k: N.BertNormalizer(**{**dict(clean_text=False, handle_chinese_chars=False,
                                                  strip_accents=False, lowercase=False), **k})
    accents, clean = bert(strip_accents=True), bert(clean_text=True)
    nonspacing = {c for c in CPS if accents.normalize_str(chr(c)) == ""}
    other = {c for c in CPS if clean.normalize_str("a" + chr(c) + "a") == "aa"} - {0, 0xFFFD}
    letter, digits = matched(r"\p{L}"), matched(r"\p{N}")
    assert word == matched(r"\w") | {0x200C, 0x200D} and space == matched(r"\s")
    # The order of the bits is that of the enum in unicode.h.
    sets = [letter, digits, space, mark, nonspacing, punctuation, other, word]
    runs, previous = [], None
    for c in CPS:
        bits = sum((c in s) << i for i, s in enumerate(sets))
        if bits != previous:
            runs.append(c << 8 | bits)
            previous = bits
    return runs, runs_of(number - digits)


def untouched():
    """What normal forms leave alone although later versions of Unicode do not: a character that
    decomposes, a mark that has an order, the first of two that are composed."""
    U, nfd, nfkd = unicodedata2, N.NFD().normalize_str, N.NFKD().normalize_str
    found = set()
    for c in CPS:
        ch = chr(c)
        parts = U.decomposition(ch)
        if parts and nfkd(ch) == ch:
            found.add(c)
            if not parts.startswith("<"):
                found.add(int(parts.split()[0], 16))
        if U.combining(ch):
            probes = [s for p in "\u0334\u3099\u094d\u0345\u0300\u0316" for s in ("a" + p + ch, "a" + ch + p)]
            if any(nfd(s) != U.normalize("NFD", s) for s in probes):
                assert all(nfd(s) == s for s in probes), hex(c)
                found.add(c)
    return runs_of(found)


# Capitals of Unicode 16 and 17.
LATE = {0x1C89, 0xA7CB, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA, 0xA7DC}
LATE |= set(range(0x10D50, 0x10D66)) | set(range(0x16EA0, 0x16EB9))


def lower():
    """Their small letters: (first, last, distance)."""
    rows = []
    for c in sorted(LATE):
        by = ord(N.Lowercase().normalize_str(chr(c))) - c
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == by:
            rows[-1][1] = c
        else:
            rows.append([c, c, by])
    return rows


# ---- properties of patterns ----

# Names that mean the same stand in one line; the first is the name of the bit.
KEPT = """alnum
alpha alphabetic
assigned graph print
c other
cn unassigned unknown zzzz
cf format
lc casedletter
lu uppercaseletter upper uppercase
ll lowercaseletter
lm modifierletter
lo otherletter
lower lowercase
l letter ids idstart xids xidstart
idc idcontinue xidc xidcontinue
m mark combiningmark
mn nonspacingmark
mc spacingmark
n number
nd decimalnumber digit
no othernumber
p punct punctuation
pd dashpunctuation dash
po otherpunctuation
s symbol
sm mathsymbol math
so othersymbol
word
han hani uideo unifiedideograph
hira hiragana
kana katakana
latn latin
cyrl cyrillic
arab arabic
deva devanagari
mymr myanmar
knda kannada
laoo lao
bali balinese
khoj khojki
egyp egyptianhieroglyphs
kits khitansmallscript
zyyy common
emoji emojipresentation epres
ideo ideographic"""


def old_sets(names):
    """The same of the Oniguruma of this machine, by libonig's C interface."""
    onig = ctypes.CDLL("libonig.so.5")
    onig.onig_version.restype = ctypes.c_char_p
    assert onig.onig_version() == b"6.9.8", "needs Oniguruma 6.9.8"
    utf8 = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(onig, "OnigEncodingUTF8")))
    syntax = ctypes.c_void_p.in_dll(onig, "OnigDefaultSyntax")
    onig.onig_initialize(ctypes.byref(utf8), 1)
    sets, encoded = {}, ALL.encode()
    subject = ctypes.create_string_buffer(encoded)
    begin = ctypes.addressof(subject)
    end = begin + len(encoded)
    address = ctypes.c_void_p
    for name in names:
        text = ("\\p{%s}+" % name).encode()
        buffer = ctypes.create_string_buffer(text)
        at, regex, info = ctypes.addressof(buffer), address(), ctypes.create_string_buffer(64)
        if onig.onig_new(ctypes.byref(regex), address(at), address(at + len(text)), 0, utf8, syntax, info):
            continue
        found, here = set(), 0
        while True:
            here = onig.onig_search(regex, address(begin), address(end), address(begin + here),
                                    address(end), None, 0)
            if here < 0:
                break
            num = onig.onig_match(regex, address(begin), address(end), address(begin + here), None, 0)
            found.update(map(ord, encoded[here:here + num].decode()))
            here += num
        sets[name] = frozenset(found)
    return sets


def all_names():
    """Whatever looks like a name in the library: it has no list of its properties."""
    data = open("/usr/lib/x86_64-linux-gnu/libonig.so.5", "rb").read()
    word, names = b"", set()
    for byte in data:
        if chr(byte) in "abcdefghijklmnopqrstuvwxyz0123456789":
            word += bytes([byte])
        else:
            if word and byte == 0 and len(word) < 50:
                names.add(word.decode())
            word = b""
    return sorted(names)


def properties():
    kept = [line.split() for line in KEPT.splitlines()]
    old, refused, signature, minus = old_sets(all_names()), [], collections.defaultdict(int), {}
    bit = {name: i for i, names in enumerate(kept) for name in names}
    for name, before in old.items():
        now = matched(r"\p{%s}" % name)
        if name not in bit:
            if now != before:
                refused.append(name)
            continue
        for c in now ^ before:
            signature[c] |= 1 << bit[name]
        gone = frozenset(before - now)
        assert minus.setdefault(bit[name], gone) == gone
    for names in kept:
        assert all(n in old for n in names), names
    # What is taken away is so from c, cn and mn only; pattern_translate.c relies on it.
    assert {kept[b][0] for b, gone in minus.items() if gone} == {"c", "cn", "mn"}
    rows = []
    for c in sorted(signature):
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == signature[c]:
            rows[-1][1] = c
        else:
            rows.append([c, c, signature[c]])
    return kept, rows, sorted(refused)


# ---- the files ----


def table(items, per_line, text):
    lines, line = [], "   "
    for item in items:
        piece = " " + text(item) + ","
        if len(line) + len(piece) > 100:
            lines.append(line)
            line = "   "
        line += piece
    lines.append(line)
    return "\n".join(lines)


def pair(run):
    return "{0x%X, 0x%X}" % (run[0], run[1])


def write(path, text):
    with open(os.path.join(ROOT, path), "w") as file:
        file.write(text)


def main():
    runs, late = classes()
    passed, small = untouched(), lower()
    write("src/data/unicode/unicode_table.c", f"""/* Made by tests/reference/make_unicode_tables.py: facts about characters, as Hugging Face tokenizers
 * has them. docs/tokenizers.md says which version of Unicode each comes from. */
#include "data/unicode/unicode_table.h"

/* clang-format off */
const uint32_t tri_class_run[TRI_NUM_CLASS_RUNS] = {{
{table(runs, 9, lambda r: "0x%X" % r)}
}};

const uint32_t tri_late_number[TRI_NUM_LATE_NUMBERS][2] = {{
{table(late, 6, pair)}
}};

const uint32_t tri_untouched[TRI_NUM_UNTOUCHED][2] = {{
{table(passed, 5, pair)}
}};

const int32_t tri_late_lower[TRI_NUM_LATE_LOWER][3] = {{
{table(small, 4, lambda r: "{0x%X, 0x%X, %d}" % tuple(r))}
}};
/* clang-format on */
""")
    write("src/data/unicode/unicode_table.h", f"""/* Made by tests/reference/make_unicode_tables.py: the sizes of the tables in unicode_table.c. */
#ifndef TRI_DATA_UNICODE_UNICODE_TABLE_H
#define TRI_DATA_UNICODE_UNICODE_TABLE_H

#include <stdint.h>

enum {{
    TRI_NUM_CLASS_RUNS = {len(runs)},
    TRI_NUM_LATE_NUMBERS = {len(late)},
    TRI_NUM_UNTOUCHED = {len(passed)},
    TRI_NUM_LATE_LOWER = {len(small)}
}};

/* Where another class begins: code point << 8 | bits of TRI_CLASS_. */
extern const uint32_t tri_class_run[TRI_NUM_CLASS_RUNS];
/* First and last of the numbers that Digits knows and \\p{{N}} does not. */
extern const uint32_t tri_late_number[TRI_NUM_LATE_NUMBERS][2];
/* First and last of what normal forms leave as it is, though later tables would not. */
extern const uint32_t tri_untouched[TRI_NUM_UNTOUCHED][2];
/* First and last of capitals that utf8proc may not know, and how far their small letters are. */
extern const int32_t tri_late_lower[TRI_NUM_LATE_LOWER][3];

#endif
""")
    kept, rows, refused = properties()
    names = sorted((name, i) for i, group in enumerate(kept) for name in group)
    write("src/data/unicode/pattern_table.c", f"""/* Made by tests/reference/make_unicode_tables.py: what Oniguruma with Unicode 16 finds in a property
 * and one with Unicode 14 does not, or the other way round for C, Cn and Mn. */
#include "data/unicode/pattern_table.h"

/* clang-format off */
const tri_property_run tri_property_runs[TRI_NUM_PROPERTY_RUNS] = {{
{table(rows, 3, lambda r: "{0x%X, 0x%X, 0x%XU}" % tuple(r))}
}};

const tri_property_name tri_property_names[TRI_NUM_PROPERTY_NAMES] = {{
{table(names, 3, lambda n: '{"%s", %d}' % n)}
}};

const char *const tri_property_refused[TRI_NUM_PROPERTY_REFUSED] = {{
{table(refused, 4, lambda n: '"%s"' % n)}
}};
/* clang-format on */
""")
    enum = "\n".join(f"    TRI_PROPERTY_{n.upper()} = {i}," for n, i in
                     [(g[0], i) for i, g in enumerate(kept)
                      if g[0] in ("c", "cn", "lu", "ll", "lower", "mn", "mc", "p", "s", "nd", "word")])
    write("src/data/unicode/pattern_table.h", f"""/* Made by tests/reference/make_unicode_tables.py: the tables in pattern_table.c. */
#ifndef TRI_DATA_UNICODE_PATTERN_TABLE_H
#define TRI_DATA_UNICODE_PATTERN_TABLE_H

#include <stdint.h>

enum {{
{enum}
    TRI_NUM_PROPERTY_RUNS = {len(rows)},
    TRI_NUM_PROPERTY_NAMES = {len(names)},
    TRI_NUM_PROPERTY_REFUSED = {len(refused)}
}};

typedef struct tri_property_run {{
    uint32_t first, last;
    uint64_t bits; /* 1 << bit of each property in which they have changed */
}} tri_property_run;

typedef struct tri_property_name {{
    const char *name; /* without blanks, '-' and '_', in small letters */
    int bit;
}} tri_property_name;

extern const tri_property_run tri_property_runs[TRI_NUM_PROPERTY_RUNS];
extern const tri_property_name tri_property_names[TRI_NUM_PROPERTY_NAMES]; /* by name */
/* Properties that have changed and are not among those above. */
extern const char *const tri_property_refused[TRI_NUM_PROPERTY_REFUSED];

#endif
""")
    print(len(runs), "runs of classes,", len(passed), "untouched,", len(rows), "runs of properties,",
          "refused:", " ".join(refused))


if __name__ == "__main__":
    main()
