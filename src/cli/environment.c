#include "cli/environment.h"

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

/* A token that keeps two jobs of one user apart, and nobody out. */
static void derive_token(tri_environment *w)
{
    char text[400];
    snprintf(text, sizeof text, "%s:%d:%ld", w->address, w->port, (long)getuid());
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    snprintf(w->token, sizeof w->token, "derived-%016llx", (unsigned long long)hash);
}

static tr_status read_meeting_point(tri_environment *w, tr_error *err)
{
    const char *token = variable("TRIREME_TOKEN");
    w->address = variable("MASTER_ADDR");
    if (!w->address)
        return tri_fail(err, TR_ERROR_INPUT,
                        "WORLD_SIZE=%d in the environment, but not MASTER_ADDR: set it to the "
                        "machine of rank 0",
                        w->size);
    TRI_TRY(read_number("MASTER_PORT", 1, MAX_PORT - 1, &w->port, err));
    /* The agent of torchrun listens on MASTER_PORT itself. */
    if (variable("TORCHELASTIC_RUN_ID"))
        w->port++;
    if (token && strlen(token) >= sizeof w->token)
        return tri_fail(err, TR_ERROR_INPUT, "TRIREME_TOKEN has %zu characters; at most %zu",
                        strlen(token), sizeof w->token - 1);
    if (token)
        strcpy(w->token, token);
    else
        derive_token(w);
    w->exposed = !token && !tri_address_is_loopback(w->address);
    return TR_OK;
}

tr_status tri_environment_read(tri_environment *w, tr_error *err)
{
    *w = (tri_environment){.size = 1, .local_rank = -1};
    w->given = variable("RANK") || variable("WORLD_SIZE");
    if (!w->given)
        return TR_OK;
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
