/* The documents of a list of inputs, in units that fit in memory.
 *
 * An input is a file, or a directory that stands for its regular files in the order of their names
 * (links, hidden files and subdirectories are left out). A file of text is one document; in a file
 * of JSONL every line is one. Documents are numbered through, in this order.
 *
 * A unit is part of one file: some whole lines of JSON, not parsed yet, or a piece of a text that
 * ends where the tokenizer allows a cut. Units do not depend on who reads them or how fast. */
#ifndef TRI_DATA_PREPARE_TEXTS_H
#define TRI_DATA_PREPARE_TEXTS_H

#include "data/lines.h"
#include "data/tokenizer/tokenizer.h"

typedef struct tri_texts tri_texts;

/* A document, or part of one, within a unit. */
typedef struct tri_text_piece {
    size_t begin, num_bytes;
    uint64_t document;
    int64_t line;         /* of the JSON object that it is; 0: it is the text itself */
    bool continues, ends; /* an earlier piece of the document; ends with this one */
    size_t num_ids;       /* for the user of the unit */
} tri_text_piece;

typedef struct tri_unit {
    const char *path;
    tri_bytes text;
    tri_text_piece *piece;
    size_t num, capacity;
} tri_unit;

void tri_unit_fini(tri_unit *unit);

/* A piece's text; object is what it points into, to be given back, or NULL. */
tr_status tri_unit_text(const tri_unit *unit, const tri_text_piece *piece, const char *field,
                        const char **text, size_t *num_bytes, json_t **object, tr_error *err);

/* tokenizer says where texts may be cut; NULL: anywhere between characters. */
tr_status tri_texts_open(const char *const *inputs, int num_inputs, const tri_tokenizer *tokenizer,
                         tri_texts **texts, tr_error *err);
void tri_texts_close(tri_texts *texts);

/* Fills the unit, whose memory is used again; unit->num is 0 at the end. */
tr_status tri_texts_next(tri_texts *texts, tri_unit *unit, tr_error *err);

uint64_t tri_texts_num_files(const tri_texts *texts);
const char *tri_texts_file(const tri_texts *texts, uint64_t i);
uint64_t tri_texts_total(const tri_texts *texts);    /* bytes of all files */
uint64_t tri_texts_consumed(const tri_texts *texts); /* of them, so far */

/* Which files there are, how large, and when they were changed last, as one number. */
uint64_t tri_texts_fingerprint(const tri_texts *texts);

#endif
