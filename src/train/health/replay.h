/* Replay: every so many steps forward and backward run twice, and what each instruction made is
 * compared, bit for bit, before anything is updated. A processor or a memory that computes wrong
 * now and then (the same ranks again), or always (ranks with the same weights exchange their rows),
 * is found and named, with the first instruction whose bits differ.
 *
 * What runs twice are the calls before the update. All that they write is made anew by them, sums
 * over micro-batches included, which the first one overwrites (tri_replay_check proves it); random
 * numbers depend on rows and step alone. So the second time leaves what the first did, and a run
 * with replay has the bits of one without.
 *
 * Gradients are summed over ranks within those calls. A wrong term would make the sum wrong on all
 * ranks, so sums do not say whose it was. But each instruction is compared, and the terms are what
 * the instructions before the message made: the first difference of a rank is either in what it has
 * computed itself, from operands that were equal, or in a message. The latter is nobody's fault but
 * the message's own where no rank that takes part had a difference before it
 * (replay_find.c). */
#ifndef TRI_TRAIN_HEALTH_REPLAY_H
#define TRI_TRAIN_HEALTH_REPLAY_H

#include "train/ranks.h"

enum { TRI_REPLAY_NAME = 96 };

/* The first instruction whose bits differ. */
typedef struct tri_replay_finding {
    int64_t step; /* from 1; 0: none differs */
    int32_t rank;
    int32_t other;    /* who did the same work; the rank itself where the same ranks did it again */
    int32_t sure;     /* it is the rank's fault: not known when two ranks differ from each other */
    int32_t num_more; /* ranks that differ by themselves, too */
    int64_t microbatch, instruction;
    uint64_t sums[2]; /* of what it made: in the step as it was trained, in the replay */
    char op[32], result[TRI_REPLAY_NAME];
} tri_replay_finding;

struct tri_replay {
    tri_session *session;
    tri_ranks *ranks;
    tri_replay_config config; /* its kind is SAME where there are no others with the same weights */
    uint32_t num_calls;       /* of the program, before its update */
    size_t num_sums;
    uint64_t *sums[3]; /* of the step, of the replay, and of the replay of this rank's rows */
    bool *left_out;    /* [num_instrs]: not compared; NULL: all are */
    int to, from;      /* ranks: whose rows this one does, who does this one's */
    int to_dp;         /* the place of the former along dp */
    int num_others;    /* places along dp with the same weights, this one included */
    int64_t num_replayed, num_differs; /* steps */
    tri_replay_finding found;          /* in the last of them */
    /* For tests, as in tri_executor_sums; `again`: it is the replay. */
    void (*made)(void *context, bool again, uint32_t call, uint32_t instr,
                 const tri_kernel_args *args);
    void *context;
    bool again;
};

/* Refuses devices, schedules and places that cannot run a step twice, after the session's programs
 * are compiled. */
tr_status tri_replay_check(const tri_session *session, tr_error *err);
/* Places along dp that hold the same weights as a rank: 1, none but its own. */
int tri_replay_num_others(const tri_mesh *mesh);
/* Bytes that replay will take of the heap. */
uint64_t tri_replay_table_bytes(const tri_session *session);
/* And of the memory of a device that has its own, for this training program of the session: what
 * store.sums is to have before it is allocated. */
uint64_t tri_replay_device_bytes(const tri_session *session, const tri_program *program);
/* After the session has started; collective, as is what follows. Steps of the session are replayed
 * from then on, until it is closed. */
tr_status tri_replay_open(tri_replay *replay, tri_session *session, tri_ranks *ranks,
                          tr_error *err);
void tri_replay_close(tri_replay *replay);
/* Whether the session's next step is to be replayed. */
bool tri_replay_is_due(const tri_replay *replay);
/* The step, whose inputs are filled. Fails on all ranks alike where a difference is to stop the
 * run; nothing is updated then. */
tr_status tri_replay_run(tri_replay *replay, tr_error *err);
/* "rank 1 made other bits of instruction 44 (ce_grad -> d.logits) ..."; returns out. */
char *tri_replay_text(const tri_replay_finding *found, char *out, size_t size);

/* replay_apart.c: which results have the same bits whichever of the ranks with the same weights
 * makes them of the same rows. The others depend on the rank's place, or are sums over such ranks.
 * [num_instrs], the caller frees it. */
tr_status tri_replay_list_apart(const tri_session *session, uint32_t num_calls, bool **left_out,
                                tr_error *err);
/* A number for the instructions that are compared: ranks that compare with each other have the same
 * one. */
uint64_t tri_replay_digest(const tri_program *program, uint32_t num_calls, const bool *left_out);

/* replay_find.c: all ranks have their sums; all get the same finding. Collective. */
tr_status tri_replay_find(tri_replay *replay, tr_error *err);

#endif
