/* Things that live in arrays are named by 32-bit ids, not pointers: arrays may move, ids stay. */
#ifndef TRI_BASE_ID_H
#define TRI_BASE_ID_H

#include <stdint.h>

typedef uint32_t tri_id;
#define TRI_NONE UINT32_MAX

#endif
