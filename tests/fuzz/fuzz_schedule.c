/* A schedule as a table. One that is complete gets its messages, is proven, simulated, drawn, and
 * written so that it reads the same. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "schedule/schedule.h"
#include "sim/sim.h"

static void write_again(const tri_schedule *schedule)
{
    tri_schedule again;
    tri_text text;
    tr_error err = {0};
    tri_text_init(&text);
    tri_schedule_write(schedule, &text);
    fuzz_require(!text.failed, "memory");
    fuzz_require(tri_schedule_parse(text.chars, text.length, "again", &again, &err) == TR_OK,
                 "a schedule that was written is read");
    fuzz_require(again.num_ranks == schedule->num_ranks && again.num_chunks == schedule->num_chunks,
                 "and is the same");
    for (uint32_t r = 0; r < again.num_ranks; r++)
        fuzz_require(again.ranks[r].count == schedule->ranks[r].count, "rank by rank");
    tri_schedule_fini(&again);
    tri_text_fini(&text);
}

static void simulate(const tri_schedule *schedule)
{
    const tri_action_costs costs = tri_sim_unit_costs();
    tri_sim sim;
    tri_text text;
    tr_error err = {0};
    if (!fuzz_fine(tri_sim_run(schedule, &costs, &sim, &err), &err))
        return;
    tri_text_init(&text);
    fuzz_fine(tri_sim_draw_svg(&sim, "input", &text, &err), &err);
    tri_text_fini(&text);
    tri_sim_fini(&sim);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    char *text = (char *)fuzz_bytes(data, num_bytes);
    tri_schedule schedule;
    tr_error err = {0};
    if (fuzz_fine(tri_schedule_parse(text, num_bytes, "input.csv", &schedule, &err), &err)) {
        write_again(&schedule);
        bool fine = schedule.has_messages || fuzz_fine(tri_schedule_lower(&schedule, &err), &err);
        if (fine && fuzz_fine(tri_schedule_check(&schedule, &err), &err))
            simulate(&schedule);
        tri_schedule_fini(&schedule);
    }
    free(text);
    return 0;
}
