#include "cli/auto/auto_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process_memory.h"
#include "cli/auto/auto_parts.h"
#include "cli/text.h"
#include "config/resolve.h"
#include "config/settings_internal.h"
#include "device/device.h"

/* The same as plan --search does, so that both find the same. */
enum { NUM_BEST = 10, MOST_EXACT = 400 };

/* One line that is written over, on a terminal alone. */
static void progress(void *context, const char *what, size_t done, size_t of)
{
    tri_auto *a = context;
    if (a->quiet || !tri_terminal(stderr))
        return;
    fprintf(stderr, "\r\033[Klayout  looking at %s: %zu of %zu", what, done, of);
    fflush(stderr);
    a->told = true;
}

/* What a rank may take: run.memory_limit, or nearly all of its share. */
static tr_status read_budget(const tri_auto *a, const tri_auto_try *t, uint64_t *bytes,
                             tr_error *err)
{
    TRI_TRY(tri_memory_limit_from(a->cli->settings, bytes, err));
    if (*bytes == 0)
        *bytes = tri_search_budget(a->device_bytes / (t->of.machine.host ? t->ranks : 1));
    return TR_OK;
}

/* As the run would be with so many ranks, but for the layout. */
static tr_status settings_of(const tri_auto *a, tri_auto_try *t, tr_error *err)
{
    char threads[48];
    snprintf(threads, sizeof threads, "run.threads=%d", t->threads);
    TRI_TRY(tri_settings_clone(a->cli->settings, &t->settings, err));
    return t->of.machine.host ? tr_settings_set(t->settings, threads, err) : TR_OK;
}

static tr_status search(tri_auto *a, tri_auto_try *t, tr_error *err)
{
    TRI_TRY(settings_of(a, t, err));
    TRI_TRY(read_budget(a, t, &t->of.machine.memory_bytes, err));
    t->of.settings = t->settings;
    t->of.fixed = a->fixed;
    t->of.num_best = NUM_BEST;
    t->of.most_exact = MOST_EXACT;
    t->of.threads = tri_device_num_cores();
    t->of.context = a;
    t->of.progress = progress;
    return tri_search_run(&t->of, &t->found, err);
}

static const tri_auto_try *fastest(const tri_auto *a)
{
    const tri_auto_try *best = NULL;
    for (int i = 0; i < a->num_tries; i++) {
        const tri_auto_try *t = &a->tries[i];
        if (t->found.num_best > 0 &&
            (!best || t->found.results[t->found.best[0]].seconds <
                          best->found.results[best->found.best[0]].seconds))
            best = t;
    }
    return best;
}

static tr_status choose(tri_auto *a, tri_auto_layout *layout, tr_error *err)
{
    TRI_TRY(tri_auto_read_given(a, err));
    TRI_TRY(tri_auto_machine(a, err));
    for (int i = 0; i < a->num_tries; i++)
        if (!a->tries[i].why[0])
            TRI_TRY(search(a, &a->tries[i], err));
    const tri_auto_try *best = fastest(a);
    if (!best)
        return tri_auto_nothing_fits(a, err);
    tri_auto_tell(a, best, layout);
    return tri_choice_apply(&best->found.results[best->found.best[0]].choice,
                            best->of.machine.memory_bytes, a->cli->settings, err);
}

static void end(tri_auto *a)
{
    if (a->told)
        fprintf(stderr, "\r\033[K");
    for (int i = 0; i < a->num_tries; i++) {
        tri_search_fini(&a->tries[i].found);
        tr_settings_destroy(a->tries[i].settings);
    }
    if (a->is_measured)
        tri_measured_fini(&a->profile);
    free(a);
    tri_process_forget_peak(); /* what ranks take counts, and they may be this process */
}

tr_status tri_auto_layout_decide(const tri_cli *cli, const char *run_dir, bool quiet,
                                 tri_auto_layout *layout, tr_error *err)
{
    *layout = (tri_auto_layout){0};
    if (!tr_settings_bool(cli->settings, "layout.auto"))
        return TR_OK;
    TRI_TRY(tri_auto_recorded(cli->settings, run_dir, &layout->recorded, err));
    if (layout->recorded) {
        layout->chosen = true;
        return TR_OK;
    }
    tri_auto *a = calloc(1, sizeof *a);
    if (!a)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to choose a layout");
    a->cli = cli;
    a->quiet = quiet;
    tr_status status = choose(a, layout, err);
    end(a);
    layout->chosen = status == TR_OK;
    return status;
}

void tri_auto_layout_fini(tri_auto_layout *layout)
{
    tri_text_fini(&layout->line);
    tri_text_fini(&layout->why);
    tri_text_fini(&layout->head);
    tri_text_fini(&layout->note);
    *layout = (tri_auto_layout){0};
}
