#include "cli/run/first_lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/system_memory.h"
#include "cli/lines.h"
#include "cli/schedule_note.h"
#include "cli/text.h"
#include "config/layout_words.h"

static void print_model(const tri_first_lines *l)
{
    const tri_session *s = l->session;
    const tri_model_config *model = &s->config.compile.model;
    const char *preset = tr_settings_string(l->cli->settings, "model.preset");
    char count[16];
    tri_cli_line("model", "%s%s%s%s, %" PRId64 " layer%s, width %" PRId64 ", %s parameters, %s%s",
                 model->kind, *preset ? " (" : "", preset, *preset ? ")" : "", model->num_layers,
                 model->num_layers == 1 ? "" : "s", model->dim,
                 tri_text_count((double)tri_param_total(&s->params), count),
                 tr_settings_string(l->cli->settings, "precision.kind"),
                 s->config.compile.precision.linear8 ? " with fp8 linear layers" : "");
    if (s->config.weights_from && s->config.weights_from[0])
        tri_cli_line("from", "%s", s->config.weights_from);
}

/* Heads that the model to start from did not have. */
static bool print_fresh(const tri_session *s)
{
    tri_text names;
    tri_text_init(&names);
    for (size_t i = 0; s->fresh && i < s->params.count; i++)
        if (s->fresh[i])
            tri_text_add(&names, "%s%s", names.length ? ", " : "", s->params.items[i].name);
    if (names.length)
        tri_cli_line("anew", "not in model.from: %s", names.chars);
    bool whole = !names.failed;
    tri_text_fini(&names);
    return whole;
}

static void print_batch(const tri_session *s)
{
    const tri_compile_config *c = &s->config.compile;
    char total[32], steps[32], rows[32], epochs[160] = "";
    bool sequences = tri_model_of(&c->model)->sequences;
    tri_text_grouped(s->num_steps, steps);
    if (s->epochs.num > 0)
        snprintf(epochs, sizeof epochs, " (%" PRId64 " epoch%s of %" PRId64 " steps for %s rows%s)",
                 s->epochs.num, s->epochs.num == 1 ? "" : "s", s->epochs.steps,
                 tri_text_grouped(s->epochs.rows, rows),
                 s->num_steps < s->epochs.num * s->epochs.steps ? "; train.steps ends it earlier"
                                                                : "");
    if (sequences)
        tri_cli_line("batch", "%" PRId64 " row%s x %" PRId64 " tokens x %s step%s%s = %s tokens",
                     c->batch, c->batch == 1 ? "" : "s", c->seq_len, steps,
                     s->num_steps == 1 ? "" : "s", epochs,
                     tri_text_grouped(c->batch * c->seq_len * s->num_steps, total));
    else
        tri_cli_line("batch", "%" PRId64 " row%s x %s step%s%s", c->batch, c->batch == 1 ? "" : "s",
                     steps, s->num_steps == 1 ? "" : "s", epochs);
}

static void print_optim(const tri_session *s)
{
    const tri_lr_schedule *lr = &s->config.lr;
    const tri_optim_config *optim = &s->config.compile.optim;
    char warmup[64] = "", end[64] = "", clip[32] = "no clipping";
    if (lr->warmup_steps > 0)
        snprintf(warmup, sizeof warmup, " after %" PRId64 " step%s of warm-up", lr->warmup_steps,
                 lr->warmup_steps == 1 ? "" : "s");
    if (lr->def->falls)
        snprintf(end, sizeof end, " to %.3g", lr->lr * lr->min_ratio);
    if (optim->clip > 0)
        snprintf(clip, sizeof clip, "clip %.3g", (double)optim->clip);
    tri_cli_line("optim", "%s, lr %.3g, %s%s%s, weight decay %.3g, %s", optim->rule.kind, lr->lr,
                 lr->def->kind, end, warmup, (double)optim->rule.weight_decay, clip);
}

/* What the plan takes of what there is, before and after it was taken. */
static void print_memory(const tri_session *s, int local_ranks)
{
    char plan[16], room_text[16], all[16], together[48] = "";
    double planned = (double)tri_session_planned_bytes(s), room;
    const tri_device_queue *queue = s->device.def->queue;
    if (queue) {
        room =
            s->started ? (double)queue->available(&s->device) + (double)s->store.device_bytes : 0;
        local_ranks = 1; /* each has one of its own, or shares it knowingly */
    } else {
        tri_system_memory memory = tri_system_memory_read("");
        room = (double)(memory.limit ? memory.limit : memory.total);
    }
    tri_text_bytes(planned, plan);
    if (local_ranks > 1)
        snprintf(together, sizeof together, " a rank, %s in all",
                 tri_text_bytes(planned * local_ranks, all));
    if (room > 0)
        tri_cli_line("memory", "%s planned%s, of %s", plan, together,
                     tri_text_bytes(room, room_text));
    else
        tri_cli_line("memory", "%s planned%s", plan, together);
}

static void print_device(const tri_first_lines *l)
{
    const tri_device_choice *choice = &l->cli->device;
    int ranks = tri_mesh_ranks(&l->session->config.compile.mesh);
    tri_cli_line("device", "%s%s%s%s%s%s%s", l->session->device.description,
                 ranks > 1 ? ", on each rank" : "", l->transport ? ", over " : "",
                 l->transport ? l->transport : "", choice->chosen && choice->why[0] ? " (" : "",
                 choice->chosen ? choice->why : "", choice->chosen && choice->why[0] ? ")" : "");
    if (choice->chosen && choice->hint[0])
        tri_cli_line("note", "%s", choice->hint);
}

static void print_run(const tri_first_lines *l)
{
    const tr_settings *settings = l->cli->settings;
    int64_t every = tr_settings_int(settings, "ckpt.every");
    char ckpt[96] = "", recipe[300] = "";
    if (every > 0)
        snprintf(ckpt, sizeof ckpt, ", a checkpoint every %" PRId64 " step%s", every,
                 every == 1 ? "" : "s");
    if (l->cli->file && strcmp(l->cli->file, l->cli->operands[0]) != 0)
        snprintf(recipe, sizeof recipe, " (settings of %.200s)", l->cli->file);
    tri_cli_line("run", "%s%s%s", l->dir, ckpt, recipe);
}

static bool print_host_ops(const tri_session *s)
{
    tri_text on_host;
    tri_text_init(&on_host);
    if (s->started)
        tri_executor_host_ops(&s->executors[TRI_PROGRAM_TRAIN], &on_host);
    if (on_host.chars && on_host.chars[0])
        tri_cli_line("note", "no kernel on this device, so the host computes: %s", on_host.chars);
    bool whole = !on_host.failed;
    tri_text_fini(&on_host);
    return whole;
}

tr_status tri_first_lines_print(const tri_first_lines *l, tr_error *err)
{
    const tri_session *s = l->session;
    char data[800] = "made-up vectors";
    tri_text layout;
    if (s->data)
        tri_data_describe(s->data, data, sizeof data);
    tri_text_init(&layout);
    tri_layout_words(&s->config.compile, &layout);
    print_model(l);
    bool whole = print_fresh(s) && !layout.failed;
    tri_cli_line("data", "%s", data);
    print_batch(s);
    print_optim(s);
    if (l->layout)
        tri_auto_layout_print(l->layout);
    tri_cli_line("layout", "%s", layout.chars ? layout.chars : "?");
    print_memory(s, l->local_ranks);
    print_device(l);
    print_run(l);
    whole = print_host_ops(s) && whole;
    tri_print_schedule_note(s, "note    ");
    tri_print_notes(l->cli->settings, s);
    tri_text_fini(&layout);
    return whole ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory to say what this run is");
}
