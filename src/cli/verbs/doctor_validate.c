/* trireme doctor --validate: each rank's device and link beside those of the others. The ranks are
 * those of the environment (mpirun, srun, torchrun), or one for each core of this machine. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/doc/json_doc.h"
#include "cli/launch/environment.h"
#include "cli/launch/launch.h"
#include "cli/text.h"
#include "cli/verbs/doctor_validate.h"
#include "train/health/validate.h"

enum { MOST_LOCAL = 64 };

typedef struct validation {
    const tri_cli *cli;
    int num_ranks;
    bool local; /* this command started them: one thread each, on a core each */
    tri_validated *all;
} validation;

/* ---- what is told ---- */

static const struct {
    const char *name, *key; /* with its unit */
    double scale;
} figures[TRI_NUM_FIGURES] = {
    [TRI_FIGURE_PRODUCT] = {"products", "product_flops", 1e-9},
    [TRI_FIGURE_COPY] = {"copies", "copy_bytes_per_s", 1e-9},
    [TRI_FIGURE_LATENCY] = {"latency of its link", "latency_seconds", 1e6},
    [TRI_FIGURE_BANDWIDTH] = {"bandwidth of its link", "link_bytes_per_s", 1e-9},
};

static void print_off(const tri_validated *v, int rank)
{
    static const char *const units[TRI_NUM_FIGURES] = {"GFLOP/s", "GB/s", "us", "GB/s"};
    for (int f = 0; f < TRI_NUM_FIGURES; f++) {
        if (!(v->off >> f & 1))
            continue;
        tri_text_print(stdout, "off     rank %d on %s: %s %.4g %s, the others %.4g", rank, v->host,
                       figures[f].name, v->figure[f] * figures[f].scale, units[f],
                       v->peers[f] * figures[f].scale);
        if (f == TRI_FIGURE_LATENCY || f == TRI_FIGURE_BANDWIDTH)
            printf(" (to rank %d)", (int)v->next);
        printf("\n");
    }
}

static void print_table(const validation *v, int num_off)
{
    printf("rank  host              products      copies     link  latency  bandwidth\n");
    printf("                         GFLOP/s        GB/s               us       GB/s\n");
    for (int r = 0; r < v->num_ranks; r++) {
        const tri_validated *a = &v->all[r];
        char link[24] = "-";
        if (a->next >= 0)
            snprintf(link, sizeof link, "%s%d", a->crosses ? "=> " : "-> ", (int)a->next);
        tri_text_print(stdout, "%4d  %-16.16s %9.2f %11.2f %8s %8.2f %10.2f%s\n", r, a->host,
                       a->figure[TRI_FIGURE_PRODUCT] * 1e-9, a->figure[TRI_FIGURE_COPY] * 1e-9,
                       link, a->figure[TRI_FIGURE_LATENCY] * 1e6,
                       a->figure[TRI_FIGURE_BANDWIDTH] * 1e-9, a->off ? "  off" : "");
    }
    printf("\n");
    for (int r = 0; r < v->num_ranks; r++)
        print_off(&v->all[r], r);
    if (v->num_ranks == 1)
        printf("One rank has nobody to be compared with; --ranks N starts more.\n");
    else if (num_off == 0)
        printf("All ranks are alike.\n");
}

static tr_status print_json(const validation *v, int num_off, tr_error *err)
{
    json_t *doc = tri_doc_begin(), *ranks = tri_doc_list(doc, "ranks");
    for (int r = 0; r < v->num_ranks; r++) {
        const tri_validated *a = &v->all[r];
        json_t *item = tri_doc_item(ranks), *off;
        tri_doc_count(item, "rank", r);
        tri_doc_text(item, "host", a->host);
        tri_doc_count_from(item, "link_to", a->next, 0);
        tri_doc_flag(item, "link_crosses_machines", a->crosses != 0);
        for (int f = 0; f < TRI_NUM_FIGURES; f++)
            tri_doc_number(item, figures[f].key, a->figure[f]);
        off = tri_doc_object(item, "off");
        for (int f = 0; f < TRI_NUM_FIGURES; f++)
            tri_doc_flag(off, figures[f].key, a->off >> f & 1);
    }
    tri_doc_count(doc, "num_off", num_off);
    return tri_doc_print(doc, stdout, err);
}

static tr_status tell(const validation *v, int *num_off, tr_error *err)
{
    *num_off = tri_validate_judge(v->all, v->num_ranks);
    if (tri_cli_flag(v->cli, "json"))
        return print_json(v, *num_off, err);
    print_table(v, *num_off);
    return TR_OK;
}

/* ---- a rank ---- */

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
static tr_status measure(const validation *v, tr_comm *comm, int index, tr_error *err)
{
    const char *kind = tr_settings_string(v->cli->settings, "run.device");
    tri_device device;
    tri_device_config config = {
        .kind = strcmp(kind, "auto") == 0 ? "cpu" : kind,
        .num_threads = v->local ? 1 : (int)tr_settings_int(v->cli->settings, "run.threads"),
        .isa = tr_settings_string(v->cli->settings, "run.isa")};
    TRI_TRY(tri_device_open(&config, &device, err));
    tr_status status = TR_OK;
    if (device.def->queue)
        status = device.def->queue->start(&device, index, err);
    if (status == TR_OK)
        status = tri_validate(comm, &device, v->all, err);
    tri_device_close(&device);
    return status;
}

static tr_status run_local(tr_comm *comm, void *context, tr_error *err)
{
    validation v = *(const validation *)context;
    tri_validated *shared = v.all;
    bind_to_core(tr_comm_rank(comm));
    v.all = calloc((size_t)v.num_ranks, sizeof *v.all);
    if (!v.all)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", v.num_ranks);
    tr_status status = measure(&v, comm, tr_comm_rank(comm), err);
    if (status == TR_OK && tr_comm_rank(comm) == 0)
        memcpy(shared, v.all, (size_t)v.num_ranks * sizeof *v.all);
    free(v.all);
    return status;
}

/* One rank of a world that somebody else started. */
static int run_joined(const tri_cli *cli, const tri_bootstrap *bootstrap, void *context)
{
    validation v = *(const validation *)context;
    tr_error err = {0};
    tri_comm *comm = NULL;
    int num_off = 0;
    const char *transport = bootstrap->local_size == bootstrap->size ? "shm"
                            : bootstrap->mpi                         ? "mpi"
                                                                     : "tcp";
    (void)cli;
    v.all = calloc((size_t)v.num_ranks, sizeof *v.all);
    tr_status status = v.all ? tri_comm_create(bootstrap, transport, &comm, &err)
                             : tri_fail(&err, TR_ERROR_RUNTIME, "no memory for the ranks");
    if (status == TR_OK)
        status = measure(&v, comm, bootstrap->local_rank, &err);
    if (status == TR_OK && bootstrap->rank == 0)
        status = tell(&v, &num_off, &err);
    int code = status != TR_OK ? tri_cli_rank_fail(bootstrap, &err)
               : num_off > 0   ? TRI_EXIT_FAILED
                               : TRI_EXIT_OK;
    tri_comm_destroy(comm);
    free(v.all);
    return code;
}

/* ---- all of them ---- */

static int num_cores(void)
{
    cpu_set_t all;
    int num = sched_getaffinity(0, sizeof all, &all) == 0 ? CPU_COUNT(&all) : 1;
    return num > MOST_LOCAL ? MOST_LOCAL : num;
}

int tri_doctor_validate(const tri_cli *cli)
{
    tr_error err = {0};
    tri_environment world;
    int64_t ranks = num_cores();
    int num_off = 0;
    tr_status status = tri_environment_read(&world, &err);
    if (status == TR_OK)
        status = tri_cli_flag_int(cli, "ranks", 1, MOST_LOCAL, &ranks, &err);
    if (status != TR_OK)
        return tri_cli_fail(&err);
    validation v = {.cli = cli, .num_ranks = (int)ranks, .local = true};
    if (world.given && world.size > 1) {
        v.num_ranks = world.size;
        v.local = false;
        return tri_cli_launch(cli, world.size, run_joined, &v, NULL);
    }
    size_t bytes = (size_t)v.num_ranks * sizeof *v.all;
    v.all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (v.all == MAP_FAILED) {
        tri_fail(&err, TR_ERROR_RUNTIME, "no memory for %d ranks", v.num_ranks);
        return tri_cli_fail(&err);
    }
    status =
        tr_comm_spawn(v.num_ranks, &(tr_comm_options){.transport = "shm"}, run_local, &v, &err);
    if (status == TR_OK)
        status = tell(&v, &num_off, &err);
    munmap(v.all, bytes);
    return status != TR_OK ? tri_cli_fail(&err) : num_off > 0 ? TRI_EXIT_FAILED : TRI_EXIT_OK;
}
