/* trireme sim --compare: what the schedules cost, as published and as simulated. */
#include <math.h>
#include <stdio.h>

#include "cli/doc/docs.h"
#include "cli/sim/verb_sim.h"

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

/* What is published of schedules with pairs: each pair runs as one, and idle is what the rank with
 * the most pairs, whose work is the least, waits within the whole step. */
static void hold_against_pairs(tri_sim_case *c)
{
    double least = c->sim.work;
    for (uint32_t r = 0; r < c->schedule.num_ranks; r++)
        least = fmin(least, c->sim.ranks[r].busy);
    c->sim.work = least;
    c->sim.idle = c->sim.span - least;
    c->sim.bubble = c->sim.span > 0 ? c->sim.idle / c->sim.span : 0;
}

static char *number(double value, const char *format, char out[16])
{
    if (isnan(value))
        snprintf(out, 16, "-");
    else
        snprintf(out, 16, format, value);
    return out;
}

static void print_case(const tri_order *order, const tri_sim_case *c, const tri_order_facts *known)
{
    char bubble[16], live[16];
    tri_order_facts facts = *known;
    double share_idle = 100 * facts.idle / (facts.idle + c->sim.work);
    printf("%-14s %9.6g %8.1f%% %8s  %-18s %6.4g %8s  %-16s %7.4g %8.4g\n", order->name,
           c->sim.makespan, 100 * c->sim.bubble, number(share_idle, "%.1f%%", bubble),
           order->idle_formula, c->sim.activations, number(facts.activations, "%.4g", live),
           order->activation_formula, c->sim.weight_copies, facts.weight_copies);
}

static tr_status print_needs(const tri_order *order, tr_error *err)
{
    tri_text needs;
    tri_text_init(&needs);
    tri_order_needs(order, &needs);
    tri_text_add(&needs, "\n");
    printf("%-14s needs ", order->name);
    tr_status status = tri_text_put(&needs, stdout, err);
    tri_text_fini(&needs);
    return status;
}

/* A row: of the list, or of the table where list is NULL. */
static tr_status compare_one(const tri_order *order, const tri_schedule_config *sizes,
                             const tri_action_costs *costs, json_t *list, tr_error *err)
{
    tri_schedule_config config = {order->name, sizes->num_ranks, sizes->num_microbatches,
                                  order->default_chunks};
    uint32_t chunks = sizes->chunks_per_rank;
    tri_order_facts facts = {NAN, NAN, NAN};
    tr_error why = {0};
    if (chunks >= order->min_chunks && chunks <= order->max_chunks)
        config.chunks_per_rank = chunks;
    if (tri_order_check(order, config.num_ranks, config.num_microbatches, config.chunks_per_rank,
                        &why) != TR_OK) {
        if (!list)
            return print_needs(order, err);
        tri_doc_sim_row(list, order, NULL, NULL);
        return TR_OK;
    }
    tri_action_costs part = share(costs, config.chunks_per_rank);
    bool pairs = order->flags & TRI_ORDER_OVERLAP;
    tri_sim_case c;
    if (pairs && part.overlap <= 0)
        part.overlap = part.kind[TRI_ACTION_F] + part.kind[TRI_ACTION_B];
    TRI_TRY(tri_sim_case_init(&c, &config, &part, err));
    if (pairs)
        hold_against_pairs(&c);
    order->facts(&c.schedule, &part, &facts);
    if (list)
        tri_doc_sim_row(list, order, &c, &facts);
    else
        print_case(order, &c, &facts);
    tri_sim_case_fini(&c);
    return TR_OK;
}

static tr_status compare_json(const tri_schedule_config *sizes, const tri_action_costs *costs,
                              tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "time_unit", "units");
    tri_doc_count(doc, "num_ranks", sizes->num_ranks);
    tri_doc_count(doc, "microbatches", sizes->num_microbatches);
    json_t *list = tri_doc_list(doc, "schedules");
    for (size_t i = 0; tri_order_at(i); i++) {
        tr_status status = compare_one(tri_order_at(i), sizes, costs, list, err);
        if (status != TR_OK) {
            json_decref(doc);
            return status;
        }
    }
    return tri_doc_print(doc, stdout, err);
}

tr_status tri_sim_compare(const tri_cli *cli, const tri_schedule_config *sizes,
                          const tri_action_costs *costs, tr_error *err)
{
    const double *k = costs->kind;
    if (tri_cli_flag(cli, "json"))
        return compare_json(sizes, costs, err);
    printf("p = %u ranks, m = %u micro-batches; all layers of a rank take F %g, I %g, W %g, B %g "
           "units of time; a message %g\n\n",
           sizes->num_ranks, sizes->num_microbatches, k[TRI_ACTION_F], k[TRI_ACTION_I],
           k[TRI_ACTION_W], k[TRI_ACTION_B], costs->message);
    printf("%-14s %9s %9s %8s  %-18s %6s %8s  %-16s %7s %8s\n", "schedule", "time", "bubble",
           "formula", "idle time", "live", "formula", "live", "weights", "formula");
    for (size_t i = 0; tri_order_at(i); i++)
        TRI_TRY(compare_one(tri_order_at(i), sizes, costs, NULL, err));
    printf("\nbubble: idle share of the rank that is idle longest between its first and last "
           "action; asynchronous\nschedules: in the steady state. live and weights: the rank with "
           "most, in micro-batches and copies\nof all layers of a rank. formula: as published; "
           "docs/pipelines.md says under which conditions.\n");
    return TR_OK;
}
