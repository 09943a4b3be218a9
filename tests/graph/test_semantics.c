/* What operators mean, apart from how a kernel computes it: known values, and identities that hold
 * for the reference and for every fast kernel. (test_kernels compares kernels with the reference;
 * a mistake that all of them share shows here.) */
#include "op_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/rope.h"

/* Number of ways to run an operator: the reference, then each instruction set. */
static int num_kernels(void)
{
    return 2 + (int)tri_isa_detect();
}

static void run_with(op_run *run, tri_op op, int which)
{
    tri_isa isa = which == 0 ? TRI_ISA_BASE : (tri_isa)(which - 1);
    const tri_kernel *fast = which == 0 ? NULL : tri_cpu_fast(op, isa);
    op_run_kernel(run, fast ? fast : tri_cpu_reference(op), NULL, isa);
}

static void expect_near(const float *got, const float *want, int64_t count, const char *what)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5f))
            fail_msg("%s: [%ld] is %.9g, not %.9g", what, (long)i, got[i], want[i]);
}

/* Pairs (i, i + K/2) turn, not neighbours; and a large position keeps its angle. */
static void test_rope_of_known_angles(void **state)
{
    (void)state;
    static const op_case c = {
        "known", TRI_OP_ROPE, {1, 2, 1, 4}, {.rope = {.config = {.theta = 10000}}}, 0, 0};
    for (int which = 0; which < num_kernels(); which++) {
        op_run run;
        op_run_init(&run, &c, NULL);
        memcpy(run.args.in[0].data, (float[]){1, 0, 0, 1, 1, 2, 3, 4}, 8 * sizeof(float));
        memcpy(run.args.in[1].data, (int32_t[]){100000, 0}, 2 * sizeof(int32_t));
        run_with(&run, c.op, which);
        /* cos and sin of 100000 and of 1000; position 0 changes nothing */
        static const float want[] = {
            -0.99936080f, -0.82687954f, 0.03574880f, 0.56237908f, 1, 2, 3, 4};
        expect_near(run.args.out[0].data, want, 8, "rope");
        op_run_fini(&run);
    }
}

/* Llama 3.1 8B, from the formula of its authors: high frequencies stay, low ones are divided by 8,
 * those between are blended. */
static void test_llama3_frequencies(void **state)
{
    (void)state;
    const tri_rope_config rope = {.theta = 500000,
                                  .factor = 8,
                                  .low_freq_factor = 1,
                                  .high_freq_factor = 4,
                                  .original_max_position = 8192};
    static const struct {
        int64_t i;
        double frequency;
    } rows[] = {{0, 1},
                {20, 0.016560440080994446},
                {30, 0.0013718935677611381},
                {34, 0.00017850781276799641},
                {63, 3.0689259889145111e-07}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        assert_true(fabs(tri_rope_frequency(&rope, 128, rows[r].i) / rows[r].frequency - 1) <
                    1e-12);
}

/* Copies head g of [B, T, G, K] to each head of its group. */
static void repeat_heads(const tri_tensor *from, tri_tensor *to)
{
    int64_t key_heads = from->size[2], heads = to->size[2], width = from->size[3];
    for (int64_t row = 0; row < from->size[0] * from->size[1]; row++)
        for (int64_t h = 0; h < heads; h++)
            memcpy((float *)to->data + (row * heads + h) * width,
                   (float *)from->data + (row * key_heads + h / (heads / key_heads)) * width,
                   (size_t)width * sizeof(float));
}

static void test_groups_are_repeated_key_heads(void **state)
{
    (void)state;
    const op_case grouped = {"grouped",
                             TRI_OP_ATTENTION,
                             {2, 37, 6, 5, 2},
                             {.attention = {.alpha = 0.4f, .causal = true}},
                             0,
                             0};
    op_case plain = grouped;
    plain.size[4] = 6;
    for (int which = 0; which < num_kernels(); which++) {
        op_run a, b;
        op_run_init(&a, &grouped, NULL);
        op_run_init(&b, &plain, NULL);
        memcpy(b.args.in[0].data, a.args.in[0].data, (size_t)a.args.in[0].count * sizeof(float));
        repeat_heads(&a.args.in[1], &b.args.in[1]);
        repeat_heads(&a.args.in[2], &b.args.in[2]);
        run_with(&a, grouped.op, which);
        run_with(&b, plain.op, which);
        for (int o = 0; o < 2; o++)
            expect_near(a.args.out[o].data, b.args.out[o].data, a.args.out[o].count, "grouped");
        op_run_fini(&a);
        op_run_fini(&b);
    }
}

enum { FIRST = 70, SECOND = 41, PADDING = 29 };

/* A row of two documents and padding gives what each document gives alone. */
static void test_documents_are_apart(void **state)
{
    (void)state;
    enum { WIDTH = 3 * 2 * 5, OUT = 2 * 5, ALL = FIRST + SECOND + PADDING };
    op_case c = {"all", TRI_OP_ATTENTION, {1, ALL, 2, 5}, {.attention = {.alpha = 0.4f}}, CASE_DOCS,
                 0};
    for (int which = 0; which < 2 * num_kernels(); which++) {
        op_run all;
        c.attr.attention.causal = which & 1;
        op_run_init(&all, &c, NULL);
        int32_t *docs = all.args.in[5].data;
        for (int i = 0; i < ALL; i++)
            docs[i] = i < FIRST ? 3 : i < FIRST + SECOND ? 7 : -1;
        run_with(&all, c.op, which / 2);
        const float *o = all.args.out[0].data, *lse = all.args.out[1].data;
        for (int d = 0; d < 2; d++) {
            op_run one;
            op_case alone = c;
            int begin = d ? FIRST : 0, num = d ? SECOND : FIRST;
            alone.size[1] = num;
            alone.flags = 0;
            op_run_init(&one, &alone, NULL);
            memcpy(one.args.in[0].data, (float *)all.args.in[0].data + begin * WIDTH,
                   (size_t)(num * WIDTH) * sizeof(float));
            run_with(&one, c.op, which / 2);
            expect_near(o + begin * OUT, one.args.out[0].data, num * OUT, "a document");
            for (int h = 0; h < 2; h++)
                expect_near(lse + h * ALL + begin, (float *)one.args.out[1].data + h * num, num,
                            "lse of a document");
            op_run_fini(&one);
        }
        for (int i = (FIRST + SECOND) * OUT; i < ALL * OUT; i++)
            assert_true(o[i] == 0);
        for (int i = FIRST + SECOND; i < ALL; i++)
            assert_true(lse[i] == -INFINITY && lse[ALL + i] == -INFINITY);
        op_run_fini(&all);
    }
}

/* A row that is all padding passes no gradient, and no NaN. */
static void test_padding_has_no_gradient(void **state)
{
    (void)state;
    static const op_case c = {"padding",        TRI_OP_ATTENTION_GRAD,
                              {1, 40, 4, 5, 2}, {.attention = {.alpha = 0.4f}},
                              CASE_DOCS,        0};
    for (int which = 0; which < num_kernels(); which++) {
        op_run run;
        op_run_init(&run, &c, NULL);
        int32_t *docs = run.args.in[8].data;
        float *o = run.args.in[4].data, *lse = run.args.in[5].data;
        for (int i = 0; i < 40; i++)
            docs[i] = -1;
        memset(o, 0, (size_t)run.args.in[4].count * sizeof(float));
        for (int64_t i = 0; i < run.args.in[5].count; i++)
            lse[i] = -INFINITY;
        run_with(&run, c.op, which);
        for (int k = 0; k < 3; k++)
            for (int64_t i = 0; i < run.args.out[k].count; i++)
                assert_true(((float *)run.args.out[k].data)[i] == 0);
        op_run_fini(&run);
    }
}

/* A window of one looks at itself alone: o = v. A wide one changes nothing. */
static void test_windows(void **state)
{
    (void)state;
    op_case c = {"plain",
                 TRI_OP_ATTENTION,
                 {1, 100, 2, 5, 2},
                 {.attention = {.alpha = 0.4f, .causal = true}},
                 0,
                 0};
    for (int which = 0; which < num_kernels(); which++) {
        op_run plain, wide, one;
        c.attr.attention.window = 0;
        op_run_init(&plain, &c, NULL);
        c.attr.attention.window = 100;
        op_run_init(&wide, &c, NULL);
        c.attr.attention.window = 1;
        op_run_init(&one, &c, NULL);
        run_with(&plain, c.op, which);
        run_with(&wide, c.op, which);
        run_with(&one, c.op, which);
        int64_t count = plain.args.out[0].count;
        expect_near(wide.args.out[0].data, plain.args.out[0].data, count, "a wide window");
        expect_near(one.args.out[0].data, one.args.in[2].data, count, "a window of one");
        op_run_fini(&plain);
        op_run_fini(&wide);
        op_run_fini(&one);
    }
}

/* What a token keeps depends on its place, not on where it lies. */
static void test_dropout_goes_by_places(void **state)
{
    (void)state;
    enum { ROWS = 3, TOKENS = 7, WIDTH = 33 };
    const op_case plain = {
        "plain", TRI_OP_DROPOUT, {ROWS, TOKENS, 1, WIDTH}, {.dropout = {.p = 0.4f}}, 0, 0};
    op_case dealt = plain;
    dealt.flags = CASE_PLACES;
    for (int which = 0; which < num_kernels(); which++) {
        op_run a, b;
        op_run_init(&a, &plain, NULL);
        op_run_init(&b, &dealt, NULL);
        const int32_t *places = b.args.in[3].data;
        const float *x = a.args.in[0].data, *want = a.args.out[0].data, *got = b.args.out[0].data;
        for (int row = 0; row < ROWS * TOKENS; row++)
            memcpy((float *)b.args.in[0].data + row * WIDTH,
                   x + (row / TOKENS * TOKENS + places[row]) * WIDTH, WIDTH * sizeof(float));
        run_with(&a, plain.op, which);
        run_with(&b, dealt.op, which);
        for (int row = 0; row < ROWS * TOKENS; row++)
            assert_memory_equal(got + row * WIDTH,
                                want + (row / TOKENS * TOKENS + places[row]) * WIDTH,
                                WIDTH * sizeof(float));
        op_run_fini(&a);
        op_run_fini(&b);
    }
}

/* The token of the place that is wanted, and nothing where it is not here. */
static void test_rows_are_found_by_places(void **state)
{
    (void)state;
    const op_case c = {"known", TRI_OP_SELECT_ROW, {2, 3, 0, 2}, {0}, CASE_PLACES, 0};
    const op_case back = {"known", TRI_OP_SELECT_ROW_GRAD, {2, 3, 0, 2}, {0}, CASE_PLACES, 0};
    const int32_t index[] = {4, 3}, places[] = {5, 0, 4, 2, 4, 1};
    for (int which = 0; which < num_kernels(); which++) {
        op_run run;
        op_run_init(&run, &c, NULL);
        memcpy(run.args.in[0].data, (float[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
               12 * sizeof(float));
        memcpy(run.args.in[1].data, index, sizeof index);
        memcpy(run.args.in[2].data, places, sizeof places);
        run_with(&run, c.op, which);
        expect_near(run.args.out[0].data, (float[]){5, 6, 0, 0}, 4, "select_row");
        op_run_fini(&run);
        op_run_init(&run, &back, NULL);
        memcpy(run.args.in[0].data, (float[]){1, 2, 3, 4}, 4 * sizeof(float));
        memcpy(run.args.in[1].data, index, sizeof index);
        memcpy(run.args.in[3].data, places, sizeof places);
        run_with(&run, back.op, which);
        expect_near(run.args.out[0].data, (float[]){0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0}, 12,
                    "select_row_grad");
        op_run_fini(&run);
    }
}

/* Queries come first, then keys, then values, of each token; and back. */
static void test_order_of_the_packed_three(void **state)
{
    (void)state;
    const op_case split = {"known", TRI_OP_SPLIT_QKV, {1, 2, 1, 2}, {0}, 0, 0};
    const op_case join = {"known", TRI_OP_JOIN_QKV, {1, 2, 1, 2}, {0}, 0, 0};
    const float packed[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const float parts[][4] = {{1, 2, 7, 8}, {3, 4, 9, 10}, {5, 6, 11, 12}};
    for (int which = 0; which < num_kernels(); which++) {
        op_run a, b;
        op_run_init(&a, &split, NULL);
        op_run_init(&b, &join, NULL);
        memcpy(a.args.in[0].data, packed, sizeof packed);
        for (int p = 0; p < 3; p++)
            memcpy(b.args.in[p].data, parts[p], sizeof parts[p]);
        run_with(&a, split.op, which);
        run_with(&b, join.op, which);
        for (int p = 0; p < 3; p++)
            expect_near(a.args.out[p].data, parts[p], 4, "split_qkv");
        expect_near(b.args.out[0].data, packed, 12, "join_qkv");
        op_run_fini(&a);
        op_run_fini(&b);
    }
}

/* Rows of x, from anywhere, in sums of up to two. */
static void test_gathered_rows(void **state)
{
    (void)state;
    const op_case c = {
        "known", TRI_OP_GATHER_ROWS, {2, 2, 1, 2, 1, 3, 2}, {.gather = {.lead = 2}}, 0, 0};
    for (int which = 0; which < num_kernels(); which++) {
        op_run run;
        op_run_init(&run, &c, NULL);
        memcpy(run.args.in[0].data, (float[]){1, 2, 10, 20, 100, 200, 1000, 2000},
               8 * sizeof(float));
        memcpy(run.args.in[1].data, (int32_t[]){3, 0, -1, -1, -1, 2}, 6 * sizeof(int32_t));
        run_with(&run, c.op, which);
        expect_near(run.args.out[0].data, (float[]){1001, 2002, 0, 0, 100, 200}, 6, "gather_rows");
        op_run_fini(&run);
    }
}

/* Sums of whole numbers that no float has. */
static void test_pieces_of_whole_numbers(void **state)
{
    (void)state;
    op_case c = {"whole", TRI_OP_UNSLICE, {1, 3, 2}, {0}, CASE_I32 | CASE_ACCUMULATE, 0};
    c.attr.message.cut = (tri_cut){.dim = 1, .size = 3, .parts = 2, .part = 0, .unit = 1};
    op_run run;
    op_run_init(&run, &c, NULL);
    assert_int_equal(run.args.in[0].count, 4);
    memcpy(run.args.in[0].data, (int32_t[]){-1, 1 << 24, 7, INT32_MIN}, 4 * sizeof(int32_t));
    memcpy(run.args.out[0].data, (int32_t[]){-1, 1, 0, 0, 5, -6}, 6 * sizeof(int32_t));
    run_with(&run, c.op, 0);
    assert_memory_equal(run.args.out[0].data, ((int32_t[]){-2, (1 << 24) + 1, 7, INT32_MIN, 5, -6}),
                        6 * sizeof(int32_t));
    op_run_fini(&run);
}

/* One token that chooses two of four experts. */
typedef struct known_route {
    const char *name;
    tri_route_attr how;
    float scores[4]; /* logits are the logs of these; of sigmoids, of s / (1 - s) */
    const float *bias;
    int32_t choice[2];
    float weights[2];
} known_route;

static const float towards_last[] = {0, 0, 0, 1};
static const known_route known_routes[] = {
    {"softmax", {.scale = 1}, {0.125f, 0.25f, 0.5f, 0.125f}, NULL, {2, 1}, {0.5f, 0.25f}},
    {"of equal ones the first", {.scale = 1}, {0.2f, 0.2f, 0.4f, 0.2f}, NULL, {2, 0}, {0.4f, 0.2f}},
    {"renorm, scale",
     {.scale = 3, .renorm = true},
     {0.125f, 0.25f, 0.5f, 0.125f},
     NULL,
     {2, 1},
     {2, 1}},
    {"bias chooses, and weighs nothing",
     {.scale = 1},
     {0.125f, 0.25f, 0.5f, 0.125f},
     towards_last,
     {3, 2},
     {0.125f, 0.5f}},
    {"groups: the best two together",
     {.scale = 1, .groups = 2, .group_limit = 1},
     {0.4f, 0.05f, 0.3f, 0.25f},
     NULL,
     {2, 3},
     {0.3f, 0.25f}},
    {"bias among groups",
     {.scale = 1, .renorm = true, .groups = 2, .group_limit = 1},
     {0.6f, 0.2f, 0.15f, 0.05f},
     towards_last,
     {3, 2},
     {0.25f, 0.75f}},
    {"sigmoid",
     {.score = TRI_ROUTE_SIGMOID, .scale = 2},
     {0.5f, 0.75f, 0.25f, 0.4f},
     NULL,
     {1, 0},
     {1.5f, 1}},
    {"sigmoid, renorm",
     {.score = TRI_ROUTE_SIGMOID, .scale = 1, .renorm = true},
     {0.5f, 0.75f, 0.25f, 0.4f},
     NULL,
     {1, 0},
     {0.6f, 0.4f}},
    {"softmax of the chosen",
     {.score = TRI_ROUTE_CHOSEN, .scale = 1},
     {0.125f, 0.3f, 0.45f, 0.125f},
     NULL,
     {2, 1},
     {0.6f, 0.4f}},
};

static void test_routes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known_routes / sizeof *known_routes; i++)
        for (int which = 0; which < num_kernels(); which++) {
            const known_route *r = &known_routes[i];
            const op_case c = {
                r->name, TRI_OP_ROUTE, {1, 1, 4, 2}, {.route = r->how}, r->bias ? 0 : CASE_WITHOUT,
                0};
            op_run run;
            op_run_init(&run, &c, NULL);
            float *logits = run.args.in[0].data;
            for (int e = 0; e < 4; e++)
                logits[e] = r->how.score == TRI_ROUTE_SIGMOID
                                ? logf(r->scores[e] / (1 - r->scores[e]))
                                : logf(r->scores[e]);
            if (r->bias)
                memcpy(run.args.in[1].data, r->bias, 4 * sizeof(float));
            run_with(&run, c.op, which);
            expect_near(run.args.out[0].data, r->weights, 2, r->name);
            assert_memory_equal(run.args.out[1].data, r->choice, sizeof r->choice);
            op_run_fini(&run);
        }
}

/* Three tokens with two choices among three experts, one of which is none. */
static void test_sorted_rows(void **state)
{
    (void)state;
    const op_case c = {"known", TRI_OP_SORT_ROWS, {1, 3, 3, 2}, {0}, 0, 0};
    static const int32_t want[4][6] = {
        {3, 0, 5, 4, 1, 2}, {0, 2, 2, 0, 1, 1}, {1, 4, 5, 0, 3, 2}, {0, 0, 1, 2, 2, -1}};
    for (int which = 0; which < num_kernels(); which++) {
        op_run run;
        op_run_init(&run, &c, NULL);
        memcpy(run.args.in[0].data, (int32_t[]){2, 0, -1, 2, 0, 1}, 6 * sizeof(int32_t));
        run_with(&run, c.op, which);
        for (int k = 0; k < 4; k++)
            assert_memory_equal(run.args.out[k].data, want[k], sizeof want[k]);
        op_run_fini(&run);
    }
}

/* Two sequences of four tokens with two choices among three experts, which take two of each: of the
 * first, expert 0 is chosen by all and its last two rows are dropped; of the second, whose tokens
 * lie in the order of places 3, 1, 0, 2, those at places 2 and 3 are. */
static void test_dropped_rows(void **state)
{
    (void)state;
    const op_case c = {
        "known", TRI_OP_DROP_ROWS, {2, 4, 3, 2}, {.route = {.limit = 2}}, CASE_PLACES, 0};
    const op_case count = {
        "known", TRI_OP_COUNT_DROPPED, {2, 4, 3, 2}, {.route = {.alpha = 0.5f}}, 0, 0};
    static const int32_t choice[] = {0, 1, 2, 0, 0, 1, 1, 0, 0, 1, 2, 0, 0, 1, 0, 2};
    static const int32_t want[] = {0, 1, 2, 0, -1, 1, -1, -1, -1, 1, 2, 0, 0, 1, -1, 2};
    for (int which = 0; which < num_kernels(); which++) {
        op_run run, sum;
        op_run_init(&run, &c, NULL);
        op_run_init(&sum, &count, NULL);
        memcpy(run.args.in[0].data, choice, sizeof choice);
        memcpy(run.args.in[1].data, (int32_t[]){0, 1, 2, 3, 3, 1, 0, 2}, 8 * sizeof(int32_t));
        run_with(&run, c.op, which);
        assert_memory_equal(run.args.out[0].data, want, sizeof want);
        memcpy(sum.args.in[0].data, want, sizeof want);
        memcpy(sum.args.in[1].data, (int32_t[]){5, 5, 5, -1, -1, 5, 5, 5}, 8 * sizeof(int32_t));
        run_with(&sum, count.op, which);
        expect_near(sum.args.out[0].data, &(float){0.5f * 2}, 1, "dropped");
        op_run_fini(&run);
        op_run_fini(&sum);
    }
}

/* Two tokens share four experts evenly, a third has no target: the balance loss is the number of
 * tokens. */
static void test_equal_loads(void **state)
{
    (void)state;
    const op_case count = {"even", TRI_OP_ROUTE_SUMS, {1, 3, 4, 2}, {.route = {.alpha = 0.5f}}, 0,
                           0};
    const op_case loss = {"even", TRI_OP_BALANCE, {1, 1, 4}, {.route = {.alpha = 4.0f / 2}}, 0, 0};
    const op_case loads = {"even", TRI_OP_ROUTE_LOAD, {1, 1, 4}, {0}, 0, 0};
    for (int which = 0; which < num_kernels(); which++) {
        op_run sums, balance, load;
        op_run_init(&sums, &count, NULL);
        op_run_init(&balance, &loss, NULL);
        op_run_init(&load, &loads, NULL);
        memset(sums.args.in[0].data, 0, 12 * sizeof(float));
        memcpy(sums.args.in[1].data, (int32_t[]){0, 1, 0, 1, 2, 3}, 6 * sizeof(int32_t));
        memcpy(sums.args.in[2].data, (int32_t[]){7, -1, 0}, 3 * sizeof(int32_t));
        run_with(&sums, count.op, which);
        const float lse = logf(4), each[] = {1, 0.5f, 2};
        for (int e = 0; e < 4; e++)
            expect_near((float *)sums.args.out[0].data + 3 * e, each, 3, "sums");
        expect_near(sums.args.out[1].data, &(float){0.5f * 2 * lse * lse}, 1, "z");
        expect_near(sums.args.out[2].data, &(float){0.5f * 2 * lse}, 1, "entropy");
        memcpy(load.args.in[0].data, sums.args.out[0].data, 12 * sizeof(float));
        run_with(&load, loads.op, which);
        expect_near(load.args.out[0].data, (float[]){1, 1, 1, 1}, 4, "load");
        memcpy(balance.args.in[0].data, sums.args.out[0].data, 12 * sizeof(float));
        run_with(&balance, loss.op, which);
        expect_near(balance.args.out[0].data, &(float){2}, 1, "balance");
        op_run_fini(&sums);
        op_run_fini(&balance);
        op_run_fini(&load);
    }
}

static void test_bias_moves_towards_equal_loads(void **state)
{
    (void)state;
    const op_case c = {"known", TRI_OP_MOVE_BIAS, {1, 1, 4}, {.route = {.alpha = 0.5f}}, 0, 0};
    op_run run;
    op_run_init(&run, &c, NULL);
    memcpy(run.args.in[0].data, (float[]){1, 0, 0, -1}, 4 * sizeof(float));
    memcpy(run.args.in[1].data, (float[]){4, 0, 2, 2}, 4 * sizeof(float));
    run_with(&run, c.op, 0);
    expect_near(run.args.out[0].data, (float[]){0.5f, 0.5f, 0, -1}, 4, "bias");
    op_run_fini(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_of_known_angles),
        cmocka_unit_test(test_llama3_frequencies),
        cmocka_unit_test(test_groups_are_repeated_key_heads),
        cmocka_unit_test(test_documents_are_apart),
        cmocka_unit_test(test_padding_has_no_gradient),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_dropout_goes_by_places),
        cmocka_unit_test(test_rows_are_found_by_places),
        cmocka_unit_test(test_order_of_the_packed_three),
        cmocka_unit_test(test_gathered_rows),
        cmocka_unit_test(test_pieces_of_whole_numbers),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_sorted_rows),
        cmocka_unit_test(test_dropped_rows),
        cmocka_unit_test(test_equal_loads),
        cmocka_unit_test(test_bias_moves_towards_equal_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
