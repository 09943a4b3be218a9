/* The numbers of a row of metrics, under the names that they have in files: one table for
 * metrics.jsonl and for what is written for other tools. */
#ifndef TRI_TRAIN_LOG_ROW_NUMBERS_H
#define TRI_TRAIN_LOG_ROW_NUMBERS_H

#include "train/log/metrics.h"

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

/* The same for all rows of a run: the step first, statistics behind the loss. */
size_t tri_row_num_numbers(const tri_metrics_row *row);
tri_row_number tri_row_number_at(const tri_metrics_row *row, size_t i);

#endif
