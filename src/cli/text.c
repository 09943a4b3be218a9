#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool tri_terminal(FILE *file)
{
    const char *kind = getenv("TERM");
    return isatty(fileno(file)) && !(kind && strcmp(kind, "dumb") == 0);
}

bool tri_terminal_colour(FILE *file)
{
    /* no-color.org: set to anything but the empty text. */
    const char *no_color = getenv("NO_COLOR");
    return tri_terminal(file) && !(no_color && *no_color);
}

int tri_terminal_width(FILE *file)
{
    const char *columns = getenv("COLUMNS");
    int width = columns ? atoi(columns) : 0;
    struct winsize size;
    if (width <= 0 && ioctl(fileno(file), TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    if (width <= 0)
        width = 80;
    return width < 20 ? 20 : width > 400 ? 400 : width;
}

char *tri_text_duration(double seconds, char out[16])
{
    if (!(seconds >= 0) || seconds > 1e9) {
        snprintf(out, 16, "?");
        return out;
    }
    if (seconds < 9.95) {
        snprintf(out, 16, "%.1fs", seconds);
        return out;
    }
    unsigned s = (unsigned)(seconds + 0.5);
    if (s < 60)
        snprintf(out, 16, "%us", s);
    else if (s < 3600)
        snprintf(out, 16, "%um%02us", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, 16, "%uh%02um", s / 3600, s / 60 % 60);
    else
        snprintf(out, 16, "%ud%02uh", s / 86400, s / 3600 % 24);
    return out;
}
