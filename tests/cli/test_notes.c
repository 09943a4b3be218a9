/* Every row of the tables of notes: settings that lead to it, what it says, and what mends it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "config/notes.h"

typedef struct heard {
    bool row[256];
    int num;
    char text[4000];
} heard;

static void hear(void *context, int row, const char *note)
{
    heard *h = context;
    assert_in_range(row, 0, tri_num_notes() - 1);
    h->row[row] = true;
    h->num++;
    strncat(h->text, note, sizeof h->text - strlen(h->text) - 2);
    strcat(h->text, "\n");
}

/* Assignments with blanks between, on a small model. */
static void listen(const char *assignments, heard *h)
{
    static const char *const small[] = {"model.num_layers=2", "model.dim=16",  "data.seq_len=8",
                                        "train.batch=4",      "run.threads=1", "run.device=cpu"};
    tr_settings *settings;
    tr_error err = {0};
    tr_session *session;
    char copy[400], *rest = copy, *one;
    *h = (heard){0};
    assert_int_equal(tr_settings_create(&settings, &err), TR_OK);
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        assert_int_equal(tr_settings_fill(settings, small[i], &err), TR_OK);
    snprintf(copy, sizeof copy, "%s", assignments);
    while ((one = strsep(&rest, " ")))
        if (*one && tr_settings_set(settings, one, &err) != TR_OK)
            fail_msg("%s: %s", one, err.message);
    if (tri_api_compile(settings, 0, &session, &err) != TR_OK)
        fail_msg("%s: %s", assignments, err.message);
    tri_notes(settings, &session->session, hear, h);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

static const struct {
    const char *settings, *note;
    const char *mended; /* more settings, with which it is not said; NULL: left out, it is not */
} cases[] = {
    {"layout.pp=4 model.num_layers=4",
     "the pipeline idles 75 % of the time with layout.pp=4 and "
     "layout.microbatches=1; set layout.microbatches=12, and raise train.batch with it",
     "layout.microbatches=12 train.batch=12"},
    {"layout.dp=16",
     "train.batch has 4 rows for layout.dp x layout.microbatches = 16 parts: 12 of "
     "them compute on padding; set train.batch=16 or a multiple",
     "train.batch=16"},
    {"layout.dp=3", "2 rows of padding are computed; set train.batch=3 or 6", "train.batch=6"},
    {"data.source=README.md model.vocab=50257",
     "model.vocab is 50257, but the text is read as "
     "bytes, of which there are 256; set data.tokenizer",
     "model.vocab=256"},
    {"data.source=README.md model.preset=gpt2-124m", "model.vocab is 50257, but",
     "model.vocab=256"},
    {"run.restarts=2", "run.restarts without ckpt.every goes on from step 0", "ckpt.every=2"},
    {"optim.warmup_steps=200",
     "optim.warmup_steps=200 is not below the 100 steps of the run, so "
     "the learning rate only rises, to 0.00015; set optim.warmup_steps=10",
     "train.steps=300"},
    {"optim.schedule=wsd optim.decay_steps=200", "is more than the 100 steps", "train.steps=300"},
    {"train.eval_every=5 data.eval_fraction=0 data.source=README.md",
     "train.eval_every=5 has no "
     "effect: nothing is held out for evaluation; set data.eval_fraction=0.05",
     "data.eval_fraction=0.05"},
    {"layout.recompute=budget:8GiB", "layout.recompute=budget:8GiB recomputes nothing",
     "layout.recompute=full"},
    {"optim.lr=0", "optim.lr is 0, so the weights never change", "optim.lr=1"},
    {"ckpt.every=200", "ckpt.every=200 is above the 100 steps of the run", "ckpt.every=20"},
    {"train.eval_every=200", "train.eval_every=200 is above the 100 steps of the run",
     "train.eval_every=20"},
    {"model.head_dim=8", "model.head_dim has no effect with model.kind=gpt2", "model.kind=llama"},
    {"run.threads=1000", "run.threads=1000 on ", "run.device=null"},
    {"run.collective=ring", "run.collective=ring has no effect on one rank", "layout.dp=2"},
    {"model.num_labels=3",
     "model.num_labels=3 has no effect with model.task=lm; set "
     "model.task=classify, or leave it out",
     "model.kind=bert model.task=classify"},
    {"model.kind=mlp model.num_heads=8", "has no effect with model.kind=mlp; choose another",
     "model.kind=gpt2"},
    {"model.kind=mlp model.vocab=512", "model.vocab=512 has no effect with", "model.kind=gpt2"},
    {"model.bias=false", "model.bias=false has no effect with model.kind=gpt2", "model.kind=mlp"},
    {"model.act=relu", "set model.kind=mlp or bert, or leave it out", "model.kind=mlp"},
    {"model.kind=mlp train.z_loss=0.1", "train.z_loss=0.1 has no effect with", "model.kind=gpt2"},
    {"model.kind=mlp train.stats=max_logit", "train.stats=max_logit has no effect",
     "model.kind=gpt2"},
    {"model.kind=mlp model.loss_tile=2", "model.loss_tile=2 has no effect with", "model.kind=gpt2"},
    {"model.kind=bert model.task=classify model.loss_tile=2",
     "model.loss_tile=2 has no effect with model.task=classify", "model.task=mlm"},
    {"model.loss_tile=100000", "model.loss_tile=100000 has no effect with data.seq_len",
     "model.loss_tile=2"},
    {"model.loss=sse", "model.loss=sse has no effect", "model.kind=mlp"},
    {"model.types=3", "model.types=3 has no effect", "model.kind=bert"},
    {"model.norm_eps=0.1", "set model.kind=llama or bert", "model.kind=llama"},
    {"model.tied_head=true", "model.tied_head=true has no effect", "model.kind=llama"},
    {"model.qkv_bias=true", "model.qkv_bias=true has no effect", "model.kind=llama"},
    {"model.qk_norm=true", "model.qk_norm=true has no effect", "model.kind=llama"},
    {"model.window=4", "model.window=4 has no effect", "model.kind=llama"},
    {"model.rope_theta=500000",
     "model.rope_theta=500000 has no effect with model.kind=gpt2; set "
     "model.kind=llama, or leave it out",
     "model.kind=llama"},
    {"model.rope_factor=8", "model.rope_factor=8 has no effect", "model.kind=llama"},
    {"model.rope_low=2", "with model.rope_factor=0; set model.rope_factor above 0",
     "model.kind=llama model.rope_factor=8"},
    {"model.rope_high=8", "model.rope_high=8 has no effect",
     "model.kind=llama model.rope_factor=8"},
    {"model.rope_original=64", "model.rope_original=64 has no effect",
     "model.kind=llama model.rope_factor=8"},
    {"model.rope_factor=8 model.rope_low=2", "model.rope_low=2 has no effect with model.kind=gpt2",
     "model.kind=llama"},
    {"model.rope_factor=8 model.rope_high=8",
     "model.rope_high=8 has no effect with model.kind=gpt2", "model.kind=llama"},
    {"model.rope_factor=8 model.rope_original=64",
     "model.rope_original=64 has no effect with model.kind=gpt2", "model.kind=llama"},
    {"model.rope_part=0.5", "model.rope_part=0.5 has no effect with model.kind=gpt2",
     "model.kind=llama"},
    {"model.rope_scaling=yarn", "model.rope_scaling=yarn has no effect with model.kind=gpt2",
     "model.kind=llama model.rope_factor=8"},
    {"model.rope_scaling=yarn model.rope_slow=2",
     "model.rope_slow=2 has no effect with model.kind=gpt2", NULL},
    {"model.rope_scaling=yarn model.rope_fast=16",
     "model.rope_fast=16 has no effect with model.kind=gpt2", NULL},
    {"model.rope_scaling=yarn model.rope_truncate=false",
     "model.rope_truncate=false has no effect with model.kind=gpt2", NULL},
    {"model.rope_scaling=yarn model.rope_magnitude=2",
     "model.rope_magnitude=2 has no effect with model.kind=gpt2", NULL},
    {"model.rope_scaling=longrope model.rope_short=1,1",
     "model.rope_short=1,1 has no effect with model.kind=gpt2", NULL},
    {"model.rope_scaling=longrope model.rope_long=1,1",
     "model.rope_long=1,1 has no effect with model.kind=gpt2", NULL},
    {"model.kind=llama model.rope_factor=8 model.rope_scaling=linear model.rope_low=2",
     "model.rope_low=2 has no effect with model.rope_scaling=linear", "model.rope_scaling=llama3"},
    {"model.kind=llama model.rope_factor=8 model.rope_scaling=linear model.rope_high=8",
     "model.rope_high=8 has no effect", "model.rope_scaling=llama3"},
    {"model.kind=llama model.rope_factor=8 model.rope_slow=2",
     "model.rope_slow=2 has no effect with model.rope_scaling=llama3; set model.rope_scaling=yarn",
     "model.rope_scaling=yarn"},
    {"model.kind=llama model.rope_factor=8 model.rope_fast=16", "model.rope_fast=16 has no effect",
     "model.rope_scaling=yarn"},
    {"model.kind=llama model.rope_factor=8 model.rope_truncate=false",
     "model.rope_truncate=false has no effect", "model.rope_scaling=yarn"},
    {"model.kind=llama model.rope_factor=8 model.rope_magnitude=2",
     "set model.rope_scaling=yarn or longrope", "model.rope_scaling=yarn"},
    {"model.kind=llama model.rope_factor=8 model.rope_short=1,1",
     "model.rope_short=1,1 has no effect", "model.rope_scaling=longrope model.rope_long=1,1"},
    {"model.kind=llama model.rope_factor=8 model.rope_long=1,1",
     "model.rope_long=1,1 has no effect", "model.rope_scaling=longrope model.rope_short=1,1"},
    {"data.tokenizer=bytes", "data.tokenizer=bytes has no effect with data.source=synthetic",
     "data.source=README.md"},
    {"data.field=body", "data.field=body has no effect", "data.source=README.md"},
    {"data.samples=9 data.source=README.md", "data.samples=9 has no effect with data.source=README",
     "data.source=synthetic model.kind=bert model.task=classify"},
    {"data.samples=9", "data.samples=9 has no effect with data.task=lm",
     "model.kind=bert data.task=classify"},
    {"data.pair_field=b", "data.pair_field=b has no effect with data.task=lm", NULL},
    {"data.label_field=b", "data.label_field=b has no effect", NULL},
    {"data.labels=a;b", "data.labels=a;b has no effect", NULL},
    {"data.answer_field=b", "has no effect with data.task=lm; set data.task=instruct", NULL},
    {"data.template=b{output}", "data.template=b{output} has no effect", NULL},
    {"data.template_input=b{output}", "data.template_input=b{output} has no effect", NULL},
    {"data.pack=true model.kind=bert model.task=classify",
     "data.pack=true has no effect with data.task=classify; choose another data.task",
     "model.task=mlm"},
    {"data.mask_documents=true data.source=README.md data.pack=true",
     "data.mask_documents=true has no effect with data.pack=true; set data.pack=false",
     "data.pack=false"},
    {"data.mask_documents=true",
     "data.mask_documents=true has no effect with data.source=synthetic", "data.source=README.md"},
    {"data.too_long=drop", "data.too_long=drop has no effect", NULL},
    {"data.mask_fraction=0.3", "data.mask_fraction=0.3 has no effect", NULL},
    {"optim.kind=sgd optim.beta1=0.8", "optim.beta1=0.8 has no effect with optim.kind=sgd",
     "optim.kind=adam"},
    {"optim.kind=sgd optim.beta2=0.8", "optim.beta2=0.8 has no effect", "optim.kind=muon"},
    {"optim.kind=sgd optim.eps=0.1", "optim.eps=0.1 has no effect", "optim.kind=adamw"},
    {"optim.kind=lion optim.eps=0.1", "optim.eps=0.1 has no effect with optim.kind=lion",
     "optim.kind=adamw"},
    {"optim.kind=lion optim.moments=8bit", "set optim.kind=adam, adamw or muon, or leave it out",
     "optim.kind=adamw"},
    {"optim.momentum=0.8", "set optim.kind=sgd or muon", "optim.kind=sgd"},
    {"optim.nesterov=true", "optim.nesterov=true has no effect", "optim.kind=sgd"},
    {"optim.decay_steps=5", "with optim.schedule=constant; set optim.schedule=wsd",
     "optim.schedule=wsd"},
    {"optim.min_lr_ratio=0.1", "choose another optim.schedule", "optim.schedule=cosine"},
    {"layout.zero=3",
     "layout.zero=3 has no effect with layout.dp=1; set layout.dp or layout.cp above 1, or "
     "leave it out",
     "layout.dp=2"},
    {"layout.shard_group=1", "layout.shard_group=1 has no effect with layout.dp=1",
     "layout.dp=2 layout.zero=1"},
    {"layout.shard_group=2 layout.dp=2", "layout.shard_group=2 has no effect with layout.zero=0",
     "layout.zero=1"},
    {"layout.bucket_mb=8", "layout.bucket_mb=8 has no effect", "layout.dp=2"},
    {"layout.prefetch=2", "layout.prefetch=2 has no effect with layout.zero=0; set layout.zero=3",
     "layout.zero=3"},
    {"layout.zero=3 layout.keep_gathered=true", "layout.keep_gathered=true has no effect",
     "layout.dp=2"},
    {"layout.sp=true", "layout.sp=true has no effect with layout.tp=1", "layout.tp=2"},
    {"layout.schedule=gpipe", "layout.schedule=gpipe has no effect with layout.pp=1",
     "layout.pp=2 layout.microbatches=4"},
    {"layout.pairs=true", "layout.pairs=true has no effect",
     "layout.pp=2 layout.microbatches=4 layout.schedule=dualpipe"},
    {"layout.chunks=1", "layout.chunks=1 has no effect", "layout.pp=2 layout.microbatches=4"},
    {"layout.stages=1,1", "layout.stages=1,1 has no effect", "layout.pp=2 layout.microbatches=4"},
    {"precision.grad=compute", "set precision.kind=bf16 or fp16", "precision.kind=bf16"},
    {"precision.scale=2", "precision.scale=2 has no effect", "precision.kind=fp16"},
    {"precision.growth_interval=2", "has no effect with precision.kind=fp32",
     "precision.kind=fp16"},
    {"run.isa=base run.device=null", "run.isa=base has no effect with run.device=null",
     "run.device=cpu"},
    {"run.kernels=reference run.device=null", "run.kernels=reference has no effect",
     "run.device=cpu"},
    {"run.deterministic=false",
     "run.deterministic=false has no effect with run.device=cpu; set "
     "run.device=cuda",
     NULL},
    {"run.tune=false", "run.tune=false has no effect", NULL},
    {"run.nccl_library=x.so", "run.nccl_library=x.so has no effect", NULL},
    {"run.lanes=group layout.dp=2", "run.lanes=group has no effect with run.device=cpu", NULL},
    {"run.lanes=group layout.dp=2 run.transport=shm",
     "with run.transport=shm; set run.transport=auto or nccl", "run.transport=auto"},
    {"run.lanes=group layout.dp=2 run.collective=ring", "with run.collective=ring",
     "run.collective=auto"},
    {"run.lanes=group layout.dp=2 run.overlap=false",
     "with run.overlap=false; set run.overlap=true", "run.overlap=true"},
    {"run.elastic=true ckpt.every=2", "run.elastic=true has no effect with layout.dp=1",
     "layout.dp=2"},
    {"ckpt.keep_last=1",
     "ckpt.keep_last=1 has no effect with ckpt.every=0; set ckpt.every above "
     "0",
     "ckpt.every=2"},
    {"ckpt.keep_every=10", "ckpt.keep_every=10 has no effect", "ckpt.every=2"},
    {"run.replay=exchange layout.dp=2", "run.replay=exchange has no effect with run.replay_every=0",
     "run.replay_every=2"},
    {"run.replay=exchange run.replay_every=2",
     "run.replay=exchange has no effect with layout.dp=1; set layout.dp above 1", "layout.dp=2"},
    {"model.kind=llama model.dropout=0 model.num_experts=4 layout.dp=2 layout.ep=2 "
     "run.replay_every=2 run.replay=exchange",
     "run.replay=exchange has no effect with layout.ep=2, which takes all of layout.dp",
     "layout.ep=1"},
    {"run.on_replay=stop", "run.on_replay=stop has no effect with run.replay_every=0",
     "run.replay_every=2"},
    {"run.sample_prompt=a", "run.sample_prompt=a has no effect with run.sample_every=0",
     "run.sample_every=2"},
    {"run.sample_tokens=7", "run.sample_tokens=7 has no effect", "run.sample_every=2"},
    {"run.sample_temperature=0", "run.sample_temperature=0 has no effect", "run.sample_every=2"},
    {"ckpt.keep_best=2", "ckpt.keep_best=2 has no effect with ckpt.every=0", "ckpt.every=2"},
    {"ckpt.keep_best=2 ckpt.every=2 ckpt.keep_last=0",
     "ckpt.keep_best=2 has no effect with ckpt.keep_last=0", "ckpt.keep_last=1"},
    {"layout.offload=master=host",
     "layout.offload has no effect on master: with "
     "precision.kind=fp32",
     "layout.offload=moments=host"},
    {"layout.host_update=true", "layout.host_update has no effect, since no moments rest elsewhere",
     "layout.host_update=true layout.offload=moments=host"},
    {"run.pace=0:1.5,2:1.1",
     "run.pace brakes rank 2, but the layout has 1 rank; name one from 0 to 0", "run.pace=0:1.1"},
    {"train.patience=2", "train.patience=2 has no effect: the held-out loss", "train.eval_every=5"},
    {"train.min_gain=0.1", "train.min_gain=0.1 has no effect with train.patience=0",
     "train.patience=2"},
    {"layout.cp_kind=gather",
     "layout.cp_kind=gather has no effect with layout.cp=1; set layout.cp above 1", "layout.cp=2"},
    {"model.kind=llama model.dropout=0 layout.ep_room=2",
     "layout.ep_room=2 has no effect with layout.ep=1", NULL},
    {"model.kind=llama model.dropout=0 layout.etp=1", "layout.etp=1 has no effect with layout.tp=1",
     NULL},
    {"model.kind=llama model.dropout=0 layout.tp=2 layout.etp=2",
     "layout.etp=2 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.experts_per_token=4",
     "model.experts_per_token=4 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.expert_dim=64",
     "model.expert_dim=64 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.expert_layers=1",
     "model.expert_layers=1 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.shared_dim=64",
     "model.shared_dim=64 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.router_score=sigmoid",
     "model.router_score=sigmoid has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.router_renorm=false",
     "model.router_renorm=false has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.router_groups=2",
     "model.router_groups=2 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.expert_capacity=1",
     "model.expert_capacity=1 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.router_jitter=0.1",
     "model.router_jitter=0.1 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.router_scale=2",
     "model.router_scale=2 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.router_bias=0.001",
     "model.router_bias=0.001 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.balance_loss=1",
     "model.balance_loss=1 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.balance_over=joint",
     "model.balance_over=joint has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.router_z_loss=1",
     "model.router_z_loss=1 has no effect with model.num_experts=0", "model.num_experts=4"},
    {"model.kind=llama model.dropout=0 model.num_experts=4 model.shared_gate=true",
     "model.shared_gate=true has no effect with model.shared_dim=0", "model.shared_dim=64"},
    {"model.kind=llama model.dropout=0 model.num_experts=4 model.router_group_limit=2",
     "model.router_group_limit=2 has no effect with model.router_groups=1",
     "model.router_groups=2"},
    {"model.num_experts=4", "model.num_experts=4 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.experts_per_token=4",
     "model.experts_per_token=4 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.expert_dim=64",
     "model.expert_dim=64 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.expert_layers=1",
     "model.expert_layers=1 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.shared_dim=64",
     "model.shared_dim=64 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.shared_dim=64 model.shared_gate=true",
     "model.shared_gate=true has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.router_score=sigmoid",
     "model.router_score=sigmoid has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.router_renorm=false",
     "model.router_renorm=false has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.router_groups=2",
     "model.router_groups=2 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.router_groups=2 model.router_group_limit=2",
     "model.router_group_limit=2 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.expert_capacity=1",
     "model.expert_capacity=1 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.router_jitter=0.1",
     "model.router_jitter=0.1 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.router_scale=2",
     "model.router_scale=2 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.router_bias=0.001",
     "model.router_bias=0.001 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.balance_loss=1",
     "model.balance_loss=1 has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.balance_over=joint",
     "model.balance_over=joint has no effect with model.kind=gpt2", NULL},
    {"model.num_experts=4 model.router_z_loss=1",
     "model.router_z_loss=1 has no effect with model.kind=gpt2", NULL},
    {"model.qk_norm_wide=true", "model.qk_norm_wide=true has no effect with model.kind=gpt2", NULL},
    {"layout.cp_heads=2", "layout.cp_heads=2 has no effect with layout.cp=1",
     "layout.cp=4 model.num_heads=2"},
    {"layout.cp_deal=plain", "layout.cp_deal=plain has no effect with layout.cp=1", "layout.cp=2"},
    {"layout.cp=2 layout.cp_kind=ulysses layout.cp_deal=balanced",
     "layout.cp_deal=balanced has no effect with layout.cp_kind=ulysses", "layout.cp_kind=ring"},
    {"layout.cp=2 layout.cp_kind=ulysses layout.cp_heads=2",
     "layout.cp_heads=2 has no effect with layout.cp_kind=ulysses", "layout.cp_kind=ring"},
    {"layout.cp=2 layout.cp_heads=2 layout.cp_deal=balanced",
     "layout.cp_deal=balanced has no effect with layout.cp_heads=2, which is all of layout.cp; "
     "lower layout.cp_heads",
     "layout.cp_heads=1"},
    {"layout.cp=2 layout.cp_heads=2 layout.cp_kind=gather",
     "layout.cp_kind=gather has no effect with layout.cp_heads=2", "layout.cp_heads=1"},
    {"ckpt.async=false", "ckpt.async=false has no effect", "ckpt.every=2"},
    {"ckpt.staging_mib=5", "ckpt.staging_mib=5 has no effect with ckpt.every=0", "ckpt.every=2"},
    {"ckpt.staging_mib=5 ckpt.every=2 ckpt.async=false",
     "has no effect with ckpt.async=false; set "
     "ckpt.async=true",
     "ckpt.async=true"},
};

static void every_row_is_told_and_mended(void **state)
{
    (void)state;
    bool told[256] = {false};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[800];
        heard h;
        listen(cases[i].settings, &h);
        if (!strstr(h.text, cases[i].note))
            fail_msg("%s is told \"%s\", not \"%s\"", cases[i].settings, h.text, cases[i].note);
        for (int r = 0; r < tri_num_notes(); r++)
            told[r] |= h.row[r];
        snprintf(more, sizeof more, "%s %s", cases[i].settings, cases[i].mended);
        if (!cases[i].mended)
            continue;
        listen(more, &h);
        if (strstr(h.text, cases[i].note))
            fail_msg("%s is still told \"%s\"", more, h.text);
    }
    for (int r = 0; r < tri_num_notes(); r++)
        if (!told[r])
            fail_msg("row %d of the notes is told for none of the cases", r);
}

static void what_nobody_set_is_not_noted(void **state)
{
    (void)state;
    heard h;
    listen("", &h);
    assert_int_equal(h.num, 0);
    /* As a config.yaml has them. */
    listen("layout.zero=0 layout.sp=false layout.schedule=1f1b model.rope_theta=10000 "
           "model.head_dim=4 ckpt.keep_last=3 optim.momentum=0.9",
           &h);
    assert_string_equal(h.text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_is_told_and_mended),
                                       cmocka_unit_test(what_nobody_set_is_not_noted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
