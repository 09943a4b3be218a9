/* A device: memory, and a table of kernels keyed by operator. Device code knows nothing of graphs
 * or programs; the executor calls it through this table. To add one: a file with a tri_device_def
 * and a row in device.c. */
#ifndef TRI_DEVICE_DEVICE_H
#define TRI_DEVICE_DEVICE_H

#include "device/kernel.h"
#include "graph/passes.h"

typedef struct tri_device_config {
    const char *kind;   /* "cpu", "cuda", "null"; what "auto" stands for is decided before */
    int num_threads;    /* 0: one per core this process may use */
    const char *isa;    /* "auto", or an instruction set to hold back to */
    bool reference;     /* portable kernels only */
    bool float8;        /* programs have products of 8-bit operands: refused where there are none */
    bool tf32;          /* cuda: products of f32 may round their operands to tf32 */
    bool any_order;     /* cuda: kernels may add in any order, so that bits differ between runs */
    bool no_tuning;     /* cuda: large products as the library would do them, without measuring */
    const char *tuning; /* the file that keeps what is measured, or NULL: it is not kept */
} tri_device_config;

typedef struct tri_device tri_device;

/* Lanes are queues beside the queue, on which libraries enqueue messages between devices. Each runs
 * in order; points order them among each other. All of it may be part of a recording, in which a
 * lane takes part from its first await of a point that was set in it. */
enum { TRI_DEVICE_NUM_LANES = 18, TRI_DEVICE_NUM_POINTS = 128, TRI_DEVICE_QUEUE = -1 };
typedef struct tri_device_lanes {
    /* Makes a lane, once; not while recording. handle is what libraries know it by (a
     * cudaStream_t).
     */
    tr_status (*open)(tri_device *device, int lane, void **handle, tr_error *err);
    /* A point is set when what is on the lane (or TRI_DEVICE_QUEUE) now has run; what comes next on
     * the lane that awaits it runs after that. A point may be set again, for later awaits. */
    tr_status (*set)(tri_device *device, int lane, int point, tr_error *err);
    tr_status (*await)(tri_device *device, int lane, int point, tr_error *err);
    /* Enqueues a copy between the device's memory and memory of alloc_host. */
    tr_status (*copy)(tri_device *device, int lane, void *to, const void *from, size_t bytes,
                      tr_error *err);
    /* Writes a number to a page of the host when the lane comes to it; the last one that this lane
     * has written. */
    tr_status (*note)(tri_device *device, int lane, uint64_t number, tr_error *err);
    uint64_t (*noted)(const tri_device *device, int lane);
    /* Whether the queue has run all that it was given; an error in any of it is reported here. */
    tr_status (*idle)(tri_device *device, bool *idle, tr_error *err);
    /* Tells this device from all others, on any machine: "GPU-5f..." */
    tr_status (*identity)(tri_device *device, char *text, size_t size, tr_error *err);
} tri_device_lanes;

enum { TRI_DEVICE_SUM_PARTS = 128 };

/* What a device has whose memory is not the host's and whose kernels only enqueue work. Everything
 * enqueued runs in order. */
typedef struct tri_device_queue {
    /* Begins to use the device, in the process that will: opening one does not touch it yet, since
     * a process that has used a GPU cannot be forked. Comes before every call below and before
     * alloc. index: which of several, taken modulo their number. */
    tr_status (*start)(tri_device *device, int index, tr_error *err);
    uint64_t (*available)(const tri_device *device); /* bytes of its memory that are free */
    /* Memory of the host that copies can start from and end in without waiting. */
    void *(*alloc_host)(size_t bytes);
    void (*free_host)(void *memory);
    /* Enqueued: the host's side must stay as it is until finish. */
    tr_status (*upload)(tri_device *device, void *to, const void *from, size_t bytes,
                        tr_error *err);
    tr_status (*download)(tri_device *device, void *to, const void *from, size_t bytes,
                          tr_error *err);
    /* Within the device's memory. */
    tr_status (*copy)(tri_device *device, void *to, const void *from, size_t bytes, tr_error *err);
    /* Enqueued: the parts of tri_sum_bytes (base/checksum.h) of bytes that begin at a multiple of
     * 8; to is memory of alloc_host. NULL: the host sums what it downloads. */
    tr_status (*sum)(tri_device *device, const void *from, size_t bytes,
                     uint64_t to[TRI_DEVICE_SUM_PARTS], tr_error *err);
    /* Both are enqueued, and may be recorded, for steps that run twice. clear: zeros. add_sum: adds
     * tri_sum_words (base/checksum.h) of the bytes, the last word filled up with zeros and the
     * first one numbered `first`, to a word of the device's memory; they begin anywhere. NULL: what
     * kernels make cannot be compared from instruction to instruction. */
    tr_status (*clear)(tri_device *device, void *memory, size_t bytes, tr_error *err);
    tr_status (*add_sum)(tri_device *device, const void *from, size_t bytes, uint64_t first,
                         uint64_t *to, tr_error *err);
    /* Waits for all that was enqueued; an error in any of it is reported here. */
    tr_status (*finish)(tri_device *device, tr_error *err);
    /* What is enqueued between the first two is noted down instead of run; replay enqueues it. */
    tr_status (*record)(tri_device *device, tr_error *err);
    tr_status (*record_end)(tri_device *device, void **recording, tr_error *err);
    tr_status (*replay)(tri_device *device, void *recording, tr_error *err);
    void (*forget)(void *recording);
    /* A mark in the queue; after finish, the seconds that passed on the device between two. */
    tr_status (*mark)(tri_device *device, uint32_t mark, tr_error *err);
    /* Waits for what was enqueued before the mark was. May be NULL: the host then only waits. */
    tr_status (*reach)(tri_device *device, uint32_t mark, tr_error *err);
    double (*seconds_between)(tri_device *device, uint32_t first, uint32_t second);
    /* What the device keeps for kernels itself, at most (reserve_scratch). A call that needs more
     * is lent a piece of the program's memory: what is called from here on uses that, and with NULL
     * what is reserved again. */
    size_t own_scratch;
    void (*lend_scratch)(tri_device *device, void *memory, size_t bytes);
    const tri_device_lanes *lanes; /* NULL: messages go through the host */
} tri_device_queue;

/* Something that a device consists of or works with, and whether it is on this machine. */
typedef struct tri_device_found {
    const char *name; /* "GPU" */
    bool there;
    char detail[200]; /* what it is, or what is to be done without it */
} tri_device_found;
enum { TRI_DEVICE_MOST_FOUND = 8 };

typedef struct tri_device_def {
    const char *kind;
    const tri_fusions *fusions; /* epilogues that its products can apply */
    tr_status (*open)(tri_device *device, const tri_device_config *config, tr_error *err);
    void (*close)(tri_device *device);
    const tri_device_queue
        *queue;    /* NULL: kernels work in the host's memory and return when done */
    bool f32_only; /* its kernels know f32 alone, and are called through widened copies */
    bool apart;    /* no other process reads its memory in place */
    /* NULL: there is none, and the host's is called with copies of the operands. */
    const tri_kernel *(*kernel)(const tri_device *device, tri_op op);
    /* Optional: false for operands that its kernel is not made for; the host's is called then.
     * Called before the first call with such operands, so that it can get ready for them. */
    bool (*takes)(tri_op op, const tri_kernel_args *args);
    /* Memory that starts as zeros; NULL when there is none. */
    void *(*alloc)(size_t bytes);
    void (*free)(void *memory, size_t bytes);
    /* Makes room for what the kernels of the programs ask for. */
    tr_status (*reserve_scratch)(tri_device *device, size_t bytes, tr_error *err);
    /* FLOP/s of a large product of this type, and bytes/s of a large copy (read and written),
     * measured in a few milliseconds once scratch is reserved; the figures that utilisation is
     * given against. NULL or 0: not known. */
    double (*peak_flops)(tri_device *device, tri_dtype dtype);
    /* Seconds of one product of a [m][k] and a [k][n] matrix (b is stored turned), measured the
     * same way; 0: it does not fit, or fails. NULL: not known. */
    double (*product_seconds)(tri_device *device, tri_dtype dtype, int64_t m, int64_t n, int64_t k);
    double (*peak_bytes)(tri_device *device);
    /* tri_sum_bytes (base/checksum.h) on the device's threads, for a device whose kernels work in
     * the host's memory; clear and add_sum of a queue are for others. NULL: what its kernels make
     * cannot be compared from instruction to instruction. */
    uint64_t (*sum)(const tri_device *device, const void *data, size_t bytes);
    /* Optional: writes what was measured for the calls so far to device->tuning. */
    tr_status (*keep)(tri_device *device, tr_error *err);
    /* How many of them this process can use; 0 when something else is missing, too. NULL: one. A
     * process that has asked cannot be forked any more. */
    int (*count)(void);
    /* Optional: fills a list of TRI_DEVICE_MOST_FOUND and returns how many; needs no device. */
    int (*found)(tri_device_found *found);
} tri_device_def;

/* Whether what rests on the host takes of the device's memory, since that is the host's. */
static inline bool tri_device_shares_host(const tri_device_def *def)
{
    return !def->queue && !def->apart;
}

/* What GPUs offer, whether one is here or only described. */
extern const tri_fusions tri_gpu_fusions;

struct tri_device {
    const tri_device_def *def;
    void *state; /* passed to kernels as args->device */
    int num_threads;
    size_t scratch_bytes;
    const char *tuning;    /* tri_device_config; may be set until the device is started */
    char description[160]; /* "cpu, 2 threads, avx512" */
};

const tri_device_def *tri_device_find(const char *kind); /* or NULL */
/* How it was built: why without CUDA and how to make one that has it, in the words that follow "it
 * was". */
const char *tri_device_cuda_state(void);
/* Whether this build has such a device; nothing is opened. */
tr_status tri_device_check(const char *kind, tr_error *err);
tr_status tri_device_open(const tri_device_config *config, tri_device *device, tr_error *err);
void tri_device_close(tri_device *device);

/* Slabs are rounded up to this, so that large ones can be huge pages. */
size_t tri_device_round(size_t bytes);
/* Cores that this process may run on. */
int tri_device_num_cores(void);

/* What there is to choose from when the settings leave it open. */
typedef struct tri_device_offer {
    bool built;      /* this build has CUDA */
    bool driver;     /* the machine has an NVIDIA GPU, or what stands for one */
    int num_devices; /* that can be used */
    int local_ranks; /* that want one each */
    bool bound;      /* whoever started the ranks showed each the GPU that is its own */
} tri_device_offer;

typedef struct tri_device_choice {
    bool chosen; /* false: the settings named it, and there was nothing to choose */
    const char *kind;
    char why[128];  /* not the GPU, in a few words; "" for the GPU */
    char hint[300]; /* what to do about it, where something can be done; or "" */
} tri_device_choice;

void tri_device_choose(const tri_device_offer *offer, tri_device_choice *choice);
/* Looks itself, in this process, for a run of so many ranks. */
tri_device_choice tri_device_choose_here(int num_ranks);
/* Whether an NVIDIA GPU's driver shows itself, without asking it. */
bool tri_device_gpu_driver(void);

/* How one instruction is called on a device: chosen once, from the sizes and types of its operands.
 */
typedef struct tri_call_plan {
    tri_op op;
    const tri_kernel *kernel;
    bool widened; /* through tri_cpu_run_widened */
    bool on_host; /* the device has no kernel: the portable one, on copies of the operands */
} tri_call_plan;
tri_call_plan tri_device_plan_call(const tri_device *device, tri_op op,
                                   const tri_kernel_args *args);
/* Scratch of the device, or of the host for a call that runs there. */
size_t tri_device_call_scratch(const tri_device *device, const tri_call_plan *plan,
                               const tri_kernel_args *args);
void tri_device_call(const tri_call_plan *plan, const tri_kernel_args *args);

extern const tri_device_def tri_device_cpu, tri_device_null;
/* A GPU that is not here: computes nothing, but programs are what they would be on one. */
extern const tri_device_def tri_device_described;
#ifdef TRI_CUDA
extern const tri_device_def tri_device_cuda;
#endif

#endif
