/* Makes calls of a program fail that hardly ever do: the n-th allocation, the n-th call of I/O.
 *
 *     FAULT_CLASS=alloc FAULT_REPORT=out LD_PRELOAD=libfault-shim.so PROGRAM       counts them
 *     FAULT_CLASS=alloc FAULT_AT=17 LD_PRELOAD=libfault-shim.so PROGRAM            no. 17 fails
 *     FAULT_CLASS=io FAULT_AT=3 FAULT_WITH=ENOSPC FAULT_PROCESS=1 ...              of the first
 * fork
 *
 * - FAULT_CLASS: alloc (malloc, calloc, realloc, posix_memalign, aligned_alloc, memalign, mmap) or
 *   io (open, openat, fopen, read, pread, write, pwrite, fwrite, fflush, close, fclose, fsync,
 *   fdatasync, ftruncate, fallocate, rename, mkdir, unlink, opendir).
 * - FAULT_AT: the number of the call, from 1; 0 or none: nothing fails.
 * - FAULT_FOR: so many calls in a row from there on; 1 when not given.
 * - FAULT_WITH: the name of an errno (ENOMEM, or EIO, when not given); short: half of what a read
 * or a write was asked for; slow: a pause. ENOSPC is for calls that write, others succeed then.
 * - FAULT_PROCESS: whose calls; 0 is the program, k the k-th process that was forked, in order.
 * - FAULT_REPORT: a file for a line "process calls" of each process, and "failed NAME" for a call
 *   that failed; the program writes it when it ends.
 * - FAULT_TRACE: when set, where the call came from is written to the standard error.
 *
 * Calls count from the beginning of main to the end of the program, so those of the loader and of
 * constructors (of CUDA's runtime, say) do not. What the C library does inside itself (the reads of
 * a FILE) is not seen, except its allocations. Allocations of libcrypto neither count nor fail:
 * OpenSSL 3.0 itself crashes when it has no memory to look for an algorithm.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PROCESSES = 64 };
typedef enum fault_class { NO_CLASS, ALLOC, IO } fault_class;

static struct {
    fault_class class;
    unsigned long long at, more;
    int with; /* an errno; 0: see below */
    bool is_short, is_slow, traces;
    int process; /* whose calls */
} fault;

/* Of all processes: the page is shared with those that are forked. */
typedef struct shared_page {
    _Atomic int num_processes;
    _Atomic(const char *) failed; /* the same address in every fork */
    _Atomic unsigned long long calls[MAX_PROCESSES];
} shared_page;

static shared_page *shared;
static int process;
static bool active;
static _Thread_local bool inside;

static struct {
    uintptr_t begin, end;
} spared; /* code whose allocations do not fail */

static int find_spared(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (!strstr(info->dlpi_name, "libcrypto"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        spared.begin = info->dlpi_addr + part->p_vaddr;
        spared.end = spared.begin + part->p_memsz;
    }
    return 1;
}

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static const struct {
    const char *name;
    int number;
} errors[] = {{"ENOMEM", ENOMEM}, {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EACCES", EACCES},
              {"EMFILE", EMFILE}, {"ESTALE", ESTALE}, {"EROFS", EROFS},   {"EINTR", EINTR}};

static void trace(void)
{
    void *place[40];
    inside = true;
    backtrace_symbols_fd(place, backtrace(place, 40), STDERR_FILENO);
    inside = false;
}

/* Whether this call is to fail; counts it. */
static bool fails(fault_class class, const char *name)
{
    if (!active || inside || class != fault.class || process >= MAX_PROCESSES)
        return false;
    unsigned long long n = 1 + atomic_fetch_add(&shared->calls[process], 1);
    if (process != fault.process || fault.at == 0 || n < fault.at || n - fault.at >= fault.more)
        return false;
    atomic_store(&shared->failed, name);
    if (fault.traces)
        trace();
    if (fault.is_slow) {
        struct timespec pause = {.tv_nsec = 30000000};
        nanosleep(&pause, NULL);
        return false;
    }
    return true;
}

/* The same of a call that cannot be cut short: it succeeds then. */
static bool fails_whole(fault_class class, const char *name)
{
    if (!fails(class, name) || fault.is_short)
        return false;
    errno = fault.with;
    return true;
}

/* The same of one that does not write. */
static bool fails_reading(const char *name)
{
    return fails_whole(IO, name) && fault.with != ENOSPC;
}

static unsigned long long number(const char *name, unsigned long long fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

__attribute__((constructor)) static void begin(void)
{
    const char *class = getenv("FAULT_CLASS"), *with = getenv("FAULT_WITH");
    fault.class = !class                        ? NO_CLASS
                  : strcmp(class, "alloc") == 0 ? ALLOC
                  : strcmp(class, "io") == 0    ? IO
                                                : NO_CLASS;
    fault.at = number("FAULT_AT", 0);
    fault.more = number("FAULT_FOR", 1);
    fault.process = (int)number("FAULT_PROCESS", 0);
    fault.with = fault.class == ALLOC ? ENOMEM : EIO;
    for (size_t i = 0; with && i < sizeof errors / sizeof *errors; i++)
        if (strcmp(with, errors[i].name) == 0)
            fault.with = errors[i].number;
    fault.is_short = with && strcmp(with, "short") == 0;
    fault.traces = getenv("FAULT_TRACE") != NULL;
    fault.is_slow = with && strcmp(with, "slow") == 0;
    shared = (shared_page *)syscall(SYS_mmap, NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((void *)shared == MAP_FAILED)
        abort();
    dl_iterate_phdr(find_spared, NULL);
}

typedef int main_function(int, char **, char **);
static main_function *real_main;

static int begin_main(int argc, char **argv, char **envp)
{
    active = fault.class != NO_CLASS;
    return real_main(argc, argv, envp);
}

/* What the first instructions of a program call, with its main. */
int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*loader_fini)(void), void *stack_end)
{
    int (*real)(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void),
                void *) = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = main;
    return real(begin_main, argc, argv, init, fini, loader_fini, stack_end);
}

__attribute__((destructor)) static void end(void)
{
    const char *report = getenv("FAULT_REPORT");
    char line[128];
    inside = true;
    if (!active || process != 0 || !report)
        return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int last = atomic_load(&shared->num_processes);
    for (int p = 0; fd >= 0 && p <= last && p < MAX_PROCESSES; p++) {
        int n = snprintf(line, sizeof line, "%d %llu\n", p, atomic_load(&shared->calls[p]));
        syscall(SYS_write, fd, line, (size_t)n);
    }
    const char *failed = atomic_load(&shared->failed);
    int n = snprintf(line, sizeof line, "failed %s\n", failed ? failed : "nothing");
    if (fd >= 0)
        syscall(SYS_write, fd, line, (size_t)n);
    syscall(SYS_close, fd);
}

pid_t fork(void)
{
    static pid_t (*real)(void);
    if (!real)
        real = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    int child = shared ? 1 + atomic_fetch_add(&shared->num_processes, 1) : 0;
    pid_t pid = real();
    if (pid == 0)
        process = child;
    return pid;
}

/* ---- allocations ---- */

static bool fails_for(const void *caller, const char *name)
{
    uintptr_t at = (uintptr_t)caller;
    return (at < spared.begin || at >= spared.end) && fails_whole(ALLOC, name);
}

void *malloc(size_t bytes)
{
    return fails_for(__builtin_return_address(0), "malloc") ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t num, size_t bytes)
{
    return fails_for(__builtin_return_address(0), "calloc") ? NULL : __libc_calloc(num, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fails_for(__builtin_return_address(0), "realloc") ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails_for(__builtin_return_address(0), "aligned_alloc")
               ? NULL
               : __libc_memalign(alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    return fails_for(__builtin_return_address(0), "memalign") ? NULL
                                                              : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (fails_for(__builtin_return_address(0), "posix_memalign"))
        return ENOMEM;
    void *memory = __libc_memalign(alignment, bytes);
    if (!memory)
        return ENOMEM;
    *out = memory;
    return 0;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fails_for(__builtin_return_address(0), "mmap"))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* ---- I/O ---- */

static int open_at(int dir, const char *path, int flags, mode_t mode, const char *name)
{
    bool failed = flags & O_CREAT ? fails_whole(IO, name) : fails_reading(name);
    return failed ? -1 : (int)syscall(SYS_openat, dir, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_at(AT_FDCWD, path, flags, mode, "open");
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_at(dir, path, flags, mode, "openat");
}

/* How much of a transfer is done: -1 none, for it fails. */
static ssize_t share(const char *name, size_t bytes, bool writes)
{
    if (!fails(IO, name) || (!writes && fault.with == ENOSPC))
        return (ssize_t)bytes;
    if (fault.is_short)
        return (ssize_t)(bytes > 1 ? bytes / 2 : bytes);
    errno = fault.with;
    return -1;
}

ssize_t read(int fd, void *to, size_t bytes)
{
    ssize_t part = share("read", bytes, false);
    return part < 0 ? -1 : syscall(SYS_read, fd, to, (size_t)part);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    ssize_t part = share("pread", bytes, false);
    return part < 0 ? -1 : syscall(SYS_pread64, fd, to, (size_t)part, offset);
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    /* What a person sees is not our file: a reader that is gone is another matter. */
    ssize_t part =
        fd == STDOUT_FILENO || fd == STDERR_FILENO ? (ssize_t)bytes : share("write", bytes, true);
    return part < 0 ? -1 : syscall(SYS_write, fd, from, (size_t)part);
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    ssize_t part = share("pwrite", bytes, true);
    return part < 0 ? -1 : syscall(SYS_pwrite64, fd, from, (size_t)part, offset);
}

int fsync(int fd)
{
    return fails_whole(IO, "fsync") ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return fails_whole(IO, "fdatasync") ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int ftruncate(int fd, off_t length)
{
    return fails_whole(IO, "ftruncate") ? -1 : (int)syscall(SYS_ftruncate, fd, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length)
{
    return fails_whole(IO, "fallocate") ? -1
                                        : (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

int rename(const char *from, const char *to)
{
    return fails_whole(IO, "rename") ? -1 : (int)syscall(SYS_rename, from, to);
}

int mkdir(const char *path, mode_t mode)
{
    return fails_whole(IO, "mkdir") ? -1 : (int)syscall(SYS_mkdir, path, mode);
}

int unlink(const char *path)
{
    return fails_reading("unlink") ? -1 : (int)syscall(SYS_unlink, path);
}

/* The descriptor is closed all the same, as the kernel does it. */
int close(int fd)
{
    bool failed = fails_reading("close");
    int result = (int)syscall(SYS_close, fd);
    if (failed)
        errno = fault.with;
    return failed ? -1 : result;
}

FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*real)(const char *, const char *);
    if (!real)
        real = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    bool failed = mode[0] == 'r' ? fails_reading("fopen") : fails_whole(IO, "fopen");
    return failed ? NULL : real(path, mode);
}

DIR *opendir(const char *path)
{
    static DIR *(*real)(const char *);
    if (!real)
        real = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    return fails_reading("opendir") ? NULL : real(path);
}

size_t fwrite(const void *from, size_t bytes, size_t num, FILE *file)
{
    static size_t (*real)(const void *, size_t, size_t, FILE *);
    if (!real)
        real = (size_t(*)(const void *, size_t, size_t, FILE *))dlsym(RTLD_NEXT, "fwrite");
    if (file == stdout || file == stderr || !fails_whole(IO, "fwrite"))
        return real(from, bytes, num, file);
    file->_flags |= 0x20; /* what ferror looks at: _IO_ERR_SEEN */
    return 0;
}

int fflush(FILE *file)
{
    static int (*real)(FILE *);
    if (!real)
        real = (int (*)(FILE *))dlsym(RTLD_NEXT, "fflush");
    bool failed = file && file != stdout && file != stderr && fails_whole(IO, "fflush");
    int result = real(file);
    if (failed) {
        file->_flags |= 0x20;
        errno = fault.with;
    }
    return failed ? EOF : result;
}

int fclose(FILE *file)
{
    static int (*real)(FILE *);
    if (!real)
        real = (int (*)(FILE *))dlsym(RTLD_NEXT, "fclose");
    bool failed = fails_whole(IO, "fclose");
    int result = real(file);
    if (failed)
        errno = fault.with;
    return failed ? EOF : result;
}
