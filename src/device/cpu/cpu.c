/* The CPU as a device: a thread pool, an instruction set, memory in huge pages. */
#include "device/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "device/cpu/gemm.h"
#include "device/device.h"

typedef struct cpu_state {
    tri_cpu shared; /* first: kernels see this part */
    bool reference;
} cpu_state;

static tr_status choose_isa(const char *name, tri_isa *isa, tr_error *err)
{
    *isa = tri_isa_detect();
    if (strcmp(name, "auto") == 0)
        return TR_OK;
    for (int i = 0; i < TRI_NUM_ISA; i++) {
        if (strcmp(name, tri_isa_name((tri_isa)i)) != 0)
            continue;
        if ((tri_isa)i > *isa)
            return tri_fail(err, TR_ERROR_INPUT,
                            "run.isa is %s, but this processor goes up to %s; use auto", name,
                            tri_isa_name(*isa));
        *isa = (tri_isa)i;
        return TR_OK;
    }
    return tri_fail(err, TR_ERROR_INPUT, "run.isa is \"%s\"; known: auto, base, avx2, avx512",
                    name);
}

static tr_status open_cpu(tri_device *device, const tri_device_config *config, tr_error *err)
{
    cpu_state *state = calloc(1, sizeof *state);
    if (!state)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the device");
    state->reference = config->reference;
    tr_status status = choose_isa(config->isa, &state->shared.isa, err);
    if (status == TR_OK && device->num_threads > 1)
        status = tri_pool_create(device->num_threads, &state->shared.pool, err);
    if (status != TR_OK) {
        free(state);
        return status;
    }
    device->state = state;
    snprintf(device->description, sizeof device->description, "cpu, %d thread%s, %s",
             device->num_threads, device->num_threads == 1 ? "" : "s",
             state->reference ? "reference kernels" : tri_isa_name(state->shared.isa));
    return TR_OK;
}

static void *alloc_cpu(size_t bytes)
{
    size_t rounded = tri_device_round(bytes), huge = 2 << 20;
    if (rounded < huge) {
        void *small =
            mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return small == MAP_FAILED ? NULL : small;
    }
    /* Aligned to a huge page by mapping more and giving the ends back. */
    char *memory = mmap(NULL, rounded + huge, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    size_t before = (huge - (size_t)memory % huge) % huge;
    if (before)
        munmap(memory, before);
    munmap(memory + before + rounded, huge - before);
    memory += before;
    madvise(memory, rounded, MADV_HUGEPAGE);
    return memory;
}

static void free_cpu(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, tri_device_round(bytes));
}

static void close_cpu(tri_device *device)
{
    cpu_state *state = device->state;
    tri_pool_destroy(state->shared.pool);
    free_cpu(state->shared.scratch, state->shared.scratch_bytes);
    free(state);
}

static const tri_kernel *kernel_cpu(const tri_device *device, tri_op op)
{
    const cpu_state *state = device->state;
    const tri_kernel *fast = state->reference ? NULL : tri_cpu_fast(op, state->shared.isa);
    return fast ? fast : tri_cpu_reference(op);
}

static tr_status reserve_scratch(tri_device *device, size_t bytes, tr_error *err)
{
    tri_cpu *cpu = &((cpu_state *)device->state)->shared;
    if (bytes <= cpu->scratch_bytes)
        return TR_OK;
    free_cpu(cpu->scratch, cpu->scratch_bytes);
    cpu->scratch = alloc_cpu(bytes);
    cpu->scratch_bytes = cpu->scratch ? bytes : 0;
    device->scratch_bytes = cpu->scratch_bytes;
    if (!cpu->scratch)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %zu bytes of kernel scratch", bytes);
    return TR_OK;
}

/* The best of a few, in a tenth of a second at most where one takes less. */
static double product_seconds(tri_device *device, tri_dtype dtype, int64_t m, int64_t n, int64_t k)
{
    (void)dtype; /* 16-bit types are widened: their products are f32 products */
    enum { TRIES = 6 };
    const double enough_s = 0.1;
    tri_cpu *cpu = &((cpu_state *)device->state)->shared;
    size_t count = (size_t)(m * k + n * k + m * n), bytes = count * sizeof(float);
    if (cpu->scratch_bytes < tri_gemm_scratch_bytes(device->num_threads))
        return 0;
    float *a = alloc_cpu(bytes);
    if (!a)
        return 0;
    for (size_t i = 0; i < count; i++)
        a[i] = 1; /* zeros and denormals are not what training multiplies */
    tri_gemm gemm = {.m = m,
                     .n = n,
                     .k = k,
                     .a = a,
                     .lda = k,
                     .b = a + m * k,
                     .ldb = k,
                     .trans_b = true,
                     .c = a + m * k + n * k,
                     .ldc = n,
                     .alpha = 1};
    double best = 1e30, begin = tri_now_s();
    for (int i = 0; i < 2 || (i < TRIES && tri_now_s() - begin < enough_s); i++) {
        double start = tri_now_s();
        tri_gemm_run(cpu->pool, cpu->isa, cpu->scratch, &gemm);
        double time = tri_now_s() - start;
        best = time < best ? time : best;
    }
    free_cpu(a, bytes);
    return best;
}

/* Of products that fit the caches. */
static double peak_flops(tri_device *device, tri_dtype dtype)
{
    enum { N = 480 };
    double seconds = product_seconds(device, dtype, N, N, N);
    return seconds > 0 ? 2.0 * N * N * N / seconds : 0;
}

enum { COPY_BYTES = 64 << 20, COPY_TASKS = 64 };

static void copy_part(void *context, int task, int worker)
{
    (void)worker;
    char *memory = context;
    size_t part = COPY_BYTES / COPY_TASKS;
    memcpy(memory + COPY_BYTES + (size_t)task * part, memory + (size_t)task * part, part);
}

/* The best of a few copies that do not fit the caches. */
static double peak_bytes(tri_device *device)
{
    tri_cpu *cpu = &((cpu_state *)device->state)->shared;
    char *memory = alloc_cpu(2 * (size_t)COPY_BYTES);
    if (!memory)
        return 0;
    memset(memory, 1, 2 * (size_t)COPY_BYTES);
    double best = 1e30;
    for (int i = 0; i < 4; i++) {
        double start = tri_now_s();
        tri_pool_run(cpu->pool, COPY_TASKS, copy_part, memory);
        double time = tri_now_s() - start;
        best = time < best ? time : best;
    }
    free_cpu(memory, 2 * (size_t)COPY_BYTES);
    return 2.0 * COPY_BYTES / best;
}

/* Parts of a sum of bytes, which may be added in any order. */
typedef struct summed_parts {
    const char *data;
    size_t bytes;
    _Atomic uint64_t sum;
} summed_parts;

enum { SUM_WORDS = 1 << 14 }; /* of a task */

static void sum_part(void *context, int task, int worker)
{
    (void)worker;
    summed_parts *s = context;
    size_t first = (size_t)task * SUM_WORDS, words = s->bytes / 8;
    size_t num = words - first < SUM_WORDS ? words - first : SUM_WORDS;
    s->sum += tri_sum_words(first, s->data + 8 * first, num);
}

static uint64_t sum_cpu(const tri_device *device, const void *data, size_t bytes)
{
    const tri_cpu *cpu = &((const cpu_state *)device->state)->shared;
    size_t tasks = bytes / 8 / SUM_WORDS, done = tasks * SUM_WORDS;
    if (tasks < 2)
        return tri_sum_bytes(data, bytes);
    summed_parts s = {.data = data, .bytes = 8 * done};
    tri_pool_run(cpu->pool, (int)tasks, sum_part, &s);
    char last[8] = {0};
    size_t words = bytes / 8, rest = bytes % 8;
    uint64_t sum = s.sum + tri_sum_words(done, s.data + 8 * done, words - done);
    memcpy(last, s.data + 8 * words, rest);
    return rest ? sum + tri_sum_words(words, last, 1) : sum;
}

static const tri_fusions fusions = {
    .bias = true, .bias_gelu = true, .gelu_grad = true, .adam_copy = true};

const tri_device_def tri_device_cpu = {
    .kind = "cpu",
    .fusions = &fusions,
    .f32_only = true,
    .open = open_cpu,
    .close = close_cpu,
    .kernel = kernel_cpu,
    .alloc = alloc_cpu,
    .free = free_cpu,
    .reserve_scratch = reserve_scratch,
    .peak_flops = peak_flops,
    .product_seconds = product_seconds,
    .peak_bytes = peak_bytes,
    .sum = sum_cpu,
};
