#include "cli/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/run_aside.h"
#include "base/fs.h"
#include "cli/launch/descriptors.h"
#include "cli/launch/environment.h"
#include "cli/launch/join.h"
#include "cli/launch/lone_rank.h"
#include "cli/launch/relay.h"
#include "cli/signals.h"
#include "cli/text.h"
#include "comm/control/control.h"
#include "config/resolve.h"
#include "device/device.h"

/* From tri_cli_launch to a rank 0 that it forked. */
#define RELAY_VARIABLE "TRIREME_RELAY_TERMINAL"

int tri_cli_rank_fail(const tri_bootstrap *bootstrap, const tr_error *err)
{
    /* First the launcher, who then stops relaying: the message is in its report. */
    tri_control_report_failure(bootstrap, err->message);
    return tri_cli_fail(err);
}

bool tri_cli_relayed_terminal(int *columns)
{
    const char *text = getenv(RELAY_VARIABLE);
    int fd = text ? atoi(text) : 0;
    *columns = fd > 0 ? tri_terminal_width_of(fd) : 0; /* it may have changed */
    return fd > 0;
}

/* ---- local processes ---- */

typedef struct local_rank {
    const tri_cli *cli;
    tri_rank_main rank_main;
    void *context;
    int terminal; /* a descriptor of the launcher's, 0: it has none */
    const tri_launch_options *options;
    tri_relay relay;
    bool lost_told;
    tri_remarks remarks;
} local_rank;

/* In the rank's own process. */
static int run_local_rank(const tri_bootstrap *bootstrap, void *context)
{
    const local_rank *local = context;
    char terminal[16];
    snprintf(terminal, sizeof terminal, "%d", local->terminal);
    if (bootstrap->rank == 0 && local->terminal > 0)
        setenv(RELAY_VARIABLE, terminal, 1);
    return local->rank_main(local->cli, bootstrap, local->context);
}

/* That nobody sees the output any more. stdout may have failed before the ranks were there. */
static void tell_lost(const tri_launch_options *options, int reason, const char *where)
{
    char text[200];
    snprintf(text, sizeof text, "the output cannot be written any more (%s); the run goes on%s",
             strerror(reason), where);
    if (options->note)
        options->note(options->context, text);
    if (reason != EPIPE)
        tri_cli_error("note: %s", text);
}

static void relay(void *context, const char *data, size_t num_bytes)
{
    local_rank *local = context;
    tri_relay_add(&local->relay, data, num_bytes);
    if (local->relay.lost && !local->lost_told)
        tell_lost(local->options, local->relay.lost, ", and log/rank-0.log has it all");
    local->lost_told |= local->relay.lost != 0;
}

/* At once, so that somebody who waits for the checkpoint does not insist. Never waits itself. */
static void tell_asked(void *context, int signal)
{
    local_rank *local = context;
    if (signal != SIGINT || !tri_has_room(STDERR_FILENO, 0))
        return;
    fputs(local->relay.line_open ? "\n" : "", stderr);
    local->relay.line_open = false;
    tri_cli_error("Ctrl-C: finishing the step, then saving; press it again to end at once, without "
                  "saving");
}

static void local_remark(void *context, const char *line)
{
    local_rank *local = context;
    tri_cli_remark(&local->remarks, line);
}

/* One world, from its start to the end of its last rank. */
static tr_status launch_once(local_rank *local, int num_ranks, bool append_logs,
                             const tri_launch_options *options, tri_launch_result *result,
                             tr_error *err)
{
    const tr_settings *settings = local->cli->settings;
    char *log_dir = tri_path_join(tr_settings_string(settings, "run.dir"), "log");
    tri_launch_config config = {.num_ranks = num_ranks,
                                .deadline_s = tr_settings_float(settings, "run.deadline_s"),
                                .log_dir = log_dir,
                                .run_dir = tr_settings_string(settings, "run.dir"),
                                .status = options->writes,
                                .share_cores = true,
                                .asks = options->asks,
                                .append_logs = append_logs,
                                .output = relay,
                                .log = local_remark,
                                .asked = tell_asked,
                                .context = local};
    tr_status status = tri_launch(&config, run_local_rank, local, result, err);
    free(log_dir);
    if (local->relay.line_open) /* a progress line: what comes now starts on its own */
        relay(local, "\n", 1);
    tri_relay_finish(&local->relay);
    if (local->relay.dropped && options->note)
        options->note(options->context,
                      "the output was not read in time, and parts of it were left "
                      "out; all of it is in log/rank-0.log");
    local->relay.dropped = false;
    if (status != TR_OK)
        tri_text_add(&result->report, "%s", err->message);
    else if (result->report.length > 0)
        tri_cli_print_report(&result->report);
    return status;
}

/* Hundreds of processes on a few cores take hours for a step and bring the machine to a halt before
 * anybody can stop them. */
bool tri_cli_too_many_here(int num_ranks)
{
    enum { ANYWHERE = 128, PER_CORE = 8 };
    return num_ranks > ANYWHERE && num_ranks > PER_CORE * tri_device_num_cores();
}

static bool refuse_too_many(int num_ranks)
{
    int cores = tri_device_num_cores();
    if (!tri_cli_too_many_here(num_ranks))
        return false;
    tri_cli_error("this layout has %d ranks, too many processes for the %d core%s of this machine; "
                  "make layout.dp, tp or pp smaller, or start the ranks on several machines with "
                  "mpirun or srun (plan, explain and sim take layouts of any size)",
                  num_ranks, cores, cores == 1 ? "" : "s");
    return true;
}

/* The step in which it failed is not done. */
static int64_t steps_done(const tri_launch_result *result, bool failed)
{
    return result->step > 0 && failed ? result->step - 1 : result->step;
}

static int launch_here(const tri_cli *cli, int num_ranks, tri_rank_main rank_main, void *context,
                       const tri_launch_options *options, int64_t *steps)
{
    tr_error err = {0};
    local_rank local = {.cli = cli, .rank_main = rank_main, .context = context, .options = options};
    tri_relay_init(&local.relay, STDOUT_FILENO);
    int terminal = tri_terminal(stdout) ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) : -1;
    local.terminal = terminal > 0 ? terminal : 0;
    /* With more ranks than cores there are no cores to give; one thread each is the share then. */
    if (num_ranks > tri_device_num_cores() &&
        tr_settings_fill(cli->settings, "run.threads=1", &err) != TR_OK)
        return tri_cli_fail(&err);
    int code = TRI_EXIT_OK;
    for (bool append_logs = false; num_ranks > 0; append_logs = true) {
        tri_launch_result result;
        tr_status status = launch_once(&local, num_ranks, append_logs, options, &result, &err);
        code = status == TR_OK ? result.code : tri_cli_fail(&err);
        result.code = code;
        bool failed = !tri_exit_is_good(code) || result.report.length > 0;
        *steps = steps_done(&result, failed);
        if (failed && options->failed)
            options->failed(options->context, &result);
        num_ranks = failed && status == TR_OK && options->again
                        ? options->again(options->context, &result)
                        : 0;
        tri_launch_result_fini(&result);
    }
    tri_relay_fini(&local.relay);
    if (terminal >= 0)
        close(terminal);
    return code;
}

/* A rank of others; the one that writes into run.dir keeps the record, too. */
static int join(const tri_cli *cli, tri_environment *world, tri_rank_main rank_main, void *context,
                const tri_launch_options *options, int64_t *steps)
{
    tri_launch_result result = {.failed_rank = -1, .step = -1};
    tri_text_init(&result.report);
    int code = tri_join_world(cli, world, rank_main, context, options->writes, &result);
    *steps = steps_done(&result, !tri_exit_is_good(code));
    if (world->rank == 0 && !tri_exit_is_good(code) && options->failed)
        options->failed(options->context, &result);
    fflush(stdout);
    if (world->rank == 0 && ferror(stdout) && options->writes)
        tell_lost(options, errno, "");
    tri_launch_result_fini(&result);
    return code;
}

/* For this run alone. Whoever takes it does so before any rank can have looked into it. */
static tr_status take_dir(tri_run_lock *lock, const tr_settings *settings, bool quiet,
                          tr_error *err)
{
    const char *dir = tr_settings_string(settings, "run.dir");
    char *moved;
    TRI_TRY(tri_run_lock_take(lock, dir, err));
    TRI_TRY(tri_run_aside(lock, settings, &moved, err));
    if (moved && quiet)
        tri_cli_error("note: the earlier run in %s is now %s", dir, moved);
    else if (moved)
        printf("note    the earlier run in %s is now %s; --set run.resume=true continues a run\n",
               dir, moved);
    fflush(stdout); /* before there are ranks to print it again */
    free(moved);
    return TR_OK;
}

/* In one of three ways: as ranks of others, as ranks of ours, or in this process. */
static int launch(const tri_cli *cli, int num_ranks, tri_rank_main rank_main, void *context,
                  const tri_launch_options *options, tri_environment *world)
{
    tr_error err = {0};
    tri_run_lock lock = {.fd = -1};
    bool locks = options->writes && !(world->given && world->rank > 0);
    int64_t steps = -1;
    int code;
    if (locks && take_dir(&lock, cli->settings, options->quiet, &err) != TR_OK) {
        tri_run_lock_release(&lock);
        return tri_cli_fail(&err);
    }
    if (locks && options->begin)
        options->begin(options->context, num_ranks);
    if (world->given && num_ranks > 1)
        code = join(cli, world, rank_main, context, options, &steps);
    else if (num_ranks > 1 || options->processes)
        code = launch_here(cli, num_ranks, rank_main, context, options, &steps);
    else
        code = tri_run_lone_rank(cli, rank_main, context);
    if (!tri_exit_is_good(code) && code != TRI_EXIT_USAGE)
        code = TRI_EXIT_FAILED;
    if (locks && options->ended)
        options->ended(options->context, code, steps, lock.path[lock.old] != 0);
    tri_run_lock_release(&lock);
    return code;
}

int tri_cli_launch(const tri_cli *cli, int num_ranks, tri_rank_main rank_main, void *context,
                   const tri_launch_options *options)
{
    static const tri_launch_options none;
    tri_environment world;
    tr_error err = {0};
    unsetenv(RELAY_VARIABLE);
    if (tri_environment_read(&world, &err) != TR_OK)
        return tri_cli_fail(&err);
    if (world.given && world.size != num_ranks) {
        tri_cli_error("%s=%d in the environment, but the layout has %d rank%s: change the "
                      "layout (layout.dp=%d, say) or how many are started",
                      world.size_variable, world.size, num_ranks, num_ranks == 1 ? "" : "s",
                      world.size);
        return TRI_EXIT_USAGE;
    }
    if (num_ranks > 1 &&
        strcmp(tr_settings_string(cli->settings, "run.transport"), "thread") == 0) {
        tri_cli_error("run.transport=thread joins ranks that are threads of one process (bench "
                      "comm and tests have such); the %d ranks of this layout are processes: use "
                      "run.transport=shm or tcp",
                      num_ranks);
        return TRI_EXIT_USAGE;
    }
    if (num_ranks > 1 && !world.by_mpi &&
        strcmp(tr_settings_string(cli->settings, "run.transport"), "mpi") == 0) {
        tri_cli_error("run.transport=mpi is for ranks that mpirun or srun started: mpirun -n %d "
                      "trireme %s ...; without them use run.transport=shm or tcp",
                      num_ranks, cli->verb->name);
        return TRI_EXIT_USAGE;
    }
    if (!world.given && refuse_too_many(num_ranks))
        return TRI_EXIT_USAGE;
    bool tcp = strcmp(tr_settings_string(cli->settings, "run.transport"), "tcp") == 0;
    if (num_ranks > 1 && tri_descriptors_reserve(num_ranks, !world.given, tcp, &err) != TR_OK)
        return tri_cli_fail(&err);
    options = options ? options : &none;
    if (world.given && world.size > 1 && world.rank == 0 && options->restarts)
        tri_cli_error(
            "note: run.restarts and run.elastic are for ranks that trireme started; these "
            "are started again by whoever did it, with run.resume=auto");
    return launch(cli, num_ranks, rank_main, context, options, &world);
}

int64_t tri_cli_num_ranks(const tri_cli *cli)
{
    return tri_settings_num_ranks(cli->settings);
}

tr_status tri_cli_check_rank(const tri_cli *cli, int64_t rank, tr_error *err)
{
    int64_t ranks = tri_cli_num_ranks(cli);
    if (rank < ranks)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "--rank is %lld, but this layout has %lld rank%s, numbered from 0",
                    (long long)rank, (long long)ranks, ranks == 1 ? "" : "s");
}
