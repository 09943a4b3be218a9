/* trireme plan --advise: the rules of thumb of textbooks as advice on the layout of one model, on
 * one machine, with the numbers that decided.
 *
 * Layouts are tried: their programs are compiled for devices that are not here, their memory is
 * planned exactly, and the steps of those that fit are timed. Questions are walked in order; each
 * may replace the best layout so far. What comes out is data: advise_text.c and advise_json.c tell
 * it. */
#ifndef TRI_CLI_ADVISE_ADVISE_H
#define TRI_CLI_ADVISE_ADVISE_H

#include "cli/sim/sim_machine.h"

enum {
    TRI_ADVISE_TRIALS = 512,
    TRI_ADVISE_AXES = 8,
    TRI_ADVISE_QUESTIONS = 12,
    TRI_ADVISE_NUMBERS = 10,
    TRI_ADVISE_SHOWN = 12,
    TRI_ADVISE_SETTINGS = 16,
    TRI_ADVISE_ASSIGNMENT = 80
};

/* What the backward makes again. */
typedef enum tri_advised_redo {
    TRI_ADVISED_NONE,
    TRI_ADVISED_HALF, /* every second layer */
    TRI_ADVISED_FULL,
    TRI_NUM_ADVISED_REDO
} tri_advised_redo;

typedef struct tri_advised_layout {
    int64_t dp, tp, cp, ep, pp, microbatches;
    int zero;
    tri_advised_redo redo;
    bool sp;
    bool group_lanes; /* run.lanes=group */
    int64_t batch; /* rows of a step that is shorter than the run's, and not timed; 0: it is not */
} tri_advised_layout;

typedef struct tri_advised_axis {
    char name[TRI_STEP_AXIS_NAME];
    double bytes; /* of the vectors of all messages of a step */
    double exposed_s, hidden_s;
} tri_advised_axis;

/* A layout that was compiled, or that cannot be. Memory and axes are those of one rank: memory of
 * the fullest stage, axes of the stage that computes most. */
typedef struct tri_advised_trial {
    tri_advised_layout layout;
    char refused[200]; /* why it cannot be; "" when it was compiled */
    uint64_t plan_bytes, state_bytes;
    bool fits, timed;
    double seconds, mfu;
    double idle_share; /* of the step: the stage that computes most waits for others so long */
    tri_advised_axis axes[TRI_ADVISE_AXES];
    uint32_t num_axes;
} tri_advised_trial;

typedef enum tri_advised_unit {
    TRI_ADVISED_COUNT,
    TRI_ADVISED_BYTES,
    TRI_ADVISED_RATE, /* bytes a second */
    TRI_ADVISED_MS,
    TRI_ADVISED_SHARE
} tri_advised_unit;

typedef struct tri_advised_number {
    const char *key, *label; /* "plan_bytes", "the plan of a device" */
    double value;
    tri_advised_unit unit;
} tri_advised_number;

typedef struct tri_advised_question {
    const char *name, *asks, *rule;
    char answer[400];
    tri_advised_number numbers[TRI_ADVISE_NUMBERS];
    int num_numbers;
    int shown[TRI_ADVISE_SHOWN]; /* trials */
    int num_shown;
    char settings[TRI_ADVISE_SETTINGS][TRI_ADVISE_ASSIGNMENT]; /* that follow */
    int num_settings;
} tri_advised_question;

/* The model, as its programs have it. */
typedef struct tri_advised_model {
    char name[64];
    double params, active; /* active: that work on a token */
    int64_t num_layers, dim, ffn_dim, num_experts, batch, seq_len;
    bool moe;
} tri_advised_model;

typedef struct tri_advice {
    const tr_settings *given; /* as the user has them */
    tr_settings *base;        /* the same without a layout; owned */
    tri_sim_machine *machine;
    tri_advised_model model;
    int64_t devices, node; /* node: devices that the fastest links join */
    uint64_t memory_bytes, room_bytes;
    bool limited;              /* by run.memory_limit */
    tri_advised_trial *trials; /* owned */
    int num_trials, num_timed;
    tri_advised_question questions[TRI_ADVISE_QUESTIONS];
    int num_questions;
    int chosen;             /* trial; -1: nothing fits */
    int smallest;           /* the trial with the smallest plan */
    int64_t devices_needed; /* when nothing fits; 0: no number that was tried is enough */
} tri_advice;

/* Walks all questions for so many devices of a machine. Refuses settings that no layout can have;
 * that nothing fits is no failure. Settings must outlive the advice. */
tr_status tri_advice_make(const tr_settings *given, tri_sim_machine *machine, int64_t devices,
                          tri_advice *advice, tr_error *err);
void tri_advice_fini(tri_advice *advice);

/* Assignments that give a layout: "layout.tp=8", ... Returns how many. */
int tri_advised_settings(const tri_advice *advice, const tri_advised_layout *layout,
                         char settings[TRI_ADVISE_SETTINGS][TRI_ADVISE_ASSIGNMENT]);
/* Why a typed assignment does not go with advice, or TR_OK. */
tr_status tri_advise_may_set(const char *assignment, tr_error *err);

/* "dp 32, tp 8 with sp, zero 1": returns text. */
char *tri_advised_words(const tri_advised_layout *layout, char text[120]);
int64_t tri_advised_ranks(const tri_advised_layout *layout); /* devices that it takes */
const char *tri_advised_redo_value(tri_advised_redo redo);   /* of layout.recompute */

/* advise_text.c, advise_json.c. command: trireme train ..., with everything that was typed. */
tr_status tri_advice_text(const tri_advice *advice, const char *command, tri_text *text,
                          tr_error *err);
tr_status tri_advice_json(const tri_advice *advice, const char *command, tr_error *err);

/* advise_verb.c: reads the flags of trireme plan --advise, and prints. */
tr_status tri_plan_advise(const tri_cli *cli, tr_error *err);

#endif
