/* trireme train: a run of the library, as a person starts, watches and ends it. All ranks train;
 * rank 0 alone prints and writes files. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "api/api.h"
#include "api/run_aside.h"
#include "api/run_news.h"
#include "base/fs.h"
#include "base/process_memory.h"
#include "cli/auto/auto_layout.h"
#include "cli/guard.h"
#include "cli/launch/environment.h"
#include "cli/launch/recovery.h"
#include "cli/run/detach.h"
#include "cli/run/dry_run.h"
#include "cli/run/journal.h"
#include "cli/run/page.h"
#include "cli/run/train_show.h"
#include "cli/signals.h"
#include "cli/text.h"
#include "cli/verbs/data_prepare.h"
#include "config/settings_internal.h"

/* Why a rank wishes that the run end; all ranks learn of it after the step. The first counts. */
enum { WISH_INT = 1, WISH_TERM = 2, WISH_USR1 = 4 };

static const struct {
    unsigned wish;
    int signal;
    const char *why;
} endings[] = {
    {WISH_INT, SIGINT, "Ctrl-C"},
    {WISH_TERM, SIGTERM, "asked by SIGTERM"},
    {WISH_USR1, SIGUSR1, "asked by SIGUSR1"},
};
enum { NUM_ENDINGS = sizeof endings / sizeof *endings };

static unsigned wishes_of_signals(void *context)
{
    (void)context;
    unsigned wishes = 0;
    int caught = tri_signals_caught();
    for (int i = 0; caught && i < NUM_ENDINGS; i++)
        wishes |= endings[i].signal == caught ? endings[i].wish : 0;
    return wishes;
}

/* For people. */
static const char *why_of_wishes(unsigned wishes)
{
    for (int i = 0; i < NUM_ENDINGS; i++)
        if (wishes & endings[i].wish)
            return endings[i].why;
    return "asked";
}

/* Before there is anything else to see. */
static void tell_measuring(const char *path)
{
    tri_text_print(stdout, "comm    measuring what messages between ranks cost, once; kept in %s\n",
                   path);
    fflush(stdout);
}

/* What a rank of this machine decides for itself. */
static tr_status complete(tr_settings *settings, const tri_bootstrap *bootstrap, tr_error *err)
{
    TRI_TRY(tri_api_share_cores(settings, bootstrap->local_size, err));
    return tri_cli_agree_on_device(settings, bootstrap, err);
}

/* A rank that is started again goes on, whatever the run was begun with; its settings still say
 * what that was. */
static tri_run_config config_of(const tr_settings *settings, const tri_recovery *recovery)
{
    tri_run_config config;
    tri_run_config_from(settings, &config);
    double minutes = tr_settings_float(settings, "run.max_minutes");
    if (minutes > 0) /* of all restarts together */
        config.ends_at_s = recovery->started_s + 60 * minutes;
    if (recovery->resumes)
        config.ckpt.resume = TRI_RESUME_IF_ANY;
    config.wishes = (tri_run_wishes){.ask = wishes_of_signals, .why = why_of_wishes};
    return config;
}

/* One rank's. */
typedef struct trained {
    tr_session *session;
    tri_run run;
    tri_train_show show;
    tri_run_news_writer news;
} trained;

/* For the program that started this one (api/run_processes.c). */
static tr_status observe_news(trained *t, const tri_bootstrap *bootstrap, tr_error *err)
{
    int64_t fd = -1;
    TRI_TRY(tri_cli_flag_int(t->show.cli, "news", 3, 1 << 20, &fd, err));
    if (fd < 0 || bootstrap->rank != 0)
        return TR_OK;
    tri_observer observer = tri_run_news_observer(&t->news, (int)fd);
    return tri_run_observe(&t->run, &observer, err);
}

static tr_status train(trained *t, const tri_bootstrap *bootstrap, const tri_recovery *recovery,
                       tr_error *err)
{
    tr_settings *settings = t->show.cli->settings;
    TRI_TRY(complete(settings, bootstrap, err));
    TRI_TRY(tri_api_compile(settings, bootstrap->rank, &t->session, err));
    tri_run_config config = config_of(settings, recovery);
    config.head = recovery->layout->head.chars;
    config.ranks.measuring = t->show.quiet ? NULL : tell_measuring;
    tri_observer observer = tri_train_show_observer(&t->show);
    tri_run_open(&t->run, &config, &t->session->session);
    TRI_TRY(tri_run_observe(&t->run, &observer, err));
    observer = tri_detach_observer(recovery->detach);
    TRI_TRY(tri_run_observe(&t->run, &observer, err));
    TRI_TRY(observe_news(t, bootstrap, err));
    TRI_TRY(tri_run_join(&t->run, bootstrap, err));
    /* The first start in a directory measures collectives, with large vectors that are gone by now.
     * The peak in metrics.jsonl is that of training, and the same at every start. */
    if (bootstrap->size > 1)
        tri_process_forget_peak();
    TRI_TRY(tri_run_begin(&t->run, err));
    if (t->show.status != TR_OK)
        return tri_fail(err, t->show.status, "%s", t->show.err.message);
    TRI_TRY(tri_run_advance(&t->run, INT64_MAX, err));
    return tri_run_end(&t->run, err);
}

static int train_rank(const tri_cli *cli, const tri_bootstrap *bootstrap, void *context)
{
    tr_error err = {0};
    const tri_recovery *recovery = context;
    trained t = {.show.cli = cli,
                 .show.quiet = tri_cli_flag(cli, "quiet") != NULL,
                 .show.layout = recovery->layout};
    tr_status status = train(&t, bootstrap, recovery, &err);
    /* First of all: closing may take as long as a checkpoint that is being written. */
    int code = status != TR_OK           ? tri_cli_rank_fail(bootstrap, &err)
               : !t.run.stopped          ? TRI_EXIT_OK
               : t.run.wishes & WISH_INT ? TRI_EXIT_INTERRUPTED
                                         : TRI_EXIT_STOPPED;
    if (status == TR_ERROR_NUMERIC || status == TR_ERROR_INTERNAL ||
        (status != TR_OK && t.run.ckpt.last_failed))
        code = TRI_EXIT_FINAL;
    tri_run_close(&t.run);
    tr_session_destroy(t.session);
    return code;
}

/* Of the rank that writes it: those on other machines need not even see it. */
static tr_status check_dir(const tri_cli *cli, tr_error *err)
{
    tri_environment world;
    if (tri_environment_read(&world, NULL) == TR_OK && world.given && world.rank > 0)
        return TR_OK;
    TRI_TRY(tri_run_dir_check(tr_settings_string(cli->settings, "run.dir"), err));
    return tri_run_aside_check(cli->settings, err);
}

/* Text becomes tokens, where that is still to be done. A signal ends it at once. */
static tr_status prepare(tr_settings *settings, bool quiet, tr_error *err)
{
    char *beside = tri_path_join(tr_settings_string(settings, "run.dir"), "data/.");
    if (!beside)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    tri_guard guard;
    tri_guard_begin(&guard, beside);
    tri_prepare_bar bar;
    tri_prepare_bar_init(&bar, tri_terminal(stdout));
    tr_status status = tri_api_prepare(settings, quiet ? NULL : tri_prepare_bar_show, &bar, err);
    tri_prepare_bar_end(&bar);
    tri_guard_end(&guard);
    free(beside);
    return status;
}

static tr_status check_ckpt(const tr_settings *settings, tr_error *err)
{
    tri_run_config config;
    tri_run_config_from(settings, &config);
    return tri_run_ckpt_check(&config.ckpt, tr_settings_string(settings, "run.device"), err);
}

static tr_status check_flags(const tri_cli *cli, tr_error *err)
{
    if (tri_cli_flag(cli, "quiet") && tri_cli_flag(cli, "dry-run"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--dry-run does nothing but print, and --quiet prints nothing of it; leave "
                        "one of them out");
    tri_environment world;
    if (!tri_cli_flag(cli, "detach"))
        return TR_OK;
    if (tri_cli_flag(cli, "dry-run"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--dry-run starts no run, so there is none to detach; leave one of them "
                        "out");
    if (tri_environment_read(&world, NULL) == TR_OK && world.given)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--detach is for ranks that trireme starts, and %s is in the environment: "
                        "put what starts them into the background",
                        world.size_variable);
    return TR_OK;
}

/* Whoever reads the news is told who writes them, and takes the run along when it goes. */
static tr_status begin_news(const tri_cli *cli, tr_error *err)
{
    int64_t fd = -1;
    TRI_TRY(tri_cli_flag_int(cli, "news", 3, 1 << 20, &fd, err));
    if (fd < 0)
        return TR_OK;
    if (write((int)fd, TRI_RUN_NEWS_HELLO, sizeof TRI_RUN_NEWS_HELLO - 1) < 0)
        return tri_fail(err, TR_ERROR_INPUT, "--news is %lld, which cannot be written to: %s",
                        (long long)fd, strerror(errno));
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    return TR_OK;
}

static void begin(void *context, int num_ranks)
{
    const tri_recovery *recovery = context;
    tri_journal_begin(context, num_ranks);
    tri_detach_take_output(recovery->detach,
                           tr_settings_string(recovery->cli->settings, "run.dir"));
    tri_run_page_begin(recovery->page, recovery->cli->settings,
                       tri_cli_flag(recovery->cli, "quiet") != NULL);
}

static void ended(void *context, int code, int64_t steps, bool made)
{
    const tri_recovery *recovery = context;
    tri_run_page_end(recovery->page);
    tri_journal_ended(context, code, steps, made);
}

/* What is wrong, as ranks will find it that share the cores of this machine; how they do is theirs
 * to say, since after a failure there may be fewer. */
static tr_status check(tr_settings *settings, tr_error *err)
{
    tri_environment world;
    tr_settings *shared;
    if (tri_environment_read(&world, NULL) == TR_OK && world.given)
        return tri_api_check(settings, err);
    TRI_TRY(tri_settings_clone(settings, &shared, err));
    int64_t ranks = tri_settings_num_ranks(settings);
    tr_status status = tri_api_share_cores(shared, ranks < INT_MAX ? (int)ranks : INT_MAX, err);
    if (status == TR_OK)
        status = tri_api_check(shared, err);
    tr_settings_destroy(shared);
    return status == TR_OK ? tri_settings_complete(settings, err) : status;
}

/* Everything that is decided before there are ranks. */
static tr_status decide(const tri_cli *cli, tri_auto_layout *layout, tr_error *err)
{
    bool quiet = tri_cli_flag(cli, "quiet") != NULL;
    TRI_TRY(prepare(cli->settings, quiet, err));
    TRI_TRY(tri_auto_layout_decide(cli, tr_settings_string(cli->settings, "run.dir"), quiet, layout,
                                   err));
    TRI_TRY(check(cli->settings, err));
    return check_ckpt(cli->settings, err);
}

static int start(const tri_cli *cli, tri_detach *detach, const tri_auto_layout *layout)
{
    tri_recovery recovery;
    tri_run_page page = {0};
    tri_recovery_init(&recovery, cli);
    recovery.detach = detach;
    recovery.page = &page;
    recovery.layout = layout;
    tri_signals_catch(); /* not before: nothing that runs up to here looks at them */
    tri_launch_options options = {.asks = true,
                                  .writes = true,
                                  .processes = true,
                                  .quiet = tri_cli_flag(cli, "quiet") != NULL,
                                  .restarts = tri_recovery_wanted(&recovery),
                                  .begin = begin,
                                  .failed = tri_journal_failed,
                                  .again = tri_recovery_again,
                                  .ended = ended,
                                  .note = tri_journal_note,
                                  .context = &recovery};
    int code = tri_cli_launch(cli, (int)tri_cli_num_ranks(cli), train_rank, &recovery, &options);
    fflush(stdout);
    clearerr(stdout); /* what cannot be printed is noted by now, and the run is done all the same */
    return code;
}

int tri_verb_train(const tri_cli *cli)
{
    tr_error err = {0};
    tri_signals_outlive_readers();
    if (check_flags(cli, &err) != TR_OK || check_dir(cli, &err) != TR_OK ||
        begin_news(cli, &err) != TR_OK)
        return tri_cli_fail(&err);
    if (tri_cli_flag(cli, "dry-run"))
        return check_ckpt(cli->settings, &err) == TR_OK ? tri_train_dry_run(cli)
                                                        : tri_cli_fail(&err);
    tri_detach detach;
    int code;
    if (!tri_detach_begin(&detach, cli, &code))
        return code;
    tri_auto_layout layout = {0};
    code = decide(cli, &layout, &err) == TR_OK ? start(cli, &detach, &layout) : tri_cli_fail(&err);
    tri_auto_layout_fini(&layout);
    return code;
}
