/* The CPU device: what its kernels share. */
#ifndef TRI_DEVICE_CPU_CPU_H
#define TRI_DEVICE_CPU_CPU_H

#include "base/pool.h"
#include "device/cpu/isa.h"
#include "device/kernel.h"

/* Reached from a kernel as args->device. */
typedef struct tri_cpu {
    tri_pool *pool; /* NULL: one thread */
    tri_isa isa;
    void *scratch; /* at least as large as the largest kernel of the program asked for */
    size_t scratch_bytes;
} tri_cpu;

/* The portable kernel of an operator: plain loops in the order of the formula, one thread. Every
 * operator has one. */
const tri_kernel *tri_cpu_reference(tri_op op);

/* Kernels know f32 alone; these run one on operands of which some have 16 or 8 bits (widen.c). */
bool tri_cpu_needs_widening(tri_op op, const tri_kernel_args *args);
size_t tri_cpu_widened_scratch(tri_op op, const tri_kernel *kernel, const tri_kernel_args *args,
                               int num_threads);
void tri_cpu_run_widened(tri_op op, const tri_kernel *kernel, const tri_kernel_args *args);

/* Statistics of cross-entropy, outputs 3 on of a call: what they begin with, one more row (its
 * three statistics, its lse) that has a target, and back to the outputs. */
typedef struct tri_head_stats {
    double joined[TRI_MAX_HEAD_STATS];
} tri_head_stats;
tri_head_stats tri_cpu_head_begin(const tri_kernel_args *args);
void tri_cpu_head_row(const tri_kernel_args *args, tri_head_stats *stats, const float *row,
                      double lse);
void tri_cpu_head_end(const tri_kernel_args *args, const tri_head_stats *stats);

/* The scale of a call of quantise, from what amax found. */
float tri_cpu_scale8(const tri_kernel_args *args);
/* The matrix that a call of quantise makes. */
void tri_cpu_quantise_sides(const tri_kernel_args *args, int64_t *rows, int64_t *cols);

/* The fast kernel for this instruction set, or NULL where there is only the reference. */
const tri_kernel *tri_cpu_fast(tri_op op, tri_isa isa);

#endif
