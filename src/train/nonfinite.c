#include "train/nonfinite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

/* The last instruction that computes a part of a state's sum. What only moves it (a sum over ranks)
 * comes later, in an order of its own. */
static int64_t place_of(const tri_program *program, size_t state)
{
    for (size_t i = program->num_instrs; i-- > 0;) {
        const tri_instr *instr = &program->instrs[i];
        if (tri_op_get(instr->op)->communicates)
            continue;
        for (int k = 0; k < instr->num_out; k++)
            if (instr->out[k].value != TRI_NONE &&
                program->values[instr->out[k].value].state == state)
                return (int64_t)i;
    }
    return (int64_t)program->num_instrs;
}

static float element(const void *data, tri_dtype dtype, int64_t i)
{
    const uint16_t *halves = data;
    return dtype == TRI_F32    ? ((const float *)data)[i]
           : dtype == TRI_BF16 ? tri_bf16_to_f32(halves[i])
                               : tri_f16_to_f32(halves[i]);
}

/* How many are not finite; *reach grows to the largest of the others. */
static int64_t count_bad(const void *data, tri_dtype dtype, int64_t count, double *reach)
{
    int64_t num = 0;
    for (int64_t i = 0; i < count; i++) {
        double size = fabs((double)element(data, dtype, i));
        num += !isfinite(size);
        if (isfinite(size) && size > *reach)
            *reach = size;
    }
    return num;
}

static void take_in(tri_nonfinite *found, const tri_program *program, size_t s, const void *data)
{
    const tri_state *state = &program->states[s];
    const tri_value *latest = &program->values[state->latest];
    int64_t count = tri_shape_count(&latest->shape);
    double reach = found->reach;
    int64_t bad = count_bad(data, latest->dtype, count, &reach);
    if (reach > found->reach)
        found->largest = state->param;
    found->reach = reach;
    found->of_tensors++;
    found->tensors += bad > 0;
    int64_t place = bad > 0 ? place_of(program, s) : INT64_MAX;
    if (place < found->place) {
        found->place = place;
        found->param = state->param;
        found->num = bad;
        found->of = count;
    }
}

tr_status tri_nonfinite_find(const tri_session *session, tri_nonfinite *found, tr_error *err)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    *found = (tri_nonfinite){.place = INT64_MAX, .largest = -1};
    for (size_t s = 0; s < program->num_states; s++) {
        const tri_state *state = &program->states[s];
        if (state->kind != TRI_STATE_GRAD)
            continue;
        void *copy = malloc((size_t)tri_value_bytes(&program->values[state->latest]) + 1);
        if (!copy)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory to look at the gradient %s",
                            state->name);
        tr_status status =
            tri_executor_read(&session->executors[TRI_PROGRAM_TRAIN], state->latest, copy, err);
        if (status == TR_OK)
            take_in(found, program, s, copy);
        free(copy);
        TRI_TRY(status);
    }
    return TR_OK;
}

static const char *name_of(const tri_session *session, int64_t param)
{
    bool known = param >= 0 && (size_t)param < session->params.count;
    return known ? session->params.items[param].name : "no parameter";
}

void tri_nonfinite_add(const tri_session *session, const tri_nonfinite *found, int rank,
                       tr_error *err)
{
    if (!err)
        return;
    size_t used = strlen(err->message), room = sizeof err->message - used;
    char at[32] = "";
    if (rank >= 0)
        snprintf(at, sizeof at, " on rank %d", rank);
    if (found->place == INT64_MAX)
        snprintf(err->message + used, room,
                 ". No element of a gradient is infinite or not a number, but the sum of their "
                 "squares overflows; the largest, %.3g, is of %s%s",
                 found->reach, name_of(session, found->largest), at);
    else
        snprintf(err->message + used, room,
                 ". The first gradient that is not finite, in the order of the backward, is that "
                 "of %s%s: %lld of %lld elements; %lld of %lld tensors have such",
                 name_of(session, found->param), at, (long long)found->num, (long long)found->of,
                 (long long)found->tensors, (long long)found->of_tensors);
}

static const char *bad_weight(const tri_session *session)
{
    const tri_param_table *params = &session->params;
    double reach = 0;
    for (size_t i = 0; session->weights && !session->host_weights && i < params->count; i++) {
        int64_t count = tri_shape_count(&params->items[i].shape);
        if (session->weights[i] && count_bad(session->weights[i], TRI_F32, count, &reach) > 0)
            return params->items[i].name;
    }
    return NULL;
}

tr_status tri_nonfinite_fail(const tri_session *session, const char *what, tr_error *err)
{
    const char *name = bad_weight(session);
    if (name)
        return tri_fail(err, TR_ERROR_NUMERIC,
                        "%s are not finite: the parameter \"%s\" holds numbers that are not; take "
                        "an earlier checkpoint of the model, or download it again",
                        what, name);
    return tri_fail(err, TR_ERROR_NUMERIC,
                    "%s are not finite (NaN or infinite), though the weights are: compute in "
                    "another precision (precision.kind=fp32), or take an earlier checkpoint",
                    what);
}
