#include "cli/launch/recovery.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "ckpt/ckpt_dir.h"
#include "cli/run/journal.h"
#include "cli/signals.h"
#include "config/resolve.h"
#include "train/log/events.h"

int64_t tri_recovery_saved(const tr_settings *settings)
{
    char *dir = tri_path_join(tr_settings_string(settings, "run.dir"), "ckpt");
    tri_ckpt_steps steps = {0};
    tr_error unused;
    bool any = dir && tri_ckpt_steps_read(&steps, dir, &unused) == TR_OK && steps.num > 0;
    int64_t newest = any ? steps.step[0] : 0;
    tri_ckpt_steps_free(&steps);
    free(dir);
    return newest;
}

void tri_recovery_init(tri_recovery *recovery, const tri_cli *cli)
{
    *recovery = (tri_recovery){.cli = cli, .started_s = tri_now_s()};
    if (strcmp(tr_settings_string(cli->settings, "run.resume"), "false") != 0)
        recovery->from_step = tri_recovery_saved(cli->settings);
}

bool tri_recovery_wanted(const tri_recovery *recovery)
{
    const tr_settings *settings = recovery->cli->settings;
    return tr_settings_int(settings, "run.restarts") > 0 ||
           tr_settings_bool(settings, "run.elastic");
}

/* ---- with how many ranks ---- */

static tr_status mesh_of(const tr_settings *settings, tri_mesh *mesh, tr_error *err)
{
    tri_session_config config;
    TRI_TRY(tri_session_config_from(settings, &config, err));
    *mesh = config.compile.mesh;
    return TR_OK;
}

/* Replicas that miss a rank. */
static int num_broken(const tri_mesh *mesh, const tri_launch_result *result)
{
    int num = 0;
    for (int i = 0; i < result->num_lost; i++) {
        int own = tri_mesh_coordinate(mesh, result->lost[i], TRI_AXIS_DP);
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen |= tri_mesh_coordinate(mesh, result->lost[j], TRI_AXIS_DP) == own;
        num += !seen;
    }
    return num;
}

static tr_status set_number(tr_settings *settings, const char *name, int64_t value, tr_error *err)
{
    char text[80];
    snprintf(text, sizeof text, "%s=%" PRId64, name, value);
    return tr_settings_set(settings, text, err);
}

/* Sets layout.dp to the most replicas, fewer by those that are broken, with which the layout can
 * be; false, with all as it was, when there is no such number. A group of shards that was all of
 * dp x cp stays all of it. */
static bool shrink(const tri_recovery *r, const tri_launch_result *result)
{
    tr_settings *settings = r->cli->settings;
    tr_error err;
    tri_mesh mesh;
    if (mesh_of(settings, &mesh, &err) != TR_OK)
        return false;
    int64_t dp = tr_settings_int(settings, "layout.dp");
    int64_t group = tr_settings_int(settings, "layout.shard_group");
    int64_t all = dp * tr_settings_int(settings, "layout.cp");
    if (group == all && set_number(settings, "layout.shard_group", 0, &err) != TR_OK)
        return false;
    for (int64_t fewer = dp - num_broken(&mesh, result); fewer >= 1 && fewer < dp; fewer--)
        if (set_number(settings, "layout.dp", fewer, &err) == TR_OK &&
            mesh_of(settings, &mesh, &err) == TR_OK)
            return true;
    set_number(settings, "layout.dp", dp, &err);
    set_number(settings, "layout.shard_group", group, &err);
    return false;
}

/* ---- deciding ---- */

static void record(const tri_recovery *r, const char *what, const tri_launch_result *result,
                   int64_t from_step, int ranks)
{
    tri_event event = TRI_EVENT_NOTHING;
    event.event = what;
    event.rank = result->failed_rank;
    event.at_step = result->step;
    event.from_step = from_step;
    event.ranks = ranks;
    event.number = r->attempt + 1;
    tri_journal_add(r->cli->settings, &event, result->signal);
}

static int give_up(const tri_recovery *r, const tri_launch_result *result, const char *why)
{
    tri_cli_error("not started again: %s", why);
    tri_event event = TRI_EVENT_NOTHING;
    event.event = "gave_up";
    event.rank = result->failed_rank;
    event.at_step = result->step;
    event.reason = why;
    tri_journal_add(r->cli->settings, &event, result->signal);
    return 0;
}

/* Where it goes on from, for the line that says so. */
static void say(const tri_recovery *r, bool smaller, int64_t from_step, int num_ranks)
{
    tr_settings *settings = r->cli->settings;
    char from[80] = "from the beginning: there is no checkpoint yet", ranks[64] = "", count[64];
    if (from_step > 0)
        snprintf(from, sizeof from, "from the checkpoint of step %" PRId64, from_step);
    if (smaller)
        snprintf(ranks, sizeof ranks, ", with layout.dp=%" PRId64 " (%d rank%s)",
                 tr_settings_int(settings, "layout.dp"), num_ranks, num_ranks == 1 ? "" : "s");
    snprintf(count, sizeof count, " %d of %" PRId64, r->num_restarts,
             tr_settings_int(settings, "run.restarts"));
    tri_cli_error("restart%s %s%s", smaller ? "" : count, from, ranks);
}

int tri_recovery_again(void *context, const tri_launch_result *result)
{
    tri_recovery *r = context;
    tr_settings *settings = r->cli->settings;
    int64_t restarts = tr_settings_int(settings, "run.restarts");
    bool elastic = tr_settings_bool(settings, "run.elastic");
    if (!tri_recovery_wanted(r) || result->failed_rank < 0 || result->interrupted)
        return 0;
    if (result->asked || tri_signals_caught())
        return 0; /* it was to end anyway */
    tri_attempt now = {.rank = result->failed_rank,
                       .signal = result->signal,
                       .code = result->code,
                       .step = result->step,
                       .from_step = r->from_step};
    if (result->code == TRI_EXIT_USAGE || result->code == TRI_EXIT_FINAL)
        return give_up(r, result, "the same would happen again");
    const char *why = tri_attempt_hopeless(r->attempt > 0 ? &r->last : NULL, &now);
    if (why)
        return give_up(r, result, why);
    bool smaller = elastic && shrink(r, result);
    if (!smaller && r->num_restarts >= restarts)
        return give_up(r, result,
                       elastic && restarts == 0
                           ? "the layout cannot do with fewer data-parallel ranks (run.restarts "
                             "starts as many again)"
                           : "run.restarts allows no more");
    tr_error err;
    tri_mesh mesh;
    if (mesh_of(settings, &mesh, &err) != TR_OK)
        return give_up(r, result, err.message);
    /* Before its first step, a run that is to begin anew may not have put away what an earlier one
     * left. */
    r->resumes |= result->trained;
    int64_t from_step = r->resumes ? tri_recovery_saved(settings) : r->from_step;
    r->num_restarts += !smaller;
    say(r, smaller, from_step, tri_mesh_ranks(&mesh));
    record(r, smaller ? "shrink" : "restart", result, from_step, tri_mesh_ranks(&mesh));
    r->attempt++;
    r->from_step = from_step;
    r->last = now;
    return tri_mesh_ranks(&mesh);
}
