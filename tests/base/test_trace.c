/* The trace file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/trace.h"
#include "run/trace_travel.h"
#include "temp_dir.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>

static json_t *write_and_read(const tri_trace *trace, const char *path)
{
    tr_error err;
    assert_int_equal(tri_trace_write(trace, path, &err), TR_OK);
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        fail_msg("line %d: %s", why.line, why.text);
    return root;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* The name that a metadata event of this kind gives to a lane; NULL when there is none. */
static const char *name_of(const json_t *root, const char *kind, int lane)
{
    size_t i;
    const json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(text_of(event, "ph"), "M") == 0 && strcmp(text_of(event, "name"), kind) == 0 &&
            json_integer_value(json_object_get(event, "tid")) == lane)
            return text_of(json_object_get(event, "args"), "name");
    }
    return NULL;
}

/* The n-th complete event. */
static const json_t *event_at(const json_t *root, size_t n)
{
    size_t i;
    const json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(text_of(event, "ph"), "X") == 0 && n-- == 0)
            return event;
    }
    return NULL;
}

static void events_come_out_as_they_went_in(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    tri_trace *trace;
    assert_int_equal(tri_trace_create(3, 16, &trace, &err), TR_OK);
    tri_trace_name_lane(trace, 0, "compute");
    tri_trace_name_lane(trace, 2, "send \"right\"\n\\");
    tri_trace_event product = {
        .name = "matmul",
        .category = "compute",
        .lane = 0,
        .start_ns = 1234567,
        .duration_ns = 89,
        .num_args = 4,
        .arg = {{"bytes", 1234567890123}, {"ratio", 0.25}, {"bad", NAN}, {"minus", -3}}};
    tri_trace_event send = {.name = "send", .lane = 5, .start_ns = -1500, .duration_ns = 2000};
    tri_trace_add(trace, &product);
    tri_trace_add(trace, &send);

    json_t *root = write_and_read(trace, temp_file(dir, "trace.json"));
    assert_string_equal(name_of(root, "process_name", 0), "rank 3");
    assert_string_equal(name_of(root, "thread_name", 0), "compute");
    assert_string_equal(name_of(root, "thread_name", 2), "send \"right\"\n\\");
    assert_string_equal(name_of(root, "thread_name", 5), "lane 5");
    assert_null(name_of(root, "thread_name", 1));
    const json_t *event = event_at(root, 0), *args = json_object_get(event, "args");
    assert_string_equal(text_of(event, "name"), "matmul");
    assert_string_equal(text_of(event, "cat"), "compute");
    assert_int_equal(json_integer_value(json_object_get(event, "pid")), 3);
    assert_int_equal(json_integer_value(json_object_get(event, "tid")), 0);
    assert_true(json_number_value(json_object_get(event, "ts")) == 1234.567);
    assert_true(json_number_value(json_object_get(event, "dur")) == 0.089);
    assert_int_equal(json_integer_value(json_object_get(args, "bytes")), 1234567890123);
    assert_true(json_real_value(json_object_get(args, "ratio")) == 0.25);
    assert_true(json_is_null(json_object_get(args, "bad")));
    assert_int_equal(json_integer_value(json_object_get(args, "minus")), -3);
    event = event_at(root, 1);
    assert_true(json_number_value(json_object_get(event, "ts")) == -1.5);
    assert_null(json_object_get(event, "args"));
    assert_null(event_at(root, 2));
    json_decref(root);
    tri_trace_destroy(trace);
}

static void a_full_buffer_drops_and_counts(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    tri_trace *trace;
    assert_int_equal(tri_trace_create(0, 10, &trace, &err), TR_OK);
    for (int i = 0; i < 25; i++)
        tri_trace_add(trace, &(tri_trace_event){.name = "e", .start_ns = i});
    assert_int_equal(tri_trace_num_events(trace), 10);
    assert_int_equal(tri_trace_num_dropped(trace), 15);
    json_t *root = write_and_read(trace, temp_file(dir, "full.json"));
    assert_non_null(event_at(root, 9));
    assert_null(event_at(root, 10));
    const json_t *other = json_object_get(root, "otherData");
    assert_int_equal(json_integer_value(json_object_get(other, "dropped_events")), 15);
    assert_int_equal(json_integer_value(json_object_get(other, "version")), 1);
    json_decref(root);
    tri_trace_destroy(trace);
}

static void an_empty_trace_is_valid(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    tri_trace *trace;
    assert_int_equal(tri_trace_create(0, 1, &trace, &err), TR_OK);
    json_t *root = write_and_read(trace, temp_file(dir, "empty.json"));
    assert_string_equal(name_of(root, "process_name", 0), "rank 0");
    json_decref(root);
    tri_trace_destroy(trace);
}

enum { NUM_THREADS = 4, NUM_EACH = 5000 };

static void *add_many(void *context)
{
    for (int i = 0; i < NUM_EACH; i++)
        tri_trace_add(context, &(tri_trace_event){.name = "threaded", .start_ns = i, .lane = 1});
    return NULL;
}

/* Also large enough to go through the writer's buffer many times. */
static void threads_add_without_losing(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    tri_trace *trace;
    assert_int_equal(tri_trace_create(0, NUM_THREADS * NUM_EACH, &trace, &err), TR_OK);
    pthread_t thread[NUM_THREADS];
    for (int i = 0; i < NUM_THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, add_many, trace), 0);
    for (int i = 0; i < NUM_THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(tri_trace_num_events(trace), NUM_THREADS * NUM_EACH);
    assert_int_equal(tri_trace_num_dropped(trace), 0);
    json_t *root = write_and_read(trace, temp_file(dir, "threads.json"));
    size_t named = 0, i;
    const json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        named += strcmp(text_of(event, "name"), "threaded") == 0;
    }
    assert_int_equal(named, NUM_THREADS * NUM_EACH);
    json_decref(root);
    tri_trace_destroy(trace);
}

static void errors(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    tri_trace *trace;
    assert_int_equal(tri_trace_create(0, 0, &trace, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_trace_create(0, INT64_MAX, &trace, &err), TR_ERROR_INPUT);
    assert_null(trace);
    assert_int_equal(tri_trace_create(0, 1, &trace, &err), TR_OK);
    const char *path = temp_file(dir, "none/trace.json");
    assert_int_equal(tri_trace_write(trace, path, &err), TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, path));
    tri_trace_destroy(trace);
    tri_trace_destroy(NULL);
}

static void add(tri_trace *trace, const char *category, int lane, int64_t start, int64_t end)
{
    tri_trace_add(trace, &(tri_trace_event){.name = "x",
                                            .category = category,
                                            .lane = lane,
                                            .start_ns = start,
                                            .duration_ns = end - start});
}

static void time_of_messages_under_computation(void **state)
{
    (void)state;
    tri_trace *trace;
    tr_error err;
    assert_int_equal(tri_trace_create(0, 16, &trace, &err), TR_OK);
    tri_trace_travel none = tri_trace_travel_of(trace);
    assert_int_equal(none.num_messages, 0);
    add(trace, "matmul", 0, 3000, 4000);     /* out of order, as threads add them */
    add(trace, "matmul", 0, 1000, 2500);     /* a pause from 2500 to 3000 */
    add(trace, "all_reduce", 3, 2000, 5000); /* 500 + 1000 under products, then waited for */
    add(trace, "wait", 0, 4000, 5000);       /* that is no computation */
    add(trace, "all_reduce", 0, 5000, 6000); /* where it stands: under nothing */
    add(trace, "matmul", 0, 6000, 9000);
    add(trace, "all_gather", 1, 6500, 7000);          /* all of it */
    add(trace, "action", TRI_TRACE_ACTIONS, 0, 9000); /* neither */
    tri_trace_travel travel = tri_trace_travel_of(trace);
    assert_int_equal(travel.num_messages, 3);
    assert_true(fabs(travel.total_s - 4500e-9) < 1e-15);
    assert_true(fabs(travel.beside_s - 2000e-9) < 1e-15);
    tri_trace_destroy(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_out_as_they_went_in),
        cmocka_unit_test(a_full_buffer_drops_and_counts),
        cmocka_unit_test(an_empty_trace_is_valid),
        cmocka_unit_test(threads_add_without_losing),
        cmocka_unit_test(errors),
        cmocka_unit_test(time_of_messages_under_computation),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
