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

/* All that makes the runs what they are, in a fixed order. */
static tr_status describe(const tri_sweep *s, json_t **object, tr_error *err)
{
    char sum[24];
    TRI_TRY(checksum_of(s->cli->file, sum, err));
    json_t *sets = json_array(), *runs = json_array();
    for (int i = 0; i < s->cli->num_assignments; i++)
        if (matters(s->cli->assignments[i]))
            json_array_append_new(sets, json_string(s->cli->assignments[i]));
    for (int i = 0; i < s->cli->num_plugins; i++)
        json_array_append_new(sets, json_string(s->cli->plugins[i]));
    for (int i = 0; i < s->num_runs; i++) {
        json_t *values = json_object();
        for (int k = 0; k < s->num_keys; k++)
            json_object_set_new(values, s->keys[k].name, json_string(s->runs[i].value[k]));
        json_array_append_new(runs,
                              json_pack("{s:s, s:o}", "name", s->runs[i].name, "settings", values));
    }
    *object = json_pack("{s:i, s:s, s:s, s:o, s:I, s:o}", "version", VERSION, "recipe",
                        s->cli->file ? s->cli->file : "", "recipe_checksum", sum, "set", sets,
                        "halve", (json_int_t)s->halve, "runs", runs);
    return *object ? TR_OK
                   : tri_fail(err, TR_ERROR_INPUT,
                              "the sweep cannot be written down: a setting is not UTF-8, or there "
                              "is no memory");
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
    json_t *had = json_loadb(text, num_bytes, 0, NULL);
    free(text);
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
