/* Asynchronous pipelines against a plain reference that applies the same delayed updates.
 *
 * The reference has one rank and knows nothing of pipelines: for every micro-batch it puts together
 * the weights that each stage would use, asks a session for the gradient there, and updates each
 * stage's newest weights by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "small_models.h"
#include "train/ranks.h"
#include "trireme/trireme.h"

enum { STEPS = 3, ROWS = 2, LAYERS = 6, MAX_RANKS = 3, MAX_MICRO = 9 };
static const double LR = 0.05;

typedef struct stale_case {
    bool delayed; /* 2BW: an update for every p micro-batches, of weights two updates old */
    int ranks, micro;
    int dp; /* how many such pipelines share the rows; 0: one */
} stale_case;

typedef struct numbers {
    double loss[STEPS];
    float *weights;
    size_t total;
} numbers;

static tr_settings *settings_for(int batch, int micro, int ranks, int dp, const char *schedule)
{
    char words[6][64];
    snprintf(words[0], sizeof *words, "train.batch=%d", batch);
    snprintf(words[1], sizeof *words, "layout.microbatches=%d", micro);
    snprintf(words[2], sizeof *words, "layout.pp=%d", ranks);
    snprintf(words[3], sizeof *words, "layout.schedule=%s", schedule);
    /* the layers evenly, the embedding with the first and the head with the last */
    snprintf(words[4], sizeof *words, "layout.stages=%s",
             ranks == 1   ? ""
             : ranks == 2 ? "3,3"
                          : "2,2,2");
    snprintf(words[5], sizeof *words, "layout.dp=%d", dp > 0 ? dp : 1);
    return settings_of(NULL, SET("model.kind=llama", "model.num_layers=6", "model.dim=24",
                                 "model.num_heads=4", "model.num_kv_heads=2", "model.ffn_dim=40",
                                 "model.vocab=61", "model.dropout=0", "data.seq_len=16",
                                 "optim.kind=sgd", "optim.lr=0.05", "optim.momentum=0",
                                 "optim.weight_decay=0", "train.clip=0", "train.steps=100",
                                 words[0], words[1], words[2], words[3], words[4], words[5]));
}

static int stage_of(const tr_session *session, size_t param, int ranks)
{
    int layer = session->session.params.items[param].layer;
    return layer < 0 ? 0 : layer >= LAYERS ? ranks - 1 : layer / (LAYERS / ranks);
}

static size_t count_of(const tr_session *session, size_t param)
{
    return (size_t)tr_session_param(session, param).count;
}

/* --- The pipeline ----------------------------------------------------------------------------- */

typedef struct job {
    const stale_case *c;
    numbers *numbers;
} job;

static tr_status rank_main(tr_comm *comm, void *context, tr_error *err)
{
    const job *j = context;
    tri_ranks ranks = {0};
    tr_session *session = NULL;
    tr_settings *settings = settings_for(ROWS * j->c->micro, j->c->micro, j->c->ranks, j->c->dp,
                                         j->c->delayed ? "pipedream-2bw" : "pipedream");
    tr_status status = tri_api_compile(settings, tr_comm_rank(comm), &session, err);
    if (status == TR_OK)
        status = tri_ranks_use(&ranks, comm, &session->session, err);
    if (status == TR_OK)
        status = tri_api_start(session, err);
    for (int i = 0; i < STEPS && status == TR_OK; i++) {
        tr_step done;
        status = tr_session_step(session, &done, err);
        if (tr_comm_rank(comm) == 0)
            j->numbers->loss[i] = done.loss;
    }
    if (status == TR_OK)
        status = tr_session_pull(session, err);
    if (status == TR_OK && tr_comm_rank(comm) == 0) {
        float *at = j->numbers->weights;
        for (size_t p = 0; p < tr_session_num_params(session); at += count_of(session, p++))
            memcpy(at, tr_session_param(session, p).data, count_of(session, p) * sizeof *at);
    }
    tr_session_destroy(session);
    tri_ranks_leave(&ranks);
    tr_settings_destroy(settings);
    return status;
}

/* --- The reference ---------------------------------------------------------------------------- */

typedef struct reference {
    const stale_case *c;
    tr_session *session;
    size_t total;
    float *versions[MAX_MICRO + 1]; /* all parameters; of a stage only its own count */
    float *grad, *sum;
} reference;

/* Which version of its weights a stage uses for a micro-batch. In 1F1B, stage r has r' = p-1-r
 * forwards ahead: before the forward of micro-batch k it has updated k - r' times. */
static int version_of(const stale_case *c, int stage, int k)
{
    if (c->delayed)
        return k / c->ranks > 0 ? k / c->ranks - 1 : 0;
    int ahead = c->ranks - 1 - stage;
    return k > ahead ? k - ahead : 0;
}

/* The session's weights become what the stages use for a micro-batch. */
static void assemble(reference *r, int k)
{
    size_t at = 0;
    for (size_t p = 0; p < tr_session_num_params(r->session); p++) {
        size_t count = count_of(r->session, p);
        int stage = stage_of(r->session, p, r->c->ranks);
        memcpy(r->session->session.weights[p], r->versions[version_of(r->c, stage, k)] + at,
               count * sizeof(float));
        at += count;
    }
}

/* One step: gradients of the micro-batches in turn, an update after each or each few. */
static double reference_step(reference *r)
{
    tr_error err = {0};
    int each = r->c->delayed ? r->c->ranks : 1, version = 0;
    double loss = 0;
    for (int k = 0; k < r->c->micro; k++) {
        tr_step done;
        assemble(r, k);
        if (tr_session_step(r->session, &done, &err) != TR_OK)
            fail_msg("%s", err.message);
        loss += done.loss / r->c->micro;
        size_t at = 0;
        for (size_t p = 0; p < tr_session_num_params(r->session); p++) {
            assert_int_equal(tri_session_grad(&r->session->session, (tri_id)p, r->grad + at, &err),
                             TR_OK);
            at += count_of(r->session, p);
        }
        for (size_t i = 0; i < r->total; i++)
            r->sum[i] = (k % each ? r->sum[i] : 0) + r->grad[i] / (float)each;
        if ((k + 1) % each)
            continue;
        for (size_t i = 0; i < r->total; i++)
            r->versions[version + 1][i] = (float)(r->versions[version][i] - LR * r->sum[i]);
        version++;
    }
    memcpy(r->versions[0], r->versions[version], r->total * sizeof(float));
    return loss;
}

static void run_reference(const stale_case *c, numbers *out)
{
    tr_error err = {0};
    tr_settings *settings = settings_for(ROWS, 1, 1, 1, "1f1b");
    reference r = {.c = c};
    if (tr_session_create(settings, &r.session, &err) != TR_OK)
        fail_msg("%s", err.message);
    for (size_t p = 0; p < tr_session_num_params(r.session); p++)
        r.total += count_of(r.session, p);
    for (int v = 0; v <= MAX_MICRO; v++)
        assert_non_null(r.versions[v] = malloc(r.total * sizeof(float)));
    assert_non_null(r.grad = malloc(r.total * sizeof(float)));
    assert_non_null(r.sum = malloc(r.total * sizeof(float)));
    size_t at = 0;
    for (size_t p = 0; p < tr_session_num_params(r.session); at += count_of(r.session, p++))
        memcpy(r.versions[0] + at, tr_session_param(r.session, p).data,
               count_of(r.session, p) * sizeof(float));
    for (int i = 0; i < STEPS; i++)
        out->loss[i] = reference_step(&r);
    assert_non_null(out->weights = malloc(r.total * sizeof(float)));
    memcpy(out->weights, r.versions[0], r.total * sizeof(float));
    out->total = r.total;
    for (int v = 0; v <= MAX_MICRO; v++)
        free(r.versions[v]);
    free(r.grad);
    free(r.sum);
    tr_session_destroy(r.session);
    tr_settings_destroy(settings);
}

/* ---------------------------------------------------------------------------------------------- */

static void check_case(stale_case c)
{
    tr_error err = {0};
    numbers wanted = {0}, got = {0};
    run_reference(&c, &wanted);
    assert_non_null(got.weights = calloc(wanted.total, sizeof(float)));
    job j = {&c, &got};
    if (tr_comm_run_threads(c.ranks * (c.dp > 0 ? c.dp : 1), NULL, rank_main, &j, &err) != TR_OK)
        fail_msg("%s", err.message);
    double off = 0, way = 0;
    for (int i = 0; i < STEPS; i++)
        if (fabs(got.loss[i] - wanted.loss[i]) > 1e-5 * wanted.loss[i])
            fail_msg("%d ranks, %d micro-batches, dp %d: loss %d is %.7f, the reference has %.7f",
                     c.ranks, c.micro, c.dp, i, got.loss[i], wanted.loss[i]);
    for (size_t i = 0; i < wanted.total; i++) {
        off += pow((double)got.weights[i] - wanted.weights[i], 2);
        way += pow(wanted.weights[i], 2);
    }
    if (!(sqrt(off / way) < 1e-6))
        fail_msg("%d ranks, %d micro-batches, dp %d: weights differ by %.1e", c.ranks, c.micro,
                 c.dp, sqrt(off / way));
    free(got.weights);
    free(wanted.weights);
}

static void test_pipedream(void **state)
{
    (void)state;
    check_case((stale_case){.ranks = 2, .micro = 2});
    check_case((stale_case){.ranks = 2, .micro = 5});
    check_case((stale_case){.ranks = 3, .micro = 7});
}

static void test_2bw(void **state)
{
    (void)state;
    check_case((stale_case){.delayed = true, .ranks = 2, .micro = 2});
    check_case((stale_case){.delayed = true, .ranks = 2, .micro = 8});
    check_case((stale_case){.delayed = true, .ranks = 3, .micro = 9});
}

/* The rows of an update are the same however many pipelines share them; with three for two rows,
 * one of them has padding only. */
static void test_data_parallel(void **state)
{
    (void)state;
    check_case((stale_case){.ranks = 2, .micro = 5, .dp = 2});
    check_case((stale_case){.ranks = 2, .micro = 4, .dp = 3});
    check_case((stale_case){.delayed = true, .ranks = 2, .micro = 8, .dp = 2});
}

static void refused(const char *const *set, const char *word)
{
    tr_error err = {0};
    tr_session *session = NULL;
    tr_settings *settings = settings_of(TINY, set);
    assert_int_equal(tri_api_compile(settings, 0, &session, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, word))
        fail_msg("expected \"%s\" in: %s", word, err.message);
    tr_settings_destroy(settings);
}

static void test_refusals(void **state)
{
    (void)state;
    refused(SET("layout.pp=2", "layout.microbatches=4", "layout.schedule=pipedream"),
            "set train.clip=0");
    refused(SET("layout.pp=2", "layout.microbatches=4", "layout.schedule=pipedream", "train.clip=0",
                "precision.kind=fp16"),
            "precision.kind=bf16");
    refused(
        SET("layout.pp=2", "layout.microbatches=4", "layout.schedule=pipedream", "train.clip=0"),
        "share wte.weight");
    refused(
        SET("layout.pp=2", "layout.microbatches=9", "layout.schedule=pipedream", "train.clip=0"),
        "train.batch of at least 9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipedream),
        cmocka_unit_test(test_2bw),
        cmocka_unit_test(test_data_parallel),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
