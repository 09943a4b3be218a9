/* Every kernel of the GPU against the portable reference, over the table of operator cases: in f32,
 * bf16 and f16, in place, recorded and replayed, many at once, and past the ends of its operands.
 *
 * Operands and scratch of a call lie in one image between canaries (gpu_image.h). Arguments are
 * names of operators: the table is then run for these alone, which is for tools that make it slow.
 * Or the first is the name of a test (* stands for anything). */
#include "gpu_image.h"
#include "op_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/float8.h"
#include "device/device.h"
#include "graph/code.h"
#include "graph/op_table.h"
#include "graph/step_rows.h"

#ifdef TRI_CUDA

#include "device/cuda/blas/blas.h"
#include "device/cuda/cuda.h"

enum { MANY = 500 }; /* more than one launch takes */

/* Which types a call has: of what may be narrow, and of accumulators. */
typedef struct variant {
    const char *name;
    tri_dtype narrow, accumulator;
} variant;

static const variant variants[] = {
    {"f32", TRI_F32, TRI_F32},          {"bf16", TRI_BF16, TRI_BF16},
    {"f16", TRI_F16, TRI_F16},          {"bf16 into f32", TRI_BF16, TRI_F32},
    {"f16 into f32", TRI_F16, TRI_F32},
};
enum { NUM_VARIANTS = sizeof variants / sizeof variants[0] };

/* A call: its operands as the host has them and, once the image is on the GPU, as the GPU has. */
typedef struct gpu_call {
    op_run host;
    tri_kernel_args args;
    tri_attr attr;
    size_t in[TRI_MAX_IN], out[TRI_MAX_OUT], scratch;
    size_t scratch_bytes;
} gpu_call;

static tri_device gpu;
static gpu_memory memory;
static char **only;     /* names of operators, or none for all */
static int num_wrong;   /* what is wrong is printed and counted, so that one run shows it all */
static char doing[160]; /* the case at hand, for errors of the device */

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

static tri_cuda *shared_state(void)
{
    return gpu.state;
}

static void must(tr_status status, const tr_error *err)
{
    if (status != TR_OK)
        fail_msg("%s: %s", doing, err->message);
}

static void upload(const gpu_image *im)
{
    tr_error err = {0};
    must(gpu_image_upload(im, &memory, &gpu, &err), &err);
}

static void download(gpu_image *im)
{
    tr_error err = {0};
    must(gpu_image_download(im, &memory, &gpu, &err), &err);
}

/* --- Types ---------------------------------------------------------------------------------- */

static float rounded(float value, tri_dtype dtype)
{
    return dtype == TRI_BF16     ? tri_bf16_to_f32(tri_f32_to_bf16(value))
           : dtype == TRI_F16    ? tri_f16_to_f32(tri_f32_to_f16(value))
           : dtype == TRI_F8E4M3 ? tri_e4m3_to_f32(tri_f32_to_e4m3(value))
           : dtype == TRI_F8E5M2 ? tri_e5m2_to_f32(tri_f32_to_e5m2(value))
                                 : value;
}

/* As `rounded`, of a weight's copy. */
static float copied(float value, tri_dtype dtype)
{
    return dtype == TRI_BF16 ? tri_bf16_to_f32(tri_weight_to_bf16(value)) : rounded(value, dtype);
}

static float element(const unsigned char *data, tri_dtype dtype, int64_t i)
{
    if (dtype == TRI_F32)
        return ((const float *)data)[i];
    if (tri_dtype_is_float8(dtype))
        return dtype == TRI_F8E4M3 ? tri_e4m3_to_f32(data[i]) : tri_e5m2_to_f32(data[i]);
    uint16_t bits = ((const uint16_t *)data)[i];
    return dtype == TRI_BF16 ? tri_bf16_to_f32(bits) : tri_f16_to_f32(bits);
}

static void store(unsigned char *data, tri_dtype dtype, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (dtype == TRI_BF16)
            ((uint16_t *)data)[i] = tri_f32_to_bf16(from[i]);
        else if (dtype == TRI_F16)
            ((uint16_t *)data)[i] = tri_f32_to_f16(from[i]);
        else if (tri_dtype_is_float8(dtype))
            data[i] = dtype == TRI_F8E4M3 ? tri_f32_to_e4m3(from[i]) : tri_f32_to_e5m2(from[i]);
        else
            memcpy(data + i * 4, &from[i], 4);
    }
}

static tri_dtype type_of_in(const op_case *c, const variant *v, int i)
{
    if (tri_op_get(c->op)->wide_in >> i & 1)
        return TRI_F32;
    bool fast = c->op == TRI_OP_MATMUL ? c->attr.matmul.fast_sum : c->attr.grouped.fast_sum;
    if (c->flags & CASE_FLOAT8 && i < 2) /* a gradient is the first of two */
        return i == 0 && !fast ? TRI_F8E5M2 : TRI_F8E4M3;
    return v->narrow;
}

static tri_dtype type_of_out(const op_case *c, const variant *v, int o)
{
    const tri_op_def *def = tri_op_get(c->op);
    if (def->wide_out >> o & 1)
        return TRI_F32;
    if (c->op == TRI_OP_CAST)
        return v->narrow == TRI_F32 ? TRI_BF16 : TRI_F32;
    if (c->op == TRI_OP_ATTENTION_GRAD && c->flags & CASE_SINK && o == (c->size[4] ? 3 : 1))
        return TRI_F32; /* of the sinks */
    if (c->op == TRI_OP_QUANTISE)
        return o < 3 ? c->attr.quantise.dtype : v->accumulator;
    return def->can_accumulate >> o & 1 ? v->accumulator : v->narrow;
}

/* Whether a variant says anything that an earlier one does not. */
static bool variant_applies(const op_case *c, const variant *v)
{
    const tri_op_def *def = tri_op_get(c->op);
    if (c->flags & CASE_FLOAT8 && v->narrow != TRI_BF16)
        return false;
    if (v->narrow == TRI_F32)
        return true;
    if (v->accumulator != v->narrow) {
        if (!(def->can_accumulate & ~def->wide_out) ||
            (c->op == TRI_OP_MATMUL && c->attr.matmul.epilogue != TRI_EPILOGUE_NONE))
            return false;
    }
    op_run run;
    op_run_init(&run, c, NULL);
    bool any = false;
    for (int i = 0; i < run.args.num_in; i++)
        any |=
            run.args.in[i].count > 0 && run.args.in[i].dtype == TRI_F32 && !(def->wide_in >> i & 1);
    op_run_fini(&run);
    return any;
}

/* --- Calls ---------------------------------------------------------------------------------- */

static size_t place_operand(gpu_image *im, tri_tensor *host, tri_dtype dtype, bool written)
{
    size_t bytes = tri_dtype_size(dtype, host->count), at = gpu_image_place(im, bytes, written);
    if (host->dtype == TRI_I32 || tri_dtype_code(dtype)) {
        memcpy(im->sent + at, host->data, bytes);
        return at;
    }
    float *values = host->data;
    for (int64_t i = 0; i < host->count; i++)
        values[i] = rounded(values[i], dtype);
    store(im->sent + at, dtype, values, host->count);
    return at;
}

/* Makes operands, rounds those of the host to the types, and places them in the image. */
static void call_init(gpu_call *call, gpu_image *im, const op_case *c, const variant *v,
                      const op_alias *alias)
{
    op_run_init(&call->host, c, alias);
    call->args = call->host.args;
    call->attr = call->host.attr;
    for (int i = 0; i < call->args.num_in; i++) {
        tri_tensor *host = &call->host.args.in[i], *t = &call->args.in[i];
        if (host->count == 0)
            continue;
        t->dtype = host->dtype == TRI_F32 ? type_of_in(c, v, i) : host->dtype;
        bool written = false;
        for (int o = 0; o < call->args.num_out; o++)
            written |= call->host.args.out[o].data == host->data;
        call->in[i] = place_operand(im, host, t->dtype, written);
    }
    for (int o = 0; o < call->args.num_out; o++) {
        tri_tensor *host = &call->host.args.out[o], *t = &call->args.out[o];
        int same = -1;
        for (int i = 0; i < call->args.num_in; i++)
            if (call->host.args.in[i].count > 0 && call->host.args.in[i].data == host->data)
                same = i;
        t->dtype = same >= 0                ? call->args.in[same].dtype
                   : host->dtype == TRI_I32 ? TRI_I32
                                            : type_of_out(c, v, o);
        call->out[o] = same >= 0 ? call->in[same] : place_operand(im, host, t->dtype, true);
    }
    if (c->op == TRI_OP_MATMUL)
        call->attr.matmul.dtype = call->args.out[0].dtype;
    else if (c->op == TRI_OP_CAST)
        call->attr.cast.dtype = call->args.out[0].dtype;
    call->args.attr = &call->attr;
    call->args.device = gpu.state;
    tri_kernel_args sizes = call->args;
    for (int i = 0; i < TRI_MAX_IN; i++)
        sizes.in[i].data = NULL;
    for (int o = 0; o < TRI_MAX_OUT; o++)
        sizes.out[o].data = NULL;
    const tri_kernel *kernel = tri_cuda_kernel(c->op);
    call->scratch_bytes = kernel->scratch_bytes ? kernel->scratch_bytes(&sizes, 1) : 0;
    call->scratch = gpu_image_place(im, call->scratch_bytes, true);
}

/* The addresses of the operands, once the image has its place on the GPU. */
static void call_bind(gpu_call *call)
{
    call->args.attr = &call->attr;
    for (int i = 0; i < call->args.num_in; i++)
        if (call->args.in[i].count > 0)
            call->args.in[i].data = memory.data + call->in[i];
    for (int o = 0; o < call->args.num_out; o++)
        call->args.out[o].data = memory.data + call->out[o];
}

static void use_scratch(const gpu_call *call)
{
    shared_state()->scratch = memory.data + call->scratch;
    shared_state()->scratch_bytes = call->scratch_bytes;
}

/* Runs it at once, or from a recording. */
static void call_run(gpu_call *call, gpu_image *im, tri_op op, bool recorded)
{
    tr_error err = {0};
    void *scratch = shared_state()->scratch;
    size_t scratch_bytes = shared_state()->scratch_bytes;
    upload(im);
    call_bind(call);
    use_scratch(call);
    if (recorded) {
        void *recording = NULL;
        must(gpu.def->queue->finish(&gpu, &err), &err);
        must(gpu.def->queue->record(&gpu, &err), &err);
        tri_cuda_kernel(op)->run(&call->args);
        must(gpu.def->queue->record_end(&gpu, &recording, &err), &err);
        must(gpu.def->queue->replay(&gpu, recording, &err), &err);
        download(im);
        gpu.def->queue->forget(recording);
    } else {
        tri_cuda_kernel(op)->run(&call->args);
        download(im);
    }
    shared_state()->scratch = scratch;
    shared_state()->scratch_bytes = scratch_bytes;
}

/* --- Comparisons ---------------------------------------------------------------------------- */

static const char *name_of(const op_case *c, const variant *v)
{
    static char text[160];
    snprintf(text, sizeof text, "%s \"%s\", %s", tri_op_get(c->op)->name, c->name, v->name);
    return text;
}

static int defined_outputs(const op_case *c, const gpu_call *call)
{
    return c->op == TRI_OP_MOMENTUM && c->flags & CASE_NOT_OK ? 1 : call->args.num_out;
}

/* Operators that do at most one operation on an element: there is one right result. */
static bool is_exact(tri_op op)
{
    return op == TRI_OP_ADD || op == TRI_OP_BIAS_ADD || op == TRI_OP_DROPOUT ||
           op == TRI_OP_ACCUMULATE || op == TRI_OP_CAST || op == TRI_OP_NARROW ||
           op == TRI_OP_SLICE || op == TRI_OP_BLOCK || op == TRI_OP_UNBLOCK || op == TRI_OP_EMBED ||
           op == TRI_OP_SELECT_ROW || op == TRI_OP_SELECT_ROW_GRAD || op == TRI_OP_AMAX ||
           op == TRI_OP_QUANTISE || op == TRI_OP_ADAM8 || op == TRI_OP_UNSLICE ||
           op == TRI_OP_SPLIT_QKV || op == TRI_OP_JOIN_QKV;
}

/* Products of experts with what stands beside them, which may run as their parts. */
static bool is_fused(tri_op op)
{
    return op >= TRI_OP_GROUPED_SWIGLU && op <= TRI_OP_GROUPED_SUM;
}

/* Relative to the largest element of the output. Sums run in f32 here, in another order. */
static float tolerance_of(const op_case *c, const variant *v, tri_dtype dtype, bool exact)
{
    float of_case = 2 * fmaxf(c->tolerance, 2e-6f);
    if (exact)
        return 0;
    /* The statistics of a sum that was rounded first; what attention keeps in 16 bits on the way */
    bool rounds_within = c->op == TRI_OP_LAYERNORM_GRADS || c->op == TRI_OP_RMSNORM_GRADS ||
                         c->op == TRI_OP_ADD_LAYERNORM || c->op == TRI_OP_ADD_RMSNORM ||
                         c->op == TRI_OP_ATTENTION || c->op == TRI_OP_ATTENTION_GRAD ||
                         is_fused(c->op) || c->flags & CASE_AMAX;
    bool product = c->op == TRI_OP_MATMUL || is_fused(c->op) ||
                   (c->op >= TRI_OP_GROUPED && c->op <= TRI_OP_GROUPED8_GRAD);
    if (product && v->narrow != TRI_F32) /* tensor cores add in fewer bits */
        of_case = fmaxf(of_case, c->flags & CASE_FLOAT8 ? 1e-3f : 2e-5f);
    tri_dtype least = rounds_within && dtype == TRI_F32 ? v->narrow : dtype;
    return least == TRI_BF16 ? 0x1p-7f : least == TRI_F16 ? 0x1p-10f : of_case;
}

static void expect_close(const op_case *c, const variant *v, const gpu_call *call,
                         const gpu_image *im, const char *what)
{
    for (int o = 0; o < defined_outputs(c, call); o++) {
        const tri_tensor *t = &call->args.out[o];
        const float *want = call->host.args.out[o].data;
        if (tri_dtype_code(t->dtype) || t->dtype == TRI_I32) {
            if (memcmp(im->got + call->out[o], want, tri_dtype_size(t->dtype, t->count)))
                wrong("%s, %s: output %d has other codes or numbers", name_of(c, v), what, o);
            continue;
        }
        bool exact = is_exact(c->op) && !(c->flags & CASE_SUMS && o == 3);
        float tolerance = tolerance_of(c, v, t->dtype, exact), largest = 0;
        for (int64_t i = 0; i < t->count; i++)
            largest = isinf(want[i]) ? largest : fmaxf(largest, fabsf(want[i]));
        for (int64_t i = 0; i < t->count; i++) {
            float got = element(im->got + call->out[o], t->dtype, i);
            bool copy = tri_op_get(c->op)->copies >> o & 1;
            float right = !exact ? want[i]
                          : copy ? copied(want[i], t->dtype)
                                 : rounded(want[i], t->dtype);
            if (got == right || fabsf(got - right) <= tolerance * largest)
                continue;
            wrong("%s, %s: output %d[%ld] is %.9g, not %.9g (largest %g)", name_of(c, v), what, o,
                  (long)i, got, right, largest);
            break;
        }
    }
    if (!gpu_image_kept(im))
        wrong("%s, %s: wrote outside of its outputs", name_of(c, v), what);
}

/* Equal bits of the outputs, and of the regions of two images that are alike. */
static void expect_same(const op_case *c, const variant *v, const gpu_call *a,
                        const gpu_image *im_a, const gpu_call *b, const gpu_image *im_b,
                        const char *what)
{
    for (int o = 0; o < defined_outputs(c, a); o++)
        if (memcmp(im_a->got + a->out[o], im_b->got + b->out[o],
                   tri_dtype_size(a->args.out[o].dtype, a->args.out[o].count)))
            wrong("%s, %s: output %d has other bits", name_of(c, v), what, o);
    if (!gpu_image_kept(im_b))
        wrong("%s, %s: wrote outside of its outputs", name_of(c, v), what);
}

static void check_in_place(const op_case *c, const variant *v, const gpu_call *first,
                           const gpu_image *im)
{
    op_alias pairs[OP_MAX_ALIAS];
    int num = op_may_alias(c, pairs);
    for (int i = 0; i < num; i++) {
        gpu_call call;
        gpu_image other;
        gpu_image_init(&other);
        call_init(&call, &other, c, v, &pairs[i]);
        call_run(&call, &other, c->op, false);
        expect_same(c, v, first, im, &call, &other, "in place");
        op_run_fini(&call.host);
        gpu_image_fini(&other);
    }
}

static void check_case(const op_case *c, const variant *v)
{
    gpu_call call, again;
    gpu_image im, other;
    gpu_image_init(&im);
    gpu_image_init(&other);
    snprintf(doing, sizeof doing, "%s (%s) in %s", tri_op_get(c->op)->name, c->name, v->name);
    call_init(&call, &im, c, v, NULL);
    call_run(&call, &im, c->op, false);
    op_run_kernel(&call.host, tri_cpu_reference(c->op), NULL, TRI_ISA_BASE);
    expect_close(c, v, &call, &im, "against the reference");
    call_init(&again, &other, c, v, NULL);
    call_run(&again, &other, c->op, true);
    expect_same(c, v, &call, &im, &again, &other, "replayed");
    check_in_place(c, v, &call, &im);
    op_run_fini(&call.host);
    op_run_fini(&again.host);
    gpu_image_fini(&im);
    gpu_image_fini(&other);
}

/* --- Tests ---------------------------------------------------------------------------------- */

static bool is_wanted(tri_op op)
{
    bool wanted = !*only;
    for (char **name = only; *name; name++)
        wanted |= strcmp(*name, tri_op_get(op)->name) == 0;
    return wanted && tri_cuda_kernel(op);
}

static void test_every_case(void **state)
{
    (void)state;
    int num;
    const op_case *cases = op_cases(&num);
    for (int i = 0; i < num; i++)
        for (int v = 0; is_wanted(cases[i].op) && v < NUM_VARIANTS; v++)
            if (variant_applies(&cases[i], &variants[v]))
                check_case(&cases[i], &variants[v]);
    assert_int_equal(num_wrong, 0);
}

/* Weights half way between two of bf16, and what else rounding could spoil. */
static void fill_ties(float *to, int64_t count)
{
    static const uint32_t special[] = {0x7f7f8000u, 0x7f7fffffu, 0x7f800000u, 0xff800000u,
                                       0x00008000u, 0x80008000u, 0x3f818000u, 0xbf808000u};
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)(0x3c00 + i * 37 % 0x700) << 16 | 0x8000u;
        to[i] = tri_f32_of(i % 9 < 8 ? bits | (uint32_t)(i & 1) << 31 : special[i / 9 % 8]);
    }
}

/* The copies that narrow and adam write, bit for bit as the host rounds. At a learning rate of 0
 * and without decay adam leaves the weights as they are. */
static void test_copies_round_as_on_the_host(void **state)
{
    (void)state;
    static const op_case cases[] = {
        {"ties", TRI_OP_NARROW, {20011}, {0}, 0, 0},
        {"ties", TRI_OP_ADAM, {20011}, {.update = {.lr_scale = 1, .eps = 1e-8f}}, CASE_COPY, 0}};
    for (int k = 0; k < 2; k++) {
        gpu_call call;
        gpu_image im;
        gpu_image_init(&im);
        call_init(&call, &im, &cases[k], &variants[1], NULL);
        int64_t count = call.args.in[0].count;
        float *ties = malloc((size_t)count * sizeof *ties), *sched;
        assert_non_null(ties);
        fill_ties(ties, count);
        store(im.sent + call.in[0], TRI_F32, ties, count);
        sched = (float *)(im.sent + call.in[4]);
        if (k == 1)
            sched[TRI_STEP_LR] = 0;
        call_run(&call, &im, cases[k].op, false);
        const uint16_t *got = (const uint16_t *)(im.got + call.out[k == 1 ? 3 : 0]);
        for (int64_t i = 0; i < count; i++)
            if (isfinite(ties[i]) || k == 0)
                assert_int_equal(got[i], tri_weight_to_bf16(ties[i]));
        free(ties);
        op_run_fini(&call.host);
        gpu_image_fini(&im);
    }
}

static bool has_8_bits(const op_case *c)
{
    return c->flags & (CASE_FLOAT8 | CASE_AMAX) || c->op == TRI_OP_AMAX || c->op == TRI_OP_QUANTISE;
}

static void test_8_bits(void **state)
{
    (void)state;
    int num;
    const op_case *cases = op_cases(&num);
    num_wrong = 0;
    for (int i = 0; i < num; i++)
        for (int v = 0; has_8_bits(&cases[i]) && v < NUM_VARIANTS; v++)
            if (variant_applies(&cases[i], &variants[v]))
                check_case(&cases[i], &variants[v]);
    assert_int_equal(num_wrong, 0);
}

static bool is_attention(tri_op op)
{
    return op == TRI_OP_ATTENTION || op == TRI_OP_ATTENTION_GRAD;
}

/* Our kernels, for what cuDNN takes where it is installed. */
static void test_attention_without_cudnn(void **state)
{
    (void)state;
    int num;
    const op_case *cases = op_cases(&num);
    tri_cuda_dnn *dnn = shared_state()->dnn;
    num_wrong = 0;
    shared_state()->dnn = NULL;
    for (int i = 0; i < num; i++)
        for (int v = 0; dnn && is_attention(cases[i].op) && v < NUM_VARIANTS; v++)
            if (variant_applies(&cases[i], &variants[v]))
                check_case(&cases[i], &variants[v]);
    shared_state()->dnn = dnn;
    assert_int_equal(num_wrong, 0);
}

enum { PIECE_T = 1024, PIECE_H = 16, PIECE_K = 64, PIECE_B = 96 };

/* q, k, v, o, lse, do: the part of them that begins at this row of the batch. */
static void run_rows(tri_op op, unsigned char *const *data, int64_t first, int64_t num)
{
    const tri_attr attr = {.attention = {.alpha = 0.125f, .causal = true}};
    tri_kernel_args args = {.attr = &attr, .device = gpu.state, .overwrite = true};
    size_t row = (size_t)PIECE_T * PIECE_H * PIECE_K * 2;
    tri_tensor lse = {.data = data[4] + (size_t)first * PIECE_T * PIECE_H * 4,
                      .dtype = TRI_F32,
                      .rank = 3,
                      .size = {num, PIECE_H, PIECE_T},
                      .count = num * PIECE_H * PIECE_T};
    tri_tensor t[9];
    for (int i = 0; i < 9; i++)
        t[i] = (tri_tensor){.data = data[i] + (size_t)first * row,
                            .dtype = TRI_BF16,
                            .rank = 4,
                            .size = {num, PIECE_T, PIECE_H, PIECE_K},
                            .count = num * PIECE_T * PIECE_H * PIECE_K};
    t[4] = lse;
    bool grad = op == TRI_OP_ATTENTION_GRAD;
    for (int i = 0; i < 5; i++) /* q, k, v, o, lse */
        args.in[i + grad] = t[i];
    args.num_in = grad ? 9 : 6;
    args.num_out = grad ? 3 : 2;
    for (int k = 0; k < 3; k++)
        args.out[k] = t[grad ? 6 + k : 3 + k];
    args.in[0] = grad ? t[5] : t[0];
    for (int i = grad ? 6 : 3; i < args.num_in; i++)
        args.in[i] = (tri_tensor){0};
    assert_true(tri_cuda_kernel(op)->scratch_bytes(&args, 1) <= shared_state()->scratch_bytes);
    tri_cuda_kernel(op)->run(&args);
}

/* A batch whose scratch would be too large is cut; its parts, one by one, have the same bits. */
static void test_attention_in_pieces(void **state)
{
    (void)state;
    if (!shared_state()->dnn) {
        print_message("skipped: there is no cuDNN\n");
        skip();
    }
    enum { NUM = 12, HALF = PIECE_B / 2 };
    const size_t SCRATCH = (size_t)2 << 30;
    tr_error err = {0};
    size_t bytes = (size_t)PIECE_B * PIECE_T * PIECE_H * PIECE_K * 2;
    unsigned char *room = gpu.def->alloc(NUM * bytes + SCRATCH), *data[NUM];
    unsigned char *got[2] = {malloc(3 * bytes), malloc(3 * bytes)};
    assert_true(room && got[0] && got[1]);
    for (int i = 0; i < NUM; i++)
        data[i] = room + (size_t)i * bytes;
    void *scratch = shared_state()->scratch;
    size_t scratch_bytes = shared_state()->scratch_bytes;
    shared_state()->scratch = room + NUM * bytes;
    shared_state()->scratch_bytes = SCRATCH;
    tri_cuda_fill_noise(room, (int64_t)(6 * bytes / 2), TRI_BF16, shared_state()->stream);
    run_rows(TRI_OP_ATTENTION, data, 0, PIECE_B);
    for (int apart = 0; apart < 2; apart++) {
        for (int k = 0; apart && k < 3; k++)
            data[6 + k] = data[9 + k];
        for (int b = 0; b < PIECE_B; b += apart ? HALF : PIECE_B)
            run_rows(TRI_OP_ATTENTION_GRAD, data, b, apart ? HALF : PIECE_B);
        must(gpu.def->queue->download(&gpu, got[apart], data[6], 3 * bytes, &err), &err);
        must(gpu.def->queue->finish(&gpu, &err), &err);
    }
    bool any = false;
    for (size_t i = 0; i < 3 * bytes; i++)
        any |= got[0][i] != 0;
    assert_true(any);
    assert_memory_equal(got[0], got[1], 3 * bytes);
    shared_state()->scratch = scratch;
    shared_state()->scratch_bytes = scratch_bytes;
    gpu.def->free(room, NUM * bytes + SCRATCH);
    free(got[0]);
    free(got[1]);
}

/* Close, though not the same bits each time. */
static void test_attention_in_any_order(void **state)
{
    (void)state;
    int num;
    const op_case *cases = op_cases(&num);
    num_wrong = 0;
    shared_state()->any_order = true;
    for (int i = 0; i < num; i++)
        for (int v = 0; cases[i].op == TRI_OP_ATTENTION_GRAD && v < NUM_VARIANTS; v++) {
            gpu_call call;
            gpu_image im;
            if (!variant_applies(&cases[i], &variants[v]))
                continue;
            gpu_image_init(&im);
            call_init(&call, &im, &cases[i], &variants[v], NULL);
            call_run(&call, &im, cases[i].op, false);
            op_run_kernel(&call.host, tri_cpu_reference(cases[i].op), NULL, TRI_ISA_BASE);
            expect_close(&cases[i], &variants[v], &call, &im, "in any order");
            op_run_fini(&call.host);
            gpu_image_fini(&im);
        }
    shared_state()->any_order = false;
    assert_int_equal(num_wrong, 0);
}

/* Reads the numbers of the step where another call of the same case does, as in a real step. */
static void share_step(gpu_call *call, const gpu_call *other)
{
    for (int i = 0; i < call->args.num_in; i++)
        if (call->args.in[i].count == OP_STEP_ROWS || call->args.in[i].count == TRI_NUM_RESULT)
            call->in[i] = other->in[i];
}

/* run_many, over all cases of an operator and then one case many times over, against run. */
static void check_many(tri_op op)
{
    int num_cases, num = 0;
    const op_case *cases = op_cases(&num_cases), *first = NULL;
    gpu_call *calls = calloc(MANY, sizeof *calls);
    const tri_kernel_args **args = calloc(MANY, sizeof *args);
    gpu_image im;
    assert_non_null(calls);
    assert_non_null(args);
    gpu_image_init(&im);
    for (int i = 0; i < num_cases; i++)
        for (int v = 0; cases[i].op == op && v < NUM_VARIANTS; v++)
            if (variant_applies(&cases[i], &variants[v])) {
                first = first ? first : &cases[i];
                call_init(&calls[num++], &im, &cases[i], &variants[v], NULL);
            }
    assert_non_null(first);
    for (int base = num; num < MANY; num++) {
        call_init(&calls[num], &im, first, &variants[0], NULL);
        share_step(&calls[num], &calls[base]);
    }
    void *scratch = shared_state()->scratch;
    upload(&im);
    for (int i = 0; i < num; i++) {
        call_bind(&calls[i]);
        use_scratch(&calls[i]);
        tri_cuda_kernel(op)->run(&calls[i].args);
        args[i] = &calls[i].args;
    }
    download(&im);
    assert_true(gpu_image_kept(&im));
    unsigned char *one_by_one = malloc(im.used);
    assert_non_null(one_by_one);
    memcpy(one_by_one, im.got, im.used);
    upload(&im);
    use_scratch(&calls[0]);
    tri_cuda_kernel(op)->run_many(args, num);
    download(&im);
    assert_true(gpu_image_kept(&im));
    shared_state()->scratch = scratch;
    for (int i = 0; i < num; i++) {
        for (int o = 0; o < calls[i].args.num_out; o++) {
            const tri_tensor *t = &calls[i].args.out[o];
            if (memcmp(im.got + calls[i].out[o], one_by_one + calls[i].out[o],
                       tri_dtype_size(t->dtype, t->count)))
                wrong("%s: number %d of many differs", tri_op_get(op)->name, i);
        }
        op_run_fini(&calls[i].host);
    }
    free(one_by_one);
    free(args);
    free(calls);
    gpu_image_fini(&im);
}

static void test_many_at_once(void **state)
{
    (void)state;
    num_wrong = 0;
    for (int op = 0; op < TRI_NUM_OPS; op++)
        if (tri_cuda_kernel((tri_op)op) && tri_cuda_kernel((tri_op)op)->run_many)
            check_many((tri_op)op);
    assert_int_equal(num_wrong, 0);
}

/* Many tensors into one statistic or one sum, which the first of them begins anew. */
static void check_shared_sum(const op_case *c, int num)
{
    gpu_call *calls = calloc((size_t)num, sizeof *calls);
    const tri_kernel_args **args = calloc((size_t)num, sizeof *args);
    gpu_image im;
    assert_non_null(calls);
    assert_non_null(args);
    gpu_image_init(&im);
    for (int i = 0; i < num; i++) {
        call_init(&calls[i], &im, c, &variants[0], NULL);
        calls[i].out[0] = calls[0].out[0];
        calls[i].args.overwrite = i == 0;
    }
    upload(&im);
    void *scratch = shared_state()->scratch;
    for (int i = 0; i < num; i++) {
        call_bind(&calls[i]);
        args[i] = &calls[i].args;
    }
    use_scratch(&calls[0]);
    tri_cuda_kernel(c->op)->run_many(args, num);
    download(&im);
    shared_state()->scratch = scratch;
    calls[0].host.args.overwrite = true;
    op_run_kernel(&calls[0].host, tri_cpu_reference(c->op), NULL, TRI_ISA_BASE);
    for (int64_t i = 0; i < calls[0].args.out[0].count; i++) {
        float got = element(im.got + calls[0].out[0], TRI_F32, i);
        float want = (float)num * ((float *)calls[0].host.args.out[0].data)[i];
        assert_true(fabsf(got - want) <= 1e-5f * fabsf(want));
    }
    for (int i = 0; i < num; i++)
        op_run_fini(&calls[i].host);
    free(args);
    free(calls);
    gpu_image_fini(&im);
}

static void test_shared_sum(void **state)
{
    (void)state;
    op_case squares = {"shared", TRI_OP_SUM_SQUARES, {20011}, {0}, 0, 0};
    op_case sums = {"shared", TRI_OP_ACCUMULATE, {3, 5, 1, 7}, {0}, 0, 0};
    check_shared_sum(&squares, 5);
    check_shared_sum(&squares, 1030);
    check_shared_sum(&sums, 5);
}

int main(int argc, char **argv)
{
    (void)argc;
    only = argv + 1;
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda"};
    if (tri_device_open(&config, &gpu, &err) != TR_OK ||
        gpu.def->queue->start(&gpu, 0, &err) != TR_OK) {
        printf("skipped: %s\n", err.message);
        return 77;
    }
    const struct CMUnitTest table[] = {cmocka_unit_test(test_every_case)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_8_bits),
        cmocka_unit_test(test_every_case),
        cmocka_unit_test(test_attention_without_cudnn),
        cmocka_unit_test(test_attention_in_any_order),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_copies_round_as_on_the_host),
        cmocka_unit_test(test_shared_sum),
        cmocka_unit_test(test_attention_in_pieces),
    };
    bool by_name = *only && strncmp(*only, "test_", 5) == 0;
    if (by_name)
        cmocka_set_test_filter(*only++);
    int failed = *only && !by_name ? cmocka_run_group_tests(table, NULL, NULL)
                                   : cmocka_run_group_tests(tests, NULL, NULL);
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
