#include "train/log/run_curve.h"

#include <stdlib.h>

static void add_line(void *context, const tri_metrics_line *line)
{
    tri_run_curve *c = context;
    while (c->num > 0 && c->lines[c->num - 1].step >= line->step)
        c->num--; /* done again */
    if (c->num == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 1024;
        tri_metrics_line *lines = realloc(c->lines, capacity * sizeof *lines);
        c->failed |= !lines;
        if (!lines)
            return;
        c->lines = lines;
        c->capacity = capacity;
    }
    c->lines[c->num++] = *line;
}

tr_status tri_run_curve_read(tri_run_curve *curve, const char *run_dir, tr_error *err)
{
    *curve = (tri_run_curve){0};
    tr_status status = tri_metrics_each(run_dir, add_line, curve, err);
    if (status == TR_OK && curve->failed)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for its lines", run_dir);
    if (status == TR_OK && curve->num == 0)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: has no steps yet: metrics.jsonl is empty or missing; try again when "
                          "it has run",
                          run_dir);
    if (status != TR_OK)
        tri_run_curve_free(curve);
    return status;
}

void tri_run_curve_free(tri_run_curve *curve)
{
    free(curve->lines);
    *curve = (tri_run_curve){0};
}
