/* Generation: the cache of keys and values against the prediction program and against what
 * transformers generated; rows that do not disturb each other; texts that outgrow their model. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/texts.h"
#include "ckpt/safetensors.h"
#include "hf_dirs.h"
#include "small_models.h"

enum { MOST = 4096 };

/* What came out, text by text. */
typedef struct texts {
    int32_t *token; /* [num][MOST] */
    int64_t *length;
    int32_t stop_at; /* a token that ends a text, or -1 */
} texts;

static texts texts_of(size_t num)
{
    return (texts){calloc(num * MOST, sizeof(int32_t)), calloc(num, sizeof(int64_t)), -1};
}

static void texts_free(texts *t)
{
    free(t->token);
    free(t->length);
}

static bool collect(void *context, size_t request, int32_t token)
{
    texts *t = context;
    assert_true(t->length[request] < MOST);
    t->token[(int64_t)request * MOST + t->length[request]++] = token;
    return token != t->stop_at;
}

static const tri_sampling greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};

static tr_session *start(tr_settings *settings, unsigned programs, const tri_generate_shape *shape)
{
    tr_session *session;
    tr_error err = {0};
    if (tri_api_compile_programs(settings, programs, shape, &session, &err) != TR_OK ||
        tri_api_start(session, &err) != TR_OK)
        fail_msg("%s", err.message);
    return session;
}

static tri_generate_stats make_texts(tr_session *session, const tri_text_request *requests,
                                     size_t num, const tri_sampling *sampling, texts *out)
{
    tri_generate_stats stats;
    tr_error err = {0};
    if (tri_generate(&session->session, requests, num, sampling, collect, out, &stats, &err) !=
        TR_OK)
        fail_msg("%s", err.message);
    return stats;
}

/* ---- against transformers ---- */

static void check_family(void **state)
{
    char path[200], dir[200];
    tr_error err = {0};
    tri_safetensors *file;
    snprintf(dir, sizeof dir, "tests/fixtures/%s", (const char *)*state);
    bool bare = strstr(dir, "bare") != NULL;
    snprintf(path, sizeof path, "%s/expected.safetensors", bare ? "tests/fixtures/hf_gpt2" : dir);
    if (tri_safetensors_open(path, &file, &err) != TR_OK)
        fail_msg("%s", err.message);
    const tri_safetensor *prompts = tri_safetensors_find(file, "prompts");
    const tri_safetensor *generated = tri_safetensors_find(file, "generated");
    const int32_t *lens = tri_safetensors_find(file, "prompt_lens")->data;
    const int32_t *wanted = generated->data;
    int64_t num = prompts->dim[0], longest = prompts->dim[1], num_new = generated->dim[1];
    tri_text_request requests[16];
    assert_true(num <= 16);
    for (int64_t p = 0; p < num; p++)
        requests[p] =
            (tri_text_request){(const int32_t *)prompts->data + p * longest, lens[p], num_new};
    /* As many rows as prompts, fewer, and one. */
    for (int64_t rows = num; rows > 0; rows = rows > 2 ? 2 : rows - 1) {
        tr_settings *settings = hf_settings(dir);
        assert_int_equal(tri_settings_complete(settings, &err), TR_OK);
        tri_session_config config;
        assert_int_equal(tri_session_config_from(settings, &config, &err), TR_OK);
        tri_generate_shape shape =
            tri_generate_plan(&config.compile.model, rows, 32, longest, longest + num_new);
        tr_session *session = start(settings, TRI_PROGRAMS_GENERATE, &shape);
        texts out = texts_of((size_t)num);
        tri_generate_stats stats = make_texts(session, requests, (size_t)num, &greedy, &out);
        for (int64_t p = 0; p < num; p++)
            for (int64_t i = 0; i < num_new; i++)
                if (out.token[p * MOST + i] != wanted[p * num_new + i])
                    fail_msg("%s, %d rows: prompt %d: token %d is %d, transformers has %d", dir,
                             (int)rows, (int)p, (int)i, out.token[p * MOST + i],
                             wanted[p * num_new + i]);
        assert_int_equal(stats.new_tokens, num * num_new);
        assert_int_equal(stats.num_restarts, 0);
        texts_free(&out);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
    tri_safetensors_close(file);
}

#define FAMILY(name)                                                                               \
    {                                                                                              \
        name, check_family, NULL, NULL, name                                                       \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAMILY("hf_gpt2"),  FAMILY("hf_gpt2_bare"), FAMILY("hf_llama"),   FAMILY("hf_llama_tied"),
        FAMILY("hf_qwen2"), FAMILY("hf_qwen3"),     FAMILY("hf_mistral"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
