/* trireme bench matmul: products of several shapes against the roofline: the rate of a large
 * product, or what memory delivers for the operands, whichever is less; both measured here. */
#include "cli/bench/bench_matmul.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "cli/doc/json_doc.h"
#include "cli/word_list.h"
#include "config/resolve.h"
#include "device/device.h"
#include "mesh/device_names.h"
#include "sim/log_plot.h"
#include "sim/run_sums.h"

enum { MOST_SHAPES = TRI_MOST_WORDS, SCRATCH = 64 << 20, ROOF_POINTS = 3, TRIES = 3 };
static const int64_t most_size = 1 << 20;

typedef struct product_row {
    int64_t m, n, k;
    double seconds, flops, intensity, roof; /* roof: FLOP/s */
} product_row;

typedef struct matmul_bench {
    const tri_cli *cli;
    tri_device device;
    tri_dtype dtype;
    double peak_flops, peak_bytes;
    product_row rows[MOST_SHAPES];
    int num_rows;
} matmul_bench;

/* "4096", all three alike; "8x4096x4096": rows, columns, and what is summed over. */
static tr_status read_shape(const char *text, product_row *row, tr_error *err)
{
    int64_t sizes[3] = {0};
    int num = 0;
    char *end = NULL;
    for (const char *at = text; num < 3; at = end + 1) {
        sizes[num++] = strtoll(at, &end, 10);
        if (end == at || sizes[num - 1] < 1 || sizes[num - 1] > most_size || *end != 'x')
            break;
    }
    bool right = (num == 1 || num == 3) && !*end;
    for (int i = 0; i < num; i++)
        right &= sizes[i] >= 1 && sizes[i] <= most_size;
    if (!right)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--shapes: \"%.40s\" is not a product; write 1024, or 8x4096x4096 for "
                        "rows, columns and what is summed over",
                        text);
    *row = (product_row){.m = sizes[0], .n = sizes[num == 1 ? 0 : 1], .k = sizes[num == 1 ? 0 : 2]};
    return TR_OK;
}

static tr_status read_shapes(matmul_bench *b, tr_error *err)
{
    tri_word_list list;
    const char *usual = b->device.def->queue
                            ? "512,1024,2048,4096,8192,1x4096x4096,16x4096x4096,256x4096x4096"
                            : "64,128,256,512,1024,1x2048x2048,8x2048x2048,64x2048x2048";
    tr_status status = tri_word_list_read(b->cli, "shapes", usual, &list, err);
    for (int i = 0; i < list.num && status == TR_OK; i++)
        status = read_shape(list.words[i], &b->rows[b->num_rows++], err);
    free(list.text);
    return status;
}

/* What programs of these settings multiply: the CPU widens 16-bit numbers. */
static tr_status open_device(matmul_bench *b, tr_error *err)
{
    tri_session_config config;
    TRI_TRY(tr_settings_set(b->cli->settings, "model.preset=", err));
    TRI_TRY(tri_settings_complete(b->cli->settings, err));
    TRI_TRY(tri_session_config_from(b->cli->settings, &config, err));
    TRI_TRY(tri_device_open(&config.device, &b->device, err));
    b->dtype = b->device.def->f32_only ? TRI_F32 : config.compile.precision.compute;
    return TR_OK;
}

static tr_status measure(matmul_bench *b, tr_error *err)
{
    const tri_device_def *def = b->device.def;
    if (!def->product_seconds || !def->peak_flops || !def->peak_bytes)
        return tri_fail(err, TR_ERROR_INPUT, "products of %s cannot be timed; set run.device=cpu",
                        b->device.description);
    if (def->queue)
        TRI_TRY(def->queue->start(&b->device, 0, err));
    TRI_TRY(def->reserve_scratch(&b->device, SCRATCH, err));
    TRI_TRY(read_shapes(b, err));
    for (int i = 0; i < TRIES; i++) { /* another program may have the machine for a moment */
        b->peak_flops = fmax(b->peak_flops, def->peak_flops(&b->device, b->dtype));
        b->peak_bytes = fmax(b->peak_bytes, def->peak_bytes(&b->device));
    }
    for (int i = 0; i < b->num_rows; i++) {
        product_row *row = &b->rows[i];
        double m = (double)row->m, n = (double)row->n, k = (double)row->k;
        row->intensity = tri_product_intensity(m, n, k, (double)tri_dtype_bytes(b->dtype));
        row->roof = fmin(b->peak_flops, row->intensity * b->peak_bytes);
        row->seconds = def->product_seconds(&b->device, b->dtype, row->m, row->n, row->k);
        if (row->seconds <= 0)
            return tri_fail(err, TR_ERROR_RUNTIME,
                            "no memory for a product of %" PRId64 " x %" PRId64 " x %" PRId64
                            "; leave it out of --shapes",
                            row->m, row->n, row->k);
        row->flops = 2 * m * n * k / row->seconds;
    }
    return TR_OK;
}

static void print_table(const matmul_bench *b)
{
    const tri_device_spec *spec = tri_device_spec_in(b->device.description);
    printf("%s, %s; a large product makes %.4g GFLOP/s, a copy %.4g GB/s; they meet at %.1f "
           "FLOP/byte\n",
           b->device.description, tri_dtype_name(b->dtype), b->peak_flops * 1e-9,
           b->peak_bytes * 1e-9, b->peak_flops / b->peak_bytes);
    if (spec)
        printf("memory of %s by its datasheet: %.4g GB/s\n", spec->title,
               spec->memory_bytes_per_s * 1e-9);
    printf("\n  %-22s %10s %10s %10s %9s %10s  %s\n", "product", "ms", "GFLOP/s", "FLOP/byte",
           "roofline", "of it", "bound by");
    for (int i = 0; i < b->num_rows; i++) {
        const product_row *row = &b->rows[i];
        char shape[64];
        snprintf(shape, sizeof shape, "%" PRId64 " x %" PRId64 " x %" PRId64, row->m, row->n,
                 row->k);
        printf("  %-22s %10.4g %10.1f %10.4g %9.1f %9.0f%%  %s\n", shape, row->seconds * 1e3,
               row->flops * 1e-9, row->intensity, row->roof * 1e-9, 100 * row->flops / row->roof,
               row->roof < b->peak_flops ? "memory" : "arithmetic");
    }
    printf("\nroofline: the large product, or FLOP/byte times the copy; operands that stay in a "
           "cache can pass it\n");
}

static tr_status print_json(const matmul_bench *b, tr_error *err)
{
    for (int i = 0; i < b->num_rows; i++) {
        const product_row *row = &b->rows[i];
        json_t *doc = tri_doc_begin();
        tri_doc_text(doc, "device", b->device.description);
        tri_doc_text(doc, "dtype", tri_dtype_name(b->dtype));
        tri_doc_count(doc, "m", row->m);
        tri_doc_count(doc, "n", row->n);
        tri_doc_count(doc, "k", row->k);
        tri_doc_number(doc, "seconds", row->seconds);
        tri_doc_number(doc, "flops_per_second", row->flops);
        tri_doc_number(doc, "flops_per_byte", row->intensity);
        tri_doc_number(doc, "roofline_flops_per_second", row->roof);
        tri_doc_number(doc, "peak_flops_per_second", b->peak_flops);
        tri_doc_number(doc, "peak_bytes_per_second", b->peak_bytes);
        TRI_TRY(tri_doc_print(doc, stdout, err));
    }
    return TR_OK;
}

static tr_status draw(const matmul_bench *b, const char *path, tr_error *err)
{
    tri_log_point roof[ROOF_POINTS], points[2][MOST_SHAPES];
    size_t num[2] = {0};
    double least = 1e300, most = 0, knee = b->peak_flops / b->peak_bytes;
    for (int i = 0; i < b->num_rows; i++) {
        const product_row *row = &b->rows[i];
        int thin = row->m != row->n || row->n != row->k;
        points[thin][num[thin]++] = (tri_log_point){row->intensity, row->flops * 1e-9};
        least = fmin(least, row->intensity);
        most = fmax(most, row->intensity);
    }
    least = fmin(least, knee) / 2;
    most = fmax(most, knee) * 2;
    roof[0] = (tri_log_point){least, least * b->peak_bytes * 1e-9};
    roof[1] = (tri_log_point){knee, b->peak_flops * 1e-9};
    roof[2] = (tri_log_point){most, b->peak_flops * 1e-9};
    tri_log_line lines[3] = {
        {.name = "roofline", .points = roof, .num_points = ROOF_POINTS, .dashed = true},
        {.name = "square products", .points = points[0], .num_points = num[0], .alone = true},
        {.name = "other products", .points = points[1], .num_points = num[1], .alone = true}};
    tri_log_panel panel = {
        .x_title = "FLOP/byte", .y_title = "GFLOP/s", .lines = lines, .num_lines = 3};
    snprintf(panel.title, sizeof panel.title, "products on %.60s, %s", b->device.description,
             tri_dtype_name(b->dtype));
    tri_text text;
    tri_text_init(&text);
    tri_log_plot(&panel, 1, &text);
    tr_status status = text.failed
                           ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture %s", path)
                           : tri_file_replace(path, text.chars, text.length, err);
    tri_text_fini(&text);
    return status;
}

static tr_status run(matmul_bench *b, tr_error *err)
{
    const char *path = tri_cli_flag(b->cli, "draw");
    size_t length = path ? strlen(path) : 0;
    if (path && (length < 5 || strcmp(path + length - 4, ".svg") != 0))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--draw is %.60s; bench matmul draws a picture, FILE.svg", path);
    if (path)
        TRI_TRY(tri_check_output(path, false, err));
    TRI_TRY(open_device(b, err));
    tr_status status = measure(b, err);
    if (status == TR_OK && tri_cli_flag(b->cli, "json"))
        status = print_json(b, err);
    else if (status == TR_OK)
        print_table(b);
    if (status == TR_OK && path)
        status = draw(b, path, err);
    tri_device_close(&b->device);
    return status;
}

int tri_bench_matmul(const tri_cli *cli)
{
    tr_error err = {0};
    matmul_bench *b = calloc(1, sizeof *b);
    if (!b)
        return tri_cli_fail(&(tr_error){TR_ERROR_RUNTIME, "no memory for the products"});
    b->cli = cli;
    tr_status status = run(b, &err);
    free(b);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
