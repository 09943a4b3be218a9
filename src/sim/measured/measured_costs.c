#include "sim/measured/measured_costs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory to price the programs");
}

/* ---- instructions ---- */

static void note_missing(tri_measured_model *m, const tri_work *work, tri_found found,
                         double seconds)
{
    size_t listed = m->num_missing < TRI_MEASURED_MISSING ? m->num_missing : TRI_MEASURED_MISSING;
    for (size_t i = 0; i < listed; i++)
        if (m->missing[i].op == work->op && strcmp(m->missing[i].kind, work->kind) == 0) {
            m->missing[i].seconds += seconds;
            return;
        }
    if (m->num_missing++ >= TRI_MEASURED_MISSING)
        return;
    tri_measured_missing *missing = &m->missing[listed];
    *missing = (tri_measured_missing){.op = work->op, .found = found, .seconds = seconds};
    memcpy(missing->kind, work->kind, sizeof missing->kind);
}

static int by_seconds(const void *a, const void *b)
{
    const tri_measured_missing *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

/* A call of an instruction: the first of a step begins sums, the others add to them. */
static double price(tri_measured_model *m, const tri_measured_table *table,
                    const tri_program *program, uint32_t i, const tri_work_runs *runs, bool counted)
{
    double all = 0, times = runs->first + runs->rest;
    for (int rest = 0; rest < 2; rest++) {
        double share = rest ? runs->rest : runs->first;
        if (share <= 0)
            continue;
        tri_found found;
        tri_work work = tri_work_of(program, i, !rest);
        double seconds = tri_measured_work(m->profile, table, &work, &found);
        all += share * seconds;
        if (!counted)
            continue;
        m->num_found[found]++;
        m->found_s[found] += share * seconds;
        if (found >= TRI_FOUND_OTHER)
            note_missing(m, &work, found, share * seconds);
    }
    return times > 0 ? all / times : 0;
}

/* What being launched adds is shared by those that are launched together. */
static tr_status price_program(tri_measured_model *m, uint32_t p, tr_error *err)
{
    const tri_program *program = m->programs[p];
    tri_work_runs *runs = tri_work_count(program);
    m->busy_s[p] = calloc(program->num_instrs + 1, sizeof *m->busy_s[p]);
    m->alone_s[p] = calloc(program->num_instrs + 1, sizeof *m->alone_s[p]);
    bool failed = !runs || !m->busy_s[p] || !m->alone_s[p];
    uint32_t together = 0, left = 0;
    for (uint32_t i = 0; i < program->num_instrs && !failed; i++) {
        if (program->instrs[i].message != TRI_NONE)
            continue;
        if (left == 0)
            together = left = tri_work_launch(program, i, m->profile->together);
        left--;
        double busy = price(m, m->busy, program, i, &runs[i], true);
        double alone = m->alone ? price(m, m->alone, program, i, &runs[i], false) : busy;
        m->busy_s[p][i] = tri_measured_launch(m->busy, busy, 1.0 / together);
        m->alone_s[p][i] =
            tri_measured_launch(m->alone ? m->alone : m->busy, alone, 1.0 / together);
    }
    free(runs);
    return failed ? no_memory(err) : TR_OK;
}

/* Between one rank alone and as many as were measured together; more than there are cores for take
 * turns. */
static double in_company(const tri_measured_model *m, uint32_t p, uint32_t i)
{
    double crowd = m->crowd[p], alone = m->alone_s[p][i], busy = m->busy_s[p][i];
    double fit = m->busy->ranks, ranks = 1 + crowd * (m->ranks - 1);
    if (m->ranks <= fit)
        return crowd * busy + (1 - crowd) * alone;
    if (ranks >= fit)
        return busy * ranks / fit;
    return fit > 1 ? ((ranks - 1) * busy + (fit - ranks) * alone) / (fit - 1) : busy;
}

static double instr_cost(const void *context, const tri_program *program, uint32_t i)
{
    const tri_measured_model *m = context;
    uint32_t p = 0;
    while (p + 1 < m->num_programs && m->programs[p] != program)
        p++;
    tri_time_kind kind = tri_instr_time_kind(program, i);
    double faster = m->faster[kind == TRI_TIME_PRODUCTS || kind == TRI_TIME_ATTENTION ? 0 : 1];
    return in_company(m, p, i) / faster;
}

/* ---- messages ---- */

static tri_coll coll_of(tri_message_kind kind)
{
    switch (kind) {
    case TRI_MESSAGE_ALL_REDUCE:
        return TRI_COLL_ALL_REDUCE;
    case TRI_MESSAGE_ALL_GATHER:
        return TRI_COLL_ALL_GATHER;
    case TRI_MESSAGE_REDUCE_SCATTER:
        return TRI_COLL_REDUCE_SCATTER;
    case TRI_MESSAGE_ALL_TO_ALL:
        return TRI_COLL_ALL_TO_ALL;
    default:
        return TRI_COLL_BROADCAST;
    }
}

static double message_cost(const void *context, const tri_program *program,
                           const tri_message *message)
{
    const tri_measured_model *m = context;
    double bytes = (double)tri_message_bytes(message);
    if (tri_message_carries(message))
        return 2 * bytes / m->profile->memory_bytes_per_s / m->faster[2];
    if (m->profile->num_messages == 0)
        return m->wire.message(m->wire.context, program, message) / m->faster[2];
    bool guessed, between_two = tri_message_pairwise(message);
    int ranks = between_two ? 2 : (int)program->groups[message->group].size;
    if (ranks < 2)
        return 0;
    if (message->kind == TRI_MESSAGE_SHIFT)
        bytes = (double)tri_message_moved(message);
    if (message->kind == TRI_MESSAGE_ALL_TO_ALL)
        bytes /= ranks;
    double seconds =
        tri_measured_message_s(m->profile, coll_of(message->kind), ranks, bytes, &guessed);

    return seconds / m->faster[2];
}

static double copy_cost(const void *context, double bytes)
{
    const tri_measured_model *m = context;
    return 2 * bytes / m->profile->memory_bytes_per_s / m->faster[1];
}

/* ---- company ---- */

/* Seconds of both calls together. */
static double common(const tri_rank_timing *a, size_t i, const tri_rank_timing *b, size_t j)
{
    double from = fmax(a->call_start[i], b->call_start[j]);
    return fmax(0, fmin(a->call_end[i], b->call_end[j]) - from);
}

static bool computes(const tri_program *program, size_t call)
{
    return tri_action_computes(program->segments[program->calls[call].segment].action);
}

/* Ranks of a class compute at the same time. */
static double company_of(const tri_measured_model *m, const tri_timing *timing, uint32_t k,
                         double stride)
{
    const tri_program *program = m->programs[k];
    const tri_rank_timing *rank = &timing->ranks[k];
    double own = 0, shared = 0;
    for (size_t c = 0; c < program->num_calls; c++) {
        if (!computes(program, c))
            continue;
        own += rank->call_end[c] - rank->call_start[c];
        for (uint32_t o = 0; o < timing->num_classes; o++)
            for (size_t d = 0; o != k && d < m->programs[o]->num_calls; d++)
                if (computes(m->programs[o], d))
                    shared += common(rank, c, &timing->ranks[o], d);
    }
    double others = stride * timing->num_classes - 1;
    return own > 0 && others > 0 ? fmin(1, (stride - 1 + stride * shared / own) / others) : 1;
}

bool tri_measured_crowd(tri_measured_model *model, const tri_timing *timing, uint32_t stride)
{
    double most = 0;
    if (!model->alone || timing->num_classes < 2)
        return false;
    for (uint32_t k = 0; k < timing->num_classes; k++) {
        double crowd = company_of(model, timing, k, stride);
        most = fmax(most, fabs(crowd - model->crowd[k]));
        model->crowd[k] = crowd;
    }
    return most > 0.01;
}

/* ---- the model ---- */

static tr_status find_tables(tri_measured_model *m, int ranks, int threads, tr_error *err)
{
    const tri_measured *p = m->profile;
    char list[160] = "";
    m->busy = tri_measured_find(p, ranks, threads);
    if (strcmp(p->kind, "cpu") != 0 && !m->busy)
        m->busy = p->num_tables ? &p->tables[0] : NULL; /* each rank has a device of its own */
    m->alone = ranks > 1 ? tri_measured_find(p, 1, threads) : NULL;
    if (strcmp(p->kind, "cpu") == 0 && ranks * threads > p->cores && p->cores >= threads)
        m->busy = tri_measured_find(p, p->cores / threads, threads); /* they take turns */
    if (m->busy)
        return TR_OK;
    for (int t = 0; t < p->num_tables; t++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%d x %d", t ? ", " : "", p->tables[t].ranks,
                 p->tables[t].threads);
    }
    return tri_fail(err, TR_ERROR_INPUT,
                    "the profile has nothing of %d rank%s with %d thread%s each; it has (ranks x "
                    "threads) %s; set layout and run.threads to one of these, or measure where "
                    "so many cores are free",
                    ranks, ranks == 1 ? "" : "s", threads, threads == 1 ? "" : "s", list);
}

tr_status tri_measured_model_init(tri_measured_model *m, const tri_measured *profile,
                                  const tri_program *const *programs, uint32_t num, int ranks,
                                  int threads, tr_error *err)
{
    *m = (tri_measured_model){.profile = profile,
                              .ranks = ranks,
                              .faster = {1, 1, 1},
                              .programs = programs,
                              .num_programs = num};
    TRI_TRY(find_tables(m, ranks, threads, err));
    m->busy_s = calloc(num + 1, sizeof *m->busy_s);
    m->alone_s = calloc(num + 1, sizeof *m->alone_s);
    m->crowd = calloc(num + 1, sizeof *m->crowd);
    tr_status status = m->busy_s && m->alone_s && m->crowd ? TR_OK : no_memory(err);
    for (uint32_t p = 0; p < num && status == TR_OK; p++) {
        m->crowd[p] = 1;
        status = price_program(m, p, err);
    }
    size_t listed = m->num_missing < TRI_MEASURED_MISSING ? m->num_missing : TRI_MEASURED_MISSING;
    qsort(m->missing, listed, sizeof *m->missing, by_seconds);
    if (status != TR_OK)
        tri_measured_model_fini(m);
    return status;
}

void tri_measured_model_fini(tri_measured_model *m)
{
    for (uint32_t p = 0; p < m->num_programs; p++) {
        if (m->busy_s)
            free(m->busy_s[p]);
        if (m->alone_s)
            free(m->alone_s[p]);
    }
    free(m->busy_s);
    free(m->alone_s);
    free(m->crowd);
    *m = (tri_measured_model){0};
}

tri_cost_table tri_measured_costs(const tri_measured_model *model)
{
    return (tri_cost_table){
        .context = model, .instr = instr_cost, .message = message_cost, .copy = copy_cost};
}
