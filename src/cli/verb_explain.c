/* trireme explain: the program of a step, as text. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "cli/cli.h"

static void print_ops(void)
{
    for (int op = 0; op < TRI_NUM_OPS; op++) {
        const tri_op_def *def = tri_op_get((tri_op)op);
        printf("%s\n  reads   %s\n  makes   %s\n  %s\n", def->name, def->inputs, def->outputs,
               def->meaning);
    }
}

static int print_graph(const tri_session *session, tri_mode mode)
{
    tri_text text;
    tri_program program;
    tr_error err = {0};
    tri_text_init(&text);
    const tri_compile_config *config = &session->config.compile;
    tri_batch_shape batch = {.rows = tri_microbatch_rows(config), .seq_len = config->seq_len};
    if (tri_compile(config, &session->params, mode, &batch, &program, &text, &err) != TR_OK) {
        tri_text_fini(&text);
        return tri_cli_fail(&err);
    }
    fputs(text.chars, stdout);
    tri_program_fini(&program);
    tri_text_fini(&text);
    return TRI_EXIT_OK;
}

static bool find_program(const char *mode, int *program)
{
    static const char *const names[] = {"train", "eval", "predict"};
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (strcmp(mode, names[p]) == 0) {
            *program = p;
            return true;
        }
    return false;
}

static void print_title(const tri_session *session, const tri_program *program)
{
    const tri_compile_config *config = &session->config.compile;
    char count[16];
    printf("step program of %s: %lld layers, %s parameters; %u micro-batch%s of %lld x %lld; "
           "1 rank\n\n",
           config->model.kind, (long long)config->model.num_layers,
           tri_text_count((double)tri_param_total(&session->params), count),
           program->num_microbatches, program->num_microbatches == 1 ? "" : "es",
           (long long)tri_microbatch_rows(config), (long long)config->seq_len);
}

int tri_verb_explain(const tri_cli *cli)
{
    if (tri_cli_flag(cli, "ops")) {
        print_ops();
        return TRI_EXIT_OK;
    }
    int which = TRI_PROGRAM_TRAIN;
    const char *mode = tri_cli_flag(cli, "mode");
    if (mode && !find_program(mode, &which)) {
        tri_cli_error("--mode is \"%s\"; it can be train, eval or predict", mode);
        return TRI_EXIT_USAGE;
    }
    tr_error err = {0};
    tr_session *session;
    if (tri_api_compile(cli->settings, &session, &err) != TR_OK)
        return tri_cli_fail(&err);
    int code = TRI_EXIT_OK;
    if (tri_cli_flag(cli, "graph")) {
        code = print_graph(&session->session, (tri_mode)which);
    } else {
        tri_text text;
        tri_text_init(&text);
        const tri_program *program = &session->session.programs[which];
        tri_explain_options options = {.summary = tri_cli_flag(cli, "summary") != NULL,
                                       .all = tri_cli_flag(cli, "all") != NULL};
        print_title(&session->session, program);
        tri_program_explain(program, &options, &text);
        fputs(text.failed ? "no memory for the whole text\n" : text.chars, stdout);
        tri_text_fini(&text);
    }
    tr_session_destroy(session);
    return code;
}
