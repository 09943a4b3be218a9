/* The steps that a device is measured by: models of several widths, rows and batches, each of a few
 * layers, since layers are alike. The cheap ones come first: there may be time for no others. */
#include <stdio.h>

#include "cli/bench/bench_device.h"

static const tri_device_case cpu_cases[] = {
    /*        layers  dim heads kv vocab  seq batch micro */
    {"gpt2", 2, 128, 4, 0, 512, 64, 4, 2, false, false, 0},
    {"gpt2", 2, 64, 4, 0, 256, 64, 8, 1, false, false, 10},
    {"llama", 2, 256, 8, 4, 2048, 64, 2, 1, false, false, 0},
    {"gpt2", 2, 256, 4, 0, 1024, 128, 2, 2, false, false, 10},
    {"gpt2", 2, 384, 6, 0, 4096, 128, 1, 1, false, false, 0},
    {"llama", 2, 256, 8, 4, 4096, 128, 8, 2, false, false, 0},
    {"gpt2", 2, 384, 6, 0, 4096, 128, 3, 1, false, true, 0},
    {"gpt2", 2, 384, 6, 0, 4096, 256, 4, 2, false, false, 0},
    {"gpt2", 2, 768, 12, 0, 50257, 64, 1, 1, false, false, 0},
    {"llama", 2, 512, 8, 4, 8192, 128, 2, 1, false, false, 0},
    {"llama", 2, 384, 6, 3, 4096, 128, 5, 1, false, true, 0},
    {"gpt2", 3, 128, 4, 0, 512, 256, 4, 1, true, false, 0},
    {"gpt2", 2, 768, 12, 0, 50257, 64, 4, 2, false, false, 0},
    {"gpt2", 2, 384, 6, 0, 4096, 256, 8, 1, false, false, 0},
    {"gpt2", 2, 768, 12, 0, 50257, 64, 3, 1, false, true, 0},
    {"llama", 2, 512, 8, 4, 8192, 256, 6, 1, false, false, 0},
    {"gpt2", 2, 768, 12, 0, 50257, 64, 8, 1, false, false, 0},
};

static const tri_device_case gpu_cases[] = {
    {"gpt2", 2, 384, 6, 0, 4096, 256, 8, 1, false, false, 0},
    {"gpt2", 4, 768, 12, 0, 50304, 1024, 8, 1, false, false, 0},
    {"llama", 4, 2048, 32, 4, 32000, 2048, 2, 1, false, false, 0},
    {"gpt2", 4, 768, 12, 0, 50304, 1024, 32, 1, false, false, 0},
    {"llama", 4, 2048, 32, 4, 32000, 2048, 8, 1, false, false, 0},
    {"gpt2", 4, 768, 12, 0, 50304, 1024, 20, 1, false, true, 0},
    {"gpt2", 4, 768, 12, 0, 50304, 1024, 16, 1, false, false, 0},
    {"llama", 4, 2048, 32, 4, 32000, 2048, 4, 1, false, false, 0},
    {"llama", 3, 4096, 32, 8, 32000, 2048, 2, 1, false, false, 0},
    {"llama", 4, 2048, 32, 4, 32000, 2048, 6, 1, false, true, 0},
    {"gpt2", 4, 768, 12, 0, 50304, 1024, 64, 1, false, false, 0},
    {"llama", 3, 4096, 32, 8, 32000, 2048, 6, 1, false, false, 0},
    {"gpt2", 4, 1600, 25, 0, 50304, 1024, 8, 2, false, false, 0},
    {"gpt2", 4, 1024, 16, 0, 50304, 1024, 16, 2, true, false, 10},
    {"llama", 4, 2048, 32, 4, 32000, 2048, 16, 2, false, false, 0},
    {"gpt2", 4, 1024, 16, 0, 50304, 1024, 24, 1, false, true, 0},
    {"llama", 3, 4096, 32, 8, 32000, 4096, 2, 1, true, false, 0},
    {"gpt2", 4, 768, 12, 0, 50304, 2048, 8, 1, false, false, 0},
    {"gpt2", 4, 1600, 25, 0, 50304, 1024, 24, 1, false, false, 0},
};

static const tri_device_precision cpu_precisions[] = {{"fp32", {"precision.kind=fp32", NULL}}};
static const tri_device_precision gpu_precisions[] = {
    {"bf16", {"precision.kind=bf16", NULL}},
    {"fp8", {"precision.kind=bf16", "precision.linear=fp8"}},
};

const tri_device_case *tri_device_cases(bool gpu, size_t *num)
{
    *num = gpu ? sizeof gpu_cases / sizeof *gpu_cases : sizeof cpu_cases / sizeof *cpu_cases;
    return gpu ? gpu_cases : cpu_cases;
}

const tri_device_precision *tri_device_precision_at(bool gpu, size_t i)
{
    size_t num = gpu ? sizeof gpu_precisions / sizeof *gpu_precisions
                     : sizeof cpu_precisions / sizeof *cpu_precisions;
    return i < num ? (gpu ? gpu_precisions : cpu_precisions) + i : NULL;
}

double tri_device_case_flops(const tri_device_case *c)
{
    double tokens = (double)c->batch * c->seq, dim = c->dim;
    double weights = 12.0 * c->layers * dim * dim + dim * c->vocab;
    double attention = 6.0 * c->layers * dim * c->seq;
    return tokens * (6 * weights + attention) * (c->recompute ? 4.0 / 3 : 1);
}

static tr_status set_number(tr_settings *settings, const char *name, int value, tr_error *err)
{
    char text[80];
    snprintf(text, sizeof text, "%s=%d", name, value);
    return value ? tr_settings_set(settings, text, err) : TR_OK;
}

static tr_status fill(tr_settings *s, const tri_device_case *c,
                      const tri_device_precision *precision, tr_error *err)
{
    char kind[40];
    snprintf(kind, sizeof kind, "model.kind=%s", c->kind);
    TRI_TRY(tr_settings_set(s, kind, err));
    TRI_TRY(set_number(s, "model.num_layers", c->layers, err));
    TRI_TRY(set_number(s, "model.dim", c->dim, err));
    TRI_TRY(set_number(s, "model.num_heads", c->heads, err));
    TRI_TRY(set_number(s, "model.num_kv_heads", c->kv_heads, err));
    TRI_TRY(set_number(s, "model.vocab", c->vocab, err));
    TRI_TRY(set_number(s, "data.seq_len", c->seq, err));
    TRI_TRY(set_number(s, "train.batch", c->batch, err));
    TRI_TRY(set_number(s, "layout.microbatches", c->microbatches, err));
    if (c->dropout) {
        char text[40];
        snprintf(text, sizeof text, "model.dropout=%g", c->dropout / 100.0);
        TRI_TRY(tr_settings_set(s, text, err));
    }
    if (c->recompute)
        TRI_TRY(tr_settings_set(s, "layout.recompute=full", err));
    for (int i = 0; i < 2 && precision->settings[i]; i++)
        TRI_TRY(tr_settings_set(s, precision->settings[i], err));
    return TR_OK;
}

tr_status tri_device_case_settings(const tri_device_case *c, const tri_device_precision *precision,
                                   tr_settings **settings, tr_error *err)
{
    TRI_TRY(tr_settings_create(settings, err));
    tr_status status = fill(*settings, c, precision, err);
    if (status != TR_OK) {
        tr_settings_destroy(*settings);
        *settings = NULL;
    }
    return status;
}
