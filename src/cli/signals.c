#include "cli/signals.h"

#include <signal.h>
#include <stddef.h>

/* The one piece of state that a handler can reach. */
static volatile sig_atomic_t caught;

static void note_signal(int signal)
{
    if (caught == 0)
        caught = signal;
}

void tri_signals_catch(void)
{
    static const int signals[] = {SIGTERM, SIGUSR1, SIGINT};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction old, action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
        if (signals[i] == SIGINT)
            action.sa_flags |= SA_RESETHAND;
        sigemptyset(&action.sa_mask);
        sigaction(signals[i], NULL, &old);
        if (old.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

int tri_signals_caught(void)
{
    return caught;
}
