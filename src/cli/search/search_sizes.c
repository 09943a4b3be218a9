/* trireme plan --search --devices 8..1024: a short search for each size, and what a whole run takes
 * on it, with failures. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/search/plan_search.h"
#include "sim/run_sums.h"
#include "sim/whole_run/goodput.h"
#include "sim/whole_run/stop_rates.h"

enum { SHORT_SEARCH = 96 };

/* What trireme plan --goodput takes where nothing is known. */
static const double save_s = 10, restart_s = 600;

/* Of a run of so many steps. */
static void add_run(const tri_plan_search *p, tri_plan_size *size)
{
    double step_tokens = (double)p->found.facts.batch * (double)p->found.facts.seq_len;
    tri_goodput_case c = {.num_devices = size->devices,
                          .device_mtbf_s = tri_stop_rate_mtbf(tri_stop_rate_at(0)),
                          .step_s = size->best.seconds,
                          .num_steps = p->tokens / step_tokens,
                          .save_s = save_s,
                          .blocking = 1,
                          .restart_s = restart_s};
    tri_goodput run;
    size->days = INFINITY;
    if (p->tokens <= 0 || tri_goodput_of(&c, &run, NULL) != TR_OK)
        return;
    const tri_run_facts facts = {.num_devices = size->devices,
                                 .watts = p->watts,
                                 .overhead = 1,
                                 .price = p->price,
                                 .rate = 1,
                                 .flops = run.wall_s * size->devices};
    tri_run_sums sums = tri_run_sums_of(&facts);
    size->days = run.wall_s / 86400;
    size->effective = run.effective;
    size->device_hours = sums.device_hours;
    size->kwh = sums.kwh;
    size->money = sums.money;
}

static tr_status try_size(tri_plan_search *p, uint32_t devices, tr_error *err)
{
    tri_plan_size *size = &p->sizes[p->num_sizes];
    tri_search_case c;
    *size = (tri_plan_size){.devices = devices};
    TRI_TRY(tri_plan_search_size(p, devices, err));
    c = p->of;
    c.brief = true;
    c.num_best = 1;
    c.most_exact = SHORT_SEARCH;
    tri_search_fini(&p->found);
    TRI_TRY(tri_search_run(&c, &p->found, err));
    if (p->found.num_best > 0) {
        size->fits = true;
        size->best = p->found.results[p->found.best[0]];
        add_run(p, size);
    }
    p->num_sizes++;
    return TR_OK;
}

/* What is to be least. */
static double score(const tri_plan_search *p, const tri_plan_size *size)
{
    switch (p->objective) {
    case TRI_OBJECTIVE_MEMORY:
        return (double)size->best.bytes;
    case TRI_OBJECTIVE_ENERGY:
    case TRI_OBJECTIVE_MONEY:
        return size->best.seconds * size->devices;
    default:
        return size->best.seconds;
    }
}

/* The cheapest that is quick enough; without --days the best by the objective. */
static void choose(tri_plan_search *p)
{
    p->chosen = SIZE_MAX;
    for (size_t i = 0; i < p->num_sizes; i++) {
        const tri_plan_size *size = &p->sizes[i];
        if (!size->fits || (p->days > 0 && size->days > p->days))
            continue;
        double its = p->days > 0 ? size->device_hours : score(p, size);
        const tri_plan_size *best = p->chosen == SIZE_MAX ? NULL : &p->sizes[p->chosen];
        if (!best || its < (p->days > 0 ? best->device_hours : score(p, best)))
            p->chosen = i;
    }
}

void tri_plan_search_add_run(tri_plan_search *p)
{
    if (p->found.num_best == 0)
        return;
    p->sizes[0] = (tri_plan_size){
        .devices = p->of.machine.devices, .fits = true, .best = p->found.results[p->found.best[0]]};
    add_run(p, &p->sizes[0]);
    p->num_sizes = 1;
    choose(p);
}

tr_status tri_plan_search_sizes(tri_plan_search *p, tr_error *err)
{
    uint32_t least = p->least_devices, most = p->most_devices;
    for (uint64_t n = least; n <= most && p->num_sizes < TRI_PLAN_SIZES; n *= 2)
        TRI_TRY(try_size(p, (uint32_t)n, err));
    choose(p);
    if (p->chosen == SIZE_MAX)
        return TR_OK;
    tri_search_fini(&p->found);
    TRI_TRY(tri_plan_search_size(p, p->sizes[p->chosen].devices, err));
    return tri_search_run(&p->of, &p->found, err);
}

/* ---- for people ---- */

static void add_number(tri_text *text, const char *format, double value, const char *none)
{
    if (isfinite(value) && value > 0)
        tri_text_add(text, format, value);
    else
        tri_text_add(text, "%s", none);
}

static void add_row(const tri_plan_search *p, size_t i, tri_text *text)
{
    const tri_plan_size *size = &p->sizes[i];
    tri_text_add(text, "%s%7u", i == p->chosen ? "*" : " ", size->devices);
    if (!size->fits) {
        tri_text_add(text, "   no layout fits\n");
        return;
    }
    tri_text_add(text, " %9.3f s %6.1f %% %7.1f ", size->best.seconds, 100 * size->best.mfu,
                 (double)size->best.bytes / 0x1p30);
    if (p->tokens > 0) {
        add_number(text, "%9.1f ", size->days, "        - ");
        add_number(text, "%12.0f ", size->device_hours, "           - ");
        add_number(text, "%12.0f ", size->kwh, "           - ");
        add_number(text, "%12.0f ", size->money, "           - ");
    }
    tri_choice_text(&size->best.choice, text);
    tri_text_add(text, "\n");
}

tr_status tri_plan_search_sizes_text(const tri_plan_search *p, tr_error *err)
{
    tri_text text;
    char tokens[16];
    tri_text_init(&text);
    if (p->num_sizes == 1)
        tri_text_add(&text, "\n");
    tri_text_add(&text, " devices        step      MFU     GiB %slayout\n",
                 p->tokens > 0 ? "     days device-hours          kWh        money " : "");
    for (size_t i = 0; i < p->num_sizes; i++)
        add_row(p, i, &text);
    if (p->tokens > 0)
        tri_text_add(
            &text,
            "\na run of %s tokens, with failures as often as %s, %g s for a save and %g min for "
            "a restart (trireme plan --goodput has more to say)\n",
            tri_text_count(p->tokens, tokens), tri_stop_rate_at(0)->source, save_s, restart_s / 60);
    if (p->chosen == SIZE_MAX && p->days > 0)
        tri_text_add(&text, "\n%s %g days or less\n",
                     p->num_sizes > 1 ? "none of them takes" : "it does not take", p->days);
    else if (p->chosen != SIZE_MAX && p->num_sizes > 1)
        tri_text_add(&text, "\n* %s\n\n",
                     p->days > 0 ? "the fewest device-hours of those that are quick enough"
                     : p->objective == TRI_OBJECTIVE_TIME   ? "the fastest"
                     : p->objective == TRI_OBJECTIVE_MEMORY ? "the least memory of a rank"
                                                            : "the fewest device-hours");
    tr_status status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}
