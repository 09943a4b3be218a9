/* States that rest on the host or in a file: fetched, updated and stashed beside the computation.
 * Whatever the place, and however slow a lane is, training gives the bits of a run whose states
 * rest on the device. A program whose waits are taken away is refused by the checker, and gives
 * other bits when it is run all the same. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "config/resolve.h"
#include "device/cpu/cpu.h"
#include "fake_gpu.h"
#include "program/overlap.h"
#include "run/executor_parts.h"
#include "temp_dir.h"
#include "train/ckpt/checkpoint.h"
#include "train/ranks.h"
#include "train/session.h"
#include "trireme/comm.h"
#include "trireme/settings.h"

enum { NUM_STEPS = 3, NUM_SEEDS = 6 };

typedef struct spec {
    tri_where moments;
    bool on_host;
    uint64_t piece_bytes;
    bool no_overlap;
    const char *words[9];
    uint64_t seed; /* of the slowness of lanes; 0: none */
    bool gpu;      /* on a fake one */
} spec;

typedef struct results {
    float loss[NUM_STEPS], norm[NUM_STEPS];
    float *weights, *moments;
    size_t num_weights, num_moments;
} results;

typedef struct run {
    tr_settings *settings;
    tri_session session;
    spec how;
    _Atomic uint64_t draws;
    fake_gpu *gpu;
} run;

static const temp_dir *temp;

static void compile_rank(run *r, const spec *how, int rank)
{
    tr_error err = {0};
    tri_session_config config;
    *r = (run){.how = *how};
    tr_status status = tr_settings_create(&r->settings, &err);
    if (status == TR_OK)
        status = tr_settings_load(r->settings, "recipes/tiny.yaml", &err);
    const char *const base[] = {"model.vocab=300", "model.num_layers=2", "train.batch=4",
                                "data.seq_len=32", "run.threads=2",      NULL};
    for (int i = 0; status == TR_OK && base[i]; i++)
        status = tr_settings_set(r->settings, base[i], &err);
    for (int i = 0; status == TR_OK && how->words[i]; i++)
        status = tr_settings_set(r->settings, how->words[i], &err);
    if (status == TR_OK)
        status = tri_settings_complete(r->settings, &err);
    if (status == TR_OK)
        status = tri_session_config_from(r->settings, &config, &err);
    if (status == TR_OK) {
        config.compile.spaces = (tri_spaces_config){.moments = how->moments,
                                                    .update_on_host = how->on_host,
                                                    .piece_bytes = how->piece_bytes};
        config.compile.overlap = !how->no_overlap;
        config.compile.overlap_min_bytes = 0;
        snprintf(config.scratch_dir, sizeof config.scratch_dir, "%s", temp->path);
        config.compile.rank = rank;
        static const tri_device fake = {.def = &fake_gpu_def};
        if (how->gpu) {
            r->gpu = fake_gpu_create();
            config.compile.memory =
                (tri_memory_needs){.scratch = tri_store_scratch, .context = &fake};
            tri_session_order_messages(&config, &fake_gpu_def);
        }
        status = tri_session_compile(&r->session, &config, &err);
    }
    if (status == TR_OK && how->gpu) {
        const tri_program *programs[TRI_NUM_PROGRAMS];
        size_t num = 0;
        for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
            if (tri_session_has(&r->session, p))
                programs[num++] = &r->session.programs[p];
        r->session.device.def = &fake_gpu_def;
        tri_store_plan(&r->session.store, &r->session.device, programs, num);
    }
    if (status != TR_OK)
        fail_msg("%s", err.message);
}

static void compile(run *r, const spec *how)
{
    compile_rank(r, how, 0);
}

/* Now this lane is late, now another. */
static void delay(void *context, tri_carry_lane lane)
{
    run *r = context;
    uint64_t number = atomic_fetch_add(&r->draws, 1);
    uint32_t draw = tri_random_word(r->how.seed, number, 0, (uint32_t)lane);
    struct timespec pause = {.tv_nsec = draw % 5 == 0 ? draw % 400000 : 0};
    nanosleep(&pause, NULL);
}

static void start(run *r)
{
    tr_error err = {0};
    if (tri_session_start(&r->session, &err) != TR_OK)
        fail_msg("%s", err.message);
    if (r->how.seed && r->gpu)
        fake_gpu_slow(r->gpu, r->how.seed);
    if (r->how.seed && r->session.store.carrier)
        tri_carrier_delay(r->session.store.carrier, delay, r);
}

static void take(run *r, tri_state_kind kind, float **out, size_t *num)
{
    const tri_program *program = &r->session.programs[TRI_PROGRAM_TRAIN];
    tr_error err = {0};
    *num = 0;
    *out = NULL;
    for (size_t s = 0; s < program->num_states; s++) {
        const tri_state *state = &program->states[s];
        size_t count = (size_t)tri_shape_count(&state->shape);
        if (state->kind != kind || state->param == TRI_NONE)
            continue;
        *out = realloc(*out, (*num + count) * sizeof **out);
        memset(*out + *num, 0, count * sizeof **out); /* codes take less */
        assert_int_equal(tri_executor_read(&r->session.executors[TRI_PROGRAM_TRAIN], state->latest,
                                           *out + *num, &err),
                         TR_OK);
        *num += count;
    }
}

static void steps(run *r, results *to)
{
    tr_error err = {0};
    for (int i = 0; i < NUM_STEPS; i++) {
        tri_step_result step;
        if (tri_session_step(&r->session, &step, &err) != TR_OK)
            fail_msg("%s", err.message);
        to->loss[i] = step.loss;
        to->norm[i] = step.grad_norm;
    }
    take(r, TRI_STATE_PARAM, &to->weights, &to->num_weights);
    take(r, TRI_STATE_OPTIM, &to->moments, &to->num_moments);
}

static void end(run *r)
{
    const char *fault = r->gpu ? fake_gpu_fault(r->gpu) : NULL;
    if (fault)
        fail_msg("%s", fault);
    tri_session_fini(&r->session);
    if (r->gpu)
        fake_gpu_destroy(r->gpu);
    tr_settings_destroy(r->settings);
}

static void results_fini(results *r)
{
    free(r->weights);
    free(r->moments);
}

static results run_all(const spec *how)
{
    run *r = calloc(1, sizeof *r);
    results got;
    compile(r, how);
    start(r);
    steps(r, &got);
    end(r);
    free(r);
    return got;
}

static bool same(const results *a, const results *b)
{
    return memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->norm, b->norm, sizeof a->norm) == 0 && a->num_weights == b->num_weights &&
           memcmp(a->weights, b->weights, a->num_weights * sizeof(float)) == 0 &&
           a->num_moments == b->num_moments &&
           memcmp(a->moments, b->moments, a->num_moments * sizeof(float)) == 0;
}

static void expect_same(const spec *how, const results *wanted)
{
    results got = run_all(how);
    if (!same(&got, wanted))
        fail_msg("moments on the %s, %s, pieces of %llu bytes, slowness %llu: other bits",
                 tri_where_name(how->moments), how->on_host ? "updated there" : "updated here",
                 (unsigned long long)how->piece_bytes, (unsigned long long)how->seed);
    results_fini(&got);
}

static void test_bits_do_not_depend_on_the_place(void **state)
{
    (void)state;
    const char *const more[][2] = {{NULL},
                                   {"layout.microbatches=2"},
                                   {"optim.kind=muon"},
                                   {"precision.kind=bf16"},
                                   {"optim.moments=8bit"},
                                   {"optim.kind=sgd", "optim.momentum=0.9"}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        spec how = {.words = {more[i][0], more[i][1]}};
        results resident = run_all(&how);
        for (int where = TRI_WHERE_HOST; where < TRI_NUM_WHERE; where++)
            for (uint64_t piece = 1; piece < 1 << 20; piece = piece == 1 ? 1 << 16 : 1 << 20) {
                how.moments = (tri_where)where;
                how.piece_bytes = piece;
                expect_same(&how, &resident);
            }
        how.no_overlap = true;
        expect_same(&how, &resident);
        results_fini(&resident);
    }
}

/* ---- on the host ---- */

/* The update computes on the host, wherever moments rest. Beside a GPU it has the CPU's own kernels
 * and threads. */
static void test_the_update_may_run_on_the_host(void **state)
{
    (void)state;
    spec how = {.words = {"layout.microbatches=2"}};
    results resident = run_all(&how);
    how.on_host = true;
    for (int gpu = 0; gpu < 2; gpu++)
        for (int where = 0; where < TRI_NUM_WHERE; where++) {
            how.gpu = gpu;
            how.moments = (tri_where)where;
            how.piece_bytes = 1 << 15;
            expect_same(&how, &resident);
        }
    run *r = calloc(1, sizeof *r);
    compile(r, &how);
    start(r);
    const tri_program *program = &r->session.programs[TRI_PROGRAM_TRAIN];
    int num = 0;
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_ready *ready = &r->session.executors[TRI_PROGRAM_TRAIN].ready[i];
        if (program->instrs[i].op != TRI_OP_ADAM)
            continue;
        const tri_cpu *cpu = ready->args.device;
        assert_int_equal(program->instrs[i].where, TRI_WHERE_HOST);
        assert_ptr_equal(ready->plan.kernel, tri_cpu_fast(TRI_OP_ADAM, cpu->isa));
        assert_non_null(cpu->pool);
        num++;
    }
    assert_true(num > 0);
    end(r);
    free(r);
    results_fini(&resident);
}

/* ---- slowness ---- */

static void test_slow_lanes_change_no_bits(void **state)
{
    (void)state;
    spec how = {.words = {"layout.microbatches=2"}};
    results resident = run_all(&how);
    how.piece_bytes = 1 << 15;
    for (uint64_t seed = 1; seed <= NUM_SEEDS; seed++)
        for (int where = TRI_WHERE_HOST; where < TRI_NUM_WHERE; where++) {
            how.moments = (tri_where)where;
            how.seed = seed;
            expect_same(&how, &resident);
        }
    results_fini(&resident);
}

/* All of one lane is late. */
typedef struct late_lane {
    tri_carry_lane lane;
    long pause_ns;
} late_lane;

static void be_late(void *context, tri_carry_lane lane)
{
    const late_lane *late = context;
    struct timespec pause = {.tv_nsec = late->pause_ns};
    if (lane == late->lane)
        nanosleep(&pause, NULL);
}

static const tri_fault *fault_of(const char *name)
{
    size_t i = 0;
    while (tri_space_fault_at(i) && strcmp(tri_space_fault_at(i)->name, name) != 0)
        i++;
    assert_non_null(tri_space_fault_at(i));
    return tri_space_fault_at(i);
}

static bool bits_with(const spec *how, const late_lane *late, const tri_fault *fault,
                      const results *wanted)
{
    run *r = calloc(1, sizeof *r);
    results got;
    compile(r, how);
    if (fault)
        assert_true(fault->apply(&r->session.programs[TRI_PROGRAM_TRAIN]));
    start(r);
    tri_carrier_delay(r->session.store.carrier, be_late, (void *)late);
    steps(r, &got);
    bool equal = same(&got, wanted);
    end(r);
    results_fini(&got);
    free(r);
    return equal;
}

/* What the checker refuses is wrong indeed: a program that does not wait for its fetch, or
 * overwrites what it stashes, gives other bits when the lane is late enough. With its waits, it
 * does not. */
static void expect_harm(const spec *how, const char *fault, tri_carry_lane lane)
{
    const spec plain = {.words = {NULL}};
    results resident = run_all(&plain);
    late_lane late = {.lane = lane, .pause_ns = 500000};
    assert_true(bits_with(how, &late, NULL, &resident));
    while (bits_with(how, &late, fault_of(fault), &resident)) {
        late.pause_ns *= 4;
        if (late.pause_ns > 100000000)
            fail_msg("%s does no harm", fault);
    }
    results_fini(&resident);
}

/* On a GPU it is the host that carries to and from files, and waits for that. */
static void test_a_forgotten_wait_shows(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("skipped: a forgotten wait (it is a race, which the sanitizer reports)\n");
    skip();
#endif
    const spec on_host = {.moments = TRI_WHERE_HOST, .piece_bytes = 1 << 16};
    const spec in_file = {.moments = TRI_WHERE_FILE, .piece_bytes = 1 << 16, .gpu = true};
    expect_harm(&on_host, "unwaited-fetch", TRI_CARRY_IN);
    expect_harm(&on_host, "overwritten-stash", TRI_CARRY_OUT);
    expect_harm(&in_file, "unwaited-fetch", TRI_CARRY_FILE);
}

/* ---- several ranks ---- */

enum { MOST_RANKS = 2 };

typedef struct team {
    spec how;
    results ranks[MOST_RANKS];
} team;

static tr_status rank_main(tr_comm *comm, void *context, tr_error *err)
{
    team *t = context;
    run *r = calloc(1, sizeof *r);
    tri_ranks ranks = {0};
    compile_rank(r, &t->how, tr_comm_rank(comm));
    TRI_TRY(tri_ranks_use(&ranks, comm, &r->session, err));
    start(r);
    steps(r, &t->ranks[tr_comm_rank(comm)]);
    end(r);
    tri_ranks_leave(&ranks);
    free(r);
    return TR_OK;
}

static void run_team(team *t)
{
    tr_error err = {0};
    const tr_comm_options options = {.deadline_s = 60};
    if (tr_comm_run_threads(MOST_RANKS, &options, rank_main, t, &err) != TR_OK)
        fail_msg("%s", err.message);
}

/* Messages to other ranks and carries share the waits of a step. */
static void test_ranks_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const layouts[][3] = {
        {"layout.dp=2", "layout.microbatches=2"},
        {"layout.dp=2", "layout.zero=2"},
        {"layout.dp=2", "layout.zero=3", "layout.microbatches=2"},
        {"layout.pp=2", "layout.microbatches=4"},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        team resident = {.how.words = {NULL}};
        memcpy(resident.how.words, layouts[i], sizeof layouts[i]);
        run_team(&resident);
        for (int where = TRI_WHERE_HOST; where < TRI_NUM_WHERE; where++) {
            team t = {.how = resident.how};
            t.how.moments = (tri_where)where;
            t.how.piece_bytes = 1 << 15;
            t.how.seed = i + 1;
            run_team(&t);
            for (int rank = 0; rank < MOST_RANKS; rank++) {
                if (!same(&t.ranks[rank], &resident.ranks[rank]))
                    fail_msg("%s, %s: other bits on rank %d", layouts[i][0], layouts[i][1], rank);
                results_fini(&t.ranks[rank]);
            }
        }
        for (int rank = 0; rank < MOST_RANKS; rank++)
            results_fini(&resident.ranks[rank]);
    }
}

/* ---- a GPU ---- */

/* What is fetched from the host and stashed there is in the one recording of the step; a file is
 * not. Kernels run beside both. */
static void test_a_gpu_gives_the_same_bits(void **state)
{
    (void)state;
    spec how = {.words = {"layout.microbatches=2"}};
    results resident = run_all(&how);
    how.gpu = true;
    expect_same(&how, &resident);
    how.piece_bytes = 1 << 15;
    for (uint64_t seed = 0; seed < 3; seed++)
        for (int where = TRI_WHERE_HOST; where < TRI_NUM_WHERE; where++) {
            run *r = calloc(1, sizeof *r);
            results got;
            how.moments = (tri_where)where;
            how.seed = seed;
            compile(r, &how);
            start(r);
            steps(r, &got);
            assert_true(same(&got, &resident));
            size_t parts = r->session.executors[TRI_PROGRAM_TRAIN].num_parts;
            assert_true((parts == 1) == (where == TRI_WHERE_HOST));
            assert_true(fake_gpu_beside(r->gpu, TRI_OP_ADAM) > 0);
            size_t flights = r->session.programs[TRI_PROGRAM_TRAIN].num_flights;
            assert_true((flights > 0) == (where == TRI_WHERE_FILE));
            end(r);
            results_fini(&got);
            free(r);
        }
    results_fini(&resident);
}

/* ---- proofs ---- */

static void test_faults_are_seen(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *reason;
    } reasons[] = {
        {"far-memory", "computes on the device, but reads"},
        {"unwaited-fetch", "still under way"},
        {"overwritten-stash", "still under way"},
        {"shared-piece", "has been written over it"},
        {"part-of-a-block", "is not a multiple of 4096"},
        {"wrong-way", "which is not its way"},
    };
    for (size_t i = 0; tri_space_fault_at(i); i++)
        for (int where = TRI_WHERE_HOST; where < TRI_NUM_WHERE; where++) {
            const tri_fault *fault = tri_space_fault_at(i);
            run *r = calloc(1, sizeof *r);
            tr_error err = {0};
            spec how = {.moments = (tri_where)where, .piece_bytes = 1 << 15};
            assert_string_equal(fault->name, reasons[i].fault);
            compile(r, &how);
            tri_program *program = &r->session.programs[TRI_PROGRAM_TRAIN];
            assert_int_equal(tri_program_check(program, &err), TR_OK);
            assert_true(fault->apply(program));
            assert_int_equal(tri_program_check(program, &err), TR_ERROR_INPUT);
            if (!strstr(err.message, reasons[i].reason))
                fail_msg("%s is refused for another reason: %s", fault->name, err.message);
            end(r);
            free(r);
        }
}

/* Every layout compiles, which proves its program; and its other ranks' agree. */
static void test_every_layout_is_proven(void **state)
{
    (void)state;
    static const char *const layouts[][8] = {
        {"layout.dp=2", "layout.zero=1"},
        {"layout.dp=2", "layout.zero=2", "layout.microbatches=2"},
        {"layout.dp=2", "layout.zero=3"},
        {"layout.tp=2", "layout.sp=true"},
        {"layout.pp=2", "layout.microbatches=4", "layout.schedule=zb-v"},
        {"layout.pp=2", "layout.microbatches=4", "layout.schedule=pipedream", "train.clip=0",
         "model.dropout=0", "model.kind=llama", "model.tied_head=false"},
        {"layout.dp=2", "optim.kind=muon", "layout.zero=2"},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int where = TRI_WHERE_HOST; where < TRI_NUM_WHERE; where++) {
            spec how = {.moments = (tri_where)where, .piece_bytes = 1 << 15};
            memcpy(how.words, layouts[i], sizeof layouts[i]);
            run *r = calloc(1, sizeof *r);
            compile(r, &how);
            const tri_store *store = &r->session.store;
            uint64_t at[] = {store->slabs[TRI_SLAB_OPTIM].bytes, store->host[TRI_SLAB_OPTIM].bytes,
                             store->file[TRI_SLAB_OPTIM].bytes};
            for (int w = 0; w < TRI_NUM_WHERE; w++)
                assert_true((at[w] > 0) == (w == where));
            assert_true(store->host[TRI_SLAB_SHARED].bytes > 0 || where == TRI_WHERE_HOST);
            end(r);
            free(r);
        }
}

/* The device that computes nothing walks through such programs, too, and makes no file. */
static void test_nothing_is_carried_for_nothing(void **state)
{
    (void)state;
    spec how = {.moments = TRI_WHERE_FILE, .words = {"run.device=null"}};
    run *r = calloc(1, sizeof *r);
    tri_step_result step;
    tr_error err = {0};
    compile(r, &how);
    start(r);
    assert_int_equal(tri_session_step(&r->session, &step, &err), TR_OK);
    assert_int_equal(r->session.store.scratch.fd, -1);
    end(r);
    free(r);
}

/* ---- the plan ---- */

/* The share of what is carried that is under way beside the computation. */
static double share_beside(const tri_program *program)
{
    double all = 0, beside = 0;
    for (size_t m = 0; m < program->num_messages; m++)
        all += (double)tri_message_bytes(&program->messages[m]);
    for (size_t f = 0; f < program->num_flights; f++)
        beside += (double)tri_message_bytes(
            &program->messages[program->instrs[program->flights[f].instr].message]);
    return beside / all;
}

/* A GPU adds up the squares of a row of gradients at once: a copy within it would round twice. */
static void test_copies_part_no_row_of_sums(void **state)
{
    (void)state;
    for (int where = TRI_WHERE_HOST; where < TRI_NUM_WHERE; where++) {
        run *r = calloc(1, sizeof *r);
        compile(r, &(spec){.moments = (tri_where)where, .piece_bytes = 1 << 16});
        const tri_program *program = &r->session.programs[TRI_PROGRAM_TRAIN];
        int rows = 0;
        for (size_t i = 1; i < program->num_instrs; i++)
            rows += program->instrs[i].op == TRI_OP_SUM_SQUARES &&
                    program->instrs[i - 1].op != TRI_OP_SUM_SQUARES;
        assert_int_equal(rows, 1);
        end(r);
        free(r);
    }
}

/* Moments leave the device, but for the few pieces that are under way. */
static void test_the_plan_knows_the_place(void **state)
{
    (void)state;
    run *r = calloc(1, sizeof *r);
    spec how = {.words = {"layout.microbatches=2"}, .piece_bytes = 1 << 15};
    uint64_t device[TRI_NUM_WHERE];
    for (int where = 0; where < TRI_NUM_WHERE; where++) {
        how.moments = (tri_where)where;
        compile(r, &how);
        const tri_store *store = &r->session.store;
        device[where] = tri_store_bytes_at(store, TRI_WHERE_DEVICE);
        assert_int_equal(tri_store_total(store), device[where] +
                                                     tri_store_bytes_at(store, TRI_WHERE_HOST) +
                                                     tri_device_round(store->scratch_bytes));
        if (where != TRI_WHERE_DEVICE)
            assert_true(share_beside(&r->session.programs[TRI_PROGRAM_TRAIN]) > 0.85);
        tri_text text;
        tri_text_init(&text);
        tri_program_explain(&r->session.programs[TRI_PROGRAM_TRAIN],
                            &(tri_explain_options){.all = true}, &text);
        assert_true(!strstr(text.chars, "on the host") == (where == TRI_WHERE_DEVICE));
        assert_true(!strstr(text.chars, "in the scratch file") == (where != TRI_WHERE_FILE));
        assert_true(!strstr(text.chars, "lane in: ") == (where == TRI_WHERE_DEVICE));
        tri_text_fini(&text);
        end(r);
    }
    assert_true(device[TRI_WHERE_HOST] < device[TRI_WHERE_DEVICE]);
    assert_int_equal(device[TRI_WHERE_FILE], device[TRI_WHERE_HOST]);
    free(r);
}

/* ---- checkpoints ---- */

static void save_now(tri_session *session, tri_ranks *ranks, const char *dir)
{
    tri_checkpointer_config config = {.run_dir = dir, .async = true, .patience_s = 5};
    tri_checkpointer *checkpointer;
    tri_save_outcome outcome;
    tr_error err = {0};
    assert_int_equal(tri_checkpointer_open(session, ranks, &config, &checkpointer, &err), TR_OK);
    assert_int_equal(tri_checkpointer_save(checkpointer, NULL, 0, true, &outcome, &err), TR_OK);
    assert_false(outcome.failed);
    tri_checkpointer_close(checkpointer);
}

/* Each step is of a session of its own, whose moments rest at another place. */
static void test_checkpoints_cross_places(void **state)
{
    (void)state;
    enum { STEPS = 5 };
    spec how = {.words = {NULL}, .piece_bytes = 1 << 15};
    tri_ranks ranks = {.size = 1};
    float whole[STEPS];
    tri_step_result step;
    tr_error err = {0};
    run *r = calloc(1, sizeof *r);
    compile(r, &how);
    start(r);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(tri_session_step(&r->session, &step, &err), TR_OK);
        whole[i] = step.loss;
    }
    end(r);
    for (int i = 0; i < STEPS; i++) {
        tri_resumed resumed;
        how.moments = (tri_where)(i % TRI_NUM_WHERE);
        compile(r, &how);
        start(r);
        assert_int_equal(
            tri_checkpoint_resume(&r->session, &ranks, temp->path, i > 0, &resumed, &err), TR_OK);
        assert_int_equal(resumed.step, i);
        assert_int_equal(tri_session_step(&r->session, &step, &err), TR_OK);
        assert_memory_equal(&step.loss, &whole[i], sizeof step.loss);
        save_now(&r->session, &ranks, temp->path);
        tri_resumed_fini(&resumed);
        end(r);
    }
    free(r);
}

/* ---- the scratch file ---- */

static void test_scratch_files(void **state)
{
    (void)state;
    tri_scratch_file file;
    tr_error err = {0};
    char wrote[5000], got[5000];
    memset(wrote, 7, sizeof wrote);
    assert_int_equal(tri_scratch_file_open(&file, temp->path, 8192, &err), TR_OK);
    assert_int_equal(tri_scratch_file_write(&file, 3000, wrote, sizeof wrote, &err), TR_OK);
    assert_int_equal(tri_scratch_file_read(&file, 3000, got, sizeof got, &err), TR_OK);
    assert_memory_equal(wrote, got, sizeof got);
    assert_int_equal(tri_scratch_file_read(&file, 0, got, 3000, &err), TR_OK);
    for (int i = 0; i < 3000; i++)
        assert_int_equal(got[i], 0);
    /* It has no name. */
    DIR *dir = opendir(temp->path);
    for (const struct dirent *entry; (entry = readdir(dir));)
        assert_null(strstr(entry->d_name, "scratch"));
    closedir(dir);
    assert_int_equal(tri_scratch_file_read(&file, 8000, got, 500, &err), TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "it ends there"));
    assert_non_null(strstr(err.message, temp->path));
    tri_scratch_file_close(&file);
    assert_int_equal(tri_scratch_file_open(&file, "/nowhere", 8192, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "/nowhere"));
}

/* A disk without room is found out before the first step, with what to do. */
static void test_a_full_disk_is_found_at_the_start(void **state)
{
    (void)state;
    struct rlimit was, low = {.rlim_cur = 1 << 16};
    run *r = calloc(1, sizeof *r);
    spec how = {.moments = TRI_WHERE_FILE};
    tr_error err = {0};
    compile(r, &how);
    getrlimit(RLIMIT_FSIZE, &was);
    low.rlim_max = was.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &low);
    tr_status status = tri_session_start(&r->session, &err);
    setrlimit(RLIMIT_FSIZE, &was);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "a scratch file of"));
    assert_non_null(strstr(err.message, temp->path));
    end(r);
    free(r);
}

/* A disk that fails later ends the step with its name, whatever else is under way. */
static void test_a_failing_disk_ends_the_step(void **state)
{
    (void)state;
    for (int gpu = 0; gpu < 2; gpu++) {
        run *r = calloc(1, sizeof *r);
        spec how = {.moments = TRI_WHERE_FILE, .piece_bytes = 1 << 15, .gpu = gpu};
        tri_step_result step;
        tr_error err = {0};
        compile(r, &how);
        start(r);
        assert_int_equal(tri_session_step(&r->session, &step, &err), TR_OK);
        assert_int_equal(ftruncate(r->session.store.scratch.fd, 1 << 16), 0);
        assert_int_equal(tri_session_step(&r->session, &step, &err), TR_ERROR_RUNTIME);
        assert_non_null(strstr(err.message, "(fetch of adam."));
        assert_non_null(strstr(err.message, "could not be read at byte"));
        assert_non_null(strstr(err.message, temp->path));
        end(r);
        free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_do_not_depend_on_the_place),
        cmocka_unit_test(test_the_update_may_run_on_the_host),
        cmocka_unit_test(test_slow_lanes_change_no_bits),
        cmocka_unit_test(test_a_forgotten_wait_shows),
        cmocka_unit_test(test_ranks_give_the_same_bits),
        cmocka_unit_test(test_a_gpu_gives_the_same_bits),
        cmocka_unit_test(test_faults_are_seen),
        cmocka_unit_test(test_every_layout_is_proven),
        cmocka_unit_test(test_nothing_is_carried_for_nothing),
        cmocka_unit_test(test_copies_part_no_row_of_sums),
        cmocka_unit_test(test_the_plan_knows_the_place),
        cmocka_unit_test(test_checkpoints_cross_places),
        cmocka_unit_test(test_scratch_files),
        cmocka_unit_test(test_a_full_disk_is_found_at_the_start),
        cmocka_unit_test(test_a_failing_disk_ends_the_step),
    };
    temp_dir_setup((void **)&temp);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_dir_teardown((void **)&temp);
    return failed;
}
