/* From settings to the configuration of a run. */
#include <string.h>

#include "base/clock.h"
#include "config/plugins.h"
#include "config/resolve.h"
#include "config/settings_internal.h"
#include "serve/run_samples.h"

static tri_resume resume_from(const tr_settings *s)
{
    const char *how = tr_settings_string(s, "run.resume");
    return strcmp(how, "true") == 0    ? TRI_RESUME_MUST
           : strcmp(how, "false") == 0 ? TRI_RESUME_NO
                                       : TRI_RESUME_IF_ANY;
}

void tri_run_config_from(const tr_settings *s, tri_run_config *config)
{
    const char *dir = tr_settings_string(s, "run.dir"),
               *tuning = tr_settings_string(s, "run.tuning");
    double minutes = tr_settings_float(s, "run.max_minutes");
    *config = (tri_run_config){
        .dir = dir,
        .settings = s,
        .model_from = tr_settings_string(s, "model.from"),
        .ranks = {.transport = tr_settings_string(s, "run.transport"),
                  .algorithm = tr_settings_string(s, "run.collective"),
                  .tuning = *tuning ? tuning : NULL,
                  .nccl_library = tr_settings_string(s, "run.nccl_library"),
                  .message_sums = tr_settings_bool(s, "run.message_sums")},
        .ckpt = {.dir = dir,
                 .resume = resume_from(s),
                 .from = tr_settings_string(s, "ckpt.from"),
                 .every = tr_settings_int(s, "ckpt.every"),
                 .keep = {.last = tr_settings_int(s, "ckpt.keep_last"),
                          .every = tr_settings_int(s, "ckpt.keep_every"),
                          .best = tr_settings_int(s, "ckpt.keep_best")},
                 .staging_mib = tr_settings_int(s, "ckpt.staging_mib"),
                 .async = tr_settings_bool(s, "ckpt.async"),
                 .patience_s = tr_settings_float(s, "ckpt.patience_s")},
        .eval_every = tr_settings_int(s, "train.eval_every"),
        .patience = tr_settings_int(s, "train.patience"),
        .min_gain = tr_settings_float(s, "train.min_gain"),
        .compare_every = tr_settings_int(s, "run.compare_every"),
        .save_weights = tr_settings_bool(s, "run.save"),
        .record = tr_settings_bool(s, "data.record"),
        .trace = tr_settings_bool(s, "run.trace"),
        .sampling = {.by = &tri_run_samples,
                     .every = tr_settings_int(s, "run.sample_every"),
                     .prompt = tr_settings_string(s, "run.sample_prompt"),
                     .num_tokens = tr_settings_int(s, "run.sample_tokens"),
                     .temperature = tr_settings_float(s, "run.sample_temperature")},
        .logs = tr_settings_string(s, "run.logs"),
        .plugins = tri_plugins_hash(s->plugins),
        .stop_at = tr_settings_int(s, "run.stop_at"),
        .ends_at_s = minutes > 0 ? tri_now_s() + 60 * minutes : 0,
    };
}
