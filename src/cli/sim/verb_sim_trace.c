/* trireme sim --trace RUN_DIR: the pipeline of a run as it was, from the trace of its ranks; drawn
 * and tabulated like a simulation. The last step that every rank has recorded is shown. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "cli/doc/docs.h"
#include "cli/sim/verb_sim.h"
#include "compile/pipeline.h"
#include "run/trace/trace_read.h"
#include "train/run/run_trace.h"

typedef struct measured {
    const char *dir;
    tri_sim_case c;
    int stride;     /* ranks from one stage to the next */
    double *update; /* [stage], ms */
    double first;   /* start of the step */
    tri_trace_head head;
} measured;

static tri_action_kind kind_of(const char *name)
{
    int k = 0;
    while (k < TRI_NUM_ACTIONS && strcmp(tri_action_name((tri_action_kind)k), name) != 0)
        k++;
    return (tri_action_kind)k;
}

static void note_action(measured *m, uint32_t stage, const tri_trace_line *line)
{
    tri_sim *sim = &m->c.sim;
    tri_action_kind kind = kind_of(line->name);
    double start = (double)line->start_ns * 1e-6, length = (double)line->duration_ns * 1e-6;
    const tri_action_list *list = &m->c.schedule.ranks[stage];
    if (kind == TRI_ACTION_U && m->c.schedule.update_every == 0)
        m->update[stage] = length;
    for (size_t i = 0; i < list->count; i++) {
        const tri_action *a = &list->actions[i];
        bool same =
            a->kind == kind && a->microbatch == line->microbatch &&
            (kind == TRI_ACTION_U ? line->chunk == TRI_UPDATE_ALL : a->chunk == line->chunk);
        if (!same)
            continue;
        uint32_t id = sim->index.first[stage] + (uint32_t)i;
        sim->start[id] = start;
        sim->end[id] = start + length;
        m->first = fmin(m->first, start);
    }
}

static tr_status note_line(void *context, const tri_trace_line *line, tr_error *err)
{
    measured *m = context;
    uint32_t stage = (uint32_t)(line->rank / m->stride);
    (void)err;
    if (strcmp(line->category, "action") == 0 && line->rank % m->stride == 0 &&
        stage < m->c.schedule.num_ranks && line->step == m->head.first_step + m->head.num_steps - 1)
        note_action(m, stage, line);
    return TR_OK;
}

static tr_status read_trace(measured *m, tr_error *err)
{
    char path[4200];
    tri_run_trace_gather_left(m->dir);
    snprintf(path, sizeof path, "%s/trace.json", m->dir);
    return tri_advise(err, tri_trace_read(path, &m->head, note_line, m, err),
                      "train with --set run.trace=true to have one");
}

/* Every action must have been found, and times count from the first. */
static tr_status settle(measured *m, tr_error *err)
{
    tri_sim *sim = &m->c.sim;
    for (uint32_t r = 0; r < m->c.schedule.num_ranks; r++)
        for (size_t i = 0; i < m->c.schedule.ranks[r].count; i++) {
            const tri_action *a = &m->c.schedule.ranks[r].actions[i];
            uint32_t id = sim->index.first[r] + (uint32_t)i;
            char text[48];
            if (!tri_action_computes(a->kind))
                continue;
            if (sim->end[id] <= 0)
                return tri_fail(err, TR_ERROR_INPUT,
                                "the trace of stage %u lacks %s; did a rank of it fail? "
                                "train again with --set run.trace=true",
                                r, tri_action_text(a, text));
            sim->start[id] -= m->first;
            sim->end[id] -= m->first;
        }
    return TR_OK;
}

static tr_status show(measured *m, const tri_cli *cli, const tri_compile_config *config,
                      tr_error *err)
{
    tri_action_costs costs = {.update_by_rank = m->update};
    TRI_TRY(tri_sim_finish(&m->c.sim, &costs, err));
    char title[256];
    snprintf(title, sizeof title, "%.60s as measured: %u stages, %u micro-batches",
             config->schedule, m->c.schedule.num_ranks, m->c.schedule.num_microbatches);
    if (tri_cli_flag(cli, "json")) {
        json_t *doc = tri_doc_begin();
        tri_doc_text(doc, "title", title);
        tri_doc_text(doc, "run", m->dir);
        tri_doc_sim(doc, &m->c, "ms");
        TRI_TRY(tri_doc_print(doc, stdout, err));
    } else {
        tri_text_print(stdout, "%s\ntimes in ms, of the last step of %s\n\n", title, m->dir);
        TRI_TRY(tri_sim_show_times(&m->c, "ms", err));
    }
    return tri_cli_flag(cli, "draw") ? tri_sim_write_svg(cli, &m->c, title, err) : TR_OK;
}

static tr_status run(measured *m, const tri_cli *cli, tr_session *session, tr_error *err)
{
    const tri_compile_config *config = &session->session.config.compile;
    tri_pipeline pipeline;
    TRI_TRY(tri_pipeline_init(&pipeline, config, err));
    m->stride = pipeline.exists ? tri_mesh_ranks(&config->mesh) / pipeline.stages.num_ranks : 1;
    tr_status status = pipeline.exists ? TR_OK
                                       : tri_fail(err, TR_ERROR_INPUT,
                                                  "%s was no pipeline: layout.pp is 1", m->dir);
    m->c.schedule = pipeline.schedule;
    m->first = (double)INFINITY;
    if (status == TR_OK)
        status = tri_sim_begin(&pipeline.schedule, &m->c.sim, err);
    if (status == TR_OK) {
        m->update = calloc(pipeline.schedule.num_ranks, sizeof *m->update);
        status = m->update ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the trace");
        if (status == TR_OK)
            status = read_trace(m, err);
        if (status == TR_OK)
            status = settle(m, err);
        if (status == TR_OK)
            status = show(m, cli, config, err);
        free(m->update);
        tri_sim_fini(&m->c.sim);
    }
    tri_pipeline_fini(&pipeline);
    return status;
}

tr_status tri_sim_trace(const tri_cli *cli, tr_error *err)
{
    measured m = {.dir = tri_cli_flag(cli, "trace")};
    char config[4200];
    tr_settings *settings;
    tr_session *session = NULL;
    snprintf(config, sizeof config, "%s/config.yaml", m.dir);
    TRI_TRY(tr_settings_create(&settings, err));
    tr_status status = tr_settings_load(settings, config, err);
    if (status == TR_OK)
        status = tri_api_compile(settings, 0, &session, err);
    if (status == TR_OK)
        status = run(&m, cli, session, err);
    if (session)
        tr_session_destroy(session);
    tr_settings_destroy(settings);
    return status;
}
