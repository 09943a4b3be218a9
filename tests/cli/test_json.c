/* --json: every verb that prints a table prints one JSON document with it and nothing else, whose
 * numbers are those of the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "temp_dir.h"

static char program[300]; /* beside this test */
static temp_dir *work;

/* Standard output of a command, on the heap; %D in the words is the test's directory. */
static char *output_of(const char *words, int *code)
{
    char command[2000], *out = NULL, *text;
    size_t num;
    tr_error err = {0};
    size_t length = (size_t)snprintf(command, sizeof command, "%s ", program);
    for (const char *c = words; *c; c++) {
        bool dir = c[0] == '%' && c[1] == 'D';
        length += (size_t)snprintf(command + length, sizeof command - length, dir ? "%s" : "%.1s",
                                   dir ? work->path : c);
        c += dir;
    }
    out = strdup(temp_file(work, "out"));
    assert_non_null(out);
    snprintf(command + length, sizeof command - length, " >%s 2>%s/err </dev/null", out,
             work->path);
    int status = system(command);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (tri_file_read(out, &text, &num, &err) != TR_OK)
        fail_msg("%s", err.message);
    free(out);
    return text;
}

/* Keys are words of small letters, but for those that are names of others' things. */
static void check_keys(const json_t *value, const char *words, bool named)
{
    const char *key;
    json_t *member;
    size_t i;
    json_array_foreach(value, i, member) check_keys(member, words, false);
    json_object_foreach((json_t *)value, key, member)
    {
        for (const char *c = key; *c && !named; c++)
            if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
                fail_msg("%s: the key %s", words, key);
        check_keys(member, words,
                   strcmp(key, "metadata") == 0 || strcmp(key, "settings") == 0 ||
                       strstr(key, "flops_per_second") != NULL);
    }
}

/* With --json, and the exit code that it has without. */
static json_t *json_with(const char *words, int wanted)
{
    char with[1000];
    int code;
    json_error_t why;
    snprintf(with, sizeof with, "%s --json", words);
    char *text = output_of(with, &code);
    if (code != wanted)
        fail_msg("%s: exit code %d", with, code);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        fail_msg("%s: %s at %d: %.80s", with, why.text, why.position, text);
    assert_int_equal(text[strlen(text) - 1], '\n');
    free(text);
    bool flat = strncmp(words, "settings %D", 11) == 0; /* names of settings */
    check_keys(root, words, flat);
    return root;
}

static json_t *json_of(const char *words)
{
    return json_with(words, 0);
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number %s", key);
    return json_number_value(value);
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text)
        fail_msg("no text %s", key);
    return text;
}

/* The item of a list whose key has this value. */
static const json_t *item_of(const json_t *root, const char *list, const char *key,
                             const char *value)
{
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(root, list), i, item)
    {
        const char *text = json_string_value(json_object_get(item, key));
        if (text && strcmp(text, value) == 0)
            return item;
    }
    fail_msg("%s has no %s %s", list, key, value);
    return NULL;
}

/* Where the line of a text that begins so goes on; NULL: there is none. */
static const char *line_of(const char *text, const char *begin)
{
    for (const char *at = text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (strncmp(at, begin, strlen(begin)) == 0)
            return at + strlen(begin);
    fail_msg("no line %s in %s", begin, text);
    return NULL;
}

static char *table_of(const char *words)
{
    int code;
    char *text = output_of(words, &code);
    assert_int_equal(code, 0);
    return text;
}

static void plan_check_explain(void **state)
{
    (void)state;
    char *table = table_of("plan recipes/tiny.yaml --set layout.dp=2 --rank 1");
    json_t *root = json_of("plan recipes/tiny.yaml --set layout.dp=2 --rank 1 --params");
    unsigned long long plan;
    const char *bytes = strstr(line_of(table, "  plan       total"), "B  ");
    assert_non_null(bytes);
    assert_int_equal(sscanf(bytes + 1, "%llu", &plan), 1);
    assert_true(number_at(json_object_get(root, "memory"), "plan_bytes") == (double)plan);
    assert_int_equal(number_at(root, "rank"), 1);
    assert_true(number_at(json_object_get(root, "model"), "parameters") == 220544);
    assert_int_equal(json_array_size(json_object_get(root, "parameters")), 52);
    json_decref(root);
    free(table);
    root = json_of("plan recipes/tiny.yaml --ledger --set model.preset=");
    assert_true(number_at(root, "kept_bytes") > 0);
    json_decref(root);
    root = json_with("plan recipes/tiny.yaml --set run.memory_limit=1MiB", 2); /* too large */
    assert_true(number_at(json_object_get(root, "memory"), "plan_bytes") > 1 << 20);
    json_decref(root);

    root = json_of("check recipes/tiny.yaml --set layout.dp=2");
    item_of(root, "proven", "proof", "the messages of all 2 ranks meet");
    json_decref(root);
    root = json_of("check --break list");
    item_of(root, "faults", "name", "overlap");
    json_decref(root);
    root = json_with("check recipes/tiny.yaml --break overlap", 2);
    text_at(root, "rejected");
    json_decref(root);

    table = table_of("explain recipes/tiny.yaml --all");
    root = json_of("explain recipes/tiny.yaml");
    const json_t *forward = item_of(root, "segments", "name", "F");
    const json_t *first = json_array_get(json_object_get(forward, "instructions"), 0);
    assert_non_null(strstr(table, text_at(first, "operator")));
    assert_int_equal(number_at(root, "num_instructions"), 234);
    json_decref(root);
    free(table);
    root = json_of("explain recipes/tiny.yaml --summary --mode eval");
    assert_null(json_object_get(item_of(root, "segments", "name", "F"), "instructions"));
    json_decref(root);
    root = json_of("explain recipes/tiny.yaml --set layout.cp=4 --deal");
    assert_string_equal(text_at(root, "deal"), "zigzag");
    assert_int_equal(number_at(item_of(root, "deals", "deal", "plain"), "remote_keys"), 768);
    json_decref(root);
    root = json_of("explain --ops");
    item_of(root, "operators", "name", "matmul");
    json_decref(root);
}

static void simulations(void **state)
{
    (void)state;
    char *table = table_of("sim --schedule 1f1b --pp 4 --microbatches 8");
    json_t *root = json_of("sim --schedule 1f1b --pp 4 --microbatches 8 --draw %D/s.svg");
    double bubble;
    assert_int_equal(sscanf(line_of(table, "bubble "), "%lf", &bubble), 1);
    assert_true(fabs(100 * number_at(root, "bubble_share") - bubble) < 0.05);
    assert_int_equal(json_array_size(json_object_get(root, "ranks")), 4);
    assert_true(tri_path_exists(temp_file(work, "s.svg")));
    json_decref(root);
    free(table);
    root = json_of("sim --compare --pp 5 --microbatches 7");
    assert_true(number_at(item_of(root, "schedules", "schedule", "gpipe"), "bubble_share") > 0.3);
    text_at(item_of(root, "schedules", "schedule", "chimera"), "needs");
    json_decref(root);
    root = json_of("sim --list");
    item_of(root, "schedules", "name", "zb-v");
    json_decref(root);
    root = json_of("sim recipes/tiny.yaml --device h100 --set layout.pp=2");
    assert_true(number_at(root, "tokens_per_second") > 0);
    json_decref(root);
}

static void places(void **state)
{
    (void)state;
    json_t *root = json_of("place --mesh x:4 --device h100 'A[I:1024, J:4096@x]' "
                           "'A[I:1024, J:4096@x] . B[J@x, K:512] -> C[I, K]' 'A[N@x] -> A[N]'");
    const json_t *array = item_of(root, "lines", "kind", "array");
    assert_true(number_at(array, "device_bytes") == 1024 * 1024 * 2);
    const json_t *product = item_of(root, "lines", "kind", "product");
    assert_string_equal(text_at(json_array_get(json_object_get(product, "after"), 0), "operation"),
                        "all-reduce");
    assert_true(number_at(product, "compute_seconds") > 0);
    const json_t *move = item_of(root, "lines", "kind", "move");
    text_at(json_array_get(json_object_get(move, "moves"), 0), "bytes"); /* a formula of N */
    json_decref(root);
    root = json_of("place --mesh x:4 --train fsdp --sizes B:1024,D:4096,F:16384");
    assert_int_equal(json_array_size(json_object_get(root, "lines")), 6);
    json_decref(root);
    root = json_of("place --mesh x:64 --state 7.5e9");
    const json_t *last = json_array_get(json_object_get(root, "lines"), 3);
    assert_int_equal(number_at(last, "zero"), 3);
    assert_true(fabs(number_at(last, "device_bytes") - 7.5e9 * 16 / 64) < 1);
    json_decref(root);
    root = json_of("place --limits --device v5p --width 30000");
    last = json_array_get(json_object_get(root, "limits"), 0);
    assert_true(fabs(number_at(last, "rows") - 166) < 0.5);
    assert_int_equal(json_array_size(json_object_get(last, "fsdp_tokens")), 3);
    json_decref(root);
    root = json_of("place --mesh x:2 --values 'X=[1,2]' 'X[J:2@x] -> X[J]'");
    last = json_array_get(json_object_get(root, "lines"), 0);
    assert_int_equal(json_array_size(json_object_get(last, "steps")), 2);
    json_decref(root);
    root = json_of("place --devices");
    assert_true(number_at(item_of(root, "devices", "name", "h100"), "memory_bytes") > 7e10);
    json_decref(root);
}

/* Sums on paper: what is not known is null. */
static void sums(void **state)
{
    (void)state;
    json_t *root = json_of("plan --params 175e9 --tokens 300e9 --rate 160e12 --days 30");
    assert_true(fabs(number_at(json_object_get(root, "by_rule"), "devices") - 759.5) < 0.1);
    assert_true(json_is_null(json_object_get(root, "by_program")));
    assert_true(json_is_null(json_object_get(root, "watts")));
    json_decref(root);
    root = json_of("plan --goodput --gpus 16384 --days 30 --simulate 2");
    assert_true(fabs(number_at(root, "mtbf_seconds") - 54.0 * 86400 / 419) < 1e-6);
    assert_true(fabs(number_at(root, "seconds") - number_at(root, "ideal_seconds") -
                     number_at(root, "saves_seconds") - number_at(root, "lost_seconds") -
                     number_at(root, "restarts_seconds")) < 1e-3);
    assert_true(number_at(json_object_get(root, "simulated"), "mean_seconds") > 30 * 86400);
    assert_true(json_array_size(json_object_get(root, "intervals")) > 20);
    json_t *sizes = json_object_get(root, "sizes");
    json_t *largest = json_array_get(sizes, json_array_size(sizes) - 1);
    assert_true(fabs(number_at(largest, "devices") - 100000) < 0.5);
    assert_true(number_at(largest, "goodput_share") < number_at(root, "goodput_share"));
    assert_true(json_is_null(json_object_get(root, "money")));
    json_decref(root);
    root = json_of("plan recipes/tiny.yaml --activations");
    assert_int_equal(json_array_size(json_object_get(root, "formulas")), 3);
    assert_true(number_at(json_object_get(root, "planned"), "layer_bytes") > 0);
    json_decref(root);
    root = json_of("plan recipes/tiny.yaml --generation --rows 2 --length 64");
    assert_true(json_is_null(json_object_get(root, "compute_bound_rows")));
    assert_true(number_at(json_object_get(root, "planned"), "cache_bytes") > 0);
    json_decref(root);
    root = json_of("plan recipes/tiny.yaml --advise --device h100 "
                   "--devices 2");
    json_t *advised = json_object_get(root, "advised");
    assert_int_equal(number_at(json_object_get(advised, "layout"), "dp"), 2);
    assert_true(json_is_null(json_object_get(root, "devices_needed")));
    const json_t *asked = item_of(root, "questions", "name", "zero");
    assert_true(json_array_size(json_object_get(asked, "tried")) >= 4);
    json_decref(root);
    root = json_with("plan --set model.preset=llama3-8b --advise --device h100", 2);
    assert_true(json_is_null(json_object_get(root, "advised")));
    assert_true(number_at(root, "devices_needed") > 1);
    json_decref(root);
    root = json_of("sim --collective all_reduce --ranks 64 --bytes 1GB");
    json_t *best = json_array_get(json_object_get(root, "fastest"), 1);
    assert_string_equal(json_string_value(json_object_get(best, "algorithm")), "rabenseifner");
    assert_true(fabs(number_at(best, "from_bytes") - 372093) < 1);
    json_decref(root);
}

/* Of every layout that is listed, the numbers that docs/json.md promises. */
static void check_listed(const json_t *root)
{
    static const char *const numbers[] = {"step_seconds", "tokens_per_second", "mfu_share",
                                          "memory_bytes", "fullest_stage"};
    static const char *const layout[] = {"tp",     "cp",          "ep",       "pp",
                                         "chunks", "shard_group", "prefetch", "microbatches",
                                         "rows",   "dp",          "zero"};
    static const char *const split[] = {"products_seconds", "attention_seconds",  "memory_seconds",
                                        "update_seconds",   "recomputed_seconds", "idle_seconds"};
    double before = 0;
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(root, "best"), i, item)
    {
        const json_t *l = json_object_get(item, "layout"), *parts = json_object_get(item, "split");
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            assert_true(number_at(item, numbers[k]) >= 0);
        for (size_t k = 0; k < sizeof layout / sizeof *layout; k++)
            assert_true(number_at(l, layout[k]) >= 0);
        for (size_t k = 0; k < sizeof split / sizeof *split; k++)
            assert_true(number_at(parts, split[k]) >= 0);
        assert_true(number_at(l, "tp") * number_at(l, "pp") * number_at(l, "dp") == 2);
        assert_true(strlen(text_at(l, "schedule")) > 0 && strlen(text_at(l, "recompute")) > 0);
        assert_true(number_at(item, "step_seconds") >= before);
        before = number_at(item, "step_seconds");
    }
    assert_true(i >= 2);
}

static void searches(void **state)
{
    (void)state;
    json_t *root = json_of("plan --search recipes/tiny.yaml --device h100 --devices 2");
    assert_true(number_at(root, "devices") == 2);
    assert_true(number_at(root, "memory_limit_bytes") < number_at(root, "device_bytes"));
    assert_true(number_at(root, "error_share") > 0);
    assert_int_equal(json_array_size(json_object_get(root, "assumed")), 0);
    const json_t *space = json_object_get(root, "space");
    assert_true(number_at(space, "layouts") > number_at(space, "looked_at"));
    assert_true(number_at(space, "refused") == 0 && number_at(space, "too_large") == 0);
    assert_true(json_is_null(json_object_get(space, "others_take_seconds")));
    check_listed(root);
    assert_true(json_array_size(json_object_get(root, "front")) > 0);
    const json_t *lost = item_of(root, "why_not", "trait", "tp 2");
    assert_true(json_is_true(json_object_get(lost, "fits")));
    assert_true(number_at(lost, "slower_share") > 0 && strlen(text_at(lost, "why")) > 0);
    assert_true(number_at(json_object_get(lost, "layout"), "tp") == 2);
    assert_non_null(strstr(text_at(root, "command"), "trireme train recipes/tiny.yaml"));
    json_decref(root);
    root = json_of("plan --search recipes/tiny.yaml --device h100 --devices 1..2 --tokens 1e9");
    const json_t *sizes = json_object_get(root, "sizes");
    assert_int_equal(json_array_size(sizes), 2);
    for (size_t i = 0; i < 2; i++)
        assert_true(number_at(json_array_get(sizes, i), "devices") == (double)(i + 1) &&
                    number_at(json_array_get(sizes, i), "days") > 0);
    json_decref(root);
}

#define SMALL                                                                                      \
    " --set model.dim=16 --set model.num_layers=1 --set data.seq_len=16 --set run.threads=1 "

static void checkpoints(void **state)
{
    (void)state;
    int code;
    free(output_of("train recipes/tiny.yaml" SMALL "--set train.steps=4 --set ckpt.every=2 --set "
                   "ckpt.async=false --set run.trace=true --set run.dir=%D/run",
                   &code));
    assert_int_equal(code, 0);
    json_t *root = json_of("ckpt inspect %D/run");
    assert_string_equal(text_at(root, "kind"), "run");
    assert_int_equal(json_array_size(json_object_get(root, "checkpoints")), 2);
    assert_true(number_at(root, "elements") > 1000);
    json_decref(root);
    root = json_of("ckpt inspect %D/run/ckpt");
    assert_int_equal(number_at(json_array_get(json_object_get(root, "checkpoints"), 0), "step"), 2);
    json_decref(root);
    char *table = table_of("ckpt inspect %D/run/ckpt/step-4");
    root = json_of("ckpt inspect %D/run/ckpt/step-4");
    char line[80];
    snprintf(line, sizeof line, "%.0f tensors in %.0f shards", number_at(root, "num_tensors"),
             number_at(root, "num_shards"));
    assert_non_null(strstr(table, line));
    json_decref(root);
    free(table);
    root = json_of("ckpt verify %D/run");
    assert_int_equal(json_array_size(json_object_get(root, "whole")), 2);
    json_decref(root);
    root = json_with("ckpt diff %D/run/ckpt/step-2 %D/run/ckpt/step-4", 1);
    assert_true(json_is_false(json_object_get(root, "identical")));
    assert_true(number_at(root, "tensors_different") > 0);
    json_decref(root);
    root = json_of("ckpt diff %D/run/ckpt/step-2 %D/run/ckpt/step-2");
    assert_true(json_is_true(json_object_get(root, "identical")));
    json_decref(root);

    root = json_of("runs %D");
    assert_int_equal(number_at(root, "step"), 4);
    json_decref(root);
    root = json_of("runs diff %D/run %D/run");
    assert_int_equal(json_array_size(json_object_get(root, "settings")), 0);
    json_decref(root);
    root = json_of("profile %D/run");
    assert_int_equal(number_at(root, "steps"), 3);
    const json_t *rank = json_array_get(json_object_get(root, "ranks"), 0);
    double parts = number_at(rank, "compute_seconds") + number_at(rank, "message_seconds") +
                   number_at(rank, "wait_seconds") + number_at(rank, "idle_seconds");
    assert_true(fabs(parts - number_at(rank, "step_seconds")) < 1e-9);
    json_decref(root);
    root = json_of("eval %D/run");
    assert_true(number_at(root, "loss") > 0);
    json_decref(root);
}

static void others(void **state)
{
    (void)state;
    int code;
    json_t *root = json_of("settings optim.lr train");
    assert_string_equal(text_at(item_of(root, "settings", "name", "optim.lr"), "type"), "float");
    item_of(root, "settings", "name", "train.steps");
    json_decref(root);
    root = json_of("settings %D/run");
    assert_int_equal(number_at(root, "model.dim"), 16);
    json_decref(root);
    root = json_of("settings --aliases");
    item_of(root, "aliases", "setting", "run.dir");
    json_decref(root);
    root = json_of("doctor");
    assert_true(json_is_true(json_object_get(root, "ready")));
    item_of(root, "checks", "subject", "memory");
    json_decref(root);
    root = json_of("doctor --cluster %D/found.cluster --ranks 2");
    assert_int_equal(number_at(root, "nodes"), 1);
    assert_int_equal(number_at(root, "devices_per_node"), 2);
    assert_true(number_at(root, "node_bytes_per_s") > 0);
    assert_true(number_at(root, "node_latency_seconds") > 0);
    assert_true(json_is_null(json_object_get(root, "card_bytes_per_s")));
    json_decref(root);
    assert_int_equal(put_file(temp_file(work, "text"), "one two three\n", 14), 0);
    root = json_of("data tokenizer inspect --tokenizer bytes %D/text");
    assert_int_equal(json_array_size(json_object_get(root, "tokens")), 14);
    json_decref(root);
    free(output_of("data prepare %D/text --tokenizer bytes --out %D/tokens", &code));
    assert_int_equal(code, 0);
    root = json_of("data inspect %D/tokens");
    assert_true(number_at(root, "train_tokens") >= 14);
    json_decref(root);
    root = json_of("bench train --steps 1" SMALL);
    json_decref(root);
}

/* Wrong words are an error on standard error, and nothing else. */
static void errors(void **state)
{
    static const char *const wrong[] = {
        "plan nothing.yaml --json",       "check recipes/tiny.yaml --break nothing --json",
        "sim --schedule nothing --json",  "settings nothing --json",
        "ckpt inspect %D/nothing --json", "ckpt export %D/run --weights %D/w --json",
        "data inspect %D/nothing --json", "data tokenizer encode --tokenizer bytes --json",
        "doctor --cluster mine --json",   "place 'A[I@z]' --json",
        "explain --graph --json",         "settings --markdown --json",
        "profile %D/nothing --json"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int code;
        char *text = output_of(wrong[i], &code);
        if (code != 2 || *text)
            fail_msg("%s: exit code %d, and %.60s", wrong[i], code, text);
        free(text);
    }
}

/* A verb without --json says why here. */
static void every_verb(void **state)
{
    static const char *const without[] = {
        "train",      /* prints what it does; runs and metrics.jsonl have the numbers */
        "plot",       /* draws */
        "watch",      /* serves JSON; `runs --json` prints what it lists */
        "report",     /* writes a page */
        "view",       /* its documents are JSON: --print */
        "completion", /* prints a script */
        "man",        /* prints a page */
        "watch",      /* serves documents */
    };
    (void)state;
    char *help = table_of("--help"), *save = NULL;
    int num = 0;
    for (char *line = strtok_r(help, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char verb[32], words[64];
        int code;
        if (strncmp(line, "  ", 2) != 0 || sscanf(line, "  %31[a-z] ", verb) != 1)
            continue;
        snprintf(words, sizeof words, "%s --help", verb);
        char *text = output_of(words, &code);
        bool known = code == 0 && strncmp(text, verb, strlen(verb)) != 0;
        bool exempt = false;
        for (size_t i = 0; i < sizeof without / sizeof *without; i++)
            exempt |= strcmp(verb, without[i]) == 0;
        if (known && !exempt && !strstr(text, "--json"))
            fail_msg("%s has no --json", verb);
        num += known;
        free(text);
    }
    assert_true(num >= 15);
    free(help);
}

static int set_up(void **state)
{
    int failed = temp_dir_setup(state);
    work = *state;
    return failed;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_check_explain),
        cmocka_unit_test(simulations),
        cmocka_unit_test(places),
        cmocka_unit_test(sums),
        cmocka_unit_test(searches),
        cmocka_unit_test(checkpoints),
        cmocka_unit_test(others),
        cmocka_unit_test(errors),
        cmocka_unit_test(every_verb),
    };
    (void)argc;
    char *here = realpath(argv[0], NULL), *slash = here ? strrchr(here, '/') : NULL;
    if (!slash)
        return 1;
    *slash = 0;
    snprintf(program, sizeof program, "%s/../trireme", here);
    free(here);
    return cmocka_run_group_tests(tests, set_up, temp_dir_teardown);
}
