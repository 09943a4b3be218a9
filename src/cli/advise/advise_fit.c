/* Of numbers of devices along the axes: the level of ZeRO, the recomputation and the micro-batches
 * with which a step fits and is fastest. */
#include <string.h>

#include "cli/advise/advise_parts.h"

enum {
    MOST_LEVELS = 4,
    /* Micro-batches for each stage, which bound the bubble at a fifth and at a seventeenth. */
    LEAST_FILL = 4,
    MOST_FILL = 16,
    MOST_NEEDED = 65536
};

/* Simulated times are a few per cent off, and of layouts that are as good the simpler one is
 * better: a further axis has to bring so much, another layout of as many so much. */
static const double worth_axis = 0.95, worth = 0.99;

int64_t tri_advise_rows(const tri_advice *advice, const tri_advised_layout *layout)
{
    return (advice->model.batch + layout->dp - 1) / layout->dp;
}

static int num_axes(const tri_advised_layout *l)
{
    return (l->tp > 1) + (l->cp > 1) + (l->ep > 1) + (l->pp > 1);
}

static tri_advised_layout shaped_for(const tri_advice *advice, const tri_advised_shape *shape,
                                     int64_t devices)
{
    int64_t left = devices / (shape->tp * shape->cp * shape->pp);
    tri_advised_layout layout = {
        .tp = shape->tp, .cp = shape->cp, .ep = shape->ep, .pp = shape->pp};
    layout.dp = left < advice->model.batch ? left : advice->model.batch;
    layout.dp = layout.dp > 0 ? layout.dp : 1;
    layout.sp = shape->tp > 1;
    layout.microbatches = tri_advise_rows(advice, &layout);
    int axes = (layout.dp * layout.cp > 1) + num_axes(&layout);
    layout.group_lanes = tr_settings_given(advice->given, "run.lanes")
                             ? strcmp(tr_settings_string(advice->given, "run.lanes"), "group") == 0
                             : axes > 1;
    return layout;
}

tri_advised_layout tri_advise_shaped(const tri_advice *advice, const tri_advised_shape *shape)
{
    return shaped_for(advice, shape, advice->devices);
}

tri_advised_shape tri_advise_shape_of(const tri_advised_layout *layout)
{
    return (tri_advised_shape){layout->tp, layout->cp, layout->ep, layout->pp};
}

static bool fits(const tri_advice *advice, int trial)
{
    return trial >= 0 && !*advice->trials[trial].refused && advice->trials[trial].fits;
}

static bool faster(const tri_advice *advice, int a, int b)
{
    return a >= 0 && (b < 0 || advice->trials[a].seconds < advice->trials[b].seconds);
}

/* The same with a step of a few micro-batches, which is compiled sooner. But for the inputs of a
 * step its plan is that of many: what each keeps does not depend on how many there are. */
static tri_advised_layout shortened(const tri_advice *advice, tri_advised_layout layout)
{
    int64_t few = layout.pp > 1 ? 2 * layout.pp : 2;
    if (layout.microbatches <= few)
        return layout;
    int64_t rows = tri_advise_rows(advice, &layout) / layout.microbatches;
    layout.batch = layout.dp * few * rows;
    layout.microbatches = few;
    return layout;
}

static bool fits_short(tri_advice *advice, const tri_advised_layout *layout)
{
    tri_advised_layout few = shortened(advice, *layout);
    return fits(advice, tri_advise_try(advice, &few));
}

/* How many times micro-batches can be twice as large as before: they fit, and fill a pipeline. */
static int num_doublings(tri_advice *advice, tri_advised_layout layout)
{
    int64_t rows = tri_advise_rows(advice, &layout);
    int num = 0;
    for (int64_t of = 2; rows % of == 0; of *= 2, num++) {
        layout.microbatches = rows / of;
        if ((layout.pp > 1 && layout.microbatches < LEAST_FILL * layout.pp) ||
            !fits_short(advice, &layout))
            break;
    }
    return num;
}

/* The fastest micro-batches: the largest that fit or half of that; with a pipeline those that leave
 * a bubble worth speaking of. */
static int enlarge(tri_advice *advice, tri_advised_layout layout)
{
    int64_t rows = tri_advise_rows(advice, &layout);
    int best = -1, tried = 0;
    for (int d = num_doublings(advice, layout); d >= 0; d--, tried++) {
        layout.microbatches = rows >> d;
        bool enough = layout.pp > 1 ? layout.microbatches > MOST_FILL * layout.pp : tried == 2;
        if (enough && best >= 0)
            break;
        int trial = tri_advise_try(advice, &layout);
        if (fits(advice, trial) && faster(advice, trial, best))
            best = trial;
    }
    return best;
}

/* Levels that go with a shape. Above 1 a pipeline would sum, or gather, in every micro-batch. */
static int levels_of(const tri_advised_layout *layout)
{
    return layout->dp * layout->cp == 1 ? 1 : layout->pp > 1 ? 2 : MOST_LEVELS;
}

/* Whether a row at a time fits. Weights, gradients and optimizer state are the same whatever is
 * made again: where they were too much before, nothing is compiled. */
static bool fits_at(tri_advice *advice, tri_advised_layout layout, tri_advised_redo redo, int zero)
{
    layout = shortened(advice, layout);
    for (int t = 0; t < advice->num_trials; t++) {
        const tri_advised_trial *trial = &advice->trials[t];
        layout.redo = trial->layout.redo;
        layout.zero = trial->layout.zero;
        if (zero == layout.zero && trial->state_bytes > advice->room_bytes &&
            tri_advised_same(&trial->layout, &layout))
            return false;
    }
    layout.redo = redo;
    layout.zero = zero;
    return fits(advice, tri_advise_try(advice, &layout));
}

/* The lowest level that fits; the highest does. */
static int lowest_level(tri_advice *advice, tri_advised_layout layout, tri_advised_redo redo)
{
    int highest = levels_of(&layout) - 1;
    if (highest == 0)
        return 0;
    if (fits_at(advice, layout, redo, 1))
        return fits_at(advice, layout, redo, 0) ? 0 : 1;
    return highest > 1 && fits_at(advice, layout, redo, 2) ? 2 : highest;
}

static int fit_redo(tri_advice *advice, tri_advised_layout layout, tri_advised_redo redo)
{
    if (!fits_at(advice, layout, redo, levels_of(&layout) - 1))
        return -1;
    layout.redo = redo;
    layout.zero = lowest_level(advice, layout, redo);
    int best = enlarge(advice, layout);
    if (layout.zero == 2) { /* whose gradients are divided, but whose weights leave less room */
        layout.zero = 3;
        int other = enlarge(advice, layout);
        best = faster(advice, other, best) ? other : best;
    }
    return best;
}

tri_advised_fit tri_advise_fit(tri_advice *advice, const tri_advised_shape *shape)
{
    tri_advised_fit fit = {.best = -1, .by_redo = {-1, -1, -1}};
    tri_advised_layout layout = tri_advise_shaped(advice, shape);
    int highest = levels_of(&layout) - 1;
    if (!fits_at(advice, layout, TRI_ADVISED_FULL, highest)) {
        if (!layout.sp)
            return fit;
        layout.sp = false; /* a row of a length that does not divide, say */
        if (!fits_at(advice, layout, TRI_ADVISED_FULL, highest))
            return fit;
    }
    for (int redo = 0; redo < TRI_NUM_ADVISED_REDO; redo++) {
        if (redo == TRI_ADVISED_HALF && fit.best >= 0)
            continue; /* it lies between */
        int trial = fit.by_redo[redo] = fit_redo(advice, layout, (tri_advised_redo)redo);
        if (faster(advice, trial, fit.best))
            fit.best = trial;
        if (trial >= 0 && advice->trials[trial].layout.zero <= 1)
            break; /* more recomputation would only cost */
    }
    return fit;
}

bool tri_advise_take(tri_advice *advice, int trial)
{
    if (trial < 0 || !advice->trials[trial].timed)
        return false;
    if (advice->chosen >= 0) {
        const tri_advised_trial *to = &advice->trials[trial];
        const tri_advised_trial *from = &advice->trials[advice->chosen];
        bool further = num_axes(&to->layout) > num_axes(&from->layout);
        if (to->seconds > (further ? worth_axis : worth) * from->seconds)
            return false;
    }
    advice->chosen = trial;
    return true;
}

/* ---- how many devices would do ---- */

static bool enough(tri_advice *advice, const tri_advised_shape *shape, int64_t devices)
{
    tri_advised_layout layout = shaped_for(advice, shape, devices);
    if (shape->tp * shape->cp * shape->pp > devices)
        return false;
    layout.redo = TRI_ADVISED_FULL;
    layout.zero = levels_of(&layout) - 1;
    return fits_short(advice, &layout);
}

int64_t tri_advise_needed(tri_advice *advice)
{
    int64_t node = advice->node > 1 ? advice->node : 8;
    for (int64_t n = 2; n <= MOST_NEEDED; n *= 2) {
        int64_t inner = n < node ? n : node, stages = n / inner;
        if (n <= advice->devices)
            continue;
        if (stages > advice->model.num_layers)
            stages = advice->model.num_layers;
        const tri_advised_shape shapes[] = {
            {1, 1, 1, 1}, {inner, 1, 1, 1}, {1, inner, 1, 1}, {1, n, 1, 1}, {inner, 1, 1, stages}};
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            if (enough(advice, &shapes[s], n))
                return n;
    }
    return 0;
}
