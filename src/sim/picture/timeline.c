/* A row for what one rank of each stage computes and waits for, and one for each of its lanes of
 * messages. What is narrower than a pixel is drawn together with its neighbours. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"
#include "sim/picture/action_style.h"
#include "sim/picture/picture_parts.h"

enum {
    LEFT = 118,
    TOP = 62,
    WIDTH = 1600,
    RIGHT = 140,
    COMPUTE = 22, /* heights */
    MESSAGES = 13,
    LEAST = 2, /* pixels of a piece that can be pointed at */
    GAP = 3,
    STAGE_GAP = 7,
    /* Looks: actions in two shades, waits for each axis, messages over each. */
    WAITS = 2 * TRI_NUM_ACTIONS,
    TRANSFERS = WAITS + TRI_STEP_MAX_AXES,
    NUM_LOOKS = TRANSFERS + TRI_STEP_MAX_AXES
};

typedef struct timeline_piece {
    double start, end; /* seconds */
    double filled;     /* of these: gaps may be in it, too */
    double lead;       /* of its look, before the others that went into it */
    uint32_t id;       /* of its call or message, if count is 1 */
    uint32_t count;
    uint32_t look;
} timeline_piece;

/* The longest time that calls which run as one were at it without idling: there stands their
 * number. */
typedef struct work_stretch {
    double start, end, longest_start, longest_end;
} work_stretch;

typedef struct row {
    uint32_t class, lane; /* lane TRI_NONE: it computes */
    uint32_t next;        /* row of this class, or TRI_NONE */
    uint32_t group;       /* of the program; TRI_NONE: of no group, or of several */
    timeline_piece *pieces;
    size_t num, capacity;
    double busy; /* seconds */
    double y;
} row;

struct tri_timeline {
    const tri_picture_case *c;
    row *rows; /* the first are those that compute, one of each stage */
    size_t num_rows, rows_capacity;
    uint32_t *lowest;       /* chunk of each stage */
    work_stretch **at_work; /* of each stage, of its calls */
    double pixel;           /* seconds */
    bool failed;
};

/* ---- while it is timed ---- */

static uint32_t lowest_chunk(const tri_program *program)
{
    uint32_t lowest = UINT32_MAX;
    for (size_t s = 0; s < program->num_segments; s++)
        if (program->segments[s].action == TRI_ACTION_F &&
            (uint32_t)program->segments[s].chunk < lowest)
            lowest = (uint32_t)program->segments[s].chunk;
    return lowest;
}

tri_timeline *tri_timeline_begin(const tri_picture_case *c)
{
    tri_timeline *t = calloc(1, sizeof *t);
    uint32_t num = c->step->num_stages;
    if (!t)
        return NULL;
    t->c = c;
    t->pixel = c->sim->timing.seconds / WIDTH;
    t->rows = calloc(num, sizeof *t->rows);
    t->lowest = calloc(num, sizeof *t->lowest);
    t->at_work = calloc(num, sizeof *t->at_work);
    bool made = t->rows && t->lowest && t->at_work;
    t->num_rows = t->rows_capacity = t->rows ? num : 0;
    for (uint32_t s = 0; s < num && made; s++) {
        t->rows[s] = (row){.class = s, .lane = TRI_NONE, .next = TRI_NONE};
        t->lowest[s] = lowest_chunk(c->step->programs[s]);
        t->at_work[s] = calloc(c->step->programs[s]->num_calls + 1, sizeof **t->at_work);
        made = t->at_work[s];
    }
    if (made)
        return t;
    tri_timeline_end(t);
    return NULL;
}

void tri_timeline_end(tri_timeline *t)
{
    for (size_t r = 0; t && t->rows && r < t->num_rows; r++)
        free(t->rows[r].pieces);
    for (uint32_t s = 0; t && t->at_work && s < t->c->step->num_stages; s++)
        free(t->at_work[s]);
    if (t) {
        free(t->at_work);
        free(t->rows);
        free(t->lowest);
    }
    free(t);
}

/* A lane has the name of its messages' group, as long as they have one. */
static row *lane_row(tri_timeline *t, const tri_timing_event *event)
{
    uint32_t group = t->c->step->programs[event->class]->messages[event->message].group;
    uint32_t last = event->class;
    for (uint32_t r = last; r != TRI_NONE; r = t->rows[r].next) {
        last = r;
        if (t->rows[r].lane == event->lane) {
            t->rows[r].group = t->rows[r].group == group ? group : TRI_NONE;
            return &t->rows[r];
        }
    }
    row *rows = tri_array_grow(t->rows, t->num_rows, &t->rows_capacity, sizeof *rows);
    if (!rows)
        return NULL;
    t->rows = rows;
    rows[last].next = (uint32_t)t->num_rows;
    rows[t->num_rows] =
        (row){.class = event->class, .lane = event->lane, .next = TRI_NONE, .group = group};
    return &rows[t->num_rows++];
}

/* Whether a piece goes into the one before it, since one could not tell them apart. */
static bool joins(const tri_timeline *t, const timeline_piece *last, const timeline_piece *p)
{
    double gap = p->start - last->end;
    if (last->look == p->look && last->id == p->id && last->count == 1 && gap < t->pixel / 4)
        return true;
    return gap < t->pixel / 2 && last->end - last->start < t->pixel && p->end - p->start < t->pixel;
}

static void add_piece(tri_timeline *t, row *r, timeline_piece p)
{
    timeline_piece *last = r->num > 0 ? &r->pieces[r->num - 1] : NULL;
    if (last && joins(t, last, &p)) {
        if (last->id != p.id || last->look != p.look)
            last->count++;
        bool overtakes = last->look != p.look && last->lead < p.lead;
        last->lead = last->look == p.look ? last->lead + p.lead : fabs(last->lead - p.lead);
        last->look = overtakes ? p.look : last->look;
        last->filled += p.filled;
        last->end = p.end;
        return;
    }
    timeline_piece *pieces = tri_array_grow(r->pieces, r->num, &r->capacity, sizeof *pieces);
    t->failed |= !pieces;
    if (!pieces)
        return;
    r->pieces = pieces;
    pieces[r->num++] = p;
}

static void note_work(tri_timeline *t, const tri_timing_event *event)
{
    const tri_program *program = t->c->step->programs[event->class];
    uint32_t nth = event->call < program->num_calls ? program->calls[event->call].nth : 0;
    work_stretch *s = &t->at_work[event->class][event->call - nth];
    if (event->start > s->end + 2 * t->pixel || s->end <= 0)
        s->start = event->start;
    s->end = event->end;
    if (s->end - s->start > s->longest_end - s->longest_start) {
        s->longest_start = s->start;
        s->longest_end = s->end;
    }
}

void tri_timeline_add(tri_timeline *t, const tri_timing_event *event)
{
    const tri_program *program = t->c->step->programs[event->class];
    double seconds = event->end - event->start;
    timeline_piece p = {
        .start = event->start, .end = event->end, .filled = seconds, .lead = seconds, .count = 1};
    row *r = &t->rows[event->class];
    if (event->what == TRI_DOES_IDLE)
        return;
    if (event->what != TRI_DOES_MESSAGE)
        note_work(t, event);
    if (event->what == TRI_DOES_COMPUTE) {
        const tri_segment *segment = &program->segments[program->calls[event->call].segment];
        bool further =
            segment->action != TRI_ACTION_U && (uint32_t)segment->chunk != t->lowest[event->class];
        p.id = event->call;
        p.look = 2 * (uint32_t)segment->action + further;
        r->busy += seconds;
    } else {
        uint32_t axis = tri_picture_axis(t->c, event->class, event->message);
        p.id = event->message;
        p.look = (event->what == TRI_DOES_WAIT ? WAITS : TRANSFERS) + axis;
    }
    if (event->what == TRI_DOES_MESSAGE) {
        r = lane_row(t, event);
        t->failed |= !r;
        if (r)
            r->busy += seconds;
    }
    if (r)
        add_piece(t, r, p);
}

/* ---- drawing ---- */

static double x_of(const tri_timeline *t, double seconds)
{
    return LEFT + seconds / t->pixel;
}

static const char *fill_of(uint32_t look)
{
    if (look < WAITS)
        return tri_action_style_of((tri_action_kind)(look / 2))->fill[look % 2];
    return tri_picture_axis_colour((look - WAITS) % TRI_STEP_MAX_AXES);
}

static void hover(const tri_timeline *t, const row *r, const timeline_piece *p, tri_text *text)
{
    const tri_program *program = t->c->step->programs[r->class];
    char what[160] = "", bytes[16];
    if (p->count > 1)
        snprintf(what, sizeof what, "%u short pieces", p->count);
    else if (p->look < WAITS) {
        const tri_call *call = &program->calls[p->id];
        const tri_segment *segment = &program->segments[call->segment];
        char name[24];
        tri_segment_text(program, segment, name);
        if (segment->action == TRI_ACTION_U)
            snprintf(what, sizeof what, "%s", name);
        else
            snprintf(what, sizeof what, "%s of micro-batch %u", name, call->microbatch);
    } else {
        const tri_message *m = &program->messages[p->id];
        char over[64];
        tri_message_lane_text(program, m, over, sizeof over);
        snprintf(what, sizeof what, "%s%s %s, %s, %.60s", p->look < TRANSFERS ? "waits for " : "",
                 tri_message_kind_name(m->kind), over,
                 tri_text_bytes((double)tri_message_bytes(m), bytes),
                 m->value == TRI_NONE ? "" : program->values[m->value].name);
    }
    tri_svg_hover(text, "%s: %.6g to %.6g ms", what, 1e3 * p->start, 1e3 * p->end);
}

static double height_of(const row *r)
{
    return r->lane == TRI_NONE ? COMPUTE : MESSAGES;
}

/* Faint: a wait; and what is drawn together, as far as there are gaps in it. In fifths. */
static int strength_of(const timeline_piece *p)
{
    double share = p->count > 1 ? p->filled / (p->end - p->start) : 1;
    if (p->look >= WAITS && p->look < TRANSFERS)
        share *= 0.5;
    return share > 0.2 ? (int)ceil(5 * share - 0.5) : 1;
}

/* Whether it has a text of its own: where it can be pointed at; and the last one of a row, which
 * says when that ends. */
static bool speaks(const tri_timeline *t, const row *r, size_t i)
{
    return i + 1 == r->num || r->pieces[i].end - r->pieces[i].start >= LEAST * t->pixel;
}

static void draw_short(const tri_timeline *t, const row *r, uint32_t look, int strength,
                       tri_text *text)
{
    bool path = false;
    for (size_t i = 0; i < r->num; i++) {
        const timeline_piece *p = &r->pieces[i];
        double width = (p->end - p->start) / t->pixel;
        if (p->look != look || speaks(t, r, i) || strength_of(p) != strength)
            continue;
        if (!path)
            tri_text_add(text, "<path fill=\"%s\" opacity=\"%g\" d=\"", fill_of(look),
                         strength / 5.0);
        path = true;
        tri_text_add(text, "M%.2f %.1fh%.2fv%gh-%.2fz", x_of(t, p->start), r->y, width,
                     height_of(r), width);
    }
    if (path)
        tri_text_add(text, "\"/>\n");
}

/* Pieces that say something are elements; the others of a look are one path. */
static void draw_look(const tri_timeline *t, const row *r, uint32_t look, tri_text *text)
{
    for (int strength = 1; strength <= 5; strength++)
        draw_short(t, r, look, strength, text);
    for (size_t i = 0; i < r->num; i++) {
        const timeline_piece *p = &r->pieces[i];
        double width = (p->end - p->start) / t->pixel;
        int strength = strength_of(p);
        if (p->look != look || !speaks(t, r, i))
            continue;
        tri_text_add(text, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%g\" fill=\"%s\"",
                     x_of(t, p->start), r->y, width, height_of(r), fill_of(look));
        if (strength < 5)
            tri_text_add(text, " opacity=\"%g\"", strength / 5.0);
        tri_text_add(text, ">");
        hover(t, r, p, text);
        tri_text_add(text, "</rect>\n");
    }
}

/* Micro-batches, on calls that have room for them; those that run as one have theirs together. */
static void add_numbers(const tri_timeline *t, const row *r, tri_text *text)
{
    const tri_program *program = t->c->step->programs[r->class];
    for (uint32_t c = 0, num; c < program->num_calls; c += num) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        char number[64];
        int length = 0;
        const work_stretch *own = &t->at_work[r->class][c];
        double width = (own->longest_end - own->longest_start) / t->pixel;
        num = tri_calls_at_once(program, c);
        if (!tri_action_computes(segment->action) || segment->action == TRI_ACTION_U)
            continue;
        for (uint32_t k = 0; k < num; k++)
            length += snprintf(number + length, sizeof number - (size_t)length, "%s%u",
                               k ? "/" : "", program->calls[c + k].microbatch);
        if (width < tri_svg_text_width(number, 11) + 4)
            continue;
        int shade = (uint32_t)segment->chunk != t->lowest[r->class];
        tri_text_add(text, "<text class=\"n\" x=\"%.1f\" y=\"%.1f\" fill=\"%s\">%s</text>\n",
                     x_of(t, own->longest_start) + width / 2, r->y + COMPUTE / 2.0 + 4,
                     tri_action_style_of(segment->action)->ink[shade], number);
    }
}

static void draw_row(const tri_timeline *t, const row *r, tri_text *text)
{
    const tri_program *program = t->c->step->programs[r->class];
    double h = height_of(r), end = t->c->sim->timing.seconds;
    char name[64] = "messages";
    if (r->lane == TRI_NONE)
        snprintf(name, sizeof name, t->c->step->num_stages > 1 ? "stage %u" : "rank %u", r->class);
    else if (r->group != TRI_NONE)
        tri_rank_group_text(&program->groups[r->group], name, sizeof name);
    else if (r->num > 0 && r->pieces[0].count == 1 &&
             program->messages[r->pieces[0].id].group == TRI_NONE)
        tri_message_lane_text(program, &program->messages[r->pieces[0].id], name, sizeof name);
    tri_text_add(text,
                 "<g class=\"row\"><text class=\"%s\" x=\"%d\" y=\"%.1f\" "
                 "text-anchor=\"end\">",
                 r->lane == TRI_NONE ? "t" : "s", LEFT - 8, r->y + h / 2 + 4);
    tri_text_add_svg(text, name);
    tri_text_add(text,
                 "</text><rect class=\"i\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%g\"/>\n",
                 LEFT, r->y, WIDTH, h);
    uint64_t looks = 0;
    for (size_t i = 0; i < r->num; i++)
        looks |= (uint64_t)1 << r->pieces[i].look;
    for (uint32_t look = 0; look < NUM_LOOKS; look++)
        if (looks >> look & 1)
            draw_look(t, r, look, text);
    if (r->lane == TRI_NONE)
        add_numbers(t, r, text);
    tri_text_add(text, "<text class=\"s\" x=\"%d\" y=\"%.1f\">%s %.1f %%</text></g>\n",
                 LEFT + WIDTH + 8, r->y + h / 2 + 4, r->lane == TRI_NONE ? "computes" : "under way",
                 end > 0 ? 100 * r->busy / end : 0);
}

/* Lanes of a stage in the order of the axes. */
static void sort_lanes(const tri_timeline *t, uint32_t class)
{
    uint32_t sorted = TRI_NONE;
    for (uint32_t r = t->rows[class].next, next; r != TRI_NONE; r = next) {
        uint32_t *at = &sorted;
        while (*at != TRI_NONE && t->rows[*at].pieces[0].look <= t->rows[r].pieces[0].look)
            at = &t->rows[*at].next;
        next = t->rows[r].next;
        t->rows[r].next = *at;
        *at = r;
    }
    t->rows[class].next = sorted;
}

static double place_rows(const tri_timeline *t)
{
    double y = TOP;
    for (uint32_t s = 0; s < t->c->step->num_stages; s++) {
        sort_lanes(t, s);
        for (uint32_t r = s; r != TRI_NONE; r = t->rows[r].next) {
            t->rows[r].y = y;
            y += height_of(&t->rows[r]) + GAP;
        }
        y += STAGE_GAP;
    }
    return y;
}

static void draw_legend(const tri_timeline *t, double y, tri_text *text)
{
    uint64_t looks = 0;
    double x = LEFT;
    for (size_t r = 0; r < t->num_rows; r++)
        for (size_t i = 0; i < t->rows[r].num; i++)
            looks |= (uint64_t)1 << t->rows[r].pieces[i].look;
    for (uint32_t k = 0; k < TRI_NUM_ACTIONS; k++)
        if (looks >> 2 * k & 3)
            x = tri_svg_key(text, x, y, fill_of(2 * k),
                            tri_action_style_of((tri_action_kind)k)->meaning);
    for (uint32_t a = 0; a < t->c->sim->num_axes; a++) {
        char name[64];
        snprintf(name, sizeof name, "messages over %s", t->c->sim->axis[a]);
        if (looks >> (TRANSFERS + a) & 1)
            x = tri_svg_key(text, x, y, fill_of(TRANSFERS + a), name);
    }
    bool further = looks & 0xaaa & (((uint64_t)1 << WAITS) - 1);
    tri_text_add(text,
                 "<text class=\"t\" x=\"%d\" y=\"%.1f\">%sempty: idle, until others are there; "
                 "faint, in the colour of an axis: the rank waits for a message; numbers: "
                 "micro-batches. What is narrower than a pixel is drawn together.</text>\n",
                 LEFT, y + 34, further ? "darker: further chunks; " : "");
}

bool tri_timeline_draw(const tri_timeline *t, tri_text *text)
{
    if (t->failed)
        return false;
    const tri_picture_case *c = t->c;
    double bottom = place_rows(t);
    picture_clock clock = tri_picture_clock(c->sim->timing.seconds, 12);
    const tri_svg_field field = {LEFT, TOP - 4, WIDTH, bottom - TOP};
    char what[96];
    snprintf(what, sizeof what, "timeline of %s%u rank%s",
             c->step->num_stages > 1 ? "one rank of each stage, of " : "one rank of ",
             c->step->num_stages * c->step->stride,
             c->step->num_stages * c->step->stride == 1 ? "" : "s");
    tri_svg_begin(text, TRI_PICTURE_MARK, LEFT + WIDTH + RIGHT, bottom + 104);
    tri_text_add(text, "<style>.n{font-size:11px;text-anchor:middle;pointer-events:none}"
                       ".i{fill:#7c8594;opacity:0.12}</style>\n");
    tri_picture_head(c, text, LEFT, what);
    tri_svg_axes(text, &field, &clock.ruler, clock.title, &(tri_ruler){0}, NULL);
    for (uint32_t s = 0; s < c->step->num_stages; s++)
        for (uint32_t r = s; r != TRI_NONE; r = t->rows[r].next)
            draw_row(t, &t->rows[r], text);
    draw_legend(t, bottom + 52, text);
    tri_svg_end(text);
    return true;
}
