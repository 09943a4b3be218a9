/* What is in the memory of the fullest stage along the step, stacked by class. On top is what is
 * reserved and not in use at the moment, so that the highest edge is all that the plan gives to the
 * program's spaces. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/picture/picture_parts.h"

enum {
    LEFT = 84,
    TOP = 62,
    WIDTH = 960,
    HEIGHT = 420,
    RIGHT = 30,
    COLUMNS = 480,
    STRIPES = 96, /* that can be pointed at */
    CLOCK_MARKS = 10
};

typedef enum held_class {
    HELD_PARAM,
    HELD_COPY,
    HELD_OPTIM,
    HELD_GRAD,
    HELD_HOST,
    HELD_INPUT,
    HELD_GATHERED,
    HELD_ACTIVATION,
    HELD_WORK,
    HELD_RESERVED, /* and not in use */
    NUM_HELD
} held_class;

static const struct {
    const char *fill, *name;
} looks[NUM_HELD] = {[HELD_PARAM] = {"#3b76c4", "parameters"},
                     [HELD_COPY] = {"#8fb8ea", "16-bit copies"},
                     [HELD_OPTIM] = {"#8a4fb0", "optimizer state"},
                     [HELD_GRAD] = {"#2f8f57", "gradients"},
                     [HELD_HOST] = {"#8d6e63", "on the host"},
                     [HELD_INPUT] = {"#6c757d", "inputs, results"},
                     [HELD_GATHERED] = {"#258a84", "gathered weights"},
                     [HELD_ACTIVATION] = {"#e08a1e", "activations"},
                     [HELD_WORK] = {"#d1495b", "work"},
                     [HELD_RESERVED] = {"#b9bec7", "reserved, not in use now"}};

typedef struct memory_sample {
    double bytes[NUM_HELD]; /* but for what is reserved */
    double all;
} memory_sample;

/* Of the vertical axis. */
typedef struct memory_scale {
    double unit; /* bytes */
    const char *title;
    bool with_device;
    tri_ruler ruler;
} memory_scale;

static const tri_svg_field field = {LEFT, TOP, WIDTH, HEIGHT};

struct tri_memory_curve {
    const tri_picture_case *c;
    const tri_program *program;
    uint32_t stage;
    double fixed[NUM_HELD];
    double reserved;  /* bytes of all spaces */
    double *frames;   /* in use during each call */
    tri_live *live;   /* of each instruction */
    uint32_t at_once; /* the first of the calls that run as one now */
    tri_live now[TRI_MOST_PAIRED];
    memory_sample columns[COLUMNS], most;
};

static held_class class_of(tri_space_kind kind)
{
    switch (kind) {
    case TRI_SPACE_PARAM:
        return HELD_PARAM;
    case TRI_SPACE_COPY:
        return HELD_COPY;
    case TRI_SPACE_OPTIM:
        return HELD_OPTIM;
    case TRI_SPACE_GRAD:
        return HELD_GRAD;
    case TRI_SPACE_GATHERED:
        return HELD_GATHERED;
    case TRI_SPACE_FRAME:
        return HELD_ACTIVATION;
    case TRI_SPACE_WORK:
        return HELD_WORK;
    default:
        return HELD_INPUT;
    }
}

/* ---- before the step ---- */

/* From the first call of a micro-batch that uses a frame to the last one. */
static bool add_frame(tri_memory_curve *m, const tri_space *frame)
{
    const tri_program *p = m->program;
    uint32_t *span = malloc(2 * (size_t)p->num_microbatches * sizeof *span);
    if (!span)
        return false;
    for (uint32_t k = 0; k < 2 * p->num_microbatches; k++)
        span[k] = TRI_NONE;
    for (uint32_t c = 0; c < p->num_calls; c++)
        if (frame->users[p->calls[c].segment]) {
            uint32_t *own = &span[2 * p->calls[c].microbatch];
            own[0] = own[0] == TRI_NONE ? c - p->calls[c].nth : own[0];
            own[1] =
                c - p->calls[c].nth + tri_calls_at_once(p, c); /* calls of a pair end together */
        }
    for (uint32_t k = 0; k < p->num_microbatches; k++)
        if (span[2 * k] != TRI_NONE) { /* steps up and down, added up by the caller */
            m->frames[span[2 * k]] += (double)frame->bytes;
            m->frames[span[2 * k + 1]] -= (double)frame->bytes;
        }
    free(span);
    return true;
}

static bool look_at_spaces(tri_memory_curve *m)
{
    const tri_program *p = m->program;
    m->frames = calloc(p->num_calls + 2, sizeof *m->frames);
    m->live = tri_live_make(p);
    bool made = m->frames && m->live;
    for (size_t s = 0; s < p->num_spaces && made; s++) {
        const tri_space *space = &p->spaces[s];
        double bytes = (double)tri_space_total(space);
        bool on_host = space->where == TRI_WHERE_HOST && m->c->with_host;
        if (space->where != TRI_WHERE_DEVICE && !on_host)
            continue;
        m->reserved += bytes;
        if (on_host)
            m->fixed[HELD_HOST] += bytes;
        else if (space->kind == TRI_SPACE_FRAME)
            made = add_frame(m, space);
        else if (space->kind != TRI_SPACE_WORK)
            m->fixed[class_of(space->kind)] += bytes;
    }
    for (size_t c = 1; c <= p->num_calls && made; c++)
        m->frames[c] += m->frames[c - 1];
    return made;
}

tri_memory_curve *tri_memory_curve_begin(const tri_picture_case *c)
{
    tri_memory_curve *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->c = c;
    m->stage = c->sim->fullest;
    m->program = c->step->programs[m->stage];
    m->at_once = TRI_NONE;
    if (!look_at_spaces(m)) {
        tri_memory_curve_end(m);
        return NULL;
    }
    for (int k = 0; k < NUM_HELD; k++)
        m->most.bytes[k] = m->fixed[k];
    for (int k = 0; k < NUM_HELD; k++)
        m->most.all += m->fixed[k];
    for (int col = 0; col < COLUMNS; col++)
        m->columns[col] = m->most; /* also behind the end of the rank */
    return m;
}

void tri_memory_curve_end(tri_memory_curve *m)
{
    if (m) {
        free(m->frames);
        free(m->live);
    }
    free(m);
}

/* ---- while it is timed ---- */

static int column_of(const tri_memory_curve *m, double seconds)
{
    int column = (int)(seconds / m->c->sim->timing.seconds * COLUMNS);
    return column < COLUMNS ? column : COLUMNS - 1;
}

/* Of each column the fullest moment is kept. */
static void keep(tri_memory_curve *m, double start, double end, uint32_t call)
{
    memory_sample now = {{0}, 0};
    for (int k = 0; k < NUM_HELD; k++)
        now.bytes[k] = m->fixed[k];
    now.bytes[HELD_ACTIVATION] += m->frames[call];
    for (int k = 0; k < TRI_MOST_PAIRED; k++) {
        now.bytes[HELD_ACTIVATION] += (double)m->now[k].activations;
        now.bytes[HELD_GRAD] += (double)m->now[k].gradients;
        now.bytes[HELD_WORK] += (double)m->now[k].work;
    }
    for (int k = 0; k < NUM_HELD; k++)
        now.all += now.bytes[k];
    for (int col = column_of(m, start); col <= column_of(m, end); col++)
        if (now.all > m->columns[col].all)
            m->columns[col] = now;
    if (now.all > m->most.all)
        m->most = now;
}

/* The halves of a pair are in `work` both, each with what it came to. */
static tri_live *half_of(tri_memory_curve *m, uint32_t call)
{
    const tri_program *p = m->program;
    bool ended = call >= p->num_calls;
    uint32_t nth = ended ? 0 : p->calls[call].nth;
    if (m->at_once != call - nth) {
        for (int k = 0; k < TRI_MOST_PAIRED; k++)
            m->now[k] = (tri_live){0};
        m->now[nth] = m->live[ended ? p->num_instrs : p->segments[p->calls[call].segment].first];
    }
    m->at_once = call - nth;
    return &m->now[nth];
}

void tri_memory_curve_add(tri_memory_curve *m, const tri_timing_event *event)
{
    if (event->what == TRI_DOES_MESSAGE || event->class != m->stage)
        return;
    const tri_program *p = m->program;
    tri_live *now = half_of(m, event->call);
    const tri_cost_table *costs = &m->c->step->costs;
    double at = event->start;
    if (event->call >= p->num_calls || event->what != TRI_DOES_COMPUTE) {
        keep(m, at, event->end, event->call);
        return;
    }
    for (uint32_t i = event->first; i < event->last; i++) {
        if (p->instrs[i].message != TRI_NONE ||
            !tri_call_runs(&p->calls[event->call], &p->instrs[i]))
            continue;
        *now = m->live[i];
        double end = at + costs->instr(costs->context, p, i);
        keep(m, at, fmin(end, event->end), event->call);
        at = fmin(end, event->end);
    }
    keep(m, at, event->end, event->call); /* copies of weights, and what was rounded */
}

/* ---- drawing ---- */

static double level(const tri_memory_curve *m, const memory_sample *s, int k)
{
    double sum = 0;
    for (int i = 0; i <= k; i++)
        sum += s->bytes[i];
    return k == HELD_RESERVED ? m->reserved : sum;
}

static void find_edge(const tri_memory_curve *m, int k, const memory_scale *y,
                      double heights[COLUMNS])
{
    for (int col = 0; col < COLUMNS; col++) {
        double bytes = k < 0 ? 0 : level(m, &m->columns[col], k);
        heights[col] = tri_svg_y(&field, &y->ruler, bytes / y->unit);
    }
}

static double most_of(const tri_memory_curve *m, int k)
{
    double most = 0;
    for (int col = 0; col < COLUMNS; col++) {
        const memory_sample *s = &m->columns[col];
        most = fmax(most, k == HELD_RESERVED ? m->reserved - s->all : s->bytes[k]);
    }
    return most;
}

static void draw_class(const tri_memory_curve *m, int k, const memory_scale *y, tri_text *text)
{
    char bytes[16];
    double upper[COLUMNS], lower[COLUMNS];
    if (most_of(m, k) <= 0)
        return;
    find_edge(m, k, y, upper);
    find_edge(m, k - 1, y, lower);
    tri_text_add(text, "<path fill=\"%s\" d=\"", looks[k].fill);
    tri_svg_band(text, &field, upper, lower, COLUMNS);
    tri_text_add(text, "\">");
    tri_svg_hover(text, "%s: at most %s", looks[k].name, tri_text_bytes(most_of(m, k), bytes));
    tri_text_add(text, "</path>\n");
}

/* Stretches of the step that say what they have at their fullest. */
static void draw_stripes(const tri_memory_curve *m, tri_text *text)
{
    double ms = 1e3 * m->c->sim->timing.seconds;
    for (int n = 0; n < STRIPES; n++) {
        int first = n * COLUMNS / STRIPES, end = (n + 1) * COLUMNS / STRIPES;
        const memory_sample *s = &m->columns[first];
        tri_text parts;
        char bytes[16];
        for (int col = first; col < end; col++)
            s = m->columns[col].all > s->all ? &m->columns[col] : s;
        tri_text_init(&parts);
        for (int k = 0; k < HELD_RESERVED; k++)
            if (s->bytes[k] > 0)
                tri_text_add(&parts, ", %s %s", looks[k].name, tri_text_bytes(s->bytes[k], bytes));
        tri_text_add(text,
                     "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" "
                     "fill-opacity=\"0\">",
                     LEFT + (double)WIDTH * n / STRIPES, TOP, (double)WIDTH / STRIPES, HEIGHT);
        tri_svg_hover(text, "%.6g to %.6g ms: %s in use%s", ms * n / STRIPES,
                      ms * (n + 1) / STRIPES, tri_text_bytes(s->all, bytes),
                      parts.length > 0 ? parts.chars : "");
        tri_text_add(text, "</rect>\n");
        tri_text_fini(&parts);
    }
}

/* The device's memory as a line, or a word about it where that would be far above. */
static void draw_device(const tri_memory_curve *m, const memory_scale *y, tri_text *text)
{
    double all = m->c->device->memory_bytes;
    char bytes[16];
    tri_text_bytes(all, bytes);
    if (!y->with_device) {
        tri_text_add(text,
                     "<text class=\"t\" x=\"%d\" y=\"%d\" text-anchor=\"end\">the device's "
                     "memory, %s, is far above this picture</text>\n",
                     LEFT + WIDTH - 6, TOP + 16, bytes);
        return;
    }
    double at = tri_svg_y(&field, &y->ruler, all / y->unit);
    tri_text_add(text,
                 "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#c63d3d\" "
                 "stroke-width=\"1.6\" stroke-dasharray=\"7 4\"/>"
                 "<text class=\"t\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">the device's memory, "
                 "%s</text>\n",
                 LEFT, at, LEFT + WIDTH, at, LEFT + WIDTH - 6, at - 5, bytes);
}

static memory_scale scale_of(const tri_memory_curve *m)
{
    static const struct {
        double unit;
        const char *name;
    } units[] = {{0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}};
    const double far = 4;
    double device = m->c->device->memory_bytes;
    memory_scale y = {.with_device = device <= far * m->reserved};
    double most = 1.06 * (y.with_device ? fmax(m->reserved, device) : 1.06 * m->reserved);
    int u = most >= 2 * 0x1p30 ? 0 : most >= 2 * 0x1p20 ? 1 : 2;
    y.unit = units[u].unit;
    y.title = units[u].name;
    tri_ruler_fit(&y.ruler, 0, most / y.unit, 8, false);
    return y;
}

/* In full, so that it can be compared with what trireme plan says. */
static void draw_sums(const tri_memory_curve *m, tri_text *text)
{
    char use[16], reserved[16], more[16];
    double plan = (double)m->c->step->planned_bytes[m->stage];
    tri_text_add(text,
                 "<text class=\"t\" x=\"%d\" y=\"%d\">most in use %s; reserved %s; the plan has "
                 "%s more: scratch of kernels, whole pages, other programs",
                 LEFT, TOP + HEIGHT + 62, tri_text_bytes(m->most.all, use),
                 tri_text_bytes(m->reserved, reserved), tri_text_bytes(plan - m->reserved, more));
    tri_svg_hover(text, "in use: %.0f bytes at most; reserved: %.0f bytes; plan: %.0f bytes",
                  m->most.all, m->reserved, plan);
    tri_text_add(text, "</text>\n");
}

bool tri_memory_curve_draw(const tri_memory_curve *m, tri_text *text)
{
    char what[96];
    memory_scale y = scale_of(m);
    picture_clock clock = tri_picture_clock(m->c->sim->timing.seconds, CLOCK_MARKS);
    if (m->c->step->num_stages > 1)
        snprintf(what, sizeof what, "memory of a rank of stage %u, the fullest", m->stage);
    else
        snprintf(what, sizeof what, "memory of a rank");
    tri_svg_begin(text, TRI_PICTURE_MARK, LEFT + WIDTH + RIGHT, TOP + HEIGHT + 128);
    tri_picture_head(m->c, text, LEFT, what);
    for (int k = 0; k < NUM_HELD; k++)
        draw_class(m, k, &y, text);
    tri_svg_axes(text, &field, &clock.ruler, clock.title, &y.ruler, y.title);
    draw_device(m, &y, text);
    draw_stripes(m, text);
    draw_sums(m, text);
    double x = LEFT, at = TOP + HEIGHT + 76;
    for (int k = 0; k < NUM_HELD; k++) {
        if (most_of(m, k) <= 0)
            continue;
        if (x + 160 > LEFT + WIDTH) {
            x = LEFT;
            at += 22;
        }
        x = tri_svg_key(text, x, at, looks[k].fill, looks[k].name);
    }
    tri_svg_end(text);
    return true;
}
