#include "train/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/half.h"
#include "ckpt/weights.h"
#include "train/batch.h"
#include "train/health/judge.h"
#include "train/health/replay.h"
#include "train/init.h"
#include "train/plan/budget.h"
#include "train/step_stats.h"
#include "train/weights_host.h"

static const tri_mode mode_of[TRI_NUM_PROGRAMS] = {
    [TRI_PROGRAM_TRAIN] = TRI_MODE_TRAIN,     [TRI_PROGRAM_EVAL] = TRI_MODE_EVAL,
    [TRI_PROGRAM_PREDICT] = TRI_MODE_PREDICT, [TRI_PROGRAM_PREFILL] = TRI_MODE_PREFILL,
    [TRI_PROGRAM_DECODE] = TRI_MODE_DECODE,   [TRI_PROGRAM_CAREFUL] = TRI_MODE_TRAIN,
};

static const char *const host_names[TRI_NUM_HOST_VALUES] = {
    [TRI_HOST_TOKENS] = "tokens",
    [TRI_HOST_TARGETS] = "targets",
    [TRI_HOST_POSITIONS] = "positions",
    [TRI_HOST_ROWS] = "rows",
    [TRI_HOST_DOCS] = "docs",
    [TRI_HOST_TYPES] = "types",
    [TRI_HOST_STEP] = "step",
    [TRI_HOST_SCHED] = "sched",
    [TRI_HOST_FIRST] = "first",
    [TRI_HOST_INDEX] = "index",
    [TRI_HOST_X] = "x",
    [TRI_HOST_TARGET] = "target",
    [TRI_HOST_RESULT] = "result",
    [TRI_HOST_LOGITS] = "logits",
    [TRI_HOST_APPLY] = "apply",
    [TRI_HOST_PLACES] = "places",
    [TRI_HOST_SPAN] = "span",
    [TRI_HOST_KEYS_SENT] = "keys_sent",
    [TRI_HOST_KEYS_GOT] = "keys_got",
    [TRI_HOST_KEYS_OUT] = "keys_out",
    [TRI_HOST_KEYS_IN] = "keys_in",
    [TRI_HOST_KEYS_BACK] = "keys_back",
    [TRI_HOST_KEYS_SUM] = "keys_sum",
};

tri_mode tri_session_mode(tri_session_program program)
{
    return mode_of[program];
}

bool tri_session_has(const tri_session *session, tri_session_program program)
{
    return session->config.programs >> program & 1;
}

tri_batch_shape tri_session_batch_shape(const tri_session *session, tri_session_program program)
{
    const tri_compile_config *config = &session->config.compile;
    const tri_generate_shape *generate = &session->config.generate;
    tri_batch_shape shape = {.rows = tri_microbatch_rows(config), .seq_len = config->seq_len};
    switch (program) {
    case TRI_PROGRAM_PREDICT:
        shape.rows = 1;
        break;
    case TRI_PROGRAM_PREFILL:
    case TRI_PROGRAM_DECODE:
        shape.rows = program == TRI_PROGRAM_PREFILL ? generate->prefill_rows : generate->rows;
        shape.seq_len = program == TRI_PROGRAM_PREFILL ? generate->block : 1;
        shape.cache = (tri_cache_shape){generate->rows, generate->len, generate->block};
        break;
    default:
        shape.mask_documents = config->mask_documents;
        shape.placed = tri_mesh_size(&config->mesh, TRI_AXIS_CP) > 1;
        shape.by_place = tri_mesh_size(&config->mesh, TRI_AXIS_CP_RING) > 1;
    }
    return shape;
}

tri_compile_config tri_session_compile_config(const tri_session *session,
                                              tri_session_program program)
{
    tri_compile_config config = session->config.compile;
    if (program == TRI_PROGRAM_CAREFUL) { /* room for all rows, one layer's at a time */
        config.ep_room = 0;
        config.recompute = (tri_recompute_config){.kind = TRI_RECOMPUTE_FULL};
    }
    return config;
}

/* Both programs of a step keep what outlives it at the same addresses. */
static tr_status check_careful(const tri_session *session, tr_error *err)
{
    const tri_program *a = &session->programs[TRI_PROGRAM_TRAIN];
    const tri_program *b = &session->programs[TRI_PROGRAM_CAREFUL];
    if (!tri_session_has(session, TRI_PROGRAM_CAREFUL))
        return TR_OK;
    bool same = a->num_states == b->num_states;
    for (size_t s = 0; s < a->num_states && same; s++) {
        const tri_operand *x = &a->home[a->states[s].latest], *y = &b->home[b->states[s].latest];
        bool stays = a->states[s].kind != TRI_STATE_GRAD && a->states[s].kind != TRI_STATE_STAT;
        same = strcmp(a->states[s].name, b->states[s].name) == 0 &&
               (!stays || (x->space == y->space && x->offset == y->offset));
    }
    return same ? TR_OK
                : tri_fail(err, TR_ERROR_INTERNAL,
                           "the program that repeats a step has its states elsewhere");
}

static tr_status compile_programs(tri_session *session, tr_error *err)
{
    const tri_compile_config *config = &session->config.compile;
    tri_batch_shape batch = tri_session_batch_shape(session, TRI_PROGRAM_TRAIN);
    TRI_TRY(tri_model_params(&config->model, &batch, &session->params, err));
    memset(session->host, 0xff, sizeof session->host); /* TRI_NONE */
    TRI_TRY(tri_session_fit(session, err));
    bool generates = tri_model_generates(&config->model);
    if (session->config.programs & TRI_PROGRAMS_GENERATE && !generates)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.kind %s cannot continue a text: it has no prefill and decode "
                        "programs",
                        config->model.kind);
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        if (!tri_session_has(session, p))
            continue;
        tri_batch_shape shape = tri_session_batch_shape(session, p);
        const tri_compile_config own = tri_session_compile_config(session, p);
        TRI_TRY(tri_compile(&own, &session->params, mode_of[p], &shape, &session->programs[p], NULL,
                            err));
        for (int v = 0; v < TRI_NUM_HOST_VALUES && !config->unproven; v++)
            session->host[p][v] = tri_program_find(&session->programs[p], host_names[v]);
    }
    TRI_TRY(check_careful(session, err));
    bool repeats = tri_session_has(session, TRI_PROGRAM_CAREFUL);
    if (!tri_session_has(session, TRI_PROGRAM_TRAIN))
        return TR_OK;
    return tri_expert_loads_find(&session->loads, &session->programs[TRI_PROGRAM_TRAIN],
                                 repeats ? &session->programs[TRI_PROGRAM_CAREFUL] : NULL, err);
}

void tri_session_order_messages(tri_session_config *config, const tri_device_def *device)
{
    tri_compile_config *compile = &config->compile;
    if (!device->queue)
        return;
    compile->lanes = true;
    compile->spaces.beside |= compile->overlap;
    compile->overlap = compile->overlap && config->by_nccl && device->queue->lanes &&
                       tri_mesh_ranks(&compile->mesh) > 1;
    if (!compile->overlap)
        compile->bucket_bytes = INFINITY;
}

tr_status tri_session_compile(tri_session *session, const tri_session_config *config, tr_error *err)
{
    *session = (tri_session){.config = *config, .compiled = true};
    if (!config->programs)
        session->config.programs = TRI_PROGRAMS_TRAIN;
    if (tri_session_has(session, TRI_PROGRAM_TRAIN) && config->compile.ep_room > 0 &&
        tri_mesh_size(&config->compile.mesh, TRI_AXIS_EP) > 1)
        session->config.programs |= 1 << TRI_PROGRAM_CAREFUL;
    tri_param_table_init(&session->params);
    tr_status status = tri_device_open(&config->device, &session->device, err);
    if (status == TR_OK) {
        tri_compile_config *compile = &session->config.compile;
        compile->fusions = *session->device.def->fusions;
        if (!compile->memory.scratch) /* a test may bring its own */
            compile->memory = (tri_memory_needs){.grads_apart = !session->device.def->apart &&
                                                                tri_mesh_ranks(&compile->mesh) > 1,
                                                 .scratch = tri_store_scratch,
                                                 .context = &session->device};
        tri_session_order_messages(&session->config, session->device.def);
        status = compile_programs(session, err);
    }
    if (status == TR_OK)
        status = tri_replay_check(session, err);
    if (status == TR_OK) {
        const tri_program *programs[TRI_NUM_PROGRAMS];
        size_t num = 0;
        for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
            if (tri_session_has(session, p))
                programs[num++] = &session->programs[p];
        tri_store_plan(&session->store, &session->device, programs, num);
        session->store.sums.bytes =
            tri_replay_device_bytes(session, &session->programs[TRI_PROGRAM_TRAIN]);
        status = tri_session_check_budget(session, err);
    }
    if (status != TR_OK)
        tri_session_fini(session);
    return status;
}

void tri_session_fini(tri_session *session)
{
    if (!session->compiled)
        return;
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        tri_executor_fini(&session->executors[p]);
        tri_program_fini(&session->programs[p]);
    }
    tri_expert_loads_fini(&session->loads);
    tri_store_free(&session->store);
    tri_device_close(&session->device);
    if (session->data)
        tri_data_close(session->data);
    tri_context_destroy(session->context);
    free(session->weights);
    tri_weights_free(session);
    free(session->fresh);
    tri_param_table_fini(&session->params);
    *session = (tri_session){0};
}

uint64_t tri_session_planned_bytes(const tri_session *session)
{
    return tri_store_total(&session->store);
}

/* Rows must have the targets that the model learns. */
static tr_status check_labels(const tri_session *session, tr_error *err)
{
    const tri_model_config *model = &session->config.compile.model;
    int64_t num = tri_data_num_labels(session->data);
    if ((num > 0) != (model->task == TRI_TASK_CLASSIFY))
        return tri_fail(err, TR_ERROR_INPUT,
                        num > 0 ? "the data has a label for each row, which only a model.task of "
                                  "classify learns"
                                : "model.task is classify, but this data has no labels; set "
                                  "data.task=classify and give JSONL with texts and labels");
    if (num > model->num_labels && model->task == TRI_TASK_CLASSIFY)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.num_labels is %lld, but the data has %lld labels; set it to %lld, "
                        "or leave it out",
                        (long long)model->num_labels, (long long)num, (long long)num);
    return TR_OK;
}

static tr_status open_rows(tri_session *session, tr_error *err)
{
    if (session->row || !(tri_session_has(session, TRI_PROGRAM_TRAIN) ||
                          tri_session_has(session, TRI_PROGRAM_EVAL)))
        return TR_OK;
    session->row_context = session;
    session->row = tri_vector_row;
    if (!tri_session_has_sequences(session))
        return TR_OK;
    session->row = tri_data_session_row;
    TRI_TRY(tri_data_open(&session->config.data, &session->data, err));
    int64_t needed = tri_data_vocab_needed(session->data);
    if (needed > session->config.compile.model.vocab)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.vocab is %lld, but the data has tokens up to %lld; set it to %lld "
                        "or more, or leave it out",
                        (long long)session->config.compile.model.vocab, (long long)needed - 1,
                        (long long)needed);
    return check_labels(session, err);
}

/* Values to begin with: those of a file, and initial ones where there is none. Of a file a rank
 * reads the pieces that it has; initial ones are made tensor by tensor, so it never needs room for
 * all. */
typedef struct filler {
    tri_weights_source *source; /* NULL: all are initial ones */
    tri_pool *pool;             /* NULL: the caller's thread does it alone */
    size_t made;                /* the parameter that was made last, from 1 */
} filler;

static tr_status fill_param(void *context, tri_session *session, size_t param,
                            const tri_region *region, float *to, tr_error *err)
{
    filler *f = context;
    float *whole = session->weights[param];
    if (f->source && !session->fresh[param]) {
        tr_status status = tri_weights_read(f->source, param, region, to, err);
        return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "model.from");
    }
    if (f->made != param + 1)
        tri_init_fill(&session->params.items[param], session->config.seed, f->pool, whole);
    f->made = param + 1;
    if (to != whole)
        tri_weights_take(whole, region, to);
    return TR_OK;
}

tr_status tri_session_fill(tri_session *session, tr_error *err)
{
    if (session->device.def == &tri_device_null)
        return TR_OK;
    const char *from = session->config.weights_from;
    filler f = {0};
    if (from && from[0]) {
        tr_status status = tri_weights_open(from, &session->params, session->fresh, &f.source, err);
        if (status != TR_OK)
            return tri_fail_prefix(err, status, "model.from");
    }
    /* By all threads that the rank may use, also where the device is a GPU: for a large model it
     * would be minutes otherwise. */
    int wanted = session->config.device.num_threads;
    if (tri_pool_create(wanted > 0 ? wanted : tri_device_num_cores(), &f.pool, NULL) != TR_OK)
        f.pool = NULL;
    tr_status status = tri_weights_push(session, fill_param, &f, err);
    if (f.pool)
        tri_pool_destroy(f.pool);
    tri_weights_close(f.source);
    return status;
}

/* The loss scale that the run begins with. */
static tr_status fill_scaler(tri_session *session, tr_error *err)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    float scaler[TRI_NUM_SCALER] = {[TRI_SCALER_SCALE] = session->config.compile.precision.scale};
    bool computes = session->device.def != &tri_device_null;
    for (size_t s = 0; computes && s < program->num_states; s++)
        if (program->states[s].kind == TRI_STATE_OPTIM && program->states[s].param == TRI_NONE)
            TRI_TRY(tri_executor_write(&session->executors[TRI_PROGRAM_TRAIN],
                                       program->states[s].latest, scaler, err));
    return TR_OK;
}

/* How many steps there are, which the learning rate wants to know too. Epochs are of the session's
 * own data: whoever brings rows, or wants none, counts steps. */
static tr_status count_steps(tri_session *session, tr_error *err)
{
    tri_session_config *config = &session->config;
    bool has_rows = session->data || session->row == tri_vector_row;
    int64_t rows = session->data ? tri_data_epoch_rows(session->data) : TRI_DATA_ENDLESS;
    TRI_TRY(tri_epochs_init(&session->epochs, has_rows ? config->epochs : 0, rows,
                            config->compile.batch, err));
    session->num_steps = tri_epochs_num_steps(&session->epochs, config->steps);
    if (session->epochs.num > 0)
        config->lr.steps = session->num_steps;
    return TR_OK;
}

tr_status tri_session_open_data(tri_session *session, tr_error *err)
{
    TRI_TRY(open_rows(session, err));
    return count_steps(session, err);
}

static double brake_of(const tri_session_config *config)
{
    for (int i = 0; i < config->num_brakes; i++)
        if (config->brakes[i].rank == config->compile.rank)
            return config->brakes[i].factor;
    return 0;
}

tr_status tri_session_start(tri_session *session, tr_error *err)
{
    TRI_TRY(tri_session_check_memory(session, err));
    TRI_TRY(tri_session_open_data(session, err));
    TRI_TRY(
        tri_context_create(&session->config.compile, session->config.deal, &session->context, err));
    session->store.peers = session->peers;
    session->store.device_index = session->device_index;
    session->store.scratch_dir =
        session->config.scratch_dir[0] ? session->config.scratch_dir : NULL;
    TRI_TRY(tri_store_alloc(&session->store, err));
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (tri_session_has(session, p))
            TRI_TRY(tri_executor_init(&session->executors[p], &session->programs[p],
                                      &session->store, session->config.seed, err));
    if (session->device.def->keep)
        TRI_TRY(session->device.def->keep(&session->device, err));
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        session->executors[p].exchange = &session->exchange;
        if (session->config.keep_pace && p == TRI_PROGRAM_TRAIN)
            session->executors[p].pace = session->config.pace;
        if (p == TRI_PROGRAM_TRAIN)
            session->executors[p].brake = brake_of(&session->config);
        session->executors[p].status = session->status;
        if (p == TRI_PROGRAM_TRAIN) {
            session->executors[p].meanwhile = tri_fill_ahead;
            session->executors[p].meanwhile_context = session;
        }
    }
    TRI_TRY(tri_weights_place(session, err));
    if (!session->config.weights_follow)
        TRI_TRY(tri_session_fill(session, err));
    TRI_TRY(fill_scaler(session, err));
    session->started = true;
    return TR_OK;
}

tri_own_time tri_session_own_time(const tri_session *session)
{
    const tri_exchange *exchange = &session->exchange;
    tri_own_time own = session->executors[TRI_PROGRAM_TRAIN].own;
    tri_comm_time comm = {0};
    if (exchange->spent)
        comm = exchange->spent(exchange->context);
    own.ns[TRI_OWN_MESSAGES] = (int64_t)(comm.calls_ns - comm.waited_ns - comm.away_ns);
    own.ns[TRI_OWN_DATA] = session->data_ns;
    own.waited_ns += (int64_t)comm.waited_ns;
    return own;
}

bool tri_session_can_eval(const tri_session *session)
{
    return session->row != tri_data_session_row ||
           tri_data_num_windows(session->data, TRI_SPLIT_EVAL) > 0;
}

tr_status tri_session_eval(tri_session *session, tri_eval_result *result, tr_error *err)
{
    *result = (tri_eval_result){0};
    if (!tri_session_can_eval(session))
        return tri_fail(err, TR_ERROR_INPUT,
                        "no data is held out for evaluation: data.eval_fraction is 0");
    tri_eval_stats stats = tri_eval_stats_begin(session);
    int64_t run = 0;
    for (; tri_fill_eval_batch(session, run); run++) {
        if (session->data)
            TRI_TRY(tri_data_problem(session->data, err));
        TRI_TRY(tri_executor_run(&session->executors[TRI_PROGRAM_EVAL], err));
        tri_eval_stats_join(&stats, session);
    }
    double count = tri_eval_stats_of(&stats, TRI_STAT_COUNT);
    /* A loss that counts nothing is a sum over a batch, and a run is a part of one. */
    double batches = (double)run / (double)session->config.compile.num_microbatches;
    double divisor = count > 0 ? count : fmax(batches, 1);
    *result = (tri_eval_result){.loss = tri_eval_stats_of(&stats, TRI_STAT_LOSS) / divisor,
                                .accuracy = tri_eval_stats_of(&stats, TRI_STAT_HITS) / divisor,
                                .count = count};
    return TR_OK;
}

const float *tri_session_predict(tri_session *session, const int32_t *tokens, int64_t length)
{
    return tri_session_predict_at(
        session, &(tri_prompt){.tokens = tokens, .length = length, .index = length - 1});
}

const float *tri_session_predict_at(tri_session *session, const tri_prompt *prompt)
{
    tri_fill_prompt(session, prompt);
    if (tri_executor_run(&session->executors[TRI_PROGRAM_PREDICT], NULL) != TR_OK)
        return NULL; /* another rank is gone */
    return tri_session_host(session, TRI_PROGRAM_PREDICT, TRI_HOST_LOGITS, 0);
}

tr_status tri_session_grad(const tri_session *session, tri_id param, float *to, tr_error *err)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    const float *end = tri_session_host(session, TRI_PROGRAM_TRAIN, TRI_HOST_RESULT, 0);
    float count = end[TRI_RESULT_COUNT] > 1 ? end[TRI_RESULT_COUNT] : 1;
    float factor = 1 / (count * tri_loss_seed(&session->config.compile) * end[TRI_RESULT_SCALE]);
    for (size_t s = 0; s < program->num_states; s++) {
        const tri_state *state = &program->states[s];
        if (state->kind != TRI_STATE_GRAD || state->param != param)
            continue;
        TRI_TRY(tri_executor_read(&session->executors[TRI_PROGRAM_TRAIN], state->latest, to, err));
        int64_t i = tri_shape_count(&state->shape);
        while (i-- > 0) { /* from the end, since the halves lie where the floats will */
            uint16_t half;
            memcpy(&half, (const char *)to + i * (int64_t)sizeof half, sizeof half);
            float value = state->dtype == TRI_F32    ? to[i]
                          : state->dtype == TRI_BF16 ? tri_bf16_to_f32(half)
                                                     : tri_f16_to_f32(half);
            to[i] = value * factor;
        }
        return TR_OK;
    }
    return tri_fail(err, TR_ERROR_INPUT, "parameter %u has no gradient in this model", param);
}
