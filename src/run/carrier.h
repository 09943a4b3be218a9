/* Carries memory from place to place beside the computation: a thread for each lane of fetch and
 * stash (program/messages.h). What is started on a lane runs in the order of starting. */
#ifndef TRI_RUN_CARRIER_H
#define TRI_RUN_CARRIER_H

#include "program/messages.h"
#include "run/scratch_file.h"

typedef enum tri_carry_kind { TRI_CARRY_COPY, TRI_CARRY_READ, TRI_CARRY_WRITE } tri_carry_kind;

typedef struct tri_carry {
    tri_carry_kind kind;
    void *to;         /* NULL: the scratch file */
    const void *from; /* likewise */
    uint64_t offset;  /* in it */
    size_t bytes;
} tri_carry;

typedef struct tri_carrier tri_carrier;

/* Threads are made when a lane is first used. file stays the caller's, and may be NULL. */
tr_status tri_carrier_create(const tri_scratch_file *file, tri_carrier **carrier, tr_error *err);
void tri_carrier_destroy(tri_carrier *carrier); /* NULL is fine; after all waits */

tr_status tri_carrier_start(tri_carrier *carrier, tri_carry_lane lane, const tri_carry *carry,
                            void **request, tr_error *err);
/* Ends and frees the request, whatever the outcome, and tells when it was under way. */
tr_status tri_carrier_wait(tri_carrier *carrier, void *request, uint64_t *begin_ns,
                           uint64_t *end_ns, tr_error *err);

/* For tests: is called by the lane before each piece, and may take its time. */
void tri_carrier_delay(tri_carrier *carrier, void (*delay)(void *context, tri_carry_lane lane),
                       void *context);

#endif
