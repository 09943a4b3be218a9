/* trireme plan --goodput: how long a whole run really takes on a cluster that stops now and then
 * (sim/whole_run), and what that costs. */
#include <math.h>
#include <stdio.h>

#include "base/draw/svg.h"
#include "base/fs.h"
#include "cli/doc/json_doc.h"
#include "cli/sums/goodput_sheet.h"
#include "cli/sums/sums.h"
#include "sim/whole_run/goodput_curves.h"

double tri_goodput_hours(const tri_goodput_sheet *s, double seconds)
{
    double spares = s->c.repair_s > 0 ? s->c.num_spares * s->spare_devices : 0;
    return (s->c.num_devices + spares) * seconds / 3600;
}

double tri_goodput_kwh(const tri_goodput_sheet *s, double seconds)
{
    return s->watts > 0 ? s->c.num_devices * seconds / 3600 * s->watts * 1e-3 * s->pue : -1;
}

double tri_goodput_money(const tri_goodput_sheet *s, double seconds)
{
    return s->price > 0 ? tri_goodput_hours(s, seconds) * s->price : -1;
}

static tr_status simulate(tri_goodput_sheet *s, tr_error *err)
{
    tri_goodput_trials *t = &s->trials;
    double squares = 0;
    t->least_s = INFINITY;
    for (int64_t run = 0; run < t->num; run++) {
        tri_goodput_trial trial;
        TRI_TRY(tri_goodput_simulate(&s->c, 0, (uint32_t)run, &trial, err));
        double off = trial.wall_s - s->g.wall_s;
        t->mean_s += off / (double)t->num;
        squares += off * off / (double)t->num;
        t->least_s = fmin(t->least_s, trial.wall_s);
        t->most_s = fmax(t->most_s, trial.wall_s);
        t->stops += (double)trial.num_stops / (double)t->num;
    }
    t->deviation_s = sqrt(fmax(squares - t->mean_s * t->mean_s, 0));
    t->mean_s += s->g.wall_s;
    return TR_OK;
}

static tr_status draw(const tri_goodput_sheet *s, const char *path, tr_error *err)
{
    tri_text text;
    tri_text_init(&text);
    tr_status status = tri_goodput_draw(&s->c, &text, err);
    if (status == TR_OK)
        status = tri_file_replace(path, text.chars, text.length, err);
    tri_text_fini(&text);
    return status;
}

static tr_status print(const tri_goodput_sheet *s, const char *path, tr_error *err)
{
    tri_text text;
    if (tri_cli_flag(s->cli, "json")) {
        json_t *doc = tri_doc_begin();
        tri_goodput_doc(s, doc);
        return tri_doc_print(doc, stdout, err);
    }
    tri_text_init(&text);
    tri_goodput_text(s, &text);
    if (path)
        tri_text_add(&text, "\nwritten: %s\n", path);
    tr_status status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}

tr_status tri_sums_goodput(const tri_cli *cli, tr_error *err)
{
    static const char *const flags[] = {
        "tokens", "params",  "rate",     "device", "mfu",   "days",   "gpus",     "batch-tokens",
        "price",  "watts",   "pue",      "step",   "steps", "mtbf",   "save",     "blocking",
        "draw",   "restart", "interval", "jitter", "slow",  "spares", "simulate", NULL};
    tri_goodput_sheet s = {.cli = cli};
    const char *path = tri_cli_flag(cli, "draw");
    TRI_TRY(tri_sums_only(cli, "goodput", flags, err));
    TRI_TRY(tri_goodput_read(&s, err));
    if (path)
        TRI_TRY(tri_svg_may_replace(path, tri_goodput_mark, "trireme plan --goodput", err));
    TRI_TRY(tri_goodput_of(&s.c, &s.g, err));
    TRI_TRY(simulate(&s, err));
    if (path)
        TRI_TRY(draw(&s, path, err));
    return print(&s, path, err);
}
