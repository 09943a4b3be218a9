/* The parameters as the host sees them: whole, in fp32, whatever the device and the layout. */
#ifndef TRI_TRAIN_WEIGHTS_HOST_H
#define TRI_TRAIN_WEIGHTS_HOST_H

#include "train/session.h"

/* Fills session->weights: with the device's own memory where that is the host's and holds whole
 * tensors, else with memory of the host's. */
tr_status tri_weights_place(tri_session *session, tr_error *err);
/* From the host to the device: this rank's pieces, and the 16-bit copies. */
tr_status tri_weights_push(tri_session *session, tr_error *err);

#endif
