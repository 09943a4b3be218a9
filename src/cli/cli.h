/* The frame of the command line: trireme VERB [FILE.yaml] [--set section.key=value ...] [flags].
 *
 * A verb is a row of the table in main.c and a function in a file of its own. The row declares what
 * the verb takes, and parsing, help and "did you mean" follow from it; the function gets a command
 * that has been read, with the settings resolved. Only the code in this folder prints, exits or
 * reads the environment. */
#ifndef TRI_CLI_CLI_H
#define TRI_CLI_CLI_H

#include <stdint.h>

#include "base/error.h"
#include "base/exit_code.h"
#include "cli/device_choice.h"
#include "trireme/settings.h"
#include "trireme/version.h"

/* A flag of one verb, beside the common --set and --help. */
typedef struct tri_flag {
    const char *name; /* without the dashes; NULL ends a list of flags */
    /* What its value is called in the help, "N"; NULL when it takes none. In brackets, "[N]": a
     * number that may be left out. */
    const char *argument;
    /* NULL: it is not for people, and shown to none. "tokens: ..." or "tokens, rows: ...": it says
     * something of these flags, is refused without any of them, and shown by --help all. */
    const char *help;
} tri_flag;

typedef enum tri_operands {
    TRI_OPERANDS_SETTINGS, /* at most one: a YAML file or a run directory, loaded before --set */
    TRI_OPERANDS_NONE,
    TRI_OPERANDS_NAMES, /* as SETTINGS, or any number of names that the verb reads: a word is the
                           file when it has a '/' in it, ends in .yaml or .yml, or is the name of a
                           recipe and of nothing else */
    TRI_OPERANDS_WORDS  /* any number, all for the verb: none is loaded as settings */
} tri_operands;

typedef struct tri_cli tri_cli;

typedef struct tri_verb {
    const char *name;
    const char *help;     /* one line, without a full stop */
    const char *usage;    /* what follows the name on the command line */
    const char *sections; /* of the settings it reads, for --help all: "model run"; NULL for all,
                             "" for none */
    const char
        *settings; /* those that --help shows, the most used first; NULL: those of sections */
    tri_operands operands;
    const tri_flag *flags; /* ends with a NULL name; may be NULL */
    int (*run)(const tri_cli *cli);
} tri_verb;

typedef struct tri_flag_value {
    const tri_flag *flag;
    const char *value; /* "" for a flag that takes none */
} tri_flag_value;

/* A command as typed. Everything that is not settings points into argv. */
struct tri_cli {
    const tri_verb *verb;
    tr_settings *settings; /* defaults, then the file, then every --set in order */
    char *file;            /* the settings file or run directory that was found, or NULL */
    const char **operands; /* what was typed beside flags, the file included */
    int num_operands;
    tri_flag_value *flags;
    int num_flags;
    const char **assignments, **plugins; /* of --set and --plugin, in order */
    int num_assignments, num_plugins;
    tri_device_choice device; /* of run.device=auto, for verbs that read settings files */
    const char *layout_set;   /* the last --set layout...=..., or NULL */
    bool wants_help;          /* --help: nothing else was looked at */
    bool wants_all;           /* --help all: with every setting of the verb */
};

/* Whether --set means anything to a verb. */
static inline bool tri_verb_has_settings(const tri_verb *verb)
{
    return !verb->sections || *verb->sections;
}

/* main.c. The table ends with a NULL name. */
extern const tri_verb tri_verbs[];
const tri_verb *tri_verb_find(const char *name); /* NULL when there is none */
/* Whether it has to do with models: --plugin is taken by all, and shown for these. */
bool tri_verb_takes_plugins(const tri_verb *verb);

/* options.c: args are what follows the verb. On failure cli is empty and needs no fini. */
tr_status tri_cli_init(tri_cli *cli, const tri_verb *verb, int num_args, char **args,
                       tr_error *err);
void tri_cli_fini(tri_cli *cli);
tr_status tri_verb_unknown(const char *name, tr_error *err); /* says what was meant */

/* Whether a flag says something of others (see tri_flag), none of which is given; cli NULL: whether
 * it does at all. */
bool tri_flag_led_by(const tri_verb *verb, const tri_flag *flag, const tri_cli *cli);

/* The last value given for a flag the verb declares, "" if it takes none; NULL when not given. */
const char *tri_cli_flag(const tri_cli *cli, const char *name);
/* The same as a whole number in [min, max]; *value is left alone when the flag is not given. */
tr_status tri_cli_flag_int(const tri_cli *cli, const char *name, int64_t min, int64_t max,
                           int64_t *value, tr_error *err);

/* help.c. Both tables end with a row of zeros. */
typedef struct tri_exit_meaning {
    int code;
    const char *meaning;
} tri_exit_meaning;
extern const tri_exit_meaning tri_exit_meanings[];

typedef struct tri_first_step {
    const char *command, *help; /* without the name of the program */
} tri_first_step;
extern const tri_first_step tri_first_steps[];

void tri_help_write(FILE *file); /* trireme --help */
/* trireme VERB --help, on a screen; all: with every setting. */
void tri_help_write_verb(FILE *file, const tri_verb *verb, bool all);

/* main.c: "trireme: MESSAGE" on stderr. */
void tri_cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the error and gives the exit code for it: return tri_cli_fail(&err); */
int tri_cli_fail(const tr_error *err);

/* Flags of verbs that have them in their own file. */
extern const tri_flag tri_place_flags[], tri_view_flags[];

/* The verbs, one file each. */
int tri_verb_train(const tri_cli *cli);
int tri_verb_generate(const tri_cli *cli);
int tri_verb_eval(const tri_cli *cli);
int tri_verb_plan(const tri_cli *cli);
int tri_verb_place(const tri_cli *cli);
int tri_verb_explain(const tri_cli *cli);
int tri_verb_check(const tri_cli *cli);
int tri_verb_sim(const tri_cli *cli);
int tri_verb_view(const tri_cli *cli);
int tri_verb_bench(const tri_cli *cli);
int tri_verb_ckpt(const tri_cli *cli);
int tri_verb_data(const tri_cli *cli);
int tri_verb_runs(const tri_cli *cli);
int tri_verb_watch(const tri_cli *cli);
int tri_verb_plot(const tri_cli *cli);
int tri_verb_profile(const tri_cli *cli);
int tri_verb_report(const tri_cli *cli);
int tri_verb_sweep(const tri_cli *cli);
int tri_verb_doctor(const tri_cli *cli);
int tri_verb_settings(const tri_cli *cli);
int tri_verb_completion(const tri_cli *cli);
int tri_verb_man(const tri_cli *cli);

/* Ranks of the layout: dp x tp x pp. */
int64_t tri_cli_num_ranks(const tri_cli *cli);
/* --rank R must be one of the layout's. Completes the settings. */
tr_status tri_cli_check_rank(const tri_cli *cli, int64_t rank, tr_error *err);

#endif
