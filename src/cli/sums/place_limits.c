/* trireme place --limits: from where on devices are bound by arithmetic: rows of a product against
 * memory, tokens of sharded data parallelism and devices of tensor parallelism against links. */
#include <math.h>
#include <stdio.h>

#include "cli/doc/json_doc.h"
#include "cli/quantity.h"
#include "cli/sums/sums.h"
#include "place/calc/calc.h"
#include "sim/run_sums.h"

enum { MOST_AXES = 3 };

typedef struct limits_sheet {
    tri_calc calc;              /* the type of the numbers, and the link where one is given */
    double width;               /* of the feed-forward layer; 0: not given */
    tri_device_spec own_device; /* of a description */
} limits_sheet;

typedef struct limits_row {
    const tri_device_spec *device;
    const tri_link_spec *link;
    double rows, sparse_rows;   /* 0: there is no such rate */
    int num_axes;               /* of the mesh that make a difference */
    double tokens[MOST_AXES];   /* over one axis, two, three */
    double parallel[MOST_AXES]; /* devices of tensor parallelism; 0 without a width */
} limits_row;

static limits_row row_of(const limits_sheet *s, const tri_device_spec *device)
{
    tri_rate rate = s->calc.rate;
    double bytes = s->calc.element_bytes;
    limits_row row = {.device = device,
                      .link = s->calc.link ? s->calc.link : tri_link_spec_find(device->link),
                      .rows = tri_roofline_rows(device, rate, bytes, false),
                      .sparse_rows = tri_roofline_rows(device, rate, bytes, true)};
    int most = row.link->torus_axes > 0 ? row.link->torus_axes : 1;
    for (int axes = 1; axes <= most && axes <= MOST_AXES && row.rows > 0; axes++) {
        row.tokens[axes - 1] = tri_fsdp_tokens(device, row.link, axes, rate, bytes);
        row.parallel[axes - 1] =
            s->width > 0 ? tri_tensor_devices(device, row.link, axes, rate, bytes, s->width) : 0;
        row.num_axes = axes;
    }
    return row;
}

static void add_list(const double *values, int num, const char *format, tri_text *text)
{
    char list[160] = "";
    for (int i = 0, at = 0; i < num && at < (int)sizeof list; i++)
        at += snprintf(list + at, sizeof list - (size_t)at, format, i ? " / " : "", values[i]);
    tri_text_add(text, " %21s", list);
}

static void add_row(const limits_sheet *s, const limits_row *row, tri_text *text)
{
    char rows[40];
    int used = snprintf(rows, sizeof rows, "%.0f", row->rows);
    if (row->sparse_rows > 0)
        snprintf(rows + used, sizeof rows - (size_t)used, " (%.0f)", row->sparse_rows);
    tri_text_add(text, "  %-10s %-9s %12s", row->device->name, row->link->name, rows);
    add_list(row->tokens, row->num_axes, "%s%.0f", text);
    if (s->width > 0)
        add_list(row->parallel, row->num_axes, "%s%.1f", text);
    tri_text_add(text, "\n");
}

static void add_head(const limits_sheet *s, tri_text *text)
{
    tri_text_add(text, "%s: bound by arithmetic\n\n  %-10s %-9s %12s %21s", s->calc.dtype, "device",
                 "link", "rows, memory", "tokens, FSDP");
    if (s->width > 0)
        tri_text_add(text, " %21s", "devices, tensor");
    tri_text_add(text, "\n");
}

static void add_end(const limits_sheet *s, tri_text *text)
{
    tri_text_add(text,
                 "\nrows, memory    from so many rows on a product reads its weights faster than "
                 "it multiplies: bytes/2 * FLOP/s / memory's B/s;\n                in brackets "
                 "with 2:4 sparsity\ntokens, FSDP    from so many tokens a device on, weights "
                 "sharded over all, over 1 / 2 / 3 axes of the mesh: bytes/2 * C/W\n");
    if (s->width > 0)
        tri_text_add(text,
                     "devices, tensor up to so many devices, F = %g, over 1 / 2 / 3 axes: "
                     "F / (bytes/2 * C/W)\n",
                     s->width);
    else
        tri_text_add(text, "--width 30000, say, adds the limit of tensor parallelism\n");
}

static void put_list(json_t *item, const char *key, const double *values, int num)
{
    json_t *list = tri_doc_list(item, key);
    for (int i = 0; i < num; i++)
        json_array_append_new(list, json_real(values[i]));
}

static void put_row(json_t *list, const limits_sheet *s, const limits_row *row)
{
    json_t *item = tri_doc_item(list);
    tri_doc_text(item, "device", row->device->name);
    tri_doc_text(item, "link", row->link->name);
    tri_doc_number(item, "rows", row->rows);
    tri_doc_number(item, "sparse_rows", row->sparse_rows > 0 ? row->sparse_rows : (double)NAN);
    put_list(item, "fsdp_tokens", row->tokens, row->num_axes);
    put_list(item, "tensor_devices", row->parallel, s->width > 0 ? row->num_axes : 0);
}

static tr_status read_sheet(limits_sheet *s, tri_link_spec *own, const tri_cli *cli, tr_error *err)
{
    const char *dtype = tri_cli_flag(cli, "dtype"), *link = tri_cli_flag(cli, "link");
    const char *device = tri_cli_flag(cli, "device"), *width = tri_cli_flag(cli, "width");
    TRI_TRY(tri_calc_init(&s->calc, err));
    if (dtype)
        TRI_TRY(tri_calc_set_dtype(&s->calc, dtype, err));
    if (link)
        TRI_TRY(tri_quantity_link(link, own, &s->calc.link, err));
    if (width)
        TRI_TRY(tri_quantity_count("width", width, &s->width, err));
    if (!device)
        return TR_OK;
    TRI_TRY(tri_quantity_device(device, &s->own_device, &s->calc.device, err));
    if (s->calc.device->dense[s->calc.rate] <= 0)
        return tri_fail(err, TR_ERROR_INPUT, "the table has no %s rate of %s; give another --dtype",
                        tri_rate_name(s->calc.rate), s->calc.device->title);
    return TR_OK;
}

tr_status tri_sums_limits(const tri_cli *cli, tri_text *text, json_t *doc, tr_error *err)
{
    static const char *const flags[] = {"device", "link", "dtype", "width", NULL};
    limits_sheet s = {0};
    tri_link_spec own;
    TRI_TRY(tri_sums_only(cli, "limits", flags, err));
    if (cli->num_operands > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--limits takes no placement, but \"%.60s\" was given; leave it out",
                        cli->operands[0]);
    TRI_TRY(read_sheet(&s, &own, cli, err));
    json_t *list = doc ? tri_doc_list(doc, "limits") : NULL;
    if (!doc)
        add_head(&s, text);
    for (size_t i = 0; tri_device_spec_at(i); i++) {
        const tri_device_spec *device = tri_device_spec_at(i);
        if ((s.calc.device && s.calc.device != device) || device->dense[s.calc.rate] <= 0)
            continue;
        limits_row row = row_of(&s, device);
        if (doc)
            put_row(list, &s, &row);
        else
            add_row(&s, &row, text);
    }
    if (!doc)
        add_end(&s, text);
    return TR_OK;
}
