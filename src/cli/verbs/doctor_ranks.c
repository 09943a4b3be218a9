#include "cli/verbs/doctor_ranks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/launch/environment.h"
#include "cli/launch/launch.h"
#include "train/ranks.h"

enum { MOST_LOCAL = 64 };

/* A job with its ranks. */
typedef struct crew {
    const tri_doctor_job *job;
    int num_ranks;
    bool local; /* this command started them: one thread each, on a core each */
    void *result;
} crew;

static size_t result_bytes(const crew *c)
{
    return c->job->result_bytes + (size_t)c->num_ranks * c->job->bytes_of_a_rank;
}

static void bind_to_core(int rank)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) == 0)
        return;
    int at = rank % CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && at-- == 0)
            CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* auto: the CPU, since a GPU that ranks share would be compared with itself. */
static tr_status measure(const crew *c, tri_comm *comm, int index, tr_error *err)
{
    const tr_settings *settings = c->job->cli->settings;
    const char *kind = tr_settings_string(settings, "run.device");
    tri_device device;
    tri_device_config config = {.kind = strcmp(kind, "auto") == 0 ? "cpu" : kind,
                                .num_threads =
                                    c->local ? 1 : (int)tr_settings_int(settings, "run.threads"),
                                .isa = tr_settings_string(settings, "run.isa")};
    TRI_TRY(tri_device_open(&config, &device, err));
    tr_status status = TR_OK;
    if (device.def->queue)
        status = device.def->queue->start(&device, index, err);
    if (status == TR_OK)
        status = c->job->measure(c->job->cli, comm, &device, c->result, err);
    tri_device_close(&device);
    return status;
}

static tr_status run_local(tr_comm *comm, void *context, tr_error *err)
{
    crew c = *(const crew *)context;
    void *shared = c.result;
    bind_to_core(tr_comm_rank(comm));
    c.result = calloc(1, result_bytes(&c));
    if (!c.result)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", c.num_ranks);
    tr_status status = measure(&c, comm, tr_comm_rank(comm), err);
    if (status == TR_OK && tr_comm_rank(comm) == 0)
        memcpy(shared, c.result, result_bytes(&c));
    free(c.result);
    return status;
}

static tr_status check(const tri_doctor_job *job, tr_error *err)
{
    return job->check ? job->check(job->context, err) : TR_OK;
}

/* One rank of a world that somebody else started. */
static int run_joined(const tri_cli *cli, const tri_bootstrap *bootstrap, void *context)
{
    crew c = *(const crew *)context;
    tr_error err = {0};
    tri_comm *comm = NULL;
    int code = TRI_EXIT_OK;
    const char *transport =
        tri_ranks_host_transport(bootstrap, tr_settings_string(cli->settings, "run.transport"));
    tr_status status = bootstrap->rank == 0 ? check(c.job, &err) : TR_OK;
    c.result = calloc(1, result_bytes(&c));
    if (status == TR_OK && !c.result)
        status = tri_fail(&err, TR_ERROR_RUNTIME, "no memory for the ranks");
    if (status == TR_OK)
        status = tri_comm_create(bootstrap, transport, &comm, &err);
    if (status == TR_OK)
        status = measure(&c, comm, bootstrap->local_rank, &err);
    if (status == TR_OK && bootstrap->rank == 0)
        status = c.job->tell(c.job->context, cli, c.result, c.num_ranks, &code, &err);
    if (status != TR_OK)
        code = tri_cli_rank_fail(bootstrap, &err);
    tri_comm_destroy(comm);
    free(c.result);
    return code;
}

static int num_cores(void)
{
    cpu_set_t all;
    int num = sched_getaffinity(0, sizeof all, &all) == 0 ? CPU_COUNT(&all) : 1;
    return num > MOST_LOCAL ? MOST_LOCAL : num;
}

static int run_here(crew *c)
{
    tr_error err = {0};
    int code = TRI_EXIT_OK;
    size_t bytes = result_bytes(c);
    if (check(c->job, &err) != TR_OK)
        return tri_cli_fail(&err);
    c->result = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c->result == MAP_FAILED) {
        tri_fail(&err, TR_ERROR_RUNTIME, "no memory for %d ranks", c->num_ranks);
        return tri_cli_fail(&err);
    }
    bool tcp = strcmp(tr_settings_string(c->job->cli->settings, "run.transport"), "tcp") == 0;
    tr_comm_options options = {.transport = tcp ? "tcp" : "shm"};
    tr_status status = tr_comm_spawn(c->num_ranks, &options, run_local, c, &err);
    if (status == TR_OK)
        status = c->job->tell(c->job->context, c->job->cli, c->result, c->num_ranks, &code, &err);
    munmap(c->result, bytes);
    return status == TR_OK ? code : tri_cli_fail(&err);
}

int tri_doctor_run_ranks(const tri_doctor_job *job)
{
    tr_error err = {0};
    tri_environment world;
    int64_t ranks = num_cores();
    tr_status status = tri_environment_read(&world, &err);
    if (status == TR_OK)
        status = tri_cli_flag_int(job->cli, "ranks", 1, MOST_LOCAL, &ranks, &err);
    if (status != TR_OK)
        return tri_cli_fail(&err);
    crew c = {.job = job, .num_ranks = (int)ranks, .local = true};
    if (!world.given || world.size == 1)
        return run_here(&c);
    c.num_ranks = world.size;
    c.local = false;
    return tri_cli_launch(job->cli, world.size, run_joined, &c, NULL);
}
