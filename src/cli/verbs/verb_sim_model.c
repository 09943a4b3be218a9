/* trireme sim FILE.yaml --device NAME: the pipeline of a layout, timed by the roofline of the very
 * programs that would run it, on a device from the table of `trireme place --devices`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "cli/doc/docs.h"
#include "cli/verbs/verb_sim.h"
#include "compile/pipeline.h"
#include "sim/program_costs.h"

typedef struct model_sim {
    const tri_cli *cli;
    int num_ranks; /* of the pipeline */
    tr_session **sessions;
    const tri_program **programs;
    double *by_chunk, *by_pair, *update;
} model_sim;

static tr_status describe(const tri_cli *cli, const tri_compile_config *config,
                          tri_device_model *model, tr_error *err)
{
    const char *name = tri_cli_flag(cli, "device"), *link = tri_cli_flag(cli, "link");
    const char *share = tri_cli_flag(cli, "efficiency");
    model->device = tri_device_spec_find(name);
    if (!model->device)
        return tri_fail(err, TR_ERROR_INPUT,
                        "there is no device \"%.40s\"; `trireme place --devices` lists them", name);
    model->link = tri_link_spec_find(link ? link : model->device->link);
    if (!model->link)
        return tri_fail(err, TR_ERROR_INPUT,
                        "there is no link \"%.40s\"; `trireme place --devices` lists them", link);
    model->rate = config->precision.compute == TRI_F32 ? TRI_RATE_F32 : TRI_RATE_16;
    if (model->device->dense[model->rate] <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the table has no %s rate of %s; set another precision.kind",
                        tri_rate_name(model->rate), model->device->title);
    if (config->precision.linear8 && model->device->dense[TRI_RATE_FP8] <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the table has no %s rate of %s; set precision.linear=same, or take a "
                        "device that has one, such as h100",
                        tri_rate_name(TRI_RATE_FP8), model->device->title);
    char *end = NULL;
    model->efficiency = share ? strtod(share, &end) : 0.5;
    if (share && (*end || !(model->efficiency > 0) || model->efficiency > 1))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--efficiency is \"%.20s\"; give the share of the datasheet that is "
                        "reached, such as 0.5",
                        share);
    return TR_OK;
}

/* The programs of the ranks that differ by their place on the pipeline alone. */
static tr_status compile_stages(model_sim *m, tr_error *err)
{
    int64_t stride = tri_cli_num_ranks(m->cli) / m->num_ranks;
    for (int r = 0; r < m->num_ranks; r++) {
        TRI_TRY(tri_api_compile(m->cli->settings, (int)(r * stride), &m->sessions[r], err));
        m->programs[r] = &m->sessions[r]->session.programs[TRI_PROGRAM_TRAIN];
    }
    return TR_OK;
}

static void print_stages(const model_sim *m)
{
    char bytes[16], flops[16];
    printf("stage   plan's memory   layers' FLOP   update\n");
    for (int r = 0; r < m->num_ranks; r++)
        printf("%5d %15s %14s %7.3g ms\n", r,
               tri_text_bytes((double)tri_session_planned_bytes(&m->sessions[r]->session), bytes),
               tri_text_count(tri_program_cost(m->programs[r]).flops, flops), m->update[r]);
    printf("\n");
}

/* A simulation of a model on a device, with all that is said of it. */
typedef struct model_times {
    const model_sim *m;
    const tri_sim_case *c;
    const tri_device_model *model;
    const char *title;
    double message_ms, tokens;
} model_times;

static tr_status print_times(const model_times *t, tr_error *err)
{
    char number[32], rate[16];
    printf("%s\ntimes in ms; a message between stages takes %.3g ms over %s\n\n", t->title,
           t->message_ms, t->model->link->title);
    print_stages(t->m);
    TRI_TRY(tri_sim_show_times(t->c, "ms", err));
    printf("a step of %s tokens: %.4g ms, %s tokens/s\n",
           tri_text_grouped((int64_t)t->tokens, number), t->c->sim.makespan,
           tri_text_count(t->tokens / t->c->sim.makespan * 1e3, rate));
    return TR_OK;
}

static tr_status print_json(const model_times *t, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "title", t->title);
    tri_doc_text(doc, "device", t->model->device->name);
    tri_doc_text(doc, "link", t->model->link->name);
    tri_doc_number(doc, "message_ms", t->message_ms);
    tri_doc_count(doc, "tokens", (int64_t)t->tokens);
    tri_doc_number(doc, "tokens_per_second", t->tokens / t->c->sim.makespan * 1e3);
    json_t *list = tri_doc_list(doc, "stages");
    for (int r = 0; r < t->m->num_ranks; r++) {
        json_t *item = tri_doc_item(list);
        tri_doc_count(item, "stage", r);
        tri_doc_count(item, "plan_bytes",
                      (int64_t)tri_session_planned_bytes(&t->m->sessions[r]->session));
        tri_doc_number(item, "flops", tri_program_cost(t->m->programs[r]).flops);
        tri_doc_number(item, "update_ms", t->m->update[r]);
    }
    tri_doc_sim(doc, t->c, "ms");
    return tri_doc_print(doc, stdout, err);
}

static tr_status simulate(model_sim *m, tr_error *err)
{
    TRI_TRY(compile_stages(m, err));
    const tri_compile_config *config = &m->sessions[0]->session.config.compile;
    tri_device_model model;
    tri_pipeline pipeline;
    TRI_TRY(describe(m->cli, config, &model, err));
    TRI_TRY(tri_pipeline_init(&pipeline, config, err));
    size_t chunks = pipeline.schedule.num_chunks;
    m->by_chunk = calloc(TRI_NUM_ACTIONS * chunks, sizeof *m->by_chunk);
    m->by_pair = calloc(chunks * chunks, sizeof *m->by_pair);
    tri_sim_case c = {0};
    tri_action_costs costs;
    tr_status status = m->by_chunk && m->by_pair &&
                               tri_program_pair_costs(m->programs, m->num_ranks, &model, m->by_pair)
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the simulation");
    if (status == TR_OK) {
        tri_program_costs(m->programs, m->num_ranks, &model, m->by_chunk, m->update, &costs);
        for (size_t i = 0; i < TRI_NUM_ACTIONS * chunks; i++)
            m->by_chunk[i] *= 1e3;
        for (size_t i = 0; i < chunks * chunks; i++)
            m->by_pair[i] *= 1e3;
        costs.by_pair = config->pairs ? m->by_pair : NULL;
        for (int r = 0; r < m->num_ranks; r++)
            m->update[r] *= 1e3;
        costs.message *= 1e3;
        status = tri_sim_run(&pipeline.schedule, &costs, &c.sim, err);
    }
    if (status == TR_OK) {
        char title[256];
        snprintf(title, sizeof title,
                 "%.60s on %.60s, %.0f %% of its rates: %d stages, %u micro-batches",
                 config->schedule, model.device->title, 100 * model.efficiency, m->num_ranks,
                 pipeline.schedule.num_microbatches);
        c.schedule = pipeline.schedule;
        model_times times = {
            m, &c, &model, title, costs.message, (double)config->batch * (double)config->seq_len};
        status = tri_cli_flag(m->cli, "json") ? print_json(&times, err) : print_times(&times, err);
        if (status == TR_OK && tri_cli_flag(m->cli, "draw"))
            status = tri_sim_write_svg(m->cli, &c, title, err);
        tri_sim_fini(&c.sim);
    }
    tri_pipeline_fini(&pipeline);
    return status;
}

tr_status tri_sim_model(const tri_cli *cli, tr_error *err)
{
    int64_t pp = tr_settings_int(cli->settings, "layout.pp");
    if (pp < 2)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--device times the pipeline of a layout, but layout.pp is 1; add "
                        "--set layout.pp=4 --set layout.microbatches=8, say");
    model_sim m = {.cli = cli, .num_ranks = (int)pp};
    m.sessions = calloc((size_t)pp, sizeof(tr_session *));
    m.programs = calloc((size_t)pp, sizeof(tri_program *));
    m.update = calloc((size_t)pp, sizeof *m.update);
    tr_status status = m.sessions && m.programs && m.update
                           ? simulate(&m, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the simulation");
    for (int r = 0; r < m.num_ranks && m.sessions; r++)
        if (m.sessions[r])
            tr_session_destroy(m.sessions[r]);
    free(m.sessions);
    free(m.programs);
    free(m.by_chunk);
    free(m.by_pair);
    free(m.update);
    return status;
}
