/* The memory of a run: one slab per class, shared by all of its programs.
 *
 * Parameters, gradients, moments and caches keep their slabs for the whole run. Everything else
 * lives only while its program runs, and programs run one at a time: they share one slab as large
 * as the largest of them needs. Each of these slabs may have a part on the host and one in the
 * scratch file: the spaces of a program say where they lie. */
#ifndef TRI_RUN_STORE_H
#define TRI_RUN_STORE_H

#include "device/device.h"
#include "program/program.h"
#include "run/carrier.h"

typedef enum tri_slab_kind {
    TRI_SLAB_PARAM,
    TRI_SLAB_COPY,
    TRI_SLAB_GRAD,
    TRI_SLAB_OPTIM,
    TRI_SLAB_CACHE,
    TRI_SLAB_SHARED,
    TRI_NUM_SLABS
} tri_slab_kind;

typedef struct tri_slab {
    void *memory;
    uint64_t bytes;  /* as the plan says; allocated rounded up */
    uint64_t offset; /* of a slab in the scratch file, which has no memory */
} tri_slab;

/* Memory that other ranks can read in place; alloc NULL: there are none. */
typedef struct tri_peer_memory {
    void *context;
    void *(*alloc)(void *context, size_t bytes); /* zeros, or NULL */
    void (*free)(void *context, void *memory);
} tri_peer_memory;

/* Where the device's memory is not the host's, the host keeps two copies of its own: of what it
 * writes before a run and reads after it (statistics, outputs, step and batch inputs, which come
 * first in the shared slab), and of the slab that travels to other ranks. */
typedef struct tri_store {
    tri_device *device;
    tri_peer_memory peers; /* set between plan and alloc, as is the next */
    /* For instructions that run on the host beside a device with a queue: the CPU's own kernels, on
     * threads of their own. def NULL: there are none. */
    tri_device cpu;
    bool needs_cpu;
    int device_index;      /* which of several devices: the rank's number on its machine */
    uint64_t device_bytes; /* what a device with memory of its own lost by the allocation */
    tri_slab slabs[TRI_NUM_SLABS];
    tri_slab host[TRI_NUM_SLABS], file[TRI_NUM_SLABS]; /* the same at other places */
    const char *scratch_dir;  /* of the scratch file; set as peers are, NULL: /tmp */
    tri_scratch_file scratch; /* where a program has spaces in a file */
    tri_carrier *carrier;     /* where it has spaces that are not on the device; else NULL */
    uint64_t scratch_bytes;   /* of the device's kernels, beside what their programs have */
    uint64_t laid_grad_bytes; /* of gradients that lie in the shared slab */
    tri_slab host_io;   /* a copy of the beginning of the shared slab; no memory: not needed */
    tri_slab host_grad; /* a copy of the gradients, when there are other ranks */
    tri_slab host_room; /* for what else travels: twice the largest message */
    tri_slab sums;      /* of instructions, on the device; set between plan and alloc */
    uint64_t num_runs;  /* of programs so far, on a device with a queue */
} tri_store;

/* Scratch of an instruction's kernel that its program has room for, of a tri_device: of the
 * device's kernels, where large ones would else keep memory that is only theirs. Those of the CPU
 * use the same little scratch all the time, which is then in its caches. See tri_memory_needs. */
enum { TRI_SCRATCH_ALIGN = 256 }; /* room for that is in it */
uint64_t tri_store_scratch(const void *device, const tri_program *program, const tri_instr *instr);
/* Sizes only; allocates nothing. */
void tri_store_plan(tri_store *store, tri_device *device, const tri_program *const *programs,
                    size_t num_programs);
/* Spaces that the host reads or writes: the first of the shared slab. */
bool tri_space_is_io(tri_space_kind kind);
/* Of the device, rounded as allocated, kernel scratch included; where that works in the host's
 * memory, with what rests on the host. */
uint64_t tri_store_total(const tri_store *store);
/* Of the spaces at another place, rounded likewise. */
uint64_t tri_store_bytes_at(const tri_store *store, tri_where where);
/* Refuses, with the figures, what this machine has no room for. */
tr_status tri_store_alloc(tri_store *store, tr_error *err);
void tri_store_free(tri_store *store);

tri_slab_kind tri_slab_of(tri_space_kind kind);
/* The slab that a space is part of. */
tri_slab *tri_store_slab(tri_store *store, const tri_space *space);
/* Where a space begins in its slab. */
uint64_t tri_space_base(const tri_program *program, size_t space);

#endif
