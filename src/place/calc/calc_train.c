/* Training two layers, Out = In · Win · Wout, forward and backward: six products. A strategy is a
 * row of placements; everything else follows.
 *
 * A gathered activation is kept until its last use, as the pass does; gathered weights are given up
 * at the end of the forward, as ZeRO-3 and FSDP do. */
#include "place/calc/calc.h"

#include <stdio.h>
#include <string.h>

typedef struct strategy {
    const char *name;
    bool data, model;              /* which kinds of axes it has */
    const char *in, *w_in, *w_out; /* < the axes of the data, > those of the model */
    const char *out;
} strategy;

static const strategy strategies[] = {
    /* rows of the batch are divided; weights are everywhere */
    {"dp", true, false, "In[B@<, D]", "Win[D, F]", "Wout[F, D]", "Out[B@<, D]"},
    /* dp, with weights in pieces that are gathered when they are used (ZeRO-3) */
    {"fsdp", true, false, "In[B@<, D]", "Win[D@<, F]", "Wout[F, D@<]", "Out[B@<, D]"},
    /* the inner width is divided, and activations outside too */
    {"tp", false, true, "In[B, D@>]", "Win[D, F@>]", "Wout[F@>, D]", "Out[B, D@>]"},
    /* tp with whole activations outside */
    {"megatron", false, true, "In[B, D]", "Win[D, F@>]", "Wout[F@>, D]", "Out[B, D]"},
    /* both */
    {"fsdp+tp", true, true, "In[B@<, D@>]", "Win[D@<, F@>]", "Wout[F@>, D@<]", "Out[B@<, D@>]"},
};
enum { NUM_STRATEGIES = sizeof strategies / sizeof *strategies };

static tr_status find_strategy(const char *name, const strategy **found, tr_error *err)
{
    for (int i = 0; i < NUM_STRATEGIES; i++)
        if (strcmp(strategies[i].name, name) == 0) {
            *found = &strategies[i];
            return TR_OK;
        }
    return tri_fail(err, TR_ERROR_INPUT,
                    "\"%.30s\" is not a way to train that is known here; there are dp, fsdp, tp, "
                    "megatron and fsdp+tp",
                    name);
}

/* The axis called tp, or the last one. */
static unsigned usual_model_axes(const tri_calc *calc)
{
    for (int a = 0; a < calc->num_axes; a++)
        if (strcmp(calc->axes[a].name, "tp") == 0)
            return 1u << a;
    return 1u << (calc->num_axes - 1);
}

static tr_status choose_axes(const tri_calc *calc, const strategy *s, unsigned model_axes,
                             tri_calc_training *t, tr_error *err)
{
    unsigned all = (1u << calc->num_axes) - 1;
    if (calc->num_axes == 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s needs a mesh: --mesh x:8%s", s->name,
                        s->data && s->model ? ",y:4" : "");
    if (model_axes && !s->model)
        return tri_fail(err, TR_ERROR_INPUT, "%s has no axes of the model; leave --tp out",
                        s->name);
    if (s->data && s->model && calc->num_axes == 1)
        return tri_fail(err, TR_ERROR_INPUT, "%s needs two axes: --mesh x:8,y:4", s->name);
    if (s->model)
        t->model_axes = model_axes ? model_axes : s->data ? usual_model_axes(calc) : all;
    if (s->data)
        t->data_axes = all & ~t->model_axes;
    if (s->data && t->data_axes == 0)
        return tri_fail(err, TR_ERROR_INPUT, "--tp takes all axes of the mesh; %s needs one more",
                        s->name);
    return TR_OK;
}

/* The row's text with the axes put in. */
static tr_status place(tri_calc *calc, const tri_calc_training *t, const char *pattern,
                       tri_calc_array *array, tr_error *err)
{
    char text[512];
    size_t length = 0;
    for (const char *c = pattern; *c && length + 200 < sizeof text; c++) {
        unsigned axes = *c == '<' ? t->data_axes : *c == '>' ? t->model_axes : 0;
        if (!axes)
            text[length++] = *c;
        for (int a = 0, more = 0; a < calc->num_axes; a++)
            if (axes & 1u << a)
                length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                           more++ ? "*" : "", calc->axes[a].name);
    }
    text[length] = 0;
    return tri_calc_parse_array(calc, text, array, err);
}

/* ---- what is there already ---- */

typedef struct cache {
    tri_calc_array arrays[TRI_CALC_STEPS * 4];
    int num;
} cache;

static bool same_place(const tri_calc_array *a, const tri_calc_array *b)
{
    bool same = strcmp(a->name, b->name) == 0 && a->rank == b->rank && a->terms == b->terms;
    for (int d = 0; d < a->rank && same; d++)
        same = a->dims[d].letter == b->dims[d].letter &&
               a->dims[d].num_cuts == b->dims[d].num_cuts &&
               memcmp(a->dims[d].cuts, b->dims[d].cuts, (size_t)a->dims[d].num_cuts) == 0;
    return same;
}

static void reuse(cache *known, tri_calc_moves *moves)
{
    for (int i = 0; i < moves->num; i++) {
        tri_calc_move *move = &moves->items[i];
        for (int k = 0; k < known->num && !move->there; k++)
            move->there = same_place(&known->arrays[k], &move->after);
        if (move->there) {
            move->seconds = 0;
            move->sent = tri_amount_of(0);
        } else if (known->num < (int)(sizeof known->arrays / sizeof *known->arrays)) {
            known->arrays[known->num++] = move->after;
        }
    }
}

static void forget_weights(cache *known)
{
    int kept = 0;
    for (int k = 0; k < known->num; k++)
        if (known->arrays[k].name[0] != 'W')
            known->arrays[kept++] = known->arrays[k];
    known->num = kept;
}

static tri_calc_array renamed(const tri_calc_array *array, const char *name)
{
    tri_calc_array copy = *array;
    memset(copy.name, 0, sizeof copy.name);
    strncpy(copy.name, name, sizeof copy.name - 1);
    return copy;
}

tr_status tri_calc_train(tri_calc *calc, const char *name, unsigned model_axes,
                         tri_calc_training *t, tr_error *err)
{
    const strategy *s = NULL;
    *t = (tri_calc_training){0};
    TRI_TRY(find_strategy(name, &s, err));
    t->strategy = s->name;
    TRI_TRY(choose_axes(calc, s, model_axes, t, err));
    TRI_TRY(place(calc, t, s->in, &t->in, err));
    TRI_TRY(place(calc, t, s->w_in, &t->w_in, err));
    TRI_TRY(place(calc, t, s->w_out, &t->w_out, err));
    TRI_TRY(place(calc, t, s->out, &t->out, err));

    tri_calc_array d_out = renamed(&t->out, "dOut"), d_in = renamed(&t->in, "dIn");
    tri_calc_array dw_in = renamed(&t->w_in, "dWin"), dw_out = renamed(&t->w_out, "dWout");
    cache known = {0};
    tri_calc_step *steps = t->steps;
    /* The results between are where the product leaves them. */
    const tri_calc_array *tmp = &steps[0].product.c, *d_tmp = &steps[3].product.c;
    const struct {
        const tri_calc_array *a, *b, *target;
        const char *name;
    } rows[TRI_CALC_STEPS] = {
        {&t->in, &t->w_in, NULL, "Tmp"}, {tmp, &t->w_out, &t->out, "Out"},
        {tmp, &d_out, &dw_out, "dWout"}, {&d_out, &t->w_out, NULL, "dTmp"},
        {&t->in, d_tmp, &dw_in, "dWin"}, {d_tmp, &t->w_in, &d_in, "dIn"},
    };
    for (int i = 0; i < TRI_CALC_STEPS; i++) {
        if (i == 2)
            forget_weights(&known);
        steps[i].phase = i < 2 ? "forward" : "backward";
        TRI_TRY(tri_calc_multiply(calc, rows[i].a, rows[i].b, rows[i].target, rows[i].name,
                                  &steps[i].product, err));
        reuse(&known, &steps[i].product.before);
    }
    return TR_OK;
}
