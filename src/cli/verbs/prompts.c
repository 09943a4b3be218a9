#include "cli/verbs/prompts.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"

tr_status tri_cli_read_all(const char *path, tri_bytes *bytes, tr_error *err)
{
    if (strcmp(path, "-") != 0) {
        tri_mapping file;
        TRI_TRY(tri_mapping_open(&file, path, err));
        tri_bytes_add(bytes, file.data, file.num_bytes);
        tri_mapping_close(&file);
    } else {
        char block[65536];
        size_t num;
        while ((num = fread(block, 1, sizeof block, stdin)) > 0)
            tri_bytes_add(bytes, block, num);
        if (ferror(stdin))
            return tri_fail(err, TR_ERROR_RUNTIME, "cannot read standard input: %s",
                            strerror(errno));
    }
    return bytes->failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for %s", path) : TR_OK;
}

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the prompts");
}

/* Room for one more. */
static tr_status grow(tri_prompts *prompts, tr_error *err)
{
    size_t num = prompts->num + 1;
    char **text = realloc(prompts->text, num * sizeof *text);
    if (text)
        prompts->text = text;
    size_t *num_bytes = text ? realloc(prompts->num_bytes, num * sizeof *num_bytes) : NULL;
    if (num_bytes)
        prompts->num_bytes = num_bytes;
    tri_ids *ids = num_bytes ? realloc(prompts->ids, num * sizeof *ids) : NULL;
    if (!ids)
        return no_memory(err);
    prompts->ids = ids;
    prompts->text[prompts->num] = NULL;
    prompts->num_bytes[prompts->num] = 0;
    prompts->ids[prompts->num] = (tri_ids){0};
    prompts->num++;
    return TR_OK;
}

static tr_status add_text(const tri_vocabulary *vocabulary, const char *text, size_t num_bytes,
                          tri_prompts *prompts, tr_error *err)
{
    TRI_TRY(grow(prompts, err));
    size_t at = prompts->num - 1;
    prompts->text[at] = malloc(num_bytes + 1);
    if (!prompts->text[at])
        return no_memory(err);
    memcpy(prompts->text[at], text, num_bytes);
    prompts->text[at][num_bytes] = 0;
    prompts->num_bytes[at] = num_bytes;
    return tri_vocabulary_prompt(vocabulary, text, num_bytes, &prompts->ids[at], err);
}

/* "1 2 3", also with commas. */
static tr_status add_ids(const char *list, int64_t vocab, tri_prompts *prompts, tr_error *err)
{
    TRI_TRY(grow(prompts, err));
    for (const char *at = list + strspn(list, " ,\t\n"); *at; at += strspn(at, " ,\t\n")) {
        char *end;
        long long id = strtoll(at, &end, 10);
        if (end == at || !(*end == 0 || strchr(" ,\t\n", *end)))
            return tri_fail(err, TR_ERROR_INPUT,
                            "--prompt-ids: \"%.20s\" is not a token number; write numbers with "
                            "blanks between them: \"1 2 3\"",
                            at);
        if (id < 0 || id >= vocab)
            return tri_fail(err, TR_ERROR_INPUT,
                            "--prompt-ids: there is no token %lld; the model's are 0 to %lld", id,
                            (long long)vocab - 1);
        int32_t token = (int32_t)id;
        tri_ids_add(&prompts->ids[prompts->num - 1], &token, 1);
        at = end;
    }
    if (prompts->ids[prompts->num - 1].failed)
        return no_memory(err);
    if (prompts->ids[prompts->num - 1].num == 0)
        return tri_fail(err, TR_ERROR_INPUT, "--prompt-ids has no numbers in it");
    return TR_OK;
}

/* A line of a JSONL file: {"prompt": "..."} or a string. */
static tr_status add_json(const tri_vocabulary *vocabulary, const char *path, size_t number,
                          const char *line, size_t num_bytes, tri_prompts *prompts, tr_error *err)
{
    json_error_t why;
    json_t *root;
    tr_status status =
        tri_json_load(path, line, num_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &root, &why, err);
    if (status == TR_ERROR_INPUT)
        return tri_fail(err, TR_ERROR_INPUT, "%s:%zu: not JSON: %s", path, number, why.text);
    TRI_TRY(status);
    const json_t *prompt = json_is_object(root) ? json_object_get(root, "prompt") : root;
    status = json_is_string(prompt)
                 ? add_text(vocabulary, json_string_value(prompt), json_string_length(prompt),
                            prompts, err)
                 : tri_fail(err, TR_ERROR_INPUT,
                            "%s:%zu: needs {\"prompt\": \"some text\"}, or a text in quotes", path,
                            number);
    json_decref(root);
    return status;
}

/* A prompt on each line; empty lines are left out. A file of which the first line is a JSON object,
 * or that is called .jsonl, has JSON on each. */
static tr_status add_lines(const tri_vocabulary *vocabulary, const char *path,
                           const tri_bytes *bytes, tri_prompts *prompts, tr_error *err)
{
    const char *at = bytes->data, *end = bytes->data + bytes->num;
    size_t length = strlen(path), number = 0;
    bool json = length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
    for (const char *c = at; c < end && !json && (isspace((unsigned char)*c) || *c == '{'); c++)
        json = *c == '{';
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t num = (size_t)((line_end ? line_end : end) - at);
        const char *next = line_end ? line_end + 1 : end;
        number++;
        if (num > 0 && at[num - 1] == '\r')
            num--;
        if (num > 0)
            TRI_TRY(json ? add_json(vocabulary, path, number, at, num, prompts, err)
                         : add_text(vocabulary, at, num, prompts, err));
        at = next;
    }
    if (prompts->num == 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s has no prompts; write one on each line", path);
    return TR_OK;
}

static tr_status read_prompts(const tri_cli *cli, const tri_vocabulary *vocabulary,
                              const char *place, tri_prompts *prompts, tr_error *err)
{
    const char *ids = tri_cli_flag(cli, "prompt-ids"), *file = tri_cli_flag(cli, "prompts");
    const char *flag = tri_cli_flag(cli, "prompt");
    if ((ids != NULL) + (file != NULL) + (flag != NULL) > 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--prompt, --prompts and --prompt-ids exclude each other; give one");
    if (ids)
        return add_ids(ids, vocabulary->num_tokens, prompts, err);
    TRI_TRY(tri_vocabulary_need(vocabulary, place, err));
    const char *path = file ? file : flag && strcmp(flag, "-") == 0 ? "-" : NULL;
    if (!path) {
        const char *text = flag ? flag : tr_settings_string(cli->settings, "generate.prompt");
        return add_text(vocabulary, text, strlen(text), prompts, err);
    }
    tri_bytes bytes = {0};
    tr_status status = tri_cli_read_all(path, &bytes, err);
    if (status == TR_OK)
        status = file ? add_lines(vocabulary, path, &bytes, prompts, err)
                      : add_text(vocabulary, bytes.data ? bytes.data : "", bytes.num, prompts, err);
    tri_bytes_fini(&bytes);
    return status;
}

tr_status tri_prompts_read(const tri_cli *cli, const tri_vocabulary *vocabulary, const char *place,
                           tri_prompts *prompts, tr_error *err)
{
    *prompts = (tri_prompts){0};
    tr_status status = read_prompts(cli, vocabulary, place, prompts, err);
    if (status != TR_OK)
        tri_prompts_free(prompts);
    return status;
}

void tri_prompts_free(tri_prompts *prompts)
{
    for (size_t i = 0; i < prompts->num; i++) {
        free(prompts->text[i]);
        tri_ids_fini(&prompts->ids[i]);
    }
    free(prompts->text);
    free(prompts->num_bytes);
    free(prompts->ids);
    *prompts = (tri_prompts){0};
}
