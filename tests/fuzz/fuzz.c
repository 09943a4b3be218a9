#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

void fuzz_require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

bool fuzz_fine(tr_status status, const tr_error *err)
{
    if (status != TR_OK)
        fuzz_require(err->message[0] != 0, "a failure has a message");
    return status == TR_OK;
}

static void *allocated(void *memory)
{
    fuzz_require(memory != NULL, "there is memory for the harness itself");
    return memory;
}

uint8_t *fuzz_bytes(const uint8_t *data, size_t num_bytes)
{
    uint8_t *copy = allocated(malloc(num_bytes ? num_bytes : 1));
    if (num_bytes > 0)
        memcpy(copy, data, num_bytes);
    return copy;
}

char *fuzz_text(const uint8_t *data, size_t num_bytes)
{
    char *text = allocated(malloc(num_bytes + 1));
    if (num_bytes > 0)
        memcpy(text, data, num_bytes);
    text[num_bytes] = '\0';
    return text;
}

char *fuzz_line(const uint8_t **data, size_t *num_bytes)
{
    const uint8_t *end = *num_bytes ? memchr(*data, '\n', *num_bytes) : NULL;
    size_t length = end ? (size_t)(end - *data) : *num_bytes;
    char *line = fuzz_text(*data, length);
    size_t taken = end ? length + 1 : length;
    if (taken > 0)
        *data += taken;
    *num_bytes -= taken;
    return line;
}

static void write_all(int fd, const uint8_t *data, size_t num_bytes)
{
    while (num_bytes > 0) {
        ssize_t n = write(fd, data, num_bytes);
        fuzz_require(n > 0, "the harness can write its own files");
        data += n;
        num_bytes -= (size_t)n;
    }
}

const char *fuzz_file(const uint8_t *data, size_t num_bytes)
{
    static int fd = -1;
    static char path[40];
    if (fd >= 0)
        close(fd);
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_require(fd >= 0, "memfd_create");
    write_all(fd, data, num_bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

/* ---- the directory ---- */

static char dir_path[64];
static pid_t dir_owner;

static void empty_dir(void)
{
    DIR *handle = opendir(dir_path);
    const struct dirent *entry;
    while (handle && (entry = readdir(handle)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(handle), entry->d_name, 0);
    if (handle)
        closedir(handle);
}

static void remove_dir(void)
{
    if (dir_owner != getpid()) /* a fork's */
        return;
    empty_dir();
    rmdir(dir_path);
}

const char *fuzz_dir(void)
{
    static const char *const places[] = {"/dev/shm/trireme-fuzz-XXXXXX",
                                         "/tmp/trireme-fuzz-XXXXXX"};
    for (size_t i = 0; dir_owner != getpid() && i < sizeof places / sizeof *places; i++) {
        strcpy(dir_path, places[i]);
        if (!mkdtemp(dir_path))
            continue;
        dir_owner = getpid();
        atexit(remove_dir);
    }
    fuzz_require(dir_owner == getpid(), "the harness can make a directory");
    return dir_path;
}

char *fuzz_path(const char *name)
{
    char *path = NULL;
    fuzz_require(asprintf(&path, "%s/%s", fuzz_dir(), name) > 0, "memory");
    return path;
}

static const char mark[] = "#file ";

static bool begins_file(const uint8_t *data, size_t num_bytes)
{
    return num_bytes >= sizeof mark - 1 && memcmp(data, mark, sizeof mark - 1) == 0;
}

void fuzz_dir_fill(const uint8_t *data, size_t num_bytes)
{
    fuzz_dir();
    empty_dir();
    while (begins_file(data, num_bytes)) {
        char *line = fuzz_line(&data, &num_bytes);
        char *name = line + sizeof mark - 1;
        size_t length = 0;
        while (length < num_bytes &&
               !(data[length] == '\n' && begins_file(data + length + 1, num_bytes - length - 1)))
            length++;
        for (char *c = name; *c; c++)
            if (*c == '/')
                *c = '_';
        char *path = fuzz_path(name);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd >= 0) { /* a name may be none: empty, "..", too long */
            write_all(fd, data, length);
            close(fd);
        }
        free(path);
        free(line);
        size_t taken = length < num_bytes ? length + 1 : length;
        data += taken;
        num_bytes -= taken;
    }
}

char *fuzz_fixture(const char *name)
{
    const char *folder = getenv("TRIREME_FUZZ_FIXTURES");
    char *path = NULL;
    fuzz_require(asprintf(&path, "%s/%s", folder ? folder : "tests/fixtures", name) > 0, "memory");
    return path;
}

void fuzz_hang_up(int fd)
{
    struct linger at_once = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

void fuzz_spare_ports(void)
{
    enum { AT_FULL_SPEED = 5000, PAUSE_US = 4000 };
    static int num_inputs;
    if (num_inputs < AT_FULL_SPEED)
        num_inputs++;
    else
        usleep(PAUSE_US);
}
