#include "base/system_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* The files of one kind of control groups. */
typedef struct group_kind {
    const char *mount, *limit, *used;
    const char *cache[2]; /* keys of memory.stat: file pages, which are given up when needed */
} group_kind;

static const group_kind v2 = {
    "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file ", "active_file "}};
static const group_kind v2_beside_v1 = {
    "/sys/fs/cgroup/unified", "memory.max", "memory.current", {"inactive_file ", "active_file "}};
static const group_kind v1 = {"/sys/fs/cgroup/memory",
                              "memory.limit_in_bytes",
                              "memory.usage_in_bytes",
                              {"total_inactive_file ", "total_active_file "}};

/* The number behind a key at the beginning of a line. "max" is none. */
static bool read_number(const char *path, const char *key, uint64_t *number)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    char line[256];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        unsigned long long value;
        size_t skip = strlen(key);
        if (strncmp(line, key, skip) == 0 && sscanf(line + skip, "%llu", &value) == 1) {
            *number = value;
            found = true;
        }
    }
    fclose(file);
    return found;
}

static bool group_number(const char *root, const group_kind *kind, const char *group,
                         const char *file, const char *key, uint64_t *number)
{
    char path[PATH_BYTES + 512];
    snprintf(path, sizeof path, "%s%s%s/%s", root, kind->mount, group, file);
    return read_number(path, key, number);
}

static void look_at_group(const char *root, const group_kind *kind, const char *group,
                          tri_system_memory *memory)
{
    uint64_t limit, used, cache;
    if (!group_number(root, kind, group, kind->limit, "", &limit) || limit >= memory->total)
        return;
    if (memory->limit == 0 || limit < memory->limit)
        memory->limit = limit;
    if (!group_number(root, kind, group, kind->used, "", &used))
        return;
    for (int i = 0; i < 2; i++)
        if (group_number(root, kind, group, "memory.stat", kind->cache[i], &cache))
            used -= cache < used ? cache : used;
    uint64_t left = limit > used ? limit - used : 1; /* 0 would say that it is not known */
    if (left < memory->available)
        memory->available = left;
}

/* A group and all those it is in. Inside a container the path may be one of the machine outside,
 * which is not there: its upper parts still are, the outermost always. */
static void look_at_groups(const char *root, const group_kind *kind, const char *path,
                           tri_system_memory *memory)
{
    char group[PATH_BYTES];
    snprintf(group, sizeof group, "%s", path);
    for (;;) {
        size_t length = strlen(group);
        while (length > 0 && group[length - 1] == '/')
            group[--length] = 0;
        look_at_group(root, kind, group, memory);
        char *slash = strrchr(group, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

/* Whether a list such as "cpu,memory" has the controller of memory. */
static bool controls_memory(const char *list, size_t length)
{
    static const char name[] = "memory";
    for (const char *end = list + length; list < end;) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        size_t part = comma ? (size_t)(comma - list) : (size_t)(end - list);
        if (part == sizeof name - 1 && memcmp(list, name, part) == 0)
            return true;
        list += part + 1;
    }
    return false;
}

tri_system_memory tri_system_memory_read(const char *root)
{
    tri_system_memory memory = {0};
    char path[PATH_BYTES], line[PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!read_number(path, "MemTotal:", &memory.total) ||
        !read_number(path, "MemAvailable:", &memory.available))
        return (tri_system_memory){0};
    memory.total *= 1024;
    memory.available *= 1024;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) { /* "4:cpu,memory:/job/7" or "0::/job/7" */
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group)
            continue;
        list++;
        if (controls_memory(list, (size_t)(group - list))) {
            look_at_groups(root, &v1, group + 1, &memory);
        } else if (group == list && strncmp(line, "0:", 2) == 0) {
            look_at_groups(root, &v2, group + 1, &memory);
            look_at_groups(root, &v2_beside_v1, group + 1, &memory);
        }
    }
    if (file)
        fclose(file);
    else
        look_at_group(root, &v2, "", &memory);
    return memory;
}
