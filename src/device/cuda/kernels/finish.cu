/* The end of a step in numbers: losses and statistics of the whole batch, the norm of the gradient,
 * the one factor of the update, and the next loss scale. */
#include "device/cuda/kernels/common.cuh"

#include <math.h>

namespace
{

using namespace tri;

/* Statistics that are shown; losses among them have a weight. */
struct shown_stats {
    int num;
    const float *at[TRI_MAX_SHOWN];
    float weight[TRI_MAX_SHOWN];
    unsigned means;
    unsigned stops;
    const float *limit; /* of the loss; NULL: none */
};

/* next and scaler are the same memory: the scaler's new version, or none of it. */
__global__ void finish_kernel(const float *loss, const float *count, const float *sum_squares,
                              const float *scaler, double alpha, double clip, float interval,
                              shown_stats shown, float *result, float *next)
{
    float scale = scaler ? scaler[TRI_SCALER_SCALE] : 1.0f;
    double counted = fmax((double)*count, 1.0);
    double divisor = counted * alpha * (double)scale;
    double norm = sqrt((double)*sum_squares) / divisor;
    double whole = (double)*loss;
    bool fits = true;
    for (int k = 0; k < shown.num; k++) {
        double stat = (double)*shown.at[k];
        whole += shown.weight[k] != 0 ? (double)shown.weight[k] * stat : 0.0;
        fits = fits && (!(shown.stops >> k & 1) || stat == 0);
        result[TRI_NUM_RESULT + k] = (float)(shown.means >> k & 1 ? stat / counted : stat);
    }
    result[TRI_RESULT_LOSS] = (float)(whole / counted);
    if (shown.limit)
        fits = fits && !(result[TRI_RESULT_LOSS] > *shown.limit);
    result[TRI_RESULT_NORM] = (float)norm;
    result[TRI_RESULT_FACTOR] =
        (float)(1.0 / divisor * (clip > 0 && norm > clip ? clip / norm : 1.0));
    bool ok = isfinite(whole) && isfinite(*sum_squares) && fits;
    result[TRI_RESULT_OK] = ok ? 1.0f : 0.0f;
    result[TRI_RESULT_COUNT] = *count;
    result[TRI_RESULT_SCALE] = scale;
    if (!next || !fits)
        return;
    float good = scaler[TRI_SCALER_GOOD] + 1.0f;
    bool grows = ok && good >= interval && isfinite(2.0f * scale);
    next[TRI_SCALER_SCALE] = scale * (ok ? grows ? 2.0f : 1.0f : 0.5f);
    next[TRI_SCALER_GOOD] = ok && good < interval ? good : 0.0f;
}

void finish(const tri_kernel_args *args)
{
    shown_stats shown = {};
    shown.means = args->attr->finish.means;
    shown.stops = args->attr->finish.stops;
    int limit_row = args->attr->finish.limit_row, num_stats = args->num_in - 4 - (limit_row > 0);
    if (limit_row > 0)
        shown.limit = data_of<float>(args->in[args->num_in - 1]) + limit_row;
    for (int k = 0; k < num_stats; k++, shown.num++) {
        shown.at[k] = data_of<float>(args->in[4 + k]);
        shown.weight[k] = args->attr->finish.weight[k];
    }
    finish_kernel<<<1, 1, 0, stream_of(args)>>>(
        data_of<float>(args->in[0]), data_of<float>(args->in[1]), data_of<float>(args->in[2]),
        args->num_in > 3 ? data_of<float>(args->in[3]) : nullptr, (double)args->attr->finish.alpha,
        (double)args->attr->finish.clip, (float)args->attr->finish.interval, shown,
        data_of<float>(args->out[0]), args->num_out > 1 ? data_of<float>(args->out[1]) : nullptr);
}

__global__ void fill_kernel(float *x, int64_t count, float value)
{
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        x[i] = value;
}

void fill(const tri_kernel_args *args)
{
    fill_kernel<<<1, 32, 0, stream_of(args)>>>(data_of<float>(args->out[0]), args->out[0].count,
                                               args->attr->axpby.alpha);
}

} // namespace

const tri_kernel tri_cuda_fill = {fill, nullptr, nullptr};
const tri_kernel tri_cuda_finish = {finish, nullptr, nullptr};
