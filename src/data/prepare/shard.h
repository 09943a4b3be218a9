/* Token shards: files of tokens, read where they lie.
 *
 * Ours (docs/data.md has the table) is a header of 96 bytes and then the tokens, two or four bytes
 * each, all little-endian. A document ends with the separator, so that its borders need no table.
 * Read too, and known by their first bytes, are the .bin files of llm.c: 256 words of header, then
 * tokens of GPT-2 (two bytes) or Llama 3 (four); there a document begins with the separator.
 *
 * Opening believes nothing: the header has a checksum, and the size of the file must be what the
 * header says. The tokens themselves are checked when somebody reads all of them
 * (tri_shard_verify) or as they are used (tri_data_problem). */
#ifndef TRI_DATA_PREPARE_SHARD_H
#define TRI_DATA_PREPARE_SHARD_H

#include "base/checksum.h"
#include "base/error.h"
#include "base/fs.h"

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { TRI_SHARD_VERSION = 1, TRI_SHARD_HEADER_BYTES = 96 };
#define TRI_SHARD_SUFFIX ".tok"

typedef struct tri_shard {
    char *path;
    tri_mapping file;
    const unsigned char *tokens;
    uint64_t num_tokens;
    int width;              /* bytes of a token, 2 or 4 */
    int32_t vocab;          /* tokens are in [0, this) */
    int32_t separator;      /* -1: none */
    bool separator_first;   /* it begins documents; otherwise it ends them */
    bool foreign;           /* llm.c's: no checksums, and the three below are 0 */
    uint64_t num_documents; /* separators among the tokens */
    uint64_t fingerprint;   /* of the tokenizer */
    uint64_t checksum;      /* of the tokens */
} tri_shard;

tr_status tri_shard_open(const char *path, tri_shard *shard, tr_error *err);
void tri_shard_close(tri_shard *shard); /* also fine on a zeroed one */

/* Opening without the file: data is what stands in it and must outlive the shard. */
tr_status tri_shard_parse(const char *path, const void *data, size_t num_bytes, tri_shard *shard,
                          tr_error *err);

/* Reads every token: checksum, range and number of documents must be what the header says. */
tr_status tri_shard_verify(const tri_shard *shard, tr_error *err);

/* Whether a file begins as a shard does, ours or llm.c's. */
bool tri_shard_is_file(const char *path);

/* Token i; it may lie outside the vocabulary when the shard lies. */
static inline uint32_t tri_shard_token(const tri_shard *shard, uint64_t i)
{
    uint16_t two;
    uint32_t four;
    if (shard->width == 2) {
        memcpy(&two, shard->tokens + 2 * i, sizeof two);
        return le16toh(two);
    }
    memcpy(&four, shard->tokens + 4 * i, sizeof four);
    return le32toh(four);
}

/* ---- writing ---- */

typedef struct tri_shard_writer {
    char *path;
    int fd; /* -1: none is open */
    int width;
    int32_t vocab, separator;
    uint64_t fingerprint;
    uint64_t num_tokens, num_documents;
    tri_checksum hash;
    unsigned char *buffer;
    size_t filled; /* bytes of it */
} tri_shard_writer;

/* Begins a file that must not exist yet. The width is 2 when the vocabulary allows it. */
tr_status tri_shard_begin(tri_shard_writer *writer, const char *path, int32_t vocab,
                          int32_t separator, uint64_t fingerprint, tr_error *err);
tr_status tri_shard_write(tri_shard_writer *writer, const int32_t *tokens, size_t num,
                          tr_error *err);
/* Writes the header; before that, the file is no shard. */
tr_status tri_shard_end(tri_shard_writer *writer, tr_error *err);
void tri_shard_abandon(tri_shard_writer *writer); /* fine at any time; the file stays */

#endif
