/* Cases of routers and experts, and their operands; included by op_cases.c alone, behind what makes
 * operands. */
#ifndef TRI_TESTS_OP_CASE_EXPERTS_H
#define TRI_TESTS_OP_CASE_EXPERTS_H

#define ROUTER(...) OF(route, .scale = 1, __VA_ARGS__)
#define SUMS(...)   ROUTER(.alpha = 0.25f, __VA_ARGS__)

/* Of grouped and its gradient, CASE_SHARD: all rows go to one expert. */
static const op_case expert_case_table[] = {
    /* B, T, D */
    {"odd", TRI_OP_GATE_ROWS, {2, 7, 33}, {0}, 0, 0},
    {"large", TRI_OP_GATE_ROWS, {3, 133, 101}, {0}, 0, 0},
    {"large, whole packs", TRI_OP_GATE_ROWS, {3, 133, 256}, {0}, 0, 0},
    {"odd", TRI_OP_GATE_ROWS_GRAD, {2, 7, 33}, {0}, 0, 0},
    {"large", TRI_OP_GATE_ROWS_GRAD, {3, 133, 101}, {0}, 0, 0},
    {"large, whole packs", TRI_OP_GATE_ROWS_GRAD, {3, 133, 256}, {0}, 0, 0},

    /* B, T, E, C */
    {"one expert", TRI_OP_ROUTE, {2, 3, 1, 1}, ROUTER(.renorm = true), CASE_WITHOUT, 0},
    {"softmax", TRI_OP_ROUTE, {2, 7, 8, 2}, ROUTER(), CASE_WITHOUT, 0},
    {"softmax, renorm", TRI_OP_ROUTE, {2, 7, 8, 2}, ROUTER(.renorm = true), CASE_WITHOUT, 0},
    {"softmax, all", TRI_OP_ROUTE, {2, 7, 5, 5}, ROUTER(.renorm = true), CASE_WITHOUT, 0},
    {"softmax, bias", TRI_OP_ROUTE, {2, 7, 12, 3}, ROUTER(.renorm = true), 0, 0},
    {"softmax, large", TRI_OP_ROUTE, {3, 133, 64, 8}, ROUTER(.renorm = true), CASE_WITHOUT, 0},
    {"softmax, many", TRI_OP_ROUTE, {2, 67, 200, 8}, ROUTER(), CASE_WITHOUT, 0},
    {"softmax, groups",
     TRI_OP_ROUTE,
     {2, 7, 16, 3},
     ROUTER(.groups = 4, .group_limit = 2),
     CASE_WITHOUT,
     0},
    {"sigmoid",
     TRI_OP_ROUTE,
     {2, 7, 9, 2},
     OF(route, .score = TRI_ROUTE_SIGMOID, .scale = 2.5f),
     CASE_WITHOUT,
     0},
    {"sigmoid, bias, renorm",
     TRI_OP_ROUTE,
     {2, 17, 16, 4},
     OF(route, .score = TRI_ROUTE_SIGMOID, .renorm = true, .scale = 2.5f),
     0,
     0},
    {"sigmoid, bias, groups",
     TRI_OP_ROUTE,
     {3, 33, 64, 8},
     OF(route, .score = TRI_ROUTE_SIGMOID, .renorm = true, .scale = 2.5f, .groups = 8,
        .group_limit = 4),
     0,
     0},
    {"groups of one",
     TRI_OP_ROUTE,
     {2, 7, 6, 2},
     ROUTER(.score = TRI_ROUTE_SIGMOID, .groups = 6, .group_limit = 3),
     CASE_WITHOUT,
     0},
    {"chosen", TRI_OP_ROUTE, {2, 7, 33, 4}, ROUTER(.score = TRI_ROUTE_CHOSEN), CASE_WITHOUT, 0},
    {"chosen, bias", TRI_OP_ROUTE, {2, 7, 32, 4}, ROUTER(.score = TRI_ROUTE_CHOSEN), 0, 0},
    {"one expert", TRI_OP_ROUTE_GRAD, {2, 3, 1, 1}, ROUTER(), 0, 0},
    {"softmax", TRI_OP_ROUTE_GRAD, {2, 7, 8, 2}, ROUTER(), 0, 0},
    {"softmax, renorm", TRI_OP_ROUTE_GRAD, {2, 7, 9, 3}, ROUTER(.renorm = true), 0, 1e-5f},
    {"softmax, large", TRI_OP_ROUTE_GRAD, {3, 133, 64, 8}, ROUTER(.renorm = true), 0, 1e-5f},
    {"sigmoid",
     TRI_OP_ROUTE_GRAD,
     {2, 7, 9, 2},
     OF(route, .score = TRI_ROUTE_SIGMOID, .scale = 2.5f),
     0,
     0},
    {"sigmoid, renorm",
     TRI_OP_ROUTE_GRAD,
     {2, 77, 64, 8},
     OF(route, .score = TRI_ROUTE_SIGMOID, .renorm = true, .scale = 2.5f),
     0,
     5e-6f},
    {"chosen", TRI_OP_ROUTE_GRAD, {2, 7, 33, 4}, ROUTER(.score = TRI_ROUTE_CHOSEN), 0, 0},
    {"chosen, renorm",
     TRI_OP_ROUTE_GRAD,
     {2, 7, 33, 8},
     ROUTER(.score = TRI_ROUTE_CHOSEN, .renorm = true),
     0,
     5e-6f},
    {"rows", TRI_OP_ROUTE_SUMS, {3, 7, 8, 2}, SUMS(), 0, 0},
    {"rows +=", TRI_OP_ROUTE_SUMS, {3, 7, 8, 2}, SUMS(), CASE_ACCUMULATE, 0},
    {"whole", TRI_OP_ROUTE_SUMS, {3, 7, 9, 3}, SUMS(.whole = true), 0, 0},
    {"one expert", TRI_OP_ROUTE_SUMS, {2, 3, 1, 1}, SUMS(), 0, 0},
    {"rows, large", TRI_OP_ROUTE_SUMS, {5, 133, 64, 8}, SUMS(), 0, 0},
    {"many rows", TRI_OP_ROUTE_SUMS, {41, 13, 16, 2}, SUMS(), 0, 0},
    {"whole, large +=",
     TRI_OP_ROUTE_SUMS,
     {5, 133, 64, 8},
     SUMS(.whole = true),
     CASE_ACCUMULATE,
     0},
    {"sigmoid, rows", TRI_OP_ROUTE_SUMS, {3, 67, 33, 4}, SUMS(.score = TRI_ROUTE_SIGMOID), 0, 0},
    {"sigmoid, whole",
     TRI_OP_ROUTE_SUMS,
     {3, 67, 64, 8},
     SUMS(.score = TRI_ROUTE_SIGMOID, .whole = true),
     0,
     0},
    {"chosen", TRI_OP_ROUTE_SUMS, {2, 7, 32, 4}, SUMS(.score = TRI_ROUTE_CHOSEN), 0, 0},
    {"rows", TRI_OP_ROUTE_SUMS_GRAD, {3, 7, 8}, ROUTER(), 0, 0},
    {"rows and z", TRI_OP_ROUTE_SUMS_GRAD, {3, 7, 8}, ROUTER(.z = 0.3f), 0, 0},
    {"z alone", TRI_OP_ROUTE_SUMS_GRAD, {3, 7, 8}, ROUTER(.z = 0.3f), CASE_WITHOUT, 0},
    {"z alone, scaled",
     TRI_OP_ROUTE_SUMS_GRAD,
     {3, 7, 8},
     ROUTER(.z = 0.3f),
     CASE_WITHOUT | CASE_SCALE,
     0},
    {"whole, scaled",
     TRI_OP_ROUTE_SUMS_GRAD,
     {3, 7, 9},
     ROUTER(.whole = true, .z = 0.01f),
     CASE_SCALE,
     0},
    {"large", TRI_OP_ROUTE_SUMS_GRAD, {5, 133, 64}, ROUTER(.z = 0.1f), 0, 5e-6f},
    {"sigmoid",
     TRI_OP_ROUTE_SUMS_GRAD,
     {3, 67, 33},
     ROUTER(.score = TRI_ROUTE_SIGMOID, .z = 0.1f),
     0,
     5e-6f},
    {"sigmoid, whole",
     TRI_OP_ROUTE_SUMS_GRAD,
     {3, 67, 64},
     ROUTER(.score = TRI_ROUTE_SIGMOID, .whole = true),
     0,
     5e-6f},
    {"rows", TRI_OP_ROUTE_LOAD, {3, 1, 8}, {0}, 0, 0},
    {"rows +=", TRI_OP_ROUTE_LOAD, {33, 1, 64}, {0}, CASE_ACCUMULATE, 0},
    {"one row", TRI_OP_ROUTE_LOAD, {1, 1, 256}, {0}, 0, 0},
    {"rows", TRI_OP_BALANCE, {3, 1, 8}, ROUTER(.alpha = 4), 0, 0},
    {"rows +=", TRI_OP_BALANCE, {33, 1, 64}, ROUTER(.alpha = 8), CASE_ACCUMULATE, 0},
    {"whole", TRI_OP_BALANCE, {1, 1, 64}, ROUTER(.alpha = 8, .whole = true), 0, 0},
    {"rows", TRI_OP_BALANCE_GRAD, {3, 1, 8}, ROUTER(.alpha = 4), 0, 0},
    {"rows, scaled", TRI_OP_BALANCE_GRAD, {33, 1, 64}, ROUTER(.alpha = 8), CASE_SCALE, 0},
    {"whole", TRI_OP_BALANCE_GRAD, {1, 1, 64}, ROUTER(.alpha = 8, .whole = true), 0, 0},
    {"odd", TRI_OP_MOVE_BIAS, {1, 1, 9}, ROUTER(.alpha = 0.001f), 0, 0},
    {"many", TRI_OP_MOVE_BIAS, {1, 1, 256}, ROUTER(.alpha = 0.001f), 0, 0},
    {"not ok", TRI_OP_MOVE_BIAS, {1, 1, 64}, ROUTER(.alpha = 0.001f), CASE_NOT_OK, 0},
    {"some", TRI_OP_DROP_ROWS, {2, 7, 4, 2}, OF(route, .limit = 3), 0, 0},
    {"one each", TRI_OP_DROP_ROWS, {3, 33, 8, 3}, OF(route, .limit = 1), 0, 0},
    {"none", TRI_OP_DROP_ROWS, {2, 7, 4, 2}, OF(route, .limit = 14), 0, 0},
    {"places", TRI_OP_DROP_ROWS, {3, 33, 8, 3}, OF(route, .limit = 9), CASE_PLACES, 0},
    {"many", TRI_OP_DROP_ROWS, {5, 133, 64, 8}, OF(route, .limit = 12), 0, 0},
    {"large", TRI_OP_DROP_ROWS, {3, 1031, 200, 8}, OF(route, .limit = 37), CASE_LARGE, 0},
    {"large, places",
     TRI_OP_DROP_ROWS,
     {3, 1031, 64, 6},
     OF(route, .limit = 80),
     CASE_LARGE | CASE_PLACES,
     0},
    {"rows", TRI_OP_COUNT_DROPPED, {3, 33, 8, 3}, OF(route, .alpha = 0.25f), 0, 0},
    {"rows +=",
     TRI_OP_COUNT_DROPPED,
     {3, 133, 8, 3},
     OF(route, .alpha = 0.25f),
     CASE_ACCUMULATE,
     0},
    {"few", TRI_OP_LARGEST, {1, 1, 9}, {0}, 0, 0},
    {"many", TRI_OP_LARGEST, {1, 1, 400}, {0}, 0, 0},
    {"many, joined", TRI_OP_LARGEST, {1, 1, 400}, {0}, CASE_ACCUMULATE, 0},
    {"flag", TRI_OP_ROOMS, {2, 7, 3, 4}, {0}, 0, 0},
    {"flag +=", TRI_OP_ROOMS, {2, 7, 3, 4}, {0}, CASE_ACCUMULATE, 0},
    {"rows", TRI_OP_DISPATCH, {2, 7, 3, 4, 5}, {0}, 0, 0},
    {"rows", TRI_OP_COLLECT, {2, 7, 3, 4, 5}, {0}, 0, 0},
    {"room for all", TRI_OP_PACK_ROOMS, {2, 7, 3, 8}, OF(route, .ranks = 4, .room = 42), 0, 0},
    {"too little", TRI_OP_PACK_ROOMS, {2, 17, 3, 8}, OF(route, .ranks = 2, .room = 19), 0, 0},
    {"one rank", TRI_OP_PACK_ROOMS, {2, 7, 3, 8}, OF(route, .ranks = 1, .room = 42), 0, 0},
    {"large", TRI_OP_PACK_ROOMS, {5, 133, 8, 64}, OF(route, .ranks = 16, .room = 500), 0, 0},
    {"counts", TRI_OP_MASK_ROWS, {4, 9}, {0}, 0, 0},
    {"large", TRI_OP_MASK_ROWS, {16, 500}, {0}, 0, 0},
    {"odd", TRI_OP_SORT_ROWS, {2, 7, 8, 3}, {0}, 0, 0},
    {"one expert", TRI_OP_SORT_ROWS, {2, 7, 1, 1}, {0}, 0, 0},
    {"many experts", TRI_OP_SORT_ROWS, {2, 133, 64, 8}, {0}, 0, 0},
    {"large", TRI_OP_SORT_ROWS, {7, 1031, 64, 8}, {0}, CASE_LARGE, 0},

    /* B, T, C, E, N, K */
    {"odd", TRI_OP_GROUPED, {2, 7, 2, 4, 19, 33}, {0}, 0, 0},
    {"one expert", TRI_OP_GROUPED, {1, 7, 1, 1, 19, 33}, {0}, 0, 0},
    {"back", TRI_OP_GROUPED, {2, 7, 2, 4, 19, 33}, OF(grouped, .back = true), 0, 0},
    {"whole packs", TRI_OP_GROUPED, {2, 32, 2, 8, 64, 128}, {0}, 0, 0},
    {"back, whole packs", TRI_OP_GROUPED, {2, 32, 2, 8, 64, 128}, OF(grouped, .back = true), 0, 0},
    {"many experts", TRI_OP_GROUPED, {2, 67, 4, 64, 72, 40}, {0}, 0, 0},
    {"all to one", TRI_OP_GROUPED, {2, 67, 2, 8, 40, 72}, {0}, CASE_SHARD, 0},
    {"large", TRI_OP_GROUPED, {2, 67, 4, 5, 301, 203}, {0}, CASE_LARGE, 0},
    {"large, deep", TRI_OP_GROUPED, {2, 67, 4, 5, 203, 301}, {0}, CASE_LARGE, 0},
    {"large, back",
     TRI_OP_GROUPED,
     {2, 67, 4, 5, 301, 203},
     OF(grouped, .back = true),
     CASE_LARGE,
     0},
    {"odd", TRI_OP_GROUPED_GRAD, {2, 7, 2, 4, 19, 33}, {0}, 0, 0},
    {"odd +=", TRI_OP_GROUPED_GRAD, {2, 7, 2, 4, 19, 33}, {0}, CASE_ACCUMULATE, 0},
    {"one expert", TRI_OP_GROUPED_GRAD, {1, 7, 1, 1, 19, 33}, {0}, 0, 0},
    {"whole packs", TRI_OP_GROUPED_GRAD, {2, 32, 2, 8, 64, 128}, {0}, 0, 0},
    {"many experts +=", TRI_OP_GROUPED_GRAD, {2, 67, 4, 64, 72, 40}, {0}, CASE_ACCUMULATE, 0},
    {"all to one", TRI_OP_GROUPED_GRAD, {2, 67, 2, 8, 40, 72}, {0}, CASE_SHARD, 5e-6f},
    {"large", TRI_OP_GROUPED_GRAD, {2, 67, 4, 5, 203, 301}, {0}, CASE_LARGE, 5e-6f},
    {"large +=",
     TRI_OP_GROUPED_GRAD,
     {2, 67, 4, 5, 301, 203},
     {0},
     CASE_LARGE | CASE_ACCUMULATE,
     5e-6f},

    {"forward",
     TRI_OP_GROUPED8,
     {2, 8, 2, 4, 32, 48},
     OF(grouped, .fast_sum = true),
     CASE_FLOAT8,
     0},
    {"back", TRI_OP_GROUPED8, {2, 8, 2, 4, 32, 48}, OF(grouped, .back = true), CASE_FLOAT8, 0},
    {"one expert",
     TRI_OP_GROUPED8,
     {1, 8, 2, 1, 16, 16},
     OF(grouped, .back = true),
     CASE_FLOAT8,
     0},
    {"all to one",
     TRI_OP_GROUPED8,
     {2, 72, 2, 8, 48, 80},
     OF(grouped, .fast_sum = true),
     CASE_FLOAT8 | CASE_SHARD,
     0},
    {"large",
     TRI_OP_GROUPED8,
     {2, 68, 4, 5, 304, 208},
     OF(grouped, .fast_sum = true),
     CASE_FLOAT8 | CASE_LARGE,
     0},
    {"large, back",
     TRI_OP_GROUPED8,
     {2, 68, 4, 5, 304, 208},
     OF(grouped, .back = true),
     CASE_FLOAT8 | CASE_LARGE,
     0},
    {"few", TRI_OP_GROUPED8_GRAD, {2, 8, 2, 4, 32, 48}, {0}, CASE_FLOAT8, 0},
    {"few +=", TRI_OP_GROUPED8_GRAD, {2, 8, 2, 4, 32, 48}, {0}, CASE_FLOAT8 | CASE_ACCUMULATE, 0},
    {"all to one",
     TRI_OP_GROUPED8_GRAD,
     {2, 72, 2, 8, 48, 80},
     {0},
     CASE_FLOAT8 | CASE_SHARD,
     5e-6f},
    {"large", TRI_OP_GROUPED8_GRAD, {2, 68, 4, 5, 208, 304}, {0}, CASE_FLOAT8 | CASE_LARGE, 5e-6f},
    {"many experts +=",
     TRI_OP_GROUPED8_GRAD,
     {2, 68, 4, 64, 80, 48},
     {0},
     CASE_FLOAT8 | CASE_ACCUMULATE,
     0},

    /* B, T, C, F */
    {"amax, odd", TRI_OP_SWIGLU_ROWS, {2, 7, 2, 33}, {0}, CASE_AMAX, 0},
    {"amax, large", TRI_OP_SWIGLU_ROWS, {3, 333, 2, 128}, {0}, CASE_AMAX, 0},
    {"amax, odd", TRI_OP_SWIGLU_ROWS_GRAD, {2, 7, 2, 33}, {0}, CASE_AMAX, 0},
    {"amax, large", TRI_OP_SWIGLU_ROWS_GRAD, {3, 333, 2, 128}, {0}, CASE_AMAX, 0},
    {"odd", TRI_OP_SWIGLU_ROWS, {2, 7, 2, 33}, {0}, 0, 0},
    {"large", TRI_OP_SWIGLU_ROWS, {3, 133, 2, 101}, {0}, 0, 0},
    {"large, whole packs", TRI_OP_SWIGLU_ROWS, {3, 133, 2, 128}, {0}, 0, 0},
    {"odd", TRI_OP_SWIGLU_ROWS_GRAD, {2, 7, 2, 33}, {0}, 0, 0},
    {"large", TRI_OP_SWIGLU_ROWS_GRAD, {3, 133, 2, 101}, {0}, 0, 0},
    {"large, whole packs", TRI_OP_SWIGLU_ROWS_GRAD, {3, 133, 2, 128}, {0}, 0, 0},

    /* B, T, C, E, N, K */
    {"odd", TRI_OP_GROUPED_SWIGLU, {2, 7, 2, 4, 19, 33}, {0}, 0, 0},
    {"all to one", TRI_OP_GROUPED_SWIGLU, {2, 67, 2, 8, 40, 72}, {0}, CASE_SHARD, 0},
    {"odd", TRI_OP_GROUPED_SWIGLU_GRAD, {2, 7, 2, 4, 19, 33}, OF(grouped, .back = true), 0, 0},
    {"many experts",
     TRI_OP_GROUPED_SWIGLU_GRAD,
     {2, 67, 4, 64, 72, 40},
     OF(grouped, .back = true),
     0,
     0},
    {"odd", TRI_OP_GROUPED_SUM, {2, 7, 2, 4, 19, 33}, OF(grouped, .back = true), 0, 0},
    {"many experts", TRI_OP_GROUPED_SUM, {2, 67, 4, 64, 72, 40}, OF(grouped, .back = true), 0, 0},
};

static bool of_experts(tri_op op)
{
    return op >= TRI_OP_GATE_ROWS && op <= TRI_OP_GROUPED_SUM;
}

static void out_i32(op_run *run, int rank, const int64_t *size)
{
    tensor_shape(&run->args.out[run->args.num_out++], TRI_I32, rank, size);
}

/* sizes: B, T, E, C. */
static void build_router(op_run *run, const op_case *c)
{
    int64_t b = c->size[0], t = c->size[1], e = c->size[2], k = c->size[3], one = 1;
    const int64_t logits[] = {b, t, e}, choice[] = {b, t, k};
    run->attr.route.choices = (int32_t)k;
    in_f32(run, 3, logits);
    if (c->op == TRI_OP_ROUTE) {
        if (!(c->flags & CASE_WITHOUT))
            in_f32(run, 1, &e);
        out_f32(run, 3, choice);
        out_i32(run, 3, choice);
    } else if (c->op == TRI_OP_ROUTE_GRAD) {
        in_i32(run, 3, choice);
        in_f32(run, 3, choice);
        out_f32(run, 3, logits);
    } else if (c->op == TRI_OP_ROUTE_SUMS) {
        in_i32(run, 3, choice);
        in_i32(run, 2, logits);
        if (c->attr.route.whole)
            out_f32(run, 2, SIZES(e, TRI_NUM_ROUTE_SUMS));
        else
            out_f32(run, 3, SIZES(b, e, TRI_NUM_ROUTE_SUMS));
        out_f32(run, 1, &one);
        out_f32(run, 1, &one);
    } else {
        in_i32(run, 2, logits);
        if (c->flags & CASE_WITHOUT)
            in_absent(run);
        else if (c->attr.route.whole)
            in_f32(run, 2, SIZES(e, TRI_NUM_ROUTE_SUMS));
        else
            in_f32(run, 3, SIZES(b, e, TRI_NUM_ROUTE_SUMS));
        if (c->flags & CASE_SCALE)
            in_scaler(run);
        out_f32(run, 3, logits);
    }
}

/* sizes: B, T, E, C, of which T and C do not matter. */
static void build_balance(op_run *run, const op_case *c)
{
    int64_t e = c->size[2], one = 1, result = TRI_NUM_RESULT;
    if (c->op == TRI_OP_MOVE_BIAS) {
        in_f32(run, 1, &e);
        in_f32(run, 1, &e);
        in_f32(run, 1, &result);
        out_f32(run, 1, &e);
        return;
    }
    int rank = c->attr.route.whole ? 2 : 3;
    const int64_t rows[] = {c->size[0], e, TRI_NUM_ROUTE_SUMS}, *sums = rows + 3 - rank;
    in_f32(run, rank, sums);
    if (c->flags & CASE_SCALE)
        in_scaler(run);
    if (c->op == TRI_OP_ROUTE_LOAD)
        out_f32(run, 1, &e);
    else if (c->op == TRI_OP_BALANCE)
        out_f32(run, 1, &one);
    else
        out_f32(run, rank, sums);
}

/* sizes: B, T, E, C; of largest the last but one. */
static void build_drops(op_run *run, const op_case *c)
{
    const int64_t *s = c->size, choice[] = {s[0], s[1], s[3]}, one = 1;
    if (c->op == TRI_OP_LARGEST) {
        in_f32(run, 1, s + 2);
        out_f32(run, 1, &one);
        return;
    }
    in_i32(run, 3, choice);
    if (c->op == TRI_OP_COUNT_DROPPED) {
        in_i32(run, 2, choice);
        out_f32(run, 1, &one);
        return;
    }
    run->attr.route.experts = (int32_t)s[2];
    if (c->flags & CASE_PLACES)
        in_i32(run, 2, choice);
    out_i32(run, 3, choice);
}

/* sizes: B, T, C, E, N, K. */
static void build_grouped(op_run *run, const op_case *c)
{
    int64_t b = c->size[0], t = c->size[1], k = c->size[2];
    const int64_t n[] = {b, t, k, c->size[4]}, d[] = {b, t, k, c->size[5]}, *w = c->size + 3;
    if (c->op == TRI_OP_GROUPED_GRAD) {
        in_f32(run, 4, n);
        in_f32(run, 4, d);
        in_i32(run, 3, n);
        in_absent(run); /* w, whose shape alone matters */
        out_f32(run, 3, w);
        return;
    }
    in_f32(run, 4, c->attr.grouped.back ? n : d);
    in_f32(run, 3, w);
    in_i32(run, 3, n);
    out_f32(run, 4, c->attr.grouped.back ? d : n);
}

/* sizes: B, T, C, E, N, K. */
static void build_fused(op_run *run, const op_case *c)
{
    int64_t b = c->size[0], t = c->size[1], k = c->size[2];
    const int64_t n[] = {b, t, k, c->size[4]}, d[] = {b, t, k, c->size[5]}, *w = c->size + 3;
    const int64_t down[] = {w[0], w[2], w[1]};
    bool act = c->op == TRI_OP_GROUPED_SWIGLU, grad = c->op == TRI_OP_GROUPED_SWIGLU_GRAD;
    in_f32(run, 4, act || grad ? d : n);
    in_f32(run, 3, grad ? down : w);
    in_i32(run, 3, n);
    if (!act)
        in_f32(run, 4, n);
    in_f32(run, grad ? 4 : 3, grad ? n : w);
    if (act || grad)
        in_f32(run, 3, n);
    for (int j = 0; j < (act ? 3 : grad ? 2 : 1); j++)
        out_f32(run, 4, act || grad ? n : d);
    if (grad)
        out_f32(run, 3, n);
}

/* sizes: B, T, C, E, N, K; contracted dims are last. */
static void build_grouped8(op_run *run, const op_case *c)
{
    int64_t b = c->size[0], t = c->size[1], k = c->size[2];
    int64_t experts = c->size[3], n = c->size[4], d = c->size[5];
    bool grad = c->op == TRI_OP_GROUPED8_GRAD, back = c->attr.grouped.back;
    if (grad) {
        in_f32(run, 4, SIZES(n, b, t, k));
        in_f32(run, 4, SIZES(d, b, t, k));
    } else {
        in_f32(run, 4, SIZES(b, t, k, back ? n : d));
        if (back)
            in_f32(run, 3, SIZES(d, experts, n));
        else
            in_f32(run, 3, SIZES(experts, n, d));
    }
    in_i32(run, 3, SIZES(b, t, k));
    if (grad)
        in_absent(run); /* w, whose shape alone matters */
    in_f32(run, 1, SIZES(1));
    in_f32(run, 1, SIZES(1));
    if (grad)
        out_f32(run, 3, SIZES(experts, n, d));
    else
        out_f32(run, 4, SIZES(b, t, k, back ? d : n));
}

/* sizes: dims s0, s1, s2; quantise: the matrix of s0 s1 rows and s2 columns, gathered from s0 where
 * it has an index. amax: with s3, rows of so many experts. */
static void build_quantise(op_run *run, const op_case *c)
{
    const int64_t *s = c->size;
    bool gathers = c->op == TRI_OP_QUANTISE && c->attr.quantise.lead > 0;
    if (gathers)
        in_f32(run, 2, SIZES(s[0], s[2]));
    else
        in_f32(run, 3, s);
    if (c->op == TRI_OP_AMAX) {
        if (s[3] > 0)
            in_i32(run, 2, s);
        out_f32(run, 1, SIZES(TRI_AMAX_PARTS));
        return;
    }
    run->attr.quantise.split = 2;
    in_f32(run, 1, SIZES(TRI_AMAX_PARTS));
    if (gathers)
        in_i32(run, 2, s);
    out_f32(run, 1, SIZES(1));
    if (c->attr.quantise.straight)
        out_f32(run, 3, s);
    if (c->attr.quantise.turned)
        out_f32(run, 3, SIZES(s[2], s[0], s[1]));
    if (c->flags & CASE_SUMS)
        out_f32(run, 1, SIZES(s[2]));
}

/* sizes: B, T, D; B, T, C, F; of sort_rows B, T, E, C. */
static void build_rows(op_run *run, const op_case *c)
{
    const int64_t *s = c->size, gate[] = {s[0], s[1], 1}, choice[] = {s[0], s[1], s[3]};
    bool grad = c->op == TRI_OP_GATE_ROWS_GRAD || c->op == TRI_OP_SWIGLU_ROWS_GRAD;
    if (c->op == TRI_OP_SORT_ROWS) {
        run->attr.route.experts = (int32_t)s[2];
        in_i32(run, 3, choice);
        for (int k = 0; k < 4; k++)
            out_i32(run, 3, choice);
        return;
    }
    bool gated = c->op == TRI_OP_GATE_ROWS || c->op == TRI_OP_GATE_ROWS_GRAD;
    int rank = gated ? 3 : 4, num_full = (gated ? 1 : 2) + grad;
    for (int j = 0; j < num_full; j++)
        in_f32(run, rank, s);
    in_f32(run, 3, gated ? gate : s);
    for (int k = 0; k < (gated || !grad ? 1 : 2); k++)
        out_f32(run, rank, s);
    if (grad)
        out_f32(run, 3, gated ? gate : s);
    for (int k = 0; c->flags & CASE_AMAX && k < (grad ? 2 : 1); k++)
        out_f32(run, 1, SIZES(TRI_AMAX_PARTS));
}

/* sizes: B, T, C, E, W; of mask_rows ranks, room. */
static void build_ways(op_run *run, const op_case *c)
{
    const int64_t *s = c->size, one = 1, ranks = c->attr.route.ranks;
    const int64_t rows[] = {s[0], s[1], s[2], s[4]}, room[] = {ranks, c->attr.route.room};
    if (c->op == TRI_OP_MASK_ROWS) {
        in_i32(run, 2, s);
        in_i32(run, 1, s);
        out_i32(run, 2, s);
        return;
    }
    if (c->op == TRI_OP_DISPATCH || c->op == TRI_OP_COLLECT) {
        in_f32(run, 4, rows);
        in_i32(run, 3, rows);
        out_f32(run, 4, rows);
        return;
    }
    in_i32(run, 3, rows);
    if (c->op == TRI_OP_ROOMS) {
        out_f32(run, 1, &one);
        return;
    }
    run->attr.route.experts = (int32_t)s[3];
    out_i32(run, 1, &ranks);
    out_i32(run, 2, room);
    out_i32(run, 3, rows);
    out_i32(run, 2, room);
}

static void build_experts(op_run *run, const op_case *c)
{
    if (c->op >= TRI_OP_ROOMS && c->op <= TRI_OP_MASK_ROWS) {
        build_ways(run, c);
        return;
    }
    if (c->op >= TRI_OP_ROUTE && c->op <= TRI_OP_ROUTE_SUMS_GRAD)
        build_router(run, c);
    else if (c->op >= TRI_OP_ROUTE_LOAD && c->op <= TRI_OP_MOVE_BIAS)
        build_balance(run, c);
    else if (c->op >= TRI_OP_DROP_ROWS && c->op <= TRI_OP_LARGEST)
        build_drops(run, c);
    else if (c->op == TRI_OP_GROUPED || c->op == TRI_OP_GROUPED_GRAD)
        build_grouped(run, c);
    else if (c->op == TRI_OP_GROUPED8 || c->op == TRI_OP_GROUPED8_GRAD)
        build_grouped8(run, c);
    else if (c->op >= TRI_OP_GROUPED_SWIGLU)
        build_fused(run, c);
    else
        build_rows(run, c);
}

/* Sorted ids of experts, of which every third has no rows; the last rows have none. */
static void fill_sorted(tri_tensor *t, const op_case *c)
{
    int32_t *ids = t->data, experts = (int32_t)c->size[3], e = 0;
    int64_t rows = t->count - t->count / 8, i = 0;
    while (e < experts && !(c->flags & CASE_SHARD)) {
        int64_t share = 2 * rows / experts;
        int64_t num = e % 3 == 1 ? 0 : 1 + tri_random_word(SEED, (uint64_t)e, 5, 92) % (share + 1);
        for (; num > 0 && i < rows; num--)
            ids[i++] = e;
        e++;
    }
    for (; i < t->count; i++)
        ids[i] = i < rows && c->flags & CASE_SHARD ? experts / 2 : -1;
}

/* Choices of a token differ from each other. Those to be sorted may be none, or no expert's, and
 * one expert is nobody's. */
static void fill_choices(tri_tensor *t, const op_case *c)
{
    int32_t *ids = t->data, experts = (int32_t)c->size[2], num = (int32_t)c->size[3];
    for (int64_t i = 0; i < t->count; i++) {
        uint32_t word = tri_random_word(SEED, (uint64_t)(i / num), 6, 93);
        ids[i] = (int32_t)((word % (uint32_t)experts + (uint32_t)(i % num)) % (uint32_t)experts);
        if (c->op == TRI_OP_SORT_ROWS && (ids[i] == experts / 2 || i % 17 == 3))
            ids[i] = i % 3 == 0 ? -1 : i % 3 == 1 ? experts : 0;
        if (c->op >= TRI_OP_DROP_ROWS && c->op <= TRI_OP_COUNT_DROPPED && word % 7 == 0)
            ids[i] = -1;
    }
}

static void fill_expert_ids(tri_tensor *t, const op_case *c)
{
    int32_t *ids = t->data;
    bool sorted = (c->op >= TRI_OP_GROUPED && c->op <= TRI_OP_GROUPED8_GRAD) ||
                  (c->op >= TRI_OP_GROUPED_SWIGLU && c->op <= TRI_OP_GROUPED_SUM) ||
                  (c->op >= TRI_OP_ROOMS && c->op <= TRI_OP_PACK_ROOMS);
    if (sorted) {
        fill_sorted(t, c);
    } else if (c->op == TRI_OP_MASK_ROWS) { /* ids, and how many there are: none and all, too */
        for (int64_t i = 0; i < t->count; i++)
            ids[i] = (int32_t)(t->rank == 2 ? i % 7 : i == 0 ? 0 : i == 1 ? c->size[1] : 3 * i);
    } else if (t->rank == 3) {
        fill_choices(t, c);
    } else if (c->op == TRI_OP_DROP_ROWS) { /* places, in another order in each row */
        int64_t num = t->size[1];
        for (int64_t i = 0; i < t->count; i++)
            ids[i] = (int32_t)((i % num * 7 + i / num) % num);
    } else { /* targets, some of them ignored */
        for (int64_t i = 0; i < t->count; i++) {
            uint32_t word = tri_random_word(SEED, (uint64_t)i, 7, 94);
            ids[i] = word % 5 == 0 ? -1 : (int32_t)(word % 1000);
        }
    }
}

/* Logits of a token are in any order, but no two of them are close. */
static void part_logits(tri_tensor *t, int64_t experts)
{
    float *logits = t->data;
    int64_t step = experts % 37 ? 37 : 41; /* a prime that does not divide it: none comes twice */
    for (int64_t i = 0; i < t->count; i++) {
        int64_t token = i / experts, at = (i % experts + 5 * token) * step % experts;
        logits[i] = 5.0f * (float)at / (float)experts - 2.5f + 0.01f * (float)(token % 50);
    }
}

static void derive_experts(op_run *run, const op_case *c)
{
    tri_tensor *in = run->args.in;
    if (c->op == TRI_OP_ROUTE)
        part_logits(&in[0], c->size[2]);
    if (c->op == TRI_OP_BALANCE || c->op == TRI_OP_BALANCE_GRAD) {
        float *sums = in[0].data; /* one row has no tokens */
        for (int64_t i = 0; i < in[0].count; i++)
            sums[i] = fabsf(sums[i]) * 20;
        for (int64_t i = 0; i < in[0].count / TRI_NUM_ROUTE_SUMS; i++)
            sums[i * TRI_NUM_ROUTE_SUMS + TRI_ROUTE_TOKENS] =
                i / c->size[2] == 1 ? 0 : 100 + (float)(i / c->size[2]);
    }
    if (c->op == TRI_OP_MOVE_BIAS) {
        float *load = in[1].data, *result = in[2].data;
        for (int64_t i = 0; i < in[1].count; i++)
            load[i] = roundf(fabsf(load[i]) * 100);
        for (int64_t i = 0; i < in[2].count; i++)
            result[i] = 1;
        result[TRI_RESULT_OK] = c->flags & CASE_NOT_OK ? 0 : 1;
    }
}

#endif
