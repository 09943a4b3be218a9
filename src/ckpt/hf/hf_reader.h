/* A config.json as it is read: values of keys, and the settings that they become. */
#ifndef TRI_CKPT_HF_HF_READER_H
#define TRI_CKPT_HF_HF_READER_H

#include "ckpt/hf/hf_parts.h"

typedef struct tri_hf_reader {
    const char *path;
    const json_t *root;
    const tri_hf_family *family;
    tri_hf_config *out;
    tr_error *err;
} tri_hf_reader;

enum { TRI_HF_NEEDED = -1 }; /* no fallback: a file without the key is wrong */

/* ---- typed reads: absent and null give the fallback ---- */

/* NULL for null, too. */
const json_t *tri_hf_value(const json_t *object, const char *key);
/* A whole number from 1 on. */
tr_status tri_hf_read_int(const tri_hf_reader *r, const json_t *object, const char *key,
                          int64_t fallback, int64_t *out);
/* A number >= 0. */
tr_status tri_hf_read_real(const tri_hf_reader *r, const json_t *object, const char *key,
                           double fallback, double *out);
tr_status tri_hf_read_bool(const tri_hf_reader *r, const char *key, bool fallback, bool *out);
tr_status tri_hf_read_text(const tri_hf_reader *r, const json_t *object, const char *key,
                           const char *fallback, const char **out);
/* A switch, a text, that must stand where our models have it. */
tr_status tri_hf_demand(const tri_hf_reader *r, const char *key, bool fallback, bool wanted);
tr_status tri_hf_demand_text(const tri_hf_reader *r, const char *key, const char *wanted);

/* ---- what is handed on ---- */

/* fixed: part of the shape, see tri_hf_setting. */
void tri_hf_add(const tri_hf_reader *r, bool fixed, const char *name, const char *key,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
void tri_hf_add_int(const tri_hf_reader *r, bool fixed, const char *name, const char *key,
                    int64_t value);
void tri_hf_add_real(const tri_hf_reader *r, const char *name, const char *key, double value);
/* Numbers above 0, as list `which` (0 or 1) of the config; layers are list 2. */
tr_status tri_hf_add_list(const tri_hf_reader *r, int which, const char *name, const char *key,
                          const json_t *list);
void tri_hf_add_bool(const tri_hf_reader *r, const char *name, const char *key, bool value);
tr_status tri_hf_add_init(const tri_hf_reader *r);
/* The rotary positions of a model that takes this many (hf_rope.c); of type dynamic it takes more:
 * the maximum of such a config is where stretching begins. */
tr_status tri_hf_read_rope(const tri_hf_reader *r, int64_t *positions);
/* The experts of a family that has them, and of another that there are none (hf_moe.c). */
tr_status tri_hf_read_moe(const tri_hf_reader *r, int64_t num_layers);

/* Sizes that must be there: config.json's key and ours. */
typedef struct tri_hf_size_key {
    const char *key, *name;
} tri_hf_size_key;

tr_status tri_hf_add_sizes(const tri_hf_reader *r, const tri_hf_size_key *sizes, int num);

#endif
