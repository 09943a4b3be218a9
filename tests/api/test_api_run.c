/* Runs inside a program: ranks as threads, callbacks, own rows, logits, two runs at once; and that
 * none of it prints. */
#include "small_models.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "temp_dir.h"
#include "trireme/trireme.h"

typedef struct heard {
    char moments[600];
    char text[1100];
    double losses[64];
    int64_t stop_after; /* 0: never */
    int64_t step;
} heard;

static void tell(void *context, const tr_run_news *news)
{
    heard *h = context;
    static const char letters[] = {
        [TR_RUN_BEGINS] = 'B', [TR_RUN_SKIPPED] = 'k', [TR_RUN_EVALUATED] = 'e',
        [TR_RUN_STEP] = 's',   [TR_RUN_SAVED] = 'c',   [TR_RUN_WARNING] = 'w',
        [TR_RUN_ENDS] = 'E'};
    size_t used = strlen(h->moments);
    snprintf(h->moments + used, sizeof h->moments - used, "%c%lld ", letters[news->moment],
             (long long)news->state->step);
    h->step = news->state->step;
    if (news->moment == TR_RUN_STEP)
        h->losses[h->step] = news->state->loss;
    if (news->text)
        snprintf(h->text, sizeof h->text, "%s", news->text);
}

static bool stops(void *context)
{
    const heard *h = context;
    return h->stop_after > 0 && h->step + 1 >= h->stop_after;
}

static tr_settings *small(const char *dir, const char *const *more)
{
    static const char *const words[] = {
        "model.num_layers=2", "model.dim=32",         "model.vocab=64",   "data.seq_len=16",
        "train.batch=4",      "train.steps=6",        "ckpt.async=false", "run.threads=1",
        "train.eval_every=3", "train.eval_batches=1", "run.device=cpu",   NULL,
    };
    char text[300];
    tr_error err = {0};
    tr_settings *settings = settings_of(TINY, words);
    snprintf(text, sizeof text, "run.dir=%s", dir);
    tr_status status = tr_settings_set(settings, text, &err);
    for (; more && *more && status == TR_OK; more++)
        status = tr_settings_set(settings, *more, &err);
    if (status != TR_OK)
        fail_msg("%s", err.message);
    return settings;
}

static tr_run_state train(const char *dir, const char *const *more, heard *h)
{
    tr_error err = {0};
    tr_run_state state;
    tr_settings *settings = small(dir, more);
    tr_run_options options = {.tell = tell, .stops = stops, .context = h};
    h->moments[0] = h->text[0] = 0;
    h->step = 0;
    if (tr_train(settings, &options, &state, &err) != TR_OK)
        fail_msg("%s", err.message);
    tr_settings_destroy(settings);
    return state;
}

#define MORE(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static bool equal_files(const char *a, const char *b)
{
    char *text[2];
    size_t size[2];
    tr_error err;
    assert_int_equal(tri_file_read(a, &text[0], &size[0], &err), TR_OK);
    assert_int_equal(tri_file_read(b, &text[1], &size[1], &err), TR_OK);
    bool equal = size[0] == size[1] && memcmp(text[0], text[1], size[0]) == 0;
    free(text[0]);
    free(text[1]);
    return equal;
}

/* Every layout trains to the losses of one rank. */
static void test_layouts(void **state)
{
    heard one = {0}, many = {0};
    static const char *const layouts[] = {"layout.dp=2", "layout.tp=2", "layout.pp=2"};
    tr_run_state done = train(temp_file(*state, "one"), NULL, &one);
    assert_string_equal(one.moments, "B0 s1 s2 e3 s3 s4 s5 e6 s6 E6 ");
    assert_int_equal(done.step, 6);
    assert_int_equal(done.num_steps, 6);
    assert_false(done.stopped);
    assert_true(done.loss < done.first_loss && isfinite(done.eval.loss));
    for (int i = 0; i < 3; i++) {
        train(temp_file(*state, layouts[i]), MORE(layouts[i]), &many);
        assert_string_equal(many.moments, one.moments);
        for (int s = 1; s <= 6; s++)
            assert_true(fabs(many.losses[s] - one.losses[s]) <= 1e-5 * one.losses[s]);
    }
}

/* Stopped by the callback, then resumed: the bits of an undisturbed run. */
static void test_stop_and_resume(void **state)
{
    heard whole = {0}, first = {.stop_after = 4}, rest = {0};
    char a[300], b[300];
    const char *dir = temp_file(*state, "parts");
    train(temp_file(*state, "whole"), MORE("layout.dp=2"), &whole);
    tr_run_state done = train(dir, MORE("layout.dp=2"), &first);
    assert_true(done.stopped);
    assert_int_equal(done.step, 4);
    assert_string_equal(first.moments, "B0 s1 s2 e3 s3 s4 c4 E4 ");
    assert_string_equal(first.text, "asked by the program");
    done = train(dir, MORE("layout.dp=2", "run.resume=true"), &rest);
    assert_string_equal(rest.moments, "B4 s5 e6 s6 E6 ");
    assert_int_equal(done.first_step, 4);
    snprintf(a, sizeof a, "%s/weights.safetensors", temp_file(*state, "whole"));
    snprintf(b, sizeof b, "%s/weights.safetensors", dir);
    assert_true(equal_files(a, b));
    assert_true(done.loss == whole.losses[6]);
}

/* A new run into the directory moves the old one aside, and a second one at once is refused. */
static void test_directory(void **state)
{
    heard h = {0};
    tr_error err = {0};
    tr_run *first, *second;
    const char *dir = temp_file(*state, "taken");
    char aside[300];
    train(dir, NULL, &h);
    tr_settings *settings = small(dir, NULL), *others = small(dir, MORE("run.resume=auto"));
    assert_int_equal(tr_run_create(settings, NULL, &first, &err), TR_OK);
    snprintf(aside, sizeof aside, "%s.1/weights.safetensors", dir);
    assert_true(tri_path_exists(aside));
    assert_int_equal(tr_run_create(others, NULL, &second, &err), TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "another run is at work there"));
    tr_run_destroy(first);
    tr_settings_destroy(settings);
    tr_settings_destroy(others);
}

/* ---- step by step ---- */

/* Tokens count up from the sample's number, so the next is known. */
static void count_up(void *context, bool held_out, uint64_t sample, const tr_row *row)
{
    (void)context;
    for (int64_t i = 0; i < row->seq_len; i++) {
        row->tokens[i] = (int32_t)((sample * 7 + (uint64_t)i + held_out) % 64);
        row->targets[i] = (row->tokens[i] + 1) % 64;
    }
}

static int best_of(const float *logits)
{
    int best = 0;
    for (int i = 1; i < 64; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void test_steps(void **state)
{
    static const char *const layouts[] = {"layout.dp=1", "layout.dp=2", "layout.tp=2",
                                          "layout.pp=2"};
    float logits[64];
    const int32_t prompt[] = {20, 21, 22, 23};
    for (int i = 0; i < 4; i++) {
        heard h = {0};
        tr_error err = {0};
        tr_run *run;
        tr_eval before, after;
        char name[32];
        snprintf(name, sizeof name, "steps%d", i);
        tr_settings *settings =
            small(temp_file(*state, name), MORE(layouts[i], "train.steps=60", "optim.lr=0.02"));
        tr_run_options options = {.tell = tell, .row = count_up, .context = &h};
        if (tr_run_create(settings, &options, &run, &err) != TR_OK)
            fail_msg("%s", err.message);
        assert_int_equal(tr_run_evaluate(run, &before, &err), TR_OK);
        assert_int_equal(tr_run_advance(run, 2, &err), TR_OK);
        assert_int_equal(tr_run_now(run).step, 2);
        assert_int_equal(tr_run_save(run, &err), TR_OK);
        assert_int_equal(strncmp(h.moments, "B0 e0 s1 s2 c2 ", 15), 0);
        assert_int_equal(tr_run_advance(run, INT64_MAX, &err), TR_OK);
        assert_int_equal(tr_run_now(run).step, 60);
        assert_int_equal(tr_run_evaluate(run, &after, &err), TR_OK);
        assert_true(after.loss < before.loss / 2);
        if (tr_run_logits(run, prompt, 4, logits, 64, &err) != TR_OK)
            fail_msg("%s: %s", layouts[i], err.message);
        assert_int_equal(best_of(logits), 24);
        /* What is refused leaves the run as it was. */
        assert_int_equal(tr_run_logits(run, prompt, 40, logits, 64, &err), TR_ERROR_INPUT);
        assert_int_equal(tr_run_finish(run, &err), TR_OK);
        tr_run_destroy(run);
        tr_settings_destroy(settings);
    }
}

static void wrong_row(void *context, bool held_out, uint64_t sample, const tr_row *row)
{
    count_up(context, held_out, sample, row);
    if (sample == 9)
        row->tokens[3] = 64;
}

/* A failure is said with its status, told once as the end, and all that can be done after it is to
 * destroy the run; events.jsonl has it. */
static void test_failure(void **state)
{
    heard h = {0};
    tr_error err = {0};
    tr_run *run;
    tr_run_options options = {.tell = tell, .row = wrong_row, .context = &h};
    const char *dir = temp_file(*state, "wrong");
    tr_settings *settings = small(dir, MORE("layout.dp=2"));
    assert_int_equal(tr_run_create(settings, &options, &run, &err), TR_OK);
    assert_int_equal(tr_run_advance(run, 6, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "sample 9 of the program's own rows"));
    assert_int_equal(tr_run_advance(run, 1, &err), TR_ERROR_INPUT);
    assert_int_equal(tr_run_save(run, &err), TR_ERROR_INPUT);
    tr_run_destroy(run);
    assert_non_null(strstr(h.moments, "E3 "));
    char *events, path[300];
    size_t size;
    snprintf(path, sizeof path, "%s/events.jsonl", dir);
    assert_int_equal(tri_file_read(path, &events, &size, &err), TR_OK);
    assert_non_null(strstr(events, "\"event\":\"start\""));
    assert_non_null(strstr(events, "\"event\":\"failed\""));
    assert_non_null(strstr(events, "\"exit_code\":2"));
    free(events);
    tr_settings_destroy(settings);
}

/* What cannot work is refused before it begins, and leaves no directory. */
static void test_refusals(void **state)
{
    static const struct {
        const char *word, *message;
    } cases[] = {{"run.resume=true", "no checkpoint"},
                 {"run.transport=shm", "run.transport is shm"},
                 {"layout.pp=5", "layout.pp"},
                 {"layout.auto=true", "chosen by `trireme train` alone"},
                 {"layout.dp=256", "at most 128"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        heard h = {0};
        tr_error err = {0};
        tr_run_state end;
        const char *dir = temp_file(*state, "refused");
        tr_settings *settings = small(dir, MORE(cases[i].word));
        tr_run_options options = {.tell = tell, .context = &h};
        assert_int_equal(tr_train(settings, &options, &end, &err), TR_ERROR_INPUT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].word, err.message);
        assert_int_equal(end.step, 0);
        assert_string_equal(h.moments, "");
        assert_false(tri_path_exists(dir));
        tr_settings_destroy(settings);
    }
}

/* ---- two at once ---- */

typedef struct job {
    const char *dir, *layout;
    heard heard;
    tr_run_state state;
} job;

static void *do_job(void *context)
{
    job *j = context;
    j->state = train(j->dir, MORE(j->layout, "train.steps=20"), &j->heard);
    return NULL;
}

static void test_two_at_once(void **state)
{
    heard alone = {0};
    train(temp_file(*state, "alone"), MORE("layout.dp=2", "train.steps=20"), &alone);
    job jobs[] = {{temp_file(*state, "a"), "layout.dp=2", {.step = 0}, {0}},
                  {temp_file(*state, "b"), "layout.pp=2", {.step = 0}, {0}}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, do_job, &jobs[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int s = 1; s <= 20; s++) {
        assert_true(jobs[0].heard.losses[s] == alone.losses[s]);
        assert_true(fabs(jobs[1].heard.losses[s] - alone.losses[s]) <= 1e-5 * alone.losses[s]);
    }
}

/* Nothing of the library prints. */
static void test_silence(void **state)
{
    heard h = {.stop_after = 3};
    const char *said = temp_file(*state, "said");
    fflush(stdout);
    fflush(stderr);
    int out = dup(1), other = dup(2);
    assert_non_null(freopen(said, "w", stdout));
    assert_int_equal(dup2(1, 2), 2);
    train(temp_file(*state, "silent"), MORE("layout.dp=2", "ckpt.every=2"), &h);
    fflush(stdout);
    dup2(out, 1);
    dup2(other, 2);
    close(out);
    close(other);
    char *text;
    size_t size;
    tr_error err;
    assert_int_equal(tri_file_read(said, &text, &size, &err), TR_OK);
    assert_int_equal(size, 0);
    free(text);
}

static void test_version(void **state)
{
    (void)state;
    assert_string_equal(tr_version(), TRIREME_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),     cmocka_unit_test(test_stop_and_resume),
        cmocka_unit_test(test_directory),   cmocka_unit_test(test_steps),
        cmocka_unit_test(test_failure),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_two_at_once), cmocka_unit_test(test_silence),
        cmocka_unit_test(test_version),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
