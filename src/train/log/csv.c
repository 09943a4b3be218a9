/* metrics.csv, as RFC 4180 has it: a header line that names every number a row can have, and a line
 * a step. What a step does not have is empty. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "train/log/log_format.h"

static const tri_odd_numbers odd = {"nan", "inf", "-inf"};

static void put(tri_log *log, const char *text)
{
    tri_log_file_put(&log->file, text, strlen(text));
}

/* Only a name of a statistic from elsewhere can need quotes. */
static void add_name(tri_text *line, const char *name)
{
    bool plain = !strpbrk(name, ",\"\r\n");
    tri_text_add(line, "%s", plain ? "" : "\"");
    for (const char *c = name; *c; c++)
        tri_text_add(line, "%s%c", *c == '"' ? "\"" : "", *c);
    tri_text_add(line, "%s", plain ? "" : "\"");
}

static void add_header(tri_text *line, const tri_metrics_row *row)
{
    for (size_t i = 0; i < tri_row_num_numbers(row); i++) {
        add_name(line, tri_row_number_at(row, i).name);
        tri_text_add(line, ",");
    }
    tri_text_add(line, "time\r\n");
}

static void row(tri_log *log, const tri_metrics_row *row)
{
    char text[TRI_NUMBER_BYTES];
    if (tri_log_file_end(&log->file) == 0) {
        tri_text header;
        tri_text_init(&header);
        add_header(&header, &log->facts->blank);
        if (header.failed)
            log->file.pending.failed = true;
        else
            put(log, header.chars);
        tri_text_fini(&header);
    }
    for (size_t i = 0; i < tri_row_num_numbers(row); i++) {
        tri_row_number number = tri_row_number_at(row, i);
        if (number.present)
            put(log, tri_number_text(&number, &odd, text));
        put(log, ",");
    }
    put(log, tri_time_text(row->time_s, text));
    put(log, "\r\n");
}

/* Where the first line begins that is half written, or of a step that is done again. */
static int find_end(const tri_log *log, FILE *stream, bool *same_columns, off_t *end)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    tri_text header;
    tri_text_init(&header);
    add_header(&header, &log->facts->blank);
    int reason = header.failed ? ENOMEM : 0;
    *end = 0;
    *same_columns = true;
    while (reason == 0) {
        errno = 0;
        length = getline(&line, &capacity, stream);
        if (length <= 0) {
            reason = feof(stream) ? 0 : errno;
            break;
        }
        if (*end == 0 && line[length - 1] == '\n')
            *same_columns = strcmp(line, header.chars) == 0;
        char *behind;
        int64_t step = strtoll(line, &behind, 10);
        if (line[length - 1] != '\n' || !*same_columns ||
            (behind != line && *behind == ',' && step > log->facts->step))
            break;
        *end += length;
    }
    free(line);
    tri_text_fini(&header);
    return reason;
}

/* A file whose columns are others cannot be continued; it stays, under another name. */
static int set_aside(const char *dir, const char *path)
{
    for (int i = 1; i < 10000; i++) {
        char name[32];
        snprintf(name, sizeof name, "metrics.%d.csv", i);
        char *aside = tri_path_join(dir, name);
        int failed = aside ? link(path, aside) : -1, reason = aside ? errno : ENOMEM;
        free(aside);
        if (failed == 0)
            return unlink(path) == 0 ? 0 : errno;
        if (reason != EEXIST)
            return reason;
    }
    return EEXIST;
}

static int trim(tri_log *log, const char *path)
{
    FILE *stream = fopen(path, "re");
    if (!stream)
        return errno;
    bool same_columns;
    off_t end;
    int reason = find_end(log, stream, &same_columns, &end);
    fclose(stream);
    if (reason == 0 && same_columns)
        return end < log->file.size ? tri_log_file_cut(&log->file, end) : 0;
    if (reason == 0)
        reason = set_aside(log->facts->dir, path);
    close(log->file.fd);
    log->file.fd = -1;
    return reason == 0 ? tri_log_file_open(&log->file, path) : reason;
}

static int open_csv(tri_log *log)
{
    char *path = tri_path_join(log->facts->dir, "metrics.csv");
    int reason = path ? tri_log_file_open(&log->file, path) : ENOMEM;
    if (reason == 0)
        reason = log->facts->continues ? trim(log, path) : tri_log_file_cut(&log->file, 0);
    free(path);
    return reason;
}

const tri_log_format tri_log_csv = {
    .name = "csv", .where = "metrics.csv", .open = open_csv, .row = row};
