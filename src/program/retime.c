#include "program/retime.h"

#include <stdlib.h>
#include <string.h>

#include "program/messages.h"

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the program of another stage");
}

uint32_t tri_stage_chunk(const tri_schedule *schedule, uint32_t stage, uint32_t n)
{
    for (uint32_t c = 0; c < schedule->num_chunks; c++)
        if (schedule->home[c] == stage && n-- == 0)
            return c;
    return TRI_NONE;
}

/* The chunk of the other stage that one of this stage corresponds to. */
static uint32_t other_chunk(const tri_retime *how, uint32_t chunk)
{
    uint32_t n = 0;
    while (tri_stage_chunk(how->schedule, how->from, n) != chunk)
        n++;
    return tri_stage_chunk(how->schedule, how->to, n);
}

static void *copy_of(const void *items, size_t num, size_t size)
{
    void *copy = malloc((num + 1) * size);
    if (copy && num > 0)
        memcpy(copy, items, num * size);
    return copy;
}

static tr_status copy_tables(const tri_program *from, const tri_retime *how, tri_program *to,
                             tr_error *err)
{
    to->segments = copy_of(from->segments, from->num_segments, sizeof *from->segments);
    to->spaces = copy_of(from->spaces, from->num_spaces, sizeof *from->spaces);
    to->messages = copy_of(from->messages, from->num_messages, sizeof *from->messages);
    to->groups = copy_of(from->groups, from->num_groups, sizeof *from->groups);
    if (!to->segments || !to->spaces || !to->messages || !to->groups)
        return no_memory(err);
    for (size_t s = 0; s < to->num_segments && how->schedule; s++)
        if (to->segments[s].action != TRI_ACTION_U)
            to->segments[s].chunk = (int)other_chunk(how, (uint32_t)to->segments[s].chunk);
    for (size_t s = 0; s < to->num_spaces; s++)
        if (to->spaces[s].kind == TRI_SPACE_FRAME)
            to->spaces[s].num_instances = 0; /* counted again */
    return TR_OK;
}

/* Groups along the pipeline stay, and this rank has another place in them. Others are those of
 * another stage. */
static void move_group(tri_rank_group *group, const tri_retime *how)
{
    uint32_t below = 1;
    for (uint32_t l = 0; l < group->num_levels; l++) {
        if (group->level[l].stride >= how->stride) {
            group->own += (how->to - how->from) * below;
            return;
        }
        below *= group->level[l].size;
    }
    group->first += (how->to - how->from) * how->stride;
}

/* The stage that a border message goes to or comes from. */
static uint32_t peer_of(const tri_retime *how, const tri_segment *segment)
{
    uint32_t chunk = (uint32_t)segment->chunk;
    bool after = segment->action == TRI_ACTION_SEND_F || segment->action == TRI_ACTION_RECV_B;
    return how->schedule->home[after ? chunk + 1 : chunk - 1];
}

static void move_messages(const tri_retime *how, tri_program *to)
{
    for (size_t m = 0; m < to->num_messages; m++)
        to->messages[m].flight = 0;
    if (!how->schedule)
        return;
    for (size_t g = 0; g < to->num_groups; g++)
        move_group(&to->groups[g], how);
    for (size_t s = 0; s < to->num_segments; s++) {
        const tri_segment *segment = &to->segments[s];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            uint32_t m = to->instrs[i].message;
            if (m == TRI_NONE)
                continue;
            if (to->messages[m].border && tri_message_pairwise(&to->messages[m]))
                to->messages[m].peer = peer_of(how, segment);
        }
    }
}

tr_status tri_program_retime(const tri_program *from, const tri_retime *how, tri_program *to,
                             tr_error *err)
{
    *to = *from;
    to->segments = NULL;
    to->spaces = NULL;
    to->messages = NULL;
    to->groups = NULL;
    to->calls = NULL;
    to->frames = NULL;
    to->flights = NULL;
    to->landings = to->early = NULL;
    to->num_flights = to->num_early = to->num_calls = 0;
    tri_arena_init(&to->arena);
    tr_status status = copy_tables(from, how, to, err);
    if (status == TR_OK) {
        move_messages(how, to);
        status = tri_lay_calls(to, how->actions, how->num_actions, false, err);
    }
    if (status == TR_OK)
        status = tri_settle_calls(to, err);
    if (status == TR_OK && how->overlap)
        status = tri_plan_overlap(to, how->overlap, err);
    if (status != TR_OK)
        tri_program_retime_fini(to);
    return status;
}

void tri_program_retime_fini(tri_program *program)
{
    free(program->segments);
    free(program->spaces);
    free(program->messages);
    free(program->groups);
    free(program->calls);
    free(program->frames);
    free(program->flights);
    free(program->landings);
    free(program->early);
    *program = (tri_program){0};
}
