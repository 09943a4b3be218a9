/* Why not otherwise? For traits that the best layout does not have: the best that has it, and what
 * it takes more, or how much memory it wants. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "search/search_parts.h"

/* Layouts of a family that are looked at, beside those that were anyway. */
enum { MOST_LOOKS = 1 };

typedef bool (*trait_fn)(const tri_layout_choice *choice, uint32_t value);

static bool has_tp(const tri_layout_choice *c, uint32_t value)
{
    return c->tp == value;
}

static bool has_pp(const tri_layout_choice *c, uint32_t value)
{
    return c->pp == value;
}

static bool has_zero(const tri_layout_choice *c, uint32_t value)
{
    return c->zero == value;
}

static bool has_keeping(const tri_layout_choice *c, uint32_t value)
{
    return c->keeping == value;
}

static bool has_cp(const tri_layout_choice *c, uint32_t value)
{
    return c->cp == value;
}

static bool has_ep(const tri_layout_choice *c, uint32_t value)
{
    return c->ep == value;
}

static bool has_order(const tri_layout_choice *c, uint32_t value)
{
    return c->pp > 1 && c->schedule == value;
}

static bool has_no_sp(const tri_layout_choice *c, uint32_t value)
{
    (void)value;
    return c->tp > 1 && !c->sp;
}

/* ---- members ---- */

typedef struct family {
    tri_search_run_state *run;
    const tri_layout_result *best; /* of all */
    trait_fn has;
    uint32_t value;
} family;

/* The best of those that were looked at; TRI_NONE: none was. */
static size_t best_member(const family *f)
{
    const tri_search *out = f->run->out;
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < out->num_results; i++)
        if (out->results[i].known && f->has(&out->results[i].choice, f->value) &&
            (found == SIZE_MAX || tri_result_better(&out->results[i], &out->results[found])))
            found = i;
    return found;
}

static bool is_member(const void *context, const tri_layout_choice *choice)
{
    const family *f = context;
    return f->has(choice, f->value);
}

/* The fastest of the members whose bound is so far below the memory that they will fit; SIZE_MAX:
 * none is left. */
static size_t sure_to_fit(const family *f)
{
    const double far = 0.4;
    for (size_t i = 0; i < f->run->num; i++) {
        const tri_candidate *candidate = &f->run->list[i];
        if (!candidate->looked && is_member(f, &f->run->out->space.items[candidate->choice]) &&
            candidate->bytes < far * (double)f->run->c->machine.memory_bytes)
            return i;
    }
    return SIZE_MAX;
}

/* Looks at the members that others say will be fastest, as long as they may be better than the
 * best of them; and, where none is known to fit, at one that is sure to. */
static tr_status look_at_members(const family *f, tr_error *err)
{
    tri_search_run_state *run = f->run;
    size_t at = best_member(f), next[TRI_SEARCH_BATCH];
    bool known = at != SIZE_MAX && run->out->results[at].fits;
    double limit = known ? run->out->results[at].seconds : INFINITY;
    const tri_search_filter filter = {.context = f, .wants = is_member, .most = MOST_LOOKS};
    size_t num = tri_search_next(run, limit, &filter, next);
    size_t sure = known ? SIZE_MAX : sure_to_fit(f);
    bool listed = false;
    for (size_t i = 0; i < num; i++)
        listed |= next[i] == sure;
    if (sure != SIZE_MAX && !listed)
        next[num++] = sure;
    return num > 0 ? tri_search_look(run, next, num, err) : TR_OK;
}

/* Of members that cannot fit, the one that takes least, for its bytes. */
static bool smallest_member(const family *f, tri_layout_result *result)
{
    const tri_search_run_state *run = f->run;
    double least = INFINITY;
    for (size_t i = 0; i < run->num; i++) {
        const tri_layout_choice *choice = &run->out->space.items[run->list[i].choice];
        if (!f->has(choice, f->value) || run->list[i].bytes >= least)
            continue;
        least = run->list[i].bytes;
        *result = (tri_layout_result){.choice = *choice, .bytes = (uint64_t)least};
    }
    return least < INFINITY;
}

/* ---- reasons ---- */

static double exposed_over(const tri_layout_result *r, const char *axis)
{
    for (uint32_t a = 0; a < r->num_axes; a++)
        if (strcmp(r->axis[a], axis) == 0)
            return r->exposed[a];
    return 0;
}

static void seconds_text(double seconds, char *text, size_t size)
{
    if (seconds < 1)
        snprintf(text, size, "%.3g ms", 1e3 * seconds);
    else
        snprintf(text, size, "%.2f s", seconds);
}

/* What takes so much longer than in the best layout, in words. */
static void find_reason(const family *f, const tri_layout_result *r, char *why, size_t size)
{
    const tri_layout_result *best = f->best;
    static const char *const kinds[TRI_NUM_TIME_KINDS] = {"products", "attention",
                                                          "work bound by memory", "the update"};
    double most = 0, redone = r->redone - best->redone;
    char what[80] = "nothing in particular", seconds[24];
    for (int k = 0; k < TRI_NUM_TIME_KINDS; k++)
        if (r->time[k] - best->time[k] > most) {
            most = r->time[k] - best->time[k];
            snprintf(what, sizeof what, "%s take%s", kinds[k], k == TRI_TIME_PRODUCTS ? "" : "s");
        }
    if (redone > 0.5 * most && redone > 0) {
        most = redone;
        snprintf(what, sizeof what, "recomputation takes");
    }
    for (uint32_t a = 0; a < r->num_axes; a++)
        if (r->exposed[a] - exposed_over(best, r->axis[a]) > most) {
            most = r->exposed[a] - exposed_over(best, r->axis[a]);
            snprintf(what, sizeof what, "messages over %s%s that nothing hides take", r->axis[a],
                     strcmp(r->axis[a], "tp") == 0 && r->choice.tp > f->run->c->machine.node
                         ? ", which crosses nodes,"
                         : "");
        }
    if (r->idle - best->idle > most) {
        most = r->idle - best->idle;
        snprintf(what, sizeof what, "waiting for other ranks takes");
    }
    seconds_text(most, seconds, sizeof seconds);
    snprintf(why, size, "%s %s more", what, seconds);
}

static void explain(const family *f, tri_search_family *out)
{
    char bytes[2][16];
    if (out->any_fits) {
        find_reason(f, &out->best, out->why, sizeof out->why);
        return;
    }
    snprintf(out->why, sizeof out->why, "does not fit: %s%s of %s",
             out->best.known ? "" : "at least ", tri_text_bytes((double)out->best.bytes, bytes[0]),
             tri_text_bytes((double)f->run->c->machine.memory_bytes, bytes[1]));
}

/* ---- all traits ---- */

static void explain_family(tri_search_run_state *run, const family *f, const char *trait)
{
    tri_search *out = run->out;
    tri_search_family *to = &out->families[out->num_families];
    size_t at = best_member(f);
    if (out->num_families == TRI_SEARCH_FAMILIES)
        return;
    *to = (tri_search_family){0};
    snprintf(to->trait, sizeof to->trait, "%s", trait);
    if (at != SIZE_MAX)
        to->best = out->results[at];
    to->any_fits = at != SIZE_MAX && to->best.fits;
    if (at == SIZE_MAX && !smallest_member(f, &to->best))
        return;
    explain(f, to);
    out->num_families++;
}

typedef struct trait {
    trait_fn has;
    uint32_t value;
    char name[48];
} trait;

static void put(trait *list, size_t *num, trait_fn has, uint32_t value, const char *name)
{
    for (size_t i = 0; i < *num; i++)
        if (list[i].has == has && list[i].value == value)
            return;
    list[*num] = (trait){.has = has, .value = value};
    snprintf(list[*num].name, sizeof list->name, name, value);
    (*num)++;
}

enum { MOST_TRAITS = 48 };

static size_t list_traits(const tri_search_run_state *run, const tri_layout_choice *best,
                          trait list[MOST_TRAITS])
{
    size_t num = 0;
    put(list, &num, has_tp, 1, "no tensor parallelism");
    for (uint32_t tp = 2; tp <= 2 * run->c->machine.node && tp <= 64; tp *= 2)
        put(list, &num, has_tp, tp, "tp %u");
    put(list, &num, has_no_sp, 0, "tp without sp");
    put(list, &num, has_pp, 1, "no pipeline");
    put(list, &num, has_pp, best->pp / 2 > 1 ? best->pp / 2 : 2, "pp %u");
    put(list, &num, has_pp, 2 * best->pp, "pp %u");
    for (uint32_t s = 0; s < 3; s++) {
        char name[48];
        snprintf(name, sizeof name, "schedule %s", tri_search_order_at(s)->name);
        put(list, &num, has_order, s, name);
    }
    for (uint32_t zero = 0; zero <= 3; zero++)
        put(list, &num, has_zero, zero, "zero %u");
    put(list, &num, has_keeping, TRI_KEEP_ALL, "no recomputation");
    put(list, &num, has_keeping, TRI_KEEP_SELECTIVE, "selective recomputation");
    put(list, &num, has_keeping, TRI_KEEP_INPUTS, "full recomputation");
    for (uint32_t cp = 1; cp <= 8; cp *= 2)
        put(list, &num, has_cp, cp, cp == 1 ? "no context parallelism" : "cp %u");
    for (uint32_t ep = 1; ep <= 64 && run->out->facts.experts > 0; ep *= 2)
        put(list, &num, has_ep, ep, ep == 1 ? "no expert parallelism" : "ep %u");
    return num;
}

static bool in_space(const tri_search *search, const family *f)
{
    for (size_t i = 0; i < search->space.count; i++)
        if (f->has(&search->space.items[i], f->value))
            return true;
    return false;
}

tr_status tri_search_look_at_families(tri_search_run_state *run, tr_error *err)
{
    tri_search *out = run->out;
    trait list[MOST_TRAITS];
    if (out->num_best == 0)
        return TR_OK;
    const tri_layout_choice best = out->results[out->best[0]].choice;
    size_t num = list_traits(run, &best, list);
    for (size_t t = 0; t < num; t++) {
        const family f = {.run = run, .has = list[t].has, .value = list[t].value};
        if (run->c->progress)
            run->c->progress(run->c->context, "other kinds", t, num);
        if (!f.has(&best, f.value))
            TRI_TRY(look_at_members(&f, err));
    }
    return TR_OK;
}

void tri_search_explain_families(tri_search_run_state *run)
{
    tri_search *out = run->out;
    trait list[MOST_TRAITS];
    if (out->num_best == 0)
        return;
    const tri_layout_result best = out->results[out->best[0]];
    size_t num = list_traits(run, &best.choice, list);
    for (size_t t = 0; t < num; t++) {
        const family f = {.run = run, .best = &best, .has = list[t].has, .value = list[t].value};
        if (!f.has(&best.choice, f.value) && in_space(out, &f))
            explain_family(run, &f, list[t].name);
    }
}
