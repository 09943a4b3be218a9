/* Runs inside a program whose ranks are processes: told as threads are, to the same weights; a rank
 * that dies is an error of the run; and the program is as it was before. */
#include "small_models.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "temp_dir.h"
#include "trireme/trireme.h"

typedef struct heard {
    char moments[600];
    char text[1100];
    int64_t stop_after, kill_after; /* 0: never */
    pthread_t thread;
    bool elsewhere; /* told on another thread */
} heard;

/* The children of a process, by its main thread. */
static int children(pid_t of, pid_t *pids, int most)
{
    char path[64];
    int num = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", of, of);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (num < most && fscanf(file, "%d", &pids[num]) == 1)
        num++;
    fclose(file);
    return num;
}

static void kill_a_rank(void)
{
    pid_t launcher, ranks[8];
    assert_int_equal(children(getpid(), &launcher, 1), 1);
    assert_int_equal(children(launcher, ranks, 8), 2);
    kill(ranks[1], SIGKILL);
}

static void tell(void *context, const tr_run_news *news)
{
    heard *h = context;
    static const char letters[] = {
        [TR_RUN_BEGINS] = 'B', [TR_RUN_SKIPPED] = 'k', [TR_RUN_EVALUATED] = 'e',
        [TR_RUN_STEP] = 's',   [TR_RUN_SAVED] = 'c',   [TR_RUN_WARNING] = 'w',
        [TR_RUN_ENDS] = 'E'};
    size_t used = strlen(h->moments);
    snprintf(h->moments + used, sizeof h->moments - used, "%c%lld ", letters[news->moment],
             (long long)news->state->step);
    h->elsewhere |= !pthread_equal(h->thread, pthread_self());
    if (news->text)
        snprintf(h->text, sizeof h->text, "%s", news->text);
    if (news->moment == TR_RUN_STEP && news->state->step == h->kill_after)
        kill_a_rank();
}

static bool stops(void *context)
{
    const heard *h = context;
    return h->stop_after > 0 && strstr(h->moments, "s1 ");
}

static char program[4200];

/* Once, before any thread asks for it. */
static bool find_program(void)
{
    char own[4000] = "";
    if (readlink("/proc/self/exe", own, sizeof own - 1) <= 0)
        return false;
    *strrchr(own, '/') = 0;
    snprintf(program, sizeof program, "%s/../trireme", own);
    return true;
}

static tr_settings *small(const char *dir, const char *more)
{
    static const char *const words[] = {
        "model.num_layers=2", "model.dim=32",
        "model.vocab=64",     "data.seq_len=16",
        "train.batch=4",      "train.steps=6",
        "ckpt.async=false",   "run.threads=1",
        "train.eval_every=3", "train.eval_batches=1",
        "run.device=cpu",     "layout.dp=2",
        "ckpt.every=4",       NULL,
    };
    char text[300];
    tr_error err = {0};
    tr_settings *settings = settings_of(TINY, words);
    snprintf(text, sizeof text, "run.dir=%s", dir);
    assert_int_equal(tr_settings_set(settings, text, &err), TR_OK);
    if (more && tr_settings_set(settings, more, &err) != TR_OK)
        fail_msg("%s", err.message);
    return settings;
}

static tr_status train(const char *dir, const char *more, tr_run_ranks ranks, heard *h,
                       tr_run_state *state, tr_error *err)
{
    tr_settings *settings = small(dir, more);
    tr_run_options options = {
        .tell = tell, .stops = stops, .context = h, .ranks = ranks, .program = program};
    h->moments[0] = h->text[0] = 0;
    h->thread = pthread_self();
    tr_status status = tr_train(settings, &options, state, err);
    tr_settings_destroy(settings);
    return status;
}

static void assert_equal_weights(const char *a, const char *b)
{
    char path[400], *text[2];
    size_t size[2];
    const char *dirs[] = {a, b};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/weights.safetensors", dirs[i]);
        assert_int_equal(tri_file_read(path, &text[i], &size[i], NULL), TR_OK);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(text[0], text[1], size[0]);
    free(text[0]);
    free(text[1]);
}

static void assert_no_child(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

/* As with threads, to the bit; and signals are as they were. */
static void test_same_as_threads(void **state)
{
    heard threads = {0}, processes = {0};
    tr_run_state one, two;
    tr_error err = {0};
    struct sigaction before[32], after;
    for (int i = 1; i < 32; i++)
        sigaction(i, NULL, &before[i]);
    char a[300], b[300];
    snprintf(a, sizeof a, "%s", temp_file(*state, "threads"));
    snprintf(b, sizeof b, "%s", temp_file(*state, "processes"));
    assert_int_equal(train(a, NULL, TR_RANKS_THREADS, &threads, &one, &err), TR_OK);
    if (train(b, NULL, TR_RANKS_PROCESSES, &processes, &two, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_string_equal(processes.moments, threads.moments);
    assert_false(processes.elsewhere);
    assert_equal_weights(a, b);
    assert_true(one.loss == two.loss && one.eval.loss == two.eval.loss && one.lr == two.lr);
    assert_int_equal(one.tokens, two.tokens);
    for (int i = 1; i < 32; i++) {
        sigaction(i, NULL, &after);
        assert_ptr_equal(after.sa_handler, before[i].sa_handler);
    }
    assert_no_child();
}

static void test_stop_and_resume(void **state)
{
    heard first = {.stop_after = 1}, rest = {0}, whole = {0};
    tr_run_state now;
    tr_error err = {0};
    char a[300], b[300];
    snprintf(a, sizeof a, "%s", temp_file(*state, "parts"));
    snprintf(b, sizeof b, "%s", temp_file(*state, "whole"));
    const char *steps = "train.steps=2000";
    if (train(a, steps, TR_RANKS_PROCESSES, &first, &now, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_true(now.stopped && now.step >= 1 && now.step < 2000);
    assert_string_equal(first.text, "asked by the program");
    char more[64];
    snprintf(more, sizeof more, "train.steps=%lld", (long long)now.step + 3);
    tr_settings *settings = small(a, "run.resume=true");
    assert_int_equal(tr_settings_set(settings, more, &err), TR_OK);
    tr_run_options options = {
        .tell = tell, .context = &rest, .ranks = TR_RANKS_PROCESSES, .program = program};
    int64_t stopped_at = now.step;
    if (tr_train(settings, &options, &now, &err) != TR_OK)
        fail_msg("%s", err.message);
    tr_settings_destroy(settings);
    assert_int_equal(now.first_step, stopped_at);
    assert_false(now.stopped);
    assert_int_equal(train(b, more, TR_RANKS_THREADS, &whole, &now, &err), TR_OK);
    assert_equal_weights(a, b);
    assert_no_child();
}

static void test_death_of_a_rank(void **state)
{
    heard h = {.kill_after = 2};
    tr_run_state now;
    tr_error err = {0};
    tr_status status =
        train(temp_file(*state, "dies"), "train.steps=100000", TR_RANKS_PROCESSES, &h, &now, &err);
    assert_int_equal(status, TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "rank 1"));
    assert_true(strstr(h.moments, "B0 ") && strstr(h.moments, "E"));
    assert_string_equal(h.text, err.message);
    assert_true(now.step >= 2);
    assert_no_child();
}

static void no_row(void *context, bool held_out, uint64_t sample, const tr_row *row)
{
    (void)context;
    (void)held_out;
    (void)sample;
    (void)row;
}

static void test_refusals(void **state)
{
    tr_error err = {0};
    tr_run *run;
    tr_settings *settings = small(temp_file(*state, "refused"), NULL);
    tr_run_options options = {.ranks = TR_RANKS_PROCESSES, .program = "/none/trireme"};
    assert_int_equal(tr_train(settings, &options, NULL, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "tr_run_options.program is /none/trireme"));
    options.program = NULL; /* nothing lies beside this test */
    assert_int_equal(tr_train(settings, &options, NULL, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "give its path in tr_run_options.program"));
    options.program = "/bin/true";
    assert_int_equal(tr_train(settings, &options, NULL, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "it is not trireme"));
    options.row = no_row;
    assert_int_equal(tr_train(settings, &options, NULL, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "tr_run_options.row"));
    options.row = NULL;
    assert_int_equal(tr_run_create(settings, &options, &run, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "tr_run_create has ranks as threads"));
    tr_settings_destroy(settings);
    settings = small(temp_file(*state, "wrong"), "model.num_heads=3");
    options.program = program;
    assert_int_equal(tr_train(settings, &options, NULL, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "model.num_heads is 3"));
    tr_settings_destroy(settings);
    settings = small(temp_file(*state, "auto"), "layout.auto=true");
    assert_int_equal(tr_train(settings, &options, NULL, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "chosen by `trireme train` alone"));
    tr_settings_destroy(settings);
    assert_no_child();
}

/* Two at once, each with ranks of its own kind, and nothing on the screen. */
typedef struct job {
    const char *dir;
    tr_run_ranks ranks;
    heard heard;
    tr_run_state state;
    tr_status status;
    tr_error err;
} job;

static void *do_job(void *context)
{
    job *j = context;
    j->status = train(j->dir, NULL, j->ranks, &j->heard, &j->state, &j->err);
    return NULL;
}

static void test_two_at_once_in_silence(void **state)
{
    char dirs[2][300];
    snprintf(dirs[0], sizeof dirs[0], "%s", temp_file(*state, "first"));
    snprintf(dirs[1], sizeof dirs[1], "%s", temp_file(*state, "second"));
    job jobs[2] = {{.dir = dirs[0], .ranks = TR_RANKS_PROCESSES},
                   {.dir = dirs[1], .ranks = TR_RANKS_PROCESSES}};
    pthread_t other;
    const char *said = temp_file(*state, "said");
    fflush(NULL);
    int saved[2] = {dup(1), dup(2)}, file = open(said, O_CREAT | O_RDWR, 0600);
    assert_true(dup2(file, 1) == 1 && dup2(file, 2) == 2);
    int failed = pthread_create(&other, NULL, do_job, &jobs[0]);
    do_job(&jobs[1]);
    pthread_join(other, NULL);
    fflush(NULL);
    off_t size = lseek(file, 0, SEEK_END);
    dup2(saved[0], 1);
    dup2(saved[1], 2);
    close(saved[0]);
    close(saved[1]);
    close(file);
    assert_int_equal(failed, 0);
    for (int i = 0; i < 2; i++)
        if (jobs[i].status != TR_OK)
            fail_msg("%s", jobs[i].err.message);
    assert_int_equal(size, 0);
    assert_equal_weights(dirs[0], dirs[1]);
    assert_no_child();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_threads),        cmocka_unit_test(test_stop_and_resume),
        cmocka_unit_test(test_death_of_a_rank),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_two_at_once_in_silence),
    };
    if (!find_program())
        return 1;
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
