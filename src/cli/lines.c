#include "cli/lines.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/launch/launch.h"
#include "cli/text.h"
#include "config/notes.h"

void tri_cli_line(const char *word, const char *format, ...)
{
    enum { COLUMN = 8, LEAST = 40 };
    tri_text text, shown; /* file names and names of tensors are others' */
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    tri_text_init(&text);
    tri_text_init(&shown);
    tri_text_vadd(&text, format, args);
    if (!text.failed)
        tri_text_add_printable(&shown, text.chars);
    bool failed = text.failed || shown.failed;
    tri_text_fini(&text);
    int width = INT_MAX, columns;
    if (tri_terminal(stdout))
        width = tri_terminal_width(stdout);
    else if (tri_cli_relayed_terminal(&columns))
        width = columns;
    printf("%-*s", COLUMN, word);
    if (failed) { /* without memory the line stays one */
        tri_text_vprint(stdout, format, again);
        printf("\n");
    } else {
        tri_text_wrap(stdout, shown.chars ? shown.chars : "", COLUMN,
                      width < LEAST ? LEAST : width);
    }
    va_end(again);
    va_end(args);
    tri_text_fini(&shown);
}

static void print_note(void *context, int row, const char *note)
{
    (void)context;
    (void)row;
    tri_cli_line("note", "%s", note);
}

void tri_print_notes(const tr_settings *settings, const tri_session *session)
{
    tri_notes(settings, session, print_note, NULL);
}
