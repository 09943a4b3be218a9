/* Algorithms of cuBLASLt that it does not name by itself.
 *
 * The library names up to eight for a product, with the tiles that do well for most. Its kernels
 * have tiles of a hundred other sizes, and what counts for one product is how its tiles fill the
 * multiprocessors: when 352 tiles of 128 x 256 run on 132 of them, a third of the third wave stands
 * idle, while 264 tiles of 352 x 128 are two full waves. So: all tiles that an algorithm can have,
 * in the order of how full their last wave is. Which of them are fast is for blas_tune.c to find
 * out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/blas/blas_plan.h"

enum { MOST_TILES = 1024, MOST_OPTIONS = 8 };
#define LEAST_AREA 16000.0 /* of a tile: smaller ones wait for their operands */
#define TILE_COST  1500.0  /* what a tile costs beside its area, as area */

typedef struct settings {
    int32_t id;
    uint32_t custom;
    uint16_t cluster;
} settings;

static settings settings_of(const tri_cuda_blas *blas, const cublasLtMatmulAlgo_t *algo)
{
    settings s = {0};
    size_t written;
    blas->config_get(algo, CUBLASLT_ALGO_CONFIG_ID, &s.id, sizeof s.id, &written);
    blas->config_get(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &s.custom, sizeof s.custom,
                     &written);
    blas->config_get(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &s.cluster, sizeof s.cluster,
                     &written);
    return s;
}

static uint32_t tile_of(const tri_cuda_blas *blas, const cublasLtMatmulAlgo_t *algo)
{
    uint32_t tile = 0;
    size_t written;
    blas->config_get(algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written);
    return tile;
}

/* How well an algorithm fills the GPU, up to 1; 0 when it cannot do the product. */
static double fill_of(const tri_cuda *cuda, const tri_blas_plan *p,
                      const cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    if (cuda->blas->check(cuda->blas->handle, p->desc, p->a, p->b, p->c, p->c, algo, &result) !=
            CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > TRI_CUDA_BLAS_WORKSPACE || result.wavesCount <= 0)
        return 0;
    double waves = (double)result.wavesCount;
    double area = (double)p->shape.m * (double)p->shape.n / (waves * cuda->num_sms);
    return area < LEAST_AREA ? 0 : waves / ceil(waves) * area / (area + TILE_COST);
}

typedef struct found {
    cublasLtMatmulAlgo_t algo;
    uint32_t tile;
    double fill;
} found;

static int by_fill(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->fill != y->fill)
        return x->fill > y->fill ? -1 : 1;
    return x->tile < y->tile ? -1 : x->tile > y->tile;
}

/* Each tile with the first of the named algorithms' settings that it can have. */
static size_t all_tiles(const tri_cuda *cuda, const tri_blas_plan *p,
                        const cublasLtMatmulHeuristicResult_t *named, int num, found *out)
{
    const tri_cuda_blas *blas = cuda->blas;
    size_t count = 0;
    for (int i = 0; i < num; i++) {
        settings s = settings_of(blas, &named[i].algo);
        bool again = false;
        for (int j = 0; j < i && !again; j++) {
            settings other = settings_of(blas, &named[j].algo);
            again = other.id == s.id && other.custom == s.custom && other.cluster == s.cluster;
        }
        uint32_t tiles[MOST_TILES];
        size_t bytes = 0;
        if (again || blas->cap(&named[i].algo, CUBLASLT_ALGO_CAP_TILE_IDS, tiles, sizeof tiles,
                               &bytes) != CUBLAS_STATUS_SUCCESS)
            continue;
        for (size_t t = 0; t < bytes / sizeof *tiles && count < MOST_TILES; t++) {
            bool known = false;
            for (int j = 0; j < num && !known; j++)
                known = tile_of(blas, &named[j].algo) == tiles[t];
            for (size_t j = 0; j < count && !known; j++)
                known = out[j].tile == tiles[t];
            found f = {.algo = named[i].algo, .tile = tiles[t]};
            if (known || blas->config_set(&f.algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &f.tile,
                                          sizeof f.tile) != CUBLAS_STATUS_SUCCESS)
                continue;
            f.fill = fill_of(cuda, p, &f.algo);
            if (f.fill > 0)
                out[count++] = f;
        }
    }
    return count;
}

int tri_cuda_blas_tiles(const tri_cuda *cuda, const tri_blas_plan *p,
                        const cublasLtMatmulHeuristicResult_t *named, int num,
                        cublasLtMatmulAlgo_t *out, int most)
{
    if (!cuda->blas->check)
        return 0;
    found *all = malloc(MOST_TILES * sizeof *all);
    size_t count = all ? all_tiles(cuda, p, named, num, all) : 0;
    if (count > 0)
        qsort(all, count, sizeof *all, by_fill);
    int taken = 0;
    for (size_t i = 0; i < count && taken < most; i++)
        out[taken++] = all[i].algo;
    free(all);
    return taken;
}

int tri_cuda_blas_variants(const tri_cuda *cuda, const tri_blas_plan *p,
                           const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgo_t *out, int most)
{
    static const uint16_t clusters[] = {CUBLASLT_CLUSTER_SHAPE_1x2x1, CUBLASLT_CLUSTER_SHAPE_2x1x1,
                                        CUBLASLT_CLUSTER_SHAPE_1x1x1};
    const tri_cuda_blas *blas = cuda->blas;
    if (!blas->check)
        return 0;
    settings own = settings_of(blas, algo);
    int taken = 0;
    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (uint32_t custom = 0; custom < MOST_OPTIONS && taken < most; custom++) {
            cublasLtMatmulAlgo_t other = *algo;
            if ((clusters[c] == own.cluster && custom == own.custom) ||
                blas->config_set(&other, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &clusters[c],
                                 sizeof *clusters) != CUBLAS_STATUS_SUCCESS ||
                blas->config_set(&other, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &custom,
                                 sizeof custom) != CUBLAS_STATUS_SUCCESS ||
                fill_of(cuda, p, &other) <= 0)
                continue;
            out[taken++] = other;
        }
    return taken;
}
