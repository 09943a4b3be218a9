/* RMS norm: y = x * inv * g over the last dims (attr.norm.dims), inv = 1 / sqrt(average(x^2) +
 * eps). */
#include "device/cpu/ref/ref.h"

#include <math.h>

static void norm_row(const float *x, const float *g, double eps, int64_t dim, float *y, float *rstd)
{
    double square = 0;
    for (int64_t d = 0; d < dim; d++)
        square += (double)x[d] * x[d];
    double inv = 1.0 / sqrt(square / (double)dim + eps);
    for (int64_t d = 0; d < dim; d++)
        y[d] = (float)(x[d] * inv * g[d]);
    *rstd = (float)inv;
}

static void rmsnorm(const tri_kernel_args *args)
{
    const float *x = args->in[0].data, *g = args->in[1].data;
    float *y = args->out[0].data, *rstd = args->out[1].data;
    int64_t dim = tri_norm_width(args), rows = args->in[0].count / dim;
    for (int64_t i = 0; i < rows; i++)
        norm_row(x + i * dim, g, args->attr->norm.eps, dim, y + i * dim, rstd + i);
}

static void add_rmsnorm(const tri_kernel_args *args)
{
    const float *x = args->in[0].data, *r = args->in[1].data, *g = args->in[2].data;
    float *s = args->out[0].data, *y = args->out[1].data, *rstd = args->out[2].data;
    int64_t dim = tri_norm_width(args), rows = args->in[0].count / dim;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t d = i * dim; d < (i + 1) * dim; d++)
            s[d] = x[d] + r[d];
        norm_row(s + i * dim, g, args->attr->norm.eps, dim, y + i * dim, rstd + i);
    }
}

/* With n = x * inv and dn = dy * g:   dx = inv * (dn - n * average(dn * n)) [+ ds] */
static void rmsnorm_grad(const tri_kernel_args *args)
{
    const float *dy = args->in[0].data, *x = args->in[1].data, *g = args->in[2].data;
    const float *rstd = args->in[3].data, *ds = args->in[4].data;
    float *dx = args->out[0].data;
    int64_t dim = tri_norm_width(args), rows = args->in[0].count / dim;
    for (int64_t i = 0; i < rows; i++) {
        double inv = rstd[i], avg_n = 0;
        for (int64_t d = 0; d < dim; d++)
            avg_n += (double)dy[i * dim + d] * g[d] * x[i * dim + d] * inv;
        avg_n /= (double)dim;
        for (int64_t d = 0; d < dim; d++) {
            double n = x[i * dim + d] * inv;
            double value = inv * ((double)dy[i * dim + d] * g[d] - n * avg_n);
            dx[i * dim + d] = (float)(value + (ds ? ds[i * dim + d] : 0));
        }
    }
}

static void rmsnorm_param_grad(const tri_kernel_args *args)
{
    const float *dy = args->in[0].data, *x = args->in[1].data, *rstd = args->in[2].data;
    float *dg = args->out[0].data;
    int64_t dim = tri_norm_width(args), rows = args->in[0].count / dim;
    for (int64_t d = 0; d < dim; d++) {
        double sum = 0;
        for (int64_t i = 0; i < rows; i++)
            sum += (double)dy[i * dim + d] * x[i * dim + d] * rstd[i];
        tri_ref_store(&dg[d], sum, args->overwrite);
    }
}

const tri_kernel tri_ref_rmsnorm = {.run = rmsnorm};
const tri_kernel tri_ref_add_rmsnorm = {.run = add_rmsnorm};
const tri_kernel tri_ref_rmsnorm_grad = {.run = rmsnorm_grad};
const tri_kernel tri_ref_rmsnorm_param_grad = {.run = rmsnorm_param_grad};
