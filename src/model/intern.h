/* Bytes that stay where they are until the process ends: whoever asks for the same bytes again gets
 * the same address. For small constants that many structs point to, none of which owns them. */
#ifndef TRI_MODEL_INTERN_H
#define TRI_MODEL_INTERN_H

#include <stddef.h>

/* NULL: no memory. From any thread. */
const void *tri_intern(const void *bytes, size_t count);

#endif
