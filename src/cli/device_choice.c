#include "cli/device_choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launch/environment.h"

static void name_gpus(const tri_device_def *cuda, tri_gpus *gpus)
{
    tri_device_found found[TRI_DEVICE_MOST_FOUND];
    int num = cuda->found ? cuda->found(found) : 0;
    for (int i = 0; i < num; i++)
        if (strcmp(found[i].name, "GPU") == 0 && found[i].there)
            snprintf(gpus->name, sizeof gpus->name, "%s", found[i].detail);
}

/* In the child. */
static _Noreturn void look(const tri_device_def *cuda, bool named, int pipe)
{
    tri_gpus gpus = {.count = cuda->count()};
    if (named && gpus.count > 0)
        name_gpus(cuda, &gpus);
    _exit(write(pipe, &gpus, sizeof gpus) == sizeof gpus ? 0 : 1);
}

tri_gpus tri_cli_find_gpus(bool named)
{
    const tri_device_def *cuda = tri_device_find("cuda");
    tri_gpus gpus = {0};
    int ends[2];
    if (!cuda || !tri_device_gpu_driver() || pipe(ends) != 0)
        return gpus;
    pid_t child = fork();
    if (child == 0)
        look(cuda, named, ends[1]);
    close(ends[1]);
    if (child < 0 || read(ends[0], &gpus, sizeof gpus) != sizeof gpus || gpus.count < 0)
        gpus = (tri_gpus){0};
    close(ends[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        continue;
    return gpus;
}

int tri_cli_ranks_beside(void)
{
    static const char *const variables[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                            "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i]);
        int number = text ? atoi(text) : 0; /* Slurm's may be "4(x2)" */
        if (number > 0)
            return number;
    }
    return 1;
}

tr_status tri_cli_choose_device(tr_settings *settings, int64_t num_ranks, tri_device_choice *choice,
                                tr_error *err)
{
    *choice = (tri_device_choice){0};
    if (strcmp(tr_settings_string(settings, "run.device"), "auto") != 0)
        return TR_OK;
    tri_environment world;
    const tri_device_def *cuda = tri_device_find("cuda");
    tri_device_offer offer = {.built = cuda != NULL,
                              .driver = tri_device_gpu_driver(),
                              .local_ranks = num_ranks < INT32_MAX ? (int)num_ranks : INT32_MAX};
    if (tri_environment_read(&world, NULL) == TR_OK && world.given) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        offer.local_ranks = tri_cli_ranks_beside();
        offer.bound = visible && *visible && !strchr(visible, ',');
    }
    if (cuda && offer.driver)
        offer.num_devices = tri_cli_find_gpus(false).count;
    tri_device_choose(&offer, choice);
    char assignment[64];
    snprintf(assignment, sizeof assignment, "run.device=%s", choice->kind);
    return tr_settings_given(settings, "run.device") ? tr_settings_set(settings, assignment, err)
                                                     : tr_settings_fill(settings, assignment, err);
}

tr_status tri_cli_agree_on_device(const tr_settings *settings, const tri_bootstrap *bootstrap,
                                  tr_error *err)
{
    static const char key[] = "run.device";
    const char *own = tr_settings_string(settings, "run.device");
    char first[32] = "";
    size_t length = 0;
    if (bootstrap->size == 1)
        return TR_OK;
    if (bootstrap->rank == 0)
        return bootstrap->put(bootstrap->context, key, own, strlen(own), err);
    TRI_TRY(bootstrap->get(bootstrap->context, key, first, sizeof first - 1, &length, err));
    first[length] = 0;
    if (strcmp(first, own) == 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "run.device is %s on rank %d and %s on rank 0; set it to cpu, or to cuda, for "
                    "all ranks (auto asks each machine)",
                    own, bootstrap->rank, first);
}
