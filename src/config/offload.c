/* layout.offload: which classes of memory rest elsewhere than on the device, and where. */
#include <stdio.h>
#include <string.h>

#include "config/resolve.h"

/* One of "moments=host", "activations=file:/scratch". */
typedef struct offload_item {
    const char *class, *place; /* in the text of the setting */
    int class_length, place_length;
} offload_item;

static bool is_word(const char *text, int length, const char *word)
{
    return length == (int)strlen(word) && memcmp(text, word, (size_t)length) == 0;
}

static tri_where *class_of(tri_spaces_config *spaces, const offload_item *item)
{
    if (is_word(item->class, item->class_length, "moments"))
        return &spaces->moments;
    if (is_word(item->class, item->class_length, "master"))
        return &spaces->masters;
    if (is_word(item->class, item->class_length, "activations"))
        return &spaces->activations;
    return NULL;
}

/* "host" or "file:PATH". */
static tr_status read_place(const offload_item *item, tri_session_config *config, tri_where *where,
                            tr_error *err)
{
    const char *path = item->place + 5;
    int length = item->place_length - 5;
    if (is_word(item->place, item->place_length, "host")) {
        *where = TRI_WHERE_HOST;
        return TR_OK;
    }
    *where = TRI_WHERE_FILE;
    if (length <= 0 || memcmp(item->place, "file:", 5) != 0)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "layout.offload: \"%.*s\" is no place; %.*s can rest on the host (%.*s=host) "
            "or in a scratch file of a directory that you name, on a fast disk of this "
            "machine (%.*s=file:DIRECTORY)",
            item->place_length, item->place, item->class_length, item->class, item->class_length,
            item->class, item->class_length, item->class);
    if ((size_t)length >= sizeof config->scratch_dir)
        return tri_fail(err, TR_ERROR_INPUT, "layout.offload: the path is longer than %zu bytes",
                        sizeof config->scratch_dir - 1);
    bool same = is_word(path, length, config->scratch_dir);
    if (config->scratch_dir[0] && !same)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.offload names two directories, %s and %.*s, but a rank has one "
                        "scratch file; name one of them",
                        config->scratch_dir, length, path);
    snprintf(config->scratch_dir, sizeof config->scratch_dir, "%.*s", length, path);
    return TR_OK;
}

static tr_status read_item(const offload_item *item, tri_session_config *config, tr_error *err)
{
    tri_where *where = class_of(&config->compile.spaces, item);
    if (!where)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.offload: \"%.*s\" cannot rest elsewhere; moments, master and "
                        "activations can, as in layout.offload=moments=host,activations=host",
                        item->class_length, item->class);
    if (*where != TRI_WHERE_DEVICE)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.offload says twice where %.*s rest%s; name each class once",
                        item->class_length, item->class,
                        where == &config->compile.spaces.masters ? "s" : "");
    return read_place(item, config, where, err);
}

tr_status tri_offload_config(const tr_settings *s, tri_session_config *config, tr_error *err)
{
    const char *at = tr_settings_string(s, "layout.offload");
    tri_compile_config *compile = &config->compile;
    while (*at) {
        offload_item item = {.class = at, .class_length = (int)strcspn(at, "=,")};
        int length = (int)strcspn(at, ",");
        bool has_place = item.class_length < length;
        item.place = has_place ? at + item.class_length + 1 : "host";
        item.place_length = has_place ? length - item.class_length - 1 : 4;
        TRI_TRY(read_item(&item, config, err));
        at += length + (at[length] == ',');
    }
    compile->spaces.update_on_host =
        tr_settings_bool(s, "layout.host_update") && compile->spaces.moments != TRI_WHERE_DEVICE;
    return TR_OK;
}
