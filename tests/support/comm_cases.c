#include "comm_cases.h"

#include "base/error.h"
#include "base/half.h"
#include "comm/reduce.h"

#include <stdlib.h>
#include <string.h>

#define GUARD      64
#define GUARD_BYTE 0x5a

tr_status comm_buffers_init(comm_buffers *buffers, tr_comm *comm, size_t bytes, tr_error *err)
{
    *buffers = (comm_buffers){.comm = comm, .bytes = bytes + GUARD};
    for (int i = 0; i < 2; i++) {
        void *memory;
        TRI_TRY(tr_comm_alloc(comm, buffers->bytes, &memory, err));
        buffers->shared[i] = memory;
        buffers->private[i] = calloc(1, buffers->bytes);
        if (buffers->private[i] == NULL)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the test");
    }
    return TR_OK;
}

void comm_buffers_fini(comm_buffers *buffers)
{
    for (int i = 0; i < 2; i++) {
        tr_comm_free(buffers->comm, buffers->shared[i]);
        free(buffers->private[i]);
    }
}

static bool reduces(tr_operation operation)
{
    return operation == TR_REDUCE || operation == TR_ALL_REDUCE || operation == TR_REDUCE_SCATTER;
}

static bool blocks(tr_operation operation)
{
    return operation == TR_GATHER || operation == TR_SCATTER || operation == TR_ALL_GATHER ||
           operation == TR_REDUCE_SCATTER || operation == TR_ALL_TO_ALL;
}

bool comm_case_valid(const comm_case *c, int size)
{
    if (c->operation == TR_BARRIER && (c->count > 0 || c->in_place))
        return false;
    if (c->in_place && c->operation == TR_ALL_TO_ALL)
        return false;
    if (reduces(c->operation) ? c->dtype == TR_U8 : c->reduction != TR_SUM)
        return false;
    if (c->varying && !blocks(c->operation))
        return false;
    if (c->rooms && !(c->varying && c->operation == TR_ALL_TO_ALL))
        return false;
    if (strcmp(c->algorithm, "auto") == 0)
        return true;
    const tri_algorithm *algorithm = tri_algorithm_find(c->algorithm);
    tri_coll_shape shape = tri_shape_flat(size);
    if (!algorithm || !tri_algorithm_supports(algorithm, (tri_coll)c->operation, &shape))
        return false;
    /* Blocks that pass through others must be of one size. */
    return !(c->operation == TR_ALL_TO_ALL && c->varying && algorithm->relays);
}

/* Small whole numbers, exact in every type and after every reduction of nine of them. */
static int64_t term(const comm_case *c, int rank, uint64_t i)
{
    if (reduces(c->operation) && c->reduction == TR_PROD)
        return (int64_t)(1 + (i + (uint64_t)rank) % 2);
    return (int64_t)((i * 7 + (uint64_t)rank * 3) % 11) - (c->dtype == TR_U8 ? 0 : 4);
}

static void store(tr_dtype dtype, char *at, uint64_t i, double value)
{
    float f = (float)value;
    uint16_t h = dtype == TR_BF16 ? tri_f32_to_bf16(f) : tri_f32_to_f16(f);
    int32_t w = (int32_t)value;
    int64_t l = (int64_t)value;
    uint8_t b = (uint8_t)l; /* a negative double has no unsigned value */
    const void *from = dtype == TR_F32   ? (void *)&f
                       : dtype == TR_I32 ? (void *)&w
                       : dtype == TR_I64 ? (void *)&l
                       : dtype == TR_U8  ? (void *)&b
                                         : (void *)&h;
    size_t bytes = tri_dtype_bytes((tri_dtype)dtype);
    memcpy(at + i * bytes, from, bytes);
}

static double reduced(const comm_case *c, int size, uint64_t i)
{
    int64_t value = term(c, 0, i);
    for (int r = 1; r < size; r++) {
        int64_t t = term(c, r, i);
        switch (c->reduction) {
        case TR_MIN:
            value = t < value ? t : value;
            break;
        case TR_MAX:
            value = t > value ? t : value;
            break;
        case TR_PROD:
            value *= t;
            break;
        default:
            value += t;
        }
    }
    if (c->reduction != TR_MEAN)
        return (double)value;
    if (c->dtype == TR_I32 || c->dtype == TR_I64)
        return (double)(value / size);
    return (double)((float)value / (float)size);
}

/* Sizes of blocks: from i to j in an all_to_all, otherwise of member j. */
static uint64_t block_count(const comm_case *c, int size, int i, int j)
{
    uint64_t each = c->count / (uint64_t)size;
    if (!c->varying)
        return each;
    uint64_t pattern = (uint64_t)(c->operation == TR_ALL_TO_ALL ? i * 3 + j * 2 : j * 5) % 4;
    return pattern == 0 ? 0 : each * pattern / 3 + 1;
}

/* The largest block there is. */
static uint64_t room_of(const comm_case *c, int size)
{
    uint64_t most = 1;
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            uint64_t count = block_count(c, size, i, j);
            most = count > most ? count : most;
        }
    return most;
}

struct setup {
    uint64_t send_counts[16], recv_counts[16];
    uint64_t own_first; /* of this member's block */
    uint64_t room;      /* 0: blocks leave no gaps */
    uint64_t send_elements, recv_elements;
    char *send, *recv;
};

static uint64_t first_of(const uint64_t *counts, int n)
{
    uint64_t first = 0;
    for (int i = 0; i < n; i++)
        first += counts[i];
    return first;
}

static void make_setup(const comm_buffers *buffers, const comm_case *c, int size, int rank,
                       struct setup *s)
{
    bool exchange = c->operation == TR_ALL_TO_ALL;
    for (int j = 0; j < size; j++) {
        s->send_counts[j] = block_count(c, size, rank, j);
        s->recv_counts[j] = exchange ? block_count(c, size, j, rank) : s->send_counts[j];
    }
    s->room = c->rooms ? room_of(c, size) : 0;
    s->own_first = blocks(c->operation) && !exchange ? first_of(s->send_counts, rank) : 0;
    uint64_t own = s->send_counts[rank], all = first_of(s->send_counts, size);
    bool root = rank == c->root;
    tr_operation op = c->operation;
    bool send_block = op == TR_GATHER || op == TR_ALL_GATHER;
    bool recv_block = op == TR_SCATTER || op == TR_REDUCE_SCATTER;
    s->send_elements = send_block ? own : blocks(op) ? all : c->count;
    s->recv_elements = recv_block   ? own
                       : exchange   ? first_of(s->recv_counts, size)
                       : blocks(op) ? all
                                    : c->count;
    if (s->room)
        s->send_elements = s->recv_elements = s->room * (uint64_t)size;
    if ((op == TR_BROADCAST || op == TR_SCATTER) && !root)
        s->send_elements = 0;
    if ((op == TR_REDUCE || op == TR_GATHER) && !root)
        s->recv_elements = 0;
    bool is_private = c->memory == MEMORY_PRIVATE || (c->memory == MEMORY_MIXED && rank % 2 == 0);
    s->send = is_private ? buffers->private[0] : buffers->shared[0];
    s->recv = is_private ? buffers->private[1] : buffers->shared[1];
    uint64_t at = s->own_first * tri_dtype_bytes((tri_dtype)c->dtype);
    bool has_both = s->send_elements > 0 && s->recv_elements > 0;
    if (!c->in_place || !has_both)
        return;
    if (send_block)
        s->send = s->recv + at;
    else if (recv_block)
        s->recv = s->send + at;
    else
        s->recv = s->send;
}

/* Whether element i of recv is what nobody sends anything for. */
static bool in_gap(const struct setup *s, uint64_t i)
{
    return s->room && i % s->room >= s->recv_counts[i / s->room];
}

/* What element i of this member's recv must be. */
static double expected(const comm_case *c, const struct setup *s, int size, int rank, uint64_t i)
{
    if (reduces(c->operation))
        return reduced(c, size, s->own_first * (c->operation == TR_REDUCE_SCATTER) + i);
    if (c->operation == TR_BROADCAST)
        return (double)term(c, c->root, i);
    if (c->operation == TR_SCATTER)
        return (double)term(c, c->root, s->own_first + i);
    int from = 0;
    if (s->room)
        return (double)term(c, (int)(i / s->room), i % s->room + (uint64_t)rank * s->room);
    while (i >= s->recv_counts[from])
        i -= s->recv_counts[from++];
    if (c->operation != TR_ALL_TO_ALL)
        return (double)term(c, from, i);
    for (int j = 0; j < rank; j++) /* where the sender's block for us begins */
        i += block_count(c, size, from, j);
    return (double)term(c, from, i);
}

static tr_status check_result(const comm_case *c, const struct setup *s, int size, int rank,
                              tr_error *err)
{
    size_t bytes = tri_dtype_bytes((tri_dtype)c->dtype);
    for (uint64_t i = 0; i < s->recv_elements; i++) {
        char want[8];
        memset(want, GUARD_BYTE, sizeof want);
        if (!in_gap(s, i))
            store(c->dtype, want, 0, expected(c, s, size, rank, i));
        if (memcmp(want, s->recv + i * bytes, bytes) != 0)
            return tri_fail(err, TR_ERROR_INTERNAL,
                            "%s %s %s %s of %llu, root %d, memory %d, in place %d, varying %d: "
                            "element %llu of rank %d of %d is wrong",
                            c->algorithm, tri_coll_name((tri_coll)c->operation),
                            tri_dtype_name((tri_dtype)c->dtype),
                            tri_reduction_name((tri_reduction)c->reduction),
                            (unsigned long long)c->count, c->root, c->memory, c->in_place,
                            c->varying, (unsigned long long)i, rank, size);
    }
    bool in_vector =
        c->in_place && (c->operation == TR_REDUCE_SCATTER || c->operation == TR_SCATTER);
    for (int i = 0; i < GUARD && !in_vector; i++)
        if ((uint8_t)s->recv[s->recv_elements * bytes + (size_t)i] != GUARD_BYTE)
            return tri_fail(err, TR_ERROR_INTERNAL, "%s %s wrote behind its recv on rank %d",
                            c->algorithm, tri_coll_name((tri_coll)c->operation), rank);
    return TR_OK;
}

tr_status comm_case_run(const comm_buffers *buffers, tr_group *group, const comm_case *c,
                        tr_error *err)
{
    int size = tr_group_size(group), rank = tr_group_rank(group);
    size_t bytes = tri_dtype_bytes((tri_dtype)c->dtype);
    struct setup s;
    make_setup(buffers, c, size, rank, &s);
    memset(s.recv, GUARD_BYTE, s.recv_elements * bytes + GUARD);
    for (uint64_t i = 0; i < s.send_elements; i++)
        store(c->dtype, s.send, i, (double)term(c, rank, i));
    tr_collective call = {.operation = c->operation,
                          .reduction = c->reduction,
                          .dtype = c->dtype,
                          .root = c->root,
                          .send = s.send,
                          .recv = s.recv,
                          .count = blocks(c->operation) ? c->count / (uint64_t)size : c->count,
                          .algorithm = c->algorithm};
    call.room = s.room;
    if (c->varying) {
        call.send_counts = s.send_counts;
        call.recv_counts = s.recv_counts;
    }
    if (c->started) {
        tr_request *request;
        TRI_TRY(tr_collective_start(group, &call, &request, err));
        TRI_TRY(tr_request_wait(request, err));
    } else {
        TRI_TRY(tr_collective_run(group, &call, err));
    }
    return check_result(c, &s, size, rank, err);
}
