#include "train/log/logs_observer.h"

#include <stdlib.h>

#include "base/json.h"
#include "train/log/logs.h"
#include "train/run/run.h"

static void tell(void *context, const tri_run_news *news)
{
    tr_error warning = {0};
    bool well = true;
    if (news->moment == TRI_RUN_STEP)
        well = tri_logs_row(context, news->row, &warning);
    else if (news->moment == TRI_RUN_SAVED) /* whoever goes on from there has the lines before it */
        tri_logs_hurry(context);
    else if (news->moment == TRI_RUN_ENDS)
        well = tri_logs_end(context, news->run->failed ? 1 : 0, &warning);
    if (!well)
        tri_run_warn(news->run, false, "%s", warning.message);
}

static void close_logs(void *context)
{
    tri_logs_close(context);
}

static tr_status settings_of(const tri_run *run, json_t **object, tr_error *err)
{
    char *text = NULL;
    size_t num_bytes = 0;
    FILE *memory = open_memstream(&text, &num_bytes);
    tr_status status = memory ? tr_settings_write_json(run->config.settings, memory, err)
                              : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the settings");
    if (memory && fclose(memory) != 0 && status == TR_OK)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the settings");
    if (status == TR_OK)
        status = tri_json_load("settings", text, num_bytes, 0, object, NULL, err);
    free(text);
    return status;
}

tr_status tri_logs_observer(const tri_run *run, tri_observer *observer, tr_error *err)
{
    tri_shown stats[TRI_MAX_STEP_SHOWN];
    tri_logs_config config = {.formats = run->config.logs,
                              .dir = run->config.dir,
                              .continues = run->ckpt.continues,
                              .step = run->ckpt.resumed.step,
                              .stats = stats,
                              .num_stats = tri_session_num_shown(run->session)};
    for (size_t i = 0; i < config.num_stats; i++)
        stats[i] = tri_session_shown(run->session, i);
    TRI_TRY(settings_of(run, &config.config, err));
    tri_logs *logs;
    TRI_TRY(tri_logs_open(&config, &logs, err));
    *observer = (tri_observer){"logs", tell, close_logs, logs};
    return TR_OK;
}
