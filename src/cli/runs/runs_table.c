#include "cli/runs/runs_table.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/doc/json_doc.h"
#include "cli/text.h"

/* "dp2,tp2"; "1" for one rank, "-" where it is not known. */
static char *layout_of(const tri_run_row *row, char text[64])
{
    const struct {
        const char *name;
        int64_t size;
    } axes[] = {{"dp", row->dp}, {"cp", row->cp}, {"tp", row->tp}, {"pp", row->pp}};
    size_t length = 0;
    snprintf(text, 64, "%s", row->dp > 0 ? "1" : "-");
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (axes[i].size > 1)
            length += (size_t)snprintf(text + length, 64 - length, "%s%s%" PRId64,
                                       length ? "," : "", axes[i].name, axes[i].size);
    return text;
}

/* The losses of a run in so many characters at most. */
static void add_sparkline(const tri_run_summary *s, int most, tri_text *text)
{
    static const char *const marks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    int64_t bins = (s->step + s->width - 1) / s->width;
    int num = bins < most ? (int)bins : most;
    double mean[TRI_SUMMARY_BINS], low = INFINITY, high = -INFINITY;
    for (int i = 0; i < num; i++) {
        double sum = 0, count = 0;
        for (int64_t k = i * bins / num; k < (i + 1) * bins / num; k++) {
            sum += s->sum[k];
            count += (double)s->count[k];
        }
        mean[i] = count > 0 && isfinite(sum) ? sum / count : NAN;
        low = fmin(low, mean[i]);
        high = fmax(high, mean[i]);
    }
    for (int i = 0; i < num; i++) {
        double share = high > low ? (mean[i] - low) / (high - low) : 0;
        tri_text_add(text, "%s", isnan(mean[i]) ? "·" : marks[(int)(share * 7.999)]);
    }
    if (num <= 0)
        tri_text_add(text, "-");
}

/* ---- cells: no blanks in them, so that other programs can cut a line at blanks ---- */

static void add_name(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    (void)look;
    tri_text_add_printable(cell, row->dir);
}

static void add_state(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    (void)look;
    tri_text_add(cell, "%s", tri_run_state_name(row->state));
}

static void add_step(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    (void)look;
    tri_text_add(cell, "%" PRId64, row->metrics.step);
    if (row->total > 0)
        tri_text_add(cell, "/%" PRId64, row->total);
}

static void add_left(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    char text[16];
    (void)look;
    tri_text_add(cell, "%s", isnan(row->left_s) ? "-" : tri_text_duration(row->left_s, text));
}

static void add_loss(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    (void)look;
    if (row->metrics.num_lines == 0)
        tri_text_add(cell, "-");
    else
        tri_text_add(cell, "%.4f", row->metrics.loss);
}

static void add_curve(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    enum { WIDTH = 12 };
    (void)look;
    add_sparkline(&row->metrics, WIDTH, cell);
}

static void add_without_blanks(tri_text *cell, const char *text)
{
    for (; *text; text++)
        if (*text != ' ')
            tri_text_add(cell, "%c", *text);
}

static void add_speed(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    char text[16];
    (void)look;
    bool known = row->metrics.tokens_per_s > 0;
    add_without_blanks(cell, known ? tri_text_count(row->metrics.tokens_per_s, text) : "-");
}

static void add_layout(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    char text[64];
    (void)look;
    tri_text_add(cell, "%s", layout_of(row, text));
}

static void add_age(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    char text[16];
    bool known = row->began > 0;
    tri_text_add(cell, "%s",
                 known ? tri_text_duration(fmax(0, look->now - row->began), text) : "-");
}

static void add_disk(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    char text[16];
    (void)look;
    add_without_blanks(cell, tri_text_bytes(row->disk_bytes, text));
}

static void add_why(const tri_run_row *row, const tri_runs_look *look, tri_text *cell)
{
    (void)look;
    tri_text_add_printable(cell, row->why);
}

static const struct {
    const char *title;
    void (*add)(const tri_run_row *row, const tri_runs_look *look, tri_text *cell);
    bool right;
    int goes; /* the first to go where there is no room is 1; 0 stays */
} columns[] = {
    {"RUN", add_name, false, 0},   {"STATE", add_state, false, 0},   {"STEP", add_step, true, 0},
    {"LEFT", add_left, true, 7},   {"LOSS", add_loss, true, 8},      {"CURVE", add_curve, false, 6},
    {"TOK/S", add_speed, true, 5}, {"LAYOUT", add_layout, false, 3}, {"AGE", add_age, true, 4},
    {"DISK", add_disk, true, 2},   {"WHY", add_why, false, 1},
};
enum {
    NUM_COLUMNS = sizeof columns / sizeof *columns,
    NAME = 0,
    STATE = 1,
    WHY = NUM_COLUMNS - 1,
    GAP = 2,
    SHORTEST_NAME = 10,
    SHORTEST_WHY = 16
};

/* ---- the table ---- */

typedef struct runs_grid {
    char **cells; /* [num + 1][NUM_COLUMNS], the titles first */
    size_t num;
    int width[NUM_COLUMNS];
    bool shown[NUM_COLUMNS];
} runs_grid;

static int columns_of(const char *text)
{
    int num = 0;
    for (; *text; text++)
        num += ((unsigned char)*text & 0xC0) != 0x80;
    return num;
}

static tr_status fill(runs_grid *g, const tri_run_row *rows, const tri_runs_look *look,
                      tr_error *err)
{
    bool failed = false;
    for (size_t r = 0; r <= g->num; r++)
        for (int c = 0; c < NUM_COLUMNS; c++) {
            tri_text cell;
            tri_text_init(&cell);
            if (r == 0)
                tri_text_add(&cell, "%s", columns[c].title);
            else
                columns[c].add(&rows[r - 1], look, &cell);
            tri_text_add(&cell, "%s", "");
            failed |= cell.failed;
            g->cells[r * NUM_COLUMNS + (size_t)c] = cell.chars;
            int width = cell.chars ? columns_of(cell.chars) : 0;
            g->width[c] = width > g->width[c] ? width : g->width[c];
            g->shown[c] |= r > 0 && width > 0;
        }
    return failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs") : TR_OK;
}

static int whole_width(const runs_grid *g)
{
    int sum = -GAP;
    for (int c = 0; c < NUM_COLUMNS; c++)
        sum += g->shown[c] ? g->width[c] + GAP : 0;
    return sum;
}

/* What cannot be shown in full is left out, but for reasons and names, which get shorter. */
static void fit(runs_grid *g, int width)
{
    if (width <= 0)
        return;
    int over = whole_width(g) - width;
    if (g->shown[WHY] && over > 0 && g->width[WHY] - over >= SHORTEST_WHY)
        g->width[WHY] -= over;
    for (int turn = 1; turn < NUM_COLUMNS && whole_width(g) > width; turn++)
        for (int c = 0; c < NUM_COLUMNS; c++) {
            int name = g->width[NAME], half = width / 3 > SHORTEST_NAME ? width / 3 : SHORTEST_NAME;
            over = whole_width(g) - width;
            if (columns[c].goes != turn || over <= 0)
                continue;
            if (turn > 1 && name > half && name - over >= half) /* a long name gives way first */
                g->width[NAME] = name - over;
            else
                g->shown[c] = false;
        }
    over = whole_width(g) - width;
    if (over > 0)
        g->width[NAME] =
            g->width[NAME] - over > SHORTEST_NAME ? g->width[NAME] - over : SHORTEST_NAME;
}

/* The end of a name says more than its beginning; of a sentence it is the other way round. */
static void add_cut(tri_text *text, const char *cell, int width, bool tail)
{
    int length = columns_of(cell), at = 0;
    if (length <= width) {
        tri_text_add(text, "%s", cell);
        return;
    }
    int from = tail ? length - width + 1 : 0, to = tail ? length : width - 1;
    tri_text_add(text, tail ? "…" : "");
    for (const char *c = cell; *c; c++) {
        at += ((unsigned char)*c & 0xC0) != 0x80;
        if (at > from && at <= to)
            tri_text_add(text, "%c", *c);
    }
    tri_text_add(text, tail ? "" : "…");
}

static const char *colour_of(tri_run_state state)
{
    static const char *const colours[TRI_NUM_RUN_STATES] = {[TRI_RUN_IS_RUNNING] = "\033[32m",
                                                            [TRI_RUN_IS_STALLED] = "\033[33m",
                                                            [TRI_RUN_IS_FAILED] = "\033[31m"};
    return colours[state] ? colours[state] : "";
}

static void add_line(const runs_grid *g, size_t r, const char *colour, tri_text *text)
{
    int owed = 0; /* blanks before the next cell: none at the end of a line */
    for (int c = 0; c < NUM_COLUMNS; c++) {
        const char *cell = g->cells[r * NUM_COLUMNS + (size_t)c];
        if (!g->shown[c])
            continue;
        int length = columns_of(cell), width = g->width[c];
        int room = width > length ? width - length : 0;
        if (length == 0) {
            owed += width + GAP;
            continue;
        }
        bool paints = *colour && (r == 0 || c == STATE);
        tri_text_add(text, "%*s%s", owed + (columns[c].right ? room : 0), "", paints ? colour : "");
        add_cut(text, cell, width, c == NAME);
        tri_text_add(text, "%s", paints ? "\033[0m" : "");
        owed = GAP + (columns[c].right ? 0 : room);
    }
    tri_text_add(text, "\n");
}

tr_status tri_runs_table(const tri_run_row *rows, size_t num, const tri_runs_look *look,
                         tri_text *text, tr_error *err)
{
    size_t shown = look->most > 0 && num > (size_t)look->most ? (size_t)look->most : num;
    runs_grid g = {.num = shown, .cells = calloc((shown + 1) * NUM_COLUMNS, sizeof(char *))};
    if (!g.cells)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
    tr_status status = fill(&g, rows, look, err);
    if (status == TR_OK) {
        fit(&g, look->width);
        for (size_t r = 0; r <= shown; r++)
            add_line(&g, r,
                     !look->colour ? ""
                     : r == 0      ? "\033[1m"
                                   : colour_of(rows[r - 1].state),
                     text);
        if (shown < num)
            tri_text_add(text, "... and %zu more\n", num - shown);
        if (text->failed)
            status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
    }
    for (size_t i = 0; i < (shown + 1) * NUM_COLUMNS; i++)
        free(g.cells[i]);
    free(g.cells);
    return status;
}

/* ---- JSON ---- */

void tri_runs_doc(json_t *o, const tri_run_row *row)
{
    const tri_run_summary *m = &row->metrics;
    tri_doc_text(o, "run", row->dir);
    tri_doc_text(o, "state", tri_run_state_name(row->state));
    tri_doc_count_from(o, "step", m->step, 0);
    tri_doc_count_from(o, "total", row->total, 1);
    tri_doc_number(o, "left_s", row->left_s);
    tri_doc_number(o, "loss", m->loss);
    tri_doc_number(o, "eval_loss", m->eval_loss);
    tri_doc_number(o, "best_eval_loss", m->best_eval_loss);
    tri_doc_count_from(o, "best_eval_step", m->best_eval_step, 1);
    tri_doc_count_from(o, "tokens", m->tokens, 0);
    tri_doc_number(o, "tokens_per_s", m->tokens_per_s);
    tri_doc_count_from(o, "dp", row->dp, 1);
    tri_doc_count_from(o, "cp", row->cp, 1);
    tri_doc_count_from(o, "tp", row->tp, 1);
    tri_doc_count_from(o, "pp", row->pp, 1);
    tri_doc_number(o, "began", row->began > 0 ? row->began : NAN);
    tri_doc_number(o, "updated", row->updated > 0 ? row->updated : NAN);
    tri_doc_text(o, "host", *row->story.host ? row->story.host : NULL);
    tri_doc_count_from(o, "pid", row->story.pid, 1);
    tri_doc_count_from(o, "exit_code", row->story.exit_code, 0);
    tri_doc_count(o, "disk_bytes", (int64_t)row->disk_bytes);
    tri_doc_text(o, "why", *row->why ? row->why : NULL);
    json_t *curve = tri_doc_list(o, "curve");
    for (int64_t i = 0; i < TRI_SUMMARY_BINS && i * m->width < m->step; i++)
        json_array_append_new(curve, m->count[i] > 0 ? json_real(m->sum[i] / (double)m->count[i])
                                                     : json_null());
    tri_doc_count(o, "version", 1);
}

tr_status tri_runs_json(const tri_run_row *row, tri_text *text, tr_error *err)
{
    json_t *o = tri_doc_begin();
    tri_runs_doc(o, row);
    return tri_doc_add(o, text, err);
}
