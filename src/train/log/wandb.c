/* wandb/offline-run-DATE-ID/run-ID.wandb: a run of W&B that was recorded offline, for `wandb sync`.
 * The run keeps its file and its id when it is resumed. */
#include "train/log/wandb.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "train/log/log_format.h"
#include "trireme/version.h"

enum { ID_CHARS = 8 };

typedef struct wandb {
    tri_log_latest latest;
    int64_t num;       /* of the last record */
    double start_s;    /* of the run, also when it was resumed */
    bool tells_config; /* the settings of this start are not in the file yet */
    char id[ID_CHARS + 1];
} wandb;

/* JSON has no names for these; W&B knows them as texts. */
static const tri_odd_numbers odd = {"\"NaN\"", "\"Infinity\"", "\"-Infinity\""};

/* Fields of messages, beside those of wandb.h. */
enum { ITEM_KEY = 1, ITEM_JSON = 16, ITEMS = 1 };
enum { RUN_ID = 1, RUN_PROJECT = 3, RUN_CONFIG = 4, RUN_NAME = 8, RUN_HOST = 13 };
enum { VERSION_CONSUMER = 2, EXIT_CODE = 1, EXIT_TIME = 2 };

static void put_piece(tri_log *log, tri_wandb_piece kind, const unsigned char *data, size_t num)
{
    unsigned char head[TRI_WANDB_HEAD_BYTES];
    uint32_t sum = htole32(tri_wandb_sum(kind, data, num));
    memcpy(head, &sum, sizeof sum);
    head[4] = (unsigned char)num;
    head[5] = (unsigned char)(num >> 8);
    head[6] = (unsigned char)kind;
    tri_log_file_put(&log->file, head, sizeof head);
    tri_log_file_put(&log->file, data, num);
}

/* Cut where blocks end; less than a head at the end of a block is filled with zeros. */
static void put_pieces(tri_log *log, const unsigned char *data, size_t num_bytes)
{
    static const unsigned char zeros[TRI_WANDB_HEAD_BYTES];
    bool first = true, last;
    do {
        size_t room =
            TRI_WANDB_BLOCK_BYTES - (size_t)(tri_log_file_end(&log->file) % TRI_WANDB_BLOCK_BYTES);
        if (room < TRI_WANDB_HEAD_BYTES) {
            tri_log_file_put(&log->file, zeros, room);
            room = TRI_WANDB_BLOCK_BYTES;
        }
        room -= TRI_WANDB_HEAD_BYTES;
        size_t num = num_bytes < room ? num_bytes : room;
        last = num == num_bytes;
        put_piece(log,
                  first && last ? TRI_WANDB_FULL
                  : first       ? TRI_WANDB_FIRST
                  : last        ? TRI_WANDB_LAST
                                : TRI_WANDB_MIDDLE,
                  data, num);
        data += num;
        num_bytes -= num;
        first = false;
    } while (!last && !log->file.pending.failed);
}

/* What log->proto holds becomes a field of a record. */
static void put_record(tri_log *log, unsigned field)
{
    wandb *own = log->own;
    tri_proto_wrap(&log->proto, field, 0);
    tri_proto_put_int(&log->proto, TRI_WANDB_RECORD_NUM, ++own->num);
    if (log->proto.failed)
        log->file.pending.failed = true;
    else
        put_pieces(log, tri_proto_data(&log->proto), log->proto.length);
    tri_proto_clear(&log->proto);
}

static void add_item(tri_log *log, const char *key, const char *value)
{
    size_t end = log->proto.length;
    tri_proto_put_text(&log->proto, ITEM_JSON, value);
    tri_proto_put_text(&log->proto, ITEM_KEY, key);
    tri_proto_wrap(&log->proto, ITEMS, end);
}

static void add_config(tri_log *log)
{
    const char *key;
    json_t *value;
    json_object_foreach(log->facts->config, key, value)
    {
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        if (text)
            add_item(log, key, text);
        free(text);
    }
}

static void put_run(tri_log *log)
{
    wandb *own = log->own;
    tri_proto *proto = &log->proto;
    tri_log_file_put(&log->file, tri_wandb_header, sizeof tri_wandb_header);
    own->num = 0;
    tri_proto_clear(proto);
    tri_proto_put_text(proto, VERSION_CONSUMER, "0.70.0");
    tri_proto_put_text(proto, TRI_WANDB_VERSION_PRODUCER, TRI_WANDB_PRODUCER TRIREME_VERSION);
    tri_proto_wrap(proto, TRI_WANDB_VERSION_INFO, 0);
    put_record(log, TRI_WANDB_RECORD_VERSION);
    double seconds = floor(own->start_s);
    tri_proto_put_int(proto, TRI_WANDB_TIME_NANOS, (int64_t)((own->start_s - seconds) * 1e9));
    tri_proto_put_int(proto, TRI_WANDB_TIME_SECONDS, (int64_t)seconds);
    tri_proto_wrap(proto, TRI_WANDB_RUN_START, 0);
    tri_proto_put_text(proto, RUN_HOST, log->facts->host);
    tri_proto_put_text(proto, RUN_NAME, log->facts->run);
    size_t end = proto->length;
    add_config(log);
    tri_proto_wrap(proto, RUN_CONFIG, end);
    tri_proto_put_text(proto, RUN_PROJECT, "trireme");
    tri_proto_put_text(proto, RUN_ID, own->id);
    put_record(log, TRI_WANDB_RECORD_RUN);
    own->tells_config = false;
}

static void add_numbers(tri_log *log, const tri_row_number *numbers, size_t num, double time_s)
{
    wandb *own = log->own;
    char value[TRI_NUMBER_BYTES], key[96];
    add_item(log, "_runtime", tri_time_text(time_s - own->start_s, value));
    add_item(log, "_timestamp", tri_time_text(time_s, value));
    for (size_t i = num; i-- > 0;) {
        snprintf(key, sizeof key, "%s/%s", numbers[i].group, numbers[i].tag);
        if (numbers[i].present)
            add_item(log, i == 0 ? "_step" : key, tri_number_text(&numbers[i], &odd, value));
    }
}

static void row(tri_log *log, const tri_metrics_row *row)
{
    wandb *own = log->own;
    if (tri_log_file_end(&log->file) == 0)
        put_run(log);
    if (own->tells_config) {
        add_config(log);
        put_record(log, TRI_WANDB_RECORD_CONFIG);
        own->tells_config = false;
    }
    tri_log_latest_add(&own->latest, row);
    tri_row_number numbers[TRI_ROW_MAX_NUMBERS];
    for (size_t i = 0; i < own->latest.num; i++)
        numbers[i] = tri_row_number_at(row, i);
    tri_proto_put_int(&log->proto, TRI_WANDB_STEP_NUM, row->step);
    tri_proto_wrap(&log->proto, TRI_WANDB_HISTORY_STEP, 0);
    add_numbers(log, numbers, own->latest.num, row->time_s);
    put_record(log, TRI_WANDB_RECORD_HISTORY);
}

static void end(tri_log *log, int exit_code)
{
    wandb *own = log->own;
    if (tri_log_file_end(&log->file) == 0)
        put_run(log);
    if (own->latest.num > 0) {
        add_numbers(log, own->latest.numbers, own->latest.num, own->latest.time_s);
        put_record(log, TRI_WANDB_RECORD_SUMMARY);
    }
    tri_proto_put_int(&log->proto, EXIT_TIME, (int64_t)(tri_unix_s() - own->start_s));
    tri_proto_put_int(&log->proto, EXIT_CODE, exit_code);
    put_record(log, TRI_WANDB_RECORD_EXIT);
}

/* "offline-run-DATE-ID" of the run that is in the directory, the newest; false: there is none. */
static bool find_run(const char *dir, char name[64])
{
    static const char prefix[] = "offline-run-";
    DIR *stream = opendir(dir);
    *name = 0;
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        const char *dash = strrchr(entry->d_name, '-');
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && dash &&
            strlen(dash + 1) == ID_CHARS && strlen(entry->d_name) < 64 &&
            strcmp(entry->d_name, name) > 0)
            strcpy(name, entry->d_name);
    }
    if (stream)
        closedir(stream);
    return *name != 0;
}

static void name_run(const tri_log *log, char name[64])
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char bytes[ID_CHARS] = {0};
    char id[ID_CHARS + 1] = "", date[32] = "";
    time_t seconds = (time_t)log->facts->start_s;
    struct tm local;
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != (ssize_t)sizeof bytes) {
        uint64_t now = tri_now_ns() ^ (uint64_t)getpid() << 40;
        memcpy(bytes, &now, sizeof bytes);
    }
    for (int i = 0; i < ID_CHARS; i++)
        id[i] = letters[bytes[i] % 36];
    if (localtime_r(&seconds, &local))
        strftime(date, sizeof date, "%Y%m%d_%H%M%S", &local);
    snprintf(name, 64, "offline-run-%s-%s", date, id);
}

/* Takes out of the file what is written again. *mine: false when somebody else began it. */
static int go_on(tri_log *log, bool *mine)
{
    wandb *own = log->own;
    tri_wandb_found found;
    *mine = true;
    int reason = tri_wandb_scan(log->file.fd, log->facts->step, &found);
    if (reason != 0)
        return reason;
    *mine = log->file.size == 0 || found.is_ours;
    if (!*mine)
        return 0;
    if (!found.has_run) /* whoever began it came no further */
        return tri_log_file_cut(&log->file, 0);
    own->num = found.num;
    own->start_s = (double)found.start_s;
    own->tells_config = true;
    return found.end < log->file.size ? tri_log_file_cut(&log->file, found.end) : 0;
}

static int open_run(tri_log *log, const char *above, const char *name)
{
    wandb *own = log->own;
    char *dir = NULL, *path = NULL, file[40];
    int reason = tri_log_make_dir(above, name, &dir);
    if (reason == 0) {
        snprintf(own->id, sizeof own->id, "%s", strrchr(name, '-') + 1);
        snprintf(file, sizeof file, "run-%s.wandb", own->id);
        path = tri_path_join(dir, file);
        reason = path ? tri_log_file_open(&log->file, path) : ENOMEM;
    }
    free(path);
    free(dir);
    return reason;
}

static int open_wandb(tri_log *log)
{
    wandb *own = log->own;
    char *above = NULL, name[64];
    bool mine = false;
    own->start_s = log->facts->start_s;
    int reason = tri_log_make_dir(log->facts->dir, "wandb", &above);
    if (reason == 0 && log->facts->continues && find_run(above, name)) {
        reason = open_run(log, above, name);
        if (reason == 0)
            reason = go_on(log, &mine);
        if (reason == 0 && !mine) {
            close(log->file.fd);
            log->file.fd = -1;
        }
    }
    if (reason == 0 && !mine) {
        name_run(log, name);
        reason = open_run(log, above, name);
    }
    free(above);
    return reason;
}

const tri_log_format tri_log_wandb = {.name = "wandb",
                                      .where = "wandb/",
                                      .own_bytes = sizeof(wandb),
                                      .open = open_wandb,
                                      .row = row,
                                      .end = end};
