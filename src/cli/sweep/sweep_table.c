/* What came of a sweep, the best run first. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/sweep/sweep.h"
#include "cli/text.h"

/* ---- the order ---- */

typedef struct table_place {
    int run, kind; /* of what happened to it */
    int64_t step;
    double score;
} table_place;

enum { DONE, DROPPED, OPEN, FAILED };

static int kind_of(const tri_sweep_run *run, const tri_sweep_result *r)
{
    return run->failed ? FAILED : r->done ? DONE : run->dropped_at ? DROPPED : OPEN;
}

/* Done ones by their loss. Those that were dropped have had fewer steps: the later, the better. */
static int compare(const void *left, const void *right)
{
    const table_place *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->kind != DONE && a->step != b->step)
        return a->step > b->step ? -1 : 1;
    if (a->score != b->score)
        return a->score < b->score ? -1 : 1;
    return a->run < b->run ? -1 : 1;
}

/* The best held-out loss, or the last one. */
static double score_of(const tri_sweep_result *r)
{
    double own = r->best_step > 0 ? r->best_loss : r->loss;
    return isnan(own) ? INFINITY : own;
}

tr_status tri_sweep_order(const tri_sweep *s, tri_sweep_result *results, int **order, tr_error *err)
{
    table_place *places = calloc((size_t)s->num_runs + 1, sizeof *places);
    *order = calloc((size_t)s->num_runs + 1, sizeof **order);
    tr_status status =
        places && *order ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a table");
    for (int i = 0; i < s->num_runs && status == TR_OK; i++) {
        const tri_sweep_run *run = &s->runs[i];
        status = tri_sweep_look(run, &results[i], err);
        places[i] = (table_place){.run = i,
                                  .kind = kind_of(run, &results[i]),
                                  .step = run->dropped_at ? run->dropped_at : results[i].step,
                                  .score = score_of(&results[i])};
    }
    if (status == TR_OK)
        qsort(places, (size_t)s->num_runs, sizeof *places, compare);
    for (int i = 0; i < s->num_runs && status == TR_OK; i++)
        (*order)[i] = places[i].run;
    free(places);
    if (status != TR_OK) {
        free(*order);
        *order = NULL;
    }
    return status;
}

/* ---- cells ---- */

static const char *state_of(const tri_sweep_run *run, const tri_sweep_result *r)
{
    static const char *const names[] = {"done", "dropped", "open", "failed"};
    return names[kind_of(run, r)];
}

enum { NUM_PLAIN = 6, MOST_COLUMNS = TRI_SWEEP_MOST_KEYS + NUM_PLAIN, CELL = 128 };

static void plain_cells(const tri_sweep_run *run, const tri_sweep_result *r,
                        char cells[NUM_PLAIN][CELL])
{
    char rate[16];
    snprintf(cells[0], CELL, "%" PRId64, r->step);
    snprintf(cells[1], CELL, isnan(r->loss) ? "-" : "%.4f", r->loss);
    snprintf(cells[2], CELL, r->best_step == 0 ? "-" : "%.4f", r->best_loss);
    snprintf(cells[3], CELL, "%s",
             r->tokens_per_s > 0 ? tri_text_count(r->tokens_per_s, rate) : "-");
    char *blank = strchr(cells[3], ' '); /* so that a line can be cut at blanks */
    if (blank)
        memmove(blank, blank + 1, strlen(blank));
    snprintf(cells[4], CELL, "%s", state_of(run, r));
    snprintf(cells[5], CELL, "%s", run->failed ? run->why : "");
}

static void fill(const tri_sweep *s, int run, const tri_sweep_result *r,
                 char cells[MOST_COLUMNS + 1][CELL])
{
    static const char *const titles[] = {"STEP", "LOSS", "HELD-OUT", "TOK/S", "STATE", "WHY"};
    snprintf(cells[0], CELL, "%s", r ? s->runs[run].name : "RUN");
    for (int k = 0; k < s->num_keys; k++)
        snprintf(cells[1 + k], CELL, "%s", r ? s->runs[run].value[k] : s->keys[k].name);
    if (r)
        plain_cells(&s->runs[run], r, &cells[1 + s->num_keys]);
    else
        for (int i = 0; i < NUM_PLAIN; i++)
            snprintf(cells[1 + s->num_keys + i], CELL, "%s", titles[i]);
}

static void print_row(char cells[MOST_COLUMNS + 1][CELL], const int *width, int num, tri_text *text)
{
    for (int c = 0; c < num; c++) {
        bool last = c == num - 1, left = c == 0 || c >= num - 2;
        if (last && !cells[c][0])
            break;
        tri_text_add(text, left ? "%s%-*s" : "%s%*s", c ? "  " : "", last ? 0 : width[c], cells[c]);
    }
    while (text->length > 0 && text->chars[text->length - 1] == ' ')
        text->chars[--text->length] = 0;
    tri_text_add(text, "\n");
}

static void add_table(const tri_sweep *s, const tri_sweep_result *results, const int *order,
                      bool any_failed, tri_text *text)
{
    char cells[MOST_COLUMNS + 1][CELL];
    int width[MOST_COLUMNS + 1] = {0}, num = 1 + s->num_keys + NUM_PLAIN;
    for (int i = -1; i < s->num_runs; i++) {
        fill(s, i < 0 ? 0 : order[i], i < 0 ? NULL : &results[order[i]], cells);
        for (int c = 0; c < num; c++)
            width[c] = (int)strlen(cells[c]) > width[c] ? (int)strlen(cells[c]) : width[c];
    }
    for (int i = -1; i < s->num_runs; i++) {
        fill(s, i < 0 ? 0 : order[i], i < 0 ? NULL : &results[order[i]], cells);
        if (!any_failed)
            cells[num - 1][0] = 0;
        print_row(cells, width, num, text);
    }
}

/* ---- for programs ---- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static tr_status add_json(const tri_sweep *s, int run, const tri_sweep_result *r, tri_text *text,
                          tr_error *err)
{
    const tri_sweep_run *own = &s->runs[run];
    tri_json_begin();
    json_t *settings = json_object(), *object = json_object();
    for (int k = 0; k < s->num_keys; k++)
        json_object_set_new(settings, s->keys[k].name, json_string(own->value[k]));
    json_object_set_new(object, "run", json_string(own->dir));
    json_object_set_new(object, "settings", settings);
    json_object_set_new(object, "state", json_string(state_of(own, r)));
    json_object_set_new(object, "step", json_integer(r->step));
    json_object_set_new(object, "loss", number(r->loss));
    json_object_set_new(object, "best_eval_loss", number(r->best_loss));
    json_object_set_new(object, "best_eval_step",
                        r->best_step > 0 ? json_integer(r->best_step) : json_null());
    json_object_set_new(object, "tokens_per_s", number(r->tokens_per_s));
    json_object_set_new(object, "why", own->failed ? json_string(own->why) : json_null());
    char *line = tri_json_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    if (line)
        tri_text_add(text, "%s\n", line);
    free(line);
    return line ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a table");
}

tr_status tri_sweep_table(const tri_sweep *s, bool json, tri_text *text, int *num_failed,
                          tr_error *err)
{
    tri_sweep_result *results = calloc((size_t)s->num_runs + 1, sizeof *results);
    int *order = NULL;
    tr_status status = results ? tri_sweep_order(s, results, &order, err)
                               : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a table");
    *num_failed = 0;
    for (int i = 0; i < s->num_runs && status == TR_OK; i++)
        *num_failed += s->runs[i].failed;
    for (int i = 0; i < s->num_runs && status == TR_OK && json; i++)
        status = add_json(s, order[i], &results[order[i]], text, err);
    if (status == TR_OK && !json)
        add_table(s, results, order, *num_failed > 0, text);
    if (status == TR_OK && text->failed)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a table");
    free(results);
    free(order);
    return status;
}
