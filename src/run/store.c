#include "run/store.h"

#include "run/executor.h"

tri_slab_kind tri_slab_of(tri_space_kind kind)
{
    switch (kind) {
    case TRI_SPACE_PARAM:
        return TRI_SLAB_PARAM;
    case TRI_SPACE_GRAD:
        return TRI_SLAB_GRAD;
    case TRI_SPACE_OPTIM:
        return TRI_SLAB_OPTIM;
    default:
        return TRI_SLAB_SHARED;
    }
}

uint64_t tri_space_base(const tri_program *program, size_t space)
{
    tri_slab_kind slab = tri_slab_of(program->spaces[space].kind);
    uint64_t base = 0;
    for (size_t s = 0; s < space; s++)
        if (tri_slab_of(program->spaces[s].kind) == slab)
            base += tri_space_total(&program->spaces[s]);
    return base;
}

static size_t scratch_of(const tri_device *device, const tri_program *program)
{
    size_t most = 0;
    for (size_t i = 0; i < program->num_instrs; i++) {
        if (tri_op_get(program->instrs[i].op)->communicates)
            continue;
        const tri_kernel *kernel = device->def->kernel(device, program->instrs[i].op);
        if (!kernel->scratch_bytes)
            continue;
        tri_kernel_args args;
        tri_instr_args(program, &program->instrs[i], &args);
        size_t bytes = kernel->scratch_bytes(&args, device->num_threads);
        if (bytes > most)
            most = bytes;
    }
    return most;
}

void tri_store_plan(tri_store *store, tri_device *device, const tri_program *const *programs,
                    size_t num_programs)
{
    *store = (tri_store){.device = device};
    for (size_t p = 0; p < num_programs; p++) {
        uint64_t bytes[TRI_NUM_SLABS] = {0};
        for (size_t s = 0; s < programs[p]->num_spaces; s++)
            bytes[tri_slab_of(programs[p]->spaces[s].kind)] +=
                tri_space_total(&programs[p]->spaces[s]);
        for (int i = 0; i < TRI_NUM_SLABS; i++)
            if (bytes[i] > store->slabs[i].bytes)
                store->slabs[i].bytes = bytes[i];
        size_t scratch = scratch_of(device, programs[p]);
        if (scratch > store->scratch_bytes)
            store->scratch_bytes = scratch;
    }
}

uint64_t tri_store_total(const tri_store *store)
{
    uint64_t total = tri_device_round(store->scratch_bytes);
    for (int i = 0; i < TRI_NUM_SLABS; i++)
        total += tri_device_round(store->slabs[i].bytes);
    return total;
}

/* Gradients are read by the other ranks, so they lie in memory that the transport gives. */
static void *alloc_slab(tri_store *store, tri_slab_kind kind)
{
    if (kind == TRI_SLAB_GRAD && store->peers.alloc)
        return store->peers.alloc(store->peers.context, store->slabs[kind].bytes);
    return store->device->def->alloc(store->slabs[kind].bytes);
}

static void free_slab(tri_store *store, tri_slab_kind kind)
{
    if (kind == TRI_SLAB_GRAD && store->peers.alloc)
        store->peers.free(store->peers.context, store->slabs[kind].memory);
    else
        store->device->def->free(store->slabs[kind].memory, store->slabs[kind].bytes);
}

tr_status tri_store_alloc(tri_store *store, tr_error *err)
{
    const tri_device_def *device = store->device->def;
    uint64_t wanted = tri_store_total(store), room = tri_device_memory_available();
    char wanted_text[16], room_text[16];
    if (device != &tri_device_null && room && wanted > room)
        return tri_fail(err, TR_ERROR_INPUT,
                        "this run needs %s of memory and %s are available; raise "
                        "layout.microbatches, or lower train.batch, data.seq_len or the model's "
                        "size (`trireme plan` shows what takes how much)",
                        tri_text_bytes((double)wanted, wanted_text),
                        tri_text_bytes((double)room, room_text));
    for (int i = 0; i < TRI_NUM_SLABS; i++) {
        tri_slab *slab = &store->slabs[i];
        if (!slab->bytes)
            continue;
        slab->memory = alloc_slab(store, (tri_slab_kind)i);
        if (!slab->memory) {
            tri_store_free(store);
            return tri_fail(err, TR_ERROR_RUNTIME, "the system refused %s of memory",
                            tri_text_bytes((double)slab->bytes, wanted_text));
        }
    }
    tr_status status = device->reserve_scratch(store->device, store->scratch_bytes, err);
    if (status != TR_OK)
        tri_store_free(store);
    return status;
}

void tri_store_free(tri_store *store)
{
    for (int i = 0; i < TRI_NUM_SLABS; i++) {
        if (store->slabs[i].memory)
            free_slab(store, (tri_slab_kind)i);
        store->slabs[i].memory = NULL;
    }
}
