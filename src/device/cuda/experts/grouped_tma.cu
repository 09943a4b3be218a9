/* Products with the matrices of experts by the copy engine and warpgroups: what is known of the
 * operands, and the plain products. */
#include "device/cuda/experts/grouped_tma.cuh"

namespace
{

using namespace tri;

typedef CUresult (*encode_map)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                               const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                               const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's, or NULL where it is too old. */
encode_map find_encode_map()
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                         cudaEnableDefault, &result);
#else
    cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess)
        cudaGetLastError();
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? (encode_map)found
                                                                         : nullptr;
}

bool make_maps(const grouped_call &call, grouped_kind kind, tma_maps &maps)
{
    bool grad = kind == GROUPED_GRAD;
    const int64_t a[] = {call.lda, call.rows};
    const int64_t b_rows[] = {call.ldb, call.rows};
    const int64_t b[] = {call.ldb, call.of_expert / call.ldb, call.experts};
    return tma_map(&maps.a, call.type, call.a, 2, a, grad ? 64 : tma_plan::M) &&
           tma_map(&maps.b, call.type, call.b, grad ? 2 : 3, grad ? b_rows : b,
                   kind == GROUPED_FORWARD ? tma_plan::N : 64);
}

template <grouped_kind KIND, typename T, typename O>
bool launch(const grouped_call &call, const tma_maps &maps, int num_sms, cudaStream_t stream)
{
    return tma_launch<tma_job<KIND, END_STORE, false>, T, O>(call, grouped_more{}, maps, num_sms,
                                                             stream);
}

template <typename T>
bool run(const grouped_call &call, grouped_kind kind, const tma_maps &maps, int num_sms,
         cudaStream_t stream)
{
    if (kind == GROUPED_FORWARD)
        return launch<GROUPED_FORWARD, T, T>(call, maps, num_sms, stream);
    if (kind == GROUPED_BACK)
        return launch<GROUPED_BACK, T, T>(call, maps, num_sms, stream);
    if (call.out_type == TRI_F32)
        return launch<GROUPED_GRAD, T, float>(call, maps, num_sms, stream);
    return launch<GROUPED_GRAD, T, T>(call, maps, num_sms, stream);
}

} // namespace

bool tri::tma_map(CUtensorMap *map, tri_dtype type, const void *data, int rank, const int64_t *size,
                  int lines)
{
    encode_map encode = find_encode_map();
    if (!encode)
        return false;
    cuuint64_t dims[3], steps[2], bytes = 2;
    cuuint32_t box[3] = {64, (cuuint32_t)lines, 1}, each[3] = {1, 1, 1};
    for (int d = 0; d < rank; d++) {
        dims[d] = (cuuint64_t)size[d];
        bytes *= dims[d];
        if (d + 1 < rank)
            steps[d] = bytes;
    }
    CUtensorMapDataType kind =
        type == TRI_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    return encode(map, kind, (cuuint32_t)rank, (void *)data, dims, steps, box, each,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool tri::grouped_tma(const grouped_call &call, grouped_kind kind, int num_sms, cudaStream_t stream)
{
    tma_maps maps = {};
    if ((kind != GROUPED_GRAD && !call.overwrite) || !takes_wgmma(call, kind) ||
        !make_maps(call, kind, maps))
        return false;
    return call.type == TRI_BF16 ? run<__nv_bfloat16>(call, kind, maps, num_sms, stream)
                                 : run<__half>(call, kind, maps, num_sms, stream);
}
