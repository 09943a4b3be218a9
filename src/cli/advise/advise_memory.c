/* The questions about memory: one device, ZeRO, recomputation. */
#include "cli/advise/advise_parts.h"

static double activations_of(const tri_advised_trial *trial)
{
    return (double)trial->plan_bytes - (double)trial->state_bytes;
}

static void put_memory(tri_advised_question *q, const tri_advice *advice,
                       const tri_advised_trial *trial)
{
    tri_advise_number(q, "state_bytes", "weights, gradients, optimizer state",
                      (double)trial->state_bytes, TRI_ADVISED_BYTES);
    tri_advise_number(q, "activation_bytes", "activations and workspace of a row",
                      activations_of(trial), TRI_ADVISED_BYTES);
    tri_advise_number(q, "plan_bytes", "together", (double)trial->plan_bytes, TRI_ADVISED_BYTES);
    tri_advise_number(q, "room_bytes", "room of a device", (double)advice->room_bytes,
                      TRI_ADVISED_BYTES);
}

void tri_ask_one_device(tri_advice *advice)
{
    tri_advised_question *q =
        tri_advise_ask(advice, "one_device", "Does all of it fit on one device?",
                       "what fits on one device needs data parallelism only");
    const tri_advised_trial *alone = tri_advise_trial(advice, 0);
    put_memory(q, advice, alone);
    if (alone->fits) {
        tri_advise_answer(q, "Yes, a row at a time.");
        return;
    }
    tri_advised_layout layout = alone->layout;
    layout.redo = TRI_ADVISED_FULL;
    const tri_advised_trial *redone = tri_advise_trial(advice, tri_advise_try(advice, &layout));
    tri_advise_number(q, "recomputed_plan_bytes", "together, with full recomputation",
                      (double)redone->plan_bytes, TRI_ADVISED_BYTES);
    if (redone->fits)
        tri_advise_answer(q, "Only with recomputation.");
    else
        tri_advise_answer(q, "No: %.1f times the room, %.1f times with full recomputation.",
                          (double)alone->plan_bytes / (double)advice->room_bytes,
                          (double)redone->plan_bytes / (double)advice->room_bytes);
}

static const tri_advised_shape data_parallel = {1, 1, 1, 1};

/* The plans of a row at a time under each level, without recomputation. */
static int show_levels(tri_advice *advice, tri_advised_question *q)
{
    int lowest = -1;
    tri_advised_layout layout = tri_advise_shaped(advice, &data_parallel);
    for (layout.zero = 0; layout.zero <= 3; layout.zero++) {
        int trial = tri_advise_try(advice, &layout);
        tri_advise_show(q, trial);
        if (lowest < 0 && trial >= 0 && tri_advise_trial(advice, trial)->fits)
            lowest = layout.zero;
    }
    return lowest;
}

static void answer_zero(tri_advised_question *q, const tri_advised_trial *best, int lowest)
{
    int zero = best->layout.zero;
    if (zero == 0)
        tri_advise_answer(q,
                          "No: every device holds all of them, and data parallelism over %lld "
                          "devices is enough.",
                          (long long)best->layout.dp);
    else if (zero == lowest)
        tri_advise_answer(q, "Yes: ZeRO %d%s is the lowest level that fits.", zero,
                          zero == 3 ? " (FSDP)" : "");
    else if (lowest >= 0 && best->layout.redo == TRI_ADVISED_NONE)
        tri_advise_answer(q,
                          "Yes: ZeRO %d is the lowest level that fits, and ZeRO %d%s has room for "
                          "larger micro-batches and is faster.",
                          lowest, zero, zero == 3 ? " (FSDP)" : "");
    else
        tri_advise_answer(q, "Yes: ZeRO %d%s, with recomputation.", zero,
                          zero == 3 ? " (FSDP)" : "");
}

void tri_ask_zero(tri_advice *advice)
{
    tri_advised_question *q = tri_advise_ask(
        advice, "zero", "Must weights, gradients or optimizer state be sharded (ZeRO)?",
        "the lowest level that fits sends the least; ZeRO 3 (FSDP) gathers weights twice in every "
        "micro-batch, so it wants large ones");
    if (advice->devices > 1 && advice->model.batch > 1) {
        int lowest = show_levels(advice, q);
        tri_advised_fit fit = tri_advise_fit(advice, &data_parallel);
        tri_advise_show(q, fit.best);
        if (!tri_advise_take(advice, fit.best)) {
            tri_advise_answer(q, "Not even ZeRO 3 with full recomputation makes a row fit.");
            return;
        }
        const tri_advised_trial *best = tri_advise_trial(advice, fit.best);
        answer_zero(q, best, lowest);
        tri_advise_number(q, "rows_per_device", "rows of a device in a step",
                          (double)tri_advise_rows(advice, &best->layout), TRI_ADVISED_COUNT);
        if (best->layout.dp < advice->devices)
            tri_advise_number(q, "idle_devices", "devices without a row",
                              (double)(advice->devices - best->layout.dp), TRI_ADVISED_COUNT);
        tri_advise_follow(advice, q);
        return;
    }
    tri_advised_fit fit = tri_advise_fit(advice, &data_parallel);
    tri_advise_show(q, fit.best);
    tri_advise_take(advice, fit.best);
    tri_advise_answer(q, "%s",
                      advice->devices == 1 ? "There is one device: nothing to shard over."
                                           : "A step has one row: data parallelism has "
                                             "nothing to divide.");
}

void tri_ask_recompute(tri_advice *advice)
{
    tri_advised_question *q = tri_advise_ask(
        advice, "recompute", "Must activations be made again in the backward?",
        "tight: ZeRO 3 with recomputation, a third more arithmetic at most; offload to the host "
        "would be next, and Trireme does not have it for GPUs yet");
    tri_advised_layout layout = tri_advise_shaped(advice, &data_parallel);
    layout.zero = layout.dp > 1 ? 3 : 0;
    for (int redo = 0; redo < TRI_NUM_ADVISED_REDO; redo += TRI_ADVISED_FULL) {
        layout.redo = (tri_advised_redo)redo;
        int trial = tri_advise_try(advice, &layout);
        if (trial < 0 || *tri_advise_trial(advice, trial)->refused)
            continue;
        tri_advise_number(q, redo ? "recomputed_activation_bytes" : "activation_bytes",
                          redo ? "activations and workspace of a row, made again"
                               : "activations and workspace of a row, kept",
                          activations_of(tri_advise_trial(advice, trial)), TRI_ADVISED_BYTES);
    }
    if (advice->chosen < 0) {
        tri_advise_answer(q, "It is not enough here: a row does not fit with it either.");
        return;
    }
    tri_advised_shape shape =
        tri_advise_shape_of(&tri_advise_trial(advice, advice->chosen)->layout);
    tri_advised_fit fit = tri_advise_fit(advice, &shape);
    for (int redo = 0; redo < TRI_NUM_ADVISED_REDO; redo++)
        tri_advise_show(q, fit.by_redo[redo]);
    tri_advised_redo redo = tri_advise_trial(advice, advice->chosen)->layout.redo;
    if (redo == TRI_ADVISED_NONE)
        tri_advise_answer(q, "No: activations have room.");
    else if (fit.by_redo[TRI_ADVISED_NONE] >= 0)
        tri_advise_answer(q, "It pays: without it only smaller micro-batches fit, which cost more "
                             "than the arithmetic.");
    else
        tri_advise_answer(q, "Yes: without it a row does not fit.");
    tri_advise_follows(q, "layout.recompute", tri_advised_redo_value(redo));
}
