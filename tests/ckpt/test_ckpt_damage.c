/* What damage is, and what is not: a checkpoint is damaged when its bytes were read and are wrong.
 * One that cannot be read may be whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/fs.h"
#include "ckpt/checkpoint.h"
#include "ckpt/manifest_text.h"
#include "ckpt/writer.h"
#include "temp_dir.h"
#include "train/ckpt/checkpoint_parts.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { COUNT = 5000 };

/* A checkpoint of one rank and three tensors, and its path. */
static const char *make_one(temp_dir *temp, const char *name)
{
    static char path[300];
    const char *dir = temp_file(temp, name);
    assert_int_equal(mkdir(dir, 0777), 0);
    static float data[3 * COUNT] = {1, 2, 3};
    int64_t dim[] = {COUNT};
    tri_region whole = tri_region_whole(1, dim);
    tri_rank_item items[] = {{"w", TRI_CKPT_WEIGHT, whole},
                             {"x", TRI_CKPT_WEIGHT, whole},
                             {"y", TRI_CKPT_WEIGHT, whole}};
    tri_ckpt_writer_config config = {
        .dir = dir, .num_ranks = 1, .items = items, .num_items = 3, .patience_s = 20};
    tri_ckpt_writer *writer;
    tr_error err = {0};
    assert_int_equal(tri_ckpt_writer_create(&config, &writer, &err), TR_OK);
    tri_ckpt_save save = {.step = 2, .nonce = 7};
    tri_ckpt_writer_begin(writer, &save);
    size_t room;
    void *to = tri_ckpt_writer_room(writer, 10, &room);
    assert_true(room >= sizeof data);
    memcpy(to, data, sizeof data);
    tri_ckpt_writer_put(writer, sizeof data);
    tr_status status;
    assert_true(tri_ckpt_writer_wait(writer, 20, &status, &err));
    assert_int_equal(status, TR_OK);
    tri_ckpt_writer_destroy(writer);
    snprintf(path, sizeof path, "%s/step-2", dir);
    return path;
}

static tr_status try_it(const char *path, tr_error *err)
{
    tri_checkpoint ckpt;
    TRI_TRY(tri_checkpoint_open(&ckpt, path, err));
    tr_status status = tri_checkpoint_verify(&ckpt, TRI_VERIFY_ALL, 0, 1, NULL, err);
    int64_t dim[] = {COUNT};
    tri_region whole = tri_region_whole(1, dim);
    static float data[COUNT];
    if (status == TR_OK)
        status = tri_checkpoint_read(&ckpt, "w", &whole, data, err);
    tri_checkpoint_close(&ckpt);
    return status;
}

static void assert_is(const char *path, tr_status wanted, const char *says)
{
    tr_error err = {0};
    tr_status status = try_it(path, &err);
    if (status != wanted || !strstr(err.message, says))
        fail_msg("%s, not %s with \"%s\": %s", tr_status_name(status), tr_status_name(wanted), says,
                 err.message);
}

static char *in(const char *dir, const char *name, char path[400])
{
    snprintf(path, 400, "%s/%s", dir, name);
    return path;
}

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    unsigned char byte = 0;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 16;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static const char *const files[] = {"manifest.json", "rank-0.safetensors"};

static void wrong_bytes_are_damage(void **state)
{
    char path[400], aside[400];
    const char *step = make_one(*state, "bytes");
    for (int f = 0; f < 2; f++) {
        in(step, files[f], path);
        flip(path, 150);
        assert_is(step, TR_ERROR_DAMAGED, files[f]);
        flip(path, 150);
        assert_is(step, TR_OK, "");
        assert_int_equal(rename(path, in(step, "aside", aside)), 0);
        assert_is(step, TR_ERROR_DAMAGED, "is missing");
        assert_int_equal(rename(aside, path), 0);
    }
    assert_int_equal(truncate(in(step, files[1], path), 100), 0);
    assert_is(step, TR_ERROR_DAMAGED, "has 100 bytes");
    assert_int_equal(truncate(in(step, files[0], path), 0), 0);
    assert_is(step, TR_ERROR_DAMAGED, files[0]);
}

/* In a process without the rights of root. */
static tr_status as_somebody(const char *path)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            _exit(99);
        tr_error err = {0};
        _exit((int)try_it(path, &err));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return (tr_status)WEXITSTATUS(status);
}

static void what_cannot_be_read_is_no_damage(void **state)
{
    char path[400], aside[400];
    temp_dir *temp = *state;
    const char *step = make_one(temp, "reading");
    assert_int_equal(chmod(temp->path, 0755), 0);
    for (int f = 0; f < 2; f++) {
        in(step, files[f], path);
        assert_int_equal(chmod(path, 0), 0);
        assert_int_equal(as_somebody(step), TR_ERROR_RUNTIME);
        assert_int_equal(chmod(path, 0644), 0);
        /* A link to itself: open fails, and not because there is nothing. */
        assert_int_equal(rename(path, in(step, "aside", aside)), 0);
        assert_int_equal(symlink(files[f], path), 0);
        assert_is(step, TR_ERROR_RUNTIME, "cannot be opened");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rename(aside, path), 0);
    }
    assert_int_equal(as_somebody(step), TR_OK);
    assert_int_equal(chmod(step, 0), 0);
    assert_int_equal(as_somebody(step), TR_ERROR_RUNTIME);
    assert_int_equal(chmod(step, 0755), 0);
    /* No descriptor is left. */
    int lowest = dup(0);
    close(lowest);
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    setrlimit(RLIMIT_NOFILE, &none);
    tr_error err = {0};
    tr_status status = try_it(step, &err);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(status, TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "ulimit -n"));
    /* Where the directory itself is not to be seen, nothing can be said of what is in it. */
    assert_is(temp_file(temp, "reading/step-3"), TR_ERROR_RUNTIME, "cannot be opened");
    assert_is(step, TR_OK, "");
}

static void a_newer_version_is_no_damage(void **state)
{
    char path[400];
    const char *step = make_one(*state, "newer");
    char *text;
    size_t num_bytes;
    tr_error err = {0};
    assert_int_equal(tri_file_read(in(step, files[0], path), &text, &num_bytes, &err), TR_OK);
    char *version = strstr(text, "\"version\":1");
    assert_non_null(version);
    version[10] = '2';
    /* With a checksum of another kind, and with ours. */
    assert_int_equal(put_file(path, text, num_bytes), 0);
    assert_is(step, TR_ERROR_RUNTIME, "was written by a newer Trireme");
    memset(text + TRI_MANIFEST_DIGITS_AT, '0', 16);
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx",
             (unsigned long long)tri_checksum_bytes(text, num_bytes));
    memcpy(text + TRI_MANIFEST_DIGITS_AT, digits, 16);
    assert_int_equal(put_file(path, text, num_bytes), 0);
    assert_is(step, TR_ERROR_RUNTIME, "was written by a newer Trireme");
    free(text);
}

/* What is not listed would be taken for not there, and the run begun anew. */
static void a_list_is_whole_or_an_error(void **state)
{
    temp_dir *temp = *state;
    tri_ckpt_steps steps;
    tr_error err = {0};
    const char *dir = temp_file(temp, "list");
    assert_int_equal(mkdir(dir, 0777), 0);
    assert_int_equal(mkdir(temp_file(temp, "list/step-2"), 0777), 0);
    assert_int_equal(mkdir(temp_file(temp, "list/step-4.damaged-2"), 0777), 0);
    dir = temp_file(temp, "list");
    assert_int_equal(tri_ckpt_steps_read(&steps, dir, &err), TR_OK);
    assert_int_equal(steps.num, 1);
    assert_int_equal(steps.num_damaged, 1);
    tri_ckpt_steps_free(&steps);
    assert_int_equal(symlink("step-6", temp_file(temp, "list/step-6")), 0);
    assert_int_equal(tri_ckpt_steps_read(&steps, dir, &err), TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "step-6: cannot be read"));
    /* Links to a disk that is not mounted. */
    assert_int_equal(unlink(temp_file(temp, "list/step-6")), 0);
    assert_int_equal(symlink("elsewhere", temp_file(temp, "list/step-6")), 0);
    assert_int_equal(tri_ckpt_steps_read(&steps, dir, &err), TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "step-6: is a link to what is not there"));
    const char *link = temp_file(temp, "link");
    assert_int_equal(symlink("elsewhere", link), 0);
    assert_int_equal(tri_ckpt_steps_read(&steps, link, &err), TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "link: is a link to what is not there"));
    assert_int_equal(symlink("loop", temp_file(temp, "loop")), 0);
    assert_int_equal(tri_ckpt_steps_read(&steps, temp_file(temp, "loop"), &err), TR_ERROR_RUNTIME);
}

/* ---- ranks ---- */

typedef struct views {
    const char *path[3]; /* what each rank sees */
    tr_status status[3];
    tr_error err[3];
} views;

static tr_status open_view(tr_comm *comm, void *context, tr_error *err)
{
    views *v = context;
    (void)err;
    int rank = tr_comm_rank(comm);
    tri_ranks ranks = {.rank = rank, .size = 3, .comm = comm};
    tri_checkpoint ckpt;
    v->status[rank] = tri_checkpoint_open_together(&ranks, v->path[rank], &ckpt, &v->err[rank]);
    if (v->status[rank] == TR_OK)
        tri_checkpoint_close(&ckpt);
    return TR_OK;
}

static void all_say(const char *zero, const char *one, const char *two, tr_status wanted,
                    const char *says)
{
    views v = {.path = {zero, one, two}};
    tr_error err = {0};
    tr_comm_options options = {.deadline_s = 60};
    if (tr_comm_run_threads(3, &options, open_view, &v, &err) != TR_OK)
        fail_msg("%s", err.message);
    for (int r = 0; r < 3; r++)
        if (v.status[r] != wanted || !strstr(v.err[r].message, says))
            fail_msg("rank %d: %s: %s", r, tr_status_name(v.status[r]), v.err[r].message);
}

static void ranks_agree_on_what_one_of_them_sees(void **state)
{
    char path[400], whole[300], bad[300], late[300], blind[300], cut[300];
    strcpy(whole, make_one(*state, "whole"));
    strcpy(bad, make_one(*state, "bad"));
    strcpy(late, make_one(*state, "late"));
    strcpy(cut, make_one(*state, "cut"));
    strcpy(blind, make_one(*state, "blind"));
    flip(in(bad, files[1], path), COUNT);
    flip(in(late, files[1], path), 11 * COUNT); /* in the share of rank 2 */
    assert_int_equal(unlink(in(cut, files[1], path)), 0);
    assert_int_equal(unlink(in(blind, files[0], path)), 0);
    assert_int_equal(symlink(files[0], path), 0);
    all_say(whole, whole, whole, TR_OK, "");
    all_say(bad, bad, bad, TR_ERROR_DAMAGED, "is damaged");
    all_say(late, late, late, TR_ERROR_DAMAGED, "tensor y");
    all_say(cut, cut, cut, TR_ERROR_DAMAGED, "is missing");
    /* One cannot read: nothing is said of the bytes, whatever the others saw. */
    all_say(whole, blind, whole, TR_ERROR_RUNTIME, "cannot be opened");
    all_say(bad, whole, blind, TR_ERROR_RUNTIME, "cannot be opened");
    all_say(blind, bad, bad, TR_ERROR_RUNTIME, "cannot be opened");
    /* One sees what rank 0, who would rename, does not. */
    all_say(whole, cut, whole, TR_ERROR_RUNTIME, "rank 1 cannot go on");
    all_say(whole, whole, late, TR_ERROR_RUNTIME, "rank 2 cannot go on");
    all_say(late, whole, late, TR_ERROR_DAMAGED, "tensor y");
}

/* ---- a slow disk ---- */

struct patience {
    double deadline_s;
    int times;
};

static tr_status take_long(void *context, tr_error *err)
{
    struct patience *p = context;
    usleep((useconds_t)(1.5e6 * p->deadline_s));
    p->times++;
    return tri_fail(err, TR_ERROR_RUNTIME, "no room");
}

static tr_status wait_for_it(tr_comm *comm, void *context, tr_error *err)
{
    tri_ranks ranks = {.rank = tr_comm_rank(comm), .size = 3, .comm = comm};
    tr_error why = {0};
    tr_status status = tri_ranks_patiently(&ranks, take_long, context, &why);
    if (status != (ranks.rank == 0 ? TR_ERROR_RUNTIME : TR_OK))
        return tri_fail(err, TR_ERROR_INTERNAL, "rank %d: %s", ranks.rank, why.message);
    return tr_barrier(tr_comm_world(comm), err);
}

/* Other than in a message, where it would be the end of the run. A busy machine may keep a rank
 * from the barrier for as long as a short deadline: then it is a longer one. */
static void ranks_wait_longer_for_a_disk_than_for_each_other(void **state)
{
    (void)state;
    tr_error err = {0};
    tr_status status = TR_ERROR_RUNTIME;
    for (double deadline_s = 1; status != TR_OK && deadline_s < 30; deadline_s *= 5) {
        struct patience p = {.deadline_s = deadline_s};
        status = tr_comm_run_threads(3, &(tr_comm_options){.deadline_s = deadline_s}, wait_for_it,
                                     &p, &err);
        assert_int_equal(p.times, 1);
    }
    if (status != TR_OK)
        fail_msg("%s", err.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_bytes_are_damage),
        cmocka_unit_test(what_cannot_be_read_is_no_damage),
        cmocka_unit_test(a_newer_version_is_no_damage),
        cmocka_unit_test(a_list_is_whole_or_an_error),
        cmocka_unit_test(ranks_agree_on_what_one_of_them_sees),
        cmocka_unit_test(ranks_wait_longer_for_a_disk_than_for_each_other),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
