/* Filling in and passing on tr_error. */
#ifndef TRI_BASE_ERROR_H
#define TRI_BASE_ERROR_H

#include "trireme/status.h"

/* Writes the message into err (which may be NULL) and returns status, so that
 *     return tri_fail(err, TR_ERROR_INPUT, "train.batch is %d; ...", n);
 * is the whole of an error path. */
tr_status tri_fail(tr_error *err, tr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message that is already in err. */
tr_status tri_fail_prefix(tr_error *err, tr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds "; advice" to the message of wrong or damaged input that is already in err: what to do next,
 * said by whoever knows what the input is for. Passes status on, and does nothing for any other:
 *     return tri_advise(err, tri_mapping_open(&file, path, err), "`trireme x` makes one"); */
tr_status tri_advise(tr_error *err, tr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns from the calling function when the expression is not TR_OK. */
#define TRI_TRY(expression)                                                                        \
    do {                                                                                           \
        tr_status try_status_ = (expression);                                                      \
        if (try_status_ != TR_OK)                                                                  \
            return try_status_;                                                                    \
    } while (0)

#endif
