/* tuning.json: what was measured once and is used by later runs, an object with a version and a key
 * for each who keeps something: "comm" (comm/tuning/tuning.h), "products"
 * (device/product_choices.h). */
#ifndef TRI_BASE_TUNING_JSON_H
#define TRI_BASE_TUNING_JSON_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

/* The whole file, the caller's to release; NULL when there is none, which is no error. */
tr_status tri_tuning_json_read(const char *path, json_t **object, tr_error *err);

/* Changes a list of the file and replaces the file, unless `change` returns false: there was
 * nothing to change. Other lists stay as they are. Several processes may do so at once: each sees
 * what the one before it wrote. */
typedef bool (*tri_tuning_change)(json_t *list, const void *context);
tr_status tri_tuning_json_change(const char *path, const char *key, tri_tuning_change change,
                                 const void *context, tr_error *err);

#endif
