/* Schedules as tables: reading and writing. A row is a rank, a cell an action: chunk, kind,
 * micro-batch. Where chunks live and which way micro-batches go is read off the cells; whether the
 * schedule makes sense is the checker's business, so that a wrong table is still explained in terms
 * of its actions. */
#include <stdlib.h>
#include <string.h>

#include "schedule/schedule.h"

typedef struct csv_reader {
    const char *at, *end;
    const char *source;
    size_t line, cell; /* from 1 */
    tr_error *err;
} csv_reader;

static tr_status bad_cell(const csv_reader *r, const char *begin, size_t length, const char *why)
{
    return tri_fail(r->err, TR_ERROR_INPUT, "%s:%zu: cell %zu is \"%.*s\"; %s", r->source, r->line,
                    r->cell, (int)(length > 40 ? 40 : length), begin, why);
}

static bool take_number(const char **at, const char *end, uint32_t limit, uint32_t *number)
{
    uint64_t n = 0;
    const char *begin = *at;
    while (*at < end && **at >= '0' && **at <= '9' && n < limit)
        n = n * 10 + (uint64_t)(*(*at)++ - '0');
    *number = (uint32_t)n;
    return *at > begin && n < limit && (*at == end || **at < '0' || **at > '9');
}

static bool take_kind(const char **at, const char *end, tri_action_kind *kind)
{
    /* Longer names first: none of those that compute begins another. */
    for (int k = TRI_NUM_ALL_ACTIONS - 1; k >= 0; k--) {
        const char *name = tri_action_name((tri_action_kind)k);
        size_t length = strlen(name);
        if ((size_t)(end - *at) >= length && memcmp(*at, name, length) == 0) {
            *at += length;
            *kind = (tri_action_kind)k;
            return true;
        }
    }
    return false;
}

/* One action, up to `end`. */
static bool take_action(const char *at, const char *end, tri_action *action)
{
    *action = (tri_action){0};
    return take_number(&at, end, TRI_MAX_CHUNKS, &action->chunk) &&
           take_kind(&at, end, &action->kind) &&
           take_number(&at, end, TRI_MAX_MICROBATCHES, &action->microbatch) && at == end;
}

static tr_status read_pair(const csv_reader *r, const char *begin, const char *end,
                           tri_action out[2])
{
    static const char tail[] = ")OVERLAP_F_B";
    size_t length = (size_t)(end - begin);
    const char *middle = memchr(begin, ';', length);
    const char *close = end - (sizeof tail - 1);
    bool fits = middle && close > middle && memcmp(close, tail, sizeof tail - 1) == 0 &&
                take_action(begin + 1, middle, &out[0]) &&
                take_action(middle + 1, close, &out[1]) && out[0].kind == TRI_ACTION_F &&
                out[1].kind == TRI_ACTION_B;
    if (!fits)
        return bad_cell(r, begin, length, "a pair is written (0F7;7B3)OVERLAP_F_B");
    out[0].overlap = true;
    return TR_OK;
}

static tr_status read_cell(csv_reader *r, tri_schedule *s, uint32_t rank, const char *begin,
                           const char *end)
{
    tri_action pair[2];
    while (begin < end && (*begin == ' ' || *begin == '\t'))
        begin++;
    while (end > begin && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    if (begin == end)
        return TR_OK; /* idle */
    if (*begin == '(') {
        TRI_TRY(read_pair(r, begin, end, pair));
        TRI_TRY(tri_schedule_add(s, rank, pair[0], r->err));
        return tri_schedule_add(s, rank, pair[1], r->err);
    }
    if (!take_action(begin, end, &pair[0]))
        return bad_cell(r, begin, (size_t)(end - begin),
                        "expected chunk, kind, micro-batch, as in 3F0, with the kinds F I W B U "
                        "SEND_F RECV_F SEND_B RECV_B");
    s->has_messages = s->has_messages || !tri_action_computes(pair[0].kind);
    return tri_schedule_add(s, rank, pair[0], r->err);
}

static tr_status read_row(csv_reader *r, tri_schedule *s, uint32_t rank)
{
    const char *line_end = memchr(r->at, '\n', (size_t)(r->end - r->at));
    if (!line_end)
        line_end = r->end;
    for (r->cell = 1;; r->cell++) {
        const char *comma = memchr(r->at, ',', (size_t)(line_end - r->at));
        TRI_TRY(read_cell(r, s, rank, r->at, comma ? comma : line_end));
        if (!comma)
            break;
        r->at = comma + 1;
    }
    r->at = line_end < r->end ? line_end + 1 : r->end;
    return TR_OK;
}

static tr_status read_rows(csv_reader *r, tri_schedule *s)
{
    for (r->line = 1; r->at < r->end; r->line++) {
        if (s->num_ranks == TRI_MAX_PIPELINE_RANKS)
            return tri_fail(r->err, TR_ERROR_INPUT, "%s:%zu: a schedule has at most %d ranks",
                            r->source, r->line, TRI_MAX_PIPELINE_RANKS);
        uint32_t rank = s->num_ranks++;
        TRI_TRY(read_row(r, s, rank));
        if (s->ranks[rank].count == 0)
            return tri_fail(r->err, TR_ERROR_INPUT,
                            "%s:%zu: the row of rank %u holds no action; a row stands for a rank",
                            r->source, r->line, rank);
    }
    if (s->num_ranks == 0)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s is empty; expected a row of actions for each rank, as in 0F0,0B0",
                        r->source);
    return TR_OK;
}

/* How many chunks, micro-batches and updates there are. */
static tr_status measure(const csv_reader *r, tri_schedule *s)
{
    uint64_t num_forward = 0;
    uint32_t first_update = UINT32_MAX;
    for (uint32_t rank = 0; rank < s->num_ranks; rank++)
        for (size_t i = 0; i < s->ranks[rank].count; i++) {
            const tri_action *a = &s->ranks[rank].actions[i];
            if (a->chunk >= s->num_chunks)
                s->num_chunks = a->chunk + 1;
            if (a->microbatch >= s->num_microbatches)
                s->num_microbatches = a->microbatch + 1;
            if (a->kind == TRI_ACTION_U && a->microbatch < first_update)
                first_update = a->microbatch;
            num_forward += a->kind == TRI_ACTION_F;
        }
    uint64_t cells = (uint64_t)s->num_chunks * s->num_microbatches;
    if (cells > 2 * num_forward + 64 || cells > TRI_MAX_SCHEDULE_CELLS)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s names chunk %u and micro-batch %u, which makes %llu forwards, but has "
                        "%llu; number both from 0 without gaps",
                        r->source, s->num_chunks - 1, s->num_microbatches - 1,
                        (unsigned long long)cells, (unsigned long long)num_forward);
    if (first_update < s->num_microbatches - 1) { /* not only at the end */
        s->update_every = first_update + 1;
        s->delayed = first_update > 0;
    }
    return TR_OK;
}

/* The one or two ranks of every chunk: that of micro-batch 0, or else the first one seen, and the
 * other one. */
static tr_status find_homes(const csv_reader *r, tri_schedule *s)
{
    uint32_t *near = s->home, *far = s->home + s->num_chunks;
    memset(s->home, 0xff, 2 * (size_t)s->num_chunks * sizeof *s->home);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t rank = 0; rank < s->num_ranks; rank++)
            for (size_t i = 0; i < s->ranks[rank].count; i++) {
                const tri_action *a = &s->ranks[rank].actions[i];
                uint32_t *one = &near[a->chunk], *two = &far[a->chunk];
                if (a->kind != TRI_ACTION_F || (pass == 0 && a->microbatch > 0))
                    continue;
                if (*one == UINT32_MAX)
                    *one = rank;
                else if (*one != rank && *two == UINT32_MAX)
                    *two = rank;
                else if (*one != rank && *two != rank)
                    return tri_fail(r->err, TR_ERROR_INPUT,
                                    "%s has forwards of chunk %u on ranks %u, %u and %u; a chunk "
                                    "lives on at most two",
                                    r->source, a->chunk, *one, *two, rank);
            }
    s->num_routes = 1;
    for (uint32_t c = 0; c < s->num_chunks; c++) {
        if (near[c] == UINT32_MAX)
            return tri_fail(r->err, TR_ERROR_INPUT, "%s has no forward of chunk %u", r->source, c);
        if (far[c] == UINT32_MAX)
            far[c] = near[c];
        else
            s->num_routes = 2;
    }
    return TR_OK;
}

/* A micro-batch takes the second route when more of its forwards fit that one. */
static tr_status find_routes(const csv_reader *r, tri_schedule *s)
{
    int32_t *balance = calloc(s->num_microbatches, sizeof *balance);
    if (!balance)
        return tri_fail(r->err, TR_ERROR_RUNTIME, "no memory for the schedule");
    for (uint32_t rank = 0; rank < s->num_ranks; rank++)
        for (size_t i = 0; i < s->ranks[rank].count; i++) {
            const tri_action *a = &s->ranks[rank].actions[i];
            if (a->kind == TRI_ACTION_F)
                balance[a->microbatch] +=
                    (rank == s->home[s->num_chunks + a->chunk]) - (rank == s->home[a->chunk]);
        }
    for (uint32_t m = 0; m < s->num_microbatches; m++)
        s->route[m] = balance[m] > 0;
    free(balance);
    return TR_OK;
}

static tr_status settle(const csv_reader *r, tri_schedule *s)
{
    TRI_TRY(measure(r, s));
    s->home = calloc(2 * (size_t)s->num_chunks, sizeof *s->home);
    s->route = calloc(s->num_microbatches, sizeof *s->route);
    if (!s->home || !s->route)
        return tri_fail(r->err, TR_ERROR_RUNTIME, "no memory for the schedule");
    s->chunks_per_rank = s->num_chunks > s->num_ranks ? s->num_chunks / s->num_ranks : 1;
    TRI_TRY(find_homes(r, s));
    return find_routes(r, s);
}

tr_status tri_schedule_parse(const char *text, size_t length, const char *source,
                             tri_schedule *schedule, tr_error *err)
{
    text = length ? text : ""; /* an empty file has no address */
    csv_reader r = {.at = text, .end = text + length, .source = source, .err = err};
    *schedule = (tri_schedule){0};
    while (r.end > r.at && (r.end[-1] == '\n' || r.end[-1] == '\r'))
        r.end--;
    schedule->ranks = calloc(TRI_MAX_PIPELINE_RANKS, sizeof *schedule->ranks);
    if (!schedule->ranks)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    tr_status status = read_rows(&r, schedule);
    if (status == TR_OK)
        status = settle(&r, schedule);
    if (status != TR_OK)
        tri_schedule_fini(schedule);
    return status;
}

void tri_schedule_write(const tri_schedule *s, tri_text *text)
{
    char name[48], other[48];
    for (uint32_t r = 0; r < s->num_ranks; r++) {
        const tri_action_list *list = &s->ranks[r];
        for (size_t i = 0; i < list->count; i++) {
            const tri_action *a = &list->actions[i];
            const char *comma = i ? "," : "";
            if (a->overlap && i + 1 < list->count)
                tri_text_add(text, "%s(%s;%s)OVERLAP_F_B", comma, tri_action_text(a, name),
                             tri_action_text(&list->actions[++i], other));
            else
                tri_text_add(text, "%s%s", comma, tri_action_text(a, name));
        }
        tri_text_add(text, "\n");
    }
}
