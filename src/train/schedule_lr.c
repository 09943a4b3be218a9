#include "train/schedule_lr.h"

#include <math.h>
#include <string.h>

/* Down from the full rate, which step `from` still has, to the minimum at the last step. */
static double fall(const tri_lr_schedule *s, int64_t step, int64_t from, bool along_cosine)
{
    int64_t last = s->steps - 1;
    /* A warm-up that ends one step before the last leaves that one for the minimum. */
    if (from == last && s->warmup_steps > 0)
        from = last - 1;
    if (from >= last || step <= from)
        return s->lr;
    double way = step >= last ? 1 : (double)(step - from) / (double)(last - from);
    double height = 1 - way;
    if (along_cosine)
        height = 0.5 * (1 + cos(3.14159265358979323846 * way));
    if (step >= last)
        height = 0;
    return s->lr * (s->min_ratio + (1 - s->min_ratio) * height);
}

static double constant_rate(const tri_lr_schedule *s, int64_t step)
{
    (void)step;
    return s->lr;
}

static double linear_rate(const tri_lr_schedule *s, int64_t step)
{
    return fall(s, step, s->warmup_steps, false);
}

static double cosine_rate(const tri_lr_schedule *s, int64_t step)
{
    return fall(s, step, s->warmup_steps, true);
}

static double wsd_rate(const tri_lr_schedule *s, int64_t step)
{
    int64_t from = s->warmup_steps, last = s->steps - 1;
    int64_t decay = s->decay_steps > 0 ? s->decay_steps : s->steps / 5;
    if (decay < 1)
        decay = 1;
    if (last - decay > from)
        from = last - decay;
    return fall(s, step, from, false);
}

static const tri_setting min_ratio[] = {
    TRI_FLOAT_ROW("optim.min_lr_ratio", "0", 0, 1,
                  "Learning rate at the end, as a share of optim.lr",
                  "final_lr_ratio min_lr_rate final_lr_frac"),
};
static const tri_setting decay_steps[] = {
    TRI_INT_ROW("optim.decay_steps", "0", 0, TRI_BILLION,
                "Steps of the final decay (wsd); 0 is a fifth of train.steps",
                "lr_decay_iters decay_iters cooldown_steps cooldown"),
};

static void read_end(const tr_settings *settings, tri_lr_schedule *s)
{
    s->min_ratio = tr_settings_float(settings, "optim.min_lr_ratio");
}

static void read_wsd(const tr_settings *settings, tri_lr_schedule *s)
{
    read_end(settings, s);
    s->decay_steps = tr_settings_int(settings, "optim.decay_steps");
}

static const tri_lr_def kinds[] = {
    {.kind = "constant", .rate = constant_rate},
    {.kind = "linear",
     .falls = true,
     .rate = linear_rate,
     .own = {.rows = min_ratio, .num_rows = 1},
     .read = read_end},
    {.kind = "cosine",
     .falls = true,
     .rate = cosine_rate,
     .own = {.reads = "optim.min_lr_ratio"},
     .read = read_end},
    {.kind = "wsd",
     .falls = true,
     .rate = wsd_rate,
     .own = {.rows = decay_steps, .num_rows = 1, .reads = "optim.min_lr_ratio"},
     .read = read_wsd},
};
const tri_setting tri_lr_kind_row = TRI_CHOICE_ROW(
    "optim.schedule", "constant", "constant, linear, cosine, wsd",
    "Learning rate over the steps, after the warm-up", "lr_schedule scheduler lr_scheduler");

const tri_lr_def *tri_lr_def_at(size_t i)
{
    return i < sizeof kinds / sizeof *kinds ? &kinds[i] : NULL;
}

const tri_lr_def *tri_lr_def_find(const char *kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].kind, kind) == 0)
            return &kinds[i];
    return NULL;
}

double tri_lr_at(const tri_lr_schedule *s, int64_t step)
{
    if (step < s->warmup_steps)
        return s->lr * ((double)(step + 1) / (double)s->warmup_steps);
    return s->def ? s->def->rate(s, step) : s->lr;
}
