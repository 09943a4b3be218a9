/* NCCL's entry points over fake GPUs (fake_gpu.h): ranks are threads of one process, a communicator
 * is memory that they share, sums are formed in the order of ranks. Calls only enqueue; what they
 * do later takes a moment, drawn at random, so that the order of streams matters. */
#ifndef TRI_TESTS_FAKE_NCCL_H
#define TRI_TESTS_FAKE_NCCL_H

#include "comm/transport/nccl.h"

extern const tri_nccl_api fake_nccl_api;

/* From now on communicators report this ncclResult_t; 0: as usual. */
void fake_nccl_break(int result);
/* How many communicators were ended by ncclCommAbort, and left by ncclCommDestroy. */
int fake_nccl_aborted(void);
int fake_nccl_destroyed(void);
/* Bytes of all sends that ended, those to oneself included, since this was asked last. */
size_t fake_nccl_sent(void);

#endif
