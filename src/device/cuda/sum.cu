/* The sum of base/checksum.h over memory of the device, in parts that the host adds up. */
#include "device/cuda/sum.h"

enum { THREADS = 512 };

static __device__ unsigned long long term(unsigned long long number, unsigned long long word)
{
    unsigned long long t = word ^ (number + 1) * 0x9E3779B97F4A7C15ull;
    t = (t ^ t >> 32) * 0xFF51AFD7ED558CCDull;
    return t ^ t >> 29;
}

/* Integers are added up: the order does not matter. */
static __global__ void sum_words(const unsigned long long *words, size_t num_words,
                                 const unsigned char *rest, int num_rest, unsigned long long *parts)
{
    __shared__ unsigned long long warps[THREADS / 32];
    unsigned long long total = 0;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < num_words;
         i += (size_t)gridDim.x * THREADS)
        total += term(i, words[i]);
    if (blockIdx.x == 0 && threadIdx.x == 0 && num_rest > 0) {
        unsigned long long last = 0;
        for (int i = 0; i < num_rest; i++)
            last |= (unsigned long long)rest[i] << 8 * i;
        total += term(num_words, last);
    }
    for (int step = 16; step > 0; step /= 2)
        total += __shfl_down_sync(0xffffffff, total, step);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (int i = 1; i < THREADS / 32; i++)
        total += warps[i];
    parts[blockIdx.x] = total;
}

extern "C" int tri_cuda_sum(const void *from, size_t bytes, uint64_t *parts, int num_parts,
                            void *stream)
{
    size_t words = bytes / 8;
    sum_words<<<num_parts, THREADS, 0, (cudaStream_t)stream>>>(
        (const unsigned long long *)from, words, (const unsigned char *)from + 8 * words,
        (int)(bytes % 8), (unsigned long long *)parts);
    return cudaGetLastError();
}
