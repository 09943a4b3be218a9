/* How much memory there is: files of /proc and of control groups as systems have them, under a
 * folder of our own; and whether the ranks of a machine fit into it together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/system_memory.h"
#include "temp_dir.h"
#include "train/ranks.h"

#define GIB ((int64_t)1 << 30)

/* Writes a file of the made-up system, and the folders above it. */
static void put(temp_dir *dir, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s%s", dir->path, name);
    for (char *slash = path + strlen(dir->path) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    assert_int_equal(put_file(path, text, strlen(text)), 0);
}

static void fresh(temp_dir *dir)
{
    nftw(dir->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(dir->path, 0700), 0);
    put(dir, "/proc/meminfo",
        "MemTotal:       33554432 kB\nMemFree:  1 kB\nMemAvailable:   25165824 kB\n"); /* 32, 24 */
}

static void expect(temp_dir *dir, int64_t limit, int64_t available)
{
    tri_system_memory memory = tri_system_memory_read(dir->path);
    assert_int_equal(memory.total, 32 * GIB);
    assert_int_equal(memory.limit, limit);
    assert_int_equal(memory.available, available);
}

static void a_machine_without_limits(void **state)
{
    fresh(*state);
    expect(*state, 0, 24 * GIB);
    put(*state, "/proc/self/cgroup", "0::/user.slice\n");
    put(*state, "/sys/fs/cgroup/user.slice/memory.max", "max\n");
    put(*state, "/sys/fs/cgroup/user.slice/memory.current", "4096\n");
    expect(*state, 0, 24 * GIB);
}

/* The process's own group has no limit, one of those it is in does. */
static void nested_groups_of_version_2(void **state)
{
    fresh(*state);
    put(*state, "/proc/self/cgroup", "0::/system.slice/slurmd/job_7/step_0\n");
    put(*state, "/sys/fs/cgroup/system.slice/slurmd/job_7/step_0/memory.max", "max\n");
    put(*state, "/sys/fs/cgroup/system.slice/slurmd/job_7/memory.max", "8589934592\n"); /* 8 */
    put(*state, "/sys/fs/cgroup/system.slice/slurmd/job_7/memory.current", "5368709120\n");
    put(*state, "/sys/fs/cgroup/system.slice/memory.max", "17179869184\n"); /* 16 */
    put(*state, "/sys/fs/cgroup/system.slice/memory.current", "6442450944\n");
    expect(*state, 8 * GIB, 3 * GIB);
    /* pages of files are given up when they are needed */
    put(*state, "/sys/fs/cgroup/system.slice/slurmd/job_7/memory.stat",
        "anon 7\ninactive_file 2147483648\nactive_file 1073741824\n");
    expect(*state, 8 * GIB, 6 * GIB);
    /* the outer group may be the fuller one */
    put(*state, "/sys/fs/cgroup/system.slice/memory.current", "16106127360\n");
    expect(*state, 8 * GIB, 1 * GIB);
}

/* As a container sees it: its path is one outside, its limit stands at the top. */
static void a_container(void **state)
{
    fresh(*state);
    put(*state, "/proc/self/cgroup", "0::/docker/5f2c\n");
    put(*state, "/sys/fs/cgroup/memory.max", "4294967296\n");
    put(*state, "/sys/fs/cgroup/memory.current", "1073741824\n");
    expect(*state, 4 * GIB, 3 * GIB);
}

static void groups_of_version_1(void **state)
{
    fresh(*state);
    put(*state, "/proc/self/cgroup", "12:cpu,cpuacct:/\n4:memory:/slurm/uid_1/job_7\n0::/\n");
    put(*state, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(*state, "/sys/fs/cgroup/memory/slurm/uid_1/job_7/memory.limit_in_bytes", "2147483648\n");
    put(*state, "/sys/fs/cgroup/memory/slurm/uid_1/job_7/memory.usage_in_bytes", "1073741824\n");
    expect(*state, 2 * GIB, 1 * GIB);
    put(*state, "/sys/fs/cgroup/memory/slurm/uid_1/job_7/memory.stat",
        "inactive_file 0\ntotal_inactive_file 536870912\n");
    expect(*state, 2 * GIB, GIB + GIB / 2);
}

/* A group that is full leaves next to nothing, which is not the same as not known. */
static void a_full_group(void **state)
{
    fresh(*state);
    put(*state, "/proc/self/cgroup", "0::/a\n");
    put(*state, "/sys/fs/cgroup/a/memory.max", "1073741824\n");
    put(*state, "/sys/fs/cgroup/a/memory.current", "1073741824\n");
    expect(*state, GIB, 1);
}

static void nothing_is_known(void **state)
{
    nftw(((temp_dir *)*state)->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    tri_system_memory memory = tri_system_memory_read(((temp_dir *)*state)->path);
    assert_int_equal(memory.total, 0);
    assert_int_equal(memory.available, 0);
    assert_int_equal(mkdir(((temp_dir *)*state)->path, 0700), 0);
}

/* Eight ranks of 4 GiB each on one machine of 24, and on two. */
static void ranks_of_a_machine_are_added_up(void **state)
{
    (void)state;
    tri_rank_room rooms[8];
    tr_error err = {0};
    for (int r = 0; r < 8; r++)
        rooms[r] = (tri_rank_room){.machine = 0, .wanted = 4 * GIB, .available = 24 * GIB};
    assert_int_equal(tri_ranks_judge_room(rooms, 6, &err), TR_OK);
    assert_int_equal(tri_ranks_judge_room(rooms, 8, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "the 8 ranks on the machine of rank 0 need 32.0 GiB"));
    assert_non_null(strstr(err.message, "24.0 GiB are available"));
    for (int r = 0; r < 8; r++)
        rooms[r].machine = r % 2;
    assert_int_equal(tri_ranks_judge_room(rooms, 8, &err), TR_OK);
    rooms[5].available = 12 * GIB;
    assert_int_equal(tri_ranks_judge_room(rooms, 8, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "the 4 ranks on the machine of rank 1 need 16.0 GiB"));
    for (int r = 0; r < 8; r++)
        rooms[r].available = 0; /* nobody knows */
    assert_int_equal(tri_ranks_judge_room(rooms, 8, &err), TR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_without_limits),
        cmocka_unit_test(nested_groups_of_version_2),
        cmocka_unit_test(a_container),
        cmocka_unit_test(groups_of_version_1),
        cmocka_unit_test(a_full_group),
        cmocka_unit_test(nothing_is_known),
        cmocka_unit_test(ranks_of_a_machine_are_added_up),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
