/* trireme plan --tokens: the arithmetic of a whole run (sim/run_sums.h), for a model or for a
 * number of parameters. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/quantity.h"
#include "cli/sums/sums.h"
#include "sim/run_sums.h"

/* Two counts of the same run: by the rule, and what the model's program computes. */
enum { BY_RULE, BY_PROGRAM, NUM_COUNTS };

typedef struct run_sheet {
    const tri_cli *cli;
    double tokens, params, active; /* active: parameters that work on a token */
    double token_flops;            /* of the program; 0: not known */
    int64_t num_ranks;             /* of the layout; 0: there is no model */
    tri_rate kind;
    const tri_device_spec *device;
    tri_device_spec own_device;              /* of a description */
    double mfu, batch_tokens, device_tokens; /* device_tokens: a device must have, 0: not asked */
    const char *why_devices;
    tri_run_facts facts; /* flops is that of BY_RULE */
    tri_run_sums sums[NUM_COUNTS];
} run_sheet;

static tr_status read_facts(run_sheet *s, tr_error *err)
{
    const struct {
        const char *name;
        double *value, least, most;
    } numbers[] = {
        {"days", &s->facts.days, 1e-6, 1e9},   {"gpus", &s->facts.num_devices, 1, 1e12},
        {"watts", &s->facts.watts, 1e-3, 1e9}, {"pue", &s->facts.overhead, 1, 100},
        {"price", &s->facts.price, 1e-9, 1e9},
    };
    const struct {
        const char *name;
        double *value;
    } counts[] = {
        {"tokens", &s->tokens}, {"rate", &s->facts.rate}, {"batch-tokens", &s->batch_tokens}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (tri_cli_flag(s->cli, numbers[i].name))
            TRI_TRY(tri_quantity_number(numbers[i].name, tri_cli_flag(s->cli, numbers[i].name),
                                        numbers[i].least, numbers[i].most, numbers[i].value, err));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (tri_cli_flag(s->cli, counts[i].name))
            TRI_TRY(tri_quantity_count(counts[i].name, tri_cli_flag(s->cli, counts[i].name),
                                       counts[i].value, err));
    return TR_OK;
}

static tr_status check_facts(const run_sheet *s, tr_error *err)
{
    const char *params = tri_cli_flag(s->cli, "params");
    if (params && !*params)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--params lists the parameters of a model, which --tokens does not; give "
                        "a number for a run without a model, --params 175e9, or leave it out");
    if (params && (s->cli->file || s->cli->num_assignments > 0))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--params %.20s and a model are given, and a model has its own number; "
                        "leave --params, or the settings, out",
                        params);
    if (s->facts.days > 0 && s->facts.num_devices > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--days tells how many devices are needed, and --gpus how many days; give "
                        "one of them");
    if (tri_cli_flag(s->cli, "mfu") && (s->facts.rate > 0 || !s->device))
        return tri_fail(err, TR_ERROR_INPUT, "%s",
                        s->facts.rate > 0
                            ? "--rate is what a device reaches; leave --mfu out, or --rate"
                            : "--mfu is a share of the rate of a device; add --device a100, say");
    if (tri_cli_flag(s->cli, "pue") && s->facts.watts <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--pue multiplies the energy of the devices, whose power is not known; "
                        "add --watts, or a --device with a datasheet that has it");
    if (s->facts.rate <= 0 && !s->device &&
        (s->facts.days > 0 || s->facts.num_devices > 0 || s->facts.price > 0))
        return tri_fail(err, TR_ERROR_INPUT,
                        "how fast a device computes is not known; add --device a100 --mfu 0.4, "
                        "say, or --rate 160e12");
    if (s->batch_tokens > 0 && !s->device)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--batch-tokens is divided by what a device must have to be bound by "
                        "arithmetic, which follows from its rates; add --device v5p, say");
    return TR_OK;
}

/* Products are in 16 bits unless the settings say otherwise. */
static tri_rate rate_kind(const tr_settings *settings)
{
    if (strcmp(tr_settings_string(settings, "precision.linear"), "fp8") == 0)
        return TRI_RATE_FP8;
    const char *kind = tr_settings_string(settings, "precision.kind");
    if (!tr_settings_given(settings, "precision.kind"))
        return TRI_RATE_16;
    return strcmp(kind, "fp32") == 0   ? TRI_RATE_F32
           : strcmp(kind, "tf32") == 0 ? TRI_RATE_TF32
                                       : TRI_RATE_16;
}

static tr_status read_device(run_sheet *s, tr_error *err)
{
    const char *name = tri_cli_flag(s->cli, "device"), *mfu = tri_cli_flag(s->cli, "mfu");
    s->mfu = 0.5;
    s->kind = rate_kind(s->cli->settings);
    if (mfu)
        TRI_TRY(tri_quantity_share("mfu", mfu, &s->mfu, err));
    if (!name)
        return TR_OK;
    TRI_TRY(tri_quantity_device(name, &s->own_device, &s->device, err));
    if (s->device->dense[s->kind] <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the table has no %s rate of %s; set another precision.kind, or give "
                        "--rate",
                        tri_rate_name(s->kind), s->device->title);
    if (s->facts.watts <= 0)
        s->facts.watts = tri_device_watts(s->device->name, NULL);
    return TR_OK;
}

/* What one rank would compute for a token without any layout: nothing is counted twice, and nothing
 * left to others. A model that does not go without its layout has no such count. */
static void count_alone(run_sheet *s)
{
    tr_settings *alone;
    tr_session *session = NULL;
    if (tri_sums_alone(s->cli->settings, &alone, NULL) != TR_OK)
        return;
    if (tri_api_compile(alone, 0, &session, NULL) == TR_OK) {
        const tri_compile_config *compile = &session->session.config.compile;
        const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
        s->token_flops = (tri_program_cost(program).flops - tri_program_redone(program).flops) /
                         ((double)compile->batch * (double)compile->seq_len);
        tr_session_destroy(session);
    }
    tr_settings_destroy(alone);
}

static tr_status read_model(run_sheet *s, tr_error *err)
{
    const char *params = tri_cli_flag(s->cli, "params");
    tr_session *session;
    if (params) {
        TRI_TRY(tri_quantity_count("params", params, &s->params, err));
        s->active = s->params;
        return TR_OK;
    }
    TRI_TRY(tri_api_compile(s->cli->settings, 0, &session, err));
    const tri_compile_config *compile = &session->session.config.compile;
    s->params = s->active = (double)tri_param_total(&session->session.params);
    if (compile->model.moe.num_experts > 0)
        s->active = (double)tri_moe_active(&compile->model.moe, &session->session.params);
    s->num_ranks = tri_mesh_ranks(&compile->mesh);
    tr_session_destroy(session);
    count_alone(s);
    return TR_OK;
}

static void calculate(run_sheet *s)
{
    if (s->device && s->facts.rate <= 0)
        s->facts.rate = s->device->dense[s->kind] * s->mfu;
    if (s->batch_tokens > 0) {
        const tri_link_spec *link = tri_link_spec_find(s->device->link);
        double bytes = s->kind == TRI_RATE_FP8 ? 1 : s->kind == TRI_RATE_16 ? 2 : 4;
        s->device_tokens = tri_fsdp_tokens(s->device, link, link->torus_axes, s->kind, bytes);
    }
    if (s->facts.days > 0) {
        s->why_devices = "for so many days";
    } else if (s->facts.num_devices > 0) {
        s->why_devices = "given";
    } else if (s->batch_tokens > 0) {
        s->facts.num_devices = floor(s->batch_tokens / s->device_tokens);
        s->why_devices = "at most, bound by arithmetic";
    } else if (s->num_ranks > 1) {
        s->facts.num_devices = (double)s->num_ranks;
        s->why_devices = "ranks of the layout";
    }
    s->facts.flops = tri_run_flops(s->active, s->tokens);
    s->sums[BY_RULE] = tri_run_sums_of(&s->facts);
    if (s->token_flops > 0) {
        tri_run_facts facts = s->facts;
        facts.flops = s->token_flops * s->tokens;
        s->sums[BY_PROGRAM] = tri_run_sums_of(&facts);
    }
}

/* ---- text ---- */

static const char *grouped(double value, char out[32])
{
    if (value < 1000)
        snprintf(out, 32, "%.4g", value);
    else if (value < 1e15)
        tri_text_grouped((int64_t)llround(value), out);
    else
        snprintf(out, 32, "%.4g", value);
    return out;
}

static void add_row(const run_sheet *s, tri_text *text, const char *name, const double values[],
                    const char *note)
{
    char number[32];
    if (values[BY_RULE] < 0)
        return;
    tri_text_add(text, "  %-16s %14s", name, grouped(values[BY_RULE], number));
    if (s->token_flops > 0)
        tri_text_add(text, " %14s", grouped(values[BY_PROGRAM], number));
    tri_text_add(text, "%s%s\n", *note ? "  " : "", note);
}

static void add_machine(const run_sheet *s, tri_text *text)
{
    char count[16], tokens[32];
    if (s->facts.rate > 0)
        tri_text_add(text, "a device reaches %sFLOP/s", tri_text_count(s->facts.rate, count));
    if (s->device && !tri_cli_flag(s->cli, "rate"))
        tri_text_add(text, ": %s, %.4g %% of %.4g TFLOP/s (%s, dense)%s", s->device->title,
                     100 * s->mfu, s->device->dense[s->kind] * 1e-12, tri_rate_name(s->kind),
                     tri_cli_flag(s->cli, "mfu") ? "" : "; --mfu gives another share");
    if (s->facts.rate > 0)
        tri_text_add(text, "\n");
    if (s->batch_tokens > 0)
        tri_text_add(text,
                     "sharded data parallelism (FSDP) is bound by arithmetic from %.0f tokens a "
                     "device on:\n%s tokens in a batch are enough for %s devices\n",
                     s->device_tokens, tri_text_count(s->batch_tokens, count),
                     grouped(floor(s->batch_tokens / s->device_tokens), tokens));
}

static void add_note(const run_sheet *s, tri_text *text)
{
    char count[16];
    if (s->token_flops > 0)
        tri_text_add(text,
                     "\nthe model's own count is that of its program: products, attention and "
                     "all else, %sFLOP a token,\nwithout what recomputation does again\n",
                     tri_text_count(s->token_flops, count));
    else if (s->num_ranks > 0)
        tri_text_add(text, "\nthe model's own count is not there: it has no program for a single "
                           "rank\n");
    if (s->device && s->facts.watts <= 0)
        tri_text_add(text, "\nno energy: the maker of %s prints no watts; --watts gives them\n",
                     s->device->title);
    if (s->facts.rate <= 0)
        tri_text_add(text, "\nfor devices and days: --device a100 --mfu 0.4, or --rate 160e12; "
                           "with --days 30 or --gpus 1024\n");
    else if (!s->why_devices)
        tri_text_add(text, "\nfor devices or days: --days 30 or --gpus 1024\n");
}

static void write_text(const run_sheet *s, tri_text *text)
{
    char count[16], active[16], tokens[16], note[120];
    const tri_run_sums *rule = &s->sums[BY_RULE], *own = &s->sums[BY_PROGRAM];
    tri_text_add(text, "%s parameters, ", tri_text_count(s->params, count));
    if (s->active < s->params)
        tri_text_add(text, "%s of them for a token, ", tri_text_count(s->active, active));
    tri_text_add(text, "%s tokens\n", tri_text_count(s->tokens, tokens));
    add_machine(s, text);
    tri_text_add(text, "\n  %-16s %14s%s\n", "", "6 N tokens",
                 s->token_flops > 0 ? "    model's own" : "");
    tri_text_add(text, "  %-16s %14.4g", "FLOP", s->facts.flops);
    if (s->token_flops > 0)
        tri_text_add(text, " %14.4g", s->token_flops * s->tokens);
    tri_text_add(text, "\n");
    add_row(s, text, "PF-days", (double[]){rule->petaflop_days, own->petaflop_days},
            "10^15 FLOP/s for a day");
    add_row(s, text, "devices", (double[]){rule->num_devices, own->num_devices},
            s->why_devices ? s->why_devices : "");
    add_row(s, text, "days",
            (double[]){rule->seconds < 0 ? -1 : rule->seconds / 86400, own->seconds / 86400}, "");
    add_row(s, text, "seconds", (double[]){rule->seconds, own->seconds}, "");
    add_row(s, text, "device hours", (double[]){rule->device_hours, own->device_hours}, "");
    snprintf(note, sizeof note, "%g W a device, PUE %g", s->facts.watts,
             s->facts.overhead > 0 ? s->facts.overhead : 1);
    add_row(s, text, "kWh", (double[]){rule->kwh, own->kwh}, note);
    snprintf(note, sizeof note, "at %g a device hour", s->facts.price);
    add_row(s, text, "money", (double[]){rule->money, own->money}, note);
    add_note(s, text);
}

/* ---- JSON ---- */

static void put_sums(json_t *doc, const char *key, const tri_run_sums *sums, double flops)
{
    const struct {
        const char *key;
        double value;
    } rows[] = {{"petaflop_days", sums->petaflop_days},
                {"devices", sums->num_devices},
                {"seconds", sums->seconds},
                {"device_hours", sums->device_hours},
                {"kwh", sums->kwh},
                {"money", sums->money}};
    json_t *object = tri_doc_object(doc, key);
    tri_doc_number(object, "flops", flops);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tri_doc_number(object, rows[i].key, rows[i].value >= 0 ? rows[i].value : (double)NAN);
}

static tr_status print_json(const run_sheet *s, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tri_doc_number(doc, "parameters", s->params);
    tri_doc_number(doc, "active_parameters", s->active);
    tri_doc_number(doc, "tokens", s->tokens);
    tri_doc_text(doc, "device", s->device ? s->device->name : NULL);
    tri_doc_number(doc, "flops_per_second", s->facts.rate > 0 ? s->facts.rate : (double)NAN);
    tri_doc_number(doc, "watts", s->facts.watts > 0 ? s->facts.watts : (double)NAN);
    tri_doc_number(doc, "pue", s->facts.overhead > 0 ? s->facts.overhead : 1);
    tri_doc_number(doc, "fsdp_tokens_per_device",
                   s->device_tokens > 0 ? s->device_tokens : (double)NAN);
    put_sums(doc, "by_rule", &s->sums[BY_RULE], s->facts.flops);
    if (s->token_flops > 0)
        put_sums(doc, "by_program", &s->sums[BY_PROGRAM], s->token_flops * s->tokens);
    else
        tri_doc_null(doc, "by_program");
    return tri_doc_print(doc, stdout, err);
}

tr_status tri_sums_run(const tri_cli *cli, tr_error *err)
{
    static const char *const flags[] = {"params", "device", "mfu", "rate",         "days", "gpus",
                                        "watts",  "price",  "pue", "batch-tokens", NULL};
    run_sheet s = {.cli = cli};
    TRI_TRY(tri_sums_only(cli, "tokens", flags, err));
    TRI_TRY(read_facts(&s, err));
    TRI_TRY(read_device(&s, err));
    TRI_TRY(check_facts(&s, err));
    TRI_TRY(read_model(&s, err));
    calculate(&s);
    if (tri_cli_flag(cli, "json"))
        return print_json(&s, err);
    tri_text text;
    tri_text_init(&text);
    write_text(&s, &text);
    tr_status status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}
