/* The walk: what is asked, in which order. */
#include "cli/advise/advise.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/advise/advise_parts.h"
#include "config/resolve.h"
#include "config/settings_internal.h"

/* A plan has all memory that Trireme takes; beside it there are the driver's, the buffers of NCCL
 * and the workspace of libraries, for which a tenth is left. */
static const double room_share = 0.9;

tri_advised_question *tri_advise_ask(tri_advice *advice, const char *name, const char *asks,
                                     const char *rule)
{
    tri_advised_question *q = &advice->questions[advice->num_questions++];
    *q = (tri_advised_question){.name = name, .asks = asks, .rule = rule};
    return q;
}

void tri_advise_answer(tri_advised_question *q, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(q->answer, sizeof q->answer, format, args);
    va_end(args);
}

void tri_advise_number(tri_advised_question *q, const char *key, const char *label, double value,
                       tri_advised_unit unit)
{
    if (q->num_numbers < TRI_ADVISE_NUMBERS)
        q->numbers[q->num_numbers++] = (tri_advised_number){key, label, value, unit};
}

void tri_advise_show(tri_advised_question *q, int trial)
{
    for (int i = 0; i < q->num_shown; i++)
        if (q->shown[i] == trial)
            return;
    if (trial >= 0 && q->num_shown < TRI_ADVISE_SHOWN)
        q->shown[q->num_shown++] = trial;
}

void tri_advise_follows(tri_advised_question *q, const char *setting, const char *value)
{
    if (q->num_settings < TRI_ADVISE_SETTINGS)
        snprintf(q->settings[q->num_settings++], TRI_ADVISE_ASSIGNMENT, "%s=%s", setting, value);
}

void tri_advise_follow(const tri_advice *advice, tri_advised_question *q)
{
    q->num_settings =
        tri_advised_settings(advice, &advice->trials[advice->chosen].layout, q->settings);
    if (q->num_settings > 0 && strncmp(q->settings[q->num_settings - 1], "run.", 4) == 0)
        q->num_settings--; /* lanes are a question of their own */
}

bool tri_advise_is_plain(const tri_advice *advice)
{
    if (advice->chosen < 0)
        return false;
    const tri_advised_layout *l = &advice->trials[advice->chosen].layout;
    return l->zero == 0 && l->redo == TRI_ADVISED_NONE && l->dp == advice->devices;
}

const tri_advised_axis *tri_advise_axis(const tri_advised_trial *trial, const char *name)
{
    for (uint32_t a = 0; a < trial->num_axes; a++)
        if (strcmp(trial->axes[a].name, name) == 0)
            return &trial->axes[a];
    return NULL;
}

/* The layout of a file is not what is asked for; what chooses no sizes stays. */
static tr_status without_layout(const tr_settings *given, tr_settings **base, tr_error *err)
{
    TRI_TRY(tri_settings_clone(given, base, err));
    const tri_table *table = tri_settings_table(given);
    tr_status status = TR_OK;
    for (int i = 0; status == TR_OK && i < table->num; i++) {
        char assignment[200];
        const tri_setting *row = table->row[i];
        snprintf(assignment, sizeof assignment, "%s=%s", row->name, row->fallback);
        if (tr_settings_given(given, row->name) && tri_advise_may_set(assignment, NULL) != TR_OK)
            status = tr_settings_set(*base, assignment, err);
    }
    return status;
}

static tr_status begin(tri_advice *advice, tr_error *err)
{
    uint64_t limit = 0;
    const tri_cluster *cluster = &advice->machine->model.cluster;
    TRI_TRY(tri_memory_limit_from(advice->given, &limit, err));
    TRI_TRY(without_layout(advice->given, &advice->base, err));
    double memory = tri_sim_machine_device(advice->machine)->memory_bytes;
    advice->memory_bytes = (uint64_t)memory;
    advice->room_bytes = (uint64_t)(room_share * memory);
    advice->limited = limit > 0 && limit < advice->memory_bytes;
    if (advice->limited)
        advice->room_bytes = limit;
    advice->node = cluster->tier[0].devices;
    if (advice->node > advice->devices || advice->node == 0)
        advice->node = advice->devices;
    advice->trials = calloc(TRI_ADVISE_TRIALS, sizeof *advice->trials);
    if (!advice->trials)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the layouts to try");
    return tri_advise_alone(advice, err);
}

tr_status tri_advice_make(const tr_settings *given, tri_sim_machine *machine, int64_t devices,
                          tri_advice *advice, tr_error *err)
{
    *advice = (tri_advice){.given = given, .machine = machine, .devices = devices, .chosen = -1};
    tr_status status = begin(advice, err);
    if (status != TR_OK) {
        tri_advice_fini(advice);
        return status;
    }
    tri_ask_one_device(advice);
    tri_ask_zero(advice);
    tri_ask_recompute(advice);
    tri_ask_tensor(advice);
    tri_ask_pipeline(advice);
    tri_ask_context(advice);
    tri_ask_experts(advice);
    tri_ask_lanes(advice);
    tri_advise_settle(advice);
    tri_ask_batch(advice);
    if (advice->chosen < 0)
        advice->devices_needed = tri_advise_needed(advice);
    return TR_OK;
}

void tri_advice_fini(tri_advice *advice)
{
    if (advice->base)
        tr_settings_destroy(advice->base);
    free(advice->trials);
    *advice = (tri_advice){0};
}
