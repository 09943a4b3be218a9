/* Choosing algorithms: by price, size and topology; and the file that keeps the prices. */
#include "comm/comm_internal.h"
#include "comm/tuning/tuning.h"

#include "base/error.h"
#include "temp_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const tri_tuning example = {
    .transport = "tcp",
    .num_ranks = 4,
    .num_machines = 2,
    .near = {1e-6, 1.0 / 3e9, 1e-10},
    .far = {3e-5, 1e-9, 1e-10},
    .shared = {2e-6, 3e-9, 1e-10},
    .measured = true,
    .work = {.num_points = 2,
             .num_cores = 3,
             .call = 1e-6,
             .round = {2e-6, 1.0 / 7e6},
             .message = 1.0 / 3e6,
             .packet_bytes = 64000,
             .cut = 1.0 / 3e5,
             .sender = 0.25,
             .footprint = {1e5, 1e7},
             .all = {{1e-10, 2e-10}, {3e-10, 1.0 / 3e9}},
             .alone = {{1e-11, 2e-11}}},
    .factors = {
        .num_points = {[TRI_COLL_ALL_REDUCE] = 3, [TRI_COLL_ALL_TO_ALL] = 1},
        .bytes = {[TRI_COLL_ALL_REDUCE] = {1024, 1 << 17, 1 << 27}, [TRI_COLL_ALL_TO_ALL] = {2048}},
        .of[TRI_COLL_ALL_REDUCE] = {[1] = {1, 2, 1.0 / 3}, [3] = {7, 7, 7}},
        .of[TRI_COLL_ALL_TO_ALL][1] = {4}}};

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void file_keeps_what_was_measured(void **state)
{
    const char *dir = ((temp_dir *)*state)->path;
    char path[400];
    tr_error err = {0};
    tri_tuning back = example, other = example;
    bool found = true;
    snprintf(path, sizeof path, "%s/tuning.json", dir);
    assert_int_equal(tri_tuning_load(path, &back, &found, &err), TR_OK);
    assert_false(found);
    write_text(path, "{\"version\": 1, \"cublas\": {\"kept\": 7}}");
    assert_int_equal(tri_tuning_save(path, &example, &err), TR_OK);
    other.num_ranks = 5;
    other.near.alpha = 7;
    assert_int_equal(tri_tuning_save(path, &other, &err), TR_OK);
    other.near.alpha = 8; /* replaces the entry before */
    assert_int_equal(tri_tuning_save(path, &other, &err), TR_OK);
    memset(&back.near, 0, sizeof back.near);
    assert_int_equal(tri_tuning_load(path, &back, &found, &err), TR_OK);
    assert_true(found);
    assert_memory_equal(&back.near, &example.near, sizeof back.near); /* to the last bit */
    assert_memory_equal(&back.far, &example.far, sizeof back.far);
    assert_memory_equal(&back.work, &example.work, sizeof back.work);
    assert_memory_equal(&back.factors, &example.factors, sizeof back.factors);
    assert_int_equal(tri_tuning_load(path, &other, &found, &err), TR_OK);
    assert_true(found && other.near.alpha == 8);
    back.num_machines = 1; /* other machines, other prices */
    assert_int_equal(tri_tuning_load(path, &back, &found, &err), TR_OK);
    assert_false(found);
    char text[8000] = "";
    FILE *file = fopen(path, "r");
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_non_null(strstr(text, "kept"));
    unlink(path);
}

#define PRICES "{\"alpha_s\": 1, \"beta_s_per_byte\": 1e-9, \"gamma_s_per_byte\": 0}"

#define FACTORS                                                                                    \
    "{\"version\": 1, \"comm\": [{\"transport\": \"tcp\", \"ranks\": 4, \"machines\": 2, "         \
    "\"near\": " PRICES ", \"far\": " PRICES ", \"shared\": " PRICES ", \"factors\": "

static bool loads(const char *dir, const char *text, tri_tuning *back)
{
    char path[400];
    tr_error err = {0};
    bool found = false;
    snprintf(path, sizeof path, "%s/tuning.json", dir);
    write_text(path, text);
    *back = example;
    if (tri_tuning_load(path, back, &found, &err) != TR_OK)
        fail_msg("%s", err.message);
    unlink(path);
    return found;
}

/* Ranks that only send and receive have no call that anything was tried for; and once all
 * operations shared their sizes. */
static void files_without_factors_are_read(void **state)
{
    static const char *const texts[] = {
        FACTORS "{}}]}", FACTORS
        "{\"up_to_bytes\": 9, \"bytes\": [1024, 9], \"all_reduce\": {\"ring\": [1, 1]}}}]}"};
    tri_call_sizes none = {0}, one = {.of[TRI_COLL_ALL_REDUCE] = 1};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tri_tuning back;
        assert_true(loads(((temp_dir *)*state)->path, texts[i], &back));
        assert_true(tri_factors_cover(&back.factors, &none));
        assert_false(tri_factors_cover(&back.factors, &one));
        assert_true(tri_factors_of(&back.factors, &tri_algorithm_ring, TRI_COLL_ALL_REDUCE, 9) ==
                    1);
    }
}

static void broken_files_are_refused(void **state)
{
    static const char *const texts[] = {
        "\n",
        "{",
        "[1]",
        "{\"version\": 2}",
        "{\"version\": 1, \"comm\": [{\"transport\": \"tcp\", \"ranks\": 4, \"machines\": 2}]}",
        "{\"version\": 1, \"comm\": [{\"transport\": \"tcp\", \"ranks\": 4, \"machines\": 2, "
        "\"near\": {\"alpha_s\": -1, \"beta_s_per_byte\": 1e-9, \"gamma_s_per_byte\": 0}}]}",
        "{\"version\": 1, \"comm\": [{\"transport\": \"tcp\", \"ranks\": 4, \"machines\": 2, "
        "\"near\": " PRICES ", \"far\": " PRICES ", \"shared\": " PRICES
        ", \"work\": {\"cores\": 2, \"footprint_bytes\": [2, 1]}}]}",
        FACTORS "{\"all_reduce\": {\"bytes\": [2048, 1024]}}}]}",
        FACTORS "{\"all_reduce\": {\"bytes\": [1024, 3000]}}}]}",
        FACTORS "{\"all_reduce\": {\"bytes\": [512]}}}]}",
        FACTORS "{\"all_reduce\": {\"bytes\": []}}}]}",
        FACTORS "{\"all_reduce\": {\"ring\": [1]}}}]}",
        FACTORS
        "{\"all_reduce\": {\"bytes\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, "
        "17, 18, 19]}}}]}",
        FACTORS "{\"all_reduce\": {\"bytes\": [1024, 2048], \"ring\": [1]}}}]}",
        FACTORS "{\"all_reduce\": {\"bytes\": [1024, 2048], \"ring\": [1, -1]}}}]}",
        FACTORS "{\"all_reduce\": {\"bytes\": [1024, 2048], \"wheel\": [1, 1]}}}]}"};
    const char *dir = ((temp_dir *)*state)->path;
    char path[400];
    snprintf(path, sizeof path, "%s/tuning.json", dir);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tr_error err = {0};
        tri_tuning back = example;
        bool found;
        write_text(path, texts[i]);
        assert_int_equal(tri_tuning_load(path, &back, &found, &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, path));
        assert_non_null(strstr(err.message, "measured anew"));
    }
    unlink(path);
}

static const tri_algorithm *best(const tri_tuning *tuning, tri_coll coll, tri_coll_shape shape,
                                 double bytes)
{
    const tri_algorithm *least = NULL;
    double time = 0;
    for (size_t i = 0; tri_algorithm_at(i); i++) {
        const tri_algorithm *a = tri_algorithm_at(i);
        if (a->needs_shared_memory || !tri_algorithm_supports(a, coll, &shape))
            continue;
        double t = tri_tuning_time(tuning, a, coll, &shape, bytes);
        if (!least || t < time) {
            least = a;
            time = t;
        }
    }
    return least;
}

/* The textbook's network: 5 us, 50 GB/s. */
static void size_decides(void **state)
{
    (void)state;
    tri_tuning flat = {.num_ranks = 64, .num_machines = 1, .near = {5e-6, 1 / 50e9, 0}};
    tri_coll_shape ranks = tri_shape_flat(64);
    flat.far = flat.near;
    assert_ptr_equal(best(&flat, TRI_COLL_ALL_REDUCE, ranks, 64), &tri_algorithm_doubling);
    assert_ptr_equal(best(&flat, TRI_COLL_ALL_REDUCE, ranks, 1e9), &tri_algorithm_rabenseifner);
    assert_ptr_equal(best(&flat, TRI_COLL_ALL_TO_ALL, ranks, 64 * 64 * 8), &tri_algorithm_bruck);
    assert_ptr_equal(best(&flat, TRI_COLL_ALL_TO_ALL, ranks, 1e10), &tri_algorithm_ring);
    assert_ptr_equal(best(&flat, TRI_COLL_GATHER, ranks, 1e6), &tri_algorithm_tree);
    ranks = tri_shape_flat(63); /* no folding */
    assert_ptr_equal(best(&flat, TRI_COLL_ALL_REDUCE, ranks, 1e9), &tri_algorithm_bruck);
}

/* Four machines of eight with slow links between them: leaders speak for small vectors, the torus
 * spreads large ones over all ranks. */
static void machines_decide(void **state)
{
    (void)state;
    tri_tuning t = {.num_ranks = 32,
                    .num_machines = 4,
                    .near = {1e-6, 1 / 20e9, 0},
                    .far = {50e-6, 1 / 1e9, 0}};
    tri_coll_shape shape = {32, 2, {8, 4}};
    assert_ptr_equal(best(&t, TRI_COLL_ALL_REDUCE, shape, 1e9), &tri_algorithm_torus2d);
    double far_rounds =
        tri_tuning_time(&t, &tri_algorithm_hierarchical, TRI_COLL_ALL_REDUCE, &shape, 64);
    assert_true(far_rounds <
                tri_tuning_time(&t, &tri_algorithm_ring, TRI_COLL_ALL_REDUCE, &shape, 64) / 10);
    assert_true(far_rounds <
                tri_tuning_time(&t, &tri_algorithm_torus2d, TRI_COLL_ALL_REDUCE, &shape, 64));
}

/* A machine with two cores, on which a byte copied takes 1 ns, packed 1.1, moved 2, combined 3, and
 * twice that in large vectors; one rank at work is half as slow again. */
static const tri_work_prices machine = {.num_points = 2,
                                        .num_cores = 2,
                                        .call = 100e-9,
                                        .round = {1000e-9, 2000e-9},
                                        .message = 10e-9,
                                        .footprint = {1e3, 1e9},
                                        .all = {[TRI_WORK_COPY] = {1e-9, 2e-9},
                                                [TRI_WORK_PACK] = {1.1e-9, 2e-9},
                                                [TRI_WORK_MOVE] = {2e-9, 4e-9},
                                                [TRI_WORK_PULL] = {2.5e-9, 5e-9},
                                                [TRI_WORK_COMBINE] = {3e-9, 6e-9},
                                                [TRI_WORK_READ] = {4e-9, 8e-9},
                                                [TRI_WORK_TERM] = {7e-9, 14e-9},
                                                [TRI_WORK_WRITE] = {5e-9, 10e-9}},
                                        .alone = {[TRI_WORK_COPY] = {0.5e-9, 1e-9},
                                                  [TRI_WORK_MOVE] = {1e-9, 2e-9},
                                                  [TRI_WORK_COMBINE] = {1.5e-9, 3e-9}}};

static void assert_ns(const tri_algorithm *algorithm, tri_coll coll, int size, double bytes,
                      double sender, double ns)
{
    tri_work_prices prices = machine;
    tri_coll_shape shape = tri_shape_flat(size);
    prices.sender = sender;
    double got = tri_work_time(&prices, algorithm, coll, &shape, bytes) * 1e9;
    if (!(got > ns - 1e-6 && got < ns + 1e-6))
        fail_msg("%s %s of %g bytes on %d ranks: %.9g ns, not %.9g", algorithm->name,
                 tri_coll_name(coll), bytes, size, got, ns);
}

/* Two rounds of 50 bytes to each rank: they fit, or they do not. */
static void cut_messages_cost_more(void **state)
{
    (void)state;
    static const double packets[] = {0, 49, 50}, more[] = {0, 2 * 7e-9, 0};
    tri_work_prices prices = machine;
    tri_coll_shape two = tri_shape_flat(2);
    prices.cut = 7e-9;
    double whole = tri_work_time(&prices, &tri_algorithm_ring, TRI_COLL_ALL_REDUCE, &two, 100);
    for (int i = 0; i < 3; i++) {
        prices.packet_bytes = packets[i];
        double is = tri_work_time(&prices, &tri_algorithm_ring, TRI_COLL_ALL_REDUCE, &two, 100);
        assert_true(is - whole > more[i] - 1e-15 && is - whole < more[i] + 1e-15);
    }
}

static void work_is_counted(void **state)
{
    (void)state;
    /* Two ranks copy 100 bytes, combine 50, move 50. */
    assert_ns(&tri_algorithm_ring, TRI_COLL_ALL_REDUCE, 2, 100, 0, 100 + 2000 + 100 + 150 + 100);
    /* Four share the two cores: twice the copies; six rounds of 25 bytes, twice each. */
    assert_ns(&tri_algorithm_ring, TRI_COLL_ALL_REDUCE, 4, 100, 0,
              100 + 6000 + 200 + 3 * 150 + 3 * 100);
    /* One reads while the other waits. */
    assert_ns(&tri_algorithm_tree, TRI_COLL_BROADCAST, 2, 100, 0, 100 + 1000 + 50 + 100);
    /* The whole vector is sent and received into at once, so it is packed. */
    assert_ns(&tri_algorithm_doubling, TRI_COLL_ALL_REDUCE, 2, 100, 0,
              100 + 1000 + 100 + 110 + 300);
    /* Blocks: what is left behind in the vector is copied to its place. */
    assert_ns(&tri_algorithm_ring, TRI_COLL_REDUCE_SCATTER, 2, 100, 0, 100 + 1000 + 100 + 150 + 50);
    /* Two messages in a round. */
    assert_ns(&tri_algorithm_sharded_ps, TRI_COLL_ALL_GATHER, 3, 99, 0,
              100 + 1000 + 49.5 + 1.5 * (10 + 132));
    /* Blocks of 50 bytes: one stays, one is pulled. */
    assert_ns(&tri_algorithm_pairwise, TRI_COLL_ALL_TO_ALL, 2, 200, 0, 100 + 1000 + 50 + 125);
    /* Where the sender does a part of a move, one way takes less than both. */
    assert_ns(&tri_algorithm_ring, TRI_COLL_ALL_GATHER, 2, 100, 0.25, 100 + 1000 + 50 + 100);
    assert_ns(&tri_algorithm_tree, TRI_COLL_BROADCAST, 2, 100, 0.25, 100 + 1000 + 50 + 150);
    /* Direct: every byte read once and written twice, by two. */
    assert_ns(&tri_algorithm_direct, TRI_COLL_ALL_GATHER, 2, 100, 0, 200 + (400 + 1000) / 2.0);
    assert_ns(&tri_algorithm_direct, TRI_COLL_ALL_REDUCE, 2, 100, 0, 200 + (1400 + 1000) / 2.0);
    assert_ns(&tri_algorithm_direct, TRI_COLL_BARRIER, 2, 0, 0, 100);
}

static void prices_follow_the_footprint(void **state)
{
    (void)state;
    tri_coll_shape three = tri_shape_flat(3);
    /* Two vectors each; the doubled one is packed besides; relays and packed blocks of bruck. */
    assert_true(tri_work_footprint(&tri_algorithm_ring, TRI_COLL_ALL_REDUCE, &three, 90) == 540);
    assert_true(tri_work_footprint(&tri_algorithm_doubling, TRI_COLL_ALL_REDUCE,
                                   &(tri_coll_shape){.size = 2}, 90) == 540);
    assert_true(tri_work_footprint(&tri_algorithm_pairwise, TRI_COLL_ALL_TO_ALL, &three, 90) ==
                180);
    assert_true(tri_work_footprint(&tri_algorithm_bruck, TRI_COLL_ALL_TO_ALL,
                                   &(tri_coll_shape){.size = 4}, 160) == 320 + 40 + 160);
    double near = tri_work_price(&machine, TRI_WORK_COPY, 10, 1);
    double middle = tri_work_price(&machine, TRI_WORK_COPY, 1e6, 1);
    double far = tri_work_price(&machine, TRI_WORK_COPY, 1e12, 1);
    assert_true(near == 1e-9 && far == 2e-9 && middle > 1.499e-9 && middle < 1.501e-9);
    assert_true(tri_work_price(&machine, TRI_WORK_COPY, 10, 0.5) == 0.5e-9);
    assert_true(tri_work_round(&machine, 1e12) == 2000e-9);
    tri_coll_shape two = tri_shape_flat(2);
    tri_work_prices none = {0};
    assert_true(tri_work_time(&none, &tri_algorithm_ring, TRI_COLL_ALL_REDUCE, &two, 8) < 0);
}

static void factors_correct_the_formula(void **state)
{
    (void)state;
    tri_tuning tuning = {.num_ranks = 4, .num_machines = 1, .near = {1e-6, 1e-9, 0}};
    tri_coll_shape four = tri_shape_flat(4), two = tri_shape_flat(2);
    const tri_algorithm *ring = &tri_algorithm_ring, *tree = &tri_algorithm_tree;
    int number = tri_algorithm_number(ring);
    tuning.factors =
        (tri_factors){.num_points = {[TRI_COLL_ALL_REDUCE] = 2, [TRI_COLL_ALL_TO_ALL] = 1},
                      .bytes = {[TRI_COLL_ALL_REDUCE] = {1e4, 1e6}, [TRI_COLL_ALL_TO_ALL] = {1e5}}};
    tuning.factors.of[TRI_COLL_ALL_REDUCE][number][0] = 2;
    tuning.factors.of[TRI_COLL_ALL_REDUCE][number][1] = 4;
    tuning.factors.of[TRI_COLL_ALL_TO_ALL][number][0] = 3;
    static const double bytes[] = {1, 1e4, 1e5, 1e6, 1e9}, factors[] = {2, 2, 3, 4, 4};
    for (int i = 0; i < 5; i++) {
        double is = tri_tuning_time(&tuning, ring, TRI_COLL_ALL_REDUCE, &four, bytes[i]) /
                    tri_tuning_formula(&tuning, ring, TRI_COLL_ALL_REDUCE, &four, bytes[i]);
        assert_true(is > factors[i] - 1e-9 && is < factors[i] + 1e-9);
    }
    /* What was not tried, and other numbers of ranks, by the formula. */
    assert_true(tri_factors_of(&tuning.factors, ring, TRI_COLL_ALL_TO_ALL, 4e5) == 3);
    assert_true(tri_factors_of(&tuning.factors, ring, TRI_COLL_ALL_GATHER, 4e5) == 1);
    assert_true(tri_factors_of(&tuning.factors, tree, TRI_COLL_ALL_REDUCE, 4e5) == 1);
    assert_true(tri_tuning_time(&tuning, ring, TRI_COLL_ALL_REDUCE, &two, 1e5) ==
                tri_tuning_formula(&tuning, ring, TRI_COLL_ALL_REDUCE, &two, 1e5));
    assert_ptr_equal(best(&tuning, TRI_COLL_ALL_REDUCE, four, 1e6), &tri_algorithm_rabenseifner);
    tuning.factors.of[TRI_COLL_ALL_REDUCE][number][1] = 0.01;
    assert_ptr_equal(best(&tuning, TRI_COLL_ALL_REDUCE, four, 1e6), ring);
}

static double factor(const tri_tuning *tuning, const tri_trial *trial,
                     const tri_algorithm *algorithm)
{
    return tuning->factors.of[trial->coll][tri_algorithm_number(algorithm)][1];
}

/* The mean of the quickest quarter, over the formula. */
static void trials_become_factors(void **state)
{
    (void)state;
    tri_tuning tuning = {.num_ranks = 2, .num_machines = 1, .near = {0, 1e-9, 0}};
    tri_coll_shape two = tri_shape_flat(2);
    int ring = tri_algorithm_number(&tri_algorithm_ring);
    tri_trial trial = {.coll = TRI_COLL_ALL_TO_ALL, .bytes = 2e6, .num = 3};
    double formula = tri_tuning_formula(&tuning, &tri_algorithm_ring, trial.coll, &two, 2e6);
    trial.tries[ring] = true;
    for (int i = 0; i < 9; i++)
        trial.seconds[ring][i] = (9 - i) * formula;
    tri_trial_use(&trial, 1, &tuning);
    assert_float_equal(factor(&tuning, &trial, &tri_algorithm_ring), 7, 1e-6);
    trial.num = 9;
    tri_trial_use(&trial, 1, &tuning);
    assert_float_equal(factor(&tuning, &trial, &tri_algorithm_ring), 2, 1e-6);
    assert_true(tuning.factors.of[TRI_COLL_ALL_TO_ALL][ring][0] == 0);
}

/* The machine is three times as slow in the last two turns, and in the second to the bruck alone:
 * it takes 0.9 times as long as the ring nevertheless. Who dropped out stays as far behind the best
 * as it was. */
static void noise_leaves_no_trace(void **state)
{
    (void)state;
    static const double rings[] = {10, 10, 10, 30, 30}, brucks[] = {9, 27, 9, 27, 27};
    tri_tuning tuning = {.num_ranks = 4, .num_machines = 1, .near = {0, 1e-9, 0}};
    tri_coll_shape four = tri_shape_flat(4);
    tri_trial trial = {.coll = TRI_COLL_ALL_TO_ALL, .bytes = 2e6, .num = 5};
    const tri_algorithm *all[] = {&tri_algorithm_ring, &tri_algorithm_bruck,
                                  &tri_algorithm_pairwise};
    double times[3];
    for (int i = 0; i < 3; i++)
        trial.tries[tri_algorithm_number(all[i])] = i < 2;
    trial.behind[tri_algorithm_number(all[2])] = 1.5;
    for (int i = 0; i < 5; i++) {
        trial.seconds[tri_algorithm_number(all[0])][i] = 1e-3 * rings[i];
        trial.seconds[tri_algorithm_number(all[1])][i] = 1e-3 * brucks[i];
    }
    tri_trial_use(&trial, 1, &tuning);
    for (int i = 0; i < 3; i++)
        times[i] = factor(&tuning, &trial, all[i]) *
                   tri_tuning_formula(&tuning, all[i], trial.coll, &four, trial.bytes);
    assert_float_equal(times[1] / times[0], 0.9, 1e-6);
    assert_float_equal(times[2] / times[1], 1.5, 1e-6);
}

static void sizes_are_powers_of_two(void **state)
{
    (void)state;
    tri_call_sizes sizes = {0};
    static const uint64_t bytes[] = {0, 1024, 1025, 2048, (uint64_t)1 << 27, (uint64_t)1 << 40};
    static const uint32_t then[] = {1, 1, 3, 3, 3 + (1 << 17), 3 + (1 << 17)};
    for (int i = 0; i < 6; i++) {
        tri_call_sizes_add(&sizes, TRI_COLL_REDUCE_SCATTER, bytes[i]);
        assert_int_equal(sizes.of[TRI_COLL_REDUCE_SCATTER], then[i]);
    }
    tri_factors factors = {.num_points[TRI_COLL_REDUCE_SCATTER] = 2,
                           .bytes[TRI_COLL_REDUCE_SCATTER] = {1024, 2048}};
    assert_false(tri_factors_cover(&factors, &sizes));
    factors.num_points[TRI_COLL_REDUCE_SCATTER] = 3;
    factors.bytes[TRI_COLL_REDUCE_SCATTER][2] = 1 << 27;
    assert_true(tri_factors_cover(&factors, &sizes));
}

/* ---- on ranks ---- */

static tr_status choose_on_ranks(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    tr_group *world = tr_comm_world(comm);
    tr_collective call = {.operation = TR_ALL_REDUCE, .count = 1};
    tri_tuning tuning;
    tri_comm_read_tuning(comm, &tuning);
    tuning.near = tuning.far = (tri_coll_prices){1e-3, 1e-9, 0};
    tri_comm_set_tuning(comm, &tuning);
    if (tri_choose(world, &call) != &tri_algorithm_doubling)
        return tri_fail(err, TR_ERROR_INTERNAL, "%s when latency is all",
                        tri_choose(world, &call)->name);
    tuning.near = tuning.far = (tri_coll_prices){1e-9, 1e-3, 0};
    tri_comm_set_tuning(comm, &tuning);
    call.count = 4000;
    if (tri_choose(world, &call) == &tri_algorithm_doubling)
        return tri_fail(err, TR_ERROR_INTERNAL, "doubling when bytes are all");
    tuning.near = tuning.far = (tri_coll_prices){1e-5, 1e-9, 1e-10}; /* and with the size */
    tri_comm_set_tuning(comm, &tuning);
    call.count = 1;
    const tri_algorithm *small = tri_choose(world, &call);
    call.count = 1 << 22;
    if (small != &tri_algorithm_doubling || tri_choose(world, &call) != &tri_algorithm_rabenseifner)
        return tri_fail(err, TR_ERROR_INTERNAL, "%s for 4 bytes, %s for 16 MiB", small->name,
                        tri_choose(world, &call)->name);
    tr_collective exchange = {.operation = TR_ALL_TO_ALL,
                              .send_counts = (uint64_t[8]){0},
                              .recv_counts = (uint64_t[8]){0}};
    if (tri_choose(world, &exchange) != &tri_algorithm_ring)
        return tri_fail(err, TR_ERROR_INTERNAL, "blocks of different sizes");
    /* Measured, the same on all, and usable. */
    tri_call_sizes sizes = {.of[TRI_COLL_ALL_REDUCE] = 1 << 10}; /* a megabyte */
    TRI_TRY(tri_tuning_measure(comm, &sizes, &tuning, err));
    double got[8], own = tuning.near.alpha;
    TRI_TRY(tr_all_gather(world, &own, got, 8, TR_U8, err));
    for (int r = 0; r < tr_comm_size(comm); r++)
        if (got[r] != own || !(own > 0) || !(tuning.near.beta > 0) || !(tuning.near.gamma > 0))
            return tri_fail(err, TR_ERROR_INTERNAL, "prices %g and %g", own, got[r]);
    if (tuning.factors.num_points[TRI_COLL_ALL_REDUCE] != 2 ||
        !(tuning.factors.of[TRI_COLL_ALL_REDUCE][1][0] > 0))
        return tri_fail(err, TR_ERROR_INTERNAL, "nothing was tried");
    static const size_t num = sizeof tuning.factors;
    char *all = malloc(num * (size_t)tr_comm_size(comm));
    tr_status status = tr_all_gather(world, &tuning.factors, all, num, TR_U8, err);
    for (int r = 0; status == TR_OK && r < tr_comm_size(comm); r++)
        if (memcmp(all + num * (size_t)r, &tuning.factors, num) != 0)
            status = tri_fail(err, TR_ERROR_INTERNAL, "other factors on rank %d", r);
    free(all);
    return status;
}

static void ranks_choose_alike(void **state)
{
    (void)state;
    tr_comm_options options = {.transport = "tcp"};
    tr_error err = {0};
    if (tr_comm_run_threads(4, &options, choose_on_ranks, NULL, &err) != TR_OK)
        fail_msg("%s", err.message);
}

static tr_status tune(tr_comm *comm, void *context, tr_error *err)
{
    char path[400];
    tri_tuning tuning;
    snprintf(path, sizeof path, "%s/tuning.json", (const char *)context);
    const char *own = tr_comm_rank(comm) == 0 ? path : NULL; /* the others have no such file */
    tri_call_sizes sizes = {0}; /* of rank 1, and known to all afterwards */
    if (tr_comm_rank(comm) == 1)
        tri_call_sizes_add(&sizes, TRI_COLL_ALL_GATHER, 9000);
    TRI_TRY(tri_comm_tune(comm, own, &sizes, NULL, err));
    TRI_TRY(tr_barrier(tr_comm_world(comm), err));
    tri_comm_read_tuning(comm, &tuning);
    const tri_factors *f = &tuning.factors;
    if (f->num_points[TRI_COLL_ALL_GATHER] != 2 || f->num_points[TRI_COLL_ALL_REDUCE] != 0 ||
        f->bytes[TRI_COLL_ALL_GATHER][1] != 16384)
        return tri_fail(err, TR_ERROR_INTERNAL, "%d sizes up to %g were tried",
                        f->num_points[TRI_COLL_ALL_GATHER], f->bytes[TRI_COLL_ALL_GATHER][1]);
    if (tr_comm_rank(comm) == 0) {
        tuning.near.alpha = 0.125;
        TRI_TRY(tri_tuning_save(path, &tuning, err));
    }
    TRI_TRY(tri_comm_tune(comm, own, &sizes, NULL, err));
    tri_comm_read_tuning(comm, &tuning);
    if (tuning.near.alpha != 0.125)
        return tri_fail(err, TR_ERROR_INTERNAL, "not what the file says");
    /* Calls that it was not measured for are added, and change nothing else. */
    tri_tuning before = tuning;
    const int coll = TRI_COLL_ALL_GATHER;
    if (tr_comm_rank(comm) == 2)
        tri_call_sizes_add(&sizes, TRI_COLL_ALL_GATHER, 3000);
    TRI_TRY(tri_comm_tune(comm, own, &sizes, NULL, err));
    tri_comm_read_tuning(comm, &tuning);
    bool kept = tuning.near.alpha == 0.125 && f->num_points[coll] == 3 &&
                f->bytes[coll][1] == 4096 && f->bytes[coll][2] == 16384;
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS; a++)
        kept = kept && f->of[coll][a][0] == before.factors.of[coll][a][0] &&
               f->of[coll][a][2] == before.factors.of[coll][a][1] &&
               (f->of[coll][a][1] > 0) == (f->of[coll][a][0] > 0);
    return kept ? TR_OK : tri_fail(err, TR_ERROR_INTERNAL, "other sizes changed");
}

static void prices_are_measured_once(void **state)
{
    char path[400];
    tr_comm_options options = {.transport = "tcp"};
    tr_error err = {0};
    if (tr_comm_spawn(3, &options, tune, ((temp_dir *)*state)->path, &err) != TR_OK)
        fail_msg("%s", err.message);
    snprintf(path, sizeof path, "%s/tuning.json", ((temp_dir *)*state)->path);
    assert_int_equal(unlink(path), 0);
}

/* Blocks of a packet each no longer fit into the vectors, nor does a megabyte. */
static tr_status measure_many(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    tri_tuning tuning;
    TRI_TRY(
        tri_tuning_measure(comm, &(tri_call_sizes){.of[TRI_COLL_ALL_REDUCE] = 1}, &tuning, err));
    if (tuning.work.num_points < 1 || tuning.work.packet_bytes <= 0 || tuning.work.cut != 0 ||
        tuning.factors.num_points[TRI_COLL_ALL_REDUCE] != 1)
        return tri_fail(err, TR_ERROR_INTERNAL, "%d points, packets of %g bytes, %g s for a cut",
                        tuning.work.num_points, tuning.work.packet_bytes, tuning.work.cut);
    return TR_OK;
}

static void many_ranks_are_measured(void **state)
{
    (void)state;
    tr_comm_options options = {.transport = "tcp"};
    tr_error err = {0};
    if (tr_comm_spawn(64, &options, measure_many, NULL, &err) != TR_OK)
        fail_msg("%s", err.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_keeps_what_was_measured),
        cmocka_unit_test(files_without_factors_are_read),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(size_decides),
        cmocka_unit_test(machines_decide),
        cmocka_unit_test(work_is_counted),
        cmocka_unit_test(cut_messages_cost_more),
        cmocka_unit_test(prices_follow_the_footprint),
        cmocka_unit_test(factors_correct_the_formula),
        cmocka_unit_test(trials_become_factors),
        cmocka_unit_test(noise_leaves_no_trace),
        cmocka_unit_test(sizes_are_powers_of_two),
        cmocka_unit_test(ranks_choose_alike),
        cmocka_unit_test(prices_are_measured_once),
        cmocka_unit_test(many_ranks_are_measured),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
