/* Rows of labelled texts, masked tokens and instructions: what stands in them, that every example
 * comes once in each epoch, and that nothing depends on anything but (seed, sample). */
#include "task_support.h"

#include <math.h>

/* ---- classify ---- */

/* num entries; text i is "word word ... <i>", so that a row tells which one it is. */
static const char *put_labelled(temp_dir *dir, const char *name, int num)
{
    static const char *const label[] = {"red", "blue", "green"};
    const char *path = temp_file(dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < num; i++) /* sorted by label, as files often are */
        fprintf(file, "{\"text\": \"%03d%.*s\", \"label\": \"%s\"}\n", i, i % 5, "xxxxx",
                label[3 * i / num]);
    fclose(file);
    return path;
}

static int number_in(const full_row *row)
{
    return 100 * (row->tokens[0] - '0') + 10 * (row->tokens[1] - '0') + row->tokens[2] - '0';
}

static void every_example_comes_once_in_each_epoch(void **state)
{
    enum { NUM = 101 };
    tri_data_config config =
        task_config(TRI_DATA_CLASSIFY, put_labelled(*state, "once.jsonl", NUM), 16);
    config.eval_fraction = 0.1;
    tri_data *data = open_task(&config);
    int64_t num[2] = {tri_data_num_windows(data, TRI_SPLIT_TRAIN),
                      tri_data_num_windows(data, TRI_SPLIT_EVAL)};
    assert_int_equal(num[0], 91);
    assert_int_equal(num[1], 10);
    assert_int_equal(tri_data_num_labels(data), 3);
    int first_epoch[NUM], moved = 0, eval_labels[3] = {0};
    for (int epoch = 0; epoch < 4; epoch++) {
        int times[NUM] = {0};
        for (int split = 0; split < 2; split++)
            for (int64_t i = 0; i < num[split]; i++) {
                uint64_t sample = (uint64_t)(epoch * num[split] + i);
                full_row row = get_full_row(data, (tri_split)split, sample, 1);
                int n = number_in(&row), length = 3 + n % 5;
                times[n]++;
                /* blue, green, red */
                assert_int_equal(row.targets[0], 3 * n / NUM == 0 ? 2 : 3 * n / NUM - 1);
                for (int t = 0; t < 16; t++) {
                    assert_int_equal(row.docs[t], t < length ? 0 : -1);
                    assert_int_equal(row.positions[t], t < length ? t : 0);
                    assert_int_equal(row.types[t], 0);
                    if (t >= length)
                        assert_int_equal(row.tokens[t], 0);
                }
                if (split == TRI_SPLIT_EVAL && epoch == 0)
                    eval_labels[row.targets[0]]++;
                if (split == TRI_SPLIT_EVAL || epoch == 0)
                    continue;
                moved += n != first_epoch[i];
            }
        for (int n = 0; n < NUM; n++)
            assert_int_equal(times[n], 1);
        for (int64_t i = 0; epoch == 0 && i < num[0]; i++) {
            full_row row = get_full_row(data, TRI_SPLIT_TRAIN, (uint64_t)i, 1);
            first_epoch[i] = number_in(&row);
        }
    }
    assert_true(moved > 3 * 80); /* another order in each */
    for (int l = 0; l < 3; l++)  /* what is held out comes from all over a sorted file */
        assert_true(eval_labels[l] > 0 && eval_labels[l] < 8);
    tri_data_close(data);
}

/* The split is the same for every seed; the order is not. */
static void seeds_change_the_order_only(void **state)
{
    tri_data_config config =
        task_config(TRI_DATA_CLASSIFY, put_labelled(*state, "seeds.jsonl", 60), 16);
    config.eval_fraction = 0.2;
    tri_data *a = open_task(&config), *same = open_task(&config);
    config.seed = 8;
    tri_data *b = open_task(&config);
    int differ = 0;
    for (uint64_t i = 0; i < 48; i++) {
        full_row ra = get_full_row(a, TRI_SPLIT_TRAIN, i, 1),
                 rs = get_full_row(same, TRI_SPLIT_TRAIN, i, 1),
                 rb = get_full_row(b, TRI_SPLIT_TRAIN, i, 1);
        assert_memory_equal(&ra, &rs, sizeof ra);
        differ += memcmp(&ra, &rb, sizeof ra) != 0;
        ra = get_full_row(a, TRI_SPLIT_EVAL, i, 1);
        rb = get_full_row(b, TRI_SPLIT_EVAL, i, 1);
        assert_memory_equal(&ra, &rb, sizeof ra);
    }
    assert_true(differ > 40);
    tri_data_close(a);
    tri_data_close(same);
    tri_data_close(b);
}

static void bert_frames_texts_and_pairs(void **state)
{
    const char *path = put_lines(*state, "pair.jsonl",
                                 "{\"text\": \"the cat\", \"second\": \"and the dog\", "
                                 "\"label\": 1}\n");
    tri_tokenizer *tokenizer = open_tokenizer(WORDPIECE);
    tri_ids a = encode_with(tokenizer, NULL, "the cat", 7, 0);
    tri_ids b = encode_with(tokenizer, NULL, "and the dog", 11, 0);
    int32_t cls = tri_tokenizer_special(tokenizer, TRI_SPECIAL_CLS),
            sep = tri_tokenizer_special(tokenizer, TRI_SPECIAL_SEP);
    assert_true(cls >= 0 && sep >= 0 && a.num > 2 && b.num > 3);
    for (int pair = 0; pair < 2; pair++) {
        tri_data_config config = task_config(TRI_DATA_CLASSIFY, path, 64);
        config.tokenizer = WORDPIECE;
        config.pair_field = pair ? "second" : "";
        tri_data *data = open_task(&config);
        assert_int_equal(tri_data_num_labels(data), 2); /* numbers: 0 and 1 */
        full_row row = get_full_row(data, TRI_SPLIT_TRAIN, 0, 1);
        size_t at = 0;
        assert_int_equal(row.targets[0], 1);
        assert_int_equal(row.tokens[at++], cls);
        assert_memory_equal(row.tokens + at, a.id, a.num * sizeof *a.id);
        at += a.num;
        assert_int_equal(row.tokens[at++], sep);
        size_t first = at;
        if (pair) {
            assert_memory_equal(row.tokens + at, b.id, b.num * sizeof *b.id);
            at += b.num;
            assert_int_equal(row.tokens[at++], sep);
        }
        for (size_t t = 0; t < 64; t++) {
            assert_int_equal(row.types[t], t >= first && t < at);
            assert_int_equal(row.docs[t], t < at ? 0 : -1);
        }
        tri_data_close(data);
    }
    tri_ids_fini(&a);
    tri_ids_fini(&b);
    tri_tokenizer_close(tokenizer);
}

/* RoBERTa's and Llama's ways, and none. */
static void other_forms_for_pairs(void **state)
{
    (void)state;
    tri_post_item items[TRI_MAX_POST_ITEMS];
    tri_tokenizer *llama = open_tokenizer(FIXTURES "tokenizer_llama2.json");
    assert_int_equal(tri_tokenizer_post(llama, true, items), 4); /* <s> A <s> B */
    assert_true(items[0].id == 1 && items[1].id == -1 && items[2].id == 1 && items[3].part == 1);
    assert_int_equal(tri_tokenizer_post(llama, false, items), 2);
    tri_tokenizer_close(llama);
    tri_tokenizer *bytes = open_tokenizer("bytes");
    assert_int_equal(tri_tokenizer_post(bytes, true, items), 2);
    assert_true(items[0].id == -1 && items[0].part == 0 && items[1].part == 1 && items[1].type);
    tri_tokenizer_close(bytes);
}

static void long_texts_are_cut_dropped_or_refused(void **state)
{
    const char *path = put_lines(*state, "long.jsonl",
                                 "{\"text\": \"abcdefgh\", \"b\": \"XY\", \"label\": 0}\n"
                                 "{\"text\": \"abc\", \"b\": \"STUVWXYZ\", \"label\": 0}\n"
                                 "{\"text\": \"abcdefgh\", \"b\": \"STUVWXYZ\", \"label\": 1}\n"
                                 "{\"text\": \"a\", \"b\": \"S\", \"label\": 1}\n");
    static const char *const expected[] = {"abcdeXY", "abcSTUV", "abcSTUV", "aS"};
    tri_data_config config = task_config(TRI_DATA_CLASSIFY, path, 7);
    config.pair_field = "b";
    tri_data *data = open_task(&config);
    int found[4] = {0};
    for (uint64_t i = 0; i < 4; i++) {
        full_row row = get_full_row(data, TRI_SPLIT_TRAIN, i, 1);
        char text[8] = "";
        for (int t = 0; t < 7; t++)
            text[t] = (char)row.tokens[t];
        for (int e = 0; e < 4; e++)
            found[e] += strcmp(text, expected[e]) == 0;
    }
    assert_true(found[0] == 1 && found[1] == 2 && found[3] == 1);
    char text[400];
    assert_non_null(strstr(tri_data_describe(data, text, sizeof text), "3 cut"));
    assert_non_null(strstr(text, "2 labels: 0 50%, 1 50%"));
    tri_data_close(data);

    config.too_long = TRI_TOO_LONG_DROP;
    data = open_task(&config);
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_TRAIN), 1);
    assert_non_null(strstr(tri_data_describe(data, text, sizeof text), "3 dropped"));
    tri_data_close(data);
    config.too_long = TRI_TOO_LONG_REFUSE;
    assert_task_fails(&config, WORDS("long.jsonl, line 1: ", "10 tokens", "data.seq_len = 7"));
}

/* ---- instruct ---- */

static void only_the_answer_is_learned(void **state)
{
    const char *path = put_lines(*state, "i.jsonl",
                                 "{\"instruction\": \"Say\", \"input\": \"\", "
                                 "\"output\": \"Hi!\"}\n");
    tri_data_config config = task_config(TRI_DATA_INSTRUCT, path, 32);
    config.template = "Do: {instruction}\\n> {output}.";
    tri_data *data = open_task(&config);
    full_row row = get_full_row(data, TRI_SPLIT_TRAIN, 0, 32);
    static const char text[] = "Do: Say\n> Hi!."; /* and a byte of 0 that ends it */
    for (int t = 0; t < 32; t++) {
        bool real = t < (int)sizeof text - 1;
        assert_int_equal(row.tokens[t], real ? text[t] : 0);
        assert_int_equal(row.targets[t], t >= 9 && t < 14 ? text[t + 1] : -1);
        assert_int_equal(row.docs[t], real ? 0 : -1);
    }
    assert_int_equal(row.targets[13], 0);
    tri_data_close(data);
}

static void a_tokenizer_begins_and_ends_the_text(void **state)
{
    const char *path =
        put_lines(*state, "t.jsonl", "{\"instruction\": \"the\", \"output\": \"is it\"}\n");
    tri_data_config config = task_config(TRI_DATA_INSTRUCT, path, 64);
    config.tokenizer = FIXTURES "tokenizer_llama2.json";
    config.template = "{instruction}: {output}";
    tri_data *data = open_task(&config);
    full_row row = get_full_row(data, TRI_SPLIT_TRAIN, 0, 64);
    tri_tokenizer *tokenizer = open_tokenizer(config.tokenizer);
    tri_ids prompt = encode_with(tokenizer, NULL, "the: ", 5, 0);
    tri_ids answer = encode_with(tokenizer, NULL, "is it", 5, TRI_ENCODE_CONTINUE);
    assert_int_equal(row.tokens[0], tri_tokenizer_special(tokenizer, TRI_SPECIAL_BOS));
    assert_memory_equal(row.tokens + 1, prompt.id, prompt.num * 4);
    assert_memory_equal(row.tokens + 1 + prompt.num, answer.id, answer.num * 4);
    assert_memory_equal(row.targets + prompt.num, answer.id, answer.num * 4);
    assert_int_equal(row.targets[prompt.num + answer.num],
                     tri_tokenizer_special(tokenizer, TRI_SPECIAL_EOS));
    for (size_t t = 0; t < 64; t++)
        assert_int_equal(row.targets[t] >= 0, t >= prompt.num && t <= prompt.num + answer.num);
    tri_ids_fini(&prompt);
    tri_ids_fini(&answer);
    tri_tokenizer_close(tokenizer);
    tri_data_close(data);
}

static void alpaca_has_two_forms(void **state)
{
    const char *path = put_lines(*state, "alpaca.json", /* one list, as Alpaca is published */
                                 "[\n  {\"instruction\": \"I1\", \"input\": \"\",\n"
                                 "   \"output\": \"O1\"},\n"
                                 "  {\"instruction\": \"I2\", \"input\": \"N2\", "
                                 "\"output\": \"O2\"}]\n");
    tri_data_config config = task_config(TRI_DATA_INSTRUCT, path, 400);
    tri_data *data = open_task(&config);
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_TRAIN), 2);
    int forms = 0;
    for (uint64_t i = 0; i < 2; i++) {
        int32_t tokens[400] = {0}, targets[400];
        char text[401] = "";
        for (int t = 0; t < 400; t++)
            targets[t] = -1;
        tri_data_row(data, TRI_SPLIT_TRAIN, i, &(tri_row){.tokens = tokens, .targets = targets});
        for (int t = 0; t < 400; t++)
            text[t] = (char)tokens[t];
        bool with = strstr(text, "\n\n### Input:\nN2\n\n### Response:\nO2") != NULL;
        bool without = strstr(text, "### Instruction:\nI1\n\n### Response:\nO1") != NULL;
        assert_true(with != without);
        assert_int_equal(strstr(text, "paired with an input") != NULL, with);
        forms += with ? 1 : 10;
    }
    assert_int_equal(forms, 11);
    tri_data_close(data);
}

static const char *put_instructions(temp_dir *dir, const char *name, int num)
{
    const char *path = temp_file(dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < num; i++)
        fprintf(file, "{\"instruction\": \"%03d\", \"output\": \"%.*s\"}\n", i, 1 + i * 7 % 20,
                "abcdefghijklmnopqrstuvwxyz");
    fclose(file);
    return path;
}

/* Packed rows hold every example once, side by side, each a document that begins at 0. */
static void packing_keeps_examples_apart(void **state)
{
    enum { NUM = 200, LEN = 60 };
    tri_data_config config =
        task_config(TRI_DATA_INSTRUCT, put_instructions(*state, "pack.jsonl", NUM), LEN);
    config.template = "{instruction}{output}";
    config.pack = true;
    config.eval_fraction = 0.1;
    tri_data *data = open_task(&config);
    int times[NUM] = {0};
    int64_t places = 0, rows = 0;
    for (int split = 0; split < 2; split++)
        for (int64_t i = 0; i < tri_data_num_windows(data, (tri_split)split); i++, rows++) {
            full_row row = get_full_row(data, (tri_split)split, (uint64_t)i, LEN);
            int at = 0;
            for (int doc = 0; at < LEN && row.docs[at] >= 0; doc++) {
                int n = 100 * (row.tokens[at] - '0') + 10 * (row.tokens[at + 1] - '0') +
                        row.tokens[at + 2] - '0';
                int answer = 1 + n * 7 % 20;
                times[n]++;
                for (int t = 0; t < 3 + answer; t++) {
                    assert_int_equal(row.docs[at + t], doc);
                    assert_int_equal(row.positions[at + t], t);
                    assert_int_equal(row.targets[at + t], t < 2             ? -1
                                                          : t == 2 + answer ? 0
                                                                            : 'a' + t - 2);
                }
                at += 3 + answer;
            }
            places += at;
            for (; at < LEN; at++)
                assert_true(row.docs[at] == -1 && row.targets[at] == -1);
        }
    for (int n = 0; n < NUM; n++)
        assert_int_equal(times[n], 1);
    /* Best-fit leaves little room: within a tenth of the fewest rows. */
    int64_t fewest = (places + LEN - 1) / LEN;
    if (10 * rows > 11 * fewest + 10)
        fail_msg("%lld rows, where %lld would do", (long long)rows, (long long)fewest);
    tri_data_close(data);
}

static void a_long_answer_loses_its_end(void **state)
{
    const char *path =
        put_lines(*state, "cut.jsonl", "{\"instruction\": \"12\", \"output\": \"abcdefgh\"}\n");
    tri_data_config config = task_config(TRI_DATA_INSTRUCT, path, 6);
    config.template = "{instruction}{output}";
    tri_data *data = open_task(&config);
    full_row row = get_full_row(data, TRI_SPLIT_TRAIN, 0, 6);
    for (int t = 0; t < 6; t++) {
        assert_int_equal(row.tokens[t], "12abcd"[t]);
        assert_int_equal(row.targets[t], t == 0 ? -1 : "2abcde"[t]);
    }
    tri_data_close(data);
    config.seq_len = 9; /* now all of it fits, and its end is learned too... */
    data = open_task(&config);
    row = get_full_row(data, TRI_SPLIT_TRAIN, 0, 9);
    assert_int_equal(row.targets[8], 'h');
    tri_data_close(data);
    config.seq_len = 10; /* ... from here on */
    data = open_task(&config);
    row = get_full_row(data, TRI_SPLIT_TRAIN, 0, 10);
    assert_int_equal(row.targets[9], 0);
    tri_data_close(data);
    config.seq_len = 1; /* the prompt alone fills the row */
    assert_task_fails(&config, WORDS("cut.jsonl, line 1: its prompt alone", "data.too_long=drop"));
    config.too_long = TRI_TOO_LONG_DROP;
    assert_task_fails(&config, WORDS("no example is left", "data.seq_len = 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_example_comes_once_in_each_epoch),
        cmocka_unit_test(seeds_change_the_order_only),
        cmocka_unit_test(bert_frames_texts_and_pairs),
        cmocka_unit_test(other_forms_for_pairs),
        cmocka_unit_test(long_texts_are_cut_dropped_or_refused),
        cmocka_unit_test(only_the_answer_is_learned),
        cmocka_unit_test(a_tokenizer_begins_and_ends_the_text),
        cmocka_unit_test(alpaca_has_two_forms),
        cmocka_unit_test(packing_keeps_examples_apart),
        cmocka_unit_test(a_long_answer_loses_its_end),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
