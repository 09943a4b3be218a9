/* The ledger: what a program keeps for the backward, item by item, beside what the textbook says
 * that a transformer layer keeps (Korthikanti et al., "Reducing Activation Recomputation in Large
 * Transformer Models"): 34 s b h + 5 a b s^2 bytes with 16-bit activations.
 *
 * Of every layer: textbook - what is not stored + what is stored beyond it = what the memory plan
 * has for it, to the byte. */
#ifndef TRI_PROGRAM_LEDGER_H
#define TRI_PROGRAM_LEDGER_H

#include "program/program.h"

/* Items of the textbook. */
typedef enum tri_book {
    TRI_BOOK_NORM_1,
    TRI_BOOK_QKV_IN,
    TRI_BOOK_QKV,
    TRI_BOOK_SOFTMAX,
    TRI_BOOK_SOFTMAX_MASK,
    TRI_BOOK_SOFTMAX_DROPPED,
    TRI_BOOK_PROJ_IN,
    TRI_BOOK_ATTENTION_MASK,
    TRI_BOOK_NORM_2,
    TRI_BOOK_FFN_IN,
    TRI_BOOK_ACT_IN,
    TRI_BOOK_ACT_OUT,
    TRI_BOOK_FFN_MASK,
    TRI_NUM_BOOK
} tri_book;

/* A tensor that is kept. */
typedef struct tri_ledger_entry {
    tri_id value;
    int layer;         /* whose item it is; otherwise that of its maker */
    tri_book book;     /* TRI_NUM_BOOK: it is no item of the textbook */
    uint64_t bytes;    /* of the tensor */
    uint64_t room;     /* of its place in memory */
    uint32_t reader;   /* the first instruction of the backward that reads it */
    uint32_t num_more; /* how many others do */
} tri_ledger_entry;

typedef struct tri_ledger_layer {
    bool has_book; /* it is a transformer layer: one attention, two norms, a feed-forward */
    bool redone;   /* some of it is made again */
    bool drops;    /* it has dropout */
    /* This rank's sizes: rows, positions (in attention and between the blocks), width, heads,
     * width of a head, of the feed-forward, bytes of an activation. */
    int64_t b, s, s_own, h, a, k, f, e;
    uint64_t book[TRI_NUM_BOOK];   /* bytes by the textbook */
    uint64_t stored[TRI_NUM_BOOK]; /* bytes of the same that are kept */
    uint64_t others;               /* bytes of tensors that are no items */
    uint64_t padding;              /* places end at multiples of TRI_PROGRAM_ALIGN */
    uint64_t kept;                 /* all of it, as planned */
    uint32_t num_entries;
} tri_ledger_layer;

typedef struct tri_ledger {
    const tri_program *program;
    tri_ledger_entry *entries; /* by layer, then in the order of their making */
    size_t num_entries;
    tri_ledger_layer *layers; /* layer l at l + 1: before the layers, each, after them */
    int num_layers;           /* of the model */
    uint64_t kept;            /* of one micro-batch: all that the forward leaves to others */
} tri_ledger;

tr_status tri_ledger_make(const tri_program *program, tri_ledger *ledger, tr_error *err);
void tri_ledger_fini(tri_ledger *ledger);
uint64_t tri_ledger_book_total(const tri_ledger_layer *layer);
/* Bytes of items that are not stored, or stored in less; and of what is stored beyond the items. */
uint64_t tri_ledger_missing(const tri_ledger_layer *layer);
uint64_t tri_ledger_extra(const tri_ledger_layer *layer);

void tri_ledger_text(const tri_ledger *ledger, tri_text *text);

#endif
