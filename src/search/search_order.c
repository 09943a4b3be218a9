/* In which order candidates are looked at. Bounds alone would do, but those of layouts that cannot
 * hide their messages, or wait for each other, are far below their times. How far shows after the
 * first few, and differs little among layouts with the same side. So the next candidates are those
 * whose bounds, times the least that layouts of their sides took of theirs, are least. */
#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "search/search_parts.h"

/* So few are all looked at whose bounds allow it. */
enum { WHOLE_BELOW = 3000 };

static uint32_t side_of(tri_search_run_state *run, uint64_t key, bool *failed)
{
    for (size_t i = run->num_sides; i-- > 0;)
        if (run->sides[i].key == key)
            return (uint32_t)i;
    tri_side *sides =
        tri_array_grow(run->sides, run->num_sides, &run->sides_capacity, sizeof *sides);
    *failed |= !sides;
    if (!sides)
        return 0;
    run->sides = sides;
    sides[run->num_sides] = (tri_side){.key = key};
    return (uint32_t)run->num_sides++;
}

/* Numbers of a side's members, and which side it is. */
static uint64_t key_of(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t side)
{
    return ((((a * 2097152 + b) * 1024 + c) * 1024 + d) << 2) | side;
}

tr_status tri_search_find_sides(tri_search_run_state *run, tr_error *err)
{
    bool failed = false;
    for (size_t i = 0; i < run->num && !failed; i++) {
        tri_candidate *candidate = &run->list[i];
        const tri_layout_choice *c = &run->out->space.items[candidate->choice];
        uint64_t zero = c->zero * 8 + c->keep_gathered * 4 + (c->shard_group > 0) * 2 + c->sp;
        uint64_t far = c->tp > run->c->machine.node;
        candidate->side[0] = side_of(run, key_of(c->tp, c->cp, c->ep, c->pp, 0), &failed);
        candidate->side[1] =
            side_of(run, key_of(c->microbatches, c->schedule, c->chunks, c->pp, 1), &failed);
        candidate->side[2] = side_of(run, key_of(zero, c->keeping, c->rows, c->tp, 2), &failed);
        candidate->side[3] = side_of(run, key_of(far, c->cp > 1, c->ep > 1, c->pp > 1, 3), &failed);
        candidate->side[4] = side_of(run, key_of(c->schedule, c->pp > 1, 1, 0, 3), &failed);
        candidate->side[5] = side_of(run, key_of(zero / 2, c->keeping, 2, c->pp > 1, 3), &failed);
    }
    return failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the search") : TR_OK;
}

bool tri_search_may_fit(const tri_search_run_state *run, const tri_candidate *candidate)
{
    return candidate->bytes <= (double)run->c->machine.memory_bytes;
}

/* What it will take, as far as others tell; infinite when it will not fit. */
static double expected_seconds(const tri_search_run_state *run, const tri_candidate *candidate)
{
    double seconds = 1, bytes = 1;
    for (int s = 0; s < TRI_SEARCH_SIDES; s++) {
        const tri_side *fine = &run->sides[candidate->side[s]];
        const tri_side *rough = &run->sides[candidate->side[s + TRI_SEARCH_SIDES]];
        const tri_side *side = fine->seconds > 0 ? fine : rough;
        seconds = fmax(seconds, (double)side->seconds);
        bytes = fmax(bytes, (double)side->bytes);
    }
    if (bytes * (double)candidate->bytes > (double)run->c->machine.memory_bytes)
        return INFINITY;
    return seconds * (double)candidate->seconds;
}

typedef struct waiting {
    size_t candidate;
    double cost; /* seconds, or bytes */
} waiting;

/* Puts it where it belongs among the first few. */
static size_t insert(waiting *first, size_t num, size_t most, waiting next)
{
    size_t at = num;
    while (at > 0 && first[at - 1].cost > next.cost)
        at--;
    if (at == most)
        return num;
    if (num == most)
        num--;
    for (size_t i = num; i > at; i--)
        first[i] = first[i - 1];
    first[at] = next;
    return num + 1;
}

bool tri_search_is_small(const tri_search_run_state *run)
{
    return run->out->num_bounded <= WHOLE_BELOW;
}

size_t tri_search_next(const tri_search_run_state *run, double limit,
                       const tri_search_filter *filter, size_t next[TRI_SEARCH_BATCH])
{
    bool whole = tri_search_is_small(run) && !filter;
    size_t num = 0, most = filter ? filter->most : TRI_SEARCH_BATCH;
    waiting first[TRI_SEARCH_BATCH];
    for (size_t i = 0; i < run->num && run->list[i].seconds < limit; i++) {
        const tri_candidate *candidate = &run->list[i];
        if (candidate->looked || !tri_search_may_fit(run, candidate) ||
            (filter && !filter->wants(filter->context, &run->out->space.items[candidate->choice])))
            continue;
        double seconds = expected_seconds(run, candidate);
        if (seconds < limit || whole)
            num = insert(first, num, most, (waiting){i, seconds});
    }
    for (size_t i = 0; i < num; i++)
        next[i] = first[i].candidate;
    return num;
}

size_t tri_search_smallest(const tri_search_run_state *run, double limit,
                           size_t next[TRI_SEARCH_BATCH])
{
    size_t num = 0;
    waiting first[TRI_SEARCH_BATCH];
    for (size_t i = 0; i < run->num && run->list[i].seconds < limit; i++)
        if (!run->list[i].looked && tri_search_may_fit(run, &run->list[i]) &&
            (isinf(limit) || expected_seconds(run, &run->list[i]) < limit))
            num = insert(first, num, TRI_SEARCH_BATCH, (waiting){i, run->list[i].bytes});
    for (size_t i = 0; i < num; i++)
        next[i] = first[i].candidate;
    return num;
}

double tri_search_rest(const tri_search_run_state *run, double limit)
{
    for (size_t i = 0; i < run->num && run->list[i].seconds < limit; i++)
        if (!run->list[i].looked && tri_search_may_fit(run, &run->list[i]))
            return run->list[i].seconds;
    return 0;
}

size_t tri_search_front(const tri_search *search, size_t *front, size_t most)
{
    size_t num = 0;
    double after = 0;
    uint64_t bytes = UINT64_MAX;
    while (num < most) { /* the next slower one that takes less */
        size_t next = SIZE_MAX;
        for (size_t i = 0; i < search->num_results; i++) {
            const tri_layout_result *r = &search->results[i];
            const tri_layout_result *best = next == SIZE_MAX ? NULL : &search->results[next];
            if (!r->known || !r->fits || r->seconds < after || r->bytes >= bytes)
                continue;
            if (!best || r->seconds < best->seconds ||
                (r->seconds == best->seconds && r->bytes < best->bytes))
                next = i;
        }
        if (next == SIZE_MAX)
            break;
        front[num++] = next;
        after = search->results[next].seconds;
        bytes = search->results[next].bytes;
    }
    return num;
}
