/* The launcher: ranks that end, crash, stop, fail and are killed, what is reported, and that
 * nothing is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/exit_code.h"
#include "base/fs.h"
#include "run/launcher.h"
#include "temp_dir.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- what ranks do here ---- */

/* Much longer than anything takes that the launcher ends, on the slowest machine. */
enum { LONG_S = 60 };

typedef enum act {
    END,      /* at once */
    EXIT,     /* with code 5 */
    FAIL,     /* with a message of its own */
    CRASH,    /* by SIGSEGV */
    FREEZE,   /* by SIGSTOP, to itself */
    STUCK,    /* alive, but not moving, while others wait for it */
    DIE_LATE, /* by SIGKILL, to itself, after a while */
    STUBBORN, /* does not stop when told to */
    GROUP     /* sends SIGINT to the launcher, as a terminal would */
} act;

typedef struct plan {
    act act;
    int who;      /* the rank that does it; the others wait for it until they are told to stop */
    bool at_once; /* not only when the others wait */
    bool share_cores;
    const char *dir; /* where one that crashes leaves a half-written file */
} plan;

static void at(const tri_bootstrap *b, int64_t step, int64_t instruction, const char *doing,
               uint64_t bytes)
{
    tri_rank_status *s = b->status;
    atomic_fetch_add(&s->counter, 1);
    atomic_store(&s->step, step);
    atomic_store(&s->instruction, instruction);
    snprintf(s->doing, sizeof s->doing, "%s", doing);
    atomic_store(&s->bytes, bytes);
}

static int wait_for(const tri_bootstrap *b, int peer, bool stubborn)
{
    struct timespec t;
    char key[32];
    clock_gettime(CLOCK_MONOTONIC, &t);
    atomic_store(&b->status->peer, peer);
    atomic_store(&b->status->waiting_since_ns,
                 (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
    snprintf(key, sizeof key, "waits.%d", b->rank);
    b->put(b->context, key, "", 1, NULL);
    double until = now_s() + LONG_S;
    while ((stubborn || !atomic_load(&b->stop->stopped)) && now_s() < until)
        usleep(2000);
    printf("told to stop: %s\n", b->stop->reason);
    return 1;
}

/* The others wait for this rank from here on. */
static void until_all_wait(const tri_bootstrap *b)
{
    char key[32], value[4];
    size_t n;
    for (int r = 0; r < b->size; r++) {
        snprintf(key, sizeof key, "waits.%d", r);
        if (r != b->rank)
            b->get(b->context, key, value, sizeof value, &n, NULL);
    }
}

static void leave_file(const char *dir)
{
    tri_atomic_file file;
    char path[256];
    snprintf(path, sizeof path, "%s/half.bin", dir);
    if (tri_atomic_begin(&file, path, NULL) == TR_OK)
        tri_atomic_write(&file, "half", 4, NULL);
}

static int rank_main(const tri_bootstrap *b, void *context)
{
    const plan *p = context;
    char key[32], value[64];
    size_t n;
    tr_error err = {0};
    snprintf(key, sizeof key, "hello.%d", b->rank);
    if (b->put(b->context, key, key, strlen(key) + 1, &err) != TR_OK)
        return 1;
    for (int r = 0; r < b->size; r++) {
        snprintf(key, sizeof key, "hello.%d", r);
        if (b->get(b->context, key, value, sizeof value, &n, &err) != TR_OK ||
            strcmp(key, value) != 0)
            return 1;
    }
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    printf("rank %d of %d, local %d of %d, %d cores\n", b->rank, b->size, b->local_rank,
           b->local_size, CPU_COUNT(&set));
    if (p->act == END)
        return 0;
    at(b, 17, 46, "all_reduce of gradients", 3565158);
    if (b->rank != p->who)
        return wait_for(b, p->who, p->act == STUBBORN);
    if (!p->at_once)
        until_all_wait(b);
    fprintf(stderr, "the last line of rank %d\n", b->rank);
    switch (p->act) {
    case EXIT:
        return 5;
    case FAIL:
        tri_control_report_failure(b, "loss is not finite");
        return 1;
    case CRASH:
        leave_file(p->dir);
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would catch it */
        raise(SIGSEGV);
        break;
    case FREEZE:
        raise(SIGSTOP);
        break;
    case STUCK:
        while (!atomic_load(&b->stop->stopped))
            usleep(2000);
        return 1;
    case STUBBORN:
    case DIE_LATE:
        raise(SIGKILL);
        break;
    case GROUP:
        kill(getppid(), SIGINT);
        pause();
        break;
    case END:
        break;
    }
    return 0;
}

/* ---- what is left behind ---- */

static int num_children(void)
{
    int num = 0;
    siginfo_t info = {0};
    /* Any child at all, dead or alive, would be seen. */
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        num = 1;
    return num;
}

/* Entries whose names contain this: others have theirs there, too. */
static int num_named(const char *path, const char *part)
{
    DIR *dir = opendir(path);
    int num = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        num += strstr(entry->d_name, part) != NULL;
    if (dir)
        closedir(dir);
    return num;
}

typedef struct leftovers {
    int children, descriptors, shared;
} leftovers;

static leftovers count_leftovers(void)
{
    return (leftovers){.children = num_children(),
                       .descriptors = num_entries("/proc/self/fd"),
                       .shared = num_named("/dev/shm", "trireme")};
}

static void assert_nothing_left(leftovers before)
{
    leftovers after = count_leftovers();
    assert_int_equal(after.children, before.children);
    assert_int_equal(after.descriptors, before.descriptors);
    assert_int_equal(after.shared, before.shared);
}

/* ---- running one ---- */

typedef struct capture {
    char text[8192];
    size_t used;
} capture;

static void collect(void *context, const char *data, size_t n)
{
    capture *c = context;
    if (c->used + n >= sizeof c->text)
        n = sizeof c->text - 1 - c->used;
    if (n > 0)
        memcpy(c->text + c->used, data, n);
    c->used += n;
    c->text[c->used] = 0;
}

static void read_log(temp_dir *dir, int rank, char *text, size_t capacity)
{
    char name[32];
    snprintf(name, sizeof name, "log/rank-%d.log", rank);
    FILE *file = fopen(temp_file(dir, name), "r");
    assert_non_null(file);
    text[fread(text, 1, capacity - 1, file)] = 0;
    fclose(file);
}

static void launch_plan(temp_dir *dir, int num_ranks, const plan *p, double deadline_s,
                        tri_launch_result *result, capture *out)
{
    capture ignored = {0};
    tr_error err = {0};
    tri_launch_config config = {.num_ranks = num_ranks,
                                .deadline_s = deadline_s,
                                .log_dir = temp_file(dir, "log"),
                                .run_dir = dir->path,
                                .share_cores = p->share_cores,
                                .output = collect,
                                .context = out ? out : &ignored};
    leftovers before = count_leftovers();
    tr_status status = tri_launch(&config, rank_main, (void *)(uintptr_t)p, result, &err);
    if (status != TR_OK)
        fail_msg("%s", err.message);
    assert_nothing_left(before);
    for (int r = 0; r < num_ranks; r++) { /* ranks end by _exit: a sanitizer speaks in the log */
        char log[16384];
        read_log(dir, r, log, sizeof log);
        if (strstr(log, "Sanitizer"))
            fail_msg("%s", log);
    }
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in:\n%s", part, text);
}

/* ---- tests ---- */

static void all_end_well(void **state)
{
    tri_launch_result result;
    capture out = {0};
    char log[4096];
    launch_plan(*state, 4, &(plan){.act = END}, 10, &result, &out);
    assert_int_equal(result.code, 0);
    assert_int_equal(result.failed_rank, -1);
    assert_int_equal(result.report.length, 0);
    assert_true(result.joined_s > 0);
    print_message("4 ranks joined %.1f ms after the start\n", 1e3 * result.joined_s);
    assert_has(out.text, "rank 0 of 4, local 0 of 4");
    assert_null(strstr(out.text, "rank 1"));
    read_log(*state, 3, log, sizeof log);
    assert_has(log, "rank 3 of 4, local 3 of 4");
    tri_launch_result_fini(&result);
}

static void cores_are_shared(void **state)
{
    tri_launch_result result;
    capture out = {0};
    char expected[32];
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    int cores = CPU_COUNT(&set);
    launch_plan(*state, 2, &(plan){.act = END, .share_cores = true}, 10, &result, &out);
    snprintf(expected, sizeof expected, " %d cores", cores >= 2 ? cores / 2 : cores);
    assert_has(out.text, expected);
    tri_launch_result_fini(&result);
}

/* The report begins with the headline, holds a line for every other rank and the end of the log. */
static void assert_report(const tri_launch_result *result, const char *headline, int who, int size)
{
    const char *text = result->report.chars;
    char line[200];
    if (!text || strncmp(text, headline, strlen(headline)) != 0)
        fail_msg("'%s' does not begin:\n%s", headline, text);
    for (int r = 0; r < size; r++) {
        if (r == who)
            continue;
        snprintf(line, sizeof line, "  rank %d was waiting for rank %d for ", r, who);
        assert_has(text, line);
    }
    assert_has(text, " at step 17, instruction 46: all_reduce of gradients, 3.40 MiB");
    snprintf(line, sizeof line, "  | the last line of rank %d\n", who);
    assert_has(text, line);
    assert_has(text, "log/rank-N.log\n");
}

static void a_crash(void **state)
{
    tri_launch_result result;
    char log[4096];
    temp_dir *dir = *state;
    launch_plan(dir, 4, &(plan){.act = CRASH, .who = 2, .dir = dir->path}, 10, &result, NULL);
    assert_int_equal(num_entries(dir->path), 1); /* log, and not what it was writing */
    assert_int_equal(result.code, 1);
    assert_int_equal(result.failed_rank, 2);
    assert_int_equal(result.signal, SIGSEGV);
    assert_report(&result,
                  "rank 2 was killed by SIGSEGV at step 17, instruction 46: all_reduce of "
                  "gradients, 3.40 MiB\n",
                  2, 4);
    read_log(*state, 1, log, sizeof log); /* the others were told the same */
    assert_has(log, "told to stop: rank 2 was killed by SIGSEGV at step 17");
    tri_launch_result_fini(&result);
}

static void a_kill(void **state)
{
    tri_launch_result result;
    launch_plan(*state, 3, &(plan){.act = DIE_LATE, .who = 0}, 10, &result, NULL);
    assert_int_equal(result.signal, SIGKILL);
    assert_report(&result, "rank 0 was killed by SIGKILL at step 17, instruction 46: ", 0, 3);
    tri_launch_result_fini(&result);
}

static void an_exit_code(void **state)
{
    tri_launch_result result;
    launch_plan(*state, 3, &(plan){.act = EXIT, .who = 1}, 10, &result, NULL);
    assert_int_equal(result.code, 5);
    assert_report(&result, "rank 1 ended with exit code 5 at step 17", 1, 3);
    tri_launch_result_fini(&result);
}

static void a_message(void **state)
{
    tri_launch_result result;
    capture out = {0};
    launch_plan(*state, 3, &(plan){.act = FAIL, .who = 1}, 10, &result, &out);
    assert_int_equal(result.code, 1);
    assert_int_equal(result.failed_rank, 1);
    assert_report(&result,
                  "loss is not finite\n  rank 1 of 3 ended with this error at step 17, "
                  "instruction 46",
                  1, 3);
    tri_launch_result_fini(&result);
}

/* A busy machine may keep any process silent for as long as a short deadline. Then it is tried
 * with a longer one. */
static void launch_silent(temp_dir *dir, const plan *p, const char *headline,
                          tri_launch_result *result)
{
    for (double deadline_s = 1;; deadline_s *= 5) {
        double start = now_s();
        launch_plan(dir, 3, p, deadline_s, result, NULL);
        assert_true(now_s() - start > 0.8 * deadline_s);
        const char *text = result->report.chars;
        if (deadline_s > LONG_S / 5 || (text && strncmp(text, headline, strlen(headline)) == 0)) {
            assert_report(result, headline, p->who, 3);
            assert_int_equal(result->failed_rank, p->who);
            assert_true(strtod(text + strlen(headline), NULL) >= deadline_s);
            return;
        }
        tri_launch_result_fini(result);
    }
}

static void a_frozen_rank(void **state)
{
    tri_launch_result result;
    launch_silent(*state, &(plan){.act = FREEZE, .who = 1}, "rank 1 was not heard from for ",
                  &result);
    assert_has(result.report.chars,
               " s; its process is stopped (SIGSTOP), at step 17, instruction 46: all_reduce");
    tri_launch_result_fini(&result);
}

static void a_stuck_rank(void **state)
{
    tri_launch_result result;
    launch_silent(*state, &(plan){.act = STUCK, .who = 2}, "rank 2 did not move for ", &result);
    assert_has(result.report.chars, " s while others waited for it, at step 17");
    tri_launch_result_fini(&result);
}

static void the_stubborn_are_killed(void **state)
{
    tri_launch_result result;
    double start = now_s();
    launch_plan(*state, 3, &(plan){.act = STUBBORN, .who = 1}, 10, &result, NULL);
    assert_true(now_s() - start < LONG_S / 2);
    assert_int_equal(result.failed_rank, 1);
    tri_launch_result_fini(&result);
}

static void an_interrupt(void **state)
{
    tri_launch_result result;
    double start = now_s();
    launch_plan(*state, 3, &(plan){.act = GROUP, .who = 1}, 10, &result, NULL);
    assert_true(now_s() - start < LONG_S / 2);
    assert_true(result.interrupted);
    assert_int_equal(result.signal, SIGINT);
    assert_int_equal(result.code, TRI_EXIT_INTERRUPTED);
    assert_string_equal(result.report.chars, "the run was ended by SIGINT\n");
    tri_launch_result_fini(&result);
}

/* A process that kills a random rank of its parent at a random moment. The ranks are found by their
 * parent, so they may not have joined yet, or be half way through. */
static void kill_some_child(pid_t parent, unsigned seed)
{
    char path[64], list[512] = "";
    pid_t pids[16], self = getpid();
    int num = 0;
    usleep(seed * 7919u % 60000);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    while (num == 0 && getppid() == parent) {
        FILE *file = fopen(path, "r");
        size_t n = file ? fread(list, 1, sizeof list - 1, file) : 0;
        list[n] = 0;
        if (file)
            fclose(file);
        for (char *next = list; *next && num < 16; next += strcspn(next, " "), next += *next == ' ')
            if (atoi(next) != self)
                pids[num++] = atoi(next);
        usleep(500);
    }
    if (num > 0)
        kill(pids[seed % (unsigned)num], SIGKILL);
    _exit(0);
}

static void kills_at_random_moments(void **state)
{
    const char *wanted = getenv("TRIREME_TEST_FULL");
    int num = wanted ? 100 : 25;
    for (int i = 0; i < num; i++) {
        tri_launch_result result;
        plan p = {.act = STUCK, .who = i % 3, .at_once = true};
        pid_t parent = getpid(), killer = fork();
        if (killer == 0)
            kill_some_child(parent, (unsigned)i);
        tr_error err = {0};
        tri_launch_config config = {
            .num_ranks = 3, .deadline_s = LONG_S, .log_dir = temp_file(*state, "log")};
        int descriptors = num_entries("/proc/self/fd");
        double start = now_s();
        assert_int_equal(tri_launch(&config, rank_main, &p, &result, &err), TR_OK);
        assert_true(now_s() - start < LONG_S / 2);
        assert_int_equal(num_entries("/proc/self/fd"), descriptors);
        assert_int_equal(result.code, 1);
        assert_true(result.failed_rank >= 0);
        assert_has(result.report.chars, " was killed by SIGKILL ");
        tri_launch_result_fini(&result);
        assert_int_equal(waitpid(killer, NULL, 0), killer);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
    }
}

/* When the launcher itself is killed, its ranks go with it. */
static void a_killed_launcher(void **state)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
        tri_launch_result result;
        tr_error err;
        close(ends[0]);
        tri_launch_config config = {.num_ranks = 3, .deadline_s = LONG_S};
        plan p = {.act = STUCK, .at_once = true};
        tri_launch(&config, rank_main, &p, &result, &err);
        _exit(0);
    }
    close(ends[1]);
    usleep(300000);
    kill(launcher, SIGKILL);
    waitpid(launcher, NULL, 0);
    /* Ends when the last process that holds the other end is gone. */
    double start = now_s();
    assert_int_equal(read(ends[0], &byte, 1), 0);
    assert_true(now_s() - start < LONG_S / 2);
    close(ends[0]);
    (void)state;
}

static void what_cannot_be_started(void **state)
{
    tri_launch_result result;
    tr_error err = {0};
    tri_launch_config config = {.num_ranks = 0, .deadline_s = 1};
    leftovers before = count_leftovers();
    assert_int_equal(tri_launch(&config, rank_main, NULL, &result, &err), TR_ERROR_INPUT);
    config.num_ranks = 2;
    config.log_dir = "/proc/no/such";
    assert_int_equal(tri_launch(&config, rank_main, NULL, &result, &err), TR_ERROR_RUNTIME);
    assert_has(err.message, "/proc/no");
    assert_nothing_left(before);
    (void)state;
}

static void reports_of_large_worlds_are_short(void **state)
{
    enum { NUM = 1000 };
    tri_report_rank *ranks = calloc(NUM, sizeof *ranks);
    tri_text text;
    tri_text_init(&text);
    ranks[700].fate = TRI_FATE_SIGNAL;
    ranks[700].signal = SIGBUS;
    ranks[900].frozen = true;
    tri_report report = {.num_ranks = NUM, .ranks = ranks, .first = 700};
    tri_report_write(&text, &report);
    assert_has(text.chars, "rank 700 was killed by SIGBUS at step 0, instruction 0\n");
    assert_has(text.chars, "  rank 900 was running; its process is stopped (SIGSTOP)");
    assert_has(text.chars, "more ranks were running or had ended\n");
    assert_true(text.length < 4000);
    tri_text_fini(&text);
    free(ranks);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_end_well),
        cmocka_unit_test(cores_are_shared),
        cmocka_unit_test(a_crash),
        cmocka_unit_test(a_kill),
        cmocka_unit_test(an_exit_code),
        cmocka_unit_test(a_message),
        cmocka_unit_test(a_frozen_rank),
        cmocka_unit_test(a_stuck_rank),
        cmocka_unit_test(the_stubborn_are_killed),
        cmocka_unit_test(an_interrupt),
        cmocka_unit_test(kills_at_random_moments),
        cmocka_unit_test(a_killed_launcher),
        cmocka_unit_test(what_cannot_be_started),
        cmocka_unit_test(reports_of_large_worlds_are_short),
    };
    signal(SIGINT, SIG_DFL); /* whoever runs tests in the background has it ignored */
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
