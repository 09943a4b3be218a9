/* Writing keys and values of new positions into the cache: position p of a text is at p mod P of
 * its row. Attention over it is attention (attention.cu). */
#include "device/cuda/kernels/common.cuh"

using namespace tri;

enum { THREADS = 256 };

/* k or v: [B, T, G, K] within positions `step` elements apart; the cache is [R, G, P, K]. */
struct write_call {
    void *cache;
    const void *from;
    const int32_t *positions, *rows;
    int64_t num_rows, heads, len, width, step;
    int64_t num_batch, num_pos;
};

template <typename T>
static __global__ void __launch_bounds__(THREADS) put(const __grid_constant__ write_call c)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, one = c.heads * c.width;
    int64_t pos = quotient(at, one), column = at - pos * one;
    int64_t b = quotient(pos, c.num_pos), g = quotient(column, c.width);
    if (b >= c.num_batch)
        return;
    int64_t place = c.positions[pos], row = c.rows[b];
    if (place < 0 || row < 0 || row >= c.num_rows)
        return;
    int64_t slot = (row * c.heads + g) * c.len + place % c.len;
    ((T *)c.cache)[slot * c.width + column - g * c.width] =
        ((const T *)c.from)[pos * c.step + column];
}

static void write_one(const tri_kernel_args *args, const tri_tensor *cache, const void *from,
                      int64_t step)
{
    const tri_tensor *k = &args->in[2];
    write_call c = {cache->data,
                    from,
                    data_of<int32_t>(args->in[4]),
                    data_of<int32_t>(args->in[5]),
                    cache->size[0],
                    cache->size[1],
                    cache->size[2],
                    cache->size[3],
                    step,
                    k->size[0],
                    k->size[1]};
    int64_t count = c.num_batch * c.num_pos * c.heads * c.width;
    if (count == 0)
        return;
    by_type(cache->dtype, [&](auto zero) {
        put<decltype(zero)><<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream_of(args)>>>(c);
    });
}

static void cache_write(const tri_kernel_args *args)
{
    const tri_tensor *k = &args->in[2], *k_cache = &args->out[0], *v_cache = &args->out[1];
    int64_t one = k_cache->size[1] * k_cache->size[3], bytes = one * tri_dtype_bytes(k->dtype);
    if (k->rank == 5) { /* qkv */
        write_one(args, k_cache, (const char *)k->data + bytes, 3 * one);
        write_one(args, v_cache, (const char *)k->data + 2 * bytes, 3 * one);
        return;
    }
    write_one(args, k_cache, k->data, one);
    write_one(args, v_cache, args->in[3].data, v_cache->size[1] * v_cache->size[3]);
}

const tri_kernel tri_cuda_cache_write = {cache_write, nullptr, nullptr};
