/* Programs on a device that has a queue: recorded once, then replayed.
 *
 * The timeline falls into parts. A part is a recording of device instructions, or one instruction
 * that the host takes part in: a message to other ranks (the operand travels through the host's
 * copy of its slab), an operator that the device has no kernel for (the CPU's works on copies of
 * the operands), an instruction of the host, or a copy from or to a file, which may go on beside
 * what follows. Without any of these a program is one recording, with what its device sends by
 * itself (executor_lanes.c, executor_carry_lanes.c). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "program/messages.h"
#include "run/executor_parts.h"

enum { MOST_AT_ONCE = 4096 };

static const tri_device_queue *queue_of(const tri_executor *executor)
{
    return executor->store->device->def->queue;
}

/* ---- enqueueing ---- */

tr_status tri_executor_enqueue(tri_executor *executor, uint32_t c, uint32_t first, uint32_t end,
                               uint32_t *done, tr_error *err)
{
    const tri_kernel_args *args[MOST_AT_ONCE];
    uint32_t count = *done = tri_executor_run_length(executor, first, end, MOST_AT_ONCE);
    for (uint32_t i = 0; i < count; i++) {
        tri_executor_point(executor, &executor->program->calls[c], first + i);
        args[i] = &executor->ready[first + i].args;
    }
    if (!executor->ready[first].plan.kernel)
        return tri_message_carries(tri_executor_message(executor, first))
                   ? tri_executor_carry_send(executor, c, first, err)
                   : tri_executor_lane_send(executor, c, first, err);
    TRI_TRY(tri_executor_lane_meet(executor, first, count, err));
    if (count > 1) {
        executor->ready[first].plan.kernel->run_many(args, (int)count);
        return TR_OK;
    }
    size_t scratch_bytes;
    void *scratch = tri_executor_scratch(executor, first, &scratch_bytes);
    if (scratch)
        queue_of(executor)->lend_scratch(executor->store->device, scratch, scratch_bytes);
    tri_device_call(&executor->ready[first].plan, args[0]);
    if (scratch)
        queue_of(executor)->lend_scratch(executor->store->device, NULL, 0);
    return TR_OK;
}

static tr_status add_part(tri_executor *executor, tri_part part, tr_error *err)
{
    if (executor->num_parts == executor->parts_capacity) {
        size_t capacity = executor->parts_capacity ? 2 * executor->parts_capacity : 8;
        tri_part *parts = realloc(executor->parts, capacity * sizeof *parts);
        if (!parts)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the recordings of the program");
        executor->parts = parts;
        executor->parts_capacity = capacity;
    }
    executor->parts[executor->num_parts++] = part;
    return TR_OK;
}

typedef struct recorder {
    bool open;
    tri_part part;
    size_t next_landing; /* of the program */
} recorder;

static tr_status close_recording(tri_executor *executor, recorder *r, tr_error *err)
{
    if (!r->open)
        return TR_OK;
    r->open = false;
    TRI_TRY(tri_executor_lane_meet_all(executor, err));
    TRI_TRY(queue_of(executor)->record_end(executor->store->device, &r->part.recording, err));
    return add_part(executor, r->part, err);
}

/* Weights that a call copies first; a message may still be at them. */
static tr_status copy_version(tri_executor *executor, const tri_call *call, tr_error *err)
{
    if (call->copy_from == TRI_NONE)
        return TR_OK;
    TRI_TRY(tri_executor_lane_meet_all(executor, err));
    return tri_executor_copy_version(executor, call, err);
}

static void begin_recording(recorder *r, uint32_t call, uint32_t instr)
{
    r->open = true;
    r->part = (tri_part){.call = call, .instr = instr};
}

/* What the host carries must have ended before this instruction: a part of its own. */
static tr_status record_landings(tri_executor *executor, uint32_t c, uint32_t i, recorder *r,
                                 tr_error *err)
{
    const tri_program *program = executor->program;
    bool lands = false;
    for (; r->next_landing < program->num_flights && program->landings[r->next_landing].call == c &&
           program->landings[r->next_landing].instr == i;
         r->next_landing++)
        lands = true;
    if (!lands)
        return TR_OK;
    TRI_TRY(close_recording(executor, r, err));
    return add_part(executor, (tri_part){.call = c, .instr = i, .lands = true}, err);
}

static tr_status record_turn(tri_executor *executor, const tri_turn *turn, recorder *r,
                             tr_error *err)
{
    uint32_t c = turn->call;
    const tri_call *call = &executor->program->calls[c];
    for (uint32_t i = turn->first; i < turn->end;) {
        const tri_instr *instr = &executor->program->instrs[i];
        if (!tri_instr_leads(executor->program, i) || !tri_call_runs(call, instr)) {
            i++;
            continue;
        }
        TRI_TRY(record_landings(executor, c, i, r, err));
        if (tri_executor_stands_alone(executor, i)) {
            TRI_TRY(close_recording(executor, r, err));
            TRI_TRY(add_part(executor, (tri_part){.call = c, .instr = i}, err));
            i++;
            continue;
        }
        if (!r->open) {
            TRI_TRY(queue_of(executor)->record(executor->store->device, err));
            begin_recording(r, c, i);
        }
        uint32_t count;
        TRI_TRY(tri_executor_enqueue(executor, c, i, turn->end, &count, err));
        i += count;
    }
    return TR_OK;
}

/* A call, or those of a pair. */
static tr_status record_calls(tri_executor *executor, uint32_t c, recorder *r, tr_error *err)
{
    const tri_program *program = executor->program;
    const tri_call *call = &program->calls[c];
    tri_turn turn;
    if (call->copy_from != TRI_NONE) {
        if (!r->open) {
            TRI_TRY(queue_of(executor)->record(executor->store->device, err));
            begin_recording(r, c, program->segments[call->segment].first);
        }
        TRI_TRY(copy_version(executor, call, err));
    }
    for (uint32_t n = 0; tri_timeline_turn(program, c, n, &turn); n++)
        TRI_TRY(record_turn(executor, &turn, r, err));
    return TR_OK;
}

static tr_status record_all(tri_executor *executor, tr_error *err)
{
    recorder r = {0};
    for (uint32_t c = 0; c < executor->program->num_calls;
         c += tri_calls_at_once(executor->program, c))
        TRI_TRY(record_calls(executor, c, &r, err));
    return close_recording(executor, &r, err);
}

void tri_executor_forget_parts(tri_executor *executor)
{
    for (size_t i = 0; i < executor->num_parts; i++)
        if (executor->parts[i].recording)
            queue_of(executor)->forget(executor->parts[i].recording);
    executor->num_parts = 0;
}

static tr_status replay_all(tri_executor *executor, tr_error *err)
{
    for (size_t p = 0; p < executor->num_parts; p++) {
        const tri_part *part = &executor->parts[p];
        tri_executor_publish(executor, part->instr);
        if (part->lands)
            TRI_TRY(tri_executor_land(executor, part->call, part->instr, err));
        else if (part->recording)
            TRI_TRY(queue_of(executor)->replay(executor->store->device, part->recording, err));
        else
            TRI_TRY(tri_executor_run_alone(executor, part->call, part->instr, err));
    }
    return TR_OK;
}

/* ---- without recording ---- */

/* The first run of a program with messages on lanes: what carries them connects the ranks and
 * reserves memory when it is first used, which is better done while nothing is recorded.
 *
 * Each message ends before anything else is begun. A kernel that is used for the first time is
 * loaded, and loading may wait until the device is idle: with a message under way whose other end
 * never comes it would wait for ever, and this thread, which would find that out, with it. */
static tr_status run_turn_once(tri_executor *executor, const tri_turn *turn, tr_error *err)
{
    const tri_program *program = executor->program;
    const tri_call *call = &program->calls[turn->call];
    for (uint32_t i = turn->first, count; i < turn->end; i += count) {
        count = 1;
        if (!tri_instr_leads(program, i) || !tri_call_runs(call, &program->instrs[i]))
            continue;
        TRI_TRY(tri_executor_land(executor, turn->call, i, err));
        if (tri_executor_stands_alone(executor, i))
            TRI_TRY(tri_executor_run_alone(executor, turn->call, i, err));
        else
            TRI_TRY(tri_executor_enqueue(executor, turn->call, i, turn->end, &count, err));
        if (executor->ready[i].plan.kernel)
            continue;
        TRI_TRY(tri_executor_lane_meet_all(executor, err));
        TRI_TRY(tri_executor_finish(executor, err));
    }
    return TR_OK;
}

static tr_status run_once(tri_executor *executor, tr_error *err)
{
    const tri_program *program = executor->program;
    tri_turn turn;
    for (uint32_t c = 0; c < program->num_calls; c += tri_calls_at_once(program, c)) {
        TRI_TRY(copy_version(executor, &program->calls[c], err));
        for (uint32_t n = 0; tri_timeline_turn(program, c, n, &turn); n++)
            TRI_TRY(run_turn_once(executor, &turn, err));
    }
    return TR_OK;
}

/* ---- with the time of each instruction ---- */

typedef struct timed {
    uint32_t call, instr, count;
} timed;

typedef struct timed_list {
    timed *list;
    uint32_t num;
} timed_list;

static tr_status run_turn_timed(tri_executor *executor, const tri_turn *turn, timed_list *times,
                                tr_error *err)
{
    const tri_program *program = executor->program;
    for (uint32_t i = turn->first, count; i < turn->end; i += count) {
        count = 1;
        if (!tri_instr_leads(program, i) ||
            !tri_call_runs(&program->calls[turn->call], &program->instrs[i]))
            continue;
        TRI_TRY(tri_executor_land(executor, turn->call, i, err));
        TRI_TRY(queue_of(executor)->mark(executor->store->device, times->num, err));
        if (!executor->ready[i].plan.kernel || tri_executor_stands_alone(executor, i))
            TRI_TRY(tri_executor_run_alone(executor, turn->call, i, err));
        else
            TRI_TRY(tri_executor_enqueue(executor, turn->call, i, turn->end, &count, err));
        times->list[times->num++] = (timed){turn->call, i, count};
    }
    return TR_OK;
}

/* Those that one call of a kernel did share its time by their bytes. */
static void record_run(const tri_executor *executor, const timed *run, int64_t start, int64_t end)
{
    const tri_program *program = executor->program;
    double all = 0, done = 0;
    for (uint32_t k = 0; k < run->count; k++)
        all += program->instrs[run->instr + k].cost.bytes;
    int64_t from = start;
    for (uint32_t k = 0; k < run->count; k++) {
        done += program->instrs[run->instr + k].cost.bytes;
        double share = k + 1 == run->count || all <= 0 ? 1 : done / all;
        int64_t to = start + (int64_t)((double)(end - start) * share);
        tri_executor_record_time(executor, &program->calls[run->call], run->instr + k, from, to);
        from = to;
    }
}

/* Not recorded: a mark in the queue before each instruction, and one after the last. */
static tr_status run_timed(tri_executor *executor, tr_error *err)
{
    const tri_program *program = executor->program;
    const tri_device_queue *queue = queue_of(executor);
    tri_device *device = executor->store->device;
    timed *list = calloc(program->num_calls * program->num_instrs + 1, sizeof *list);
    timed_list times = {.list = list};
    if (!list)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to time the program");
    int64_t begin = (int64_t)tri_now_ns();
    tr_status status = TR_OK;
    for (uint32_t c = 0; c < program->num_calls && status == TR_OK;
         c += tri_calls_at_once(program, c)) {
        tri_turn turn;
        status = copy_version(executor, &program->calls[c], err);
        for (uint32_t n = 0; status == TR_OK && tri_timeline_turn(program, c, n, &turn); n++)
            status = run_turn_timed(executor, &turn, &times, err);
    }
    uint32_t num = times.num;
    if (status == TR_OK)
        status = queue->mark(device, num, err);
    if (status == TR_OK)
        status = tri_executor_finish(executor, err);
    for (uint32_t n = 0; n < num && status == TR_OK; n++) {
        int64_t start = begin + (int64_t)(1e9 * queue->seconds_between(device, 0, n));
        int64_t end = begin + (int64_t)(1e9 * queue->seconds_between(device, 0, n + 1));
        record_run(executor, &list[n], start, end);
    }
    free(list);
    return status;
}

/* ---- a run ---- */

tr_status tri_executor_copy_spaces(tri_executor *executor, bool inputs, tr_error *err)
{
    const tri_program *program = executor->program;
    tri_device *device = executor->store->device;
    char *host = executor->store->host_io.memory,
         *slab = executor->store->slabs[TRI_SLAB_SHARED].memory;
    for (size_t s = 0; s < program->num_spaces; s++) {
        tri_space_kind kind = program->spaces[s].kind;
        bool wanted = inputs ? kind == TRI_SPACE_STEP || kind == TRI_SPACE_BATCH
                             : kind == TRI_SPACE_STAT || kind == TRI_SPACE_OUTPUT;
        uint64_t base = executor->base[s], bytes = tri_space_total(&program->spaces[s]);
        if (!wanted || !bytes)
            continue;
        if (inputs)
            TRI_TRY(queue_of(executor)->upload(device, slab + base, host + base, bytes, err));
        else
            TRI_TRY(queue_of(executor)->download(device, host + base, slab + base, bytes, err));
    }
    return TR_OK;
}

static tr_status run_queue(tri_executor *executor, tr_error *err)
{
    bool first, timed = tri_executor_is_timed(executor);
    bool meanwhile = executor->meanwhile && queue_of(executor)->reach && !timed;
    tri_device *device = executor->store->device;
    tri_executor_own_begin(executor);
    executor->store->num_runs++;
    executor->num_started = executor->num_landed = executor->num_reached = 0;
    TRI_TRY(tri_executor_carry_begin(executor, err));
    TRI_TRY(tri_executor_lane_begin(executor, &first, err));
    TRI_TRY(tri_executor_copy_spaces(executor, true, err));
    if (meanwhile)
        TRI_TRY(queue_of(executor)->mark(device, 0, err));
    if (timed) {
        TRI_TRY(run_timed(executor, err));
    } else if (first) {
        TRI_TRY(run_once(executor, err));
    } else {
        if (executor->num_parts == 0)
            TRI_TRY(record_all(executor, err));
        TRI_TRY(replay_all(executor, err));
    }
    TRI_TRY(tri_executor_land(executor, (uint32_t)executor->program->num_calls, 0, err));
    TRI_TRY(tri_executor_copy_spaces(executor, false, err));
    if (meanwhile) {
        TRI_TRY(queue_of(executor)->reach(device, 0, err));
        executor->meanwhile(executor->meanwhile_context);
    }
    return tri_executor_finish(executor, err);
}

tr_status tri_executor_run_queue(tri_executor *executor, tr_error *err)
{
    tr_status status = run_queue(executor, err);
    if (executor->brake > 1)
        tri_executor_end_pace(executor);
    tri_executor_own_add(executor, TRI_OWN_COMPUTE);
    if (status != TR_OK && executor->num_started > 0)
        tri_executor_abandon(executor);
    return status;
}
