/* Attention and its gradient on a GPU, plain and by places: build/bench/gpu_attention [T]. In bf16,
 * with heads of 64 and of 128; operands are noise. Times are in microseconds, pairs of queries and
 * keys that are seen in those of the causal batch: what is skipped should cost nothing.
 *
 *     cuDNN          the causal batch as a run has it
 *     plain          the same by our kernels
 *     by places      the same as intervals: begin 0, end i + 1
 *     documents      eight in a row, as intervals
 *     window         an eighth of the row, as intervals
 *     dealt          the causal batch with keys and queries in another order: first and last
 *                    sixteenths side by side, as ranks of a ring have them
 *     dropout        the causal batch with dropout 0.1 */
#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"

#ifndef TRI_CUDA

int main(void)
{
    printf("built without CUDA\n");
    return 0;
}

#else

#include "device/cuda/blas/blas.h"
#include "device/cuda/cuda.h"

enum { TIMES = 10, BATCH = 4, HEADS = 16, PARTS = 8 };
enum { CUDNN, PLAIN, BY_PLACES, DOCUMENTS, WINDOW, DEALT, DROPOUT, NUM_KINDS };

typedef struct room {
    tri_device device;
    int64_t num_pos, width;
    char *big[8]; /* q, k, v, o, do, dq, dk, dv */
    char *lse, *span, *places, *rows, *scratch;
    size_t scratch_bytes;
} room;

static tri_tensor tensor(void *data, tri_dtype dtype, int rank, const int64_t *size)
{
    tri_tensor t = {.data = data, .dtype = dtype, .rank = rank, .count = 1};
    for (int d = 0; d < rank; d++) {
        t.size[d] = t.global[d] = size[d];
        t.count *= size[d];
    }
    return t;
}

static tri_kernel_args args_of(const room *r, int kind, bool grad, const tri_attr *attr)
{
    const int64_t big[] = {BATCH, r->num_pos, HEADS, r->width}, lse[] = {BATCH, HEADS, r->num_pos};
    const int64_t span[] = {BATCH, r->num_pos, 2}, rows[] = {BATCH}, one[] = {1};
    tri_kernel_args args = {.attr = attr, .device = r->device.state, .overwrite = true};
    bool spans = kind >= BY_PLACES && kind <= WINDOW, places = kind == DEALT;
    int n = 0;
    if (grad)
        args.in[n++] = tensor(r->big[4], TRI_BF16, 4, big);
    for (int i = 0; i < 3; i++)
        args.in[n++] = tensor(r->big[i], TRI_BF16, 4, big);
    if (grad) {
        args.in[n++] = tensor(r->big[3], TRI_BF16, 4, big);
        args.in[n++] = tensor(r->lse, TRI_F32, 3, lse);
    }
    args.in[n++] = tensor(r->rows, TRI_I32, 1, rows);
    args.in[n++] = tensor(r->rows, TRI_I32, 1, one);
    n++; /* no documents */
    if (spans)
        args.in[n] = tensor(r->span, TRI_I32, 3, span);
    for (int i = 1; places && i < 3; i++)
        args.in[n + i] = tensor(r->places, TRI_I32, 2, span);
    args.num_in = spans || places ? n + 3 : n;
    for (int i = 0; grad && i < 3; i++)
        args.out[args.num_out++] = tensor(r->big[5 + i], TRI_BF16, 4, big);
    if (!grad) {
        args.out[args.num_out++] = tensor(r->big[3], TRI_BF16, 4, big);
        args.out[args.num_out++] = tensor(r->lse, TRI_F32, 3, lse);
    }
    return args;
}

/* Spans and places of a kind; how many pairs are seen, in those of the causal batch. */
static double fill_places(room *r, int kind)
{
    int64_t n = r->num_pos, part = n / PARTS, fine = n / (2 * PARTS);
    int32_t *span = malloc((size_t)(BATCH * n * 2) * 4), *place = malloc((size_t)(BATCH * n) * 4);
    double pairs = 0;
    tr_error err = {0};
    for (int64_t i = 0; span && place && i < BATCH * n; i++) {
        int64_t at = i % n, slot = at / fine, pair = slot / 2;
        span[2 * i] = (int32_t)(kind == DOCUMENTS ? at / part * part
                                : kind == WINDOW  ? (at > part ? at - part : 0)
                                                  : 0);
        span[2 * i + 1] = (int32_t)at + 1;
        place[i] = (int32_t)((slot % 2 ? 2 * PARTS - 1 - pair : pair) * fine + at % fine);
        pairs += i < n ? span[2 * i + 1] - span[2 * i] : 0;
    }
    const tri_device_queue *queue = r->device.def->queue;
    bool good =
        span && place &&
        queue->upload(&r->device, r->span, span, (size_t)(BATCH * n * 2) * 4, &err) == TR_OK &&
        queue->upload(&r->device, r->places, place, (size_t)(BATCH * n) * 4, &err) == TR_OK &&
        queue->finish(&r->device, &err) == TR_OK;
    free(span);
    free(place);
    return good ? pairs / ((double)n * (double)(n + 1) / 2) : 0;
}

static double seconds(room *r, tri_op op, const tri_kernel_args *args)
{
    tr_error err = {0};
    const tri_device_queue *queue = r->device.def->queue;
    const tri_kernel *kernel = tri_cuda_kernel(op);
    tri_cuda *cuda = r->device.state;
    size_t bytes = kernel->scratch_bytes(args, 1);
    cuda->scratch = r->scratch;
    cuda->scratch_bytes = r->scratch_bytes;
    tri_cuda_takes(op, args); /* makes plans */
    bool good = bytes <= r->scratch_bytes;
    for (int i = -2; good && i < TIMES; i++) {
        if (i == 0)
            good = queue->mark(&r->device, 0, &err) == TR_OK;
        kernel->run(args);
    }
    good = good && queue->mark(&r->device, 1, &err) == TR_OK &&
           queue->finish(&r->device, &err) == TR_OK;
    return good ? queue->seconds_between(&r->device, 0, 1) / TIMES : 0;
}

static void measure(room *r)
{
    static const char *const names[NUM_KINDS] = {"cuDNN",  "plain", "by places", "documents",
                                                 "window", "dealt", "dropout"};
    tri_cuda *cuda = r->device.state;
    tri_cuda_dnn *dnn = cuda->dnn;
    printf("B %d, T %ld, H %d, width %ld\n", BATCH, (long)r->num_pos, HEADS, (long)r->width);
    for (int kind = dnn ? CUDNN : PLAIN; kind < NUM_KINDS; kind++) {
        const tri_attr attr = {.attention = {.alpha = 0.1f,
                                             .causal = kind == CUDNN || kind == PLAIN ||
                                                       kind == DEALT || kind == DROPOUT,
                                             .dropout = kind == DROPOUT ? 0.1f : 0}};
        double share = fill_places(r, kind);
        cuda->dnn = kind == CUDNN ? dnn : NULL;
        tri_kernel_args args = args_of(r, kind, false, &attr);
        double forward = seconds(r, TRI_OP_ATTENTION, &args);
        args = args_of(r, kind, true, &attr);
        double backward = seconds(r, TRI_OP_ATTENTION_GRAD, &args);
        printf("  %-10s pairs %5.3f   forward %8.1f us   gradient %8.1f us\n", names[kind], share,
               forward * 1e6, backward * 1e6);
    }
    cuda->dnn = dnn;
}

int main(int argc, char **argv)
{
    room r = {.num_pos = argc > 1 ? strtol(argv[1], NULL, 10) / 128 * 128 : 4096};
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda", .isa = "auto"};
    if (r.num_pos <= 0 || tri_device_open(&config, &r.device, &err) != TR_OK ||
        r.device.def->queue->start(&r.device, 0, &err) != TR_OK) {
        printf("%s\n", r.num_pos <= 0 ? "T is a multiple of 128" : err.message);
        return 1;
    }
    size_t big = (size_t)(BATCH * r.num_pos * HEADS) * 128 * 2;
    size_t small = (size_t)(BATCH * r.num_pos * HEADS) * 4, all;
    r.scratch_bytes = (size_t)3 << 30;
    all = 8 * big + 4 * small + r.scratch_bytes;
    char *memory = r.device.def->alloc(all);
    if (!memory) {
        printf("the GPU has too little memory\n");
        return 1;
    }
    for (int i = 0; i < 8; i++)
        r.big[i] = memory + (size_t)i * big;
    r.lse = memory + 8 * big;
    r.span = r.lse + small;
    r.places = r.span + small;
    r.rows = r.places + small; /* any numbers */
    r.scratch = r.rows + small;
    tri_cuda_fill_noise(memory, (int64_t)(8 * big / 2), TRI_BF16,
                        ((tri_cuda *)r.device.state)->stream);
    printf("%s\n", r.device.description);
    for (r.width = 64; r.width <= 128; r.width *= 2)
        measure(&r);
    r.device.def->free(memory, all);
    tri_device_close(&r.device);
    return 0;
}

#endif
