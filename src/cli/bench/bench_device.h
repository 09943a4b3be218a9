/* trireme bench device, in three parts: what is asked for and said (bench_device.c), which steps
 * are taken (bench_device_cases.c), taking one (bench_device_take.c). */
#ifndef TRI_CLI_BENCH_BENCH_DEVICE_H
#define TRI_CLI_BENCH_BENCH_DEVICE_H

#include "cli/cli.h"
#include "sim/measured/measured.h"

/* A small training program whose steps are taken. */
typedef struct tri_device_case {
    const char *kind; /* "gpt2", "llama" */
    int layers, dim, heads, kv_heads, vocab, seq, batch, microbatches;
    bool recompute;
    bool checks; /* its instructions are no samples: predictions are held against it */
    int dropout; /* percent */
} tri_device_case;

typedef struct tri_device_precision {
    const char *name; /* "bf16" */
    const char *settings[2];
} tri_device_precision;

const tri_device_case *tri_device_cases(bool gpu, size_t *num);
/* NULL past the last. */
const tri_device_precision *tri_device_precision_at(bool gpu, size_t i);
/* Floating-point operations of a step, roughly. */
double tri_device_case_flops(const tri_device_case *c);
/* What it is set to, on the heap; others are the caller's. */
tr_status tri_device_case_settings(const tri_device_case *c, const tri_device_precision *precision,
                                   tr_settings **settings, tr_error *err);

/* Work of a step that is to be predicted, once all samples are there. */
typedef struct tri_bench_check {
    int table;
    size_t step; /* of the table's */
    tri_work *works;
    double *runs, *launches;
    size_t num;
} tri_bench_check;

typedef struct tri_device_bench {
    const tri_cli *cli;
    tri_measured profile;
    tri_bench_check *checks;
    size_t num_checks, checks_capacity;
    double begin, seconds; /* time that there is */
    int num_ranks;         /* of --ranks: messages between so many; 0: not given */
    bool quiet;
    size_t num_failed; /* cases that this device does not run */
    tr_error failed;   /* why the last of them */
} tri_device_bench;

/* The processor of this machine; "" when it does not say. */
void tri_device_bench_model(char *to, size_t size);
double tri_device_bench_now(void);
/* Steps of ranks that compute at the same time, each by itself: samples for a table. */
tr_status tri_device_bench_take(tri_device_bench *b, tri_measured_table *table,
                                const tri_device_case *c, const tri_device_precision *precision,
                                double until, tr_error *err);
/* Measures; profile is the caller's to free. What this is shown on a terminal. */
tr_status tri_device_bench_run(const tri_cli *cli, double seconds, bool quiet,
                               tri_measured *profile, tr_error *err);

int tri_bench_device(const tri_cli *cli);

#endif
