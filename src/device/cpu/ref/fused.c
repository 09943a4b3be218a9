/* Operators that stand for several others: each calls the portable kernels of its parts. */
#include "device/cpu/ref/ref.h"

#include <string.h>

/* The parts of a norm's backward. The sums come first: dx may lie where dy does. */
static void norm_grads(const tri_kernel_args *args, const tri_kernel *param_grad,
                       const tri_kernel *grad, int num_params, int dims)
{
    tri_kernel_args part = *args;
    part.in[2] = args->in[3];
    part.num_in = 3;
    memcpy(part.out, args->out + 1, (size_t)num_params * sizeof *part.out);
    part.num_out = num_params;
    param_grad->run(&part);
    part = *args;
    part.num_out = 1;
    part.overwrite = true;
    grad->run(&part);
    if (args->num_out == 1 + num_params)
        return;
    tri_attr attr = {.bias_grad = {.leading = (uint8_t)(args->in[0].rank - dims)}};
    part = *args;
    part.attr = &attr;
    part.in[0] = args->out[0];
    part.num_in = part.num_out = 1;
    part.out[0] = args->out[1 + num_params];
    tri_ref_bias_grad.run(&part);
}

static void layernorm_grads(const tri_kernel_args *args)
{
    norm_grads(args, &tri_ref_layernorm_param_grad, &tri_ref_layernorm_grad, 2, 1);
}

static void rmsnorm_grads(const tri_kernel_args *args)
{
    int dims = args->attr->norm.dims > 1 ? args->attr->norm.dims : 1;
    norm_grads(args, &tri_ref_rmsnorm_param_grad, &tri_ref_rmsnorm_grad, 1, dims);
}

/* A row at a time, with its three statistics on the stack. */
static void cross_entropy(const tri_kernel_args *args)
{
    const tri_tensor *logits = &args->in[0];
    int64_t rows = args->in[1].count, vocab = rows > 0 ? logits->count / rows : 0;
    float *loss = args->out[0].data, *count = args->out[1].data;
    double sum = args->overwrite ? 0 : (double)*loss, num = args->overwrite ? 0 : (double)*count;
    tri_head_stats head = tri_cpu_head_begin(args);
    for (int64_t i = 0; i < rows; i++) {
        float stats[3], row_loss, row_count, lse;
        tri_kernel_args part = *args;
        part.overwrite = true;
        part.num_out = 3;
        part.in[0].data = (float *)logits->data + i * vocab;
        part.in[0].count = vocab;
        part.in[1].data = (int32_t *)args->in[1].data + i;
        part.in[1].count = 1;
        part.out[0].data = stats;
        tri_ref_ce_stats.run(&part);
        part.in[0].data = stats;
        part.out[0].data = &row_loss;
        part.out[1].data = &row_count;
        part.out[2].data = &lse;
        tri_ref_ce_loss.run(&part);
        if (*(const int32_t *)part.in[1].data >= 0)
            tri_cpu_head_row(args, &head, stats, (double)lse);
        sum += (double)row_loss;
        num += (double)row_count;
        part.in[0] = *logits;
        part.in[0].data = (float *)logits->data + i * vocab;
        part.in[2].data = &lse;
        part.in[3] = args->in[2];
        part.num_in = args->num_in + 1;
        part.out[0].data = (float *)args->out[2].data + i * vocab;
        tri_ref_ce_grad.run(&part);
    }
    *loss = (float)sum;
    *count = (float)num;
    tri_cpu_head_end(args, &head);
}

const tri_kernel tri_ref_layernorm_grads = {.run = layernorm_grads};
const tri_kernel tri_ref_rmsnorm_grads = {.run = rmsnorm_grads};
const tri_kernel tri_ref_cross_entropy = {.run = cross_entropy};
