/* Pipeline orders: against published tables, against what papers and courses say, and for many
 * sizes against the checker and an independent count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Published tables, and the order of ours that is meant to be theirs. */
static const struct {
    const char *file, *order;
    uint32_t p, m;
    bool same; /* action for action */
} published[] = {
    {"1f1b_p2_m4", "1f1b", 2, 4, true},
    {"1f1b_p4_m8", "1f1b", 4, 8, true},
    {"interleaved1f1b_p2_m4_v2", "interleaved", 2, 4, true},
    {"interleaved1f1b_p4_m8_v2", "interleaved", 4, 8, true},
    {"1f1bv_p2_m4", "1f1b-v", 2, 4, false},
    {"1f1bv_p4_m8", "1f1b-v", 4, 8, false},
    {"zbh1_p2_m4", "zb-h1", 2, 4, true},
    {"zbh1_p4_m8", "zb-h1", 4, 8, true},
    {"zbh2_p2_m4", "zb-h2", 2, 4, false},
    {"zbh2_p4_m8", "zb-h2", 4, 8, false},
    {"zbv_p2_m4", "zb-v", 2, 4, false},
    {"zbv_p4_m8", "zb-v", 4, 8, false},
    {"vhalf_p2_m4", "v-half", 2, 4, false},
    {"vhalf_p4_m8", "v-half", 4, 8, false},
    {"vmin_p2_m4", "v-min", 2, 4, false},
    {"vmin_p4_m8", "v-min", 4, 8, false},
    {"dualpipev_4rank_10mb", "dualpipev", 4, 10, true},
};
enum { NUM_PUBLISHED = sizeof published / sizeof *published };

static void published_tables_are_reproduced(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_PUBLISHED; i++) {
        tri_schedule ours, theirs;
        if (!published[i].same)
            continue;
        schedule_make(&ours, published[i].order, published[i].p, published[i].m, 0);
        schedule_load(&theirs, published[i].file);
        const char *difference = schedule_difference(&ours, &theirs);
        if (difference)
            fail_msg("%s: %s", published[i].file, difference);
        tri_schedule_fini(&ours);
        tri_schedule_fini(&theirs);
    }
}

static void none_is_worse_than_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_PUBLISHED; i++) {
        tri_schedule s[2];
        tri_sim sim[2];
        schedule_make(&s[0], published[i].order, published[i].p, published[i].m, 0);
        schedule_load(&s[1], published[i].file);
        for (int k = 0; k < 2; k++) {
            schedule_lower(&s[k]);
            schedule_simulate(&s[k], NULL, &sim[k]);
        }
        if (sim[0].makespan > sim[1].makespan || sim[0].span > sim[1].span ||
            schedule_peak(&sim[0]) > schedule_peak(&sim[1]))
            fail_msg("%s: makespan %g, span %g, %u live; published %g, %g, %u", published[i].file,
                     sim[0].makespan, sim[0].span, schedule_peak(&sim[0]), sim[1].makespan,
                     sim[1].span, schedule_peak(&sim[1]));
        for (int k = 0; k < 2; k++) {
            tri_sim_fini(&sim[k]);
            tri_schedule_fini(&s[k]);
        }
    }
}

/* expected_unit_cost.txt: the simulator against figures that were computed elsewhere. */
static void check_expected_line(const char *line)
{
    char name[64], peaks[200];
    double makespan, span, work;
    if (sscanf(line,
               "%63[^:]: makespan %lf stage_span %lf work/rank %lf bubble(makespan) %*f "
               "bubble(stage) %*f peak acts [%199[^]]",
               name, &makespan, &span, &work, peaks) != 5)
        fail_msg("cannot read: %s", line);
    for (int lowered = 0; lowered < 2; lowered++) {
        tri_schedule s;
        tri_sim sim;
        schedule_load(&s, name);
        if (lowered)
            schedule_lower(&s);
        schedule_simulate(&s, NULL, &sim);
        if (sim.makespan != makespan || sim.span != span || sim.work != work)
            fail_msg("%s: makespan %g, span %g, work %g; expected %g, %g, %g", name, sim.makespan,
                     sim.span, sim.work, makespan, span, work);
        char *at = peaks;
        for (uint32_t r = 0; r < s.num_ranks; r++, at += *at == ',')
            assert_int_equal(sim.ranks[r].peak_live, strtoul(at, &at, 10));
        tri_sim_fini(&sim);
        tri_schedule_fini(&s);
    }
}

static void simulated_figures_are_the_expected_ones(void **state)
{
    (void)state;
    char line[400];
    int count = 0;
    FILE *file = fopen("tests/fixtures/schedules/expected_unit_cost.txt", "r");
    assert_non_null(file);
    for (; fgets(line, sizeof line, file); count++)
        check_expected_line(line);
    fclose(file);
    assert_int_equal(count, 16);
}

/* What is there, counted without the checker: each forward once, and of each backward once I and W
 * or once B, where the chunk lives. */
static void count_actions(const tri_schedule *s)
{
    size_t cells = (size_t)s->num_chunks * s->num_microbatches;
    uint8_t *seen = calloc(cells, TRI_NUM_ALL_ACTIONS);
    assert_non_null(seen);
    for (uint32_t r = 0; r < s->num_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].count; i++) {
            const tri_action *a = &s->ranks[r].actions[i];
            assert_true(a->chunk < s->num_chunks && a->microbatch < s->num_microbatches);
            assert_int_equal(s->home[s->route[a->microbatch] * s->num_chunks + a->chunk], r);
            size_t cell = (size_t)a->chunk * s->num_microbatches + a->microbatch;
            seen[cell * TRI_NUM_ALL_ACTIONS + a->kind]++;
        }
    for (size_t cell = 0; cell < cells; cell++) {
        const uint8_t *n = &seen[cell * TRI_NUM_ALL_ACTIONS];
        assert_int_equal(n[TRI_ACTION_F], 1);
        assert_int_equal(n[TRI_ACTION_I], n[TRI_ACTION_W]);
        assert_int_equal(n[TRI_ACTION_B] + n[TRI_ACTION_I], 1);
    }
    free(seen);
}

/* Sends and receives: as many as chunk borders that lie between ranks. */
static void count_messages(const tri_schedule *s)
{
    size_t expected = 0, found = 0;
    for (uint32_t m = 0; m < s->num_microbatches; m++)
        for (uint32_t c = 0; c + 1 < s->num_chunks; c++)
            expected += 4 * (tri_schedule_home(s, c, m) != tri_schedule_home(s, c + 1, m));
    for (uint32_t r = 0; r < s->num_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].count; i++)
            found += !tri_action_computes(s->ranks[r].actions[i].kind);
    assert_int_equal(found, expected);
}

static void every_order_is_right_for_many_sizes(void **state)
{
    (void)state;
    for (size_t o = 0; tri_order_at(o); o++) {
        const tri_order *order = tri_order_at(o);
        schedule_size size;
        size_t at = 0, count = 0;
        for (; schedule_size_at(order, &at, &size); count++) {
            tri_schedule s;
            schedule_make(&s, order->name, size.p, size.m, size.chunks);
            count_actions(&s);
            schedule_lower(&s);
            count_actions(&s);
            count_messages(&s);
            tri_schedule_fini(&s);
        }
        assert_true(count >= 10); /* the sizes do try the order */
    }
}

static void large_ones_are_right(void **state)
{
    (void)state;
    for (size_t o = 0; tri_order_at(o); o++) {
        tri_schedule s;
        const char *name = tri_order_at(o)->name;
        bool largest = strcmp(name, "1f1b") == 0 || strcmp(name, "v-min") == 0;
        schedule_make(&s, name, 64, largest ? 1024 : 128, 0);
        count_actions(&s);
        schedule_lower(&s);
        tri_schedule_fini(&s);
    }
}

/* Idle time, activations and weights: never more than the formulas say. */
static void formulas_hold_for_many_sizes(void **state)
{
    (void)state;
    tri_action_costs costs = tri_sim_unit_costs();
    for (size_t o = 0; tri_order_at(o); o++) {
        const tri_order *order = tri_order_at(o);
        schedule_size size;
        for (size_t at = 0; schedule_size_at(order, &at, &size);) {
            tri_schedule s;
            tri_sim sim;
            tri_order_facts facts;
            schedule_make(&s, order->name, size.p, size.m, size.chunks);
            schedule_simulate(&s, &costs, &sim);
            order->facts(&s, &costs, &facts);
            /* The bubbles hold from where the pipeline can fill; memory always. */
            bool fills = size.m >= 2 * size.p || strcmp(order->name, "gpipe") == 0;
            bool ok = (!fills || isnan(facts.idle) || sim.idle <= facts.idle + 1e-9) &&
                      sim.activations <= facts.activations &&
                      sim.weight_copies <= facts.weight_copies;
            if (!ok)
                fail_msg("%s, %u ranks, %u micro-batches, %u chunks: idle %g, live %g, weights %g; "
                         "the formulas say %g, %g, %g",
                         order->name, size.p, size.m, size.chunks, sim.idle, sim.activations,
                         sim.weight_copies, facts.idle, facts.activations, facts.weight_copies);
            tri_sim_fini(&sim);
            tri_schedule_fini(&s);
        }
    }
}

/* The memory that the papers promise, in chunks, written down here once more. */
static void memory_stays_within_the_promised_limits(void **state)
{
    (void)state;
    for (uint32_t p = 1; p <= 24; p++) {
        const struct {
            const char *order;
            uint32_t limit;
        } limits[] = {
            {"zb-h1", p},
            {"1f1b", p},
            {"zb-h2", 2 * p - 1},
            {"zb-v", 2 * p},
            {"1f1b-v", 2 * ((2 * p) / 3) + 2},
            {"v-half", p + 2},
            {"v-min", 2 * ((p - 1 + 2) / 3) + 2},
        };
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            tri_schedule s;
            tri_sim sim;
            schedule_make(&s, limits[i].order, p, 5 * p, 0);
            schedule_simulate(&s, NULL, &sim);
            if (schedule_peak(&sim) > limits[i].limit)
                fail_msg("%s, %u ranks: %u live, not %u", limits[i].order, p, schedule_peak(&sim),
                         limits[i].limit);
            tri_sim_fini(&sim);
            tri_schedule_fini(&s);
        }
    }
}

/* Idle slots of the worst rank and live chunks, for p = 2 to 16 and m = 4p: what the authors' own
 * builders reach in the memory that they promise, or fewer. Less is better: then write it here. */
static void v_orders_idle_no_longer_than_their_authors(void **state)
{
    (void)state;
    enum { FIRST = 2, LAST = 16 };
    static const struct {
        const char *order;
        uint32_t idle[LAST + 1 - FIRST], live[LAST + 1 - FIRST];
    } most[] = {
        {"1f1b-v",
         {4, 8, 15, 18, 22, 30, 33, 36, 45, 48, 51, 60, 63, 66, 75},
         {4, 6, 6, 8, 10, 10, 12, 14, 14, 16, 18, 18, 20, 22, 22}},
        {"v-half",
         {0, 3, 5, 9, 11, 15, 17, 21, 23, 27, 29, 33, 35, 39, 41},
         {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}},
        {"v-min",
         {1, 5, 11, 11, 17, 23, 23, 29, 35, 35, 41, 47, 47, 53, 59},
         {4, 4, 4, 6, 6, 6, 8, 8, 8, 10, 10, 10, 12, 12, 12}},
    };
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        for (uint32_t p = FIRST; p <= LAST; p++) {
            tri_schedule s;
            tri_sim sim;
            schedule_make(&s, most[i].order, p, 4 * p, 0);
            schedule_simulate(&s, NULL, &sim);
            if (sim.idle > most[i].idle[p - FIRST] || schedule_peak(&sim) > most[i].live[p - FIRST])
                fail_msg("%s, %u ranks: %g idle slots and %u live chunks, not %u and %u",
                         most[i].order, p, sim.idle, schedule_peak(&sim), most[i].idle[p - FIRST],
                         most[i].live[p - FIRST]);
            tri_sim_fini(&sim);
            tri_schedule_fini(&s);
        }
}

/* "Zero bubble" is a statement about the span of a rank; the whole takes p-1 slots longer. */
static void zero_bubble_means_zero(void **state)
{
    (void)state;
    for (uint32_t p = 2; p <= 20; p++)
        for (uint32_t v = 1; v <= 2; v++) {
            tri_schedule s;
            tri_sim sim;
            uint32_t m = 2 * p;
            schedule_make(&s, v == 1 ? "zb-h2" : "zb-v", p, m, 0);
            schedule_simulate(&s, NULL, &sim);
            for (uint32_t r = 0; r < p; r++)
                assert_float_equal(sim.ranks[r].end - sim.ranks[r].start, 3.0 * m * v, 0);
            assert_float_equal(sim.makespan, 3.0 * m * v + p - 1, 0);
            tri_sim_fini(&sim);
            tri_schedule_fini(&s);
        }
}

/* The bubbles, copies and micro-batches in flight that courses print. */
static void textbook_numbers_come_out(void **state)
{
    (void)state;
    static const struct {
        const char *order;
        uint32_t p, m;
        bool equal;    /* B = F */
        double bubble; /* per cent */
        double live, copies;
    } rows[] = {
        {"gpipe", 4, 4, false, 42.9, 4, 1},         {"gpipe", 4, 8, false, 27.3, 8, 1},
        {"gpipe", 8, 8, false, 46.7, 8, 1},         {"1f1b", 4, 4, false, 42.9, 4, 1},
        {"1f1b", 4, 8, false, 27.3, 4, 1},          {"1f1b", 8, 8, false, 46.7, 8, 1},
        {"interleaved", 4, 8, false, 15.8, 5.5, 1}, {"gems", 4, 8, false, 66.7, 1, 2},
        {"gems", 8, 8, false, 82.4, 1, 2},          {"chimera", 4, 4, true, 20, 4, 2},
        {"chimera", 4, 8, true, 11.1, 4, 2},        {"chimera", 8, 8, true, 27.3, 8, 2},
        {"pipedream", 4, 16, false, 0, 4, 4},       {"pipedream-2bw", 4, 16, false, 0, 4, 2},
        {"dualpipe", 8, 16, false, -1, 9, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_schedule s;
        tri_sim sim;
        tri_action_costs costs = tri_sim_unit_costs();
        if (rows[i].equal)
            costs.kind[TRI_ACTION_B] = 1;
        schedule_make(&s, rows[i].order, rows[i].p, rows[i].m, 0);
        schedule_lower(&s);
        schedule_simulate(&s, &costs, &sim);
        if ((rows[i].bubble >= 0 && fabs(100 * sim.bubble - rows[i].bubble) > 0.05) ||
            sim.activations != rows[i].live || sim.weight_copies != rows[i].copies)
            fail_msg("%s, %u ranks, %u micro-batches: bubble %.2f %%, live %g, weights %g",
                     rows[i].order, rows[i].p, rows[i].m, 100 * sim.bubble, sim.activations,
                     sim.weight_copies);
        tri_sim_fini(&sim);
        tri_schedule_fini(&s);
    }
}

/* Chimera's bubble: (p-2)F when B = F, and the difference once more for every p micro-batches. */
static void chimera_has_its_published_bubble(void **state)
{
    (void)state;
    for (uint32_t p = 2; p <= 12; p += 2)
        for (uint32_t groups = 1; groups <= 4; groups++)
            for (int b = 2; b <= 6; b++) {
                tri_schedule s;
                tri_sim sim;
                tri_action_costs costs = tri_sim_unit_costs();
                costs.kind[TRI_ACTION_B] = b / 2.0;
                schedule_make(&s, "chimera", p, groups * p, 0);
                schedule_lower(&s);
                schedule_simulate(&s, &costs, &sim);
                assert_float_equal(sim.idle, (p - 2) * (1 + groups * (b / 2.0 - 1)), 1e-9);
                tri_sim_fini(&sim);
                tri_schedule_fini(&s);
            }
}

/* DualPipe's bubble (p/2-1)(FB+B-3W) is that of pairs which start and end as one. */
static void dualpipe_has_its_published_bubble(void **state)
{
    (void)state;
    tri_action_costs costs = tri_sim_unit_costs();
    costs.overlap = 3;
    for (uint32_t p = 2; p <= 16; p += 2)
        for (int v = 0; v < 2; v++) {
            tri_schedule s;
            tri_sim sim;
            schedule_make(&s, v ? "dualpipev" : "dualpipe", p, 3 * p, 0);
            schedule_lower(&s);
            schedule_simulate(&s, &costs, &sim);
            assert_float_equal(sim.idle, 2.0 * ((v ? p : p / 2) - 1), 1e-9);
            assert_int_equal(schedule_peak(&sim), (v ? 2 * p : p) + 1);
            tri_sim_fini(&sim);
            tri_schedule_fini(&s);
        }
}

/* 16 layers on 4 ranks in 2 chunks: 1,2,9,10 on the first, and so on. */
static void interleaved_chunks_lie_as_published(void **state)
{
    (void)state;
    tri_schedule s;
    schedule_make(&s, "interleaved", 4, 8, 2);
    assert_int_equal(s.num_chunks, 8);
    for (uint32_t c = 0; c < 8; c++)
        assert_int_equal(s.home[c], c % 4);
    tri_schedule_fini(&s);
    schedule_make(&s, "zb-v", 4, 8, 0);
    for (uint32_t c = 0; c < 8; c++)
        assert_int_equal(s.home[c], c < 4 ? c : 7 - c);
    tri_schedule_fini(&s);
}

/* Chimera's activations: from p/2+1 on the outer ranks to p on the inner ones. */
static void chimera_keeps_less_outside(void **state)
{
    (void)state;
    for (uint32_t p = 4; p <= 16; p += 2) {
        tri_schedule s;
        tri_sim sim;
        schedule_make(&s, "chimera", p, 2 * p, 0);
        schedule_simulate(&s, NULL, &sim);
        for (uint32_t r = 0; r < p; r++)
            assert_in_range(sim.ranks[r].peak_live, p / 2 + 1, p);
        assert_int_equal(sim.ranks[0].peak_live, p / 2 + 1);
        assert_int_equal(sim.ranks[p / 2].peak_live, p);
        tri_sim_fini(&sim);
        tri_schedule_fini(&s);
    }
}

static void what_cannot_be_is_refused_with_what_can(void **state)
{
    (void)state;
    static const struct {
        const char *order;
        uint32_t p, m, chunks;
        const char *says;
    } cases[] = {
        {"interleaved", 4, 6, 0, "use 4 or 8 micro-batches"},
        {"interleaved", 4, 2, 0, "use 4 micro-batches"},
        {"interleaved", 4, 8, 1, "cannot have 1 chunk on a rank: use 2"},
        {"interleaved", 1, 8, 2, "with 1 rank it cannot be: use 2"},
        {"chimera", 5, 10, 0, "with 5 ranks it cannot be: use 4 or 6"},
        {"chimera", 4, 7, 0, "use 6 or 8 micro-batches"},
        {"dualpipe", 4, 6, 0, "use 8 micro-batches"},
        {"dualpipe", 4, 9, 0, "use 8 or 10 micro-batches"},
        {"dualpipev", 4, 7, 0, "use 8 micro-batches"},
        {"zb-v", 4, 8, 3, "cannot have 3 chunks on a rank: use 2"},
        {"1f1b", 4, 8, 2, "cannot have 2 chunks on a rank: use 1"},
        {"gpipe", 0, 8, 0, "with 0 ranks it cannot be: use 1"},
        {"gpipe", 4, 0, 0, "use 1 micro-batches"},
        {"gpipe", 4000, 4, 0, "use 1024"},
        {"gpipe", 1024, 1000000, 0, "too large"},
        {"1f2b", 4, 8, 0, "no schedule \"1f2b\"; choose one of gpipe, "},
        {"csv:/nowhere/at/all.csv", 0, 0, 0, "/nowhere/at/all.csv"},
        {"csv:tests/fixtures/schedules/zbv_p4_m8.csv", 8, 0, 0, "has 4 ranks, but 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_schedule s;
        tr_error err = {0};
        tri_schedule_config config = {cases[i].order, cases[i].p, cases[i].m, cases[i].chunks};
        assert_int_equal(tri_schedule_build(&config, &s, &err), TR_ERROR_INPUT);
        if (!strstr(err.message, cases[i].says))
            fail_msg("expected \"%s\" in: %s", cases[i].says, err.message);
    }
}

/* The numbers that a refusal names do work. */
static void refusals_name_what_works(void **state)
{
    (void)state;
    for (size_t o = 0; tri_order_at(o); o++)
        for (uint32_t p = 2; p <= 9; p++)
            for (uint32_t m = 1; m <= 20; m++) {
                const tri_order *order = tri_order_at(o);
                tr_error err = {0};
                if (tri_order_check(order, p, m, order->default_chunks, &err) == TR_OK)
                    continue;
                const char *use = strstr(err.message, "use ");
                assert_non_null(use);
                bool ranks = !strstr(use, "micro-batches");
                char *end;
                uint32_t n = (uint32_t)strtoul(use + 4, &end, 10);
                uint32_t other =
                    strncmp(end, " or ", 4) == 0 ? (uint32_t)strtoul(end + 4, NULL, 10) : n;
                const uint32_t named[] = {n, other};
                for (int k = 0; k < 2; k++)
                    if (ranks)
                        assert_true(!order->even_ranks || named[k] % 2 == 0);
                    else
                        assert_int_equal(
                            tri_order_check(order, p, named[k], order->default_chunks, NULL),
                            TR_OK);
            }
}

static void lowering_follows_the_published_example(void **state)
{
    (void)state;
    tri_schedule ours, theirs;
    schedule_load(&ours, "zb1p_2rank_2stagep_compute");
    schedule_load(&theirs, "zb1p_2rank_2stagep_comms");
    tri_schedule_join_backward(&ours);
    schedule_lower(&ours);
    const char *difference = schedule_difference(&ours, &theirs);
    if (difference)
        fail_msg("%s", difference);
    tri_schedule_fini(&ours);
    tri_schedule_fini(&theirs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_tables_are_reproduced),
        cmocka_unit_test(none_is_worse_than_published),
        cmocka_unit_test(simulated_figures_are_the_expected_ones),
        cmocka_unit_test(every_order_is_right_for_many_sizes),
        cmocka_unit_test(large_ones_are_right),
        cmocka_unit_test(formulas_hold_for_many_sizes),
        cmocka_unit_test(memory_stays_within_the_promised_limits),
        cmocka_unit_test(v_orders_idle_no_longer_than_their_authors),
        cmocka_unit_test(zero_bubble_means_zero),
        cmocka_unit_test(textbook_numbers_come_out),
        cmocka_unit_test(chimera_has_its_published_bubble),
        cmocka_unit_test(dualpipe_has_its_published_bubble),
        cmocka_unit_test(interleaved_chunks_lie_as_published),
        cmocka_unit_test(chimera_keeps_less_outside),
        cmocka_unit_test(what_cannot_be_is_refused_with_what_can),
        cmocka_unit_test(refusals_name_what_works),
        cmocka_unit_test(lowering_follows_the_published_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
