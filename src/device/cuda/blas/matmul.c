/* Maps a product of tensors to cuBLASLt; what that has no epilogue for is done after it. */
#include "device/cuda/blas/blas.h"

#include <cuda_runtime_api.h>

/* The 2-d view: dims before the split are rows. */
static void view_of(const tri_tensor *t, int split, int64_t *rows, int64_t *cols)
{
    *rows = *cols = 1;
    for (int d = 0; d < t->rank; d++)
        *(d < split ? rows : cols) *= t->size[d];
}

static tri_cuda_product product_of(const tri_kernel_args *args)
{
    const tri_matmul_attr *attr = &args->attr->matmul;
    int64_t a_rows, a_cols, b_rows, b_cols;
    view_of(&args->in[0], attr->split_a, &a_rows, &a_cols);
    view_of(&args->in[1], attr->split_b, &b_rows, &b_cols);
    tri_cuda_product product = {
        .m = attr->trans_a ? a_cols : a_rows,
        .n = attr->trans_b ? b_rows : b_cols,
        .k = attr->trans_a ? a_rows : a_cols,
        .a = args->in[0].data,
        .trans_a = attr->trans_a,
        .b = args->in[1].data,
        .trans_b = attr->trans_b,
        .c = args->out[0].data,
        .in = args->in[0].dtype,
        .in_b = args->in[1].dtype,
        .fast_sum = attr->fast_sum,
        .out = args->out[0].dtype,
        .alpha = attr->alpha,
        .accumulate = !args->overwrite,
        .epilogue = attr->epilogue,
    };
    if (attr->epilogue == TRI_EPILOGUE_GELU_GRAD)
        product.aux = args->in[2].data;
    else if (attr->epilogue == TRI_EPILOGUE_ADD)
        product.add = args->in[2].data;
    else if (attr->epilogue != TRI_EPILOGUE_NONE)
        product.bias = args->in[2].data;
    if (attr->epilogue == TRI_EPILOGUE_BIAS_GELU)
        product.aux = args->out[1].data;
    if (args->num_in > 3) {
        product.scale_a = args->in[3].data;
        product.scale_b = args->in[4].data;
    }
    return product;
}

static void matmul(const tri_kernel_args *args)
{
    tri_cuda *cuda = args->device;
    tri_cuda_product product = product_of(args);
    if (tri_cuda_blas_run(cuda, &product))
        return;
    tri_cuda_product plain = product;
    bool adds = product.epilogue == TRI_EPILOGUE_ADD;
    plain.epilogue = TRI_EPILOGUE_NONE;
    plain.bias = plain.add = NULL;
    plain.aux = NULL;
    plain.accumulate = adds || product.accumulate;
    if (adds && product.add != product.c)
        cudaMemcpyAsync(product.c, product.add,
                        (size_t)args->out[0].count * tri_dtype_bytes(product.out),
                        cudaMemcpyDeviceToDevice, cuda->stream);
    if (product.epilogue == TRI_EPILOGUE_NONE || !tri_cuda_blas_run(cuda, &plain))
        tri_cuda_plain_product(cuda, &plain);
    if (product.epilogue != TRI_EPILOGUE_NONE && !adds)
        tri_cuda_epilogue(cuda, &product);
}

void tri_cuda_matmul_prepare(const tri_kernel_args *args)
{
    tri_cuda_product product = product_of(args);
    tri_cuda_blas_tune(args->device, &product);
}

static size_t matmul_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)args;
    (void)num_threads;
    return TRI_CUDA_BLAS_WORKSPACE;
}

const tri_kernel tri_cuda_matmul = {.run = matmul, .scratch_bytes = matmul_scratch};
