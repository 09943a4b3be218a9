/* Fits of a measured profile: the terms of each kind of work, and what a step takes beyond its
 * instructions. Errors are relative, so that small work counts as much as large. */
#include <math.h>
#include <string.h>

#include "sim/measured/measured_parts.h"

enum { TERMS = TRI_MEASURED_TERMS };

double tri_measured_fit_of(const tri_measured_row *row, double flops, double bytes)
{
    return row->term[0] * flops + row->term[1] * bytes + row->term[2];
}

/* ---- least squares ---- */

typedef struct equations {
    double matrix[TERMS][TERMS], right[TERMS];
} equations;

static void add_equation(equations *e, const double x[TERMS], double y)
{
    for (int i = 0; i < TERMS; i++) {
        for (int j = 0; j < TERMS; j++)
            e->matrix[i][j] += x[i] * x[j];
        e->right[i] += x[i] * y;
    }
}

/* By elimination, of the terms in a set; the others are 0. False: they are not independent. */
static bool solve(const equations *all, unsigned set, double x[TERMS])
{
    double m[TERMS][TERMS + 1];
    int which[TERMS], n = 0;
    for (int i = 0; i < TERMS; i++)
        if (set >> i & 1)
            which[n++] = i;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            m[i][j] = all->matrix[which[i]][which[j]];
        m[i][n] = all->right[which[i]];
    }
    for (int p = 0; p < n; p++) {
        if (!(m[p][p] > 1e-12 * all->matrix[which[p]][which[p]]))
            return false;
        for (int i = 0; i < n; i++) {
            double factor = i == p ? 0 : m[i][p] / m[p][p];
            for (int j = p; j <= n; j++)
                m[i][j] -= factor * m[p][j];
        }
    }
    memset(x, 0, TERMS * sizeof *x);
    for (int i = 0; i < n; i++)
        x[which[i]] = m[i][n] / m[i][i];
    return true;
}

/* ---- rows ---- */

static int num_terms(unsigned set)
{
    return (int)((set & 1) + (set >> 1 & 1) + (set >> 2 & 1));
}

static double mean_error(const tri_measured_row *row, const double term[TERMS])
{
    double sum = 0;
    for (size_t i = 0; i < row->num; i++) {
        const tri_work_sample *s = &row->samples[i];
        double off = (term[0] * s->flops + term[1] * s->bytes + term[2] - s->seconds) / s->seconds;
        sum += off * off;
    }
    return sum / (double)row->num;
}

/* Terms below 0 make no sense, so sets are tried; with few samples, few terms. A term more has to
 * be worth it. One sample alone goes by what bounds it. */
static void fit_row(const tri_measured *profile, tri_measured_row *row)
{
    const double worth = 1e-5; /* of the mean squared error */
    equations e = {0};
    double best = INFINITY;
    for (size_t i = 0; i < row->num; i++) {
        const tri_work_sample *s = &row->samples[i];
        add_equation(
            &e, (double[TERMS]){s->flops / s->seconds, s->bytes / s->seconds, 1 / s->seconds}, 1);
    }
    for (unsigned set = 1; set < 1U << TERMS; set++) {
        double term[TERMS];
        if ((size_t)num_terms(set) > row->num || !solve(&e, set, term))
            continue;
        double score = mean_error(row, term) + worth * num_terms(set);
        const tri_work_sample *s = &row->samples[0];
        bool bound = tri_measured_roof(profile, row->kind, s->flops, 0) >
                     tri_measured_roof(profile, row->kind, 0, s->bytes);
        if (row->num == 1)
            score = set == (bound && s->flops > 0 ? 1U : 2U) ? 0 : set == 4 ? 1 : 2;
        bool fits = term[0] >= 0 && term[1] >= 0 && term[2] >= 0;
        if (!fits || score >= best)
            continue;
        best = score;
        memcpy(row->term, term, sizeof term);
    }
    for (size_t i = 0; i < row->num; i++) {
        tri_work_sample *s = &row->samples[i];
        s->off = log(s->seconds / tri_measured_fit_of(row, s->flops, s->bytes));
    }
}

/* How far work usually is from the rates of large products and copies. */
static void find_mean_off(const tri_measured *profile, tri_measured_table *table)
{
    double sum = 0, num = 0;
    for (size_t r = 0; r < table->num; r++)
        for (size_t i = 0; i < table->rows[r].num; i++) {
            const tri_work_sample *s = &table->rows[r].samples[i];
            double roof = tri_measured_roof(profile, table->rows[r].kind, s->flops, s->bytes);
            if (!(roof > 0))
                continue;
            sum += log(s->seconds / roof);
            num++;
        }
    table->mean_off = num > 0 ? exp(sum / num) : 1;
}

/* ---- steps ---- */

/* What is left of steps: a constant, and so much for each launch. On the host nothing takes less
 * than nothing; a device runs a recorded step faster than instructions one by one. */
static void fit_steps(const tri_measured *profile, tri_measured_table *table)
{
    bool host = strcmp(profile->kind, "cpu") == 0;
    equations e = {0};
    double x[TERMS] = {0}, num = 0;
    for (size_t i = 0; i < table->num_steps; i++) {
        const tri_measured_step *s = &table->steps[i];
        if (!s->seen)
            continue;
        double rest = (s->seconds - s->instr_seconds) / s->seconds;
        add_equation(&e, (double[TERMS]){1 / s->seconds, s->launches / s->seconds, 0}, rest);
        num++;
    }
    table->step_s = table->launch_s = 0;
    bool both = num >= 2 && solve(&e, 3, x) && x[0] >= 0 && (!host || x[1] >= 0);
    if (!both && num >= 1 && !(solve(&e, 2, x) && (!host || x[1] >= 0)) &&
        !(solve(&e, 1, x) && x[0] >= 0))
        return;
    if (num >= 1) {
        table->step_s = x[0];
        table->launch_s = x[1];
    }
}

void tri_measured_settle(tri_measured *profile)
{
    for (int t = 0; t < profile->num_tables; t++) {
        tri_measured_table *table = &profile->tables[t];
        for (size_t r = 0; r < table->num; r++)
            fit_row(profile, &table->rows[r]);
        find_mean_off(profile, table);
        fit_steps(profile, table);
        for (size_t i = 0; i < table->num_steps; i++) {
            tri_measured_step *s = &table->steps[i];
            if (s->seen)
                s->predicted = s->instr_seconds + s->launches * table->launch_s + table->step_s;
        }
    }
}
