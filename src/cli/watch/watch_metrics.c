/* Curves and keys of metrics.jsonl, from columns that are kept for the runs asked for last. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/doc/json_doc.h"
#include "cli/watch/watch_parts.h"
#include "train/log/row_numbers.h"

static size_t bytes_of(const tri_watch *w)
{
    size_t sum = 0;
    for (int i = 0; i < TRI_WATCH_MAX_STORES; i++)
        sum += w->stores[i].columns ? tri_columns_bytes(w->stores[i].columns) : 0;
    return sum;
}

static void drop(tri_watch_store *store)
{
    tri_columns_destroy(store->columns);
    *store = (tri_watch_store){0};
}

/* The one that was asked for longest ago, or a free one. */
static tri_watch_store *oldest(tri_watch *w, const tri_watch_store *but)
{
    tri_watch_store *found = NULL;
    for (int i = 0; i < TRI_WATCH_MAX_STORES; i++)
        if (&w->stores[i] != but && (!found || w->stores[i].used < found->used))
            found = &w->stores[i];
    return found;
}

static tri_watch_store *store_of(tri_watch *w, const tri_watched_run *run)
{
    for (int i = 0; i < TRI_WATCH_MAX_STORES; i++)
        if (w->stores[i].run == run)
            return &w->stores[i];
    return NULL;
}

static void make_room(tri_watch *w, const tri_watch_store *but)
{
    while (bytes_of(w) > TRI_WATCH_STORE_BYTES) {
        tri_watch_store *victim = NULL;
        for (int i = 0; i < TRI_WATCH_MAX_STORES; i++)
            if (&w->stores[i] != but && w->stores[i].columns &&
                (!victim || w->stores[i].used < victim->used))
                victim = &w->stores[i];
        if (!victim)
            return;
        drop(victim);
    }
}

/* The columns of a run, up to date; nobody else has any until they are given back. */
static tr_status take_columns(tri_watch *w, const tri_watched_run *run, tri_columns **columns,
                              tr_error *err)
{
    pthread_mutex_lock(&w->store_lock);
    tri_watch_store *store = store_of(w, run);
    tr_status status = TR_OK;
    if (!store) {
        store = oldest(w, NULL);
        drop(store);
        status = tri_columns_create(run->dir, &store->columns, err);
        store->run = status == TR_OK ? run : NULL;
    }
    if (status == TR_OK)
        status = tri_columns_update(store->columns, err);
    if (status != TR_OK) {
        pthread_mutex_unlock(&w->store_lock);
        return status;
    }
    store->used = ++w->num_uses;
    make_room(w, store);
    *columns = store->columns;
    return TR_OK;
}

static void give_back(tri_watch *w)
{
    pthread_mutex_unlock(&w->store_lock);
}

/* ---- keys ---- */

static bool ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static const char *unit_of(const char *key)
{
    return ends_in(key, "_ms")          ? "ms"
           : ends_in(key, "_bytes")     ? "bytes"
           : ends_in(key, "_per_s")     ? "tokens/s"
           : strcmp(key, "tokens") == 0 ? "tokens"
           : ends_in(key, "_rank")      ? "rank"
                                        : "";
}

void tri_watch_get_keys(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tri_watch *w = context;
    tr_error err = {0};
    const tri_watched_run *run = tri_watch_asked(w, request, "id", reply);
    tri_columns *columns;
    if (!run)
        return;
    tr_status status = take_columns(w, run, &columns, &err);
    if (status == TR_OK) {
        json_t *root = tri_doc_begin(), *list = tri_doc_list(root, "keys");
        for (size_t i = 0; i < tri_columns_num_keys(columns); i++) {
            tri_column_key key = tri_columns_key(columns, i);
            json_t *item = tri_doc_item(list);
            bool counts;
            const char *help = tri_row_number_help(key.name, &counts);
            tri_doc_text(item, "key", key.name);
            tri_doc_text(item, "title", help ? help : key.name);
            tri_doc_text(item, "unit", unit_of(key.name));
            tri_doc_number(item, "last", key.last);
        }
        give_back(w);
        status = tri_doc_add(root, &reply->text, &err);
    }
    tri_watch_answer(reply, status, &err);
}

void tri_watch_get_loads(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tri_watch *w = context;
    tr_error err = {0};
    const tri_watched_run *run = tri_watch_asked(w, request, "id", reply);
    tri_columns *columns;
    if (!run)
        return;
    tr_status status = take_columns(w, run, &columns, &err);
    if (status == TR_OK) {
        int64_t step;
        const char *loads = tri_columns_loads(columns, &step);
        if (loads)
            tri_text_add(&reply->text, "{\"step\":%lld,\"loads\":%s}\n", (long long)step, loads);
        else
            tri_text_add(&reply->text, "null\n");
        give_back(w);
    }
    tri_watch_answer(reply, status, &err);
}

/* ---- curves ---- */

static const struct {
    const char *name, *unit;
} axes[TRI_COLUMNS_NUM_X] = {[TRI_COLUMNS_STEP] = {"step", "steps"},
                             [TRI_COLUMNS_TOKENS] = {"tokens", "tokens"},
                             [TRI_COLUMNS_HOURS] = {"hours", "hours"},
                             [TRI_COLUMNS_TIME] = {"time", "seconds since 1970"}};

typedef struct curve_query {
    const char *y;
    tri_columns_x x;
    double from, to;
    size_t points;
} curve_query;

/* A number that was given, or what stands for none. */
static bool read_number(const tri_http_request *request, const char *name, double *value)
{
    const char *text = tri_http_target_arg(&request->target, name);
    char *end;
    if (!text || !*text)
        return true;
    double given = strtod(text, &end);
    if (*end || !isfinite(given) || !strchr("0123456789-.+", *text))
        return false;
    *value = given;
    return true;
}

static bool read_query(const tri_http_request *request, curve_query *q, tri_http_reply *reply)
{
    const char *x = tri_http_target_arg(&request->target, "x");
    double points = 400;
    *q = (curve_query){.y = tri_http_target_arg(&request->target, "y"),
                       .x = TRI_COLUMNS_STEP,
                       .from = -INFINITY,
                       .to = INFINITY};
    if (!q->y || !*q->y)
        tri_http_refuse(reply, 400, "y is missing: the key of metrics.jsonl that is drawn");
    if (x)
        for (q->x = 0; q->x < TRI_COLUMNS_NUM_X && strcmp(axes[q->x].name, x) != 0;)
            q->x++;
    if (q->x == TRI_COLUMNS_NUM_X)
        tri_http_refuse(reply, 400, "x is step, tokens, hours or time");
    if (!read_number(request, "from", &q->from) || !read_number(request, "to", &q->to) ||
        !read_number(request, "points", &points) || !(points >= 1 && points <= 10000))
        tri_http_refuse(reply, 400, "from and to are numbers, and points is one from 1 to 10000");
    q->points = (size_t)points;
    return reply->status == 200;
}

static void add_number(tri_text *text, const char *before, double value, int digits)
{
    if (isfinite(value))
        tri_text_add(text, "%s%.*g", before, digits, value);
    else
        tri_text_add(text, "%snull", before);
}

/* By hand: a page asks for many of these, of hundreds of points. */
static void put_curve(const curve_query *q, const tri_columns_curve *curve, int64_t lines,
                      tri_text *text)
{
    enum { VALUE = 9, PLACE = 13 };
    tri_text_add(text, "{\"y\":\"%s\",\"x\":\"%s\",\"unit\":\"%s\",\"x_unit\":\"%s\",\"points\":[",
                 q->y, axes[q->x].name, unit_of(q->y), axes[q->x].unit);
    for (size_t i = 0; i < curve->num; i++) {
        const tri_columns_point *p = &curve->points[i];
        add_number(text, i > 0 ? ",[" : "[", p->x, PLACE);
        add_number(text, ",", p->min, VALUE);
        add_number(text, ",", p->mean, VALUE);
        add_number(text, ",", p->max, VALUE);
        tri_text_add(text, ",%lld]", (long long)p->num);
    }
    add_number(text, "],\"first\":", curve->first, PLACE);
    add_number(text, ",\"last\":", curve->last, PLACE);
    tri_text_add(text, ",\"missing\":%lld,\"lines\":%lld}\n", (long long)curve->missing,
                 (long long)lines);
}

void tri_watch_get_curve(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tri_watch *w = context;
    tr_error err = {0};
    curve_query q;
    tri_columns *columns;
    tri_columns_curve curve = {0};
    const tri_watched_run *run = tri_watch_asked(w, request, "id", reply);
    if (!run || !read_query(request, &q, reply))
        return;
    tr_status status = take_columns(w, run, &columns, &err);
    int64_t lines = 0;
    if (status == TR_OK) {
        status = tri_columns_curve_of(columns, q.y, q.x, q.from, q.to, q.points, &curve, &err);
        lines = tri_columns_num_lines(columns);
        give_back(w);
    }
    if (status == TR_OK) /* the key is one of the file's: it may hold anything but what is below */
        for (const char *c = q.y; *c; c++)
            if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
                status = tri_fail(&err, TR_ERROR_INPUT, "such a name cannot be asked for");
    if (status == TR_OK)
        put_curve(&q, &curve, lines, &reply->text);
    free(curve.points);
    tri_watch_answer(reply, status, &err);
}
