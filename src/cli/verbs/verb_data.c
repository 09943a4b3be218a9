/* trireme data: tokens and tokenizers on the command line.
 *
 *   trireme data prepare TEXT ... --tokenizer PATH --out DIR      (data_prepare.c)
 *   trireme data inspect PATH
 *   trireme data tokenizer train TEXT ... --vocab N --out FILE.json
 *   trireme data tokenizer encode|decode|inspect --tokenizer PATH [FILE] */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/pool.h"
#include "base/settings/nearest.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/text.h"
#include "cli/verbs/data_prepare.h"
#include "data/prepare/prepare.h"
#include "data/tokenizer/tokenizer.h"

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* All of a file, or of standard input when there is no file or it is "-". */
typedef struct input {
    tri_mapping file;
    tri_bytes read;
    const char *text;
    size_t num_bytes;
} input;

static tr_status read_stdin(input *in, tr_error *err)
{
    char block[65536];
    size_t num;
    while ((num = fread(block, 1, sizeof block, stdin)) > 0)
        tri_bytes_add(&in->read, block, num);
    if (ferror(stdin) || in->read.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "cannot read standard input: %s",
                        in->read.failed ? "out of memory" : strerror(errno));
    in->text = in->read.num ? in->read.data : "";
    in->num_bytes = in->read.num;
    return TR_OK;
}

static tr_status input_open(input *in, const char *path, tr_error *err)
{
    *in = (input){0};
    if (!path || strcmp(path, "-") == 0)
        return read_stdin(in, err);
    TRI_TRY(tri_mapping_open(&in->file, path, err));
    in->text = (const char *)in->file.data;
    in->num_bytes = in->file.num_bytes;
    return TR_OK;
}

static void input_close(input *in)
{
    tri_mapping_close(&in->file);
    tri_bytes_fini(&in->read);
}

static tr_status open_pool(const tri_cli *cli, tri_pool **pool, tr_error *err)
{
    int64_t threads = tr_settings_int(cli->settings, "run.threads");
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return tri_pool_create(threads > 0 ? (int)threads : cores > 0 ? (int)cores : 1, pool, err);
}

/* ---- train ---- */

/* The texts, by the reader that prepare has; standard input is one plain text. */
static tr_status read_sample(const tri_cli *cli, tri_text_sample *sample, tr_error *err)
{
    const char *const *inputs = cli->operands + 2;
    int num = cli->num_operands - 2;
    *sample = (tri_text_sample){0};
    if (num < 1 || (num == 1 && strcmp(inputs[0], "-") == 0)) {
        input in = {0};
        tr_status status = read_stdin(&in, err);
        sample->text = in.read;
        TRI_TRY(status);
    } else {
        TRI_TRY(tri_text_sample_read(inputs, num, tri_cli_flag(cli, "field"), sample, err));
    }
    if (sample->text.num > 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: holds no text; a tokenizer is trained on text like that which it will "
                    "encode",
                    num > 0 && strcmp(inputs[0], "-") != 0 ? inputs[0] : "standard input");
}

static tr_status train_on(const tri_cli *cli, const tri_text_sample *sample, const char *out,
                          tr_error *err)
{
    int64_t vocab = 0, frequency = 2;
    const char *style = tri_cli_flag(cli, "style");
    TRI_TRY(tri_cli_flag_int(cli, "vocab", 256, 1 << 24, &vocab, err));
    TRI_TRY(tri_cli_flag_int(cli, "min-frequency", 1, INT32_MAX, &frequency, err));
    tri_train_config config = {.style = style ? style : "gpt2",
                               .vocab = (int32_t)vocab,
                               .min_frequency = frequency,
                               .whole_text = tri_cli_flag(cli, "whole-text") != NULL,
                               .ends = sample->end,
                               .num_ends = sample->num};
    tri_pool *pool;
    tri_tokenizer *tokenizer;
    char text[160];
    TRI_TRY(open_pool(cli, &pool, err));
    double start = now_s();
    tr_status status =
        tri_tokenizer_train(&config, pool, sample->text.data, sample->text.num, &tokenizer, err);
    double took = now_s() - start;
    tri_pool_destroy(pool);
    TRI_TRY(status);
    status = tri_tokenizer_save(tokenizer, out, err);
    if (status == TR_OK)
        tri_text_print(stdout, "%s: %s, trained in %.2f s\n", out,
                       tri_tokenizer_describe(tokenizer, text, sizeof text), took);
    if (status == TR_OK && sample->cut)
        printf("of the text, the first GiB was read\n");
    if (status == TR_OK && tri_tokenizer_vocab(tokenizer) < vocab)
        printf("pairs that occur %" PRId64 " times or more ran out before %" PRId64 " tokens\n",
               frequency, vocab);
    tri_tokenizer_close(tokenizer);
    return status;
}

static tr_status train(const tri_cli *cli, tr_error *err)
{
    const char *out = tri_cli_flag(cli, "out");
    tri_text_sample sample;
    if (!out || !tri_cli_flag(cli, "vocab"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "say how many tokens and where to: trireme data tokenizer train TEXT ... "
                        "--vocab 4096 --out tokenizer.json");
    TRI_TRY(tri_check_output(out, false, err));
    tr_status status = read_sample(cli, &sample, err);
    if (status == TR_OK)
        status = train_on(cli, &sample, out, err);
    tri_text_sample_fini(&sample);
    return status;
}

/* ---- encode, decode, inspect ---- */

static tr_status encode(const tri_cli *cli, const tri_tokenizer *tokenizer, const input *in,
                        tr_error *err)
{
    unsigned flags = (tri_cli_flag(cli, "special") ? TRI_ENCODE_SPECIAL : 0) |
                     (tri_cli_flag(cli, "plain") ? TRI_ENCODE_PLAIN : 0);
    tri_pool *pool;
    tri_ids ids = {0};
    TRI_TRY(open_pool(cli, &pool, err));
    double start = now_s();
    tr_status status =
        tri_tokenizer_encode(tokenizer, pool, in->text, in->num_bytes, flags, &ids, err);
    double took = now_s() - start;
    tri_pool_destroy(pool);
    if (status == TR_OK && tri_cli_flag(cli, "count"))
        printf("%zu tokens for %zu bytes, %.2f bytes per token, %.1f MB/s\n", ids.num,
               in->num_bytes, ids.num ? (double)in->num_bytes / (double)ids.num : 0.0,
               (double)in->num_bytes / took * 1e-6);
    else if (status == TR_OK)
        for (size_t i = 0; i < ids.num; i++)
            printf("%s%" PRId32, i ? " " : "", ids.id[i]);
    if (status == TR_OK && !tri_cli_flag(cli, "count"))
        putchar('\n');
    tri_ids_fini(&ids);
    return status;
}

static tr_status parse_ids(const input *in, tri_ids *ids, tr_error *err)
{
    int64_t number = -1;
    for (size_t i = 0; i <= in->num_bytes; i++) {
        char c = i < in->num_bytes ? in->text[i] : ' ';
        bool digit = c >= '0' && c <= '9';
        if (digit)
            number = (number < 0 ? 0 : number) * 10 + (c - '0');
        if (number > INT32_MAX || (!digit && !strchr(" \t\r\n,[]", c)) || c == 0)
            return tri_fail(err, TR_ERROR_INPUT,
                            "byte %zu of the input is no token id; ids are numbers with blanks, "
                            "commas or lines between them",
                            i);
        if (!digit && number >= 0) {
            int32_t id = (int32_t)number;
            tri_ids_add(ids, &id, 1);
            number = -1;
        }
    }
    return ids->failed ? tri_fail(err, TR_ERROR_RUNTIME, "out of memory") : TR_OK;
}

static tr_status decode(const tri_cli *cli, const tri_tokenizer *tokenizer, const input *in,
                        tr_error *err)
{
    unsigned flags = tri_cli_flag(cli, "skip-special") ? TRI_DECODE_SKIP_SPECIAL : 0;
    tri_ids ids = {0};
    tri_bytes bytes = {0};
    tr_status status = parse_ids(in, &ids, err);
    if (status == TR_OK)
        status = tri_tokenizer_decode(tokenizer, ids.id, ids.num, flags, &bytes, err);
    if (status == TR_OK)
        fwrite(bytes.data, 1, bytes.num, stdout);
    tri_ids_fini(&ids);
    tri_bytes_fini(&bytes);
    return status;
}

static const char *const special_names[TRI_NUM_SPECIAL] = {"bos", "eos", "pad", "unk",
                                                           "cls", "sep", "mask"};

/* What a tokenizer is; with a text, its tokens. */
static tr_status inspect_json(const tri_tokenizer *tokenizer, const tri_ids *ids, tr_error *err)
{
    char line[160];
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "tokenizer", tri_tokenizer_describe(tokenizer, line, sizeof line));
    tri_doc_count(doc, "vocab", tri_tokenizer_vocab(tokenizer));
    json_t *specials = tri_doc_object(doc, "special");
    for (int i = 0; i < TRI_NUM_SPECIAL; i++)
        tri_doc_count_from(specials, special_names[i],
                           tri_tokenizer_special(tokenizer, (tri_special)i), 0);
    json_t *list = ids ? tri_doc_list(doc, "tokens") : NULL;
    for (size_t i = 0; ids && i < ids->num; i++) {
        size_t num;
        const char *text = tri_tokenizer_spelling(tokenizer, ids->id[i], &num);
        char *spelling = strndup(text ? text : "", text ? num : 0);
        json_t *item = tri_doc_item(list);
        tri_doc_count(item, "id", ids->id[i]);
        tri_doc_text(item, "text", spelling);
        free(spelling);
    }
    return tri_doc_print(doc, stdout, err);
}

static void print_specials(const tri_tokenizer *tokenizer)
{
    for (int i = 0; i < TRI_NUM_SPECIAL; i++) {
        int32_t id = tri_tokenizer_special(tokenizer, (tri_special)i);
        size_t num;
        const char *text = tri_tokenizer_spelling(tokenizer, id, &num);
        if (text)
            tri_text_print(stdout, "  %-5s %6" PRId32 "  %.*s\n", special_names[i], id, (int)num,
                           text);
    }
}

/* Without a text: what the tokenizer is. With one: its tokens, one a line. */
static tr_status inspect(const tri_tokenizer *tokenizer, const char *path, bool json, tr_error *err)
{
    char line[160];
    if (!path && json)
        return inspect_json(tokenizer, NULL, err);
    if (!path) {
        printf("%s\n", tri_tokenizer_describe(tokenizer, line, sizeof line));
        print_specials(tokenizer);
        return TR_OK;
    }
    input in;
    tri_ids ids = {0};
    TRI_TRY(input_open(&in, path, err));
    tr_status status =
        tri_tokenizer_encode(tokenizer, NULL, in.text, in.num_bytes, TRI_ENCODE_SPECIAL, &ids, err);
    if (status == TR_OK && json)
        status = inspect_json(tokenizer, &ids, err);
    for (size_t i = 0; status == TR_OK && !json && i < ids.num; i++) {
        size_t num;
        const char *text = tri_tokenizer_spelling(tokenizer, ids.id[i], &num);
        tri_text_print(stdout, "%7" PRId32 "  %.*s\n", ids.id[i], (int)num, text);
    }
    tri_ids_fini(&ids);
    input_close(&in);
    return status;
}

/* What is printed otherwise is no table: text, numbers of tokens. */
static tr_status check_json(const tri_cli *cli, tr_error *err)
{
    const char *first = cli->num_operands > 0 ? cli->operands[0] : "";
    const char *second = cli->num_operands > 1 ? cli->operands[1] : "";
    bool inspects = strcmp(first, "inspect") == 0 ||
                    (strcmp(first, "tokenizer") == 0 && strcmp(second, "inspect") == 0);
    if (!tri_cli_flag(cli, "json") || inspects)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "--json goes with `trireme data inspect` and `trireme data tokenizer inspect`; "
                    "leave it out");
}

static tr_status use(const tri_cli *cli, const char *action, const char *path, tr_error *err)
{
    const char *name = tri_cli_flag(cli, "tokenizer");
    tri_tokenizer *tokenizer;
    input in;
    if (!name && path && strcmp(action, "inspect") == 0) { /* the one thing there is to name */
        name = path;
        path = NULL;
    }
    if (!name)
        return tri_fail(err, TR_ERROR_INPUT,
                        "say which tokenizer: trireme data tokenizer %s --tokenizer PATH, where "
                        "PATH is a tokenizer.json, a directory with one, \"bytes\" or "
                        "\"chars:FILE\"",
                        action);
    TRI_TRY(tri_tokenizer_open(name, &tokenizer, err));
    tr_status status = TR_OK;
    if (strcmp(action, "inspect") == 0) {
        status = inspect(tokenizer, path, tri_cli_flag(cli, "json") != NULL, err);
    } else {
        status = input_open(&in, path, err);
        if (status == TR_OK)
            status = strcmp(action, "encode") == 0 ? encode(cli, tokenizer, &in, err)
                                                   : decode(cli, tokenizer, &in, err);
        input_close(&in);
    }
    tri_tokenizer_close(tokenizer);
    return status;
}

/* ---- the verb ---- */

static tr_status tokenizer_verb(const tri_cli *cli, tr_error *err)
{
    static const char *const actions[] = {"train", "encode", "decode", "inspect"};
    const char *action = cli->num_operands > 1 ? cli->operands[1] : "";
    const char *path = cli->num_operands > 2 ? cli->operands[2] : NULL;
    const char *best = actions[0];
    if (cli->num_operands > 3 && strcmp(action, actions[0]) != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "trireme data tokenizer %s takes one file; \"%.60s\" "
                        "is one too many",
                        action, cli->operands[3]);
    for (int i = 0; i < 4; i++) {
        if (strcmp(action, actions[i]) == 0)
            return i == 0 ? train(cli, err) : use(cli, action, path, err);
        if (tri_edit_distance(action, actions[i]) < tri_edit_distance(action, best))
            best = actions[i];
    }
    if (!*action)
        return tri_fail(err, TR_ERROR_INPUT,
                        "say what to do with a tokenizer: trireme data tokenizer train, encode, "
                        "decode or inspect; trireme data --help says more");
    bool slip = tri_is_slip(action, best);
    return tri_fail(err, TR_ERROR_INPUT,
                    "trireme data tokenizer can train, encode, decode and inspect, not "
                    "\"%.60s\"%s%s%s",
                    action, slip ? "; did you mean " : "", slip ? best : "", slip ? "?" : "");
}

int tri_verb_data(const tri_cli *cli)
{
    static const char *const actions[] = {"tokenizer", "prepare", "inspect"};
    const char *action = cli->num_operands > 0 ? cli->operands[0] : "", *best = actions[0];
    tr_error err = {0};
    tr_status status;
    if (check_json(cli, &err) != TR_OK)
        status = err.status;
    else if (strcmp(action, "tokenizer") == 0)
        status = tokenizer_verb(cli, &err);
    else if (strcmp(action, "prepare") == 0)
        status = tri_data_prepare_verb(cli, &err);
    else if (strcmp(action, "inspect") == 0)
        status = tri_data_inspect_verb(cli, &err);
    else {
        for (int i = 1; i < 3; i++)
            if (tri_edit_distance(action, actions[i]) < tri_edit_distance(action, best))
                best = actions[i];
        bool slip = tri_is_slip(action, best);
        status = tri_fail(&err, TR_ERROR_INPUT,
                          "say what to do with data: trireme data prepare, inspect, or tokenizer "
                          "train|encode|decode|inspect%s%s%s; trireme data --help says more",
                          slip ? " (did you mean " : "", slip ? best : "", slip ? "?)" : "");
    }
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
