/* NCCL without a GPU: programs of several ranks on fake GPUs (fake_gpu.h), whose messages are
 * enqueued on lanes, recorded and replayed, and go through the layer that speaks to NCCL
 * (fake_nccl.h). Losses must be those of one rank on the CPU. Then what ends a wait: a rank that
 * does not come, a run that is stopped, a communicator that reports an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm_internal.h"
#include "config/resolve.h"
#include "fake_gpu.h"
#include "fake_nccl.h"
#include "train/ranks.h"
#include "trireme/settings.h"

enum { MOST_RANKS = 8, NUM_STEPS = 4 };

typedef struct numbers {
    float loss[NUM_STEPS], norm[NUM_STEPS];
    double eval;
} numbers;

/* What the ranks of a run do, and what came of it. */
typedef struct job {
    const char *const *words; /* settings, NULL at the end */
    bool apart;               /* messages are not recorded */
    bool by_host;             /* there is no NCCL after all */
    bool timed;               /* the third step is timed instruction by instruction */
    int hurts;                /* what goes wrong in the second step: an enum below */
    int last_in_step;         /* ranks after this one are not in that step */
    numbers ranks[MOST_RANKS];
    size_t parts;    /* of the training program */
    int products;    /* of matrices, that rank 0 recorded beside messages */
    int kernels;     /* the same, of all kinds */
    tr_error failed; /* of rank 0's second step */
    double failed_after_s, waited_s;
    tri_rank_status left;       /* rank 0's status then */
    _Atomic int entered, ended; /* rank 0's second step */
} job;

enum { NOTHING, STAYS_AWAY, STOPS, BREAKS };

typedef struct rank {
    tr_settings *settings;
    tri_session session;
    tri_ranks ranks;
    fake_gpu *gpu;
    tri_lane_exchange lanes;
} rank;

static tr_status compile(rank *r, const job *j, int number, tr_error *err)
{
    tri_session_config config;
    TRI_TRY(tr_settings_create(&r->settings, err));
    TRI_TRY(tr_settings_load(r->settings, "recipes/tiny.yaml", err));
    TRI_TRY(tr_settings_set(r->settings, "run.threads=1", err));
    TRI_TRY(tr_settings_set(r->settings, "model.num_layers=2", err));
    for (int i = 0; j->words[i]; i++)
        TRI_TRY(tr_settings_set(r->settings, j->words[i], err));
    TRI_TRY(tri_settings_complete(r->settings, err));
    TRI_TRY(tri_session_config_from(r->settings, &config, err));
    config.compile.rank = number;
    static const tri_device fake = {.def = &fake_gpu_def};
    if (r->gpu) { /* gradients among the activations, and scratch for every kernel */
        config.compile.memory = (tri_memory_needs){.scratch = tri_store_scratch, .context = &fake};
        tri_session_order_messages(&config, &fake_gpu_def);
    }
    return tri_session_compile(&r->session, &config, err);
}

/* Lets the session run on a fake GPU, and its messages go by the fake NCCL. */
static tr_status join(rank *r, const job *j, tr_comm *comm, tr_error *err)
{
    const tri_program *programs[TRI_NUM_PROGRAMS];
    size_t num = 0;
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (tri_session_has(&r->session, p))
            programs[num++] = &r->session.programs[p];
    r->session.device.def = &fake_gpu_def;
    tri_store_plan(&r->session.store, &r->session.device, programs, num);
    r->session.status = comm->boot.status;
    TRI_TRY(tri_ranks_use(&r->ranks, comm, &r->session, err));
    if (j->by_host)
        return TR_OK;
    TRI_TRY(tri_ranks_use_nccl(&r->ranks, &comm->boot, &fake_nccl_api, &r->session, err));
    r->lanes = *r->session.exchange.lanes;
    r->lanes.records = !j->apart;
    r->session.exchange.lanes = &r->lanes;
    return TR_OK;
}

/* The second step goes wrong for rank 0, through what the others do or do not do. */
static tr_status hurt(rank *r, job *j, tr_comm *comm, tr_error *err)
{
    tri_step_result step;
    tr_status status;
    TRI_TRY(tr_barrier(tr_comm_world(comm), err)); /* nobody is in the first step any more */
    if (tr_comm_rank(comm) == 0)
        atomic_store(&j->entered, 1);
    while (!atomic_load(&j->entered)) /* else its barrier may be what ends */
        usleep(1000);
    if (tr_comm_rank(comm) > j->last_in_step) {
        if (j->hurts == BREAKS)
            fake_nccl_break(2);
        usleep(30000); /* rank 0 waits by now, or will find it done */
        if (j->hurts == STOPS)
            return tri_fail(err, TR_ERROR_RUNTIME, "the power was cut");
        while (!atomic_load(&j->ended))
            usleep(1000);
        return TR_OK;
    }
    if (tr_comm_rank(comm) != 0) { /* it comes no further than rank 0 */
        tr_error same = {0};
        status = tri_session_step(&r->session, &step, &same);
        while (!atomic_load(&j->ended))
            usleep(1000);
        return status == TR_OK ? tri_fail(err, TR_ERROR_RUNTIME, "it went through") : TR_OK;
    }
    double start = tri_now_s();
    int64_t before = tri_session_own_time(&r->session).waited_ns;
    status = tri_session_step(&r->session, &step, &j->failed);
    j->failed_after_s = tri_now_s() - start;
    j->waited_s = 1e-9 * (double)(tri_session_own_time(&r->session).waited_ns - before);
    memcpy(&j->left, r->session.status, sizeof j->left);
    atomic_store(&j->ended, 1);
    return status == TR_OK ? tri_fail(err, TR_ERROR_RUNTIME, "nothing went wrong") : TR_OK;
}

static tr_status train(rank *r, job *j, tr_comm *comm, tr_error *err)
{
    double by_op[TRI_NUM_OPS] = {0};
    int number = comm ? tr_comm_rank(comm) : 0;
    numbers *to = &j->ranks[number];
    TRI_TRY(tri_session_start(&r->session, err));
    for (int i = 0; i < NUM_STEPS; i++) {
        tri_step_result step;
        if (j->hurts && i == 1)
            return hurt(r, j, comm, err);
        r->session.executors[TRI_PROGRAM_TRAIN].time_by_op = j->timed && i == 2 ? by_op : NULL;
        TRI_TRY(tri_session_step(&r->session, &step, err));
        to->loss[i] = step.loss;
        to->norm[i] = step.grad_norm;
    }
    tri_eval_result eval;
    TRI_TRY(tri_session_eval(&r->session, &eval, err));
    to->eval = eval.loss;
    if (number == 0) {
        j->parts = r->session.executors[TRI_PROGRAM_TRAIN].num_parts;
        j->products = r->gpu ? fake_gpu_beside(r->gpu, TRI_OP_MATMUL) : 0;
        for (int op = 0; r->gpu && op < TRI_NUM_OPS; op++)
            j->kernels += fake_gpu_beside(r->gpu, (tri_op)op);
    }
    const char *fault = r->gpu ? fake_gpu_fault(r->gpu) : NULL;
    if (fault)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s", fault);
    return tri_session_pull_weights(&r->session, err);
}

static tr_status rank_main(tr_comm *comm, void *context, tr_error *err)
{
    job *j = context;
    rank *r = calloc(1, sizeof *r);
    if (comm)
        r->gpu = fake_gpu_create();
    tr_status status = compile(r, j, comm ? tr_comm_rank(comm) : 0, err);
    if (status == TR_OK && comm)
        status = join(r, j, comm, err);
    if (status == TR_OK)
        status = train(r, j, comm, err);
    if (status != TR_OK && r->ranks.nccl) /* what is on the lanes would wait for ever */
        tri_nccl_abort(r->ranks.nccl);
    tri_session_fini(&r->session);
    tri_ranks_leave(&r->ranks);
    if (r->gpu)
        fake_gpu_destroy(r->gpu);
    tr_settings_destroy(r->settings);
    free(r);
    return status;
}

static tr_status try_run(job *j, int num_ranks, double deadline_s, tr_error *err)
{
    tr_comm_options options = {.deadline_s = deadline_s};
    return num_ranks == 1 ? rank_main(NULL, j, err)
                          : tr_comm_run_threads(num_ranks, &options, rank_main, j, err);
}

static void run(job *j, int num_ranks, double deadline_s)
{
    tr_error err = {0};
    tr_status status = try_run(j, num_ranks, deadline_s, &err);
    if (status != TR_OK && j->hurts != STOPS)
        fail_msg("%s: %s", j->words[0], err.message);
}

/* ---- layouts ---- */

typedef struct layout {
    int num_ranks;
    const char *words[8];
} layout;

static const layout layouts[] = {
    {2, {"layout.dp=2"}},
    {2, {"layout.dp=2", "layout.microbatches=2", "layout.zero=1"}},
    {2, {"layout.dp=2", "layout.microbatches=2", "layout.zero=2"}},
    {2, {"layout.dp=2", "layout.microbatches=2", "layout.zero=3"}},
    {3, {"layout.dp=3", "layout.zero=3"}},
    {2, {"layout.tp=2"}},
    {2, {"layout.tp=2", "layout.sp=true", "layout.microbatches=2"}},
    {4, {"layout.dp=4", "layout.zero=3", "layout.shard_group=2"}},
    {4, {"layout.dp=2", "layout.zero=2", "layout.tp=2", "layout.sp=true"}},
    {2, {"layout.pp=2"}}, /* what is sent lies among the activations, and so does scratch */
    {2, {"layout.pp=2", "layout.microbatches=4"}},
    {4, {"layout.pp=2", "layout.microbatches=4", "layout.dp=2", "layout.zero=1"}},
    {2, {"layout.dp=2", "layout.microbatches=3", "layout.zero=3", "layout.keep_gathered=true"}},
};
enum { NUM_LAYOUTS = sizeof layouts / sizeof *layouts };

static void check_close(const numbers *one, const numbers *many, const char *name)
{
    for (int i = 0; i < NUM_STEPS; i++) {
        if (fabs((double)(one->loss[i] / many->loss[i]) - 1) > 1e-5 ||
            fabs((double)(one->norm[i] / many->norm[i]) - 1) > 1e-4)
            fail_msg("%s, step %d: loss %.7g, not %.7g; norm %.7g, not %.7g", name, i,
                     (double)many->loss[i], (double)one->loss[i], (double)many->norm[i],
                     (double)one->norm[i]);
    }
    assert_true(fabs(one->eval / many->eval - 1) < 1e-5);
}

static void check_layouts(bool apart, bool timed, int first, int step)
{
    static const char *const alone[] = {NULL};
    job one = {.words = alone};
    run(&one, 1, 60);
    for (int l = first; l < NUM_LAYOUTS; l += step) {
        job j = {.words = layouts[l].words, .apart = apart, .timed = timed};
        run(&j, layouts[l].num_ranks, 60);
        for (int r = 0; r < layouts[l].num_ranks; r++)
            check_close(&one.ranks[0], &j.ranks[r], layouts[l].words[0]);
        /* The whole step is one recording; messages that stand apart cut it. */
        if (apart)
            assert_true(j.parts > 2);
        else
            assert_int_equal(j.parts, 1);
    }
    assert_int_equal(fake_nccl_aborted(), 0);
    assert_true(fake_nccl_destroyed() > 0);
}

static void test_recorded_messages(void **state)
{
    (void)state;
    check_layouts(false, false, 0, 1);
}

static void test_messages_apart(void **state)
{
    (void)state;
    check_layouts(true, false, 3, 5);
}

static void test_timed_messages(void **state)
{
    (void)state;
    check_layouts(false, true, 3, 3);
}

/* ---- beside the computation ---- */

typedef struct early {
    layout of;
    int products; /* at least so many beside messages; -1: no kernel at all, -2: no product */
} early;

/* Small buckets: messages stand in the backward, and products of it run beside them. */
static void test_early_messages(void **state)
{
    (void)state;
    static const early cases[] = {
        {{2, {"layout.dp=2", "layout.bucket_mb=0.05"}}, 8},
        {{2, {"layout.dp=2", "layout.bucket_mb=0.05", "layout.microbatches=2"}}, 8},
        {{2, {"layout.dp=2", "layout.bucket_mb=0.05", "layout.zero=1"}}, 8},
        {{2, {"layout.dp=2", "layout.zero=2", "layout.microbatches=2"}}, 8},
        {{2, {"layout.dp=2", "layout.zero=3"}}, 8},
        {{4, {"layout.tp=2", "layout.dp=2", "layout.bucket_mb=0.05"}}, 1},
        {{4, {"layout.pp=2", "layout.dp=2", "layout.bucket_mb=0.05", "layout.microbatches=2"}}, 8},
        {{4,
          {"layout.pp=2", "layout.dp=2", "layout.zero=2", "layout.microbatches=4",
           "layout.schedule=interleaved", "layout.chunks=2"}},
         8},
        {{4,
          {"layout.pp=2", "layout.dp=2", "layout.bucket_mb=0.05", "layout.microbatches=4",
           "layout.schedule=zb-v"}},
         8},
        /* In one bucket they are last. */
        {{2, {"layout.dp=2", "layout.bucket_mb=100"}}, -2},
        /* By the host, one at a time: as few as can be. */
        {{2, {"layout.dp=2", "layout.bucket_mb=0.05", "run.transport=shm"}}, -2},
        {{2, {"layout.dp=2", "layout.bucket_mb=0.05", "run.overlap=false"}}, -1},
        {{2, {"layout.dp=2", "layout.zero=3", "run.overlap=false"}}, -1},
    };
    static const char *const alone[] = {NULL};
    job one = {.words = alone};
    run(&one, 1, 60);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const early *e = &cases[c];
        job j = {.words = e->of.words};
        run(&j, e->of.num_ranks, 60);
        for (int r = 0; r < e->of.num_ranks; r++)
            check_close(&one.ranks[0], &j.ranks[r], e->of.words[1]);
        if (e->products >= 0 ? j.products < e->products
                             : (e->products == -1 ? j.kernels : j.products) > 0)
            fail_msg("case %zu (%s %s): %d products and %d kernels in all run beside messages", c,
                     e->of.words[0], e->of.words[1], j.products, j.kernels);
    }
}

/* Each group of ranks has a lane: messages of different groups run beside each other. */
static void test_a_lane_for_each_group(void **state)
{
    (void)state;
    static const layout cases[] = {
        {4, {"run.lanes=group", "layout.tp=2", "layout.dp=2", "layout.bucket_mb=0.05"}},
        {4, {"run.lanes=group", "layout.dp=4", "layout.zero=3", "layout.shard_group=2"}},
        {4,
         {"run.lanes=group", "layout.pp=2", "layout.dp=2", "layout.bucket_mb=0.05",
          "layout.microbatches=4"}},
        {4, {"run.lanes=group", "layout.dp=2", "layout.zero=2", "layout.tp=2", "layout.sp=true"}},
    };
    static const char *const alone[] = {NULL};
    job one = {.words = alone};
    run(&one, 1, 60);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        job j = {.words = cases[c].words};
        run(&j, cases[c].num_ranks, 60);
        for (int r = 0; r < cases[c].num_ranks; r++)
            check_close(&one.ranks[0], &j.ranks[r], cases[c].words[1]);
        assert_int_equal(j.parts, 1);
    }
}

/* More of them under way than a device has points. */
static void test_many_early_messages(void **state)
{
    (void)state;
    static const char *const words[] = {"layout.dp=2", "layout.bucket_mb=0", "model.num_layers=8",
                                        NULL};
    job one = {.words = words + 2}, j = {.words = words};
    run(&one, 1, 60);
    run(&j, 2, 60);
    check_close(&one.ranks[0], &j.ranks[0], words[1]);
    assert_true(j.products > 20);
}

/* Programs that were made for NCCL, by ranks that do not find it when they meet. */
static void test_early_messages_by_the_host(void **state)
{
    (void)state;
    static const layout cases[] = {
        {2, {"layout.dp=2", "layout.bucket_mb=0.05"}},
        {2, {"layout.dp=2", "layout.zero=2", "layout.microbatches=2"}},
        {2, {"layout.dp=2", "layout.zero=3"}},
        {4, {"layout.pp=2", "layout.dp=2", "layout.bucket_mb=0.05", "layout.microbatches=2"}},
    };
    static const char *const alone[] = {NULL};
    job one = {.words = alone};
    run(&one, 1, 60);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        job j = {.words = cases[c].words, .by_host = true};
        run(&j, cases[c].num_ranks, 60);
        for (int r = 0; r < cases[c].num_ranks; r++)
            check_close(&one.ranks[0], &j.ranks[r], cases[c].words[1]);
        assert_true(j.parts > 10);
    }
}

/* What settings make of messages on a device. */
static void check_order(const char *word, const tri_device_def *device, bool overlap, bool buckets)
{
    tr_error err = {0};
    tr_settings *settings;
    tri_session_config config;
    assert_int_equal(tr_settings_create(&settings, &err), TR_OK);
    assert_int_equal(tr_settings_set(settings, "layout.dp=2", &err), TR_OK);
    assert_int_equal(tr_settings_set(settings, word, &err), TR_OK);
    assert_int_equal(tri_settings_complete(settings, &err), TR_OK);
    assert_int_equal(tri_session_config_from(settings, &config, &err), TR_OK);
    tri_session_order_messages(&config, device);
    if (config.compile.overlap != overlap || isfinite(config.compile.bucket_bytes) != buckets)
        fail_msg("%s on %s: overlap %d, buckets of %g bytes", word, device->kind,
                 config.compile.overlap, config.compile.bucket_bytes);
    assert_int_equal(config.compile.lanes, device->queue != NULL);
    tr_settings_destroy(settings);
}

static void test_which_messages_are_early(void **state)
{
    (void)state;
    tri_device_queue queue = *fake_gpu_def.queue;
    tri_device_def without = fake_gpu_def;
    queue.lanes = NULL;
    without.queue = &queue;
    check_order("run.transport=auto", &fake_gpu_def, true, true);
    check_order("run.transport=nccl", &fake_gpu_def, true, true);
    check_order("run.transport=shm", &fake_gpu_def, false, false);
    check_order("run.transport=tcp", &fake_gpu_def, false, false);
    check_order("run.transport=mpi", &fake_gpu_def, false, false);
    check_order("run.collective=ring", &fake_gpu_def, false, false);
    check_order("run.overlap=false", &fake_gpu_def, false, false);
    check_order("layout.dp=1", &fake_gpu_def, false, false);
    check_order("run.transport=auto", &without, false, false);
    check_order("run.transport=shm", &tri_device_cpu, true, true);
    check_order("run.overlap=false", &tri_device_cpu, false, true);
}

/* ---- what ends a wait ---- */

static void check_hurt(int hurts, const char *message, double deadline_s)
{
    static const char *const words[] = {"layout.dp=2", "layout.zero=1", NULL};
    int aborted = fake_nccl_aborted();
    job j = {.words = words, .hurts = hurts};
    run(&j, 2, deadline_s);
    if (!strstr(j.failed.message, message))
        fail_msg("\"%s\" does not say \"%s\"", j.failed.message, message);
    assert_true(j.failed_after_s < deadline_s / 2);
    assert_true(fake_nccl_aborted() > aborted);
}

/* Which instruction it is stands in the message and in the status, from the lane's note. */
static void check_away(const char *const *words, int num_ranks, int last_in_step, job *j)
{
    tr_error err = {0};
    double deadline_s = 0.25;
    tr_status status;
    do { /* on a busy machine a short one may be over before all have come */
        deadline_s *= 8;
        *j = (job){.words = words, .hurts = STAYS_AWAY, .last_in_step = last_in_step};
        status = try_run(j, num_ranks, deadline_s, &err);
    } while (status != TR_OK && deadline_s < 60);
    if (status != TR_OK)
        fail_msg("%s", err.message);
    char begin[64];
    snprintf(begin, sizeof begin, "instruction %lld (",
             (long long)atomic_load(&j->left.instruction));
    assert_non_null(strstr(j->failed.message, begin));
    const char *within = strstr(j->failed.message, "did not come within ");
    assert_non_null(within);
    assert_true(strtod(within + strlen("did not come within "), NULL) >= deadline_s);
    assert_true(j->failed_after_s >= deadline_s);
    assert_true(j->waited_s > 0.9 * deadline_s); /* from the lane's notes */
    assert_true(j->waited_s < j->failed_after_s);
    assert_true(atomic_load(&j->left.instruction) > 0);
    assert_true(atomic_load(&j->left.bytes) > 0);
    assert_true(atomic_load(&j->left.waiting_since_ns) > 0);
}

static void test_a_rank_that_stays_away(void **state)
{
    (void)state;
    static const char *const words[] = {"layout.dp=2", "layout.zero=1", NULL};
    job j;
    check_away(words, 2, 0, &j);
    assert_true(strncmp(j.left.doing, "shard_sum", 9) == 0 ||
                strncmp(j.left.doing, "all_reduce", 10) == 0);
}

/* The message over dp stands still while those over tp go by: it is the one that is named. */
static void test_a_rank_that_stays_away_of_one_lane(void **state)
{
    (void)state;
    static const char *const words[] = {"run.lanes=group",       "layout.tp=2",    "layout.dp=2",
                                        "layout.bucket_mb=0.05", "layout.sp=true", NULL};
    job j;
    check_away(words, 4, 1, &j);
    if (!strstr(j.failed.message, " over dp"))
        fail_msg("\"%s\" does not name the message over dp", j.failed.message);
}

static void test_a_run_that_is_stopped(void **state)
{
    (void)state;
    check_hurt(STOPS, "stopped: rank 1 failed: the power was cut", 60);
}

static void test_a_communicator_with_an_error(void **state)
{
    (void)state;
    check_hurt(BREAKS, "unhandled system error: the cable was cut", 60);
    fake_nccl_break(0);
}

/* ---- whether it is used ---- */

typedef struct choice {
    const char *transport, *algorithm, *library;
    bool shared; /* all ranks have one device */
    bool on_cpu;
    bool use; /* what came of it */
} choice;

static tr_status identity_of_all(tri_device *device, char *text, size_t size, tr_error *err)
{
    (void)device;
    (void)err;
    snprintf(text, size, "the only one");
    return TR_OK;
}

static tr_status choose(tr_comm *comm, void *context, tr_error *err)
{
    choice *c = context;
    tri_device_lanes lanes = *fake_gpu_def.queue->lanes;
    if (c->shared)
        lanes.identity = identity_of_all;
    tri_device_queue queue = *fake_gpu_def.queue;
    queue.lanes = &lanes;
    tri_device_def def = c->on_cpu ? tri_device_cpu : fake_gpu_def;
    if (!c->on_cpu)
        def.queue = &queue;
    fake_gpu *gpu = fake_gpu_create();
    tri_session *session = calloc(1, sizeof *session);
    session->device.def = &def;
    tri_ranks ranks = {.size = tr_comm_size(comm), .comm = comm};
    tri_ranks_config config = {
        .transport = c->transport, .algorithm = c->algorithm, .nccl_library = c->library};
    tri_nccl_api api;
    bool use = true;
    tr_status status = tri_ranks_choose_nccl(&ranks, &config, session, &api, &use, err);
    if (tr_comm_rank(comm) == 0)
        c->use = use;
    free(session);
    fake_gpu_destroy(gpu);
    return status;
}

static void check_choice(choice c, const char *refused)
{
    tr_error err = {0};
    tr_status status = tr_comm_run_threads(2, NULL, choose, &c, &err);
    if (refused && !strstr(err.message, refused))
        fail_msg("\"%s\" does not say \"%s\"", err.message, refused);
    assert_true(refused ? status != TR_OK : status == TR_OK && !c.use);
}

static void test_when_it_is_not_used(void **state)
{
    (void)state;
    check_choice((choice){"auto", "auto", "libm.so.6", .shared = true}, NULL);
    check_choice((choice){"auto", "auto", "/nowhere/libnccl.so.2", .shared = false}, NULL);
    check_choice((choice){"auto", "ring", "", .shared = false}, NULL);
    check_choice((choice){"auto", "auto", "", .on_cpu = true}, NULL);
    check_choice((choice){"shm", "auto", "", .shared = false}, NULL);
    check_choice((choice){"nccl", "auto", "", .on_cpu = true}, "run.device is cpu");
    check_choice((choice){"nccl", "ring", "", .shared = false}, "run.collective is \"ring\"");
    check_choice((choice){"nccl", "auto", "/nowhere/libnccl.so.2", .shared = false},
                 "/nowhere/libnccl.so.2");
}

/* ---- the library ---- */

static void test_what_is_no_nccl(void **state)
{
    (void)state;
    tri_nccl_api api;
    tr_error err = {0};
    assert_int_equal(tri_nccl_open("/nowhere/libnccl.so.2", &api, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "/nowhere/libnccl.so.2"));
    assert_non_null(strstr(err.message, "run.nccl_library"));
    assert_null(api.library.handle);
    assert_int_equal(tri_nccl_open("libm.so.6", &api, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "libm.so.6 is no NCCL"));
    assert_null(api.library.handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_messages),
        cmocka_unit_test(test_messages_apart),
        cmocka_unit_test(test_timed_messages),
        cmocka_unit_test(test_early_messages),
        cmocka_unit_test(test_a_lane_for_each_group),
        cmocka_unit_test(test_many_early_messages),
        cmocka_unit_test(test_early_messages_by_the_host),
        cmocka_unit_test(test_which_messages_are_early),
        cmocka_unit_test(test_a_rank_that_stays_away),
        cmocka_unit_test(test_a_rank_that_stays_away_of_one_lane),
        cmocka_unit_test(test_a_run_that_is_stopped),
        cmocka_unit_test(test_a_communicator_with_an_error),
        cmocka_unit_test(test_when_it_is_not_used),
        cmocka_unit_test(test_what_is_no_nccl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
