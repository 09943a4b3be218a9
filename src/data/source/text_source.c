/* Text as plain bytes, read where it lies.
 *
 * The files are mapped, never copied whole; together they are one long run of bytes, which
 * data/source/windows.h divides, or data/source/packed.h packs. Each file is a document. */
#include "base/fs.h"
#include "base/text.h"
#include "data/source/packed.h"
#include "data/source/source.h"
#include "data/source/windows.h"

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
    tri_windows windows;
    bool mask_documents, pack;
    tri_packed packed; /* where pack is true, instead of the windows */
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
static void copy_window(const text *t, uint64_t begin, const tri_row *row)
{
    size_t f = file_at(t, begin), first = f;
    uint64_t in_file = begin - t->file[f].begin, seq_len = t->windows.seq_len;
    tri_documents documents = {.row = row, .on = t->mask_documents};
    for (uint64_t i = 0; i <= seq_len; i++, in_file++) {
        if (in_file == t->file[f].mapping.num_bytes) {
            f++;
            in_file = 0;
        }
        int32_t token = t->file[f].mapping.data[in_file];
        if (i > 0)
            row->targets[i - 1] = token;
        if (i < seq_len) {
            row->tokens[i] = token;
            tri_documents_put(&documents, i, (int32_t)(f - first));
        }
    }
}

/* Bytes begin .. begin + num - 1, for packed rows. */
static void copy_bytes(const void *state, uint64_t begin, uint64_t num, int32_t *out)
{
    const text *t = state;
    const text_file *file = &t->file[file_at(t, begin)]; /* a piece lies in one */
    for (uint64_t i = 0; i < num; i++)
        out[i] = file->mapping.data[begin - file->begin + i];
}

static uint64_t text_window(const void *state, tri_split split, uint64_t sample)
{
    const text *t = state;
    return t->pack ? tri_packed_number(&t->packed, split, sample)
                   : tri_windows_number(&t->windows, split, sample);
}

static void text_row(const void *state, tri_split split, uint64_t sample, const tri_row *row)
{
    const text *t = state;
    if (t->pack)
        tri_packed_row(&t->packed, t, split, sample, row);
    else
        copy_window(t, tri_windows_begin(&t->windows, split, sample), row);
}

static int64_t text_num_windows(const void *state, tri_split split)
{
    const text *t = state;
    if (t->pack)
        return (int64_t)t->packed.num_rows[split];
    return (int64_t)(split == TRI_SPLIT_TRAIN ? t->windows.num_train : t->windows.num_eval);
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
    char size[32], files[32], rows[160];
    size_text(t->total_bytes, size);
    snprintf(out, out_size, "%s of text in %s file%s, bytes, %s", size,
             tri_text_grouped((int64_t)t->num_files, files), t->num_files == 1 ? "" : "s",
             t->pack ? tri_packed_describe(&t->packed, rows, sizeof rows)
                     : tri_windows_describe(&t->windows, rows, sizeof rows));
}

static void text_destroy(void *state)
{
    text *t = state;
    if (!t)
        return;
    for (size_t i = 0; i < t->num_files; i++)
        tri_mapping_close(&t->file[i].mapping);
    tri_packed_fini(&t->packed);
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
        return tri_fail_missing(err, source,
                                "data.source must name a text file, a directory of them, or be "
                                "synthetic");
    t->file = calloc(1, sizeof *t->file);
    if (!t->file)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", source);
    TRI_TRY(add_file(t, source, err));
    if (t->total_bytes == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the file is empty; data.source must name a file with text", source);
    return TR_OK;
}

static tr_status pack_files(text *t, const tri_data_config *config, tr_error *err)
{
    TRI_TRY(tri_packed_init(&t->packed, config, &t->windows, err));
    t->packed.copy = copy_bytes;
    for (size_t i = 1; i < t->num_files; i++)
        TRI_TRY(tri_packed_cut(&t->packed, t->file[i].begin, err));
    return tri_packed_end(&t->packed, err);
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
    t->mask_documents = config->mask_documents;
    t->pack = config->pack;
    tr_status status = add_source(t, config->source, err);
    if (status == TR_OK)
        status = tri_windows_cut(&t->windows, config, t->total_bytes, 0, "bytes", err);
    if (status == TR_OK && t->pack)
        status = pack_files(t, config, err);
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
