/* Where spaces and values of a program lie in memory, and what rests in them, for the host to read
 * and write. */
#include <string.h>

#include "run/executor_parts.h"

static uint64_t space_offset(const tri_executor *executor, const tri_call *call, size_t s)
{
    const tri_space *space = &executor->program->spaces[s];
    uint64_t instance = space->kind == TRI_SPACE_BATCH ? call->microbatch
                        : call->frame                  ? call->frame[s]
                                                       : 0;
    return executor->base[s] + instance * space->bytes;
}

unsigned char *tri_executor_space(const tri_executor *executor, const tri_call *call, size_t s)
{
    unsigned char *slab = tri_store_slab(executor->store, &executor->program->spaces[s])->memory;
    return slab ? slab + space_offset(executor, call, s) : NULL;
}

void *tri_executor_memory(const tri_executor *executor, tri_id value, uint32_t microbatch)
{
    const tri_operand *home = &executor->program->home[value];
    tri_call call = {.microbatch = microbatch}; /* not of a frame: those have no address of a run */
    unsigned char *io = executor->store->host_io.memory;
    if (io && tri_space_is_io(executor->program->spaces[home->space].kind))
        return io + space_offset(executor, &call, home->space) + home->offset;
    unsigned char *begin = tri_executor_space(executor, &call, home->space);
    return begin ? begin + home->offset : NULL;
}

uint64_t tri_executor_file_offset(const tri_executor *executor, const tri_call *call, size_t s)
{
    const tri_slab *slab = tri_store_slab(executor->store, &executor->program->spaces[s]);
    return slab->offset + space_offset(executor, call, s);
}

tr_status tri_executor_read_part(const tri_executor *executor, tri_id value, uint64_t first,
                                 size_t bytes, void *to, tr_error *err)
{
    tri_device *device = executor->store->device;
    const tri_operand *home = &executor->program->home[value];
    tri_where where = executor->program->spaces[home->space].where;
    const tri_call call = {0};
    if (where == TRI_WHERE_FILE)
        return tri_scratch_file_read(&executor->store->scratch,
                                     tri_executor_file_offset(executor, &call, home->space) +
                                         home->offset + first,
                                     to, bytes, err);
    const char *from = (char *)tri_executor_memory(executor, value, 0) + first;
    if (!device->def->queue || where == TRI_WHERE_HOST) {
        memcpy(to, from, bytes);
        return TR_OK;
    }
    TRI_TRY(device->def->queue->download(device, to, from, bytes, err));
    return device->def->queue->finish(device, err);
}

tr_status tri_executor_write_part(const tri_executor *executor, tri_id value, uint64_t first,
                                  size_t bytes, const void *from, tr_error *err)
{
    tri_device *device = executor->store->device;
    const tri_operand *home = &executor->program->home[value];
    tri_where where = executor->program->spaces[home->space].where;
    const tri_call call = {0};
    if (where == TRI_WHERE_FILE)
        return tri_scratch_file_write(&executor->store->scratch,
                                      tri_executor_file_offset(executor, &call, home->space) +
                                          home->offset + first,
                                      from, bytes, err);
    char *to = (char *)tri_executor_memory(executor, value, 0) + first;
    if (!device->def->queue || where == TRI_WHERE_HOST) {
        memcpy(to, from, bytes);
        return TR_OK;
    }
    TRI_TRY(device->def->queue->upload(device, to, from, bytes, err));
    return device->def->queue->finish(device, err);
}

tr_status tri_executor_read(const tri_executor *executor, tri_id value, void *to, tr_error *err)
{
    size_t bytes = tri_value_bytes(&executor->program->values[value]);
    return tri_executor_read_part(executor, value, 0, bytes, to, err);
}

tr_status tri_executor_write(const tri_executor *executor, tri_id value, const void *from,
                             tr_error *err)
{
    size_t bytes = tri_value_bytes(&executor->program->values[value]);
    return tri_executor_write_part(executor, value, 0, bytes, from, err);
}
