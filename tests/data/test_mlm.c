/* Masked tokens: how many are chosen, what becomes of them, that special tokens never are, and that
 * a choice is a pure function of (seed, sample). */
#include "task_support.h"

#include "base/rng.h"

#include <math.h>

static const char *put_text(temp_dir *dir, const char *name, int num_words)
{
    static const char *const word[] = {"the", "it", "is",   "of",  "and", "a",
                                       "to",  "in", "that", "was", "he",  "for"};
    const char *path = temp_file(dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < num_words; i++)
        fprintf(file, "%s%c", word[tri_random_word(3, (uint64_t)i, 0, 1) % 12],
                i % 12 == 11 ? '\n' : ' ');
    fclose(file);
    return path;
}

static tri_data_config mlm_config(const char *path, int64_t seq_len)
{
    tri_data_config config = task_config(TRI_DATA_MLM, path, seq_len);
    config.tokenizer = WORDPIECE;
    config.eval_fraction = 0.2;
    return config;
}

typedef struct counts {
    double ordinary, chosen, masked, kept, other;
} counts;

/* One row: as many targets as there must be, each over a place that is not special. */
static void count_row(const full_row *row, int64_t length, int32_t mask, double fraction,
                      const tri_tokenizer *tokenizer, counts *c)
{
    int ordinary = 0, chosen = 0;
    for (int64_t t = 0; t < length; t++) {
        int32_t target = row->targets[t], token = row->tokens[t];
        if (row->docs[t] < 0) {
            assert_int_equal(target, -1);
            continue;
        }
        ordinary += !tri_tokenizer_is_special(tokenizer, target >= 0 ? target : token);
        if (target < 0) {
            assert_int_not_equal(token, mask);
            continue;
        }
        assert_false(tri_tokenizer_is_special(tokenizer, target));
        chosen++;
        c->masked += token == mask;
        c->kept += token == target;
        c->other += token != mask && token != target;
        assert_true(token == mask || !tri_tokenizer_is_special(tokenizer, token));
    }
    int wanted = (int)(fraction * ordinary + 0.5);
    assert_int_equal(chosen, wanted > 0 ? wanted : 1);
    c->ordinary += ordinary;
    c->chosen += chosen;
}

static void assert_share(double part, double whole, double expected, const char *what)
{
    double share = part / whole, deviation = sqrt(expected * (1 - expected) / whole);
    if (fabs(share - expected) > 5 * deviation + 1e-3)
        fail_msg("%s: %.4f of %.0f, not %.4f", what, share, whole, expected);
}

static void proportions_are_berts(void **state)
{
    enum { LEN = 100 };
    tri_data_config config = mlm_config(put_text(*state, "long.txt", 20000), LEN);
    tri_tokenizer *tokenizer = open_tokenizer(WORDPIECE);
    int32_t mask = tri_tokenizer_special(tokenizer, TRI_SPECIAL_MASK);
    for (int k = 0; k < 2; k++) {
        config.mask_fraction = k ? 0.4 : 0.15;
        tri_data *data = open_task(&config);
        uint64_t num = (uint64_t)tri_data_num_windows(data, TRI_SPLIT_TRAIN);
        counts c = {0};
        for (uint64_t sample = 0; sample < 3 * num; sample++) {
            full_row row = get_full_row(data, TRI_SPLIT_TRAIN, sample, LEN);
            count_row(&row, LEN, mask, config.mask_fraction, tokenizer, &c);
        }
        assert_true(c.ordinary > 40000);
        assert_share(c.chosen, c.ordinary, config.mask_fraction, "chosen");
        assert_share(c.masked, c.chosen, 0.8, "masked");
        assert_share(c.other, c.chosen, 0.1, "random"); /* one of 700 is the same by chance */
        assert_share(c.kept, c.chosen, 0.1, "kept");
        tri_data_close(data);
    }
    tri_tokenizer_close(tokenizer);
}

/* Every place is chosen equally often. */
static void no_place_is_preferred(void **state)
{
    enum { LEN = 20, ROUNDS = 4000 };
    tri_data_config config = mlm_config(put_text(*state, "places.txt", 18), LEN);
    config.eval_fraction = 0;
    tri_data *data = open_task(&config);
    assert_int_equal(tri_data_num_windows(data, TRI_SPLIT_TRAIN), 1);
    int times[LEN] = {0};
    for (uint64_t sample = 0; sample < ROUNDS; sample++) {
        full_row row = get_full_row(data, TRI_SPLIT_TRAIN, sample, LEN);
        for (int t = 0; t < LEN; t++)
            times[t] += row.targets[t] >= 0;
    }
    assert_true(times[0] == 0 && times[LEN - 1] == 0); /* [CLS] and [SEP] */
    for (int t = 1; t < LEN - 1; t++)
        assert_share(times[t], ROUNDS, 3.0 / 18, "a place");
    tri_data_close(data);
}

static void choices_are_pure(void **state)
{
    enum { LEN = 64 };
    const char *path = put_text(*state, "pure.txt", 1500);
    tri_data_config config = mlm_config(path, LEN);
    tri_data *a = open_task(&config), *again = open_task(&config);
    config.seed++;
    tri_data *other = open_task(&config);
    uint64_t num = (uint64_t)tri_data_num_windows(a, TRI_SPLIT_TRAIN),
             num_eval = (uint64_t)tri_data_num_windows(a, TRI_SPLIT_EVAL);
    for (uint64_t i = 0; i < num; i++) {
        full_row first = get_full_row(a, TRI_SPLIT_TRAIN, i, LEN);
        full_row same = get_full_row(again, TRI_SPLIT_TRAIN, i, LEN);
        assert_memory_equal(&first, &same, sizeof first);
        /* The same text in another epoch: another choice. */
        for (uint64_t j = num; j < 2 * num; j++) {
            if (tri_data_window(a, TRI_SPLIT_TRAIN, j) != tri_data_window(a, TRI_SPLIT_TRAIN, i))
                continue;
            full_row later = get_full_row(a, TRI_SPLIT_TRAIN, j, LEN);
            assert_memory_not_equal(first.targets, later.targets, sizeof first.targets);
        }
    }
    /* Held-out rows ask the same in every round and for every seed. */
    for (uint64_t i = 0; i < num_eval; i++) {
        full_row first = get_full_row(a, TRI_SPLIT_EVAL, i, LEN);
        full_row round = get_full_row(a, TRI_SPLIT_EVAL, i + num_eval, LEN);
        full_row seed = get_full_row(other, TRI_SPLIT_EVAL, i, LEN);
        assert_memory_equal(&first, &round, sizeof first);
        assert_memory_equal(&first, &seed, sizeof first);
    }
    tri_data_close(a);
    tri_data_close(again);
    tri_data_close(other);
}

/* Rows with their targets put back are the text, framed. */
static void nothing_of_the_text_is_lost(void **state)
{
    enum { LEN = 32 };
    const char *path = put_text(*state, "whole.txt", 700);
    tri_data_config config = mlm_config(path, LEN);
    config.eval_fraction = 0;
    tri_data *data = open_task(&config);
    tri_tokenizer *tokenizer = open_tokenizer(WORDPIECE);
    tri_mapping file;
    tr_error err;
    assert_int_equal(tri_mapping_open(&file, path, &err), TR_OK);
    tri_ids ids = encode_with(tokenizer, NULL, (const char *)file.data, file.num_bytes, 0);
    tri_mapping_close(&file);
    uint64_t num = (uint64_t)tri_data_num_windows(data, TRI_SPLIT_TRAIN);
    assert_int_equal(num, (ids.num + LEN - 3) / (LEN - 2));
    bool *covered = calloc(ids.num, sizeof *covered);
    size_t total = 0;
    for (uint64_t i = 0; i < num; i++) {
        full_row row = get_full_row(data, TRI_SPLIT_TRAIN, i, LEN);
        int length = 0;
        for (int t = 0; t < LEN && row.docs[t] >= 0; t++, length++)
            if (row.targets[t] >= 0)
                row.tokens[t] = row.targets[t];
        assert_int_equal(row.tokens[0], tri_tokenizer_special(tokenizer, TRI_SPECIAL_CLS));
        assert_int_equal(row.tokens[length - 1], tri_tokenizer_special(tokenizer, TRI_SPECIAL_SEP));
        size_t begin = 0; /* pieces lie at multiples; find which one it is */
        while (begin < ids.num && (covered[begin] || memcmp(ids.id + begin, row.tokens + 1,
                                                            4 * (size_t)(length - 2)) != 0))
            begin += LEN - 2;
        assert_true(begin < ids.num);
        for (int t = 0; t < length - 2; t++)
            covered[begin + (size_t)t] = true;
        total += (size_t)length - 2;
    }
    assert_int_equal(total, ids.num);
    free(covered);
    tri_ids_fini(&ids);
    tri_tokenizer_close(tokenizer);
    tri_data_close(data);
}

static void documents_of_jsonl_are_packed(void **state)
{
    enum { LEN = 40 };
    temp_dir *dir = *state;
    const char *path = temp_file(dir, "docs.jsonl");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 50; i++)
        fprintf(file, "{\"body\": \"the %s of the\"}\n", i % 2 ? "cat and the dog" : "house");
    fclose(file);
    tri_data_config config = mlm_config(path, LEN);
    config.field = "body";
    config.pack = true;
    config.eval_fraction = 0;
    tri_tokenizer *tokenizer = open_tokenizer(WORDPIECE);
    int32_t cls = tri_tokenizer_special(tokenizer, TRI_SPECIAL_CLS);
    tri_data *data = open_task(&config);
    int num_docs = 0;
    for (int64_t i = 0; i < tri_data_num_windows(data, TRI_SPLIT_TRAIN); i++) {
        full_row row = get_full_row(data, TRI_SPLIT_TRAIN, (uint64_t)i, LEN);
        for (int t = 0; t < LEN && row.docs[t] >= 0; t++) {
            bool begins = t == 0 || row.docs[t] != row.docs[t - 1];
            assert_int_equal(begins, row.positions[t] == 0);
            assert_int_equal(begins, row.tokens[t] == cls);
            num_docs += begins;
        }
    }
    assert_int_equal(num_docs, 50);
    assert_true(tri_data_num_windows(data, TRI_SPLIT_TRAIN) < 40);
    tri_data_close(data);
    tri_tokenizer_close(tokenizer);
}

static void bpe_with_a_mask_token_works_too(void **state)
{
    const char *path = put_text(*state, "bpe.txt", 500);
    tri_data_config config = mlm_config(path, 32);
    config.tokenizer = FIXTURES "tokenizer_llama3.json"; /* has <mask> */
    tri_data *data = open_task(&config);
    tri_tokenizer *tokenizer = open_tokenizer(config.tokenizer);
    counts c = {0};
    for (uint64_t i = 0; i < 20; i++) {
        full_row row = get_full_row(data, TRI_SPLIT_TRAIN, i, 32);
        count_row(&row, 32, tri_tokenizer_special(tokenizer, TRI_SPECIAL_MASK), 0.15, tokenizer,
                  &c);
    }
    assert_true(c.masked > 20);
    tri_tokenizer_close(tokenizer);
    tri_data_close(data);
    config.tokenizer = FIXTURES "tokenizer_trained.json"; /* has none */
    assert_task_fails(&config, WORDS("tokenizer_trained.json", "no mask token", "data.task=mlm"));
    config.tokenizer = "";
    assert_task_fails(&config, WORDS("\"bytes\" has no mask token"));
    config.tokenizer = WORDPIECE;
    config.seq_len = 2;
    assert_task_fails(&config, WORDS("data.seq_len is 2", "2 special tokens"));
    config.seq_len = 32;
    config.source = put_lines(*state, "none.txt", "");
    assert_task_fails(&config, WORDS("none.txt", "is empty"));
    config.source = "/nowhere/at/all";
    assert_task_fails(&config, WORDS("/nowhere/at/all: cannot be found"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proportions_are_berts),
        cmocka_unit_test(no_place_is_preferred),
        cmocka_unit_test(choices_are_pure),
        cmocka_unit_test(nothing_of_the_text_is_lost),
        cmocka_unit_test(documents_of_jsonl_are_packed),
        cmocka_unit_test(bpe_with_a_mask_token_works_too),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
