/* The control plane: how ranks find each other, exchange addresses, and learn that one is gone.
 *
 * One server, in the launcher or in rank 0, and a client in every rank, over TCP. The server is
 * driven by its owner: it does something only inside tri_control_server_step, so that a launcher
 * can run it in its own loop. A client has a thread of its own that answers while the rank
 * computes: it sends a heartbeat with the rank's status every 200 ms and sets the stop flag when
 * told to.
 *
 * A rank and the server prove to each other that they know the job's secret token, which does not
 * travel (control_hello.h). Anyone else (another token, another protocol, half a frame, nothing for
 * 5 s) is dropped and logged, and nobody else notices. What transports need as a secret is the
 * token of the session, made of the job's and of a random number of this world.
 *
 * The job ends for everyone when a rank says that it failed, loses its connection without a
 * goodbye, is not heard from for longer than the deadline, or does not move for that long while
 * others wait for it. The first of these is the failure; what follows from it is not recorded. */
#ifndef TRI_COMM_CONTROL_CONTROL_H
#define TRI_COMM_CONTROL_CONTROL_H

#include <stdbool.h>

#include "comm/control/bootstrap.h"

enum {
    TRI_CONTROL_MAX_TOKEN = 128,
    TRI_CONTROL_MAX_RANKS = 65536,
    TRI_CONTROL_MOST_SECONDS = 1000000 /* of a deadline */
};

/* ---- where a rank is ---- */

/* A tri_rank_status at one moment, as plain numbers. */
typedef struct tri_rank_where {
    uint64_t counter;
    int64_t step;        /* from 1; -1: none yet */
    int64_t instruction; /* -1: outside the program */
    char doing[120];
    uint64_t bytes;
    int32_t peer;     /* -1: nobody */
    double waiting_s; /* 0: not waiting */
} tri_rank_where;

void tri_rank_status_init(tri_rank_status *status); /* nowhere yet */
/* May be called while the rank writes, from another thread or process. */
void tri_rank_where_read(tri_rank_where *where, const tri_rank_status *status);

/* ---- the server ---- */

typedef enum tri_control_state {
    TRI_RANK_ABSENT, /* has not joined */
    TRI_RANK_PRESENT,
    TRI_RANK_ENDED,  /* said goodbye */
    TRI_RANK_FAILED, /* said that it failed */
    TRI_RANK_LOST    /* its connection closed without either */
} tri_control_state;

/* What the server knows of a rank; times are CLOCK_MONOTONIC of the server. */
typedef struct tri_control_rank {
    tri_control_state state;
    int64_t pid;
    char host[64];
    uint64_t heard_ns; /* last message */
    uint64_t moved_ns; /* last change of its counter */
    uint64_t lost_ns;
    tri_rank_where where; /* from its last heartbeat */
    char message[1000];   /* of a rank that failed */
} tri_control_rank;

typedef enum tri_control_cause {
    TRI_CAUSE_NONE,
    TRI_CAUSE_ORDERED, /* tri_control_server_stop */
    TRI_CAUSE_FAILED,  /* the rank said so */
    TRI_CAUSE_LOST,
    TRI_CAUSE_SILENT, /* no heartbeat for the deadline */
    TRI_CAUSE_STUCK,  /* heartbeats, but no progress, and somebody waits for it */
    TRI_CAUSE_MISSING /* not all joined in time */
} tri_control_cause;

typedef struct tri_control_failure {
    tri_control_cause cause; /* NONE: no failure */
    int rank;                /* the first to fail, or -1 */
    uint64_t when_ns;
    char reason[600]; /* as every rank is told it */
} tri_control_failure;

/* One line, without its end, for whoever keeps the log. */
typedef void (*tri_control_log)(void *context, const char *line);

typedef struct tri_control_config {
    const char *address; /* to listen on; a name or a number, "127.0.0.1" */
    int port;            /* 0: any */
    int size;            /* of the world */
    const char *token;
    double deadline_s;   /* of a rank that is silent or stuck */
    double join_s;       /* until all must have joined */
    double lost_grace_s; /* between a lost connection and the failure: an owner who learns more
                            about the end of its ranks can say it better in the meantime */
    tri_control_log log; /* may be NULL */
    void *log_context;
} tri_control_config;

typedef struct tri_control_server tri_control_server;

tr_status tri_control_server_create(const tri_control_config *config, tri_control_server **server,
                                    tr_error *err);
/* Also for a child after fork: closes what it inherited and disturbs nobody. */
void tri_control_server_destroy(tri_control_server *server);
int tri_control_server_port(const tri_control_server *server);
/* Readable when a step has something to do; a step is due every 100 ms all the same. */
int tri_control_server_fd(const tri_control_server *server);
/* Waits up to timeout_ms for something to do (0: not at all), and does it. */
void tri_control_server_step(tri_control_server *server, int timeout_ms);
/* Tells every rank to stop, unless they were told already. rank is the one to blame, or -1. */
void tri_control_server_stop(tri_control_server *server, int rank, const char *reason);
bool tri_control_server_joined(const tri_control_server *server); /* all, and were welcomed */
bool tri_control_server_done(const tri_control_server *server); /* nobody left, or no use waiting */
const tri_control_rank *tri_control_server_rank(const tri_control_server *server, int rank);
const tri_control_failure *tri_control_server_failure(const tri_control_server *server);

/* The server on a thread, for a rank that hosts it. Between start and end the server belongs to the
 * thread. end waits until every rank has ended, or until 2 s after a failure; what the server
 * knows can be read afterwards. */
typedef struct tri_control_thread tri_control_thread;
tr_status tri_control_thread_start(tri_control_server *server, tri_control_thread **thread,
                                   tr_error *err);
/* What it knows of the ranks now, for another thread; returns the one to blame, or -1. */
int tri_control_thread_look(tri_control_thread *thread, tri_control_rank *ranks, int num_ranks);
/* The first half of end: afterwards the server does nothing more, and can still be looked at. */
void tri_control_thread_wait(tri_control_thread *thread);
void tri_control_thread_end(tri_control_thread *thread);

/* ---- the client ---- */

typedef struct tri_control_join {
    const char *address;
    int port;
    int rank, size;
    const char *token;
    const char *token_file;  /* instead of token, when not NULL: read once the server is there */
    double join_s;           /* until the server is there and all have joined */
    tri_rank_status *status; /* NULL: one of the client's own */
} tri_control_join;

typedef struct tri_control_client tri_control_client;

/* Returns when all ranks have joined. Retries while nobody listens. */
tr_status tri_control_client_create(const tri_control_join *join, tri_control_client **client,
                                    tr_error *err);
/* Valid until the client is destroyed. Its deadline_s is the server's and one second: a rank's own
 * wait expires only where the server, who sees all of them, found nobody to blame. */
const tri_bootstrap *tri_control_client_bootstrap(const tri_control_client *client);
/* goodbye: the rank did what it had to. Otherwise the server counts it as lost, unless it said that
 * it failed. */
void tri_control_client_destroy(tri_control_client *client, bool goodbye);

/* Reports a rank's own error, so that everyone is stopped and told; waits up to 0.2 s until it is
 * on its way. Does nothing for a bootstrap that no client made, or once the job was stopped. */
void tri_control_report_failure(const tri_bootstrap *bootstrap, const char *message);

#endif
