#include "train/log/metrics_observer.h"

#include "train/run/run.h"

static void tell(void *context, const tri_run_news *news)
{
    tr_error warning = {0};
    if (news->moment == TRI_RUN_STEP && tri_metrics_write(context, news->row, &warning) != TR_OK)
        tri_run_warn(news->run, false, "%s; the run goes on without", warning.message);
}

static void close_metrics(void *context)
{
    tri_metrics_close(context);
}

tri_observer tri_metrics_observer(tri_metrics *metrics)
{
    return (tri_observer){"metrics", tell, close_metrics, metrics};
}
