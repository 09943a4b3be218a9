/* What observers of a run cost the training: the time inside each on the thread of the loop, and
 * the processor time of the thread that writes run.logs. Called by bench/observers.sh:
 *
 *     observers RECIPE [section.key=value ...] */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/clock.h"
#include "comm/control/control.h"
#include "train/run/run.h"

enum { MAX_STEPS = 1000000 };

/* Stands before an observer, and looks at the clock. */
typedef struct timed {
    tri_observer inner;
    double *us; /* of each step, all that it was told of it */
    size_t num;
    double now_us;
} timed;

static timed observers[TRI_MAX_OBSERVERS + 1]; /* the last: all together */
static double thread_s, wall_s, began_s;

/* Processor time of the threads of observers so far. */
static double seconds_of_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    double seconds = 0;
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        char path[300], name[32] = "";
        unsigned long long ns = 0;
        snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file && !fgets(name, sizeof name, file))
            name[0] = 0;
        if (file)
            fclose(file);
        snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", task->d_name);
        file = strcmp(name, "tri-logs\n") == 0 ? fopen(path, "r") : NULL;
        if (file && fscanf(file, "%llu", &ns) == 1)
            seconds += (double)ns * 1e-9;
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return seconds;
}

static void tell(void *context, const tri_run_news *news)
{
    timed *t = context, *all = &observers[TRI_MAX_OBSERVERS];
    bool last = news->run->observers[news->run->num_observers - 1].context == t;
    if (news->moment == TRI_RUN_ENDS && thread_s == 0) {
        thread_s = seconds_of_threads();
        wall_s = tri_now_s() - began_s;
    }
    uint64_t before = tri_now_ns();
    t->inner.tell(t->inner.context, news);
    double us = (double)(tri_now_ns() - before) * 1e-3;
    t->now_us += us;
    all->now_us += us;
    if (news->moment != TRI_RUN_STEP || t->num == MAX_STEPS)
        return;
    t->us[t->num++] = t->now_us;
    t->now_us = 0;
    if (last) {
        all->us[all->num++] = all->now_us;
        all->now_us = 0;
    }
}

static void close_inner(void *context)
{
    timed *t = context;
    if (t->inner.close)
        t->inner.close(t->inner.context);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *name, timed *t)
{
    if (t->num == 0)
        return;
    qsort(t->us, t->num, sizeof *t->us, by_value);
    printf("%-10s median %8.2f us a step, 99 of 100 below %8.2f us, of %zu steps\n", name,
           t->us[t->num / 2], t->us[t->num * 99 / 100], t->num);
}

static tr_status train(tr_settings *settings, tri_run *run, tr_session **session, tr_error *err)
{
    static tri_stop stop;
    static tri_rank_status status;
    tri_rank_status_init(&status);
    tri_bootstrap bootstrap = {
        .size = 1, .local_size = 1, .deadline_s = 60, .stop = &stop, .status = &status};
    TRI_TRY(tri_api_compile(settings, 0, session, err));
    tri_run_config config;
    tri_run_config_from(settings, &config);
    tri_run_open(run, &config, &(*session)->session);
    TRI_TRY(tri_run_join(run, &bootstrap, err));
    TRI_TRY(tri_run_begin(run, err));
    for (size_t i = 0; i < run->num_observers; i++) {
        observers[i].inner = run->observers[i];
        run->observers[i] =
            (tri_observer){run->observers[i].name, tell, close_inner, &observers[i]};
    }
    began_s = tri_now_s();
    TRI_TRY(tri_run_advance(run, INT64_MAX, err));
    return tri_run_end(run, err);
}

int main(int num_words, char **words)
{
    tr_error err = {0};
    tr_settings *settings = NULL;
    tr_session *session = NULL;
    tri_run run = {0};
    if (num_words < 2)
        return fprintf(stderr, "usage: observers RECIPE [section.key=value ...]\n"), 2;
    tr_status status = tr_settings_create(&settings, &err);
    if (status == TR_OK)
        status = tr_settings_load(settings, words[1], &err);
    for (int i = 2; i < num_words && status == TR_OK; i++)
        status = tr_settings_set(settings, words[i], &err);
    for (size_t i = 0; i <= TRI_MAX_OBSERVERS; i++)
        observers[i].us = malloc(MAX_STEPS * sizeof *observers[i].us);
    if (status == TR_OK)
        status = train(settings, &run, &session, &err);
    for (size_t i = 0; i < run.num_observers; i++)
        print_times(run.observers[i].name, &observers[i]);
    print_times("all", &observers[TRI_MAX_OBSERVERS]);
    if (status == TR_OK)
        printf("threads    %.4f s of processor time in %.2f s: %.3f %%\n", thread_s, wall_s,
               100 * thread_s / wall_s);
    else
        fprintf(stderr, "%s\n", err.message);
    tri_run_close(&run);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    for (size_t i = 0; i <= TRI_MAX_OBSERVERS; i++)
        free(observers[i].us);
    return status == TR_OK ? 0 : 1;
}
