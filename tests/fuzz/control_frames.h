/* Inputs of the control plane: blocks of a type, a length and that many bytes. A block is a frame
 * of that type with these bytes as its payload; with the highest bit set in the type, it is the
 * bytes themselves. */
#ifndef TRI_TESTS_FUZZ_CONTROL_FRAMES_H
#define TRI_TESTS_FUZZ_CONTROL_FRAMES_H

#include <string.h>

#include "comm/control/control_wire.h"

enum { CONTROL_RAW = 128, CONTROL_BLOCK = 255 + TRI_WIRE_HEADER_BYTES };

/* Takes a block off the input; the number of bytes to send, 0 when there are no more. */
static inline size_t control_block(const uint8_t **data, size_t *num_bytes,
                                   uint8_t out[CONTROL_BLOCK])
{
    if (*num_bytes < 2)
        return 0;
    uint8_t type = (*data)[0];
    size_t length = (*data)[1], header = type & CONTROL_RAW ? 0 : TRI_WIRE_HEADER_BYTES;
    length = length < *num_bytes - 2 ? length : *num_bytes - 2;
    if (header > 0) {
        tri_wire_out frame = {0};
        tri_wire_begin(&frame, (tri_wire_type)(type % (TRI_WIRE_NUM_TYPES + 1)));
        tri_wire_end(&frame);
        memcpy(out, frame.bytes, header);
        out[8] = (uint8_t)length;
        tri_wire_out_fini(&frame);
    }
    memcpy(out + header, *data + 2, length);
    *data += 2 + length;
    *num_bytes -= 2 + length;
    return header + length;
}

#endif
