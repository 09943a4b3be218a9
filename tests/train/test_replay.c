/* Replay: a step that runs twice has the bits of one that runs once, and changes none of the
 * training; a bit that a test flips in what an instruction makes is found, and the instruction is
 * named with its rank and micro-batch, whichever rank it was and however it travels on. On fake
 * GPUs (fake_gpu.h), too, where both ways through a step are recordings of their own, and messages
 * go through the host or by a stand-in for NCCL.
 *
 * TRIREME_TEST_FULL=1 replays 1,000 steps in each layout. */
#include "small_models.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "api/api.h"
#include "base/checksum.h"
#include "base/fs.h"
#include "comm/comm_internal.h"
#include "comm/control/control.h"
#include "fake_gpu.h"
#include "fake_nccl.h"
#include "program/messages.h"
#include "temp_dir.h"
#include "train/health/replay.h"
#include "train/run/run.h"
#include "trireme/trireme.h"

enum { MOST_RANKS = 8, MOST_TARGETS = 96, MOST_STEPS = 1000 };

/* What is flipped in a step. */
typedef struct target {
    int rank;
    bool when[2]; /* in the step, in the replay */
    uint32_t call, instr;
} target;

/* What all ranks see, processes too. */
typedef struct shared {
    uint64_t losses; /* of all steps */
    uint64_t weights;
    int64_t replayed, differs;
    int64_t num_compared, num_left_out;
    char kinds[2000]; /* "matmul attention ...": that were flipped and named */
    int num_kinds;
    size_t parts;       /* recordings of other steps, of rank 0 */
    uint64_t sum_bytes; /* on the device */
    atomic_int num_wrong;
    char wrong[600];
} shared;

/* What computes, and what carries messages. */
typedef enum way { BY_CPU, GPU_BY_HOST, GPU_BY_NCCL } way;

typedef struct job {
    const char *const *words;
    const char *more[4];
    way way;
    int steps;
    bool flips;  /* one bit in each step, in one of the two passes */
    bool always; /* in both, and in every call of the instruction */
    shared *shared;
} job;

static shared *share(void)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    return s;
}

static void wrong(shared *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void wrong(shared *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (atomic_fetch_add(&s->num_wrong, 1) == 0)
        vsnprintf(s->wrong, sizeof s->wrong, format, args);
    va_end(args);
}

/* ---- flipping bits ---- */

typedef struct flipper {
    const tri_replay *replay;
    fake_gpu *gpu; /* NULL: none */
    int rank;
    bool always;
    const target *target; /* of this step; NULL: none */
    int num;              /* flipped in this step */
    const target *all;    /* of the run */
    int num_all;
} flipper;

static void flip_now(flipper *f, bool again, uint32_t call, uint32_t instr, const tri_tensor *out)
{
    const target *t = f->target;
    if (!t || t->rank != f->rank || t->instr != instr || !t->when[again] ||
        (!f->always && t->call != call))
        return;
    size_t each = tri_dtype_bytes(out->dtype);
    ((unsigned char *)out->data)[(size_t)(out->count / 2) * each] ^= 1;
    f->num++;
}

/* On the queue of a GPU: recorded once, and then looked at in each of the two ways. */
typedef struct queued_flip {
    flipper *f;
    uint32_t call, instr;
    tri_tensor out;
} queued_flip;

static void run_flip(void *data)
{
    const queued_flip *q = data;
    flip_now(q->f, q->f->replay->again, q->call, q->instr, &q->out);
}

static void flip(void *context, bool again, uint32_t call, uint32_t instr,
                 const tri_kernel_args *args)
{
    flipper *f = context;
    queued_flip q = {f, call, instr, args->out[0]};
    bool ever = false;
    for (int i = 0; i < f->num_all; i++)
        ever |= f->all[i].instr == instr && f->all[i].rank == f->rank;
    if (f->gpu && ever)
        fake_gpu_enqueue(fake_gpu_queue(f->gpu), run_flip, &q, sizeof q);
    else if (!f->gpu)
        flip_now(f, again, call, instr, &args->out[0]);
}

/* Numbers that others index memory by are not flipped: that they would be found would not be seen.
 */
static bool may_flip(const tri_program *program, const tri_instr *instr)
{
    if (instr->num_out == 0)
        return false;
    const tri_value *value = &program->values[instr->out[0].value];
    return (value->dtype == TRI_F32 || value->dtype == TRI_BF16 || value->dtype == TRI_F16) &&
           tri_shape_count(&value->shape) > 0 && instr->op != TRI_OP_ROUTE;
}

/* For each kind of instruction of the rank two targets, in calls that are spread over the step. */
static int list_targets(const tri_replay *r, int rank, target *list)
{
    const tri_program *program = &r->session->programs[TRI_PROGRAM_TRAIN];
    int num = 0, seen[TRI_NUM_OPS] = {0};
    tri_summed at = {.left_out = r->left_out};
    for (int n = 0; tri_executor_next_sum(program, r->num_calls, &at); n++) {
        const tri_instr *instr = &program->instrs[at.instr];
        if (!may_flip(program, instr) || seen[instr->op] >= 2 || num == MOST_TARGETS ||
            (seen[instr->op] == 1 && (n + rank) % 3 != 0))
            continue;
        seen[instr->op]++;
        bool in_replay = num % 2;
        list[num++] = (target){
            .rank = rank, .when = {!in_replay, in_replay}, .call = at.call, .instr = at.instr};
    }
    return num;
}

static void check_named(const job *j, const tri_replay *r, const target *t)
{
    const tri_program *program = &r->session->programs[TRI_PROGRAM_TRAIN];
    const tri_replay_finding *f = &r->found;
    shared *s = j->shared;
    char text[320];
    if (f->step == 0) {
        wrong(s, "step %d, rank %d, instruction %u was not found", (int)r->session->step, t->rank,
              t->instr);
        return;
    }
    tri_replay_text(f, text, sizeof text);
    bool exchanges = r->config.kind == TRI_REPLAY_EXCHANGE;
    bool named = f->rank == t->rank || (!f->sure && f->other == t->rank);
    if (!named || (f->rank == t->rank && f->instruction != t->instr) ||
        f->step != r->session->step || f->num_more > exchanges ||
        f->sure != (!exchanges || (j->always && r->num_others > 2)) || f->sums[0] == f->sums[1])
        wrong(s, "step %d: rank %d, instruction %u was named so: %s (sure %d)",
              (int)r->session->step, t->rank, t->instr, text, f->sure);
    if (r->ranks->rank == t->rank) {
        const tri_instr *instr = &program->instrs[t->instr];
        const char *name = tri_op_get(instr->op)->name;
        if (strcmp(f->op, name) != 0 ||
            strcmp(f->result, program->values[tri_instr_value(instr)].name) != 0)
            wrong(s, "%s -> %s is named for %s", f->op, f->result, name);
        int64_t microbatch = program->calls[t->call].microbatch;
        if (!j->always && f->microbatch != microbatch)
            wrong(s, "micro-batch %d is named for %d", (int)f->microbatch, (int)microbatch);
        char word[48];
        snprintf(word, sizeof word, " %s%s ", name,
                 instr->op == TRI_OP_MATMUL && instr->attr.matmul.epilogue ? "+" : "");
        if (!strstr(s->kinds, word) && strlen(s->kinds) + 50 < sizeof s->kinds) {
            strcat(s->kinds, word);
            s->num_kinds++;
        }
    }
}

/* ---- a training ---- */

/* The targets of all ranks, in an order that all ranks have. */
static tr_status gather_targets(const tri_replay *r, target *all, int *num, tr_error *err)
{
    target own[MOST_TARGETS];
    int64_t mine = list_targets(r, r->ranks->rank, own), nums[MOST_RANKS] = {mine};
    int size = r->ranks->size;
    memset(own + mine, 0, sizeof own[0] * (size_t)(MOST_TARGETS - mine));
    if (size > 1)
        TRI_TRY(tr_all_gather(tr_comm_world(r->ranks->comm), &mine, nums, 1, TR_I64, err));
    target *whole = calloc((size_t)size, sizeof own);
    memcpy(whole, own, sizeof own);
    if (size > 1)
        TRI_TRY(tr_all_gather(tr_comm_world(r->ranks->comm), own, whole, sizeof own, TR_U8, err));
    *num = 0;
    for (int i = 0; i < MOST_TARGETS; i++)
        for (int rank = 0; rank < size; rank++)
            if (i < nums[rank])
                all[(*num)++] = whole[rank * MOST_TARGETS + i];
    free(whole);
    return TR_OK;
}

static void count_left_out(const tri_replay *r, shared *s)
{
    const tri_program *program = &r->session->programs[TRI_PROGRAM_TRAIN];
    s->num_compared = (int64_t)r->num_sums;
    s->num_left_out =
        (int64_t)tri_executor_num_sums(program, r->num_calls, NULL) - (int64_t)r->num_sums;
}

static tr_status train(const job *j, tr_session *session, tri_replay *r, fake_gpu *gpu,
                       tr_error *err)
{
    tri_checksum losses, weights;
    target *targets = calloc(MOST_RANKS * MOST_TARGETS, sizeof *targets);
    flipper f = {.replay = r, .gpu = gpu, .rank = r->ranks->rank, .always = j->always};
    int num_targets = 0;
    if (j->flips) {
        TRI_TRY(gather_targets(r, targets, &num_targets, err));
        r->made = flip;
        r->context = &f;
        f.all = targets;
        f.num_all = num_targets;
    }
    int steps = j->flips ? num_targets : j->steps;
    tri_checksum_init(&losses);
    tri_checksum_init(&weights);
    for (int i = 0; i < steps; i++) {
        tr_step done;
        target t = targets[i % (num_targets + !num_targets)];
        if (j->always)
            t.when[0] = t.when[1] = true;
        f.target = j->flips ? &t : NULL;
        f.num = 0;
        TRI_TRY(tr_session_step(session, &done, err));
        tri_checksum_add(&losses, &done.loss, sizeof done.loss);
        tri_checksum_add(&losses, &done.grad_norm, sizeof done.grad_norm);
        if (j->flips && t.rank == f.rank && f.num == 0)
            wrong(j->shared, "instruction %u of rank %d was not flipped", t.instr, t.rank);
        if (j->flips)
            check_named(j, r, &t);
    }
    free(targets);
    TRI_TRY(tr_session_pull(session, err));
    for (size_t i = 0; i < tr_session_num_params(session); i++) {
        tr_param param = tr_session_param(session, i);
        tri_checksum_add(&weights, param.data, (size_t)param.count * sizeof(float));
    }
    if (r->ranks->rank > 0)
        return TR_OK;
    j->shared->losses = tri_checksum_end(&losses);
    j->shared->weights = tri_checksum_end(&weights);
    j->shared->replayed = r->num_replayed;
    j->shared->differs = r->num_differs;
    j->shared->parts = session->session.executors[TRI_PROGRAM_TRAIN].num_parts;
    j->shared->sum_bytes = session->session.store.sums.bytes;
    count_left_out(r, j->shared);
    return TR_OK;
}

/* The program is made for a GPU, and its scratch is part of it. */
static tr_status compile_for_gpu(tr_settings *settings, int rank, way way, tr_session **out,
                                 tr_error *err)
{
    static const tri_device fake = {.def = &fake_gpu_def};
    tri_session_config config;
    TRI_TRY(tri_settings_complete(settings, err));
    TRI_TRY(tri_session_config_from(settings, &config, err));
    config.compile.rank = rank;
    config.by_nccl = way == GPU_BY_NCCL;
    config.compile.memory = (tri_memory_needs){.scratch = tri_store_scratch, .context = &fake};
    tri_session_order_messages(&config, &fake_gpu_def);
    *out = calloc(1, sizeof **out);
    return tri_session_compile(&(*out)->session, &config, err);
}

/* Lets the session run on a fake GPU. */
static tr_status use_gpu(tri_session *session, tr_error *err)
{
    const tri_program *programs[TRI_NUM_PROGRAMS];
    size_t num = 0;
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (tri_session_has(session, p))
            programs[num++] = &session->programs[p];
    session->device.def = &fake_gpu_def;
    TRI_TRY(tri_replay_check(session, err));
    tri_store_plan(&session->store, &session->device, programs, num);
    uint64_t without = tri_store_total(&session->store);
    session->store.sums.bytes =
        tri_replay_device_bytes(session, &session->programs[TRI_PROGRAM_TRAIN]);
    bool replays = session->config.replay.every > 0;
    assert_int_equal(session->store.sums.bytes > 0, replays);
    assert_int_equal(tri_store_total(&session->store) > without, replays);
    return TR_OK;
}

static tr_status compile(const job *j, tr_settings *settings, int rank, tr_session **session,
                         tr_error *err)
{
    if (j->way == BY_CPU)
        return tri_api_compile(settings, rank, session, err);
    TRI_TRY(compile_for_gpu(settings, rank, j->way, session, err));
    return use_gpu(&(*session)->session, err);
}

static tr_status join(const job *j, tri_ranks *ranks, tr_comm *comm, tri_session *session,
                      tr_error *err)
{
    TRI_TRY(tri_ranks_use(ranks, comm, session, err));
    return j->way == GPU_BY_NCCL
               ? tri_ranks_use_nccl(ranks, &comm->boot, &fake_nccl_api, session, err)
               : TR_OK;
}

static tr_status rank_main(tr_comm *comm, void *context, tr_error *err)
{
    const job *j = context;
    int rank = comm ? tr_comm_rank(comm) : 0;
    tr_settings *settings = settings_of(TINY, j->words);
    tr_session *session = NULL;
    tri_ranks ranks = {.size = 1};
    tri_replay replay = {0};
    tr_status status = TR_OK;
    fake_gpu *gpu = j->way == BY_CPU ? NULL : fake_gpu_create();
    if (gpu && !j->flips)
        fake_gpu_slow(gpu, (uint64_t)rank + 1);
    for (int i = 0; i < 4 && j->more[i] && status == TR_OK; i++)
        status = tr_settings_set(settings, j->more[i], err);
    if (status == TR_OK)
        status = compile(j, settings, rank, &session, err);
    if (status == TR_OK && comm)
        status = join(j, &ranks, comm, &session->session, err);
    if (status == TR_OK)
        status = gpu ? tri_session_start(&session->session, err) : tri_api_start(session, err);
    if (status == TR_OK)
        status = tri_replay_open(&replay, &session->session, &ranks, err);
    if (status == TR_OK)
        status = train(j, session, &replay, gpu, err);
    if (gpu && fake_gpu_fault(gpu))
        wrong(j->shared, "%s", fake_gpu_fault(gpu));
    if (status != TR_OK && ranks.nccl) /* what is on the lanes would wait for ever */
        tri_nccl_abort(ranks.nccl);
    tri_replay_close(&replay);
    tr_session_destroy(session);
    tri_ranks_leave(&ranks);
    if (gpu)
        fake_gpu_destroy(gpu);
    tr_settings_destroy(settings);
    return status;
}

enum how { THREADS, PROCESSES };

static void run(job *j, int ranks, enum how how)
{
    tr_error err = {0};
    tr_comm_options options = {.deadline_s = 300};
    tr_status status = ranks == 1 ? rank_main(NULL, j, &err)
                       : how == PROCESSES
                           ? tr_comm_spawn(ranks, &options, rank_main, j, &err)
                           : tr_comm_run_threads(ranks, &options, rank_main, j, &err);
    if (status != TR_OK)
        fail_msg("%s: %s", j->words[0], err.message);
    if (j->shared->num_wrong > 0)
        fail_msg("%s: %d times, first: %s", j->words[0], j->shared->num_wrong, j->shared->wrong);
}

#define SMALL                                                                                      \
    "model.num_layers=2", "model.dim=32", "data.seq_len=16", "train.batch=12",                     \
        "model.dropout=0.1", "layout.bucket_mb=0.004", "run.overlap_min_kb=0", "train.steps=1000", \
        "model.num_heads=4", "train.eval_every=1000"
#define EXPERTS                                                                                    \
    "model.kind=llama", "model.num_experts=4", "model.expert_dim=24", "model.dropout=0",           \
        "model.num_kv_heads=2", "layout.ep=2"

typedef struct layout {
    int ranks, others; /* others: ranks with the same weights, over dp */
    const char *words[32];
} layout;

static const layout layouts[] = {
    {1, 1, {"layout.microbatches=1", SMALL, "run.threads=3"}},
    {1, 1, {"layout.microbatches=3", SMALL, "run.threads=2", "precision.kind=fp16"}},
    {2, 2, {"layout.dp=2", SMALL, "layout.microbatches=2", "run.threads=2"}},
    {4,
     2,
     {"layout.zero=3", SMALL, "layout.dp=2", "layout.tp=2", "layout.microbatches=2",
      "layout.sp=true", "precision.kind=bf16", "run.threads=1"}},
    {3,
     3,
     {"layout.zero=2", SMALL, "layout.dp=3", "layout.recompute=full", "layout.microbatches=2",
      "run.threads=1"}},
    {4,
     2,
     {"layout.pp=2", SMALL, "layout.dp=2", "layout.microbatches=3", "layout.zero=1",
      "layout.schedule=zb-h1", "run.threads=1"}},
    {4,
     2,
     {"layout.cp=2", SMALL, "layout.dp=2", "layout.cp_kind=gather", "layout.zero=3",
      "layout.keep_gathered=true", "layout.microbatches=2", "data.mask_documents=true",
      "run.threads=1"}},
    {2,
     1,
     {"layout.pp=2", SMALL, "layout.schedule=dualpipev", "layout.pairs=true",
      "layout.microbatches=4", "run.threads=1"}},
    {4, 2, {"layout.dp=4", SMALL, EXPERTS, "layout.zero=2", "run.threads=1"}},
};
enum { NUM_LAYOUTS = sizeof layouts / sizeof *layouts };

static bool in_full(void)
{
    return getenv("TRIREME_TEST_FULL") != NULL;
}

/* ---- nothing happens ---- */

static void check_undisturbed(const job *alike, const layout *l, const char *kind, int every,
                              enum how how, const shared *without)
{
    char word[40];
    shared *s = share();
    job j = *alike;
    snprintf(word, sizeof word, "run.replay_every=%d", every);
    j.more[0] = word;
    j.more[1] = kind;
    j.shared = s;
    run(&j, l->ranks, how);
    if (s->differs != 0 || s->replayed != j.steps / every)
        fail_msg("%s, %s: %d of %d steps differ", l->words[0], kind, (int)s->differs,
                 (int)s->replayed);
    if (every > 1 && s->parts != without->parts)
        fail_msg("%s, %s: %zu recordings of other steps, not %zu", l->words[0], kind, s->parts,
                 without->parts);
    if (s->losses != without->losses || s->weights != without->weights)
        fail_msg("%s, %s: replay has changed the training", l->words[0], kind);
    munmap(s, sizeof *s);
}

static void check_all_undisturbed(enum how how, int steps)
{
    for (int i = 0; i < NUM_LAYOUTS; i++) {
        const layout *l = &layouts[i];
        shared *without = share();
        job j = {.words = l->words, .steps = steps, .shared = without};
        run(&j, l->ranks, how);
        check_undisturbed(&j, l, "run.replay=same", 1, how, without);
        if (l->others > 1)
            check_undisturbed(&j, l, "run.replay=exchange", 1, how, without);
        munmap(without, sizeof *without);
    }
}

/* Weights, losses and norms are those of a run without, and no step is said to differ. */
static void test_undisturbed_processes(void **state)
{
    (void)state;
    check_all_undisturbed(PROCESSES, 3);
}

static void test_undisturbed(void **state)
{
    (void)state;
    check_all_undisturbed(THREADS, in_full() ? MOST_STEPS : 8);
}

/* ---- bits flip ---- */

static void check_flips_of(const layout *l, way way, const char *kind, bool always, enum how how,
                           char *kinds, size_t size)
{
    shared *s = share();
    job j = {.words = l->words,
             .way = way,
             .more = {"run.replay_every=1", kind, "train.max_skipped=1000"},
             .flips = true,
             .always = always,
             .shared = s};
    run(&j, l->ranks, how);
    assert_int_equal(s->differs, s->replayed);
    assert_true(s->num_kinds >= 10);
    if (getenv("TRIREME_REPLAY"))
        print_message("%s %s: %d steps, %d kinds, %d compared, %d left out:%s\n", l->words[0], kind,
                      (int)s->replayed, s->num_kinds, (int)s->num_compared, (int)s->num_left_out,
                      s->kinds);
    if (kinds)
        snprintf(kinds + strlen(kinds), size - strlen(kinds), "%s", s->kinds);
    munmap(s, sizeof *s);
}

static void check_flips(const layout *l, const char *kind, bool always, enum how how, char *kinds,
                        size_t size)
{
    check_flips_of(l, BY_CPU, kind, always, how, kinds, size);
}

/* In one of the two passes: named with rank, micro-batch and instruction. */
static void test_flips_that_come_and_go(void **state)
{
    (void)state;
    static char kinds[NUM_LAYOUTS * 2000];
    static const char *const wanted[] = {
        "matmul", "matmul+",    "add_layernorm",  "attention",  "attention_grad", "embed",
        "add",    "ce_loss",    "ce_grad",        "embed_grad", "layernorm_grad", "dropout",
        "recv",   "unshard",    "accumulate",     "shard_sum",  "all_reduce",     "grouped",
        "rope",   "route_grad", "all_to_all_rows"};
    for (int i = 0; i < NUM_LAYOUTS; i++)
        check_flips(&layouts[i], "run.replay=same", false, THREADS, kinds, sizeof kinds);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        char word[48];
        snprintf(word, sizeof word, " %s ", wanted[i]);
        if (!strstr(kinds, word))
            fail_msg("no %s among%s", wanted[i], kinds);
    }
}

static void test_flips_among_processes(void **state)
{
    (void)state;
    check_flips(&layouts[3], "run.replay=same", false, PROCESSES, NULL, 0);
    check_flips(&layouts[2], "run.replay=exchange", true, PROCESSES, NULL, 0);
}

/* On one rank always: only others can tell; with two of them nobody knows which of the two it is.
 */
static void test_flips_that_stay(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_LAYOUTS; i++)
        if (layouts[i].others > 1)
            check_flips(&layouts[i], "run.replay=exchange", true, THREADS, NULL, 0);
}

/* ---- on GPUs ---- */

/* The fake GPU has kernels for most; what is left runs on the host, between recordings. Sums by
 * NCCL are of f32 here. */
static const layout gpu_layouts[] = {
    {1, 1, {"layout.microbatches=1", SMALL, "run.threads=1"}},
    {1, 1, {"layout.microbatches=3", SMALL, "run.threads=1", "precision.kind=bf16"}},
    {1, 1, {"layout.microbatches=2", SMALL, "run.threads=1", "layout.offload=moments=host"}},
    {2, 2, {"layout.dp=2", SMALL, "layout.microbatches=2", "run.threads=1"}},
    {4,
     2,
     {"layout.zero=3", SMALL, "layout.dp=2", "layout.tp=2", "layout.microbatches=2",
      "layout.sp=true", "run.threads=1"}},
    {3,
     3,
     {"layout.zero=2", SMALL, "layout.dp=3", "layout.recompute=full", "layout.microbatches=2",
      "run.threads=1"}},
    {4,
     2,
     {"layout.pp=2", SMALL, "layout.dp=2", "layout.microbatches=3", "layout.zero=1",
      "layout.schedule=zb-h1", "run.threads=1"}},
    {2,
     1,
     {"layout.pp=2", SMALL, "layout.schedule=dualpipev", "layout.pairs=true",
      "layout.microbatches=4", "run.threads=1"}},
    {4, 2, {"layout.dp=4", SMALL, EXPERTS, "layout.zero=2", "run.threads=1"}},
};
enum { NUM_GPU_LAYOUTS = sizeof gpu_layouts / sizeof *gpu_layouts };

static bool goes_by_nccl(const layout *l)
{
    return l->ranks > 1;
}

/* Steps that are replayed and others, each recorded for itself, from the first step on or later. */
/* Fake GPUs are slow: some layouts, each one way; in the long test all of them, both ways. */
static bool taken(int i, way way)
{
    bool two = goes_by_nccl(&gpu_layouts[i]);
    return in_full() || i == 1 || (i == 3 && two == (way == GPU_BY_NCCL));
}

static void test_undisturbed_gpus(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_GPU_LAYOUTS; i++)
        for (way way = GPU_BY_HOST; way <= (goes_by_nccl(&gpu_layouts[i]) ? GPU_BY_NCCL : 1);
             way++) {
            const layout *l = &gpu_layouts[i];
            if (!taken(i, way))
                continue;
            shared *without = share();
            job j = {.words = l->words, .way = way, .steps = 6, .shared = without};
            run(&j, l->ranks, THREADS);
            for (int every = 1; every <= (in_full() ? 3 : 1); every++)
                check_undisturbed(&j, l, "run.replay=same", every, THREADS, without);
            if (l->others > 1)
                check_undisturbed(&j, l, "run.replay=exchange", 2, THREADS, without);
            munmap(without, sizeof *without);
        }
}

static void test_flips_on_gpus(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_GPU_LAYOUTS; i++)
        for (way way = GPU_BY_HOST; way <= (goes_by_nccl(&gpu_layouts[i]) ? GPU_BY_NCCL : 1);
             way++) {
            const layout *l = &gpu_layouts[i];
            if (!taken(i, way))
                continue;
            check_flips_of(l, way, "run.replay=same", false, THREADS, NULL, 0);
            if (l->others > 1 && in_full())
                check_flips_of(l, way, "run.replay=exchange", true, THREADS, NULL, 0);
        }
}

static void expect_refused_on_gpu(const char *const *words, const char *what)
{
    tr_error err = {0};
    tr_session *session = NULL;
    tr_settings *settings = settings_of(TINY, words);
    assert_int_equal(compile_for_gpu(settings, 0, GPU_BY_HOST, &session, &err), TR_OK);
    session->session.device.def = &fake_gpu_def;
    assert_int_equal(tri_replay_check(&session->session, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, what))
        fail_msg("\"%s\" does not say \"%s\"", err.message, what);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

static void test_refusals_on_gpus(void **state)
{
    (void)state;
    expect_refused_on_gpu(
        SET(SMALL, "run.replay_every=5", "layout.offload=activations=host"),
        "leaves its result outside of the GPU's memory, where it cannot be compared; take "
        "activations out of layout.offload");
    expect_refused_on_gpu(SET(SMALL, "run.replay_every=5", "run.deterministic=false"),
                          "run.deterministic=false lets a GPU add in any order");
}

/* ---- a run ---- */

/* A bit of the first product of step 4, as it is trained. */
static void flip_product(void *context, bool again, uint32_t call, uint32_t instr,
                         const tri_kernel_args *args)
{
    const tri_session *session = context;
    const tri_instr *instrs = session->programs[TRI_PROGRAM_TRAIN].instrs;
    if (call == 0 && !again && session->step == 3 && instrs[instr].op == TRI_OP_MATMUL &&
        instrs[instr].layer == 0)
        *(unsigned char *)args->out[0].data ^= 1;
}

typedef struct warned {
    int num;
    char text[400];
} warned;

static void hear(void *context, const tri_run_news *news)
{
    warned *w = context;
    if (news->moment != TRI_RUN_WARNING)
        return;
    w->num++;
    snprintf(w->text, sizeof w->text, "%s", news->text);
}

static uint64_t weights_of(const tri_session *session)
{
    tri_checksum sum;
    tri_checksum_init(&sum);
    for (size_t i = 0; i < session->params.count; i++)
        tri_checksum_add(&sum, session->weights[i],
                         (size_t)tri_shape_count(&session->params.items[i].shape) * sizeof(float));
    return tri_checksum_end(&sum);
}

/* Steps 2, 4 and 6 of 7 are replayed; what is wrong in the fourth is told. */
static tr_status run_wrong(const char *dir, const char *on, warned *w, tr_error *err)
{
    char text[300];
    tr_session *session;
    tr_settings *settings =
        settings_of(TINY, SET(SMALL, "train.steps=7", "run.replay_every=2", "train.eval_every=0"));
    snprintf(text, sizeof text, "run.dir=%s", dir);
    assert_int_equal(tr_settings_set(settings, text, err), TR_OK);
    assert_int_equal(tr_settings_set(settings, on, err), TR_OK);
    assert_int_equal(tri_api_compile(settings, 0, &session, err), TR_OK);
    tri_run_config config;
    tri_run_config_from(settings, &config);
    tri_run run;
    tri_stop stop = {0};
    tri_rank_status status;
    tri_rank_status_init(&status);
    tri_bootstrap alone = {.size = 1, .local_size = 1, .stop = &stop, .status = &status};
    tri_run_open(&run, &config, &session->session);
    assert_int_equal(tri_run_observe(&run, &(tri_observer){"test", hear, NULL, w}, err), TR_OK);
    assert_int_equal(tri_run_join(&run, &alone, err), TR_OK);
    assert_int_equal(tri_run_begin(&run, err), TR_OK);
    run.replay.made = flip_product;
    run.replay.context = &session->session;
    assert_int_equal(tri_run_advance(&run, 3, err), TR_OK);
    uint64_t before = weights_of(&session->session);
    tr_status done = tri_run_advance(&run, INT64_MAX, err);
    assert_int_equal(session->session.step, done == TR_OK ? 7 : 3);
    assert_int_equal(weights_of(&session->session) == before, done != TR_OK);
    if (done == TR_OK)
        done = tri_run_end(&run, err);
    tri_run_close(&run);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return done;
}

static void expect_in(const char *dir, const char *name, const char *wanted, int times)
{
    char path[300], line[3000];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int num = 0;
    while (fgets(line, sizeof line, file))
        num += strstr(line, wanted) != NULL;
    fclose(file);
    if (num != times)
        fail_msg("%s has %d lines with %s, not %d", path, num, wanted, times);
}

static const char event_begin[] = "\"event\":\"replay\",\"rank\":0,\"at_step\":4,\"sure\":true,"
                                  "\"microbatch\":0,\"instruction\":";
static const char event_end[] = "\"op\":\"matmul\",\"result\":\"h.0.attn.c_attn\",\"sum\":\"";

static void test_run_warns(void **state)
{
    tr_error err = {0};
    warned w = {0};
    const char *dir = temp_file(*state, "warns");
    assert_int_equal(run_wrong(dir, "run.on_replay=warn", &w, &err), TR_OK);
    assert_int_equal(w.num, 1);
    assert_non_null(strstr(w.text, "step 4: rank 0 made other bits of instruction "));
    assert_non_null(strstr(w.text, " (matmul -> h.0.attn.c_attn) of micro-batch 0 when it did the "
                                   "step again (checksums "));
    expect_in(dir, "events.jsonl", event_begin, 1);
    expect_in(dir, "events.jsonl", event_end, 1);
    expect_in(dir, "metrics.jsonl", "\"replayed\":", 6); /* from the first that was on */
    expect_in(dir, "metrics.jsonl", "\"replayed\":1,\"replay_differs\":0,", 2);
    expect_in(dir, "metrics.jsonl", "\"replayed\":3,\"replay_differs\":1,", 2);
}

static void test_run_stops(void **state)
{
    tr_error err = {0};
    warned w = {0};
    const char *dir = temp_file(*state, "stops");
    assert_int_equal(run_wrong(dir, "run.on_replay=stop", &w, &err), TR_ERROR_RUNTIME);
    assert_int_equal(w.num, 0);
    assert_non_null(strstr(err.message, "step 4: rank 0 made other bits of instruction "));
    assert_non_null(
        strstr(err.message, "run.on_replay is stop, so the weights stay those of step 3"));
    expect_in(dir, "events.jsonl", event_begin, 1);
    expect_in(dir, "metrics.jsonl", "\"step\":", 3);
}

/* ---- what cannot be replayed ---- */

static void test_refusals(void **state)
{
    (void)state;
    tr_error err = {0};
    tr_session *session = NULL;
    tr_settings *settings =
        settings_of(TINY, SET(SMALL, "run.replay_every=5", "layout.pp=2", "train.clip=0",
                              "layout.schedule=pipedream", "model.kind=llama",
                              "model.tied_head=false", "model.dropout=0", "layout.microbatches=4"));
    assert_int_equal(tri_api_compile(settings, 0, &session, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "run.replay_every: this layout.schedule updates weights"));
    assert_non_null(strstr(err.message, "set run.replay_every=0, or another layout.schedule"));
    tr_settings_destroy(settings);

    settings = settings_of(TINY, SET(SMALL, "run.replay_every=5"));
    session = compiled(settings);
    const tri_device_def *def = session->session.device.def;
    tri_device_queue queue = {0};
    tri_device_def gpu = *def;
    gpu.queue = &queue;
    session->session.device.def = &gpu;
    assert_int_equal(tri_replay_check(&session->session, &err), TR_ERROR_INPUT);
    assert_non_null(
        strstr(err.message, "run.replay_every is 5, but run.device=cpu cannot sum what its"));
    session->session.device.def = def;
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_undisturbed_processes), /* first: these fork, and others start threads
                                                       */
        cmocka_unit_test(test_flips_among_processes),
        cmocka_unit_test(test_undisturbed),
        cmocka_unit_test(test_flips_that_come_and_go),
        cmocka_unit_test(test_flips_that_stay),
        cmocka_unit_test(test_undisturbed_gpus),
        cmocka_unit_test(test_flips_on_gpus),
        cmocka_unit_test(test_refusals_on_gpus),
        cmocka_unit_test(test_run_warns),
        cmocka_unit_test(test_run_stops),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
