#include "ckpt/ckpt_best.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "ckpt/ckpt_dir.h"
#include "ckpt/manifest.h"

tr_status tri_ckpt_eval_loss(const char *dir, int64_t step, double *loss, tr_error *err)
{
    char *ckpt = tri_ckpt_path(dir, step);
    char *path = ckpt ? tri_path_join(ckpt, TRI_CKPT_MANIFEST) : NULL;
    tri_manifest manifest;
    *loss = NAN;
    tr_status status = path ? tri_manifest_read(path, false, &manifest, err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
    if (status == TR_OK) {
        *loss = tri_manifest_number(&manifest, TRI_CKPT_EVAL_LOSS, NAN);
        tri_manifest_fini(&manifest);
    }
    free(path);
    free(ckpt);
    return status;
}

bool tri_ckpt_is_better(double loss, int64_t step, double than, int64_t than_step)
{
    if (isnan(loss) || isnan(than))
        return !isnan(loss);
    return loss < than || (loss == than && step < than_step);
}

tr_status tri_ckpt_best(const char *dir, int64_t *step, double *loss, tr_error *err)
{
    tri_ckpt_steps steps;
    *step = -1;
    *loss = NAN;
    TRI_TRY(tri_ckpt_steps_read(&steps, dir, err));
    tr_status status = TR_OK;
    for (size_t i = 0; i < steps.num && status == TR_OK; i++) {
        double own;
        status = tri_ckpt_eval_loss(dir, steps.step[i], &own, err);
        if (status == TR_ERROR_DAMAGED) /* another may be whole */
            status = TR_OK;
        else if (status == TR_OK && tri_ckpt_is_better(own, steps.step[i], *loss, *step)) {
            *step = steps.step[i];
            *loss = own;
        }
    }
    tri_ckpt_steps_free(&steps);
    return status;
}

tr_status tri_ckpt_find_best(const char *path, char **found, tr_error *err)
{
    static const char name[] = "/best";
    size_t length = strlen(path), tail = sizeof name - 1;
    int64_t step;
    double loss;
    *found = NULL;
    if (length <= tail || strcmp(path + length - tail, name) != 0 || tri_path_exists(path))
        return TR_OK;
    char *dir = strndup(path, length - tail);
    tr_status status = dir ? tri_ckpt_best(dir, &step, &loss, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    if (status == TR_OK && step < 0)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: none of the checkpoints in %s has a held-out loss; train with "
                          "train.eval_every and ckpt.keep_best, or name a step-N directory",
                          path, dir);
    if (status == TR_OK) {
        *found = tri_ckpt_path(dir, step);
        if (!*found)
            status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    }
    free(dir);
    return status;
}
