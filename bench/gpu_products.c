/* All products of a training step on a GPU, and how far cuBLASLt's choice for each can be bettered:
 * build/bench/gpu_products [gpt2-124m | gpt2-350m | gpt2-1558m | llama-1.1b ...].
 *
 * For each product: the library's first choice, what run.tune takes, and the fastest of a wide
 * search: tiles, clusters and the rest of an algorithm's settings, set one by one and tried. The
 * few that looked fastest are then measured again in turns, without a rest, so that the card is as
 * hot as it is in a training. Algorithms are printed as id/tile/stages/cluster/custom option,
 * numbers of cublasLt.h. At the end of a model: what its products take in a step, each way. */
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

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#include "device/cuda/blas/blas_plan.h"

enum {
    MOST = 1024,      /* algorithms looked at */
    FINAL = 6,        /* of the search that are measured again */
    TURNS = 5,        /* of these measurements */
    MOST_TILES = 700, /* ids of tiles */
    MOST_NAMED = 256, /* asked of the library */
    BEST_TILES = 10   /* whose clusters and options are tried */
};
#define TURN_SECONDS   8e-3
#define SEARCH_SECONDS 0.7
#define LEAST_AREA     16000.0 /* of a tile */

typedef struct product {
    const char *model, *name;
    int times; /* in a step; 0: only to compare */
    int64_t m, n, k;
    char kind; /* 'y', 'x' or 'w': forward, gradient of the input, of the weights */
    tri_epilogue end;
} product;

#define GPT2(model, layers, rows, d, vocab)                                                        \
    {model, "qkv y", layers, rows, 3 * d, d, 'y', TRI_EPILOGUE_BIAS},                              \
        {model, "qkv dx", layers, rows, d, 3 * d, 'x', TRI_EPILOGUE_NONE},                         \
        {model, "qkv dW", layers, 3 * d, d, rows, 'w', TRI_EPILOGUE_NONE},                         \
        {model, "proj y", layers, rows, d, d, 'y', TRI_EPILOGUE_BIAS},                             \
        {model, "proj dx", layers, rows, d, d, 'x', TRI_EPILOGUE_NONE},                            \
        {model, "proj dW", layers, d, d, rows, 'w', TRI_EPILOGUE_NONE},                            \
        {model, "fc y", layers, rows, 4 * d, d, 'y', TRI_EPILOGUE_BIAS_GELU},                      \
        {model, "fc dx", layers, rows, d, 4 * d, 'x', TRI_EPILOGUE_NONE},                          \
        {model, "fc dW", layers, 4 * d, d, rows, 'w', TRI_EPILOGUE_NONE},                          \
        {model, "fc proj y", layers, rows, d, 4 * d, 'y', TRI_EPILOGUE_BIAS},                      \
        {model, "fc proj dx", layers, rows, 4 * d, d, 'x', TRI_EPILOGUE_GELU_GRAD},                \
        {model, "fc proj dW", layers, d, 4 * d, rows, 'w', TRI_EPILOGUE_NONE},                     \
        {model, "head y", 1, rows, vocab, d, 'y', TRI_EPILOGUE_NONE},                              \
        {model, "head dx", 1, rows, d, vocab, 'x', TRI_EPILOGUE_NONE},                             \
    {                                                                                              \
        model, "head dW", 1, vocab, d, rows, 'w', TRI_EPILOGUE_NONE                                \
    }

#define LLAMA "llama-1.1b"
static const product products[] = {
    GPT2("gpt2-1558m", 48, 16384, 1600, 50304),
    {LLAMA, "q, o y", 44, 16384, 2048, 2048, 'y', TRI_EPILOGUE_NONE},
    {LLAMA, "o dx", 22, 16384, 2048, 2048, 'x', TRI_EPILOGUE_NONE},
    {LLAMA, "q dx", 22, 16384, 2048, 2048, 'x', TRI_EPILOGUE_ADD},
    {LLAMA, "q, o dW", 44, 2048, 2048, 16384, 'w', TRI_EPILOGUE_NONE},
    {LLAMA, "k, v y", 44, 16384, 256, 2048, 'y', TRI_EPILOGUE_NONE},
    {LLAMA, "v dx", 22, 16384, 2048, 256, 'x', TRI_EPILOGUE_NONE},
    {LLAMA, "k dx", 22, 16384, 2048, 256, 'x', TRI_EPILOGUE_ADD},
    {LLAMA, "k, v dW", 44, 256, 2048, 16384, 'w', TRI_EPILOGUE_NONE},
    {LLAMA, "gate, up y", 44, 16384, 5632, 2048, 'y', TRI_EPILOGUE_NONE},
    {LLAMA, "up dx", 22, 16384, 2048, 5632, 'x', TRI_EPILOGUE_NONE},
    {LLAMA, "gate dx", 22, 16384, 2048, 5632, 'x', TRI_EPILOGUE_ADD},
    {LLAMA, "gate, up dW", 44, 5632, 2048, 16384, 'w', TRI_EPILOGUE_NONE},
    {LLAMA, "down y", 22, 16384, 2048, 5632, 'y', TRI_EPILOGUE_NONE},
    {LLAMA, "o y +r", 0, 16384, 2048, 2048, 'y', TRI_EPILOGUE_ADD},
    {LLAMA, "down y +r", 0, 16384, 2048, 5632, 'y', TRI_EPILOGUE_ADD},
    {LLAMA, "down dx", 22, 16384, 5632, 2048, 'x', TRI_EPILOGUE_NONE},
    {LLAMA, "down dW", 22, 2048, 5632, 16384, 'w', TRI_EPILOGUE_NONE},
    {LLAMA, "head y", 1, 16384, 32000, 2048, 'y', TRI_EPILOGUE_NONE},
    {LLAMA, "head dx", 1, 16384, 2048, 32000, 'x', TRI_EPILOGUE_NONE},
    {LLAMA, "head dW", 1, 32000, 2048, 16384, 'w', TRI_EPILOGUE_NONE},
    {LLAMA, "q|k|v y", 0, 16384, 2560, 2048, 'y', TRI_EPILOGUE_NONE},
    {LLAMA, "q|k|v dx", 0, 16384, 2048, 2560, 'x', TRI_EPILOGUE_NONE},
    {LLAMA, "q|k|v dW", 0, 2560, 2048, 16384, 'w', TRI_EPILOGUE_NONE},
    {LLAMA, "gate|up y", 0, 16384, 11264, 2048, 'y', TRI_EPILOGUE_NONE},
    {LLAMA, "gate|up dx", 0, 16384, 2048, 11264, 'x', TRI_EPILOGUE_NONE},
    {LLAMA, "gate|up dW", 0, 11264, 2048, 16384, 'w', TRI_EPILOGUE_NONE},
    GPT2("gpt2-124m", 12, 65536, 768, 50304),
    GPT2("gpt2-350m", 24, 32768, 1024, 50304),
};

typedef struct settings {
    int id;
    uint32_t tile, stages, custom, swizzle, split;
    uint16_t cluster, inner;
} settings;

typedef struct algorithm {
    cublasLtMatmulAlgo_t algo;
    double seconds, hot; /* hot: TFLOP/s */
    bool same;           /* bits as the first */
    float waves;
} algorithm;

typedef struct bench {
    tri_device device;
    tri_cuda *cuda;
    char *memory;
    size_t bytes;
    tri_cuda_product p;
    void *first; /* result of the first choice */
    cudaEvent_t begin, end;
    __typeof__(&cublasLtMatmulAlgoInit) init;
    __typeof__(&cublasLtMatmulAlgoCheck) check;
    __typeof__(&cublasLtMatmulAlgoCapGetAttribute) cap;
    __typeof__(&cublasLtMatmulAlgoConfigSetAttribute) set;
    __typeof__(&cublasLtMatmulAlgoConfigGetAttribute) get;
    algorithm found[MOST];
    int num_found, num_tried;
    long num_checks;
    double check_seconds; /* on the host */
} bench;

static bool find_entries(bench *b)
{
    const struct {
        const char *name;
        void *to;
    } entries[] = {{"cublasLtMatmulAlgoInit", &b->init},
                   {"cublasLtMatmulAlgoCheck", &b->check},
                   {"cublasLtMatmulAlgoCapGetAttribute", &b->cap},
                   {"cublasLtMatmulAlgoConfigSetAttribute", &b->set},
                   {"cublasLtMatmulAlgoConfigGetAttribute", &b->get}};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *entry = dlsym(b->cuda->blas->library, entries[i].name);
        if (!entry)
            return false;
        memcpy(entries[i].to, &entry, sizeof entry);
    }
    return true;
}

static settings settings_of(const bench *b, const cublasLtMatmulAlgo_t *algo)
{
    settings s = {0};
    size_t written;
    b->get(algo, CUBLASLT_ALGO_CONFIG_ID, &s.id, sizeof s.id, &written);
    b->get(algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &s.tile, sizeof s.tile, &written);
    b->get(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, &s.stages, sizeof s.stages, &written);
    b->get(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &s.custom, sizeof s.custom, &written);
    b->get(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &s.swizzle, sizeof s.swizzle, &written);
    b->get(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &s.split, sizeof s.split, &written);
    b->get(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &s.cluster, sizeof s.cluster, &written);
    b->get(algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, &s.inner, sizeof s.inner, &written);
    return s;
}

/* ---- operands ---- */

static bool place(bench *b, const product *q)
{
    bool third = q->end == TRI_EPILOGUE_BIAS_GELU || q->end == TRI_EPILOGUE_GELU_GRAD ||
                 q->end == TRI_EPILOGUE_ADD;
    size_t c = (size_t)(q->m * q->n) * (q->kind == 'w' ? 4 : 2);
    size_t sizes[] = {(size_t)(q->m * q->k) * 2,
                      (size_t)(q->k * q->n) * 2,
                      (size_t)q->n * 4,
                      c,
                      c,
                      third ? c : 0};
    char *at = b->memory, *parts[6];
    for (int i = 0; i < 6; i++) {
        parts[i] = at;
        at += (sizes[i] + 1023) / 1024 * 1024;
    }
    if (at > b->memory + b->bytes)
        return false;
    b->p = (tri_cuda_product){.m = q->m,
                              .n = q->n,
                              .k = q->k,
                              .a = parts[0],
                              .b = parts[1],
                              .c = parts[3],
                              .trans_a = q->kind == 'w',
                              .trans_b = q->kind == 'y',
                              .in = TRI_BF16,
                              .out = q->kind == 'w' ? TRI_F32 : TRI_BF16,
                              .alpha = 1,
                              .epilogue = q->end,
                              .bias = parts[2]};
    b->first = parts[4];
    if (q->end == TRI_EPILOGUE_ADD)
        b->p.add = parts[5];
    else if (third)
        b->p.aux = parts[5];
    void *stream = b->cuda->stream;
    tri_cuda_fill_noise(parts[0], q->m * q->k, TRI_BF16, stream);
    tri_cuda_fill_noise(parts[1], q->k * q->n, TRI_BF16, stream);
    tri_cuda_fill_noise(parts[2], q->n, b->p.out, stream);
    if (third)
        tri_cuda_fill_noise(parts[5], q->m * q->n, b->p.out, stream);
    return true;
}

/* ---- measurements ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of a call; 0 when it does not work. */
static double seconds(bench *b, const cublasLtMatmulAlgo_t *algo, int times, bool warm)
{
    tri_blas_plan *p = tri_cuda_blas_plan(b->cuda, &b->p);
    float ms = 0;
    bool good = p && (!warm || tri_cuda_blas_call(b->cuda, p, &b->p, algo)) &&
                cudaEventRecord(b->begin, b->cuda->stream) == cudaSuccess;
    for (int i = 0; good && i < times; i++)
        good = tri_cuda_blas_call(b->cuda, p, &b->p, algo);
    good = cudaEventRecord(b->end, b->cuda->stream) == cudaSuccess && good &&
           cudaEventSynchronize(b->end) == cudaSuccess &&
           cudaEventElapsedTime(&ms, b->begin, b->end) == cudaSuccess;
    if (!good)
        cudaGetLastError();
    return good ? (double)ms * 1e-3 / times : 0;
}

static bool is_known(const bench *b, const cublasLtMatmulAlgo_t *algo)
{
    for (int i = 0; i < b->num_found; i++)
        if (memcmp(&b->found[i].algo, algo, sizeof *algo) == 0)
            return true;
    return false;
}

/* Tries one and keeps it when it works. */
static void try_algo(bench *b, const cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    tri_blas_plan *p = tri_cuda_blas_plan(b->cuda, &b->p);
    if (b->num_found == MOST || is_known(b, algo))
        return;
    double begin = now();
    bool good = b->check(b->cuda->blas->handle, p->desc, p->a, p->b, p->c, p->c, algo, &result) ==
                    CUBLAS_STATUS_SUCCESS &&
                result.workspaceSize <= TRI_CUDA_BLAS_WORKSPACE;
    b->num_checks++;
    b->check_seconds += now() - begin;
    if (!good)
        return;
    double area = (double)b->p.m * (double)b->p.n / (132.0 * (double)result.wavesCount);
    if (b->num_found > 0 && result.wavesCount > 0 && area < LEAST_AREA && b->p.n > 256 &&
        b->p.m > 256)
        return;
    b->num_tried++;
    algorithm *a = &b->found[b->num_found];
    *a = (algorithm){.algo = *algo, .waves = result.wavesCount};
    a->seconds = seconds(b, algo, 2, true);
    if (a->seconds <= 0)
        return;
    unsigned differs = 0;
    size_t bytes = (size_t)(b->p.m * b->p.n) * tri_dtype_bytes(b->p.out);
    if (b->num_found == 0)
        cudaMemcpyAsync(b->first, b->p.c, bytes, cudaMemcpyDeviceToDevice, b->cuda->stream);
    else
        tri_cuda_compare(b->cuda, b->p.c, b->first, bytes, &differs);
    a->same = !differs;
    b->num_found++;
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const algorithm *)a)->seconds, y = ((const algorithm *)b)->seconds;
    return x < y ? -1 : x > y;
}

/* Tiles with the settings of a known algorithm, then clusters, options and stages of the best. */
static void search(bench *b, double limit)
{
    static const uint16_t clusters[] = {2, 3, 5, 6, 4, 8};
    double until = now() + limit;
    int named = b->num_found;
    for (int i = 0; i < named; i++) {
        cublasLtMatmulAlgo_t base = b->found[i].algo;
        settings s = settings_of(b, &base);
        bool again = false; /* tiles of one like this have been tried */
        for (int j = 0; j < i; j++) {
            settings o = settings_of(b, &b->found[j].algo);
            again |= o.id == s.id && o.custom == s.custom && o.cluster == s.cluster;
        }
        uint32_t tiles[MOST_TILES];
        size_t written = 0;
        if (again || b->cap(&base, CUBLASLT_ALGO_CAP_TILE_IDS, tiles, sizeof tiles, &written) !=
                         CUBLAS_STATUS_SUCCESS)
            continue;
        for (size_t t = 0; t < written / sizeof *tiles && now() < until - limit / 3; t++)
            if (b->set(&base, CUBLASLT_ALGO_CONFIG_TILE_ID, &tiles[t], sizeof *tiles) ==
                CUBLAS_STATUS_SUCCESS)
                try_algo(b, &base);
    }
    qsort(b->found, (size_t)b->num_found, sizeof *b->found, by_seconds);
    int best = b->num_found < BEST_TILES ? b->num_found : BEST_TILES;
    for (int i = 0; i < best; i++)
        for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++) {
            cublasLtMatmulAlgo_t algo = b->found[i].algo;
            b->set(&algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &clusters[c], sizeof *clusters);
            int32_t most = 0;
            size_t written;
            if (b->cap(&algo, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &most, sizeof most, &written) !=
                CUBLAS_STATUS_SUCCESS)
                most = 0;
            for (int32_t option = 0; option <= most && option < 16 && now() < until; option++) {
                uint32_t value = (uint32_t)option;
                b->set(&algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &value, sizeof value);
                try_algo(b, &algo);
            }
        }
    qsort(b->found, (size_t)b->num_found, sizeof *b->found, by_seconds);
}

/* All in turns, without a rest. */
static void measure_hot(bench *b, algorithm **which, int num)
{
    double flops = 2e-12 * (double)b->p.m * (double)b->p.n * (double)b->p.k;
    double rates[FINAL + 3][TURNS];
    for (int t = 0; t < TURNS; t++)
        for (int i = 0; i < num; i++) {
            int times = (int)(TURN_SECONDS / which[i]->seconds) + 1;
            double s = seconds(b, &which[i]->algo, times, false);
            rates[i][t] = s > 0 ? flops / s : 0;
        }
    for (int i = 0; i < num; i++) {
        for (int x = 1; x < TURNS; x++)
            for (int y = x; y > 0 && rates[i][y] < rates[i][y - 1]; y--) {
                double swap = rates[i][y];
                rates[i][y] = rates[i][y - 1];
                rates[i][y - 1] = swap;
            }
        which[i]->hot = rates[i][TURNS / 2];
    }
}

static void print_algo(const bench *b, const char *what, const algorithm *a)
{
    settings s = settings_of(b, &a->algo);
    printf("  %s %.0f%s (%.0f; %d/%u/%u/%u/%u%s)", what, a->hot, a->same ? "" : "*",
           2e-12 * (double)b->p.m * (double)b->p.n * (double)b->p.k / a->seconds, s.id, s.tile,
           s.stages, s.cluster, s.custom, s.split > 1 ? " split" : "");
    if (a->waves > 0)
        printf(" waves %.2f", (double)a->waves);
}

/* Seconds of a step for the first, the tuned, the best with the same bits, the best. */
static void run(bench *b, const product *q, double total[4])
{
    cublasLtMatmulHeuristicResult_t named[MOST_NAMED];
    b->num_found = b->num_tried = 0;
    if (!place(b, q)) {
        printf("%s %s: no room\n", q->model, q->name);
        return;
    }
    tri_cuda_blas_tune(b->cuda, &b->p);
    tri_blas_plan *p = tri_cuda_blas_plan(b->cuda, &b->p);
    if (!p || !p->usable) {
        printf("%s %s: better apart\n", q->model, q->name);
        return;
    }
    algorithm tuned = {.algo = p->algo, .same = true};
    int num = tri_cuda_blas_choices(b->cuda->blas, p, named, MOST_NAMED);
    for (int i = 0; i < num; i++)
        try_algo(b, &named[i].algo);
    if (b->num_found == 0)
        return;
    algorithm first = b->found[0];
    int listed = b->num_found;
    double once = first.seconds;
    search(b, once > 2e-3 ? 2 * SEARCH_SECONDS : SEARCH_SECONDS);
    tuned.seconds = seconds(b, &tuned.algo, 2, true);
    algorithm *which[FINAL + 3] = {&first, &tuned};
    int chosen = 2;
    for (int i = 0; i < b->num_found && chosen < FINAL + 2; i++)
        which[chosen++] = &b->found[i];
    for (int i = 0; i < b->num_found; i++) /* and one with the same bits, whatever its place */
        if (b->found[i].same) {
            which[chosen++] = &b->found[i];
            break;
        }
    measure_hot(b, which, chosen);
    const algorithm *same = &tuned, *any = &tuned;
    for (int i = 0; i < chosen; i++) {
        if (which[i]->hot > any->hot)
            any = which[i];
        if (which[i]->same && which[i]->hot > same->hot)
            same = which[i];
    }
    double gflops = 2e-12 * (double)q->m * (double)q->n * (double)q->k * q->times;
    total[0] += gflops / first.hot;
    total[1] += gflops / tuned.hot;
    total[2] += gflops / same->hot;
    total[3] += gflops / any->hot;
    printf("%-10s %-11s x%-2d %3d named, %3d tried:", q->model, q->name, q->times, listed,
           b->num_tried);
    print_algo(b, "first", &first);
    print_algo(b, "tuned", &tuned);
    print_algo(b, "best", same);
    if (any != same)
        print_algo(b, "other bits", any);
    printf("\n");
    fflush(stdout);
}

static bool is_wanted(const char *model, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], model) == 0)
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    static bench b = {.bytes = (size_t)24 << 30};
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda", .isa = "auto"};
    if (tri_device_open(&config, &b.device, &err) != TR_OK ||
        b.device.def->queue->start(&b.device, 0, &err) != TR_OK ||
        b.device.def->reserve_scratch(&b.device, TRI_CUDA_BLAS_WORKSPACE, &err) != TR_OK) {
        printf("%s\n", err.message);
        return 1;
    }
    b.cuda = b.device.state;
    b.memory = b.device.def->alloc(b.bytes);
    if (!b.memory || !find_entries(&b) || cudaEventCreate(&b.begin) != cudaSuccess ||
        cudaEventCreate(&b.end) != cudaSuccess) {
        printf("the GPU has too little memory, or cuBLASLt is too old\n");
        return 1;
    }
    printf("TFLOP/s when hot (in the search); * other bits than the first\n");
    double total[4] = {0};
    size_t num = sizeof products / sizeof *products;
    for (size_t i = 0; i < num; i++) {
        if (!is_wanted(products[i].model, argc, argv))
            continue;
        run(&b, &products[i], total);
        if (i + 1 == num || strcmp(products[i + 1].model, products[i].model) != 0) {
            printf("%s: products of a step: first %.1f ms, tuned %.1f, best with the same bits "
                   "%.1f, best %.1f\n",
                   products[i].model, total[0] * 1e3, total[1] * 1e3, total[2] * 1e3,
                   total[3] * 1e3);
            memset(total, 0, sizeof total);
        }
    }
    printf("%ld settings checked, %.1f us each\n", b.num_checks,
           1e6 * b.check_seconds / (double)(b.num_checks ? b.num_checks : 1));
    b.device.def->free(b.memory, b.bytes);
    tri_device_close(&b.device);
    return 0;
}

#endif
