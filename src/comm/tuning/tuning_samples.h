/* How long ranks take for something that they do together. */
#ifndef TRI_COMM_TUNING_TUNING_SAMPLES_H
#define TRI_COMM_TUNING_TUNING_SAMPLES_H

#include "comm/comm.h"

/* This rank's part of it. */
typedef tr_status (*tri_sampled_part)(tr_group *group, const void *context, tr_error *err);

/* The mean over so many times after a barrier, and of the ranks' means the longest: all see the
 * same time, so that they agree on what to do by it. Collective. */
tr_status tri_take_sample(tr_group *group, tri_sampled_part part, const void *context, int times,
                          double *seconds, tr_error *err);

/* The same of a call. */
tr_status tri_sample_call(tr_group *group, const tr_collective *call, int times, double *seconds,
                          tr_error *err);

#endif
