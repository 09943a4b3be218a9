#include "hf_dirs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"

/* ---- sessions ---- */

void hf_set(tr_settings *settings, const char *format, ...)
{
    char assignment[400];
    tr_error err = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(assignment, sizeof assignment, format, args);
    va_end(args);
    if (tr_settings_set(settings, assignment, &err) != TR_OK)
        fail_msg("%s", err.message);
}

tr_settings *hf_settings(const char *dir)
{
    tr_settings *settings;
    tr_error err = {0};
    assert_int_equal(tr_settings_create(&settings, &err), TR_OK);
    hf_set(settings, "model.from=%s", dir);
    hf_set(settings, "run.threads=2");
    return settings;
}

tr_session *hf_start(tr_settings *settings, tri_row_fn row, void *context)
{
    tr_session *session;
    tr_error err = {0};
    if (tri_api_compile(settings, 0, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    session->session.row = row;
    session->session.row_context = context;
    if (tri_api_start(session, &err) != TR_OK)
        fail_msg("%s", err.message);
    return session;
}

tr_session *hf_start_predictor(tr_settings *settings, int64_t seq_len)
{
    hf_set(settings, "data.seq_len=%lld", (long long)seq_len);
    hf_set(settings, "train.batch=1");
    return hf_start(settings, NULL, NULL);
}

/* ---- directories of our own making ---- */

json_t *hf_read_json(const char *dir, const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

void hf_put(const char *dir, const char *name, const void *data, size_t num_bytes)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(put_file(path, data, num_bytes), 0);
}

void hf_put_json(const char *dir, const char *name, const json_t *root)
{
    char *text = json_dumps(root, 0);
    hf_put(dir, name, text, strlen(text));
    free(text);
}

static void copy_into(const char *from, const char *to)
{
    tri_file_list list;
    tr_error err = {0};
    assert_int_equal(tri_make_dirs(to, &err), TR_OK);
    assert_int_equal(tri_file_list_read(&list, from, &err), TR_OK);
    for (size_t i = 0; i < list.num; i++) {
        char path[300];
        tri_mapping mapping;
        snprintf(path, sizeof path, "%s/%s", from, list.name[i]);
        assert_int_equal(tri_mapping_open(&mapping, path, &err), TR_OK);
        hf_put(to, list.name[i], mapping.data, mapping.num_bytes);
        tri_mapping_close(&mapping);
    }
    tri_file_list_free(&list);
}

const char *hf_copy_of(temp_dir *temp, const char *fixture)
{
    static int number;
    char from[200], name[32];
    snprintf(from, sizeof from, "tests/fixtures/%s", fixture);
    snprintf(name, sizeof name, "copy-%d", number++);
    const char *to = temp_file(temp, name);
    copy_into(from, to);
    return to;
}

/* ---- refusals ---- */

tr_status hf_try_load(const char *dir, const char *assignment, tr_error *err)
{
    tr_settings *settings = hf_settings(dir);
    tr_session *session = NULL;
    if (assignment)
        hf_set(settings, "%s", assignment);
    *err = (tr_error){0};
    tr_status status = tri_settings_complete(settings, err);
    if (status == TR_OK)
        status = tr_session_create(settings, &session, err);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return status;
}

void hf_refuses(const char *dir, const char *assignment, const char *word, const char *other)
{
    tr_error err;
    tr_status status = hf_try_load(dir, assignment, &err);
    if (status != TR_ERROR_INPUT)
        fail_msg("%s %s: status %d: %s", dir, assignment ? assignment : "", status, err.message);
    if (!strstr(err.message, word) || !strstr(err.message, other))
        fail_msg("\"%s\" does not name %s and %s", err.message, word, other);
}

void hf_refuses_config(temp_dir *temp, const char *fixture, const char *key, const char *value,
                       const char *word)
{
    const char *dir = hf_copy_of(temp, fixture);
    json_t *root = hf_read_json(dir, "config.json");
    if (value)
        json_object_set_new(root, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(root, key);
    hf_put_json(dir, "config.json", root);
    json_decref(root);
    hf_refuses(dir, NULL, word, "config.json");
}

/* ---- tensors to change ---- */

void hf_edit_open(hf_edit *e, const char *dir, const char *name)
{
    tr_error err = {0};
    snprintf(e->path, sizeof e->path, "%s/%s", dir, name);
    assert_int_equal(tri_safetensors_open(e->path, &e->file, &err), TR_OK);
    e->num = tri_safetensors_num(e->file);
    assert_true(e->num < HF_MAX_ITEMS);
    for (size_t i = 0; i < e->num; i++) {
        const tri_safetensor *t = tri_safetensors_at(e->file, i);
        e->item[i] = (tri_safetensors_item){t->name, t->dtype, t->num_dims, t->dim, t->data};
    }
}

tri_safetensors_item *hf_edit_find(hf_edit *e, const char *name)
{
    for (size_t i = 0; i < e->num; i++)
        if (strcmp(e->item[i].name, name) == 0)
            return &e->item[i];
    fail_msg("no %s", name);
    return NULL;
}

void hf_edit_write(hf_edit *e)
{
    tr_error err = {0};
    tri_safetensors_meta meta = {"format", "pt"};
    if (tri_safetensors_write(e->path, e->item, e->num, &meta, 1, &err) != TR_OK)
        fail_msg("%s", err.message);
    tri_safetensors_close(e->file); /* the replaced file was still mapped */
}
