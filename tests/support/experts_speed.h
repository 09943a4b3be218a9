/* How fast the kernels of experts are: the second half of test_cuda_experts.c, which has its
 * helpers. */
#ifndef TRI_TESTS_EXPERTS_SPEED_H
#define TRI_TESTS_EXPERTS_SPEED_H

static void *room_for(tri_dtype dtype, int64_t count)
{
    void *data = gpu.def->alloc((size_t)tri_dtype_size(dtype, count));
    assert_non_null(data);
    if (dtype != TRI_I32)
        tri_cuda_fill_noise(data, count, dtype, shared_state()->stream);
    return data;
}

/* Operands without a copy on the host. */
static tri_tensor large(tri_dtype dtype, int rank, const int64_t *size)
{
    tri_tensor t = tensor_of(dtype, rank, size);
    t.data = room_for(dtype, t.count);
    return t;
}

static void free_large(tri_tensor *t)
{
    if (t->data)
        gpu.def->free(t->data, (size_t)tri_dtype_size(t->dtype, t->count));
    t->data = NULL;
}

/* Seconds of a call, in the mean. */
static double seconds_of(tri_op op, tri_kernel_args *args)
{
    enum { TIMES = 10 };
    const tri_device_queue *queue = gpu.def->queue;
    tr_error err = {0};
    size_t bytes = scratch_of(op, *args);
    void *scratch = bytes ? gpu.def->alloc(bytes) : NULL;
    args->device = gpu.state;
    for (int i = 0; i < 2 + TIMES; i++) {
        if (i == 2)
            must(queue->mark(&gpu, 0, &err), &err);
        run_with(op, args, scratch);
    }
    must(queue->mark(&gpu, 1, &err), &err);
    must(queue->finish(&gpu, &err), &err);
    if (scratch)
        gpu.def->free(scratch, bytes);
    return queue->seconds_between(&gpu, 0, 1) / TIMES;
}

static void upload_ids(tri_tensor *to, int experts, int kind)
{
    tr_error err = {0};
    int32_t *ids = calloc((size_t)to->count, sizeof *ids);
    assert_non_null(ids);
    spread_rows(ids, to->count, experts, kind);
    must(gpu.def->queue->upload(&gpu, to->data, ids, (size_t)to->count * 4, &err), &err);
    must(gpu.def->queue->finish(&gpu, &err), &err);
    free(ids);
}

/* Some rows of what two kernels made of the same. */
static void expect_same_rows(const char *what, const tri_tensor *a, const tri_tensor *b)
{
    enum { PIECE = 4096, PIECES = 64 };
    static uint32_t got[2][PIECE];
    int64_t size = tri_dtype_size(a->dtype, 1);
    tr_error err = {0};
    double largest = 0, worst = 0;
    for (int i = 0; i < PIECES; i++) {
        int64_t at = (a->count - PIECE) / (PIECES - 1) * i;
        for (int j = 0; j < 2; j++)
            must(gpu.def->queue->download(&gpu, got[j],
                                          (const char *)(j ? b->data : a->data) + at * size,
                                          (size_t)size * PIECE, &err),
                 &err);
        must(gpu.def->queue->finish(&gpu, &err), &err);
        for (int n = 0; n < PIECE; n++) {
            double x = element((unsigned char *)got[0], a->dtype, n);
            double y = element((unsigned char *)got[1], a->dtype, n);
            largest = fmax(largest, fabs(x));
            worst = isnan(x - y) ? INFINITY : fmax(worst, fabs(x - y));
        }
    }
    if (!(worst <= 0x1p-7 * largest) || largest == 0)
        wrong("%s: two kernels differ by %g, the largest is %g", what, worst, largest);
}

/* One product by all kernels but the plain one; made[0] is that of mma, made[1] of the others. */
static void time_product(const product *p, int kind, const char *name, tri_op op,
                         tri_kernel_args *args, const tri_tensor made[2])
{
    printf("%d rows %s, %d experts, N %d K %d, %s:", p->rows, spreads[kind], p->experts, p->n, p->k,
           name);
    for (int by = TRI_PRODUCTS_MMA; by >= 0 && tried((tri_cuda_products)by); by--) {
        args->out[0] = made[by != TRI_PRODUCTS_MMA];
        shared_state()->products = (tri_cuda_products)by;
        double s = seconds_of(op, args);
        printf("  %s %.3f ms, %.0f TFLOP/s", kernels[by], s * 1e3,
               2e-12 * p->rows * p->n * p->k / s);
        fflush(stdout);
        if (by != TRI_PRODUCTS_MMA)
            expect_same_rows(kernels[by], &made[0], &made[1]);
    }
    printf("\n");
}

static void time_products(const product *p, int kind)
{
    tri_tensor x = large(TRI_BF16, SIZES(p->rows, p->k)), y[2], dx[2], dw[2];
    tri_tensor w = large(TRI_BF16, SIZES(p->experts, p->n, p->k));
    tri_tensor ids = large(TRI_I32, SIZES(p->rows)), dy = large(TRI_BF16, SIZES(p->rows, p->n));
    for (int i = 0; i < 2; i++) {
        y[i] = large(TRI_BF16, SIZES(p->rows, p->n));
        dx[i] = large(TRI_BF16, SIZES(p->rows, p->k));
        dw[i] = large(TRI_F32, SIZES(p->experts, p->n, p->k));
    }
    upload_ids(&ids, p->experts, kind);
    tri_attr attr = {0}, back = {0};
    back.grouped.back = true;
    tri_kernel_args args = {.num_in = 3, .num_out = 1, .overwrite = true};
    args.attr = &attr;
    args.in[0] = x;
    args.in[1] = w;
    args.in[2] = ids;
    time_product(p, kind, "forward", TRI_OP_GROUPED, &args, y);
    args.attr = &back;
    args.in[0] = dy;
    time_product(p, kind, "back", TRI_OP_GROUPED, &args, dx);
    args.in[1] = x;
    time_product(p, kind, "grad", TRI_OP_GROUPED_GRAD, &args, dw);
    shared_state()->products = TRI_PRODUCTS_MMA;
    tri_tensor *all[] = {&x, &w, &ids, &dy, &y[0], &y[1], &dw[0], &dw[1], &dx[0], &dx[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free_large(all[i]);
}

/* What stands in for several operators, by warpgroups. The rows have experts of n x k. */
static double time_fused(const product *p, const char *name, tri_op op, tri_kernel_args *args,
                         int products)
{
    double s = seconds_of(op, args);
    printf("  %s %.3f ms, %.0f TFLOP/s;", name, s * 1e3,
           2e-12 * products * p->rows * p->n * p->k / s);
    return s;
}

/* All of a block's products, as training does them: gate and up of n x k, down of k x n. */
static void time_block(const product *p, int kind)
{
    tri_tensor x = large(TRI_BF16, SIZES(p->rows, p->k)), y = large(TRI_BF16, SIZES(p->rows, p->k));
    tri_tensor h[5], w[3], dw = large(TRI_F32, SIZES(p->experts, p->n, p->k));
    for (int i = 0; i < 5; i++)
        h[i] = large(TRI_BF16, SIZES(p->rows, p->n));
    for (int i = 0; i < 2; i++)
        w[i] = large(TRI_BF16, SIZES(p->experts, p->n, p->k));
    w[2] = large(TRI_BF16, SIZES(p->experts, p->k, p->n));
    tri_tensor ids = large(TRI_I32, SIZES(p->rows)), weight = large(TRI_F32, SIZES(p->rows));
    tri_tensor dweight = large(TRI_F32, SIZES(p->rows));
    upload_ids(&ids, p->experts, kind);
    tri_attr plain = {0}, back = {0};
    back.grouped.back = true;
    shared_state()->products = TRI_PRODUCTS_TMA;
    printf("%d rows %s, %d experts, F %d D %d:", p->rows, spreads[kind], p->experts, p->n, p->k);
    tri_kernel_args act = {.attr = &plain,
                           .num_in = 5,
                           .num_out = 3,
                           .overwrite = true,
                           .in = {x, w[0], ids, w[1], weight},
                           .out = {h[0], h[1], h[2]}};
    tri_kernel_args down = {.attr = &plain,
                            .num_in = 3,
                            .num_out = 1,
                            .overwrite = true,
                            .in = {h[0], w[2], ids},
                            .out = {y}};
    tri_kernel_args grad = {.attr = &back,
                            .num_in = 6,
                            .num_out = 3,
                            .overwrite = true,
                            .in = {y, w[2], ids, h[1], h[2], weight},
                            .out = {h[3], h[4], dweight}};
    tri_kernel_args sum = {.attr = &back,
                           .num_in = 5,
                           .num_out = 1,
                           .overwrite = true,
                           .in = {h[3], w[0], ids, h[4], w[1]},
                           .out = {y}};
    tri_kernel_args grads = {.attr = &plain,
                             .num_in = 3,
                             .num_out = 1,
                             .overwrite = true,
                             .in = {h[3], x, ids},
                             .out = {dw}};
    double forward = time_fused(p, "act", TRI_OP_GROUPED_SWIGLU, &act, 2) +
                     time_fused(p, "down", TRI_OP_GROUPED, &down, 1);
    double backward = time_fused(p, "act grad", TRI_OP_GROUPED_SWIGLU_GRAD, &grad, 1) +
                      time_fused(p, "sum", TRI_OP_GROUPED_SUM, &sum, 2) +
                      3 * time_fused(p, "experts", TRI_OP_GROUPED_GRAD, &grads, 1);
    double work = 6e-12 * p->rows * p->n * p->k;
    printf("  together forward %.0f, backward %.0f TFLOP/s\n", work / forward, 2 * work / backward);
    shared_state()->products = TRI_PRODUCTS_MMA;
    tri_tensor *all[] = {&x,    &y,    &h[0], &h[1], &h[2],   &h[3],    &h[4],
                         &w[0], &w[1], &w[2], &ids,  &weight, &dweight, &dw};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free_large(all[i]);
}

static void time_one(tri_op op, tri_kernel_args *args, double bytes)
{
    args->overwrite = true;
    double s = seconds_of(op, args);
    printf("%-16s %8.1f us  %6.0f GB/s\n", tri_op_get(op)->name, s * 1e6, bytes / s * 1e-9);
}

static void free_all(tri_tensor *const *all, size_t num)
{
    for (size_t i = 0; i < num; i++)
        free_large(all[i]);
}

/* Everything around the products, for 32,768 tokens, 8 of 64 experts, rows of 1024 and 704. */
enum { B = 16, T = 2048, E = 64, C = 8, D = 1024, F = 704, R = B * T * C };

/* Leaves the weights of choices, and their order. */
static void time_router(tri_tensor weights, tri_tensor list[4])
{
    tri_attr attr = {0};
    attr.route = (tri_route_attr){.choices = C, .experts = E, .scale = 1, .renorm = true};
    tri_tensor logits = large(TRI_F32, SIZES(B, T, E)), dlogits = large(TRI_F32, SIZES(B, T, E));
    tri_tensor sums = large(TRI_F32, SIZES(B, E, 3));
    tri_tensor z = large(TRI_F32, SIZES(1)), entropy = large(TRI_F32, SIZES(1));
    tri_tensor targets = large(TRI_I32, SIZES(B, T)), choice = large(TRI_I32, SIZES(B, T, C));
    tri_kernel_args args = {
        .attr = &attr, .num_in = 1, .num_out = 2, .in = {logits}, .out = {weights, choice}};
    time_one(TRI_OP_ROUTE, &args, 4.0 * B * T * (E + 2 * C));
    args = (tri_kernel_args){.attr = &attr,
                             .num_in = 3,
                             .num_out = 1,
                             .in = {logits, choice, weights},
                             .out = {dlogits}};
    time_one(TRI_OP_ROUTE_GRAD, &args, 4.0 * B * T * (2 * E + 2 * C));
    args = (tri_kernel_args){.attr = &attr,
                             .num_in = 3,
                             .num_out = 3,
                             .in = {logits, choice, targets},
                             .out = {sums, z, entropy}};
    time_one(TRI_OP_ROUTE_SUMS, &args, 4.0 * B * T * (E + C));
    args = (tri_kernel_args){
        .attr = &attr, .num_in = 3, .num_out = 1, .in = {logits, targets, sums}, .out = {dlogits}};
    time_one(TRI_OP_ROUTE_SUMS_GRAD, &args, 8.0 * B * T * E);
    args = (tri_kernel_args){.attr = &attr,
                             .num_in = 1,
                             .num_out = 4,
                             .in = {choice},
                             .out = {list[0], list[1], list[2], list[3]}};
    time_one(TRI_OP_SORT_ROWS, &args, 20.0 * R);
    tri_tensor *all[] = {&logits, &dlogits, &sums, &z, &entropy, &targets, &choice};
    free_all(all, sizeof all / sizeof all[0]);
}

static void time_rows(tri_tensor w, tri_tensor list[4])
{
    tri_attr gather = {0}, combine = {0};
    gather.gather.lead = 2;
    gather.gather.each = true;
    combine.gather.lead = 3;
    tri_tensor x = large(TRI_BF16, SIZES(B, T, D)), rows = large(TRI_BF16, SIZES(B, T, C, D));
    tri_tensor gate = large(TRI_BF16, SIZES(B, T, C, F)), up = large(TRI_BF16, SIZES(B, T, C, F));
    tri_tensor dy = large(TRI_BF16, SIZES(B, T, C, F)), y = large(TRI_BF16, SIZES(B, T, C, F));
    tri_tensor y2 = large(TRI_BF16, SIZES(B, T, C, F)), dw = large(TRI_F32, SIZES(B, T, C));
    tri_kernel_args args = {
        .attr = &gather, .num_in = 2, .num_out = 1, .in = {x, list[1]}, .out = {rows}};
    time_one(TRI_OP_GATHER_ROWS, &args, 4.0 * R * D);
    args = (tri_kernel_args){
        .attr = &combine, .num_in = 2, .num_out = 1, .in = {rows, list[0]}, .out = {x}};
    time_one(TRI_OP_GATHER_ROWS, &args, 2.0 * (R + B * T) * D);
    args = (tri_kernel_args){.num_in = 3, .num_out = 1, .in = {gate, up, w}, .out = {y}};
    time_one(TRI_OP_SWIGLU_ROWS, &args, 6.0 * R * F);
    args =
        (tri_kernel_args){.num_in = 4, .num_out = 3, .in = {gate, up, dy, w}, .out = {y, y2, dw}};
    time_one(TRI_OP_SWIGLU_ROWS_GRAD, &args, 10.0 * R * F);
    tri_tensor *all[] = {&x, &rows, &gate, &up, &dy, &y, &y2, &dw};
    free_all(all, sizeof all / sizeof all[0]);
}

static void time_rest(void)
{
    tri_tensor weights = large(TRI_F32, SIZES(B, T, C)), list[4];
    for (int i = 0; i < 4; i++)
        list[i] = large(TRI_I32, SIZES(B, T, C));
    time_router(weights, list);
    time_rows(weights, list);
    tri_tensor *all[] = {&weights, &list[0], &list[1], &list[2], &list[3]};
    free_all(all, sizeof all / sizeof all[0]);
}

#endif
