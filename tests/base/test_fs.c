/* Files: mapping, atomic replacement, directories. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/staged_dir.h"
#include "base/temporary.h"
#include "temp_dir.h"

#include <sys/utsname.h>
#include <sys/wait.h>

#include <signal.h>
#include <sys/resource.h>

static void assert_holds(const char *path, const char *text)
{
    tri_mapping mapping;
    tr_error err;
    assert_int_equal(tri_mapping_open(&mapping, path, &err), TR_OK);
    assert_int_equal(mapping.num_bytes, strlen(text));
    assert_memory_equal(mapping.data, text, strlen(text));
    tri_mapping_close(&mapping);
}

static void maps_a_file(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "map");
    assert_int_equal(put_file(path, "some bytes", 10), 0);
    assert_holds(path, "some bytes");
    assert_int_equal(put_file(path, "", 0), 0);
    assert_holds(path, "");
    tri_mapping closed = {0};
    tri_mapping_close(&closed);
}

static void mapping_errors_name_the_file(void **state)
{
    temp_dir *dir = *state;
    tri_mapping mapping;
    tr_error err;
    const char *missing = temp_file(dir, "missing");
    assert_int_equal(tri_mapping_open(&mapping, missing, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, missing));
    assert_non_null(strstr(err.message, "No such file"));
    assert_non_null(strstr(err.message, "there is no missing in "));
    assert_int_equal(tri_mapping_open(&mapping, "", &err), TR_ERROR_INPUT);
    assert_int_equal(tri_mapping_open(&mapping, "no/such/../file", &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "there is no no in "));
    assert_int_equal(tri_mapping_open(&mapping, missing, NULL), TR_ERROR_INPUT);
    assert_int_equal(tri_mapping_open(&mapping, dir->path, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "is a directory"));
    const char *pipe = temp_file(dir, "pipe"); /* must not wait for a writer */
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(tri_mapping_open(&mapping, pipe, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "not a regular file"));
}

static void long_names_and_advice_are_cut(void **state)
{
    (void)state;
    tr_error err = {0};
    char name[6000];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    tri_mapping mapping;
    assert_int_equal(tri_mapping_open(&mapping, name, &err), TR_ERROR_INPUT);
    for (size_t i = 100; i < sizeof name; i += 100) /* into a path that getcwd cannot continue */
        name[i] = '/';
    assert_int_equal(tri_mapping_open(&mapping, name, &err), TR_ERROR_INPUT);
    for (int i = 0; i < 200; i++)
        assert_int_equal(tri_advise(&err, TR_ERROR_INPUT, "advice %d", i), TR_ERROR_INPUT);
    assert_true(strlen(err.message) < sizeof err.message);
    tri_fail(&err, TR_ERROR_RUNTIME, "full");
    assert_int_equal(tri_advise(&err, TR_ERROR_RUNTIME, "no advice"), TR_ERROR_RUNTIME);
    assert_string_equal(err.message, "full");
    assert_int_equal(tri_advise(NULL, TR_ERROR_INPUT, "nobody asks"), TR_ERROR_INPUT);
}

static void replaces_a_file(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    const char *sub = temp_file(dir, "replace");
    assert_int_equal(tri_make_dirs(sub, &err), TR_OK);
    const char *path = temp_file(dir, "replace/file");
    assert_int_equal(tri_file_replace(path, "one", 3, &err), TR_OK);
    assert_holds(path, "one");
    assert_int_equal(tri_file_replace(path, "another", 7, &err), TR_OK);
    assert_holds(path, "another");
    assert_int_equal(tri_file_replace(path, "", 0, &err), TR_OK);
    assert_holds(path, "");
    assert_int_equal(num_entries(sub), 1);
}

/* The old mapping stays whole while the file is replaced under it. */
static void replacing_leaves_open_mappings_alone(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    const char *path = temp_file(dir, "under");
    assert_int_equal(tri_file_replace(path, "before", 6, &err), TR_OK);
    tri_mapping mapping;
    assert_int_equal(tri_mapping_open(&mapping, path, &err), TR_OK);
    assert_int_equal(tri_file_replace(path, "", 0, &err), TR_OK);
    assert_memory_equal(mapping.data, "before", 6);
    tri_mapping_close(&mapping);
}

static void aborting_leaves_the_old_file(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    const char *sub = temp_file(dir, "abort");
    assert_int_equal(tri_make_dirs(sub, &err), TR_OK);
    const char *path = temp_file(dir, "abort/file");
    assert_int_equal(tri_file_replace(path, "old", 3, &err), TR_OK);
    tri_atomic_file file, other;
    assert_int_equal(tri_atomic_begin(&file, path, &err), TR_OK);
    assert_int_equal(tri_atomic_begin(&other, path, &err), TR_OK); /* two at once */
    assert_int_equal(tri_atomic_write(&file, "half of", 7, &err), TR_OK);
    assert_int_equal(tri_atomic_write(&other, "other", 5, &err), TR_OK);
    assert_holds(path, "old");
    tri_atomic_abort(&file);
    tri_atomic_abort(&file);
    assert_holds(path, "old");
    assert_int_equal(tri_atomic_write(&file, "x", 1, &err), TR_ERROR_INTERNAL);
    assert_int_equal(tri_atomic_commit(&file, &err), TR_ERROR_INTERNAL);
    assert_int_equal(tri_atomic_commit(&other, &err), TR_OK);
    assert_holds(path, "other");
    assert_int_equal(num_entries(sub), 1);
}

/* A limit on the size of files fails in the middle of a write, as a full disk does. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    const char *sub = temp_file(dir, "full");
    assert_int_equal(tri_make_dirs(sub, &err), TR_OK);
    const char *path = temp_file(dir, "full/file");
    assert_int_equal(tri_file_replace(path, "old", 3, &err), TR_OK);

    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    static const char large[100000];
    tr_status status = tri_file_replace(path, large, sizeof large, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);

    assert_int_equal(status, TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, "untouched"));
    assert_holds(path, "old");
    assert_int_equal(num_entries(sub), 1);
}

static void replacing_what_cannot_be_replaced(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    assert_int_equal(tri_file_replace(dir->path, "x", 1, &err), TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "is a directory"));
    const char *path = temp_file(dir, "no/such/dir/file");
    assert_int_equal(tri_file_replace(path, "x", 1, &err), TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(tri_file_replace("", "x", 1, &err), TR_ERROR_INPUT);
}

/* A rename would put a file in the place of /dev/null, for everybody. */
static void devices_and_pipes_stay_what_they_are(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    char pipe[300], link_name[300];
    snprintf(pipe, sizeof pipe, "%s", temp_file(dir, "out-pipe"));
    snprintf(link_name, sizeof link_name, "%s", temp_file(dir, "out-link"));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(symlink(pipe, link_name), 0);
    const char *const paths[] = {pipe, link_name};
    for (int i = 0; i < 2; i++) {
        struct stat info;
        assert_int_equal(tri_file_replace(paths[i], "x", 1, &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, "is a pipe, which a file would replace"));
        assert_int_equal(tri_check_output(paths[i], false, &err), TR_ERROR_INPUT);
        assert_int_equal(stat(paths[i], &info), 0);
        assert_true(S_ISFIFO(info.st_mode));
    }
    unlink(link_name);
    unlink(pipe);
}

/* The longest name that a file can have still leaves room for the temporary's. */
static void replaces_a_file_with_the_longest_name(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    char path[512];
    int n = snprintf(path, sizeof path, "%s/", dir->path);
    memset(path + n, 'n', 255);
    path[n + 255] = 0;
    assert_int_equal(tri_file_replace(path, "x", 1, &err), TR_OK);
    assert_holds(path, "x");
}

static void makes_directories(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    const char *deep = temp_file(dir, "a/b//c/");
    assert_false(tri_path_exists(deep));
    assert_int_equal(tri_make_dirs(deep, &err), TR_OK);
    assert_true(tri_path_is_dir(deep));
    assert_int_equal(tri_make_dirs(deep, &err), TR_OK);
    const char *file = temp_file(dir, "a/file");
    assert_int_equal(put_file(file, "", 0), 0);
    assert_true(tri_path_exists(file));
    assert_false(tri_path_is_dir(file));
    assert_int_equal(tri_make_dirs(file, &err), TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "a file of that name exists"));
    assert_int_equal(tri_make_dirs(temp_file(dir, "a/file/below"), &err), TR_ERROR_RUNTIME);
    assert_int_equal(tri_make_dirs("", &err), TR_ERROR_INPUT);
    assert_int_equal(tri_make_dirs("/", &err), TR_OK);
}

static void lists_regular_files_by_name(void **state)
{
    temp_dir *dir = *state;
    tr_error err;
    const char *list_dir = temp_file(dir, "list");
    char path[512];
    assert_int_equal(tri_make_dirs(list_dir, &err), TR_OK);
    tri_file_list list;
    assert_int_equal(tri_file_list_read(&list, list_dir, &err), TR_OK);
    assert_int_equal(list.num, 0);
    tri_file_list_free(&list);
    static const char *const name[] = {"b", "a", "B", "10", "9", ".hidden"};
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%s", list_dir, name[i]);
        assert_int_equal(put_file(path, "", 0), 0);
    }
    snprintf(path, sizeof path, "%s/link", list_dir);
    assert_int_equal(symlink("a", path), 0);
    snprintf(path, sizeof path, "%s/sub", list_dir);
    assert_int_equal(mkdir(path, 0700), 0);

    assert_int_equal(tri_file_list_read(&list, list_dir, &err), TR_OK);
    static const char *const sorted[] = {"10", "9", "B", "a", "b"};
    assert_int_equal(list.num, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(list.name[i], sorted[i]);
    tri_file_list_free(&list);

    const char *missing = temp_file(dir, "missing");
    assert_int_equal(tri_file_list_read(&list, missing, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, missing));
}

static void joins_paths(void **state)
{
    (void)state;
    static const char *const joined[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (int i = 0; i < 4; i++) {
        char *path = tri_path_join(joined[i][0], joined[i][1]);
        assert_string_equal(path, joined[i][2]);
        free(path);
    }
}

/* A process that dies while it writes a file and a directory. */
static pid_t die_writing(const char *dir)
{
    pid_t child = fork();
    if (child == 0) {
        char path[300];
        tri_atomic_file file;
        tri_staged_dir staged;
        snprintf(path, sizeof path, "%s/file", dir);
        bool good = tri_atomic_begin(&file, path, NULL) == TR_OK &&
                    tri_atomic_write(&file, "half", 4, NULL) == TR_OK;
        snprintf(path, sizeof path, "%s/dir", dir);
        good = good && tri_staged_begin(&staged, path, false, "x", NULL) == TR_OK;
        if (good)
            snprintf(path, sizeof path, "%s/half", staged.temp);
        _exit(good && put_file(path, "half", 4) == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return child;
}

static void what_dead_processes_left_is_taken_away(void **state)
{
    temp_dir *temp = *state;
    tr_error err = {0};
    const char *dir = temp_file(temp, "dead");
    assert_int_equal(mkdir(dir, 0777), 0);
    pid_t dead = die_writing(dir);
    assert_int_equal(num_entries(dir), 2);
    /* Those of a process that lives, of another machine, of a person, and what an unseen process
     * holds. */
    tri_atomic_file mine;
    char name[300], path[300];
    struct utsname names;
    assert_int_equal(uname(&names), 0);
    snprintf(name, sizeof name, "%s/mine", dir);
    assert_int_equal(tri_atomic_begin(&mine, name, &err), TR_OK);
    snprintf(path, sizeof path, "%s/.trireme-%ld-elsewhere-0.tmp", dir, (long)dead);
    assert_int_equal(put_file(path, "", 0), 0);
    snprintf(path, sizeof path, "%s/.trireme-%ld-0.tmp", dir, (long)dead);
    assert_int_equal(put_file(path, "", 0), 0);
    snprintf(path, sizeof path, "%s/.trireme-%ld-%s-7.tmp", dir, (long)dead, names.nodename);
    int held = open(path, O_WRONLY | O_CREAT, 0666);
    assert_true(held >= 0 && tri_temporary_hold(held));
    assert_int_equal(num_entries(dir), 6);
    tri_temporaries_remove(dir, 0, 0);
    assert_int_equal(num_entries(dir), 4);
    close(held);
    tri_temporaries_remove(dir, 0, 0);
    assert_int_equal(num_entries(dir), 3);
    assert_int_equal(tri_atomic_commit(&mine, &err), TR_OK);
    assert_true(tri_path_exists(name));
    /* Where something is written next, it happens by itself. */
    die_writing(dir);
    snprintf(name, sizeof name, "%s/next", dir);
    assert_int_equal(tri_check_output(name, false, &err), TR_OK);
    assert_int_equal(num_entries(dir), 3);
}

static void a_staged_directory_replaces_another(void **state)
{
    temp_dir *temp = *state;
    tr_error err = {0};
    char path[300], name[300];
    const char *dir = temp_file(temp, "staged");
    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(path, sizeof path, "%s/it", dir);
    for (int i = 0; i < 3; i++) {
        tri_staged_dir staged;
        assert_int_equal(tri_staged_begin(&staged, path, true, "marker", &err), TR_OK);
        snprintf(name, sizeof name, "%s/marker", staged.temp);
        assert_int_equal(put_file(name, &"123"[i], 1), 0);
        assert_int_equal(tri_staged_commit(&staged, &err), TR_OK);
        assert_int_equal(num_entries(dir), 1);
        snprintf(name, sizeof name, "%s/marker", path);
        assert_holds(name, (char[]){"123"[i], 0});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_names_and_advice_are_cut),
        cmocka_unit_test(maps_a_file),
        cmocka_unit_test(mapping_errors_name_the_file),
        cmocka_unit_test(replaces_a_file),
        cmocka_unit_test(replacing_leaves_open_mappings_alone),
        cmocka_unit_test(aborting_leaves_the_old_file),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(replacing_what_cannot_be_replaced),
        cmocka_unit_test(devices_and_pipes_stay_what_they_are),
        cmocka_unit_test(replaces_a_file_with_the_longest_name),
        cmocka_unit_test(makes_directories),
        cmocka_unit_test(lists_regular_files_by_name),
        cmocka_unit_test(joins_paths),
        cmocka_unit_test(what_dead_processes_left_is_taken_away),
        cmocka_unit_test(a_staged_directory_replaces_another),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
