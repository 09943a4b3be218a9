/* The classic exercise: four processes sleep for a random time, every even rank sends a random
 * number to the next rank, and an all-reduce checks that what was sent is what was received.
 * Build: cc ring.c $(pkg-config --cflags --libs trireme) */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <trireme/comm.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        tr_status status_ = (call);                                                                \
        if (status_ != TR_OK)                                                                      \
            return status_;                                                                        \
    } while (0)

/* A number of its own for each rank and run: xorshift over clock and rank. */
static uint32_t random_number(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Prints when it is this rank's turn: the rank before signals the next. */
static tr_status print_in_order(tr_comm *comm, const char *line, tr_error *err)
{
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    if (rank > 0)
        TRY(tr_wait_signal(comm, rank - 1, 0, 1, err));
    fputs(line, stdout);
    fflush(stdout);
    if (rank + 1 < size)
        TRY(tr_signal(comm, rank + 1, 0, 1, err));
    return TR_OK;
}

static tr_status exercise(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    uint32_t state = (uint32_t)time(NULL) * 2654435761u + (uint32_t)rank * 40503u + 1;
    unsigned sleep_ms = random_number(&state) % 50;
    usleep(sleep_ms * 1000);

    char line[120];
    int64_t balance = 0; /* sent minus received: zero in the sum over all ranks */
    int next = (rank + 1) % size;
    if (rank % 2 == 0 && next != rank) {
        int64_t number = random_number(&state) % 1000;
        TRY(tr_send(comm, next, &number, sizeof number, err));
        balance = number;
        snprintf(line, sizeof line, "rank %d slept %2u ms and sent %3d to rank %d\n", rank,
                 sleep_ms, (int)number, next);
    } else if (rank % 2 == 1) {
        int64_t number = 0;
        TRY(tr_recv(comm, rank - 1, &number, sizeof number, err));
        balance = -number;
        snprintf(line, sizeof line, "rank %d slept %2u ms and received %3d from rank %d\n", rank,
                 sleep_ms, (int)number, rank - 1);
    }
    TRY(print_in_order(comm, line, err));

    int64_t sum = -1;
    TRY(tr_all_reduce(tr_comm_world(comm), &balance, &sum, 1, TR_I64, TR_SUM, err));
    if (rank == 0)
        printf("sent minus received, over all ranks: %d\n", (int)sum);
    if (sum != 0) {
        snprintf(err->message, sizeof err->message, "a number was lost on the way");
        return TR_ERROR_RUNTIME;
    }
    return TR_OK;
}

int main(void)
{
    tr_error err = {0};
    if (tr_comm_spawn(4, NULL, exercise, NULL, &err) != TR_OK) {
        fprintf(stderr, "ring: %s\n", err.message);
        return 1;
    }
    return 0;
}
