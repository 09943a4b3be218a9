#include "search/cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "search/parallel.h"

static bool same_cell(const tri_layer_cell *a, const tri_layout_choice *c)
{
    return a->tp == c->tp && a->cp == c->cp && a->ep == c->ep && a->rows == c->rows &&
           a->keeping == c->keeping && a->sp == c->sp && a->whole_experts == c->whole_experts &&
           a->linear8 == c->linear8;
}

size_t tri_cell_of(tri_cells *cells, const tri_layout_choice *c)
{
    for (size_t i = cells->count; i-- > 0;) /* choices come in the order of their cells, nearly */
        if (same_cell(&cells->items[i], c))
            return i;
    tri_layer_cell *items =
        tri_array_grow(cells->items, cells->count, &cells->capacity, sizeof *items);
    cells->failed |= !items;
    if (!items)
        return 0;
    cells->items = items;
    items[cells->count] = (tri_layer_cell){.tp = c->tp,
                                           .cp = c->cp,
                                           .ep = c->ep,
                                           .rows = c->rows,
                                           .keeping = c->keeping,
                                           .sp = c->sp,
                                           .whole_experts = c->whole_experts,
                                           .linear8 = c->linear8};
    return cells->count++;
}

void tri_cells_fini(tri_cells *cells)
{
    free(cells->items);
    *cells = (tri_cells){0};
}

/* ---- measuring ---- */

typedef struct measuring {
    tri_cells *cells;
    const tri_search_machine *machine;
    const tr_settings *base;
    uint32_t layers;
    bool alike;
    tr_error *errors; /* of each cell */
} measuring;

/* On as few ranks as the cell has. Micro-batches are three: a step's first has no gradients to add
 * to, and its last shares them out over dp and cp, which other layouts do otherwise. What is kept
 * for the backward has frames, which it would not need for one micro-batch. */
enum { MICROBATCHES = 3 };

static tr_status short_settings(const measuring *m, const tri_layer_cell *cell, uint32_t layers,
                                tr_settings **settings, tr_error *err)
{
    uint32_t dp = cell->ep > cell->cp ? (cell->ep + cell->cp - 1) / cell->cp : 1;
    const tri_layout_choice choice = {.tp = cell->tp,
                                      .cp = cell->cp,
                                      .ep = cell->ep,
                                      .pp = 1,
                                      .dp = dp,
                                      .rows = cell->rows,
                                      .microbatches = MICROBATCHES,
                                      .keeping = cell->keeping,
                                      .prefetch = 1,
                                      .sp = cell->sp,
                                      .whole_experts = cell->whole_experts,
                                      .linear8 = cell->linear8};
    char text[64];
    TRI_TRY(tri_layout_settings(m->base, &choice, tri_fit_budget(m->machine), settings, err));
    snprintf(text, sizeof text, "train.batch=%llu", 1ull * MICROBATCHES * cell->rows * dp);
    tr_status status = tr_settings_set(*settings, text, err);
    snprintf(text, sizeof text, "model.num_layers=%u", layers);
    if (status == TR_OK)
        status = tr_settings_set(*settings, text, err);
    if (status != TR_OK)
        tr_settings_destroy(*settings);
    return status;
}

/* Recomputation has messages, whose times are not counted as its own: it takes the forward's time
 * where it repeats them. */
static void add_times(const tri_layer_cell *cell, const tri_program *program,
                      const tri_rank_timing *rank, tri_cell_part *sum)
{
    bool repeats = cell->keeping == TRI_KEEP_INPUTS || cell->cp > 1;
    double forward = 0;
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_call *call = &program->calls[c];
        double seconds = rank->call_end[c] - rank->call_start[c];
        tri_action_kind action = program->segments[call->segment].action;
        if (action == TRI_ACTION_U)
            continue;
        sum->first += call->microbatch == 0 ? seconds : 0;
        sum->other += call->microbatch == 1 ? seconds : 0;
        forward += call->microbatch == 1 && action == TRI_ACTION_F ? seconds : 0;
    }
    sum->redone = repeats && rank->redone > 0 ? forward : rank->redone / MICROBATCHES;
    sum->update = rank->time[TRI_TIME_UPDATE];
}

static void add_bytes(const tri_program *program, tri_cell_part *sum, double *work)
{
    for (size_t s = 0; s < program->num_spaces; s++) {
        const tri_space *space = &program->spaces[s];
        double bytes = (double)space->bytes;
        switch (space->kind) {
        case TRI_SPACE_PARAM:
            sum->params += bytes;
            break;
        case TRI_SPACE_COPY:
            sum->copies += bytes;
            break;
        case TRI_SPACE_GRAD:
            sum->grads += bytes;
            break;
        case TRI_SPACE_OPTIM:
            sum->moments += bytes;
            break;
        case TRI_SPACE_FRAME:
            sum->kept += bytes;
            break;
        case TRI_SPACE_WORK:
            *work = bytes;
            break;
        default:
            break;
        }
    }
}

static tr_status measure_short(const measuring *m, const tri_layer_cell *cell, uint32_t layers,
                               tri_cell_part *sum, double *work, tr_error *err)
{
    tr_settings *settings;
    tri_stage_programs stages;
    tri_measured_model model;
    tri_step_sim step;
    *sum = (tri_cell_part){0};
    TRI_TRY(short_settings(m, cell, layers, &settings, err));
    tr_status status =
        tri_layout_compile(m->machine, settings, 1 << TRI_PROGRAM_TRAIN, false, &stages, err);
    tr_settings_destroy(settings);
    TRI_TRY(status);
    status = tri_layout_time(m->machine, &stages, true, &model, &step, err);
    if (status == TR_OK) {
        add_times(cell, stages.programs[0], &step.timing.ranks[0], sum);
        add_bytes(stages.programs[0], sum, work);
        tri_step_sim_fini(&step);
    }
    tri_measured_model_fini(&model);
    tri_stage_programs_fini(&stages);
    return status;
}

/* a + s * b, part by part. */
static tri_cell_part combine(const tri_cell_part *a, double s, const tri_cell_part *b)
{
    return (tri_cell_part){.first = a->first + s * b->first,
                           .other = a->other + s * b->other,
                           .redone = a->redone + s * b->redone,
                           .update = a->update + s * b->update,
                           .params = a->params + s * b->params,
                           .copies = a->copies + s * b->copies,
                           .grads = a->grads + s * b->grads,
                           .moments = a->moments + s * b->moments,
                           .kept = a->kept + s * b->kept};
}

static tr_status measure_cell(const measuring *m, tri_layer_cell *cell, tr_error *err)
{
    const uint32_t few = 2;
    tri_cell_part low, high, none = {0};
    double work;
    cell->mean = !m->alike;
    if (cell->mean) {
        TRI_TRY(measure_short(m, cell, m->layers, &high, &cell->work, err));
        cell->layer = combine(&none, 1.0 / m->layers, &high);
        return TR_OK;
    }
    TRI_TRY(measure_short(m, cell, few, &low, &work, err));
    TRI_TRY(measure_short(m, cell, few + 1, &high, &cell->work, err));
    cell->layer = combine(&high, -1, &low);
    cell->rest = combine(&low, -(double)few, &cell->layer);
    return TR_OK;
}

/* Cells of layers of two kinds are mixed of theirs. */
static uint32_t every_of(uint8_t keeping)
{
    return keeping == TRI_KEEP_HALF ? 2 : keeping == TRI_KEEP_MOST ? 4 : 0;
}

static void measure_item(void *context, size_t i)
{
    const measuring *m = context;
    tri_layer_cell *cell = &m->cells->items[i];
    uint32_t every = every_of(cell->keeping);
    if (every > 0) { /* the first, and each so many later */
        cell->again = (m->layers + every - 1) / every / (double)m->layers;
        return;
    }
    tr_status status = measure_cell(m, cell, &m->errors[i]);
    cell->known = status == TR_OK;
    if (!cell->known)
        snprintf(cell->why, sizeof cell->why, "%.110s", m->errors[i].message);
}

tr_status tri_cells_measure(tri_cells *cells, const tri_search_machine *machine,
                            const tr_settings *base, uint32_t layers, bool alike, int threads,
                            tr_error *err)
{
    measuring m = {.cells = cells,
                   .machine = machine,
                   .base = base,
                   .layers = layers,
                   .alike = alike,
                   .errors = calloc(cells->count + 1, sizeof *m.errors)};
    if (!m.errors)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the search");
    tri_parallel_each(threads, cells->count, measure_item, &m);
    tr_status status = TR_OK;
    for (size_t i = 0; i < cells->count && status == TR_OK; i++)
        if (m.errors[i].status != TR_OK && m.errors[i].status != TR_ERROR_INPUT) {
            *err = m.errors[i];
            status = err->status;
        }
    free(m.errors);
    return status;
}

static bool same_measures(const tri_layer_cell *a, const tri_layer_cell *b)
{
    return a->known && b->known && memcmp(&a->layer, &b->layer, sizeof a->layer) == 0 &&
           memcmp(&a->rest, &b->rest, sizeof a->rest) == 0 && a->work == b->work;
}

/* The cell that differs in what is kept alone; NULL: there is none. */
static const tri_layer_cell *with_keeping(const tri_cells *cells, const tri_layer_cell *cell,
                                          uint8_t keeping)
{
    const tri_layout_choice c = {.tp = cell->tp,
                                 .cp = cell->cp,
                                 .ep = cell->ep,
                                 .rows = cell->rows,
                                 .keeping = keeping,
                                 .sp = cell->sp,
                                 .whole_experts = cell->whole_experts,
                                 .linear8 = cell->linear8};
    for (size_t i = 0; i < cells->count; i++)
        if (same_cell(&cells->items[i], &c))
            return &cells->items[i];
    return NULL;
}

void tri_cells_relate(tri_cells *cells)
{
    for (size_t i = 0; i < cells->count; i++) {
        tri_layer_cell *cell = &cells->items[i];
        const tri_layer_cell *all = with_keeping(cells, cell, TRI_KEEP_ALL);
        const tri_layer_cell *inputs = with_keeping(cells, cell, TRI_KEEP_INPUTS);
        cell->repeats = all && cell->keeping == TRI_KEEP_SELECTIVE && same_measures(cell, all);
        if (cell->again <= 0 || !all || !inputs || !all->known || !inputs->known)
            continue;
        tri_cell_part less = combine(&inputs->layer, -1, &all->layer);
        cell->layer = combine(&all->layer, cell->again, &less);
        cell->rest = all->rest;
        cell->work = all->work;
        cell->known = true;
    }
}

tri_cell_part tri_cell_whole(const tri_layer_cell *cell, uint32_t layers)
{
    return combine(&cell->rest, layers, &cell->layer);
}
