/* Evaluation of texts: every token but the first once, by whatever stride; bytes and characters
 * exactly those of the tokens that were predicted. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/evaluate.h"
#include "base/fs.h"
#include "small_models.h"
#include "temp_dir.h"

enum { SEQ_LEN = 13 };

#define MODEL                                                                                      \
    "model.kind=llama", "model.init_std=0.3", "model.num_layers=1", "model.dim=16",                \
        "model.num_heads=2", "data.seq_len=13", "train.batch=3"

static tr_settings *settings_for(int64_t vocab)
{
    char setting[64];
    snprintf(setting, sizeof setting, "model.vocab=%lld", (long long)vocab);
    return settings_of(NULL, SET(MODEL, setting));
}

/* The same by the prediction program: target after target, in the window that predicts it. */
static double loss_of(const tri_ids *ids, int64_t vocab, int64_t stride)
{
    tr_settings *settings = settings_for(vocab);
    tr_session *session;
    tr_error err = {0};
    if (tri_api_compile_programs(settings, 0, 1 << TRI_PROGRAM_PREDICT, NULL, &session, &err) !=
            TR_OK ||
        tri_api_start(session, &err) != TR_OK)
        fail_msg("%s", err.message);
    double total = 0;
    for (int64_t target = 1; target < (int64_t)ids->num; target++) {
        int64_t begin = 0;
        while (begin + SEQ_LEN < target)
            begin += stride;
        const float *logits =
            tri_session_predict(&session->session, ids->id + begin, target - begin);
        double sum = 0;
        for (int64_t v = 0; v < vocab; v++)
            sum += exp((double)logits[v]);
        total += log(sum) - (double)logits[ids->id[target]];
    }
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return total;
}

static void check_text(const tri_vocabulary *v, const char *text, size_t length, int64_t stride)
{
    tr_settings *settings = settings_for(v->num_tokens);
    tri_evaluation e;
    tr_error err = {0};
    if (tri_api_evaluate_text(settings, v, text, length, stride, &e, &err) != TR_OK)
        fail_msg("%s", err.message);
    tri_ids ids = {0};
    assert_int_equal(
        tri_tokenizer_encode(v->tokenizer, NULL, text, length, TRI_ENCODE_PLAIN, &ids, &err),
        TR_OK);
    assert_int_equal(e.num_targets, ids.num - 1);
    double wanted = loss_of(&ids, v->num_tokens, stride ? stride : SEQ_LEN);
    if (fabs(e.loss / wanted - 1) > 1e-5)
        fail_msg("%d tokens, stride %d: loss %g, not %g", (int)ids.num, (int)stride, e.loss,
                 wanted);
    tri_bytes covered = {0};
    assert_int_equal(tri_tokenizer_decode(v->tokenizer, ids.id + 1, ids.num - 1, 0, &covered, &err),
                     TR_OK);
    assert_int_equal(e.num_bytes, covered.num);
    int64_t characters = 0;
    for (size_t i = 0; i < covered.num; i++)
        characters += ((unsigned char)covered.data[i] & 0xC0) != 0x80;
    assert_int_equal(e.num_characters, characters);
    assert_true(e.num_right == -1 || (e.num_right >= 0 && e.num_right <= e.num_targets));
    tri_bytes_fini(&covered);
    tri_ids_fini(&ids);
    tr_settings_destroy(settings);
}

static const char text[] = "The trireme, a ship of three ranks (caf\xc3\xa9 \xe2\x82\xac 3!), "
                           "rows on one beat; the beat is the step. Na\xc3\xafve? No.";

static void test_bytes(void **state)
{
    (void)state;
    tri_vocabulary v;
    tr_error err = {0};
    assert_int_equal(tri_vocabulary_open("tests", NULL, 256, true, &v, &err), TR_OK);
    static const size_t lengths[] = {2, 13, 14, 15, 27, 28, sizeof text - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        check_text(&v, text, lengths[i], 0);
        check_text(&v, text, lengths[i], 1);
        check_text(&v, text, lengths[i], 5);
        check_text(&v, text, lengths[i], 12);
    }
    tri_vocabulary_close(&v);
}

static void test_tokens(void **state)
{
    temp_dir *temp = *state;
    tri_mapping mapping;
    tr_error err = {0};
    assert_int_equal(tri_mapping_open(&mapping, "tests/fixtures/tokenizer_trained.json", &err),
                     TR_OK);
    assert_int_equal(put_file(temp_file(temp, "tokenizer.json"), mapping.data, mapping.num_bytes),
                     0);
    tri_mapping_close(&mapping);
    tri_tokenizer *tokenizer;
    assert_int_equal(tri_tokenizer_open(temp->path, &tokenizer, &err), TR_OK);
    int64_t vocab = tri_tokenizer_vocab(tokenizer);
    tri_tokenizer_close(tokenizer);
    tri_vocabulary v;
    assert_int_equal(tri_vocabulary_open(temp->path, NULL, vocab, false, &v, &err), TR_OK);
    check_text(&v, text, sizeof text - 1, 0);
    check_text(&v, text, sizeof text - 1, 4);
    tri_vocabulary_close(&v);
    remove(temp_file(temp, "tokenizer.json"));
}

static void test_refused(void **state)
{
    (void)state;
    tri_vocabulary v;
    tr_error err = {0};
    tri_evaluation e;
    assert_int_equal(tri_vocabulary_open("tests", NULL, 256, true, &v, &err), TR_OK);
    tr_settings *settings = settings_for(256);
    assert_int_equal(tri_api_evaluate_text(settings, &v, "x", 1, 0, &e, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "nothing to predict"));
    assert_int_equal(tri_api_evaluate_text(settings, &v, text, 50, 14, &e, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "the stride is 14"));
    v.num_tokens = 100;
    assert_int_equal(tri_api_evaluate_text(settings, &v, text, 50, 0, &e, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "not that of the model"));
    tr_settings_destroy(settings);
    tri_vocabulary_close(&v);
}

/* The held-out part of a text: each of its windows once, whatever the batch. */
static void test_held_out(void **state)
{
    temp_dir *temp = *state;
    tri_vocabulary v;
    tr_error err = {0};
    char many[2000], source[300];
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = text[(i * 7 + i / 50) % 40];
    assert_int_equal(put_file(temp_file(temp, "many.txt"), many, sizeof many), 0);
    snprintf(source, sizeof source, "data.source=%s", temp_file(temp, "many.txt"));
    assert_int_equal(tri_vocabulary_open("tests", NULL, 256, true, &v, &err), TR_OK);
    static const char *const batches[] = {"train.batch=1", "train.batch=4", "train.batch=7"};
    tri_evaluation e[3];
    for (int i = 0; i < 3; i++) {
        tr_settings *settings =
            settings_of(NULL, SET(MODEL, source, "data.eval_fraction=0.1", batches[i]));
        if (tri_api_evaluate_held_out(settings, &v, &e[i], &err) != TR_OK)
            fail_msg("%s", err.message);
        tr_settings_destroy(settings);
        assert_int_equal(e[i].num_windows, 15); /* 199 / 13 */
        assert_int_equal(e[i].num_targets, 15 * 13);
        assert_int_equal(e[i].num_bytes, 15 * 13);
        assert_true(fabs(e[i].loss / e[0].loss - 1) < 1e-6);
    }
    tr_settings *none = settings_of(NULL, SET(MODEL, source, "data.eval_fraction=0"));
    assert_int_equal(tri_api_evaluate_held_out(none, &v, &e[0], &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "data.eval_fraction is 0"));
    tr_settings_destroy(none);
    tri_vocabulary_close(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_held_out),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
