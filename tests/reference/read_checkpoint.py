#!/usr/bin/env python3
"""Reads checkpoints without any library, from the description in docs/checkpoints.md.

    read_checkpoint.py ckpt/step-20                 lists the tensors
    read_checkpoint.py ckpt/step-20 wte.weight      prints its elements, one a line
    read_checkpoint.py --check ckpt/step-20         compares all checksums
"""
import itertools
import json
import math
import struct
import sys


def read_tensor(path, manifest, tensor):
    shape = tensor["shape"]
    out = [None] * math.prod(shape)
    for s in tensor["shards"]:
        begin, size = s.get("begin", [0] * len(shape)), s.get("size", shape)
        first, count = s.get("first", 0), s.get("count", math.prod(size))
        with open(f"{path}/{manifest['files'][s['file']]['name']}", "rb") as f:
            f.seek(s["offset"])
            values = struct.unpack(f"<{count}f", f.read(4 * count))
        box = itertools.product(*(range(b, b + n) for b, n in zip(begin, size)))
        for place, value in zip(itertools.islice(box, first, first + count), values):
            index = 0
            for i, n in zip(place, shape):
                index = index * n + i
            assert out[index] is None, "an element is in two shards"
            out[index] = value
    assert None not in out, "an element is in no shard"
    return out


def checksum(data):
    mask, h = (1 << 64) - 1, 0x9E3779B97F4A7C15
    padded = data + bytes(-len(data) % 8)
    for (w,) in struct.iter_unpack("<Q", padded):
        x = h ^ w * 0x9FB21C651E98DF25 & mask
        h = (x << 27 | x >> 37) & mask
        h = h * 0x9E3779B97F4A7C15 & mask
    h ^= len(data)
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & mask
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & mask
    return f"{h ^ h >> 33:016x}"


def check(path, text, manifest):
    digits = manifest["checksum"].encode()
    assert checksum(text.replace(digits, b"0" * 16, 1)) == manifest["checksum"], "manifest.json"
    data = [open(f"{path}/{f['name']}", "rb").read() for f in manifest["files"]]
    for f, d in zip(manifest["files"], data):
        assert len(d) == f["bytes"] and checksum(d[: f["checked_bytes"]]) == f["checksum"], f["name"]
    for t in manifest["tensors"]:
        for s in t["shards"]:
            count = s.get("count", math.prod(s.get("size", t["shape"])))
            part = data[s["file"]][s["offset"] : s["offset"] + 4 * count]
            assert checksum(part) == s["checksum"], t["name"]


def main():
    args = [a for a in sys.argv[1:] if a != "--check"]
    text = open(f"{args[0]}/manifest.json", "rb").read()
    manifest = json.loads(text)
    if "--check" in sys.argv:
        check(args[0], text, manifest)
        print("all checksums are right")
    for t in manifest["tensors"]:
        if len(args) == 1:
            print(t["kind"], t["name"], t["shape"], len(t["shards"]))
        elif t["name"] == args[1]:
            print(*read_tensor(args[0], manifest, t), sep="\n")


main()
