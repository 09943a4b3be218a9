#include "search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/arena.h"
#include "config/settings_internal.h"
#include "search/parallel.h"
#include "search/search_parts.h"

enum { MEASURED_TOGETHER = 32 };
/* Batches without a better layout after which a large space is left. */
enum { MOST_IDLE = 6 };
/* Layouts that are tried with recomputation to fit, which takes long to plan. */
enum { MOST_FITTED = 2, MEMORY_BATCHES = 4 };

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the search");
}

static void tell(const tri_search_case *c, const char *what, size_t done, size_t of)
{
    if (c->progress)
        c->progress(c->context, what, done, of);
}

/* ---- what the layouts are of ---- */

static tr_status find_facts(const tri_search_case *c, tri_space_facts *facts, bool *alike,
                            tr_error *err)
{
    tr_settings *settings;
    tri_session_config config;
    const tri_layout_choice plain = {
        .tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 1, .rows = 1, .microbatches = 1, .prefetch = 1};
    TRI_TRY(tri_layout_settings(c->settings, &plain, 0, &settings, err));
    tr_status status = tri_api_describe(settings, &config, err);
    if (status == TR_OK) {
        const tri_model_config *model = &config.compile.model;
        bool moe = model->moe.num_experts > 0;
        *facts = (tri_space_facts){
            .devices = c->machine.devices,
            .node = c->machine.node,
            .layers = (uint32_t)model->num_layers,
            .heads = model->num_heads > 0 ? (uint32_t)model->num_heads : 1,
            .experts = (uint32_t)model->moe.num_experts,
            .batch = config.compile.batch,
            .seq_len = config.compile.seq_len,
            .can_cp = tri_model_of(model)->sequences,
            .only_linear8 = strcmp(tr_settings_string(c->settings, "precision.linear"), "fp8") == 0,
            .can_linear8 = c->linear8_too};
        *alike = !moe || !model->moe.layers || !*model->moe.layers;
    }
    tr_settings_destroy(settings);
    return status;
}

/* ---- bounds ---- */

static int compare_bounds(const void *a, const void *b)
{
    const tri_candidate *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    return x->choice < y->choice ? -1 : x->choice > y->choice;
}

/* Cells in some goes, so that people see how far it is. */
static tr_status measure_cells(tri_search_run_state *run, bool alike, tr_error *err)
{
    const tri_search_case *c = run->c;
    tri_cells *cells = &run->out->cells;
    for (size_t done = 0; done < cells->count; done += MEASURED_TOGETHER) {
        size_t left = cells->count - done;
        tri_cells part = {.items = cells->items + done,
                          .count = left < MEASURED_TOGETHER ? left : MEASURED_TOGETHER};
        tell(c, "layers", done, cells->count);
        TRI_TRY(tri_cells_measure(&part, &c->machine, c->settings, run->out->facts.layers, alike,
                                  c->threads, err));
    }
    tri_cells_relate(cells);
    tell(c, "layers", cells->count, cells->count);
    return TR_OK;
}

/* Where layers are of two kinds, cells of both are needed. */
static uint32_t cell_of(tri_cells *cells, const tri_layout_choice *choice)
{
    tri_layout_choice kind = *choice;
    for (int k = 0; k < 2 && choice->keeping > TRI_KEEP_INPUTS; k++) {
        kind.keeping = k == 0 ? TRI_KEEP_ALL : TRI_KEEP_INPUTS;
        (void)tri_cell_of(cells, &kind);
    }
    kind.keeping = choice->keeping == TRI_KEEP_FITTING ? TRI_KEEP_ALL : choice->keeping;
    return (uint32_t)tri_cell_of(cells, &kind);
}

static tr_status bound_all(tri_search_run_state *run, bool alike, tr_error *err)
{
    tri_search *out = run->out;
    const tri_choices *space = &out->space;
    uint32_t *cell = calloc(space->count + 1, sizeof *cell);
    run->list = calloc(space->count + 1, sizeof *run->list);
    if (!cell || !run->list) {
        free(cell);
        return no_memory(err);
    }
    for (size_t i = 0; i < space->count; i++)
        cell[i] = cell_of(&out->cells, &space->items[i]);
    tr_status status = out->cells.failed ? no_memory(err) : measure_cells(run, alike, err);
    for (size_t i = 0; i < space->count && status == TR_OK; i++) {
        const tri_layer_cell *its = &out->cells.items[cell[i]];
        if (!its->known) {
            out->num_refused++;
            continue;
        }
        size_t at = tri_pipe_of(&out->pipes, &space->items[i]);
        if (out->pipes.failed)
            break;
        const tri_pipe *pipe = &out->pipes.items[at];
        if (its->repeats || !pipe->known) {
            out->num_refused += !pipe->known;
            continue;
        }
        tri_bound bound =
            tri_cell_bound(its, pipe, &space->items[i], &run->c->machine, out->facts.layers);
        run->list[run->num++] = (tri_candidate){
            .choice = (uint32_t)i, .seconds = (float)bound.seconds, .bytes = (float)bound.bytes};
    }
    free(cell);
    if (status == TR_OK && out->pipes.failed)
        status = no_memory(err);
    qsort(run->list, run->num, sizeof *run->list, compare_bounds);
    return status;
}

/* ---- looking exactly ---- */

typedef struct looking {
    const tri_search_run_state *run;
    tri_layout_result *results;
    tr_status *statuses;
    tr_error *errors;
    tri_look how;
} looking;

static void look_item(void *context, size_t i)
{
    const looking *l = context;
    const tri_search_case *c = l->run->c;
    l->statuses[i] =
        tri_layout_look(&c->machine, c->settings, l->how, &l->results[i], &l->errors[i]);
}

static tr_status look_at(const tri_search_run_state *run, tri_layout_result *results, size_t num,
                         tri_look how, tr_error *err)
{
    tr_status statuses[TRI_SEARCH_BATCH], status = TR_OK;
    tr_error *errors = calloc(TRI_SEARCH_BATCH, sizeof *errors);
    if (!errors)
        return no_memory(err);
    looking l = {run, results, statuses, errors, how};
    tri_parallel_each(run->c->threads, num, look_item, &l);
    for (size_t i = 0; i < num && status == TR_OK; i++) {
        status = statuses[i];
        if (status != TR_OK)
            *err = errors[i];
    }
    free(errors);
    return status;
}

/* Room for so many results more, for these choices. */
static tr_status add_results(tri_search *out, const tri_layout_choice *choices,
                             const double *bounds, size_t num, tr_error *err)
{
    for (size_t i = 0; i < num; i++) {
        tri_layout_result *results = tri_array_grow(out->results, out->num_results + i,
                                                    &out->results_capacity, sizeof *results);
        if (!results)
            return no_memory(err);
        out->results = results;
        results[out->num_results + i] =
            (tri_layout_result){.choice = choices[i], .bound = bounds[i]};
    }
    return TR_OK;
}

static void learn(float *least, double ratio)
{
    if (*least <= 0 || ratio < (double)*least)
        *least = (float)ratio;
}

/* Seconds from which on a layout is of no interest. */
static double limit_of(const tri_search_run_state *run)
{
    const double far = 1.25; /* times the best */
    const tri_search *out = run->out;
    if (out->num_best == 0)
        return INFINITY;
    double limit = far * out->results[out->best[0]].seconds;
    return out->num_best < run->c->num_best
               ? limit
               : fmin(limit, out->results[out->best[out->num_best - 1]].seconds);
}

tr_status tri_search_look(tri_search_run_state *run, const size_t *candidates, size_t num,
                          tr_error *err)
{
    tri_search *out = run->out;
    tri_layout_choice choices[TRI_SEARCH_BATCH] = {0};
    double bounds[TRI_SEARCH_BATCH] = {0};
    for (size_t i = 0; i < num; i++) {
        run->list[candidates[i]].looked = true;
        choices[i] = out->space.items[run->list[candidates[i]].choice];
        bounds[i] = run->list[candidates[i]].seconds;
    }
    TRI_TRY(add_results(out, choices, bounds, num, err));
    double limit = limit_of(run);
    for (size_t i = 0; i < num && limit < INFINITY; i++)
        out->results[out->num_results + i].slow_s = limit;
    TRI_TRY(look_at(run, out->results + out->num_results, num, TRI_LOOK_TIMES, err));
    for (size_t i = 0; i < num; i++) {
        const tri_layout_result *r = &out->results[out->num_results + i];
        const tri_candidate *candidate = &run->list[candidates[i]];
        for (int s = 0; s < 2 * TRI_SEARCH_SIDES && r->known; s++) {
            tri_side *side = &run->sides[candidate->side[s]];
            learn(&side->seconds, r->seconds / (double)candidate->seconds);
            learn(&side->bytes, (double)r->bytes / (double)candidate->bytes);
        }
    }
    out->num_results += num;
    return TR_OK;
}

bool tri_result_better(const tri_layout_result *a, const tri_layout_result *b)
{
    bool x = a->known && a->fits, y = b->known && b->fits;
    if (x != y)
        return x;
    return x ? a->seconds < b->seconds : a->known && (!b->known || a->bytes < b->bytes);
}

/* The best of each mesh, the fastest first. Equal ones stay in the order in which they were looked
 * at. */
/* Whether one is better than another in what counts: time, or, once the fastest is known, memory.
 */
static bool better(const tri_search_run_state *run, const tri_layout_result *a,
                   const tri_layout_result *b)
{
    if (run->slow_enough <= 0)
        return tri_result_better(a, b);
    return a->bytes < b->bytes || (a->bytes == b->bytes && a->seconds < b->seconds);
}

static void find_best(const tri_search_run_state *run)
{
    tri_search *out = run->out;
    out->num_best = 0;
    for (size_t i = 0; i < out->num_results; i++) {
        const tri_layout_result *r = &out->results[i];
        size_t at = 0, same = 0;
        bool slow = run->slow_enough > 0 && r->seconds > run->slow_enough;
        if (!r->known || !r->fits || slow)
            continue;
        while (same < out->num_best &&
               !tri_choice_same_mesh(&out->results[out->best[same]].choice, &r->choice))
            same++;
        if (same < out->num_best && !better(run, r, &out->results[out->best[same]]))
            continue;
        if (same < out->num_best) { /* the mesh has a better one now */
            memmove(out->best + same, out->best + same + 1,
                    (out->num_best - same - 1) * sizeof *out->best);
            out->num_best--;
        }
        while (at < out->num_best && !better(run, r, &out->results[out->best[at]]))
            at++;
        if (at == run->c->num_best)
            continue;
        if (out->num_best == run->c->num_best)
            out->num_best--;
        memmove(out->best + at + 1, out->best + at, (out->num_best - at) * sizeof *out->best);
        out->best[at] = i;
        out->num_best++;
    }
}

static tr_status look_in_order(tri_search_run_state *run, tr_error *err)
{
    tri_search *out = run->out;
    size_t num, next[TRI_SEARCH_BATCH], most = out->num_results + run->c->most_exact;
    find_best(run);
    for (int idle = 0; out->num_results < most && idle < MOST_IDLE; idle++) {
        if ((num = tri_search_next(run, limit_of(run), NULL, next)) == 0)
            break;
        tell(run->c, "layouts", out->num_results, run->c->most_exact);
        size_t best = out->num_best > 0 ? out->best[0] : SIZE_MAX;
        TRI_TRY(tri_search_look(run, next, num, err));
        find_best(run);
        if (out->num_best == 0 || out->best[0] != best || tri_search_is_small(run))
            idle = -1;
    }
    return TR_OK;
}

/* With few looks it may be that none fits. Then those that take least memory tell whether there are
 * others which do, and how far bounds in bytes are off. */
static tr_status look_further(tri_search_run_state *run, tr_error *err)
{
    size_t next[TRI_SEARCH_BATCH], num = tri_search_smallest(run, INFINITY, next);
    if (num == 0)
        return TR_OK;
    TRI_TRY(tri_search_look(run, next, num, err));
    find_best(run);
    return run->out->num_best > 0 ? look_in_order(run, err) : TR_OK;
}

/* Those that win are planned with evaluation and prediction, too. *less: one of them is larger
 * than the device by that. */
static tr_status plan_winners(const tri_search_run_state *run, bool *less, tr_error *err)
{
    tri_search *out = run->out;
    tri_layout_result whole[TRI_SEARCH_BATCH];
    size_t num = 0, of[TRI_SEARCH_BATCH];
    *less = false;
    for (size_t i = 0; i < out->num_best && num < TRI_SEARCH_BATCH; i++)
        if (!out->results[out->best[i]].planned) {
            whole[num] = (tri_layout_result){.choice = out->results[out->best[i]].choice};
            of[num++] = out->best[i];
        }
    TRI_TRY(look_at(run, whole, num, TRI_LOOK_PLAN, err));
    for (size_t i = 0; i < num; i++) {
        tri_layout_result *r = &out->results[of[i]];
        r->planned = true;
        r->bytes = whole[i].bytes;
        r->fullest = whole[i].fullest;
        r->fits = whole[i].fits;
    }
    *less = num > 0;
    return TR_OK;
}

/* Until all winners are planned; and the first is proven, since its command is printed. */
static tr_status settle_winners(tri_search_run_state *run, tr_error *err)
{
    tri_search *out = run->out;
    bool less = true;
    while (less) {
        find_best(run);
        TRI_TRY(plan_winners(run, &less, err));
    }
    if (out->num_best == 0 || run->c->brief)
        return TR_OK;
    tell(run->c, "proofs", 0, 1);
    tri_layout_result proven = {.choice = out->results[out->best[0]].choice};
    return tri_layout_look(&run->c->machine, run->c->settings, TRI_LOOK_PROOF, &proven, err);
}

/* The layout that recomputes, whose mesh has none among those that were picked, and that would take
 * least without; SIZE_MAX: none would be the best. */
static size_t next_to_fit(const tri_search *out, const tri_layout_choice *picked, size_t num)
{
    size_t found = SIZE_MAX;
    double least = out->results[out->best[0]].seconds;
    for (size_t i = 0; i < out->num_results; i++) {
        const tri_layout_result *r = &out->results[i];
        bool again =
            r->choice.keeping == TRI_KEEP_SELECTIVE || r->choice.keeping == TRI_KEEP_INPUTS;
        for (size_t k = 0; k < num && again; k++)
            again = !tri_choice_same_mesh(&picked[k], &r->choice);
        if (!again || !r->known || !r->fits || r->seconds - r->redone >= least)
            continue;
        found = i;
        least = r->seconds - r->redone;
    }
    return found;
}

/* Those that compute something again, and would be the best without, do so with as little as fits.
 */
static tr_status try_fitting(tri_search_run_state *run, tr_error *err)
{
    tri_search *out = run->out;
    tri_layout_choice choices[MOST_FITTED];
    double bounds[MOST_FITTED];
    size_t num = 0, at;
    if (out->num_best == 0 || run->c->fixed.keeping != TRI_FREE || run->c->least_memory)
        return TR_OK;
    while (num < MOST_FITTED && (at = next_to_fit(out, choices, num)) != SIZE_MAX) {
        const tri_layout_result *r = &out->results[at];
        choices[num] = r->choice;
        choices[num].keeping = TRI_KEEP_FITTING;
        bounds[num++] = r->seconds - r->redone;
    }
    tell(run->c, "recomputation", 0, num);
    TRI_TRY(add_results(out, choices, bounds, num, err));
    TRI_TRY(look_at(run, out->results + out->num_results, num, TRI_LOOK_ALL, err));
    out->num_results += num;
    find_best(run);
    return TR_OK;
}

/* What takes least memory, of what is nearly as fast as the fastest: looks at those whose bounds
 * say so. */
static tr_status look_for_memory(tri_search_run_state *run, tr_error *err)
{
    const double nearly = 1.25;
    tri_search *out = run->out;
    if (out->num_best == 0)
        return TR_OK;
    run->slow_enough = nearly * out->results[out->best[0]].seconds;
    for (int batch = 0; batch < MEMORY_BATCHES; batch++) {
        size_t next[TRI_SEARCH_BATCH];
        size_t num = tri_search_smallest(run, run->slow_enough, next);
        tell(run->c, "small layouts", (size_t)batch, MEMORY_BATCHES);
        if (num > 0)
            TRI_TRY(tri_search_look(run, next, num, err));
    }
    find_best(run);
    return TR_OK;
}

/* ---- all of it ---- */

static tr_status search(tri_search_run_state *run, tr_error *err)
{
    tri_search *out = run->out;
    bool alike;
    TRI_TRY(find_facts(run->c, &out->facts, &alike, err));
    tri_space_list(&out->facts, &run->c->fixed, &out->space);
    out->best = calloc(run->c->num_best + 1, sizeof *out->best);
    if (out->space.failed || !out->best)
        return no_memory(err);
    TRI_TRY(bound_all(run, alike, err));
    TRI_TRY(tri_search_find_sides(run, err));
    out->least_bytes = INFINITY;
    for (size_t i = 0; i < run->num; i++) {
        out->num_too_large += !tri_search_may_fit(run, &run->list[i]);
        out->least_bytes = fmin(out->least_bytes, run->list[i].bytes);
    }
    out->num_bounded = run->num - out->num_too_large;
    TRI_TRY(look_in_order(run, err));
    if (run->c->least_memory)
        TRI_TRY(look_for_memory(run, err));
    if (run->c->brief && out->num_best == 0)
        TRI_TRY(look_further(run, err));
    if (!run->c->brief) {
        TRI_TRY(try_fitting(run, err));
        TRI_TRY(tri_search_look_at_families(run, err));
    }
    TRI_TRY(settle_winners(run, err));
    out->rest_bound = tri_search_rest(run, limit_of(run));
    if (!run->c->brief)
        tri_search_explain_families(run);
    return TR_OK;
}

tr_status tri_search_run(const tri_search_case *c, tri_search *out, tr_error *err)
{
    *out = (tri_search){0};
    tri_search_run_state run = {.c = c, .out = out};
    tr_status status = search(&run, err);
    free(run.list);
    free(run.sides);
    if (status != TR_OK)
        tri_search_fini(out);
    return status;
}

void tri_search_fini(tri_search *search)
{
    free(search->space.items);
    tri_cells_fini(&search->cells);
    tri_pipes_fini(&search->pipes);
    free(search->results);
    free(search->best);
    *search = (tri_search){0};
}
