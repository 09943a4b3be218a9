#include "base/draw/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"

void tri_svg_begin(tri_text *text, const char *mark, double width, double height)
{
    tri_text_add(text,
                 "%s\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                 "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, "
                 "Arial, sans-serif\" font-size=\"12\">\n",
                 mark, width, height, width, height);
    tri_text_add(text, "<style>.bg{fill:#ffffff}.t{fill:#2b313b}.s{fill:#4a5361;font-size:10px}"
                       ".g{stroke:#e1e4e9}.f{stroke:#7c8594;fill:none}"
                       "@media (prefers-color-scheme:dark){.bg{fill:#14171c}.t{fill:#d5d8de}"
                       ".s{fill:#a9b1bc}.g{stroke:#2b313b}}</style>\n"
                       "<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n");
}

void tri_svg_end(tri_text *text)
{
    tri_text_add(text, "</svg>\n");
}

void tri_svg_heading(tri_text *text, double left, const char *title)
{
    tri_text_add(
        text, "<text class=\"t\" x=\"%.0f\" y=\"26\" font-size=\"15\" font-weight=\"bold\">", left);
    tri_text_add_svg(text, title);
    tri_text_add(text, "</text>\n");
}

void tri_svg_hover(tri_text *text, const char *format, ...)
{
    tri_text plain;
    va_list args;
    tri_text_init(&plain);
    va_start(args, format);
    tri_text_vadd(&plain, format, args);
    va_end(args);
    text->failed |= plain.failed;
    tri_text_add(text, "<title>");
    tri_text_add_svg(text, plain.length > 0 ? plain.chars : "");
    tri_text_add(text, "</title>");
    tri_text_fini(&plain);
}

double tri_svg_x(const tri_svg_field *field, const tri_ruler *axis, double value)
{
    return field->left + tri_ruler_place(axis, value) * field->width;
}

double tri_svg_y(const tri_svg_field *field, const tri_ruler *axis, double value)
{
    return field->top + (1 - tri_ruler_place(axis, value)) * field->height;
}

void tri_svg_axes(tri_text *text, const tri_svg_field *f, const tri_ruler *x, const char *x_title,
                  const tri_ruler *y, const char *y_title)
{
    char label[32];
    double bottom = f->top + f->height, right = f->left + f->width;
    for (int i = 0; i < x->num_ticks; i++) {
        double at = tri_svg_x(f, x, x->ticks[i]);
        tri_text_add(text,
                     "<line class=\"g\" x1=\"%.1f\" y1=\"%g\" x2=\"%.1f\" y2=\"%g\"/>"
                     "<text class=\"t\" x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%s</text>\n",
                     at, f->top, at, bottom, at, bottom + 18,
                     tri_ruler_tick_text(x->ticks[i], label));
    }
    for (int i = 0; i < y->num_ticks; i++) {
        double at = tri_svg_y(f, y, y->ticks[i]);
        tri_text_add(text,
                     "<line class=\"g\" x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\"/>"
                     "<text class=\"t\" x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                     f->left, at, right, at, f->left - 8, at + 4,
                     tri_ruler_tick_text(y->ticks[i], label));
    }
    tri_text_add(text,
                 "<rect class=\"f\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/>\n"
                 "<text class=\"t\" x=\"%g\" y=\"%g\" text-anchor=\"middle\">%s</text>\n",
                 f->left, f->top, f->width, f->height, f->left + f->width / 2, bottom + 38,
                 x_title ? x_title : "");
    double middle = f->top + f->height / 2;
    if (y_title)
        tri_text_add(text,
                     "<text class=\"t\" x=\"18\" y=\"%g\" transform=\"rotate(-90 18 %g)\" "
                     "text-anchor=\"middle\">%s</text>\n",
                     middle, middle, y_title);
}

/* A step for each change that can be seen. */
static void add_steps(tri_text *text, const tri_svg_field *f, const double *heights, int num,
                      bool back)
{
    double drawn = 0;
    for (int n = 0; n < num; n++) {
        int i = back ? num - 1 - n : n;
        double x = f->left + f->width * (back ? i + 1 : i) / num;
        if (n == 0)
            tri_text_add(text, "%s%.1f %.1f", back ? "L" : "M", x, heights[i]);
        else if (fabs(heights[i] - drawn) >= 0.05)
            tri_text_add(text, "H%.1fV%.1f", x, heights[i]);
        else
            continue;
        drawn = heights[i];
    }
    tri_text_add(text, "H%g", back ? f->left : f->left + f->width);
}

void tri_svg_band(tri_text *text, const tri_svg_field *field, const double *upper,
                  const double *lower, int num)
{
    add_steps(text, field, upper, num, false);
    add_steps(text, field, lower, num, true);
    tri_text_add(text, "Z");
}

double tri_svg_text_width(const char *text, double font_size)
{
    return 0.56 * font_size * (double)strlen(text);
}

double tri_svg_key(tri_text *text, double x, double y, const char *fill, const char *name)
{
    tri_text_add(text,
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"13\" height=\"13\" fill=\"%s\"/>"
                 "<text class=\"t\" x=\"%.1f\" y=\"%.1f\">",
                 x, y, fill, x + 18, y + 11);
    tri_text_add_svg(text, name);
    tri_text_add(text, "</text>\n");
    return x + 18 + tri_svg_text_width(name, 12) + 20;
}

tr_status tri_svg_may_replace(const char *path, const char *mark, const char *by, tr_error *err)
{
    char begin[64] = "";
    size_t length = strlen(mark) < sizeof begin ? strlen(mark) : sizeof begin;
    TRI_TRY(tri_check_output(path, false, err));
    FILE *file = fopen(path, "re");
    size_t num = file ? fread(begin, 1, length, file) : 0;
    if (file)
        fclose(file);
    if ((!file && !tri_path_exists(path)) ||
        (file && (num == 0 || (num == length && memcmp(begin, mark, length) == 0))))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: there is a file of that name, and it is no picture that %s drew; give "
                    "another name, or move that away",
                    path, by);
}
