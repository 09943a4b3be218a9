/* What the files of the pictures share; see picture.h. */
#ifndef TRI_SIM_PICTURE_PICTURE_PARTS_H
#define TRI_SIM_PICTURE_PICTURE_PARTS_H

#include "base/draw/svg.h"
#include "sim/picture/picture.h"

/* Axes of time that fit the step: in s, ms or us. */
typedef struct picture_clock {
    double unit; /* seconds of one */
    const char *title;
    tri_ruler ruler;
} picture_clock;

picture_clock tri_picture_clock(double seconds, int marks);
const char *tri_picture_axis_colour(uint32_t axis);
/* Of a message: never more than the last axis that is drawn. */
uint32_t tri_picture_axis(const tri_picture_case *c, uint32_t class, uint32_t message);
/* What is being drawn, and a line below with the title of the simulation. */
void tri_picture_head(const tri_picture_case *c, tri_text *text, double left, const char *what);

/* Each of these draws a picture: begin, then events in the order of their time, then draw; end
 * frees. Begin and draw fail without memory. */
typedef struct tri_timeline tri_timeline;
tri_timeline *tri_timeline_begin(const tri_picture_case *c);
void tri_timeline_add(tri_timeline *t, const tri_timing_event *event);
bool tri_timeline_draw(const tri_timeline *t, tri_text *text);
void tri_timeline_end(tri_timeline *t);

typedef struct tri_memory_curve tri_memory_curve;
tri_memory_curve *tri_memory_curve_begin(const tri_picture_case *c);
void tri_memory_curve_add(tri_memory_curve *m, const tri_timing_event *event);
bool tri_memory_curve_draw(const tri_memory_curve *m, tri_text *text);
void tri_memory_curve_end(tri_memory_curve *m);

typedef struct tri_shares tri_shares;
tri_shares *tri_shares_begin(const tri_picture_case *c);
void tri_shares_add(tri_shares *s, const tri_timing_event *event);
bool tri_shares_draw(const tri_shares *s, tri_text *text);
void tri_shares_end(tri_shares *s);

bool tri_roofline_draw(const tri_picture_case *c, tri_text *text); /* of the slowest stage */

/* live.c: what lies in `work` while an instruction computes. */
typedef struct tri_live {
    uint64_t activations, gradients, work;
} tri_live;
/* Of every instruction of a program; the caller frees it, NULL: no memory. */
tri_live *tri_live_make(const tri_program *program);

#endif
