/* A list of runs as a table for people, or as lines of JSON for programs. */
#ifndef TRI_CLI_RUNS_RUNS_TABLE_H
#define TRI_CLI_RUNS_RUNS_TABLE_H

#include <stdio.h>

#include "base/text.h"
#include "cli/doc/json_doc.h"
#include "cli/runs/run_row.h"

/* width: columns, of which the least important go first where they do not fit; 0: there is no
 * limit. most: runs that are shown, 0 for all; a last line counts the others. */
typedef struct tri_runs_look {
    int width, most;
    bool colour;
    double now;
} tri_runs_look;

tr_status tri_runs_table(const tri_run_row *rows, size_t num, const tri_runs_look *look,
                         tri_text *text, tr_error *err);

/* Adds what is known of a run to an object; and the same as an object on a line. */
void tri_runs_doc(json_t *object, const tri_run_row *row);
tr_status tri_runs_json(const tri_run_row *row, tri_text *text, tr_error *err);

#endif
