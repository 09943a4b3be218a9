#include "base/tuning_json.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fs.h"

enum { VERSION = 1 };

tr_status tri_tuning_json_read(const char *path, json_t **object, tr_error *err)
{
    json_error_t wrong;
    *object = NULL;
    if (!tri_path_exists(path))
        return TR_OK;
    *object = json_load_file(path, 0, &wrong);
    if (!json_is_object(*object)) {
        bool parsed = *object != NULL;
        json_decref(*object);
        *object = NULL;
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s is not a tuning file (line %d: %s); delete it, and it is measured anew",
                        path, parsed ? 1 : wrong.line, parsed ? "not an object" : wrong.text);
    }
    json_int_t version = json_integer_value(json_object_get(*object, "version"));
    if (version != VERSION) {
        json_decref(*object);
        *object = NULL;
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s has version %lld, this program reads %d; delete it, and it is measured "
                        "anew",
                        path, (long long)version, VERSION);
    }
    return TR_OK;
}

/* The folder is locked, since the file itself is replaced: -1 where that cannot be done (some
 * network file systems), and then the last writer wins. */
static int lock_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL   ? strdup(".")
                   : slash == path ? strdup("/")
                                   : strndup(path, (size_t)(slash - path));
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    if (fd >= 0)
        (void)flock(fd, LOCK_EX);
    return fd;
}

static tr_status write_object(const char *path, const json_t *object, tr_error *err)
{
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    tr_status status = text ? tri_file_replace(path, text, strlen(text), err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "no memory for %s", path);
    free(text);
    if (status == TR_OK)
        return TR_OK;
    tr_error why = err ? *err : (tr_error){0};
    return tri_fail(err, status,
                    "%s; what was measured is kept there: set run.tuning to a file that can be "
                    "written",
                    why.message);
}

tr_status tri_tuning_json_change(const char *path, const char *key, tri_tuning_change change,
                                 const void *context, tr_error *err)
{
    json_t *object = NULL;
    int lock = lock_folder(path);
    tr_status status = tri_tuning_json_read(path, &object, err);
    if (status == TR_OK && object == NULL)
        object = json_pack("{s:i}", "version", VERSION);
    if (status == TR_OK && !json_is_array(json_object_get(object, key)))
        json_object_set_new(object, key, json_array());
    if (status == TR_OK && change(json_object_get(object, key), context))
        status = write_object(path, object, err);
    json_decref(object);
    if (lock >= 0)
        close(lock); /* and with it the lock goes */
    return status;
}
