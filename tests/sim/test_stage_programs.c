/* Stages of a kind: one is compiled, the others get its program with a timeline of their own; and
 * sketches, in which layers are put in. Bytes and times are those of stages that are compiled one
 * by one, for random layouts. It prints how many stages were compiled, and how many layouts
 * extended. TRIREME_RANDOM_SEED, _CASES and _CASE choose others. */
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sim/timing.h"
#include "train/plan/stage_programs.h"
#include "trireme/trireme.h"

typedef struct random_case {
    uint64_t key;
    uint32_t drawn;
    char set[28][48];
    const char *assignments[32];
} random_case;

static uint32_t draw(random_case *c, uint32_t below)
{
    c->key = c->key * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(c->key >> 33) % below;
}

static int pick(random_case *c, int num, const int *of)
{
    return of[draw(c, (uint32_t)num)];
}
#define PICK(c, ...)                                                                               \
    pick(c, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

static void add(random_case *c, const char *name, const char *value)
{
    size_t n = 0;
    while (c->assignments[n])
        n++;
    assert_true(n < 27);
    snprintf(c->set[n], sizeof c->set[n], "%s=%s", name, value);
    c->assignments[n] = c->set[n];
}

static void add_int(random_case *c, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    add(c, name, text);
}

static const char *const orders[] = {"gpipe", "1f1b",    "interleaved", "1f1b-v",
                                     "zb-h1", "zb-h2",   "zb-v",        "v-half",
                                     "v-min", "chimera", "dualpipev",   "gems"};

/* The experts of a llama, or the layers of an mlp. */
static void add_model(random_case *c, int dp)
{
    static const char *const models[] = {"gpt2", "llama", "bert",  "gpt2", "llama",
                                         "bert", "mlp",   "llama", "llama"};
    uint32_t model = draw(c, 9);
    add(c, "model.kind", models[model]);
    if (model == 8) {
        add(c, "model.num_experts", "4");
        add(c, "layout.ep", dp % 2 == 0 ? "2" : "1");
    }
    if (model == 6)
        return;
    add(c, "model.vocab", "251");
    add(c, "data.seq_len", "24");
    add_int(c, "layout.cp", PICK(c, 1, 1, 1, 1, 2));
}

static void make_case(random_case *c, uint64_t seed, int n)
{
    *c = (random_case){.key = seed * 1000003 + (uint64_t)n * 7919 + 1};
    int pp = PICK(c, 1, 1, 2, 2, 3, 4, 4, 6, 8);
    int microbatches = pp * PICK(c, 1, 2, 2, 3);
    int dp = PICK(c, 1, 2, 3);
    static const char *const recomputes[] = {"none", "selective", "full"};
    add_model(c, dp);
    add_int(c, "model.num_layers",
            pp * (pp < 4 ? PICK(c, 2, 12, 17, 24) : 2) + PICK(c, 0, 0, 1, 5));
    add_int(c, "layout.pp", pp);
    add_int(c, "layout.microbatches", microbatches);
    add_int(c, "layout.dp", dp);
    add_int(c, "layout.tp", PICK(c, 1, 1, 2));
    add_int(c, "layout.zero", PICK(c, 0, 0, 1, 2, 3));
    add_int(c, "train.batch", dp * microbatches * PICK(c, 1, 2));
    add(c, "layout.recompute", recomputes[draw(c, 3)]);
    add(c, "run.overlap", draw(c, 4) ? "true" : "false");
    add(c, "layout.schedule", pp > 1 ? orders[draw(c, sizeof orders / sizeof *orders)] : "1f1b");
    add(c, "layout.bucket_mb", draw(c, 2) ? "4" : "0.02");
    add(c, "run.lanes", draw(c, 2) ? "group" : "one");
}

static double instr_cost(const void *context, const tri_program *program, uint32_t i)
{
    (void)context;
    const tri_cost *cost = &program->instrs[i].cost;
    return cost->flops * 1e-10 + cost->bytes * 3e-10;
}

static double message_cost(const void *context, const tri_program *program,
                           const tri_message *message)
{
    (void)context;
    (void)program;
    return 5e-6 + (double)message->elements * 2e-9;
}

static double copy_cost(const void *context, double bytes)
{
    (void)context;
    return bytes * 1e-9;
}

static void time_stages(const tri_stage_programs *stages, tri_timing *timing, int n,
                        const char *how)
{
    const tri_timing_case c = {
        .programs = stages->programs,
        .num_classes = stages->num_stages,
        .stride = stages->stride,
        .in_place = true,
        .costs = {.instr = instr_cost, .message = message_cost, .copy = copy_cost}};
    tr_error err = {0};
    if (tri_timing_run(&c, timing, &err) != TR_OK)
        fail_msg("case %d, %s: %s", n, how, err.message);
}

static bool same_places(const tri_operand *a, const tri_operand *b, int num)
{
    for (int k = 0; k < num; k++)
        if ((a[k].value == TRI_NONE) != (b[k].value == TRI_NONE) ||
            (a[k].value != TRI_NONE && (a[k].space != b[k].space || a[k].offset != b[k].offset)))
            return false;
    return true;
}

/* Every instruction, and where its operands lie. */
static void compare_listings(const tri_program *a, const tri_program *b, int n, uint32_t stage,
                             const char *how)
{
    if (a->num_instrs != b->num_instrs || a->num_messages != b->num_messages)
        fail_msg("case %d, %s: stage %u has %zu instructions and %zu messages, and %zu and %zu", n,
                 how, stage, a->num_instrs, a->num_messages, b->num_instrs, b->num_messages);
    for (size_t i = 0; i < a->num_instrs; i++) {
        const tri_instr *x = &a->instrs[i], *y = &b->instrs[i];
        if (x->op != y->op || x->num_in != y->num_in || x->num_out != y->num_out ||
            x->message != y->message || !same_places(x->in, y->in, x->num_in) ||
            !same_places(x->out, y->out, x->num_out))
            fail_msg("case %d, %s: instruction %zu of stage %u is %s, and %s", n, how, i, stage,
                     tri_op_get(x->op)->name, tri_op_get(y->op)->name);
    }
}

/* how: "folded", or as a sketch. */
static void compare(const tri_stage_programs *a, const tri_stage_programs *b, int n,
                    const char *how)
{
    tri_timing x, y;
    for (uint32_t s = 0; s < a->num_stages; s++)
        if (b->sketch && b->like[s] == s)
            compare_listings(a->programs[s], b->programs[s], n, s, how);
    time_stages(a, &x, n, "whole");
    time_stages(b, &y, n, how);
    for (uint32_t s = 0; s < a->num_stages; s++) {
        if (a->planned_bytes[s] != b->planned_bytes[s])
            fail_msg("case %d, %s: stage %u has %llu bytes, and %llu like stage %u", n, how, s,
                     (unsigned long long)a->planned_bytes[s],
                     (unsigned long long)b->planned_bytes[s], b->like[s]);
        if (fabs(x.ranks[s].end - y.ranks[s].end) > 1e-9 * x.ranks[s].end)
            fail_msg("case %d, %s: stage %u ends at %.12g, and at %.12g like stage %u", n, how, s,
                     x.ranks[s].end, y.ranks[s].end, b->like[s]);
        assert_int_equal(a->programs[s]->num_flights, b->programs[s]->num_flights);
    }
    tri_timing_fini(&x);
    tri_timing_fini(&y);
}

typedef struct tally {
    uint32_t layouts, stages, compiled; /* folded: stages of which one of a kind is compiled */
    uint32_t extended, partly, whole;   /* sketches: layouts with all kinds of stages extended... */
} tally;

static void count_sketch(const tri_stage_programs *sketch, tally *t)
{
    t->extended += sketch->num_extended > 0 && sketch->num_compiled == 0;
    t->partly += sketch->num_extended > 0 && sketch->num_compiled > 0;
    t->whole += sketch->num_extended == 0;
}

/* Settings that are refused are not what this is about. */
static void run_case(const random_case *c, int n, tally *t)
{
    tr_settings *settings = settings_of(NULL, c->assignments);
    tri_session_config config;
    tri_stage_programs whole, folded, sketch;
    tr_error err = {0};
    tr_status status = tri_api_describe(settings, &config, &err);
    if (status == TR_OK)
        status = tri_stage_programs_compile(&config, true, &whole, &err);
    if (status != TR_OK) {
        assert_int_equal(status, TR_ERROR_INPUT);
        tr_settings_destroy(settings);
        return;
    }
    if (tri_stage_programs_compile(&config, false, &folded, &err) != TR_OK ||
        tri_stage_programs_sketch(&config, &sketch, &err) != TR_OK)
        fail_msg("case %d: %s", n, err.message);
    compare(&whole, &folded, n, "folded");
    compare(&whole, &sketch, n, "a sketch");
    t->layouts++;
    t->stages += folded.num_stages;
    t->compiled += folded.num_compiled;
    count_sketch(&sketch, t);
    tri_stage_programs_fini(&whole);
    tri_stage_programs_fini(&folded);
    tri_stage_programs_fini(&sketch);
    tr_settings_destroy(settings);
}

static double seconds_of(random_case *c, const char *overlap, int n)
{
    size_t at = 0;
    while (strncmp(c->set[at], "run.overlap=", 12) != 0)
        at++;
    snprintf(c->set[at], sizeof c->set[at], "run.overlap=%s", overlap);
    tr_settings *settings = settings_of(NULL, c->assignments);
    tri_session_config config;
    tri_stage_programs stages;
    tri_timing timing;
    tr_error err = {0};
    double seconds = -1;
    if (tri_api_describe(settings, &config, &err) == TR_OK &&
        tri_stage_programs_compile(&config, false, &stages, &err) == TR_OK) {
        time_stages(&stages, &timing, n, "folded");
        seconds = timing.seconds;
        tri_timing_fini(&timing);
        tri_stage_programs_fini(&stages);
    } else if (err.status != TR_ERROR_INPUT) {
        fail_msg("case %d: %s", n, err.message);
    }
    tr_settings_destroy(settings);
    return seconds;
}

static int from_environment(const char *name, int usual)
{
    const char *text = getenv(name);
    return text ? atoi(text) : usual;
}

static void test_random_layouts(void **state)
{
    (void)state;
    int seed = from_environment("TRIREME_RANDOM_SEED", 1);
    int cases = from_environment("TRIREME_RANDOM_CASES", 30);
    int only = from_environment("TRIREME_RANDOM_CASE", -1);
    tally t = {0};
    for (int n = 0; n < cases; n++) {
        random_case c;
        if (only >= 0 && n != only)
            continue;
        make_case(&c, (uint64_t)seed, n);
        run_case(&c, n, &t);
    }
    printf("seed %d: %u of %d layouts, %u stages, of which %u were compiled; of sketches %u are "
           "extended, %u in part, %u compiled whole\n",
           seed, t.layouts, cases, t.stages, t.compiled, t.extended, t.partly, t.whole);
    assert_true(only >= 0 || (t.layouts > (uint32_t)cases / 2 && t.compiled < t.stages &&
                              t.extended > t.layouts / 10));
}

/* Layers that recompute while others do not: which they are depends on their numbers, and with a
 * budget on their stage. */
static void test_unequal_layers(void **state)
{
    (void)state;
    static const char *const recomputes[] = {"every:2", "every:3", "budget:1MiB",
                                             "every:2", "every:3", "budget:3MiB"};
    int seed = from_environment("TRIREME_RANDOM_SEED", 1);
    int cases = from_environment("TRIREME_RANDOM_CASES", 30);
    int only = from_environment("TRIREME_RANDOM_CASE", -1);
    tally t = {0};
    for (int n = 0; n < cases; n++) {
        random_case c;
        make_case(&c, (uint64_t)seed + 1002, n);
        for (size_t i = 0; i < sizeof c.set / sizeof *c.set; i++)
            if (strncmp(c.set[i], "layout.recompute=", 17) == 0)
                snprintf(c.set[i], sizeof c.set[i], "layout.recompute=%s", recomputes[n % 6]);
        if (only < 0 || n == only)
            run_case(&c, n, &t);
    }
    assert_true(only >= 0 || (t.layouts > (uint32_t)cases / 2 && t.compiled < t.stages));
}

/* What hides nothing never takes less. */
static void test_without_overlap(void **state)
{
    (void)state;
    int seed = from_environment("TRIREME_RANDOM_SEED", 1);
    int cases = from_environment("TRIREME_RANDOM_CASES", 30);
    for (int n = 0; n < cases; n++) {
        random_case c;
        make_case(&c, (uint64_t)seed, n);
        double with = seconds_of(&c, "true", n), without = seconds_of(&c, "false", n);
        if (without >= 0 && with > without * (1 + 1e-9))
            fail_msg("case %d: a step takes %.9g with overlap and %.9g without", n, with, without);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_layouts),
        cmocka_unit_test(test_unequal_layers),
        cmocka_unit_test(test_without_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
