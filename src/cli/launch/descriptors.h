/* Room for the connections of many ranks. */
#ifndef TRI_CLI_LAUNCH_DESCRIPTORS_H
#define TRI_CLI_LAUNCH_DESCRIPTORS_H

#include <stdbool.h>

#include "base/error.h"

/* Raises the limit on open files (ulimit -n) of this process, and of the ranks that it forks, to
 * what so many ranks take, as far as the system allows. Where that is not enough it is wrong input,
 * before anything starts. launches: this process starts them; tcp: they talk over it. */
tr_status tri_descriptors_reserve(int num_ranks, bool launches, bool tcp, tr_error *err);

#endif
