#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/text.h"
#include "train/checkpoint.h"

/* Whether a line is of a step that is done. Lines of version 0.1.0 have no time, and count steps
 * from 0. What is no object with a step is nobody's and stays. */
static bool stays(const char *line, size_t length, int64_t steps)
{
    json_t *object = json_loadb(line, length, 0, NULL);
    const json_t *number = json_object_get(object, "step");
    int64_t most = steps - (json_object_get(object, "time") ? 0 : 1);
    bool stays = object && (!json_is_integer(number) || json_integer_value(number) <= most);
    json_decref(object);
    return stays;
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
    while (kept && next < end) { /* a last line without its end was being written by who died */
        const char *newline = memchr(next, '\n', (size_t)(end - next));
        size_t length = newline ? (size_t)(newline - next) + 1 : (size_t)(end - next);
        if (newline && stays(next, length, steps)) {
            memcpy(kept + num, next, length);
            num += length;
        }
        next += length;
    }
    tr_status status = kept ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    if (status == TR_OK && num != mapping.num_bytes)
        status = tri_file_replace(path, kept, num, err);
    free(kept);
    tri_mapping_close(&mapping);
    return status;
}
