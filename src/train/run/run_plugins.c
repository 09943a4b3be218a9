/* Code from outside the tree is part of what a run computes, as its settings are: a number of its
 * bytes is kept in every checkpoint, and all ranks have the same. */
#include <inttypes.h>
#include <stdlib.h>

#include "train/ckpt/checkpoint_parts.h"
#include "train/run/run.h"

tr_status tri_run_check_plugins(tri_run *r, tr_error *err)
{
    if (r->ranks.size == 1)
        return TR_OK;
    int64_t *all = calloc((size_t)r->ranks.size, sizeof *all);
    tr_status status =
        all ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", r->ranks.size);
    if (status == TR_OK)
        status = tri_checkpoint_gather(&r->ranks, (int64_t)r->config.plugins, all, err);
    for (int i = 1; i < r->ranks.size && status == TR_OK; i++)
        if (all[i] != all[0])
            status = tri_fail(err, TR_ERROR_INPUT,
                              "the plug-ins of rank %d (code %013" PRIx64
                              ") are not those of rank 0 (code %013" PRIx64
                              "); copy the same files (run.plugins) to every machine",
                              i, (uint64_t)all[i], (uint64_t)all[0]);
    free(all);
    return status;
}

void tri_run_warn_plugins(const tri_run *r)
{
    double before = tri_resumed_number(&r->ckpt.resumed, "plugins", 0);
    double now = (double)r->config.plugins;
    if (r->ckpt.continues && before != now)
        tri_run_warn(r, false,
                     "the run was begun with %s plug-ins than it goes on with (code %013" PRIx64
                     ", now %013" PRIx64 "), so it may train something else: see run.plugins",
                     before == 0 ? "fewer"
                     : now == 0  ? "more"
                                 : "other",
                     (uint64_t)before, (uint64_t)now);
}

size_t tri_run_plugin_counts(const tri_run *r, tri_ckpt_number *counts)
{
    if (r->config.plugins == 0)
        return 0;
    counts[0] = (tri_ckpt_number){"plugins", (double)r->config.plugins};
    return 1;
}
