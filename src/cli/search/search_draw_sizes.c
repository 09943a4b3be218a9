/* The same batch on fewer and on more devices: for each the best of the search made larger or
 * smaller, and a search of its own with few looks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/search/search_draw.h"
#include "search/resize.h"

/* Of layouts that a search lists: from there on it takes long, and the best of the search, made
 * larger or smaller, have to do. */
enum { MOST_LISTED = 100000 };
enum { LOOKS = 48, TIMES = 8 };

/* Unless the point has a better one. */
static void keep(const tri_layout_result *best, tri_scaling_point *point)
{
    tri_text layout;
    if (!best->fits || (point->seconds > 0 && point->seconds <= best->seconds))
        return;
    point->seconds = best->seconds;
    point->bytes = (double)best->bytes;
    tri_text_init(&layout);
    tri_choice_text(&best->choice, &layout);
    snprintf(point->layout, sizeof point->layout, "%s",
             !layout.failed && layout.length > 0 ? layout.chars : "");
    tri_text_fini(&layout);
}

/* Nothing is fixed, so that the best of the search may become larger and smaller. */
static bool all_free(const tri_search_case *c)
{
    const tri_space_fixed none = tri_space_all_free();
    return memcmp(&c->fixed, &none, sizeof none) == 0;
}

static bool is_large(const tri_plan_search *p)
{
    tri_space_facts facts = p->found.facts;
    tri_choices space;
    facts.devices = p->of.machine.devices;
    facts.node = p->of.machine.node;
    tri_space_list(&facts, &p->of.fixed, &space);
    bool large = space.count > MOST_LISTED;
    free(space.items);
    return large;
}

static tr_status search_briefly(const tri_plan_search *p, tri_scaling_point *point, tr_error *err)
{
    tri_search found;
    tri_search_case c = p->of;
    c.num_best = 1;
    c.most_exact = c.most_exact < LOOKS ? c.most_exact : LOOKS;
    c.brief = true;
    c.progress = NULL;
    TRI_TRY(tri_search_run(&c, &found, err));
    if (found.num_best > 0)
        keep(&found.results[found.best[0]], point);
    else if (point->seconds <= 0)
        snprintf(point->layout, sizeof point->layout, "%s",
                 found.space.count > 0 ? "none that was looked at fits"
                                       : "there is no layout of so many");
    tri_search_fini(&found);
    return TR_OK;
}

static tr_status look_at_size(tri_plan_search *p, tri_scaling_point *point, tr_error *err)
{
    tri_layout_result best = {0};
    TRI_TRY(tri_plan_search_size(p, point->devices, err));
    if (all_free(&p->of))
        TRI_TRY(tri_search_resize(&p->of, &p->found, &best, err));
    keep(&best, point);
    return point->seconds > 0 && is_large(p) ? TR_OK : search_briefly(p, point, err);
}

/* What such a machine cannot have is no failure, but said beside the others. */
static tr_status search_size(tri_plan_search *p, tri_scaling_point *point, tr_error *err)
{
    tr_error own = {0};
    tr_status status = look_at_size(p, point, &own);
    if (status == TR_ERROR_INPUT && point->seconds <= 0)
        snprintf(point->layout, sizeof point->layout, "%.230s", own.message);
    else if (status != TR_OK && status != TR_ERROR_INPUT)
        *err = own;
    return status == TR_ERROR_INPUT ? TR_OK : status;
}

static size_t list_sizes(const tri_plan_search *p, tri_scaling_point points[TRI_PLAN_SEARCH_SIZES])
{
    const tri_search_machine *m = &p->of.machine;
    uint64_t most = (uint64_t)m->devices * TIMES, devices = m->devices;
    size_t num = 0;
    most = most < TRI_MAX_RANKS ? most : TRI_MAX_RANKS;
    if (m->host && most > (uint64_t)m->cores && (uint64_t)m->cores >= devices)
        most = (uint64_t)m->cores;
    while (devices % 2 == 0 && devices / 2 * TIMES >= m->devices)
        devices /= 2;
    for (; devices <= most && num < TRI_PLAN_SEARCH_SIZES; devices *= 2)
        points[num++] = (tri_scaling_point){.devices = (uint32_t)devices};
    return num;
}

static tr_status search_sizes(tri_plan_search *p, tri_scaling_point *points, size_t num,
                              tr_error *err)
{
    uint32_t asked = p->of.machine.devices;
    for (size_t i = 0; i < num; i++) {
        if (p->of.progress)
            p->of.progress(p->of.context, "other numbers of devices", i, num);
        if (points[i].devices == asked)
            keep(&p->found.results[p->found.best[0]], &points[i]);
        else
            TRI_TRY(search_size(p, &points[i], err));
    }
    return TR_OK;
}

/* "dgx-h100" of "dgx-h100:16": the same nodes, as many as it takes. */
static char *cluster_of_any_size(const char *cluster)
{
    size_t name = strcspn(cluster, ":,="), length = strlen(cluster);
    char *text = malloc(length + 1);
    if (!text)
        return NULL;
    memcpy(text, cluster, length + 1);
    if (cluster[name] == ':' && !tri_cluster_is_path(cluster)) {
        size_t rest = name + strcspn(cluster + name, ",");
        memmove(text + name, cluster + rest, length - rest + 1);
    }
    return text;
}

static tr_status search_clusters(tri_plan_search *p, const char *cluster, tri_scaling_point *points,
                                 size_t num, tr_error *err)
{
    const tri_cli *own = p->cli;
    tri_cli other = *own;
    size_t bytes = (size_t)own->num_flags * sizeof *own->flags;
    char *text = cluster_of_any_size(cluster);
    tr_status status;
    other.flags = malloc(bytes);
    if (other.flags && text) {
        memcpy(other.flags, own->flags, bytes);
        for (int i = 0; i < own->num_flags; i++)
            if (strcmp(own->flags[i].flag->name, "cluster") == 0)
                other.flags[i].value = text;
        p->cli = &other;
        status = search_sizes(p, points, num, err);
        p->cli = own;
    } else {
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the pictures");
    }
    free(other.flags);
    free(text);
    return status;
}

tr_status tri_plan_search_scaling(tri_plan_search *p,
                                  tri_scaling_point points[TRI_PLAN_SEARCH_SIZES], size_t *num,
                                  tr_error *err)
{
    uint32_t asked = p->of.machine.devices;
    const char *cluster = tri_cli_flag(p->cli, "cluster");
    *num = list_sizes(p, points);
    TRI_TRY(cluster ? search_clusters(p, cluster, points, *num, err)
                    : search_sizes(p, points, *num, err));
    return tri_plan_search_size(p, asked, err);
}
