/* Model directories of Hugging Face transformers, in and out: config.json, and model.safetensors or
 * model.safetensors.index.json with its shards.
 *
 * Parameters of our models have the names of the released models without the prefix of the body
 * ("transformer.", "model.", "bert."), so that a family is a row of a table and not a program; what
 * differs beyond names is two things: GPT-2 stores the weights of linear layers as [in, out], and
 * experts, one parameter of ours for all of a layer, have a tensor each. */
#ifndef TRI_CKPT_HF_HF_H
#define TRI_CKPT_HF_HF_H

#include "base/error.h"
#include "ckpt/region.h"
#include "model/model.h"

/* A directory with a config.json and without a config.yaml, which would make it a run of ours. */
bool tri_hf_is_dir(const char *path);

/* One setting that config.json decides. */
typedef struct tri_hf_setting {
    const char *name;  /* "model.dim" */
    const char *key;   /* where it stands in config.json, for messages: "hidden_size" */
    const char *value; /* in the text below, or in a list of the config */
    bool fixed;        /* part of the shape: the weights do not fit any other value */
    char text[40];
} tri_hf_setting;

enum { TRI_HF_MAX_SETTINGS = 48, TRI_HF_NUM_LISTS = 3, TRI_HF_LIST_BYTES = 8192 };

typedef struct tri_hf_config {
    const char *model_type; /* "llama", "qwen2", ... */
    tri_hf_setting setting[TRI_HF_MAX_SETTINGS];
    int num_settings;
    char list[TRI_HF_NUM_LISTS][TRI_HF_LIST_BYTES]; /* values too long for a setting's text */
} tri_hf_config;

/* Reads and checks dir/config.json into a config that stays where it is: it points into itself.
 * What Trireme cannot compute exactly is refused by name. */
tr_status tri_hf_config_read(const char *dir, tri_hf_config *config, tr_error *err);

/* The tensors of a directory, by parameters of the table. One that is missing, has another shape,
 * or is there and not understood is an error; but a bert may be given a head that its file, made
 * for another task, has not: fresh[i] is set for these parameters. */
typedef struct tri_hf_source tri_hf_source;
tr_status tri_hf_open(const char *dir, const tri_param_table *params, bool *fresh,
                      tri_hf_source **source, tr_error *err);
/* A region of a parameter, widened to fp32; a fresh one is left alone. Touches the bytes of the
 * region alone: who has some experts reads the tensors of these. */
void tri_hf_read(const tri_hf_source *source, size_t param, const tri_region *region, float *to);
void tri_hf_close(tri_hf_source *source); /* NULL is fine */

/* The files with the tensors of a directory, in order; names on the heap. */
typedef struct tri_hf_shards {
    char **path;
    size_t num;
} tri_hf_shards;

tr_status tri_hf_shards_list(const char *dir, tri_hf_shards *shards, tr_error *err);
void tri_hf_shards_free(tri_hf_shards *shards);

/* What a run that began with a model of Hugging Face keeps of its directory: the files that say
 * what tokens mean, how texts are made and which template chats have, and its config.json under
 * this name. tri_hf_export passes them on. */
#define TRI_HF_KEPT "hf_config.json"
tr_status tri_hf_keep(const char *from, const char *run_dir, tr_error *err);

#define TRI_HF_SHARD_BYTES ((int64_t)5000 * 1000 * 1000)

typedef struct tri_hf_export_options {
    const char *dir;     /* must not exist, or be empty */
    int64_t shard_bytes; /* the most a file may hold; one tensor always fits */
    const char *run_dir; /* what tri_hf_keep and a training left there goes along; or NULL */
} tri_hf_export_options;

/* The directory appears complete or not at all. */
tr_status tri_hf_export(const tri_hf_export_options *options, const tri_model_config *model,
                        const tri_param_table *params, const float *const *data, tr_error *err);

#endif
