/* The update on the host: AdamW of fp32 masters and moments, with the 16-bit weight written in the
 * same pass, beside a plain copy.
 *
 *     host_update [threads] [millions of parameters] [rounds]
 *
 * An update reads a weight, two moments and a gradient, and writes the first three and the 16-bit
 * weight: 30 bytes a parameter. The copy counts what it reads and what it writes. Rounds of both
 * are taken in turns; the best of each counts. bench/peers/host_adam.py times DeepSpeed's. */
#include "op_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 65536 };

typedef struct copy_job {
    const float *from;
    float *to;
    int64_t num;
} copy_job;

static void copy_task(void *context, int task, int worker)
{
    (void)worker;
    const copy_job *job = context;
    int64_t first = (int64_t)task * CHUNK, left = job->num - first;
    const float *restrict from = job->from + first;
    float *restrict to = job->to + first;
    for (int64_t i = 0; i < (left < CHUNK ? left : CHUNK); i += 4) /* not a call of memcpy */
        __builtin_memcpy(to + i, from + i, 16);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 2, rounds = argc > 3 ? atoi(argv[3]) : 20;
    int64_t num = (int64_t)((argc > 2 ? atof(argv[2]) : 50) * 1e6) / 16 * 16;
    op_case c = {"adamw",
                 TRI_OP_ADAM,
                 {num},
                 {.update = {.lr_scale = 1,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .weight_decay = 0.1f,
                             .decoupled = true}},
                 CASE_COPY | CASE_REPEAT,
                 0};
    tri_pool *pool;
    op_run run;
    if (num <= 0 || tri_pool_create(threads, &pool, NULL) != TR_OK)
        return 1;
    tri_isa isa = tri_isa_detect();
    op_run_init(&run, &c, NULL);
    run.args.in[6].dtype = run.args.out[3].dtype = TRI_BF16;
    copy_job job = {calloc((size_t)num, 4), calloc((size_t)num, 4), num};
    if (!job.from || !job.to)
        return 1;
    memset(job.to, 0, (size_t)num * 4);
    memset((void *)job.from, 0, (size_t)num * 4);
    double update = 1e30, copy = 1e30;
    for (int i = 0; i < rounds; i++) {
        double start = now_s();
        op_run_kernel(&run, tri_cpu_fast(c.op, isa), pool, isa);
        double middle = now_s();
        tri_pool_run(pool, (int)((num + CHUNK - 1) / CHUNK), copy_task, &job);
        double end = now_s();
        update = middle - start < update ? middle - start : update;
        copy = end - middle < copy ? end - middle : copy;
    }
    double update_gb = 30e-9 * (double)num / update, copy_gb = 8e-9 * (double)num / copy;
    printf("%.0f M parameters, %d threads, %s: update %.1f ms, %.1f GB/s; copy %.1f GB/s; %.2f of "
           "it\n",
           1e-6 * (double)num, threads, tri_isa_name(isa), 1e3 * update, update_gb, copy_gb,
           update_gb / copy_gb);
    return 0;
}
