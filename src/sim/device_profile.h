/* What a device reaches: constants beside its datasheet, and the seconds of work that they give.
 *
 * A product is cut into tiles that multiprocessors run in waves; each tile has a start-up
 * beside its k steps, small tiles are slower, and of the last wave, which not all multiprocessors
 * have, a part counts whole. Work on memory takes its bytes at a share of the memory's rate.
 * Attention that keeps no scores has a rate of its own. tests/reference/published_model.py is the
 * same in Python, and fits the constants. */
#ifndef TRI_SIM_DEVICE_PROFILE_H
#define TRI_SIM_DEVICE_PROFILE_H

#include "mesh/devices.h"

#include <stdbool.h>

typedef enum tri_profile_kind {
    TRI_PROFILE_MEASURED,  /* on such a device */
    TRI_PROFILE_FITTED,    /* on step times that others published */
    TRI_PROFILE_DATASHEET, /* constants of a device of its kind, with its own datasheet */
} tri_profile_kind;

/* Shares are of the datasheet's figure. */
typedef struct tri_device_profile {
    tri_device_spec device;
    tri_profile_kind kind;
    const char *from;         /* what the constants come from */
    double product, product8; /* rates of large products, operands of 16 and of 8 bits */
    double k_start;           /* start-up of a tile, in steps of k */
    double small_tile;        /* a tile of a share x of the largest has the rate x ^ small_tile */
    double whole_waves;       /* share of a started wave that counts whole */
    double memory;
    double flash, flash_back;       /* attention, of the rate of 16-bit products */
    double portable, portable_back; /* the same by kernels that were not written for the device */
    double flash_narrow;            /* of that, where heads are narrower than 100 */
    double flash_start;             /* tokens: n queries have n / (n + flash_start) of it */
    double link;                    /* of the links within a node */
    double gap_s; /* from one kernel to the next, when recorded and not started singly */
} tri_device_profile;

typedef struct tri_product_size {
    double m, n, k, batch;
    tri_rate rate;
    double out_bytes; /* an element of the result is written, and read, with so many */
    double slower;    /* operands that are not aligned: so many times; 1 or more */
} tri_product_size;

typedef struct tri_flash_size {
    double rows, heads, queries, keys, width;
    bool causal, backward;
    bool portable; /* kernels in Triton, say */
} tri_flash_size;

const char *tri_profile_kind_name(tri_profile_kind kind); /* "fitted" */
/* Of every device: of a row of its own, or by the datasheet. */
tri_device_profile tri_profile_of(const tri_device_spec *device);

/* Seconds; gap_s: from one kernel to the next, of the profile or of a software. Infinite where the
 * device has no rate for the type of the operands: callers refuse that before. */
double tri_profile_product(const tri_device_profile *profile, const tri_product_size *product,
                           double gap_s);
double tri_profile_memory(const tri_device_profile *profile, double bytes, double kernels,
                          double gap_s);
double tri_profile_flash(const tri_device_profile *profile, const tri_flash_size *shape,
                         double gap_s);

#endif
