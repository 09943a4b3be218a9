#include "base/checksum.h"

#include <endian.h>
#include <string.h>

void tri_checksum_init(tri_checksum *hash)
{
    *hash = (tri_checksum){.h = 0x9E3779B97F4A7C15u};
}

static uint64_t mix(uint64_t h, const unsigned char *bytes)
{
    uint64_t w;
    memcpy(&w, bytes, sizeof w);
    h ^= le64toh(w) * 0x9FB21C651E98DF25u;
    return (h << 27 | h >> 37) * 0x9E3779B97F4A7C15u;
}

void tri_checksum_add(tri_checksum *hash, const void *data, size_t num_bytes)
{
    const unsigned char *p = data;
    size_t held = hash->num_bytes % 8;
    hash->num_bytes += num_bytes;
    if (held > 0) {
        size_t take = num_bytes < 8 - held ? num_bytes : 8 - held;
        memcpy(hash->rest + held, p, take);
        p += take;
        num_bytes -= take;
        if (held + take < 8)
            return;
        hash->h = mix(hash->h, hash->rest);
    }
    uint64_t h = hash->h;
    for (; num_bytes >= 8; num_bytes -= 8, p += 8)
        h = mix(h, p);
    hash->h = h;
    if (num_bytes > 0)
        memcpy(hash->rest, p, num_bytes);
}

uint64_t tri_checksum_end(const tri_checksum *hash)
{
    uint64_t h = hash->h;
    unsigned char last[8] = {0};
    if (hash->num_bytes % 8 > 0) {
        memcpy(last, hash->rest, hash->num_bytes % 8);
        h = mix(h, last);
    }
    h ^= hash->num_bytes;
    h ^= h >> 33;
    h *= 0xFF51AFD7ED558CCDu;
    h ^= h >> 33;
    h *= 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 33;
}

uint64_t tri_checksum_bytes(const void *data, size_t num_bytes)
{
    tri_checksum hash;
    tri_checksum_init(&hash);
    tri_checksum_add(&hash, data, num_bytes);
    return tri_checksum_end(&hash);
}
