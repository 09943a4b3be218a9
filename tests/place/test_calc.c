/* The sharding calculator: the four cases of a product, moves, textbook numbers, training step by
 * step, pictures, and what it answers to texts that are wrong (seeded fuzz included). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/op_table.h"
#include "mesh/device_names.h"
#include "place/calc/calc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tri_calc calc;
static tr_error err;

static void begin(const char *mesh, const char *dtype)
{
    err = (tr_error){0};
    assert_int_equal(tri_calc_init(&calc, &err), TR_OK);
    assert_int_equal(tri_calc_set_dtype(&calc, dtype, &err), TR_OK);
    if (mesh)
        assert_int_equal(tri_calc_parse_mesh(&calc, mesh, &err), TR_OK);
}

static tri_calc_line read_line(const char *text)
{
    tri_calc_line line;
    if (tri_calc_parse_line(&calc, text, &line, &err) != TR_OK)
        fail_msg("%s: %s", text, err.message);
    return line;
}

static void add_moves(const tri_calc_moves *moves, tri_text *text)
{
    static const char *const names[] = {"slice", "rs", "ar", "a2a", "ag"};
    for (int i = 0; i < moves->num; i++) {
        const tri_calc_move *m = &moves->items[i];
        tri_text_add(text, "%s ", names[m->kind]);
        tri_calc_write_array(&calc, &m->after, text);
        tri_text_add(text, " over ");
        tri_calc_write_axes(&calc, m->axes, text);
        tri_text_add(text, "; ");
    }
}

/* The collectives and the product, in a short form. */
static void assert_line(const char *text, const char *expected)
{
    tri_calc_line line = read_line(text);
    tri_text found;
    tri_text_init(&found);
    tri_text_add(&found, "%s", "");
    if (line.kind == TRI_CALC_MOVE) {
        tri_calc_moves moves = {.num = 0};
        assert_int_equal(tri_calc_move_to(&calc, &line.a, &line.target, &moves, &err), TR_OK);
        add_moves(&moves, &found);
    } else {
        tri_calc_product p;
        if (tri_calc_multiply(&calc, &line.a, &line.b, line.has_target ? &line.target : NULL, "C",
                              &p, &err) != TR_OK)
            fail_msg("%s: %s", text, err.message);
        add_moves(&p.before, &found);
        tri_calc_write_array(&calc, &p.c, &found);
        tri_text_add(&found, "; ");
        add_moves(&p.after, &found);
    }
    if (strcmp(found.chars, expected) != 0)
        fail_msg("%s\n  gives    %s\n  expected %s", text, found.chars, expected);
    tri_text_fini(&found);
}

static double sent_by(const char *text)
{
    tri_calc_line line = read_line(text);
    tri_calc_moves moves = {.num = 0};
    double sum = 0, sent;
    assert_int_equal(tri_calc_move_to(&calc, &line.a, &line.target, &moves, &err), TR_OK);
    for (int i = 0; i < moves.num; i++) {
        assert_true(tri_amount_known(&moves.items[i].sent, &sent));
        sum += sent;
    }
    return sum;
}

static void assert_near(double value, double expected, double relative)
{
    if (!(fabs(value - expected) <= relative * fabs(expected)))
        fail_msg("%.10g is not %.10g", value, expected);
}

/* ---- products ---- */

static void four_cases(void **state)
{
    (void)state;
    begin("x:4,y:2", "bf16");
    /* 1: not cut along what is summed over. */
    assert_line("A[I,J].B[J,K]->C[I,K]", "C[I, K]; ");
    assert_line("A[I@x,J].B[J,K@y]->C[I@x,K@y]", "C[I@x, K@y]; ");
    /* 2: cut in one. */
    assert_line("A[I,J@x].B[J,K]->C[I,K]", "ag A[I, J] over x; C[I, K]; ");
    assert_line("A[I@x,J].B[J@x,K]->C[I@x,K]", "ag B[J, K] over x; C[I@x, K]; ");
    /* 3: cut in both. */
    assert_line("A[I,J@x].B[J@x,K]", "C[I, K]{P:x}; ");
    assert_line("A[I,J@x].B[J@x,K]->C[I,K]{U_x}", "C[I, K]{P:x}; ");
    assert_line("A[I,J@x].B[J@x,K]->C[I,K]", "C[I, K]{P:x}; ar C[I, K] over x; ");
    assert_line("A[I,J@x].B[J@x,K]->C[I,K@x]", "C[I, K]{P:x}; rs C[I, K@x] over x; ");
    assert_line("A[I,J@xy].B[J@xy,K]->C[I@y,K]",
                "C[I, K]{P:xy}; rs C[I@y, K]{P:x} over y; ar C[I@y, K] over x; ");
    /* 4: rows and columns cut over the same axis: what the target wants stays. */
    assert_line("A[I@x,J].B[J,K@x]->C[I@x,K]", "ag B[J, K] over x; C[I@x, K]; ");
    assert_line("A[I@x,J].B[J,K@x]->C[I,K@x]", "ag A[I, J] over x; C[I, K@x]; ");
}

static void the_smaller_is_gathered(void **state)
{
    (void)state;
    begin("x:4", "bf16");
    assert_line("A[I:100@x,J:8].B[J,K:50@x]", "ag B[J, K] over x; C[I@x, K]; ");
    begin("x:4", "bf16");
    assert_line("A[I:100@x,J:8].B[J,K:500@x]", "ag A[I, J] over x; C[I, K@x]; ");
}

static void several_axes(void **state)
{
    (void)state;
    begin("x:2,y:4,z:2", "bf16");
    assert_line("A[I@x,J@y].B[J@y,K@z]", "C[I@x, K@z]{P:y}; ");
    assert_line("A[I@x,J@y].B[J@x,K@y]->C[I@x,K@y]",
                "ag A[I@x, J] over y; ag B[J, K@y] over x; C[I@x, K@y]; ");
    /* Several letters are summed over; those of a transposed operand too. */
    assert_line("A[B@x,T,D].W[F@y,D]->C[B@x,T,F@y]", "C[B@x, T, F@y]; ");
    assert_line("A[B@x,T,D].G[B@x,T,F]->C[D,F]", "C[D, F]{P:x}; ar C[D, F] over x; ");
    /* Over J the axis y is in both, x in one only. */
    assert_line("A[I,J@yx].B[J@y,K]", "ag A[I, J@y] over x; C[I, K]{P:y}; ");
    /* An operand in terms is summed first: a product of sums is not the sum of products. */
    assert_line("A[I,J]{P:x}.B[J,K]{U_x}", "ar A[I, J] over x; ar B[J, K] over x; C[I, K]; ");
}

/* Only the end of a list is gathered: what is cut off after an axis goes with it. */
static void gathered_along(void **state)
{
    (void)state;
    begin("x:2,y:3", "bf16");
    assert_line("A[I@xy,J].B[J,K@x]->C[I,K@x]", "ag A[I, J] over xy; C[I, K@x]; ");
    assert_line("A[I@yx,J].B[J,K@x]->C[I@y,K@x]", "ag A[I@y, J] over x; C[I@y, K@x]; ");
    /* y is gone with x, so B, which was cut over it, can stay so. */
    assert_line("A[I@xy].B[K@x,L@y]->C[I,K@x,L@y]", "ag A[I] over xy; C[I, K@x, L@y]; ");
}

/* One operand: dims [first.., second..], the dim `cut` over x. */
static tri_calc_array operand(const char *name, const char *first, const char *second, int cut)
{
    char text[100];
    int length = snprintf(text, sizeof text, "%s[", name), d = 0;
    for (const char *part = first; part; part = part == first ? second : NULL)
        for (const char *c = part; *c; c++, d++)
            length += snprintf(text + length, sizeof text - (size_t)length, "%s%c%s", d ? "," : "",
                               *c, d == cut ? "@x" : "");
    snprintf(text + length, sizeof text - (size_t)length, "]");
    tri_calc_array array;
    if (tri_calc_parse_array(&calc, text, &array, &err) != TR_OK)
        fail_msg("%s: %s", text, err.message);
    return array;
}

static int cut_dim(const tri_calc_array *array)
{
    for (int d = 0; d < array->rank; d++)
        if (array->dims[d].num_cuts > 0)
            return d;
    return -1;
}

static void assert_spot(const tri_spot *spot, const tri_calc_array *array)
{
    int cut = cut_dim(array);
    tri_spot_kind kind = array->terms ? TRI_SPOT_TERMS : cut >= 0 ? TRI_SPOT_CUT : TRI_SPOT_WHOLE;
    assert_int_equal(spot->kind, kind);
    if (kind == TRI_SPOT_CUT)
        assert_int_equal(spot->dim, cut);
}

/* The operator of a program and the calculator place a product alike: every transposition, one or
 * two dims of each kind, every cut. */
static void as_the_pass_does(void **state)
{
    (void)state;
    static const char *const rows[] = {"", "I", "IL"}, *const inner[] = {"", "J", "JM"};
    static const char *const columns[] = {"", "K", "KN"};
    for (int code = 0; code < 2 * 2 * 8; code++) {
        bool trans_a = code & 1, trans_b = code & 2;
        int na = 1 + (code >> 2 & 1), nc = 1 + (code >> 3 & 1), nb = 1 + (code >> 4 & 1);
        tri_node node = {.op = TRI_OP_MATMUL, .num_in = 2, .num_out = 1};
        node.attr.matmul.trans_a = trans_a;
        node.attr.matmul.trans_b = trans_b;
        node.attr.matmul.split_a = (uint8_t)(trans_a ? nc : na);
        node.attr.matmul.split_b = (uint8_t)(trans_b ? nb : nc);
        tri_shape shapes[2] = {{.rank = na + nc}, {.rank = nc + nb}};
        for (int i = 0; i < 2; i++)
            for (int d = 0; d < shapes[i].rank; d++)
                shapes[i].dim[d] = (tri_dim){TRI_DIM_N, 8};
        for (int cut_a = -1; cut_a < na + nc; cut_a++)
            for (int cut_b = -1; cut_b < nc + nb; cut_b++) {
                tri_spot in[2] = {{cut_a < 0 ? TRI_SPOT_WHOLE : TRI_SPOT_CUT, cut_a},
                                  {cut_b < 0 ? TRI_SPOT_WHOLE : TRI_SPOT_CUT, cut_b}};
                tri_spot out;
                tri_op_get(TRI_OP_MATMUL)->place(&node, shapes, in, &out);
                begin("x:2", "bf16");
                tri_calc_array a = operand("A", trans_a ? inner[nc] : rows[na],
                                           trans_a ? rows[na] : inner[nc], cut_a);
                tri_calc_array b = operand("B", trans_b ? columns[nb] : inner[nc],
                                           trans_b ? inner[nc] : columns[nb], cut_b);
                tri_calc_product p;
                assert_int_equal(tri_calc_multiply(&calc, &a, &b, NULL, "C", &p, &err), TR_OK);
                assert_spot(&in[0], &p.a);
                assert_spot(&in[1], &p.b);
                assert_spot(&out, &p.c);
            }
    }
    /* Between the products of an MLP: GELU(x + y) is not GELU(x) + GELU(y). */
    assert_false(tri_op_get(TRI_OP_ACT)->linear);
    assert_false(tri_op_get(TRI_OP_MATMUL)->linear);
}

static void work_of_a_product(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        double intensity;
    } rows[] = {{"A[J:1000000].B[J]->C[]", 0.5},
                {"A[I:1024,J:1024].B[J,K:1024]->C[I,K]", 341.33},
                {"A[I:4096,J:4096].B[J,K:4096]->C[I,K]", 1365.33}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(NULL, "bf16");
        tri_calc_line line = read_line(rows[i].line);
        tri_calc_product p;
        double flops, bytes = 0, one;
        assert_int_equal(tri_calc_multiply(&calc, &line.a, &line.b, &line.target, "C", &p, &err),
                         TR_OK);
        assert_true(tri_amount_known(&p.flops, &flops));
        for (int k = 0; k < 3; k++) {
            assert_true(tri_amount_known(&p.traffic[k], &one));
            bytes += one;
        }
        assert_near(flops / bytes, rows[i].intensity, 1e-4);
    }
}

/* ---- moves ---- */

static void moves_between_placements(void **state)
{
    (void)state;
    begin("x:4,y:2", "bf16");
    assert_line("A[I@x,J]->A[I,J]", "ag A[I, J] over x; ");
    assert_line("A[I,J]->A[I@x,J]", "slice A[I@x, J] over x; ");
    assert_line("A[I@x,J]->A[I,J@x]", "a2a A[I, J@x] over x; ");
    assert_line("A[I,J]{P:x}->A[I,J]", "ar A[I, J] over x; ");
    assert_line("A[I,J]{P:x}->A[I@x,J]", "rs A[I@x, J] over x; ");
    assert_line("A[I,J]{P:xy}->A[I,J]", "ar A[I, J] over xy; ");
    assert_line("A[I@xy,J]->A[I,J]", "ag A[I, J] over xy; ");
    assert_line("A[I@xy,J]->A[I@x,J]", "ag A[I@x, J] over y; ");
    /* Pieces that would not lie together are gathered. */
    assert_line("A[I@xy,J]->A[I@y,J]", "ag A[I, J] over xy; slice A[I@y, J] over y; ");
    assert_line("A[I@xy,J]->A[I@yx,J]", "ag A[I, J] over xy; slice A[I@yx, J] over xy; ");
    assert_line("A[I@x,J]->A[I@x,J]", "");
    /* Lists in the same order are exchanged as they are, others from the end. */
    assert_line("A[I@xy,J]->A[I,J@xy]", "a2a A[I, J@xy] over xy; ");
    assert_line("A[I@xy,J]->A[I,J@yx]", "a2a A[I@x, J@y] over y; a2a A[I, J@yx] over x; ");
    assert_line("A[I@xy,J]->A[I@x,J@y]", "a2a A[I@x, J@y] over y; ");
    assert_line("A[I@xy,J]->A[I@y,J@x]",
                "ag A[I@x, J] over y; a2a A[I, J@x] over x; slice A[I@y, J@x] over y; ");
    assert_line("A[I@x,J@y]->A[I@y,J@x]",
                "ag A[I, J@y] over x; a2a A[I@y, J] over y; slice A[I@y, J@x] over x; ");
    /* The cut comes before the sum, which is then smaller. */
    assert_line("A[I,J]{P:x}->A[I@y,J]", "slice A[I@y, J]{P:x} over y; ar A[I@y, J] over x; ");
    /* A sum does not wait for a gather, which makes the vector larger; and all sums are one. */
    assert_line("A[I@x,J]{P:y}->A[I@y,J]",
                "ar A[I@x, J] over y; ag A[I, J] over x; slice A[I@y, J] over y; ");
    begin("x:4,y:2,z:2", "bf16");
    assert_line("A[I@x,J]{P:yz}->A[I@yx,J]",
                "ar A[I@x, J] over yz; ag A[I, J] over x; slice A[I@yx, J] over xy; ");
    /* It does wait for an exchange, which does not. */
    assert_line("A[I@x,J]{P:y}->A[I@y,J@x]", "a2a A[I, J@x]{P:y} over x; rs A[I@y, J@x] over y; ");
    assert_line("A[I@x,J]{P:y}->A[I,J@xz]",
                "a2a A[I, J@x]{P:y} over x; slice A[I, J@xz]{P:y} over z; ar A[I, J@xz] over y; ");
    /* An axis of one device moves nothing. */
    begin("x:1", "bf16");
    assert_line("A[I@x]->A[I]", "");
}

static void bytes_of_moves(void **state)
{
    (void)state;
    begin("x:8", "bf16");
    assert_near(sent_by("G[N:175000000000]{P:x}->G[N]"), 612.5e9, 1e-12);
    begin("x:4", "bf16");
    assert_near(sent_by("A[I:64@x,J:32]->A[I,J]"), 3072, 0);
    assert_near(sent_by("A[I:64,J:32]{P:x}->A[I@x,J]"), 3072, 0);
    assert_near(sent_by("A[I:64@x,J:32]->A[I,J@x]"), 768, 0);
    assert_near(sent_by("A[I:64,J:32]->A[I@x,J]"), 0, 0);
}

static double seconds_of(const char *text)
{
    tri_calc_line line = read_line(text);
    tri_calc_moves moves = {.num = 0};
    assert_int_equal(tri_calc_move_to(&calc, &line.a, &line.target, &moves, &err), TR_OK);
    return tri_calc_move_seconds(&moves);
}

static void times_of_moves(void **state)
{
    (void)state;
    tri_link_spec link = {.name = "given", .bytes_per_s = 50e9};
    begin("x:64", "f32");
    assert_true(seconds_of("A[I]{P:x}->A[I]") < 0); /* without a link and a size: not known */
    calc.link = &link;
    calc.latency_s = 5e-6;
    assert_near(seconds_of("A[K:250000000]{P:x}->A[K]"), 40.0e-3, 1e-3);
    assert_near(seconds_of("A[L:2500]{P:x}->A[L]"), 0.630e-3, 2e-3);
    /* On a torus: both ways at once, each axis with links of its own. */
    begin("x:4,y:4", "bf16");
    calc.link = tri_link_spec_find("ici-v5p");
    double one = seconds_of("A[I:1000000@x]->A[I]"), two = seconds_of("A[I@xy]->A[I]");
    assert_near(one, 2e6 * 3 / 4 / 1.8e11, 1e-9);
    assert_near(two, 2e6 * 15 / 16 / 3.6e11, 1e-9);
    /* An exchange takes a quarter of a gather of the whole array. */
    assert_near(seconds_of("A[I@x,J:8]->A[I,J@x]"), 16e6 / 4 / 1.8e11, 1e-9);
}

/* ---- arrays ---- */

static char *report_of(const char *text)
{
    tri_calc_line line = read_line(text);
    tri_text out;
    tri_text_init(&out);
    tri_calc_report_array(&calc, &line.a, &out);
    return out.chars;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in\n%s", part, text);
}

static void sharded_array(void **state)
{
    (void)state;
    begin("x:4,y:8,z:2", "bf16");
    char *text = report_of("A[I:256@xy, J:2048]");
    assert_has(text, "8 x 2048 elements, 32.0 KiB (32768 bytes)");
    assert_has(text, "2.00 MiB (2097152 bytes) on all devices");
    assert_has(text, "copies      2: the devices along z hold the same");
    assert_has(text, "1.00 MiB (1048576 bytes) in 32 shards");
    assert_has(text, "| x0 y6    |\n  ...        | ...      |\n  I 248-255  | x3 y7    |");
    free(text);
}

static void uneven_picture(void **state)
{
    (void)state;
    begin("x:2,y:3", "f32");
    char *text = report_of("A[I:5@x, J:7@y]");
    assert_has(text, "the first 1 of 2 shards have 3, the others 2");
    assert_has(text, "the first 1 of 3 shards have 3, the others 2");
    assert_has(text, "          J 0-2   J 3-4   J 5-6\n"
                     "         +-------+-------+-------+\n"
                     "  I 0-2  | x0 y0 | x0 y1 | x0 y2 |\n"
                     "  I 3-4  | x1 y0 | x1 y1 | x1 y2 |\n"
                     "         +-------+-------+-------+\n");
    free(text);
    begin("x:4", "f32");
    text = report_of("A[I:3@x]"); /* fewer elements than devices */
    assert_has(text, "  I 2     | x2 |\n  I none  | x3 |\n");
    free(text);
    /* What x leaves is cut over y: 5 and 5 into 2, 2, 1 each. */
    begin("x:2,y:3", "f32");
    text = report_of("A[I:10@xy]");
    assert_has(text, "uneven      I: 4 of 6 shards have 2, the others 1; each");
    assert_has(text, "  I 4    | x0 y2 |\n  I 5-6  | x1 y0 |\n");
    free(text);
}

static void letters_stay_letters(void **state)
{
    (void)state;
    begin("x:4", "bf16");
    char *text = report_of("A[I@x, J]");
    assert_has(text, "I/4 x J elements, I\u00b7J/2 bytes");
    assert_has(text, "2\u00b7I\u00b7J bytes in 4 shards");
    free(text);
    begin("x:4", "bf16");
    text = report_of("A[I, J:8]{P:x}");
    assert_has(text, "terms       4");
    assert_has(text, "x0 to x3, a term each");
    free(text);
}

/* ---- training ---- */

/* What each product of the step does, in a short form; moves that are there already in brackets. */
static void assert_training(const char *strategy, const char *mesh, const char *expected)
{
    static tri_calc_training t;
    static const char *const names[] = {"slice", "rs", "ar", "a2a", "ag"};
    tri_text text;
    begin(mesh, "bf16");
    tri_text_init(&text);
    if (tri_calc_train(&calc, strategy, 0, &t, &err) != TR_OK)
        fail_msg("%s: %s", strategy, err.message);
    for (int i = 0; i < TRI_CALC_STEPS; i++) {
        const tri_calc_product *p = &t.steps[i].product;
        for (int k = 0; k < p->before.num + p->after.num; k++) {
            const tri_calc_move *m =
                k < p->before.num ? &p->before.items[k] : &p->after.items[k - p->before.num];
            if (k == p->before.num)
                tri_text_add(&text, "%s. ", p->c.name);
            tri_text_add(&text, m->there ? "(%s %s) " : "%s %s ", names[m->kind], m->before.name);
        }
        if (p->after.num == 0)
            tri_text_add(&text, "%s. ", p->c.name);
    }
    if (strcmp(text.chars, expected) != 0)
        fail_msg("%s\n  gives    %s\n  expected %s", strategy, text.chars, expected);
    tri_text_fini(&text);
}

static void training_steps(void **state)
{
    (void)state;
    assert_training("dp", "x:8", "Tmp. Out. dWout. ar dWout dTmp. dWin. ar dWin dIn. ");
    assert_training("fsdp", "x:8",
                    "ag Win Tmp. ag Wout Out. dWout. rs dWout ag Wout dTmp. dWin. rs dWin ag Win "
                    "dIn. ");
    assert_training("tp", "y:8",
                    "ag In Tmp. Out. rs Out ag dOut dWout. (ag dOut) dTmp. (ag In) dWin. dIn. rs "
                    "dIn ");
    /* One all-reduce forward, one backward, of each of the two blocks of a layer: 4. */
    assert_training("megatron", "y:8", "Tmp. Out. ar Out dWout. dTmp. dWin. dIn. ar dIn ");
    assert_training("fsdp+tp", "x:8,y:4",
                    "ag In ag Win Tmp. ag Wout Out. rs Out ag dOut dWout. rs dWout (ag dOut) ag "
                    "Wout dTmp. (ag In) dWin. rs dWin ag Win dIn. rs dIn ");
}

static char *training_report(const char *strategy, const char *mesh, const char *device,
                             const char *sizes)
{
    static tri_calc_training t;
    tri_text text;
    begin(mesh, "bf16");
    calc.device = tri_device_spec_find(device);
    calc.link = tri_link_spec_find(calc.device->link);
    if (sizes)
        assert_int_equal(tri_calc_parse_sizes(&calc, sizes, &err), TR_OK);
    assert_int_equal(tri_calc_train(&calc, strategy, 0, &t, &err), TR_OK);
    tri_text_init(&text);
    tri_calc_report_training(&calc, &t, &text);
    return text.chars;
}

static void training_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *strategy, *mesh, *sizes, *says;
    } rows[] = {
        {"fsdp", "x:16", NULL, "from 2550 rows"},
        {"fsdp", "x:4,y:4,z:4", NULL, "from 850 rows"},
        {"dp", "x:16", NULL, "from 2550 rows"},
        {"tp", "x:4", "F:30000", "up to 11.8 devices"},
        {"tp", "x:4,y:4", "F:30000", "up to 23.5 devices"},
        {"tp", "x:4", NULL, "up to F/2550 devices"},
        /* Zero 3: three times the weights, 2 D F elements of 2 bytes. */
        {"fsdp", "x:4", NULL,
         "step       arithmetic 3\u00b7B\u00b7D\u00b7F FLOP; sends "
         "9\u00b7D\u00b7F bytes"},
        {"dp", "x:4", NULL, "forward    arithmetic B\u00b7D\u00b7F FLOP; sends 0 B"},
        {"dp", "x:4", NULL,
         "backward   arithmetic 2\u00b7B\u00b7D\u00b7F FLOP; sends "
         "6\u00b7D\u00b7F bytes"},
        /* On both sides of the bound: 16 x 2550 is 40800 rows. */
        {"fsdp", "x:16", "B:44800,D:4096,F:16384",
         "forward    arithmetic 751.6 GFLOP, 1.64 ms; "
         "sends 251.7 MB, 1.40 ms; bound by arithmetic"},
        {"fsdp", "x:16", "B:32768,D:4096,F:16384", "bound by communication"},
        /* Both: a / (Y (1 - Y b / F)) rows, whole numbers of devices, and 4 a b / F as their bound
         * where two devices along the model's axes leave time for it. */
        {"fsdp+tp", "x:8,y:4", "B:65536,D:8192,F:32768",
         "from 925.6 rows of B a device on, on this"},
        {"fsdp+tp", "x:8,y:4", "B:65536,D:8192,F:32768",
         "from 844.5 rows on with 4 along the data's axes and 8 along the model's\n"},
        {"fsdp+tp", "x:8,y:4", "B:65536,D:8192,F:32768",
         "from 793.8 rows on, with 6.425 along the model's"},
        {"fsdp+tp", "x:8,y:4", "B:65536,D:8192,F:32768",
         "least communication for these sizes: 8 along the data's axes and 4 along the model's\n"},
        {"fsdp+tp", "x:8,y:8", "B:512000,D:8192,F:4096", "never on this mesh: 8 devices"},
        {"fsdp+tp", "x:8,y:8", "B:512000,D:8192,F:4096",
         "from 2550 rows on with 64 along the data's axes and 1 along the model's, which is fsdp"},
        {"fsdp+tp", "x:8,y:8", "B:512000,D:8192,F:4096", "F is below 4 b = 10200"},
        {"fsdp+tp", "x:8,y:8", NULL, "where F is 10200 or more"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = training_report(rows[i].strategy, rows[i].mesh, "v5p", rows[i].sizes);
        assert_has(text, rows[i].says);
        free(text);
    }
}

/* Advice is whole numbers that divide the devices, whatever the sizes. */
static void advice_divides(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:8,y:8", "x:3,y:7", "x:16,y:2", "x:5,y:6"};
    static const int devices[] = {64, 21, 32, 30};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (int64_t rows = 1000; rows < 100000000; rows *= 7) {
            char sizes[80];
            snprintf(sizes, sizeof sizes, "B:%lld,D:4096,F:%lld", (long long)rows,
                     (long long)(rows % 60000 + 2000));
            char *text = training_report("fsdp+tp", meshes[i], "v5p", sizes);
            char *at = strstr(text, "least communication for these sizes: ");
            int data, model;
            assert_non_null(at);
            assert_int_equal(sscanf(at,
                                    "least communication for these sizes: %d along the data's "
                                    "axes and %d along the model's",
                                    &data, &model),
                             2);
            assert_int_equal(data * model, devices[i]);
            assert_true(!strstr(text, "many devices: ") || !strstr(text, "F is below 4 b"));
            free(text);
        }
}

/* ---- tables ---- */

static void devices_and_links(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double dense, sparse;
    } rows[] = {{"h100", 295, 591}, {"v6e", 560, 0}, {"v5p", 166, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tri_device_spec *d = tri_device_spec_find(rows[i].name);
        assert_non_null(d);
        assert_near(d->dense[TRI_RATE_16] / d->memory_bytes_per_s, rows[i].dense, 2e-3);
        if (rows[i].sparse > 0)
            assert_near(d->sparse[TRI_RATE_16] / d->memory_bytes_per_s, rows[i].sparse, 2e-3);
    }
    for (size_t i = 0; tri_device_spec_at(i); i++) {
        const tri_device_spec *d = tri_device_spec_at(i);
        assert_non_null(tri_link_spec_find(d->link));
        assert_true(*d->source && d->memory_bytes > 0 && d->memory_bytes_per_s > 0);
        for (int r = 0; r < TRI_NUM_RATES; r++)
            assert_true(d->sparse[r] == 0 || d->sparse[r] > 1.9 * d->dense[r]);
    }
    assert_null(tri_device_spec_find("h101"));
}

/* What drivers call them. */
static void devices_by_product(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
    } rows[] = {{"cuda, NVIDIA H200, cuDNN", "h200"},
                {"cuda, NVIDIA H100 80GB HBM3, tf32, cuDNN", "h100"},
                {"NVIDIA H100 PCIe", "h100-pcie"},
                {"NVIDIA A100-SXM4-80GB", "a100"},
                {"NVIDIA A100-SXM4-40GB", "a100-40"},
                {"Tesla V100-SXM2-32GB", "v100"},
                {"NVIDIA A100 80GB PCIe", "a100-pcie"},
                {"NVIDIA RTX A6000", "a6000"},
                {"NVIDIA GeForce RTX 4090", "rtx4090"},
                {"NVIDIA H100 NVL", "h100-nvl"},
                {"NVIDIA GB300", "gb300"},
                {"NVIDIA B300 SXM6 AC", "b300"},
                {"NVIDIA L40S", "l40s"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_ptr_equal(tri_device_spec_in(rows[i].text), tri_device_spec_find(rows[i].name));
    assert_null(tri_device_spec_in("cpu, 2 threads, avx512"));
    assert_null(tri_device_spec_in("cuda, NVIDIA GeForce GTX 1080"));
}

static char *state_of(const char *mesh, double params, int64_t group)
{
    tri_text text;
    begin(mesh, "bf16");
    tri_text_init(&text);
    assert_int_equal(tri_calc_report_state(&calc, params, group, &text, &err), TR_OK);
    return text.chars;
}

static void memory_of_training(void **state)
{
    (void)state;
    char *text = state_of("dp:64", 7.5e9, 0); /* the figures of the ZeRO paper */
    static const char *const zero[] = {" 120 ", " 31.41 ", " 16.64 ", " 1.875 "};
    for (int z = 0; z < 4; z++) {
        char row[16];
        snprintf(row, sizeof row, "zero %d", z);
        char *line = strstr(text, row);
        assert_non_null(line);
        char *end = strchr(line, '\n'), *found = strstr(line, zero[z]);
        assert_true(found && found < end);
    }
    free(text);
    text = state_of("dp:4", 50362368, 0); /* 16 bytes over 4 ranks: 201.4 MB */
    assert_has(text, " 0.2014 ");
    free(text);
    text = state_of(NULL, 175e9, 0);
    assert_has(text, " 2800 ");
    free(text);
    text = state_of(NULL, 7e9, 0);
    assert_has(text, " 112 ");
    free(text);
    text = state_of("dp:16", 1e9, 8);
    assert_has(text, "2 sharding groups of 8, 8 replication groups of 2");
    free(text);
    tri_text out;
    tri_text_init(&out);
    begin("dp:16", "bf16");
    assert_int_equal(tri_calc_report_state(&calc, 1e9, 5, &out, &err), TR_ERROR_INPUT);
    tri_text_fini(&out);
}

/* ---- errors ---- */

static tr_status run_text(const char *text)
{
    tri_calc_line line;
    tri_calc_moves moves = {.num = 0};
    tri_calc_product product;
    tri_text out;
    tr_status status = tri_calc_parse_line(&calc, text, &line, &err);
    if (status != TR_OK)
        return status;
    tri_text_init(&out);
    if (line.kind == TRI_CALC_ARRAY) {
        tri_calc_report_array(&calc, &line.a, &out);
    } else if (line.kind == TRI_CALC_MOVE) {
        status = tri_calc_move_to(&calc, &line.a, &line.target, &moves, &err);
        if (status == TR_OK)
            tri_calc_report_moves(&calc, &line.a, &line.target, &moves, &out);
    } else {
        status = tri_calc_multiply(&calc, &line.a, &line.b, line.has_target ? &line.target : NULL,
                                   "C", &product, &err);
        if (status == TR_OK)
            tri_calc_report_product(&calc, &product, &out);
    }
    assert_true(status != TR_OK || (out.length > 0 && !out.failed));
    tri_text_fini(&out);
    return status;
}

static void errors_point(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int at;
        const char *says;
    } rows[] = {
        {"", 0, "the name of an array"},
        {"A", 1, "a [ must stand"},
        {"A[", 2, "the letter of a dim"},
        {"A[I", 3, "a , or ]"},
        {"A[I,]", 4, "the letter of a dim"},
        {"A[I:]", 4, "a whole number"},
        {"A[I:0]", 4, "at least 1"},
        {"A[I:12k]", 6, "plain whole numbers"},
        {"A[I:9999999999999999]", 4, "too large"},
        {"A[I:99999999999999999999999999]", 4, "too large"},
        {"A[I@q]", 4, "the axes of the mesh are x, y"},
        {"A[I@xx]", 5, "twice"},
        {"A[I@x,J@x]", 8, "cuts another dim already"},
        {"A[I,I]", 4, "twice"},
        {"A[I:2,J] . B[J,I:3]", 17, "another size"},
        {"A[I]{x}", 5, "{P:x} or {U_x}"},
        {"A[I]{P:x", 8, "a } is missing"},
        {"A[I@x]{P:x}", 9, "not both"},
        {"A[I] B[J]", 5, "nothing more"},
        {"A[I] ->", 7, "the name of an array"},
        {"A[I]->B[J]", 6, "must be the same"},
        {"A[I]->A[I,J]", 6, "must be the same"},
        {"A[I]->A[I]{P:x}", 6, "only a product makes terms"},
        {"A[I,J].B[J,K]->C[I,J]", 9, "stands in both operands and in the result"},
        {"A[I,J].B[J,K]->C[I,K,L]", 15, "must be the same"},
        {"A[I,J@xy].B[J@yx,K]", 12, "do not meet"},
        {"A[I,J@xy].B[J@y,K]", 12, "do not meet"},
        {"Abcdefghijklmnop[I]", 0, "too long"},
        {"A[a,b,c,d,e,f,g]", 14, "too many dims"},
        {"A[a,b,c,d,e,f].B[g,h,i,j,k,l]", 15, "more than 6 dims"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char where[40];
        begin("x:4,y:2", "bf16");
        if (run_text(rows[i].text) != TR_ERROR_INPUT)
            fail_msg("%s is accepted", rows[i].text);
        if (calc.error_at != rows[i].at)
            fail_msg("%s: %s (at %d, not %d)", rows[i].text, err.message, calc.error_at,
                     rows[i].at);
        snprintf(where, sizeof where, "character %d:", rows[i].at + 1);
        assert_has(err.message, where);
        assert_has(err.message, rows[i].says);
    }
}

static void wrong_meshes(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "x",
                                        "x:",
                                        "x:0",
                                        "x:4,",
                                        "x:4y",
                                        "x:4,x:2",
                                        "x:65536",
                                        "x:999,y:99",
                                        "4:x",
                                        "x:-1",
                                        "x:4 y:2",
                                        "a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        begin(NULL, "bf16");
        if (tri_calc_parse_mesh(&calc, texts[i], &err) != TR_ERROR_INPUT)
            fail_msg("the mesh \"%s\" is accepted", texts[i]);
        assert_true(calc.error_at >= 0 && calc.error_at <= (int)strlen(texts[i]));
    }
    begin("x:2", "bf16");
    static tri_calc_training t;
    assert_int_equal(tri_calc_train(&calc, "fsdp+tp", 0, &t, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_calc_train(&calc, "pp", 0, &t, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_calc_train(&calc, "dp", 1, &t, &err), TR_ERROR_INPUT);
    begin(NULL, "bf16");
    assert_int_equal(tri_calc_train(&calc, "dp", 0, &t, &err), TR_ERROR_INPUT);
}

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return *seed * 2685821657736338717u;
}

/* Lines that are nearly right, and noise: never a crash, and an error lies within the text. */
static void fuzzed(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "A[I:256@xy, J:2048]",
        "A[I:64@x,J:7@y]{P:z} -> A[I,J@z]",
        "A[I@x,J@y] . B[J@y,K@z] -> C[I,K@x]",
        "A[I, J@xyz] \u00b7 B[J@x, K] \u2192 C[I, K]{U_x}",
        "bf16[B:3,T:5@z,D@xy] * W[D@xy,F:999999999999999]",
    };
    static const char pieces[] = "ABIJK[]{}@:,.*->PU_xyzw0123456789 \xc2\xb7\xe2\x86\x92";
    uint64_t seed = 12345, accepted = 0;
    for (int round = 0; round < 60000; round++) {
        char text[200];
        int length = snprintf(text, sizeof text, "%s", seeds[next(&seed) % 5]);
        int edits = (int)(next(&seed) % 6);
        for (int e = 0; e < edits && length > 1; e++) {
            int at = (int)(next(&seed) % (uint64_t)length);
            char piece = pieces[next(&seed) % (sizeof pieces - 1)];
            switch (next(&seed) % 4) {
            case 0:
                text[at] = piece;
                break;
            case 1:
                memmove(text + at, text + at + 1, (size_t)(length - at));
                length--;
                break;
            case 2:
                memmove(text + at + 1, text + at, (size_t)(length - at + 1));
                text[at] = piece;
                length++;
                break;
            default:
                text[at] = 0;
                length = at;
            }
        }
        begin("x:4,y:2,z:3", "bf16");
        calc.device = tri_device_spec_at(round % 9);
        calc.link = tri_link_spec_at(round % 9);
        tr_status status = run_text(text);
        accepted += status == TR_OK;
        assert_true(status == TR_OK || status == TR_ERROR_INPUT);
        if (status != TR_OK)
            assert_true(calc.error_at >= 0 && calc.error_at <= length && err.message[0]);
    }
    assert_true(accepted > 5000 && accepted < 55000); /* it does both */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_cases),
        cmocka_unit_test(the_smaller_is_gathered),
        cmocka_unit_test(several_axes),
        cmocka_unit_test(gathered_along),
        cmocka_unit_test(as_the_pass_does),
        cmocka_unit_test(work_of_a_product),
        cmocka_unit_test(moves_between_placements),
        cmocka_unit_test(bytes_of_moves),
        cmocka_unit_test(times_of_moves),
        cmocka_unit_test(sharded_array),
        cmocka_unit_test(uneven_picture),
        cmocka_unit_test(letters_stay_letters),
        cmocka_unit_test(training_steps),
        cmocka_unit_test(training_bounds),
        cmocka_unit_test(advice_divides),
        cmocka_unit_test(devices_and_links),
        cmocka_unit_test(devices_by_product),
        cmocka_unit_test(memory_of_training),
        cmocka_unit_test(errors_point),
        cmocka_unit_test(wrong_meshes),
        cmocka_unit_test(fuzzed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
