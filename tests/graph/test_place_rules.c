/* Placement rules of attention by places: what goes with heads, what with rows of the batch; and
 * of what goes by the places of tokens beside it. The rules of plain layouts are seen in every
 * listing; these operands are in none yet. */
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
static void ask(tri_op op, bool cached, const tri_shape *shapes, int num_in, int num_out,
                const int *first, int num_first, const int *want_in, const int *want_out)
{
    tri_node node = {.op = op, .num_in = (uint8_t)num_in, .num_out = (uint8_t)num_out};
    node.attr.attention.cached = cached;
    tri_spot in[TRI_MAX_IN] = {0}, out[TRI_MAX_OUT] = {0};
    for (int j = 0; j < num_first; j++)
        in[j] = spot_of(first[j]);
    tri_op_get(op)->place(&node, shapes, in, out);
    expect_spots(in, want_in, num_in, "input");
    expect_spots(out, want_out, num_out, "output");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),  cmocka_unit_test(test_cached),
        cmocka_unit_test(test_backward), cmocka_unit_test(test_merge),
        cmocka_unit_test(test_dropout),  cmocka_unit_test(test_select_row),
        cmocka_unit_test(test_qkv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
