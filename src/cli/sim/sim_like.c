/* trireme sim FILE --like SOFTWARE: the step of another software on the same model and layout, in
 * closed form (sim/like/step_estimate.h), by constants that were fitted on its published runs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/settings/nearest.h"
#include "cli/doc/docs.h"
#include "cli/sim/sim_machine.h"
#include "cli/sim/verb_sim.h"
#include "sim/like/step_estimate.h"

typedef struct like_sim {
    const tri_software *software;
    tri_run_sizes run;
    tri_sim_machine machine;
    tri_step_estimate estimate;
    double ranks, tokens, flops; /* of a step: the model's own arithmetic */
} like_sim;

static const char *software_at(size_t i)
{
    return tri_software_at(i) ? tri_software_at(i)->name : NULL;
}

static tr_status find_software(const char *name, const tri_software **software, tr_error *err)
{
    *software = tri_software_find(name);
    if (*software)
        return TR_OK;
    const char *best = software_at(0);
    for (size_t i = 1; software_at(i); i++)
        best = tri_edit_distance(name, software_at(i)) < tri_edit_distance(name, best)
                   ? software_at(i)
                   : best;
    bool slip = tri_is_slip(name, best);
    return tri_fail(err, TR_ERROR_INPUT,
                    "--like: there is no profile of \"%.40s\"; %s%s%strireme place --devices lists "
                    "them",
                    name, slip ? "did you mean " : "", slip ? best : "", slip ? "? " : "");
}

static tr_status read_run(const tri_session_config *config, tri_run_sizes *run, tr_error *err)
{
    const tri_compile_config *c = &config->compile;
    const tri_model_config *model = &c->model;
    bool gated = strcmp(model->kind, "llama") == 0;
    if (!gated && strcmp(model->kind, "gpt2") != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--like knows decoders, but model.kind is %s; set model.kind=gpt2 or llama",
                        model->kind);
    if (model->moe.num_experts > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--like knows no mixtures of experts; leave it out, and the step is that "
                        "of Trireme itself");
    tri_recompute_kind again = c->recompute.kind;
    if (again == TRI_RECOMPUTE_BUDGET || again == TRI_RECOMPUTE_EVERY)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--like knows layout.recompute none, selective and full; others are ours "
                        "alone");
    int tp = tri_mesh_size(&c->mesh, TRI_AXIS_TP), pp = tri_mesh_size(&c->mesh, TRI_AXIS_PP);
    int dp = tri_mesh_size(&c->mesh, TRI_AXIS_DP), cp = tri_mesh_size(&c->mesh, TRI_AXIS_CP);
    double vpp = pp > 1 && c->chunks > 0 ? (double)c->chunks : 1;
    *run = (tri_run_sizes){
        .layers = (double)model->num_layers,
        .hidden = (double)model->dim,
        .heads = (double)model->num_heads,
        .kv_heads = (double)(model->num_kv_heads > 0 ? model->num_kv_heads : model->num_heads),
        .ffn = (double)model->ffn_dim,
        .vocab = (double)model->vocab,
        .seq = (double)c->seq_len,
        .gated = gated,
        .bits8 = c->precision.linear8,
        .tp = tp,
        .pp = pp,
        .vpp = vpp,
        .dp = dp,
        .cp = cp,
        .sequence_parallel = c->sp,
        .micro_batches = (double)c->num_microbatches,
        .micro_batch = (double)tri_microbatch_rows(c),
        .zero = c->zero,
        .recompute = again == TRI_RECOMPUTE_FULL        ? TRI_RUN_FULL
                     : again == TRI_RECOMPUTE_SELECTIVE ? TRI_RUN_SELECTIVE
                                                        : TRI_RUN_NONE};
    return TR_OK;
}

/* Products of the layers and the head, and attention, causal: forward and backward. */
static double model_flops(const tri_run_sizes *r, double tokens)
{
    double width = r->hidden / r->heads;
    double layer = r->hidden * r->hidden + 2 * r->hidden * r->kv_heads * width +
                   r->hidden * r->hidden + (r->gated ? 3 : 2) * r->hidden * r->ffn;
    return tokens *
           (6 * (r->layers * layer + r->hidden * r->vocab) + 6 * r->layers * r->seq * r->hidden);
}

static void print_text(const like_sim *s)
{
    const tri_step_estimate *e = &s->estimate;
    char machine[200];
    tri_sim_machine_title(&s->machine, machine, sizeof machine);
    printf("like %s, %.0f x %s\n", s->software->title, s->ranks, machine);
    printf("in closed form, without a program; its constants come from %s\n\n", s->software->from);
    printf("a layer, one micro-batch: forward %.4g ms, backward %.4g ms; head and loss %.4g ms\n",
           1e3 * e->forward, 1e3 * e->backward, 1e3 * e->head);
    printf("of a step: computing %.4g ms, bubble %.4g ms, gradients %.4g ms, update %.4g ms\n",
           1e3 * e->compute, 1e3 * e->bubble, 1e3 * e->gradients, 1e3 * e->update);
    double peak = tri_sim_machine_device(&s->machine)->dense[s->machine.rate];
    printf("MFU %.1f %% of %.4g TFLOP/s, the datasheet's %s rate\n",
           100 * s->flops / (e->step * s->ranks * peak), peak * 1e-12,
           tri_rate_name(s->machine.rate));
    char number[32], rate[16];
    printf("a step of %s tokens: %.4g ms, %s tokens/s\n",
           tri_text_grouped((int64_t)s->tokens, number), 1e3 * e->step,
           tri_text_count(s->tokens / e->step, rate));
}

static tr_status print_json(const like_sim *s, tr_error *err)
{
    const tri_step_estimate *e = &s->estimate;
    json_t *doc = tri_doc_begin();
    double peak = tri_sim_machine_device(&s->machine)->dense[s->machine.rate];
    tri_doc_text(doc, "like", s->software->name);
    tri_doc_text(doc, "device", tri_sim_machine_device(&s->machine)->name);
    tri_doc_text(doc, "rates", tri_sim_machine_rates(&s->machine));
    tri_doc_text(doc, "cluster", s->machine.model.cluster.name);
    tri_doc_count(doc, "world", (int64_t)s->ranks);
    tri_doc_count(doc, "tokens", (int64_t)s->tokens);
    tri_doc_number(doc, "layer_forward_ms", 1e3 * e->forward);
    tri_doc_number(doc, "layer_backward_ms", 1e3 * e->backward);
    tri_doc_number(doc, "head_ms", 1e3 * e->head);
    tri_doc_number(doc, "compute_ms", 1e3 * e->compute);
    tri_doc_number(doc, "bubble_ms", 1e3 * e->bubble);
    tri_doc_number(doc, "gradients_ms", 1e3 * e->gradients);
    tri_doc_number(doc, "update_ms", 1e3 * e->update);
    tri_doc_number(doc, "step_ms", 1e3 * e->step);
    tri_doc_number(doc, "tokens_per_second", s->tokens / e->step);
    tri_doc_number(doc, "mfu", s->flops / (e->step * s->ranks * peak));
    return tri_doc_print(doc, stdout, err);
}

tr_status tri_sim_like(const tri_cli *cli, tr_error *err)
{
    like_sim s;
    tri_session_config config;
    if (tri_cli_flag(cli, "efficiency") || tri_cli_flag(cli, "draw"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--like has constants of its own and draws nothing; leave --%s out",
                        tri_cli_flag(cli, "efficiency") ? "efficiency" : "draw");
    TRI_TRY(find_software(tri_cli_flag(cli, "like"), &s.software, err));
    s.ranks = (double)tri_cli_num_ranks(cli);
    TRI_TRY(tri_sim_machine_read(cli, (uint32_t)s.ranks, &s.machine, err));
    TRI_TRY(tri_api_describe(cli->settings, &config, err));
    TRI_TRY(read_run(&config, &s.run, err));
    s.tokens = (double)config.compile.batch * (double)config.compile.seq_len;
    s.flops = model_flops(&s.run, s.tokens);
    s.estimate =
        tri_estimate_step(&s.run, s.software, &s.machine.model.profile, &s.machine.model.cluster);
    if (tri_cli_flag(cli, "json"))
        return print_json(&s, err);
    print_text(&s);
    return TR_OK;
}
