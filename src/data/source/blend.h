/* Which of several sources each sample comes from.
 *
 * Weights are whole numbers that add up to the period. Within a period the sources take turns as
 * evenly as can be (Tijdeman's rule for the chairman assignment problem): after any number n of
 * samples, source i has had n * weight / period of them, give or take less than one. */
#ifndef TRI_DATA_SOURCE_BLEND_H
#define TRI_DATA_SOURCE_BLEND_H

#include "base/error.h"

#include <stdint.h>

enum { TRI_BLEND_MAX_SOURCES = 64, TRI_BLEND_MAX_PERIOD = 1000000 };

typedef struct tri_blend {
    int num;
    uint64_t period;
    uint64_t weight[TRI_BLEND_MAX_SOURCES];
    uint8_t *source; /* [period]: of each sample of a period */
    uint32_t *index; /* [period]: how many of the same source come before it */
} tri_blend;

/* weight[i] > 0; divided by what they have in common, and rounded if their sum is too large. */
tr_status tri_blend_init(tri_blend *blend, const uint64_t *weight, int num, tr_error *err);
void tri_blend_fini(tri_blend *blend);

/* The source of a sample, and which of that source's samples it is. */
int tri_blend_at(const tri_blend *blend, uint64_t sample, uint64_t *within);

/* ---- "a:0.7,b:0.3" ---- */

typedef struct tri_blend_part {
    char *path;
    double weight;
} tri_blend_part;

typedef struct tri_blend_list {
    tri_blend_part part[TRI_BLEND_MAX_SOURCES];
    int num;
} tri_blend_list;

/* Parts are divided by commas or semicolons (a YAML list arrives with these); each is PATH or
 * PATH:WEIGHT, and a part without a weight has 1. What exists under its whole name is one part. */
tr_status tri_blend_parse(const char *text, tri_blend_list *list, tr_error *err);
void tri_blend_list_fini(tri_blend_list *list);

/* The weights as whole numbers with the same ratios, as far as 9 digits show them. */
void tri_blend_weights(const tri_blend_list *list, uint64_t *weight);

#endif
