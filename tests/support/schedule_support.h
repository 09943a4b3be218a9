/* What the tests of schedules share. Every failure ends the test with a message. */
#ifndef SCHEDULE_SUPPORT_H
#define SCHEDULE_SUPPORT_H

#include "sim/sim.h"

/* chunks 0: the order's own number. The schedule computes only, and has passed the checker. */
void schedule_make(tri_schedule *s, const char *order, uint32_t p, uint32_t m, uint32_t chunks);
/* A table of tests/fixtures/schedules, not checked. */
void schedule_load(tri_schedule *s, const char *name);
void schedule_parse(tri_schedule *s, const char *text);
void schedule_lower(tri_schedule *s); /* and the checker again */
void schedule_simulate(const tri_schedule *s, const tri_action_costs *costs, tri_sim *sim);
uint32_t schedule_peak(const tri_sim *sim); /* live chunks on the rank with most */

/* NULL when the two are the same list of actions, else where they differ first. */
const char *schedule_difference(const tri_schedule *a, const tri_schedule *b);

/* Sizes that an order is tried with: false past the last one. Those that its constraints forbid are
 * left out. */
typedef struct schedule_size {
    uint32_t p, m, chunks;
} schedule_size;
bool schedule_size_at(const tri_order *order, size_t *at, schedule_size *size);

#endif
