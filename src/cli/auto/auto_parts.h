/* What the files of layout.auto share. */
#ifndef TRI_CLI_AUTO_AUTO_PARTS_H
#define TRI_CLI_AUTO_AUTO_PARTS_H

#include "cli/auto/auto_layout.h"
#include "cli/search/search_machine.h"
#include "search/search.h"

/* A number of ranks, and the best layouts of so many. */
typedef struct tri_auto_try {
    uint32_t ranks;
    int threads;   /* of each */
    char why[160]; /* it was not tried: the reason; otherwise "" */
    tr_settings *settings;
    tri_search_case of;
    tri_search found;
} tri_auto_try;

enum { TRI_AUTO_TRIES = 32 };

typedef struct tri_auto {
    const tri_cli *cli;
    bool quiet, told;
    tri_space_fixed fixed;
    uint32_t product; /* of the axes that are given */
    tri_measured profile;
    bool is_measured;
    char by[400];        /* where the figures are from */
    double device_bytes; /* of a GPU, or of the whole host */
    tri_sim_machine gpus;
    tri_auto_try tries[TRI_AUTO_TRIES];
    int num_tries;
} tri_auto;

/* auto_given.c: what stays of the layout. */
tr_status tri_auto_read_given(tri_auto *a, tr_error *err);

/* auto_machine.c: fills in tries, up to what is searched. */
tr_status tri_auto_machine(tri_auto *a, tr_error *err);

/* auto_profile.c: what was measured here, or is measured now. */
tr_status tri_auto_profile(tri_auto *a, tr_error *err);

/* auto_recorded.c: the layout that the run in this directory has, where it goes on. */
tr_status tri_auto_recorded(tr_settings *settings, const char *run_dir, bool *found, tr_error *err);

/* auto_text.c */
void tri_auto_tell(const tri_auto *a, const tri_auto_try *best, tri_auto_layout *layout);
tr_status tri_auto_nothing_fits(const tri_auto *a, tr_error *err);

#endif
