#include "cli/launch/environment.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = 65536, MAX_PORT = 65535 };

bool tri_address_is_loopback(const char *address)
{
    return strcmp(address, "localhost") == 0 || strncmp(address, "127.", 4) == 0 ||
           strcmp(address, "::1") == 0;
}

/* A variable that is set to nothing counts as not set. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static tr_status read_number(const char *name, long min, long max, int *number, tr_error *err)
{
    const char *text = variable(name);
    if (!text)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the environment has a part of a world to join, but not %s; set RANK, "
                        "WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of RANK and WORLD_SIZE "
                        "to start the ranks here",
                        name);
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || *end || value < min || value > max)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s=%s in the environment is not a whole number from %ld to %ld", name,
                        text, min, max);
    *number = (int)value;
    return TR_OK;
}

static tr_status read_token(tri_environment *w, tr_error *err)
{
    const char *token = variable("TRIREME_TOKEN");
    if (token && strlen(token) >= sizeof w->token)
        return tri_fail(err, TR_ERROR_INPUT, "TRIREME_TOKEN has %zu characters; at most %zu",
                        strlen(token), sizeof w->token - 1);
    if (token)
        strcpy(w->token, token);
    return TR_OK;
}

static tr_status read_meeting_point(tri_environment *w, tr_error *err)
{
    const char *address = variable("MASTER_ADDR");
    if (!address)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s=%d in the environment, but not MASTER_ADDR: set it to the machine of "
                        "rank 0",
                        w->size_variable, w->size);
    if (strlen(address) >= sizeof w->address)
        return tri_fail(err, TR_ERROR_INPUT, "MASTER_ADDR has %zu characters; at most %zu",
                        strlen(address), sizeof w->address - 1);
    strcpy(w->address, address);
    TRI_TRY(read_number("MASTER_PORT", 1, MAX_PORT - 1, &w->port, err));
    /* The agent of torchrun listens on MASTER_PORT itself. */
    if (variable("TORCHELASTIC_RUN_ID"))
        w->port++;
    return read_token(w, err);
}

/* The first machine of a list as Slurm writes it: "node3", "node[01-04,7],gpu1". */
static bool first_node(const char *list, char *name, size_t capacity)
{
    size_t plain = strcspn(list, "[,"), digits = 0;
    if (list[plain] == '[')
        digits = strcspn(list + plain + 1, "-,]");
    if (plain + digits == 0 || plain + digits >= capacity)
        return false;
    memcpy(name, list, plain);
    memcpy(name + plain, list + plain + 1, digits);
    name[plain + digits] = '\0';
    return true;
}

/* srun: all ranks know the machines of the step and its number, which is enough to meet. */
static tr_status meet_by_slurm(tri_environment *w, tr_error *err)
{
    const char *nodes = variable("SLURM_STEP_NODELIST");
    const char *job = variable("SLURM_JOB_ID"), *step = variable("SLURM_STEP_ID");
    if (!nodes || !job || !step || !first_node(nodes, w->address, sizeof w->address))
        return tri_fail(err, TR_ERROR_INPUT,
                        "srun started this rank, but SLURM_STEP_NODELIST does not name the machine "
                        "of rank 0; set MASTER_ADDR and MASTER_PORT");
    unsigned long number = strtoul(job, NULL, 10) * 31 + strtoul(step, NULL, 10);
    w->port = 20000 + (int)(number % 10000); /* below what outgoing connections take */
    return read_token(w, err);
}

/* What launchers of MPI programs tell. A batch script of Slurm has some of the variables as well,
 * but only a step of srun has several tasks. PALS (mpiexec of HPE Cray) tells the rank; how many
 * there are is known where its MPI has said so. */
static const struct {
    const char *rank, *size, *local_rank;
    bool slurm;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", false},
    {"PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", false},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", false},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", true},
};

/* A shell in a step of one task (srun --pty bash): whoever types there starts ranks of his own, and
 * what Slurm or its PMI tell is of the shell. */
static bool in_slurm_shell(const tri_environment *w)
{
    const char *tasks = variable("SLURM_STEP_NUM_TASKS");
    return w->size == 1 && tasks && strcmp(tasks, "1") == 0 &&
           strcmp(w->size_variable, "OMPI_COMM_WORLD_SIZE") != 0;
}

/* A rank that knows its number and not how many there are would be a run of its own, in the same
 * directory as all the others. */
static tr_status check_pals(const tri_environment *w, tr_error *err)
{
    const char *rank = variable("PALS_RANKID");
    if (w->given || !rank)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "PALS_RANKID=%.20s in the environment: mpiexec started this process as one of "
                    "several, but nothing says how many; set WORLD_SIZE, MASTER_ADDR and "
                    "MASTER_PORT for all, and RANK=$PALS_RANKID, LOCAL_RANK=$PALS_LOCAL_RANKID for "
                    "each (RANK=0 WORLD_SIZE=1 for one that is alone)",
                    rank);
}

static tr_status read_launcher(tri_environment *w, tr_error *err)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        if (!variable(launchers[i].rank) || !variable(launchers[i].size))
            continue;
        w->given = true;
        w->size_variable = launchers[i].size;
        TRI_TRY(read_number(launchers[i].size, 1, MAX_RANKS, &w->size, err));
        TRI_TRY(read_number(launchers[i].rank, 0, w->size - 1, &w->rank, err));
        if (variable(launchers[i].local_rank))
            TRI_TRY(read_number(launchers[i].local_rank, 0, w->size - 1, &w->local_rank, err));
        if (in_slurm_shell(w)) {
            w->given = false;
            w->local_rank = -1;
            return TR_OK;
        }
        w->by_mpi = true;
        if (w->size == 1)
            return TR_OK;
        if (variable("MASTER_ADDR"))
            return read_meeting_point(w, err);
        return launchers[i].slurm ? meet_by_slurm(w, err) : TR_OK;
    }
    return check_pals(w, err);
}

tr_status tri_environment_read(tri_environment *w, tr_error *err)
{
    *w = (tri_environment){.size = 1, .local_rank = -1, .size_variable = "WORLD_SIZE"};
    w->given = variable("RANK") || variable("WORLD_SIZE");
    if (!w->given)
        return read_launcher(w, err);
    TRI_TRY(read_number("WORLD_SIZE", 1, MAX_RANKS, &w->size, err));
    TRI_TRY(read_number("RANK", 0, MAX_RANKS, &w->rank, err));
    if (w->rank >= w->size)
        return tri_fail(err, TR_ERROR_INPUT,
                        "RANK=%d in the environment, but WORLD_SIZE=%d has ranks 0 to %d", w->rank,
                        w->size, w->size - 1);
    if (variable("LOCAL_RANK"))
        TRI_TRY(read_number("LOCAL_RANK", 0, w->size - 1, &w->local_rank, err));
    return w->size > 1 ? read_meeting_point(w, err) : TR_OK;
}
