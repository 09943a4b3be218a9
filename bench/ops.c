/* Every operator at the sizes of GPT-2 124M (4 sequences of 256): milliseconds, and GB/s or
 * GFLOP/s.
 *
 *     ops [threads] [instruction set: 0 base, 1 avx2, 2 avx512] [operator]
 *
 * GB/s counts each operand once, as read or as written; the copy at the top is the yardstick. */
#include "op_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SMALL_ATTENTION .alpha = 0.125f, .causal = true

enum { B = 4, T = 256, D = 768, H = 12, K = 64, F = 3072, V = 50257, PARAMS = 38597376 };

static const op_case cases[] = {
    {"qkv",
     TRI_OP_MATMUL,
     {B, T, D, 3 * D},
     {.matmul = {.alpha = 1, .epilogue = TRI_EPILOGUE_BIAS}},
     0,
     0},
    {"fc, gelu",
     TRI_OP_MATMUL,
     {B, T, D, F},
     {.matmul = {.alpha = 1, .epilogue = TRI_EPILOGUE_BIAS_GELU}},
     0,
     0},
    {"fc dw", TRI_OP_MATMUL, {B, D, T, F}, {.matmul = {.alpha = 1, .trans_a = true}}, 0, 0},
    {"head", TRI_OP_MATMUL, {B, T, D, V}, {.matmul = {.alpha = 1, .trans_b = true}}, 0, 0},
    {"experts", TRI_OP_GROUPED, {B, T, 2, 8, D, D}, {0}, 0, 0},
    {"experts, all to one", TRI_OP_GROUPED, {B, T, 2, 8, D, D}, {0}, CASE_SHARD, 0},
    {"experts dx", TRI_OP_GROUPED, {B, T, 2, 8, D, D}, {.grouped = {.back = true}}, 0, 0},
    {"experts dw", TRI_OP_GROUPED_GRAD, {B, T, 2, 8, D, D}, {0}, 0, 0},
    {"route of 64", TRI_OP_ROUTE, {B, T, 64, 8}, {.route = {.scale = 1}}, CASE_WITHOUT, 0},
    {"route_sums of 64", TRI_OP_ROUTE_SUMS, {B, T, 64, 8}, {.route = {.alpha = 1}}, 0, 0},
    {"sort_rows of 64", TRI_OP_SORT_ROWS, {B, T, 64, 8}, {0}, 0, 0},
    {"add", TRI_OP_ADD, {B, T, 1, D}, {0}, 0, 0},
    {"bias_add F", TRI_OP_BIAS_ADD, {B, T, 1, F}, {0}, 0, 0},
    {"bias_grad F", TRI_OP_BIAS_GRAD, {B, T, 1, F}, {0}, 0, 0},
    {"gelu F", TRI_OP_ACT, {B, T, 1, F}, {.act = {.kind = TRI_ACT_GELU}}, 0, 0},
    {"gelu_grad F", TRI_OP_ACT_GRAD, {B, T, 1, F}, {.act = {.kind = TRI_ACT_GELU}}, 0, 0},
    {"relu F", TRI_OP_ACT, {B, T, 1, F}, {.act = {.kind = TRI_ACT_RELU}}, 0, 0},
    {"gelu_erf F", TRI_OP_ACT, {B, T, 1, F}, {.act = {.kind = TRI_ACT_GELU_ERF}}, 0, 0},
    {"gelu_erf_grad F", TRI_OP_ACT_GRAD, {B, T, 1, F}, {.act = {.kind = TRI_ACT_GELU_ERF}}, 0, 0},
    {"swiglu F", TRI_OP_SWIGLU, {B, T, 1, F}, {0}, 0, 0},
    {"swiglu_grad F", TRI_OP_SWIGLU_GRAD, {B, T, 1, F}, {0}, 0, 0},
    {"dropout F", TRI_OP_DROPOUT, {B, T, 1, F}, {.dropout = {.p = 0.1f}}, 0, 0},
    {"accumulate", TRI_OP_ACCUMULATE, {1, 1, D, 4 * D}, {0}, CASE_ACCUMULATE, 0},
    {"axpby", TRI_OP_AXPBY, {1, 1, D, 4 * D}, {.axpby = {.alpha = 1, .beta = 1}}, 0, 0},
    {"embed", TRI_OP_EMBED, {B, T, V, D}, {0}, 0, 0},
    {"embed_grad +=", TRI_OP_EMBED_GRAD, {B, T, V, D}, {0}, CASE_ACCUMULATE, 0},
    {"embed_grad", TRI_OP_EMBED_GRAD, {B, T, V, D}, {0}, 0, 0},
    {"layernorm", TRI_OP_LAYERNORM, {B, T, D}, {.norm = {.eps = 1e-5f}}, 0, 0},
    {"add_layernorm", TRI_OP_ADD_LAYERNORM, {B, T, D}, {.norm = {.eps = 1e-5f}}, 0, 0},
    {"layernorm_grad", TRI_OP_LAYERNORM_GRAD, {B, T, D}, {.norm = {.eps = 1e-5f}}, 0, 0},
    {"layernorm_param_grad",
     TRI_OP_LAYERNORM_PARAM_GRAD,
     {B, T, D},
     {.norm = {.eps = 1e-5f}},
     0,
     0},
    {"rmsnorm", TRI_OP_RMSNORM, {B, T, D}, {.norm = {.eps = 1e-5f}}, 0, 0},
    {"rmsnorm heads", TRI_OP_RMSNORM, {B, T, H, K}, {.norm = {.eps = 1e-5f}}, 0, 0},
    {"add_rmsnorm", TRI_OP_ADD_RMSNORM, {B, T, D}, {.norm = {.eps = 1e-5f}}, 0, 0},
    {"rmsnorm_grad", TRI_OP_RMSNORM_GRAD, {B, T, D}, {.norm = {.eps = 1e-5f}}, 0, 0},
    {"rmsnorm_param_grad", TRI_OP_RMSNORM_PARAM_GRAD, {B, T, D}, {.norm = {.eps = 1e-5f}}, 0, 0},
    {"rmsnorm_param_grad heads",
     TRI_OP_RMSNORM_PARAM_GRAD,
     {B, T, H, K},
     {.norm = {.eps = 1e-5f}},
     0,
     0},
    {"rope", TRI_OP_ROPE, {B, T, H, K}, {.rope = {.config = {.theta = 10000}}}, 0, 0},
    {"attention T=256", TRI_OP_ATTENTION, {B, T, H, K}, {.attention = {SMALL_ATTENTION}}, 0, 0},
    {"attention drop",
     TRI_OP_ATTENTION,
     {B, T, H, K},
     {.attention = {SMALL_ATTENTION, .dropout = 0.1f}},
     0,
     0},
    {"attention full", TRI_OP_ATTENTION, {B, T, H, K}, {.attention = {.alpha = 0.125f}}, 0, 0},
    {"attention T=1024", TRI_OP_ATTENTION, {1, 1024, H, K}, {.attention = {SMALL_ATTENTION}}, 0, 0},
    {"attention 4:1",
     TRI_OP_ATTENTION,
     {1, 1024, H, K, H / 4},
     {.attention = {SMALL_ATTENTION}},
     0,
     0},
    {"attention by places",
     TRI_OP_ATTENTION,
     {1, 1024, H, K},
     {.attention = {SMALL_ATTENTION, .soft_cap = 50}},
     0,
     0},
    {"attention docs",
     TRI_OP_ATTENTION,
     {1, 1024, H, K},
     {.attention = {SMALL_ATTENTION}},
     CASE_DOCS,
     0},
    {"attention window",
     TRI_OP_ATTENTION,
     {1, 1024, H, K},
     {.attention = {SMALL_ATTENTION, .window = 128}},
     0,
     0},
    {"attention_grad T=256",
     TRI_OP_ATTENTION_GRAD,
     {B, T, H, K},
     {.attention = {SMALL_ATTENTION}},
     0,
     0},
    {"attention_grad drop",
     TRI_OP_ATTENTION_GRAD,
     {B, T, H, K},
     {.attention = {SMALL_ATTENTION, .dropout = 0.1f}},
     0,
     0},
    {"attention_grad T=1024",
     TRI_OP_ATTENTION_GRAD,
     {1, 1024, H, K},
     {.attention = {SMALL_ATTENTION}},
     0,
     0},
    {"attention_grad 4:1",
     TRI_OP_ATTENTION_GRAD,
     {1, 1024, H, K, H / 4},
     {.attention = {SMALL_ATTENTION}},
     0,
     0},
    {"attention_grad by places",
     TRI_OP_ATTENTION_GRAD,
     {1, 1024, H, K},
     {.attention = {SMALL_ATTENTION, .soft_cap = 50}},
     0,
     0},
    {"attention_grad docs",
     TRI_OP_ATTENTION_GRAD,
     {1, 1024, H, K},
     {.attention = {SMALL_ATTENTION}},
     CASE_DOCS,
     0},
    {"attention_grad window",
     TRI_OP_ATTENTION_GRAD,
     {1, 1024, H, K},
     {.attention = {SMALL_ATTENTION, .window = 128}},
     0,
     0},
    {"ce_stats", TRI_OP_CE_STATS, {B, T, V}, {0}, 0, 0},
    {"ce_loss", TRI_OP_CE_LOSS, {B, T, V}, {0}, 0, 0},
    {"ce_grad", TRI_OP_CE_GRAD, {B, T, V}, {.loss = {.alpha = 1}}, 0, 0},
    {"sum_squares", TRI_OP_SUM_SQUARES, {PARAMS}, {0}, 0, 0},
    {"adamw 8 bits",
     TRI_OP_ADAM8,
     {PARAMS},
     {.update = {.lr_scale = 1, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .decoupled = true}},
     0,
     0},
    {"lion",
     TRI_OP_LION,
     {PARAMS},
     {.update = {.lr_scale = 1, .beta1 = 0.9f, .beta2 = 0.99f}},
     0,
     0},
    {"sgd momentum", TRI_OP_SGD, {PARAMS}, {.update = {.lr_scale = 1, .beta1 = 0.9f}}, 0, 0},
    {"adamw",
     TRI_OP_ADAM,
     {PARAMS},
     {.update = {.lr_scale = 1, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decoupled = true}},
     0,
     0},
    {"momentum", TRI_OP_MOMENTUM, {PARAMS}, {.update = {.beta1 = 0.9f}}, 0, 0},
    {"unit_norm", TRI_OP_UNIT_NORM, {D * 4 * D}, {.update = {.eps = 1e-7f}}, 0, 0},
    {"apply_update", TRI_OP_APPLY_UPDATE, {PARAMS}, {.update = {.lr_scale = 1, .alpha = 1}}, 0, 0},
};

/* With one thread, the time that it ran: other work on the machine then disturbs less. */
static double now_ms(tri_pool *pool)
{
    struct timespec t;
    clock_gettime(tri_pool_threads(pool) == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Read and written. The rows of a table that nobody asks for are not touched. */
static double bytes_of(const op_case *c, const tri_kernel_args *args)
{
    double bytes = 0;
    for (int i = 0; i < args->num_in; i++)
        bytes += 4.0 * (double)args->in[i].count;
    for (int o = 0; o < args->num_out; o++)
        bytes += 4.0 * (double)args->out[o].count * (args->overwrite ? 1 : 2);
    if (c->op == TRI_OP_EMBED)
        bytes = 8.0 * (double)args->out[0].count;
    if (c->op == TRI_OP_EMBED_GRAD)
        bytes = 4.0 * (3.0 * (double)args->in[0].count +
                       (args->overwrite ? (double)args->out[0].count : 0));
    return bytes;
}

static double flops_of(const op_case *c)
{
    double product = (double)c->size[0] * (double)c->size[1] * (double)c->size[2];
    if (c->op == TRI_OP_MATMUL)
        return 2 * product * (double)c->size[3];
    if (c->op == TRI_OP_GROUPED || c->op == TRI_OP_GROUPED_GRAD) /* an eighth goes nowhere */
        return 2 * 0.875 * product * (double)c->size[4] * (double)c->size[5];
    if (c->op != TRI_OP_ATTENTION && c->op != TRI_OP_ATTENTION_GRAD)
        return 0;
    double pairs = product * (double)c->size[1] * (c->attr.attention.causal ? 0.5 : 1);
    if (c->attr.attention.window > 0)
        pairs = product * c->attr.attention.window;
    return 2 * pairs * (double)c->size[3] * (c->op == TRI_OP_ATTENTION ? 2 : 5);
}

typedef struct copy_job {
    const float *from;
    float *to;
    int64_t num;
} copy_job;

static void copy_task(void *context, int task, int worker)
{
    (void)worker;
    const copy_job *job = context;
    int64_t first = (int64_t)task * 65536;
    for (int64_t i = first; i < job->num && i < first + 65536; i += 4) /* not a call of memcpy */
        __builtin_memcpy(job->to + i, job->from + i, 16);
}

/* Best of several, in GB/s. */
static double copy_speed(tri_pool *pool, int64_t num)
{
    copy_job job = {malloc((size_t)num * 4), malloc((size_t)num * 4), num};
    memset((void *)job.from, 0, (size_t)num * 4);
    memset(job.to, 0, (size_t)num * 4);
    double best = 1e30;
    for (int i = 0; i < 15; i++) {
        double start = now_ms(pool);
        tri_pool_run(pool, (int)((num + 65535) / 65536), copy_task, &job);
        double ms = now_ms(pool) - start;
        best = ms < best ? ms : best;
    }
    free((void *)job.from);
    free(job.to);
    return 8.0 * (double)num / best * 1e-6;
}

static void bench(const op_case *row, tri_pool *pool, tri_isa isa, double copy)
{
    op_case c = *row;
    op_run run;
    c.flags |= CASE_REPEAT;
    const tri_kernel *kernel = tri_cpu_fast(c.op, isa);
    if (!kernel)
        kernel = tri_cpu_reference(c.op);
    op_run_init(&run, &c, NULL);
    double best = 1e30, spent = 0;
    for (int i = 0; i < 200 && (i < 5 || spent < 1000); i++) {
        double start = now_ms(pool);
        op_run_kernel(&run, kernel, pool, isa);
        double ms = now_ms(pool) - start;
        spent += ms;
        best = ms < best ? ms : best;
    }
    double gb = bytes_of(&c, &run.args) / best * 1e-6, gflops = flops_of(&c) / best * 1e-6;
    if (gflops > 0)
        printf("%-24s %9.3f ms %8.1f GFLOP/s\n", c.name, best, gflops);
    else
        printf("%-24s %9.3f ms %8.1f GB/s   %4.2f of copy\n", c.name, best, gb, gb / copy);
    fflush(stdout);
    op_run_fini(&run);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    tri_isa isa = argc > 2 ? (tri_isa)atoi(argv[2]) : tri_isa_detect();
    tri_pool *pool;
    if (isa > tri_isa_detect() || tri_pool_create(threads, &pool, NULL) != TR_OK)
        return 1;
    double copy = copy_speed(pool, 50 << 20);
    printf("%d threads, %s; copy %.1f GB/s from memory, %.1f GB/s of 6 MB in cache\n", threads,
           tri_isa_name(isa), copy, copy_speed(pool, 3 << 18));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (argc < 4 || strstr(cases[i].name, argv[3]))
            bench(&cases[i], pool, isa, copy);
    tri_pool_destroy(pool);
    return 0;
}
