/* A row for what each rank computes and waits for, and one for each of its rows of messages. Events
 * that are too short to be seen are drawn as one with their neighbours of the same kind. */
#include "cli/verbs/profile_draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/draw/ruler.h"
#include "base/fs.h"
#include "base/text.h"

enum { LEFT = 120, TOP = 78, ROW = 18, GAP = 3, RANK_GAP = 10, WIDTH = 1400, MOST_ROWS = 600 };

typedef enum look { PRODUCT, ATTENTION, UPDATE, OTHER, MESSAGE, WAITING, NUM_LOOKS } look;

static const struct {
    const char *fill, *meaning;
} looks[NUM_LOOKS] = {[PRODUCT] = {"#3b76c4", "product"}, [ATTENTION] = {"#2f8f57", "attention"},
                      [UPDATE] = {"#8a4fb0", "update"},   [OTHER] = {"#9ec5f4", "other arithmetic"},
                      [MESSAGE] = {"#e09b2d", "message"}, [WAITING] = {"#e7b0ac", "wait"}};

typedef struct picture_row {
    int rank, lane;
    char name[TRI_TRACE_LANE_NAME];
    double y;
    /* What is held back, to be drawn together with what follows. */
    look held;
    double from, to; /* pixels; to <= from: nothing is */
} picture_row;

typedef struct step_picture {
    tri_trace_head head;
    int64_t step, begin_ns, end_ns;
    picture_row *rows;
    size_t num_rows, most_rows;
    tri_text text;
} step_picture;

static look look_of(const tri_trace_line *line)
{
    const char *name = line->category;
    if (strcmp(name, "wait") == 0)
        return WAITING;
    if (line->group[0])
        return MESSAGE;
    return strcmp(name, "matmul") == 0                   ? PRODUCT
           : strncmp(name, "attention", 9) == 0          ? ATTENTION
           : strstr("adam sgd lion narrow finish", name) ? UPDATE
                                                         : OTHER;
}

static picture_row *row_of(step_picture *p, int rank, int lane)
{
    for (size_t i = p->num_rows; i-- > 0;)
        if (p->rows[i].rank == rank && p->rows[i].lane == lane)
            return &p->rows[i];
    return NULL;
}

/* First reading: when the step was, and which rows there are. */
static tr_status note_rows(void *context, const tri_trace_line *line, tr_error *err)
{
    step_picture *p = context;
    bool is_row = strcmp(line->category, "row") == 0;
    if (is_row && line->lane != TRI_TRACE_STEPS && line->lane != TRI_TRACE_ACTIONS) {
        if (p->num_rows == p->most_rows)
            return tri_fail(err, TR_ERROR_INPUT,
                            "a picture of more than %zu rows could not be read; draw a run of "
                            "fewer ranks",
                            p->most_rows);
        picture_row *row = &p->rows[p->num_rows++];
        *row = (picture_row){.rank = line->rank, .lane = line->lane};
        snprintf(row->name, sizeof row->name, "%s", line->name);
    }
    if (is_row || line->step != p->step || line->lane != TRI_TRACE_STEPS)
        return TR_OK;
    int64_t end = line->start_ns + line->duration_ns;
    p->begin_ns = p->end_ns == 0 || line->start_ns < p->begin_ns ? line->start_ns : p->begin_ns;
    p->end_ns = p->end_ns == 0 || end > p->end_ns ? end : p->end_ns;
    return TR_OK;
}

static void draw_held(step_picture *p, picture_row *row)
{
    if (row->to > row->from)
        tri_text_add(
            &p->text, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n",
            row->from, row->y, fmax(row->to - row->from, 0.25), ROW, looks[row->held].fill);
    row->from = row->to = 0;
}

static double x_of(const step_picture *p, int64_t ns)
{
    double whole = (double)(p->end_ns - p->begin_ns);
    return LEFT + WIDTH * fmin(fmax((double)(ns - p->begin_ns) / whole, 0), 1);
}

/* Second reading. */
static tr_status draw_line(void *context, const tri_trace_line *line, tr_error *err)
{
    step_picture *p = context;
    picture_row *row = row_of(p, line->rank, line->lane);
    (void)err;
    if (!row || line->step != p->step || strcmp(line->category, "row") == 0)
        return TR_OK;
    double from = x_of(p, line->start_ns), to = x_of(p, line->start_ns + line->duration_ns);
    look l = look_of(line);
    bool joins = row->to > row->from && row->held == l && from >= row->from && from < row->to + 0.3;
    if (joins) {
        row->to = fmax(row->to, to);
        return TR_OK;
    }
    draw_held(p, row);
    row->held = l;
    row->from = from;
    row->to = fmax(to, from + 0.01);
    return TR_OK;
}

static double draw_frame(step_picture *p)
{
    double y = TOP;
    int rank = -1;
    for (size_t i = 0; i < p->num_rows; i++) {
        picture_row *row = &p->rows[i];
        if (row->rank != rank && i > 0)
            y += RANK_GAP;
        row->y = y;
        tri_text_add(&p->text, "<text x=\"%d\" y=\"%.1f\" class=\"l\">", LEFT - 8, y + 13);
        if (row->rank != rank)
            tri_text_add(&p->text, "rank %d  ", row->rank);
        tri_text_add_svg(&p->text, row->name);
        tri_text_add(&p->text,
                     "</text>\n<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" "
                     "fill=\"#f3f4f6\"/>\n",
                     LEFT, y, WIDTH, ROW);
        rank = row->rank;
        y += ROW + GAP;
    }
    return y;
}

static void draw_axis(step_picture *p, double y)
{
    double ms = (double)(p->end_ns - p->begin_ns) * 1e-6, step = tri_ruler_step(ms / 14);
    for (double t = 0; t <= ms; t += step) {
        double x = LEFT + WIDTH * t / ms;
        tri_text_add(&p->text,
                     "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#7c8594\"/>"
                     "<text x=\"%.1f\" y=\"%.1f\" class=\"t\">%g</text>\n",
                     x, y, x, y + 4, x, y + 16, t);
    }
}

static void draw_head(step_picture *p, const char *title, double height)
{
    tri_text_add(&p->text,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                 "viewBox=\"0 0 %d %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n"
                 "<style>.l{font-size:11px;text-anchor:end;fill:#2b313b}.t{font-size:10px;"
                 "text-anchor:middle;fill:#4a5361}.k{font-size:12px;fill:#2b313b}</style>\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
                 "<text x=\"%d\" y=\"24\" font-size=\"16\" font-weight=\"bold\" fill=\"#1c2128\">",
                 LEFT + WIDTH + 40, height, LEFT + WIDTH + 40, height, LEFT);
    tri_text_add_svg(&p->text, title);
    tri_text_add(&p->text, ", step %lld: %.3f ms</text>\n", (long long)p->step,
                 (double)(p->end_ns - p->begin_ns) * 1e-6);
    for (int l = 0; l < NUM_LOOKS; l++)
        tri_text_add(&p->text,
                     "<rect x=\"%d\" y=\"40\" width=\"13\" height=\"13\" fill=\"%s\"/>"
                     "<text x=\"%d\" y=\"51\" class=\"k\">%s</text>\n",
                     LEFT + 140 * l, looks[l].fill, LEFT + 140 * l + 18, looks[l].meaning);
}

static int by_place(const void *a, const void *b)
{
    const picture_row *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    int order = strcmp(x->name, y->name); /* "compute" is first, a parted row behind its own */
    return order ? order : x->lane - y->lane;
}

static double height_of(const step_picture *p)
{
    int num_ranks = p->num_rows > 0;
    for (size_t i = 1; i < p->num_rows; i++)
        num_ranks += p->rows[i].rank != p->rows[i - 1].rank;
    return TOP + (double)p->num_rows * (ROW + GAP) + RANK_GAP * (double)num_ranks + 30;
}

static tr_status draw(step_picture *p, const char *trace, const char *title, const char *path,
                      tr_error *err)
{
    TRI_TRY(tri_trace_read(trace, &p->head, note_rows, p, err));
    if (p->num_rows == 0 || p->end_ns <= p->begin_ns)
        return tri_fail(err, TR_ERROR_INPUT, "%s has no whole step to draw", trace);
    qsort(p->rows, p->num_rows, sizeof *p->rows, by_place);
    draw_head(p, title, height_of(p));
    double bottom = draw_frame(p);
    TRI_TRY(tri_trace_read(trace, &p->head, draw_line, p, err));
    for (size_t i = 0; i < p->num_rows; i++)
        draw_held(p, &p->rows[i]);
    draw_axis(p, bottom);
    tri_text_add(&p->text, "</svg>\n");
    if (p->text.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture");
    return tri_file_replace(path, p->text.chars, p->text.length, err);
}

tr_status tri_profile_draw(const tri_profile *profile, const char *trace, const char *title,
                           const char *path, tr_error *err)
{
    step_picture p = {.step = profile->first_step + profile->num_steps - 1,
                      .most_rows = MOST_ROWS,
                      .rows = calloc(MOST_ROWS, sizeof *p.rows)};
    if (!p.rows)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture");
    tri_text_init(&p.text);
    tr_status status = draw(&p, trace, title, path, err);
    tri_text_fini(&p.text);
    free(p.rows);
    return status;
}
