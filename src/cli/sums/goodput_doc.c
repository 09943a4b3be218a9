/* plan --goodput --json. */
#include <math.h>

#include "cli/doc/json_doc.h"
#include "cli/sums/goodput_sheet.h"
#include "sim/whole_run/goodput_curves.h"

typedef struct doc_number {
    const char *key;
    double value;
} doc_number;

static void put_numbers(json_t *object, const doc_number *rows, size_t num)
{
    for (size_t i = 0; i < num; i++)
        tri_doc_number(object, rows[i].key, rows[i].value);
}

static double known(double value)
{
    return value > 0 ? value : (double)NAN;
}

static void put_case(const tri_goodput_sheet *s, json_t *doc)
{
    const tri_goodput_case *c = &s->c;
    const doc_number rows[] = {
        {"devices", c->num_devices},
        {"device_mtbf_seconds", c->device_mtbf_s},
        {"step_seconds", c->step_s},
        {"steps", c->num_steps},
        {"save_seconds", c->save_s},
        {"blocking_share", c->blocking},
        {"restart_seconds", c->restart_s},
        {"jitter_share", c->jitter.deviation},
        {"slow_device_share", c->jitter.slow_share},
        {"slow_by_share", c->jitter.slow_by},
        {"spares", c->repair_s > 0 ? c->num_spares : (double)NAN},
        {"repair_seconds", known(c->repair_s)},
        {"watts", known(s->watts)},
        {"pue", s->pue},
    };
    put_numbers(doc, rows, sizeof rows / sizeof *rows);
    tri_doc_text(doc, "jitter_law", tri_jitter_name(c->jitter.law));
    tri_doc_text(doc, "device", s->device ? s->device->name : NULL);
    const struct {
        const char *key;
        const tri_goodput_origin *origin;
    } origins[] = {{"run", &s->run},   {"step", &s->step},       {"failures", &s->stops},
                   {"save", &s->save}, {"restart", &s->restart}, {"jitter", &s->jitter}};
    json_t *from = tri_doc_object(doc, "sources");
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        tri_doc_text(from, origins[i].key, origins[i].origin->text);
}

static void put_result(const tri_goodput_sheet *s, json_t *doc)
{
    const tri_goodput *g = &s->g;
    double kwh = tri_goodput_kwh(s, g->wall_s), money = tri_goodput_money(s, g->wall_s);
    double stop_money = tri_goodput_money(s, g->stop_s);
    const doc_number rows[] = {
        {"mtbf_seconds", g->mtbf_s},
        {"slowest_step_factor", g->slowest},
        {"interval_seconds", g->interval_s},
        {"interval_steps", g->interval_steps},
        {"young_seconds", g->young_s},
        {"daly_seconds", g->daly_s},
        {"ideal_seconds", g->ideal_s},
        {"jitter_seconds", g->jitter_s},
        {"saves_seconds", g->saves_s},
        {"lost_seconds", g->lost_s},
        {"restarts_seconds", g->restarts_s},
        {"waiting_seconds", g->waiting_s},
        {"seconds", g->wall_s},
        {"saves", g->num_saves},
        {"failures", g->num_stops},
        {"failure_seconds", g->stop_s},
        {"failure_device_hours", tri_goodput_hours(s, g->stop_s)},
        {"failure_money", stop_money >= 0 ? stop_money : (double)NAN},
        {"effective_share", g->effective},
        {"goodput_share", g->goodput},
        {"device_hours", tri_goodput_hours(s, g->wall_s)},
        {"kwh", kwh >= 0 ? kwh : (double)NAN},
        {"money", money >= 0 ? money : (double)NAN},
    };
    put_numbers(doc, rows, sizeof rows / sizeof *rows);
}

static void put_trials(const tri_goodput_sheet *s, json_t *doc)
{
    const tri_goodput_trials *t = &s->trials;
    const doc_number rows[] = {{"runs", (double)t->num},
                               {"mean_seconds", t->mean_s},
                               {"deviation_seconds", t->deviation_s},
                               {"least_seconds", t->least_s},
                               {"most_seconds", t->most_s},
                               {"failures", t->stops}};
    if (t->num > 0)
        put_numbers(tri_doc_object(doc, "simulated"), rows, sizeof rows / sizeof *rows);
    else
        tri_doc_null(doc, "simulated");
}

static void put_curve(json_t *list, const tri_goodput *points, int num)
{
    for (int i = 0; i < num; i++) {
        const doc_number rows[] = {
            {"devices", points[i].num_devices},         {"mtbf_seconds", points[i].mtbf_s},
            {"interval_seconds", points[i].interval_s}, {"effective_share", points[i].effective},
            {"goodput_share", points[i].goodput},       {"seconds", points[i].wall_s}};
        put_numbers(tri_doc_item(list), rows, sizeof rows / sizeof *rows);
    }
}

void tri_goodput_doc(const tri_goodput_sheet *s, json_t *doc)
{
    tri_goodput points[TRI_GOODPUT_POINTS];
    put_case(s, doc);
    put_result(s, doc);
    put_trials(s, doc);
    put_curve(tri_doc_list(doc, "intervals"), points, tri_goodput_over_intervals(&s->c, points));
    put_curve(tri_doc_list(doc, "sizes"), points, tri_goodput_over_sizes(&s->c, points));
}
