/* Steps of one program, on one rank or on several that compute side by side: the time of each step
 * and of each instruction. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/arena.h"
#include "base/clock.h"
#include "cli/bench/bench_device.h"

enum { MOST_STEPS = 9, LEAST_STEPS = 2, WARM_STEPS = 2, TIMED_APART = 3 };

double tri_device_bench_now(void)
{
    return (double)tri_now_ns() * 1e-9;
}

struct taking;

typedef struct taker {
    struct taking *all;
    tr_session *session;
    double *times; /* [MOST_STEPS][2 * num_instrs] */
    double seconds[MOST_STEPS];
    int num, num_timed; /* steps; of those with the time of each instruction */
    tr_status status;
    tr_error err;
    pthread_t thread;
    bool started;
} taker;

typedef struct taking {
    taker *ranks;
    int num;
    double until;
    pthread_barrier_t barrier;
    pthread_mutex_t gate; /* held until all threads are there */
    atomic_bool failed, enough;
} taking;

static const tri_program *program_of(const taker *t)
{
    return &t->session->session.programs[TRI_PROGRAM_TRAIN];
}

/* ---- one rank ---- */

/* All ranks begin together; the first says whether it was the last step. */
static tr_status one_step(taker *t, double *times, double *seconds)
{
    tr_step step = {0};
    t->session->session.executors[TRI_PROGRAM_TRAIN].time_by_instr = times;
    pthread_barrier_wait(&t->all->barrier);
    tr_status status = tr_session_step(t->session, &step, &t->err);
    t->session->session.executors[TRI_PROGRAM_TRAIN].time_by_instr = NULL;
    *seconds = step.seconds;
    if (status != TR_OK)
        t->all->failed = true;
    if (t == t->all->ranks)
        t->all->enough = tri_device_bench_now() > t->all->until;
    pthread_barrier_wait(&t->all->barrier); /* nobody reads either before all have written */
    return status;
}

static void run_rank(taker *t)
{
    size_t num = 2 * program_of(t)->num_instrs;
    bool apart = t->session->session.device.def->queue; /* timed steps are no recordings */
    double ignored;
    for (int i = apart ? 0 : 1; i < WARM_STEPS && !t->all->failed; i++)
        t->status = one_step(t, NULL, &ignored);
    for (int i = 0; i < MOST_STEPS && !t->all->failed; i++) {
        if (i >= LEAST_STEPS && t->all->enough)
            break;
        t->status = one_step(t, apart ? NULL : t->times + (size_t)i * num, &t->seconds[i]);
        t->num = i + 1;
    }
    t->num_timed = t->num;
    for (int i = 0; apart && i < TIMED_APART && !t->all->failed; i++) {
        t->status = one_step(t, t->times + (size_t)i * num, &ignored);
        t->num_timed = i + 1;
    }
}

static void *thread_of_rank(void *context)
{
    taker *t = context;
    pthread_mutex_lock(&t->all->gate);
    pthread_mutex_unlock(&t->all->gate);
    run_rank(t);
    return NULL;
}

/* ---- what they took ---- */

/* What is not work of a step makes some longer and none shorter, so the quicker half counts; and
 * the same steps for all instructions, so that their times add up to those of the steps. */
static void pick_quicker(const double *seconds, int num, bool *picked)
{
    int half = (num + 1) / 2;
    for (int i = 0; i < num; i++) {
        int quicker = 0;
        for (int j = 0; j < num; j++)
            quicker += seconds[j] < seconds[i] || (seconds[j] == seconds[i] && j < i);
        picked[i] = quicker < half;
    }
}

static double mean_of(const double *values, size_t stride, const bool *picked, int num)
{
    double sum = 0, count = 0;
    for (int i = 0; i < num; i++) {
        sum += picked[i] ? values[(size_t)i * stride] : 0;
        count += picked[i];
    }
    return sum / count;
}

/* Which of the steps with the time of each instruction are the quicker ones. */
static void pick_timed(const taker *t, bool *picked)
{
    double seconds[MOST_STEPS] = {0};
    size_t num = 2 * program_of(t)->num_instrs;
    bool apart = t->session->session.device.def->queue;
    for (int i = 0; i < t->num_timed; i++)
        for (size_t k = 0; apart && k < num; k++)
            seconds[i] += t->times[(size_t)i * num + k];
    pick_quicker(apart ? seconds : t->seconds, t->num_timed, picked);
}

static bool keep_work(tri_bench_check *check, const tri_work *work, double runs, double launches)
{
    check->works[check->num] = *work;
    check->launches[check->num] = launches;
    check->runs[check->num++] = runs;
    return true;
}

/* Instructions become samples, or work to predict; adds up what they take. */
static bool use_instrs(const tri_device_bench *b, tri_measured_table *table, const taker *t,
                       tri_bench_check *check, tri_measured_step *step)
{
    const tri_program *program = program_of(t);
    tri_work_runs *runs = tri_work_count(program);
    size_t stride = 2 * program->num_instrs;
    bool good = runs, picked[MOST_STEPS];
    uint32_t left = 0;
    double each = 1;
    pick_timed(t, picked);
    for (uint32_t i = 0; good && i < program->num_instrs; i++) {
        if (program->instrs[i].message != TRI_NONE)
            continue;
        if (left == 0) {
            left = tri_work_launch(program, i, b->profile.together);
            each = 1.0 / left;
        }
        left--;
        step->launches += (runs[i].first + runs[i].rest) * each;
        for (int rest = 0; good && rest < 2; rest++) {
            double times = rest ? runs[i].rest : runs[i].first;
            if (times <= 0)
                continue;
            tri_work work = tri_work_of(program, i, !rest);
            const double *at = t->times + (rest ? program->num_instrs : 0) + i;
            double seconds = mean_of(at, stride, picked, t->num_timed) / times;
            step->instr_seconds += times * seconds;
            good = check ? keep_work(check, &work, times, each)
                         : tri_measured_add(table, &work, seconds);
        }
    }
    free(runs);
    return good;
}

static tri_bench_check *new_check(tri_device_bench *b, const tri_measured_table *table,
                                  const tri_program *program)
{
    tri_bench_check *checks =
        tri_array_grow(b->checks, b->num_checks, &b->checks_capacity, sizeof *checks);
    if (!checks)
        return NULL;
    b->checks = checks;
    tri_bench_check *check = &checks[b->num_checks];
    *check = (tri_bench_check){.table = (int)(table - b->profile.tables), .step = table->num_steps};
    check->works = calloc(2 * program->num_instrs + 1, sizeof *check->works);
    check->runs = calloc(2 * program->num_instrs + 1, sizeof *check->runs);
    check->launches = calloc(2 * program->num_instrs + 1, sizeof *check->launches);
    b->num_checks++; /* freed with the others, whatever it lacks */
    return check->works && check->runs && check->launches ? check : NULL;
}

/* Its libraries in a line, and its memory: what is free, and what this session has of it. */
static void note_gpu(tri_measured *p, const tri_session *session)
{
    const tri_device_def *def = session->device.def;
    tri_device_found found[TRI_DEVICE_MOST_FOUND];
    int num = def->found ? def->found(found) : 0;
    for (int i = 0; i < num; i++) {
        size_t used = strlen(p->libraries);
        if (found[i].there)
            snprintf(p->libraries + used, sizeof p->libraries - used, "%s%s: %.50s",
                     used ? "; " : "", found[i].name, found[i].detail);
    }
    snprintf(p->model, sizeof p->model, "%s", session->device.description);
    p->memory_bytes =
        (double)def->queue->available(&session->device) + (double)tri_store_total(&session->store);
}

static void note_device(tri_device_bench *b, const tri_session *session)
{
    const tri_device_def *def = session->device.def;
    tri_device *device = (tri_device *)&session->device;
    tri_measured *p = &b->profile;
    if (!p->device[0])
        snprintf(p->device, sizeof p->device, "%s", device->description);
    if (def->queue && p->memory_bytes <= 0)
        note_gpu(p, session);
    for (int op = 0; op < TRI_NUM_OPS; op++) {
        const tri_kernel *kernel =
            def->queue && def->kernel ? def->kernel(device, (tri_op)op) : NULL;
        p->together[op] = kernel && kernel->run_many;
    }
    if (def->peak_bytes && p->memory_bytes_per_s <= 0)
        p->memory_bytes_per_s = def->peak_bytes(device);
    tri_dtype compute = session->config.compile.precision.compute;
    tri_rate rate = compute == TRI_F32 ? TRI_RATE_F32 : TRI_RATE_16;
    if (def->peak_flops && p->dense[rate] <= 0)
        p->dense[rate] = def->peak_flops(device, compute);
    if (def->peak_flops && session->config.compile.precision.linear8 && p->dense[TRI_RATE_FP8] <= 0)
        p->dense[TRI_RATE_FP8] = def->peak_flops(device, TRI_F8E4M3);
}

static tr_status use_ranks(tri_device_bench *b, tri_measured_table *table, taking *all,
                           const char *name, bool checks, tr_error *err)
{
    for (int r = 0; r < all->num; r++)
        if (all->ranks[r].status != TR_OK) {
            *err = all->ranks[r].err;
            return all->ranks[r].status;
        }
    bool good = true;
    for (int r = 0; r < all->num && good; r++) {
        taker *t = &all->ranks[r];
        tri_measured_step step = {.seen = !checks};
        tri_bench_check *check = checks ? new_check(b, table, program_of(t)) : NULL;
        snprintf(step.name, sizeof step.name, "%s", name);
        bool picked[MOST_STEPS];
        pick_quicker(t->seconds, t->num, picked);
        step.seconds = mean_of(t->seconds, 1, picked, t->num);
        tri_measured_table own = {0}; /* layers are alike: first the mean over those of a step */
        good = (!checks || check) && use_instrs(b, &own, t, check, &step) &&
               tri_measured_merge(table, &own) && tri_measured_add_step(table, &step);
        tri_measured_table_fini(&own);
    }
    return good ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the samples");
}

/* ---- all of them ---- */

static tr_status open_ranks(tri_device_bench *b, taking *all, tr_settings *settings, tr_error *err)
{
    TRI_TRY(tri_api_check(settings, err));
    for (int r = 0; r < all->num; r++) {
        taker *t = &all->ranks[r];
        t->all = all;
        TRI_TRY(tri_api_compile_rank(settings, 0, &t->session, err));
        TRI_TRY(tri_api_start(t->session, err));
        t->times = calloc(2 * MOST_STEPS * program_of(t)->num_instrs, sizeof *t->times);
        if (!t->times)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the times of instructions");
        note_device(b, &t->session->session);
    }
    return TR_OK;
}

static tr_status run_ranks(taking *all, tr_error *err)
{
    if (pthread_barrier_init(&all->barrier, NULL, (unsigned)all->num) != 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "no barrier for %d threads", all->num);
    tr_status status = TR_OK;
    pthread_mutex_init(&all->gate, NULL);
    pthread_mutex_lock(&all->gate);
    for (int r = 1; r < all->num && status == TR_OK; r++) {
        taker *t = &all->ranks[r];
        t->started = pthread_create(&t->thread, NULL, thread_of_rank, t) == 0;
        if (!t->started)
            status = tri_fail(err, TR_ERROR_RUNTIME, "no thread for a rank");
    }
    if (status != TR_OK)
        all->failed = true; /* nobody comes to the barrier */
    pthread_mutex_unlock(&all->gate);
    run_rank(&all->ranks[0]);
    for (int r = 1; r < all->num; r++)
        if (all->ranks[r].started)
            pthread_join(all->ranks[r].thread, NULL);
    pthread_mutex_destroy(&all->gate);
    pthread_barrier_destroy(&all->barrier);
    return status;
}

static tr_status settings_of(const tri_device_bench *b, const tri_measured_table *table,
                             const tri_device_case *c, const tri_device_precision *precision,
                             tr_settings **settings, tr_error *err)
{
    char text[80];
    TRI_TRY(tri_device_case_settings(c, precision, settings, err));
    snprintf(text, sizeof text, "run.device=%s", b->profile.kind);
    TRI_TRY(tr_settings_set(*settings, text, err));
    snprintf(text, sizeof text, "run.threads=%d", table->threads);
    TRI_TRY(tr_settings_set(*settings, text, err));
    snprintf(text, sizeof text, "run.isa=%s", tr_settings_string(b->cli->settings, "run.isa"));
    return tr_settings_set(*settings, text, err);
}

tr_status tri_device_bench_take(tri_device_bench *b, tri_measured_table *table,
                                const tri_device_case *c, const tri_device_precision *precision,
                                double until, tr_error *err)
{
    char name[TRI_MEASURED_NAME];
    tr_settings *settings = NULL;
    taking all = {.num = table->ranks, .until = until};
    snprintf(name, sizeof name, "%s %s, %d layers of %d, %d x %d%s%s", precision->name, c->kind,
             c->layers, c->dim, c->batch, c->seq, c->microbatches > 1 ? " in two" : "",
             c->recompute ? ", recomputed" : "");
    all.ranks = calloc((size_t)all.num, sizeof *all.ranks);
    tr_status status = all.ranks ? settings_of(b, table, c, precision, &settings, err)
                                 : tri_fail(err, TR_ERROR_RUNTIME, "no memory for ranks");
    if (status == TR_OK)
        status = open_ranks(b, &all, settings, err);
    if (status == TR_OK)
        status = run_ranks(&all, err);
    if (status == TR_OK)
        status = use_ranks(b, table, &all, name, c->checks, err);
    for (int r = 0; all.ranks && r < all.num; r++) {
        tr_session_destroy(all.ranks[r].session);
        free(all.ranks[r].times);
    }
    free(all.ranks);
    tr_settings_destroy(settings);
    return status;
}
