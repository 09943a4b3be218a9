/* Model directories of Hugging Face against what transformers computes with them (see
 * tests/reference/HF.md; bert is in test_bert.c), and their way out and back in. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "ckpt/hf/hf.h"
#include "ckpt/safetensors.h"
#include "hf_dirs.h"

/* What transformers computed. gpt2_bare has the results of gpt2. */
typedef struct expected {
    tri_safetensors *file;
    json_t *root;
    int64_t batch, eval_len, seq_len, steps, vocab;
} expected;

static int64_t integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void expected_open(expected *e, const char *dir)
{
    char path[256];
    tr_error err = {0};
    bool bare = strstr(dir, "hf_gpt2_bare") != NULL;
    snprintf(path, sizeof path, "%s/expected.safetensors", bare ? "tests/fixtures/hf_gpt2" : dir);
    if (tri_safetensors_open(path, &e->file, &err) != TR_OK)
        fail_msg("%s", err.message);
    e->root = json_loads(tri_safetensors_metadata(e->file, "config"), 0, NULL);
    assert_non_null(e->root);
    e->batch = integer(e->root, "batch");
    e->eval_len = integer(e->root, "eval_len");
    e->seq_len = integer(e->root, "seq_len");
    e->steps = integer(e->root, "steps");
    e->vocab = integer(e->root, "vocab");
}

static void expected_close(expected *e)
{
    json_decref(e->root);
    tri_safetensors_close(e->file);
}

static const void *tensor(const expected *e, const char *name)
{
    const tri_safetensor *found = tri_safetensors_find(e->file, name);
    if (!found)
        fail_msg("the fixture has no %s", name);
    return found->data;
}

static void check_logits(const char *dir)
{
    expected e;
    expected_open(&e, dir);
    tr_settings *settings = hf_settings(dir);
    tr_session *session = hf_start_predictor(settings, e.eval_len);
    const int32_t *tokens = tensor(&e, "tokens");
    const float *logits = tensor(&e, "logits");
    double worst = 0;
    for (int64_t b = 0; b < e.batch; b++)
        for (int64_t t = 0; t < e.eval_len; t++) {
            const float *ours =
                tri_session_predict(&session->session, tokens + b * e.eval_len, t + 1);
            const float *ref = logits + (b * e.eval_len + t) * e.vocab;
            for (int64_t v = 0; v < e.vocab; v++)
                worst = fmax(worst, fabs((double)ours[v] - (double)ref[v]));
        }
    print_message("%s: logits differ by %.2g at most\n", dir, worst);
    if (!(worst <= 1e-4))
        fail_msg("%s: logits differ by %g", dir, worst);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    expected_close(&e);
}

static int32_t likeliest(const float *logits, int64_t num)
{
    int32_t best = 0;
    for (int64_t v = 1; v < num; v++)
        if (logits[v] > logits[best])
            best = (int32_t)v;
    return best;
}

static void check_greedy(const char *dir)
{
    expected e;
    expected_open(&e, dir);
    const int32_t *lens = tensor(&e, "prompt_lens"), *wanted = tensor(&e, "generated");
    const tri_safetensor *prompts = tri_safetensors_find(e.file, "prompts");
    int64_t num_new = integer(e.root, "new_tokens"), longest = prompts->dim[1];
    tr_settings *settings = hf_settings(dir);
    tr_session *session = hf_start_predictor(settings, longest + num_new);
    for (int64_t p = 0; p < prompts->dim[0]; p++) {
        int32_t row[64];
        assert_true(longest + num_new <= 64);
        memcpy(row, (const int32_t *)prompts->data + p * longest, (size_t)lens[p] * sizeof *row);
        for (int64_t i = 0; i < num_new; i++) {
            int64_t length = lens[p] + i;
            const float *logits = tri_session_predict(&session->session, row, length);
            row[length] = likeliest(logits, e.vocab);
            if (row[length] != wanted[p * num_new + i])
                fail_msg("%s: prompt %d: token %d is %d, transformers has %d", dir, (int)p, (int)i,
                         row[length], wanted[p * num_new + i]);
        }
    }
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    expected_close(&e);
}

typedef struct batches {
    const int32_t *tokens, *targets;
    size_t length;
} batches;

static void batch_row(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    (void)split;
    const batches *b = context;
    memcpy(row->tokens, b->tokens + sample * b->length, b->length * sizeof *row->tokens);
    memcpy(row->targets, b->targets + sample * b->length, b->length * sizeof *row->targets);
}

static void set_training(tr_settings *settings, const expected *e)
{
    const json_t *optim = json_object_get(e->root, "optim");
    static const char *const keys[] = {"lr", "beta1", "beta2", "eps", "weight_decay"};
    hf_set(settings, "optim.kind=%s", json_string_value(json_object_get(optim, "kind")));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        hf_set(settings, "optim.%s=%.17g", keys[i],
               json_number_value(json_object_get(optim, keys[i])));
    hf_set(settings, "train.clip=%.17g", json_number_value(json_object_get(e->root, "clip")));
    hf_set(settings, "train.batch=%lld", (long long)e->batch);
    hf_set(settings, "data.seq_len=%lld", (long long)e->seq_len);
}

/* The loss of balance that the last step measured, against the fixture's of models with experts. */
static double balance_differs(const expected *e, const tr_session *session, int64_t step)
{
    const tri_safetensor *aux = tri_safetensors_find(e->file, "aux_losses");
    for (size_t i = 0; aux && i < tr_session_num_stats(session); i++)
        if (strcmp(tr_session_stat(session, i).name, "balance_loss") == 0)
            return fabs(
                tr_session_stat(session, i).value / (double)((const float *)aux->data)[step] - 1);
    return aux ? INFINITY : 0;
}

static void check_training(const char *dir)
{
    expected e;
    expected_open(&e, dir);
    batches b = {tensor(&e, "train_tokens"), tensor(&e, "train_targets"), (size_t)e.seq_len};
    tr_settings *settings = hf_settings(dir);
    set_training(settings, &e);
    tr_session *session = hf_start(settings, batch_row, &b);
    const float *losses = tensor(&e, "losses"), *norms = tensor(&e, "grad_norms");
    double worst = 0, worst_norm = 0;
    for (int64_t step = 0; step < e.steps; step++) {
        tr_step result;
        tr_error err = {0};
        if (tr_session_step(session, &result, &err) != TR_OK)
            fail_msg("%s", err.message);
        worst = fmax(worst, fabs(result.loss / (double)losses[step] - 1));
        worst = fmax(worst, balance_differs(&e, session, step));
        worst_norm = fmax(worst_norm, fabs(result.grad_norm / (double)norms[step] - 1));
    }
    print_message("%s: losses differ by %.2g, norms by %.2g at most, relatively\n", dir, worst,
                  worst_norm);
    if (!(worst <= 1e-4) || !(worst_norm <= 1e-3))
        fail_msg("%s: losses differ by %g, norms by %g", dir, worst, worst_norm);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    expected_close(&e);
}

/* ---- out and in again ---- */

/* Two settings objects agree on everything under model. but model.from. */
static void assert_same_model(const tr_settings *a, const tr_settings *b)
{
    static const char *const numbers[] = {
        "model.num_layers", "model.dim",           "model.num_heads", "model.num_kv_heads",
        "model.head_dim",   "model.ffn_dim",       "model.vocab",     "model.positions",
        "model.window",     "model.rope_original", "model.types"};
    static const char *const reals[] = {"model.norm_eps",    "model.init_std", "model.rope_theta",
                                        "model.rope_factor", "model.rope_low", "model.rope_high"};
    static const char *const switches[] = {"model.tied_head", "model.qkv_bias", "model.qk_norm"};
    assert_string_equal(tr_settings_string(a, "model.kind"), tr_settings_string(b, "model.kind"));
    assert_string_equal(tr_settings_string(a, "model.task"), tr_settings_string(b, "model.task"));
    if (strcmp(tr_settings_string(a, "model.task"), "classify") == 0)
        assert_int_equal(tr_settings_int(a, "model.num_labels"),
                         tr_settings_int(b, "model.num_labels"));
    if (strcmp(tr_settings_string(a, "model.kind"), "bert") == 0)
        assert_string_equal(tr_settings_string(a, "model.act"), tr_settings_string(b, "model.act"));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_int_equal(tr_settings_int(a, numbers[i]), tr_settings_int(b, numbers[i]));
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (tr_settings_float(a, reals[i]) != tr_settings_float(b, reals[i]))
            fail_msg("%s: %.17g and %.17g", reals[i], tr_settings_float(a, reals[i]),
                     tr_settings_float(b, reals[i]));
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        assert_int_equal(tr_settings_bool(a, switches[i]), tr_settings_bool(b, switches[i]));
}

static void round_trip(temp_dir *temp, const char *fixture, int64_t shard_bytes, const char *change)
{
    char from[200];
    tr_error err = {0};
    snprintf(from, sizeof from, "tests/fixtures/%s", fixture);
    const char *to = temp_file(temp, "out");
    tr_settings *first = hf_settings(from);
    if (change)
        hf_set(first, "%s", change);
    tr_session *a = hf_start_predictor(first, 8);
    tri_hf_export_options options = {.dir = to, .shard_bytes = shard_bytes, .run_dir = from};
    tri_session *s = &a->session;
    if (tri_hf_export(&options, &s->config.compile.model, &s->params,
                      (const float *const *)s->weights, &err) != TR_OK)
        fail_msg("%s", err.message);
    tr_settings *second = hf_settings(to);
    tr_session *b = hf_start_predictor(second, 8);
    assert_same_model(first, second);
    assert_int_equal(tr_session_num_params(a), tr_session_num_params(b));
    for (size_t i = 0; i < tr_session_num_params(a); i++) {
        tr_param x = tr_session_param(a, i), y = tr_session_param(b, i);
        assert_string_equal(x.name, y.name);
        assert_int_equal(x.count, y.count);
        assert_memory_equal(x.data, y.data, (size_t)x.count * sizeof *x.data);
    }
    /* Not over something that is there already. */
    assert_int_equal(tri_hf_export(&options, &s->config.compile.model, &s->params,
                                   (const float *const *)s->weights, &err),
                     TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "not empty"));
    tr_session_destroy(a);
    tr_session_destroy(b);
    tr_settings_destroy(first);
    tr_settings_destroy(second);
    nftw(to, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    assert_false(tri_path_exists(to));
}

static void test_round_trip(void **state)
{
    temp_dir *temp = *state;
    static const char *const all[] = {
        "hf_gpt2",      "hf_gpt2_bare", "hf_llama", "hf_llama_tied", "hf_qwen2",
        "hf_qwen3",     "hf_mistral",   "hf_bert",  "hf_bert_cls",   "hf_mixtral",
        "hf_qwen2_moe", "hf_qwen3_moe", "hf_olmoe"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        round_trip(temp, all[i], TRI_HF_SHARD_BYTES, NULL);
        round_trip(temp, all[i], 20000, NULL);
    }
    round_trip(temp, "hf_qwen2", 1, "model.window=5"); /* a file for each tensor */
    round_trip(temp, "hf_qwen3", 20000, "model.window=5");
    round_trip(temp, "hf_mistral", 20000, "model.rope_factor=4");
    round_trip(temp, "hf_bert", 20000, "model.act=gelu");
    round_trip(temp, "hf_bert", 20000, "model.task=classify"); /* with a head begun anew */
    round_trip(temp, "hf_bert_cls", 20000, "model.task=mlm");
}

/* What cannot be said in the words of Hugging Face is refused, and nothing is left behind. */
static void test_export_refused(void **state)
{
    temp_dir *temp = *state;
    tr_settings *settings = hf_settings("tests/fixtures/hf_gpt2");
    tr_session *a = hf_start_predictor(settings, 8);
    tri_session *s = &a->session;
    tr_error err = {0};
    tri_model_config both = {.kind = "llama", .qk_norm = true, .qkv_bias = true};
    tri_model_config mlp = {.kind = "mlp"};
    char inside[300];
    snprintf(inside, sizeof inside, "%s/file/inside", temp->path);
    hf_put(temp->path, "file", "x", 1);
    int before = num_entries(temp->path);
    tri_hf_export_options options = {.dir = temp_file(temp, "refused"), .shard_bytes = 1};
    const float *const *data = (const float *const *)s->weights;
    assert_int_equal(tri_hf_export(&options, &both, &s->params, data, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_hf_export(&options, &mlp, &s->params, data, &err), TR_ERROR_INPUT);
    options.dir = inside;
    assert_int_not_equal(tri_hf_export(&options, &s->config.compile.model, &s->params, data, &err),
                         TR_OK);
    assert_int_equal(num_entries(temp->path), before);
    tr_session_destroy(a);
    tr_settings_destroy(settings);
}

/* ---- families ---- */

static void check_family(void **state)
{
    char dir[200];
    snprintf(dir, sizeof dir, "tests/fixtures/%s", (const char *)*state);
    check_logits(dir);
    check_greedy(dir);
    check_training(dir);
}

/* A directory that compare_hf_moe.py has made. */
static void check_given(void **state)
{
    check_logits(*state);
}

#define FAMILY(name)                                                                               \
    {                                                                                              \
        name, check_family, NULL, NULL, name                                                       \
    }
int main(int argc, char **argv)
{
    const struct CMUnitTest given[] = {{argv[argc - 1], check_given, NULL, NULL, argv[argc - 1]}};
    if (argc > 1)
        return cmocka_run_group_tests(given, NULL, NULL);
    const struct CMUnitTest families[] = {
        FAMILY("hf_gpt2"),       FAMILY("hf_gpt2_bare"), FAMILY("hf_llama"),
        FAMILY("hf_llama_tied"), FAMILY("hf_qwen2"),     FAMILY("hf_qwen3"),
        FAMILY("hf_mistral"),    FAMILY("hf_mixtral"),   FAMILY("hf_qwen2_moe"),
        FAMILY("hf_qwen3_moe"),  FAMILY("hf_olmoe"),
    };
    const struct CMUnitTest files[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_export_refused),
    };
    int failed = cmocka_run_group_tests(families, NULL, NULL);
    return failed + cmocka_run_group_tests(files, temp_dir_setup, temp_dir_teardown);
}
