/* What layout.auto says of its choice, and why it is not another. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/auto/auto_parts.h"
#include "cli/lines.h"

enum { MOST_TOLD = 3, MOST_REASONS = TRI_AUTO_TRIES + TRI_SEARCH_FAMILIES };

static const tri_layout_result *best_of(const tri_auto_try *t)
{
    return &t->found.results[t->found.best[0]];
}

static void seconds_text(double seconds, char text[24])
{
    snprintf(text, 24, seconds < 1 ? "%.1f ms" : "%.2f s", seconds < 1 ? 1e3 * seconds : seconds);
}

static void add_choice(const tri_auto_try *t, const tri_layout_choice *choice, tri_text *text)
{
    if (t->ranks == 1)
        tri_text_add(text, "one rank, ");
    tri_choice_text(choice, text);
}

/* ---- the line ---- */

static const tri_auto_try *one_rank(const tri_auto *a)
{
    for (int i = 0; i < a->num_tries; i++)
        if (a->tries[i].ranks == 1 && a->tries[i].found.num_best > 0)
            return &a->tries[i];
    return NULL;
}

static void tell_line(const tri_auto *a, const tri_auto_try *best, tri_text *text)
{
    const tri_layout_result *r = best_of(best);
    const tri_auto_try *one = one_rank(a);
    char seconds[24];
    seconds_text(r->seconds, seconds);
    add_choice(best, &r->choice, text);
    tri_text_add(text, " (");
    if (one && one != best)
        tri_text_add(text, "%.2f x faster than one rank; ", best_of(one)->seconds / r->seconds);
    tri_text_add(text, "step %s ± %.0f %%)", seconds, 100 * best->of.machine.error);
}

/* ---- the reasons ---- */

typedef struct reason {
    char text[300];
    double weight; /* the heaviest are told */
} reason;

static void more_text(double more, char text[16])
{
    if (more < 0.0005)
        snprintf(text, 16, "as fast");
    else
        snprintf(text, 16, "+%.*f %%", more < 0.0995 ? 1 : 0, 100 * more);
}

/* Other numbers of ranks say most. */
static void reason_of_try(const tri_auto_try *t, double best_s, reason *to)
{
    char ranks[32], more[16];
    tri_text choice;
    snprintf(ranks, sizeof ranks, "%u rank%s", t->ranks, t->ranks == 1 ? "" : "s");
    to->weight = 4;
    if (t->why[0]) {
        snprintf(to->text, sizeof to->text, "%s: %s", ranks, t->why);
        return;
    }
    if (t->found.num_best == 0) {
        snprintf(to->text, sizeof to->text, "%s: no layout of so many fits", ranks);
        return;
    }
    tri_text_init(&choice);
    tri_choice_text(&best_of(t)->choice, &choice);
    more_text(best_of(t)->seconds / best_s - 1, more);
    snprintf(to->text, sizeof to->text, "%s: %s (%s)", ranks, more,
             choice.chars ? choice.chars : "");
    tri_text_fini(&choice);
}

/* Whether a trait is of the mesh: "tp 2", "no pipeline". */
static bool is_axis(const char *trait)
{
    static const char *const starts[] = {"tp ", "pp ", "cp ", "ep ", "no "};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(trait, starts[i], 3) == 0)
            return true;
    return false;
}

/* Then what would be simpler and does not fit; then what is close, other meshes first. */
static void reason_of_family(const tri_search_family *f, double best_s, reason *to)
{
    double more = f->best.seconds / best_s - 1;
    char text[16];
    bool simpler = strncmp(f->trait, "no ", 3) == 0 || strncmp(f->trait, "zero", 4) == 0;
    more_text(more, text);
    if (!f->any_fits) {
        snprintf(to->text, sizeof to->text, "%s: %s", f->trait, f->why);
        to->weight = simpler ? 3 : 0;
        return;
    }
    snprintf(to->text, sizeof to->text, more < 0.0005 ? "%s: %s" : "%s: %s, %s", f->trait, text,
             f->why);
    bool order = strncmp(f->trait, "schedule", 8) == 0 || strstr(f->trait, "without");
    to->weight = more < 0.0005 || order ? 0 : 1 / (1 + more) + is_axis(f->trait);
}

static int list_reasons(const tri_auto *a, const tri_auto_try *best, reason list[MOST_REASONS])
{
    int num = 0;
    double best_s = best_of(best)->seconds;
    for (int i = 0; i < a->num_tries; i++)
        if (&a->tries[i] != best)
            reason_of_try(&a->tries[i], best_s, &list[num++]);
    for (size_t i = 0; i < best->found.num_families; i++)
        reason_of_family(&best->found.families[i], best_s, &list[num++]);
    return num;
}

/* The heaviest that was not told yet; -1: none is left. */
static int next_reason(const reason *list, int num, const bool *told)
{
    int next = -1;
    for (int i = 0; i < num; i++)
        if (!told[i] && list[i].weight > 0 && (next < 0 || list[i].weight > list[next].weight))
            next = i;
    return next;
}

void tri_auto_tell(const tri_auto *a, const tri_auto_try *best, tri_auto_layout *layout)
{
    reason list[MOST_REASONS];
    bool told[MOST_REASONS] = {false};
    int num = list_reasons(a, best, list), next;
    tell_line(a, best, &layout->line);
    const char *line = layout->line.chars ? layout->line.chars : "";
    tri_text_add(&layout->note, "%s; by %s", line, a->by);
    tri_text_add(&layout->head, "# layout.auto chose this layout: %s\n# by %s\n", line, a->by);
    for (int i = 0; i < num; i++)
        tri_text_add(&layout->head, "# with %s\n", list[i].text);
    for (int k = 0; k < MOST_TOLD && (next = next_reason(list, num, told)) >= 0; k++) {
        told[next] = true;
        tri_text_add(&layout->why, "with %s\n", list[next].text);
        tri_text_add(&layout->note, "; with %s", list[next].text);
    }
}

void tri_auto_layout_print(const tri_auto_layout *layout)
{
    if (!layout->chosen)
        return;
    if (layout->recorded) {
        tri_cli_line("layout",
                     "kept: that of the run, since layout.auto chooses when a run begins");
        return;
    }
    tri_cli_line("layout", "chosen: %s", layout->line.chars ? layout->line.chars : "?");
    for (const char *at = layout->why.chars; at && *at; at += strcspn(at, "\n") + 1)
        tri_cli_line("", "%.*s", (int)strcspn(at, "\n"), at);
}

/* ---- nothing fits ---- */

static const char *refusal(const tri_search *s)
{
    for (size_t i = 0; i < s->cells.count; i++)
        if (!s->cells.items[i].known && s->cells.items[i].why[0])
            return s->cells.items[i].why;
    return NULL;
}

static void add_numbers(const tri_auto *a, tri_text *text)
{
    for (int i = 0; i < a->num_tries; i++)
        tri_text_add(text, "%s%u",
                     i == 0                  ? ""
                     : i + 1 == a->num_tries ? " or "
                                             : ", ",
                     a->tries[i].ranks);
    bool one = a->num_tries == 1 && a->tries[0].ranks == 1;
    tri_text_add(text, " rank%s", one ? "" : "s");
}

/* The least that any layout takes, as far as is known, and what it may; false: none is known. */
static bool least_bytes(const tri_auto *a, double *least, double *room)
{
    *least = INFINITY;
    for (int i = 0; i < a->num_tries; i++)
        for (size_t k = 0; k < a->tries[i].found.num_results; k++) {
            const tri_layout_result *r = &a->tries[i].found.results[k];
            if (!r->known || (double)r->bytes >= *least)
                continue;
            *least = (double)r->bytes;
            *room = (double)a->tries[i].of.machine.memory_bytes;
        }
    return *least < INFINITY;
}

static tr_status explain(const tri_auto *a, const char *ranks, tr_error *err)
{
    double least, room = 0;
    size_t space = 0, large = 0;
    const char *why = NULL;
    char text[2][16];
    for (int i = 0; i < a->num_tries; i++) {
        space += a->tries[i].found.space.count;
        large += a->tries[i].found.num_too_large;
        why = why ? why : a->tries[i].why[0] ? NULL : refusal(&a->tries[i].found);
        room = fmax(room, (double)a->tries[i].of.machine.memory_bytes);
    }
    if (space == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.auto: no layout of %s has what is given, and a batch of %lld rows; "
                        "free a setting of the layout, or change train.batch",
                        ranks, (long long)tr_settings_int(a->cli->settings, "train.batch"));
    if (least_bytes(a, &least, &room))
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.auto: no layout of %s fits: the smallest that was looked at takes "
                        "%s of %s a rank; raise run.memory_limit, take shorter rows "
                        "(data.seq_len), a smaller model or a larger machine",
                        ranks, tri_text_bytes(least, text[0]), tri_text_bytes(room, text[1]));
    if (large == 0 && why)
        return tri_fail(err, TR_ERROR_INPUT, "layout.auto: no layout of %s can be: %s", ranks, why);
    return tri_fail(err, TR_ERROR_INPUT,
                    "layout.auto: no layout of %s fits into %s a rank; raise run.memory_limit, "
                    "take shorter rows (data.seq_len), a smaller model or a larger machine",
                    ranks, tri_text_bytes(room, text[0]));
}

tr_status tri_auto_nothing_fits(const tri_auto *a, tr_error *err)
{
    tri_text ranks;
    bool any = false;
    for (int i = 0; i < a->num_tries; i++)
        any |= !a->tries[i].why[0];
    if (!any)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.auto cannot tell how fast %u ranks are: %s; give other axes of the "
                        "layout, or leave layout.auto out",
                        a->tries[0].ranks, a->tries[0].why);
    tri_text_init(&ranks);
    add_numbers(a, &ranks);
    tr_status status = explain(a, ranks.chars ? ranks.chars : "?", err);
    tri_text_fini(&ranks);
    return status;
}
