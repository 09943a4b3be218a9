/* run.page: `trireme watch` beside a run, for as long as that goes on. It is a convenience: that it
 * cannot be started is a warning, and the run goes on without. */
#ifndef TRI_CLI_RUN_PAGE_H
#define TRI_CLI_RUN_PAGE_H

#include <stdbool.h>
#include <sys/types.h>

#include "trireme/settings.h"

typedef struct tri_run_page {
    pid_t pid; /* 0: there is none */
} tri_run_page;

/* Before there are ranks, when run.dir is there: says where the page is, unless quiet. */
void tri_run_page_begin(tri_run_page *page, const tr_settings *settings, bool quiet);
void tri_run_page_end(tri_run_page *page);

#endif
