/* The roofline of the device, and where the operators of the slowest stage are below it: a dot for
 * each kind, all of its instructions of the step together. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/picture/picture_parts.h"

enum {
    LEFT = 84,
    TOP = 62,
    WIDTH = 760,
    HEIGHT = 460,
    TABLE = LEFT + WIDTH + 156, /* the list beside it */
    RIGHT = 460,
    LISTED = 18,
    NAMED = 10,        /* beside their dots */
    MARKS = 2 * WIDTH, /* that keep names clear of the slopes */
    PLACES = 8         /* around a dot, where its name may go */
};

static const tri_svg_field field = {LEFT, TOP, WIDTH, HEIGHT};

/* Instructions of a kind; products of 8-bit operands are another one. */
typedef struct operators {
    const char *name;
    bool float8;
    double flops, bytes, seconds;
} operators;

typedef struct box {
    double x, y, width, height;
} box;

typedef struct roofline_picture {
    const tri_picture_case *c;
    tri_text *text;
    operators *kinds;
    size_t num;
    double seconds; /* of all */
    tri_ruler x, y;
    box *taken;
    size_t num_taken;
} roofline_picture;

/* ---- sums ---- */

static void add_instr(roofline_picture *p, const tri_program *program, uint32_t i, double runs)
{
    const tri_cost_table *costs = &p->c->step->costs;
    const tri_instr *instr = &program->instrs[i];
    const char *name = tri_op_get(instr->op)->name;
    bool float8 = tri_instr_float8(program, instr);
    size_t k = 0;
    while (k < p->num && (strcmp(p->kinds[k].name, name) != 0 || p->kinds[k].float8 != float8))
        k++;
    if (k == p->num)
        p->kinds[p->num++] = (operators){.name = name, .float8 = float8};
    double seconds = runs * costs->instr(costs->context, program, i);
    p->kinds[k].flops += runs * instr->cost.flops;
    p->kinds[k].bytes += runs * instr->cost.bytes;
    p->kinds[k].seconds += seconds;
    p->seconds += seconds;
}

static int by_time(const void *a, const void *b)
{
    const operators *x = a, *y = b;
    return x->seconds == y->seconds ? strcmp(x->name, y->name) : x->seconds < y->seconds ? 1 : -1;
}

static void add_up(roofline_picture *p, const tri_program *program)
{
    for (size_t s = 0; s < program->num_segments; s++) {
        const tri_segment *segment = &program->segments[s];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            double runs = 0;
            if (program->instrs[i].message != TRI_NONE)
                continue;
            for (size_t c = 0; c < program->num_calls; c++)
                runs += program->calls[c].segment == s &&
                        tri_call_runs(&program->calls[c], &program->instrs[i]);
            if (runs > 0)
                add_instr(p, program, i, runs);
        }
    }
    qsort(p->kinds, p->num, sizeof *p->kinds, by_time);
}

/* Whether it has a speed; and a dot, since its time is worth one. */
static bool computes(const operators *k)
{
    return k->flops > 0 && k->bytes > 0 && k->seconds > 0;
}

static bool has_dot(const roofline_picture *p, const operators *k)
{
    const double least = 2e-3;
    return computes(k) && k->seconds >= least * p->seconds;
}

static double intensity(const operators *k)
{
    return k->flops / k->bytes;
}

static double reached(const operators *k)
{
    return k->flops / k->seconds;
}

/* ---- drawing ---- */

static void fit(roofline_picture *p)
{
    const tri_device_spec *device = p->c->device;
    double left = 0.1, right = 1000, top = 0, bottom = INFINITY;
    for (int r = 0; r < TRI_RATE_INT8; r++) {
        top = fmax(top, device->dense[r]);
        right = fmax(right, 3 * device->dense[r] / device->memory_bytes_per_s);
    }
    for (size_t k = 0; k < p->num; k++)
        if (has_dot(p, &p->kinds[k])) {
            left = fmin(left, intensity(&p->kinds[k]) / 2);
            right = fmax(right, 3 * intensity(&p->kinds[k]));
            bottom = fmin(bottom, reached(&p->kinds[k]) / 3);
        }
    bottom = fmin(bottom, left * device->memory_bytes_per_s);
    tri_ruler_fit_log(&p->x, left, right, 9);
    tri_ruler_fit_log(&p->y, bottom, 2 * top, 9);
}

static double x_at(const roofline_picture *p, double value)
{
    return tri_svg_x(&field, &p->x, value);
}

static double y_at(const roofline_picture *p, double value)
{
    return tri_svg_y(&field, &p->y, value);
}

/* A product rate, from the memory's slope on; with share < 1 dashed. */
static void draw_roof(const roofline_picture *p, double rate, double share, bool slope)
{
    double memory = p->c->device->memory_bytes_per_s * share;
    double right = pow(10, p->x.high), left = pow(10, p->x.low), ridge = rate / memory * share;
    tri_text_add(p->text, "<path fill=\"none\" stroke=\"#7c8594\" stroke-width=\"%s\"%s d=\"M",
                 share < 1 ? "1.1" : "1.8", share < 1 ? " stroke-dasharray=\"6 4\"" : "");
    if (slope)
        tri_text_add(p->text, "%.1f %.1fL", x_at(p, left), y_at(p, left * memory));
    tri_text_add(p->text, "%.1f %.1fL%.1f %.1f\"/>\n", x_at(p, ridge), y_at(p, rate * share),
                 x_at(p, right), y_at(p, rate * share));
}

/* Names keep clear of the memory's slope. */
static void take_slope(roofline_picture *p, double memory)
{
    enum { EVERY = 4 };
    for (int at = 0; at < WIDTH; at += EVERY) {
        double y = y_at(p, memory * pow(10, p->x.low + at * (p->x.high - p->x.low) / WIDTH));
        p->taken[p->num_taken++] = (box){LEFT + at, y - 2, EVERY, 4};
    }
}

/* Along the slope of the memory, at its foot. */
static void draw_slope_name(roofline_picture *p)
{
    double memory = p->c->device->memory_bytes_per_s;
    double angle = -atan2(HEIGHT / (p->y.high - p->y.low), WIDTH / (p->x.high - p->x.low));
    char rate[16];
    const double along = 16;
    double y = y_at(p, memory * pow(10, p->x.low + along * (p->x.high - p->x.low) / WIDTH));
    double x = LEFT + along + 7 * sin(angle);
    y -= 7 * cos(angle);
    tri_text_add(p->text,
                 "<text class=\"s\" style=\"font-size:11px\" x=\"%.1f\" y=\"%.1f\" "
                 "transform=\"rotate(%.1f %.1f %.1f)\">memory: %sB/s</text>\n",
                 x, y, angle * 180 / M_PI, x, y, tri_text_count(memory, rate));
}

/* Rates of products, the greatest first; names to the right, apart from each other. */
static void draw_rates(roofline_picture *p)
{
    const tri_device_spec *device = p->c->device;
    double above = INFINITY, written = 0, share = p->c->share;
    for (;;) {
        int rate = -1;
        char text[16];
        for (int r = 0; r < TRI_RATE_INT8; r++)
            if (device->dense[r] > 0 && device->dense[r] < above &&
                (rate < 0 || device->dense[r] > device->dense[rate]))
                rate = r;
        if (rate < 0)
            return;
        double flops = device->dense[rate];
        bool highest = isinf(above);
        draw_roof(p, flops, 1, highest);
        if (share > 0 && share < 1 && (rate == (int)p->c->rate || highest))
            draw_roof(p, flops, share, highest);
        double y = fmax(y_at(p, flops) + 4, written + 13);
        double ridge = x_at(p, flops / device->memory_bytes_per_s);
        p->taken[p->num_taken++] = (box){ridge, y_at(p, flops) - 2, LEFT + WIDTH - ridge, 4};
        tri_text_add(p->text, "<text class=\"s\" style=\"font-size:11px\" x=\"%d\" y=\"%.1f\">",
                     LEFT + WIDTH + 6, y);
        for (int r = 0, num = 0; r < TRI_RATE_INT8; r++) /* those that are as fast */
            if (device->dense[r] == flops)
                tri_text_add(p->text, "%s%s", num++ ? ", " : "", tri_rate_name((tri_rate)r));
        tri_text_add(p->text, " %sFLOP/s</text>\n", tri_text_count(flops, text));
        written = y;
        above = flops;
    }
}

static double radius(const roofline_picture *p, const operators *k)
{
    return 3 + 17 * sqrt(k->seconds / p->seconds);
}

static void full_name(const operators *k, char *name, size_t size)
{
    snprintf(name, size, "%s%s", k->name, k->float8 ? " of 8 bits" : "");
}

static void draw_dots(roofline_picture *p)
{
    for (size_t i = 0; i < p->num; i++) {
        const operators *k = &p->kinds[i];
        char name[96];
        if (!has_dot(p, k))
            continue;
        double x = x_at(p, intensity(k)), y = y_at(p, reached(k)), r = radius(p, k);
        full_name(k, name, sizeof name);
        tri_text_add(p->text,
                     "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"#e08a1e\" "
                     "fill-opacity=\"0.75\" stroke=\"#8a5208\">",
                     x, y, r);
        tri_svg_hover(p->text, "%s: %.6g ms, %.3g %% of computing; %.4g FLOP a byte, %.4g FLOP/s",
                      name, 1e3 * k->seconds, 100 * k->seconds / p->seconds, intensity(k),
                      reached(k));
        tri_text_add(p->text, "</circle>\n");
        p->taken[p->num_taken++] = (box){x - r, y - r, 2 * r, 2 * r};
    }
}

static bool is_free(const roofline_picture *p, const box *b)
{
    if (b->x < LEFT + 3 || b->x + b->width > LEFT + WIDTH - 3 || b->y < TOP + 3 ||
        b->y + b->height > TOP + HEIGHT - 3)
        return false;
    for (size_t i = 0; i < p->num_taken; i++) {
        const box *o = &p->taken[i];
        if (b->x < o->x + o->width && o->x < b->x + b->width && b->y < o->y + o->height &&
            o->y < b->y + b->height)
            return false;
    }
    return true;
}

/* Beside the dot, wherever nothing is yet; the list has all of them anyway. */
static void draw_name(roofline_picture *p, const operators *k)
{
    static const double dx[PLACES] = {1, 1, 1, -1, -1, -1, 0, 0};
    static const double dy[PLACES] = {0, 1, -1, 0, 1, -1, 1, -1};
    char name[96];
    full_name(k, name, sizeof name);
    double width = tri_svg_text_width(name, 11) + 2, r = radius(p, k);
    double x = x_at(p, intensity(k)), y = y_at(p, reached(k));
    for (int far = 0; far < 6; far++)
        for (int place = 0; place < PLACES; place++) {
            double away = r + 3 + 14 * far;
            double cx = x + dx[place] * away * (dy[place] != 0 ? 0.75 : 1);
            double cy = y + dy[place] * (away + 5) * (dx[place] != 0 ? 0.75 : 1);
            box b = {dx[place] > 0   ? cx
                     : dx[place] < 0 ? cx - width
                                     : cx - width / 2,
                     cy - 7, width, 13};
            if (!is_free(p, &b))
                continue;
            if (far > 0)
                tri_text_add(p->text,
                             "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                             "stroke=\"#7c8594\" stroke-width=\"0.7\"/>\n",
                             x, y, cx, cy);
            tri_text_add(p->text,
                         "<text class=\"t\" font-size=\"11\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                         b.x + 1, b.y + 10.5, name);
            p->taken[p->num_taken++] = b;
            return;
        }
}

static void draw_list(const roofline_picture *p)
{
    double y = TOP + 4;
    tri_text_add(p->text,
                 "<text class=\"t\" x=\"%d\" y=\"%.1f\" font-weight=\"bold\">share of "
                 "computing</text>\n",
                 TABLE, y);
    for (size_t i = 0; i < p->num && i < LISTED; i++) {
        const operators *k = &p->kinds[i];
        char name[96], rate[16];
        full_name(k, name, sizeof name);
        y += 23;
        tri_text_add(p->text,
                     "<text class=\"t\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.1f %%</text>"
                     "<text class=\"t\" x=\"%d\" y=\"%.1f\">%s</text>"
                     "<text class=\"s\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s%s</text>\n",
                     TABLE + 44, y, 100 * k->seconds / p->seconds, TABLE + 54, y, name, TABLE + 290,
                     y, computes(k) ? tri_text_count(reached(k), rate) : "no arithmetic",
                     computes(k) ? "FLOP/s" : "");
    }
}

static void draw(roofline_picture *p)
{
    char what[96];
    if (p->c->step->num_stages > 1)
        snprintf(what, sizeof what, "roofline of %s, and the operators of stage %u, the slowest",
                 p->c->device->title, p->c->sim->slowest);
    else
        snprintf(what, sizeof what, "roofline of %s, and the operators of a step",
                 p->c->device->title);
    fit(p);
    tri_svg_begin(p->text, TRI_PICTURE_MARK, LEFT + WIDTH + RIGHT, TOP + HEIGHT + 80);
    tri_picture_head(p->c, p->text, LEFT, what);
    tri_svg_axes(p->text, &field, &p->x, "FLOP for each byte of memory traffic", &p->y, "FLOP/s");
    draw_rates(p);
    draw_slope_name(p);
    take_slope(p, p->c->device->memory_bytes_per_s);
    if (p->c->share > 0)
        take_slope(p, p->c->device->memory_bytes_per_s * p->c->share);
    draw_dots(p);
    for (size_t i = 0, named = 0; i < p->num && named < NAMED; i++)
        if (has_dot(p, &p->kinds[i])) {
            draw_name(p, &p->kinds[i]);
            named++;
        }
    draw_list(p);
    tri_text_add(p->text,
                 "<text class=\"t\" x=\"%d\" y=\"%d\">area of a dot: its share of the time "
                 "that is computed",
                 LEFT, TOP + HEIGHT + 62);
    if (p->c->share > 0 && p->c->share < 1)
        tri_text_add(p->text, "; dashed: %.0f %% of the datasheet, which is taken to be reached",
                     100 * p->c->share);
    tri_text_add(p->text, "</text>\n");
    tri_svg_end(p->text);
}

bool tri_roofline_draw(const tri_picture_case *c, tri_text *text)
{
    const tri_program *program = c->step->programs[c->sim->slowest];
    roofline_picture p = {.c = c, .text = text};
    p.kinds = calloc(program->num_instrs + 1, sizeof *p.kinds);
    p.taken = calloc(2 * (program->num_instrs + 1) + MARKS, sizeof *p.taken);
    bool made = p.kinds && p.taken;
    if (made) {
        add_up(&p, program);
        draw(&p);
    }
    free(p.kinds);
    free(p.taken);
    return made;
}
