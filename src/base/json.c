#include "base/json.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fs.h"

tr_status tri_json_load(const char *name, const char *text, size_t num_bytes, size_t flags,
                        json_t **root, json_error_t *why, tr_error *err)
{
    json_error_t own;
    why = why ? why : &own;
    *why = (json_error_t){.text = "it is empty", .line = 1};
    *root = NULL;
    errno = 0; /* which an allocation that fails sets, and nothing else does to this */
    if (num_bytes > 0)
        *root = json_loadb(text, num_bytes, flags, why);
    if (*root && errno != ENOMEM)
        return TR_OK;
    json_decref(*root); /* a string in it may lack the byte that there was no memory for */
    *root = NULL;
    if (errno == ENOMEM || json_error_code(why) == json_error_out_of_memory)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory to read its JSON", name);
    return tri_fail(err, TR_ERROR_INPUT, "%s, line %d: not valid JSON: %s", name, why->line,
                    why->text);
}

tr_status tri_json_load_file(const char *path, size_t flags, json_t **root, json_error_t *why,
                             tr_error *err)
{
    char *text;
    size_t num_bytes;
    *root = NULL;
    if (why)
        *why = (json_error_t){.line = 0};
    TRI_TRY(tri_file_read(path, &text, &num_bytes, err));
    tr_status status = tri_json_load(path, text, num_bytes, flags, root, why, err);
    free(text);
    return status;
}

void tri_json_begin(void)
{
    errno = 0;
}

bool tri_json_built(void)
{
    return errno != ENOMEM;
}

char *tri_json_dump(const json_t *value, size_t flags)
{
    char *text = value && tri_json_built() ? json_dumps(value, flags) : NULL;
    if (tri_json_built())
        return text;
    free(text);
    return NULL;
}
