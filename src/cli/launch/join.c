#include "cli/launch/join.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/launch/job_token.h"
#include "comm/control/control.h"
#include "comm/control/token_file.h"
#include "comm/transport/mpi.h"
#include "comm/transport/tcp.h"
#include "run/status_file.h"

void tri_cli_remark(void *context, const char *line)
{
    enum { MOST = 20 };
    tri_remarks *r = context;
    if (++r->num <= MOST)
        tri_cli_error("note: %s%s", line, r->num == MOST ? " (no more of these are shown)" : "");
}

void tri_cli_print_report(const tri_text *report)
{
    size_t length = report->length;
    while (length > 0 && report->chars[length - 1] == '\n')
        length--;
    if (length > 0)
        tri_cli_error("%.*s", (int)length, report->chars);
}

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
    tri_remarks remarks;
    char *token_file; /* the token is not given: rank 0 makes it, the others read it; or NULL */
    tri_status_writer *status; /* NULL: there is none */
    tri_control_rank *ranks;   /* for it */
} hosted;

/* ---- the status file ---- */

/* As heartbeats have it: what is far away is not known better. */
static void look_at_ranks(void *context, tri_status_rank *ranks, int num_ranks)
{
    const uint64_t silent_ns = 5000000000u;
    hosted *h = context;
    int failed = tri_control_thread_look(h->thread, h->ranks, num_ranks);
    for (int r = 0; r < num_ranks; r++) {
        const tri_control_rank *rank = &h->ranks[r];
        bool gone = rank->state == TRI_RANK_FAILED || rank->state == TRI_RANK_LOST;
        bool silent = rank->heard_ns > 0 && tri_now_ns() > rank->heard_ns + silent_ns;
        ranks[r] =
            (tri_status_rank){.where = rank->where, .exit_code = -1, .own_ns = -1, .waited_ns = -1};
        snprintf(ranks[r].host, sizeof ranks[r].host, "%s", rank->host);
        ranks[r].state = rank->state == TRI_RANK_ABSENT       ? TRI_STATUS_ABSENT
                         : rank->state == TRI_RANK_ENDED      ? TRI_STATUS_DONE
                         : gone && failed >= 0 && failed != r ? TRI_STATUS_STOPPED
                         : gone                               ? TRI_STATUS_DEAD
                         : silent                             ? TRI_STATUS_SILENT
                         : rank->where.waiting_s > 0          ? TRI_STATUS_WAITING
                                                              : TRI_STATUS_RUNNING;
    }
}

static void begin_status(hosted *h, const char *run_dir, int size)
{
    h->ranks = calloc((size_t)size, sizeof *h->ranks);
    if (h->ranks)
        h->status = tri_status_begin(run_dir, size, look_at_ranks, h);
}

/* ---- the meeting point ---- */

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
                                 .log = tri_cli_remark,
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
    tri_control_thread_wait(h->thread);
    tri_status_end(h->status);
    free(h->ranks);
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
        tri_cli_print_report(&result->report);
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

int tri_join_world(const tri_cli *cli, tri_environment *w, tri_rank_main rank_main, void *context,
                   bool writes, tri_launch_result *result)
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
    if (host.thread && writes)
        begin_status(&host, dir, w->size);
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
