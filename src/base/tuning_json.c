#include "base/tuning_json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"

enum { VERSION = 1 };

tr_status tri_tuning_json_read(const char *path, json_t **object, tr_error *err)
{
    json_error_t wrong = {.line = 1};
    *object = NULL;
    struct stat info;
    if (stat(path, &info) != 0 || info.st_size == 0) /* without a byte: one is being made */
        return TR_OK;
    tr_status status = tri_json_load_file(path, 0, object, &wrong, err);
    if (status == TR_ERROR_RUNTIME || (status != TR_OK && wrong.line == 0))
        return status;
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

/* The file as it is now, locked; made without a byte when there is none. A file is replaced whole,
 * so whoever waited for the lock may have got that of a file that is no more, and tries again. -1
 * where there is no locking (some network file systems) or no writing: then the last writer wins.
 */
static int open_locked(const char *path)
{
    for (;;) {
        struct stat ours, there;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return -1;
        int failed;
        while ((failed = flock(fd, LOCK_EX)) != 0 && errno == EINTR)
            continue;
        if (!failed && fstat(fd, &ours) == 0 && stat(path, &there) == 0 &&
            ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
            return fd;
        close(fd);
        if (failed)
            return -1;
    }
}

/* Nothing was written to a file that was only made to be locked: it goes again. */
static void close_locked(const char *path, int fd)
{
    struct stat ours, there;
    if (fd < 0)
        return;
    if (fstat(fd, &ours) == 0 && ours.st_size == 0 && stat(path, &there) == 0 &&
        ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
        unlink(path);
    close(fd);
}

static tr_status write_object(const char *path, const json_t *object, tr_error *err)
{
    tri_json_begin();
    char *text = tri_json_dump(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
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
    int lock = open_locked(path);
    tr_status status = tri_tuning_json_read(path, &object, err);
    tri_json_begin();
    if (status == TR_OK && object == NULL)
        object = json_pack("{s:i}", "version", VERSION);
    if (status == TR_OK && !json_is_array(json_object_get(object, key)))
        json_object_set_new(object, key, json_array());
    bool changed = status == TR_OK && change(json_object_get(object, key), context);
    if (status == TR_OK && !tri_json_built())
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory to write it", path);
    if (status == TR_OK && changed)
        status = write_object(path, object, err);
    json_decref(object);
    close_locked(path, lock);
    return status;
}
