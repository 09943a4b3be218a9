/* Generation over tensor-parallel ranks: the same tokens as on one, with the cache divided by heads
 * and no more messages than the sums of the blocks. */
#include <stdlib.h>
#include <string.h>

#include "small_models.h"
#include "train/ranks.h"
#include "trireme/trireme.h"

enum { NUM_TEXTS = 3, NUM_NEW = 24, MOST_RANKS = 6, NUM_LAYERS = 2 };

static const int64_t lengths[NUM_TEXTS] = {1, 13, 6};

/* What one rank made. */
typedef struct made {
    int32_t token[NUM_TEXTS][NUM_NEW];
    int64_t length[NUM_TEXTS];
    uint64_t cache_bytes;
    int gathers, sums; /* messages of a decoded token */
} made;

typedef struct job {
    const char *const *model;
    int tp;
    made ranks[MOST_RANKS];
} job;

static bool collect(void *context, size_t request, int32_t token)
{
    made *m = context;
    m->token[request][m->length[request]++] = token;
    return true;
}

static void count_messages(const tri_program *program, made *m)
{
    for (size_t i = 0; i < program->num_messages; i++) {
        m->gathers += program->messages[i].kind == TRI_MESSAGE_ALL_GATHER;
        m->sums += program->messages[i].kind == TRI_MESSAGE_ALL_REDUCE;
    }
}

static tr_status generate(tr_session *session, made *m, tr_error *err)
{
    static const tri_sampling greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};
    int32_t prompts[NUM_TEXTS][16];
    tri_text_request requests[NUM_TEXTS];
    for (int r = 0; r < NUM_TEXTS; r++) {
        for (int64_t i = 0; i < lengths[r]; i++)
            prompts[r][i] = (int32_t)((i * i * 7 + i * 3 + 5 + r * 11) % 61);
        requests[r] = (tri_text_request){prompts[r], lengths[r], NUM_NEW};
    }
    m->cache_bytes = session->session.store.slabs[TRI_SLAB_CACHE].bytes;
    count_messages(&session->session.programs[TRI_PROGRAM_DECODE], m);
    return tri_generate(&session->session, requests, NUM_TEXTS, &greedy, collect, m, NULL, err);
}

static tr_status rank_main(tr_comm *comm, void *context, tr_error *err)
{
    job *j = context;
    int rank = comm ? tr_comm_rank(comm) : 0;
    tr_settings *settings;
    tr_session *session = NULL;
    tri_ranks ranks = {0};
    char tp[32];
    snprintf(tp, sizeof tp, "layout.tp=%d", j->tp);
    TRI_TRY(tr_settings_create(&settings, err));
    tr_status status = tr_settings_set(settings, tp, err);
    for (const char *const *word = j->model; *word && status == TR_OK; word++)
        status = tr_settings_set(settings, *word, err);
    if (status == TR_OK)
        status =
            tri_api_compile_programs(settings, rank, TRI_PROGRAMS_GENERATE, NULL, &session, err);
    if (status == TR_OK && comm)
        status = tri_ranks_use(&ranks, comm, &session->session, err);
    if (status == TR_OK)
        status = tri_api_start(session, err);
    if (status == TR_OK)
        status = generate(session, &j->ranks[rank], err);
    tr_session_destroy(session);
    tri_ranks_leave(&ranks);
    tr_settings_destroy(settings);
    return status;
}

static void run(job *j)
{
    tr_error err = {0};
    tr_status status = j->tp == 1 ? rank_main(NULL, j, &err)
                                  : tr_comm_run_threads(j->tp, &(tr_comm_options){.deadline_s = 60},
                                                        rank_main, j, &err);
    if (status != TR_OK)
        fail_msg("tp %d: %s", j->tp, err.message);
}

/* The cache has a key head for each of `parts` ranks, or nearly; heads: all of them. gathers: of
 * each layer. */
static void check_with(const char *const *model, int heads, const int *tps, int gathers)
{
    job one = {.model = model, .tp = 1};
    run(&one);
    assert_int_equal(one.ranks[0].length[NUM_TEXTS - 1], NUM_NEW);
    for (; *tps; tps++) {
        job many = {.model = model, .tp = *tps};
        run(&many);
        int most = (heads + *tps - 1) / *tps;
        for (int r = 0; r < *tps; r++) {
            if (memcmp(many.ranks[r].token, one.ranks[0].token, sizeof one.ranks[0].token) != 0)
                fail_msg("%s: rank %d of tp %d makes other tokens", model[0], r, *tps);
            assert_true(many.ranks[r].cache_bytes * (uint64_t)heads <=
                        one.ranks[0].cache_bytes * (uint64_t)most);
            /* Two sums in a layer, one of the embedding; the logits. */
            assert_int_equal(many.ranks[r].sums, 2 * NUM_LAYERS + 1);
            assert_int_equal(many.ranks[r].gathers, 1 + gathers * NUM_LAYERS);
        }
    }
}

static void check(const char *const *model, int heads, const int *tps)
{
    check_with(model, heads, tps, 0);
}

#define SPREAD                                                                                     \
    "model.init_std=0.3", "model.vocab=61", "model.num_layers=2", "run.seed=7", "run.threads=1",   \
        "train.batch=1", "data.seq_len=48", "generate.batch=2"
#define LLAMA                                                                                      \
    "model.kind=llama", SPREAD, "model.dropout=0", "model.dim=24", "model.num_heads=6",            \
        "model.head_dim=8"

static void test_gpt2(void **state)
{
    (void)state;
    check(SET("model.kind=gpt2", SPREAD, "model.dim=40", "model.num_heads=5"), 5,
          (const int[]){2, 4, 5, 0});
}

static void test_llama(void **state)
{
    (void)state;
    check(SET(LLAMA), 6, (const int[]){2, 4, 0});
    check(SET(LLAMA, "model.num_kv_heads=3"), 3, (const int[]){2, 3, 6, 0});
    check(SET(LLAMA, "model.num_kv_heads=2", "model.qk_norm=true"), 2, (const int[]){2, 4, 6, 0});
    /* A norm over all heads puts them together, of queries and of keys. */
    check_with(SET(LLAMA, "model.num_kv_heads=2", "model.qk_norm=true", "model.qk_norm_wide=true"),
               2, (const int[]){2, 4, 0}, 2);
    check(SET(LLAMA, "model.num_kv_heads=1", "model.qkv_bias=true"), 1, (const int[]){2, 4, 0});
}

static void test_window(void **state)
{
    (void)state;
    check(SET(LLAMA, "model.num_kv_heads=2", "model.window=5"), 2, (const int[]){2, 4, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
