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
