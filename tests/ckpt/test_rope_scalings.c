/* Scaled rotary positions against transformers, up to and beyond the length that each scaling
 * begins at (tests/reference/make_rope_fixture.py), on their way out and back in, and refused. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt/hf/hf.h"
#include "hf_dirs.h"
#include "model/rope.h"

/* A copy of hf_llama with some keys of its config replaced. */
static const char *copy_with(temp_dir *temp, const json_t *keys)
{
    const char *dir = hf_copy_of(temp, "hf_llama");
    json_t *root = hf_read_json(dir, "config.json");
    assert_int_equal(json_object_update(root, (json_t *)keys), 0);
    hf_put_json(dir, "config.json", root);
    json_decref(root);
    return dir;
}

static double worst_of(const char *dir, const int32_t *tokens, int64_t length,
                       const tri_safetensor *logits)
{
    tr_settings *settings = hf_settings(dir);
    tr_session *session = hf_start_predictor(settings, length);
    int64_t kept = logits->dim[0], vocab = logits->dim[1];
    double worst = 0;
    for (int64_t i = 0; i < kept; i++) {
        const float *ours = tri_session_predict(&session->session, tokens, length - kept + 1 + i);
        const float *ref = (const float *)logits->data + i * vocab;
        for (int64_t v = 0; v < vocab; v++)
            worst = fmax(worst, fabs((double)ours[v] - (double)ref[v]));
    }
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return worst;
}

/* Out by tri_hf_export: the same model again. */
static const char *exported(temp_dir *temp, const char *dir, int64_t length)
{
    static int number;
    char name[32];
    tr_error err = {0};
    snprintf(name, sizeof name, "out-%d", number++);
    const char *to = temp_file(temp, name);
    tr_settings *settings = hf_settings(dir);
    tr_session *session = hf_start_predictor(settings, length);
    const tri_session *s = &session->session;
    tri_hf_export_options options = {.dir = to, .shard_bytes = TRI_HF_SHARD_BYTES};
    if (tri_hf_export(&options, &s->config.compile.model, &s->params,
                      (const float *const *)s->weights, &err) != TR_OK)
        fail_msg("%s", err.message);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return to;
}

static void test_logits_of_each_scaling(void **state)
{
    temp_dir *temp = *state;
    tri_safetensors *file;
    tr_error err = {0};
    if (tri_safetensors_open("tests/fixtures/hf_rope.safetensors", &file, &err) != TR_OK)
        fail_msg("%s", err.message);
    const int32_t *tokens = tri_safetensors_find(file, "tokens")->data;
    json_t *cases = json_loads(tri_safetensors_metadata(file, "cases"), 0, NULL), *one;
    assert_true(json_object_size(cases) >= 11);
    const char *name;
    json_object_foreach(cases, name, one)
    {
        int64_t length = json_integer_value(json_object_get(one, "length"));
        const tri_safetensor *logits = tri_safetensors_find(file, name);
        const char *dir = copy_with(temp, json_object_get(one, "config"));
        double in = worst_of(dir, tokens, length, logits);
        double again = worst_of(exported(temp, dir, length), tokens, length, logits);
        print_message("%s: logits differ by %.2g at most, by %.2g after an export\n", name, in,
                      again);
        if (!(in <= 1e-4) || !(again <= 1e-4))
            fail_msg("%s: logits differ by %g, and by %g after an export", name, in, again);
    }
    json_decref(cases);
    tri_safetensors_close(file);
}

static void refuses(temp_dir *temp, const char *scaling, const char *word)
{
    hf_refuses_config(temp, "hf_llama", "rope_scaling", scaling, word);
}

/* Not wrong in itself, but as settings of the model. */
static void refuses_later(temp_dir *temp, const char *scaling, const char *words)
{
    json_t *keys = json_pack("{s:o}", "rope_scaling", json_loads(scaling, 0, NULL));
    hf_refuses(copy_with(temp, keys), NULL, words, "model.rope");
    json_decref(keys);
}

static void test_refused_configs(void **state)
{
    temp_dir *temp = *state;
    refuses(temp, "{\"type\": \"linear\"}", "factor");
    refuses(temp, "{\"type\": \"linear\", \"factor\": 0.5}", "factor");
    refuses(temp, "{\"type\": \"spiral\", \"factor\": 2}", "yarn");
    refuses(temp, "{\"type\": \"yarn\", \"factor\": 2, \"truncate\": 3}", "truncate");
    refuses_later(temp, "{\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": 1, \"beta_slow\": 9}",
                  "model.rope_fast");
    refuses(temp, "{\"type\": \"longrope\", \"factor\": 2, \"short_factor\": [1, 1, 1, 1, 1]}",
            "long_factor");
    refuses(temp,
            "{\"type\": \"longrope\", \"factor\": 2, \"short_factor\": [1, 1, 1, 1, 1], "
            "\"long_factor\": [1, 1, 0, 1, 1]}",
            "long_factor");
    refuses_later(temp,
                  "{\"type\": \"longrope\", \"factor\": 2, \"short_factor\": [1, 1, 1, 1, 1], "
                  "\"long_factor\": [1, 1, 1]}",
                  "model.rope_long has 3 numbers, but 5 pairs");
    hf_refuses_config(temp, "hf_llama", "partial_rotary_factor", "0.5", "partial_rotary_factor");
    hf_refuses("tests/fixtures/hf_llama", "model.rope_part=0.3", "rope_part", "even");
    hf_refuses("tests/fixtures/hf_llama_tied", "model.rope_scaling=yarn", "rope_factor",
               "rope_scaling");
}

/* What a kernel is told: a part of the head, and one list for all texts of a program. */
static void test_what_a_length_decides(void **state)
{
    (void)state;
    tr_error err = {0};
    tri_rope_config config;
    tri_rope_setting rope = {.kind = TRI_ROPE_AS_LONGROPE,
                             .theta = 100,
                             .factor = 4,
                             .original = 32,
                             .part = 0.5,
                             .short_list = "1, 1.5",
                             .long_list = "[2 3]"};
    assert_int_equal(tri_rope_resolve(&rope, 8, 32, &config, &err), TR_OK);
    assert_int_equal(config.turned, 4);
    assert_true(config.stretch[1] == 1.5f);
    assert_int_equal(tri_rope_resolve(&rope, 8, 33, &config, &err), TR_OK);
    assert_true(config.stretch[0] == 2 && config.stretch[1] == 3);
    const float *list = config.stretch;
    assert_int_equal(tri_rope_resolve(&rope, 8, 1000, &config, &err), TR_OK);
    assert_ptr_equal(config.stretch, list); /* attributes of equal layers are equal as bytes */
    rope.kind = TRI_ROPE_AS_DYNAMIC;
    assert_int_equal(tri_rope_resolve(&rope, 8, 32, &config, &err), TR_OK);
    assert_true(config.theta == 100 && config.factor == 0);
    assert_int_equal(tri_rope_resolve(&rope, 8, 64, &config, &err), TR_OK);
    assert_true(fabs(config.theta - 2500) < 1e-3); /* (4 * 2 - 3) ^ (4 / 2) * 100 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_logits_of_each_scaling, temp_dir_setup,
                                        temp_dir_teardown),
        cmocka_unit_test_setup_teardown(test_refused_configs, temp_dir_setup, temp_dir_teardown),
        cmocka_unit_test(test_what_a_length_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
