/* layout.auto: the layout is chosen when a run begins, for the devices that are there.
 *
 * The search of plan --search does it: on GPUs for all of them, by the table's figures; on a host
 * for each number of ranks that divides its cores, by what was measured there. What comes out is
 * put into the settings as if a person had written it, before there are ranks. */
#ifndef TRI_CLI_AUTO_AUTO_LAYOUT_H
#define TRI_CLI_AUTO_AUTO_LAYOUT_H

#include "base/text.h"
#include "cli/cli.h"

typedef struct tri_auto_layout {
    bool chosen;   /* layout.auto was true: lines are below */
    bool recorded; /* a run goes on, with the layout that it has */
    tri_text line; /* "dp 2 zero 1, 1 x 4 rows (1.9 x faster than one rank; step 2.3 ms +- 1 %)" */
    tri_text why;  /* the most telling reasons, a line each */
    tri_text head; /* all of it as comments, for config.yaml */
    tri_text note; /* the line and the reasons in one, for events.jsonl */
} tri_auto_layout;

/* Replaces layout.auto=true in the settings by a layout; does nothing without it. The data is
 * prepared. run_dir: where the run is to be, whose own layout counts when it goes on. Prints what
 * it is at, unless it is to be quiet. */
tr_status tri_auto_layout_decide(const tri_cli *cli, const char *run_dir, bool quiet,
                                 tri_auto_layout *layout, tr_error *err);
void tri_auto_layout_fini(tri_auto_layout *layout);

/* For the first lines of the run. */
void tri_auto_layout_print(const tri_auto_layout *layout);

#endif
