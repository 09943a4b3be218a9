/* Mixtures of experts of Hugging Face as files: what config.json means, experts in and out. What
 * they compute is in test_hf.c. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/rng.h"
#include "ckpt/hf/hf.h"
#include "ckpt/weights.h"
#include "config/resolve.h"
#include "hf_dirs.h"

static const char *const families[] = {"hf_mixtral", "hf_qwen2_moe", "hf_qwen3_moe", "hf_olmoe"};
enum { NUM_FAMILIES = sizeof families / sizeof *families };

/* A model that a directory holds, without a graph. */
typedef struct loaded {
    tr_settings *settings;
    tri_session_config config;
    tri_param_table params;
    float **data, *values;
} loaded;

static tr_status try_load(loaded *m, const char *dir, const char *change, tr_error *err)
{
    *m = (loaded){.settings = hf_settings(dir)};
    tri_param_table_init(&m->params);
    if (change)
        hf_set(m->settings, "%s", change);
    TRI_TRY(tri_settings_complete(m->settings, err));
    TRI_TRY(tri_session_config_from(m->settings, &m->config, err));
    tri_batch_shape batch = {.rows = 1, .seq_len = m->config.compile.seq_len};
    TRI_TRY(tri_model_params(&m->config.compile.model, &batch, &m->params, err));
    m->data = calloc(m->params.count + 1, sizeof *m->data);
    m->values = calloc((size_t)tri_param_total(&m->params) + 1, sizeof *m->values);
    bool *fresh = calloc(m->params.count + 1, sizeof *fresh);
    float *next = m->values;
    for (size_t i = 0; i < m->params.count; i++) {
        m->data[i] = next;
        next += tri_shape_count(&m->params.items[i].shape);
    }
    tr_status status = tri_weights_load(dir, &m->params, m->data, fresh, err);
    free(fresh);
    return status;
}

static void unload(loaded *m)
{
    tri_param_table_fini(&m->params);
    tr_settings_destroy(m->settings);
    free(m->data);
    free(m->values);
}

static void load(loaded *m, const char *dir, const char *change)
{
    tr_error err = {0};
    if (try_load(m, dir, change, &err) != TR_OK)
        fail_msg("%s: %s", dir, err.message);
}

static void refuses(const char *dir, const char *word, const char *other)
{
    loaded m;
    tr_error err = {0};
    assert_int_equal(try_load(&m, dir, NULL, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, word) || !strstr(err.message, other))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", err.message, word, other);
    unload(&m);
}

static const float *param(const loaded *m, const char *name, int64_t count)
{
    tri_id id = tri_param_find(&m->params, name);
    if (id == TRI_NONE)
        fail_msg("there is no %s", name);
    assert_int_equal(tri_shape_count(&m->params.items[id].shape), count);
    return m->data[id];
}

static void assert_same(const loaded *a, const loaded *b)
{
    assert_int_equal(a->params.count, b->params.count);
    for (size_t i = 0; i < a->params.count; i++) {
        assert_string_equal(a->params.items[i].name, b->params.items[i].name);
        assert_true(tri_shape_equal(&a->params.items[i].shape, &b->params.items[i].shape));
        assert_memory_equal(a->data[i], b->data[i],
                            (size_t)tri_shape_count(&a->params.items[i].shape) * sizeof(float));
    }
}

/* ---- settings ---- */

static void assert_text(const loaded *m, const char *name, const char *wanted)
{
    assert_string_equal(tr_settings_string(m->settings, name), wanted);
}

static void test_settings(void **state)
{
    (void)state;
    loaded m;
    load(&m, "tests/fixtures/hf_mixtral", NULL);
    const tri_model_config *c = &m.config.compile.model;
    assert_true(c->moe.num_experts == 5 && c->moe.choices == 2 && c->moe.expert_dim == 18);
    assert_true(c->moe.renorm && c->moe.score == TRI_ROUTE_SOFTMAX && c->moe.shared_dim == 0);
    assert_true(c->window == 7 && c->norm_eps == 1e-5f && !c->qk_norm && !c->qkv_bias);
    assert_true(c->moe.balance == 0.05f && c->moe.over == TRI_BALANCE_JOINT);
    assert_text(&m, "model.expert_layers", "");
    unload(&m);
    load(&m, "tests/fixtures/hf_qwen2_moe", NULL);
    assert_true(c->moe.num_experts == 6 && c->moe.choices == 3 && c->moe.expert_dim == 10);
    assert_true(c->moe.shared_dim == 14 && c->moe.shared_gate && !c->moe.renorm);
    assert_true(c->ffn_dim == 26 && c->qkv_bias && !c->qk_norm && c->window == 0);
    assert_text(&m, "model.expert_layers", "0,2");
    unload(&m);
    load(&m, "tests/fixtures/hf_qwen3_moe", NULL);
    assert_true(c->moe.num_experts == 8 && c->moe.renorm && c->qk_norm && !c->qk_norm_wide);
    assert_true(c->head_dim == 6 && c->tied_head && c->norm_eps == 1e-6f);
    assert_text(&m, "model.expert_layers", "1,3");
    unload(&m);
    load(&m, "tests/fixtures/hf_olmoe", NULL);
    assert_true(c->qk_norm && c->qk_norm_wide && !c->moe.renorm && c->moe.expert_dim == 14);
    unload(&m);
}

/* What a copy's config.json with changes makes of a setting; NULL: it is refused. */
static void reads(temp_dir *temp, const char *fixture, const char *changes, const char *name,
                  const char *value)
{
    const char *dir = hf_copy_of(temp, fixture);
    json_t *root = hf_read_json(dir, "config.json"), *patch = json_loads(changes, 0, NULL);
    assert_non_null(patch);
    json_object_update(root, patch);
    hf_put_json(dir, "config.json", root);
    static tri_hf_config config;
    tr_error err = {0};
    tr_status status = tri_hf_config_read(dir, &config, &err);
    if ((status == TR_OK) != (value != NULL))
        fail_msg("%s: %s", changes, err.message);
    if (!value && !strstr(err.message, name))
        fail_msg("%s: \"%s\" does not name %s", changes, err.message, name);
    bool found = !value;
    for (int i = 0; i < config.num_settings && value; i++)
        if (strcmp(config.setting[i].name, name) == 0) {
            assert_string_equal(config.setting[i].value, value);
            found = true;
        }
    assert_true(found);
    json_decref(root);
    json_decref(patch);
}

static void test_configs(void **state)
{
    temp_dir *temp = *state;
    const char *layers = "model.expert_layers", *window = "model.window";
    const char *qwen2 = "hf_qwen2_moe", *qwen3 = "hf_qwen3_moe";
    reads(temp, qwen2, "{\"mlp_only_layers\": null}", layers, "");
    reads(temp, qwen2, "{\"mlp_only_layers\": [0]}", layers, "1..2");
    reads(temp, qwen2, "{\"mlp_only_layers\": [2, 0]}", layers, "1");
    reads(temp, qwen3, "{\"num_hidden_layers\": 9, \"mlp_only_layers\": [3]}", layers, "1,5,7");
    reads(temp, qwen3,
          "{\"num_hidden_layers\": 9, \"mlp_only_layers\": [4], \"decoder_sparse_step\": 1}",
          layers, "0..3,5..8");
    reads(temp, qwen3, "{\"num_hidden_layers\": 999999999}", "num_hidden_layers", NULL);
    reads(temp, qwen3, "{\"decoder_sparse_step\": 9}", "decoder_sparse_step", NULL);
    reads(temp, qwen3, "{\"mlp_only_layers\": [1.5]}", "mlp_only_layers", NULL);
    reads(temp, qwen3, "{\"num_experts\": null}", "num_local_experts", NULL);
    reads(temp, qwen3, "{\"num_local_experts\": 4}", "model.num_experts", "4");
    reads(temp, qwen2, "{\"num_experts\": null, \"num_local_experts\": 4}", "num_experts", NULL);
    reads(temp, qwen2, "{\"qkv_bias\": false}", "model.qkv_bias", "false");
    reads(temp, qwen3, "{\"attention_bias\": true}", "attention_bias", NULL);
    reads(temp, "hf_olmoe", "{\"clip_qkv\": 8.0}", "clip_qkv", NULL);
    reads(temp, "hf_olmoe", "{\"norm_topk_prob\": true}", "model.router_renorm", "true");
    reads(temp, "hf_olmoe", "{\"sliding_window\": 5}", window, "0");
    reads(temp, "hf_mixtral", "{\"router_jitter_noise\": 0.1}", "router_jitter_noise", NULL);
    reads(temp, "hf_mixtral", "{\"output_router_logits\": false}", "model.balance_loss", "0");
    reads(temp, "hf_mixtral", "{\"sliding_window\": null}", window, "0");
    reads(temp, "hf_mixtral", "{\"rope_parameters\": null}", "model.rope_theta", "1e+06");
    reads(temp, "hf_mixtral", "{\"rms_norm_eps\": null}", "model.norm_eps", "1e-05");
    reads(temp, qwen3, "{\"use_sliding_window\": true, \"sliding_window\": 5}", window, "5");
    reads(temp, qwen2, "{\"use_sliding_window\": true, \"sliding_window\": 5}", window, "0");
    reads(temp, qwen2,
          "{\"use_sliding_window\": true, \"sliding_window\": 5, \"layer_types\": null}",
          "sliding window", NULL);
    reads(temp, "hf_llama", "{\"num_experts\": 8}", "model.num_experts", "0");
}

/* ---- tensors ---- */

/* An expert of the file is a slice of ours. */
static void test_slices(void **state)
{
    (void)state;
    static const char *const names[][3] = {
        {"hf_mixtral", "layers.1.mlp.experts.gate_proj.weight",
         "model.layers.1.block_sparse_moe.experts.3.w1.weight"},
        {"hf_mixtral", "layers.0.mlp.experts.down_proj.weight",
         "model.layers.0.block_sparse_moe.experts.3.w2.weight"},
        {"hf_mixtral", "layers.0.mlp.experts.up_proj.weight",
         "model.layers.0.block_sparse_moe.experts.3.w3.weight"},
        {"hf_qwen3_moe", "layers.3.mlp.experts.up_proj.weight",
         "model.layers.3.mlp.experts.3.up_proj.weight"},
        {"hf_olmoe", "layers.1.mlp.experts.down_proj.weight",
         "model.layers.1.mlp.experts.3.down_proj.weight"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char dir[100], path[160];
        tr_error err = {0};
        snprintf(dir, sizeof dir, "tests/fixtures/%s", names[i][0]);
        snprintf(path, sizeof path, "%s/model.safetensors", dir);
        loaded m;
        load(&m, dir, NULL);
        tri_safetensors *file;
        const tri_safetensor *tensor;
        assert_int_equal(tri_safetensors_open(path, &file, &err), TR_OK);
        assert_int_equal(tri_safetensors_get(file, names[i][2], &tensor, &err), TR_OK);
        int64_t count = tensor->dim[0] * tensor->dim[1];
        const float *ours = param(&m, names[i][1], m.config.compile.model.moe.num_experts * count);
        assert_memory_equal(ours + 3 * count, tensor->data, tensor->num_bytes);
        tri_safetensors_close(file);
        unload(&m);
    }
}

/* All experts in one tensor, gate and up together, as transformers has them in memory. */
static void test_fused(void **state)
{
    temp_dir *temp = *state;
    char from[300], to[300];
    const char *dir = hf_copy_of(temp, "hf_mixtral");
    snprintf(from, sizeof from, "%s/fused.safetensors", dir);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    assert_int_equal(rename(from, to), 0);
    loaded a, b;
    load(&a, "tests/fixtures/hf_mixtral", NULL);
    load(&b, dir, NULL);
    assert_same(&a, &b);
    unload(&a);
    unload(&b);
}

static void round_trip(temp_dir *temp, const char *fixture, int64_t shard_bytes, const char *change)
{
    char from[200];
    tr_error err = {0};
    snprintf(from, sizeof from, "tests/fixtures/%s", fixture);
    const char *to = temp_file(temp, "out");
    loaded a, b;
    load(&a, from, change);
    tri_hf_export_options options = {.dir = to, .shard_bytes = shard_bytes};
    if (tri_hf_export(&options, &a.config.compile.model, &a.params, (const float *const *)a.data,
                      &err) != TR_OK)
        fail_msg("%s", err.message);
    load(&b, to, NULL);
    assert_same(&a, &b);
    const tri_model_config *x = &a.config.compile.model, *y = &b.config.compile.model;
    assert_true(x->moe.num_experts == y->moe.num_experts && x->moe.choices == y->moe.choices);
    assert_true(x->moe.renorm == y->moe.renorm && x->moe.balance == y->moe.balance);
    assert_true(x->moe.shared_gate == y->moe.shared_gate && x->moe.score == y->moe.score);
    assert_true(x->window == y->window && x->head_dim == y->head_dim);
    assert_true(x->qkv_bias == y->qkv_bias && x->qk_norm == y->qk_norm);
    assert_true(x->qk_norm_wide == y->qk_norm_wide && x->rope.theta == y->rope.theta);
    assert_string_equal(x->moe.layers, y->moe.layers);
    json_t *old = hf_read_json(from, "config.json"), *new = hf_read_json(to, "config.json");
    assert_true(json_equal(json_object_get(old, "model_type"), json_object_get(new, "model_type")));
    assert_true(
        json_equal(json_object_get(old, "architectures"), json_object_get(new, "architectures")));
    json_decref(old);
    json_decref(new);
    unload(&a);
    unload(&b);
    nftw(to, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void test_round_trip(void **state)
{
    temp_dir *temp = *state;
    for (int i = 0; i < NUM_FAMILIES; i++) {
        round_trip(temp, families[i], TRI_HF_SHARD_BYTES, NULL);
        round_trip(temp, families[i], 20000, NULL);
        round_trip(temp, families[i], 1, NULL); /* a file for each tensor */
        round_trip(temp, families[i], 20000, "model.balance_loss=0");
    }
    round_trip(temp, "hf_qwen2_moe", 20000, "model.window=5");
    round_trip(temp, "hf_qwen3_moe", 20000, "model.window=5");
    round_trip(temp, "hf_mixtral", 20000, "model.window=0");
}

/* ---- what is wrong ---- */

static void test_broken(void **state)
{
    temp_dir *temp = *state;
    hf_edit e;
    const char *first = "model.layers.0.block_sparse_moe.experts.4.w2.weight";
    const char *dir = hf_copy_of(temp, "hf_mixtral");
    hf_edit_open(&e, dir, "model.safetensors");
    hf_edit_find(&e, first)->name = "model.layers.0.block_sparse_moe.experts.5.w2.weight";
    hf_edit_write(&e);
    refuses(dir, first, "incomplete");

    dir = hf_copy_of(temp, "hf_mixtral");
    hf_edit_open(&e, dir, "model.safetensors");
    const int64_t turned[2] = {18, 24};
    hf_edit_find(&e, first)->dim = turned;
    hf_edit_write(&e);
    refuses(dir, "[18, 24]", "[24, 18]");

    dir = hf_copy_of(temp, "hf_mixtral"); /* one expert fewer than there are */
    json_t *root = hf_read_json(dir, "config.json");
    json_object_set_new(root, "num_local_experts", json_integer(4));
    hf_put_json(dir, "config.json", root);
    refuses(dir, "model.layers.0.block_sparse_moe.gate.weight", "[4, 24]");
    json_decref(root);

    dir = hf_copy_of(temp, "hf_mixtral"); /* two spellings of one expert */
    hf_edit_open(&e, dir, "model.safetensors");
    tri_safetensors_item again = *hf_edit_find(&e, first);
    again.name = "layers.0.mlp.experts.4.down_proj.weight";
    e.item[e.num++] = again;
    hf_edit_write(&e);
    refuses(dir, "the same parameter", first);
}

static void export_refused(const loaded *m, const tri_model_config *model, const char *word)
{
    tr_error err = {0};
    tri_hf_export_options options = {.dir = "/nonexistent/out", .shard_bytes = 1};
    assert_int_equal(
        tri_hf_export(&options, model, &m->params, (const float *const *)m->data, &err),
        TR_ERROR_INPUT);
    if (!strstr(err.message, word))
        fail_msg("\"%s\" does not name %s", err.message, word);
}

static void test_export_refused(void **state)
{
    (void)state;
    loaded m;
    load(&m, "tests/fixtures/hf_mixtral", NULL);
    const tri_model_config mixtral = m.config.compile.model;
    tri_model_config c = mixtral;
    c.moe.score = TRI_ROUTE_SIGMOID;
    export_refused(&m, &c, "model.router_score");
    c = mixtral;
    c.moe.scale = 2;
    export_refused(&m, &c, "model.router_scale");
    c = mixtral;
    c.moe.groups = 5;
    export_refused(&m, &c, "model.router_groups");
    c = mixtral;
    c.moe.renorm = false;
    export_refused(&m, &c, "model.router_renorm");
    c = mixtral;
    c.moe.layers = "1";
    export_refused(&m, &c, "model.expert_layers");
    c = mixtral;
    c.moe.shared_dim = 8;
    export_refused(&m, &c, "model.shared_gate");
    c = mixtral;
    c.qkv_bias = true;
    export_refused(&m, &c, "model.qkv_bias");
    c = mixtral;
    c.qk_norm = c.qk_norm_wide = true;
    export_refused(&m, &c, "model.window");
    c.moe.num_experts = 0;
    export_refused(&m, &c, "model.qk_norm_wide");
    unload(&m);
}

/* ---- regions ---- */

static tri_region region_of(const tri_param *param, uint32_t draw)
{
    int64_t dim[TRI_MAX_RANK];
    for (int d = 0; d < param->shape.rank; d++)
        dim[d] = param->shape.dim[d].size;
    tri_region r = tri_region_whole(param->shape.rank, dim);
    for (int d = 0; d < r.num_dims; d++) {
        r.begin[d] = tri_random_word(1, draw, (uint32_t)d, 0) % (uint64_t)dim[d];
        int64_t left = dim[d] - r.begin[d];
        r.size[d] = 1 + tri_random_word(1, draw, (uint32_t)d, 1) % (uint64_t)left;
    }
    int64_t box = tri_region_box_count(&r);
    r.first = tri_random_word(1, draw, 9, 0) % (uint64_t)box;
    r.count = 1 + tri_random_word(1, draw, 9, 1) % (uint64_t)(box - r.first);
    return r;
}

/* Any part of any parameter is that part of the whole: of experts apart and in one tensor, and of
 * matrices that the file has turned. */
static void test_regions(void **state)
{
    (void)state;
    static const char *const dirs[] = {"hf_mixtral", "hf_qwen2_moe", "hf_olmoe", "hf_gpt2"};
    enum { DRAWS = 40 };
    for (size_t f = 0; f < sizeof dirs / sizeof *dirs; f++) {
        char dir[100];
        tr_error err = {0};
        loaded m;
        tri_weights_source *source;
        snprintf(dir, sizeof dir, "tests/fixtures/%s", dirs[f]);
        load(&m, dir, NULL);
        bool *fresh = calloc(m.params.count + 1, sizeof *fresh);
        float *want = malloc((size_t)tri_param_total(&m.params) * sizeof *want);
        float *got = malloc((size_t)tri_param_total(&m.params) * sizeof *got);
        assert_true(fresh && want && got);
        assert_int_equal(tri_weights_open(dir, &m.params, fresh, &source, &err), TR_OK);
        for (size_t i = 0; i < m.params.count; i++)
            for (uint32_t draw = 0; draw < DRAWS; draw++) {
                tri_region region = region_of(&m.params.items[i], DRAWS * (uint32_t)i + draw);
                assert_int_equal(tri_weights_read(source, i, &region, got, &err), TR_OK);
                tri_weights_take(m.data[i], &region, want);
                if (memcmp(got, want, (size_t)region.count * sizeof *got) != 0)
                    fail_msg("%s: a part of %s differs", dirs[f], m.params.items[i].name);
            }
        tri_weights_close(source);
        free(fresh);
        free(want);
        free(got);
        unload(&m);
    }
}

/* ---- what a rank reads ---- */

/* A directory whose experts are nearly all of it. */
static const char *large_experts(temp_dir *temp, loaded *m)
{
    static const char *const words[] = {
        "model.kind=llama",    "model.num_layers=2",   "model.dim=256",  "model.num_heads=4",
        "model.num_experts=8", "model.expert_dim=512", "model.vocab=64", "model.dropout=0",
        "model.ffn_dim=256",   "data.seq_len=16",      "train.batch=8",  NULL};
    tr_error err = {0};
    *m = (loaded){0};
    tri_param_table_init(&m->params);
    assert_int_equal(tr_settings_create(&m->settings, &err), TR_OK);
    for (int i = 0; words[i]; i++)
        hf_set(m->settings, "%s", words[i]);
    assert_int_equal(tri_settings_complete(m->settings, &err), TR_OK);
    assert_int_equal(tri_session_config_from(m->settings, &m->config, &err), TR_OK);
    tri_batch_shape batch = {.rows = 1, .seq_len = 16};
    assert_int_equal(tri_model_params(&m->config.compile.model, &batch, &m->params, &err), TR_OK);
    m->data = calloc(m->params.count + 1, sizeof *m->data);
    m->values = malloc((size_t)tri_param_total(&m->params) * sizeof *m->values);
    assert_true(m->data && m->values);
    float *next = m->values;
    for (size_t i = 0; i < m->params.count; i++) {
        m->data[i] = next;
        next += tri_shape_count(&m->params.items[i].shape);
    }
    for (int64_t i = 0; i < tri_param_total(&m->params); i++)
        m->values[i] = 1e-3f * (float)(i % 1009) - 0.5f;
    const char *dir = temp_file(temp, "large");
    tri_hf_export_options options = {.dir = dir, .shard_bytes = TRI_HF_SHARD_BYTES};
    if (tri_hf_export(&options, &m->config.compile.model, &m->params, (const float *const *)m->data,
                      &err) != TR_OK)
        fail_msg("%s", err.message);
    return dir;
}

/* A number of kilobytes in /proc/self/status, as bytes. */
static int64_t status_bytes(const char *name)
{
    char line[200];
    long long kb = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), ": %lld", &kb);
    if (file)
        fclose(file);
    return kb * 1024;
}

/* What the process grows by at most while a rank takes its weights from a directory, pages of the
 * files counted; in a process of its own. Ranks of other experts need not be there. */
static int64_t growth_of_rank(const char *dir, const char *const *layout)
{
    int ends[2];
    int64_t grown = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        tr_settings *settings = hf_settings(dir);
        tr_session *session;
        tr_error err = {0};
        hf_set(settings, "run.threads=1");
        hf_set(settings, "train.batch=8");
        hf_set(settings, "data.seq_len=16");
        hf_set(settings, "data.source=synthetic");
        hf_set(settings, "optim.kind=sgd");
        for (; *layout; layout++)
            hf_set(settings, "%s", *layout);
        tr_status status = tri_api_compile(settings, 1, &session, &err);
        if (status == TR_OK) {
            session->session.config.weights_follow = true;
            status = tri_session_start(&session->session, &err);
        }
        FILE *clear = fopen("/proc/self/clear_refs", "w"); /* 5: the peak begins anew */
        if (clear) {
            fputs("5", clear);
            fclose(clear);
        }
        int64_t before = status_bytes("VmRSS");
        if (status == TR_OK)
            status = tri_session_fill(&session->session, &err);
        if (status == TR_OK)
            grown = status_bytes("VmHWM") - before;
        else
            fprintf(stderr, "%s\n", err.message);
        _exit(write(ends[1], &grown, sizeof grown) != sizeof grown);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &grown, sizeof grown), sizeof grown);
    close(ends[0]);
    waitpid(child, NULL, 0);
    return grown;
}

/* A rank with a quarter of the experts touches a quarter of their bytes, in files and in memory. A
 * file with all of them would be more than the limit, and whole tensors beside it much more. */
static void test_a_rank_reads_its_own(void **state)
{
    static const char *const layouts[][4] = {
        {"layout.dp=4", "layout.ep=4"},
        {"layout.dp=4", "layout.zero=3"},
    };
    loaded m;
    const char *dir = large_experts(*state, &m);
    const int64_t total = tri_param_total(&m.params) * (int64_t)sizeof(float);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        int64_t grown = growth_of_rank(dir, layouts[i]);
        print_message("%s %s: %lld bytes, the model has %lld\n", layouts[i][0],
                      layouts[i][1] ? layouts[i][1] : "", (long long)grown, (long long)total);
        /* Its pieces, their pages in the file, and one of them on the way. */
        assert_true(grown > total / 4 && grown < total * 9 / 10);
    }
    unload(&m);
}

/* ---- presets ---- */

static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t total, active;
    } sizes[] = {
        {"mixtral-8x7b", 46702792704, 12879925248}, {"qwen2-57b-a14b", 57408658944, 14249270784},
        {"qwen3-30b-a3b", 30532122624, 3353032704}, {"qwen3-235b-a22b", 235093634560, 22190763520},
        {"olmoe-1b-7b", 6919161856, 1282017280},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tr_settings *settings;
        tri_session_config config;
        tri_param_table params;
        tr_error err = {0};
        tri_param_table_init(&params);
        assert_int_equal(tr_settings_create(&settings, &err), TR_OK);
        hf_set(settings, "model.preset=%s", sizes[i].name);
        hf_set(settings, "data.seq_len=128");
        if (tri_settings_complete(settings, &err) != TR_OK ||
            tri_session_config_from(settings, &config, &err) != TR_OK)
            fail_msg("%s", err.message);
        const tri_model_config *m = &config.compile.model;
        tri_batch_shape batch = {.rows = 1, .seq_len = 128};
        if (tri_model_params(m, &batch, &params, &err) != TR_OK)
            fail_msg("%s", err.message);
        int64_t idle = (m->moe.num_experts - m->moe.choices) * 3 * m->dim * m->moe.expert_dim;
        print_message("%s: %lld\n", sizes[i].name, (long long)tri_param_total(&params));
        assert_true(tri_param_total(&params) == sizes[i].total);
        assert_true(tri_param_total(&params) - m->num_layers * idle == sizes[i].active);
        tri_param_table_fini(&params);
        tr_settings_destroy(settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_export_refused),
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_a_rank_reads_its_own),
        cmocka_unit_test(test_presets),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
