#include <endian.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/text.h"
#include "train/log/log_file.h"
#include "train/log/protobuf.h"
#include "train/log/wandb.h"

const unsigned char tri_wandb_header[TRI_WANDB_HEAD_BYTES] = {':', 'W', '&', 'B', 0xe1, 0xbe, 0};

uint32_t tri_wandb_sum(tri_wandb_piece kind, const void *data, size_t num_bytes)
{
    unsigned char first = (unsigned char)kind;
    return (uint32_t)crc32(crc32(0, &first, 1), data, (unsigned)num_bytes);
}

/* Bytes at a place of the file; how many there are, or -1. */
static ssize_t read_at(int fd, void *data, size_t num_bytes, off_t at)
{
    size_t done = 0;
    while (done < num_bytes) {
        ssize_t num = pread(fd, (char *)data + done, num_bytes - done, at + (off_t)done);
        if (num < 0 && errno == EINTR)
            continue;
        if (num < 0)
            return -1;
        if (num == 0)
            break;
        done += (size_t)num;
    }
    return (ssize_t)done;
}

typedef struct wandb_piece {
    tri_wandb_piece kind;
    size_t num_bytes;
    unsigned char data[TRI_WANDB_BLOCK_BYTES];
} wandb_piece;

/* 1: a piece that is whole, 0: none, or a damaged one, -1: the disk failed. */
static int read_piece(int fd, off_t at, wandb_piece *p)
{
    unsigned char head[TRI_WANDB_HEAD_BYTES];
    ssize_t num = read_at(fd, head, sizeof head, at);
    if (num != (ssize_t)sizeof head)
        return num < 0 ? -1 : 0;
    uint32_t sum;
    memcpy(&sum, head, sizeof sum);
    p->num_bytes = (size_t)head[4] | (size_t)head[5] << 8;
    p->kind = (tri_wandb_piece)head[6];
    size_t in_block = (size_t)(at % TRI_WANDB_BLOCK_BYTES) + sizeof head;
    if (in_block + p->num_bytes > TRI_WANDB_BLOCK_BYTES || head[6] < TRI_WANDB_FULL ||
        head[6] > TRI_WANDB_LAST)
        return 0;
    num = read_at(fd, p->data, p->num_bytes, at + (off_t)sizeof head);
    if (num != (ssize_t)p->num_bytes)
        return num < 0 ? -1 : 0;
    return le32toh(sum) == tri_wandb_sum(p->kind, p->data, p->num_bytes);
}

/* Gathers the pieces of the record at *at, which is behind it afterwards. As read_piece, and -1
 * when there is no memory. */
static int read_record(int fd, off_t *at, wandb_piece *p, tri_log_file *record)
{
    for (bool first = true;; first = false) {
        size_t left = TRI_WANDB_BLOCK_BYTES - (size_t)(*at % TRI_WANDB_BLOCK_BYTES);
        if (left < TRI_WANDB_HEAD_BYTES)
            *at += (off_t)left;
        int got = read_piece(fd, *at, p);
        if (got <= 0)
            return got;
        if (first != (p->kind == TRI_WANDB_FULL || p->kind == TRI_WANDB_FIRST))
            return 0;
        tri_log_file_put(record, p->data, p->num_bytes);
        if (record->pending.failed) {
            errno = ENOMEM;
            return -1;
        }
        *at += TRI_WANDB_HEAD_BYTES + (off_t)p->num_bytes;
        if (p->kind == TRI_WANDB_FULL || p->kind == TRI_WANDB_LAST)
            return 1;
    }
}

/* The last field of a number in a message in a field of a message; zeros: there is none. */
static tri_proto_field find_in(const tri_proto_field *message, unsigned inner, unsigned number)
{
    const unsigned char *data = message->data;
    size_t left = message->num_bytes;
    tri_proto_field found = {0}, field, last;
    while (data && tri_proto_next(&data, &left, &field)) {
        const unsigned char *in = field.data;
        size_t in_left = field.num_bytes;
        while (field.number == inner && in && tri_proto_next(&in, &in_left, &last))
            found = last.number == number ? last : found;
    }
    return found;
}

static bool names_us(const tri_proto_field *version)
{
    tri_proto_field who = find_in(version, TRI_WANDB_VERSION_INFO, TRI_WANDB_VERSION_PRODUCER);
    size_t length = strlen(TRI_WANDB_PRODUCER);
    return who.data && who.num_bytes >= length && memcmp(who.data, TRI_WANDB_PRODUCER, length) == 0;
}

/* Whether the record stays; what it says counts only then. */
static bool look_at(const tri_log_file *record, int64_t steps, tri_wandb_found *found)
{
    const unsigned char *data = (const unsigned char *)record->pending.chars;
    size_t left = record->pending.length;
    tri_wandb_found then = *found;
    tri_proto_field field;
    while (left > 0) {
        if (!tri_proto_next(&data, &left, &field) || field.number == TRI_WANDB_RECORD_EXIT)
            return false;
        if (field.number == TRI_WANDB_RECORD_NUM)
            then.num = (int64_t)field.value;
        if (field.number == TRI_WANDB_RECORD_HISTORY &&
            (int64_t)find_in(&field, TRI_WANDB_HISTORY_STEP, TRI_WANDB_STEP_NUM).value > steps)
            return false;
        if (field.number == TRI_WANDB_RECORD_RUN) {
            then.has_run = true;
            then.start_s =
                (int64_t)find_in(&field, TRI_WANDB_RUN_START, TRI_WANDB_TIME_SECONDS).value;
        }
        if (field.number == TRI_WANDB_RECORD_VERSION)
            then.is_ours = names_us(&field);
    }
    *found = then;
    return true;
}

int tri_wandb_scan(int fd, int64_t steps, tri_wandb_found *found)
{
    unsigned char header[TRI_WANDB_HEAD_BYTES];
    wandb_piece p;
    *found = (tri_wandb_found){0};
    ssize_t num = read_at(fd, header, sizeof header, 0);
    if (num < 0)
        return errno;
    found->is_log = num == (ssize_t)sizeof header && memcmp(header, tri_wandb_header, 7) == 0;
    if (!found->is_log)
        return 0;
    found->end = TRI_WANDB_HEAD_BYTES;
    tri_log_file record;
    tri_log_file_init(&record);
    int got;
    off_t at = found->end;
    while ((got = read_record(fd, &at, &p, &record)) > 0 && look_at(&record, steps, found)) {
        found->end = at;
        record.pending.length = 0;
    }
    int reason = got < 0 ? errno : 0;
    tri_log_file_fini(&record);
    return reason;
}
