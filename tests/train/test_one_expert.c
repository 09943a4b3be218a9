/* All tokens go to one expert, by a selection bias in the weights that training begins with, and
 * the ranks have room for equal loads only: every step loses half of the rows of each rank and is
 * done again by the program that has room for all. That changes nothing of a run, also where ranks
 * are killed in the middle of the second try. Ranks are processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <sys/mman.h>

#include "api/api.h"
#include "base/fs.h"
#include "ckpt/safetensors.h"
#include "run/launcher.h"
#include "small_models.h"
#include "temp_dir.h"

enum { STEPS = 6, SAVED = 4, EXPERTS = 8, CHOSEN_EXPERT = 2, FEW_MESSAGES = 4 };
enum { BEGAN = 2, NUM_SEEN }; /* behind the two ranks */

/* Where ranks are killed: in this step (from 1), before message number `at` of the second try. */
typedef struct death {
    int64_t step;
    int at, rank; /* rank -1: all of them */
} death;

typedef struct plan {
    const char *dir, *from; /* from NULL: writes initial weights with the bias to dir */
    const char *more[4];
    death death;
    /* Shared by all processes: messages of the last second try, for each rank, and the step that
     * the run went on from. */
    int *seen;
} plan;

static const char *const words[] = {"model.kind=llama",
                                    "model.num_layers=2",
                                    "model.dim=32",
                                    "model.num_heads=4",
                                    "model.vocab=61",
                                    "model.dropout=0",
                                    "model.num_experts=8",
                                    "model.experts_per_token=1",
                                    "model.expert_dim=24",
                                    "model.shared_dim=16",
                                    "model.router_score=sigmoid",
                                    "model.router_bias=0.001",
                                    "data.source=synthetic",
                                    "data.seq_len=16",
                                    "optim.kind=sgd",
                                    "optim.lr=0.3",
                                    "train.batch=8",
                                    "train.steps=6",
                                    "train.eval_batches=1",
                                    "ckpt.every=2",
                                    "ckpt.async=false",
                                    "run.threads=1",
                                    NULL};

static tr_status settings_for(const plan *p, tr_settings **settings, tr_error *err)
{
    char text[400];
    TRI_TRY(tr_settings_create(settings, err));
    for (int i = 0; words[i]; i++)
        TRI_TRY(tr_settings_set(*settings, words[i], err));
    for (int i = 0; i < 4 && p->more[i]; i++)
        TRI_TRY(tr_settings_set(*settings, p->more[i], err));
    snprintf(text, sizeof text, "run.dir=%s", p->dir);
    TRI_TRY(tr_settings_set(*settings, text, err));
    snprintf(text, sizeof text, "model.from=%s", p->from ? p->from : "");
    return tr_settings_set(*settings, text, err);
}

/* ---- what a rank does ---- */

/* The rank's own exchange, and who counts its messages. */
static struct {
    tri_exchange real;
    const tri_session *session;
    const plan *plan;
    int rank, num;
} counted;

static void count_message(void)
{
    const death *d = &counted.plan->death;
    if (counted.session->stepping != TRI_PROGRAM_CAREFUL) {
        counted.num = 0;
        return;
    }
    counted.plan->seen[counted.rank] = ++counted.num;
    if (counted.session->step + 1 == d->step && counted.num == d->at &&
        (d->rank < 0 || d->rank == counted.rank))
        raise(SIGKILL);
}

static tr_status run_counted(void *context, const tri_exchange_call *call, tr_error *err)
{
    count_message();
    return counted.real.run(context, call, err);
}

static tr_status start_counted(void *context, const tri_exchange_call *call, void **request,
                               tr_error *err)
{
    count_message();
    return counted.real.start(context, call, request, err);
}

static tr_status write_biased(tr_session *session, const char *path, tr_error *err)
{
    TRI_TRY(tri_api_start(session, err));
    for (size_t i = 0; i < tr_session_num_params(session); i++) {
        tr_param param = tr_session_param(session, i);
        if (strstr(param.name, "e_score_correction_bias"))
            param.data[CHOSEN_EXPERT] = 50; /* scores are below 1 */
    }
    return tr_session_save(session, path, err);
}

static tr_status train(tr_session *session, tr_settings *settings, const tri_bootstrap *b,
                       const plan *p, tr_error *err)
{
    tri_run run;
    tri_run_config config;
    tri_run_config_from(settings, &config);
    tri_run_open(&run, &config, &session->session);
    tr_status status = tri_run_join(&run, b, err);
    if (status == TR_OK && b->size > 1) {
        counted.real = session->session.exchange;
        counted.session = &session->session;
        counted.plan = p;
        counted.rank = b->rank;
        session->session.exchange.run = run_counted;
        session->session.exchange.start = start_counted;
    }
    if (status == TR_OK)
        status = tri_run_begin(&run, err);
    p->seen[BEGAN] = (int)session->session.step;
    if (status == TR_OK)
        status = tri_run_advance(&run, INT64_MAX, err);
    if (status == TR_OK)
        status = tri_run_end(&run, err);
    tri_run_close(&run);
    return status;
}

static int rank_main(const tri_bootstrap *b, void *context)
{
    const plan *p = context;
    tr_settings *settings = NULL;
    tr_session *session = NULL;
    tr_error err = {0};
    tr_status status = settings_for(p, &settings, &err);
    if (status == TR_OK)
        status = tri_api_compile(settings, b->rank, &session, &err);
    if (status == TR_OK)
        status =
            p->from ? train(session, settings, b, p, &err) : write_biased(session, p->dir, &err);
    if (status != TR_OK)
        tri_control_report_failure(b, err.message);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return status == TR_OK ? 0 : 1;
}

static void launch(const plan *p, int num_ranks, int failed_rank)
{
    tri_launch_config config = {
        .num_ranks = num_ranks, .deadline_s = 60, .run_dir = p->from ? p->dir : NULL};
    tri_launch_result result;
    tr_error err = {0};
    if (tri_launch(&config, rank_main, (void *)(uintptr_t)p, &result, &err) != TR_OK)
        fail_msg("%s", err.message);
    if (p->death.at == 0 && result.code != 0)
        fail_msg("%s", result.report.chars);
    if (p->death.at > 0) {
        assert_int_not_equal(result.code, 0);
        assert_int_equal(result.signal, SIGKILL);
        assert_int_equal(result.step, p->death.step);
        assert_true(failed_rank < 0 || result.failed_rank == failed_rank);
    }
    tri_launch_result_fini(&result);
}

/* ---- what a run leaves ---- */

typedef struct lines {
    double loss[STEPS], lost[STEPS], busiest[STEPS];
    int num;
} lines;

static double number_in(const char *line, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(line, key);
    return at ? strtod(at + strlen(key), NULL) : (double)NAN;
}

static lines read_lines(const char *dir)
{
    char path[300], line[4000];
    lines got = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        assert_true(got.num < STEPS);
        assert_true(number_in(line, "step") == got.num + 1);
        got.loss[got.num] = number_in(line, "loss");
        got.lost[got.num] = number_in(line, "lost_rows");
        got.busiest[got.num++] = number_in(line, "load_max");
    }
    fclose(file);
    return got;
}

static tri_safetensors *weights_of(const char *dir)
{
    char path[300];
    tri_safetensors *file;
    tr_error err = {0};
    snprintf(path, sizeof path, "%s/weights.safetensors", dir);
    if (tri_safetensors_open(path, &file, &err) != TR_OK)
        fail_msg("%s", err.message);
    return file;
}

/* The largest difference of any weight. */
static double weights_apart(const char *a, const char *b)
{
    tri_safetensors *one = weights_of(a), *other = weights_of(b);
    double most = 0;
    assert_int_equal(tri_safetensors_num(one), tri_safetensors_num(other));
    for (size_t i = 0; i < tri_safetensors_num(one); i++) {
        const tri_safetensor *x = tri_safetensors_at(one, i);
        const tri_safetensor *y = tri_safetensors_find(other, x->name);
        assert_non_null(y);
        assert_int_equal(x->num_bytes, y->num_bytes);
        for (size_t e = 0; e < x->num_bytes / sizeof(float); e++) {
            float u, v;
            memcpy(&u, (const float *)x->data + e, sizeof u);
            memcpy(&v, (const float *)y->data + e, sizeof v);
            most = fmax(most, fabs((double)u - (double)v));
        }
    }
    tri_safetensors_close(one);
    tri_safetensors_close(other);
    return most;
}

static void assert_same_bits(const char *whole, const char *other)
{
    lines a = read_lines(whole), b = read_lines(other);
    assert_int_equal(b.num, STEPS);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(weights_apart(whole, other) == 0);
}

/* ---- the tests ---- */

typedef struct scene {
    temp_dir *dir;
    char from[300], whole[300], path[300];
    int *seen;
} scene;

static const char *in_dir(scene *s, char path[300], const char *name)
{
    snprintf(path, 300, "%s/%s", s->dir->path, name);
    return path;
}

static plan plan_of(const scene *s, const char *dir)
{
    return (plan){.dir = dir,
                  .from = s->from,
                  .more = {"layout.dp=2", "layout.ep=2", "layout.ep_room=1.0"},
                  .seen = s->seen};
}

/* Every step has all rows on one expert and is done again, and is that of one rank. */
static void test_all_tokens_to_one_expert(void **state)
{
    scene *s = *state;
    plan alone = {.dir = in_dir(s, s->path, "alone"), .from = s->from, .seen = s->seen};
    launch(&alone, 1, -1);
    plan two = plan_of(s, s->whole);
    launch(&two, 2, -1);
    lines a = read_lines(alone.dir), b = read_lines(two.dir);
    assert_int_equal(a.num, STEPS);
    assert_int_equal(b.num, STEPS);
    const double rows = 8 * 16 * 2; /* tokens, in two layers */
    for (int i = 0; i < STEPS; i++) {
        assert_true(a.busiest[i] == EXPERTS && b.busiest[i] == EXPERTS);
        assert_true(b.lost[i] == rows / 2);
        assert_true(fabs(a.loss[i] - b.loss[i]) <= 1e-5 * a.loss[i]);
    }
    assert_true(a.loss[STEPS - 1] < a.loss[0] - 0.1);
    assert_true(weights_apart(alone.dir, two.dir) <= 1e-5);
    assert_true(s->seen[0] > FEW_MESSAGES && s->seen[0] == s->seen[1]);
}

/* Killed in the middle of the second try of a step that comes after a checkpoint: nothing of the
 * step stays, and what goes on has every bit of the run that was never disturbed. */
static void dies_and_goes_on(scene *s, const char *name, int rank)
{
    char dir[300];
    plan p = plan_of(s, in_dir(s, dir, name));
    p.death = (death){.step = SAVED + 1, .at = s->seen[0] / 2, .rank = rank};
    s->seen[0] = s->seen[1] = 0;
    launch(&p, 2, rank);
    assert_int_equal(read_lines(dir).num, SAVED);
    assert_true(s->seen[rank < 0 ? 0 : rank] == p.death.at);
    p.death = (death){0};
    p.more[3] = "run.resume=true";
    launch(&p, 2, -1);
    assert_int_equal(s->seen[BEGAN], SAVED);
    assert_same_bits(s->whole, dir);
}

static void test_a_rank_dies_in_the_second_try(void **state)
{
    dies_and_goes_on(*state, "rank", 1);
}

static void test_all_die_in_the_second_try(void **state)
{
    dies_and_goes_on(*state, "all", -1);
}

static int setup(void **state)
{
    scene *s = calloc(1, sizeof *s);
    if (!s || temp_dir_setup((void **)&s->dir) != 0)
        return -1;
    s->seen = mmap(NULL, NUM_SEEN * sizeof *s->seen, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->seen == MAP_FAILED)
        return -1;
    in_dir(s, s->from, "biased.safetensors");
    in_dir(s, s->whole, "whole");
    *state = s;
    launch(&(plan){.dir = s->from, .seen = s->seen}, 1, -1);
    return 0;
}

static int teardown(void **state)
{
    scene *s = *state;
    munmap(s->seen, NUM_SEEN * sizeof *s->seen);
    temp_dir_teardown((void **)&s->dir);
    free(s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_tokens_to_one_expert),
        cmocka_unit_test(test_a_rank_dies_in_the_second_try),
        cmocka_unit_test(test_all_die_in_the_second_try),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
