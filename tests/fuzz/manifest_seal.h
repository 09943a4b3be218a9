/* A changed manifest with a checksum that fits, so that inputs get past it. */
#ifndef TRI_TESTS_FUZZ_MANIFEST_SEAL_H
#define TRI_TESTS_FUZZ_MANIFEST_SEAL_H

#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "ckpt/manifest_text.h"

static inline void manifest_seal(char *text, size_t num_bytes)
{
    char digits[17];
    if (num_bytes < TRI_MANIFEST_DIGITS_AT + 16)
        return;
    memset(text + TRI_MANIFEST_DIGITS_AT, '0', 16);
    snprintf(digits, sizeof digits, "%016llx",
             (unsigned long long)tri_checksum_bytes(text, num_bytes));
    memcpy(text + TRI_MANIFEST_DIGITS_AT, digits, 16);
}

#endif
