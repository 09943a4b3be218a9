/* What the files of these pictures share; see search_picture.h. */
#ifndef TRI_SEARCH_PICTURE_SEARCH_PICTURE_PARTS_H
#define TRI_SEARCH_PICTURE_SEARCH_PICTURE_PARTS_H

#include "base/draw/svg.h"
#include "search/picture/search_picture.h"

/* Begins the picture: what is drawn, and a line with model, machine and batch. devices: with how
 * many there are. */
void tri_search_picture_begin(const tri_search_picture *p, tri_text *text, double width,
                              double height, const char *what, bool devices);
/* "6.70 s", "12.3 ms", as the table of the search has it; with more digits of short steps. */
char *tri_search_seconds(double seconds, char text[24]);
double tri_search_tokens(const tri_search_picture *p); /* of a step */
const tri_layout_result *tri_search_winner(const tri_search_picture *p);
/* Units in which so many bytes are drawn; returns the bytes of one. */
double tri_search_bytes_unit(double bytes, const char **name);
/* A line of text; size in pixels. anchor: "start", "middle" or "end". */
void tri_search_line(tri_text *text, double x, double y, int size, const char *anchor,
                     const char *format, ...) __attribute__((format(printf, 6, 7)));

#endif
