/* The watchdog of the control server: looks at the clock and at what ranks said of themselves, and
 * finds the one to blame. */
#ifndef TRI_COMM_CONTROL_CONTROL_WATCH_H
#define TRI_COMM_CONTROL_CONTROL_WATCH_H

#include "comm/control/control.h"

typedef struct tri_control_watch {
    const tri_control_config *config;
    const tri_control_rank *ranks;
    bool welcomed;
    uint64_t created_ns, now_ns;
} tri_control_watch;

/* Fills *failure but for when_ns; its cause stays NONE when all is well. */
void tri_control_watch_look(const tri_control_watch *watch, tri_control_failure *failure);

#endif
