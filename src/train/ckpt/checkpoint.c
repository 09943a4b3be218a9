#include "train/ckpt/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/pool.h"
#include "ckpt/hf/hf.h"
#include "ckpt/writer.h"
#include "train/ckpt/checkpoint_parts.h"

struct tri_checkpointer {
    tri_session *session;
    tri_ranks *ranks;
    tri_checkpointer_config config;
    char *dir;
    int lock;
    uint64_t nonce, num_saves;
    tri_pieces pieces;
    tri_rank_item *items; /* what this rank writes */
    const tri_piece **of; /* of each item: the piece it is a share of */
    size_t num_items;
    tri_ckpt_writer *writer;
    tri_pool *pool;        /* copies; NULL: this thread alone does */
    const char **needed;   /* names of all parameters */
    int64_t last_step;     /* saved, or being saved; -1: none */
    int64_t *codes;        /* [ranks] */
    tri_save_outcome told; /* an outcome that nobody has asked for yet */
};

/* Files of the run that make a checkpoint usable without it: settings, what tokens mean, and what a
 * model of Hugging Face says of where texts end and how a chat is written. */
static const char *const extras[] = {"config.yaml",
                                     "tokenizer.json",
                                     "special_tokens_map.json",
                                     "tokenizer_config.json",
                                     "generation_config.json",
                                     "chat_template.jinja",
                                     "chat_template.json",
                                     TRI_HF_KEPT,
                                     NULL};

char *tri_checkpoint_dir(const char *run_dir)
{
    return tri_path_join(run_dir, "ckpt");
}

/* Every rank's number, by rank; alone it is one's own. */
tr_status tri_checkpoint_gather(tri_ranks *ranks, int64_t own, int64_t *all, tr_error *err)
{
    all[0] = own;
    if (ranks->size == 1)
        return TR_OK;
    return tr_all_gather(tr_comm_world(ranks->comm), &own, all, 1, TR_I64, err);
}

/* ---- opening ---- */

static tr_status list_items(tri_checkpointer *c, tr_error *err)
{
    TRI_TRY(tri_pieces_list(c->session, &c->pieces, err));
    c->items = calloc(c->pieces.num + 1, sizeof *c->items);
    c->of = calloc(c->pieces.num + 1, sizeof *c->of);
    c->needed = calloc(c->session->params.count + 1, sizeof *c->needed);
    if (!c->items || !c->of || !c->needed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to list the state");
    for (size_t i = 0; i < c->session->params.count; i++)
        c->needed[i] = c->session->params.items[i].name;
    for (size_t i = 0; i < c->pieces.num; i++) {
        const tri_piece *piece = &c->pieces.piece[i];
        tri_region share = tri_piece_share(piece);
        if (share.count == 0)
            continue;
        c->items[c->num_items] = (tri_rank_item){piece->name, piece->kind, share};
        c->of[c->num_items++] = piece;
    }
    return TR_OK;
}

static tr_status lock_and_clean(void *context, tr_error *err)
{
    tri_checkpointer *c = context;
    TRI_TRY(tri_ckpt_lock(c->dir, &c->lock, err));
    tri_ckpt_clean(c->dir);
    return TR_OK;
}

/* Rank 0 takes the directory; the others learn whether it could, and this run's nonce. */
static tr_status take_directory(tri_checkpointer *c, tr_error *err)
{
    int64_t nonce = -1;
    tr_status status = tri_ranks_patiently(c->ranks, lock_and_clean, c, err);
    if (status == TR_OK && c->ranks->rank == 0)
        nonce = (int64_t)((tri_now_ns() << 16 ^ (uint64_t)getpid()) & INT64_MAX);
    TRI_TRY(tri_checkpoint_gather(c->ranks, nonce, c->codes, status == TR_OK ? err : NULL));
    TRI_TRY(status);
    if (c->codes[0] < 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: rank 0 cannot write there", c->dir);
    c->nonce = (uint64_t)c->codes[0];
    return TR_OK;
}

/* Whether the state as it is now has been saved here already: then it was loaded from there. */
static bool has_now(const tri_checkpointer *c)
{
    char *path = tri_ckpt_path(c->dir, c->session->step);
    bool has = path && tri_path_exists(path);
    free(path);
    return has;
}

static tr_status open_all(tri_checkpointer *c, tr_error *err)
{
    c->dir = tri_checkpoint_dir(c->config.run_dir);
    c->codes = calloc((size_t)c->ranks->size, sizeof *c->codes);
    if (!c->dir || !c->codes)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for checkpoints");
    if (c->session->device.def == &tri_device_null)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.device is null, which computes nothing to save; set ckpt.every=0");
    TRI_TRY(list_items(c, err));
    TRI_TRY(take_directory(c, err));
    const tri_device_queue *queue = c->session->device.def->queue;
    int threads = c->session->device.num_threads;
    if (threads > 1 && !queue)
        TRI_TRY(tri_pool_create(threads, &c->pool, err));
    if (has_now(c))
        c->last_step = c->session->step;
    tri_ckpt_writer_config writer = {.dir = c->dir,
                                     .rank = c->ranks->rank,
                                     .num_ranks = c->ranks->size,
                                     .items = c->items,
                                     .num_items = c->num_items,
                                     .staging_bytes = c->config.staging_bytes,
                                     .alloc = queue ? queue->alloc_host : NULL,
                                     .free = queue ? queue->free_host : NULL,
                                     .keep = c->config.keep,
                                     .needed = c->needed,
                                     .extras_from = c->config.run_dir,
                                     .extras = extras,
                                     .patience_s = c->config.patience_s};
    return tri_ckpt_writer_create(&writer, &c->writer, err);
}

tr_status tri_checkpointer_open(tri_session *session, tri_ranks *ranks,
                                const tri_checkpointer_config *config, tri_checkpointer **out,
                                tr_error *err)
{
    *out = NULL;
    tri_checkpointer *c = calloc(1, sizeof *c);
    if (!c)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for checkpoints");
    *c = (tri_checkpointer){
        .session = session, .ranks = ranks, .config = *config, .lock = -1, .last_step = -1};
    tr_status status = open_all(c, err);
    if (status != TR_OK) {
        tri_checkpointer_close(c);
        return status;
    }
    *out = c;
    return TR_OK;
}

void tri_checkpointer_close(tri_checkpointer *c)
{
    if (!c)
        return;
    tri_ckpt_writer_destroy(c->writer);
    tri_ckpt_unlock(c->lock);
    if (c->pool)
        tri_pool_destroy(c->pool);
    tri_pieces_free(&c->pieces);
    free(c->items);
    free(c->of);
    free(c->needed);
    free(c->codes);
    free(c->dir);
    free(c);
}

uint64_t tri_checkpointer_staging(const tri_checkpointer *c)
{
    return tri_ckpt_writer_staging(c->writer);
}

/* ---- saving ---- */

const char *const tri_checkpoint_loss_names[TRI_SPIKE_WINDOW] = {
    "loss_0", "loss_1", "loss_2",  "loss_3",  "loss_4",  "loss_5",  "loss_6",  "loss_7",
    "loss_8", "loss_9", "loss_10", "loss_11", "loss_12", "loss_13", "loss_14", "loss_15"};

static void add_number(tri_ckpt_save *save, const char *name, double value)
{
    if (save->num_numbers < TRI_CKPT_MAX_NUMBERS)
        save->numbers[save->num_numbers++] = (tri_ckpt_number){name, value};
}

static tr_status describe(const tri_checkpointer *c, tri_ckpt_save *save, tr_error *err)
{
    const tri_session *s = c->session;
    *save = (tri_ckpt_save){.step = s->step, .nonce = c->nonce + c->num_saves};
    add_number(save, "seed", (double)s->config.seed);
    add_number(save, "batch", (double)s->config.compile.batch);
    add_number(save, "seq_len", (double)s->config.compile.seq_len);
    add_number(save, "skipped", (double)s->skipped);
    if (tri_checkpoint_codes(s))
        add_number(save, "coded_tp", tri_mesh_size(&s->config.compile.mesh, TRI_AXIS_TP));
    add_number(save, "skipped_row", (double)s->skipped_row);
    for (int i = 0; s->config.spike.limit > 0 && i < s->spikes.num; i++)
        add_number(save, tri_checkpoint_loss_names[i], (double)s->spikes.last[i]);
    float scaler[TRI_NUM_SCALER];
    tri_id value = tri_checkpoint_scaler(s);
    if (value == TRI_NONE)
        return TR_OK;
    TRI_TRY(tri_executor_read(&s->executors[TRI_PROGRAM_TRAIN], value, scaler, err));
    add_number(save, "loss_scale", (double)scaler[TRI_SCALER_SCALE]);
    add_number(save, "loss_scale_good_steps", (double)scaler[TRI_SCALER_GOOD]);
    return TR_OK;
}

/* ---- staging ---- */

/* Where the copying is. */
typedef struct staging {
    size_t item;
    int64_t at; /* of its elements */
} staging;

enum {
    COPY_BYTES = 1 << 20,   /* of a task */
    MOST_AT_ONCE = 64 << 20 /* elements: the writer begins when the first are there */
};

typedef struct copying {
    char *to;
    const char *from;
    size_t bytes;
} copying;

static void copy_task(void *context, int task, int worker)
{
    const copying *c = context;
    (void)worker;
    size_t begin = (size_t)task * COPY_BYTES, left = c->bytes - begin;
    memcpy(c->to + begin, c->from + begin, left < COPY_BYTES ? left : COPY_BYTES);
}

/* Elements of a piece to the staging memory: from the host's by all threads, since one cannot use
 * the memory's speed; from a device's through its queue, from a file as that is read.
 * What rests in a code is decoded. */
static tr_status copy_out(const tri_checkpointer *c, const tri_piece *piece, int64_t first,
                          int64_t count, float *to, tr_error *err)
{
    bool plain = piece->dtype == TRI_F32;
    const void *from = plain ? tri_piece_on_host(c->session, piece, first) : NULL;
    if (!from)
        return tri_piece_read(c->session, piece, first, count, to, err);
    copying copy = {
        .to = (char *)to, .from = (const char *)from, .bytes = (size_t)count * sizeof(float)};
    int tasks = (int)((copy.bytes + COPY_BYTES - 1) / COPY_BYTES);
    tri_pool_run(tasks > 1 ? c->pool : NULL, tasks, copy_task, &copy);
    return TR_OK;
}

/* Copies until all is staged or there is no room for a while. */
static tr_status stage(tri_checkpointer *c, staging *s, tr_error *err)
{
    while (s->item < c->num_items) {
        size_t room;
        float *to = tri_ckpt_writer_room(c->writer, 0.1, &room);
        const tri_region *share = &c->items[s->item].region;
        int64_t count = share->count - s->at, most = (int64_t)(room / sizeof(float));
        if (most == 0)
            return TR_OK;
        count = count < most ? count : most;
        count = count < MOST_AT_ONCE ? count : MOST_AT_ONCE;
        const tri_piece *piece = c->of[s->item];
        int64_t first = share->first - piece->region.first + s->at;
        TRI_TRY(copy_out(c, piece, first, count, to, err));
        tri_ckpt_writer_put(c->writer, (size_t)count * sizeof(float));
        s->at += count;
        if (s->at == share->count)
            *s = (staging){.item = s->item + 1};
    }
    return TR_OK;
}

/* With bounded memory some ranks are done sooner than others; they wait for them here and not in
 * the next step, where a wait has a deadline. */
static tr_status stage_all(tri_checkpointer *c, tr_error *err)
{
    staging s = {0};
    bool all;
    do {
        TRI_TRY(stage(c, &s, err));
        all = s.item == c->num_items;
        if (c->config.staging_bytes == 0)
            continue;
        TRI_TRY(tri_checkpoint_gather(c->ranks, all, c->codes, err));
        for (int r = 0; r < c->ranks->size; r++)
            all &= c->codes[r] != 0;
    } while (!all);
    return TR_OK;
}

static void note_outcome(tri_checkpointer *c, tr_status status, const tr_error *why)
{
    if (status != TR_OK)
        c->told = (tri_save_outcome){.failed = true, .failed_step = c->last_step, .why = *why};
}

static void tell(tri_checkpointer *c, tri_save_outcome *outcome)
{
    double stall = outcome->stall_s;
    bool missing = outcome->missing;
    *outcome = c->told;
    outcome->stall_s = stall;
    outcome->missing = missing;
    c->told = (tri_save_outcome){0};
    if (outcome->failed) /* so that the same step may be tried again */
        c->last_step = c->last_step == outcome->failed_step ? -1 : c->last_step;
}

void tri_checkpointer_poll(tri_checkpointer *c, tri_save_outcome *outcome)
{
    tr_status status;
    tr_error why = {0};
    if (tri_ckpt_writer_wait(c->writer, 0, &status, &why))
        note_outcome(c, status, &why);
    *outcome = (tri_save_outcome){0};
    tell(c, outcome);
}

/* Rank 0 gives the checkpoint its name, so its outcome is the one that counts. */
static tr_status wait_all(tri_checkpointer *c, tr_error *err)
{
    enum { BUSY, GOOD, BAD };
    int64_t code = c->told.failed ? BAD : GOOD;
    bool all;
    do {
        tr_status status;
        tr_error why = {0};
        bool idle = tri_ckpt_writer_wait(c->writer, 0.1, &status, &why);
        if (idle && status != TR_OK) {
            note_outcome(c, status, &why);
            code = BAD;
        }
        TRI_TRY(tri_checkpoint_gather(c->ranks, idle ? code : BUSY, c->codes, err));
        all = true;
        for (int r = 0; r < c->ranks->size; r++)
            all &= c->codes[r] != BUSY;
    } while (!all);
    if (c->codes[0] != BAD)
        c->told = (tri_save_outcome){0};
    else if (!c->told.failed)
        c->told = (tri_save_outcome){.failed = true, .failed_step = c->last_step};
    return TR_OK;
}

tr_status tri_checkpointer_settle(tri_checkpointer *c, tri_save_outcome *outcome, tr_error *err)
{
    *outcome = (tri_save_outcome){0};
    TRI_TRY(wait_all(c, err));
    tell(c, outcome);
    return TR_OK;
}

tr_status tri_checkpointer_save(tri_checkpointer *c, const tri_ckpt_number *numbers,
                                size_t num_numbers, bool wait, tri_save_outcome *outcome,
                                tr_error *err)
{
    double begin = tri_now_s();
    *outcome = (tri_save_outcome){0};
    TRI_TRY(wait_all(c, err));
    /* Only rank 0 may know by now that the last one failed: all do as it does. */
    TRI_TRY(tri_checkpoint_gather(c->ranks, c->told.failed ? -1 : c->last_step, c->codes, err));
    if (c->codes[0] == c->session->step)
        return TR_OK;
    tri_ckpt_save save;
    TRI_TRY(describe(c, &save, err));
    for (size_t i = 0; i < num_numbers; i++)
        add_number(&save, numbers[i].name, numbers[i].value);
    tri_save_outcome before = c->told;
    c->told = (tri_save_outcome){0};
    c->last_step = save.step;
    c->num_saves++; /* another directory each time: nothing of one that failed gets into the next */
    tri_ckpt_writer_begin(c->writer, &save);
    TRI_TRY(stage_all(c, err));
    if (wait || !c->config.async)
        TRI_TRY(wait_all(c, err));
    outcome->missing = c->told.failed; /* whatever became of the one before */
    if (before.failed && !c->told.failed)
        c->told = before;
    outcome->stall_s = tri_now_s() - begin;
    tell(c, outcome);
    return TR_OK;
}
