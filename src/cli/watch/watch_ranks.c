/* Where the ranks of a run are, from its status file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/doc/json_doc.h"
#include "cli/watch/watch_parts.h"
#include "config/settings_table.h"
#include "mesh/mesh.h"
#include "run/status_file.h"

enum { MOST_BYTES = 64 << 20 };

/* NULL: there is none that can be read. */
static json_t *read_status(const char *dir)
{
    struct stat info;
    json_t *root = NULL;
    char *path = tri_path_join(dir, TRI_STATUS_FOLDER "/0.json");
    if (path && stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size <= MOST_BYTES &&
        tri_json_load_file(path, 0, &root, NULL, NULL) != TR_OK)
        root = NULL;
    free(path);
    if (root && !json_is_array(json_object_get(root, "ranks"))) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

static bool read_mesh(const char *dir, tri_mesh *mesh)
{
    static const struct {
        const char *name;
        tri_axis axis;
    } axes[] = {{"layout.dp", TRI_AXIS_DP},
                {"layout.cp", TRI_AXIS_CP},
                {"layout.tp", TRI_AXIS_TP},
                {"layout.pp", TRI_AXIS_PP}};
    tr_settings *settings = NULL;
    char *path = tri_path_join(dir, "config.yaml");
    bool read = path && tr_settings_create(&settings, NULL) == TR_OK &&
                tri_settings_look(settings, path, NULL) == TR_OK;
    *mesh = (tri_mesh){0};
    for (size_t i = 0; read && i < sizeof axes / sizeof *axes; i++)
        mesh->size[axes[i].axis] = (int)tr_settings_int(settings, axes[i].name);
    tr_settings_destroy(settings);
    free(path);
    return read && tri_mesh_check(mesh, NULL) == TR_OK;
}

/* A layout that a failure has made smaller is in no file: then there are no coordinates. */
static void add_coordinates(json_t *ranks, const char *dir)
{
    static const struct {
        const char *name;
        tri_axis axis;
    } axes[] = {{"dp", TRI_AXIS_DP}, {"cp", TRI_AXIS_CP}, {"tp", TRI_AXIS_TP}, {"pp", TRI_AXIS_PP}};
    tri_mesh mesh;
    bool known = read_mesh(dir, &mesh) && tri_mesh_ranks(&mesh) == (int)json_array_size(ranks);
    size_t r;
    json_t *rank;
    json_array_foreach(ranks, r, rank)
    {
        json_t *coords = known ? json_object() : json_null();
        for (size_t i = 0; known && i < sizeof axes / sizeof *axes; i++)
            tri_doc_count(coords, axes[i].name, tri_mesh_coordinate(&mesh, (int)r, axes[i].axis));
        json_object_set_new(rank, "coords", coords);
    }
}

/* Whoever wrote it is gone, and with it the ranks, but nobody saw how. */
static bool note_gone(json_t *ranks)
{
    bool any = false;
    size_t r;
    json_t *rank;
    json_array_foreach(ranks, r, rank)
    {
        const char *state = json_string_value(json_object_get(rank, "state"));
        bool lived = state && (strcmp(state, "running") == 0 || strcmp(state, "waiting") == 0);
        any |= lived;
        if (lived)
            json_object_set_new(rank, "state", json_string("silent"));
    }
    return any;
}

tr_status tri_watch_ranks_doc(const char *dir, tri_text *text, tr_error *err)
{
    json_t *status = read_status(dir);
    json_t *root = tri_doc_begin();
    double now = tri_unix_s();
    const json_t *time = json_object_get(status, "time");
    bool ended = json_is_true(json_object_get(status, "ended"));
    double age_s = json_is_number(time) ? now - json_number_value(time) : (double)NAN;
    tri_doc_number(root, "time", json_is_number(time) ? json_number_value(time) : (double)NAN);
    tri_doc_number(root, "age_s", age_s > 0 ? age_s : 0);
    tri_doc_flag(root, "ended", ended);
    if (!status) {
        tri_doc_null(root, "ranks");
        tri_doc_text(root, "why",
                     "the run has no status file: it was started by an older version, or by a "
                     "program of its own");
        return tri_doc_add(root, text, err);
    }
    json_t *ranks = json_object_get(status, "ranks");
    bool gone = !ended && age_s > 3 && tri_run_lock_look(dir) == TRI_LOCK_FREE && note_gone(ranks);
    add_coordinates(ranks, dir);
    json_object_set(root, "ranks", ranks);
    tri_doc_text(root, "why",
                 gone ? "whoever watched the ranks ended without a word: killed, or the machine "
                        "went down"
                      : NULL);
    json_decref(status);
    return tri_doc_add(root, text, err);
}

void tri_watch_get_ranks(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tr_error err = {0};
    const tri_watched_run *run = tri_watch_asked(context, request, "id", reply);
    if (run)
        tri_watch_answer(reply, tri_watch_ranks_doc(run->dir, &reply->text, &err), &err);
}
