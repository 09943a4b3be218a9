#include "cli/signals.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/launch/relay.h"
#include "run/launcher.h"

/* What a handler can reach. */
static volatile sig_atomic_t caught;

/* A launcher says by which signal it was itself asked. */
static void note_signal(int signal, siginfo_t *info, void *context)
{
    (void)context;
    bool forwarded = info->si_code == SI_QUEUE && info->si_pid == getppid();
    if (forwarded && info->si_value.sival_int > 0)
        signal = info->si_value.sival_int;
    if (caught == 0)
        caught = signal;
    static volatile uint64_t first_ns;
    if (signal != SIGINT || forwarded)
        return;
    uint64_t now = tri_now_ns();
    if (first_ns == 0)
        first_ns = now;
    if (now - first_ns >= TRI_INSISTS_NS)
        tri_signals_die_of(SIGINT);
}

void tri_signals_catch(void)
{
    static const int signals[] = {SIGTERM, SIGUSR1, SIGINT};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction old,
            action = {.sa_sigaction = note_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
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

static bool outlives;

void tri_signals_outlive_readers(void)
{
    signal(SIGPIPE, SIG_IGN);
    outlives = true;
}

bool tri_signals_may_write(int fd)
{
    enum { PATIENCE_MS = 3000 };
    return !outlives || tri_has_room(fd, PATIENCE_MS);
}

void tri_signals_die_of(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    signal(number, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
}
