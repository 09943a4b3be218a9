/* Text as plain bytes, read where it lies.
 *
 * The files are mapped, never copied whole; together they are one long run of bytes:
 *
 *     |phase| window 0 | window 1 | ...  | window W-1 |  rest  |   evaluation windows    | rest |
 *     0 ------------------------------------------- train_bytes ------------------- total_bytes
 *
 * A window is seq_len tokens; its last target is the first byte after it, which may be the first
 * token of the next. In every epoch the phase is another one, so that what is cut apart in one is
 * whole in another, and all W windows come once, in another order. W is the same for every phase
 * (one fewer than would fit with the best), which makes epoch = sample / W. */
#include "base/fs.h"
#include "base/rng.h"
#include "data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_BYTE_VALUES = 256 };

typedef struct text_file {
    tri_mapping mapping;
    uint64_t begin; /* of its first byte within the whole text */
} text_file;

typedef struct text {
    text_file *file; /* in order; none is empty */
    size_t num_files;
    uint64_t total_bytes;
    uint64_t train_bytes;
    uint64_t seq_len;
    uint64_t seed;
    uint64_t num_train, num_eval; /* windows */
    uint64_t num_phases;          /* the phase of an epoch is in [0, num_phases) */
} text;

static size_t file_at(const text *t, uint64_t position)
{
    size_t low = 0, high = t->num_files - 1;
    while (low < high) {
        size_t middle = high - (high - low) / 2;
        if (t->file[middle].begin <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Bytes begin .. begin + seq_len as tokens and targets, across as many files as they lie in. */
static void copy_window(const text *t, uint64_t begin, int32_t *tokens, int32_t *targets)
{
    size_t f = file_at(t, begin);
    uint64_t in_file = begin - t->file[f].begin;
    for (uint64_t i = 0; i <= t->seq_len; i++, in_file++) {
        if (in_file == t->file[f].mapping.num_bytes) {
            f++;
            in_file = 0;
        }
        int32_t token = t->file[f].mapping.data[in_file];
        if (i < t->seq_len)
            tokens[i] = token;
        if (i > 0)
            targets[i - 1] = token;
    }
}

static uint64_t text_window(const void *state, tri_split split, uint64_t sample)
{
    const text *t = state;
    if (split == TRI_SPLIT_EVAL)
        return sample % t->num_eval;
    return tri_data_shuffle(t->seed, sample / t->num_train, t->num_train, sample % t->num_train);
}

static void text_row(const void *state, tri_split split, uint64_t sample, const tri_row *row)
{
    const text *t = state;
    uint64_t begin = text_window(t, split, sample) * t->seq_len;
    if (split == TRI_SPLIT_EVAL) {
        copy_window(t, t->train_bytes + begin, row->tokens, row->targets);
        return;
    }
    uint32_t word[4];
    tri_philox(t->seed, sample / t->num_train, 0, tri_stream("data", "phase"), word);
    uint64_t phase = ((uint64_t)word[0] << 32 | word[1]) % t->num_phases;
    copy_window(t, phase + begin, row->tokens, row->targets);
}

static int64_t text_num_windows(const void *state, tri_split split)
{
    const text *t = state;
    return (int64_t)(split == TRI_SPLIT_TRAIN ? t->num_train : t->num_eval);
}

/* "812 bytes", "268 KiB", "1.5 MiB" */
static void size_text(uint64_t bytes, char out[32])
{
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(out, 32, "%d bytes", (int)bytes);
        return;
    }
    double value = (double)bytes / 1024;
    int u = 0;
    while (value >= 1024 && u < 5) {
        value /= 1024;
        u++;
    }
    snprintf(out, 32, value < 10 && u > 0 ? "%.1f %s" : "%.0f %s", value, unit[u]);
}

static void text_describe(const void *state, char *out, size_t out_size)
{
    const text *t = state;
    char size[32], files[32], train[32], eval[32], evaluation[64] = "";
    size_text(t->total_bytes, size);
    if (t->num_eval > 0)
        snprintf(evaluation, sizeof evaluation, ", %s more for evaluation",
                 tri_data_grouped((int64_t)t->num_eval, eval));
    snprintf(out, out_size, "%s of text in %s file%s, bytes, %s window%s of %llu%s", size,
             tri_data_grouped((int64_t)t->num_files, files), t->num_files == 1 ? "" : "s",
             tri_data_grouped((int64_t)t->num_train, train), t->num_train == 1 ? "" : "s",
             (unsigned long long)t->seq_len, evaluation);
}

static void text_destroy(void *state)
{
    text *t = state;
    if (!t)
        return;
    for (size_t i = 0; i < t->num_files; i++)
        tri_mapping_close(&t->file[i].mapping);
    free(t->file);
    free(t);
}

/* Maps one more file; there is room in the table. */
static tr_status add_file(text *t, const char *path, tr_error *err)
{
    tri_mapping mapping;
    TRI_TRY(tri_mapping_open(&mapping, path, err));
    if (mapping.num_bytes == 0)
        return TR_OK;
    t->file[t->num_files++] = (text_file){.mapping = mapping, .begin = t->total_bytes};
    t->total_bytes += mapping.num_bytes;
    return TR_OK;
}

static tr_status add_directory(text *t, const char *dir, const tri_file_list *list, tr_error *err)
{
    t->file = calloc(list->num + 1, sizeof *t->file);
    if (!t->file)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    for (size_t i = 0; i < list->num; i++) {
        char *path = tri_path_join(dir, list->name[i]);
        tr_status status = path ? add_file(t, path, err)
                                : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
        free(path);
        TRI_TRY(status);
    }
    if (t->total_bytes == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the directory holds no text; data.source must name a text file or a "
                        "directory of them (links, hidden files and subdirectories do not count)",
                        dir);
    return TR_OK;
}

static tr_status add_source(text *t, const char *source, tr_error *err)
{
    if (tri_path_is_dir(source)) {
        tri_file_list list;
        TRI_TRY(tri_file_list_read(&list, source, err));
        tr_status status = add_directory(t, source, &list, err);
        tri_file_list_free(&list);
        return status;
    }
    if (!tri_path_exists(source))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: cannot be found; data.source must name a text file, a "
                        "directory of them, or be synthetic",
                        source);
    t->file = calloc(1, sizeof *t->file);
    if (!t->file)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", source);
    TRI_TRY(add_file(t, source, err));
    if (t->total_bytes == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the file is empty; data.source must name a file with text", source);
    return TR_OK;
}

/* Divides the text into the two splits and these into windows. */
static tr_status cut(text *t, const tri_data_config *config, tr_error *err)
{
    const uint64_t need = t->seq_len + 1; /* the last token of a window has a target too */
    bool has_eval = config->eval_fraction > 0;
    if (t->total_bytes < (has_eval ? 2 : 1) * need)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the text has %llu bytes, but windows of data.seq_len = %llu need at "
                        "least %llu%s; lower data.seq_len%s or give more text",
                        config->source, (unsigned long long)t->total_bytes,
                        (unsigned long long)t->seq_len,
                        (unsigned long long)((has_eval ? 2 : 1) * need),
                        has_eval ? " (one to train on and one to evaluate)" : "",
                        has_eval ? ", set data.eval_fraction to 0" : "");
    uint64_t eval_bytes = 0;
    if (has_eval) {
        eval_bytes = (uint64_t)(config->eval_fraction * (double)t->total_bytes);
        if (eval_bytes < need)
            eval_bytes = need;
        t->num_eval = (eval_bytes - 1) / t->seq_len;
    }
    if (t->total_bytes < eval_bytes + need)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: of %llu bytes of text, data.eval_fraction = %g leaves %llu to train "
                        "on, but a window of data.seq_len = %llu needs %llu; lower one of the two",
                        config->source, (unsigned long long)t->total_bytes, config->eval_fraction,
                        (unsigned long long)(t->total_bytes - eval_bytes),
                        (unsigned long long)t->seq_len, (unsigned long long)need);
    t->train_bytes = t->total_bytes - eval_bytes;
    t->num_train = t->train_bytes < 2 * t->seq_len ? 1 : t->train_bytes / t->seq_len - 1;
    t->num_phases = t->train_bytes - t->num_train * t->seq_len;
    return TR_OK;
}

tr_status tri_text_source_create(const tri_data_config *config, tri_data_source *source,
                                 tr_error *err)
{
    if (config->vocab != 0 && config->vocab < NUM_BYTE_VALUES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.vocab is %lld, but text is read as bytes and needs at least %d; set "
                        "model.vocab to %d",
                        (long long)config->vocab, NUM_BYTE_VALUES, NUM_BYTE_VALUES);
    text *t = calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    t->seq_len = (uint64_t)config->seq_len;
    t->seed = config->seed;
    tr_status status = add_source(t, config->source, err);
    if (status == TR_OK)
        status = cut(t, config, err);
    if (status != TR_OK) {
        text_destroy(t);
        return status;
    }
    *source = (tri_data_source){.state = t,
                                .vocab_needed = NUM_BYTE_VALUES,
                                .row = text_row,
                                .num_windows = text_num_windows,
                                .window = text_window,
                                .describe = text_describe,
                                .destroy = text_destroy};
    return TR_OK;
}
