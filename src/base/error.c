#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *tr_status_name(tr_status status)
{
    switch (status) {
    case TR_OK:
        return "ok";
    case TR_ERROR_INPUT:
        return "wrong input";
    case TR_ERROR_RUNTIME:
        return "failed while running";
    case TR_ERROR_NUMERIC:
        return "not a finite number";
    case TR_ERROR_INTERNAL:
        return "internal error";
    case TR_ERROR_DAMAGED:
        return "damaged";
    }
    return "unknown status";
}

tr_status tri_fail(tr_error *err, tr_status status, const char *format, ...)
{
    if (!err)
        return status;
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return status;
}

tr_status tri_fail_prefix(tr_error *err, tr_status status, const char *format, ...)
{
    if (!err)
        return status;
    char rest[sizeof err->message];
    memcpy(rest, err->message, sizeof rest);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    err->status = status;
    if (n >= 0 && (size_t)n < sizeof err->message)
        snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s", rest);
    return status;
}

tr_status tri_advise(tr_error *err, tr_status status, const char *format, ...)
{
    if (!err || (status != TR_ERROR_INPUT && status != TR_ERROR_DAMAGED))
        return status;
    size_t length = strlen(err->message);
    int n = snprintf(err->message + length, sizeof err->message - length, "; ");
    length += n > 0 ? (size_t)n : 0;
    if (length >= sizeof err->message)
        return status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message + length, sizeof err->message - length, format, args);
    va_end(args);
    return status;
}
