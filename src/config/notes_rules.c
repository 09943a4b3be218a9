/* The second table of notes: what takes a look at more than one setting. */
#include "config/notes_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/layout_words.h"
#include "config/settings_internal.h"
#include "data/prepare/prepare.h"
#include "train/health/replay.h"

/* The harm of a setting that nobody gave is as real. */
static bool idle_pipeline(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    double bubble = tri_layout_bubble(f->compile);
    int64_t pp = tri_mesh_size(&f->compile->mesh, TRI_AXIS_PP);
    int64_t have = f->compile->num_microbatches, wanted = 4 * (pp - 1);
    int64_t most = f->compile->batch / tri_mesh_size(&f->compile->mesh, TRI_AXIS_DP);
    if (bubble <= 0.4)
        return false;
    wanted = wanted < have + 1 ? have + 1 : wanted;
    snprintf(note, TRI_MAX_NOTE,
             "the pipeline idles %.0f %% of the time with layout.pp=%" PRId64
             " and layout.microbatches=%" PRId64 "; set layout.microbatches=%" PRId64 "%s",
             100 * bubble, pp, have, wanted,
             wanted > most ? ", and raise train.batch with it" : "");
    return true;
}

static int64_t parts_of(const tri_note_facts *f)
{
    return f->compile->num_microbatches * tri_mesh_size(&f->compile->mesh, TRI_AXIS_DP);
}

static bool empty_parts(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    int64_t parts = parts_of(f), batch = f->compile->batch;
    snprintf(note, TRI_MAX_NOTE,
             "train.batch has %" PRId64 " row%s for layout.dp x layout.microbatches = %" PRId64
             " parts: %" PRId64 " of them compute on padding; set train.batch=%" PRId64
             " or a multiple",
             batch, batch == 1 ? "" : "s", parts, parts - batch, parts);
    return parts > batch;
}

static bool uneven_rows(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    int64_t parts = parts_of(f), batch = f->compile->batch, over = batch % parts;
    snprintf(note, TRI_MAX_NOTE,
             "train.batch %" PRId64 " does not divide by layout.dp x layout.microbatches = %" PRId64
             ", and %" PRId64 " row%s of padding %s computed; set train.batch=%" PRId64
             " or %" PRId64,
             batch, parts, parts - over, parts - over == 1 ? "" : "s",
             parts - over == 1 ? "is" : "are", batch - over, batch - over + parts);
    return parts < batch && over != 0;
}

static bool long_warmup(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    int64_t warmup = tr_settings_int(f->settings, "optim.warmup_steps");
    if (f->num_steps == 0 || warmup < f->num_steps)
        return false;
    snprintf(note, TRI_MAX_NOTE,
             "optim.warmup_steps=%" PRId64 " is not below the %" PRId64
             " steps of the run, so the learning rate only rises, to %.3g; set "
             "optim.warmup_steps=%" PRId64 ", or raise train.steps",
             warmup, f->num_steps,
             tr_settings_float(f->settings, "optim.lr") * (double)f->num_steps / (double)warmup,
             f->num_steps / 10);
    return true;
}

static bool long_decay(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    int64_t decay = tr_settings_int(f->settings, "optim.decay_steps");
    snprintf(note, TRI_MAX_NOTE,
             "optim.decay_steps=%" PRId64 " is more than the %" PRId64
             " steps of the run; set optim.decay_steps=%" PRId64 ", or raise train.steps",
             decay, f->num_steps, f->num_steps / 5);
    return f->num_steps > 0 && decay > f->num_steps;
}

static bool nothing_held_out(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    bool fraction = tr_settings_float(f->settings, "data.eval_fraction") > 0;
    bool synthetic = strcmp(tr_settings_string(f->settings, "data.source"), "synthetic") == 0;
    bool has = f->has_data ? tri_session_can_eval(f->session) : fraction || synthetic;
    snprintf(note, TRI_MAX_NOTE,
             "train.eval_every=%" PRId64 " has no effect: nothing is held out for evaluation; %s",
             tr_settings_int(f->settings, "train.eval_every"),
             fraction ? "give more data, or raise data.eval_fraction"
                      : "set data.eval_fraction=0.05");
    return !has;
}

/* A published vocabulary on data that has far fewer tokens, in bytes most of all. */
static bool unused_vocabulary(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    const char *source = tr_settings_string(f->settings, "data.source");
    const char *tokenizer = tr_settings_string(f->settings, "data.tokenizer");
    bool bytes = !*tokenizer || strcmp(tokenizer, "bytes") == 0;
    int64_t vocab = f->compile->model.vocab;
    if (!tri_model_of(&f->compile->model)->sequences || strcmp(source, "synthetic") == 0 ||
        !bytes || tri_data_has_tokens(source) || vocab < 1024)
        return false;
    snprintf(note, TRI_MAX_NOTE,
             "model.vocab is %" PRId64 ", but the text is read as bytes, of which there are 256; "
             "set data.tokenizer to the model's tokenizer.json, or bpe:4096, or model.vocab=256",
             vocab);
    return true;
}

static bool idle_budget(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    const tri_program *program = &f->session->programs[TRI_PROGRAM_TRAIN];
    snprintf(note, TRI_MAX_NOTE,
             "layout.recompute=%.60s recomputes nothing: the run fits without; leave it out",
             tr_settings_string(f->settings, "layout.recompute"));
    return f->compile->recompute.kind == TRI_RECOMPUTE_BUDGET &&
           !(tri_program_redone(program).flops > 0);
}

static bool large_tile(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    int64_t tile = f->compile->loss_tile, tokens = f->compile->seq_len;
    snprintf(note, TRI_MAX_NOTE,
             "model.loss_tile=%" PRId64 " has no effect with data.seq_len=%" PRId64
             ": a tile is all of a row; set it below that, or leave it out",
             tile, tokens);
    return tile >= tokens && tri_model_of(&f->compile->model)->sequences;
}

static bool no_learning(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    snprintf(note, TRI_MAX_NOTE,
             "optim.lr is 0, so the weights never change; set optim.lr=3e-4, say");
    return !(tr_settings_float(f->settings, "optim.lr") > 0);
}

static bool restarts_from_nothing(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    bool elastic = tr_settings_bool(f->settings, "run.elastic");
    snprintf(note, TRI_MAX_NOTE,
             "run.%s without ckpt.every goes on from step 0 when a rank dies; set ckpt.every=100, "
             "say",
             elastic ? "elastic" : "restarts");
    return (elastic || tr_settings_int(f->settings, "run.restarts") > 0) &&
           tr_settings_int(f->settings, "ckpt.every") == 0;
}

static bool rare_checkpoints(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    int64_t every = tr_settings_int(f->settings, "ckpt.every");
    snprintf(note, TRI_MAX_NOTE,
             "ckpt.every=%" PRId64 " is above the %" PRId64
             " steps of the run, so the only checkpoint is the last; set ckpt.every=%" PRId64
             " to have some on the way",
             every, f->num_steps, f->num_steps / 4 > 0 ? f->num_steps / 4 : 1);
    return f->num_steps > 0 && every > f->num_steps;
}

static bool rare_evaluations(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    int64_t every = tr_settings_int(f->settings, "train.eval_every");
    snprintf(note, TRI_MAX_NOTE,
             "train.eval_every=%" PRId64 " is above the %" PRId64
             " steps of the run, so the only evaluation is the last; set train.eval_every=%" PRId64
             " to have some on the way",
             every, f->num_steps, f->num_steps / 4 > 0 ? f->num_steps / 4 : 1);
    return f->num_steps > 0 && every > f->num_steps;
}

/* A run that is done writes the width that follows from the others into its config.yaml. */
static bool foreign_head_dim(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    const tri_model_config *m = &f->compile->model;
    snprintf(note, TRI_MAX_NOTE,
             "model.head_dim has no effect with model.kind=%s; set model.kind=llama, or leave it "
             "out",
             m->kind);
    return !tri_model_of(m)->key_heads && m->num_heads > 0 && m->head_dim != m->dim / m->num_heads;
}

static bool many_threads(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    int64_t threads = tr_settings_int(f->settings, "run.threads");
    int cores = tri_device_num_cores();
    snprintf(note, TRI_MAX_NOTE,
             "run.threads=%" PRId64 " on %d core%s: threads wait for each other; set "
             "run.threads=%d, or leave it out",
             threads, cores, cores == 1 ? "" : "s", cores);
    return strcmp(tr_settings_string(f->settings, "run.device"), "cpu") == 0 && threads > cores;
}

/* One rank has nobody to exchange messages with. */
static bool lone_messages(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    static const char *const names[] = {"run.transport",      "run.collective",    "run.overlap",
                                        "run.overlap_min_kb", "run.compare_every", "run.lanes"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tri_mesh_ranks(&f->compile->mesh) == 1 && tri_note_is_set(f->settings, names[i])) {
            char value[64];
            tri_note_show(f->settings, names[i], value);
            snprintf(
                note, TRI_MAX_NOTE,
                "%s=%s has no effect on one rank; set layout.dp, cp, tp or pp above 1, or leave "
                "it out",
                names[i], value);
            return true;
        }
    return false;
}

/* Where groups that divide heads are all of cp, there is no ring to deal out over. */
static bool no_ring(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    static const char *const names[] = {"layout.cp_deal", "layout.cp_kind"};
    char value[64];
    bool all = tri_mesh_size(&f->compile->mesh, TRI_AXIS_CP) > 1 &&
               tri_mesh_size(&f->compile->mesh, TRI_AXIS_CP_RING) == 1;
    for (size_t i = 0; all && i < sizeof names / sizeof *names; i++) {
        if (!tri_note_is_set(f->settings, names[i]))
            continue;
        tri_note_show(f->settings, names[i], value);
        snprintf(note, TRI_MAX_NOTE,
                 "%s=%s has no effect with layout.cp_heads=%" PRId64 ", which is all of layout.cp; "
                 "lower layout.cp_heads, or leave it out",
                 names[i], value, tr_settings_int(f->settings, "layout.cp_heads"));
        return strcmp(tr_settings_string(f->settings, "layout.cp_kind"), "ulysses") != 0;
    }
    return false;
}

/* Ranks of ep have different experts, so all of them are one copy of the weights. */
static bool replay_alone(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    const tri_mesh *mesh = &f->compile->mesh;
    snprintf(note, TRI_MAX_NOTE,
             "run.replay=exchange has no effect with layout.ep=%d, which takes all of layout.dp: "
             "nobody else has the same experts, so the same ranks do steps again; lower layout.ep, "
             "or leave it out",
             tri_mesh_size(mesh, TRI_AXIS_EP));
    return strcmp(tr_settings_string(f->settings, "run.replay"), "exchange") == 0 &&
           tr_settings_int(f->settings, "run.replay_every") > 0 &&
           tri_mesh_size(mesh, TRI_AXIS_DP) > 1 && tri_replay_num_others(mesh) == 1;
}

static bool patience_in_vain(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    snprintf(note, TRI_MAX_NOTE,
             "train.patience=%" PRId64 " has no effect: the held-out loss is measured at the end "
             "only; set train.eval_every above 0, or leave it out",
             tr_settings_int(f->settings, "train.patience"));
    return tr_settings_int(f->settings, "train.eval_every") == 0 &&
           tr_settings_int(f->settings, "train.epochs") == 0;
}

static bool absent_brake(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    const tri_session_config *config = &f->session->config;
    int num_ranks = tri_mesh_ranks(&f->compile->mesh);
    for (int b = 0; b < config->num_brakes; b++) {
        if (config->brakes[b].rank < num_ranks)
            continue;
        snprintf(note, TRI_MAX_NOTE,
                 "run.pace brakes rank %d, but the layout has %d rank%s; name one from 0 to %d",
                 config->brakes[b].rank, num_ranks, num_ranks == 1 ? "" : "s", num_ranks - 1);
        return true;
    }
    return false;
}

static bool update_stays(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    snprintf(note, TRI_MAX_NOTE,
             "layout.host_update has no effect, since no moments rest elsewhere; set "
             "layout.offload=moments=host, or leave it out");
    return tr_settings_bool(f->settings, "layout.host_update") &&
           f->compile->spaces.moments == TRI_WHERE_DEVICE;
}

static bool no_masters(const tri_note_facts *f, char note[TRI_MAX_NOTE])
{
    snprintf(note, TRI_MAX_NOTE,
             "layout.offload has no effect on master: with precision.kind=%s the weights have no "
             "16-bit copies beside them; set precision.kind=bf16, or leave master out",
             tr_settings_string(f->settings, "precision.kind"));
    return f->compile->spaces.masters != TRI_WHERE_DEVICE &&
           f->compile->precision.compute == TRI_F32;
}

const tri_note_rule tri_note_rules[] = {
    {NULL, idle_pipeline},
    {NULL, empty_parts},
    {NULL, uneven_rows},
    {NULL, unused_vocabulary},
    {NULL, restarts_from_nothing},
    {"optim.warmup_steps", long_warmup},
    {"optim.decay_steps", long_decay},
    {"train.eval_every", nothing_held_out},
    {"layout.recompute", idle_budget},
    {"model.loss_tile", large_tile},
    {"optim.lr", no_learning},
    {"ckpt.every", rare_checkpoints},
    {"train.eval_every", rare_evaluations},
    {"model.head_dim", foreign_head_dim},
    {"run.threads", many_threads},
    {"layout.cp_heads", no_ring},
    {"train.patience", patience_in_vain},
    {"run.pace", absent_brake},
    {"layout.offload", no_masters},
    {"layout.host_update", update_stays},
    {"run.replay", replay_alone},
    {NULL, lone_messages},
};

const int tri_num_note_rules = sizeof tri_note_rules / sizeof *tri_note_rules;
