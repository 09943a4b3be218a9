/* Messages beside the computation: what a program starts early and waits for late, that the
 * executor does as the program says, and what it does when a message fails. Positions are compared,
 * never times. */
#include "small_models.h"

#include <string.h>

#include "program/overlap.h"
#include "trireme/trireme.h"

#define SMALL                                                                                      \
    "model.num_layers=4", "model.dim=64", "model.num_heads=4", "model.vocab=256", "train.batch=8", \
        "data.seq_len=32", "layout.dp=2", "layout.bucket_mb=0.05", "data.source=synthetic"

typedef struct made {
    tr_settings *settings;
    tr_session *session;
    tri_program *program;
} made;

static made make(const char *const *assignments)
{
    made m = {.settings = settings_of(NULL, assignments)};
    m.session = compiled(m.settings);
    m.program = &m.session->session.programs[TRI_PROGRAM_TRAIN];
    return m;
}

static void unmake(made *m)
{
    tr_session_destroy(m->session);
    tr_settings_destroy(m->settings);
}

/* Floating-point operations of the backward between the start of a flight and its end. */
static double hidden_behind(const tri_program *program, const tri_flight *flight)
{
    double flops = 0;
    for (uint32_t c = flight->call; c <= flight->wait_call && c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        bool backward = segment->action == TRI_ACTION_B || segment->action == TRI_ACTION_W ||
                        segment->action == TRI_ACTION_I;
        uint32_t first = c == flight->call ? flight->instr : segment->first;
        uint32_t end =
            c == flight->wait_call ? flight->wait_instr : segment->first + segment->count;
        for (uint32_t i = first; i < end && backward; i++)
            if (!tri_op_get(program->instrs[i].op)->communicates)
                flops += program->instrs[i].cost.flops;
    }
    return flops;
}

static double flops_of_layer(const tri_program *program, tri_action_kind kind)
{
    double flops = 0;
    for (size_t s = 0; s < program->num_segments; s++)
        if (program->segments[s].action == kind)
            for (uint32_t i = 0; i < program->segments[s].count; i++)
                flops += program->instrs[program->segments[s].first + i].cost.flops;
    return flops / program->num_layers;
}

/* Elements: of a vector, or of all slices together. */
static double elements_of(const tri_program *program, const tri_instr *instr)
{
    double sum = 0;
    for (uint32_t k = 0; k < program->messages[instr->message].count; k++)
        sum += (double)tri_shape_count(&program->values[instr[k].out[0].value].shape);
    return sum;
}

/* Whatever is summed over dp (no tp here) but for the statistics. */
static bool sums_gradients(const tri_program *program, const tri_instr *instr)
{
    return (instr->op == TRI_OP_SHARD_SUM || instr->op == TRI_OP_ALL_REDUCE) &&
           program->spaces[instr->out[0].space].kind != TRI_SPACE_STAT;
}

/* At least half of the sums of gradients have a tenth of a layer's backward to hide behind. */
static void expect_hidden_sums(const char *zero, const char *micro, const char *split)
{
    made m = make(SET(SMALL, zero, micro, split, "run.device=null"));
    const tri_program *program = m.program;
    double all = 0, hidden = 0;
    bool is_split = strstr(split, "true") != NULL;
    double least = 0.1 * flops_of_layer(program, is_split ? TRI_ACTION_W : TRI_ACTION_B);
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = 0; i < segment->count; i++) {
            const tri_instr *instr = &program->instrs[segment->first + i];
            bool runs = tri_instr_leads(program, segment->first + i) &&
                        tri_call_runs(&program->calls[c], instr);
            if (runs && tri_op_get(instr->op)->communicates && sums_gradients(program, instr))
                all += elements_of(program, instr);
        }
    }
    for (size_t f = 0; f < program->num_flights; f++) {
        const tri_instr *instr = &program->instrs[program->flights[f].instr];
        if (sums_gradients(program, instr) && hidden_behind(program, &program->flights[f]) >= least)
            hidden += elements_of(program, instr);
    }
    if (!(all > 0 && hidden >= 0.5 * all))
        fail_msg("%s, %s, %s: %.0f of %.0f elements travel under the backward", zero, micro, split,
                 hidden, all);
    unmake(&m);
}

static void test_sums_under_the_backward(void **state)
{
    (void)state;
    static const char *const zeros[] = {"layout.zero=0", "layout.zero=1", "layout.zero=2",
                                        "layout.zero=3"};
    for (int z = 0; z < 4; z++) {
        expect_hidden_sums(zeros[z], "layout.microbatches=1", "layout.split_backward=false");
        expect_hidden_sums(zeros[z], "layout.microbatches=3", "layout.split_backward=false");
        expect_hidden_sums(zeros[z], "layout.microbatches=2", "layout.split_backward=true");
    }
}

/* Gathers of weights that have the products of another layer to hide behind, and all of them. */
static void count_gathers(const char *prefetch, int *ahead, int *all, uint64_t *bytes)
{
    made m = make(SET(SMALL, "layout.zero=3", prefetch, "run.device=null"));
    const tri_program *program = m.program;
    *ahead = *all = 0;
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = 0; i < segment->count; i++) {
            const tri_instr *instr = &program->instrs[segment->first + i];
            *all += instr->op == TRI_OP_UNSHARD && tri_instr_leads(program, segment->first + i);
        }
    }
    for (size_t f = 0; f < program->num_flights; f++) {
        const tri_flight *flight = &program->flights[f];
        if (program->instrs[flight->instr].op != TRI_OP_UNSHARD)
            continue;
        assert_int_equal(flight->call, flight->wait_call);
        bool product = false;
        for (uint32_t i = flight->instr; i < flight->wait_instr; i++)
            product |= program->instrs[i].op == TRI_OP_MATMUL &&
                       program->instrs[i].layer != program->instrs[flight->wait_instr].layer;
        *ahead += product;
    }
    *bytes = program->spaces[TRI_SPACE_WORK].bytes;
    unmake(&m);
}

/* All precede their use by a layer but for the first: in the forward those of the embedding and of
 * the first layer, which has no product before it; in the backward those of the head, of the last
 * norm, and of the last layer, which is started behind the head's products. */
static void test_gathers_ahead(void **state)
{
    (void)state;
    int ahead, all;
    uint64_t none, one, three;
    count_gathers("layout.prefetch=0", &ahead, &all, &none);
    assert_int_equal(all, 12); /* forward and backward: before, four layers, behind */
    assert_int_equal(ahead, 0);
    count_gathers("layout.prefetch=1", &ahead, &all, &one);
    assert_int_equal(all, 12);
    assert_int_equal(ahead, 4 + 3);
    count_gathers("layout.prefetch=3", &ahead, &all, &three);
    assert_int_equal(all, 12);
    assert_int_equal(ahead, 4 + 4);         /* the last layer before the head, too */
    assert_true(none < one && one < three); /* the plan counts what lies there early */
}

/* Pipelines: every send is under way while the sender goes on, and receives are started before the
 * action ahead of them where their memory is free; both in the order in which they stand. */
static void test_messages_between_stages(void **state)
{
    (void)state;
    static const char *const orders[] = {"layout.schedule=1f1b", "layout.schedule=interleaved",
                                         "layout.schedule=zb-h1"};
    for (int o = 0; o < 3; o++)
        for (int rank = 0; rank < 2; rank++) {
            tr_error err = {0};
            made m = {.settings = settings_of(NULL, SET(SMALL, "layout.dp=1", "layout.pp=2",
                                                        "layout.microbatches=4", orders[o],
                                                        "run.device=null"))};
            if (tri_api_compile(m.settings, rank, &m.session, &err) != TR_OK)
                fail_msg("%s", err.message);
            m.program = &m.session->session.programs[TRI_PROGRAM_TRAIN];
            const tri_program *program = m.program;
            size_t sends = 0, sent = 0, received = 0, ahead = 0;
            for (size_t c = 0; c < program->num_calls; c++) {
                const tri_segment *segment = &program->segments[program->calls[c].segment];
                for (uint32_t i = 0; i < segment->count; i++)
                    sends += program->instrs[segment->first + i].op == TRI_OP_SEND;
            }
            const tri_flight *last[2] = {NULL, NULL};
            for (size_t f = 0; f < program->num_flights; f++) {
                const tri_flight *flight = &program->flights[f];
                tri_op op = program->instrs[flight->instr].op;
                bool receives = op == TRI_OP_RECV;
                if (op != TRI_OP_SEND && !receives)
                    continue;
                sent += !receives;
                received += receives;
                ahead += flight->from_call < flight->call;
                assert_true(receives || flight->from_call == flight->call);
                const tri_flight *before = last[receives];
                assert_true(!before || before->call < flight->call ||
                            (before->call == flight->call && before->instr < flight->instr));
                last[receives] = flight;
            }
            assert_true(sends >= 4);
            assert_int_equal(sent, sends);
            if (ahead == 0 || ahead > received)
                fail_msg("%s, rank %d: %zu of %zu receives are started ahead", orders[o], rank,
                         ahead, received);
            assert_int_equal(program->num_early, ahead);
            unmake(&m);
        }
}

/* ---- rows on their way to experts, and back ---- */

#define EXPERTS                                                                                    \
    "model.kind=llama", "model.num_experts=4", "model.expert_dim=24", "layout.ep=2",               \
        "run.overlap_min_kb=0", "run.device=null"

/* Exchanges of whole rows of a segment (not of where they go, or their weights), and how many have
 * a product beside them. */
typedef struct beside {
    int all, hidden;
    bool first;
} beside;

static bool carries_rows(const tri_program *program, uint32_t i)
{
    const tri_instr *instr = &program->instrs[i];
    return instr->op == TRI_OP_ALL_TO_ALL_ROWS &&
           program->values[instr->out[0].value].shape.rank == 3;
}

static bool product_beside(const tri_program *program, const tri_flight *flight)
{
    bool product = false;
    for (uint32_t i = flight->instr;
         i < flight->wait_instr && flight->wait_call == flight->call && !product; i++)
        product = tri_op_multiplies(program->instrs[i].op);
    return product;
}

static beside count_beside(const tri_program *program, uint32_t call)
{
    beside found = {0};
    const tri_segment *segment = &program->segments[program->calls[call].segment];
    for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
        if (!carries_rows(program, i))
            continue;
        bool product = false;
        for (size_t f = 0; f < program->num_flights; f++)
            if (program->flights[f].call == call && program->flights[f].instr == i)
                product = product_beside(program, &program->flights[f]);
        found.first |= found.all == 0 && product;
        found.hidden += product;
        found.all++;
    }
    return found;
}

/* The program as a GPU has it: everything is fused that can be. */
static void fuse(made *m)
{
    tr_error err = {0};
    tri_session *session = &m->session->session;
    tri_compile_config config = session->config.compile;
    memset(&config.fusions, true, sizeof config.fusions);
    tri_batch_shape shape = tri_session_batch_shape(session, TRI_PROGRAM_TRAIN);
    tri_program_fini(m->program);
    *m->program = (tri_program){0};
    if (tri_compile(&config, &session->params, TRI_MODE_TRAIN, &shape, m->program, NULL, &err) !=
        TR_OK)
        fail_msg("%s", err.message);
    bool found = false;
    for (size_t i = 0; i < m->program->num_instrs && !found; i++)
        found = m->program->instrs[i].op == TRI_OP_GROUPED_SWIGLU_GRAD;
    assert_true(found);
}

/* Rows have products beside them on all ways: there and back, forward and backward. */
static void expect_products_beside(const char *const *assignments, bool fused)
{
    made m = make(assignments);
    if (fused)
        fuse(&m);
    bool forward = false, backward = false;
    for (uint32_t c = 0; c < m.program->num_calls; c++) {
        tri_action_kind action = m.program->segments[m.program->calls[c].segment].action;
        beside found = count_beside(m.program, c);
        forward |= action == TRI_ACTION_F && found.all == 2 * m.program->num_layers;
        backward |= action != TRI_ACTION_F && found.all >= 2 * m.program->num_layers;
        if (found.hidden < found.all)
            fail_msg("call %u (%s): %d of %d exchanges have a product beside them", c,
                     tri_action_name(action), found.hidden, found.all);
    }
    assert_true(forward && backward);
    unmake(&m);
}

static void test_shared_expert_beside_exchanges(void **state)
{
    (void)state;
    static const char *const layouts[] = {"layout.zero=0",         "layout.zero=3",
                                          "layout.microbatches=2", "layout.split_backward=true",
                                          "layout.recompute=full", "layout.ep_room=1.5",
                                          "model.shared_gate=true"};
    for (int n = 0; n < 14; n++)
        expect_products_beside(SET(SMALL, EXPERTS, "model.shared_dim=24", layouts[n / 2]), n % 2);
}

/* Without one there is nothing in the forward. In the backward there are the gradients of experts,
 * and those of attention of the layer before, which the first layer has not. */
static void test_gradients_beside_exchanges(void **state)
{
    (void)state;
    made m = make(SET(SMALL, EXPERTS));
    for (uint32_t c = 0; c < m.program->num_calls; c++) {
        tri_action_kind action = m.program->segments[m.program->calls[c].segment].action;
        beside found = count_beside(m.program, c);
        if (action == TRI_ACTION_U)
            continue;
        assert_int_equal(found.all, 8);
        assert_int_equal(found.hidden, action == TRI_ACTION_F ? 0 : 7);
        assert_false(found.first);
    }
    unmake(&m);
}

static void test_settings(void **state)
{
    (void)state;
    made m = make(SET(SMALL, "run.overlap=false", "run.device=null"));
    assert_int_equal(m.program->num_flights, 0);
    unmake(&m);
    m = make(SET(SMALL, "run.overlap_min_kb=100000", "run.device=null"));
    assert_int_equal(m.program->num_flights, 0);
    unmake(&m);
    m = make(SET(SMALL, "layout.bucket_mb=1000", "run.device=null"));
    size_t few = m.program->num_flights;
    unmake(&m);
    m = make(SET(SMALL, "run.device=null"));
    assert_true(m.program->num_flights > few);
    unmake(&m);
}

/* --- The executor, with an exchange that only takes notes ------------------------------------- */

enum { MOST = 512 };

typedef struct notes {
    int started, ended, open, most_open, ran;
    bool ended_early; /* out of the order that the program gives */
    int fail_at;      /* the n-th wait fails; 0: none */
    int fail_start;   /* the n-th start does */
    bool gave_up;
    const tri_program *program;
    int live[MOST];
} notes;

static tr_status note_run(void *context, const tri_exchange_call *message, tr_error *err)
{
    (void)message;
    (void)err;
    ((notes *)context)->ran++;
    return TR_OK;
}

static tr_status note_start(void *context, const tri_exchange_call *message, void **request,
                            tr_error *err)
{
    notes *n = context;
    const tri_flight *flight = &n->program->flights[n->started];
    const char *name = n->program->values[n->program->instrs[flight->instr].out[0].value].name;
    assert_string_equal(message->label, name);
    assert_true(n->started < MOST);
    if (n->fail_start == n->started + 1)
        return tri_fail(err, TR_ERROR_RUNTIME, "no lane");
    n->live[n->started] = 1;
    *request = &n->live[n->started++];
    n->open++;
    n->most_open = n->open > n->most_open ? n->open : n->most_open;
    return TR_OK;
}

static tr_status note_wait(void *context, void *request, uint64_t *begin_ns, uint64_t *end_ns,
                           tr_error *err)
{
    notes *n = context;
    int number = (int)((int *)request - n->live);
    assert_int_equal(n->live[number], 1);
    n->live[number] = 0;
    n->open--;
    n->ended_early |= n->program->landings[n->ended].flight != (uint32_t)number;
    n->ended++;
    *begin_ns = *end_ns = 1;
    return n->fail_at == n->ended ? tri_fail(err, TR_ERROR_RUNTIME, "a peer is gone") : TR_OK;
}

static void note_give_up(void *context)
{
    ((notes *)context)->gave_up = true;
}

static made start_noted(notes *n, const char *zero)
{
    tr_error err = {0};
    made m = make(SET(SMALL, zero, "layout.microbatches=2", "run.overlap_min_kb=0"));
    n->program = m.program;
    m.session->session.exchange = (tri_exchange){.context = n,
                                                 .run = note_run,
                                                 .start = note_start,
                                                 .wait = note_wait,
                                                 .give_up = note_give_up};
    if (tri_api_start(m.session, &err) != TR_OK)
        fail_msg("%s", err.message);
    return m;
}

static void test_executor_follows_the_program(void **state)
{
    (void)state;
    static const char *const zeros[] = {"layout.zero=0", "layout.zero=3"};
    for (int z = 0; z < 2; z++) {
        notes n = {0};
        tr_error err = {0};
        made m = start_noted(&n, zeros[z]);
        for (int step = 0; step < 2; step++) { /* ranks that add nothing: numbers mean nothing */
            n = (notes){.program = m.program};
            if (tri_executor_run(&m.session->session.executors[TRI_PROGRAM_TRAIN], &err) != TR_OK)
                fail_msg("%s", err.message);
            assert_true(m.program->num_flights > 4);
            assert_int_equal(n.started, m.program->num_flights);
            assert_int_equal(n.ended, m.program->num_flights);
            assert_int_equal(n.open, 0);
            assert_true(n.most_open > 1);
            assert_false(n.ended_early);
            assert_false(n.gave_up);
        }
        unmake(&m);
    }
}

/* The wait names the instruction that started the message, not the one that needs it. */
static void test_failure_names_the_started_instruction(void **state)
{
    (void)state;
    notes n = {0};
    made m = start_noted(&n, "layout.zero=0");
    tri_executor *executor = &m.session->session.executors[TRI_PROGRAM_TRAIN];
    tri_rank_status status = {0};
    executor->status = &status;
    for (int fail = 1; fail <= 2; fail++) {
        tr_error err = {0};
        char expected[64];
        n = (notes){.program = m.program, .fail_at = fail};
        assert_int_equal(tri_executor_run(executor, &err), TR_ERROR_RUNTIME);
        uint32_t instr = m.program->flights[m.program->landings[fail - 1].flight].instr;
        snprintf(expected, sizeof expected, "instruction %u (all_reduce of grad.", instr);
        if (!strstr(err.message, expected) || !strstr(err.message, "a peer is gone"))
            fail_msg("\"%s\" does not say \"%s\"", err.message, expected);
        assert_int_equal(atomic_load(&status.instruction), instr);
        assert_int_equal(n.open, 0); /* nothing is left under way */
        assert_int_equal(n.gave_up, n.started > fail);
    }
    tr_error err = {0};
    n = (notes){.program = m.program, .fail_start = 3};
    assert_int_equal(tri_executor_run(executor, &err), TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "no lane"));
    assert_int_equal(n.open, 0);
    unmake(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_under_the_backward),
        cmocka_unit_test(test_gathers_ahead),
        cmocka_unit_test(test_messages_between_stages),
        cmocka_unit_test(test_shared_expert_beside_exchanges),
        cmocka_unit_test(test_gradients_beside_exchanges),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_executor_follows_the_program),
        cmocka_unit_test(test_failure_names_the_started_instruction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
