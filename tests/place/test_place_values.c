/* Lines of the calculator, carried out with numbers: the products of textbooks, and random ones,
 * whose every element is compared with a product made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/place_values.h"

static tri_calc calc;
static tr_error err;

static void begin(const char *mesh)
{
    err.message[0] = 0;
    assert_int_equal(tri_calc_init(&calc, &err), TR_OK);
    if (mesh)
        assert_int_equal(tri_calc_parse_mesh(&calc, mesh, &err), TR_OK);
}

static tr_status run_line(const char *text, const char *typed, tri_valued_run *run)
{
    tri_calc_line line;
    tri_values values;
    tr_status status = tri_calc_parse_line(&calc, text, &line, &err);
    if (status == TR_OK)
        status = tri_values_parse(typed, &values, &err);
    if (status != TR_OK)
        return status;
    status = tri_values_run(&calc, &line, &values, run, &err);
    tri_values_fini(&values);
    return status;
}

static const tri_valued_step *last_of(const tri_valued_run *run)
{
    return &run->steps[run->num_steps - 1];
}

static void assert_numbers(const int64_t *found, const int64_t *wanted, int num)
{
    for (int i = 0; i < num; i++)
        if (found[i] != wanted[i])
            fail_msg("element %d is %lld, not %lld", i, (long long)found[i], (long long)wanted[i]);
}

static const char weights[] = "X=[1,2,0,1] W=[[1,2,5,6],[3,4,7,8],[2,0,3,1],[-1,4,8,2]]";

/* The columns of the weights divided: each device has its columns of the result. */
static void columns(void **state)
{
    (void)state;
    tri_valued_run run;
    begin("x:2");
    assert_int_equal(run_line("X[J:4] . W[J, K:4@x] -> Y[K@x]", weights, &run), TR_OK);
    assert_int_equal(run.num_steps, 3); /* no collective */
    assert_numbers(last_of(&run)->local[0], (int64_t[]){6, 14}, 2);
    assert_numbers(last_of(&run)->local[1], (int64_t[]){27, 24}, 2);
    assert_false(run.counted);
    tri_valued_run_fini(&run);
}

/* The rows divided: terms, and their sum. */
static void rows(void **state)
{
    (void)state;
    tri_valued_run run;
    begin("x:2");
    assert_int_equal(run_line("X[J:4@x] . W[J@x, K:4] -> Y[K]", weights, &run), TR_OK);
    assert_int_equal(run.num_steps, 4);
    assert_string_equal(run.steps[2].what, "product");
    assert_numbers(run.steps[2].local[0], (int64_t[]){7, 10, 19, 22}, 4);
    assert_numbers(run.steps[2].local[1], (int64_t[]){-1, 4, 8, 2}, 4);
    assert_string_equal(run.steps[3].what, "all-reduce");
    for (int r = 0; r < 2; r++)
        assert_numbers(run.steps[3].local[r], (int64_t[]){6, 14, 27, 24}, 4);
    tri_valued_run_fini(&run);
}

/* Device k of the terms has k everywhere, the first the rest. */
static void terms(void **state)
{
    (void)state;
    tri_valued_run run;
    begin("x:3");
    assert_int_equal(run_line("G[N:5]{P:x} -> G[N@x]", "G=10,20,30,40,50", &run), TR_OK);
    assert_numbers(run.steps[0].local[0], (int64_t[]){7, 17, 27, 37, 47}, 5);
    assert_numbers(run.steps[0].local[2], (int64_t[]){2, 2, 2, 2, 2}, 5);
    assert_string_equal(run.steps[1].what, "reduce-scatter");
    assert_numbers(run.steps[1].local[0], (int64_t[]){10, 20}, 2);
    assert_numbers(run.steps[1].local[2], (int64_t[]){50}, 1);
    tri_valued_run_fini(&run);
}

/* ---- random products ---- */

static uint64_t seed = 88172645463325252u;

static int below(int n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (int)(seed % (uint64_t)n);
}

/* "I:5@xz", with axes that are not used yet. */
static void add_dim(char *text, const char *letter, int size, unsigned *used)
{
    char *at = text + strlen(text);
    bool cut = false;
    at += sprintf(at, "%s:%d", letter, size);
    for (int k = 0; k < 3; k++) {
        int axis = below(3);
        if (*used >> axis & 1 || below(2))
            continue;
        at += sprintf(at, "%s%c", cut ? "" : "@", "xyz"[axis]);
        *used |= 1u << axis;
        cut = true;
    }
}

static void add_matrix(char *text, const char *name, const char *rows_letter, int num_rows,
                       const char *columns_letter, int num_columns)
{
    unsigned used = 0;
    sprintf(text + strlen(text), "%s[", name);
    add_dim(text, rows_letter, num_rows, &used);
    strcat(text, ", ");
    add_dim(text, columns_letter, num_columns, &used);
    strcat(text, "]");
}

/* With 1, 2, 3, ... in A and B. */
static int64_t product_at(int i, int k, int size_j, int size_k)
{
    int64_t sum = 0;
    for (int j = 0; j < size_j; j++)
        sum += (int64_t)(i * size_j + j + 1) * (j * size_k + k + 1);
    return sum;
}

static void check_product(const tri_valued_run *run, const int sizes[3], const char *text)
{
    const tri_valued_step *last = last_of(run);
    for (int r = 0; r < run->num_ranks; r++) {
        int64_t begin_of[2], size[2], at = 0;
        for (int d = 0; d < 2; d++) {
            int shard = 0;
            for (int c = 0; c < last->array.dims[d].num_cuts; c++) {
                int axis = last->array.dims[d].cuts[c], faster = 1;
                for (int a = axis + 1; a < calc.num_axes; a++)
                    faster *= calc.axes[a].size;
                shard = shard * calc.axes[axis].size + r / faster % calc.axes[axis].size;
            }
            size[d] = tri_calc_piece(&calc, &last->array.dims[d], shard, &begin_of[d]);
        }
        for (int64_t i = 0; i < size[0]; i++)
            for (int64_t k = 0; k < size[1]; k++, at++)
                if (last->local[r][at] !=
                    product_at((int)(begin_of[0] + i), (int)(begin_of[1] + k), sizes[1], sizes[2]))
                    fail_msg("%s: device %d, element %lld", text, r, (long long)at);
    }
}

static void random_products(void **state)
{
    (void)state;
    int ran = 0, moved = 0;
    for (int round = 0; round < 150; round++) {
        int sizes[3] = {1 + below(7), 1 + below(7), 1 + below(7)};
        char text[300] = "";
        tri_valued_run run;
        begin("x:2,y:3,z:2");
        add_matrix(text, "A", "I", sizes[0], "J", sizes[1]);
        strcat(text, " . ");
        add_matrix(text, "B", "J", sizes[1], "K", sizes[2]);
        strcat(text, " -> ");
        add_matrix(text, "C", "I", sizes[0], "K", sizes[2]);
        tr_status status = run_line(text, "", &run);
        if (status == TR_ERROR_INPUT && strstr(err.message, "do not meet"))
            continue;
        if (status != TR_OK)
            fail_msg("%s: %s", text, err.message);
        check_product(&run, sizes, text);
        ran++;
        moved += run.num_steps > 3;
        tri_valued_run_fini(&run);
    }
    assert_true(ran > 60 && moved > 50);
}

static void mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *mesh, *line, *typed, *says;
    } wrong[] = {
        {"x:2", "A[I@x, J:2]", "", "size of every letter, and I has none"},
        {"x:2", "A[I:2@x]", "A=1,2,3", "A 3 numbers, and it has 2 elements"},
        {"x:2", "A[I:2@x]", "B=1,2", "to B, which is no operand; there is A"},
        {"x:2", "A[I:2@x] . B[I@x]", "C=1", "there are A and B"},
        {"x:2", "A[I:2@x]", "A=1,x", "at \"x\"; expected the name"},
        {"x:2", "A[I:2@x]", "A=1,2.5", "is not a whole number"},
        {"x:2", "A[I:2@x]", "A", "expected the name of an array"},
        {"x:2", "A[I:2@x]", "=1", "expected the name of an array"},
        {"x:2", "A[I:2@x]", "A=99999999,1", "from -1000000 to 1000000"},
        {"x:2", "A[I:5000@x]", "", "up to 4096"},
        {"x:65", "A[I:2@x]", "", "64 at most; the mesh has 65"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tri_valued_run run;
        begin(wrong[i].mesh);
        tr_status status = run_line(wrong[i].line, wrong[i].typed, &run);
        if (status != TR_ERROR_INPUT)
            fail_msg("%s with %s is accepted", wrong[i].line, wrong[i].typed);
        if (!strstr(err.message, wrong[i].says))
            fail_msg("%s: %s", wrong[i].typed, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns),         cmocka_unit_test(rows),     cmocka_unit_test(terms),
        cmocka_unit_test(random_products), cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
