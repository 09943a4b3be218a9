/* trireme place: the sharding calculator. The mathematics is in src/place/calc/; here the flags
 * are read, and an error in a text is shown under it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/settings/nearest.h"
#include "cli/cli.h"
#include "cli/doc/devices_page.h"
#include "cli/doc/docs.h"
#include "cli/quantity.h"
#include "cli/sums/sums.h"
#include "place/calc/calc.h"

const tri_flag tri_place_flags[] = {
    {"mesh", "x:4,y:8", "the axes of the mesh and their sizes"},
    {"dtype", "TYPE", "of the arrays: bf16 (default), f16, f32, tf32, fp8, int8"},
    {"device", "NAME", "for times: h100, ...; --devices lists them; or peak=312T,memory=80G,..."},
    {"link", "NAME", "for times: nvlink4, ib400, ... or 50GB/s (default: the device's)"},
    {"latency", "US", "of a message, in microseconds (default 0)"},
    {"train", "STRATEGY", "In . Win . Wout step by step: dp, fsdp, tp, megatron or fsdp+tp"},
    {"sizes", "B:1024,D:4096", "sizes of letters that are given none where they stand"},
    {"tp", "AXES", "--train: the axes of the model (default: tp, or the last)"},
    {"state", "PARAMS", "memory of weights, gradients and moments under ZeRO 0 to 3"},
    {"shard-group", "N", "--state: shard within groups of N, replicate between them"},
    {"values", "'X=[1,2] ...'", "carry the line out with these numbers, on threads"},
    {"devices", NULL, "the tables of devices, links, clusters and software"},
    {"markdown", NULL, "with --devices: as a page, docs/devices.md"},
    {"limits", NULL, "from where on devices are bound by arithmetic: rows, tokens, devices"},
    {"width", "F", "limits: of a feed-forward layer, for tensor parallelism"},
    {"json", NULL, "one JSON document instead of the text"},
    {0},
};

/* A command and the text that is being read, for messages. */
typedef struct place_command {
    const tri_cli *cli;
    tri_calc calc;
    tri_link_spec own_link;
    tri_device_spec own_device;
    const char *text;
    json_t *doc, *list; /* where they are not text: the document, and its list of lines */
} place_command;

static tr_status read_machine(place_command *p, tr_error *err)
{
    const char *mesh = tri_cli_flag(p->cli, "mesh"), *dtype = tri_cli_flag(p->cli, "dtype");
    const char *device = tri_cli_flag(p->cli, "device"), *link = tri_cli_flag(p->cli, "link");
    const char *latency = tri_cli_flag(p->cli, "latency");
    if (mesh) {
        p->text = mesh;
        TRI_TRY(tri_calc_parse_mesh(&p->calc, mesh, err));
        p->text = NULL;
    }
    if (dtype)
        TRI_TRY(tri_calc_set_dtype(&p->calc, dtype, err));
    if (device) {
        TRI_TRY(tri_quantity_device(device, &p->own_device, &p->calc.device, err));
        p->calc.link = tri_link_spec_find(p->calc.device->link);
    }
    if (link)
        TRI_TRY(tri_quantity_link(link, &p->own_link, &p->calc.link, err));
    return latency ? tri_quantity_seconds("latency", latency, &p->calc.latency_s, err) : TR_OK;
}

static tr_status read_sizes(place_command *p, tr_error *err)
{
    const char *sizes = tri_cli_flag(p->cli, "sizes");
    p->text = sizes;
    if (sizes)
        TRI_TRY(tri_calc_parse_sizes(&p->calc, sizes, err));
    p->text = NULL;
    return TR_OK;
}

static tr_status report_line(place_command *p, const char *line_text, tri_text *text, tr_error *err)
{
    tri_calc_line line;
    tri_calc_moves moves = {.num = 0};
    tri_calc_product product;
    p->text = line_text;
    TRI_TRY(tri_calc_parse_line(&p->calc, line_text, &line, err));
    if (tri_cli_flag(p->cli, "values"))
        return tri_sums_values(&p->calc, &line, tri_cli_flag(p->cli, "values"), text, p->list, err);
    switch (line.kind) {
    case TRI_CALC_ARRAY:
        if (p->list)
            tri_doc_array(p->list, &p->calc, &line.a);
        else
            tri_calc_report_array(&p->calc, &line.a, text);
        return TR_OK;
    case TRI_CALC_MOVE:
        TRI_TRY(tri_calc_move_to(&p->calc, &line.a, &line.target, &moves, err));
        if (p->list)
            tri_doc_moves(p->list, &p->calc, &line.a, &line.target, &moves);
        else
            tri_calc_report_moves(&p->calc, &line.a, &line.target, &moves, text);
        return TR_OK;
    default:
        TRI_TRY(tri_calc_multiply(&p->calc, &line.a, &line.b, line.has_target ? &line.target : NULL,
                                  line.has_target ? line.target.name : "C", &product, err));
        if (p->list)
            tri_doc_product(p->list, &p->calc, &product, NULL);
        else
            tri_calc_report_product(&p->calc, &product, text);
        return TR_OK;
    }
}

static tr_status report_training(place_command *p, const char *strategy, tri_text *text,
                                 tr_error *err)
{
    tri_calc_training *training = malloc(sizeof *training);
    const char *tp = tri_cli_flag(p->cli, "tp");
    unsigned axes = 0;
    tr_status status = TR_OK;
    if (!training)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the calculation");
    if (tp) {
        p->text = tp;
        status = tri_calc_parse_axes(&p->calc, tp, &axes, err);
    }
    if (status == TR_OK) {
        p->text = NULL;
        status = tri_calc_train(&p->calc, strategy, axes, training, err);
    }
    for (int i = 0; status == TR_OK && p->list && i < TRI_CALC_STEPS; i++)
        tri_doc_product(p->list, &p->calc, &training->steps[i].product, training->steps[i].phase);
    if (status == TR_OK && !p->list)
        tri_calc_report_training(&p->calc, training, text);
    free(training);
    return status;
}

static tr_status report_state(place_command *p, const char *count, tri_text *text, tr_error *err)
{
    char *end;
    double params = strtod(count, &end);
    int64_t group = 0;
    if (end == count || *end || !(params >= 1 && params <= 1e18))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--state is \"%.40s\"; expected a number of parameters, such as 7.5e9",
                        count);
    TRI_TRY(tri_cli_flag_int(p->cli, "shard-group", 1, TRI_CALC_DEVICES, &group, err));
    return p->list ? tri_doc_states(p->list, &p->calc, params, group, err)
                   : tri_calc_report_state(&p->calc, params, group, text, err);
}

static tr_status report(place_command *p, tri_text *text, tr_error *err)
{
    const char *train = tri_cli_flag(p->cli, "train"), *state = tri_cli_flag(p->cli, "state");
    int lines = p->cli->num_operands;
    if (tri_cli_flag(p->cli, "limits"))
        return tri_sums_limits(p->cli, text, p->doc, err);
    TRI_TRY(tri_calc_init(&p->calc, err));
    TRI_TRY(read_machine(p, err));
    TRI_TRY(read_sizes(p, err));
    if (tri_cli_flag(p->cli, "markdown") && !tri_cli_flag(p->cli, "devices"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--markdown goes with --devices: trireme place --devices --markdown");
    if (tri_cli_flag(p->cli, "markdown") && p->doc)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--markdown and --json are two ways to print the same; "
                        "leave one of them out");
    if (tri_cli_flag(p->cli, "devices")) {
        if (p->doc)
            tri_doc_devices(p->doc);
        else if (tri_cli_flag(p->cli, "markdown"))
            tri_cli_write_devices_page(text);
        else {
            tri_calc_report_devices(text);
            tri_cli_list_costs(text);
        }
        return TR_OK;
    }
    if ((train || state) && lines > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--%s takes no placement, but \"%.60s\" was given; sizes go to --sizes "
                        "B:1024,D:4096,F:16384",
                        train ? "train" : "state", p->cli->operands[0]);
    if ((train || state) && tri_cli_flag(p->cli, "values"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--values carries out a line, which --%s has none of; leave one out",
                        train ? "train" : "state");
    if (train)
        return report_training(p, train, text, err);
    if (state)
        return report_state(p, state, text, err);
    if (lines == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "nothing to place; for example: trireme place --mesh x:4 'A[I:1024, "
                        "J:4096@x] . B[J@x, K:512] -> C[I, K]', or --train fsdp, or --devices");
    for (int i = 0; i < lines; i++) {
        if (i > 0 && !p->list)
            tri_text_add(text, "\n");
        TRI_TRY(report_line(p, p->cli->operands[i], text, err));
    }
    return TR_OK;
}

/* The text, and a mark under the character. */
static void point_at(const char *text, int at)
{
    int columns = 0;
    for (int i = 0; i < at && text[i]; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    fprintf(stderr, "  %s\n  %*s^\n", text, columns, "");
}

int tri_verb_place(const tri_cli *cli)
{
    tr_error err = {0};
    place_command p = {.cli = cli};
    tri_text text;
    tri_text_init(&text);
    p.doc = tri_cli_flag(cli, "json") ? tri_doc_begin() : NULL;
    if (p.doc && !tri_cli_flag(cli, "devices") && !tri_cli_flag(cli, "limits"))
        p.list = tri_doc_list(p.doc, "lines");
    tr_status status = report(&p, &text, &err);
    if (status == TR_OK)
        status = p.doc ? tri_doc_print(p.doc, stdout, &err) : tri_text_put(&text, stdout, &err);
    else
        json_decref(p.doc);
    tri_text_fini(&text);
    if (status == TR_OK)
        return TRI_EXIT_OK;
    int code = tri_cli_fail(&err);
    if (p.text && p.calc.error_at >= 0)
        point_at(p.text, p.calc.error_at);
    return code;
}
