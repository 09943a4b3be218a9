/* trireme data prepare: text to token shards; trireme data inspect: what is in them. */
#include "cli/verbs/data_prepare.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/pool.h"
#include "base/text.h"
#include "cli/doc/json_doc.h"
#include "cli/guard.h"
#include "cli/lines.h"
#include "cli/signals.h"
#include "cli/text.h"
#include "data/prepare/prepared.h"

/* ---- the bar ---- */

void tri_prepare_bar_init(tri_prepare_bar *bar, bool terminal)
{
    *bar = (tri_prepare_bar){.start_s = tri_now_s(), .terminal = terminal};
}

void tri_prepare_bar_show(void *context, const tri_prepare_progress *now)
{
    enum { WIDTH = 24 };
    tri_prepare_bar *bar = context;
    double time = tri_now_s(), took = time - bar->start_s;
    if (now->doing) {
        tri_prepare_bar_end(bar);
        tri_cli_line("tokens", "%s", now->doing);
        fflush(stdout);
        bar->start_s = time;
        return;
    }
    if (!bar->terminal || time - bar->drawn_s < 0.1 || now->total == 0)
        return;
    double done = (double)now->consumed / (double)now->total;
    int full = (int)(done * WIDTH);
    char left[32], tokens[16];
    printf("\r  [%.*s%.*s] %3.0f%%  %.1f MB/s  %s tokens  %s left \033[K", full,
           "========================", WIDTH - full, "                        ", 100 * done,
           (double)now->text_bytes / took * 1e-6, tri_text_count((double)now->tokens, tokens),
           tri_text_duration(done > 0 ? took / done * (1 - done) : NAN, left));
    fflush(stdout);
    bar->drawn_s = time;
    bar->drawn = true;
}

void tri_prepare_bar_end(tri_prepare_bar *bar)
{
    if (bar->drawn)
        fputs("\r\033[K", stdout);
    bar->drawn = false;
}

/* ---- prepare ---- */

static tr_status flag_fraction(const tri_cli *cli, const char *name, double *value, tr_error *err)
{
    const char *text = tri_cli_flag(cli, name);
    char *end;
    if (!text)
        return TR_OK;
    *value = strtod(text, &end);
    if (!*text || *end || !(*value >= 0 && *value < 1))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--%s is \"%.60s\"; it must be a number of at least 0 and below 1", name,
                        text);
    return TR_OK;
}

static tr_status read_flags(const tri_cli *cli, tri_prepare_config *config, tr_error *err)
{
    const char *separator = tri_cli_flag(cli, "separator");
    int64_t id = TRI_SEPARATOR_USUAL;
    if (separator && strcmp(separator, "none") == 0)
        id = TRI_SEPARATOR_NONE;
    else
        TRI_TRY(tri_cli_flag_int(cli, "separator", 0, INT32_MAX, &id, err));
    config->separator = (int32_t)id;
    TRI_TRY(tri_cli_flag_int(cli, "shard-tokens", 1, INT64_MAX, &config->shard_tokens, err));
    return flag_fraction(cli, "split", &config->split, err);
}

static void print_split(const tri_prepare_result *r, tri_split split)
{
    char tokens[16];
    if (r->tokens[split] > 0)
        printf("  %-6s %s tokens, %" PRIu64 " document%s, %" PRIu64 " shard%s\n",
               split == TRI_SPLIT_TRAIN ? "train" : "eval",
               tri_text_count((double)r->tokens[split], tokens), r->documents[split],
               r->documents[split] == 1 ? "" : "s", r->shards[split],
               r->shards[split] == 1 ? "" : "s");
}

static void print_result(const tri_prepare_config *config, const tri_tokenizer *tokenizer,
                         const tri_prepare_result *r, double took)
{
    char bytes[16], described[160], time[32];
    double tokens = (double)(r->tokens[0] + r->tokens[1]);
    tri_text_print(stdout, "%s: %s of text in %" PRIu64 " file%s, %s\n", config->out,
                   tri_text_bytes((double)r->text_bytes, bytes), r->num_files,
                   r->num_files == 1 ? "" : "s",
                   tri_tokenizer_describe(tokenizer, described, sizeof described));
    print_split(r, TRI_SPLIT_TRAIN);
    print_split(r, TRI_SPLIT_EVAL);
    printf("  %.2f bytes per token; %s, %.1f MB/s\n", (double)r->text_bytes / tokens,
           tri_text_duration(took, time), (double)r->text_bytes / took * 1e-6);
    if (config->split > 0 && r->tokens[TRI_SPLIT_EVAL] == 0)
        printf("  note: of so few documents none was held out; training keeps the last tokens "
               "instead (data.eval_fraction)\n");
}

static tr_status prepare_with(tri_prepare_config *config, const char *name, tri_pool *pool,
                              tr_error *err)
{
    tri_prepare_bar bar;
    tri_prepare_result result;
    tri_tokenizer *tokenizer;
    tri_prepare_bar_init(&bar, tri_terminal(stdout));
    config->progress = tri_prepare_bar_show;
    config->context = &bar;
    TRI_TRY(tri_prepare_tokenizer(name, config->inputs, config->num_inputs, config->field, pool,
                                  &tokenizer, err));
    tr_status status = tri_prepare(config, tokenizer, pool, &result, err);
    tri_prepare_bar_end(&bar);
    if (status == TR_OK)
        print_result(config, tokenizer, &result, tri_now_s() - bar.start_s);
    tri_tokenizer_close(tokenizer);
    return status;
}

tr_status tri_data_prepare_verb(const tri_cli *cli, tr_error *err)
{
    const char *name = tri_cli_flag(cli, "tokenizer");
    int64_t threads = tr_settings_int(cli->settings, "run.threads");
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    tri_prepare_config config = {.inputs = cli->operands + 1,
                                 .num_inputs = cli->num_operands - 1,
                                 .out = tri_cli_flag(cli, "out"),
                                 .field = tri_cli_flag(cli, "field"),
                                 .plain = tri_cli_flag(cli, "plain") != NULL,
                                 .force = tri_cli_flag(cli, "force") != NULL};
    tri_pool *pool;
    if (!name || !config.out || config.num_inputs < 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "say what, with which tokenizer and where to: trireme data prepare TEXT "
                        "... --tokenizer tokenizer.json --out DIR");
    TRI_TRY(read_flags(cli, &config, err));
    TRI_TRY(tri_check_output(config.out, true, err));
    tri_signals_outlive_readers();
    tri_guard guard;
    tri_guard_begin(&guard, config.out);
    tr_status status = tri_pool_create(threads > 0 ? (int)threads
                                       : cores > 0 ? (int)cores
                                                   : 1,
                                       &pool, err);
    if (status == TR_OK) {
        status = prepare_with(&config, name, pool, err);
        tri_pool_destroy(pool);
    }
    tri_guard_end(&guard);
    return status;
}

/* ---- inspect ---- */

static tr_status inspect_split(const tri_prepared *p, tri_split split, tr_error *err)
{
    for (size_t i = 0; i < p->num[split]; i++) {
        const tri_shard *s = &p->shard[split][i];
        TRI_TRY(tri_shard_verify(s, err));
        printf("  %-5s %s  %" PRIu64 " tokens of %d bytes",
               split == TRI_SPLIT_TRAIN ? "train" : "eval", s->path, s->num_tokens, s->width);
        if (s->foreign)
            printf(", llm.c, every token in range\n");
        else
            printf(", %" PRIu64 " documents end in it, checksum right\n", s->num_documents);
    }
    return TR_OK;
}

static tr_status put_split(json_t *list, const tri_prepared *p, tri_split split, tr_error *err)
{
    for (size_t i = 0; i < p->num[split]; i++) {
        const tri_shard *s = &p->shard[split][i];
        TRI_TRY(tri_shard_verify(s, err));
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "split", split == TRI_SPLIT_TRAIN ? "train" : "eval");
        tri_doc_text(item, "path", s->path);
        tri_doc_count(item, "tokens", (int64_t)s->num_tokens);
        tri_doc_count(item, "token_bytes", s->width);
        if (s->foreign)
            tri_doc_null(item, "documents");
        else
            tri_doc_count(item, "documents", (int64_t)s->num_documents);
    }
    return TR_OK;
}

static tr_status inspect_json(const tri_prepared *p, const char *path, tr_error *err)
{
    char fingerprint[20];
    json_t *doc = tri_doc_begin();
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, p->fingerprint);
    tri_doc_text(doc, "path", path);
    tri_doc_count(doc, "vocab", p->vocab);
    tri_doc_count_from(doc, "separator", p->separator, 0);
    tri_doc_text(doc, "tokenizer_fingerprint", p->fingerprint ? fingerprint : NULL);
    tri_doc_count(doc, "train_tokens", (int64_t)p->tokens[TRI_SPLIT_TRAIN]);
    tri_doc_count(doc, "eval_tokens", (int64_t)p->tokens[TRI_SPLIT_EVAL]);
    json_t *list = tri_doc_list(doc, "shards");
    tr_status status = put_split(list, p, TRI_SPLIT_TRAIN, err);
    if (status == TR_OK)
        status = put_split(list, p, TRI_SPLIT_EVAL, err);
    if (status == TR_OK)
        return tri_doc_print(doc, stdout, err);
    json_decref(doc);
    return status;
}

tr_status tri_data_inspect_verb(const tri_cli *cli, tr_error *err)
{
    tri_prepared p;
    if (cli->num_operands != 2)
        return tri_fail(err, TR_ERROR_INPUT,
                        "name one directory or shard: trireme data inspect PATH");
    if (!tri_path_exists(cli->operands[1]))
        return tri_advise(
            err, tri_fail_open(err, cli->operands[1], ENOENT),
            "`trireme data prepare TEXT --tokenizer bytes --out DIR` makes what this looks into");
    TRI_TRY(tri_prepared_open(cli->operands[1], &p, err));
    if (tri_cli_flag(cli, "json")) {
        tr_status printed = inspect_json(&p, cli->operands[1], err);
        tri_prepared_close(&p);
        return printed;
    }
    printf("%s: vocabulary %d, ", cli->operands[1], p.vocab);
    if (p.separator >= 0)
        printf("documents %s with %d, ", p.separator_first ? "begin" : "end", p.separator);
    else
        printf("no separator, ");
    if (p.fingerprint)
        printf("tokenizer %016" PRIx64 "%s\n", p.fingerprint, p.tokenizer ? " (kept with it)" : "");
    else
        printf("tokenizer not known\n");
    tr_status status = inspect_split(&p, TRI_SPLIT_TRAIN, err);
    if (status == TR_OK)
        status = inspect_split(&p, TRI_SPLIT_EVAL, err);
    tri_prepared_close(&p);
    return status;
}
