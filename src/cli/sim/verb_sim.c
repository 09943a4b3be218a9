/* trireme sim: a pipeline schedule, proven, timed with given costs, as table and picture. */
#include "cli/sim/verb_sim.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/settings/nearest.h"
#include "cli/doc/docs.h"
#include "cli/sums/sums.h"
#include "cli/text.h"

tr_status tri_sim_case_time(tri_sim_case *c, const tri_action_costs *costs, tr_error *err)
{
    tr_status status = tri_schedule_check(&c->schedule, err);
    for (uint32_t r = 0; r < c->schedule.num_ranks; r++)
        for (size_t i = 0; i < c->schedule.ranks[r].count; i++)
            c->num_computing += tri_action_computes(c->schedule.ranks[r].actions[i].kind);
    if (status == TR_OK && !c->schedule.has_messages) {
        status = tri_schedule_lower(&c->schedule, err);
        if (status == TR_OK)
            status = tri_schedule_check(&c->schedule, err);
    }
    if (status == TR_OK)
        status = tri_sim_run(&c->schedule, costs, &c->sim, err);
    if (status != TR_OK)
        tri_schedule_fini(&c->schedule);
    return status;
}

tr_status tri_sim_case_init(tri_sim_case *c, const tri_schedule_config *config,
                            const tri_action_costs *costs, tr_error *err)
{
    *c = (tri_sim_case){0};
    TRI_TRY(tri_schedule_build(config, &c->schedule, err));
    tr_status status = tri_sim_case_time(c, costs, err);
    if (status == TR_OK)
        return TR_OK;
    return strncmp(config->order, "csv:", 4) == 0
               ? tri_fail_prefix(err, status, "%s", config->order + 4)
               : status;
}

void tri_sim_case_fini(tri_sim_case *c)
{
    tri_sim_fini(&c->sim);
    tri_schedule_fini(&c->schedule);
}

static tr_status print_list(tr_error *err)
{
    tri_text text;
    tri_text_init(&text);
    for (size_t i = 0; tri_order_at(i); i++) {
        const tri_order *order = tri_order_at(i);
        tri_text_add(&text, "  %-14s %s\n  %-14s needs ", order->name, order->help, "");
        tri_order_needs(order, &text);
        tri_text_add(&text, "\n");
    }
    tri_text_add(&text, "  %-14s your own order, a table of cells (docs/pipelines.md)\n",
                 "csv:FILE");
    tr_status status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}

static tr_status print_list_json(tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tri_doc_schedules(doc);
    return tri_doc_print(doc, stdout, err);
}

static void print_ranks(const tri_sim_case *c)
{
    bool asynchronous = c->schedule.update_every > 0;
    printf(
        "rank     start       end      busy      idle  idle %%    live  weights   sends  inbox%s\n",
        asynchronous ? "  steady idle" : "");
    for (uint32_t i = 0; i < c->schedule.num_ranks; i++) {
        const tri_sim_rank *r = &c->sim.ranks[i];
        double span = r->end - r->start;
        printf("%4u %9.6g %9.6g %9.6g %9.6g %6.1f%% %7u %8.4g %7u %6u", i, r->start, r->end,
               r->busy, span - r->busy, span > 0 ? 100 * (span - r->busy) / span : 0.0,
               r->peak_live, r->weight_copies, r->num_messages, r->peak_inbox);
        if (asynchronous)
            printf("  %11.6g", r->steady_idle);
        printf("\n");
    }
}

static void print_summary(const tri_sim_case *c, const char *unit)
{
    const tri_sim *sim = &c->sim;
    const tri_schedule *s = &c->schedule;
    printf("\ntime %.6g %s from the first start to the last end; a rank works %.6g of it\n",
           sim->makespan, unit, sim->work);
    if (s->update_every)
        printf("no flush: in the steady state a rank is idle for at most %.1f %% of the time; "
               "gradients are up to %u update%s old\n",
               100 * sim->bubble, sim->staleness, sim->staleness == 1 ? "" : "s");
    else
        printf("bubble %.1f %%: the most that a rank is idle between its first and last action "
               "(%.6g %s)\n",
               100 * sim->bubble, sim->idle, unit);
    printf("memory: activations of %.4g micro-batch%s, %.4g cop%s of the weights, in shares of a "
           "rank's layers\n",
           sim->activations, sim->activations == 1 ? "" : "es", sim->weight_copies,
           sim->weight_copies == 1 ? "y" : "ies");
}

static tr_status print_picture(const tri_sim_case *c, tr_error *err)
{
    tri_text text;
    uint32_t needed;
    tri_text_init(&text);
    tri_text_add(&text, "\n");
    if (!tri_sim_draw_text(&c->sim, (uint32_t)tri_terminal_width(stdout), &text, &needed))
        tri_text_add(&text, "the picture takes %u columns; --draw FILE.svg draws it\n", needed);
    else if (c->schedule.num_chunks > c->schedule.num_ranks || c->schedule.num_routes > 1)
        tri_text_add(&text, "small letters: the rank's further chunks\n");
    tr_status status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}

static tr_status write_text(const tri_cli *cli, const char *path, const tri_text *text,
                            tr_error *err)
{
    TRI_TRY(tri_check_output(path, false, err));
    if (text->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to write %s", path);
    TRI_TRY(tri_file_replace(path, text->chars, text->length, err));
    if (!tri_cli_flag(cli, "json"))
        tri_text_print(stdout, "\nwritten: %s\n", path);
    return TR_OK;
}

static tr_status write_csv(const tri_cli *cli, const tri_sim_case *c,
                           const tri_schedule_config *config, tr_error *err)
{
    tri_text text;
    tri_schedule plain = {0};
    bool messages = tri_cli_flag(cli, "comms");
    tri_text_init(&text);
    tr_status status = messages ? TR_OK : tri_schedule_build(config, &plain, err);
    if (status == TR_OK) {
        tri_schedule_write(messages ? &c->schedule : &plain, &text);
        status = write_text(cli, tri_cli_flag(cli, "csv"), &text, err);
    }
    tri_schedule_fini(&plain);
    tri_text_fini(&text);
    return status;
}

tr_status tri_sim_write_svg(const tri_cli *cli, const tri_sim_case *c, const char *title,
                            tr_error *err)
{
    tri_text text;
    tri_text_init(&text);
    tr_status status = tri_sim_draw_svg(&c->sim, title, &text, err);
    if (status == TR_OK)
        status = write_text(cli, tri_cli_flag(cli, "draw"), &text, err);
    tri_text_fini(&text);
    return status;
}

tr_status tri_sim_show_times(const tri_sim_case *c, const char *unit, tr_error *err)
{
    print_ranks(c);
    print_summary(c, unit);
    return print_picture(c, err);
}

static tr_status print_case(const tri_sim_case *c, const tri_action_costs *costs, const char *title,
                            tr_error *err)
{
    const double *k = costs->kind;
    printf("%s\nin units of time a chunk takes F %g, I %g, W %g, B %g; a message %g, an update %g",
           title, k[TRI_ACTION_F], k[TRI_ACTION_I], k[TRI_ACTION_W], k[TRI_ACTION_B],
           costs->message, k[TRI_ACTION_U]);
    if (costs->overlap > 0)
        printf(", an overlapped pair %g", costs->overlap);
    size_t num_messages = (tri_schedule_num_actions(&c->schedule) - c->num_computing) / 2;
    printf("\nproven: %zu actions and %zu messages end, with a lane for each neighbour and with "
           "one lane for all\n\n",
           c->num_computing, num_messages);
    return tri_sim_show_times(c, "units", err);
}

static tr_status print_json(const tri_sim_case *c, const char *title, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "title", title);
    tri_doc_sim(doc, c, "units");
    return tri_doc_print(doc, stdout, err);
}

static tr_status show(const tri_cli *cli, const tri_schedule_config *config,
                      const tri_action_costs *costs, tr_error *err)
{
    tri_sim_case c;
    TRI_TRY(tri_sim_case_init(&c, config, costs, err));
    char title[256];
    const char *name = strrchr(config->order, '/');
    int used = snprintf(title, sizeof title, "%.80s: %u rank%s, %u micro-batch%s",
                        name ? name + 1 : config->order, c.schedule.num_ranks,
                        c.schedule.num_ranks == 1 ? "" : "s", c.schedule.num_microbatches,
                        c.schedule.num_microbatches == 1 ? "" : "es");
    if (c.schedule.chunks_per_rank > 1)
        snprintf(title + used, sizeof title - (size_t)used, ", %u chunks on a rank",
                 c.schedule.chunks_per_rank);
    tr_status status =
        tri_cli_flag(cli, "json") ? print_json(&c, title, err) : print_case(&c, costs, title, err);
    if (status == TR_OK && tri_cli_flag(cli, "draw"))
        status = tri_sim_write_svg(cli, &c, title, err);
    if (status == TR_OK && tri_cli_flag(cli, "csv"))
        status = write_csv(cli, &c, config, err);
    tri_sim_case_fini(&c);
    return status;
}

/* --pp, --microbatches and --chunks; 0 when not given. */
static tr_status read_sizes(const tri_cli *cli, tri_schedule_config *config, tr_error *err)
{
    int64_t pp = 0, microbatches = 0, chunks = 0;
    TRI_TRY(tri_cli_flag_int(cli, "pp", 1, TRI_MAX_PIPELINE_RANKS, &pp, err));
    TRI_TRY(tri_cli_flag_int(cli, "microbatches", 1, TRI_MAX_MICROBATCHES, &microbatches, err));
    TRI_TRY(tri_cli_flag_int(cli, "chunks", 1, TRI_MAX_CHUNKS, &chunks, err));
    config->num_ranks = (uint32_t)pp;
    config->num_microbatches = (uint32_t)microbatches;
    config->chunks_per_rank = (uint32_t)chunks;
    if (strncmp(config->order, "csv:", 4) == 0)
        return TR_OK;
    if (pp == 0)
        config->num_ranks = 4;
    if (microbatches == 0)
        config->num_microbatches = 2 * config->num_ranks;
    return TR_OK;
}

static tr_status unknown_schedule(const char *name, tr_error *err)
{
    const char *nearest = NULL;
    int least = 4; /* edits; more is no slip of the finger */
    for (size_t i = 0; tri_order_at(i); i++) {
        int distance = tri_edit_distance(name, tri_order_at(i)->name);
        if (distance < least && tri_is_slip(name, tri_order_at(i)->name)) {
            least = distance;
            nearest = tri_order_at(i)->name;
        }
    }
    return tri_fail(err, TR_ERROR_INPUT,
                    "there is no schedule \"%.60s\";%s%s%s trireme sim --list tells them all, "
                    "csv:FILE reads your own",
                    name, nearest ? " did you mean " : "", nearest ? nearest : "",
                    nearest ? "?" : "");
}

static tr_status run(const tri_cli *cli, tr_error *err)
{
    const char *name = tri_cli_flag(cli, "schedule"), *cost = tri_cli_flag(cli, "cost");
    tri_schedule_config config = {.order = name ? name : "1f1b"};
    tri_action_costs costs = tri_sim_unit_costs();
    if (tri_cli_flag(cli, "list") || strcmp(config.order, "list") == 0)
        return tri_cli_flag(cli, "json") ? print_list_json(err) : print_list(err);
    if (tri_cli_flag(cli, "collective"))
        return tri_sums_collective(cli, err);
    if (tri_cli_flag(cli, "trace"))
        return tri_sim_trace(cli, err);
    if (tri_cli_flag(cli, "like"))
        return tri_sim_like(cli, err);
    const char *other = tri_cli_flag(cli, "device")       ? "device"
                        : tri_cli_flag(cli, "cluster")    ? "cluster"
                        : tri_cli_flag(cli, "efficiency") ? "efficiency"
                                                          : NULL;
    if (tri_cli_flag(cli, "profile") && other)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--profile is what was measured, --%s what is not here; give one", other);
    if (tri_cli_flag(cli, "device") || tri_cli_flag(cli, "cluster") || tri_cli_flag(cli, "profile"))
        return tri_sim_model(cli, err);
    if (cli->file)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s has a layout, which is timed on a device: add --device h100, or "
                        "--cluster dgx-h100:4, or --profile here; without a file, --schedule and "
                        "--pp tell what to simulate",
                        cli->file);
    if (strncmp(config.order, "csv:", 4) != 0 && !tri_order_find(config.order))
        return unknown_schedule(config.order, err);
    if (tri_cli_flag(cli, "comms") && !tri_cli_flag(cli, "csv"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--comms goes with --csv FILE: it adds sends and receives to the table");
    TRI_TRY(read_sizes(cli, &config, err));
    if (cost)
        TRI_TRY(tri_sim_parse_costs(cost, &costs, err));
    if (!tri_cli_flag(cli, "compare"))
        return show(cli, &config, &costs, err);
    if (name || tri_cli_flag(cli, "draw") || tri_cli_flag(cli, "csv"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--compare shows every schedule; leave --schedule, --draw and --csv out");
    return tri_sim_compare(cli, &config, &costs, err);
}

int tri_verb_sim(const tri_cli *cli)
{
    tr_error err = {0};
    return run(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
