/* What the files of src/comm share: the communicator, groups, and what members see of each other.
 *
 *   comm.c               the world                   ports.c  messages between members of a set
 *   group.c              groups                      p2p.c    tr_send and its kin over ports
 *   direct/direct_run.c  ticks, descriptors, choice  lane.c   started calls and requests
 *   direct/              the shared-memory paths     rounds/  collectives made of messages
 *   layout.c             which bytes go where
 *
 * A group's members advance in ticks. Before arriving at tick t a member may write its slot t % 2
 * and its descriptor t % 2; after all have arrived, everyone reads them. Invariants:
 *   1. A member arrives at t + 1 only after it has read what it needs of tick t. So whoever has
 *      passed t + 1 may overwrite what was published at t, which is what t + 2 does.
 *   2. All members make the same calls with the same sizes (descriptors are compared at the first
 *      tick of a call), so all go through the same ticks. */
#ifndef TRI_COMM_INTERNAL_H
#define TRI_COMM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"
#include "comm/ports.h"
#include "comm/transport/transport.h"
#include "comm/wait.h"

#define TRI_SLOT_BYTES  ((size_t)512 << 10)
#define TRI_NUM_CHOICES 48 /* powers of two of bytes */

/* What a member says about its call; compared by all. */
typedef struct tri_descriptor {
    uint64_t count;       /* elements of the vector or of all blocks */
    uint64_t counts_hash; /* of the block sizes; 0 when equal */
    int32_t root;
    uint8_t operation, reduction, dtype, algorithm;
    uint8_t is_private; /* an operand that peers cannot reach */
} tri_descriptor;

/* A member at a tick: that it has arrived and what it calls, in one line, so that whoever sees the
 * one has the other. */
typedef struct tri_arrival {
    _Alignas(TRI_CACHE_LINE)
        tri_eventcount tick; /* the last of its parity at which it has arrived */
    tri_descriptor call;
} tri_arrival;

/* One member's part of a group in memory that all members reach. Behind it lie the counts of both
 * parities (send and recv), the channels of its ports and the two slots. */
typedef struct tri_cell {
    tri_arrival arrivals[2]; /* by tick % 2 */
    /* Member 0's are the group's: size * ticks (of many members, who do not look at each), and
     * units of work ended since the beginning. */
    _Alignas(TRI_CACHE_LINE) tri_eventcount arrived;
    _Alignas(TRI_CACHE_LINE) tri_eventcount finished;
    _Alignas(TRI_CACHE_LINE)
        tri_eventcount bell; /* somebody did something to this member's ports */
    _Alignas(TRI_CACHE_LINE) _Atomic uint64_t busy;    /* tick in whose units it is at work, or 0 */
    _Alignas(TRI_CACHE_LINE) _Atomic uint64_t claim;   /* tick << 32 | next unit of this home */
    _Alignas(TRI_CACHE_LINE) tri_ref send[2], recv[2]; /* operands of large calls, by tick % 2 */
    uint64_t cores[TRI_CORE_WORDS];                    /* that this member may use */
} tri_cell;

/* The queue of started calls of a group and the thread that runs it; see lane.c. */
typedef struct tri_lane {
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    tr_request *first, *last;
    tr_request *spare; /* ended ones, to be used again */
    pthread_t thread;
    bool ready, started, stop, running;
} tri_lane;

struct tr_group {
    tr_comm *comm;
    char name[40];
    int size, rank;
    int *ranks; /* [size]: world ranks */
    tri_cell **cells;
    tri_ports ports;
    uint64_t tick, call;
    uint64_t finished; /* what the finished event will be when this call is over */
    void **address;    /* [2 * size]: operands of the members during a direct call */
    uint64_t *units;   /* [size]: of each home, during such a call */
    uint8_t choices[TRI_NUM_COLLS][TRI_NUM_CHOICES]; /* of choose.c; 0: not made yet */
    tri_coll_shape shape;                            /* how its members lie on machines */
    struct tri_plans *plans;  /* of rounds_run.c: rounds made ready, and scratch memory */
    tri_lane lane;            /* started calls */
    const tri_waiter *waiter; /* how the thread that runs the present call waits */
    /* Counted by whoever runs the call: one thread at a time. */
    _Atomic uint64_t bytes_sent, bytes_received, calls;
    bool broken;
    tr_error error; /* why */
    int generation; /* of groups with the same members, from 1 */
    struct tr_group *next;
};

/* Messages of the user; see p2p.c. */
typedef struct tri_p2p {
    tri_ports ports;
    int *ranks;     /* 0 .. size - 1 */
    void **members; /* [size]: bell, signals, channels of each */
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* the helper, when it has something to do */
    pthread_t helper;
    bool ready, started, stop;
    int drivers; /* callers that move messages while they wait: the helper rests */
} tri_p2p;

struct tr_comm {
    tri_bootstrap boot;
    int *machine; /* [size]: which machine each rank is on, numbered as they come; NULL: one */
    const tri_transport *transport;
    void *state;
    uint64_t cache_bytes, core_cache_bytes; /* what cores share, a core's own; 0: not told */
    int num_cores;                          /* that the ranks of this machine may use, together */
    struct tri_tuning *tuning;              /* what messages cost */
    tri_spent spent;                        /* by callers, in messages */
    tri_waiter waiter;                      /* of callers */
    tri_waiter lane_waiter;                 /* of lanes, which leave the cores to the computation */
    _Atomic int given_up;                   /* waits of this rank end: it will not go on */
    tr_group *world, *groups;               /* groups: all of them, newest first */
    tri_p2p p2p;
    _Atomic uint64_t messages_sent, bytes_sent, messages_received, bytes_received;
};

/* Of a counter with one writer at a time: no locked instruction, others may read. */
static inline void tri_count(_Atomic uint64_t *counter, uint64_t n)
{
    uint64_t old = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, old + n, memory_order_relaxed);
}

/* ---- comm.c */
/* Exchanges the references of num_bytes of fresh shared memory among ranks; at[i] is where member
 * i's lies here. The caller owns *memory (transport free) and at. */
tr_status tri_comm_exchange(tr_comm *comm, const char *key, const int *ranks, int size, int rank,
                            size_t num_bytes, void **memory, void **at, tr_error *err);
/* Sets what the rank's status says it is doing. */
void tri_comm_doing(tr_comm *comm, const char *what, const char *of, uint64_t bytes);

/* ---- group.c */
/* Published block sizes of an all_to_all: two sets, by the number of the call, since all of its
 * ticks read them. */
uint64_t *tri_cell_counts(const tr_group *group, int member, bool recv);
char *tri_cell_slot(const tr_group *group, int member, unsigned parity);
void tri_group_free(tr_group *group);

/* ---- direct_run.c */
/* Arrives at the group's next tick and waits for the others. */
tr_status tri_tick(tr_group *group, const tr_collective *call, tr_error *err);
/* The failure of a wait as a sentence; marks the group broken. */
tr_status tri_wait_failed(tr_group *group, const tr_collective *call, tri_wait_result result,
                          double seconds, const char *who, tr_error *err);
/* Writes the descriptor for the next tick; compares all members' after it. */
void tri_announce(tr_group *group, const tr_collective *call, int algorithm);
tr_status tri_compare(tr_group *group, const tr_collective *call, tr_error *err);
tr_status tri_direct_run(tr_group *group, const tr_collective *call, tr_error *err);
void tri_describe(const tri_descriptor *d, char *out, size_t capacity);
/* What a call is, but for where its operands lie. */
void tri_describe_call(const tr_group *group, const tr_collective *call, int algorithm,
                       tri_descriptor *d);
bool tri_same_call(const tri_descriptor *a, const tri_descriptor *b);
struct tri_about;
void tri_about_descriptor(const struct tri_about *about, tri_descriptor *d);
char *tri_grouped_digits(uint64_t n, char out[32]); /* 1,024 */

/* ---- direct_units.c: operands in shared memory */
tr_status tri_direct_units(tr_group *group, const tr_collective *call, tr_error *err);
uint64_t tri_claim_first(uint64_t tick);
/* ---- direct_staged.c: through the slots */
/* Bytes that a member puts into its slot at most, were the call a single chunk. */
uint64_t tri_staged_bytes(const tr_group *group, const tr_collective *call);
void tri_staged_fill(tr_group *group, const tr_collective *call, uint64_t chunk, uint64_t tick);
/* Pieces that this member provides alone, and all the rest. */
enum { TRI_OWN_PIECES = 1, TRI_OTHER_PIECES = 2 };
void tri_staged_drain(tr_group *group, const tr_collective *call, uint64_t chunk, uint64_t tick,
                      unsigned which);
tr_status tri_direct_staged(tr_group *group, const tr_collective *call, tr_error *err);

/* ---- rounds_run.c */
tr_status tri_rounds_run(tr_group *group, const tr_collective *call, const tri_algorithm *algorithm,
                         const tri_coll_shape *shape, tr_error *err);
void tri_rounds_forget(tr_group *group); /* frees what it keeps for the next calls */

/* ---- choose.c: the algorithm for a call that names none; it has the operation */
const tri_algorithm *tri_choose(tr_group *group, const tr_collective *call);
/* ---- tuning.c: prices that every communicator begins with */
struct tri_tuning;
void tri_tuning_guess(const tr_comm *comm, struct tri_tuning *tuning);

/* ---- lane.c */
tr_status tri_lane_init(tri_lane *lane, tr_error *err);
void tri_lane_fini(tri_lane *lane);

/* ---- p2p.c */
tr_status tri_p2p_init(tr_comm *comm, tr_error *err);
void tri_p2p_fini(tr_comm *comm);

#endif
