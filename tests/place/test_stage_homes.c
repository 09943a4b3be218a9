/* All programs of a run share the parameters: in a pipeline, each of them divides the layers in the
 * same way, though an evaluation costs other than a training step. */
#include "small_models.h"

#include <stdio.h>
#include <string.h>

#include "trireme/trireme.h"

/* Each parameter that the program reads lies where training has it. */
static void expect_shared(const tri_session *session, int program, int rank, const char *what)
{
    const tri_program *train = &session->programs[TRI_PROGRAM_TRAIN];
    const tri_program *other = &session->programs[program];
    for (size_t i = 0; i < session->params.count; i++) {
        const char *name = session->params.items[i].name;
        tri_id here = tri_program_find(train, name), there = tri_program_find(other, name);
        if (there == TRI_NONE)
            continue;
        if (here == TRI_NONE)
            fail_msg("%s, rank %d: program %d reads %s, which another rank trains", what, rank,
                     program, name);
        if (train->home[here].offset != other->home[there].offset)
            fail_msg("%s, rank %d: %s lies elsewhere in program %d", what, rank, name, program);
    }
}

static void expect_all_shared(const char *const *assignments, int num_ranks, const char *what)
{
    for (int rank = 0; rank < num_ranks; rank++) {
        tr_error err = {0};
        tr_settings *settings = settings_of(NULL, assignments);
        tr_session *session;
        if (tri_api_compile(settings, rank, &session, &err) != TR_OK)
            fail_msg("%s, rank %d: %s", what, rank, err.message);
        for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
            if (tri_session_has(&session->session, p))
                expect_shared(&session->session, p, rank, what);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
}

/* Sizes at which the two costs lead to different cuts. */
#define NARROW                                                                                     \
    "run.device=null", "model.dim=25", "model.num_heads=5", "model.vocab=257", "model.ffn_dim=11", \
        "data.seq_len=33", "train.batch=12", "layout.microbatches=4", "layout.pp=2",               \
        "model.dropout=0.1"

static void test_every_program_divides_alike(void **state)
{
    (void)state;
    static const char *const schedules[] = {"layout.schedule=1f1b", "layout.schedule=v-min",
                                            "layout.schedule=interleaved",
                                            "layout.schedule=chimera"};
    static const char *const precisions[] = {"precision.kind=fp32", "precision.kind=bf16"};
    for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
        for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++)
            for (int layers = 2; layers <= 7; layers++) {
                char num[32], what[96];
                snprintf(num, sizeof num, "model.num_layers=%d", layers);
                snprintf(what, sizeof what, "%s, %s, %s", schedules[s], precisions[p], num);
                expect_all_shared(SET(NARROW, num, schedules[s], precisions[p]), 2, what);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_program_divides_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
