/* One process stands for all ranks: their programs are compiled and proven, the data is opened, and
 * the first row is shown as the model will see it. Text that must become tokens does so in a
 * directory of its own, which is gone afterwards. */
#include "cli/run/dry_run.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api.h"
#include "base/system_memory.h"
#include "cli/launch/launch.h"
#include "cli/lines.h"
#include "cli/run/disk.h"
#include "cli/run/first_lines.h"
#include "cli/text.h"
#include "cli/verbs/data_prepare.h"
#include "cli/verbs/plan.h"
#include "data/tokenizer/tokenizer.h"

enum { MAX_SHOWN = 300 }; /* bytes of a row */

typedef struct dry_run {
    const tri_cli *cli;
    char *dir;       /* run.dir as it was given */
    char *temporary; /* what it is meanwhile */
    int pipe;        /* as long as it is open, the directory stays; -1: there is none */
    pid_t remover;
    tr_session *session;
    tri_auto_layout layout;
} dry_run;

static int remove_entry(const char *path, const struct stat *info, int flag, struct FTW *at)
{
    (void)info;
    (void)flag;
    (void)at;
    return remove(path);
}

/* A child takes the directory away when this process has ended, however that comes: Ctrl-C while a
 * long text becomes tokens is the usual way. */
static void start_remover(dry_run *d)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return;
    fflush(NULL);
    d->remover = fork();
    if (d->remover == 0) {
        char none;
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        close(ends[1]);
        while (read(ends[0], &none, 1) < 0 && errno == EINTR)
            continue;
        nftw(d->temporary, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        _exit(0);
    }
    close(ends[0]);
    d->pipe = ends[1];
}

static tr_status begin(dry_run *d, const tri_cli *cli, tr_error *err)
{
    const char *tmp = getenv("TMPDIR");
    char *assignment = NULL;
    *d = (dry_run){
        .cli = cli, .pipe = -1, .dir = strdup(tr_settings_string(cli->settings, "run.dir"))};
    if (asprintf(&d->temporary, "%s/trireme-dry-XXXXXX", tmp && *tmp ? tmp : "/tmp") < 0)
        d->temporary = NULL;
    if (!d->dir || !d->temporary)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    if (!mkdtemp(d->temporary)) {
        tri_fail(err, TR_ERROR_RUNTIME,
                 "%s: cannot be made: %s; set TMPDIR to a directory that "
                 "can be written",
                 d->temporary, strerror(errno));
        free(d->temporary);
        d->temporary = NULL;
        return TR_ERROR_RUNTIME;
    }
    start_remover(d);
    tr_status status = asprintf(&assignment, "run.dir=%s", d->temporary) < 0
                           ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path")
                           : tr_settings_set(cli->settings, assignment, err);
    free(assignment);
    return status;
}

static void end(dry_run *d)
{
    tr_session_destroy(d->session);
    tri_auto_layout_fini(&d->layout);
    if (d->pipe >= 0) {
        close(d->pipe);
        while (waitpid(d->remover, NULL, 0) < 0 && errno == EINTR)
            continue;
    } else if (d->temporary) {
        nftw(d->temporary, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
    free(d->temporary);
    free(d->dir);
}

/* ---- check ---- */

typedef struct proof {
    size_t programs;
    bool ranks;
} proof;

static void note_proof(void *context, const char *what, const char *line)
{
    (void)what;
    (void)line;
    ((proof *)context)->programs++;
}

static tr_status prove(const dry_run *d, tr_error *err)
{
    proof p = {0};
    const tri_session *s = &d->session->session;
    int ranks = tri_mesh_ranks(&s->config.compile.mesh);
    TRI_TRY(tri_prove_programs(s, note_proof, &p, err));
    if (ranks > 1)
        TRI_TRY(tri_prove_ranks(d->cli->settings, ranks, note_proof, &p, err));
    tri_cli_line("check",
                 "proven: every read finds its value, every address its room (%zu "
                 "instructions of a step)%s",
                 s->programs[TRI_PROGRAM_TRAIN].num_instrs,
                 ranks > 1 ? ", and the messages of all ranks meet" : "");
    return TR_OK;
}

/* ---- disk ---- */

/* Parameters and optimizer state of the whole model. A rank may have a part of either; what it has
 * of one it has of the other. */
static double checkpoint_bytes(const tri_session *s)
{
    const tri_program *program = &s->programs[TRI_PROGRAM_TRAIN];
    double params = 0, optim = 0;
    for (size_t i = 0; i < program->num_states; i++) {
        const tri_state *state = &program->states[i];
        if (state->param == TRI_NONE)
            continue;
        double bytes = 4 * (double)tri_shape_count(&s->params.items[state->param].shape);
        params += state->kind == TRI_STATE_PARAM ? bytes : 0;
        optim += state->kind == TRI_STATE_OPTIM ? bytes : 0;
    }
    return 4 * (double)tri_param_total(&s->params) * (1 + (params > 0 ? optim / params : 0));
}

/* Checkpoints that are there at once: those that stay, and the one that is being written. */
static int64_t most_checkpoints(const tr_settings *settings, int64_t steps)
{
    int64_t every = tr_settings_int(settings, "ckpt.every");
    int64_t last = tr_settings_int(settings, "ckpt.keep_last");
    int64_t stay = tr_settings_int(settings, "ckpt.keep_every");
    int64_t best = tr_settings_int(settings, "ckpt.keep_best");
    if (every == 0)
        return 0;
    int64_t all = steps / every + (steps % every != 0);
    int64_t most = last + best + 1 + (stay > 0 ? steps / stay : 0);
    return last == 0 || most > all ? all : most;
}

static void print_disk(const dry_run *d)
{
    const tr_settings *settings = d->cli->settings;
    const tri_session *s = &d->session->session;
    char text[4][16], free_text[64] = "";
    double each = checkpoint_bytes(s), room = 0;
    int64_t num = most_checkpoints(settings, s->num_steps);
    double weights =
        tr_settings_bool(settings, "run.save") ? 4 * (double)tri_param_total(&s->params) : 0;
    double all = weights + (double)num * each;
    bool writable = tri_disk_free(d->dir, &room);
    if (writable)
        snprintf(free_text, sizeof free_text, "; %s are free there", tri_text_bytes(room, text[0]));
    tri_text_bytes(weights, text[1]);
    if (num == 0)
        tri_cli_line("disk", "%s of weights, no checkpoints, in %s%s",
                     weights > 0 ? text[1] : "nothing", d->dir, free_text);
    else
        tri_cli_line("disk", "%s of weights + %" PRId64 " checkpoint%s of %s = %s in %s%s",
                     weights > 0 ? text[1] : "nothing", num, num == 1 ? "" : "s",
                     tri_text_bytes(each, text[2]), tri_text_bytes(all, text[3]), d->dir,
                     free_text);
    if (writable && all > room)
        tri_cli_line("note",
                     "the disk has too little room; set run.dir to another, ckpt.keep_last=1, or "
                     "a larger ckpt.every");
}

/* ---- the first row ---- */

/* Text fit for a line: what would command a terminal, and line ends, as escapes. */
static void add_shown(tri_text *out, const char *bytes, size_t num)
{
    size_t shown = num < MAX_SHOWN ? num : MAX_SHOWN;
    while (shown < num && shown > 0 && ((unsigned char)bytes[shown] & 0xC0) == 0x80)
        shown--; /* not half a character */
    for (size_t i = 0; i < shown; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '\n')
            tri_text_add(out, "\\n");
        else if (c == '\t')
            tri_text_add(out, "\\t");
        else if (c < 0x20 || c == 0x7F)
            tri_text_add(out, "\\x%02x", c);
        else
            tri_text_add(out, "%c", c);
    }
    if (shown < num)
        tri_text_add(out, " ...");
}

static void add_numbers(tri_text *out, const int32_t *tokens, int64_t num)
{
    enum { MOST = 24 };
    for (int64_t i = 0; i < num && i < MOST; i++)
        tri_text_add(out, "%s%d", i ? " " : "", tokens[i]);
    if (num > MOST)
        tri_text_add(out, " ...");
}

static tr_status decode(const tri_data_config *config, const int32_t *tokens, int64_t num,
                        tri_text *out, tr_error *err)
{
    tri_tokenizer *tokenizer = NULL;
    tri_bytes text = {0};
    if (strcmp(config->source, "synthetic") == 0) {
        add_numbers(out, tokens, num);
        return TR_OK;
    }
    TRI_TRY(tri_data_tokenizer(config, &tokenizer, err));
    if (!tokenizer && !tri_data_has_tokens(config->source))
        for (int64_t i = 0; i < num; i++) /* bytes */
            tri_bytes_add(&text, &(uint8_t){(uint8_t)tokens[i]}, 1);
    tr_status status =
        tokenizer ? tri_tokenizer_decode(tokenizer, tokens, (size_t)num, false, &text, err) : TR_OK;
    if (status == TR_OK && text.num > 0)
        add_shown(out, text.data, text.num);
    else if (status == TR_OK)
        add_numbers(out, tokens, num);
    tri_bytes_fini(&text);
    tri_tokenizer_close(tokenizer);
    return status;
}

/* Tokens of the row that are no padding, as far as the row tells. */
static int64_t used_length(const int32_t *docs, int64_t length)
{
    int64_t used = length;
    while (used > 0 && docs[used - 1] < 0)
        used--;
    return used;
}

static tr_status print_first_row(const dry_run *d, tr_error *err)
{
    const tri_session *s = &d->session->session;
    int64_t length = s->config.compile.seq_len;
    uint64_t sample;
    if (!s->data || !tri_epochs_sample(&s->epochs, s->config.compile.batch, 0, 0, &sample))
        return TR_OK;
    int32_t *block = calloc((size_t)length * 5, sizeof *block);
    if (!block)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a row");
    int64_t num_targets = tri_data_num_labels(s->data) > 0 ? 1 : length, ignored = 0;
    tri_row row = {.tokens = block,
                   .targets = block + length,
                   .positions = block + 2 * length,
                   .docs = block + 3 * length,
                   .types = block + 4 * length,
                   .num_targets = num_targets};
    for (int64_t i = 0; i < length; i++) {
        row.targets[i] = -1;
        row.positions[i] = (int32_t)i;
    }
    tri_data_row(s->data, TRI_SPLIT_TRAIN, sample, &row);
    tr_status status = tri_data_problem(s->data, err);
    for (int64_t i = 0; i < num_targets; i++)
        ignored += row.targets[i] < 0;
    tri_text text;
    tri_text_init(&text);
    int64_t used = used_length(row.docs, length);
    if (status == TR_OK)
        status = decode(&s->config.data, row.tokens, used, &text, err);
    if (status == TR_OK) {
        tri_cli_line("row",
                     "the first of %" PRId64 ": %" PRId64 " token%s, %" PRId64
                     " of padding; %" PRId64 " target%s, %" PRId64 " ignored",
                     s->config.compile.batch, used, used == 1 ? "" : "s", length - used,
                     num_targets, num_targets == 1 ? "" : "s", ignored);
        tri_cli_line("", "%s", text.chars ? text.chars : "");
    }
    tri_text_fini(&text);
    free(block);
    return status;
}

/* ---- all of it ---- */

/* As the ranks of this machine would share its cores. */
static tr_status share_threads(const tri_cli *cli, tr_error *err)
{
    int64_t ranks = tri_cli_num_ranks(cli), share = tri_device_num_cores() / ranks;
    char threads[48];
    snprintf(threads, sizeof threads, "run.threads=%" PRId64, share > 1 ? share : 1);
    bool open = ranks > 1 && tr_settings_int(cli->settings, "run.threads") == 0;
    return open ? tr_settings_fill(cli->settings, threads, err) : TR_OK;
}

/* Another machine may be meant: what this one would refuse is said, and is no mistake. */
static const char *what_next(const tri_session *s, int ranks)
{
    uint64_t room = s->device.def->queue ? 0 : tri_system_memory_read("").available;
    if (tri_cli_too_many_here(ranks))
        return "this machine has too few cores for so many ranks: start them on several machines "
               "with mpirun or srun";
    if (room > 0 && (double)tri_session_planned_bytes(s) * ranks > (double)room)
        return "this machine has too little memory for it: divide the model further (layout.zero, "
               "layout.tp), lower train.batch or data.seq_len, or start it on a larger one";
    return "the same command without --dry-run trains";
}

static tr_status run(dry_run *d, tr_error *err)
{
    tr_settings *settings = d->cli->settings;
    tri_prepare_bar bar;
    tri_prepare_bar_init(&bar, tri_terminal(stdout));
    tr_status status = tri_api_prepare(settings, tri_prepare_bar_show, &bar, err);
    tri_prepare_bar_end(&bar);
    TRI_TRY(status);
    TRI_TRY(tri_auto_layout_decide(d->cli, d->dir, false, &d->layout, err));
    TRI_TRY(share_threads(d->cli, err));
    TRI_TRY(tri_api_check(settings, err));
    TRI_TRY(tri_api_compile(settings, 0, &d->session, err));
    tri_session *s = &d->session->session;
    TRI_TRY(tri_session_open_data(s, err));
    tri_first_lines lines = {.cli = d->cli,
                             .session = s,
                             .dir = d->dir,
                             .layout = &d->layout,
                             .local_ranks = tri_mesh_ranks(&s->config.compile.mesh)};
    TRI_TRY(tri_first_lines_print(&lines, err));
    printf("\nplan    the memory of rank 0\n");
    tri_plan_print_memory(s);
    printf("\n");
    TRI_TRY(tri_session_check_memory(s, err));
    TRI_TRY(prove(d, err));
    print_disk(d);
    TRI_TRY(print_first_row(d, err));
    printf("\ndry run: nothing was trained or written; %s\n", what_next(s, lines.local_ranks));
    return TR_OK;
}

int tri_train_dry_run(const tri_cli *cli)
{
    tr_error err = {0};
    dry_run d;
    tr_status status = begin(&d, cli, &err);
    if (status == TR_OK)
        status = run(&d, &err);
    end(&d);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
