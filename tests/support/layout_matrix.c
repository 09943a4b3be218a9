#include "layout_matrix.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct matrix_entry {
    cell cell;
    cell_distance distance;
    bool done, fine;
} matrix_entry;

/* --- Entries that outlive a run ----------------------------------------------------------------
 */

static int open_state(const char *name, size_t bytes)
{
    const char *dir = getenv("TRIREME_TEST_STATE");
    char path[1024];
    if (!dir || snprintf(path, sizeof path, "%s/%s.cells", dir, name) >= (int)sizeof path)
        return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    fprintf(stderr, "%s cannot be kept: the run starts anew\n", path);
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Entries for these cells in memory that processes share; NULL when there is none. */
static matrix_entry *open_entries(const char *name, const cell *cells, size_t num)
{
    size_t bytes = num * sizeof(matrix_entry), kept = 0;
    int fd = open_state(name, bytes);
    matrix_entry *entries = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                 fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (entries == MAP_FAILED)
        return NULL;
    for (size_t i = 0; i < num; i++) {
        bool same = memcmp(&entries[i].cell, &cells[i], sizeof cells[i]) == 0;
        if (!same || !entries[i].done || !entries[i].fine)
            entries[i] = (matrix_entry){.cell = cells[i]};
        kept += entries[i].done;
    }
    if (kept > 0)
        printf("%zu of %zu cells were done before\n", kept, num);
    fflush(stdout); /* before forks */
    return entries;
}

static size_t num_wrong(const matrix_entry *entries, size_t num)
{
    size_t wrong = 0;
    for (size_t i = 0; i < num; i++)
        wrong += entries[i].done && !entries[i].fine;
    return wrong;
}

static size_t num_again(const matrix_entry *entries, size_t num)
{
    size_t again = 0;
    for (size_t i = 0; i < num; i++)
        again += entries[i].distance.again;
    return again;
}

static size_t num_done(const matrix_entry *entries, size_t num)
{
    size_t done = 0;
    for (size_t i = 0; i < num; i++)
        done += entries[i].done;
    return done;
}

/* --- Running ---------------------------------------------------------------------------------- */

enum { NUM_COMBINATIONS = NUM_MODELS * NUM_ROUTERS * NUM_PRECISIONS * NUM_OPTIMS };

static int combination(const cell *c)
{
    int model = c->is[CELL_MODEL] * NUM_ROUTERS + c->is[CELL_ROUTER];
    return (model * NUM_PRECISIONS + c->is[CELL_PRECISION]) * NUM_OPTIMS + c->is[CELL_OPTIM];
}

static bool any_open(const matrix_entry *entries, size_t num, int which)
{
    for (size_t i = 0; i < num; i++)
        if (!entries[i].done && combination(&entries[i].cell) == which)
            return true;
    return false;
}

static void work(matrix_entry *entries, size_t num, int which, int steps)
{
    alone_runs *alone = calloc(1, sizeof *alone);
    for (size_t i = 0; alone && i < num; i++) {
        if (entries[i].done || combination(&entries[i].cell) != which)
            continue;
        entries[i].fine = check_cell(alone, &entries[i].cell, steps, &entries[i].distance);
        entries[i].done = true;
    }
    fflush(stdout);
    fflush(stderr);
    _exit(0);
}

/* Waits for a process; a line about all of them every half minute. */
static pid_t wait_and_tell(const matrix_entry *entries, size_t num, time_t *told, int *status)
{
    for (;;) {
        pid_t ended = waitpid(-1, status, WNOHANG);
        if (ended != 0)
            return ended;
        if (time(NULL) - *told >= 30) {
            *told = time(NULL);
            printf("%zu of %zu cells, %zu failed\n", num_done(entries, num), num,
                   num_wrong(entries, num));
            fflush(stdout);
        }
        usleep(20000);
    }
}

/* Runs what is not done. False when a process ended before its time. */
static bool run_entries(matrix_entry *entries, size_t num, int steps)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), running = 0;
    bool fine = true;
    time_t told = time(NULL);
    for (int which = 0; which < NUM_COMBINATIONS || running > 0;) {
        if (which < NUM_COMBINATIONS && running < cores) {
            if (any_open(entries, num, which)) {
                pid_t child = fork();
                if (child == 0)
                    work(entries, num, which, steps);
                fine &= child > 0;
                running += child > 0;
            }
            which++;
            continue;
        }
        int status;
        if (wait_and_tell(entries, num, &told, &status) < 0)
            return false;
        fine &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
        running--;
    }
    return fine && num_done(entries, num) == num;
}

/* --- The page --------------------------------------------------------------------------------- */

typedef struct worst {
    double loss, norm;
    int num;
} worst;

static bool same_layout(const cell *a, const cell *b)
{
    return a->is[CELL_DP] == b->is[CELL_DP] && a->is[CELL_ZERO] == b->is[CELL_ZERO] &&
           a->is[CELL_GROUP] == b->is[CELL_GROUP] && a->is[CELL_TP] == b->is[CELL_TP] &&
           a->is[CELL_SP] == b->is[CELL_SP];
}

static int by_layout(const void *a, const void *b)
{
    static const cell_factor order[] = {CELL_DP, CELL_TP, CELL_SP, CELL_ZERO, CELL_GROUP};
    const cell *x = a, *y = b;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (x->is[order[i]] != y->is[order[i]])
            return x->is[order[i]] - y->is[order[i]];
    return 0;
}

/* Over the entries of a layout and precision; model -1: of all models. */
static worst worst_of(const matrix_entry *entries, size_t num, const cell *layout, int model,
                      bool wide)
{
    worst w = {0};
    for (size_t i = 0; i < num; i++) {
        const cell *c = &entries[i].cell;
        if (!same_layout(c, layout) || (c->is[CELL_PRECISION] == FP32) != wide ||
            (model >= 0 && c->is[CELL_MODEL] != model))
            continue;
        w.loss = fmax(w.loss, entries[i].distance.loss);
        w.norm = fmax(w.norm, entries[i].distance.norm);
        w.num++;
    }
    return w;
}

static void write_worst(FILE *file, worst w)
{
    if (w.num == 0)
        fprintf(file, " - |");
    else
        fprintf(file, " %.0e / %.0e |", w.loss, w.norm);
}

static void write_row(FILE *file, const matrix_entry *entries, size_t num, const cell *layout)
{
    char tp[16] = "-", zero[24] = "-";
    if (layout->is[CELL_TP] > 1)
        snprintf(tp, sizeof tp, "%d%s", layout->is[CELL_TP], layout->is[CELL_SP] ? " sp" : "");
    if (layout->is[CELL_DP] > 1)
        snprintf(zero, sizeof zero, "%d", layout->is[CELL_ZERO]);
    if (layout->is[CELL_GROUP])
        snprintf(zero, sizeof zero, "%d in %ds", layout->is[CELL_ZERO], layout->is[CELL_GROUP]);
    fprintf(file, "| %d | %s | %s |", layout->is[CELL_DP], zero, tp);
    for (int m = 0; m < NUM_MODELS; m++)
        write_worst(file, worst_of(entries, num, layout, m, true));
    write_worst(file, worst_of(entries, num, layout, -1, false));
    fprintf(file, "\n");
}

static bool write_page(const char *path, const matrix_entry *entries, size_t num, int steps)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file,
            "# The matrix of layouts\n\n"
            "How far each layout is from one rank: the largest relative difference of the loss / "
            "of the gradient norm in any of %d steps.\n"
            "Each entry is the worst over 1 and 3 micro-batches, the backward in one piece and "
            "split, under zero 3 weights gathered when they are used and kept for the step, and "
            "the update rules adamw, sgd and muon; the last column also over all "
            "models, with bf16, bf16 gradients and fp16.\n"
            "The promise is 1e-5 / 1e-4 in fp32. In 16 bits the limit is 1e-3 / 5e-2 (1e-1 with "
            "adamw and muon), since an "
            "element is rounded to 1 part in 256 and a layout rounds other sums; or, where that is "
            "more, twice as far as one rank in 16 bits is from one rank in fp32, or from itself "
            "with its batch in three parts (a steep step jumps in one run and not in another).\n"
            "The models are small and of odd sizes, so that hardly anything divides evenly, with "
            "dropout where the model has it; 13 rows in a batch.\n\n"
            "%zu cells, %zu of them beyond the limits. Made by `TEST=layouts make test-whole`, "
            "which runs all of them.\n\n",
            steps, num, num_wrong(entries, num));
    fprintf(file, "| dp | zero | tp |");
    for (int m = 0; m < NUM_MODELS; m++)
        fprintf(file, " %s |", cell_models[m]);
    fprintf(file, " 16 bits |\n|---|---|---|");
    for (int m = 0; m <= NUM_MODELS; m++)
        fprintf(file, "---|");
    fprintf(file, "\n");
    cell *layouts = malloc((num + 1) * sizeof *layouts);
    size_t num_layouts = 0;
    for (size_t i = 0; layouts && i < num; i++)
        layouts[num_layouts++] = entries[i].cell;
    if (layouts)
        qsort(layouts, num_layouts, sizeof *layouts, by_layout);
    for (size_t i = 0; i < num_layouts; i++)
        if (i == 0 || !same_layout(&layouts[i - 1], &layouts[i]))
            write_row(file, entries, num, &layouts[i]);
    free(layouts);
    return fclose(file) == 0;
}

/* --- All of it -------------------------------------------------------------------------------- */

bool matrix_check(const char *name, const levels *table, int steps, const char *page)
{
    const char *level = getenv("TRIREME_TEST_FULL");
    bool whole = level && strcmp(level, "whole") == 0;
    cell *cells = malloc(MAX_CELLS * sizeof *cells), *chosen = malloc(MAX_CELLS * sizeof *chosen);
    assert_true(cells && chosen);
    size_t all = list_cells(table, cells);
    const char *text = getenv("TRIREME_RANDOM_SEED");
    uint64_t seed = text && *text ? strtoull(text, NULL, 10) : 1;
    size_t num = whole ? all : cover_cells(cells, all, 3, seed, chosen);
    char file[64];
    snprintf(file, sizeof file, "%s%s", name, whole ? "" : "-triples");
    if (!whole)
        printf("seed %llu: %zu of %zu cells cover all triples\n", (unsigned long long)seed, num,
               all);
    matrix_entry *entries = open_entries(file, whole ? cells : chosen, num);
    assert_non_null(entries);
    bool fine = run_entries(entries, num, steps);
    if (whole && page)
        fine &= write_page(page, entries, num, steps);
    size_t wrong = num_wrong(entries, num);
    print_message("%s: %zu cells, %zu failed\n", name, num, wrong);
    fine &= few_again(num_again(entries, num), num);
    munmap(entries, num * sizeof *entries);
    free(cells);
    free(chosen);
    return fine && wrong == 0;
}
