/* What the files of place_values.h share: pieces, and what one device does. */
#ifndef TRI_SIM_VALUES_PARTS_H
#define TRI_SIM_VALUES_PARTS_H

#include "sim/place_values.h"
#include "trireme/comm.h"

/* Where a piece lies in the whole array. */
typedef struct tri_value_box {
    int rank; /* dims */
    int64_t begin[TRI_CALC_DIMS], size[TRI_CALC_DIMS];
} tri_value_box;

/* The place of a device along an axis. */
int tri_value_coordinate(const tri_calc *calc, int rank, int axis);
tri_value_box tri_value_box_of(const tri_calc *calc, const tri_calc_array *array, int rank);
/* That of a whole array. */
tri_value_box tri_value_box_all(const tri_calc *calc, const tri_calc_array *array);
int64_t tri_value_count(const tri_value_box *box);
/* The place in a piece of element i of a part of it, counted row by row. */
int64_t tri_value_place(const tri_value_box *piece, const tri_value_box *part, int64_t i);
/* c = a . b of pieces; arrays and boxes are those of a, b and c. */
void tri_value_multiply(const tri_calc_array *arrays[3], const tri_value_box boxes[3],
                        const int64_t *a, const int64_t *b, int64_t *c);

/* What all devices share: the plan, and a list of steps in which each has its own column. */
typedef struct tri_values_plan {
    tri_calc *calc;
    const tri_calc_line *line;
    tri_calc_product product;
    tri_calc_moves moves[2]; /* of both operands before the product, or of an array */
    int64_t *whole[2];       /* operands */
    tri_valued_run *run;
} tri_values_plan;

/* One device, as a rank; the context is the plan. */
tr_status tri_values_device_run(tr_comm *comm, void *context, tr_error *err);

#endif
