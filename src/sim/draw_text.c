/* A simulated schedule as lines of characters: a column or a few for each unit of time. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

static const tri_schedule *schedule_of(const tri_sim *sim)
{
    return sim->index.schedule;
}

/* The shortest action is the unit of time. */
static double find_unit(const tri_sim *sim)
{
    double unit = INFINITY;
    const tri_schedule *s = schedule_of(sim);
    for (uint32_t r = 0; r < s->num_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].count; i++) {
            uint32_t id = sim->index.first[r] + (uint32_t)i;
            double length = sim->end[id] - sim->start[id];
            if (tri_action_computes(s->ranks[r].actions[i].kind) && length > 1e-9 && length < unit)
                unit = length;
        }
    return isfinite(unit) ? unit : 1;
}

static uint32_t num_digits(uint32_t number)
{
    uint32_t digits = 1;
    for (; number >= 10; number /= 10)
        digits++;
    return digits;
}

/* The lowest chunk of a rank is written in capitals. */
static uint32_t lowest_chunk(const tri_schedule *s, uint32_t rank)
{
    uint32_t lowest = UINT32_MAX;
    for (size_t i = 0; i < s->ranks[rank].count; i++)
        if (s->ranks[rank].actions[i].chunk < lowest)
            lowest = s->ranks[rank].actions[i].chunk;
    return lowest;
}

/* Writes one action into its columns: "F3", and dashes for as long as it lasts. With one column for
 * a unit, the letter alone. */
static void draw_action(const tri_action *a, bool first_chunk, char *line, size_t from, size_t to,
                        uint32_t width, bool spaced)
{
    char name[16];
    int letter = *tri_action_name(a->kind);
    snprintf(name, sizeof name, "%c%u", first_chunk ? letter : tolower(letter), a->microbatch);
    size_t length = strlen(name), last = to - (spaced ? 1 : 0);
    for (size_t i = from; i < last; i++)
        line[i] = width == 1 ? *name : i - from < length ? name[i - from] : '-';
}

static void draw_rank(const tri_sim *sim, uint32_t rank, double unit, uint32_t width, bool spaced,
                      char *line, size_t columns)
{
    const tri_schedule *s = schedule_of(sim);
    uint32_t lowest = lowest_chunk(s, rank);
    for (size_t i = 0; i < columns; i++)
        line[i] = i % width == 0 ? '.' : ' ';
    line[columns] = '\0';
    for (size_t i = 0; i < s->ranks[rank].count; i++) {
        const tri_action *a = &s->ranks[rank].actions[i];
        uint32_t id = sim->index.first[rank] + (uint32_t)i;
        if (!tri_action_computes(a->kind) || sim->end[id] - sim->start[id] < 1e-9)
            continue;
        size_t from = (size_t)lround(sim->start[id] / unit) * width;
        size_t to = (size_t)lround(sim->end[id] / unit) * width;
        if (to > columns)
            to = columns;
        if (from < to)
            draw_action(a, a->chunk == lowest, line, from, to, width, spaced);
    }
}

bool tri_sim_draw_text(const tri_sim *sim, uint32_t columns, tri_text *text, uint32_t *needed)
{
    const tri_schedule *s = schedule_of(sim);
    enum { LABEL = 9 };
    double unit = find_unit(sim), units = ceil(sim->makespan / unit - 1e-9);
    uint32_t name = 1 + num_digits(s->num_microbatches - 1);
    uint32_t room = columns > LABEL ? columns - LABEL : 0;
    bool spaced = units * (name + 1) <= room;
    uint32_t width = spaced ? name + 1 : units * name <= room ? name : 1;
    *needed = LABEL + (uint32_t)fmin(units, 1e8);
    if (units * width > room)
        return false;
    size_t length = (size_t)units * width;
    char *line = malloc(length + 1);
    if (!line) {
        text->failed = true;
        return true;
    }
    for (uint32_t r = 0; r < s->num_ranks; r++) {
        draw_rank(sim, r, unit, width, spaced, line, length);
        while (length > 0 && line[length - 1] == ' ')
            line[--length] = '\0';
        tri_text_add(text, "rank %-3u %s\n", r, line);
        length = (size_t)units * width;
    }
    free(line);
    return true;
}
