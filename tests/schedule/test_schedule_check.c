/* The checker on broken schedules: each must be rejected, and the message must name the actions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_refusal(const tri_schedule *s, const char *one, const char *two)
{
    tr_error err = {0};
    assert_int_equal(tri_schedule_check(s, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, one) || !strstr(err.message, two))
        fail_msg("expected \"%s\" and \"%s\" in: %s", one, two, err.message);
}

static void expect_text_refused(const char *text, const char *one, const char *two)
{
    tri_schedule s;
    schedule_parse(&s, text);
    expect_refusal(&s, one, two);
    tri_schedule_fini(&s);
}

static size_t place_of(const tri_schedule *s, uint32_t rank, const char *name)
{
    char text[48];
    for (size_t i = 0; i < s->ranks[rank].count; i++)
        if (strcmp(tri_action_text(&s->ranks[rank].actions[i], text), name) == 0)
            return i;
    fail_msg("rank %u has no %s", rank, name);
    return 0;
}

static void swap(tri_schedule *s, uint32_t rank, const char *one, const char *two)
{
    size_t i = place_of(s, rank, one), j = place_of(s, rank, two);
    tri_action kept = s->ranks[rank].actions[i];
    s->ranks[rank].actions[i] = s->ranks[rank].actions[j];
    s->ranks[rank].actions[j] = kept;
}

static void remove_at(tri_schedule *s, uint32_t rank, size_t i)
{
    tri_action_list *list = &s->ranks[rank];
    memmove(&list->actions[i], &list->actions[i + 1],
            (list->count - i - 1) * sizeof *list->actions);
    list->count--;
}

static void make_lowered(tri_schedule *s, const char *order)
{
    schedule_make(s, order, 4, 8, 0);
    schedule_lower(s);
}

static void swapped_pairs_are_named(void **state)
{
    (void)state;
    tri_schedule s;
    make_lowered(&s, "1f1b");
    swap(&s, 1, "1F0", "1B0"); /* a backward before its forward */
    expect_refusal(&s, "rank 1's 1B0", "rank 1's 1F0");
    tri_schedule_fini(&s);
    make_lowered(&s, "zb-h1");
    swap(&s, 2, "2I0", "2W0");
    expect_refusal(&s, "rank 2's 2W0", "rank 2's 2I0");
    tri_schedule_fini(&s);
    make_lowered(&s, "1f1b");
    swap(&s, 1, "1F3", "1SEND_F3"); /* a message before what it carries */
    expect_refusal(&s, "rank 1's 1SEND_F3", "rank 1's 1F3");
    tri_schedule_fini(&s);
    make_lowered(&s, "1f1b");
    swap(&s, 1, "1F3", "1RECV_F3"); /* an action before what it reads */
    expect_refusal(&s, "rank 1's 1RECV_F3", "rank 1's 1F3");
    tri_schedule_fini(&s);
}

static void missing_and_doubled_actions_are_named(void **state)
{
    (void)state;
    tri_schedule s;
    make_lowered(&s, "zb-v");
    remove_at(&s, 1, place_of(&s, 1, "6RECV_F3"));
    expect_refusal(&s, "6RECV_F3 is missing on rank 1", "rank 2's 5SEND_F3");
    tri_schedule_fini(&s);
    make_lowered(&s, "zb-v");
    remove_at(&s, 1, place_of(&s, 1, "6SEND_B3"));
    expect_refusal(&s, "6SEND_B3 is missing on rank 1", "rank 2's 5RECV_B3");
    tri_schedule_fini(&s);
    make_lowered(&s, "zb-v");
    remove_at(&s, 3, place_of(&s, 3, "4W7"));
    expect_refusal(&s, "4W7 is missing on rank 3", "4I7");
    tri_schedule_fini(&s);
    make_lowered(&s, "zb-v");
    s.ranks[0].actions[place_of(&s, 0, "0W5")].microbatch = 4;
    expect_refusal(&s, "rank 0's 0W4", "second time");
    tri_schedule_fini(&s);
    make_lowered(&s, "1f1b");
    s.ranks[2].actions[place_of(&s, 2, "2F5")].chunk = 1;
    expect_refusal(&s, "rank 2's 1F5", "lives on rank 1");
    tri_schedule_fini(&s);
}

/* Receives in another order than the sends: both lanes wait at their heads for ever. */
static void lanes_that_disagree_are_a_deadlock(void **state)
{
    (void)state;
    tri_schedule s;
    make_lowered(&s, "gpipe");
    swap(&s, 2, "2RECV_F0", "2RECV_F1");
    expect_refusal(&s, "rank 2's", "RECV_F");
    tri_schedule_fini(&s);
    expect_text_refused("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                        "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
                        "rank 0's 0SEND_F0", "rank 1's 1RECV_F1");
}

/* Each rank sends before it receives: fine while directions have lanes of their own, and a deadlock
 * in one lane, since nothing is buffered. */
static void one_lane_for_all_is_tried_too(void **state)
{
    (void)state;
    expect_text_refused("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
                        "all messages of a rank in one lane", "rank 0's 0SEND_F1");
    tri_schedule s;
    schedule_parse(&s, "0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1\n"
                       "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
    tr_error err = {0};
    if (tri_schedule_check(&s, &err) != TR_OK)
        fail_msg("%s", err.message);
    tri_schedule_fini(&s);
}

static void compute_orders_that_deadlock_are_named(void **state)
{
    (void)state;
    expect_text_refused("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "rank 0's 0B0", "rank 1's 1B0");
    expect_text_refused("0F0,0F1,0B1,0B0\n1F0,1F1,1B0\n", "1B1 is missing on rank 1", "1F1");
    expect_text_refused("0F0,0F0,0B0\n1F0,1B0\n", "rank 0's 0F0 (action 1)", "(action 2)");
    expect_text_refused("0F0,0B0,0I0,0W0\n", "rank 0's 0B0", "0I0");
    expect_text_refused("0F0,0I0,0W0,0B0\n", "rank 0's 0B0", "0I0");
    expect_text_refused("0F0,0B0,0W0\n", "rank 0's 0B0", "0W0");
    expect_text_refused("0F0,0SEND_F0,0B0\n", "0SEND_F0", "has no other end");
    expect_text_refused("0RECV_F0,0F0,0B0\n", "0RECV_F0", "has no other end");
    expect_text_refused("0F0,1F0,0SEND_F0,1B0,0B0\n", "0SEND_F0", "has no other end");
    expect_text_refused("(0F0;0B0)OVERLAP_F_B\n", "0F0", "0B0"); /* a pair that needs itself */
    expect_text_refused("0F0,0U0,0B0,0F1,0B1,0U1\n", "rank 0's 0U0", "complete");
}

/* Any one action left out, or put in twice, is noticed in every order. */
static void no_single_change_of_count_passes(void **state)
{
    (void)state;
    for (size_t o = 0; tri_order_at(o); o++)
        for (int lowered = 0; lowered < 2; lowered++) {
            tri_schedule s;
            schedule_make(&s, tri_order_at(o)->name, 4, 8, 0);
            if (lowered)
                schedule_lower(&s);
            for (uint32_t r = 0; r < s.num_ranks; r++)
                for (size_t i = 0; i < s.ranks[r].count; i++) {
                    tri_action_list *list = &s.ranks[r];
                    tri_action kept = list->actions[i];
                    if (kept.kind == TRI_ACTION_U)
                        continue;
                    tri_action *copy = malloc((list->count + 1) * sizeof *copy), *old;
                    assert_non_null(copy);
                    memcpy(copy, list->actions, list->count * sizeof *copy);
                    copy[list->count] = kept; /* once more, at the end */
                    old = list->actions;
                    list->actions = copy;
                    list->count++;
                    assert_int_equal(tri_schedule_check(&s, NULL), TR_ERROR_INPUT);
                    memcpy(copy, old, (list->count - 1) * sizeof *copy);
                    list->count--;
                    remove_at(&s, r, i);
                    assert_int_equal(tri_schedule_check(&s, NULL), TR_ERROR_INPUT);
                    list->actions = old;
                    list->count++;
                    free(copy);
                }
            tri_schedule_fini(&s);
        }
}

/* Actions of a rank exchanged at random: whatever the checker lets through also runs to its end in
 * the simulator, and in at least the time of its longest rank. */
static void what_passes_can_be_run(void **state)
{
    (void)state;
    uint32_t seed = 12345, passed = 0;
    for (int round = 0; round < 3000; round++) {
        tri_schedule s;
        size_t o = (size_t)round % 15;
        schedule_make(&s, tri_order_at(o)->name, 4, 8, 0);
        if (round % 2)
            schedule_lower(&s);
        seed = seed * 1664525 + 1013904223;
        uint32_t r = seed >> 30;
        size_t i = (seed >> 8) % (s.ranks[r].count - 1);
        tri_action kept = s.ranks[r].actions[i];
        s.ranks[r].actions[i] = s.ranks[r].actions[i + 1];
        s.ranks[r].actions[i + 1] = kept;
        if (tri_schedule_check(&s, NULL) == TR_OK) {
            tri_sim sim;
            schedule_simulate(&s, NULL, &sim);
            assert_true(sim.makespan >= sim.work);
            tri_sim_fini(&sim);
            passed++;
        }
        tri_schedule_fini(&s);
    }
    assert_in_range(passed, 100, 2900); /* some exchanges are harmless, some are not */
}

static void lowering_twice_is_refused(void **state)
{
    (void)state;
    tri_schedule s;
    tr_error err = {0};
    make_lowered(&s, "1f1b");
    assert_int_equal(tri_schedule_lower(&s, &err), TR_ERROR_INPUT);
    tri_schedule_fini(&s);
    schedule_parse(&s, "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
    assert_int_equal(tri_schedule_lower(&s, &err), TR_ERROR_INPUT);
    tri_schedule_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swapped_pairs_are_named),
        cmocka_unit_test(missing_and_doubled_actions_are_named),
        cmocka_unit_test(lanes_that_disagree_are_a_deadlock),
        cmocka_unit_test(one_lane_for_all_is_tried_too),
        cmocka_unit_test(compute_orders_that_deadlock_are_named),
        cmocka_unit_test(no_single_change_of_count_passes),
        cmocka_unit_test(what_passes_can_be_run),
        cmocka_unit_test(lowering_twice_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
