#include "search/picture/search_picture.h"

#include <stdarg.h>
#include <stdio.h>

#include "search/picture/search_picture_parts.h"

char *tri_search_seconds(double seconds, char text[24])
{
    if (seconds < 0.01)
        snprintf(text, 24, "%.3g ms", 1e3 * seconds);
    else if (seconds < 1)
        snprintf(text, 24, "%.1f ms", 1e3 * seconds);
    else
        snprintf(text, 24, "%.2f s", seconds);
    return text;
}

double tri_search_tokens(const tri_search_picture *p)
{
    return (double)p->search->facts.batch * (double)p->search->facts.seq_len;
}

const tri_layout_result *tri_search_winner(const tri_search_picture *p)
{
    return &p->search->results[p->search->best[0]];
}

double tri_search_bytes_unit(double bytes, const char **name)
{
    static const struct {
        double unit;
        const char *name;
    } units[] = {{0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}};
    int u = bytes >= 2 * units[0].unit ? 0 : bytes >= 2 * units[1].unit ? 1 : 2;
    *name = units[u].name;
    return units[u].unit;
}

void tri_search_line(tri_text *text, double x, double y, int size, const char *anchor,
                     const char *format, ...)
{
    tri_text plain;
    va_list args;
    tri_text_init(&plain);
    va_start(args, format);
    tri_text_vadd(&plain, format, args);
    va_end(args);
    text->failed |= plain.failed;
    tri_text_add(text,
                 "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\">", x,
                 y, size, anchor);
    tri_text_add_svg(text, plain.length > 0 ? plain.chars : "");
    tri_text_add(text, "</text>\n");
    tri_text_fini(&plain);
}

void tri_search_picture_begin(const tri_search_picture *p, tri_text *text, double width,
                              double height, const char *what, bool devices)
{
    char number[32], count[32] = "";
    const double left = 24;
    if (devices)
        snprintf(count, sizeof count, "%u x ", p->machine->devices);
    tri_svg_begin(text, TRI_SEARCH_PICTURE_MARK, width, height);
    tri_svg_heading(text, left, what);
    tri_search_line(text, left, 45, 12, "start", "%s on %s%s; a step of %s tokens", p->model, count,
                    p->device, tri_text_grouped((int64_t)tri_search_tokens(p), number));
}
