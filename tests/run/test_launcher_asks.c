/* The launcher as recovery needs it: ranks that are asked to end and do so in their own time, whom
 * a failure has cost, and logs that go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/exit_code.h"
#include "run/launcher.h"
#include "temp_dir.h"

#include <signal.h>

static volatile sig_atomic_t asked;

/* What the launcher got. */
static void note(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (asked == 0)
        asked = info->si_code == SI_QUEUE ? info->si_value.sival_int : signal;
}

typedef struct plan {
    int signal;       /* that rank 1 sends to the launcher */
    int then;         /* and another after it; 0: none */
    int again;        /* and another, when it was asked; 0: none */
    int after_ms;     /* so much later */
    int ends_ms;      /* how long a rank takes to end once it was asked */
    unsigned die;     /* ranks that kill themselves instead, as bits */
    double insists_s; /* a second SIGINT counts after so long; 0: as usual */
    int fails;        /* rank that says that it failed, a little before; -1: none */
} plan;

static int rank_main(const tri_bootstrap *b, void *context)
{
    const plan *p = context;
    char key[16];
    size_t n;
    snprintf(key, sizeof key, "%d", b->rank);
    b->put(b->context, key, key, 2, NULL); /* all are there before anything happens */
    for (int r = 0; r < b->size; r++) {
        char other[16], value[16];
        snprintf(other, sizeof other, "%d", r);
        b->get(b->context, other, value, sizeof value, &n, NULL);
    }
    atomic_store(&b->status->step, 10 + b->rank);
    printf("rank %d is here\n", b->rank);
    fflush(stdout);
    if (b->rank == p->fails) {
        tri_control_report_failure(b, "my neighbour is gone");
        return 1;
    }
    if (p->die >> b->rank & 1)
        raise(SIGKILL);
    if (b->rank == 1 && p->signal)
        kill(getppid(), p->signal);
    if (b->rank == 1 && p->then)
        kill(getppid(), p->then);
    for (int ms = 0; ms < 10000 && !asked && !atomic_load(&b->stop->stopped); ms += 5)
        usleep(5000);
    for (int ms = 0; ms < p->after_ms; ms += 5)
        usleep(5000);
    if (b->rank == 1 && p->again)
        kill(getppid(), p->again);
    for (int ms = 0; ms < p->ends_ms && asked; ms += 5)
        usleep(5000);
    if (b->rank == 0 && asked) /* those whom a failure stops do not get further */
        atomic_store(&b->status->step, 20);
    return asked == 0 ? TRI_EXIT_FAILED : asked == SIGINT ? TRI_EXIT_INTERRUPTED : TRI_EXIT_STOPPED;
}

static void launch(temp_dir *dir, int num_ranks, plan p, bool append, tri_launch_result *result)
{
    tr_error err = {0};
    tri_launch_config config = {.num_ranks = num_ranks,
                                .deadline_s = 10,
                                .term_grace_s = 0.2,
                                .stop_grace_s = 60, /* nobody is killed for being slow */
                                .insists_s = p.insists_s,
                                .log_dir = temp_file(dir, "log"),
                                .asks = true,
                                .append_logs = append};
    struct sigaction old[2], action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    sigaction(SIGTERM, &action, &old[0]);
    sigaction(SIGUSR1, &action, &old[1]);
    asked = 0;
    assert_int_equal(tri_launch(&config, rank_main, &p, result, &err), TR_OK);
    sigaction(SIGTERM, &old[0], NULL);
    sigaction(SIGUSR1, &old[1], NULL);
}

/* Nothing is killed, though the ranks take longer than the grace of those that are. */
static void those_who_are_asked_take_their_time(void **state)
{
    const int signals[] = {SIGTERM, SIGUSR1, SIGINT};
    for (int i = 0; i < 3; i++) {
        tri_launch_result result;
        launch(*state, 2, (plan){.signal = signals[i], .ends_ms = 500, .fails = -1}, false,
               &result);
        assert_int_equal(result.code,
                         signals[i] == SIGINT ? TRI_EXIT_INTERRUPTED : TRI_EXIT_STOPPED);
        assert_int_equal(result.failed_rank, -1);
        assert_int_equal(result.step, 20);
        assert_int_equal(result.asked, signals[i]);
        assert_false(result.interrupted);
        assert_int_equal(result.num_lost, 0);
        assert_true(result.report.length == 0);
        tri_launch_result_fini(&result);
    }
}

/* A scheduler that repeats itself changes nothing; a person who does is not made to wait. */
static void asking_twice(void **state)
{
    tri_launch_result result;
    launch(*state, 2, (plan){.signal = SIGUSR1, .again = SIGTERM, .ends_ms = 400, .fails = -1},
           false, &result);
    assert_int_equal(result.code, TRI_EXIT_STOPPED);
    tri_launch_result_fini(&result);
    /* Nor does a person who asks for the first time. */
    launch(*state, 2, (plan){.signal = SIGUSR1, .again = SIGINT, .ends_ms = 400, .fails = -1},
           false, &result);
    assert_int_equal(result.code, TRI_EXIT_STOPPED);
    assert_false(result.interrupted);
    tri_launch_result_fini(&result);
    /* Nor what is sent twice for one key: `timeout -s INT` does, and wrappers that pass it on. */
    launch(*state, 2,
           (plan){.signal = SIGINT,
                  .then = SIGINT,
                  .again = SIGINT,
                  .ends_ms = 400,
                  .insists_s = 60,
                  .fails = -1},
           false, &result);
    assert_int_equal(result.code, TRI_EXIT_INTERRUPTED);
    assert_int_equal(result.step, 20);
    assert_false(result.interrupted);
    tri_launch_result_fini(&result);
    launch(*state, 2,
           (plan){.signal = SIGINT, .again = SIGINT, .after_ms = 600, .ends_ms = 8000, .fails = -1},
           false, &result);
    assert_int_equal(result.code, TRI_EXIT_INTERRUPTED);
    assert_true(result.interrupted);
    assert_string_equal(result.report.chars, "the run was ended by SIGINT\n");
    tri_launch_result_fini(&result);
}

/* A job that a script runs in the background is not for whoever presses Ctrl-C. */
static void what_was_ignored_stays_so(void **state)
{
    tri_launch_result result;
    signal(SIGINT, SIG_IGN);
    launch(*state, 2, (plan){.signal = SIGINT, .then = SIGTERM, .fails = -1}, false, &result);
    signal(SIGINT, SIG_DFL);
    assert_int_equal(result.asked, SIGTERM);
    assert_int_equal(result.code, TRI_EXIT_STOPPED);
    tri_launch_result_fini(&result);
}

/* Those that were killed are lost, also when another was first to say that something is wrong. */
static void the_lost_are_listed(void **state)
{
    tri_launch_result result;
    launch(*state, 4, (plan){.die = 1 << 2, .fails = -1}, false, &result);
    assert_int_equal(result.num_lost, 1);
    assert_int_equal(result.lost[0], 2);
    assert_true(result.step >= 10 && result.step <= 13);
    tri_launch_result_fini(&result);
    launch(*state, 4, (plan){.die = 1 << 1 | 1 << 3, .fails = -1}, false, &result);
    assert_int_equal(result.num_lost, 2);
    assert_int_equal(result.lost[0], 1);
    assert_int_equal(result.lost[1], 3);
    tri_launch_result_fini(&result);
    launch(*state, 3, (plan){.die = 1 << 1, .fails = 0}, false, &result);
    assert_int_equal(result.num_lost, 1);
    assert_int_equal(result.lost[0], 1);
    tri_launch_result_fini(&result);
    launch(*state, 3, (plan){.fails = 2}, false, &result);
    assert_int_equal(result.num_lost, 1);
    assert_int_equal(result.lost[0], 2);
    tri_launch_result_fini(&result);
}

static int lines_of_log(temp_dir *dir)
{
    FILE *file = fopen(temp_file(dir, "log/rank-0.log"), "r");
    int lines = 0;
    assert_non_null(file);
    for (int c; (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

static void logs_go_on(void **state)
{
    for (int i = 0; i < 3; i++) {
        tri_launch_result result;
        launch(*state, 2, (plan){.signal = SIGTERM, .fails = -1}, i == 1, &result);
        tri_launch_result_fini(&result);
        assert_int_equal(lines_of_log(*state), i == 1 ? 2 : 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_are_asked_take_their_time),
        cmocka_unit_test(asking_twice),
        cmocka_unit_test(what_was_ignored_stays_so),
        cmocka_unit_test(the_lost_are_listed),
        cmocka_unit_test(logs_go_on),
    };
    signal(SIGINT, SIG_DFL); /* whoever runs tests in the background has it ignored */
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
