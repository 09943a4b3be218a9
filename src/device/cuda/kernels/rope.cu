/* Rotary positions: pair (i, i + K/2) of each head turns by position * f_i.
 *
 * Frequencies come from the host, in double (device/rope.h), as turns per position. A block works
 * on a few positions: it computes the cosines and sines of each once, for all heads. The angle is
 * reduced to a part of one turn in double and only then rounded, so that positions of any size are
 * as exact as small ones. */
#include "device/cuda/kernels/early.cuh"
#include "device/rope.h"

namespace
{

using namespace tri;

constexpr int THREADS = 256;
constexpr int MOST_PAIRS = 256;     /* of a head; more take another launch */
constexpr int MOST_ANGLES = 1024;   /* of a block: positions times pairs */
constexpr int MOST_POSITIONS = 128; /* of a block */

/* Pairs first .. first + num of each head. */
struct turns_table {
    double turns[MOST_PAIRS];
    int first, num;
};

struct rope_shape {
    int64_t num_positions;
    int positions_of_block, heads, width;
    int half; /* of the part of a head that turns */
    float magnitude;
    bool inverse;
};

template <int N, typename T>
__global__ void __launch_bounds__(THREADS)
    rope_kernel(const __grid_constant__ turns_table table, rope_shape s, const T *x,
                const int32_t *position, T *y)
{
    __shared__ float cosine[MOST_ANGLES], sine[MOST_ANGLES];
    int64_t first = (int64_t)blockIdx.x * s.positions_of_block;
    int64_t left = s.num_positions - first;
    int here = left < s.positions_of_block ? (int)left : s.positions_of_block;
    await_previous();
    for (int i = (int)threadIdx.x; i < here * table.num; i += THREADS) {
        int row = i / table.num, pair = i - row * table.num;
        double turns = (double)position[first + row] * table.turns[pair];
        float c, z;
        sincospif((float)(2.0 * (turns - rint(turns))), &z, &c);
        cosine[i] = s.magnitude * c;
        sine[i] = s.magnitude * (s.inverse ? -z : z);
    }
    __syncthreads();
    int packs = table.num / N, packs_of_row = s.heads * packs;
    for (int i = (int)threadIdx.x; i < here * packs_of_row; i += THREADS) {
        int row = i / packs_of_row, rest = i - row * packs_of_row;
        int head = rest / packs, pair = (rest - head * packs) * N;
        const float *c = cosine + row * table.num + pair, *z = sine + row * table.num + pair;
        int64_t at = ((first + row) * s.heads + head) * s.width + table.first + pair;
        pack<T, N> a = load_pack<N>(x + at), b = load_pack<N>(x + at + s.half);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float p = widen(a.at[k]), q = widen(b.at[k]);
            a.at[k] = narrow<T>(p * c[k] - q * z[k]);
            b.at[k] = narrow<T>(q * c[k] + p * z[k]);
        }
        store_pack<N>(y + at, a);
        store_pack<N>(y + at + s.half, b);
    }
    if (x == y || table.first > 0)
        return;
    int rest_of_head = s.width - 2 * s.half, rest_of_row = s.heads * rest_of_head;
    for (int i = (int)threadIdx.x; i < here * rest_of_row; i += THREADS) {
        int row = i / rest_of_row, rest = i - row * rest_of_row, head = rest / rest_of_head;
        int64_t at =
            ((first + row) * s.heads + head + 1) * s.width - 1 - (rest - head * rest_of_head);
        y[at] = x[at];
    }
}

/* About two packs for each thread, and no more angles than there is room for. */
int positions_of_block(int64_t packs_of_position, int pairs)
{
    int64_t positions = ceil_div(2 * THREADS, packs_of_position);
    if (positions > MOST_POSITIONS)
        positions = MOST_POSITIONS;
    if (positions > MOST_ANGLES / pairs)
        positions = MOST_ANGLES / pairs;
    return (int)positions;
}

template <int N, typename T>
void launch(const tri_kernel_args *args, const turns_table &table, rope_shape s)
{
    s.positions_of_block = positions_of_block((int64_t)s.heads * (table.num / N), table.num);
    unsigned blocks = (unsigned)ceil_div(s.num_positions, s.positions_of_block);
    launch_early(args, rope_kernel<N, T>, blocks, THREADS, 0, table, s, data_of<T>(args->in[0]),
                 data_of<int32_t>(args->in[1]), data_of<T>(args->out[0]));
}

void rope(const tri_kernel_args *args)
{
    const tri_tensor &x = args->in[0];
    if (x.count == 0)
        return;
    rope_shape s = {};
    s.num_positions = x.size[0] * x.size[1];
    s.heads = (int)x.size[2];
    const tri_rope_config *config = &args->attr->rope.config;
    const int turned = (int)tri_rope_turned(config, x.size[3]);
    s.width = (int)x.size[3];
    s.half = turned / 2;
    s.magnitude = tri_rope_magnitude(config);
    s.inverse = args->attr->rope.inverse;
    for (int first = 0; first < s.half; first += MOST_PAIRS) {
        turns_table table = {};
        table.first = first;
        table.num = s.half - first < MOST_PAIRS ? s.half - first : MOST_PAIRS;
        for (int i = 0; i < table.num; i++)
            table.turns[i] =
                tri_rope_frequency(config, turned, first + i) / 6.283185307179586476925;
        by_type(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            constexpr int N = pack_size<T>();
            bool packs = s.half % N == 0 && s.width % N == 0 && aligned16(x.data) &&
                         aligned16(args->out[0].data);
            if (packs)
                launch<N, T>(args, table, s);
            else
                launch<1, T>(args, table, s);
        });
    }
}

} // namespace

const tri_kernel tri_cuda_rope = {rope, nullptr, nullptr};
