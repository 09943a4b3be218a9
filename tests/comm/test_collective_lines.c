/* Times of collectives on paper, and from what size on which algorithm is the fastest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "collective/lines.h"

static const tri_coll_prices paper = {.alpha = 5e-6, .beta = 1 / 50e9};

static void assert_near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected)))
        fail_msg("%.10g, not %.10g", value, expected);
}

static tri_coll_line line_of(const char *text, tri_coll coll, int num_ranks)
{
    const tri_algorithm *algorithm;
    tri_coll_shape shape = tri_shape_flat(num_ranks);
    tr_error err = {0};
    if (tri_algorithm_parse(text, &algorithm, &shape, &err) != TR_OK)
        fail_msg("%s", err.message);
    return tri_coll_line_of(algorithm, coll, &shape, &paper);
}

/* 64 ranks, 1 GB and 10 kB, 5 us, 50 GB/s. */
static void ring_and_rabenseifner(void **state)
{
    (void)state;
    tri_coll_line ring = line_of("ring", TRI_COLL_ALL_REDUCE, 64);
    tri_coll_line halves = line_of("rabenseifner", TRI_COLL_ALL_REDUCE, 64);
    assert_near(ring.fixed + 1e9 * ring.per_byte, 40.0e-3, 2e-4);
    assert_near(halves.fixed + 1e9 * halves.per_byte, 39.4e-3, 1e-3);
    assert_near(ring.fixed + 1e4 * ring.per_byte, 0.630e-3, 1e-3);
    assert_near(halves.fixed + 1e4 * halves.per_byte, 0.060e-3, 1e-2);
    assert_near(ring.messages, 2 * 63, 0);
    assert_near(halves.messages, 2 * 6, 0);
    assert_near(line_of("doubling", TRI_COLL_ALL_REDUCE, 64).messages, 6, 0);
    assert_near(line_of("doubling", TRI_COLL_ALL_REDUCE, 64).bytes, 6, 0);
}

/* What a rank sends of 1 GB over a torus and a mesh of 8 x 4, and of 350 GB over a ring of 8. */
static void traffic(void **state)
{
    (void)state;
    tri_coll_line torus = line_of("torus2d:8x4", TRI_COLL_ALL_REDUCE, 32);
    tri_coll_line mesh = line_of("mesh2d:8x4", TRI_COLL_ALL_REDUCE, 32);
    assert_near(torus.bytes, 1.9375, 1e-12);
    assert_near(torus.outer_bytes, 0.1875, 1e-12);
    assert_near(mesh.bytes, 3.25, 1e-12);
    assert_string_equal(torus.name, "torus2d:8x4");
    assert_string_equal(line_of("torus2d", TRI_COLL_ALL_REDUCE, 64).name, "torus2d:8x8");
    assert_string_equal(line_of("ring", TRI_COLL_ALL_REDUCE, 64).name, "ring");
    assert_near(350 * line_of("ring", TRI_COLL_ALL_REDUCE, 8).bytes, 612.5, 1e-12);
    /* Of an all_to_all S is what one rank has: all but its own block leaves. */
    assert_near(line_of("pairwise", TRI_COLL_ALL_TO_ALL, 8).bytes, 7.0 / 8, 1e-12);
}

/* What lines say is the lowest is, at sizes between, among all algorithms. */
static void lowest_everywhere(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 7, 8, 12, 64, 100};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int c = 0; c < TRI_NUM_COLLS; c++) {
            tri_coll_line lines[TRI_COLL_MAX_LINES];
            tri_coll_best best[TRI_COLL_MAX_LINES];
            tri_coll_shape shape = tri_shape_flat(sizes[n]);
            int num = 0;
            for (size_t i = 0; tri_algorithm_at(i); i++)
                if (tri_algorithm_supports(tri_algorithm_at(i), (tri_coll)c, &shape))
                    lines[num++] =
                        tri_coll_line_of(tri_algorithm_at(i), (tri_coll)c, &shape, &paper);
            int num_best = tri_coll_best_of(lines, num, best);
            assert_true(num == 0 ? num_best == 0 : num_best >= 1);
            for (double bytes = 1; bytes < 1e12; bytes *= 1.7) {
                int at = 0;
                while (at + 1 < num_best && best[at + 1].bytes <= bytes)
                    at++;
                for (int i = 0; i < num; i++) {
                    const tri_coll_line *low = &lines[best[at].line];
                    assert_true(low->fixed + low->per_byte * bytes <=
                                (lines[i].fixed + lines[i].per_byte * bytes) * (1 + 1e-8));
                }
            }
        }
}

/* Doubling's 6 (alpha + S beta) meets Rabenseifner's 12 alpha + 63/32 S beta at 372 kB. */
static void crossing(void **state)
{
    (void)state;
    tri_coll_line lines[] = {line_of("ring", TRI_COLL_ALL_REDUCE, 64),
                             line_of("rabenseifner", TRI_COLL_ALL_REDUCE, 64),
                             line_of("doubling", TRI_COLL_ALL_REDUCE, 64)};
    tri_coll_best best[TRI_COLL_MAX_LINES];
    assert_int_equal(tri_coll_best_of(lines, 3, best), 2);
    assert_int_equal(best[0].line, 2);
    assert_int_equal(best[1].line, 1);
    assert_near(best[1].bytes, 6 * 5e-6 * 50e9 / (6 - 63.0 / 32), 1e-9);
}

/* The line is the formula, at every size. */
static void lines_are_formulas(void **state)
{
    (void)state;
    tri_coll_shape shape = tri_shape_flat(12);
    for (size_t i = 0; tri_algorithm_at(i); i++)
        for (int c = 0; c < TRI_NUM_COLLS; c++) {
            const tri_algorithm *a = tri_algorithm_at(i);
            if (!tri_algorithm_supports(a, (tri_coll)c, &shape))
                continue;
            tri_coll_line line = tri_coll_line_of(a, (tri_coll)c, &shape, &paper);
            for (double bytes = 12; bytes < 1e12 && c != TRI_COLL_BARRIER; bytes *= 1000) {
                double whole = c == TRI_COLL_ALL_TO_ALL ? 12 * bytes : bytes;
                tri_coll_cost cost = a->cost((tri_coll)c, &shape, whole);
                assert_near(line.fixed + line.per_byte * bytes,
                            cost.alpha_count * paper.alpha + cost.beta_bytes * paper.beta, 1e-9);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_and_rabenseifner), cmocka_unit_test(traffic),
        cmocka_unit_test(lowest_everywhere),     cmocka_unit_test(crossing),
        cmocka_unit_test(lines_are_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
