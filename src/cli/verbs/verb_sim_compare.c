/* trireme sim --compare: what the schedules cost, as published and as simulated. */
#include <math.h>
#include <stdio.h>

#include "cli/verbs/verb_sim.h"

/* All schedules divide the same layers: with v chunks on a rank, a chunk takes 1/v of the time. */
static tri_action_costs share(const tri_action_costs *costs, uint32_t chunks)
{
    tri_action_costs part = *costs;
    for (int k = 0; k < TRI_NUM_ACTIONS; k++)
        part.kind[k] /= chunks;
    part.kind[TRI_ACTION_U] = costs->kind[TRI_ACTION_U];
    part.overlap /= chunks;
    return part;
}

static char *number(double value, const char *format, char out[16])
{
    if (isnan(value))
        snprintf(out, 16, "-");
    else
        snprintf(out, 16, format, value);
    return out;
}

static void print_case(const tri_order *order, const tri_sim_case *c, const tri_action_costs *costs)
{
    char bubble[16], live[16];
    tri_order_facts facts = {NAN, NAN, NAN};
    order->facts(&c->schedule, costs, &facts);
    double share_idle = 100 * facts.idle / (facts.idle + c->sim.work);
    printf("%-14s %9.6g %8.1f%% %8s  %-18s %6.4g %8s  %-16s %7.4g %8.4g\n", order->name,
           c->sim.makespan, 100 * c->sim.bubble, number(share_idle, "%.1f%%", bubble),
           order->idle_formula, c->sim.activations, number(facts.activations, "%.4g", live),
           order->activation_formula, c->sim.weight_copies, facts.weight_copies);
}

tr_status tri_sim_compare(uint32_t num_ranks, uint32_t num_microbatches, uint32_t chunks,
                          const tri_action_costs *costs, tr_error *err)
{
    const double *k = costs->kind;
    printf("p = %u ranks, m = %u micro-batches; all layers of a rank take F %g, I %g, W %g, B %g "
           "units of time; a message %g\n\n",
           num_ranks, num_microbatches, k[TRI_ACTION_F], k[TRI_ACTION_I], k[TRI_ACTION_W],
           k[TRI_ACTION_B], costs->message);
    printf("%-14s %9s %9s %8s  %-18s %6s %8s  %-16s %7s %8s\n", "schedule", "time", "bubble",
           "formula", "idle time", "live", "formula", "live", "weights", "formula");
    for (size_t i = 0; tri_order_at(i); i++) {
        const tri_order *order = tri_order_at(i);
        tri_schedule_config config = {order->name, num_ranks, num_microbatches,
                                      order->default_chunks};
        if (chunks >= order->min_chunks && chunks <= order->max_chunks)
            config.chunks_per_rank = chunks;
        tr_error why = {0};
        if (tri_order_check(order, num_ranks, num_microbatches, config.chunks_per_rank, &why) !=
            TR_OK) {
            tri_text needs;
            tri_text_init(&needs);
            tri_order_needs(order, &needs);
            tri_text_add(&needs, "\n");
            printf("%-14s needs ", order->name);
            tr_status status = tri_text_put(&needs, stdout, err);
            tri_text_fini(&needs);
            TRI_TRY(status);
            continue;
        }
        tri_action_costs part = share(costs, config.chunks_per_rank);
        tri_sim_case c;
        TRI_TRY(tri_sim_case_init(&c, &config, &part, err));
        print_case(order, &c, &part);
        tri_sim_case_fini(&c);
    }
    printf("\nbubble: idle share of the rank that is idle longest between its first and last "
           "action; asynchronous\nschedules: in the steady state. live and weights: the rank with "
           "most, in micro-batches and copies\nof all layers of a rank. formula: as published; "
           "docs/pipelines.md says under which conditions.\n");
    return TR_OK;
}
