/* A wish that the run end early, from a person or from a scheduler: a flag that a signal sets.
 *
 * SIGTERM and SIGUSR1 come from schedulers that need the machine back, SIGINT from Ctrl-C. What is
 * asked for is the same: finish the step, save, and end well. The handler only sets the flag; the
 * training loop looks at it after each step. */
#ifndef TRI_CLI_SIGNALS_H
#define TRI_CLI_SIGNALS_H

/* From here on those signals set the flag, in this process and in what it forks. A second SIGINT
 * ends the process as if nothing were caught. A signal that the process was started with ignored
 * stays so. */
void tri_signals_catch(void);
/* The first signal that came, 0: none. */
int tri_signals_caught(void);

#endif
