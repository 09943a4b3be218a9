/* A device: memory, and a table of kernels keyed by operator. Device code knows nothing of graphs
 * or programs; the executor calls it through this table. To add one: a file with a tri_device_def
 * and a row in device.c. */
#ifndef TRI_DEVICE_DEVICE_H
#define TRI_DEVICE_DEVICE_H

#include "device/kernel.h"
#include "graph/passes.h"

typedef struct tri_device_config {
    const char *kind; /* "cpu", "null" */
    int num_threads;  /* 0: one per core this process may use */
    const char *isa;  /* "auto", or an instruction set to hold back to */
    bool reference;   /* portable kernels only */
} tri_device_config;

typedef struct tri_device tri_device;

typedef struct tri_device_def {
    const char *kind;
    tri_fusions fusions; /* epilogues that its products can apply */
    tr_status (*open)(tri_device *device, const tri_device_config *config, tr_error *err);
    void (*close)(tri_device *device);
    /* Every operator has one. */
    const tri_kernel *(*kernel)(const tri_device *device, tri_op op);
    /* Memory that starts as zeros; NULL when there is none. */
    void *(*alloc)(size_t bytes);
    void (*free)(void *memory, size_t bytes);
    /* Makes room for what the kernels of the programs ask for. */
    tr_status (*reserve_scratch)(tri_device *device, size_t bytes, tr_error *err);
    /* FLOP/s of a large product, measured in a few milliseconds once scratch is reserved; the
     * figure that utilisation is given against. NULL or 0: not known. */
    double (*peak_flops)(tri_device *device);
} tri_device_def;

struct tri_device {
    const tri_device_def *def;
    void *state; /* passed to kernels as args->device */
    int num_threads;
    size_t scratch_bytes;
    char description[160]; /* "cpu, 2 threads, avx512" */
};

const tri_device_def *tri_device_find(const char *kind); /* or NULL */
tr_status tri_device_open(const tri_device_config *config, tri_device *device, tr_error *err);
void tri_device_close(tri_device *device);

/* Slabs are rounded up to this, so that large ones can be huge pages. */
size_t tri_device_round(size_t bytes);
/* Cores that this process may run on. */
int tri_device_num_cores(void);
/* Bytes that can still be allocated on this machine, or 0 when that cannot be found out. */
uint64_t tri_device_memory_available(void);

extern const tri_device_def tri_device_cpu, tri_device_null;

#endif
