/* Model directories of Hugging Face for tests: sessions from them, and copies to break. A failure
 * ends the test. */
#ifndef TRI_TESTS_HF_DIRS_H
#define TRI_TESTS_HF_DIRS_H

#include <jansson.h>

#include "api/api.h"
#include "ckpt/safetensors.h"
#include "temp_dir.h"

void hf_set(tr_settings *settings, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Settings with model.from set to the directory. */
tr_settings *hf_settings(const char *dir);
/* row as in tri_session, or NULL for the settings' data. */
tr_session *hf_start(tr_settings *settings, tri_row_fn row, void *context);
/* A session that only predicts, with room for this many tokens. */
tr_session *hf_start_predictor(tr_settings *settings, int64_t seq_len);

/* Files of a directory. */
json_t *hf_read_json(const char *dir, const char *name);
void hf_put(const char *dir, const char *name, const void *data, size_t num_bytes);
void hf_put_json(const char *dir, const char *name, const json_t *root);
/* A fresh copy of a directory of tests/fixtures. */
const char *hf_copy_of(temp_dir *temp, const char *fixture);

/* As tr_session_create with one more setting (or NULL); the message is in err. */
tr_status hf_try_load(const char *dir, const char *assignment, tr_error *err);
/* It is wrong input, and the message holds both words. */
void hf_refuses(const char *dir, const char *assignment, const char *word, const char *other);
/* The config of a copy with one key changed; value is JSON, or NULL to take the key away. */
void hf_refuses_config(temp_dir *temp, const char *fixture, const char *key, const char *value,
                       const char *word);

enum { HF_MAX_ITEMS = 64 };

/* The tensors of a copy's file, to be changed and written back. */
typedef struct hf_edit {
    char path[300];
    tri_safetensors *file;
    tri_safetensors_item item[HF_MAX_ITEMS];
    size_t num;
} hf_edit;

void hf_edit_open(hf_edit *e, const char *dir, const char *name);
tri_safetensors_item *hf_edit_find(hf_edit *e, const char *name);
void hf_edit_write(hf_edit *e);

#endif
