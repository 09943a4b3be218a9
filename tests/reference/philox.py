"""The random numbers of src/base/rng.{h,c}, in numpy and vectorised over indices.

Run as a script, it compiles the C file and compares: words bit for bit, normals to the last bit of
a float (numpy's log, sin and cos may differ from libm's in the last bit of a double).
"""

import numpy as np

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox(seed, blocks, step, stream):
    """Philox4x32-10: uint64 block numbers [n] -> uint32 words [n, 4]."""
    blocks = np.asarray(blocks, dtype=np.uint64)
    # 32-bit values live in uint64 arrays, so that a product of two never overflows.
    c0, c1 = blocks & LOW, blocks >> HALF
    c2 = np.full_like(blocks, step & 0xFFFFFFFF)
    c3 = np.full_like(blocks, stream & 0xFFFFFFFF)
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c2 = (p1 >> HALF) ^ c1 ^ np.uint64(k0), (p0 >> HALF) ^ c3 ^ np.uint64(k1)
        c1, c3 = p1 & LOW, p0 & LOW
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def stream(purpose, name):
    """FNV-1a of "purpose:name"."""
    value = 2166136261
    for byte in f"{purpose}:{name}".encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def random_word(seed, index, step, stream_id):
    """uint32 words at global indices; `index` is an integer or an array of any shape."""
    index = np.asarray(index, dtype=np.uint64)
    words = philox(seed, index.reshape(-1) // np.uint64(4), step, stream_id)
    lane = (index.reshape(-1) % np.uint64(4)).astype(np.intp)
    return words[np.arange(lane.size), lane].reshape(index.shape)


def random_normal(seed, first, num, step, stream_id):
    """float32 [num]: Box-Muller on the pairs (word 0, word 1) and (word 2, word 3) of a block."""
    begin, end = first // 4, (first + num + 3) // 4
    words = philox(seed, np.arange(begin, end, dtype=np.uint64), step, stream_id)
    words = words.astype(np.float64).reshape(-1, 2)
    radius = np.sqrt(-2.0 * np.log((words[:, 0] + 0.5) * 2.0**-32))
    angle = 6.283185307179586 * (words[:, 1] * 2.0**-32)
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    offset = first - 4 * begin
    return pairs.astype(np.float32).reshape(-1)[offset : offset + num]


def dropout_threshold(p):
    """An element is kept when its word is at least this. p is a C float."""
    return np.uint32(int(float(np.float32(p)) * 4294967296.0))


CHECK_C = r"""
#include "base/rng.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Lines in: purpose name seed first num step. Out: stream, the words, the bits of the normals. */
int main(void)
{
    char purpose[64], name[64];
    uint64_t seed, first, num;
    uint32_t step;
    while (scanf("%63s %63s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu32, purpose, name, &seed,
                 &first, &num, &step) == 6) {
        uint32_t stream = tri_stream(purpose, name);
        printf("%" PRIu32, stream);
        for (uint64_t i = 0; i < num; i++)
            printf(" %" PRIu32, tri_random_word(seed, first + i, step, stream));
        float *normal = malloc(num * sizeof(float));
        tri_random_normal(seed, first, num, step, stream, normal);
        for (uint64_t i = 0; i < num; i++) {
            union { float f; uint32_t u; } bits = {normal[i]};
            printf(" %" PRIu32, bits.u);
        }
        printf("\n");
        free(normal);
    }
    return 0;
}
"""


def self_check():
    import os
    import pathlib
    import subprocess
    import tempfile

    # Known answers of the Random123 distribution: counter and key all zero, then all ones.
    assert philox(0, [0], 0, 0)[0].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = philox(2**64 - 1, [2**64 - 1], 2**32 - 1, 2**32 - 1)[0].tolist()
    assert ones == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]

    cases = [  # purpose, name, seed, first, num, step
        ("init", "wte.weight", 0, 0, 20000, 0),
        ("init", "h.11.attn.c_attn.weight", 1234, 0, 20001, 0),
        ("drop", "embd", 5000000007, 3, 1000, 7),
        ("drop", "h.0.attn.probs", 2**64 - 1, 2**34 + 1, 1000, 4000000000),
        ("data", "x", 42, 1, 1, 1),
    ]
    src = pathlib.Path(__file__).resolve().parents[2] / "src"
    with tempfile.TemporaryDirectory() as folder:
        main = pathlib.Path(folder) / "check.c"
        main.write_text(CHECK_C)
        program = pathlib.Path(folder) / "check"
        subprocess.run(
            [os.environ.get("CC", "cc"), "-std=c17", "-O2", f"-I{src}", str(main),
             str(src / "base" / "rng.c"), "-lm", "-o", str(program)],
            check=True,
        )
        text = "".join(" ".join(map(str, case)) + "\n" for case in cases)
        out = subprocess.run([program], input=text, text=True, capture_output=True, check=True)
    num_checked, num_off = 0, 0
    for (purpose, name, seed, first, num, step), line in zip(cases, out.stdout.splitlines()):
        got = np.array(line.split(), dtype=np.uint64).astype(np.uint32)
        sid = stream(purpose, name)
        assert got[0] == sid, f"stream of {purpose}:{name}"
        index = np.uint64(first) + np.arange(num, dtype=np.uint64)
        assert np.array_equal(got[1 : 1 + num], random_word(seed, index, step, sid)), name
        theirs, ours = got[1 + num :].view(np.float32), random_normal(seed, first, num, step, sid)
        off = theirs != ours
        assert np.all(np.abs(theirs - ours) <= np.spacing(np.abs(theirs))), name
        num_checked, num_off = num_checked + num, num_off + int(off.sum())
    print(f"philox: {num_checked} words and normals equal C's; {num_off} normals one bit off")


if __name__ == "__main__":
    self_check()
