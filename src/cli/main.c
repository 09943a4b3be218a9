/* The program: the table of verbs, and the way from argv to one of them and to an exit code. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/text.h"

static const tri_flag settings_flags[] = {
    {"markdown", NULL, "print the reference page, docs/settings.md"},
    {0},
};

static const tri_flag plan_flags[] = {
    {"params", NULL, "list every parameter with its shape, size and role"},
    {0},
};

static const tri_flag explain_flags[] = {
    {"summary", NULL, "totals only"},
    {"all", NULL, "every instruction; repeated layers are folded otherwise"},
    {"mode", "MODE", "train (default), eval or predict"},
    {"graph", NULL, "the graph before it becomes a program"},
    {"ops", NULL, "what each operator means"},
    {"markdown", NULL, "with --ops: as a page, docs/operators.md"},
    {0},
};

static const tri_flag check_flags[] = {
    {"break", "FAULT", "break the program first, to see the checker find it; list names them"},
    {0},
};

static const tri_flag bench_flags[] = {
    {"steps", "N", "steps to measure (default 5)"},
    {"json", NULL, "lines of JSON instead of the table"},
    {"ops", "LIST", "comm: all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,..."},
    {"algorithms", "LIST", "comm: direct,ring,tree,rabenseifner,torus2d:8x4,... or auto"},
    {"sizes", "LIST", "comm: 1k,32k,1m,16m,128m, of 1024 bytes"},
    {"ranks", "N", "comm: how many (default 2)"},
    {"transport", "NAME", "comm: shm (processes, the default), tcp, mpi or thread"},
    {"private", NULL, "comm: vectors in ordinary memory, not where peers can read them"},
    {"check", NULL, "comm: look at the results of every sample, not of the first call only"},
    {"draw", "ALGORITHM|FILE.svg",
     "comm: print the rounds of --ops on --ranks (default 4) instead (list: the algorithms); or "
     "a picture of the rows"},
    {"predict", NULL, "comm: measure what messages cost, and show what the formulas make of it"},
    {0},
};

static const tri_flag ckpt_flags[] = {
    {"hf", "DIR", "export: the Hugging Face directory to write; must not exist, or be empty"},
    {0},
};

static const tri_flag data_flags[] = {
    {"tokenizer", "PATH",
     "encode, decode, inspect: a tokenizer.json, a directory, bytes, chars:FILE"},
    {"vocab", "N", "train: tokens wanted, 256 bytes and special ones included"},
    {"out", "FILE", "train: the tokenizer.json to write"},
    {"style", "NAME", "train: gpt2 (default), llama3, qwen or bytes"},
    {"min-frequency", "N", "train: pairs that are rarer make no token (default 2)"},
    {"whole-text", NULL, "train: words may span lines; by default each line stands alone"},
    {"special", NULL, "encode: add the special tokens that begin and end a text"},
    {"plain", NULL, "encode: text that spells a special token is ordinary text"},
    {"count", NULL, "encode: only the number of tokens and the speed"},
    {"skip-special", NULL, "decode: leave special tokens out"},
    {0},
};

#define MODEL_SECTIONS "model data train optim layout precision run"

const tri_verb tri_verbs[] = {
    {"train", "train a model; weights and metrics go to run.dir", "[FILE.yaml]", MODEL_SECTIONS,
     TRI_OPERANDS_SETTINGS, NULL, tri_verb_train},
    {"generate", "continue a prompt with a trained model", "[FILE.yaml | RUN_DIR]",
     "model data precision run generate", TRI_OPERANDS_SETTINGS, NULL, tri_verb_generate},
    {"plan", "show the memory a run needs, before anything is allocated", "[FILE.yaml]",
     MODEL_SECTIONS, TRI_OPERANDS_SETTINGS, plan_flags, tri_verb_plan},
    {"explain", "print the program of a step, instruction by instruction", "[FILE.yaml]",
     MODEL_SECTIONS, TRI_OPERANDS_SETTINGS, explain_flags, tri_verb_explain},
    {"check", "prove that the program of a step is right, without running it", "[FILE.yaml]",
     MODEL_SECTIONS, TRI_OPERANDS_SETTINGS, check_flags, tri_verb_check},
    {"bench", "time training steps, operator by operator, or the communication of ranks",
     "[train | FILE.yaml | comm]", MODEL_SECTIONS, TRI_OPERANDS_NAMES, bench_flags, tri_verb_bench},
    {"ckpt", "export weights for Hugging Face, or list the tensors of a file or directory",
     "export [RUN_DIR] --hf DIR | inspect PATH", "run.dir", TRI_OPERANDS_WORDS, ckpt_flags,
     tri_verb_ckpt},
    {"data", "train tokenizers; turn text into tokens and back",
     "tokenizer train TEXT | encode | decode | inspect [FILE]", "run.threads", TRI_OPERANDS_WORDS,
     data_flags, tri_verb_data},
    {"doctor", "say what this machine has, and what is missing", "", "run", TRI_OPERANDS_NONE, NULL,
     tri_verb_doctor},
    {"settings", "list the settings, or show what a file resolves to", "[FILE.yaml | NAME ...]",
     NULL, TRI_OPERANDS_NAMES, settings_flags, tri_verb_settings},
    {0},
};

const tri_verb *tri_verb_find(const char *name)
{
    for (const tri_verb *verb = tri_verbs; verb->name; verb++)
        if (strcmp(verb->name, name) == 0)
            return verb;
    return NULL;
}

void tri_cli_error(const char *format, ...)
{
    va_list args;
    bool colour = tri_terminal_colour(stderr);
    fflush(stdout); /* so that the two stay in order when they share a terminal */
    fprintf(stderr, "%strireme:%s ", colour ? "\033[1;31m" : "", colour ? "\033[0m" : "");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

int tri_cli_fail(const tr_error *err)
{
    tri_cli_error("%s", err->message);
    return err->status == TR_ERROR_INPUT ? TRI_EXIT_USAGE : TRI_EXIT_FAILED;
}

static int run_verb(const tri_verb *verb, int num_args, char **args)
{
    tri_cli cli;
    tr_error err = {0};
    if (tri_cli_init(&cli, verb, num_args, args, &err) != TR_OK)
        return tri_cli_fail(&err);
    int code = TRI_EXIT_OK;
    if (cli.wants_help)
        tri_help_write_verb(stdout, verb);
    else
        code = verb->run(&cli);
    tri_cli_fini(&cli);
    return code;
}

/* trireme help [VERB], which is also trireme --help [VERB]. */
static int help(const char *name)
{
    tr_error err = {0};
    if (!name) {
        tri_help_write(stdout);
        return TRI_EXIT_OK;
    }
    const tri_verb *verb = tri_verb_find(name);
    if (!verb) {
        tri_verb_unknown(name, &err);
        return tri_cli_fail(&err);
    }
    tri_help_write_verb(stdout, verb);
    return TRI_EXIT_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        tri_help_write(stderr);
        return TRI_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return help(argv[2]);
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 || strcmp(word, "version") == 0) {
        printf("trireme %s\n", TRI_VERSION);
        return TRI_EXIT_OK;
    }
    const tri_verb *verb = tri_verb_find(word);
    if (verb)
        return run_verb(verb, argc - 2, argv + 2);
    tr_error err = {0};
    tri_verb_unknown(word, &err);
    return tri_cli_fail(&err);
}

int main(int argc, char **argv)
{
    int code = dispatch(argc, argv);
    /* A full disk behind a redirected output must not look like success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == TRI_EXIT_OK) {
        tri_cli_error("cannot write the output: %s", strerror(errno));
        code = TRI_EXIT_FAILED;
    }
    return code;
}
