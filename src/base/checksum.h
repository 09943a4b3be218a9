/* A 64-bit checksum of bytes that come in pieces: fast, and good enough to tell that a file was
 * damaged or that two inputs differ. No defence against people.
 *
 * Exactly, for those who check files elsewhere: h begins as 0x9E3779B97F4A7C15. The bytes are cut
 * into little-endian 64-bit words, the last filled up with zeros; for each word w
 *     h = rotate_left(h ^ w * 0x9FB21C651E98DF25, 27) * 0x9E3779B97F4A7C15
 * and at the end, with n the number of bytes,
 *     h ^= n; h ^= h >> 33; h *= 0xFF51AFD7ED558CCD; h ^= h >> 33; h *= 0xC4CEB9FE1A85EC53;
 *     h ^= h >> 33
 * Every step is a bijection of h, so one changed word always changes the result. */
#ifndef TRI_BASE_CHECKSUM_H
#define TRI_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

typedef struct tri_checksum {
    uint64_t h, num_bytes;
    unsigned char rest[8]; /* num_bytes % 8 bytes that do not fill a word yet */
} tri_checksum;

void tri_checksum_init(tri_checksum *hash);
void tri_checksum_add(tri_checksum *hash, const void *data, size_t num_bytes);
uint64_t tri_checksum_end(const tri_checksum *hash); /* more may be added afterwards */

uint64_t tri_checksum_bytes(const void *data, size_t num_bytes);

/* A sum of 64 bits for weights that are compared while a run is under way. Unlike the above its
 * terms can be added in any order, so that it can be formed in parallel, on a GPU too. With word
 * number i of the bytes (little-endian, the last filled up with zeros) as w,
 *     t = w ^ (i + 1) * 0x9E3779B97F4A7C15;  t = (t ^ t >> 32) * 0xFF51AFD7ED558CCD
 * it is the sum of t ^ t >> 29 over all words. Every term is a bijection of its word, so one
 * changed word always changes the sum. */
uint64_t tri_sum_words(uint64_t first, const void *data,
                       size_t num_words); /* of words from first */
uint64_t tri_sum_bytes(const void *data, size_t num_bytes);

/* A checksum of messages, as fast as they travel: word i of the bytes goes into the CRC-32C number
 * i % 4, for which processors have an instruction, and the four are folded into 64 bits at the end.
 * One changed word always changes it. */
typedef struct tri_crc {
    uint32_t lane[4];
    uint64_t num_bytes;
    unsigned char rest[8]; /* num_bytes % 8 bytes that do not fill a word yet */
} tri_crc;

void tri_crc_add(tri_crc *crc, const void *data, size_t num_bytes); /* begins as {0} */
uint64_t tri_crc_end(const tri_crc *crc); /* more may be added afterwards */

/* The plain CRC-32C (Castagnoli) of file formats. */
uint32_t tri_crc32c(const void *data, size_t num_bytes);

#endif
