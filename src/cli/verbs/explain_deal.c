/* trireme explain --deal: which tokens of the first batch each context-parallel rank gets, how even
 * that is, and how many keys it makes travel, for each way to deal. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/fs.h"
#include "cli/deal/deal_view.h"
#include "cli/doc/docs.h"
#include "cli/text.h"
#include "cli/verbs/data_prepare.h"

typedef struct deal_shown {
    const tri_cli *cli;
    const tri_session *session;
    tri_deal_view view;
    double key_bytes; /* of the key and the value of a token in one layer */
} deal_shown;

/* All key heads, whichever ranks of tp and cp_heads have them. */
static double key_bytes_of(const tri_compile_config *config)
{
    const tri_model_config *m = &config->model;
    int64_t heads = m->num_kv_heads > 0 ? m->num_kv_heads : m->num_heads;
    int64_t width = m->head_dim > 0 ? m->head_dim : m->dim / m->num_heads;
    return 2 * (double)tri_dtype_size(config->precision.compute, heads * width);
}

/* ---- text ---- */

static void print_title(const deal_shown *d)
{
    const tri_compile_config *config = &d->session->config.compile;
    int heads = tri_mesh_size(&config->mesh, TRI_AXIS_CP_HEADS);
    const char *deal = tr_settings_string(d->cli->settings, "layout.cp_deal");
    char name[48] = "";
    if (strcmp(deal, "auto") == 0)
        snprintf(name, sizeof name, ", by layout.cp_deal=auto");
    printf("%lld row%s of %lld tokens over a ring of %d ", (long long)d->view.num_rows,
           d->view.num_rows == 1 ? "" : "s", (long long)config->seq_len, d->view.num_ranks);
    if (heads > 1)
        printf("groups of %d ranks, which divide the heads of their tokens\n", heads);
    else
        printf("ranks\n");
    printf("* in use: %s%s\n\n", tri_deal_names[d->session->config.deal], name);
}

static void print_deals(const deal_shown *d)
{
    char bytes[16];
    printf("              area, largest / mean       keys of other ranks that are seen\n"
           "deal            batch    worst row          pairs   of all   a layer     us a row\n");
    for (int k = 0; k < TRI_NUM_DEALS; k++) {
        const tri_deal_facts *f = &d->view.kind[k];
        printf("%-8s %c   %9.4f    %9.4f  %13.0f  %5.1f %%  %-10s %9.2f\n", tri_deal_names[k],
               k == (int)d->session->config.deal ? '*' : ' ', f->largest, f->worst, f->remote,
               100 * f->remote / d->view.all_remote,
               tri_text_bytes(f->remote * d->key_bytes, bytes), 1e6 * f->seconds);
    }
}

static void print_ranks(const deal_shown *d)
{
    const tri_deal_facts *f = &d->view.kind[d->session->config.deal];
    double area = 0;
    for (int32_t r = 0; r < d->view.num_ranks; r++)
        area += (double)f->ranks[r].area;
    printf("\n%-9s     tokens        runs            area    share    remote keys\n",
           tri_mesh_size(&d->session->config.compile.mesh, TRI_AXIS_CP_HEADS) > 1 ? "group"
                                                                                  : "rank");
    for (int32_t r = 0; r < d->view.num_ranks; r++)
        printf("%-9d %10lld  %10lld %15lld  %5.1f %%  %13lld\n", r, (long long)f->ranks[r].tokens,
               (long long)f->ranks[r].runs, (long long)f->ranks[r].area,
               area > 0 ? 100 * (double)f->ranks[r].area / area : 0, (long long)f->ranks[r].remote);
}

/* Which of these keys travel. */
static void print_sent(const deal_shown *d)
{
    char all[16];
    tri_attention_keys keys = d->session->config.compile.cp_keys;
    printf("\nlayout.cp_kind=%s sends %s; all keys are %s a layer\n",
           tr_settings_string(d->cli->settings, "layout.cp_kind"),
           keys == TRI_KEYS_SEEN ? "the keys that are seen" : "all keys to every rank, seen or not",
           tri_text_bytes(d->view.all_remote * d->key_bytes, all));
    if (keys != TRI_KEYS_SEEN &&
        (d->session->config.compile.mask_documents || d->session->config.compile.model.window > 0))
        printf("layout.cp_kind=gather would send those alone that are seen\n");
}

/* ---- JSON ---- */

static void put_ranks(json_t *deal, const deal_shown *d, const tri_deal_facts *f)
{
    json_t *list = tri_doc_list(deal, "ranks");
    double area = 0;
    for (int32_t r = 0; r < d->view.num_ranks; r++)
        area += (double)f->ranks[r].area;
    for (int32_t r = 0; r < d->view.num_ranks; r++) {
        json_t *item = tri_doc_item(list);
        tri_doc_count(item, "rank", r);
        tri_doc_count(item, "tokens", f->ranks[r].tokens);
        tri_doc_count(item, "runs", f->ranks[r].runs);
        tri_doc_count(item, "area", f->ranks[r].area);
        tri_doc_number(item, "area_share", area > 0 ? (double)f->ranks[r].area / area : 0);
        tri_doc_count(item, "remote_keys", f->ranks[r].remote);
    }
}

static tr_status print_json(const deal_shown *d, tr_error *err)
{
    const tri_compile_config *config = &d->session->config.compile;
    json_t *doc = tri_doc_begin();
    tri_doc_count(doc, "cp", tri_mesh_size(&config->mesh, TRI_AXIS_CP));
    tri_doc_count(doc, "cp_heads", tri_mesh_size(&config->mesh, TRI_AXIS_CP_HEADS));
    tri_doc_text(doc, "cp_kind", tr_settings_string(d->cli->settings, "layout.cp_kind"));
    tri_doc_text(doc, "deal", tri_deal_names[d->session->config.deal]);
    tri_doc_count(doc, "rows", d->view.num_rows);
    tri_doc_count(doc, "seq_len", config->seq_len);
    tri_doc_flag(doc, "sends_seen_keys_only", config->cp_keys == TRI_KEYS_SEEN);
    tri_doc_number(doc, "key_bytes", d->key_bytes);
    json_t *list = tri_doc_list(doc, "deals");
    for (int k = 0; k < TRI_NUM_DEALS; k++) {
        const tri_deal_facts *f = &d->view.kind[k];
        json_t *deal = tri_doc_item(list);
        tri_doc_text(deal, "deal", tri_deal_names[k]);
        tri_doc_number(deal, "largest_over_mean_area", f->largest);
        tri_doc_number(deal, "worst_row_largest_over_mean_area", f->worst);
        tri_doc_number(deal, "remote_keys", f->remote);
        tri_doc_number(deal, "remote_share", f->remote / d->view.all_remote);
        tri_doc_number(deal, "remote_bytes", f->remote * d->key_bytes);
        tri_doc_number(deal, "row_seconds", f->seconds);
        put_ranks(deal, d, f);
    }
    return tri_doc_print(doc, stdout, err);
}

/* ---- the picture ---- */

static tr_status draw(const deal_shown *d, const char *path, tr_error *err)
{
    tri_text text;
    char title[160];
    const tri_context *context = d->view.kind[TRI_DEAL_PLAIN].context;
    const tri_deal *deal = &context->deal;
    int64_t documents = 1;
    for (int64_t t = 1; context->span && t < deal->length; t++)
        documents += context->span[t][0] == t && context->span[t][1] > t;
    int used = snprintf(title, sizeof title, "%lld tokens", (long long)deal->length);
    if (documents > 1)
        used += snprintf(title + used, sizeof title - (size_t)used, " in %lld documents",
                         (long long)documents);
    used += snprintf(title + used, sizeof title - (size_t)used, " over %d ranks%s", deal->num_ranks,
                     deal->causal ? ", causal" : "");
    if (deal->window > 0)
        snprintf(title + used, sizeof title - (size_t)used, ", window %d", deal->window);
    tri_text_init(&text);
    tr_status status = tri_deal_view_draw(&d->view, title, &text, err);
    if (status == TR_OK)
        status = tri_file_replace(path, text.chars, text.length, err);
    if (status == TR_OK && !tri_cli_flag(d->cli, "json"))
        tri_text_print(stdout, "\nwritten: %s\n", path);
    tri_text_fini(&text);
    return status;
}

/* ---- the verb ---- */

/* Before any text is prepared. */
static tr_status check_cp(const tr_settings *settings, tr_error *err)
{
    if (tr_settings_int(settings, "layout.cp") > 1)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "--deal shows which tokens each context-parallel rank gets, and layout.cp is "
                    "1: add --set layout.cp=2 or more");
}

static tr_status check_ring(const tri_session_config *config, tr_error *err)
{
    if (tri_mesh_size(&config->compile.mesh, TRI_AXIS_CP_RING) > 1)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "nothing is dealt out: all %d context-parallel ranks exchange tokens for "
                    "heads, and each attends to whole rows; --deal is for layout.cp_kind=ring or "
                    "gather, with layout.cp_heads below layout.cp",
                    tri_mesh_size(&config->compile.mesh, TRI_AXIS_CP));
}

static tr_status show(deal_shown *d, tri_session *session, tr_error *err)
{
    const char *picture = tri_cli_flag(d->cli, "draw");
    TRI_TRY(check_ring(&session->config, err));
    TRI_TRY(tri_session_open_data(session, err));
    TRI_TRY(tri_deal_view_init(&d->view, session, err));
    d->key_bytes = key_bytes_of(&session->config.compile);
    tr_status status = TR_OK;
    if (tri_cli_flag(d->cli, "json")) {
        status = print_json(d, err);
    } else {
        print_title(d);
        print_deals(d);
        print_ranks(d);
        print_sent(d);
    }
    if (status == TR_OK && picture)
        status = draw(d, picture, err);
    tri_deal_view_fini(&d->view);
    return status;
}

/* Text that has to become tokens first does so where training would have it. */
static tr_status prepare(const tri_cli *cli, tr_error *err)
{
    tri_prepare_bar bar;
    bool json = tri_cli_flag(cli, "json") != NULL;
    tri_prepare_bar_init(&bar, tri_terminal(stdout) && !json);
    tr_status status =
        tri_api_prepare(cli->settings, json ? NULL : tri_prepare_bar_show, &bar, err);
    tri_prepare_bar_end(&bar);
    return status;
}

tr_status tri_explain_deal(const tri_cli *cli, tr_error *err)
{
    tr_session *session;
    const char *picture = tri_cli_flag(cli, "draw");
    TRI_TRY(check_cp(cli->settings, err));
    if (picture)
        TRI_TRY(tri_check_output(picture, false, err));
    TRI_TRY(prepare(cli, err));
    TRI_TRY(tri_api_compile(cli->settings, 0, &session, err));
    deal_shown d = {.cli = cli, .session = &session->session};
    tr_status status = show(&d, &session->session, err);
    tr_session_destroy(session);
    return status;
}
