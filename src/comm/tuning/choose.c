/* The algorithm of a call that names none.
 *
 * Where memory is shared it is direct: it has the fewest rounds and the fewest bytes of all, so no
 * price would change that. Elsewhere it is the one whose formula gives the least time at the prices
 * and factors of the communicator (tuning.h), worked out once for each operation and power of two
 * of bytes. All members have the same prices and see the same sizes, so all choose the same. */
#include "comm/comm_internal.h"
#include "comm/layout.h"
#include "comm/tuning/tuning.h"

#include <string.h>

/* Walking through the rounds of more ranks takes longer than it is worth. */
enum { MOST_WALKED = 64, MOST_EXCHANGED = 32 };

static double at_prices(const tri_coll_cost *cost, const tri_coll_prices *p)
{
    return cost->alpha_count * p->alpha + cost->beta_bytes * p->beta + cost->gamma_bytes * p->gamma;
}

double tri_tuning_formula(const tri_tuning *tuning, const tri_algorithm *algorithm, tri_coll coll,
                          const tri_coll_shape *shape, double bytes)
{
    tri_coll_cost cost;
    tri_rounds rounds;
    bool several = tuning->num_machines > 1;
    int most = coll == TRI_COLL_ALL_TO_ALL ? MOST_EXCHANGED : MOST_WALKED;
    if (several && shape->num_dims == 2 && shape->size <= most &&
        tri_algorithm_rounds(algorithm, coll, shape, 0, &rounds, NULL) == TR_OK) {
        double time = tri_rounds_time(&rounds, shape->size, bytes, false, &tuning->near,
                                      &tuning->far, shape->dim[0]);
        tri_rounds_free(&rounds);
        return time;
    }
    double worked = -1;
    if (!several && shape->size <= most)
        worked = tri_work_time(&tuning->work, algorithm, coll, shape, bytes);
    if (worked >= 0)
        return worked;
    cost = algorithm->cost(coll, shape, bytes);
    if (algorithm->needs_shared_memory)
        return at_prices(&cost, &tuning->shared);
    if (!several)
        return at_prices(&cost, &tuning->near);
    /* What has an outer axis uses the far links for that alone; others may use them all the time.
     */
    tri_coll_cost inner = cost;
    bool layered = shape->num_dims == 2 && cost.outer_alpha_count > 0;
    inner.alpha_count -= cost.outer_alpha_count;
    inner.beta_bytes -= cost.outer_beta_bytes;
    return layered ? at_prices(&inner, &tuning->near) + cost.outer_alpha_count * tuning->far.alpha +
                         cost.outer_beta_bytes * tuning->far.beta
                   : at_prices(&cost, &tuning->far);
}

/* Factors are of all ranks; what a few of them do beside each other was not tried. */
double tri_tuning_time(const tri_tuning *tuning, const tri_algorithm *algorithm, tri_coll coll,
                       const tri_coll_shape *shape, double bytes)
{
    double seconds = tri_tuning_formula(tuning, algorithm, coll, shape, bytes);
    if (shape->size != tuning->num_ranks || shape->num_dims != 0)
        return seconds;
    return seconds * tri_factors_of(&tuning->factors, algorithm, coll, bytes);
}

static int cheapest(const tr_group *group, tri_coll coll, double bytes)
{
    double least = 0;
    int best = -1;
    for (int i = 0; tri_algorithm_at((size_t)i) != NULL; i++) {
        const tri_algorithm *a = tri_algorithm_at((size_t)i);
        if (a->needs_shared_memory || !tri_algorithm_supports(a, coll, &group->shape))
            continue;
        double time = tri_tuning_time(group->comm->tuning, a, coll, &group->shape, bytes);
        if (best < 0 || time < least) {
            best = i;
            least = time;
        }
    }
    return best;
}

/* Bytes of the whole vector, as formulas count them. */
static uint64_t call_bytes(const tr_group *group, const tr_collective *call)
{
    uint64_t n = (uint64_t)group->size, count = call->count;
    const uint64_t *counts = tri_block_counts(call);
    if (counts != NULL)
        count = tri_block_first(counts, 0, group->size);
    else if (call->operation == TR_ALL_TO_ALL)
        count *= n * n;
    else if (call->operation >= TR_GATHER)
        count *= n;
    return count * tri_dtype_bytes((tri_dtype)call->dtype);
}

const tri_algorithm *tri_choose(tr_group *group, const tr_collective *call)
{
    if (group->comm->transport->io == NULL)
        return &tri_algorithm_direct;
    /* Every member knows only its own sizes. Round k of a ring is what goes k places on: a shift is
     * one round of it. */
    if (call->operation == TR_ALL_TO_ALL && call->send_counts != NULL)
        return &tri_algorithm_ring;
    uint64_t bytes = call_bytes(group, call);
    int power = 0;
    while (power < TRI_NUM_CHOICES - 1 && (uint64_t)1 << power < bytes)
        power++;
    uint8_t *known = &group->choices[call->operation][power];
    if (*known == 0)
        *known = (uint8_t)(1 + cheapest(group, (tri_coll)call->operation,
                                        (double)((uint64_t)1 << power)));
    return tri_algorithm_at(*known - 1u);
}

const char *tri_comm_would_run(tr_group *group, const tr_collective *call)
{
    if (call->algorithm != NULL && strcmp(call->algorithm, "auto") != 0)
        return call->algorithm;
    return group->size > 1 ? tri_choose(group, call)->name : "alone";
}
