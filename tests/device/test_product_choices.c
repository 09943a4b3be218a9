/* The choices of products in tuning.json: kept, found again, and added to by several at once. */
#include "device/product_choices.h"

#include "base/tuning_json.h"
#include "temp_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

static const tri_product_choice example = {
    .key = {.m = 65536,
            .n = 3072,
            .k = 768,
            .trans_b = true,
            .in = TRI_BF16,
            .in_b = TRI_BF16,
            .out = TRI_BF16,
            .epilogue = TRI_EPILOGUE_BIAS_GELU},
    .number = {66, 4000000000, 35, 1, 0, 2, 7, 3, 65535},
    .seconds = 1.0 / 3e3,
    .first_seconds = 4e-4,
};

static tri_product_choices choices_on(const char *gpu, int64_t library)
{
    tri_product_choices choices = {.library = library};
    snprintf(choices.gpu, sizeof choices.gpu, "%s", gpu);
    return choices;
}

static tri_product_choices read_back(const char *path, const char *gpu, int64_t library)
{
    tr_error err = {0};
    tri_product_choices choices = choices_on(gpu, library);
    if (tri_product_choices_read(&choices, path, &err) != TR_OK)
        fail_msg("%s", err.message);
    return choices;
}

static void put_and_save(const char *path, const char *gpu, int64_t library,
                         const tri_product_choice *choice)
{
    tr_error err = {0};
    tri_product_choices choices = choices_on(gpu, library);
    assert_true(tri_product_choices_put(&choices, choice));
    if (tri_product_choices_save(&choices, path, &err) != TR_OK)
        fail_msg("%s", err.message);
    tri_product_choices_fini(&choices);
}

static void a_choice_comes_back_whole(void **state)
{
    const char *path = temp_file(*state, "whole.json");
    tri_product_choice apart = example;
    apart.key.epilogue = TRI_EPILOGUE_GELU_GRAD;
    apart.apart = true;
    put_and_save(path, "GPU", 130100, &example);
    put_and_save(path, "GPU", 130100, &apart);
    tri_product_choices back = read_back(path, "GPU", 130100);
    assert_int_equal(back.num, 2);
    const tri_product_choice *found = tri_product_choices_find(&back, &example.key);
    assert_non_null(found);
    assert_false(found->is_new);
    assert_false(found->apart);
    assert_memory_equal(found->number, example.number, sizeof example.number);
    assert_true(found->seconds == example.seconds);
    assert_true(found->first_seconds == example.first_seconds);
    found = tri_product_choices_find(&back, &apart.key);
    assert_non_null(found);
    assert_true(found->apart);
    tri_product_choices_fini(&back);
}

/* Everything in the key tells products apart. */
static void only_the_very_product_is_found(void **state)
{
    const char *path = temp_file(*state, "keys.json");
    put_and_save(path, "GPU", 1, &example);
    tri_product_choices back = read_back(path, "GPU", 1);
    tri_product_key keys[10];
    for (int i = 0; i < 10; i++)
        keys[i] = example.key;
    keys[0].m++;
    keys[1].n++;
    keys[2].k++;
    keys[3].trans_a = true;
    keys[4].trans_b = false;
    keys[5].fast_sum = true;
    keys[6].in = TRI_F16;
    keys[7].in_b = TRI_F8E4M3;
    keys[8].out = TRI_F32;
    keys[9].epilogue = TRI_EPILOGUE_BIAS;
    for (int i = 0; i < 10; i++)
        assert_null(tri_product_choices_find(&back, &keys[i]));
    assert_non_null(tri_product_choices_find(&back, &example.key));
    tri_product_choices_fini(&back);
}

static void others_choices_stay_theirs(void **state)
{
    const char *path = temp_file(*state, "others.json");
    const char *text = "{\"version\": 1, \"comm\": [{\"kept\": 7}]}";
    put_file(path, text, strlen(text));
    put_and_save(path, "GPU", 1, &example);
    put_and_save(path, "GPU", 2, &example);
    put_and_save(path, "other GPU", 1, &example);
    for (int i = 0; i < 4; i++) {
        tri_product_choices back = read_back(path, i < 2 ? "GPU" : "other GPU", i % 2 == 0 ? 1 : 2);
        assert_int_equal(back.num, i == 3 ? 0 : 1);
        tri_product_choices_fini(&back);
    }
    json_t *object;
    tr_error err = {0};
    assert_int_equal(tri_tuning_json_read(path, &object, &err), TR_OK);
    json_t *comm = json_array_get(json_object_get(object, "comm"), 0);
    assert_int_equal(json_integer_value(json_object_get(comm, "kept")), 7);
    json_decref(object);
}

static double seconds_in(const char *path)
{
    tri_product_choices back = read_back(path, "GPU", 1);
    const tri_product_choice *found = tri_product_choices_find(&back, &example.key);
    double seconds = found ? found->seconds : 0;
    tri_product_choices_fini(&back);
    return seconds;
}

/* The first to write wins, so that all runs after it do the same; but what was read and of no use
 * is replaced. */
static void the_first_stays_until_it_is_of_no_use(void **state)
{
    const char *path = temp_file(*state, "first.json");
    tr_error err = {0};
    tri_product_choice later = example;
    later.seconds = 7;
    put_and_save(path, "GPU", 1, &example);
    put_and_save(path, "GPU", 1, &later);
    assert_true(seconds_in(path) == example.seconds);
    tri_product_choices back = read_back(path, "GPU", 1);
    assert_true(tri_product_choices_put(&back, &later));
    assert_int_equal(back.num, 1);
    assert_int_equal(tri_product_choices_save(&back, path, &err), TR_OK);
    tri_product_choices_fini(&back);
    assert_true(seconds_in(path) == 7);
}

/* Ranks of a run end their measurements at about the same time. */
static void several_may_write_at_once(void **state)
{
    enum { WRITERS = 8, EACH = 6 };
    temp_dir *dir = *state;
    char own[80]; /* where nothing else is, to see what stays behind */
    snprintf(own, sizeof own, "%s/several", dir->path);
    assert_int_equal(mkdir(own, 0777), 0);
    const char *path = temp_file(dir, "several/tuning.json");
    for (int w = 0; w < WRITERS; w++)
        if (fork() == 0) {
            for (int i = 0; i < EACH; i++) {
                tri_product_choice choice = example;
                tr_error err = {0};
                tri_product_choices mine = choices_on("GPU", 1);
                choice.key.m = 1 + w * EACH + i;
                bool good = tri_product_choices_put(&mine, &choice) &&
                            tri_product_choices_save(&mine, path, &err) == TR_OK;
                tri_product_choices_fini(&mine);
                if (!good)
                    _exit(1);
            }
            _exit(0);
        }
    for (int w = 0; w < WRITERS; w++) {
        int status = 1;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    tri_product_choices back = read_back(path, "GPU", 1);
    assert_int_equal(back.num, WRITERS * EACH);
    assert_int_equal(num_entries(own), 1);
    tri_product_choices_fini(&back);
}

/* Nothing to add, or nothing that can be written: no empty file is left. */
static bool changes_nothing(json_t *list, const void *context)
{
    (void)list;
    (void)context;
    return false;
}

static void no_empty_file_stays(void **state)
{
    const char *path = temp_file(*state, "never.json");
    tr_error err = {0};
    assert_int_equal(tri_tuning_json_change(path, "products", changes_nothing, NULL, &err), TR_OK);
    assert_int_equal(access(path, F_OK), -1);
    put_file(path, "", 0);
    tri_product_choices back = read_back(path, "GPU", 1); /* as another process sees it */
    assert_int_equal(back.num, 0);
}

static void nonsense_is_refused(void **state)
{
    static const char *const entries[] = {
        "{\"gpu\": \"GPU\", \"cublaslt\": 1}",
        "{\"gpu\": \"GPU\", \"cublaslt\": 1, \"m\": -1, \"n\": 1, \"k\": 1, \"a\": \"bf16\", "
        "\"b\": "
        "\"bf16\", \"c\": \"f32\", \"epilogue\": \"none\", \"apart\": true}",
        "{\"gpu\": \"GPU\", \"cublaslt\": 1, \"m\": 1, \"n\": 1, \"k\": 1, \"a\": \"bf17\", \"b\": "
        "\"bf16\", \"c\": \"f32\", \"epilogue\": \"none\", \"apart\": true}",
        "{\"gpu\": \"GPU\", \"cublaslt\": 1, \"m\": 1, \"n\": 1, \"k\": 1, \"a\": \"bf16\", \"b\": "
        "\"bf16\", \"c\": \"f32\", \"epilogue\": \"none\", \"algorithm\": {\"id\": \"x\"}}",
    };
    const char *path = temp_file(*state, "nonsense.json");
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        char text[600];
        tr_error err = {0};
        tri_product_choices choices = choices_on("GPU", 1);
        snprintf(text, sizeof text, "{\"version\": 1, \"products\": [%s]}", entries[i]);
        put_file(path, text, strlen(text));
        assert_int_equal(tri_product_choices_read(&choices, path, &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, "nonsense.json"));
        assert_non_null(strstr(err.message, "delete the file"));
        tri_product_choices_fini(&choices);
        tri_product_choices others = read_back(path, "other GPU", 1); /* not theirs to judge */
        assert_int_equal(others.num, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_comes_back_whole),
        cmocka_unit_test(only_the_very_product_is_found),
        cmocka_unit_test(others_choices_stay_theirs),
        cmocka_unit_test(the_first_stays_until_it_is_of_no_use),
        cmocka_unit_test(several_may_write_at_once),
        cmocka_unit_test(no_empty_file_stays),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
