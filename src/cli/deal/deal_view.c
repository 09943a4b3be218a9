#include "cli/deal/deal_view.h"

#include <stdlib.h>

#include "base/clock.h"

const char *const tri_deal_names[TRI_NUM_DEALS] = {"plain", "zigzag", "balanced"};

/* What counting takes. */
typedef struct counting {
    tri_deal_runs needed;
    int32_t *owner; /* [length], the rank that has the token at a place */
    int64_t *areas; /* [num_ranks] */
} counting;

static tr_status counting_init(counting *c, int64_t length, int32_t ranks, tr_error *err)
{
    *c = (counting){.needed = {.run = calloc((size_t)length, sizeof *c->needed.run),
                               .first = calloc((size_t)ranks + 1, sizeof *c->needed.first)},
                    .owner = calloc((size_t)length, sizeof *c->owner),
                    .areas = calloc((size_t)ranks, sizeof *c->areas)};
    if (c->needed.run && c->needed.first && c->owner && c->areas)
        return TR_OK;
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory to look at a row of %lld tokens",
                    (long long)length);
}

static void counting_fini(counting *c)
{
    free(c->needed.run);
    free(c->needed.first);
    free(c->owner);
    free(c->areas);
}

/* All of a row, preset as sources want it, then read. */
static void read_row(const tri_session *session, tri_context *context, uint64_t sample)
{
    const tri_row *row = &context->row;
    for (int64_t t = 0; t < context->deal.length; t++) {
        row->tokens[t] = row->types[t] = 0;
        row->positions[t] = (int32_t)t;
        if (row->docs)
            row->docs[t] = 0;
        if (t < row->num_targets)
            row->targets[t] = -1;
    }
    tri_data_row(session->data, TRI_SPLIT_TRAIN, sample, row);
}

/* Seconds, the least of some tries. */
static double deal_timed(tri_context *context)
{
    enum { TRIES = 3 };
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t begin = tri_now_ns();
        tri_context_deal(context, 0);
        uint64_t took = tri_now_ns() - begin;
        least = took < least ? took : least;
    }
    return (double)least * 1e-9;
}

static int64_t runs_of(const int32_t *places, int64_t begin, int64_t end)
{
    int64_t num = 0;
    for (int64_t i = begin; i < end; i = tri_deal_run_end(places, i, end))
        num++;
    return num;
}

static int64_t remote_of(const counting *c, int32_t rank)
{
    int64_t num = 0;
    for (int32_t i = c->needed.first[rank]; i < c->needed.first[rank + 1]; i++)
        for (int32_t key = c->needed.run[i][0]; key < c->needed.run[i][1]; key++)
            num += c->owner[key] != rank;
    return num;
}

/* The row that the context holds, dealt out: into `first`. */
static void count_row(tri_deal_facts *f, counting *c)
{
    const tri_deal *deal = &f->context->deal;
    const int32_t(*span)[2] = (const int32_t(*)[2])f->context->span, *places = f->context->places;
    int64_t i = 0, largest = 0, sum = 0;
    tri_deal_areas(deal, span, places, c->areas);
    tri_deal_needed(deal, span, places, &c->needed);
    for (int32_t r = 0; r < deal->num_ranks; r++)
        for (int64_t n = 0; n < deal->sizes[r]; n++)
            c->owner[places[i++]] = r;
    i = 0;
    for (int32_t r = 0; r < deal->num_ranks; r++) {
        tri_deal_part part = {.tokens = deal->sizes[r],
                              .runs = runs_of(places, i, i + deal->sizes[r]),
                              .area = c->areas[r],
                              .remote = remote_of(c, r)};
        f->first[r] = part;
        f->ranks[r].tokens += part.tokens;
        f->ranks[r].runs += part.runs;
        f->ranks[r].area += part.area;
        f->ranks[r].remote += part.remote;
        largest = part.area > largest ? part.area : largest;
        sum += part.area;
        i += deal->sizes[r];
    }
    double ratio = sum > 0 ? (double)largest * deal->num_ranks / (double)sum : 1;
    f->worst = ratio > f->worst ? ratio : f->worst;
}

/* Rows from the last to the first, which stays for the picture. */
static tr_status measure(tri_deal_facts *f, const tri_session *session, counting *c, tr_error *err)
{
    int64_t batch = session->config.compile.batch, num = 0;
    for (int64_t row = batch - 1; row >= 0; row--) {
        uint64_t sample;
        if (!tri_epochs_sample(&session->epochs, batch, 0, row, &sample))
            continue;
        read_row(session, f->context, sample);
        f->seconds += deal_timed(f->context);
        count_row(f, c);
        num++;
    }
    int64_t largest = 0, sum = 0;
    for (int32_t r = 0; r < f->context->deal.num_ranks; r++) {
        largest = f->ranks[r].area > largest ? f->ranks[r].area : largest;
        sum += f->ranks[r].area;
        f->remote += (double)f->ranks[r].remote;
    }
    f->largest = sum > 0 ? (double)largest * f->context->deal.num_ranks / (double)sum : 1;
    f->seconds /= num > 0 ? (double)num : 1;
    return tri_data_problem(session->data, err);
}

static tr_status look(tri_deal_view *view, const tri_session *session, counting *c, tr_error *err)
{
    const tri_compile_config *config = &session->config.compile;
    for (int k = 0; k < TRI_NUM_DEALS; k++) {
        tri_deal_facts *f = &view->kind[k];
        f->ranks = calloc((size_t)view->num_ranks, sizeof *f->ranks);
        f->first = calloc((size_t)view->num_ranks, sizeof *f->first);
        if (!f->ranks || !f->first)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory to look at %d ranks",
                            view->num_ranks);
        TRI_TRY(tri_context_create(config, (tri_deal_kind)k, &f->context, err));
        TRI_TRY(measure(f, session, c, err));
    }
    return TR_OK;
}

tr_status tri_deal_view_init(tri_deal_view *view, const tri_session *session, tr_error *err)
{
    const tri_compile_config *config = &session->config.compile;
    counting c;
    *view = (tri_deal_view){
        .num_ranks = tri_mesh_size(&config->mesh, TRI_AXIS_CP_RING),
        .num_rows = tri_epochs_batch_rows(&session->epochs, config->batch, 0),
    };
    view->all_remote = (double)(view->num_ranks - 1) * (double)view->num_rows;
    view->all_remote *= (double)config->seq_len;
    tr_status status = counting_init(&c, config->seq_len, view->num_ranks, err);
    if (status == TR_OK)
        status = look(view, session, &c, err);
    counting_fini(&c);
    if (status != TR_OK)
        tri_deal_view_fini(view);
    return status;
}

void tri_deal_view_fini(tri_deal_view *view)
{
    for (int k = 0; k < TRI_NUM_DEALS; k++) {
        tri_context_destroy(view->kind[k].context);
        free(view->kind[k].ranks);
        free(view->kind[k].first);
    }
    *view = (tri_deal_view){0};
}
