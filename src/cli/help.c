/* Help texts. Nothing here touches more than the tables, so that help is there at once. */
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "config/settings_table.h"

const tri_exit_meaning tri_exit_meanings[] = {
    {TRI_EXIT_OK, "done"},
    {TRI_EXIT_FAILED, "failed while running"},
    {TRI_EXIT_USAGE, "the command or its input is wrong"},
    {TRI_EXIT_STOPPED,
     "stopped early in good order, can be resumed (SIGTERM, SIGUSR1, run.max_minutes)"},
    {TRI_EXIT_INTERRUPTED, "Ctrl-C; train saves first, and can be resumed"},
    {0},
};

const tri_first_step tri_first_steps[] = {
    {"doctor", "is this machine ready?"},
    {"train tiny", "a tiny model, in about a second"},
    {"train demo", "a small one, on text"},
    {"generate runs/demo", "what it has learned"},
    {0},
};

static void write_exit_codes(FILE *file, const char *bold, const char *plain)
{
    fprintf(file, "\n%sExit codes%s\n", bold, plain);
    for (const tri_exit_meaning *exit = tri_exit_meanings; exit->meaning; exit++)
        fprintf(file, "  %-4d %s\n", exit->code, exit->meaning);
}

void tri_help_write(FILE *file)
{
    bool colour = tri_terminal_colour(file);
    const char *bold = colour ? "\033[1m" : "", *plain = colour ? "\033[0m" : "";
    fprintf(file, "%strireme %s%s: trains language models\n\n", bold, TRIREME_VERSION, plain);
    fprintf(file, "%sUsage%s: trireme VERB [FILE.yaml] [--set section.key=value ...]\n\n", bold,
            plain);
    for (const tri_verb *verb = tri_verbs; verb->name; verb++)
        fprintf(file, "  %s%-10s%s %s\n", bold, verb->name, plain, verb->help);
    fprintf(file, "\n%sFirst steps%s\n", bold, plain);
    for (const tri_first_step *step = tri_first_steps; step->command; step++)
        fprintf(file, "  trireme %-31s %s\n", step->command, step->help);
    fprintf(file,
            "\ntrireme VERB --help tells more about a verb, trireme settings about settings.\n");
    write_exit_codes(file, bold, plain);
}

static void write_flag(FILE *file, const char *name, const char *help)
{
    enum { COLUMN = 31, LEAST = 30 };
    int width = tri_terminal_width(file);
    fprintf(file, "  %-28s ", name);
    tri_text_wrap(file, help, COLUMN, width < COLUMN + LEAST ? COLUMN + LEAST : width);
}

/* The settings that people change first, in fewer words than the table has. */
static const struct {
    const char *name, *help;
} briefs[] = {
    {"data.source", "text or tokens: a file or a directory"},
    {"data.tokenizer", "tokenizer.json, bytes, chars or bpe:4096"},
    {"data.seq_len", "tokens in a sequence"},
    {"model.preset", "sizes of a known model: gpt2-124m, ..."},
    {"model.dim", "width of the model"},
    {"model.num_layers", "blocks"},
    {"train.batch", "sequences in a step, over all ranks"},
    {"train.steps", "optimizer steps"},
    {"train.eval_batches", "batches in an evaluation"},
    {"optim.lr", "highest learning rate"},
    {"optim.schedule", "constant, linear, cosine, wsd"},
    {"precision.kind", "fp32, tf32, bf16 or fp16"},
    {"layout.dp", "data-parallel ranks"},
    {"layout.tp", "tensor-parallel ranks"},
    {"layout.pp", "pipeline stages"},
    {"layout.schedule", "their order; trireme sim --list"},
    {"layout.zero", "ZeRO stage, 0 to 3"},
    {"layout.microbatches", "gradient accumulation: parts of a batch"},
    {"layout.recompute", "activations made again: selective, full"},
    {"run.device", "auto, cpu or cuda"},
    {"run.threads", "threads of a rank; 0 is all cores"},
    {"run.dir", "where everything is written"},
    {"run.resume", "auto: go on from the newest checkpoint"},
    {"run.memory_limit", "refuse what needs more, such as 8GiB"},
    {"run.nccl_library", "NCCL's file, if it is not found"},
    {"ckpt.every", "steps between checkpoints; 0 is none"},
    {"ckpt.keep_last", "newest checkpoints that stay"},
    {"generate.context", "positions kept of a text; 0 is all"},
};

/* Names with blanks between. */
static void write_briefs(FILE *file, const char *names)
{
    tri_table table;
    tri_table_init(&table, NULL);
    while (*names) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(names, " "), names);
        names += strlen(name);
        names += strspn(names, " ");
        const tri_setting *row = tri_setting_named(&table, name);
        const char *help = row->help;
        for (size_t i = 0; i < sizeof briefs / sizeof *briefs; i++)
            help = strcmp(briefs[i].name, name) == 0 ? briefs[i].help : help;
        fprintf(file, "  %-20s %-11s  %s\n", name, *row->fallback ? row->fallback : "\"\"", help);
    }
}

/* What a run saves is asked for before anything else that is not on the screen. */
static void write_more(FILE *file, const tri_verb *verb)
{
    if (tri_verb_find("train") == verb)
        fprintf(file,
                "\nckpt.every=100 saves a checkpoint every 100 steps in run.dir/ckpt; after a "
                "stop,\nrun.resume=auto goes on from the newest. Weights are written at the "
                "end.\n");
    fprintf(file,
            "\nAll settings: trireme %s --help all. One section: trireme settings ckpt.\n"
            "Names of other trainers: trireme settings --aliases.\n",
            verb->name);
}

void tri_help_write_verb(FILE *file, const tri_verb *verb, bool all)
{
    bool colour = tri_terminal_colour(file);
    const char *bold = colour ? "\033[1m" : "", *plain = colour ? "\033[0m" : "";
    fprintf(file, "%strireme %s%s: %s\n\n", bold, verb->name, plain, verb->help);
    bool settings = tri_verb_has_settings(verb);
    fprintf(file, "%sUsage%s: trireme %s%s%s%s%s\n\n", bold, plain, verb->name,
            *verb->usage ? " " : "", verb->usage, settings ? " [--set section.key=value ...]" : "",
            verb->flags && verb->flags->name ? " [flags]" : "");
    for (const tri_flag *flag = verb->flags; flag && flag->name; flag++) {
        if (!flag->help || (!all && tri_flag_led_by(verb, flag, NULL)))
            continue;
        char name[64];
        snprintf(name, sizeof name, "--%s%s%s", flag->name, flag->argument ? " " : "",
                 flag->argument ? flag->argument : "");
        write_flag(file, name, flag->help);
    }
    if (settings)
        write_flag(file, "--set section.key=value", "change one setting; wins over the file");
    if (tri_verb_takes_plugins(verb))
        write_flag(file, "--plugin FILE", "load models, rules and schedules from outside");
    write_flag(file, "--help",
               settings ? "this text; with every setting: --help all" : "this text");
    if (!settings)
        return;
    const char *brief = verb->settings ? verb->settings : verb->sections;
    if (all || *brief)
        fprintf(file, "\n%sSettings%s (name, default, meaning)\n\n", bold, plain);
    if (all) {
        tr_settings_help(file, verb->sections, tri_terminal_width(file), NULL);
        return;
    }
    write_briefs(file, brief);
    write_more(file, verb);
}
