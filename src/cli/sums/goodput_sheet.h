/* What plan --goodput is asked and answers, between the files that read and show it. */
#ifndef TRI_CLI_SUMS_GOODPUT_SHEET_H
#define TRI_CLI_SUMS_GOODPUT_SHEET_H

#include <jansson.h>

#include "base/text.h"
#include "cli/cli.h"
#include "mesh/devices.h"
#include "sim/whole_run/goodput.h"

/* Where a number comes from, for people. */
typedef struct tri_goodput_origin {
    char text[160];
} tri_goodput_origin;

/* Of all simulations. */
typedef struct tri_goodput_trials {
    int64_t num; /* 0: not asked for */
    double mean_s, deviation_s, least_s, most_s, stops;
} tri_goodput_trials;

/* 0 stands for what is not known. */
typedef struct tri_goodput_sheet {
    const tri_cli *cli;
    tri_goodput_case c;
    tri_goodput g;
    tri_goodput_trials trials;
    double params, active, tokens, batch_tokens;
    double rate; /* FLOP/s that a device reaches */
    double watts, pue, price;
    double spare_devices; /* of each spare */
    const tri_device_spec *device;
    tri_device_spec own_device; /* of a description */
    tri_goodput_origin run, step, stops, save, restart, jitter;
} tri_goodput_sheet;

/* Reads all flags. The sheet points into cli, and into itself. */
tr_status tri_goodput_read(tri_goodput_sheet *sheet, tr_error *err);

/* Device hours of the run, spares among them, kWh and money; below 0 where not known. */
double tri_goodput_hours(const tri_goodput_sheet *sheet, double seconds);
double tri_goodput_kwh(const tri_goodput_sheet *sheet, double seconds);
double tri_goodput_money(const tri_goodput_sheet *sheet, double seconds);

void tri_goodput_text(const tri_goodput_sheet *sheet, tri_text *text);
void tri_goodput_doc(const tri_goodput_sheet *sheet, json_t *doc);

#endif
