/* Products with the matrices of experts, of 8-bit operands: cut into tiles as those of 16 bits
 * (grouped.cuh), with all operands along k:
 *     grouped8         a: rows of x          b: w[e], n rows of k
 *     grouped8, back   a: rows of x          b: n rows, of which expert e has k from e k on
 *     grouped8_grad    a: m rows of dy^T     b: n rows of x^T; k are the rows of an expert */
#ifndef TRI_DEVICE_CUDA_EXPERTS_GROUPED8_CUH
#define TRI_DEVICE_CUDA_EXPERTS_GROUPED8_CUH

#include "device/cuda/experts/grouped.cuh"

namespace tri
{

struct grouped8_call {
    grouped_call of; /* type: of a */
    tri_dtype type_b;
    const float *scale_a, *scale_b;
    bool fast_sum;
};

/* Hopper's warpgroups; false for operands that they are not made for, or on other GPUs. */
bool grouped8_tma(const grouped8_call &call, grouped_kind kind, int num_sms, cudaStream_t stream);

} // namespace tri

#endif
