"""The peer of bench/tokenizer.sh: Hugging Face tokenizers on one core, same files, same work.

    hf_tokenizers.py encode TOKENIZER.json TEXT REPEATS IDS   (IDS: a file to write the ids to)
    hf_tokenizers.py train TEXT VOCAB OUT.json
    hf_tokenizers.py gpt2 DIR OUT.json                        (encoder.json + vocab.bpe)
"""
import json
import os
import sys
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402


def encode(path, text_path, repeats, ids_path):
    tok = Tokenizer.from_file(path)
    with open(text_path, encoding="utf-8", newline="") as stream:
        text = stream.read()
    best = float("inf")
    for _ in range(int(repeats)):
        start = time.perf_counter()
        ids = tok.encode(text, add_special_tokens=False).ids
        best = min(best, time.perf_counter() - start)
    # In pieces of some lines each, which is kinder to it than one long text; the better one counts.
    lines = text.splitlines(keepends=True)
    pieces = ["".join(lines[i:i + 200]) for i in range(0, len(lines), 200)]
    for _ in range(int(repeats)):
        start = time.perf_counter()
        tok.encode_batch_fast(pieces, add_special_tokens=False)
        best = min(best, time.perf_counter() - start)
    with open(ids_path, "w") as out:
        out.write(" ".join(map(str, ids)) + "\n")
    print(f"{len(text.encode()) / best / 1e6:.2f}")


def byte_level(model):
    tok = Tokenizer(model)
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    return tok


def train(text_path, vocab, out):
    tok = byte_level(models.BPE())
    start = time.perf_counter()
    tok.train([text_path], trainers.BpeTrainer(
        vocab_size=int(vocab), min_frequency=2, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    print(f"{time.perf_counter() - start:.2f}")
    tok.save(out)


def gpt2(folder, out):
    with open(os.path.join(folder, "encoder.json"), encoding="utf-8") as stream:
        vocab = json.load(stream)
    with open(os.path.join(folder, "vocab.bpe"), encoding="utf-8") as stream:
        merges = [tuple(line.split()) for line in stream.read().split("\n")[1:] if line]
    tok = byte_level(models.BPE(vocab, merges))
    tok.add_special_tokens(["<|endoftext|>"])
    tok.save(out)


if __name__ == "__main__":
    {"encode": encode, "train": train, "gpt2": gpt2}[sys.argv[1]](*sys.argv[2:])
