/* What happens when ranks die, stall or disagree: the others stop in time and say who and what. And
 * nothing is left behind. */
#include "comm/comm.h"

#include "base/error.h"
#include "comm/wait.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define WORLD 4
/* What ends well does so long before this; what does not would wait for the deadline, 60 s. */
#define SOON_S 30

static double now_s(void)
{
    return (double)tri_now_ns() * 1e-9;
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Entries of a folder whose names contain this. */
static int count_entries(const char *path, const char *part)
{
    DIR *dir = opendir(path);
    int num = 0;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        num += strstr(entry->d_name, part) != NULL;
    if (dir != NULL)
        closedir(dir);
    return num;
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

struct fault {
    int victim;
    bool exits;   /* instead of being killed */
    size_t bytes; /* of the collective it dies in */
    const char *algorithm;
    bool private;
    double *died_s; /* shared with the ranks: when the victim left */
};

/* All-reduces without end; the victim leaves in the middle of one. */
static tr_status run_until_fault(tr_comm *comm, void *context, tr_error *err)
{
    struct fault *fault = context;
    tr_group *world = tr_comm_world(comm);
    void *data;
    if (fault->private)
        data = calloc(1, fault->bytes);
    else
        TRI_TRY(tr_comm_alloc(comm, fault->bytes, &data, err));
    tr_collective call = {.operation = TR_ALL_REDUCE,
                          .dtype = TR_F32,
                          .send = data,
                          .recv = data,
                          .count = fault->bytes / 4,
                          .algorithm = fault->algorithm,
                          .label = "gradients"};
    tr_status status = TR_OK;
    for (int i = 0; status == TR_OK; i++) {
        if (i == 20 && tr_comm_rank(comm) == fault->victim) {
            *fault->died_s = now_s();
            if (fault->exits)
                _exit(3);
            kill(getpid(), SIGKILL);
        }
        status = tr_collective_run(world, &call, err);
    }
    if (fault->private)
        free(data);
    return status;
}

static void *shared_memory(size_t num_bytes)
{
    void *memory = mmap(NULL, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void check_fault(struct fault fault)
{
    int files = count_entries("/proc/self/fd", ""), segments = count_entries("/dev/shm", "trireme");
    tr_error err = {0};
    fault.died_s = shared_memory(sizeof(double));
    tr_status status = tr_comm_spawn(WORLD, NULL, run_until_fault, &fault, &err);
    double took = now_s() - *fault.died_s;
    munmap(fault.died_s, sizeof *fault.died_s);
    assert_int_equal(status, TR_ERROR_RUNTIME);
    char who[40];
    snprintf(who, sizeof who, "rank %d failed", fault.victim);
    assert_contains(err.message, who);
    assert_contains(err.message, fault.exits ? "exited with code 3" : "killed by signal 9");
    assert_contains(err.message, "all_reduce of gradients");
    assert_true(took < SOON_S);
    assert_int_equal(count_entries("/proc/self/fd", ""), files);
    assert_int_equal(count_entries("/dev/shm", "trireme"), segments);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    assert_int_equal(errno, ECHILD);
}

static void test_killed(void **state)
{
    (void)state;
    check_fault((struct fault){.victim = 2, .bytes = 1024});
    check_fault((struct fault){.victim = 0, .bytes = 4 << 20});
    check_fault((struct fault){.victim = 3, .bytes = 4 << 20, .private = true});
    check_fault((struct fault){.victim = 1, .bytes = 1 << 20, .algorithm = "ring"});
    check_fault(
        (struct fault){.victim = 1, .bytes = 1 << 20, .algorithm = "tree", .private = true});
}

static void test_exits(void **state)
{
    (void)state;
    check_fault((struct fault){.victim = 1, .bytes = 64 << 10, .exits = true});
}

/* ---- killed at a moment that nobody chose */

struct random_kill {
    int victim;
    unsigned seed, after_us;
    double *died_s;
};

static void *kill_later(void *context)
{
    struct random_kill *kill_at = context;
    usleep(kill_at->after_us);
    *kill_at->died_s = now_s();
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Every kind of call, in an order that follows from the seed, until the victim is gone. */
static tr_status run_until_killed(tr_comm *comm, void *context, tr_error *err)
{
    static const char *const algorithms[] = {"direct", "ring", "tree"};
    enum { MOST = 1 << 20 };
    struct random_kill *plan = context;
    int size = tr_comm_size(comm), rank = tr_comm_rank(comm);
    unsigned seed = plan->seed;
    void *shared;
    TRI_TRY(tr_comm_alloc(comm, 2 * MOST, &shared, err));
    char *private = calloc(2, MOST);
    pthread_t killer;
    if (rank == plan->victim)
        pthread_create(&killer, NULL, kill_later, plan);
    tr_status status = TR_OK;
    while (status == TR_OK) {
        unsigned choice = seed = seed * 1664525u + 1013904223u;
        char *memory = choice >> 8 & 1 ? shared : private;
        uint64_t count = (choice >> 9 & 3) == 0 ? MOST / 4 : (choice >> 12) % 5000;
        tr_collective call = {.operation = (tr_operation)((choice >> 24) % TRI_NUM_COLLS),
                              .dtype = TR_F32,
                              .send = memory,
                              .recv = memory + MOST,
                              .count = count / (unsigned)size,
                              .algorithm = algorithms[(choice >> 16) % 3]};
        const tri_algorithm *algorithm = tri_algorithm_find(call.algorithm);
        tri_coll_shape shape = tri_shape_flat(size);
        if (!tri_algorithm_supports(algorithm, (tri_coll)call.operation, &shape) ||
            (algorithm->needs_shared_memory && strcmp(tr_comm_transport(comm), "tcp") == 0))
            call.algorithm = NULL;
        tr_request *request;
        if ((choice >> 20 & 3) != 0) {
            status = tr_collective_run(tr_comm_world(comm), &call, err);
        } else {
            status = tr_collective_start(tr_comm_world(comm), &call, &request, err);
            if (status == TR_OK)
                status = tr_request_wait(request, err);
        }
        char token = 0; /* and a message around the ring now and then */
        if (status == TR_OK && (choice >> 22 & 3) == 0) {
            status = tr_recv_start(comm, (rank + size - 1) % size, &token, 1, &request, err);
            if (status == TR_OK)
                status = tr_send(comm, (rank + 1) % size, &token, 1, err);
            if (status == TR_OK)
                status = tr_request_wait(request, err);
        }
    }
    free(private);
    return status;
}

static void test_random_kills(void **state)
{
    (void)state;
    int num = getenv("TRIREME_TEST_FULL") != NULL ? 100 : 8;
    double *died_s = shared_memory(sizeof(double));
    for (int i = 0; i < num; i++) {
        unsigned seed = 12345u + (unsigned)i * 7919u;
        int size = 2 + i % 4;
        struct random_kill plan = {.victim = (int)(seed % (unsigned)size),
                                   .seed = seed,
                                   .after_us = seed * 31u % 60000,
                                   .died_s = died_s};
        tr_error err = {0};
        tr_comm_options options = {.transport = i % 4 == 3 ? "tcp" : NULL};
        tr_status status = tr_comm_spawn(size, &options, run_until_killed, &plan, &err);
        double took = now_s() - *died_s;
        char who[80];
        snprintf(who, sizeof who, "rank %d failed: it was killed by signal 9", plan.victim);
        assert_int_equal(status, TR_ERROR_RUNTIME);
        assert_contains(err.message, who);
        if (took > SOON_S)
            fail_msg("seed %u: the others took %.1f s to stop", seed, took);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    }
    munmap(died_s, sizeof *died_s);
}

/* A survivor's own error names the victim as well: seen by letting one report through a file. */
static tr_status report_survivor(tr_comm *comm, void *context, tr_error *err)
{
    double died_s;
    struct fault fault = {.victim = 2, .bytes = 4096, .died_s = &died_s};
    tr_status status = run_until_fault(comm, &fault, err);
    if (tr_comm_rank(comm) == 0) {
        FILE *file = fopen(context, "w");
        if (file != NULL) {
            fputs(err->message, file);
            fclose(file);
        }
    }
    return status;
}

static void test_survivor_says_who(void **state)
{
    (void)state;
    char path[64], text[1200] = "";
    snprintf(path, sizeof path, "/tmp/trireme-survivor-%d", (int)getpid());
    tr_error err = {0};
    tr_comm_spawn(WORLD, NULL, report_survivor, path, &err);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    unlink(path);
    assert_contains(text, "rank 0 stopped waiting for rank 2");
    assert_contains(text, "all_reduce of 1,024 f32 (sum)");
    assert_contains(text, "4,096 bytes");
    assert_contains(text, "call 21 of group world");
    assert_contains(text, "killed by signal 9");
}

/* ---- a rank that never comes */

struct late {
    const char *what;
    atomic_int *gave_up; /* shared by the ranks: rank 0 waits no more */
};

static tr_status wait_in_vain(tr_comm *comm, const char *what, tr_error *err)
{
    tr_group *world = tr_comm_world(comm);
    float x = 1;
    if (strcmp(what, "send") == 0)
        return tr_send(comm, 1, &x, sizeof x, err);
    if (strcmp(what, "recv") == 0)
        return tr_recv(comm, 1, &x, sizeof x, err);
    if (strcmp(what, "signal") == 0)
        return tr_wait_signal(comm, 1, 3, 1, err);
    if (strcmp(what, "ring") == 0) /* found at the tick, before the first message */
        return tr_collective_run(
            world, &(tr_collective){.operation = TR_BARRIER, .algorithm = "ring"}, err);
    if (strcmp(what, "started") == 0) {
        tr_request *request;
        TRI_TRY(tr_recv_start(comm, 1, &x, sizeof x, &request, err));
        return tr_request_wait(request, err);
    }
    return tr_all_reduce(world, &x, &x, 1, TR_F32, TR_SUM, err);
}

static tr_status late_rank(tr_comm *comm, void *context, tr_error *err)
{
    struct late *late = context;
    TRI_TRY(tr_barrier(tr_comm_world(comm), err));
    if (tr_comm_rank(comm) == 1) {
        while (!atomic_load(late->gave_up))
            nap_ms(10);
        return TR_OK;
    }
    tr_status status = wait_in_vain(comm, late->what, err);
    atomic_store(late->gave_up, 1);
    return status;
}

/* Whether a message says all of this, and that rank 0 waited so long. */
static bool says_all(const char *message, const char *const says[3], double deadline_s)
{
    const char *waited = strstr(message, "rank 0 waited ");
    bool all =
        waited != NULL && strtod(waited + strlen("rank 0 waited "), NULL) > 0.99 * deadline_s;
    for (int i = 0; i < 3; i++)
        all = all && strstr(message, says[i]) != NULL;
    return all;
}

/* A busy machine may keep a rank from the barrier before it for as long as a short deadline: then
 * it is tried with a longer one. */
static void wait_for_late(const char *what, const char *transport, bool processes,
                          const char *const says[3])
{
    struct late late = {.what = what, .gave_up = shared_memory(sizeof *late.gave_up)};
    for (double deadline_s = 0.3;; deadline_s *= 8) {
        tr_error err = {0};
        tr_comm_options options = {.deadline_s = deadline_s, .transport = transport};
        atomic_store(late.gave_up, 0);
        tr_status status = processes ? tr_comm_spawn(2, &options, late_rank, &late, &err)
                                     : tr_comm_run_threads(2, &options, late_rank, &late, &err);
        assert_int_equal(status, TR_ERROR_RUNTIME);
        if (says_all(err.message, says, deadline_s))
            break;
        if (deadline_s > 10)
            fail_msg("\"%s\" does not say \"%s\", \"%s\" and \"%s\"", err.message, says[0], says[1],
                     says[2]);
    }
    munmap(late.gave_up, sizeof *late.gave_up);
}

static void check_deadline(const char *what, const char *says, const char *bytes)
{
    bool collective = strcmp(what, "all_reduce") == 0 || strcmp(what, "ring") == 0;
    /* Threads, processes, and these over tcp, where a collective is what its messages are. */
    for (int way = 0; way < (collective ? 2 : 4); way++)
        wait_for_late(what, way < 2 ? NULL : "tcp", way % 2,
                      (const char *const[]){says, bytes, "rank 0"});
}

static void test_deadline(void **state)
{
    (void)state;
    check_deadline("all_reduce", "rank 1 did not come to all_reduce of 1 f32 (sum)", "4 bytes");
    check_deadline("ring", "rank 1 did not come to barrier", "0 bytes");
    check_deadline("send", "rank 1 did not receive", "4 bytes");
    check_deadline("recv", "rank 1 did not send", "4 bytes");
    check_deadline("started", "rank 1 did not send", "4 bytes");
    check_deadline("signal", "rank 1 did not raise signal 3 to 1", "");
    wait_for_late("ring", "tcp", true,
                  (const char *const[]){"rank 1 did not send: rank 0 waited ",
                                        " s to receive 0 bytes",
                                        "ring barrier, call 2 of group world"});
}

/* ---- ranks that disagree */

static tr_status disagree(tr_comm *comm, void *context, tr_error *err)
{
    const char *what = context;
    tr_group *world = tr_comm_world(comm);
    static const int all[] = {0, 1, 2};
    static float data[2048]; /* threads write zeros over zeros; the call must fail before that */
    bool odd_one = tr_comm_rank(comm) == 2;
    tr_group *dp;
    (void)world;
    TRI_TRY(tr_group_create(comm, "dp", all, 3, &dp, err));
    for (int i = 0; i < 16; i++)
        TRI_TRY(tr_barrier(dp, err));
    tr_collective call = {
        .operation = TR_ALL_REDUCE, .dtype = TR_F32, .send = data, .recv = data, .count = 1024};
    if (odd_one && strcmp(what, "operation") == 0) {
        call.operation = TR_BROADCAST;
        call.count = 512;
        call.root = 1;
    } else if (odd_one && strcmp(what, "size") == 0) {
        call.count = 100000;
        call.send = call.recv = calloc(call.count, 4);
    } else if (odd_one && strcmp(what, "dtype") == 0) {
        call.dtype = TR_I32;
    } else if (odd_one && strcmp(what, "reduction") == 0) {
        call.reduction = TR_MAX;
    } else if (odd_one && strcmp(what, "algorithm") == 0) {
        call.algorithm = "ring";
    }
    tr_status status = tr_collective_run(dp, &call, err);
    if (call.recv != data)
        free(call.recv);
    if (status == TR_OK)
        return tri_fail(err, TR_ERROR_INTERNAL, "rank %d did not notice", tr_comm_rank(comm));
    tr_error again = {0}; /* and the group stays broken, with the same reason */
    if (tr_barrier(dp, &again) == TR_OK || strcmp(again.message, err->message) != 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "the group works again");
    return status;
}

static void check_disagreement(const char *what, const char *other)
{
    for (int processes = 0; processes < 2; processes++) {
        tr_error err = {0};
        double start = now_s();
        tr_status status =
            processes ? tr_comm_spawn(3, NULL, disagree, (void *)(uintptr_t)what, &err)
                      : tr_comm_run_threads(3, NULL, disagree, (void *)(uintptr_t)what, &err);
        assert_int_equal(status, TR_ERROR_RUNTIME);
        assert_true(now_s() - start < SOON_S);
        assert_contains(err.message, "rank 0 called all_reduce of 1,024 f32 (sum), rank 2 called ");
        assert_contains(err.message, other);
        assert_contains(err.message, "as call 17 of group dp");
    }
}

static void test_disagreement(void **state)
{
    (void)state;
    check_disagreement("operation", "broadcast of 512 f32 from 1");
    check_disagreement("size", "all_reduce of 100,000 f32 (sum)");
    check_disagreement("dtype", "all_reduce of 1,024 i32 (sum)");
    check_disagreement("reduction", "all_reduce of 1,024 f32 (max)");
    check_disagreement("algorithm", "by ring");
    tr_comm_options options = {.transport = "tcp"}; /* whoever gets the first message notices */
    tr_error err = {0};
    double start = now_s();
    assert_int_equal(tr_comm_spawn(3, &options, disagree, "operation", &err), TR_ERROR_RUNTIME);
    assert_contains(err.message, " called ");
    assert_contains(err.message, "broadcast of 512 f32 from 1");
    assert_contains(err.message, "all_reduce of 1,024 f32 (sum)");
    assert_contains(err.message, "call 17");
    assert_true(now_s() - start < SOON_S);
}

static tr_status wrong_sizes(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    char data[100] = {0};
    if (tr_comm_rank(comm) == 0)
        return tr_send(comm, 1, data, 100, err);
    return tr_recv(comm, 0, data, 60, err);
}

static void test_wrong_message_size(void **state)
{
    (void)state;
    tr_error err = {0};
    assert_int_equal(tr_comm_spawn(2, NULL, wrong_sizes, NULL, &err), TR_ERROR_RUNTIME);
    assert_contains(err.message, "the sender has 100 bytes, the receiver wants 60");
    tr_comm_options options = {.transport = "tcp"};
    assert_int_equal(tr_comm_spawn(2, &options, wrong_sizes, NULL, &err), TR_ERROR_RUNTIME);
    assert_contains(err.message, "the sender has 100 bytes, the receiver wants 60");
}

/* ---- an idle rank */

static tr_status wait_idle(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    struct rusage before, after;
    if (tr_comm_rank(comm) == 0) {
        nap_ms(1000);
        return tr_barrier(tr_comm_world(comm), err);
    }
    double start = now_s();
    getrusage(RUSAGE_SELF, &before);
    TRI_TRY(tr_barrier(tr_comm_world(comm), err));
    getrusage(RUSAGE_SELF, &after);
    double us = 1e6 * (now_s() - start);
    long used = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
                (after.ru_utime.tv_usec - before.ru_utime.tv_usec) +
                (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 +
                (after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    /* The kernel charges whole ticks. Spinning would take what it gets of a core, beside two others
     * a third of one at least. */
    if ((double)used > 0.1 * us)
        return tri_fail(err, TR_ERROR_INTERNAL, "waiting for %.0f us cost %ld us of CPU", us, used);
    return TR_OK;
}

static void test_idle(void **state)
{
    (void)state;
    tr_error err = {0};
    if (tr_comm_spawn(3, NULL, wait_idle, NULL, &err) != TR_OK)
        fail_msg("%s", err.message);
    tr_comm_options options = {.transport = "tcp"};
    if (tr_comm_spawn(3, &options, wait_idle, NULL, &err) != TR_OK)
        fail_msg("over tcp: %s", err.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_exits),
        cmocka_unit_test(test_random_kills),
        cmocka_unit_test(test_survivor_says_who),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_wrong_message_size),
        cmocka_unit_test(test_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
