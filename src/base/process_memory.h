/* Memory that this process has. */
#ifndef TRI_BASE_PROCESS_MEMORY_H
#define TRI_BASE_PROCESS_MEMORY_H

#include <stdint.h>

/* Anonymous memory now, and the most memory since the process began or since the peak was
 * forgotten; 0 when not known. */
uint64_t tri_process_anonymous(void);
uint64_t tri_process_peak(void);
/* The peak is what is there now. Where the system does not allow it, nothing changes. */
void tri_process_forget_peak(void);

#endif
