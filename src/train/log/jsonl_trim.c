#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/text.h"
#include "train/ckpt/checkpoint.h"

/* Whether a line is of a step that is done, or there is no memory to tell. Lines of version 0.1.0
 * have no time, and count steps from 0. What is no object with a step is nobody's and stays. */
static tr_status look_at(const char *path, const char *line, size_t length, int64_t steps,
                         bool *stays, tr_error *err)
{
    json_t *object;
    *stays = false;
    if (tri_json_load(path, line, length, JSON_ALLOW_NUL, &object, NULL, err) == TR_ERROR_RUNTIME)
        return TR_ERROR_RUNTIME;
    const json_t *number = json_object_get(object, "step");
    int64_t most = steps - (json_object_get(object, "time") ? 0 : 1);
    *stays = object && (!json_is_integer(number) || json_integer_value(number) <= most);
    json_decref(object);
    return TR_OK;
}

tr_status tri_jsonl_trim(const char *path, int64_t steps, tr_error *err)
{
    if (!tri_path_exists(path))
        return TR_OK;
    tri_mapping mapping;
    TRI_TRY(tri_mapping_open(&mapping, path, err));
    char *kept = malloc(mapping.num_bytes + 1);
    size_t num = 0;
    const char *next = (const char *)mapping.data, *end = next + mapping.num_bytes;
    tr_status status = kept ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    while (status == TR_OK &&
           next < end) { /* a last line without its end was being written by who died */
        const char *newline = memchr(next, '\n', (size_t)(end - next));
        size_t length = newline ? (size_t)(newline - next) + 1 : (size_t)(end - next);
        bool stays = false;
        if (newline)
            status = look_at(path, next, length, steps, &stays, err);
        if (stays) {
            memcpy(kept + num, next, length);
            num += length;
        }
        next += length;
    }
    if (status == TR_OK && num != mapping.num_bytes)
        status = tri_file_replace(path, kept, num, err);
    free(kept);
    tri_mapping_close(&mapping);
    return status;
}
