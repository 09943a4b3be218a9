/* What the ranks are at along the step, as shares of all of them: computing, waiting for messages
 * of each axis, idle until others are there. A rank that has ended is idle. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/picture/picture_parts.h"

enum {
    LEFT = 84,
    TOP = 62,
    WIDTH = 960,
    HEIGHT = 320,
    RIGHT = 30,
    COLUMNS = 480,
    STRIPES = 96,
    COMPUTES = 0, /* then an entry for each axis, then idle, which is the rest */
    NUM_ENTRIES = 1 + TRI_STEP_MAX_AXES
};

struct tri_shares {
    const tri_picture_case *c;
    double seconds[COLUMNS][NUM_ENTRIES]; /* of all classes */
};

static const tri_svg_field field = {LEFT, TOP, WIDTH, HEIGHT};

tri_shares *tri_shares_begin(const tri_picture_case *c)
{
    tri_shares *s = calloc(1, sizeof *s);
    if (s)
        s->c = c;
    return s;
}

void tri_shares_end(tri_shares *s)
{
    free(s);
}

void tri_shares_add(tri_shares *s, const tri_timing_event *event)
{
    if (event->what != TRI_DOES_COMPUTE && event->what != TRI_DOES_WAIT)
        return;
    int entry = COMPUTES;
    if (event->what == TRI_DOES_WAIT)
        entry = 1 + (int)tri_picture_axis(s->c, event->class, event->message);
    double column = s->c->sim->timing.seconds / COLUMNS;
    for (int col = (int)(event->start / column); col < COLUMNS; col++) {
        double start = fmax(event->start, col * column);
        double end = fmin(event->end, (col + 1) * column);
        if (end > start)
            s->seconds[col][entry] += end - start;
        if (event->end <= (col + 1) * column)
            break;
    }
}

/* ---- drawing ---- */

static const char *fill_of(int entry)
{
    return entry == COMPUTES ? "#3b76c4" : tri_picture_axis_colour((uint32_t)entry - 1);
}

static void name_of(const tri_shares *s, int entry, char *name, size_t size)
{
    if (entry == COMPUTES)
        snprintf(name, size, "compute");
    else
        snprintf(name, size, "wait for %s", s->c->sim->axis[entry - 1]);
}

/* Of columns first to before end: the share of all ranks' time. */
static double share_of(const tri_shares *s, int entry, int first, int end)
{
    double seconds = 0, all = s->c->sim->timing.seconds / COLUMNS * s->c->step->num_stages;
    for (int col = first; col < end; col++)
        seconds += s->seconds[col][entry];
    return seconds / (all * (end - first));
}

static void find_edge(const tri_shares *s, int entry, const tri_ruler *y, double heights[COLUMNS])
{
    for (int col = 0; col < COLUMNS; col++) {
        double sum = 0;
        for (int k = 0; k <= entry; k++)
            sum += share_of(s, k, col, col + 1);
        heights[col] = tri_svg_y(&field, y, 100 * fmin(sum, 1));
    }
}

static void draw_entry(const tri_shares *s, int entry, const tri_ruler *y, tri_text *text)
{
    char name[64];
    double upper[COLUMNS], lower[COLUMNS];
    name_of(s, entry, name, sizeof name);
    find_edge(s, entry, y, upper);
    find_edge(s, entry - 1, y, lower);
    tri_text_add(text, "<path fill=\"%s\" d=\"", fill_of(entry));
    tri_svg_band(text, &field, upper, lower, COLUMNS);
    tri_text_add(text, "\">");
    tri_svg_hover(text, "%s: %.4f %% of the ranks' time", name,
                  100 * share_of(s, entry, 0, COLUMNS));
    tri_text_add(text, "</path>\n");
}

static void draw_stripes(const tri_shares *s, tri_text *text)
{
    double ms = 1e3 * s->c->sim->timing.seconds;
    for (int n = 0; n < STRIPES; n++) {
        int first = n * COLUMNS / STRIPES, end = (n + 1) * COLUMNS / STRIPES;
        double idle = 1;
        tri_text parts;
        tri_text_init(&parts);
        for (int k = 0; k <= (int)s->c->sim->num_axes; k++) {
            double share = share_of(s, k, first, end);
            char name[64];
            name_of(s, k, name, sizeof name);
            idle -= share;
            if (share >= 5e-4)
                tri_text_add(&parts, "%s %.1f %%, ", name, 100 * share);
        }
        tri_text_add(text,
                     "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill-opacity=\"0\">",
                     LEFT + (double)WIDTH * n / STRIPES, TOP, (double)WIDTH / STRIPES, HEIGHT);
        tri_svg_hover(text, "%.6g to %.6g ms: %sidle %.1f %%", ms * n / STRIPES,
                      ms * (n + 1) / STRIPES, parts.length > 0 ? parts.chars : "",
                      100 * fmax(idle, 0));
        tri_text_add(text, "</rect>\n");
        tri_text_fini(&parts);
    }
}

static void draw_legend(const tri_shares *s, tri_text *text)
{
    double x = LEFT, y = TOP + HEIGHT + 54, idle = 1;
    for (int k = 0; k <= (int)s->c->sim->num_axes; k++) {
        char name[64], entry[96];
        double share = share_of(s, k, 0, COLUMNS);
        name_of(s, k, name, sizeof name);
        snprintf(entry, sizeof entry, "%s %.1f %%", name, 100 * share);
        idle -= share;
        if (share < 5e-5)
            continue;
        if (x + tri_svg_text_width(entry, 12) + 18 > LEFT + WIDTH) {
            x = LEFT;
            y += 22;
        }
        x = tri_svg_key(text, x, y, fill_of(k), entry);
    }
    tri_text_add(text, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\">empty: idle %.1f %%</text>\n", x,
                 y + 11, 100 * fmax(idle, 0));
}

bool tri_shares_draw(const tri_shares *s, tri_text *text)
{
    picture_clock clock = tri_picture_clock(s->c->sim->timing.seconds, 10);
    tri_ruler y;
    tri_ruler_fit(&y, 0, 100, 5, true);
    tri_svg_begin(text, TRI_PICTURE_MARK, LEFT + WIDTH + RIGHT, TOP + HEIGHT + 110);
    tri_picture_head(s->c, text, LEFT, "what the ranks do");
    for (int k = 0; k <= (int)s->c->sim->num_axes; k++)
        if (share_of(s, k, 0, COLUMNS) > 0)
            draw_entry(s, k, &y, text);
    tri_svg_axes(text, &field, &clock.ruler, clock.title, &y, "% of the ranks");
    draw_stripes(s, text);
    draw_legend(s, text);
    tri_svg_end(text);
    return true;
}
