#include "run/store.h"

#include <stdio.h>
#include <string.h>

#include "base/system_memory.h"

#include "run/executor.h"

tri_slab_kind tri_slab_of(tri_space_kind kind)
{
    switch (kind) {
    case TRI_SPACE_PARAM:
        return TRI_SLAB_PARAM;
    case TRI_SPACE_COPY:
        return TRI_SLAB_COPY;
    case TRI_SPACE_GRAD:
        return TRI_SLAB_GRAD;
    case TRI_SPACE_OPTIM:
        return TRI_SLAB_OPTIM;
    case TRI_SPACE_CACHE:
        return TRI_SLAB_CACHE;
    default:
        return TRI_SLAB_SHARED;
    }
}

static tri_slab *slabs_at(tri_store *store, tri_where where)
{
    return where == TRI_WHERE_DEVICE ? store->slabs
           : where == TRI_WHERE_HOST ? store->host
                                     : store->file;
}

tri_slab *tri_store_slab(tri_store *store, const tri_space *space)
{
    return &slabs_at(store, space->where)[tri_slab_of(space->kind)];
}

uint64_t tri_space_base(const tri_program *program, size_t space)
{
    tri_slab_kind slab = tri_slab_of(program->spaces[space].kind);
    uint64_t base = 0;
    for (size_t s = 0; s < space; s++)
        if (tri_slab_of(program->spaces[s].kind) == slab &&
            program->spaces[s].where == program->spaces[space].where)
            base += tri_space_total(&program->spaces[s]);
    return base;
}

bool tri_space_is_io(tri_space_kind kind)
{
    return kind == TRI_SPACE_STAT || kind == TRI_SPACE_OUTPUT || kind == TRI_SPACE_STEP ||
           kind == TRI_SPACE_BATCH;
}

/* Whether an instruction runs on the host, though the device has memory of its own. */
static bool runs_on_cpu(const tri_device *device, const tri_instr *instr,
                        const tri_kernel_args *args)
{
    return device->def->queue && (instr->where == TRI_WHERE_HOST ||
                                  tri_device_plan_call(device, instr->op, args).on_host);
}

static size_t call_scratch(const tri_device *device, const tri_program *program,
                           const tri_instr *instr)
{
    tri_kernel_args args;
    if (tri_op_get(instr->op)->communicates)
        return 0;
    tri_instr_args(program, instr, &args);
    args.device = device->state;
    if (runs_on_cpu(device, instr, &args))
        return 0;
    tri_call_plan plan = tri_device_plan_call(device, instr->op, &args);
    return tri_device_call_scratch(device, &plan, &args);
}

uint64_t tri_store_scratch(const void *device, const tri_program *program, const tri_instr *instr)
{
    const tri_device *d = device;
    if (!d->def->queue)
        return 0;
    size_t bytes = call_scratch(d, program, instr);
    return bytes > d->def->queue->own_scratch ? bytes + TRI_SCRATCH_ALIGN : 0;
}

/* What the device keeps: of those that the program has no room for, the largest. */
static size_t scratch_of(const tri_device *device, const tri_program *program)
{
    size_t most = 0;
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        size_t bytes = instr->scratch_bytes ? 0 : call_scratch(device, program, instr);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Room on the host for what travels and has no copy there: both ends of a message. */
static uint64_t room_of(const tri_message *message)
{
    return message->send.bytes + message->recv.bytes + 2 * TRI_PROGRAM_ALIGN;
}

static void plan_slabs(tri_store *store, const tri_program *program)
{
    uint64_t bytes[TRI_NUM_WHERE][TRI_NUM_SLABS] = {{0}};
    for (size_t s = 0; s < program->num_spaces; s++)
        bytes[program->spaces[s].where][tri_slab_of(program->spaces[s].kind)] +=
            tri_space_total(&program->spaces[s]);
    for (int where = 0; where < TRI_NUM_WHERE; where++)
        for (int i = 0; i < TRI_NUM_SLABS; i++) {
            tri_slab *slab = &slabs_at(store, (tri_where)where)[i];
            slab->bytes = bytes[where][i] > slab->bytes ? bytes[where][i] : slab->bytes;
        }
}

static void plan_cpu(tri_store *store, const tri_program *program, const tri_instr *instr)
{
    tri_kernel_args args;
    if (tri_op_get(instr->op)->communicates)
        return;
    tri_instr_args(program, instr, &args);
    args.device = store->device->state;
    store->needs_cpu |= runs_on_cpu(store->device, instr, &args);
}

void tri_store_plan(tri_store *store, tri_device *device, const tri_program *const *programs,
                    size_t num_programs)
{
    *store = (tri_store){.device = device, .scratch = {.fd = -1}};
    for (size_t p = 0; p < num_programs; p++) {
        plan_slabs(store, programs[p]);
        uint64_t io = 0;
        for (size_t s = 0; s < programs[p]->num_spaces; s++)
            if (tri_space_is_io(programs[p]->spaces[s].kind))
                io += tri_space_total(&programs[p]->spaces[s]);
        if (device->def->queue && io > store->host_io.bytes)
            store->host_io.bytes = io;
        for (size_t m = 0; device->def->queue && m < programs[p]->num_messages; m++) {
            if (tri_message_carries(&programs[p]->messages[m]))
                continue;
            uint64_t room = room_of(&programs[p]->messages[m]);
            if (room > store->host_room.bytes)
                store->host_room.bytes = room;
        }
        if (programs[p]->laid_grad_bytes > store->laid_grad_bytes)
            store->laid_grad_bytes = programs[p]->laid_grad_bytes;
        for (size_t i = 0; device->def->queue && i < programs[p]->num_instrs; i++)
            plan_cpu(store, programs[p], &programs[p]->instrs[i]);
        size_t scratch = scratch_of(device, programs[p]);
        if (scratch > store->scratch_bytes)
            store->scratch_bytes = scratch;
    }
}

uint64_t tri_store_bytes_at(const tri_store *store, tri_where where)
{
    uint64_t total = 0;
    const tri_slab *slabs = slabs_at((tri_store *)store, where);
    for (int i = 0; i < TRI_NUM_SLABS; i++)
        total += tri_device_round(slabs[i].bytes);
    return total;
}

uint64_t tri_store_total(const tri_store *store)
{
    uint64_t host =
        tri_device_shares_host(store->device->def) ? tri_store_bytes_at(store, TRI_WHERE_HOST) : 0;
    return tri_device_round(store->scratch_bytes) + tri_device_round(store->sums.bytes) +
           tri_store_bytes_at(store, TRI_WHERE_DEVICE) + host;
}

/* Gradients are read by the other ranks, so they lie in memory that the transport gives; on a
 * device with memory of its own, their copy on the host does. */
static bool is_peer_memory(const tri_store *store, tri_slab_kind kind)
{
    return kind == TRI_SLAB_GRAD && store->peers.alloc && !store->device->def->queue;
}

static void *alloc_slab(tri_store *store, tri_slab_kind kind)
{
    if (is_peer_memory(store, kind))
        return store->peers.alloc(store->peers.context, store->slabs[kind].bytes);
    return store->device->def->alloc(store->slabs[kind].bytes);
}

static void free_slab(tri_store *store, tri_slab_kind kind)
{
    if (is_peer_memory(store, kind))
        store->peers.free(store->peers.context, store->slabs[kind].memory);
    else
        store->device->def->free(store->slabs[kind].memory, store->slabs[kind].bytes);
}

static tr_status alloc_host_copies(tri_store *store, tr_error *err)
{
    const tri_device_queue *queue = store->device->def->queue;
    if (!queue)
        return TR_OK;
    char text[16];
    store->host_io.memory = queue->alloc_host(store->host_io.bytes);
    if (!store->host_io.memory)
        return tri_fail(err, TR_ERROR_RUNTIME, "the system refused %s of memory for inputs",
                        tri_text_bytes((double)store->host_io.bytes, text));
    if (!store->peers.alloc)
        return TR_OK;
    store->host_grad.bytes = store->slabs[TRI_SLAB_GRAD].bytes;
    if (store->host_grad.bytes)
        store->host_grad.memory = store->peers.alloc(store->peers.context, store->host_grad.bytes);
    if (store->host_room.bytes)
        store->host_room.memory = store->peers.alloc(store->peers.context, store->host_room.bytes);
    return (store->host_grad.memory || !store->host_grad.bytes) &&
                   (store->host_room.memory || !store->host_room.bytes)
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME,
                          "the system refused %s of memory shared with the other ranks",
                          tri_text_bytes((double)store->host_grad.bytes, text));
}

/* What rests on the host while the device has memory of its own. */
static tr_status check_host_room(const tri_store *store, tr_error *err)
{
    uint64_t wanted = tri_store_bytes_at(store, TRI_WHERE_HOST);
    uint64_t room = tri_system_memory_read("").available;
    char wanted_text[16], room_text[16];
    if (wanted == 0 || room == 0 || wanted <= room)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "this run keeps %s in the machine's memory and %s are available; let less rest "
                    "there (`trireme plan` shows what takes how much)",
                    tri_text_bytes((double)wanted, wanted_text),
                    tri_text_bytes((double)room, room_text));
}

static tr_status check_room(const tri_store *store, tr_error *err)
{
    const tri_device_queue *queue = store->device->def->queue;
    if (queue)
        TRI_TRY(check_host_room(store, err));
    uint64_t wanted = tri_store_total(store);
    uint64_t room = queue ? queue->available(store->device) : tri_system_memory_read("").available;
    char wanted_text[16], room_text[16];
    if (store->device->def == &tri_device_null || room == 0 || wanted <= room)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "this run needs %s of memory%s and %s are available; raise "
                    "layout.microbatches, or lower train.batch, data.seq_len or the model's "
                    "size (`trireme plan` shows what takes how much)",
                    tri_text_bytes((double)wanted, wanted_text), queue ? " on the device" : "",
                    tri_text_bytes((double)room, room_text));
}

/* Zeros, as all memory of a run begins with. */
static void *alloc_on_host(const tri_store *store, size_t bytes)
{
    const tri_device_queue *queue = store->device->def->queue;
    if (!queue)
        return store->device->def->alloc(bytes);
    void *memory = queue->alloc_host(bytes);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

/* The slabs of other places, and who carries between them and the device's. */
static tr_status alloc_elsewhere(tri_store *store, tr_error *err)
{
    uint64_t in_file = 0;
    char text[16];
    bool computes = store->device->def != &tri_device_null;
    for (int i = 0; i < TRI_NUM_SLABS; i++) {
        tri_slab *host = &store->host[i];
        if (host->bytes)
            host->memory = alloc_on_host(store, host->bytes);
        if (host->bytes && !host->memory)
            return tri_fail(err, TR_ERROR_RUNTIME, "the system refused %s of memory on the host",
                            tri_text_bytes((double)host->bytes, text));
        store->file[i].offset = in_file;
        in_file += tri_device_round(store->file[i].bytes);
    }
    if (in_file > 0 && computes)
        TRI_TRY(tri_scratch_file_open(
            &store->scratch, store->scratch_dir ? store->scratch_dir : P_tmpdir, in_file, err));
    if (!computes || (in_file == 0 && tri_store_bytes_at(store, TRI_WHERE_HOST) == 0))
        return TR_OK;
    return tri_carrier_create(&store->scratch, &store->carrier, err);
}

static tr_status open_cpu(tri_store *store, tr_error *err)
{
    const tri_device_config config = {
        .kind = "cpu", .isa = "auto", .num_threads = store->device->num_threads};
    return store->needs_cpu ? tri_device_open(&config, &store->cpu, err) : TR_OK;
}

static tr_status alloc_all(tri_store *store, tr_error *err)
{
    for (int i = 0; i < TRI_NUM_SLABS; i++) {
        tri_slab *slab = &store->slabs[i];
        char text[16];
        if (!slab->bytes)
            continue;
        slab->memory = alloc_slab(store, (tri_slab_kind)i);
        if (!slab->memory)
            return tri_fail(err, TR_ERROR_RUNTIME, "the system refused %s of memory",
                            tri_text_bytes((double)slab->bytes, text));
    }
    if (store->sums.bytes)
        store->sums.memory = store->device->def->alloc(store->sums.bytes);
    if (store->sums.bytes && !store->sums.memory)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the sums of replayed steps");
    TRI_TRY(alloc_host_copies(store, err));
    TRI_TRY(alloc_elsewhere(store, err));
    TRI_TRY(open_cpu(store, err));
    return store->device->def->reserve_scratch(store->device, store->scratch_bytes, err);
}

tr_status tri_store_alloc(tri_store *store, tr_error *err)
{
    const tri_device_queue *queue = store->device->def->queue;
    if (queue)
        TRI_TRY(queue->start(store->device, store->device_index, err));
    TRI_TRY(check_room(store, err));
    uint64_t before = queue ? queue->available(store->device) : 0;
    tr_status status = alloc_all(store, err);
    if (status != TR_OK)
        tri_store_free(store);
    else if (queue)
        store->device_bytes = before - queue->available(store->device);
    return status;
}

void tri_store_free(tri_store *store)
{
    if (store->cpu.def)
        tri_device_close(&store->cpu);
    tri_carrier_destroy(store->carrier);
    store->carrier = NULL;
    if (store->device)
        tri_scratch_file_close(&store->scratch);
    for (int i = 0; i < TRI_NUM_SLABS; i++) {
        if (store->slabs[i].memory)
            free_slab(store, (tri_slab_kind)i);
        store->slabs[i].memory = NULL;
        if (store->host[i].memory && store->device->def->queue)
            store->device->def->queue->free_host(store->host[i].memory);
        else if (store->host[i].memory)
            store->device->def->free(store->host[i].memory, store->host[i].bytes);
        store->host[i].memory = NULL;
    }
    if (store->sums.memory)
        store->device->def->free(store->sums.memory, store->sums.bytes);
    store->sums.memory = NULL;
    if (store->host_io.memory)
        store->device->def->queue->free_host(store->host_io.memory);
    if (store->host_grad.memory)
        store->peers.free(store->peers.context, store->host_grad.memory);
    if (store->host_room.memory)
        store->peers.free(store->peers.context, store->host_room.memory);
    store->host_io.memory = store->host_grad.memory = store->host_room.memory = NULL;
}
