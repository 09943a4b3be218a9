#include "sim/measured/measured.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "sim/measured/measured_parts.h"

void tri_measured_table_fini(tri_measured_table *table)
{
    for (size_t r = 0; r < table->num; r++)
        free(table->rows[r].samples);
    free(table->rows);
    free(table->steps);
    *table = (tri_measured_table){0};
}

void tri_measured_fini(tri_measured *profile)
{
    for (int t = 0; t < profile->num_tables; t++)
        tri_measured_table_fini(&profile->tables[t]);
    free(profile->messages);
    *profile = (tri_measured){0};
}

const tri_measured_table *tri_measured_find(const tri_measured *profile, int ranks, int threads)
{
    for (int t = 0; t < profile->num_tables; t++)
        if (profile->tables[t].ranks == ranks && profile->tables[t].threads == threads)
            return &profile->tables[t];
    return NULL;
}

tri_measured_table *tri_measured_table_of(tri_measured *profile, int ranks, int threads)
{
    const tri_measured_table *table = tri_measured_find(profile, ranks, threads);
    if (table)
        return &profile->tables[table - profile->tables];
    if (profile->num_tables == TRI_MEASURED_TABLES)
        return NULL;
    tri_measured_table *made = &profile->tables[profile->num_tables++];
    *made = (tri_measured_table){.ranks = ranks, .threads = threads};
    return made;
}

/* ---- samples ---- */

static tri_measured_row *find_row(const tri_measured_table *table, tri_op op, const char *kind)
{
    for (size_t r = 0; r < table->num; r++)
        if (table->rows[r].op == op && strcmp(table->rows[r].kind, kind) == 0)
            return &table->rows[r];
    return NULL;
}

static tri_measured_row *row_for(tri_measured_table *table, const tri_work *work)
{
    tri_measured_row *row = find_row(table, work->op, work->kind);
    if (row)
        return row;
    tri_measured_row *rows = tri_array_grow(table->rows, table->num, &table->capacity, sizeof *row);
    if (!rows)
        return NULL;
    table->rows = rows;
    row = &rows[table->num++];
    *row = (tri_measured_row){.op = work->op};
    memcpy(row->kind, work->kind, sizeof row->kind);
    return row;
}

static bool same_sizes(const tri_work_sample *sample, const tri_work *work)
{
    for (int k = 0; k < TRI_WORK_SIZES; k++)
        if (sample->size[k] != work->size[k])
            return false;
    return sample->flops == work->flops && sample->bytes == work->bytes;
}

static tri_work_sample *find_sample(const tri_measured_row *row, const tri_work *work)
{
    for (size_t i = 0; i < row->num; i++)
        if (same_sizes(&row->samples[i], work))
            return &row->samples[i];
    return NULL;
}

bool tri_measured_add(tri_measured_table *table, const tri_work *work, double seconds)
{
    tri_measured_row *row = row_for(table, work);
    if (!row)
        return false;
    seconds = fmax(seconds, 1e-9); /* a clock may not see it at all */
    tri_work_sample *s = find_sample(row, work);
    if (s) {
        s->seconds = (s->seconds * s->times + seconds) / (s->times + 1);
        s->times++;
        return true;
    }
    tri_work_sample *samples =
        tri_array_grow(row->samples, row->num, &row->capacity, sizeof *samples);
    if (!samples)
        return false;
    row->samples = samples;
    s = &samples[row->num++];
    *s = (tri_work_sample){
        .flops = work->flops, .bytes = work->bytes, .seconds = seconds, .times = 1};
    memcpy(s->size, work->size, sizeof s->size);
    return true;
}

static bool merge_sample(tri_measured_table *table, const tri_measured_row *row,
                         const tri_work_sample *from)
{
    const double far = 1.08;
    tri_work work = {.op = row->op, .flops = from->flops, .bytes = from->bytes};
    memcpy(work.kind, row->kind, sizeof work.kind);
    memcpy(work.size, from->size, sizeof work.size);
    tri_measured_row *own = row_for(table, &work);
    tri_work_sample *s = own ? find_sample(own, &work) : NULL;
    if (!s)
        return own && tri_measured_add(table, &work, from->seconds);
    if (s->seconds > far * from->seconds) {
        s->seconds = from->seconds;
        s->times = 1;
    } else if (from->seconds <= far * s->seconds) {
        s->seconds = (s->seconds * s->times + from->seconds) / (s->times + 1);
        s->times++;
    }
    return true;
}

bool tri_measured_merge(tri_measured_table *table, const tri_measured_table *other)
{
    for (size_t r = 0; r < other->num; r++)
        for (size_t i = 0; i < other->rows[r].num; i++)
            if (!merge_sample(table, &other->rows[r], &other->rows[r].samples[i]))
                return false;
    return true;
}

bool tri_measured_add_step(tri_measured_table *table, const tri_measured_step *step)
{
    tri_measured_step *steps =
        tri_array_grow(table->steps, table->num_steps, &table->steps_capacity, sizeof *steps);
    if (!steps)
        return false;
    table->steps = steps;
    steps[table->num_steps++] = *step;
    return true;
}

bool tri_measured_add_message(tri_measured *profile, const tri_measured_message *message)
{
    tri_measured_message *messages = tri_array_grow(profile->messages, profile->num_messages,
                                                    &profile->messages_capacity, sizeof *messages);
    if (!messages)
        return false;
    profile->messages = messages;
    messages[profile->num_messages++] = *message;
    return true;
}

/* ---- seconds ---- */

/* Squared distance in powers of e. Sizes that only one of them has are of no use. */
static double distance2(const double *a, const double *b)
{
    double sum = 0;
    for (int k = 0; k < TRI_WORK_SIZES; k++)
        if (a[k] > 0 && b[k] > 0)
            sum += log(a[k] / b[k]) * log(a[k] / b[k]);
    return sum;
}

/* What the row's samples say beyond its fit. The fit itself has a weight, as of a sample at a
 * factor of eight. */
static double blend(const tri_measured_row *row, const tri_work *work, bool *exact)
{
    const double far = log(8);
    double weights = 1 / (far * far), sum = 0;
    *exact = false;
    for (size_t i = 0; i < row->num; i++) {
        double d = distance2(row->samples[i].size, work->size);
        if (d < 1e-12) {
            *exact = true;
            return row->samples[i].off;
        }
        weights += 1 / d;
        sum += row->samples[i].off / d;
    }
    return sum / weights;
}

static double by_row(const tri_measured_row *row, const tri_work *work, bool *exact)
{
    double off = blend(row, work, exact);
    return tri_measured_fit_of(row, work->flops, work->bytes) * exp(off);
}

/* Of the rows of an operator the one with the nearest sample. */
static const tri_measured_row *nearest_row(const tri_measured_table *table, const tri_work *work)
{
    const tri_measured_row *best = NULL;
    double least = INFINITY;
    for (size_t r = 0; r < table->num; r++) {
        const tri_measured_row *row = &table->rows[r];
        for (size_t i = 0; row->op == work->op && i < row->num; i++) {
            double d = distance2(row->samples[i].size, work->size);
            if (d < least) {
                least = d;
                best = row;
            }
        }
    }
    return best;
}

/* Seconds by the rates of large products and copies. */
double tri_measured_roof(const tri_measured *profile, const char *kind, double flops, double bytes)
{
    bool narrow = strncmp(kind, "f8", 2) == 0, half = !narrow && strncmp(kind, "f32", 3) != 0;
    double rate = profile->dense[narrow ? TRI_RATE_FP8 : half ? TRI_RATE_16 : TRI_RATE_F32];
    for (int r = 0; rate <= 0 && r < TRI_NUM_RATES; r++)
        rate = profile->dense[r];
    double memory = profile->memory_bytes_per_s;
    return fmax(rate > 0 ? flops / rate : 0, memory > 0 ? bytes / memory : 0);
}

double tri_measured_work(const tri_measured *profile, const tri_measured_table *table,
                         const tri_work *work, tri_found *found)
{
    bool exact = false;
    const tri_measured_row *row = find_row(table, work->op, work->kind);
    tri_found how = TRI_FOUND_BETWEEN;
    if (!row) {
        row = nearest_row(table, work);
        how = row ? TRI_FOUND_OTHER : TRI_FOUND_RATES;
    }
    double seconds =
        row ? by_row(row, work, &exact)
            : tri_measured_roof(profile, work->kind, work->flops, work->bytes) * table->mean_off;
    if (found)
        *found = how == TRI_FOUND_BETWEEN && exact ? TRI_FOUND_SAMPLE : how;
    return seconds;
}

double tri_measured_launch(const tri_measured_table *table, double seconds, double launches)
{
    return fmax(seconds + launches * table->launch_s, seconds / 4);
}

/* ---- messages ---- */

/* Between the two samples around it, in logarithms; beyond the last by its rate. */
static double between(const tri_measured *profile, tri_coll coll, int ranks, double bytes)
{
    const tri_measured_message *below = NULL, *above = NULL;
    for (size_t i = 0; i < profile->num_messages; i++) {
        const tri_measured_message *m = &profile->messages[i];
        if (m->coll != coll || m->ranks != ranks)
            continue;
        if (m->bytes <= bytes && (!below || m->bytes > below->bytes))
            below = m;
        if (m->bytes >= bytes && (!above || m->bytes < above->bytes))
            above = m;
    }
    if (!below)
        return above ? above->seconds : -1;
    if (!above)
        return below->seconds * bytes / below->bytes;
    if (above->bytes <= below->bytes)
        return below->seconds;
    double share = log(bytes / below->bytes) / log(above->bytes / below->bytes);
    return exp((1 - share) * log(below->seconds) + share * log(above->seconds));
}

/* The measured number of ranks that is nearest. */
static int nearest_ranks(const tri_measured *profile, tri_coll coll, int ranks)
{
    int best = 0;
    for (size_t i = 0; i < profile->num_messages; i++) {
        int its = profile->messages[i].ranks;
        if (profile->messages[i].coll == coll && (!best || abs(its - ranks) < abs(best - ranks)))
            best = its;
    }
    return best;
}

double tri_measured_message_s(const tri_measured *profile, tri_coll coll, int ranks, double bytes,
                              bool *guessed)
{
    int measured = nearest_ranks(profile, coll, ranks);
    *guessed = measured != ranks;
    if (!measured && coll != TRI_COLL_ALL_GATHER) { /* moves as much, and adds nothing up */
        double seconds =
            tri_measured_message_s(profile, TRI_COLL_ALL_GATHER, ranks, bytes, guessed);
        *guessed = true;
        return seconds;
    }
    return measured ? between(profile, coll, measured, fmax(bytes, 1)) : -1;
}

size_t tri_measured_residual(const tri_measured_table *table, double *mean, double *worst)
{
    size_t unseen = 0, num = 0;
    for (size_t i = 0; i < table->num_steps; i++)
        unseen += !table->steps[i].seen;
    *mean = *worst = 0;
    for (size_t i = 0; i < table->num_steps; i++) {
        const tri_measured_step *step = &table->steps[i];
        if ((unseen && step->seen) || step->seconds <= 0)
            continue;
        double off = fabs(step->predicted / step->seconds - 1);
        *mean += off;
        *worst = fmax(*worst, off);
        num++;
    }
    *mean = num ? *mean / (double)num : 0;
    return num;
}
