/* The runs that there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/fs.h"
#include "cli/doc/json_doc.h"
#include "cli/runs/run_find.h"
#include "cli/runs/runs_table.h"
#include "cli/watch/watch_parts.h"

/* A run that has just been started is not there yet. */
static const double list_again_s = 2, empty_again_s = 0.2, document_again_s = 1;

tr_status tri_watch_create(const char *const *roots, int num_roots, tri_watch **watch,
                           tr_error *err)
{
    static const tri_http_feed_config feed = {
        .max_events = 16384, .max_bytes = (size_t)32 << 20, .max_clients = 64};
    tri_watch *w = calloc(1, sizeof *w);
    *watch = NULL;
    if (!w)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
    w->roots = roots;
    w->num_roots = num_roots;
    pthread_mutex_t *const locks[] = {&w->lock,      &w->list_lock,   &w->store_lock,
                                      &w->kept_lock, &w->making_lock, &w->view_lock};
    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++)
        pthread_mutex_init(locks[i], NULL);
    tr_status status = tri_http_feed_create(&feed, &w->feed, err);
    if (status == TR_OK)
        status = tri_watch_look(w, err);
    if (status != TR_OK)
        tri_watch_destroy(w);
    else
        *watch = w;
    return status;
}

void tri_watch_destroy(tri_watch *w)
{
    if (!w)
        return;
    tri_watch_unfollow(w);
    tri_http_feed_destroy(w->feed);
    for (size_t i = 0; i < w->num_runs; i++) {
        free(w->runs[i]->dir);
        free(w->runs[i]);
    }
    for (int i = 0; i < TRI_WATCH_MAX_STORES; i++)
        tri_columns_destroy(w->stores[i].columns);
    for (int i = 0; i < TRI_WATCH_MAX_KEPT; i++)
        free(w->kept[i].text);
    tri_view_destroy(w->view);
    free(w->list);
    free(w->brief);
    free(w);
}

tri_http_feed *tri_watch_feed(tri_watch *w)
{
    return w->feed;
}

/* ---- the list ---- */

static tri_watched_run *find_dir(const tri_watch *w, const char *dir)
{
    for (size_t i = 0; i < w->num_runs; i++)
        if (strcmp(w->runs[i]->dir, dir) == 0)
            return w->runs[i];
    return NULL;
}

static tri_watched_run *find_id(const tri_watch *w, const char *id)
{
    for (size_t i = 0; i < w->num_runs; i++)
        if (strcmp(w->runs[i]->id, id) == 0)
            return w->runs[i];
    return NULL;
}

/* The same for the same directory, also of the next server, and it tells nothing of the path. */
static void make_id(const tri_watch *w, const char *dir, char id[TRI_WATCH_ID])
{
    char *real = realpath(dir, NULL);
    uint64_t hash = tri_checksum_bytes(real ? real : dir, strlen(real ? real : dir));
    free(real);
    do
        snprintf(id, TRI_WATCH_ID, "%016llx", (unsigned long long)hash++);
    while (find_id(w, id));
}

static bool add_run(tri_watch *w, const char *dir)
{
    tri_watched_run *run = find_dir(w, dir);
    if (run || w->num_runs == TRI_WATCH_MAX_RUNS) {
        if (run)
            run->gone = false;
        return true;
    }
    run = calloc(1, sizeof *run);
    char *copy = strdup(dir);
    if (!run || !copy) {
        free(run);
        free(copy);
        return false;
    }
    make_id(w, dir, run->id);
    run->dir = copy;
    run->topic = (uint32_t)w->num_runs + 1;
    w->runs[w->num_runs++] = run;
    return true;
}

static tr_status find_all(const tri_watch *w, tri_run_list *list, tr_error *err)
{
    for (int i = 0; i < w->num_roots; i++) {
        char *dir = NULL;
        if (tri_path_exists(w->roots[i]))
            TRI_TRY(tri_runs_find(list, w->roots[i], err));
        else if (tri_run_dir_of(w->roots[i], &dir, NULL) == TR_OK)
            TRI_TRY(tri_runs_find(list, dir, err));
        free(dir);
    }
    return TR_OK;
}

tr_status tri_watch_look(tri_watch *w, tr_error *err)
{
    tri_run_list list = {0};
    pthread_mutex_lock(&w->lock);
    tr_status status = TR_OK;
    if (w->listed_at == 0 ||
        tri_now_s() - w->listed_at > (w->num_runs > 0 ? list_again_s : empty_again_s)) {
        double began = tri_now_s();
        status = find_all(w, &list, err);
        for (size_t i = 0; i < w->num_runs && status == TR_OK; i++)
            w->runs[i]->gone = true;
        for (size_t i = 0; i < list.num && status == TR_OK; i++)
            if (!add_run(w, list.dirs[i]))
                status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
        /* Where looking takes long, it is done seldom. */
        w->listed_at = tri_now_s() + 20 * (tri_now_s() - began);
    }
    pthread_mutex_unlock(&w->lock);
    tri_run_list_free(&list);
    return status;
}

tri_watched_run *tri_watch_find(tri_watch *w, const char *id)
{
    pthread_mutex_lock(&w->lock);
    tri_watched_run *run = find_id(w, id);
    if (run && run->gone)
        run = NULL;
    pthread_mutex_unlock(&w->lock);
    return run;
}

tri_watched_run *tri_watch_at(tri_watch *w, size_t *n)
{
    tri_watched_run *run = NULL;
    pthread_mutex_lock(&w->lock);
    while (*n < w->num_runs && !run) {
        run = w->runs[(*n)++];
        run = run->gone ? NULL : run;
    }
    pthread_mutex_unlock(&w->lock);
    return run;
}

size_t tri_watch_num_runs(tri_watch *w)
{
    size_t num = 0, n = 0;
    while (tri_watch_at(w, &n))
        num++;
    return num;
}

/* ---- its document ---- */

typedef struct listed_run {
    tri_run_row row; /* first, so that rows can be compared */
    const tri_watched_run *run;
} listed_run;

/* What changes while runs go on. */
static void put_brief(json_t *o, const listed_run *l)
{
    const tri_run_row *row = &l->row;
    tri_doc_text(o, "id", l->run->id);
    tri_doc_text(o, "run", row->dir);
    tri_doc_text(o, "state", tri_run_state_name(row->state));
    tri_doc_count_from(o, "step", row->metrics.step, 0);
    tri_doc_count_from(o, "total", row->total, 1);
    tri_doc_number(o, "loss", row->metrics.loss);
}

static tr_status make_text(json_t *root, char **text, tr_error *err)
{
    tri_text made;
    tri_text_init(&made);
    tr_status status = tri_doc_add(root, &made, err);
    if (status == TR_OK && made.failed)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
    if (status != TR_OK) {
        tri_text_fini(&made);
        return status;
    }
    free(*text);
    *text = made.chars;
    return TR_OK;
}

static tr_status make_docs(tri_watch *w, const listed_run *listed, size_t num, double now,
                           tr_error *err)
{
    json_t *root = tri_doc_begin();
    tri_doc_number(root, "time", now);
    json_t *runs = tri_doc_list(root, "runs");
    for (size_t i = 0; i < num; i++) {
        json_t *run = tri_doc_item(runs);
        tri_doc_text(run, "id", listed[i].run->id);
        tri_runs_doc(run, &listed[i].row);
    }
    TRI_TRY(make_text(root, &w->list, err));
    root = tri_doc_begin();
    runs = tri_doc_list(root, "runs");
    for (size_t i = 0; i < num; i++)
        put_brief(tri_doc_item(runs), &listed[i]);
    return make_text(root, &w->brief, err);
}

static tr_status read_all(tri_watch *w, tr_error *err)
{
    size_t num = 0, n = 0;
    double now = tri_unix_s();
    TRI_TRY(tri_watch_look(w, err));
    size_t most = tri_watch_num_runs(w) + 16;
    listed_run *listed = calloc(most, sizeof *listed);
    tr_status status =
        listed ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
    while (status == TR_OK && num < most && (listed[num].run = tri_watch_at(w, &n))) {
        status = tri_run_row_read(&listed[num].row, listed[num].run->dir, now, err);
        num++;
    }
    if (status == TR_OK && num > 0)
        qsort(listed, num, sizeof *listed, tri_run_row_compare);
    if (status == TR_OK)
        status = make_docs(w, listed, num, now, err);
    free(listed);
    return status;
}

tr_status tri_watch_list_doc(tri_watch *w, bool brief, char **text, tr_error *err)
{
    tr_status status = TR_OK;
    *text = NULL;
    pthread_mutex_lock(&w->list_lock);
    if (!w->list || w->num_runs == 0 || tri_now_s() - w->list_at > document_again_s) {
        status = read_all(w, err);
        w->list_at = tri_now_s();
    }
    if (status == TR_OK) {
        *text = strdup(brief ? w->brief : w->list);
        if (!*text)
            status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
    }
    pthread_mutex_unlock(&w->list_lock);
    return status;
}
