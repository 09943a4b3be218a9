#include "layout_cells.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/rng.h"
#include "schedule/schedule.h"
#include "train/ranks.h"
#include "trireme/trireme.h"

const char *const cell_models[NUM_MODELS] = {"gpt2", "llama",    "llama tied", "llama one key",
                                             "mlm",  "classify", "mlp"};
const char *const cell_precisions[NUM_PRECISIONS] = {"fp32", "bf16", "bf16 gradients", "fp16"};
const char *const cell_optims[NUM_OPTIMS] = {"adamw", "sgd", "muon", "sgd by 0.3"};
const char *const cell_schedules[NUM_SCHEDULES] = {
    "1f1b",  "gpipe",   "interleaved", "zb-h1",     "zb-h2", "zb-v",  "v-half",
    "v-min", "chimera", "dualpipe",    "dualpipev", "gems",  "1f1b-v"};
const char *const cell_cp_kinds[NUM_CP_KINDS] = {"ring", "gather", "ulysses", "ring of pairs",
                                                 "gather of pairs"};
const char *const cell_deals[NUM_DEALS] = {"plain", "zigzag", "balanced"};
const char *const cell_rows[NUM_ROWS] = {"", "23 tokens", "packed documents", "a window"};
const char *const cell_routers[NUM_ROUTERS] = {"no experts", "softmax", "renorm", "sigmoid",
                                               "chosen",     "some",    "biased", "capped",
                                               "microbatch", "joint"};

/* Odd sizes on purpose: no layout divides them evenly. */
#define LLAMA(kv_heads)                                                                            \
    "model.kind=llama", "model.num_layers=2", "model.dim=36", "model.num_heads=6",                 \
        "model.num_kv_heads=" #kv_heads, "model.ffn_dim=51", "model.vocab=299",                    \
        "model.qk_norm=true", "model.qkv_bias=true", "model.dropout=0"
#define BERT                                                                                       \
    "model.kind=bert", "model.num_layers=2", "model.dim=30", "model.num_heads=5",                  \
        "model.ffn_dim=67", "model.vocab=211"
static const char *const model_words[NUM_MODELS][16] = {
    {"model.kind=gpt2", "model.num_layers=3", "model.dim=40", "model.num_heads=5",
     "model.vocab=301", "model.ffn_dim=97"},
    {LLAMA(3)},
    {LLAMA(2), "model.tied_head=true"},
    {LLAMA(1)},
    {BERT, "model.task=mlm"},
    {BERT, "model.task=classify", "model.num_labels=5"},
    {"model.kind=mlp", "model.num_layers=3", "model.dim=30", "model.ffn_dim=41", "model.dropout=0",
     "train.batch=12"},
};
static const char *const precision_words[NUM_PRECISIONS][3] = {
    {"precision.kind=fp32"},
    {"precision.kind=bf16"},
    {"precision.kind=bf16", "precision.grad=compute"},
    /* A scale that never overflows: how it is found is not what layouts are compared in. */
    {"precision.kind=fp16", "precision.scale=256"},
};
static const char *const optim_words[NUM_OPTIMS][3] = {
    {"optim.kind=adamw", "optim.lr=3e-3"},
    {"optim.kind=sgd", "optim.lr=0.01"},
    {"optim.kind=muon", "optim.lr=3e-3"},
    {"optim.kind=sgd", "optim.lr=0.3"},
};
static const char *const row_words[NUM_ROWS][3] = {
    {"data.seq_len=24"},
    {"data.seq_len=23"},
    {"data.seq_len=29", "data.mask_documents=true"},
    {"data.seq_len=23", "model.window=6"},
};
static const char *const cp_words[NUM_CP_KINDS][3] = {
    {"layout.cp_kind=ring"},
    {"layout.cp_kind=gather"},
    {"layout.cp_kind=ulysses"},
    {"layout.cp_kind=ring", "layout.cp_heads=2"},
    {"layout.cp_kind=gather", "layout.cp_heads=2"},
};
/* Widths and weights that make a mistake visible: experts whose loads are far from equal, losses
 * that pull at the router as much as the main one. */
#define EXPERTS(num) "model.num_experts=" #num, "model.expert_dim=23", "model.balance_loss=0.2"
static const char *const router_words[NUM_ROUTERS][12] = {
    {NULL},
    {EXPERTS(8), "model.router_renorm=false", "model.router_z_loss=0.05", "model.router_scale=1.7"},
    {EXPERTS(4)},
    {EXPERTS(8), "model.router_score=sigmoid", "model.router_groups=4",
     "model.router_group_limit=2", "model.router_bias=0.02", "model.shared_dim=19"},
    {EXPERTS(8), "model.router_score=chosen", "model.shared_dim=19", "model.shared_gate=true"},
    {EXPERTS(8), "model.experts_per_token=3", "model.expert_layers=1"},
    {"model.num_experts=8", "model.expert_dim=23", "model.balance_loss=0",
     "model.router_bias=0.02"},
    {EXPERTS(8), "model.expert_capacity=0.8", "model.router_jitter=0.1", "model.shared_dim=19"},
    {EXPERTS(8), "model.balance_over=microbatch"},
    {EXPERTS(8), "model.balance_over=joint"},
};
static const char *const common_words[] = {"model.dropout=0.1",
                                           "train.batch=13",
                                           "train.eval_batches=2",
                                           "run.threads=1",
                                           "train.steps=20",
                                           "run.transport=thread",
                                           NULL};

static int add_words(char words[CELL_MAX_WORDS][CELL_WORD], int num, const char *const *more)
{
    for (; *more; more++)
        snprintf(words[num++], CELL_WORD, "%s", *more);
    return num;
}

static int context_of(const cell *c)
{
    return c->is[CELL_CP] > 1 ? c->is[CELL_CP] : 1;
}

static int pipeline_of(const cell *c)
{
    return c->is[CELL_PP] > 1 ? c->is[CELL_PP] : 1;
}

static int experts_of(const cell *c)
{
    return c->is[CELL_ROUTER] == RENORM ? 4 : 8;
}

static int ep_of(const cell *c)
{
    return c->is[CELL_EP] > 1 ? c->is[CELL_EP] : 1;
}

/* How experts lie, and what is done again. */
static int add_expert_words(char words[CELL_MAX_WORDS][CELL_WORD], int num, const cell *c)
{
    num = add_words(words, num, router_words[c->is[CELL_ROUTER]]);
    if (ep_of(c) > 1)
        snprintf(words[num++], CELL_WORD, "layout.ep=%d", c->is[CELL_EP]);
    if (c->is[CELL_ETP])
        snprintf(words[num++], CELL_WORD, "layout.etp=%d", c->is[CELL_ETP]);
    if (c->is[CELL_RECOMPUTE])
        snprintf(words[num++], CELL_WORD, "layout.recompute=full");
    if (c->is[CELL_SEED])
        snprintf(words[num++], CELL_WORD, "run.seed=%d", c->is[CELL_SEED]);
    return num;
}

int cell_words(const cell *c, char words[CELL_MAX_WORDS][CELL_WORD])
{
    static const struct {
        cell_factor factor;
        const char *name;
    } layout[] = {{CELL_DP, "dp"},
                  {CELL_TP, "tp"},
                  {CELL_SP, "sp"},
                  {CELL_ZERO, "zero"},
                  {CELL_GROUP, "shard_group"},
                  {CELL_MICRO, "microbatches"},
                  {CELL_SPLIT, "split_backward"},
                  {CELL_KEEP, "keep_gathered"}};
    int num = add_words(words, 0, common_words);
    num = add_words(words, num, model_words[c->is[CELL_MODEL]]);
    num = add_words(words, num, precision_words[c->is[CELL_PRECISION]]);
    num = add_words(words, num, optim_words[c->is[CELL_OPTIM]]);
    num = add_words(words, num, row_words[c->is[CELL_ROWS]]);
    num = add_expert_words(words, num, c);
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        int value = c->is[layout[i].factor];
        bool flag = layout[i].factor == CELL_SP || layout[i].factor == CELL_SPLIT ||
                    layout[i].factor == CELL_KEEP;
        if (flag)
            snprintf(words[num++], CELL_WORD, "layout.%s=%s", layout[i].name,
                     value ? "true" : "false");
        else
            snprintf(words[num++], CELL_WORD, "layout.%s=%d", layout[i].name, value);
    }
    if (c->is[CELL_LAYERS])
        snprintf(words[num++], CELL_WORD, "model.num_layers=%d", c->is[CELL_LAYERS]);
    if (c->is[CELL_TILE])
        snprintf(words[num++], CELL_WORD, "model.loss_tile=%d", c->is[CELL_TILE]);
    if (context_of(c) > 1) {
        snprintf(words[num++], CELL_WORD, "layout.cp=%d", c->is[CELL_CP]);
        num = add_words(words, num, cp_words[c->is[CELL_CP_KIND]]);
        snprintf(words[num++], CELL_WORD, "layout.cp_deal=%s", cell_deals[c->is[CELL_CP_DEAL]]);
    }
    if (pipeline_of(c) == 1)
        return num;
    snprintf(words[num++], CELL_WORD, "layout.pp=%d", c->is[CELL_PP]);
    snprintf(words[num++], CELL_WORD, "layout.schedule=%s", cell_schedules[c->is[CELL_SCHEDULE]]);
    snprintf(words[num++], CELL_WORD, "layout.chunks=%d", c->is[CELL_CHUNKS]);
    return num;
}

/* Experts, where they are, and what is done again or by another seed. */
static void name_experts(const cell *c, char *text, size_t size)
{
    char ep[24] = "", seed[24] = "";
    *text = 0;
    if (ep_of(c) > 1)
        snprintf(ep, sizeof ep, " ep %d", c->is[CELL_EP]);
    if (c->is[CELL_SEED])
        snprintf(seed, sizeof seed, ", seed %d", c->is[CELL_SEED]);
    if (c->is[CELL_ROUTER])
        snprintf(text, size, ", %s%s%s%s%s", cell_routers[c->is[CELL_ROUTER]], ep,
                 c->is[CELL_ETP] ? " etp 1" : "", c->is[CELL_RECOMPUTE] ? ", recomputed" : "",
                 seed);
}

void cell_name(const cell *c, char *text, size_t size)
{
    char experts[96];
    name_experts(c, experts, sizeof experts);
    char group[24] = "", pipeline[64] = "", layers[24] = "", tile[24] = "", context[64] = "";
    const char *rows = cell_rows[c->is[CELL_ROWS]];
    if (c->is[CELL_GROUP])
        snprintf(group, sizeof group, " in groups of %d", c->is[CELL_GROUP]);
    if (pipeline_of(c) > 1)
        snprintf(pipeline, sizeof pipeline, ", pp %d %s, chunks %d", c->is[CELL_PP],
                 cell_schedules[c->is[CELL_SCHEDULE]], c->is[CELL_CHUNKS]);
    if (c->is[CELL_LAYERS])
        snprintf(layers, sizeof layers, " of %d layers", c->is[CELL_LAYERS]);
    if (c->is[CELL_TILE])
        snprintf(tile, sizeof tile, ", tiles of %d", c->is[CELL_TILE]);
    if (context_of(c) > 1)
        snprintf(context, sizeof context, ", cp %d %s %s", c->is[CELL_CP],
                 cell_cp_kinds[c->is[CELL_CP_KIND]], cell_deals[c->is[CELL_CP_DEAL]]);
    snprintf(text, size, "%s%s, %s, %s, dp %d zero %d%s%s, tp %d%s%s, %d micro-batch%s%s%s%s%s%s%s",
             cell_models[c->is[CELL_MODEL]], layers, cell_precisions[c->is[CELL_PRECISION]],
             cell_optims[c->is[CELL_OPTIM]], c->is[CELL_DP], c->is[CELL_ZERO], group,
             c->is[CELL_KEEP] ? " kept" : "", c->is[CELL_TP], c->is[CELL_SP] ? " sp" : "", context,
             c->is[CELL_MICRO], c->is[CELL_MICRO] > 1 ? "es" : "",
             c->is[CELL_SPLIT] ? ", split backward" : "", pipeline, tile, *rows ? ", " : "", rows,
             experts);
}

int cell_world(const cell *c)
{
    return c->is[CELL_DP] * c->is[CELL_TP] * context_of(c) * pipeline_of(c);
}

/* What the schedule allows, and as many chunks as the model can be cut into. */
static bool pipeline_valid(const cell *c)
{
    const tri_order *order = tri_order_find(cell_schedules[c->is[CELL_SCHEDULE]]);
    uint32_t ranks = (uint32_t)pipeline_of(c), chunks = (uint32_t)c->is[CELL_CHUNKS];
    if (ranks == 1)
        return true;
    chunks = chunks ? chunks : order->default_chunks;
    bool both_ways = order->flags & TRI_ORDER_BIDIRECTIONAL;
    uint32_t pieces = both_ways ? ranks : ranks * chunks;
    return tri_order_check(order, ranks, (uint32_t)c->is[CELL_MICRO], chunks, NULL) == TR_OK &&
           (int)pieces <= c->is[CELL_LAYERS] + 2;
}

static const int all_heads[NUM_MODELS] = {5, 6, 6, 6, 5, 5, 6};
static const int key_heads[NUM_MODELS] = {5, 3, 2, 1, 5, 5, 6};

/* Whether the heads of a tensor-parallel rank divide over so many of cp: a key head or more for
 * each, or, where all tensor-parallel ranks have equally many, each on equally many. */
static bool heads_divide(const cell *c, int over)
{
    int tp = c->is[CELL_TP], keys = key_heads[c->is[CELL_MODEL]];
    int heads = all_heads[c->is[CELL_MODEL]] / tp;
    int own = keys >= tp ? keys / tp : 1;
    bool even = keys < tp || keys % tp == 0;
    return over <= own || (even && over <= heads && over % own == 0);
}

static bool context_valid(const cell *c)
{
    int cp = context_of(c), kind = c->is[CELL_CP_KIND], model = c->is[CELL_MODEL];
    bool llama = model == MODEL_LLAMA || model == MODEL_TIED || model == MODEL_ONE_KEY;
    if (c->is[CELL_ROWS] == ROWS_WINDOW ? !llama : c->is[CELL_ROWS] && model == MODEL_MLP)
        return false;
    if (cp == 1)
        return kind == RING && c->is[CELL_CP_DEAL] == PLAIN;
    if (model == MODEL_MLP || (kind == ULYSSES && c->is[CELL_CP_DEAL] != PLAIN))
        return false;
    if (kind == ULYSSES)
        return heads_divide(c, cp);
    /* Where nothing is left for the ring, pairs are ulysses. */
    return kind < RING_HEADS || (cp > 2 && cp % 2 == 0 && heads_divide(c, 2));
}

/* Shard groups are neighbours, and fewer than all that have the same weights. */
static bool group_valid(const cell *c)
{
    int group = c->is[CELL_GROUP], dp = c->is[CELL_DP], cp = context_of(c);
    if (group == 0)
        return true;
    return c->is[CELL_ZERO] && group < dp * cp &&
           (group <= cp ? cp % group == 0 : group % cp == 0 && dp % (group / cp) == 0);
}

/* Ranks of ep are neighbours among dp x cp, and whole shard groups or parts of one; each has
 * equally many experts. */
static bool ep_divides(const cell *c)
{
    int ep = ep_of(c), dp = c->is[CELL_DP], cp = context_of(c), group = c->is[CELL_GROUP];
    int shard = group ? group : dp * cp;
    return experts_of(c) % ep == 0 &&
           (ep <= cp ? cp % ep == 0 : ep % cp == 0 && dp % (ep / cp) == 0) &&
           (ep <= shard ? shard % ep == 0 : ep % shard == 0);
}

static bool experts_valid(const cell *c)
{
    int router = c->is[CELL_ROUTER], model = c->is[CELL_MODEL];
    bool llama = model == MODEL_LLAMA || model == MODEL_TIED || model == MODEL_ONE_KEY;
    if (router == NO_EXPERTS)
        return c->is[CELL_EP] <= 1 && !c->is[CELL_ETP];
    if (!llama || !ep_divides(c) || (c->is[CELL_ETP] && !c->is[CELL_SP]))
        return false;
    if (router == JOINT && pipeline_of(c) > 1)
        return false;
    return router < MICROBATCH || c->is[CELL_MICRO] == 1;
}

bool cell_valid(const cell *c)
{
    int keys = key_heads[c->is[CELL_MODEL]];
    int rows = c->is[CELL_MODEL] == MODEL_MLP ? 12 : 13, parts = c->is[CELL_DP] * c->is[CELL_MICRO];
    if (c->is[CELL_MODEL] == MODEL_MLP && rows % parts != 0)
        return false;
    if (!group_valid(c) || !context_valid(c) || !experts_valid(c))
        return false;
    if (c->is[CELL_KEEP] && c->is[CELL_ZERO] != 3)
        return false;
    if (c->is[CELL_TILE] && (c->is[CELL_MODEL] == MODEL_CLASSIFY || c->is[CELL_MODEL] == MODEL_MLP))
        return false;
    return cell_world(c) <= CELL_MAX_RANKS && parts <= rows && pipeline_valid(c) &&
           c->is[CELL_TP] <= all_heads[c->is[CELL_MODEL]] &&
           (c->is[CELL_TP] <= keys || c->is[CELL_TP] % keys == 0) &&
           (!c->is[CELL_SP] || c->is[CELL_TP] > 1) &&
           (!c->is[CELL_ZERO] || c->is[CELL_DP] * context_of(c) > 1);
}

cell cell_alone(const cell *c)
{
    cell alone = *c;
    alone.is[CELL_DP] = alone.is[CELL_TP] = alone.is[CELL_MICRO] = 1;
    alone.is[CELL_PP] = alone.is[CELL_SCHEDULE] = alone.is[CELL_CHUNKS] = 0;
    alone.is[CELL_SP] = alone.is[CELL_GROUP] = alone.is[CELL_ZERO] = alone.is[CELL_SPLIT] = 0;
    alone.is[CELL_KEEP] = alone.is[CELL_TILE] = 0;
    alone.is[CELL_CP] = alone.is[CELL_CP_KIND] = alone.is[CELL_CP_DEAL] = 0;
    alone.is[CELL_EP] = alone.is[CELL_ETP] = alone.is[CELL_RECOMPUTE] = 0;
    return alone;
}

/* --- Running ---------------------------------------------------------------------------------- */

typedef struct job {
    const cell *cell;
    const char *more;
    cell_run *run;
} job;

static tr_status make_settings(const cell *c, const char *more, tr_settings **settings,
                               tr_error *err)
{
    char words[CELL_MAX_WORDS][CELL_WORD];
    int num = cell_words(c, words);
    TRI_TRY(tr_settings_create(settings, err));
    for (int i = 0; i < num; i++)
        TRI_TRY(tr_settings_set(*settings, words[i], err));
    /* These models are tiny: every message is to travel beside the computation all the same. */
    TRI_TRY(tr_settings_set(*settings, "layout.bucket_mb=0.004", err));
    TRI_TRY(tr_settings_set(*settings, "run.overlap_min_kb=0", err));
    char word[160]; /* a directory may be among them */
    for (int read = 0; more && sscanf(more, "%159s%n", word, &read) == 1; more += read)
        TRI_TRY(tr_settings_set(*settings, word, err));
    return TR_OK;
}

/* A row of documents of 1 to 9 tokens, a fifth of them padding: a pure function of its sample.
 * Positions begin anew in each, and its last token has no target. */
static void packed_row(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    const tri_compile_config *config = &((const tr_session *)context)->session.config.compile;
    const bool masked = config->model.task == TRI_TASK_MLM;
    const uint32_t stream = split == TRI_SPLIT_EVAL;
    uint32_t vocab = (uint32_t)config->model.vocab;
    int64_t begin = 0, end = 0;
    int32_t doc = -1;
    bool padding = false;
    for (int64_t t = 0; t < config->seq_len; t++) {
        uint32_t token = tri_random_word(7, sample, (uint32_t)t, stream) % vocab;
        uint32_t next = tri_random_word(7, sample, (uint32_t)t + 1, stream) % vocab;
        if (t == end) {
            uint32_t draw = tri_random_word(8, sample, (uint32_t)t, stream);
            int64_t length = draw % 3 == 0 ? 1 : 2 + draw / 3 % 8;
            begin = t;
            end = t + length < config->seq_len ? t + length : config->seq_len;
            padding = t > 0 && draw >> 16 & 1 && draw >> 17 & 1;
            doc++;
        }
        bool counts = !padding && (masked ? token % 3 == 0 : t + 1 < end);
        if (row->tokens)
            row->tokens[t] = (int32_t)token;
        if (row->positions)
            row->positions[t] = (int32_t)(t - begin);
        if (row->docs)
            row->docs[t] = padding ? -1 : doc;
        if (row->targets && row->num_targets > 1)
            row->targets[t] = counts ? (int32_t)next : -1;
    }
    if (row->targets && row->num_targets == 1)
        row->targets[0] = (int32_t)(sample % (uint64_t)config->model.num_labels);
}

/* All parameters as the host sees them; collective. */
static tr_status collect(tr_session *session, cell_run *run, float **to, bool keep, tr_error *err)
{
    TRI_TRY(tr_session_pull(session, err));
    if (!keep)
        return TR_OK;
    size_t total = 0;
    run->num_params = tr_session_num_params(session);
    if (!run->sizes) {
        run->sizes = calloc(run->num_params, sizeof *run->sizes);
        run->counted = calloc(run->num_params, sizeof *run->counted);
    }
    if (!run->sizes || !run->counted)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory");
    for (size_t i = 0; i < run->num_params; i++) {
        tr_param param = tr_session_param(session, i);
        total += run->sizes[i] = (size_t)param.count;
        run->counted[i] = strstr(param.name, "e_score_correction_bias");
    }
    float *at = *to = malloc(total * sizeof **to);
    if (!at)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory");
    for (size_t i = 0; i < run->num_params; at += run->sizes[i++])
        memcpy(at, tr_session_param(session, i).data, run->sizes[i] * sizeof *at);
    return TR_OK;
}

static double stat_named(const tr_session *session, const char *name)
{
    for (size_t i = 0; i < tr_session_num_stats(session); i++)
        if (strcmp(tr_session_stat(session, i).name, name) == 0)
            return tr_session_stat(session, i).value;
    return 0;
}

static tr_status train(tr_session *session, cell_run *run, int rank, tr_error *err)
{
    cell_numbers *numbers = &run->ranks[rank];
    TRI_TRY(collect(session, run, &run->before, rank == 0, err));
    for (int i = 0; i < run->steps; i++) {
        tr_step done;
        TRI_TRY(tr_session_step(session, &done, err));
        numbers->loss[i] = done.loss;
        numbers->norm[i] = done.grad_norm;
        numbers->balance[i] = stat_named(session, "balance_loss");
    }
    tr_eval eval;
    TRI_TRY(tr_session_eval(session, &eval, err));
    numbers->eval_loss = eval.loss;
    numbers->eval_accuracy = eval.accuracy;
    return collect(session, run, &run->weights, rank == 0, err);
}

static tr_status rank_main(tr_comm *comm, void *context, tr_error *err)
{
    const job *j = context;
    int rank = comm ? tr_comm_rank(comm) : 0;
    tr_settings *settings = NULL;
    tr_session *session = NULL;
    tri_ranks ranks = {0};
    tr_status status = make_settings(j->cell, j->more, &settings, err);
    if (status == TR_OK)
        status = tri_api_compile(settings, rank, &session, err);
    if (status == TR_OK && j->cell->is[CELL_ROWS] == ROWS_PACKED) {
        session->session.row = packed_row;
        session->session.row_context = session;
    }
    if (status == TR_OK && comm)
        status = tri_ranks_use(&ranks, comm, &session->session, err);
    if (status == TR_OK)
        status = tri_api_start(session, err);
    if (status == TR_OK)
        status = train(session, j->run, rank, err);
    tr_session_destroy(session);
    tri_ranks_leave(&ranks);
    tr_settings_destroy(settings);
    return status;
}

tr_status cell_run_do(cell_run *run, const cell *c, int steps, tr_error *err)
{
    return cell_run_with(run, c, NULL, steps, err);
}

tr_status cell_run_with(cell_run *run, const cell *c, const char *more, int steps, tr_error *err)
{
    *run = (cell_run){.steps = steps};
    job j = {c, more, run};
    if (cell_world(c) == 1)
        return rank_main(NULL, &j, err);
    return tr_comm_run_threads(cell_world(c), &(tr_comm_options){.deadline_s = 120}, rank_main, &j,
                               err);
}

void cell_run_fini(cell_run *run)
{
    free(run->sizes);
    free(run->counted);
    free(run->before);
    free(run->weights);
    *run = (cell_run){0};
}

/* --- Comparing -------------------------------------------------------------------------------- */

/* A relative difference; infinite for what is not a number on one side only. */
static double apart(double a, double b)
{
    if (isnan(a) && isnan(b))
        return 0;
    double d = fabs(a - b) / (fabs(a) > 0 ? fabs(a) : 1);
    return isnan(d) ? (double)INFINITY : d;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void compare_weights(const cell_run *one, const cell_run *many, cell_distance *d)
{
    double all_way = 0, all_off = 0;
    d->same_start = d->same_biases = true;
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0;
        for (size_t i = 0; i < one->num_params; i++) {
            double way = 0, off = 0;
            for (size_t e = 0; e < one->sizes[i]; e++, at++) {
                double moved = (double)one->weights[at] - (double)one->before[at];
                double differs = (double)many->weights[at] - (double)one->weights[at];
                d->same_start &= one->before[at] == many->before[at];
                d->same_biases &= !one->counted[i] || differs == 0;
                way += moved * moved;
                off += differs * differs;
            }
            if (pass == 0) {
                all_way += way;
                all_off += off;
                continue;
            }
            /* A gradient that is zero in theory moves its tensor by noise alone. */
            double tensor = sqrt(off) / (sqrt(way) + 1e-3 * sqrt(all_way));
            if (!(tensor <= d->tensor)) {
                d->tensor = tensor;
                d->worst_tensor = i;
            }
        }
    }
    d->weights = sqrt(all_off / all_way);
}

cell_distance cell_compare(const cell_run *one, const cell_run *many, int num_ranks)
{
    cell_distance d = {.ranks_agree = true};
    const cell_numbers *a = &one->ranks[0], *b = &many->ranks[0];
    for (int r = 1; r < num_ranks; r++)
        d.ranks_agree &= memcmp(&many->ranks[r], b, sizeof *b) == 0;
    for (int i = 0; i < one->steps; i++) {
        d.loss = larger(d.loss, apart(a->loss[i], b->loss[i]));
        d.norm = larger(d.norm, apart(a->norm[i], b->norm[i]));
        d.balance = larger(d.balance, apart(a->balance[i], b->balance[i]));
    }
    d.eval = apart(a->eval_loss, b->eval_loss);
    d.accuracy = apart(a->eval_accuracy, b->eval_accuracy);
    compare_weights(one, many, &d);
    return d;
}

bool cell_same_bits(const cell_run *a, const cell_run *b)
{
    size_t total = 0;
    for (size_t i = 0; i < a->num_params; i++)
        total += a->sizes[i];
    return memcmp(a->ranks, b->ranks, sizeof a->ranks) == 0 && a->num_params == b->num_params &&
           memcmp(a->weights, b->weights, total * sizeof *a->weights) == 0;
}
