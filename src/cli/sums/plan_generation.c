/* trireme plan --generation: what a model takes to write texts: its weights, the keys and values of
 * every position of every row, and from how many rows on a device is bound by arithmetic. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/quantity.h"
#include "cli/sums/sums.h"
#include "cli/word_list.h"
#include "sim/run_sums.h"

enum { MOST_COUNTS = 8 };

typedef struct count_list {
    int64_t values[MOST_COUNTS];
    int num;
} count_list;

typedef struct generation_sheet {
    const tri_cli *cli;
    tri_model_config model;
    double params, weight_bytes, number_bytes; /* number_bytes: of keys and values */
    double token_bytes;                        /* of the cache, a position of a row */
    int64_t key_heads, head_width;
    count_list rows, lengths;
    const tri_device_spec *device;
    tri_device_spec own_device;                         /* of a description */
    double planned_weights, planned_cache, planned_all; /* of the first rows and length */
    const char *precision;
} generation_sheet;

static tr_status read_counts(const tri_cli *cli, const char *flag, const char *otherwise,
                             double most, count_list *counts, tr_error *err)
{
    tri_word_list list;
    tr_status status = tri_word_list_read(cli, flag, otherwise, &list, err);
    if (status == TR_OK && list.num > MOST_COUNTS)
        status = tri_fail(err, TR_ERROR_INPUT, "--%s lists %d, more than the %d that fit", flag,
                          list.num, MOST_COUNTS);
    for (int i = 0; i < list.num && status == TR_OK; i++) {
        double value = 0;
        status = tri_quantity_count(flag, list.words[i], &value, err);
        if (status == TR_OK && (value < 1 || value > most || value != floor(value)))
            status = tri_fail(err, TR_ERROR_INPUT,
                              "--%s is %.20s; expected whole numbers from 1 to %.0f", flag,
                              list.words[i], most);
        counts->values[counts->num++] = (int64_t)value;
    }
    free(list.text);
    return status;
}

static tr_status read_flags(generation_sheet *s, tr_error *err)
{
    const char *device = tri_cli_flag(s->cli, "device"),
               *wide = tri_cli_flag(s->cli, "weight-bytes");
    s->weight_bytes = s->number_bytes = 2;
    if (wide)
        TRI_TRY(tri_quantity_number("weight-bytes", wide, 0.125, 8, &s->weight_bytes, err));
    TRI_TRY(read_counts(s->cli, "rows", "1,8,64", 1 << 16, &s->rows, err));
    TRI_TRY(read_counts(s->cli, "length", "2048,8192", 1 << 24, &s->lengths, err));
    if (!device)
        return TR_OK;
    TRI_TRY(tri_quantity_device(device, &s->own_device, &s->device, err));
    if (s->device->dense[TRI_RATE_16] <= 0)
        return tri_fail(err, TR_ERROR_INPUT, "the table has no 16-bit rate of %s; name another",
                        s->device->title);
    return TR_OK;
}

/* Positions of a row that are kept: a window forgets those before it. */
static double kept_positions(const generation_sheet *s, int64_t length)
{
    bool windowed = s->model.window > 0 && s->model.window < length;
    return (double)(windowed ? s->model.window : length);
}

static double cache_bytes(const generation_sheet *s, int64_t rows, int64_t length)
{
    return (double)rows * kept_positions(s, length) * s->token_bytes;
}

/* The programs of trireme generate on one rank, for the first rows and length. */
static tr_status plan_own(generation_sheet *s, tr_settings *alone, tr_error *err)
{
    tr_session *session;
    tri_session_config config;
    TRI_TRY(tri_settings_complete(alone, err));
    TRI_TRY(tri_session_config_from(alone, &config, err));
    int64_t length = s->lengths.values[0];
    tri_generate_shape shape =
        tri_generate_plan(&config.compile.model, s->rows.values[0],
                          tr_settings_int(alone, "generate.prefill"), length, length);
    TRI_TRY(tri_api_compile_programs(alone, 0, TRI_PROGRAMS_GENERATE, &shape, &session, err));
    const tri_session *own = &session->session;
    s->model = own->config.compile.model;
    s->params = (double)tri_param_total(&own->params);
    s->planned_weights =
        (double)(own->store.slabs[TRI_SLAB_PARAM].bytes + own->store.slabs[TRI_SLAB_COPY].bytes);
    s->planned_cache = (double)own->store.slabs[TRI_SLAB_CACHE].bytes;
    s->planned_all = (double)tri_session_planned_bytes(own);
    s->key_heads = s->model.num_kv_heads > 0 ? s->model.num_kv_heads : s->model.num_heads;
    s->head_width = s->model.head_dim > 0 ? s->model.head_dim : s->model.dim / s->model.num_heads;
    s->token_bytes = 2.0 * (double)s->model.num_layers * (double)s->key_heads *
                     (double)s->head_width * s->number_bytes;
    tr_session_destroy(session);
    return TR_OK;
}

static void add_cache(const generation_sheet *s, tri_text *text)
{
    char bytes[24];
    tri_text_add(text, "\nkeys and values\n  %8s", "rows");
    for (int l = 0; l < s->lengths.num; l++)
        tri_text_add(text, " %9" PRId64 " tokens", s->lengths.values[l]);
    tri_text_add(text, "\n");
    for (int r = 0; r < s->rows.num; r++) {
        tri_text_add(text, "  %8" PRId64, s->rows.values[r]);
        for (int l = 0; l < s->lengths.num; l++)
            tri_text_add(
                text, " %16s",
                tri_sums_bytes(cache_bytes(s, s->rows.values[r], s->lengths.values[l]), 4, bytes));
        tri_text_add(text, "\n");
    }
}

static void add_device(const generation_sheet *s, tri_text *text)
{
    double weights = s->params * s->weight_bytes, memory = s->device->memory_bytes;
    char number[32];
    tri_text_add(text, "\n%s, %.4g GB at %.4g GB/s\n", s->device->title, memory * 1e-9,
                 s->device->memory_bytes_per_s * 1e-9);
    tri_text_add(text, "  weights alone need %.0f device%s\n", ceil(weights / memory),
                 weights > memory ? "s" : "");
    for (int l = 0; l < s->lengths.num && weights < memory; l++)
        tri_text_add(
            text, "  beside them one device has room for %s rows of %" PRId64 " tokens\n",
            tri_text_grouped(
                (int64_t)((memory - weights) / cache_bytes(s, 1, s->lengths.values[l])), number),
            s->lengths.values[l]);
    tri_text_add(text,
                 "  a token of every row takes at least %.4g ms, in which the weights are read\n"
                 "  products are bound by arithmetic from %.0f rows on\n",
                 weights / s->device->memory_bytes_per_s * 1e3,
                 tri_roofline_rows(s->device, TRI_RATE_16, s->weight_bytes, false));
}

static void write_text(const generation_sheet *s, tri_text *text)
{
    char count[16], bytes[24], cache[24], all[24];
    tri_text_add(text, "%s, %s parameters: %s of weights, %g bytes each\n", s->model.kind,
                 tri_text_count(s->params, count),
                 tri_sums_bytes(s->params * s->weight_bytes, 4, bytes), s->weight_bytes);
    tri_text_add(text,
                 "a token of the cache: %s (key and value, %" PRId64 " layers, %" PRId64
                 " key heads of %" PRId64 ", %g bytes)\n",
                 tri_sums_bytes(s->token_bytes, 4, bytes), s->model.num_layers, s->key_heads,
                 s->head_width, s->number_bytes);
    if (s->model.window > 0)
        tri_text_add(text, "of a row its last %" PRId64 " tokens are kept (model.window)\n",
                     s->model.window);
    add_cache(s, text);
    for (int l = 0; l < s->lengths.num; l++)
        if (s->model.window == 0 && s->lengths.values[l] > s->model.positions)
            tri_text_add(text,
                         "  (%" PRId64 " tokens: the model has %" PRId64
                         " positions, and trireme generate forgets what is before them)\n",
                         s->lengths.values[l], s->model.positions);
    if (s->device)
        add_device(s, text);
    tri_text_add(text,
                 "\ntrireme generate with precision.kind=%s, %" PRId64 " row%s of %" PRId64
                 " tokens: %s planned, of which weights %s, cache %s\n",
                 s->precision, s->rows.values[0], s->rows.values[0] == 1 ? "" : "s",
                 s->lengths.values[0], tri_sums_bytes(s->planned_all, 4, all),
                 tri_sums_bytes(s->planned_weights, 4, bytes),
                 tri_sums_bytes(s->planned_cache, 4, cache));
}

static tr_status print_json(const generation_sheet *s, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tri_doc_number(doc, "parameters", s->params);
    tri_doc_number(doc, "weights_bytes", s->params * s->weight_bytes);
    tri_doc_number(doc, "cache_token_bytes", s->token_bytes);
    json_t *list = tri_doc_list(doc, "caches");
    for (int r = 0; r < s->rows.num; r++)
        for (int l = 0; l < s->lengths.num; l++) {
            json_t *item = tri_doc_item(list);
            tri_doc_count(item, "rows", s->rows.values[r]);
            tri_doc_count(item, "length", s->lengths.values[l]);
            tri_doc_number(item, "cache_bytes",
                           cache_bytes(s, s->rows.values[r], s->lengths.values[l]));
        }
    tri_doc_text(doc, "device", s->device ? s->device->name : NULL);
    tri_doc_number(doc, "compute_bound_rows",
                   s->device ? tri_roofline_rows(s->device, TRI_RATE_16, s->weight_bytes, false)
                             : (double)NAN);
    tri_doc_number(doc, "least_token_seconds",
                   s->device ? s->params * s->weight_bytes / s->device->memory_bytes_per_s
                             : (double)NAN);
    json_t *own = tri_doc_object(doc, "planned");
    tri_doc_number(own, "weights_bytes", s->planned_weights);
    tri_doc_number(own, "cache_bytes", s->planned_cache);
    tri_doc_number(own, "plan_bytes", s->planned_all);
    return tri_doc_print(doc, stdout, err);
}

tr_status tri_sums_generation(const tri_cli *cli, tr_error *err)
{
    static const char *const flags[] = {"rows", "length", "weight-bytes", "device", NULL};
    generation_sheet s = {.cli = cli};
    tr_settings *alone;
    TRI_TRY(tri_sums_only(cli, "generation", flags, err));
    TRI_TRY(read_flags(&s, err));
    s.precision = tr_settings_string(cli->settings, "precision.kind");
    TRI_TRY(tri_sums_alone(cli->settings, &alone, err));
    tr_status status = plan_own(&s, alone, err);
    tri_text text;
    tri_text_init(&text);
    if (status == TR_OK && tri_cli_flag(cli, "json"))
        status = print_json(&s, err);
    else if (status == TR_OK) {
        write_text(&s, &text);
        status = tri_text_put(&text, stdout, err);
    }
    tri_text_fini(&text);
    tr_settings_destroy(alone);
    return status;
}
