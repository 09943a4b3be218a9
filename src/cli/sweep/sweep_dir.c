/* The directory of a sweep: sweep.json says which sweep it is. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/sweep/sweep.h"

enum { VERSION = 1 };

/* Settings that have no say in what comes out. */
static bool matters(const char *assignment)
{
    static const char *const free_ones[] = {"run.dir=", "run.threads=", "run.pace=", NULL};
    for (int i = 0; free_ones[i]; i++)
        if (strncmp(assignment, free_ones[i], strlen(free_ones[i])) == 0)
            return false;
    return true;
}

/* A recipe that was edited is another sweep; "-": there is none, or it is a directory. */
static tr_status checksum_of(const char *path, char text[24], tr_error *err)
{
    char *data;
    size_t num_bytes;
    snprintf(text, 24, "-");
    if (!path || tri_path_is_dir(path))
        return TR_OK;
    TRI_TRY(tri_file_read(path, &data, &num_bytes, err));
    snprintf(text, 24, "%016llx", (unsigned long long)tri_checksum_bytes(data, num_bytes));
    free(data);
    return TR_OK;
}

static tr_status check_text(const char *text, tr_error *err)
{
    uint32_t code;
    int length;
    for (const char *at = text; *at; at += length) {
        length = tri_utf8_decode(at, &code);
        if (length == 0)
            return tri_fail(err, TR_ERROR_INPUT,
                            "\"%.60s\" is not UTF-8, so the sweep cannot be written down", text);
    }
    return TR_OK;
}

/* JSON has no other texts; what is missing then is memory. */
static tr_status check_texts(const tri_sweep *s, tr_error *err)
{
    if (s->cli->file)
        TRI_TRY(check_text(s->cli->file, err));
    for (int i = 0; i < s->cli->num_assignments; i++)
        TRI_TRY(check_text(s->cli->assignments[i], err));
    for (int i = 0; i < s->cli->num_plugins; i++)
        TRI_TRY(check_text(s->cli->plugins[i], err));
    for (int i = 0; i < s->num_runs; i++)
        for (int k = 0; k < s->num_keys; k++)
            TRI_TRY(check_text(s->runs[i].value[k], err));
    return TR_OK;
}

static json_t *settings_of(const tri_sweep *s)
{
    json_t *sets = json_array();
    for (int i = 0; i < s->cli->num_assignments; i++)
        if (matters(s->cli->assignments[i]))
            json_array_append_new(sets, json_string(s->cli->assignments[i]));
    for (int i = 0; i < s->cli->num_plugins; i++)
        json_array_append_new(sets, json_string(s->cli->plugins[i]));
    return sets;
}

static json_t *runs_of(const tri_sweep *s)
{
    json_t *runs = json_array();
    for (int i = 0; i < s->num_runs; i++) {
        json_t *values = json_object(), *run = json_object();
        for (int k = 0; k < s->num_keys; k++)
            json_object_set_new(values, s->keys[k].name, json_string(s->runs[i].value[k]));
        json_object_set_new(run, "name", json_string(s->runs[i].name));
        json_object_set_new(run, "settings", values);
        json_array_append_new(runs, run);
    }
    return runs;
}

/* All that makes the runs what they are, in a fixed order. */
static tr_status describe(const tri_sweep *s, json_t **out, tr_error *err)
{
    char sum[24];
    TRI_TRY(check_texts(s, err));
    TRI_TRY(checksum_of(s->cli->file, sum, err));
    tri_json_begin();
    json_t *object = *out = json_object();
    json_object_set_new(object, "version", json_integer(VERSION));
    json_object_set_new(object, "recipe", json_string(s->cli->file ? s->cli->file : ""));
    json_object_set_new(object, "recipe_checksum", json_string(sum));
    json_object_set_new(object, "set", settings_of(s));
    json_object_set_new(object, "halve", json_integer(s->halve));
    json_object_set_new(object, "runs", runs_of(s));
    return tri_json_built() ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for sweep.json");
}

/* What differs, in words. */
static const char *difference(const json_t *had, const json_t *has)
{
    static const struct {
        const char *key, *words;
    } parts[] = {{"recipe", "the recipe is another one"},
                 {"recipe_checksum", "the recipe was changed"},
                 {"set", "the settings of --set differ"},
                 {"halve", "--halve differs"},
                 {"runs", "--over, --random or --seed differ"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!json_equal(json_object_get(had, parts[i].key), json_object_get(has, parts[i].key)))
            return parts[i].words;
    return json_equal(had, has) ? NULL : "it is of another version";
}

static tr_status compare(const tri_sweep *s, const char *path, const json_t *object, tr_error *err)
{
    char *text;
    size_t num_bytes;
    TRI_TRY(tri_file_read(path, &text, &num_bytes, err));
    json_t *had = NULL;
    tr_status status = tri_json_load(path, text, num_bytes, 0, &had, NULL, err);
    free(text);
    if (status == TR_ERROR_RUNTIME)
        return status;
    const char *what = had ? difference(had, object) : "it cannot be read";
    json_decref(had);
    if (!what)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s holds another sweep: %s; go on with the command that began it, give this "
                    "one another --name, or move that directory away",
                    s->dir, what);
}

static tr_status keep(const char *path, const json_t *object, tr_error *err)
{
    char *text = json_dumps(object, JSON_INDENT(1));
    tr_status status = text ? tri_file_replace(path, text, strlen(text), err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "no memory for sweep.json");
    free(text);
    return status;
}

static tr_status take(const tri_sweep *s, int *lock, tr_error *err)
{
    TRI_TRY(tri_make_dirs(s->dir, err));
    *lock = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0)
        return tri_fail_open(err, s->dir, errno);
    if (flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "%s: another sweep, or a run, is at work there; wait for its end, or give "
                        "this one another --name",
                        s->dir);
    return TR_OK;
}

tr_status tri_sweep_open(const tri_sweep *s, int *lock, tr_error *err)
{
    json_t *object = NULL;
    char *path = tri_path_join(s->dir, "sweep.json");
    tr_status status = path ? take(s, lock, err) : tri_fail(err, TR_ERROR_RUNTIME, "no memory");
    if (status == TR_OK)
        status = describe(s, &object, err);
    if (status == TR_OK && tri_path_exists(path))
        status = compare(s, path, object, err);
    else if (status == TR_OK &&
             (tri_dir_has(s->dir, "config.yaml") || tri_dir_has(s->dir, "metrics.jsonl")))
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s is the directory of a run; give the sweep another --name", s->dir);
    else if (status == TR_OK)
        status = keep(path, object, err);
    json_decref(object);
    free(path);
    return status;
}
