/* tensorboard/events.out.tfevents.TIME.HOST.PID.0: an event file of TensorBoard, one for each start
 * of the run. A file is a row of records, each with its length and the masked CRC-32C of length and
 * data; a record is a message Event of tensorflow/core/util/event.proto. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/fs.h"
#include "train/log/log_format.h"

enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };

static const char prefix[] = "events.out.tfevents.";

static uint32_t masked_sum(const void *data, size_t num_bytes)
{
    uint32_t sum = tri_crc32c(data, num_bytes);
    return htole32((sum >> 15 | sum << 17) + 0xa282ead8u);
}

/* What was put into log->proto is a record. */
static void put_record(tri_log *log)
{
    if (log->proto.failed) {
        log->file.pending.failed = true;
        return;
    }
    const unsigned char *data = tri_proto_data(&log->proto);
    uint64_t length = htole64(log->proto.length);
    uint32_t of_length = masked_sum(&length, sizeof length),
             of_data = masked_sum(data, log->proto.length);
    tri_log_file_put(&log->file, &length, sizeof length);
    tri_log_file_put(&log->file, &of_length, sizeof of_length);
    tri_log_file_put(&log->file, data, log->proto.length);
    tri_log_file_put(&log->file, &of_data, sizeof of_data);
}

/* A start tells TensorBoard to forget what other files have of this step and later ones. */
static void put_start(tri_log *log)
{
    tri_proto *proto = &log->proto;
    tri_proto_clear(proto);
    tri_proto_put_text(proto, EVENT_VERSION, "brain.Event:2");
    tri_proto_put_double(proto, EVENT_TIME, log->facts->start_s);
    put_record(log);
    tri_proto_clear(proto);
    tri_proto_put_int(proto, SESSION_STATUS, SESSION_START);
    tri_proto_wrap(proto, EVENT_SESSION, 0);
    tri_proto_put_int(proto, EVENT_STEP, log->facts->step + 1);
    tri_proto_put_double(proto, EVENT_TIME, log->facts->start_s);
    put_record(log);
}

static void row(tri_log *log, const tri_metrics_row *row)
{
    if (tri_log_file_end(&log->file) == 0)
        put_start(log);
    tri_proto *proto = &log->proto;
    tri_proto_clear(proto);
    for (size_t i = tri_row_num_numbers(row); i-- > 1;) { /* but for the step */
        tri_row_number number = tri_row_number_at(row, i);
        if (!number.present)
            continue;
        char tag[96];
        snprintf(tag, sizeof tag, "%s/%s", number.group, number.tag);
        size_t end = proto->length;
        tri_proto_put_float(proto, VALUE_SIMPLE, (float)number.real);
        tri_proto_put_text(proto, VALUE_TAG, tag);
        tri_proto_wrap(proto, SUMMARY_VALUE, end);
    }
    tri_proto_wrap(proto, EVENT_SUMMARY, 0);
    tri_proto_put_int(proto, EVENT_STEP, row->step);
    tri_proto_put_double(proto, EVENT_TIME, row->time_s);
    put_record(log);
}

/* TensorBoard reads files by their names' order. Starts follow each other within a second, and
 * clocks are set back, so a new file is later than all that are there. */
static int choose_time(const char *dir, int64_t now, int64_t *chosen)
{
    tri_file_list list;
    *chosen = now;
    if (tri_file_list_read(&list, dir, NULL) != TR_OK)
        return errno ? errno : EIO;
    for (size_t i = 0; i < list.num; i++) {
        if (strncmp(list.name[i], prefix, strlen(prefix)) != 0)
            continue;
        int64_t time = strtoll(list.name[i] + strlen(prefix), NULL, 10);
        if (time >= *chosen && time < INT64_C(9999999999))
            *chosen = time + 1;
    }
    tri_file_list_free(&list);
    return 0;
}

static int open_tensorboard(tri_log *log)
{
    char *dir = NULL, *path = NULL, name[160];
    int64_t time = 0;
    int reason = tri_log_make_dir(log->facts->dir, "tensorboard", &dir);
    if (reason == 0)
        reason = choose_time(dir, (int64_t)log->facts->start_s, &time);
    if (reason == 0) {
        snprintf(name, sizeof name, "%s%010" PRId64 ".%s.%ld.0", prefix, time, log->facts->host,
                 (long)getpid());
        path = tri_path_join(dir, name);
        reason = path ? tri_log_file_open(&log->file, path) : ENOMEM;
    }
    free(path);
    free(dir);
    return reason;
}

const tri_log_format tri_log_tensorboard = {
    .name = "tensorboard", .where = "tensorboard/", .open = open_tensorboard, .row = row};
