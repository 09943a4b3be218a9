/* Pictures of what a search found, SVG: which axes are fast, where the time of the best layouts
 * goes, time against memory, and other numbers of devices. */
#ifndef TRI_SEARCH_PICTURE_SEARCH_PICTURE_H
#define TRI_SEARCH_PICTURE_SEARCH_PICTURE_H

#include "base/text.h"
#include "search/search.h"

/* What they begin with, so that one of ours is known again. */
#define TRI_SEARCH_PICTURE_MARK "<!-- drawn by trireme plan -->"

typedef struct tri_search_picture {
    tri_search *search;                /* found something that fits; stays as it is */
    const tri_search_machine *machine; /* that it was for */
    const char *model, *device;        /* "llama3-8b", "NVIDIA H100 SXM (fitted), NVLink 4" */
} tri_search_picture;

/* The step on a number of devices. */
typedef struct tri_scaling_point {
    uint32_t devices;
    double seconds; /* 0: there is no layout that fits */
    double bytes;
    char layout[240]; /* the fastest, or why there is none */
} tri_scaling_point;

/* Each begins a text that is empty; memory that ran out is told by text->failed. */
void tri_heatmap_draw(const tri_search_picture *p, tri_text *text); /* tp x pp */
void tri_best_draw(const tri_search_picture *p, tri_text *text);    /* bars of the first ten */
void tri_pareto_draw(const tri_search_picture *p, tri_text *text);
/* points: with rising devices; those of the search are among them. */
void tri_scaling_draw(const tri_search_picture *p, const tri_scaling_point *points, size_t num,
                      tri_text *text);

#endif
