/* What the fast kernels share: vectors, work cut into tasks, the list of kernels.
 *
 * Rules that every kernel here keeps:
 * 1. Work is cut into tasks by its shape alone, and a task's result does not depend on the worker,
 *    so that any number of threads gives the same bits.
 * 2. Sums over rows use row blocks of a fixed number, partial sums in scratch and one order of
 *    combination.
 * 3. Nothing is allocated; scratch comes from the device. */
#ifndef TRI_DEVICE_CPU_FAST_FAST_H
#define TRI_DEVICE_CPU_FAST_FAST_H

#include "device/cpu/cpu.h"
#include "device/cpu/fast/isa.h"
#include "device/cpu/fast/vecmath.h"

#include <string.h>

/* Floats in a vector register. */
#if defined(__AVX512F__)
enum { VEC_LANES = 16 };
#elif defined(__AVX__)
enum { VEC_LANES = 8 };
#else
enum { VEC_LANES = 4 };
#endif

/* May lie at any address of a float. Never passed to or returned from a function that is not
 * inlined: the calling convention would depend on the instruction set. */
typedef float vec __attribute__((vector_size(VEC_LANES * 4), aligned(4), may_alias));

/* Before an elementwise loop whose output may be the same memory as an input: there is no
 * dependence between different elements. Without it the compiler's own overlap check would send
 * work in place to a scalar loop. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Partial sums of a reduction along a row. Fixed, because float addition is not associative and the
 * compiler keeps the order it is given; and more than 16, because it unrolls shorter inner loops
 * before it can see that they are vectors. */
enum { SUM_LANES = 32 };

/* Elements of an elementwise task: long enough to hide the hand-over to a worker, short enough to
 * balance. Less than SMALL_WORK in total is not worth waking anybody. */
enum { TASK_ELEMENTS = 32768, SMALL_WORK = 16384 };

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t round_up(int64_t a, int64_t multiple)
{
    return ceil_div(a, multiple) * multiple;
}

static inline tri_cpu *cpu_of(const tri_kernel_args *args)
{
    return args->device;
}

static inline int64_t last_dim(const tri_tensor *t)
{
    return t->size[t->rank - 1];
}

/* work: about how many elements are touched in all. */
static inline void run_tasks(const tri_kernel_args *args, int64_t work, int64_t num_tasks,
                             tri_task_fn fn, void *context)
{
    tri_pool_run(work < SMALL_WORK ? NULL : cpu_of(args)->pool, (int)num_tasks, fn, context);
}

/* Rows per task so that a task touches about TASK_ELEMENTS. */
static inline int64_t rows_per_task(int64_t row_elements)
{
    return row_elements >= TASK_ELEMENTS ? 1
                                         : TASK_ELEMENTS / (row_elements < 1 ? 1 : row_elements);
}

/* exp for arguments up to 80. Those of a softmax are at most a rounding error above 0, so that half
 * of the care of tri_expf is not needed. Below -88 (n is -127, the bits of 2^n are zero) it is
 * exactly 0, also of -inf; NaN stays NaN. */
static inline float exp_weight(float x)
{
    int32_t n;
    float r = tri_exp_reduce(x < -88.0f ? -88.0f : x, &n);
    float scale = tri_float_from_bits((uint32_t)(n + 127) << 23);
    return scale * tri_expm1_reduced(r) + scale;
}

/* The sum of lanes, as a tree. */
static inline float sum_of_lanes(float *lane)
{
    for (int half = SUM_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* Sums over rows: at most this many blocks of rows, each with its own sums. */
enum { MAX_ROW_BLOCKS = 32, MIN_BLOCK_ROWS = 16 };

static inline int64_t row_block(int64_t num_rows)
{
    int64_t block = ceil_div(num_rows, MAX_ROW_BLOCKS);
    return block < MIN_BLOCK_ROWS ? MIN_BLOCK_ROWS : block;
}

static inline int64_t num_row_blocks(int64_t num_rows)
{
    return ceil_div(num_rows, row_block(num_rows));
}

/* out = (or +=) the sums of all blocks, in order. Uses the first block's memory. */
static inline void combine_rows(float *partial, int64_t num_blocks, int64_t step, int64_t dim,
                                float *restrict out, bool overwrite)
{
    for (int64_t i = 1; i < num_blocks; i++) {
        const float *next = partial + i * step;
        INDEPENDENT
        for (int64_t d = 0; d < dim; d++)
            partial[d] += next[d];
    }
    for (int64_t d = 0; d < dim; d++)
        out[d] = overwrite ? partial[d] : out[d] + partial[d];
}

extern const tri_kernel TRI_ISA_NAME(tri_fast_matmul);
extern const tri_kernel TRI_ISA_NAME(tri_fast_add);
extern const tri_kernel TRI_ISA_NAME(tri_fast_bias_add);
extern const tri_kernel TRI_ISA_NAME(tri_fast_bias_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_act);
extern const tri_kernel TRI_ISA_NAME(tri_fast_act_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_dropout);
extern const tri_kernel TRI_ISA_NAME(tri_fast_jitter);
extern const tri_kernel TRI_ISA_NAME(tri_fast_accumulate);
extern const tri_kernel TRI_ISA_NAME(tri_fast_axpby);
/* The largest elements of a tensor, as of amax; args has the device. */
void TRI_ISA_NAME(tri_fast_amax_of)(const tri_kernel_args *args, const tri_tensor *of,
                                    const tri_tensor *out);
extern const tri_kernel TRI_ISA_NAME(tri_fast_amax);
extern const tri_kernel TRI_ISA_NAME(tri_fast_quantise);
extern const tri_kernel TRI_ISA_NAME(tri_fast_swiglu);
extern const tri_kernel TRI_ISA_NAME(tri_fast_swiglu_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_gate_rows);
extern const tri_kernel TRI_ISA_NAME(tri_fast_gate_rows_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_route);
extern const tri_kernel TRI_ISA_NAME(tri_fast_route_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_rooms);
extern const tri_kernel TRI_ISA_NAME(tri_fast_dispatch);
extern const tri_kernel TRI_ISA_NAME(tri_fast_collect);
extern const tri_kernel TRI_ISA_NAME(tri_fast_pack_rooms);
extern const tri_kernel TRI_ISA_NAME(tri_fast_mask_rows);
extern const tri_kernel TRI_ISA_NAME(tri_fast_route_load);
extern const tri_kernel TRI_ISA_NAME(tri_fast_drop_rows);
extern const tri_kernel TRI_ISA_NAME(tri_fast_count_dropped);
extern const tri_kernel TRI_ISA_NAME(tri_fast_route_sums);
extern const tri_kernel TRI_ISA_NAME(tri_fast_route_sums_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_sort_rows);
extern const tri_kernel TRI_ISA_NAME(tri_fast_grouped);
extern const tri_kernel TRI_ISA_NAME(tri_fast_grouped_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_grouped8);
extern const tri_kernel TRI_ISA_NAME(tri_fast_grouped8_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_swiglu_rows);
extern const tri_kernel TRI_ISA_NAME(tri_fast_swiglu_rows_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_embed);
extern const tri_kernel TRI_ISA_NAME(tri_fast_embed_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_select_row);
extern const tri_kernel TRI_ISA_NAME(tri_fast_select_row_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_gather_rows);
extern const tri_kernel TRI_ISA_NAME(tri_fast_layernorm);
extern const tri_kernel TRI_ISA_NAME(tri_fast_add_layernorm);
extern const tri_kernel TRI_ISA_NAME(tri_fast_layernorm_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_layernorm_param_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_rmsnorm);
extern const tri_kernel TRI_ISA_NAME(tri_fast_add_rmsnorm);
extern const tri_kernel TRI_ISA_NAME(tri_fast_rmsnorm_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_rmsnorm_param_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_rope);
extern const tri_kernel TRI_ISA_NAME(tri_fast_split_qkv);
extern const tri_kernel TRI_ISA_NAME(tri_fast_join_qkv);
extern const tri_kernel TRI_ISA_NAME(tri_fast_attention);
extern const tri_kernel TRI_ISA_NAME(tri_fast_attention_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_attention_merge);
extern const tri_kernel TRI_ISA_NAME(tri_fast_cache_write);
extern const tri_kernel TRI_ISA_NAME(tri_fast_ce_stats);
extern const tri_kernel TRI_ISA_NAME(tri_fast_ce_loss);
extern const tri_kernel TRI_ISA_NAME(tri_fast_ce_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_out_loss);
extern const tri_kernel TRI_ISA_NAME(tri_fast_out_loss_grad);
extern const tri_kernel TRI_ISA_NAME(tri_fast_sum_squares);
extern const tri_kernel TRI_ISA_NAME(tri_fast_sgd);
extern const tri_kernel TRI_ISA_NAME(tri_fast_adam);
extern const tri_kernel TRI_ISA_NAME(tri_fast_narrow);
extern const tri_kernel TRI_ISA_NAME(tri_fast_adam8);
extern const tri_kernel TRI_ISA_NAME(tri_fast_lion);
extern const tri_kernel TRI_ISA_NAME(tri_fast_momentum);
extern const tri_kernel TRI_ISA_NAME(tri_fast_unit_norm);
extern const tri_kernel TRI_ISA_NAME(tri_fast_apply_update);

#endif
