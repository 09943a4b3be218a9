/* Curves: columns as so many points. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/log/columns/columns_parts.h"

/* Numbers that are close together are one point. */
typedef struct drawing {
    const tri_column *key;
    tri_columns_x axis;
    double from, to, width; /* of a point */
    tri_columns_curve *curve;
    size_t capacity;
    tri_column_cell open; /* the point that grows */
    double low, high;     /* x of its first and last number */
    int64_t at;           /* its place in the row of points */
    double hours;         /* of the lines before, when lines are read again */
    int64_t end;          /* byte behind the last line that is wanted */
    tr_status status;
} drawing;

static void end_point(drawing *d)
{
    tri_columns_curve *c = d->curve;
    if (d->open.num == 0)
        return;
    if (c->num == d->capacity) {
        size_t capacity = d->capacity ? 2 * d->capacity : 512;
        tri_columns_point *points = realloc(c->points, capacity * sizeof *points);
        if (!points) {
            d->status = TR_ERROR_RUNTIME;
            return;
        }
        c->points = points;
        d->capacity = capacity;
    }
    c->points[c->num++] =
        (tri_columns_point){.x = d->low == d->high ? d->low : 0.5 * (d->low + d->high),
                            .min = d->open.min,
                            .mean = d->open.sum / (double)d->open.num,
                            .max = d->open.max,
                            .num = d->open.num};
    d->open = (tri_column_cell){0};
}

static void add_point(drawing *d, const tri_column_cell *cell, double low, double high)
{
    double place = d->width > 0 ? floor((0.5 * (low + high) - d->from) / d->width) : 0;
    d->curve->missing += cell->nulls;
    if (cell->num == 0)
        return;
    if (d->open.num > 0 && (int64_t)place != d->at)
        end_point(d);
    if (d->open.num == 0)
        d->low = low;
    d->high = high;
    d->at = (int64_t)place;
    tri_cell_join(&d->open, cell);
}

static void draw_line(void *context, const tri_metrics_member *members, size_t num)
{
    drawing *d = context;
    double x[TRI_COLUMNS_NUM_X];
    if (!tri_line_places(members, num, &d->hours, x) ||
        !(x[d->axis] >= d->from && x[d->axis] <= d->to))
        return;
    for (size_t i = 0; i < num; i++)
        if (tri_member_named(&members[i], d->key->name) &&
            (members[i].kind == TRI_MEMBER_NUMBER || members[i].kind == TRI_MEMBER_NULL)) {
            tri_column_cell cell = {0};
            tri_cell_add(&cell, members[i].real);
            add_point(d, &cell, x[d->axis], x[d->axis]);
        }
}

static tr_status visit_again(void *context, const char *text, size_t num_bytes, int64_t at,
                             tr_error *err)
{
    const drawing *d = context;
    if (at >= d->end)
        return TR_ERROR_INPUT; /* enough */
    return tri_metrics_members(text, num_bytes, draw_line, context, err);
}

/* The lines of the spans [first, end) themselves. */
static tr_status draw_lines(drawing *d, const tri_columns *c, size_t first, size_t end,
                            tr_error *err)
{
    tr_error why = {0};
    int64_t offset = c->spans[first].at;
    int fd = tri_columns_reopen(c);
    tr_status status = TR_OK;
    d->end = end < c->num ? c->spans[end].at : c->offset;
    d->hours = first > 0 ? c->spans[first - 1].last[TRI_COLUMNS_HOURS] : 0;
    if (fd >= 0)
        status = tri_lines_scan(fd, c->path, &offset, visit_again, d, &why);
    if (fd >= 0)
        close(fd);
    return status == TR_ERROR_RUNTIME ? tri_fail(err, status, "%s", why.message) : TR_OK;
}

static bool in_range(const tri_row_span *span, const drawing *d)
{
    return span->last[d->axis] >= d->from && span->first[d->axis] <= d->to;
}

static tr_status draw(drawing *d, const tri_columns *c, size_t points, tr_error *err)
{
    enum { MOST_LINES = 65536 };
    size_t first = 0, end = 0;
    for (size_t i = 0; i < c->num; i++)
        if (in_range(&c->spans[i], d)) {
            first = end == 0 ? i : first;
            end = i + 1;
        }
    if (end == 0)
        return TR_OK;
    d->width = (d->to - d->from) / (double)points;
    if (c->width > 1 && end - first < points &&
        (int64_t)(end - first) * c->width <= (int64_t)MOST_LINES)
        TRI_TRY(draw_lines(d, c, first, end, err));
    else
        for (size_t i = first; i < end; i++)
            if (in_range(&c->spans[i], d))
                add_point(d, &d->key->cells[i], c->spans[i].first[d->axis],
                          c->spans[i].last[d->axis]);
    end_point(d);
    return d->status == TR_OK ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a curve");
}

tr_status tri_columns_curve_of(const tri_columns *c, const char *key, tri_columns_x x, double from,
                               double to, size_t points, tri_columns_curve *curve, tr_error *err)
{
    *curve = (tri_columns_curve){.first = NAN, .last = NAN};
    drawing d = {
        .key = tri_column_named(c, key, strlen(key)), .axis = x, .curve = curve, .status = TR_OK};
    if (!d.key)
        return tri_fail(err, TR_ERROR_INPUT, "no step of this run has a number of that name");
    for (size_t i = 0; i < c->num; i++) {
        if (isnan(curve->first))
            curve->first = c->spans[i].first[x];
        if (!isnan(c->spans[i].last[x]))
            curve->last = c->spans[i].last[x];
    }
    d.from = from >= curve->first ? from : curve->first;
    d.to = to <= curve->last ? to : curve->last;
    tr_status status = draw(&d, c, points > 0 ? points : 1, err);
    if (status != TR_OK) {
        free(curve->points);
        *curve = (tri_columns_curve){.first = NAN, .last = NAN};
    }
    return status;
}
