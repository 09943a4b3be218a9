#include "cli/search/plan_search.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/memory.h"
#include "cli/search/search_draw.h"

/* One line that is written over, on a terminal alone. */
static void progress(void *context, const char *what, size_t done, size_t of)
{
    tri_plan_search *p = context;
    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r\033[Klooking at %s: %zu of %zu", what, done, of);
    fflush(stderr);
    p->told = true;
}

static void end_progress(tri_plan_search *p)
{
    if (p->told)
        fprintf(stderr, "\r\033[K");
    p->told = false;
}

static tr_status show(const tri_plan_search *p, bool sizes, tr_error *err)
{
    if (sizes)
        TRI_TRY(tri_plan_search_sizes_text(p, err));
    if (sizes && p->chosen == SIZE_MAX)
        return tri_fail(err, TR_ERROR_INPUT,
                        "none of these sizes will do; take more devices, or more days");
    TRI_TRY(tri_plan_search_text(p, err));
    return !sizes && p->num_sizes > 0 ? tri_plan_search_sizes_text(p, err) : TR_OK;
}

static tr_status run(tri_plan_search *p, tr_error *err)
{
    tri_memory_keep_freed();
    TRI_TRY(tri_plan_search_may_draw(p->cli, err));
    TRI_TRY(tri_plan_search_read(p, err));
    p->of.context = p;
    p->of.progress = progress;
    bool sizes = p->least_devices < p->most_devices;
    tr_status status =
        sizes ? tri_plan_search_sizes(p, err) : tri_search_run(&p->of, &p->found, err);
    end_progress(p);
    TRI_TRY(status);
    if (!sizes && p->tokens > 0)
        tri_plan_search_add_run(p);
    TRI_TRY(tri_cli_flag(p->cli, "json") ? tri_plan_search_json(p, err) : show(p, sizes, err));
    if (p->found.num_best == 0)
        return tri_plan_search_nothing(p, err);
    return tri_plan_search_draw(p, err);
}

tr_status tri_plan_search_run(const tri_cli *cli, tr_error *err)
{
    tri_plan_search p = {.cli = cli};
    tr_status status = run(&p, err);
    tri_plan_search_fini(&p);
    return status;
}
