/* Steps that run twice, on a device with a queue: recordings of their own, beside those of other
 * steps (executor_queue.c), which stay as they are.
 *
 * The calls before the update are recorded with sums: before each instruction its fresh results are
 * cleared, after it they are added to its word of the device's memory, and each message is waited
 * for where it stands. The calls after them are recorded without sums. Both are made when a step
 * runs twice for the first time; what stands alone is a part of its own there, too. The host
 * fetches the sums when the queue has run all of it.
 *
 * Where lanes have not been used yet nothing is recorded the first time, as in other runs: each
 * message ends before anything else is begun. */
#include <stdlib.h>

#include "run/executor_parts.h"

enum { SUMMED, REST, NUM_LISTS };

typedef struct twice_part {
    void *recording;      /* NULL: the instruction below, which stands alone */
    uint32_t call, instr; /* first of the part */
    size_t sum;           /* the number of its first sum */
} twice_part;

typedef struct twice_list {
    twice_part *parts;
    size_t num, capacity;
    bool connects; /* its lanes were not used yet */
} twice_list;

struct tri_twice {
    twice_list list[NUM_LISTS];
};

/* What is done with each instruction. */
typedef struct twice_walk {
    twice_list *list; /* NULL: it runs; otherwise it is recorded here */
    bool open;        /* a recording is */
    twice_part part;
} twice_walk;

static tri_device *device_of(const tri_executor *executor)
{
    return executor->store->device;
}

static const tri_device_queue *queue_of(const tri_executor *executor)
{
    return device_of(executor)->def->queue;
}

void tri_executor_twice_fini(tri_executor *executor)
{
    for (int i = 0; executor->twice && i < NUM_LISTS; i++) {
        twice_list *list = &executor->twice->list[i];
        for (size_t p = 0; p < list->num; p++)
            if (list->parts[p].recording)
                queue_of(executor)->forget(list->parts[p].recording);
        free(list->parts);
    }
    free(executor->twice);
}

/* ---- recording ---- */

static tr_status add_part(twice_list *list, twice_part p, tr_error *err)
{
    if (list->num == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 8;
        twice_part *parts = realloc(list->parts, capacity * sizeof *parts);
        if (!parts)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the recordings of the program");
        list->parts = parts;
        list->capacity = capacity;
    }
    list->parts[list->num++] = p;
    return TR_OK;
}

static size_t num_sums(const tri_executor *executor)
{
    return executor->sums ? executor->sums->num : 0;
}

static tr_status open_part(tri_executor *executor, twice_walk *w, uint32_t c, uint32_t i,
                           tr_error *err)
{
    if (!w->list || w->open)
        return TR_OK;
    w->open = true;
    w->part = (twice_part){.call = c, .instr = i, .sum = num_sums(executor)};
    return queue_of(executor)->record(device_of(executor), err);
}

static tr_status close_part(tri_executor *executor, twice_walk *w, tr_error *err)
{
    if (!w->open)
        return TR_OK;
    w->open = false;
    TRI_TRY(queue_of(executor)->record_end(device_of(executor), &w->part.recording, err));
    return add_part(w->list, w->part, err);
}

/* ---- instructions ---- */

/* One that is not enqueued alone, with what surrounds it. */
static tr_status run_alone(tri_executor *executor, uint32_t c, uint32_t i, tr_error *err)
{
    tri_executor_point(executor, &executor->program->calls[c], i);
    if (executor->sums)
        TRI_TRY(tri_executor_sum_begin(executor, c, i, err));
    TRI_TRY(tri_executor_run_alone(executor, c, i, err));
    return executor->sums ? tri_executor_sum_end(executor, c, i, err) : TR_OK;
}

/* Without sums a run of them, which counts for one that the kernel takes together. */
static tr_status enqueue(tri_executor *executor, uint32_t c, uint32_t i, uint32_t end,
                         uint32_t *count, tr_error *err)
{
    if (!executor->sums) {
        TRI_TRY(tri_executor_enqueue(executor, c, i, end, count, err));
        return tri_executor_lane_meet_all(executor, err);
    }
    tri_executor_point(executor, &executor->program->calls[c], i);
    TRI_TRY(tri_executor_sum_begin(executor, c, i, err));
    TRI_TRY(tri_executor_enqueue(executor, c, i, i + 1, count, err));
    TRI_TRY(tri_executor_lane_meet_all(executor, err));
    return tri_executor_sum_end(executor, c, i, err);
}

static tr_status walk_turn(tri_executor *executor, const tri_turn *turn, twice_walk *w,
                           tr_error *err)
{
    const tri_program *program = executor->program;
    const tri_call *call = &program->calls[turn->call];
    for (uint32_t i = turn->first, count; i < turn->end; i += count) {
        count = 1;
        if (!tri_instr_leads(program, i) || !tri_call_runs(call, &program->instrs[i]))
            continue;
        bool alone = tri_executor_stands_alone(executor, i);
        if (alone && w->list) {
            const twice_part p = {.call = turn->call, .instr = i, .sum = num_sums(executor)};
            TRI_TRY(close_part(executor, w, err));
            TRI_TRY(add_part(w->list, p, err));
            if (executor->sums && !(executor->sums->left_out && executor->sums->left_out[i]))
                executor->sums->num++;
            continue;
        }
        TRI_TRY(open_part(executor, w, turn->call, i, err));
        if (alone)
            TRI_TRY(run_alone(executor, turn->call, i, err));
        else
            TRI_TRY(enqueue(executor, turn->call, i, turn->end, &count, err));
        if (!w->list && !executor->ready[i].plan.kernel)
            TRI_TRY(tri_executor_finish(executor, err));
    }
    return TR_OK;
}

/* Into the list, or without one, now. */
static tr_status walk_calls(tri_executor *executor, uint32_t first, uint32_t end, twice_list *list,
                            tr_error *err)
{
    twice_walk w = {.list = list};
    tri_turn turn;
    for (uint32_t c = first; c < end; c += tri_calls_at_once(executor->program, c))
        for (uint32_t n = 0; tri_timeline_turn(executor->program, c, n, &turn); n++)
            TRI_TRY(walk_turn(executor, &turn, &w, err));
    return close_part(executor, &w, err);
}

static tr_status replay(tri_executor *executor, const twice_list *list, tr_error *err)
{
    for (size_t p = 0; p < list->num; p++) {
        const twice_part *part = &list->parts[p];
        tri_executor_publish(executor, part->instr);
        if (executor->sums)
            executor->sums->num = part->sum;
        if (part->recording)
            TRI_TRY(queue_of(executor)->replay(device_of(executor), part->recording, err));
        else
            TRI_TRY(run_alone(executor, part->call, part->instr, err));
    }
    return TR_OK;
}

/* ---- a run ---- */

static tr_status begin(tri_executor *executor, tr_error *err)
{
    bool first;
    executor->store->num_runs++;
    executor->num_started = executor->num_landed = executor->num_reached = 0;
    TRI_TRY(tri_executor_carry_begin(executor, err));
    TRI_TRY(tri_executor_lane_begin(executor, &first, err));
    if (!executor->twice)
        executor->twice = calloc(1, sizeof *executor->twice);
    if (!executor->twice)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the recordings of the program");
    for (int i = 0; i < NUM_LISTS; i++)
        executor->twice->list[i].connects |= first;
    return TR_OK;
}

static tr_status run(tri_executor *executor, uint32_t first, uint32_t end, twice_list *list,
                     tr_error *err)
{
    if (list->connects) {
        list->connects = false;
        return walk_calls(executor, first, end, NULL, err);
    }
    if (list->num == 0)
        TRI_TRY(walk_calls(executor, first, end, list, err));
    return replay(executor, list, err);
}

static tr_status run_twice(tri_executor *executor, uint32_t first, uint32_t end, size_t most,
                           tr_error *err)
{
    tri_executor_sums *sums = executor->sums;
    tri_device *device = device_of(executor);
    uint64_t *words = executor->store->sums.memory;
    TRI_TRY(begin(executor, err));
    if (first == 0)
        TRI_TRY(tri_executor_copy_spaces(executor, true, err));
    if (sums)
        TRI_TRY(queue_of(executor)->clear(device, words, most * sizeof *words, err));
    TRI_TRY(run(executor, first, end, &executor->twice->list[sums ? SUMMED : REST], err));
    if (end == executor->program->num_calls)
        TRI_TRY(tri_executor_copy_spaces(executor, false, err));
    if (sums)
        TRI_TRY(queue_of(executor)->download(device, sums->sum, words, most * sizeof *words, err));
    return tri_executor_finish(executor, err);
}

tr_status tri_executor_run_twice(tri_executor *executor, uint32_t first, uint32_t end,
                                 tr_error *err)
{
    const tri_executor_sums *sums = executor->sums;
    size_t most = sums ? tri_executor_num_sums(executor->program, end, sums->left_out) : 0;
    tri_executor_own_begin(executor);
    tr_status status = run_twice(executor, first, end, most, err);
    if (executor->brake > 1)
        tri_executor_end_pace(executor);
    tri_executor_own_add(executor, TRI_OWN_COMPUTE);
    return status;
}
