/* Settings that the library reads by a name that it writes itself: each of these names is in the
 * table, and of the type that it is read as. The public getters do not end a program over a wrong
 * name, so a wrong one of our own has to be found here, in the source. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fs.h"
#include "config/settings_internal.h"
#include "temp_dir.h"
#include "trireme/trireme.h"

static const struct {
    const char *call;
    unsigned types; /* bit t */
} getters[] = {
    {"tr_settings_bool(", 1 << TRI_SETTING_BOOL},
    {"tr_settings_int(", 1 << TRI_SETTING_INT},
    {"tr_settings_float(", 1 << TRI_SETTING_FLOAT},
    {"tr_settings_string(", 1 << TRI_SETTING_STRING | 1 << TRI_SETTING_CHOICE},
    {"tr_settings_choice(", 1 << TRI_SETTING_CHOICE},
    {"tr_settings_given(", ~0u},
};

static int num_seen, num_wrong;

/* The second argument, when it is a literal. */
static bool literal(const char *at, char *name, size_t size)
{
    int depth = 0;
    for (; *at && *at != ';' && (depth > 0 || *at != ','); at++)
        depth += (*at == '(') - (*at == ')');
    if (*at != ',')
        return false;
    at++;
    at += strspn(at, " \n\t");
    if (*at != '"')
        return false;
    snprintf(name, size, "%.*s", (int)strcspn(at + 1, "\""), at + 1);
    return true;
}

static void scan(const char *path, const char *text)
{
    char name[128];
    tri_table table;
    tri_table_init(&table, NULL);
    for (size_t g = 0; g < sizeof getters / sizeof *getters; g++)
        for (const char *at = text; (at = strstr(at, getters[g].call));) {
            at += strlen(getters[g].call);
            if (!literal(at, name, sizeof name))
                continue;
            int index = tri_setting_find(&table, name);
            num_seen++;
            if (index >= 0 && getters[g].types >> table.row[index]->type & 1)
                continue;
            num_wrong++;
            print_error("%s: %s\"%s\") reads %s\n", path, getters[g].call, name,
                        index < 0 ? "what is no setting" : "a setting of another type");
        }
}

static int scan_file(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)walk;
    size_t length = strlen(path);
    tri_mapping file;
    if (kind != FTW_F || length < 3 || strcmp(path + length - 2, ".c") != 0)
        return 0;
    if (tri_mapping_open(&file, path, NULL) != TR_OK)
        return -1;
    char *text = calloc(1, file.num_bytes + 1);
    if (text && file.num_bytes)
        memcpy(text, file.data, file.num_bytes);
    if (text)
        scan(path, text);
    free(text);
    tri_mapping_close(&file);
    return 0;
}

static void every_name_in_the_source_is_a_setting(void **state)
{
    (void)state;
    assert_int_equal(nftw("src", scan_file, 8, FTW_PHYS), 0);
    assert_true(num_seen > 200); /* else this looks for the wrong thing */
    assert_int_equal(num_wrong, 0);
}

static void a_wrong_name_ends_no_program(void **state)
{
    (void)state;
    tr_settings *settings;
    assert_int_equal(tr_settings_create(&settings, NULL), TR_OK);
    static const char *const wrong[] = {"train.stepps", "train", "", "train.steps.", "optim.lr "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(tr_settings_int(settings, wrong[i]), 0);
        assert_false(tr_settings_bool(settings, wrong[i]));
        assert_true(tr_settings_float(settings, wrong[i]) == 0);
        assert_string_equal(tr_settings_string(settings, wrong[i]), "");
        assert_int_equal(tr_settings_choice(settings, wrong[i]), -1);
        assert_false(tr_settings_given(settings, wrong[i]));
    }
    assert_int_equal(tr_settings_int(settings, "optim.lr"), 0); /* of another type */
    assert_string_equal(tr_settings_string(settings, "train.steps"), "");
    assert_int_equal(tr_settings_choice(settings, "run.dir"), -1);
    assert_int_equal(tr_settings_int(settings, "train.steps"), 100);
    tr_settings_destroy(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_in_the_source_is_a_setting),
        cmocka_unit_test(a_wrong_name_ends_no_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
