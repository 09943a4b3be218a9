"""The files that llm.c's train_gpt2 reads, with made-up contents: GPT-2 124M with random weights
(gpt2_124M.bin, fp32) and tokens for training and evaluation.

    llmc_inputs.py DIRECTORY

The loss of such a model falls from about ln(50257) like that of any other, so a timing run does the
work of a real one. Each file begins with 256 integers: a magic number, a version, then sizes.
"""

import os
import sys

import numpy

VOCAB, PADDED, POSITIONS, LAYERS, HEADS, WIDTH = 50257, 50304, 1024, 12, 12, 768
NUM_TOKENS = 1 << 16


def header(*fields):
    out = numpy.zeros(256, dtype="<i4")
    out[: len(fields)] = fields
    return out.tobytes()


def write_weights(path, rng):
    def noise(rows, columns):
        return rng.standard_normal((rows, columns), dtype=numpy.float32) * numpy.float32(0.02)

    def constant(value, num):
        return numpy.full(num, value, dtype=numpy.float32)

    table = noise(PADDED, WIDTH)
    table[VOCAB:] = 0
    with open(path, "wb") as file:
        file.write(header(20240326, 3, POSITIONS, VOCAB, LAYERS, HEADS, WIDTH, PADDED))
        for tensor in (
            table,
            noise(POSITIONS, WIDTH),
            # Each of these for all layers: norm, query-key-value, projection, norm, two matrices.
            constant(1, LAYERS * WIDTH),
            constant(0, LAYERS * WIDTH),
            noise(LAYERS * 3 * WIDTH, WIDTH),
            constant(0, LAYERS * 3 * WIDTH),
            noise(LAYERS * WIDTH, WIDTH),
            constant(0, LAYERS * WIDTH),
            constant(1, LAYERS * WIDTH),
            constant(0, LAYERS * WIDTH),
            noise(LAYERS * 4 * WIDTH, WIDTH),
            constant(0, LAYERS * 4 * WIDTH),
            noise(LAYERS * WIDTH, 4 * WIDTH),
            constant(0, LAYERS * WIDTH),
            constant(1, WIDTH),
            constant(0, WIDTH),
        ):
            file.write(tensor.astype("<f4").tobytes())


def write_tokens(path, rng):
    with open(path, "wb") as file:
        file.write(header(20240520, 1, NUM_TOKENS))
        file.write(rng.integers(0, VOCAB, NUM_TOKENS).astype("<u2").tobytes())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rng = numpy.random.default_rng(1)
    texts = os.path.join(sys.argv[1], "dev/data/tinyshakespeare")
    os.makedirs(texts, exist_ok=True)
    write_weights(os.path.join(sys.argv[1], "gpt2_124M.bin"), rng)
    for part in ("train", "val"):
        write_tokens(os.path.join(texts, f"tiny_shakespeare_{part}.bin"), rng)


main()
