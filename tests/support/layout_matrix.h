/* Matrices of layouts, run by as many processes as there are cores, and their page. */
#ifndef TRI_TESTS_LAYOUT_MATRIX_H
#define TRI_TESTS_LAYOUT_MATRIX_H

#include "layout_cover.h"

/* Runs cells of a table, in processes of their own, each of them for all cells of one model,
 * precision and update rule; true when all are fine. With TRIREME_TEST_FULL=whole these are all
 * cells, and their figures go to the page, where there is one (NULL: none); otherwise they cover
 * all triples, by a draw of TRIREME_RANDOM_SEED. A line now and then says how far it is. Must be
 * called before a thread is started.
 *
 * When TRIREME_TEST_STATE names a folder, what is done lies in a file of this name there, and what
 * an earlier run did without fault stays done: a run of hours may be ended and go on later. */
bool matrix_check(const char *name, const levels *table, int steps, const char *page);

#endif
