/* Routers and experts on the GPU against the portable reference, on operands at random: experts
 * without rows, all rows to one, rows without an expert, odd sizes, ties; f32, bf16 and f16; every
 * kernel of the products; equal bits in a second run. Then how fast they are, where asked for:
 *
 *     TRIREME_EXPERTS_SPEED=1 build/tests/test_cuda_experts
 *     TRIREME_EXPERTS_FIRST=1 build/tests/test_cuda_experts   # without tma
 *     build/tests/test_cuda_experts test_tma                  # one test; * stands for anything */
#include "gpu_image.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "device/cpu/cpu.h"
#include "device/device.h"
#include "graph/op_table.h"

#ifdef TRI_CUDA

#include "device/cuda/blas/blas.h"
#include "device/cuda/cuda.h"

enum { ROOM = 6 };

/* The host has f32 or i32; the GPU the type of the tensor. */
typedef struct operand {
    tri_tensor t;
    void *host;
    size_t at;     /* in the image */
    bool borrowed; /* an output that lies on the first input */
} operand;

typedef struct experts_call {
    tri_op op;
    tri_attr attr;
    bool overwrite;
    operand in[ROOM], out[ROOM];
    int num_in, num_out;
    size_t scratch;
    tri_dtype between; /* what is between the parts of a call may be rounded to this */
    char name[160];
} experts_call;

static tri_device gpu;
static gpu_memory memory;
static int num_wrong;
static uint64_t seed = 1;
static const tri_dtype dtypes[] = {TRI_F32, TRI_BF16, TRI_F16};
static const char *const kernels[] = {"tma", "mma", "plain"};
static tri_cuda_products products_by = TRI_PRODUCTS_MMA; /* the kernels of products */

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("wrong: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    num_wrong++;
}

static void must(tr_status status, const tr_error *err)
{
    if (status != TR_OK)
        fail_msg("%s", err->message);
}

static tri_cuda *shared_state(void)
{
    return gpu.state;
}

/* --- Operands ------------------------------------------------------------------------------- */

static float rounded(float x, tri_dtype dtype)
{
    return dtype == TRI_BF16  ? tri_bf16_to_f32(tri_f32_to_bf16(x))
           : dtype == TRI_F16 ? tri_f16_to_f32(tri_f32_to_f16(x))
                              : x;
}

static float element(const unsigned char *data, tri_dtype dtype, int64_t i)
{
    if (dtype == TRI_F32)
        return ((const float *)data)[i];
    uint16_t bits = ((const uint16_t *)data)[i];
    return dtype == TRI_BF16 ? tri_bf16_to_f32(bits) : tri_f16_to_f32(bits);
}

static tri_tensor tensor_of(tri_dtype dtype, int rank, const int64_t *size)
{
    tri_tensor t = {.dtype = dtype, .rank = rank, .count = 1};
    for (int d = 0; d < rank; d++) {
        t.size[d] = t.global[d] = size[d];
        t.count *= size[d];
    }
    return t;
}

#define SIZES(...)                                                                                 \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (const int64_t[])                                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static operand operand_of(tri_dtype dtype, int rank, const int64_t *size)
{
    operand o = {.t = tensor_of(dtype, rank, size)};
    o.host = calloc((size_t)o.t.count + 1, 4);
    assert_non_null(o.host);
    return o;
}

static void fill(operand *o, float scale)
{
    float *to = o->host;
    tri_random_normal(seed++, 0, (uint64_t)o->t.count, 0, 5, to);
    for (int64_t i = 0; i < o->t.count; i++)
        to[i] = rounded(to[i] * scale, o->t.dtype);
}

/* An input at random; of whole numbers, to be filled. */
static operand *add_in(experts_call *c, tri_dtype dtype, int rank, const int64_t *size)
{
    operand *o = &c->in[c->num_in++];
    *o = operand_of(dtype, rank, size);
    if (dtype != TRI_I32)
        fill(o, 1);
    return o;
}

/* An output, which may be added to: it begins with something. */
static operand *add_out(experts_call *c, tri_dtype dtype, int rank, const int64_t *size)
{
    operand *o = &c->out[c->num_out++];
    *o = operand_of(dtype, rank, size);
    if (dtype != TRI_I32)
        fill(o, 1);
    return o;
}

static void call_fini(experts_call *c)
{
    for (int i = 0; i < c->num_in; i++)
        free(c->in[i].host);
    for (int i = 0; i < c->num_out; i++)
        if (!c->out[i].borrowed)
            free(c->out[i].host);
}

/* --- Calls ---------------------------------------------------------------------------------- */

static tri_kernel_args args_of(const experts_call *c, bool on_gpu)
{
    tri_kernel_args args = {.attr = &c->attr,
                            .num_in = c->num_in,
                            .num_out = c->num_out,
                            .overwrite = c->overwrite,
                            .device = on_gpu ? gpu.state : NULL};
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        const operand *o = i < c->num_in ? &c->in[i] : &c->out[i - c->num_in];
        tri_tensor *t = i < c->num_in ? &args.in[i] : &args.out[i - c->num_in];
        *t = o->t;
        if (!o->host)
            continue; /* absent */
        t->data = on_gpu ? memory.data + o->at : o->host;
        if (!on_gpu && t->dtype != TRI_I32)
            t->dtype = TRI_F32;
    }
    return args;
}

static size_t scratch_of(tri_op op, tri_kernel_args sizes)
{
    for (int i = 0; i < TRI_MAX_IN; i++)
        sizes.in[i].data = NULL;
    for (int i = 0; i < TRI_MAX_OUT; i++)
        sizes.out[i].data = NULL;
    const tri_kernel *kernel = tri_cuda_kernel(op);
    return kernel->scratch_bytes ? kernel->scratch_bytes(&sizes, 1) : 0;
}

static void run_with(tri_op op, const tri_kernel_args *args, void *scratch)
{
    tri_cuda *cuda = shared_state();
    void *before = cuda->scratch;
    size_t bytes = cuda->scratch_bytes;
    cuda->scratch = scratch;
    cuda->scratch_bytes = scratch_of(op, *args);
    tri_cuda_kernel(op)->run(args);
    cuda->scratch = before;
    cuda->scratch_bytes = bytes;
}

static void place_operand(gpu_image *im, operand *o, bool written)
{
    if (!o->host)
        return;
    o->at = gpu_image_place(im, (size_t)tri_dtype_size(o->t.dtype, o->t.count), written);
    const float *from = o->host;
    for (int64_t i = 0; i < o->t.count; i++) {
        uint16_t *narrow = (uint16_t *)(im->sent + o->at);
        if (o->t.dtype == TRI_BF16)
            narrow[i] = tri_f32_to_bf16(from[i]);
        else if (o->t.dtype == TRI_F16)
            narrow[i] = tri_f32_to_f16(from[i]);
        else
            memcpy(im->sent + o->at + i * 4, &from[i], 4);
    }
}

static void place_call(gpu_image *im, experts_call *c)
{
    gpu_image_init(im);
    for (int i = 0; i < c->num_in; i++)
        place_operand(im, &c->in[i], i == 0 && c->num_out > 0 && c->out[0].borrowed);
    for (int i = 0; i < c->num_out; i++) {
        if (c->out[i].borrowed)
            c->out[i].at = c->in[0].at;
        else
            place_operand(im, &c->out[i], true);
    }
    c->scratch = gpu_image_place(im, scratch_of(c->op, args_of(c, true)), true);
}

static void run_on_gpu(gpu_image *im, const experts_call *c)
{
    tr_error err = {0};
    must(gpu_image_upload(im, &memory, &gpu, &err), &err);
    tri_kernel_args args = args_of(c, true); /* the memory may have moved */
    run_with(c->op, &args, memory.data + c->scratch);
    must(gpu_image_download(im, &memory, &gpu, &err), &err);
    if (!gpu_image_kept(im))
        wrong("%s: wrote outside of its results", c->name);
}

/* --- Comparisons ---------------------------------------------------------------------------- */

static void expect_ints(const experts_call *c, int k, const unsigned char *got)
{
    const int32_t *want = c->out[k].host, *is = (const int32_t *)got;
    for (int64_t i = 0; i < c->out[k].t.count; i++)
        if (want[i] != is[i]) {
            wrong("%s: output %d [%ld] is %d, not %d", c->name, k, (long)i, is[i], want[i]);
            return;
        }
}

static double unit_of(tri_dtype dtype)
{
    return dtype == TRI_BF16 ? 0x1p-8 : dtype == TRI_F16 ? 0x1p-11 : 5e-6;
}

/* Of the largest element: sums run in f32, and results round. */
static void expect_floats(const experts_call *c, int k, const unsigned char *got)
{
    const operand *o = &c->out[k];
    const float *want = o->host;
    double unit = unit_of(o->t.dtype);
    if (c->between != TRI_F32) /* results in f32 are sums of it, whose terms may cancel */
        unit += (o->t.dtype == TRI_F32 ? 4 : 1) * unit_of(c->between);
    double largest = 1e-6;
    int64_t bad = 0, row = o->t.size[o->t.rank - 1];
    for (int64_t i = 0; i < o->t.count; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = 0; i < o->t.count; i++) {
        double x = element(got, o->t.dtype, i);
        if (fabs(x - want[i]) <= unit * largest)
            continue;
        if (bad++ < 3)
            wrong("%s: output %d [%ld] (row %ld, column %ld) is %.9g, not %.9g (limit %.3g)",
                  c->name, k, (long)i, (long)(i / row), (long)(i % row), x, (double)want[i],
                  unit * largest);
    }
    if (bad > 3)
        wrong("%s: output %d: %ld of %ld elements", c->name, k, (long)bad, (long)o->t.count);
}

static void expect_results(const experts_call *c, const gpu_image *im)
{
    for (int k = 0; k < c->num_out; k++) {
        if (c->out[k].t.dtype == TRI_I32)
            expect_ints(c, k, im->got + c->out[k].at);
        else
            expect_floats(c, k, im->got + c->out[k].at);
    }
}

/* Runs a call on the GPU, twice, and by the reference, whose results the host then has. */
static void check(experts_call *c)
{
    gpu_image im;
    place_call(&im, c);
    tri_kernel_args host = args_of(c, false);
    tri_cpu_reference(c->op)->run(&host);
    shared_state()->products = products_by;
    run_on_gpu(&im, c);
    expect_results(c, &im);
    unsigned char *first = malloc(im.used);
    assert_non_null(first);
    memcpy(first, im.got, im.used);
    run_on_gpu(&im, c);
    for (int k = 0; k < c->num_out; k++) {
        const operand *o = &c->out[k];
        if (memcmp(first + o->at, im.got + o->at, (size_t)tri_dtype_size(o->t.dtype, o->t.count)) !=
            0)
            wrong("%s: output %d has other bits in a second run", c->name, k);
    }
    free(first);
    gpu_image_fini(&im);
}

static int below(int n)
{
    return (int)(tri_random_word(99, seed++, 3, 1) % (uint32_t)n);
}

/* --- Routers -------------------------------------------------------------------------------- */

typedef struct router {
    int rows, tokens, experts, choices, groups, limit;
    tri_route_score score;
    bool bias, renorm, whole, ties;
} router;

static void name_router(experts_call *c, const router *r, const char *op)
{
    snprintf(c->name, sizeof c->name,
             "%s: [%d, %d] tokens, %d of %d experts, %d of %d groups, score %d%s%s%s%s", op,
             r->rows, r->tokens, r->choices, r->experts, r->limit, r->groups, (int)r->score,
             r->bias ? ", bias" : "", r->renorm ? ", renorm" : "", r->whole ? ", whole" : "",
             r->ties ? ", ties" : "");
}

static experts_call router_call(const router *r, tri_op op, const char *name)
{
    experts_call c = {.op = op, .overwrite = true};
    c.attr.route.score = r->score;
    c.attr.route.choices = r->choices;
    c.attr.route.experts = r->experts;
    c.attr.route.groups = r->groups;
    c.attr.route.group_limit = r->limit;
    c.attr.route.renorm = r->renorm;
    c.attr.route.whole = r->whole;
    c.attr.route.scale = 1.5f;
    c.attr.route.alpha = 0.3f;
    c.attr.route.z = 0.01f;
    name_router(&c, r, name);
    return c;
}

static void copy_in(operand *to, const operand *from)
{
    memcpy(to->host, from->host, (size_t)from->t.count * 4);
}

static void targets_of(operand *o)
{
    for (int64_t i = 0; i < o->t.count; i++)
        ((int32_t *)o->host)[i] = below(5) - 1;
}

static void check_sums(const router *r, const operand *logits, const operand *choice)
{
    experts_call c = router_call(r, TRI_OP_ROUTE_SUMS, "route_sums");
    c.overwrite = !r->renorm;
    copy_in(add_in(&c, TRI_F32, SIZES(r->rows, r->tokens, r->experts)), logits);
    copy_in(add_in(&c, TRI_I32, SIZES(r->rows, r->tokens, r->choices)), choice);
    targets_of(add_in(&c, TRI_I32, SIZES(r->rows, r->tokens)));
    if (r->whole)
        add_out(&c, TRI_F32, SIZES(r->experts, TRI_NUM_ROUTE_SUMS));
    else
        add_out(&c, TRI_F32, SIZES(r->rows, r->experts, TRI_NUM_ROUTE_SUMS));
    add_out(&c, TRI_F32, SIZES(1));
    add_out(&c, TRI_F32, SIZES(1));
    check(&c);

    experts_call load = router_call(r, TRI_OP_ROUTE_LOAD, "route_load");
    load.overwrite = r->renorm;
    copy_in(add_in(&load, TRI_F32, c.out[0].t.rank, c.out[0].t.size), &c.out[0]);
    add_out(&load, TRI_F32, SIZES(r->experts));
    check(&load);
    call_fini(&load);

    experts_call grad = router_call(r, TRI_OP_ROUTE_SUMS_GRAD, "route_sums_grad");
    copy_in(add_in(&grad, TRI_F32, SIZES(r->rows, r->tokens, r->experts)), logits);
    copy_in(add_in(&grad, TRI_I32, SIZES(r->rows, r->tokens)), &c.in[2]);
    if (r->choices == 1)
        grad.num_in++; /* no dsums */
    else
        add_in(&grad, TRI_F32, c.out[0].t.rank, c.out[0].t.size);
    if (r->renorm)
        add_in(&grad, TRI_F32, SIZES(TRI_NUM_SCALER));
    add_out(&grad, TRI_F32, SIZES(r->rows, r->tokens, r->experts));
    check(&grad);
    call_fini(&grad);

    experts_call balance = router_call(r, TRI_OP_BALANCE, "balance");
    balance.overwrite = r->renorm;
    copy_in(add_in(&balance, TRI_F32, c.out[0].t.rank, c.out[0].t.size), &c.out[0]);
    add_out(&balance, TRI_F32, SIZES(1));
    check(&balance);
    call_fini(&balance);

    experts_call back = router_call(r, TRI_OP_BALANCE_GRAD, "balance_grad");
    copy_in(add_in(&back, TRI_F32, c.out[0].t.rank, c.out[0].t.size), &c.out[0]);
    if (r->renorm)
        add_in(&back, TRI_F32, SIZES(TRI_NUM_SCALER));
    add_out(&back, TRI_F32, c.out[0].t.rank, c.out[0].t.size);
    check(&back);
    call_fini(&back);

    experts_call move = router_call(r, TRI_OP_MOVE_BIAS, "move_bias");
    add_in(&move, TRI_F32, SIZES(r->experts));
    copy_in(add_in(&move, TRI_F32, SIZES(r->experts)), &c.out[3]);
    operand *result = add_in(&move, TRI_F32, SIZES(TRI_NUM_RESULT));
    ((float *)result->host)[TRI_RESULT_OK] = (float)r->renorm;
    move.out[move.num_out++] = (operand){.t = move.in[0].t, .host = move.in[0].host, .borrowed = 1};
    check(&move);
    call_fini(&move);
    call_fini(&c);
}

static void check_router(const router *r)
{
    experts_call c = router_call(r, TRI_OP_ROUTE, "route");
    operand *logits = add_in(&c, TRI_F32, SIZES(r->rows, r->tokens, r->experts));
    for (int64_t i = 0; r->ties && i < logits->t.count; i++)
        ((float *)logits->host)[i] = rintf(2 * ((float *)logits->host)[i]) / 2;
    if (r->bias)
        add_in(&c, TRI_F32, SIZES(r->experts));
    add_out(&c, TRI_F32, SIZES(r->rows, r->tokens, r->choices));
    add_out(&c, TRI_I32, SIZES(r->rows, r->tokens, r->choices));
    check(&c);

    experts_call grad = router_call(r, TRI_OP_ROUTE_GRAD, "route_grad");
    copy_in(add_in(&grad, TRI_F32, SIZES(r->rows, r->tokens, r->experts)), logits);
    copy_in(add_in(&grad, TRI_I32, SIZES(r->rows, r->tokens, r->choices)), &c.out[1]);
    add_in(&grad, TRI_F32, SIZES(r->rows, r->tokens, r->choices));
    add_out(&grad, TRI_F32, SIZES(r->rows, r->tokens, r->experts));
    check(&grad);
    call_fini(&grad);
    check_sums(r, logits, &c.out[1]);
    call_fini(&c);
}

static void test_routers(void **state)
{
    (void)state;
    static const router shapes[] = {
        {.rows = 1, .tokens = 1, .experts = 1, .choices = 1},
        {.rows = 2, .tokens = 33, .experts = 8, .choices = 2},
        {.rows = 3, .tokens = 150, .experts = 64, .choices = 8, .groups = 8, .limit = 3},
        {.rows = 1, .tokens = 77, .experts = 33, .choices = 32},
        {.rows = 2, .tokens = 40, .experts = 100, .choices = 4, .groups = 50, .limit = 2},
        {.rows = 2, .tokens = 64, .experts = 256, .choices = 8, .groups = 8, .limit = 4},
        {.rows = 1, .tokens = 20, .experts = 500, .choices = 10, .groups = 1, .limit = 1},
        {.rows = 1, .tokens = 13, .experts = 512, .choices = 6, .groups = 512, .limit = 9},
    };
    num_wrong = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int score = 0; score < 3; score++)
            for (int with = 0; with < 8; with++) {
                router r = shapes[i];
                r.score = (tri_route_score)score;
                r.bias = with & 1;
                r.renorm = with >> 1 & 1;
                r.whole = with >> 2 & 1;
                if (!r.bias && with & 2) {
                    r.ties = true; /* sums of groups would be equal but for their rounding */
                    r.groups = r.limit = 0;
                }
                check_router(&r);
            }
    assert_int_equal(num_wrong, 0);
}

/* --- Rows ----------------------------------------------------------------------------------- */

static void check_sort(int tokens, int choices, int experts, int kind)
{
    experts_call c = {.op = TRI_OP_SORT_ROWS, .overwrite = true};
    c.attr.route.experts = experts;
    operand *choice = add_in(&c, TRI_I32, SIZES(1, tokens, choices));
    for (int64_t i = 0; i < choice->t.count; i++)
        ((int32_t *)choice->host)[i] = kind == 0   ? below(experts)
                                       : kind == 1 ? experts - 1
                                       : kind == 2 ? below(experts + 3) - 2
                                                   : -1;
    for (int k = 0; k < 4; k++)
        add_out(&c, TRI_I32, SIZES(1, tokens, choices));
    snprintf(c.name, sizeof c.name, "sort_rows: %d x %d of %d, kind %d", tokens, choices, experts,
             kind);
    check(&c);
    call_fini(&c);
}

/* Rows of whole numbers and of floats, one wide, as sorted lists of a router are. */
static void check_gather(tri_dtype dtype, int rows, int width)
{
    experts_call c = {.op = TRI_OP_GATHER_ROWS, .overwrite = true};
    c.attr.gather.lead = 1;
    c.attr.gather.each = true;
    operand *x = add_in(&c, dtype, SIZES(rows, width));
    for (int64_t i = 0; dtype == TRI_I32 && i < x->t.count; i++)
        ((int32_t *)x->host)[i] = below(1000); /* as the reference reads them: no NaN as a float */
    operand *index = add_in(&c, TRI_I32, SIZES(rows));
    for (int64_t i = 0; i < rows; i++)
        ((int32_t *)index->host)[i] = below(rows + 2) - 1;
    add_out(&c, dtype, SIZES(rows, width));
    snprintf(c.name, sizeof c.name, "gather_rows: %d x %d, %s", rows, width, tri_dtype_name(dtype));
    check(&c);
    call_fini(&c);
}

static void check_rows(tri_op op, tri_dtype dtype, int rows, int width)
{
    bool gate = op == TRI_OP_GATE_ROWS || op == TRI_OP_GATE_ROWS_GRAD;
    bool grad = op == TRI_OP_GATE_ROWS_GRAD || op == TRI_OP_SWIGLU_ROWS_GRAD;
    experts_call c = {.op = op, .overwrite = true};
    for (int i = 0; i < (gate ? 1 : 2) + grad; i++)
        add_in(&c, dtype, SIZES(rows, width));
    if (gate)
        add_in(&c, dtype, SIZES(rows, 1));
    else
        add_in(&c, TRI_F32, SIZES(rows));
    for (int i = 0; i < (grad && !gate ? 2 : 1); i++)
        add_out(&c, dtype, SIZES(rows, width));
    if (grad && gate)
        add_out(&c, dtype, SIZES(rows, 1));
    else if (grad)
        add_out(&c, TRI_F32, SIZES(rows));
    snprintf(c.name, sizeof c.name, "%s: %d x %d, %s", tri_op_get(op)->name, rows, width,
             tri_dtype_name(dtype));
    check(&c);
    call_fini(&c);
}

static void test_rows(void **state)
{
    (void)state;
    static const tri_op ops[] = {TRI_OP_GATE_ROWS, TRI_OP_GATE_ROWS_GRAD, TRI_OP_SWIGLU_ROWS,
                                 TRI_OP_SWIGLU_ROWS_GRAD};
    static const int sizes[][2] = {{1, 1}, {7, 8}, {33, 13}, {100, 704}, {3, 1000}, {2000, 16}};
    num_wrong = 0;
    for (int kind = 0; kind < 4; kind++) {
        check_sort(1, 1, 1, kind);
        check_sort(1000, 2, 8, kind);
        check_sort(3000, 8, 64, kind);
        check_sort(700, 6, 255, kind);
        check_sort(900, 3, 256, kind);
        check_sort(2000, 10, 512, kind);
    }
    check_gather(TRI_I32, 500, 1);
    for (int d = 0; d < 3; d++) {
        check_gather(dtypes[d], 500, 1);
        check_gather(dtypes[d], 300, 64);
        for (int o = 0; o < 4; o++)
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
                check_rows(ops[o], dtypes[d], sizes[i][0], sizes[i][1]);
    }
    assert_int_equal(num_wrong, 0);
}

/* --- Products ------------------------------------------------------------------------------- */

enum { EVEN, SOME_NONE, ONE, FEW, NONE, NUM_SPREADS };
static const char *const spreads[] = {"even", "some without", "all to one", "few", "all without"};

/* Sorted ids of experts, those without last. */
static void spread_rows(int32_t *ids, int64_t rows, int experts, int kind)
{
    int64_t at = 0;
    for (int e = 0; e < experts; e++) {
        int64_t left = rows - at, num = left / (experts - e);
        if (kind == SOME_NONE)
            num = num > 0 ? below((int)num + 1) : 0;
        else if (kind == ONE)
            num = e == experts / 2 ? left : 0;
        else if (kind == FEW)
            num = e == experts - 1 ? left : e % 3 == 1 ? left / 3 : 0;
        else if (kind == NONE)
            num = 0;
        for (int64_t i = 0; i < num; i++)
            ids[at++] = e;
    }
    while (at < rows)
        ids[at++] = -1;
}

typedef struct product {
    int rows, experts, n, k;
} product;

static void check_grouped(const product *p, tri_dtype dtype, int kind, bool back)
{
    experts_call c = {.op = TRI_OP_GROUPED, .overwrite = true};
    c.attr.grouped.back = back;
    add_in(&c, dtype, SIZES(p->rows, back ? p->n : p->k));
    add_in(&c, dtype, SIZES(p->experts, p->n, p->k));
    spread_rows(add_in(&c, TRI_I32, SIZES(p->rows))->host, p->rows, p->experts, kind);
    add_out(&c, dtype, SIZES(p->rows, back ? p->k : p->n));
    snprintf(c.name, sizeof c.name, "%s grouped%s: %d rows %s, %d experts, N %d K %d, %s",
             kernels[products_by], back ? " back" : "", p->rows, spreads[kind], p->experts, p->n,
             p->k, tri_dtype_name(dtype));
    check(&c);
    call_fini(&c);
}

static void check_grouped_grad(const product *p, tri_dtype dtype, int kind, bool wide,
                               bool overwrite)
{
    experts_call c = {.op = TRI_OP_GROUPED_GRAD, .overwrite = overwrite};
    add_in(&c, dtype, SIZES(p->rows, p->n));
    add_in(&c, dtype, SIZES(p->rows, p->k));
    spread_rows(add_in(&c, TRI_I32, SIZES(p->rows))->host, p->rows, p->experts, kind);
    c.in[c.num_in++].t = tensor_of(dtype, SIZES(p->experts, p->n, p->k)); /* its shape alone */
    add_out(&c, wide ? TRI_F32 : dtype, SIZES(p->experts, p->n, p->k));
    snprintf(c.name, sizeof c.name, "%s grouped_grad%s%s: %d rows %s, %d experts, N %d K %d, %s",
             kernels[products_by], overwrite ? "" : " added", wide ? " in f32" : "", p->rows,
             spreads[kind], p->experts, p->n, p->k, tri_dtype_name(dtype));
    check(&c);
    call_fini(&c);
}

/* Gate and up of width n and the activation; its gradient, from rows of width k; the gradient of
 * rows by both. */
static void check_fused(const product *p, tri_dtype dtype, int kind, tri_op op)
{
    experts_call c = {.op = op, .overwrite = true};
    bool act = op == TRI_OP_GROUPED_SWIGLU, grad = op == TRI_OP_GROUPED_SWIGLU_GRAD;
    c.attr.grouped.back = !act;
    c.between = dtype; /* gate, up and dy */
    add_in(&c, dtype, SIZES(p->rows, act || grad ? p->k : p->n));
    operand *w = add_in(&c, dtype, SIZES(p->experts, grad ? p->k : p->n, grad ? p->n : p->k));
    fill(w, 0.2f); /* gates are of the size that they have in models */
    spread_rows(add_in(&c, TRI_I32, SIZES(p->rows))->host, p->rows, p->experts, kind);
    if (!act)
        add_in(&c, dtype, SIZES(p->rows, p->n));
    if (grad)
        add_in(&c, dtype, SIZES(p->rows, p->n));
    else
        add_in(&c, dtype, SIZES(p->experts, p->n, p->k));
    if (act || grad)
        add_in(&c, TRI_F32, SIZES(p->rows));
    for (int k = 0; k < (grad ? 2 : act ? 3 : 1); k++)
        add_out(&c, dtype, SIZES(p->rows, act || grad ? p->n : p->k));
    if (grad)
        add_out(&c, TRI_F32, SIZES(p->rows));
    snprintf(c.name, sizeof c.name, "%s %s: %d rows %s, %d experts, N %d K %d, %s",
             kernels[products_by], tri_op_get(op)->name, p->rows, spreads[kind], p->experts, p->n,
             p->k, tri_dtype_name(dtype));
    check(&c);
    call_fini(&c);
}

/* All products by one of the kernels; what it does not take, the next ones do. */
static void check_products(tri_cuda_products by)
{
    /* Odd ones are for the plain kernel; more than 128 columns for warpgroups. */
    static const product products[] = {
        {1, 1, 8, 8},       {5, 3, 7, 9},       {129, 8, 128, 64},  {140, 3, 264, 328},
        {257, 3, 520, 72},  {300, 64, 136, 72}, {270, 2, 256, 192}, {300, 5, 192, 136},
        {128, 1, 256, 64},  {640, 7, 40, 264},  {385, 512, 8, 16},  {530, 3, 192, 320},
        {520, 2, 448, 256}, {2300, 2, 136, 72},
    };
    num_wrong = 0;
    products_by = by;
    for (int i = 0; i < (int)(sizeof products / sizeof products[0]); i++)
        for (int kind = 0; kind < NUM_SPREADS; kind++) {
            tri_dtype dtype =
                dtypes[by == TRI_PRODUCTS_PLAIN ? (i + kind) % 3 : 1 + (i + kind) % 2];
            check_grouped(&products[i], dtype, kind, false);
            check_grouped(&products[i], dtype, kind, true);
            check_grouped_grad(&products[i], dtype, kind, false, kind % 2 == 0);
            check_grouped_grad(&products[i], dtype, kind, true, kind % 2 == 1);
            for (int op = TRI_OP_GROUPED_SWIGLU; op <= TRI_OP_GROUPED_SUM; op++)
                check_fused(&products[i], dtype, kind, (tri_op)op);
        }
    products_by = TRI_PRODUCTS_MMA;
    assert_int_equal(num_wrong, 0);
}

/* Whether a kernel is to be tried: TRIREME_EXPERTS_FIRST=1 leaves out the first, and so on. */
static bool tried(tri_cuda_products by)
{
    const char *first = getenv("TRIREME_EXPERTS_FIRST");
    return !first || (int)by >= atoi(first);
}

static void test_products(void **state)
{
    tri_cuda_products by = *(tri_cuda_products *)*state;
    if (!tried(by)) {
        printf("skipped: %s (TRIREME_EXPERTS_FIRST)\n", kernels[by]);
        skip();
    }
    check_products(by);
}

/* --- Speed ---------------------------------------------------------------------------------- */

#include "experts_speed.h"

static void test_speed(void **state)
{
    (void)state;
    static const product products[] = {{65536, 8, 2816, 1024}, {262144, 64, 704, 1024}};
    static const product blocks[] = {{65536, 8, 2816, 1024},
                                     {262144, 64, 704, 1024},
                                     {196608, 128, 256, 1536},
                                     {262144, 128, 1024, 4096}};
    if (!getenv("TRIREME_EXPERTS_SPEED")) {
        printf("skipped: how fast experts are (TRIREME_EXPERTS_SPEED is not set)\n");
        skip();
    }
    num_wrong = 0;
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        for (int kind = EVEN; kind <= ONE; kind += ONE - EVEN)
            time_products(&products[i], kind);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        for (int kind = EVEN; kind <= ONE; kind += ONE - EVEN)
            time_block(&blocks[i], kind);
    time_rest();
    assert_int_equal(num_wrong, 0);
}

int main(int argc, char **argv)
{
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda"};
    if (tri_device_open(&config, &gpu, &err) != TR_OK ||
        gpu.def->queue->start(&gpu, 0, &err) != TR_OK) {
        printf("skipped: %s\n", err.message);
        return 77;
    }
    tri_cuda_products by[] = {TRI_PRODUCTS_TMA, TRI_PRODUCTS_MMA, TRI_PRODUCTS_PLAIN};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routers),
        cmocka_unit_test(test_rows),
        {"test_plain", test_products, NULL, NULL, &by[2]},
        {"test_mma", test_products, NULL, NULL, &by[1]},
        {"test_tma", test_products, NULL, NULL, &by[0]},
        cmocka_unit_test(test_speed),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_memory_free(&memory, &gpu);
    tri_device_close(&gpu);
    return failed;
}

#else

int main(void)
{
    printf("skipped: this build has no CUDA (make CUDA=yes needs nvcc)\n");
    return 77;
}

#endif
