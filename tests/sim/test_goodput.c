/* A whole run under stops: means against simulations that take every device by itself, published
 * intervals and rates, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/whole_run/goodput.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void near_by(double got, double wanted, double part, const char *what)
{
    if (!(fabs(got - wanted) <= part * fabs(wanted)))
        fail_msg("%s: %.9g, and %.9g was expected", what, got, wanted);
}

static tri_goodput result_of(const tri_goodput_case *c)
{
    tri_goodput g;
    tr_error err = {0};
    if (tri_goodput_of(c, &g, &err) != TR_OK)
        fail_msg("%s", err.message);
    return g;
}

/* 30 days in steps of 5 s on 16,384 devices; a save of 1 minute and a restart of 10. Stops as in
 * the training of Llama 3 405B: 419 unexpected ones in 54 days on as many devices. */
static const tri_goodput_case month = {.num_devices = 16384,
                                       .device_mtbf_s = 54.0 * 86400 * 16384 / 419,
                                       .step_s = 5,
                                       .num_steps = 518400,
                                       .save_s = 60,
                                       .blocking = 1,
                                       .restart_s = 600};

/* ---- the slowest of many ---- */

static void slowest_is_that_of_tables(void **state)
{
    (void)state;
    /* Means of the largest of n normal numbers (Harter 1961; sqrt(1 / pi) for two). */
    static const double normal[][2] = {
        {1, 0}, {2, 0.5641895835}, {10, 1.5387527308}, {100, 2.50759}, {1000, 3.24144}};
    for (size_t i = 0; i < sizeof normal / sizeof *normal; i++)
        for (double d = 0.001; d < 0.11; d *= 10) {
            tri_jitter j = {.deviation = d};
            near_by(tri_jitter_slowest(&j, normal[i][0]), 1 + d * normal[i][1], 1e-6, "normal");
        }
    /* Of n exponential times the largest is the harmonic number, for any n. */
    double harmonic = 0, n = 1 << 20;
    for (double k = n; k >= 1; k--)
        harmonic += 1 / k;
    tri_jitter tail = {.law = TRI_JITTER_EXPONENTIAL, .deviation = 0.01};
    near_by(tri_jitter_slowest(&tail, n), 1 + 0.01 * (harmonic - 1), 1e-6, "exponential");
    near_by(tri_jitter_slowest(&tail, 3), 1 + 0.01 * (1 + 0.5 + 1.0 / 3 - 1), 1e-6, "exponential");
    /* The mean of one device is 1 under every law, and tails are in order. */
    double last = 1;
    for (int law = 0; law < TRI_NUM_JITTER_LAWS; law++) {
        tri_jitter j = {.law = (tri_jitter_law)law, .deviation = 0.2};
        near_by(tri_jitter_slowest(&j, 1), 1, 1e-5, tri_jitter_name(j.law));
        assert_true(tri_jitter_slowest(&j, 1e5) > last);
        last = tri_jitter_slowest(&j, 1e5);
    }
}

static void slow_devices_hold_all_up(void **state)
{
    (void)state;
    tri_jitter j = {.slow_share = 0.001, .slow_by = 0.2};
    near_by(tri_jitter_slowest(&j, 1), 1.0002, 1e-9, "one device");
    near_by(tri_jitter_slowest(&j, 512), 1 + 0.2 * (1 - pow(0.999, 512)), 1e-9, "512 devices");
    near_by(tri_jitter_slowest(&j, 1e5), 1.2, 1e-9, "all but surely one is slow");
    /* With a little jitter about the same; all slow is the same, longer. */
    j.deviation = 1e-5;
    near_by(tri_jitter_slowest(&j, 512), 1 + 0.2 * (1 - pow(0.999, 512)), 1e-4, "with jitter");
    tri_jitter all = {.deviation = 0.01, .slow_share = 1, .slow_by = 0.2};
    tri_jitter none = {.deviation = 0.01};
    near_by(tri_jitter_slowest(&all, 64), 1.2 * tri_jitter_slowest(&none, 64), 1e-6, "all slow");
}

/* ---- against simulations ---- */

/* The mean of so many simulations is the folded one, for each thing counted. */
static void compare_with_runs(const tri_goodput_case *c, uint32_t num_runs, double part,
                              const char *what)
{
    tri_goodput g = result_of(c);
    double wall = 0, stops = 0;
    for (uint32_t run = 0; run < num_runs; run++) {
        tri_goodput_trial trial;
        assert_int_equal(tri_goodput_simulate(c, 7, run, &trial, NULL), TR_OK);
        assert_true(trial.num_steps >= (int64_t)c->num_steps);
        assert_true(trial.num_saves == (int64_t)llround(g.num_saves));
        wall += trial.wall_s / num_runs;
        stops += (double)trial.num_stops / num_runs;
    }
    printf("%s: %.1f s folded, %.1f s in the mean of %u runs; stops %.3f and %.3f\n", what,
           g.wall_s, wall, num_runs, g.num_stops, stops);
    near_by(g.wall_s, wall, part, what);
    near_by(g.num_stops, stops, 3 * part, what);
}

static void folded_is_unfolded(void **state)
{
    (void)state;
    /* 8 steps of 20 s with a save after each other one, and a stop every 300 s. */
    tri_goodput_case c = {.num_devices = 512,
                          .device_mtbf_s = 512 * 300.0,
                          .step_s = 20,
                          .num_steps = 8,
                          .save_s = 5,
                          .blocking = 1,
                          .restart_s = 15,
                          .jitter = {.deviation = 0.05}};
    c.interval_s = 2 * 20 * tri_jitter_slowest(&c.jitter, 512);
    compare_with_runs(&c, 1000, 0.02, "512 devices, normal");
    c.jitter = (tri_jitter){TRI_JITTER_EXPONENTIAL, 0.05, 0.002, 0.5};
    c.interval_s = 2 * 20 * tri_jitter_slowest(&c.jitter, 512);
    compare_with_runs(&c, 1000, 0.02, "512 devices, heavy tail, stragglers");
}

static void events_are_those_of_a_simulation(void **state)
{
    (void)state;
    tri_goodput_case c = {.num_devices = 4,
                          .device_mtbf_s = 4 * 900.0,
                          .step_s = 10,
                          .num_steps = 480,
                          .save_s = 60,
                          .blocking = 0.25,
                          .restart_s = 120,
                          .interval_s = 240};
    compare_with_runs(&c, 2000, 0.01, "saves beside steps");
    tri_goodput_case once = c; /* one save, at the end */
    once.num_steps = 60;
    once.interval_s = 600;
    once.restart_s = 300;
    compare_with_runs(&once, 4000, 0.02, "a single save");
    c.num_spares = 1;
    c.repair_s = 1200;
    compare_with_runs(&c, 2000, 0.02, "one spare");
    c.num_spares = 0;
    compare_with_runs(&c, 2000, 0.02, "no spare");
    c.jitter = (tri_jitter){TRI_JITTER_LOGNORMAL, 0.1, 0, 0};
    c.num_steps = 2400;
    c.interval_s = 24 * 10 * tri_jitter_slowest(&c.jitter, 4);
    compare_with_runs(&c, 400, 0.02, "more steps than are drawn");
}

static void a_simulation_is_repeatable(void **state)
{
    (void)state;
    tri_goodput_trial a, b, other;
    tri_goodput_case c = month;
    c.num_devices = 100000;
    c.num_steps = 20;
    c.jitter.deviation = 0.01;
    assert_int_equal(tri_goodput_simulate(&c, 1, 3, &a, NULL), TR_OK);
    assert_int_equal(tri_goodput_simulate(&c, 1, 3, &b, NULL), TR_OK);
    assert_int_equal(tri_goodput_simulate(&c, 1, 4, &other, NULL), TR_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.wall_s != other.wall_s);
    tr_error err = {0};
    c.num_steps = 1e12;
    assert_int_equal(tri_goodput_simulate(&c, 1, 0, &a, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "leave the simulation out"));
}

/* ---- the interval ---- */

/* Daly (2006), figures 3 to 5: 117, 57 and 9.1 minutes. */
static void intervals_are_the_published(void **state)
{
    (void)state;
    static const double cases[][2] = {{24 * 60, 117}, {6 * 60, 57}, {15, 9.1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_goodput_case c = {.num_devices = 1,
                              .device_mtbf_s = 60 * cases[i][0],
                              .step_s = 0.1,
                              .num_steps = 500 * 36000.0,
                              .save_s = 300,
                              .blocking = 1,
                              .restart_s = 600};
        tri_goodput g = result_of(&c);
        near_by(g.interval_s / 60, cases[i][1], 0.01, "best interval, minutes");
        near_by(g.daly_s / 60, cases[i][1], 0.02, "Daly's formula, minutes");
    }
}

static void compare_with_all_intervals(tri_goodput_case c)
{
    tri_goodput best = result_of(&c), g;
    double least = INFINITY, at = 0;
    double first = fmax(c.step_s, (1 - c.blocking) * c.save_s);
    for (double s = fmax(first, best.interval_s / 3); s < 3 * best.interval_s; s *= 1.001) {
        c.interval_s = s;
        if (tri_goodput_of(&c, &g, NULL) == TR_OK && g.wall_s < least) {
            least = g.wall_s;
            at = g.interval_s;
        }
    }
    near_by(best.interval_s, at, 0.01, "interval");
    near_by(best.wall_s, least, 1e-4, "time with it");
    near_by(best.interval_steps, round(best.interval_steps), 1e-9, "whole steps");
}

static void interval_is_that_of_brute_force(void **state)
{
    (void)state;
    static const double saves[][2] = {{60, 1}, {60, 0.2}, {300, 0.02}, {5, 1}};
    tri_goodput_case c = month;
    c.step_s = 0.2;
    for (size_t i = 0; i < 4; i++)
        for (c.num_devices = 1024; c.num_devices <= 1 << 18; c.num_devices *= 4) {
            c.save_s = saves[i][0];
            c.blocking = saves[i][1];
            compare_with_all_intervals(c);
        }
    c.jitter.deviation = 0.02;
    c.num_devices = 16384;
    compare_with_all_intervals(c);
}

/* ---- what is known otherwise ---- */

/* Weights and two moments in fp32 (4.86 TB) at the 2 TB/s that their storage sustains, all of it in
 * the way of steps, and 10 minutes to start again. */
static void llama3_runs_nine_tenths_of_the_time(void **state)
{
    (void)state;
    tri_goodput_case c = month;
    c.save_s = 405e9 * 12 / 2e12;
    tri_goodput g = result_of(&c);
    near_by(g.mtbf_s, 54.0 * 86400 / 419, 1e-12, "time between stops");
    printf("Llama 3: %.2f %% of the time is effective\n", 100 * g.effective);
    assert_true(g.effective > 0.90 && g.effective < 0.97);
    c.num_steps *= 54 * 86400 / g.wall_s;
    near_by(result_of(&c).num_stops, 419, 0.01, "stops in 54 days");
}

static void parts_make_the_whole(void **state)
{
    (void)state;
    tri_goodput_case c = month;
    c.jitter = (tri_jitter){TRI_JITTER_NORMAL, 0.01, 1e-4, 0.1};
    c.num_spares = 20;
    c.repair_s = 2 * 86400;
    c.blocking = 0.5;
    tri_goodput g = result_of(&c);
    near_by(g.ideal_s + g.jitter_s + g.saves_s + g.lost_s + g.restarts_s + g.waiting_s, g.wall_s,
            1e-12, "sum of the parts");
    assert_true(g.jitter_s > 0 && g.saves_s > 0 && g.lost_s > 0 && g.restarts_s > 0 &&
                g.waiting_s > 0);
    near_by(g.stop_s * g.num_stops, g.lost_s + g.restarts_s + g.waiting_s, 1e-12, "cost of stops");
    near_by(g.goodput * g.slowest, g.effective, 1e-12, "effective time");
    /* Half of a segment is lost in the mean, and a restart now and then is cut short. */
    near_by(g.lost_s / g.num_stops, 0.5 * g.interval_s + 30, 0.15, "lost by a stop");
    /* Where nothing stops it, a run takes its steps and saves. */
    c = month;
    c.device_mtbf_s = 1e15;
    c.interval_s = 3600;
    near_by(result_of(&c).wall_s, 518400 * 5 + 720 * 60, 1e-6, "a quiet run");
}

static void stops_grow_with_devices(void **state)
{
    (void)state;
    tri_goodput one = result_of(&month);
    for (double factor = 2; factor <= 64; factor *= 2) {
        tri_goodput_case c = month;
        c.num_devices *= factor;
        c.device_mtbf_s *= factor;
        near_by(result_of(&c).wall_s, one.wall_s, 1e-12, "as many stops on more devices");
        c = month;
        c.num_devices /= factor;
        near_by(result_of(&c).mtbf_s, factor * one.mtbf_s, 1e-12, "time between stops");
    }
    double last = 1;
    for (double n = 1; n <= 1 << 20; n *= 2) {
        tri_goodput_case c = tri_goodput_resized(&month, n);
        c.jitter = (tri_jitter){TRI_JITTER_EXPONENTIAL, 0.02, 0.001, 0.1};
        c.save_s = c.restart_s = 30;
        tri_goodput g = result_of(&c);
        near_by(g.ideal_s * n, month.num_steps * month.step_s * month.num_devices, 1e-12, "work");
        assert_true(isfinite(g.wall_s) && isfinite(g.stop_s) && g.goodput > 0 && g.goodput < last);
        assert_true(g.interval_s > 0 && isfinite(g.interval_s) && g.num_stops > 0);
        last = g.goodput;
    }
}

static void small_and_odd_runs_have_an_end(void **state)
{
    (void)state;
    tri_goodput_case c = month;
    c.num_steps = 0.5; /* ends before the first save would */
    near_by(result_of(&c).num_saves, 1, 1e-12, "one save");
    c = month;
    c.save_s = c.restart_s = 0;
    tri_goodput g = result_of(&c);
    near_by(g.interval_steps, 1, 1e-9, "saves that cost nothing");
    near_by(g.daly_s + 1, 1, 1e-12, "Daly's of them");
    c.blocking = 0;
    c.save_s = 600; /* nothing stands in the way: saves one after the other */
    near_by(result_of(&c).interval_s, 600, 1e-9, "written all the time");
}

static void refused(const tri_goodput_case *c, const char *word)
{
    tri_goodput g;
    tr_error err = {0};
    assert_int_equal(tri_goodput_of(c, &g, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, word) || strchr(err.message, '\n'))
        fail_msg("\"%s\" does not say \"%s\"", err.message, word);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    tri_goodput_case c = month;
    const struct {
        double *field, value;
        const char *word;
    } cases[] = {
        {&c.num_devices, 0, "number of devices is 0"},
        {&c.device_mtbf_s, 0, "between failures of a device is 0"},
        {&c.device_mtbf_s, -1, "between failures of a device is -1"},
        {&c.step_s, -1, "time of a step is -1"},
        {&c.num_steps, NAN, "number of steps is nan"},
        {&c.save_s, -1, "time of a save is -1"},
        {&c.blocking, 1.5, "blocks steps is 1.5"},
        {&c.restart_s, INFINITY, "time of a restart is inf"},
        {&c.interval_s, -5, "interval between saves is -5"},
        {&c.jitter.deviation, 0.6, "jitter of a step is 0.6"},
        {&c.jitter.slow_share, 2, "share of slow devices is 2"},
        {&c.num_spares, -1, "number of spares is -1"},
        {&c.repair_s, -1, "time of a repair is -1"},
        {&c.device_mtbf_s, 1e5, "would hardly ever end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c = month;
        *cases[i].field = cases[i].value;
        refused(&c, cases[i].word);
    }
    c = month;
    c.blocking = 0.1;
    c.interval_s = 20;
    refused(&c, "still being written 54 s after steps go on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slowest_is_that_of_tables),
        cmocka_unit_test(slow_devices_hold_all_up),
        cmocka_unit_test(folded_is_unfolded),
        cmocka_unit_test(events_are_those_of_a_simulation),
        cmocka_unit_test(a_simulation_is_repeatable),
        cmocka_unit_test(intervals_are_the_published),
        cmocka_unit_test(interval_is_that_of_brute_force),
        cmocka_unit_test(llama3_runs_nine_tenths_of_the_time),
        cmocka_unit_test(parts_make_the_whole),
        cmocka_unit_test(stops_grow_with_devices),
        cmocka_unit_test(small_and_odd_runs_have_an_end),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
