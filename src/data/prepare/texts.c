#include "data/prepare/texts.h"
#include "base/checksum.h"
#include "base/fs.h"
#include "data/prepare/shard.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { UNIT_BYTES = 64 * 1024 };

typedef struct input_file {
    char *path;
    uint64_t num_bytes;
    int64_t changed_ns;
} input_file;

struct tri_texts {
    const tri_tokenizer *tokenizer;
    input_file *file;
    size_t num_files, capacity;
    size_t next;       /* file to open next */
    uint64_t consumed; /* bytes of the files that are done */
    uint64_t documents;
    /* The file being read, one of: */
    tri_reader *reader;
    tri_lines *lines;
    tri_bytes carry; /* of a text: what came after the last cut */
    bool continues;  /* and it is not the beginning of the document */
};

/* ---- which files ---- */

static tr_status add_file(tri_texts *t, const char *path, tr_error *err)
{
    if (t->num_files == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 16;
        input_file *grown = realloc(t->file, capacity * sizeof *grown);
        if (!grown)
            return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
        t->file = grown;
        t->capacity = capacity;
    }
    struct stat info;
    if (stat(path, &info) != 0)
        return tri_fail_missing(err, path,
                                "name files of text or JSONL (.gz and .zst too), or directories of "
                                "them");
    if (tri_shard_is_file(path))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: is a token shard already; train on it with data.source", path);
    input_file file = {strdup(path), S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0,
                       (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec};
    if (!file.path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    t->file[t->num_files++] = file;
    return TR_OK;
}

static tr_status add_input(tri_texts *t, const char *path, tr_error *err)
{
    if (!tri_path_is_dir(path))
        return add_file(t, path, err);
    tri_file_list list;
    TRI_TRY(tri_file_list_read(&list, path, err));
    tr_status status = TR_OK;
    if (list.num == 0)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: the directory holds no files (links, hidden files and "
                          "subdirectories do not count)",
                          path);
    for (size_t i = 0; status == TR_OK && i < list.num; i++) {
        char *name = tri_path_join(path, list.name[i]);
        status = name ? add_file(t, name, err)
                      : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
        free(name);
    }
    tri_file_list_free(&list);
    return status;
}

tr_status tri_texts_open(const char *const *inputs, int num_inputs, const tri_tokenizer *tokenizer,
                         tri_texts **texts, tr_error *err)
{
    tri_texts *t = *texts = calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of files");
    t->tokenizer = tokenizer;
    tr_status status = TR_OK;
    for (int i = 0; status == TR_OK && i < num_inputs; i++)
        status = add_input(t, inputs[i], err);
    if (status != TR_OK) {
        tri_texts_close(t);
        *texts = NULL;
    }
    return status;
}

void tri_texts_close(tri_texts *t)
{
    if (!t)
        return;
    tri_reader_close(t->reader);
    tri_lines_close(t->lines);
    tri_bytes_fini(&t->carry);
    for (size_t i = 0; i < t->num_files; i++)
        free(t->file[i].path);
    free(t->file);
    free(t);
}

uint64_t tri_texts_num_files(const tri_texts *t)
{
    return t->num_files;
}

const char *tri_texts_file(const tri_texts *t, uint64_t i)
{
    return t->file[i].path;
}

uint64_t tri_texts_total(const tri_texts *t)
{
    uint64_t total = 0;
    for (size_t i = 0; i < t->num_files; i++)
        total += t->file[i].num_bytes;
    return total;
}

uint64_t tri_texts_consumed(const tri_texts *t)
{
    uint64_t now = t->reader ? tri_reader_consumed(t->reader) : 0;
    return t->consumed + (t->lines ? tri_lines_consumed(t->lines) : now);
}

uint64_t tri_texts_fingerprint(const tri_texts *t)
{
    tri_checksum hash;
    tri_checksum_init(&hash);
    for (size_t i = 0; i < t->num_files; i++) {
        const input_file *file = &t->file[i];
        tri_checksum_add(&hash, file->path, strlen(file->path) + 1);
        tri_checksum_add(&hash, &file->num_bytes, sizeof file->num_bytes);
        tri_checksum_add(&hash, &file->changed_ns, sizeof file->changed_ns);
    }
    return tri_checksum_end(&hash);
}

/* ---- units ---- */

void tri_unit_fini(tri_unit *unit)
{
    tri_bytes_fini(&unit->text);
    free(unit->piece);
    *unit = (tri_unit){0};
}

static tr_status out_of_memory(const tri_unit *unit, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", unit->path);
}

static tr_status add_piece(tri_unit *unit, tri_text_piece piece, tr_error *err)
{
    if (unit->num == unit->capacity) {
        size_t capacity = unit->capacity ? 2 * unit->capacity : 16;
        tri_text_piece *grown = realloc(unit->piece, capacity * sizeof *grown);
        if (!grown)
            return out_of_memory(unit, err);
        unit->piece = grown;
        unit->capacity = capacity;
    }
    unit->piece[unit->num++] = piece;
    return TR_OK;
}

static void end_file(tri_texts *t)
{
    t->consumed = tri_texts_consumed(t);
    tri_reader_close(t->reader);
    tri_lines_close(t->lines);
    t->reader = NULL;
    t->lines = NULL;
}

static tr_status next_lines(tri_texts *t, tri_unit *unit, tr_error *err)
{
    tri_line line;
    while (unit->text.num < UNIT_BYTES) {
        TRI_TRY(tri_lines_next(t->lines, &line, err));
        if (!line.text) {
            end_file(t);
            return TR_OK;
        }
        if (tri_line_is_blank(&line))
            continue;
        TRI_TRY(add_piece(unit,
                          (tri_text_piece){.begin = unit->text.num,
                                           .num_bytes = line.num_bytes,
                                           .document = t->documents++,
                                           .line = line.number,
                                           .ends = true},
                          err));
        tri_bytes_add(&unit->text, line.text, line.num_bytes);
        if (unit->text.failed)
            return out_of_memory(unit, err);
    }
    return TR_OK;
}

/* Makes text at least target bytes long, unless the file ends before. */
static tr_status read_up_to(tri_texts *t, tri_unit *unit, size_t target, bool *ended, tr_error *err)
{
    char block[32768];
    size_t num = 1;
    while (unit->text.num < target && num > 0) {
        TRI_TRY(tri_reader_read(t->reader, block, sizeof block, &num, err));
        tri_bytes_add(&unit->text, block, num);
        if (unit->text.failed)
            return out_of_memory(unit, err);
    }
    *ended = num == 0;
    return TR_OK;
}

/* The end of the last whole character, for texts that are only looked at. */
static size_t cut_between_chars(const tri_bytes *text)
{
    size_t at = text->num;
    while (at > 0 && at + 4 > text->num && ((unsigned char)text->data[at - 1] & 0xC0) == 0x80)
        at--;
    return at > 0 ? at - 1 : 0; /* before the last beginning of a character */
}

static tr_status next_text(tri_texts *t, tri_unit *unit, tr_error *err)
{
    bool ended = false;
    tri_bytes_add(&unit->text, t->carry.data, t->carry.num);
    t->carry.num = 0;
    size_t cut = 0;
    for (size_t target = UNIT_BYTES; !ended && cut == 0; target *= 2) {
        TRI_TRY(read_up_to(t, unit, target, &ended, err));
        if (!ended)
            cut = t->tokenizer ? tri_tokenizer_cut(t->tokenizer, unit->text.data, unit->text.num)
                               : cut_between_chars(&unit->text);
    }
    if (ended)
        cut = unit->text.num;
    if (unit->text.num > cut) /* an empty file has no address to add to */
        tri_bytes_add(&t->carry, unit->text.data + cut, unit->text.num - cut);
    if (t->carry.failed)
        return out_of_memory(unit, err);
    unit->text.num = cut;
    tr_status status = TR_OK;
    if (cut > 0)
        status = add_piece(unit,
                           (tri_text_piece){.num_bytes = cut,
                                            .document = t->documents,
                                            .continues = t->continues,
                                            .ends = ended},
                           err);
    t->continues = !ended;
    if (ended) {
        t->documents += cut > 0; /* an empty file is no document */
        end_file(t);
    }
    return status;
}

tr_status tri_texts_next(tri_texts *t, tri_unit *unit, tr_error *err)
{
    unit->num = unit->text.num = 0;
    while (unit->num == 0) {
        if (!t->reader && !t->lines) {
            if (t->next == t->num_files)
                return TR_OK;
            const char *path = t->file[t->next++].path;
            TRI_TRY(tri_is_jsonl_name(path) ? tri_lines_open(path, &t->lines, err)
                                            : tri_reader_open(path, &t->reader, err));
        }
        unit->path = t->file[t->next - 1].path;
        TRI_TRY(t->lines ? next_lines(t, unit, err) : next_text(t, unit, err));
    }
    return TR_OK;
}

tr_status tri_unit_text(const tri_unit *unit, const tri_text_piece *piece, const char *field,
                        const char **text, size_t *num_bytes, json_t **object, tr_error *err)
{
    *object = NULL;
    *text = unit->text.data + piece->begin;
    *num_bytes = piece->num_bytes;
    if (piece->line == 0)
        return TR_OK;
    tri_line line = {*text, *num_bytes, piece->line};
    TRI_TRY(tri_json_line_parse(unit->path, &line, object, err));
    return tri_json_line_text(unit->path, piece->line, *object, field, text, num_bytes, err);
}
