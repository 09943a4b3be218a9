/* The fastest layout for each tp and pp. Cells have colours of their own, from bright to dark,
 * which are told apart on light and dark screens and without colour vision. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "search/mesh_table.h"
#include "search/picture/search_picture_parts.h"

enum {
    LEFT = 84,
    TOP = 100,
    WIDTH = 136,
    HEIGHT = 62,
    GAP = 2,
    RIGHT = 24,
    LEGEND = 96,
    LEAST_WIDTH = 780, /* that the legend needs */
    STEPS = 40
};

/* Times the winner's from which on colours differ no more. */
static const double far = 4;

typedef struct heat_scale {
    double low, high; /* seconds */
} heat_scale;

typedef struct heat_colour {
    double red, green, blue;
} heat_colour;

/* 0: as fast as the winner. */
static heat_colour colour_at(double share)
{
    static const heat_colour stops[] = {
        {252, 229, 94}, {203, 186, 105}, {139, 137, 121}, {80, 93, 124}, {29, 45, 88}};
    enum { LAST = sizeof stops / sizeof *stops - 1 };
    double at = fmin(fmax(share, 0), 1) * LAST;
    int i = at < LAST ? (int)at : LAST - 1;
    double t = at - i;
    const heat_colour *a = &stops[i], *b = &stops[i + 1];
    return (heat_colour){a->red + t * (b->red - a->red), a->green + t * (b->green - a->green),
                         a->blue + t * (b->blue - a->blue)};
}

static double share_of(const heat_scale *scale, double seconds)
{
    return scale->high > scale->low ? log(seconds / scale->low) / log(scale->high / scale->low) : 0;
}

static void add_box(tri_text *text, double x, double y, double width, double height,
                    const char *paint)
{
    tri_text_add(text, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" %s", x, y, width,
                 height, paint);
}

/* A line in a cell, in the colour that is read on it; NULL: that of text. */
static void add_words(tri_text *text, double x, double y, const char *ink, bool bold,
                      const char *words)
{
    tri_text_add(text, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" ", x, y);
    if (ink)
        tri_text_add(text, "fill=\"%s\"", ink);
    else
        tri_text_add(text, "class=\"t\"");
    tri_text_add(text, bold ? " font-size=\"14\" font-weight=\"bold\">" : " font-size=\"11\">");
    tri_text_add_svg(text, words);
    tri_text_add(text, "</text>\n");
}

/* "dp 4 zero 1" and, below, "cp 2, ep 4": what the place of the cell does not say. */
static void data_words(const tri_layout_choice *c, char *first, char *second, size_t size)
{
    snprintf(first, size, "dp %u zero %u", c->dp, c->zero);
    *second = '\0';
    if (c->cp > 1 && c->ep > 1)
        snprintf(second, size, "cp %u, ep %u", c->cp, c->ep);
    else if (c->cp > 1 || c->ep > 1)
        snprintf(second, size, "%s %u", c->cp > 1 ? "cp" : "ep", c->cp > 1 ? c->cp : c->ep);
}

static void draw_looked(const tri_mesh_cell *cell, const heat_scale *scale, double x, double y,
                        tri_text *text)
{
    const double light = 0.52;
    const tri_layout_result *r = cell->best;
    double share = share_of(scale, r->seconds), middle = x + WIDTH / 2.0;
    heat_colour c = colour_at(share);
    char paint[64], seconds[24], first[48], second[48];
    const char *ink = share < light ? "#14171c" : "#f4f6fa";
    tri_text layout;
    tri_text_init(&layout);
    tri_choice_text(&r->choice, &layout);
    text->failed |= layout.failed;
    snprintf(paint, sizeof paint, "fill=\"#%02x%02x%02x\">", (unsigned)(c.red + 0.5),
             (unsigned)(c.green + 0.5), (unsigned)(c.blue + 0.5));
    tri_text_add(text, "<g class=\"looked\">");
    add_box(text, x, y, WIDTH - GAP, HEIGHT - GAP, paint);
    tri_svg_hover(text, "tp %u, pp %u: %.9g s, %.2f GiB: %s%s", r->choice.tp, r->choice.pp,
                  r->seconds, (double)r->bytes / 0x1p30, layout.failed ? "" : layout.chars,
                  cell->bound > 0 && cell->bound < r->seconds
                      ? "; others with these, which were not looked at, may be faster"
                      : "");
    tri_text_add(text, "</rect>\n");
    data_words(&r->choice, first, second, sizeof first);
    add_words(text, middle, y + (*second ? 21 : 27), ink, true,
              tri_search_seconds(r->seconds, seconds));
    add_words(text, middle, y + (*second ? 37 : 44), ink, false, first);
    if (*second)
        add_words(text, middle, y + 51, ink, false, second);
    tri_text_add(text, "</g>\n");
    tri_text_fini(&layout);
}

static void draw_other(const tri_mesh_cell *cell, double x, double y, tri_text *text)
{
    double middle = x + WIDTH / 2.0;
    char words[64], number[24];
    char title[48] = "does not fit";
    const char *paint = "fill=\"url(#none)\" stroke=\"#7c8594\"/>\n";
    if (cell->state == TRI_MESH_BOUNDED) {
        snprintf(title, sizeof title, "not looked at");
        if (cell->looked > 0)
            snprintf(title, sizeof title, "%u do not fit, others", cell->looked);
        paint = "class=\"f\" stroke-dasharray=\"5 4\"/>\n";
        snprintf(words, sizeof words, "at least %s", tri_search_seconds(cell->bound, number));
    } else if (cell->state == TRI_MESH_TOO_LARGE) {
        snprintf(words, sizeof words, "%s %s",
                 cell->at_least ? "over" : "least:", tri_text_bytes(cell->bytes, number));
    } else {
        snprintf(title, sizeof title, "cannot be");
        words[0] = '\0';
    }
    tri_text_add(text, "<g class=\"%s\">", cell->state == TRI_MESH_BOUNDED ? "bounded" : "not");
    add_box(text, x + 0.5, y + 0.5, WIDTH - GAP - 1, HEIGHT - GAP - 1, paint);
    add_words(text, middle, y + 27, NULL, false, title);
    add_words(text, middle, y + 43, NULL, false, words);
    tri_text_add(text, "</g>\n");
}

static void draw_cells(const tri_mesh_table *table, const tri_search_picture *p,
                       const heat_scale *scale, tri_text *text)
{
    const tri_layout_choice *best = &tri_search_winner(p)->choice;
    for (size_t i = 0; i < table->num_pp; i++)
        for (size_t j = 0; j < table->num_tp; j++) {
            const tri_mesh_cell *cell = &table->cell[i][j];
            double x = LEFT + (double)j * WIDTH, y = TOP + (double)i * HEIGHT;
            if (cell->state == TRI_MESH_LOOKED)
                draw_looked(cell, scale, x, y, text);
            else if (cell->state != TRI_MESH_NONE)
                draw_other(cell, x, y, text);
            if (best->tp != table->tp[j] || best->pp != table->pp[i])
                continue;
            add_box(text, x + 1, y + 1, WIDTH - GAP - 2, HEIGHT - GAP - 2,
                    "class=\"winner\" fill=\"none\" stroke=\"#c63d3d\" stroke-width=\"4\"/>\n");
        }
}

static void draw_names(const tri_mesh_table *table, tri_text *text)
{
    for (size_t j = 0; j < table->num_tp; j++)
        tri_search_line(text, LEFT + ((double)j + 0.5) * WIDTH, TOP - 10, 12, "middle", "tp %u",
                        table->tp[j]);
    for (size_t i = 0; i < table->num_pp; i++)
        tri_search_line(text, LEFT - 12, TOP + ((double)i + 0.5) * HEIGHT + 3, 12, "end", "pp %u",
                        table->pp[i]);
    if (table->cut)
        tri_search_line(text, LEFT, TOP - 30, 12, "start",
                        "(axes of more than %d sizes: the others are left out)", TRI_MESH_VALUES);
}

static void draw_legend(const heat_scale *scale, double y, tri_text *text)
{
    const double width = 5, end = LEFT + STEPS * width;
    char number[24];
    for (int i = 0; i < STEPS; i++) {
        heat_colour c = colour_at((i + 0.5) / STEPS);
        char paint[64];
        snprintf(paint, sizeof paint, "fill=\"#%02x%02x%02x\"/>\n", (unsigned)(c.red + 0.5),
                 (unsigned)(c.green + 0.5), (unsigned)(c.blue + 0.5));
        add_box(text, LEFT + i * width, y, width + 0.3, 14, paint);
    }
    tri_search_line(text, LEFT, y + 30, 12, "start", "%s", tri_search_seconds(scale->low, number));
    tri_search_line(text, end, y + 30, 12, "end", "%s", tri_search_seconds(scale->high, number));
    add_box(text, end + 36, y + 1, 24, 13,
            "fill=\"none\" stroke=\"#c63d3d\" stroke-width=\"3\"/>\n");
    tri_search_line(text, end + 68, y + 12, 12, "start", "the fastest");
    add_box(text, end + 152, y + 1, 24, 13, "fill=\"url(#none)\" stroke=\"#7c8594\"/>\n");
    tri_search_line(text, end + 184, y + 12, 12, "start", "does not fit");
    add_box(text, end + 272, y + 1, 24, 13, "class=\"f\" stroke-dasharray=\"5 4\"/>\n");
    tri_search_line(text, end + 304, y + 12, 12, "start", "not looked at: a bound");
    tri_search_line(text, end + 36, y + 30, 12, "start", "empty: the devices cannot be divided so");
}

static void draw(const tri_mesh_table *table, const tri_search_picture *p, tri_text *text)
{
    double width = LEFT + (double)table->num_tp * WIDTH + RIGHT, worst = 0;
    double bottom = TOP + (double)table->num_pp * HEIGHT;
    for (size_t i = 0; i < table->num_pp; i++)
        for (size_t j = 0; j < table->num_tp; j++)
            if (table->cell[i][j].best)
                worst = fmax(worst, table->cell[i][j].best->seconds);
    heat_scale scale = {.low = tri_search_winner(p)->seconds};
    scale.high = fmin(worst, far * scale.low);
    tri_search_picture_begin(p, text, fmax(width, LEAST_WIDTH), bottom + LEGEND - 30,
                             "the fastest layout for each tp and pp", true);
    tri_text_add(text, "<defs><pattern id=\"none\" width=\"7\" height=\"7\" "
                       "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
                       "<rect width=\"1.5\" height=\"7\" fill=\"#7c8594\" fill-opacity=\"0.45\"/>"
                       "</pattern></defs>\n");
    draw_names(table, text);
    draw_cells(table, p, &scale, text);
    draw_legend(&scale, bottom + 18, text);
    tri_svg_end(text);
}

void tri_heatmap_draw(const tri_search_picture *p, tri_text *text)
{
    tri_mesh_table *table = tri_mesh_table_make(p->search, p->machine);
    if (table)
        draw(table, p, text);
    else
        text->failed = true;
    free(table);
}
