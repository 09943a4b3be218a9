#include "train/step_stats.h"

#include <math.h>

tri_eval_stats tri_eval_stats_begin(const tri_session *session)
{
    tri_eval_stats stats = {.program = &session->programs[TRI_PROGRAM_EVAL]};
    for (size_t i = 0; i < stats.program->num_stats; i++)
        stats.joined[i] = tri_join_start(tri_stat_at(stats.program->stats[i].row)->join);
    return stats;
}

void tri_eval_stats_join(tri_eval_stats *stats, const tri_session *session)
{
    const tri_program *program = stats->program;
    for (size_t i = 0; i < program->num_stats; i++) {
        tri_id value = program->states[program->stats[i].state].latest;
        const float *own = tri_executor_memory(&session->executors[TRI_PROGRAM_EVAL], value, 0);
        tri_partial_how join = tri_stat_at(program->stats[i].row)->join;
        stats->joined[i] = tri_join(join, stats->joined[i], (double)*own);
    }
}

double tri_eval_stats_of(const tri_eval_stats *stats, size_t row)
{
    for (size_t i = 0; i < stats->program->num_stats; i++)
        if (stats->program->stats[i].row == row)
            return stats->joined[i];
    return (double)NAN;
}

size_t tri_session_num_shown(const tri_session *session)
{
    return session->programs[TRI_PROGRAM_TRAIN].num_shown + (session->loads.num > 0);
}

tri_shown tri_session_shown(const tri_session *session, size_t i)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    if (i == program->num_shown)
        return (tri_shown){"load_max", 3, (double)session->loads.most};
    const tri_stat_def *def = tri_stat_at(program->stats[program->shown[i]].row);
    const char *name = def->name;
    for (size_t l = 0; l < program->num_losses; l++)
        name = program->losses[l].sum == program->shown[i] ? program->losses[l].name : name;
    return (tri_shown){name, def->digits, (double)session->shown[i]};
}
