/* trireme explain: the program of a step, as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "cli/cli.h"
#include "cli/deal/deal_view.h"
#include "cli/doc/docs.h"
#include "cli/schedule_note.h"

static void print_ops(void)
{
    for (int op = 0; op < TRI_NUM_OPS; op++) {
        const tri_op_def *def = tri_op_get((tri_op)op);
        printf("%s\n  reads   %s\n  makes   %s\n  %s\n", def->name, def->inputs, def->outputs,
               def->meaning);
    }
}

/* ---- the operators as a page ---- */

/* Text of the table inside Markdown: what would become emphasis or a tag is escaped. */
static void print_escaped(const char *text)
{
    for (; *text; text++) {
        if (strchr("*_<|", *text))
            putchar('\\');
        putchar(*text);
    }
}

/* Copies the name of operand `number` from a list such as "x [B, ...], rows i32 [B], [dsum]": the
 * first word of that entry, without the brackets of an optional one. */
static void operand_name(const char *list, int number, char *out, size_t size)
{
    int depth = 0;
    for (; *list && number > 0; list++) {
        depth += strchr("[(", *list) ? 1 : strchr("])", *list) ? -1 : 0;
        number -= *list == ',' && depth == 0;
    }
    list += strspn(list, " [");
    snprintf(out, size, "%.*s", (int)strcspn(list, " ,:]"), list);
}

/* Which outputs replace an input that is a state, and which may take over an input's memory. */
static void print_in_place(const tri_op_def *def)
{
    char out[32], in[32];
    for (int k = 0; k < def->max_out; k++) {
        operand_name(def->outputs, k, out, sizeof out);
        if (def->updates[k]) {
            operand_name(def->inputs, def->updates[k] - 1, in, sizeof in);
            printf("- in place: `%s` is the next version of the state `%s`, at the same address\n",
                   out, in);
        }
        bool any = false;
        for (int j = 0; j < def->max_in; j++) {
            if (!(def->may_alias[k] >> j & 1))
                continue;
            operand_name(def->inputs, j, in, sizeof in);
            if (any)
                printf(" or `%s`", in);
            else
                printf("- in place: `%s` may take over the memory of `%s`", out, in);
            any = true;
        }
        if (any)
            printf("\n");
    }
}

static void print_accumulates(const tri_op_def *def)
{
    bool any = false;
    char out[32];
    for (int k = 0; k < def->max_out; k++) {
        if (!(def->can_accumulate >> k & 1))
            continue;
        operand_name(def->outputs, k, out, sizeof out);
        printf(any ? ", `%s`" : "- accumulates: `%s`", out);
        any = true;
    }
    if (any)
        printf("\n");
}

static void print_ops_markdown(void)
{
    printf("# Operators\n\n"
           "Made from the operator table by `trireme explain --ops --markdown`; change it there "
           "(`src/graph/ops/`).\n\n"
           "Numbers are f32 unless a type stands beside the name. `[...]` after a name is its "
           "shape; an operand in brackets of its own may be absent.\n"
           "*In place* and *accumulates* say what a kernel must be able to do: an output that may "
           "take over an input's memory gets the same pointer as that input when the memory plan "
           "finds nobody else reading it; an output that accumulates is overwritten by the first "
           "micro-batch of a step and added to by the others.\n"
           "The exact formulas, for whoever writes kernels for another device, are in "
           "[operator-semantics.md](operator-semantics.md).\n");
    for (int op = 0; op < TRI_NUM_OPS; op++) {
        const tri_op_def *def = tri_op_get((tri_op)op);
        printf("\n## %s\n\n", def->name);
        print_escaped(def->meaning);
        printf("\n\n- reads: `%s`\n- makes: `%s`\n", def->inputs, def->outputs);
        print_in_place(def);
        print_accumulates(def);
        printf("- gradient: %s\n", def->grad ? "yes" : "none passes");
    }
}

static int print_graph(const tri_session *session, int which)
{
    tri_text text;
    tri_program program;
    tr_error err = {0};
    tri_text_init(&text);
    const tri_compile_config own = tri_session_compile_config(session, which), *config = &own;
    tri_batch_shape batch = tri_session_batch_shape(session, which);
    if (tri_compile(config, &session->params, tri_session_mode(which), &batch, &program, &text,
                    &err) != TR_OK) {
        tri_text_fini(&text);
        return tri_cli_fail(&err);
    }
    tr_status status = tri_text_put(&text, stdout, &err);
    tri_program_fini(&program);
    tri_text_fini(&text);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}

static bool find_program(const char *mode, int *program)
{
    static const char *const names[TRI_NUM_PROGRAMS] = {"train",   "eval",   "predict",
                                                        "prefill", "decode", "repeat"};
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (strcmp(mode, names[p]) == 0) {
            *program = p;
            return true;
        }
    return false;
}

/* "layers 0 to 1 and 6 to 7": a rank may hold several runs of them. */
static void print_layers(const bool *holds, int num_layers)
{
    int num = 0, runs = 0;
    for (int l = 0; l < num_layers; l++)
        num += holds[l];
    if (num > 0)
        printf("%s ", num == 1 ? "layer" : "layers");
    for (int first = 0; first < num_layers; first++) {
        int last = first;
        if (!holds[first])
            continue;
        while (last + 1 < num_layers && holds[last + 1])
            last++;
        printf("%s%d", runs++ ? " and " : "", first);
        if (last > first)
            printf(" to %d", last);
        first = last;
    }
}

/* "rank 5: tp 1 of 2, dp 0 of 2, pp 1 of 2, with layers 2 to 3 and what comes after them" */
static tr_status print_place(const tri_compile_config *config, const tri_program *program,
                             tr_error *err)
{
    static const tri_axis axes[] = {TRI_AXIS_TP, TRI_AXIS_CP, TRI_AXIS_DP, TRI_AXIS_PP};
    int num = program->num_layers, held = 0;
    bool *holds = calloc((size_t)num + 2, sizeof *holds); /* from layer -1: before, after */
    if (!holds)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to list the layers");
    printf("rank %d:", config->rank);
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (tri_mesh_size(&config->mesh, axes[i]) > 1)
            printf(" %s %d of %d,", tri_axis_name(axes[i]),
                   tri_mesh_coordinate(&config->mesh, config->rank, axes[i]),
                   tri_mesh_size(&config->mesh, axes[i]));
    for (size_t g = 0; g < program->num_segments; g++)
        for (uint32_t i = 0; i < program->segments[g].count; i++)
            if (program->segments[g].action != TRI_ACTION_U)
                holds[program->instrs[program->segments[g].first + i].layer + 1] = true;
    for (int l = 0; l < num; l++)
        held += holds[l + 1];
    printf(" with %s%s", holds[0] ? "the embedding" : "", holds[0] && held > 0 ? ", " : "");
    print_layers(holds + 1, num);
    if (holds[num + 1])
        printf("%swhat comes after %s", held > 0 || holds[0] ? " and " : "",
               held > 0 ? "them" : "the layers");
    printf("\n");
    free(holds);
    return TR_OK;
}

static tr_status print_title(const tri_session *session, int which, tr_error *err)
{
    const tri_compile_config *config = &session->config.compile;
    const tri_program *program = &session->programs[which];
    tri_batch_shape shape = tri_session_batch_shape(session, which);
    int ranks = tri_mesh_ranks(&config->mesh);
    char count[16];
    printf("step program of %s: %lld layers, %s parameters; %u micro-batch%s of %lld x %lld; "
           "%d rank%s\n",
           config->model.kind, (long long)config->model.num_layers,
           tri_text_count((double)tri_param_total(&session->params), count),
           program->num_microbatches, program->num_microbatches == 1 ? "" : "es",
           (long long)shape.rows, (long long)shape.seq_len, ranks, ranks == 1 ? "" : "s");
    if (ranks > 1)
        TRI_TRY(print_place(config, program, err));
    if (which == TRI_PROGRAM_TRAIN)
        tri_print_schedule_note(session, "");
    printf("\n");
    return TR_OK;
}

static int print_ops_json(void)
{
    tr_error err = {0};
    json_t *doc = tri_doc_begin();
    tri_doc_operators(doc);
    return tri_doc_print(doc, stdout, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}

static tr_status print_program(const tri_cli *cli, const tri_session *session, int which,
                               tr_error *err)
{
    const tri_program *program = &session->programs[which];
    bool summary = tri_cli_flag(cli, "summary") != NULL;
    if (tri_cli_flag(cli, "json")) {
        json_t *doc = tri_doc_begin();
        tri_doc_program(doc, session, which, summary);
        return tri_doc_print(doc, stdout, err);
    }
    tri_text text;
    tri_text_init(&text);
    tri_explain_options options = {.summary = summary, .all = tri_cli_flag(cli, "all") != NULL};
    tri_program_explain(program, &options, &text);
    tr_status status = print_title(session, which, err);
    if (status == TR_OK)
        status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}

/* What --deal prints is no program. */
static int explain_deal(const tri_cli *cli)
{
    static const char *const others[] = {"summary", "all", "mode", "rank", "graph", "ops"};
    tr_error err = {0};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (tri_cli_flag(cli, others[i])) {
            tri_cli_error("--deal shows which tokens each rank gets, and no program; leave --%s "
                          "out, or --deal",
                          others[i]);
            return TRI_EXIT_USAGE;
        }
    return tri_explain_deal(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}

int tri_verb_explain(const tri_cli *cli)
{
    bool markdown = tri_cli_flag(cli, "markdown") != NULL;
    if (tri_cli_flag(cli, "deal") && !markdown)
        return explain_deal(cli);
    if (tri_cli_flag(cli, "draw")) {
        tri_cli_error("--draw goes with --deal: trireme explain FILE.yaml --set layout.cp=4 --deal "
                      "--draw deal.svg");
        return TRI_EXIT_USAGE;
    }
    if (tri_cli_flag(cli, "ops")) {
        if (tri_cli_flag(cli, "json"))
            return print_ops_json();
        if (markdown)
            print_ops_markdown();
        else
            print_ops();
        return TRI_EXIT_OK;
    }
    if (markdown) {
        tri_cli_error("--markdown goes with --ops: trireme explain --ops --markdown");
        return TRI_EXIT_USAGE;
    }
    if (tri_cli_flag(cli, "graph") && tri_cli_flag(cli, "json")) {
        tri_cli_error("--graph is a text for people; --json prints the program: leave one of them "
                      "out");
        return TRI_EXIT_USAGE;
    }
    int which = TRI_PROGRAM_TRAIN;
    const char *mode = tri_cli_flag(cli, "mode");
    if (mode && !find_program(mode, &which)) {
        tri_cli_error("--mode is \"%s\"; it can be train, eval, predict, prefill, decode or repeat",
                      mode);
        return TRI_EXIT_USAGE;
    }
    tr_error err = {0};
    tr_session *session;
    unsigned programs =
        TRI_PROGRAMS_GENERATE >> which & 1 ? TRI_PROGRAMS_GENERATE : TRI_PROGRAMS_TRAIN;
    int64_t rank = 0;
    if (tri_cli_flag_int(cli, "rank", 0, TRI_MAX_RANKS - 1, &rank, &err) != TR_OK ||
        tri_cli_check_rank(cli, rank, &err) != TR_OK ||
        tri_api_compile_programs(cli->settings, (int)rank, programs, NULL, &session, &err) != TR_OK)
        return tri_cli_fail(&err);
    int code = TRI_EXIT_OK;
    if (!tri_session_has(&session->session, which)) {
        tri_cli_error("no step is repeated in this layout: --mode repeat goes with layout.ep and "
                      "layout.ep_room");
        code = TRI_EXIT_USAGE;
    } else if (tri_cli_flag(cli, "graph")) {
        code = print_graph(&session->session, which);
    } else if (print_program(cli, &session->session, which, &err) != TR_OK) {
        code = tri_cli_fail(&err);
    }
    tr_session_destroy(session);
    return code;
}
