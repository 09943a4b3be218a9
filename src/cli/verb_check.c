/* trireme check: proves the programs of a run, or shows how a broken one is found out. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "cli/cli.h"

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
                      "layout.microbatches=2 and the plain backward",
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

int tri_verb_check(const tri_cli *cli)
{
    const char *fault = tri_cli_flag(cli, "break");
    if (fault && strcmp(fault, "list") == 0)
        return list_faults();
    tr_error err = {0};
    tr_session *session;
    if (tri_api_compile(cli->settings, 0, &session, &err) != TR_OK)
        return tri_cli_fail(&err);
    int code = TRI_EXIT_OK;
    if (fault) {
        code = check_broken(&session->session, fault);
    } else {
        static const char *const names[] = {"training", "evaluation", "prediction"};
        for (int p = 0; p < TRI_NUM_PROGRAMS && code == TRI_EXIT_OK; p++) {
            const tri_program *program = &session->session.programs[p];
            if (tri_program_check(program, &err) != TR_OK)
                code = tri_cli_fail(&err);
            else
                printf("%-10s  %5zu instructions in %zu call%s: every read finds its value, every "
                       "address its room\n",
                       names[p], program->num_instrs, program->num_calls,
                       program->num_calls == 1 ? "" : "s");
        }
    }
    tr_session_destroy(session);
    return code;
}
