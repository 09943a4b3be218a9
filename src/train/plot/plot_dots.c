/* Curves in a terminal: a character of braille has two columns of four dots. Where there are
 * colours all curves share one field; otherwise each has its own, with the same axes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/plot/plot.h"

enum {
    OVER = 3,
    /* columns that a number may stick out */ LABELS = 9,
    NARROWEST = 10,
    NUM_COLOURS = 6,
    MOST_COLUMNS = 400
};

typedef struct dot_field {
    int columns, rows;
    unsigned char dots[TRI_PLOT_LINES][MOST_COLUMNS], owner[TRI_PLOT_LINES][MOST_COLUMNS];
} dot_field;

static void set_dot(dot_field *f, int x, int y, int owner)
{
    static const unsigned char bits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= 2 * f->columns || y >= 4 * f->rows)
        return;
    f->dots[y / 4][x / 2] |= bits[y % 4][x % 2];
    f->owner[y / 4][x / 2] = (unsigned char)owner;
}

static void draw_line(dot_field *f, const int from[2], const int to[2], int owner)
{
    int dx = to[0] - from[0], dy = to[1] - from[1];
    int num = abs(dx) > abs(dy) ? abs(dx) : abs(dy);
    for (int i = 0; i <= num; i++)
        set_dot(f, from[0] + (num ? (int)lround((double)dx * i / num) : 0),
                from[1] + (num ? (int)lround((double)dy * i / num) : 0), owner);
}

static tr_status draw_curve(const tri_plot *plot, int which, dot_field *f, tr_error *err)
{
    int buckets = 2 * f->columns, last[2] = {0, 0};
    tri_plot_point *points = calloc(2 * (size_t)buckets, sizeof *points);
    if (!points)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a curve");
    size_t num = tri_plot_reduce(plot, &plot->curves[which], plot->smooth > 1, buckets, points);
    bool pen = false;
    for (size_t i = 0; i < num; i++) {
        if (isnan(points[i].y)) {
            pen = false;
            continue;
        }
        double x = tri_ruler_place(&plot->axis_x, points[i].x) * (buckets - 1);
        double y = (1 - tri_ruler_place(&plot->axis_y, points[i].y)) * (4 * f->rows - 1);
        int at[2] = {(int)lround(x), (int)lround(y)};
        draw_line(f, pen ? last : at, at, which);
        memcpy(last, at, sizeof last);
        pen = true;
    }
    free(points);
    return TR_OK;
}

static const char *colour_of(int which)
{
    static const char *const colours[NUM_COLOURS] = {"\033[36m", "\033[33m", "\033[32m",
                                                     "\033[35m", "\033[34m", "\033[31m"};
    return colours[which % NUM_COLOURS];
}

/* The label of the mark that is in this row, or "". */
static void label_of(const tri_plot *plot, int row, int rows, char label[32])
{
    *label = 0;
    for (int i = 0; i < plot->axis_y.num_ticks; i++) {
        double place = (1 - tri_ruler_place(&plot->axis_y, plot->axis_y.ticks[i])) * (4 * rows - 1);
        if ((int)lround(place) / 4 == row)
            tri_ruler_tick_text(plot->axis_y.ticks[i], label);
    }
}

static void print_field(const tri_plot *plot, const dot_field *f, bool colour, tri_text *text)
{
    for (int row = 0; row < f->rows; row++) {
        char label[32];
        label_of(plot, row, f->rows, label);
        tri_text_add(text, "%*s %s", LABELS - 2, label, *label ? "┤" : "│");
        int end = f->columns;
        while (end > 0 && !f->dots[row][end - 1])
            end--;
        for (int i = 0; i < end; i++) {
            unsigned dots = f->dots[row][i];
            if (colour && dots)
                tri_text_add(text, "%s", colour_of(f->owner[row][i]));
            if (dots)
                tri_text_add(text, "\xE2%c%c", (char)(0xA0 | dots >> 6),
                             (char)(0x80 | (dots & 63)));
            else
                tri_text_add(text, " ");
            if (colour && dots)
                tri_text_add(text, "\033[0m");
        }
        tri_text_add(text, "\n");
    }
}

/* The line below the field, and under its marks their numbers as far as there is room. */
static void print_axis(const tri_plot *plot, int columns, tri_text *text)
{
    char labels[MOST_COLUMNS + 64], rule[MOST_COLUMNS];
    memset(labels, ' ', sizeof labels);
    memset(rule, 0, sizeof rule);
    int free_from = 0, end = 0;
    for (int i = 0; i < plot->axis_x.num_ticks; i++) {
        char label[32];
        double place = tri_ruler_place(&plot->axis_x, plot->axis_x.ticks[i]);
        int at = (int)lround(place * (columns - 1));
        int length = (int)strlen(tri_ruler_tick_text(plot->axis_x.ticks[i], label));
        int from = at - length / 2 + LABELS;
        if (at < 0 || at >= columns)
            continue;
        rule[at] = 1;
        if (from < free_from || from + length > columns + LABELS + OVER)
            continue;
        memcpy(labels + from, label, (size_t)length);
        end = from + length;
        free_from = end + 1;
    }
    tri_text_add(text, "%*s└", LABELS - 1, "");
    for (int i = 0; i < columns; i++)
        tri_text_add(text, "%s", rule[i] ? "┴" : "─");
    tri_text_add(text, "\n%.*s", end, labels);
    tri_text_add(text, "  %s\n", tri_plot_x_title(plot->x));
}

static void print_title(const tri_plot *plot, int which, bool colour, tri_text *text)
{
    tri_text_add(text, "%s", tri_plot_y_title(plot->y));
    if (plot->smooth > 1)
        tri_text_add(text, ", mean of %lld points", (long long)plot->smooth);
    for (int i = 0; i < plot->num; i++) {
        if (which >= 0 && i != which)
            continue;
        tri_text_add(text, "  %s", colour ? colour_of(i) : "");
        tri_text_add_printable(text, plot->curves[i].name);
        tri_text_add(text, "%s", colour ? "\033[0m" : "");
    }
    tri_text_add(text, "\n");
}

tr_status tri_plot_dots(const tri_plot *plot, int width, int lines, bool colour, tri_text *text,
                        tr_error *err)
{
    bool together = colour || plot->num == 1;
    int room =
        (int)strlen(tri_plot_x_title(plot->x)) + 2 + OVER; /* behind the numbers of the axis */
    int columns = width - LABELS - room;
    columns = columns < NARROWEST ? NARROWEST : columns > MOST_COLUMNS ? MOST_COLUMNS : columns;
    dot_field *f = calloc(1, sizeof *f);
    tr_status status = f ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a picture");
    for (int i = 0; status == TR_OK && i < (together ? 1 : plot->num); i++) {
        memset(f, 0, sizeof *f);
        f->columns = columns;
        f->rows = lines < TRI_PLOT_LINES ? lines : TRI_PLOT_LINES;
        for (int k = 0; status == TR_OK && k < plot->num; k++)
            status = together || k == i ? draw_curve(plot, k, f, err) : TR_OK;
        print_title(plot, together ? -1 : i, colour, text);
        print_field(plot, f, colour, text);
        print_axis(plot, columns, text);
    }
    free(f);
    if (status == TR_OK && text->failed)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a picture");
    return status;
}
