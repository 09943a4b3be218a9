#include "collective/lines.h"

#include <stdio.h>

#include "collective/rounds.h"

static int num_dims(const tri_algorithm *algorithm)
{
    if (algorithm == &tri_algorithm_torus3d)
        return 3;
    return algorithm == &tri_algorithm_torus2d || algorithm == &tri_algorithm_mesh2d ? 2 : 0;
}

static void name_line(tri_coll_line *line, const tri_coll_shape *shape)
{
    int dim[TRI_COLL_MAX_DIMS] = {0}, num = num_dims(line->algorithm);
    bool given = num == 0 && shape->num_dims > 0;
    if (given)
        num = shape->num_dims;
    for (int d = 0; given && d < num; d++)
        dim[d] = shape->dim[d];
    if (!given && num > 0)
        tri_shape_dims(shape, num, dim);
    int at = snprintf(line->name, sizeof line->name, "%s", line->algorithm->name);
    for (int d = 0; d < num; d++)
        at += snprintf(line->name + at, sizeof line->name - (size_t)at, "%s%d", d ? "x" : ":",
                       dim[d]);
}

tri_coll_line tri_coll_line_of(const tri_algorithm *algorithm, tri_coll coll,
                               const tri_coll_shape *shape, const tri_coll_prices *prices)
{
    /* Formulas are linear in the bytes: those of a unit are enough. */
    const double unit = 1e9, whole = unit * (coll == TRI_COLL_ALL_TO_ALL ? shape->size : 1);
    tri_coll_cost cost = algorithm->cost(coll, shape, coll == TRI_COLL_BARRIER ? 0 : whole);
    tri_coll_line line = {.algorithm = algorithm,
                          .messages = cost.alpha_count,
                          .bytes = cost.beta_bytes / unit,
                          .outer_bytes = cost.outer_beta_bytes / unit};
    line.fixed = cost.alpha_count * prices->alpha;
    line.per_byte = (cost.beta_bytes * prices->beta + cost.gamma_bytes * prices->gamma) / unit;
    name_line(&line, shape);
    return line;
}

int tri_coll_best_of(const tri_coll_line *lines, int num, tri_coll_best best[TRI_COLL_MAX_LINES])
{
    int count = 0, now = -1;
    double from = 0;
    for (int i = 0; i < num; i++)
        if (now < 0 || lines[i].fixed < lines[now].fixed ||
            (lines[i].fixed <= lines[now].fixed && lines[i].per_byte < lines[now].per_byte))
            now = i;
    while (now >= 0 && count < TRI_COLL_MAX_LINES) {
        int next = -1;
        double at = 0;
        best[count++] = (tri_coll_best){now, from};
        for (int i = 0; i < num; i++) {
            double slower = lines[i].fixed - lines[now].fixed;
            double gain = lines[now].per_byte - lines[i].per_byte;
            /* What differs in the last bits only is the same. */
            if (gain <= 1e-9 * lines[now].per_byte)
                continue;
            double meets = slower / gain;
            if (next < 0 || meets < at ||
                (meets <= at && lines[i].per_byte < lines[next].per_byte)) {
                next = i;
                at = meets;
            }
        }
        now = next;
        from = at;
    }
    return count;
}
