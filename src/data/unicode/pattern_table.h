/* Made by tests/reference/make_unicode_tables.py: the tables in pattern_table.c. */
#ifndef TRI_DATA_UNICODE_PATTERN_TABLE_H
#define TRI_DATA_UNICODE_PATTERN_TABLE_H

#include <stdint.h>

enum {
    TRI_PROPERTY_C = 3,
    TRI_PROPERTY_CN = 4,
    TRI_PROPERTY_LU = 7,
    TRI_PROPERTY_LL = 8,
    TRI_PROPERTY_LOWER = 11,
    TRI_PROPERTY_MN = 15,
    TRI_PROPERTY_MC = 16,
    TRI_PROPERTY_ND = 18,
    TRI_PROPERTY_P = 20,
    TRI_PROPERTY_S = 23,
    TRI_PROPERTY_WORD = 26,
    TRI_NUM_PROPERTY_RUNS = 141,
    TRI_NUM_PROPERTY_NAMES = 105,
    TRI_NUM_PROPERTY_REFUSED = 43
};

typedef struct tri_property_run {
    uint32_t first, last;
    uint64_t bits; /* 1 << bit of each property in which they have changed */
} tri_property_run;

typedef struct tri_property_name {
    const char *name; /* without blanks, '-' and '_', in small letters */
    int bit;
} tri_property_name;

extern const tri_property_run tri_property_runs[TRI_NUM_PROPERTY_RUNS];
extern const tri_property_name tri_property_names[TRI_NUM_PROPERTY_NAMES]; /* by name */
/* Properties that have changed and are not among those above. */
extern const char *const tri_property_refused[TRI_NUM_PROPERTY_REFUSED];

#endif
