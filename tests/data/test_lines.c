/* Reading text: the same bytes and lines whether plain, gzip or zstd; and what is said of files
 * that are cut short, damaged or no JSONL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/lines.h"
#include "data/source/entries.h"
#include "temp_dir.h"

#include <sys/resource.h>
#include <zlib.h>
#include <zstd.h>

static void put_gzip(const char *path, const char *mode, const void *data, size_t num_bytes)
{
    gzFile file = gzopen(path, mode);
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)num_bytes), num_bytes);
    assert_int_equal(gzclose(file), Z_OK);
}

static size_t zstd_frame(void *out, size_t room, const void *data, size_t num_bytes)
{
    size_t num = ZSTD_compress(out, room, data, num_bytes, 3);
    assert_false(ZSTD_isError(num));
    return num;
}

/* Reads all of a file in pieces of at most `piece` bytes. */
static tr_status read_all(const char *path, size_t piece, char *out, size_t room, size_t *num,
                          tr_error *err)
{
    tri_reader *reader;
    size_t got = 1;
    *num = 0;
    TRI_TRY(tri_reader_open(path, &reader, err));
    tr_status status = TR_OK;
    while (status == TR_OK && got > 0) {
        size_t left = room - *num;
        status = tri_reader_read(reader, out + *num, left < piece ? left : piece, &got, err);
        *num += got;
    }
    tri_reader_close(reader);
    return status;
}

static char *varied_text(size_t num_bytes)
{
    char *text = malloc(num_bytes);
    assert_non_null(text);
    uint32_t x = 1;
    for (size_t i = 0; i < num_bytes; i++) {
        x = x * 1664525 + 1013904223;
        text[i] = (char)(x >> 24 < 12 ? '\n' : 'a' + (x >> 28));
    }
    return text;
}

static void compressed_equals_plain(void **state)
{
    enum { SIZE = 900000 };
    char *text = varied_text(SIZE), *back = malloc(SIZE + 10), *packed = malloc(2 * SIZE);
    assert_non_null(back);
    assert_non_null(packed);
    const char *plain = temp_file(*state, "t"), *gz = temp_file(*state, "t.gz"),
               *zst = temp_file(*state, "named-otherwise");
    put_file(plain, text, SIZE);
    put_gzip(gz, "wb", text, SIZE / 3); /* two members */
    put_gzip(gz, "ab", text + SIZE / 3, SIZE - SIZE / 3);
    size_t num = zstd_frame(packed, 2 * SIZE, text, SIZE / 2); /* two frames */
    num += zstd_frame(packed + num, 2 * SIZE - num, text + SIZE / 2, SIZE - SIZE / 2);
    put_file(zst, packed, num);
    const char *const path[] = {plain, gz, zst};
    const size_t piece[] = {1000, 65536, SIZE + 10};
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < 3; i++) {
            tr_error err = {0};
            size_t got;
            if (read_all(path[p], piece[i], back, SIZE + 10, &got, &err) != TR_OK)
                fail_msg("%s", err.message);
            assert_int_equal(got, SIZE);
            assert_memory_equal(back, text, SIZE);
        }
    free(text);
    free(back);
    free(packed);
}

static void assert_read_fails(const char *path, const char *because)
{
    static char out[200000];
    tr_error err = {0};
    size_t num;
    assert_int_equal(read_all(path, sizeof out, out, sizeof out, &num, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, because) || !strstr(err.message, path))
        fail_msg("expected \"%s\" and the path in: %s", because, err.message);
}

static void cut_and_damaged_files(void **state)
{
    enum { SIZE = 100000 };
    char *text = varied_text(SIZE);
    static char packed[200000];
    const char *gz = temp_file(*state, "c.gz"), *zst = temp_file(*state, "c.zst");
    put_gzip(gz, "wb", text, SIZE);
    FILE *stream = fopen(gz, "rb");
    size_t num = fread(packed, 1, sizeof packed, stream);
    fclose(stream);
    put_file(gz, packed, num - 9); /* without the checksum and a little of the data */
    assert_read_fails(gz, "cut short");
    put_file(gz, packed, num - 1);
    assert_read_fails(gz, "cut short");
    packed[num / 2] ^= 0x55;
    put_file(gz, packed, num);
    assert_read_fails(gz, "cannot be decompressed");
    put_file(gz, text, SIZE);
    assert_read_fails(gz, "does not begin as gzip data");
    put_file(zst, text, SIZE);
    assert_read_fails(zst, "does not begin as zstd data");
    num = zstd_frame(packed, sizeof packed, text, SIZE);
    put_file(zst, packed, num - 1);
    assert_read_fails(zst, "cut short");
    memcpy(packed + num, "not a frame", 11);
    put_file(zst, packed, num + 11);
    assert_read_fails(zst, "cannot be decompressed");
    assert_read_fails(temp_file(*state, "absent"), "cannot be opened");
    assert_read_fails(((temp_dir *)*state)->path, "is a directory");
    free(text);
}

static void lines_of_all_kinds(void **state)
{
    const char *path = temp_file(*state, "lines"), text[] =
                                                       "\xef\xbb\xbf"
                                                       "one\r\n\ntwo\0half\n\xef\xbb\xbf three\r";
    const char *const want[] = {"one", "", "two\0half", "\xef\xbb\xbf three\r"};
    const size_t size[] = {3, 0, 8, 10};
    put_file(path, text, sizeof text - 1);
    tri_lines *lines;
    tri_line line;
    tr_error err = {0};
    assert_int_equal(tri_lines_open(path, &lines, &err), TR_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tri_lines_next(lines, &line, &err), TR_OK);
        assert_int_equal(line.num_bytes, size[i]);
        assert_memory_equal(line.text, want[i], size[i] + 1);
        assert_int_equal(line.number, i + 1);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tri_lines_next(lines, &line, &err), TR_OK);
        assert_null(line.text);
    }
    assert_int_equal(tri_lines_consumed(lines), sizeof text - 1);
    tri_lines_close(lines);
}

/* Lines longer than the buffer and lines across its end: all of them, in order. */
static void long_lines(void **state)
{
    enum { SIZE = 3000000 };
    char *text = varied_text(SIZE), *at = text;
    memset(text + 1000, 'x', 1500000);
    const char *path = temp_file(*state, "long.gz");
    put_gzip(path, "wb1", text, SIZE);
    tri_lines *lines;
    tri_line line;
    tr_error err = {0};
    int64_t number = 0;
    assert_int_equal(tri_lines_open(path, &lines, &err), TR_OK);
    for (;; at += line.num_bytes + 1) {
        assert_int_equal(tri_lines_next(lines, &line, &err), TR_OK);
        if (!line.text)
            break;
        assert_true((size_t)(text + SIZE - at) >= line.num_bytes);
        assert_memory_equal(line.text, at, line.num_bytes);
        assert_int_equal(line.number, ++number);
        assert_true(at + line.num_bytes == text + SIZE || at[line.num_bytes] == '\n');
    }
    assert_true(at >= text + SIZE);
    tri_lines_close(lines);
    free(text);
}

/* The next line that is not blank, as an object; NULL at the end. */
static tr_status next_object(tri_lines *lines, const char *path, json_t **object, int64_t *number,
                             tr_error *err)
{
    tri_line line;
    *object = NULL;
    do {
        TRI_TRY(tri_lines_next(lines, &line, err));
        if (!line.text)
            return TR_OK;
    } while (tri_line_is_blank(&line));
    *number = line.number;
    return tri_json_line_parse(path, &line, object, err);
}

static void assert_json_fails(void **state, const char *text, const char *because)
{
    const char *path = temp_file(*state, "bad.jsonl");
    put_file(path, text, strlen(text));
    tri_lines *lines;
    tr_error err = {0};
    json_t *object;
    tr_status status;
    int64_t number;
    const char *value;
    size_t num;
    assert_int_equal(tri_lines_open(path, &lines, &err), TR_OK);
    do {
        status = next_object(lines, path, &object, &number, &err);
        if (status == TR_OK && object)
            status = tri_json_line_text(path, number, object, "text", &value, &num, &err);
        json_decref(object);
    } while (status == TR_OK && object);
    tri_lines_close(lines);
    assert_int_equal(status, TR_ERROR_INPUT);
    if (!strstr(err.message, because) || !strstr(err.message, path))
        fail_msg("expected \"%s\" and the path in: %s", because, err.message);
}

static void json_lines(void **state)
{
    const char *path = temp_file(*state, "good.jsonl"),
               *text = "{\"text\": \"a\\u0000b\\n\\u00e9\"}\n\n   \n{\"text\":\"\",\"n\":1}";
    put_file(path, text, strlen(text));
    tri_lines *lines;
    tr_error err = {0};
    json_t *object;
    int64_t number;
    const char *value;
    size_t num;
    assert_int_equal(tri_lines_open(path, &lines, &err), TR_OK);
    assert_int_equal(next_object(lines, path, &object, &number, &err), TR_OK);
    assert_int_equal(tri_json_line_text(path, number, object, "text", &value, &num, &err), TR_OK);
    assert_int_equal(num, 6);
    assert_memory_equal(value, "a\0b\n\xc3\xa9", 6);
    json_decref(object);
    assert_int_equal(next_object(lines, path, &object, &number, &err), TR_OK);
    assert_int_equal(number, 4);
    json_decref(object);
    assert_int_equal(next_object(lines, path, &object, &number, &err), TR_OK);
    assert_null(object);
    tri_lines_close(lines);

    assert_json_fails(state, "{\"text\":\"a\"}\n{\"text\":\"cut in ha", "line 2: not valid JSON");
    assert_json_fails(state, "{\"text\":\"a\"}\n\n[1]\n", "line 3: not a JSON object");
    assert_json_fails(state, "{\"body\":\"a\",\"id\":2}\n", "its fields are: \"body\", \"id\"");
    assert_json_fails(state, "{\"text\":[1]}\n", "line 1: \"text\" is not a text");
    assert_json_fails(state, "{\"text\":\"\xff\"}\n", "line 1: not valid JSON");
    assert_true(tri_is_jsonl_name("a/b.JSONL.zst"));
    assert_true(tri_is_jsonl_name("b.json.gz"));
    assert_false(tri_is_jsonl_name("b.txt.gz"));
    assert_false(tri_is_jsonl_name(".gz"));
}

/* A frame of one stored block, which says that it looks back 2^window_log bytes. */
static void put_frame(const char *path, int window_log, const char *text)
{
    unsigned char frame[64] = {0x28, 0xb5, 0x2f, 0xfd, 0, (unsigned char)((window_log - 10) << 3)};
    size_t num = strlen(text);
    frame[6] = (unsigned char)(num << 3 | 1); /* the last block, stored */
    memcpy(frame + 9, text, num);
    assert_int_equal(put_file(path, frame, 9 + num), 0);
}

/* As `zstd --long=28` writes it: more than the library allows by itself, and no damage. */
static void wide_windows(void **state)
{
    const char *path = temp_file(*state, "wide.zst");
    char out[64];
    size_t num;
    tr_error err = {0};
    put_frame(path, 28, "far back\n");
    if (read_all(path, sizeof out, out, sizeof out, &num, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_int_equal(num, 9);
    put_frame(path, 32, "too far\n");
    assert_int_equal(read_all(path, sizeof out, out, sizeof out, &num, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "zstd window is larger than the 2 GiB"));
    assert_non_null(strstr(err.message, "--long"));
}

/* ---- lists ---- */

typedef struct gathered {
    json_t *all; /* NULL: only counted */
    int64_t num;
} gathered;

static tr_status gather(void *context, const tri_entry *entry, tr_error *err)
{
    gathered *g = context;
    (void)err;
    g->num++;
    assert_int_equal(entry->number, g->num);
    if (g->all)
        assert_int_equal(json_array_append(g->all, (json_t *)entry->object), 0);
    return TR_OK;
}

/* What lists are made of, with pieces long enough for some to lie across the borders of blocks. */
static void lists_equal_their_parse(void **state)
{
    static const char *const items[] = {
        "{\"a\": \"x\"}",
        "{\"a\": \"],[{}\\\"\\\\\"}",
        "{\"b\": [1, [2, {\"c\": [3]}], []]}",
        "{}",
        "{\"\\u5b57\": \"\xe5\xad\x97\"}",
        "\n{\n\"a\" : null }\n",
    };
    enum { NUM = 12000 };
    const char *path = temp_file(*state, "list.json");
    char *text = malloc((size_t)NUM * 64), *at = text;
    assert_non_null(text);
    at += sprintf(at, "\xef\xbb\xbf \n[");
    for (int i = 0; i < NUM; i++)
        at += sprintf(at, "%s%s%s", i ? "," : "", i % 7 ? "" : " ", items[(i * 5 + i / 6) % 6]);
    at += sprintf(at, "]\n");
    assert_int_equal(put_file(path, text, (size_t)(at - text)), 0);
    json_t *whole = json_loadb(text + 3, (size_t)(at - text) - 3, 0, NULL);
    assert_non_null(whole);
    gathered g = {.all = json_array()};
    tr_error err = {0};
    if (tri_entries_each(path, gather, &g, NULL, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_int_equal(g.num, NUM);
    assert_true(json_equal(g.all, whole));
    json_decref(g.all);
    json_decref(whole);
    free(text);
}

static void wrong_lists(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[{},]", "an entry is missing"},
        {"[,{}]", "an entry is missing"},
        {"[{}\n,\n,{}]", "line 3: not valid JSON: an entry is missing"},
        {"[{}] {}", "behind the end of the list"},
        {"[{}", "the list has no end"},
        {"[{\"a\": \"]", "the list has no end"},
        {"[{\"a\"\n: tru}]", "line 2: not valid JSON"},
        {"[{} {}]", "not valid JSON"},
        {"[}]", "not valid JSON"},
        {"[1]", "item 1: not a JSON object"},
        {"[]", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = temp_file(*state, "wrong.json");
        gathered g = {0};
        tr_error err = {0};
        assert_int_equal(put_file(path, cases[i].text, strlen(cases[i].text)), 0);
        assert_int_equal(tri_entries_each(path, gather, &g, NULL, &err), TR_ERROR_INPUT);
        if (!strstr(err.message, cases[i].says))
            fail_msg("%s: expected \"%s\" in: %s", cases[i].text, cases[i].says, err.message);
    }
}

static long peak_kib(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* A small file that unpacks to a large list, all on one line. */
static void large_lists_are_not_held(void **state)
{
    enum { NUM = 20000, BYTES = 2048 };
    static char item[BYTES + 32];
    const char *path = temp_file(*state, "large.json.gz");
    gzFile file = gzopen(path, "wb1");
    assert_non_null(file);
    int length = sprintf(item, "{\"a\": \"%0*d\"},", BYTES, 0);
    gzputs(file, "[");
    for (int i = 0; i < NUM; i++)
        assert_int_equal(gzwrite(file, item, (unsigned)(i + 1 < NUM ? length : length - 1)),
                         i + 1 < NUM ? length : length - 1);
    gzputs(file, "]");
    assert_int_equal(gzclose(file), Z_OK);
    gathered g = {0};
    tr_error err = {0};
    long before = peak_kib();
    if (tri_entries_each(path, gather, &g, NULL, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_int_equal(g.num, NUM);
#ifdef __SANITIZE_ADDRESS__
    before = peak_kib(); /* which keeps what was freed */
#endif
    if (peak_kib() - before > 8 * 1024) /* of 40 MiB of text */
        fail_msg("the list took %ld KiB", peak_kib() - before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_equals_plain),
        cmocka_unit_test(cut_and_damaged_files),
        cmocka_unit_test(lines_of_all_kinds),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(json_lines),
        cmocka_unit_test(wide_windows),
        cmocka_unit_test(large_lists_are_not_held),
        cmocka_unit_test(lists_equal_their_parse),
        cmocka_unit_test(wrong_lists),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
