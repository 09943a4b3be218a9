/* Help texts. Nothing here touches more than the tables, so that help is there at once. */
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/text.h"

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
    fprintf(file,
            "  trireme doctor                          is this machine ready?\n"
            "  trireme train recipes/tiny.yaml         a tiny model, in about a second\n"
            "  trireme train recipes/demo.yaml         a small one, on text\n"
            "  trireme generate recipes/demo.yaml      what it has learned\n\n"
            "trireme VERB --help tells more about a verb, trireme settings about settings.\n");
}

static void write_flag(FILE *file, const char *name, const char *help)
{
    enum { COLUMN = 31, LEAST = 30 };
    int width = tri_terminal_width(file);
    fprintf(file, "  %-28s ", name);
    tri_text_wrap(file, help, COLUMN, width < COLUMN + LEAST ? COLUMN + LEAST : width);
}

void tri_help_write_verb(FILE *file, const tri_verb *verb)
{
    bool colour = tri_terminal_colour(file);
    const char *bold = colour ? "\033[1m" : "", *plain = colour ? "\033[0m" : "";
    fprintf(file, "%strireme %s%s: %s\n\n", bold, verb->name, plain, verb->help);
    fprintf(file, "%sUsage%s: trireme %s %s%s[--set section.key=value ...]%s\n\n", bold, plain,
            verb->name, verb->usage, *verb->usage ? " " : "",
            verb->flags && verb->flags->name ? " [flags]" : "");
    for (const tri_flag *flag = verb->flags; flag && flag->name; flag++) {
        char name[64];
        snprintf(name, sizeof name, "--%s%s%s", flag->name, flag->argument ? " " : "",
                 flag->argument ? flag->argument : "");
        write_flag(file, name, flag->help);
    }
    write_flag(file, "--set section.key=value", "change one setting; wins over the file");
    write_flag(file, "--help", "this text");
    if (verb->sections && !*verb->sections)
        return;
    fputc('\n', file);
    fprintf(file, "%sSettings%s (name, default, meaning)\n\n", bold, plain);
    tr_settings_help(file, verb->sections, tri_terminal_width(file), NULL);
}
