/* A directory of its own for a test that writes files, taken away at the end with all in it. */
#ifndef TRI_TESTS_TEMP_DIR_H
#define TRI_TESTS_TEMP_DIR_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct temp_dir {
    char path[64];
    char file[4][256]; /* temp_file hands these out in turn */
    int next;
} temp_dir;

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

/* Group fixtures for cmocka: the state is a temp_dir. */
static inline int temp_dir_setup(void **state)
{
    temp_dir *dir = calloc(1, sizeof *dir);
    if (!dir)
        return -1;
    strcpy(dir->path, "/tmp/trireme-test-XXXXXX");
    *state = dir;
    return mkdtemp(dir->path) ? 0 : -1;
}

static inline int temp_dir_teardown(void **state)
{
    temp_dir *dir = *state;
    nftw(dir->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(dir);
    return 0;
}

/* The path of a name in it; good until three more have been asked for. */
static inline const char *temp_file(temp_dir *dir, const char *name)
{
    char path[sizeof dir->file[0]];
    snprintf(path, sizeof path, "%s/%s", dir->path, name);
    return strcpy(dir->file[dir->next++ % 4], path);
}

static inline int put_file(const char *path, const void *data, size_t num_bytes)
{
    FILE *stream = fopen(path, "wb");
    if (!stream)
        return -1;
    size_t written = fwrite(data, 1, num_bytes, stream);
    return fclose(stream) == 0 && written == num_bytes ? 0 : -1;
}

/* Entries of a directory, hidden ones included: shows whether temporaries stayed behind. */
static inline int num_entries(const char *path)
{
    DIR *handle = opendir(path);
    int num = 0;
    while (handle && readdir(handle))
        num++;
    if (handle)
        closedir(handle);
    return num - 2; /* . and .. */
}

#endif
