/* Products of linear layers on a GPU, with 16-bit and with 8-bit operands, and what it takes to
 * make these: build/bench/gpu_float8 [llama | gpt2]. Every product is measured as in a run, with
 * the algorithm that was found fastest for it; operands are noise. */
#include <stdio.h>
#include <string.h>

#include "device/device.h"

#ifndef TRI_CUDA

int main(void)
{
    printf("built without CUDA\n");
    return 0;
}

#else

#include "device/cuda/blas/blas.h"

enum { TIMES = 20 };

typedef struct layer {
    const char *model, *name;
    int64_t rows, out, in;
} layer;

static const layer layers[] = {
    {"llama", "q, o", 16384, 2048, 2048},     {"llama", "k, v", 16384, 256, 2048},
    {"llama", "gate, up", 16384, 5632, 2048}, {"llama", "down", 16384, 2048, 5632},
    {"gpt2", "qkv", 16384, 4800, 1600},       {"gpt2", "proj", 16384, 1600, 1600},
    {"gpt2", "fc", 16384, 6400, 1600},        {"gpt2", "fc proj", 16384, 1600, 6400},
};

typedef struct room {
    tri_device device;
    char *memory;
    size_t operand; /* bytes of each of the four parts of it */
} room;

static double seconds(room *r, const tri_kernel *kernel, const tri_kernel_args *args,
                      const tri_cuda_product *product)
{
    tr_error err = {0};
    const tri_device_queue *queue = r->device.def->queue;
    bool good = true;
    for (int i = -2; good && i < TIMES; i++) {
        if (i == 0)
            good = queue->mark(&r->device, 0, &err) == TR_OK;
        if (kernel)
            kernel->run(args);
        else
            good = good && tri_cuda_blas_run(r->device.state, product);
    }
    good = good && queue->mark(&r->device, 1, &err) == TR_OK &&
           queue->finish(&r->device, &err) == TR_OK;
    return good ? queue->seconds_between(&r->device, 0, 1) / TIMES : 0;
}

/* TFLOP/s of c [m, n] = a [m, k] b [n, k]^T, or with operands as 16-bit products of the backward
 * have them. */
static double rate(room *r, tri_cuda_product p)
{
    tri_cuda *cuda = r->device.state;
    char *at = r->memory;
    p.alpha = 1;
    p.a = at;
    p.b = at + r->operand;
    p.c = at + 2 * r->operand;
    p.bias = at + 3 * r->operand;
    if (p.epilogue == TRI_EPILOGUE_BIAS_GELU || p.epilogue == TRI_EPILOGUE_GELU_GRAD)
        p.aux = at + 4 * r->operand;
    if (p.epilogue == TRI_EPILOGUE_ADD)
        p.add = at + 4 * r->operand;
    if (tri_dtype_is_float8(p.in)) {
        p.scale_a = (const float *)(at + 5 * r->operand);
        p.scale_b = p.scale_a + TRI_CUDA_BLAS_ALIGN;
        tri_cuda_fill_noise((void *)p.scale_a, 2 * TRI_CUDA_BLAS_ALIGN, TRI_F32, cuda->stream);
    }
    tri_cuda_fill_noise((void *)p.a, p.m * p.k, p.in, cuda->stream);
    tri_cuda_fill_noise((void *)p.b, p.n * p.k, tri_dtype_is_float8(p.in) ? p.in_b : p.in,
                        cuda->stream);
    tri_cuda_fill_noise((void *)p.bias, p.n, p.out, cuda->stream);
    tri_cuda_fill_noise(at + 4 * r->operand, p.m * p.n, p.out, cuda->stream);
    tri_cuda_blas_tune(cuda, &p);
    double s = seconds(r, NULL, NULL, &p);
    return s > 0 ? 2e-12 * (double)p.m * (double)p.n * (double)p.k / s : 0;
}

static void measure_products(room *r, const layer *l, tri_epilogue forward, tri_epilogue backward)
{
    static const char *const names[] = {"y", "dx", "dW"};
    for (int i = 0; i < 3; i++) {
        tri_cuda_product p = {.m = i == 2 ? l->out : l->rows,
                              .n = i == 0 ? l->out : l->in,
                              .k = i == 0   ? l->in
                                   : i == 1 ? l->out
                                            : l->rows,
                              .in = TRI_BF16,
                              .out = i == 2 ? TRI_F32 : TRI_BF16,
                              .trans_a = i == 2,
                              .trans_b = i == 0,
                              .epilogue = i == 0   ? forward
                                          : i == 1 ? backward
                                                   : TRI_EPILOGUE_NONE};
        double wide = rate(r, p), narrow[2];
        p.trans_a = false;
        p.trans_b = true;
        p.in = i == 0 ? TRI_F8E4M3 : TRI_F8E5M2;
        p.in_b = TRI_F8E4M3;
        for (int fast = 0; fast < 2; fast++) {
            p.fast_sum = fast;
            narrow[fast] = rate(r, p);
        }
        printf("  %-10s %-3s epilogue %d   bf16 %6.0f   fp8 %6.0f (%.2f x)   fast sums %6.0f "
               "(%.2f x) TFLOP/s\n",
               l->name, names[i], (int)p.epilogue, wide, narrow[0], narrow[0] / wide, narrow[1],
               narrow[1] / wide);
        fflush(stdout);
    }
}

static void measure_quantise(room *r, int64_t rows, int64_t cols)
{
    char *at = r->memory;
    int64_t count = rows * cols;
    tri_attr attr = {
        .quantise = {.split = 1, .straight = true, .turned = true, .dtype = TRI_F8E4M3}};
    tri_tensor x = {at, TRI_BF16, 2, {rows, cols}, {0}, {rows, cols}, count};
    tri_tensor amax = {at + 5 * r->operand, TRI_F32, 1, {TRI_AMAX_PARTS}, {0}, {0}, TRI_AMAX_PARTS};
    tri_tensor scale = {at + 5 * r->operand + 4096, TRI_F32, 1, {1}, {0}, {0}, 1};
    tri_tensor q = {at + 2 * r->operand, TRI_F8E4M3, 2, {rows, cols}, {0}, {0}, count};
    tri_tensor t = {at + 3 * r->operand, TRI_F8E4M3, 2, {cols, rows}, {0}, {0}, count};
    tri_kernel_args find = {
        .attr = &attr, .num_in = 1, .num_out = 1, .in = {x}, .out = {amax}, .overwrite = true};
    tri_kernel_args both = {.attr = &attr,
                            .num_in = 2,
                            .num_out = 3,
                            .in = {x, amax},
                            .out = {scale, q, t},
                            .overwrite = true};
    find.device = both.device = r->device.state;
    tri_cuda *cuda = r->device.state;
    tri_cuda_fill_noise(at, count, TRI_BF16, cuda->stream);
    double a = seconds(r, &tri_cuda_amax, &find, NULL);
    double b = seconds(r, &tri_cuda_quantise, &both, NULL);
    attr.quantise.turned = false;
    both.num_out = 2;
    double s = seconds(r, &tri_cuda_quantise, &both, NULL);
    printf("  %6ld x %-5ld amax %6.1f us (%4.0f GB/s)   quantise both ways %6.1f us (%4.0f GB/s)   "
           "straight %6.1f us (%4.0f GB/s)\n",
           (long)rows, (long)cols, a * 1e6, 2e-9 * (double)count / a, b * 1e6,
           4e-9 * (double)count / b, s * 1e6, 3e-9 * (double)count / s);
}

int main(int argc, char **argv)
{
    room r = {.operand = (size_t)16384 * 6400 * 4};
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda", .isa = "auto", .float8 = true};
    if (tri_device_open(&config, &r.device, &err) != TR_OK ||
        r.device.def->queue->start(&r.device, 0, &err) != TR_OK ||
        r.device.def->reserve_scratch(&r.device, TRI_CUDA_BLAS_WORKSPACE, &err) != TR_OK) {
        printf("%s\n", err.message);
        return 1;
    }
    r.memory = r.device.def->alloc(6 * r.operand);
    if (!r.memory) {
        printf("the GPU has too little memory\n");
        return 1;
    }
    printf("%s; large products: bf16 %.0f, fp8 %.0f TFLOP/s; copies: %.0f GB/s\n",
           r.device.description, r.device.def->peak_flops(&r.device, TRI_BF16) * 1e-12,
           r.device.def->peak_flops(&r.device, TRI_F8E4M3) * 1e-12,
           r.device.def->peak_bytes(&r.device) * 1e-9);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const layer *l = &layers[i];
        if (argc > 1 && strcmp(argv[1], l->model) != 0)
            continue;
        bool gpt2 = strcmp(l->model, "gpt2") == 0, fc = strcmp(l->name, "fc") == 0;
        tri_epilogue forward = fc     ? TRI_EPILOGUE_BIAS_GELU
                               : gpt2 ? TRI_EPILOGUE_BIAS
                                      : TRI_EPILOGUE_NONE;
        bool after_gelu = strcmp(l->name, "fc proj") == 0;
        measure_products(&r, l, forward, after_gelu ? TRI_EPILOGUE_GELU_GRAD : TRI_EPILOGUE_NONE);
    }
    measure_quantise(&r, 16384, 2048);
    measure_quantise(&r, 16384, 5632);
    measure_quantise(&r, 16384, 1600);
    measure_quantise(&r, 16384, 6400);
    measure_quantise(&r, 5632, 2048);
    r.device.def->free(r.memory, 6 * r.operand);
    tri_device_close(&r.device);
    return 0;
}

#endif
