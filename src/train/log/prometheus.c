/* metrics.prom: the last of every number, in the text format of Prometheus, for the textfile
 * collector of its node_exporter. The file is replaced whole, at most once a second. It need not
 * outlive the machine, so nothing waits for the disk as other files of ours do. */
#include <errno.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/temporary.h"
#include "train/log/log_format.h"
#include "train/log/text/prometheus_text.h"

typedef struct prometheus {
    tri_log_latest latest;
    double written_s; /* when, by tri_now_s; 0: never */
} prometheus;

static int open_prometheus(tri_log *log)
{
    log->file.path = tri_path_join(log->facts->dir, "metrics.prom");
    return log->file.path ? 0 : ENOMEM;
}

static void row(tri_log *log, const tri_metrics_row *row)
{
    prometheus *own = log->own;
    tri_log_latest_add(&own->latest, row);
}

static void add_metric(tri_text *text, const tri_log *log, const char *name, const char *help,
                       bool counts, const char *value)
{
    const tri_prometheus_metric metric = {name, help, counts};
    tri_prometheus_family(text, &metric);
    tri_prometheus_sample(text, &metric, log->facts->run, value);
}

static void write_text(tri_log *log, tri_text *text, bool running)
{
    prometheus *own = log->own;
    char value[TRI_NUMBER_BYTES];
    for (size_t i = 0; i < own->latest.num; i++) {
        const tri_row_number *number = &own->latest.numbers[i];
        if (number->present)
            add_metric(text, log, number->name, number->help, number->counts,
                       tri_number_text(number, &tri_prometheus_odd, value));
    }
    if (own->latest.num > 0)
        add_metric(text, log, "time_seconds", "When the last step was done, seconds since 1970",
                   false, tri_time_text(own->latest.time_s, value));
    add_metric(text, log, "running", "1 while the run goes on, 0 when it has ended", false,
               running ? "1" : "0");
}

static void flush(tri_log *log, bool ends)
{
    prometheus *own = log->own;
    double now = tri_now_s();
    bool news = log->file.pending_rows > 0 && now - own->written_s >= 1;
    if (!ends && !news)
        return;
    tri_text text;
    tri_text_init(&text);
    write_text(log, &text, !ends);
    int reason = text.failed ? ENOMEM
                             : tri_temporary_replace(log->facts->dir, log->file.path, text.chars,
                                                     text.length);
    tri_text_fini(&text);
    own->written_s = now;
    if (reason != 0) {
        /* One state that nobody sees, however many rows went into it. */
        log->file.pending_rows = 1;
        tri_log_file_drop(&log->file, reason);
    }
    log->file.pending_rows = 0;
}

const tri_log_format tri_log_prometheus = {.name = "prometheus",
                                           .where = "metrics.prom",
                                           .own_bytes = sizeof(prometheus),
                                           .open = open_prometheus,
                                           .row = row,
                                           .flush = flush};
