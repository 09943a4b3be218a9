/* One rank of a world that mpirun started: the cases of tests/support/comm_cases.c over MPI,
 * messages and signals, and programs with messages. Ends with 0 when all results were right.
 *
 *     mpirun -n 3 build/tests/helpers/mpi_cases ONE_IN | disagree */
#include "comm/control/control.h"
#include "comm/transport/mpi.h"
#include "comm_cases.h"
#include "ring_case.h"
#include "rooms_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t counts[] = {0, 1, 7, 1000, 20011};

static uint32_t hash32(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static bool case_at(uint32_t n, int size, comm_case *c)
{
    uint32_t num_algorithms = 0;
    while (tri_algorithm_at(num_algorithms) != NULL)
        num_algorithms++;
    *c = (comm_case){.memory = MEMORY_PRIVATE};
    c->operation = (tr_operation)(n % TRI_NUM_COLLS), n /= TRI_NUM_COLLS;
    c->reduction = (tr_reduction)(n % TRI_NUM_REDUCTIONS), n /= TRI_NUM_REDUCTIONS;
    c->dtype = (tr_dtype)(n % (TR_U8 + 1)), n /= TR_U8 + 1; /* those that travel */
    c->algorithm = tri_algorithm_at(n % num_algorithms)->name, n /= num_algorithms;
    c->count = counts[n % 5], n /= 5;
    c->in_place = n % 2, n /= 2;
    c->varying = n % 2, n /= 2;
    c->root = (int)(hash32(n + (uint32_t)c->count) % (uint32_t)size);
    c->rooms = c->varying && c->operation == TR_ALL_TO_ALL && c->in_place;
    c->in_place &= !c->rooms; /* which an all_to_all never is */
    c->started = (c->count + c->dtype) % 3 == 0;
    return n == 0;
}

static bool reduces(tr_operation operation)
{
    return operation == TR_REDUCE || operation == TR_ALL_REDUCE || operation == TR_REDUCE_SCATTER;
}

static tr_status run_cases(tr_comm *comm, uint32_t one_in, int *num, tr_error *err)
{
    comm_buffers buffers;
    comm_case c;
    int size = tr_comm_size(comm);
    TRI_TRY(comm_buffers_init(&buffers, comm, (20011 + 64) * 2 * 8, err));
    tr_status status = TR_OK;
    for (uint32_t n = 0; status == TR_OK && case_at(n, size, &c); n++) {
        if (hash32(n * 31 + (uint32_t)size) % one_in != 0 || !comm_case_valid(&c, size))
            continue;
        if (tri_algorithm_find(c.algorithm)->needs_shared_memory) {
            c.algorithm = "native";
            if (reduces(c.operation) && (c.dtype == TR_BF16 || c.dtype == TR_F16))
                continue;
        }
        status = comm_case_run(&buffers, tr_comm_world(comm), &c, err);
        (*num)++;
    }
    comm_buffers_fini(&buffers);
    return status;
}

/* Programs with shifts, and with rows by counts, as a training runs them. */
static tr_status run_programs(tr_comm *comm, tr_error *err)
{
    tr_status status = TR_OK;
    for (int distance = 1; distance <= 2 && status == TR_OK; distance++) {
        const ring_case c = {tr_comm_size(comm), 7, distance, 3};
        tri_program program;
        ring_program(&c, tr_comm_rank(comm), true, &program);
        status = ring_run(comm, &c, &program, BY_CPU, err);
        tri_program_fini(&program);
    }
    const rooms_case rooms = {tr_comm_size(comm), 1, 6, true};
    tri_program program;
    if (status == TR_OK)
        TRI_TRY(rooms_program(&rooms, tr_comm_rank(comm), true, &program, err));
    if (status == TR_OK) {
        status = rooms_run(comm, &rooms, &program, BY_CPU, err);
        tri_program_fini(&program);
    }
    return status;
}

/* Around the ring, large and small, in one direction and by request; then a signal. */
static tr_status run_messages(tr_comm *comm, tr_error *err)
{
    enum { BYTES = 300001 };
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    char *out = malloc(BYTES), *in = calloc(1, BYTES);
    tr_status status = TR_OK;
    for (size_t n = 1; status == TR_OK && n <= BYTES; n = n * 7 + 1) {
        tr_request *request;
        memset(out, rank + (int)n, n);
        status = tr_send_start(comm, next, out, n, &request, err);
        if (status == TR_OK)
            status = tr_recv(comm, previous, in, n, err);
        if (status == TR_OK)
            status = tr_request_wait(request, err);
        for (size_t i = 0; status == TR_OK && i < n; i++)
            if (in[i] != (char)(previous + (int)n))
                status = tri_fail(err, TR_ERROR_INTERNAL, "a message arrived changed");
    }
    if (status == TR_OK)
        status = tr_signal(comm, next, 3, 42, err);
    if (status == TR_OK)
        status = tr_wait_signal(comm, previous, 3, 42, err);
    free(out);
    free(in);
    return status == TR_OK ? run_programs(comm, err) : status;
}

/* The last rank calls something else; somebody must notice, and say both. */
static tr_status disagree(tr_comm *comm, tr_error *err)
{
    static float data[2048];
    tr_collective call = {.operation = TR_ALL_REDUCE, .send = data, .recv = data, .count = 1024};
    if (tr_comm_rank(comm) == tr_comm_size(comm) - 1) {
        call.operation = TR_BROADCAST;
        call.count = 512;
        call.root = 1;
    }
    return tr_collective_run(tr_comm_world(comm), &call, err);
}

int main(int argc, char **argv)
{
    tr_error err = {0};
    tri_mpi *mpi;
    struct {
        int port;
    } meeting = {0};
    tri_control_server *server = NULL;
    tri_control_thread *thread = NULL;
    tri_control_client *client = NULL;
    tri_comm *comm = NULL;
    int num = 0;
    tr_status status = tri_mpi_open(&mpi, &err);
    if (status != TR_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    int rank = mpi->world.rank, size = mpi->world.size;
    tri_control_config config = {
        .address = "127.0.0.1", .size = size, .token = "t", .deadline_s = 30, .join_s = 30};
    if (rank == 0) {
        status = tri_control_server_create(&config, &server, &err);
        if (status == TR_OK)
            status = tri_control_thread_start(server, &thread, &err);
        meeting.port = status == TR_OK ? tri_control_server_port(server) : 0;
    }
    mpi->plugin->broadcast(&meeting, sizeof meeting, 0);
    tri_control_join join = {.address = "127.0.0.1",
                             .port = meeting.port,
                             .rank = rank,
                             .size = size,
                             .token = "t",
                             .join_s = 30};
    if (status == TR_OK)
        status = tri_control_client_create(&join, &client, &err);
    if (status == TR_OK) {
        tri_bootstrap boot = *tri_control_client_bootstrap(client);
        boot.mpi = mpi;
        status = tri_comm_create(&boot, "mpi", &comm, &err);
        if (status == TR_OK && argc > 1 && strcmp(argv[1], "disagree") == 0)
            status = disagree(comm, &err);
        else if (status == TR_OK)
            status = run_cases(comm, argc > 1 ? (uint32_t)atoi(argv[1]) : 40, &num, &err);
        if (status == TR_OK)
            status = run_messages(comm, &err);
        if (status != TR_OK)
            tri_control_report_failure(&boot, err.message);
        tri_comm_destroy(comm);
        tri_control_client_destroy(client, status == TR_OK);
    }
    if (thread != NULL)
        tri_control_thread_end(thread);
    tri_control_server_destroy(server);
    if (status != TR_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, err.message);
        return 1;
    }
    tri_mpi_close(mpi);
    if (rank == 0)
        printf("%d cases on %d ranks\n", num, size);
    return 0;
}
