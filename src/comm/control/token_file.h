/* The job's token where nobody gave one: rank 0 makes it and leaves it in a file that only the same
 * user can read; the other ranks find it there once rank 0 listens. */
#ifndef TRI_COMM_CONTROL_TOKEN_FILE_H
#define TRI_COMM_CONTROL_TOKEN_FILE_H

#include <stddef.h>

#include "comm/control/auth.h"
#include "comm/control/control.h"

/* Makes a token and writes it to a file of its own (O_EXCL, mode 0600); what an earlier job left
 * under this name is removed. Call it when the port is taken and before anybody is answered: a rank
 * that was answered then finds this token, and never an old one. */
tr_status tri_token_file_write(const char *path, const char *token, tr_error *err);
/* Reads it, waiting a while for it to become visible (network file systems are slow to show what is
 * new). Refuses a file that others own or may read. */
tr_status tri_token_file_read(const char *path, double patience_s,
                              char token[TRI_CONTROL_MAX_TOKEN], tr_error *err);

/* A directory of this machine that only this user can look into; made if need be. */
tr_status tri_token_private_dir(char *path, size_t capacity, tr_error *err);

#endif
