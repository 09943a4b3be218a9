/* What of the logical tensors a rank holds: the one place that knows how layouts divide state.
 *
 * A piece is a state of the training program: a parameter, a moment, or a 16-bit copy of a
 * parameter. Its memory is dense and holds a region of a logical tensor: what tp left of it, of
 * which zero may have left a slice. Saving and loading are walks over the list of pieces.
 *
 * A rank may hold nothing of a parameter. Where several hold the same, they share the writing: each
 * takes a part of a large piece, and small ones take turns. Who writes what follows from the mesh
 * alone. */
#ifndef TRI_TRAIN_PIECES_H
#define TRI_TRAIN_PIECES_H

#include "ckpt/manifest.h"
#include "train/session.h"

typedef struct tri_piece {
    const char *name; /* canonical: "wte.weight", "adam.m.wte.weight" */
    tri_ckpt_kind kind;
    tri_dtype dtype; /* f32; a 16-bit copy is loaded from its parameter, and never saved */
    tri_id value;    /* of the training program */
    tri_region region;
    int copies, copy; /* how many ranks hold this very piece, and the number of this one */
    int64_t turn;     /* of which of them begins with the writing */
    bool elsewhere;   /* other stages write it, or it is not saved */
} tri_piece;

typedef struct tri_pieces {
    tri_piece *piece;
    size_t num;
} tri_pieces;

/* After compile. Names are borrowed from the session. */
tr_status tri_pieces_list(const tri_session *session, tri_pieces *pieces, tr_error *err);
void tri_pieces_free(tri_pieces *pieces);

/* What a rank's state, the value, holds of a parameter of this shape. */
tri_region tri_piece_region(const tri_grid *grid, const tri_shape *whole, const tri_value *value);

/* What this rank writes of a piece; count 0: nothing. */
tri_region tri_piece_share(const tri_piece *piece);

/* Where a piece rests, and the address of an element there; NULL in a file. After start. */
tri_where tri_piece_where(const tri_session *session, const tri_piece *piece);
void *tri_piece_memory(const tri_session *session, const tri_piece *piece, int64_t first);
/* The same where the host can read it; otherwise NULL. */
const void *tri_piece_on_host(const tri_session *session, const tri_piece *piece, int64_t first);
/* Elements [first, first + count) of a f32 piece, from where it rests. */
tr_status tri_piece_read(const tri_session *session, const tri_piece *piece, int64_t first,
                         int64_t count, float *to, tr_error *err);
/* f32 elements to there, in the type of the piece; room holds as many 2-byte numbers. */
tr_status tri_piece_write(const tri_session *session, const tri_piece *piece, int64_t first,
                          int64_t count, const float *from, uint16_t *room, tr_error *err);

#endif
