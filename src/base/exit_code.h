/* How a process of this program ends. `trireme --help` and docs/recovery.md print this table. */
#ifndef TRI_BASE_EXIT_CODE_H
#define TRI_BASE_EXIT_CODE_H

#include <stdbool.h>

enum {
    TRI_EXIT_OK = 0,
    TRI_EXIT_FAILED = 1,        /* while running */
    TRI_EXIT_USAGE = 2,         /* the command line or an input is wrong */
    TRI_EXIT_STOPPED = 3,       /* early, in good order; can be resumed */
    TRI_EXIT_INTERRUPTED = 130, /* the same after Ctrl-C: 128 + SIGINT, as shells count */
    /* From a rank to its launcher only, who ends with TRI_EXIT_FAILED: another try would end in the
     * same way. */
    TRI_EXIT_FINAL = 4
};

/* Whether a rank that ended so did what it was asked for, be it to stop. */
static inline bool tri_exit_is_good(int code)
{
    return code == TRI_EXIT_OK || code == TRI_EXIT_STOPPED || code == TRI_EXIT_INTERRUPTED;
}

#endif
