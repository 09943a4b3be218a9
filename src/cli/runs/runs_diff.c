/* trireme runs diff A B. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/runs/run_find.h"
#include "cli/runs/runs_verbs.h"
#include "config/settings_table.h"
#include "train/log/run_curve.h"

enum { MOST_POINTS = 12, VALUE = 64 };

/* Two losses at the same place. */
typedef struct loss_pair {
    int64_t at; /* step or tokens */
    int64_t step[2];
    double loss[2];
} loss_pair;

typedef struct loss_table {
    loss_pair pairs[MOST_POINTS];
    int num;
} loss_table;

typedef struct setting_pair {
    const char *name;
    char value[2][VALUE];
} setting_pair;

typedef struct runs_difference {
    char *dir[2];
    tri_run_curve curve[2];
    setting_pair *settings;
    int num_settings;
    char no_settings[400]; /* why they cannot be compared, or "" */
    loss_table steps, tokens, held_out;
    double tenth[2]; /* mean over the last tenth of the steps that both have */
    int64_t tenth_from, tenth_to;
    double best[2]; /* held-out; NAN: there is none */
    int64_t best_step[2];
} runs_difference;

/* ---- settings ---- */

static void value_of(const tr_settings *settings, const tri_setting *row, char out[VALUE])
{
    switch (row->type) {
    case TRI_SETTING_BOOL:
        snprintf(out, VALUE, "%s", tr_settings_bool(settings, row->name) ? "true" : "false");
        break;
    case TRI_SETTING_INT:
        snprintf(out, VALUE, "%" PRId64, tr_settings_int(settings, row->name));
        break;
    case TRI_SETTING_FLOAT:
        snprintf(out, VALUE, "%.9g", tr_settings_float(settings, row->name));
        break;
    case TRI_SETTING_STRING:
    case TRI_SETTING_CHOICE:
        snprintf(out, VALUE, "%s", tr_settings_string(settings, row->name));
        break;
    }
}

static bool differ(tr_settings *const settings[2], const tri_setting *row)
{
    if (row->type == TRI_SETTING_STRING || row->type == TRI_SETTING_CHOICE)
        return strcmp(tr_settings_string(settings[0], row->name),
                      tr_settings_string(settings[1], row->name)) != 0;
    if (row->type == TRI_SETTING_FLOAT)
        return tr_settings_float(settings[0], row->name) !=
               tr_settings_float(settings[1], row->name);
    return tr_settings_bool(settings[0], row->name) != tr_settings_bool(settings[1], row->name) ||
           tr_settings_int(settings[0], row->name) != tr_settings_int(settings[1], row->name);
}

static tr_status load_settings(const char *dir, tr_settings **settings, tr_error *why)
{
    char *path = tri_path_join(dir, "config.yaml");
    tr_status status = path ? tr_settings_create(settings, why)
                            : tri_fail(why, TR_ERROR_RUNTIME, "no memory for a path");
    if (status == TR_OK)
        status = tri_settings_look(*settings, path, why);
    free(path);
    return status;
}

/* A run that an older program wrote may have settings that are no more: losses can be compared. */
static tr_status compare_settings(runs_difference *d, tr_error *err)
{
    tr_settings *settings[2] = {NULL, NULL};
    tr_error why = {0};
    d->settings = calloc(TRI_MAX_SETTINGS, sizeof *d->settings);
    tr_status status = d->settings ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory");
    for (int i = 0; i < 2 && status == TR_OK && !*d->no_settings; i++)
        if (load_settings(d->dir[i], &settings[i], &why) != TR_OK) {
            snprintf(d->no_settings, sizeof d->no_settings, "%s", why.message);
            if (why.status == TR_ERROR_RUNTIME)
                status = tri_fail(err, TR_ERROR_RUNTIME, "%s", why.message);
        }
    bool both = status == TR_OK && !*d->no_settings;
    for (int i = 0; both && i < tri_settings_table(settings[0])->num; i++) {
        const tri_setting *row = tri_settings_table(settings[0])->row[i];
        if (strcmp(row->name, "run.dir") == 0 || !differ(settings, row))
            continue; /* the directory is what the runs are called by */
        setting_pair *pair = &d->settings[d->num_settings++];
        pair->name = row->name;
        for (int k = 0; k < 2; k++)
            value_of(settings[k], row, pair->value[k]);
    }
    tr_settings_destroy(settings[0]);
    tr_settings_destroy(settings[1]);
    return status;
}

/* ---- losses ---- */

/* The first line of at least so many steps, or tokens; NULL behind the last. */
static const tri_metrics_line *line_at(const tri_run_curve *c, int64_t at, bool tokens)
{
    size_t low = 0, high = c->num;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int64_t value = tokens ? c->lines[middle].tokens : c->lines[middle].step;
        if (value < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->num ? &c->lines[low] : NULL;
}

static void add_pair(loss_table *t, int64_t at, const tri_metrics_line *a,
                     const tri_metrics_line *b, bool held_out)
{
    if (t->num == MOST_POINTS) /* the later ones say more */
        memmove(t->pairs, t->pairs + 1, (size_t)--t->num * sizeof *t->pairs);
    t->pairs[t->num++] =
        (loss_pair){.at = at,
                    .step = {a->step, b->step},
                    .loss = {held_out ? a->eval_loss : a->loss, held_out ? b->eval_loss : b->loss}};
}

/* At 1, 2, 5, 10 ... and at the last place that both reach. */
static void compare_at(runs_difference *d, loss_table *t, bool tokens)
{
    const tri_run_curve *a = &d->curve[0], *b = &d->curve[1];
    const tri_metrics_line *ends[2] = {&a->lines[a->num - 1], &b->lines[b->num - 1]};
    int64_t last = tokens ? ends[0]->tokens : ends[0]->step;
    int64_t other = tokens ? ends[1]->tokens : ends[1]->step;
    last = other < last ? other : last;
    static const int factor[] = {1, 2, 5};
    for (int64_t power = 1; power <= last && power < INT64_MAX / 100; power *= 10)
        for (int k = 0; k < 3; k++) {
            int64_t at = power * factor[k];
            const tri_metrics_line *x = line_at(a, at, tokens), *y = line_at(b, at, tokens);
            if (at < last && x && y && (tokens || (x->step == at && y->step == at)) &&
                (!tokens || (at >= a->lines[0].tokens && at >= b->lines[0].tokens)))
                add_pair(t, at, x, y, false);
        }
    const tri_metrics_line *x = line_at(a, last, tokens), *y = line_at(b, last, tokens);
    if (last > 0 && x && y && (tokens || x->step == y->step))
        add_pair(t, last, x, y, false);
}

static void compare_held_out(runs_difference *d)
{
    for (int k = 0; k < 2; k++) {
        d->best[k] = NAN;
        for (size_t i = 0; i < d->curve[k].num; i++) {
            const tri_metrics_line *line = &d->curve[k].lines[i];
            if (isnan(line->eval_loss) || d->best[k] <= line->eval_loss)
                continue;
            d->best[k] = line->eval_loss;
            d->best_step[k] = line->step;
        }
    }
    for (size_t i = 0; i < d->curve[0].num; i++) {
        const tri_metrics_line *a = &d->curve[0].lines[i],
                               *b = line_at(&d->curve[1], a->step, false);
        if (!isnan(a->eval_loss) && b && b->step == a->step && !isnan(b->eval_loss))
            add_pair(&d->held_out, a->step, a, b, true);
    }
}

/* Single losses are noisy. */
static void compare_ends(runs_difference *d)
{
    const tri_run_curve *c = d->curve;
    int64_t last = c[0].lines[c[0].num - 1].step, other = c[1].lines[c[1].num - 1].step;
    last = other < last ? other : last;
    d->tenth_to = last;
    d->tenth_from = last - last / 10 + 1;
    for (int k = 0; k < 2; k++) {
        double sum = 0, num = 0;
        for (size_t i = 0; i < c[k].num; i++)
            if (c[k].lines[i].step >= d->tenth_from && c[k].lines[i].step <= last &&
                isfinite(c[k].lines[i].loss)) {
                sum += c[k].lines[i].loss;
                num++;
            }
        d->tenth[k] = num > 0 ? sum / num : NAN;
    }
}

/* ---- printing ---- */

static void print_values(const double value[2])
{
    if (isnan(value[0]) || isnan(value[1]))
        printf("%12.5f %12.5f\n", value[0], value[1]);
    else
        printf("%12.5f %12.5f %+12.5f\n", value[0], value[1], value[1] - value[0]);
}

static void print_table(const char *title, const loss_table *t, bool tokens)
{
    printf("\n%-36s %12s %12s %12s\n", title, "A", "B", "B - A");
    for (int i = 0; i < t->num; i++) {
        const loss_pair *p = &t->pairs[i];
        char text[64], count[32], steps[48] = "";
        tri_text_grouped(p->at, count);
        if (tokens)
            snprintf(steps, sizeof steps, " (steps %" PRId64 ", %" PRId64 ")", p->step[0],
                     p->step[1]);
        snprintf(text, sizeof text, "%s%s%s", tokens ? "" : "step ", count, steps);
        printf("  %-34s ", text);
        print_values(p->loss);
    }
}

static bool same_steps(const loss_table *t)
{
    for (int i = 0; i < t->num; i++)
        if (t->pairs[i].step[0] != t->pairs[i].step[1])
            return false;
    return true;
}

static void print_settings(const runs_difference *d)
{
    int width = 12;
    for (int i = 0; i < d->num_settings; i++) {
        int length = (int)strlen(d->settings[i].value[0]);
        width = length > width ? length : width;
    }
    if (*d->no_settings)
        tri_text_print(stdout, "\nsettings cannot be compared: %s\n", d->no_settings);
    else if (d->num_settings == 0)
        printf("\nno settings differ (but for run.dir)\n");
    else
        printf("\n%-36s %-*s %s\n", "settings that differ", width, "A", "B");
    for (int i = 0; i < d->num_settings; i++) {
        const setting_pair *p = &d->settings[i];
        tri_text_print(stdout, "  %-34s %-*s %s\n", p->name, width,
                       *p->value[0] ? p->value[0] : "\"\"", *p->value[1] ? p->value[1] : "\"\"");
    }
}

static void print_difference(const runs_difference *d)
{
    for (int k = 0; k < 2; k++)
        tri_text_print(stdout, "%c  %s\n", 'A' + k, d->dir[k]);
    print_settings(d);
    print_table("loss at equal steps", &d->steps, false);
    char text[64];
    snprintf(text, sizeof text, "mean of %" PRId64 " to %" PRId64, d->tenth_from, d->tenth_to);
    if (d->tenth_from < d->tenth_to) {
        printf("  %-34s ", text);
        print_values(d->tenth);
    }
    if (d->tokens.num > 0 && same_steps(&d->tokens))
        printf("\nloss at equal tokens: the same, since both have as many tokens in a step\n");
    else if (d->tokens.num > 0)
        print_table("loss at equal tokens", &d->tokens, true);
    if (isnan(d->best[0]) && isnan(d->best[1])) {
        printf("\nheld-out losses: none\n");
        return;
    }
    print_table("held-out loss", &d->held_out, false);
    for (int k = 0; k < 2; k++)
        if (!isnan(d->best[k]))
            printf("  best of %c %*s %12.5f (step %" PRId64 ")\n", 'A' + k, k ? 37 : 24, "",
                   d->best[k], d->best_step[k]);
}

/* ---- JSON ---- */

static void add_table(json_t *root, const char *key, const loss_table *t, const char *at)
{
    json_t *list = tri_doc_list(root, key);
    for (int i = 0; i < t->num; i++) {
        const loss_pair *p = &t->pairs[i];
        json_t *o = tri_doc_item(list);
        tri_doc_count(o, at, p->at);
        tri_doc_number(o, "a", p->loss[0]);
        tri_doc_number(o, "b", p->loss[1]);
        tri_doc_count(o, "step_a", p->step[0]);
        tri_doc_count(o, "step_b", p->step[1]);
    }
}

static json_t *doc_of(const runs_difference *d)
{
    json_t *root = tri_doc_begin();
    tri_doc_text(root, "a", d->dir[0]);
    tri_doc_text(root, "b", d->dir[1]);
    if (*d->no_settings)
        tri_doc_null(root, "settings");
    json_t *settings = *d->no_settings ? NULL : tri_doc_list(root, "settings");
    for (int i = 0; settings && i < d->num_settings; i++) {
        json_t *o = tri_doc_item(settings);
        tri_doc_text(o, "name", d->settings[i].name);
        tri_doc_text(o, "a", d->settings[i].value[0]);
        tri_doc_text(o, "b", d->settings[i].value[1]);
    }
    add_table(root, "steps", &d->steps, "step");
    add_table(root, "tokens", &d->tokens, "tokens");
    add_table(root, "held_out", &d->held_out, "step");
    json_t *best = tri_doc_object(root, "best_held_out");
    tri_doc_number(best, "a", d->best[0]);
    tri_doc_number(best, "b", d->best[1]);
    tri_doc_count(root, "version", 1);
    return root;
}

/* By the names of two runs. */
static tr_status compare(runs_difference *d, const char *const names[2], tr_error *err)
{
    for (int k = 0; k < 2; k++)
        TRI_TRY(tri_run_dir_of(names[k], &d->dir[k], err));
    for (int k = 0; k < 2; k++)
        TRI_TRY(tri_run_curve_read(&d->curve[k], d->dir[k], err));
    TRI_TRY(compare_settings(d, err));
    compare_at(d, &d->steps, false);
    compare_at(d, &d->tokens, true);
    compare_ends(d);
    compare_held_out(d);
    return TR_OK;
}

static void forget(runs_difference *d)
{
    for (int k = 0; k < 2; k++) {
        free(d->dir[k]);
        tri_run_curve_free(&d->curve[k]);
    }
    free(d->settings);
}

int tri_runs_diff(const char *a, const char *b, bool json)
{
    runs_difference d = {.num_settings = 0};
    tr_error err = {0};
    tr_status status = compare(&d, (const char *const[]){a, b}, &err);
    if (status == TR_OK && json)
        status = tri_doc_print(doc_of(&d), stdout, &err);
    else if (status == TR_OK)
        print_difference(&d);
    forget(&d);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}

tr_status tri_runs_diff_doc(const char *a, const char *b, tri_text *text, tr_error *err)
{
    runs_difference d = {.num_settings = 0};
    tr_status status = compare(&d, (const char *const[]){a, b}, err);
    if (status == TR_OK)
        status = tri_doc_add(doc_of(&d), text, err);
    forget(&d);
    return status;
}
