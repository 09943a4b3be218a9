#include "cli/short_forms.h"

#include <stdlib.h>
#include <string.h>

#include "cli/runs/run_find.h"

/* The value is that of the flag, behind `begin` where there is one; a flag without a value has it
 * there. */
static const struct {
    const char *verb, *flag, *setting, *begin;
} short_forms[] = {
    {"train", "resume", "run.resume", "true"},
    {"train", "name", "run.dir", TRI_RUNS_FOLDER "/"},
    {"sweep", "name", "run.dir", TRI_RUNS_FOLDER "/"},
    {"generate", "tokens", "generate.tokens", ""},
    {"generate", "temperature", "generate.temperature", ""},
    {"generate", "top-k", "generate.top_k", ""},
    {"generate", "top-p", "generate.top_p", ""},
    {"generate", "min-p", "generate.min_p", ""},
    {"generate", "repetition-penalty", "generate.repetition", ""},
    {"generate", "samples", "generate.samples", ""},
    {"generate", "seed", "generate.seed", ""},
    {"generate", "batch", "generate.batch", ""},
};
enum { NUM_SHORT_FORMS = sizeof short_forms / sizeof *short_forms };

/* A name is one folder of runs/, which `trireme runs` lists: hidden ones it leaves out. */
static tr_status check_name(const char *name, tr_error *err)
{
    if (!*name)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--name is empty; give the run a name: --name first writes to "
                        "" TRI_RUNS_FOLDER "/first");
    if (strchr(name, '/') || name[0] == '.')
        return tri_fail(err, TR_ERROR_INPUT,
                        "--name is \"%.200s\", but a name has no / in it and does not begin with "
                        "a dot; give a path with --set run.dir=PATH",
                        name);
    return TR_OK;
}

static tr_status check_against(const char *flag, const char *assignment,
                               const char *const *assignments, int num_assignments, tr_error *err)
{
    size_t length = strcspn(assignment, "=") + 1;
    const char *other = NULL;
    for (int i = 0; i < num_assignments; i++)
        if (strncmp(assignments[i], assignment, length) == 0)
            other = assignments[i];
    if (!other || strcmp(other, assignment) == 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "--%s is short for %.200s, but --set %.200s is given, too; leave one of them "
                    "out",
                    flag, assignment, other);
}

tr_status tri_short_forms_apply(const tri_cli *cli, const char *const *assignments,
                                int num_assignments, tr_error *err)
{
    tr_status status = TR_OK;
    for (int i = 0; i < NUM_SHORT_FORMS && status == TR_OK; i++) {
        const char *flag = short_forms[i].flag, *value = tri_cli_flag(cli, flag);
        char *assignment = NULL;
        if (strcmp(cli->verb->name, short_forms[i].verb) != 0 || !value)
            continue;
        if (strcmp(flag, "name") == 0)
            TRI_TRY(check_name(value, err));
        if (asprintf(&assignment, "%s=%s%s", short_forms[i].setting, short_forms[i].begin, value) <
            0)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for --%s", flag);
        status = check_against(flag, assignment, assignments, num_assignments, err);
        if (status == TR_OK) {
            status = tr_settings_set(cli->settings, assignment, err);
            if (status != TR_OK)
                status = tri_fail_prefix(err, status, "--%s", flag);
        }
        free(assignment);
    }
    return status;
}

const char *tri_short_form_setting(const tri_verb *verb, const char *flag)
{
    for (int i = 0; i < NUM_SHORT_FORMS; i++)
        if (strcmp(short_forms[i].verb, verb->name) == 0 && strcmp(short_forms[i].flag, flag) == 0)
            return short_forms[i].setting;
    return NULL;
}
