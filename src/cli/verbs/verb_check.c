/* trireme check: proves the programs of a run, or shows how a broken one is found out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "cli/cli.h"
#include "cli/doc/docs.h"
#include "cli/lines.h"
#include "cli/verbs/plan.h"
#include "program/match.h"

static int list_faults(bool json)
{
    tr_error err = {0};
    json_t *doc = json ? tri_doc_begin() : NULL, *list = json ? tri_doc_list(doc, "faults") : NULL;
    for (size_t i = 0; json && tri_fault_at(i); i++) {
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "name", tri_fault_at(i)->name);
        tri_doc_text(item, "meaning", tri_fault_at(i)->meaning);
    }
    if (json)
        return tri_doc_print(doc, stdout, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    printf("faults that `trireme check --break NAME` can plant:\n");
    for (size_t i = 0; tri_fault_at(i); i++)
        printf("  %-18s %s\n", tri_fault_at(i)->name, tri_fault_at(i)->meaning);
    return TRI_EXIT_OK;
}

static int check_broken(tri_session *session, const char *name, json_t *doc)
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
                      "also layout.zero=3 and layout.keep_gathered=true, for lost-terms "
                      "model.loss_tile=8, for a shift layout.cp=3, for rooms also "
                      "layout.cp_kind=gather and data.mask_documents=true, for pairs layout.pp=2, "
                      "layout.schedule=dualpipe and layout.pairs=true)",
                      name, fault->meaning);
        return TRI_EXIT_USAGE;
    }
    tr_error err = {0};
    if (tri_program_check(program, &err) == TR_OK) {
        tri_cli_error("the checker did not notice \"%s\": this is a bug in the checker", name);
        return TRI_EXIT_FAILED;
    }
    if (doc) {
        tri_doc_text(doc, "planted", fault->meaning);
        tri_doc_text(doc, "rejected", err.message);
    } else {
        printf("planted: %s\n", fault->meaning);
    }
    tri_cli_error("rejected: %s", err.message);
    return TRI_EXIT_USAGE;
}

tr_status tri_prove_programs(const tri_session *session, tri_proven_fn told, void *context,
                             tr_error *err)
{
    static const char *const names[TRI_NUM_PROGRAMS] = {"training", "evaluation", "prediction",
                                                        "prefill",  "decoding",   "repeating"};
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        char line[160];
        const tri_program *program = &session->programs[p];
        if (!tri_session_has(session, p))
            continue;
        TRI_TRY(tri_program_check(program, err));
        snprintf(line, sizeof line,
                 "%5zu instructions in %zu call%s: every read finds its value, every address its "
                 "room",
                 program->num_instrs, program->num_calls, program->num_calls == 1 ? "" : "s");
        told(context, names[p], line);
    }
    return TR_OK;
}

/* The programs of all ranks against each other: training, then evaluation. */
static tr_status match_ranks(tr_settings *settings, int num_ranks, tr_session **sessions,
                             const tri_program **programs, tri_proven_fn told, void *context,
                             tr_error *err)
{
    static const struct {
        tri_session_program program;
        const char *name;
    } kinds[] = {{TRI_PROGRAM_TRAIN, "training"},
                 {TRI_PROGRAM_EVAL, "evaluation"},
                 {TRI_PROGRAM_CAREFUL, "repeating"}};
    for (int r = 0; r < num_ranks; r++)
        TRI_TRY(tri_api_compile(settings, r, &sessions[r], err));
    for (size_t p = 0; p < sizeof kinds / sizeof *kinds; p++) {
        char line[80];
        if (!tri_session_has(&sessions[0]->session, kinds[p].program))
            continue;
        for (int r = 0; r < num_ranks; r++)
            programs[r] = &sessions[r]->session.programs[kinds[p].program];
        TRI_TRY(tri_programs_match(programs, num_ranks, err));
        snprintf(line, sizeof line, "the messages of all %d ranks meet", num_ranks);
        told(context, kinds[p].name, line);
    }
    return TR_OK;
}

tr_status tri_prove_ranks(tr_settings *settings, int num_ranks, tri_proven_fn told, void *context,
                          tr_error *err)
{
    tr_session **sessions = calloc((size_t)num_ranks, sizeof *sessions);
    const tri_program **programs = calloc((size_t)num_ranks, sizeof(const tri_program *));
    tr_status status =
        sessions && programs
            ? match_ranks(settings, num_ranks, sessions, programs, told, context, err)
            : tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", num_ranks);
    for (int r = 0; sessions && r < num_ranks; r++)
        tr_session_destroy(sessions[r]);
    free(sessions);
    free(programs);
    return status;
}

/* context: the list of a document, or NULL. */
static void tell_proven(void *context, const char *what, const char *line)
{
    if (!context) {
        printf("%-10s  %s\n", what, line);
        return;
    }
    json_t *item = tri_doc_item(context);
    tri_doc_text(item, "program", what);
    tri_doc_text(item, "proof", line + strspn(line, " "));
}

/* doc NULL: as text. */
static int check(const tri_cli *cli, const char *fault, json_t *doc)
{
    tr_error err = {0};
    tr_session *session;
    json_t *proven = doc && !fault ? tri_doc_list(doc, "proven") : NULL;
    if (tri_api_compile(cli->settings, 0, &session, &err) != TR_OK)
        return tri_cli_fail(&err);
    int code = TRI_EXIT_OK;
    if (fault)
        code = check_broken(&session->session, fault, doc);
    else if (tri_prove_programs(&session->session, tell_proven, proven, &err) != TR_OK)
        code = tri_cli_fail(&err);
    if (!fault && doc)
        tri_doc_notes(doc, cli->settings, &session->session);
    else if (!fault)
        tri_print_notes(cli->settings, &session->session);
    bool generates = tri_model_generates(&session->session.config.compile.model);
    int num_ranks = tri_mesh_ranks(&session->session.config.compile.mesh);
    tr_session_destroy(session);
    if (!fault && code == TRI_EXIT_OK && num_ranks > 1 &&
        tri_prove_ranks(cli->settings, num_ranks, tell_proven, proven, &err) != TR_OK)
        code = tri_cli_fail(&err);
    if (fault || code != TRI_EXIT_OK || !generates)
        return code;
    if (tri_api_compile_programs(cli->settings, 0, TRI_PROGRAMS_GENERATE, NULL, &session, &err) !=
        TR_OK)
        return tri_cli_fail(&err);
    if (tri_prove_programs(&session->session, tell_proven, proven, &err) != TR_OK)
        code = tri_cli_fail(&err);
    tr_session_destroy(session);
    return code;
}

int tri_verb_check(const tri_cli *cli)
{
    const char *fault = tri_cli_flag(cli, "break");
    bool json = tri_cli_flag(cli, "json") != NULL;
    if (fault && strcmp(fault, "list") == 0)
        return list_faults(json);
    if (!json)
        return check(cli, fault, NULL);
    tr_error err = {0};
    json_t *doc = tri_doc_begin();
    int code = check(cli, fault, doc);
    /* What was proven before something was not is told all the same. */
    if (json_object_size(doc) == 0) { /* only what is wrong with the command was said */
        json_decref(doc);
        return code;
    }
    return tri_doc_print(doc, stdout, &err) == TR_OK ? code : tri_cli_fail(&err);
}
