/* Checkpoints on disk: regions, manifests that lie, files that were damaged, and directories. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/fs.h"
#include "base/rng.h"
#include "ckpt/checkpoint.h"
#include "ckpt/ckpt_best.h"
#include "ckpt/compare.h"
#include "ckpt/manifest_text.h"
#include "ckpt/writer.h"
#include "temp_dir.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

/* ---- regions ---- */

static uint32_t random_below(uint64_t *at, uint32_t n)
{
    return tri_random_word(7, (*at)++, 0, 1) % n;
}

static tri_region random_region(uint64_t *at, int num_dims, const int64_t *dim)
{
    tri_region r = tri_region_whole(num_dims, dim);
    for (int d = 0; d < num_dims; d++)
        if (random_below(at, 2)) {
            r.begin[d] = random_below(at, (uint32_t)dim[d]);
            r.size[d] = 1 + random_below(at, (uint32_t)(dim[d] - r.begin[d]));
        }
    int64_t box = tri_region_box_count(&r);
    r.first = random_below(at, (uint32_t)box);
    r.count = random_below(at, (uint32_t)(box - r.first) + 1);
    return r;
}

/* Element by element: the place of each logical index in the region, -1 where it has none. */
static void spread(const tri_region *r, int64_t *local)
{
    int64_t num = tri_region_tensor_count(r), in_box = 0;
    for (int64_t i = 0; i < num; i++) {
        int64_t rest = i;
        bool inside = true;
        for (int d = r->num_dims - 1; d >= 0; d--) {
            int64_t x = rest % r->dim[d];
            inside &= x >= r->begin[d] && x < r->begin[d] + r->size[d];
            rest /= r->dim[d];
        }
        local[i] = -1;
        if (!inside)
            continue;
        if (in_box >= r->first && in_box < r->first + r->count)
            local[i] = in_box - r->first;
        in_box++;
    }
}

typedef struct seen {
    int64_t at[512]; /* place in b for each place in a */
    int64_t last;
} seen;

static tr_status note(void *context, int64_t in_a, int64_t in_b, int64_t count, tr_error *err)
{
    seen *s = context;
    (void)err;
    assert_true(count > 0 && in_a > s->last);
    s->last = in_a + count - 1;
    for (int64_t i = 0; i < count; i++)
        s->at[in_a + i] = in_b + i;
    return TR_OK;
}

static void regions_share_what_they_share(void **state)
{
    (void)state;
    uint64_t at = 0;
    for (int trial = 0; trial < 3000; trial++) {
        int num_dims = 1 + (int)random_below(&at, 4);
        int64_t dim[4], a_of[512], b_of[512];
        for (int d = 0; d < num_dims; d++)
            dim[d] = 1 + random_below(&at, 4);
        tri_region a = random_region(&at, num_dims, dim), b = random_region(&at, num_dims, dim);
        spread(&a, a_of);
        spread(&b, b_of);
        int64_t runs = tri_region_num_stretches(&a), total = 0;
        for (int64_t i = 0; i < runs; i++) {
            tri_stretch run = tri_region_stretch(&a, i);
            assert_int_equal(run.local, total);
            for (int64_t k = 0; k < run.count; k++)
                assert_int_equal(a_of[run.logical + k], run.local + k);
            total += run.count;
        }
        assert_int_equal(total, a.count);
        seen s = {.last = -1};
        memset(s.at, 0xff, sizeof s.at);
        assert_int_equal(tri_region_shared(&a, &b, note, &s, NULL), TR_OK);
        for (int64_t i = 0; i < tri_region_tensor_count(&a); i++)
            if (a_of[i] >= 0)
                assert_int_equal(s.at[a_of[i]], b_of[i]);
    }
}

/* ---- manifests ---- */

/* Puts the right checksum into a text. */
static void seal(char *text)
{
    memset(text + TRI_MANIFEST_DIGITS_AT, '0', 16);
    uint64_t sum = tri_checksum_bytes(text, strlen(text));
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)sum);
    memcpy(text + TRI_MANIFEST_DIGITS_AT, digits, 16);
}

/* A manifest with these files and tensors. */
static const char *text_of(const char *files, const char *tensors)
{
    static char text[8000];
    snprintf(text, sizeof text,
             "{\"checksum\":\"0000000000000000\",\"format\":\"trireme-checkpoint\",\"version\":1,"
             "\"step\":3,\"numbers\":{\"seed\":1},\"files\":[%s],\"tensors\":[%s]}",
             files, tensors);
    seal(text);
    return text;
}

#define SUM      "\"checksum\":\"0123456789abcdef\""
#define FILE_OF  "{\"name\":\"a\",\"bytes\":1000,\"checked_bytes\":40," SUM "}"
#define W(shape) "{\"name\":\"w\",\"kind\":\"weight\",\"dtype\":\"F32\",\"shape\":" shape
#define SHARD    "{\"file\":0,\"offset\":40," SUM

static void refused(const char *files, const char *tensors, const char *because)
{
    const char *text = text_of(files, tensors);
    tri_manifest m;
    tr_error err = {0};
    tr_status status = tri_manifest_parse(text, strlen(text), "lie.json", false, &m, &err);
    if (status != TR_ERROR_INPUT || !strstr(err.message, because) ||
        strncmp(err.message, "lie.json: ", 10) != 0)
        fail_msg("%s\nwas expected to be refused because: %s\nbut: %s", text, because,
                 status == TR_OK ? "it was accepted" : err.message);
    if (status == TR_OK)
        tri_manifest_fini(&m);
}

static void lying_manifests_are_refused(void **state)
{
    (void)state;
    tri_manifest m;
    tr_error err = {0};
    const char *good = text_of(FILE_OF, W("[4,2]") ",\"shards\":[" SHARD "}]}");
    assert_int_equal(tri_manifest_parse(good, strlen(good), "good", false, &m, &err), TR_OK);
    assert_int_equal(m.step, 3);
    tri_manifest_fini(&m);

    const char *names[] = {"../a", "/etc/passwd", "", ".hidden", "a/b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[200];
        snprintf(file, sizeof file, "{\"name\":\"%s\",\"bytes\":9,\"checked_bytes\":0," SUM "}",
                 names[i]);
        refused(file, "", "file name");
    }
    refused(FILE_OF "," FILE_OF, "", "same file twice");
    refused("{\"name\":\"a\",\"bytes\":-1,\"checked_bytes\":0," SUM "}", "", "size or checksum");
    refused("{\"name\":\"a\",\"bytes\":9,\"checked_bytes\":10," SUM "}", "", "size or checksum");
    refused("{\"name\":\"a\",\"bytes\":9,\"checked_bytes\":0,\"checksum\":\"xyz\"}", "",
            "checksum");
    refused(FILE_OF, W("[4,-2]") ",\"shards\":[]}", "shape");
    refused(FILE_OF, W("[4000000000,4000000000]") ",\"shards\":[]}", "shape");
    refused(FILE_OF, W("[1,1,1,1,1,1,1,1,1]") ",\"shards\":[]}", "shape");
    refused(FILE_OF, W("[9007199254740992]") ",\"shards\":[" SHARD "}]}", "within its file");
    refused(FILE_OF, W("[1000]") ",\"shards\":[" SHARD "}]}", "within its file");
    refused(FILE_OF, W("[4,2]") ",\"shards\":[]}", "in no shard");
    refused(FILE_OF, W("[4,2]") ",\"shards\":[{\"file\":1,\"offset\":40," SUM "}]}", "not listed");
    refused(FILE_OF, W("[4,2]") ",\"shards\":[{\"file\":0,\"offset\":0," SUM "}]}",
            "within its file");
    refused(FILE_OF, W("[4,2]") ",\"shards\":[{\"file\":0,\"offset\":42," SUM "}]}",
            "within its file");
    refused(FILE_OF, W("[4,2]") ",\"shards\":[{\"file\":0,\"offset\":40}]}", "without a checksum");
    refused(FILE_OF, W("[4,2]") ",\"shards\":[" SHARD ",\"first\":0,\"count\":7}]}", "in no shard");
    refused(FILE_OF, W("[4,2]") ",\"shards\":[" SHARD ",\"first\":2,\"count\":7}]}", "its box");
    refused(FILE_OF,
            W("[4,2]") ",\"shards\":[" SHARD ",\"first\":0,\"count\":5}," SHARD
                       ",\"first\":4,\"count\":4}]}",
            "in two shards");
    refused(FILE_OF, W("[4,2]") ",\"shards\":[" SHARD "}," SHARD "}]}", "in two shards");
    refused(FILE_OF, W("[4,2]") ",\"shards\":[" SHARD ",\"begin\":[0,0],\"size\":[4,3]}]}",
            "within its tensor");
    refused(FILE_OF,
            W("[4,2]") ",\"shards\":[" SHARD ",\"begin\":[0,0],\"size\":[3,2]}," SHARD
                       ",\"begin\":[2,0],\"size\":[2,2]}]}",
            "in two shards");
    refused(FILE_OF, W("[4,2]") ",\"shards\":[" SHARD ",\"begin\":[0],\"size\":[4]}]}",
            "within its tensor");
    refused(FILE_OF, W("[2]") ",\"shards\":[" SHARD "}]}," W("[2]") ",\"shards\":[" SHARD "}]}",
            "same tensor twice");
    refused(FILE_OF, "{\"name\":\"w\",\"kind\":\"what\",\"dtype\":\"F32\",\"shape\":[1]}", "kind");
    refused(FILE_OF, "{\"name\":\"w\",\"kind\":\"weight\",\"dtype\":\"F64\",\"shape\":[1]}",
            "dtype");
}

/* Bytes changed at random, with and without a checksum that fits: never more than a refusal. */
static void damaged_manifests_are_refused(void **state)
{
    (void)state;
    char text[2000], copy[2000];
    strcpy(text,
           text_of(FILE_OF ",{\"name\":\"b\",\"bytes\":1000,\"checked_bytes\":40," SUM "}",
                   W("[4,3]") ",\"shards\":[" SHARD ",\"begin\":[0,0],\"size\":[4,1]},"
                              "{\"file\":1,\"offset\":40," SUM ",\"begin\":[0,1],\"size\":[4,2],"
                              "\"first\":0,\"count\":3}," SHARD ",\"begin\":[0,1],"
                              "\"size\":[4,2],\"first\":3,\"count\":5}]}"));
    size_t length = strlen(text);
    uint64_t at = 0;
    tri_manifest m;
    tr_error err = {0};
    assert_int_equal(tri_manifest_parse(text, length, "whole", false, &m, &err), TR_OK);
    tri_manifest_fini(&m);
    for (int trial = 0; trial < 20000; trial++) {
        strcpy(copy, text);
        int changes = 1 + (int)random_below(&at, 3);
        for (int k = 0; k < changes; k++) {
            size_t where = random_below(&at, (uint32_t)length);
            char c = (char)(random_below(&at, 3) ? "0123456789[]{},-:\".e"[random_below(&at, 20)]
                                                 : 1 + (int)random_below(&at, 255));
            copy[where] = c;
        }
        bool same = strcmp(copy, text) == 0;
        tr_status status = tri_manifest_parse(copy, length, "fuzz", false, &m, &err);
        if (status == TR_OK)
            tri_manifest_fini(&m);
        assert_int_equal(status == TR_OK, same);
        if (memcmp(copy, text, TRI_MANIFEST_DIGITS_AT) != 0)
            continue;
        seal(copy);
        if (tri_manifest_parse(copy, length, "fuzz", false, &m, &err) == TR_OK)
            tri_manifest_fini(&m);
    }
}

/* ---- writing and reading ---- */

enum { ROWS = 6, COLS = 5 };

/* Element i of a tensor of a checkpoint. */
static float element(int tensor, int64_t i, int64_t step)
{
    return (float)(1000 * tensor + i) + (float)step / 8;
}

/* What rank r of 2 writes: columns of w (cut in two), and a half of a vector m. */
static size_t items_of(int rank, tri_rank_item items[2])
{
    int64_t w[] = {ROWS, COLS}, m[] = {7};
    items[0] = (tri_rank_item){"w", TRI_CKPT_WEIGHT, tri_region_whole(2, w)};
    items[0].region.begin[1] = rank * 3;
    items[0].region.size[1] = rank == 0 ? 3 : 2;
    items[0].region.count = tri_region_box_count(&items[0].region);
    items[1] = (tri_rank_item){"adam.m.w", TRI_CKPT_MOMENT, tri_region_whole(1, m)};
    items[1].region.first = rank * 4;
    items[1].region.count = rank == 0 ? 4 : 3;
    return 2;
}

static void fill(const tri_rank_item *item, int tensor, int64_t step, float *to)
{
    for (int64_t i = 0; i < tri_region_num_stretches(&item->region); i++) {
        tri_stretch run = tri_region_stretch(&item->region, i);
        for (int64_t k = 0; k < run.count; k++)
            to[run.local + k] = element(tensor, run.logical + k, step);
    }
}

/* A checkpoint of two ranks, written one after the other. */
static tr_status write_two(const char *dir, int64_t step, tr_error *err)
{
    char *temp = tri_ckpt_temp_path(dir, step, 5);
    for (int rank = 1; rank >= 0; rank--) {
        tri_rank_item items[2];
        tri_rank_file file;
        items_of(rank, items);
        tr_status status = tri_rank_file_begin(&file, temp, rank, step, items, 2, err);
        for (int i = 0; i < 2 && status == TR_OK; i++) {
            float data[ROWS * COLS];
            fill(&items[i], i, step, data);
            status = tri_rank_file_write(&file, data, (size_t)items[i].region.count * 4, err);
        }
        if (status == TR_OK)
            status = tri_rank_file_end(&file, err);
        tri_rank_file_fini(&file);
        if (status != TR_OK) {
            free(temp);
            return status;
        }
    }
    tri_ckpt_number numbers[] = {{"seed", 9007199254740992.0}, {"loss_scale", 1.0 / 3}};
    tri_ckpt_commit commit = {.dir = dir,
                              .temp = temp,
                              .step = step,
                              .num_ranks = 2,
                              .numbers = numbers,
                              .num_numbers = 2,
                              .patience_s = 5};
    tr_status status = tri_ckpt_commit_run(&commit, err);
    free(temp);
    return status;
}

static void assert_ok(tr_status status, const tr_error *err)
{
    if (status != TR_OK)
        fail_msg("%s", err->message);
}

static const char *new_dir(temp_dir *temp, const char *name)
{
    const char *dir = temp_file(temp, name);
    assert_int_equal(mkdir(dir, 0777), 0);
    return dir;
}

static void what_was_written_is_read(void **state)
{
    const char *dir = new_dir(*state, "read");
    tr_error err = {0};
    assert_ok(write_two(dir, 10, &err), &err);
    char *path = tri_ckpt_path(dir, 10);
    tri_checkpoint ckpt;
    assert_ok(tri_checkpoint_open(&ckpt, path, &err), &err);
    assert_ok(tri_checkpoint_verify(&ckpt, TRI_VERIFY_ALL, 0, 1, NULL, &err), &err);
    assert_int_equal(ckpt.manifest.step, 10);
    assert_true(tri_manifest_number(&ckpt.manifest, "seed", 0) == 9007199254740992.0);
    assert_true(tri_manifest_number(&ckpt.manifest, "loss_scale", 0) == 1.0 / 3);
    assert_int_equal(num_entries(path), 3); /* two files and the manifest: no report stays */
    /* Shares of the verification add up. */
    uint64_t sum = 0, one, all;
    for (int part = 0; part < 3; part++) {
        assert_ok(tri_checkpoint_verify(&ckpt, TRI_VERIFY_ALL, part, 3, &one, &err), &err);
        sum += one;
    }
    assert_ok(tri_checkpoint_verify(&ckpt, TRI_VERIFY_ALL, 0, 1, &all, &err), &err);
    assert_int_equal(sum, all);
    uint64_t at = 0;
    for (int trial = 0; trial < 500; trial++) {
        int64_t dim[] = {ROWS, COLS};
        tri_region r = random_region(&at, 2, dim);
        float data[ROWS * COLS];
        uint64_t before = ckpt.bytes_read;
        assert_ok(tri_checkpoint_read(&ckpt, "w", &r, data, &err), &err);
        assert_int_equal(ckpt.bytes_read - before, r.count * 4);
        for (int64_t i = 0; i < tri_region_num_stretches(&r); i++) {
            tri_stretch run = tri_region_stretch(&r, i);
            for (int64_t k = 0; k < run.count; k++)
                assert_true(data[run.local + k] == element(0, run.logical + k, 10));
        }
    }
    tri_checkpoint_close(&ckpt);
    free(path);
}

static void assert_whole(const char *dir, int64_t step)
{
    tr_error err = {0};
    char *path = tri_ckpt_path(dir, step);
    tri_checkpoint ckpt;
    assert_ok(tri_checkpoint_open(&ckpt, path, &err), &err);
    assert_ok(tri_checkpoint_verify(&ckpt, TRI_VERIFY_ALL, 0, 1, NULL, &err), &err);
    tri_checkpoint_close(&ckpt);
    free(path);
}

/* Every byte of every file, in turn: what one bit can do is noticed and named. */
static void a_flipped_bit_is_found(void **state)
{
    const char *dir = new_dir(*state, "bits");
    tr_error err = {0};
    assert_ok(write_two(dir, 1, &err), &err);
    static const char *const names[] = {"rank-0.safetensors", "rank-1.safetensors",
                                        "manifest.json"};
    for (size_t f = 0; f < 3; f++) {
        char path[300], *step = tri_ckpt_path(dir, 1);
        snprintf(path, sizeof path, "%s/%s", step, names[f]);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        int fd = open(path, O_RDWR);
        assert_true(fd >= 0);
        for (off_t i = 0; i < info.st_size; i++) {
            unsigned char byte, flipped;
            assert_int_equal(pread(fd, &byte, 1, i), 1);
            flipped = (unsigned char)(byte ^ 1u << i % 8);
            assert_int_equal(pwrite(fd, &flipped, 1, i), 1);
            tri_checkpoint ckpt;
            tr_status status = tri_checkpoint_open(&ckpt, step, &err);
            if (status == TR_OK) {
                status = tri_checkpoint_verify(&ckpt, TRI_VERIFY_ALL, 0, 1, NULL, &err);
                tri_checkpoint_close(&ckpt);
            }
            if (status != TR_ERROR_DAMAGED) /* of the digit that is the version */
                assert_non_null(strstr(err.message, "newer Trireme"));
            assert_non_null(strstr(err.message, names[f]));
            assert_int_equal(pwrite(fd, &byte, 1, i), 1);
        }
        close(fd);
        free(step);
    }
    assert_whole(dir, 1);
}

static void names_of_damaged_ones_are_free(void **state)
{
    const char *dir = new_dir(*state, "aside");
    static const char *const names[] = {"step-4.damaged", "step-4.damaged-2", "step-4.damaged-3"};
    tr_error err = {0};
    for (size_t i = 0; i < 3; i++) {
        char *aside;
        assert_ok(write_two(dir, 4, &err), &err);
        assert_ok(tri_ckpt_set_aside(dir, 4, &aside, &err), &err);
        assert_non_null(strstr(aside, names[i]));
        assert_true(tri_path_is_dir(aside));
        free(aside);
    }
    assert_int_equal(num_entries(dir), 3);
}

static void count(void *context, const tri_difference *d)
{
    ++*(int *)context;
    if (d->kind != TRI_DIFFERENCE_ELEMENTS)
        return;
    assert_int_equal(d->count, d->of);
    assert_true(d->largest == 0.125);
}

static void two_are_compared(void **state)
{
    const char *dir = new_dir(*state, "diff");
    tr_error err = {0};
    assert_ok(write_two(dir, 1, &err), &err);
    assert_ok(write_two(dir, 2, &err), &err);
    char *first = tri_ckpt_path(dir, 1), *second = tri_ckpt_path(dir, 2);
    tri_checkpoint a, b;
    assert_ok(tri_checkpoint_open(&a, first, &err), &err);
    assert_ok(tri_checkpoint_open(&b, second, &err), &err);
    tri_comparison result;
    int num = 0;
    assert_ok(tri_checkpoint_compare(&a, &b, count, &num, &result, &err), &err);
    assert_int_equal(num, 3); /* the step, and two tensors */
    assert_int_equal(result.num_different, 2);
    tri_checkpoint_close(&b);
    num = 0;
    assert_ok(tri_checkpoint_open(&b, first, &err), &err);
    assert_ok(tri_checkpoint_compare(&a, &b, count, &num, &result, &err), &err);
    assert_int_equal(num, 0);
    assert_int_equal(result.num_elements, ROWS * COLS + 7);
    tri_checkpoint_close(&a);
    tri_checkpoint_close(&b);
    free(first);
    free(second);
}

/* ---- directories ---- */

static void assert_steps(const char *dir, size_t num, const int64_t *wanted)
{
    tri_ckpt_steps steps;
    tr_error err = {0};
    assert_ok(tri_ckpt_steps_read(&steps, dir, &err), &err);
    assert_int_equal(steps.num, num);
    for (size_t i = 0; i < num; i++)
        assert_int_equal(steps.step[i], wanted[i]);
    tri_ckpt_steps_free(&steps);
}

static void old_ones_go(void **state)
{
    const char *dir = new_dir(*state, "prune");
    char path[300];
    for (int64_t step = 1; step <= 12; step++) {
        snprintf(path, sizeof path, "%s/step-%lld", dir, (long long)step);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    static const char *const others[] = {"step-",          "step-07",  "step-x",
                                         "step-3.damaged", "step-1e3", ".step-9.1.tmp"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, others[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    tri_ckpt_prune(dir, &(tri_ckpt_keep){0});
    tri_ckpt_prune(dir, &(tri_ckpt_keep){.last = 2, .every = 5});
    assert_steps(dir, 4, (const int64_t[]){12, 11, 10, 5});
    tri_ckpt_clean(dir);
    assert_int_equal(num_entries(dir), 4 + 5); /* the temporary is gone, what is not ours stays */
}

static void one_run_at_a_time(void **state)
{
    const char *dir = new_dir(*state, "lock");
    tr_error err = {0};
    int first, second;
    assert_ok(tri_ckpt_lock(dir, &first, &err), &err);
    assert_int_equal(tri_ckpt_lock(dir, &second, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "another run"));
    tri_ckpt_unlock(first);
    assert_ok(tri_ckpt_lock(dir, &second, &err), &err);
    tri_ckpt_unlock(second);
}

/* ---- the writer ---- */

/* loss: held-out, NAN: not measured. */
static void save_as(tri_ckpt_writer *writer, int64_t step, double loss, const float *data,
                    size_t num_bytes)
{
    tri_ckpt_save save = {.step = step, .nonce = 77};
    if (!isnan(loss))
        save.numbers[save.num_numbers++] = (tri_ckpt_number){TRI_CKPT_EVAL_LOSS, loss};
    tri_ckpt_writer_begin(writer, &save);
    for (size_t done = 0; done < num_bytes;) {
        size_t room;
        void *to = tri_ckpt_writer_room(writer, 10, &room);
        assert_true(room > 0);
        room = room < num_bytes - done ? room : num_bytes - done;
        memcpy(to, (const char *)data + done, room);
        tri_ckpt_writer_put(writer, room);
        done += room;
    }
}

static void save_one(tri_ckpt_writer *writer, int64_t step, const float *data, size_t num_bytes)
{
    save_as(writer, step, NAN, data, num_bytes);
}

/* Those with the least held-out loss, beside the newest; of equal ones the earlier. */
static void the_best_stay(void **state)
{
    const char *dir = new_dir(*state, "best");
    int64_t dim[] = {8};
    float data[8] = {0};
    tri_rank_item item = {"w", TRI_CKPT_WEIGHT, tri_region_whole(1, dim)};
    tri_ckpt_writer_config config = {.dir = dir,
                                     .num_ranks = 1,
                                     .items = &item,
                                     .num_items = 1,
                                     .keep = {.last = 1, .best = 2},
                                     .patience_s = 5};
    static const double losses[] = {3, 1, 2, 1, NAN, 1, 5};
    static const int64_t left[][3] = {{1}, {2, 1}, {3, 2}, {4, 2}, {5, 4, 2}, {6, 4, 2}, {7, 4, 2}};
    tri_ckpt_writer *writer;
    tr_error err = {0};
    assert_ok(tri_ckpt_writer_create(&config, &writer, &err), &err);
    for (int64_t i = 0; i < 7; i++) {
        tr_status status;
        save_as(writer, i + 1, losses[i], data, sizeof data);
        assert_true(tri_ckpt_writer_wait(writer, 20, &status, &err));
        assert_ok(status, &err);
        assert_steps(dir, i == 0 ? 1 : i < 4 ? 2 : 3, left[i]);
    }
    char path[300], *found;
    snprintf(path, sizeof path, "%s/best", dir);
    assert_ok(tri_checkpoint_locate(path, &found, &err), &err);
    assert_non_null(strstr(found, "/step-2"));
    free(found);
    /* One that cannot be read may be the best. */
    snprintf(path, sizeof path, "%s/step-4/manifest.json", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    tri_ckpt_prune(dir, &(tri_ckpt_keep){.last = 1, .best = 1});
    assert_steps(dir, 3, (const int64_t[]){7, 4, 2});
    tri_ckpt_writer_destroy(writer);
}

/* Through a ring that is much smaller than the state, twice around and more. */
static void the_writer_writes(void **state)
{
    const char *dir = new_dir(*state, "writer");
    enum { COUNT = 100000 };
    int64_t dim[] = {COUNT};
    tri_rank_item item = {"w", TRI_CKPT_WEIGHT, tri_region_whole(1, dim)};
    float *data = malloc(COUNT * sizeof *data);
    for (int i = 0; i < COUNT; i++)
        data[i] = (float)i;
    tri_ckpt_writer_config config = {.dir = dir,
                                     .num_ranks = 1,
                                     .items = &item,
                                     .num_items = 1,
                                     .staging_bytes = 10000,
                                     .keep.last = 2,
                                     .patience_s = 5};
    tri_ckpt_writer *writer;
    tr_error err = {0};
    assert_ok(tri_ckpt_writer_create(&config, &writer, &err), &err);
    for (int64_t step = 1; step <= 4; step++) {
        tr_status status;
        data[5] = (float)step;
        save_one(writer, step, data, COUNT * sizeof *data);
        assert_true(tri_ckpt_writer_wait(writer, 20, &status, &err));
        assert_ok(status, &err);
    }
    assert_steps(dir, 2, (const int64_t[]){4, 3});
    /* No room on the disk: told once, and what is there stays. */
    struct rlimit before, small = {.rlim_cur = 200000, .rlim_max = RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    tr_status status;
    save_one(writer, 5, data, COUNT * sizeof *data);
    assert_true(tri_ckpt_writer_wait(writer, 20, &status, &err));
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "rank-0.safetensors: cannot be written"));
    assert_int_equal(num_entries(dir), 2);
    /* And the next one is written again. */
    save_one(writer, 6, data, COUNT * sizeof *data);
    assert_true(tri_ckpt_writer_wait(writer, 20, &status, &err));
    assert_ok(status, &err);
    tri_ckpt_writer_destroy(writer);
    assert_whole(dir, 6);
    free(data);
}

/* A rank that never reports: the others are not held up for ever, and nothing is left. */
static void a_missing_rank_is_named(void **state)
{
    const char *dir = new_dir(*state, "missing");
    int64_t dim[] = {8};
    float data[8] = {0};
    tri_rank_item item = {"w", TRI_CKPT_WEIGHT, tri_region_whole(1, dim)};
    tri_ckpt_writer_config config = {
        .dir = dir, .num_ranks = 2, .items = &item, .num_items = 1, .patience_s = 0.2};
    tri_ckpt_writer *writer;
    tr_error err = {0};
    tr_status status;
    assert_ok(tri_ckpt_writer_create(&config, &writer, &err), &err);
    save_one(writer, 1, data, sizeof data);
    assert_true(tri_ckpt_writer_wait(writer, 20, &status, &err));
    assert_int_equal(status, TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "the part of rank 1 has not appeared"));
    assert_int_equal(num_entries(dir), 0);
    /* One that has begun, and does not get on, is no sign of a directory that is not shared. */
    char path[300];
    char *temp = tri_ckpt_temp_path(dir, 2, 77);
    assert_int_equal(mkdir(temp, 0777), 0);
    snprintf(path, sizeof path, "%s/rank-1.safetensors", temp);
    assert_int_equal(put_file(path, data, sizeof data), 0);
    free(temp);
    save_one(writer, 2, data, sizeof data);
    assert_true(tri_ckpt_writer_wait(writer, 20, &status, &err));
    assert_int_equal(status, TR_ERROR_RUNTIME);
    assert_non_null(strstr(err.message, "rank 1 has written 32 B and nothing more for 0.2 s"));
    assert_non_null(strstr(err.message, "ckpt.patience_s"));
    assert_int_equal(num_entries(dir), 0);
    tri_ckpt_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_share_what_they_share),
        cmocka_unit_test(lying_manifests_are_refused),
        cmocka_unit_test(damaged_manifests_are_refused),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(a_flipped_bit_is_found),
        cmocka_unit_test(names_of_damaged_ones_are_free),
        cmocka_unit_test(two_are_compared),
        cmocka_unit_test(old_ones_go),
        cmocka_unit_test(one_run_at_a_time),
        cmocka_unit_test(the_best_stay),
        cmocka_unit_test(the_writer_writes),
        cmocka_unit_test(a_missing_rank_is_named),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
