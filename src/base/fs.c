#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static tr_status no_memory(tr_error *err, const char *path)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
}

/* ---- reading ---- */

/* How far the path is right: "there is no a in /x" for /x/a/b where /x is all there is. */
static tr_status advise_missing(tr_error *err, const char *path)
{
    char there[4096], missing[256] = "";
    if (!*path)
        return tri_advise(err, TR_ERROR_INPUT, "its name is empty");
    if (*path == '/')
        snprintf(there, sizeof there, "/");
    else if (!getcwd(there, sizeof there))
        return tri_advise(err, TR_ERROR_INPUT, "check the path");
    for (const char *at = path; *(at += strspn(at, "/"));) {
        size_t length = strlen(there), name = strcspn(at, "/");
        snprintf(missing, sizeof missing, "%.*s", (int)name, at);
        snprintf(there + length, sizeof there - length, "%s%.*s",
                 there[length - 1] == '/' ? "" : "/", (int)name, at);
        if (!tri_path_exists(there)) {
            there[length] = 0;
            return tri_advise(err, TR_ERROR_INPUT, "check the path: there is no %s in %s", missing,
                              there);
        }
        at += name;
    }
    return tri_advise(err, TR_ERROR_INPUT, "check the path");
}

/* Reasons that have nothing to do with the file that was named. */
static bool is_machines(int reason)
{
    static const int reasons[] = {EIO,    ESTALE,    EMFILE, ENFILE, ENOMEM, ETIMEDOUT,
                                  ENOLCK, EREMOTEIO, EAGAIN, EBUSY,  ENODEV, ENXIO};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reason == reasons[i])
            return true;
    return false;
}

tr_status tri_fail_open(tr_error *err, const char *path, int reason)
{
    if (is_machines(reason))
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be opened: %s; %s", path,
                        strerror(reason),
                        reason == EMFILE ? "allow more open files: ulimit -n 4096"
                                         : "try again when the machine can read it");
    tri_fail(err, TR_ERROR_INPUT, "%s: cannot be opened: %s", path, strerror(reason));
    switch (reason) {
    case ENOENT:
        return advise_missing(err, path);
    case EACCES:
        return tri_advise(err, TR_ERROR_INPUT,
                          "`namei -l %s` shows who may read it: let its owner give you the right, "
                          "or make a copy that you may read",
                          path);
    default:
        return tri_advise(err, TR_ERROR_INPUT, "check the path");
    }
}

tr_status tri_fail_missing(tr_error *err, const char *path, const char *advice)
{
    struct stat info;
    bool there = stat(path, &info) == 0; /* since a moment ago */
    if (!there && errno != ENOENT && errno != ENOTDIR)
        return tri_fail_open(err, path, errno);
    return tri_fail(err, TR_ERROR_INPUT, "%s: cannot be found; %s%s", path,
                    *path == '~' ? "the shell leaves ~ alone behind a =, so write $HOME; " : "",
                    advice);
}

tr_status tri_fail_kind(tr_error *err, const char *path, unsigned mode)
{
    if (S_ISDIR(mode))
        return tri_fail(err, TR_ERROR_INPUT, "%s: is a directory, not a file; name a file in it",
                        path);
    if (S_ISFIFO(mode))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: is a pipe, not a regular file; write what it gives into a file (`cat "
                        "%s > FILE`) and name that",
                        path, path);
    return tri_fail(err, TR_ERROR_INPUT, "%s: is a %s, not a regular file; name a file", path,
                    S_ISSOCK(mode) ? "socket" : "device");
}

static tr_status cannot_read(tr_error *err, const char *path, int reason)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be read: %s", path, strerror(reason));
}

/* As many bytes as the file has now, and no more: another may be growing it. */
static tr_status read_descriptor(int fd, const char *path, char **data, size_t *num_bytes,
                                 tr_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return cannot_read(err, path, errno);
    if (!S_ISREG(info.st_mode))
        return tri_fail_kind(err, path, info.st_mode);
    size_t size = (size_t)info.st_size, done = 0;
    char *bytes = malloc(size + 1);
    if (!bytes)
        return no_memory(err, path);
    while (done < size) {
        ssize_t got = read(fd, bytes + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            tr_status status = got < 0 ? cannot_read(err, path, errno)
                                       : tri_fail(err, TR_ERROR_RUNTIME,
                                                  "%s: became shorter while it was read", path);
            free(bytes);
            return status;
        }
        done += (size_t)got;
    }
    bytes[done] = 0;
    *data = bytes;
    *num_bytes = done;
    return TR_OK;
}

tr_status tri_file_read(const char *path, char **data, size_t *num_bytes, tr_error *err)
{
    *data = NULL;
    *num_bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tri_fail_open(err, path, errno);
    tr_status status = read_descriptor(fd, path, data, num_bytes, err);
    close(fd);
    return status;
}

static tr_status map_descriptor(tri_mapping *mapping, int fd, const char *path, tr_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return cannot_read(err, path, errno);
    if (!S_ISREG(info.st_mode))
        return tri_fail_kind(err, path, info.st_mode);
    if ((uintmax_t)info.st_size > SIZE_MAX)
        return tri_fail(err, TR_ERROR_INPUT, "%s: is too large to map", path);
    if (info.st_size == 0) { /* mmap refuses a length of zero */
        mapping->data = (const unsigned char *)"";
        return TR_OK;
    }
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be mapped: %s", path, strerror(errno));
    mapping->data = data;
    mapping->num_bytes = (size_t)info.st_size;
    return TR_OK;
}

tr_status tri_mapping_open(tri_mapping *mapping, const char *path, tr_error *err)
{
    *mapping = (tri_mapping){0};
    /* Without O_NONBLOCK, opening a pipe by mistake would wait for its writer forever. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tri_fail_open(err, path, errno);
    tr_status status = map_descriptor(mapping, fd, path, err);
    close(fd);
    return status;
}

void tri_mapping_close(tri_mapping *mapping)
{
    if (mapping->num_bytes > 0)
        munmap((void *)(uintptr_t)mapping->data, mapping->num_bytes);
    *mapping = (tri_mapping){0};
}

/* ---- directories ---- */

bool tri_path_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool tri_path_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool tri_dir_has(const char *dir, const char *name)
{
    char path[PATH_MAX]; /* what is longer cannot be opened either */
    size_t length = strlen(dir);
    const char *between = length == 0 || dir[length - 1] == '/' ? "" : "/";
    int num = snprintf(path, sizeof path, "%s%s%s", dir, between, name);
    return num > 0 && (size_t)num < sizeof path && tri_path_exists(path);
}

bool tri_dir_lacks(const char *dir, const char *name)
{
    DIR *handle = opendir(dir);
    if (!handle)
        return false;
    const struct dirent *entry;
    errno = 0;
    while ((entry = readdir(handle)) && strcmp(entry->d_name, name) != 0)
        errno = 0;
    bool lacks = !entry && errno == 0;
    closedir(handle);
    return lacks;
}

char *tri_path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    const char *slash = n == 0 || dir[n - 1] == '/' ? "" : "/";
    char *path = NULL;
    return asprintf(&path, "%s%s%s", dir, slash, name) < 0 ? NULL : path;
}

static tr_status make_dir(const char *path, tr_error *err)
{
    if (mkdir(path, 0777) == 0)
        return TR_OK;
    int reason = errno;
    if (tri_path_is_dir(path)) /* there already, or another rank was quicker */
        return TR_OK;
    if (reason == EEXIST)
        tri_fail(err, TR_ERROR_RUNTIME,
                 "%s: cannot be made a directory: a file of that name exists", path);
    else
        tri_fail(err, TR_ERROR_RUNTIME, "%s: the directory cannot be made: %s", path,
                 strerror(reason));
    errno = reason;
    return TR_ERROR_RUNTIME;
}

tr_status tri_make_dirs(const char *path, tr_error *err)
{
    if (!*path)
        return tri_fail(err, TR_ERROR_INPUT, "cannot make a directory: its name is empty");
    char *prefix = strdup(path);
    if (!prefix) {
        no_memory(err, path);
        errno = ENOMEM;
        return TR_ERROR_RUNTIME;
    }
    tr_status status = TR_OK;
    for (char *c = prefix + 1; status == TR_OK && *c; c++) {
        if (*c != '/')
            continue;
        *c = 0;
        status = make_dir(prefix, err);
        *c = '/';
    }
    if (status == TR_OK)
        status = make_dir(prefix, err);
    int reason = errno;
    free(prefix);
    errno = reason;
    return status;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool append_name(tri_file_list *list, size_t *capacity, const char *name)
{
    if (list->num == *capacity) {
        size_t more = *capacity ? 2 * *capacity : 16;
        char **grown = realloc(list->name, more * sizeof *grown);
        if (!grown)
            return false;
        list->name = grown;
        *capacity = more;
    }
    char *copy = strdup(name);
    if (copy)
        list->name[list->num++] = copy;
    return copy != NULL;
}

static tr_status read_names(tri_file_list *list, DIR *handle, const char *dir, tr_error *err)
{
    size_t capacity = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(handle);
        if (!entry)
            break;
        /* Asking the file itself, since d_type is unknown on some file systems. */
        struct stat info;
        if (entry->d_name[0] == '.' ||
            fstatat(dirfd(handle), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(info.st_mode))
            continue;
        if (!append_name(list, &capacity, entry->d_name))
            return no_memory(err, dir);
    }
    if (errno != 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: the directory cannot be read: %s", dir,
                        strerror(errno));
    return TR_OK;
}

tr_status tri_file_list_read(tri_file_list *list, const char *dir, tr_error *err)
{
    *list = (tri_file_list){0};
    DIR *handle = opendir(dir);
    if (!handle)
        return tri_fail(err, TR_ERROR_INPUT, "%s: the directory cannot be read: %s", dir,
                        strerror(errno));
    tr_status status = read_names(list, handle, dir, err);
    closedir(handle);
    if (status != TR_OK) {
        tri_file_list_free(list);
        return status;
    }
    if (list->num > 1)
        qsort(list->name, list->num, sizeof *list->name, by_bytes);
    return TR_OK;
}

void tri_file_list_free(tri_file_list *list)
{
    for (size_t i = 0; i < list->num; i++)
        free(list->name[i]);
    free(list->name);
    *list = (tri_file_list){0};
}
