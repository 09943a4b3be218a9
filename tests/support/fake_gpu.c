#include "fake_gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checksum.h"
#include "base/rng.h"
#include "device/cpu/cpu.h"
#include "fake_gpu_uses.h"

enum { NUM_STREAMS = TRI_DEVICE_NUM_LANES + 1, QUEUE = TRI_DEVICE_NUM_LANES };

/* Something that a stream does: calls, sets an event, or awaits one. */
typedef struct task {
    void (*fn)(void *data);
    void *data;
    bool owns_data;
    int stream;
    int event; /* in a recording: its number there, -1: none */
    bool *set, *awaited;
    struct task *next;
} task;

typedef struct recording {
    task *tasks;
    size_t num, capacity;
    int num_events;
} recording;

/* How much of each stream something comes after, in a recording. */
typedef struct reach {
    uint64_t of[NUM_STREAMS];
} reach;

typedef struct stream {
    fake_gpu *gpu;
    int number;
    pthread_t thread;
    bool running, busy;
    task *first, *last;
} stream;

struct fake_gpu {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    stream streams[NUM_STREAMS];
    bool ends;
    recording *open;
    bool *point[TRI_DEVICE_NUM_POINTS]; /* outside of recordings */
    int point_in_recording[TRI_DEVICE_NUM_POINTS];
    reach clocks[NUM_STREAMS], point_clock[TRI_DEVICE_NUM_POINTS];
    fake_uses uses; /* by the messages of the recording */
    bool **kept;    /* events, until the end */
    size_t num_kept, kept_capacity;
    _Atomic uint64_t noted[TRI_DEVICE_NUM_LANES];
    bool loaded[TRI_NUM_OPS];
    int beside[TRI_NUM_OPS];
    void *lent; /* scratch of the next kernels; NULL: what is reserved */
    size_t lent_bytes;
    const char *fault;
    uint64_t slowness; /* seed; 0: none */
    _Atomic uint64_t num_slow;
};

static _Thread_local fake_gpu *here;

const char *fake_gpu_fault(const fake_gpu *gpu)
{
    return gpu->fault;
}

void fake_gpu_slow(fake_gpu *gpu, uint64_t seed)
{
    gpu->slowness = seed;
}

int fake_gpu_beside(const fake_gpu *gpu, tri_op op)
{
    return gpu->beside[op];
}

static void fault(fake_gpu *gpu, const char *what)
{
    if (!gpu->fault)
        gpu->fault = what;
}

/* ---- streams ---- */

/* A stream whose last task has set its event is idle: no one sees the one without the other. */
static void run_task(stream *s, task *t)
{
    fake_gpu *gpu = s->gpu;
    if (gpu->slowness && t->fn) {
        uint32_t draw = tri_random_word(gpu->slowness, gpu->num_slow++, 0, (uint32_t)s->number);
        struct timespec pause = {.tv_nsec = draw % 7 == 0 ? draw % 300000 : 0};
        nanosleep(&pause, NULL);
    }
    if (t->fn)
        t->fn(t->data);
    pthread_mutex_lock(&gpu->mutex);
    while (t->awaited && !*t->awaited)
        pthread_cond_wait(&gpu->changed, &gpu->mutex);
    if (t->set)
        *t->set = true;
    s->busy = false;
    pthread_mutex_unlock(&gpu->mutex);
    if (t->owns_data)
        free(t->data);
    free(t);
}

static void *work(void *argument)
{
    stream *s = argument;
    fake_gpu *gpu = s->gpu;
    here = gpu;
    pthread_mutex_lock(&gpu->mutex);
    for (;;) {
        while (!s->first && !gpu->ends)
            pthread_cond_wait(&gpu->changed, &gpu->mutex);
        task *t = s->first;
        if (!t)
            break;
        s->first = t->next;
        s->busy = true;
        pthread_mutex_unlock(&gpu->mutex);
        run_task(s, t);
        pthread_mutex_lock(&gpu->mutex);
        pthread_cond_broadcast(&gpu->changed);
    }
    pthread_mutex_unlock(&gpu->mutex);
    return NULL;
}

static void start_stream(fake_gpu *gpu, int number)
{
    stream *s = &gpu->streams[number];
    if (s->running)
        return;
    s->gpu = gpu;
    s->number = number;
    s->running = pthread_create(&s->thread, NULL, work, s) == 0;
}

static void give(fake_gpu *gpu, const task *t)
{
    task *copy = malloc(sizeof *copy);
    stream *s = &gpu->streams[t->stream];
    *copy = *t;
    copy->next = NULL;
    pthread_mutex_lock(&gpu->mutex);
    if (s->first)
        s->last->next = copy;
    else
        s->first = copy;
    s->last = copy;
    pthread_cond_broadcast(&gpu->changed);
    pthread_mutex_unlock(&gpu->mutex);
}

static bool *new_events(fake_gpu *gpu, size_t num)
{
    if (gpu->num_kept == gpu->kept_capacity) {
        gpu->kept_capacity = gpu->kept_capacity ? 2 * gpu->kept_capacity : 64;
        gpu->kept = realloc(gpu->kept, gpu->kept_capacity * sizeof *gpu->kept);
    }
    return gpu->kept[gpu->num_kept++] = calloc(num + 1, sizeof(bool));
}

/* Now, or into the recording. */
static void add(fake_gpu *gpu, task t)
{
    recording *r = gpu->open;
    if (!r) {
        give(gpu, &t);
        return;
    }
    if (t.stream != QUEUE && gpu->clocks[t.stream].of[QUEUE] == 0)
        fault(gpu, "a lane takes part in a recording without having awaited a point of it");
    gpu->clocks[t.stream].of[t.stream]++;
    if (r->num == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 64;
        r->tasks = realloc(r->tasks, r->capacity * sizeof *r->tasks);
    }
    r->tasks[r->num++] = t;
}

static void add_call(fake_gpu *gpu, int number, void (*fn)(void *data), const void *data,
                     size_t bytes)
{
    void *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    add(gpu,
        (task){.fn = fn, .data = copy, .owns_data = !gpu->open, .stream = number, .event = -1});
}

void fake_gpu_enqueue(void *handle, void (*fn)(void *data), const void *data, size_t bytes)
{
    stream *s = handle;
    add_call(s->gpu, s->number, fn, data, bytes);
}

void *fake_gpu_queue(fake_gpu *gpu)
{
    return &gpu->streams[QUEUE];
}

void fake_gpu_uses(void *handle, const void *memory, size_t bytes)
{
    const stream *s = handle;
    if (s->gpu->open)
        fake_uses_add(&s->gpu->uses, memory, bytes, s->number,
                      s->gpu->clocks[s->number].of[s->number]);
}

fake_gpu *fake_gpu_create(void)
{
    fake_gpu *gpu = here = calloc(1, sizeof *gpu);
    pthread_mutex_init(&gpu->mutex, NULL);
    pthread_cond_init(&gpu->changed, NULL);
    start_stream(gpu, QUEUE);
    return gpu;
}

void fake_gpu_destroy(fake_gpu *gpu)
{
    pthread_mutex_lock(&gpu->mutex);
    gpu->ends = true;
    pthread_cond_broadcast(&gpu->changed);
    pthread_mutex_unlock(&gpu->mutex);
    for (int i = 0; i < NUM_STREAMS; i++)
        if (gpu->streams[i].running)
            pthread_join(gpu->streams[i].thread, NULL);
    for (size_t i = 0; i < gpu->num_kept; i++)
        free(gpu->kept[i]);
    free(gpu->kept);
    free(gpu->uses.use);
    pthread_cond_destroy(&gpu->changed);
    pthread_mutex_destroy(&gpu->mutex);
    free(gpu);
    here = NULL;
}

/* ---- kernels ---- */

typedef struct kernel_call {
    tri_op op;
    tri_kernel_args args;
    void *lent;
    size_t lent_bytes;
} kernel_call;

/* Scratch that was lent is spoilt before and after: whatever else lies there is lost. */
static void run_kernel(void *data)
{
    const kernel_call *call = data;
    tri_kernel_args args = call->args;
    tri_cpu cpu = *(const tri_cpu *)args.device;
    const tri_kernel *fast = tri_cpu_fast(call->op, cpu.isa);
    const tri_kernel *kernel = fast ? fast : tri_cpu_reference(call->op);
    if (call->lent) {
        memset(call->lent, 0xff, call->lent_bytes);
        cpu.scratch = call->lent;
        cpu.scratch_bytes = call->lent_bytes;
        args.device = &cpu;
    }
    if (tri_cpu_needs_widening(call->op, &args))
        tri_cpu_run_widened(call->op, kernel, &args);
    else
        kernel->run(&args);
    if (call->lent)
        memset(call->lent, 0xff, call->lent_bytes);
}

static bool is_idle(const stream *s)
{
    return !s->first && !s->busy;
}

/* A GPU may have to be idle to load a kernel. */
static void load(fake_gpu *gpu, tri_op op)
{
    pthread_mutex_lock(&gpu->mutex);
    for (int i = 0; i < QUEUE && !gpu->loaded[op] && !gpu->open; i++)
        if (!is_idle(&gpu->streams[i]))
            fault(gpu, "a kernel was used for the first time while a message was under way");
    gpu->loaded[op] = true;
    pthread_mutex_unlock(&gpu->mutex);
}

static bool meets_message(const void *memory, size_t bytes)
{
    return memory && bytes && fake_uses_meet(&here->uses, memory, bytes, here->clocks[QUEUE].of);
}

static bool operand_meets(const tri_tensor *tensor)
{
    return meets_message(tensor->data, (size_t)tensor->count * tri_dtype_bytes(tensor->dtype));
}

/* What a kernel in a recording may not touch, and whether messages run beside it. */
static void look_at(tri_op op, const tri_kernel_args *args)
{
    const reach *queue_reach = &here->clocks[QUEUE];
    bool touches = false, beside = false;
    if (meets_message(here->lent, here->lent_bytes))
        fault(here, "a kernel was lent memory that a message under way reads or writes");
    for (int j = 0; j < args->num_in; j++)
        touches |= operand_meets(&args->in[j]);
    for (int k = 0; k < args->num_out; k++)
        touches |= operand_meets(&args->out[k]);
    if (touches)
        fault(here, "an operand of a kernel is memory that a message under way reads or writes");
    for (int i = 0; i < QUEUE; i++)
        beside |= queue_reach->of[i] < here->clocks[i].of[i];
    here->beside[op] += beside;
}

static void call_kernel(tri_op op, const tri_kernel_args *args)
{
    kernel_call call = {op, *args, here->lent, here->lent_bytes};
    load(here, op);
    if (here->open)
        look_at(op, args);
    add_call(here, QUEUE, run_kernel, &call, sizeof call);
}

/* Of different sizes, so that other things lie where only some kernels have theirs. */
static size_t scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return (size_t)(args->num_in == 1 ? 4 : 2) << 20;
}

/* clang-format off */
#define OPS(X)                                                                                     \
    X(MATMUL) X(ADD) X(BIAS_ADD) X(BIAS_GRAD) X(ACT) X(ACT_GRAD) X(DROPOUT) X(ACCUMULATE)          \
    X(AXPBY) X(CAST) X(AMAX) X(QUANTISE) X(SLICE) X(UNSLICE) X(BLOCK) X(UNBLOCK) X(SWIGLU)         \
    X(SWIGLU_GRAD) X(EMBED)                                                                        \
    X(EMBED_GRAD) X(SELECT_ROW) X(LAYERNORM) X(ADD_LAYERNORM) X(LAYERNORM_GRAD)                    \
    X(LAYERNORM_PARAM_GRAD) X(RMSNORM) X(ADD_RMSNORM) X(RMSNORM_GRAD) X(RMSNORM_PARAM_GRAD)        \
    X(ROPE) X(ATTENTION) X(ATTENTION_GRAD) X(CE_STATS) X(CE_COMBINE) X(CE_LOSS) X(CE_GRAD)         \
    X(SUM_SQUARES) X(FILL) X(FIT_ROOMS) X(FINISH) X(SGD) X(ADAM) X(NARROW)
/* clang-format on */
#define RUN(op)                                                                                    \
    static void run_##op(const tri_kernel_args *args)                                              \
    {                                                                                              \
        call_kernel(TRI_OP_##op, args);                                                            \
    }
OPS(RUN)

static const tri_kernel *kernel_of(const tri_device *device, tri_op op)
{
#define ROW(op) [TRI_OP_##op] = {.run = run_##op, .scratch_bytes = scratch},
    static const tri_kernel kernels[TRI_NUM_OPS] = {OPS(ROW)};
    (void)device;
    return kernels[op].run ? &kernels[op] : NULL;
}

/* ---- the queue ---- */

static tr_status start(tri_device *device, int index, tr_error *err)
{
    (void)device;
    (void)index;
    (void)err;
    return TR_OK;
}

static uint64_t available(const tri_device *device)
{
    (void)device;
    return (uint64_t)1 << 40;
}

typedef struct copy_call {
    void *to;
    const void *from;
    size_t bytes;
} copy_call;

static void run_copy(void *data)
{
    const copy_call *c = data;
    memcpy(c->to, c->from, c->bytes);
}

static tr_status copy(tri_device *device, void *to, const void *from, size_t bytes, tr_error *err)
{
    (void)device;
    (void)err;
    if (here->open)
        fault(here, "a copy in a recording");
    add_call(here, QUEUE, run_copy, &(copy_call){to, from, bytes}, sizeof(copy_call));
    return TR_OK;
}

/* Within the device: may be recorded. */
static tr_status copy_within(tri_device *device, void *to, const void *from, size_t bytes,
                             tr_error *err)
{
    (void)device;
    (void)err;
    add_call(here, QUEUE, run_copy, &(copy_call){to, from, bytes}, sizeof(copy_call));
    return TR_OK;
}

typedef struct sum_call {
    const void *from;
    size_t bytes;
    uint64_t first, *to;
} sum_call;

static void run_clear(void *data)
{
    const sum_call *c = data;
    memset(c->to, 0, c->bytes);
}

static void run_add_sum(void *data)
{
    const sum_call *c = data;
    unsigned char last[8] = {0};
    size_t words = c->bytes / 8;
    memcpy(last, (const unsigned char *)c->from + 8 * words, c->bytes % 8);
    *c->to += tri_sum_words(c->first, c->from, words) +
              tri_sum_words(c->first + words, last, c->bytes % 8 > 0);
}

static tr_status clear(tri_device *device, void *memory, size_t bytes, tr_error *err)
{
    (void)device;
    (void)err;
    if (here->open && meets_message(memory, bytes))
        fault(here, "memory was cleared that a message under way reads or writes");
    add_call(here, QUEUE, run_clear, &(sum_call){.to = memory, .bytes = bytes}, sizeof(sum_call));
    return TR_OK;
}

static tr_status add_sum(tri_device *device, const void *from, size_t bytes, uint64_t first,
                         uint64_t *to, tr_error *err)
{
    (void)device;
    (void)err;
    if (here->open && meets_message(from, bytes))
        fault(here, "memory was summed that a message under way reads or writes");
    add_call(here, QUEUE, run_add_sum, &(sum_call){from, bytes, first, to}, sizeof(sum_call));
    return TR_OK;
}

static tr_status finish(tri_device *device, tr_error *err)
{
    (void)device;
    (void)err;
    pthread_mutex_lock(&here->mutex);
    while (!is_idle(&here->streams[QUEUE]))
        pthread_cond_wait(&here->changed, &here->mutex);
    pthread_mutex_unlock(&here->mutex);
    return TR_OK;
}

static tr_status record(tri_device *device, tr_error *err)
{
    (void)device;
    (void)err;
    if (here->open)
        fault(here, "a recording in a recording");
    here->open = calloc(1, sizeof *here->open);
    memset(here->clocks, 0, sizeof here->clocks);
    here->uses.num = 0;
    for (int i = 0; i < TRI_DEVICE_NUM_POINTS; i++)
        here->point_in_recording[i] = -1;
    here->clocks[QUEUE].of[QUEUE] = 1;
    return TR_OK;
}

static tr_status record_end(tri_device *device, void **out, tr_error *err)
{
    (void)device;
    (void)err;
    for (int i = 0; i < NUM_STREAMS; i++)
        if (here->clocks[QUEUE].of[i] < here->clocks[i].of[i])
            fault(here, "a recording ended before the queue waited for all lanes");
    *out = here->open;
    here->open = NULL;
    return TR_OK;
}

static tr_status replay(tri_device *device, void *of, tr_error *err)
{
    (void)device;
    (void)err;
    const recording *r = of;
    bool *events = new_events(here, (size_t)r->num_events);
    for (size_t i = 0; i < r->num; i++) {
        task t = r->tasks[i];
        t.set = t.set ? &events[t.event] : NULL;
        t.awaited = t.awaited ? &events[t.event] : NULL;
        give(here, &t);
    }
    return TR_OK;
}

/* As the GPU does before it frees anything. */
static void finish_all(void)
{
    pthread_mutex_lock(&here->mutex);
    for (int i = 0; i < NUM_STREAMS; i++)
        while (!is_idle(&here->streams[i]))
            pthread_cond_wait(&here->changed, &here->mutex);
    pthread_mutex_unlock(&here->mutex);
}

static void forget(void *of)
{
    recording *r = of;
    finish_all();
    for (size_t i = 0; i < r->num; i++)
        free(r->tasks[i].data);
    free(r->tasks);
    free(r);
}

static tr_status mark(tri_device *device, uint32_t number, tr_error *err)
{
    (void)device;
    (void)number;
    (void)err;
    return TR_OK;
}

static double seconds_between(tri_device *device, uint32_t first, uint32_t second)
{
    (void)device;
    return (double)(second - first) * 1e-6;
}

/* ---- lanes ---- */

static int stream_of(int lane)
{
    return lane == TRI_DEVICE_QUEUE ? QUEUE : lane;
}

static tr_status open_lane(tri_device *device, int lane, void **handle, tr_error *err)
{
    (void)device;
    (void)err;
    if (here->open)
        fault(here, "a lane was made while recording");
    start_stream(here, lane);
    *handle = &here->streams[lane];
    return TR_OK;
}

static tr_status set(tri_device *device, int lane, int point, tr_error *err)
{
    (void)device;
    (void)err;
    int number = stream_of(lane);
    static bool some;
    if (here->open) {
        int event = here->point_in_recording[point] = here->open->num_events++;
        add(here, (task){.stream = number, .event = event, .set = &some});
        here->point_clock[point] = here->clocks[number];
        return TR_OK;
    }
    here->point[point] = new_events(here, 1);
    add(here, (task){.stream = number, .event = -1, .set = here->point[point]});
    return TR_OK;
}

static tr_status await(tri_device *device, int lane, int point, tr_error *err)
{
    (void)device;
    (void)err;
    int number = stream_of(lane);
    static bool some;
    if (!here->open) {
        add(here, (task){.stream = number, .event = -1, .awaited = here->point[point]});
        return TR_OK;
    }
    int event = here->point_in_recording[point];
    if (event < 0) {
        fault(here, "a point of another recording was awaited");
        return TR_OK;
    }
    for (int i = 0; i < NUM_STREAMS; i++)
        if (here->point_clock[point].of[i] > here->clocks[number].of[i])
            here->clocks[number].of[i] = here->point_clock[point].of[i];
    add(here, (task){.stream = number, .event = event, .awaited = &some});
    return TR_OK;
}

/* A copy on a lane, which may not come near one on another lane that it has not waited for. */
static tr_status copy_on(tri_device *device, int lane, void *to, const void *from, size_t bytes,
                         tr_error *err)
{
    (void)device;
    (void)err;
    int number = stream_of(lane);
    const uint64_t *reached = here->clocks[number].of;
    if (here->open && (fake_uses_meet(&here->uses, to, bytes, reached) ||
                       fake_uses_meet(&here->uses, from, bytes, reached)))
        fault(here, "a copy on a lane touches memory of another one under way");
    add_call(here, number, run_copy, &(copy_call){to, from, bytes}, sizeof(copy_call));
    fake_gpu_uses(&here->streams[number], to, bytes);
    fake_gpu_uses(&here->streams[number], from, bytes);
    return TR_OK;
}

typedef struct lane_note {
    int lane;
    uint64_t number;
} lane_note;

static void run_note(void *data)
{
    const lane_note *note = data;
    atomic_store(&here->noted[note->lane], note->number);
}

static tr_status note(tri_device *device, int lane, uint64_t number, tr_error *err)
{
    (void)device;
    (void)err;
    add_call(here, stream_of(lane), run_note, &(lane_note){lane, number}, sizeof(lane_note));
    return TR_OK;
}

static uint64_t noted(const tri_device *device, int lane)
{
    (void)device;
    return atomic_load(&here->noted[lane]);
}

static tr_status idle(tri_device *device, bool *answer, tr_error *err)
{
    (void)device;
    (void)err;
    pthread_mutex_lock(&here->mutex);
    *answer = is_idle(&here->streams[QUEUE]);
    pthread_mutex_unlock(&here->mutex);
    return TR_OK;
}

static tr_status identity(tri_device *device, char *text, size_t size, tr_error *err)
{
    (void)device;
    (void)err;
    snprintf(text, size, "fake-%p", (void *)here);
    return TR_OK;
}

static const tri_device_lanes lanes = {.open = open_lane,
                                       .set = set,
                                       .await = await,
                                       .copy = copy_on,
                                       .note = note,
                                       .noted = noted,
                                       .idle = idle,
                                       .identity = identity};

static void lend_scratch(tri_device *device, void *memory, size_t bytes)
{
    (void)device;
    here->lent = memory;
    here->lent_bytes = bytes;
}

/* All scratch is in the memory plan. */
static const tri_device_queue queue = {.start = start,
                                       .available = available,
                                       .alloc_host = malloc,
                                       .free_host = free,
                                       .upload = copy,
                                       .download = copy,
                                       .copy = copy_within,
                                       .clear = clear,
                                       .add_sum = add_sum,
                                       .finish = finish,
                                       .record = record,
                                       .record_end = record_end,
                                       .replay = replay,
                                       .forget = forget,
                                       .mark = mark,
                                       .seconds_between = seconds_between,
                                       .lend_scratch = lend_scratch,
                                       .lanes = &lanes};

static void *alloc(size_t bytes)
{
    return calloc(1, tri_device_round(bytes));
}

static void free_memory(void *memory, size_t bytes)
{
    (void)bytes;
    finish_all();
    free(memory);
}

static tr_status reserve(tri_device *device, size_t bytes, tr_error *err)
{
    return tri_device_cpu.reserve_scratch(device, bytes, err);
}

static void close_device(tri_device *device)
{
    tri_device_cpu.close(device);
}

static const tri_fusions fusions = {
    .bias = true, .bias_gelu = true, .gelu_grad = true, .adam_copy = true};

const tri_device_def fake_gpu_def = {
    .kind = "fake",
    .fusions = &fusions,
    .apart = true,
    .queue = &queue,
    .close = close_device,
    .kernel = kernel_of,
    .alloc = alloc,
    .free = free_memory,
    .reserve_scratch = reserve,
};
