/* Tables of cells: which there are, a few of them that cover all pairs or triples, and what a cell
 * is held to. */
#ifndef TRI_TESTS_LAYOUT_COVER_H
#define TRI_TESTS_LAYOUT_COVER_H

#include <stdint.h>

#include "layout_cells.h"

enum { MAX_LEVELS = 14, MAX_CELLS = 100000, MAX_ALONE = 400 };

/* Values of one factor; num 0: it is always 0. */
typedef struct levels {
    int num, value[MAX_LEVELS];
} levels;

/* One-rank runs, kept: many cells are compared with each. */
typedef struct alone_runs {
    cell cells[MAX_ALONE];
    cell_run runs[MAX_ALONE];
    size_t num;
} alone_runs;
void alone_fini(alone_runs *alone);

/* Runs a cell and compares; false, with a line about it, when it fails. One with experts is tried
 * again with another seed before it does (d->again). */
bool check_cell(alone_runs *alone, const cell *c, int steps, cell_distance *d);
/* Whether no more than one in 50 cells was tried again. */
bool few_again(size_t again, size_t num);

/* All valid cells of a table (a row for each factor), in order; at most MAX_CELLS. */
size_t list_cells(const levels *table, cell *cells);
/* Some of them such that any `strength` factors (2: pairs, 3: triples) come in every combination of
 * values that can stand together. Greedy: always the cell with most open combinations; a seeded
 * draw among equals. Returns how many; there is room for all. */
size_t cover_cells(const cell *cells, size_t num, int strength, uint64_t seed, cell *chosen);
/* Checks the cells of so many covers of a table's pairs; returns how many failed. */
size_t check_covers(const levels *table, uint64_t num_covers, int steps);

#endif
