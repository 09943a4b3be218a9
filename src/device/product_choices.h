/* How large products are done best on a GPU: measured once, kept in the list "products" of
 * tuning.json, an entry for each GPU, version of the library, and product. What an entry says is
 * the library's own name of an algorithm, as numbers; cuda/blas_kept.c knows what they mean. */
#ifndef TRI_DEVICE_PRODUCT_CHOICES_H
#define TRI_DEVICE_PRODUCT_CHOICES_H

#include "base/error.h"
#include "graph/dtype.h"
#include "graph/op.h"

typedef struct tri_product_key {
    int64_t m, n, k;
    bool trans_a, trans_b, fast_sum;
    tri_dtype in, in_b, out;
    tri_epilogue epilogue;
} tri_product_key;

enum { TRI_PRODUCT_NUMBERS = 9 };

typedef struct tri_product_choice {
    tri_product_key key;
    bool apart; /* as a plain product, with the epilogue after it; then the numbers say nothing */
    int64_t number[TRI_PRODUCT_NUMBERS];
    double seconds, first_seconds; /* of a call, and of one as the library would have done it */
    bool is_new;                   /* not from the file */
    bool replaces;                 /* one of the file, which was of no use */
} tri_product_choice;

typedef struct tri_product_choices {
    char gpu[128];
    int64_t library; /* its version: numbers of another mean something else */
    tri_product_choice *all;
    size_t num, capacity;
} tri_product_choices;

/* Adds those of choices->gpu and choices->library; a file that is not there has none. */
tr_status tri_product_choices_read(tri_product_choices *choices, const char *path, tr_error *err);
/* Adds the new ones to the file. What another process has added since it was read stays. */
tr_status tri_product_choices_save(const tri_product_choices *choices, const char *path,
                                   tr_error *err);
void tri_product_choices_fini(tri_product_choices *choices);

/* Or NULL; valid until the next is put. */
const tri_product_choice *tri_product_choices_find(const tri_product_choices *choices,
                                                   const tri_product_key *key);
/* A new one, also in the place of one that was found; false without memory. */
bool tri_product_choices_put(tri_product_choices *choices, const tri_product_choice *choice);

#endif
