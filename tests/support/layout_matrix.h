/* The whole matrix of layouts, run by as many processes as there are cores, and its page. */
#ifndef TRI_TESTS_LAYOUT_MATRIX_H
#define TRI_TESTS_LAYOUT_MATRIX_H

#include "layout_cells.h"

typedef struct matrix_entry {
    cell cell;
    cell_distance distance;
    bool done, fine;
} matrix_entry;

/* Runs one cell; false when it fails. Called in processes of their own, in each of them for all
 * cells of one model, precision and update rule, one after the other. */
typedef bool (*matrix_fn)(void *context, const cell *c, cell_distance *d);

/* Entries for these cells, none of them done, in memory that processes share; NULL when there is
 * none. When TRIREME_TEST_STATE names a folder they lie in a file of this name there, and those
 * that an earlier run did without fault stay done: a run of hours may be ended and go on later. */
matrix_entry *matrix_open(const char *name, const cell *cells, size_t num);
size_t matrix_failed(const matrix_entry *entries, size_t num);
void matrix_close(matrix_entry *entries, size_t num);

/* Runs what is not done. False when a process ended before its time. */
bool matrix_run(matrix_entry *entries, size_t num, matrix_fn fn, void *context);

/* Whether two cells are counted in the same entry of the page. */
bool matrix_same_entry(const cell *a, const cell *b);

/* Rows are layouts, columns models: the largest differences over micro-batches, split backward and
 * update rules. Of num_all cells there are, num were run. */
bool matrix_write(const char *path, const matrix_entry *entries, size_t num, size_t num_all,
                  int steps);

#endif
