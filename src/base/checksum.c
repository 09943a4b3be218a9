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

static inline uint64_t term(uint64_t number, const unsigned char *bytes)
{
    uint64_t w;
    memcpy(&w, bytes, sizeof w);
    uint64_t t = le64toh(w) ^ (number + 1) * 0x9E3779B97F4A7C15u;
    t = (t ^ t >> 32) * 0xFF51AFD7ED558CCDu;
    return t ^ t >> 29;
}

uint64_t tri_sum_words(uint64_t first, const void *data, size_t num_words)
{
    const unsigned char *p = data;
    uint64_t a = 0, b = 0, c = 0, d = 0; /* apart, so that none waits for another */
    size_t i = 0;
    for (; i + 4 <= num_words; i += 4, p += 32) {
        a += term(first + i, p);
        b += term(first + i + 1, p + 8);
        c += term(first + i + 2, p + 16);
        d += term(first + i + 3, p + 24);
    }
    for (; i < num_words; i++, p += 8)
        a += term(first + i, p);
    return a + b + c + d;
}

uint64_t tri_sum_bytes(const void *data, size_t num_bytes)
{
    unsigned char last[8] = {0};
    size_t words = num_bytes / 8;
    uint64_t sum = tri_sum_words(0, data, words);
    if (num_bytes % 8 == 0)
        return sum;
    memcpy(last, (const unsigned char *)data + 8 * words, num_bytes % 8);
    return sum + tri_sum_words(words, last, 1);
}
