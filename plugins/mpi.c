/* The MPI plug-in: see src/comm/transport/mpi_plugin.h. Compiled by mpicc against whatever MPI 3 is
 * there. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/transport/mpi_plugin.h"
#include "trireme/comm.h"

/* A count of MPI is an int, so large messages go in parts. */
#define PART_BYTES ((size_t)1 << 30)

typedef struct request {
    int num;
    size_t num_bytes;
    MPI_Request parts[];
} request;

static int failed(int code, char *why, size_t capacity)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return 0;
    MPI_Error_string(code, text, &length);
    snprintf(why, capacity, "%.*s", length, text);
    return -1;
}

static int init(tri_mpi_world *world, char *why, size_t capacity)
{
    int provided = 0, was = 0, length = 0;
    MPI_Comm local;
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    MPI_Initialized(&was);
    if (!was &&
        failed(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided), why, capacity) != 0)
        return -1;
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_SERIALIZED) {
        snprintf(why, capacity, "this MPI was built without threads (MPI_THREAD_SERIALIZED)");
        return -1;
    }
    world->threads = provided == MPI_THREAD_MULTIPLE;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world->size);
    if (failed(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local),
               why, capacity) != 0)
        return -1;
    MPI_Comm_rank(local, &world->local_rank);
    MPI_Comm_size(local, &world->local_size);
    MPI_Comm_free(&local);
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0';
    snprintf(world->library, sizeof world->library, "%s", library);
    return 0;
}

static void finalize(void)
{
    int over = 0;
    MPI_Finalized(&over);
    if (!over)
        MPI_Finalize();
}

static int broadcast(void *data, size_t num_bytes, int root)
{
    return MPI_Bcast(data, (int)num_bytes, MPI_BYTE, root, MPI_COMM_WORLD) == MPI_SUCCESS ? 0 : -1;
}

static void *make_group(const int *ranks, int size, int tag)
{
    MPI_Group world, members;
    MPI_Comm *group = malloc(sizeof *group);
    if (group == NULL)
        return NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, size, ranks, &members);
    int code = MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, group);
    MPI_Group_free(&members);
    MPI_Group_free(&world);
    if (code != MPI_SUCCESS || *group == MPI_COMM_NULL) {
        free(group);
        return NULL;
    }
    MPI_Comm_set_errhandler(*group, MPI_ERRORS_RETURN);
    return group;
}

static request *make_request(size_t num_bytes)
{
    size_t num = num_bytes == 0 ? 1 : (num_bytes + PART_BYTES - 1) / PART_BYTES;
    request *r = calloc(1, sizeof *r + num * sizeof *r->parts);
    if (r != NULL)
        r->num = (int)num;
    for (size_t i = 0; r != NULL && i < num; i++)
        r->parts[i] = MPI_REQUEST_NULL;
    return r;
}

static int part_bytes(size_t num_bytes, int i)
{
    size_t at = (size_t)i * PART_BYTES, left = num_bytes - at;
    return (int)(left < PART_BYTES ? left : PART_BYTES);
}

static void *start_send(void *group, const void *data, size_t num_bytes, int to, int tag,
                        int synchronous)
{
    request *r = make_request(num_bytes);
    int code = MPI_SUCCESS;
    for (int i = 0; r != NULL && i < r->num && code == MPI_SUCCESS; i++) {
        const char *from = (const char *)data + (size_t)i * PART_BYTES;
        int n = part_bytes(num_bytes, i);
        code = synchronous
                   ? MPI_Issend(from, n, MPI_BYTE, to, tag, *(MPI_Comm *)group, &r->parts[i])
                   : MPI_Isend(from, n, MPI_BYTE, to, tag, *(MPI_Comm *)group, &r->parts[i]);
    }
    return code == MPI_SUCCESS ? r : NULL;
}

static void *start_receive(void *group, void *data, size_t num_bytes, int from, int tag)
{
    request *r = make_request(num_bytes);
    int code = MPI_SUCCESS;
    for (int i = 0; r != NULL && i < r->num && code == MPI_SUCCESS; i++)
        code = MPI_Irecv((char *)data + (size_t)i * PART_BYTES, part_bytes(num_bytes, i), MPI_BYTE,
                         from, tag, *(MPI_Comm *)group, &r->parts[i]);
    return code == MPI_SUCCESS ? r : NULL;
}

static int test(void *started, size_t *num_bytes, char *why, size_t capacity)
{
    request *r = started;
    for (int i = 0; i < r->num; i++) {
        int done = 0, n = 0;
        MPI_Status status;
        if (r->parts[i] == MPI_REQUEST_NULL)
            continue;
        int code = MPI_Test(&r->parts[i], &done, &status);
        if (code != MPI_SUCCESS) {
            free(r);
            return failed(code, why, capacity);
        }
        if (!done)
            return 0;
        MPI_Get_count(&status, MPI_BYTE, &n);
        r->num_bytes += n > 0 ? (size_t)n : 0;
    }
    *num_bytes = r->num_bytes;
    free(r);
    return 1;
}

static int probe(void *group, int *from, int tag, size_t *num_bytes)
{
    int there = 0, n = 0;
    MPI_Status status;
    if (MPI_Iprobe(*from < 0 ? MPI_ANY_SOURCE : *from, tag, *(MPI_Comm *)group, &there, &status) !=
            MPI_SUCCESS ||
        !there)
        return 0;
    MPI_Get_count(&status, MPI_BYTE, &n);
    *from = status.MPI_SOURCE;
    *num_bytes = (size_t)n;
    return 1;
}

/* Half-precision numbers are moved as 16-bit words; MPI has no sums of them. */
static MPI_Datatype type_of(int dtype)
{
    switch ((tr_dtype)dtype) {
    case TR_F32:
        return MPI_FLOAT;
    case TR_I32:
        return MPI_INT32_T;
    case TR_I64:
        return MPI_INT64_T;
    case TR_U8:
        return MPI_UINT8_T;
    default:
        return MPI_UINT16_T;
    }
}

static MPI_Op op_of(int reduction)
{
    switch ((tr_reduction)reduction) {
    case TR_MIN:
        return MPI_MIN;
    case TR_MAX:
        return MPI_MAX;
    case TR_PROD:
        return MPI_PROD;
    default:
        return MPI_SUM;
    }
}

/* In place, MPI takes the send buffer away at the root (or everywhere) and the others give theirs;
 * trireme's side has sorted that out: send is NULL where MPI_IN_PLACE belongs. */
static int run_collective(MPI_Comm group, const tri_mpi_collective *c)
{
    MPI_Datatype type = type_of(c->dtype);
    MPI_Op op = op_of(c->reduction);
    const void *send = c->send ? c->send : MPI_IN_PLACE;
    void *recv = c->recv;
    switch ((tr_operation)c->operation) {
    case TR_BARRIER:
        return MPI_Barrier(group);
    case TR_BROADCAST:
        return MPI_Bcast(recv, c->count, type, c->root, group);
    case TR_REDUCE:
        return MPI_Reduce(send, recv, c->count, type, op, c->root, group);
    case TR_ALL_REDUCE:
        return MPI_Allreduce(send, recv, c->count, type, op, group);
    case TR_GATHER:
        return c->counts ? MPI_Gatherv(send, c->count, type, recv, c->counts, c->displs, type,
                                       c->root, group)
                         : MPI_Gather(send, c->count, type, recv, c->count, type, c->root, group);
    case TR_SCATTER: /* here it is recv that is in place, at the root */
        recv = recv ? recv : MPI_IN_PLACE;
        return c->counts
                   ? MPI_Scatterv(c->send, c->counts, c->displs, type, recv, c->count, type,
                                  c->root, group)
                   : MPI_Scatter(c->send, c->count, type, recv, c->count, type, c->root, group);
    case TR_ALL_GATHER:
        return c->counts
                   ? MPI_Allgatherv(send, c->count, type, recv, c->counts, c->displs, type, group)
                   : MPI_Allgather(send, c->count, type, recv, c->count, type, group);
    case TR_REDUCE_SCATTER:
        return c->counts ? MPI_Reduce_scatter(send, recv, c->counts, type, op, group)
                         : MPI_Reduce_scatter_block(send, recv, c->count, type, op, group);
    case TR_ALL_TO_ALL:
        return c->counts ? MPI_Alltoallv(send, c->counts, c->displs, type, recv, c->counts2,
                                         c->displs2, type, group)
                         : MPI_Alltoall(send, c->count, type, recv, c->count, type, group);
    }
    return MPI_ERR_OTHER;
}

static int collective(void *group, const tri_mpi_collective *c, char *why, size_t capacity)
{
    return failed(run_collective(*(MPI_Comm *)group, c), why, capacity);
}

extern const tri_mpi_plugin tri_mpi_plugin_table;
const tri_mpi_plugin tri_mpi_plugin_table __attribute__((visibility("default"))) = {
    .version = TRI_MPI_PLUGIN_VERSION,
    .init = init,
    .finalize = finalize,
    .broadcast = broadcast,
    .group = make_group,
    .send = start_send,
    .receive = start_receive,
    .test = test,
    .probe = probe,
    .collective = collective,
};
