/* The devices that there are, for layout.auto, and how many ranks are tried on them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/system_memory.h"
#include "cli/auto/auto_parts.h"
#include "cli/launch/environment.h"
#include "device/device.h"
#include "mesh/device_names.h"

static void add_try(tri_auto *a, uint32_t ranks, int threads)
{
    if (a->num_tries < TRI_AUTO_TRIES)
        a->tries[a->num_tries++] = (tri_auto_try){.ranks = ranks, .threads = threads};
}

/* ---- GPUs ---- */

/* The ranks of others choose without talking, so all of them must see the same. */
static tr_status count_in_world(const tri_environment *world, uint32_t *num, tr_error *err)
{
    int beside = tri_cli_ranks_beside();
    if (world->size > beside)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.auto knows the links of one machine, and %s=%d counts ranks of "
                        "several; plan for their cluster (trireme plan FILE.yaml --search "
                        "--cluster) and write the layout into the recipe",
                        world->size_variable, world->size);
    *num = (uint32_t)world->size;
    return TR_OK;
}

static tr_status try_gpus(tri_auto *a, const tri_environment *world, tr_error *err)
{
    tri_gpus here = tri_cli_find_gpus(true);
    uint32_t num = (uint32_t)here.count;
    if (here.count < 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.auto finds no GPU for run.device=cuda; `trireme doctor` says what "
                        "is missing");
    if (world->given)
        TRI_TRY(count_in_world(world, &num, err));
    const tri_device_spec *spec = tri_device_spec_in(here.name);
    if (!spec)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.auto has no figures of this GPU (%.100s); describe it to the "
                        "search (trireme plan FILE.yaml --search --devices %u --device "
                        "peak=312T,memory=80G,bandwidth=2039G --link nvlink4), and write the "
                        "layout into the recipe instead of layout.auto",
                        here.name, num);
    TRI_TRY(tri_sim_machine_of(a->cli->settings, spec, num, &a->gpus, err));
    a->device_bytes = spec->memory_bytes;
    snprintf(a->by, sizeof a->by, "the figures of %.60s (%.20s), %.60s", spec->title,
             tri_sim_machine_rates(&a->gpus), a->gpus.roofline.link->title);
    add_try(a, num, 0);
    tri_search_machine_modelled(&a->gpus, num, &a->tries[0].of.machine);
    return TR_OK;
}

/* ---- cores ---- */

static void list_numbers(tri_auto *a)
{
    int cores = tri_device_num_cores();
    int threads = (int)tr_settings_int(a->cli->settings, "run.threads");
    int most = threads == 0 ? cores : cores / threads > 1 ? cores / threads : 1;
    bool listed = false;
    for (int n = 1; n <= most; n++)
        if (most % n == 0 && (uint32_t)n % a->product == 0) {
            add_try(a, (uint32_t)n, threads ? threads : cores / n);
            listed = true;
        }
    int share = cores / (int)a->product > 1 ? cores / (int)a->product : 1;
    if (!listed) /* what is given asks for a number that the cores do not have */
        add_try(a, a->product, threads ? threads : share);
}

static void describe_host(tri_auto *a, tri_auto_try *t)
{
    const tri_measured_table *table = tri_measured_find(&a->profile, (int)t->ranks, t->threads);
    double mean, worst;
    if (!table) {
        snprintf(t->why, sizeof t->why,
                 "not tried, since the profile has no measurements of %u rank%s with %d thread%s "
                 "each",
                 t->ranks, t->ranks == 1 ? "" : "s", t->threads, t->threads == 1 ? "" : "s");
        return;
    }
    tri_search_machine_measured(&a->profile, t->ranks, &t->of.machine);
    tri_measured_residual(table, &mean, &worst);
    t->of.machine.error = fmax(mean, 0.01);
    t->of.machine.cores = (int)t->ranks * t->threads; /* with which it looks the table up */
}

static tr_status try_cores(tri_auto *a, const tri_environment *world, tr_error *err)
{
    if (world->given && world->size > 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.auto measures this machine, and ranks that were started by others "
                        "(%s=%d) could measure different things and choose different layouts; plan "
                        "first (trireme plan FILE.yaml --search --profile here) and write the "
                        "layout into the recipe",
                        world->size_variable, world->size);
    TRI_TRY(tri_auto_profile(a, err));
    tri_system_memory memory = tri_system_memory_read("");
    double most = (double)(memory.limit ? memory.limit : memory.total);
    a->device_bytes = most > 0 && most < a->profile.memory_bytes ? most : a->profile.memory_bytes;
    if (world->given)
        add_try(a, 1, a->profile.cores);
    else
        list_numbers(a);
    for (int i = 0; i < a->num_tries; i++)
        describe_host(a, &a->tries[i]);
    return TR_OK;
}

tr_status tri_auto_machine(tri_auto *a, tr_error *err)
{
    const char *kind = tr_settings_string(a->cli->settings, "run.device");
    tri_environment world;
    TRI_TRY(tri_environment_read(&world, err));
    a->quiet |= world.rank > 0;
    if (strcmp(kind, "cuda") == 0)
        return try_gpus(a, &world, err);
    if (strcmp(kind, "cpu") == 0)
        return try_cores(a, &world, err);
    return tri_fail(err, TR_ERROR_INPUT,
                    "layout.auto plans for devices that compute, and run.device is %s; set "
                    "run.device=cpu or cuda, or leave layout.auto out",
                    kind);
}
