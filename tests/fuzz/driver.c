/* Runs every harness without libFuzzer: the stored corpus, then seeded mutations of it.
 *
 *   fuzz_replay [--runs N] [--seed N] [--jobs N] [--findings DIR] [NAME ...]
 *   fuzz_replay --input FILE NAME          one input, in this process, for a debugger
 *
 * A harness runs in a process of its own, with the present input in memory that both see: when it
 * dies or takes too long, the parent writes the input to DIR/NAME and says how to try it again. */
#include "fuzz.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 20, MAX_MUTANT = 1 << 15, MAX_FILES = 1000, SECONDS_PER_INPUT = 60 };

#define X(name) int fuzz_##name(const uint8_t *data, size_t num_bytes);
FUZZ_HARNESSES
#undef X

typedef struct harness {
    const char *name;
    int (*run)(const uint8_t *data, size_t num_bytes);
} harness;

static const harness harnesses[] = {
#define X(name) {#name, fuzz_##name},
    FUZZ_HARNESSES
#undef X
};
enum { NUM_HARNESSES = sizeof harnesses / sizeof *harnesses };

/* What the parent can see of a child. */
typedef struct window {
    size_t num_bytes;
    long inputs;
    uint8_t bytes[MAX_BYTES];
} window;

typedef struct corpus {
    uint8_t *bytes[MAX_FILES];
    size_t num_bytes[MAX_FILES];
    int num;
} corpus;

static uint64_t state;

static uint64_t any(uint64_t below)
{
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return below ? (z ^ (z >> 31)) % below : 0;
}

/* ---- the corpus ---- */

static uint8_t *read_file(const char *path, size_t *num_bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(MAX_BYTES);
    if (!file || !bytes) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(2);
    }
    *num_bytes = fread(bytes, 1, MAX_BYTES, file);
    fclose(file);
    return bytes;
}

static int is_plain(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void read_corpus(const char *name, corpus *c)
{
    char dir[300], path[600];
    struct dirent **entries;
    snprintf(dir, sizeof dir, "tests/fuzz/corpus/%s", name);
    int num = scandir(dir, &entries, is_plain, alphasort);
    if (num < 1 || num > MAX_FILES) {
        fprintf(stderr, "%s holds no inputs, or more than %d\n", dir, MAX_FILES);
        exit(2);
    }
    for (int i = 0; i < num; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, entries[i]->d_name);
        c->bytes[i] = read_file(path, &c->num_bytes[i]);
        free(entries[i]);
    }
    c->num = num;
    free(entries);
}

/* ---- mutations ---- */

static void insert(window *w, size_t at, const void *data, size_t num_bytes)
{
    if (w->num_bytes + num_bytes > MAX_BYTES)
        return;
    memmove(w->bytes + at + num_bytes, w->bytes + at, w->num_bytes - at);
    memcpy(w->bytes + at, data, num_bytes);
    w->num_bytes += num_bytes;
}

static void cut(window *w, size_t at, size_t num_bytes)
{
    memmove(w->bytes + at, w->bytes + at + num_bytes, w->num_bytes - at - num_bytes);
    w->num_bytes -= num_bytes;
}

/* Replaces a number in the text by one that is often wrong. */
static void change_number(window *w)
{
    static const char *const numbers[] = {"-1",
                                          "0",
                                          "1e999",
                                          "-0.0",
                                          "2147483647",
                                          "nan",
                                          "4294967296",
                                          "9223372036854775807",
                                          "1e-320",
                                          "65536",
                                          "99999999999999999999",
                                          "0x10"};
    size_t at = any(w->num_bytes), start = at;
    while (at < w->num_bytes && (w->bytes[at] < '0' || w->bytes[at] > '9'))
        at++;
    size_t end = at;
    while (end < w->num_bytes && w->bytes[end] >= '0' && w->bytes[end] <= '9')
        end++;
    cut(w, at, end - at);
    const char *number = numbers[any(sizeof numbers / sizeof *numbers)];
    insert(w, at < end ? at : start, number, strlen(number));
}

static void mutate_once(window *w, const corpus *c)
{
    static const uint8_t often[] = {0,   1,   0x7f, 0x80, 0xff, '"',  '{', '}', '[', ']',
                                    ',', ':', '\n', ' ',  '-',  '\\', '/', '@', ';', '='};
    size_t at = any(w->num_bytes + 1), left = w->num_bytes - at;
    size_t length = left ? 1 + any(left < 32 ? left : 32) : 0;
    int other = (int)any((uint64_t)c->num);
    uint8_t noise[8];
    switch (any(9)) {
    case 0:
        if (left > 0)
            w->bytes[at] ^= (uint8_t)(1u << any(8));
        break;
    case 1:
        if (left > 0)
            w->bytes[at] = often[any(sizeof often)];
        break;
    case 2:
        insert(w, at, &often[any(sizeof often)], 1);
        break;
    case 3:
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (uint8_t)any(256);
        insert(w, at, noise, 1 + any(sizeof noise));
        break;
    case 4:
        cut(w, at, length);
        break;
    case 5: { /* the same again, elsewhere */
        uint8_t piece[32];
        memcpy(piece, w->bytes + at, length);
        insert(w, any(w->num_bytes + 1), piece, length);
        break;
    }
    case 6: { /* a piece of another file */
        size_t from = any(c->num_bytes[other] + 1), most = c->num_bytes[other] - from;
        insert(w, at, c->bytes[other] + from, any(most < 200 ? most + 1 : 200));
        break;
    }
    case 7:
        w->num_bytes = any(4) ? w->num_bytes : at;
        break;
    default:
        change_number(w);
    }
}

static void make_mutant(window *w, const corpus *c)
{
    int base = (int)any((uint64_t)c->num);
    w->num_bytes = c->num_bytes[base];
    memcpy(w->bytes, c->bytes[base], w->num_bytes);
    for (uint64_t i = 1 + any(6); i > 0; i--)
        mutate_once(w, c);
    if (w->num_bytes > MAX_MUTANT && c->num_bytes[base] <= MAX_MUTANT)
        w->num_bytes = MAX_MUTANT;
}

/* ---- running ---- */

static void run_input(const harness *h, window *w)
{
    alarm(SECONDS_PER_INPUT);
    h->run(w->bytes, w->num_bytes);
    w->inputs++;
}

static void run_harness(const harness *h, window *w, long runs, uint64_t seed)
{
    static corpus c;
    read_corpus(h->name, &c);
    for (int i = 0; i < c.num; i++) {
        w->num_bytes = c.num_bytes[i];
        memcpy(w->bytes, c.bytes[i], w->num_bytes);
        run_input(h, w);
    }
    state = seed;
    for (const char *n = h->name; *n; n++)
        state = state * 31 + (uint8_t)*n;
    for (long i = 0; i < runs; i++) {
        make_mutant(w, &c);
        run_input(h, w);
    }
    for (int i = 0; i < c.num; i++)
        free(c.bytes[i]);
}

typedef struct child {
    const harness *harness;
    pid_t pid;
    window *window;
    struct timespec start;
} child;

static void begin(child *run, const harness *h, long runs, uint64_t seed)
{
    *run = (child){.harness = h};
    run->window =
        mmap(NULL, sizeof *run->window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    clock_gettime(CLOCK_MONOTONIC, &run->start);
    fflush(NULL);
    run->pid = run->window == MAP_FAILED ? -1 : fork();
    if (run->pid < 0) {
        perror("fuzz_replay");
        exit(2);
    }
    if (run->pid == 0) {
        run_harness(h, run->window, runs, seed);
        exit(0); /* what a sanitizer does at the end is part of it */
    }
}

static bool end(child *run, int status, const char *findings)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - run->start.tv_sec) +
                     1e-9 * (double)(now.tv_nsec - run->start.tv_nsec);
    bool fine = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("%-6s %-16s %6ld inputs %6.2f s\n", fine ? "ok" : "FAILED", run->harness->name,
           run->window->inputs, seconds);
    if (!fine) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", findings, run->harness->name);
        FILE *file = fopen(path, "wb");
        if (file) {
            fwrite(run->window->bytes, 1, run->window->num_bytes, file);
            fclose(file);
        }
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
            printf("  an input took more than %d s\n", SECONDS_PER_INPUT);
        else if (WIFSIGNALED(status))
            printf("  killed by %s\n", strsignal(WTERMSIG(status)));
        else
            printf("  exit code %d\n", WEXITSTATUS(status));
        printf("  the input is in %s; try: fuzz_replay --input %s %s\n", path, path,
               run->harness->name);
    }
    munmap(run->window, sizeof *run->window);
    run->pid = 0;
    return fine;
}

typedef struct options {
    long runs, jobs;
    uint64_t seed;
    const char *findings, *input;
    char **names;
} options;

static bool is_wanted(const options *o, const char *name)
{
    bool wanted = *o->names == NULL;
    for (char **n = o->names; *n; n++)
        wanted |= strcmp(*n, name) == 0;
    return wanted;
}

static int try_one(const options *o)
{
    static window w;
    for (int i = 0; i < NUM_HARNESSES; i++)
        if (*o->names && is_wanted(o, harnesses[i].name)) {
            uint8_t *bytes = read_file(o->input, &w.num_bytes);
            memcpy(w.bytes, bytes, w.num_bytes);
            free(bytes);
            harnesses[i].run(w.bytes, w.num_bytes);
            return 0;
        }
    fprintf(stderr, "fuzz_replay --input FILE NAME: there is no harness of that name\n");
    return 2;
}

static int run_all(const options *o)
{
    child runs[NUM_HARNESSES] = {0};
    long at_work = 0, failed = 0, next = 0, done = 0;
    while (next < NUM_HARNESSES || at_work > 0) {
        if (next < NUM_HARNESSES && at_work < o->jobs) {
            if (is_wanted(o, harnesses[next].name)) {
                begin(&runs[next], &harnesses[next], o->runs, o->seed);
                at_work++;
            }
            next++;
            continue;
        }
        int status;
        pid_t pid = wait(&status);
        for (int i = 0; i < NUM_HARNESSES; i++)
            if (pid > 0 && runs[i].pid == pid) {
                failed += !end(&runs[i], status, o->findings);
                at_work--;
                done++;
            }
    }
    printf("%ld harnesses, %ld failed; seed %llu\n", done, failed, (unsigned long long)o->seed);
    return failed > 0 || done == 0;
}

int main(int argc, char **argv)
{
    options o = {.runs = 1000, .jobs = sysconf(_SC_NPROCESSORS_ONLN), .seed = 1, .findings = "."};
    int at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        const char *value = argv[at + 1];
        if (strcmp(argv[at], "--runs") == 0)
            o.runs = strtol(value, NULL, 10);
        else if (strcmp(argv[at], "--jobs") == 0)
            o.jobs = strtol(value, NULL, 10);
        else if (strcmp(argv[at], "--seed") == 0)
            o.seed = strtoull(value, NULL, 10);
        else if (strcmp(argv[at], "--findings") == 0)
            o.findings = value;
        else if (strcmp(argv[at], "--input") == 0)
            o.input = value;
        else
            break;
    }
    o.names = argv + at;
    if (at < argc && argv[at][0] == '-') {
        fprintf(stderr, "fuzz_replay: %s is not understood\n", argv[at]);
        return 2;
    }
    return o.input ? try_one(&o) : run_all(&o);
}
