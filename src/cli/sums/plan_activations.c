/* trireme plan --activations: what the published formulas say that a model keeps for its backward,
 * beside what the program of this rank keeps. */
#include <inttypes.h>
#include <stdio.h>

#include "api/api.h"
#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/quantity.h"
#include "cli/sums/sums.h"
#include "program/ledger.h"
#include "sim/activation_sums.h"

/* Rows of the table: with and without sequence parallelism where there is tensor parallelism. */
typedef struct activation_row {
    tri_kept_kind kept;
    bool sp;
    double layer, model; /* bytes */
} activation_row;

typedef struct activation_sheet {
    const tri_cli *cli;
    tri_layer_sizes sizes;
    double tokens_planned; /* of a micro-batch of this rank */
    int64_t num_layers;
    activation_row rows[2 * TRI_NUM_KEPT];
    int num_rows;
    double own_layer, own_model; /* kept by the program, for as many tokens */
    int own_layers;              /* of this rank */
    bool wide_feed_forward;      /* it is 4 h wide, as in the formulas */
    const char *recompute;
} activation_sheet;

static tr_status read_sizes(activation_sheet *s, const tri_session *session, tr_error *err)
{
    const tri_compile_config *compile = &session->config.compile;
    const tri_model_config *model = &compile->model;
    const char *given = tri_cli_flag(s->cli, "activations");
    s->tokens_planned = (double)tri_microbatch_rows(compile) * (double)compile->seq_len /
                        tri_mesh_size(&compile->mesh, TRI_AXIS_CP);
    s->sizes =
        (tri_layer_sizes){.tokens = s->tokens_planned,
                          .seq_len = (double)compile->seq_len,
                          .width = (double)model->dim,
                          .heads = (double)model->num_heads,
                          .element_bytes = (double)tri_dtype_bytes(compile->precision.compute),
                          .tp = tri_mesh_size(&compile->mesh, TRI_AXIS_TP),
                          .sp = compile->sp};
    s->num_layers = model->num_layers;
    s->wide_feed_forward = model->ffn_dim == 4 * model->dim;
    s->recompute = tr_settings_string(s->cli->settings, "layout.recompute");
    if (*given)
        TRI_TRY(tri_quantity_count("activations", given, &s->sizes.tokens, err));
    return TR_OK;
}

static tr_status count_own(activation_sheet *s, const tri_session *session, tr_error *err)
{
    tri_ledger ledger;
    double scale = s->sizes.tokens / s->tokens_planned;
    bool transformer = false;
    TRI_TRY(tri_ledger_make(&session->programs[TRI_PROGRAM_TRAIN], &ledger, err));
    for (int l = 0; l < ledger.num_layers; l++) {
        double kept = (double)ledger.layers[l + 1].kept * scale;
        transformer |= ledger.layers[l + 1].has_book || ledger.layers[l + 1].redone;
        s->own_layers += kept > 0;
        s->own_model += kept;
        s->own_layer = kept > s->own_layer ? kept : s->own_layer;
    }
    tri_ledger_fini(&ledger);
    if (!transformer)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--activations is about transformer layers, and a model of kind %s has "
                        "none; plan --ledger lists what it keeps",
                        session->config.compile.model.kind);
    return TR_OK;
}

static void fill_rows(activation_sheet *s)
{
    for (int sp = 0; sp <= (s->sizes.tp > 1); sp++)
        for (int kept = 0; kept < TRI_NUM_KEPT; kept++) {
            tri_layer_sizes sizes = s->sizes;
            sizes.sp = sp;
            activation_row *row = &s->rows[s->num_rows++];
            *row = (activation_row){.kept = (tri_kept_kind)kept, .sp = sp};
            row->layer = tri_activation_bytes(&sizes, row->kept);
            row->model = row->layer * (double)s->num_layers;
        }
}

static const char *const kept_names[TRI_NUM_KEPT] = {"none", "selective", "full"};

static void write_formula(const activation_sheet *s, const activation_row *row, char out[80])
{
    double e = s->sizes.element_bytes, t = s->sizes.tp;
    char div[16] = "";
    if (t > 1)
        snprintf(div, sizeof div, "/%.0f", t);
    if (row->kept == TRI_KEPT_INPUT)
        snprintf(out, 80, "%.0f sbh%s", e, row->sp ? div : "");
    else if (row->kept == TRI_KEPT_SELECTIVE && (row->sp || t <= 1))
        snprintf(out, 80, "%.0f sbh%s", 16 * e + 2, div);
    else if (row->sp || t <= 1)
        snprintf(out, 80, "(%.0f sbh + %.0f abs^2)%s", 16 * e + 2, 2 * e + 1, div);
    else if (row->kept == TRI_KEPT_ALL)
        snprintf(out, 80, "(%.0f + %.0f%s) sbh + %.0f abs^2%s", 4 * e + 2, 12 * e, div, 2 * e + 1,
                 div);
    else
        snprintf(out, 80, "(%.0f + %.0f%s) sbh", 4 * e + 2, 12 * e, div);
}

static void write_text(const activation_sheet *s, tri_text *text)
{
    const tri_layer_sizes *z = &s->sizes;
    char tokens[16], layer[24], model[24], formula[80];
    tri_text_add(text,
                 "%s tokens in rows of %.0f (s), width %.0f (h), %.0f heads (a), %" PRId64
                 " layers, %.0f bits\n",
                 tri_text_count(z->tokens, tokens), z->seq_len, z->width, z->heads, s->num_layers,
                 8 * z->element_bytes);
    if (z->tp > 1)
        tri_text_add(text, "bytes of one of %.0f tensor-parallel ranks\n", z->tp);
    tri_text_add(text, "\nby the published formulas, attention not fused, with dropout\n");
    tri_text_add(text, "  %-11s %-4s %-32s %12s %12s\n", "recompute", "sp", "a layer", "",
                 "all layers");
    for (int i = 0; i < s->num_rows; i++) {
        const activation_row *row = &s->rows[i];
        write_formula(s, row, formula);
        tri_text_add(text, "  %-11s %-4s %-32s %12s %12s\n", kept_names[row->kept],
                     row->sp ? "yes" : "no", formula, tri_sums_bytes(row->layer, 4, layer),
                     tri_sums_bytes(row->model, 4, model));
    }
    if (z->element_bytes > 2)
        tri_text_add(text, "  (papers print them for 16 bits: --set precision.kind=bf16)\n");
    if (!s->wide_feed_forward)
        tri_text_add(text, "  (of a feed-forward 4 h wide, which this model's is not)\n");
    tri_text_add(text, "\nby the plan of this rank, layout.recompute=%s, layout.sp=%s\n",
                 s->recompute, z->sp ? "true" : "false");
    tri_text_add(text, "  %-49s %12s %12s  (%d layer%s)\n", "kept for the backward",
                 tri_sums_bytes(s->own_layer, 4, layer), tri_sums_bytes(s->own_model, 4, model),
                 s->own_layers, s->own_layers == 1 ? "" : "s");
    if (z->tokens != s->tokens_planned)
        tri_text_add(text, "  (that of a micro-batch of %s tokens, scaled)\n",
                     tri_text_count(s->tokens_planned, tokens));
    tri_text_add(text, "\nfused attention stores no scores; trireme plan --ledger says of each "
                       "tensor why it is kept or not\n");
}

static tr_status print_json(const activation_sheet *s, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tri_doc_number(doc, "tokens", s->sizes.tokens);
    tri_doc_number(doc, "seq_len", s->sizes.seq_len);
    tri_doc_number(doc, "width", s->sizes.width);
    tri_doc_number(doc, "heads", s->sizes.heads);
    tri_doc_count(doc, "layers", s->num_layers);
    tri_doc_number(doc, "tp", s->sizes.tp);
    tri_doc_number(doc, "element_bytes", s->sizes.element_bytes);
    json_t *list = tri_doc_list(doc, "formulas");
    for (int i = 0; i < s->num_rows; i++) {
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "recompute", kept_names[s->rows[i].kept]);
        tri_doc_flag(item, "sp", s->rows[i].sp);
        tri_doc_number(item, "layer_bytes", s->rows[i].layer);
        tri_doc_number(item, "model_bytes", s->rows[i].model);
    }
    json_t *own = tri_doc_object(doc, "planned");
    tri_doc_text(own, "recompute", s->recompute);
    tri_doc_flag(own, "sp", s->sizes.sp);
    tri_doc_count(own, "layers", s->own_layers);
    tri_doc_number(own, "layer_bytes", s->own_layer);
    tri_doc_number(own, "model_bytes", s->own_model);
    return tri_doc_print(doc, stdout, err);
}

static tr_status show(activation_sheet *s, const tri_session *session, tr_error *err)
{
    tri_text text;
    TRI_TRY(read_sizes(s, session, err));
    TRI_TRY(count_own(s, session, err));
    fill_rows(s);
    if (tri_cli_flag(s->cli, "json"))
        return print_json(s, err);
    tri_text_init(&text);
    write_text(s, &text);
    tr_status status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}

tr_status tri_sums_activations(const tri_cli *cli, tr_error *err)
{
    static const char *const flags[] = {"rank", NULL};
    activation_sheet s = {.cli = cli};
    tr_session *session;
    int64_t rank = 0;
    TRI_TRY(tri_sums_only(cli, "activations", flags, err));
    TRI_TRY(tri_cli_flag_int(cli, "rank", 0, TRI_MAX_RANKS - 1, &rank, err));
    TRI_TRY(tri_cli_check_rank(cli, rank, err));
    TRI_TRY(tri_api_compile(cli->settings, (int)rank, &session, err));
    tr_status status = show(&s, &session->session, err);
    tr_session_destroy(session);
    return status;
}
