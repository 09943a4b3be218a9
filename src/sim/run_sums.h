/* The arithmetic of a whole training run: FLOP, devices, days, energy and money. Sums that one does
 * on paper, from the number of parameters and of tokens; nothing here was measured. */
#ifndef TRI_SIM_RUN_SUMS_H
#define TRI_SIM_RUN_SUMS_H

#include "base/error.h"
#include "mesh/devices.h"

#include <stdbool.h>

/* What is known; 0 stands for what was not given. */
typedef struct tri_run_facts {
    double flops;       /* of the whole run */
    double rate;        /* FLOP/s that one device reaches */
    double days;        /* how long it may take; or: */
    double num_devices; /* on so many */
    double watts;       /* of one device */
    double overhead;    /* energy of the building for each of the devices' (PUE), 1 or more */
    double price;       /* of a device for an hour */
} tri_run_facts;

/* Below 0: not known. */
typedef struct tri_run_sums {
    double petaflop_days;
    double num_devices; /* as given, or what `days` need, fractions and all */
    double seconds;     /* on that many */
    double device_hours;
    double kwh;
    double money;
} tri_run_sums;

/* 6 N D: a product with each parameter forward (2 FLOP) and two backward, for each token. */
double tri_run_flops(double num_params, double num_tokens);

/* One of days and num_devices is 0, and the other is what is looked for; without either, devices
 * and time are not known, and device hours are. */
tri_run_sums tri_run_sums_of(const tri_run_facts *facts);

/* Tokens that a device must have in a step for its arithmetic to take as long as gathering and
 * summing weights that are sharded over all devices (FSDP), over so many axes of the mesh, in
 * numbers of element_bytes: element_bytes / 2 * C / W. */
double tri_fsdp_tokens(const tri_device_spec *device, const tri_link_spec *link, int num_axes,
                       tri_rate rate, double element_bytes);

/* Devices along the axes of tensor parallelism up to which it is bound by arithmetic, for a
 * feed-forward layer so wide: F / (element_bytes / 2 * C / W). */
double tri_tensor_devices(const tri_device_spec *device, const tri_link_spec *link, int num_axes,
                          tri_rate rate, double element_bytes, double width);

/* Rows of a product with weights from which on arithmetic takes longer than reading the weights:
 * FLOP for each byte of memory traffic, times half an element's bytes. sparse: at the rate with 2:4
 * sparsity. 0 when there is no such rate. */
double tri_roofline_rows(const tri_device_spec *device, tri_rate rate, double element_bytes,
                         bool sparse);

/* FLOP for each byte of a product of a [m][k] and a [k][n] matrix, each read or written once. */
double tri_product_intensity(double m, double n, double k, double element_bytes);

/* The share of the work that would have to stay undivided for such a speed-up on so many ranks, by
 * Amdahl's law: (1/S - 1/N) / (1 - 1/N). */
double tri_serial_part(double speed_up, int num_ranks);

/* Watts that a device draws at most, by its datasheet, by its name in the table of devices; 0 when
 * its maker does not say. *source may be NULL. */
double tri_device_watts(const char *name, const char **source);

#endif
