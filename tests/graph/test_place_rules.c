/* Placement rules of attention by places: what goes with heads, what with rows of the batch; of
 * what goes by the places of tokens beside it; and of routers and experts. The rules of plain
 * layouts are seen in every listing; these operands are in none yet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "graph/op_table.h"

enum { WHOLE = -1, TERMS = -2 }; /* otherwise the dim that is cut */

static tri_spot spot_of(int what)
{
    return what == WHOLE   ? (tri_spot){TRI_SPOT_WHOLE, 0}
           : what == TERMS ? (tri_spot){TRI_SPOT_TERMS, 0}
                           : (tri_spot){TRI_SPOT_CUT, what};
}

static void expect_spots(const tri_spot *got, const int *want, int num, const char *what)
{
    for (int i = 0; i < num; i++) {
        tri_spot right = spot_of(want[i]);
        if (got[i].kind != right.kind || (right.kind == TRI_SPOT_CUT && got[i].dim != right.dim))
            fail_msg("%s %d is %d at %d, not %d", what, i, (int)got[i].kind, got[i].dim, want[i]);
    }
}

#define DIM(name, size)                                                                            \
    {                                                                                              \
        TRI_DIM_##name, size                                                                       \
    }
static const tri_shape q = {4, {DIM(B, 4), DIM(T, 6), DIM(H, 4), DIM(K, 8)}};
static const tri_shape kv = {4, {DIM(B, 4), DIM(T, 9), DIM(G, 2), DIM(K, 8)}};
static const tri_shape cache = {4, {DIM(B, 4), DIM(G, 2), DIM(P, 9), DIM(K, 8)}};
static const tri_shape lse = {3, {DIM(B, 4), DIM(H, 4), DIM(T, 6)}};
static const tri_shape rows = {1, {DIM(B, 4)}}, one = {1, {DIM(N, 1)}}, heads = {1, {DIM(H, 4)}};
static const tri_shape span = {3, {DIM(B, 4), DIM(T, 6), DIM(N, 2)}};
static const tri_shape places = {2, {DIM(B, 4), DIM(T, 6)}}, none = {.rank = -1};

/* Asks the rule about inputs of which the first ones lie as given, and the rest are whole. */
static void ask_with(tri_op op, tri_attr attr, const tri_shape *shapes, int num_in, int num_out,
                     const int *first, int num_first, const int *want_in, const int *want_out)
{
    tri_node node = {
        .op = op, .num_in = (uint8_t)num_in, .num_out = (uint8_t)num_out, .attr = attr};
    tri_spot in[TRI_MAX_IN] = {0}, out[TRI_MAX_OUT] = {0};
    for (int j = 0; j < num_first; j++)
        in[j] = spot_of(first[j]);
    tri_op_get(op)->place(&node, shapes, in, out);
    expect_spots(in, want_in, num_in, "input");
    expect_spots(out, want_out, num_out, "output");
}

static void ask(tri_op op, bool cached, const tri_shape *shapes, int num_in, int num_out,
                const int *first, int num_first, const int *want_in, const int *want_out)
{
    ask_with(op, (tri_attr){.attention = {.cached = cached}}, shapes, num_in, num_out, first,
             num_first, want_in, want_out);
}

#define LIST(...)                                                                                  \
    (const int[])                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void test_forward(void **state)
{
    (void)state;
    const tri_shape in[] = {q, kv, kv, rows, one, none, span, places, places, heads};
    ask(TRI_OP_ATTENTION, false, in, 10, 2, LIST(2, 2, 2), 3,
        LIST(2, 2, 2, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, 0), LIST(2, 1));
    ask(TRI_OP_ATTENTION, false, in, 10, 2, LIST(0, 0, 0), 3,
        LIST(0, 0, 0, 0, WHOLE, WHOLE, 0, 0, 0, WHOLE), LIST(0, 0));
    /* queries stay where they are, and see all keys */
    ask(TRI_OP_ATTENTION, false, in, 10, 2, LIST(1, 1, 1), 3,
        LIST(1, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, 1, 1, WHOLE, WHOLE), LIST(1, 2));
    /* but without places tokens are made whole */
    ask(TRI_OP_ATTENTION, false, in, 6, 2, LIST(1, 1, 1), 3,
        LIST(WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE), LIST(WHOLE, WHOLE));
    /* several ranks share a key head */
    ask(TRI_OP_ATTENTION, false, in, 10, 2, LIST(2, WHOLE, WHOLE), 3,
        LIST(2, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, 0), LIST(2, 1));
}

static void test_cached(void **state)
{
    (void)state;
    const tri_shape in[] = {q, cache, cache, rows, one, none, span, places, none, heads};
    ask(TRI_OP_ATTENTION, true, in, 10, 2, LIST(2, 1, 1), 3,
        LIST(2, 1, 1, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, 0), LIST(2, 1));
    ask(TRI_OP_ATTENTION, true, in, 10, 2, LIST(0, 0, 0), 3,
        LIST(0, 0, 0, 0, WHOLE, WHOLE, 0, 0, WHOLE, WHOLE), LIST(0, 0));
}

static void test_backward(void **state)
{
    (void)state;
    const tri_shape in[] = {q, q, kv, kv, q, lse, rows, one, none, span, places, places, heads};
    ask(TRI_OP_ATTENTION_GRAD, false, in, 13, 4, LIST(2, 2, 2, 2, 2, 1), 6,
        LIST(2, 2, 2, 2, 2, 1, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, 0), LIST(2, 2, 2, 0));
    /* of its own rows, a rank has a term of the sinks' gradient */
    ask(TRI_OP_ATTENTION_GRAD, false, in, 13, 4, LIST(0, 0, 0, 0, 0, 0), 6,
        LIST(0, 0, 0, 0, 0, 0, 0, WHOLE, WHOLE, 0, 0, 0, WHOLE), LIST(0, 0, 0, TERMS));
    /* of all keys, what its queries give them */
    ask(TRI_OP_ATTENTION_GRAD, false, in, 13, 4, LIST(1, 1, 1, 1, 1, 2), 6,
        LIST(1, 1, WHOLE, WHOLE, 1, 2, WHOLE, WHOLE, WHOLE, 1, 1, WHOLE, WHOLE),
        LIST(1, TERMS, TERMS, TERMS));
    /* and of keys that it shares, one of theirs */
    ask(TRI_OP_ATTENTION_GRAD, false, in, 13, 4, LIST(2, 2, WHOLE, WHOLE, 2, 1), 6,
        LIST(2, 2, WHOLE, WHOLE, 2, 1, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, 0),
        LIST(2, TERMS, TERMS, 0));
}

static void test_merge(void **state)
{
    (void)state;
    const tri_shape in[] = {q, lse, q, lse};
    ask(TRI_OP_ATTENTION_MERGE, false, in, 4, 2, LIST(2), 1, LIST(2, 1, 2, 1), LIST(2, 1));
    ask(TRI_OP_ATTENTION_MERGE, false, in, 4, 2, LIST(1), 1, LIST(1, 2, 1, 2), LIST(1, 2));
    ask(TRI_OP_ATTENTION_MERGE, false, in, 4, 2, LIST(3), 1, LIST(3, WHOLE, 3, WHOLE),
        LIST(3, WHOLE));
}

static const tri_shape stream = {3, {DIM(B, 4), DIM(T, 6), DIM(D, 8)}};
static const tri_shape of_tokens = {2, {DIM(B, 4), DIM(P, 6)}};
static const tri_shape picked = {2, {DIM(B, 4), DIM(D, 8)}};

/* Places go with their tokens. */
static void test_dropout(void **state)
{
    (void)state;
    const tri_shape in[] = {stream, rows, one, of_tokens};
    ask(TRI_OP_DROPOUT, false, in, 4, 1, LIST(1), 1, LIST(1, WHOLE, WHOLE, 1), LIST(1));
    ask(TRI_OP_DROPOUT, false, in, 4, 1, LIST(0), 1, LIST(0, 0, WHOLE, 0), LIST(0));
    ask(TRI_OP_DROPOUT, false, in, 4, 1, LIST(2), 1, LIST(2, WHOLE, WHOLE, WHOLE), LIST(2));
}

/* The rank that has the token has the row: of the others it is zeros. */
static void test_select_row(void **state)
{
    (void)state;
    const tri_shape in[] = {stream, rows, of_tokens};
    ask(TRI_OP_SELECT_ROW, false, in, 3, 1, LIST(1), 1, LIST(1, WHOLE, 1), LIST(TERMS));
    ask(TRI_OP_SELECT_ROW, false, in, 3, 1, LIST(0), 1, LIST(0, 0, 0), LIST(0));
    ask(TRI_OP_SELECT_ROW, false, in, 3, 1, LIST(WHOLE, WHOLE, 1), 3, LIST(WHOLE, WHOLE, WHOLE),
        LIST(WHOLE));
    ask(TRI_OP_SELECT_ROW, false, in, 2, 1, LIST(1), 1, LIST(WHOLE, WHOLE), LIST(WHOLE));
    const tri_shape back[] = {picked, rows, stream, of_tokens};
    ask(TRI_OP_SELECT_ROW_GRAD, false, back, 4, 1, LIST(WHOLE, WHOLE, 1), 3,
        LIST(WHOLE, WHOLE, 1, 1), LIST(1));
    ask(TRI_OP_SELECT_ROW_GRAD, false, back, 4, 1, LIST(0), 1, LIST(0, 0, 0, 0), LIST(0));
    ask(TRI_OP_SELECT_ROW_GRAD, false, back, 3, 1, LIST(WHOLE, WHOLE, 1), 3,
        LIST(WHOLE, WHOLE, WHOLE), LIST(WHOLE));
}

static const tri_shape packed = {5, {DIM(B, 4), DIM(T, 6), DIM(QKV, 3), DIM(H, 4), DIM(K, 8)}};

/* All dims but that of the three pass, both ways. */
static void test_qkv(void **state)
{
    (void)state;
    static const int dims[][2] = {{0, 0}, {1, 1}, {3, 2}, {4, 3}};
    const tri_shape parts[] = {q, q, q};
    for (int i = 0; i < 4; i++) {
        int of_packed = dims[i][0], part = dims[i][1];
        ask(TRI_OP_SPLIT_QKV, false, &packed, 1, 3, LIST(of_packed), 1, LIST(of_packed),
            LIST(part, part, part));
        ask(TRI_OP_JOIN_QKV, false, parts, 3, 1, LIST(WHOLE, part), 2, LIST(part, part, part),
            LIST(of_packed));
    }
    ask(TRI_OP_SPLIT_QKV, false, &packed, 1, 3, LIST(2), 1, LIST(WHOLE), LIST(WHOLE, WHOLE, WHOLE));
    ask(TRI_OP_JOIN_QKV, false, parts, 3, 1, LIST(WHOLE), 1, LIST(WHOLE, WHOLE, WHOLE),
        LIST(WHOLE));
}

static const tri_shape logits = {3, {DIM(B, 4), DIM(T, 6), DIM(E, 8)}};
static const tri_shape choice = {3, {DIM(B, 4), DIM(T, 6), DIM(C, 2)}};
static const tri_shape sorted_d = {4, {DIM(B, 4), DIM(T, 6), DIM(C, 2), DIM(D, 8)}};
static const tri_shape sorted_f = {4, {DIM(B, 4), DIM(T, 6), DIM(C, 2), DIM(F, 4)}};
static const tri_shape matrices = {3, {DIM(E, 8), DIM(F, 4), DIM(D, 8)}};
static const tri_shape by_row = {3, {DIM(B, 4), DIM(E, 8), DIM(STAT, 3)}};
static const tri_shape by_all = {2, {DIM(E, 8), DIM(STAT, 3)}};

/* Tokens that lie apart have an index of their own; a row's width passes. */
static void test_gather_rows(void **state)
{
    (void)state;
    const tri_shape there[] = {stream, choice, choice}, back[] = {sorted_d, choice, choice};
    const tri_attr each = {.gather = {.lead = 2, .each = true}}, sum = {.gather = {.lead = 3}};
    for (int d = 0; d < 2; d++) {
        ask_with(TRI_OP_GATHER_ROWS, each, there, 3, 1, LIST(d, d, d), 3, LIST(d, d, d), LIST(d));
        ask_with(TRI_OP_GATHER_ROWS, sum, back, 3, 1, LIST(d, d, d), 3, LIST(d, d, d), LIST(d));
        /* the index decides */
        ask_with(TRI_OP_GATHER_ROWS, each, there, 3, 1, LIST(d), 1, LIST(WHOLE, WHOLE, WHOLE),
                 LIST(WHOLE));
    }
    ask_with(TRI_OP_GATHER_ROWS, each, there, 3, 1, LIST(2), 1, LIST(2, WHOLE, WHOLE), LIST(3));
    ask_with(TRI_OP_GATHER_ROWS, sum, back, 3, 1, LIST(3), 1, LIST(3, WHOLE, WHOLE), LIST(2));
}

/* Rows through all experts, or their matrices cut as those of any product. */
static void test_grouped(void **state)
{
    (void)state;
    const tri_shape in[] = {sorted_d, matrices, choice}, of_back[] = {sorted_f, matrices, choice};
    const tri_attr none = {.grouped = {.back = false}}, back = {.grouped = {.back = true}};
    for (int d = 0; d < 3; d++) {
        ask_with(TRI_OP_GROUPED, none, in, 3, 1, LIST(d), 1, LIST(d, WHOLE, d), LIST(d));
        ask_with(TRI_OP_GROUPED, none, in, 3, 1, LIST(d, 2), 2, LIST(d, WHOLE, d), LIST(d));
        ask_with(TRI_OP_GROUPED, none, in, 3, 1, LIST(d, 0), 2, LIST(d, 0, d), LIST(d));
    }
    ask_with(TRI_OP_GROUPED, none, in, 3, 1, LIST(WHOLE, 1), 2, LIST(WHOLE, 1, WHOLE), LIST(3));
    ask_with(TRI_OP_GROUPED, none, in, 3, 1, LIST(3, 2), 2, LIST(3, 2, WHOLE), LIST(TERMS));
    ask_with(TRI_OP_GROUPED, none, in, 3, 1, LIST(3), 1, LIST(WHOLE, WHOLE, WHOLE), LIST(WHOLE));
    ask_with(TRI_OP_GROUPED, back, of_back, 3, 1, LIST(3, 1), 2, LIST(3, 1, WHOLE), LIST(TERMS));
    ask_with(TRI_OP_GROUPED, back, of_back, 3, 1, LIST(WHOLE, 2), 2, LIST(WHOLE, 2, WHOLE),
             LIST(3));
}

static void test_grouped_grad(void **state)
{
    (void)state;
    const tri_shape in[] = {sorted_f, sorted_d, choice, matrices};
    const tri_attr none = {.lookup = {.table = matrices}};
    for (int d = 0; d < 3; d++) {
        ask_with(TRI_OP_GROUPED_GRAD, none, in, 4, 1, LIST(d, d), 2, LIST(d, d, d, WHOLE),
                 LIST(TERMS));
        ask_with(TRI_OP_GROUPED_GRAD, none, in, 4, 1, LIST(d, WHOLE), 2, LIST(d, d, d, WHOLE),
                 LIST(TERMS));
        /* where experts lie apart, a rank has all rows of its own */
        ask_with(TRI_OP_GROUPED_GRAD, none, in, 4, 1, LIST(d, d, d, 0), 4, LIST(d, d, d, 0),
                 LIST(0));
    }
    ask_with(TRI_OP_GROUPED_GRAD, none, in, 4, 1, LIST(3), 1, LIST(3, WHOLE, WHOLE, 1), LIST(1));
    ask_with(TRI_OP_GROUPED_GRAD, none, in, 4, 1, LIST(WHOLE, 3), 2, LIST(WHOLE, 3, WHOLE, 2),
             LIST(2));
}

/* Of a part of a row, the gradient of its weight is a term. */
static void test_swiglu_rows(void **state)
{
    (void)state;
    const tri_shape in[] = {sorted_f, sorted_f, sorted_f, choice};
    const tri_shape forward[] = {sorted_f, sorted_f, choice};
    for (int d = 0; d < 3; d++) {
        ask(TRI_OP_SWIGLU_ROWS, false, forward, 3, 1, LIST(d), 1, LIST(d, d, d), LIST(d));
        ask(TRI_OP_SWIGLU_ROWS_GRAD, false, in, 4, 3, LIST(d), 1, LIST(d, d, d, d), LIST(d, d, d));
    }
    ask(TRI_OP_SWIGLU_ROWS, false, forward, 3, 1, LIST(3), 1, LIST(3, 3, WHOLE), LIST(3));
    ask(TRI_OP_SWIGLU_ROWS_GRAD, false, in, 4, 3, LIST(3), 1, LIST(3, 3, 3, WHOLE),
        LIST(3, 3, TERMS));
}

/* What is summed over tokens is terms; but rows that lie apart have their own sums. */
static void test_balance(void **state)
{
    (void)state;
    const tri_shape in[] = {logits, choice, places}, back[] = {logits, places, by_row, one};
    const tri_shape of_all[] = {logits, places, by_all, one};
    const tri_attr rows_alone = {.route = {.choices = 2}};
    const tri_attr all = {.route = {.choices = 2, .whole = true}};
    ask_with(TRI_OP_ROUTE_SUMS, rows_alone, in, 3, 4, LIST(0), 1, LIST(0, 0, 0),
             LIST(0, TERMS, TERMS, TERMS));
    ask_with(TRI_OP_ROUTE_SUMS, rows_alone, in, 3, 4, LIST(1), 1, LIST(1, 1, 1),
             LIST(TERMS, TERMS, TERMS, TERMS));
    ask_with(TRI_OP_ROUTE_SUMS, rows_alone, in, 3, 4, LIST(2), 1, LIST(WHOLE, WHOLE, WHOLE),
             LIST(WHOLE, WHOLE, WHOLE, WHOLE));
    for (int d = 0; d < 2; d++)
        ask_with(TRI_OP_ROUTE_SUMS, all, in, 3, 4, LIST(d), 1, LIST(d, d, d),
                 LIST(TERMS, TERMS, TERMS, TERMS));
    ask_with(TRI_OP_ROUTE_SUMS_GRAD, rows_alone, back, 4, 1, LIST(0), 1, LIST(0, 0, 0, WHOLE),
             LIST(0));
    ask_with(TRI_OP_ROUTE_SUMS_GRAD, rows_alone, back, 4, 1, LIST(1), 1, LIST(1, 1, WHOLE, WHOLE),
             LIST(1));
    ask_with(TRI_OP_ROUTE_SUMS_GRAD, all, of_all, 4, 1, LIST(0), 1, LIST(0, 0, WHOLE, WHOLE),
             LIST(0));
    ask_with(TRI_OP_BALANCE, rows_alone, &by_row, 1, 1, LIST(0), 1, LIST(0), LIST(TERMS));
    ask_with(TRI_OP_BALANCE, rows_alone, &by_row, 1, 1, LIST(1), 1, LIST(WHOLE), LIST(WHOLE));
    ask_with(TRI_OP_BALANCE, all, &by_all, 1, 1, LIST(0), 1, LIST(WHOLE), LIST(WHOLE));
    const tri_shape scaled[] = {by_row, one};
    ask_with(TRI_OP_BALANCE_GRAD, rows_alone, scaled, 2, 1, LIST(0), 1, LIST(0, WHOLE), LIST(0));
}

/* A norm over all heads: rows stay where they are, with their statistics, and heads are put
 * together; its gain is whole. Over each head alone, heads are rows too. */
static void test_norm_of_heads(void **state)
{
    (void)state;
    const tri_shape gain = {2, {DIM(H, 4), DIM(K, 8)}}, each = {1, {DIM(K, 8)}};
    const tri_shape rstd = {3, {DIM(B, 4), DIM(T, 6), DIM(STAT, 1)}};
    const tri_shape rstds = {4, {DIM(B, 4), DIM(T, 6), DIM(H, 4), DIM(STAT, 1)}};
    const tri_attr all = {.norm = {.dims = 2}}, one_by_one = {.norm = {.dims = 1}};
    const tri_shape in[] = {q, gain}, back[] = {q, q, gain, rstd}, sums[] = {q, q, rstd};
    for (int d = 0; d < 2; d++) {
        ask_with(TRI_OP_RMSNORM, all, in, 2, 2, LIST(d), 1, LIST(d, WHOLE), LIST(d, d));
        ask_with(TRI_OP_RMSNORM_GRAD, all, back, 4, 1, LIST(WHOLE, WHOLE, WHOLE, d), 4,
                 LIST(d, d, WHOLE, d), LIST(d));
        ask_with(TRI_OP_RMSNORM_PARAM_GRAD, all, sums, 3, 1, LIST(d, d, d), 3, LIST(d, d, d),
                 LIST(TERMS));
    }
    for (int d = 2; d < 4; d++) {
        ask_with(TRI_OP_RMSNORM, all, in, 2, 2, LIST(d, d - 2), 2, LIST(WHOLE, WHOLE),
                 LIST(WHOLE, WHOLE));
        ask_with(TRI_OP_RMSNORM_GRAD, all, back, 4, 1, LIST(d, d), 2,
                 LIST(WHOLE, WHOLE, WHOLE, WHOLE), LIST(WHOLE));
        ask_with(TRI_OP_RMSNORM_PARAM_GRAD, all, sums, 3, 1, LIST(d, d), 2,
                 LIST(WHOLE, WHOLE, WHOLE), LIST(WHOLE));
    }
    const tri_shape apart[] = {q, each}, apart_sums[] = {q, q, rstds};
    ask_with(TRI_OP_RMSNORM, one_by_one, apart, 2, 2, LIST(2), 1, LIST(2, WHOLE), LIST(2, 2));
    ask_with(TRI_OP_RMSNORM_PARAM_GRAD, one_by_one, apart_sums, 3, 1, LIST(2, 2, 2), 3,
             LIST(2, 2, 2), LIST(TERMS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),       cmocka_unit_test(test_cached),
        cmocka_unit_test(test_backward),      cmocka_unit_test(test_merge),
        cmocka_unit_test(test_dropout),       cmocka_unit_test(test_select_row),
        cmocka_unit_test(test_qkv),           cmocka_unit_test(test_gather_rows),
        cmocka_unit_test(test_grouped),       cmocka_unit_test(test_grouped_grad),
        cmocka_unit_test(test_swiglu_rows),   cmocka_unit_test(test_balance),
        cmocka_unit_test(test_norm_of_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
