/* Parameters to and from a safetensors file: logical tensors, by canonical name. */
#ifndef TRI_CKPT_WEIGHTS_H
#define TRI_CKPT_WEIGHTS_H

#include "base/error.h"
#include "ckpt/region.h"
#include "ckpt/safetensors.h"
#include "graph/param.h"

/* One pointer per row of the table, to fp32 elements. */
tr_status tri_weights_save(const char *path, const tri_param_table *params,
                           const float *const *data, int64_t step, tr_error *err);
/* Called for each row in turn; what *data points to is used until the next call. */
typedef tr_status (*tri_weights_fetch)(void *context, size_t param, const float **data,
                                       tr_error *err);
/* The same with the parameters one after the other; path NULL: nothing is written, for ranks that
 * only have to take part in fetching. */
tr_status tri_weights_save_each(const char *path, const tri_param_table *params, int64_t step,
                                tri_weights_fetch fetch, void *context, tr_error *err);
/* Every parameter of the table must be there in its shape; others in the file are an error, since
 * they mean that the file belongs to another model. A directory is a checkpoint, or one of Hugging
 * Face (hf.h), which may lack a head: fresh[i], false before, is set for the parameters that were
 * not filled. */
tr_status tri_weights_load(const char *path, const tri_param_table *params, float *const *data,
                           bool *fresh, tr_error *err);
/* The same, parameter by parameter, for those who have no room for all at once. Everything is
 * checked when it is opened; path and params must outlive it. */
typedef struct tri_weights_source tri_weights_source;
tr_status tri_weights_open(const char *path, const tri_param_table *params, bool *fresh,
                           tri_weights_source **source, tr_error *err);
/* A region of a parameter, and no byte of the files beside it. Leaves those alone that are fresh.
 */
tr_status tri_weights_read(tri_weights_source *source, size_t param, const tri_region *region,
                           float *to, tr_error *err);
/* The same from a whole tensor in memory, at any address. */
void tri_weights_take(const float *whole, const tri_region *region, float *to);
void tri_weights_close(tri_weights_source *source); /* NULL is fine */
/* The same without copying: data points into the file, which the caller closes. */
tr_status tri_weights_map(const char *path, const tri_param_table *params, const float **data,
                          tri_safetensors **file, tr_error *err);

#endif
