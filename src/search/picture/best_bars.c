/* Where the time of the best layouts goes: a bar for each, of the stage that computes most. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "search/picture/search_picture_parts.h"
#include "sim/picture/picture_parts.h"

enum {
    LEFT = 24,
    TOP = 62,
    WIDTH = 1020,
    RIGHT = 24,
    ROW = 46,
    BAR = 19,
    MOST_ROWS = 10,
    MOST_AXES = 32,
    BOTTOM = 54,
    KEYS = 22
};

static const char *const redone_colour = "#9aa3b2", *const idle_colour = "#d9dde3";

/* What bars have in common: axes of all of them, in the order in which they come up. */
typedef struct best_bars {
    const tri_search_picture *p;
    size_t num;
    char axis[MOST_AXES][TRI_STEP_AXIS_NAME];
    double most[MOST_AXES]; /* share of a step */
    uint32_t num_axes;
    tri_ruler x;
    tri_svg_field field;
} best_bars;

static const tri_layout_result *row_of(const best_bars *b, size_t row)
{
    return &b->p->search->results[b->p->search->best[row]];
}

static uint32_t axis_of(best_bars *b, const char *name)
{
    uint32_t a = 0;
    while (a < b->num_axes && strcmp(b->axis[a], name) != 0)
        a++;
    if (a == MOST_AXES)
        return MOST_AXES - 1;
    if (a == b->num_axes)
        snprintf(b->axis[b->num_axes++], TRI_STEP_AXIS_NAME, "%s", name);
    return a;
}

static const char *kind_colour(int kind)
{
    static const char *const colours[TRI_NUM_TIME_KINDS] = {"#3b76c4", "#79b4e8", "#2f9e8f",
                                                            "#e0a030"};
    return colours[kind];
}

/* Draws seconds from *at on, and goes on behind them. */
static void add_piece(const best_bars *b, tri_text *text, double *at, double y, double seconds,
                      const char *fill, const char *words)
{
    if (seconds <= 0)
        return;
    double from = tri_svg_x(&b->field, &b->x, *at), to = tri_svg_x(&b->field, &b->x, *at + seconds);
    tri_text_add(text, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\">",
                 from, y, to - from, BAR, fill);
    tri_svg_hover(text, "%s", words);
    tri_text_add(text, "</rect>\n");
    *at += seconds;
}

static void draw_pieces(best_bars *b, const tri_layout_result *r, double y, tri_text *text)
{
    char words[160];
    double at = 0;
    for (int k = 0; k < TRI_NUM_TIME_KINDS; k++) {
        int used = snprintf(words, sizeof words, "%s: %.9g s", tri_time_kind_name((tri_time_kind)k),
                            r->time[k]);
        if (r->redone_of[k] > 0)
            snprintf(words + used, sizeof words - (size_t)used,
                     ", %.9g s of it again: drawn as recomputation", r->redone_of[k]);
        add_piece(b, text, &at, y, r->time[k] - r->redone_of[k], kind_colour(k), words);
    }
    snprintf(words, sizeof words, "recomputation: %.9g s", r->redone);
    add_piece(b, text, &at, y, r->redone, redone_colour, words);
    for (uint32_t a = 0; a < r->num_axes; a++) {
        snprintf(words, sizeof words, "messages over %s that nothing hides: %.9g s", r->axis[a],
                 r->exposed[a]);
        add_piece(b, text, &at, y, r->exposed[a], tri_picture_axis_colour(axis_of(b, r->axis[a])),
                  words);
    }
    snprintf(words, sizeof words, "idle: %.9g s", r->idle);
    add_piece(b, text, &at, y, r->idle, idle_colour, words);
}

/* By how much the time is usually off. */
static void draw_whisker(const best_bars *b, const tri_layout_result *r, double y, tri_text *text)
{
    double error = b->p->machine->error, middle = y + BAR / 2.0;
    double from = tri_svg_x(&b->field, &b->x, r->seconds * (1 - error));
    double to = tri_svg_x(&b->field, &b->x, r->seconds * (1 + error));
    /* Light below dark, so that it is seen on any bar and beside it. */
    for (int over = 0; over < 2; over++)
        tri_text_add(text,
                     "<path class=\"whisker\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv9M%.1f %.1fv9\" "
                     "fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"/>\n",
                     from, middle, to, from, middle - 4.5, to, middle - 4.5,
                     over ? "#14171c" : "#f4f6fa", over ? "1.4" : "3.6");
}

static void draw_row(best_bars *b, size_t row, tri_text *text)
{
    const tri_layout_result *r = row_of(b, row);
    double y = b->field.top + (double)row * ROW + 20;
    double error = b->p->machine->error;
    char seconds[24];
    tri_text layout;
    tri_text_init(&layout);
    tri_choice_text(&r->choice, &layout);
    text->failed |= layout.failed;
    tri_search_line(text, LEFT + 6, y - 5, 12, "start", "%zu: %s", row + 1,
                    layout.failed ? "" : layout.chars);
    draw_pieces(b, r, y, text);
    draw_whisker(b, r, y, text);
    double x = tri_svg_x(&b->field, &b->x, r->seconds * (1 + error)) + 8;
    tri_text_add(text, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">%s", x, y + 14,
                 tri_search_seconds(r->seconds, seconds));
    tri_svg_hover(text, "step: %.9g s", r->seconds);
    tri_text_add(text, "</text>\n");
    tri_text_fini(&layout);
}

static void draw_key(tri_text *text, double *x, double *y, const char *fill, const char *name)
{
    if (*x + tri_svg_text_width(name, 12) + 18 > LEFT + WIDTH) {
        *x = LEFT;
        *y += KEYS;
    }
    *x = tri_svg_key(text, *x, *y, fill, name);
}

static void draw_legend(const best_bars *b, double y, tri_text *text)
{
    const double least = 0.001;
    static const char *const kinds[TRI_NUM_TIME_KINDS] = {"products", "attention",
                                                          "bound by memory", "update"};
    double x = LEFT, redone = 0;
    char name[96];
    for (size_t i = 0; i < b->num; i++)
        redone = fmax(redone, row_of(b, i)->redone);
    for (int k = 0; k < TRI_NUM_TIME_KINDS; k++)
        draw_key(text, &x, &y, kind_colour(k), kinds[k]);
    if (redone > 0)
        draw_key(text, &x, &y, redone_colour, "recomputation");
    for (uint32_t a = 0; a < b->num_axes; a++) {
        if (b->most[a] < least)
            continue;
        snprintf(name, sizeof name, "messages over %s", b->axis[a]);
        draw_key(text, &x, &y, tri_picture_axis_colour(a), name);
    }
    draw_key(text, &x, &y, idle_colour, "idle");
    snprintf(name, sizeof name,
             "messages: what nothing hides of them; whiskers: times are usually off by %.0f %%",
             100 * b->p->machine->error);
    tri_search_line(text, LEFT, y + KEYS + 11, 12, "start", "%s", name);
}

static void prepare(best_bars *b)
{
    double most = 0;
    for (size_t i = 0; i < b->num; i++) {
        const tri_layout_result *r = row_of(b, i);
        most = fmax(most, r->seconds);
        for (uint32_t a = 0; a < r->num_axes; a++) {
            uint32_t to = axis_of(b, r->axis[a]);
            b->most[to] = fmax(b->most[to], r->exposed[a] / r->seconds);
        }
    }
    b->field = (tri_svg_field){LEFT, TOP, WIDTH, (double)b->num * ROW + 6};
    /* Room for the times, which stand behind the whiskers. */
    tri_ruler_fit(&b->x, 0, 1.09 * most * (1 + b->p->machine->error), 10, false);
}

void tri_best_draw(const tri_search_picture *p, tri_text *text)
{
    best_bars b = {.p = p,
                   .num = p->search->num_best < MOST_ROWS ? p->search->num_best : MOST_ROWS};
    const tri_ruler none = {.high = 1};
    prepare(&b);
    tri_ruler clock;
    double unit = b.x.high >= 2 ? 1 : b.x.high >= 2e-3 ? 1e-3 : 1e-6;
    tri_ruler_fit(&clock, 0, b.x.high / unit, 10, false);
    double bottom = b.field.top + b.field.height;
    tri_search_picture_begin(p, text, LEFT + WIDTH + RIGHT, bottom + BOTTOM + 4 * KEYS - 6,
                             "where the time of the best layouts goes", true);
    tri_svg_axes(text, &b.field, &clock, unit >= 1 ? "s" : unit >= 1e-3 ? "ms" : "us", &none, NULL);
    for (size_t i = 0; i < b.num; i++)
        draw_row(&b, i, text);
    draw_legend(&b, bottom + BOTTOM, text);
    tri_svg_end(text);
}
