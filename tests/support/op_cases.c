#include "op_cases.h"

#include "base/rng.h"
#include "graph/code.h"
#include "graph/op_table.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "op_case_table.h"

#include "op_case_attention.h"

#include "op_case_ids.h"

enum { CANARY_BYTES = 64, CANARY = 0xA5, UNWRITTEN = 0xFF, REPEAT = 100003, HUGE_PAGE = 1 << 21 };

int op_may_alias(const op_case *c, op_alias pairs[OP_MAX_ALIAS])
{
    switch (c->op) {
    case TRI_OP_ADD:
    case TRI_OP_AXPBY:
    case TRI_OP_ADD_LAYERNORM:
    case TRI_OP_ADD_RMSNORM:
    case TRI_OP_SWIGLU:
    case TRI_OP_SWIGLU_ROWS:
    case TRI_OP_GATE_ROWS_GRAD:
        pairs[0] = (op_alias){0, 0};
        pairs[1] = (op_alias){0, 1};
        return 2;
    case TRI_OP_BIAS_ADD:
    case TRI_OP_ACT:
    case TRI_OP_DROPOUT:
    case TRI_OP_JITTER:
    case TRI_OP_ROPE:
    case TRI_OP_CE_GRAD:
    case TRI_OP_GATE_ROWS:
        pairs[0] = (op_alias){0, 0};
        return 1;
    case TRI_OP_ACT_GRAD:
        pairs[0] = (op_alias){0, 1};
        return 1;
    case TRI_OP_SWIGLU_GRAD:
    case TRI_OP_SWIGLU_ROWS_GRAD: /* either output on any input */
        for (int i = 0; i < 6; i++)
            pairs[i] = (op_alias){i / 3, i % 3};
        return 6;
    case TRI_OP_CROSS_ENTROPY:
        pairs[0] = (op_alias){2, 0};
        return 1;
    case TRI_OP_ATTENTION_MERGE:
        pairs[0] = (op_alias){0, 0};
        pairs[1] = (op_alias){0, 2};
        return 2;
    case TRI_OP_LAYERNORM_GRAD:
    case TRI_OP_RMSNORM_GRAD:
    case TRI_OP_LAYERNORM_GRADS:
    case TRI_OP_RMSNORM_GRADS:
        pairs[0] = (op_alias){0, 0};
        pairs[1] = (op_alias){0, 4};
        return c->flags & CASE_WITHOUT ? 1 : 2;
    default:
        return 0;
    }
}

int op_must_alias(const op_case *c, op_alias pairs[OP_MAX_ALIAS])
{
    int num = 0;
    if (c->op == TRI_OP_SGD)
        num = c->flags & CASE_WITHOUT ? 1 : 2;
    if (c->op == TRI_OP_LION)
        num = 2;
    if (c->op == TRI_OP_ADAM || c->op == TRI_OP_ADAM8)
        num = 3;
    if (c->op == TRI_OP_MOMENTUM || c->op == TRI_OP_APPLY_UPDATE || c->op == TRI_OP_MOVE_BIAS)
        num = 1;
    if (c->op == TRI_OP_CACHE_WRITE)
        num = 2;
    for (int i = 0; i < num; i++)
        pairs[i] = (op_alias){i, i};
    if (c->op == TRI_OP_ADAM && c->flags & CASE_COPY)
        pairs[num++] = (op_alias){3, 6};
    if (c->op == TRI_OP_NARROW)
        pairs[num++] = (op_alias){0, 1};
    if (c->op == TRI_OP_FINISH && c->flags & CASE_SCALE)
        pairs[num++] = (op_alias){1, 3};
    return num;
}

/* --- Operands ------------------------------------------------------------------------------- */

static void tensor_shape(tri_tensor *t, tri_dtype dtype, int rank, const int64_t *size)
{
    *t = (tri_tensor){.dtype = dtype, .rank = rank, .count = 1};
    for (int d = 0; d < rank; d++) {
        t->size[d] = t->global[d] = size[d];
        t->count *= size[d];
    }
}

#define SIZES(...)                                                                                 \
    (int64_t[])                                                                                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void in_f32(op_run *run, int rank, const int64_t *size)
{
    tensor_shape(&run->args.in[run->args.num_in++], TRI_F32, rank, size);
}

static void in_i32(op_run *run, int rank, const int64_t *size)
{
    tensor_shape(&run->args.in[run->args.num_in++], TRI_I32, rank, size);
}

static void in_absent(op_run *run)
{
    run->args.in[run->args.num_in++] = (tri_tensor){0};
}

static void in_scaler(op_run *run)
{
    const int64_t size = TRI_NUM_SCALER;
    in_f32(run, 1, &size);
}

static void out_f32(op_run *run, int rank, const int64_t *size)
{
    tensor_shape(&run->args.out[run->args.num_out++], TRI_F32, rank, size);
}

/* This dim of the tensor is a part, beginning at origin, of a larger one. */
static void make_shard(tri_tensor *t, int dim, int64_t origin)
{
    t->origin[dim] = origin;
    t->global[dim] = t->size[dim] + origin + 3;
}

#include "op_case_experts.h"

const op_case *op_cases(int *num_cases)
{
    static op_case all[sizeof case_table / sizeof case_table[0] +
                       sizeof attention_case_table / sizeof attention_case_table[0] +
                       sizeof expert_case_table / sizeof expert_case_table[0]];
    char *to = (char *)all;
    memcpy(to, case_table, sizeof case_table);
    to += sizeof case_table;
    memcpy(to, attention_case_table, sizeof attention_case_table);
    to += sizeof attention_case_table;
    memcpy(to, expert_case_table, sizeof expert_case_table);
    *num_cases = (int)(sizeof all / sizeof all[0]);
    return all;
}

/* sizes: groups g, m, k, n. a is [g,m,k], or [g,k,m] when transposed (contracted over g and k). */
static void build_matmul(op_run *run, const op_case *c)
{
    int64_t g = c->size[0], m = c->size[1], k = c->size[2], n = c->size[3];
    int64_t rows = c->attr.matmul.trans_a ? m : g * m, depth = c->attr.matmul.trans_a ? g * k : k;
    run->attr.matmul.split_a = 2;
    if (c->attr.matmul.trans_a)
        in_f32(run, 3, SIZES(g, k, m));
    else
        in_f32(run, 3, SIZES(g, m, k));
    run->attr.matmul.split_b = 1;
    if (c->attr.matmul.trans_b) {
        in_f32(run, 2, SIZES(n, depth));
    } else if (c->attr.matmul.trans_a) {
        in_f32(run, 3, SIZES(g, k, n));
        run->attr.matmul.split_b = 2;
    } else {
        in_f32(run, 2, SIZES(depth, n));
    }
    if (c->attr.matmul.epilogue == TRI_EPILOGUE_GELU_GRAD ||
        c->attr.matmul.epilogue == TRI_EPILOGUE_ADD)
        in_f32(run, 2, SIZES(rows, n));
    else if (c->attr.matmul.epilogue != TRI_EPILOGUE_NONE)
        in_f32(run, 1, SIZES(n));
    if (c->flags & CASE_FLOAT8) {
        if (c->attr.matmul.epilogue == TRI_EPILOGUE_NONE)
            in_absent(run);
        in_f32(run, 1, SIZES(1));
        in_f32(run, 1, SIZES(1));
    }
    out_f32(run, 2, SIZES(rows, n));
    if (c->attr.matmul.epilogue == TRI_EPILOGUE_BIAS_GELU)
        out_f32(run, 2, SIZES(rows, n));
}

/* sizes: leading dims s0, s1; trailing dims s2, s3 (the bias has the trailing ones). */
static void build_elementwise(op_run *run, const op_case *c)
{
    const int64_t *s = c->size, bias[2] = {s[2], s[3]};
    int num_full = c->op == TRI_OP_ADD || c->op == TRI_OP_AXPBY || c->op == TRI_OP_ACT_GRAD ||
                           c->op == TRI_OP_SWIGLU
                       ? 2
                   : c->op == TRI_OP_SWIGLU_GRAD ? 3
                                                 : 1;
    for (int i = 0; i < num_full; i++)
        in_f32(run, 4, s);
    if (c->op == TRI_OP_BIAS_ADD)
        in_f32(run, 2, bias);
    if (c->op == TRI_OP_DROPOUT || c->op == TRI_OP_JITTER) {
        in_i32(run, 1, s);
        in_i32(run, 1, SIZES(1));
        if (c->flags & CASE_PLACES)
            in_i32(run, 2, s);
    }
    if (c->op == TRI_OP_BIAS_GRAD)
        out_f32(run, 2, bias);
    else
        out_f32(run, 4, s);
    if (c->op == TRI_OP_SWIGLU_GRAD)
        out_f32(run, 4, s);
    for (int k = run->args.num_out; c->flags & CASE_AMAX && k > 0; k--)
        out_f32(run, 1, SIZES(TRI_AMAX_PARTS));
    if (c->flags & CASE_SHARD)
        for (int d = 1; d < 4; d += 2)
            make_shard(&run->args.in[0], d, 5 + d);
}

/* sizes: x [s0, s1, s2, s3], index [s4, s5, s6], or [s4, s5] and with an index that leads back; the
 * attributes say which dims of x are a row's. */
static void build_gather(op_run *run, const op_case *c)
{
    int64_t y[TRI_MAX_RANK] = {c->size[4], c->size[5]};
    int lead = c->attr.gather.lead;
    memcpy(y + 2, c->size + lead, (size_t)(4 - lead) * sizeof *y);
    in_f32(run, 4, c->size);
    in_i32(run, c->attr.gather.each ? 2 : 3, c->size + 4);
    if (c->attr.gather.each)
        in_i32(run, 2, c->size);
    out_f32(run, 6 - lead, y);
}

/* sizes: B, T, V, D. */
static void build_lookup(op_run *run, const op_case *c)
{
    int64_t b = c->size[0], t = c->size[1], v = c->size[2], d = c->size[3];
    if (c->op == TRI_OP_EMBED) {
        in_f32(run, 2, SIZES(v, d));
        in_i32(run, 2, SIZES(b, t));
        out_f32(run, 3, SIZES(b, t, d));
    } else if (c->op == TRI_OP_EMBED_GRAD) {
        in_f32(run, 3, SIZES(b, t, d));
        in_i32(run, 2, SIZES(b, t));
        out_f32(run, 2, SIZES(v, d));
    } else if (c->op == TRI_OP_SELECT_ROW) {
        in_f32(run, 3, SIZES(b, t, d));
        in_i32(run, 1, SIZES(b));
        out_f32(run, 2, SIZES(b, d));
    } else {
        in_f32(run, 2, SIZES(b, d));
        in_i32(run, 1, SIZES(b));
        if (c->flags & CASE_PLACES)
            in_absent(run); /* x, whose shape alone matters */
        out_f32(run, 3, SIZES(b, t, d));
    }
    if (c->flags & CASE_PLACES)
        in_i32(run, 2, SIZES(b, t));
    else if (c->flags & CASE_SHARD)
        make_shard(c->op == TRI_OP_EMBED ? &run->args.in[0] : &run->args.out[0], 0, v / 3);
}

/* sizes: B, T, D; or B, T, H, K, which is normalised over K, or over both. */
static void build_norm(op_run *run, const op_case *c)
{
    int rank = c->size[3] > 0 ? 4 : 3;
    bool grads = c->op == TRI_OP_LAYERNORM_GRADS || c->op == TRI_OP_RMSNORM_GRADS;
    bool rms = c->op >= TRI_OP_RMSNORM && c->op != TRI_OP_LAYERNORM_GRADS;
    bool grad = c->op == TRI_OP_LAYERNORM_GRAD || c->op == TRI_OP_RMSNORM_GRAD || grads;
    bool param_grad = c->op == TRI_OP_LAYERNORM_PARAM_GRAD || c->op == TRI_OP_RMSNORM_PARAM_GRAD;
    bool sum = c->op == TRI_OP_ADD_LAYERNORM || c->op == TRI_OP_ADD_RMSNORM;
    int dims = c->attr.norm.dims > 1 ? c->attr.norm.dims : 1, of_stats = rank - dims + 1;
    const int64_t *x = c->size, *d = c->size + rank - dims;
    int64_t stats[4] = {x[0], x[1], x[2], x[3]};
    stats[of_stats - 1] = rms ? 1 : 2;
    in_f32(run, rank, x);
    if (sum || grad || param_grad)
        in_f32(run, rank, x);
    if (!param_grad)
        in_f32(run, dims, d); /* gain */
    if (grad || param_grad)
        in_f32(run, of_stats, stats);
    else if (!rms)
        in_f32(run, dims, d); /* shift */
    if (grad && c->flags & CASE_WITHOUT)
        in_absent(run);
    else if (grad)
        in_f32(run, rank, x);
    if (param_grad) {
        out_f32(run, dims, d);
        if (!rms)
            out_f32(run, dims, d);
        return;
    }
    out_f32(run, rank, x);
    if (sum)
        out_f32(run, rank, x);
    for (int k = 0; grads && k < (rms ? 1 : 2) + !(c->flags & CASE_NO_BIAS); k++)
        out_f32(run, dims, d);
    if (!grad)
        out_f32(run, of_stats, stats);
}

/* sizes: B, T, H, K. */
static void build_rope(op_run *run, const op_case *c)
{
    in_f32(run, 4, c->size);
    in_i32(run, 2, c->size);
    out_f32(run, 4, c->size);
}

/* The optional operands of attention, as far as a case has any of them. */
static void add_extras(op_run *run, const op_case *c, int64_t num_keys)
{
    int64_t b = c->size[0], t = c->size[1], h = c->size[2];
    if (!(c->flags & (CASE_SPAN | CASE_PLACES | CASE_SINK)))
        return;
    if (c->flags & CASE_SPAN)
        in_i32(run, 3, SIZES(b, t, 2));
    else
        in_absent(run);
    if (c->flags & CASE_PLACES) {
        in_i32(run, 2, SIZES(b, t));
        in_i32(run, 2, SIZES(b, num_keys));
    } else {
        in_absent(run);
        in_absent(run);
    }
    if (c->flags & CASE_SINK)
        in_f32(run, 1, &h);
}

/* sizes: B, T, H, K and G, or 0 for packed operands; then the number of keys, or 0 for T, and the
 * width of values, or 0 for K. */
static void build_attention(op_run *run, const op_case *c)
{
    int64_t b = c->size[0], t = c->size[1], h = c->size[2], k = c->size[3], g = c->size[4];
    int64_t keys = c->size[5] ? c->size[5] : t, v = c->size[6] ? c->size[6] : k;
    const int64_t o[] = {b, t, h, v}, q[] = {b, t, h, k}, packed[] = {b, t, 3, h, k};
    const int64_t kv[2][4] = {{b, keys, g, k}, {b, keys, g, v}};
    bool grad = c->op == TRI_OP_ATTENTION_GRAD;
    if (grad)
        in_f32(run, 4, o);
    in_f32(run, g ? 4 : 5, g ? q : packed);
    if (c->flags & CASE_SHARD)
        make_shard(&run->args.in[grad], g ? 2 : 3, 2);
    for (int i = 0; i < 2; i++) {
        if (g)
            in_f32(run, 4, kv[i]);
        else
            in_absent(run);
    }
    if (grad) {
        in_f32(run, 4, o);
        in_f32(run, 3, SIZES(b, h, t));
    }
    if (c->flags & CASE_WITHOUT) {
        in_absent(run);
        in_absent(run);
    } else {
        in_i32(run, 1, SIZES(b));
        in_i32(run, 1, SIZES(1));
    }
    if (c->flags & CASE_DOCS)
        in_i32(run, 2, SIZES(b, t));
    else
        in_absent(run);
    add_extras(run, c, keys);
    out_f32(run, !grad || g ? 4 : 5, !grad ? o : g ? q : packed);
    if (!grad)
        out_f32(run, 3, SIZES(b, h, t));
    for (int i = 0; grad && g && i < 2; i++)
        out_f32(run, 4, kv[i]);
    if (grad && c->flags & CASE_SINK)
        out_f32(run, 1, &h);
}

/* sizes: B, T, H, V. */
static void build_merge(op_run *run, const op_case *c)
{
    const int64_t *o = c->size, lse[] = {o[0], o[2], o[1]};
    for (int i = 0; i < 2; i++) {
        in_f32(run, 4, o);
        in_f32(run, 3, lse);
    }
    out_f32(run, 4, o);
    out_f32(run, 3, lse);
}

static bool is_cached(const op_case *c)
{
    return c->op == TRI_OP_CACHE_WRITE || (c->op == TRI_OP_ATTENTION && c->attr.attention.cached);
}

/* Positions that a cache has room for: a ring that is just long enough with a window, otherwise
 * some more than the new ones. */
static int64_t cache_length(const op_case *c)
{
    return c->attr.attention.window > 0 ? c->attr.attention.window + c->size[1] - 1
                                        : 2 * c->size[1] + 70;
}

/* sizes: B, T, H, K and G, or 0 for packed operands. The cache has a row more than the batch. */
static void build_cache(op_run *run, const op_case *c)
{
    int64_t b = c->size[0], t = c->size[1], h = c->size[2], k = c->size[3], g = c->size[4];
    const int64_t o[] = {b, t, h, k}, kv[] = {b, t, g, k}, packed[] = {b, t, 3, h, k};
    const int64_t cache[] = {b + 1, g ? g : h, cache_length(c), k};
    bool write = c->op == TRI_OP_CACHE_WRITE;
    if (!write)
        in_f32(run, g ? 4 : 5, g ? o : packed);
    for (int i = 0; i < 2; i++)
        in_f32(run, 4, cache);
    if (!write) {
        in_i32(run, 1, SIZES(b));
        in_absent(run); /* step, documents */
        in_absent(run);
        if (c->flags & CASE_SPAN)
            in_i32(run, 3, SIZES(b, t, 2));
        else
            in_absent(run);
        in_i32(run, 2, SIZES(b, t));
        in_absent(run);
        if (c->flags & CASE_SINK)
            in_f32(run, 1, &h);
        out_f32(run, 4, o);
        out_f32(run, 3, SIZES(b, h, t));
        return;
    }
    in_f32(run, g ? 4 : 5, g ? kv : packed);
    if (g)
        in_f32(run, 4, kv);
    else
        in_absent(run);
    in_i32(run, 2, SIZES(b, t));
    in_i32(run, 1, SIZES(b));
    for (int i = 0; i < 2; i++)
        out_f32(run, 4, cache);
}

/* sizes: B, T, V. */
static void build_loss(op_run *run, const op_case *c)
{
    const int64_t *x = c->size, one = 1, stats[3] = {x[0], x[1], 3};
    switch (c->op) {
    case TRI_OP_CE_STATS:
        in_f32(run, 3, x);
        in_i32(run, 2, x);
        out_f32(run, 3, stats);
        break;
    case TRI_OP_CE_COMBINE: /* x[2] parts */
        in_f32(run, 4, SIZES(x[2], x[0], x[1], 3));
        out_f32(run, 3, stats);
        break;
    case TRI_OP_CE_LOSS:
        in_f32(run, 3, stats);
        in_i32(run, 2, x);
        out_f32(run, 1, &one);
        out_f32(run, 1, &one);
        out_f32(run, 2, x);
        for (int k = 0; k < TRI_MAX_HEAD_STATS && c->attr.loss.stat[k]; k++)
            out_f32(run, 1, &one);
        break;
    case TRI_OP_CE_GRAD:
        in_f32(run, 3, x);
        in_i32(run, 2, x);
        in_f32(run, 2, x);
        if (c->flags & CASE_SCALE)
            in_scaler(run);
        out_f32(run, 3, x);
        break;
    case TRI_OP_CROSS_ENTROPY:
        in_f32(run, 3, x);
        in_i32(run, 2, x);
        if (c->flags & CASE_SCALE)
            in_scaler(run);
        out_f32(run, 1, &one);
        out_f32(run, 1, &one);
        out_f32(run, 3, x);
        for (int k = 0; k < TRI_MAX_HEAD_STATS && c->attr.loss.stat[k]; k++)
            out_f32(run, 1, &one);
        break;
    default:
        in_f32(run, 3, x);
        in_f32(run, 3, x);
        if (c->flags & CASE_SCALE)
            in_scaler(run);
        if (c->op == TRI_OP_OUT_LOSS_GRAD) {
            out_f32(run, 3, x);
        } else {
            out_f32(run, 1, &one);
            out_f32(run, 1, &one);
        }
    }
    if (c->flags & CASE_SHARD)
        make_shard(&run->args.in[0], 2, x[2] / 3);
}

/* What adam and adam8 have besides: rows of their own, a copy, codes. */
static void build_adam(op_run *run, const op_case *c)
{
    if (c->op == TRI_OP_ADAM || c->op == TRI_OP_ADAM8)
        run->attr.update.own_rows = OP_OWN_ROWS;
    if (c->op == TRI_OP_ADAM8) {
        run->args.in[1].dtype = run->args.out[1].dtype = TRI_Q8S;
        run->args.in[2].dtype = run->args.out[2].dtype = TRI_Q8U;
    }
    if (c->flags & CASE_COPY) {
        in_f32(run, 1, c->size);
        out_f32(run, 1, c->size);
    }
}

/* size: of the statistics, how many are shown. */
static void build_finish(op_run *run, const op_case *c)
{
    const int64_t one = 1, num_shown = c->size[0], sched = OP_STEP_ROWS;
    bool limited = c->attr.finish.limit_row > 0;
    for (int i = 0; i < 3; i++)
        in_f32(run, 1, &one);
    out_f32(run, 1, SIZES(TRI_NUM_RESULT + num_shown));
    if (c->flags & CASE_SCALE) {
        in_scaler(run);
        out_f32(run, 1, SIZES(TRI_NUM_SCALER));
    } else if (num_shown > 0 || limited) {
        in_absent(run);
    }
    for (int64_t i = 0; i < num_shown; i++)
        in_f32(run, 1, &one);
    if (limited)
        in_f32(run, 1, &sched);
}

/* sizes: elements. */
static void build_update(op_run *run, const op_case *c)
{
    const int64_t *n = c->size, sched = OP_STEP_ROWS, result = TRI_NUM_RESULT, one = 1;
    int num_full = 1, num_state = 1;
    switch (c->op) {
    case TRI_OP_SUM_SQUARES:
        in_f32(run, 1, n);
        out_f32(run, 1, &one);
        return;
    case TRI_OP_UNIT_NORM:
        in_f32(run, 1, n);
        out_f32(run, 1, n);
        return;
    case TRI_OP_NARROW:
        in_f32(run, 1, n);
        in_f32(run, 1, n);
        out_f32(run, 1, n);
        return;
    case TRI_OP_FINISH:
        build_finish(run, c);
        return;
    case TRI_OP_FILL:
        out_f32(run, 1, n);
        return;
    case TRI_OP_SGD:
    case TRI_OP_LION:
        num_full = 3;
        num_state = 2;
        break;
    case TRI_OP_ADAM:
    case TRI_OP_ADAM8:
        num_full = 4;
        num_state = 3;
        break;
    case TRI_OP_MOMENTUM:
        num_full = num_state = 2;
        break;
    default:
        num_full = 2;
    }
    for (int i = 0; i < num_full; i++) {
        if (i == 1 && c->op == TRI_OP_SGD && c->flags & CASE_WITHOUT)
            in_absent(run);
        else
            in_f32(run, 1, n);
    }
    if (c->op != TRI_OP_MOMENTUM)
        in_f32(run, 1, &sched);
    in_f32(run, 1, &result);
    for (int i = 0; i < num_state; i++)
        if (i == 0 || !(c->flags & CASE_WITHOUT))
            out_f32(run, 1, n);
    build_adam(run, c);
}

/* sizes: dims of the tensor; the cut is in the attributes. */
static void build_pieces(op_run *run, const op_case *c)
{
    int64_t piece[3] = {c->size[0], c->size[1], c->size[2]};
    if (c->op == TRI_OP_SLICE || c->op == TRI_OP_UNSLICE)
        piece[c->attr.message.cut.dim] =
            tri_cut_size(&c->attr.message.cut, c->attr.message.cut.part);
    in_f32(run, 3, c->op == TRI_OP_UNSLICE ? piece : c->size);
    out_f32(run, 3, c->op == TRI_OP_UNSLICE ? c->size : piece);
    if (c->flags & CASE_I32)
        run->args.in[0].dtype = run->args.out[0].dtype = TRI_I32;
}

/* sizes: B, T, H, K. */
static void build_qkv(op_run *run, const op_case *c)
{
    const int64_t *s = c->size, packed[5] = {s[0], s[1], 3, s[2], s[3]};
    void (*part)(op_run *, int, const int64_t *) = c->op == TRI_OP_SPLIT_QKV ? out_f32 : in_f32;
    (c->op == TRI_OP_SPLIT_QKV ? in_f32 : out_f32)(run, 5, packed);
    for (int p = 0; p < 3; p++)
        part(run, 4, s);
}

/* Counts for so many ranks, of which some are more than there is room for. */
static void build_rooms(op_run *run, const op_case *c)
{
    in_i32(run, 1, c->size);
    tensor_shape(&run->args.out[run->args.num_out++], TRI_I32, 1, c->size);
    out_f32(run, 1, SIZES(1));
}

static void build(op_run *run, const op_case *c)
{
    if (c->op == TRI_OP_SLICE || c->op == TRI_OP_UNSLICE || c->op == TRI_OP_BLOCK ||
        c->op == TRI_OP_UNBLOCK)
        build_pieces(run, c);
    else if (c->op == TRI_OP_FIT_ROOMS)
        build_rooms(run, c);
    else if (c->op == TRI_OP_GATHER_ROWS)
        build_gather(run, c);
    else if (c->op == TRI_OP_MATMUL)
        build_matmul(run, c);
    else if (c->op == TRI_OP_AMAX || c->op == TRI_OP_QUANTISE)
        build_quantise(run, c);
    else if (of_experts(c->op))
        build_experts(run, c);
    else if (c->op < TRI_OP_EMBED)
        build_elementwise(run, c);
    else if (c->op < TRI_OP_LAYERNORM)
        build_lookup(run, c);
    else if (c->op < TRI_OP_ROPE)
        build_norm(run, c);
    else if (c->op == TRI_OP_ROPE)
        build_rope(run, c);
    else if (c->op == TRI_OP_SPLIT_QKV || c->op == TRI_OP_JOIN_QKV)
        build_qkv(run, c);
    else if (c->op == TRI_OP_ATTENTION_MERGE)
        build_merge(run, c);
    else if (is_cached(c))
        build_cache(run, c);
    else if (c->op < TRI_OP_CE_STATS)
        build_attention(run, c);
    else if (c->op < TRI_OP_SUM_SQUARES)
        build_loss(run, c);
    else
        build_update(run, c);
}

/* --- Values --------------------------------------------------------------------------------- */

static void *allocate(op_run *run, size_t bytes)
{
    /* Large operands in huge pages, as in a real run. */
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    size_t total = (bytes + 2 * CANARY_BYTES + align - 1) / align * align;
    unsigned char *block = aligned_alloc(align, total);
    assert(block);
    if (align == HUGE_PAGE)
        madvise(block, total, MADV_HUGEPAGE);
    memset(block, CANARY, total);
    run->blocks[run->num_blocks] = block;
    run->block_bytes[run->num_blocks++] = bytes;
    return block + CANARY_BYTES;
}

static void fill_normal(tri_tensor *t, uint32_t stream, bool repeat)
{
    float *data = t->data;
    int64_t num = repeat && t->count > REPEAT ? REPEAT : t->count;
    tri_random_normal(SEED, 0, (uint64_t)num, 0, stream, data);
    for (int64_t i = num; i < t->count; i++)
        data[i] = data[i - num];
}

/* Rows of the cache in another order than the batch's; positions that go on from where each text
 * is: with a window past the end of the ring, otherwise to the end of it or up to 0. Every second
 * row ends in padding. */
static void fill_places(tri_tensor *t, const op_case *c)
{
    int32_t *to = t->data, num = (int32_t)t->size[t->rank - 1], length = (int32_t)cache_length(c);
    for (int32_t i = 0; t->rank == 3 && i < (int32_t)t->count / 2; i++) { /* spans */
        to[2 * i] = i % 3 == 0 ? length / 3 : 0;
        to[2 * i + 1] = i % 4 == 1 ? length / 2 : 1 << 20;
    }
    for (int32_t i = 0; t->rank == 1 && i < num; i++)
        to[i] = (i + 1) % (num + 1);
    for (int32_t b = 0; t->rank == 2 && b < (int32_t)t->size[0]; b++) {
        int32_t first = c->attr.attention.window > 0 ? 2 * length + 3 * b
                        : b == 0                     ? 0
                                                     : length - num - b + 1;
        for (int32_t i = 0; i < num; i++)
            to[b * num + i] = b % 2 == 1 && i > num / 2 ? -1 : first + i;
    }
}

/* Targets and token ids: now and then ignored (-1), or outside of this shard. */
static void fill_ids(tri_tensor *t, const op_case *c, int input)
{
    int32_t *ids = t->data;
    bool in_row = c->op == TRI_OP_SELECT_ROW || c->op == TRI_OP_SELECT_ROW_GRAD;
    int64_t range = in_row ? c->size[1] : c->size[2];
    bool some_ignored = c->op >= TRI_OP_CE_STATS;
    if (c->op == TRI_OP_DROPOUT || c->op == TRI_OP_JITTER || c->op == TRI_OP_ATTENTION ||
        c->op == TRI_OP_ATTENTION_GRAD)
        range = 1000; /* sample ids, or a step */
    if (c->op == TRI_OP_ROPE)
        range = 131072;
    if (c->op == TRI_OP_FIT_ROOMS)
        range = 3 * c->attr.message.room.rows;
    if (c->flags & CASE_I32)
        range = 1 << 29; /* beyond what a float holds exactly */
    if (is_cached(c)) {
        fill_places(t, c);
        return;
    }
    if (of_experts(c->op)) {
        fill_expert_ids(t, c);
        return;
    }
    if (c->op == TRI_OP_AMAX) {
        fill_sorted(t, c);
        return;
    }
    if (c->op == TRI_OP_QUANTISE)
        range = c->size[0];
    int j = c->op == TRI_OP_ATTENTION_GRAD ? input - 3 : input;
    if (c->op >= TRI_OP_ATTENTION && c->op <= TRI_OP_ATTENTION_GRAD && t->rank >= 2) {
        if (j == TRI_ATTENTION_DOCS)
            fill_docs(t);
        else
            fill_intervals(t, j);
        return;
    }
    if (c->op == TRI_OP_GATHER_ROWS) {
        fill_rows(t, c->size[0] * (c->attr.gather.lead > 1 ? c->size[1] : 1));
        return;
    }
    if (c->flags & CASE_PLACES && t->rank == 2) {
        fill_dealt(t, c->flags & CASE_SHARD);
        return;
    }
    if (c->flags & CASE_SHARD)
        range += range / 3;
    for (int64_t i = 0; i < t->count; i++) {
        uint32_t word = tri_random_word(SEED, (uint64_t)i, 1, 77);
        ids[i] = some_ignored && word % 5 == 0 ? -1 : (int32_t)(word % (uint64_t)range);
    }
    if (t->count > 3) /* equal ids, far apart and side by side */
        ids[t->count - 1] = ids[1] = ids[0];
}

static void fill_constants(tri_tensor *t, const op_case *c)
{
    float *data = t->data;
    if (t->count == TRI_NUM_RESULT) {
        float ok = c->flags & CASE_NOT_OK ? 0 : 1;
        memcpy(data, (float[TRI_NUM_RESULT]){1.5f, 2.0f, 0.37f, ok, 11.0f, 1.0f},
               TRI_NUM_RESULT * sizeof(float));
    } else if (t->count == OP_STEP_ROWS) {
        memcpy(data, (float[OP_STEP_ROWS]){0.01f, NAN, 1.9f, 3.1f, 7.0f},
               OP_STEP_ROWS * sizeof(float));
    } else { /* loss, count, sum of squares */
        data[0] = fabsf(data[0]) * 10;
    }
}

/* Some queries, by what their number is modulo 7. */
static void see_nothing(tri_tensor *lse, int64_t which)
{
    for (int64_t i = 0; i < lse->count; i++)
        if (i % 7 == which || i % 7 == 2)
            ((float *)lse->data)[i] = -INFINITY;
}

/* Numbers become blocks of the tensor's code, over most of their sizes. */
static void encode(tri_tensor *t)
{
    const tri_code *code = tri_dtype_code(t->dtype);
    float *x = malloc((size_t)t->count * sizeof *x);
    assert(x);
    memcpy(x, t->data, (size_t)t->count * sizeof *x);
    for (int64_t i = 0; i < t->count; i++)
        x[i] = (t->dtype == TRI_Q8U ? x[i] * x[i] : x[i]) * exp2f((float)(i % 97) * -0.2f);
    char *to = t->data;
    for (int64_t i = 0; i < t->count; i += code->block, to += code->block_bytes)
        code->encode(x + i, t->count - i < code->block ? t->count - i : code->block, to);
    free(x);
}

/* Second moments are no less than 0. */
static void make_moments(tri_tensor *in, tri_op op)
{
    float *v = in[2].data;
    for (int64_t i = 0; op == TRI_OP_ADAM && i < in[2].count; i++)
        v[i] *= v[i];
    for (int j = 1; op == TRI_OP_ADAM8 && j <= 2; j++)
        encode(&in[j]);
}

/* Gives a gradient's inputs the values that the forward operator computes for them. */
static void derive(op_run *run, const op_case *c)
{
    tri_tensor *in = run->args.in;
    op_run forward = {.attr = run->attr};
    tri_kernel_args *f = &forward.args;
    *f = (tri_kernel_args){.attr = &forward.attr, .overwrite = true, .seed = run->args.seed};
    float *spare = malloc((size_t)(run->args.in[0].count + 3) * sizeof(float));
    assert(spare);
    tri_op op = TRI_NUM_OPS;
    if (c->op == TRI_OP_RMSNORM_GRAD || c->op == TRI_OP_RMSNORM_PARAM_GRAD ||
        c->op == TRI_OP_RMSNORM_GRADS) {
        op = TRI_OP_RMSNORM;
        f->in[0] = in[1];
        f->in[1] = (tri_tensor){.data = (float *)in[1].data}; /* any numbers */
        f->out[0].data = spare;
        f->out[1] = in[c->op == TRI_OP_RMSNORM_PARAM_GRAD ? 2 : 3];
    } else if (c->op == TRI_OP_LAYERNORM_GRAD || c->op == TRI_OP_LAYERNORM_PARAM_GRAD ||
               c->op == TRI_OP_LAYERNORM_GRADS) {
        op = TRI_OP_LAYERNORM;
        f->in[0] = in[1];
        f->in[1] = f->in[2] = (tri_tensor){.data = (float *)in[1].data}; /* any numbers */
        f->out[0].data = spare;
        f->out[1] = in[c->op == TRI_OP_LAYERNORM_PARAM_GRAD ? 2 : 3];
    } else if (c->op == TRI_OP_ATTENTION_GRAD) {
        op = TRI_OP_ATTENTION;
        memcpy(f->in, in + 1, 3 * sizeof *in);
        memcpy(f->in + 3, in + 6, (TRI_NUM_ATTENTION_IN - 3) * sizeof *in);
        f->out[0] = in[4];
        f->out[1] = in[5];
    } else if (c->op == TRI_OP_ATTENTION_MERGE) { /* here, there, in both */
        see_nothing(&in[1], 0);
        see_nothing(&in[3], 1);
    } else if (c->op == TRI_OP_CE_GRAD) {
        float *lse = in[2].data;
        for (int64_t i = 0; i < in[2].count; i++) {
            double sum = 0;
            for (int64_t v = 0; v < c->size[2]; v++)
                sum += exp(((float *)in[0].data)[i * c->size[2] + v]);
            lse[i] = (float)log(sum);
        }
    } else if (c->op == TRI_OP_CE_LOSS) {
        float *stats = in[0].data;
        for (int64_t i = 0; i < in[0].count / 3; i++) {
            stats[i * 3 + 1] = 1 + fabsf(stats[i * 3 + 1]); /* a sum with exp(0) in it */
            stats[i * 3] += 4;                              /* above the target's, but for some */
            if (i % 3 == 1)
                stats[i * 3 + 2] = stats[i * 3];
        }
    } else if (c->op == TRI_OP_QUANTISE) {
        op = TRI_OP_AMAX;
        f->in[0] = in[0];
        f->out[0] = in[1];
        ((float *)in[0].data)[in[0].count / 2] *= 37; /* so that most are far from the largest */
    }
    make_moments(in, c->op);
    derive_experts(run, c);
    if (op != TRI_NUM_OPS)
        op_run_kernel(&forward, tri_cpu_reference(op), NULL, TRI_ISA_BASE);
    free(spare);
}

/* What an operator must not read, the attributes of other families, is no number and no bool. */
static void poison_others(tri_op op, tri_attr *attr)
{
    tri_attr ones, own;
    memset(&ones, 0xff, sizeof ones);
    own = tri_attr_of(op, &ones);
    for (size_t i = 0; i < sizeof own; i++)
        if (((unsigned char *)&own)[i] == 0)
            ((unsigned char *)attr)[i] = 0xff;
}

void op_run_init(op_run *run, const op_case *c, const op_alias *alias)
{
    *run = (op_run){.attr = c->attr};
    tri_kernel_args *args = &run->args;
    args->attr = &run->attr;
    args->overwrite = !(c->flags & CASE_ACCUMULATE);
    args->seed = SEED * 3ull << 20;
    build(run, c);
    for (int i = 0; i < args->num_in; i++) {
        tri_tensor *t = &args->in[i];
        if (t->count == 0)
            continue;
        t->data = allocate(run, (size_t)t->count * 4);
        if (t->dtype == TRI_I32) {
            fill_ids(t, c, i);
            continue;
        }
        fill_normal(t, (uint32_t)(100 + i), c->flags & CASE_REPEAT);
        if (c->op >= TRI_OP_FINISH && t->count <= TRI_NUM_RESULT && c->op != TRI_OP_UNIT_NORM)
            fill_constants(t, c);
    }
    derive(run, c);
    poison_others(c->op, &run->attr);
    if (c->flags & CASE_SCALE)
        memcpy(args->in[c->op == TRI_OP_FINISH ? 3 : args->num_in - 1].data,
               (float[TRI_NUM_SCALER]){1024, 2}, TRI_NUM_SCALER * sizeof(float));
    if (c->flags & CASE_OVERFLOW)
        *(float *)args->in[2].data = INFINITY;
    op_alias must[OP_MAX_ALIAS];
    int num_must = op_must_alias(c, must);
    for (int o = 0; o < args->num_out; o++) {
        tri_tensor *t = &args->out[o];
        const op_alias *taken = NULL;
        for (int i = 0; i < num_must; i++)
            taken = must[i].out == o ? &must[i] : taken;
        if (taken)
            t->data = args->in[taken->in].data;
        else if (alias && alias->out == o)
            t->data = args->in[alias->in].data;
        else
            t->data = memset(allocate(run, (size_t)t->count * 4), UNWRITTEN, (size_t)t->count * 4);
        if (taken || (alias && alias->out == o) || !(c->flags & CASE_ACCUMULATE))
            continue;
        if (c->flags & CASE_I32)
            fill_ids(t, c, 0);
        else
            fill_normal(t, (uint32_t)(200 + o), c->flags & CASE_REPEAT);
    }
}

void op_run_fini(op_run *run)
{
    for (int i = 0; i < run->num_blocks; i++)
        free(run->blocks[i]);
    *run = (op_run){0};
}

bool op_run_canaries_intact(const op_run *run)
{
    for (int i = 0; i < run->num_blocks; i++) {
        const unsigned char *before = run->blocks[i];
        const unsigned char *after = before + CANARY_BYTES + run->block_bytes[i];
        for (int b = 0; b < CANARY_BYTES; b++)
            if (before[b] != CANARY || after[b] != CANARY)
                return false;
    }
    return true;
}

void op_run_kernel(op_run *run, const tri_kernel *kernel, tri_pool *pool, tri_isa isa)
{
    tri_kernel_args sizes = run->args;
    tri_cpu cpu = {.pool = pool, .isa = isa};
    for (int i = 0; i < TRI_MAX_IN; i++)
        sizes.in[i].data = NULL;
    for (int i = 0; i < TRI_MAX_OUT; i++)
        sizes.out[i].data = NULL;
    sizes.device = &cpu;
    run->args.attr = &run->attr;
    if (kernel->scratch_bytes)
        cpu.scratch_bytes = kernel->scratch_bytes(&sizes, pool ? tri_pool_threads(pool) : 1);
    if (cpu.scratch_bytes)
        cpu.scratch = aligned_alloc(64, (cpu.scratch_bytes + 63) / 64 * 64);
    run->args.device = &cpu;
    kernel->run(&run->args);
    run->args.device = NULL;
    free(cpu.scratch);
}
