#include "cli/run/train_ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "ckpt/checkpoint.h"

static tr_status resume(tri_train_ckpt *c, const tr_settings *settings, tri_session *session,
                        tri_ranks *ranks, tr_error *err)
{
    const char *how = tr_settings_string(settings, "run.resume");
    const char *run_dir = tr_settings_string(settings, "run.dir");
    const char *from = tr_settings_string(settings, "ckpt.from");
    if (strcmp(how, "false") != 0) {
        bool must = strcmp(how, "true") == 0 && !from[0];
        TRI_TRY(tri_checkpoint_resume(session, ranks, run_dir, must, &c->resumed, err));
    }
    c->continues = c->resumed.found;
    if (c->continues || !from[0])
        return TR_OK;
    tri_resumed_fini(&c->resumed);
    tr_status status = tri_checkpoint_load(session, ranks, from, &c->resumed, err);
    return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "ckpt.from");
}

tr_status tri_train_ckpt_check(const tr_settings *settings, tr_error *err)
{
    const char *how = tr_settings_string(settings, "run.resume");
    const char *from = tr_settings_string(settings, "ckpt.from");
    const char *run_dir = tr_settings_string(settings, "run.dir");
    if (tr_settings_int(settings, "ckpt.every") > 0 &&
        strcmp(tr_settings_string(settings, "run.device"), "null") == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "ckpt.every is %" PRId64 ", but run.device is null, which computes nothing "
                        "to save; set ckpt.every=0",
                        tr_settings_int(settings, "ckpt.every"));
    char *own = tri_path_join(run_dir, "ckpt"), *found = NULL;
    tri_ckpt_steps steps = {0};
    tr_status status = own ? tri_ckpt_steps_read(&steps, own, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    bool goes_on = strcmp(how, "false") != 0 && steps.num > 0;
    if (status == TR_OK && strcmp(how, "false") != 0 && steps.num == 0 && steps.num_damaged > 0) {
        status = tri_checkpoint_none_whole(own, NULL, err);
    } else if (status == TR_OK && from[0] && !goes_on) {
        status = tri_checkpoint_locate(from, &found, err);
        if (status != TR_OK)
            tri_fail_prefix(err, status, "ckpt.from");
    } else if (status == TR_OK && strcmp(how, "true") == 0 && !goes_on) {
        status = tri_checkpoint_none(own, err);
    }
    tri_ckpt_steps_free(&steps);
    free(found);
    free(own);
    return status;
}

static tr_status get_ready(tri_train_ckpt *c, int64_t staging_mib, tr_error *err)
{
    const tr_settings *settings = c->settings;
    tri_checkpointer_config config = {.run_dir = tr_settings_string(settings, "run.dir"),
                                      .keep_last = tr_settings_int(settings, "ckpt.keep_last"),
                                      .keep_every = tr_settings_int(settings, "ckpt.keep_every"),
                                      .staging_bytes = (size_t)staging_mib << 20,
                                      .async = tr_settings_bool(settings, "ckpt.async"),
                                      .patience_s = tr_settings_float(settings, "ckpt.patience_s")};
    return tri_checkpointer_open(c->session, c->ranks, &config, &c->checkpointer, err);
}

tr_status tri_train_ckpt_begin(tri_train_ckpt *c, const tr_settings *settings, tri_session *session,
                               tri_ranks *ranks, tr_error *err)
{
    *c = (tri_train_ckpt){.settings = settings,
                          .session = session,
                          .ranks = ranks,
                          .every = tr_settings_int(settings, "ckpt.every")};
    TRI_TRY(resume(c, settings, session, ranks, err));
    if (!c->resumed.found)
        TRI_TRY(tri_session_fill(session, err));
    return c->every > 0 ? get_ready(c, tr_settings_int(settings, "ckpt.staging_mib"), err) : TR_OK;
}

void tri_train_ckpt_print(const tri_train_ckpt *c)
{
    for (const char *at = c->resumed.note; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        printf("note    a damaged checkpoint was %.*s\n", (int)strcspn(at, "\n"), at);
    }
    if (c->resumed.found)
        tri_text_print(stdout, "resume  %s: %" PRId64 " of %" PRId64 " steps are done\n",
                       c->resumed.path, c->resumed.step, c->session->num_steps);
    if (c->resumed.found && c->resumed.encoded_from > 0)
        printf("note    moments were encoded in 8 bits anew, since the checkpoint was made with "
               "layout.tp=%d\n",
               c->resumed.encoded_from);
    else if (c->resumed.found && c->resumed.encoded_from == 0)
        printf("note    moments were encoded in 8 bits; the checkpoint was made with "
               "optim.moments=fp32\n");
}

static void warn(tri_train_ckpt *c, const tri_save_outcome *outcome, tr_error *warning)
{
    if (!outcome->failed)
        return;
    tri_fail(warning, TR_ERROR_RUNTIME, "the checkpoint of step %" PRId64 " was not written: %s",
             outcome->failed_step,
             outcome->why.message[0] ? outcome->why.message : "rank 0 says why");
    c->num_failed++;
    c->why = *warning;
}

bool tri_train_ckpt_due(const tri_train_ckpt *c, bool last)
{
    return c->checkpointer && (last || c->session->step % c->every == 0);
}

tr_status tri_train_ckpt_step(tri_train_ckpt *c, const tri_ckpt_number *numbers, size_t num_numbers,
                              bool last, tr_error *warning, tr_error *err)
{
    c->saved = false;
    if (!c->checkpointer)
        return TR_OK;
    tri_save_outcome outcome = {0};
    if (tri_train_ckpt_due(c, last)) {
        TRI_TRY(tri_checkpointer_save(c->checkpointer, numbers, num_numbers, false, &outcome, err));
        c->saved = true;
        c->stall_s = outcome.stall_s;
    } else {
        tri_checkpointer_poll(c->checkpointer, &outcome);
    }
    warn(c, &outcome, warning);
    return TR_OK;
}

tr_status tri_train_ckpt_finish(tri_train_ckpt *c, const tri_ckpt_number *numbers,
                                size_t num_numbers, tr_error *warning, tr_error *err)
{
    if (!c->checkpointer)
        return TR_OK;
    tri_save_outcome outcome = {0};
    TRI_TRY(tri_checkpointer_save(c->checkpointer, numbers, num_numbers, true, &outcome, err));
    warn(c, &outcome, warning);
    c->last_failed = outcome.missing;
    return TR_OK;
}

tr_status tri_train_ckpt_verdict(const tri_train_ckpt *c, const char *weights, tr_error *err)
{
    if (!c->last_failed)
        return TR_OK;
    const char *run_dir = tr_settings_string(c->settings, "run.dir");
    char *dir = tri_path_join(run_dir, "ckpt");
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
                 c->why.message, dir ? dir : run_dir, kept);
    tri_ckpt_steps_free(&steps);
    free(dir);
    return TR_ERROR_RUNTIME;
}

uint64_t tri_train_ckpt_staging(const tri_train_ckpt *c)
{
    return c->checkpointer ? tri_checkpointer_staging(c->checkpointer) : 0;
}

tr_status tri_train_ckpt_now(tri_train_ckpt *c, const tri_ckpt_number *numbers, size_t num_numbers,
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

void tri_train_ckpt_end(tri_train_ckpt *c)
{
    tri_checkpointer_close(c->checkpointer);
    tri_resumed_fini(&c->resumed);
    *c = (tri_train_ckpt){0};
}
