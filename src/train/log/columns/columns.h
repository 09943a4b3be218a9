/* metrics.jsonl as columns in memory, for curves of a run that may still go on.
 *
 * The file is read once, and then only what is new in it; when it was replaced or cut (a run that
 * resumes) it is read again. Memory is bounded whatever its length: a cell has the least, the mean
 * and the greatest number of one line, or of 2, 4, 8 ... neighbours where there are too many lines.
 * A close look at a long run reads its lines again, those alone. */
#ifndef TRI_TRAIN_LOG_COLUMNS_COLUMNS_H
#define TRI_TRAIN_LOG_COLUMNS_COLUMNS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tri_columns tri_columns;

enum { TRI_COLUMNS_MAX_CELLS = 16384, TRI_COLUMNS_MAX_KEYS = 64 };

tr_status tri_columns_create(const char *run_dir, tri_columns **columns, tr_error *err);
void tri_columns_destroy(tri_columns *columns);
/* Reads what is new. A file that is not there, or cannot be read, has no lines. */
tr_status tri_columns_update(tri_columns *columns, tr_error *err);
size_t tri_columns_bytes(const tri_columns *columns); /* of memory */
int64_t tri_columns_num_lines(const tri_columns *columns);

/* A number that lines have, in the order in which they were met; the step and the time are not
 * among them. */
typedef struct tri_column_key {
    const char *name; /* valid until the next update */
    bool whole;       /* its numbers are whole */
    double last;      /* NAN: it was null */
} tri_column_key;
size_t tri_columns_num_keys(const tri_columns *columns);
tri_column_key tri_columns_key(const tri_columns *columns, size_t i);

/* The last layer_loads, as a JSON list, and their step; NULL: no line has any. */
const char *tri_columns_loads(const tri_columns *columns, int64_t *step);

typedef enum tri_columns_x {
    TRI_COLUMNS_STEP,
    TRI_COLUMNS_TOKENS,
    TRI_COLUMNS_HOURS, /* of the steps: step_ms added up */
    TRI_COLUMNS_TIME,  /* seconds since 1970 */
    TRI_COLUMNS_NUM_X
} tri_columns_x;

typedef struct tri_columns_point {
    double x, min, mean, max;
    int64_t num; /* numbers in it */
} tri_columns_point;

typedef struct tri_columns_curve {
    tri_columns_point *points; /* by x; the caller frees it */
    size_t num;
    int64_t missing;    /* lines of the range in which it was null */
    double first, last; /* x of the whole run; NAN: there are no lines */
} tri_columns_curve;

/* About so many points of the lines with from <= x <= to. TR_ERROR_INPUT: no line has such a key.
 */
tr_status tri_columns_curve_of(const tri_columns *columns, const char *key, tri_columns_x x,
                               double from, double to, size_t points, tri_columns_curve *curve,
                               tr_error *err);

#endif
