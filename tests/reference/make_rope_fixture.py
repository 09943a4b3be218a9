"""Writes tests/fixtures/hf_rope.safetensors: what transformers computes with the weights of hf_llama
when their rotary positions are scaled, for each kind of scaling, up to and beyond the length that
the scaling begins at.

    pip install transformers torch numpy safetensors
    python tests/reference/make_rope_fixture.py

The metadata key `cases` is a JSON object: name -> {"config": keys of config.json to replace,
"length": tokens of the row}. `tokens` is i32 [LONGEST], a row is its beginning; `NAME` is f32
[KEPT, V]: logits of the last positions of the row, computed at its full length in float32.
"""
import json
import os
import pathlib
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

import philox

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
SHORT, LONG, KEPT = 29, 113, 5  # around the 32 positions that the models were "first trained on"
PAIRS = 5  # of hf_llama's heads


def factors(begin, step):
    return [round(begin + step * i, 3) for i in range(PAIRS)]


def scaling(kind, positions=256, **keys):
    return {"rope_scaling": {"rope_type": kind} | keys, "max_position_embeddings": positions}


ORIGINAL = {"original_max_position_embeddings": 32}
LISTS = {"short_factor": factors(1.0, 0.02), "long_factor": factors(1.1, 0.9)}
# name: keys of config.json, length
CASES = {
    "linear": (scaling("linear", factor=4.0), LONG),
    "dynamic": (scaling("dynamic", positions=32, factor=4.0), LONG),
    "dynamic, short": (scaling("dynamic", positions=32, factor=4.0), SHORT),
    "yarn": (scaling("yarn", factor=4.0, **ORIGINAL), LONG),
    "yarn, whole": (scaling("yarn", factor=8.0, beta_fast=8.0, beta_slow=0.5, truncate=False,
                            attention_factor=1.3, **ORIGINAL), LONG),
    "yarn, mscale": (scaling("yarn", factor=4.0, mscale=0.707, mscale_all_dim=0.4, **ORIGINAL), LONG),
    "longrope": (scaling("longrope", factor=8.0, **LISTS, **ORIGINAL), LONG),
    "longrope, short": (scaling("longrope", factor=8.0, **LISTS, **ORIGINAL), SHORT),
    "longrope, by length": (scaling("longrope", **LISTS, **ORIGINAL), LONG),
    "longrope, magnitude": (scaling("longrope", factor=8.0, attention_factor=0.9, **LISTS,
                                    **ORIGINAL), LONG),
    "llama3": (scaling("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                       **ORIGINAL), LONG),
}


def logits(config, tokens):
    weights = load_file(FIXTURES / "hf_llama" / "model.safetensors")
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work) / "config.json"
        path.write_text(json.dumps(config))
        model = transformers.LlamaForCausalLM(transformers.AutoConfig.from_pretrained(work))
    missing = model.load_state_dict(weights, strict=False)
    assert not missing.missing_keys and not missing.unexpected_keys, missing
    with torch.no_grad():
        return model.float().eval()(torch.from_numpy(tokens).long()[None]).logits[0]


def main():
    base = json.loads((FIXTURES / "hf_llama" / "config.json").read_text())
    index = np.arange(LONG, dtype=np.uint64)
    tokens = philox.random_word(77, index, 0, philox.stream("hf", "rope")) % base["vocab_size"]
    tokens = tokens.astype(np.int32)
    out = {"tokens": torch.from_numpy(tokens)}
    for name, (change, length) in CASES.items():
        out[name] = logits(base | change, tokens[:length])[-KEPT:].contiguous()
    for name in ("linear", "dynamic", "yarn", "yarn, whole", "yarn, mscale", "longrope", "longrope, magnitude"):
        apart = float((out[name] - out["llama3"]).abs().max())
        assert apart > 1e-2, (name, apart)  # a kind that changes nothing would prove nothing
    cases = {name: {"config": change, "length": length} for name, (change, length) in CASES.items()}
    save_file(out, FIXTURES / "hf_rope.safetensors",
              metadata={"cases": json.dumps(cases), "torch": torch.__version__.split("+")[0],
                        "transformers": transformers.__version__})


main()
