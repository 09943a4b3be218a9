/* What pictures share: plain SVG without scripts or fonts of its own, whose colours follow what the
 * reader prefers, light or dark. Classes: bg background, t text, s small text, g grid, f frames. */
#ifndef TRI_BASE_DRAW_SVG_H
#define TRI_BASE_DRAW_SVG_H

#include "base/draw/ruler.h"
#include "base/text.h"

/* Where curves are drawn, in pixels. */
typedef struct tri_svg_field {
    double left, top, width, height;
} tri_svg_field;

/* mark: a comment that the file begins with, to know it again. */
void tri_svg_begin(tri_text *text, const char *mark, double width, double height);
void tri_svg_end(tri_text *text);
/* A line in bold. */
void tri_svg_heading(tri_text *text, double left, const char *title);
/* What is shown while the mouse rests on the element that this stands in. */
void tri_svg_hover(tri_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The grid, numbers at it, a frame; titles may be NULL. */
void tri_svg_axes(tri_text *text, const tri_svg_field *field, const tri_ruler *x,
                  const char *x_title, const tri_ruler *y, const char *y_title);
/* A box of a legend and its name; returns where the next one goes. */
double tri_svg_key(tri_text *text, double x, double y, const char *fill, const char *name);
/* Data of a path: the area between two lines of so many steps across the field, as heights in
 * pixels. */
void tri_svg_band(tri_text *text, const tri_svg_field *field, const double *upper,
                  const double *lower, int num);
/* About how wide a text is, so that others keep clear of it. */
double tri_svg_text_width(const char *text, double font_size);

double tri_svg_x(const tri_svg_field *field, const tri_ruler *axis, double value);
double tri_svg_y(const tri_svg_field *field, const tri_ruler *axis, double value);

/* A picture replaces an older one with the same mark, and nothing else: wrong input otherwise. by:
 * who draws such pictures, "trireme plot". */
tr_status tri_svg_may_replace(const char *path, const char *mark, const char *by, tr_error *err);

#endif
