/* Two tables. The first is data alone, in needs.c: a setting, and what another one must be for it
 * to matter; where that is a kind of model, update rule or schedule, these say what they read. The
 * second is for what takes a look at more than one setting. */
#include "config/notes.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/layout_words.h"
#include "config/needs.h"
#include "config/owners.h"
#include "config/settings_internal.h"
#include "data/prepare/prepare.h"
#include "train/health/replay.h"

enum { MAX_NOTE = 400 };

/* ---- settings that belong to values of others ---- */

static const tri_setting_value *value_of(const tr_settings *settings, const char *name)
{
    return &settings->values[tri_setting_find(&settings->table, name)];
}

static void show(const tr_settings *settings, const char *name, char out[64])
{
    const tri_setting *row = tri_setting_named(&settings->table, name);
    const tri_setting_value *value = value_of(settings, name);
    if (value->string)
        snprintf(out, 64, "%s", value->string);
    else if (row->type == TRI_SETTING_FLOAT)
        snprintf(out, 64, "%.6g", value->real);
    else
        tri_setting_format(row, value, out, 64);
}

/* Given, and as something else than the default: a file may list all settings. */
static bool is_set(const tr_settings *settings, const char *name)
{
    const tri_setting *row = tri_setting_named(&settings->table, name);
    const tri_setting_value *value = value_of(settings, name);
    tri_setting_value fallback = {0};
    if (!value->given || tri_setting_parse(row, row->fallback, &fallback, NULL) != TR_OK)
        return false;
    bool same = value->string ? strcmp(value->string, fallback.string) == 0
                              : value->integer == fallback.integer && value->real == fallback.real;
    free(fallback.string);
    return !same;
}

static void first_name(const char *names, char name[64])
{
    snprintf(name, 64, "%.*s", (int)strcspn(names, "|"), names);
}

static bool is_met(const tr_settings *settings, const tri_need *n)
{
    char have[64], name[64];
    if (n->is == '>') { /* it, or another that does as well */
        const char *bar = strchr(n->other, '|');
        first_name(n->other, name);
        const tri_setting_value *value = value_of(settings, name);
        return (double)value->integer + value->real > atof(n->value) ||
               (bar && is_met(settings, &(tri_need){n->setting, bar + 1, '>', n->value}));
    }
    show(settings, n->other, have);
    bool among = false;
    for (const char *at = n->value; *at; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");
        among |= strlen(have) == length && strncmp(have, at, length) == 0;
        at += length;
    }
    return among == (n->is == '=');
}

/* Groups of parameters may have rules of their own. */
static bool is_other_rule(const tr_settings *settings, const tri_need *n)
{
    return strcmp(n->other, "optim.kind") == 0 &&
           strstr(tr_settings_string(settings, "optim.groups"), "kind=");
}

static void tell_need(const tr_settings *settings, const tri_need *n, char note[MAX_NOTE])
{
    char have[64], value[64], fix[160], other[64];
    const char *bar = strchr(n->other, '|');
    first_name(n->other, other);
    show(settings, other, have);
    show(settings, n->setting, value);
    const char *comma = strchr(n->value, ','), *last = strrchr(n->value, ',');
    int first = comma ? (int)(comma - n->value) : (int)strlen(n->value);
    char middle[32] = "";
    if (comma != last)
        snprintf(middle, sizeof middle, "%.*s", (int)(last - comma - 1), comma + 1);
    if (n->is == '>')
        snprintf(fix, sizeof fix, "set %s%s%s above %s", other, bar ? " or " : "",
                 bar ? bar + 1 : "", n->value);
    else if (n->is == '!')
        snprintf(fix, sizeof fix, "choose another %s", n->other);
    else
        /* "a", "a or b", "a, b or c" */
        snprintf(fix, sizeof fix, "set %s=%.*s%s%s%s%s", n->other, first, n->value,
                 comma && comma != last ? ", " : "", middle, last ? " or " : "",
                 last ? last + 1 : "");
    snprintf(note, MAX_NOTE, "%s=%s has no effect with %s=%s; %s, or leave it out", n->setting,
             value, other, have, fix);
}

/* ---- settings that a model, an update rule or a schedule brings ---- */

enum { MAX_KINDS = 400 };

/* The same for one of these: who reads it, or, where all but one do, who does not. False where it
 * is for all. */
static bool owned_need(const tri_plugins *plugins, const char *setting, tri_need *n,
                       char kinds[MAX_KINDS])
{
    const tri_selector *of = tri_selector_of(plugins, setting);
    tri_owner owner;
    int without = 0;
    if (!of)
        return false;
    for (size_t i = 0; of->at(plugins, i, &owner); i++)
        without += !tri_owner_reads(&owner, setting);
    kinds[0] = 0;
    for (size_t i = 0; of->at(plugins, i, &owner); i++)
        if (tri_owner_reads(&owner, setting) == (without != 1)) {
            strncat(kinds, *kinds ? "," : "", MAX_KINDS - strlen(kinds) - 1);
            strncat(kinds, owner.kind, MAX_KINDS - strlen(kinds) - 1);
        }
    *n = (tri_need){setting, of->row->name, without == 1 ? '!' : '=', kinds};
    return true;
}

/* ---- what takes more than that ---- */

typedef struct facts {
    const tr_settings *settings;
    const tri_session *session;
    const tri_compile_config *compile;
    int64_t num_steps;
    bool has_data; /* it has been opened */
} facts;

/* The harm of a setting that nobody gave is as real. */
static bool idle_pipeline(const facts *f, char note[MAX_NOTE])
{
    double bubble = tri_layout_bubble(f->compile);
    int64_t pp = tri_mesh_size(&f->compile->mesh, TRI_AXIS_PP);
    int64_t have = f->compile->num_microbatches, wanted = 4 * (pp - 1);
    int64_t most = f->compile->batch / tri_mesh_size(&f->compile->mesh, TRI_AXIS_DP);
    if (bubble <= 0.4)
        return false;
    wanted = wanted < have + 1 ? have + 1 : wanted;
    snprintf(note, MAX_NOTE,
             "the pipeline idles %.0f %% of the time with layout.pp=%" PRId64
             " and layout.microbatches=%" PRId64 "; set layout.microbatches=%" PRId64 "%s",
             100 * bubble, pp, have, wanted,
             wanted > most ? ", and raise train.batch with it" : "");
    return true;
}

static int64_t parts_of(const facts *f)
{
    return f->compile->num_microbatches * tri_mesh_size(&f->compile->mesh, TRI_AXIS_DP);
}

static bool empty_parts(const facts *f, char note[MAX_NOTE])
{
    int64_t parts = parts_of(f), batch = f->compile->batch;
    snprintf(note, MAX_NOTE,
             "train.batch has %" PRId64 " row%s for layout.dp x layout.microbatches = %" PRId64
             " parts: %" PRId64 " of them compute on padding; set train.batch=%" PRId64
             " or a multiple",
             batch, batch == 1 ? "" : "s", parts, parts - batch, parts);
    return parts > batch;
}

static bool uneven_rows(const facts *f, char note[MAX_NOTE])
{
    int64_t parts = parts_of(f), batch = f->compile->batch, over = batch % parts;
    snprintf(note, MAX_NOTE,
             "train.batch %" PRId64 " does not divide by layout.dp x layout.microbatches = %" PRId64
             ", and %" PRId64 " row%s of padding %s computed; set train.batch=%" PRId64
             " or %" PRId64,
             batch, parts, parts - over, parts - over == 1 ? "" : "s",
             parts - over == 1 ? "is" : "are", batch - over, batch - over + parts);
    return parts < batch && over != 0;
}

static bool long_warmup(const facts *f, char note[MAX_NOTE])
{
    int64_t warmup = tr_settings_int(f->settings, "optim.warmup_steps");
    if (f->num_steps == 0 || warmup < f->num_steps)
        return false;
    snprintf(note, MAX_NOTE,
             "optim.warmup_steps=%" PRId64 " is not below the %" PRId64
             " steps of the run, so the learning rate only rises, to %.3g; set "
             "optim.warmup_steps=%" PRId64 ", or raise train.steps",
             warmup, f->num_steps,
             tr_settings_float(f->settings, "optim.lr") * (double)f->num_steps / (double)warmup,
             f->num_steps / 10);
    return true;
}

static bool long_decay(const facts *f, char note[MAX_NOTE])
{
    int64_t decay = tr_settings_int(f->settings, "optim.decay_steps");
    snprintf(note, MAX_NOTE,
             "optim.decay_steps=%" PRId64 " is more than the %" PRId64
             " steps of the run; set optim.decay_steps=%" PRId64 ", or raise train.steps",
             decay, f->num_steps, f->num_steps / 5);
    return f->num_steps > 0 && decay > f->num_steps;
}

static bool nothing_held_out(const facts *f, char note[MAX_NOTE])
{
    bool fraction = tr_settings_float(f->settings, "data.eval_fraction") > 0;
    bool synthetic = strcmp(tr_settings_string(f->settings, "data.source"), "synthetic") == 0;
    bool has = f->has_data ? tri_session_can_eval(f->session) : fraction || synthetic;
    snprintf(note, MAX_NOTE,
             "train.eval_every=%" PRId64 " has no effect: nothing is held out for evaluation; %s",
             tr_settings_int(f->settings, "train.eval_every"),
             fraction ? "give more data, or raise data.eval_fraction"
                      : "set data.eval_fraction=0.05");
    return !has;
}

/* A published vocabulary on data that has far fewer tokens, in bytes most of all. */
static bool unused_vocabulary(const facts *f, char note[MAX_NOTE])
{
    const char *source = tr_settings_string(f->settings, "data.source");
    const char *tokenizer = tr_settings_string(f->settings, "data.tokenizer");
    bool bytes = !*tokenizer || strcmp(tokenizer, "bytes") == 0;
    int64_t vocab = f->compile->model.vocab;
    if (!tri_model_of(&f->compile->model)->sequences || strcmp(source, "synthetic") == 0 ||
        !bytes || tri_data_has_tokens(source) || vocab < 1024)
        return false;
    snprintf(note, MAX_NOTE,
             "model.vocab is %" PRId64 ", but the text is read as bytes, of which there are 256; "
             "set data.tokenizer to the model's tokenizer.json, or bpe:4096, or model.vocab=256",
             vocab);
    return true;
}

static bool idle_budget(const facts *f, char note[MAX_NOTE])
{
    const tri_program *program = &f->session->programs[TRI_PROGRAM_TRAIN];
    snprintf(note, MAX_NOTE,
             "layout.recompute=%.60s recomputes nothing: the run fits without; leave it out",
             tr_settings_string(f->settings, "layout.recompute"));
    return f->compile->recompute.kind == TRI_RECOMPUTE_BUDGET &&
           !(tri_program_redone(program).flops > 0);
}

static bool large_tile(const facts *f, char note[MAX_NOTE])
{
    int64_t tile = f->compile->loss_tile, tokens = f->compile->seq_len;
    snprintf(note, MAX_NOTE,
             "model.loss_tile=%" PRId64 " has no effect with data.seq_len=%" PRId64
             ": a tile is all of a row; set it below that, or leave it out",
             tile, tokens);
    return tile >= tokens && tri_model_of(&f->compile->model)->sequences;
}

static bool no_learning(const facts *f, char note[MAX_NOTE])
{
    snprintf(note, MAX_NOTE, "optim.lr is 0, so the weights never change; set optim.lr=3e-4, say");
    return !(tr_settings_float(f->settings, "optim.lr") > 0);
}

static bool restarts_from_nothing(const facts *f, char note[MAX_NOTE])
{
    bool elastic = tr_settings_bool(f->settings, "run.elastic");
    snprintf(note, MAX_NOTE,
             "run.%s without ckpt.every goes on from step 0 when a rank dies; set ckpt.every=100, "
             "say",
             elastic ? "elastic" : "restarts");
    return (elastic || tr_settings_int(f->settings, "run.restarts") > 0) &&
           tr_settings_int(f->settings, "ckpt.every") == 0;
}

static bool rare_checkpoints(const facts *f, char note[MAX_NOTE])
{
    int64_t every = tr_settings_int(f->settings, "ckpt.every");
    snprintf(note, MAX_NOTE,
             "ckpt.every=%" PRId64 " is above the %" PRId64
             " steps of the run, so the only checkpoint is the last; set ckpt.every=%" PRId64
             " to have some on the way",
             every, f->num_steps, f->num_steps / 4 > 0 ? f->num_steps / 4 : 1);
    return f->num_steps > 0 && every > f->num_steps;
}

static bool rare_evaluations(const facts *f, char note[MAX_NOTE])
{
    int64_t every = tr_settings_int(f->settings, "train.eval_every");
    snprintf(note, MAX_NOTE,
             "train.eval_every=%" PRId64 " is above the %" PRId64
             " steps of the run, so the only evaluation is the last; set train.eval_every=%" PRId64
             " to have some on the way",
             every, f->num_steps, f->num_steps / 4 > 0 ? f->num_steps / 4 : 1);
    return f->num_steps > 0 && every > f->num_steps;
}

/* A run that is done writes the width that follows from the others into its config.yaml. */
static bool foreign_head_dim(const facts *f, char note[MAX_NOTE])
{
    const tri_model_config *m = &f->compile->model;
    snprintf(note, MAX_NOTE,
             "model.head_dim has no effect with model.kind=%s; set model.kind=llama, or leave it "
             "out",
             m->kind);
    return !tri_model_of(m)->key_heads && m->num_heads > 0 && m->head_dim != m->dim / m->num_heads;
}

static bool many_threads(const facts *f, char note[MAX_NOTE])
{
    int64_t threads = tr_settings_int(f->settings, "run.threads");
    int cores = tri_device_num_cores();
    snprintf(note, MAX_NOTE,
             "run.threads=%" PRId64 " on %d core%s: threads wait for each other; set "
             "run.threads=%d, or leave it out",
             threads, cores, cores == 1 ? "" : "s", cores);
    return strcmp(tr_settings_string(f->settings, "run.device"), "cpu") == 0 && threads > cores;
}

/* One rank has nobody to exchange messages with. */
static bool lone_messages(const facts *f, char note[MAX_NOTE])
{
    static const char *const names[] = {"run.transport",      "run.collective",    "run.overlap",
                                        "run.overlap_min_kb", "run.compare_every", "run.lanes"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tri_mesh_ranks(&f->compile->mesh) == 1 && is_set(f->settings, names[i])) {
            char value[64];
            show(f->settings, names[i], value);
            snprintf(
                note, MAX_NOTE,
                "%s=%s has no effect on one rank; set layout.dp, cp, tp or pp above 1, or leave "
                "it out",
                names[i], value);
            return true;
        }
    return false;
}

/* Where groups that divide heads are all of cp, there is no ring to deal out over. */
static bool no_ring(const facts *f, char note[MAX_NOTE])
{
    static const char *const names[] = {"layout.cp_deal", "layout.cp_kind"};
    char value[64];
    bool all = tri_mesh_size(&f->compile->mesh, TRI_AXIS_CP) > 1 &&
               tri_mesh_size(&f->compile->mesh, TRI_AXIS_CP_RING) == 1;
    for (size_t i = 0; all && i < sizeof names / sizeof *names; i++) {
        if (!is_set(f->settings, names[i]))
            continue;
        show(f->settings, names[i], value);
        snprintf(note, MAX_NOTE,
                 "%s=%s has no effect with layout.cp_heads=%" PRId64 ", which is all of layout.cp; "
                 "lower layout.cp_heads, or leave it out",
                 names[i], value, tr_settings_int(f->settings, "layout.cp_heads"));
        return strcmp(tr_settings_string(f->settings, "layout.cp_kind"), "ulysses") != 0;
    }
    return false;
}

/* Ranks of ep have different experts, so all of them are one copy of the weights. */
static bool replay_alone(const facts *f, char note[MAX_NOTE])
{
    const tri_mesh *mesh = &f->compile->mesh;
    snprintf(note, MAX_NOTE,
             "run.replay=exchange has no effect with layout.ep=%d, which takes all of layout.dp: "
             "nobody else has the same experts, so the same ranks do steps again; lower layout.ep, "
             "or leave it out",
             tri_mesh_size(mesh, TRI_AXIS_EP));
    return strcmp(tr_settings_string(f->settings, "run.replay"), "exchange") == 0 &&
           tr_settings_int(f->settings, "run.replay_every") > 0 &&
           tri_mesh_size(mesh, TRI_AXIS_DP) > 1 && tri_replay_num_others(mesh) == 1;
}

static bool patience_in_vain(const facts *f, char note[MAX_NOTE])
{
    snprintf(note, MAX_NOTE,
             "train.patience=%" PRId64 " has no effect: the held-out loss is measured at the end "
             "only; set train.eval_every above 0, or leave it out",
             tr_settings_int(f->settings, "train.patience"));
    return tr_settings_int(f->settings, "train.eval_every") == 0 &&
           tr_settings_int(f->settings, "train.epochs") == 0;
}

static const struct {
    const char *setting; /* must be set for it; NULL: always */
    bool (*tells)(const facts *f, char note[MAX_NOTE]);
} rules[] = {
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
    {"run.replay", replay_alone},
    {NULL, lone_messages},
};

enum { NUM_RULES = sizeof rules / sizeof *rules };

int tri_num_notes(void)
{
    tri_table table;
    tri_need n;
    char kinds[MAX_KINDS];
    int num = NUM_RULES + tri_num_needs;
    tri_table_init(&table, NULL);
    for (int i = 0; i < table.num; i++)
        num += owned_need(NULL, table.row[i]->name, &n, kinds);
    return num;
}

static bool is_idle(const tr_settings *settings, const tri_need *n)
{
    return is_set(settings, n->setting) && !is_met(settings, n) && !is_other_rule(settings, n);
}

/* Those that the second table has told of are not told of again. */
static void tell_owned(const tr_settings *settings, tri_note_fn say, void *context)
{
    char note[MAX_NOTE], kinds[MAX_KINDS];
    tri_need n;
    int row = NUM_RULES + tri_num_needs;
    for (int i = 0; i < settings->table.num; i++) {
        if (!owned_need(settings->plugins, settings->table.row[i]->name, &n, kinds))
            continue;
        bool told = false;
        for (int k = 0; k < tri_num_needs && !told; k++)
            told = strcmp(tri_needs[k].setting, n.setting) == 0 && is_idle(settings, &tri_needs[k]);
        if (!told && is_idle(settings, &n)) {
            tell_need(settings, &n, note);
            say(context, row, note);
        }
        row++;
    }
}

void tri_notes(const tr_settings *settings, const tri_session *session, tri_note_fn say,
               void *context)
{
    char note[MAX_NOTE];
    facts f = {.settings = settings,
               .session = session,
               .compile = &session->config.compile,
               .num_steps =
                   session->row ? session->num_steps : tr_settings_int(settings, "train.steps"),
               .has_data = session->row != NULL};
    for (int i = 0; i < NUM_RULES; i++)
        if ((!rules[i].setting || is_set(settings, rules[i].setting)) && rules[i].tells(&f, note))
            say(context, i, note);
    const char *told = "";
    for (int i = 0; i < tri_num_needs; i++) {
        const tri_need *n = &tri_needs[i];
        if (strcmp(told, n->setting) == 0 || !is_idle(settings, n))
            continue;
        tell_need(settings, n, note);
        say(context, NUM_RULES + i, note);
        told = n->setting; /* once each */
    }
    tell_owned(settings, say, context);
}
