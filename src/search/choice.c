#include "search/choice.h"

#include <stdlib.h>
#include <string.h>

/* Asynchronous orders train something else, and those of two directions hold every weight twice. */
static const tri_search_order orders[] = {
    {.name = "1f1b"},
    {.name = "interleaved", .many_chunks = true},
    {.name = "zb-h1", .puts_off = true},
    {.name = "1f1b-v", .chunks = 2},
    {.name = "zb-v", .chunks = 2, .puts_off = true},
    {.name = "v-half", .chunks = 2, .puts_off = true},
    {.name = "v-min", .chunks = 2, .puts_off = true},
    {.name = "gpipe", .dominated = true},
};

const tri_search_order *tri_search_order_at(size_t i)
{
    return i < sizeof orders / sizeof *orders ? &orders[i] : NULL;
}

size_t tri_search_order_find(const char *name)
{
    size_t i = 0;
    while (tri_search_order_at(i) && strcmp(orders[i].name, name) != 0)
        i++;
    return i;
}

static const char *const keeping_words[] = {"none",    "selective", "full",
                                            "every:2", "every:4",   "budget"};

/* ---- assignments ---- */

enum { MOST_ASSIGNMENTS = 20, ASSIGNMENT = 64 };

typedef struct assignments {
    char text[MOST_ASSIGNMENTS][ASSIGNMENT];
    int num;
} assignments;

static void assign(assignments *list, const char *name, const char *value)
{
    snprintf(list->text[list->num++], ASSIGNMENT, "%s=%s", name, value);
}

static void assign_number(assignments *list, const char *name, uint64_t value)
{
    snprintf(list->text[list->num++], ASSIGNMENT, "%s=%llu", name, (unsigned long long)value);
}

static void assign_flag(assignments *list, const char *name, bool value)
{
    assign(list, name, value ? "true" : "false");
}

/* Every setting of a layout, so that none of a file is left in force. */
static void list_assignments(const tri_layout_choice *c, uint64_t budget_bytes, assignments *list)
{
    list->num = 0;
    assign_flag(list, "layout.auto", false);
    assign_number(list, "layout.tp", c->tp);
    assign_flag(list, "layout.sp", c->sp);
    assign_number(list, "layout.cp", c->cp);
    assign_number(list, "layout.pp", c->pp);
    assign(list, "layout.stages", ""); /* divided by cost */
    assign(list, "layout.schedule", orders[c->schedule].name);
    assign_number(list, "layout.chunks", c->chunks);
    assign_number(list, "layout.dp", c->dp);
    assign_number(list, "layout.zero", c->zero);
    assign_number(list, "layout.shard_group", c->shard_group);
    assign_number(list, "layout.prefetch", c->prefetch);
    assign_flag(list, "layout.keep_gathered", c->keep_gathered);
    assign_number(list, "layout.ep", c->ep);
    assign_number(list, "layout.etp", c->whole_experts ? 1 : 0);
    assign_number(list, "layout.microbatches", c->microbatches);
    if (c->keeping == TRI_KEEP_FITTING)
        snprintf(list->text[list->num++], ASSIGNMENT, "layout.recompute=budget:%lluMiB",
                 (unsigned long long)(budget_bytes >> 20));
    else
        assign(list, "layout.recompute", keeping_words[c->keeping]);
    assign(list, "precision.linear", c->linear8 ? "fp8" : "same");
    if (c->group_lanes)
        assign(list, "run.lanes", "group");
}

tr_status tri_choice_apply(const tri_layout_choice *choice, uint64_t budget_bytes,
                           tr_settings *settings, tr_error *err)
{
    assignments list;
    list_assignments(choice, budget_bytes, &list);
    for (int i = 0; i < list.num; i++)
        TRI_TRY(tr_settings_set(settings, list.text[i], err));
    return TR_OK;
}

/* What the settings say already is left out: a default, or what was given. */
static bool is_so_already(const tr_settings *settings, const char *assignment)
{
    char name[ASSIGNMENT];
    const char *value = strchr(assignment, '=') + 1;
    snprintf(name, sizeof name, "%.*s", (int)(value - 1 - assignment), assignment);
    const char *text = tr_settings_string(settings, name);
    if (*text || !*value)
        return strcmp(text, value) == 0;
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        return tr_settings_bool(settings, name) == (strcmp(value, "true") == 0);
    return tr_settings_int(settings, name) == strtoll(value, NULL, 10);
}

void tri_choice_command(const tri_layout_choice *choice, uint64_t budget_bytes,
                        const tr_settings *settings, tri_text *text)
{
    assignments list;
    list_assignments(choice, budget_bytes, &list);
    for (int i = 0; i < list.num; i++)
        if (!is_so_already(settings, list.text[i]))
            tri_text_add(text, " --set %s", list.text[i]);
}

tri_choice_match tri_choice_compare(const tri_layout_choice *choice, uint64_t budget_bytes,
                                    const char *assignment)
{
    assignments list;
    size_t name = strcspn(assignment, "=") + 1;
    list_assignments(choice, budget_bytes, &list);
    for (int i = 0; i < list.num; i++)
        if (strncmp(list.text[i], assignment, name) == 0)
            return strcmp(list.text[i], assignment) == 0 ? TRI_CHOICE_SAME : TRI_CHOICE_OTHER;
    return TRI_CHOICE_ELSE;
}

/* ---- for people ---- */

static void add_pipeline(const tri_layout_choice *c, tri_text *text)
{
    if (c->pp == 1)
        return;
    tri_text_add(text, ", pp %u %s", c->pp, orders[c->schedule].name);
    if (orders[c->schedule].many_chunks)
        tri_text_add(text, " x %u", c->chunks);
}

static void add_data(const tri_layout_choice *c, tri_text *text)
{
    if (c->dp > 1)
        tri_text_add(text, ", dp %u", c->dp);
    if (c->zero > 0)
        tri_text_add(text, "%s zero %u", c->dp > 1 ? "" : ",", c->zero);
    if (c->shard_group > 0)
        tri_text_add(text, " in groups of %u", c->shard_group);
    if (c->keep_gathered)
        tri_text_add(text, " kept gathered");
    if (c->zero == 3 && c->prefetch != 1)
        tri_text_add(text, " prefetch %u", c->prefetch);
}

void tri_choice_text(const tri_layout_choice *c, tri_text *text)
{
    static const char *const words[] = {"",
                                        ", selective recomputation",
                                        ", full recomputation",
                                        ", each 2nd layer recomputed",
                                        ", each 4th layer recomputed",
                                        ", recomputation to fit"};
    size_t begin = text->length;
    if (c->tp > 1)
        tri_text_add(text, ", tp %u%s", c->tp, c->sp ? " sp" : "");
    if (c->cp > 1)
        tri_text_add(text, ", cp %u", c->cp);
    if (c->ep > 1)
        tri_text_add(text, ", ep %u%s", c->ep, c->whole_experts && c->tp > 1 ? " etp 1" : "");
    add_pipeline(c, text);
    add_data(c, text);
    tri_text_add(text, ", %u x %u row%s", c->microbatches, c->rows, c->rows == 1 ? "" : "s");
    tri_text_add(text, "%s%s%s", words[c->keeping], c->linear8 ? ", fp8" : "",
                 c->group_lanes ? ", a lane for each group" : "");
    if (!text->failed && text->length >= begin + 2) { /* the first comma */
        memmove(text->chars + begin, text->chars + begin + 2, text->length - begin - 1);
        text->length -= 2;
    }
}

bool tri_choice_same_mesh(const tri_layout_choice *a, const tri_layout_choice *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->ep == b->ep && a->pp == b->pp && a->dp == b->dp;
}
