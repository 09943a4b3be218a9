/* The shards of an array as a picture: rows are the pieces of one dim, columns those of another,
 * and a cell says which devices hold it.
 *
 *             J 0-1023    J 1024-2047
 *            +-----------+-----------+
 *     I 0-3  | x0 y0     | x0 y1     |
 *     I 4-7  | x1 y0     | x1 y1     |
 *            +-----------+-----------+
 *
 * Long rows and columns are shown by their first and last pieces. */
#include "place/calc/calc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 9, MOST_COLUMNS = 5, LABEL = 160 };

typedef struct picture {
    const tri_calc *calc;
    const tri_calc_array *array;
    const tri_calc_dim *down, *across; /* or NULL */
} picture;

/* The first two dims that are cut, then any others, in the order of the array. */
static void choose_dims(picture *p)
{
    int chosen[2] = {-1, -1}, num = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int d = 0; d < p->array->rank && num < 2; d++) {
            bool cut = p->array->dims[d].num_cuts > 0;
            if (cut == (pass == 0) && chosen[0] != d)
                chosen[num++] = d;
        }
    if (num == 2 && chosen[0] > chosen[1]) {
        int swap = chosen[0];
        chosen[0] = chosen[1];
        chosen[1] = swap;
    }
    p->down = num > 0 ? &p->array->dims[chosen[0]] : NULL;
    p->across = num > 1 ? &p->array->dims[chosen[1]] : NULL;
}

/* Of `num` pieces the k-th that is shown; -1 for the gap. */
static int shown(int num, int most, int k)
{
    if (num <= most)
        return k;
    if (k == most - 2)
        return -1;
    return k < most - 2 ? k : num - 1;
}

static int num_shown(int num, int most)
{
    return num < most ? num : most;
}

/* "I 8-15" */
static void range_label(const picture *p, const tri_calc_dim *dim, int shard, char label[LABEL])
{
    const tri_calc_letter *letter = &p->calc->letters[dim->letter];
    if (shard < 0) {
        snprintf(label, LABEL, "...");
        return;
    }
    if (letter->size == 0) {
        if (dim->num_cuts > 0)
            snprintf(label, LABEL, "%s %d", letter->name, shard);
        else
            snprintf(label, LABEL, "%s", letter->name);
        return;
    }
    int64_t begin, size = tri_calc_piece(p->calc, dim, shard, &begin);
    if (size == 0)
        snprintf(label, LABEL, "%s none", letter->name);
    else if (size == 1)
        snprintf(label, LABEL, "%s %" PRId64, letter->name, begin);
    else
        snprintf(label, LABEL, "%s %" PRId64 "-%" PRId64, letter->name, begin, begin + size - 1);
}

/* "x0 y3": the coordinates along the dim's axes. */
static int add_coordinates(const picture *p, const tri_calc_dim *dim, int shard, char *label,
                           int length)
{
    for (int i = 0; dim && i < dim->num_cuts; i++) {
        int faster = 1;
        for (int k = i + 1; k < dim->num_cuts; k++)
            faster *= p->calc->axes[dim->cuts[k]].size;
        const tri_calc_axis *axis = &p->calc->axes[dim->cuts[i]];
        length += snprintf(label + length, (size_t)(LABEL - length), "%s%s%d", length ? " " : "",
                           axis->name, shard / faster % axis->size);
    }
    return length;
}

static void cell_label(const picture *p, int row, int column, char label[LABEL])
{
    label[0] = 0;
    if (row < 0 || column < 0) {
        snprintf(label, LABEL, "...");
        return;
    }
    int length = add_coordinates(p, p->down, row, label, 0);
    length = add_coordinates(p, p->across, column, label, length);
    if (length == 0)
        snprintf(label, LABEL, "every device");
}

static void write_rule(int indent, int columns, int width, tri_text *text)
{
    tri_text_add(text, "%*s", indent, "");
    for (int c = 0; c < columns; c++) {
        tri_text_add(text, "+");
        for (int i = 0; i < width + 2; i++)
            tri_text_add(text, "-");
    }
    tri_text_add(text, "+\n");
}

static void write_grid(const picture *p, tri_text *text)
{
    char label[LABEL];
    int rows = tri_calc_shards(p->calc, p->down);
    int columns = p->across ? tri_calc_shards(p->calc, p->across) : 1;
    int shown_rows = num_shown(rows, MOST_ROWS), shown_columns = num_shown(columns, MOST_COLUMNS);
    int indent = 0, width = 0;
    for (int r = 0; r < shown_rows; r++) {
        range_label(p, p->down, shown(rows, MOST_ROWS, r), label);
        indent = (int)strlen(label) > indent ? (int)strlen(label) : indent;
        for (int c = 0; c < shown_columns; c++) {
            cell_label(p, shown(rows, MOST_ROWS, r), shown(columns, MOST_COLUMNS, c), label);
            width = (int)strlen(label) > width ? (int)strlen(label) : width;
        }
    }
    for (int c = 0; p->across && c < shown_columns; c++) {
        range_label(p, p->across, shown(columns, MOST_COLUMNS, c), label);
        width = (int)strlen(label) > width ? (int)strlen(label) : width;
    }
    if (p->across) {
        tri_text_add(text, "  %*s  ", indent, "");
        for (int c = 0; c < shown_columns; c++) {
            range_label(p, p->across, shown(columns, MOST_COLUMNS, c), label);
            tri_text_add(text, " %-*s", c + 1 < shown_columns ? width + 2 : 0, label);
        }
        tri_text_add(text, "\n");
    }
    write_rule(indent + 4, shown_columns, width, text);
    for (int r = 0; r < shown_rows; r++) {
        range_label(p, p->down, shown(rows, MOST_ROWS, r), label);
        tri_text_add(text, "  %-*s  ", indent, label);
        for (int c = 0; c < shown_columns; c++) {
            cell_label(p, shown(rows, MOST_ROWS, r), shown(columns, MOST_COLUMNS, c), label);
            tri_text_add(text, "| %-*s ", width, label);
        }
        tri_text_add(text, "|\n");
    }
    write_rule(indent + 4, shown_columns, width, text);
}

static void write_notes(const picture *p, tri_text *text)
{
    const tri_calc *calc = p->calc;
    unsigned others = 0, copied = calc->num_axes ? (1u << calc->num_axes) - 1 : 0;
    copied &= ~tri_calc_cut_axes(p->array) & ~p->array->terms;
    for (int d = 0; d < p->array->rank; d++)
        for (int i = 0; i < p->array->dims[d].num_cuts; i++)
            if (&p->array->dims[d] != p->down && &p->array->dims[d] != p->across)
                others |= 1u << p->array->dims[d].cuts[i];
    for (int a = 0; a < calc->num_axes; a++) {
        bool copy = copied & 1u << a, other = others & 1u << a, term = p->array->terms & 1u << a;
        if (!(copy || other || term) || calc->axes[a].size == 1)
            continue;
        tri_text_add(text, "  each cell: %s0 to %s%d, %s\n", calc->axes[a].name, calc->axes[a].name,
                     calc->axes[a].size - 1,
                     copy    ? "copies"
                     : other ? "pieces along a dim that is not drawn"
                             : "a term each");
    }
}

void tri_calc_draw(const tri_calc *calc, const tri_calc_array *array, tri_text *text)
{
    picture p = {.calc = calc, .array = array};
    choose_dims(&p);
    if (!p.down)
        return;
    write_grid(&p, text);
    write_notes(&p, text);
}
