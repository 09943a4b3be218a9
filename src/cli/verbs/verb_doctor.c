/* trireme doctor: what was found on this machine, what is missing, and the line to type.
 *
 * A line is "ok", a "note" (it works, but could be better, or is not used yet) or "missing" (it
 * cannot train). Each check looks and reports; none changes anything. */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <yaml.h>

#include "base/system_memory.h"
#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/run/disk.h"
#include "cli/text.h"
#include "cli/verbs/doctor_cluster.h"
#include "cli/verbs/doctor_validate.h"
#include "comm/transport/mpi.h"
#include "comm/transport/nccl.h"
#include "device/cpu/isa.h"
#include "device/device.h"

typedef enum verdict { FINE, NOTE, MISSING } verdict;

typedef struct doctor {
    const tri_cli *cli;
    bool colour;
    int num_missing;
    json_t *checks, *last; /* of a document, where that is printed; and what was said last */
} doctor;

static void say(doctor *d, verdict v, const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void say(doctor *d, verdict v, const char *subject, const char *format, ...)
{
    static const char *const words[] = {"ok", "note", "missing"};
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[1;31m"};
    char text[3200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    d->num_missing += v == MISSING;
    if (!d->checks) {
        printf("%s%-8s%s%-16s%s\n", d->colour ? colours[v] : "", words[v],
               d->colour ? "\033[0m" : "", subject, text);
        return;
    }
    d->last = tri_doc_item(d->checks);
    tri_doc_text(d->last, "verdict", words[v]);
    tri_doc_text(d->last, "subject", subject);
    tri_doc_text(d->last, "text", text);
}

/* The line to type, below what it mends. */
static void type(doctor *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void type(doctor *d, const char *format, ...)
{
    char text[3200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (d->last)
        tri_doc_text(d->last, "type", text);
    else
        printf("%24stype: %s\n", "", text);
}

/* The rest of the first line of a file that begins with key, without the blanks and the colon after
 * it. False when the file or the line is not there. */
static bool find_line(const char *path, const char *key, char *out, size_t size)
{
    FILE *file = fopen(path, "r");
    char line[512];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *value = line + strlen(key);
        value += strspn(value, " \t:");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    if (file)
        fclose(file);
    return found;
}

static void check_processor(doctor *d)
{
    char model[160] = "unknown model";
    if (!find_line("/proc/cpuinfo", "model name", model, sizeof model))
        find_line("/proc/cpuinfo", "Model", model, sizeof model); /* ARM boards */
    cpu_set_t set;
    int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    say(d, FINE, "processor", "%s", model);
    if (usable > 0 && usable < online)
        say(d, NOTE, "cores", "%d of %ld may be used by this process", usable, online);
    else
        say(d, FINE, "cores", "%ld", online);
    /* A container may hold fewer than it shows: more threads than that only wait. */
    char quota[64];
    double most, period;
    if (find_line("/sys/fs/cgroup/cpu.max", "", quota, sizeof quota) &&
        sscanf(quota, "%lf %lf", &most, &period) == 2 && period > 0 &&
        most / period < (double)online) {
        int threads = most / period < 1 ? 1 : (int)(most / period);
        say(d, NOTE, "cores", "this container is limited to the time of %.1f cores", most / period);
        type(d, "trireme train FILE.yaml --set run.threads=%d", threads);
    }
    tri_isa isa = tri_isa_detect();
    say(d, isa == TRI_ISA_BASE ? NOTE : FINE, "instructions", "%s%s", tri_isa_name(isa),
        isa == TRI_ISA_BASE ? ": works, but the fast kernels are at their best with avx2" : "");
}

static void check_memory(doctor *d)
{
    enum { ENOUGH_MIB = 256 };
    char total_text[16], free_text[16], limit_text[16];
    tri_system_memory memory = tri_system_memory_read("");
    if (memory.total == 0) {
        say(d, NOTE, "memory", "unknown: /proc/meminfo does not say");
        return;
    }
    bool enough = memory.available >= (uint64_t)ENOUGH_MIB << 20;
    say(d, enough ? FINE : NOTE, "memory", "%s, of which %s are free%s",
        tri_text_bytes((double)memory.total, total_text),
        tri_text_bytes((double)memory.available, free_text),
        enough ? "" : ": little; trireme plan FILE.yaml says what a run needs");
    if (memory.limit > 0)
        say(d, NOTE, "memory", "the control groups of this process limit it to %s",
            tri_text_bytes((double)memory.limit, limit_text));
}

static void check_huge_pages(doctor *d)
{
    const char *path = "/sys/kernel/mm/transparent_hugepage/enabled";
    char text[64];
    if (!find_line(path, "", text, sizeof text)) {
        say(d, NOTE, "huge pages", "this kernel has none; large models run somewhat slower");
    } else if (strstr(text, "[never]")) {
        say(d, NOTE, "huge pages", "switched off; large models run somewhat slower");
        type(d, "echo madvise | sudo tee %s", path);
    } else {
        say(d, FINE, "huge pages", "%s", strstr(text, "[always]") ? "always" : "on request");
    }
}

static double left_bytes(const struct statvfs *info)
{
    return (double)info->f_bavail * (double)info->f_frsize;
}

static void check_shared_memory(doctor *d)
{
    enum { ENOUGH_MIB = 64 };
    struct statvfs info;
    char text[16];
    if (statvfs("/dev/shm", &info) != 0) {
        say(d, NOTE, "shared memory", "/dev/shm is not there; one process does not need it");
        return;
    }
    double size = (double)info.f_blocks * (double)info.f_frsize;
    double left = left_bytes(&info);
    if (left < ENOUGH_MIB * 1048576.0) {
        say(d, NOTE, "shared memory", "/dev/shm has only %s left; one process does not need it",
            tri_text_bytes(left, text));
        type(d, "sudo mount -o remount,size=2G /dev/shm");
    } else {
        say(d, FINE, "shared memory", "/dev/shm, %s", tri_text_bytes(size, text));
    }
}

static void check_run_dir(doctor *d)
{
    const char *dir = tr_settings_string(d->cli->settings, "run.dir");
    double room = 0;
    char text[16];
    if (!tri_disk_free(dir, &room)) {
        say(d, MISSING, "run directory", "%s cannot be written: %s", dir, strerror(errno));
        type(d, "trireme train FILE.yaml --set run.dir=/tmp/run");
    } else if (room < 1e6) {
        say(d, MISSING, "run directory", "%s is on a disk that is full", dir);
        type(d, "trireme train FILE.yaml --set run.dir=ELSEWHERE");
    } else {
        say(d, FINE, "run directory", "%s can be written, %s free", dir,
            tri_text_bytes(room, text));
    }
}

static void check_demo_text(doctor *d)
{
    const char *path = "/usr/share/common-licenses";
    if (access(path, R_OK | X_OK) == 0) {
        say(d, FINE, "demo text", "%s", path);
    } else {
        say(d, NOTE, "demo text", "%s is not there; any text will do", path);
        type(d, "trireme train demo --set data.source=YOUR_TEXT");
    }
}

/* Is there a program of this name in PATH? */
static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        char full[4096];
        int length = (int)strcspn(path, ":");
        snprintf(full, sizeof full, "%.*s/%s", length, path, program);
        if (access(full, X_OK) == 0)
            return true;
        path += length;
        path += *path == ':';
    }
    return false;
}

/* None of it is needed to train on the CPU. */
static void check_gpu(doctor *d)
{
    const tri_device_def *cuda = tri_device_find("cuda");
    if (!cuda) {
        say(d, NOTE, "CUDA", "not built in (run.device=cpu is the one to use): this trireme was %s",
            tri_device_cuda_state());
        return;
    }
    tri_device_found found[TRI_DEVICE_MOST_FOUND];
    int num = cuda->found(found);
    for (int i = 0; i < num; i++)
        say(d, found[i].there ? FINE : NOTE, found[i].name, "%s", found[i].detail);
    tri_nccl_api nccl;
    const char *library = tr_settings_string(d->cli->settings, "run.nccl_library");
    if (tri_nccl_open(library, &nccl, NULL) == TR_OK)
        say(d, FINE, "NCCL", "%d.%d.%d", nccl.version / 10000, nccl.version % 10000 / 100,
            nccl.version % 100);
    else
        say(d, NOTE, "NCCL",
            "not found; several GPUs talk through the host without (libnccl2 from NVIDIA's "
            "repository, or its file in run.nccl_library)");
    tri_nccl_close(&nccl);
}

/* Optional: tcp does without. */
static void check_mpi(doctor *d)
{
    char path[3100];
    bool launcher = in_path("mpirun") || in_path("srun");
    if (tri_mpi_find(path, sizeof path)) {
        say(d, launcher ? FINE : NOTE, "MPI", "%s%s", path,
            launcher ? "" : "; neither mpirun nor srun found");
    } else {
        say(d, NOTE, "MPI", "%s; several machines talk over tcp",
            in_path("mpicc") ? "mpicc found, but no plug-in beside this program: type make"
                             : "not found");
        if (!in_path("mpicc"))
            type(d, "sudo apt-get install openmpi-bin libopenmpi-dev && make");
    }
}

static void check_build(doctor *d)
{
#if defined(__clang__)
    say(d, FINE, "built with", "clang %s", __clang_version__);
#else
    say(d, FINE, "built with", "gcc %s", __VERSION__);
#endif
    say(d, FINE, "YAML", "libyaml %s", yaml_get_version_string());
}

static void check_all(doctor *d)
{
    check_processor(d);
    check_memory(d);
    check_huge_pages(d);
    check_shared_memory(d);
    check_run_dir(d);
    check_demo_text(d);
    check_gpu(d);
    check_mpi(d);
    check_build(d);
}

static int print_json(doctor *d)
{
    tr_error err = {0};
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "version", TRIREME_VERSION);
    d->checks = tri_doc_list(doc, "checks");
    check_all(d);
    tri_doc_flag(doc, "ready", d->num_missing == 0);
    if (tri_doc_print(doc, stdout, &err) != TR_OK)
        return tri_cli_fail(&err);
    return d->num_missing > 0 ? TRI_EXIT_FAILED : TRI_EXIT_OK;
}

int tri_verb_doctor(const tri_cli *cli)
{
    if (tri_cli_flag(cli, "validate") && tri_cli_flag(cli, "cluster")) {
        tri_cli_error("--validate compares ranks, --cluster writes down their links; give one");
        return TRI_EXIT_USAGE;
    }
    if (tri_cli_flag(cli, "validate"))
        return tri_doctor_validate(cli);
    if (tri_cli_flag(cli, "cluster"))
        return tri_doctor_cluster(cli);
    doctor d = {.cli = cli, .colour = tri_terminal_colour(stdout)};
    if (tri_cli_flag(cli, "json"))
        return print_json(&d);
    printf("trireme %s\n\n", TRIREME_VERSION);
    check_all(&d);
    if (d.num_missing > 0) {
        printf("\nThis machine cannot train yet: see what is missing above.\n");
        return TRI_EXIT_FAILED;
    }
    printf("\nReady. Begin with: trireme train tiny\n");
    return TRI_EXIT_OK;
}
