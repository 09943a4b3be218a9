/* What the tests of labelled data share: files of JSONL, opening them, and a row with all parts. */
#ifndef TRI_TESTS_TASK_SUPPORT_H
#define TRI_TESTS_TASK_SUPPORT_H

#include "tokenizer_support.h"

#include "data/data.h"

#define WORDPIECE FIXTURES "tokenizer_wordpiece.json"

enum { ROW_LEN = 128 };

/* A row, preset as a batch presets it. */
typedef struct full_row {
    int32_t tokens[ROW_LEN], targets[ROW_LEN], positions[ROW_LEN], docs[ROW_LEN], types[ROW_LEN];
} full_row;

static inline full_row get_full_row(const tri_data *data, tri_split split, uint64_t sample,
                                    int64_t num_targets)
{
    full_row r;
    for (int i = 0; i < ROW_LEN; i++) {
        r.tokens[i] = r.docs[i] = r.types[i] = 0;
        r.targets[i] = -1;
        r.positions[i] = i;
    }
    tri_data_row(data, split, sample,
                 &(tri_row){.tokens = r.tokens,
                            .targets = r.targets,
                            .positions = r.positions,
                            .docs = r.docs,
                            .types = r.types,
                            .num_targets = num_targets});
    return r;
}

/* The settings' defaults. */
static inline tri_data_config task_config(tri_data_task task, const char *source, int64_t seq_len)
{
    return (tri_data_config){.source = source,
                             .seq_len = seq_len,
                             .seed = 7,
                             .task = task,
                             .tokenizer = "",
                             .field = "text",
                             .pair_field = "",
                             .label_field = "label",
                             .labels = "",
                             .answer_field = "output",
                             .template = "alpaca",
                             .template_input = "",
                             .mask_fraction = 0.15};
}

static inline tri_data *open_task(const tri_data_config *config)
{
    tri_data *data;
    tr_error err = {0};
    if (tri_data_open(config, &data, &err) != TR_OK)
        fail_msg("%s", err.message);
    return data;
}

/* Opening fails, and the message has all of the words. */
static inline void assert_task_fails(const tri_data_config *config, const char *const *words)
{
    tri_data *data;
    tr_error err = {0};
    assert_int_equal(tri_data_open(config, &data, &err), TR_ERROR_INPUT);
    assert_null(data);
    for (; *words; words++)
        if (!strstr(err.message, *words))
            fail_msg("expected \"%s\" in: %s", *words, err.message);
}

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static inline const char *put_lines(temp_dir *dir, const char *name, const char *text)
{
    const char *path = temp_file(dir, name);
    assert_int_equal(put_file(path, text, strlen(text)), 0);
    return path;
}

#endif
