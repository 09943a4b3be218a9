/* A run under stops, one event after the other, with nothing folded: what the means of goodput.c
 * are held against. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sim/whole_run/goodput.h"

enum { FRESH_STEPS = 128, CHUNK = 1024, MOST_DEVICES = 1 << 24 };

typedef struct trial_state {
    const tri_goodput_case *c;
    tri_goodput_trial *trial;
    uint64_t seed, first; /* first: of this run's random numbers, of one purpose */
    uint32_t stops_stream, steps_stream, repairs_stream;
    size_t num_devices;
    double *next_stop; /* of each device, on the clock `up` */
    bool *slow;        /* each device */
    double up;         /* time in which stops may come: all but waiting for a spare */
    double waited;
    double stop_at;      /* the first of next_stop */
    size_t stop_by;      /* its device */
    uint32_t num_draws;  /* of times to a stop */
    double fresh_s;      /* of the steps drawn so far */
    uint32_t num_fresh;  /* at most FRESH_STEPS */
    double *repaired_at; /* of places in repair, on the clock up + waited */
    size_t num_broken;
    int64_t done, kept; /* steps; kept: in the newest save that is whole */
    int64_t pending;    /* steps in the save under way, 0: none */
    double whole_at;    /* when it is whole, on the clock `up` */
} trial_state;

/* From 0, excluded, to 1. */
static double uniform(const trial_state *s, uint64_t index, uint32_t draw, uint32_t stream)
{
    uint32_t word[4];
    tri_philox(s->seed, s->first + index, draw, stream, word);
    return ((double)(((uint64_t)word[0] << 21) ^ word[1]) + 1) * 0x1p-53;
}

static void find_stop(trial_state *s)
{
    s->stop_by = 0;
    for (size_t i = 1; i < s->num_devices; i++)
        if (s->next_stop[i] < s->next_stop[s->stop_by])
            s->stop_by = i;
    s->stop_at = s->next_stop[s->stop_by];
}

static void draw_stop(trial_state *s, size_t device)
{
    double u = uniform(s, device, s->num_draws, s->stops_stream);
    s->next_stop[device] = s->up - s->c->device_mtbf_s * log(u);
}

/* ---- steps ---- */

static double time_of(const tri_jitter *j, double normal, double deviation)
{
    if (j->law == TRI_JITTER_LOGNORMAL)
        return exp(deviation * (normal - 0.5 * deviation));
    return 1 + deviation * normal;
}

/* The slowest of all devices, each with a time of its own. */
static double draw_step(trial_state *s)
{
    const tri_jitter *j = &s->c->jitter;
    double d = j->deviation, deviation = j->law == TRI_JITTER_LOGNORMAL ? sqrt(log1p(d * d)) : d;
    double slowest = 0;
    float normal[CHUNK];
    for (size_t i = 0; i < s->num_devices; i += CHUNK) {
        size_t num = s->num_devices - i < CHUNK ? s->num_devices - i : CHUNK;
        if (j->law != TRI_JITTER_EXPONENTIAL)
            tri_random_normal(s->seed, 4 * s->first + i, num, s->num_fresh, s->steps_stream,
                              normal);
        for (size_t k = 0; k < num; k++) {
            double time = j->law == TRI_JITTER_EXPONENTIAL
                              ? 1 - d - d * log(uniform(s, i + k, s->num_fresh, s->steps_stream))
                              : time_of(j, normal[k], deviation);
            slowest = fmax(slowest, s->slow[i + k] ? time * (1 + j->slow_by) : time);
        }
    }
    return slowest * s->c->step_s;
}

static double next_step(trial_state *s)
{
    if (s->num_fresh == FRESH_STEPS)
        return s->fresh_s / FRESH_STEPS;
    double time = draw_step(s);
    s->fresh_s += time;
    s->num_fresh++;
    return time;
}

/* ---- stops ---- */

/* Without a spare the run waits until the first of the places is repaired. */
static void take_spare(trial_state *s)
{
    double now = s->up + s->waited, first = INFINITY;
    size_t most = (size_t)s->c->num_spares + 1, num = 0;
    if (s->c->repair_s <= 0)
        return;
    for (size_t i = 0; i < s->num_broken; i++)
        if (s->repaired_at[i] > now)
            s->repaired_at[num++] = s->repaired_at[i];
    double u = uniform(s, 0, (uint32_t)s->trial->num_stops, s->repairs_stream);
    s->repaired_at[num++] = now - s->c->repair_s * log(u);
    s->num_broken = num;
    if (num < most)
        return;
    for (size_t i = 0; i < num; i++)
        first = fmin(first, s->repaired_at[i]);
    s->waited += first - now;
}

static void stop(trial_state *s)
{
    s->up = s->stop_at;
    if (s->pending > 0 && s->whole_at <= s->up) {
        s->kept = s->pending;
        s->trial->num_saves++;
    }
    s->pending = 0;
    s->done = s->kept;
    s->trial->num_stops++;
    s->num_draws++;
    draw_stop(s, s->stop_by);
    find_stop(s);
    take_spare(s);
}

/* Passes so much time; false when a stop came and the run has restarted since. */
static bool pass(trial_state *s, double seconds)
{
    if (s->up + seconds < s->stop_at) {
        s->up += seconds;
        return true;
    }
    do
        stop(s);
    while (s->up + s->c->restart_s >= s->stop_at);
    s->up += s->c->restart_s;
    return false;
}

/* Waits until the save under way is whole. */
static bool finish_save(trial_state *s)
{
    if (s->pending == 0)
        return true;
    if (s->whole_at > s->up && !pass(s, s->whole_at - s->up))
        return false;
    s->kept = s->pending;
    s->pending = 0;
    s->trial->num_saves++;
    return true;
}

static void run_through(trial_state *s, int64_t num_steps, int64_t interval)
{
    double blocks = s->c->blocking * s->c->save_s;
    while (s->kept < num_steps) {
        s->trial->num_steps++;
        if (!pass(s, next_step(s)))
            continue;
        s->done++;
        if (s->done != num_steps && (s->done - s->kept) % interval != 0)
            continue;
        if (!finish_save(s) || !pass(s, blocks))
            continue;
        s->pending = s->done;
        s->whole_at = s->up + (s->c->save_s - blocks);
        if (s->done == num_steps)
            finish_save(s);
    }
}

static void begin(trial_state *s)
{
    uint32_t slow = tri_stream("goodput", "slow");
    s->stops_stream = tri_stream("goodput", "stops");
    s->steps_stream = tri_stream("goodput", "steps");
    s->repairs_stream = tri_stream("goodput", "repairs");
    for (size_t i = 0; i < s->num_devices; i++) {
        draw_stop(s, i);
        s->slow[i] = uniform(s, i, 0, slow) <= s->c->jitter.slow_share;
    }
    find_stop(s);
}

tr_status tri_goodput_simulate(const tri_goodput_case *c, uint64_t seed, uint32_t run,
                               tri_goodput_trial *trial, tr_error *err)
{
    tri_goodput g;
    TRI_TRY(tri_goodput_of(c, &g, err));
    if (c->num_devices > MOST_DEVICES || !(g.wall_s / c->step_s <= 1e9) || !(g.num_stops <= 1e6))
        return tri_fail(
            err, TR_ERROR_INPUT,
            "a simulation goes from step to step and from failure to failure, on at most %d "
            "devices, and this run has %.3g steps and %.3g failures on %.9g; leave the "
            "simulation out, the means need none",
            MOST_DEVICES, g.wall_s / c->step_s, g.num_stops, c->num_devices);
    *trial = (tri_goodput_trial){0};
    trial_state s = {.c = c,
                     .trial = trial,
                     .seed = seed,
                     .first = (uint64_t)run << 32,
                     .num_devices = (size_t)c->num_devices};
    s.next_stop = malloc(s.num_devices * sizeof *s.next_stop);
    s.slow = malloc(s.num_devices * sizeof *s.slow);
    s.repaired_at = malloc(((size_t)c->num_spares + 2) * sizeof *s.repaired_at);
    tr_status status = TR_OK;
    if (s.next_stop && s.slow && s.repaired_at) {
        begin(&s);
        run_through(&s, (int64_t)fmax(1, ceil(c->num_steps - 1e-6)),
                    (int64_t)fmax(1, llround(g.interval_steps)));
        trial->wall_s = s.up + s.waited;
    } else {
        status =
            tri_fail(err, TR_ERROR_RUNTIME, "no memory to simulate %zu devices", s.num_devices);
    }
    free(s.next_stop);
    free(s.slow);
    free(s.repaired_at);
    return status;
}
