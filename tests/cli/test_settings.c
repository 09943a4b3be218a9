/* The settings: every kind of error with its message, the round trip through YAML, which values
 * count as given, the help, and a seeded fuzz of the YAML reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/settings/nearest.h"
#include "config/aliases.h"
#include "config/owners.h"
#include "config/settings_table.h"
#include "trireme/settings.h"

static tri_table table;

static tr_settings *fresh(void)
{
    tr_settings *settings = NULL;
    tr_error err = {0};
    assert_int_equal(tr_settings_create(&settings, &err), TR_OK);
    return settings;
}

/* message must hold part; prints both when it does not. */
static void assert_says(const char *message, const char *part)
{
    if (!strstr(message, part))
        fail_msg("expected \"%s\" in \"%s\"", part, message);
}

typedef struct error_case {
    const char *input;
    const char *says[3];
} error_case;

static void defaults_are_valid(void **state)
{
    (void)state;
    tr_settings *s = fresh();
    for (int i = 0; i < table.num; i++) {
        const tri_setting *row = table.row[i];
        assert_false(tr_settings_given(s, row->name));
        assert_true(strlen(row->name) <= 25); /* the column of the help */
        assert_non_null(strchr(row->name, '.'));
        assert_true(row->max <= 9007199254740992.0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(row->name, table.row[j]->name);
    }
    assert_string_equal(tr_settings_string(s, "model.kind"), "gpt2");
    assert_int_equal(tr_settings_choice(s, "model.kind"), 1);
    assert_int_equal(tr_settings_int(s, "model.dim"), 64);
    assert_true(tr_settings_float(s, "optim.lr") == 3e-4);
    assert_true(tr_settings_bool(s, "run.save"));
    assert_string_equal(tr_settings_string(s, "run.dir"), "runs/latest");
    tr_settings_destroy(s);
    tr_settings_destroy(NULL);
}

static void sections_hold_their_rows_together(void **state)
{
    (void)state;
    int section = 0;
    for (int i = 0; i < table.num; i++) {
        const char *name = table.row[i]->name;
        size_t length = strcspn(name, ".");
        while (section < tri_num_sections &&
               (strlen(tri_sections[section].name) != length ||
                strncmp(tri_sections[section].name, name, length) != 0))
            section++;
        if (section == tri_num_sections)
            fail_msg("%s stands outside its section", name);
    }
}

static void values_are_read(void **state)
{
    (void)state;
    tr_settings *s = fresh();
    tr_error err = {0};
    static const char *const good[] = {
        "train.steps=1e6",  "model.dim=1_024",       "optim.lr = 5e-4 ",
        "run.trace=Yes",    "run.save=off",          "optim.kind=muon",
        "run.device=null",  "generate.prompt= a=b ", "run.seed=9007199254740992",
        "model.dropout=.5", "optim.eps=-0"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (tr_settings_set(s, good[i], &err) != TR_OK)
            fail_msg("%s: %s", good[i], err.message);
    assert_int_equal(tr_settings_int(s, "train.steps"), 1000000);
    assert_int_equal(tr_settings_int(s, "model.dim"), 1024);
    assert_true(tr_settings_float(s, "optim.lr") == 5e-4);
    assert_true(tr_settings_bool(s, "run.trace"));
    assert_false(tr_settings_bool(s, "run.save"));
    assert_int_equal(tr_settings_choice(s, "optim.kind"), 3);
    assert_string_equal(tr_settings_string(s, "run.device"), "null");
    assert_string_equal(tr_settings_string(s, "generate.prompt"), " a=b ");
    assert_true(tr_settings_int(s, "run.seed") == 9007199254740992);
    assert_true(tr_settings_float(s, "model.dropout") == 0.5);
    tr_settings_destroy(s);
}

static const error_case wrong_assignments[] = {
    {"model.num_layer=3", {"unknown setting \"model.num_layer\"", "model.num_layers"}},
    {"modle.dim=3", {"did you mean model.dim"}},
    {"train.lr=1", {"did you mean optim.lr"}},
    {"lr=1", {"did you mean optim.lr"}},
    {"optim.learning_rate=1", {"did you mean optim.lr"}},
    {"model.n_embd=1", {"did you mean model.dim"}},
    {"train.batch_size=1", {"did you mean train.batch"}},
    {"micro_batch_size=2", {"did you mean layout.microbatches (a count, not a size:"}},
    {"train.micro-batch-size=2", {"= train.batch / (layout.dp x micro_batch_size))?"}},
    {"gpus=4", {"did you mean layout.dp"}},
    {"nproc_per_node=4", {"did you mean layout.dp", "trireme train starts them"}},
    {"checkpoint.interval=4", {"did you mean ckpt.every"}},
    {"ckpt.interval=4", {"did you mean ckpt.every"}},
    {"generate.batch_size=4", {"did you mean generate.batch"}},
    {"parallelism.tensor_parallel_degree=2", {"did you mean layout.tp"}},
    {"zero_optimization.stage=2", {"did you mean layout.zero"}},
    {"per_device_train_batch_size=2", {"train.batch", "x layout.dp x grad"}},
    {"learning_rtae=2", {"did you mean optim.lr"}},
    {"wandb_log=true", {"there is no setting \"wandb_log\"", "metrics.jsonl"}},
    {"context_parallel_degree=2", {"did you mean layout.cp"}},
    {"expert_parallel_degree=2", {"layout.ep"}},
    {"layout.zzqq=2", {"unknown setting", "layout.", "trireme settings"}},
    {"model=gpt2", {"model is a section", "model.kind=gpt2"}},
    {"model=auto", {"model is a section", "model.kind=gpt2"}},
    {"layout=none", {"layout is a section", "layout.dp=1"}},
    {"train.batch=0", {"train.batch is 0", "from 1 to 16777216"}},
    {"train.batch=-5", {"train.batch is -5", "from 1 to 16777216"}},
    {"train.steps=1e10", {"train.steps is 1e10", "from 0 to 1e9"}},
    {"run.seed=9007199254740993", {"9007199254740993", "to 9007199254740992"}},
    {"model.dropout=0.96", {"0.96", "from 0 to 0.95"}},
    {"model.dropout=1e999", {"out of range"}},
    {"train.batch=eight", {"\"eight\"", "a whole number from 1", "for example 8"}},
    {"train.batch=2.5", {"a whole number"}},
    {"train.batch=64k", {"a whole number"}},
    {"train.batch=0x10", {"a whole number"}},
    {"train.batch=1__0", {"a whole number"}},
    {"train.batch=1e-1", {"a whole number"}},
    {"train.batch=", {"train.batch has no value", "a whole number"}},
    {"optim.lr=fast", {"\"fast\"", "a number from 0 to 1000", "for example 3e-4"}},
    {"optim.lr=nan", {"a number"}},
    {"optim.lr=inf", {"a number"}},
    {"run.trace=1", {"run.trace is \"1\"", "true or false"}},
    {"precision.kind=fp8", {"8-bit", "precision.kind=bf16 and precision.linear=fp8"}},
    {"precision.kind=Bfloat16", {"did you mean bf16?"}},
    {"run.device=gpu", {"did you mean cuda?"}},
    {"optim.kind=adamW", {"one of sgd, adam, adamw, muon, lion", "did you mean adamw?"}},
    {"optim.kind=shampoo", {"\"shampoo\"", "one of sgd, adam, adamw, muon, lion"}},
    {"run.dir=\xff", {"run.dir is not valid UTF-8"}},
    {"optim.lr", {"does not assign a value", "section.key=value"}},
    {"=3", {"does not assign a value"}},
    {"", {"does not assign a value"}}};

static void wrong_assignments_say_why(void **state)
{
    (void)state;
    tr_settings *s = fresh();
    for (size_t i = 0; i < sizeof wrong_assignments / sizeof *wrong_assignments; i++) {
        tr_error err = {0};
        assert_int_equal(tr_settings_set(s, wrong_assignments[i].input, &err), TR_ERROR_INPUT);
        for (int j = 0; j < 3 && wrong_assignments[i].says[j]; j++)
            assert_says(err.message, wrong_assignments[i].says[j]);
        assert_int_equal(tr_settings_set(s, wrong_assignments[i].input, NULL), TR_ERROR_INPUT);
    }
    for (int i = 0; i < table.num; i++)
        assert_false(tr_settings_given(s, table.row[i]->name));
    assert_int_equal(tr_settings_int(s, "train.batch"), 8);
    tr_settings_destroy(s);
}

static tr_status load(tr_settings *s, const char *text, tr_error *err)
{
    return tr_settings_load_text(s, "a.yaml", text, strlen(text), err);
}

static void wrong_files_say_where(void **state)
{
    (void)state;
    static const error_case cases[] = {
        {"model:\n  dim: 64\n  dmi: 3\n", {"a.yaml:3:", "\"model.dmi\"", "model.dim"}},
        {"model:\n  dim: 64\n\n  dim: 65\n", {"a.yaml:4:", "model.dim is given twice"}},
        {"model:\n  dim: 64\nmodel:\n  num_heads: 2\n", {"a.yaml:3:", "section model", "twice"}},
        {"model:\n  dim: 0\n", {"a.yaml:2:", "model.dim is 0", "from 1 to 1000000"}},
        {"model:\n  dim: wide\n", {"a.yaml:2:", "\"wide\"", "for example 64"}},
        {"model:\n  dim:\n", {"a.yaml:2:", "model.dim has no value"}},
        {"model:\n  dim: [1, 2]\n", {"a.yaml:2:", "model.dim is a list", "dim: 64"}},
        {"model:\n  dim: {a: 1}\n", {"a.yaml:2:", "model.dim is a mapping"}},
        {"model:\n  dim: &a 3\n  num_heads: *a\n", {"a.yaml:3:", "num_heads is an alias"}},
        {"optim:\n  groups: [a, [b]]\n", {"a.yaml:2:", "optim.groups may be a list of texts"}},
        {"modle:\n  dim: 64\n", {"a.yaml:1:", "unknown section \"modle\"", "model"}},
        {"checkpoint:\n  interval: 1\n", {"unknown section \"checkpoint\"", "did you mean ckpt?"}},
        {"parallelism:\n  x: 1\n", {"did you mean layout?"}},
        {"optimizer:\n  lr: 1\n", {"unknown section \"optimizer\"", "did you mean optim?"}},
        {"lr: 1\n", {"a.yaml:1:", "did you mean optim.lr"}},
        {"model.dim: 64\n", {"a.yaml:1:", "as a section and a key", "\"model:\""}},
        {"model: gpt2\n", {"a.yaml:1:", "model is a section", "kind: gpt2"}},
        {"model: auto\n", {"a.yaml:1:", "model is a section", "kind: gpt2"}},
        {"layout: none\n", {"a.yaml:1:", "layout is a section", "dp: 1"}},
        {"optim:\n  lr:1e-3\n", {"a.yaml:2:", "optim is a section", "lr:1e-3"}},
        {"model:\n\tdim: 64\n", {"a.yaml:2:", "not valid YAML", "indent with spaces"}},
        {"model:\n  from: \"open\n", {"a.yaml:2:", "not valid YAML", "model.from"}},
        {"model:\n  from: caf\xe9\n", {"a.yaml:2:", "UTF-8"}},
        {"model:\n  from: \"a\\0b\"\n", {"a.yaml:2:", "model.from holds a NUL"}},
        {"model:\n  {a: b}: c\n", {"a.yaml:2:", "name of a setting"}},
        {"- a\n", {"a.yaml:1:", "not a settings file"}},
        {"hello\n", {"a.yaml:1:", "not a settings file"}},
        {"model:\n  dim: 1\n---\nmodel:\n", {"a.yaml:3:", "second document"}},
        {"version: 2\n", {"a.yaml:1:", "version is \"2\""}},
        {"version: 1\nversion: 1\n", {"a.yaml:2:", "version is given twice"}}};
    tr_settings *s = fresh();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tr_error err = {0};
        assert_int_equal(load(s, cases[i].input, &err), TR_ERROR_INPUT);
        for (int j = 0; j < 3 && cases[i].says[j]; j++)
            assert_says(err.message, cases[i].says[j]);
        /* All or nothing: the good lines before the bad one have not been taken over. */
        assert_int_equal(tr_settings_int(s, "model.dim"), 64);
        assert_false(tr_settings_given(s, "model.dim"));
    }
    tr_settings_destroy(s);
}

/* Every row leads somewhere, by its own name, and no word stands in both tables. */
static void aliases_lead_to_settings(void **state)
{
    (void)state;
    for (int i = 0; i < tri_num_aliases; i++) {
        const tri_alias *row = &tri_aliases[i], *found = tri_alias_find(row->name);
        assert_true(row->setting || row->how);
        if (row->setting && tri_setting_find(&table, row->setting) < 0)
            fail_msg("%s leads to %s, which is no setting", row->name, row->setting);
        if (!found || (found->setting != row->setting && strcmp(found->setting, row->setting) != 0))
            fail_msg("%s is found as %s", row->name, found ? found->name : "nothing");
        if (i > 0 && row->trainer && !tri_aliases[i - 1].trainer)
            fail_msg("%s stands behind the rows that are nobody's", row->name);
        char word[96];
        snprintf(word, sizeof word, " %s ", row->name);
        const tri_setting *own = row->setting ? tri_setting_named(&table, row->setting) : NULL;
        char also[400];
        snprintf(also, sizeof also, " %s ", own && own->also ? own->also : "");
        if (strstr(also, word))
            fail_msg("%s stands in the table of settings, too", row->name);
    }
}

static void missing_files_say_what_to_do(void **state)
{
    (void)state;
    tr_settings *s = fresh();
    tr_error err = {0};
    assert_int_equal(tr_settings_load(s, NULL, &err), TR_ERROR_INPUT);
    assert_says(err.message, "recipes/tiny.yaml");
    assert_int_equal(tr_settings_load(s, "no-such-file.yaml", &err), TR_ERROR_INPUT);
    assert_says(err.message, "settings file: no-such-file.yaml");
    assert_says(err.message, "there is no no-such-file.yaml in");
    assert_int_equal(tr_settings_load(s, "/", &err), TR_ERROR_INPUT);
    assert_says(err.message, "directory");
    assert_int_equal(tr_settings_load(s, "/dev/zero", &err), TR_ERROR_INPUT);
    assert_says(err.message, "larger than 1 MiB");
    tr_settings_destroy(s);
}

static void files_are_read(void **state)
{
    (void)state;
    tr_settings *s = fresh();
    tr_error err = {0};
    static const char *const empty[] = {"", "# only words\n", "---\n", "model:\n", "version: 1\n"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        assert_int_equal(load(s, empty[i], &err), TR_OK);
    assert_int_equal(load(s,
                          "model: {kind: mlp, dim: 1_0, preset: ~}\n"
                          "optim:\n  groups:\n    - wte.* lr_scale=0.5\n    - 'h.* optim=muon'\n"
                          "run: {device: null, trace: ON}\n",
                          &err),
                     TR_OK);
    assert_string_equal(tr_settings_string(s, "model.kind"), "mlp");
    assert_int_equal(tr_settings_int(s, "model.dim"), 10);
    assert_string_equal(tr_settings_string(s, "model.preset"), "");
    assert_string_equal(tr_settings_string(s, "optim.groups"), "wte.* lr_scale=0.5;h.* optim=muon");
    assert_string_equal(tr_settings_string(s, "run.device"), "null");
    assert_true(tr_settings_bool(s, "run.trace"));
    tr_settings_destroy(s);
}

static void given_tells_presets_what_to_leave(void **state)
{
    (void)state;
    tr_settings *s = fresh();
    tr_error err = {0};
    assert_int_equal(load(s, "model:\n  dim: 64\n", &err), TR_OK);
    assert_int_equal(tr_settings_set(s, "model.num_heads=4", &err), TR_OK);
    /* Given, though equal to the default. */
    assert_true(tr_settings_given(s, "model.dim"));
    assert_true(tr_settings_given(s, "model.num_heads"));
    assert_false(tr_settings_given(s, "model.num_layers"));
    assert_int_equal(tr_settings_fill(s, "model.dim=768", &err), TR_OK);
    assert_int_equal(tr_settings_fill(s, "model.num_heads=12", &err), TR_OK);
    assert_int_equal(tr_settings_fill(s, "model.num_layers=12", &err), TR_OK);
    assert_int_equal(tr_settings_int(s, "model.dim"), 64);
    assert_int_equal(tr_settings_int(s, "model.num_heads"), 4);
    assert_int_equal(tr_settings_int(s, "model.num_layers"), 12);
    assert_false(tr_settings_given(s, "model.num_layers"));
    /* The later of file and assignment wins, in either order. */
    assert_int_equal(tr_settings_set(s, "model.dim=32", &err), TR_OK);
    assert_int_equal(tr_settings_int(s, "model.dim"), 32);
    assert_int_equal(load(s, "model: {dim: 16}", &err), TR_OK);
    assert_int_equal(tr_settings_int(s, "model.dim"), 16);
    tr_settings_destroy(s);
}

static void assert_same(const tr_settings *a, const tr_settings *b)
{
    for (int i = 0; i < table.num; i++) {
        const char *name = table.row[i]->name;
        switch (table.row[i]->type) {
        case TRI_SETTING_BOOL:
            assert_int_equal(tr_settings_bool(a, name), tr_settings_bool(b, name));
            break;
        case TRI_SETTING_INT:
            assert_true(tr_settings_int(a, name) == tr_settings_int(b, name));
            break;
        case TRI_SETTING_FLOAT:
            assert_true(tr_settings_float(a, name) == tr_settings_float(b, name));
            break;
        case TRI_SETTING_STRING:
        case TRI_SETTING_CHOICE:
            assert_string_equal(tr_settings_string(a, name), tr_settings_string(b, name));
            break;
        }
    }
}

/* Texts, numbers and truths as JSON has them, by their full names. */
static void as_json(const tr_settings *s)
{
    tr_error err = {0};
    char *text = NULL;
    size_t num_bytes = 0;
    FILE *memory = open_memstream(&text, &num_bytes);
    assert_int_equal(tr_settings_write_json(s, memory, &err), TR_OK);
    fclose(memory);
    json_t *object = json_loadb(text, num_bytes, JSON_REJECT_DUPLICATES, NULL), *value;
    if (!object)
        fail_msg("no JSON: %s", text);
    const char *name;
    json_object_foreach(object, name, value)
    {
        if (json_is_string(value))
            assert_string_equal(json_string_value(value), tr_settings_string(s, name));
        else if (json_is_boolean(value))
            assert_int_equal(json_is_true(value), tr_settings_bool(s, name));
        else /* what is a whole number may be the value of either type */
            assert_true(json_number_value(value) ==
                        tr_settings_float(s, name) + (double)tr_settings_int(s, name));
    }
    assert_int_equal(json_object_size(object) + 1, table.num); /* but run.nccl_library */
    json_decref(object);
    free(text);
}

/* Writes s and loads the text into fresh settings, which must be the same. */
static void round_trip(const tr_settings *s)
{
    tr_error err = {0};
    char *text = NULL;
    size_t num_bytes = 0;
    FILE *memory = open_memstream(&text, &num_bytes);
    assert_int_equal(tr_settings_write_yaml(s, memory, &err), TR_OK);
    fclose(memory);
    tr_settings *again = fresh();
    if (tr_settings_load_text(again, "written", text, num_bytes, &err) != TR_OK)
        fail_msg("%s in\n%s", err.message, text);
    assert_same(s, again);
    tr_settings_destroy(again);
    free(text);
    as_json(s);
}

static void what_is_written_loads_back(void **state)
{
    (void)state;
    static const char *const texts[] = {"plain",
                                        "",
                                        "null",
                                        "~",
                                        "yes",
                                        "1e3",
                                        " blanks ",
                                        "a: b # c",
                                        "- x",
                                        "\"quoted\"",
                                        "it's",
                                        "back\\slash",
                                        "two\nlines\n",
                                        "tab\there\r",
                                        "\x01\x1b\x7f",
                                        "caf\xc3\xa9",
                                        "\xe6\x97\xa5\xe6\x9c\xac",
                                        "\xf0\x9f\x9b\xb6",
                                        "\xe2\x80\xa8\xef\xbb\xbf\xc2\x85",
                                        "\xef\xbf\xbe\xef\xbf\xbf",
                                        "[a, b]",
                                        "{a: b}",
                                        "%d %s",
                                        "a;b;c"};
    static const char *const floats[] = {"0.1",
                                         "3e-4",
                                         "0.30000000000000004",
                                         "1e-300",
                                         "4.9406564584124654e-324",
                                         "999.99999999999989"};
    tr_settings *s = fresh();
    tr_error err = {0};
    round_trip(s);
    char line[200];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(line, sizeof line, "generate.prompt=%s", texts[i]);
        assert_int_equal(tr_settings_set(s, line, &err), TR_OK);
        round_trip(s);
    }
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        snprintf(line, sizeof line, "optim.lr=%s", floats[i]);
        assert_int_equal(tr_settings_set(s, line, &err), TR_OK);
        round_trip(s);
    }
    assert_int_equal(tr_settings_set(s, "run.device=null", &err), TR_OK);
    assert_int_equal(tr_settings_set(s, "run.seed=9007199254740992", &err), TR_OK);
    round_trip(s);
    tr_settings_destroy(s);
}

static void floats_are_written_short(void **state)
{
    (void)state;
    tr_settings *s = fresh();
    tr_error err = {0};
    assert_int_equal(tr_settings_set(s, "optim.lr=0.00030", &err), TR_OK);
    char *text = NULL;
    size_t num_bytes = 0;
    FILE *memory = open_memstream(&text, &num_bytes);
    assert_int_equal(tr_settings_write_yaml(s, memory, &err), TR_OK);
    fclose(memory);
    assert_says(text, "  lr: 0.0003\n");
    assert_says(text, "  eps: 1e-08\n");
    assert_says(text, "  beta2: 0.95\n");
    free(text);
    tr_settings_destroy(s);
}

static void files_are_saved_whole(void **state)
{
    (void)state;
    char dir[] = "/tmp/trireme-settings-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    tr_settings *s = fresh(), *again = fresh();
    tr_error err = {0};
    assert_int_equal(tr_settings_set(s, "model.dim=96", &err), TR_OK);
    assert_int_equal(tr_settings_save(s, path, &err), TR_OK);
    assert_int_equal(tr_settings_save(s, path, &err), TR_OK);
    assert_int_equal(tr_settings_load(again, path, &err), TR_OK);
    assert_same(s, again);
    unlink(path);
    assert_int_equal(rmdir(dir), 0); /* nothing else was left behind */
    assert_int_equal(tr_settings_save(s, path, &err), TR_ERROR_RUNTIME);
    assert_says(err.message, path);
    tr_settings_destroy(s);
    tr_settings_destroy(again);
}

static void help_names_every_setting(void **state)
{
    (void)state;
    char *help = NULL, *page = NULL, *some = NULL;
    size_t num_bytes;
    tr_error err = {0};
    FILE *file = open_memstream(&help, &num_bytes);
    assert_int_equal(tr_settings_help(file, NULL, 80, &err), TR_OK);
    fclose(file);
    file = open_memstream(&page, &num_bytes);
    tr_settings_markdown(file);
    fclose(file);
    file = open_memstream(&some, &num_bytes);
    assert_int_equal(tr_settings_help(file, "optim run.dir", 80, &err), TR_OK);
    assert_int_equal(tr_settings_help(file, "optmi", 80, &err), TR_ERROR_INPUT);
    assert_says(err.message, "did you mean optim?");
    fclose(file);
    for (int i = 0; i < table.num; i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "| `%s` |", table.row[i]->name);
        assert_says(help, table.row[i]->name);
        assert_says(page, quoted);
    }
    for (const char *line = help; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 80);
    assert_says(some, "optim.lr");
    assert_says(some, "run.dir");
    assert_null(strstr(some, "run.seed"));
    free(help);
    free(page);
    free(some);
}

static void edit_distance_counts_edits(void **state)
{
    (void)state;
    assert_int_equal(tri_edit_distance("train", "train"), 0);
    assert_true(tri_is_slip("trian", "train"));
    assert_true(tri_is_slip("h1000", "h100"));
    assert_false(tri_is_slip("list", "cost"));
    assert_false(tri_is_slip("zzz", "v5p"));
    assert_int_equal(tri_edit_distance("train", "Train"), 0);
    assert_int_equal(tri_edit_distance("batch-size", "batch_size"), 0);
    assert_int_equal(tri_edit_distance("tarin", "train"), 1);
    assert_int_equal(tri_edit_distance("tran", "train"), 1);
    assert_int_equal(tri_edit_distance("", "abc"), 3);
    assert_int_equal(tri_edit_distance("kitten", "sitting"), 3);
}

/* xorshift64*: the fuzz needs the same cases on every machine, not good ones. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1Du;
}

/* Changes text[0..n) in one place and returns the new length. */
static size_t mutate(char *text, size_t n, size_t capacity, uint64_t *random)
{
    static const char *const pieces[] = {
        "\n",    "  ", "\t",       ": ",       "- ",       "[",     "]",    "{",    "}",
        "\"",    "'",  "&a ",      "*a",       "#",        "---\n", "|",    ">\n",  "\\",
        "\\x00", "~",  "!!str ",   "%",        "?",        "1e999", "\xff", "\xc3", "\xef\xbb\xbf",
        "-1",    "_",  "model:\n", "dim: 3\n", "<<: *a\n", ",",     "\0"};
    size_t at = n ? next_random(random) % n : 0;
    switch (next_random(random) % 5) {
    case 0: /* flip a byte */
        if (n)
            text[at] = (char)next_random(random);
        return n;
    case 1: { /* cut a piece out */
        size_t length = n ? next_random(random) % (n - at) % 12 : 0;
        memmove(text + at, text + at + length, n - at - length);
        return n - length;
    }
    case 2: /* cut the end off */
        return next_random(random) % 8 ? n : at;
    case 3: { /* repeat a piece */
        size_t length = n ? next_random(random) % (n - at) % 40 : 0;
        if (n + length > capacity)
            return n;
        memmove(text + at + length, text + at, n - at);
        return n + length;
    }
    default: { /* put in something that means something */
        const char *piece = pieces[next_random(random) % (sizeof pieces / sizeof *pieces)];
        size_t length = *piece ? strlen(piece) : 1;
        if (n + length > capacity)
            return n;
        memmove(text + at + length, text + at, n - at);
        memcpy(text + at, piece, length);
        return n + length;
    }
    }
}

static void mutated_files_do_no_harm(void **state)
{
    (void)state;
    enum { NUM_CASES = 2000, CAPACITY = 4096 };
    static const char start[] =
        "# a recipe\nversion: 1\nmodel:\n  kind: gpt2\n  dim: 64\n"
        "  dropout: 0.1\n  from: \"a b\"\ndata: {source: 'x', seq_len: 64}\n"
        "optim:\n  lr: 3e-4\n  groups:\n    - wte.* lr=1\n    - \"h.*\"\n"
        "run:\n  trace: yes\n  dir: |\n    runs/x\n";
    uint64_t random = 20240607;
    int num_good = 0;
    for (int i = 0; i < NUM_CASES; i++) {
        /* From the heap and of the exact size, so that a sanitizer sees a read past the end. */
        char buffer[CAPACITY];
        size_t n = sizeof start - 1;
        memcpy(buffer, start, n);
        for (int k = (int)(next_random(&random) % 6); k >= 0; k--)
            n = mutate(buffer, n, CAPACITY, &random);
        char *text = malloc(n ? n : 1);
        assert_non_null(text);
        memcpy(text, buffer, n);
        tr_settings *s = fresh();
        tr_error err = {0};
        tr_status status = tr_settings_load_text(s, "fuzz.yaml", text, n, &err);
        if (status == TR_OK) {
            round_trip(s);
            num_good++;
        } else {
            assert_int_equal(status, TR_ERROR_INPUT);
            assert_int_equal(err.status, TR_ERROR_INPUT);
            assert_says(err.message, "fuzz.yaml:");
        }
        tr_settings_destroy(s);
        free(text);
    }
    /* Both ways through are taken often, or the mutations are too strong or too weak. */
    assert_in_range(num_good, NUM_CASES / 20, NUM_CASES / 2);
}

/* The lists of names beside the tables of models, update rules and schedules; what these read of
 * each other's settings, and their defaults. */
static void kinds_and_their_settings(void **state)
{
    (void)state;
    for (int k = 0; k < tri_num_selectors; k++) {
        const tri_selector *of = &tri_selectors[k];
        char kinds[200] = "";
        tri_owner owner;
        for (size_t i = 0; of->at(NULL, i, &owner); i++) {
            char names[200] = "", *rest = names, *name, assignment[64];
            snprintf(kinds + strlen(kinds), sizeof kinds - strlen(kinds), "%s%s", i ? ", " : "",
                     owner.kind);
            snprintf(names, sizeof names, "%s", owner.own->reads ? owner.own->reads : "");
            while (*names && (name = strsep(&rest, " "))) {
                assert_ptr_equal(tri_selector_of(NULL, name), of); /* somebody brings it */
                assert_true(tri_owner_reads(&owner, name));
            }
            tr_settings *s = fresh();
            snprintf(assignment, sizeof assignment, "%s=%s", of->row->name, owner.kind);
            assert_int_equal(tr_settings_set(s, assignment, NULL), TR_OK);
            assert_int_equal(tri_settings_fill_owned(s, of->row->name, NULL), TR_OK);
            tr_settings_destroy(s);
        }
        assert_string_equal(of->row->choices, kinds);
    }
    assert_null(tri_selector_of(NULL, "model.dim"));
}

static int make_table(void **state)
{
    (void)state;
    tri_table_init(&table, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds_and_their_settings),
                                       cmocka_unit_test(defaults_are_valid),
                                       cmocka_unit_test(sections_hold_their_rows_together),
                                       cmocka_unit_test(values_are_read),
                                       cmocka_unit_test(wrong_assignments_say_why),
                                       cmocka_unit_test(wrong_files_say_where),
                                       cmocka_unit_test(aliases_lead_to_settings),
                                       cmocka_unit_test(missing_files_say_what_to_do),
                                       cmocka_unit_test(files_are_read),
                                       cmocka_unit_test(given_tells_presets_what_to_leave),
                                       cmocka_unit_test(what_is_written_loads_back),
                                       cmocka_unit_test(floats_are_written_short),
                                       cmocka_unit_test(files_are_saved_whole),
                                       cmocka_unit_test(help_names_every_setting),
                                       cmocka_unit_test(edit_distance_counts_edits),
                                       cmocka_unit_test(mutated_files_do_no_harm)};
    return cmocka_run_group_tests(tests, make_table, NULL);
}
