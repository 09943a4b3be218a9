/* Maps a product of tensors to the GEMM of the device. */
#include "device/cpu/fast/fast.h"
#include "device/cpu/gemm.h"

#include <string.h>

/* The 2-d view: dims before the split are rows. */
static void view_of(const tri_tensor *t, int split, int64_t *rows, int64_t *cols)
{
    *rows = *cols = 1;
    for (int d = 0; d < t->rank; d++)
        *(d < split ? rows : cols) *= t->size[d];
}

static void matmul(const tri_kernel_args *args)
{
    static const tri_gemm_epilogue epilogue[] = {
        [TRI_EPILOGUE_NONE] = TRI_GEMM_PLAIN,
        [TRI_EPILOGUE_BIAS] = TRI_GEMM_BIAS,
        [TRI_EPILOGUE_BIAS_GELU] = TRI_GEMM_BIAS_GELU,
        [TRI_EPILOGUE_GELU_GRAD] = TRI_GEMM_GELU_GRAD,
        [TRI_EPILOGUE_ADD] = TRI_GEMM_PLAIN, /* onto what is added */
    };
    const tri_matmul_attr *attr = &args->attr->matmul;
    tri_cpu *cpu = cpu_of(args);
    int64_t a_rows, a_cols, b_rows, b_cols;
    view_of(&args->in[0], attr->split_a, &a_rows, &a_cols);
    view_of(&args->in[1], attr->split_b, &b_rows, &b_cols);
    tri_gemm g = {
        .m = attr->trans_a ? a_cols : a_rows,
        .n = attr->trans_b ? b_rows : b_cols,
        .k = attr->trans_a ? a_rows : a_cols,
        .a = args->in[0].data,
        .lda = a_cols,
        .trans_a = attr->trans_a,
        .b = args->in[1].data,
        .ldb = b_cols,
        .trans_b = attr->trans_b,
        .c = args->out[0].data,
        .alpha = tri_kernel_alpha(args),
        .accumulate = !args->overwrite,
        .epilogue = epilogue[attr->epilogue],
    };
    g.ldc = g.ldaux = g.n;
    if (attr->epilogue == TRI_EPILOGUE_GELU_GRAD)
        g.aux = args->in[2].data;
    else if (attr->epilogue == TRI_EPILOGUE_ADD)
        g.accumulate = true;
    else if (attr->epilogue != TRI_EPILOGUE_NONE)
        g.bias = args->in[2].data;
    if (attr->epilogue == TRI_EPILOGUE_BIAS_GELU)
        g.aux = args->out[1].data;
    if (attr->epilogue == TRI_EPILOGUE_ADD && args->out[0].count > 0)
        memcpy(args->out[0].data, args->in[2].data, (size_t)args->out[0].count * sizeof(float));
    tri_gemm_run(cpu->pool, cpu->isa, cpu->scratch, &g);
}

static size_t matmul_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)args;
    return tri_gemm_scratch_bytes(num_threads);
}

const tri_kernel TRI_ISA_NAME(tri_fast_matmul) = {.run = matmul, .scratch_bytes = matmul_scratch};
