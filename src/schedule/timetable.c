/* See timetable.h. Two steps:
 *
 * 1. The pattern. Where F and I (or B) of the first micro-batch stand follows from the slots of
 *    each hop; in split schedules, W take the two slots of six that are left. A pattern fits when
 *    no two of them are equal modulo 6 on any rank: then micro-batches follow each other without a
 *    gap, whatever their number.
 * 2. The first micro-batches find nobody before them, so much of the beginning is empty. Actions
 *    are gone through in the order of the pattern, and each moves to the first free slot after
 *    what it needs. A forward moves only as far as the memory stays within the limit on its way.
 *    What comes earlier lets others come earlier: the end moves up by as much.
 *
 * All slots before the one that is looked at hold what has been moved already, so one pass does. */
#include "schedule/timetable.h"

#include <stdlib.h>
#include <string.h>

enum { PERIOD = 6, HOPS_TO_PAUSE = 3 };

typedef struct maker {
    const tri_slots_plan *plan;
    tri_timetable *table;
    uint32_t p, m;
    int8_t (*cycle)[PERIOD];           /* [rank]: the pattern modulo 6 */
    uint32_t *end[TRI_NUM_SLOT_KINDS]; /* [rank][micro-batch]: slot after the action */
    uint16_t *live;                    /* [rank][slot]: activations */
} maker;

static uint32_t length_of(const maker *k, int what)
{
    return k->plan->whole && (what == TRI_STREAM_I1 || what == TRI_STREAM_I0) ? 2 : 1;
}

/* One way over all ranks. Returns the slot after its last hop. */
static uint32_t walk(const maker *k, int what, bool down, uint32_t now, uint32_t *hops)
{
    for (uint32_t i = 0; i < k->p; i++) {
        k->table->ideal[down ? i : k->p - 1 - i][what] = now;
        now += k->plan->delta[what];
        if (hops && ++*hops % HOPS_TO_PAUSE == 0)
            now += k->plan->pause;
    }
    return now;
}

static void set_ways(maker *k)
{
    const tri_slots_plan *plan = k->plan;
    const uint8_t *d = plan->delta, *gap = plan->gap;
    uint32_t hops = plan->phase;
    uint32_t now = walk(k, TRI_STREAM_F0, true, 0, NULL);
    now = walk(k, TRI_STREAM_F1, false, now - d[TRI_STREAM_F0] + gap[0], NULL);
    now = walk(k, TRI_STREAM_I1, true, now - d[TRI_STREAM_F1] + gap[1], &hops);
    walk(k, TRI_STREAM_I0, false, now - d[TRI_STREAM_I1] + gap[2], &hops);
}

/* The first slot after an I that is the given one modulo 6. */
static uint32_t slot_after(uint32_t at, uint32_t slot)
{
    return at + 1 + (slot + PERIOD - (at + 1) % PERIOD) % PERIOD;
}

/* W in the two slots that are left: such that activations live shortest. */
static void set_w(maker *k, uint32_t rank)
{
    uint32_t *ideal = k->table->ideal[rank], left[2], num = 0, best = UINT32_MAX;
    int8_t *cycle = k->cycle[rank];
    for (uint32_t i = 0; i < PERIOD && num < 2; i++)
        if (cycle[i] == TRI_SLOT_FREE)
            left[num++] = i;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t w1 = slot_after(ideal[TRI_STREAM_I1], left[i]);
        uint32_t w0 = slot_after(ideal[TRI_STREAM_I0], left[1 - i]);
        if (w1 + w0 >= best)
            continue;
        best = w1 + w0;
        ideal[TRI_SLOT_W1] = w1;
        ideal[TRI_SLOT_W0] = w0;
    }
    cycle[ideal[TRI_SLOT_W1] % PERIOD] = TRI_SLOT_W1;
    cycle[ideal[TRI_SLOT_W0] % PERIOD] = TRI_SLOT_W0;
}

static bool set_cycles(maker *k)
{
    for (uint32_t r = 0; r < k->p; r++) {
        memset(k->cycle[r], TRI_SLOT_FREE, PERIOD);
        for (int what = 0; what < TRI_NUM_STREAMS; what++)
            for (uint32_t i = 0; i < length_of(k, what); i++) {
                int8_t *slot = &k->cycle[r][(k->table->ideal[r][what] + i) % PERIOD];
                if (*slot != TRI_SLOT_FREE)
                    return false;
                *slot = (int8_t)(i == 0 ? what : TRI_SLOT_TAKEN);
            }
        if (!k->plan->whole)
            set_w(k, r);
    }
    return true;
}

static uint32_t end_of(const maker *k, int what, uint32_t rank, uint32_t m)
{
    return k->end[what][(size_t)rank * k->m + m];
}

/* The first slot in which an action has what it needs, and its predecessor has run. */
static uint32_t first_slot(const maker *k, int what, uint32_t r, uint32_t m)
{
    uint32_t turn = m > 0 ? end_of(k, what, r, m - 1) : 0, data = 0;
    bool last = r + 1 == k->p;
    switch (what) {
    case TRI_STREAM_F0:
        data = r > 0 ? end_of(k, TRI_STREAM_F0, r - 1, m) : 0;
        break;
    case TRI_STREAM_F1:
        data = last ? end_of(k, TRI_STREAM_F0, r, m) : end_of(k, TRI_STREAM_F1, r + 1, m);
        break;
    case TRI_STREAM_I1:
        data = r == 0 ? end_of(k, TRI_STREAM_F1, r, m) : end_of(k, TRI_STREAM_I1, r - 1, m);
        break;
    case TRI_STREAM_I0:
        data = last ? end_of(k, TRI_STREAM_I1, r, m) : end_of(k, TRI_STREAM_I0, r + 1, m);
        break;
    default:
        data = end_of(k, what == TRI_SLOT_W1 ? TRI_STREAM_I1 : TRI_STREAM_I0, r, m);
    }
    return data > turn ? data : turn;
}

/* Where what stands in slot `now` of the pattern moves. */
static void move(maker *k, uint32_t r, int what, uint32_t m, uint32_t now)
{
    int8_t *row = k->table->rows + (size_t)r * k->table->num_slots;
    uint16_t *live = k->live + (size_t)r * k->table->num_slots;
    bool forward = what == TRI_STREAM_F0 || what == TRI_STREAM_F1;
    bool frees = k->plan->whole ? !forward : what >= TRI_NUM_STREAMS;
    bool slotless = k->plan->slotless_w && what >= TRI_NUM_STREAMS;
    uint32_t at = first_slot(k, what, r, m), length = length_of(k, what);
    if (forward) {
        uint32_t earliest = at;
        for (at = now; at > earliest && live[at - 1] < k->plan->limit; at--)
            ;
    }
    while (at < now && (row[at] != TRI_SLOT_FREE || row[at + length - 1] != TRI_SLOT_FREE))
        at++;
    if (!slotless)
        row[at] = (int8_t)what;
    if (length == 2)
        row[at + 1] = TRI_SLOT_TAKEN;
    k->end[what][(size_t)r * k->m + m] = at + length;
    /* Two slots more than now, since a B that stays ends there. */
    for (uint32_t i = at; forward && i <= now + 2; i++)
        live[i]++;
    for (uint32_t i = at + length; frees && i <= now + 2; i++)
        live[i]--;
}

static void fill(maker *k)
{
    uint32_t num_slots = k->table->num_slots;
    for (uint32_t now = 0; now + 3 < num_slots; now++)
        for (uint32_t r = 0; r < k->p; r++) {
            int what = k->cycle[r][now % PERIOD];
            uint32_t ideal = what >= 0 ? k->table->ideal[r][what] : UINT32_MAX;
            uint16_t *live = k->live + (size_t)r * num_slots + now;
            if (now >= ideal && (now - ideal) / PERIOD < k->m)
                move(k, r, what, (now - ideal) / PERIOD, now);
            live[3] = live[2];
        }
}

static uint32_t slots_needed(const maker *k)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < k->p; r++)
        for (int what = 0; what < (k->plan->whole ? TRI_NUM_STREAMS : TRI_NUM_SLOT_KINDS); what++)
            if (k->table->ideal[r][what] > most)
                most = k->table->ideal[r][what];
    return most + PERIOD * k->m + 4;
}

static tr_status make(maker *k, bool *fits, tr_error *err)
{
    tri_timetable *table = k->table;
    k->cycle = calloc(k->p, sizeof *k->cycle);
    table->ideal = calloc(k->p, sizeof *table->ideal);
    if (!k->cycle || !table->ideal)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    set_ways(k);
    *fits = set_cycles(k);
    if (!*fits)
        return TR_OK;
    table->num_slots = slots_needed(k);
    size_t cells = (size_t)k->p * table->num_slots;
    bool ok = true;
    for (int i = 0; i < TRI_NUM_SLOT_KINDS; i++) {
        k->end[i] = malloc((size_t)k->p * k->m * sizeof *k->end[i]);
        ok = ok && k->end[i];
    }
    table->rows = malloc(cells);
    k->live = calloc(cells, sizeof *k->live);
    if (!ok || !table->rows || !k->live)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    memset(table->rows, TRI_SLOT_FREE, cells);
    fill(k);
    return TR_OK;
}

tr_status tri_timetable_make(const tri_slots_plan *plan, uint32_t num_ranks, uint32_t m,
                             tri_timetable *table, bool *fits, tr_error *err)
{
    *table = (tri_timetable){.num_ranks = num_ranks};
    maker k = {.plan = plan, .table = table, .p = num_ranks, .m = m};
    *fits = false;
    tr_status status = make(&k, fits, err);
    free(k.cycle);
    free(k.live);
    for (int i = 0; i < TRI_NUM_SLOT_KINDS; i++)
        free(k.end[i]);
    if (status != TR_OK)
        tri_timetable_fini(table);
    return status;
}

void tri_timetable_fini(tri_timetable *table)
{
    free(table->rows);
    free(table->ideal);
    *table = (tri_timetable){0};
}
