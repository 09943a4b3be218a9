/* cuDNN by its entry points, and the plans it made.
 *
 * A plan (the kernel that cuDNN chose for one shape) is made at the first call with that shape and
 * kept; a call that cuDNN has nothing for is kept too, so that it is asked once. Making one may
 * happen while a stream is recorded: the recording is told to look away (relaxed) meanwhile. */
#include "device/cuda/dnn/dnn.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/dnn/dnn_graph.h"

enum {
    OLDEST = 91000,    /* before 9.10 masked scores were not minus infinity */
    SHORTEST = 64,     /* positions; below, nothing is gained */
    WIDEST = 128,      /* of a head */
    MOST_CHOICES = 16, /* configurations of one heuristic that are looked at */
    MOST_NOTES = 16,   /* on the numbers of an engine */
    SPARE = 4 << 20,   /* of scratch, for what cuDNN wants beside dS */
    MOST_TENSORS = TRI_DNN_INNER
};
#define MOST_SCRATCH ((size_t)4 << 30)

typedef struct plan {
    tri_cuda_sdpa shape; /* pointers are not looked at */
    bool usable;
    cudnnBackendDescriptor_t descriptor;
    int64_t workspace_bytes;
} plan;

struct tri_cuda_dnn {
    void *library;
    cudnnHandle_t handle;                /* NULL when it only plans */
    cudnnBackendDescriptor_t properties; /* then of the device */
    tri_dnn_api api;
    __typeof__(&cudnnDestroy) destroy;
    plan *plans;
    size_t num_plans, capacity;
};

/* ---- the library ---- */

static void *open_library(void)
{
    static const char *const names[] = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
                                        "/usr/local/cuda/lib/libcudnn.so.9"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

static bool find_entry(const tri_cuda_dnn *dnn, const char *name, void *to)
{
    void *entry = dlsym(dnn->library, name);
    memcpy(to, &entry, sizeof entry);
    return entry != NULL;
}

static bool find_entries(tri_cuda_dnn *dnn)
{
    return find_entry(dnn, "cudnnBackendCreateDescriptor", &dnn->api.create) &&
           find_entry(dnn, "cudnnBackendDestroyDescriptor", &dnn->api.destroy) &&
           find_entry(dnn, "cudnnBackendSetAttribute", &dnn->api.set) &&
           find_entry(dnn, "cudnnBackendGetAttribute", &dnn->api.get) &&
           find_entry(dnn, "cudnnBackendFinalize", &dnn->api.finalize) &&
           find_entry(dnn, "cudnnBackendExecute", &dnn->api.execute) &&
           find_entry(dnn, "cudnnDestroy", &dnn->destroy);
}

static bool begin(tri_cuda_dnn *dnn, void *stream, const char *properties)
{
    __typeof__(&cudnnGetVersion) version;
    __typeof__(&cudnnCreate) create;
    __typeof__(&cudnnSetStream) set_stream;
    dnn->library = open_library();
    if (!dnn->library || !find_entries(dnn) || !find_entry(dnn, "cudnnGetVersion", &version) ||
        !find_entry(dnn, "cudnnCreate", &create) || !find_entry(dnn, "cudnnSetStream", &set_stream))
        return false;
    if (version() < OLDEST)
        return false;
    if (stream)
        return create(&dnn->handle) == CUDNN_STATUS_SUCCESS &&
               set_stream(dnn->handle, stream) == CUDNN_STATUS_SUCCESS;
    return dnn->api.create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &dnn->properties) ==
               CUDNN_STATUS_SUCCESS &&
           dnn->api.set(dnn->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                        (int64_t)strlen(properties), properties) == CUDNN_STATUS_SUCCESS &&
           dnn->api.finalize(dnn->properties) == CUDNN_STATUS_SUCCESS;
}

tri_cuda_dnn *tri_cuda_dnn_open(void *stream, const char *properties)
{
    tri_cuda_dnn *dnn = calloc(1, sizeof *dnn);
    if (dnn && begin(dnn, stream, properties))
        return dnn;
    tri_cuda_dnn_close(dnn);
    return NULL;
}

void tri_cuda_dnn_close(tri_cuda_dnn *dnn)
{
    if (!dnn)
        return;
    for (size_t i = 0; i < dnn->num_plans; i++)
        if (dnn->plans[i].descriptor)
            dnn->api.destroy(dnn->plans[i].descriptor);
    free(dnn->plans);
    if (dnn->properties)
        dnn->api.destroy(dnn->properties);
    if (dnn->handle)
        dnn->destroy(dnn->handle);
    if (dnn->library)
        dlclose(dnn->library);
    free(dnn);
}

size_t tri_cuda_dnn_version(void)
{
    tri_cuda_dnn dnn = {.library = open_library()};
    __typeof__(&cudnnGetVersion) version;
    size_t number = dnn.library && find_entry(&dnn, "cudnnGetVersion", &version) ? version() : 0;
    if (dnn.library)
        dlclose(dnn.library);
    return number;
}

/* ---- scratch ---- */

static size_t rows_bytes(const tri_cuda_sdpa *c)
{
    size_t bytes = (size_t)(c->num_batch * c->heads * c->num_pos) * sizeof(float);
    return (bytes + 255) / 256 * 256;
}

static bool suits(const tri_cuda_sdpa *c)
{
    return (c->dtype == TRI_BF16 || c->dtype == TRI_F16) && c->num_batch > 0 &&
           c->num_pos >= SHORTEST && c->width % 8 == 0 && c->width <= WIDEST && c->key_heads > 0 &&
           c->heads % c->key_heads == 0 && c->alpha > 0;
}

/* What the graph itself keeps in scratch: delta, and dq in f32. */
static size_t graph_bytes(const tri_cuda_sdpa *c)
{
    size_t rows = rows_bytes(c);
    return !c->grad ? 0 : c->any_order ? rows + rows * (size_t)c->width : rows;
}

/* The gradient keeps dS, [B, H, T, T] in 16 bits with T in whole tiles, unless it may add in any
 * order; and where key heads are shared, dK and dV of every query head. */
size_t tri_cuda_dnn_scratch(const tri_cuda_sdpa *c)
{
    if (!suits(c))
        return 0;
    if (!c->grad)
        return SPARE;
    size_t tiles = (size_t)(c->num_pos + 127) / 128 * 128;
    size_t heads = (size_t)(c->num_batch * c->heads);
    size_t scores = c->any_order ? 0 : 2 * heads * tiles * tiles;
    size_t shared = c->heads > c->key_heads ? 2 * heads * tiles * (size_t)c->width * 4 : 0;
    size_t bytes = graph_bytes(c) + scores + shared + rows_bytes(c) + SPARE;
    return bytes <= MOST_SCRATCH ? bytes : 0;
}

/* ---- plans ---- */

static bool same_shape(const tri_cuda_sdpa *a, const tri_cuda_sdpa *b)
{
    return a->grad == b->grad && a->causal == b->causal && a->any_order == b->any_order &&
           a->dtype == b->dtype && a->num_batch == b->num_batch && a->num_pos == b->num_pos &&
           a->heads == b->heads && a->key_heads == b->key_heads && a->width == b->width &&
           a->q_step == b->q_step && a->k_step == b->k_step && a->o_step == b->o_step;
}

/* Whether the engine of a configuration gives the same bits every time. */
static bool is_deterministic(tri_dnn_graph *g, cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t engine = tri_dnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[MOST_NOTES];
    int64_t found = 0;
    if (!engine ||
        g->api->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found,
                    &engine) != CUDNN_STATUS_SUCCESS ||
        g->api->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES,
                    &found, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < found && i < MOST_NOTES; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return false;
    return true;
}

static bool try_config(tri_cuda_dnn *dnn, plan *p, cudnnBackendDescriptor_t config)
{
    const tri_dnn_api *api = &dnn->api;
    int64_t bytes = 0, found = 0;
    int64_t limit = (int64_t)(tri_cuda_dnn_scratch(&p->shape) - graph_bytes(&p->shape));
    cudnnBackendDescriptor_t ready = NULL;
    if (api->create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &ready) != CUDNN_STATUS_SUCCESS)
        return false;
    bool good =
        (dnn->handle
             ? api->set(ready, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &dnn->handle)
             : api->set(ready, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                        1, &dnn->properties)) == CUDNN_STATUS_SUCCESS &&
        api->set(ready, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                 &config) == CUDNN_STATUS_SUCCESS &&
        api->finalize(ready) == CUDNN_STATUS_SUCCESS &&
        api->get(ready, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &found,
                 &bytes) == CUDNN_STATUS_SUCCESS &&
        bytes <= limit;
    if (!good) {
        api->destroy(ready);
        return false;
    }
    p->descriptor = ready;
    p->workspace_bytes = bytes;
    return true;
}

/* The first of cuDNN's choices, best first, that can be used. */
static bool choose(tri_cuda_dnn *dnn, plan *p, tri_dnn_graph *g, cudnnBackendDescriptor_t graph,
                   cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t heuristic = tri_dnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    tri_dnn_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                1, &graph);
    tri_dnn_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!dnn->handle)
        tri_dnn_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    1, &dnn->properties);
    tri_dnn_finish(g, heuristic);
    cudnnBackendDescriptor_t configs[MOST_CHOICES];
    for (int i = 0; i < MOST_CHOICES; i++)
        configs[i] = tri_dnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t found = 0;
    if (!g->good ||
        g->api->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    MOST_CHOICES, &found, configs) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < found && i < MOST_CHOICES; i++)
        if ((p->shape.any_order || is_deterministic(g, configs[i])) &&
            try_config(dnn, p, configs[i]))
            return true;
    return false;
}

static bool make_plan(tri_cuda_dnn *dnn, plan *p)
{
    tri_dnn_graph g = {.api = &dnn->api, .good = true};
    tri_dnn_describe(&g, &p->shape);
    cudnnBackendDescriptor_t graph = tri_dnn_make(&g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    tri_dnn_set(&g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g.num_ops,
                g.ops);
    if (dnn->handle)
        tri_dnn_set(&g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                    &dnn->handle);
    tri_dnn_finish(&g, graph);
    bool good = g.good && (choose(dnn, p, &g, graph, CUDNN_HEUR_MODE_A) ||
                           choose(dnn, p, &g, graph, CUDNN_HEUR_MODE_FALLBACK));
    tri_dnn_drop(&g);
    return good;
}

static plan *plan_of(tri_cuda_dnn *dnn, const tri_cuda_sdpa *call)
{
    for (size_t i = 0; i < dnn->num_plans; i++)
        if (same_shape(&dnn->plans[i].shape, call))
            return &dnn->plans[i];
    if (dnn->num_plans == dnn->capacity) {
        size_t capacity = dnn->capacity ? 2 * dnn->capacity : 16;
        plan *plans = realloc(dnn->plans, capacity * sizeof *plans);
        if (!plans)
            return NULL;
        dnn->plans = plans;
        dnn->capacity = capacity;
    }
    plan *p = &dnn->plans[dnn->num_plans++];
    *p = (plan){.shape = *call};
    p->usable = make_plan(dnn, p);
    return p;
}

int64_t tri_cuda_dnn_plan(tri_cuda_dnn *dnn, const tri_cuda_sdpa *call)
{
    const plan *p = tri_cuda_dnn_scratch(call) > 0 ? plan_of(dnn, call) : NULL;
    return p && p->usable ? p->workspace_bytes : -1;
}

/* ---- a call ---- */

static bool execute(tri_cuda *cuda, const tri_cuda_sdpa *c, const plan *p)
{
    tri_cuda_dnn *dnn = cuda->dnn;
    float alpha = c->alpha, masked = -INFINITY, one = 1;
    char *scratch = cuda->scratch;
    const struct {
        int64_t name;
        const void *data;
    } all[] = {
        {TRI_DNN_Q, c->q},         {TRI_DNN_K, c->k},
        {TRI_DNN_V, c->v},         {TRI_DNN_O, c->o},
        {TRI_DNN_LSE, c->lse},     {TRI_DNN_ALPHA, &alpha},
        {TRI_DNN_MASKED, &masked}, {TRI_DNN_ONE, &one},
        {TRI_DNN_DOUT, c->dout},   {TRI_DNN_DQ, c->dq},
        {TRI_DNN_DK, c->dk},       {TRI_DNN_DV, c->dv},
        {TRI_DNN_DELTA, scratch},  {TRI_DNN_DQ_SUM, scratch + rows_bytes(c)},
    };
    int64_t names[MOST_TENSORS];
    const void *data[MOST_TENSORS];
    int64_t num = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if ((all[i].name == TRI_DNN_MASKED && !c->causal) ||
            (all[i].name == TRI_DNN_DQ_SUM && !c->any_order) ||
            (all[i].name >= TRI_DNN_ONE && !c->grad))
            continue;
        names[num] = all[i].name;
        data[num++] = all[i].data;
    }
    void *workspace = scratch + graph_bytes(c);
    tri_dnn_graph g = {.api = &dnn->api, .good = true};
    cudnnBackendDescriptor_t pack = tri_dnn_make(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    tri_dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, num, names);
    tri_dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, num, data);
    tri_dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    tri_dnn_finish(&g, pack);
    bool good =
        g.good && dnn->api.execute(dnn->handle, p->descriptor, pack) == CUDNN_STATUS_SUCCESS;
    tri_dnn_drop(&g);
    return good;
}

bool tri_cuda_dnn_attention(tri_cuda *cuda, const tri_cuda_sdpa *call)
{
    uintptr_t address = (uintptr_t)call->q | (uintptr_t)call->k | (uintptr_t)call->v |
                        (uintptr_t)call->o | (uintptr_t)call->lse | (uintptr_t)call->dout |
                        (uintptr_t)call->dq | (uintptr_t)call->dk | (uintptr_t)call->dv;
    size_t bytes = tri_cuda_dnn_scratch(call);
    if (!cuda->dnn || bytes == 0 || bytes > cuda->scratch_bytes || address % 16 != 0)
        return false;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess)
        return false;
    const plan *p = plan_of(cuda->dnn, call);
    bool good = p && p->usable && execute(cuda, call, p);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return good;
}
