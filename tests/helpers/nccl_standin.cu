/* A stand-in for the few entry points of NCCL that trireme uses, for ranks that share one GPU,
 * which NCCL itself refuses. It makes the transport testable at any number of ranks on one card: it
 * is slow, and no part of the product. Chosen by run.nccl_library=.../libnccl-standin.so.
 *
 * The ranks of a communicator share a segment of memory by a name that the unique id carries. Each
 * has a staging area on the GPU that the others have opened (CUDA IPC; memory of the host that all
 * have registered when that is refused, or when NCCL_STANDIN_MEMORY=host). A collective is, piece
 * by piece: copy to the own area; all meet; compute from all areas, in the order of ranks; all
 * meet. For a meeting the stream asks the communicator's thread (cudaLaunchHostFunc), which waits
 * for the others in shared memory, and waits for its answer (a stream memory operation). So a
 * stream that waits does not occupy the GPU, streams of several communicators wait beside each
 * other, and everything can be captured in a graph: nothing is decided while capturing that a
 * replay could not repeat.
 *
 * Like a communicator of NCCL that does not block, one of these is "in progress" until all have
 * joined, and ncclCommAbort ends whatever waits. */
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

enum { MOST_RANKS = 64 };
static const size_t AREA_BYTES = (size_t)4 << 20;  /* for collectives */
static const size_t BOX_BYTES = (size_t)256 << 10; /* for messages to one peer */

/* What the ranks share. */
struct shared {
    std::atomic<int> opened, ready, left;
    std::atomic<int> on_host; /* some rank cannot share memory of the GPU */
    std::atomic<uint64_t> met;
    std::atomic<int> aborted;
    cudaIpcMemHandle_t handles[MOST_RANKS];
    std::atomic<uint64_t> sent[MOST_RANKS][MOST_RANKS], taken[MOST_RANKS][MOST_RANKS];
};

struct meeting { /* what a stream asks for */
    ncclComm *comm;
    int kind, peer;
};

struct ncclComm {
    char name[64];
    int rank, size, device;
    shared *with;
    char *host;             /* staging of all ranks, when it is memory of the host */
    char *area[MOST_RANKS]; /* of each rank, here */
    uint64_t meetings;      /* that this rank's stream has come to */
    std::vector<meeting *> kept;
    std::atomic<int> state; /* ncclResult_t */
    std::atomic<int> abort;
    char why[200];
    pthread_t thread; /* joins, then serves the stream */
    bool has_thread, leaving;
    std::atomic<const meeting *> asked; /* one at a time: a communicator has one stream */
    volatile uint32_t *answer;          /* of the host, mapped: 1 when that is over */
    CUdeviceptr answer_there;           /* the same for the GPU */
    std::atomic<int> quits;
};

typedef CUresult (*value_fn)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
static value_fn write_value, wait_value;

struct areas { /* of all ranks, as a kernel is given them */
    const char *of[MOST_RANKS];
};

static size_t bytes_each(int size)
{
    return AREA_BYTES + BOX_BYTES * (size_t)size;
}

static void nap(void)
{
    struct timespec pause = {0, 20000};
    nanosleep(&pause, NULL);
}

static bool ends(const ncclComm *comm)
{
    return comm->abort.load() || comm->with->aborted.load();
}

/* ---- joining ---- */

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = 22800;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t number = 0;
    FILE *random = fopen("/dev/urandom", "r");
    if (!random || fread(&number, sizeof number, 1, random) != 1)
        return ncclSystemError;
    fclose(random);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/nccl-standin-%d-%016llx", (int)getpid(),
             (unsigned long long)number);
    return ncclSuccess;
}

static bool wait_for(ncclComm *comm, const std::atomic<int> *count, int value)
{
    while (count->load() < value) {
        if (ends(comm))
            return false;
        nap();
    }
    return true;
}

static bool fail(ncclComm *comm, const char *what, const char *why)
{
    snprintf(comm->why, sizeof comm->why, "stand-in: %s: %s", what, why);
    comm->state = ncclSystemError;
    return false;
}

static void *map_shared(const char *name, size_t bytes)
{
    int file = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
        return MAP_FAILED;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory;
}

static bool share_gpu(ncclComm *comm)
{
    shared *with = comm->with;
    const char *wish = getenv("NCCL_STANDIN_MEMORY");
    bool good = !(wish && strcmp(wish, "host") == 0);
    good = good && cudaMalloc(&comm->area[comm->rank], bytes_each(comm->size)) == cudaSuccess &&
           cudaIpcGetMemHandle(&with->handles[comm->rank], comm->area[comm->rank]) == cudaSuccess;
    if (!good)
        with->on_host = 1;
    with->ready++;
    if (!wait_for(comm, &with->ready, comm->size))
        return false;
    for (int i = 0; i < comm->size && !with->on_host; i++)
        if (i != comm->rank && cudaIpcOpenMemHandle((void **)&comm->area[i], with->handles[i],
                                                    cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
            with->on_host = 1;
    with->ready++;
    if (!wait_for(comm, &with->ready, 2 * comm->size))
        return false;
    cudaGetLastError();
    return true;
}

static bool share_host(ncclComm *comm)
{
    char name[80];
    size_t bytes = bytes_each(comm->size) * (size_t)comm->size;
    snprintf(name, sizeof name, "%s-host", comm->name);
    comm->host = (char *)map_shared(name, bytes);
    if (comm->host == MAP_FAILED)
        return fail(comm, name, strerror(errno));
    cudaError_t code = cudaHostRegister(comm->host, bytes, cudaHostRegisterPortable);
    if (code != cudaSuccess)
        return fail(comm, "registering memory of the host", cudaGetErrorString(code));
    for (int i = 0; i < comm->size; i++)
        comm->area[i] = comm->host + bytes_each(comm->size) * (size_t)i;
    comm->with->ready++;
    bool all = wait_for(comm, &comm->with->ready, 3 * comm->size);
    shm_unlink(name);
    return all;
}

template <class T> static __global__ void combine(areas from, int num, int op, T *to, size_t count);

/* A kernel is loaded at its first use, which waits until no call of the host is under way: a rank
 * that stays away would keep it for ever. */
static bool load_kernels(ncclComm *comm)
{
    cudaFuncAttributes ignored;
    if (cudaFuncGetAttributes(&ignored, combine<float>) != cudaSuccess ||
        cudaFuncGetAttributes(&ignored, combine<__half>) != cudaSuccess ||
        cudaFuncGetAttributes(&ignored, combine<__nv_bfloat16>) != cudaSuccess)
        return fail(comm, "loading kernels", cudaGetErrorString(cudaGetLastError()));
    return true;
}

static bool open_answers(ncclComm *comm)
{
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", (void **)&write_value, 12000,
                                     cudaEnableDefault, &found);
    cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", (void **)&wait_value, 12000,
                                     cudaEnableDefault, &found);
    void *page = NULL, *there = NULL;
    if (!write_value || !wait_value ||
        cudaHostAlloc(&page, sizeof *comm->answer, cudaHostAllocMapped) != cudaSuccess ||
        cudaHostGetDevicePointer(&there, page, 0) != cudaSuccess)
        return fail(comm, "stream memory operations", cudaGetErrorString(cudaGetLastError()));
    comm->answer = (volatile uint32_t *)page;
    *comm->answer = 0;
    comm->answer_there = (CUdeviceptr)there;
    return true;
}

static void come(ncclComm *comm, const meeting *m);

/* What has been aborted goes on answering, so that streams come to their end. */
static void serve(ncclComm *comm)
{
    while (!comm->quits) {
        const meeting *m = comm->asked.exchange(NULL);
        if (!m) {
            nap();
            continue;
        }
        come(comm, m);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        *comm->answer = 1;
    }
}

static void *live(void *argument)
{
    ncclComm *comm = (ncclComm *)argument;
    cudaSetDevice(comm->device);
    comm->with->opened++;
    bool good = wait_for(comm, &comm->with->opened, comm->size);
    shm_unlink(comm->name);
    good = good && open_answers(comm) && load_kernels(comm) && share_gpu(comm);
    if (good && comm->with->on_host)
        good = share_host(comm);
    if (good)
        comm->state = ncclSuccess;
    else if (comm->state == ncclInProgress)
        comm->state = ncclRemoteError;
    if (comm->answer)
        serve(comm);
    return NULL;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size)
        return ncclInvalidArgument;
    if (!config || config->magic != 0xcafebeef || config->blocking != 0)
        return ncclInvalidArgument;
    ncclComm *comm = new ncclComm();
    comm->rank = rank;
    comm->size = size;
    comm->state = ncclInProgress;
    snprintf(comm->name, sizeof comm->name, "%s", id.internal);
    cudaGetDevice(&comm->device);
    void *memory = map_shared(comm->name, sizeof(shared));
    if (memory == MAP_FAILED) {
        delete comm;
        return ncclSystemError;
    }
    comm->with = (shared *)memory;
    comm->has_thread = pthread_create(&comm->thread, NULL, live, comm) == 0;
    *out = comm;
    return comm->has_thread ? ncclInProgress : ncclSystemError;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    int now = comm->state.load();
    bool others_stay = comm->leaving && comm->with->left < comm->size;
    *state = now == ncclSuccess && comm->with->aborted ? ncclRemoteError
             : now == ncclSuccess && others_stay       ? ncclInProgress
                                                       : (ncclResult_t)now;
    return ncclSuccess;
}

EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    return comm ? comm->why : "";
}

EXPORT const char *ncclGetErrorString(ncclResult_t code)
{
    static const char *const names[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return code < ncclNumResults ? names[code] : "unknown result";
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    comm->with->left++;
    comm->leaving = true;
    return ncclInProgress;
}

/* Areas that others have opened stay open: a stream may still read them. */
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    comm->quits = 1;
    if (comm->has_thread)
        pthread_join(comm->thread, NULL);
    comm->has_thread = false;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->abort = 1;
    comm->with->aborted = 1;
    if (comm->has_thread)
        pthread_detach(comm->thread);
    comm->has_thread = false;
    return ncclSuccess;
}

/* ---- what a stream asks for ---- */

enum { MEET, BOX_EMPTY, BOX_FILLED, BOX_FULL, BOX_TAKEN };

static void come(ncclComm *comm, const meeting *m)
{
    shared *with = comm->with;
    int own = comm->rank, peer = m->peer;
    uint64_t all;
    switch (m->kind) {
    case MEET:
        all = ++comm->meetings * (uint64_t)comm->size;
        with->met++;
        while (with->met < all && !ends(comm))
            nap();
        break;
    case BOX_EMPTY:
        while (with->taken[own][peer] < with->sent[own][peer] && !ends(comm))
            nap();
        break;
    case BOX_FILLED:
        with->sent[own][peer]++;
        break;
    case BOX_FULL:
        while (with->sent[peer][own] == with->taken[peer][own] && !ends(comm))
            nap();
        break;
    default:
        with->taken[peer][own]++;
    }
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        cudaError_t code_ = (call);                                                                \
        if (code_ != cudaSuccess) {                                                                \
            snprintf(comm->why, sizeof comm->why, "stand-in: %s: %s", #call,                       \
                     cudaGetErrorString(code_));                                                   \
            return ncclUnhandledCudaError;                                                         \
        }                                                                                          \
    } while (0)
#define TRY_NCCL(call)                                                                             \
    do {                                                                                           \
        ncclResult_t result_ = (call);                                                             \
        if (result_ != ncclSuccess)                                                                \
            return result_;                                                                        \
    } while (0)

static void CUDART_CB ask(void *argument)
{
    const meeting *m = (const meeting *)argument;
    m->comm->asked = m;
}

static ncclResult_t host_call(ncclComm *comm, int kind, int peer, cudaStream_t stream)
{
    meeting *m = new meeting{comm, kind, peer};
    comm->kept.push_back(m); /* a graph may ask for it again */
    TRY(cudaLaunchHostFunc(stream, ask, m));
    if (wait_value(stream, comm->answer_there, 1, CU_STREAM_WAIT_VALUE_EQ) != CUDA_SUCCESS ||
        write_value(stream, comm->answer_there, 0, CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS) {
        snprintf(comm->why, sizeof comm->why, "stand-in: stream memory operations are refused");
        return ncclUnhandledCudaError;
    }
    return ncclSuccess;
}

/* ---- sums ---- */

/* Wide inside, as NCCL's kernels are; from.of[0] first. */
template <class T> static __global__ void combine(areas from, int num, int op, T *to, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        float sum = (float)((const T *)from.of[0])[i];
        for (int r = 1; r < num; r++) {
            float x = (float)((const T *)from.of[r])[i];
            sum = op == ncclMax    ? fmaxf(sum, x)
                  : op == ncclMin  ? fminf(sum, x)
                  : op == ncclProd ? sum * x
                                   : sum + x;
        }
        to[i] = (T)(op == ncclAvg ? sum / (float)num : sum);
    }
}

static size_t width_of(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 4;
    }
}

/* Sums what all ranks have at `skip` of their areas. */
static ncclResult_t sum(ncclComm *comm, size_t skip, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, cudaStream_t stream)
{
    areas from = {};
    for (int i = 0; i < comm->size; i++)
        from.of[i] = comm->area[i] + skip;
    int blocks = (int)(count / 256 < 128 ? count / 256 + 1 : 128);
    if (type == ncclFloat32)
        combine<<<blocks, 256, 0, stream>>>(from, comm->size, op, (float *)to, count);
    else if (type == ncclBfloat16)
        combine<<<blocks, 256, 0, stream>>>(from, comm->size, op, (__nv_bfloat16 *)to, count);
    else if (type == ncclFloat16)
        combine<<<blocks, 256, 0, stream>>>(from, comm->size, op, (__half *)to, count);
    else
        return ncclInvalidArgument; /* trireme sums no others */
    TRY(cudaGetLastError());
    return ncclSuccess;
}

static ncclResult_t copy(ncclComm *comm, void *to, const void *from, size_t bytes,
                         cudaStream_t stream)
{
    if (to != from && bytes > 0)
        TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    return ncclSuccess;
}

static ncclResult_t meet(ncclComm *comm, cudaStream_t stream)
{
    return host_call(comm, MEET, -1, stream);
}

/* ---- calls, and groups of them ---- */

enum op_kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

struct op {
    op_kind kind;
    const char *send;
    char *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t sum;
    int peer; /* or root */
    ncclComm *comm;
    cudaStream_t stream;
};

/* A piece of the vector (of the block, for the last two): `skip` bytes into it, `bytes` long. */
static ncclResult_t run_piece(const op *o, size_t skip, size_t bytes)
{
    ncclComm *comm = o->comm;
    int own = comm->rank;
    size_t width = width_of(o->type), block = o->count * width, count = bytes / width;
    bool computes = o->kind == ALL_REDUCE || (o->kind == REDUCE && own == o->peer);
    if (o->kind == REDUCE_SCATTER)
        for (int i = 0; i < comm->size; i++)
            TRY_NCCL(copy(comm, comm->area[own] + (size_t)i * bytes,
                          o->send + (size_t)i * block + skip, bytes, o->stream));
    else if (o->kind != BROADCAST || own == o->peer)
        TRY_NCCL(copy(comm, comm->area[own], o->send + skip, bytes, o->stream));
    TRY_NCCL(meet(comm, o->stream));
    if (computes)
        TRY_NCCL(sum(comm, 0, o->recv + skip, count, o->type, o->sum, o->stream));
    if (o->kind == REDUCE_SCATTER)
        TRY_NCCL(sum(comm, (size_t)own * bytes, o->recv + skip, count, o->type, o->sum, o->stream));
    if (o->kind == BROADCAST)
        TRY_NCCL(copy(comm, o->recv + skip, own == o->peer ? o->send + skip : comm->area[o->peer],
                      bytes, o->stream));
    for (int i = 0; i < comm->size && o->kind == ALL_GATHER; i++)
        TRY_NCCL(copy(comm, o->recv + (size_t)i * block + skip, comm->area[i], bytes, o->stream));
    return meet(comm, o->stream);
}

static ncclResult_t run_collective(const op *o)
{
    size_t bytes = o->count * width_of(o->type);
    size_t most = AREA_BYTES / (o->kind == REDUCE_SCATTER ? (size_t)o->comm->size : 1);
    most -= most % 256;
    for (size_t skip = 0; skip < bytes; skip += most)
        TRY_NCCL(run_piece(o, skip, bytes - skip < most ? bytes - skip : most));
    return ncclSuccess;
}

/* Piece `number` of a message, through the box that the sender has for the receiver. */
static ncclResult_t run_message(const op *o, size_t number)
{
    ncclComm *comm = o->comm;
    size_t bytes = o->count * width_of(o->type), skip = number * BOX_BYTES;
    size_t now = skip >= bytes ? 0 : bytes - skip < BOX_BYTES ? bytes - skip : BOX_BYTES;
    bool sends = o->kind == SEND;
    int from = sends ? comm->rank : o->peer, to = sends ? o->peer : comm->rank;
    char *box = comm->area[from] + AREA_BYTES + (size_t)to * BOX_BYTES;
    if (now == 0)
        return ncclSuccess;
    TRY_NCCL(host_call(comm, sends ? BOX_EMPTY : BOX_FULL, o->peer, o->stream));
    TRY_NCCL(sends ? copy(comm, box, o->send + skip, now, o->stream)
                   : copy(comm, o->recv + skip, box, now, o->stream));
    return host_call(comm, sends ? BOX_FILLED : BOX_TAKEN, o->peer, o->stream);
}

/* To itself: the messages in order. */
static ncclResult_t run_own(const std::vector<op> &ops)
{
    size_t r = 0;
    for (const op &o : ops) {
        if (o.kind != SEND || o.peer != o.comm->rank)
            continue;
        while (r < ops.size() && !(ops[r].kind == RECV && ops[r].peer == o.comm->rank))
            r++;
        if (r == ops.size())
            return ncclInvalidUsage;
        TRY_NCCL(copy(o.comm, ops[r++].recv, o.send, o.count * width_of(o.type), o.stream));
    }
    return ncclSuccess;
}

static ncclResult_t run_all(const std::vector<op> &ops)
{
    size_t rounds = 0;
    TRY_NCCL(run_own(ops));
    for (const op &o : ops) {
        size_t bytes = o.count * width_of(o.type), num = (bytes + BOX_BYTES - 1) / BOX_BYTES;
        if (o.kind < SEND)
            TRY_NCCL(run_collective(&o));
        else if (o.peer != o.comm->rank && num > rounds)
            rounds = num;
    }
    /* In each round all sends before all receives: nobody waits for one that waits for it. */
    for (size_t i = 0; i < rounds; i++)
        for (int kind = SEND; kind <= RECV; kind++)
            for (const op &o : ops)
                if (o.kind == kind && o.peer != o.comm->rank)
                    TRY_NCCL(run_message(&o, i));
    return ncclSuccess;
}

static thread_local int depth;
static thread_local std::vector<op> waiting;

static ncclResult_t add(const op &o)
{
    if (o.comm->state != ncclSuccess)
        return ncclInvalidUsage; /* not joined yet, or ended */
    waiting.push_back(o);
    if (depth > 0)
        return ncclSuccess;
    std::vector<op> ops;
    ops.swap(waiting);
    return run_all(ops);
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0)
        return ncclInvalidUsage;
    if (--depth > 0)
        return ncclSuccess;
    std::vector<op> ops;
    ops.swap(waiting);
    return run_all(ops);
}

EXPORT ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclRedOp_t sum, ncclComm_t comm, cudaStream_t stream)
{
    return add({ALL_REDUCE, (const char *)send, (char *)recv, count, type, sum, -1, comm, stream});
}

EXPORT ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t sum, int root, ncclComm_t comm, cudaStream_t stream)
{
    return add({REDUCE, (const char *)send, (char *)recv, count, type, sum, root, comm, stream});
}

EXPORT ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, cudaStream_t stream)
{
    return add(
        {BROADCAST, (const char *)send, (char *)recv, count, type, ncclSum, root, comm, stream});
}

EXPORT ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream)
{
    return add(
        {ALL_GATHER, (const char *)send, (char *)recv, count, type, ncclSum, -1, comm, stream});
}

EXPORT ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                                      ncclDataType_t type, ncclRedOp_t sum, ncclComm_t comm,
                                      cudaStream_t stream)
{
    return add(
        {REDUCE_SCATTER, (const char *)send, (char *)recv, count, type, sum, -1, comm, stream});
}

EXPORT ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream)
{
    return add({SEND, (const char *)data, NULL, count, type, ncclSum, peer, comm, stream});
}

EXPORT ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream)
{
    return add({RECV, NULL, (char *)data, count, type, ncclSum, peer, comm, stream});
}
