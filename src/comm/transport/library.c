#include "comm/transport/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whose files may be run: root's, the owner's of this program, and the user's where that is said.
 */
static bool is_trusted(uid_t owner, bool own)
{
    struct stat program;
    return owner == 0 || (own && owner == geteuid()) ||
           (stat("/proc/self/exe", &program) == 0 && owner == program.st_uid);
}

/* One sentence on what is wrong with a file or a directory that was opened; false: nothing. */
static bool is_suspect(int fd, const char *path, mode_t kind, bool own, char *why, size_t capacity)
{
    struct stat s;
    if (fstat(fd, &s) != 0)
        snprintf(why, capacity, "%s cannot be looked at: %s", path, strerror(errno));
    else if ((s.st_mode & S_IFMT) != kind)
        snprintf(why, capacity, "%s is not a %s", path, kind == S_IFDIR ? "directory" : "file");
    else if (!is_trusted(s.st_uid, own))
        snprintf(why, capacity,
                 "%s belongs to user %ld, who is neither root nor the owner of this program%s; "
                 "code of other users is not run: chown it, or put another in its place",
                 path, (long)s.st_uid, own ? " nor you" : "");
    else if (s.st_mode & (S_IWGRP | S_IWOTH))
        snprintf(why, capacity,
                 "others may write to %s (mode %03o), so it may be anybody's code; chmod go-w %s",
                 path, (unsigned)s.st_mode & 0777, path);
    else
        return false;
    return true;
}

/* Opens what a path without links names, if it can be trusted; -1 if not. */
static int open_trusted(const char *real, bool own, char *why, size_t capacity)
{
    char *folder = strdup(real), *slash = folder ? strrchr(folder, '/') : NULL;
    int dir = -1, fd = -1;
    if (slash != NULL) {
        const char *name = slash + 1;
        *slash = '\0';
        const char *where = *folder ? folder : "/";
        dir = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir >= 0)
            fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) {
            snprintf(why, capacity, "%s cannot be opened: %s", real, strerror(errno));
        } else if (is_suspect(dir, where, S_IFDIR, own, why, capacity) ||
                   is_suspect(fd, real, S_IFREG, own, why, capacity)) {
            close(fd);
            fd = -1;
        }
        if (dir >= 0)
            close(dir);
    } else {
        snprintf(why, capacity, "no memory for a path");
    }
    free(folder);
    return fd;
}

bool tri_library_open(tri_library *library, const char *path, int flags, bool own, char *why,
                      size_t capacity)
{
    *library = (tri_library){.file = -1};
    char *real = realpath(path, NULL), by_number[40];
    if (real == NULL) {
        snprintf(why, capacity, "%s cannot be opened: %s", path, strerror(errno));
        return false;
    }
    library->file = open_trusted(real, own, why, capacity);
    free(real);
    if (library->file < 0)
        return false;
    snprintf(by_number, sizeof by_number, "/proc/self/fd/%d", library->file);
    library->handle = dlopen(by_number, flags);
    if (library->handle != NULL)
        return true;
    /* The loader names the number, the user knows the path. */
    const char *said = dlerror(), *rest = strstr(said, by_number);
    snprintf(why, capacity, "%s%s", path, rest ? rest + strlen(by_number) : said);
    close(library->file);
    library->file = -1;
    return false;
}

bool tri_library_find(tri_library *library, const char *name, int flags, char *why, size_t capacity)
{
    *library = (tri_library){.file = -1, .handle = dlopen(name, flags)};
    if (library->handle == NULL)
        snprintf(why, capacity, "%s", dlerror());
    return library->handle != NULL;
}

/* The loader knows a library by the name it was opened with, and would give it to whoever opens
 * that number again: so the number is given up only when the library is gone. */
void tri_library_close(tri_library *library)
{
    char by_number[40];
    if (library->handle == NULL)
        return;
    dlclose(library->handle);
    snprintf(by_number, sizeof by_number, "/proc/self/fd/%d", library->file);
    void *still = library->file >= 0 ? dlopen(by_number, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (still != NULL)
        dlclose(still);
    else if (library->file >= 0)
        close(library->file);
    *library = (tri_library){.file = -1};
}
