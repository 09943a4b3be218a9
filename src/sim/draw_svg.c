/* A simulated schedule as a picture, in the manner of the papers: a row for each rank, coloured by
 * what is done, numbered by micro-batch, idle time hatched; under each row the activations that the
 * rank holds. Plain SVG without scripts or fonts of its own. */
#include <math.h>
#include <stdlib.h>

#include "base/draw/ruler.h"
#include "sim/picture/action_style.h"
#include "sim/sim.h"

enum {
    LEFT = 64,
    TOP = 58,
    ROW = 26,
    CURVE = 16,
    GAP = 8,
    RIGHT = 76,
    WIDEST = 12000,
    SHOWN = 1600, /* pixels; what is wider is scaled down, and grows again when it is looked into */
    MOST_CELLS = 20000
};

typedef struct svg_picture {
    const tri_sim *sim;
    const tri_schedule *schedule;
    tri_text *text;
    double scale;  /* pixels for a unit of time */
    double width;  /* of the rows */
    double number; /* pixels that the largest number takes */
    uint32_t peak;
} svg_picture;

static double y_of(uint32_t rank)
{
    return TOP + (double)rank * (ROW + CURVE + GAP);
}

static double x_of(const svg_picture *p, double time)
{
    return LEFT + time * p->scale;
}

static uint32_t lowest_chunk(const tri_action_list *list)
{
    uint32_t lowest = UINT32_MAX;
    for (size_t i = 0; i < list->count; i++)
        lowest = list->actions[i].chunk < lowest ? list->actions[i].chunk : lowest;
    return lowest;
}

/* Two halves of a pair that ran as one share its height. */
static void draw_cell(const svg_picture *p, uint32_t rank, size_t i, uint32_t lowest)
{
    const tri_action *actions = p->schedule->ranks[rank].actions, *a = &actions[i];
    uint32_t id = p->sim->index.first[rank] + (uint32_t)i;
    double start = p->sim->start[id], end = p->sim->end[id];
    if (!tri_action_computes(a->kind) || end - start < 1e-9)
        return;
    bool upper = a->overlap && p->sim->start[id + 1] == start;
    bool lower = i > 0 && actions[i - 1].overlap && p->sim->start[id - 1] == start;
    upper &= !lower; /* I and W of a pair lie below its F */
    double x = x_of(p, start), w = (end - start) * p->scale, y = y_of(rank), h = ROW;
    if (upper || lower)
        h = ROW / 2.0;
    if (lower)
        y += ROW / 2.0;
    int shade = a->chunk != lowest;
    tri_text_add(p->text,
                 "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" "
                 "stroke=\"#ffffff\" stroke-width=\"%.1f\"/>\n",
                 x, y, w, h, tri_action_style_of(a->kind)->fill[shade], w > 5 ? 1.0 : 0.2);
    if (w < p->number)
        return;
    tri_text_add(p->text, "<text x=\"%.2f\" y=\"%.1f\" class=\"n\" fill=\"%s\">%u</text>\n",
                 x + w / 2, y + h / 2 + (h < ROW ? 3.5 : 4.5),
                 tri_action_style_of(a->kind)->ink[shade], a->microbatch);
}

/* Steps up where a forward starts, down where its W or B ends. */
static void draw_curve(const svg_picture *p, uint32_t rank)
{
    const tri_action_list *list = &p->schedule->ranks[rank];
    double base = y_of(rank) + ROW + CURVE, step = (CURVE - 2.0) / p->peak;
    uint32_t live = 0;
    tri_text_add(p->text, "<path d=\"M%.2f %.2f", (double)LEFT, base);
    for (size_t i = 0; i < list->count; i++) {
        uint32_t id = p->sim->index.first[rank] + (uint32_t)i;
        tri_action_kind kind = list->actions[i].kind;
        if (kind == TRI_ACTION_F)
            tri_text_add(p->text, "H%.2fV%.2f", x_of(p, p->sim->start[id]), base - ++live * step);
        else if (kind == TRI_ACTION_B || kind == TRI_ACTION_W)
            tri_text_add(p->text, "H%.2fV%.2f", x_of(p, p->sim->end[id]), base - --live * step);
    }
    tri_text_add(p->text,
                 "H%.2fV%.2fZ\" fill=\"#c9cdd4\" stroke=\"#7c8594\" "
                 "stroke-width=\"0.8\"/>\n",
                 LEFT + p->width, base);
    tri_text_add(p->text, "<text x=\"%.1f\" y=\"%.1f\" class=\"s\">%u live</text>\n",
                 LEFT + p->width + 6, base - 3, p->sim->ranks[rank].peak_live);
}

static void draw_rank(const svg_picture *p, uint32_t rank)
{
    const tri_action_list *list = &p->schedule->ranks[rank];
    const tri_sim_rank *r = &p->sim->ranks[rank];
    uint32_t lowest = lowest_chunk(list);
    double y = y_of(rank);
    tri_text_add(p->text, "<text x=\"%d\" y=\"%.1f\" class=\"l\">rank %u</text>\n", LEFT - 8,
                 y + ROW / 2.0 + 4.5, rank);
    tri_text_add(p->text,
                 "<rect x=\"%d\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"url(#idle)\" "
                 "stroke=\"#d5d8de\" stroke-width=\"0.6\"/>\n",
                 LEFT, y, p->width, ROW);
    for (size_t i = 0; i < list->count; i++)
        draw_cell(p, rank, i, lowest);
    if (r->update > 0)
        tri_text_add(p->text,
                     "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n",
                     x_of(p, r->end), y, r->update * p->scale, ROW,
                     tri_action_style_of(TRI_ACTION_U)->fill[0]);
    double span = r->end - r->start;
    tri_text_add(p->text, "<text x=\"%.1f\" y=\"%.1f\" class=\"s\">%.1f %% idle</text>\n",
                 LEFT + p->width + 6, y + ROW / 2.0 + 4,
                 span > 0 ? 100 * (1 - r->busy / span) : 0.0);
    draw_curve(p, rank);
}

/* Ticks at 1, 2 or 5 times a power of ten, some fifty pixels apart. */
static void draw_axis(const svg_picture *p, double y)
{
    double step = tri_ruler_step(40 / p->scale);
    for (double t = 0; t <= p->sim->makespan + 1e-9; t += step)
        tri_text_add(p->text,
                     "<line x1=\"%.2f\" y1=\"%.1f\" x2=\"%.2f\" y2=\"%.1f\" stroke=\"#7c8594\"/>"
                     "<text x=\"%.2f\" y=\"%.1f\" class=\"t\">%g</text>\n",
                     x_of(p, t), y, x_of(p, t), y + 4, x_of(p, t), y + 16, t);
}

static void draw_legend(const svg_picture *p, double y)
{
    bool seen[TRI_NUM_ACTIONS] = {false}, two = false;
    for (uint32_t r = 0; r < p->schedule->num_ranks; r++) {
        uint32_t lowest = lowest_chunk(&p->schedule->ranks[r]);
        seen[TRI_ACTION_U] |= p->sim->ranks[r].update > 0;
        for (size_t i = 0; i < p->schedule->ranks[r].count; i++) {
            const tri_action *a = &p->schedule->ranks[r].actions[i];
            if (tri_action_computes(a->kind))
                seen[a->kind] = true;
            two = two || a->chunk != lowest;
        }
    }
    double x = LEFT;
    for (int k = 0; k < TRI_NUM_ACTIONS; k++) {
        if (!seen[k])
            continue;
        tri_text_add(p->text,
                     "<rect x=\"%.1f\" y=\"%.1f\" width=\"13\" height=\"13\" fill=\"%s\"/>"
                     "<text x=\"%.1f\" y=\"%.1f\" class=\"k\">%s</text>\n",
                     x, y, tri_action_style_of((tri_action_kind)k)->fill[0], x + 18, y + 11,
                     tri_action_style_of((tri_action_kind)k)->meaning);
        x += k == TRI_ACTION_B ? 160 : k == TRI_ACTION_F ? 92 : 140;
    }
    tri_text_add(p->text,
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"13\" height=\"13\" fill=\"url(#idle)\" "
                 "stroke=\"#d5d8de\"/><text x=\"%.1f\" y=\"%.1f\" class=\"k\">idle</text>\n"
                 "<text x=\"%d\" y=\"%.1f\" class=\"k\">%sgrey curve: activations held, in "
                 "chunks</text>\n",
                 x, y, x + 18, y + 11, LEFT, y + 31,
                 two ? "darker: the rank's further chunks;  " : "");
}

static void draw_all(const svg_picture *p, const char *title, double width, double height)
{
    tri_text_add(p->text,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                 "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n"
                 "<style>.n{font-size:11px;text-anchor:middle}"
                 ".l{font-size:12px;text-anchor:end;fill:#2b313b}"
                 ".s{font-size:10px;fill:#4a5361}.t{font-size:10px;text-anchor:middle;"
                 "fill:#4a5361}.k{font-size:12px;fill:#2b313b}</style>\n"
                 "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" "
                 "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
                 "<rect width=\"6\" height=\"6\" fill=\"#f3f4f6\"/>"
                 "<rect width=\"2\" height=\"6\" fill=\"#e1e4e9\"/></pattern></defs>\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                 fmin(width, SHOWN), height * fmin(1, SHOWN / width), width, height);
    tri_text_add(p->text,
                 "<text x=\"%d\" y=\"24\" font-size=\"16\" font-weight=\"bold\" fill=\"#1c2128\">",
                 LEFT);
    tri_text_add_svg(p->text, title);
    tri_text_add(p->text,
                 "</text>\n<text x=\"%d\" y=\"43\" class=\"k\">time %g, of which a rank works %g;  "
                 "bubble %.1f %%;  at most %u chunk%s live on a rank;  %g weight cop%s</text>\n",
                 LEFT, p->sim->makespan, p->sim->work, 100 * p->sim->bubble, p->peak,
                 p->peak == 1 ? "" : "s", p->sim->weight_copies,
                 p->sim->weight_copies == 1 ? "y" : "ies");
    for (uint32_t r = 0; r < p->schedule->num_ranks; r++)
        draw_rank(p, r);
    double bottom = y_of(p->schedule->num_ranks);
    draw_axis(p, bottom);
    draw_legend(p, bottom + 30);
    tri_text_add(p->text, "</svg>\n");
}

/* So wide that the numbers fit into the shortest action, unless it would be very wide or the action
 * is very short beside the others. */
static void choose_scale(svg_picture *p)
{
    const tri_sim *sim = p->sim;
    const double least_share = 0.2; /* of an average action */
    double makespan = sim->makespan > 0 ? sim->makespan : 1, shortest = makespan, sum = 0;
    size_t num = 0;
    for (uint32_t r = 0; r < p->schedule->num_ranks; r++)
        for (size_t i = 0; i < p->schedule->ranks[r].count; i++) {
            uint32_t id = sim->index.first[r] + (uint32_t)i;
            double length = sim->end[id] - sim->start[id];
            if (!tri_action_computes(p->schedule->ranks[r].actions[i].kind) || length <= 1e-9)
                continue;
            shortest = fmin(shortest, length);
            sum += length;
            num++;
        }
    if (num > 0)
        shortest = fmax(shortest, least_share * sum / (double)num);
    p->number = 9;
    for (uint32_t m = p->schedule->num_microbatches - 1; m >= 10; m /= 10)
        p->number += 7;
    double wanted = p->number / shortest;
    if (wanted * makespan > WIDEST)
        wanted = WIDEST / makespan;
    p->scale = fmin(30 / shortest, fmax(1100 / makespan, wanted));
    p->width = makespan * p->scale;
}

tr_status tri_sim_draw_svg(const tri_sim *sim, const char *title, tri_text *text, tr_error *err)
{
    const tri_schedule *s = sim->index.schedule;
    if (sim->index.num_actions > MOST_CELLS * 2)
        return tri_fail(err, TR_ERROR_INPUT,
                        "a picture of %u actions could not be read; draw fewer ranks or "
                        "micro-batches (up to %d actions)",
                        sim->index.num_actions, MOST_CELLS * 2);
    svg_picture p = {.sim = sim, .schedule = s, .text = text, .peak = 1};
    for (uint32_t r = 0; r < s->num_ranks; r++)
        if (sim->ranks[r].peak_live > p.peak)
            p.peak = sim->ranks[r].peak_live;
    choose_scale(&p);
    double width = LEFT + fmax(p.width, 620) + RIGHT;
    draw_all(&p, title, width, y_of(s->num_ranks) + 76);
    if (text->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture");
    return TR_OK;
}
