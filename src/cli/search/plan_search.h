/* trireme plan --search: which layout, and why. What its parts share. */
#ifndef TRI_CLI_SEARCH_PLAN_SEARCH_H
#define TRI_CLI_SEARCH_PLAN_SEARCH_H

#include "cli/cli.h"
#include "cli/sim/sim_machine.h"
#include "search/search.h"

/* What the best layout is the best in. */
typedef enum tri_objective {
    TRI_OBJECTIVE_TIME,
    TRI_OBJECTIVE_MEMORY,
    TRI_OBJECTIVE_ENERGY,
    TRI_OBJECTIVE_MONEY
} tri_objective;

/* A number of devices, and a run on them. */
typedef struct tri_plan_size {
    uint32_t devices;
    bool fits;
    tri_layout_result best;
    double days, effective, device_hours, kwh, money; /* with failures; below 0: not known */
} tri_plan_size;
enum { TRI_PLAN_SIZES = 21 };

typedef struct tri_plan_search {
    const tri_cli *cli;
    char assumed[4][48]; /* assignments for what a preset alone does not say */
    int num_assumed;
    tr_settings *settings; /* of the command, with what --fix says that the search does not vary */
    tri_sim_machine machine;
    tri_measured profile;
    bool is_measured;
    uint32_t least_devices, most_devices; /* --devices 8..1024 */
    tri_search_case of;
    tri_objective objective;
    double tokens, days, price, watts; /* 0: not given */
    double device_bytes;               /* all of the device's memory */
    uint64_t fit_bytes;                /* of --fix layout.recompute=budget:...; 0: not given */
    tri_search found;
    tri_plan_size sizes[TRI_PLAN_SIZES];
    size_t num_sizes, chosen; /* chosen: SIZE_MAX for none */
    bool told;                /* a line of progress is on the terminal */
} tri_plan_search;

tr_status tri_plan_search_read(tri_plan_search *p, tr_error *err);
/* Machines of another size. */
tr_status tri_plan_search_size(tri_plan_search *p, uint32_t devices, tr_error *err);
void tri_plan_search_fini(tri_plan_search *p);

tr_status tri_plan_search_text(const tri_plan_search *p, tr_error *err);
tr_status tri_plan_search_json(const tri_plan_search *p, tr_error *err);
/* The error that says how far it is from fitting. */
tr_status tri_plan_search_nothing(const tri_plan_search *p, tr_error *err);
/* The command that trains so. */
void tri_plan_search_command(const tri_plan_search *p, const tri_layout_choice *choice,
                             tri_text *text);
/* Layouts of which one cannot be told to be faster: their times differ by less than the profile is
 * usually off. */
bool tri_plan_search_tied(const tri_plan_search *p, const tri_layout_result *result);

/* search_sizes.c: each power of two of --devices; then a whole search of the one that is chosen. */
tr_status tri_plan_search_sizes(tri_plan_search *p, tr_error *err);
tr_status tri_plan_search_sizes_text(const tri_plan_search *p, tr_error *err);

/* The same of one number of devices, which was searched. */
void tri_plan_search_add_run(tri_plan_search *p);

/* The verb's form. */
tr_status tri_plan_search_run(const tri_cli *cli, tr_error *err);

#endif
