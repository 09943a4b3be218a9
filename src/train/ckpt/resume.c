/* Going on from a checkpoint: finding one that is whole, and filling this rank's memory from it. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "ckpt/checkpoint.h"
#include "graph/code.h"
#include "train/ckpt/checkpoint_parts.h"

enum { CHUNK = 4 << 20 }; /* elements that are on their way to a device at a time */

tri_id tri_checkpoint_scaler(const tri_session *session)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    for (size_t s = 0; s < program->num_states; s++)
        if (program->states[s].kind == TRI_STATE_OPTIM && program->states[s].param == TRI_NONE)
            return program->states[s].latest;
    return TRI_NONE;
}

bool tri_checkpoint_codes(const tri_session *session)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    for (size_t s = 0; s < program->num_states; s++)
        if (tri_dtype_code(program->states[s].dtype))
            return true;
    return false;
}

/* ---- whether it fits ---- */

/* The parameter that a moment is of: "adam.m.wte.weight" is of wte.weight. */
static tri_id param_of_moment(const tri_param_table *params, const char *name)
{
    tri_id param = TRI_NONE;
    for (const char *dot = strchr(name, '.'); dot && param == TRI_NONE; dot = strchr(dot + 1, '.'))
        param = tri_param_find(params, dot + 1);
    return param;
}

static const tri_piece *find_piece(const tri_pieces *pieces, const char *name)
{
    for (size_t i = 0; i < pieces->num; i++)
        if (strcmp(pieces->piece[i].name, name) == 0)
            return &pieces->piece[i];
    return NULL;
}

static tr_status other_optimizer(const tri_checkpoint *ckpt, const char *how, const char *name,
                                 tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: %s %s, so it was made with another optim.kind or other optim.groups; keep "
                    "those, or begin a new run with its weights alone: model.from=%s",
                    ckpt->path, how, name, ckpt->path);
}

static tr_status other_model(const tri_checkpoint *ckpt, const char *difference, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: %s; it is the checkpoint of another model. Give the model settings that "
                    "it was made with (%s/config.yaml has them), or another run.dir",
                    ckpt->path, difference, ckpt->path);
}

static tr_status other_names(const tri_checkpoint *ckpt, const char *how, const char *name,
                             tr_error *err)
{
    char text[240];
    snprintf(text, sizeof text, "%s %.160s", how, name);
    return other_model(ckpt, text, err);
}

static char *dims_text(const int64_t *dim, int num, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (int d = 0; d < num && at < size; d++)
        at += (size_t)snprintf(text + at, size - at, "%s%" PRId64, d ? " x " : "", dim[d]);
    return text;
}

static tr_status other_shape(const tri_checkpoint *ckpt, const tri_ckpt_tensor *tensor,
                             const tri_piece *piece, tr_error *err)
{
    char had[96], has[96], text[400];
    dims_text(tensor->dim, tensor->num_dims, had, sizeof had);
    dims_text(piece->region.dim, piece->region.num_dims, has, sizeof has);
    snprintf(text, sizeof text, "%.160s is %s there and %s in this model", piece->name, had, has);
    return other_model(ckpt, text, err);
}

static bool same_shape(const tri_ckpt_tensor *tensor, const tri_region *region)
{
    return tensor->num_dims == region->num_dims &&
           memcmp(tensor->dim, region->dim, (size_t)region->num_dims * sizeof *region->dim) == 0;
}

/* All that this rank needs is there, and nothing that it does not know. */
static tr_status check_tensors(const tri_session *session, const tri_checkpoint *ckpt,
                               const tri_pieces *pieces, tr_error *err)
{
    const tri_manifest *m = &ckpt->manifest;
    for (size_t i = 0; i < pieces->num; i++) {
        const tri_piece *piece = &pieces->piece[i];
        const tri_ckpt_tensor *tensor = tri_manifest_find(m, piece->name);
        if (tensor && !same_shape(tensor, &piece->region))
            return other_shape(ckpt, tensor, piece, err);
        if (tensor)
            continue;
        if (piece->kind == TRI_CKPT_MOMENT)
            return other_optimizer(ckpt, "holds no", piece->name, err);
        return other_names(ckpt, "holds no", piece->name, err);
    }
    for (size_t t = 0; t < m->num_tensors; t++) {
        const char *name = m->tensors[t].name;
        bool moment = m->tensors[t].kind == TRI_CKPT_MOMENT;
        tri_id param = moment ? param_of_moment(&session->params, name)
                              : tri_param_find(&session->params, name);
        if (param == TRI_NONE)
            return other_names(ckpt, "this model has no", name, err);
        bool mine = find_piece(pieces, session->params.items[param].name) != NULL;
        if (moment && mine && !find_piece(pieces, name))
            return other_optimizer(ckpt, "holds", name, err);
    }
    return TR_OK;
}

/* What decides which samples come next. */
static tr_status check_cursor(const tri_session *session, const tri_checkpoint *ckpt, tr_error *err)
{
    const tri_session_config *config = &session->config;
    const struct {
        const char *number, *setting;
        int64_t now;
    } rows[] = {{"seed", "run.seed", (int64_t)config->seed},
                {"batch", "train.batch", config->compile.batch},
                {"seq_len", "data.seq_len", config->compile.seq_len}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double was = tri_manifest_number(&ckpt->manifest, rows[i].number, (double)rows[i].now);
        if (was != (double)rows[i].now)
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: was made with %s=%.0f, and now it is %" PRId64
                            "; samples would be lost or come twice. Set it to %.0f, or begin a new "
                            "run with its weights: model.from=%s",
                            ckpt->path, rows[i].setting, was, rows[i].now, was, ckpt->path);
    }
    return TR_OK;
}

/* ---- filling the memory ---- */

static tr_status load_piece(const tri_session *session, tri_checkpoint *ckpt,
                            const tri_piece *piece, float *room, tr_error *err)
{
    tri_region part = piece->region;
    for (int64_t at = 0; at < piece->region.count; at += part.count) {
        int64_t left = piece->region.count - at;
        part.first = piece->region.first + at;
        part.count = left < CHUNK ? left : CHUNK;
        TRI_TRY(tri_checkpoint_read(ckpt, piece->name, &part, room, err));
        TRI_TRY(
            tri_piece_write(session, piece, at, part.count, room, (uint16_t *)(room + CHUNK), err));
    }
    return TR_OK;
}

static tr_status load_numbers(tri_session *session, const tri_checkpoint *ckpt, tr_error *err)
{
    const tri_manifest *m = &ckpt->manifest;
    session->step = m->step;
    session->skipped = (int64_t)tri_manifest_number(m, "skipped", 0);
    session->skipped_row = (int64_t)tri_manifest_number(m, "skipped_row", 0);
    session->spikes = (tri_spikes){0};
    for (int i = 0; i < TRI_SPIKE_WINDOW; i++) {
        double loss = tri_manifest_number(m, tri_checkpoint_loss_names[i], NAN);
        if (isfinite(loss))
            tri_spikes_add(&session->spikes, (float)loss);
    }
    tri_id value = tri_checkpoint_scaler(session);
    double scale = tri_manifest_number(m, "loss_scale", 0);
    if (value == TRI_NONE || scale <= 0)
        return TR_OK; /* it was made in another precision: the scale begins as ever */
    float scaler[TRI_NUM_SCALER] = {[TRI_SCALER_SCALE] = (float)scale,
                                    [TRI_SCALER_GOOD] =
                                        (float)tri_manifest_number(m, "loss_scale_good_steps", 0)};
    return tri_executor_write(&session->executors[TRI_PROGRAM_TRAIN], value, scaler, err);
}

/* All pieces. Ranks may have more or less of them to read. */
static tr_status load_pieces(const tri_session *session, tri_ranks *ranks, tri_checkpoint *ckpt,
                             const tri_pieces *pieces, float *room, tr_error *err)
{
    int64_t *done = calloc((size_t)ranks->size, sizeof *done);
    tr_status status =
        done ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", ranks->size);
    size_t i = 0;
    bool all = false;
    while (status == TR_OK && !all) {
        double end = (double)ckpt->bytes_read + TRI_CHECKPOINT_ROUND_BYTES;
        while (status == TR_OK && i < pieces->num && (double)ckpt->bytes_read < end)
            status = load_piece(session, ckpt, &pieces->piece[i++], room, err);
        if (status == TR_OK)
            status = tri_checkpoint_gather(ranks, i == pieces->num, done, err);
        all = true;
        for (int r = 0; r < ranks->size; r++)
            all &= done[r] != 0;
    }
    free(done);
    return status;
}

static tr_status load_state(tri_session *session, tri_ranks *ranks, tri_checkpoint *ckpt,
                            tr_error *err)
{
    tri_pieces pieces;
    float *room = malloc((size_t)CHUNK * (sizeof(float) + sizeof(uint16_t)));
    tr_status status = tri_pieces_list(session, &pieces, err);
    if (status == TR_OK && !room)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory to load %s", ckpt->path);
    if (status == TR_OK)
        status = check_tensors(session, ckpt, &pieces, err);
    if (status == TR_OK)
        status = check_cursor(session, ckpt, err);
    if (status == TR_OK)
        status = load_pieces(session, ranks, ckpt, &pieces, room, err);
    if (status == TR_OK)
        status = load_numbers(session, ckpt, err);
    tri_pieces_free(&pieces);
    free(room);
    return status;
}

/* ---- going on ---- */

static tr_status note_numbers(tri_resumed *resumed, const tri_manifest *m, tr_error *err)
{
    enum { MOST = sizeof resumed->numbers / sizeof *resumed->numbers };
    for (size_t i = 0; i < m->num_numbers && resumed->num_numbers < MOST; i++) {
        char *name = strdup(m->numbers[i].name);
        if (!name)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the numbers of a checkpoint");
        resumed->numbers[resumed->num_numbers++] = (tri_ckpt_number){name, m->numbers[i].value};
    }
    return TR_OK;
}

/* Blocks of a code begin where a rank's piece begins, and tp alone cuts pieces. */
static int encoded_from(const tri_session *session, const tri_manifest *m)
{
    double tp = tri_manifest_number(m, "coded_tp", 0);
    bool same = tp == (double)tri_mesh_size(&session->config.compile.mesh, TRI_AXIS_TP);
    return same || !tri_checkpoint_codes(session) ? -1 : (int)tp;
}

static tr_status note(tri_resumed *resumed, const tri_session *session, const tri_checkpoint *ckpt,
                      tr_error *err)
{
    resumed->found = true;
    resumed->step = ckpt->manifest.step;
    resumed->encoded_from = encoded_from(session, &ckpt->manifest);
    resumed->path = strdup(ckpt->path);
    if (!resumed->path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", ckpt->path);
    return note_numbers(resumed, &ckpt->manifest, err);
}

static tr_status load_open(tri_session *session, tri_ranks *ranks, tri_checkpoint *ckpt,
                           tri_resumed *resumed, tr_error *err)
{
    tr_status status = load_state(session, ranks, ckpt, err);
    if (status == TR_OK)
        status = note(resumed, session, ckpt, err);
    tri_checkpoint_close(ckpt);
    return status;
}

/* Checkpoints that were found damaged, newest first. */
typedef struct damaged_list {
    struct damaged {
        int64_t step;
        char *why;
    } * item;
    size_t num, capacity;
} damaged_list;

static void free_damaged(damaged_list *list)
{
    for (size_t i = 0; i < list->num; i++)
        free(list->item[i].why);
    free(list->item);
}

static tr_status add_damaged(damaged_list *list, int64_t step, const char *why, tr_error *err)
{
    struct damaged *grown =
        tri_array_grow(list->item, list->num, &list->capacity, sizeof *list->item);
    char *copy = strdup(why);
    if (grown)
        list->item = grown;
    if (!grown || !copy) {
        free(copy);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of checkpoints");
    }
    list->item[list->num++] = (struct damaged){step, copy};
    return TR_OK;
}

static void add_note(tri_resumed *resumed, const char *aside, const char *why)
{
    tri_text text;
    tri_text_init(&text);
    if (resumed->note)
        tri_text_add(&text, "%s\n", resumed->note);
    tri_text_add(&text, "set aside as %s: %s", aside, why);
    free(resumed->note);
    resumed->note = text.chars;
}

typedef struct renaming {
    const char *dir;
    const damaged_list *list;
    tri_resumed *resumed;
} renaming;

static tr_status rename_all(void *context, tr_error *err)
{
    renaming *r = context;
    for (size_t i = 0; i < r->list->num; i++) {
        char *aside = NULL;
        tr_status status = tri_ckpt_set_aside(r->dir, r->list->item[i].step, &aside, err);
        if (aside)
            add_note(r->resumed, aside, r->list->item[i].why);
        free(aside);
        TRI_TRY(status);
    }
    return TR_OK;
}

/* What rank 0 sees in the directory, instead of a step. */
enum { NONE = -1, UNREADABLE = -2, ALL_ASIDE = -3 };

/* The newest step before `below` that rank 0 sees, NONE, or ALL_ASIDE: none, but some that were set
 * aside once. */
static tr_status newest(tri_ranks *ranks, const char *dir, int64_t below, int64_t *step,
                        tr_error *err)
{
    tri_ckpt_steps steps = {0};
    tr_status status = TR_OK;
    int64_t own = UNREADABLE, *all = calloc((size_t)ranks->size, sizeof *all);
    if (ranks->rank == 0)
        status = tri_ckpt_steps_read(&steps, dir, err);
    if (status == TR_OK)
        own = steps.num_damaged > 0 ? ALL_ASIDE : NONE;
    for (size_t i = steps.num; i-- > 0;)
        own = steps.step[i] < below ? steps.step[i] : own;
    tri_ckpt_steps_free(&steps);
    tr_status gathered = all ? tri_checkpoint_gather(ranks, own, all, status == TR_OK ? err : NULL)
                             : tri_fail(err, TR_ERROR_RUNTIME, "no memory for %s", dir);
    *step = all ? all[0] : NONE;
    free(all);
    TRI_TRY(status);
    TRI_TRY(gathered);
    return *step == UNREADABLE ? tri_fail(err, TR_ERROR_RUNTIME, "%s: rank 0 cannot read it", dir)
                               : TR_OK;
}

tr_status tri_checkpoint_none_whole(const char *dir, const char *why, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "%s: holds checkpoints, and none of them is whole%s%s; the run was not begun "
                    "anew. Copy a whole one there and start it again; or begin anew with --set "
                    "run.resume=false, which keeps what is there under another name; or give "
                    "another run.dir",
                    dir, why ? ": " : "", why ? why : "");
}

static tr_status resume_from(tri_session *session, tri_ranks *ranks, const char *dir,
                             damaged_list *damaged, tri_resumed *resumed, tr_error *err)
{
    for (int64_t step = INT64_MAX;;) {
        TRI_TRY(newest(ranks, dir, step, &step, err));
        if (step < 0 && (step == ALL_ASIDE || damaged->num > 0))
            return tri_checkpoint_none_whole(dir, damaged->num > 0 ? damaged->item[0].why : NULL,
                                             err);
        if (step < 0)
            return TR_OK;
        char *path = tri_ckpt_path(dir, step);
        if (!path)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
        tri_checkpoint ckpt;
        tr_error why = {0};
        tr_status status = tri_checkpoint_open_together(ranks, path, &ckpt, &why);
        free(path);
        if (status == TR_ERROR_DAMAGED) {
            TRI_TRY(add_damaged(damaged, step, why.message, err));
            continue;
        }
        if (status != TR_OK)
            return tri_fail(err, status, "%s", why.message);
        TRI_TRY(load_open(session, ranks, &ckpt, resumed, err));
        /* The run will write the steps of those that are damaged again. */
        renaming renaming = {dir, damaged, resumed};
        return damaged->num > 0 ? tri_ranks_patiently(ranks, rename_all, &renaming, err) : TR_OK;
    }
}

tr_status tri_checkpoint_none(const char *dir, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT,
                    "run.resume is true, but %s holds no checkpoint; set run.resume=auto to begin "
                    "anew then, or give the run.dir of the run to continue",
                    dir);
}

tr_status tri_checkpoint_resume(tri_session *session, tri_ranks *ranks, const char *run_dir,
                                bool must, tri_resumed *resumed, tr_error *err)
{
    *resumed = (tri_resumed){0};
    char *dir = tri_checkpoint_dir(run_dir);
    if (!dir)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    damaged_list damaged = {0};
    tr_status status = resume_from(session, ranks, dir, &damaged, resumed, err);
    free_damaged(&damaged);
    if (status == TR_OK && must && !resumed->found)
        status = tri_checkpoint_none(dir, err);
    free(dir);
    return status;
}

tr_status tri_checkpoint_load(tri_session *session, tri_ranks *ranks, const char *path,
                              tri_resumed *resumed, tr_error *err)
{
    *resumed = (tri_resumed){0};
    char *at = NULL;
    TRI_TRY(tri_checkpoint_locate_together(ranks, path, &at, err));
    tri_checkpoint ckpt;
    tr_status status = tri_checkpoint_open_together(ranks, at, &ckpt, err);
    free(at);
    return status == TR_OK ? load_open(session, ranks, &ckpt, resumed, err) : status;
}

double tri_resumed_number(const tri_resumed *resumed, const char *name, double otherwise)
{
    for (size_t i = 0; i < resumed->num_numbers; i++)
        if (strcmp(resumed->numbers[i].name, name) == 0)
            return resumed->numbers[i].value;
    return otherwise;
}

void tri_resumed_fini(tri_resumed *resumed)
{
    for (size_t i = 0; i < resumed->num_numbers; i++)
        free((char *)(uintptr_t)resumed->numbers[i].name);
    free(resumed->path);
    free(resumed->note);
    *resumed = (tri_resumed){0};
}
