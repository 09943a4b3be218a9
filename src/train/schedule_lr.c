#include "train/schedule_lr.h"

#include <math.h>
#include <string.h>

static const char *const KIND_NAME[TRI_NUM_LR_KINDS] = {"constant", "linear", "cosine", "wsd"};

/* The last step that still has the full rate; the way down begins there and ends at last. */
static int64_t decay_from(const tri_lr_schedule *s, int64_t last)
{
    int64_t from = s->warmup_steps;
    if (s->kind == TRI_LR_WSD) {
        int64_t decay = s->decay_steps > 0 ? s->decay_steps : s->steps / 5;
        if (decay < 1)
            decay = 1;
        if (last - decay > from)
            from = last - decay;
    }
    /* A warm-up that ends one step before the last leaves that one for the minimum. */
    return from == last && s->warmup_steps > 0 ? last - 1 : from;
}

double tri_lr_at(const tri_lr_schedule *s, int64_t step)
{
    if (step < s->warmup_steps)
        return s->lr * ((double)(step + 1) / (double)s->warmup_steps);
    int64_t last = s->steps - 1;
    int64_t from = decay_from(s, last);
    if (s->kind == TRI_LR_CONSTANT || from >= last || step <= from)
        return s->lr;
    double way = step >= last ? 1 : (double)(step - from) / (double)(last - from);
    double height = 1 - way;
    if (s->kind == TRI_LR_COSINE)
        height = 0.5 * (1 + cos(3.14159265358979323846 * way));
    if (step >= last)
        height = 0;
    return s->lr * (s->min_ratio + (1 - s->min_ratio) * height);
}

const char *tri_lr_kind_name(tri_lr_kind kind)
{
    return KIND_NAME[kind];
}

bool tri_lr_kind_parse(const char *name, tri_lr_kind *kind)
{
    for (int k = 0; k < TRI_NUM_LR_KINDS; k++) {
        if (strcmp(KIND_NAME[k], name) == 0) {
            *kind = (tri_lr_kind)k;
            return true;
        }
    }
    return false;
}
