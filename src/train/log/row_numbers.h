/* The numbers of a row of metrics, under the names that they have in files: one table for
 * metrics.jsonl and for what is written for other tools. */
#ifndef TRI_TRAIN_LOG_ROW_NUMBERS_H
#define TRI_TRAIN_LOG_ROW_NUMBERS_H

#include "train/log/metrics.h"
#include "train/step_stats.h"

typedef struct tri_row_number {
    const char *name;  /* in metrics.jsonl and metrics.csv */
    const char *group; /* the name of curves is "group/tag" */
    const char *tag;
    const char *help;
    bool counts;  /* it only grows while a run goes on */
    bool present; /* false: this row leaves it out */
    bool whole;
    int64_t integer; /* when it is whole */
    double real;     /* in any case */
} tri_row_number;

enum { TRI_ROW_MAX_NUMBERS = 22 + TRI_MAX_STEP_SHOWN };

/* The same for all rows of a run: the step first, statistics behind the loss. */
size_t tri_row_num_numbers(const tri_metrics_row *row);
tri_row_number tri_row_number_at(const tri_metrics_row *row, size_t i);

/* What a number of that name in a file is; NULL: it is a statistic, or none of ours. */
const char *tri_row_number_help(const char *name, bool *counts);

/* What a file calls numbers that are not finite. */
typedef struct tri_odd_numbers {
    const char *nan, *infinity, *minus_infinity;
} tri_odd_numbers;

/* Nine digits, which give an f32 back exactly, as JSON has them, in any locale; returns out. */
enum { TRI_NUMBER_BYTES = 40 };
char *tri_number_text(const tri_row_number *number, const tri_odd_numbers *odd,
                      char out[TRI_NUMBER_BYTES]);
/* Seconds with milliseconds. */
char *tri_time_text(double time_s, char out[TRI_NUMBER_BYTES]);

#endif
