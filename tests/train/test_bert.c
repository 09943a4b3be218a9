/* bert: against what transformers computes (tests/reference/HF.md), and what must not matter:
 * padding, micro-batches, which head a file came with. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/hf/hf.h"
#include "ckpt/safetensors.h"
#include "hf_dirs.h"
#include "small_models.h"

#define MLM "tests/fixtures/hf_bert"
#define CLS "tests/fixtures/hf_bert_cls"

/* ---- what transformers computed ---- */

typedef struct expected {
    tri_safetensors *file;
    json_t *root;
    int64_t batch, eval_len, seq_len, steps, vocab;
    bool classifies;
} expected;

static int64_t integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void expected_open(expected *e, const char *dir)
{
    char path[256];
    tr_error err = {0};
    snprintf(path, sizeof path, "%s/expected.safetensors", dir);
    if (tri_safetensors_open(path, &e->file, &err) != TR_OK)
        fail_msg("%s", err.message);
    e->root = json_loads(tri_safetensors_metadata(e->file, "config"), 0, NULL);
    assert_non_null(e->root);
    e->batch = integer(e->root, "batch");
    e->eval_len = integer(e->root, "eval_len");
    e->seq_len = integer(e->root, "seq_len");
    e->steps = integer(e->root, "steps");
    e->vocab = integer(e->root, "vocab");
    e->classifies = strcmp(json_string_value(json_object_get(e->root, "task")), "cls") == 0;
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

/* Real tokens at the beginning of a row; padding is on the right. */
static int64_t real_length(const int32_t *mask, int64_t length)
{
    int64_t num = 0;
    while (num < length && mask[num])
        num++;
    return num;
}

static double worst_of(const float *ours, const float *ref, int64_t num, double worst)
{
    for (int64_t v = 0; v < num; v++)
        worst = fmax(worst, fabs((double)ours[v] - (double)ref[v]));
    return worst;
}

static void check_logits(const char *dir, bool with_types)
{
    expected e;
    expected_open(&e, dir);
    tr_settings *settings = hf_settings(dir);
    tr_session *session = hf_start_predictor(settings, e.eval_len);
    const int32_t *tokens = tensor(&e, "tokens"), *mask = tensor(&e, "attention_mask");
    const int32_t *types = with_types ? tensor(&e, "token_type_ids") : NULL;
    const float *logits = tensor(&e, with_types ? "logits_types" : "logits");
    double worst = 0;
    for (int64_t b = 0; b < e.batch; b++) {
        int64_t at = b * e.eval_len, length = real_length(mask + at, e.eval_len);
        assert_true(length > 2);
        for (int64_t t = 0; t < (e.classifies ? 1 : length); t++) {
            tri_prompt prompt = {tokens + at, types ? types + at : NULL, length, t};
            const float *ours = tri_session_predict_at(&session->session, &prompt);
            worst = e.classifies ? worst_of(ours, logits + b * 3, 3, worst)
                                 : worst_of(ours, logits + (at + t) * e.vocab, e.vocab, worst);
        }
    }
    print_message("%s: logits differ by %.2g at most\n", dir, worst);
    if (!(worst <= 1e-4))
        fail_msg("%s: logits differ by %g", dir, worst);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    expected_close(&e);
}

/* Rows of the training of a fixture, or of its tokens, with more padding behind them if there is
 * room. */
typedef struct batches {
    const int32_t *tokens, *mask, *targets, *labels;
    int64_t length, room;
} batches;

static void batch_row(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    (void)split;
    const batches *b = context;
    size_t at = sample * (size_t)b->length;
    for (int64_t t = 0; t < b->room; t++) {
        bool real = t < b->length && b->mask[at + (size_t)t];
        row->tokens[t] = t < b->length ? b->tokens[at + (size_t)t] : 0;
        row->docs[t] = real ? 0 : -1;
        if (!b->labels)
            row->targets[t] = t < b->length ? b->targets[at + (size_t)t] : -1;
    }
    if (b->labels)
        row->targets[0] = b->labels[sample];
    assert_int_equal(row->num_targets, b->labels ? 1 : b->room);
}

static batches training_of(const expected *e, int64_t room)
{
    return (batches){.tokens = tensor(e, "train_tokens"),
                     .mask = tensor(e, "train_attention_mask"),
                     .targets = e->classifies ? NULL : tensor(e, "train_targets"),
                     .labels = e->classifies ? tensor(e, "train_labels") : NULL,
                     .length = e->seq_len,
                     .room = room};
}

static void set_training(tr_settings *settings, const expected *e, int64_t seq_len)
{
    const json_t *optim = json_object_get(e->root, "optim");
    static const char *const keys[] = {"lr", "beta1", "beta2", "eps", "weight_decay"};
    hf_set(settings, "optim.kind=%s", json_string_value(json_object_get(optim, "kind")));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        hf_set(settings, "optim.%s=%.17g", keys[i],
               json_number_value(json_object_get(optim, keys[i])));
    hf_set(settings, "train.clip=%.17g", json_number_value(json_object_get(e->root, "clip")));
    hf_set(settings, "train.batch=%lld", (long long)e->batch);
    hf_set(settings, "data.seq_len=%lld", (long long)seq_len);
}

static double norm_of(const float *x, const float *minus, int64_t num)
{
    double sum = 0;
    for (int64_t i = 0; i < num; i++) {
        double d = (double)x[i] - (minus ? (double)minus[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* |g - ref| <= 1e-4 |ref| + 1e-7 |all|: the gradients of key biases are zero in theory. */
static void check_grads(const expected *e, const tri_session *session, double all)
{
    for (size_t i = 0; i < session->params.count; i++) {
        const tri_param *param = &session->params.items[i];
        bool head = strncmp(param->name, "cls.", 4) == 0 || strstr(param->name, "classifier");
        char name[200];
        snprintf(name, sizeof name, "grad/%s%s", head ? "" : "bert.", param->name);
        const float *ref = tensor(e, name);
        int64_t num = tri_shape_count(&param->shape);
        float *grad = malloc((size_t)num * sizeof *grad);
        tr_error err = {0};
        assert_int_equal(tri_session_grad(session, (tri_id)i, grad, &err), TR_OK);
        double off = norm_of(grad, ref, num), size = norm_of(ref, NULL, num);
        free(grad);
        if (!(off <= 1e-4 * size + 1e-7 * all))
            fail_msg("the gradient of %s is off by %g of %g", param->name, off, size);
    }
}

static void check_training(const char *dir, int64_t more_padding, const char *change)
{
    expected e;
    expected_open(&e, dir);
    batches b = training_of(&e, e.seq_len + more_padding);
    tr_settings *settings = hf_settings(dir);
    set_training(settings, &e, b.room);
    hf_set(settings, "%s", change);
    tr_session *session = hf_start(settings, batch_row, &b);
    const float *losses = tensor(&e, "losses"), *norms = tensor(&e, "grad_norms");
    double worst = 0, worst_norm = 0;
    for (int64_t step = 0; step < e.steps; step++) {
        tr_step result;
        tr_error err = {0};
        if (tr_session_step(session, &result, &err) != TR_OK)
            fail_msg("%s", err.message);
        worst = fmax(worst, fabs(result.loss / (double)losses[step] - 1));
        worst_norm = fmax(worst_norm, fabs(result.grad_norm / (double)norms[step] - 1));
        if (step == 0)
            check_grads(&e, &session->session, (double)norms[0]);
    }
    print_message("%s: losses differ by %.2g, norms by %.2g at most, relatively\n", dir, worst,
                  worst_norm);
    if (!(worst <= 1e-4) || !(worst_norm <= 1e-3))
        fail_msg("%s: losses differ by %g, norms by %g", dir, worst, worst_norm);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    expected_close(&e);
}

static void test_logits(void **state)
{
    (void)state;
    check_logits(MLM, false);
    check_logits(MLM, true);
    check_logits(CLS, false);
    check_logits(CLS, true);
}

static void test_training(void **state)
{
    (void)state;
    check_training(MLM, 0, "run.threads=2");
    check_training(CLS, 0, "run.threads=2");
    check_training(MLM, 0, "run.kernels=reference");
    check_training(CLS, 0, "run.kernels=reference");
}

/* The fixtures' positions reach to 20: five more places of padding behind every row. */
static void test_padding_changes_nothing(void **state)
{
    (void)state;
    check_training(MLM, 5, "run.threads=2");
    check_training(CLS, 5, "run.threads=2");
}

/* 4 and 5 rows in parts of one, two (the last of five rows stands alone) and three. */
static void test_microbatches_change_nothing(void **state)
{
    (void)state;
    check_training(MLM, 0, "layout.microbatches=4");
    check_training(CLS, 1, "layout.microbatches=3");
    check_training(CLS, 0, "layout.split_backward=true");
}

/* ---- directories ---- */

static void test_refused_configs(void **state)
{
    temp_dir *temp = *state;
    hf_refuses_config(temp, "hf_bert", "architectures", "[\"BertForTokenClassification\"]",
                      "BertForMaskedLM");
    hf_refuses_config(temp, "hf_bert", "hidden_act", "\"silu\"", "gelu_new");
    hf_refuses_config(temp, "hf_bert", "is_decoder", "true", "is_decoder");
    hf_refuses_config(temp, "hf_bert", "position_embedding_type", "\"relative_key\"", "absolute");
    hf_refuses_config(temp, "hf_bert", "tie_word_embeddings", "false", "tie_word_embeddings");
    hf_refuses_config(temp, "hf_bert", "type_vocab_size", "0", "type_vocab_size");
    hf_refuses_config(temp, "hf_bert_cls", "id2label", "{\"0\": \"score\"}", "1 labels");
    hf_refuses_config(temp, "hf_bert_cls", "id2label", "[]", "id2label");
    hf_refuses_config(temp, "hf_bert_cls", "problem_type", "\"regression\"", "regression");
    hf_refuses(CLS, "model.num_labels=5", "model.num_labels is 5", "3");
    hf_refuses(MLM, "model.types=3", "model.types is 3", "2");
    hf_refuses(MLM, "model.task=lm", "model.task is lm", "mlm or classify");
    hf_refuses(MLM, "model.act=none", "model.act is none", "gelu_erf");
    hf_refuses("tests/fixtures/hf_gpt2", "model.task=classify", "model.task is classify", "bert");
}

static void loads(const char *dir, const char *assignment)
{
    tr_error err;
    if (hf_try_load(dir, assignment, &err) != TR_OK)
        fail_msg("%s", err.message);
}

static void set_architecture(const char *dir, const char *name)
{
    json_t *root = hf_read_json(dir, "config.json");
    json_object_set_new(root, "architectures", json_pack("[s]", name));
    hf_put_json(dir, "config.json", root);
    json_decref(root);
}

/* It may get another head than its file was made with, but no half of one. */
static void test_heads_of_other_tasks(void **state)
{
    temp_dir *temp = *state;
    hf_edit e;
    const char *file = "model.safetensors", *bias = "cls.predictions.bias";
    loads(MLM, "model.task=classify");
    loads(CLS, "model.task=mlm");

    /* A part is missing from the class that must have it, and from a plain body. */
    const char *dir = hf_copy_of(temp, "hf_bert");
    hf_edit_open(&e, dir, file);
    *hf_edit_find(&e, bias) = e.item[--e.num];
    hf_edit_write(&e);
    hf_refuses(dir, NULL, bias, file);
    set_architecture(dir, "BertModel");
    hf_refuses(dir, NULL, bias, file);

    /* All of it is missing; names without "bert.". */
    hf_edit_open(&e, dir, file);
    for (size_t i = 0; i < e.num;) {
        if (strncmp(e.item[i].name, "cls.", 4) == 0)
            e.item[i] = e.item[--e.num];
        else
            e.item[i++].name += strlen("bert.");
    }
    hf_edit_write(&e);
    loads(dir, NULL);
    set_architecture(dir, "BertForMaskedLM");
    hf_refuses(dir, NULL, "cls.predictions", file);

    /* Other names for the same: of the decoder's bias, and TensorFlow's for parts of a norm. */
    dir = hf_copy_of(temp, "hf_bert");
    hf_edit_open(&e, dir, file);
    hf_edit_find(&e, bias)->name = "cls.predictions.decoder.bias";
    hf_edit_find(&e, "bert.embeddings.LayerNorm.weight")->name = "bert.embeddings.LayerNorm.gamma";
    hf_edit_find(&e, "bert.embeddings.LayerNorm.bias")->name = "bert.embeddings.LayerNorm.beta";
    hf_edit_write(&e);
    loads(dir, NULL);
}

/* The body comes from the file and the head from the seed; which is which can be told. */
static void test_a_head_begins_anew(void **state)
{
    (void)state;
    tr_settings *settings = hf_settings(MLM), *plain = settings_of(NULL, SET("model.kind=bert"));
    hf_set(settings, "model.task=classify");
    tr_session *session = hf_start_predictor(settings, 8), *fixture;
    static const char *const same[] = {"task=classify", "num_layers=2", "dim=24",
                                       "num_heads=3",   "ffn_dim=50",   "vocab=90",
                                       "positions=20"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        hf_set(plain, "model.%s", same[i]);
    fixture = hf_start_predictor(plain, 8);
    int num_fresh = 0;
    for (size_t i = 0; i < tr_session_num_params(session); i++) {
        tr_param a = tr_session_param(session, i), b = tr_session_param(fixture, i);
        bool head = strstr(a.name, "pooler") || strstr(a.name, "classifier");
        bool equal = memcmp(a.data, b.data, (size_t)a.count * sizeof *a.data) == 0;
        assert_string_equal(a.name, b.name);
        assert_int_equal(session->session.fresh[i], head);
        assert_false(fixture->session.fresh[i]);
        assert_int_equal(equal, head); /* both from the seed, or not */
        num_fresh += head;
    }
    assert_int_equal(num_fresh, 4);
    tr_session_destroy(session);
    tr_session_destroy(fixture);
    tr_settings_destroy(settings);
    tr_settings_destroy(plain);
}

/* ---- accuracy ---- */

/* Right answers by hand: the likeliest label of every row against the fixture's. */
static void test_accuracy(void **state)
{
    (void)state;
    expected e;
    expected_open(&e, CLS);
    batches b = {.tokens = tensor(&e, "tokens"),
                 .mask = tensor(&e, "attention_mask"),
                 .labels = tensor(&e, "labels"),
                 .length = e.eval_len,
                 .room = e.eval_len};
    const float *logits = tensor(&e, "logits");
    double right = 0;
    for (int64_t r = 0; r < e.batch; r++) {
        const float *row = logits + 3 * r, mine = row[b.labels[r]];
        right += mine >= row[0] && mine >= row[1] && mine >= row[2];
    }
    for (int parts = 1; parts <= 3; parts += 2) {
        tr_settings *settings = hf_settings(CLS);
        set_training(settings, &e, e.eval_len);
        hf_set(settings, "train.eval_batches=1");
        hf_set(settings, "layout.microbatches=%d", parts); /* five rows in threes: one is padding */
        tr_session *session = hf_start(settings, batch_row, &b);
        tri_eval_result result;
        tr_error err = {0};
        assert_int_equal(tri_session_eval(&session->session, &result, &err), TR_OK);
        assert_float_equal((float)result.count, (float)e.batch, 0);
        assert_float_equal((float)result.accuracy, (float)(right / (double)e.batch), 1e-6f);
        assert_float_equal((float)result.loss, *(const float *)tensor(&e, "loss"), 1e-5f);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
    assert_true(right > 0 && right < (double)e.batch);
    expected_close(&e);
}

/* ---- sizes ---- */

/* What transformers counts for BertForMaskedLM and BertForSequenceClassification. A BertModel with
 * its pooler, the published figure, is the latter without its classifier: 109,482,240. */
static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *task;
        int64_t num;
    } rows[] = {{"model.preset=bert-base", "model.task=mlm", 109514298},
                {"model.preset=bert-base", "model.task=classify", 109482240 + 2 * 769},
                {"model.preset=bert-large", "model.task=mlm", 335174458},
                {"model.preset=bert-large", "model.task=classify", 335141888 + 2 * 1025}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tr_settings *settings = settings_of(NULL, SET(rows[i].preset, rows[i].task));
        tr_session *session = compiled(settings);
        assert_int_equal(tri_param_total(&session->session.params), rows[i].num);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
}

/* What the released models have, without being told. */
static void test_defaults(void **state)
{
    (void)state;
    tr_error err = {0};
    tr_settings *settings = settings_of(NULL, SET("model.kind=bert"));
    assert_int_equal(tri_settings_complete(settings, &err), TR_OK);
    assert_string_equal(tr_settings_string(settings, "model.task"), "mlm");
    assert_string_equal(tr_settings_string(settings, "model.act"), "gelu_erf");
    assert_true(tr_settings_float(settings, "model.norm_eps") == 1e-12);
    tr_settings_destroy(settings);
    settings = settings_of(NULL, SET("model.kind=gpt2"));
    assert_int_equal(tri_settings_complete(settings, &err), TR_OK);
    assert_string_equal(tr_settings_string(settings, "model.task"), "lm");
    assert_true(tr_settings_float(settings, "model.norm_eps") == 1e-5);
    tr_settings_destroy(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_padding_changes_nothing),
        cmocka_unit_test(test_microbatches_change_nothing),
        cmocka_unit_test(test_refused_configs),
        cmocka_unit_test(test_heads_of_other_tasks),
        cmocka_unit_test(test_a_head_begins_anew),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_defaults),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
