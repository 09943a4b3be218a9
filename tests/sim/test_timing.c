/* Programs, timed (sim/timing.h). One rank of each stage stands for all of its stage: the same
 * times as when every rank is timed. Where messages take no time, a pipeline takes what the machine
 * of schedules says. Time is never lost: what a rank computes, waits and idles is all there is. */
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile/pipeline.h"
#include "sim/sim.h"
#include "sim/timing.h"
#include "trireme/trireme.h"

enum { MOST_RANKS = 16 };

typedef struct world {
    tr_settings *settings;
    tri_session_config config;
    tri_session sessions[MOST_RANKS];
    uint32_t num_ranks, num_stages;
} world;

static const tri_compile_config *config_of(const world *w)
{
    return &w->config.compile;
}

static void open_world(world *w, const char *const *assignments)
{
    tr_error err = {0};
    w->settings = settings_of(NULL, assignments);
    if (tri_api_describe(w->settings, &w->config, &err) != TR_OK)
        fail_msg("%s", err.message);
    w->config.compile.in_place = false; /* hosts start receives early */
    w->num_ranks = (uint32_t)tri_mesh_ranks(&w->config.compile.mesh);
    assert_in_range(w->num_ranks, 1, MOST_RANKS);
    for (uint32_t r = 0; r < w->num_ranks; r++) {
        w->config.compile.rank = (int)r;
        if (tri_session_compile(&w->sessions[r], &w->config, &err) != TR_OK)
            fail_msg("%s", err.message);
    }
    w->num_stages = (uint32_t)tr_settings_int(w->settings, "layout.pp");
}

static void close_world(world *w)
{
    for (uint32_t r = 0; r < w->num_ranks; r++)
        tri_session_fini(&w->sessions[r]);
    tr_settings_destroy(w->settings);
}

/* Costs that tell instructions and messages apart; a context scales what messages take. */
static double instr_cost(const void *context, const tri_program *program, uint32_t i)
{
    (void)context;
    const tri_cost *cost = &program->instrs[i].cost;
    return cost->flops * 1e-10 + cost->bytes * 3e-10;
}

static double message_cost(const void *context, const tri_program *program,
                           const tri_message *message)
{
    (void)program;
    return *(const double *)context *
           (5e-6 +
            (double)(message->group == TRI_NONE ? message->send.bytes : message->elements) * 2e-9);
}

static double copy_cost(const void *context, double bytes)
{
    (void)context;
    return bytes * 1e-9;
}

typedef struct how {
    bool folded, one_lane, in_place;
    double messages;
    tri_timing_pace pace;
} how;

static void run_watched(const world *w, const how *how, const tri_timing_watch *watch,
                        tri_timing *timing)
{
    const tri_program *programs[MOST_RANKS];
    uint32_t stride = how->folded ? w->num_ranks / w->num_stages : 1;
    uint32_t num = w->num_ranks / stride;
    for (uint32_t k = 0; k < num; k++)
        programs[k] = &w->sessions[k * stride].programs[TRI_PROGRAM_TRAIN];
    const tri_timing_case c = {.programs = programs,
                               .num_classes = num,
                               .stride = stride,
                               .one_lane = how->one_lane,
                               .in_place = how->in_place,
                               .pace = how->pace,
                               .costs = {.context = &how->messages,
                                         .instr = instr_cost,
                                         .message = message_cost,
                                         .copy = copy_cost},
                               .watch = *watch};
    tr_error err = {0};
    if (tri_timing_run(&c, timing, &err) != TR_OK)
        fail_msg("%s", err.message);
}

static void run(const world *w, const how *how, tri_timing *timing)
{
    run_watched(w, how, &(tri_timing_watch){0}, timing);
}

static void assert_within(double a, double b, double limit, const char *what, int layout)
{
    if (fabs(a - b) > limit * fmax(fabs(a), fabs(b)))
        fail_msg("layout %d: %s is %.12g and %.12g", layout, what, a, b);
}

static void assert_near(double a, double b, const char *what, int layout)
{
    assert_within(a, b, 1e-9, what, layout);
}

static double sum_of(const double *values, size_t num)
{
    double sum = 0;
    for (size_t i = 0; i < num; i++)
        sum += values[i];
    return sum;
}

#define SMALL                                                                                      \
    "model.num_layers=4", "model.dim=64", "model.num_heads=4", "model.ffn_dim=128",                \
        "model.vocab=256", "train.batch=16", "data.seq_len=32"
#define LAYOUT(...)                                                                                \
    {                                                                                              \
        SMALL, __VA_ARGS__, "run.threads=1", NULL                                                  \
    }
#define MOE                                                                                        \
    "model.kind=llama", "model.num_experts=4", "model.experts_per_token=2", "model.expert_dim=64", \
        "model.dropout=0"

static const char *const layouts[][24] = {
    LAYOUT("layout.dp=1"),
    LAYOUT("layout.dp=4", "layout.microbatches=2"),
    LAYOUT("layout.dp=4", "layout.zero=1"),
    LAYOUT("layout.dp=4", "layout.zero=3", "layout.microbatches=2"),
    LAYOUT("layout.dp=4", "layout.zero=2", "layout.shard_group=2"),
    LAYOUT("layout.tp=4", "layout.sp=true"),
    LAYOUT("layout.tp=2", "layout.dp=2", "layout.zero=3", "layout.recompute=full"),
    LAYOUT("layout.cp=2", "layout.cp_kind=ring", "layout.dp=2"),
    LAYOUT("layout.pp=2", "layout.dp=2", "layout.microbatches=4"),
    LAYOUT("layout.pp=2", "layout.dp=2", "layout.tp=2", "layout.microbatches=4", "layout.zero=3"),
    LAYOUT("layout.pp=4", "layout.dp=2", "layout.microbatches=8", "layout.schedule=zb-h1"),
    LAYOUT("layout.pp=2", "layout.tp=2", "layout.microbatches=4", "layout.schedule=interleaved"),
    LAYOUT("layout.pp=4", "layout.dp=2", "layout.microbatches=8", "layout.schedule=pipedream-2bw",
           "train.clip=0", "model.kind=llama", "model.tied_head=false", "model.dropout=0"),
    LAYOUT("layout.pp=2", "layout.dp=2", "layout.microbatches=8", "layout.schedule=dualpipe",
           "layout.pairs=true"),
    LAYOUT(MOE, "layout.dp=4", "layout.ep=4"),
    LAYOUT(MOE, "layout.dp=2", "layout.ep=2", "layout.pp=2", "layout.microbatches=4"),
};
enum { NUM_LAYOUTS = sizeof layouts / sizeof *layouts };

static const how ways[] = {{.messages = 1}, /* as a CPU's ranks do */
                           {.messages = 1, .in_place = true},
                           {.messages = 1, .in_place = true, .one_lane = true}};

static void test_one_rank_stands_for_its_stage(void **state)
{
    (void)state;
    for (int n = 0; n < NUM_LAYOUTS; n++) {
        world w;
        open_world(&w, layouts[n]);
        /* Slices of a bucket are equal, but begin and end in more or fewer tensors. */
        double limit = config_of(&w)->zero > 0 ? 1e-3 : 1e-9;
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            how folded = ways[i];
            folded.folded = true;
            tri_timing all, few;
            run(&w, &ways[i], &all);
            run(&w, &folded, &few);
            assert_within(all.seconds, few.seconds, limit, "a step", n);
            uint32_t stride = w.num_ranks / w.num_stages;
            for (uint32_t r = 0; r < w.num_ranks; r++) {
                assert_within(all.ranks[r].end, few.ranks[r / stride].end, limit,
                              "the end of a rank", n);
                assert_near(all.ranks[r].time[TRI_TIME_PRODUCTS],
                            few.ranks[r / stride].time[TRI_TIME_PRODUCTS], "products", n);
            }
            tri_timing_fini(&all);
            tri_timing_fini(&few);
        }
        close_world(&w);
    }
}

/* A lane of all messages is never faster than one for each group; a step never lasts less than
 * what its slowest rank computes, nor without its messages longer than with them. */
static void test_no_time_is_lost(void **state)
{
    (void)state;
    for (int n = 0; n < NUM_LAYOUTS; n++) {
        world w;
        tri_timing timing[3], quick;
        open_world(&w, layouts[n]);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            how folded = ways[i];
            folded.folded = true;
            run(&w, &folded, &timing[i]);
            for (uint32_t s = 0; s < w.num_stages; s++) {
                const tri_rank_timing *rank = &timing[i].ranks[s];
                const tri_program *program =
                    &w.sessions[s * (w.num_ranks / w.num_stages)].programs[0];
                double all = sum_of(rank->time, TRI_NUM_TIME_KINDS) + rank->idle +
                             sum_of(rank->exposed, program->num_groups + 1);
                assert_near(all, rank->end, "all that a rank does", n);
            }
        }
        assert_true(timing[2].seconds >= timing[1].seconds * (1 - 1e-12));
        run(&w, &(how){.folded = true, .in_place = true}, &quick);
        assert_true(quick.seconds <= timing[1].seconds * (1 + 1e-12));
        for (int i = 0; i < 3; i++)
            tri_timing_fini(&timing[i]);
        tri_timing_fini(&quick);
        close_world(&w);
    }
}

enum { MOST_LANES = 64 };

/* What was told of each class. */
typedef struct told {
    const world *w;
    uint32_t stride;
    int layout;
    struct {
        double end, does[TRI_DOES_MESSAGE], lane_end[MOST_LANES], messages;
        uint32_t call;
    } of[MOST_RANKS];
} told;

static void hear(void *context, const tri_timing_event *event)
{
    told *t = context;
    const tri_program *program = &t->w->sessions[event->class * t->stride].programs[0];
    double *end = &t->of[event->class].end;
    assert_true(event->end > event->start);
    if (event->what == TRI_DOES_MESSAGE) {
        assert_true(event->lane < MOST_LANES && event->message < program->num_messages);
        end = &t->of[event->class].lane_end[event->lane];
        if (event->start < *end * (1 - 1e-12))
            fail_msg("layout %d: messages of lane %u overlap", t->layout, event->lane);
        t->of[event->class].messages += event->end - event->start;
        *end = event->end;
        return;
    }
    assert_near(event->start, *end, "the begin of what a rank does", t->layout);
    *end = event->end;
    t->of[event->class].does[event->what] += event->end - event->start;
    bool in_order =
        event->call >= t->of[event->class].call ||
        program->calls[event->call].pair == program->calls[t->of[event->class].call].pair;
    assert_true(in_order && event->call <= program->num_calls);
    t->of[event->class].call = event->call;
    if (event->what != TRI_DOES_COMPUTE || event->last == 0)
        return;
    const tri_segment *segment = &program->segments[program->calls[event->call].segment];
    assert_true(event->first >= segment->first && event->last <= segment->first + segment->count);
}

/* What is told while it happens adds up to what is told at the end, and nothing is told twice. */
static void test_what_is_told(void **state)
{
    (void)state;
    for (int n = 0; n < NUM_LAYOUTS; n++) {
        world w;
        open_world(&w, layouts[n]);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            tri_timing timing;
            how folded = ways[i];
            folded.folded = true;
            told *t = calloc(1, sizeof *t);
            assert_non_null(t);
            *t = (told){.w = &w, .stride = w.num_ranks / w.num_stages, .layout = n};
            run_watched(&w, &folded, &(tri_timing_watch){t, hear}, &timing);
            for (uint32_t s = 0; s < w.num_stages; s++) {
                const tri_rank_timing *rank = &timing.ranks[s];
                size_t groups = w.sessions[s * t->stride].programs[0].num_groups + 1;
                double exposed = sum_of(rank->exposed, groups);
                assert_near(t->of[s].end, rank->end, "the end", n);
                assert_near(t->of[s].does[TRI_DOES_COMPUTE], sum_of(rank->time, TRI_NUM_TIME_KINDS),
                            "computing", n);
                assert_true(fabs(t->of[s].does[TRI_DOES_WAIT] - exposed) < 1e-9 * rank->end);
                assert_true(fabs(t->of[s].does[TRI_DOES_IDLE] - rank->idle) < 1e-9 * rank->end);
                assert_true(t->of[s].messages >=
                            (exposed + sum_of(rank->hidden, groups)) * (1 - 1e-9));
            }
            tri_timing_fini(&timing);
            free(t);
        }
        close_world(&w);
    }
}

static double hidden_share(const world *w, const tri_timing *timing)
{
    const tri_program *program = &w->sessions[0].programs[TRI_PROGRAM_TRAIN];
    double hidden = sum_of(timing->ranks[0].hidden, program->num_groups + 1);
    return hidden / (hidden + sum_of(timing->ranks[0].exposed, program->num_groups + 1));
}

/* What the program hides is hidden, and with run.overlap=false nothing is. */
static void test_overlap(void **state)
{
    (void)state;
    static const char *const cases[][2][24] = {
        {LAYOUT("layout.dp=4", "layout.zero=3"),
         LAYOUT("layout.dp=4", "layout.zero=3", "run.overlap=false")},
        {LAYOUT("layout.dp=4", "layout.bucket_mb=0.05"),
         LAYOUT("layout.dp=4", "layout.bucket_mb=0.05", "run.overlap=false")},
        {LAYOUT("layout.pp=2", "layout.microbatches=4"),
         LAYOUT("layout.pp=2", "layout.microbatches=4", "run.overlap=false")},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        world with, without;
        tri_timing a, b;
        open_world(&with, cases[n][0]);
        open_world(&without, cases[n][1]);
        run(&with, &(how){.folded = true, .messages = 1}, &a);
        run(&without, &(how){.folded = true, .messages = 1}, &b);
        assert_true(hidden_share(&with, &a) > 0.05);
        assert_true(hidden_share(&without, &b) < 1e-12);
        assert_true(a.seconds < b.seconds);
        tri_timing_fini(&a);
        tri_timing_fini(&b);
        close_world(&with);
        close_world(&without);
    }
}

/* What a segment computes. */
static double seconds_of(const tri_program *program, const tri_segment *segment)
{
    double seconds = 0;
    for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
        if (program->instrs[i].message == TRI_NONE)
            seconds += instr_cost(NULL, program, i);
    return seconds;
}

/* When the last action of a stage ends, but for the update. */
static double last_end(const tri_program *program, const tri_rank_timing *rank)
{
    double end = 0;
    for (size_t c = 0; c < program->num_calls; c++) {
        tri_action_kind action = program->segments[program->calls[c].segment].action;
        if (tri_action_computes(action) && action != TRI_ACTION_U)
            end = fmax(end, rank->call_end[c]);
    }
    return end;
}

static void compare_with_schedule(const world *w, double limit, int n)
{
    tri_pipeline pipeline;
    tri_timing timing;
    tri_sim sim;
    tr_error err = {0};
    if (tri_pipeline_init(&pipeline, config_of(w), &err) != TR_OK)
        fail_msg("%s", err.message);
    uint32_t chunks = pipeline.schedule.num_chunks;
    double *by_chunk = calloc((size_t)TRI_NUM_ACTIONS * chunks, sizeof *by_chunk);
    assert_non_null(by_chunk);
    for (uint32_t r = 0; r < w->num_ranks; r++) {
        const tri_program *program = &w->sessions[r].programs[TRI_PROGRAM_TRAIN];
        for (size_t s = 0; s < program->num_segments; s++) {
            const tri_segment *segment = &program->segments[s];
            if (tri_action_computes(segment->action) && segment->action != TRI_ACTION_U)
                by_chunk[segment->action * chunks + (uint32_t)segment->chunk] =
                    seconds_of(program, segment);
        }
    }
    double update[MOST_RANKS] = {0};
    const tri_action_costs costs = {.by_chunk = by_chunk, .update_by_rank = update};
    if (tri_sim_run(&pipeline.schedule, &costs, &sim, &err) != TR_OK)
        fail_msg("%s", err.message);
    run(w, &(how){.folded = true}, &timing);
    for (uint32_t r = 0; r < w->num_ranks; r++)
        assert_within(sim.ranks[r].end,
                      last_end(&w->sessions[r].programs[TRI_PROGRAM_TRAIN], &timing.ranks[r]),
                      limit, "the end of a stage", n);
    tri_sim_fini(&sim);
    tri_timing_fini(&timing);
    tri_pipeline_fini(&pipeline);
    free(by_chunk);
}

/* Messages that take no time leave the order of the actions, which the schedule's machine times.
 * With several chunks on a rank a stage may also wait for a send to be taken, since its memory is
 * wanted again: programs have no hidden buffers. */
static void test_schedules(void **state)
{
    (void)state;
    static const char *const orders[] = {"gpipe", "1f1b",        "zb-h1",
                                         "zb-v",  "interleaved", "chimera"};
    for (size_t n = 0; n < sizeof orders / sizeof *orders; n++) {
        char order[64];
        world w;
        snprintf(order, sizeof order, "layout.schedule=%s", orders[n]);
        open_world(&w,
                   SET(SMALL, "model.num_layers=8", "layout.pp=4", "layout.microbatches=8", order));
        compare_with_schedule(&w, n < 4 ? 1e-9 : 5e-3, (int)n);
        close_world(&w);
    }
}

/* With a pace for each action and messages that take no time, a step is the sum of its actions, and
 * of a braked stage so many times as long; nobody is faster than the pace. */
static void test_pace(void **state)
{
    (void)state;
    const double least[TRI_NUM_PACES] = {
        [TRI_ACTION_F] = 0.1, [TRI_ACTION_B] = 0.3, [TRI_ACTION_U] = 0.05};
    world w;
    tri_timing timing;
    open_world(&w, (const char *const[])LAYOUT("layout.dp=2", "layout.microbatches=4"));
    for (int braked = 0; braked < 2; braked++) {
        const double brake = braked ? 1.25 : 1;
        run(&w, &(how){.folded = true, .pace = {least, &brake}}, &timing);
        /* What follows the last product of an action comes on top. */
        assert_within(timing.seconds, brake * (4 * 0.4 + 0.05), 1e-3, "a paced step", braked);
        tri_timing_fini(&timing);
    }
    tri_timing plain;
    const double none[TRI_NUM_PACES] = {[TRI_ACTION_F] = 1e-9};
    run(&w, &(how){.folded = true, .messages = 1}, &plain);
    run(&w, &(how){.folded = true, .messages = 1, .pace = {none, NULL}}, &timing);
    assert_near(timing.seconds, plain.seconds, "a pace that all are slower than", 0);
    tri_timing_fini(&timing);
    tri_timing_fini(&plain);
    close_world(&w);
}

/* A message that has computing to hide behind with a pace: behind each product, not at the end. */
static void test_pace_hides(void **state)
{
    (void)state;
    const double least[TRI_NUM_PACES] = {[TRI_ACTION_F] = 0.1, [TRI_ACTION_B] = 0.2};
    const double brake = 1.1;
    world w;
    tri_timing paced, braked;
    open_world(&w, (const char *const[])LAYOUT("layout.dp=4", "layout.bucket_mb=0.05"));
    run(&w, &(how){.folded = true, .messages = 1, .pace = {least, NULL}}, &paced);
    run(&w, &(how){.folded = true, .messages = 1, .pace = {least, &brake}}, &braked);
    assert_true(hidden_share(&w, &paced) > 0.6);
    assert_within(braked.seconds - paced.seconds, 0.1 * 0.3, 0.02, "what the brake costs", 0);
    tri_timing_fini(&paced);
    tri_timing_fini(&braked);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank_stands_for_its_stage),
        cmocka_unit_test(test_no_time_is_lost),
        cmocka_unit_test(test_what_is_told),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_pace),
        cmocka_unit_test(test_pace_hides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
