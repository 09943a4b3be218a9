/* Model directories of Hugging Face as files: what config.json means, and those that are broken. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "ckpt/hf/hf.h"
#include "ckpt/safetensors.h"
#include "hf_dirs.h"

/* ---- settings ---- */

typedef struct filled {
    const char *dir;
    const char *settings[20];
} filled;

static const filled fillings[] = {
    {"hf_gpt2",
     {"model.kind=gpt2", "model.num_layers=2", "model.dim=30", "model.num_heads=3",
      "model.ffn_dim=120", "model.vocab=97", "model.positions=24", "data.seq_len=24"}},
    {"hf_gpt2_bare", {"model.kind=gpt2", "model.positions=24"}},
    {"hf_llama",
     {"model.kind=llama", "model.num_layers=2", "model.dim=40", "model.num_heads=4",
      "model.num_kv_heads=2", "model.head_dim=10", "model.ffn_dim=70", "model.vocab=101",
      "model.positions=64", "model.norm_eps=1e-5", "model.tied_head=false", "model.qkv_bias=false",
      "model.qk_norm=false", "model.window=0", "model.rope_theta=500", "model.rope_factor=8",
      "model.rope_low=1", "model.rope_high=4", "model.rope_original=32"}},
    {"hf_llama_tied",
     {"model.kind=llama", "model.num_kv_heads=1", "model.head_dim=14", "model.tied_head=true",
      "model.rope_theta=10000", "model.rope_factor=0"}},
    {"hf_qwen2",
     {"model.kind=llama", "model.qkv_bias=true", "model.qk_norm=false", "model.window=0",
      "model.head_dim=6", "model.norm_eps=1e-6", "model.rope_theta=1e6"}},
    {"hf_qwen3",
     {"model.kind=llama", "model.qk_norm=true", "model.qkv_bias=false", "model.head_dim=8",
      "model.num_kv_heads=3", "model.tied_head=true", "model.window=0"}},
    {"hf_mistral",
     {"model.kind=llama", "model.window=7", "model.qkv_bias=false", "model.qk_norm=false",
      "model.rope_factor=0", "model.num_layers=3"}},
    {"hf_bert",
     {"model.kind=bert", "model.task=mlm", "model.num_layers=2", "model.dim=24",
      "model.num_heads=3", "model.ffn_dim=50", "model.vocab=90", "model.positions=20",
      "model.types=2", "model.norm_eps=1e-12", "model.act=gelu_erf", "data.seq_len=20"}},
    {"hf_bert_cls",
     {"model.kind=bert", "model.task=classify", "model.num_labels=3", "model.act=relu"}},
};

static void test_settings(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof fillings / sizeof *fillings; f++) {
        char dir[200];
        tr_error err = {0};
        snprintf(dir, sizeof dir, "tests/fixtures/%s", fillings[f].dir);
        tr_settings *got = hf_settings(dir);
        if (tri_settings_complete(got, &err) != TR_OK)
            fail_msg("%s", err.message);
        /* Set to what it should be, nothing changes. */
        char before[32768] = {0}, after[32768] = {0};
        FILE *out = fmemopen(before, sizeof before - 1, "w");
        assert_int_equal(tr_settings_write_yaml(got, out, &err), TR_OK);
        fclose(out);
        for (int i = 0; i < 20 && fillings[f].settings[i]; i++)
            hf_set(got, "%s", fillings[f].settings[i]);
        out = fmemopen(after, sizeof after - 1, "w");
        assert_int_equal(tr_settings_write_yaml(got, out, &err), TR_OK);
        fclose(out);
        assert_string_equal(before, after);
        assert_int_equal(tri_settings_complete(got, &err), TR_OK); /* given, and in agreement */
        tr_settings_destroy(got);
    }
}

static void test_refused_configs(void **state)
{
    temp_dir *temp = *state;
    hf_refuses("tests/fixtures/hf_unknown", NULL, "mamba",
               "gpt2, llama, qwen2, qwen3, mistral, mixtral, qwen2_moe, qwen3_moe, olmoe, bert");
    hf_refuses_config(temp, "hf_gpt2", "n_embd", NULL, "n_embd");
    hf_refuses_config(temp, "hf_gpt2", "n_embd", "\"30\"", "n_embd");
    hf_refuses_config(temp, "hf_gpt2", "n_embd", "-1", "n_embd");
    hf_refuses_config(temp, "hf_gpt2", "n_layer", "1e99", "n_layer");
    hf_refuses_config(temp, "hf_gpt2", "n_layer", "100000", "n_layer");
    hf_refuses_config(temp, "hf_gpt2", "activation_function", "\"relu\"", "activation_function");
    hf_refuses_config(temp, "hf_gpt2", "scale_attn_by_inverse_layer_idx", "true", "inverse");
    hf_refuses_config(temp, "hf_gpt2", "tie_word_embeddings", "false", "tie_word_embeddings");
    hf_refuses_config(temp, "hf_gpt2", "layer_norm_epsilon", "0.1", "layer_norm_epsilon");
    hf_refuses_config(temp, "hf_gpt2", "model_type", NULL, "model_type");
    hf_refuses_config(temp, "hf_gpt2", "quantization_config", "{\"bits\": 4}",
                      "quantization_config");
    hf_refuses_config(temp, "hf_llama", "attention_bias", "true", "attention_bias");
    hf_refuses_config(temp, "hf_llama", "mlp_bias", "true", "mlp_bias");
    hf_refuses_config(temp, "hf_llama", "mlp_bias", "3", "mlp_bias");
    hf_refuses_config(temp, "hf_llama", "hidden_act", "\"gelu\"", "hidden_act");
    hf_refuses_config(temp, "hf_llama", "hidden_act", "7", "hidden_act");
    hf_refuses_config(temp, "hf_llama", "rope_scaling",
                      "{\"rope_type\": \"llama3\", \"factor\": 8}", "high_freq_factor");
    hf_refuses_config(temp, "hf_llama", "rope_scaling", "[]", "rotary");
    hf_refuses_config(temp, "hf_llama", "rms_norm_eps", "\"small\"", "rms_norm_eps");
    hf_refuses_config(temp, "hf_llama", "num_attention_heads", "3", "does not divide");
    hf_refuses_config(temp, "hf_mistral", "sliding_window", "-5", "sliding_window");
}

/* Keys that change what a config means. */
static void reads(temp_dir *temp, const char *fixture, const char *changes, const char *name,
                  const char *value)
{
    const char *dir = hf_copy_of(temp, fixture);
    json_t *root = hf_read_json(dir, "config.json"), *patch = json_loads(changes, 0, NULL);
    assert_non_null(patch);
    json_object_update(root, patch);
    hf_put_json(dir, "config.json", root);
    tri_hf_config config;
    tr_error err = {0};
    tr_status status = tri_hf_config_read(dir, &config, &err);
    if (status != TR_OK && value)
        fail_msg("%s: %s", changes, err.message);
    assert_int_equal(status == TR_OK, value != NULL);
    int found = 0;
    for (int i = 0; i < config.num_settings && value; i++)
        if (strcmp(config.setting[i].name, name) == 0) {
            assert_string_equal(config.setting[i].value, value);
            found++;
        }
    assert_int_equal(found, value != NULL);
    json_decref(root);
    json_decref(patch);
}

static void test_conventions(void **state)
{
    temp_dir *temp = *state;
    const char *window = "model.window", *factor = "model.rope_factor";
    reads(temp, "hf_mistral", "{\"sliding_window\": null}", window, "0");
    reads(temp, "hf_qwen2", "{\"use_sliding_window\": true}", window, NULL); /* 1 of 2 layers */
    reads(temp, "hf_qwen2", "{\"use_sliding_window\": true, \"max_window_layers\": 0}", window,
          "5");
    reads(temp, "hf_qwen2", "{\"use_sliding_window\": true, \"max_window_layers\": 2}", window,
          "0");
    reads(temp, "hf_qwen3", "{\"use_sliding_window\": true, \"sliding_window\": 9}", window, "0");
    reads(temp, "hf_qwen3",
          "{\"use_sliding_window\": true, \"sliding_window\": 9, \"layer_types\": "
          "[\"sliding_attention\", \"sliding_attention\"]}",
          window, "9");
    reads(temp, "hf_qwen3",
          "{\"use_sliding_window\": true, \"sliding_window\": 9, \"layer_types\": [\"mamba\", 3]}",
          window, NULL);
    reads(temp, "hf_llama", "{\"sliding_window\": 5}", window, "0");
    reads(temp, "hf_llama", "{\"num_key_value_heads\": null}", "model.num_kv_heads", "4");
    reads(temp, "hf_llama", "{\"rope_scaling\": {\"type\": \"default\"}}", factor, "0");
    reads(temp, "hf_llama", "{\"rope_scaling\": null, \"rope_parameters\": {\"rope_theta\": 7}}",
          "model.rope_theta", "7");
    reads(temp, "hf_llama", "{\"rope_scaling\": {}, \"rope_theta\": 7}", "model.rope_theta", "7");
    reads(temp, "hf_gpt2", "{\"n_inner\": 31}", "model.ffn_dim", "31");
    reads(temp, "hf_bert", "{\"hidden_act\": \"gelu_new\"}", "model.act", "gelu");
    reads(temp, "hf_bert", "{\"hidden_act\": \"gelu_pytorch_tanh\"}", "model.act", "gelu");
    reads(temp, "hf_bert", "{\"hidden_act\": null}", "model.act", "gelu_erf");
    reads(temp, "hf_bert", "{\"layer_norm_eps\": 1e-5}", "model.norm_eps", "1e-05");
    reads(temp, "hf_bert", "{\"architectures\": [\"BertForPreTraining\"]}", "model.task", "mlm");
    reads(temp, "hf_bert", "{\"architectures\": [\"BertModel\"]}", "model.task", "mlm");
    reads(temp, "hf_bert_cls", "{\"id2label\": null}", "model.num_labels", "2");

    /* Both spellings of one model. */
    const char *dir = hf_copy_of(temp, "hf_llama");
    tri_hf_config v4, v5;
    tr_error err = {0};
    assert_int_equal(tri_hf_config_read(dir, &v4, &err), TR_OK);
    json_t *root = hf_read_json(dir, "config_v5.json");
    hf_put_json(dir, "config.json", root);
    json_decref(root);
    assert_int_equal(tri_hf_config_read(dir, &v5, &err), TR_OK);
    assert_int_equal(v4.num_settings, v5.num_settings);
    for (int i = 0; i < v4.num_settings; i++)
        assert_string_equal(v4.setting[i].value, v5.setting[i].value);
}

static void test_contradictions(void **state)
{
    (void)state;
    const char *gpt2 = "tests/fixtures/hf_gpt2", *llama = "tests/fixtures/hf_llama";
    tr_error err;
    hf_refuses(gpt2, "model.dim=64", "model.dim is 64", "30 (n_embd)");
    hf_refuses(gpt2, "model.kind=llama", "model.kind is llama", "gpt2 (model_type)");
    hf_refuses(gpt2, "model.positions=32", "model.positions is 32", "24");
    hf_refuses(llama, "model.tied_head=true", "model.tied_head is true", "false");
    hf_refuses(llama, "model.num_kv_heads=4", "num_key_value_heads", "2");
    hf_refuses(gpt2, "data.seq_len=25", "data.seq_len is 25", "24");
    assert_int_equal(hf_try_load(gpt2, "model.ffn_dim=0", &err), TR_OK); /* 0: find out */
    assert_int_equal(hf_try_load(gpt2, "model.vocab=97", &err), TR_OK);
}

/* ---- broken weights ---- */

static void test_broken_weights(void **state)
{
    temp_dir *temp = *state;
    const char *norm = "transformer.ln_f.weight", *file = "model.safetensors";
    hf_edit e;

    const char *dir = hf_copy_of(temp, "hf_gpt2");
    hf_edit_open(&e, dir, file);
    *hf_edit_find(&e, norm) = e.item[--e.num];
    hf_edit_write(&e);
    hf_refuses(dir, NULL, norm, file);

    dir = hf_copy_of(temp, "hf_gpt2");
    hf_edit_open(&e, dir, file);
    const int64_t other[2] = {90, 30};
    hf_edit_find(&e, "transformer.h.1.attn.c_attn.weight")->dim = other;
    hf_edit_write(&e);
    hf_refuses(dir, NULL, "h.1.attn.c_attn.weight", "[90, 30], but config.json asks for [30, 90]");

    dir = hf_copy_of(temp, "hf_gpt2");
    hf_edit_open(&e, dir, file);
    hf_edit_find(&e, norm)->dtype = TRI_I32;
    hf_edit_write(&e);
    hf_refuses(dir, NULL, norm, "I32");

    dir = hf_copy_of(temp, "hf_gpt2");
    hf_edit_open(&e, dir, file);
    e.item[e.num] = *hf_edit_find(&e, norm);
    e.item[e.num++].name = "transformer.h.2.ln_1.weight";
    hf_edit_write(&e);
    hf_refuses(dir, NULL, "transformer.h.2.ln_1.weight", "is not part of the gpt2");

    dir = hf_copy_of(temp, "hf_gpt2");
    hf_edit_open(&e, dir, file);
    e.item[e.num] = *hf_edit_find(&e, norm);
    e.item[e.num++].name = "ln_f.weight";
    hf_edit_write(&e);
    hf_refuses(dir, NULL, "ln_f.weight", "same parameter");

    dir = hf_copy_of(temp, "hf_gpt2");
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    assert_int_equal(truncate(path, 50000), 0);
    hf_refuses(dir, NULL, "truncated", file);
    assert_int_equal(remove(path), 0);
    hf_refuses(dir, NULL, "neither", dir);
    hf_put(dir, "pytorch_model.bin", "x", 1);
    hf_refuses(dir, NULL, "save_pretrained", dir);
    hf_put(dir, "config.json", "{\"model_type\": ", 15);
    hf_refuses(dir, NULL, "not valid JSON", "config.json");
    hf_put(dir, "config.json", "", 0);
    hf_refuses(dir, NULL, "empty", "config.json");
}

static void test_heads(void **state)
{
    temp_dir *temp = *state;
    tr_error err;
    hf_edit e;
    const char *file = "model-00001-of-00002.safetensors";

    /* A tied head that is stored too: equal, then not. */
    const char *dir = hf_copy_of(temp, "hf_gpt2");
    hf_edit_open(&e, dir, "model.safetensors");
    e.item[e.num] = *hf_edit_find(&e, "transformer.wte.weight");
    e.item[e.num++].name = "lm_head.weight";
    hf_edit_write(&e);
    if (hf_try_load(dir, NULL, &err) != TR_OK)
        fail_msg("%s", err.message);
    float *changed = malloc(97 * 30 * sizeof *changed);
    hf_edit_open(&e, dir, "model.safetensors");
    memcpy(changed, hf_edit_find(&e, "lm_head.weight")->data, 97 * 30 * sizeof *changed);
    changed[97 * 30 - 1] += 1;
    hf_edit_find(&e, "lm_head.weight")->data = changed;
    hf_edit_write(&e);
    free(changed);
    hf_refuses(dir, NULL, "lm_head.weight", "tie_word_embeddings");

    /* A head of its own that is not there. */
    dir = hf_copy_of(temp, "hf_llama");
    hf_edit_open(&e, dir, "model.safetensors");
    *hf_edit_find(&e, "lm_head.weight") = e.item[--e.num];
    hf_edit_write(&e);
    hf_refuses(dir, NULL, "lm_head.weight", "tie_word_embeddings");
    hf_refuses_config(temp, "hf_llama_tied", "tie_word_embeddings", "false", "lm_head.weight");
    hf_refuses_config(temp, "hf_llama", "tie_word_embeddings", "true", "lm_head.weight");

    /* Buffers that carry nothing. */
    dir = hf_copy_of(temp, "hf_llama_tied");
    hf_edit_open(&e, dir, file);
    e.item[e.num] = e.item[0];
    e.item[e.num++].name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    hf_edit_write(&e);
    if (hf_try_load(dir, NULL, &err) != TR_OK)
        fail_msg("%s", err.message);
}

static void test_broken_index(void **state)
{
    temp_dir *temp = *state;
    const char *index = "model.safetensors.index.json", *norm = "model.norm.weight";
    const char *dir = hf_copy_of(temp, "hf_llama_tied");
    json_t *good = hf_read_json(dir, index), *root = json_deep_copy(good);
    json_t *map = json_object_get(root, "weight_map");

    json_object_set_new(map, norm, json_string("model-00001-of-00002.safetensors"));
    hf_put_json(dir, index, root);
    hf_refuses(dir, NULL, norm, "model-00001-of-00002.safetensors");
    json_object_set_new(map, norm, json_string("model-00003-of-00002.safetensors"));
    hf_put_json(dir, index, root);
    hf_refuses(dir, NULL, norm, "model-00003-of-00002.safetensors");
    json_object_set_new(map, norm, json_string("../model-00002-of-00002.safetensors"));
    hf_put_json(dir, index, root);
    hf_refuses(dir, NULL, norm, index);
    json_object_set_new(map, norm, json_integer(2));
    hf_put_json(dir, index, root);
    hf_refuses(dir, NULL, norm, index);
    json_object_del(map, norm);
    hf_put_json(dir, index, root);
    hf_refuses(dir, NULL, norm, index);
    json_object_del(root, "weight_map");
    hf_put_json(dir, index, root);
    hf_refuses(dir, NULL, "weight_map", index);
    hf_put(dir, index, "[]", 2);
    hf_refuses(dir, NULL, "object", index);

    hf_put_json(dir, index, good);
    char path[300];
    snprintf(path, sizeof path, "%s/model-00002-of-00002.safetensors", dir);
    assert_int_equal(truncate(path, 40000), 0);
    hf_refuses(dir, NULL, "truncated", "model-00002-of-00002.safetensors");
    assert_int_equal(remove(path), 0);
    hf_refuses(dir, NULL, "shard of tensor", "model-00002-of-00002.safetensors");
    json_decref(good);
    json_decref(root);
}

/* ---- types ---- */

static void test_types(void **state)
{
    temp_dir *temp = *state;
    const char *dir = hf_copy_of(temp, "hf_gpt2");
    hf_edit e;
    hf_edit_open(&e, dir, "model.safetensors");
    /* 1, -2, the largest half, the smallest, the smallest normal one, minus zero */
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x0400, 0x8000};
    static const float meant[] = {1, -2, 65504, 0x1p-24f, 0x1p-14f, -0.0f};
    uint16_t f16[30], bf16[30];
    for (int i = 0; i < 30; i++) {
        f16[i] = halves[i % 6];
        float value = 0.25f * (float)(i - 10);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bf16[i] = (uint16_t)(bits >> 16);
    }
    hf_edit_find(&e, "transformer.ln_f.weight")->dtype = TRI_F16;
    hf_edit_find(&e, "transformer.ln_f.weight")->data = f16;
    hf_edit_find(&e, "transformer.ln_f.bias")->dtype = TRI_BF16;
    hf_edit_find(&e, "transformer.ln_f.bias")->data = bf16;
    hf_edit_write(&e);
    tr_settings *settings = hf_settings(dir);
    tr_session *session;
    tr_error err = {0};
    if (tr_session_create(settings, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    for (size_t p = 0; p < tr_session_num_params(session); p++) {
        tr_param param = tr_session_param(session, p);
        for (int i = 0; i < 30 && strcmp(param.name, "ln_f.weight") == 0; i++)
            assert_memory_equal(&param.data[i], &meant[i % 6], sizeof(float));
        for (int i = 0; i < 30 && strcmp(param.name, "ln_f.bias") == 0; i++)
            assert_true(param.data[i] == 0.25f * (float)(i - 10));
    }
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* ---- fuzz ---- */

/* Changes a few bytes, or cuts the text. Whatever comes of it, an error is one sentence. */
static void fuzz(const char *dir, const char *name, int rounds, uint64_t seed)
{
    static const char bytes[] = "\"{}[],:-0123456789.eEtfn\\ \x80\xff";
    char path[300];
    tr_error err = {0};
    tri_mapping mapping;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(tri_mapping_open(&mapping, path, &err), TR_OK);
    size_t num = mapping.num_bytes;
    char *good = malloc(num), *bad = malloc(num);
    memcpy(good, mapping.data, num);
    tri_mapping_close(&mapping);
    uint64_t x = seed;
    for (int round = 0; round < rounds; round++) {
        memcpy(bad, good, num);
        size_t length = num;
        for (int change = 0; change < 1 + round % 3; change++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            bad[(x >> 33) % num] = bytes[(x >> 20) % (sizeof bytes - 1)];
        }
        if (round % 16 == 0)
            length = (x >> 33) % num;
        hf_put(dir, name, bad, length);
        tri_hf_config config;
        tri_hf_shards shards;
        err = (tr_error){0};
        if (tri_hf_config_read(dir, &config, &err) != TR_OK)
            assert_true(err.message[0] != '\0');
        err = (tr_error){0};
        if (tri_hf_shards_list(dir, &shards, &err) == TR_OK)
            tri_hf_shards_free(&shards);
        else
            assert_true(err.message[0] != '\0');
    }
    hf_put(dir, name, good, num);
    free(good);
    free(bad);
}

static void test_fuzz(void **state)
{
    temp_dir *temp = *state;
    fuzz(hf_copy_of(temp, "hf_gpt2"), "config.json", 3000, 1);
    fuzz(hf_copy_of(temp, "hf_llama"), "config.json", 3000, 2);
    fuzz(hf_copy_of(temp, "hf_qwen3"), "config.json", 3000, 3);
    fuzz(hf_copy_of(temp, "hf_llama_tied"), "model.safetensors.index.json", 2000, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),       cmocka_unit_test(test_refused_configs),
        cmocka_unit_test(test_conventions),    cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_broken_weights), cmocka_unit_test(test_heads),
        cmocka_unit_test(test_broken_index),   cmocka_unit_test(test_types),
        cmocka_unit_test(test_fuzz),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
