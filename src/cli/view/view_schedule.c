/* Pipeline schedules: every action with its time, as the simulator has it, and what lives when. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/doc/docs.h"
#include "cli/view/view_parts.h"

static const char *order_name_at(size_t i)
{
    return tri_order_at(i) ? tri_order_at(i)->name : NULL;
}

/* ---- the list ---- */

static void put_order(json_t *list, const tri_order *order)
{
    json_t *item = tri_doc_item(list);
    tri_text needs;
    tri_text_init(&needs);
    tri_order_needs(order, &needs);
    tri_doc_text(item, "name", order->name);
    tri_doc_text(item, "help", order->help);
    tri_doc_text(item, "needs", needs.chars);
    tri_doc_count(item, "min_chunks", order->min_chunks);
    tri_doc_count(item, "max_chunks", order->max_chunks);
    tri_doc_count(item, "default_chunks", order->default_chunks);
    tri_doc_flag(item, "split", order->flags & TRI_ORDER_SPLIT);
    tri_doc_flag(item, "overlap", order->flags & TRI_ORDER_OVERLAP);
    tri_doc_flag(item, "asynchronous", order->flags & TRI_ORDER_ASYNCHRONOUS);
    tri_text_fini(&needs);
}

/* The table that the settings name, or NULL: no address does. */
static const char *table_of(const tri_view *view)
{
    const char *order = tr_settings_string(view->cli->settings, "layout.schedule");
    return order && strncmp(order, "csv:", 4) == 0 ? order + 4 : NULL;
}

/* What the pages begin with: a pipeline of the settings, or a small one. */
static void put_start(const tri_view *view, json_t *doc)
{
    const tr_settings *settings = view->cli->settings;
    int64_t pp = tr_settings_int(settings, "layout.pp"), p = pp > 1 ? pp : 4;
    int64_t m = pp > 1 ? tr_settings_int(settings, "layout.microbatches") : 2 * p;
    const char *name = tr_settings_string(settings, "layout.schedule");
    json_t *start = tri_doc_object(doc, "start");
    const char *file = table_of(view), *slash = file ? strrchr(file, '/') : NULL;
    tri_doc_text(doc, "file", slash ? slash + 1 : file);
    tri_doc_text(start, "name", file ? "file" : name && tri_order_find(name) ? name : "1f1b");
    if (file)
        return;
    tri_doc_count(start, "p", p < TRI_VIEW_RANKS ? p : TRI_VIEW_RANKS);
    tri_doc_count(start, "m", m < TRI_VIEW_MICROBATCHES ? m : TRI_VIEW_MICROBATCHES);
}

tr_status tri_view_schedules(tri_view *view, const tri_http_target *query, json_t *doc,
                             tr_error *err)
{
    (void)query, (void)err;
    json_t *list = tri_doc_list(doc, "schedules"), *most;
    for (size_t i = 0; tri_order_at(i); i++)
        put_order(list, tri_order_at(i));
    most = tri_doc_object(doc, "most");
    tri_doc_count(most, "p", TRI_VIEW_RANKS);
    tri_doc_count(most, "m", TRI_VIEW_MICROBATCHES);
    tri_doc_count(most, "chunks", TRI_VIEW_CHUNKS);
    put_start(view, doc);
    return TR_OK;
}

/* ---- one of them ---- */

static tr_status read_costs(const tri_http_target *query, tri_action_costs *costs, tr_error *err)
{
    static const char *const keys[] = {"F", "I", "W", "B", "FB", "U", "send"};
    tri_text text;
    tri_text_init(&text);
    *costs = tri_sim_unit_costs();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = tri_http_target_arg(query, keys[i]);
        double number = 0;
        tr_status status = tri_view_query_number(query, keys[i], 0, 1e9, &number, err);
        if (status != TR_OK) {
            tri_text_fini(&text);
            return status;
        }
        if (value && *value)
            tri_text_add(&text, "%s%s=%.17g", text.length ? "," : "",
                         strcmp(keys[i], "send") == 0 ? "comm" : keys[i], number);
    }
    tr_status status = text.failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for costs")
                                   : tri_sim_parse_costs(text.length ? text.chars : "", costs, err);
    tri_text_fini(&text);
    return status;
}

static tr_status bound(const tri_schedule *s, tr_error *err)
{
    double cells = (double)s->num_ranks * s->chunks_per_rank * s->num_microbatches;
    if (s->num_ranks <= TRI_VIEW_RANKS && s->num_microbatches <= TRI_VIEW_MICROBATCHES &&
        s->chunks_per_rank <= TRI_VIEW_CHUNKS && cells <= TRI_VIEW_CELLS)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "a schedule of %u ranks, %u chunks on each and %u micro-batches is too large "
                    "for a picture; at most %d, %d and %d, and %d when multiplied",
                    s->num_ranks, s->chunks_per_rank, s->num_microbatches, TRI_VIEW_RANKS,
                    TRI_VIEW_CHUNKS, TRI_VIEW_MICROBATCHES, TRI_VIEW_CELLS);
}

static tr_status read_sizes(const tri_http_target *query, tri_schedule_config *config,
                            tr_error *err)
{
    int64_t p = 4, m = 8, chunks = 0;
    TRI_TRY(tri_view_query_int(query, "p", 1, TRI_VIEW_RANKS, &p, err));
    TRI_TRY(tri_view_query_int(query, "m", 1, TRI_VIEW_MICROBATCHES, &m, err));
    TRI_TRY(tri_view_query_int(query, "chunks", 0, TRI_VIEW_CHUNKS, &chunks, err));
    config->num_ranks = (uint32_t)p;
    config->num_microbatches = (uint32_t)m;
    config->chunks_per_rank = (uint32_t)chunks;
    if (!tri_order_find(config->order))
        return tri_view_query_unknown("schedule", config->order, order_name_at, err);
    return TR_OK;
}

/* Rows of the table stand between bars, since an address has no line ends. */
static tr_status parse_table(const char *csv, tri_schedule *schedule, tr_error *err)
{
    char *text = strdup(csv);
    if (!text)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a table");
    for (char *at = text; *at; at++)
        *at = *at == '|' ? '\n' : *at;
    tr_status status = tri_schedule_parse(text, strlen(text), "the table", schedule, err);
    free(text);
    return status;
}

/* One of ours: the bound holds before anything is made. */
static tr_status build_order(const tri_http_target *query, const char *name, tri_schedule *schedule,
                             tr_error *err)
{
    tri_schedule_config config = {.order = name};
    TRI_TRY(read_sizes(query, &config, err));
    uint32_t chunks = config.chunks_per_rank;
    tri_schedule sizes = {.num_ranks = config.num_ranks,
                          .num_microbatches = config.num_microbatches,
                          .chunks_per_rank =
                              chunks ? chunks : tri_order_find(name)->default_chunks};
    TRI_TRY(bound(&sizes, err));
    return tri_schedule_build(&config, schedule, err);
}

static tr_status build(const tri_view *view, const tri_http_target *query, tri_schedule *schedule,
                       tr_error *err)
{
    const char *name = tri_http_target_arg(query, "name");
    const char *csv = tri_http_target_arg(query, "csv");
    bool is_file = name && strcmp(name, "file") == 0 && table_of(view);
    if (csv && name)
        return tri_fail(err, TR_ERROR_INPUT, "csv is a schedule of its own; leave name out");
    if (!csv && !is_file)
        return build_order(query, name ? name : "1f1b", schedule, err);
    tri_schedule_config file = {.order =
                                    tr_settings_string(view->cli->settings, "layout.schedule")};
    TRI_TRY(csv ? parse_table(csv, schedule, err) : tri_schedule_build(&file, schedule, err));
    tr_status status = bound(schedule, err);
    if (status != TR_OK)
        tri_schedule_fini(schedule);
    return status;
}

static json_t *action_of(const tri_action *a, double start, double end)
{
    json_t *item = json_array();
    json_array_append_new(item, json_string(tri_action_name(a->kind)));
    json_array_append_new(item, json_integer(a->chunk));
    json_array_append_new(item, json_integer(a->microbatch));
    json_array_append_new(item, json_real(start));
    json_array_append_new(item, json_real(end));
    return item;
}

/* Lists of a rank: what it computes, and after each change how many chunks' activations it holds;
 * counted in the order of its one lane, as the simulator does. */
static void put_rank(json_t *rank, const tri_sim *sim, uint32_t number)
{
    const tri_action_list *list = &sim->index.schedule->ranks[number];
    json_t *actions = tri_doc_list(rank, "actions"), *live = tri_doc_list(rank, "live");
    int64_t held = 0;
    for (size_t i = 0; i < list->count; i++) {
        const tri_action *a = &list->actions[i];
        size_t at = sim->index.first[number] + i;
        if (!tri_action_computes(a->kind))
            continue;
        json_t *item = action_of(a, sim->start[at], sim->end[at]);
        if (a->overlap)
            json_array_append_new(item, json_true());
        json_array_append_new(actions, item);
        bool frees = a->kind == TRI_ACTION_B || a->kind == TRI_ACTION_W;
        if (a->kind != TRI_ACTION_F && !frees)
            continue;
        held += frees ? -1 : 1;
        json_array_append_new(
            live, json_pack("[fI]", frees ? sim->end[at] : sim->start[at], (json_int_t)held));
    }
}

static void put_messages(json_t *doc, const tri_sim *sim)
{
    const tri_schedule *s = sim->index.schedule;
    json_t *list = tri_doc_list(doc, "messages");
    for (uint32_t r = 0; r < s->num_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].count; i++) {
            const tri_action *a = &s->ranks[r].actions[i];
            size_t at = sim->index.first[r] + i;
            if (a->kind != TRI_ACTION_SEND_F && a->kind != TRI_ACTION_SEND_B)
                continue;
            json_t *item = action_of(a, sim->start[at], sim->end[at]);
            json_array_insert_new(item, 0, json_integer(tri_message_peer(s, a)));
            json_array_insert_new(item, 0, json_integer(r));
            json_array_append_new(list, item);
        }
}

static void put_facts(json_t *doc, const tri_sim_case *c, const tri_action_costs *costs)
{
    static const char *const keys[TRI_NUM_ACTIONS] = {"f", "i", "w", "b", "u"};
    const tri_order *order = c->schedule.order;
    json_t *costs_doc = tri_doc_object(doc, "costs");
    for (int k = 0; k < TRI_NUM_ACTIONS; k++)
        tri_doc_number(costs_doc, keys[k], costs->kind[k]);
    tri_doc_number(costs_doc, "fb", costs->overlap > 0 ? costs->overlap : (double)NAN);
    tri_doc_number(costs_doc, "send", costs->message);
    tri_doc_count(doc, "chunks", c->schedule.num_chunks);
    tri_doc_count(doc, "routes", c->schedule.num_routes);
    tri_doc_flag(doc, "asynchronous", c->schedule.update_every > 0);
    tri_doc_number(doc, "chunk_share", (double)c->schedule.num_ranks / c->schedule.num_chunks);
    tri_order_facts facts = {NAN, NAN, NAN};
    if (order && order->facts)
        order->facts(&c->schedule, costs, &facts);
    tri_doc_number(doc, "formula_bubble_share", facts.idle / (facts.idle + c->sim.work));
    tri_doc_number(doc, "formula_activations", facts.activations);
}

static void put_case(json_t *doc, const tri_sim_case *c, const tri_action_costs *costs)
{
    json_t *rank;
    size_t i;
    tri_doc_text(doc, "name", c->schedule.order ? c->schedule.order->name : "csv");
    tri_doc_sim(doc, c, "units");
    json_array_foreach(json_object_get(doc, "ranks"), i, rank)
    {
        tri_doc_number(rank, "update", c->sim.ranks[i].update);
        put_rank(rank, &c->sim, (uint32_t)i);
    }
    put_messages(doc, &c->sim);
    put_facts(doc, c, costs);
}

tr_status tri_view_schedule(tri_view *view, const tri_http_target *query, json_t *doc,
                            tr_error *err)
{
    tri_sim_case c = {0};
    tri_action_costs costs;
    TRI_TRY(read_costs(query, &costs, err));
    TRI_TRY(build(view, query, &c.schedule, err));
    TRI_TRY(tri_sim_case_time(&c, &costs, err));
    put_case(doc, &c, &costs);
    tri_sim_case_fini(&c);
    return TR_OK;
}
