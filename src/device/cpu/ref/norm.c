/* Layer norm: y = (x - mean) * inv * g + b over the last dim, inv = 1 / sqrt(var + eps). */
#include "device/cpu/ref/ref.h"

#include <math.h>

static void norm_row(const float *x, const float *g, const float *b, double eps, int64_t dim,
                     float *y, float *stats)
{
    double mean = 0, var = 0;
    for (int64_t d = 0; d < dim; d++)
        mean += x[d];
    mean /= (double)dim;
    for (int64_t d = 0; d < dim; d++)
        var += (x[d] - mean) * (x[d] - mean);
    var /= (double)dim;
    double inv = 1.0 / sqrt(var + eps);
    for (int64_t d = 0; d < dim; d++)
        y[d] = (float)((x[d] - mean) * inv * g[d] + b[d]);
    stats[0] = (float)mean;
    stats[1] = (float)inv;
}

static void layernorm(const tri_kernel_args *args)
{
    const float *x = args->in[0].data, *g = args->in[1].data, *b = args->in[2].data;
    float *y = args->out[0].data, *stats = args->out[1].data;
    int64_t dim = tri_ref_last(&args->in[0]), rows = args->in[0].count / dim;
    for (int64_t i = 0; i < rows; i++)
        norm_row(x + i * dim, g, b, args->attr->norm.eps, dim, y + i * dim, stats + i * 2);
}

static void add_layernorm(const tri_kernel_args *args)
{
    const float *x = args->in[0].data, *r = args->in[1].data;
    const float *g = args->in[2].data, *b = args->in[3].data;
    float *s = args->out[0].data, *y = args->out[1].data, *stats = args->out[2].data;
    int64_t dim = tri_ref_last(&args->in[0]), rows = args->in[0].count / dim;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t d = i * dim; d < (i + 1) * dim; d++)
            s[d] = x[d] + r[d];
        norm_row(s + i * dim, g, b, args->attr->norm.eps, dim, y + i * dim, stats + i * 2);
    }
}

/* With n = (x - mean) * inv and dn = dy * g:
 *     dx = inv * (dn - average(dn) - n * average(dn * n)) [+ ds] */
static void layernorm_grad(const tri_kernel_args *args)
{
    const float *dy = args->in[0].data, *x = args->in[1].data, *g = args->in[2].data;
    const float *stats = args->in[3].data, *ds = args->in[4].data;
    float *dx = args->out[0].data;
    int64_t dim = tri_ref_last(&args->in[0]), rows = args->in[0].count / dim;
    for (int64_t i = 0; i < rows; i++) {
        double mean = stats[i * 2], inv = stats[i * 2 + 1];
        double avg = 0, avg_n = 0;
        for (int64_t d = 0; d < dim; d++) {
            double dn = (double)dy[i * dim + d] * g[d];
            avg += dn;
            avg_n += dn * (x[i * dim + d] - mean) * inv;
        }
        avg /= (double)dim;
        avg_n /= (double)dim;
        for (int64_t d = 0; d < dim; d++) {
            double n = (x[i * dim + d] - mean) * inv;
            double dn = (double)dy[i * dim + d] * g[d];
            double value = inv * (dn - avg - n * avg_n);
            dx[i * dim + d] = (float)(value + (ds ? ds[i * dim + d] : 0));
        }
    }
}

static void layernorm_param_grad(const tri_kernel_args *args)
{
    const float *dy = args->in[0].data, *x = args->in[1].data, *stats = args->in[2].data;
    float *dg = args->out[0].data, *db = args->out[1].data;
    int64_t dim = tri_ref_last(&args->in[0]), rows = args->in[0].count / dim;
    for (int64_t d = 0; d < dim; d++) {
        double sum_g = 0, sum_b = 0;
        for (int64_t i = 0; i < rows; i++) {
            double mean = stats[i * 2], inv = stats[i * 2 + 1];
            sum_g += dy[i * dim + d] * (x[i * dim + d] - mean) * inv;
            sum_b += dy[i * dim + d];
        }
        tri_ref_store(&dg[d], sum_g, args->overwrite);
        tri_ref_store(&db[d], sum_b, args->overwrite);
    }
}

const tri_kernel tri_ref_layernorm = {.run = layernorm};
const tri_kernel tri_ref_add_layernorm = {.run = add_layernorm};
const tri_kernel tri_ref_layernorm_grad = {.run = layernorm_grad};
const tri_kernel tri_ref_layernorm_param_grad = {.run = layernorm_param_grad};
