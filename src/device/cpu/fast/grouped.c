/* Products of rows with the matrices of their experts.
 *
 * Rows are sorted by expert, so an expert has a block of them: each expert is a product of its own,
 * and all are one list for the GEMM of the device. Which block is whose is in the data. The cut of
 * a product along k does not depend on how many rows there are, so neither do the bits of a row;
 * those of a gradient, which is summed over the rows of an expert, do. */
#include "device/cpu/fast/fast.h"
#include "device/cpu/gemm.h"

/* The first row whose expert is no less than e. Rows without one (negative) are behind all. */
static int64_t first_row(const int32_t *expert, int64_t num_rows, int64_t e)
{
    int64_t low = 0, high = num_rows;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (expert[middle] < 0 || expert[middle] >= e)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The list lies in the scratch behind what the GEMM needs. */
static size_t gemm_bytes(int64_t num_experts, int num_threads)
{
    return (tri_gemm_list_scratch_bytes(num_threads, num_experts) + 63) / 64 * 64;
}

static tri_gemm *list_of(const tri_kernel_args *args, int64_t num_experts)
{
    tri_cpu *cpu = cpu_of(args);
    return (tri_gemm *)((char *)cpu->scratch +
                        gemm_bytes(num_experts, cpu->pool ? tri_pool_threads(cpu->pool) : 1));
}

static void run_list(const tri_kernel_args *args, const tri_gemm *list, int64_t count)
{
    tri_cpu *cpu = cpu_of(args);
    tri_gemm_run_list(cpu->pool, cpu->isa, cpu->scratch, list, count);
}

static void grouped(const tri_kernel_args *args)
{
    const tri_tensor *w = &args->in[1];
    bool back = args->attr->grouped.back;
    int64_t experts = w->size[0], n = w->size[1], k = w->size[2], num_rows = args->in[2].count;
    int64_t inner = back ? n : k, outer = back ? k : n, from = 0;
    tri_gemm *list = list_of(args, experts);
    for (int64_t e = 0; e < experts; e++) {
        int64_t end = first_row(args->in[2].data, num_rows, e + 1);
        list[e] = (tri_gemm){
            .m = end - from,
            .n = outer,
            .k = inner,
            .a = (const float *)args->in[0].data + from * inner,
            .lda = inner,
            .b = (const float *)w->data + e * n * k,
            .ldb = k,
            .trans_b = !back,
            .c = (float *)args->out[0].data + from * outer,
            .ldc = outer,
            .alpha = 1,
        };
        from = end;
    }
    run_list(args, list, experts);
    if (from < num_rows)
        memset((float *)args->out[0].data + from * outer, 0,
               (size_t)((num_rows - from) * outer) * sizeof(float));
}

static size_t grouped_scratch(const tri_kernel_args *args, int num_threads)
{
    int64_t experts = args->in[1].size[0];
    return gemm_bytes(experts, num_threads) + (size_t)experts * sizeof(tri_gemm);
}

/* An expert without rows is a product over nothing, which clears its gradient; what is there
 * already stays as it is. */
static void grouped_grad(const tri_kernel_args *args)
{
    const tri_tensor *dw = &args->out[0];
    int64_t experts = dw->size[0], n = dw->size[1], k = dw->size[2], num_rows = args->in[2].count;
    int64_t from = 0, count = 0;
    tri_gemm *list = list_of(args, experts);
    for (int64_t e = 0; e < experts; e++) {
        int64_t end = first_row(args->in[2].data, num_rows, e + 1);
        if (end > from || args->overwrite)
            list[count++] = (tri_gemm){
                .m = n,
                .n = k,
                .k = end - from,
                .a = (const float *)args->in[0].data + from * n,
                .lda = n,
                .trans_a = true,
                .b = (const float *)args->in[1].data + from * k,
                .ldb = k,
                .c = (float *)dw->data + e * n * k,
                .ldc = k,
                .alpha = 1,
                .accumulate = !args->overwrite,
            };
        from = end;
    }
    run_list(args, list, count);
}

static size_t grouped_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    int64_t experts = args->out[0].size[0];
    return gemm_bytes(experts, num_threads) + (size_t)experts * sizeof(tri_gemm);
}

/* --- 8-bit operands, widened by now ---------------------------------------------------------- */

static float scale_of(const tri_tensor *a, const tri_tensor *b)
{
    return *(const float *)a->data * *(const float *)b->data;
}

static void grouped8(const tri_kernel_args *args)
{
    const tri_tensor *w = &args->in[1];
    bool back = args->attr->grouped.back;
    int64_t experts = w->size[back ? 1 : 0], n = w->size[back ? 0 : 1], k = w->size[2];
    int64_t num_rows = args->in[2].count, from = 0;
    tri_gemm *list = list_of(args, experts);
    for (int64_t e = 0; e < experts; e++) {
        int64_t end = first_row(args->in[2].data, num_rows, e + 1);
        list[e] = (tri_gemm){
            .m = end - from,
            .n = n,
            .k = k,
            .a = (const float *)args->in[0].data + from * k,
            .lda = k,
            .b = (const float *)w->data + e * (back ? k : n * k),
            .ldb = back ? experts * k : k,
            .trans_b = true,
            .c = (float *)args->out[0].data + from * n,
            .ldc = n,
            .alpha = scale_of(&args->in[3], &args->in[4]),
        };
        from = end;
    }
    run_list(args, list, experts);
    if (from < num_rows)
        memset((float *)args->out[0].data + from * n, 0,
               (size_t)((num_rows - from) * n) * sizeof(float));
}

static size_t grouped8_scratch(const tri_kernel_args *args, int num_threads)
{
    int64_t experts = args->in[1].size[args->attr->grouped.back ? 1 : 0];
    return gemm_bytes(experts, num_threads) + (size_t)experts * sizeof(tri_gemm);
}

static void grouped8_grad(const tri_kernel_args *args)
{
    const tri_tensor *dw = &args->out[0];
    int64_t experts = dw->size[0], n = dw->size[1], k = dw->size[2], num_rows = args->in[2].count;
    int64_t from = 0, count = 0;
    tri_gemm *list = list_of(args, experts);
    for (int64_t e = 0; e < experts; e++) {
        int64_t end = first_row(args->in[2].data, num_rows, e + 1);
        if (end > from || args->overwrite)
            list[count++] = (tri_gemm){
                .m = n,
                .n = k,
                .k = end - from,
                .a = (const float *)args->in[0].data + from,
                .lda = num_rows,
                .b = (const float *)args->in[1].data + from,
                .ldb = num_rows,
                .trans_b = true,
                .c = (float *)dw->data + e * n * k,
                .ldc = k,
                .alpha = scale_of(&args->in[4], &args->in[5]),
                .accumulate = !args->overwrite,
            };
        from = end;
    }
    run_list(args, list, count);
}

const tri_kernel TRI_ISA_NAME(tri_fast_grouped) = {.run = grouped,
                                                   .scratch_bytes = grouped_scratch};
const tri_kernel TRI_ISA_NAME(tri_fast_grouped_grad) = {.run = grouped_grad,
                                                        .scratch_bytes = grouped_grad_scratch};
const tri_kernel TRI_ISA_NAME(tri_fast_grouped8) = {.run = grouped8,
                                                    .scratch_bytes = grouped8_scratch};
const tri_kernel TRI_ISA_NAME(tri_fast_grouped8_grad) = {.run = grouped8_grad,
                                                         .scratch_bytes = grouped_grad_scratch};
