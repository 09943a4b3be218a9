/* The simulator on schedules small enough to work out by hand, and its pictures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule_support.h"

#include <string.h>

static void parse_costs(const char *text, tri_action_costs *costs)
{
    tr_error err = {0};
    *costs = tri_sim_unit_costs();
    if (tri_sim_parse_costs(text, costs, &err) != TR_OK)
        fail_msg("%s", err.message);
}

static double time_of(const tri_schedule *s, const char *text)
{
    tri_action_costs costs;
    tri_sim sim;
    parse_costs(text, &costs);
    schedule_simulate(s, &costs, &sim);
    double makespan = sim.makespan;
    tri_sim_fini(&sim);
    return makespan;
}

static void costs_are_read(void **state)
{
    (void)state;
    tri_action_costs costs;
    parse_costs("F=2,I=0.5,W=1.5,comm=0.25,U=3,FB=4", &costs);
    assert_float_equal(costs.kind[TRI_ACTION_F], 2, 0);
    assert_float_equal(costs.kind[TRI_ACTION_B], 2, 0); /* I + W */
    assert_float_equal(costs.kind[TRI_ACTION_U], 3, 0);
    assert_float_equal(costs.message, 0.25, 0);
    assert_float_equal(costs.overlap, 4, 0);
    parse_costs("B=5,I=1", &costs);
    assert_float_equal(costs.kind[TRI_ACTION_B], 5, 0);
    parse_costs("", &costs);
    assert_float_equal(costs.kind[TRI_ACTION_B], 2, 0);
    static const char *const wrong[] = {"F",    "F=",   "F=x",   "=1",   "G=1",   "F=1;B=2",
                                        "F=1 ", "F=-1", "F=nan", "FF=1", "F=inf", ",F=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tr_error err = {0};
        assert_int_equal(tri_sim_parse_costs(wrong[i], &costs, &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, "cost"));
    }
}

/* One micro-batch through two ranks and back: F, message, F, B, message, B. */
static void messages_take_their_time(void **state)
{
    (void)state;
    for (int lowered = 0; lowered < 2; lowered++) {
        tri_schedule s;
        schedule_make(&s, "1f1b", 2, 1, 0);
        if (lowered)
            schedule_lower(&s);
        assert_float_equal(time_of(&s, "F=1,B=2"), 6, 1e-12);
        assert_float_equal(time_of(&s, "F=1,B=2,comm=0.25"), 6.5, 1e-12);
        assert_float_equal(time_of(&s, "F=1,B=2,comm=0.25,U=4"), 10.5, 1e-12);
        tri_schedule_fini(&s);
    }
}

/* A lane carries one message after the other. Rank 0 makes three outputs in 3 units; each takes 2
 * to send, so the third arrives at 1 + 3 * 2. */
static void a_lane_carries_one_message_at_a_time(void **state)
{
    (void)state;
    tri_schedule s;
    schedule_parse(&s, "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n");
    schedule_lower(&s);
    /* The third forward of rank 1 starts at 7 and ends at 8; B of 1 each follow at 8, 9, 10. The
     * first gradient leaves at 9, the three arrive at 11, 13, 15, and the last B ends at 16. */
    assert_float_equal(time_of(&s, "F=1,B=1,comm=2"), 16, 1e-12);
    tri_schedule_fini(&s);
}

/* A receive that is issued long before it is read needs a buffer all that time. */
static void early_receives_are_counted(void **state)
{
    (void)state;
    tri_schedule s;
    tri_sim sim;
    schedule_parse(&s, "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,0RECV_B0,0B0,0RECV_B1,0B1,"
                       "0RECV_B2,0B2\n"
                       "1RECV_F0,1RECV_F1,1F0,1RECV_F2,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1F2,1B2,"
                       "1SEND_B2\n");
    assert_int_equal(tri_schedule_check(&s, NULL), TR_OK);
    schedule_simulate(&s, NULL, &sim);
    assert_int_equal(sim.ranks[0].peak_inbox, 1);
    assert_int_equal(sim.ranks[1].peak_inbox, 2);
    tri_sim_fini(&sim);
    tri_schedule_fini(&s);
}

/* V: nothing is sent where the fold is. */
static void chunks_on_one_rank_need_no_message(void **state)
{
    (void)state;
    tri_schedule s;
    tri_sim sim;
    schedule_make(&s, "zb-v", 2, 1, 0);
    schedule_lower(&s);
    schedule_simulate(&s, NULL, &sim);
    assert_int_equal(sim.ranks[0].num_messages, 2); /* chunk 0 forward, chunk 3 backward */
    assert_int_equal(sim.ranks[1].num_messages, 2);
    assert_int_equal(sim.ranks[0].peak_inbox, 1);
    tri_sim_fini(&sim);
    /* 4 forwards, 4 input gradients and one W; two messages each way */
    assert_float_equal(time_of(&s, "comm=1"), 4 + 4 + 1 + 4, 1e-12);
    tri_schedule_fini(&s);
}

/* An overlapped pair as one takes FB; otherwise F, then B. */
static void pairs_overlap_when_they_can(void **state)
{
    (void)state;
    tri_schedule s;
    schedule_parse(&s, "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
    assert_float_equal(time_of(&s, ""), 6, 1e-12);
    assert_float_equal(time_of(&s, "FB=2"), 5, 1e-12);
    assert_float_equal(time_of(&s, "FB=3"), 6, 1e-12);
    tri_schedule_fini(&s);
}

/* A rank that is never idle is so with any costs. */
static void rounding_is_no_idle_time(void **state)
{
    (void)state;
    static const char *const texts[] = {"F=0.1,I=0.1,W=0.1", "F=1e-3,I=1e-3,W=1e-3",
                                        "F=333333.3,I=333333.3,W=333333.3"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tri_schedule s;
        tri_sim sim;
        tri_action_costs costs;
        parse_costs(texts[i], &costs);
        schedule_make(&s, "zb-v", 7, 50, 0);
        schedule_simulate(&s, &costs, &sim);
        assert_true(sim.idle == 0 && sim.bubble == 0);
        tri_sim_fini(&sim);
        tri_schedule_fini(&s);
    }
}

/* PipeDream: rank r has p-r versions under way, and a gradient is p-1-r updates old. 2BW: two
 * versions and one update on every rank. */
static void asynchronous_weights_are_counted(void **state)
{
    (void)state;
    for (uint32_t p = 2; p <= 8; p++)
        for (int two = 0; two < 2; two++) {
            tri_schedule s;
            tri_sim sim;
            schedule_make(&s, two ? "pipedream-2bw" : "pipedream", p, 4 * p, 0);
            schedule_lower(&s);
            schedule_simulate(&s, NULL, &sim);
            for (uint32_t r = 0; r < p; r++) {
                assert_float_equal(sim.ranks[r].weight_copies, two ? 2 : p - r, 0);
                assert_int_equal(sim.ranks[r].staleness, two ? 1 : p - 1 - r);
                assert_int_equal(sim.ranks[r].peak_live, p - r);
                assert_float_equal(sim.ranks[r].steady_idle, 0, 1e-9);
            }
            tri_sim_fini(&sim);
            tri_schedule_fini(&s);
        }
}

static void draw(const tri_schedule *s, const char *costs_text, uint32_t columns, const char *want)
{
    tri_action_costs costs;
    tri_sim sim;
    tri_text text;
    uint32_t needed = 0;
    tri_text_init(&text);
    parse_costs(costs_text, &costs);
    schedule_simulate(s, &costs, &sim);
    bool fits = tri_sim_draw_text(&sim, columns, &text, &needed);
    assert_int_equal(fits, want != NULL);
    if (want)
        assert_string_equal(text.chars, want);
    else
        assert_int_equal(needed, 9 + 9);
    tri_text_fini(&text);
    tri_sim_fini(&sim);
}

static void pictures_of_characters(void **state)
{
    (void)state;
    tri_schedule s;
    schedule_make(&s, "1f1b", 2, 2, 0);
    draw(&s, "", 80,
         "rank 0   F0 F1 .  .  B0--- .  B1---\n"
         "rank 1   .  F0 B0--- F1 B1--- .  .\n");
    draw(&s, "", 9 + 18,
         "rank 0   F0F1. . B0--. B1--\n"
         "rank 1   . F0B0--F1B1--. .\n");
    draw(&s, "", 9 + 17,
         "rank 0   FF..BB.BB\n"
         "rank 1   .FBBFBB..\n");
    draw(&s, "", 9 + 8, NULL);
    tri_schedule_fini(&s);
    schedule_make(&s, "zb-v", 1, 1, 0); /* small letters for the second chunk */
    draw(&s, "", 80, "rank 0   F0 f0 i0 w0 I0 W0\n");
    tri_schedule_fini(&s);
}

/* Every action that computes is a cell, and the text is balanced. */
static void pictures_hold_every_action(void **state)
{
    (void)state;
    for (size_t o = 0; tri_order_at(o); o++) {
        tri_schedule s;
        tri_sim sim;
        tri_text text;
        tr_error err = {0};
        size_t cells = 0, actions = 0;
        tri_text_init(&text);
        schedule_make(&s, tri_order_at(o)->name, 4, 8, 0);
        schedule_lower(&s);
        schedule_simulate(&s, NULL, &sim);
        assert_int_equal(tri_sim_draw_svg(&sim, "a < b & c", &text, &err), TR_OK);
        for (const char *at = text.chars; (at = strstr(at, "class=\"n\"")); at++)
            cells++;
        for (uint32_t r = 0; r < s.num_ranks; r++)
            for (size_t i = 0; i < s.ranks[r].count; i++)
                actions += tri_action_computes(s.ranks[r].actions[i].kind) &&
                           s.ranks[r].actions[i].kind != TRI_ACTION_U; /* those take no time */
        assert_int_equal(cells, actions);
        assert_non_null(strstr(text.chars, "a &lt; b &amp; c"));
        assert_null(strstr(text.chars, "nan"));
        assert_string_equal(text.chars + text.length - 7, "</svg>\n");
        tri_text_fini(&text);
        tri_sim_fini(&sim);
        tri_schedule_fini(&s);
    }
}

static void pictures_too_large_are_refused(void **state)
{
    (void)state;
    tri_schedule s;
    tri_sim sim;
    tri_text text;
    tr_error err = {0};
    tri_text_init(&text);
    schedule_make(&s, "1f1b", 32, 1024, 0);
    schedule_simulate(&s, NULL, &sim);
    assert_int_equal(tri_sim_draw_svg(&sim, "large", &text, &err), TR_ERROR_INPUT);
    tri_text_fini(&text);
    tri_sim_fini(&sim);
    tri_schedule_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_are_read),
        cmocka_unit_test(messages_take_their_time),
        cmocka_unit_test(a_lane_carries_one_message_at_a_time),
        cmocka_unit_test(early_receives_are_counted),
        cmocka_unit_test(chunks_on_one_rank_need_no_message),
        cmocka_unit_test(pairs_overlap_when_they_can),
        cmocka_unit_test(rounding_is_no_idle_time),
        cmocka_unit_test(asynchronous_weights_are_counted),
        cmocka_unit_test(pictures_of_characters),
        cmocka_unit_test(pictures_hold_every_action),
        cmocka_unit_test(pictures_too_large_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
