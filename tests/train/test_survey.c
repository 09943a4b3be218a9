/* Ranks as threads measure their links: in the host's memory, from the memory of a device through
 * the host, and by NCCL. What the figures are is the machine's business. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "fake_gpu.h"
#include "fake_nccl.h"
#include "train/health/links.h"
#include "train/health/survey.h"
#include "trireme/comm.h"

enum { MOST_RANKS = 3, BYTES = 4096 };

typedef enum way { IN_MEMORY, BY_HOST, BY_NCCL, NUM_WAYS } way;

typedef struct job {
    way way;
    tr_status (*run)(tri_comm *comm, tri_device *device, way way, tr_error *err);
} job;

static tr_status with_device(tr_comm *comm, void *context, tr_error *err)
{
    const job *j = context;
    tri_device device;
    tri_device_config config = {.kind = "cpu", .num_threads = 1, .isa = "auto"};
    fake_gpu *gpu = NULL;
    TRI_TRY(tri_device_open(&config, &device, err));
    const tri_device_def *opened = device.def;
    if (j->way != IN_MEMORY) {
        gpu = fake_gpu_create();
        device.def = &fake_gpu_def;
    }
    tr_status status = j->run(comm, &device, j->way, err);
    if (gpu)
        fake_gpu_destroy(gpu);
    device.def = opened;
    tri_device_close(&device);
    return status;
}

static void run_ranks(int num_ranks, way way,
                      tr_status (*run)(tri_comm *, tri_device *, enum way, tr_error *))
{
    tr_error err = {0};
    tr_comm_options options = {.deadline_s = 300};
    job j = {way, run};
    if (tr_comm_run_threads(num_ranks, &options, with_device, &j, &err) != TR_OK)
        fail_msg("%d ranks, way %d: %s", num_ranks, way, err.message);
}

/* ---- messages arrive ---- */

/* Where a message starts from and ends in. */
static tr_status put(tri_links *links, char value, tr_error *err)
{
    const tri_device_queue *queue = links->device->def->queue;
    memset(links->send, value, BYTES);
    if (!queue)
        return TR_OK;
    TRI_TRY(queue->upload(links->device, links->there, links->send, BYTES, err));
    TRI_TRY(queue->finish(links->device, err));
    memset(links->send, 0, BYTES); /* it is the device's that goes out */
    return TR_OK;
}

static tr_status expect(tri_links *links, size_t block, char value, tr_error *err)
{
    const tri_device_queue *queue = links->device->def->queue;
    const char *got = (char *)links->recv + block * BYTES;
    TRI_TRY(tri_links_settle(links, err));
    if (queue) {
        TRI_TRY(queue->download(links->device, links->recv, links->there + links->most_bytes,
                                links->most_bytes, err));
        TRI_TRY(queue->finish(links->device, err));
    }
    for (size_t i = 0; i < BYTES; i++)
        if (got[i] != value)
            return tri_fail(err, TR_ERROR_RUNTIME, "byte %zu of block %zu is %d, not %d", i, block,
                            got[i], value);
    return TR_OK;
}

static tr_status pass_around(tri_comm *comm, tri_device *device, way way, tr_error *err)
{
    int pair[] = {1, 0}, alone[] = {2}, rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    bool gathers = rank < 2;
    const tri_nccl_api *api = way == BY_NCCL ? &fake_nccl_api : NULL;
    tri_links_config config = {comm,     device, api, gathers ? pair : alone, gathers ? 2 : 1,
                               2 * BYTES};
    tri_links links;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    tr_status status = tri_links_open(&links, &config, err);
    if (status == TR_OK)
        status = put(&links, (char)(10 + rank), err);
    if (status == TR_OK) /* all at once */
        status = tri_links_pass(&links, next, before, BYTES, err);
    if (status == TR_OK)
        status = expect(&links, 0, (char)(10 + before), err);
    if (status == TR_OK) /* one alone, from the last rank to the first */
        status = tri_links_pass(&links, rank == size - 1 ? 0 : -1, rank == 0 ? size - 1 : -1, BYTES,
                                err);
    if (status == TR_OK && rank == 0)
        status = expect(&links, 0, (char)(10 + size - 1), err);
    if (status == TR_OK)
        status = put(&links, (char)(10 + rank), err);
    if (status == TR_OK && gathers)
        status = tri_links_gather(&links, BYTES, err);
    for (size_t i = 0; gathers && i < 2 && status == TR_OK; i++)
        status = expect(&links, i, (char)(10 + pair[i]), err);
    tri_links_close(&links);
    return status;
}

static void messages_arrive(void **state)
{
    (void)state;
    for (way w = IN_MEMORY; w < NUM_WAYS; w++)
        run_ranks(MOST_RANKS, w, pass_around);
}

/* ---- figures ---- */

static tr_status survey(tri_comm *comm, tri_device *device, way way, tr_error *err)
{
    tri_survey s;
    const tri_cluster_found *f = &s.found;
    int size = tr_comm_size(comm);
    TRI_TRY(tri_survey_take(comm, device, way == BY_NCCL ? &fake_nccl_api : NULL, &s, err));
    bool fine = s.num_ranks == size && f->nodes == 1 && f->devices_per_node == (uint32_t)size &&
                f->node_bytes_per_s > 0 && s.by_host == (way == BY_HOST) && !s.scattered &&
                strcmp(s.transport, way == BY_NCCL ? "nccl" : "thread") == 0 && s.hosts[0];
    bool links = f->latency_s > 0 && f->pair_bytes_per_s > 0, network = f->cross_bytes_per_s > 0;
    return fine && links == (size > 1) && !network
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME, "%u nodes of %u, %g s, %g and %g bytes/s, by %s",
                          f->nodes, f->devices_per_node, f->latency_s, f->pair_bytes_per_s,
                          f->node_bytes_per_s, s.transport);
}

static void ranks_measure(void **state)
{
    (void)state;
    run_ranks(1, IN_MEMORY, survey);
    for (way w = IN_MEMORY; w < NUM_WAYS; w++)
        run_ranks(2, w, survey);
    run_ranks(3, IN_MEMORY, survey);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive),
        cmocka_unit_test(ranks_measure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
