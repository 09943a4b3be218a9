/* What trireme sim FILE.yaml --device prints. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/doc/docs.h"
#include "cli/sim/verb_sim_model.h"
#include "cli/text.h"

static double num_ranks(const tri_model_sim *m)
{
    return (double)m->stages.num_stages * m->stages.stride;
}

static double num_tokens(const tri_model_sim *m)
{
    return (double)m->stages.config->batch * (double)m->stages.config->seq_len;
}

void tri_model_sim_title(tri_model_sim *m)
{
    char order[128] = "";
    if (m->stages.pipeline.exists)
        snprintf(order, sizeof order, ": %.60s, %u stages, %u micro-batches",
                 m->stages.config->schedule, m->stages.num_stages,
                 m->stages.pipeline.schedule.num_microbatches);
    if (m->is_measured) {
        tri_model_sim_profile_title(m, order);
        return;
    }
    char machine[200];
    tri_sim_machine_title(&m->machine, machine, sizeof machine);
    snprintf(m->title, sizeof m->title, "%.0f x %s%s", num_ranks(m), machine, order);
}

/* ---- text ---- */

/* Milliseconds with four digits, never as 1e+04; what is left of sums of doubles is nothing. */
static const char *ms(double seconds, char text[32])
{
    double value = 1e3 * seconds;
    if (fabs(value) < 1e-6)
        return "0";
    if (fabs(value) >= 9999.5)
        return tri_text_grouped((int64_t)llround(value), text);
    snprintf(text, 32, "%.4g", value);
    return text;
}

static void print_stages(const tri_model_sim *m)
{
    const tri_step_sim *step = &m->step;
    printf("ms of a rank%s\nstage", m->stages.num_stages > 1 ? " of each stage" : "");
    for (int k = 0; k < TRI_NUM_TIME_KINDS; k++)
        printf(" %10s", tri_time_kind_name((tri_time_kind)k));
    for (uint32_t a = 0; a < step->num_axes; a++) {
        char name[TRI_STEP_AXIS_NAME + 8];
        snprintf(name, sizeof name, "wait %s", step->axis[a]);
        printf(" %10s", name);
    }
    printf(" %10s %10s %10s %11s\n", "idle", "host", "all", "memory");
    for (uint32_t s = 0; s < m->stages.num_stages; s++) {
        const tri_rank_timing *rank = &step->timing.ranks[s];
        char bytes[16], number[32];
        printf("%5u", s);
        for (int k = 0; k < TRI_NUM_TIME_KINDS; k++)
            printf(" %10s", ms(rank->time[k], number));
        for (uint32_t a = 0; a < step->num_axes; a++)
            printf(" %10s", ms(step->exposed[s][a], number));
        const double rest[] = {rank->idle, rank->host, rank->end};
        for (int r = 0; r < 3; r++)
            printf(" %10s", ms(rest[r], number));
        printf(" %11s\n", tri_text_bytes((double)m->stages.planned_bytes[s], bytes));
    }
}

/* Of the slowest stage: how much of each axis runs beside the computation. */
static void print_hidden(const tri_model_sim *m)
{
    const tri_step_sim *step = &m->step;
    const double *hidden = step->hidden[step->slowest], *exposed = step->exposed[step->slowest];
    char number[32];
    for (uint32_t a = 0; a < step->num_axes; a++)
        if (hidden[a] + exposed[a] > 0)
            printf("messages over %s: %s ms, of which %.0f %% are hidden behind computation%s\n",
                   step->axis[a], ms(hidden[a] + exposed[a], number),
                   100 * hidden[a] / (hidden[a] + exposed[a]),
                   m->stages.num_stages > 1 ? " (slowest stage)" : "");
}

/* What layout.offload puts there, by the program of the fullest stage. */
static void print_elsewhere(const tri_model_sim *m)
{
    const tri_program *program = m->stages.programs[m->step.fullest];
    double bytes[TRI_NUM_WHERE] = {0};
    char text[16];
    for (size_t s = 0; s < program->num_spaces; s++)
        bytes[program->spaces[s].where] += (double)tri_space_total(&program->spaces[s]);
    if (bytes[TRI_WHERE_HOST] > 0)
        printf("on the host of each rank: %s\n", tri_text_bytes(bytes[TRI_WHERE_HOST], text));
    if (bytes[TRI_WHERE_FILE] > 0)
        printf("in a file of each rank: %s\n", tri_text_bytes(bytes[TRI_WHERE_FILE], text));
}

static void print_memory(const tri_model_sim *m)
{
    char need[16], have[16];
    double bytes = (double)m->stages.planned_bytes[m->step.fullest];
    const tri_device_spec *device = tri_sim_machine_device(&m->machine);
    tri_text_bytes(bytes, need);
    tri_text_bytes(device->memory_bytes, have);
    bool fits = bytes <= device->memory_bytes;
    printf("memory: ");
    if (m->stages.num_stages > 1)
        printf("stage %u is the fullest, ", m->step.fullest);
    printf("%s of %s", need, have);
    if (fits)
        printf(": it fits (scratch of the device's libraries comes on top)\n");
    else
        printf(": IT DOES NOT FIT. Raise layout.tp, layout.pp or layout.zero, lower the "
               "micro-batch (layout.microbatches), or set layout.recompute=full\n");
    print_elsewhere(m);
}

static void print_faster(const tri_model_sim *m)
{
    const tri_step_sim *step = &m->step;
    if (step->by_group < 0.99 * step->timing.seconds)
        printf("with run.lanes=group messages of different groups do not wait for each other: "
               "%.1f %% less time\n",
               100 * (1 - step->by_group / step->timing.seconds));
    printf("10 %% more of");
    for (int p = 0; p < TRI_NUM_FASTER; p++)
        printf("%s %s: %.1f %% less time", p ? ";" : "", tri_faster_name((tri_faster)p),
               100 * (1 - step->faster[p] / step->timing.seconds));
    printf("\n");
}

tr_status tri_model_sim_text(const tri_model_sim *m, tr_error *err)
{
    const tri_step_sim *step = &m->step;
    char number[32], time[32], rate[16];
    printf("%s\n\n", m->title);
    print_stages(m);
    printf("\n");
    print_hidden(m);
    if (m->stages.pipeline.exists) {
        printf("\nthe pipeline, times in ms\n");
        TRI_TRY(tri_sim_show_times(&m->schedule, "ms", err));
        printf("\n");
    }
    print_memory(m);
    print_faster(m);
    printf("MFU %.1f %%", 100 * step->mfu);
    if (step->redone_flops > 0)
        printf(", HFU %.1f %%", 100 * step->hfu);
    printf(" of %.4g TFLOP/s, the %s %s rate\n",
           tri_sim_machine_device(&m->machine)->dense[m->machine.rate] * 1e-12,
           m->is_measured ? "measured" : "datasheet's", tri_rate_name(m->machine.rate));
    if (m->is_measured)
        tri_model_sim_profile_text(m);
    printf("a step of %s tokens: %s ms, %s tokens/s\n",
           tri_text_grouped((int64_t)num_tokens(m), number), ms(step->timing.seconds, time),
           tri_text_count(num_tokens(m) / step->timing.seconds, rate));
    return TR_OK;
}

/* ---- JSON ---- */

static void put_stage(const tri_model_sim *m, json_t *list, uint32_t s)
{
    const tri_step_sim *step = &m->step;
    const tri_rank_timing *rank = &step->timing.ranks[s];
    json_t *item = tri_doc_item(list);
    tri_doc_count(item, "stage", s);
    tri_doc_count(item, "plan_bytes", (int64_t)m->stages.planned_bytes[s]);
    tri_doc_number(item, "flops", tri_program_cost(m->stages.programs[s]).flops);
    for (int k = 0; k < TRI_NUM_TIME_KINDS; k++) {
        char name[32];
        snprintf(name, sizeof name, "%s_ms", tri_time_kind_name((tri_time_kind)k));
        tri_doc_number(item, name, 1e3 * rank->time[k]);
    }
    tri_doc_number(item, "recomputed_ms", 1e3 * rank->redone);
    tri_doc_number(item, "idle_ms", 1e3 * rank->idle);
    tri_doc_number(item, "host_ms", 1e3 * rank->host);
    tri_doc_number(item, "end_ms", 1e3 * rank->end);
    json_t *axes = tri_doc_list(item, "axes");
    for (uint32_t a = 0; a < step->num_axes; a++) {
        json_t *axis = tri_doc_item(axes);
        tri_doc_text(axis, "axis", step->axis[a]);
        tri_doc_number(axis, "exposed_ms", 1e3 * step->exposed[s][a]);
        tri_doc_number(axis, "hidden_ms", 1e3 * step->hidden[s][a]);
    }
}

tr_status tri_model_sim_json(const tri_model_sim *m, tr_error *err)
{
    const tri_step_sim *step = &m->step;
    const tri_device_spec *device = tri_sim_machine_device(&m->machine);
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "title", m->title);
    tri_doc_text(doc, "device", device->name);
    tri_doc_text(doc, "rates", tri_sim_machine_rates(&m->machine));
    tri_doc_number(doc, "efficiency",
                   m->machine.by_datasheet ? m->machine.roofline.efficiency : (double)NAN);
    tri_doc_text(doc, "cluster", m->machine.model.cluster.name);
    if (m->is_measured)
        tri_model_sim_profile_json(m, doc);
    tri_doc_count(doc, "world", (int64_t)num_ranks(m));
    tri_doc_count(doc, "tokens", (int64_t)num_tokens(m));
    tri_doc_number(doc, "step_ms", 1e3 * step->timing.seconds);
    tri_doc_number(doc, "tokens_per_second", num_tokens(m) / step->timing.seconds);
    tri_doc_number(doc, "mfu", step->mfu);
    tri_doc_number(doc, "hfu", step->hfu);
    tri_doc_count(doc, "fullest_stage", step->fullest);
    tri_doc_flag(doc, "fits",
                 (double)m->stages.planned_bytes[step->fullest] <= device->memory_bytes);
    json_t *faster = tri_doc_list(doc, "faster");
    for (int p = 0; p < TRI_NUM_FASTER; p++) {
        json_t *item = tri_doc_item(faster);
        tri_doc_text(item, "part", tri_faster_name((tri_faster)p));
        tri_doc_number(item, "step_ms", 1e3 * step->faster[p]);
    }
    json_t *list = tri_doc_list(doc, "stages");
    for (uint32_t s = 0; s < m->stages.num_stages; s++)
        put_stage(m, list, s);
    if (m->stages.pipeline.exists)
        tri_doc_sim(doc, &m->schedule, "ms");
    return tri_doc_print(doc, stdout, err);
}
