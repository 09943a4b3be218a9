#include "run/leftovers.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/staged_dir.h"

/* As open_temporary of base/fs.c names them. */
static bool is_temporary_of(const char *name, pid_t pid)
{
    char prefix[48];
    int length = snprintf(prefix, sizeof prefix, ".trireme-%ld-", (long)pid);
    size_t whole = strlen(name);
    return strncmp(name, prefix, (size_t)length) == 0 && whole > 4 &&
           strcmp(name + whole - 4, ".tmp") == 0;
}

/* A file, or a directory of files. */
static void take_away(const char *path)
{
    if (unlink(path) != 0)
        tri_remove_dir(path);
}

enum { DEEPEST = 4 }; /* run.dir/ckpt/step-N/ and one more */

static void search(const char *dir, pid_t pid, int depth)
{
    DIR *handle = opendir(dir);
    if (!handle)
        return;
    for (struct dirent *entry; (entry = readdir(handle));) {
        bool wanted = is_temporary_of(entry->d_name, pid);
        bool below = entry->d_type == DT_DIR && entry->d_name[0] != '.' && depth < DEEPEST;
        char *path = wanted || below ? tri_path_join(dir, entry->d_name) : NULL;
        if (path && wanted)
            take_away(path);
        else if (path)
            search(path, pid, depth + 1);
        free(path);
    }
    closedir(handle);
}

void tri_leftovers_remove(const char *dir, pid_t pid)
{
    search(dir, pid, 0);
}

void tri_leftovers_remove_here(const char *dir, pid_t pid)
{
    search(dir, pid, DEEPEST);
}
