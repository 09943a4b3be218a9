/* Requests, as lane.c and p2p.c see them. */
#ifndef TRI_COMM_LANE_H
#define TRI_COMM_LANE_H

#include "comm/comm_internal.h"

struct tr_request {
    tr_comm *comm;
    tr_request *next;
    bool is_message, done;
    tr_group *group;
    tr_collective call;
    tri_port_message message;
    tr_status status;
    tr_error error;
    uint64_t begin_ns, end_ns; /* when it was taken up, and when it was done */
    size_t room;               /* for copies, behind this */
};

/* A thread that leaves signals to others. */
tr_status tri_thread_start(pthread_t *thread, void *(*fn)(void *), void *context, tr_error *err);

tr_status tri_port_message_wait(tr_request *request, tr_error *err);
tr_status tri_port_message_test(tr_request *request, bool *done, tr_error *err);

#endif
