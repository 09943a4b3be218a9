/* What the files of columns share. */
#ifndef TRI_TRAIN_LOG_COLUMNS_COLUMNS_PARTS_H
#define TRI_TRAIN_LOG_COLUMNS_COLUMNS_PARTS_H

#include <sys/stat.h>

#include "train/log/columns/columns.h"
#include "train/log/metrics_read.h"

enum { TRI_MARK_BYTES = 64, TRI_KEY_BYTES = 64, TRI_LOADS_BYTES = 4096 };

/* Neighbouring lines, as many as `width` but in the last. */
typedef struct tri_row_span {
    int64_t at, lines; /* its first byte */
    double first[TRI_COLUMNS_NUM_X], last[TRI_COLUMNS_NUM_X];
} tri_row_span;

typedef struct tri_column_cell {
    double min, max, sum;
    uint32_t num, nulls;
} tri_column_cell;

typedef struct tri_column {
    char name[TRI_KEY_BYTES];
    bool whole;
    double last;
    tri_column_cell *cells; /* [capacity] */
} tri_column;

struct tri_columns {
    char *path;
    int64_t inode, offset;     /* how far it was read */
    char mark[TRI_MARK_BYTES]; /* the bytes before that */
    size_t num_marked;
    int64_t num_lines, width;
    tri_row_span *spans;
    size_t num, capacity;
    tri_column columns[TRI_COLUMNS_MAX_KEYS];
    size_t num_columns;
    double hours;
    char loads[TRI_LOADS_BYTES];
    int64_t loads_step;
};

/* columns.c */
tri_column *tri_column_named(const tri_columns *columns, const char *name, size_t length);
bool tri_member_named(const tri_metrics_member *member, const char *name);
/* A line's place on every axis; hours: of the lines before, and then with it. False: it is not the
 * line of a step. */
bool tri_line_places(const tri_metrics_member *members, size_t num, double *hours,
                     double x[TRI_COLUMNS_NUM_X]);
void tri_cell_add(tri_column_cell *cell, double value);
void tri_cell_join(tri_column_cell *to, const tri_column_cell *from);
/* The file when it is still the one that was read; -1: it is not. */
int tri_columns_reopen(const tri_columns *columns);

#endif
