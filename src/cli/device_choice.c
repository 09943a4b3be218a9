#include "cli/device_choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launch/environment.h"

static int count_gpus(const tri_device_def *cuda)
{
    enum { MOST = 250 }; /* an exit code */
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        int count = cuda->count();
        _exit(count < 0 ? 0 : count > MOST ? MOST : count);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return 0;
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/* Ranks of this machine in a world that somebody else started; 1 when nobody tells. */
static int ranks_beside(void)
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
        offer.local_ranks = ranks_beside();
        offer.bound = visible && *visible && !strchr(visible, ',');
    }
    if (cuda && offer.driver)
        offer.num_devices = count_gpus(cuda);
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
