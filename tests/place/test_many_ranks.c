/* Layouts of very many ranks: counts that pass 16 bits, groups that pass a thousand. */
#include "small_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "place/stages.h"
#include "run/executor_parts.h"
#include "trireme/trireme.h"

static tr_session *compiled_for(int rank, const char *const *assignments, tr_settings **settings)
{
    tr_error err = {0};
    tr_session *session;
    *settings = settings_of(TINY, assignments);
    if (tri_api_compile(*settings, rank, &session, &err) != TR_OK)
        fail_msg("rank %d: %s", rank, err.message);
    return session;
}

static uint64_t stored_bytes(const tr_session *session)
{
    uint64_t bytes = 0;
    for (int i = TRI_SLAB_PARAM; i <= TRI_SLAB_OPTIM; i++)
        bytes += session->session.store.slabs[i].bytes;
    return bytes;
}

/* A rank of so many has no more of each bucket than the unit in which buckets are cut. */
static void test_shares_of_very_many(void **state)
{
    (void)state;
    static const int sizes[] = {1024, 1025, 32768, 65535, 65536, 65537, TRI_MAX_DP};
    enum { MOST = 64 * 1024 }; /* of more than two million bytes */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int end = 0; end < 2; end++) {
            char dp[32];
            tr_settings *settings;
            snprintf(dp, sizeof dp, "layout.dp=%d", sizes[i]);
            tr_session *session = compiled_for(
                end ? sizes[i] - 1 : 0, SET("run.device=null", "layout.zero=3", dp), &settings);
            if (stored_bytes(session) > MOST)
                fail_msg("%s, %s rank: %llu bytes of parameters, gradients and moments", dp,
                         end ? "last" : "first", (unsigned long long)stored_bytes(session));
            tr_session_destroy(session);
            tr_settings_destroy(settings);
        }
}

/* What the ranks of a group have of a message is all of it, however many they are. */
static void expect_whole_messages(const tri_executor *executor)
{
    const tri_program *program = executor->program;
    int seen = 0;
    for (size_t m = 0; m < program->num_messages; m++) {
        const tri_message *message = &program->messages[m];
        tri_exchange_call call = tri_executor_exchange(executor, message, NULL, NULL);
        const uint64_t *counts = call.send_counts ? call.send_counts : call.recv_counts;
        uint64_t sum = 0;
        for (uint32_t part = 0; counts && part < call.group->size; part++)
            sum += counts[part];
        if (!counts)
            continue;
        assert_int_equal(sum, program->instrs[message->first].attr.flat.total);
        assert_int_equal(sum, message->elements);
        seen++;
    }
    assert_true(seen > 0);
}

static void test_messages_of_large_groups(void **state)
{
    (void)state;
    tr_error err = {0};
    tr_settings *settings;
    tr_session *session =
        compiled_for(2999, SET("run.device=null", "layout.zero=3", "layout.dp=3000"), &settings);
    tri_session *s = &session->session;
    tri_executor executor = {0};
    if (tri_store_alloc(&s->store, &err) != TR_OK ||
        tri_executor_init(&executor, &s->programs[TRI_PROGRAM_TRAIN], &s->store, 1, &err) != TR_OK)
        fail_msg("%s", err.message);
    expect_whole_messages(&executor);
    tri_executor_fini(&executor);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

static void test_too_many_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *dp, *tp, *pp, *says;
    } cases[] = {
        {"layout.dp=1024", "layout.tp=1024", "layout.pp=2", "1024 x 1 x 1024 x 2 = 2097152 ranks"},
        {"layout.dp=1048576", "layout.tp=1", "layout.pp=2",
         "layout.dp x layout.cp x layout.tp x layout.pp"},
        {"layout.dp=1048576", "layout.tp=1024", "layout.pp=1024", "1099511627776 ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tr_error err = {0};
        tr_session *session = NULL;
        tr_settings *settings = settings_of(TINY, SET(cases[i].dp, cases[i].tp, cases[i].pp));
        assert_int_equal(tri_api_compile(settings, 0, &session, &err), TR_ERROR_INPUT);
        if (!strstr(err.message, cases[i].says))
            fail_msg("expected \"%s\" in: %s", cases[i].says, err.message);
        tr_settings_destroy(settings);
    }
    static const char *const above[] = {"layout.dp=1048577", "layout.tp=1025", "layout.pp=1025",
                                        "layout.shard_group=1048577"};
    for (size_t i = 0; i < sizeof above / sizeof *above; i++) {
        tr_error err = {0};
        tr_settings *settings;
        assert_int_equal(tr_settings_create(&settings, &err), TR_OK);
        assert_int_equal(tr_settings_set(settings, above[i], &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, "out of range"));
        tr_settings_destroy(settings);
    }
}

/* Axes of the grid, and what is no axis, at the largest sizes. */
static void test_coordinates(void **state)
{
    (void)state;
    tri_mesh mesh = {
        .size = {
            [TRI_AXIS_TP] = 8, [TRI_AXIS_DP] = 16384, [TRI_AXIS_PP] = 8, [TRI_AXIS_SHARD] = 4096}};
    int last = TRI_MAX_RANKS - 1;
    assert_int_equal(tri_mesh_ranks(&mesh), TRI_MAX_RANKS);
    assert_int_equal(tri_mesh_coordinate(&mesh, last, TRI_AXIS_DP), 16383);
    assert_int_equal(tri_mesh_coordinate(&mesh, last, TRI_AXIS_PP), 7);
    assert_int_equal(tri_mesh_coordinate(&mesh, last, TRI_AXIS_SHARD), 4095);
    assert_int_equal(tri_mesh_coordinate(&mesh, last, TRI_AXIS_REPLICATE), 3);
    assert_int_equal(tri_mesh_coordinate(&mesh, last, TRI_AXIS_HOME), 0);
    assert_int_equal(tri_mesh_coordinate(&mesh, last, TRI_AXIS_KV_COPY), 0);
}

/* The groups of a program are as short with a million ranks as with two, and name every member. */
static void test_groups_of_a_million(void **state)
{
    (void)state;
    tr_settings *settings;
    tr_session *session =
        compiled_for(TRI_MAX_RANKS - 1,
                     SET("run.device=null", "layout.zero=3", "layout.dp=131072", "layout.tp=4",
                         "layout.pp=2", "layout.microbatches=2", "layout.shard_group=2"),
                     &settings);
    const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
    assert_int_equal(program->num_groups, 6); /* tp, dp, shard, replicate, pp, home */
    for (size_t g = 0; g < program->num_groups; g++) {
        const tri_rank_group *group = &program->groups[g];
        assert_int_equal(tri_rank_group_member(group, group->own), TRI_MAX_RANKS - 1);
        assert_int_equal(group->own, group->size - 1);
        for (uint32_t i = 1; i < group->size; i++)
            assert_true(tri_rank_group_member(group, i - 1) < tri_rank_group_member(group, i));
        assert_true(tri_rank_group_member(group, 0) >= 0);
        assert_true(strcmp(group->name, "replicate") != 0 || group->size == 65536);
    }
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* Levels and lists, by hand. */
static void test_members_of_groups(void **state)
{
    (void)state;
    const tri_rank_group levels = {
        .size = 12, .first = 5, .num_levels = 2, .level = {{3, 2}, {4, 100}}};
    static const int members[] = {5, 7, 9, 105, 107, 109, 205, 207, 209, 305, 307, 309};
    for (uint32_t i = 0; i < levels.size; i++)
        assert_int_equal(tri_rank_group_member(&levels, i), members[i]);
    tri_mesh mesh = {.size = {[TRI_AXIS_TP] = 2, [TRI_AXIS_PP] = 300000}};
    const uint32_t places[] = {1, 70000, 299999};
    tri_grid grid;
    tr_error err;
    assert_int_equal(tri_mesh_grid(&mesh, 140001, &grid, &err), TR_OK);
    tri_rank_group homes = tri_grid_homes(&grid, places, 3);
    char text[64];
    assert_int_equal(homes.own, 1);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(tri_rank_group_member(&homes, i), 1 + 2 * (int)places[i]);
    assert_string_equal(tri_rank_group_text(&homes, text, sizeof text), "pp 1, 70000, 299999");
    assert_false(tri_rank_group_equal(&homes, &levels));
    assert_int_equal(tri_mesh_grid(&mesh, 3, &grid, &err), TR_OK);
    tri_rank_group seen_by_another = tri_grid_homes(&grid, places, 3);
    assert_true(tri_rank_group_equal(&homes, &seen_by_another));
}

/* Chunks and ranks of a pipeline whose numbers do not fit 16 bits. */
static void test_homes_past_16_bits(void **state)
{
    (void)state;
    enum { NUM = 70000 };
    uint32_t *home = calloc(NUM, sizeof *home);
    assert_non_null(home);
    for (uint32_t i = 0; i < NUM; i++)
        home[i] = NUM - 1 - i;
    const tri_stages stages = {.num_ranks = NUM, .num_chunks = NUM, .num_routes = 1, .home = home};
    uint32_t ranks[TRI_MAX_HOMES];
    const tri_home_set set = {.first = 1, .last = 66001};
    assert_int_equal(tri_home_set_ranks(&stages, set, ranks), 2);
    assert_int_equal(ranks[0], NUM - 1 - 66001);
    assert_int_equal(ranks[1], NUM - 2);
    free(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_of_very_many),
        cmocka_unit_test(test_messages_of_large_groups),
        cmocka_unit_test(test_too_many_are_refused_by_name),
        cmocka_unit_test(test_coordinates),
        cmocka_unit_test(test_groups_of_a_million),
        cmocka_unit_test(test_members_of_groups),
        cmocka_unit_test(test_homes_past_16_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
