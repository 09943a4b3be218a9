/* plan --goodput as text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/sums/goodput_sheet.h"
#include "sim/whole_run/goodput_curves.h"

/* "18.3 min": in the unit that people would take. */
static const char *time_text(double seconds, char out[24])
{
    static const struct {
        double from, unit;
        const char *name;
    } units[] = {{2 * 86400, 86400, "days"},
                 {7200, 3600, "h"},
                 {120, 60, "min"},
                 {1, 1, "s"},
                 {0, 1e-3, "ms"}};
    int u = 0;
    while (units[u].from > seconds)
        u++;
    snprintf(out, 24, "%.4g %s", seconds / units[u].unit, units[u].name);
    return out;
}

static const char *grouped(double value, char out[32])
{
    if (value < 1000)
        snprintf(out, 32, "%.4g", value);
    else if (value < 1e15)
        tri_text_grouped((int64_t)llround(value), out);
    else
        snprintf(out, 32, "%.4g", value);
    return out;
}

/* ---- what was asked ---- */

static void add_case(const tri_goodput_sheet *s, tri_text *text)
{
    const tri_goodput_case *c = &s->c;
    const tri_goodput *g = &s->g;
    char number[32], time[24], other[24];
    tri_text_add(text, "devices   %s", grouped(c->num_devices, number));
    if (s->device)
        tri_text_add(text, ", %s", s->device->title);
    if (c->repair_s > 0)
        tri_text_add(text, "; %s spare nodes of %g, a repair takes %s",
                     grouped(c->num_spares, number), s->spare_devices,
                     time_text(c->repair_s, time));
    tri_text_add(text, "\nrun       %s of steps (%s)\n", time_text(g->ideal_s, time), s->run.text);
    tri_text_add(text, "step      %s (%s), %s steps\n", time_text(c->step_s, time), s->step.text,
                 grouped(c->num_steps, number));
    tri_text_add(text, "jitter    %s\n", s->jitter.text);
    if (g->slowest > 1)
        tri_text_add(text, "          the slowest of %s takes %.4g %% longer in the mean\n",
                     grouped(c->num_devices, number), 100 * (g->slowest - 1));
    tri_text_add(text, "failures  a device every %s h (%s)\n",
                 grouped(c->device_mtbf_s / 3600, number), s->stops.text);
    tri_text_add(text, "save      %s (%s)", time_text(c->save_s, time), s->save.text);
    if (c->blocking < 1)
        tri_text_add(text, ", steps stand still for %s of it",
                     time_text(c->blocking * c->save_s, other));
    tri_text_add(text, "\nrestart   %s (%s)\n", time_text(c->restart_s, time), s->restart.text);
}

/* ---- what comes of it ---- */

static void add_interval(const tri_goodput_sheet *s, tri_text *text)
{
    const tri_goodput *g = &s->g;
    char time[24], young[24], daly[24];
    tri_text_add(text, "\na failure every %s\n", time_text(g->mtbf_s, time));
    tri_text_add(text, "save after %s of steps, every %.4g steps", time_text(g->interval_s, time),
                 g->interval_steps);
    if (s->c.interval_s > 0) {
        tri_goodput_case free_case = tri_goodput_resized(&s->c, s->c.num_devices);
        tri_goodput best;
        if (tri_goodput_of(&free_case, &best, NULL) == TR_OK)
            tri_text_add(text, " (--interval; best: %s, which takes %.3g %% less time)",
                         time_text(best.interval_s, time), 100 * (1 - best.wall_s / g->wall_s));
    } else {
        tri_text_add(text, ": the best");
    }
    tri_text_add(text, "; Young's formula %s, Daly's %s\n", time_text(g->young_s, young),
                 time_text(g->daly_s, daly));
}

static void add_part(tri_text *text, const char *name, double seconds, double whole,
                     const char *note)
{
    char hours[32];
    tri_text_add(text, "  %-28s %12s %9.2f %%%s%s\n", name, grouped(seconds / 3600, hours),
                 100 * seconds / whole, *note ? "  " : "", note);
}

static void add_parts(const tri_goodput_sheet *s, tri_text *text)
{
    const tri_goodput *g = &s->g;
    char note[80], number[32];
    tri_text_add(text, "\n  %-28s %12s %11s\n", "", "hours", "of the time");
    add_part(text, "steps", g->ideal_s, g->wall_s, "");
    add_part(text, "waiting for the slowest", g->jitter_s, g->wall_s, "");
    snprintf(note, sizeof note, "%s saves", grouped(round(g->num_saves), number));
    add_part(text, "saves", g->saves_s, g->wall_s, note);
    add_part(text, "work lost and done again", g->lost_s, g->wall_s, "");
    snprintf(note, sizeof note, "%s failures", grouped(g->num_stops, number));
    add_part(text, "restarts", g->restarts_s, g->wall_s, note);
    if (s->c.repair_s > 0)
        add_part(text, "waiting for a repair", g->waiting_s, g->wall_s, "");
    add_part(text, "the whole run", g->wall_s, g->wall_s, "");
}

static void add_row(tri_text *text, const char *name, double value, const char *note)
{
    char number[32];
    if (value >= 0)
        tri_text_add(text, "  %-28s %12s%s%s\n", name, grouped(value, number), *note ? "  " : "",
                     note);
}

static void add_bill(const tri_goodput_sheet *s, tri_text *text)
{
    const tri_goodput *g = &s->g;
    char note[120], time[24], first[32], second[32];
    tri_text_add(text, "\n");
    add_row(text, "effective time", 100 * g->effective,
            "% of the time goes into steps that count, as published rates have it");
    add_row(text, "goodput", 100 * g->goodput,
            "% of the time would do without failures, saves and jitter");
    snprintf(note, sizeof note, "%.4g without failures, saves and jitter", g->ideal_s / 86400);
    add_row(text, "days", g->wall_s / 86400, note);
    add_row(text, "device hours", tri_goodput_hours(s, g->wall_s), "");
    snprintf(note, sizeof note, "%g W a device all the time, PUE %g", s->watts, s->pue);
    add_row(text, "kWh", tri_goodput_kwh(s, g->wall_s), note);
    snprintf(note, sizeof note, "at %g a device hour", s->price);
    add_row(text, "money", tri_goodput_money(s, g->wall_s), note);
    tri_text_add(text, "\na failure costs %s", time_text(g->stop_s, time));
    tri_text_add(text, ": %s device hours", grouped(tri_goodput_hours(s, g->stop_s), first));
    if (s->price > 0)
        tri_text_add(text, ", %s in money", grouped(tri_goodput_money(s, g->stop_s), second));
    tri_text_add(text, "\n");
}

static void add_trials(const tri_goodput_sheet *s, tri_text *text)
{
    const tri_goodput_trials *t = &s->trials;
    char number[32];
    if (t->num == 0)
        return;
    tri_text_add(
        text,
        "\n%s simulated runs, device by device: %.5g days in the mean (%+.2f %%), deviation "
        "%.3g,\nfrom %.5g to %.5g; ",
        grouped((double)t->num, number), t->mean_s / 86400, 100 * (t->mean_s / s->g.wall_s - 1),
        t->deviation_s / 86400, t->least_s / 86400, t->most_s / 86400);
    tri_text_add(text, "%s failures\n", grouped(t->stops, number));
}

/* ---- other intervals, other sizes ---- */

static void add_intervals(const tri_goodput_sheet *s, tri_text *text)
{
    static const double factor[] = {0.25, 0.5, 1, 2, 4};
    char time[24];
    tri_goodput best;
    tri_goodput_case c = tri_goodput_resized(&s->c, s->c.num_devices);
    if (tri_goodput_of(&c, &best, NULL) != TR_OK)
        return;
    tri_text_add(text, "\n  %12s %12s %10s\n", "save after", "goodput", "days");
    for (int i = 0; i < 5; i++) {
        tri_goodput g;
        c.interval_s = best.interval_s * factor[i];
        if (c.interval_s <= best.ideal_s * best.slowest && tri_goodput_of(&c, &g, NULL) == TR_OK)
            tri_text_add(text, "  %12s %10.2f %% %10.2f%s\n", time_text(g.interval_s, time),
                         100 * g.goodput, g.wall_s / 86400, i == 2 ? "  best" : "");
    }
}

static void add_sizes(const tri_goodput_sheet *s, tri_text *text)
{
    tri_goodput points[TRI_GOODPUT_POINTS];
    int num = tri_goodput_over_sizes(&s->c, points);
    char number[32], every[24], save[24];
    tri_text_add(text, "\n  %10s %14s %12s %12s %12s %10s\n", "devices", "failure every",
                 "save after", "effective", "goodput", "days");
    for (int i = 0; i < num; i++) {
        const tri_goodput *g = &points[i];
        if (g->num_devices < 100 && g->num_devices < s->c.num_devices)
            continue;
        tri_text_add(text, "  %10s %14s %12s %10.2f %% %10.2f %% %10.2f%s\n",
                     grouped(g->num_devices, number), time_text(g->mtbf_s, every),
                     time_text(g->interval_s, save), 100 * g->effective, 100 * g->goodput,
                     g->wall_s / 86400, g->num_devices == s->c.num_devices ? "  this run" : "");
    }
    if (num == 0 || points[num - 1].num_devices < TRI_GOODPUT_MOST_DEVICES)
        tri_text_add(text, "  on more devices a run would hardly ever end\n");
}

void tri_goodput_text(const tri_goodput_sheet *s, tri_text *text)
{
    add_case(s, text);
    add_interval(s, text);
    add_parts(s, text);
    add_bill(s, text);
    add_trials(s, text);
    add_intervals(s, text);
    add_sizes(s, text);
    tri_text_add(text,
                 "\nthe same work on other numbers of devices, with saves, restarts and steps "
                 "as long as here\n(docs/whole-run.md)\n");
}
