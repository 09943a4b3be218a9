#include "train/health/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/batch.h"

enum { TRAINED, REPLAYED, OF_OTHER };

/* ---- what can run twice ---- */

static const tri_program *program_of(const tri_session *session)
{
    return &session->programs[TRI_PROGRAM_TRAIN];
}

static bool updates(const tri_program *program, size_t call)
{
    return program->segments[program->calls[call].segment].action == TRI_ACTION_U;
}

/* Calls before the first update. */
static uint32_t calls_before(const tri_program *program)
{
    uint32_t c = 0;
    while (c < program->num_calls && !updates(program, c))
        c++;
    return c;
}

/* What an instruction writes of what outlives a step; NULL: nothing. */
static const tri_state *lasting(const tri_program *program, const tri_instr *instr)
{
    for (int k = 0; k < instr->num_out; k++) {
        tri_id state = program->values[instr->out[k].value].state;
        if (state == TRI_NONE)
            continue;
        tri_state_kind kind = program->states[state].kind;
        if (kind != TRI_STATE_GRAD && kind != TRI_STATE_STAT)
            return &program->states[state];
    }
    return NULL;
}

static tr_status check_program(const tri_program *program, tr_error *err)
{
    uint32_t num = calls_before(program);
    bool between = program->num_updates > 0;
    for (size_t c = num; c < program->num_calls; c++)
        between |= !updates(program, c);
    if (between)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "run.replay_every: this layout.schedule updates weights while micro-batches "
            "are under way, so no step can be done twice; set run.replay_every=0, or "
            "another layout.schedule");
    for (uint32_t c = 0; c < num; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            const tri_state *state = lasting(program, &program->instrs[i]);
            if (state)
                return tri_fail(err, TR_ERROR_INPUT,
                                "run.replay_every: instruction %u (%s -> %s) changes what the next "
                                "step begins with before the update, so no step can be done twice; "
                                "set run.replay_every=0",
                                i, tri_op_get(program->instrs[i].op)->name, state->name);
        }
    }
    return TR_OK;
}

/* Whether the device has memory of its own, one that is only described included. */
static bool is_apart(const tri_session *session)
{
    return session->device.def->queue || session->device.def->apart;
}

/* A result of the calls before the update that lies elsewhere than on the device; NULL: none. */
static const tri_operand *elsewhere(const tri_program *program, uint32_t *instr)
{
    uint32_t num = calls_before(program);
    for (uint32_t c = 0; c < num; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (*instr = segment->first; *instr < segment->first + segment->count; ++*instr)
            for (int k = 0; k < program->instrs[*instr].num_out; k++) {
                const tri_operand *out = &program->instrs[*instr].out[k];
                if (program->spaces[out->space].where != TRI_WHERE_DEVICE)
                    return out;
            }
    }
    return NULL;
}

/* What its recordings with sums cannot do. */
static tr_status check_apart(const tri_session *session, tr_error *err)
{
    const tri_program *program = program_of(session);
    const tri_device_queue *queue = session->device.def->queue;
    if (queue && (!queue->clear || !queue->add_sum))
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.replay_every is %" PRId64
                        ", but run.device=%s cannot sum what its kernels make; set "
                        "run.replay_every=0, or run.device=cpu",
                        session->config.replay.every, session->device.def->kind);
    if (session->config.device.any_order)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.replay_every is %" PRId64
                        ", but run.deterministic=false lets a GPU add in any order, so bits differ "
                        "all the time; set run.deterministic=true, or run.replay_every=0",
                        session->config.replay.every);
    uint32_t instr;
    const tri_operand *out = elsewhere(program, &instr);
    if (out)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.replay_every: instruction %u (%s -> %s) leaves its result outside of "
                        "the GPU's memory, where it cannot be compared; take activations out of "
                        "layout.offload, or set run.replay_every=0",
                        instr, tri_op_get(program->instrs[instr].op)->name,
                        program->values[out->value].name);
    return TR_OK;
}

static bool is_wanted(const tri_session *session)
{
    return session->config.replay.every > 0 && tri_session_has(session, TRI_PROGRAM_TRAIN) &&
           session->device.def != &tri_device_null; /* it has nothing to compare */
}

tr_status tri_replay_check(const tri_session *session, tr_error *err)
{
    if (!is_wanted(session))
        return TR_OK;
    TRI_TRY(check_program(program_of(session), err));
    return is_apart(session) ? check_apart(session, err) : TR_OK;
}

/* ---- with whom ---- */

/* Ranks of ep hold different experts, so all of them together are what has the same weights. */
static int places_together(const tri_mesh *mesh)
{
    int ep = tri_mesh_size(mesh, TRI_AXIS_EP), cp = tri_mesh_size(mesh, TRI_AXIS_CP);
    return ep > cp ? ep / cp : 1;
}

int tri_replay_num_others(const tri_mesh *mesh)
{
    return tri_mesh_size(mesh, TRI_AXIS_DP) / places_together(mesh);
}

static void choose_others(tri_replay *r)
{
    const tri_mesh *mesh = &r->session->config.compile.mesh;
    int rank = r->ranks->rank, unit = places_together(mesh);
    r->to = r->from = rank;
    r->num_others = tri_replay_num_others(mesh);
    if (r->num_others == 1)
        r->config.kind = TRI_REPLAY_SAME;
    if (r->config.kind == TRI_REPLAY_SAME)
        return;
    int dp = tri_mesh_size(mesh, TRI_AXIS_DP), stride = tri_mesh_stride(mesh, TRI_AXIS_DP);
    int own = tri_mesh_coordinate(mesh, rank, TRI_AXIS_DP);
    r->to_dp = (own + unit) % dp;
    r->to = rank + (r->to_dp - own) * stride;
    r->from = rank + ((own + dp - unit) % dp - own) * stride;
}

/* Those who compare have the same instructions. */
static tr_status compare_programs(const tri_replay *r, tr_error *err)
{
    const tri_program *program = program_of(r->session);
    int64_t own = (int64_t)tri_replay_digest(program, r->num_calls, r->left_out);
    TRI_TRY(tr_all_gather(tr_comm_world(r->ranks->comm), &own, r->ranks->told, 1, TR_I64, err));
    const tri_mesh *mesh = &r->session->config.compile.mesh;
    int stride = tri_mesh_stride(mesh, TRI_AXIS_DP), unit = places_together(mesh);
    for (int rank = 0; rank < r->ranks->size; rank++) {
        int place = tri_mesh_coordinate(mesh, rank, TRI_AXIS_DP), first = rank;
        first -= place / unit * unit * stride;
        if (r->ranks->told[rank] != r->ranks->told[first])
            return tri_fail(err, TR_ERROR_INPUT,
                            "run.replay is exchange, but ranks %d and %d, which have the same "
                            "weights, do not run the same instructions; set run.replay=same",
                            first, rank);
    }
    return TR_OK;
}

/* ---- open and close ---- */

static int num_tables(const tri_replay_config *config)
{
    return config->kind == TRI_REPLAY_EXCHANGE ? 3 : 2;
}

uint64_t tri_replay_table_bytes(const tri_session *session)
{
    if (!is_wanted(session))
        return 0;
    const tri_program *program = program_of(session);
    uint64_t num = tri_executor_num_sums(program, calls_before(program), NULL);
    return (uint64_t)num_tables(&session->config.replay) * (num + 1) * sizeof(uint64_t) +
           program->num_instrs + 4 * program->num_values;
}

uint64_t tri_replay_device_bytes(const tri_session *session, const tri_program *program)
{
    if (!is_wanted(session) || !is_apart(session))
        return 0;
    return tri_executor_num_sums(program, calls_before(program), NULL) * sizeof(uint64_t);
}

tr_status tri_replay_open(tri_replay *r, tri_session *session, tri_ranks *ranks, tr_error *err)
{
    *r = (tri_replay){.session = session, .ranks = ranks, .config = session->config.replay};
    if (!is_wanted(session))
        return TR_OK;
    r->num_calls = calls_before(program_of(session));
    choose_others(r);
    if (r->config.kind == TRI_REPLAY_EXCHANGE) {
        TRI_TRY(tri_replay_list_apart(session, r->num_calls, &r->left_out, err));
        TRI_TRY(compare_programs(r, err));
    }
    r->num_sums = tri_executor_num_sums(program_of(session), r->num_calls, r->left_out);
    for (int i = 0; i < num_tables(&r->config); i++) {
        r->sums[i] = calloc(r->num_sums + 1, sizeof *r->sums[i]);
        if (!r->sums[i])
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the sums of replayed steps");
    }
    session->replay = r;
    return TR_OK;
}

void tri_replay_close(tri_replay *r)
{
    if (r->session && r->session->replay == r)
        r->session->replay = NULL;
    for (int i = 0; i < 3; i++)
        free(r->sums[i]);
    free(r->left_out);
    *r = (tri_replay){0};
}

/* ---- a step ---- */

bool tri_replay_is_due(const tri_replay *r)
{
    return (r->session->step + 1) % r->config.every == 0;
}

static void tell_made(void *context, uint32_t call, uint32_t instr, const tri_kernel_args *args)
{
    const tri_replay *r = context;
    r->made(r->context, r->again, call, instr, args);
}

static tr_status pass(tri_replay *r, bool again, tr_error *err)
{
    tri_executor_sums sums = {.sum = r->sums[again ? REPLAYED : TRAINED],
                              .left_out = r->left_out,
                              .made = r->made ? tell_made : NULL,
                              .context = r};
    r->again = again;
    return tri_executor_run_calls(&r->session->executors[TRI_PROGRAM_TRAIN], 0, r->num_calls, again,
                                  &sums, err);
}

static tr_status fill_rows_of(const tri_replay *r, int dp_rank, tr_error *err)
{
    tri_fill_rows_of(r->session, dp_rank);
    return r->session->data ? tri_data_problem(r->session->data, err) : TR_OK;
}

/* What this rank found of another's rows, to that one; and what is known of its own. */
static tr_status exchange_sums(tri_replay *r, tr_error *err)
{
    tr_comm *comm = r->ranks->comm;
    size_t bytes = r->num_sums * sizeof *r->sums[0];
    tr_request *sent = NULL;
    TRI_TRY(tr_send_start(comm, r->to, r->sums[REPLAYED], bytes, &sent, err));
    tr_status status = tr_recv(comm, r->from, r->sums[OF_OTHER], bytes, err);
    if (status != TR_OK)
        tri_comm_give_up(comm);
    tr_status done = tr_request_wait(sent, status == TR_OK ? err : NULL);
    return status != TR_OK ? status : done;
}

tr_status tri_replay_run(tri_replay *r, tr_error *err)
{
    const tri_session *session = r->session;
    tri_executor *executor = &r->session->executors[TRI_PROGRAM_TRAIN];
    const bool exchanges = r->config.kind == TRI_REPLAY_EXCHANGE;
    if (exchanges)
        TRI_TRY(fill_rows_of(r, r->to_dp, err));
    TRI_TRY(pass(r, true, err));
    if (exchanges)
        TRI_TRY(fill_rows_of(r, session->dp_rank, err));
    TRI_TRY(pass(r, false, err));
    if (exchanges)
        TRI_TRY(exchange_sums(r, err));
    TRI_TRY(tri_replay_find(r, err));
    r->num_replayed++;
    r->num_differs += r->found.step > 0;
    char text[320];
    if (r->found.step > 0 && r->config.stops)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "step %" PRId64 ": %s; run.on_replay is stop, so the weights stay those of "
                        "step %" PRId64,
                        r->found.step, tri_replay_text(&r->found, text, sizeof text),
                        r->found.step - 1);
    return tri_executor_run_calls(executor, r->num_calls, (uint32_t)program_of(session)->num_calls,
                                  false, NULL, err);
}

char *tri_replay_text(const tri_replay_finding *f, char *out, size_t size)
{
    char what[200], more[48] = "";
    snprintf(what, sizeof what,
             "bits of instruction %" PRId64 " (%s -> %s) of micro-batch %" PRId64, f->instruction,
             f->op, f->result, f->microbatch);
    if (f->num_more > 0)
        snprintf(more, sizeof more, ", and so did %d other rank%s", f->num_more,
                 f->num_more == 1 ? "" : "s");
    const char *sums = "checksums %016" PRIx64 " and %016" PRIx64;
    char both[64];
    snprintf(both, sizeof both, sums, f->sums[0], f->sums[1]);
    if (f->rank == f->other)
        snprintf(out, size, "rank %d made other %s when it did the step again%s (%s)", f->rank,
                 what, more, both);
    else if (f->sure)
        snprintf(out, size, "rank %d makes other %s than the ranks that did the same rows (%s)",
                 f->rank, what, both);
    else
        snprintf(out, size, "ranks %d and %d made different %s from the same rows%s (%s)", f->rank,
                 f->other, what, more, both);
    return out;
}
