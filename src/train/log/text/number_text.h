/* Numbers as text, without the C library's printf: lines of metrics are made in every step, when
 * all of its code and tables have left the caches. The same digits as printf writes in the C
 * locale. */
#ifndef TRI_TRAIN_LOG_TEXT_NUMBER_TEXT_H
#define TRI_TRAIN_LOG_TEXT_NUMBER_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* "%lld" */
char *tri_whole_text(int64_t number, char *out);
/* "%.9g" of what needs no exponent; false, and nothing is written: ask printf. */
bool tri_short_text(double number, char *out);
/* "%.3f", likewise, of numbers that are not negative. */
bool tri_thousandths_text(double number, char *out);

#endif
