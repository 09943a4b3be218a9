/* The safetensors reader and writer; files that lie, and files that were damaged at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/rng.h"
#include "ckpt/safetensors.h"
#include "temp_dir.h"

#include <signal.h>
#include <sys/resource.h>

/* A file in memory: its header's length, the header, and so many bytes of data (0, 1, 2, ...). */
typedef struct image {
    unsigned char bytes[4096];
    size_t num_bytes;
} image;

static image image_of(const char *header, size_t data_bytes)
{
    image file = {.num_bytes = 8 + strlen(header) + data_bytes};
    assert_true(file.num_bytes <= sizeof file.bytes);
    uint64_t length = strlen(header);
    memcpy(file.bytes, &length, 8);
    memcpy(file.bytes + 8, header, strlen(header));
    for (size_t i = 0; i < data_bytes; i++)
        file.bytes[8 + length + i] = (unsigned char)i;
    return file;
}

static void assert_refused(const char *header, size_t data_bytes, const char *because)
{
    image file = image_of(header, data_bytes);
    tri_safetensors *parsed;
    tr_error err = {.message = ""};
    tr_status status =
        tri_safetensors_parse(file.bytes, file.num_bytes, "lie.safetensors", &parsed, &err);
    if (status != TR_ERROR_INPUT || parsed || !strstr(err.message, because) ||
        strncmp(err.message, "lie.safetensors: ", 17) != 0)
        fail_msg("%s\nwas expected to be refused because: %s\nbut: %s", header, because,
                 status == TR_OK ? "it was accepted" : err.message);
}

static void round_trip(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "round.safetensors");
    static const float weight[6] = {1, 2, 3, 4, 5, -6.5f};
    static const uint8_t flags[3] = {7, 8, 9};
    static const uint16_t half[5] = {1, 2, 3, 4, 5};
    static const int64_t count[1] = {INT64_MIN};
    const tri_safetensors_item item[] = {
        {"flags", TRI_U8, 1, (const int64_t[]){3}, flags},
        {"wte.weight", TRI_F32, 2, (const int64_t[]){2, 3}, weight},
        {"empty", TRI_F32, 3, (const int64_t[]){2, 0, 3}, NULL},
        {"bf", TRI_BF16, 2, (const int64_t[]){5, 1}, half},
        {"count \"\\\n\u00e9", TRI_I64, 0, NULL, count},
        {"f16", TRI_F16, 1, (const int64_t[]){5}, half},
        {"i32", TRI_I32, 1, (const int64_t[]){2}, weight},
    };
    const tri_safetensors_meta meta[] = {{"format", "pt"}, {"step", "12"}};
    tr_error err;
    assert_int_equal(tri_safetensors_write(path, item, 7, meta, 2, &err), TR_OK);
    tri_safetensors *file;
    if (tri_safetensors_open(path, &file, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_int_equal(tri_safetensors_num(file), 7);
    for (int i = 0; i < 7; i++) {
        const tri_safetensor *t;
        assert_int_equal(tri_safetensors_get(file, item[i].name, &t, &err), TR_OK);
        assert_string_equal(t->name, item[i].name);
        assert_int_equal(t->dtype, item[i].dtype);
        assert_int_equal(t->num_dims, item[i].num_dims);
        size_t bytes = tri_dtype_bytes(item[i].dtype);
        for (int d = 0; d < t->num_dims; d++) {
            assert_int_equal(t->dim[d], item[i].dim[d]);
            bytes *= (size_t)t->dim[d];
        }
        assert_int_equal(t->num_bytes, bytes);
        if (bytes > 0)
            assert_memory_equal(t->data, item[i].data, bytes);
        assert_int_equal((uintptr_t)t->data % tri_dtype_bytes(t->dtype), 0);
    }
    assert_string_equal(tri_safetensors_at(file, 0)->name, item[4].name); /* widest first */
    assert_string_equal(tri_safetensors_metadata(file, "step"), "12");
    assert_null(tri_safetensors_metadata(file, "none"));
    assert_null(tri_safetensors_find(file, "__metadata__"));
    const tri_safetensor *t;
    assert_int_equal(tri_safetensors_get(file, "wpe.weight", &t, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "holds no tensor \"wpe.weight\""));
    tri_safetensors_close(file);
    assert_int_equal(num_entries(dir->path), 1);
}

static void the_header_is_padded(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "padded.safetensors");
    char name[16] = "";
    for (int i = 0; i < 10; i++) {
        name[i] = 'n';
        const tri_safetensors_item item = {name, TRI_U8, 1, (const int64_t[]){1}, "x"};
        tr_error err;
        assert_int_equal(tri_safetensors_write(path, &item, 1, NULL, 0, &err), TR_OK);
        tri_mapping mapping;
        assert_int_equal(tri_mapping_open(&mapping, path, &err), TR_OK);
        uint64_t length;
        memcpy(&length, mapping.data, 8);
        assert_int_equal(length % 8, 0);
        assert_int_equal(mapping.num_bytes, 8 + length + 1);
        assert_int_equal(mapping.data[8], '{');
        tri_mapping_close(&mapping);
    }
}

static void an_empty_file_of_tensors(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "none.safetensors");
    tr_error err;
    tri_safetensors *file;
    assert_int_equal(tri_safetensors_write(path, NULL, 0, NULL, 0, &err), TR_OK);
    assert_int_equal(tri_safetensors_open(path, &file, &err), TR_OK);
    assert_int_equal(tri_safetensors_num(file), 0);
    const tri_safetensor *t;
    assert_int_equal(tri_safetensors_get(file, "a", &t, &err), TR_ERROR_INPUT);
    assert_null(tri_safetensors_metadata(file, "a"));
    tri_safetensors_close(file);
    tri_safetensors_close(NULL);
}

static void types_that_cannot_be_loaded_can_be_listed(void **state)
{
    (void)state;
    image image = image_of("{\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[4,20]},"
                           "\"f4\":{\"dtype\":\"F4\",\"shape\":[2,2],\"data_offsets\":[20,22]},"
                           "\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],"
                           "\"extra\":null}}  ",
                           22);
    tri_safetensors *file;
    tr_error err;
    assert_int_equal(tri_safetensors_parse(image.bytes, image.num_bytes, "x", &file, &err), TR_OK);
    const tri_safetensor *t;
    assert_int_equal(tri_safetensors_get(file, "w", &t, &err), TR_OK);
    assert_int_equal(tri_safetensors_get(file, "d", &t, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "F64"));
    t = tri_safetensors_find(file, "d");
    assert_string_equal(t->dtype_text, "F64");
    assert_int_equal(t->dtype, TRI_NUM_DTYPES);
    assert_int_equal(t->num_bytes, 16);
    tri_safetensors_close(file);
}

/* One tensor "a" with these fields, over 16 bytes of data. */
static void assert_tensor_refused(const char *fields, const char *because)
{
    char header[512];
    snprintf(header, sizeof header, "{\"a\":{%s}}", fields);
    assert_refused(header, 16, because);
}

static void headers_that_lie_about_a_tensor(void **state)
{
    (void)state;
#define F32    "\"dtype\":\"F32\","
#define SHAPE4 "\"shape\":[4],"
#define WHOLE  "\"data_offsets\":[0,16]"
    assert_tensor_refused(SHAPE4 WHOLE, "has no \"dtype\"");
    assert_tensor_refused("\"dtype\":4," SHAPE4 WHOLE, "has no \"dtype\"");
    assert_tensor_refused("\"dtype\":\"F33\"," SHAPE4 WHOLE, "unknown dtype \"F33\"");
    assert_tensor_refused(F32 WHOLE, "has no \"shape\"");
    assert_tensor_refused(F32 "\"shape\":4," WHOLE, "has no \"shape\"");
    assert_tensor_refused(F32 "\"shape\":[-4]," WHOLE, "size 0 of its shape");
    assert_tensor_refused(F32 "\"shape\":[4,1.0]," WHOLE, "size 1 of its shape");
    assert_tensor_refused(F32 "\"shape\":[\"4\"]," WHOLE, "size 0 of its shape");
    assert_tensor_refused(F32 "\"shape\":[99999999999999999999]," WHOLE, "not valid JSON");
    assert_tensor_refused(F32 "\"shape\":[4,1,1,1,1,1,1,1,1]," WHOLE, "has 9 dims");
    assert_tensor_refused(F32 "\"shape\":[4294967296,4294967296]," WHOLE, "impossible shape");
    assert_tensor_refused(F32 "\"shape\":[4611686018427387905]," WHOLE, "impossible shape");
    assert_tensor_refused("\"dtype\":\"F4\",\"shape\":[31]," WHOLE, "impossible shape");
    assert_tensor_refused(F32 "\"shape\":[3]," WHOLE, "has 16 bytes of data");
    assert_tensor_refused(F32 "\"shape\":[0]," WHOLE, "need 0");
    assert_tensor_refused("\"dtype\":\"F64\"," SHAPE4 WHOLE, "need 32");
    assert_tensor_refused(F32 "\"shape\":[4]", "has no \"data_offsets\"");
    assert_tensor_refused(F32 SHAPE4 "\"data_offsets\":[0,16,32]", "has no \"data_offsets\"");
    assert_tensor_refused(F32 SHAPE4 "\"data_offsets\":[0]", "has no \"data_offsets\"");
    assert_tensor_refused(F32 SHAPE4 "\"data_offsets\":[0,16.0]", "has no \"data_offsets\"");
    assert_tensor_refused(F32 SHAPE4 "\"data_offsets\":{}", "has no \"data_offsets\"");
    assert_tensor_refused(F32 SHAPE4 "\"data_offsets\":[16,0]", "begins at byte 16");
    assert_tensor_refused(F32 SHAPE4 "\"data_offsets\":[-16,0]", "begins at byte -16");
    assert_tensor_refused(F32 SHAPE4 "\"data_offsets\":[4,20]",
                          "tensor \"a\" ends at byte 20 but the file holds 16 bytes of data: it is "
                          "truncated");
    assert_tensor_refused(F32 SHAPE4 "\"data_offsets\":[9223372036854775791,9223372036854775807]",
                          "truncated");
    assert_tensor_refused(F32 "\"shape\":[3],\"data_offsets\":[4,16]", "belong to no tensor");
    assert_tensor_refused(F32 "\"shape\":[3],\"data_offsets\":[0,12]", "belong to no tensor");
    assert_tensor_refused(F32 F32 SHAPE4 WHOLE, "duplicate");
#undef F32
#undef SHAPE4
#undef WHOLE
}

static void headers_that_lie_about_the_file(void **state)
{
    (void)state;
#define A(begin, end) "{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[" #begin "," #end "]}"
    assert_refused("{\"a\":" A(0, 8) ",\"b\":" A(4, 12) "}", 12, "overlap");
    assert_refused("{\"a\":" A(0, 8) ",\"b\":" A(0, 8) "}", 8, "overlap");
    assert_refused("{\"a\":" A(0, 8) ",\"b\":" A(9, 17) "}", 17, "1 bytes before tensor \"b\"");
    assert_refused("{\"a\":" A(0, 8) "}", 9, "the last 1 bytes belong to no tensor");
    assert_refused("{\"a\":" A(0, 8) ",\"a\":" A(8, 16) "}", 16, "duplicate");
    assert_refused("{\"a\":" A(0, 8) "} x", 8, "not valid JSON");
    assert_refused("{\"__metadata__\":{\"k\":1},\"a\":" A(0, 8) "}", 8, "key \"k\" is no string");
    assert_refused("{\"__metadata__\":[],\"a\":" A(0, 8) "}", 8, "not a map of strings");
#undef A
    assert_refused("{}", 1, "belong to no tensor");
    assert_refused("{\"a\":7}", 0, "has no \"dtype\"");
    assert_refused("{\"a\":[]}", 0, "has no \"dtype\"");
    assert_refused("[]", 0, "does not begin with {");
    assert_refused(" {}", 0, "does not begin with {");
    assert_refused("", 0, "does not begin with {");
    assert_refused("{", 0, "not valid JSON");
    assert_refused("{\"\xff\":1}", 0, "not valid JSON");
    char deep[4000] = "{\"a\":";
    memset(deep + 5, '[', sizeof deep - 6);
    assert_refused(deep, 0, "not valid JSON");

    tri_safetensors *file;
    tr_error err;
    for (size_t n = 0; n < 8; n++) {
        assert_int_equal(tri_safetensors_parse("\2\0\0\0\0\0\0", n, "x", &file, &err),
                         TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, "truncated"));
    }
    static const uint64_t lengths[] = {3, 1000, 100000000, 100000001, INT64_MAX, UINT64_MAX};
    for (int i = 0; i < 6; i++) {
        image image = image_of("{}", 0);
        memcpy(image.bytes, &lengths[i], 8);
        assert_int_equal(tri_safetensors_parse(image.bytes, image.num_bytes, "x", &file, &err),
                         TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, i < 3 ? "only 2 are there" : "more than"));
    }
}

static void a_missing_file_is_named(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "missing.safetensors");
    tri_safetensors *file;
    tr_error err;
    assert_int_equal(tri_safetensors_open(path, &file, &err), TR_ERROR_INPUT);
    assert_null(file);
    assert_non_null(strstr(err.message, path));
}

static void what_the_writer_refuses(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "refused.safetensors");
    const int64_t one[] = {1}, minus[] = {-1}, huge[] = {INT64_MAX, 2};
    const int64_t nine[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const tri_safetensors_item bad[] = {
        {"a", TRI_F32, 1, one, NULL},     {"a", TRI_F32, 1, minus, "data"},
        {"a", TRI_F32, 2, huge, "data"},  {"a", TRI_F32, 9, nine, "data"},
        {"a", TRI_F32, -1, one, "data"},  {"__metadata__", TRI_U8, 1, one, "data"},
        {"\xff", TRI_U8, 1, one, "data"}, {"a", TRI_NUM_DTYPES, 1, one, "data"},
    };
    tr_error err;
    for (int i = 0; i < 8; i++)
        assert_int_not_equal(tri_safetensors_write(path, &bad[i], 1, NULL, 0, &err), TR_OK);
    const tri_safetensors_item twice[] = {{"a", TRI_U8, 1, one, "x"}, {"a", TRI_U8, 1, one, "y"}};
    assert_int_not_equal(tri_safetensors_write(path, twice, 2, NULL, 0, &err), TR_OK);
    const tri_safetensors_meta meta = {"k", "\xff"};
    assert_int_not_equal(tri_safetensors_write(path, twice, 1, &meta, 1, &err), TR_OK);
    assert_false(tri_path_exists(path));
}

/* The checkpoint of before survives a disk that fills up while the next is written. */
static void a_full_disk_keeps_the_old_file(void **state)
{
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "full.safetensors");
    static const float zeros[10000];
    tri_safetensors_item item = {"a", TRI_F32, 1, (const int64_t[]){10}, zeros};
    tr_error err;
    assert_int_equal(tri_safetensors_write(path, &item, 1, NULL, 0, &err), TR_OK);
    int before_entries = num_entries(dir->path);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    item.dim = (const int64_t[]){10000};
    tr_status status = tri_safetensors_write(path, &item, 1, NULL, 0, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, TR_ERROR_RUNTIME);
    assert_int_equal(num_entries(dir->path), before_entries);
    tri_safetensors *file;
    assert_int_equal(tri_safetensors_open(path, &file, &err), TR_OK);
    assert_int_equal(tri_safetensors_find(file, "a")->dim[0], 10);
    tri_safetensors_close(file);
}

/* ---- damage at random ---- */

/* Reads every byte that the reader says is there; the address sanitizer watches. */
static unsigned touch_all(const tri_safetensors *file)
{
    unsigned sum = 0;
    for (size_t i = 0; i < tri_safetensors_num(file); i++) {
        const tri_safetensor *t = tri_safetensors_at(file, i);
        assert_ptr_equal(tri_safetensors_find(file, t->name), t);
        const unsigned char *byte = t->data;
        for (size_t b = 0; b < t->num_bytes; b++)
            sum += byte[b];
    }
    return sum;
}

/* One to four changes: a bit, a byte that means something in JSON, a digit, a cut, a swap. */
static size_t damage(unsigned char *bytes, size_t num_bytes, uint64_t seed)
{
    static const char telling[] = "{}[]\",:0123456789-.eE\\u \n";
    uint32_t word[4];
    tri_philox(seed, 0, 0, 1, word);
    int num_changes = 1 + (int)(word[0] % 4);
    for (int change = 0; change < num_changes && num_bytes > 0; change++) {
        tri_philox(seed, 1 + (uint64_t)change, 0, 1, word);
        size_t at = word[1] % num_bytes;
        switch (word[0] % 6) {
        case 0:
            bytes[at] ^= (unsigned char)(1u << word[2] % 8);
            break;
        case 1:
        case 2:
            bytes[at] = (unsigned char)telling[word[2] % (sizeof telling - 1)];
            break;
        case 3: /* the next digit becomes another */
            while (at < num_bytes && (bytes[at] < '0' || bytes[at] > '9'))
                at++;
            if (at < num_bytes)
                bytes[at] = (unsigned char)('0' + word[2] % 10);
            break;
        case 4:
            if (word[2] % 4 == 0)
                num_bytes = at;
            else
                bytes[at % 8] = (unsigned char)word[3]; /* the length of the header */
            break;
        case 5: {
            size_t other = word[2] % num_bytes;
            unsigned char held = bytes[at];
            bytes[at] = bytes[other];
            bytes[other] = held;
            break;
        }
        }
    }
    return num_bytes;
}

static void random_damage_never_crashes(void **state)
{
    (void)state;
    const image good =
        image_of("{\"__metadata__\":{\"format\":\"pt\"},"
                 "\"wte\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                 "\"none\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[24,24]},"
                 "\"bias\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]}}   ",
                 32);
    int num_accepted = 0;
    for (uint64_t seed = 0; seed < 5000; seed++) {
        image changed = good;
        size_t num_bytes = damage(changed.bytes, changed.num_bytes, seed);
        /* On the heap and of exactly this size, so that a read past the end is seen. */
        unsigned char *exact = malloc(num_bytes ? num_bytes : 1);
        assert_non_null(exact);
        memcpy(exact, changed.bytes, num_bytes);
        tri_safetensors *file;
        tr_error err = {.message = ""};
        if (tri_safetensors_parse(exact, num_bytes, "fuzz", &file, &err) == TR_OK) {
            num_accepted++;
            touch_all(file);
        } else {
            assert_int_equal(strncmp(err.message, "fuzz: ", 6), 0);
        }
        tri_safetensors_close(file);
        free(exact);
    }
    /* Damage to names, metadata and data is harmless; most of the rest must be noticed. */
    assert_in_range(num_accepted, 100, 2500);
}

static void every_truncation_is_noticed(void **state)
{
    (void)state;
    const image good =
        image_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]}}", 9);
    for (size_t n = 0; n < good.num_bytes; n++) {
        tri_safetensors *file;
        tr_error err;
        assert_int_equal(tri_safetensors_parse(good.bytes, n, "cut", &file, &err), TR_ERROR_INPUT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(the_header_is_padded),
        cmocka_unit_test(an_empty_file_of_tensors),
        cmocka_unit_test(types_that_cannot_be_loaded_can_be_listed),
        cmocka_unit_test(headers_that_lie_about_a_tensor),
        cmocka_unit_test(headers_that_lie_about_the_file),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(what_the_writer_refuses),
        cmocka_unit_test(a_full_disk_keeps_the_old_file),
        cmocka_unit_test(random_damage_never_crashes),
        cmocka_unit_test(every_truncation_is_noticed),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
