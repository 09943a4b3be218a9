#include "fixture.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"

static int64_t integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static float number(const json_t *object, const char *key)
{
    return (float)json_number_value(json_object_get(object, key));
}

static void read_optim(const json_t *root, tri_session_config *config)
{
    const json_t *optim = json_object_get(root, "optim");
    config->compile.optim = (tri_optim_config){
        .rule = {.kind = json_string_value(json_object_get(optim, "kind")),
                 .lr_scale = 1,
                 .weight_decay = number(optim, "weight_decay")},
        .beta1 = number(optim, "beta1"),
        .beta2 = number(optim, "beta2"),
        .eps = number(optim, "eps"),
        .momentum = number(optim, "momentum"),
        .nesterov = json_is_true(json_object_get(optim, "nesterov")),
        .clip = number(root, "clip"),
    };
    config->lr = (tri_lr_schedule){.lr = json_number_value(json_object_get(optim, "lr"))};
}

static void read_model(const json_t *root, tri_session_config *config)
{
    const char *act = json_string_value(json_object_get(root, "act"));
    const char *loss = json_string_value(json_object_get(root, "loss"));
    config->compile.model = (tri_model_config){
        .kind = json_string_value(json_object_get(root, "kind")),
        .num_layers = integer(root, "num_layers"),
        .dim = integer(root, "dim"),
        .num_heads = integer(root, "num_heads"),
        .ffn_dim = integer(root, "ffn_dim"),
        .vocab = integer(root, "vocab"),
        .positions = integer(root, "positions"),
        .dropout = number(root, "dropout"),
        .init_std = 0.02f,
        .bias = json_is_true(json_object_get(root, "bias")),
        .act = strcmp(act, "none") == 0   ? TRI_MODEL_ACT_NONE
               : strcmp(act, "relu") == 0 ? TRI_MODEL_ACT_RELU
                                          : TRI_MODEL_ACT_GELU,
        .loss = strcmp(loss, "sse") == 0   ? TRI_LOSS_SSE
                : strcmp(loss, "mse") == 0 ? TRI_LOSS_MSE
                                           : TRI_LOSS_MEAN,
    };
}

/* Only the fixtures of mixed precision have these. */
static void read_precision(const json_t *root, tri_session_config *config)
{
    const char *kind = json_string_value(json_object_get(root, "precision"));
    if (!kind)
        return;
    config->compile.precision =
        (tri_precision){.compute = strcmp(kind, "bf16") == 0 ? TRI_BF16 : TRI_F16,
                        .scale = number(root, "scale"),
                        .growth_interval = (int32_t)integer(root, "growth_interval")};
}

void fixture_open(fixture *f, const char *name)
{
    char path[256];
    tr_error err = {0};
    memset(f, 0, sizeof *f);
    snprintf(path, sizeof path, "tests/fixtures/%s.safetensors", name);
    if (tri_safetensors_open(path, &f->file, &err) != TR_OK)
        fail_msg("%s", err.message);
    json_t *root = json_loads(tri_safetensors_metadata(f->file, "config"), 0, NULL);
    assert_non_null(root);
    f->text = root;
    f->num_steps = integer(root, "steps");
    f->config = (tri_session_config){
        .device = {.kind = "cpu", .num_threads = 2, .isa = "auto"},
        .seed = (uint64_t)integer(root, "seed"),
        .eval_batches = 1,
        .compile = {.batch = integer(root, "batch"),
                    .seq_len = integer(root, "seq_len"),
                    .num_microbatches = 1},
    };
    read_model(root, &f->config);
    read_optim(root, &f->config);
    read_precision(root, &f->config);
    f->config.compile.head.z_loss = number(root, "z_loss");
    if (fixture_has(f, NULL, "tokens")) {
        f->tokens = tri_safetensors_find(f->file, "tokens")->data;
        f->targets = tri_safetensors_find(f->file, "targets")->data;
    } else {
        f->x = tri_safetensors_find(f->file, "x")->data;
        f->target = tri_safetensors_find(f->file, "target")->data;
    }
}

void fixture_close(fixture *f)
{
    json_decref(f->text);
    tri_safetensors_close(f->file);
}

static void fixture_row(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    (void)split;
    const fixture *f = context;
    size_t length = (size_t)f->config.compile.seq_len, dim = (size_t)f->config.compile.model.dim;
    if (f->tokens) {
        memcpy(row->tokens, f->tokens + sample * length, length * sizeof *row->tokens);
        memcpy(row->targets, f->targets + sample * length, length * sizeof *row->targets);
    } else {
        memcpy(row->x, f->x + sample * dim, dim * sizeof *row->x);
        memcpy(row->target, f->target + sample * dim, dim * sizeof *row->target);
    }
}

void fixture_start(fixture *f, tri_session *session)
{
    tr_error err = {0};
    if (tri_session_compile(session, &f->config, &err) != TR_OK)
        fail_msg("%s", err.message);
    session->row = fixture_row;
    session->row_context = f;
    if (tri_session_start(session, &err) != TR_OK)
        fail_msg("%s", err.message);
}

static const tri_safetensor *find(const fixture *f, const char *prefix, const char *name)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s%s", prefix ? prefix : "", prefix ? "/" : "", name);
    return tri_safetensors_find(f->file, full);
}

bool fixture_has(const fixture *f, const char *prefix, const char *name)
{
    return find(f, prefix, name) != NULL;
}

const float *fixture_tensor(const fixture *f, const char *prefix, const char *name)
{
    const tri_safetensor *tensor = find(f, prefix, name);
    if (!tensor)
        fail_msg("the fixture has no %s", name);
    return tensor->data;
}
