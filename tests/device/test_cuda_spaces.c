/* States that rest on the host or in a file, on a GPU: fetched and stashed on streams of their own,
 * recorded with the step. Bits are those of states that rest on the GPU; an update on the host is
 * another kernel, and close. Prints how long a step takes in each case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef TRI_CUDA

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "config/resolve.h"
#include "train/session.h"
#include "trireme/settings.h"

enum { NUM_STEPS = 6 };

typedef struct outcome {
    float loss[NUM_STEPS];
    float *weights;
    size_t num, parts, flights;
    double step_s; /* the shortest */
} outcome;

static void check(tr_status status, const tr_error *err)
{
    if (status != TR_OK)
        fail_msg("%s", err->message);
}

static void take_weights(tri_session *session, outcome *to)
{
    tr_error err = {0};
    check(tri_session_pull_weights(session, &err), &err);
    to->num = (size_t)tri_param_total(&session->params);
    float *next = to->weights = malloc(to->num * sizeof(float));
    for (size_t i = 0; i < session->params.count; i++) {
        size_t count = (size_t)tri_shape_count(&session->params.items[i].shape);
        memcpy(next, session->weights[i], count * sizeof(float));
        next += count;
    }
}

static outcome train(const tri_spaces_config *spaces)
{
    tr_settings *settings;
    tri_session *session = calloc(1, sizeof *session);
    tri_session_config config;
    outcome got = {.step_s = INFINITY};
    tr_error err = {0};
    /* run.tune: products that are measured may sum in another order in the next session */
    const char *const words[] = {"run.device=cuda",
                                 "model.num_layers=4",
                                 "model.dim=256",
                                 "model.vocab=2048",
                                 "data.source=synthetic",
                                 "run.tune=false",
                                 NULL};
    check(tr_settings_create(&settings, &err), &err);
    check(tr_settings_load(settings, "recipes/tiny.yaml", &err), &err);
    for (int i = 0; words[i]; i++)
        check(tr_settings_set(settings, words[i], &err), &err);
    check(tri_settings_complete(settings, &err), &err);
    check(tri_session_config_from(settings, &config, &err), &err);
    config.compile.spaces = *spaces;
    config.compile.overlap_min_bytes = 0;
    check(tri_session_compile(session, &config, &err), &err);
    check(tri_session_start(session, &err), &err);
    for (int i = 0; i < NUM_STEPS; i++) {
        tri_step_result step;
        double start = tri_now_s();
        check(tri_session_step(session, &step, &err), &err);
        got.loss[i] = step.loss;
        got.step_s = fmin(got.step_s, tri_now_s() - start);
    }
    take_weights(session, &got);
    got.parts = session->executors[TRI_PROGRAM_TRAIN].num_parts;
    got.flights = session->programs[TRI_PROGRAM_TRAIN].num_flights;
    tri_session_fini(session);
    tr_settings_destroy(settings);
    free(session);
    return got;
}

static void test_bits_do_not_depend_on_the_place(void **state)
{
    (void)state;
    outcome resident = train(&(tri_spaces_config){0}), again = train(&(tri_spaces_config){0});
    assert_memory_equal(again.weights, resident.weights, again.num * sizeof(float));
    free(again.weights);
    printf("moments on the device: %.3f ms a step, %zu parts\n", resident.step_s * 1e3,
           resident.parts);
    for (int where = TRI_WHERE_HOST; where < TRI_NUM_WHERE; where++)
        for (uint64_t piece = 1 << 20; piece <= 16 << 20; piece <<= 4) {
            outcome got =
                train(&(tri_spaces_config){.moments = (tri_where)where, .piece_bytes = piece});
            printf("on the %s, pieces of %llu MiB: %.3f ms a step, %zu parts, %zu flights\n",
                   tri_where_name((tri_where)where), (unsigned long long)piece >> 20,
                   got.step_s * 1e3, got.parts, got.flights);
            assert_memory_equal(got.loss, resident.loss, sizeof got.loss);
            assert_memory_equal(got.weights, resident.weights, got.num * sizeof(float));
            assert_true(where == TRI_WHERE_FILE || got.parts == 1);
            free(got.weights);
        }
    free(resident.weights);
}

/* The CPU's kernels round otherwise than the GPU's, in the last bits. */
static void test_the_update_may_run_on_the_host(void **state)
{
    (void)state;
    outcome resident = train(&(tri_spaces_config){0});
    outcome got = train(&(tri_spaces_config){
        .moments = TRI_WHERE_HOST, .update_on_host = true, .piece_bytes = 1 << 20});
    printf("updated on the host: %.3f ms a step, %zu parts\n", got.step_s * 1e3, got.parts);
    for (int i = 0; i < NUM_STEPS; i++)
        assert_true(fabsf(got.loss[i] - resident.loss[i]) < 1e-3f);
    double off = 0, all = 0;
    for (size_t i = 0; i < got.num; i++) {
        off += pow((double)got.weights[i] - (double)resident.weights[i], 2);
        all += pow((double)resident.weights[i], 2);
    }
    assert_true(sqrt(off / all) < 1e-3);
    free(got.weights);
    free(resident.weights);
}

/* ---- how the host may take part in a recording ---- */

enum { NUM_TURNS = 200 };

/* Small work of the device, as between two turns of the host. */
static cudaError_t small_work(void *memory, cudaStream_t stream)
{
    return cudaMemsetAsync(memory, 0, 4096, stream);
}

static cudaGraphExec_t record_end(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec = NULL;
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess)
        return NULL;
    if (cudaGraphInstantiateWithFlags(&exec, graph, 0) != cudaSuccess)
        exec = NULL;
    cudaGraphDestroy(graph);
    return exec;
}

/* A recording for each turn, and the host waits for it before its own. */
static double split_turns(void *memory, cudaStream_t stream)
{
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    small_work(memory, stream);
    cudaGraphExec_t exec = record_end(stream);
    double best = INFINITY;
    for (int trial = 0; exec && trial < 5; trial++) {
        double begin = tri_now_s();
        for (int i = 0; i < NUM_TURNS; i++) {
            cudaGraphLaunch(exec, stream);
            cudaStreamSynchronize(stream);
        }
        best = fmin(best, (tri_now_s() - begin) / NUM_TURNS);
    }
    cudaGraphExecDestroy(exec);
    return best;
}

/* One recording in which the device tells the host that it is its turn, and awaits its answer. */
static double awaited_turns(void *memory, cudaStream_t stream)
{
    typedef CUresult (*value_fn)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
    value_fn write_value = NULL, wait_value = NULL;
    enum cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", (void **)&write_value, 12000,
                                     cudaEnableDefault, &found);
    cudaGetDriverEntryPointByVersion("cuStreamWaitValue64", (void **)&wait_value, 12000,
                                     cudaEnableDefault, &found);
    volatile uint64_t *page = NULL;
    if (!write_value || !wait_value ||
        cudaHostAlloc((void **)&page, 4096, cudaHostAllocMapped) != cudaSuccess)
        return NAN;
    void *there;
    cudaHostGetDevicePointer(&there, (void *)page, 0);
    CUdeviceptr told = (CUdeviceptr)there, answer = told + 2048;
    bool works = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    for (uint64_t i = 1; i <= NUM_TURNS && works; i++)
        works = small_work(memory, stream) == cudaSuccess &&
                write_value(stream, told, i, 0) == CUDA_SUCCESS &&
                wait_value(stream, answer, i, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS;
    cudaGraphExec_t exec = record_end(stream);
    double best = works && exec ? INFINITY : NAN;
    for (int trial = 0; works && exec && trial < 5; trial++) {
        page[0] = page[256] = 0;
        double begin = tri_now_s();
        cudaGraphLaunch(exec, stream);
        for (uint64_t i = 1; i <= NUM_TURNS; i++) {
            while (page[0] < i && tri_now_s() - begin < 5)
                ;
            page[256] = i;
        }
        cudaStreamSynchronize(stream);
        best = fmin(best, (tri_now_s() - begin) / NUM_TURNS);
    }
    if (exec)
        cudaGraphExecDestroy(exec);
    cudaFreeHost((void *)page);
    cudaGetLastError();
    return best;
}

/* No assertion on times: what it prints decides how host work is done. */
static void test_turns_of_the_host_are_timed(void **state)
{
    (void)state;
    cudaStream_t stream;
    void *memory;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaMalloc(&memory, 4096), cudaSuccess);
    printf("a turn of the host: %.2f us between two recordings, ",
           split_turns(memory, stream) * 1e6);
    printf("%.2f us awaited within one\n", awaited_turns(memory, stream) * 1e6);
    cudaFree(memory);
    cudaStreamDestroy(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_do_not_depend_on_the_place),
        cmocka_unit_test(test_the_update_may_run_on_the_host),
        cmocka_unit_test(test_turns_of_the_host_are_timed),
    };
    if (!tri_device_cuda.count || tri_device_cuda.count() == 0) {
        printf("there is no GPU here\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include <stdio.h>

int main(void)
{
    printf("built without CUDA\n");
    return 77;
}

#endif
