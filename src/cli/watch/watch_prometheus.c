/* /metrics: the last of every number of all runs, for Prometheus, under the names that metrics.prom
 * has. Of a file that nobody draws, its end is read and no more. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/watch/watch_parts.h"
#include "train/log/metrics_read.h"
#include "train/log/text/prometheus_text.h"

enum { MOST_NAMES = 64, NAME_BYTES = 48, LAST_BYTES = 256 << 10 };

typedef struct last_number {
    char name[NAME_BYTES];
    bool whole, there;
    int64_t integer;
    double real;
} last_number;

/* Of one run. */
typedef struct last_numbers {
    const char *run;
    last_number numbers[MOST_NAMES];
    size_t num;
    bool works;
} last_numbers;

static void take(void *context, const tri_metrics_member *members, size_t num)
{
    last_numbers *l = context;
    for (size_t i = 0; i < num; i++) {
        const tri_metrics_member *m = &members[i];
        bool number = m->kind == TRI_MEMBER_NUMBER || m->kind == TRI_MEMBER_NULL;
        size_t k = 0;
        if (!number || m->name_length >= NAME_BYTES ||
            (m->name_length == 7 && memcmp(m->name, "version", 7) == 0))
            continue;
        while (k < l->num && (strncmp(l->numbers[k].name, m->name, m->name_length) != 0 ||
                              l->numbers[k].name[m->name_length]))
            k++;
        if (k == MOST_NAMES)
            continue;
        if (k == l->num) {
            l->numbers[l->num++] = (last_number){.there = true};
            memcpy(l->numbers[k].name, m->name, m->name_length);
        }
        l->numbers[k].whole = m->is_whole;
        l->numbers[k].integer = m->whole;
        l->numbers[k].real = m->real;
    }
}

static void read_last(last_numbers *l, const char *dir)
{
    tri_tail tail = {0};
    tri_text lines;
    tri_text_init(&lines);
    l->run = dir;
    l->works = tri_run_lock_look(dir) == TRI_LOCK_HELD;
    if (tri_tail_new(&tail, dir, "metrics.jsonl", LAST_BYTES, &lines) && !lines.failed)
        for (size_t at = 0, length; at < lines.length; at += length) {
            length = strcspn(lines.chars + at, "\n") + 1;
            (void)tri_metrics_members(lines.chars + at, length, take, l, NULL);
        }
    tri_text_fini(&lines);
}

/* A name of Prometheus; others are left out. */
static bool is_plain(const char *name)
{
    return *name && !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
                                       "0123456789")];
}

static void add_family(const last_numbers *runs, size_t num, const char *name, tri_text *text)
{
    bool counts, time = strcmp(name, "time") == 0;
    const char *help = tri_row_number_help(name, &counts);
    const tri_prometheus_metric metric = {
        .name = time ? "time_seconds" : name,
        .help = time   ? "When the last step was done, seconds since 1970"
                : help ? help
                       : "Statistic of a step",
        .counts = counts};
    char value[TRI_NUMBER_BYTES];
    tri_prometheus_family(text, &metric);
    for (size_t r = 0; r < num; r++)
        for (size_t i = 0; i < runs[r].num; i++) {
            const last_number *n = &runs[r].numbers[i];
            const tri_row_number number = {
                .whole = n->whole, .integer = n->integer, .real = n->real};
            if (strcmp(n->name, name) == 0)
                tri_prometheus_sample(text, &metric, runs[r].run,
                                      time ? tri_time_text(n->real, value)
                                           : tri_number_text(&number, &tri_prometheus_odd, value));
        }
}

static void add_all(last_numbers *runs, size_t num, tri_text *text)
{
    static const tri_prometheus_metric running = {
        "running", "1 while the run goes on, 0 when it has ended", false};
    for (size_t r = 0; r < num; r++)
        for (size_t i = 0; i < runs[r].num; i++) {
            const char *name = runs[r].numbers[i].name;
            if (!runs[r].numbers[i].there || !is_plain(name))
                continue;
            add_family(runs, num, name, text);
            for (size_t k = r; k < num; k++)
                for (size_t j = 0; j < runs[k].num; j++)
                    runs[k].numbers[j].there &= strcmp(runs[k].numbers[j].name, name) != 0;
        }
    tri_prometheus_family(text, &running);
    for (size_t r = 0; r < num; r++)
        tri_prometheus_sample(text, &running, runs[r].run, runs[r].works ? "1" : "0");
}

void tri_watch_get_metrics(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tri_watch *w = context;
    tr_error err = {0};
    size_t num = 0, n = 0;
    (void)request;
    tr_status status = tri_watch_look(w, &err);
    size_t most = tri_watch_num_runs(w);
    last_numbers *runs = status == TR_OK ? calloc(most + 1, sizeof *runs) : NULL;
    const tri_watched_run *run;
    if (status == TR_OK && !runs)
        status = tri_fail(&err, TR_ERROR_RUNTIME, "no memory for the numbers of all runs");
    while (runs && num < most && (run = tri_watch_at(w, &n)))
        read_last(&runs[num++], run->dir);
    if (runs)
        add_all(runs, num, &reply->text);
    reply->type = "text/plain; version=0.0.4; charset=utf-8";
    free(runs);
    tri_watch_answer(reply, status, &err);
}
