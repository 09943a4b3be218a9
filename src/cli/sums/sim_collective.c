/* trireme sim --collective: the time of an operation by every algorithm, from the latency of a
 * message and the bandwidth of a link; and from what size on which of them is the fastest. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/quantity.h"
#include "cli/sums/sums.h"
#include "cli/word_list.h"
#include "collective/lines.h"
#include "sim/log_plot.h"

enum { MOST_RANKS = 4096, MOST_SIZES = TRI_MOST_WORDS, PLOT_POINTS = 25 };

typedef struct collective_sheet {
    const tri_cli *cli;
    tri_coll coll;
    int64_t num_ranks;
    tri_coll_prices prices;
    double sizes[MOST_SIZES];
    int num_sizes;
    tri_coll_line lines[TRI_COLL_MAX_LINES];
    int num_lines;
    tri_coll_best best[TRI_COLL_MAX_LINES];
    int num_best;
    tri_text left_out; /* algorithms that do not fit, with commas */
} collective_sheet;

static double seconds_of(const tri_coll_line *line, double bytes)
{
    return line->fixed + line->per_byte * bytes;
}

static tr_status read_prices(collective_sheet *s, tr_error *err)
{
    const char *alpha = tri_cli_flag(s->cli, "alpha"), *rate = tri_cli_flag(s->cli, "bandwidth");
    const char *name = tri_cli_flag(s->cli, "link");
    double seconds = 5e-6, bytes_per_s = 50e9;
    if (rate && name)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--bandwidth and --link both say how fast a link is; leave one out");
    if (alpha)
        TRI_TRY(tri_quantity_seconds("alpha", alpha, &seconds, err));
    if (rate)
        TRI_TRY(tri_quantity_rate("bandwidth", rate, &bytes_per_s, err));
    if (name) {
        tri_link_spec own;
        const tri_link_spec *link;
        TRI_TRY(tri_quantity_link(name, &own, &link, err));
        bytes_per_s = link->bytes_per_s;
    }
    s->prices = (tri_coll_prices){.alpha = seconds, .beta = 1 / bytes_per_s};
    return TR_OK;
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static tr_status read_sizes(collective_sheet *s, tr_error *err)
{
    tri_word_list list;
    tr_status status = tri_word_list_read(s->cli, "bytes", "1GB,10kB", &list, err);
    if (status == TR_OK && s->coll == TRI_COLL_BARRIER && tri_cli_flag(s->cli, "bytes"))
        status = tri_fail(err, TR_ERROR_INPUT, "a barrier has no bytes; leave --bytes out");
    for (int i = 0; i < list.num && status == TR_OK; i++)
        status = tri_quantity_bytes("bytes", list.words[i], &s->sizes[s->num_sizes++], err);
    free(list.text);
    qsort(s->sizes, (size_t)s->num_sizes, sizeof *s->sizes, descending);
    if (s->coll == TRI_COLL_BARRIER) {
        s->sizes[0] = 0;
        s->num_sizes = 1;
    }
    return status;
}

static tr_status add_named(collective_sheet *s, tr_error *err)
{
    tri_word_list list;
    tr_status status = tri_word_list_read(s->cli, "algorithms", "", &list, err);
    if (status == TR_OK && list.num > TRI_COLL_MAX_LINES)
        status = tri_fail(err, TR_ERROR_INPUT, "--algorithms lists %d, more than the %d that fit",
                          list.num, TRI_COLL_MAX_LINES);
    for (int i = 0; i < list.num && status == TR_OK; i++) {
        const tri_algorithm *algorithm = NULL;
        tri_coll_shape shape;
        status = tri_word_algorithm("algorithms", list.words[i], tri_algorithm_name_at,
                                    s->num_ranks, &algorithm, &shape, err);
        if (status == TR_OK && !tri_algorithm_supports(algorithm, s->coll, &shape))
            status = tri_algorithm_refuse(algorithm, s->coll, &shape, err);
        if (status == TR_OK)
            s->lines[s->num_lines++] = tri_coll_line_of(algorithm, s->coll, &shape, &s->prices);
    }
    free(list.text);
    return status;
}

static void add_all(collective_sheet *s)
{
    tri_coll_shape shape = tri_shape_flat((int)s->num_ranks);
    for (size_t i = 0; tri_algorithm_at(i) && s->num_lines < TRI_COLL_MAX_LINES; i++) {
        const tri_algorithm *algorithm = tri_algorithm_at(i);
        bool has = algorithm->emit[s->coll];
        if (algorithm->needs_shared_memory || !has)
            continue;
        if (tri_algorithm_supports(algorithm, s->coll, &shape))
            s->lines[s->num_lines++] = tri_coll_line_of(algorithm, s->coll, &shape, &s->prices);
        else
            tri_text_add(&s->left_out, "%s%s", s->left_out.length ? ", " : "", algorithm->name);
    }
}

static tr_status read_sheet(collective_sheet *s, tr_error *err)
{
    const char *name = tri_cli_flag(s->cli, "collective");
    if (!tri_coll_parse(name, &s->coll))
        return tri_word_unknown("collective", name, tri_coll_name_at, err);
    s->num_ranks = 8;
    TRI_TRY(tri_cli_flag_int(s->cli, "ranks", 2, MOST_RANKS, &s->num_ranks, err));
    TRI_TRY(read_prices(s, err));
    TRI_TRY(read_sizes(s, err));
    if (tri_cli_flag(s->cli, "algorithms"))
        TRI_TRY(add_named(s, err));
    else
        add_all(s);
    s->num_best = tri_coll_best_of(s->lines, s->num_lines, s->best);
    return TR_OK;
}

/* Lines by their time at a size. */
static void sort_lines(const collective_sheet *s, double bytes, int order[TRI_COLL_MAX_LINES])
{
    for (int i = 0; i < s->num_lines; i++) {
        int at = i;
        for (; at > 0; at--) {
            if (seconds_of(&s->lines[order[at - 1]], bytes) <= seconds_of(&s->lines[i], bytes))
                break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
}

/* ---- text ---- */

static void add_size(const collective_sheet *s, double bytes, tri_text *text)
{
    int order[TRI_COLL_MAX_LINES];
    char count[24];
    sort_lines(s, bytes, order);
    if (s->coll == TRI_COLL_BARRIER)
        tri_text_add(text, "\n  %-18s %15s %9s\n", "algorithm", "time", "messages");
    else
        tri_text_add(text, "\nS = %s\n  %-18s %15s %9s %12s %12s\n",
                     tri_sums_bytes(bytes, 5, count), "algorithm", "time", "messages", "bytes",
                     "last axis");
    for (int i = 0; i < s->num_lines; i++) {
        const tri_coll_line *line = &s->lines[order[i]];
        double seconds = seconds_of(line, bytes);
        tri_text_add(text, "  %-18s %12.4f ms %9.4g", line->name, seconds * 1e3, line->messages);
        if (s->coll != TRI_COLL_BARRIER)
            tri_text_add(text, " %12s", tri_sums_bytes(line->bytes * bytes, 5, count));
        if (s->coll != TRI_COLL_BARRIER && line->outer_bytes > 0)
            tri_text_add(text, " %12s", tri_sums_bytes(line->outer_bytes * bytes, 5, count));
        tri_text_add(text, "\n");
    }
}

static void add_best(const collective_sheet *s, tri_text *text)
{
    char count[24];
    tri_text_add(text, "\nthe fastest: ");
    for (int i = 0; i < s->num_best; i++) {
        const tri_coll_best *best = &s->best[i];
        if (i == 0)
            tri_text_add(text, "%s", s->lines[best->line].name);
        else
            tri_text_add(text, ", from %s on %s", tri_sums_bytes(best->bytes, 5, count),
                         s->lines[best->line].name);
    }
    tri_text_add(text, "\n");
}

static void write_text(const collective_sheet *s, tri_text *text)
{
    tri_text_add(text, "%s over %d ranks: %g us a message, %.4g GB/s\n", tri_coll_name(s->coll),
                 (int)s->num_ranks, s->prices.alpha * 1e6, 1e-9 / s->prices.beta);
    for (int i = 0; i < s->num_sizes; i++)
        add_size(s, s->sizes[i], text);
    add_best(s, text);
    if (s->left_out.length)
        tri_text_add(text, "not for so many ranks: %s\n", s->left_out.chars);
    tri_text_add(text,
                 "\nmessages and bytes are those that follow one another on the longest way; of "
                 "an algorithm in\nwhich all ranks do the same they are what each sends. time = "
                 "messages * alpha + bytes / bandwidth;\ncombining costs nothing here. last axis: "
                 "of the bytes, over the slowest links (docs/collectives.md)\n");
}

/* ---- JSON ---- */

static tr_status print_json(const collective_sheet *s, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "operation", tri_coll_name(s->coll));
    tri_doc_count(doc, "num_ranks", s->num_ranks);
    tri_doc_number(doc, "alpha_seconds", s->prices.alpha);
    tri_doc_number(doc, "bytes_per_second", 1 / s->prices.beta);
    json_t *sizes = tri_doc_list(doc, "sizes"), *best = tri_doc_list(doc, "fastest");
    for (int i = 0; i < s->num_sizes; i++) {
        int order[TRI_COLL_MAX_LINES];
        json_t *size = tri_doc_item(sizes);
        sort_lines(s, s->sizes[i], order);
        tri_doc_number(size, "bytes", s->sizes[i]);
        json_t *list = tri_doc_list(size, "algorithms");
        for (int k = 0; k < s->num_lines; k++) {
            const tri_coll_line *line = &s->lines[order[k]];
            json_t *item = tri_doc_item(list);
            tri_doc_text(item, "algorithm", line->name);
            tri_doc_number(item, "seconds", seconds_of(line, s->sizes[i]));
            tri_doc_number(item, "messages", line->messages);
            tri_doc_number(item, "sent_bytes", line->bytes * s->sizes[i]);
            tri_doc_number(item, "last_axis_bytes", line->outer_bytes * s->sizes[i]);
        }
    }
    for (int i = 0; i < s->num_best; i++) {
        json_t *item = tri_doc_item(best);
        tri_doc_text(item, "algorithm", s->lines[s->best[i].line].name);
        tri_doc_number(item, "from_bytes", s->best[i].bytes);
    }
    return tri_doc_print(doc, stdout, err);
}

/* ---- the picture ---- */

static tr_status draw(const collective_sheet *s, const char *path, tr_error *err)
{
    double least = fmin(1e3, s->sizes[s->num_sizes - 1]), most = fmax(1e9, s->sizes[0]);
    size_t num = (size_t)s->num_lines;
    tri_log_line *lines = calloc(num, sizeof *lines);
    tri_log_point *points = calloc(num * PLOT_POINTS, sizeof *points);
    tri_log_panel panel = {
        .x_title = "bytes", .y_title = "milliseconds", .lines = lines, .num_lines = num};
    tri_text text;
    tri_text_init(&text);
    snprintf(panel.title, sizeof panel.title, "%s over %d ranks, %g us, %.4g GB/s",
             tri_coll_name(s->coll), (int)s->num_ranks, s->prices.alpha * 1e6,
             1e-9 / s->prices.beta);
    for (size_t l = 0; lines && points && l < num; l++) {
        lines[l] = (tri_log_line){.name = s->lines[l].name,
                                  .points = &points[l * PLOT_POINTS],
                                  .num_points = PLOT_POINTS,
                                  .dashed = true};
        for (int i = 0; i < PLOT_POINTS; i++) {
            double bytes = least * pow(most / least, (double)i / (PLOT_POINTS - 1));
            points[l * PLOT_POINTS + (size_t)i] =
                (tri_log_point){bytes, seconds_of(&s->lines[l], bytes) * 1e3};
        }
    }
    if (lines && points)
        tri_log_plot(&panel, 1, &text);
    tr_status status = lines && points && !text.failed
                           ? tri_file_replace(path, text.chars, text.length, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture %s", path);
    tri_text_fini(&text);
    free(lines);
    free(points);
    return status;
}

static tr_status show(collective_sheet *s, tr_error *err)
{
    const char *path = tri_cli_flag(s->cli, "draw");
    tri_text text;
    TRI_TRY(read_sheet(s, err));
    if (path && s->coll == TRI_COLL_BARRIER)
        return tri_fail(err, TR_ERROR_INPUT,
                        "a barrier has no bytes to draw its time over; leave "
                        "--draw out");
    if (path)
        TRI_TRY(tri_check_output(path, false, err));
    if (path)
        TRI_TRY(draw(s, path, err));
    if (tri_cli_flag(s->cli, "json"))
        return print_json(s, err);
    tri_text_init(&text);
    write_text(s, &text);
    if (path)
        tri_text_add(&text, "\nwritten: %s\n", path);
    tr_status status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}

tr_status tri_sums_collective(const tri_cli *cli, tr_error *err)
{
    static const char *const flags[] = {"ranks", "bytes",      "alpha", "bandwidth",
                                        "link",  "algorithms", "draw",  NULL};
    collective_sheet s = {.cli = cli};
    TRI_TRY(tri_sums_only(cli, "collective", flags, err));
    if (cli->file || cli->num_assignments > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--collective reads no settings, so %s would change nothing; leave it out",
                        cli->file ? cli->file : "--set");
    tri_text_init(&s.left_out);
    tr_status status = show(&s, err);
    tri_text_fini(&s.left_out);
    return status;
}
