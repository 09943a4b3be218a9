/* The sum of base/checksum.h over memory of the device: in parts that the host adds up, or added to
 * a word of the device's memory. */
#include "device/cuda/sum.h"

enum { THREADS = 512 };

static __device__ unsigned long long term(unsigned long long number, unsigned long long word)
{
    unsigned long long t = word ^ (number + 1) * 0x9E3779B97F4A7C15ull;
    t = (t ^ t >> 32) * 0xFF51AFD7ED558CCDull;
    return t ^ t >> 29;
}

/* The sum of a block, in its first thread. */
static __device__ unsigned long long total_of_block(unsigned long long total)
{
    __shared__ unsigned long long warps[THREADS / 32];
    for (int step = 16; step > 0; step /= 2)
        total += __shfl_down_sync(0xffffffff, total, step);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = total;
    __syncthreads();
    for (int i = 1; threadIdx.x == 0 && i < THREADS / 32; i++)
        total += warps[i];
    return total;
}

/* The bytes of a word that is not whole; the first is the lowest. */
static __device__ unsigned long long last_word(const unsigned char *bytes, int num)
{
    unsigned long long word = 0;
    for (int i = 0; i < num; i++)
        word |= (unsigned long long)bytes[i] << 8 * i;
    return word;
}

/* Integers are added up: the order does not matter. */
static __global__ void sum_words(const unsigned long long *words, size_t num_words,
                                 const unsigned char *rest, int num_rest, unsigned long long *parts)
{
    unsigned long long total = 0;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < num_words;
         i += (size_t)gridDim.x * THREADS)
        total += term(i, words[i]);
    if (blockIdx.x == 0 && threadIdx.x == 0 && num_rest > 0)
        total += term(num_words, last_word(rest, num_rest));
    total = total_of_block(total);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = total;
}

/* Words are put together from pieces that are aligned as the memory is, the first the lowest: a
 * word is the same wherever it lies. */
template <typename Piece>
static __device__ unsigned long long word_at(const Piece *pieces, size_t number)
{
    constexpr int NUM = 8 / sizeof(Piece);
    unsigned long long word = 0;
#pragma unroll
    for (int k = 0; k < NUM; k++)
        word |= (unsigned long long)pieces[number * NUM + k] << 8 * sizeof(Piece) * k;
    return word;
}

template <typename Piece>
static __global__ void add_words(const Piece *pieces, size_t num_words, int num_rest,
                                 unsigned long long first, unsigned long long *to)
{
    size_t stride = (size_t)gridDim.x * THREADS;
    unsigned long long total = 0;
#pragma unroll 4
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < num_words; i += stride)
        total += term(first + i, word_at(pieces, i));
    if (blockIdx.x == 0 && threadIdx.x == 0 && num_rest > 0)
        total += term(first + num_words,
                      last_word((const unsigned char *)pieces + 8 * num_words, num_rest));
    total = total_of_block(total);
    if (threadIdx.x == 0)
        atomicAdd(to, total);
}

/* For so many words or pieces. */
static unsigned num_blocks(size_t num)
{
    const size_t each = THREADS * 4, most = 1024;
    size_t blocks = (num + each - 1) / each;
    return (unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

template <typename Piece>
static int add(const void *from, size_t bytes, uint64_t first, uint64_t *to, void *stream)
{
    add_words<Piece><<<num_blocks(bytes / 8), THREADS, 0, (cudaStream_t)stream>>>(
        (const Piece *)from, bytes / 8, (int)(bytes % 8), first, (unsigned long long *)to);
    return cudaGetLastError();
}

template <typename Piece>
static __global__ void clear_pieces(Piece *pieces, size_t num_pieces, int num_rest)
{
    const Piece zero = {};
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < num_pieces;
         i += (size_t)gridDim.x * THREADS)
        pieces[i] = zero;
    if (blockIdx.x == 0 && threadIdx.x < num_rest)
        ((unsigned char *)(pieces + num_pieces))[threadIdx.x] = 0;
}

template <typename Piece> static int clear(void *memory, size_t bytes, void *stream)
{
    size_t pieces = bytes / sizeof(Piece);
    clear_pieces<Piece><<<num_blocks(pieces), THREADS, 0, (cudaStream_t)stream>>>(
        (Piece *)memory, pieces, (int)(bytes % sizeof(Piece)));
    return cudaGetLastError();
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

extern "C" int tri_cuda_add_sum(const void *from, size_t bytes, uint64_t first, uint64_t *to,
                                void *stream)
{
    if (bytes == 0)
        return cudaSuccess;
    uintptr_t begin = (uintptr_t)from;
    return begin % 8 == 0   ? add<unsigned long long>(from, bytes, first, to, stream)
           : begin % 4 == 0 ? add<unsigned int>(from, bytes, first, to, stream)
           : begin % 2 == 0 ? add<unsigned short>(from, bytes, first, to, stream)
                            : add<unsigned char>(from, bytes, first, to, stream);
}

/* A kernel, since others are launched before the one in front of them has ended (early.cuh). */
extern "C" int tri_cuda_clear(void *memory, size_t bytes, void *stream)
{
    if (bytes == 0)
        return cudaSuccess;
    uintptr_t begin = (uintptr_t)memory;
    return begin % 16 == 0  ? clear<uint4>(memory, bytes, stream)
           : begin % 4 == 0 ? clear<unsigned int>(memory, bytes, stream)
           : begin % 2 == 0 ? clear<unsigned short>(memory, bytes, stream)
                            : clear<unsigned char>(memory, bytes, stream);
}
