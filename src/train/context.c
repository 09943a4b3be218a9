#include "train/context.h"

#include <stdlib.h>
#include <string.h>

#include "mesh/grid.h"

/* Where tokens lie over a set of factors: the run of them that the rank has which stands at a place
 * of the ring, and for the rest where this one does. */
static int64_t piece_of(const tri_grid *grid, tri_factor_set over, int64_t place, int64_t length,
                        int64_t *begin)
{
    const tri_shape row = tri_shape_of(1, TRI_DIM_T, length);
    tri_spot spots[TRI_MAX_FACTORS] = {{TRI_SPOT_WHOLE, 0}};
    int32_t coordinate[TRI_MAX_FACTORS];
    for (int f = 0; f < grid->num_factors; f++) {
        coordinate[f] = grid->factor[f].coordinate;
        if (!(over >> f & 1))
            continue;
        spots[f] = (tri_spot){TRI_SPOT_CUT, 0};
        if (place >= 0 && grid->axis[TRI_AXIS_CP_RING].factors >> f & 1) {
            coordinate[f] = (int32_t)(place % grid->factor[f].size);
            place /= grid->factor[f].size;
        }
    }
    tri_placement at = tri_placement_of(grid, &row, spots);
    return tri_placement_piece(grid, &at.dim[0], row.dim[0], coordinate, begin);
}

static tr_status find_pieces(tri_context *context, const tri_compile_config *config,
                             tri_deal_kind kind, tr_error *err)
{
    tri_grid grid;
    int32_t ranks = tri_mesh_size(&config->mesh, TRI_AXIS_CP_RING);
    int64_t begin, *sizes = malloc((size_t)ranks * sizeof *sizes);
    if (!sizes)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to deal out tokens");
    tr_status status = tri_mesh_grid(&config->mesh, config->rank, &grid, err);
    const tri_factor_set ring = grid.axis[TRI_AXIS_CP_RING].factors;
    for (int32_t r = 0; status == TR_OK && r < ranks; r++)
        sizes[r] = piece_of(&grid, ring, r, config->seq_len, &begin);
    if (status == TR_OK)
        context->size =
            piece_of(&grid, grid.axis[TRI_AXIS_CP].factors, -1, config->seq_len, &context->begin);
    if (status == TR_OK)
        status = tri_deal_init(&context->deal, kind, ranks, sizes,
                               tri_model_of(&config->model)->generates,
                               (int32_t)config->model.window, err);
    if (status == TR_OK && config->cp_keys == TRI_KEYS_SEEN && ranks > 1) {
        status = tri_key_exchange_init(&context->keys, &context->deal, tri_grid_place(&grid, ring),
                                       tri_microbatch_rows(config), err);
        context->has_keys = status == TR_OK;
    }
    free(sizes);
    return status;
}

tr_status tri_context_create(const tri_compile_config *config, tri_deal_kind kind,
                             tri_context **context, tr_error *err)
{
    enum { OF_ROW = 5, OF_ROWS = 3 }; /* tokens, targets, positions, docs, types; spans, places */
    size_t length = (size_t)config->seq_len, rows = (size_t)tri_microbatch_rows(config);
    *context = NULL;
    if (tri_mesh_size(&config->mesh, TRI_AXIS_CP) == 1)
        return TR_OK;
    tri_context *c = calloc(1, sizeof *c);
    int32_t *numbers = calloc((OF_ROW + OF_ROWS * rows) * length, sizeof *numbers);
    if (!c || !numbers) {
        free(c);
        free(numbers);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to deal out tokens");
    }
    c->numbers = numbers;
    c->row = (tri_row){.tokens = numbers,
                       .targets = numbers + length,
                       .positions = numbers + 2 * length,
                       .docs = config->mask_documents ? numbers + 3 * length : NULL,
                       .types = numbers + 4 * length,
                       .num_targets = tri_model_row_targets(&config->model, config->seq_len)};
    c->span = config->mask_documents ? (int32_t(*)[2])(numbers + OF_ROW * length) : NULL;
    c->places = numbers + (OF_ROW + 2 * rows) * length;
    tr_status status = find_pieces(c, config, kind, err);
    if (status == TR_OK)
        *context = c;
    else
        tri_context_destroy(c);
    return status;
}

void tri_context_destroy(tri_context *context)
{
    if (!context)
        return;
    if (context->has_keys)
        tri_key_exchange_fini(&context->keys);
    tri_deal_fini(&context->deal);
    free(context->numbers);
    free(context);
}

/* Those of row r. */
static int32_t (*spans_of(const tri_context *context, int64_t r))[2]
{
    return context->span ? context->span + r * context->deal.length : NULL;
}

static int32_t *places_of(const tri_context *context, int64_t r)
{
    return context->places + r * context->deal.length;
}

void tri_context_deal(tri_context *context, int64_t r)
{
    int32_t(*span)[2] = spans_of(context, r);
    if (span)
        tri_deal_spans(context->row.docs, context->deal.length, span);
    tri_deal_row(&context->deal, (const int32_t(*)[2])span, places_of(context, r));
}

void tri_context_take(const tri_context *context, int64_t r, const int32_t *of_row, int32_t *to)
{
    const int32_t *places = places_of(context, r) + context->begin;
    for (int64_t i = 0; of_row && to && i < context->size; i++)
        to[i] = of_row[places[i]];
}

void tri_context_give_places(const tri_context *context, int64_t r, int32_t *places, int32_t *span)
{
    size_t length = (size_t)context->deal.length;
    const int32_t *dealt = places_of(context, r);
    if (places)
        memcpy(places, dealt, length * sizeof *places);
    for (size_t i = 0; span && i < length; i++)
        memcpy(&span[2 * i], spans_of(context, r)[dealt[i]], sizeof *context->span);
}

static void give(const int32_t *from, int64_t count, int32_t *to)
{
    if (to)
        memcpy(to, from, (size_t)count * sizeof *to);
}

void tri_context_give_keys(tri_context *context, const tri_key_lists *to)
{
    tri_key_exchange *keys = &context->keys;
    const tri_deal *deal = &context->deal;
    if (!context->has_keys || !to->sent)
        return;
    tri_key_exchange_plan(keys, deal, (const int32_t(*)[2])context->span, context->places);
    for (int32_t r = 0; r < deal->num_ranks; r++) {
        to->sent[r] = (int32_t)keys->sent[r];
        to->got[r] = (int32_t)keys->got[r];
    }
    give(keys->out, deal->num_ranks * keys->room, to->out);
    give(keys->in, keys->num_rows * deal->length, to->in);
    give(keys->back, deal->num_ranks * keys->room, to->back);
    give(keys->sum, keys->num_rows * deal->sizes[keys->self] * deal->num_ranks, to->sum);
}
