/* trireme man: manual pages in roff, from the tables that --help is made from. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "config/settings_table.h"

#define NAME "trireme"

/* Text as roff takes it literally: a dash that can be searched for and copied, and no line that is
 * a request. */
static void put(const char *text)
{
    static const struct {
        char c;
        const char *as;
    } special[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"},
                   {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
    enum { NUM_SPECIAL = sizeof special / sizeof *special };
    if (*text == '.')
        fputs("\\&", stdout);
    for (; *text; text++) {
        const char *as = NULL;
        for (int i = 0; i < NUM_SPECIAL; i++)
            as = special[i].c == *text ? special[i].as : as;
        if (as)
            fputs(as, stdout);
        else
            putchar(*text);
    }
}

static void put_bold(const char *text)
{
    fputs("\\fB", stdout);
    put(text);
    fputs("\\fR", stdout);
}

/* A line of the page, ended. */
static void put_line(const char *text)
{
    put(text);
    putchar('\n');
}

static void section(const char *title)
{
    printf(".SH %s\n", title);
}

static void write_head(const char *verb, const char *help)
{
    char page[80];
    snprintf(page, sizeof page, NAME "%s%s", *verb ? "-" : "", verb);
    fputs(".\\\" Made by `" NAME " man`.\n.TH ", stdout);
    for (const char *c = page; *c; c++) /* no dash escaped: it is a name to look up */
        putchar(toupper((unsigned char)*c));
    printf(" 1 \"\" \"" NAME " %s\" \"Trireme\"\n", TRIREME_VERSION);
    section("NAME");
    put(page);
    fputs(" \\- ", stdout);
    put_line(help);
    section("SYNOPSIS");
}

static void write_exit_status(void)
{
    section("EXIT STATUS");
    for (const tri_exit_meaning *exit = tri_exit_meanings; exit->meaning; exit++) {
        printf(".TP\n\\fB%d\\fR\n", exit->code);
        put_line(exit->meaning);
    }
}

static void write_see_also(const tri_verb *without)
{
    section("SEE ALSO");
    if (without)
        printf("\\fB" NAME "\\fR(1)");
    for (const tri_verb *verb = tri_verbs; verb->name; verb++) {
        if (verb == without)
            continue;
        printf("%s\\fB" NAME "\\-", without || verb != tri_verbs ? ",\n" : "");
        put(verb->name);
        printf("\\fR(1)");
    }
    printf("\n");
}

static void write_program(void)
{
    write_head("", "train language models across processors, GPUs and machines");
    printf("\\fB" NAME "\\fR \\fIVERB\\fR [\\fIFILE.yaml\\fR] [\\fB\\-\\-set\\fR "
           "\\fIsection.key=value\\fR ...] [\\fIflags\\fR]\n");
    section("VERBS");
    printf("Each has a page of its own, and says of itself with \\fB\\-\\-help\\fR.\n");
    for (const tri_verb *verb = tri_verbs; verb->name; verb++) {
        printf(".TP\n");
        put_bold(verb->name);
        printf("\n");
        put_line(verb->help);
    }
    section("EXAMPLES");
    for (const tri_first_step *step = tri_first_steps; step->command; step++) {
        printf(".TP\n");
        put_bold(NAME " ");
        put_bold(step->command);
        printf("\n");
        put_line(step->help);
    }
    write_exit_status();
    write_see_also(NULL);
}

static void write_flag(const char *name, const char *argument, const char *help)
{
    printf(".TP\n\\fB\\-\\-");
    put(name);
    printf("\\fR");
    if (argument) {
        printf(" \\fI");
        put(argument);
        printf("\\fR");
    }
    printf("\n");
    put_line(help);
}

static void write_setting(const tri_setting *row)
{
    char values[200];
    tri_setting_values(row, values, sizeof values);
    printf(".TP\n");
    put_bold(row->name);
    printf("\n");
    put(row->help);
    printf(".\nDefault: ");
    put(*row->fallback ? row->fallback : "none");
    if (row->type != TRI_SETTING_STRING) {
        printf("; ");
        put(values);
    }
    printf(".\n");
}

static void write_settings(const tri_verb *verb)
{
    section("SETTINGS");
    tri_table table;
    tri_table_init(&table, NULL);
    printf("Given in a file, or with \\fB\\-\\-set\\fR, which wins.\n");
    for (int s = 0; s < tri_num_sections; s++) {
        bool begun = false;
        size_t length = strlen(tri_sections[s].name);
        for (int i = 0; i < table.num; i++) {
            const tri_setting *row = table.row[i];
            if (strncmp(row->name, tri_sections[s].name, length) != 0 || row->name[length] != '.' ||
                !tri_setting_wanted(row, verb->sections))
                continue;
            if (!begun)
                printf(".SS %s: %s\n", tri_sections[s].name, tri_sections[s].help);
            begun = true;
            write_setting(row);
        }
    }
}

static void write_verb(const tri_verb *verb)
{
    bool settings = tri_verb_has_settings(verb);
    write_head(verb->name, verb->help);
    put_bold(NAME " ");
    put_bold(verb->name);
    if (*verb->usage) {
        putchar(' ');
        put(verb->usage);
    }
    printf("%s%s\n", settings ? " [\\fB\\-\\-set\\fR \\fIsection.key=value\\fR ...]" : "",
           verb->flags && verb->flags->name ? " [\\fIflags\\fR]" : "");
    section("OPTIONS");
    for (const tri_flag *flag = verb->flags; flag && flag->name; flag++)
        if (flag->help)
            write_flag(flag->name, flag->argument, flag->help);
    if (settings)
        write_flag("set", "section.key=value", "change one setting; wins over the file");
    if (tri_verb_takes_plugins(verb))
        write_flag("plugin", "FILE",
                   "load models, update rules and schedules from outside; may be given several "
                   "times (run.plugins)");
    write_flag("help", NULL,
               settings ? "a page of text; with every setting: --help all" : "a page of text");
    if (settings)
        write_settings(verb);
    write_exit_status();
    write_see_also(verb);
}

static void list_pages(void)
{
    printf(NAME "\n");
    for (const tri_verb *verb = tri_verbs; verb->name; verb++)
        printf(NAME "-%s\n", verb->name);
}

int tri_verb_man(const tri_cli *cli)
{
    tr_error err = {0};
    const char *name = cli->num_operands > 0 ? cli->operands[0] : NAME;
    if (cli->num_operands > 1) {
        tri_cli_error("trireme man prints one page, but \"%.60s\" and \"%.60s\" were given",
                      cli->operands[0], cli->operands[1]);
        return TRI_EXIT_USAGE;
    }
    if (strncmp(name, NAME "-", sizeof NAME) == 0) /* as --list and man have it */
        name += sizeof NAME;
    const tri_verb *verb = tri_verb_find(name);
    if (tri_cli_flag(cli, "list"))
        list_pages();
    else if (strcmp(name, NAME) == 0)
        write_program();
    else if (verb)
        write_verb(verb);
    else {
        tri_verb_unknown(name, &err);
        return tri_cli_fail(&err);
    }
    return TRI_EXIT_OK;
}
