"""Writes tests/fixtures/hf_{mixtral,qwen2_moe,qwen3_moe,olmoe}/: mixtures of experts as Hugging Face
stores them, and what they compute. As make_hf_fixtures.py, whose parts it uses; see HF.md.

The training is with the loss of balance, as transformers adds it (output_router_logits): `losses` and
gradients are of both together, `aux_losses` are it alone before its weight. All positions have a
target: transformers counts tokens without one for the balance, and we do not.
"""

import copy
import json

import make_hf_fixtures as hf  # first: it tells transformers to stay offline
import torch
import transformers
from safetensors.torch import save_file

BALANCE = 0.05  # large, so that a wrong one shows
LEAST_CHOICE = 2e-5  # between the logits of the last expert that is chosen and the next


def sparse(vocab, hidden, heads, kv_heads, ffn, top, **keys):
    keys = {"num_experts_per_tok": top, "output_router_logits": True,
            "router_aux_loss_coef": BALANCE} | keys
    return hf.decoder(vocab, hidden, heads, kv_heads, ffn, **keys)


# As CASES of make_hf_fixtures.
CASES = {
    "hf_mixtral": (
        transformers.MixtralForCausalLM,
        transformers.MixtralConfig(**sparse(61, 24, 4, 2, 18, 2, num_local_experts=5,
                                            sliding_window=7, theta=1e6)),
        {"seed": 401, "eval_len": 19, "train_len": 13, "prompts": (9, 5, 1), "style": "5"},
    ),
    "hf_qwen2_moe": (
        transformers.Qwen2MoeForCausalLM,
        transformers.Qwen2MoeConfig(**sparse(67, 20, 5, 1, 26, 3, layers=3, num_experts=6,
                                             moe_intermediate_size=10,
                                             shared_expert_intermediate_size=14,
                                             mlp_only_layers=[1], norm_topk_prob=False)),
        {"seed": 442, "eval_len": 17, "train_len": 14, "prompts": (6, 3, 1), "style": "5",
         "shard": 40_000},
    ),
    "hf_qwen3_moe": (
        transformers.Qwen3MoeForCausalLM,
        transformers.Qwen3MoeConfig(**sparse(59, 18, 4, 2, 22, 2, layers=4, num_experts=8,
                                             moe_intermediate_size=10, head_dim=6, theta=1e6,
                                             decoder_sparse_step=2, norm_topk_prob=True,
                                             tie_word_embeddings=True)),
        {"seed": 533, "eval_len": 17, "train_len": 14, "prompts": (6, 3, 1), "style": "4"},
    ),
    "hf_olmoe": (
        transformers.OlmoeForCausalLM,
        # No padding token: its row of the table would get no gradient, wherever it stands.
        transformers.OlmoeConfig(**sparse(63, 24, 4, 2, 14, 3, num_experts=7,
                                          norm_topk_prob=False, pad_token_id=None)),
        {"seed": 424, "eval_len": 17, "train_len": 14, "prompts": (6, 3, 1), "style": "5"},
    ),
}
BATCH = 3


def doubled(model):
    """As hf.doubled; routers, too, have a float32 of their own."""

    def route(self, x):
        logits = x.reshape(-1, self.hidden_dim) @ self.weight.T
        best, index = logits.softmax(-1).topk(self.top_k, dim=-1)
        if getattr(self, "norm_topk_prob", True):
            best = best / best.sum(-1, keepdim=True)
        return logits, best, index

    model = hf.doubled(model)
    for module in model.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.forward = route.__get__(module)
    return model


def balance(routers, top):
    """Over all layers together: experts times the sum of share of tokens times mean score."""
    logits = torch.cat(list(routers))
    scores = logits.softmax(-1)
    chosen = torch.zeros_like(scores).scatter_(1, scores.topk(top, dim=-1).indices, 1.0)
    return scores.shape[1] * (chosen.mean(0) * scores.mean(0)).sum()


class Losses:
    """Cross entropy with the loss of balance; remembers both, and the closest choice of experts."""

    def __init__(self):
        self.total, self.aux, self.margin = [], [], float("inf")

    def __call__(self, model, batch):
        out = model(**hf.inputs(batch), output_router_logits=True)
        top = model.config.num_experts_per_tok
        logits = out.logits.reshape(-1, out.logits.shape[-1])
        main = torch.nn.functional.cross_entropy(logits, batch["targets"].reshape(-1),
                                                 ignore_index=-1)
        aux = balance(out.router_logits, top)
        self.total.append(float((main + BALANCE * aux).detach()))
        self.aux.append(float(aux.detach()))
        best = torch.cat(list(out.router_logits)).topk(top + 1, dim=-1).values
        self.margin = min(self.margin, float((best[:, -2] - best[:, -1]).detach().min()))
        return main + BALANCE * aux


@torch.no_grad()
def check_own_loss(model, batch):
    """What transformers itself adds up."""
    labels = batch["targets"].masked_fill(batch["targets"] < 0, -100)
    out = model(**hf.inputs(batch), labels=labels, shift_labels=labels)
    losses = Losses()
    assert abs(float(out.loss) / float(losses(model, batch)) - 1) < 1e-6
    assert abs(float(out.aux_loss) / losses.aux[0] - 1) < 1e-6


def expected(name, model, config, keys):
    seed = keys["seed"]
    double = doubled(model)
    data = hf.make_data("causal", config, seed + 1000, 1, BATCH, keys["eval_len"])
    batch = hf.at_step(data, 0)
    out = {n: torch.from_numpy(x[0]) for n, x in data.items()}
    out["logits"], out["logits_f64"] = hf.logits_of(model, batch), hf.logits_of(double, batch)
    seen = Losses()
    with torch.no_grad():
        seen(model, batch)
    out["loss"], out["aux_loss"] = torch.tensor(seen.total), torch.tensor(seen.aux)
    check_own_loss(model, batch)

    tokens, targets = hf.sequences(seed + 2000, config.vocab_size, hf.STEPS, BATCH,
                                   keys["train_len"], 0.0)
    data = {"tokens": tokens, "targets": targets}
    out |= {f"train_{n}": torch.from_numpy(x) for n, x in data.items()}
    single, wide = Losses(), Losses()
    _, norms, first, _ = hf.train(model, data, loss_of=single)
    _, norms64, _, _ = hf.train(double, data, loss_of=wide)
    out["losses"], out["aux_losses"] = torch.tensor(single.total), torch.tensor(single.aux)
    out["losses_f64"] = torch.tensor(wide.total, dtype=torch.float64)
    out["aux_losses_f64"] = torch.tensor(wide.aux, dtype=torch.float64)
    out["grad_norms"] = torch.tensor(norms)
    out["grad_norms_f64"] = torch.tensor(norms64, dtype=torch.float64)
    out |= {f"grad/{n}": g for n, g in first.items() if "mlp.gate." in n}
    choice = min(seen.margin, single.margin)
    assert choice > LEAST_CHOICE, (name, "a tie of experts: choose another seed", choice)

    most = max(keys["prompts"])
    rows, _ = hf.sequences(seed + 3000, config.vocab_size, 1, len(keys["prompts"]), most, 0.0)
    prompts = [row[:length] for row, length in zip(rows[0], keys["prompts"])]
    tokens, margin = hf.generate(model, prompts)
    for i, length in enumerate(keys["prompts"]):
        rows[0, i, length:] = -1
    out["prompts"] = torch.from_numpy(rows[0])
    out["prompt_lens"] = torch.tensor(keys["prompts"], dtype=torch.int32)
    out["generated"] = torch.from_numpy(tokens)
    assert margin > 1e-3, (name, "a tie in generation: choose another seed", margin)
    distinct = [len(set(row)) for row in tokens.tolist()]
    assert min(distinct) >= 4, (name, "dull: choose another seed", distinct)
    meta = {
        "family": config.model_type, "task": "causal", "steps": hf.STEPS, "batch": BATCH,
        "seq_len": keys["train_len"], "eval_len": keys["eval_len"], "vocab": config.vocab_size,
        "optim": {k: hf.OPTIM[k] for k in ("kind", "lr", "beta1", "beta2", "eps", "weight_decay")},
        "clip": hf.CLIP, "dropout": 0.0, "seed": seed, "new_tokens": hf.NEW_TOKENS,
        "balance": BALANCE, "least_margin": round(margin, 6), "least_choice": round(choice, 7),
        "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__,
    }
    return out, meta


def hub_style(folder):
    """The number of experts as transformers 4 wrote it, and a window that is not in use."""
    path = folder / "config.json"
    c = json.loads(path.read_text())
    c["num_experts"] = c.pop("num_local_experts")
    c |= {"sliding_window": None, "max_window_layers": 4}
    hf.write_json(path, dict(sorted(c.items())))


def check_reload(folder, model_class, out):
    """The directory alone gives the same logits."""
    again, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, experts_implementation="eager")
    assert type(again) is model_class and not any(info.values()), info
    logits = hf.logits_of(again.eval(), {"tokens": out["tokens"].long()})
    assert torch.equal(logits, out["logits"]), folder


def fused(model, folder):
    """The same weights as transformers 5 has them in memory: gate and up of all experts in one."""
    model.save_pretrained(folder, save_original_format=False)
    (folder / "config.json").unlink()
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").rename(folder.parent / folder.name.replace("-fused", "")
                                          / "fused.safetensors")
    folder.rmdir()


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print("torch", torch.__version__, "transformers", transformers.__version__)
    print(f"{'case':14} {'bytes':>7} {'logit std':>9} {'first':>7} {'last':>7} {'balance':>13}"
          f" {'margin':>7} {'choice':>7} | float32 drift: logits   losses    norms")
    for name, (model_class, config, keys) in CASES.items():
        model = model_class(config).eval()
        model.set_experts_implementation("eager")  # the fast one wants widths that 4 divides
        hf.fill(model, keys["seed"])
        folder = hf.FIXTURES / name
        hf.write(folder, model, keys)
        out, meta = expected(name, model, config, keys)
        if keys["style"] == "4":
            hub_style(folder)
        check_reload(folder, model_class, out)
        if name == "hf_mixtral":
            fused(copy.deepcopy(model), hf.FIXTURES / (name + "-fused"))
        out = {n: x.detach().contiguous() for n, x in out.items()}
        save_file(out, folder / "expected.safetensors",
                  {"config": json.dumps(meta, separators=(",", ":"))})
        drift = [float((out["logits"] - out["logits_f64"]).abs().max())]
        drift += [float((out[n] / out[n + "_f64"] - 1).abs().max())
                  for n in ("losses", "grad_norms")]
        for f in folder.iterdir():
            f.chmod(0o644)  # safetensors writes 0600
        size = sum(f.stat().st_size for f in folder.iterdir())
        aux = f"{min(out['aux_losses']):.3f}..{max(out['aux_losses']):.3f}"
        print(f"{name:14} {size:7} {float(out['logits'].std()):9.3f}"
              f" {float(out['losses'][0]):7.4f} {float(out['losses'][-1]):7.4f} {aux:>13}"
              f" {meta['least_margin']:7.4f} {meta['least_choice']:7.0e}"
              f" | {drift[0]:21.1e} {drift[1]:8.1e} {drift[2]:8.1e}")


if __name__ == "__main__":
    main()
