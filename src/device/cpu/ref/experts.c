/* Rows sorted by expert, and products with the matrices of their experts. */
#include "device/cpu/ref/ref.h"

#include <math.h>

static void sort_rows(const tri_kernel_args *args)
{
    const int32_t *choice = args->in[0].data;
    int64_t count = args->in[0].count, choices = tri_ref_last(&args->in[0]), at = 0;
    int32_t *place = args->out[0].data, *row = args->out[1].data, *slot = args->out[2].data;
    int32_t *expert = args->out[3].data, experts = args->attr->route.experts;
    for (int32_t e = 0; e <= experts; e++) /* the last: whatever is none of them */
        for (int64_t i = 0; i < count; i++) {
            bool none = choice[i] < 0 || choice[i] >= experts;
            if (none ? e < experts : choice[i] != e)
                continue;
            place[i] = (int32_t)at;
            row[at] = (int32_t)(i / choices);
            slot[at] = (int32_t)i;
            expert[at++] = none ? -1 : e;
        }
}

static void grouped(const tri_kernel_args *args)
{
    const tri_tensor *w = &args->in[1];
    bool back = args->attr->grouped.back;
    int64_t n = w->size[1], k = w->size[2], inner = back ? n : k, outer = back ? k : n;
    const int32_t *expert = args->in[2].data;
    for (int64_t r = 0; r < args->in[2].count; r++) {
        const float *x = (const float *)args->in[0].data + r * inner;
        float *y = (float *)args->out[0].data + r * outer;
        const float *m = (const float *)w->data + expert[r] * n * k;
        for (int64_t j = 0; j < outer; j++) {
            double sum = 0;
            for (int64_t i = 0; expert[r] >= 0 && i < inner; i++)
                sum += (double)x[i] * (back ? m[i * k + j] : m[j * k + i]);
            y[j] = (float)sum;
        }
    }
}

static void grouped_grad(const tri_kernel_args *args)
{
    const tri_tensor *dw = &args->out[0];
    int64_t n = dw->size[1], k = dw->size[2], rows = args->in[2].count;
    const float *dy = args->in[0].data, *x = args->in[1].data;
    const int32_t *expert = args->in[2].data;
    for (int64_t e = 0; e < dw->size[0]; e++) {
        int64_t first = 0, end;
        while (first < rows && expert[first] != e)
            first++;
        for (end = first; end < rows && expert[end] == e;)
            end++;
        for (int64_t i = 0; i < n * k; i++) {
            double sum = 0;
            for (int64_t r = first; r < end; r++)
                sum += (double)dy[r * n + i / k] * x[r * k + i % k];
            tri_ref_store((float *)dw->data + e * n * k + i, sum, args->overwrite);
        }
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void swiglu_rows(const tri_kernel_args *args)
{
    const float *gate = args->in[0].data, *up = args->in[1].data, *w = args->in[2].data;
    float *y = args->out[0].data;
    int64_t width = tri_ref_last(&args->in[0]);
    for (int64_t i = 0; i < args->out[0].count; i++)
        y[i] = (float)(w[i / width] * gate[i] * sigmoid(gate[i]) * up[i]);
    if (args->num_out > 1)
        tri_ref_amax_of(&args->out[0], args->out[1].data);
}

static void swiglu_rows_grad(const tri_kernel_args *args)
{
    const float *gate = args->in[0].data, *up = args->in[1].data, *dy = args->in[2].data;
    const float *w = args->in[3].data;
    float *dgate = args->out[0].data, *dup = args->out[1].data, *dw = args->out[2].data;
    int64_t width = tri_ref_last(&args->in[0]);
    for (int64_t r = 0; r < args->in[3].count; r++) {
        double sum = 0;
        for (int64_t i = r * width; i < (r + 1) * width; i++) {
            double s = sigmoid(gate[i]), silu = gate[i] * s, d = (double)w[r] * dy[i], u = up[i];
            sum += dy[i] * silu * u;
            dgate[i] = (float)(d * u * s * (1 + gate[i] * (1 - s)));
            dup[i] = (float)(d * silu);
        }
        dw[r] = (float)sum;
    }
    for (int k = 3; k < args->num_out; k++)
        tri_ref_amax_of(&args->out[k - 3], args->out[k].data);
}

/* A row's product with column j of its expert's matrix. */
static double product(const float *x, const tri_tensor *w, int32_t expert, bool back, int64_t j)
{
    int64_t n = w->size[1], k = w->size[2], inner = back ? n : k;
    const float *m = (const float *)w->data + expert * n * k;
    double sum = 0;
    for (int64_t i = 0; expert >= 0 && i < inner; i++)
        sum += (double)x[i] * (back ? m[i * k + j] : m[j * k + i]);
    return sum;
}

static void grouped_swiglu(const tri_kernel_args *args)
{
    const int32_t *expert = args->in[2].data;
    const float *weight = args->in[4].data;
    int64_t inner = tri_ref_last(&args->in[0]), outer = tri_ref_last(&args->out[0]);
    for (int64_t i = 0; i < args->out[0].count; i++) {
        int64_t r = i / outer, j = i % outer;
        const float *x = (const float *)args->in[0].data + r * inner;
        float gate = (float)product(x, &args->in[1], expert[r], false, j);
        float up = (float)product(x, &args->in[3], expert[r], false, j);
        ((float *)args->out[0].data)[i] = (float)(weight[r] * gate * sigmoid(gate) * up);
        ((float *)args->out[1].data)[i] = gate;
        ((float *)args->out[2].data)[i] = up;
    }
}

static void grouped_swiglu_grad(const tri_kernel_args *args)
{
    tri_kernel_args part = *args;
    tri_attr attr = {.grouped = {.back = true}};
    part.attr = &attr;
    part.num_in = 3;
    part.num_out = 1;
    grouped(&part); /* dy of the activation, where dgate goes */
    part.in[0] = args->in[3];
    part.in[1] = args->in[4];
    part.in[2] = args->out[0];
    part.in[3] = args->in[5];
    part.num_in = 4;
    part.num_out = 3;
    swiglu_rows_grad(&part);
}

static void grouped_sum(const tri_kernel_args *args)
{
    const int32_t *expert = args->in[2].data;
    int64_t inner = tri_ref_last(&args->in[0]), outer = tri_ref_last(&args->out[0]);
    for (int64_t i = 0; i < args->out[0].count; i++) {
        int64_t r = i / outer, j = i % outer;
        const float *x = (const float *)args->in[0].data + r * inner;
        const float *x2 = (const float *)args->in[3].data + r * inner;
        ((float *)args->out[0].data)[i] = (float)(product(x, &args->in[1], expert[r], true, j) +
                                                  product(x2, &args->in[4], expert[r], true, j));
    }
}

static void gate_rows(const tri_kernel_args *args)
{
    const float *x = args->in[0].data, *gate = args->in[1].data;
    float *y = args->out[0].data;
    int64_t width = tri_ref_last(&args->in[0]);
    for (int64_t i = 0; i < args->out[0].count; i++)
        y[i] = (float)(x[i] * sigmoid(gate[i / width]));
}

static void gate_rows_grad(const tri_kernel_args *args)
{
    const float *dy = args->in[0].data, *x = args->in[1].data, *gate = args->in[2].data;
    float *dx = args->out[0].data, *dgate = args->out[1].data;
    int64_t width = tri_ref_last(&args->in[0]);
    for (int64_t r = 0; r < args->in[2].count; r++) {
        double s = sigmoid(gate[r]), sum = 0;
        for (int64_t i = r * width; i < (r + 1) * width; i++) {
            sum += (double)dy[i] * x[i];
            dx[i] = (float)(s * dy[i]);
        }
        dgate[r] = (float)(s * (1 - s) * sum);
    }
}

const tri_kernel tri_ref_sort_rows = {.run = sort_rows};
const tri_kernel tri_ref_grouped = {.run = grouped};
const tri_kernel tri_ref_grouped_grad = {.run = grouped_grad};
const tri_kernel tri_ref_swiglu_rows = {.run = swiglu_rows};
const tri_kernel tri_ref_swiglu_rows_grad = {.run = swiglu_rows_grad};
const tri_kernel tri_ref_gate_rows = {.run = gate_rows};
const tri_kernel tri_ref_gate_rows_grad = {.run = gate_rows_grad};
const tri_kernel tri_ref_grouped_swiglu = {.run = grouped_swiglu};
const tri_kernel tri_ref_grouped_swiglu_grad = {.run = grouped_swiglu_grad};
const tri_kernel tri_ref_grouped_sum = {.run = grouped_sum};
