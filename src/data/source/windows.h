/* Which window of a long run of units (bytes or tokens) a sample is.
 *
 *     |phase| window 0 | window 1 | ...  | window W-1 |  rest  |   evaluation windows    | rest |
 *     0 ------------------------------------------------ train ------------------------- total
 *
 * A window is seq_len units; its last target is the unit after it, which may be the first of the
 * next. In every epoch the phase is another one, so that what is cut apart in one is whole in
 * another, and all W windows come once, in another order. W is the same for every phase (one fewer
 * than would fit with the best), which makes epoch = sample / W. */
#ifndef TRI_DATA_SOURCE_WINDOWS_H
#define TRI_DATA_SOURCE_WINDOWS_H

#include "data/data.h"

typedef struct tri_windows {
    uint64_t seq_len, seed;
    uint64_t total, train;        /* units; evaluation has those between the two */
    uint64_t num_train, num_eval; /* windows */
    uint64_t num_phases;          /* the phase of an epoch is in [0, num_phases) */
} tri_windows;

/* Divides `units` units, called "bytes" or "tokens" in messages, into the two splits and these into
 * windows. held_out: so many at the end are evaluation's already, and eval_fraction is not used;
 * 0 for none. */
tr_status tri_windows_cut(tri_windows *windows, const tri_data_config *config, uint64_t units,
                          uint64_t held_out, const char *called, tr_error *err);

/* Which window a sample is, among those of its split. */
uint64_t tri_windows_number(const tri_windows *windows, tri_split split, uint64_t sample);
/* Where the window of a sample begins. */
uint64_t tri_windows_begin(const tri_windows *windows, tri_split split, uint64_t sample);

/* "1,980 windows of 128, 103 more for evaluation"; returns text. */
char *tri_windows_describe(const tri_windows *windows, char *text, size_t text_size);

#endif
