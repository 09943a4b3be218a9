/* Room on the disk that a path is on, or will be. */
#ifndef TRI_CLI_RUN_DISK_H
#define TRI_CLI_RUN_DISK_H

#include <stdbool.h>

/* Bytes that this user may still write where path is or, as long as it is not there, in the nearest
 * directory above it. False when nothing can be written there; errno says why. */
bool tri_disk_free(const char *path, double *bytes);

#endif
