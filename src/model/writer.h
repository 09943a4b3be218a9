/* Writing a table of parameters: what the models' tables have in common. */
#ifndef TRI_MODEL_WRITER_H
#define TRI_MODEL_WRITER_H

#include "graph/param.h"

typedef struct tri_param_writer {
    tri_param_table *table;
    const char *scope; /* put before every name: "" or "h.3." */
    int layer;
} tri_param_writer;

/* What follows belongs to this layer; names begin with the formatted scope. */
void tri_writer_enter(tri_param_writer *w, int layer, const char *scope_format, ...)
    __attribute__((format(printf, 3, 4)));

/* Any: "name" with the suffix, of the writer's layer. */
void tri_write_param(const tri_param_writer *w, const char *name, const char *suffix,
                     tri_param param);
/* "name.weight" [out dims, in dims], and "name.bias" [out dims] when a bias is given. */
void tri_write_linear(const tri_param_writer *w, const char *name, tri_shape out, tri_shape in,
                      tri_init weight, const tri_init *bias);
/* "name.weight" of ones, and "name.bias" of zeros when it has a shift. */
void tri_write_norm(const tri_param_writer *w, const char *name, tri_dim dim, bool shift);
/* "name.weight" [rows, width] */
void tri_write_embedding(const tri_param_writer *w, const char *name, tri_dim rows, tri_dim width,
                         float std);
/* A router "name.weight" [experts, width], with "name.e_score_correction_bias" where it is steered.
 */
void tri_write_router(const tri_param_writer *w, const char *name, tri_dim experts, tri_dim width,
                      float std, bool steered);
/* "name.weight" [experts, out, in]: a matrix for each */
void tri_write_experts(const tri_param_writer *w, const char *name, tri_dim experts, tri_dim out,
                       tri_dim in, tri_init init);
/* A bias that stands alone. */
void tri_write_bias(const tri_param_writer *w, const char *name, tri_shape shape);

#endif
