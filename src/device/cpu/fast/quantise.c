/* Towards 8-bit operands, with all threads. Transposes are made in blocks that fit a cache. */
#include "device/cpu/fast/fast.h"

enum { BLOCK = 64 };

typedef struct quantise_job {
    const float *x;
    const int32_t *index; /* of each row; NULL: they are in order */
    float *q, *turned;    /* NULL: not wanted */
    int64_t rows, cols;
    float inverse;
    float *sums; /* of columns */
    bool overwrite;
} quantise_job;

typedef struct amax_job {
    const float *x;
    int64_t count;
    float *out;
} amax_job;

static void amax_task(void *context, int task, int worker)
{
    (void)worker;
    const amax_job *job = context;
    const float *x = job->x;
    int64_t count = job->count, first = (int64_t)task * TRI_AMAX_RUN;
    float lanes[SUM_LANES] = {0}, largest = 0;
    for (; first < count; first += (int64_t)TRI_AMAX_PARTS * TRI_AMAX_RUN) {
        int64_t i = first, end = min_i64(count, first + TRI_AMAX_RUN);
        for (; i + SUM_LANES <= end; i += SUM_LANES)
            for (int l = 0; l < SUM_LANES; l++) {
                float a = __builtin_fabsf(x[i + l]);
                lanes[l] = a > lanes[l] ? a : lanes[l];
            }
        for (; i < end; i++) {
            float a = __builtin_fabsf(x[i]);
            largest = a > largest ? a : largest;
        }
    }
    for (int l = 0; l < SUM_LANES; l++)
        largest = lanes[l] > largest ? lanes[l] : largest;
    job->out[task] = largest;
}

void TRI_ISA_NAME(tri_fast_amax_of)(const tri_kernel_args *args, const tri_tensor *of,
                                    const tri_tensor *out)
{
    amax_job job = {of->data, of->count, out->data};
    run_tasks(args, of->count, TRI_AMAX_PARTS, amax_task, &job);
}

/* The rows of an expert: those that come first. */
static void amax(const tri_kernel_args *args)
{
    tri_tensor of = args->in[0];
    if (args->num_in > 1) {
        const int32_t *expert = args->in[1].data;
        int64_t rows = args->in[1].count, num = 0;
        while (num < rows && expert[num] >= 0)
            num++;
        of.count = rows > 0 ? of.count / rows * num : 0;
    }
    TRI_ISA_NAME(tri_fast_amax_of)(args, &of, &args->out[0]);
}

static const float *row_of(const quantise_job *job, int64_t i)
{
    return job->x + (job->index ? job->index[i] : i) * job->cols;
}

/* A task is BLOCK rows. */
static void quantise_task(void *context, int task, int worker)
{
    (void)worker;
    const quantise_job *job = context;
    int64_t first = (int64_t)task * BLOCK, end = min_i64(job->rows, first + BLOCK);
    const float *row[BLOCK];
    for (int64_t i = first; i < end; i++)
        row[i - first] = row_of(job, i);
    for (int64_t i = first; job->q && i < end; i++)
        for (int64_t j = 0; j < job->cols; j++)
            job->q[i * job->cols + j] = row[i - first][j] * job->inverse;
    for (int64_t c = 0; job->turned && c < job->cols; c += BLOCK)
        for (int64_t j = c; j < min_i64(job->cols, c + BLOCK); j++)
            for (int64_t i = first; i < end; i++)
                job->turned[j * job->rows + i] = row[i - first][j] * job->inverse;
}

/* A task is BLOCK columns. */
static void sums_task(void *context, int task, int worker)
{
    (void)worker;
    const quantise_job *job = context;
    int64_t first = (int64_t)task * BLOCK, num = min_i64(job->cols - first, BLOCK);
    double sum[BLOCK] = {0};
    for (int64_t i = 0; i < job->rows; i++)
        for (int64_t j = 0; j < num; j++)
            sum[j] += (double)row_of(job, i)[first + j];
    for (int64_t j = 0; j < num; j++)
        job->sums[first + j] =
            (float)(sum[j] + (job->overwrite ? 0 : (double)job->sums[first + j]));
}

static void quantise(const tri_kernel_args *args)
{
    const tri_quantise_attr *attr = &args->attr->quantise;
    quantise_job job = {.x = args->in[0].data, .index = args->num_in > 2 ? args->in[2].data : NULL};
    tri_cpu_quantise_sides(args, &job.rows, &job.cols);
    if (attr->straight)
        job.q = args->out[1].data;
    if (attr->turned)
        job.turned = args->out[1 + attr->straight].data;
    float scale = tri_cpu_scale8(args);
    *(float *)args->out[0].data = scale;
    job.inverse = 1 / scale;
    run_tasks(args, job.rows * job.cols, ceil_div(job.rows, BLOCK), quantise_task, &job);
    if (args->num_out > 3) {
        job.sums = args->out[3].data;
        job.overwrite = args->overwrite;
        run_tasks(args, job.rows * job.cols, ceil_div(job.cols, BLOCK), sums_task, &job);
    }
}

const tri_kernel TRI_ISA_NAME(tri_fast_amax) = {.run = amax};
const tri_kernel TRI_ISA_NAME(tri_fast_quantise) = {.run = quantise};
