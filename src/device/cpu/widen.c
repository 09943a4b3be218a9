/* Operands of 16 and 8 bits on the CPU: they are storage. A kernel that knows f32 alone is run on
 * widened copies, which lie in the scratch behind what the kernel itself needs, and its outputs are
 * rounded back. Outputs are widened first too: a kernel may add to them or leave them as they are.
 */
#include "device/cpu/convert.h"
#include "device/cpu/cpu.h"
#include "graph/op_table.h"

enum { CHUNK = 1 << 16, ALIGN = 64 };

static bool is_narrow(const tri_tensor *tensor)
{
    return tensor->count > 0 && (tensor->dtype == TRI_BF16 || tensor->dtype == TRI_F16 ||
                                 tri_dtype_is_float8(tensor->dtype));
}

/* Copies of weights are of 16 bits by themselves: whatever makes them writes them so. */
static bool is_copy(tri_op op, int k)
{
    return tri_op_get(op)->copies >> k & 1;
}

static bool is_narrow_out(tri_op op, const tri_kernel_args *args, int k)
{
    return is_narrow(&args->out[k]) && !is_copy(op, k);
}

static size_t align_up(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Not an input of which the shape alone is read, such as the weights of a gradient, nor the old
 * version of a copy. */
static bool is_read(tri_op op, int j)
{
    const tri_op_def *def = tri_op_get(op);
    for (int k = 0; k < TRI_MAX_OUT; k++)
        if (is_copy(op, k) && def->updates[k] == j + 1)
            return false;
    return j + 1 != def->shape_in;
}

bool tri_cpu_needs_widening(tri_op op, const tri_kernel_args *args)
{
    bool any = false;
    for (int j = 0; j < args->num_in; j++)
        any |= is_narrow(&args->in[j]) && is_read(op, j);
    for (int k = 0; k < args->num_out; k++)
        any |= is_narrow_out(op, args, k);
    return any;
}

static size_t own_scratch(const tri_kernel *kernel, const tri_kernel_args *args, int num_threads)
{
    return kernel->scratch_bytes ? align_up(kernel->scratch_bytes(args, num_threads)) : 0;
}

size_t tri_cpu_widened_scratch(tri_op op, const tri_kernel *kernel, const tri_kernel_args *args,
                               int num_threads)
{
    size_t bytes = own_scratch(kernel, args, num_threads);
    for (int j = 0; j < args->num_in; j++)
        if (is_read(op, j) && is_narrow(&args->in[j]))
            bytes += align_up((size_t)args->in[j].count * sizeof(float));
    for (int k = 0; k < args->num_out; k++)
        if (is_narrow_out(op, args, k))
            bytes += align_up((size_t)args->out[k].count * sizeof(float));
    return bytes;
}

typedef struct conversion {
    const tri_cpu_convert *convert;
    tri_dtype dtype;
    void *narrow;
    float *wide;
    int64_t count;
} conversion;

static int64_t chunk_of(const conversion *c, int task, void **narrow, float **wide)
{
    int64_t first = (int64_t)task * CHUNK;
    *narrow = (char *)c->narrow + first * (int64_t)tri_dtype_bytes(c->dtype);
    *wide = c->wide + first;
    return c->count - first < CHUNK ? c->count - first : CHUNK;
}

static void widen_chunk(void *context, int task, int worker)
{
    (void)worker;
    const conversion *c = context;
    void *narrow;
    float *wide;
    int64_t count = chunk_of(c, task, &narrow, &wide);
    c->convert->widen(c->dtype, narrow, wide, count);
}

static void narrow_chunk(void *context, int task, int worker)
{
    (void)worker;
    const conversion *c = context;
    void *narrow;
    float *wide;
    int64_t count = chunk_of(c, task, &narrow, &wide);
    c->convert->narrow(c->dtype, wide, narrow, count);
}

/* The widened copy of an operand takes its place; returns what is left of the room. */
static char *widen(tri_cpu *cpu, tri_tensor *tensor, char *room)
{
    if (!is_narrow(tensor))
        return room;
    conversion c = {.convert = tri_cpu_convert_for(cpu->isa),
                    .dtype = tensor->dtype,
                    .narrow = tensor->data,
                    .wide = (float *)room,
                    .count = tensor->count};
    tri_pool_run(cpu->pool, (int)((c.count + CHUNK - 1) / CHUNK), widen_chunk, &c);
    tensor->data = room;
    tensor->dtype = TRI_F32;
    return room + align_up((size_t)tensor->count * sizeof(float));
}

void tri_cpu_run_widened(tri_op op, const tri_kernel *kernel, const tri_kernel_args *args)
{
    tri_cpu *cpu = args->device;
    tri_kernel_args wide = *args;
    char *room = (char *)cpu->scratch +
                 own_scratch(kernel, args, cpu->pool ? tri_pool_threads(cpu->pool) : 1);
    for (int j = 0; j < args->num_in; j++)
        if (is_read(op, j))
            room = widen(cpu, &wide.in[j], room);
    for (int k = 0; k < args->num_out; k++)
        if (is_narrow_out(op, args, k))
            room = widen(cpu, &wide.out[k], room);
    kernel->run(&wide);
    for (int k = 0; k < args->num_out; k++) {
        if (!is_narrow_out(op, args, k))
            continue;
        conversion c = {.convert = tri_cpu_convert_for(cpu->isa),
                        .dtype = args->out[k].dtype,
                        .narrow = args->out[k].data,
                        .wide = wide.out[k].data,
                        .count = args->out[k].count};
        tri_pool_run(cpu->pool, (int)((c.count + CHUNK - 1) / CHUNK), narrow_chunk, &c);
    }
}
