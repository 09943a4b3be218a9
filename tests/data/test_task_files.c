/* Files of labelled data: labels, templates, and what is said of a file that is wrong. The message
 * names the file and the line, and what to do. */
#include "task_support.h"

#include "data/source/labels.h"
#include "data/source/template.h"

#define GOOD "{\"text\": \"a b\", \"label\": \"x\"}\n"

/* ---- labels ---- */

static void labels_are_sorted_names_or_numbers(void **state)
{
    static const struct {
        const char *lines, *labels;
    } cases[] = {
        {"{\"label\": \"pos\"}\n{\"label\": \"neg\"}\n\n{\"label\": \"pos\"}\n", "neg;pos"},
        {"{\"label\": 3}\n{\"label\": 0}\n", "0;1;2;3"},
        {"{\"label\": \"10\"}\n{\"label\": \"9\"}", "10;9"},
        {"[{\"label\": \"b\"}, {\"label\": \"a\"}]", "a;b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text;
        tr_error err = {0};
        const char *path = put_lines(*state, "labels.jsonl", cases[i].lines);
        if (tri_labels_scan(path, "label", &text, &err) != TR_OK)
            fail_msg("%s", err.message);
        assert_string_equal(text, cases[i].labels);
        free(text);
    }
}

static void given_labels_decide_the_numbers(void **state)
{
    const char *path = put_lines(*state, "given.jsonl",
                                 "{\"text\": \"a\", \"label\": \"no\"}\n"
                                 "{\"text\": \"b\", \"label\": \"yes\"}\n");
    tri_data_config config = task_config(TRI_DATA_CLASSIFY, path, 8);
    config.labels = "yes;maybe;no";
    tri_data *data = open_task(&config);
    assert_int_equal(tri_data_num_labels(data), 3);
    for (uint64_t i = 0; i < 2; i++) {
        full_row row = get_full_row(data, TRI_SPLIT_TRAIN, i, 1);
        assert_int_equal(row.targets[0], row.tokens[0] == 'a' ? 2 : 0);
    }
    char text[300];
    assert_string_equal(tri_data_describe(data, text, sizeof text),
                        "2 labelled texts, 3 labels: yes 50%, maybe 0%, no 50%, 2 rows of 8");
    tri_data_close(data);
    config.labels = "yes;maybe";
    assert_task_fails(&config, WORDS("given.jsonl, line 1: ", "\"no\"", "data.labels"));
    config.labels = "yes;no;yes";
    assert_task_fails(&config, WORDS("data.labels", "\"yes\" is there twice"));
    config.labels = "yes;;no";
    assert_task_fails(&config, WORDS("data.labels is \"yes;;no\""));
}

/* ---- what is wrong ---- */

typedef struct wrong {
    tri_data_task task;
    const char *text;
    const char *words[4];
} wrong;

static const wrong wrongs[] = {
    {TRI_DATA_CLASSIFY, GOOD "{\"text\": \"a b\", \"lab", {"line 2: not valid JSON"}},
    {TRI_DATA_CLASSIFY, GOOD "[1, 2]\n", {"line 2: not a JSON object"}},
    {TRI_DATA_CLASSIFY,
     GOOD GOOD "{\"label\": \"x\", \"body\": \"y\"}\n",
     {"line 3: has no \"text\"", "\"label\", \"body\"", "data.field"}},
    {TRI_DATA_CLASSIFY,
     GOOD "{\"text\": \"x\"}\n",
     {"line 2: has no \"label\"", "data.label_field"}},
    {TRI_DATA_CLASSIFY,
     GOOD "{\"text\": \"x\", \"label\": 1.5}\n",
     {"line 2: \"label\" must be a text or a whole number"}},
    {TRI_DATA_CLASSIFY, GOOD "{\"text\": \"x\", \"label\": null}\n", {"line 2: \"label\" must be"}},
    {TRI_DATA_CLASSIFY, GOOD "{\"text\": \"x\", \"label\": true}\n", {"line 2: \"label\" must be"}},
    {TRI_DATA_CLASSIFY,
     GOOD "{\"text\": \"x\", \"label\": 1}\n",
     {"line 2: \"label\" is a number, but those before are texts"}},
    {TRI_DATA_CLASSIFY, "{\"text\": \"x\", \"label\": -1}\n", {"line 1: \"label\" is -1"}},
    {TRI_DATA_CLASSIFY, "{\"text\": \"x\", \"label\": 5000000}\n", {"line 1", "data.label_field"}},
    {TRI_DATA_CLASSIFY, GOOD "{\"text\": \"x\", \"label\": \"a;b\"}\n", {"line 2", "';'"}},
    {TRI_DATA_CLASSIFY, GOOD "{\"text\": \"x\", \"label\": \"\"}\n", {"line 2", "is empty"}},
    {TRI_DATA_CLASSIFY,
     GOOD "{\"text\": 3, \"label\": \"x\"}\n",
     {"line 2: \"text\" must be a text in quotes"}},
    {TRI_DATA_CLASSIFY, "{\"text\": \"\", \"label\": \"x\"}\n", {"line 1: \"text\" is empty"}},
    {TRI_DATA_CLASSIFY, "", {"is empty"}},
    {TRI_DATA_CLASSIFY, "\n \n", {"is empty"}},
    {TRI_DATA_CLASSIFY, "[]", {"is empty"}},
    {TRI_DATA_CLASSIFY, "[{\"text\": \"a\"}, 3]", {"item 1: has no \"label\""}},
    {TRI_DATA_CLASSIFY, "[{\"text\": \"a\", \"label\": 1}, 3]", {"item 2: not a JSON object"}},
    {TRI_DATA_CLASSIFY, "[{\"text\": \"a\", \"label\": 1},\n {\"te", {"line 2: not valid JSON"}},
    {TRI_DATA_INSTRUCT,
     "{\"instruction\": \"a\"}\n",
     {"line 1: has no \"output\"", "data.answer_field"}},
    {TRI_DATA_INSTRUCT,
     "{\"output\": \"a\", \"prompt\": \"b\"}\n",
     {"line 1: has no \"instruction\"", "data.template"}},
    {TRI_DATA_INSTRUCT,
     "{\"output\": \"a\", \"instruction\": \"b\\u0000\"}\n",
     {"line 1: holds a byte of 0"}},
    {TRI_DATA_INSTRUCT, "", {"is empty"}},
};

static void wrong_files_are_named(void **state)
{
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        const wrong *w = &wrongs[i];
        tri_data_config config =
            task_config(w->task, put_lines(*state, "wrong.jsonl", w->text), 400);
        const char *words[6] = {"wrong.jsonl"};
        for (int k = 0; k < 4 && w->words[k]; k++)
            words[k + 1] = w->words[k];
        assert_task_fails(&config, words);
    }
    tri_data_config config =
        task_config(TRI_DATA_INSTRUCT,
                    put_lines(*state, "input.jsonl", "{\"output\": \"a\", \"input\": 7}\n"), 400);
    config.template = "{input}{output}";
    assert_task_fails(&config, WORDS("input.jsonl, line 1: \"input\" must be a text"));
}

static void wrong_sources_and_sizes(void **state)
{
    temp_dir *dir = *state;
    tri_data_config config = task_config(TRI_DATA_CLASSIFY, "/nowhere/x.jsonl", 8);
    assert_task_fails(&config, WORDS("/nowhere/x.jsonl: cannot be found"));
    char sub[256];
    strcpy(sub, temp_file(dir, "sub"));
    assert_int_equal(mkdir(sub, 0700), 0);
    put_lines(dir, "sub/readme.txt", "not this one");
    config.source = sub;
    assert_task_fails(&config, WORDS("the directory holds no JSONL"));
    put_lines(dir, "sub/b.jsonl", GOOD "{\"text\": \"q\", \"label\": 2}\n");
    put_lines(dir, "sub/a.jsonl", "{\"text\": \"p\", \"label\": \"y\"}\n");
    assert_task_fails(&config, WORDS("sub/b.jsonl, line 2: "));
    put_lines(dir, "sub/b.jsonl", GOOD);
    tri_data *data = open_task(&config);
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_TRAIN), 2);
    tri_data_close(data);

    config.source = put_lines(dir, "one.jsonl", GOOD);
    config.eval_fraction = 0.05;
    assert_task_fails(&config, WORDS("one.jsonl", "of its 1 example", "data.eval_fraction"));
    config.eval_fraction = 0;
    config.pack = true;
    assert_task_fails(&config, WORDS("data.pack", "data.task=classify"));
    config.pack = false;
    config.tokenizer = WORDPIECE;
    config.seq_len = 2;
    assert_task_fails(&config, WORDS("data.seq_len is 2", "2 special tokens"));
    config.tokenizer = "/no/tokenizer.json";
    assert_task_fails(&config, WORDS("data.tokenizer: /no/tokenizer.json"));
    config = task_config(TRI_DATA_INSTRUCT, put_lines(dir, "i.jsonl", "{\"output\": \"a\"}\n"), 8);
    config.template = "{output}";
    assert_task_fails(&config, WORDS("i.jsonl, line 1: the prompt before the answer is empty"));
    config.tokenizer = FIXTURES "tokenizer_wordpiece.json"; /* [SEP] ends no text */
    assert_task_fails(&config, WORDS("tokenizer_wordpiece.json: has no token that ends a text"));
}

/* ---- templates ---- */

static void templates_render(void **state)
{
    (void)state;
    static const struct {
        const char *text, *prompt, *answer;
    } cases[] = {
        {"Q: {q}\\nA: {output}", "Q: why\nA: ", "so"},
        {"{output}", "", "so"},
        {"{q}{{{input}}}\\t\\\\{output}!{q}", "why{}\t\\", "so!why"},
        {"\\d{output}\\", "\\d", "so\\"},
        {"line\n{output}", "line\n", "so"},
    };
    json_t *object = json_pack("{s:s,s:s}", "q", "why", "output", "so");
    tri_entry entry = {.path = "here", .number = 1, .object = object};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_template *t;
        tr_error err = {0};
        tri_bytes prompt = {0}, answer = {0};
        if (tri_template_parse("data.template", cases[i].text, "output", &t, &err) != TR_OK ||
            tri_template_render(t, &entry, &prompt, &answer, &err) != TR_OK)
            fail_msg("%s", err.message);
        tri_bytes_add(&prompt, "", 1);
        tri_bytes_add(&answer, "", 1);
        assert_string_equal(prompt.data, cases[i].prompt);
        assert_string_equal(answer.data, cases[i].answer);
        tri_bytes_fini(&prompt);
        tri_bytes_fini(&answer);
        tri_template_destroy(t);
    }
    json_decref(object);
}

static void wrong_templates_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{instruction}", "nowhere"},       {"", "nowhere"},
        {"{output} {output}", "more than"}, {"{output} {x", "character 10"},
        {"}{output}", "character 1"},       {"{output}{}", "character 9"},
        {"{a\nb}{output}", "character 1"},  {"{{output}}", "nowhere"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_template *t;
        tr_error err = {0};
        assert_int_equal(tri_template_parse("data.template", cases[i][0], "output", &t, &err),
                         TR_ERROR_INPUT);
        assert_null(t);
        if (!strstr(err.message, cases[i][1]) || !strstr(err.message, "data.template"))
            fail_msg("expected \"%s\" in: %s", cases[i][1], err.message);
    }
}

/* ---- fuzzing ---- */

static uint32_t draw(uint64_t *at, uint32_t below)
{
    return tri_random_word(99, (*at)++, 0, 5) % below;
}

/* Cuts, doubles, changes and inserts bytes. */
static size_t damage(char *text, size_t num, size_t room, uint32_t most, uint64_t *at)
{
    static const char likely[] = "abcdefghxy{}[]\":,\\\n\r\t 0123456789eE+-.truefalsn\xff\xc3\xe2;";
    for (uint32_t k = 1 + draw(at, most); k > 0 && num > 0; k--) {
        size_t i = draw(at, (uint32_t)num);
        switch (draw(at, 4)) {
        case 0:
            num = i;
            break;
        case 1:
            text[i] = likely[draw(at, sizeof likely)];
            break;
        case 2:
            memmove(text + i, text + i + 1, num - i - 1);
            num--;
            break;
        default:
            if (num < room) {
                memmove(text + i + 1, text + i, num - i);
                text[i] = likely[draw(at, sizeof likely)];
                num++;
            }
        }
    }
    return num;
}

/* Whatever a file holds, opening gives rows that are in order, or an error that names the file. */
static void damaged_files_do_no_harm(void **state)
{
    static const char *const seeds[] = {
        GOOD "{\"text\": \"c\", \"label\": \"y\"}\n" GOOD,
        "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": 2}\n",
        "[{\"text\": \"a\", \"label\": 0}, {\"text\": \"b\", \"label\": 2}]",
        "{\"instruction\": \"i\", \"input\": \"n\", \"output\": \"o\"}\n"
        "{\"instruction\": \"i\", \"output\": \"o\"}\n",
    };
    uint64_t at = 0;
    int num_open = 0, num_refused = 0;
    for (int round = 0; round < 1500; round++) {
        char text[400];
        int which = (int)draw(&at, 4);
        size_t num = strlen(seeds[which]);
        memcpy(text, seeds[which], num);
        num = damage(text, num, sizeof text, 1 + draw(&at, 3), &at);
        const char *path = temp_file(*state, "fuzz.jsonl");
        assert_int_equal(put_file(path, text, num), 0);
        tri_data_config config =
            task_config(which == 3 ? TRI_DATA_INSTRUCT : TRI_DATA_CLASSIFY, path, 16);
        config.template = "{instruction}>{output}";
        config.pack = which == 3 && draw(&at, 2);
        tri_data *data;
        tr_error err = {0};
        if (tri_data_open(&config, &data, &err) != TR_OK) {
            if (!strstr(err.message, "fuzz.jsonl"))
                fail_msg("no file in: %s", err.message);
            num_refused++;
            continue;
        }
        num_open++;
        for (uint64_t i = 0; i < 6; i++) {
            full_row row = get_full_row(data, TRI_SPLIT_TRAIN, i, which == 3 ? 16 : 1);
            for (int t = 0; t < ROW_LEN; t++) {
                assert_in_range(row.tokens[t], 0, 255);
                assert_true(row.targets[t] >= -1 && row.targets[t] < 100000);
            }
        }
        tri_data_close(data);
    }
    if (num_open < 100 || num_refused < 300)
        fail_msg("%d opened, %d refused", num_open, num_refused);
}

static void damaged_templates_do_no_harm(void **state)
{
    (void)state;
    json_t *object = json_pack("{s:s,s:s}", "q", "why", "output", "so");
    tri_entry entry = {.path = "here", .number = 1, .object = object};
    uint64_t at = 1u << 20;
    int num_good = 0;
    for (int round = 0; round < 5000; round++) {
        char text[120] = "Q: {q}\\nA: {{ }} {output} and {input}";
        size_t num = damage(text, strlen(text), sizeof text - 1, 4, &at);
        text[num] = 0;
        tri_template *t;
        tr_error err = {0};
        tri_bytes prompt = {0}, answer = {0};
        if (tri_template_parse("data.template", text, "output", &t, &err) != TR_OK)
            continue;
        if (tri_template_render(t, &entry, &prompt, &answer, &err) == TR_OK)
            num_good++;
        else
            assert_non_null(strstr(err.message, "here, line 1"));
        tri_bytes_fini(&prompt);
        tri_bytes_fini(&answer);
        tri_template_destroy(t);
    }
    assert_true(num_good > 500);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_sorted_names_or_numbers),
        cmocka_unit_test(given_labels_decide_the_numbers),
        cmocka_unit_test(wrong_files_are_named),
        cmocka_unit_test(wrong_sources_and_sizes),
        cmocka_unit_test(templates_render),
        cmocka_unit_test(wrong_templates_are_refused),
        cmocka_unit_test(damaged_files_do_no_harm),
        cmocka_unit_test(damaged_templates_do_no_harm),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
