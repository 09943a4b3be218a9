/* The step program: the checker rejects what is broken, the memory plan is right by a second count,
 * and textbook sizes come out. */
#include "small_models.h"

#include "kept_bytes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/program.h"
#include "rooms_case.h"

#define MLP "model.kind=mlp", "model.num_layers=2", "model.dim=16", "train.batch=4"

/* A compiled session with its settings; the program of a training step is what most tests want. */
typedef struct made {
    tr_settings *settings;
    tr_session *session;
    tri_program *program;
} made;

static made make(const char *recipe, const char *const *assignments)
{
    made m = {.settings = settings_of(recipe, assignments)};
    m.session = compiled(m.settings);
    m.program = &m.session->session.programs[TRI_PROGRAM_TRAIN];
    return m;
}

static void unmake(made *m)
{
    tr_session_destroy(m->session);
    tr_settings_destroy(m->settings);
}

/* --- Faults --------------------------------------------------------------------------------- */

/* What the checker must say of each fault: a reason of its own, not just any complaint. The second
 * is for programs in which the same fault shows in another way. */
static const struct {
    const char *fault, *reason, *or_reason;
} reasons[] = {
    {"swap-instructions", "where nothing has been written", NULL},
    {"overlap", "has been written over it", "lies in part"},
    {"past-the-end", "past the end of", NULL},
    {"misaligned", "is not a multiple of", NULL},
    {"update-too-early", "reads grad.", NULL},
    {"old-version", "in a version that has been replaced", NULL},
    {"frame-in-use", "still holds", NULL},
    {"foreign-frame", "which is not this micro-batch's", NULL},
    {"lost-microbatch", "runs 0 times for micro-batch 1", "with 2 of 3 contributions"},
    {"restarted-sums", "contributions already", NULL},
    {"unstarted-sums", "which nothing has started", NULL},
    {"half-the-batch", "contributions added", "(or not made yet)"},
    {"swapped-operands", "does not fit its operands", "another shape or type"},
    {"written-input", "into the step's inputs", NULL},
    {"update-elsewhere", "in another place than it reads", NULL},
    {"lost-terms", "adds to d.ln_f", NULL},
    {"skipped-update", "is never updated", NULL},
    {"missing-operand", "lacks its input", NULL},
    {"in-place", "over its own input", NULL},
    {"scratch-in-use", "the scratch of a kernel", NULL},
    {"late-wait", "still under way", NULL},
    {"early-sum", "with 1 of 3 contributions", NULL},
    {"late-gather", "reads wte.weight", NULL},
    {"once-for-all", "runs once for all micro-batches", NULL},
    {"missing-member", "other members than its instructions", NULL},
    {"other-bytes", "other bytes than its instructions", NULL},
    {"wrong-counts", "its counts are not those", "its rooms are not those"},
    {"other-join", "it does something else than", NULL},
    {"wrong-distance", "it has another peer than", NULL},
    {"wrong-source", "it goes to, or comes from, another rank", NULL},
    {"small-room", "its rooms are not those of its buffers", NULL},
    {"loose-counts", "fitted to another room than it has", NULL},
    {"swapped-turns", "the list of its pair goes on with", NULL},
    {"shared-work", "reads", NULL},
    {"loose-plan", "its counts are neither planned by the host for its room", NULL},
    {"unfitted-counts", "nor a fitted list", NULL},
    {"unread-overflow", "no finish reads whether all rows", NULL},
};
enum { NUM_REASONS = sizeof reasons / sizeof *reasons };

static void check_reason(const char *fault, const char *message)
{
    for (size_t i = 0; i < NUM_REASONS; i++) {
        if (strcmp(reasons[i].fault, fault) != 0)
            continue;
        if (!strstr(message, reasons[i].reason) &&
            !(reasons[i].or_reason && strstr(message, reasons[i].or_reason)))
            fail_msg("the fault %s was rejected for another reason: %s", fault, message);
        return;
    }
    fail_msg("the fault %s has no row in this test", fault);
}

/* Plants one fault in a program; whether there was a place for it. */
static bool plant_in(const tri_fault *fault, tri_program *program)
{
    tr_error err = {0};
    assert_int_equal(tri_program_check(program, &err), TR_OK);
    bool applies = fault->apply(program);
    tr_status status = tri_program_check(program, &err);
    if (applies && status == TR_OK)
        fail_msg("the checker does not see the fault %s", fault->name);
    if (applies) {
        assert_int_equal(status, TR_ERROR_INPUT);
        check_reason(fault->name, err.message);
    } else if (status != TR_OK) {
        fail_msg("%s has no place, but changed the program: %s", fault->name, err.message);
    }
    return applies;
}

static bool plant(const tri_fault *fault, const char *recipe, const char *const *assignments)
{
    made m = make(recipe, assignments);
    bool applies = plant_in(fault, m.program);
    unmake(&m);
    return applies;
}

/* Messages with counts that no layout has yet, in programs made by hand. */
static bool plant_by_hand(const tri_fault *fault)
{
    tri_program program;
    tr_error err = {0};
    assert_int_equal(rooms_program(&(rooms_case){3, 1, 4, true}, 1, true, &program, &err), TR_OK);
    bool applies = plant_in(fault, &program);
    tri_program_fini(&program);
    return applies;
}

/* Those of pairs of calls, in a program that has some. */
static bool plant_in_pairs(const tri_fault *fault, size_t *num)
{
    if (strcmp(fault->name, "swapped-turns") != 0 && strcmp(fault->name, "shared-work") != 0)
        return false;
    bool applies = plant(fault, TINY,
                         SET("layout.pp=2", "layout.dp=2", "layout.zero=3", "layout.microbatches=4",
                             "layout.schedule=dualpipe", "layout.pairs=true"));
    *num += applies;
    return applies;
}

static void test_every_fault_is_seen(void **state)
{
    (void)state;
    enum { PROGRAMS = 8, OF_CP = 4, OF_PAIRS = 2 };
    size_t num_applied[PROGRAMS] = {0}, num_of_pairs = 0;
    for (size_t i = 0; tri_fault_at(i); i++) {
        const tri_fault *fault = tri_fault_at(i);
        const bool applied[PROGRAMS] = {
            plant(fault, TINY, SET("layout.microbatches=1")),
            plant(fault, TINY, SET("layout.microbatches=3")),
            plant(fault, NULL, SET(MLP)),
            plant(fault, TINY,
                  SET("layout.microbatches=3", "layout.split_backward=true", "optim.kind=sgd")),
            plant(fault, TINY,
                  SET("layout.microbatches=3", "layout.dp=2", "layout.bucket_mb=0.05",
                      "model.loss_tile=24")),
            plant(fault, TINY,
                  SET("layout.microbatches=3", "layout.dp=2", "layout.zero=3",
                      "layout.keep_gathered=true")),
            plant(fault, TINY, SET("layout.cp=3")),
            plant(fault, TINY,
                  SET("layout.cp=2", "layout.cp_kind=gather", "model.kind=llama", "model.dropout=0",
                      "model.window=8")),
        };
        bool any = plant_in_pairs(fault, &num_of_pairs);
        for (int p = 0; p < PROGRAMS; p++) {
            num_applied[p] += applied[p];
            any |= applied[p];
        }
        if (!any)
            fail_msg("the fault %s has no place in any of these programs", fault->name);
    }
    assert_int_equal(num_of_pairs, OF_PAIRS);
    size_t num_by_hand = 0;
    for (; tri_exchange_fault_at(num_by_hand); num_by_hand++)
        if (!plant_by_hand(tri_exchange_fault_at(num_by_hand)))
            fail_msg("no program has a place for %s", tri_exchange_fault_at(num_by_hand)->name);
    for (int p = 0; p < PROGRAMS; p++)
        assert_true(num_applied[p] >= 10);
    /* All of them in a gpt2 of three micro-batches on two ranks, but those for zero 3, for cp and
     * for pairs. */
    assert_int_equal(num_applied[4], NUM_REASONS - num_by_hand - OF_CP - OF_PAIRS - 1);
}

static void test_reasons_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_REASONS; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(reasons[i].reason, reasons[j].reason);
}

/* --- The memory plan ------------------------------------------------------------------------ */

/* A value of one micro-batch: where its bytes lie and when they are needed. Times count the
 * instructions of the whole timeline. */
typedef struct lifetime {
    tri_id value;
    uint32_t space, instance;
    uint64_t begin, end;
    size_t made, last;
} lifetime;

static const tri_instr *instr_at(const tri_program *program, const tri_call *call, uint32_t i)
{
    return &program->instrs[program->segments[call->segment].first + i];
}

static bool reads_value(const tri_instr *instr, tri_id value)
{
    for (int j = 0; j < instr->num_in; j++)
        if (instr->in[j].value == value)
            return true;
    return false;
}

static bool makes_value(const tri_instr *instr, tri_id value)
{
    for (int k = 0; k < instr->num_out; k++)
        if (instr->out[k].value == value)
            return true;
    return false;
}

/* From the timeline alone; false when the value is never made. */
static bool find_lifetime(const tri_program *program, tri_id value, uint32_t microbatch,
                          lifetime *life)
{
    const tri_operand *home = &program->home[value];
    bool found = false;
    size_t time = 0;
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_call *call = &program->calls[c];
        for (uint32_t i = 0; i < program->segments[call->segment].count; i++, time++) {
            const tri_instr *instr = instr_at(program, call, i);
            if (call->microbatch != microbatch)
                continue;
            if (makes_value(instr, value)) {
                bool in_frame = program->spaces[home->space].kind == TRI_SPACE_FRAME;
                *life = (lifetime){.value = value,
                                   .space = home->space,
                                   .instance = in_frame ? call->frame[home->space] : 0,
                                   .begin = home->offset,
                                   .end = home->offset + tri_value_bytes(&program->values[value]),
                                   .made = time,
                                   .last = time};
                found = true;
            }
            if (found && reads_value(instr, value))
                life->last = time;
        }
    }
    return found;
}

/* Two values may share bytes when one is done with before the other is made, or where the maker of
 * the second reads the first for the last time and may write over it. */
static bool may_share(const tri_program *program, const tri_instr *const *instrs, const lifetime *a,
                      const lifetime *b)
{
    if (a->made > b->made)
        return may_share(program, instrs, b, a);
    if (a->last < b->made)
        return true;
    const tri_instr *instr = instrs[b->made];
    if (a->last != b->made || a->begin != b->begin || a->end != b->end)
        return false;
    for (int k = 0; k < instr->num_out; k++)
        for (int j = 0; j < instr->num_in; j++)
            if (instr->out[k].value == b->value && instr->in[j].value == a->value)
                return tri_op_get(instr->op)->may_alias[k] >> j & 1;
    return false;
}

static const char *life_name(const tri_program *program, const lifetime *life)
{
    return life->value == TRI_NONE ? "scratch" : program->values[life->value].name;
}

/* Gradients that lie in `work` are needed from their first write to the end of the timeline, in all
 * their versions. */
static size_t add_grads(const tri_program *program, const tri_instr *const *instrs, size_t end,
                        lifetime *lives)
{
    size_t count = 0;
    for (size_t s = 0; s < program->num_states; s++) {
        const tri_state *state = &program->states[s];
        const tri_operand *home = &program->home[state->latest];
        uint64_t bytes = tri_value_bytes(&program->values[state->latest]);
        if (state->kind != TRI_STATE_GRAD || home->space != TRI_SPACE_WORK || bytes == 0)
            continue;
        size_t made = end;
        for (size_t t = end; t-- > 0;)
            for (int k = 0; k < instrs[t]->num_out; k++)
                if (program->values[instrs[t]->out[k].value].state == s)
                    made = t;
        lives[count++] = (lifetime){.value = state->latest,
                                    .space = home->space,
                                    .begin = home->offset,
                                    .end = home->offset + bytes,
                                    .made = made == end ? 0 : made,
                                    .last = end};
    }
    return count;
}

/* Scratch is needed while its instruction runs, beside all that this reads and writes. */
static size_t add_scratch(const tri_instr *const *instrs, size_t end, lifetime *lives)
{
    size_t count = 0;
    for (size_t t = 0; t < end; t++)
        if (instrs[t]->scratch_bytes)
            lives[count++] = (lifetime){.value = TRI_NONE,
                                        .space = TRI_SPACE_WORK,
                                        .begin = instrs[t]->scratch_offset,
                                        .end = instrs[t]->scratch_offset + instrs[t]->scratch_bytes,
                                        .made = t,
                                        .last = t};
    return count;
}

static void check_pairs(const tri_program *program, const lifetime *lives, size_t count,
                        const tri_instr *const *instrs)
{
    for (size_t i = 0; i < count; i++) {
        const lifetime *a = &lives[i];
        assert_true(a->end <= program->spaces[a->space].bytes);
        assert_true(a->instance < program->spaces[a->space].num_instances);
        assert_int_equal(a->begin % TRI_PROGRAM_ALIGN, 0);
        for (size_t j = 0; j < i; j++) {
            const lifetime *b = &lives[j];
            bool meet = a->space == b->space && a->instance == b->instance && a->begin < b->end &&
                        b->begin < a->end;
            if (meet && !may_share(program, instrs, a, b))
                fail_msg("%s and %s share bytes of %s while both are needed", life_name(program, a),
                         life_name(program, b), program->spaces[a->space].name);
        }
    }
}

/* Checks every pair of temporaries of every micro-batch, with gradients and scratch that lie among
 * them; returns how many there are. */
static size_t check_lifetimes(const tri_program *program)
{
    size_t num_instrs = 0, count = 0;
    for (size_t c = 0; c < program->num_calls; c++)
        num_instrs += program->segments[program->calls[c].segment].count;
    const tri_instr **instrs = calloc(num_instrs + 1, sizeof *instrs);
    lifetime *lives = calloc(program->num_values * program->num_microbatches + program->num_states +
                                 num_instrs + 1,
                             sizeof *lives);
    assert_true(instrs && lives);
    for (size_t c = 0, time = 0; c < program->num_calls; c++)
        for (uint32_t i = 0; i < program->segments[program->calls[c].segment].count; i++)
            instrs[time++] = instr_at(program, &program->calls[c], i);
    for (tri_id v = 0; v < program->num_values; v++)
        for (uint32_t m = 0; m < program->num_microbatches; m++)
            if (program->values[v].kind == TRI_VALUE_TEMP && !program->values[v].output &&
                program->home[v].space != TRI_NONE)
                count += find_lifetime(program, v, m, &lives[count]);
    count += add_grads(program, instrs, num_instrs, lives + count);
    count += add_scratch(instrs, num_instrs, lives + count);
    check_pairs(program, lives, count, instrs);
    free(instrs);
    free(lives);
    return count;
}

/* States and inputs keep their place: no two of them may meet at all. */
static void check_kept(const tri_program *program)
{
    for (tri_id v = 0; v < program->num_values; v++) {
        const tri_value *a = &program->values[v];
        if (a->kind == TRI_VALUE_TEMP)
            continue;
        for (tri_id w = 0; w < v; w++) {
            const tri_value *b = &program->values[w];
            const tri_operand *at = &program->home[v], *other = &program->home[w];
            if (b->kind == TRI_VALUE_TEMP || (a->state != TRI_NONE && a->state == b->state))
                continue;
            if (at->space == other->space && at->offset < other->offset + tri_value_bytes(b) &&
                other->offset < at->offset + tri_value_bytes(a))
                fail_msg("%s and %s share bytes", a->name, b->name);
        }
    }
}

static void test_no_two_live_values_overlap(void **state)
{
    (void)state;
    const char *const *const variants[] = {
        SET("layout.microbatches=1"),
        SET("layout.microbatches=3"),
        SET("layout.microbatches=2", "layout.split_backward=true"),
        SET("model.dropout=0", "optim.kind=muon"),
        SET(MLP, "layout.microbatches=2", "layout.split_backward=true"),
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        made m = make(TINY, variants[i]);
        for (int p = 0; p <= TRI_PROGRAM_PREDICT; p++) {
            assert_true(check_lifetimes(&m.session->session.programs[p]) > 1);
            check_kept(&m.session->session.programs[p]);
        }
        unmake(&m);
    }
}

static uint64_t some_scratch(const void *context, const tri_program *program,
                             const tri_instr *instr)
{
    (void)program;
    uint64_t bytes = *(const uint64_t *)context;
    return instr->op == TRI_OP_ATTENTION_GRAD ? bytes : instr->op == TRI_OP_MATMUL ? bytes / 7 : 0;
}

/* As for a GPU: gradients lie among the activations whatever the layout, and so does scratch. Those
 * that travel together are neighbours as in a space of their own: no message is cut. */
static void test_gradients_among_activations(void **state)
{
    (void)state;
    static const char *const layouts[][4] = {
        {"layout.dp=1"},
        {"layout.dp=2"},
        {"layout.dp=2", "layout.bucket_mb=0.05"},
        {"layout.dp=2", "layout.zero=1"},
        {"layout.dp=2", "layout.zero=2"},
        {"layout.dp=2", "layout.zero=3", "precision.kind=bf16"},
        {"layout.dp=4", "layout.zero=3", "layout.shard_group=2"},
        {"layout.tp=2", "layout.sp=true"},
        {"layout.tp=2", "layout.dp=2", "layout.zero=1"},
        {"layout.pp=2", "layout.microbatches=1"},
        {"layout.pp=2", "layout.microbatches=2"},
        {"layout.split_backward=true", "optim.kind=muon", "model.dropout=0"},
        {"layout.recompute=full", "layout.dp=2"},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *const *l = layouts[i];
        made m = make(TINY, SET("run.device=null", "model.num_layers=2", l[0],
                                l[1] ? l[1] : "train.batch=8", l[2] ? l[2] : "train.batch=8"));
        const tri_session *session = &m.session->session;
        tri_compile_config config = session->config.compile;
        tri_batch_shape batch = tri_session_batch_shape(session, TRI_PROGRAM_TRAIN);
        uint64_t bytes = 1 << 20;
        tri_program program;
        tr_error err = {0};
        config.memory = (tri_memory_needs){.scratch = some_scratch, .context = &bytes};
        if (tri_compile(&config, &session->params, TRI_MODE_TRAIN, &batch, &program, NULL, &err) !=
            TR_OK)
            fail_msg("%s: %s", l[0], err.message);
        assert_true(check_lifetimes(&program) > 0);
        bool once = config.num_microbatches == 1;
        assert_int_equal(program.laid_grad_bytes > 0, once);
        assert_int_equal(program.spaces[TRI_SPACE_GRAD].bytes > 0, !once);
        assert_true(program.num_messages <= m.program->num_messages);
        tri_program_fini(&program);
        unmake(&m);
    }
}

/* One micro-batch: the step takes less than its parts apart would, and no more than what is alive
 * at once and a little. */
static void test_a_step_is_smaller_than_its_parts(void **state)
{
    (void)state;
    made m = make(TINY, SET("run.device=null", "train.batch=32"));
    uint64_t work = m.program->spaces[TRI_SPACE_WORK].bytes;
    made two = make(TINY, SET("run.device=null", "train.batch=64", "layout.microbatches=2"));
    uint64_t apart = two.program->spaces[TRI_SPACE_WORK].bytes +
                     two.program->spaces[TRI_SPACE_GRAD].bytes + kept_bytes(two.program);
    assert_int_equal(kept_bytes(m.program), kept_bytes(two.program));
    assert_true(work < apart - two.program->spaces[TRI_SPACE_GRAD].bytes / 2);
    assert_true(work < kept_bytes(m.program) + kept_bytes(m.program) / 8);
    unmake(&m);
    unmake(&two);
}

/* Work and frames end where their last value ends: nothing is planned that nobody uses. */
static void test_spaces_are_filled(void **state)
{
    (void)state;
    made m = make(TINY, SET("layout.microbatches=2", "layout.split_backward=true"));
    uint64_t end[64] = {0};
    assert_true(m.program->num_spaces <= 64);
    for (tri_id v = 0; v < m.program->num_values; v++) {
        const tri_operand *home = &m.program->home[v];
        uint64_t bytes = tri_value_bytes(&m.program->values[v]);
        if (home->space != TRI_NONE && home->offset + bytes > end[home->space])
            end[home->space] = home->offset + bytes;
    }
    for (size_t s = 0; s < m.program->num_spaces; s++)
        assert_true(m.program->spaces[s].bytes - end[s] < TRI_PROGRAM_ALIGN);
    unmake(&m);
}

static bool same_home(const tri_program *program, const char *a, const char *b)
{
    tri_id x = tri_program_find(program, a), y = tri_program_find(program, b);
    if (x == TRI_NONE || y == TRI_NONE)
        fail_msg("the program has no %s or no %s", a, b);
    return program->home[x].space == program->home[y].space &&
           program->home[x].offset == program->home[y].offset;
}

static void test_results_are_made_in_place(void **state)
{
    (void)state;
    made m = make(TINY, SET("layout.microbatches=1"));
    assert_true(same_home(m.program, "logits", "d.logits"));
    assert_true(same_home(m.program, "h.0.attn.c_proj", "h.0.attn.resid")); /* dropout */
    assert_true(same_home(m.program, "embd.sum", "embd"));
    assert_false(same_home(m.program, "h.0.ln_1", "h.0.attn")); /* both are kept */
    unmake(&m);
    m = make(TINY, SET("layout.microbatches=2", "layout.split_backward=true"));
    assert_true(same_home(m.program, "logits", "d.logits")); /* now it lives from F to W */
    assert_string_equal(
        m.program->spaces[m.program->home[tri_program_find(m.program, "logits")].space].name,
        "frame F>W");
    unmake(&m);
}

/* --- Frames --------------------------------------------------------------------------------- */

/* Builds the tiny model with an order of actions written as letter and micro-batch: "F0 B0 U0". */
static void build_order(const small_graph *g, const char *order, uint32_t num_microbatches,
                        tri_program *program)
{
    tri_action actions[32];
    size_t count = 0;
    tr_error err = {0};
    for (const char *at = order; *at; at += at[2] ? 3 : 2)
        actions[count++] = (tri_action){.kind = (tri_action_kind)(strchr("FIWBU", at[0]) - "FIWBU"),
                                        .microbatch = (uint32_t)(at[1] - '0')};
    const tri_build_config wanted = {
        .schedule = actions, .num_actions = count, .num_microbatches = num_microbatches};
    tri_placed_params placed;
    if (tri_placed_params_init(&placed, g->graph.params, &err) != TR_OK ||
        tri_program_build(&g->graph, &placed, &wanted, program, &err) != TR_OK ||
        tri_program_check(program, &err) != TR_OK)
        fail_msg("%s: %s", order, err.message);
    tri_placed_params_fini(&placed);
}

static uint32_t instances(const tri_program *program, const char *name)
{
    for (size_t s = 0; s < program->num_spaces; s++)
        if (strcmp(program->spaces[s].name, name) == 0)
            return program->spaces[s].num_instances;
    return 0;
}

static void test_frames_are_counted(void **state)
{
    (void)state;
    static const struct {
        const char *order;
        uint32_t num_microbatches, f_b, f_i, f_w, i_w;
    } rows[] = {
        {"F0 B0 U0", 1, 0, 0, 0, 0}, /* each once: all lies in `work` */
        {"F0 B0 F1 B1 F2 B2 U0", 3, 1, 0, 0, 0},
        {"F0 F1 F2 B0 B1 B2 U0", 3, 3, 0, 0, 0}, /* GPipe */
        {"F0 F1 B0 F2 B1 B2 U0", 3, 2, 0, 0, 0}, /* 1F1B */
        {"F0 F1 F2 B2 B1 B0 U0", 3, 3, 0, 0, 0},
        {"F0 I0 W0 U0", 1, 0, 0, 0, 0},
        {"F0 I0 W0 F1 I1 W1 F2 I2 W2 U0", 3, 0, 1, 1, 1},
        {"F0 I0 F1 I1 W0 W1 U0", 2, 0, 1, 2, 2}, /* what I is done with is given back at once */
        {"F0 F1 I0 W0 I1 W1 U0", 2, 0, 2, 2, 1},
    };
    small_graph g;
    small_graph_init(&g, TINY, SET("model.num_layers=2"), UP_TO_FUSE);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_program program;
        build_order(&g, rows[i].order, rows[i].num_microbatches, &program);
        assert_int_equal(instances(&program, "frame F>B"), rows[i].f_b);
        assert_int_equal(instances(&program, "frame F>I"), rows[i].f_i);
        assert_int_equal(instances(&program, "frame F>W"), rows[i].f_w);
        assert_int_equal(instances(&program, "frame I>W"), rows[i].i_w);
        assert_int_equal(instances(&program, "batch"), rows[i].num_microbatches);
        assert_true(check_lifetimes(&program) > 0);
        tri_program_fini(&program);
    }
    small_graph_fini(&g);
}

/* The plain schedules of src/compile keep one micro-batch in flight, whatever their number; a
 * single one needs no frame. */
static void test_compiled_frames(void **state)
{
    (void)state;
    const char *const *const variants[] = {
        SET("layout.microbatches=1"),
        SET("layout.microbatches=3"),
        SET("layout.microbatches=3", "layout.split_backward=true"),
    };
    for (size_t i = 0; i < 3; i++) {
        made m = make(TINY, variants[i]);
        assert_int_equal(instances(m.program, "frame F>B"), i == 1);
        assert_int_equal(instances(m.program, "frame F>I"), i == 2);
        assert_int_equal(instances(m.program, "frame F>W"), i == 2);
        assert_int_equal(instances(m.program, "frame I>W"), i == 2);
        assert_int_equal(instances(m.program, "batch"), i ? 3 : 1);
        unmake(&m);
    }
}

/* --- Textbook numbers ----------------------------------------------------------------------- */

/* Gradients count wherever they lie. */
static uint64_t stored_in(const made *m, tri_slab_kind slab)
{
    const tri_store *store = &m->session->session.store;
    return store->slabs[slab].bytes + (slab == TRI_SLAB_GRAD ? store->laid_grad_bytes : 0);
}

/* Bytes of a slab: the numbers themselves, and at most one alignment for every tensor. */
static void check_slab(const made *m, tri_slab_kind slab, uint64_t bytes_per_param)
{
    uint64_t bytes = stored_in(m, slab);
    uint64_t exact = (uint64_t)tri_param_total(&m->session->session.params) * bytes_per_param;
    uint64_t most = m->session->session.params.count * TRI_PROGRAM_ALIGN * bytes_per_param / 4;
    assert_true(bytes >= exact && bytes <= exact + most);
}

static void test_gpt3_is_as_large_as_printed(void **state)
{
    (void)state;
    made m = make(NULL, SET("model.preset=gpt3-175b", "data.seq_len=2048", "train.batch=1"));
    assert_int_equal(tri_param_total(&m.session->session.params), 174604259328);
    check_slab(&m, TRI_SLAB_PARAM, 4); /* 698.4 GB each, "700" in the books */
    check_slab(&m, TRI_SLAB_GRAD, 4);
    check_slab(&m, TRI_SLAB_OPTIM, 8);
    unmake(&m);
}

static void test_seed_mlp(void **state)
{
    (void)state;
    made m = make(
        NULL, SET("model.kind=mlp", "model.num_layers=6", "model.dim=1024", "model.ffn_dim=4096"));
    assert_int_equal(tri_param_total(&m.session->session.params), 50362368);
    check_slab(&m, TRI_SLAB_PARAM, 4);
    check_slab(&m, TRI_SLAB_GRAD, 4);
    check_slab(&m, TRI_SLAB_OPTIM, 8);
    uint64_t states = 0;
    for (int slab = TRI_SLAB_PARAM; slab <= TRI_SLAB_OPTIM; slab++)
        states += stored_in(&m, (tri_slab_kind)slab);
    assert_int_equal((states / 4 + 50000) / 100000, 2014); /* 201.4 MB on each of 4 ranks */
    unmake(&m);
}

/* 6 N FLOPs a token, and attention: two products forward and five backward, over the pairs of
 * positions that a causal model looks at. */
static void test_flops_of_gpt2(void **state)
{
    (void)state;
    made m = make(NULL, SET("model.preset=gpt2-124m", "data.seq_len=1024", "train.batch=2",
                            "layout.microbatches=2"));
    double num = (double)tri_param_total(&m.session->session.params), tokens = 2 * 1024;
    assert_int_equal(num, 124439808);
    double attention = 12.0 * 7 * 2 * 768 * 2 * (1024.0 * 1025 / 2);
    double expected = 6 * num * tokens + attention, flops = tri_program_cost(m.program).flops;
    if (!(fabs(flops - expected) <= 0.02 * expected))
        fail_msg("%g FLOPs, %g by the formula", flops, expected);
    unmake(&m);
}

/* --- Generation ----------------------------------------------------------------------------- */

/* A session with prefill and decode. */
static tr_session *generator(tr_settings *settings)
{
    tr_session *session;
    tr_error err = {0};
    if (tri_api_compile_programs(settings, 0, TRI_PROGRAMS_GENERATE, NULL, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    return session;
}

#define LLAMA                                                                                      \
    "model.kind=llama", "model.num_layers=2", "model.dim=32", "model.num_kv_heads=2",              \
        "model.window=6", "model.vocab=96", "data.seq_len=200", "generate.batch=3"

/* The programs share the cache: every state lies at the same place in both, and with a window it
 * is no longer than what is seen. Programs of training have none. */
static void test_cache_is_shared(void **state)
{
    (void)state;
    tr_settings *settings = settings_of(NULL, SET(LLAMA));
    tr_session *session = generator(settings);
    const tri_program *a = &session->session.programs[TRI_PROGRAM_PREFILL];
    const tri_program *b = &session->session.programs[TRI_PROGRAM_DECODE];
    assert_int_equal(a->num_states, b->num_states);
    size_t num = 0;
    for (size_t s = 0; s < a->num_states; s++) {
        assert_string_equal(a->states[s].name, b->states[s].name);
        const tri_operand *x = &a->home[a->states[s].latest], *y = &b->home[b->states[s].latest];
        assert_int_equal(x->space, y->space);
        assert_int_equal(x->offset, y->offset);
        if (a->states[s].kind != TRI_STATE_CACHE)
            continue;
        assert_int_equal(a->states[s].shape.dim[0].size, 3);
        assert_int_equal(a->states[s].shape.dim[2].size, 6 + 128 - 1);
        num++;
    }
    assert_int_equal(num, 4);
    uint64_t bytes = 4 * 3 * 2 * 133 * 8 * 4; /* 4 caches of [3, 2, 133, 8] */
    assert_int_equal(session->session.store.slabs[TRI_SLAB_CACHE].bytes, bytes);
    assert_int_equal(session->session.store.slabs[TRI_SLAB_GRAD].bytes, 0);
    for (int p = TRI_PROGRAM_PREFILL; p <= TRI_PROGRAM_DECODE; p++) {
        assert_true(check_lifetimes(&session->session.programs[p]) > 1);
        check_kept(&session->session.programs[p]);
    }
    tr_session_destroy(session);
    tr_session *training = compiled(settings);
    assert_int_equal(training->session.store.slabs[TRI_SLAB_CACHE].bytes, 0);
    assert_false(tri_session_has(&training->session, TRI_PROGRAM_DECODE));
    tr_session_destroy(training);
    tr_settings_destroy(settings);
}

/* Attention that looked at the cache before the new keys are in it would be seen. */
static void test_stale_cache_is_seen(void **state)
{
    (void)state;
    tr_settings *settings = settings_of(NULL, SET(LLAMA));
    tr_session *session = generator(settings);
    tri_program *program = &session->session.programs[TRI_PROGRAM_DECODE];
    tri_instr *write = program->instrs, *look = program->instrs;
    while (write->op != TRI_OP_CACHE_WRITE)
        write++;
    while (look->op != TRI_OP_ATTENTION)
        look++;
    tr_error err = {0};
    assert_int_equal(tri_program_check(program, &err), TR_OK);
    look->in[1].value = write->prev[0];
    assert_int_equal(tri_program_check(program, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "in a version that has been replaced"));
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

static void test_generation_refused(void **state)
{
    (void)state;
    tr_settings *settings = settings_of(NULL, SET(MLP));
    tr_session *session;
    tr_error err = {0};
    assert_int_equal(
        tri_api_compile_programs(settings, 0, TRI_PROGRAMS_GENERATE, NULL, &session, &err),
        TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "cannot continue a text"));
    tr_settings_destroy(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fault_is_seen),
        cmocka_unit_test(test_reasons_differ),
        cmocka_unit_test(test_no_two_live_values_overlap),
        cmocka_unit_test(test_spaces_are_filled),
        cmocka_unit_test(test_results_are_made_in_place),
        cmocka_unit_test(test_gradients_among_activations),
        cmocka_unit_test(test_a_step_is_smaller_than_its_parts),
        cmocka_unit_test(test_frames_are_counted),
        cmocka_unit_test(test_compiled_frames),
        cmocka_unit_test(test_gpt3_is_as_large_as_printed),
        cmocka_unit_test(test_seed_mlp),
        cmocka_unit_test(test_flops_of_gpt2),
        cmocka_unit_test(test_cache_is_shared),
        cmocka_unit_test(test_stale_cache_is_seen),
        cmocka_unit_test(test_generation_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
