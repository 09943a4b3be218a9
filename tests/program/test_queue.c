/* Devices with a queue and memory of their own, without one at hand: a device made of the CPU's
 * kernels that only notes what it is told to do while it records, and whose memory the host cannot
 * touch. Training on it must give the bits of the CPU, with and without kernels for every operator,
 * and with the time of each instruction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/clock.h"
#include "config/resolve.h"
#include "device/cpu/cpu.h"
#include "temp_dir.h"
#include "train/ckpt/checkpoint.h"
#include "train/session.h"
#include "trireme/settings.h"

enum { MOST_SLABS = 16, MOST_MARKS = 4096, NUM_STEPS = 4 };

typedef struct noted {
    tri_op op;
    tri_kernel_args args;
} noted;

typedef struct recording {
    noted *calls;
    size_t num, capacity;
} recording;

/* The one device of this test. */
static struct {
    struct {
        void *memory;
        size_t bytes;
    } slabs[MOST_SLABS];
    int num_slabs;
    recording *open;
    size_t num_replays, num_runs, num_many;
    uint64_t marks[MOST_MARKS];
    bool missing[TRI_NUM_OPS]; /* has no kernel */
} fake;

static tr_settings *settings;

static void unlock(bool open)
{
    for (int i = 0; i < fake.num_slabs; i++)
        if (fake.slabs[i].memory)
            assert_int_equal(mprotect(fake.slabs[i].memory, fake.slabs[i].bytes,
                                      open ? PROT_READ | PROT_WRITE : PROT_NONE),
                             0);
}

static void execute(tri_op op, const tri_kernel_args *args)
{
    tri_cpu *cpu = args->device;
    unlock(true);
    const tri_kernel *fast = tri_cpu_fast(op, cpu->isa);
    (fast ? fast : tri_cpu_reference(op))->run(args);
    unlock(false);
    fake.num_runs++;
}

static void call(tri_op op, const tri_kernel_args *args)
{
    recording *r = fake.open;
    if (!r) {
        execute(op, args);
        return;
    }
    if (r->num == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 64;
        r->calls = realloc(r->calls, r->capacity * sizeof *r->calls);
        assert_non_null(r->calls);
    }
    r->calls[r->num++] = (noted){op, *args};
}

static void call_many(tri_op op, const tri_kernel_args *const *args, int count)
{
    for (int i = 0; i < count; i++)
        call(op, args[i]);
    fake.num_many++;
}

static size_t scratch(const tri_kernel_args *args, int num_threads)
{
    (void)args;
    (void)num_threads;
    return 8 << 20;
}

#define OPS(X)                                                                                     \
    X(MATMUL)                                                                                      \
    X(ADD)                                                                                         \
    X(BIAS_ADD)                                                                                    \
    X(BIAS_GRAD)                                                                                   \
    X(ACT)                                                                                         \
    X(ACT_GRAD)                                                                                    \
    X(DROPOUT)                                                                                     \
    X(ACCUMULATE)                                                                                  \
    X(EMBED)                                                                                       \
    X(EMBED_GRAD)                                                                                  \
    X(SELECT_ROW)                                                                                  \
    X(LAYERNORM)                                                                                   \
    X(ADD_LAYERNORM)                                                                               \
    X(LAYERNORM_GRAD)                                                                              \
    X(LAYERNORM_PARAM_GRAD)                                                                        \
    X(ATTENTION)                                                                                   \
    X(ATTENTION_GRAD) X(CE_STATS) X(CE_LOSS) X(CE_GRAD) X(SUM_SQUARES) X(FINISH) X(ADAM)
#define RUN(op)                                                                                    \
    static void run_##op(const tri_kernel_args *args)                                              \
    {                                                                                              \
        call(TRI_OP_##op, args);                                                                   \
    }
OPS(RUN)

static void adam_many(const tri_kernel_args *const *args, int count)
{
    call_many(TRI_OP_ADAM, args, count);
}

static const tri_kernel *fake_kernel(const tri_device *device, tri_op op)
{
    (void)device;
#define ROW(op) [TRI_OP_##op] = {.run = run_##op, .scratch_bytes = scratch},
    static tri_kernel kernels[TRI_NUM_OPS] = {OPS(ROW)};
    kernels[TRI_OP_ADAM].run_many = adam_many;
    return kernels[op].run && !fake.missing[op] ? &kernels[op] : NULL;
}

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

static void *fake_alloc(size_t bytes)
{
    bytes = (bytes + 4095) / 4096 * 4096;
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED && fake.num_slabs < MOST_SLABS);
    fake.slabs[fake.num_slabs].memory = memory;
    fake.slabs[fake.num_slabs++].bytes = bytes;
    return memory;
}

static void fake_free(void *memory, size_t bytes)
{
    (void)bytes;
    for (int i = 0; i < fake.num_slabs; i++)
        if (fake.slabs[i].memory == memory) {
            munmap(memory, fake.slabs[i].bytes);
            fake.slabs[i].memory = NULL;
        }
}

static tr_status copy(tri_device *device, void *to, const void *from, size_t bytes, tr_error *err)
{
    (void)device;
    (void)err;
    assert_null(fake.open); /* recordings hold kernels alone */
    unlock(true);
    memcpy(to, from, bytes);
    unlock(false);
    return TR_OK;
}

static tr_status finish(tri_device *device, tr_error *err)
{
    (void)device;
    (void)err;
    return TR_OK;
}

/* What is enqueued runs at once. */
static tr_status reach(tri_device *device, uint32_t number, tr_error *err)
{
    (void)number;
    return finish(device, err);
}

static tr_status record(tri_device *device, tr_error *err)
{
    (void)device;
    (void)err;
    assert_null(fake.open);
    fake.open = calloc(1, sizeof *fake.open);
    return TR_OK;
}

static tr_status record_end(tri_device *device, void **out, tr_error *err)
{
    (void)device;
    (void)err;
    assert_non_null(fake.open);
    *out = fake.open;
    fake.open = NULL;
    return TR_OK;
}

static tr_status replay(tri_device *device, void *of, tr_error *err)
{
    (void)device;
    (void)err;
    const recording *r = of;
    for (size_t i = 0; i < r->num; i++)
        execute(r->calls[i].op, &r->calls[i].args);
    fake.num_replays++;
    return TR_OK;
}

static void forget(void *of)
{
    free(((recording *)of)->calls);
    free(of);
}

static tr_status mark(tri_device *device, uint32_t number, tr_error *err)
{
    (void)device;
    (void)err;
    assert_in_range(number, 0, MOST_MARKS - 1);
    fake.marks[number] = tri_now_ns();
    return TR_OK;
}

static double seconds_between(tri_device *device, uint32_t first, uint32_t second)
{
    (void)device;
    return (double)(fake.marks[second] - fake.marks[first]) * 1e-9;
}

static tr_status reserve(tri_device *device, size_t bytes, tr_error *err)
{
    return tri_device_cpu.reserve_scratch(device, bytes, err);
}

static const tri_device_queue queue = {.start = start,
                                       .available = available,
                                       .alloc_host = malloc,
                                       .free_host = free,
                                       .upload = copy,
                                       .download = copy,
                                       .finish = finish,
                                       .record = record,
                                       .record_end = record_end,
                                       .replay = replay,
                                       .forget = forget,
                                       .mark = mark,
                                       .reach = reach,
                                       .seconds_between = seconds_between};

/* The settings must outlive the session. */
static void open_session(tri_session *session, const tri_device_def *def)
{
    tr_error err = {0};
    tri_session_config config;
    if (settings)
        tr_settings_destroy(settings);
    assert_int_equal(tr_settings_create(&settings, &err), TR_OK);
    assert_int_equal(tr_settings_load(settings, "recipes/tiny.yaml", &err), TR_OK);
    assert_int_equal(tr_settings_set(settings, "model.vocab=300", &err), TR_OK);
    assert_int_equal(tr_settings_set(settings, "layout.microbatches=2", &err), TR_OK);
    assert_int_equal(tr_settings_set(settings, "run.threads=1", &err), TR_OK);
    assert_int_equal(tri_settings_complete(settings, &err), TR_OK);
    assert_int_equal(tri_session_config_from(settings, &config, &err), TR_OK);
    if (tri_session_compile(session, &config, &err) != TR_OK)
        fail_msg("%s", err.message);
    if (def) {
        const tri_program *programs[TRI_NUM_PROGRAMS];
        for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
            programs[p] = &session->programs[p];
        session->device.def = def;
        tri_store_plan(&session->store, &session->device, programs, TRI_NUM_PROGRAMS);
    }
    if (tri_session_start(session, &err) != TR_OK)
        fail_msg("%s", err.message);
}

typedef struct results {
    float loss[NUM_STEPS], norm[NUM_STEPS];
    double eval;
    float *weights;
    size_t num_weights;
} results;

/* With an evaluation between two of the steps: it uses the inputs that were filled ahead. */
static void run_steps(tri_session *session, double *by_op, tri_program_trace *trace, results *r)
{
    tr_error err = {0};
    tri_eval_result eval;
    bool queue = session->device.def->queue;
    for (int i = 0; i < NUM_STEPS; i++) {
        tri_step_result step;
        session->executors[TRI_PROGRAM_TRAIN].time_by_op = i == 2 ? by_op : NULL;
        session->executors[TRI_PROGRAM_TRAIN].trace = i < 2 ? trace : NULL;
        if (trace && i < 2)
            tri_program_trace_begin(trace, i + 1);
        if (tri_session_step(session, &step, &err) != TR_OK)
            fail_msg("%s", err.message);
        r->loss[i] = step.loss;
        r->norm[i] = step.grad_norm;
        if (trace && i < 2)
            tri_program_trace_end(trace);
        bool timed = session->executors[TRI_PROGRAM_TRAIN].time_by_op ||
                     session->executors[TRI_PROGRAM_TRAIN].trace;
        bool ahead = session->ahead == i + 1 && session->ahead_runs == session->store.num_runs;
        assert_true(ahead == (queue && !timed));
        if (i == 0)
            assert_int_equal(tri_session_eval(session, &eval, &err), TR_OK);
    }
    assert_int_equal(tri_session_eval(session, &eval, &err), TR_OK);
    r->eval = eval.loss;
    assert_int_equal(tri_session_pull_weights(session, &err), TR_OK);
    r->num_weights = (size_t)tri_param_total(&session->params);
    float *next = r->weights = malloc(r->num_weights * sizeof(float));
    for (size_t i = 0; i < session->params.count; i++) {
        int64_t count = tri_shape_count(&session->params.items[i].shape);
        memcpy(next, session->weights[i], (size_t)count * sizeof(float));
        next += count;
    }
}

static void compare(const results *a, const results *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->norm, b->norm, sizeof a->norm);
    assert_true(a->eval == b->eval);
    assert_memory_equal(a->weights, b->weights, a->num_weights * sizeof(float));
}

static tri_device_def fake_device(void)
{
    tri_device_def def = tri_device_cpu;
    def.kind = "fake";
    def.queue = &queue;
    def.f32_only = false;
    def.kernel = fake_kernel;
    def.alloc = fake_alloc;
    def.free = fake_free;
    def.reserve_scratch = reserve;
    memset(&fake, 0, sizeof fake);
    return def;
}

static void check(bool with_all_kernels)
{
    tri_device_def def = fake_device();
    tri_session *session = calloc(1, sizeof *session);
    results cpu, device;
    double by_op[TRI_NUM_OPS] = {0};
    open_session(session, NULL);
    if (!with_all_kernels) {
        /* The reference of these gives the same bits as the fast kernel. */
        fake.missing[TRI_OP_EMBED] = fake.missing[TRI_OP_ADD] = true;
        fake.missing[TRI_OP_ACCUMULATE] = true;
    }
    run_steps(session, NULL, NULL, &cpu);
    tri_session_fini(session);
    open_session(session, &def);
    tri_text names;
    tri_text_init(&names);
    tri_executor_host_ops(&session->executors[TRI_PROGRAM_TRAIN], &names);
    if (with_all_kernels)
        assert_true(!names.chars || !names.chars[0]);
    else
        assert_string_equal(names.chars, "embed, add");
    tri_text_fini(&names);
    run_steps(session, by_op, NULL, &device);
    compare(&cpu, &device);
    /* One recording is the whole step; two micro-batches with a host instruction in each make
     * several. The third step was timed, and not a replay. */
    size_t evals = fake.num_replays - (with_all_kernels ? NUM_STEPS - 1 : 0);
    assert_true(with_all_kernels ? evals > 0 : fake.num_replays > 2 * (NUM_STEPS - 1));
    assert_true(fake.num_many > 0);
    assert_true(by_op[TRI_OP_MATMUL] > 0 && by_op[TRI_OP_ADAM] > 0 && by_op[TRI_OP_EMBED] > 0);
    if (with_all_kernels)
        assert_int_equal(session->executors[TRI_PROGRAM_TRAIN].num_parts, 1);
    tri_session_fini(session);
    free(cpu.weights);
    free(device.weights);
    free(session);
}

static void test_recorded_steps_give_the_same_bits(void **state)
{
    (void)state;
    check(true);
}

/* A run that is traced at first is recorded from then on. */
static void test_traced_and_then_recorded(void **state)
{
    (void)state;
    tri_device_def def = fake_device();
    tri_session *session = calloc(1, sizeof *session);
    tri_program_trace *trace;
    results cpu, device;
    tr_error err = {0};
    open_session(session, NULL);
    run_steps(session, NULL, NULL, &cpu);
    tri_session_fini(session);
    open_session(session, &def);
    assert_int_equal(
        tri_program_trace_create(&session->programs[TRI_PROGRAM_TRAIN], 2, &trace, &err), TR_OK);
    run_steps(session, NULL, trace, &device);
    compare(&cpu, &device);
    assert_int_equal(session->executors[TRI_PROGRAM_TRAIN].num_parts, 1);
    assert_int_equal(tri_trace_about_read(trace->events)->num_steps, 2);
    assert_true(tri_trace_num_events(trace->events) >
                2 * (int64_t)session->programs[TRI_PROGRAM_TRAIN].num_instrs);
    assert_int_equal(tri_trace_num_dropped(trace->events), 0);
    tri_program_trace_destroy(trace);
    tri_session_fini(session);
    free(cpu.weights);
    free(device.weights);
    free(session);
}

static void test_operators_without_kernel_run_on_the_host(void **state)
{
    (void)state;
    check(false);
}

static void save_now(tri_session *session, tri_ranks *ranks, const char *dir)
{
    tri_checkpointer_config config = {.run_dir = dir, .async = true, .patience_s = 5};
    tri_checkpointer *checkpointer;
    tri_save_outcome outcome;
    tr_error err = {0};
    assert_int_equal(tri_checkpointer_open(session, ranks, &config, &checkpointer, &err), TR_OK);
    assert_int_equal(tri_checkpointer_save(checkpointer, NULL, 0, true, &outcome, &err), TR_OK);
    assert_false(outcome.failed);
    tri_checkpointer_close(checkpointer);
}

/* Half of the steps on the device, then a checkpoint, then the other half on the CPU, and back. */
static void test_checkpoints_cross_devices(void **state)
{
    const temp_dir *temp = *state;
    tri_device_def def = fake_device();
    tri_session *session = calloc(1, sizeof *session);
    tri_ranks ranks = {.size = 1};
    float whole[NUM_STEPS];
    tri_step_result step;
    tr_error err = {0};
    open_session(session, NULL);
    for (int i = 0; i < NUM_STEPS; i++) {
        assert_int_equal(tri_session_step(session, &step, &err), TR_OK);
        whole[i] = step.loss;
    }
    tri_session_fini(session);
    for (int i = 0; i < NUM_STEPS; i++) { /* each step in a session of its own */
        tri_resumed resumed;
        open_session(session, i % 2 ? NULL : &def);
        assert_int_equal(tri_checkpoint_resume(session, &ranks, temp->path, i > 0, &resumed, &err),
                         TR_OK);
        assert_int_equal(resumed.step, i);
        assert_int_equal(tri_session_step(session, &step, &err), TR_OK);
        assert_memory_equal(&step.loss, &whole[i], sizeof step.loss);
        save_now(session, &ranks, temp->path);
        tri_resumed_fini(&resumed);
        tri_session_fini(session);
    }
    free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_steps_give_the_same_bits),
        cmocka_unit_test(test_traced_and_then_recorded),
        cmocka_unit_test(test_operators_without_kernel_run_on_the_host),
        cmocka_unit_test(test_checkpoints_cross_devices),
    };
    int failed = cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
    tr_settings_destroy(settings);
    return failed;
}
