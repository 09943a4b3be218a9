#include "sim/whole_run/goodput.h"

#include <math.h>
#include <stddef.h>

/* A segment that is tried a thousand times in the mean never ends for people. */
static const double most_exponent = 7;

typedef struct number_check {
    const char *what;
    double value, least, most;
} number_check;

static tr_status check(const tri_goodput_case *c, tr_error *err)
{
    const number_check checks[] = {
        {"the number of devices", c->num_devices, 1, 1e9},
        {"the time between failures of a device", c->device_mtbf_s, 1e-3, 1e15},
        {"the time of a step", c->step_s, 1e-9, 1e9},
        {"the number of steps", c->num_steps, 1e-9, 1e15},
        {"the time of a save", c->save_s, 0, 1e9},
        {"the share of a save that blocks steps", c->blocking, 0, 1},
        {"the time of a restart", c->restart_s, 0, 1e9},
        {"the interval between saves", c->interval_s, 0, 1e15},
        {"the jitter of a step", c->jitter.deviation, 0, 0.5},
        {"the share of slow devices", c->jitter.slow_share, 0, 1},
        {"how much longer slow devices take", c->jitter.slow_by, 0, 1000},
        {"the number of spares", c->num_spares, 0, 1e6},
        {"the time of a repair", c->repair_s, 0, 1e9},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!(checks[i].value >= checks[i].least && checks[i].value <= checks[i].most))
            return tri_fail(err, TR_ERROR_INPUT, "%s is %g; give a number from %g to %g",
                            checks[i].what, checks[i].value, checks[i].least, checks[i].most);
    return TR_OK;
}

/* ---- the interval ---- */

/* x e^x - (e^x - 1) = x^2/2 + x^3/3 + ..., without what cancels. */
static double bend(double x)
{
    return x < 1e-3 ? x * x * (0.5 + x * (1.0 / 3 + x * (0.125 + x / 30))) : x * exp(x) - expm1(x);
}

/* The time of a segment is least for its work where (1 - x) e^x = e^(-rate * blocks), x being
 * rate * work: restarts and what is written beside steps stretch all segments alike. */
static double best_work(double rate, double blocks)
{
    double wanted = -expm1(-rate * blocks), low = 0, high = 1;
    for (int i = 0; i < 200; i++) {
        double middle = 0.5 * (low + high);
        if (bend(middle) < wanted)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high) / rate;
}

/* Daly's expansion, for the work between two saves. */
static double daly(double mtbf, double blocks)
{
    double half = blocks / (2 * mtbf);
    if (half >= 1)
        return mtbf;
    return sqrt(2 * blocks * mtbf) * (1 + sqrt(half) / 3 + half / 9) - blocks;
}

/* ---- the time ---- */

typedef struct save_segment {
    double rate;    /* of stops */
    double work;    /* steps between saves */
    double blocks;  /* of a save: steps stand still */
    double beside;  /* and the rest */
    double restart; /* all in seconds */
} save_segment;

/* From a save that has just become whole to the next. The first try has `beside` of its work behind
 * it already; after a stop everything since the last save is done again. A try of length L ends
 * well with the chance e^(-rate L), and takes (1 - e^(-rate L)) / rate in the mean. */
static double next_save(const save_segment *s)
{
    return exp(s->rate * (s->restart + s->work + s->blocks + s->beside)) *
           -expm1(-s->rate * (s->work + s->blocks)) / s->rate;
}

/* The same from the begin of the run, where no save is under way yet. */
static double first_save(const save_segment *s)
{
    return exp(s->rate * s->restart) * expm1(s->rate * (s->work + s->blocks + s->beside)) / s->rate;
}

/* With all places and spares in repair but those that run, the run waits for one. The chance of
 * that is Erlang's loss formula, for as many servers as it takes to stop the run. Returns the time
 * waited for each second in which the run was up or restarting. */
static double waiting_share(const tri_goodput_case *c, double rate)
{
    double load = rate * c->repair_s, lost = 1;
    for (double n = 1; n <= c->num_spares + 1; n++)
        lost = load * lost / (n + load * lost);
    return load > 0 ? lost / (1 - lost) : 0;
}

static double whole_time(const save_segment *s, double all_work)
{
    return first_save(s) + (all_work / s->work - 1) * next_save(s);
}

static void choose_interval(const tri_goodput_case *c, double all_work, save_segment *s)
{
    double step = c->step_s * all_work / (c->num_steps * c->step_s);
    double least = fmin(fmax(step, ceil(s->beside / step - 1e-9) * step), all_work);
    double best = fmin(fmax(best_work(s->rate, s->blocks), least), all_work);
    save_segment below = *s, above = *s;
    below.work = fmin(fmax(floor(best / step) * step, least), all_work);
    above.work = fmin(ceil(best / step) * step, all_work);
    s->work =
        whole_time(&below, all_work) <= whole_time(&above, all_work) ? below.work : above.work;
}

static tr_status find_segment(const tri_goodput_case *c, double slowest, save_segment *s,
                              tr_error *err)
{
    double all_work = c->num_steps * c->step_s * slowest;
    *s = (save_segment){.rate = c->num_devices / c->device_mtbf_s,
                        .blocks = c->blocking * c->save_s,
                        .beside = (1 - c->blocking) * c->save_s,
                        .restart = c->restart_s};
    if (c->interval_s > 0 && c->interval_s < s->beside && c->interval_s < all_work)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the interval between saves is %g s, and a save is still being written %g "
                        "s after steps go on; save less often, or write faster",
                        c->interval_s, s->beside);
    if (c->interval_s > 0)
        s->work = fmin(c->interval_s, all_work);
    else
        choose_interval(c, all_work, s);
    if (!(s->rate * (s->restart + s->work + c->save_s) <= most_exponent))
        return tri_fail(
            err, TR_ERROR_INPUT,
            "a failure comes every %.3g s in the mean, and the run needs %.3g s without "
            "one to restart, work and save; it would hardly ever end: fewer devices, "
            "or faster saves and restarts",
            1 / s->rate, s->restart + s->work + c->save_s);
    return TR_OK;
}

tr_status tri_goodput_of(const tri_goodput_case *c, tri_goodput *g, tr_error *err)
{
    save_segment s;
    TRI_TRY(check(c, err));
    *g = (tri_goodput){.num_devices = c->num_devices,
                       .slowest = tri_jitter_slowest(&c->jitter, c->num_devices),
                       .ideal_s = c->num_steps * c->step_s};
    TRI_TRY(find_segment(c, g->slowest, &s, err));
    double all_work = g->ideal_s * g->slowest, up = whole_time(&s, all_work);
    g->mtbf_s = 1 / s.rate;
    g->interval_s = s.work;
    double steps = s.work / (c->step_s * g->slowest);
    g->interval_steps = fabs(steps - round(steps)) < 1e-6 ? round(steps) : steps;
    g->young_s = sqrt(2 * s.blocks * g->mtbf_s);
    g->daly_s = daly(g->mtbf_s, s.blocks);
    g->num_saves = all_work / s.work;
    g->num_stops = s.rate * up;
    g->jitter_s = all_work - g->ideal_s;
    g->saves_s = g->num_saves * s.blocks + s.beside;
    /* Each stop begins a restart, which another may cut short. */
    g->restarts_s = up * -expm1(-s.rate * s.restart);
    g->lost_s = fmax(up - all_work - g->saves_s - g->restarts_s, 0);
    g->waiting_s = up * waiting_share(c, s.rate);
    g->wall_s = up + g->waiting_s;
    g->stop_s = (g->lost_s + g->restarts_s + g->waiting_s) / g->num_stops;
    g->effective = all_work / g->wall_s;
    g->goodput = g->ideal_s / g->wall_s;
    return TR_OK;
}

tri_goodput_case tri_goodput_resized(const tri_goodput_case *c, double num_devices)
{
    tri_goodput_case other = *c;
    other.num_devices = num_devices;
    other.num_steps = c->num_steps * c->num_devices / num_devices;
    other.interval_s = 0;
    return other;
}
