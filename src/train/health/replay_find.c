/* Which instruction is the first whose bits differ, over all ranks.
 *
 * A rank's first difference is by its own order. Where it is in what the rank computed, its
 * operands were equal, so the fault is the rank's. Where it is in a message, somebody may have sent
 * wrong bits: a rank that takes part in the message and had a difference before it. Then that one,
 * or whoever it has them from, is to be named. Since nothing is sent before it is computed,
 * somebody remains whom nobody can be blamed for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/trace/message_numbers.h"
#include "train/health/replay.h"

enum { EQUAL, COMPUTED, SENT };

/* What a rank says of itself, as numbers that travel. */
typedef struct replay_word {
    int64_t kind;
    int64_t message; /* its number, where the first difference is in one */
} replay_word;

/* What this rank knows. */
typedef struct own_difference {
    size_t nth; /* of the sums; num_sums: none differs */
    uint32_t call, instr;
} own_difference;

static const tri_program *program_of(const tri_replay *r)
{
    return &r->session->programs[TRI_PROGRAM_TRAIN];
}

/* What the sums of the step are compared with. */
static const uint64_t *others(const tri_replay *r)
{
    return r->config.kind == TRI_REPLAY_EXCHANGE ? r->sums[2] : r->sums[1];
}

static own_difference first_of(const tri_replay *r)
{
    const uint64_t *a = r->sums[0], *b = others(r);
    own_difference own = {0};
    tri_summed at = {.left_out = r->left_out};
    while (own.nth < r->num_sums && a[own.nth] == b[own.nth])
        own.nth++;
    for (size_t n = 0; own.nth < r->num_sums && n <= own.nth; n++)
        tri_executor_next_sum(program_of(r), r->num_calls, &at);
    own.call = at.call;
    own.instr = at.instr;
    return own;
}

/* blamed[rank] = 1: the message in which it differs first came after a difference of this rank. */
static void blame_own(const tri_replay *r, const tri_message_numbers *numbers,
                      const own_difference *own, const replay_word *all, int64_t *blamed)
{
    tri_summed at = {.left_out = r->left_out};
    for (size_t n = 0; tri_executor_next_sum(program_of(r), r->num_calls, &at); n++) {
        uint64_t number = n > own->nth ? tri_message_number(numbers, at.call, at.instr) : 0;
        for (int rank = 0; number && rank < r->ranks->size; rank++)
            if (all[rank].kind == SENT && all[rank].message == (int64_t)number)
                blamed[rank] = rank != r->ranks->rank;
    }
}

static bool is_culprit(const replay_word *all, const int64_t *blamed, int rank)
{
    return all[rank].kind != EQUAL && !blamed[rank];
}

/* Of the ranks that differ by themselves: first those that did not get it by a message. Where rows
 * are exchanged with more than one other, a rank whose rows and whose neighbour's rows differ is
 * the one. */
static void choose(const tri_replay *r, const replay_word *all, const int64_t *blamed, int *rank,
                   tri_replay_finding *found)
{
    const tri_mesh *mesh = &r->session->config.compile.mesh;
    int num = 0, size = r->ranks->size;
    *rank = -1;
    for (int kind = COMPUTED; kind <= SENT; kind++)
        for (int i = 0; i < size; i++) {
            bool is = is_culprit(all, blamed, i) && all[i].kind == kind;
            num += is;
            *rank = is && *rank < 0 ? i : *rank;
        }
    for (int i = 0; i < size && *rank < 0; i++)
        *rank = all[i].kind != EQUAL ? i : *rank;
    found->num_more = num > 1 ? num - 1 : 0;
    found->sure = r->config.kind == TRI_REPLAY_SAME;
    if (r->num_others < 3 || found->sure)
        return;
    int dp = tri_mesh_size(mesh, TRI_AXIS_DP), stride = tri_mesh_stride(mesh, TRI_AXIS_DP);
    for (int i = 0; i < size && !found->sure; i++) {
        int place = tri_mesh_coordinate(mesh, i, TRI_AXIS_DP);
        int to = i + ((place + dp / r->num_others) % dp - place) * stride;
        found->sure = is_culprit(all, blamed, i) && is_culprit(all, blamed, to);
        *rank = found->sure ? i : *rank;
    }
}

/* The rank that is named says what it knows. */
static void describe(const tri_replay *r, const own_difference *own, tri_replay_finding *found)
{
    const tri_program *program = program_of(r);
    const tri_instr *instr = &program->instrs[own->instr];
    found->step = r->session->step + 1;
    found->rank = r->ranks->rank;
    found->other = r->from;
    found->microbatch = program->calls[own->call].microbatch;
    found->instruction = own->instr;
    found->sums[0] = r->sums[0][own->nth];
    found->sums[1] = others(r)[own->nth];
    snprintf(found->op, sizeof found->op, "%s", tri_op_get(instr->op)->name);
    snprintf(found->result, sizeof found->result, "%s",
             program->values[tri_instr_value(instr)].name);
}

static tr_status find_first(tri_replay *r, const tri_message_numbers *numbers,
                            const own_difference *own, const replay_word *all, int64_t *blamed,
                            tr_error *err)
{
    tr_group *world = tr_comm_world(r->ranks->comm);
    blame_own(r, numbers, own, all, blamed);
    size_t size = (size_t)r->ranks->size;
    int64_t *every = blamed + size; /* by any rank */
    TRI_TRY(tr_all_reduce(world, blamed, every, size, TR_I64, TR_MAX, err));
    int rank;
    tri_replay_finding found = {0};
    choose(r, all, every, &rank, &found);
    if (rank == r->ranks->rank)
        describe(r, own, &found);
    TRI_TRY(tr_broadcast(world, &found, sizeof found, TR_U8, rank, err));
    r->found = found;
    return TR_OK;
}

/* Of several ranks. */
static tr_status find_among(tri_replay *r, const own_difference *own, tr_error *err)
{
    size_t size = (size_t)r->ranks->size;
    const tri_program *program = program_of(r);
    int64_t differs = own->nth < r->num_sums, any = 0;
    tr_group *world = tr_comm_world(r->ranks->comm);
    TRI_TRY(tr_all_reduce(world, &differs, &any, 1, TR_I64, TR_MAX, err));
    if (!any)
        return TR_OK;
    replay_word mine = {0}, *all = calloc(size, sizeof *all);
    int64_t *blamed = calloc(2 * size, sizeof *blamed);
    tri_message_numbers numbers = {0};
    tr_status status = TR_OK;
    if (!all || !blamed || !tri_message_numbers_init(&numbers, program))
        status = tri_fail(err, TR_ERROR_RUNTIME,
                          "a step had other bits when it was replayed, and there is no memory to "
                          "find out where");
    if (status == TR_OK && differs) {
        uint64_t number = tri_message_number(&numbers, own->call, own->instr);
        mine = (replay_word){number ? SENT : COMPUTED, (int64_t)number};
    }
    if (status == TR_OK)
        status = tr_all_gather(world, &mine, all, sizeof mine / sizeof(int64_t), TR_I64, err);
    if (status == TR_OK)
        status = find_first(r, &numbers, own, all, blamed, err);
    tri_message_numbers_fini(&numbers);
    free(all);
    free(blamed);
    return status;
}

tr_status tri_replay_find(tri_replay *r, tr_error *err)
{
    own_difference own = first_of(r);
    r->found = (tri_replay_finding){0};
    if (r->ranks->size > 1)
        return find_among(r, &own, err);
    r->found.sure = true;
    if (own.nth < r->num_sums)
        describe(r, &own, &r->found);
    return TR_OK;
}
