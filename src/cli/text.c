#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "data/unicode/unicode.h"

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

void tri_terminal_write(FILE *file, const char *text, size_t num_bytes)
{
    if (!isatty(fileno(file))) {
        fwrite(text, 1, num_bytes, file);
        return;
    }
    for (const char *at = text, *end = text + num_bytes; at < end;) {
        const char *from = at;
        uint32_t c = tri_utf8_next(&at, end);
        bool commands =
            (c < 0x20 && c != '\n' && c != '\t' && c != '\r') || (c >= 0x7f && c < 0xa0);
        if (commands || c >= TRI_BROKEN)
            fputs("\xEF\xBF\xBD", file);
        else
            fwrite(from, 1, (size_t)(at - from), file);
    }
}

int tri_terminal_width(FILE *file)
{
    return tri_terminal_width_of(fileno(file));
}

int tri_terminal_width_of(int fd)
{
    const char *columns = getenv("COLUMNS");
    int width = columns ? atoi(columns) : 0;
    struct winsize size;
    if (width <= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    if (width <= 0)
        width = 80;
    return width < 20 ? 20 : width > 400 ? 400 : width;
}

bool tri_terminal_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"}; /* the first that is set */
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return true;
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
