#include "train/weights_host.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/half.h"
#include "ckpt/weights.h"
#include "train/pieces.h"

/* Parameters and their copies are at the same addresses in every program: the first will do. */
static int any_program(const tri_session *session)
{
    int any = TRI_PROGRAM_TRAIN;
    while (!tri_session_has(session, any))
        any++;
    return any;
}

static const tri_program *program_of(const tri_session *session)
{
    return &session->programs[any_program(session)];
}

static const tri_executor *executor_of(const tri_session *session)
{
    return &session->executors[any_program(session)];
}

/* Whether the program has every parameter itself. One in 16 bits that does not train has only the
 * copies of most. */
static bool has_all(const tri_session *session)
{
    const tri_program *program = program_of(session);
    size_t num = 0;
    for (size_t s = 0; s < program->num_states; s++)
        num += program->states[s].kind == TRI_STATE_PARAM;
    return num == session->params.count;
}

static bool in_pieces(const tri_session *session)
{
    const tri_program *program = program_of(session);
    for (size_t s = 0; s < program->num_states; s++) {
        const tri_value *value = &program->values[program->states[s].latest];
        if (program->states[s].kind == TRI_STATE_PARAM &&
            (tri_placement_cut(&value->at) || value->flat.parts > 0))
            return true;
    }
    return false;
}

/* Room for all of a model on the host, of which each rank has a part: addresses only. It takes
 * memory where it is written, and that is given back as soon as a tensor is where it belongs. */
static float *reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Gives back the memory of `count` tensors from this one on; pages that they share with others
 * stay. */
static void forget(const tri_session *session, size_t param, size_t count)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)session->weights[param], end = begin;
    if (!session->host_weights)
        return;
    for (size_t i = param; i < param + count; i++)
        end += (size_t)tri_shape_count(&session->params.items[i].shape) * sizeof(float);
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (end > begin)
        madvise((void *)begin, end - begin, MADV_DONTNEED); /* NOLINT: an address, not a number */
}

void tri_weights_free(tri_session *session)
{
    if (session->host_weights)
        munmap(session->host_weights,
               (size_t)tri_param_total(&session->params) * sizeof(float) + 1);
    session->host_weights = NULL;
}

tr_status tri_weights_place(tri_session *session, tr_error *err)
{
    const tri_program *program = program_of(session);
    /* Alike on all ranks, since they pull together: of a pipeline one may have everything. */
    bool apart = session->device.def->queue || in_pieces(session) || !has_all(session) ||
                 program->first_home || session->config.compile.spaces.masters == TRI_WHERE_FILE;
    session->weights = calloc(session->params.count + 1, sizeof *session->weights);
    session->fresh = calloc(session->params.count + 1, sizeof *session->fresh);
    if (session->weights && apart)
        session->host_weights = reserve((size_t)tri_param_total(&session->params) * sizeof(float));
    if (!session->weights || !session->fresh || (apart && !session->host_weights))
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the weights on the host");
    float *next = session->host_weights;
    for (size_t i = 0; apart && i < session->params.count; i++) {
        session->weights[i] = next;
        next += tri_shape_count(&session->params.items[i].shape);
    }
    for (size_t s = 0; !apart && s < program->num_states; s++)
        if (program->states[s].kind == TRI_STATE_PARAM)
            session->weights[program->states[s].param] =
                tri_executor_memory(executor_of(session), program->states[s].latest, 0);
    return TR_OK;
}

/* How a dim of a parameter is cut; parts 0: it is not. */
static tri_cut cut_of(const tri_session *session, const tri_value *value, const tri_shape *whole,
                      int d)
{
    if (value->at.dim[d].num == 0)
        return (tri_cut){0};
    return tri_placement_last(&program_of(session)->grid, &value->at.dim[d], whole->dim[d], d,
                              value->at.dim[d].num);
}

/* A tensor seen as outer lines, each with the cut dim and what is inside it. */
typedef struct cut_lines {
    int64_t outer, inner, whole; /* whole: elements of a line of the whole tensor */
} cut_lines;

static cut_lines lines_of(const tri_shape *whole, const tri_cut *cut)
{
    cut_lines l = {.outer = tri_shape_span(whole, 0, cut->dim),
                   .inner = tri_shape_span(whole, cut->dim + 1, whole->rank)};
    l.whole = cut->size * l.inner;
    return l;
}

/* Copies part `part`, a dense piece, into the whole tensor. */
static void put_piece(const tri_shape *shape, const tri_cut *cut, int part, float *whole,
                      const float *piece)
{
    cut_lines l = lines_of(shape, cut);
    int64_t run = tri_cut_size(cut, part) * l.inner, begin = tri_cut_begin(cut, part) * l.inner;
    for (int64_t o = 0; o < l.outer; o++)
        memcpy(whole + o * l.whole + begin, piece + o * run, (size_t)run * sizeof(float));
}

static float *largest_room(const tri_session *session, size_t times)
{
    int64_t most = 1;
    for (size_t i = 0; i < session->params.count; i++) {
        int64_t count = tri_shape_count(&session->params.items[i].shape);
        most = count > most ? count : most;
    }
    return malloc((size_t)most * sizeof(float) * times);
}

/* Which states hold a parameter: itself and its 16-bit copy, TRI_NONE where there is none. */
typedef struct holders {
    tri_id param, copy;
} holders;

static holders *find_holders(const tri_session *session)
{
    const tri_program *program = program_of(session);
    holders *found = malloc((session->params.count + 1) * sizeof *found);
    for (size_t i = 0; found && i < session->params.count; i++)
        found[i] = (holders){TRI_NONE, TRI_NONE};
    for (size_t s = 0; found && s < program->num_states; s++) {
        const tri_state *state = &program->states[s];
        if (state->kind == TRI_STATE_PARAM)
            found[state->param].param = (tri_id)s;
        else if (state->kind == TRI_STATE_COPY)
            found[state->param].copy = (tri_id)s;
    }
    return found;
}

/* Parameters on their way to the device. */
typedef struct pusher {
    tri_session *session;
    tri_weights_fn fill; /* NULL: session->weights has them */
    void *context;
    float *room;
    tri_region has; /* what is in the room, of the parameter at hand; count 0: nothing */
} pusher;

static tri_region region_of(const tri_session *session, const tri_state *state)
{
    const tri_program *program = program_of(session);
    return tri_piece_region(&program->grid, &session->params.items[state->param].shape,
                            &program->values[state->latest]);
}

/* A region of a parameter into the room, unless it is there. */
static tr_status take(pusher *p, tri_id param, const tri_region *region, tr_error *err)
{
    const tri_session *session = p->session;
    bool there = p->has.count == region->count && p->has.first == region->first &&
                 tri_region_same_box(&p->has, region);
    if (there)
        return TR_OK;
    p->has = *region;
    if (p->fill && session->host_weights)
        return p->fill(p->context, p->session, param, region, p->room, err);
    tri_weights_take(session->weights[param], region, p->room);
    return TR_OK;
}

static tr_status push_state(pusher *p, const tri_state *state, tr_error *err)
{
    tri_session *session = p->session;
    const tri_region region = region_of(session, state);
    if (state->kind == TRI_STATE_PARAM && !session->host_weights) /* it lies where it belongs */
        return p->fill ? p->fill(p->context, session, state->param, &region,
                                 session->weights[state->param], err)
                       : TR_OK;
    if (region.count == 0)
        return TR_OK;
    TRI_TRY(take(p, state->param, &region, err));
    if (state->kind == TRI_STATE_PARAM)
        return tri_executor_write(executor_of(session), state->latest, p->room, err);
    uint16_t *half = (uint16_t *)(p->room + region.count);
    for (int64_t i = 0; i < region.count; i++)
        half[i] =
            state->dtype == TRI_BF16 ? tri_weight_to_bf16(p->room[i]) : tri_f32_to_f16(p->room[i]);
    return tri_executor_write(executor_of(session), state->latest, half, err);
}

static tr_status push_param(pusher *p, const holders *held, tr_error *err)
{
    const tri_program *program = program_of(p->session);
    p->has.count = 0;
    if (held->param != TRI_NONE)
        TRI_TRY(push_state(p, &program->states[held->param], err));
    if (held->copy != TRI_NONE)
        TRI_TRY(push_state(p, &program->states[held->copy], err));
    return TR_OK;
}

/* Room for the largest piece that this rank has of a parameter, and for its 16-bit copy. */
static float *room_for_pieces(const tri_session *session)
{
    const tri_program *program = program_of(session);
    int64_t most = 1;
    for (size_t s = 0; s < program->num_states; s++) {
        tri_state_kind kind = program->states[s].kind;
        if (kind != TRI_STATE_PARAM && kind != TRI_STATE_COPY)
            continue;
        int64_t count = region_of(session, &program->states[s]).count;
        most = count > most ? count : most;
    }
    return malloc((size_t)most * (sizeof(float) + sizeof(uint16_t)));
}

tr_status tri_weights_push(tri_session *session, tri_weights_fn fill, void *context, tr_error *err)
{
    pusher p = {session, fill, context, room_for_pieces(session), {0}};
    holders *held = find_holders(session);
    tr_status status = p.room && held
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory to convert the weights");
    for (size_t i = 0; i < session->params.count && status == TR_OK; i++) {
        if (held[i].param == TRI_NONE && held[i].copy == TRI_NONE)
            continue; /* others of the pipeline have it */
        status = push_param(&p, &held[i], err);
        forget(session, i, 1);
    }
    if (session->params.count)
        forget(session, 0, session->params.count);
    free(held);
    free(p.room);
    return status;
}

static tri_rank_group group_of(const tri_session *session, tri_axis axis)
{
    return tri_grid_group(&program_of(session)->grid, axis);
}

size_t tri_weights_groups(const tri_session *session, tri_rank_group groups[TRI_WEIGHTS_GROUPS])
{
    static const tri_axis axes[TRI_WEIGHTS_GROUPS] = {
        TRI_AXIS_TP, TRI_AXIS_KV, TRI_AXIS_SHARD, TRI_AXIS_EP_SHARD, TRI_AXIS_EP, TRI_AXIS_PP};
    size_t num = 0;
    for (int i = 0; i < TRI_WEIGHTS_GROUPS; i++)
        if (program_of(session)->grid.axis[axes[i]].factors &&
            tri_mesh_size(&session->config.compile.mesh, axes[i]) > 1)
            groups[num++] = group_of(session, axes[i]);
    return num;
}

/* Collects what the ranks of an axis have of a tensor, one after the other. */
static tr_status collect(tri_session *session, const tri_state *state, tri_axis axis,
                         const uint64_t *counts, const float *own, float *all, tr_error *err)
{
    tri_rank_group group = group_of(session, axis);
    tri_exchange_call message = {.kind = TRI_MESSAGE_ALL_GATHER,
                                 .group = &group,
                                 .send = own,
                                 .recv = all,
                                 .dtype = TRI_F32,
                                 .recv_counts = counts,
                                 .label = state->name};
    return session->exchange.run(session->exchange.context, &message, err);
}

/* Puts a dim together that the ranks of an axis have pieces of: `own` becomes whole along it. */
static tr_status join_dim(tri_session *session, const tri_state *state, const tri_cut *cut,
                          tri_shape *shape, float *own, float *all, uint64_t *counts, tr_error *err)
{
    const tri_value *value = &program_of(session)->values[state->latest];
    const tri_grid *grid = &program_of(session)->grid;
    int axis = tri_grid_find_axis(grid, tri_entries_set(&value->at.dim[cut->dim]));
    if (axis < 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "%s is cut over no axis", state->name);
    shape->dim[cut->dim].size = cut->size;
    cut_lines l = lines_of(shape, cut);
    for (int part = 0; part < cut->parts; part++)
        counts[part] = (uint64_t)(l.outer * tri_cut_size(cut, part) * l.inner);
    TRI_TRY(collect(session, state, (tri_axis)axis, counts, own, all, err));
    for (int part = 0; part < cut->parts; part++) {
        put_piece(shape, cut, part, own, all);
        all += counts[part];
    }
    return TR_OK;
}

/* The whole of a parameter from all ranks: first what dp divides, then what is cut dim by dim. */
static tr_status pull_state(tri_session *session, const tri_state *state, float *room,
                            uint64_t *counts, tr_error *err)
{
    const tri_value *value = &program_of(session)->values[state->latest];
    const tri_param *param = &session->params.items[state->param];
    const tri_shape *whole = &param->shape;
    float *own = room, *all = room + tri_shape_count(whole), *to = session->weights[state->param];
    int64_t first;
    if (tri_shape_count(&state->shape) > 0)
        TRI_TRY(tri_executor_read(executor_of(session), state->latest, own, err));
    bool experts =
        param->role == TRI_ROLE_EXPERTS && program_of(session)->grid.axis[TRI_AXIS_EP].factors;
    const tri_axis shard = experts ? TRI_AXIS_EP_SHARD : TRI_AXIS_SHARD;
    if (value->flat.parts > 1) {
        for (int part = 0; part < value->flat.parts; part++)
            counts[part] = (uint64_t)tri_flat_slice(&value->flat, part, &first);
        TRI_TRY(collect(session, state, shard, counts, own, all, err));
        memcpy(own, all, (size_t)value->flat.count * sizeof(float));
    }
    tri_shape shape = tri_placement_shape(&program_of(session)->grid, &value->at, whole);
    for (int d = whole->rank; d-- > 0;) {
        const tri_cut cut = cut_of(session, value, whole, d);
        if (cut.parts > 1)
            TRI_TRY(join_dim(session, state, &cut, &shape, own, all, counts, err));
    }
    memcpy(to, own, (size_t)tri_shape_count(whole) * sizeof(float));
    return TR_OK;
}

/* From the first rank of a pipeline that has a parameter to all of it. */
static tr_status share(tri_session *session, size_t param, tr_error *err)
{
    const tri_program *program = program_of(session);
    if (!program->first_home)
        return TR_OK;
    tri_rank_group group = group_of(session, TRI_AXIS_PP);
    tri_exchange_call message = {.kind = TRI_MESSAGE_BROADCAST,
                                 .group = &group,
                                 .peer = program->first_home[param],
                                 .send = session->weights[param],
                                 .recv = session->weights[param],
                                 .dtype = TRI_F32,
                                 .count =
                                     (uint64_t)tri_shape_count(&session->params.items[param].shape),
                                 .label = session->params.items[param].name};
    return session->exchange.run(session->exchange.context, &message, err);
}

static tr_status pull_param(tri_session *session, size_t param, float *room, uint64_t *counts,
                            tr_error *err)
{
    const tri_program *program = program_of(session);
    for (size_t s = 0; s < program->num_states; s++)
        if (program->states[s].kind == TRI_STATE_PARAM && program->states[s].param == param)
            TRI_TRY(pull_state(session, &program->states[s], room, counts, err));
    return share(session, param, err);
}

/* Parameters on their way to the host. */
typedef struct puller {
    tri_session *session;
    float *room;
    uint64_t *counts;
} puller;

static tr_status puller_init(puller *p, tri_session *session, tr_error *err)
{
    int ranks = tri_mesh_ranks(&session->config.compile.mesh);
    *p = (puller){.session = session, .room = largest_room(session, 2)};
    p->counts = malloc((size_t)ranks * sizeof *p->counts);
    if (p->room && p->counts)
        return TR_OK;
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory to collect the weights");
}

static void puller_fini(puller *p)
{
    free(p->room);
    free(p->counts);
}

tr_status tri_session_pull_weights(tri_session *session, tr_error *err)
{
    puller p;
    if (!session->host_weights)
        return TR_OK;
    tr_status status = puller_init(&p, session, err);
    for (size_t i = 0; i < session->params.count && status == TR_OK; i++)
        status = pull_param(session, i, p.room, p.counts, err);
    puller_fini(&p);
    return status;
}

static tr_status fetch(void *context, size_t param, const float **data, tr_error *err)
{
    puller *p = context;
    if (p->session->host_weights) {
        if (param > 0)
            forget(p->session, param - 1, 1);
        TRI_TRY(pull_param(p->session, param, p->room, p->counts, err));
    }
    *data = p->session->weights[param];
    return TR_OK;
}

tr_status tri_session_save_weights(tri_session *session, const char *path, tr_error *err)
{
    puller p;
    tr_status status = puller_init(&p, session, err);
    if (status == TR_OK)
        status = tri_weights_save_each(path, &session->params, session->step, fetch, &p, err);
    if (session->params.count)
        forget(session, 0, session->params.count);
    puller_fini(&p);
    return status;
}
