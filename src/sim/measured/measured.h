/* What a device was measured to take: samples of the work of real programs, and the seconds of
 * other work by them.
 *
 * A table belongs to so many ranks that compute at the same time with so many threads each. It has
 * a row for each kind of work. Of a row, what samples take is a rate of arithmetic, a rate of
 * memory and a constant, fitted; how far a sample is from that is known where it was taken and
 * blends between samples, by their distance in the logarithms of the sizes. So a sample predicts
 * itself, sizes between two lie between, and far from all of them the fit alone remains. */
#ifndef TRI_SIM_MEASURED_H
#define TRI_SIM_MEASURED_H

#include "collective/collective.h"
#include "mesh/devices.h"
#include "sim/measured/work.h"

enum { TRI_MEASURED_VERSION = 1, TRI_MEASURED_NAME = 160, TRI_MEASURED_TERMS = 3 };

typedef struct tri_work_sample {
    double size[TRI_WORK_SIZES];
    double flops, bytes;
    double seconds;
    double times; /* measurements that seconds is the mean of */
    double off;   /* logarithm of seconds over what the row's fit says */
} tri_work_sample;

typedef struct tri_measured_row {
    tri_op op;
    char kind[TRI_WORK_KIND];
    tri_work_sample *samples;
    size_t num, capacity;
    double term[TRI_MEASURED_TERMS]; /* seconds of a flop, of a byte, of a launch */
} tri_measured_row;

/* A whole step that was measured, and what is said of it. */
typedef struct tri_measured_step {
    char name[TRI_MEASURED_NAME];
    double seconds, predicted;
    double instr_seconds, launches; /* its instructions, timed one by one */
    bool seen;                      /* its instructions are among the samples */
} tri_measured_step;

typedef struct tri_measured_table {
    int ranks, threads;
    tri_measured_row *rows;
    size_t num, capacity;
    tri_measured_step *steps;
    size_t num_steps, steps_capacity;
    /* Beyond the instructions: of a step, and of each launch, which is below 0 where recorded
     * steps take less than instructions one by one. */
    double step_s, launch_s;
    double mean_off; /* of rows: the usual distance from the roofline, as a factor */
} tri_measured_table;

typedef struct tri_measured_message {
    tri_coll coll;
    int ranks;
    double bytes, seconds; /* bytes of the whole vector */
} tri_measured_message;

enum { TRI_MEASURED_TABLES = 8 };

typedef struct tri_measured {
    char device[TRI_MEASURED_NAME]; /* "cpu, 2 threads, avx512", as devices describe themselves */
    char kind[16];                  /* "cpu", "cuda" */
    char model[TRI_MEASURED_NAME];  /* of the processor */
    char isa[16];
    char date[24], version[32]; /* of measuring; of the program that did */
    char libraries[TRI_MEASURED_NAME];
    int cores;
    double clock_mhz; /* 0: not known */
    double memory_bytes;
    double dense[TRI_NUM_RATES]; /* FLOP/s of a large product; 0: not measured */
    double memory_bytes_per_s;   /* of a large copy, read and written */
    bool together[TRI_NUM_OPS];  /* operators of which one launch takes several */
    tri_measured_table tables[TRI_MEASURED_TABLES];
    int num_tables;
    tri_measured_message *messages;
    size_t num_messages, messages_capacity;
} tri_measured;

/* How the seconds of work were found. */
typedef enum tri_found {
    TRI_FOUND_SAMPLE,  /* these very sizes */
    TRI_FOUND_BETWEEN, /* other sizes of the kind */
    TRI_FOUND_OTHER,   /* another kind of the operator */
    TRI_FOUND_RATES,   /* large products and copies: the operator was not measured at all */
    TRI_NUM_FOUND
} tri_found;

void tri_measured_fini(tri_measured *profile);
void tri_measured_table_fini(tri_measured_table *table);
/* The table of so many ranks and threads, or NULL. */
const tri_measured_table *tri_measured_find(const tri_measured *profile, int ranks, int threads);
/* Makes it where there is none; NULL: no room. */
tri_measured_table *tri_measured_table_of(tri_measured *profile, int ranks, int threads);
/* What was measured of the same work before is averaged with it. False: no memory. */
bool tri_measured_add(tri_measured_table *table, const tri_work *work, double seconds);
/* Adds what was measured at another moment. Of work that one of them has found slower by far,
 * something else was in the way, so the other counts; otherwise the mean. */
bool tri_measured_merge(tri_measured_table *table, const tri_measured_table *other);
bool tri_measured_add_step(tri_measured_table *table, const tri_measured_step *step);
bool tri_measured_add_message(tri_measured *profile, const tri_measured_message *message);
/* Fits rows and steps; to be called when all samples are there, and before work is predicted. */
void tri_measured_settle(tri_measured *profile);

/* Without what a step takes beyond its instructions. found may be NULL. */
double tri_measured_work(const tri_measured *profile, const tri_measured_table *table,
                         const tri_work *work, tri_found *found);
/* The same with the difference that being launched in a recorded step makes. */
double tri_measured_launch(const tri_measured_table *table, double seconds, double launches);
/* Of a call of so many ranks; below 0: nothing of the kind was measured. *guessed: by another
 * operation or another number of ranks. */
double tri_measured_message_s(const tri_measured *profile, tri_coll coll, int ranks, double bytes,
                              bool *guessed);
/* Mean and largest share by which steps were off: those that the samples have not seen, or where
 * there are none, all; and how many. */
size_t tri_measured_residual(const tri_measured_table *table, double *mean, double *worst);

/* measured_file.c. Neither reads nor replaces a file of another kind. */
tr_status tri_measured_write(const tri_measured *profile, const char *path, tr_error *err);
tr_status tri_measured_read(const char *path, tri_measured *profile, tr_error *err);
/* Whether a profile may be written there, before the work. */
tr_status tri_measured_check_path(const char *path, tr_error *err);

#endif
