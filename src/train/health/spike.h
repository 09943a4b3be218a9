/* Losses that jump: what counts as a spike, by the losses before it.
 *
 * A loss is compared with the median of the last good ones, in multiples of their spread. Both are
 * robust, so a spike that was let through once does not hide the next. The limit of a step is known
 * before it runs, from losses that all ranks have alike; so the step itself decides, on all ranks,
 * and writes nothing (the flag OK of `finish`). A function of the series alone. */
#ifndef TRI_TRAIN_HEALTH_SPIKE_H
#define TRI_TRAIN_HEALTH_SPIKE_H

#include <stdbool.h>

enum { TRI_SPIKE_WINDOW = 16 };

/* What becomes of a spike (train.on_spike), in the order of the setting's choices. A loss that is
 * not finite is one in any case, and its step writes nothing in any case. */
typedef enum tri_on_spike {
    TRI_SPIKE_WARN,     /* it is told, and trained on where it is finite */
    TRI_SPIKE_SKIP,     /* the step writes nothing */
    TRI_SPIKE_ROLLBACK, /* the state of the last checkpoint is loaded: steps since count as skipped
                         */
    TRI_SPIKE_STOP      /* the run ends */
} tri_on_spike;

typedef struct tri_spike_config {
    tri_on_spike on;
    double limit; /* multiples of the spread; 0: no finite loss is a spike */
} tri_spike_config;

typedef struct tri_spikes {
    float last[TRI_SPIKE_WINDOW]; /* good losses, oldest first */
    int num;
    float limit; /* of the step at hand; INFINITY: none */
    bool found;  /* the last step was one */
} tri_spikes;

/* The loss above which the next step is a spike: INFINITY while there are too few to judge by. */
float tri_spikes_limit(const tri_spikes *spikes, double multiple);
/* One more that was trained on. */
void tri_spikes_add(tri_spikes *spikes, float loss);

#endif
