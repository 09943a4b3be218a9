#include "train/run/run_ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "ckpt/checkpoint.h"

static tr_status resume(tri_run_ckpt *c, tr_error *err)
{
    const tri_run_ckpt_config *config = &c->config;
    if (config->resume != TRI_RESUME_NO) {
        bool must = config->resume == TRI_RESUME_MUST && !config->from[0];
        TRI_TRY(tri_checkpoint_resume(c->session, c->ranks, config->dir, must, &c->resumed, err));
    }
    c->continues = c->resumed.found;
    if (c->continues || !config->from[0])
        return TR_OK;
    tri_resumed_fini(&c->resumed);
    tr_status status = tri_checkpoint_load(c->session, c->ranks, config->from, &c->resumed, err);
    return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "ckpt.from");
}

tr_status tri_run_ckpt_check(const tri_run_ckpt_config *config, const char *device, tr_error *err)
{
    const char *from = config->from;
    bool resumes = config->resume != TRI_RESUME_NO;
    if (config->every > 0 && strcmp(device, "null") == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "ckpt.every is %" PRId64 ", but run.device is null, which computes nothing "
                        "to save; set ckpt.every=0",
                        config->every);
    char *own = tri_path_join(config->dir, "ckpt"), *found = NULL;
    tri_ckpt_steps steps = {0};
    tr_status status = own ? tri_ckpt_steps_read(&steps, own, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    bool goes_on = resumes && steps.num > 0;
    if (status == TR_OK && resumes && steps.num == 0 && steps.num_damaged > 0) {
        status = tri_checkpoint_none_whole(own, NULL, err);
    } else if (status == TR_OK && from[0] && !goes_on) {
        status = tri_checkpoint_locate(from, &found, err);
        if (status != TR_OK)
            tri_fail_prefix(err, status, "ckpt.from");
    } else if (status == TR_OK && config->resume == TRI_RESUME_MUST && !goes_on) {
        status = tri_checkpoint_none(own, err);
    }
    tri_ckpt_steps_free(&steps);
    free(found);
    free(own);
    return status;
}

static tr_status get_ready(tri_run_ckpt *c, int64_t staging_mib, tr_error *err)
{
    tri_checkpointer_config config = {.run_dir = c->config.dir,
                                      .keep = c->config.keep,
                                      .staging_bytes = (size_t)staging_mib << 20,
                                      .async = c->config.async,
                                      .patience_s = c->config.patience_s};
    return tri_checkpointer_open(c->session, c->ranks, &config, &c->checkpointer, err);
}

tr_status tri_run_ckpt_begin(tri_run_ckpt *c, const tri_run_ckpt_config *config,
                             tri_session *session, tri_ranks *ranks, tr_error *err)
{
    *c = (tri_run_ckpt){.config = *config, .session = session, .ranks = ranks};
    TRI_TRY(resume(c, err));
    if (!c->resumed.found)
        TRI_TRY(tri_session_fill(session, err));
    return config->every > 0 ? get_ready(c, config->staging_mib, err) : TR_OK;
}

static void warn(tri_run_ckpt *c, const tri_save_outcome *outcome, tr_error *warning)
{
    if (!outcome->failed)
        return;
    tri_fail(warning, TR_ERROR_RUNTIME, "the checkpoint of step %" PRId64 " was not written: %s",
             outcome->failed_step,
             outcome->why.message[0] ? outcome->why.message : "rank 0 says why");
    c->num_failed++;
    c->why = *warning;
}

bool tri_run_ckpt_due(const tri_run_ckpt *c, bool last)
{
    /* One may be there for a checkpoint that was asked for. */
    return c->config.every > 0 && (last || c->session->step % c->config.every == 0);
}

tr_status tri_run_ckpt_step(tri_run_ckpt *c, const tri_ckpt_number *numbers, size_t num_numbers,
                            bool last, tr_error *warning, tr_error *err)
{
    c->saved = false;
    if (!c->checkpointer)
        return TR_OK;
    tri_save_outcome outcome = {0};
    if (tri_run_ckpt_due(c, last)) {
        TRI_TRY(tri_checkpointer_save(c->checkpointer, numbers, num_numbers, false, &outcome, err));
        c->saved = true;
        c->stall_s = outcome.stall_s;
    } else {
        tri_checkpointer_poll(c->checkpointer, &outcome);
    }
    warn(c, &outcome, warning);
    return TR_OK;
}

tr_status tri_run_ckpt_finish(tri_run_ckpt *c, const tri_ckpt_number *numbers, size_t num_numbers,
                              tr_error *warning, tr_error *err)
{
    if (c->config.every == 0)
        return TR_OK;
    tri_save_outcome outcome = {0};
    TRI_TRY(tri_checkpointer_save(c->checkpointer, numbers, num_numbers, true, &outcome, err));
    warn(c, &outcome, warning);
    c->last_failed = outcome.missing;
    return TR_OK;
}

tr_status tri_run_ckpt_verdict(const tri_run_ckpt *c, const char *weights, tr_error *err)
{
    if (!c->last_failed)
        return TR_OK;
    char *dir = tri_path_join(c->config.dir, "ckpt");
    tri_ckpt_steps steps = {0};
    tr_error unread;
    bool any = dir && tri_ckpt_steps_read(&steps, dir, &unread) == TR_OK && steps.num > 0;
    char kept[1024] = "";
    if (weights)
        snprintf(kept, sizeof kept,
                 "; the final weights are in %s (model.from and generate take "
                 "them)",
                 weights);
    if (any)
        tri_fail(err, TR_ERROR_RUNTIME,
                 "%s; the newest checkpoint on the disk is %s/step-%" PRId64 "%s; lost is what the "
                 "optimizer knew after that: make room, and train again from there with --set "
                 "run.resume=true",
                 c->why.message, dir, steps.step[0], kept);
    else
        tri_fail(err, TR_ERROR_RUNTIME,
                 "%s, and %s holds no other: this run cannot be continued%s; make room or set "
                 "another run.dir, and train again",
                 c->why.message, dir ? dir : c->config.dir, kept);
    tri_ckpt_steps_free(&steps);
    free(dir);
    return TR_ERROR_RUNTIME;
}

uint64_t tri_run_ckpt_staging(const tri_run_ckpt *c)
{
    return c->checkpointer ? tri_checkpointer_staging(c->checkpointer) : 0;
}

tr_status tri_run_ckpt_now(tri_run_ckpt *c, const tri_ckpt_number *numbers, size_t num_numbers,
                           tr_error *err)
{
    tri_save_outcome outcome = {0};
    enum { ENOUGH_MIB = 64 }; /* the run waits anyway, and may have no memory to spare */
    if (!c->checkpointer)
        TRI_TRY(get_ready(c, ENOUGH_MIB, err));
    TRI_TRY(tri_checkpointer_save(c->checkpointer, numbers, num_numbers, true, &outcome, err));
    tr_error why = {0};
    warn(c, &outcome, &why);
    return outcome.failed ? tri_fail(err, TR_ERROR_RUNTIME, "%s", why.message) : TR_OK;
}

void tri_run_ckpt_end(tri_run_ckpt *c)
{
    tri_checkpointer_close(c->checkpointer);
    tri_resumed_fini(&c->resumed);
    *c = (tri_run_ckpt){0};
}
