#include "sim/picture/picture.h"

#include "sim/picture/picture_parts.h"

const char *tri_picture_name(tri_picture_kind kind)
{
    static const char *const names[TRI_NUM_PICTURES] = {"timeline", "memory", "roofline",
                                                        "utilisation"};
    return names[kind];
}

picture_clock tri_picture_clock(double seconds, int marks)
{
    picture_clock clock = {.unit = 1e-3, .title = "ms"};
    if (seconds >= 10)
        clock = (picture_clock){.unit = 1, .title = "s"};
    else if (seconds < 1e-3)
        clock = (picture_clock){.unit = 1e-6, .title = "us"};
    tri_ruler_fit(&clock.ruler, 0, seconds / clock.unit, marks, false);
    return clock;
}

const char *tri_picture_axis_colour(uint32_t axis)
{
    static const char *const colours[] = {"#d1495b", "#7d5ba6", "#8d6e63", "#d16ba5",
                                          "#8f8f1f", "#3f5aa8", "#4d7c59", "#6c757d"};
    return colours[axis % (sizeof colours / sizeof *colours)];
}

uint32_t tri_picture_axis(const tri_picture_case *c, uint32_t class, uint32_t message)
{
    uint32_t axis = tri_step_axis(c->sim, c->step->programs[class], message);
    return axis < TRI_STEP_MAX_AXES ? axis : TRI_STEP_MAX_AXES - 1;
}

void tri_picture_head(const tri_picture_case *c, tri_text *text, double left, const char *what)
{
    tri_svg_heading(text, left, what);
    tri_text_add(text, "<text class=\"t\" x=\"%.0f\" y=\"45\">", left);
    tri_text_add_svg(text, c->title);
    tri_text_add(text, "; a step takes %.6g ms</text>\n", 1e3 * c->sim->timing.seconds);
}

typedef struct watchers {
    tri_timeline *timeline;
    tri_memory_curve *memory;
    tri_shares *shares;
} watchers;

static void hear(void *context, const tri_timing_event *event)
{
    const watchers *w = context;
    if (w->timeline)
        tri_timeline_add(w->timeline, event);
    if (w->memory)
        tri_memory_curve_add(w->memory, event);
    if (w->shares)
        tri_shares_add(w->shares, event);
}

static tr_status watch_and_draw(const tri_picture_case *c, watchers *w,
                                const bool wanted[TRI_NUM_PICTURES],
                                tri_text text[TRI_NUM_PICTURES], tr_error *err)
{
    bool begun = (!wanted[TRI_PICTURE_TIMELINE] || (w->timeline = tri_timeline_begin(c))) &&
                 (!wanted[TRI_PICTURE_MEMORY] || (w->memory = tri_memory_curve_begin(c))) &&
                 (!wanted[TRI_PICTURE_UTILISATION] || (w->shares = tri_shares_begin(c)));
    if (begun && (w->timeline || w->memory || w->shares))
        TRI_TRY(tri_step_sim_watch(c->step, &(tri_timing_watch){w, hear}, err));
    bool drawn =
        begun && (!w->timeline || tri_timeline_draw(w->timeline, &text[TRI_PICTURE_TIMELINE])) &&
        (!w->memory || tri_memory_curve_draw(w->memory, &text[TRI_PICTURE_MEMORY])) &&
        (!w->shares || tri_shares_draw(w->shares, &text[TRI_PICTURE_UTILISATION])) &&
        (!wanted[TRI_PICTURE_ROOFLINE] || tri_roofline_draw(c, &text[TRI_PICTURE_ROOFLINE]));
    for (int k = 0; k < TRI_NUM_PICTURES; k++)
        drawn &= !text[k].failed;
    return drawn ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the pictures of a step");
}

tr_status tri_pictures_draw(const tri_picture_case *c, const bool wanted[TRI_NUM_PICTURES],
                            tri_text text[TRI_NUM_PICTURES], tr_error *err)
{
    watchers w = {0};
    tr_status status = watch_and_draw(c, &w, wanted, text, err);
    tri_timeline_end(w.timeline);
    tri_memory_curve_end(w.memory);
    tri_shares_end(w.shares);
    return status;
}
