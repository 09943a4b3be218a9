/* What the files of the Hugging Face reader and writer share. */
#ifndef TRI_CKPT_HF_HF_PARTS_H
#define TRI_CKPT_HF_HF_PARTS_H

#include <jansson.h>

#include "ckpt/hf/hf.h"
#include "ckpt/safetensors.h"

/* ---- hf_family.c ---- */

/* Experts, as the config class of a family has them. Sizes must be given. */
typedef struct tri_hf_moe_keys {
    const char *experts, *experts_too; /* keys of their number: as written, and one read, too */
    const char *width;                 /* the key of the width of one */
    bool layers;     /* decoder_sparse_step and mlp_only_layers say which layers have experts */
    bool shared;     /* all tokens go through one more, with a gate */
    bool renorm_key; /* norm_topk_prob says whether weights are normed; otherwise they are */
    double aux_loss; /* router_aux_loss_coef when it is left out */
} tri_hf_moe_keys;

/* A part of names, ours and theirs. */
typedef struct tri_hf_rename {
    const char *ours, *theirs;
} tri_hf_rename;

typedef struct tri_hf_family {
    const char *model_type;   /* in config.json */
    const char *kind;         /* our model.kind */
    const char *architecture; /* the class with the head that is trained, or its default */
    const char *prefix;       /* of the names of the body's tensors */
    const char *heads;        /* beginnings of names outside the body, with blanks between */
    bool conv1d;              /* weights of linear layers are stored as [in, out] */
    const char *head, *table; /* canonical: when tied, the head is not a parameter but the table */
    /* Tensors that carry nothing: "*end" or "begin*" of names without prefix, blanks between. */
    const char *ignored;
    /* Values of keys that config.json leaves out, as the config classes of transformers have. 0 for
     * heads of keys and values: as many as heads; 0 for head_dim: hidden_size / heads. */
    int64_t kv_heads, head_dim, positions, window;
    /* The same, of llama's relatives; 0: 1e-6 and 10000. */
    double norm_eps, rope_theta;
    const tri_hf_moe_keys *moe;   /* NULL: dense */
    const tri_hf_rename *renames; /* ended by NULL, or NULL */
} tri_hf_family;

enum { TRI_HF_MAY_HAVE_WINDOW = -1 }; /* window: none when the key is left out */

const tri_hf_family *tri_hf_family_find(const char *model_type); /* or NULL */
/* "gpt2, llama, ..."; returns text. */
char *tri_hf_family_names(char *text, size_t text_size);
/* The name in the files; returns text. */
char *tri_hf_name(const tri_hf_family *family, const char *canonical, char *text, size_t text_size);
/* From a name in a file, with or without the prefix, to the canonical one; returns text. */
char *tri_hf_canonical(const tri_hf_family *family, const char *name, char *text, size_t text_size);
bool tri_hf_ignored(const tri_hf_family *family, const char *canonical);
/* The shape in the files, of experts that of one: one dim or two. Returns the number of dims. */
int tri_hf_dims(const tri_hf_family *family, const tri_param *param, int64_t dim[2]);

/* The classes of transformers that share a body, and what they are for (bert). */
typedef struct tri_hf_class {
    const char *name;
    tri_task task;
    const char *heads; /* beginnings of names outside the encoder that its files hold */
} tri_hf_class;

/* Of a config.json: the row of the class that it names; NULL when it names none, or one that is
 * only the body. An unknown one is an error. */
tr_status tri_hf_class_read(const tri_hf_family *family, const json_t *root, const char *path,
                            const tri_hf_class **found, tr_error *err);
/* The class for a task. */
const tri_hf_class *tri_hf_class_for(tri_task task);
/* The head that a parameter is of, where a file may have none of it: "cls.", "classifier.",
 * "pooler."; or NULL. */
const char *tri_hf_head_of(const tri_hf_family *family, const char *canonical);

/* ---- hf_experts.c ----
 *
 * Our parameter of a projection holds it for all experts, [E, out, in]. Files have a tensor for
 * each expert, or, as transformers 5 has them in memory, one for all with gate and up together. */

/* How many experts a parameter is of; 0: it is no such parameter. */
int64_t tri_hf_num_experts(const tri_param *param);
/* The canonical name of one expert's part: "mlp.experts.up_proj" to "mlp.experts.3.up_proj". */
char *tri_hf_expert_name(const char *canonical, int64_t expert, char *text, size_t text_size);
/* The canonical name of the tensor of all experts; *half is 1 for the second half of each. */
char *tri_hf_fused_name(const char *canonical, char *text, size_t text_size, int *half);
/* From a canonical name of the two kinds to that of the parameter, in place. Returns the expert, or
 * -1: the name is none of one expert. */
int64_t tri_hf_expert_param(char *canonical, size_t text_size);

/* ---- hf_moe.c ---- */

/* The family of a model with experts. */
tr_status tri_hf_moe_choose(const tri_model_config *model, const char **type, tr_error *err);
/* Adds experts to a config.json; 0, or not when there is no memory. */
int tri_hf_add_moe(json_t *root, const tri_model_config *model, const tri_hf_family *family);

/* ---- hf_rope.c ---- */

/* Adds the rotary positions to a config.json; 0, or not when there is no memory. */
int tri_hf_add_rope(json_t *root, const tri_model_config *model);
/* The shortest decimal that is this float: 1e-05 and not 9.9999997473787516e-06. */
json_t *tri_hf_number(float value);

/* ---- hf_config.c ---- */

/* Parses dir/name, which must hold an object. */
tr_status tri_hf_json_read(const char *dir, const char *name, json_t **root, char **path,
                           tr_error *err);
/* The row of the config's model_type; an error names the known ones. */
tr_status tri_hf_family_read(const json_t *root, const char *path, const tri_hf_family **family,
                             tr_error *err);

/* ---- hf_files.c ---- */

typedef struct tri_hf_file {
    const char *name; /* of the file in the directory */
    char *path;
    tri_safetensors *file;
} tri_hf_file;

/* Every tensor that the index names is in the shard that it names. */
typedef struct tri_hf_files {
    char *index_path; /* NULL for a single file */
    json_t *index;
    json_t *weight_map; /* borrowed from index */
    tri_hf_file *file;
    size_t num;
} tri_hf_files;

tr_status tri_hf_files_open(tri_hf_files *files, const char *dir, tr_error *err);
void tri_hf_files_close(tri_hf_files *files);
/* The tensor and the file it is in; NULL when there is none. */
const tri_safetensor *tri_hf_files_find(const tri_hf_files *files, const char *name,
                                        const tri_hf_file **file);
/* What to call the whole in a message. */
const char *tri_hf_files_label(const tri_hf_files *files);

/* ---- hf_convert.c ---- */

bool tri_hf_can_widen(tri_dtype dtype);
/* F32, F16 or BF16, at any address, to fp32. */
void tri_hf_widen(tri_dtype dtype, const void *from, float *to, size_t count);
/* from is [cols, rows], to is [rows, cols]. */
void tri_hf_widen_transposed(tri_dtype dtype, const void *from, float *to, size_t rows,
                             size_t cols);

/* A part of a row of [rows, cols], and where it goes. */
typedef struct tri_hf_line {
    int64_t row, begin, end; /* columns */
    float *to;
} tri_hf_line;

/* from is [cols, rows]; lines that are given together are read in passes over their columns. */
void tri_hf_widen_lines(tri_dtype dtype, const void *from, int64_t rows, const tri_hf_line *lines,
                        int num);

/* ---- hf_export_config.c ---- */

/* config.json for a model; the family is chosen from its options. */
tr_status tri_hf_config_make(const tri_model_config *model, const tri_hf_family **family,
                             json_t **root, tr_error *err);

/* ---- hf_keep.c ---- */

/* The files beside the weights, as they are. */
tr_status tri_hf_copy_companions(const char *from, const char *to, tr_error *err);
/* Sets bos_token_id and its like in a config.json: as in the one that the run began with, else by
 * the tokenizer of the run. */
tr_status tri_hf_token_ids(const char *run_dir, json_t *config, tr_error *err);

#endif
