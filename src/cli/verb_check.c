/* trireme check: proves the programs of a run, or shows how a broken one is found out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "cli/cli.h"
#include "program/match.h"

static int list_faults(void)
{
    printf("faults that `trireme check --break NAME` can plant:\n");
    for (size_t i = 0; tri_fault_at(i); i++)
        printf("  %-18s %s\n", tri_fault_at(i)->name, tri_fault_at(i)->meaning);
    return TRI_EXIT_OK;
}

static int check_broken(tri_session *session, const char *name)
{
    const tri_fault *fault = NULL;
    for (size_t i = 0; tri_fault_at(i); i++)
        if (strcmp(tri_fault_at(i)->name, name) == 0)
            fault = tri_fault_at(i);
    if (!fault) {
        tri_cli_error("there is no fault \"%s\"; --break list names them", name);
        return TRI_EXIT_USAGE;
    }
    tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    if (!fault->apply(program)) {
        tri_cli_error("this program has no place for \"%s\" (%s); try a gpt2 with --set "
                      "layout.microbatches=2, layout.dp=2 and the plain backward (for late-gather "
                      "also layout.zero=3 and layout.keep_gathered=true)",
                      name, fault->meaning);
        return TRI_EXIT_USAGE;
    }
    tr_error err = {0};
    if (tri_program_check(program, &err) == TR_OK) {
        tri_cli_error("the checker did not notice \"%s\": this is a bug in the checker", name);
        return TRI_EXIT_FAILED;
    }
    printf("planted: %s\n", fault->meaning);
    tri_cli_error("rejected: %s", err.message);
    return TRI_EXIT_USAGE;
}

static int check_programs(const tri_session *session)
{
    static const char *const names[TRI_NUM_PROGRAMS] = {"training", "evaluation", "prediction",
                                                        "prefill", "decoding"};
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        tr_error err = {0};
        const tri_program *program = &session->programs[p];
        if (!tri_session_has(session, p))
            continue;
        if (tri_program_check(program, &err) != TR_OK)
            return tri_cli_fail(&err);
        printf("%-10s  %5zu instructions in %zu call%s: every read finds its value, every address "
               "its room\n",
               names[p], program->num_instrs, program->num_calls,
               program->num_calls == 1 ? "" : "s");
    }
    return TRI_EXIT_OK;
}

/* The programs of all ranks against each other: training, then evaluation. */
static tr_status match_ranks(const tri_cli *cli, int num_ranks, tr_session **sessions,
                             const tri_program **programs, tr_error *err)
{
    static const char *const names[] = {"training", "evaluation"};
    for (int r = 0; r < num_ranks; r++)
        TRI_TRY(tri_api_compile(cli->settings, r, &sessions[r], err));
    const tri_mesh *mesh = &sessions[0]->session.config.compile.mesh;
    for (int p = TRI_PROGRAM_TRAIN; p <= TRI_PROGRAM_EVAL; p++) {
        for (int r = 0; r < num_ranks; r++)
            programs[r] = &sessions[r]->session.programs[p];
        TRI_TRY(tri_programs_match(programs, mesh, err));
        printf("%-10s  the messages of all %d ranks meet\n", names[p], num_ranks);
    }
    return TR_OK;
}

static int check_ranks(const tri_cli *cli, int num_ranks)
{
    enum { MOST = 4096 }; /* each rank's program is compiled and kept: a megabyte, milliseconds */
    tr_error err = {0};
    if (num_ranks > MOST) {
        tri_cli_error("this layout has %d ranks, and check holds the programs of all to see their "
                      "messages meet, for %d ranks at most; check it with a smaller layout.dp "
                      "(`trireme plan` and `trireme explain` take one rank of any layout)",
                      num_ranks, MOST);
        return TRI_EXIT_USAGE;
    }
    tr_session **sessions = calloc((size_t)num_ranks, sizeof *sessions);
    const tri_program **programs = calloc((size_t)num_ranks, sizeof(const tri_program *));
    tr_status status = sessions && programs
                           ? match_ranks(cli, num_ranks, sessions, programs, &err)
                           : tri_fail(&err, TR_ERROR_RUNTIME, "no memory for %d ranks", num_ranks);
    for (int r = 0; sessions && r < num_ranks; r++)
        tr_session_destroy(sessions[r]);
    free(sessions);
    free(programs);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}

int tri_verb_check(const tri_cli *cli)
{
    const char *fault = tri_cli_flag(cli, "break");
    if (fault && strcmp(fault, "list") == 0)
        return list_faults();
    tr_error err = {0};
    tr_session *session;
    if (tri_api_compile(cli->settings, 0, &session, &err) != TR_OK)
        return tri_cli_fail(&err);
    int code = fault ? check_broken(&session->session, fault) : check_programs(&session->session);
    bool generates = tri_model_generates(&session->session.config.compile.model);
    int num_ranks = tri_mesh_ranks(&session->session.config.compile.mesh);
    tr_session_destroy(session);
    if (!fault && code == TRI_EXIT_OK && num_ranks > 1)
        code = check_ranks(cli, num_ranks);
    if (fault || code != TRI_EXIT_OK || !generates)
        return code;
    if (tri_api_compile_programs(cli->settings, 0, TRI_PROGRAMS_GENERATE, NULL, &session, &err) !=
        TR_OK)
        return tri_cli_fail(&err);
    code = check_programs(&session->session);
    tr_session_destroy(session);
    return code;
}
