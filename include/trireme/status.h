/* Status and error detail: how every library call reports what happened.
 *
 * A function that can fail returns a tr_status and takes a tr_error that the caller owns (NULL is
 * allowed when the detail is not wanted). The library never prints and never exits. */
#ifndef TRIREME_STATUS_H
#define TRIREME_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tr_status {
    TR_OK = 0,
    TR_ERROR_INPUT, /* a setting, a file or a program is wrong; the message names it and the fix */
    TR_ERROR_RUNTIME,  /* something failed while running: no memory, no disk space, a lost file */
    TR_ERROR_NUMERIC,  /* a loss or gradient that is not finite */
    TR_ERROR_INTERNAL, /* a bug in Trireme: a pass produced something its verifier rejects */
    TR_ERROR_DAMAGED   /* a checkpoint was read, and its bytes are not those that were written; one
                          that could not be read is never that */
} tr_status;

typedef struct tr_error {
    tr_status status;
    char message[1000]; /* one or two sentences: what is wrong, where, and what to do next */
} tr_error;

/* A short word for a status: "ok", "wrong input", ... */
const char *tr_status_name(tr_status status);

#ifdef __cplusplus
}
#endif
#endif
