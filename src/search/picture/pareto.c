/* Time against memory: every layout that was looked at and fits, and those that no other beats in
 * both. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "search/picture/search_picture_parts.h"
#include "search/search_parts.h"

enum { LEFT = 84, TOP = 62, WIDTH = 960, HEIGHT = 400, RIGHT = 30, MOST_LISTED = 16, LINE = 17 };

static const tri_svg_field field = {LEFT, TOP, WIDTH, HEIGHT};

typedef struct pareto {
    const tri_search_picture *p;
    const tri_layout_result **all; /* rising bytes; of the same, rising seconds */
    size_t num;
    const tri_layout_result **front;
    size_t num_front;
    double unit, clock; /* bytes and seconds of a unit of the axes */
    const char *unit_name;
    tri_ruler x, y;
} pareto;

static int compare_bytes(const void *a, const void *b)
{
    const tri_layout_result *x = *(const tri_layout_result *const *)a;
    const tri_layout_result *y = *(const tri_layout_result *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void find_all(pareto *d)
{
    const tri_search *s = d->p->search;
    for (size_t i = 0; i < s->num_results; i++)
        if (s->results[i].known && s->results[i].fits)
            d->all[d->num++] = &s->results[i];
    qsort(d->all, d->num, sizeof *d->all, compare_bytes);
    for (size_t i = 0; i < d->num; i++)
        if (d->num_front == 0 || d->all[i]->seconds < d->front[d->num_front - 1]->seconds)
            d->front[d->num_front++] = d->all[i];
}

static void fit_axes(pareto *d)
{
    const double room = 1.05, near = 4;
    double most = (double)d->all[d->num - 1]->bytes, limit = (double)d->p->machine->memory_bytes;
    double low = INFINITY, high = 0, left = (double)d->all[0]->bytes;
    for (size_t i = 0; i < d->num; i++) {
        low = fmin(low, d->all[i]->seconds);
        high = fmax(high, d->all[i]->seconds);
    }
    most = limit < near * most ? limit : most;
    d->unit = tri_search_bytes_unit(most, &d->unit_name);
    left = left > most / 4 ? left - 0.1 * (most - left) : 0;
    tri_ruler_fit(&d->x, left / d->unit,
                  most + 0.03 * (most - left) > left ? (most + 0.03 * (most - left)) / d->unit
                                                     : room * most / d->unit,
                  10, false);
    d->clock = high >= 2 ? 1 : 1e-3;
    tri_ruler_fit_log(&d->y, low / room / d->clock, high * room / d->clock, 8);
}

static double x_of(const pareto *d, const tri_layout_result *r)
{
    return tri_svg_x(&field, &d->x, (double)r->bytes / d->unit);
}

static double y_of(const pareto *d, const tri_layout_result *r)
{
    return tri_svg_y(&field, &d->y, r->seconds / d->clock);
}

static void draw_dot(const pareto *d, const tri_layout_result *r, const char *look, tri_text *text)
{
    tri_text layout;
    tri_text_init(&layout);
    tri_choice_text(&r->choice, &layout);
    text->failed |= layout.failed;
    tri_text_add(text, "<circle cx=\"%.1f\" cy=\"%.1f\" %s>", x_of(d, r), y_of(d, r), look);
    tri_svg_hover(text, "%.9g s, %.0f bytes: %s", r->seconds, (double)r->bytes,
                  layout.failed ? "" : layout.chars);
    tri_text_add(text, "</circle>\n");
    tri_text_fini(&layout);
}

/* Anything to the right of the line and above it is beaten. */
static void draw_front(const pareto *d, tri_text *text)
{
    tri_text_add(text,
                 "<path class=\"front\" fill=\"none\" stroke=\"#d07a12\" "
                 "stroke-width=\"1.6\" d=\"M%.1f %.1f",
                 x_of(d, d->front[0]), y_of(d, d->front[0]));
    for (size_t i = 1; i < d->num_front; i++)
        tri_text_add(text, "H%.1fV%.1f", x_of(d, d->front[i]), y_of(d, d->front[i]));
    tri_text_add(text, "\"/>\n");
}

static void draw_limit(const pareto *d, tri_text *text)
{
    double limit = (double)d->p->machine->memory_bytes;
    double at = tri_svg_x(&field, &d->x, limit / d->unit);
    char bytes[16];
    if (at > LEFT + WIDTH)
        return;
    tri_text_add(text,
                 "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#c63d3d\" "
                 "stroke-width=\"1.4\" stroke-dasharray=\"7 4\"/>\n",
                 at, TOP, at, TOP + HEIGHT);
    tri_search_line(text, at - 6, TOP + 15, 12, "end", "a rank may take %s",
                    tri_text_bytes(limit, bytes));
}

/* Numbers stand below and to the left of their dots, where no other layout is, unless there is one
 * already. */
static void draw_numbers(const pareto *d, tri_text *text)
{
    double last_x = -INFINITY, last_y = -INFINITY;
    for (size_t i = d->num_front; i-- > 0;) { /* the fastest is 1 */
        size_t number = d->num_front - i;
        double x = x_of(d, d->front[i]) - 7, y = y_of(d, d->front[i]) + 14;
        if (number > MOST_LISTED)
            return;
        if (fabs(x - last_x) < 15 && fabs(y - last_y) < 12)
            continue;
        tri_search_line(text, x, y, 11, "end", "%zu", number);
        last_x = x;
        last_y = y;
    }
}

static void draw_list(const pareto *d, tri_text *text)
{
    double y = TOP + HEIGHT + 92;
    for (size_t i = d->num_front; i-- > 0; y += LINE) {
        const tri_layout_result *r = d->front[i];
        size_t number = d->num_front - i;
        char seconds[24], bytes[16];
        tri_text layout;
        if (number > MOST_LISTED) {
            tri_search_line(text, LEFT, y, 11, "start", "and %zu more, which take less memory",
                            i + 1);
            return;
        }
        tri_text_init(&layout);
        tri_choice_text(&r->choice, &layout);
        text->failed |= layout.failed;
        tri_search_line(text, LEFT + 16, y, 11, "end", "%zu", number);
        tri_search_line(text, LEFT + 84, y, 11, "end", "%s",
                        tri_search_seconds(r->seconds, seconds));
        tri_search_line(text, LEFT + 160, y, 11, "end", "%s",
                        tri_text_bytes((double)r->bytes, bytes));
        tri_search_line(text, LEFT + 180, y, 11, "start", "%s", layout.failed ? "" : layout.chars);
        tri_text_fini(&layout);
    }
}

static void draw(const pareto *d, tri_text *text)
{
    const tri_layout_result *best = tri_search_winner(d->p);
    size_t lines = d->num_front < MOST_LISTED ? d->num_front : MOST_LISTED + 1;
    char name[64];
    double x = LEFT;
    tri_search_picture_begin(d->p, text, LEFT + WIDTH + RIGHT,
                             TOP + HEIGHT + 100 + (double)lines * LINE, "time against memory",
                             true);
    snprintf(name, sizeof name, "memory of the fullest rank, %s", d->unit_name);
    tri_svg_axes(text, &field, &d->x, name, &d->y, d->clock < 1 ? "a step, ms" : "a step, s");
    draw_limit(d, text);
    for (size_t i = 0; i < d->num; i++)
        draw_dot(d, d->all[i], "r=\"3\" fill=\"#3b76c4\" fill-opacity=\"0.6\"", text);
    draw_front(d, text);
    for (size_t i = 0; i < d->num_front; i++)
        draw_dot(d, d->front[i], "class=\"best\" r=\"4\" fill=\"#d07a12\"", text);
    draw_dot(d, best,
             "class=\"winner\" r=\"8\" fill=\"none\" stroke=\"#c63d3d\" stroke-width=\"2.6\" "
             "pointer-events=\"all\"",
             text);
    draw_numbers(d, text);
    snprintf(name, sizeof name, "looked at, and fits: %zu", d->num);
    x = tri_svg_key(text, x, TOP + HEIGHT + 54, "#3b76c4", name);
    x = tri_svg_key(text, x, TOP + HEIGHT + 54, "#d07a12", "nothing is faster with less memory");
    tri_svg_key(text, x, TOP + HEIGHT + 54, "#c63d3d", "ring: the winner");
    draw_list(d, text);
    tri_svg_end(text);
}

void tri_pareto_draw(const tri_search_picture *p, tri_text *text)
{
    size_t room = p->search->num_results + 1;
    pareto d = {.p = p, .all = calloc(room, sizeof *d.all), .front = calloc(room, sizeof *d.all)};
    if (d.all && d.front) {
        find_all(&d);
        fit_axes(&d);
        draw(&d, text);
    } else {
        text->failed = true;
    }
    free(d.all);
    free(d.front);
}
