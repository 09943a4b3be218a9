/* What the two ways of running a program share. */
#ifndef TRI_RUN_EXECUTOR_PARTS_H
#define TRI_RUN_EXECUTOR_PARTS_H

#include "run/executor.h"

struct tri_ready {
    tri_call_plan plan; /* kernel NULL: communication */
    tri_kernel_args args;
    char doing[64]; /* for the rank's status */
};

struct tri_part {
    void *recording;      /* NULL: the instruction below */
    uint32_t call, instr; /* first of the part, or the only one */
    bool lands;           /* only waits for what must have ended before it */
};

/* Lanes and points of a device: those of messages to other ranks, then those of fetch and stash. */
enum { TRI_MESSAGE_LANES = 16, TRI_MESSAGE_POINTS = 64 };

/* First byte of the instance of a space that a call uses, on the device. */
unsigned char *tri_executor_space(const tri_executor *executor, const tri_call *call, size_t space);
/* The same of a space in the scratch file: where it begins there. */
uint64_t tri_executor_file_offset(const tri_executor *executor, const tri_call *call, size_t space);
/* The addresses of an instruction's operands in this call. */
void tri_executor_point(tri_executor *executor, const tri_call *call, uint32_t instr);
/* Asynchronous pipelines: makes the instance of the parameters that a call is to work on. */
tr_status tri_executor_copy_version(const tri_executor *executor, const tri_call *call,
                                    tr_error *err);
void tri_executor_publish(const tri_executor *executor, uint32_t instr);
/* Whether someone wants to know what each instruction takes. */
static inline bool tri_executor_is_timed(const tri_executor *executor)
{
    return executor->trace || executor->time_by_op || executor->time_by_instr;
}
void tri_executor_record_time(const tri_executor *executor, const tri_call *call, uint32_t instr,
                              int64_t start_ns, int64_t end_ns);

/* The message of an instruction. */
const tri_message *tri_executor_message(const tri_executor *executor, uint32_t instr);
/* Where this rank's end of a message lies in a call; NULL: it has nothing there, or in a file. */
void *tri_executor_extent(const tri_executor *executor, const tri_call *call,
                          const tri_extent *extent);
/* A message with its memory. Counts are the executor's, until the next message. One whose counts
 * are data is all of its rooms. */
tri_exchange_call tri_executor_exchange(const tri_executor *executor, const tri_message *message,
                                        const void *send, void *recv);
/* The error of a message, with its instruction. */
tr_status tri_executor_failed(const tri_executor *executor, uint32_t instr, tr_status status,
                              tr_error *err);
/* Ranks that share a message in pieces of different size, at most: as it is sent, or received; and
 * those of a message whose counts are data. */
size_t tri_executor_most_parts(const tri_program *program, bool sent);
size_t tri_executor_varying_parts(const tri_program *program);
/* Of a message whose counts are data, rows for each member and from it: only these travel. */
tr_status tri_executor_count_rows(const tri_executor *executor, const tri_message *message,
                                  const int32_t *sent, const int32_t *got, tri_exchange_call *call,
                                  tr_error *err);
/* A message, waited for; the data is in the host's memory. */
tr_status tri_executor_communicate(const tri_executor *executor, const tri_message *message,
                                   const tri_exchange_call *call, tr_error *err);
/* How many instructions from here on one call of the kernel can do: same operator, which takes
 * many. At most limit. */
uint32_t tri_executor_run_length(const tri_executor *executor, uint32_t instr, uint32_t end,
                                 uint32_t limit);

/* The scratch of an instruction's kernel that the memory plan has, or NULL. */
void *tri_executor_scratch(const tri_executor *executor, uint32_t instr, size_t *bytes);

/* executor_own.c: what a run takes without waiting for others */
void tri_executor_own_begin(tri_executor *executor);
/* All since the mark is of this kind, but for messages, copies and waits; the mark is now. */
void tri_executor_own_add(tri_executor *executor, tri_own_kind kind);
/* The end of a call or pair: sleeps until own time since the mark is that of its pace, or what it
 * was, times the brake. */
void tri_executor_end_pace(tri_executor *executor);
/* How much of the time by which earlier sleeps of a call were late still shows, when its own time,
 * that included, is compared with what was wanted by now: a later sleep that is shorter for it has
 * caught up, and what was caught up is not taken off a second time. */
int64_t tri_paced_late(int64_t late_ns, int64_t own_ns, int64_t wanted_ns);
/* The pace of a call or pair, and behind one of its instructions: each product has its share. */
void tri_executor_begin_pace(tri_executor *executor, uint32_t call);
void tri_executor_pace_instr(tri_executor *executor, const tri_instr *instr);

/* executor_flights.c: messages beside the computation */
/* Waits for what must have ended before this instruction. */
tr_status tri_executor_land(tri_executor *executor, uint32_t call, uint32_t instr, tr_error *err);
/* The next flight that is to be started before this instruction, ahead of its place; or NULL. */
const tri_flight *tri_executor_early(const tri_executor *executor, uint32_t call, uint32_t instr);
/* Whether the message that stands here was started ahead. */
bool tri_executor_reached(tri_executor *executor, uint32_t call, uint32_t instr);
/* Whether the instruction is the next flight, which is then started. */
bool tri_executor_flies(const tri_executor *executor, uint32_t call, uint32_t instr);
tr_status tri_executor_start(tri_executor *executor, uint32_t instr, const tri_exchange_call *call,
                             tr_error *err);
/* After a failure: ends what is under way. */
void tri_executor_abandon(tri_executor *executor);

/* executor_sums.c: around each instruction that is summed; on a device with a queue, enqueued */
tr_status tri_executor_sum_begin(const tri_executor *executor, uint32_t call, uint32_t instr,
                                 tr_error *err);
tr_status tri_executor_sum_end(tri_executor *executor, uint32_t call, uint32_t instr,
                               tr_error *err);

/* executor_carry.c: fetch and stash, by the lanes of the store's carrier */
/* Starts it where it has a flight, and waits for it where it stands otherwise. */
tr_status tri_executor_carry(tri_executor *executor, uint32_t call, uint32_t instr, tr_error *err);

/* executor_carry_lanes.c: the same by a device with a queue, on lanes of its own */
/* Before a run, and before anything is recorded. */
tr_status tri_executor_carry_begin(tri_executor *executor, tr_error *err);
/* Enqueues one that has no end in a file beside the queue, after all that is in it. */
tr_status tri_executor_carry_send(tri_executor *executor, uint32_t call, uint32_t instr,
                                  tr_error *err);
/* Lets the queue wait for those whose memory these instructions touch; for all of them. */
tr_status tri_executor_carry_meet(tri_executor *executor, uint32_t first, uint32_t count,
                                  tr_error *err);
tr_status tri_executor_carry_meet_all(tri_executor *executor, tr_error *err);

/* executor_stage.c: a message, from the device's memory to the host's and back. */
tr_status tri_executor_stage(tri_executor *executor, const tri_call *call, uint32_t instr,
                             tr_error *err);

/* executor_alone.c: what the host does beside a device with a queue */
/* Bytes of operands on the device, at most: those of a host instruction lie on the host. */
size_t tri_executor_host_bytes(const tri_executor *executor);
/* Whether an instruction is a part of its own: the host computes it or carries it, or the exchange
 * cannot be recorded. */
bool tri_executor_stands_alone(const tri_executor *executor, uint32_t instr);
/* Such a one, now; of a message on a lane, what follows waits for it. */
tr_status tri_executor_run_alone(tri_executor *executor, uint32_t call, uint32_t instr,
                                 tr_error *err);

/* executor_queue.c */
tr_status tri_executor_run_queue(tri_executor *executor, tr_error *err);
/* Enqueues one instruction, or a run of them that the kernel takes together; done: how many. */
tr_status tri_executor_enqueue(tri_executor *executor, uint32_t call, uint32_t first, uint32_t end,
                               uint32_t *done, tr_error *err);
/* Inputs go and outputs come as whole spaces. */
tr_status tri_executor_copy_spaces(tri_executor *executor, bool inputs, tr_error *err);
void tri_executor_forget_parts(tri_executor *executor);

/* executor_twice.c: calls of a step that runs twice, on a device with a queue */
tr_status tri_executor_run_twice(tri_executor *executor, uint32_t first, uint32_t end,
                                 tr_error *err);
void tri_executor_twice_fini(tri_executor *executor);

/* executor_lanes.c: messages that the device sends by itself. */
bool tri_executor_has_lanes(const tri_executor *executor);
/* Before a run, and before anything is recorded; first: of the runs that use lanes. */
tr_status tri_executor_lane_begin(tri_executor *executor, bool *first, tr_error *err);
/* Enqueues a message beside the queue, after all that is in it. call is its number. */
tr_status tri_executor_lane_send(tri_executor *executor, uint32_t call, uint32_t instr,
                                 tr_error *err);
/* Lets the queue wait for the messages whose memory these instructions touch, fetch and stash among
 * them or not; for all of them. */
tr_status tri_executor_message_meet(tri_executor *executor, uint32_t first, uint32_t count,
                                    tr_error *err);
tr_status tri_executor_lane_meet(tri_executor *executor, uint32_t first, uint32_t count,
                                 tr_error *err);
tr_status tri_executor_lane_meet_all(tri_executor *executor, tr_error *err);
/* Waits for the queue, looking after what is on the lanes; the queue's finish when there are none.
 */
tr_status tri_executor_finish(tri_executor *executor, tr_error *err);

#endif
