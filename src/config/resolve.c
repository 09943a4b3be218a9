#include "config/resolve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compile/pipeline.h"
#include "config/plugins.h"
#include "config/settings_internal.h"
#include "serve/generate.h"
#include "sim/sim.h"
#include "train/log/logs.h"
#include "train/ranks.h"

int64_t tri_settings_num_ranks(const tr_settings *settings)
{
    return tr_settings_int(settings, "layout.dp") * tr_settings_int(settings, "layout.cp") *
           tr_settings_int(settings, "layout.tp") * tr_settings_int(settings, "layout.pp");
}

void tri_data_config_read(const tr_settings *s, tri_data_config *data)
{
    static const tri_data_task tasks[] = {TRI_DATA_LM, TRI_DATA_LM, TRI_DATA_MLM, TRI_DATA_CLASSIFY,
                                          TRI_DATA_INSTRUCT}; /* auto has been resolved */
    *data = (tri_data_config){
        .source = tr_settings_string(s, "data.source"),
        .seq_len = tr_settings_int(s, "data.seq_len"),
        .vocab = tr_settings_int(s, "model.vocab"),
        .seed = (uint64_t)tr_settings_int(s, "run.seed"),
        .eval_fraction = tr_settings_float(s, "data.eval_fraction"),
        .mask_documents = tr_settings_bool(s, "data.mask_documents"),
        .task = tasks[tr_settings_choice(s, "data.task")],
        .tokenizer = tr_settings_string(s, "data.tokenizer"),
        .field = tr_settings_string(s, "data.field"),
        .pair_field = tr_settings_string(s, "data.pair_field"),
        .label_field = tr_settings_string(s, "data.label_field"),
        .labels = tr_settings_string(s, "data.labels"),
        .answer_field = tr_settings_string(s, "data.answer_field"),
        .template = tr_settings_string(s, "data.template"),
        .template_input = tr_settings_string(s, "data.template_input"),
        .pack = tr_settings_bool(s, "data.pack"),
        .too_long = (tri_too_long)tr_settings_choice(s, "data.too_long"),
        .mask_fraction = tr_settings_float(s, "data.mask_fraction"),
        .num_labels = tr_settings_int(s, "model.num_labels"),
        .cache = tr_settings_string(s, "run.dir"),
        .num_threads = (int)tr_settings_int(s, "run.threads"),
        .samples = tr_settings_int(s, "data.samples"),
    };
}

/* What a kind alone has, it reads itself. */
static void model_config(const tr_settings *s, tri_model_config *model)
{
    static const tri_task tasks[] = {TRI_TASK_LM, TRI_TASK_MLM, TRI_TASK_CLASSIFY};
    *model = (tri_model_config){
        .kind = tr_settings_string(s, "model.kind"),
        .num_layers = tr_settings_int(s, "model.num_layers"),
        .dim = tr_settings_int(s, "model.dim"),
        .num_heads = tr_settings_int(s, "model.num_heads"),
        .ffn_dim = tr_settings_int(s, "model.ffn_dim"),
        .vocab = tr_settings_int(s, "model.vocab"),
        .positions = tr_settings_int(s, "model.positions"),
        .task = tasks[tr_settings_choice(s, "model.task")],
        .num_labels = tr_settings_int(s, "model.num_labels"),
        .dropout = (float)tr_settings_float(s, "model.dropout"),
        .init_std = (float)tr_settings_float(s, "model.init_std"),
        .num_kv_heads = tr_settings_int(s, "model.num_kv_heads"),
        .head_dim = tr_settings_int(s, "model.head_dim"),
    };
    model->settings = s;
    model->def = tri_settings_model(s);
    if (model->def->read)
        model->def->read(s, model);
}

static tri_spike_config spike_config(const tr_settings *s)
{
    static const char *const words[] = {"warn", "skip", "rollback", "stop"};
    tri_spike_config spike = {.limit = tr_settings_float(s, "train.spike_limit")};
    for (int i = 0; i < 4; i++)
        if (strcmp(tr_settings_string(s, "train.on_spike"), words[i]) == 0)
            spike.on = (tri_on_spike)i;
    return spike;
}

static void optim_config(const tr_settings *s, tri_optim_config *optim)
{
    *optim = (tri_optim_config){
        .rule = {.kind = tr_settings_string(s, "optim.kind"),
                 .lr_scale = 1,
                 .weight_decay = (float)tr_settings_float(s, "optim.weight_decay")},
        .clip = (float)tr_settings_float(s, "train.clip"),
        .limits_loss = spike_config(s).limit > 0 && spike_config(s).on != TRI_SPIKE_WARN,
        .groups = tr_settings_string(s, "optim.groups"),
        .settings = s,
    };
    if (s->plugins) {
        optim->outside = s->plugins->rule;
        optim->num_outside = (size_t)s->plugins->num_rules;
    }
    for (size_t i = 0; tri_optim_at(i); i++)
        if (tri_optim_at(i)->read)
            tri_optim_at(i)->read(s, optim);
}

/* train.stats: names of statistics, divided by commas or blanks. */
static tr_status head_config(const tr_settings *s, tri_head_config *head, tr_error *err)
{
    const char *at = tr_settings_string(s, "train.stats");
    head->z_loss = (float)tr_settings_float(s, "train.z_loss");
    int most = TRI_MAX_HEAD_STATS - (head->z_loss > 0);
    while (*(at += strspn(at, ", "))) {
        char name[32];
        size_t length = strcspn(at, ", ");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        int row = tri_stat_find(name);
        if (row < 0)
            return tri_fail(err, TR_ERROR_INPUT,
                            "train.stats: \"%s\" is no statistic of logits; known: max_logit, "
                            "mean_lse",
                            name);
        if (head->num_stats == most)
            return tri_fail(err, TR_ERROR_INPUT,
                            "train.stats: a step shows at most %d statistics of logits; leave %s "
                            "out",
                            most, name);
        bool twice = memchr(head->stat, row, head->num_stats) != NULL;
        if (!twice)
            head->stat[head->num_stats++] = (uint8_t)row;
        at += length;
    }
    return TR_OK;
}

/* Those from outside are asked for some steps: what is no rate would be found out by the weights.
 */
static tr_status check_lr(const tri_lr_schedule *lr, tr_error *err)
{
    enum { MOST = 1000 };
    int64_t steps = lr->steps > 0 ? lr->steps : MOST, apart = steps > MOST ? steps / MOST : 1;
    for (int64_t step = lr->warmup_steps; step < steps && lr->settings; step += apart) {
        double rate = lr->def->rate(lr, step);
        if (!isfinite(rate) || rate < 0)
            return tri_fail(err, TR_ERROR_INPUT,
                            "optim.schedule %s of a plug-in gives a learning rate of %g for step "
                            "%lld; mend the plug-in",
                            lr->def->kind, rate, (long long)step);
    }
    return TR_OK;
}

static tr_status lr_config(const tr_settings *s, tri_lr_schedule *lr, tr_error *err)
{
    const char *kind = tr_settings_string(s, "optim.schedule");
    *lr = (tri_lr_schedule){
        .def = tri_lr_def_find(kind),
        .lr = tr_settings_float(s, "optim.lr"),
        .steps = tr_settings_int(s, "train.steps"),
        .warmup_steps = tr_settings_int(s, "optim.warmup_steps"),
    };
    for (size_t i = 0; !lr->def && tri_plugins_lr_at(s->plugins, i); i++)
        if (strcmp(tri_plugins_lr_at(s->plugins, i)->kind, kind) == 0)
            lr->def = tri_plugins_lr_at(s->plugins, i);
    if (lr->def->read)
        lr->def->read(s, lr);
    return check_lr(lr, err);
}

static void batch_config(const tr_settings *s, tri_session_config *config)
{
    tri_compile_config *compile = &config->compile;
    compile->batch = tr_settings_int(s, "train.batch");
    compile->seq_len = tr_settings_int(s, "data.seq_len");
    compile->loss_tile = tr_settings_int(s, "model.loss_tile");
    compile->mask_documents = config->data.mask_documents || config->data.pack ||
                              tri_model_of(&compile->model)->documents;
    compile->num_microbatches = tr_settings_int(s, "layout.microbatches");
}

/* Each tile has its own instructions. */
static tr_status check_loss_tile(const tri_compile_config *compile, tr_error *err)
{
    enum { MOST = 1024 };
    int64_t tile = compile->loss_tile, tokens = compile->seq_len;
    if (tile == 0 || (tokens + tile - 1) / tile <= MOST)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "model.loss_tile is %lld, which cuts rows of %lld tokens (data.seq_len) into "
                    "more than %d tiles; set model.loss_tile=%lld or more",
                    (long long)tile, (long long)tokens, MOST,
                    (long long)((tokens + MOST - 1) / MOST));
}

/* Rows that do not divide are filled up with rows without targets, which a model without targets to
 * ignore cannot have. */
static tr_status check_rows(const tri_compile_config *compile, tr_error *err)
{
    long long batch = compile->batch, num = compile->num_microbatches;
    long long parts = num * tri_mesh_size(&compile->mesh, TRI_AXIS_DP), over = batch % parts;
    char below[32] = "";
    TRI_TRY(check_loss_tile(compile, err));
    if (tri_model_of(&compile->model)->sequences || over == 0)
        return TR_OK;
    if (batch > parts)
        snprintf(below, sizeof below, "%lld or ", batch - over);
    return tri_fail(err, TR_ERROR_INPUT,
                    "train.batch %lld is not a multiple of layout.microbatches x layout.dp = %lld, "
                    "and the vectors that an %s learns from cannot be filled up with empty ones; "
                    "use train.batch=%s%lld",
                    batch, parts, compile->model.kind, below, batch - over + parts);
}

/* Every tensor-parallel rank needs something of each dim that is divided. */
static tr_status check_tp(const tri_compile_config *compile, tr_error *err)
{
    const tri_model_config *m = &compile->model;
    bool sequences = tri_model_of(m)->sequences;
    const struct {
        const char *name;
        int64_t size;
        bool counts;
    } dims[] = {
        {"model.num_heads", m->num_heads, sequences},
        {"model.ffn_dim", m->ffn_dim, true},
        {"model.vocab", m->vocab, sequences},
        {"data.seq_len", compile->seq_len, compile->sp && sequences},
    };
    int tp = tri_mesh_size(&compile->mesh, TRI_AXIS_TP);
    if (tp == 1)
        return TR_OK;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        if (dims[i].counts && dims[i].size < tp)
            return tri_fail(err, TR_ERROR_INPUT,
                            "layout.tp is %d, but %s is %lld, which leaves ranks without any; use "
                            "layout.tp=%lld at most",
                            tp, dims[i].name, (long long)dims[i].size, (long long)dims[i].size);
    return TR_OK;
}

/* Shard groups are neighbours: within cp, or all of it for some of dp. */
static bool divides_data(int group, int dp, int cp)
{
    return group <= cp ? cp % group == 0 : group % cp == 0 && dp % (group / cp) == 0;
}

static tr_status check_shard_group(const tri_compile_config *compile, tr_error *err)
{
    int group = compile->mesh.size[TRI_AXIS_SHARD], dp = tri_mesh_size(&compile->mesh, TRI_AXIS_DP);
    int cp = tri_mesh_size(&compile->mesh, TRI_AXIS_CP), nearest = group;
    if (group == 0 || divides_data(group, dp, cp))
        return TR_OK;
    while (!divides_data(nearest, dp, cp))
        nearest--;
    if (cp == 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.shard_group is %d, which does not divide layout.dp %d; the nearest "
                        "below that does is %d",
                        group, dp, nearest);
    return tri_fail(
        err, TR_ERROR_INPUT,
        "layout.shard_group is %d: it must divide layout.cp %d, or be layout.cp times a "
        "divisor of layout.dp %d; the nearest below that does is %d",
        group, cp, dp, nearest);
}

/* Below zero 3 weights are whole anyway. */
static tr_status check_keep_gathered(const tri_compile_config *compile, tr_error *err)
{
    if (!compile->keep_gathered || compile->zero == 3)
        return TR_OK;
    return tri_fail(
        err, TR_ERROR_INPUT,
        "layout.keep_gathered is true, but layout.zero is %d, which keeps whole weights "
        "all the time and gathers none for the step; set layout.zero=3, or leave "
        "layout.keep_gathered out",
        compile->zero);
}

static tr_status precision_config(const tr_settings *s, tri_session_config *config, tr_error *err)
{
    const char *kind = tr_settings_string(s, "precision.kind");
    tri_precision *precision = &config->compile.precision;
    precision->compute = strcmp(kind, "bf16") == 0   ? TRI_BF16
                         : strcmp(kind, "fp16") == 0 ? TRI_F16
                                                     : TRI_F32;
    precision->scale = (float)tr_settings_float(s, "precision.scale");
    precision->growth_interval = (int32_t)tr_settings_int(s, "precision.growth_interval");
    precision->grad = strcmp(tr_settings_string(s, "precision.grad"), "compute") == 0
                          ? precision->compute
                          : TRI_F32;
    precision->linear8 = strcmp(tr_settings_string(s, "precision.linear"), "fp8") == 0;
    config->device.float8 = precision->linear8;
    if (precision->linear8 && precision->compute != TRI_BF16)
        return tri_fail(err, TR_ERROR_INPUT,
                        "precision.linear is fp8 and precision.kind %s: 8-bit products are made of "
                        "bf16 activations. Set precision.kind to bf16, or precision.linear to same",
                        kind);
    config->device.any_order = !tr_settings_bool(s, "run.deterministic");
    config->device.no_tuning = !tr_settings_bool(s, "run.tune");
    const char *tuning = tr_settings_string(s, "run.tuning");
    config->device.tuning = *tuning ? tuning : NULL;
    config->device.tf32 = strcmp(kind, "tf32") == 0;
    if (config->device.tf32 && strcmp(config->device.kind, "cpu") == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "precision.kind is tf32, which is a mode of NVIDIA GPUs; set run.device to "
                        "cuda, or precision.kind to fp32");
    return TR_OK;
}

static tr_status add_brake(const char *text, tri_session_config *config, tr_error *err)
{
    tri_brake brake;
    int used = 0;
    if (sscanf(text, "%d:%lf%n", &brake.rank, &brake.factor, &used) != 2 || text[used] ||
        brake.rank < 0 || !(brake.factor >= 1 && brake.factor <= 100))
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.pace: \"%s\" is not a rank and a factor from 1 to 100, as in 1:1.1",
                        text);
    if (config->num_brakes == TRI_MAX_BRAKES)
        return tri_fail(err, TR_ERROR_INPUT, "run.pace: at most %d ranks can be braked",
                        TRI_MAX_BRAKES);
    config->brakes[config->num_brakes++] = brake;
    return TR_OK;
}

static tr_status check_zero(const tri_compile_config *compile, tr_error *err)
{
    TRI_TRY(check_shard_group(compile, err));
    return check_keep_gathered(compile, err);
}

static tr_status pace_config(const tr_settings *s, tri_session_config *config, tr_error *err)
{
    tri_action_costs costs = {0};
    const char *at = tr_settings_string(s, "run.pace");
    tri_text plain;
    tri_text_init(&plain);
    tr_status status = TR_OK;
    while (*at && status == TR_OK) { /* "1:1.1" is a brake, all else a cost */
        char part[64];
        size_t length = strcspn(at, ",");
        snprintf(part, sizeof part, "%.*s", (int)(length < 63 ? length : 63), at);
        if (strchr(part, ':'))
            status = add_brake(part, config, err);
        else
            tri_text_add(&plain, "%s%.*s", plain.length ? "," : "", (int)length, at);
        at += length + (at[length] == ',');
    }
    config->keep_pace = plain.length > 0;
    if (status == TR_OK && plain.length > 0 && !plain.failed &&
        tri_sim_parse_costs(plain.chars, &costs, err) != TR_OK)
        status = tri_fail_prefix(err, TR_ERROR_INPUT, "run.pace");
    if (status == TR_OK && plain.failed)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for run.pace");
    tri_text_fini(&plain);
    TRI_TRY(status);
    for (int k = 0; k < TRI_NUM_ACTIONS; k++)
        config->pace[k] = costs.kind[k] * 1e-3;
    config->pace[TRI_PACE_PAIR] = costs.overlap * 1e-3;
    return TR_OK;
}

static tri_replay_config replay_config(const tr_settings *s)
{
    bool exchanges = strcmp(tr_settings_string(s, "run.replay"), "exchange") == 0;
    return (tri_replay_config){.every = tr_settings_int(s, "run.replay_every"),
                               .kind = exchanges ? TRI_REPLAY_EXCHANGE : TRI_REPLAY_SAME,
                               .stops =
                                   strcmp(tr_settings_string(s, "run.on_replay"), "stop") == 0};
}

static tr_status read_health(const tr_settings *s, tri_session_config *config, tr_error *err)
{
    const tri_spike_config *spike = &config->spike;
    config->spike = spike_config(s);
    config->replay = replay_config(s);
    if (spike->on != TRI_SPIKE_ROLLBACK || tr_settings_int(s, "ckpt.every") > 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "train.on_spike is rollback, but no checkpoints are written to go back to; "
                    "set ckpt.every, or train.on_spike=skip");
}

static tr_status mesh_config(const tr_settings *s, tri_mesh *mesh, tr_error *err)
{
    mesh->size[TRI_AXIS_DP] = (int)tr_settings_int(s, "layout.dp");
    mesh->size[TRI_AXIS_TP] = (int)tr_settings_int(s, "layout.tp");
    mesh->size[TRI_AXIS_CP] = (int)tr_settings_int(s, "layout.cp");
    mesh->size[TRI_AXIS_PP] = (int)tr_settings_int(s, "layout.pp");
    mesh->size[TRI_AXIS_SHARD] = (int)tr_settings_int(s, "layout.shard_group");
    return tri_mesh_check(mesh, err);
}

/* Only who starts the ranks can choose how many there are. */
static tr_status check_decided(const tr_settings *s, tr_error *err)
{
    if (!tr_settings_bool(s, "layout.auto"))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "layout.auto is true, and the layout is chosen by `trireme train` alone, when "
                    "it starts the ranks; `trireme plan FILE.yaml --search` shows the best ones: "
                    "write one of them into the settings, and set layout.auto=false");
}

tr_status tri_session_config_from(const tr_settings *s, tri_session_config *config, tr_error *err)
{
    TRI_TRY(check_decided(s, err));
    *config = (tri_session_config){
        .device = {.kind = tr_settings_string(s, "run.device"),
                   .num_threads = (int)tr_settings_int(s, "run.threads"),
                   .isa = tr_settings_string(s, "run.isa"),
                   .reference = strcmp(tr_settings_string(s, "run.kernels"), "reference") == 0},
        .seed = (uint64_t)tr_settings_int(s, "run.seed"),
        .eval_batches = tr_settings_int(s, "train.eval_batches"),
        .steps = tr_settings_int(s, "train.steps"),
        .epochs = tr_settings_int(s, "train.epochs"),
        .max_skipped = tr_settings_int(s, "train.max_skipped"),
        .weights_from = tr_settings_string(s, "model.from"),
    };
    tri_compile_config *compile = &config->compile;
    tri_data_config_read(s, &config->data);
    model_config(s, &compile->model);
    optim_config(s, &compile->optim);
    TRI_TRY(head_config(s, &compile->head, err));
    TRI_TRY(tri_logs_check(tr_settings_string(s, "run.logs"), err));
    TRI_TRY(lr_config(s, &config->lr, err));
    batch_config(s, config);
    compile->zero = (int)tr_settings_int(s, "layout.zero");
    compile->keep_gathered = tr_settings_bool(s, "layout.keep_gathered");
    compile->bucket_bytes = tr_settings_float(s, "layout.bucket_mb") * 1048576;
    compile->prefetch = (int)tr_settings_int(s, "layout.prefetch");
    compile->overlap = tr_settings_bool(s, "run.overlap");
    compile->overlap_min_bytes = (uint64_t)(tr_settings_float(s, "run.overlap_min_kb") * 1024);
    config->by_nccl = tri_ranks_may_use_nccl(tr_settings_string(s, "run.transport"),
                                             tr_settings_string(s, "run.collective"));
    config->group_lanes = strcmp(tr_settings_string(s, "run.lanes"), "group") == 0;
    compile->pairs = tr_settings_bool(s, "layout.pairs");
    compile->split_backward = tr_settings_bool(s, "layout.split_backward");
    TRI_TRY(
        tri_recompute_parse(tr_settings_string(s, "layout.recompute"), &compile->recompute, err));
    TRI_TRY(mesh_config(s, &compile->mesh, err));
    compile->schedule = tr_settings_string(s, "layout.schedule");
    compile->chunks = tr_settings_int(s, "layout.chunks");
    compile->stages = tr_settings_string(s, "layout.stages");
    compile->sp =
        tr_settings_bool(s, "layout.sp") && tri_mesh_size(&compile->mesh, TRI_AXIS_TP) > 1;
    TRI_TRY(precision_config(s, config, err));
    TRI_TRY(tri_memory_limit_from(s, &config->memory_limit, err));
    TRI_TRY(check_tp(compile, err));
    TRI_TRY(tri_divide_key_heads(compile, err));
    TRI_TRY(tri_context_config(s, config, err));
    TRI_TRY(check_zero(compile, err));
    TRI_TRY(tri_experts_config(s, compile, err));
    TRI_TRY(tri_pipeline_check(compile, err));
    TRI_TRY(tri_offload_config(s, config, err));
    TRI_TRY(pace_config(s, config, err));
    TRI_TRY(read_health(s, config, err));
    TRI_TRY(
        tri_ranks_check_algorithm(tr_settings_string(s, "run.collective"), &compile->mesh, err));
    int64_t context = tr_settings_int(s, "generate.context");
    int64_t block = tr_settings_int(s, "generate.prefill");
    int64_t most = context > 0 ? context : compile->model.positions;
    config->generate = tri_generate_plan(&compile->model, tr_settings_int(s, "generate.batch"),
                                         block, block, most);
    return check_rows(compile, err);
}
