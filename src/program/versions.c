/* Versions of the parameters in an asynchronous pipeline.
 *
 * Updates happen while micro-batches are under way, and a backward must meet the weights that its
 * forward read. So a micro-batch has a version, fixed at its forward: the newest one, or (delayed,
 * 2BW) the one of two updates before the update that it contributes to. An update makes a version
 * from the newest. As long as somebody still needs that, the update works on a copy of it in a free
 * instance; otherwise in place. At the end of the step the newest version lies in instance 0, where
 * the other programs and the host look for it. */
#include <stdlib.h>
#include <string.h>

#include "program/program.h"

typedef struct versions {
    tri_program *program;
    uint32_t num;       /* of versions: updates and one */
    uint32_t *of;       /* [micro-batch] */
    uint32_t *last_use; /* [version]: the last call that reads it, 0: none */
    uint32_t *holder;   /* [instance]: the version that lies there, TRI_NONE: none */
} versions;

static bool updates(const tri_program *program, const tri_call *call)
{
    const tri_segment *segment = &program->segments[call->segment];
    return segment->action == TRI_ACTION_U && segment->chunk == TRI_UPDATE_ALL;
}

static bool ends(const tri_program *program, const tri_call *call)
{
    const tri_segment *segment = &program->segments[call->segment];
    return segment->action == TRI_ACTION_U && segment->chunk == TRI_UPDATE_END;
}

/* Which version each micro-batch has, and until when each is needed. */
static void find_uses(versions *v, bool delayed)
{
    const tri_program *program = v->program;
    uint32_t newest = 0, per_update = program->num_microbatches / (v->num - 1);
    for (uint32_t c = 0; c < program->num_calls; c++) {
        const tri_call *call = &program->calls[c];
        tri_action_kind kind = program->segments[call->segment].action;
        if (kind == TRI_ACTION_F) {
            uint32_t group = call->microbatch / per_update;
            v->of[call->microbatch] = delayed ? (group > 0 ? group - 1 : 0) : newest;
        }
        if (kind == TRI_ACTION_U)
            newest += updates(program, call);
        else if (v->of[call->microbatch] != TRI_NONE)
            v->last_use[v->of[call->microbatch]] = c;
    }
}

static uint32_t instance_of(const versions *v, uint32_t version)
{
    uint32_t i = 0;
    while (i < v->num && v->holder[i] != version)
        i++;
    return i;
}

static void set_instance(tri_program *program, tri_call *call, uint32_t instance)
{
    for (size_t s = 0; s < program->num_spaces; s++) {
        tri_space *space = &program->spaces[s];
        if (space->kind != TRI_SPACE_PARAM && space->kind != TRI_SPACE_COPY)
            continue;
        call->frame[s] = instance;
        if (instance + 1 > space->num_instances)
            space->num_instances = instance + 1;
    }
}

static void assign(versions *v)
{
    tri_program *program = v->program;
    uint32_t newest = 0;
    v->holder[0] = 0;
    for (uint32_t c = 0; c < program->num_calls; c++) {
        tri_call *call = &program->calls[c];
        for (uint32_t i = 0; i < v->num; i++) /* what nobody needs any more */
            if (v->holder[i] != TRI_NONE && v->holder[i] != newest && v->last_use[v->holder[i]] < c)
                v->holder[i] = TRI_NONE;
        uint32_t from = instance_of(v, newest), to = from;
        if (updates(program, call)) {
            if (v->last_use[newest] > c) {
                to = instance_of(v, TRI_NONE);
                call->copy_from = from;
            }
            v->holder[to] = ++newest;
        } else if (ends(program, call)) {
            to = 0;
            if (from != 0)
                call->copy_from = from;
        } else if (v->of[call->microbatch] <= newest) { /* not a receive ahead of its forward */
            to = instance_of(v, v->of[call->microbatch]);
        }
        set_instance(program, call, to);
    }
}

tr_status tri_assign_versions(tri_program *program, bool delayed, tr_error *err)
{
    versions v = {.program = program, .num = 1};
    for (size_t c = 0; c < program->num_calls; c++)
        v.num += updates(program, &program->calls[c]);
    program->num_updates = v.num - 1;
    v.of = malloc((program->num_microbatches + 1) * sizeof *v.of);
    v.last_use = calloc(v.num + 1, sizeof *v.last_use);
    v.holder = malloc((v.num + 1) * sizeof *v.holder);
    tr_status status = v.of && v.last_use && v.holder
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the timeline");
    if (status == TR_OK) {
        memset(v.of, 0xff, program->num_microbatches * sizeof *v.of);
        memset(v.holder, 0xff, (v.num + 1) * sizeof *v.holder);
        find_uses(&v, delayed);
        assign(&v);
    }
    free(v.of);
    free(v.last_use);
    free(v.holder);
    return status;
}
