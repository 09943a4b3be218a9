/* Keys go only to ranks that have a query that sees them: what the transport counts is the number
 * of such pairs, found here one by one, times the bytes of a key and its value. Over shared memory
 * and over tcp, with ranks that are processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "program/messages.h"
#include "train/ranks.h"
#include "trireme/trireme.h"

enum { RANKS = 3, LENGTH = 61, ROWS = 2, LAYERS = 2, KEY_HEADS = 2, WIDTH = 8, CASES = 4 };

typedef struct job {
    const char *deal;
    int window;
} job;

/* Case 0 has documents of one token each: nobody needs a key of others. */
static int32_t doc_at(int which, uint64_t row, int64_t place)
{
    static const int64_t ends[2][8] = {{1, 2, 9, 10, 31, 33, 60, LENGTH},
                                       {17, 18, 19, 40, 41, 44, 52, LENGTH}};
    if (which == 0)
        return (int32_t)place;
    if (which == 1) /* one document */
        return 0;
    const int64_t *own = ends[(row + (uint64_t)which) % 2];
    int32_t doc = 0;
    while (place >= own[doc])
        doc++;
    return which == 3 && doc == 7 ? -1 : doc; /* the last is padding */
}

static void fill_row(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    (void)split;
    for (int64_t t = 0; t < LENGTH; t++) {
        row->tokens[t] = (int32_t)(7 * t + (int64_t)sample) % 50;
        row->targets[t] = row->tokens[t];
        row->docs[t] = doc_at(*(const int *)context, sample, t);
    }
}

static bool sees(int which, uint64_t row, int64_t query, int64_t key, int window)
{
    int32_t doc = doc_at(which, row, query);
    return doc >= 0 && doc == doc_at(which, row, key) && key <= query &&
           (window == 0 || key > query - window);
}

/* Keys of this rank that queries of others see. */
static uint64_t pairs_from(const tri_context *context, int which, int self, int window)
{
    uint64_t pairs = 0;
    for (uint64_t b = 0; b < ROWS; b++) {
        const int32_t *places = context->places + b * LENGTH;
        int64_t begin[RANKS + 1] = {0};
        for (int r = 0; r < RANKS; r++)
            begin[r + 1] = begin[r] + context->deal.sizes[r];
        for (int64_t k = begin[self]; k < begin[self + 1]; k++)
            for (int r = 0; r < RANKS; r++) {
                bool seen = false;
                for (int64_t q = begin[r]; q < begin[r + 1] && r != self; q++)
                    seen |= sees(which, b, places[q], places[k], window);
                pairs += seen;
            }
    }
    return pairs;
}

static tr_status count(tr_comm *comm, tr_session *session, const job *j, int *which, tr_error *err)
{
    uint64_t without = 0; /* what the loss takes */
    int self = tr_comm_rank(comm);
    for (*which = 0; *which < CASES; ++*which) {
        tr_eval eval;
        uint64_t before = tr_comm_read_counters(comm).bytes_sent;
        TRI_TRY(tr_session_eval(session, &eval, err));
        uint64_t sent = tr_comm_read_counters(comm).bytes_sent - before;
        uint64_t pairs = pairs_from(session->session.context, *which, self, j->window);
        uint64_t wanted = pairs * 2 * KEY_HEADS * WIDTH * sizeof(float) * LAYERS;
        without = *which == 0 ? sent : without;
        if (*which == 0 ? pairs != 0 : sent != without + wanted)
            return tri_fail(err, TR_ERROR_INTERNAL,
                            "%s, window %d, case %d: rank %d sent %llu bytes, and %llu keys are "
                            "seen elsewhere: %llu bytes",
                            j->deal, j->window, *which, self, (unsigned long long)(sent - without),
                            (unsigned long long)pairs, (unsigned long long)wanted);
    }
    return TR_OK;
}

static tr_status rank_main(tr_comm *comm, void *context, tr_error *err)
{
    static const char *const words[] = {
        "model.kind=llama", "model.num_layers=2",   "model.dim=32",     "model.num_heads=4",
        "model.vocab=50",   "model.num_kv_heads=2", "model.ffn_dim=16", "data.seq_len=61",
        "train.batch=2",    "train.eval_batches=1", "run.threads=1",    "data.mask_documents=true",
        "layout.cp=3",      "layout.cp_kind=gather"};
    const job *j = context;
    char word[64];
    int which = 0;
    tr_settings *settings = NULL;
    tr_session *session = NULL;
    tri_ranks ranks = {0};
    tr_status status = tr_settings_create(&settings, err);
    for (size_t i = 0; status == TR_OK && i < sizeof words / sizeof *words; i++)
        status = tr_settings_set(settings, words[i], err);
    snprintf(word, sizeof word, "layout.cp_deal=%s", j->deal);
    if (status == TR_OK)
        status = tr_settings_set(settings, word, err);
    snprintf(word, sizeof word, "model.window=%d", j->window);
    if (status == TR_OK)
        status = tr_settings_set(settings, word, err);
    if (status == TR_OK)
        status = tri_api_compile(settings, tr_comm_rank(comm), &session, err);
    if (status == TR_OK)
        status = tri_ranks_use(&ranks, comm, &session->session, err);
    if (status == TR_OK) {
        session->session.row = fill_row;
        session->session.row_context = &which;
        status = tri_api_start(session, err);
    }
    if (status == TR_OK)
        status = count(comm, session, j, &which, err);
    tr_session_destroy(session);
    tri_ranks_leave(&ranks);
    tr_settings_destroy(settings);
    return status;
}

static void test_only_keys_that_are_seen_travel(void **state)
{
    (void)state;
    static const tr_comm_options tcp = {.transport = "tcp"};
    static const job jobs[] = {{"plain", 0}, {"zigzag", 5}, {"balanced", 0}, {"balanced", 9}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
            tr_error err = {0};
            if (tr_comm_spawn(RANKS, over_tcp ? &tcp : NULL, rank_main, (void *)&jobs[i], &err) !=
                TR_OK)
                fail_msg("%s: %s", over_tcp ? "tcp" : "shm", err.message);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_keys_that_are_seen_travel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
