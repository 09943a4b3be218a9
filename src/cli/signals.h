/* Signals: a wish that the run end early, from a person or from a scheduler; and the loss of
 * whoever reads the output, which is no such wish.
 *
 * SIGTERM and SIGUSR1 come from schedulers that need the machine back, SIGINT from Ctrl-C. What is
 * asked for is the same: finish the step, save, and end well. The handler only sets a flag; the
 * training loop looks at it after each step. */
#ifndef TRI_CLI_SIGNALS_H
#define TRI_CLI_SIGNALS_H

#include "base/exit_code.h"

/* From here on those signals set the flag, in this process and in what it forks. A second SIGINT
 * ends the process as if nothing were caught, unless it is the echo of the first. A signal that the
 * process was started with ignored stays so. */
void tri_signals_catch(void);
/* The first signal that came, 0: none. In a rank it is the one that its launcher got. */
int tri_signals_caught(void);

/* For a verb whose work is not what it prints: whoever reads that may go (SIGPIPE is ignored, and
 * writing fails instead). */
void tri_signals_outlive_readers(void);
/* Whether to print: such a verb leaves a message out rather than wait for a reader that stopped
 * reading. */
bool tri_signals_may_write(int fd);

/* Ends the process by a signal, as if it had never been caught. */
void tri_signals_die_of(int number);

#endif
