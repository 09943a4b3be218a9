/* trireme report: runs as one file to send to somebody: the page of `trireme watch` with the
 * documents that it would ask a server for. They are made by the same functions. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/page/report_page.h"
#include "cli/runs/run_find.h"
#include "cli/text.h"
#include "cli/watch/watch.h"

/* Points of a curve: enough to zoom into. DIFFS: of so many runs each is compared with each. */
enum { MOST_RUNS = 16, POINTS = 800, DIFFS = 6 };

/* What the page asks for of each run beside its curves. */
static const char *const of_a_run[] = {
    "/api/run?id=%s",   "/api/keys?id=%s",          "/api/loads?id=%s",  "/api/ranks?id=%s",
    "/api/trace?id=%s", "/api/memory?id=%s&rank=0", "/api/planner?id=%s"};

/* The answer to a URL; empty where there is none. */
static tr_status ask(tri_watch *watch, const char *url, tri_text *answer, tr_error *err)
{
    tri_http_request request = {0};
    tri_http_reply reply = {.status = 200};
    const tri_http_route *route = tri_watch_routes;
    if (tri_http_target_read(&request.target, url) != 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "%s is no address of a document", url);
    while (route->path && strcmp(route->path, request.target.path) != 0)
        route++;
    if (!route->path)
        return tri_fail(err, TR_ERROR_INTERNAL, "there are no documents at %s", url);
    route->handle(watch, &request, &reply);
    bool failed = reply.text.failed;
    if (reply.status == 200 && !failed)
        tri_text_add_bytes(answer, reply.text.chars, reply.text.length);
    failed = failed || answer->failed;
    tri_text_fini(&reply.text);
    return failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for %s", url) : TR_OK;
}

/* Puts an answer into the report under the URL by which the page asks for it. What is not there is
 * left out: the page shows nothing of it. */
static tr_status put(tri_watch *watch, const char *url, const char *as, tri_text *documents,
                     tr_error *err)
{
    tri_text answer;
    tri_text_init(&answer);
    tr_status status = ask(watch, url, &answer, err);
    if (status == TR_OK && answer.length > 0)
        tri_report_add(documents, as, answer.chars, answer.length);
    tri_text_fini(&answer);
    return status;
}

static tr_status ask_json(tri_watch *watch, const char *url, json_t **doc, tr_error *err)
{
    tri_text answer;
    tri_text_init(&answer);
    *doc = NULL;
    tr_status status = ask(watch, url, &answer, err);
    if (status == TR_OK && answer.length > 0)
        status = tri_json_load(url, answer.chars, answer.length, 0, doc, NULL, err);
    tri_text_fini(&answer);
    return status;
}

static tr_status put_curve(tri_watch *watch, const char *id, const char *key, const char *x,
                           tri_text *documents, tr_error *err)
{
    char url[512], as[512];
    for (const char *c = key; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_')
            return TR_OK; /* no name of ours */
    snprintf(as, sizeof as, "/api/curve?id=%s&y=%.200s&x=%s", id, key, x);
    snprintf(url, sizeof url, "%s&points=%d", as, POINTS);
    return put(watch, url, as, documents, err);
}

/* All curves over steps. Over tokens and hours the page makes them of these: it has the tokens at a
 * step, and at an hour. */
static tr_status put_curves(tri_watch *watch, const char *id, tri_text *documents, tr_error *err)
{
    char url[128];
    json_t *doc, *key;
    size_t at;
    snprintf(url, sizeof url, "/api/keys?id=%s", id);
    TRI_TRY(ask_json(watch, url, &doc, err));
    tr_status status = TR_OK;
    json_array_foreach(json_object_get(doc, "keys"), at, key)
    {
        const char *name = json_string_value(json_object_get(key, "key"));
        if (status == TR_OK && name)
            status = put_curve(watch, id, name, "step", documents, err);
    }
    json_decref(doc);
    return status == TR_OK ? put_curve(watch, id, "tokens", "hours", documents, err) : status;
}

static tr_status put_run(tri_watch *watch, const char *id, tri_text *documents, tr_error *err)
{
    char url[128];
    for (size_t i = 0; i < sizeof of_a_run / sizeof *of_a_run; i++) {
        snprintf(url, sizeof url, of_a_run[i], id);
        TRI_TRY(put(watch, url, url, documents, err));
    }
    return put_curves(watch, id, documents, err);
}

static tr_status put_diffs(tri_watch *watch, const char *const *ids, size_t num,
                           tri_text *documents, tr_error *err)
{
    char url[128];
    for (size_t a = 0; a < num && num <= DIFFS; a++)
        for (size_t b = 0; b < num; b++) {
            snprintf(url, sizeof url, "/api/diff?a=%s&b=%s", ids[a], ids[b]);
            if (a != b)
                TRI_TRY(put(watch, url, url, documents, err));
        }
    return TR_OK;
}

static tr_status put_all(tri_watch *watch, tri_text *documents, tr_error *err)
{
    const char *ids[MOST_RUNS];
    size_t num = 0, at;
    json_t *doc, *run;
    TRI_TRY(ask_json(watch, "/api/runs", &doc, err));
    tri_report_begin(documents);
    tr_status status = put(watch, "/api/runs", "/api/runs", documents, err);
    json_array_foreach(json_object_get(doc, "runs"), at, run)
    {
        const char *id = json_string_value(json_object_get(run, "id"));
        if (status != TR_OK || !id || num == MOST_RUNS)
            continue;
        ids[num++] = id;
        status = put_run(watch, id, documents, err);
    }
    if (status == TR_OK)
        status = put_diffs(watch, ids, num, documents, err);
    json_decref(doc);
    tri_report_end(documents);
    return status;
}

/* ---- the verb ---- */

/* A report replaces an earlier report, and nothing else. */
static tr_status may_write(const char *path, tr_error *err)
{
    char begin[sizeof TRI_REPORT_MARK] = "";
    TRI_TRY(tri_check_output(path, false, err));
    if (!tri_path_exists(path))
        return TR_OK;
    FILE *file = fopen(path, "re");
    size_t num = file ? fread(begin, 1, sizeof begin - 1, file) : 0;
    if (file)
        fclose(file);
    if (file && (num == 0 || strcmp(begin, TRI_REPORT_MARK) == 0))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: there is a file of that name, and it is no report of trireme; give "
                    "another name, or move that away",
                    path);
}

static tr_status write_report(tri_watch *watch, const char *path, tr_error *err)
{
    char size[16];
    tri_text documents, page;
    tri_text_init(&documents);
    tri_text_init(&page);
    tr_status status = put_all(watch, &documents, err);
    if (status == TR_OK)
        tri_report_page(&documents, &page);
    if (status == TR_OK && (documents.failed || page.failed))
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the report");
    if (status == TR_OK)
        status = tri_file_replace(path, page.chars, page.length, err);
    if (status == TR_OK)
        tri_text_print(stdout, "written to %s, %s\n", path,
                       tri_text_bytes((double)page.length, size));
    tri_text_fini(&documents);
    tri_text_fini(&page);
    return status;
}

static tr_status report(const tri_cli *cli, char **dirs, tr_error *err)
{
    const char *path = tri_cli_flag(cli, "output");
    tri_watch *watch = NULL;
    if (cli->num_operands == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "name one or more runs: trireme report runs/tiny; `trireme runs` lists "
                        "them");
    if (cli->num_operands > MOST_RUNS)
        return tri_fail(err, TR_ERROR_INPUT, "a report has at most %d runs, not %d", MOST_RUNS,
                        cli->num_operands);
    path = path ? path : "report.html";
    for (int i = 0; i < cli->num_operands; i++)
        TRI_TRY(tri_run_dir_of(cli->operands[i], &dirs[i], err));
    TRI_TRY(may_write(path, err));
    TRI_TRY(tri_watch_create((const char *const *)dirs, cli->num_operands, &watch, err));
    tr_status status = write_report(watch, path, err);
    tri_watch_destroy(watch);
    return status;
}

int tri_verb_report(const tri_cli *cli)
{
    tr_error err = {0};
    char *dirs[MOST_RUNS] = {NULL};
    tr_status status = report(cli, dirs, &err);
    for (int i = 0; i < MOST_RUNS; i++)
        free(dirs[i]);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
