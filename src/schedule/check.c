/* The proof of a schedule over all ranks. First what can be seen by counting: every action exactly
 * once, where its chunk lives, in an order in which the rank itself could run; every message that
 * is needed, and no other, behind what it sends and before what reads it. Then the machine. */
#include <stdlib.h>

#include "schedule/machine.h"

typedef struct check {
    const tri_schedule *schedule;
    tri_schedule_index index;
    tr_error *err;
} check;

static tr_status twice(const check *x, uint32_t first, uint32_t second)
{
    char a[96], b[96];
    return tri_fail(x->err, TR_ERROR_INPUT, "%s is there a second time: %s; remove one",
                    tri_index_text(&x->index, first, a), tri_index_text(&x->index, second, b));
}

/* Whether an action that overlaps has behind it what makes a pair: F and B, or F, I and its W. */
static bool pairs(const tri_action_list *list, size_t i)
{
    const tri_action *a = &list->actions[i], *next = a + 1;
    if (i + 1 == list->count)
        return false;
    if (a->kind == TRI_ACTION_I)
        return i > 0 && a[-1].overlap && a[-1].kind == TRI_ACTION_F && !next->overlap &&
               next->kind == TRI_ACTION_W && next->chunk == a->chunk &&
               next->microbatch == a->microbatch;
    return a->kind == TRI_ACTION_F &&
           (next->kind == TRI_ACTION_I ? next->overlap : next->kind == TRI_ACTION_B);
}

/* Every action stands where its chunk lives, and once. */
static tr_status check_places(const check *x)
{
    const tri_schedule *s = x->schedule;
    char text[96];
    for (uint32_t r = 0; r < s->num_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].count; i++) {
            const tri_action *a = &s->ranks[r].actions[i];
            uint32_t id = x->index.first[r] + (uint32_t)i;
            uint32_t home = tri_schedule_home(s, a->chunk, a->microbatch);
            if (home != r)
                return tri_fail(x->err, TR_ERROR_INPUT,
                                "%s stands on the wrong rank: chunk %u of micro-batch %u lives on "
                                "rank %u",
                                tri_index_text(&x->index, id, text), a->chunk, a->microbatch, home);
            if (a->kind != TRI_ACTION_U) {
                uint32_t first = tri_index_find(&x->index, a->kind, a->chunk, a->microbatch);
                if (first != id)
                    return twice(x, first, id);
            }
            if (a->overlap && !pairs(&s->ranks[r], i))
                return tri_fail(x->err, TR_ERROR_INPUT,
                                "%s is to be overlapped, but no B stands behind it",
                                tri_index_text(&x->index, id, text));
        }
    return TR_OK;
}

static tr_status missing(const check *x, tri_action_kind kind, uint32_t chunk, uint32_t m,
                         uint32_t because)
{
    char name[48], text[96];
    tri_action a = {.kind = kind, .chunk = chunk, .microbatch = m};
    tri_action_text(&a, name);
    uint32_t home = tri_schedule_home(x->schedule, chunk, m);
    if (because == TRI_NO_ACTION)
        return tri_fail(x->err, TR_ERROR_INPUT, "%s is missing on rank %u", name, home);
    return tri_fail(x->err, TR_ERROR_INPUT, "%s is missing on rank %u, although there is %s", name,
                    home, tri_index_text(&x->index, because, text));
}

static tr_status in_order(const check *x, uint32_t before, uint32_t after)
{
    char a[96], b[96];
    if (before < after)
        return TR_OK;
    return tri_fail(x->err, TR_ERROR_INPUT, "%s comes before %s, whose result it needs; swap them",
                    tri_index_text(&x->index, after, a), tri_index_text(&x->index, before, b));
}

/* A message that should be there is, and stands right; one that should not be is not. */
static tr_status check_message(const check *x, tri_action_kind kind, uint32_t c, uint32_t m,
                               bool wanted, uint32_t computes)
{
    char text[96];
    uint32_t id = tri_index_find(&x->index, kind, c, m);
    bool receives = kind == TRI_ACTION_RECV_F || kind == TRI_ACTION_RECV_B;
    if (id == TRI_NO_ACTION) {
        if (!wanted)
            return TR_OK;
        tri_action mate =
            tri_message_mate(&(tri_action){.kind = kind, .chunk = c, .microbatch = m});
        uint32_t other = tri_index_find(&x->index, mate.kind, mate.chunk, m);
        return missing(x, kind, c, m, other != TRI_NO_ACTION ? other : computes);
    }
    if (!wanted)
        return tri_fail(x->err, TR_ERROR_INPUT,
                        "%s has no other end: the neighbour chunk is on the same rank, or there is "
                        "none",
                        tri_index_text(&x->index, id, text));
    return receives ? in_order(x, id, computes) : in_order(x, computes, id);
}

static tr_status check_messages(const check *x, uint32_t c, uint32_t m, uint32_t f, uint32_t i)
{
    const tri_schedule *s = x->schedule;
    uint32_t rank = tri_schedule_home(s, c, m);
    bool before = c > 0 && tri_schedule_home(s, c - 1, m) != rank;
    bool after = c + 1 < s->num_chunks && tri_schedule_home(s, c + 1, m) != rank;
    TRI_TRY(check_message(x, TRI_ACTION_RECV_F, c, m, before && s->has_messages, f));
    TRI_TRY(check_message(x, TRI_ACTION_SEND_F, c, m, after && s->has_messages, f));
    TRI_TRY(check_message(x, TRI_ACTION_RECV_B, c, m, after && s->has_messages, i));
    return check_message(x, TRI_ACTION_SEND_B, c, m, before && s->has_messages, i);
}

static tr_status check_cell(const check *x, uint32_t c, uint32_t m)
{
    uint32_t f = tri_index_find(&x->index, TRI_ACTION_F, c, m);
    uint32_t i = tri_index_find(&x->index, TRI_ACTION_I, c, m);
    uint32_t w = tri_index_find(&x->index, TRI_ACTION_W, c, m);
    uint32_t b = tri_index_find(&x->index, TRI_ACTION_B, c, m);
    if (f == TRI_NO_ACTION)
        return missing(x, TRI_ACTION_F, c, m, i);
    if (i == TRI_NO_ACTION)
        return missing(x, TRI_ACTION_B, c, m, f);
    TRI_TRY(in_order(x, f, i));
    if (b != TRI_NO_ACTION) {
        uint32_t other = b == i ? w : i; /* an I or a W beside the B */
        if (other != TRI_NO_ACTION)
            return twice(x, b, other);
    } else if (w == TRI_NO_ACTION) {
        return missing(x, TRI_ACTION_W, c, m, i);
    } else {
        TRI_TRY(in_order(x, i, w));
    }
    return check_messages(x, c, m, f, i);
}

/* What is known of a chunk while its list is walked. */
typedef struct chunk_progress {
    uint32_t backwards;
    uint32_t updated; /* of so many of them its last update was */
} chunk_progress;

static tr_status check_update(const check *x, const tri_action *a, uint32_t id,
                              chunk_progress *chunk)
{
    const tri_schedule *s = x->schedule;
    uint32_t end = a->microbatch + 1;
    bool complete = end == s->num_microbatches || (s->update_every && end % s->update_every == 0);
    char text[96];
    tri_index_text(&x->index, id, text);
    if (chunk->updated == end)
        return tri_fail(x->err, TR_ERROR_INPUT, "%s is there a second time; remove one", text);
    if (!complete || chunk->backwards != end)
        return tri_fail(x->err, TR_ERROR_INPUT,
                        "%s updates after %u backwards of its chunk; expected one after every %u, "
                        "when their gradients are complete",
                        text, chunk->backwards, s->update_every);
    chunk->updated = end;
    return TR_OK;
}

/* Asynchronous schedules: each chunk is updated when its group of micro-batches is complete. */
static tr_status check_updates(const check *x)
{
    const tri_schedule *s = x->schedule;
    chunk_progress *chunks = calloc(s->num_chunks, sizeof *chunks);
    if (!chunks)
        return tri_fail(x->err, TR_ERROR_RUNTIME, "no memory for the schedule");
    tr_status status = TR_OK;
    for (uint32_t r = 0; r < s->num_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].count && status == TR_OK; i++) {
            const tri_action *a = &s->ranks[r].actions[i];
            uint32_t id = x->index.first[r] + (uint32_t)i;
            if (a->kind == TRI_ACTION_B || a->kind == TRI_ACTION_W)
                chunks[a->chunk].backwards++;
            else if (a->kind == TRI_ACTION_U)
                status = check_update(x, a, id, &chunks[a->chunk]);
        }
    free(chunks);
    return status;
}

static tr_status check_counts(const check *x)
{
    TRI_TRY(check_places(x));
    for (uint32_t c = 0; c < x->schedule->num_chunks; c++)
        for (uint32_t m = 0; m < x->schedule->num_microbatches; m++)
            TRI_TRY(check_cell(x, c, m));
    return check_updates(x);
}

static tr_status run_machine(const check *x)
{
    tri_machine_options options = {.pairs = true};
    TRI_TRY(tri_machine_run(&x->index, &options, NULL, NULL, x->err));
    if (!x->schedule->has_messages)
        return TR_OK;
    options.merged = true;
    return tri_machine_run(&x->index, &options, NULL, NULL, x->err);
}

tr_status tri_schedule_check(const tri_schedule *schedule, tr_error *err)
{
    check x = {.schedule = schedule, .err = err};
    TRI_TRY(tri_schedule_index_init(&x.index, schedule, err));
    tr_status status = check_counts(&x);
    if (status == TR_OK)
        status = run_machine(&x);
    tri_schedule_index_fini(&x.index);
    return status;
}
