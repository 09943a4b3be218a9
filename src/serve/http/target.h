/* What a request asks for: the path and the arguments of a request's first line, read strictly.
 *
 * What is malformed is refused as a whole and never mended: percent signs without two digits, bytes
 * below a blank (also when they are spelt with percent signs), text that is not UTF-8, an argument
 * given twice. */
#ifndef TRI_SERVE_HTTP_TARGET_H
#define TRI_SERVE_HTTP_TARGET_H

#include <stddef.h>

enum { TRI_HTTP_TARGET_BYTES = 4096, TRI_HTTP_MAX_ARGS = 16 };

typedef struct tri_http_arg {
    const char *name, *value;
} tri_http_arg;

typedef struct tri_http_target {
    const char *path; /* begins with '/' */
    tri_http_arg args[TRI_HTTP_MAX_ARGS];
    size_t num_args;
    char text[TRI_HTTP_TARGET_BYTES + 1]; /* what the rest points into */
} tri_http_target;

/* 0, or the status of the answer: 400 when it is malformed, 414 when it is too long. The struct
 * must stay where it is. */
int tri_http_target_read(tri_http_target *target, const char *uri);
/* NULL: it is not given. */
const char *tri_http_target_arg(const tri_http_target *target, const char *name);

#endif
