/* Known before it runs: what a layout stores and what it sends, from the plans of its ranks. */
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trireme/trireme.h"

/* --- Memory ----------------------------------------------------------------------------------- */

enum { STATE_SLABS = TRI_SLAB_OPTIM + 1 };

typedef struct stored {
    double slabs[STATE_SLABS]; /* bytes */
    double total;
    double num_params; /* elements */
    double num_tensors;
} stored;

static stored stored_on(int rank, const char *const *assignments)
{
    tr_error err = {0};
    tr_settings *settings = settings_of(NULL, assignments);
    tr_session *session;
    stored s = {.total = 0};
    if (tri_api_compile(settings, rank, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    for (int i = 0; i < STATE_SLABS; i++) {
        s.slabs[i] = (double)session->session.store.slabs[i].bytes;
        if (i == TRI_SLAB_GRAD) /* they count wherever they lie */
            s.slabs[i] += (double)session->session.store.laid_grad_bytes;
        s.total += s.slabs[i];
    }
    s.num_params = (double)tri_param_total(&session->session.params);
    s.num_tensors = (double)session->session.params.count;
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return s;
}

#define MEDIUM                                                                                     \
    "run.device=null", "model.num_layers=3", "model.dim=96", "model.num_heads=4",                  \
        "model.vocab=301", "train.batch=8", "data.seq_len=32"

/* Of every slab, a rank has the whole or, from some stage of ZeRO on, its share. Shares end where
 * units of 32 elements do, so a rank may have that much more of a tensor. */
static void expect_shares(const char *kind, const int from_stage[STATE_SLABS])
{
    char precision[40];
    snprintf(precision, sizeof precision, "precision.kind=%s", kind);
    stored whole = stored_on(0, SET(MEDIUM, precision));
    for (int zero = 0; zero <= 3; zero++)
        for (int dp = 2; dp <= 8; dp += 3) {
            char stage[32], ranks[32];
            double sum[STATE_SLABS] = {0};
            snprintf(stage, sizeof stage, "layout.zero=%d", zero);
            snprintf(ranks, sizeof ranks, "layout.dp=%d", dp);
            for (int rank = 0; rank < dp; rank++) {
                stored own = stored_on(rank, SET(MEDIUM, precision, stage, ranks));
                for (int i = 0; i < STATE_SLABS; i++) {
                    double share = whole.slabs[i] / (zero >= from_stage[i] ? dp : 1);
                    double room = whole.num_tensors * 2 * 64 * 4;
                    sum[i] += own.slabs[i];
                    if (fabs(own.slabs[i] - share) > room)
                        fail_msg("%s, zero %d, rank %d of %d: slab %d has %.0f bytes, not %.0f",
                                 kind, zero, rank, dp, i, own.slabs[i], share);
                }
            }
            for (int i = 0; i < STATE_SLABS; i++) /* nothing is lost on the way */
                assert_true(sum[i] >= whole.slabs[i] * (zero >= from_stage[i] ? 1 : dp) -
                                          whole.num_tensors * 64 * 4);
        }
}

static void test_shares(void **state)
{
    (void)state;
    expect_shares(
        "fp32",
        (const int[STATE_SLABS]){
            [TRI_SLAB_PARAM] = 3, [TRI_SLAB_COPY] = 3, [TRI_SLAB_GRAD] = 2, [TRI_SLAB_OPTIM] = 1});
    /* The fp32 parameters are masters now, of which only the update wants to know. */
    expect_shares(
        "bf16",
        (const int[STATE_SLABS]){
            [TRI_SLAB_PARAM] = 1, [TRI_SLAB_COPY] = 3, [TRI_SLAB_GRAD] = 2, [TRI_SLAB_OPTIM] = 1});
}

/* 7.5 billion parameters on 64 ranks, 16 bytes for each: 120, 31.4, 16.6 and 1.9 GB. */
static void test_zero_of_the_paper(void **state)
{
    (void)state;
    static const struct {
        const char *stage;
        double bytes, gigabytes; /* of a parameter; of 7.5 billion */
    } stages[] = {{"layout.zero=0", 16, 120},
                  {"layout.zero=1", 4 + 12.0 / 64, 31.41},
                  {"layout.zero=2", 2 + 14.0 / 64, 16.64},
                  {"layout.zero=3", 16.0 / 64, 1.875}};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        stored s = stored_on(0, SET("run.device=null", "model.num_layers=36", "model.dim=4096",
                                    "model.num_heads=32", "model.vocab=50257", "data.seq_len=1024",
                                    "train.batch=64", "precision.kind=bf16",
                                    "precision.grad=compute", "layout.dp=64", stages[i].stage));
        double bytes = s.total / s.num_params;
        assert_true(fabs(s.num_params / 7.5e9 - 1) < 0.01);
        if (fabs(bytes / stages[i].bytes - 1) > 2e-3)
            fail_msg("%s: %.4f bytes a parameter, not %.4f", stages[i].stage, bytes,
                     stages[i].bytes);
        assert_true(fabs(bytes * 7.5 / stages[i].gigabytes - 1) < 3e-3);
    }
}

/* A large vocabulary under zero 2 and 3: the workspace is two tables at most (a shared table and
 * its gradient, or two parts of that), since a table is gathered for as long as something looks at
 * it: not from the head's backward to the embedding's, and for that not at all. */
static void test_tables_are_let_go(void **state)
{
    (void)state;
    static const char *const models[][2] = {{"model.kind=gpt2", "model.tied_head=false"},
                                            {"model.kind=llama", "model.tied_head=false"},
                                            {"model.kind=llama", "model.tied_head=true"}};
    for (int i = 0; i < 6; i++) {
        const char *const *model = models[i / 2];
        tr_settings *settings =
            settings_of(NULL, SET("run.device=null", "model.num_layers=3", "model.dim=64",
                                  "model.vocab=20000", "model.dropout=0", "data.seq_len=16",
                                  "train.batch=8", "layout.dp=4", "layout.microbatches=2", model[0],
                                  model[1], i % 2 ? "layout.zero=3" : "layout.zero=2"));
        tr_session *session = compiled(settings);
        const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
        double table = 20000 * 64 * 4, work = (double)program->spaces[TRI_SPACE_WORK].bytes;
        int gathers = 0;
        for (size_t n = 0; n < program->num_instrs; n++) {
            const tri_instr *instr = &program->instrs[n];
            const tri_value *out = &program->values[instr->out[0].value];
            gathers += instr->op == TRI_OP_UNSHARD && (double)tri_value_bytes(out) == table;
        }
        if (work > 2.1 * table)
            fail_msg("%s, %s: the workspace is %.2f tables", model[0], model[1], work / table);
        /* For the embedding and the head, and for the head's backward; a shared one only once
         * forward. */
        bool tied = i / 2 != 1;
        assert_int_equal(gathers, i % 2 == 0 ? 0 : tied ? 2 : 3);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
}

/* A plan beyond run.memory_limit is refused before anything is allocated, with its figures. */
static void test_memory_limit(void **state)
{
    (void)state;
    tr_error err = {0};
    tr_session *session;
    tr_settings *settings = settings_of(TINY, SET("run.device=null"));
    session = compiled(settings);
    uint64_t needed = tri_session_planned_bytes(&session->session);
    tr_session_destroy(session);
    static const char *const said[] = {"rank 0 needs", "gradients", "run.memory_limit is",
                                       "layout.tp"};
    for (int over = 0; over <= 1; over++) {
        char limit[64];
        snprintf(limit, sizeof limit, "run.memory_limit=%.6fMiB",
                 ((double)needed - over) / (1 << 20) + 1e-6);
        if (over)
            snprintf(limit, sizeof limit, "run.memory_limit=%llu", (unsigned long long)needed - 1);
        assert_int_equal(tr_settings_set(settings, limit, &err), TR_OK);
        tr_status want = over ? TR_ERROR_INPUT : TR_OK;
        assert_int_equal(tri_api_check(settings, &err), want);
        session = compiled(settings); /* plans can be looked at */
        assert_int_equal(tri_api_start(session, &err), want);
        for (int i = 0; over && i < 4; i++)
            if (!strstr(err.message, said[i]))
                fail_msg("\"%s\" does not say \"%s\"", err.message, said[i]);
        tr_session_destroy(session);
    }
    static const char *const wrong[] = {"8 furlongs", "GiB", "-1", "nan", "1e300GiB"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char limit[64];
        snprintf(limit, sizeof limit, "run.memory_limit=%s", wrong[i]);
        assert_int_equal(tr_settings_set(settings, limit, &err), TR_OK);
        assert_int_equal(tri_api_check(settings, &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, wrong[i]));
        assert_non_null(strstr(err.message, "such as 8GiB"));
    }
    tr_settings_destroy(settings);
}

/* --- Traffic ---------------------------------------------------------------------------------- */

typedef struct traffic {
    double reduced, gathered, scattered; /* bytes that a rank sends in a step, by operation */
    int num_reduced, num_gathered, num_scattered; /* messages */
} traffic;

/* What the step's timeline sends over an axis of that many ranks. A ring sends each of its bytes
 * (ranks - 1) / ranks times to gather or to scatter, and twice that to reduce. */
static traffic traffic_of(const tri_program *program, tri_axis axis, int ranks)
{
    traffic t = {0};
    double share = (double)(ranks - 1) / ranks;
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            const tri_instr *instr = &program->instrs[i];
            if (instr->message == TRI_NONE || !tri_instr_leads(program, i) ||
                !tri_call_runs(&program->calls[c], instr))
                continue;
            const tri_message *message = &program->messages[instr->message];
            if (strcmp(program->groups[message->group].name, tri_axis_name(axis)) != 0)
                continue;
            double bytes = (double)tri_message_bytes(message) * share;
            if (message->kind == TRI_MESSAGE_ALL_REDUCE) {
                t.reduced += 2 * bytes;
                t.num_reduced++;
            } else if (message->kind == TRI_MESSAGE_REDUCE_SCATTER) {
                t.scattered += bytes;
                t.num_scattered++;
            } else {
                t.gathered += bytes;
                t.num_gathered++;
            }
        }
    }
    return t;
}

static traffic traffic_with(tri_axis axis, int ranks, double *num_params,
                            const char *const *assignments)
{
    tr_settings *settings = settings_of(NULL, assignments);
    tr_session *session = compiled(settings);
    traffic t = traffic_of(&session->session.programs[TRI_PROGRAM_TRAIN], axis, ranks);
    if (num_params)
        *num_params = (double)tri_param_total(&session->session.params);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return t;
}

/* Bytes that a rank sends in a step over the axes of dp, in units of the parameters' bytes. */
typedef struct units {
    double shard;     /* within a group, which may be all of dp */
    double replicate; /* between groups */
    int num_between;  /* messages */
} units;

static units units_of_zero(int zero, int dp, int group, int micro, int element,
                           const char *const *more)
{
    char words[4][40];
    const char *set[24] = {"run.device=null", "model.num_layers=4",
                           "model.dim=256",   "model.num_heads=4",
                           "model.vocab=512", "train.batch=24",
                           "data.seq_len=32", words[0],
                           words[1],          words[2],
                           words[3]};
    snprintf(words[0], sizeof words[0], "layout.zero=%d", zero);
    snprintf(words[1], sizeof words[1], "layout.dp=%d", dp);
    snprintf(words[2], sizeof words[2], "layout.microbatches=%d", micro);
    snprintf(words[3], sizeof words[3], "layout.shard_group=%d", group);
    for (int i = 11; *more; more++)
        set[i++] = *more;
    double num, bytes[TRI_NUM_AXES] = {0};
    int num_between = 0;
    for (tri_axis axis = 0; axis < TRI_NUM_AXES; axis++) {
        int ranks = axis == TRI_AXIS_DP ? dp : axis == TRI_AXIS_SHARD ? group : dp / group;
        traffic t = traffic_with(axis, ranks, &num, set);
        bytes[axis] = t.reduced + t.gathered + t.scattered;
        num_between += axis == TRI_AXIS_REPLICATE ? t.num_reduced : 0;
    }
    return (units){(bytes[TRI_AXIS_DP] + bytes[TRI_AXIS_SHARD]) / (num * element),
                   bytes[TRI_AXIS_REPLICATE] / (num * element), num_between};
}

static const struct {
    int element;
    const char *set[4];
} kinds_of_training[] = {{4, {"layout.split_backward=false"}},
                         {4, {"layout.split_backward=true"}},
                         {4, {"optim.kind=muon"}},
                         {2, {"precision.kind=bf16", "precision.grad=compute"}}};
enum { NUM_KINDS = sizeof kinds_of_training / sizeof *kinds_of_training };

/* In units of the parameters times (N - 1) / N: zero 0 and 1 send 2, zero 2 one more than there are
 * micro-batches, zero 3 three for each. */
static void test_traffic_of_zero(void **state)
{
    (void)state;
    for (int k = 0; k < NUM_KINDS; k++)
        for (int dp = 2; dp <= 4; dp += 2)
            for (int zero = 0; zero <= 3; zero++)
                for (int m = 1; m <= 3; m += 2) {
                    units u = units_of_zero(zero, dp, dp, m, kinds_of_training[k].element,
                                            kinds_of_training[k].set);
                    double want = zero <= 1 ? 2 : zero == 2 ? m + 1 : 3 * m;
                    double sent = u.shard * dp / (dp - 1);
                    if (fabs(sent / want - 1) > 0.01 || u.replicate > 0)
                        fail_msg("%s, zero %d, dp %d, %d micro-batches: %.3f, not %.0f",
                                 kinds_of_training[k].set[0], zero, dp, m, sent, want);
                }
}

/* Weights that stay for the step are gathered once in it, as under zero 2: m + 1, in every kind of
 * training, within groups too, and whatever recomputation reads again. */
static void test_traffic_of_kept(void **state)
{
    (void)state;
    static const int meshes[][2] = {{2, 2}, {4, 4}, {8, 4}};
    static const char *const modes[] = {"layout.recompute=none", "layout.recompute=full"};
    for (int k = 0; k < NUM_KINDS; k++)
        for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
            for (int m = 1; m <= 3; m++) {
                int dp = meshes[i][0], group = meshes[i][1];
                const char *set[8] = {"layout.keep_gathered=true", modes[m % 2]};
                for (int w = 0; w < 4 && kinds_of_training[k].set[w]; w++)
                    set[2 + w] = kinds_of_training[k].set[w];
                units u = units_of_zero(3, dp, group, m, kinds_of_training[k].element, set);
                double sent = u.shard * group / (group - 1);
                if (fabs(sent / (m + 1) - 1) > 0.01)
                    fail_msg("%s, %s, dp %d in groups of %d, %d micro-batches: %.3f, not %d",
                             set[2], set[1], dp, group, m, sent, m + 1);
            }
}

/* Hybrid sharding: within a group as much as without others, and a rank's slice is summed over the
 * R groups once a step: 2 (R - 1) / R of a slice, whatever the number of micro-batches. */
static void test_traffic_of_hybrid(void **state)
{
    (void)state;
    static const int meshes[][2] = {{4, 2}, {8, 2}, {8, 4}};
    for (int k = 0; k < NUM_KINDS; k++)
        for (int zero = 1; zero <= 3; zero++)
            for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
                for (int m = 1; m <= 3; m += 2) {
                    int dp = meshes[i][0], group = meshes[i][1];
                    bool whole_tensors =
                        strcmp(kinds_of_training[k].set[0], "optim.kind=muon") == 0;
                    units u = units_of_zero(zero, dp, group, m, kinds_of_training[k].element,
                                            kinds_of_training[k].set);
                    double want = zero == 1 ? 2 : zero == 2 ? m + 1 : 3 * m;
                    double sent = u.shard * group / (group - 1);
                    double copies = 2 * (1 - (double)group / dp) / group;
                    /* Slices of whole tensors are not of one size: this rank's may be any. */
                    bool right = whole_tensors ? u.replicate > 0 && u.replicate < 3 * copies
                                               : fabs(u.replicate / copies - 1) < 0.01;
                    if (zero >= 2 && kinds_of_training[k].element == 4)
                        right &= u.num_between == 1; /* they lie side by side */
                    if (fabs(sent / want - 1) > 0.01 || !right)
                        fail_msg("%s, zero %d, dp %d in groups of %d, %d micro-batches: %.3f "
                                 "within, not %.0f; %.4f between, not %.4f",
                                 kinds_of_training[k].set[0], zero, dp, group, m, sent, want,
                                 u.replicate, copies);
                }
}

/* More ranks than key heads: the gradients of what is held as copies (weights and biases of keys
 * and values) are summed over the copies once a step, or once a micro-batch where they are divided;
 * a layer has no other messages than without copies. */
static void test_traffic_of_key_copies(void **state)
{
    (void)state;
    for (int zero = 0; zero <= 3; zero++)
        for (int kv = 1; kv <= 8; kv *= 2)
            for (int m = 1; m <= 3; m += 2) {
                char words[3][40];
                snprintf(words[0], sizeof words[0], "layout.zero=%d", zero);
                snprintf(words[1], sizeof words[1], "model.num_kv_heads=%d", kv);
                snprintf(words[2], sizeof words[2], "layout.microbatches=%d", m);
                const char *const *set =
                    SET("run.device=null", "model.kind=llama", "model.dropout=0", "model.dim=64",
                        "model.num_heads=8", "model.vocab=512", "model.num_layers=3",
                        "model.qkv_bias=true", "layout.tp=4", "layout.dp=2", "train.batch=6",
                        "data.seq_len=32", words[0], words[1], words[2]);
                int copies = kv < 4 ? 4 / kv : 1, times = zero >= 2 ? m : 1;
                traffic t = traffic_with(TRI_AXIS_KV_COPY, copies, NULL, set);
                /* Between tensors in memory there is some padding. */
                double want = 2.0 * (copies - 1) / copies * times * 3 * 2 * (8 * 64 + 8) * 4;
                if (fabs(t.reduced - want) > 0.02 * want)
                    fail_msg("zero %d, %d key heads, %d micro-batches: %.0f bytes over the copies, "
                             "not %.0f",
                             zero, kv, m, t.reduced, want);
                assert_int_equal(t.num_gathered + t.num_scattered, 0);
                t = traffic_with(TRI_AXIS_KV, kv, NULL, set);
                assert_int_equal(t.num_reduced + t.num_gathered + t.num_scattered, 0);
                t = traffic_with(TRI_AXIS_TP, 4, NULL, set);
                assert_int_equal(t.num_gathered, m); /* statistics of the vocabulary */
                assert_int_equal(t.num_scattered, 0);
                /* The embedding, four in each layer, the head, and the squared norm. */
                assert_int_equal(t.num_reduced, m * (1 + 4 * 3 + 1) + 1);
            }
}

static traffic traffic_of_tp(const char *kind, int layers, int tp, bool sp, int micro)
{
    char words[5][40];
    snprintf(words[0], sizeof words[0], "model.kind=%s", kind);
    snprintf(words[1], sizeof words[1], "model.num_layers=%d", layers);
    snprintf(words[2], sizeof words[2], "layout.tp=%d", tp);
    snprintf(words[3], sizeof words[3], "layout.sp=%s", sp ? "true" : "false");
    snprintf(words[4], sizeof words[4], "layout.microbatches=%d", micro);
    return traffic_with(TRI_AXIS_TP, tp, NULL,
                        SET("run.device=null", "model.dim=64", "model.num_heads=4",
                            "model.vocab=512", "train.batch=6", "data.seq_len=32", words[0],
                            words[1], words[2], words[3], words[4]));
}

/* A layer sums the residual stream four times for each micro-batch: after attention and after the
 * feed-forward, and before both on the way back. With sequence parallelism each sum is a
 * reduce-scatter, and an all-gather stands before each block: the same bytes. */
static void test_traffic_of_tp(void **state)
{
    (void)state;
    static const char *const kinds[] = {"gpt2", "llama"};
    for (int k = 0; k < 2; k++)
        for (int tp = 2; tp <= 4; tp += 2)
            for (int m = 1; m <= 3; m += 2) {
                double residual = 6.0 / m * 32 * 64 * 4, share = (double)(tp - 1) / tp;
                traffic few = traffic_of_tp(kinds[k], 2, tp, false, m);
                traffic more = traffic_of_tp(kinds[k], 3, tp, false, m);
                assert_int_equal(more.num_gathered, few.num_gathered);
                assert_int_equal(more.num_scattered, few.num_scattered);
                double layer = more.reduced - few.reduced, want = m * 4 * 2 * residual * share;
                if (fabs(layer / want - 1) > 1e-9 || more.num_reduced - few.num_reduced != 4 * m)
                    fail_msg("%s, tp %d, %d micro-batches: a layer reduces %.0f bytes in %d "
                             "messages, not %.0f",
                             kinds[k], tp, m, layer, more.num_reduced - few.num_reduced, want);
                few = traffic_of_tp(kinds[k], 2, tp, true, m);
                more = traffic_of_tp(kinds[k], 3, tp, true, m);
                layer = more.gathered + more.scattered - few.gathered - few.scattered;
                if (fabs(layer / want - 1) > 1e-9 ||
                    more.num_gathered - few.num_gathered != 4 * m ||
                    more.num_scattered - few.num_scattered != 4 * m)
                    fail_msg("%s, tp %d sp, %d micro-batches: a layer moves %.0f bytes in %d "
                             "gathers and %d scatters, not %.0f",
                             kinds[k], tp, m, layer, more.num_gathered - few.num_gathered,
                             more.num_scattered - few.num_scattered, want);
            }
}

/* --- Precision -------------------------------------------------------------------------------- */

/* With 16-bit activations a gradient is a sum in f32 from the first product on, in every stage of
 * ZeRO: nothing is rounded to 16 bits and widened again before ranks add it up. */
static void test_gradients_are_wide(void **state)
{
    (void)state;
    static const char *const models[] = {"model.kind=gpt2", "model.kind=llama"};
    static const char *const kinds[] = {"precision.kind=bf16", "precision.kind=fp16"};
    static const char *const stages[] = {"layout.zero=0", "layout.zero=1", "layout.zero=2",
                                         "layout.zero=3"};
    for (int i = 0; i < 16; i++) {
        tr_settings *settings =
            settings_of(NULL, SET("run.device=null", "model.num_layers=2", "model.dropout=0",
                                  "layout.dp=2", "layout.tp=2", "layout.sp=true", models[i & 1],
                                  kinds[i >> 1 & 1], stages[i >> 2]));
        tr_session *session = compiled(settings);
        const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
        for (size_t n = 0; n < program->num_instrs; n++) {
            const tri_instr *instr = &program->instrs[n];
            if (instr->op == TRI_OP_CAST)
                fail_msg("%s, %s, %s: %s is widened", models[i & 1], kinds[i >> 1 & 1],
                         stages[i >> 2], program->values[instr->in[0].value].name);
            if (instr->op == TRI_OP_SHARD_SUM)
                assert_int_equal(program->values[instr->in[0].value].dtype, TRI_F32);
        }
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
}

/* A device that joins nodes of the backward gets programs that hold, in layouts that move their
 * operands about. tri_compile proves them. */
static void test_joined_backward(void **state)
{
    (void)state;
    static const char *const layouts[][4] = {
        {"layout.dp=2", "layout.zero=1", "layout.tp=1", "layout.pp=1"},
        {"layout.dp=2", "layout.zero=2", "layout.tp=2", "layout.sp=true"},
        {"layout.dp=2", "layout.zero=3", "layout.microbatches=2", "layout.pp=1"},
        {"layout.dp=2", "layout.zero=3", "layout.microbatches=2", "layout.pp=2"},
        {"layout.dp=2", "layout.zero=2", "precision.kind=bf16", "layout.pp=1"},
        {"layout.dp=2", "layout.zero=1", "precision.kind=bf16", "layout.pp=1"},
        {"layout.dp=2", "layout.zero=3", "precision.kind=bf16", "precision.linear=fp8"},
        {"layout.dp=2", "layout.zero=3", "layout.microbatches=2", "layout.keep_gathered=true"},
        {"layout.dp=2", "layout.zero=3", "layout.pp=2", "layout.keep_gathered=true"},
        {"layout.pp=2", "layout.tp=2", "precision.kind=bf16", "precision.linear=fp8"},
        {"layout.tp=2", "layout.sp=true", "precision.kind=bf16", "layout.split_backward=true"}};
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=llama"};
    for (size_t i = 0; i < 2 * sizeof layouts / sizeof *layouts; i++) {
        const char *const *l = layouts[i / 2];
        tr_settings *settings =
            settings_of(NULL, SET(MEDIUM, kinds[i % 2], "model.dropout=0", "model.tied_head=true",
                                  l[0], l[1], l[2], l[3]));
        tr_session *session = compiled(settings);
        tri_compile_config config = session->session.config.compile;
        config.fusions = (tri_fusions){.bias = true,
                                       .bias_gelu = true,
                                       .gelu_grad = true,
                                       .add = true,
                                       .norm_grads = true,
                                       .cross_entropy = true,
                                       .amax = true,
                                       .adam_copy = true};
        tri_batch_shape batch = tri_session_batch_shape(&session->session, TRI_PROGRAM_TRAIN);
        tri_program program;
        tr_error err = {0};
        if (tri_compile(&config, &session->session.params, TRI_MODE_TRAIN, &batch, &program, NULL,
                        &err) != TR_OK)
            fail_msg("%s, %s %s: %s", kinds[i % 2], l[1], l[3], err.message);
        tri_program_fini(&program);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_zero_of_the_paper),
        cmocka_unit_test(test_tables_are_let_go),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_traffic_of_zero),
        cmocka_unit_test(test_traffic_of_kept),
        cmocka_unit_test(test_traffic_of_hybrid),
        cmocka_unit_test(test_traffic_of_key_copies),
        cmocka_unit_test(test_traffic_of_tp),
        cmocka_unit_test(test_gradients_are_wide),
        cmocka_unit_test(test_joined_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
