/* Where the time of a step went, from a trace whose times are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fs.h"
#include "run/trace/profile.h"
#include "run/trace/trace_file.h"
#include "temp_dir.h"

#include <math.h>

static const tri_trace_label product = {
    .name = "y", .category = "matmul", .flops = 1e6, .bytes = 1000, .instruction = 1};
static const tri_trace_label copy = {
    .name = "z", .category = "embed", .flops = 0, .bytes = 4000, .instruction = 2};
static const tri_trace_label sum = {
    .name = "g", .category = "all_reduce", .group = "dp", .bytes = 3000, .instruction = 3};
static const tri_trace_label gather = {
    .name = "w", .category = "all_gather", .group = "shard", .bytes = 8000, .instruction = 4};
static const tri_trace_label step = {.name = "step", .category = "step"};

static void add(tri_trace *trace, const tri_trace_label *label, tri_trace_event event, int64_t from,
                int64_t to)
{
    event.label = label;
    event.start_ns = from;
    event.duration_ns = to - from;
    tri_trace_add(trace, &event);
}

/* A step from `at` on, 10,000 ns. Rank 1 is late at the sum, by 1,000 ns; the gather travels from
 * 1,000 to 4,000, the first 2,000 of that under a product, and is then waited for. */
static void add_step(tri_trace *trace, int64_t number, int64_t at, bool late)
{
    tri_trace_event plain = {.step = number}, beside = {.step = number, .lane = 2},
                    waits = {.step = number, .waits = true},
                    steps = {.step = number, .lane = TRI_TRACE_STEPS};
    beside.message = waits.message = (uint64_t)(2 * number + 1);
    add(trace, &product, plain, at, at + 3000);
    add(trace, &gather, beside, at + 1000, at + 4000);
    add(trace, &gather, waits, at + 3000, at + 4000);
    add(trace, &copy, plain, at + 4000, at + 5000 + (late ? 1000 : 0));
    plain.message = (uint64_t)(2 * number + 2);
    add(trace, &sum, plain, at + 5000 + (late ? 1000 : 0), at + 8000);
    add(trace, &step, steps, at, at + 10000);
}

static bool near(double value, double wanted)
{
    return fabs(value - wanted) < 1e-12;
}

static void make_file(const char *dir)
{
    tr_error err = {0};
    assert_int_equal(tri_make_dirs(dir, &err), TR_OK);
    for (int rank = 1; rank >= 0; rank--) {
        tri_trace *trace;
        assert_int_equal(tri_trace_create(64, &trace, &err), TR_OK);
        *tri_trace_about_of(trace) = (tri_trace_about){
            .rank = rank, .num_ranks = 2, .first_step = 1, .num_steps = 3, .peaks = {1e12, 0, 1e9}};
        tri_trace_name_lane(trace, 0, "compute");
        for (int64_t s = 1; s <= 3; s++) /* the first takes long, and does not count */
            add_step(trace, s, s * 20000, rank == 1);
        add(trace, &product, (tri_trace_event){.step = 1}, 28000, 30000);
        assert_int_equal(rank == 1 ? tri_trace_write_part(trace, dir, &err)
                                   : tri_trace_join(trace, dir, &err),
                         TR_OK);
        tri_trace_destroy(trace);
    }
}

static void times_add_up(void **state)
{
    static tri_profile p;
    tr_error err = {0};
    char path[300];
    const char *dir = temp_file(*state, "run");
    make_file(dir);
    snprintf(path, sizeof path, "%s/trace.json", dir);
    if (tri_profile_read(&p, path, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_int_equal(p.first_step, 2);
    assert_int_equal(p.num_steps, 2);
    assert_int_equal(p.num_present, 2);
    const tri_profile_rank *first = &p.ranks[0], *second = &p.ranks[1];
    assert_true(near(first->step_s, 10e-6) && near(first->compute_s, 4e-6));
    assert_true(near(first->message_s, 2e-6)); /* 3,000 ns, of which 1,000 are for rank 1 */
    assert_true(near(first->wait_s, 1e-6 + 1e-6) && near(first->idle_s, 2e-6));
    assert_int_equal(first->waits_for, 1);
    assert_true(near(first->waits_for_s, 1e-6));
    assert_true(near(second->compute_s, 5e-6) && near(second->message_s, 2e-6));
    assert_true(near(second->wait_s, 1e-6) && near(second->idle_s, 2e-6));
    assert_int_equal(second->waits_for, -1);

    assert_int_equal(p.num_ops, 2);
    assert_string_equal(p.ops[0].name, "matmul");
    assert_int_equal(p.ops[0].calls, 4);
    assert_true(near(p.ops[0].seconds, 12e-6) && near(p.ops[0].flops, 4e6));
    assert_true(near(p.ops[0].limit_s, 4e-6)); /* 1e6 at 1e12, and 1,000 bytes at 1e9 the same */
    assert_true(near(p.ops[1].limit_s, 16e-6));

    assert_int_equal(p.num_axes, 2);
    assert_string_equal(p.axes[0].name, "dp");
    assert_true(near(p.axes[0].seconds, 2 * (3e-6 + 2e-6)) && near(p.axes[0].late_s, 2e-6));
    assert_true(near(p.axes[0].hidden_s, 0) && near(p.axes[0].bytes, 12000));
    assert_true(near(p.axes[0].exposed_s, 2 * 5e-6 - 2e-6)); /* it is waited for where it stands */
    assert_string_equal(p.axes[1].name, "shard");
    assert_string_equal(p.axes[1].operation, "all_gather");
    assert_true(near(p.axes[1].seconds, 12e-6) && near(p.axes[1].hidden_s, 8e-6));
    assert_true(near(p.axes[1].exposed_s, 4e-6)); /* a wait of 1 us a rank and step is its end */
    tri_profile_free(&p);
    tri_profile_free(&p);
}

static void files_without_a_step_are_refused(void **state)
{
    static tri_profile p;
    tr_error err = {0};
    tri_trace *trace;
    char path[300];
    const char *dir = temp_file(*state, "none");
    snprintf(path, sizeof path, "%s/trace.json", dir);
    assert_int_equal(tri_profile_read(&p, path, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_make_dirs(dir, &err), TR_OK);
    assert_int_equal(tri_trace_create(4, &trace, &err), TR_OK);
    add(trace, &product, (tri_trace_event){.step = 1}, 0, 100);
    assert_int_equal(tri_trace_join(trace, dir, &err), TR_OK);
    assert_int_equal(tri_profile_read(&p, path, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "no whole step"));
    tri_trace_destroy(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_add_up),
        cmocka_unit_test(files_without_a_step_are_refused),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
