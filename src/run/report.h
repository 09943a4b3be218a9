/* The death report: what people read when a run of many ranks failed. Text only, no decisions. */
#ifndef TRI_RUN_REPORT_H
#define TRI_RUN_REPORT_H

#include "base/text.h"
#include "comm/control/control.h"

/* What became of a rank, as far as is known when the report is written. */
typedef enum tri_fate {
    TRI_FATE_RUNNING, /* was still at work when the job was stopped */
    TRI_FATE_ABSENT,  /* never joined */
    TRI_FATE_ENDED,   /* had done its work */
    TRI_FATE_SIGNAL,
    TRI_FATE_EXIT,   /* with a code other than 0 */
    TRI_FATE_FAILED, /* with an error of its own, in message */
    TRI_FATE_LOST,   /* its connection broke; nobody could see why */
    TRI_FATE_SILENT, /* no heartbeat for the deadline */
    TRI_FATE_STUCK   /* heartbeats, but no progress while others waited */
} tri_fate;

typedef struct tri_report_rank {
    tri_fate fate;
    int signal;       /* SIGNAL */
    int exit_code;    /* EXIT */
    bool frozen;      /* its process is stopped (SIGSTOP, SIGTSTP or a debugger) */
    double quiet_s;   /* SILENT, STUCK: since when */
    int64_t pid;      /* 0: not known */
    const char *host; /* NULL: this one */
    const char *message;
    tri_rank_where where; /* at the moment of the failure */
} tri_report_rank;

typedef struct tri_report {
    int num_ranks;
    const tri_report_rank *ranks;
    int first;            /* rank that failed first, -1: none of them in particular */
    const char *reason;   /* used when first is -1 */
    const char *log_dir;  /* NULL: there are no logs */
    const char *log_tail; /* end of the first one's log; NULL or "": none */
} tri_report;

/* One sentence without a full stop: the rank, how it ended and where. What other ranks are told. */
void tri_report_headline(tri_text *text, const tri_report *report);
/* All of it, several lines. */
void tri_report_write(tri_text *text, const tri_report *report);

/* What a control server knows, for a world that nobody launched. Points into the server. */
void tri_report_read(tri_report_rank *ranks, int num_ranks, const tri_control_server *server);

#endif
