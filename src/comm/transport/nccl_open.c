/* NCCL by its entry points, so that the program needs it only when several GPUs are used. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "comm/transport/nccl.h"

enum { OLDEST = 21400 }; /* the first whose communicators need not block */

/* A path is a file that somebody named: it must be theirs or root's. A mere name is looked for
 * where the system keeps its libraries. */
static bool open_library(tri_library *opened, const char *library, char *why, size_t size)
{
    static const char *const names[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                        "/usr/local/cuda/lib/libnccl.so.2", "libnccl.so"};
    enum { FLAGS = RTLD_NOW | RTLD_LOCAL };
    if (strchr(library, '/') != NULL)
        return tri_library_open(opened, library, FLAGS, true, why, size);
    if (library[0])
        return tri_library_find(opened, library, FLAGS, why, size);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tri_library_find(opened, names[i], FLAGS, why, size))
            return true;
    return false;
}

/* The name of the first entry that is not there, or NULL. */
static const char *find_entries(tri_nccl_api *api)
{
    const struct {
        const char *name;
        void *to;
    } entries[] = {
        {"ncclGetVersion", &api->get_version},
        {"ncclGetUniqueId", &api->get_unique_id},
        {"ncclCommInitRankConfig", &api->comm_init_rank_config},
        {"ncclCommFinalize", &api->comm_finalize},
        {"ncclCommDestroy", &api->comm_destroy},
        {"ncclCommAbort", &api->comm_abort},
        {"ncclCommGetAsyncError", &api->comm_get_async_error},
        {"ncclGetErrorString", &api->get_error_string},
        {"ncclGetLastError", &api->get_last_error},
        {"ncclAllReduce", &api->all_reduce},
        {"ncclReduce", &api->reduce},
        {"ncclBroadcast", &api->broadcast},
        {"ncclAllGather", &api->all_gather},
        {"ncclReduceScatter", &api->reduce_scatter},
        {"ncclSend", &api->send},
        {"ncclRecv", &api->recv},
        {"ncclGroupStart", &api->group_start},
        {"ncclGroupEnd", &api->group_end},
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *entry = dlsym(api->library.handle, entries[i].name);
        if (!entry)
            return entries[i].name;
        memcpy(entries[i].to, &entry, sizeof entry);
    }
    return NULL;
}

tr_status tri_nccl_open(const char *library, tri_nccl_api *api, tr_error *err)
{
    char why[3600];
    *api = (tri_nccl_api){.version = 0};
    const char *given = library[0] ? library : "libnccl.so.2";
    if (!open_library(&api->library, library, why, sizeof why))
        return tri_fail(err, TR_ERROR_INPUT,
                        "NCCL cannot be opened: %s; install it (Debian and Ubuntu: libnccl2 from "
                        "NVIDIA's repository), name the file with --set run.nccl_library=FILE, "
                        "or set run.transport to shm",
                        why);
    const char *missing = find_entries(api);
    bool old = !missing && (api->get_version(&api->version) != 0 || api->version < OLDEST);
    if (!missing && !old)
        return TR_OK;
    int version = api->version;
    tri_nccl_close(api);
    if (missing)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s is no NCCL, or an old one: it has no %s; name another file in "
                        "run.nccl_library, or set run.transport to shm",
                        given, missing);
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s is NCCL %d.%d; 2.14 or newer is needed. Name another file in "
                    "run.nccl_library, or set run.transport to shm",
                    given, version / 10000, version % 10000 / 100);
}

void tri_nccl_close(tri_nccl_api *api)
{
    tri_library_close(&api->library);
    *api = (tri_nccl_api){0};
}
