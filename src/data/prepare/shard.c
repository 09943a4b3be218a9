#include "data/prepare/shard.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static const char MAGIC[8] = {'T', 'R', 'I', 'T', 'O', 'K', 'E', 'N'};

enum {
    LLMC_HEADER_BYTES = 1024,
    LLMC_GPT2 = 20240520,
    LLMC_GPT2_VERSION = 1,
    LLMC_LLAMA3 = 20240801,
    LLMC_LLAMA3_VERSION = 7
};

static uint32_t word_at(const unsigned char *data, size_t offset)
{
    uint32_t word;
    memcpy(&word, data + offset, sizeof word);
    return le32toh(word);
}

static uint64_t long_at(const unsigned char *data, size_t offset)
{
    uint64_t word;
    memcpy(&word, data + offset, sizeof word);
    return le64toh(word);
}

/* The header says how many tokens follow; the file must have exactly these. */
static tr_status check_size(const tri_shard *s, size_t header, size_t num_bytes, tr_error *err)
{
    uint64_t room = (num_bytes - header) / (uint64_t)s->width;
    if (s->num_tokens == room && (num_bytes - header) % (uint64_t)s->width == 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: the header promises %llu tokens of %d bytes, but %zu bytes follow it; the "
                    "file was %s: copy it again, or prepare it again",
                    s->path, (unsigned long long)s->num_tokens, s->width, num_bytes - header,
                    s->num_tokens > room ? "cut short" : "changed");
}

static tr_status parse_llmc(const unsigned char *data, size_t num_bytes, tri_shard *s,
                            tr_error *err)
{
    bool gpt2 = word_at(data, 0) == LLMC_GPT2;
    uint32_t version = word_at(data, 4), wanted = gpt2 ? LLMC_GPT2_VERSION : LLMC_LLAMA3_VERSION;
    if (version != wanted)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: a .bin of llm.c of version %u, but only version %u is known", s->path,
                        version, wanted);
    s->foreign = true;
    s->separator_first = true;
    s->width = gpt2 ? 2 : 4;
    s->vocab = gpt2 ? 50257 : 128256;
    s->separator = gpt2 ? 50256 : 128000;
    s->num_tokens = word_at(data, 8);
    s->tokens = data + LLMC_HEADER_BYTES;
    return check_size(s, LLMC_HEADER_BYTES, num_bytes, err);
}

static tr_status parse_ours(const unsigned char *data, size_t num_bytes, tri_shard *s,
                            tr_error *err)
{
    uint32_t version = word_at(data, 8), header = word_at(data, 12), width = word_at(data, 16);
    if (version != TRI_SHARD_VERSION)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: a token shard of version %u, but this program knows version %d; "
                        "prepare the data again, or use a newer program",
                        s->path, version, TRI_SHARD_VERSION);
    if (tri_checksum_bytes(data, TRI_SHARD_HEADER_BYTES - 8) !=
        long_at(data, TRI_SHARD_HEADER_BYTES - 8))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the checksum of the header is wrong: the file was damaged or not "
                        "written to its end; copy it again, or prepare it again",
                        s->path);
    uint32_t vocab = word_at(data, 20), separator = word_at(data, 24);
    if (header != TRI_SHARD_HEADER_BYTES || (width != 2 && width != 4) || vocab < 1 ||
        vocab > INT32_MAX || (separator != UINT32_MAX && separator >= vocab) ||
        word_at(data, 28) != 0 || (width == 2 && vocab > 65536))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the header contradicts itself (tokens of %u bytes, vocabulary %u, "
                        "separator %d); prepare the data again",
                        s->path, width, vocab, (int)separator);
    s->width = (int)width;
    s->vocab = (int32_t)vocab;
    s->separator = separator == UINT32_MAX ? -1 : (int32_t)separator;
    s->num_tokens = long_at(data, 32);
    s->num_documents = long_at(data, 40);
    s->fingerprint = long_at(data, 48);
    s->checksum = long_at(data, 56);
    s->tokens = data + TRI_SHARD_HEADER_BYTES;
    TRI_TRY(check_size(s, TRI_SHARD_HEADER_BYTES, num_bytes, err));
    if (s->num_documents > s->num_tokens)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the header promises %llu documents in %llu tokens; prepare the data "
                        "again",
                        s->path, (unsigned long long)s->num_documents,
                        (unsigned long long)s->num_tokens);
    return TR_OK;
}

static bool is_llmc(const unsigned char *data, size_t num_bytes)
{
    return num_bytes >= 4 && (word_at(data, 0) == LLMC_GPT2 || word_at(data, 0) == LLMC_LLAMA3);
}

static bool is_ours(const unsigned char *data, size_t num_bytes)
{
    return num_bytes >= sizeof MAGIC && memcmp(data, MAGIC, sizeof MAGIC) == 0;
}

tr_status tri_shard_parse(const char *path, const void *data, size_t num_bytes, tri_shard *shard,
                          tr_error *err)
{
    bool llmc = is_llmc(data, num_bytes);
    *shard = (tri_shard){.path = strdup(path), .separator = -1};
    if (!shard->path)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    tr_status status;
    if (!llmc && !is_ours(data, num_bytes))
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: is no token shard: it begins neither as one of `trireme data "
                          "prepare` nor as a .bin of llm.c; make one of a text: `trireme data "
                          "prepare TEXT --tokenizer bytes --out DIR`",
                          path);
    else if (num_bytes < (size_t)(llmc ? LLMC_HEADER_BYTES : TRI_SHARD_HEADER_BYTES))
        status = tri_fail(err, TR_ERROR_INPUT,

                          "%s: the file ends within its header: it was cut short; copy it again, "
                          "or prepare it again",
                          path);
    else
        status = (llmc ? parse_llmc : parse_ours)(data, num_bytes, shard, err);
    if (status != TR_OK) {
        free(shard->path);
        *shard = (tri_shard){0};
    }
    return status;
}

tr_status tri_shard_open(const char *path, tri_shard *shard, tr_error *err)
{
    tri_mapping file;
    *shard = (tri_shard){0};
    TRI_TRY(tri_mapping_open(&file, path, err));
    tr_status status = tri_shard_parse(path, file.data, file.num_bytes, shard, err);
    if (status == TR_OK)
        shard->file = file;
    else
        tri_mapping_close(&file);
    return status;
}

void tri_shard_close(tri_shard *shard)
{
    tri_mapping_close(&shard->file);
    free(shard->path);
    *shard = (tri_shard){0};
}

tr_status tri_shard_verify(const tri_shard *s, tr_error *err)
{
    uint64_t separators = 0;
    for (uint64_t i = 0; i < s->num_tokens; i++) {
        uint32_t token = tri_shard_token(s, i);
        separators += (int64_t)token == s->separator;
        if (token >= (uint32_t)s->vocab)
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: token %llu is %u, but the vocabulary has %d; the file was "
                            "damaged: copy it again, or prepare it again",
                            s->path, (unsigned long long)i, token, s->vocab);
    }
    if (s->foreign)
        return TR_OK;
    if (tri_checksum_bytes(s->tokens, s->num_tokens * (uint64_t)s->width) != s->checksum)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the checksum of the tokens is wrong: the file was damaged; copy it "
                        "again, or prepare it again",
                        s->path);
    if (separators != s->num_documents)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: holds %llu separators, but the header says %llu documents; prepare "
                        "the data again",
                        s->path, (unsigned long long)separators,
                        (unsigned long long)s->num_documents);
    return TR_OK;
}

bool tri_shard_is_file(const char *path)
{
    unsigned char head[sizeof MAGIC];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t num = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (fd >= 0)
        close(fd);
    return num > 0 && (is_ours(head, (size_t)num) || is_llmc(head, (size_t)num));
}
