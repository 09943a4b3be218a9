/* What an order asks of its numbers. A refusal names the nearest numbers that work, found by trying
 * those around the one that was given. */
#include "schedule/schedule.h"

#include <stdio.h>

void tri_order_needs(const tri_order *o, tri_text *text)
{
    const char *comma = "";
    if (o->even_ranks) {
        tri_text_add(text, "%san even number of ranks", comma);
        comma = ", ";
    } else if (o->min_ranks > 1) {
        tri_text_add(text, "%sat least %u ranks", comma, o->min_ranks);
        comma = ", ";
    }
    if (o->microbatches_by_ranks) {
        tri_text_add(text, "%smicro-batches in multiples of the ranks", comma);
        comma = ", ";
    } else if (o->even_microbatches) {
        tri_text_add(text, "%san even number of micro-batches", comma);
        comma = ", ";
    }
    if (o->min_microbatches_per_rank) {
        tri_text_add(text, "%sat least %u micro-batches for each rank", comma,
                     o->min_microbatches_per_rank);
        comma = ", ";
    }
    if (o->max_chunks > o->default_chunks)
        tri_text_add(text, "%s%u or more chunks on a rank", comma, o->min_chunks);
    else if (o->flags & TRI_ORDER_V)
        tri_text_add(text, "%s2 chunks on a rank", comma);
    else if (!*comma)
        tri_text_add(text, "nothing special");
}

static bool ranks_fit(const tri_order *o, int64_t p)
{
    return p >= o->min_ranks && p <= TRI_MAX_PIPELINE_RANKS && (!o->even_ranks || p % 2 == 0);
}

static bool microbatches_fit(const tri_order *o, int64_t p, int64_t m)
{
    if (m < 1 || m > TRI_MAX_MICROBATCHES || m < p * (int64_t)o->min_microbatches_per_rank)
        return false;
    if (o->microbatches_by_ranks && m % p != 0)
        return false;
    return !o->even_microbatches || m % 2 == 0;
}

/* The nearest numbers that fit below and above n: "4 or 8". */
static void nearest(const tri_order *o, int64_t p, int64_t n, bool ranks, char out[48])
{
    int64_t below = n, above = n, limit = ranks ? TRI_MAX_PIPELINE_RANKS : TRI_MAX_MICROBATCHES;
    if (below > limit)
        below = limit;
    while (below > 0 && !(ranks ? ranks_fit(o, below) : microbatches_fit(o, p, below)))
        below--;
    while (above <= limit && !(ranks ? ranks_fit(o, above) : microbatches_fit(o, p, above)))
        above++;
    if (below > 0 && above <= limit)
        snprintf(out, 48, "%lld or %lld", (long long)below, (long long)above);
    else
        snprintf(out, 48, "%lld", (long long)(below > 0 ? below : above));
}

tr_status tri_order_check(const tri_order *o, uint32_t p, uint32_t m, uint32_t chunks,
                          tr_error *err)
{
    char other[48];
    tri_text needs;
    tri_text_init(&needs);
    tri_order_needs(o, &needs);
    tr_status status = TR_OK;
    const char *wants = needs.chars ? needs.chars : "other numbers";
    if (!ranks_fit(o, p)) {
        nearest(o, p, p, true, other);
        status = tri_fail(err, TR_ERROR_INPUT,
                          "schedule %s needs %s; with %u rank%s it cannot be: use %s", o->name,
                          wants, p, p == 1 ? "" : "s", other);
    } else if (chunks < o->min_chunks || chunks > o->max_chunks) {
        uint32_t nearest_chunks = chunks < o->min_chunks ? o->min_chunks : o->max_chunks;
        status =
            tri_fail(err, TR_ERROR_INPUT, "schedule %s cannot have %u chunk%s on a rank: use %u",
                     o->name, chunks, chunks == 1 ? "" : "s", nearest_chunks);
    } else if (!microbatches_fit(o, p, m)) {
        nearest(o, p, m, false, other);
        status = tri_fail(err, TR_ERROR_INPUT,
                          "schedule %s needs %s; with %u rank%s and %u micro-batch%s it cannot be: "
                          "use %s micro-batches",
                          o->name, wants, p, p == 1 ? "" : "s", m, m == 1 ? "" : "es", other);
    } else if ((uint64_t)p * chunks > TRI_MAX_CHUNKS ||
               (uint64_t)p * chunks * m > TRI_MAX_SCHEDULE_CELLS) {
        status = tri_fail(err, TR_ERROR_INPUT,
                          "a schedule of %u ranks, %u chunks on each and %u micro-batches is too "
                          "large; there may be %u chunks and %u forwards in all",
                          p, chunks, m, (unsigned)TRI_MAX_CHUNKS, (unsigned)TRI_MAX_SCHEDULE_CELLS);
    }
    tri_text_fini(&needs);
    return status;
}
