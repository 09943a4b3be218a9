/* trireme sim --trace RUN_DIR: the pipeline of a run as it was, from the traces of its ranks; drawn
 * and tabulated like a simulation. The last step that every rank has recorded is shown. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/json.h"
#include "cli/verbs/verb_sim.h"
#include "compile/pipeline.h"
#include "train/run/run_trace.h"

typedef struct measured {
    const char *dir;
    tri_sim_case c;
    double *update; /* [rank], ms */
    double first;   /* start of the step */
} measured;

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Whether an event is the update that ends a step. */
static bool ends_step(const json_t *event, bool asynchronous)
{
    double part = number_of(json_object_get(event, "args"), "chunk");
    return strcmp(text_of(event, "name"), "U") == 0 &&
           part == (asynchronous ? TRI_UPDATE_END : TRI_UPDATE_ALL);
}

static bool is_action(const json_t *event)
{
    return strcmp(text_of(event, "cat"), "action") == 0;
}

/* Events of the last step that is whole: [*from, *to). */
static bool last_step(const json_t *events, bool asynchronous, size_t *from, size_t *to)
{
    size_t num = json_array_size(events), ends = 0;
    *from = *to = 0;
    for (size_t i = 0; i < num; i++) {
        const json_t *event = json_array_get(events, i);
        if (!is_action(event) || !ends_step(event, asynchronous))
            continue;
        *from = *to;
        *to = i + 1;
        ends++;
    }
    return ends > 0;
}

static tri_action_kind kind_of(const char *name)
{
    int k = 0;
    while (k < TRI_NUM_ACTIONS && strcmp(tri_action_name((tri_action_kind)k), name) != 0)
        k++;
    return (tri_action_kind)k;
}

static void note_event(measured *m, uint32_t rank, const json_t *event)
{
    tri_sim *sim = &m->c.sim;
    const json_t *args = json_object_get(event, "args");
    tri_action_kind kind = kind_of(text_of(event, "name"));
    double chunk = number_of(args, "chunk"), microbatch = number_of(args, "microbatch");
    double start = number_of(event, "ts") * 1e-3, length = number_of(event, "dur") * 1e-3;
    const tri_action_list *list = &m->c.schedule.ranks[rank];
    if (kind == TRI_ACTION_U && m->c.schedule.update_every == 0)
        m->update[rank] = length;
    for (size_t i = 0; i < list->count; i++) {
        const tri_action *a = &list->actions[i];
        bool same = a->kind == kind && a->microbatch == microbatch &&
                    (kind == TRI_ACTION_U ? chunk == TRI_UPDATE_ALL : a->chunk == chunk);
        if (!same)
            continue;
        uint32_t id = sim->index.first[rank] + (uint32_t)i;
        sim->start[id] = start;
        sim->end[id] = start + length;
        m->first = fmin(m->first, start);
    }
}

static tr_status read_rank(measured *m, uint32_t place, int rank, tr_error *err)
{
    char path[4200];
    size_t from, to;
    json_t *root;
    tri_run_trace_path(m->dir, rank, path, sizeof path);
    TRI_TRY(tri_advise(err, tri_json_load_file(path, 0, &root, NULL, err),
                       "train with --set run.trace=true to have one of each rank"));
    const json_t *events = json_object_get(root, "traceEvents");
    bool whole = last_step(events, m->c.schedule.update_every > 0, &from, &to);
    for (size_t i = from; i < to; i++)
        if (is_action(json_array_get(events, i)))
            note_event(m, place, json_array_get(events, i));
    json_decref(root);
    return whole ? TR_OK
                 : tri_fail(err, TR_ERROR_INPUT, "%s has no whole step of a pipeline", path);
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
                                "the trace of stage %u lacks %s; was the run's buffer of events "
                                "full? try fewer steps",
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
    tri_text_print(stdout, "%s\ntimes in ms, of the last step of %s\n\n", title, m->dir);
    TRI_TRY(tri_sim_show_times(&m->c, "ms", err));
    return tri_cli_flag(cli, "draw")
               ? tri_sim_write_svg(tri_cli_flag(cli, "draw"), &m->c, title, err)
               : TR_OK;
}

static tr_status run(measured *m, const tri_cli *cli, tr_session *session, tr_error *err)
{
    const tri_compile_config *config = &session->session.config.compile;
    tri_pipeline pipeline;
    TRI_TRY(tri_pipeline_init(&pipeline, config, err));
    int stride = pipeline.exists ? tri_mesh_ranks(&config->mesh) / pipeline.stages.num_ranks : 1;
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
        for (uint32_t r = 0; r < pipeline.schedule.num_ranks && status == TR_OK; r++)
            status = read_rank(m, r, (int)r * stride, err);
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
