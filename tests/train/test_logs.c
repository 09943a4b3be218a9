/* Files for other tools (run.logs): what is in them, by readers that share nothing with the
 * writers, and what becomes of them on a disk that is full or stands still. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "temp_dir.h"
#include "train/log/logs.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>

/* ---- the disk ---- */

static _Atomic bool disk_waits;        /* a write waits until it is released */
static _Atomic int disk_waiting;       /* how many do */
static _Atomic int64_t disk_room = -1; /* bytes until it is full; -1: it never is */
static sem_t disk_released;

/* In the place of the C library's. */
ssize_t pwrite(int fd, const void *data, size_t num_bytes, off_t at)
{
    if (atomic_load(&disk_waits)) {
        atomic_fetch_add(&disk_waiting, 1);
        while (sem_wait(&disk_released) != 0)
            ;
        atomic_fetch_sub(&disk_waiting, 1);
    }
    int64_t room = atomic_load(&disk_room);
    if (room == 0) {
        errno = ENOSPC;
        return -1;
    }
    if (room > 0) { /* the last write that finds room is cut short */
        num_bytes = (int64_t)num_bytes < room ? num_bytes : (size_t)room;
        atomic_store(&disk_room, room - (int64_t)num_bytes);
    }
    return syscall(SYS_pwrite64, fd, data, num_bytes, at);
}

/* ---- rows ---- */

static const tri_shown two_stats[] = {{"max_logit", 2, 1.5}, {"odd, \"name\"", 0, -0.25}};

static tri_metrics_row row_of(int64_t step)
{
    return (tri_metrics_row){.step = step,
                             .time_s = 1790000000.25 + (double)step,
                             .loss = (float)(4.0 / 3 + 1.0 / (double)step),
                             .grad_norm = step % 7 == 3 ? INFINITY : 0.1f,
                             .lr = 3e-3,
                             .tokens = 512 * step,
                             .step_ms = 12.345,
                             .tokens_per_s = 41474.3,
                             .mem_peak_bytes = 123456789012,
                             .slowest_rank = 3,
                             .slowest_ms = 12.3,
                             .own_ms = 11.5,
                             .waited_ms = 0.75,
                             .slow_rank = -1,
                             .has_eval = step % 5 == 0,
                             .eval_loss = 2.5 + (double)step,
                             .eval_accuracy = NAN,
                             .stats = two_stats,
                             .num_stats = 2};
}

static tri_logs_config config_of(temp_dir *dir, const char *formats)
{
    return (tri_logs_config){
        .formats = formats, .dir = dir->path, .stats = two_stats, .num_stats = 2, .num_rows = 8192};
}

/* Rows from a step to a step, into files that nothing is wrong with. */
static void write_rows(const tri_logs_config *config, int64_t from, int64_t to, int exit_code)
{
    tr_error err = {0};
    tri_logs *logs;
    assert_int_equal(tri_logs_open(config, &logs, &err), TR_OK);
    for (int64_t step = from; step <= to; step++) {
        tri_metrics_row row = row_of(step);
        if (!tri_logs_row(logs, &row, &err))
            fail_msg("%s", err.message);
    }
    if (!tri_logs_end(logs, exit_code, &err))
        fail_msg("%s", err.message);
    tri_logs_close(logs);
}

static int num_threads(void)
{
    int num = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && readdir(tasks))
        num++;
    closedir(tasks);
    return num;
}

static int empty_dir(void **state)
{
    temp_dir *dir = *state;
    nftw(dir->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    atomic_store(&disk_waits, false);
    atomic_store(&disk_room, -1);
    sem_init(&disk_released, 0, 0);
    return mkdir(dir->path, 0777);
}

/* ---- readers ---- */

typedef struct bytes {
    unsigned char *data;
    size_t num;
} bytes;

static bytes read_all(const char *path)
{
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return (bytes){calloc(1, 1), 0};
    bytes b = {malloc(1 << 22), 0};
    b.num = fread(b.data, 1, 1 << 22, stream);
    b.data[b.num] = 0;
    assert_true(b.num < (1 << 22));
    fclose(stream);
    return b;
}

/* The i-th name in a directory that begins so, or NULL; good until the next call. */
static const char *name_in(const char *dir, const char *prefix, int i)
{
    static char path[2][512];
    static int turn;
    struct dirent **names;
    int num = scandir(dir, &names, NULL, alphasort), seen = 0;
    char *found = NULL;
    for (int n = 0; n < num; n++) {
        if (strncmp(names[n]->d_name, prefix, strlen(prefix)) == 0 && seen++ == i) {
            found = path[turn++ % 2];
            snprintf(found, sizeof path[0], "%s/%s", dir, names[n]->d_name);
        }
        free(names[n]);
    }
    if (num >= 0)
        free(names);
    return found;
}

/* Bit by bit. */
static uint32_t crc_of(uint32_t polynomial, const unsigned char *data, size_t num)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < num; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint32_t low = (crc ^ (uint32_t)(data[i] >> bit)) & 1;
            crc = crc >> 1 ^ (low ? polynomial : 0);
        }
    return ~crc;
}
enum { CASTAGNOLI = 0x82f63b78 };
static const uint32_t zip_polynomial = 0xedb88320;

static uint64_t little(const unsigned char *data, int num)
{
    uint64_t value = 0;
    for (int i = num - 1; i >= 0; i--)
        value = value << 8 | data[i];
    return value;
}

typedef struct field {
    unsigned number, wire;
    uint64_t value;
    bytes in;
} field;

static uint64_t take_varint(bytes *b)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(b->num > 0 && shift < 70);
        unsigned char byte = *b->data++;
        b->num--;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
}

static bool next_field(bytes *b, field *f)
{
    if (b->num == 0)
        return false;
    uint64_t key = take_varint(b);
    *f = (field){.number = (unsigned)(key >> 3), .wire = key & 7};
    if (f->wire == 0) {
        f->value = take_varint(b);
        return true;
    }
    assert_true(f->wire == 1 || f->wire == 2 || f->wire == 5);
    size_t length = f->wire == 1 ? 8 : f->wire == 5 ? 4 : take_varint(b);
    assert_true(length <= b->num);
    if (f->wire == 2)
        f->in = (bytes){b->data, length};
    else
        f->value = little(b->data, (int)length);
    b->data += length;
    b->num -= length;
    return true;
}

/* The first field of a number; fails when there is none. */
static field get(bytes b, unsigned number)
{
    field f;
    while (next_field(&b, &f))
        if (f.number == number)
            return f;
    fail_msg("no field %u", number);
    return f;
}

static bool is_text(bytes b, const char *text)
{
    return b.num == strlen(text) && memcmp(b.data, text, b.num) == 0;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- TensorBoard ---- */

/* The record at *at, which is behind it afterwards. */
static bool next_event(bytes file, size_t *at, bytes *record)
{
    if (*at == file.num)
        return false;
    assert_true(file.num - *at >= 16);
    uint64_t length = little(file.data + *at, 8);
    assert_true(length <= file.num - *at - 16);
    const size_t where[2] = {*at, *at + 12}, num[2] = {8, (size_t)length};
    for (int i = 0; i < 2; i++) {
        uint32_t sum = crc_of(CASTAGNOLI, file.data + where[i], num[i]);
        sum = (sum >> 15 | sum << 17) + 0xa282ead8u;
        assert_int_equal(little(file.data + where[i] + num[i], 4), sum);
    }
    *record = (bytes){file.data + *at + 12, (size_t)length};
    *at += length + 16;
    return true;
}

static bool find_scalar(bytes summary, const char *tag, float *value)
{
    field f;
    while (next_field(&summary, &f)) {
        assert_int_equal(f.number, 1);
        if (!is_text(get(f.in, 1).in, tag))
            continue;
        uint32_t bits = (uint32_t)get(f.in, 2).value;
        memcpy(value, &bits, sizeof *value);
        return true;
    }
    return false;
}

static void check_event(bytes record, int64_t step)
{
    tri_metrics_row row = row_of(step);
    float value;
    assert_true(double_of(get(record, 1).value) == row.time_s);
    assert_int_equal(get(record, 2).value, step);
    bytes summary = get(record, 5).in;
    assert_true(find_scalar(summary, "train/loss", &value) && value == (float)row.loss);
    assert_true(find_scalar(summary, "train/grad_norm", &value) && value == (float)row.grad_norm);
    assert_true(find_scalar(summary, "train/lr", &value) && value == 3e-3f);
    assert_true(find_scalar(summary, "train/max_logit", &value) && value == 1.5f);
    assert_true(find_scalar(summary, "perf/tokens_per_s", &value) && value == 41474.3f);
    assert_int_equal(find_scalar(summary, "eval/loss", &value), step % 5 == 0);
    assert_true(step % 5 != 0 || value == (float)row.eval_loss);
    assert_false(find_scalar(summary, "eval/accuracy", &value));
    assert_false(find_scalar(summary, "train/step", &value));
}

/* The i-th event file has these steps. */
static void check_events(temp_dir *dir, int i, int64_t from, int64_t to)
{
    char folder[128];
    snprintf(folder, sizeof folder, "%s/tensorboard", dir->path);
    const char *path = name_in(folder, "events.out.tfevents.", i);
    assert_non_null(path);
    bytes file = read_all(path), record;
    size_t at = 0;
    assert_true(next_event(file, &at, &record));
    assert_true(is_text(get(record, 3).in, "brain.Event:2"));
    assert_true(next_event(file, &at, &record)); /* forget this step and later ones */
    assert_int_equal(get(record, 2).value, from);
    assert_int_equal(get(get(record, 7).in, 1).value, 1);
    for (int64_t step = from; step <= to; step++) {
        assert_true(next_event(file, &at, &record));
        check_event(record, step);
    }
    assert_false(next_event(file, &at, &record));
    free(file.data);
}

/* ---- W&B ---- */

typedef struct wandb_log {
    bytes file;
    size_t at;
    unsigned char record[1 << 20];
    size_t num;
    int pieces[5]; /* of each kind */
    int pads, empty;
} wandb_log;

static bool next_record(wandb_log *log)
{
    log->num = 0;
    for (bool first = true;; first = false) {
        size_t left = 32768 - log->at % 32768;
        if (left < 7 && log->at < log->file.num) {
            for (size_t i = 0; i < left; i++)
                assert_int_equal(log->file.data[log->at + i], 0);
            log->at += left;
            log->pads++;
        }
        if (log->at == log->file.num) {
            assert_true(first);
            return false;
        }
        assert_true(log->file.num - log->at >= 7);
        const unsigned char *head = log->file.data + log->at;
        size_t length = little(head + 4, 2), kind = head[6];
        assert_true(kind >= 1 && kind <= 4 && first == (kind <= 2));
        assert_true(log->at % 32768 + 7 + length <= 32768);
        assert_true(log->at + 7 + length <= log->file.num);
        assert_int_equal(little(head, 4), crc_of(zip_polynomial, head + 6, length + 1));
        memcpy(log->record + log->num, head + 7, length);
        log->num += length;
        log->at += 7 + length;
        log->pieces[kind]++;
        log->empty += length == 0;
        if (kind == 1 || kind == 4)
            return true;
    }
}

static const char *wandb_path(temp_dir *dir, int i)
{
    static char path[600];
    char folder[128];
    snprintf(folder, sizeof folder, "%s/wandb", dir->path);
    const char *run = name_in(folder, "offline-run-", i);
    const char *id = run ? strrchr(run, '-') + 1 : NULL;
    if (!run)
        return NULL;
    snprintf(path, sizeof path, "%s/run-%s.wandb", run, id);
    return path;
}

static wandb_log *open_wandb(temp_dir *dir)
{
    wandb_log *log = calloc(1, sizeof *log);
    log->file = read_all(wandb_path(dir, 0));
    assert_memory_equal(log->file.data, ":W&B\xe1\xbe\0", 7);
    log->at = 7;
    return log;
}

static void close_wandb(wandb_log *log)
{
    free(log->file.data);
    free(log);
}

static bool item_is(bytes message, const char *key, const char *json)
{
    field f;
    while (next_field(&message, &f))
        if (f.number == 1 && is_text(get(f.in, 1).in, key))
            return is_text(get(f.in, 16).in, json);
    return false;
}

static void check_history(const wandb_log *log, int64_t step)
{
    char text[40];
    bytes record = {(unsigned char *)log->record, log->num}, history = get(record, 2).in;
    tri_metrics_row row = row_of(step);
    assert_int_equal(get(get(history, 2).in, 1).value, step);
    snprintf(text, sizeof text, "%lld", (long long)step);
    assert_true(item_is(history, "_step", text));
    snprintf(text, sizeof text, "%.9g", row.loss);
    assert_true(item_is(history, "train/loss", text));
    assert_true(
        item_is(history, "train/grad_norm", isinf(row.grad_norm) ? "\"Infinity\"" : "0.100000001"));
    snprintf(text, sizeof text, "%.3f", row.time_s);
    assert_true(item_is(history, "_timestamp", text));
    snprintf(text, sizeof text, "%.9g", row.eval_loss);
    assert_int_equal(item_is(history, "eval/loss", text), step % 5 == 0);
}

/* Header and run, all steps once, and where the log ends with one, summary and exit. */
static void check_wandb(temp_dir *dir, int64_t to, int num_configs, int exit_code)
{
    wandb_log *log = open_wandb(dir);
    int64_t num = 0, step = 0;
    int configs = 0;
    bool exited = false;
    while (next_record(log)) {
        bytes record = {log->record, log->num};
        assert_false(exited);
        assert_int_equal(get(record, 1).value, ++num);
        field f;
        for (bytes rest = record; next_field(&rest, &f);) {
            configs += f.number == 5;
            exited |= f.number == 18;
            assert_true(num != 1 || f.number == 1 || f.number == 21);
            assert_true(num != 2 || f.number == 1 || f.number == 17);
            if (f.number == 2)
                check_history(log, ++step);
            if (f.number == 18)
                assert_int_equal(get(f.in, 1).value, exit_code);
            if (f.number == 17)
                assert_true(item_is(get(f.in, 4).in, "model.kind", "\"gpt2\""));
        }
    }
    assert_int_equal(step, to);
    assert_int_equal(configs, num_configs);
    assert_int_equal(exited, exit_code >= 0);
    close_wandb(log);
}

static json_t *some_settings(void)
{
    return json_pack("{s:s, s:i, s:b}", "model.kind", "gpt2", "model.dim", 64, "run.save", 1);
}

/* ---- tests ---- */

static void sums_are_those_of_the_formats(void **state)
{
    (void)state;
    unsigned char data[300];
    assert_int_equal(tri_crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(crc_of(CASTAGNOLI, (const unsigned char *)"123456789", 9), 0xe3069283u);
    assert_int_equal(crc_of(zip_polynomial, (const unsigned char *)"123456789", 9), 0xcbf43926u);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * i * 31 + 7);
    for (size_t num = 0; num < sizeof data; num++)
        assert_int_equal(tri_crc32c(data, num), crc_of(CASTAGNOLI, data, num));
}

static void words_that_are_no_format_are_refused(void **state)
{
    (void)state;
    tr_error err;
    assert_int_equal(tri_logs_check("", &err), TR_OK);
    assert_int_equal(tri_logs_check("csv, wandb tensorboard,prometheus", &err), TR_OK);
    assert_int_equal(tri_logs_check("csv,mlflow", &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "\"mlflow\""));
    assert_non_null(strstr(err.message, "tensorboard, wandb, csv, prometheus"));
    assert_int_equal(tri_logs_check("cs", &err), TR_ERROR_INPUT);
}

static void tensorboard_has_every_step(void **state)
{
    tri_logs_config config = config_of(*state, "tensorboard");
    write_rows(&config, 1, 40, 0);
    check_events(*state, 0, 1, 40);
}

/* A second start follows at once, in the same second: its file must still be the later one. */
static void tensorboard_goes_on_in_a_new_file(void **state)
{
    tri_logs_config config = config_of(*state, "tensorboard");
    write_rows(&config, 1, 12, 1);
    config.continues = true;
    config.step = 8;
    write_rows(&config, 9, 20, 0);
    check_events(*state, 0, 1, 12);
    check_events(*state, 1, 9, 20);
}

static void wandb_cuts_records_at_blocks(void **state)
{
    tri_logs_config config = config_of(*state, "wandb");
    enum { LONG = 100000, STEPS = 1500 };
    char *text = malloc(LONG + 1);
    memset(text, 'x', LONG);
    text[LONG] = 0;
    config.config = some_settings();
    json_object_set_new(config.config, "data.template", json_string(text));
    free(text);
    write_rows(&config, 1, STEPS, 3);
    check_wandb(*state, STEPS, 0, 3);
    wandb_log *log = open_wandb(*state);
    while (next_record(log))
        ;
    assert_true(log->pieces[2] > 10); /* cut once, and more than once */
    assert_true(log->pieces[3] >= 2);
    assert_int_equal(log->pieces[2], log->pieces[4]);
    close_wandb(log);
}

/* A record that begins with 0 to 8 bytes left in the block: padding, a piece without data, and
 * neither. */
static void wandb_fills_blocks_to_the_byte(void **state)
{
    tri_logs_config config = config_of(*state, "wandb");
    config.config = some_settings();
    json_object_set_new(config.config, "data.template", json_string(""));
    write_rows(&config, 1, 1, 0);
    wandb_log *log = open_wandb(*state);
    assert_true(next_record(log) && next_record(log)); /* header, run */
    size_t behind_run = log->at;
    close_wandb(log);
    int pads = 0, empty = 0;
    for (size_t left = 0; left <= 8; left++) {
        empty_dir(state);
        /* Lengths of three messages are written with one more byte each when the text is long. */
        size_t longer = 32768 - left - behind_run;
        char *text = malloc(longer + 1);
        for (size_t trim = 4; trim < 12; trim++) {
            empty_dir(state);
            memset(text, 'x', longer);
            text[longer - trim] = 0;
            config.config = some_settings();
            json_object_set_new(config.config, "data.template", json_string(text));
            write_rows(&config, 1, 3, 0);
            check_wandb(*state, 3, 0, 0);
            log = open_wandb(*state);
            while (next_record(log))
                ;
            pads += log->pads;
            empty += log->empty;
            close_wandb(log);
        }
        free(text);
    }
    assert_true(pads > 0);
    assert_true(empty > 0);
}

static void wandb_goes_on_in_its_file(void **state)
{
    temp_dir *dir = *state;
    tri_logs_config config = config_of(dir, "wandb");
    config.config = some_settings();
    write_rows(&config, 1, 300, 1);
    config.continues = true;
    config.step = 280;
    config.config = some_settings();
    write_rows(&config, 281, 310, 0);
    check_wandb(dir, 310, 1, 0);
    assert_null(wandb_path(dir, 1));
    /* To the end, and then some more steps. */
    config.step = 310;
    config.config = some_settings();
    write_rows(&config, 311, 315, 0);
    check_wandb(dir, 315, 2, 0);
    /* Killed in the middle of a record. */
    assert_int_equal(truncate(wandb_path(dir, 0), 65536 + 3000), 0);
    config.step = 90;
    config.config = some_settings();
    write_rows(&config, 91, 120, 0);
    check_wandb(dir, 120, 1, 0);
    /* And before it had a run. */
    wandb_log *log = open_wandb(dir);
    assert_true(next_record(log));
    assert_int_equal(truncate(wandb_path(dir, 0), (off_t)log->at + 20), 0);
    close_wandb(log);
    config.step = 0;
    config.config = some_settings();
    write_rows(&config, 1, 3, 0);
    check_wandb(dir, 3, 0, 0);
    assert_null(wandb_path(dir, 1));
}

/* A run of W&B's own that lies there stays as it is. */
static void wandb_leaves_the_runs_of_others(void **state)
{
    temp_dir *dir = *state;
    char path[128];
    snprintf(path, sizeof path, "%s/wandb", dir->path);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/wandb/offline-run-99999999_000000-abcdefgh",
             dir->path); /* later */
    assert_int_equal(mkdir(path, 0777), 0);
    strcat(path, "/run-abcdefgh.wandb");
    assert_int_equal(put_file(path, ":W&B\xe1\xbe\0and more", 15), 0);
    tri_logs_config config = config_of(dir, "wandb");
    config.continues = true;
    config.config = some_settings();
    write_rows(&config, 1, 3, 0);
    check_wandb(dir, 3, 0, 0);
    bytes theirs = read_all(path);
    assert_int_equal(theirs.num, 15);
    free(theirs.data);
}

/* Lines of metrics.csv; every line ends with CR LF. */
static int csv_lines(temp_dir *dir, char lines[][512], int max)
{
    bytes file = read_all(temp_file(dir, "metrics.csv"));
    int num = 0;
    for (char *at = (char *)file.data; *at && num < max;) {
        char *end = strstr(at, "\r\n");
        assert_non_null(end);
        snprintf(lines[num++], 512, "%.*s", (int)(end - at), at);
        at = end + 2;
    }
    free(file.data);
    return num;
}

static const char csv_header[] =
    "step,loss,max_logit,\"odd, \"\"name\"\"\",grad_norm,lr,tokens,step_ms,tokens_per_s,"
    "mem_peak_bytes,slowest_rank,slowest_ms,own_ms,waited_ms,slow_rank,eval_loss,eval_accuracy,"
    "epoch,"
    "epoch_loss,loss_scale,"
    "skipped,replayed,replay_differs,ckpt_stall_ms,time";

static void csv_names_all_and_goes_on(void **state)
{
    temp_dir *dir = *state;
    static char lines[64][512];
    tri_logs_config config = config_of(dir, "csv");
    write_rows(&config, 1, 12, 0);
    assert_int_equal(csv_lines(dir, lines, 64), 13);
    assert_string_equal(lines[0], csv_header);
    assert_string_equal(lines[3],
                        "3,1.66666663,1.5,-0.25,inf,0.003,1536,12.345,41474.3,123456789012,3,"
                        "12.3,11.5,0.75,,,,,,,,,,,1790000003.250");
    assert_non_null(strstr(lines[5], ",12.3,11.5,0.75,,7.5,,,,,,,,,1790000005.250"));
    FILE *file = fopen(temp_file(dir, "metrics.csv"), "ab");
    fputs("13,4.", file); /* whoever wrote it was killed */
    fclose(file);
    config.continues = true;
    config.step = 9;
    write_rows(&config, 10, 20, 0);
    assert_int_equal(csv_lines(dir, lines, 64), 21);
    for (int i = 1; i <= 20; i++)
        assert_int_equal(atoi(lines[i]), i);
    config.continues = false; /* from the beginning */
    write_rows(&config, 1, 2, 0);
    assert_int_equal(csv_lines(dir, lines, 64), 3);
}

/* Other columns: the file cannot be continued, and is kept. */
static void csv_with_other_columns_is_set_aside(void **state)
{
    temp_dir *dir = *state;
    static char lines[64][512];
    assert_int_equal(put_file(temp_file(dir, "metrics.csv"), "step,loss\r\n1,2\r\n", 16), 0);
    tri_logs_config config = config_of(dir, "csv");
    config.continues = true;
    config.step = 1;
    write_rows(&config, 2, 5, 0);
    assert_int_equal(csv_lines(dir, lines, 64), 5);
    assert_string_equal(lines[0], csv_header);
    bytes aside = read_all(temp_file(dir, "metrics.1.csv"));
    assert_string_equal((char *)aside.data, "step,loss\r\n1,2\r\n");
    free(aside.data);
}

static void prometheus_has_help_type_and_label(void **state)
{
    temp_dir *dir = *state, odd = *dir;
    strcat(odd.path, "/a\"b\\c");
    assert_int_equal(mkdir(odd.path, 0777), 0);
    tri_logs_config config = config_of(&odd, "prometheus");
    config.num_stats = 1;
    write_rows(&config, 1, 12, 0);
    char path[128];
    snprintf(path, sizeof path, "%s/metrics.prom", odd.path);
    bytes file = read_all(path);
    char *text = (char *)file.data;
    assert_non_null(strstr(text, "# HELP trireme_loss Mean"));
    assert_non_null(
        strstr(text, "# TYPE trireme_loss gauge\ntrireme_loss{run=\"a\\\"b\\\\c\"} 1.41666663\n"));
    assert_non_null(strstr(text, "# TYPE trireme_tokens_total counter\n"));
    assert_non_null(strstr(text, "trireme_step{run=\"a\\\"b\\\\c\"} 12\n"));
    assert_non_null(strstr(text, "trireme_eval_loss{run=\"a\\\"b\\\\c\"} 12.5\n")); /* of step 10 */
    assert_non_null(strstr(text, "trireme_running{run=\"a\\\"b\\\\c\"} 0\n"));
    assert_null(strstr(text, "eval_accuracy"));
    int samples = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        samples += *line != '#';
    assert_true(samples >= 12);
    free(file.data);
    assert_null(name_in(odd.path, ".trireme", 0)); /* nothing temporary stays */
}

static void await_waiting(void)
{
    while (atomic_load(&disk_waiting) == 0)
        sched_yield();
}

static void release_disk(void)
{
    atomic_store(&disk_waits, false);
    sem_post(&disk_released);
}

static void tell_row(tri_logs *logs, int64_t step, int *warnings)
{
    tr_error warning = {0};
    tri_metrics_row row = row_of(step);
    if (!tri_logs_row(logs, &row, &warning) && !strstr(warning.message, "does not keep up")) {
        (*warnings)++;
        assert_non_null(strstr(warning.message, "lines will be missing"));
    }
    tri_logs_hurry(logs);
    usleep(1000); /* rows come no faster than the thread takes them */
}

/* The loop goes on while the disk holds the writer; a ring of 8 rows drops what comes beyond. */
static void a_disk_that_stands_still_costs_rows_and_no_step(void **state)
{
    temp_dir *dir = *state;
    static char lines[64][512];
    tri_logs_config config = config_of(dir, "csv");
    config.num_rows = 8;
    tri_logs *logs;
    tr_error err = {0};
    assert_int_equal(tri_logs_open(&config, &logs, &err), TR_OK);
    atomic_store(&disk_waits, true);
    tri_metrics_row row = row_of(1);
    assert_true(tri_logs_row(logs, &row, &err));
    tri_logs_hurry(logs);
    await_waiting();
    int told = 0;
    for (int64_t step = 2; step <= 30; step++) {
        row = row_of(step);
        if (!tri_logs_row(logs, &row, &err)) {
            told++;
            assert_int_equal(step, 10); /* 2 to 9 are in the ring */
            assert_non_null(strstr(err.message, "does not keep up"));
            assert_non_null(strstr(err.message, "step 10"));
        }
    }
    assert_int_equal(told, 1);
    release_disk();
    assert_false(tri_logs_end(logs, 0, &err));
    assert_non_null(strstr(err.message, "all lack 21 lines"));
    tri_logs_close(logs);
    assert_int_equal(csv_lines(dir, lines, 64), 10);
    assert_int_equal(atoi(lines[9]), 9);
}

/* The end of a run does not wait for ever. */
static void a_disk_that_never_comes_back_is_left_behind(void **state)
{
    tri_logs_config config = config_of(*state, "csv,tensorboard");
    int threads = num_threads(); /* a sanitizer may have one of its own */
    config.patience_s = 0.1;
    tri_logs *logs;
    tr_error err = {0};
    assert_int_equal(tri_logs_open(&config, &logs, &err), TR_OK);
    atomic_store(&disk_waits, true);
    tri_metrics_row row = row_of(1);
    assert_true(tri_logs_row(logs, &row, &err));
    tri_logs_hurry(logs);
    await_waiting();
    row = row_of(2);
    assert_true(tri_logs_row(logs, &row, &err));
    assert_false(tri_logs_end(logs, 0, &err));
    assert_non_null(strstr(err.message, "all may lack 2 lines, since the disk stands still"));
    tri_logs_close(logs);
    release_disk(); /* so that the thread ends before the test does */
    while (num_threads() > threads)
        sched_yield();
}

/* Rows that find the disk full are lost and counted; the file goes on behind the last whole row. */
static void a_full_disk_costs_lines_and_leaves_whole_files(void **state)
{
    temp_dir *dir = *state;
    static char lines[64][512];
    tri_logs_config config = config_of(dir, "csv,tensorboard,wandb,prometheus");
    config.config = some_settings();
    tri_logs *logs;
    tr_error err = {0};
    int warnings = 0;
    assert_int_equal(tri_logs_open(&config, &logs, &err), TR_OK);
    for (int64_t step = 1; step <= 5; step++)
        tell_row(logs, step, &warnings);
    while (csv_lines(dir, lines, 64) < 6) /* which is the last of the three */
        usleep(1000);
    assert_int_equal(warnings, 0);
    atomic_store(&disk_room, 100); /* the first write is cut short, none fits afterwards */
    for (int64_t step = 6; warnings < 3; step = step < 9 ? step + 1 : 9)
        tell_row(logs, step, &warnings);

    assert_int_equal(warnings, 3);
    atomic_store(&disk_room, -1);
    tell_row(logs, 10, &warnings);
    assert_false(tri_logs_end(logs, 0, &err));
    assert_non_null(strstr(err.message, "metrics.csv lacks "));
    assert_non_null(strstr(err.message, "tensorboard/ lacks "));
    assert_non_null(strstr(err.message, "wandb/ lacks "));
    assert_non_null(strstr(err.message, "No space left on device"));
    tri_logs_close(logs);
    int num = csv_lines(dir, lines, 64);
    assert_true(num >= 7);
    assert_int_equal(atoi(lines[5]), 5);
    assert_int_equal(atoi(lines[num - 1]), 10);
    char folder[128];
    snprintf(folder, sizeof folder, "%s/tensorboard", dir->path);
    bytes file = read_all(name_in(folder, "events.", 0)), record = {0};
    for (size_t at = 0; next_event(file, &at, &record);)
        ;
    check_event(record, 10);
    free(file.data);
    wandb_log *log = open_wandb(dir);
    int histories = 0;
    while (next_record(log))
        histories += (bytes){log->record, log->num}.data[2] == (2 << 3 | 2);
    assert_true(histories >= 6);
    close_wandb(log);
}

/* A disk that is full from the beginning: the first bytes of a file are what its readers need. */
static void a_file_begins_whole_whenever_it_begins(void **state)
{
    temp_dir *dir = *state;
    static char lines[64][512];
    tri_logs_config config = config_of(dir, "csv,tensorboard,wandb");
    config.config = some_settings();
    tri_logs *logs;
    tr_error err = {0};
    int warnings = 0;
    atomic_store(&disk_room, 0);
    assert_int_equal(tri_logs_open(&config, &logs, &err), TR_OK);
    while (warnings < 3)
        tell_row(logs, 1, &warnings);

    atomic_store(&disk_room, -1);
    tell_row(logs, 2, &warnings);
    assert_false(tri_logs_end(logs, 0, &err));
    tri_logs_close(logs);
    assert_true(csv_lines(dir, lines, 64) >= 2);
    assert_string_equal(lines[0], csv_header);
    wandb_log *log = open_wandb(dir);
    assert_true(next_record(log) && next_record(log));
    assert_true(item_is(get(get((bytes){log->record, log->num}, 17).in, 4).in, "model.dim", "64"));
    close_wandb(log);
    char folder[128];
    snprintf(folder, sizeof folder, "%s/tensorboard", dir->path);
    bytes file = read_all(name_in(folder, "events.", 0)), record;
    size_t at = 0;
    assert_true(next_event(file, &at, &record));
    assert_true(is_text(get(record, 3).in, "brain.Event:2"));
    free(file.data);
}

/* What cannot be opened is a warning; a pipe nobody reads does not hold the writer. */
static void what_is_in_the_place_of_a_file_is_a_warning(void **state)
{
    temp_dir *dir = *state;
    assert_int_equal(mkfifo(temp_file(dir, "metrics.csv"), 0666), 0);
    assert_int_equal(put_file(temp_file(dir, "tensorboard"), "x", 1), 0);
    assert_int_equal(symlink("/nowhere", temp_file(dir, "wandb")), 0);
    tri_logs_config config = config_of(dir, "csv,tensorboard,wandb");
    tri_logs *logs;
    tr_error err = {0};
    int warnings = 0;
    assert_int_equal(tri_logs_open(&config, &logs, &err), TR_OK);
    while (warnings < 3)
        tell_row(logs, 1, &warnings);

    assert_false(tri_logs_end(logs, 0, &err));
    tri_logs_close(logs);
}

int main(void)
{
#define ON_A_DISK(test) cmocka_unit_test_setup(test, empty_dir)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_formats),
        cmocka_unit_test(words_that_are_no_format_are_refused),
        ON_A_DISK(tensorboard_has_every_step),
        ON_A_DISK(tensorboard_goes_on_in_a_new_file),
        ON_A_DISK(wandb_cuts_records_at_blocks),
        ON_A_DISK(wandb_fills_blocks_to_the_byte),
        ON_A_DISK(wandb_goes_on_in_its_file),
        ON_A_DISK(wandb_leaves_the_runs_of_others),
        ON_A_DISK(csv_names_all_and_goes_on),
        ON_A_DISK(csv_with_other_columns_is_set_aside),
        ON_A_DISK(prometheus_has_help_type_and_label),
        ON_A_DISK(a_disk_that_stands_still_costs_rows_and_no_step),
        ON_A_DISK(a_disk_that_never_comes_back_is_left_behind),
        ON_A_DISK(a_full_disk_costs_lines_and_leaves_whole_files),
        ON_A_DISK(a_file_begins_whole_whenever_it_begins),
        ON_A_DISK(what_is_in_the_place_of_a_file_is_a_warning),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
