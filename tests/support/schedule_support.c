#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule_support.h"

#include <stdio.h>
#include <string.h>

void schedule_make(tri_schedule *s, const char *order, uint32_t p, uint32_t m, uint32_t chunks)
{
    tr_error err = {0};
    tri_schedule_config config = {order, p, m, chunks};
    if (tri_schedule_build(&config, s, &err) != TR_OK || tri_schedule_check(s, &err) != TR_OK)
        fail_msg("%s, %u ranks, %u micro-batches, %u chunks: %s", order, p, m, chunks, err.message);
}

void schedule_load(tri_schedule *s, const char *name)
{
    char path[200];
    tr_error err = {0};
    snprintf(path, sizeof path, "csv:tests/fixtures/schedules/%s.csv", name);
    if (tri_schedule_build(&(tri_schedule_config){.order = path}, s, &err) != TR_OK)
        fail_msg("%s: %s", name, err.message);
}

void schedule_parse(tri_schedule *s, const char *text)
{
    tr_error err = {0};
    if (tri_schedule_parse(text, strlen(text), "a text", s, &err) != TR_OK)
        fail_msg("%s", err.message);
}

void schedule_lower(tri_schedule *s)
{
    tr_error err = {0};
    if (tri_schedule_lower(s, &err) != TR_OK || tri_schedule_check(s, &err) != TR_OK)
        fail_msg("%s, %u ranks, %u micro-batches: %s", s->order ? s->order->name : "a table",
                 s->num_ranks, s->num_microbatches, err.message);
}

void schedule_simulate(const tri_schedule *s, const tri_action_costs *costs, tri_sim *sim)
{
    tr_error err = {0};
    tri_action_costs unit = tri_sim_unit_costs();
    if (tri_sim_run(s, costs ? costs : &unit, sim, &err) != TR_OK)
        fail_msg("%s", err.message);
}

uint32_t schedule_peak(const tri_sim *sim)
{
    uint32_t peak = 0;
    for (uint32_t r = 0; r < sim->index.schedule->num_ranks; r++)
        peak = sim->ranks[r].peak_live > peak ? sim->ranks[r].peak_live : peak;
    return peak;
}

const char *schedule_difference(const tri_schedule *a, const tri_schedule *b)
{
    static char text[200];
    char one[48], two[48];
    if (a->num_ranks != b->num_ranks || a->num_chunks != b->num_chunks ||
        a->num_microbatches != b->num_microbatches)
        return "their sizes differ";
    for (uint32_t r = 0; r < a->num_ranks; r++) {
        size_t num = a->ranks[r].count;
        for (size_t i = 0; i < num && i < b->ranks[r].count; i++) {
            const tri_action *x = &a->ranks[r].actions[i], *y = &b->ranks[r].actions[i];
            if (x->kind == y->kind && x->chunk == y->chunk && x->microbatch == y->microbatch &&
                x->overlap == y->overlap)
                continue;
            snprintf(text, sizeof text, "rank %u, action %zu: %s and %s", r, i + 1,
                     tri_action_text(x, one), tri_action_text(y, two));
            return text;
        }
        if (num != b->ranks[r].count) {
            snprintf(text, sizeof text, "rank %u has %zu and %zu actions", r, num,
                     b->ranks[r].count);
            return text;
        }
    }
    return NULL;
}

bool schedule_size_at(const tri_order *order, size_t *at, schedule_size *size)
{
    static const uint32_t ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 32};
    static const uint32_t chunks[] = {1, 2, 3, 5};
    enum { NUM_RANKS = sizeof ranks / sizeof *ranks, NUM_CHUNKS = 4, NUM_M = 9 };
    for (; *at < NUM_RANKS * NUM_CHUNKS * NUM_M; ++*at) {
        uint32_t p = ranks[*at / (NUM_CHUNKS * NUM_M)];
        const uint32_t batches[NUM_M] = {1, 2, 3, p, p + 1, 2 * p + 1, 2 * p, 3 * p, 4 * p + 2};
        *size = (schedule_size){p, batches[*at % NUM_M], chunks[*at / NUM_M % NUM_CHUNKS]};
        if (tri_order_check(order, p, size->m, size->chunks, NULL) == TR_OK) {
            ++*at;
            return true;
        }
    }
    return false;
}
