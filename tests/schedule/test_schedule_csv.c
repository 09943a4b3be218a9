/* Schedules as tables: what is written is read back, and no text whatever does harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule_support.h"
#include "small_models.h"
#include "temp_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void written_tables_are_read_back(void **state)
{
    (void)state;
    for (size_t o = 0; tri_order_at(o); o++)
        for (int lowered = 0; lowered < 2; lowered++) {
            tri_schedule s, again;
            tri_text text;
            tri_text_init(&text);
            schedule_make(&s, tri_order_at(o)->name, 6, 12, 0);
            if (lowered)
                schedule_lower(&s);
            tri_schedule_write(&s, &text);
            schedule_parse(&again, text.chars);
            const char *difference = schedule_difference(&s, &again);
            if (difference)
                fail_msg("%s: %s", tri_order_at(o)->name, difference);
            assert_int_equal(s.num_routes, again.num_routes);
            assert_int_equal(s.has_messages, again.has_messages);
            assert_int_equal(s.update_every, again.update_every);
            assert_int_equal(s.delayed, again.delayed);
            assert_memory_equal(s.route, again.route, s.num_microbatches);
            assert_memory_equal(s.home, again.home, s.num_routes * s.num_chunks * sizeof *s.home);
            assert_int_equal(tri_schedule_check(&again, NULL), TR_OK);
            tri_text_fini(&text);
            tri_schedule_fini(&s);
            tri_schedule_fini(&again);
        }
}

static void tables_may_be_written_in_a_few_ways(void **state)
{
    (void)state;
    tri_schedule plain, other;
    schedule_parse(&plain, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    static const char *const same[] = {
        "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1",             /* no line end */
        "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n\r\n\n", /* of other machines, and too many */
        "0F0, 0F1,,,0B0 ,0B1,\n,1F0,1B0,1F1\t,1B1\n",   /* blanks, idle cells */
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        schedule_parse(&other, same[i]);
        assert_null(schedule_difference(&plain, &other));
        tri_schedule_fini(&other);
    }
    tri_schedule_fini(&plain);
}

static void wrong_tables_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "mine.csv is empty"},
        {"\n\n", "mine.csv is empty"},
        {"0F0,0B0\n\n1F0,1B0\n", "mine.csv:2: the row of rank 1"},
        {"0F0,0B0\n,,\n1F0,1B0\n", "mine.csv:2: the row of rank 1"},
        {"0F0,0Q0\n", "mine.csv:1: cell 2 is \"0Q0\"; expected"},
        {"0F0,0B0\n1F0,1B\n", "mine.csv:2: cell 2 is \"1B\""},
        {"0F0,0B0\n1F0,B0\n", "mine.csv:2: cell 2 is \"B0\""},
        {"0F0,0B-1\n", "cell 2 is \"0B-1\""},
        {"0F0 0B0\n", "cell 1 is \"0F0 0B0\""},
        {"0F00000000000000000000001,0B0\n", "has no forward of chunk 0"}, /* see below */
        {"0F99999999999999999999,0B0\n", "cell 1 is \"0F9999"},
        {"4096F0,0B0\n", "cell 1 is \"4096F0\""},
        {"0F0,0SEND_X0\n", "cell 2 is \"0SEND_X0\""},
        {"(0F0;0B0)\n", "a pair is written"},
        {"(0B0;0F0)OVERLAP_F_B\n", "a pair is written"},
        {"(0F0;)OVERLAP_F_B\n", "a pair is written"},
        {"(;)OVERLAP_F_B\n", "a pair is written"},
        {"(", "a pair is written"},
        {"3F0,3B0\n", "has no forward of chunk 0"},
        {"0F70000,0B70000\n", "number both from 0 without gaps"},
        {"0F0,0B0\n0F1,0B1\n0F2,0B2\n", "chunk 0 on ranks 0, 1 and 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_schedule s;
        tr_error err = {0};
        tr_status status =
            tri_schedule_parse(cases[i].text, strlen(cases[i].text), "mine.csv", &s, &err);
        if (i == 9) { /* leading noughts are a number like any other: this is 0F1 */
            assert_int_equal(status, TR_OK);
            tri_schedule_fini(&s);
            continue;
        }
        assert_int_equal(status, TR_ERROR_INPUT);
        if (!strstr(err.message, cases[i].says) || !strstr(err.message, "mine.csv"))
            fail_msg("expected \"%s\" in: %s", cases[i].says, err.message);
    }
}

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* Bytes of a good table replaced, removed and repeated. The text ends where its memory does, so
 * that a sanitizer sees a read past it. Whatever is read is checked, lowered and simulated. */
static void fuzz_one(const tri_text *good, uint64_t *seed)
{
    static const char pool[] = "0123456789FIWBUSENDRCV_;(),\n \r\tOLAP\0\xff";
    size_t length = good->length;
    char *text = malloc(length);
    assert_non_null(text);
    memcpy(text, good->chars, length);
    for (uint32_t k = 1 + next_random(seed) % 4; k > 0 && length > 1; k--) {
        size_t at = next_random(seed) % length, run = 1 + next_random(seed) % 9;
        run = run > length - at ? length - at : run;
        if (next_random(seed) % 3 == 0) {
            memmove(text + at, text + at + run, length - at - run);
            length -= run;
        } else if (next_random(seed) % 2) {
            text[at] = pool[next_random(seed) % (sizeof pool - 1)];
        } else {
            memmove(text + at, text + next_random(seed) % (length - run + 1), run);
        }
    }
    char *exact = malloc(length ? length : 1);
    assert_non_null(exact);
    memcpy(exact, text, length);
    free(text);
    tri_schedule s;
    tr_error err = {0};
    tri_action_costs costs = tri_sim_unit_costs();
    if (tri_schedule_parse(exact, length, "fuzz", &s, &err) == TR_OK) {
        tri_sim sim;
        if (tri_schedule_check(&s, &err) == TR_OK &&
            (s.has_messages || tri_schedule_lower(&s, &err) == TR_OK)) {
            assert_int_equal(tri_schedule_check(&s, &err), TR_OK);
            assert_int_equal(tri_sim_run(&s, &costs, &sim, &err), TR_OK);
            tri_sim_fini(&sim);
        }
        tri_schedule_fini(&s);
    }
    if (err.status != TR_OK)
        assert_int_equal(err.status, TR_ERROR_INPUT);
    free(exact);
}

static void no_text_does_harm(void **state)
{
    (void)state;
    static const char *const orders[] = {"1f1b", "zb-v", "dualpipe", "pipedream-2bw"};
    uint64_t seed = 7;
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
        for (int lowered = 0; lowered < 2; lowered++) {
            tri_schedule s;
            tri_text text;
            tri_text_init(&text);
            schedule_make(&s, orders[o], 2, 4, 0);
            if (lowered)
                schedule_lower(&s);
            tri_schedule_write(&s, &text);
            for (int round = 0; round < 3000; round++)
                fuzz_one(&text, &seed);
            tri_text_fini(&text);
            tri_schedule_fini(&s);
        }
}

/* The step programs of all ranks of a table. Returns how many could be compiled; a refusal has to
 * be one of wrong input. */
static int compile_table(const char *path, const char *text, int ranks, int microbatches)
{
    char schedule[300], pp[32], num[48];
    int made = 0;
    assert_int_equal(put_file(path, text, strlen(text)), 0);
    snprintf(schedule, sizeof schedule, "layout.schedule=csv:%s", path);
    snprintf(pp, sizeof pp, "layout.pp=%d", ranks);
    snprintf(num, sizeof num, "layout.microbatches=%d", microbatches);
    for (int rank = 0; rank < ranks; rank++) {
        tr_settings *settings =
            settings_of(TINY, SET("run.device=null", "model.num_layers=6", "model.dim=8",
                                  "data.seq_len=4", "model.vocab=16", pp, num, schedule));
        tr_session *session = NULL;
        tr_error err = {0};
        tr_status status = tri_api_compile(settings, rank, &session, &err);
        if (status != TR_OK && (status != TR_ERROR_INPUT || !err.message[0]))
            fail_msg("rank %d of %s%s: %s", rank, text, tr_status_name(status), err.message);
        made += status == TR_OK;
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
    return made;
}

/* Chunk 1 is on ranks 1 and 2, chunk 0 on both routes on rank 0: refused, after the graph was made.
 */
static void routes_that_part_are_refused(void **state)
{
    static const char table[] = "0F0,0F1,,0B0,0B1\n,1F0,1B0,,\n,,1F1,1B1,\n";
    assert_int_equal(compile_table(temp_file(*state, "x.csv"), table, 3, 2),
                     2); /* ranks 1 and 2 have no part in it */
}

/* Chunks on any ranks, micro-batches on either route, in an order that could run. */
static void random_table(uint64_t *seed, int ranks, int chunks, int microbatches, char *text)
{
    int home[2][8], route[8];
    for (int c = 0; c < chunks; c++) {
        home[0][c] = (int)(next_random(seed) % (uint32_t)ranks);
        home[1][c] =
            next_random(seed) % 3 ? home[0][c] : (int)(next_random(seed) % (uint32_t)ranks);
    }
    for (int m = 0; m < microbatches; m++)
        route[m] = (int)(next_random(seed) % 2);
    for (int rank = 0; rank < ranks; rank++) {
        for (int m = 0; m < microbatches; m++)
            for (int i = 0; i < 2 * chunks; i++) {
                int c = i < chunks ? i : 2 * chunks - 1 - i;
                if (home[route[m]][c] == rank)
                    text += sprintf(text, "%d%c%d,", c, i < chunks ? 'F' : 'B', m);
            }
        text += sprintf(text, "\n");
    }
}

static void any_table_compiles_or_is_refused(void **state)
{
    uint64_t seed = 11;
    const char *path = temp_file(*state, "x.csv");
    char text[4096];
    int made = 0, asked = 0;
    for (int round = 0; round < 120; round++) {
        int ranks = 2 + (int)(next_random(&seed) % 3), chunks = 1 + (int)(next_random(&seed) % 6);
        int microbatches = 1 + (int)(next_random(&seed) % 4);
        random_table(&seed, ranks, chunks, microbatches, text);
        made += compile_table(path, text, ranks, microbatches);
        asked += ranks;
    }
    assert_in_range(made, 1, asked - 1); /* both happen */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_tables_are_read_back),
        cmocka_unit_test(tables_may_be_written_in_a_few_ways),
        cmocka_unit_test(wrong_tables_are_explained),
        cmocka_unit_test(no_text_does_harm),
        cmocka_unit_test(routes_that_part_are_refused),
        cmocka_unit_test(any_table_compiles_or_is_refused),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
