/* Own time: what a rank takes by itself, without waiting for others.
 *
 * Ranks of one job take equally long for a step, since they wait for each other. Which of them the
 * others wait for is seen in own time alone. */
#ifndef TRI_COMM_OWN_TIME_H
#define TRI_COMM_OWN_TIME_H

#include <stdint.h>

/* By kind of instruction. A device with a queue does not tell the first two apart. */
typedef enum tri_own_kind {
    TRI_OWN_COMPUTE,  /* forward and backward */
    TRI_OWN_UPDATE,   /* the end of a step: update rule, statistics */
    TRI_OWN_MESSAGES, /* copying and adding up in messages */
    TRI_OWN_COPIES,   /* states and activations, from and to the host's memory or a file */
    TRI_OWN_DATA,     /* rows of the batch */
    TRI_OWN_OTHER,    /* beside the program; and when the process was not run though it waited */
    TRI_NUM_OWN
} tri_own_kind;

typedef struct tri_own_time {
    int64_t ns[TRI_NUM_OWN];
    int64_t waited_ns; /* for other ranks; no part of the above */
} tri_own_time;

#endif
