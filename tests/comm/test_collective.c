/* Collective algorithms: every operation, algorithm, number of ranks and root through the checkers
 * of collective_check.h, the textbook numbers, and the checkers themselves on broken rounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collective_check.h"

#include <math.h>
#include <string.h>

static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16};
enum { NUM_SIZES = sizeof sizes / sizeof *sizes };

static bool make_shaped(coll_call *c, const tri_algorithm *algorithm, tri_coll coll,
                        tri_coll_shape shape, int root)
{
    *c = (coll_call){
        .algorithm = algorithm, .coll = coll, .size = shape.size, .root = root, .shape = shape};
    tr_error err = {0};
    bool supported = tri_algorithm_supports(algorithm, coll, &shape);
    tr_status status = tri_algorithm_rounds(algorithm, coll, &shape, root, &c->rounds, &err);
    assert_int_equal(status, supported ? TR_OK : TR_ERROR_INPUT);
    assert_int_equal(supported, !err.message[0]);
    return supported;
}

static bool make_call(coll_call *c, const tri_algorithm *algorithm, tri_coll coll, int size,
                      int root)
{
    return make_shaped(c, algorithm, coll, tri_shape_flat(size), root);
}

static void check_call(coll_call *c, void (*check)(const coll_call *c, coll_fault why))
{
    coll_fault why = "";
    check(c, why);
    if (*why)
        fail_msg("%s %s, %d ranks (%dx%dx%d), root %d: %s", c->algorithm->name,
                 tri_coll_name(c->coll), c->size, c->shape.dim[0], c->shape.dim[1], c->shape.dim[2],
                 c->root, why);
    tri_rounds_free(&c->rounds);
}

/* Runs a check on every operation x algorithm x size x root; a fault ends the test. */
static void for_all_calls(void (*check)(const coll_call *c, coll_fault why))
{
    coll_call c;
    for (size_t a = 0; tri_algorithm_at(a); a++)
        for (int coll = 0; coll < TRI_NUM_COLLS; coll++)
            for (int i = 0; i < NUM_SIZES; i++)
                for (int root = 0; root < sizes[i]; root++) {
                    if (!make_call(&c, tri_algorithm_at(a), (tri_coll)coll, sizes[i], root))
                        continue;
                    check_call(&c, check);
                }
    /* Grids that nobody would choose, too. */
    static const tri_coll_shape shapes[] = {
        {6, 2, {2, 3}},     {6, 2, {6, 1}},     {6, 2, {1, 6}},     {12, 2, {4, 3}},
        {12, 2, {2, 6}},    {15, 2, {3, 5}},    {16, 2, {2, 8}},    {8, 3, {2, 2, 2}},
        {12, 3, {3, 2, 2}}, {12, 3, {2, 1, 6}}, {16, 3, {2, 4, 2}}, {5, 2, {5, 1}},
    };
    for (size_t a = 0; tri_algorithm_at(a); a++)
        for (int coll = 0; coll < TRI_NUM_COLLS; coll++)
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
                for (int root = 0; root < shapes[i].size; root += 5)
                    if (make_shaped(&c, tri_algorithm_at(a), (tri_coll)coll, shapes[i], root))
                        check_call(&c, check);
}

static void rounds_are_well_formed(void **state)
{
    (void)state;
    for_all_calls(coll_check_form);
}

static void results_are_exact(void **state)
{
    (void)state;
    for_all_calls(coll_check_result);
}

static void formulas_are_the_rounds(void **state)
{
    (void)state;
    for_all_calls(coll_check_time);
}

/* ---- textbook numbers ---- */

static double seconds(const tri_algorithm *algorithm, int size, double bytes, double alpha,
                      double beta)
{
    tri_coll_shape shape = tri_shape_flat(size);
    tri_coll_cost cost = algorithm->cost(TRI_COLL_ALL_REDUCE, &shape, bytes);
    return cost.alpha_count * alpha + cost.beta_bytes * beta;
}

static void assert_close(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g", value, expected);
}

static void ring_time_of_the_textbook(void **state)
{
    (void)state;
    assert_close(seconds(&tri_algorithm_ring, 64, 1e9, 5e-6, 1 / 50e9), 40.0e-3, 0.05e-3);
    assert_close(seconds(&tri_algorithm_ring, 64, 1e4, 5e-6, 1 / 50e9), 0.630e-3, 0.0005e-3);
    for (int n = 1; n < 70; n++)
        assert_close(seconds(&tri_algorithm_ring, n, 1e6, 5e-6, 1e-9),
                     2 * (n - 1) * (5e-6 + 1e6 / n * 1e-9), 1e-15);
}

/* a > b > c > d, chunk i starts at rank i: chunks 0, 1, 2, 3 end at d, a, b, c. */
static void ring_ownership_of_the_textbook(void **state)
{
    (void)state;
    static const int owner[] = {3, 0, 1, 2};
    coll_call c;
    coll_world w;
    make_call(&c, &tri_algorithm_ring, TRI_COLL_ALL_REDUCE, 4, 0);
    coll_make_world(&w, &c, 2);
    coll_fill_world(&w, &c);
    coll_run_rounds(&w, &c, 3);
    for (uint32_t p = 0; p < 4; p++)
        for (int rank = 0; rank < 4; rank++)
            for (size_t e = w.begin[p]; e < w.begin[p + 1]; e++) {
                bool complete = w.data[(size_t)rank * w.count + e] == coll_expected_value(&c, p, e);
                assert_int_equal(complete, rank == owner[p]);
            }
    for (int i = 0; i < 4; i++) { /* and it is chunk i that rank i sends first */
        assert_int_equal(c.rounds.transfers[i].from, i);
        assert_int_equal(c.rounds.transfers[i].first_piece, i);
    }
    coll_free_world(&w);
    tri_rounds_free(&c.rounds);
}

static void assert_traffic(const coll_call *c, int rank, uint64_t bytes, tri_coll_traffic expected)
{
    tri_coll_traffic t = tri_rounds_traffic(&c->rounds, rank, bytes);
    if (memcmp(&t, &expected, sizeof t) != 0)
        fail_msg("%s %s rank %d of %d: sent %llu in %llu, received %llu in %llu, %llu rounds",
                 c->algorithm->name, tri_coll_name(c->coll), rank, c->size,
                 (unsigned long long)t.bytes_sent, (unsigned long long)t.messages_sent,
                 (unsigned long long)t.bytes_received, (unsigned long long)t.messages_received,
                 (unsigned long long)t.rounds);
}

/* Operations in which all ranks do the same: `passes` times S(N-1)/N each way, in as many messages
 * as there are rounds, or reads. */
static void traffic_of_equal_ranks(void **state)
{
    (void)state;
    static const struct {
        tri_coll coll;
        unsigned passes;
    } cases[] = {{TRI_COLL_ALL_REDUCE, 2},
                 {TRI_COLL_ALL_GATHER, 1},
                 {TRI_COLL_REDUCE_SCATTER, 1},
                 {TRI_COLL_ALL_TO_ALL, 1}};
    const tri_algorithm *algorithms[] = {&tri_algorithm_direct, &tri_algorithm_ring};
    coll_call c;
    for (int a = 0; a < 2; a++)
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < NUM_SIZES; i++) {
                uint64_t n = (uint64_t)sizes[i], bytes = n * n * 12;
                uint64_t messages = cases[k].passes * (n - 1);
                /* In all_to_all the bytes are those of all send vectors. */
                uint64_t moved = cases[k].passes * bytes / n * (n - 1);
                moved /= cases[k].coll == TRI_COLL_ALL_TO_ALL ? n : 1;
                uint64_t rounds = a == 0 ? (n > 1 ? cases[k].passes : 0) : messages;
                make_call(&c, algorithms[a], cases[k].coll, sizes[i], 0);
                for (int rank = 0; rank < sizes[i]; rank++)
                    assert_traffic(&c, rank, bytes,
                                   (tri_coll_traffic){messages, moved, messages, moved, rounds});
                tri_rounds_free(&c.rounds);
            }
}

/* Each operation with a root: the root's part, and what all send together. */
static void traffic_with_a_root(void **state)
{
    (void)state;
    coll_call c;
    for (int i = 0; i < NUM_SIZES; i++)
        for (int root = 0; root < sizes[i]; root++) {
            uint64_t n = (uint64_t)sizes[i], bytes = n * 8, depth = 0, blocks = 8 * (n - 1),
                     all = 0;
            while ((1u << depth) < n)
                depth++;
            make_call(&c, &tri_algorithm_tree, TRI_COLL_BROADCAST, sizes[i], root);
            assert_traffic(&c, root, bytes, (tri_coll_traffic){depth, depth * bytes, 0, 0, depth});
            for (int rank = 0; rank < sizes[i]; rank++) {
                tri_coll_traffic t = tri_rounds_traffic(&c.rounds, rank, bytes);
                assert_int_equal(t.bytes_received, rank == root ? 0 : bytes);
                all += t.messages_sent;
            }
            assert_int_equal(all, n - 1);
            tri_rounds_free(&c.rounds);
            make_call(&c, &tri_algorithm_tree, TRI_COLL_REDUCE, sizes[i], root);
            assert_traffic(&c, root, bytes, (tri_coll_traffic){0, 0, depth, depth * bytes, depth});
            tri_rounds_free(&c.rounds);
            make_call(&c, &tri_algorithm_tree, TRI_COLL_GATHER, sizes[i], root);
            assert_traffic(&c, root, bytes, (tri_coll_traffic){0, 0, depth, blocks, depth});
            tri_rounds_free(&c.rounds);
            make_call(&c, &tri_algorithm_tree, TRI_COLL_SCATTER, sizes[i], root);
            assert_traffic(&c, root, bytes, (tri_coll_traffic){depth, blocks, 0, 0, depth});
            tri_rounds_free(&c.rounds);
            make_call(&c, &tri_algorithm_ring, TRI_COLL_GATHER, sizes[i], root);
            assert_traffic(&c, root, bytes, (tri_coll_traffic){0, 0, n - 1, blocks, n - 1});
            tri_rounds_free(&c.rounds);
        }
}

/* A rank takes part in few of the rounds, or reads little, when it is not the root. */
static void traffic_of_others(void **state)
{
    (void)state;
    coll_call c;
    make_call(&c, &tri_algorithm_tree, TRI_COLL_BROADCAST, 8, 0); /* 0>4, 0>2 4>6, ... 4>5 ... */
    assert_traffic(&c, 5, 80, (tri_coll_traffic){0, 0, 1, 80, 1});
    assert_traffic(&c, 4, 80, (tri_coll_traffic){2, 160, 1, 80, 3});
    tri_rounds_free(&c.rounds);
    make_call(&c, &tri_algorithm_ring, TRI_COLL_BROADCAST, 4, 1); /* 1>2>3>0 in eight pieces */
    assert_traffic(&c, 1, 80, (tri_coll_traffic){8, 80, 0, 0, 8});
    assert_traffic(&c, 2, 80, (tri_coll_traffic){8, 80, 8, 80, 9});
    assert_traffic(&c, 0, 80, (tri_coll_traffic){0, 0, 8, 80, 8});
    tri_rounds_free(&c.rounds);
    make_call(&c, &tri_algorithm_direct, TRI_COLL_REDUCE, 4, 1);
    assert_traffic(&c, 1, 80, (tri_coll_traffic){3, 60, 6, 120, 2});
    assert_traffic(&c, 0, 80, (tri_coll_traffic){4, 80, 3, 60, 2});
    tri_rounds_free(&c.rounds);
}

static void traffic_of_uneven_pieces(void **state)
{
    (void)state;
    coll_call c;
    make_call(&c, &tri_algorithm_ring, TRI_COLL_ALL_REDUCE, 8, 0); /* data parallel, 350 GB */
    assert_int_equal(tri_rounds_traffic(&c.rounds, 3, 350000000000u).bytes_sent, 612500000000u);
    for (uint64_t bytes = 0; bytes < 40; bytes++) {
        uint64_t all = 0;
        for (int rank = 0; rank < 8; rank++)
            all += tri_rounds_traffic(&c.rounds, rank, bytes).bytes_sent;
        assert_int_equal(all, 14 * bytes);
    }
    tri_rounds_free(&c.rounds);
}

/* ---- the other algorithms, against the textbook and their own formulas ---- */

static void rabenseifner_time_of_the_textbook(void **state)
{
    (void)state;
    assert_close(seconds(&tri_algorithm_rabenseifner, 64, 1e9, 5e-6, 1 / 50e9), 39.4e-3, 0.05e-3);
    assert_close(seconds(&tri_algorithm_rabenseifner, 64, 1e4, 5e-6, 1 / 50e9), 0.060e-3,
                 0.0005e-3);
}

/* What every rank sends and receives in an all_reduce on a power of two: rounds and bytes of
 * recursive doubling (log2 N rounds of S each), of halving and doubling, and of others. */
static void traffic_on_powers_of_two(void **state)
{
    (void)state;
    coll_call c;
    for (uint64_t n = 2, log = 1; n <= 16; n *= 2, log++) {
        uint64_t bytes = n * 840, others = bytes / n * (n - 1);
        const struct {
            const tri_algorithm *algorithm;
            tri_coll coll;
            tri_coll_traffic each;
        } cases[] = {
            {&tri_algorithm_doubling,
             TRI_COLL_ALL_REDUCE,
             {log, log * bytes, log, log * bytes, log}},
            {&tri_algorithm_doubling, TRI_COLL_ALL_GATHER, {log, others, log, others, log}},
            {&tri_algorithm_doubling, TRI_COLL_BARRIER, {log, 0, log, 0, log}},
            {&tri_algorithm_rabenseifner,
             TRI_COLL_ALL_REDUCE,
             {2 * log, 2 * others, 2 * log, 2 * others, 2 * log}},
            {&tri_algorithm_rabenseifner, TRI_COLL_REDUCE_SCATTER, {log, others, log, others, log}},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            make_call(&c, cases[i].algorithm, cases[i].coll, (int)n, 0);
            assert_int_equal(c.rounds.num_rounds, cases[i].each.rounds);
            for (int rank = 0; rank < (int)n; rank++)
                assert_traffic(&c, rank, bytes, cases[i].each);
            tri_rounds_free(&c.rounds);
        }
    }
}

/* Bruck, pairwise and the parameter server do the same on any number of ranks. */
static void traffic_on_any_number(void **state)
{
    (void)state;
    coll_call c;
    for (int i = 0; i < NUM_SIZES; i++) {
        uint64_t n = (uint64_t)sizes[i], bytes = n * n * 12, log = 0, hops = 0;
        uint64_t others = bytes / n * (n - 1), block = bytes / n / n;
        while ((1u << log) < n)
            log++;
        for (uint64_t away = 1; away < n; away++)
            hops += (uint64_t)__builtin_popcountll(away);
        const struct {
            const tri_algorithm *algorithm;
            tri_coll coll;
            tri_coll_traffic each;
        } cases[] = {
            {&tri_algorithm_bruck, TRI_COLL_ALL_GATHER, {log, others, log, others, log}},
            {&tri_algorithm_bruck, TRI_COLL_REDUCE_SCATTER, {log, others, log, others, log}},
            {&tri_algorithm_bruck,
             TRI_COLL_ALL_REDUCE,
             {2 * log, 2 * others, 2 * log, 2 * others, 2 * log}},
            {&tri_algorithm_bruck,
             TRI_COLL_ALL_TO_ALL,
             {log, hops * block, log, hops * block, log}},
            {&tri_algorithm_bruck, TRI_COLL_BARRIER, {log, 0, log, 0, log}},
            {&tri_algorithm_pairwise,
             TRI_COLL_ALL_TO_ALL,
             {n - 1, others / n, n - 1, others / n, n - 1}},
            {&tri_algorithm_sharded_ps,
             TRI_COLL_ALL_REDUCE,
             {2 * (n - 1), 2 * others, 2 * (n - 1), 2 * others, n > 1 ? 2 : 0}},
        };
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            make_call(&c, cases[k].algorithm, cases[k].coll, sizes[i], 0);
            for (int rank = 0; rank < sizes[i]; rank++)
                assert_traffic(&c, rank, bytes, cases[k].each);
            tri_rounds_free(&c.rounds);
        }
    }
}

/* In a pairwise exchange of an even number whoever gives to a rank gets from it. */
static void pairwise_is_mutual(void **state)
{
    (void)state;
    coll_call c;
    for (int size = 2; size <= 16; size += 2) {
        make_call(&c, &tri_algorithm_pairwise, TRI_COLL_ALL_TO_ALL, size, 0);
        assert_int_equal(c.rounds.num_rounds, size - 1);
        for (size_t r = 0; r < c.rounds.num_rounds; r++) {
            const tri_transfer *t = &c.rounds.transfers[c.rounds.first[r]];
            assert_int_equal(c.rounds.first[r + 1] - c.rounds.first[r], size);
            for (int i = 0; i < size; i++)
                assert_int_equal(t[t[i].to].to, i);
        }
        tri_rounds_free(&c.rounds);
    }
}

/* 8 x 4 ranks, 1 GB: 1.9375 GB in the torus, 0.1875 of it between machines; 3.25 GB in the mesh. */
static void grids_of_the_textbook(void **state)
{
    (void)state;
    coll_call c;
    const tri_coll_shape shape = {32, 2, {8, 4}};
    const uint64_t gigabyte = 1000000000 / 32 * 32;
    const struct {
        const tri_algorithm *algorithm;
        double sent, outer;
    } cases[] = {{&tri_algorithm_torus2d, 1.9375, 0.1875}, {&tri_algorithm_mesh2d, 3.25, 1.5}};
    for (int k = 0; k < 2; k++) {
        tri_coll_cost cost =
            cases[k].algorithm->cost(TRI_COLL_ALL_REDUCE, &shape, (double)gigabyte);
        assert_close(cost.beta_bytes, cases[k].sent * (double)gigabyte, 1e-3);
        assert_close(cost.outer_beta_bytes, cases[k].outer * (double)gigabyte, 1e-3);
        make_shaped(&c, cases[k].algorithm, TRI_COLL_ALL_REDUCE, shape, 0);
        for (int rank = 0; rank < 32; rank++) {
            uint64_t bytes = (uint64_t)(cases[k].sent * (double)gigabyte + 0.5);
            assert_traffic(&c, rank, gigabyte, (tri_coll_traffic){20, bytes, 20, bytes, 20});
        }
        uint64_t outer = 0; /* what rank 0 sends to other machines, counted */
        for (size_t i = 0; i < c.rounds.first[c.rounds.num_rounds]; i++) {
            const tri_transfer *t = &c.rounds.transfers[i];
            if (t->from == 0 && t->to / 8 != 0)
                outer += t->num_pieces * (gigabyte / c.rounds.num_pieces);
        }
        assert_close((double)outer, cases[k].outer * (double)gigabyte, 1e-3);
        tri_rounds_free(&c.rounds);
    }
}

/* Between machines only leaders speak. */
static void leaders_speak_for_their_machine(void **state)
{
    (void)state;
    coll_call c;
    for (int coll = 0; coll < TRI_NUM_COLLS; coll++)
        for (int root = 0; root < 12; root += 5) {
            if (!make_shaped(&c, &tri_algorithm_hierarchical, (tri_coll)coll,
                             (tri_coll_shape){12, 2, {4, 3}}, root))
                continue;
            bool rooted = coll == TRI_COLL_BROADCAST || coll == TRI_COLL_REDUCE ||
                          coll == TRI_COLL_GATHER || coll == TRI_COLL_SCATTER;
            int leader = rooted ? root % 4 : 0, between = 0;
            for (size_t i = 0; i < c.rounds.first[c.rounds.num_rounds]; i++) {
                const tri_transfer *t = &c.rounds.transfers[i];
                if (t->from / 4 == t->to / 4)
                    continue;
                between++;
                assert_int_equal(t->from % 4, leader);
                assert_int_equal(t->to % 4, leader);
            }
            assert_true(between > 0);
            tri_rounds_free(&c.rounds);
        }
}

/* Nobody sends or gets two pieces in one round, and streaming fills the trees: 2 K rounds for the
 * pieces, and a few for each level. */
static void double_tree_streams(void **state)
{
    (void)state;
    coll_call c;
    for (int size = 3; size <= 64; size++) {
        int levels = 0, busy[64];
        while ((1 << levels) < size)
            levels++;
        make_call(&c, &tri_algorithm_double_tree, TRI_COLL_BROADCAST, size, size / 2);
        assert_int_equal(c.rounds.num_pieces, 4 * levels);
        assert_true(c.rounds.num_rounds <=
                    (size_t)(c.rounds.num_pieces + 2 * (uint32_t)levels + 1));
        for (size_t r = 0; r < c.rounds.num_rounds; r++) {
            memset(busy, 0, sizeof busy);
            for (size_t i = c.rounds.first[r]; i < c.rounds.first[r + 1]; i++) {
                assert_int_equal(busy[c.rounds.transfers[i].from] & 1, 0);
                assert_int_equal(busy[c.rounds.transfers[i].to] & 2, 0);
                busy[c.rounds.transfers[i].from] |= 1;
                busy[c.rounds.transfers[i].to] |= 2;
            }
        }
        for (int rank = 0; rank < size; rank++) { /* nobody sends more than the root does: S */
            tri_coll_traffic t = tri_rounds_traffic(&c.rounds, rank, c.rounds.num_pieces * 8);
            assert_true(t.bytes_sent <= c.rounds.num_pieces * 8);
            assert_int_equal(t.bytes_received, rank == size / 2 ? 0 : c.rounds.num_pieces * 8);
        }
        tri_rounds_free(&c.rounds);
    }
}

/* Links that differ: a machine's ranks share its link. Two machines of two, a ring: in each of the
 * six rounds one message crosses each way. Doubling: in its second round both ranks cross. */
static void links_of_machines_are_shared(void **state)
{
    (void)state;
    coll_call c;
    tri_coll_prices near = {0, 1, 0}, far = {0, 10, 0};
    make_call(&c, &tri_algorithm_ring, TRI_COLL_ALL_REDUCE, 4, 0);
    assert_close(tri_rounds_time(&c.rounds, 4, 400, false, &near, &far, 2), 6 * 100 * 10, 1e-9);
    tri_rounds_free(&c.rounds);
    make_call(&c, &tri_algorithm_doubling, TRI_COLL_ALL_REDUCE, 4, 0);
    assert_close(tri_rounds_time(&c.rounds, 4, 400, false, &near, &far, 2), 400 + 2 * 400 * 10,
                 1e-9);
    tri_rounds_free(&c.rounds);
    make_shaped(&c, &tri_algorithm_hierarchical, TRI_COLL_ALL_REDUCE,
                (tri_coll_shape){4, 2, {2, 2}}, 0);
    assert_close(tri_rounds_time(&c.rounds, 4, 400, false, &near, &far, 2),
                 400 + 2 * 200 * 10 + 400, 1e-9);
    tri_rounds_free(&c.rounds);
}

static void refusals_name_the_nearest(void **state)
{
    (void)state;
    tri_rounds rounds;
    const tri_algorithm *algorithm;
    tr_error err = {0};
    tri_coll_shape shape = tri_shape_flat(7);
    assert_int_equal(
        tri_algorithm_rounds(&tri_algorithm_torus2d, TRI_COLL_ALL_REDUCE, &shape, 0, &rounds, &err),
        TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "nearest number it works for is 6"));
    assert_int_equal(
        tri_algorithm_rounds(&tri_algorithm_torus3d, TRI_COLL_ALL_REDUCE, &shape, 0, &rounds, &err),
        TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "is 8"));
    assert_int_equal(tri_algorithm_rounds(&tri_algorithm_pairwise, TRI_COLL_ALL_REDUCE, &shape, 0,
                                          &rounds, &err),
                     TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "has no all_reduce"));
    shape = tri_shape_flat(32);
    assert_int_equal(tri_algorithm_parse("torus2d:8x4", &algorithm, &shape, &err), TR_OK);
    assert_ptr_equal(algorithm, &tri_algorithm_torus2d);
    assert_int_equal(shape.num_dims, 2);
    assert_int_equal(shape.dim[0], 8);
    static const char *const wrong[] = {"torus2d:8x5",    "torus2d:",      "torus2d:8x4x",
                                        "torus2d:ax4",    "torus2d:-8x-4", "tours2d",
                                        "torus2d:2x2x2x4"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(tri_algorithm_parse(wrong[i], &algorithm, &shape, &err), TR_ERROR_INPUT);
}

/* ---- the checkers on broken rounds ---- */

static void expect_fault(void (*check)(const coll_call *c, coll_fault why), const coll_call *c,
                         const char *text)
{
    coll_fault why = "";
    check(c, why);
    if (!*why || !strstr(why, text))
        fail_msg("expected \"%s\", got \"%s\"", text, why);
}

static void faults_of_form_are_found(void **state)
{
    (void)state;
    coll_call c;
    make_call(&c, &tri_algorithm_ring, TRI_COLL_ALL_REDUCE, 4, 0);
    tri_transfer *t = c.rounds.transfers, kept[3];
    memcpy(kept, t, sizeof kept);
    t[1].to = 1;
    expect_fault(coll_check_form, &c, "to itself");
    t[1] = kept[1];
    t[1].to = 4;
    expect_fault(coll_check_form, &c, "no such rank");
    t[1] = kept[1];
    t[1].first_piece = 4;
    expect_fault(coll_check_form, &c, "no such piece");
    t[1].first_piece = 0; /* rank 0 has just added to what rank 1 now sends on */
    expect_fault(coll_check_form, &c, "read and written");
    t[1] = kept[1];
    t[1].num_pieces = 0;
    expect_fault(coll_check_form, &c, "moves nothing");
    t[1] = kept[2];
    t[2] = kept[1];
    expect_fault(coll_check_form, &c, "not sorted");
    memcpy(t, kept, sizeof kept);
    c.rounds.first[1] = 0;
    expect_fault(coll_check_form, &c, "empty");
    tri_rounds_free(&c.rounds);

    /* Many terms go into one piece: all combine, or one of them would be lost. */
    make_call(&c, &tri_algorithm_direct, TRI_COLL_ALL_REDUCE, 4, 0);
    c.rounds.transfers[0].combine = false;
    expect_fault(coll_check_form, &c, "twice");
    tri_rounds_free(&c.rounds);
}

/* Each transfer of each operation is left out, or combines where it should replace. */
static void faults_of_result_are_found(void **state)
{
    (void)state;
    coll_call c;
    for (int coll = 0; coll < TRI_NUM_COLLS; coll++) {
        if (coll == TRI_COLL_BARRIER)
            continue;
        make_call(&c, &tri_algorithm_ring, (tri_coll)coll, 4, 2);
        for (size_t i = 0; i < c.rounds.first[c.rounds.num_rounds]; i++) {
            tri_transfer *t = &c.rounds.transfers[i], kept = *t;
            t->num_pieces = 0;
            expect_fault(coll_check_result, &c, "wrong piece");
            *t = kept;
            t->combine = !t->combine;
            expect_fault(coll_check_result, &c, "wrong piece");
            *t = kept;
        }
        tri_rounds_free(&c.rounds);
    }
    make_call(&c, &tri_algorithm_tree, TRI_COLL_BARRIER, 5, 0);
    c.rounds.num_rounds--;
    expect_fault(coll_check_result, &c, "left having heard");
    tri_rounds_free(&c.rounds);
}

static void faults_of_time_are_found(void **state)
{
    (void)state;
    coll_call c;
    for (size_t a = 0; tri_algorithm_at(a); a++) {
        if (!make_call(&c, tri_algorithm_at(a), TRI_COLL_ALL_REDUCE, 8, 0))
            continue;
        c.rounds.num_rounds--;
        expect_fault(coll_check_time, &c, "the formula gives");
        tri_rounds_free(&c.rounds);
    }
}

/* ---- small things ---- */

static void pieces_are_balanced(void **state)
{
    (void)state;
    for (uint64_t count = 0; count < 50; count++)
        for (uint32_t num_pieces = 1; num_pieces < 12; num_pieces++) {
            uint64_t next = 0, first, num;
            for (uint32_t p = 0; p < num_pieces; p++) {
                tri_piece_range(count, num_pieces, p, &first, &num);
                assert_int_equal(first, next);
                assert_int_equal(num, count / num_pieces + (p < count % num_pieces));
                next += num;
            }
            assert_int_equal(next, count);
        }
}

static void names_and_table(void **state)
{
    (void)state;
    tri_coll coll;
    for (int i = 0; i < TRI_NUM_COLLS; i++) {
        assert_true(tri_coll_parse(tri_coll_name((tri_coll)i), &coll));
        assert_int_equal(coll, i);
    }
    assert_false(tri_coll_parse("allreduce", &coll));
    for (size_t i = 0; tri_algorithm_at(i); i++)
        assert_ptr_equal(tri_algorithm_find(tri_algorithm_at(i)->name), tri_algorithm_at(i));
    assert_null(tri_algorithm_find("butterfly"));
    assert_null(tri_algorithm_tree.emit[TRI_COLL_ALL_TO_ALL]);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    static const int wrong[][2] = {{0, 0}, {-1, 0}, {4, 4}, {4, -1}, {70000, 0}};
    for (size_t a = 0; tri_algorithm_at(a); a++)
        for (int i = 0; i < 5; i++) {
            tri_rounds rounds;
            tr_error err = {0};
            tri_coll_shape shape = tri_shape_flat(wrong[i][0]);
            assert_int_equal(tri_algorithm_rounds(tri_algorithm_at(a), TRI_COLL_ALL_TO_ALL, &shape,
                                                  wrong[i][1], &rounds, &err),
                             TR_ERROR_INPUT);
            assert_non_null(strstr(err.message, "all_to_all"));
            assert_null(rounds.transfers);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_are_well_formed),
        cmocka_unit_test(results_are_exact),
        cmocka_unit_test(formulas_are_the_rounds),
        cmocka_unit_test(ring_time_of_the_textbook),
        cmocka_unit_test(ring_ownership_of_the_textbook),
        cmocka_unit_test(traffic_of_equal_ranks),
        cmocka_unit_test(traffic_with_a_root),
        cmocka_unit_test(traffic_of_others),
        cmocka_unit_test(traffic_of_uneven_pieces),
        cmocka_unit_test(rabenseifner_time_of_the_textbook),
        cmocka_unit_test(traffic_on_powers_of_two),
        cmocka_unit_test(traffic_on_any_number),
        cmocka_unit_test(pairwise_is_mutual),
        cmocka_unit_test(grids_of_the_textbook),
        cmocka_unit_test(leaders_speak_for_their_machine),
        cmocka_unit_test(double_tree_streams),
        cmocka_unit_test(links_of_machines_are_shared),
        cmocka_unit_test(refusals_name_the_nearest),
        cmocka_unit_test(faults_of_form_are_found),
        cmocka_unit_test(faults_of_result_are_found),
        cmocka_unit_test(faults_of_time_are_found),
        cmocka_unit_test(pieces_are_balanced),
        cmocka_unit_test(names_and_table),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
