#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

tr_status tri_fail_open(tr_error *err, const char *path, int reason)
{
    tri_fail(err, TR_ERROR_INPUT, "%s: cannot be opened: %s", path, strerror(reason));
    switch (reason) {
    case ENOENT:
        return advise_missing(err, path);
    case EACCES:
        return tri_advise(err, TR_ERROR_INPUT,
                          "`namei -l %s` shows who may read it: let its owner give you the right, "
                          "or make a copy that you may read",
                          path);
    case EMFILE:
        return tri_advise(err, TR_ERROR_INPUT, "allow more open files: ulimit -n 4096");
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
    return tri_fail(err, TR_ERROR_INPUT, "%s: cannot be found; %s", path, advice);
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

static tr_status map_descriptor(tri_mapping *mapping, int fd, const char *path, tr_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: cannot be read: %s", path, strerror(errno));
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

/* ---- replacing a file whole ---- */

/* "." or "/" or everything before the last name; on the heap. */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

tr_status tri_check_output(const char *path, bool makes_dirs, tr_error *err)
{
    if (!*path)
        return tri_fail(err, TR_ERROR_INPUT, "the name of what is to be written is empty");
    if (!makes_dirs && tri_path_is_dir(path))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: cannot be written: it is a directory; name a file in it", path);
    char *above = parent_of(path);
    while (above && makes_dirs && !tri_path_exists(above) && strcmp(above, "/") != 0 &&
           strcmp(above, ".") != 0) {
        char *next = parent_of(above);
        free(above);
        above = next;
    }
    if (!above)
        return no_memory(err, path);
    tr_status status = TR_OK;
    if (!tri_path_exists(above))
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: cannot be written: there is no directory %s; make it first (mkdir "
                          "-p %s), or name another place",
                          path, above, above);
    else if (!tri_path_is_dir(above))
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: cannot be written: %s is a file, not a directory; name another "
                          "place",
                          path, above);
    else if (access(above, W_OK | X_OK) != 0)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: cannot be written: %s: %s; name a place that you may write to", path,
                          above, strerror(errno));
    free(above);
    return status;
}

/* Opens a new hidden file beside path. The name does not contain that of path, which may already
 * be as long as names can be, and several ranks of one process may ask at once: O_EXCL decides. */
static int open_temporary(const char *path, char **temporary)
{
    const int max_tries = 10000;
    char *parent = parent_of(path);
    char *name = NULL;
    int fd = -1;
    errno = ENOMEM;
    for (int i = 0; parent && fd < 0 && i < max_tries; i++) {
        free(name);
        if (asprintf(&name, "%s/.trireme-%ld-%d.tmp", parent, (long)getpid(), i) < 0) {
            name = NULL;
            break;
        }
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    int reason = errno;
    free(parent);
    if (fd < 0) {
        free(name);
        name = NULL;
    }
    *temporary = name;
    errno = reason;
    return fd;
}

tr_status tri_atomic_begin(tri_atomic_file *file, const char *path, tr_error *err)
{
    *file = (tri_atomic_file){.fd = -1};
    if (!*path)
        return tri_fail(err, TR_ERROR_INPUT, "cannot write a file: its name is empty");
    /* Found out now rather than by rename after everything has been written. */
    if (tri_path_is_dir(path))
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: it is a directory", path);
    file->path = strdup(path);
    if (!file->path)
        return no_memory(err, path);
    file->fd = open_temporary(path, &file->temporary);
    if (file->fd >= 0)
        return TR_OK;
    int reason = errno;
    tri_atomic_abort(file);
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", path, strerror(reason));
}

void tri_atomic_abort(tri_atomic_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->temporary)
        unlink(file->temporary);
    free(file->temporary);
    free(file->path);
    *file = (tri_atomic_file){.fd = -1};
}

/* Names the file and the reason, then takes the temporary away. */
static tr_status atomic_failed(tri_atomic_file *file, int reason, tr_error *err)
{
    tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s; what was there before is untouched",
             file->path, strerror(reason));
    tri_atomic_abort(file);
    return TR_ERROR_RUNTIME;
}

tr_status tri_atomic_write(tri_atomic_file *file, const void *data, size_t num_bytes, tr_error *err)
{
    if (file->fd < 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "a write to a file that is not open");
    const unsigned char *next = data;
    while (num_bytes > 0) {
        ssize_t written = write(file->fd, next, num_bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return atomic_failed(file, written < 0 ? errno : EIO, err);
        next += written;
        num_bytes -= (size_t)written;
    }
    return TR_OK;
}

/* Some file systems cannot do this for a directory, and whoever asks has done all else: hence no
 * error. */
void tri_sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

/* A rename survives a power cut only once its directory is on the disk. */
static void sync_parent(const char *path)
{
    char *parent = parent_of(path);
    if (parent)
        tri_sync_dir(parent);
    free(parent);
}

tr_status tri_atomic_commit(tri_atomic_file *file, tr_error *err)
{
    if (file->fd < 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "a commit of a file that is not open");
    if (fsync(file->fd) != 0)
        return atomic_failed(file, errno, err);
    int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0) /* network file systems report a full disk here */
        return atomic_failed(file, errno, err);
    if (rename(file->temporary, file->path) != 0)
        return atomic_failed(file, errno, err);
    free(file->temporary);
    file->temporary = NULL;
    sync_parent(file->path);
    tri_atomic_abort(file);
    return TR_OK;
}

tr_status tri_file_replace(const char *path, const void *data, size_t num_bytes, tr_error *err)
{
    tri_atomic_file file;
    TRI_TRY(tri_atomic_begin(&file, path, err));
    TRI_TRY(tri_atomic_write(&file, data, num_bytes, err));
    return tri_atomic_commit(&file, err);
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
