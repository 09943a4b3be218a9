"""Mixtures of experts of transformers, in and out again: save_pretrained, logits of trireme, one
training step with a learning rate of 0, `trireme ckpt export --hf`, from_pretrained.

    pip install transformers torch safetensors
    make build/tests/test_hf
    python tests/reference/compare_hf_moe.py [--build build] [--models 3]

For random models of random sizes of each family, and both ways in which files hold experts: logits
must agree to 1e-4 (build/tests/test_hf compares them), what is exported must be the files that
transformers writes, tensor for tensor and bit for bit, and load with the same configuration.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Keys that say what the tokenizer is, or the moment; ours for transformers 4; and those that say the
# same in several ways, for which there are the names of tensors.
APART = {"bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "_name_or_path",
         "torch_dtype", "rope_theta", "rope_scaling", "max_window_layers", "decoder_sparse_step",
         "mlp_only_layers"}


def make_config(family, r):
    heads, kv = r.choice([(4, 2), (6, 3), (5, 1), (4, 4)])
    experts = r.randint(3, 9)
    layers = r.randint(2, 4)
    keys = dict(vocab_size=r.randint(50, 120), hidden_size=heads * 2 * r.randint(2, 5),
                num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv,
                intermediate_size=r.randint(9, 40), num_experts_per_tok=r.randint(1, 3),
                max_position_embeddings=64, router_aux_loss_coef=r.choice([0.0, 0.02]),
                tie_word_embeddings=r.random() < 0.3,
                rope_parameters={"rope_type": "default", "rope_theta": r.choice([1e4, 1e6])})
    keys["output_router_logits"] = keys["router_aux_loss_coef"] > 0
    window = r.choice([None, 5])
    some = r.choice([[], [0], [layers - 1]])
    width, topk = r.randint(5, 20), r.random() < 0.5
    if family == "mixtral":
        return transformers.MixtralConfig(**keys, num_local_experts=experts, sliding_window=window)
    if family == "qwen2_moe":
        return transformers.Qwen2MoeConfig(
            **keys, num_experts=experts, moe_intermediate_size=width, norm_topk_prob=topk,
            shared_expert_intermediate_size=r.randint(5, 20), mlp_only_layers=some,
            qkv_bias=r.random() < 0.7)
    if family == "qwen3_moe":
        return transformers.Qwen3MoeConfig(
            **keys, num_experts=experts, moe_intermediate_size=width, norm_topk_prob=topk,
            head_dim=2 * r.randint(2, 6), mlp_only_layers=some,
            decoder_sparse_step=r.choice([1, 1, 2]) if not some else 1,
            use_sliding_window=window is not None, sliding_window=window)
    return transformers.OlmoeConfig(**keys, num_experts=experts, norm_topk_prob=topk)


def make_model(family, seed):
    r = random.Random(f"{family} {seed}")
    torch.manual_seed(r.getrandbits(31))
    model = transformers.AutoModelForCausalLM.from_config(make_config(family, r))
    model.set_experts_implementation("eager")
    with torch.no_grad():  # routers begin with zeros
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
    return model.float().eval()


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n"
                         f"{done.stdout}{done.stderr}")
    return done.stdout


def tensors_of(folder):
    tensors = {}
    for f in sorted(folder.glob("model*.safetensors")):
        tensors |= load_file(f)
    return tensors


def expect(folder, model):
    """What test_hf reads: tokens and logits."""
    c = model.config
    tokens = torch.randint(0, c.vocab_size, (2, 23))
    with torch.no_grad():
        logits = model(tokens).logits
    meta = {"batch": 2, "eval_len": 23, "seq_len": 23, "steps": 0, "vocab": c.vocab_size}
    save_file({"tokens": tokens.int(), "logits": logits.contiguous()},
              folder / "expected.safetensors", {"config": json.dumps(meta)})


def differences(before, after):
    """Of two configurations, in the words of transformers."""
    a, b = (transformers.AutoConfig.from_pretrained(f).to_dict() for f in (before, after))
    same = {"head_dim": (None, b.get("head_dim")), "sliding_window": (0, None)}  # before, after
    return [f"{k}: {b.get(k)}, before {a.get(k)}" for k in sorted(a.keys() | b.keys())
            if k not in APART and a.get(k) != b.get(k)
            and (a.get(k), b.get(k)) != same.get(k)]


def check(family, seed, work, build):
    work = pathlib.Path(work) / f"{family}{seed}"
    fused, before, rundir, after = (work / n for n in ("fused", "before", "run", "after"))
    model = make_model(family, seed)
    problems = []
    model.save_pretrained(before, max_shard_size=60_000 if seed % 2 else 10**9)
    model.save_pretrained(fused, save_original_format=False)
    for folder in (before, fused):
        expect(folder, model)
        run(build / "tests" / "test_hf", folder)
    run(build / "trireme", "train", "--set", f"model.from={fused if seed % 3 == 2 else before}",
        "--set", "data.source=synthetic", "--set", "train.steps=1", "--set", "optim.lr=0", "--set",
        "train.batch=1", "--set", "data.seq_len=16", "--set", f"run.dir={rundir}")
    run(build / "trireme", "ckpt", "export", rundir, "--hf", after)
    old, new = tensors_of(before), tensors_of(after)
    if old.keys() != new.keys():
        problems.append(f"tensors differ: {sorted(old.keys() ^ new.keys())[:4]}")
    problems += [f"{n} differs" for n in old.keys() & new.keys()
                 if old[n].shape != new[n].shape or not torch.equal(old[n], new[n])][:4]
    back, info = transformers.AutoModelForCausalLM.from_pretrained(
        after, output_loading_info=True, experts_implementation="eager")
    if type(back) is not type(model) or any(info.values()):
        problems.append(f"transformers reads a {type(back).__name__}: {info}")
    states = model.state_dict(), back.state_dict()
    problems += [f"{n} is read differently" for n in states[0]
                 if not torch.equal(states[0][n], states[1][n])][:4]
    tokens = torch.randint(0, model.config.vocab_size, (2, 23))
    with torch.no_grad():  # the same weights, but perhaps other roundings
        worst = float((model(tokens).logits - back.eval()(tokens).logits).abs().max())
    if worst > 1e-5:
        problems.append(f"logits differ by {worst:.1e} after the export")
    problems += differences(before, after)
    print(f"{family} {seed}: " + ("; ".join(problems) or
          f"logits agree, {len(old)} tensors bit for bit, the same configuration"))
    return not problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--models", default=3, type=int)
    parser.add_argument("families", nargs="*", default=[])
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print("torch", torch.__version__, "transformers", transformers.__version__)
    families = options.families or ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe"]
    with tempfile.TemporaryDirectory() as work:
        good = [check(f, s, work, options.build.resolve())
                for f in families for s in range(options.models)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
