"""Models of transformers, through a run and out again: save_pretrained, `trireme generate`, one
training step with a learning rate of 0, `trireme ckpt export --hf`, from_pretrained.

    pip install transformers torch tokenizers
    python tests/reference/compare_hf_export.py [--build build]

For tiny random models of each family: the text that greedy generation makes, and the token it stops
at, must be the same three times: transformers before, trireme, transformers after; the exported
tokenizer, chat template and generation settings must be those that went in.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
PROMPT = "The licence says that"


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = open(os.path.join(ROOT, "LICENSE")).read()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=specials, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|endoftext|>",
                                                eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = TEMPLATE
    return fast


def make_model(family, vocab):
    torch.manual_seed(1)
    small = dict(vocab_size=vocab, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
    configs = {
        "llama": lambda: transformers.LlamaConfig(**small),
        "qwen2": lambda: transformers.Qwen2Config(**small),
        "gpt2": lambda: transformers.GPT2Config(vocab_size=vocab, n_embd=64, n_layer=2, n_head=4, n_positions=128),
    }
    model = transformers.AutoModelForCausalLM.from_config(configs[family]())
    with torch.no_grad():  # far apart logits: no tie is decided by rounding
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.mul_(8)
    return model.float().eval()


def greedy(model, ids, tokens=24):
    out = model.generate(torch.tensor([ids]), max_new_tokens=tokens, do_sample=False)
    return out[0, len(ids):].tolist()


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(family, work, trireme):
    tokenizer, before, problems = make_tokenizer(), os.path.join(work, family), []
    model = make_model(family, len(tokenizer))
    ids = tokenizer(PROMPT)["input_ids"]
    model.generation_config.eos_token_id = None
    free = greedy(model, ids)
    end = free[7]  # from now on a text ends here
    model.config.eos_token_id = model.generation_config.eos_token_id = end
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.config.bos_token_id = model.generation_config.bos_token_id = tokenizer.bos_token_id
    model.save_pretrained(before)
    tokenizer.save_pretrained(before)
    first = greedy(model, ids)
    line = json.loads(run(trireme, "generate", before, "--prompt", PROMPT, "--json", "--ids",
                          "--set", "generate.temperature=0", "--set", "generate.tokens=24"))
    ours = line["ids"]
    if line["end"] == "eos" and ours[-1:] != [end]:
        ours = ours + [end]
    if ours != first:
        problems.append(f"trireme makes {ours}, transformers {first}")
    rundir, after = os.path.join(work, family + "-run"), os.path.join(work, family + "-out")
    run(trireme, "train", "--set", f"model.from={before}", "--set", f"data.source={ROOT}/LICENSE", "--set",
        "train.steps=1", "--set", "optim.lr=0", "--set", "train.batch=1", "--set", "data.seq_len=32",
        "--set", f"run.dir={rundir}")
    run(trireme, "ckpt", "export", rundir, "--hf", after)
    back = transformers.AutoModelForCausalLM.from_pretrained(after).float().eval()
    words = transformers.AutoTokenizer.from_pretrained(after)
    second = greedy(back, words(PROMPT)["input_ids"])
    if second != first:
        problems.append(f"exported it makes {second}, before {first}")
    chat = [{"role": "user", "content": "Hi!"}]
    if words.apply_chat_template(chat, tokenize=False) != tokenizer.apply_chat_template(chat, tokenize=False):
        problems.append("the chat template differs")
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        for a, b, what in ((model.config, back.config, "config"), (model.generation_config, back.generation_config, "generation_config")):
            if getattr(a, name) != getattr(b, name):
                problems.append(f"{what}.{name}: {getattr(b, name)}, before {getattr(a, name)}")
        if getattr(words, name) != getattr(tokenizer, name):
            problems.append(f"tokenizer {name}")
    if words.get_vocab() != tokenizer.get_vocab():
        problems.append("the vocabulary differs")
    print(f"{family}: {'; '.join(problems) if problems else f'the same text, {len(first)} tokens, ends with {first[-1]}'}")
    return not problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    options = parser.parse_args()
    print("transformers", transformers.__version__)
    with tempfile.TemporaryDirectory() as work:
        good = [check(f, work, os.path.join(options.build, "trireme")) for f in ("llama", "qwen2", "gpt2")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
