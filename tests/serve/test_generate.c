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
    if (tri_api_compile_programs(settings, 0, programs, shape, &session, &err) != TR_OK ||
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

/* ---- against the prediction program, over odd sizes ---- */

#define SPREAD                                                                                     \
    "model.init_std=0.3", "model.vocab=61", "model.num_layers=2", "train.batch=1", "run.seed=7"
#define GPT2  SPREAD, "model.kind=gpt2", "model.dim=24", "model.num_heads=3"
#define LLAMA SPREAD, "model.kind=llama", "model.dim=24", "model.num_heads=6", "model.head_dim=8"

static int32_t prompt_token(int64_t i)
{
    return (int32_t)((i * i * 7 + i * 3 + 5) % 61);
}

/* Prompts of these lengths. */
static tri_text_request *requests_of(const int64_t *lengths, size_t num, int64_t num_new)
{
    tri_text_request *requests = calloc(num, sizeof *requests);
    for (size_t r = 0; r < num; r++) {
        int32_t *prompt = malloc((size_t)lengths[r] * sizeof *prompt);
        for (int64_t i = 0; i < lengths[r]; i++)
            prompt[i] = prompt_token(i + (int64_t)r * 11);
        requests[r] = (tri_text_request){prompt, lengths[r], num_new};
    }
    return requests;
}

static void requests_free(tri_text_request *requests, size_t num)
{
    for (size_t r = 0; r < num; r++)
        free((void *)requests[r].prompt);
    free(requests);
}

static const int64_t odd_lengths[] = {1, 31, 32, 33, 70, 5};
enum { NUM_ODD = sizeof odd_lengths / sizeof *odd_lengths, NUM_NEW = 30, ROOM = 128 };

static void same_texts(const texts *a, const texts *b, size_t num, const char *what)
{
    for (size_t r = 0; r < num; r++) {
        assert_int_equal(a->length[r], b->length[r]);
        for (int64_t i = 0; i < a->length[r]; i++)
            if (a->token[r * MOST + (size_t)i] != b->token[r * MOST + (size_t)i])
                fail_msg("%s: text %d: token %d is %d and %d", what, (int)r, (int)i,
                         a->token[r * MOST + (size_t)i], b->token[r * MOST + (size_t)i]);
    }
}

static const tri_sampling drawn = {.temperature = 1.3,
                                   .top_k = 40,
                                   .top_p = 0.95,
                                   .min_p = 0.01,
                                   .repetition_penalty = 1.2,
                                   .seed = 3};

static texts texts_with(const char *const *assignments, unsigned programs,
                        const tri_generate_shape *shape, const tri_text_request *requests,
                        size_t num, const tri_sampling *sampling)
{
    texts out = texts_of(num);
    tr_settings *settings = settings_of(NULL, assignments);
    tr_session *session = start(settings, programs, shape);
    make_texts(session, requests, num, sampling, &out);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return out;
}

static void check_against_prediction(const char *what, const char *const *assignments)
{
    tri_text_request *requests = requests_of(odd_lengths, NUM_ODD, NUM_NEW);
    for (int s = 0; s < 2; s++) {
        const tri_sampling *sampling = s ? &drawn : &greedy;
        texts plain =
            texts_with(assignments, 1 << TRI_PROGRAM_PREDICT, NULL, requests, NUM_ODD, sampling);
        for (int64_t rows = 1; rows <= 4; rows++) {
            /* Blocks that cut the prompts in one, two or three; the ring just long enough. */
            int64_t block = rows == 4 ? 96 : 32;
            tri_generate_shape shape = {rows, ROOM, block, rows == 1 ? 1 : 2};
            texts cached =
                texts_with(assignments, TRI_PROGRAMS_GENERATE, &shape, requests, NUM_ODD, sampling);
            same_texts(&plain, &cached, NUM_ODD, what);
            texts_free(&cached);
        }
        texts_free(&plain);
    }
    requests_free(requests, NUM_ODD);
}

static void test_cache_against_prediction(void **state)
{
    (void)state;
    check_against_prediction("gpt2", SET(GPT2, "data.seq_len=128"));
    check_against_prediction("llama", SET(LLAMA, "data.seq_len=128"));
    check_against_prediction("llama 3:1", SET(LLAMA, "data.seq_len=128", "model.num_kv_heads=2"));
    check_against_prediction("llama 6:1, qwen3", SET(LLAMA, "data.seq_len=128",
                                                     "model.num_kv_heads=1", "model.qk_norm=true"));
    check_against_prediction(
        "window 7", SET(LLAMA, "data.seq_len=128", "model.num_kv_heads=3", "model.window=7"));
    check_against_prediction("window 1", SET(LLAMA, "data.seq_len=128", "model.window=1"));
    check_against_prediction("window 50", SET(LLAMA, "data.seq_len=128", "model.window=50"));
    check_against_prediction("reference kernels", SET(LLAMA, "data.seq_len=128", "model.window=9",
                                                      "run.kernels=reference"));
}

/* ---- rows do not disturb each other ---- */

/* A text is the same, draw for draw, alone and in any company. */
static void test_rows_are_alone(void **state)
{
    (void)state;
    const char *const *model = SET(LLAMA, "model.num_kv_heads=2", "data.seq_len=128");
    tri_text_request *requests = requests_of(odd_lengths, NUM_ODD, NUM_NEW);
    tri_generate_shape shape = {1, ROOM, 32, 1};
    texts alone = texts_with(model, TRI_PROGRAMS_GENERATE, &shape, requests, NUM_ODD, &drawn);
    static const tri_generate_shape shapes[] = {
        {2, ROOM, 32, 1}, {3, ROOM, 64, 3}, {6, ROOM, 32, 6}, {9, 111, 128, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        texts out = texts_with(model, TRI_PROGRAMS_GENERATE, &shapes[i], requests, NUM_ODD, &drawn);
        same_texts(&alone, &out, NUM_ODD, "in company");
        texts_free(&out);
    }
    texts threads = texts_with((const char *const[]){LLAMA, "model.num_kv_heads=2",
                                                     "data.seq_len=128", "run.threads=3", NULL},
                               TRI_PROGRAMS_GENERATE, &shapes[2], requests, NUM_ODD, &drawn);
    same_texts(&alone, &threads, NUM_ODD, "three threads");
    texts_free(&threads);
    texts_free(&alone);
    requests_free(requests, NUM_ODD);
}

/* Texts that end early give their rows to those that wait. */
static void test_rows_are_used_again(void **state)
{
    (void)state;
    const char *const *model = SET(GPT2, "data.seq_len=128");
    static const int64_t lengths[] = {3, 9, 4, 40, 6, 1, 2, 8, 30, 7, 5, 12};
    enum { NUM = sizeof lengths / sizeof *lengths };
    tri_text_request *requests = requests_of(lengths, NUM, 60);
    texts first[3];
    for (int k = 0; k < 3; k++) {
        tri_generate_shape shape = {k == 0 ? 1 : k == 1 ? 3 : 12, ROOM, 32, k == 2 ? 5 : 1};
        tr_settings *settings = settings_of(NULL, model);
        tr_session *session = start(settings, TRI_PROGRAMS_GENERATE, &shape);
        first[k] = texts_of(NUM);
        first[k].stop_at = 17;
        make_texts(session, requests, NUM, &drawn, &first[k]);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
    int64_t shortest = 60, longest = 0;
    for (int r = 0; r < NUM; r++) {
        shortest = first[0].length[r] < shortest ? first[0].length[r] : shortest;
        longest = first[0].length[r] > longest ? first[0].length[r] : longest;
    }
    assert_true(shortest < longest); /* or the test shows nothing */
    same_texts(&first[0], &first[1], NUM, "3 rows");
    same_texts(&first[0], &first[2], NUM, "12 rows");
    for (int k = 0; k < 3; k++)
        texts_free(&first[k]);
    requests_free(requests, NUM);
}

/* ---- texts that outgrow their model ---- */

/* A text of learned positions goes on from its last half: by the prediction program, with the same
 * tokens in sight. */
static void check_outgrown(int64_t positions, int64_t least_restarts)
{
    enum { NEW = 250 };
    char seq_len[64];
    snprintf(seq_len, sizeof seq_len, "data.seq_len=%lld", (long long)positions);
    const char *const *model = SET(GPT2, seq_len);
    static const int64_t lengths[] = {7, 90};
    tri_text_request *requests = requests_of(lengths, 2, NEW);
    tri_generate_shape shape = {2, positions, 32, 1};
    tr_settings *settings = settings_of(NULL, model);
    tr_session *session = start(settings, TRI_PROGRAMS_GENERATE, &shape);
    texts out = texts_of(2);
    tri_generate_stats stats = make_texts(session, requests, 2, &greedy, &out);
    tr_session_destroy(session);
    session = start(settings, 1 << TRI_PROGRAM_PREDICT, NULL);
    int64_t restarts = 0;
    for (int r = 0; r < 2; r++) {
        int32_t text[400];
        int64_t length = lengths[r], from = 0;
        memcpy(text, requests[r].prompt, (size_t)length * sizeof *text);
        for (int64_t i = 0; i < NEW; i++) {
            if (length - from > positions) {
                from = length - (positions + 1) / 2;
                restarts++;
            }
            const float *logits =
                tri_session_predict(&session->session, text + from, length - from);
            int32_t best = 0;
            for (int32_t v = 1; v < 61; v++)
                best = logits[v] > logits[best] ? v : best;
            if (best != out.token[r * MOST + i])
                fail_msg("text %d, token %d", r, (int)i);
            text[length++] = best;
        }
    }
    assert_true(restarts >= least_restarts);
    assert_int_equal(stats.num_restarts, restarts);
    texts_free(&out);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    requests_free(requests, 2);
}

static void test_text_outgrows_positions(void **state)
{
    (void)state;
    check_outgrown(41, 20);
    check_outgrown(150, 4); /* half of it is more than a block */
}

/* With a window there is nothing to outgrow, and the ring of the cache goes round many times. */
static void test_window_goes_on(void **state)
{
    (void)state;
    static const int64_t lengths[] = {50, 3};
    tri_text_request *requests = requests_of(lengths, 2, 250);
    texts plain = texts_with(SET(LLAMA, "model.window=6", "data.seq_len=300"),
                             1 << TRI_PROGRAM_PREDICT, NULL, requests, 2, &greedy);
    tr_settings *settings =
        settings_of(NULL, SET(LLAMA, "model.window=6", "data.seq_len=16", "generate.batch=2"));
    tri_session_config config;
    tr_error err = {0};
    assert_int_equal(tri_settings_complete(settings, &err), TR_OK);
    assert_int_equal(tri_session_config_from(settings, &config, &err), TR_OK);
    tri_generate_shape shape = tri_generate_plan(&config.compile.model, 2, 32, 50, 300);
    assert_int_equal(shape.len, 6 + 32 - 1);
    tr_session *session = start(settings, TRI_PROGRAMS_GENERATE, &shape);
    texts out = texts_of(2);
    tri_generate_stats stats = make_texts(session, requests, 2, &greedy, &out);
    same_texts(&plain, &out, 2, "window");
    assert_int_equal(stats.num_restarts, 0);
    texts_free(&plain);
    texts_free(&out);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    requests_free(requests, 2);
}

/* In 16 bits the cache is in 16 bits too, and texts are still those of the prediction program. */
static void test_bf16(void **state)
{
    (void)state;
    const char *const *model = SET(GPT2, "data.seq_len=128", "precision.kind=bf16");
    static const int64_t lengths[] = {4, 40};
    tri_text_request *requests = requests_of(lengths, 2, 12);
    texts plain = texts_with(model, 1 << TRI_PROGRAM_PREDICT, NULL, requests, 2, &greedy);
    tri_generate_shape shape = {2, ROOM, 32, 1};
    texts cached = texts_with(model, TRI_PROGRAMS_GENERATE, &shape, requests, 2, &greedy);
    same_texts(&plain, &cached, 2, "bf16");
    texts_free(&plain);
    texts_free(&cached);
    requests_free(requests, 2);
}

static void test_plan_of_shapes(void **state)
{
    (void)state;
    tri_model_config gpt2 = {.kind = "gpt2", .positions = 1024};
    tri_model_config mistral = {.kind = "llama", .positions = 4096, .window = 100};
    tri_generate_shape s = tri_generate_plan(&gpt2, 8, 128, 5, 205);
    assert_int_equal(s.rows, 8);
    assert_int_equal(s.block, 32); /* no more than the prompts need, but never fewer */
    assert_int_equal(s.len, 205);
    assert_int_equal(s.prefill_rows, 8);
    s = tri_generate_plan(&gpt2, 8, 128, 700, 3000);
    assert_int_equal(s.block, 128);
    assert_int_equal(s.len, 1024);
    assert_int_equal(s.prefill_rows, 4);
    s = tri_generate_plan(&mistral, 2, 64, 700, 100000);
    assert_int_equal(s.len, 100 + 64 - 1);
    s = tri_generate_plan(&mistral, 2, 64, 7, 60);
    assert_int_equal(s.len, 60);
}

static void test_wrong_tokens_are_refused(void **state)
{
    (void)state;
    tr_settings *settings = settings_of(NULL, SET(GPT2, "data.seq_len=128"));
    tri_generate_shape shape = {1, ROOM, 32, 1};
    tr_session *session = start(settings, TRI_PROGRAMS_GENERATE, &shape);
    texts out = texts_of(1);
    int32_t prompts[][2] = {{3, 61}, {-1, 3}};
    for (int i = 0; i < 2; i++) {
        tri_text_request request = {prompts[i], 2, 4};
        tr_error err = {0};
        assert_int_equal(
            tri_generate(&session->session, &request, 1, &greedy, collect, &out, NULL, &err),
            TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, i ? "token -1" : "token 61"));
    }
    assert_int_equal(out.length[0], 0);
    texts_free(&out);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

#define FAMILY(name)                                                                               \
    {                                                                                              \
        name, check_family, NULL, NULL, name                                                       \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAMILY("hf_gpt2"),
        FAMILY("hf_gpt2_bare"),
        FAMILY("hf_llama"),
        FAMILY("hf_llama_tied"),
        FAMILY("hf_qwen2"),
        FAMILY("hf_qwen3"),
        FAMILY("hf_mistral"),
        cmocka_unit_test(test_cache_against_prediction),
        cmocka_unit_test(test_rows_are_alone),
        cmocka_unit_test(test_rows_are_used_again),
        cmocka_unit_test(test_text_outgrows_positions),
        cmocka_unit_test(test_window_goes_on),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_plan_of_shapes),
        cmocka_unit_test(test_wrong_tokens_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
