"""Writes tests/fixtures/hf_*/: small models as Hugging Face stores them, and what they compute.

Each directory has config.json and model.safetensors (once as a sharded index) with random weights,
written by `transformers` itself, and expected.safetensors: logits, losses, gradients, ten steps of
training, greedy generation, computed by `transformers` in float32 and again in float64. See HF.md
for what is in there. Nothing is downloaded.
"""

import copy
import json
import os
import pathlib
import shutil

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

import make_fixtures
import optim
import philox

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
STEPS = 10
OPTIM = make_fixtures.OPTIM
CLIP = 1.0
NEW_TOKENS = 20
LIMIT = 3_000_000  # bytes, everything together

PAD, CLS, SEP, MASK, FIRST_WORD = 0, 1, 2, 3, 4  # bert: words begin at 4; PAD is never attended to

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}


def decoder(vocab, hidden, heads, kv_heads, ffn, layers=2, theta=10000.0, scaling=None, **keys):
    """The keys that llama, qwen and mistral have in common."""
    rope = {"rope_type": "default", "rope_theta": theta} | (scaling or {})
    return {
        "vocab_size": vocab, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": ffn, "num_hidden_layers": layers,
        "max_position_embeddings": 64, "rope_parameters": rope, "bos_token_id": 1,
        "eos_token_id": 2,
    } | keys


def encoder(**keys):
    return {
        "vocab_size": 90, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
        "intermediate_size": 50, "max_position_embeddings": 20, "type_vocab_size": 2,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": PAD,
    } | keys


# name: model class, task, config, and
#   seed        of weights and tokens
#   batch, eval_len, train_len   sizes of the token arrays
#   prompts     lengths of the prompts to continue
#   style       "5": config.json as transformers 5 writes it; "4": as the files on the hub have it
#   shard       the most bytes a shard may have
CASES = {
    "hf_gpt2": (
        transformers.GPT2LMHeadModel, "causal",
        transformers.GPT2Config(
            n_layer=2, n_embd=30, n_head=3, vocab_size=97, n_positions=24, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=96, eos_token_id=96,
        ),
        {"seed": 131, "eval_len": 24, "train_len": 13, "prompts": (4, 3, 1), "style": "5"},
    ),
    "hf_llama": (
        transformers.LlamaForCausalLM, "causal",
        transformers.LlamaConfig(**decoder(101, 40, 4, 2, 70, theta=500.0, scaling=LLAMA3,
                                           head_dim=10, rms_norm_eps=1e-5)),
        {"seed": 102, "eval_len": 37, "train_len": 17, "prompts": (9, 5, 1), "style": "4"},
    ),
    "hf_llama_tied": (
        transformers.LlamaForCausalLM, "causal",
        transformers.LlamaConfig(**decoder(107, 42, 3, 1, 61, rms_norm_eps=1e-5,
                                           tie_word_embeddings=True)),
        {"seed": 213, "eval_len": 19, "train_len": 15, "prompts": (7, 4, 1), "style": "4",
         "shard": 70_000},
    ),
    "hf_qwen2": (
        transformers.Qwen2ForCausalLM, "causal",
        transformers.Qwen2Config(**decoder(103, 36, 6, 2, 50, theta=1e6)),
        {"seed": 114, "eval_len": 21, "train_len": 14, "prompts": (6, 3, 1), "style": "4"},
    ),
    "hf_qwen3": (
        transformers.Qwen3ForCausalLM, "causal",
        transformers.Qwen3Config(**decoder(89, 30, 6, 3, 46, theta=1e6, head_dim=8,
                                           tie_word_embeddings=True)),
        {"seed": 355, "eval_len": 21, "train_len": 14, "prompts": (6, 3, 1), "style": "5"},
    ),
    "hf_mistral": (
        transformers.MistralForCausalLM, "causal",
        transformers.MistralConfig(**decoder(95, 32, 4, 2, 45, layers=3, sliding_window=7,
                                             rms_norm_eps=1e-5)),
        {"seed": 136, "eval_len": 23, "train_len": 18, "prompts": (11, 5, 1), "style": "5"},
    ),
    "hf_bert": (
        transformers.BertForMaskedLM, "mlm",
        transformers.BertConfig(**encoder(hidden_act="gelu")),
        {"seed": 107, "eval_len": 19, "train_len": 15, "style": "5"},
    ),
    "hf_bert_cls": (
        transformers.BertForSequenceClassification, "cls",
        transformers.BertConfig(**encoder(hidden_act="relu", num_labels=3)),
        {"seed": 108, "eval_len": 19, "train_len": 15, "style": "5"},
    ),
}
BATCH = {"causal": 3, "mlm": 4, "cls": 5}


# --- weights -------------------------------------------------------------------------------------


def is_norm(name):
    return "norm" in name.lower() or ".ln_" in name


def fill(model, seed):
    """Normal values that depend on the seed and the tensor's name alone."""
    with torch.no_grad():
        for name, p in model.named_parameters():  # a tied tensor comes once
            std = 0.2
            if is_norm(name) or name.endswith("bias"):
                std = 0.1
            elif "embed" in name or "wte" in name:
                std = 0.15  # less than the rest: a tied model would only repeat its last token
            normal = philox.random_normal(seed, 0, p.numel(), 0, philox.stream("hf", name))
            value = torch.from_numpy(normal * np.float32(std)).reshape(p.shape)
            p.copy_(value + 1 if is_norm(name) and name.endswith("weight") else value)


def doubled(model):
    """The same model in float64 throughout: transformers computes RMSNorm and the rotary angles in
    float32 whatever the type of the weights, so these two are replaced."""
    model = copy.deepcopy(model).double()

    def norm(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)
                                             + self.variance_epsilon)

    def rotary(self, x, position_ids):
        angle = position_ids[..., None].double() * self.inv_freq.double()
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos(), angle.sin()

    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            module.forward = norm.__get__(module)
        elif kind.endswith("RotaryEmbedding"):
            module.forward = rotary.__get__(module)
    return model


# --- tokens --------------------------------------------------------------------------------------


def words(seed, name, shape):
    index = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
    return philox.random_word(seed, index, 0, philox.stream("hf", name))


def sequences(seed, vocab, steps, batch, length, ignored):
    """make_fixtures' data: half the tokens follow a fixed map; some targets are ignored."""
    c = {"kind": "gpt2", "seed": seed, "steps": steps, "batch": batch, "vocab": vocab,
         "seq_len": length}
    data = make_fixtures.make_data(c, ignored)
    return data["tokens"], data["targets"]


def encoder_data(task, config, seed, steps, batch, length):
    """Padded rows that begin with CLS; step 2, and row 0 always, have no padding."""
    tokens, _ = sequences(seed, config.vocab_size - FIRST_WORD, steps, batch, length, 0.0)
    tokens = tokens + FIRST_WORD
    tokens[:, :, 0] = CLS
    shape = tokens.shape
    lens = length // 3 + words(seed, "length", shape[:2]) % (length - length // 3 + 1)
    lens[:, 0] = length
    if steps > 2:
        lens[2] = length
    lens = lens.astype(np.int32)[..., None]
    at = np.arange(length)
    tokens[at == lens - 1] = SEP
    mask = (at < lens).astype(np.int32)
    out = {"attention_mask": mask}
    if task == "cls":
        out["labels"] = (words(seed, "label", shape[:2]) % 3).astype(np.int32)
    else:
        chosen = (words(seed, "chosen", shape) % 4 == 0) & (tokens >= FIRST_WORD) & (mask == 1)
        targets = np.where(chosen, tokens, -1).astype(np.int32)
        how, other = words(seed, "how", shape) % 10, words(seed, "other", shape)
        other = (other % (config.vocab_size - FIRST_WORD) + FIRST_WORD).astype(np.int32)
        tokens = np.where(chosen & (how < 8), MASK, np.where(chosen & (how == 8), other, tokens))
        out["targets"] = targets
    out["tokens"] = np.where(mask == 1, tokens, PAD).astype(np.int32)
    return out


def make_data(task, config, seed, steps, batch, length):
    if task != "causal":
        return encoder_data(task, config, seed, steps, batch, length)
    ignored = 0.1 if steps > 3 else 0.0
    tokens, targets = sequences(seed, config.vocab_size, steps, batch, length, ignored)
    return {"tokens": tokens, "targets": targets}


def at_step(data, step):
    return {name: torch.from_numpy(x[step]).long() for name, x in data.items()}


# --- what transformers computes ------------------------------------------------------------------


def inputs(batch):
    """What to call the model with, of a batch."""
    names = {"tokens": "input_ids", "attention_mask": "attention_mask",
             "token_type_ids": "token_type_ids"}
    return {names[key]: x for key, x in batch.items() if key in names}


def loss_of(model, batch):
    """Sum over the real targets divided by their number; what HF's own loss is, too."""
    logits = model(**inputs(batch)).logits
    target = batch["labels"] if "labels" in batch else batch["targets"].reshape(-1)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target, ignore_index=-1)


@torch.no_grad()
def check_own_loss(model, task, batch):
    """HF ignores -100, and shifts the labels of a causal model itself unless told otherwise."""
    if task == "cls":
        own = model(**inputs(batch), labels=batch["labels"]).loss
    else:
        labels = batch["targets"].masked_fill(batch["targets"] < 0, -100)
        shift = {"shift_labels": labels} if task == "causal" else {}
        own = model(**inputs(batch), labels=labels, **shift).loss
    assert abs(float(own) / float(loss_of(model, batch)) - 1) < 1e-6, (task, own)


def train(model, data, rule_of_ours=False, loss_of=loss_of):
    """Ten AdamW steps on a copy of the model: losses, norms, first gradients, weights."""
    model = copy.deepcopy(model)
    params = dict(model.named_parameters())
    decay = {n: OPTIM["weight_decay"] if p.ndim >= 2 else 0.0 for n, p in params.items()}
    for n in params:
        assert (decay[n] == 0) == (is_norm(n) or n.endswith("bias")), n
    groups = [{"params": [params[n]], "weight_decay": decay[n]} for n in params]
    rule = torch.optim.AdamW(groups, lr=OPTIM["lr"], betas=(OPTIM["beta1"], OPTIM["beta2"]),
                             eps=OPTIM["eps"])
    states = {n: {} for n in params}
    losses, norms, first = [], [], None
    for step in range(STEPS):
        loss = loss_of(model, at_step(data, step))
        grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
        norm = float(sum((g.double() ** 2).sum() for g in grads.values()).sqrt())
        losses.append(float(loss.detach()))
        norms.append(norm)
        first = first or grads
        factor = CLIP / norm if norm > CLIP else 1.0
        for n, p in params.items():
            p.grad = grads[n] * factor
        if rule_of_ours:
            with torch.no_grad():
                for n, p in params.items():
                    p.copy_(optim.adam(p, p.grad, states[n], OPTIM, decay[n], step + 1, True))
        else:
            rule.step()
    return losses, norms, first, params


def generate(model, prompts):
    """Greedy tokens, each prompt alone, and the least distance between the best two logits."""
    out, margin = [], np.inf
    for prompt in prompts:
        row = torch.from_numpy(prompt).long()[None]
        ones = torch.ones_like(row)
        cached, plain = (
            model.generate(row, attention_mask=ones, do_sample=False, max_new_tokens=NEW_TOKENS,
                           use_cache=use_cache, pad_token_id=0)
            for use_cache in (True, False)
        )
        assert torch.equal(cached, plain), "with and without cache"
        assert cached.shape[1] == len(prompt) + NEW_TOKENS, "ended early"
        with torch.no_grad():
            logits = model(cached).logits[0, len(prompt) - 1 : -1]
        best = logits.topk(2).values
        margin = min(margin, float((best[:, 0] - best[:, 1]).min()))
        assert torch.equal(logits.argmax(-1), cached[0, len(prompt):])
        out.append(cached[0, len(prompt):].numpy().astype(np.int32))
    return np.stack(out), margin


def logits_of(model, batch):
    with torch.no_grad():
        return model(**inputs(batch)).logits


def expected(name, model, task, config, keys):
    seed, B = keys["seed"], BATCH[task]
    double = doubled(model)
    data = make_data(task, config, seed + 1000, 1, B, keys["eval_len"])
    batch = at_step(data, 0)
    out = {n: torch.from_numpy(x[0]) for n, x in data.items()}
    out["logits"], out["logits_f64"] = logits_of(model, batch), logits_of(double, batch)
    with torch.no_grad():
        out["loss"] = loss_of(model, batch).reshape(1)
    check_own_loss(model, task, batch)
    if task != "causal":
        types = torch.arange(keys["eval_len"]) >= 6
        types = types.expand(B, -1).clone().int()
        types[0] = 0
        out["token_type_ids"] = types
        out["logits_types"] = logits_of(model, batch | {"token_type_ids": types.long()})

    data = make_data(task, config, seed + 2000, STEPS, B, keys["train_len"])
    out |= {f"train_{n}": torch.from_numpy(x) for n, x in data.items()}
    check_own_loss(model, task, at_step(data, 0))
    losses, norms, first, _ = train(model, data)
    losses64, norms64, _, after64 = train(double, data)
    ours64 = train(double, data, rule_of_ours=True)[3]
    for n, p in after64.items():
        # 1e-10: the gradient of a key bias is nothing but rounding noise
        assert torch.allclose(p, ours64[n], rtol=1e-10, atol=1e-10), (name, n)
    out["losses"], out["grad_norms"] = torch.tensor(losses), torch.tensor(norms)
    out["losses_f64"] = torch.tensor(losses64, dtype=torch.float64)
    out["grad_norms_f64"] = torch.tensor(norms64, dtype=torch.float64)
    out |= {f"grad/{n}": g for n, g in first.items()}

    margin = 0.0
    if task == "causal":
        most = max(keys["prompts"])
        rows, _ = sequences(seed + 3000, config.vocab_size, 1, len(keys["prompts"]), most, 0.0)
        prompts = [row[:length] for row, length in zip(rows[0], keys["prompts"])]
        tokens, margin = generate(model, prompts)
        for i, length in enumerate(keys["prompts"]):
            rows[0, i, length:] = -1
        out["prompts"] = torch.from_numpy(rows[0])
        out["prompt_lens"] = torch.tensor(keys["prompts"], dtype=torch.int32)
        out["generated"] = torch.from_numpy(tokens)
        assert margin > 1e-3, (name, "a tie in generation: choose another seed", margin)
        distinct = [len(set(row)) for row in tokens.tolist()]
        assert min(distinct) >= 4, (name, "dull: choose another seed", distinct)
    meta = {
        "family": config.model_type, "task": task, "steps": STEPS, "batch": B,
        "seq_len": keys["train_len"], "eval_len": keys["eval_len"], "vocab": config.vocab_size,
        "optim": {k: OPTIM[k] for k in ("kind", "lr", "beta1", "beta2", "eps", "weight_decay")},
        "clip": CLIP, "dropout": 0.0, "seed": seed,
        "new_tokens": NEW_TOKENS if task == "causal" else 0, "least_margin": round(margin, 6),
        "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__,
    }
    return out, meta


# --- files ---------------------------------------------------------------------------------------


def hub_style(c):
    """config.json as transformers 4 wrote it, which most files on the hub still are."""
    c = dict(c)
    rope = c.pop("rope_parameters")
    c["rope_theta"] = rope.pop("rope_theta")
    c["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    c["torch_dtype"] = c.pop("dtype")
    c["transformers_version"] = "4.45.0"
    c.pop("layer_types", None)
    if c.get("head_dim") == c["hidden_size"] // c["num_attention_heads"]:
        del c["head_dim"]
    if c["model_type"] == "qwen2":  # a window that is not in use, as in Qwen2.5
        c |= {"sliding_window": 5, "use_sliding_window": False, "max_window_layers": 1}
    return dict(sorted(c.items()))


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def write(folder, model, keys):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size=keys.get("shard", 10**9))
    (folder / "generation_config.json").unlink(missing_ok=True)
    if keys["style"] == "4":
        path = folder / "config.json"
        c = json.loads(path.read_text())
        write_json(folder / "config_v5.json", c)
        write_json(path, hub_style(c))
        if folder.name != "hf_llama":
            (folder / "config_v5.json").unlink()


def check_reload(folder, model_class, model, out, task):
    """The directory alone gives the same logits, with either attention code."""
    auto = {"causal": transformers.AutoModelForCausalLM, "mlm": transformers.AutoModelForMaskedLM,
            "cls": transformers.AutoModelForSequenceClassification}[task]
    batch = {n: out[n].long() for n in ("tokens", "attention_mask") if n in out}
    again, info = auto.from_pretrained(folder, output_loading_info=True)
    assert type(again) is model_class and not any(info.values()), info
    assert torch.equal(logits_of(again.eval(), batch), out["logits"]), folder
    eager = auto.from_pretrained(folder, attn_implementation="eager").eval()
    diff = float((logits_of(eager, batch) - out["logits"]).abs().max())
    assert diff < 1e-5, (folder, diff)
    if (folder / "config_v5.json").exists():
        config = transformers.AutoConfig.from_pretrained(folder / "config_v5.json")
        again = auto.from_pretrained(folder, config=config).eval()
        assert torch.equal(logits_of(again, batch), out["logits"]), folder
    if task == "causal" and model.config.tie_word_embeddings:
        assert again.lm_head.weight is again.get_input_embeddings().weight


def write_bare_gpt2(source, folder, out):
    """The names of the first GPT-2 files: no `transformer.`, and the causal mask as a buffer."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    c = json.loads((source / "config.json").read_text())
    c["n_ctx"] = c["n_positions"]
    write_json(folder / "config.json", dict(sorted(c.items())))
    tensors = load_file(source / "model.safetensors")
    tensors = {n.removeprefix("transformer."): x for n, x in tensors.items()}
    T = c["n_positions"]
    for l in range(c["n_layer"]):
        tensors[f"h.{l}.attn.bias"] = torch.ones(T, T).tril().reshape(1, 1, T, T)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    assert torch.equal(logits_of(model, {"tokens": out["tokens"].long()}), out["logits"])


def write_unknown(folder):
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", {
        "architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": 24,
        "num_hidden_layers": 2, "state_size": 4, "vocab_size": 97, "torch_dtype": "float32",
    })


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print("torch", torch.__version__, "transformers", transformers.__version__)
    print(f"{'case':14} {'bytes':>7} {'logit std':>9} {'first':>7} {'last':>7} {'norms':>13}"
          f" {'margin':>7} | float32 drift: logits   losses    norms")
    for name, (model_class, task, config, keys) in CASES.items():
        model = model_class(config).eval()
        fill(model, keys["seed"])
        folder = FIXTURES / name
        write(folder, model, keys)
        out, meta = expected(name, model, task, config, keys)
        check_reload(folder, model_class, model, out, task)
        if name == "hf_gpt2":
            write_bare_gpt2(folder, FIXTURES / "hf_gpt2_bare", out)
        out = {n: x.detach().contiguous() for n, x in out.items()}
        save_file(out, folder / "expected.safetensors",
                  {"config": json.dumps(meta, separators=(",", ":"))})
        drift = [float((out["logits"] - out["logits_f64"]).abs().max())]
        drift += [float((out[n] / out[n + "_f64"] - 1).abs().max())
                  for n in ("losses", "grad_norms")]
        size = sum(f.stat().st_size for f in folder.iterdir())
        norms = f"{float(out['grad_norms'].min()):.3f}..{float(out['grad_norms'].max()):.3f}"
        print(f"{name:14} {size:7} {float(out['logits'].std()):9.3f}"
              f" {float(out['losses'][0]):7.4f} {float(out['losses'][-1]):7.4f} {norms:>13}"
              f" {meta['least_margin']:7.4f} | {drift[0]:21.1e} {drift[1]:8.1e} {drift[2]:8.1e}")
    write_unknown(FIXTURES / "hf_unknown")
    files = [f for folder in FIXTURES.glob("hf_*") for f in folder.iterdir()]
    for f in files:
        f.chmod(0o644)  # safetensors writes 0600
    total = sum(f.stat().st_size for f in files)
    print(f"{total} bytes in all")
    assert total < LIMIT


if __name__ == "__main__":
    main()
