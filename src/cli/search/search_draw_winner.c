/* A step of the winner, drawn as trireme sim --draw does. */
#include "cli/search/search_draw.h"

/* What pictures need of a measured profile besides what was measured: rates of operators within a
 * stretch that was timed whole. */
typedef struct winner_device {
    tri_device_spec spec;
    tri_link_spec link;
    tri_device_model model;
} winner_device;

static void describe_device(const tri_plan_search *p, winner_device *d)
{
    d->spec = *tri_sim_machine_device(&p->machine);
    d->spec.memory_bytes = p->device_bytes;
    d->link = *p->machine.roofline.link;
    d->model = p->machine.roofline;
    d->model.device = &d->spec;
    d->model.link = &d->link;
    if (!p->is_measured)
        return;
    for (int r = 0; r < TRI_NUM_RATES; r++)
        d->spec.dense[r] = p->profile.dense[r];
    d->model.rate = d->spec.dense[TRI_RATE_16] > 0 ? TRI_RATE_16 : TRI_RATE_F32;
}

static tr_status draw_step(const tri_plan_search *p, const char *title,
                           const tri_stage_programs *stages, tri_step_case *of,
                           const bool wanted[TRI_NUM_PICTURES], tri_text text[TRI_NUM_PICTURES],
                           tr_error *err)
{
    winner_device device;
    tri_step_sim step;
    describe_device(p, &device);
    if (p->is_measured)
        of->costs = tri_roofline_costs(&device.model);
    TRI_TRY(tri_step_sim_run(of, &step, err));
    const tri_picture_case c = {.step = of,
                                .sim = &step,
                                .title = title,
                                .device = &device.spec,
                                .rate = device.model.rate,
                                .with_host =
                                    tri_device_shares_host(stages->sessions[0]->device.def)};
    tr_status status = tri_pictures_draw(&c, wanted, text, err);
    tri_step_sim_fini(&step);
    return status;
}

static tr_status draw_programs(const tri_plan_search *p, const char *title, tr_settings *settings,
                               const bool wanted[TRI_NUM_PICTURES], tri_text text[TRI_NUM_PICTURES],
                               tr_error *err)
{
    const tri_layout_result *best = &p->found.results[p->found.best[0]];
    tri_stage_programs stages;
    tri_measured_model model;
    tri_step_case of;
    TRI_TRY(tri_layout_compile(&p->of.machine, settings, TRI_PROGRAMS_TRAIN, true, &stages, err));
    tr_status status =
        tri_layout_step_case(&p->of.machine, &stages, best->choice.group_lanes, &model, &of, err);
    if (status == TR_OK)
        status = draw_step(p, title, &stages, &of, wanted, text, err);
    tri_measured_model_fini(&model);
    tri_stage_programs_fini(&stages);
    return status;
}

tr_status tri_plan_search_draw_winner(const tri_plan_search *p, const char *title,
                                      const bool wanted[TRI_NUM_PICTURES],
                                      tri_text text[TRI_NUM_PICTURES], tr_error *err)
{
    const tri_layout_result *best = &p->found.results[p->found.best[0]];
    tr_settings *settings;
    TRI_TRY(tri_layout_settings(p->of.settings, &best->choice, tri_fit_budget(&p->of.machine),
                                &settings, err));
    tr_status status = draw_programs(p, title, settings, wanted, text, err);
    tr_settings_destroy(settings);
    return status;
}
