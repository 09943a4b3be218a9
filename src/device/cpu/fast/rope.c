/* Rotary positions. The angles of a position serve all of its heads: a task makes the cosines and
 * sines of one position after the other, in scratch, from frequencies that the call computes once.
 *
 * Angles are reduced in double: position 100,000 is still right to 1e-9 of a radian. */
#include "device/rope.h"
#include "device/cpu/fast/fast.h"

typedef struct rope_job {
    const tri_kernel_args *args;
    const double *frequency; /* [half] */
    float *tables;           /* of each worker: cos [half], sin [half] */
    int64_t num_rows, heads, width;
    int64_t half; /* of the part of a head that turns */
    float magnitude;
    int64_t rows_per_task;
} rope_job;

/* Cosine and sine of position * frequency[i]. The sine of the opposite angle with sign -1. */
static void fill_table(const double *restrict frequency, double position, int64_t half, float sign,
                       float *restrict cosine, float *restrict sine)
{
    const double magic =
        6755399441055744.0; /* 1.5 * 2^52: leaves the rounded sum in the low bits */
    for (int64_t i = 0; i < half; i++) {
        double angle = position * frequency[i];
        double t = angle * 0.63661977236758134308 + magic, quarters = t - magic;
        uint64_t bits;
        memcpy(&bits, &t, sizeof bits);
        uint32_t quadrant = (uint32_t)bits;
        float r = (float)(angle - quarters * 1.57079632679489661923), rr = r * r;
        /* Cephes, for |r| <= pi/4 */
        float s =
            r + r * rr * (-1.6666654611e-1f + rr * (8.3321608736e-3f - rr * 1.9515295891e-4f));
        float c = 1.0f - 0.5f * rr +
                  rr * rr * (4.166664568e-2f + rr * (-1.388731625e-3f + rr * 2.443315712e-5f));
        float swapped_s = quadrant & 1 ? c : s, swapped_c = quadrant & 1 ? s : c;
        sine[i] = quadrant & 2 ? -sign * swapped_s : sign * swapped_s;
        cosine[i] = (quadrant + 1) & 2 ? -swapped_c : swapped_c;
    }
}

static void scale_table(float *table, int64_t count, float by)
{
    INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        table[i] *= by;
}

/* y may be x. */
static void turn_head(const float *x, const float *cosine, const float *sine, int64_t half,
                      int64_t width, float *y)
{
    if (y != x && 2 * half < width)
        memcpy(y + 2 * half, x + 2 * half, (size_t)(width - 2 * half) * sizeof *y);
    INDEPENDENT
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        y[i] = a * cosine[i] - b * sine[i];
        y[i + half] = b * cosine[i] + a * sine[i];
    }
}

static void rope_task(void *context, int task, int worker)
{
    const rope_job *job = context;
    const tri_kernel_args *args = job->args;
    const int32_t *position = args->in[1].data;
    float *cosine = job->tables + worker * 2 * job->half, *sine = cosine + job->half;
    int64_t first = task * job->rows_per_task, width = job->width;
    float sign = args->attr->rope.inverse ? -1.0f : 1.0f;
    for (int64_t row = first; row < min_i64(job->num_rows, first + job->rows_per_task); row++) {
        fill_table(job->frequency, position[row], job->half, sign, cosine, sine);
        if (job->magnitude != 1)
            scale_table(cosine, 2 * job->half, job->magnitude); /* the sines follow */
        for (int64_t h = row * job->heads; h < (row + 1) * job->heads; h++)
            turn_head((const float *)args->in[0].data + h * width, cosine, sine, job->half, width,
                      (float *)args->out[0].data + h * width);
    }
}

static size_t rope_scratch(const tri_kernel_args *args, int num_threads)
{
    size_t width = (size_t)args->in[0].size[3];
    return width / 2 * sizeof(double) + (size_t)num_threads * width * sizeof(float);
}

static void rope(const tri_kernel_args *args)
{
    const tri_tensor *x = &args->in[0];
    const tri_rope_config *config = &args->attr->rope.config;
    int64_t turned = tri_rope_turned(config, x->size[3]), half = turned / 2;
    double *frequency = cpu_of(args)->scratch;
    for (int64_t i = 0; i < half; i++)
        frequency[i] = tri_rope_frequency(config, turned, i);
    rope_job job = {.args = args,
                    .frequency = frequency,
                    .tables = (float *)(frequency + half),
                    .num_rows = x->size[0] * x->size[1],
                    .heads = x->size[2],
                    .width = x->size[3],
                    .half = half,
                    .magnitude = tri_rope_magnitude(config),
                    .rows_per_task = rows_per_task(x->size[2] * x->size[3])};
    run_tasks(args, x->count, ceil_div(job.num_rows, job.rows_per_task), rope_task, &job);
}

const tri_kernel TRI_ISA_NAME(tri_fast_rope) = {.run = rope, .scratch_bytes = rope_scratch};
