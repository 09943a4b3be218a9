/* Trying a layout: settings, programs, their memory, the time of a step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "cli/advise/advise_parts.h"
#include "config/settings_internal.h"
#include "train/plan/stage_programs.h"

/* Twice the rows that equal loads of experts need; a step that needs more is done again. */
static const char *const expert_room = "2";

/* Under ZeRO 3, in layers: with one the gather of the next layer stands behind the sum of gradients
 * that is under way, and little of it is hidden. */
static const char *const gathered_ahead = "2";

/* Settings of a layout that may be given beside the advice: they choose no sizes. */
static const char *const free_settings[] = {"layout.bucket_mb", "layout.prefetch", "layout.cp_kind",
                                            "layout.cp_deal"};

static bool is_free(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof free_settings / sizeof *free_settings; i++)
        if (strlen(free_settings[i]) == length && strncmp(name, free_settings[i], length) == 0)
            return true;
    return false;
}

tr_status tri_advise_may_set(const char *assignment, tr_error *err)
{
    size_t length = strcspn(assignment, "=");
    if (strncmp(assignment, "layout.", 7) != 0 || is_free(assignment, length))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "--advise chooses %.*s, and %.60s is given; leave it out, or time a layout of "
                    "your own: trireme sim --device or --cluster",
                    (int)length, assignment, assignment);
}

const char *tri_advised_redo_value(tri_advised_redo redo)
{
    static const char *const values[TRI_NUM_ADVISED_REDO] = {"none", "every:2", "full"};
    return values[redo];
}

int64_t tri_advised_ranks(const tri_advised_layout *layout)
{
    return layout->dp * layout->tp * layout->cp * layout->pp;
}

/* ---- settings ---- */

static const char *fallback_of(const tr_settings *settings, const char *name)
{
    const tri_table *table = tri_settings_table(settings);
    for (int i = 0; i < table->num; i++)
        if (strcmp(table->row[i]->name, name) == 0)
            return table->row[i]->fallback;
    return "";
}

typedef struct assignment_list {
    const tri_advice *advice;
    char (*items)[TRI_ADVISE_ASSIGNMENT];
    int num;
} assignment_list;

/* A value that is the default needs no word, unless the user's file has another. */
static void assign(assignment_list *list, const char *name, const char *value)
{
    if (list->num == TRI_ADVISE_SETTINGS ||
        (strcmp(value, fallback_of(list->advice->given, name)) == 0 &&
         !tr_settings_given(list->advice->given, name)))
        return;
    snprintf(list->items[list->num++], TRI_ADVISE_ASSIGNMENT, "%s=%s", name, value);
}

static void assign_count(assignment_list *list, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    assign(list, name, text);
}

int tri_advised_settings(const tri_advice *advice, const tri_advised_layout *layout,
                         char settings[TRI_ADVISE_SETTINGS][TRI_ADVISE_ASSIGNMENT])
{
    assignment_list list = {.advice = advice, .items = settings};
    assign(&list, "layout.auto", "false");
    assign_count(&list, "layout.dp", layout->dp);
    assign_count(&list, "layout.tp", layout->tp);
    assign_count(&list, "layout.cp", layout->cp);
    assign_count(&list, "layout.pp", layout->pp);
    assign_count(&list, "layout.ep", layout->ep);
    assign(&list, "layout.ep_room", layout->ep > 1 ? expert_room : "0");
    assign(&list, "layout.sp", layout->sp ? "true" : "false");
    assign_count(&list, "layout.zero", layout->zero);
    if (layout->zero == 3 && !tr_settings_given(advice->given, "layout.prefetch"))
        assign(&list, "layout.prefetch", gathered_ahead);
    assign_count(&list, "layout.microbatches", layout->microbatches);
    assign(&list, "layout.recompute", tri_advised_redo_value(layout->redo));
    if (!tr_settings_given(advice->given, "run.lanes"))
        assign(&list, "run.lanes", layout->group_lanes ? "group" : "one");
    return list.num;
}

char *tri_advised_words(const tri_advised_layout *l, char text[120])
{
    const struct {
        const char *name;
        int64_t size;
    } axes[] = {{"dp", l->dp}, {"tp", l->tp}, {"cp", l->cp}, {"pp", l->pp}, {"ep", l->ep}};
    int used = 0;
    *text = 0;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (axes[i].size > 1)
            used += snprintf(text + used, 120 - (size_t)used, "%s%s %lld", used ? " " : "",
                             axes[i].name, (long long)axes[i].size);
    if (!used)
        used = snprintf(text, 120, "1 device");
    if (l->sp)
        used += snprintf(text + used, 120 - (size_t)used, " sp");
    if (l->dp * l->cp > 1)
        used += snprintf(text + used, 120 - (size_t)used, ", zero %d", l->zero);
    used += snprintf(text + used, 120 - (size_t)used, ", mb %lld", (long long)l->microbatches);
    if (l->redo)
        snprintf(text + used, 120 - (size_t)used, ", %s", tri_advised_redo_value(l->redo));
    return text;
}

static tr_status set_layout(const tri_advice *advice, const tri_advised_layout *layout,
                            tr_settings *settings, tr_error *err)
{
    char items[TRI_ADVISE_SETTINGS][TRI_ADVISE_ASSIGNMENT];
    int num = tri_advised_settings(advice, layout, items);
    for (int i = 0; i < num; i++)
        TRI_TRY(tr_settings_set(settings, items[i], err));
    if (layout->batch == 0)
        return TR_OK;
    char batch[40];
    snprintf(batch, sizeof batch, "train.batch=%lld", (long long)layout->batch);
    return tr_settings_set(settings, batch, err);
}

/* ---- what a trial is found to have ---- */

static uint64_t states_of(const tri_stage_programs *stages, uint32_t stage)
{
    const tri_store *store = &stages->sessions[stages->like[stage]]->store;
    return store->slabs[TRI_SLAB_PARAM].bytes + store->slabs[TRI_SLAB_COPY].bytes +
           store->slabs[TRI_SLAB_GRAD].bytes + store->slabs[TRI_SLAB_OPTIM].bytes +
           store->laid_grad_bytes;
}

static void read_memory(const tri_advice *advice, const tri_stage_programs *stages,
                        tri_advised_trial *trial)
{
    uint32_t fullest = 0;
    for (uint32_t s = 1; s < stages->num_stages; s++)
        if (stages->planned_bytes[s] > stages->planned_bytes[fullest])
            fullest = s;
    trial->plan_bytes = stages->planned_bytes[fullest];
    trial->state_bytes = states_of(stages, fullest);
    trial->fits = trial->plan_bytes <= advice->room_bytes;
}

static double bytes_over(const tri_program *program, const tri_step_sim *step, uint32_t axis)
{
    double bytes = 0;
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            const tri_instr *instr = &program->instrs[i];
            if (instr->message == TRI_NONE || !tri_instr_leads(program, i) ||
                !tri_call_runs(&program->calls[c], instr) ||
                tri_step_axis(step, program, instr->message) != axis)
                continue;
            bytes += (double)tri_message_bytes(&program->messages[instr->message]);
        }
    }
    return bytes;
}

static void read_times(const tri_stage_programs *stages, const tri_step_sim *step,
                       tri_advised_trial *trial)
{
    uint32_t slowest = step->slowest;
    trial->timed = true;
    trial->seconds = step->timing.seconds;
    trial->mfu = step->mfu;
    trial->idle_share = step->timing.ranks[slowest].idle / step->timing.seconds;
    for (uint32_t a = 0; a < step->num_axes && a < TRI_ADVISE_AXES; a++) {
        tri_advised_axis *axis = &trial->axes[trial->num_axes++];
        snprintf(axis->name, sizeof axis->name, "%s", step->axis[a]);
        axis->exposed_s = step->exposed[slowest][a];
        axis->hidden_s = step->hidden[slowest][a];
        axis->bytes = bytes_over(stages->programs[slowest], step, a);
    }
}

static tr_status time_step(tri_advice *advice, const tri_stage_programs *stages,
                           tri_advised_trial *trial, tr_error *err)
{
    tri_step_sim step;
    tri_step_case of_step = {.programs = stages->programs,
                             .planned_bytes = stages->planned_bytes,
                             .num_stages = stages->num_stages,
                             .stride = stages->stride,
                             .one_lane = !stages->by_group,
                             .in_place = true,
                             .brief = true};
    tri_sim_machine_costs(advice->machine, &of_step);
    TRI_TRY(tri_step_sim_run(&of_step, &step, err));
    read_times(stages, &step, trial);
    advice->num_timed++;
    tri_step_sim_fini(&step);
    return TR_OK;
}

static void read_model(tri_advice *advice, const tri_stage_programs *stages)
{
    const tri_session *session = stages->sessions[0];
    const tri_compile_config *compile = &session->config.compile;
    tri_advised_model *model = &advice->model;
    const char *preset = tr_settings_string(advice->given, "model.preset");
    snprintf(model->name, sizeof model->name, "%s", *preset ? preset : compile->model.kind);
    model->params = model->active = (double)tri_param_total(&session->params);
    model->moe = compile->model.moe.num_experts > 0;
    if (model->moe)
        model->active = (double)tri_moe_active(&compile->model.moe, &session->params);
    model->num_experts = compile->model.moe.num_experts;
    model->num_layers = compile->model.num_layers;
    model->dim = compile->model.dim;
    model->ffn_dim = compile->model.ffn_dim;
    model->seq_len = compile->seq_len;
}

/* ---- trying ---- */

/* Programs of a step alone are enough to choose by; whole: with those of evaluation, whose memory
 * the plan of a run counts, too. */
typedef enum advised_extent { ONE_STEP, WHOLE_RUN } advised_extent;

static tr_status compile_and_time(tri_advice *advice, tri_advised_trial *trial,
                                  advised_extent extent, tr_error *err)
{
    tr_settings *settings;
    tri_session_config config = {0};
    tri_stage_programs stages;
    TRI_TRY(tri_settings_clone(advice->base, &settings, err));
    tr_status status = set_layout(advice, &trial->layout, settings, err);
    if (status == TR_OK)
        status = tri_api_describe(settings, &config, err);
    if (extent != WHOLE_RUN)
        config.programs = 1 << TRI_PROGRAM_TRAIN;
    if (status == TR_OK)
        status = tri_stage_programs_compile(&config, false, &stages, err);
    if (status == TR_OK) {
        read_memory(advice, &stages, trial);
        if (advice->model.params <= 0)
            read_model(advice, &stages);
        if (extent == ONE_STEP && trial->fits && trial->layout.batch == 0)
            status = time_step(advice, &stages, trial, err);
        tri_stage_programs_fini(&stages);
    }
    tr_settings_destroy(settings);
    return status;
}

bool tri_advised_same(const tri_advised_layout *a, const tri_advised_layout *b)
{
    return a->dp == b->dp && a->tp == b->tp && a->cp == b->cp && a->ep == b->ep && a->pp == b->pp &&
           a->microbatches == b->microbatches && a->zero == b->zero && a->redo == b->redo &&
           a->sp == b->sp && a->group_lanes == b->group_lanes && a->batch == b->batch;
}

static int trial_of(tri_advice *advice, const tri_advised_layout *layout)
{
    for (int t = 0; t < advice->num_trials; t++)
        if (tri_advised_same(&advice->trials[t].layout, layout))
            return t;
    if (advice->num_trials == TRI_ADVISE_TRIALS)
        return -1;
    advice->trials[advice->num_trials] = (tri_advised_trial){.layout = *layout};
    return advice->num_trials++;
}

static void note_smallest(tri_advice *advice, int t)
{
    if (tri_advised_ranks(&advice->trials[t].layout) > advice->devices)
        return;
    if (advice->trials[t].plan_bytes < advice->trials[advice->smallest].plan_bytes)
        advice->smallest = t;
}

int tri_advise_try(tri_advice *advice, const tri_advised_layout *layout)
{
    tr_error err = {0};
    int t = trial_of(advice, layout);
    if (t < 0)
        return -1;
    tri_advised_trial *trial = &advice->trials[t];
    if (*trial->refused || trial->plan_bytes > 0)
        return t;
    if (compile_and_time(advice, trial, ONE_STEP, &err) != TR_OK)
        snprintf(trial->refused, sizeof trial->refused, "%.190s", err.message);
    else
        note_smallest(advice, t);
    return t;
}

const tri_advised_trial *tri_advise_trial(const tri_advice *advice, int trial)
{
    return &advice->trials[trial];
}

tr_status tri_advise_alone(tri_advice *advice, tr_error *err)
{
    tr_settings *settings;
    tri_session_config config;
    TRI_TRY(tri_settings_clone(advice->base, &settings, err));
    tr_status status = tri_api_describe(settings, &config, err);
    int64_t batch = advice->model.batch = status == TR_OK ? config.compile.batch : 1;
    tr_settings_destroy(settings);
    TRI_TRY(status);
    tri_advised_layout layout = {.dp = 1, .tp = 1, .cp = 1, .ep = 1, .pp = 1};
    layout.microbatches = batch > 2 ? 2 : batch; /* more make the program longer, not its plan */
    layout.batch = layout.microbatches < batch ? layout.microbatches : 0;
    advice->trials[0] = (tri_advised_trial){.layout = layout};
    advice->num_trials = 1;
    TRI_TRY(compile_and_time(advice, &advice->trials[0], ONE_STEP, err));
    return TR_OK;
}

/* The fastest that fits, of those that were timed. */
static int fastest(const tri_advice *advice)
{
    int best = -1;
    for (int t = 0; t < advice->num_trials; t++) {
        const tri_advised_trial *trial = &advice->trials[t];
        if (trial->timed && trial->fits &&
            (best < 0 || trial->seconds < advice->trials[best].seconds))
            best = t;
    }
    return best;
}

void tri_advise_settle(tri_advice *advice)
{
    while (advice->chosen >= 0) {
        tr_error err = {0};
        tri_advised_trial *trial = &advice->trials[advice->chosen];
        if (compile_and_time(advice, trial, WHOLE_RUN, &err) == TR_OK && trial->fits)
            return;
        trial->fits = false;
        advice->chosen = fastest(advice);
    }
}
