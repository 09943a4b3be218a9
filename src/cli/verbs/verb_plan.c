/* trireme plan: the bytes of every class, before anything is allocated. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "cli/advise/advise.h"
#include "cli/cli.h"
#include "cli/doc/docs.h"
#include "cli/lines.h"
#include "cli/memory.h"
#include "cli/schedule_note.h"
#include "cli/search/plan_search.h"
#include "cli/sums/sums.h"
#include "cli/verbs/plan.h"
#include "program/ledger.h"

static const char *const role_names[] = {"embedding", "matrix", "bias", "norm"};

static void print_params(const tri_param_table *params)
{
    char shape[128];
    int width = 28;
    for (size_t i = 0; i < params->count; i++)
        if ((int)strlen(params->items[i].name) > width)
            width = (int)strlen(params->items[i].name);
    for (size_t i = 0; i < params->count; i++) {
        const tri_param *param = &params->items[i];
        printf("  %-*s %-34s %14" PRId64 "  %s\n", width, param->name,
               tri_shape_text(&param->shape, shape, sizeof shape), tri_shape_count(&param->shape),
               role_names[param->role]);
    }
}

static void print_row(const char *name, const char *meaning, uint64_t bytes)
{
    char text[16];
    printf("  %-10s %-28s %12s  %20" PRIu64 " bytes\n", name, meaning,
           tri_text_bytes((double)bytes, text), bytes);
}

/* What the memory of a step holds, at different times of it. */
static void print_parts(const tri_program *program)
{
    char text[16];
    tri_ledger ledger;
    uint64_t scratch = 0, weights = 0;
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        if (instr->scratch_bytes > scratch)
            scratch = instr->scratch_bytes;
    }
    for (size_t m = 0; m < program->num_messages; m++)
        if (program->messages[m].first_only)
            weights += tri_message_bytes(&program->messages[m]);
    if (tri_ledger_make(program, &ledger, NULL) == TR_OK) {
        printf("                 %12s of activations when the forward has ended\n",
               tri_text_bytes((double)ledger.kept, text));
        tri_ledger_fini(&ledger);
    }
    if (weights > 0)
        printf("                 %12s of weights, put together for the step\n",
               tri_text_bytes((double)weights, text));
    if (program->laid_grad_bytes > 0)
        printf("                 %12s of gradients, laid where activations were\n",
               tri_text_bytes((double)program->laid_grad_bytes, text));
    if (scratch > 0)
        printf("                 %12s of kernels' scratch at most, likewise\n",
               tri_text_bytes((double)scratch, text));
}

/* What the shared slab holds in the program that needs most of it. */
static void print_shared(const tri_session *session)
{
    const tri_program *largest = NULL;
    uint64_t most = 0;
    static const char *const names[TRI_NUM_PROGRAMS] = {"training", "evaluation", "prediction",
                                                        "prefill",  "decoding",   "repeating"};
    int which = 0;
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        uint64_t bytes = 0;
        const tri_program *program = &session->programs[p];
        for (size_t s = 0; s < program->num_spaces; s++)
            if (tri_slab_of(program->spaces[s].kind) == TRI_SLAB_SHARED &&
                program->spaces[s].where == TRI_WHERE_DEVICE)
                bytes += tri_space_total(&program->spaces[s]);
        if (bytes > most) {
            most = bytes;
            largest = program;
            which = p;
        }
    }
    if (!largest)
        return;
    printf("             of which, in the %s program:\n", names[which]);
    for (size_t s = 0; s < largest->num_spaces; s++) {
        const tri_space *space = &largest->spaces[s];
        char text[16];
        if (tri_slab_of(space->kind) != TRI_SLAB_SHARED || tri_space_total(space) == 0 ||
            space->where != TRI_WHERE_DEVICE)
            continue;
        bool step = space->kind == TRI_SPACE_WORK && largest->once && largest->num_segments > 1;
        printf("               %-10s %-13s %12s", space->name,
               space->kind == TRI_SPACE_FRAME      ? "activations"
               : space->kind == TRI_SPACE_GATHERED ? "weights"
               : step                              ? "of the step"
               : space->kind == TRI_SPACE_WORK     ? "workspace"
               : space->kind == TRI_SPACE_BATCH    ? "inputs"
                                                   : "",
               tri_text_bytes((double)tri_space_total(space), text));
        if (space->num_instances > 1)
            printf("  (%u x %s)", space->num_instances, tri_text_bytes((double)space->bytes, text));
        printf("\n");
        if (step)
            print_parts(largest);
    }
}

/* What lies on the host and in the scratch file. */
static void print_elsewhere(const tri_store *store)
{
    static const char *const names[TRI_NUM_SLABS] = {"weights",         "16-bit copies",
                                                     "gradients",       "optimizer state",
                                                     "keys and values", "copies on their way"};
    for (int i = 0; i < TRI_NUM_SLABS; i++)
        if (store->host[i].bytes)
            print_row("host", names[i], store->host[i].bytes);
    for (int i = 0; i < TRI_NUM_SLABS; i++)
        if (store->file[i].bytes)
            print_row("file", names[i], store->file[i].bytes);
}

void tri_plan_print_memory(const tri_session *session)
{
    const tri_store *store = &session->store;
    uint64_t exact = store->scratch_bytes + store->sums.bytes;
    for (int i = 0; i < TRI_NUM_SLABS; i++)
        exact += store->slabs[i].bytes + (session->device.def->queue ? 0 : store->host[i].bytes);
    print_row("param", "parameters", store->slabs[TRI_SLAB_PARAM].bytes);
    if (store->slabs[TRI_SLAB_COPY].bytes)
        print_row("copy", "16-bit copies of them", store->slabs[TRI_SLAB_COPY].bytes);
    if (store->laid_grad_bytes)
        print_row("grad", "in the step's memory, below", store->slabs[TRI_SLAB_GRAD].bytes);
    else
        print_row("grad", "gradient accumulators", store->slabs[TRI_SLAB_GRAD].bytes);
    print_row("optim", "optimizer state", store->slabs[TRI_SLAB_OPTIM].bytes);
    print_row("shared", "largest program's own", store->slabs[TRI_SLAB_SHARED].bytes);
    print_shared(session);
    print_elsewhere(store);
    print_row("scratch", "of the device's kernels", store->scratch_bytes);
    if (store->sums.bytes)
        print_row("sums", "of replayed steps", store->sums.bytes);
    print_row("rounding", "to whole pages", tri_store_total(store) - exact);
    print_row("plan", "total", tri_store_total(store));
    tri_memory_overhead overhead = tri_memory_overhead_of(session);
    print_row("heap", "programs, data, tokenizer", overhead.heap);
    print_row("threads", "their stacks", overhead.threads);
    print_row("overhead", "of the process, fixed", overhead.fixed);
    print_row("expected", "anonymous memory of the run",
              tri_store_total(store) + tri_memory_overhead_total(&overhead));
}

static tr_status print_redone(const tri_program *program, tr_error *err)
{
    tri_text text;
    tri_text_init(&text);
    tri_program_redone_text(program, &text);
    tri_text_add(&text, "\n");
    tr_status status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}

static tr_status print_ledger(const tri_program *program, tr_error *err)
{
    tri_ledger ledger;
    tri_text text;
    TRI_TRY(tri_ledger_make(program, &ledger, err));
    tri_text_init(&text);
    tri_ledger_text(&ledger, &text);
    tr_status status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    tri_ledger_fini(&ledger);
    return status;
}

static tr_status print_text(const tri_cli *cli, const tri_session *s, tr_error *err)
{
    const tri_compile_config *compile = &s->config.compile;
    char count[16];
    printf("%s, %" PRId64 " layers: %s parameters (%" PRId64 ") in %zu tensors\n",
           compile->model.kind, compile->model.num_layers,
           tri_text_count((double)tri_param_total(&s->params), count), tri_param_total(&s->params),
           s->params.count);
    if (compile->model.moe.num_experts > 0) {
        int64_t active = tri_moe_active(&compile->model.moe, &s->params);
        printf("active: %s of them for a token (%" PRId64 "), %" PRId64 " of %" PRId64
               " experts in a layer\n",
               tri_text_count((double)active, count), active, compile->model.moe.choices,
               compile->model.moe.num_experts);
    }
    printf("a step: %" PRId64 " rows of %" PRId64 ", %" PRId64 " micro-batch%s of %" PRId64
           " rows; %sFLOP; %s\n",
           compile->batch, compile->seq_len, compile->num_microbatches,
           compile->num_microbatches == 1 ? "" : "es", tri_microbatch_rows(compile),
           tri_text_count(tri_program_cost(&s->programs[TRI_PROGRAM_TRAIN]).flops, count),
           s->device.description);
    tri_print_schedule_note(s, "");
    tr_status status = print_redone(&s->programs[TRI_PROGRAM_TRAIN], err);
    if (status != TR_OK)
        ; /* the caller says it */
    else if (tri_cli_flag(cli, "params"))
        print_params(&s->params);
    else if (tri_cli_flag(cli, "ledger"))
        status = print_ledger(&s->programs[TRI_PROGRAM_TRAIN], err);
    else
        tri_plan_print_memory(s);
    tri_print_notes(cli->settings, s);
    return status;
}

static tr_status print_json(const tri_cli *cli, const tri_session *s, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tr_status status = tri_doc_plan(doc, s, tri_cli_flag(cli, "params") != NULL,
                                    tri_cli_flag(cli, "ledger") != NULL, err);
    if (status != TR_OK) {
        json_decref(doc);
        return status;
    }
    tri_doc_notes(doc, cli->settings, s);
    return tri_doc_print(doc, stdout, err);
}

/* A number of parameters is for sums; here it would be taken for the list. */
static tr_status check_params(const tri_cli *cli, tr_error *err)
{
    const char *params = tri_cli_flag(cli, "params");
    if (params && *params)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--params %.20s is a number of parameters, which goes with --tokens; "
                        "--params alone lists those of the model",
                        params);
    return TR_OK;
}

static tr_status print_page(const tri_session *s, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tr_status status = tri_doc_page(doc, s, err);
    if (status == TR_OK)
        return tri_doc_print(doc, stdout, err);
    json_decref(doc);
    return status;
}

int tri_verb_plan(const tri_cli *cli)
{
    tr_error err = {0};
    if (tri_cli_flag(cli, "search"))
        return tri_plan_search_run(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    if (tri_cli_flag(cli, "goodput"))
        return tri_sums_goodput(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    if (tri_cli_flag(cli, "advise"))
        return tri_plan_advise(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    if (tri_cli_flag(cli, "tokens"))
        return tri_sums_run(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    if (tri_cli_flag(cli, "generation"))
        return tri_sums_generation(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    if (tri_cli_flag(cli, "activations"))
        return tri_sums_activations(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    if (check_params(cli, &err) != TR_OK)
        return tri_cli_fail(&err);
    tr_session *session;
    int64_t rank = 0;
    if (tri_cli_flag_int(cli, "rank", 0, TRI_MAX_RANKS - 1, &rank, &err) != TR_OK ||
        tri_cli_check_rank(cli, rank, &err) != TR_OK ||
        tri_api_compile(cli->settings, (int)rank, &session, &err) != TR_OK)
        return tri_cli_fail(&err);
    const tri_session *s = &session->session;
    bool page = tri_cli_flag(cli, "page") != NULL;
    tr_status status = page                        ? print_page(s, &err)
                       : tri_cli_flag(cli, "json") ? print_json(cli, s, &err)
                                                   : print_text(cli, s, &err);
    if (status == TR_OK && !page)
        status = tri_session_check_memory(s, &err);
    int code = status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    tr_session_destroy(session);
    return code;
}
