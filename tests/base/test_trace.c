/* The trace: a rank's events, and the file of all ranks. With an argument it looks at that file. */
#include "small_models.h"

#include "base/clock.h"
#include "base/fs.h"
#include "comm/clock_offset.h"
#include "run/trace/trace_file.h"
#include "run/trace/trace_read.h"
#include "run/trace/trace_travel.h"
#include "temp_dir.h"
#include "trireme/trireme.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>

static json_t *load(const char *path)
{
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        fail_msg("%s: line %d: %s", path, why.line, why.text);
    return root;
}

/* As the only rank of a run. */
static json_t *write_and_read(const tri_trace *trace, const char *dir)
{
    tr_error err = {0};
    char path[300];
    assert_int_equal(tri_make_dirs(dir, &err), TR_OK);
    if (tri_trace_join(trace, dir, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_int_equal(num_entries(dir), 1);
    snprintf(path, sizeof path, "%s/trace.json", dir);
    return load(path);
}

static tri_trace *trace_of(int rank, int num_ranks, int64_t max_events)
{
    tri_trace *trace;
    tr_error err;
    assert_int_equal(tri_trace_create(max_events, &trace, &err), TR_OK);
    *tri_trace_about_of(trace) =
        (tri_trace_about){.rank = rank, .num_ranks = num_ranks, .first_step = 1, .num_steps = 1};
    return trace;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static json_int_t whole_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* The name that a metadata event of this kind gives to a lane; NULL when there is none. */
static const char *name_of(const json_t *root, const char *kind, int rank, int lane)
{
    size_t i;
    const json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(text_of(event, "ph"), "M") == 0 && strcmp(text_of(event, "name"), kind) == 0 &&
            whole_of(event, "tid") == lane && whole_of(event, "pid") == rank)
            return text_of(json_object_get(event, "args"), "name");
    }
    return NULL;
}

/* The n-th event of a phase. */
static const json_t *event_at(const json_t *root, const char *phase, size_t n)
{
    size_t i;
    const json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(text_of(event, "ph"), phase) == 0 && n-- == 0)
            return event;
    }
    return NULL;
}

static void events_come_out_as_they_went_in(void **state)
{
    tri_trace *trace = trace_of(3, 4, 16);
    tri_trace_name_lane(trace, 0, "compute");
    tri_trace_name_lane(trace, 2, "send \"right\"\n\\");
    tri_trace_label product = {
        .name = "h.0.mlp", .category = "matmul", .instruction = 8, .flops = 1e9, .bytes = 0x1p52};
    tri_trace_label send = {.name = "x",
                            .category = "send",
                            .group = "pp",
                            .peer = 3,
                            .bytes = 10,
                            .flops = (double)NAN,
                            .flow = TRI_FLOW_SENDS};
    tri_trace_event event = {
        .label = &product, .start_ns = 1234567, .duration_ns = 89, .step = 5, .microbatch = 1};
    tri_trace_add(trace, &event);
    event = (tri_trace_event){
        .label = &send, .start_ns = -1500, .duration_ns = 2000, .lane = 5, .message = 77};
    tri_trace_add(trace, &event);
    event.waits = true;
    event.awaited = 4;
    tri_trace_add(trace, &event);

    json_t *root = write_and_read(trace, temp_file(*state, "in"));
    assert_string_equal(name_of(root, "process_name", 3, 0), "rank 3");
    assert_string_equal(name_of(root, "thread_name", 3, 0), "compute");
    assert_string_equal(name_of(root, "thread_name", 3, 2), "send \"right\"\n\\");
    assert_string_equal(name_of(root, "thread_name", 3, 5), "lane 5");
    assert_null(name_of(root, "thread_name", 3, 1));
    const json_t *out = event_at(root, "X", 0), *args = json_object_get(out, "args");
    assert_string_equal(text_of(out, "name"), "h.0.mlp");
    assert_string_equal(text_of(out, "cat"), "matmul");
    assert_int_equal(whole_of(out, "pid"), 3);
    assert_int_equal(whole_of(out, "tid"), 0);
    assert_true(json_number_value(json_object_get(out, "ts")) == 1234.567);
    assert_true(json_number_value(json_object_get(out, "dur")) == 0.089);
    assert_int_equal(whole_of(args, "step"), 5);
    assert_int_equal(whole_of(args, "instruction"), 7);
    assert_int_equal(whole_of(args, "microbatch"), 0);
    assert_int_equal(whole_of(args, "bytes"), (json_int_t)0x1p52);
    assert_true(fabs(json_number_value(json_object_get(args, "gflop_per_s")) - 1e9 / 90) < 1);
    assert_null(json_object_get(args, "group"));
    out = event_at(root, "X", 1);
    args = json_object_get(out, "args");
    assert_true(json_number_value(json_object_get(out, "ts")) == -1.5);
    assert_string_equal(text_of(args, "group"), "pp");
    assert_int_equal(whole_of(args, "peer"), 2);
    assert_int_equal(whole_of(args, "message"), 77);
    assert_null(json_object_get(args, "microbatch"));
    assert_string_equal(text_of(event_at(root, "X", 2), "cat"), "wait");
    assert_int_equal(whole_of(json_object_get(event_at(root, "X", 2), "args"), "waited_for_at"), 3);
    assert_null(event_at(root, "X", 3));
    assert_int_equal(whole_of(event_at(root, "s", 0), "id"), 77);
    assert_null(event_at(root, "s", 1)); /* waiting sends nothing */
    assert_null(event_at(root, "f", 0));
    json_decref(root);
    tri_trace_destroy(trace);
}

static const tri_trace_label plain = {.name = "e", .category = "matmul"};

static void a_full_buffer_drops_and_counts(void **state)
{
    tri_trace *trace = trace_of(0, 1, 10);
    for (int i = 0; i < 25; i++)
        tri_trace_add(trace, &(tri_trace_event){.label = &plain, .start_ns = i});
    assert_int_equal(tri_trace_num_events(trace), 10);
    assert_int_equal(tri_trace_num_dropped(trace), 15);
    json_t *root = write_and_read(trace, temp_file(*state, "full"));
    assert_non_null(event_at(root, "X", 9));
    assert_null(event_at(root, "X", 10));
    const json_t *other = json_object_get(root, "otherData");
    assert_int_equal(whole_of(other, "dropped_events"), 15);
    assert_int_equal(whole_of(other, "version"), TRI_TRACE_VERSION);
    json_decref(root);
    tri_trace_destroy(trace);
}

static void an_empty_trace_is_valid(void **state)
{
    tri_trace *trace = trace_of(0, 1, 1);
    json_t *root = write_and_read(trace, temp_file(*state, "empty"));
    assert_string_equal(name_of(root, "process_name", 0, 0), "rank 0");
    json_decref(root);
    tri_trace_destroy(trace);
}

enum { NUM_THREADS = 4, NUM_EACH = 5000 };

static void *add_many(void *context)
{
    for (int i = 0; i < NUM_EACH; i++)
        tri_trace_add(context, &(tri_trace_event){.label = &plain, .start_ns = i, .lane = 1});
    return NULL;
}

/* Also large enough to go through the writer's buffer many times. */
static void threads_add_without_losing(void **state)
{
    tri_trace *trace = trace_of(0, 1, NUM_THREADS * NUM_EACH);
    pthread_t thread[NUM_THREADS];
    for (int i = 0; i < NUM_THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, add_many, trace), 0);
    for (int i = 0; i < NUM_THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(tri_trace_num_events(trace), NUM_THREADS * NUM_EACH);
    assert_int_equal(tri_trace_num_dropped(trace), 0);
    json_t *root = write_and_read(trace, temp_file(*state, "threads"));
    assert_non_null(event_at(root, "X", NUM_THREADS * NUM_EACH - 1));
    assert_null(event_at(root, "X", NUM_THREADS * NUM_EACH));
    json_decref(root);
    tri_trace_destroy(trace);
}

static void errors(void **state)
{
    tr_error err;
    tri_trace *trace;
    assert_int_equal(tri_trace_create(0, &trace, &err), TR_ERROR_INPUT);
    assert_int_equal(tri_trace_create(INT64_MAX, &trace, &err), TR_ERROR_INPUT);
    assert_null(trace);
    trace = trace_of(0, 1, 1);
    const char *dir = temp_file(*state, "none");
    assert_int_not_equal(tri_trace_join(trace, dir, &err), TR_OK);
    assert_non_null(strstr(err.message, dir));
    assert_int_not_equal(tri_trace_write_part(trace, dir, &err), TR_OK);
    assert_non_null(strstr(err.message, dir));
    tri_trace_destroy(trace);
    tri_trace_destroy(NULL);
}

static void add(tri_trace *trace, const tri_trace_label *label, int lane, int64_t start,
                int64_t end)
{
    tri_trace_add(trace, &(tri_trace_event){.label = label,
                                            .lane = (int16_t)lane,
                                            .start_ns = start,
                                            .duration_ns = end - start});
}

static void time_of_messages_under_computation(void **state)
{
    (void)state;
    const tri_trace_label sum = {.name = "g", .category = "all_reduce", .group = "dp"};
    const tri_trace_label action = {.name = "F", .category = "action"};
    tri_trace *trace = trace_of(0, 1, 16);
    tri_trace_travel none = tri_trace_travel_of(trace);
    assert_int_equal(none.num_messages, 0);
    add(trace, &plain, 0, 3000, 4000); /* out of order, as threads add them */
    add(trace, &plain, 0, 1000, 2500); /* a pause from 2500 to 3000 */
    add(trace, &sum, 3, 2000, 5000);   /* 500 + 1000 under products, then waited for */
    tri_trace_add(trace, &(tri_trace_event){.label = &sum, /* that is no computation */
                                            .waits = true,
                                            .start_ns = 4000,
                                            .duration_ns = 1000});
    add(trace, &sum, 0, 5000, 6000); /* where it stands: under nothing */
    add(trace, &plain, 0, 6000, 9000);
    add(trace, &sum, 1, 6500, 7000);                 /* all of it */
    add(trace, &action, TRI_TRACE_ACTIONS, 0, 9000); /* neither */
    tri_trace_travel travel = tri_trace_travel_of(trace);
    assert_int_equal(travel.num_messages, 3);
    assert_true(fabs(travel.total_s - 4500e-9) < 1e-15);
    assert_true(fabs(travel.beside_s - 2000e-9) < 1e-15);
    tri_trace_destroy(trace);
}

/* ---- several ranks ---- */

typedef struct told {
    int num[4];
    int64_t last_ns;
    char rows[200];
} told;

static tr_status hear(void *context, const tri_trace_line *line, tr_error *err)
{
    told *t = context;
    (void)err;
    if (strcmp(line->category, "row") == 0) {
        snprintf(t->rows + strlen(t->rows), sizeof t->rows - strlen(t->rows), "%d:%s ", line->rank,
                 line->name);
        return TR_OK;
    }
    t->num[line->rank]++;
    t->last_ns = line->start_ns;
    return TR_OK;
}

/* Rank 1 is gone; rank 2's clock runs ahead by 5 s, and by 10 ppm more. */
static void parts_are_joined(void **state)
{
    tr_error err = {0};
    char dir[200], path[300];
    told t = {0};
    tri_trace_head head;
    snprintf(dir, sizeof dir, "%s", temp_file(*state, "parts"));
    snprintf(path, sizeof path, "%s/trace.json", dir);
    assert_int_equal(tri_make_dirs(dir, &err), TR_OK);
    assert_int_equal(tri_trace_join(NULL, dir, &err), TR_OK);
    assert_int_equal(num_entries(dir), 0); /* nothing is made of nothing */
    for (int rank = 0; rank < 3; rank += 2) {
        tri_trace *trace = trace_of(rank, 3, 4);
        tri_trace_name_lane(trace, 0, "compute");
        add(trace, &plain, 0, 1000, 2000);
        add(trace, &plain, 0, 3000000000, 3000000500);
        if (rank == 2)
            tri_trace_about_of(trace)->clock =
                (tri_trace_clock){.at_ns = {1000000000, 2000000000},
                                  .offset_ns = {-5000000000, -5000010000},
                                  .error_ns = 1500};
        assert_int_equal(tri_trace_write_part(trace, dir, &err), TR_OK);
        tri_trace_destroy(trace);
    }
    assert_true(tri_trace_has_parts(dir));
    snprintf(path, sizeof path, "%s/trace-7.part", dir); /* of nobody's */
    assert_int_equal(put_file(path, "junk", 4), 0);
    assert_int_equal(tri_trace_join(NULL, dir, &err), TR_OK);
    assert_false(tri_trace_has_parts(dir));
    snprintf(path, sizeof path, "%s/trace.json", dir);
    json_t *root = load(path);
    const json_t *missing = json_object_get(json_object_get(root, "otherData"), "missing_ranks");
    assert_int_equal(json_array_size(missing), 1);
    assert_int_equal(json_integer_value(json_array_get(missing, 0)), 1);
    json_decref(root);
    if (tri_trace_read(path, &head, hear, &t, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_int_equal(head.num_ranks, 3);
    assert_int_equal(head.num_missing, 1);
    assert_true(head.clock_error_us == 1.5);
    assert_int_equal(t.num[0], 2);
    assert_int_equal(t.num[1], 0);
    assert_int_equal(t.num[2], 2);
    assert_string_equal(t.rows, "0:compute 2:compute ");
    assert_int_equal(t.last_ns, 3000000000 - 5000020000);
}

static void damaged_files_are_refused(void **state)
{
    tr_error err = {0};
    char dir[200], path[300], *text;
    size_t num;
    tri_trace_head head;
    told t = {0};
    snprintf(dir, sizeof dir, "%s", temp_file(*state, "damaged"));
    snprintf(path, sizeof path, "%s/trace.json", dir);
    assert_int_equal(tri_trace_read(path, &head, hear, &t, &err), TR_ERROR_INPUT);
    tri_trace *trace = trace_of(0, 1, 4);
    add(trace, &plain, 0, 1000, 2000);
    json_decref(write_and_read(trace, dir));
    tri_trace_destroy(trace);
    assert_int_equal(tri_file_read(path, &text, &num, &err), TR_OK);
    assert_int_equal(tri_trace_read(path, &head, hear, &t, &err), TR_OK);
    for (size_t length = 0; length < num; length++) { /* whatever is cut off */
        assert_int_equal(put_file(path, text, length), 0);
        assert_int_equal(tri_trace_read(path, &head, hear, &t, &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, path));
    }
    text[strcspn(text, "2")] = '1'; /* the version */
    assert_int_equal(put_file(path, text, num), 0);
    assert_int_equal(tri_trace_read(path, &head, hear, &t, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "earlier version"));
    free(text);
}

/* Rank 1's clock is behind and slow. */
static int64_t other_clock(void *context)
{
    const int *rank = context;
    int64_t now = (int64_t)tri_now_ns();
    return *rank == 0 ? now : now - 7000000000;
}

static tr_status compare(tr_comm *comm, void *context, tr_error *err)
{
    tri_clock_offset *found = context, own;
    int rank = tr_comm_rank(comm);
    TRI_TRY(tri_clock_measure(comm, 1 - rank, other_clock, &rank, &own, err));
    found[rank] = own;
    TRI_TRY(tri_clock_compare(comm, &own, err)); /* on one machine nothing is measured */
    found[2 + rank] = own;
    return TR_OK;
}

static void clocks_are_compared(void **state)
{
    (void)state;
    tri_clock_offset found[4];
    tr_error err = {0};
    assert_int_equal(tr_comm_run_threads(2, NULL, compare, found, &err), TR_OK);
    assert_int_equal(found[0].offset_ns, 0);
    assert_true(found[1].error_ns > 0 && found[1].error_ns < 1000000000);
    assert_true(llabs(found[1].offset_ns - 7000000000) <= found[1].error_ns);
    assert_int_equal(found[2].offset_ns, 0);
    assert_int_equal(found[3].offset_ns, 0);
    assert_int_equal(found[3].error_ns, 0);
}

/* ---- the file of a run ---- */

typedef struct span {
    json_int_t rank, lane;
    double begin, end;
} span;

static int by_place(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* What a row has follows each other. */
static void check_rows(const json_t *events)
{
    size_t num = 0, i;
    span *spans = calloc(json_array_size(events) + 1, sizeof *spans);
    const json_t *event;
    assert_non_null(spans);
    json_array_foreach(events, i, event)
    {
        double begin = json_number_value(json_object_get(event, "ts"));
        if (strcmp(text_of(event, "ph"), "X") == 0)
            spans[num++] = (span){whole_of(event, "pid"), whole_of(event, "tid"), begin,
                                  begin + json_number_value(json_object_get(event, "dur"))};
    }
    qsort(spans, num, sizeof *spans, by_place);
    for (i = 1; i < num; i++)
        if (spans[i].rank == spans[i - 1].rank && spans[i].lane == spans[i - 1].lane &&
            spans[i].begin < spans[i - 1].end - 0.0005)
            fail_msg("rank %lld, lane %lld: two events at once, at %.3f", (long long)spans[i].rank,
                     (long long)spans[i].lane, spans[i].begin);
    free(spans);
}

/* A message as its ends tell of it. */
typedef struct ends {
    json_int_t id;
    int sends, receives, starts, finishes, others;
    json_int_t sender, sent_to, receiver, received_from;
    double begin, end; /* of sending, of receiving */
} ends;

typedef struct ends_list {
    ends *ends;
    size_t num;
} ends_list;

static ends *ends_of(ends_list *list, json_int_t id)
{
    for (size_t i = 0; i < list->num; i++)
        if (list->ends[i].id == id)
            return &list->ends[i];
    list->ends[list->num] = (ends){.id = id};
    return &list->ends[list->num++];
}

static void note_end(ends_list *list, const json_t *event)
{
    const json_t *args = json_object_get(event, "args");
    const char *phase = text_of(event, "ph"), *category = text_of(event, "cat");
    double begin = json_number_value(json_object_get(event, "ts"));
    if (*phase == 's')
        ends_of(list, whole_of(event, "id"))->starts++;
    if (*phase == 'f')
        ends_of(list, whole_of(event, "id"))->finishes++;
    if (*phase != 'X' || !json_object_get(args, "message") || strcmp(category, "wait") == 0)
        return;
    ends *e = ends_of(list, whole_of(args, "message"));
    if (strcmp(category, "send") == 0) {
        e->sends++;
        e->sender = whole_of(event, "pid");
        e->sent_to = whole_of(args, "peer");
        e->begin = begin;
    } else if (strcmp(category, "recv") == 0) {
        e->receives++;
        e->receiver = whole_of(event, "pid");
        e->received_from = whole_of(args, "peer");
        e->end = begin + json_number_value(json_object_get(event, "dur"));
    } else {
        e->others++;
    }
}

/* Every message has all of its ends, and an arrow where it has two; returns how many these are. */
static size_t check_messages(const json_t *events, int num_others)
{
    ends_list list = {.ends = calloc(json_array_size(events) + 1, sizeof(ends))};
    size_t i, pairs = 0;
    const json_t *event;
    assert_non_null(list.ends);
    json_array_foreach(events, i, event) note_end(&list, event);
    for (i = 0; i < list.num; i++) {
        const ends *e = &list.ends[i];
        assert_int_equal(e->others, e->sends ? 0 : num_others);
        assert_true(e->sends <= 1);
        assert_int_equal(e->receives, e->sends);
        assert_int_equal(e->starts, e->sends);
        assert_int_equal(e->finishes, e->sends);
        if (!e->sends)
            continue;
        pairs++;
        assert_int_equal(e->sender, e->received_from);
        assert_int_equal(e->receiver, e->sent_to);
        assert_true(e->end > e->begin);
    }
    free(list.ends);
    return pairs;
}

static void check_waits(const json_t *events)
{
    size_t i;
    const json_t *event;
    json_array_foreach(events, i, event)
    {
        if (strcmp(text_of(event, "cat"), "wait") == 0)
            assert_int_equal(whole_of(event, "tid"), TRI_TRACE_COMPUTE);
    }
}

static void train_traced(const char *dir, const char *const *layout)
{
    static const char *const words[] = {"model.num_layers=2", "model.dim=32",   "model.vocab=64",
                                        "data.seq_len=16",    "train.batch=8",  "train.steps=3",
                                        "run.threads=1",      "run.device=cpu", "run.trace=true",
                                        "run.save=false",     "ckpt.every=0",   NULL};
    char text[300];
    tr_error err = {0};
    tr_settings *settings = settings_of(TINY, words);
    snprintf(text, sizeof text, "run.dir=%s", dir);
    tr_status status = tr_settings_set(settings, text, &err);
    for (; *layout && status == TR_OK; layout++)
        status = tr_settings_set(settings, *layout, &err);
    if (status == TR_OK)
        status = tr_train(settings, NULL, NULL, &err);
    if (status != TR_OK)
        fail_msg("%s", err.message);
    tr_settings_destroy(settings);
}

#define LAYOUT(...)                                                                                \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void check_run(void **state, const char *name, const char *const *layout, size_t num_pairs)
{
    char path[300];
    const char *dir = temp_file(*state, name);
    train_traced(dir, layout);
    assert_false(tri_trace_has_parts(dir));
    snprintf(path, sizeof path, "%s/trace.json", dir);
    json_t *root = load(path);
    const json_t *events = json_object_get(root, "traceEvents");
    const json_t *other = json_object_get(root, "otherData");
    assert_int_equal(whole_of(other, "ranks"), 4);
    assert_int_equal(json_array_size(json_object_get(other, "missing_ranks")), 0);
    assert_int_equal(whole_of(other, "steps"), 3);
    for (int rank = 0; rank < 4; rank++)
        assert_string_equal(name_of(root, "thread_name", rank, 0), "compute");
    check_rows(events);
    check_waits(events);
    assert_int_equal(check_messages(events, 2), num_pairs);
    json_decref(root);
}

/* 3 steps of 4 micro-batches, there and back, in two pipelines. */
static void a_run_of_four_ranks_has_one_file(void **state)
{
    check_run(state, "pp", LAYOUT("layout.pp=2", "layout.dp=2", "layout.microbatches=4"),
              3 * 4 * 2 * 2);
    check_run(state, "zero",
              LAYOUT("layout.dp=2", "layout.tp=2", "layout.zero=3", "run.overlap_min_kb=0"), 0);
}

/* For scripts: a file of a run of which ranks may be gone. */
static int look_at(const char *path)
{
    json_error_t why;
    tri_trace_head head;
    told t = {0};
    tr_error err = {0};
    json_t *root = json_load_file(path, 0, &why);
    if (!root || tri_trace_read(path, &head, hear, &t, &err) != TR_OK) {
        fprintf(stderr, "%s: %s%s\n", path, root ? "" : why.text, err.message);
        return 1;
    }
    json_decref(root);
    printf("%d ranks, %d missing, %lld steps, events %d %d %d %d\n", head.num_ranks,
           head.num_missing, (long long)head.num_steps, t.num[0], t.num[1], t.num[2], t.num[3]);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_out_as_they_went_in),
        cmocka_unit_test(a_full_buffer_drops_and_counts),
        cmocka_unit_test(an_empty_trace_is_valid),
        cmocka_unit_test(threads_add_without_losing),
        cmocka_unit_test(errors),
        cmocka_unit_test(time_of_messages_under_computation),
        cmocka_unit_test(parts_are_joined),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(clocks_are_compared),
        cmocka_unit_test(a_run_of_four_ranks_has_one_file),
    };
    return argc > 1 ? look_at(argv[1])
                    : cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
