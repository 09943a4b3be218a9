/* Tensor cores and asynchronous copies, as single instructions.
 *
 * The product is m16n8k16: c[16][8] += a[16][16] b[16][8], with f32 sums. Lane l = 4 r + c of a
 * warp holds a: (r, 2c..) (r+8, 2c..) (r, 2c+8..) (r+8, 2c+8..)   each .. is two neighbours in a
 * register b: (2c.., r) (2c+8.., r)                             two neighbours along k c: (r, 2c)
 * (r, 2c+1) (r+8, 2c) (r+8, 2c+1) so two accumulators side by side, packed to 16 bits, are the left
 * operand of a next product. */
#ifndef TRI_DEVICE_CUDA_KERNELS_MMA_CUH
#define TRI_DEVICE_CUDA_KERNELS_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

static __device__ __forceinline__ uint32_t tri_shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* Four 8 x 8 matrices of 16 bits; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void tri_ldmatrix(uint32_t (&to)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
}

/* The same, each matrix transposed. */
static __device__ __forceinline__ void tri_ldmatrix_trans(uint32_t (&to)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
}

static __device__ __forceinline__ void tri_mma(__nv_bfloat16, float (&c)[4], const uint32_t (&a)[4],
                                               uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void tri_mma(__half, float (&c)[4], const uint32_t (&a)[4],
                                               uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* low in the lower half. */
static __device__ __forceinline__ uint32_t tri_pack(__nv_bfloat16, float low, float high)
{
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

static __device__ __forceinline__ uint32_t tri_pack(__half, float low, float high)
{
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* 2^x, to 2 units in the last place; 0 for -inf. */
static __device__ __forceinline__ float tri_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 16 bytes, past the L1 cache; zeros where nothing is read, and then `from` may be anywhere. */
static __device__ __forceinline__ void tri_copy16(uint32_t to, const void *from, bool read)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(read ? 16 : 0)
                 : "memory");
}

/* The same of 8 and of 4 bytes. */
static __device__ __forceinline__ void tri_copy8(uint32_t to, const void *from, bool read)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(read ? 8 : 0)
                 : "memory");
}

static __device__ __forceinline__ void tri_copy4(uint32_t to, const void *from, bool read)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(read ? 4 : 0)
                 : "memory");
}

/* Waits for all copies of this thread. */
static __device__ __forceinline__ void tri_copy_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif
