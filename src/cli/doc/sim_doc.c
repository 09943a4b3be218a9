/* trireme sim --json: schedules and their times. */
#include <math.h>

#include "cli/doc/docs.h"

static void put_ranks(json_t *doc, const tri_sim_case *c)
{
    json_t *list = tri_doc_list(doc, "ranks");
    for (uint32_t i = 0; i < c->schedule.num_ranks; i++) {
        const tri_sim_rank *r = &c->sim.ranks[i];
        json_t *item = tri_doc_item(list);
        tri_doc_count(item, "rank", i);
        tri_doc_number(item, "start", r->start);
        tri_doc_number(item, "end", r->end);
        tri_doc_number(item, "busy", r->busy);
        tri_doc_number(item, "idle", r->end - r->start - r->busy);
        tri_doc_number(item, "steady_idle",
                       c->schedule.update_every > 0 ? r->steady_idle : (double)NAN);
        tri_doc_count(item, "live_chunks", r->peak_live);
        tri_doc_number(item, "weight_copies", r->weight_copies);
        tri_doc_count(item, "sends", r->num_messages);
        tri_doc_count(item, "inbox_messages", r->peak_inbox);
    }
}

static void put_totals(json_t *object, const tri_sim *sim)
{
    tri_doc_number(object, "time", sim->makespan);
    tri_doc_number(object, "work", sim->work);
    tri_doc_number(object, "idle", sim->idle);
    tri_doc_number(object, "bubble_share", sim->bubble);
    tri_doc_number(object, "activations", sim->activations);
    tri_doc_number(object, "weight_copies", sim->weight_copies);
    tri_doc_count(object, "staleness_updates", sim->staleness);
}

void tri_doc_sim(json_t *doc, const tri_sim_case *c, const char *unit)
{
    tri_doc_text(doc, "time_unit", unit);
    tri_doc_count(doc, "num_ranks", c->schedule.num_ranks);
    tri_doc_count(doc, "microbatches", c->schedule.num_microbatches);
    tri_doc_count(doc, "chunks_per_rank", c->schedule.chunks_per_rank);
    put_totals(doc, &c->sim);
    put_ranks(doc, c);
}

void tri_doc_sim_row(json_t *list, const tri_order *order, const tri_sim_case *c,
                     const tri_order_facts *facts)
{
    json_t *item = tri_doc_item(list);
    tri_doc_text(item, "schedule", order->name);
    if (!c) {
        tri_text needs;
        tri_text_init(&needs);
        tri_order_needs(order, &needs);
        tri_doc_text(item, "needs", needs.chars);
        tri_text_fini(&needs);
        return;
    }
    put_totals(item, &c->sim);
    tri_doc_number(item, "formula_bubble_share", facts->idle / (facts->idle + c->sim.work));
    tri_doc_number(item, "formula_activations", facts->activations);
    tri_doc_number(item, "formula_weight_copies", facts->weight_copies);
}

void tri_doc_schedules(json_t *doc)
{
    json_t *list = tri_doc_list(doc, "schedules");
    for (size_t i = 0; tri_order_at(i); i++) {
        const tri_order *order = tri_order_at(i);
        json_t *item = tri_doc_item(list);
        tri_text needs;
        tri_text_init(&needs);
        tri_order_needs(order, &needs);
        tri_doc_text(item, "name", order->name);
        tri_doc_text(item, "help", order->help);
        tri_doc_text(item, "needs", needs.chars);
        tri_text_fini(&needs);
    }
}
