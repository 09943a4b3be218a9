/* The vocabulary of schedules and of the timeline: what a rank does, for which chunk of layers and
 * which micro-batch. Orders emit the kinds that compute; the passes behind them add the others. */
#ifndef TRI_SCHEDULE_ACTION_H
#define TRI_SCHEDULE_ACTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tri_action_kind {
    TRI_ACTION_F,    /* forward */
    TRI_ACTION_I,    /* gradient of the activations */
    TRI_ACTION_W,    /* gradient of the weights */
    TRI_ACTION_B,    /* both, interleaved */
    TRI_ACTION_U,    /* update */
    TRI_NUM_ACTIONS, /* those that compute; each can have a segment */

    /* Messages between ranks. The chunk is the one on this rank: SEND_F gives its output to the
     * chunk after it, RECV_F gets its input from the one before; SEND_B gives the gradient of its
     * input to the chunk before it, RECV_B gets that of its output from the one after. */
    TRI_ACTION_SEND_F = TRI_NUM_ACTIONS,
    TRI_ACTION_RECV_F,
    TRI_ACTION_SEND_B,
    TRI_ACTION_RECV_B,
    TRI_NUM_ALL_ACTIONS
} tri_action_kind;

/* One entry of a schedule. An overlapped pair FB is two entries: an F with `overlap` set and the B
 * right behind it. Where that backward is cut in two they are three: F and I, with `overlap` set,
 * and W. */
typedef struct tri_action {
    tri_action_kind kind;
    uint32_t microbatch;
    uint32_t chunk; /* over all ranks: 0 reads the input, the last one has the loss */
    bool overlap;   /* it runs as one with the action behind it */
} tri_action;

enum { TRI_MOST_PAIRED = 3 }; /* actions that run as one */

static inline bool tri_action_computes(tri_action_kind kind)
{
    return kind < TRI_NUM_ACTIONS;
}

/* Where run.pace has a number for each action: that of a pair; 0: as long as its calls one after
 * the other. */
enum { TRI_PACE_PAIR = TRI_NUM_ACTIONS, TRI_NUM_PACES };

const char *tri_action_name(tri_action_kind kind); /* "F", "I", ... "RECV_B" */

/* "3F7", the notation of tables. Returns out. */
char *tri_action_text(const tri_action *action, char out[48]);

#endif
