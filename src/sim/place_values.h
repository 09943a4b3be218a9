/* A line of the calculator, carried out: whole numbers instead of sizes alone. Each device is a
 * thread with its pieces; the planned collectives run between them, and what every device has after
 * each step is kept. What comes out is compared with the same product on one device. */
#ifndef TRI_SIM_PLACE_VALUES_H
#define TRI_SIM_PLACE_VALUES_H

#include "place/calc/calc.h"

enum {
    TRI_VALUES_RANKS = 64,
    TRI_VALUES_ELEMENTS = 4096, /* of an array */
    TRI_VALUES_ARRAYS = 8
};

/* The numbers of an array, row by row. */
typedef struct tri_given_values {
    char name[TRI_CALC_NAME];
    int64_t *numbers; /* owned */
    int64_t num;
} tri_given_values;

typedef struct tri_values {
    tri_given_values given[TRI_VALUES_ARRAYS];
    int num_given;
} tri_values;

/* "X=[1,2,0,1] W=[[1,2],[3,4]]": brackets, commas and blanks between numbers may be left out. */
tr_status tri_values_parse(const char *text, tri_values *values, tr_error *err);
void tri_values_fini(tri_values *values);

/* What the devices have of an array after a step. */
typedef struct tri_valued_step {
    const char *what; /* "all-gather", "product"; NULL: an operand as it is given */
    tri_calc_array array;
    int64_t *local[TRI_VALUES_RANKS]; /* of each device, row by row; owned */
} tri_valued_step;

typedef struct tri_valued_run {
    int num_ranks;
    bool counted; /* an operand had no numbers, and got 1, 2, 3, ... */
    tri_valued_step *steps;
    int num_steps;
} tri_valued_run;

/* Every letter must have a size. Devices are numbered with the last axis of the mesh fastest. Of an
 * operand that is terms of a sum, device k > 0 along the axes of the terms has k everywhere, and
 * device 0 the rest. */
tr_status tri_values_run(tri_calc *calc, const tri_calc_line *line, const tri_values *values,
                         tri_valued_run *run, tr_error *err);
void tri_valued_run_fini(tri_valued_run *run);

/* The sizes of a device's piece. */
void tri_values_sizes(const tri_calc *calc, const tri_calc_array *array, int rank,
                      int64_t sizes[TRI_CALC_DIMS]);
/* "x0 y1"; "" without a mesh. */
void tri_values_device(const tri_calc *calc, int rank, char out[80]);

#endif
