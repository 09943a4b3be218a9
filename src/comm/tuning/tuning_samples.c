#include "comm/tuning/tuning_samples.h"

#include "comm/comm_internal.h"

tr_status tri_take_sample(tr_group *group, tri_sampled_part part, const void *context, int times,
                          double *seconds, tr_error *err)
{
    TRI_TRY(tr_barrier(group, err));
    double begin = tri_now_s();
    for (int i = 0; i < times; i++)
        TRI_TRY(part(group, context, err));
    float mean = (float)((tri_now_s() - begin) / times), most = 0;
    TRI_TRY(tr_all_reduce(group, &mean, &most, 1, TR_F32, TR_MAX, err));
    *seconds = (double)most;
    return TR_OK;
}

static tr_status run_call(tr_group *group, const void *context, tr_error *err)
{
    return tr_collective_run(group, context, err);
}

tr_status tri_sample_call(tr_group *group, const tr_collective *call, int times, double *seconds,
                          tr_error *err)
{
    return tri_take_sample(group, run_call, call, times, seconds, err);
}
