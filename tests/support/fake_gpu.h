/* A GPU without one: a device with a queue, lanes, points and recordings, made of the CPU's kernels
 * and a thread for the queue and for each lane. What its points do not order runs in any order, so
 * a dependency that a program forgets shows as wrong numbers. One for each rank, which is a thread.
 *
 * Recordings obey the rules of CUDA graphs: a lane takes part from its first await of a point that
 * was set in it, and the queue must have waited for every lane when it ends. A kernel's first use
 * finds no message under way: the GPU may have to be idle to load it. No kernel of a recording has
 * operands or scratch where a message may be at work that the queue has not waited for. */
#ifndef TRI_TESTS_FAKE_GPU_H
#define TRI_TESTS_FAKE_GPU_H

#include "device/device.h"

typedef struct fake_gpu fake_gpu;

/* Of the calling thread, until it is destroyed. */
fake_gpu *fake_gpu_create(void);
void fake_gpu_destroy(fake_gpu *gpu);
extern const tri_device_def fake_gpu_def; /* over the state of tri_device_cpu */

/* What libraries do: enqueues a call on the lane of a handle; data is copied, and must not change
 * when it is called, since it may be replayed. */
void fake_gpu_enqueue(void *handle, void (*fn)(void *data), const void *data, size_t bytes);

/* Its queue, as such a handle. */
void *fake_gpu_queue(fake_gpu *gpu);

/* The call that was enqueued last reads or writes this: no kernel may touch it before the queue has
 * waited for the call. Looked at while recording. */
void fake_gpu_uses(void *handle, const void *memory, size_t bytes);

/* How many kernels of an operator were recorded with a message before them that the queue had not
 * waited for. */
int fake_gpu_beside(const fake_gpu *gpu, tri_op op);

/* Now the queue is slow, now a lane, as the seed will have it. */
void fake_gpu_slow(fake_gpu *gpu, uint64_t seed);

/* The first rule that was broken, or NULL. */
const char *fake_gpu_fault(const fake_gpu *gpu);

#endif
