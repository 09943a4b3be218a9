#include "train/plot/run_picture.h"

#include <math.h>
#include <stdlib.h>

#include "base/fs.h"
#include "train/plot/plot.h"

static bool has_any(const tri_run_curve *run, bool held_out)
{
    for (size_t i = 0; i < run->num; i++)
        if (isfinite(held_out ? run->lines[i].eval_loss : run->lines[i].loss))
            return true;
    return false;
}

static tr_status draw(const tri_run_curve *run, const char *path, tr_error *err)
{
    tri_plot plot = {.y = TRI_PLOT_LOSS, .smooth = 1};
    tr_status status = tri_plot_add(&plot, "loss", TRI_PLOT_LOSS, run, err);
    if (status == TR_OK && has_any(run, true))
        status = tri_plot_add(&plot, "held-out loss", TRI_PLOT_EVAL_LOSS, run, err);
    if (status == TR_OK)
        status = tri_plot_save(&plot, path, err);
    tri_plot_free(&plot);
    return status;
}

tr_status tri_run_picture(const char *run_dir, bool *drawn, tr_error *err)
{
    tri_run_curve run;
    *drawn = false;
    tr_status status = tri_run_curve_read(&run, run_dir, err);
    if (status == TR_ERROR_INPUT)
        return TR_OK; /* not a single step */
    TRI_TRY(status);
    bool any = has_any(&run, false);
    char *path = tri_path_join(run_dir, TRI_RUN_PICTURE);
    if (!path)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    else if (any)
        status = draw(&run, path, err);
    *drawn = any && status == TR_OK;
    tri_run_curve_free(&run);
    free(path);
    return status;
}
