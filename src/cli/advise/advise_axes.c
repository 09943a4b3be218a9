/* The questions about further axes: tensor, pipeline, context and expert parallelism. */
#include "cli/advise/advise_parts.h"

enum { MOST_TENSOR = 16, MOST_STAGES = 16, MOST_CONTEXT = 16 };

/* From so many tokens on a row is worth dividing, even if there is something else to divide. */
enum { LONG_ROW = 16384 };

/* The layout to start from: the best so far, or the smallest plan. */
static tri_advised_shape current(const tri_advice *advice)
{
    int trial = advice->chosen >= 0 ? advice->chosen : advice->smallest;
    return tri_advise_shape_of(&tri_advise_trial(advice, trial)->layout);
}

static bool divides(const tri_advice *advice, const tri_advised_shape *shape)
{
    int64_t model = shape->tp * shape->cp * shape->pp;
    return model <= advice->devices && advice->devices % model == 0;
}

/* Fits a shape, shows its best and keeps the fastest of several. Seconds of a step; 0: it does not
 * fit. */
static double consider(tri_advice *advice, tri_advised_question *q, const tri_advised_shape *shape,
                       int *best)
{
    if (!divides(advice, shape))
        return 0;
    int trial = tri_advise_fit(advice, shape).best;
    tri_advise_show(q, trial);
    if (trial >= 0 && (*best < 0 || tri_advise_trial(advice, trial)->seconds <
                                        tri_advise_trial(advice, *best)->seconds))
        *best = trial;
    return trial >= 0 ? tri_advise_trial(advice, trial)->seconds : 0;
}

/* One more number of devices along an axis; false once more devices cost. */
static bool goes_on(tri_advice *advice, tri_advised_question *q, const tri_advised_shape *shape,
                    int *best, double *before)
{
    if (!divides(advice, shape))
        return true;
    double seconds = consider(advice, q, shape, best);
    bool cost = *before > 0 && (seconds <= 0 || seconds >= *before);
    *before = seconds;
    return !cost;
}

static void put_axis(tri_advised_question *q, const tri_advice *advice, int trial, const char *axis)
{
    if (trial < 0)
        return;
    const tri_advised_axis *a = tri_advise_axis(tri_advise_trial(advice, trial), axis);
    if (!a)
        return;
    tri_advise_number(q, "message_bytes", "fastest below: messages over this axis", a->bytes,
                      TRI_ADVISED_BYTES);
    tri_advise_number(q, "exposed_ms", "fastest below: of them not hidden", 1e3 * a->exposed_s,
                      TRI_ADVISED_MS);
    tri_advise_number(q, "hidden_ms", "fastest below: hidden behind computation", 1e3 * a->hidden_s,
                      TRI_ADVISED_MS);
}

/* The end of each of these questions: the best of what was tried against the best so far. */
static bool decide(tri_advice *advice, tri_advised_question *q, int best, const char *what)
{
    const int before = advice->chosen;
    tri_advise_show(q, before);
    if (best < 0) {
        tri_advise_answer(q, "No: no layout with %s fits.", what);
        return false;
    }
    double seconds = tri_advise_trial(advice, best)->seconds;
    if (!tri_advise_take(advice, best)) {
        double other = tri_advise_trial(advice, before)->seconds;
        tri_advise_answer(q, "No: with %s a step takes %.1f %% %s time%s.", what,
                          100 * (seconds > other ? seconds / other - 1 : 1 - seconds / other),
                          seconds > other ? "more" : "less",
                          seconds > other ? "" : ", too little to change");
        return false;
    }
    if (before < 0)
        tri_advise_answer(q, "Yes: with %s it fits.", what);
    else
        tri_advise_answer(q, "Yes: with %s a step takes %.1f %% less time.", what,
                          100 * (1 - seconds / tri_advise_trial(advice, before)->seconds));
    tri_advise_follow(advice, q);
    return true;
}

static bool skip_plain(const tri_advice *advice, tri_advised_question *q)
{
    if (advice->devices == 1) {
        tri_advise_answer(q, "There is one device.");
        return true;
    }
    if (!tri_advise_is_plain(advice))
        return false;
    const tri_advised_trial *plain = tri_advise_trial(advice, advice->chosen);
    const tri_advised_axis *dp = tri_advise_axis(plain, "dp");
    double exposed = dp ? dp->exposed_s : 0;
    tri_advise_number(q, "dp_exposed_ms", "messages of data parallelism, not hidden", 1e3 * exposed,
                      TRI_ADVISED_MS);
    tri_advise_number(q, "step_ms", "a step", 1e3 * plain->seconds, TRI_ADVISED_MS);
    tri_advise_answer(q, "No: all of it fits on a device, and there is a row for each.");
    return true;
}

void tri_ask_tensor(tri_advice *advice)
{
    tri_advised_question *q = tri_advise_ask(
        advice, "tensor", "Does tensor parallelism within a node help?",
        "tensor parallelism stays where links are fast, within a node, with sequence parallelism; "
        "its messages are not hidden");
    if (skip_plain(advice, q))
        return;
    const tri_cluster *cluster = &advice->machine->model.cluster;
    tri_advise_number(q, "node_devices", "devices of a node", (double)advice->node,
                      TRI_ADVISED_COUNT);
    tri_advise_number(q, "node_bytes_per_s", "links of a device within a node",
                      cluster->tier[0].bytes_per_s, TRI_ADVISED_RATE);
    if (advice->devices > advice->node)
        tri_advise_number(q, "network_bytes_per_s", "links of a device beyond its node",
                          cluster->tier[cluster->num_tiers - 1].bytes_per_s, TRI_ADVISED_RATE);
    int best = -1;
    double before = 0;
    for (int64_t tp = 2; tp <= MOST_TENSOR && tp <= advice->node; tp++)
        if (advice->node % tp == 0 &&
            !goes_on(advice, q, &(tri_advised_shape){tp, 1, 1, 1}, &best, &before))
            break;
    put_axis(q, advice, best, "tp");
    decide(advice, q, best, "it");
}

static void put_bubble(tri_advice *advice, tri_advised_question *q, int trial)
{
    if (trial < 0)
        return;
    const tri_advised_trial *t = tri_advise_trial(advice, trial);
    double p = (double)t->layout.pp, m = (double)t->layout.microbatches;
    tri_advise_number(q, "stages", "fastest below: stages", p, TRI_ADVISED_COUNT);
    tri_advise_number(q, "microbatches", "fastest below: micro-batches", m, TRI_ADVISED_COUNT);
    tri_advise_number(q, "bubble_share", "fastest below: bubble, (p-1)/(m+p-1)",
                      (p - 1) / (m + p - 1), TRI_ADVISED_SHARE);
    tri_advise_number(q, "interleaved_bubble_share", "the same, interleaved with two chunks",
                      (p - 1) / (2 * m + p - 1), TRI_ADVISED_SHARE);
    tri_advise_number(q, "idle_share", "fastest below: busiest stage waits, simulated",
                      t->idle_share, TRI_ADVISED_SHARE);
}

static void try_stages(tri_advice *advice, tri_advised_question *q, int64_t tp, int *best)
{
    double before = 0;
    for (int64_t pp = 2; pp <= MOST_STAGES && pp <= advice->model.num_layers; pp++)
        if (!goes_on(advice, q, &(tri_advised_shape){tp, 1, 1, pp}, best, &before))
            return;
}

void tri_ask_pipeline(tri_advice *advice)
{
    tri_advised_question *q = tri_advise_ask(
        advice, "pipeline", "Is a pipeline needed, and how many stages?",
        "pipelines go across nodes, whose links are slow, with ZeRO 1 at most and at least four "
        "micro-batches a stage for the bubble");
    if (skip_plain(advice, q))
        return;
    int64_t inner = advice->node < 8 ? advice->node : 8;
    if (advice->chosen >= 0 && advice->devices <= advice->node) {
        tri_advise_answer(q, "No: all devices share fast links, and it fits without.");
        return;
    }
    int best = -1;
    int64_t tp = current(advice).tp;
    try_stages(advice, q, tp, &best);
    if (inner > tp)
        try_stages(advice, q, inner, &best);
    put_bubble(advice, q, best);
    decide(advice, q, best, "one");
}

static void try_context(tri_advice *advice, tri_advised_question *q, const tri_advised_shape *from,
                        int *best)
{
    double before = 0;
    tri_advised_shape shape = *from;
    for (shape.cp = 2; shape.cp <= MOST_CONTEXT; shape.cp++)
        if (!goes_on(advice, q, &shape, best, &before))
            return;
}

void tri_ask_context(tri_advice *advice)
{
    tri_advised_question *q = tri_advise_ask(
        advice, "context", "Are rows so long that their tokens should be divided?",
        "long rows, whose activations do not fit or of which there are fewer than devices: "
        "context parallelism");
    const tri_advised_model *model = &advice->model;
    tri_advise_number(q, "row_tokens", "tokens of a row", (double)model->seq_len,
                      TRI_ADVISED_COUNT);
    tri_advise_number(q, "rows", "rows of a step", (double)model->batch, TRI_ADVISED_COUNT);
    tri_advise_number(q, "devices", "devices", (double)advice->devices, TRI_ADVISED_COUNT);
    if (skip_plain(advice, q))
        return;
    if (advice->chosen >= 0 && model->seq_len < LONG_ROW &&
        tri_advised_ranks(&tri_advise_trial(advice, advice->chosen)->layout) == advice->devices) {
        tri_advise_answer(q, "No: rows are short, they fit, and every device has work.");
        return;
    }
    int best = -1;
    tri_advised_shape from = current(advice);
    try_context(advice, q, &(tri_advised_shape){1, 1, 1, 1}, &best);
    if (from.tp > 1)
        try_context(advice, q, &(tri_advised_shape){from.tp, 1, 1, 1}, &best);
    if (from.pp > 1)
        try_context(advice, q, &from, &best);
    put_axis(q, advice, best, "cp");
    if (!decide(advice, q, best, "context parallelism"))
        return;
    const tri_advised_layout *l = &tri_advise_trial(advice, best)->layout;
    tri_advise_number(q, "device_row_tokens", "tokens of a row on a device",
                      (double)model->seq_len / (double)l->cp, TRI_ADVISED_COUNT);
}

void tri_ask_experts(tri_advice *advice)
{
    tri_advised_question *q =
        tri_advise_ask(advice, "experts", "Should experts lie on different devices?",
                       "a mixture of experts: expert parallelism, within a node if it can be, so "
                       "that tokens travel and experts stay");
    if (!advice->model.moe) {
        tri_advise_answer(q, "The model has none.");
        return;
    }
    tri_advise_number(q, "experts", "experts of a layer", (double)advice->model.num_experts,
                      TRI_ADVISED_COUNT);
    tri_advise_number(q, "parameters", "parameters", advice->model.params, TRI_ADVISED_COUNT);
    tri_advise_number(q, "active_parameters", "of them for a token", advice->model.active,
                      TRI_ADVISED_COUNT);
    if (skip_plain(advice, q))
        return;
    int best = -1;
    const tri_advised_shape from = current(advice);
    int64_t ep = 1;
    while (2 * ep <= advice->node && advice->model.num_experts % (2 * ep) == 0)
        ep *= 2;
    for (int64_t least = ep / 2; ep > 1 && ep >= least; ep /= 2) {
        consider(advice, q, &(tri_advised_shape){1, from.cp, ep, 1}, &best);
        if (from.tp > 1 || from.pp > 1)
            consider(advice, q, &(tri_advised_shape){from.tp, from.cp, ep, from.pp}, &best);
        for (int64_t pp = 2; pp <= 4 && advice->devices > advice->node; pp *= 2)
            consider(advice, q, &(tri_advised_shape){1, from.cp, ep, pp}, &best);
    }
    put_axis(q, advice, best, "ep");
    decide(advice, q, best, "expert parallelism");
}
