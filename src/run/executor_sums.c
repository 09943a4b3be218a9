/* Sums of what instructions make, to compare two runs of the same calls bit for bit. On a device
 * with a queue each has a word of the device's memory, to which all that is enqueued here adds. */
#include <string.h>

#include "run/executor_parts.h"

enum { WORDS_SHIFT = 44 }; /* a result has fewer words than 2^44 */

/* Instructions that run as one: those of a message, or itself. */
static uint32_t num_together(const tri_program *program, uint32_t i)
{
    uint32_t message = program->instrs[i].message;
    return message == TRI_NONE ? 1 : program->messages[message].count;
}

static size_t bytes_of(const tri_tensor *tensor)
{
    return tri_dtype_size(tensor->dtype, tensor->count);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a && b && (const char *)a < (const char *)b + b_bytes &&
           (const char *)b < (const char *)a + a_bytes;
}

/* Whether a result lies on something that the instruction still reads. */
static bool is_read(const tri_executor *executor, uint32_t c, uint32_t i, const tri_tensor *out)
{
    const tri_program *program = executor->program;
    const tri_kernel_args *args = &executor->ready[i].args;
    for (int j = 0; j < args->num_in; j++)
        if (overlap(out->data, bytes_of(out), args->in[j].data, bytes_of(&args->in[j])))
            return true;
    if (program->instrs[i].message == TRI_NONE)
        return false;
    const tri_extent *reads = &tri_executor_message(executor, i)->reads;
    const void *from = tri_executor_extent(executor, &program->calls[c], reads);
    return overlap(out->data, bytes_of(out), from, reads->bytes);
}

static tr_status clear(const tri_executor *executor, const tri_tensor *out, tr_error *err)
{
    tri_device *device = executor->store->device;
    if (device->def->queue && bytes_of(out) > 0)
        return device->def->queue->clear(device, out->data, bytes_of(out), err);
    memset(out->data, 0, bytes_of(out));
    return TR_OK;
}

tr_status tri_executor_sum_begin(const tri_executor *executor, uint32_t c, uint32_t i,
                                 tr_error *err)
{
    const tri_program *program = executor->program;
    uint32_t end = i + num_together(program, i);
    for (uint32_t n = i; n < end; n++) {
        const tri_kernel_args *args = &executor->ready[n].args;
        if (n > i)
            tri_executor_point((tri_executor *)executor, &program->calls[c], n);
        for (int k = 0; k < args->num_out; k++) {
            const tri_tensor *out = &args->out[k];
            if (out->data && program->instrs[n].write[k] == TRI_WRITE_NEW &&
                !is_read(executor, c, n, out))
                TRI_TRY(clear(executor, out, err));
        }
    }
    return TR_OK;
}

/* Adds a result to the sum of the instruction at hand; place: its number among those. */
static tr_status add(const tri_executor *executor, const tri_tensor *out, uint64_t place,
                     uint64_t *sum, tr_error *err)
{
    tri_device *device = executor->store->device;
    const tri_executor_sums *sums = executor->sums;
    if (!device->def->queue) {
        *sum = (*sum << 7 | *sum >> 57) + device->def->sum(device, out->data, bytes_of(out));
        return TR_OK;
    }
    uint64_t *words = executor->store->sums.memory;
    return device->def->queue->add_sum(device, out->data, bytes_of(out), place << WORDS_SHIFT,
                                       words + sums->num, err);
}

tr_status tri_executor_sum_end(tri_executor *executor, uint32_t c, uint32_t i, tr_error *err)
{
    tri_executor_sums *sums = executor->sums;
    bool summed = !sums->left_out || !sums->left_out[i];
    uint32_t end = i + num_together(executor->program, i);
    uint64_t sum = 0, place = 0;
    for (uint32_t n = i; n < end; n++) {
        const tri_kernel_args *args = &executor->ready[n].args;
        if (sums->made)
            sums->made(sums->context, c, n, args);
        for (int k = 0; k < args->num_out; k++, place++) {
            const tri_tensor *out = &args->out[k];
            if (out->data && summed) /* none in a file */
                TRI_TRY(add(executor, out, place, &sum, err));
        }
    }
    if (summed)
        sums->sum[sums->num++] = sum;
    return TR_OK;
}

bool tri_executor_next_sum(const tri_program *program, uint32_t num_calls, tri_summed *at)
{
    while (at->lead < num_calls) {
        tri_turn s;
        if (!tri_timeline_turn(program, at->lead, at->turn, &s)) {
            at->lead += tri_calls_at_once(program, at->lead);
            at->turn = at->next = 0;
            continue;
        }
        while (s.first + at->next < s.end) {
            uint32_t i = s.first + at->next++;
            if ((at->left_out && at->left_out[i]) || !tri_instr_leads(program, i) ||
                !tri_call_runs(&program->calls[s.call], &program->instrs[i]))
                continue;
            at->call = s.call;
            at->instr = i;
            return true;
        }
        at->turn++;
        at->next = 0;
    }
    return false;
}

size_t tri_executor_num_sums(const tri_program *program, uint32_t num_calls, const bool *left_out)
{
    tri_summed at = {.left_out = left_out};
    size_t num = 0;
    while (tri_executor_next_sum(program, num_calls, &at))
        num++;
    return num;
}
