/* Protocol buffers, as much of them as event files of TensorBoard and runs of W&B need. */
#ifndef TRI_TRAIN_LOG_PROTOBUF_H
#define TRI_TRAIN_LOG_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message that is being written, from its end to its beginning: the length of what it contains is
 * then known when it is needed. Fields are put in reverse. */
typedef struct tri_proto {
    unsigned char *bytes; /* the message are the last `length` of `capacity` */
    size_t length, capacity;
    bool failed; /* no memory */
} tri_proto;

void tri_proto_fini(tri_proto *proto);
void tri_proto_clear(tri_proto *proto);
const unsigned char *tri_proto_data(const tri_proto *proto);

void tri_proto_put_int(tri_proto *proto, unsigned field, int64_t value);
void tri_proto_put_double(tri_proto *proto, unsigned field, double value);
void tri_proto_put_float(tri_proto *proto, unsigned field, float value);
void tri_proto_put_text(tri_proto *proto, unsigned field, const char *text);
/* Makes a message of this field of all that was put since the length was `end`. */
void tri_proto_wrap(tri_proto *proto, unsigned field, size_t end);

/* One field of a message that is being read. */
typedef struct tri_proto_field {
    unsigned number;
    uint64_t value;            /* of a number */
    const unsigned char *data; /* of a message or a text, NULL otherwise */
    size_t num_bytes;
} tri_proto_field;

/* Takes the next field off the front; false: there is none, or what is there is no message. */
bool tri_proto_next(const unsigned char **data, size_t *num_bytes, tri_proto_field *field);

#endif
