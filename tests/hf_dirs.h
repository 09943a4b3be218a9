/* Model directories of Hugging Face for tests: sessions from them, and copies to break. A failure
 * ends the test. */
#ifndef TRI_TESTS_HF_DIRS_H
#define TRI_TESTS_HF_DIRS_H

#include <jansson.h>

#include "api/api.h"
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

#endif
