/* The parameters as the host sees them: whole, in fp32, whatever the device and the layout. */
#ifndef TRI_TRAIN_WEIGHTS_HOST_H
#define TRI_TRAIN_WEIGHTS_HOST_H

#include "ckpt/region.h"
#include "train/session.h"

/* Fills session->weights: with the device's own memory where that is the host's and holds whole
 * tensors, else with memory of the host's. */
tr_status tri_weights_place(tri_session *session, tr_error *err);
void tri_weights_free(tri_session *session);

/* The groups of ranks that the host collects the parameters over, so that they can be joined;
 * returns their number. */
enum { TRI_WEIGHTS_GROUPS = 6 };
size_t tri_weights_groups(const tri_session *session, tri_rank_group groups[TRI_WEIGHTS_GROUPS]);

/* Writes what a region of a parameter begins with; `to` may be session->weights[param]. */
typedef tr_status (*tri_weights_fn)(void *context, tri_session *session, size_t param,
                                    const tri_region *region, float *to, tr_error *err);
/* From the host to the device: this rank's pieces, and the 16-bit copies, tensor by tensor. fill,
 * when given, is asked for the regions that this rank has; otherwise they are taken from
 * session->weights. Where the host has memory of its own for them, that is given back: what
 * session->weights points to is then for tri_session_pull_weights to fill in. */
tr_status tri_weights_push(tri_session *session, tri_weights_fn fill, void *context, tr_error *err);

#endif
