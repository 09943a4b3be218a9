/* Made by tests/reference/make_unicode_tables.py: the sizes of the tables in unicode_table.c. */
#ifndef TRI_DATA_UNICODE_UNICODE_TABLE_H
#define TRI_DATA_UNICODE_UNICODE_TABLE_H

#include <stdint.h>

enum {
    TRI_NUM_CLASS_RUNS = 2372,
    TRI_NUM_LATE_NUMBERS = 2,
    TRI_NUM_UNTOUCHED = 86,
    TRI_NUM_LATE_LOWER = 10
};

/* Where another class begins: code point << 8 | bits of TRI_CLASS_. */
extern const uint32_t tri_class_run[TRI_NUM_CLASS_RUNS];
/* First and last of the numbers that Digits knows and \p{N} does not. */
extern const uint32_t tri_late_number[TRI_NUM_LATE_NUMBERS][2];
/* First and last of what normal forms leave as it is, though later tables would not. */
extern const uint32_t tri_untouched[TRI_NUM_UNTOUCHED][2];
/* First and last of capitals that utf8proc may not know, and how far their small letters are. */
extern const int32_t tri_late_lower[TRI_NUM_LATE_LOWER][3];

#endif
