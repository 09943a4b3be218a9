/* Settings that others decide: of a preset, of a model of Hugging Face, of the data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings/nearest.h"
#include "ckpt/hf/hf.h"
#include "config/owners.h"
#include "config/plugins.h"
#include "config/resolve.h"
#include "config/settings_internal.h"
#include "data/prepare/prepare.h"
#include "data/source/labels.h"
#include "data/tokenizer/tokenizer.h"

static tr_status fill(tr_settings *settings, const char *name, int64_t value, tr_error *err)
{
    char assignment[96];
    snprintf(assignment, sizeof assignment, "%s=%lld", name, (long long)value);
    return tr_settings_fill(settings, assignment, err);
}

/* Assigns what a value that means "find out" stands for, also when just that was given. */
static tr_status decide(tr_settings *settings, const char *name, const char *assignment,
                        tr_error *err)
{
    return tr_settings_given(settings, name) ? tr_settings_set(settings, assignment, err)
                                             : tr_settings_fill(settings, assignment, err);
}

/* The same for a number whose 0 means it. */
static tr_status decide_number(tr_settings *settings, const char *name, int64_t value,
                               tr_error *err)
{
    char assignment[96];
    snprintf(assignment, sizeof assignment, "%s=%lld", name, (long long)value);
    return decide(settings, name, assignment, err);
}

static tr_status unknown_preset(const char *name, tr_error *err)
{
    char names[800] = "", meant[80] = "";
    for (size_t i = 0; tri_preset_at(i); i++) {
        const char *preset = tri_preset_at(i)->name;
        if (!*meant && (strncmp(preset, name, strlen(name)) == 0 || tri_is_slip(name, preset)))
            snprintf(meant, sizeof meant, "did you mean %s? ", preset);
        if (i)
            strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, tri_preset_at(i)->name, sizeof names - strlen(names) - 1);
    }
    return tri_fail(err, TR_ERROR_INPUT, "model.preset is \"%s\"; %sknown presets: %s", name, meant,
                    names);
}

static tr_status fill_number(tr_settings *settings, const char *name, double value, tr_error *err)
{
    char assignment[96];
    snprintf(assignment, sizeof assignment, "%s=%.9g", name, value);
    return value > 0 ? tr_settings_fill(settings, assignment, err) : TR_OK;
}

/* Presets so far choose by softmax, and have experts in every layer. */
static tr_status apply_experts_preset(tr_settings *settings, const tri_moe_config *moe,
                                      tr_error *err)
{
    TRI_TRY(fill(settings, "model.num_experts", moe->num_experts, err));
    TRI_TRY(fill(settings, "model.experts_per_token", moe->choices, err));
    TRI_TRY(fill(settings, "model.expert_dim", moe->expert_dim, err));
    TRI_TRY(fill(settings, "model.shared_dim", moe->shared_dim, err));
    TRI_TRY(tr_settings_fill(
        settings, moe->shared_gate ? "model.shared_gate=true" : "model.shared_gate=false", err));
    TRI_TRY(tr_settings_fill(
        settings, moe->renorm ? "model.router_renorm=true" : "model.router_renorm=false", err));
    return fill_number(settings, "model.balance_loss", (double)moe->balance, err);
}

static tr_status apply_llama_preset(tr_settings *settings, const tri_preset *preset, tr_error *err)
{
    TRI_TRY(fill(settings, "model.num_kv_heads", preset->num_kv_heads, err));
    TRI_TRY(fill(settings, "model.head_dim", preset->head_dim, err));
    TRI_TRY(fill(settings, "model.window", preset->window, err));
    TRI_TRY(fill_number(settings, "model.rope_theta", preset->rope_theta, err));
    TRI_TRY(fill_number(settings, "model.norm_eps", (double)preset->norm_eps, err));
    if (preset->qkv_bias)
        TRI_TRY(tr_settings_fill(settings, "model.qkv_bias=true", err));
    if (preset->qk_norm)
        TRI_TRY(tr_settings_fill(settings, "model.qk_norm=true", err));
    if (preset->tied_head)
        TRI_TRY(tr_settings_fill(settings, "model.tied_head=true", err));
    if (preset->qk_norm_wide)
        TRI_TRY(tr_settings_fill(settings, "model.qk_norm_wide=true", err));
    return preset->moe.num_experts > 0 ? apply_experts_preset(settings, &preset->moe, err) : TR_OK;
}

static tr_status apply_preset(tr_settings *settings, tr_error *err)
{
    const char *name = tr_settings_string(settings, "model.preset");
    if (!name[0])
        return TR_OK;
    const tri_preset *preset = tri_preset_find(name);
    if (!preset)
        return unknown_preset(name, err);
    char kind[64];
    snprintf(kind, sizeof kind, "model.kind=%s", preset->kind);
    TRI_TRY(tr_settings_fill(settings, kind, err));
    TRI_TRY(fill(settings, "model.num_layers", preset->num_layers, err));
    TRI_TRY(fill(settings, "model.dim", preset->dim, err));
    TRI_TRY(fill(settings, "model.num_heads", preset->num_heads, err));
    TRI_TRY(fill(settings, "model.ffn_dim", preset->ffn_dim, err));
    TRI_TRY(fill(settings, "model.vocab", preset->vocab, err));
    TRI_TRY(fill(settings, "model.positions", preset->positions, err));
    return strcmp(preset->kind, "llama") == 0 ? apply_llama_preset(settings, preset, err) : TR_OK;
}

/* A value that a Hugging Face directory decides. One of the shape that was given must agree. */
static tr_status apply_hf_setting(tr_settings *settings, const char *dir,
                                  const tri_hf_setting *setting, tr_error *err)
{
    char assignment[TRI_HF_LIST_BYTES + 64]; /* a list may be long */
    snprintf(assignment, sizeof assignment, "%s=%s", setting->name, setting->value);
    int index = tri_setting_find(&settings->table, setting->name);
    const tri_setting *row = settings->table.row[index];
    const tri_setting_value *have = &settings->values[index];
    tri_setting_value wanted = {0};
    tr_status status = tri_setting_parse(row, setting->value, &wanted, err);
    if (status != TR_OK)
        return tri_fail_prefix(err, status, "%s/config.json: %s", dir, setting->key);
    bool text = row->type == TRI_SETTING_STRING && have->string;
    bool same = text ? strcmp(have->string, setting->value) == 0 : have->integer == wanted.integer;
    free(wanted.string);
    if (!have->given || !setting->fixed || same)
        return tr_settings_fill(settings, assignment, err);
    if (have->integer == 0 && strcmp(row->fallback, "0") == 0) /* given, as "find out" */
        return tr_settings_set(settings, assignment, err);
    char given[32];
    tri_setting_format(row, have, given, sizeof given);
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s is %s, but %s/config.json makes it %s (%s); leave it out", setting->name,
                    have->string ? have->string : given, dir, setting->value, setting->key);
}

/* model.from may be a directory of Hugging Face, whose config.json says what the model is. */
static tr_status apply_hf(tr_settings *settings, tr_error *err)
{
    const char *dir = tr_settings_string(settings, "model.from");
    if (!tri_hf_is_dir(dir))
        return TR_OK;
    tri_hf_config config;
    tr_status status = tri_hf_config_read(dir, &config, err);
    for (int i = 0; status == TR_OK && i < config.num_settings; i++)
        status = apply_hf_setting(settings, dir, &config.setting[i], err);
    if (status != TR_OK)
        return tri_fail_prefix(err, status, "model.from");
    int64_t positions = tr_settings_int(settings, "model.positions");
    return tr_settings_int(settings, "data.seq_len") > positions
               ? fill(settings, "data.seq_len", positions, err)
               : TR_OK;
}

/* data.task and model.task say the same from two sides, so one of them is enough. */
static tr_status apply_task(tr_settings *settings, tr_error *err)
{
    char assignment[64];
    const char *data = tr_settings_string(settings, "data.task");
    const char *model = tr_settings_string(settings, "model.task");
    if (strcmp(data, "auto") == 0) {
        snprintf(assignment, sizeof assignment, "data.task=%s", model);
        return decide(settings, "data.task", assignment, err);
    }
    const char *wanted = strcmp(data, "instruct") == 0 ? "lm" : data;
    if (tr_settings_given(settings, "model.task") && strcmp(model, wanted) != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.task is %s, which trains a model.task of %s, but that is %s; leave "
                        "one of them out",
                        data, wanted, model);
    snprintf(assignment, sizeof assignment, "model.task=%s", wanted);
    return tr_settings_fill(settings, assignment, err);
}

/* The labels that the data has, so that the model can be made for them and the run knows their
 * names. */
static tr_status apply_labels(tr_settings *settings, tr_error *err)
{
    const char *source = tr_settings_string(settings, "data.source");
    if (strcmp(tr_settings_string(settings, "data.task"), "classify") != 0 ||
        strcmp(source, "synthetic") == 0)
        return TR_OK;
    if (!tr_settings_string(settings, "data.labels")[0]) {
        char *names, *assignment = NULL;
        TRI_TRY(
            tri_labels_scan(source, tr_settings_string(settings, "data.label_field"), &names, err));
        tr_status status = asprintf(&assignment, "data.labels=%s", names) < 0
                               ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the labels")
                               : decide(settings, "data.labels", assignment, err);
        free(names);
        free(assignment);
        TRI_TRY(status);
    }
    int64_t num = 1;
    for (const char *at = tr_settings_string(settings, "data.labels"); *at; at++)
        num += *at == ';';
    return num > tr_settings_int(settings, "model.num_labels")
               ? fill(settings, "model.num_labels", num, err)
               : TR_OK;
}

/* Text for a model of Hugging Face is read with its tokenizer. Prepared tokens have theirs. */
static tr_status apply_hf_tokenizer(tr_settings *settings, tr_error *err)
{
    const char *dir = tr_settings_string(settings, "model.from");
    if (tr_settings_string(settings, "data.tokenizer")[0] || !tri_hf_is_dir(dir) ||
        !tri_tokenizer_is_dir(dir) ||
        tri_data_has_tokens(tr_settings_string(settings, "data.source")))
        return TR_OK;
    char assignment[4200];
    snprintf(assignment, sizeof assignment, "data.tokenizer=%s", dir);
    return tr_settings_fill(settings, assignment, err);
}

tr_status tri_data_config_from(tr_settings *settings, tri_data_config *data, tr_error *err)
{
    TRI_TRY(apply_preset(settings, err));
    TRI_TRY(tri_settings_fill_owned(settings, "model.kind", err));
    TRI_TRY(apply_hf(settings, err));
    TRI_TRY(apply_task(settings, err));
    TRI_TRY(apply_hf_tokenizer(settings, err));
    tri_data_config_read(settings, data);
    return TR_OK;
}

/* A tokenizer that is made from the text needs text. */
static tr_status check_tokenizer(const tr_settings *settings, tr_error *err)
{
    bool made = false;
    const char *name = tr_settings_string(settings, "data.tokenizer");
    const char *task = tr_settings_string(settings, "data.task");
    if (name[0] && strcmp(task, "lm") != 0)
        TRI_TRY(tri_prepare_is_made(name, &made, NULL, err));
    if (made)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.tokenizer is %s, which is made from plain text as data.task=lm reads "
                        "it; for %s make one first, with `trireme data tokenizer train`, or name "
                        "one",
                        name, task);
    return TR_OK;
}

/* model.vocab follows from the data where it is not given. */
static tr_status apply_vocab(tr_settings *settings, tr_error *err)
{
    if (tr_settings_int(settings, "model.vocab") != 0)
        return TR_OK;
    int64_t vocab = 0;
    tri_data_config data;
    tri_data_config_read(settings, &data);
    TRI_TRY(tri_data_vocab(&data, &vocab, err));
    return decide_number(settings, "model.vocab", vocab > 0 ? vocab : 256, err);
}

/* Heads of keys and values, and the width of a head, where they are not given. */
static tr_status apply_heads(tr_settings *settings, tr_error *err)
{
    int64_t heads = tr_settings_int(settings, "model.num_heads");
    int64_t dim = tr_settings_int(settings, "model.dim");
    if (tr_settings_int(settings, "model.num_kv_heads") == 0)
        TRI_TRY(decide_number(settings, "model.num_kv_heads", heads, err));
    if (tr_settings_int(settings, "model.head_dim") == 0 && dim >= heads &&
        decide_number(settings, "model.head_dim", dim / heads, err) != TR_OK)
        return tri_fail_prefix(err, TR_ERROR_INPUT, "model.dim %lld over model.num_heads %lld",
                               (long long)dim, (long long)heads);
    return TR_OK;
}

/* For a program that has the library; the command line has chosen before. */
static tr_status apply_device(tr_settings *settings, tr_error *err)
{
    if (strcmp(tr_settings_string(settings, "run.device"), "auto") != 0)
        return TR_OK;
    char assignment[64];
    int64_t ranks = tri_settings_num_ranks(settings);
    tri_device_choice choice = tri_device_choose_here(ranks < INT32_MAX ? (int)ranks : INT32_MAX);
    snprintf(assignment, sizeof assignment, "run.device=%s", choice.kind);
    return decide(settings, "run.device", assignment, err);
}

tr_status tri_settings_complete(tr_settings *settings, tr_error *err)
{
    TRI_TRY(apply_device(settings, err));
    TRI_TRY(apply_preset(settings, err));
    TRI_TRY(tri_settings_fill_owned(settings, "model.kind", err));
    TRI_TRY(apply_hf(settings, err));
    TRI_TRY(apply_task(settings, err));
    TRI_TRY(apply_labels(settings, err));
    const char *kind = tr_settings_string(settings, "model.kind");
    bool sequences = tri_settings_model(settings)->sequences;
    if (!sequences && strcmp(tr_settings_string(settings, "data.source"), "synthetic") != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.source is \"%s\", but an %s learns from made-up vectors; leave it "
                        "out, or choose another model.kind",
                        tr_settings_string(settings, "data.source"), kind);
    if (tr_settings_int(settings, "model.ffn_dim") == 0)
        TRI_TRY(decide_number(settings, "model.ffn_dim", 4 * tr_settings_int(settings, "model.dim"),
                              err));
    if (sequences)
        TRI_TRY(apply_heads(settings, err));
    TRI_TRY(apply_hf_tokenizer(settings, err));
    TRI_TRY(check_tokenizer(settings, err));
    TRI_TRY(apply_vocab(settings, err));
    if (tr_settings_int(settings, "model.positions") == 0)
        TRI_TRY(decide_number(settings, "model.positions",
                              tr_settings_int(settings, "data.seq_len"), err));
    if (tr_settings_int(settings, "train.epochs") > 0)
        TRI_TRY(fill(settings, "train.steps", 0, err)); /* no other end than theirs */
    TRI_TRY(tri_settings_fill_owned(settings, "optim.kind", err));
    return tri_settings_fill_owned(settings, "optim.schedule", err);
}
