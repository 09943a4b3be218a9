/* The calculator: placements as people write them on paper, and what follows from them.
 *
 *     A[I:256@xy, J:2048]                    an array: what each device holds
 *     A[I, J]{P:x} -> A[I@x, J]              a move: the collectives between two placements
 *     A[I, J@x] . B[J@x, K] -> C[I, K]       a product, with the collectives before and after it
 *
 * An axis of the mesh is a factor of the pass: moves are planned by tri_plan_moves, products are
 * placed by tri_place_product, pieces are those of tri_placement_piece. Collectives cost what their
 * algorithm says (tri_algorithm_ring). A letter without a size stays a letter, and what depends on
 * it is a formula. */
#ifndef TRI_PLACE_CALC_H
#define TRI_PLACE_CALC_H

#include "base/error.h"
#include "base/text.h"
#include "mesh/devices.h"
#include "place/moves.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TRI_CALC_AXES = TRI_MAX_ENTRIES, /* one dim may be cut over all of them */
    TRI_CALC_LETTERS = 12,
    TRI_CALC_DIMS = TRI_MAX_RANK,
    TRI_CALC_NAME = 16,  /* with the NUL */
    TRI_CALC_MOVES = 48, /* more than two operands and a result can need */
    TRI_CALC_DEVICES = 1 << 16
};

typedef struct tri_calc_axis {
    char name[TRI_CALC_NAME];
    int size;
} tri_calc_axis;

typedef struct tri_calc_letter {
    char name[TRI_CALC_NAME];
    int64_t size; /* 0: not given */
} tri_calc_letter;

/* What all arrays of one calculation share. */
typedef struct tri_calc {
    tri_calc_axis axes[TRI_CALC_AXES];
    int num_axes;
    tri_calc_letter letters[TRI_CALC_LETTERS];
    int num_letters;
    double element_bytes;
    const char *dtype; /* its name, for people */
    tri_rate rate;     /* of products of it */
    /* Times: either may be absent. */
    const tri_device_spec *device;
    const tri_link_spec *link;
    double latency_s; /* of one message */
    /* Where an error was found in the text that was read, or -1. */
    int error_at;
} tri_calc;

typedef struct tri_calc_dim {
    int letter;
    int num_cuts;
    uint8_t cuts[TRI_CALC_AXES]; /* axes; the first moves slowest */
    int at;                      /* where it stands in the text */
} tri_calc_dim;

typedef struct tri_calc_array {
    char name[TRI_CALC_NAME];
    tri_calc_dim dims[TRI_CALC_DIMS];
    int rank;
    unsigned terms; /* bit a: over axis a each device holds a term of a sum */
    int at;
} tri_calc_array;

typedef enum tri_calc_kind { TRI_CALC_ARRAY, TRI_CALC_MOVE, TRI_CALC_PRODUCT } tri_calc_kind;

typedef struct tri_calc_line {
    tri_calc_kind kind;
    tri_calc_array a, b, target;
    bool has_target;
} tri_calc_line;

/* calc_parse.c. Errors say where, by character from 1, and leave it in error_at (from 0). */
tr_status tri_calc_init(tri_calc *calc, tr_error *err);
tr_status tri_calc_set_dtype(tri_calc *calc, const char *name, tr_error *err);
tr_status tri_calc_parse_mesh(tri_calc *calc, const char *text, tr_error *err);
tr_status tri_calc_parse_sizes(tri_calc *calc, const char *text, tr_error *err);
tr_status tri_calc_parse_axes(tri_calc *calc, const char *text, unsigned *axes, tr_error *err);
tr_status tri_calc_parse_array(tri_calc *calc, const char *text, tri_calc_array *array,
                               tr_error *err);
tr_status tri_calc_parse_line(tri_calc *calc, const char *text, tri_calc_line *line, tr_error *err);

/* ---- amounts (calc_amount.c) ---- */

/* num / den times letters: "2·I·J/4". Letters with sizes are part of num. */
typedef struct tri_amount {
    double num, den;
    uint8_t power[TRI_CALC_LETTERS];
} tri_amount;

/* Devices along the axes of a mask. */
int tri_calc_devices(const tri_calc *calc, unsigned axes);
int tri_calc_num_axes(unsigned axes);
unsigned tri_calc_cut_axes(const tri_calc_array *array);
/* The shards of a dim; one of them, elements [*begin, *begin + returned value); and the largest: 0
 * when its letter has no size. */
int tri_calc_shards(const tri_calc *calc, const tri_calc_dim *dim);
int64_t tri_calc_piece(const tri_calc *calc, const tri_calc_dim *dim, int shard, int64_t *begin);
int64_t tri_calc_largest(const tri_calc *calc, const tri_calc_dim *dim);

tri_amount tri_amount_of(double num);
tri_amount tri_amount_scaled(tri_amount amount, double num, double den);
bool tri_amount_known(const tri_amount *amount, double *value);
bool tri_amount_alike(const tri_amount *a, const tri_amount *b); /* the same letters */
/* Elements on one device (the largest shard), or of the whole array. */
tri_amount tri_calc_elements(const tri_calc *calc, const tri_calc_array *array, bool whole);
tri_amount tri_calc_bytes(const tri_calc *calc, const tri_calc_array *array, bool whole);
/* The dim's local size times the amount. */
tri_amount tri_calc_times_dim(const tri_calc *calc, tri_amount amount, const tri_calc_dim *dim);

/* ---- moves and products (calc_move.c, calc_product.c) ---- */

/* An array as the pass sees it: axis a is factor a, and each axis of a dim is an entry. The
 * placement's dims are these of the array, in this order; NULL: as they stand. */
tri_placement tri_calc_placement(const tri_calc_array *array, const int *dims);

typedef struct tri_calc_move {
    tri_move_kind kind;
    unsigned axes;
    tri_calc_array before, after;
    tri_amount vector; /* bytes: the S of docs/collectives.md */
    tri_amount sent;   /* bytes that each device sends */
    double seconds;    /* below 0: not known */
    bool there;        /* its result is there from an earlier step: it costs nothing */
} tri_calc_move;

typedef struct tri_calc_moves {
    tri_calc_move items[TRI_CALC_MOVES];
    int num;
} tri_calc_moves;

/* The dim of a letter; -1: the array has none. */
int tri_calc_find_dim(const tri_calc_array *array, int letter);
/* Appends what turns one placement of an array into another. */
tr_status tri_calc_move_to(tri_calc *calc, const tri_calc_array *from, const tri_calc_array *to,
                           tri_calc_moves *moves, tr_error *err);

typedef struct tri_calc_product {
    tri_calc_moves before, after;
    tri_calc_array from_a, from_b, target; /* as they were given */
    bool has_target;
    tri_calc_array a, b, c; /* as they are multiplied */
    tri_amount flops;       /* of one device */
    tri_amount traffic[3];  /* bytes of a, b and c */
} tri_calc_product;

/* target may be NULL: the result stays where the product leaves it. */
tr_status tri_calc_multiply(tri_calc *calc, const tri_calc_array *a, const tri_calc_array *b,
                            const tri_calc_array *target, const char *name,
                            tri_calc_product *product, tr_error *err);

/* ---- training In · Win · Wout (calc_train.c) ---- */

typedef struct tri_calc_step {
    const char *phase; /* "forward", "backward" */
    tri_calc_product product;
} tri_calc_step;

enum { TRI_CALC_STEPS = 6 };

typedef struct tri_calc_training {
    const char *strategy;
    unsigned data_axes, model_axes;
    tri_calc_array in, w_in, w_out, out;
    tri_calc_step steps[TRI_CALC_STEPS];
} tri_calc_training;

/* model_axes: 0 for the usual ones. Letters B, D and F may have sizes. */
tr_status tri_calc_train(tri_calc *calc, const char *strategy, unsigned model_axes,
                         tri_calc_training *training, tr_error *err);

/* ---- as text (calc_text.c, calc_draw.c) ---- */

void tri_calc_write_array(const tri_calc *calc, const tri_calc_array *array, tri_text *text);
/* The same with sizes, as it was given. */
void tri_calc_write_given(const tri_calc *calc, const tri_calc_array *array, tri_text *text);
void tri_calc_write_axes(const tri_calc *calc, unsigned axes, tri_text *text);
void tri_calc_write_amount(const tri_calc *calc, const tri_amount *amount, const char *unit,
                           tri_text *text);
void tri_calc_write_seconds(double seconds, tri_text *text);
const char *tri_calc_move_name(tri_move_kind kind); /* "all-gather" */
void tri_calc_write_move(const tri_calc *calc, const tri_calc_move *move, tri_text *text);
void tri_calc_write_machine(const tri_calc *calc, tri_text *text);
void tri_calc_report_array(const tri_calc *calc, const tri_calc_array *array, tri_text *text);
void tri_calc_report_moves(const tri_calc *calc, const tri_calc_array *from,
                           const tri_calc_array *to, const tri_calc_moves *moves, tri_text *text);
void tri_calc_report_product(const tri_calc *calc, const tri_calc_product *product, tri_text *text);
void tri_calc_draw(const tri_calc *calc, const tri_calc_array *array, tri_text *text);
/* calc_train_text.c */
void tri_calc_report_training(const tri_calc *calc, const tri_calc_training *t, tri_text *text);
/* Memory of the training state of so many parameters on a device, under ZeRO 0 to 3 (calc_state.c);
 * group 0: all devices. */
typedef struct tri_calc_state {
    const char *recipe; /* which bytes a parameter takes */
    int zero;
    double weights, gradients, optimizer; /* bytes */
} tri_calc_state;
enum { TRI_CALC_STATES = 8 };
tr_status tri_calc_states(const tri_calc *calc, double num_params, int64_t group,
                          tri_calc_state rows[TRI_CALC_STATES], int64_t *shard_group,
                          tr_error *err);
tr_status tri_calc_report_state(const tri_calc *calc, double num_params, int64_t group,
                                tri_text *text, tr_error *err);
void tri_calc_report_devices(tri_text *text);

/* Sums for reports: seconds below 0 are not known. */
double tri_calc_move_seconds(const tri_calc_moves *moves);
double tri_calc_compute_seconds(const tri_calc *calc, const tri_calc_product *product);
double tri_calc_memory_seconds(const tri_calc *calc, const tri_calc_product *product);

#endif
