/* Products with the matrices of experts, of 8-bit operands, on the GPU against the portable
 * reference: experts without rows, all rows to one, rows without an expert (which are no numbers),
 * borders at any row; every kernel; equal bits in a second run. Rows that are gathered and
 * quantised in one. Then how fast they are, where asked for:
 *
 *     TRIREME_EXPERTS_SPEED=1 build/tests/test_cuda_experts_fp8 */
#include "gpu_image.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/float8.h"
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
    size_t at; /* in the image */
} operand;

typedef struct experts_call {
    tri_op op;
    tri_attr attr;
    bool overwrite;
    operand in[ROOM], out[ROOM];
    int num_in, num_out;
    size_t scratch;
    double limit; /* of the largest, beside rounding */
    char name[200];
} experts_call;

static tri_device gpu;
static gpu_memory memory;
static int num_wrong;
static uint64_t seed = 1;
static tri_cuda_products products_by;

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

/* --- Operands ------------------------------------------------------------------------------- */

static void store(unsigned char *to, tri_dtype dtype, int64_t i, float x)
{
    uint16_t half = tri_f32_to_bf16(x);
    if (dtype == TRI_F8E4M3)
        to[i] = tri_f32_to_e4m3(x);
    else if (dtype == TRI_F8E5M2)
        to[i] = tri_f32_to_e5m2(x);
    else if (dtype == TRI_BF16)
        memcpy(to + i * 2, &half, 2);
    else
        memcpy(to + i * 4, &x, 4);
}

static float load(const unsigned char *from, tri_dtype dtype, int64_t i)
{
    float wide;
    uint16_t half;
    if (dtype == TRI_F8E4M3)
        return tri_e4m3_to_f32(from[i]);
    if (dtype == TRI_F8E5M2)
        return tri_e5m2_to_f32(from[i]);
    if (dtype == TRI_BF16) {
        memcpy(&half, from + i * 2, 2);
        return tri_bf16_to_f32(half);
    }
    memcpy(&wide, from + i * 4, 4);
    return wide;
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

static operand *add(experts_call *c, bool out, tri_dtype dtype, int rank, const int64_t *size)
{
    operand *o = out ? &c->out[c->num_out++] : &c->in[c->num_in++];
    *o = (operand){.t = tensor_of(dtype, rank, size)};
    float *to = o->host = calloc((size_t)o->t.count + 1, 4);
    assert_non_null(to);
    if (dtype == TRI_I32)
        return o;
    tri_random_normal(seed++, 0, (uint64_t)o->t.count, 0, 5, to);
    for (int64_t i = 0; i < o->t.count; i++) {
        unsigned char one[4];
        store(one, dtype, 0, to[i]);
        to[i] = load(one, dtype, 0);
    }
    return o;
}

static void add_scale(experts_call *c, float scale)
{
    *(float *)add(c, false, TRI_F32, SIZES(1))->host = scale;
}

static void call_fini(experts_call *c)
{
    for (int i = 0; i < c->num_in; i++)
        free(c->in[i].host);
    for (int i = 0; i < c->num_out; i++)
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
    tri_cuda *cuda = gpu.state;
    void *before = cuda->scratch;
    size_t bytes = cuda->scratch_bytes;
    cuda->scratch = scratch;
    cuda->scratch_bytes = scratch_of(op, *args);
    cuda->products = products_by;
    tri_cuda_kernel(op)->run(args);
    cuda->scratch = before;
    cuda->scratch_bytes = bytes;
}

static void place_operand(gpu_image *im, operand *o, bool written)
{
    if (!o->host)
        return;
    o->at = gpu_image_place(im, (size_t)tri_dtype_size(o->t.dtype, o->t.count), written);
    for (int64_t i = 0; i < o->t.count; i++)
        store(im->sent + o->at, o->t.dtype, i, ((float *)o->host)[i]);
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

/* Of the largest element: sums run in f32 or fewer bits, and results round. */
static void expect(const experts_call *c, int k, const unsigned char *got)
{
    const operand *o = &c->out[k];
    const float *want = o->host;
    double largest = 1e-6, limit = c->limit + (o->t.dtype == TRI_BF16 ? 0x1p-8 : 0);
    int64_t bad = 0, row = o->t.size[o->t.rank - 1];
    for (int64_t i = 0; i < o->t.count; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = 0; i < o->t.count; i++) {
        double x = load(got, o->t.dtype, i);
        if (fabs(x - want[i]) <= limit * largest)
            continue;
        if (bad++ < 3)
            wrong("%s: output %d [%ld] (row %ld, column %ld) is %.9g, not %.9g (limit %.3g)",
                  c->name, k, (long)i, (long)(i / row), (long)(i % row), x, (double)want[i],
                  limit * largest);
    }
    if (bad > 3)
        wrong("%s: output %d: %ld of %ld elements", c->name, k, (long)bad, (long)o->t.count);
}

/* Runs a call on the GPU, twice, and by the reference, whose results the host then has. */
static void check(experts_call *c)
{
    gpu_image im;
    gpu_image_init(&im);
    for (int i = 0; i < c->num_in; i++)
        place_operand(&im, &c->in[i], false);
    for (int i = 0; i < c->num_out; i++)
        place_operand(&im, &c->out[i], true);
    c->scratch = gpu_image_place(&im, scratch_of(c->op, args_of(c, true)), true);
    tri_kernel_args host = args_of(c, false);
    tri_cpu_reference(c->op)->run(&host);
    run_on_gpu(&im, c);
    for (int k = 0; k < c->num_out; k++)
        expect(c, k, im.got + c->out[k].at);
    unsigned char *first = malloc(im.used);
    assert_non_null(first);
    memcpy(first, im.got, im.used);
    run_on_gpu(&im, c);
    for (int k = 0; k < c->num_out; k++) {
        const operand *o = &c->out[k];
        if (memcmp(first + o->at, im.got + o->at, (size_t)tri_dtype_size(o->t.dtype, o->t.count)))
            wrong("%s: output %d has other bits in a second run", c->name, k);
    }
    free(first);
    gpu_image_fini(&im);
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
            num = num > 0 ? (int64_t)(tri_random_word(99, seed++, 3, 1) % (uint32_t)(num + 1)) : 0;
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

/* What rows without an expert hold does not matter: no numbers. */
static void spoil(operand *rows, const int32_t *ids, int64_t num_rows, bool turned)
{
    int64_t width = rows->t.count / num_rows;
    for (int64_t r = 0; r < num_rows; r++)
        for (int64_t j = 0; ids[r] < 0 && j < width; j++)
            ((float *)rows->host)[turned ? j * num_rows + r : r * width + j] = NAN;
}

static void check_grouped(const product *p, int kind, bool back, bool fast)
{
    experts_call c = {.op = TRI_OP_GROUPED8, .overwrite = true, .limit = fast ? 2e-3 : 1e-3};
    c.attr.grouped.back = back;
    c.attr.grouped.fast_sum = fast;
    c.attr.grouped.dtype = TRI_BF16;
    int n = back ? p->k : p->n, k = back ? p->n : p->k;
    operand *x = add(&c, false, back ? TRI_F8E5M2 : TRI_F8E4M3, SIZES(p->rows, k));
    if (back)
        add(&c, false, TRI_F8E4M3, SIZES(n, p->experts, k));
    else
        add(&c, false, TRI_F8E4M3, SIZES(p->experts, n, k));
    int32_t *ids = add(&c, false, TRI_I32, SIZES(p->rows))->host;
    spread_rows(ids, p->rows, p->experts, kind);
    spoil(x, ids, p->rows, false);
    add_scale(&c, 0.5f);
    add_scale(&c, 0.25f);
    add(&c, true, TRI_BF16, SIZES(p->rows, n));
    snprintf(c.name, sizeof c.name, "%s grouped8%s%s: %d rows %s, %d experts, N %d K %d",
             products_by == TRI_PRODUCTS_TMA ? "tma" : "plain", back ? " back" : "",
             fast ? " fast" : "", p->rows, spreads[kind], p->experts, n, k);
    check(&c);
    call_fini(&c);
}

static void check_grouped_grad(const product *p, int kind, bool wide, bool overwrite, bool fast)
{
    experts_call c = {
        .op = TRI_OP_GROUPED8_GRAD, .overwrite = overwrite, .limit = fast ? 2e-3 : 1e-3};
    c.attr.grouped.fast_sum = fast;
    c.attr.grouped.dtype = wide ? TRI_F32 : TRI_BF16;
    operand *dy = add(&c, false, TRI_F8E5M2, SIZES(p->n, p->rows));
    operand *x = add(&c, false, TRI_F8E4M3, SIZES(p->k, p->rows));
    int32_t *ids = add(&c, false, TRI_I32, SIZES(p->rows))->host;
    spread_rows(ids, p->rows, p->experts, kind);
    spoil(dy, ids, p->rows, true);
    spoil(x, ids, p->rows, true);
    c.in[c.num_in++].t = tensor_of(TRI_BF16, SIZES(p->experts, p->n, p->k)); /* its shape alone */
    add_scale(&c, 0.5f);
    add_scale(&c, 0.25f);
    add(&c, true, c.attr.grouped.dtype, SIZES(p->experts, p->n, p->k));
    snprintf(c.name, sizeof c.name, "%s grouped8_grad%s%s%s: %d rows %s, %d experts, N %d K %d",
             products_by == TRI_PRODUCTS_TMA ? "tma" : "plain", overwrite ? "" : " added",
             wide ? " in f32" : "", fast ? " fast" : "", p->rows, spreads[kind], p->experts, p->n,
             p->k);
    check(&c);
    call_fini(&c);
}

static void test_products(void **state)
{
    static const product products[] = {
        {16, 1, 16, 16},    {32, 3, 48, 80},    {144, 8, 128, 64},  {144, 3, 272, 336},
        {272, 3, 528, 80},  {304, 64, 144, 80}, {272, 2, 256, 192}, {304, 5, 192, 144},
        {128, 1, 256, 128}, {640, 7, 48, 272},  {384, 500, 16, 16},
    };
    num_wrong = 0;
    products_by = *(tri_cuda_products *)*state;
    for (int i = 0; i < (int)(sizeof products / sizeof products[0]); i++)
        for (int kind = 0; kind < NUM_SPREADS; kind++) {
            check_grouped(&products[i], kind, false, true);
            check_grouped(&products[i], kind, true, (i + kind) % 2 == 0);
            check_grouped(&products[i], kind, true, (i + kind) % 2 == 1);
            check_grouped_grad(&products[i], kind, kind % 2 == 0, kind % 3 == 0, false);
            check_grouped_grad(&products[i], kind, kind % 2 == 1, kind % 3 == 1, kind % 4 == 1);
        }
    assert_int_equal(num_wrong, 0);
}

/* --- Rows that are quantised ---------------------------------------------------------------- */

static void check_gathered(int tokens, int choices, int width, tri_dtype dtype)
{
    experts_call c = {.op = TRI_OP_QUANTISE, .overwrite = true};
    int rows = tokens * choices;
    c.attr.quantise = (tri_quantise_attr){
        .dtype = dtype, .split = 2, .straight = true, .turned = true, .lead = 1};
    add(&c, false, TRI_BF16, SIZES(tokens, width));
    float *amax = add(&c, false, TRI_F32, SIZES(TRI_AMAX_PARTS))->host;
    for (int p = 0; p < TRI_AMAX_PARTS; p++)
        amax[p] = p == 3 ? 5 : 0;
    int32_t *index = add(&c, false, TRI_I32, SIZES(tokens, choices))->host;
    for (int i = 0; i < rows; i++)
        index[i] = (int32_t)(tri_random_word(98, seed++, 3, 1) % (uint32_t)tokens);
    add(&c, true, TRI_F32, SIZES(1));
    add(&c, true, dtype, SIZES(tokens, choices, width));
    add(&c, true, dtype, SIZES(width, tokens, choices));
    snprintf(c.name, sizeof c.name, "quantise: %d of %d rows of %d", rows, tokens, width);
    c.limit = dtype == TRI_F8E4M3 ? 0x1p-4 : 0x1p-3; /* the reference has what is not rounded yet */
    check(&c);
    call_fini(&c);
}

static void check_amax(int rows, int width, int kind)
{
    experts_call c = {.op = TRI_OP_AMAX, .overwrite = true};
    operand *x = add(&c, false, TRI_BF16, SIZES(rows, width));
    int32_t *ids = add(&c, false, TRI_I32, SIZES(rows))->host;
    spread_rows(ids, rows, 4, kind);
    for (int64_t i = 0; i < x->t.count; i++)
        if (ids[i / width] < 0)
            ((float *)x->host)[i] = 1e30f;
    for (int64_t i = 0; i < x->t.count; i++)
        ((float *)x->host)[i] = tri_bf16_to_f32(tri_f32_to_bf16(((float *)x->host)[i]));
    add(&c, true, TRI_F32, SIZES(TRI_AMAX_PARTS));
    snprintf(c.name, sizeof c.name, "amax: %d rows of %d, %s", rows, width, spreads[kind]);
    check(&c);
    call_fini(&c);
}

static void test_rows(void **state)
{
    (void)state;
    num_wrong = 0;
    check_gathered(16, 1, 16, TRI_F8E4M3);
    check_gathered(48, 2, 80, TRI_F8E5M2);
    check_gathered(144, 8, 272, TRI_F8E4M3);
    for (int kind = 0; kind < NUM_SPREADS; kind++) {
        check_amax(33, 17, kind);
        check_amax(2048, 1040, kind);
    }
    assert_int_equal(num_wrong, 0);
}

/* --- Speed ---------------------------------------------------------------------------------- */

/* Operands without a copy on the host. */
static tri_tensor large(tri_dtype dtype, int rank, const int64_t *size)
{
    tri_tensor t = tensor_of(dtype, rank, size);
    t.data = gpu.def->alloc((size_t)tri_dtype_size(dtype, t.count));
    assert_non_null(t.data);
    if (dtype != TRI_I32)
        tri_cuda_fill_noise(t.data, t.count, dtype, ((tri_cuda *)gpu.state)->stream);
    return t;
}

/* Seconds of a call, in the mean. */
static double seconds_of(tri_op op, tri_kernel_args *args)
{
    enum { TIMES = 10 };
    const tri_device_queue *queue = gpu.def->queue;
    tr_error err = {0};
    size_t bytes = scratch_of(op, *args);
    void *scratch = bytes ? gpu.def->alloc(bytes) : NULL;
    args->device = gpu.state;
    for (int i = 0; i < 2 + TIMES; i++) {
        if (i == 2)
            must(queue->mark(&gpu, 0, &err), &err);
        run_with(op, args, scratch);
    }
    must(queue->mark(&gpu, 1, &err), &err);
    must(queue->finish(&gpu, &err), &err);
    if (scratch)
        gpu.def->free(scratch, bytes);
    return queue->seconds_between(&gpu, 0, 1) / TIMES;
}

static void time_one(const product *p, int kind, const char *name, tri_op op, bool back, bool fast,
                     const tri_tensor *operands)
{
    tri_attr attr = {0};
    attr.grouped.back = back;
    attr.grouped.fast_sum = fast;
    attr.grouped.dtype = operands[5].dtype;
    bool grad = op == TRI_OP_GROUPED8_GRAD;
    tri_kernel_args args = {.attr = &attr, .num_in = 5 + grad, .num_out = 1, .overwrite = true};
    for (int j = 0; j < 3; j++)
        args.in[j] = operands[j];
    args.in[3 + grad] = operands[3];
    args.in[4 + grad] = operands[4];
    args.out[0] = operands[5];
    double s = seconds_of(op, &args);
    printf("%d rows %s, %d experts, N %d K %d, %s%s: %.3f ms, %.0f TFLOP/s\n", p->rows,
           spreads[kind], p->experts, p->n, p->k, name, fast ? ", fast sums" : "", s * 1e3,
           2e-12 * p->rows * p->n * p->k / s);
    fflush(stdout);
}

static void time_products(const product *p, int kind)
{
    int rows = p->rows, experts = p->experts, n = p->n, k = p->k;
    tri_tensor ids = large(TRI_I32, SIZES(rows)), scale = large(TRI_F32, SIZES(1));
    tri_tensor x = large(TRI_F8E4M3, SIZES(rows, k)), dy = large(TRI_F8E5M2, SIZES(rows, n));
    tri_tensor w = large(TRI_F8E4M3, SIZES(experts, n, k)), y = large(TRI_BF16, SIZES(rows, n));
    tri_tensor dx = large(TRI_BF16, SIZES(rows, k)), dw = large(TRI_F32, SIZES(experts, n, k));
    tri_tensor wt = tensor_of(TRI_F8E4M3, SIZES(k, experts, n)); /* noise, too */
    tri_tensor xt = tensor_of(TRI_F8E4M3, SIZES(k, rows));
    tri_tensor dyt = tensor_of(TRI_F8E5M2, SIZES(n, rows));
    tr_error err = {0};
    int32_t *list = calloc((size_t)rows, sizeof *list);
    assert_non_null(list);
    spread_rows(list, rows, experts, kind);
    must(gpu.def->queue->upload(&gpu, ids.data, list, (size_t)rows * 4, &err), &err);
    must(gpu.def->queue->finish(&gpu, &err), &err);
    free(list);
    wt.data = w.data;
    xt.data = x.data;
    dyt.data = dy.data;
    time_one(p, kind, "forward", TRI_OP_GROUPED8, false, true,
             (tri_tensor[]){x, w, ids, scale, scale, y});
    for (int fast = 0; fast < 2; fast++) {
        time_one(p, kind, "back", TRI_OP_GROUPED8, true, fast,
                 (tri_tensor[]){dy, wt, ids, scale, scale, dx});
        time_one(p, kind, "grad", TRI_OP_GROUPED8_GRAD, false, fast,
                 (tri_tensor[]){dyt, xt, ids, scale, scale, dw});
    }
    tri_tensor *all[] = {&ids, &scale, &x, &dy, &w, &y, &dx, &dw};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        gpu.def->free(all[i]->data, (size_t)tri_dtype_size(all[i]->dtype, all[i]->count));
}

/* Rows of tokens in the order of their experts: read by an index, written both ways. */
static void time_quantise(int tokens, int choices, int width)
{
    tri_attr attr = {
        .quantise = {.dtype = TRI_F8E4M3, .split = 2, .straight = true, .turned = true, .lead = 1}};
    tri_tensor x = large(TRI_BF16, SIZES(tokens, width)), amax = large(TRI_F32, SIZES(256));
    tri_tensor index = large(TRI_I32, SIZES(tokens, choices)), scale = large(TRI_F32, SIZES(1));
    tri_tensor q = large(TRI_F8E4M3, SIZES(tokens, choices, width));
    tri_tensor qt = large(TRI_F8E4M3, SIZES(width, tokens, choices));
    tri_kernel_args args = {.attr = &attr, .num_in = 3, .num_out = 3, .overwrite = true};
    tr_error err = {0};
    int32_t *list = calloc((size_t)tokens * (size_t)choices, sizeof *list);
    assert_non_null(list);
    for (int i = 0; i < tokens * choices; i++)
        list[i] = (int32_t)(tri_random_word(97, (uint64_t)i, 3, 1) % (uint32_t)tokens);
    must(gpu.def->queue->upload(&gpu, index.data, list, (size_t)index.count * 4, &err), &err);
    must(gpu.def->queue->finish(&gpu, &err), &err);
    free(list);
    args.in[0] = x;
    args.in[1] = amax;
    args.in[2] = index;
    args.out[0] = scale;
    args.out[1] = q;
    args.out[2] = qt;
    double s = seconds_of(TRI_OP_QUANTISE, &args);
    printf("quantise %d of %d rows of %d: %.3f ms\n", tokens * choices, tokens, width, s * 1e3);
    args.in[0] = (tri_tensor)large(TRI_BF16, SIZES(tokens, choices, width));
    args.num_in = 2;
    attr.quantise.lead = 0;
    s = seconds_of(TRI_OP_QUANTISE, &args);
    printf("quantise %d rows of %d: %.3f ms, %.0f GB/s\n", tokens * choices, width, s * 1e3,
           4e-9 * tokens * choices * width / s);
    tri_tensor *all[] = {&x, &amax, &index, &scale, &q, &qt, &args.in[0]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        gpu.def->free(all[i]->data, (size_t)tri_dtype_size(all[i]->dtype, all[i]->count));
}

static void test_speed(void **state)
{
    (void)state;
    static const product products[] = {{65536, 8, 2816, 1024}, {262144, 64, 704, 1024}};
    if (!getenv("TRIREME_EXPERTS_SPEED")) {
        printf("skipped: how fast experts are (TRIREME_EXPERTS_SPEED is not set)\n");
        skip();
    }
    products_by = TRI_PRODUCTS_TMA;
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        for (int kind = EVEN; kind <= ONE; kind += ONE - EVEN)
            time_products(&products[i], kind);
    time_quantise(32768, 8, 1024);
    time_quantise(32768, 2, 1024);
}

int main(int argc, char **argv)
{
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda", .float8 = true};
    if (tri_device_open(&config, &gpu, &err) != TR_OK ||
        gpu.def->queue->start(&gpu, 0, &err) != TR_OK) {
        printf("skipped: %s\n", err.message);
        return 77;
    }
    tri_cuda_products by[] = {TRI_PRODUCTS_TMA, TRI_PRODUCTS_PLAIN};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        {"test_plain", test_products, NULL, NULL, &by[1]},
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
