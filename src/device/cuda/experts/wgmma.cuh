/* Hopper's products of a warpgroup, m64nNk16, as single instructions.
 *
 * Both operands are in shared memory, in lines of 128 bytes with their 16-byte parts exchanged as
 * grouped_stage.cuh does it. d[j][..] of lane 4 r + c of warp w is, as of mma.sync, (16 w + r, 8 j
 * + 2c..) and (16 w + r + 8, 8 j + 2c..). */
#ifndef TRI_DEVICE_CUDA_EXPERTS_WGMMA_CUH
#define TRI_DEVICE_CUDA_EXPERTS_WGMMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace tri
{

/* An operand at `at`. Along k: groups of 8 lines follow each other. Otherwise: groups of 8 k do,
 * and what is 64 further along a row is `block_bytes` away. */
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t at, uint32_t block_bytes)
{
    constexpr uint64_t GROUP_BYTES = 1024, SWIZZLE_128 = 1;
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(block_bytes >> 4) << 16 |
           GROUP_BYTES >> 4 << 32 | SWIZZLE_128 << 62;
}

/* What this thread wrote to shared memory can be seen by the tensor cores, once a barrier has told
 * others of it. */
__device__ __forceinline__ void show_to_tensor_cores()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Before the first product of a batch. */
__device__ __forceinline__ void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until all but the last NUM batches are done. */
template <int NUM> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(NUM) : "memory");
}

/* After the last of them: results are not read before. */
__device__ __forceinline__ void wgmma_results(float (&d)[32][4])
{
    wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < 32; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("" : "+f"(d[j][i])::"memory");
}

/* The results of 64 columns as operands, and their registers by number. */
#define TRI_WGMMA_8(d, j)                                                                          \
    "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3]), "+f"(d[j + 1][0]),                 \
        "+f"(d[j + 1][1]), "+f"(d[j + 1][2]), "+f"(d[j + 1][3])
#define TRI_WGMMA_64(d, j)                                                                         \
    TRI_WGMMA_8(d, j), TRI_WGMMA_8(d, j + 2), TRI_WGMMA_8(d, j + 4), TRI_WGMMA_8(d, j + 6)
#define TRI_WGMMA_R0                                                                               \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "                                                \
    "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "                                      \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TRI_WGMMA_R1                                                                               \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "                                      \
    "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "                                      \
    "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TRI_WGMMA_R2                                                                               \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, "                                      \
    "%75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "                                      \
    "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TRI_WGMMA_R3                                                                               \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, "                               \
    "%107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "                           \
    "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TRI_WGMMA(TYPE, N, REGISTERS, REST, ...)                                                   \
    asm volatile("{ .reg .pred add; setp.ne.b32 add, 1, 0; "                                       \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" REGISTERS     \
                 "}, " REST "; }"                                                                  \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "n"(A_ALONG_K ? 0 : 1), "n"(B_ALONG_K ? 0 : 1))
#define TRI_WGMMA_ANY(TYPE)                                                                        \
    if constexpr (COLUMNS == 256)                                                                  \
        TRI_WGMMA(TYPE, "256", TRI_WGMMA_R0 ", " TRI_WGMMA_R1 ", " TRI_WGMMA_R2 ", " TRI_WGMMA_R3, \
                  "%128, %129, add, 1, 1, %130, %131", TRI_WGMMA_64(d, 0), TRI_WGMMA_64(d, 8),     \
                  TRI_WGMMA_64(d, 16), TRI_WGMMA_64(d, 24));                                       \
    else if constexpr (COLUMNS == 192)                                                             \
        TRI_WGMMA(TYPE, "192", TRI_WGMMA_R0 ", " TRI_WGMMA_R1 ", " TRI_WGMMA_R2,                   \
                  "%96, %97, add, 1, 1, %98, %99", TRI_WGMMA_64(d, 0), TRI_WGMMA_64(d, 8),         \
                  TRI_WGMMA_64(d, 16));                                                            \
    else if constexpr (COLUMNS == 128)                                                             \
        TRI_WGMMA(TYPE, "128", TRI_WGMMA_R0 ", " TRI_WGMMA_R1, "%64, %65, add, 1, 1, %66, %67",    \
                  TRI_WGMMA_64(d, 0), TRI_WGMMA_64(d, 8));                                         \
    else if constexpr (COLUMNS == 64)                                                              \
        TRI_WGMMA(TYPE, "64", TRI_WGMMA_R0, "%32, %33, add, 1, 1, %34, %35", TRI_WGMMA_64(d, 0));

/* d += a b, of 16 k and the first so many columns. */
template <int COLUMNS, bool A_ALONG_K, bool B_ALONG_K>
__device__ __forceinline__ void wgmma(__nv_bfloat16, float (&d)[32][4], uint64_t a, uint64_t b)
{
    TRI_WGMMA_ANY("bf16")
}

template <int COLUMNS, bool A_ALONG_K, bool B_ALONG_K>
__device__ __forceinline__ void wgmma(__half, float (&d)[32][4], uint64_t a, uint64_t b)
{
    TRI_WGMMA_ANY("f16")
}

/* Begins the products of one stage: 64 of k, at a and b in shared memory. What is along a row, not
 * k, is in blocks of 64. */
template <int COLUMNS, bool A_ALONG_K, bool B_ALONG_K, typename T>
__device__ __forceinline__ void wgmma_stage(T type, float (&sum)[32][4], uint32_t a, uint32_t b)
{
    /* 16 of k: 32 bytes of every line, or 16 lines. */
    constexpr uint32_t LINE = 128, A_STEP = A_ALONG_K ? 32 : 16 * LINE;
    constexpr uint32_t B_STEP = B_ALONG_K ? 32 : 16 * LINE, BLOCK = 64 * LINE, UNUSED = 16;
    wgmma_begin();
#pragma unroll
    for (uint32_t step = 0; step < 4; step++)
        wgmma<COLUMNS, A_ALONG_K, B_ALONG_K>(
            type, sum, wgmma_operand(a + step * A_STEP, A_ALONG_K ? UNUSED : BLOCK),
            wgmma_operand(b + step * B_STEP, B_ALONG_K ? UNUSED : BLOCK));
    wgmma_end();
}

} // namespace tri

#endif
