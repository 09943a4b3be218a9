/* A run as an object: what its observers are told, in which order, and what is on the disk by then.
 */
#include "small_models.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/fs.h"
#include "comm/control/control.h"
#include "temp_dir.h"

typedef struct heard {
    char moments[400]; /* "B", then "u3 e3 s3 c3" for step 3, "w", "E" */
    char why[200];
    int64_t last_line;    /* of metrics.jsonl, when a checkpoint had been taken */
    bool saved_too_early; /* a checkpoint was there before its line was told */
    double losses[64];
} heard;

static int64_t last_line(const char *dir)
{
    char path[300], line[2000];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *file = fopen(path, "r");
    long long step = 0;
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "{\"step\":%lld", &step);
    if (file)
        fclose(file);
    return step;
}

static void add(heard *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(heard *h, const char *format, ...)
{
    size_t used = strlen(h->moments);
    va_list args;
    va_start(args, format);
    vsnprintf(h->moments + used, sizeof h->moments - used, format, args);
    va_end(args);
}

static void tell(void *context, const tri_run_news *news)
{
    heard *h = context;
    long long step = news->step ? news->step->step : news->row ? news->row->step : 0;
    static const char letters[] = {[TRI_RUN_UPDATED] = 'u',
                                   [TRI_RUN_SKIPPED] = 'k',
                                   [TRI_RUN_EVALUATED] = 'e',
                                   [TRI_RUN_STEP] = 's',
                                   [TRI_RUN_SAVED] = 'c'};
    char path[300];
    if (news->moment == TRI_RUN_BEGINS)
        add(h, "B");
    else if (news->moment == TRI_RUN_ENDS)
        add(h, " E");
    else if (news->moment == TRI_RUN_WARNING)
        add(h, " w");
    else
        add(h, " %c%lld", letters[news->moment], step);
    if (news->moment == TRI_RUN_ENDS && news->text)
        snprintf(h->why, sizeof h->why, "%s", news->text);
    if (news->moment == TRI_RUN_STEP) {
        snprintf(path, sizeof path, "%s/ckpt/step-%lld", news->run->config.dir, step);
        h->saved_too_early |= tri_path_exists(path);
        h->losses[step] = news->row->loss;
    }
    if (news->moment == TRI_RUN_SAVED)
        h->last_line = last_line(news->run->config.dir);
}

static unsigned wish_after_4(void *context)
{
    const tri_session *session = context;
    return session->step >= 4 ? 2 : 0;
}

static const char *why(unsigned wishes)
{
    return wishes == 2 ? "enough is enough" : "?";
}

static tr_status train(const char *dir, const char *more, bool wishes, heard *h, tr_error *err)
{
    static const char *const small[] = {
        "model.num_layers=1",
        "model.dim=32",
        "data.seq_len=16",
        "train.batch=4",
        "train.steps=6",
        "train.eval_every=3",
        "train.eval_batches=1",
        "ckpt.every=2",
        "ckpt.async=false",
        "run.threads=1",
        NULL,
    };
    char text[300];
    tr_session *session;
    tr_settings *settings = settings_of(TINY, small);
    snprintf(text, sizeof text, "run.dir=%s", dir);
    assert_int_equal(tr_settings_set(settings, text, err), TR_OK);
    assert_int_equal(tr_settings_set(settings, more, err), TR_OK);
    assert_int_equal(tri_api_compile(settings, 0, &session, err), TR_OK);
    tri_run_config config;
    tri_run_config_from(settings, &config);
    if (wishes)
        config.wishes = (tri_run_wishes){wish_after_4, why, &session->session};
    *h = (heard){0};
    tri_run run;
    tri_stop stop = {0};
    tri_rank_status status;
    tri_rank_status_init(&status);
    tri_bootstrap alone = {.size = 1, .local_size = 1, .stop = &stop, .status = &status};
    tri_run_open(&run, &config, &session->session);
    assert_int_equal(tri_run_observe(&run, &(tri_observer){"test", tell, NULL, h}, err), TR_OK);
    assert_int_equal(tri_run_join(&run, &alone, err), TR_OK);
    assert_int_equal(tri_run_begin(&run, err), TR_OK);
    assert_int_equal(tri_run_advance(&run, 1, err), TR_OK);
    tr_status done = tri_run_advance(&run, INT64_MAX, err);
    if (done == TR_OK)
        done = tri_run_end(&run, err);
    tri_run_close(&run);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return done;
}

static void test_order(void **state)
{
    tr_error err = {0};
    heard h;
    assert_int_equal(train(temp_file(*state, "order"), "run.resume=auto", false, &h, &err), TR_OK);
    assert_string_equal(h.moments, "B u1 s1 u2 s2 c2 u3 e3 s3 u4 s4 c4 u5 s5 u6 e6 s6 c6 E");
    assert_int_equal(h.last_line, 6);
    assert_false(h.saved_too_early);
    assert_string_equal(h.why, "");
}

/* A wish ends it after the step, saved; what goes on from there has the losses of an undisturbed
 * run, and its settings are as they were given. */
static void test_wish_and_resume(void **state)
{
    tr_error err = {0};
    heard whole, first, rest;
    const char *dir = temp_file(*state, "wish");
    assert_int_equal(train(temp_file(*state, "whole"), "run.resume=auto", false, &whole, &err),
                     TR_OK);
    assert_int_equal(train(dir, "run.resume=false", true, &first, &err), TR_OK);
    assert_string_equal(first.moments, "B u1 s1 u2 s2 c2 u3 e3 s3 u4 s4 c4 E");
    assert_string_equal(first.why, "enough is enough");
    assert_int_equal(train(dir, "run.resume=true", false, &rest, &err), TR_OK);
    assert_string_equal(rest.moments, "B u5 s5 u6 e6 s6 c6 E");
    for (int i = 1; i <= 6; i++)
        assert_true((i <= 4 ? first : rest).losses[i] == whole.losses[i]);
    assert_int_equal(last_line(dir), 6);
}

/* What fails is told as the end, once, in the words of the error. */
static void test_failure(void **state)
{
    tr_error err = {0};
    heard h;
    char path[300];
    const char *dir = temp_file(*state, "failed");
    snprintf(path, sizeof path, "%s/weights.safetensors/in the way", dir);
    assert_int_equal(tri_make_dirs(path, &err), TR_OK);
    assert_int_equal(train(dir, "train.steps=1", false, &h, &err), TR_ERROR_RUNTIME);
    assert_string_equal(h.moments, "B u1 e1 s1 c1 E");
    assert_string_equal(h.why, err.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_wish_and_resume),
        cmocka_unit_test(test_failure),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
