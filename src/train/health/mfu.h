/* What the utilisation of a device is a share of. A datasheet's rate is the same for everybody; a
 * product measured here says how far the program is from what this machine does at the moment. */
#ifndef TRI_TRAIN_HEALTH_MFU_H
#define TRI_TRAIN_HEALTH_MFU_H

#include "train/session.h"

typedef struct tri_mfu_base {
    double flops;    /* FLOP/s of one device; 0 when not known */
    bool datasheet;  /* or measured here */
    char words[160]; /* "the 989.5 TFLOP/s (16-bit, dense) of the datasheet of NVIDIA H200 SXM" */
} tri_mfu_base;

/* measured: FLOP/s of a large product, or 0; it counts where the device is not in the table. */
tri_mfu_base tri_mfu_base_of(const tri_session *session, double measured);

#endif
