#include "train/log/protobuf.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* How a value is written. */
enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH_AND_BYTES = 2, FOUR_BYTES = 5 };

void tri_proto_fini(tri_proto *proto)
{
    free(proto->bytes);
    *proto = (tri_proto){0};
}

void tri_proto_clear(tri_proto *proto)
{
    proto->length = 0;
    proto->failed = false;
}

const unsigned char *tri_proto_data(const tri_proto *proto)
{
    return proto->bytes + proto->capacity - proto->length;
}

static void put_bytes(tri_proto *proto, const void *data, size_t num_bytes)
{
    if (proto->failed || num_bytes == 0)
        return;
    if (proto->length + num_bytes > proto->capacity) {
        size_t capacity = 2 * (proto->length + num_bytes) + 1024;
        unsigned char *grown = malloc(capacity);
        proto->failed = !grown;
        if (!grown)
            return;
        if (proto->length > 0)
            memcpy(grown + capacity - proto->length, tri_proto_data(proto), proto->length);
        free(proto->bytes);
        proto->bytes = grown;
        proto->capacity = capacity;
    }
    proto->length += num_bytes;
    memcpy(proto->bytes + proto->capacity - proto->length, data, num_bytes);
}

static void put_varint(tri_proto *proto, uint64_t value)
{
    unsigned char bytes[10];
    size_t num = 0;
    for (; value >= 128; value >>= 7)
        bytes[num++] = (unsigned char)(value | 128);
    bytes[num++] = (unsigned char)value;
    put_bytes(proto, bytes, num);
}

static void put_key(tri_proto *proto, unsigned field, unsigned how)
{
    put_varint(proto, (uint64_t)field << 3 | how);
}

void tri_proto_put_int(tri_proto *proto, unsigned field, int64_t value)
{
    put_varint(proto, (uint64_t)value);
    put_key(proto, field, VARINT);
}

void tri_proto_put_double(tri_proto *proto, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = htole64(bits);
    put_bytes(proto, &bits, sizeof bits);
    put_key(proto, field, EIGHT_BYTES);
}

void tri_proto_put_float(tri_proto *proto, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = htole32(bits);
    put_bytes(proto, &bits, sizeof bits);
    put_key(proto, field, FOUR_BYTES);
}

void tri_proto_put_text(tri_proto *proto, unsigned field, const char *text)
{
    size_t end = proto->length;
    put_bytes(proto, text, strlen(text));
    tri_proto_wrap(proto, field, end);
}

void tri_proto_wrap(tri_proto *proto, unsigned field, size_t end)
{
    put_varint(proto, proto->length - end);
    put_key(proto, field, LENGTH_AND_BYTES);
}

static bool take_varint(const unsigned char **data, size_t *num_bytes, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 70 && *num_bytes > 0; shift += 7) {
        unsigned char byte = *(*data)++;
        (*num_bytes)--;
        if (shift < 64)
            *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

bool tri_proto_next(const unsigned char **data, size_t *num_bytes, tri_proto_field *field)
{
    uint64_t key;
    *field = (tri_proto_field){0};
    if (!take_varint(data, num_bytes, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return false;
    field->number = (unsigned)(key >> 3);
    unsigned how = key & 7;
    if (how == VARINT)
        return take_varint(data, num_bytes, &field->value);
    uint64_t length = how == EIGHT_BYTES ? 8 : 4;
    if (how == LENGTH_AND_BYTES && !take_varint(data, num_bytes, &length))
        return false;
    if ((how != EIGHT_BYTES && how != FOUR_BYTES && how != LENGTH_AND_BYTES) || length > *num_bytes)
        return false;
    if (how == LENGTH_AND_BYTES) {
        field->data = *data;
        field->num_bytes = (size_t)length;
    } else
        for (unsigned i = 0; i < length; i++)
            field->value |= (uint64_t)(*data)[i] << 8 * i;
    *data += length;
    *num_bytes -= (size_t)length;
    return true;
}
