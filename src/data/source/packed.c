#include "data/source/packed.h"
#include "base/arena.h"
#include "base/text.h"
#include "data/source/pack.h"
#include "data/source/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pieces that are packed together: enough that the last rows, which are not full, do not count, and
 * few enough that what packing needs for a while (some 40 bytes each) is little. */
enum { PACK_WINDOW = 1 << 18 };

/* A piece is one word: where it begins, and its length less one. */
enum { LENGTH_BITS = 20 };
static const uint64_t most_length = (uint64_t)1 << LENGTH_BITS;
static const uint64_t most_units = (uint64_t)1 << (64 - LENGTH_BITS);

static uint64_t piece_begin(uint64_t piece)
{
    return piece >> LENGTH_BITS;
}

static uint64_t piece_length(uint64_t piece)
{
    return (piece & (most_length - 1)) + 1;
}

static tr_status no_memory(const tri_packed *p, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "%s: out of memory for the places of its documents (data.pack)", p->source);
}

tr_status tri_packed_init(tri_packed *p, const tri_data_config *config, const tri_windows *windows,
                          tr_error *err)
{
    *p = (tri_packed){.source = config->source,
                      .separator = -1,
                      .seq_len = windows->seq_len,
                      .seed = windows->seed,
                      .end = {windows->train, windows->total}};
    if (p->seq_len <= most_length && windows->total <= most_units)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: data.pack takes rows of at most %llu tokens (data.seq_len is %llu) and "
                    "at most %llu tokens in all; set data.pack=false",
                    config->source, (unsigned long long)most_length, (unsigned long long)p->seq_len,
                    (unsigned long long)most_units);
}

void tri_packed_fini(tri_packed *p)
{
    free(p->piece);
    free(p->row_begin);
    *p = (tri_packed){0};
}

/* ---- packing ---- */

/* Sorts pieces by length, the longest first; equal ones stay in order. */
static bool sort_pieces(uint64_t *piece, size_t num, uint64_t seq_len)
{
    size_t *at = calloc(seq_len + 1, sizeof *at);
    uint64_t *sorted = malloc(num * sizeof *sorted);
    bool done = at && sorted;
    if (done) {
        for (size_t i = 0; i < num; i++)
            at[seq_len - piece_length(piece[i]) + 1]++;
        for (uint64_t l = 0; l < seq_len; l++)
            at[l + 1] += at[l];
        for (size_t i = 0; i < num; i++)
            sorted[at[seq_len - piece_length(piece[i])]++] = piece[i];
        memcpy(piece, sorted, num * sizeof *sorted);
    }
    free(at);
    free(sorted);
    return done;
}

/* Adds rows that begin at begin[0 .. num). */
static bool add_rows(tri_packed *p, const size_t *begin, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        size_t *grown =
            tri_array_grow(p->row_begin, p->rows, &p->rows_capacity, sizeof *p->row_begin);
        if (!grown)
            return false;
        p->row_begin = grown;
        grown[p->rows++] = begin[i];
    }
    return true;
}

/* What pack_window needs, all of it as long as the window. */
typedef struct pack_memory {
    int32_t *places;
    uint32_t *order;
    size_t *begin;
    uint64_t *sorted;
} pack_memory;

static bool pack_sorted(tri_packed *p, uint64_t *piece, size_t num, const pack_memory *m)
{
    for (size_t i = 0; i < num; i++) {
        m->places[i] = (int32_t)piece_length(piece[i]);
        m->order[i] = (uint32_t)i;
    }
    size_t rows = tri_pack(m->places, m->order, num, (int64_t)p->seq_len, p->num_done, m->begin);
    for (size_t i = 0; i < num; i++)
        m->sorted[i] = piece[m->order[i]];
    memcpy(piece, m->sorted, num * sizeof *piece);
    return rows > 0 && add_rows(p, m->begin, rows);
}

/* Makes rows of the pieces that are in none yet. */
static tr_status pack_window(tri_packed *p, tr_error *err)
{
    size_t num = p->num - p->num_done;
    if (num == 0)
        return TR_OK;
    pack_memory m = {.places = malloc(num * sizeof *m.places),
                     .order = malloc(num * sizeof *m.order),
                     .begin = malloc(num * sizeof *m.begin),
                     .sorted = malloc(num * sizeof *m.sorted)};
    uint64_t *piece = p->piece + p->num_done;
    bool done = m.places && m.order && m.begin && m.sorted && sort_pieces(piece, num, p->seq_len) &&
                pack_sorted(p, piece, num, &m);
    free(m.places);
    free(m.order);
    free(m.begin);
    free(m.sorted);
    p->num_done = p->num;
    return done ? TR_OK : no_memory(p, err);
}

/* ---- documents ---- */

/* Units p->at .. to - 1, all of one document and one split. */
static tr_status add_pieces(tri_packed *p, uint64_t to, tr_error *err)
{
    while (p->at < to) {
        uint64_t left = to - p->at, length = left < p->seq_len ? left : p->seq_len;
        uint64_t *grown = tri_array_grow(p->piece, p->num, &p->capacity, sizeof *p->piece);
        if (!grown)
            return no_memory(p, err);
        p->piece = grown;
        grown[p->num++] = p->at << LENGTH_BITS | (length - 1);
        p->at += length;
        if (p->num - p->num_done == PACK_WINDOW)
            TRI_TRY(pack_window(p, err));
    }
    return TR_OK;
}

static tr_status end_split(tri_packed *p, tr_error *err)
{
    TRI_TRY(pack_window(p, err));
    uint64_t before = p->split == TRI_SPLIT_EVAL ? p->num_rows[TRI_SPLIT_TRAIN] : 0;
    p->num_rows[p->split] = p->rows - before;
    return TR_OK;
}

tr_status tri_packed_cut(tri_packed *p, uint64_t next, tr_error *err)
{
    p->num_documents += next > p->at;
    p->longest = next - p->at > p->longest ? next - p->at : p->longest;
    if (p->split == TRI_SPLIT_TRAIN && next > p->end[TRI_SPLIT_TRAIN]) {
        TRI_TRY(add_pieces(p, p->end[TRI_SPLIT_TRAIN], err));
        TRI_TRY(end_split(p, err));
        p->split = TRI_SPLIT_EVAL;
    }
    return add_pieces(p, next, err);
}

tr_status tri_packed_end(tri_packed *p, tr_error *err)
{
    TRI_TRY(tri_packed_cut(p, p->end[TRI_SPLIT_EVAL], err));
    if (p->longest < 2)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: no document has two tokens, so that, packed, there is nothing to "
                        "predict; set data.pack=false, or another separator",
                        p->source);
    TRI_TRY(end_split(p, err));
    if (!add_rows(p, &p->num, 1))
        return no_memory(p, err);
    /* Blocks that cannot be made smaller stay as they are. */
    uint64_t *piece = realloc(p->piece, p->num * sizeof *piece);
    size_t *row_begin = realloc(p->row_begin, p->rows * sizeof *row_begin);
    p->piece = piece ? piece : p->piece;
    p->row_begin = row_begin ? row_begin : p->row_begin;
    p->source = NULL;
    return TR_OK;
}

/* ---- rows ---- */

uint64_t tri_packed_number(const tri_packed *p, tri_split split, uint64_t sample)
{
    enum { HELD_OUT_SEED = 0 };
    uint64_t num = p->num_rows[split];
    return split == TRI_SPLIT_EVAL ? tri_data_shuffle(HELD_OUT_SEED, 0, num, sample % num)
                                   : tri_data_shuffle(p->seed, sample / num, num, sample % num);
}

/* The target of the last unit of a piece, `last`, which unit `next` of the run comes after. */
static int32_t target_behind(const tri_packed *p, const void *state, tri_split split, uint64_t next,
                             int32_t last)
{
    bool has_ended = !p->separator_first && last == p->separator;
    int32_t unit;
    if (p->separator < 0 || has_ended || next == p->end[split])
        return -1;
    p->copy(state, next, 1, &unit);
    return unit == p->separator ? unit : -1;
}

void tri_packed_row(const tri_packed *p, const void *state, tri_split split, uint64_t sample,
                    const tri_row *row)
{
    uint64_t number = tri_packed_number(p, split, sample), at = 0;
    number += split == TRI_SPLIT_EVAL ? p->num_rows[TRI_SPLIT_TRAIN] : 0;
    int32_t which = 0;
    for (size_t k = p->row_begin[number]; k < p->row_begin[number + 1]; k++) {
        uint64_t begin = piece_begin(p->piece[k]), length = piece_length(p->piece[k]);
        int32_t *tokens = row->tokens + at, *targets = row->targets + at;
        p->copy(state, begin, length, tokens);
        for (uint64_t i = 0; i < length; i++) {
            targets[i] = i + 1 < length ? tokens[i + 1]
                                        : target_behind(p, state, split, begin + length, tokens[i]);
            tokens[i] = tokens[i] < 0 ? 0 : tokens[i];
        }
        tri_pack_places(row, (int64_t)at, (int64_t)length, which++);
        at += length;
    }
    tri_pack_padding(row, (int64_t)at, (int64_t)p->seq_len);
}

char *tri_packed_describe(const tri_packed *p, char *text, size_t text_size)
{
    char documents[32], rows[32], eval[32], more[64] = "";
    uint64_t train = p->num_rows[TRI_SPLIT_TRAIN];
    if (p->num_rows[TRI_SPLIT_EVAL] > 0)
        snprintf(more, sizeof more, ", %s more for evaluation",
                 tri_text_grouped((int64_t)p->num_rows[TRI_SPLIT_EVAL], eval));
    snprintf(text, text_size, "%s document%s, %s row%s of %llu, %.1f%% full%s",
             tri_text_grouped((int64_t)p->num_documents, documents),
             p->num_documents == 1 ? "" : "s", tri_text_grouped((int64_t)train, rows),
             train == 1 ? "" : "s", (unsigned long long)p->seq_len,
             100.0 * (double)p->end[TRI_SPLIT_TRAIN] / ((double)train * (double)p->seq_len), more);
    return text;
}
