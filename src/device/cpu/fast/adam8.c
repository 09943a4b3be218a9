/* Adam with moments of 8 bits. A block is decoded to the stack, updated and encoded; tasks are
 * whole blocks, so that any number of threads gives the same bits. */
#include "device/adam8.h"
#include "device/cpu/fast/fast.h"

enum { TASK_BLOCKS = 128 };

typedef struct adam8_job {
    const tri_kernel_args *args;
    tri_adam8 k;
} adam8_job;

static inline __attribute__((always_inline)) void decode(bool is_signed, const uint8_t *block,
                                                         int64_t num, float *restrict x)
{
    float scale;
    memcpy(&scale, block + TRI_BLOCK8, sizeof scale);
    for (int64_t i = 0; i < num; i++)
        x[i] = tri_block8_wide(is_signed, block[i], scale);
}

static inline __attribute__((always_inline)) void
encode(bool is_signed, const float *restrict x, int64_t num, uint32_t key, uint8_t *restrict block)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < num; i++) {
        uint32_t size = tri_bits_of(x[i]) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    float scale = tri_block8_scale(most);
    for (int64_t i = 0; i < num; i++)
        block[i] = tri_block8_code(is_signed, x[i], scale, tri_block8_random(x[i], key));
    memcpy(block + TRI_BLOCK8, &scale, sizeof scale);
}

static void adam8_task(void *context, int task, int worker)
{
    (void)worker;
    const adam8_job *job = context;
    const tri_kernel_args *args = job->args;
    const tri_adam8 k = job->k;
    int64_t first = (int64_t)task * TASK_BLOCKS, count = args->out[0].count;
    int64_t end = min_i64(first + TASK_BLOCKS, ceil_div(count, TRI_BLOCK8));
    float m[TRI_BLOCK8], v[TRI_BLOCK8];
    for (int64_t b = first; b < end; b++) {
        int64_t num = min_i64(TRI_BLOCK8, count - b * TRI_BLOCK8);
        float *restrict p = (float *)args->out[0].data + b * TRI_BLOCK8;
        const float *restrict g = (const float *)args->in[3].data + b * TRI_BLOCK8;
        uint8_t *m8 = (uint8_t *)args->out[1].data + b * TRI_BLOCK8_BYTES;
        uint8_t *v8 = (uint8_t *)args->out[2].data + b * TRI_BLOCK8_BYTES;
        decode(true, m8, num, m);
        decode(false, v8, num, v);
        for (int64_t i = 0; i < num; i++)
            tri_adam8_update(&k, g[i], &p[i], &m[i], &v[i]);
        encode(true, m, num, k.key_m, m8);
        encode(false, v, num, k.key_v, v8);
    }
}

static void adam8(const tri_kernel_args *args)
{
    const float *sched = args->in[4].data, *result = args->in[5].data;
    adam8_job job = {args, tri_adam8_of(&args->attr->update, sched, result)};
    int64_t blocks = ceil_div(args->out[0].count, TRI_BLOCK8);
    if (result[TRI_RESULT_OK] != 0)
        run_tasks(args, args->out[0].count, ceil_div(blocks, TASK_BLOCKS), adam8_task, &job);
}

const tri_kernel TRI_ISA_NAME(tri_fast_adam8) = {.run = adam8};
