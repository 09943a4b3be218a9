#include "base/json.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/fs.h"

/* The library asks for memory through functions that can be set, for the whole process. Ours do
 * what those before them did, and besides count what was refused to this thread. They are set once,
 * so whatever was allocated before or by others is still freed as it must be. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static json_malloc_t malloc_before;
static _Thread_local unsigned long num_refused; /* so this file is compiled with -fPIC */

static void *counting_malloc(size_t num_bytes)
{
    void *memory = malloc_before(num_bytes);
    num_refused += !memory && num_bytes > 0;
    return memory;
}

static void count_from_now_on(void)
{
    json_free_t free_before;
    json_get_alloc_funcs(&malloc_before, &free_before);
    json_set_alloc_funcs(counting_malloc, free_before);
}

tr_status tri_json_load(const char *name, const char *text, size_t num_bytes, size_t flags,
                        json_t **root, json_error_t *why, tr_error *err)
{
    json_error_t own;
    why = why ? why : &own;
    *why = (json_error_t){.text = "it is empty", .line = 1};
    *root = NULL;
    tri_json_begin();
    if (num_bytes > 0)
        *root = json_loadb(text, num_bytes, flags, why);
    if (*root && tri_json_built())
        return TR_OK;
    json_decref(*root); /* a string in it may lack the byte that there was no memory for */
    *root = NULL;
    if (!tri_json_built())
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
    pthread_once(&once, count_from_now_on);
    num_refused = 0;
}

bool tri_json_built(void)
{
    return num_refused == 0;
}

char *tri_json_dump(const json_t *value, size_t flags)
{
    char *text = value && tri_json_built() ? json_dumps(value, flags) : NULL;
    if (tri_json_built())
        return text;
    free(text);
    return NULL;
}
