#include "cli/launch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/environment.h"
#include "cli/job_token.h"
#include "cli/lone_rank.h"
#include "cli/relay.h"
#include "cli/run_aside.h"
#include "cli/signals.h"
#include "cli/text.h"
#include "comm/control.h"
#include "comm/mpi.h"
#include "comm/tcp.h"
#include "comm/token_file.h"
#include "device/device.h"

/* From tri_cli_launch to a rank 0 that it forked. */
#define RELAY_VARIABLE "TRIREME_RELAY_COLUMNS"

int tri_cli_rank_fail(const tri_bootstrap *bootstrap, const tr_error *err)
{
    /* First the launcher, who then stops relaying: the message is in its report. */
    tri_control_report_failure(bootstrap, err->message);
    return tri_cli_fail(err);
}

bool tri_cli_relayed_terminal(int *columns)
{
    const char *text = getenv(RELAY_VARIABLE);
    *columns = text ? atoi(text) : 0;
    return *columns > 0;
}

/* Remarks of a control server: strangers mostly. Whoever sends many does not fill the screen. */
typedef struct remarks {
    int num;
} remarks;

static void remark(void *context, const char *line)
{
    enum { MOST = 20 };
    remarks *r = context;
    if (++r->num <= MOST)
        tri_cli_error("note: %s%s", line, r->num == MOST ? " (no more of these are shown)" : "");
}

/* ---- local processes ---- */

typedef struct local_rank {
    const tri_cli *cli;
    tri_rank_main rank_main;
    void *context;
    int columns; /* of the launcher's terminal, 0: it has none */
    const tri_launch_options *options;
    tri_relay relay;
    bool lost_told;
    remarks remarks;
} local_rank;

/* In the rank's own process. */
static int run_local_rank(const tri_bootstrap *bootstrap, void *context)
{
    const local_rank *local = context;
    char columns[16];
    snprintf(columns, sizeof columns, "%d", local->columns);
    if (bootstrap->rank == 0 && local->columns > 0)
        setenv(RELAY_VARIABLE, columns, 1);
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
    if (reason != EPIPE && tri_has_room(STDERR_FILENO))
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
    if (signal != SIGINT || !tri_has_room(STDERR_FILENO))
        return;
    fputs(local->relay.line_open ? "\n" : "", stderr);
    local->relay.line_open = false;
    tri_cli_error("Ctrl-C: the step is finished and saved; a second Ctrl-C ends at once, and saves "
                  "nothing");
}

static void local_remark(void *context, const char *line)
{
    local_rank *local = context;
    remark(&local->remarks, line);
}

static void print_report(const tri_text *report)
{
    size_t length = report->length;
    while (length > 0 && report->chars[length - 1] == '\n')
        length--;
    if (length > 0)
        tri_cli_error("%.*s", (int)length, report->chars);
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
    else if (result->report.length > 0 && (tri_has_room(STDERR_FILENO) || isatty(STDERR_FILENO)))
        print_report(&result->report);
    return status;
}

/* Hundreds of processes on a few cores take hours for a step and bring the machine to a halt before
 * anybody can stop them. */
static bool too_many_here(int num_ranks)
{
    enum { ANYWHERE = 128, PER_CORE = 8 };
    int cores = tri_device_num_cores();
    if (num_ranks <= ANYWHERE || num_ranks <= PER_CORE * cores)
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
    if (tri_terminal(stdout))
        local.columns = tri_terminal_width(stdout);
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
    return code;
}

/* ---- a rank of a world that somebody else started ---- */

/* Nobody kills a rank here that was told to stop and does not: it does so itself. */
typedef struct last_resort {
    const tri_bootstrap *bootstrap;
    _Atomic bool done;
    pthread_t thread;
} last_resort;

static void *wait_for_end(void *argument)
{
    enum { TICK_MS = 20, GRACE_MS = 1800 };
    last_resort *l = argument;
    int stopped_ms = 0;
    while (!atomic_load(&l->done)) {
        usleep(TICK_MS * 1000);
        stopped_ms += atomic_load(&l->bootstrap->stop->stopped) ? TICK_MS : 0;
        if (stopped_ms < GRACE_MS)
            continue;
        fprintf(stderr, "trireme: rank %d was told to stop and did not; it ends now: %s\n",
                l->bootstrap->rank, l->bootstrap->stop->reason);
        _exit(TRI_EXIT_FAILED);
    }
    return NULL;
}

static int run_watched(const tri_cli *cli, const tri_bootstrap *bootstrap, tri_rank_main rank_main,
                       void *context)
{
    last_resort resort = {.bootstrap = bootstrap};
    sigset_t all, old; /* signals belong to the main thread */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    bool watched = pthread_create(&resort.thread, NULL, wait_for_end, &resort) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    int code = rank_main(cli, bootstrap, context);
    atomic_store(&resort.done, true);
    if (watched)
        pthread_join(resort.thread, NULL);
    return code;
}

typedef struct hosted {
    tri_control_server *server;
    tri_control_thread *thread;
    remarks remarks;
    char *token_file; /* the token is not given: rank 0 makes it, the others read it; or NULL */
} hosted;

static tr_status host_server(hosted *h, tri_environment *w, double deadline_s, tr_error *err)
{
    if (h->token_file)
        TRI_TRY(tri_auth_token(w->token, err));
    tri_control_config config = {.address = w->address,
                                 .port = w->port,
                                 .size = w->size,
                                 .token = w->token,
                                 .deadline_s = deadline_s,
                                 .join_s = deadline_s,
                                 .lost_grace_s = 0,
                                 .log = remark,
                                 .log_context = &h->remarks};
    tr_status status = tri_control_server_create(&config, &h->server, err);
    /* An address that nobody knows is wrong for the others, too, and not to be waited for. */
    if (status == TR_ERROR_INPUT)
        return tri_advise(err, tri_fail_prefix(err, status, "MASTER_ADDR in the environment"),
                          "set it to the name or address of the machine of rank 0");
    if (status != TR_OK && !tri_address_is_loopback(w->address)) {
        /* The address may be one that only the others see this machine under. */
        config.address = "0.0.0.0";
        if (tri_control_server_create(&config, &h->server, NULL) == TR_OK)
            status = TR_OK;
    }
    if (status != TR_OK)
        return tri_fail_prefix(err, status,
                               "rank 0 cannot be the meeting point (MASTER_ADDR, MASTER_PORT)");
    if (h->token_file) /* the port is ours, and nobody is answered yet: see tri_token_file_write */
        status = tri_token_file_write(h->token_file, w->token, err);
    if (status == TR_OK)
        status = tri_control_thread_start(h->server, &h->thread, err);
    if (status != TR_OK)
        tri_control_server_destroy(h->server);
    return status;
}

/* Waits for the other ranks to end, and reports what went wrong. */
static void end_server(hosted *h, int size, tri_launch_result *result)
{
    tri_control_thread_end(h->thread);
    const tri_control_failure *failure = tri_control_server_failure(h->server);
    tri_report_rank *ranks = calloc((size_t)size, sizeof *ranks);
    if (failure->cause != TRI_CAUSE_NONE && failure->cause != TRI_CAUSE_MISSING && ranks) {
        tri_report_read(ranks, size, h->server);
        tri_report report = {
            .num_ranks = size, .ranks = ranks, .first = failure->rank, .reason = failure->reason};
        tri_text_fini(&result->report); /* which had this rank's own error, if any */
        tri_text_init(&result->report);
        tri_report_write(&result->report, &report);
        print_report(&result->report);
        result->failed_rank = failure->rank;
    }
    free(ranks);
    tri_control_server_destroy(h->server);
}

/* Ranks of mpirun without a meeting point: rank 0 opens one and tells the others through MPI. */
typedef struct meeting {
    char address[64];
    int port;
    char token[TRI_AUTH_TEXT];
    char error[300]; /* of rank 0 */
} meeting;

static tr_status open_meeting(hosted *host, const tri_mpi *mpi, tri_environment *w,
                              double deadline_s, meeting *m, tr_error *err)
{
    TRI_TRY(tri_auth_token(m->token, err));
    strcpy(w->token, m->token);
    strcpy(w->address, "127.0.0.1");
    if (mpi->world.local_size < mpi->world.size &&
        !tri_outside_address(w->address, sizeof w->address))
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "this machine has no address for the others; set MASTER_ADDR and "
                        "MASTER_PORT");
    w->port = 0;
    TRI_TRY(host_server(host, w, deadline_s, err));
    strcpy(m->address, w->address);
    m->port = tri_control_server_port(host->server);
    return TR_OK;
}

static tr_status meet_by_mpi(hosted *host, const tri_mpi *mpi, tri_environment *w,
                             double deadline_s, tr_error *err)
{
    meeting m = {.port = 0};
    tr_status status = TR_OK;
    if (w->rank == 0) {
        status = open_meeting(host, mpi, w, deadline_s, &m, err);
        if (status != TR_OK)
            snprintf(m.error, sizeof m.error, "%s", err->message);
    }
    if (mpi->plugin->broadcast(&m, sizeof m, 0) != 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "MPI cannot tell the ranks where to meet");
    if (status == TR_OK && m.error[0])
        return tri_fail(err, TR_ERROR_RUNTIME, "rank 0: %s", m.error);
    strcpy(w->address, m.address);
    strcpy(w->token, m.token);
    w->port = m.port;
    return status;
}

/* MPI is opened when the ranks must meet through it, or are to talk over it. */
static tr_status prepare_mpi(const tri_cli *cli, const tri_environment *w, tri_mpi **mpi,
                             tr_error *err)
{
    const char *transport = tri_cli_flag(cli, "transport");
    transport = transport ? transport : tr_settings_string(cli->settings, "run.transport");
    bool wanted = strcmp(transport, "mpi") == 0;
    *mpi = NULL;
    if (!w->by_mpi || (!wanted && w->address[0]))
        return TR_OK;
    TRI_TRY(tri_mpi_open(mpi, err));
    if ((*mpi)->world.size != w->size || (*mpi)->world.rank != w->rank)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s=%d in the environment, but %s sees %d; start the ranks with the mpirun "
                        "that belongs to it",
                        w->size_variable, w->size, (*mpi)->world.library, (*mpi)->world.size);
    return TR_OK;
}

/* Reports an error of this rank that comes before it has others to tell. */
static int fail_alone(const tr_error *err, tri_launch_result *result)
{
    tri_text_add(&result->report, "%s", err->message);
    return tri_cli_fail(err);
}

/* In rank 0 the result says what went wrong, for the record. */
static int join_world(const tri_cli *cli, tri_environment *w, tri_rank_main rank_main,
                      void *context, bool writes, tri_launch_result *result)
{
    tr_error err = {0};
    double deadline_s = tr_settings_float(cli->settings, "run.deadline_s");
    hosted host = {0};
    tri_mpi *mpi;
    if (prepare_mpi(cli, w, &mpi, &err) != TR_OK)
        return fail_alone(&err, result);
    const char *dir = tr_settings_string(cli->settings, "run.dir");
    tr_status status = TR_OK;
    if (!w->address[0])
        status = meet_by_mpi(&host, mpi, w, deadline_s, &err);
    else if (!w->token[0])
        status = tri_job_token_path(dir, writes, w->port, w->rank == 0, &host.token_file, &err);
    if (status == TR_OK && w->address[0] && w->rank == 0 && !host.server)
        status = host_server(&host, w, deadline_s, &err);
    if (status != TR_OK) {
        free(host.token_file);
        return fail_alone(&err, result);
    }
    tri_control_join join = {.address = w->address,
                             .port = w->port,
                             .rank = w->rank,
                             .size = w->size,
                             .token = w->token,
                             .token_file = w->token[0] ? NULL : host.token_file,
                             .join_s = deadline_s};
    tri_control_client *client;
    int code;
    status = tri_control_client_create(&join, &client, &err);
    if (host.token_file && w->rank == 0) /* all are here, or will not come */
        (void)unlink(host.token_file);
    free(host.token_file);
    if (status != TR_OK) {
        code = fail_alone(&err, result);
    } else {
        tri_bootstrap bootstrap = *tri_control_client_bootstrap(client);
        if (w->local_rank >= 0)
            bootstrap.local_rank = w->local_rank;
        bootstrap.mpi = mpi;
        code = run_watched(cli, &bootstrap, rank_main, context);
        result->step = atomic_load(&bootstrap.status->step);
        tri_control_client_destroy(client, tri_exit_is_good(code));
    }
    if (host.server)
        end_server(&host, w->size, result);
    result->code = code;
    if (tri_exit_is_good(code)) /* otherwise the others may not come to it */
        tri_mpi_close(mpi);
    return code;
}

/* A rank of others; the one that writes into run.dir keeps the record, too. */
static int join(const tri_cli *cli, tri_environment *world, tri_rank_main rank_main, void *context,
                const tri_launch_options *options, int64_t *steps)
{
    tri_launch_result result = {.failed_rank = -1, .step = -1};
    tri_text_init(&result.report);
    int code = join_world(cli, world, rank_main, context, options->writes, &result);
    *steps = steps_done(&result, !tri_exit_is_good(code));
    if (world->rank == 0 && !tri_exit_is_good(code) && options->failed)
        options->failed(options->context, &result);
    fflush(stdout);
    if (world->rank == 0 && (ferror(stdout) || ferror(stderr)) && options->writes)
        tell_lost(options, errno, "");
    tri_launch_result_fini(&result);
    return code;
}

/* For this run alone. Whoever takes it does so before any rank can have looked into it. */
static tr_status take_dir(tri_run_lock *lock, const tr_settings *settings, tr_error *err)
{
    const char *dir = tr_settings_string(settings, "run.dir");
    char *moved;
    TRI_TRY(tri_run_lock_take(lock, dir, err));
    TRI_TRY(tri_run_aside(lock, settings, &moved, err));
    if (moved)
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
    if (locks && take_dir(&lock, cli->settings, &err) != TR_OK) {
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
    if (!world.given && too_many_here(num_ranks))
        return TRI_EXIT_USAGE;
    options = options ? options : &none;
    if (world.given && world.size > 1 && world.rank == 0 && options->restarts)
        tri_cli_error(
            "note: run.restarts and run.elastic are for ranks that trireme started; these "
            "are started again by whoever did it, with run.resume=auto");
    return launch(cli, num_ranks, rank_main, context, options, &world);
}

int64_t tri_cli_num_ranks(const tri_cli *cli)
{
    return tr_settings_int(cli->settings, "layout.dp") *
           tr_settings_int(cli->settings, "layout.tp") *
           tr_settings_int(cli->settings, "layout.pp");
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
