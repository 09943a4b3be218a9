/* trireme plan --search --json. */
#include <math.h>
#include <stdio.h>

#include "cli/doc/json_doc.h"
#include "cli/search/plan_search.h"

static void add_choice(json_t *item, const tri_layout_choice *c)
{
    static const char *const keepings[] = {"none",    "selective", "full",
                                           "every:2", "every:4",   "budget"};
    json_t *layout = tri_doc_object(item, "layout");
    tri_doc_count(layout, "tp", c->tp);
    tri_doc_flag(layout, "sp", c->sp);
    tri_doc_count(layout, "cp", c->cp);
    tri_doc_count(layout, "ep", c->ep);
    tri_doc_flag(layout, "whole_experts", c->whole_experts);
    tri_doc_count(layout, "pp", c->pp);
    tri_doc_text(layout, "schedule", tri_search_order_at(c->schedule)->name);
    tri_doc_count(layout, "chunks", c->chunks);
    tri_doc_count(layout, "dp", c->dp);
    tri_doc_count(layout, "zero", c->zero);
    tri_doc_count(layout, "shard_group", c->shard_group);
    tri_doc_flag(layout, "keep_gathered", c->keep_gathered);
    tri_doc_count(layout, "prefetch", c->prefetch);
    tri_doc_count(layout, "microbatches", c->microbatches);
    tri_doc_count(layout, "rows", c->rows);
    tri_doc_text(layout, "recompute", keepings[c->keeping]);
    tri_doc_flag(layout, "fp8", c->linear8);
    tri_doc_flag(layout, "group_lanes", c->group_lanes);
}

static void add_result(json_t *item, const tri_plan_search *p, const tri_layout_result *r)
{
    double tokens = (double)p->found.facts.batch * (double)p->found.facts.seq_len;
    add_choice(item, &r->choice);
    tri_doc_number(item, "step_seconds", r->seconds);
    tri_doc_number(item, "tokens_per_second", tokens / r->seconds);
    tri_doc_number(item, "mfu_share", r->mfu);
    tri_doc_count(item, "memory_bytes", (int64_t)r->bytes);
    tri_doc_count(item, "fullest_stage", r->fullest);
    tri_doc_flag(item, "tied", tri_plan_search_tied(p, r));
    json_t *split = tri_doc_object(item, "split");
    for (int k = 0; k < TRI_NUM_TIME_KINDS; k++) {
        char key[48];
        snprintf(key, sizeof key, "%s_seconds", tri_time_kind_name((tri_time_kind)k));
        tri_doc_number(split, key, r->time[k]);
    }
    tri_doc_number(split, "recomputed_seconds", r->redone);
    tri_doc_number(split, "idle_seconds", r->idle);
    json_t *exposed = tri_doc_list(item, "exposed");
    for (uint32_t a = 0; a < r->num_axes; a++) {
        json_t *axis = tri_doc_item(exposed);
        tri_doc_text(axis, "axis", r->axis[a]);
        tri_doc_number(axis, "seconds", r->exposed[a]);
    }
}

static void add_family(json_t *list, const tri_plan_search *p, const tri_search_family *f)
{
    json_t *item = tri_doc_item(list);
    const tri_search *s = &p->found;
    tri_doc_text(item, "trait", f->trait);
    tri_doc_flag(item, "fits", f->any_fits);
    tri_doc_text(item, "why", f->why);
    if (f->any_fits)
        tri_doc_number(item, "slower_share", f->best.seconds / s->results[s->best[0]].seconds - 1);
    else
        tri_doc_null(item, "slower_share");
    tri_doc_count(item, "memory_bytes", (int64_t)f->best.bytes);
    add_choice(item, &f->best.choice);
}

static void add_front(json_t *doc, const tri_plan_search *p)
{
    size_t front[256], num = tri_search_front(&p->found, front, 256);
    json_t *list = tri_doc_list(doc, "front");
    for (size_t i = 0; i < num; i++) {
        const tri_layout_result *r = &p->found.results[front[i]];
        json_t *item = tri_doc_item(list);
        tri_doc_number(item, "step_seconds", r->seconds);
        tri_doc_count(item, "memory_bytes", (int64_t)r->bytes);
        add_choice(item, &r->choice);
    }
}

static void add_sizes(json_t *doc, const tri_plan_search *p)
{
    json_t *list = tri_doc_list(doc, "sizes");
    for (size_t i = 0; i < p->num_sizes; i++) {
        const tri_plan_size *size = &p->sizes[i];
        json_t *item = tri_doc_item(list);
        tri_doc_count(item, "devices", size->devices);
        tri_doc_flag(item, "fits", size->fits);
        tri_doc_flag(item, "chosen", i == p->chosen);
        if (!size->fits)
            continue;
        tri_doc_number(item, "step_seconds", size->best.seconds);
        tri_doc_number(item, "mfu_share", size->best.mfu);
        tri_doc_count(item, "memory_bytes", (int64_t)size->best.bytes);
        add_choice(item, &size->best.choice);
        if (p->tokens <= 0)
            continue;
        tri_doc_number(item, "days", size->days);
        tri_doc_number(item, "effective_share", size->effective);
        tri_doc_number(item, "device_hours", size->device_hours);
        tri_doc_number(item, "kwh", size->kwh < 0 ? NAN : size->kwh);
        tri_doc_number(item, "money", size->money < 0 ? NAN : size->money);
    }
}

static void add_space(json_t *doc, const tri_search *s)
{
    json_t *space = tri_doc_object(doc, "space");
    tri_doc_count(space, "layouts", (int64_t)s->space.count);
    tri_doc_count(space, "refused", (int64_t)s->num_refused);
    tri_doc_count(space, "too_large", (int64_t)s->num_too_large);
    tri_doc_count(space, "looked_at", (int64_t)s->num_results);
    if (s->rest_bound > 0)
        tri_doc_number(space, "others_take_seconds", s->rest_bound);
    else
        tri_doc_null(space, "others_take_seconds");
}

tr_status tri_plan_search_json(const tri_plan_search *p, tr_error *err)
{
    const tri_search *s = &p->found;
    json_t *doc = tri_doc_begin();
    tri_text command;
    tri_doc_count(doc, "devices", p->of.machine.devices);
    tri_doc_count(doc, "memory_limit_bytes", (int64_t)p->of.machine.memory_bytes);
    tri_doc_number(doc, "device_bytes", p->device_bytes);
    tri_doc_number(doc, "error_share", p->of.machine.error);
    json_t *assumed = tri_doc_list(doc, "assumed");
    for (int i = 0; i < p->num_assumed; i++)
        tri_doc_text_item(assumed, p->assumed[i]);
    add_space(doc, s);
    if (p->num_sizes > 0)
        add_sizes(doc, p);
    json_t *list = tri_doc_list(doc, "best");
    for (size_t i = 0; i < s->num_best; i++)
        add_result(tri_doc_item(list), p, &s->results[s->best[i]]);
    add_front(doc, p);
    list = tri_doc_list(doc, "why_not");
    for (size_t i = 0; i < s->num_families; i++)
        add_family(list, p, &s->families[i]);
    tri_text_init(&command);
    if (s->num_best > 0)
        tri_plan_search_command(p, &s->results[s->best[0]].choice, &command);
    tri_doc_text(doc, "command", command.chars);
    tri_text_fini(&command);
    return tri_doc_print(doc, stdout, err);
}
