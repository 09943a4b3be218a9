/* CRC-32C, four at a time (see checksum.h): by the processor's instruction where it has one. */
#include "base/checksum.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#define HAS_INSTRUCTION 1
#define TARGET          __attribute__((target("sse4.2")))
static inline bool has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}
TARGET static inline uint32_t instruction(uint32_t crc, uint64_t word)
{
    return (uint32_t)__builtin_ia32_crc32di(crc, word);
}
#endif

/* By four bits, where there is none. */
static const uint32_t table[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

static uint32_t by_table(uint32_t crc, uint64_t word)
{
    word ^= crc;
    uint32_t low = (uint32_t)word;
    for (int i = 0; i < 8; i++)
        low = low >> 4 ^ table[low & 15];
    low ^= (uint32_t)(word >> 32);
    for (int i = 0; i < 8; i++)
        low = low >> 4 ^ table[low & 15];
    return low;
}

static inline uint64_t load(const unsigned char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return le64toh(word);
}

static void add_words_plain(uint32_t lane[4], uint64_t first, const unsigned char *p, size_t num)
{
    for (size_t i = 0; i < num; i++)
        lane[(first + i) % 4] = by_table(lane[(first + i) % 4], load(p + 8 * i));
}

#ifdef HAS_INSTRUCTION
TARGET static void add_words_fast(uint32_t lane[4], uint64_t first, const unsigned char *p,
                                  size_t num)
{
    size_t i = 0;
    for (; i < num && (first + i) % 4 != 0; i++)
        lane[(first + i) % 4] = instruction(lane[(first + i) % 4], load(p + 8 * i));
    uint32_t a = lane[0], b = lane[1], c = lane[2], d = lane[3];
    for (; i + 4 <= num; i += 4) { /* one takes three cycles, and one can begin in each */
        a = instruction(a, load(p + 8 * i));
        b = instruction(b, load(p + 8 * i + 8));
        c = instruction(c, load(p + 8 * i + 16));
        d = instruction(d, load(p + 8 * i + 24));
    }
    lane[0] = a;
    lane[1] = b;
    lane[2] = c;
    lane[3] = d;
    for (; i < num; i++)
        lane[(first + i) % 4] = instruction(lane[(first + i) % 4], load(p + 8 * i));
}
#endif

static void add_words(uint32_t lane[4], uint64_t first, const unsigned char *p, size_t num)
{
#ifdef HAS_INSTRUCTION
    if (has_instruction()) {
        add_words_fast(lane, first, p, num);
        return;
    }
#endif
    add_words_plain(lane, first, p, num);
}

void tri_crc_add(tri_crc *crc, const void *data, size_t num_bytes)
{
    const unsigned char *p = data;
    size_t held = crc->num_bytes % 8;
    if (held > 0) {
        size_t take = num_bytes < 8 - held ? num_bytes : 8 - held;
        memcpy(crc->rest + held, p, take);
        crc->num_bytes += take;
        p += take;
        num_bytes -= take;
        if (held + take < 8)
            return;
        add_words(crc->lane, crc->num_bytes / 8 - 1, crc->rest, 1);
    }
    size_t words = num_bytes / 8;
    add_words(crc->lane, crc->num_bytes / 8, p, words);
    if (num_bytes % 8 > 0)
        memcpy(crc->rest, p + 8 * words, num_bytes % 8);
    crc->num_bytes += num_bytes;
}

uint64_t tri_crc_end(const tri_crc *crc)
{
    unsigned char last[8] = {0};
    tri_crc all = *crc;
    memcpy(last, crc->rest, crc->num_bytes % 8);
    if (crc->num_bytes % 8 > 0)
        add_words(all.lane, crc->num_bytes / 8, last, 1);
    uint64_t h = (all.lane[0] | (uint64_t)all.lane[1] << 32) * 0x9E3779B97F4A7C15u;
    h ^= all.lane[2] | (uint64_t)all.lane[3] << 32;
    h ^= crc->num_bytes * 0xFF51AFD7ED558CCDu;
    return h;
}

uint32_t tri_crc32c(const void *data, size_t num_bytes)
{
    const unsigned char *p = data;
    uint32_t crc = ~0u;
    for (; num_bytes >= 8; p += 8, num_bytes -= 8)
        crc = by_table(crc, load(p));
    for (; num_bytes > 0; p++, num_bytes--) {
        crc ^= *p;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}
